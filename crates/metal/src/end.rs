//! The end of the machine, with a code for whoever started it, and panics.

use core::fmt::Write;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::cpu;
use crate::serial::{Port, out8};

/// How it ends. The emulator's exit code is twice this and one more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum End {
    /// All is well: 33.
    Well = 0x10,
    /// The run failed, and has said why: 35.
    Failed = 0x11,
    /// A panic or an exception that nobody expected: 37.
    Panicked = 0x12,
    /// The command line makes no sense: 39.
    Usage = 0x13,
}

const EXIT_PORT: u16 = 0xf4;

/// Ends the machine: by `isa-debug-exit` where there is one, else all that is left is to stand still.
pub fn end(how: End) -> ! {
    out8(EXIT_PORT, how as u8);
    loop {
        cpu::irqs_off();
        cpu::halt();
    }
}

static PANICKING: AtomicBool = AtomicBool::new(false);

/// What the panic handler does: says where and on which CPU, and ends the machine.
pub fn panicked(info: &PanicInfo<'_>) -> ! {
    cpu::irqs_off();
    // The first one speaks: the others' stories follow from its own. Relaxed: nothing else is read.
    if PANICKING.swap(true, Ordering::Relaxed) {
        loop {
            cpu::halt();
        }
    }
    // Without the console's lock: whoever has it may be this CPU.
    let _ = writeln!(Port, "\n{{\"panic\":\"{}\",\"cpu\":{}}}", Flat(info), cpu::number_or(u32::MAX));
    end(End::Panicked)
}

/// A text on one line, with nothing in it that JSON would take for its own.
pub struct Flat<T>(pub T);

impl<T: core::fmt::Display> core::fmt::Display for Flat<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        struct Escape<'a, 'b>(&'a mut core::fmt::Formatter<'b>);
        impl Write for Escape<'_, '_> {
            fn write_str(&mut self, text: &str) -> core::fmt::Result {
                text.chars().try_for_each(|c| match c {
                    '"' | '\\' => write!(self.0, "\\{c}"),
                    c if c < ' ' => self.0.write_char(' '),
                    c => self.0.write_char(c),
                })
            }
        }
        write!(Escape(f), "{}", self.0)
    }
}
