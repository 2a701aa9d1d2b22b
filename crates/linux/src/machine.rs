//! What a machine must offer, beyond the core's [`Platform`], to run programs.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Range;

use quietmm::addr::Nanos;
use quietmm::platform::WaitKey;
use quietmm::{FileId, Platform, SpaceId};

use crate::errno::Errno;
use crate::frame::Frame;
use crate::process::Thread;

/// A machine that runs programs.
pub trait Machine: Platform {
    /// Copies from the program that runs here. Its faults are resolved; called with interrupts on and no spin lock.
    ///
    /// # Errors
    /// `EFAULT`: not all of it is the program's to read.
    fn read_user(&self, at: u64, into: &mut [u8]) -> Result<(), Errno>;
    /// Copies to it, likewise.
    ///
    /// # Errors
    /// `EFAULT`: not all of it is the program's to write.
    fn write_user(&self, at: u64, from: &[u8]) -> Result<(), Errno>;
    /// Loads an aligned word of 4 bytes in one piece, likewise.
    ///
    /// # Errors
    /// As of [`read_user`](Self::read_user).
    fn load_user(&self, at: u64) -> Result<u32, Errno>;
    /// Replaces an aligned word of 4 bytes in one step if it is `old`; returns what it was.
    ///
    /// # Errors
    /// As of [`write_user`](Self::write_user).
    fn swap_user(&self, at: u64, old: u32, new: u32) -> Result<u32, Errno>;
    /// A task runs this thread from now on, beginning with these registers.
    ///
    /// # Errors
    /// `EAGAIN`: there are as many as there can be.
    fn begin(&self, thread: Arc<Thread>, frame: Box<Frame>) -> Result<(), Errno>;
    /// The task that runs here goes on in this space, or in none.
    fn enter_space(&self, space: Option<SpaceId>);
    /// The base of `fs` of the task that runs here.
    fn set_fs(&self, base: u64);
    /// Whoever waits with `key` is woken at this time.
    fn alarm(&self, at: Nanos, key: WaitKey);
    /// Prints what a program wrote to its standard output (1) or error output (2).
    fn console(&self, which: u32, bytes: &[u8]);
    /// The file has the bytes of this part of the archive, until it is written to.
    fn keep(&self, file: FileId, part: Range<usize>);
    /// The archive.
    fn archive(&self) -> &[u8];
    /// Memory in KiB: all, and what is free.
    fn memory(&self) -> (u64, u64);
    /// Whether the kernel's own memory suffices to make what a program asks for, with so many bytes in all. Calls refuse what they
    /// would keep when it does not, and so one program cannot take all of it.
    fn has_room(&self, bytes: u64) -> bool {
        let _ = bytes;
        true
    }
    /// The same of one piece of so many bytes.
    fn has_piece(&self, bytes: u64) -> bool {
        let _ = bytes;
        true
    }
    /// A line on the kernel's own console: a program ended in a way that wants an explanation.
    fn note(&self, text: core::fmt::Arguments<'_>);
    /// The task that runs here runs on these CPUs from now on, a bit each.
    fn stay_within(&self, cpus: [u64; 4]) {
        let _ = cpus;
    }
    /// What a CPU says of itself: `eax`, `ebx`, `ecx` and `edx` of the instruction `cpuid` for this leaf, and its part 0.
    fn cpuid(&self, leaf: u32) -> [u32; 4];
    /// Interrupts so far, of all CPUs, and changes from one task to another.
    fn interrupts_and_switches(&self) -> [u64; 2];
    /// Each other CPU that runs a thread of a process of which `meant` holds passes a full barrier before this returns.
    fn barrier(&self, meant: &dyn Fn(u32) -> bool);
}
