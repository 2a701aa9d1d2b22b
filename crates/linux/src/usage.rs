//! What processes have used: of CPUs, of memory at most, and how often they faulted.
//!
//! How much of a space is in memory the core counts when it is asked, entry by entry. So the most that there was is looked for when a
//! program gives much back, when it ends, and when somebody asks, and no more often than a fiftieth of its time.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::areas::PAGE;
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::process::{Memory, Process};

/// What gives back less than this is not worth a look.
const MUCH: u64 = 64 * PAGE;
/// So many times as long as a look took there is none.
const PAUSE: u64 = 50;

/// The most pages of a space that were in memory, as far as was seen, and when to look again.
#[derive(Default)]
pub(crate) struct Peak {
    pages: AtomicU64,
    again: AtomicU64,
}

/// What a process has used besides what its threads and its space know.
#[derive(Default)]
pub(crate) struct Used {
    /// The most pages that were in memory, of spaces that it had before, and of children that were waited for.
    peaks: [AtomicU64; 2],
    /// Faults: its own, and theirs.
    pub faults: [AtomicU64; 2],
}

/// What is told of it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Usage {
    /// Nanoseconds of CPUs.
    pub spent: u64,
    pub peak_kib: u64,
    pub faults: u64,
}

impl<M: Machine> Linux<'_, M> {
    /// Counts what is in memory of a space.
    fn look_at_peak(&self, memory: &Memory) -> u64 {
        let begin = self.now();
        memory.peak.again.store(u64::MAX, Ordering::Relaxed);
        let pages = self.mm.space(memory.space).usage().unwrap_or_default().resident();
        let now = self.now();
        memory.peak.again.store(now + PAUSE * (now - begin).max(1), Ordering::Relaxed);
        memory.peak.pages.fetch_max(pages, Ordering::Relaxed).max(pages)
    }

    /// A program is about to give so many bytes back.
    pub(crate) fn gives_back(&self, memory: &Memory, bytes: u64) {
        if bytes >= MUCH && self.now() >= memory.peak.again.load(Ordering::Relaxed) {
            self.look_at_peak(memory);
        }
    }

    /// A process leaves a space, which ends if nobody else has it.
    pub(crate) fn leaves_space(&self, process: &Process, memory: &alloc::sync::Arc<Memory>) {
        if alloc::sync::Arc::strong_count(memory) == 1 {
            process.used.peaks[0].fetch_max(self.look_at_peak(memory), Ordering::Relaxed);
        }
    }

    /// The most that a process had in memory, in its space of now: in KiB.
    pub(crate) fn peak_of(&self, process: &Process) -> u64 {
        let Some(memory) = process.memory.with(|memory| memory.clone()) else { return 0 };
        let again = self.now() >= memory.peak.again.load(Ordering::Relaxed);
        let pages =
            if again { self.look_at_peak(&memory) } else { memory.peak.pages.load(Ordering::Relaxed) };
        pages * PAGE / 1024
    }

    /// What a process has used.
    pub(crate) fn used_by(&self, process: &Process) -> Usage {
        let before = process.used.peaks[0].load(Ordering::Relaxed) * PAGE / 1024;
        let faults = process.used.faults[0].load(Ordering::Relaxed);
        Usage { spent: self.spent(process), peak_kib: before.max(self.peak_of(process)), faults }
    }

    /// What the children of a process have used for which it has waited.
    pub(crate) fn used_by_children(process: &Process) -> Usage {
        let peak_kib = process.used.peaks[1].load(Ordering::Relaxed) * PAGE / 1024;
        let faults = process.used.faults[1].load(Ordering::Relaxed);
        Usage { spent: process.spent[1].load(Ordering::Relaxed), peak_kib, faults }
    }

    /// What a child has used that has ended, and its children.
    pub(crate) fn used_below(child: &Process) -> Usage {
        let sum = |all: &[AtomicU64; 2]| all.iter().map(|one| one.load(Ordering::Relaxed)).sum();
        let peak = child.used.peaks.iter().map(|peak| peak.load(Ordering::Relaxed)).max().unwrap_or(0);
        Usage { spent: sum(&child.spent), peak_kib: peak * PAGE / 1024, faults: sum(&child.used.faults) }
    }

    /// A process has waited for a child that had used so much.
    pub(crate) fn add_usage(process: &Process, usage: &Usage) {
        process.spent[1].fetch_add(usage.spent, Ordering::Relaxed);
        process.used.peaks[1].fetch_max(usage.peak_kib * 1024 / PAGE, Ordering::Relaxed);
        process.used.faults[1].fetch_add(usage.faults, Ordering::Relaxed);
    }
}
