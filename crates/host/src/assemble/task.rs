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
    /// The file that it maps, as the kernel says: path, length, offset.
    pub file: Option<(String, u64)>,
}

/// What is known of a space.
#[derive(Clone, Copy, Debug, Default)]
pub struct Space {
    /// The end of its heap.
    pub brk: Option<u64>,
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
    off: Option<(u64, bool)>,
    /// What it had spent at its last event.
    mark: u64,
}

impl Task {
    /// One that begins at `at`. Where the source says when threads are on a CPU it is on none yet.
    pub fn new(thread: u32, process: i32, space: usize, at: u64, switches: bool) -> Task {
        let off = switches.then_some((at, true));
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

    /// It leaves its CPU.
    pub fn off(&mut self, now: u64, preempted: bool) {
        self.spent = self.spent(now);
        self.counted = now;
        self.off = Some((now, preempted));
    }

    /// How long it has slept, if it is on no CPU and not because it was preempted.
    pub fn slept(&self, now: u64) -> Option<u64> {
        let (since, preempted) = self.off?;
        (!preempted).then(|| now.saturating_sub(since))
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
