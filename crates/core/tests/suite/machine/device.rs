//! The machine's block device: what it keeps, and what it says when a test wants it to fail.

use std::sync::atomic::Ordering;

use quietmm::platform::{BlockDevice, DeviceError, Store};
use quietmm::{FileId, FrameNumber, Platform};

use super::{Happened, Host};

/// What a device says to a transfer that it refuses.
pub type Refuse = fn(Store, u64) -> Option<DeviceError>;

impl Host {
    pub fn on_disk(&self, file: FileId, block: u64) -> Option<u64> {
        self.kept(Store::File(file), block)
    }

    /// What a store keeps of a page.
    pub fn kept(&self, store: Store, block: u64) -> Option<u64> {
        self.disk.borrow().get(&(store, block)).copied()
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
        self.clear_frame(frame);
        self.word(frame, 0).store(self.kept(from, block).unwrap_or(0), Ordering::SeqCst);
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
        let content = self.word(frame, 0).load(Ordering::SeqCst);
        self.goes_out.set(content);
        self.next(&self.on_disk_write);
        let changed = self.word(frame, 0).load(Ordering::SeqCst) != content;
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
}
