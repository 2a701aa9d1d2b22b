//! The console: one line at a time on the first serial port, and input and output ports.

use core::arch::asm;
use core::fmt::{self, Write};

use crate::lock::Lock;

const PORT: u16 = 0x3f8;

/// Writes a byte to an I/O port.
pub fn out8(port: u16, byte: u8) {
    // SAFETY: the ports that are used here touch no memory.
    unsafe { asm!("out dx, al", in("dx") port, in("al") byte, options(nomem, nostack, preserves_flags)) };
}

/// Writes two bytes to an I/O port.
pub fn out16(port: u16, word: u16) {
    // SAFETY: as in `out8`.
    unsafe { asm!("out dx, ax", in("dx") port, in("ax") word, options(nomem, nostack, preserves_flags)) };
}

/// Reads a byte from an I/O port.
pub fn in8(port: u16) -> u8 {
    let byte;
    // SAFETY: as in `out8`.
    unsafe { asm!("in al, dx", in("dx") port, out("al") byte, options(nomem, nostack, preserves_flags)) };
    byte
}

/// The port as a place to write to, without the lock: for the end of the machine.
pub struct Port;

impl Write for Port {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // Until the transmitter takes another.
            while in8(PORT + 5) & 0x20 == 0 {}
            out8(PORT, byte);
        }
        Ok(())
    }
}

static CONSOLE: Lock<Port> = Lock::new(Port);

/// Prints a whole line.
pub fn print_line(text: fmt::Arguments<'_>) {
    CONSOLE.with(|port| {
        // The port takes everything.
        let _ = port.write_fmt(text);
        let _ = port.write_str("\n");
    });
}

/// Prints a whole line, as `println!` does.
#[macro_export]
macro_rules! line {
    ($($text:tt)*) => { $crate::serial::print_line(format_args!($($text)*)) };
}
