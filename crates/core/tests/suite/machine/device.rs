//! The machine's block device: what it keeps, and what it says when a test wants it to fail.

use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use quietmm::platform::{BlockDevice, DeviceError, Memory, Store, Transfer, WriteRefused};
use quietmm::{FileId, FrameNumber, Platform};

use super::{Happened, Host};

/// What the device keeps of a page.
pub type Kept = Box<[u8; 4096]>;

/// What a device says to a transfer that it refuses.
pub type Refuse = fn(Store, u64) -> Option<DeviceError>;

impl Host {
    /// This device keeps the pages from now on.
    pub fn set_device(&self, device: Rc<dyn BlockDevice>) {
        assert!(self.device.set(device).is_ok(), "once");
    }

    pub fn on_disk(&self, file: FileId, block: u64) -> Option<u64> {
        self.kept(Store::File(file), block)
    }

    /// The first word of what a store keeps of a page.
    pub fn kept(&self, store: Store, block: u64) -> Option<u64> {
        let word = |page: &Kept| u64::from_ne_bytes(*page.first_chunk().unwrap());
        self.disk.borrow().get(&(store, block)).map(word)
    }

    /// A page is out: whoever writes to it from here on asks anew.
    fn look_for_leave(&self, to: Store, block: u64, content: &Kept) {
        let Store::File(file) = to else { return };
        let granted = self.granted.borrow_mut().remove(&(file, block));
        let before = self.disk.borrow().get(&(to, block)).cloned();
        let changed = before.is_none_or(|before| before != *content);
        if changed && !granted && self.watched_file.get() == Some(file) {
            self.unasked.set(self.unasked.get() + 1);
        }
    }

    fn read_page(&self, from: Store, block: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        if self.fail_reads.get() {
            return Err(DeviceError::Failed);
        }
        if let Some(other) = self.device.get() {
            other.read(from, block, frame)?;
            self.enter_read(from);
            return Ok(());
        }
        if let Some(error) = self.refuse_reads.get().and_then(|refuse| refuse(from, block)) {
            return Err(error);
        }
        match self.disk.borrow().get(&(from, block)) {
            Some(kept) => self.write_frame(frame, 0, &**kept),
            None => self.clear_frame(frame),
        }
        self.enter_read(from);
        self.next(&self.on_disk_read);
        Ok(())
    }

    fn content(&self, frame: FrameNumber) -> Kept {
        let mut content = Box::new([0; 4096]);
        self.read_frame(frame, 0, &mut *content);
        content
    }
}

impl BlockDevice for Host {
    fn read(&self, from: Store, block: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        self.read_commands.set(self.read_commands.get() + 1);
        self.read_page(from, block, frame)
    }
    fn read_all(&self, transfers: &mut [Transfer]) {
        self.read_commands.set(self.read_commands.get() + 1);
        for one in transfers {
            one.result = self.read_page(one.store, one.block, one.frame);
        }
    }
    fn forget(&self, _store: Store, _block: u64) {
        self.enter_forgotten();
        self.next(&self.on_forget);
    }
    fn end(&self, store: Store) {
        self.enter_end(store);
        if let Some(other) = self.device.get() {
            other.end(store);
        }
        self.next(&self.on_end);
    }
    fn write(&self, to: Store, block: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        self.note(Happened::DiskWrite(to, block));
        self.enter_write(frame);
        let content = self.content(frame);
        self.goes_out.set(self.word(frame, 0).load(Ordering::SeqCst));
        self.next(&self.on_disk_write);
        let other = self.device.get().map(|other| other.write(to, block, frame));
        let changed = self.content(frame) != content;
        self.torn.set(self.torn.get() + u32::from(changed));
        if let Some(done) = other {
            return done.inspect(|()| self.enter_written(to));
        }
        if self.fail_writes.get() {
            return Err(DeviceError::Failed);
        }
        if let Some(error) = self.refuse_writes.get().and_then(|refuse| refuse(to, block)) {
            return Err(error);
        }
        self.enter_written(to);
        self.look_for_leave(to, block, &content);
        self.disk.borrow_mut().insert((to, block), content);
        Ok(())
    }
    fn page_mkwrite(&self, file: FileId, block: u64) -> Result<(), WriteRefused> {
        if let Some(other) = self.device.get() {
            let answer = other.page_mkwrite(file, block);
            self.enter_mkwrite(answer.is_ok());
            return answer;
        }
        self.mkwrites.borrow_mut().push((file, block));
        self.next(&self.on_mkwrite);
        self.enter_mkwrite(!self.refuse_mkwrite.get());
        if self.refuse_mkwrite.get() {
            return Err(WriteRefused);
        }
        self.granted.borrow_mut().insert((file, block));
        Ok(())
    }
    fn discard(&self, file: FileId, blocks: Range<u64>) -> Result<(), DeviceError> {
        if let Some(other) = self.device.get() {
            return other.discard(file, blocks);
        }
        if self.fail_discards.get() {
            return Err(DeviceError::Failed);
        }
        self.next(&self.on_discard);
        // With the blocks goes the leave to write to them.
        self.granted.borrow_mut().retain(|(of, block)| *of != file || !blocks.contains(block));
        self.disk
            .borrow_mut()
            .retain(|&(store, block), _| store != Store::File(file) || !blocks.contains(&block));
        Ok(())
    }
}
