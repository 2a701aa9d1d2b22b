//! Text that ends with a zero byte.

use core::ffi::{CStr, c_char};
use core::fmt::{Arguments, Write};

/// Writes into a block of bytes: what does not fit is cut off, and the last byte is zero.
pub(crate) struct Into<'b> {
    block: &'b mut [u8],
    used: usize,
}

impl<'b> Into<'b> {
    pub fn new(block: &'b mut [u8]) -> Self {
        block.iter_mut().take(1).for_each(|first| *first = 0);
        Into { block, used: 0 }
    }
}

impl Write for Into<'_> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for &byte in text.as_bytes() {
            if self.used + 1 >= self.block.len() {
                return Ok(());
            }
            self.block[self.used] = byte;
            self.used += 1;
            self.block[self.used] = 0;
        }
        Ok(())
    }
}

/// Fills `room` bytes at `at`, if there are any.
///
/// # Safety
/// They are the caller's, or `at` is null.
pub(crate) unsafe fn fill(at: *mut c_char, room: usize, text: Arguments<'_>) {
    if at.is_null() || room == 0 {
        return;
    }
    // SAFETY: the caller promises them.
    let block = unsafe {
        at.cast::<u8>().write_bytes(0, room);
        core::slice::from_raw_parts_mut(at.cast::<u8>(), room)
    };
    let _ = Into::new(block).write_fmt(text);
}

/// What C hands over as a text: `None` if it is null or not UTF-8.
///
/// # Safety
/// It ends with a zero byte, and stays as it is for so long.
pub(crate) unsafe fn read<'t>(text: *const c_char) -> Option<&'t str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller promises it.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

/// A short text of its own.
#[cfg(feature = "library")]
pub(crate) struct Line<const ROOM: usize>([u8; ROOM]);

#[cfg(feature = "library")]
impl<const ROOM: usize> Line<ROOM> {
    pub fn of(text: Arguments<'_>) -> Self {
        let mut line = Line([0; ROOM]);
        let _ = Into::new(&mut line.0).write_fmt(text);
        line
    }

    pub fn as_ptr(&self) -> *const c_char {
        self.0.as_ptr().cast()
    }
}
