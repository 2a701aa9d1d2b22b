//! A thread that is recorded: its call under way, and its time.

use crate::syscall::{CLONE_VM, Syscall};

/// A call that has begun and not ended.
#[derive(Clone, Debug)]
pub struct Pending {
    pub call: Syscall,
    pub args: [u64; 6],
    pub since: u64,
    /// What the thread had run when it began.
    pub ran: u64,
    pub stack: u32,
    /// For how long other programs had its CPU meanwhile.
    pub away: u64,
    /// The file that it maps, as the kernel says: path, length, offset.
    pub file: Option<(String, u64)>,
}

/// What is known of a space.
#[derive(Clone, Copy, Debug, Default)]
pub struct Space {
    /// The end of its heap.
    pub brk: Option<u64>,
    /// The lowest address of its stack that has been mapped.
    pub stack: Option<u64>,
}

/// Why a thread is on no CPU.
#[derive(Clone, Copy, Debug)]
pub struct Off {
    pub since: u64,
    /// It would go on if it could.
    pub preempted: bool,
    /// The CPU that it left (all ones: it was on none yet), and for how long that one had run recorded threads by then.
    pub cpu: u16,
    pub busy: u64,
}

/// A thread.
#[derive(Clone, Debug, Default)]
pub struct Task {
    /// Its number in the recording.
    pub thread: u32,
    pub process: i32,
    pub space: usize,
    pub pending: Option<Pending>,
    /// Nanoseconds on a CPU up to `counted`.
    spent: u64,
    /// On a CPU since then, unless `off`.
    counted: u64,
    off: Option<Off>,
    /// What it had spent at its last event.
    mark: u64,
}

impl Task {
    /// One that begins at `at`. Where the source says when threads are on a CPU it is on none yet.
    pub fn new(thread: u32, process: i32, space: usize, at: u64, switches: bool) -> Task {
        let off = switches.then_some(Off { since: at, preempted: true, cpu: u16::MAX, busy: 0 });
        Task { thread, process, space, counted: at, off, ..Task::default() }
    }

    /// What it has spent on a CPU until now.
    fn spent(&self, now: u64) -> u64 {
        self.spent + if self.off.is_some() { 0 } else { now.saturating_sub(self.counted) }
    }

    /// What it has spent since its event before, which is now.
    pub fn ran(&mut self, now: u64) -> u64 {
        let spent = self.spent(now);
        let ran = spent.saturating_sub(self.mark);
        self.mark = spent;
        ran
    }

    /// What it had spent when it entered its call, since its event before. The call itself is left out.
    pub fn ran_before(&mut self, pending: &Pending, now: u64) -> u64 {
        let ran = pending.ran.saturating_sub(self.mark);
        self.mark = self.spent(now);
        ran
    }

    /// A call begins.
    pub fn begin(&mut self, pending: Pending, now: u64) {
        let ran = self.spent(now);
        self.pending = Some(Pending { ran, ..pending });
    }

    /// It leaves its CPU. Returns whether it was on one.
    pub fn leave(&mut self, now: u64, off: Off) -> bool {
        self.spent = self.spent(now);
        self.counted = now;
        self.off.replace(off).is_none()
    }

    /// Why it is on no CPU, if it is on none.
    pub fn off(&self) -> Option<Off> {
        self.off
    }

    /// It is on a CPU.
    pub fn run(&mut self, now: u64) {
        self.spent = self.spent(now);
        self.counted = now;
        self.off = None;
    }

    /// Whether whoever it is about to make shares its space, if its call says so.
    pub fn shares(&self) -> Option<bool> {
        let pending = self.pending.as_ref()?;
        match pending.call {
            Syscall::Clone => Some(pending.args[0] & CLONE_VM != 0),
            Syscall::Fork => Some(false),
            Syscall::Vfork => Some(true),
            _ => None,
        }
    }
}
