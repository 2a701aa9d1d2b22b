//! What a source of any kind sees: a tracer, a ring of the kernel, a line of text.

use crate::syscall::Syscall;

/// Something that was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen<'a> {
    /// When, in nanoseconds of the source's clock.
    pub at: u64,
    /// On which CPU; 0 where the source does not know.
    pub cpu: u16,
    /// Of which thread, by the kernel's number.
    pub tid: i32,
    /// What.
    pub saw: Saw<'a>,
}

/// What was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Saw<'a> {
    /// It belongs to this process.
    Process(i32),
    /// It enters a system call. `path` is what a descriptor among the arguments stands for, if the source knows.
    Enter {
        /// Which.
        call: Syscall,
        /// Its arguments.
        args: [u64; 6],
        /// The file of a descriptor among them.
        path: Option<&'a str>,
        /// Who asked for it, innermost function first, separated by `;`; empty if not known.
        stack: &'a str,
    },
    /// Who asked for the system call that it is in, where that is seen later; as in [`Saw::Enter`].
    Caller(&'a str),
    /// It leaves a system call.
    Leave {
        /// Which.
        call: Syscall,
        /// With what.
        result: i64,
    },
    /// A page fault at a user address.
    Fault {
        /// The address.
        address: u64,
        /// It wrote.
        write: bool,
    },
    /// The kernel says what a mapping shows.
    Mapped {
        /// Its first address.
        address: u64,
        /// Its length in bytes.
        length: u64,
        /// Where in the file it begins, in bytes.
        offset: u64,
        /// Bits as `mmap` has them.
        prot: u64,
        /// Likewise.
        flags: u64,
        /// The file's path, or a name in brackets or with two slashes for what is none.
        path: &'a str,
    },
    /// It has made a thread or process.
    Made {
        /// The new thread.
        tid: i32,
        /// The process that it belongs to, if that is known.
        process: Option<i32>,
        /// It shares the space; if nobody knows, threads of a process do.
        shares: Option<bool>,
    },
    /// It runs another program now.
    Exec(&'a str),
    /// It has another name now.
    Name(&'a str),
    /// It has ended.
    Gone,
    /// It runs on the CPU from now on.
    On,
    /// It leaves the CPU.
    Off {
        /// It would go on if it could.
        preempted: bool,
    },
    /// It asks this CPU to flush. Then it waits until that is done.
    Asks(u16),
    /// It sends requests of some kind to these CPUs: one bit each, the first word has the first 64.
    Sends(&'a [u64]),
    /// The CPU was interrupted in it for a flush that was asked for elsewhere.
    Flushed {
        /// Pages; 0 if all or unknown.
        pages: u64,
        /// It had left the space for which that was.
        left: bool,
    },
    /// So many events are missing.
    Lost(u64),
}

/// Whether this is the name of Linux's function by which a CPU flushes for another. What compilers make of one has a dot after it.
pub(crate) fn is_flush(function: &str) -> bool {
    function.strip_prefix("flush_tlb_func").is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
