//! A perf event and the ring into which the kernel writes what happens.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys as sys;
use sys::bindings::{perf_event_attr, perf_event_mmap_page};

/// Whose events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Of {
    /// A thread's, and those of all that it makes.
    Thread(i32),
    /// Everybody's.
    All,
}

/// Opens an event on a CPU.
pub fn open(attr: &mut perf_event_attr, of: Of, cpu: u16) -> io::Result<File> {
    let pid = match of {
        Of::Thread(tid) => tid,
        Of::All => -1,
    };
    let flags = sys::bindings::PERF_FLAG_FD_CLOEXEC as libc::c_ulong;
    // SAFETY: the attribute is a whole one that lives through the call.
    let fd = unsafe { sys::perf_event_open(attr, pid, cpu.into(), -1, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made, and is nobody else's.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// The number by which its samples say that they are this event's.
pub fn id(event: &File) -> io::Result<u64> {
    let mut id = 0;
    // SAFETY: the kernel writes one u64.
    let done = unsafe { sys::ioctls::ID(event.as_raw_fd(), &mut id) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(id) }
}

/// Its samples are only those for which the expression holds.
pub fn filter(event: &File, expression: &str) -> io::Result<()> {
    let text = std::ffi::CString::new(expression)?;
    // SAFETY: a text with its end, which lives through the call; the kernel only reads it.
    let done = unsafe { sys::ioctls::SET_FILTER(event.as_raw_fd(), text.as_ptr().cast_mut()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Its samples go into the ring of another event of the same CPU.
pub fn redirect(event: &File, ring: &Ring) -> io::Result<()> {
    // SAFETY: two descriptors of events.
    let done = unsafe { sys::ioctls::SET_OUTPUT(event.as_raw_fd(), ring.event.as_raw_fd()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The ring of an event.
pub struct Ring {
    pub event: File,
    page: *mut perf_event_mmap_page,
    bytes: usize,
    record: Vec<u8>,
}

const PAGE: usize = 4096;

impl Ring {
    /// Maps a ring of `pages` pages, a power of two, or the largest smaller one that the kernel allows.
    pub fn new(event: File, pages: usize) -> io::Result<Ring> {
        let mut pages = pages;
        loop {
            let bytes = (pages + 1) * PAGE;
            let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            // SAFETY: a new mapping of the event's descriptor, of nobody's memory.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, flags, event.as_raw_fd(), 0) };
            if at != libc::MAP_FAILED {
                return Ok(Ring { event, page: at.cast(), bytes, record: Vec::new() });
            }
            if pages == 1 {
                return Err(io::Error::last_os_error());
            }
            pages /= 2;
        }
    }

    /// Hands each record that is there to `each`: its kind, its flags, what follows its header.
    pub fn drain(&mut self, mut each: impl FnMut(u32, u16, &[u8])) -> io::Result<()> {
        let page = self.page;
        // SAFETY: the first page of the mapping, in which the kernel keeps its head and reads our tail. Both are aligned
        // words that the kernel and we access atomically.
        let (head, tail) = unsafe {
            (AtomicU64::from_ptr(&raw mut (*page).data_head), AtomicU64::from_ptr(&raw mut (*page).data_tail))
        };
        // Acquire: partner of the kernel's barrier between its records and its head.
        let end = head.load(Ordering::Acquire);
        let mut at = tail.load(Ordering::Relaxed);
        while at < end {
            let mut header = [0; 8];
            self.copy(at, &mut header);
            let kind = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
            let misc = u16::from_le_bytes([header[4], header[5]]);
            let size = u16::from_le_bytes([header[6], header[7]]);
            if size < 8 || at + u64::from(size) > end {
                return Err(io::Error::other("a ring of perf events does not hold whole records"));
            }
            let mut record = std::mem::take(&mut self.record);
            record.resize(usize::from(size) - 8, 0);
            self.copy(at + 8, &mut record);
            each(kind, misc, &record);
            self.record = record;
            at += u64::from(size);
        }
        // Release: the kernel may write over what we have read.
        tail.store(at, Ordering::Release);
        Ok(())
    }

    fn copy(&self, at: u64, to: &mut [u8]) {
        let size = self.bytes - PAGE;
        let from = at as usize & (size - 1);
        let first = to.len().min(size - from);
        // SAFETY: both pieces lie inside the ring; the kernel does not write there before the tail has passed.
        unsafe {
            let ring = self.page.cast::<u8>().add(PAGE);
            ring.add(from).copy_to_nonoverlapping(to.as_mut_ptr(), first);
            ring.copy_to_nonoverlapping(to.as_mut_ptr().add(first), to.len() - first);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made; nothing borrows from it.
        unsafe { libc::munmap(self.page.cast(), self.bytes) };
    }
}
