//! What is behind file pages and swap.

use core::ffi::c_void;
use core::ops::Range;

use quietmm::platform::{self, BlockDevice, DeviceError, WriteRefused};
use quietmm::{FileId, FrameNumber};

use crate::file::File;
use crate::platform::{Machine, call};

/// What keeps a page.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Store {
    /// One of `enum quietmm_store_kind`.
    pub kind: u32,
    /// The number of a swap device, as it came to `quietmm_swap_on`.
    pub device: u32,
    /// The file. No later one has this handle; its `slot` is small, and is used again.
    pub file: File,
}

/// The kinds of what keeps pages.
#[repr(C)]
pub enum StoreKind {
    /// A file.
    File = 0,
    /// A swap device.
    Swap = 1,
}

/// What came of a transfer.
#[repr(C)]
pub enum Io {
    /// It is done.
    Done = 0,
    /// Not this block, not this time.
    Failed = 1,
    /// The device is not there any more.
    Gone = 2,
}

/// One page of several that are on their way at once.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Transfer {
    /// What keeps it.
    pub store: Store,
    /// Its place there, in pages from the start.
    pub block: u64,
    /// Its frame.
    pub frame: u32,
    /// What came of it: one of `enum quietmm_io`. FAILED until the device says otherwise.
    pub result: u32,
}

/// Transfers of pages, each with the `context` of the platform. On, no spin lock held; they may wait. **When one returns the device
/// is done with the frame**, also after an error. A write must not need memory that only reclaim can free.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Device {
    /// Fill a frame with the page; a hole of a file is zeros. Answers with one of `enum quietmm_io`.
    pub read: Option<unsafe extern "C" fn(context: *mut c_void, from: Store, block: u64, frame: u32) -> u32>,
    /// Write a frame out. Answers with one of `enum quietmm_io`.
    pub write: Option<unsafe extern "C" fn(context: *mut c_void, to: Store, block: u64, frame: u32) -> u32>,
    /// Fill the frames of several pages, at most 32 at a time: a device that takes several commands starts all before it waits for the first. Each gets its
    /// `result`. NULL: one after the other.
    pub read_all: Option<unsafe extern "C" fn(context: *mut c_void, transfers: *mut Transfer, count: usize)>,
    /// The same for writing.
    pub write_all: Option<unsafe extern "C" fn(context: *mut c_void, transfers: *mut Transfer, count: usize)>,
    /// These blocks of a file are zeros from now on, until they are written again. NULL: files neither grow nor get holes.
    pub discard:
        Option<unsafe extern "C" fn(context: *mut c_void, file: File, first: u64, count: u64) -> u32>,
    /// A page of a file that `quietmm_file_watch_writes` was called for is about to become writable through a shared mapping: true if it may. The page
    /// is locked: call nothing of its file. NULL: all may.
    pub page_mkwrite: Option<unsafe extern "C" fn(context: *mut c_void, file: File, block: u64) -> bool>,
    /// The page has left memory, for whoever keeps something for cached pages: its content is wanted as before. A hint that may come late, when the page is back
    /// or its file has ended. May be NULL.
    pub forget: Option<unsafe extern "C" fn(context: *mut c_void, store: Store, block: u64)>,
    /// The file has ended, or the swap device is not used any more: its number may be used again when this has returned. May be NULL.
    pub end: Option<unsafe extern "C" fn(context: *mut c_void, store: Store)>,
}

impl From<platform::Store> for Store {
    fn from(store: platform::Store) -> Self {
        match store {
            platform::Store::File(file) => {
                Store { kind: StoreKind::File as u32, device: 0, file: file.into() }
            }
            platform::Store::Swap(device) => Store { kind: StoreKind::Swap as u32, device, file: File::NONE },
        }
    }
}

fn result(io: u32) -> Result<(), DeviceError> {
    match io {
        0 => Ok(()),
        2 => Err(DeviceError::Gone),
        _ => Err(DeviceError::Failed),
    }
}

/// Transfers that C gets at a time: they lie on the stack.
const AT_ONCE: usize = 32;

/// Hands some over, and takes their results.
fn all(transfers: &mut [platform::Transfer], hand: impl Fn(*mut Transfer, usize)) {
    let none = Store { kind: StoreKind::File as u32, device: 0, file: File::NONE };
    for some in transfers.chunks_mut(AT_ONCE) {
        let mut for_c = [Transfer { store: none, block: 0, frame: 0, result: Io::Failed as u32 }; AT_ONCE];
        for (to, from) in for_c.iter_mut().zip(&*some) {
            *to = Transfer { store: from.store.into(), block: from.block, frame: from.frame.0, ..*to };
        }
        hand(for_c.as_mut_ptr(), some.len());
        some.iter_mut().zip(&for_c).for_each(|(to, from)| to.result = result(from.result));
    }
}

impl BlockDevice for Machine {
    fn read(&self, from: platform::Store, block: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        result(call!(self.device.read(from.into(), block, frame.0)))
    }
    fn write(&self, to: platform::Store, block: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        result(call!(self.device.write(to.into(), block, frame.0)))
    }
    fn read_all(&self, transfers: &mut [platform::Transfer]) {
        if self.0.device.read_all.is_none() {
            return transfers
                .iter_mut()
                .for_each(|one| one.result = self.read(one.store, one.block, one.frame));
        }
        all(transfers, |some, count| call!(self.device.read_all(some, count)));
    }
    fn write_all(&self, transfers: &mut [platform::Transfer]) {
        if self.0.device.write_all.is_none() {
            return transfers
                .iter_mut()
                .for_each(|one| one.result = self.write(one.store, one.block, one.frame));
        }
        all(transfers, |some, count| call!(self.device.write_all(some, count)));
    }
    fn forget(&self, store: platform::Store, block: u64) {
        if self.0.device.forget.is_some() {
            call!(self.device.forget(store.into(), block));
        }
    }
    fn discard(&self, file: FileId, blocks: Range<u64>) -> Result<(), DeviceError> {
        if self.0.device.discard.is_none() {
            return Err(DeviceError::Failed);
        }
        result(call!(self.device.discard(file.into(), blocks.start, blocks.end - blocks.start)))
    }
    fn page_mkwrite(&self, file: FileId, block: u64) -> Result<(), WriteRefused> {
        if self.0.device.page_mkwrite.is_none() || call!(self.device.page_mkwrite(file.into(), block)) {
            return Ok(());
        }
        Err(WriteRefused)
    }
    fn end(&self, store: platform::Store) {
        if self.0.device.end.is_some() {
            call!(self.device.end(store.into()));
        }
    }
}
