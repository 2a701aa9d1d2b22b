//! The machine's block device: what it keeps, and what it says when a test wants it to fail.

use std::ops::Range;
use std::sync::atomic::Ordering;

use quietmm::platform::{BlockDevice, DeviceError, Memory, Store};
use quietmm::{FileId, FrameNumber, Platform};

use super::{Happened, Host};

/// What the device keeps of a page.
pub type Kept = Box<[u8; 4096]>;

/// What a device says to a transfer that it refuses.
pub type Refuse = fn(Store, u64) -> Option<DeviceError>;

impl Host {
    pub fn on_disk(&self, file: FileId, block: u64) -> Option<u64> {
        self.kept(Store::File(file), block)
    }

    /// The first word of what a store keeps of a page.
    pub fn kept(&self, store: Store, block: u64) -> Option<u64> {
        let word = |page: &Kept| u64::from_ne_bytes(*page.first_chunk().unwrap());
        self.disk.borrow().get(&(store, block)).map(word)
    }

    fn content(&self, frame: FrameNumber) -> Kept {
        let mut content = Box::new([0; 4096]);
        self.read_frame(frame, 0, &mut *content);
        content
    }
}

impl BlockDevice for Host {
    fn read(&self, from: Store, block: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        if self.fail_reads.get() {
            return Err(DeviceError::Failed);
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
    fn forget(&self, _store: Store, _block: u64) {
        self.enter_forgotten();
        self.next(&self.on_forget);
    }
    fn write(&self, to: Store, block: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        self.note(Happened::DiskWrite(to, block));
        self.enter_write(frame);
        let content = self.content(frame);
        self.goes_out.set(self.word(frame, 0).load(Ordering::SeqCst));
        self.next(&self.on_disk_write);
        let changed = self.content(frame) != content;
        self.torn.set(self.torn.get() + u32::from(changed));
        if self.fail_writes.get() {
            return Err(DeviceError::Failed);
        }
        if let Some(error) = self.refuse_writes.get().and_then(|refuse| refuse(to, block)) {
            return Err(error);
        }
        self.enter_written(to);
        self.disk.borrow_mut().insert((to, block), content);
        Ok(())
    }
    fn discard(&self, file: FileId, blocks: Range<u64>) -> Result<(), DeviceError> {
        if self.fail_discards.get() {
            return Err(DeviceError::Failed);
        }
        self.next(&self.on_discard);
        self.disk
            .borrow_mut()
            .retain(|&(store, block), _| store != Store::File(file) || !blocks.contains(&block));
        Ok(())
    }
}
