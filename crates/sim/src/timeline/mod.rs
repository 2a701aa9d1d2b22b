//! What each CPU did when, and who interrupted whom: kept for whoever draws it, and only then.
//!
//! `recorder` hears what the machine does: places that are entered and left (those of `profile`), interrupts that
//! are sent and taken, events of the core, and accesses to memory, by which it knows who acknowledges to whom. `kept` is what has been
//! recorded, within a window and a bound. Nothing here takes simulated time.

mod kept;
mod recorder;

use quietmm::event::FlushReason;

use crate::profile::Place;

pub(crate) use recorder::Recorder;

/// Which part of a run is kept, in picoseconds of its clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Window {
    /// So much before its end.
    Last(u64),
    /// From one moment to another.
    Between {
        /// The first moment.
        from: u64,
        /// The end.
        to: u64,
    },
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Which part.
    pub window: Window,
    /// Records that are kept, at most: where there would be more the oldest go. Each takes 40 bytes.
    pub most: usize,
}

/// What came of it: see [`RunSpec::timeline`](crate::RunSpec::timeline).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timeline {
    /// CPUs of the machine.
    pub cpus: u32,
    /// The tasks' names, by number.
    pub tasks: Vec<String>,
    /// What is covered, from here: later than was asked for if records had to go.
    pub from_ps: u64,
    /// And until here.
    pub to_ps: u64,
    /// When the run ended.
    pub ended_ps: u64,
    /// Records that had to go.
    pub gone: u64,
    /// The records, by their beginning; of those that begin at once, what holds others comes before them.
    pub records: Vec<Record>,
}

/// Something that lasted, or happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// When it began, in picoseconds.
    pub from: u64,
    /// When it ended. What only happened ended as it began.
    pub to: u64,
    /// On which CPU; where it moves, the last.
    pub cpu: u16,
    /// What.
    pub what: What,
}

const _: () = assert!(size_of::<Record>() <= 40, "as `Wanted` says");

/// What a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// A task had the CPU.
    Task(u32),
    /// The CPU was in this place; of locks only where it had to wait.
    Place(Place),
    /// The CPU took no interrupts.
    IrqsOff,
    /// An interrupt, from when `cpu` sends it to when `target` takes it.
    Ipi {
        /// Who is interrupted.
        target: u16,
        /// Whether it has been taken: if not it was lost on a CPU that is switched off, or is on its way at the end.
        taken: bool,
    },
    /// `cpu` acknowledges to `sender` that it has done what was asked for. By the sender's own clock, which may be behind by what CPUs
    /// run ahead of each other, it may have seen that a little earlier.
    Acknowledged {
        /// Who asked.
        sender: u16,
    },
    /// `kswapd` of a node, from when it is woken until it waits again.
    Kswapd {
        /// The node.
        node: u16,
    },
    /// A batch of pages was judged.
    Batch {
        /// For which `kswapd`, if not for the task itself.
        kswapd: Option<u16>,
        /// Whether they came from the active list, to go to the inactive one.
        active: bool,
        /// Pages that were looked at.
        scanned: u32,
        /// Pages that were given back.
        reclaimed: u32,
    },
    /// A sweep of user addresses, from its beginning until somebody knew that it was over.
    Sweep {
        /// Its number.
        number: u32,
        /// CPUs that flushed for it.
        flushed: u32,
        /// CPUs that had to be interrupted.
        forced: u32,
    },
    /// The same of kernel addresses.
    KernelSweep {
        /// Its number.
        number: u32,
        /// CPUs that flushed for it.
        flushed: u32,
        /// CPUs that had to be interrupted.
        forced: u32,
    },
    /// So many pages are free from here on, in zones and on per-CPU lists. Once a microsecond, at most.
    Free {
        /// How many.
        pages: u32,
    },
    /// Something happened.
    Mark(Mark),
}

/// What only happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// A flush is asked of other CPUs.
    Flush {
        /// Why.
        reason: FlushReason,
        /// Of how many.
        targets: u32,
    },
    /// Somebody woke a `kswapd`.
    KswapdWoken,
    /// A batch of unmapped pages was flushed.
    BatchFlushed {
        /// Entries that had been cleared.
        pages: u32,
        /// On how many other CPUs.
        targets: u32,
    },
    /// Unmapped kernel addresses were flushed.
    Purged {
        /// How many pages.
        pages: u32,
    },
    /// The CPU flushed for a sweep of user addresses.
    Swept,
    /// And of kernel addresses.
    KernelSwept,
    /// Memory was out.
    OutOfMemory,
    /// The CPU went offline.
    Offline,
    /// The CPU is online again.
    Online,
}
