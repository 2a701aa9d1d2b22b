//! Files: pages that programs see by mappings, and the kernel by reads and writes.

use core::ffi::c_void;
use core::mem::MaybeUninit;

use quietmm::{FileId, NodeId};

use crate::error::{Error, answer, number};
use crate::kernel::Kernel;
use crate::platform::Machine;
use crate::space::{Migrated, node_set};

/// A file. It names this one only: once it has ended every call gets NO_SUCH_FILE, for ever. All zeros is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct File {
    /// Which use of the place this is.
    pub life: u64,
    /// A small number that no other living file has; a later one may.
    pub slot: u32,
}

impl From<FileId> for File {
    fn from(id: FileId) -> Self {
        let (slot, life) = id.into_raw();
        File { life, slot }
    }
}

impl File {
    pub(crate) const NONE: File = File { life: 0, slot: 0 };

    pub(crate) fn id(self) -> Option<FileId> {
        FileId::from_raw(self.slot, self.life)
    }

    fn of(self, mm: &Kernel) -> Result<quietmm::File<'_, 'static, Machine>, quietmm::Error> {
        Ok(mm.mm().file(self.id().ok_or(quietmm::Error::NoSuchFile)?))
    }
}

/// Makes a file of so many pages, all holes: the device is asked with the handle. On; it may wait for memory. OUT_OF_MEMORY, BAD_RANGE.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_create_file(mm: &Kernel, pages: u64, file: &mut MaybeUninit<File>) -> Error {
    answer(mm.mm().create_file(pages).map(File::from), Some(file))
}

/// The same of a file that no device keeps: what is written to it stays in memory, or goes to swap. Memory that programs share is such a file. On; it may
/// wait for memory. OUT_OF_MEMORY, BAD_RANGE above 2^36 pages.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_create_memory_file(mm: &Kernel, pages: u64, file: &mut MaybeUninit<File>) -> Error {
    answer(mm.mm().create_memory_file(pages).map(File::from), Some(file))
}

/// Pages of a memory file that are in swap; of other files 0. Any context.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_file_swapped_pages(mm: &Kernel, file: File, pages: &mut MaybeUninit<u64>) -> Error {
    answer(file.of(mm).and_then(|file| file.swapped_pages()), Some(pages))
}

/// Ends a file; what is still dirty is dropped. On; it may wait. BUSY while something maps it.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_file_destroy(mm: &Kernel, file: File) -> Error {
    number(file.of(mm).and_then(|file| file.destroy()))
}

/// Reads `len` bytes from the byte `at` on; `got` gets how many came: fewer where the file ends, or where a page could not be had. What lies behind these
/// is zeros then, all of it after an error. `into` is no program's memory. On; it may wait. BAD_VALUE if it is NULL; DEVICE, OUT_OF_MEMORY if not a
/// single byte came.
///
/// # Safety
/// `into` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quietmm_file_read(
    mm: &Kernel,
    file: File,
    at: u64,
    into: *mut c_void,
    len: usize,
    got: &mut MaybeUninit<usize>,
) -> Error {
    got.write(0);
    // SAFETY: the caller's promise.
    let Some(into) = (unsafe { buffer(into, len) }) else { return Error::BadValue };
    answer(file.of(mm).and_then(|file| file.read(at, into)), Some(got))
}

/// What one open use of a file remembers of where it reads, so that sequential use is read ahead: one for each descriptor.
/// `quietmm_read_ahead_begin` fills it. Threads may share it.
#[repr(C)]
pub struct ReadAhead {
    /// The core's own.
    pub kept: [u64; 1],
}

const _: () = assert!(size_of::<quietmm::ReadAhead>() <= 8 && align_of::<quietmm::ReadAhead>() <= 8);

/// A use that has not begun. Any context.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_read_ahead_begin(open: &mut MaybeUninit<ReadAhead>) {
    // SAFETY: there is room, as is looked at above.
    unsafe { open.as_mut_ptr().cast::<quietmm::ReadAhead>().write(quietmm::ReadAhead::new()) };
}

/// `quietmm_file_read` for a use of the file that may be sequential.
///
/// # Safety
/// `into` has `len` bytes. `quietmm_read_ahead_begin` has filled `open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quietmm_file_read_with(
    mm: &Kernel,
    file: File,
    open: *const ReadAhead,
    at: u64,
    into: *mut c_void,
    len: usize,
    got: &mut MaybeUninit<usize>,
) -> Error {
    got.write(0);
    // SAFETY: the caller's promise.
    let (open, into) = unsafe { (&*open.cast::<quietmm::ReadAhead>(), buffer(into, len)) };
    let Some(into) = into else { return Error::BadValue };
    answer(file.of(mm).and_then(|file| file.read_with(open, at, into)), Some(got))
}

/// Reads pages that will be wanted soon, as many as there is memory for without reclaim; `came`, unless it is NULL, gets how many. On; it may
/// wait.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_file_read_ahead(
    mm: &Kernel,
    file: File,
    first: u64,
    pages: u64,
    came: Option<&mut MaybeUninit<u64>>,
) -> Error {
    answer(file.of(mm).and_then(|file| file.read_ahead(first, pages)), came)
}

/// From now on the device's `page_mkwrite` is called before a page of this file becomes writable through a shared mapping, each time anew once it was
/// written out. On; it may wait. BUSY while something maps the file: best done when it is made.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_file_watch_writes(mm: &Kernel, file: File) -> Error {
    number(file.of(mm).and_then(|file| file.watch_writes()))
}

/// Bytes of C's to be written to: zeros first, since C may not have written them yet. `None` if they are nowhere.
///
/// # Safety
/// There are `len`, and nobody else uses them meanwhile.
unsafe fn buffer<'b>(into: *mut c_void, len: usize) -> Option<&'b mut [u8]> {
    if len == 0 {
        return Some(&mut []);
    }
    if into.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe {
        into.cast::<u8>().write_bytes(0, len);
        Some(core::slice::from_raw_parts_mut(into.cast(), len))
    }
}

/// Writes `len` bytes from the byte `at` on; the file becomes longer where it has to. `put` gets how many went: fewer where a page could not be
/// had. `from` is no program's memory. On; it may wait. BAD_RANGE; BAD_VALUE if it is NULL; DEVICE, OUT_OF_MEMORY if not a single byte went.
///
/// # Safety
/// `from` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quietmm_file_write(
    mm: &Kernel,
    file: File,
    at: u64,
    from: *const c_void,
    len: usize,
    put: &mut MaybeUninit<usize>,
) -> Error {
    put.write(0);
    if len > 0 && from.is_null() {
        return Error::BadValue;
    }
    if len == 0 {
        return number(file.of(mm).and_then(|file| file.size().map(drop)));
    }
    // SAFETY: the caller's promise.
    let from = unsafe { core::slice::from_raw_parts(from.cast(), len) };
    answer(file.of(mm).and_then(|file| file.write(at, from)), Some(put))
}

/// How long it is, in bytes. On; it may wait for whoever changes that.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_file_size(mm: &Kernel, file: File, bytes: &mut MaybeUninit<u64>) -> Error {
    answer(file.of(mm).and_then(|file| file.size()), Some(bytes))
}

/// Makes it longer, with zeros, or shorter, while programs map it: their next access beyond the end is BEYOND_FILE. On; it may wait.
/// BAD_RANGE, DEVICE, OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_file_set_size(mm: &Kernel, file: File, bytes: u64) -> Error {
    number(file.of(mm).and_then(|file| file.set_size(bytes)))
}

/// Makes `len` bytes from the byte `at` on zeros, without memory or blocks behind whole pages. On; it may wait. BAD_RANGE, OUT_OF_MEMORY; DEVICE: if
/// the device cannot `discard` whole pages, the file shows what it has of them.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_file_punch_hole(mm: &Kernel, file: File, at: u64, len: u64) -> Error {
    number(file.of(mm).and_then(|file| file.punch_hole(at, len)))
}

/// Writes all dirty pages to the device; `pages`, unless it is NULL, gets how many. On; it may wait. OUT_OF_MEMORY; DEVICE:
/// the others are written, and what was not taken stays dirty.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_file_write_back(
    mm: &Kernel,
    file: File,
    pages: Option<&mut MaybeUninit<u64>>,
) -> Error {
    answer(file.of(mm).and_then(|file| file.write_back()), pages)
}

/// The same of `pages` pages from `first` on.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_file_write_back_range(
    mm: &Kernel,
    file: File,
    first: u64,
    pages: u64,
    written: Option<&mut MaybeUninit<u64>>,
) -> Error {
    answer(file.of(mm).and_then(|file| file.write_back_range(first, pages)), written)
}

/// Lets go of cached pages, of `pages` from `first` on, that are clean and used by nobody; `gone`, unless it is NULL, gets how many went. On; it
/// may wait.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_file_evict(
    mm: &Kernel,
    file: File,
    first: u64,
    pages: u64,
    gone: Option<&mut MaybeUninit<u64>>,
) -> Error {
    answer(file.of(mm).and_then(|file| file.evict(first, pages)), gone)
}

/// Moves the cached pages, of `pages` from `first` on, that lie on the nodes `from`, bit n for node n, to frames of another node, mapped or not; `done`, unless it is
/// NULL, gets what became of them. On, no lock; it may wait. NO_SUCH_NODE.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_file_migrate(
    mm: &Kernel,
    file: File,
    first: u64,
    pages: u64,
    from: u64,
    node: u16,
    done: Option<&mut MaybeUninit<Migrated>>,
) -> Error {
    let from = node_set(from);
    let migrated = file.of(mm).and_then(|file| file.migrate(first, pages, from, NodeId(node)));
    answer(migrated.map(Migrated::from), done)
}

/// How many of its pages are in memory. Any context but a handler.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_file_cached_pages(mm: &Kernel, file: File, pages: &mut MaybeUninit<u64>) -> Error {
    answer(file.of(mm).and_then(|file| file.cached_pages()), Some(pages))
}
