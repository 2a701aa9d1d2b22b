//! What becomes of programs when memory and swap are full, and reclaim finds nothing more: the process that has most is ended, and all others
//! go on.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use crate::kernel::Linux;
use crate::layout::text;
use crate::machine::Machine;
use crate::process::{Process, Thread};
use crate::signal::number;

/// How long one that is to end may take, in nanoseconds, and how long between two looks.
const PATIENCE: u64 = 20_000_000_000;
const LOOK: u64 = 1_000_000;
/// An adjustment that says: never this one.
const NEVER: i32 = -1000;

/// What speaks against a process: the pages that it has, and as many thousandths of all as it was adjusted by. `None`: it is left alone.
fn badness(pages: u64, all: u64, adjust: i32) -> Option<u64> {
    if adjust <= NEVER {
        return None;
    }
    let more = i128::from(adjust) * i128::from(all) / 1000;
    Some((i128::from(pages) + more).clamp(1, u64::MAX.into()) as u64)
}

/// The same as programs are told it: two thirds of a thousandth of all memory each, from 1000 of these on for who has none.
fn score_of(pages: u64, all: u64, adjust: i32) -> u64 {
    if adjust <= NEVER {
        return 0;
    }
    let all = i128::from(all);
    let thousandths = (i128::from(pages) + i128::from(adjust) * (all / 1000)) * 1000 / all;
    ((1000 + thousandths) * 2 / 3).clamp(0, 2000) as u64
}

impl<M: Machine> Linux<'_, M> {
    fn pages_of(&self, process: &Process) -> u64 {
        let usage = self.usage_of(process);
        usage.resident() + usage.swapped + usage.tables
    }

    /// Pages that there are, in memory and swap.
    fn all_pages(&self) -> u64 {
        self.machine.memory().0 / 4 + self.mm.swap().usage().slots
    }

    /// What `oom_score` says.
    pub(crate) fn score(&self, process: &Process) -> u64 {
        score_of(self.pages_of(process), self.all_pages().max(1), process.adjust.load(Ordering::Relaxed))
    }

    /// No memory was found for what a thread touches. Ends the process that has most, and says whether the thread may try again: not if it
    /// is itself of that one.
    pub fn make_room(&self, thread: &Thread) -> bool {
        if thread.is_dying() {
            return false;
        }
        // One at a time: what the first one frees may do for all.
        if self.ending.swap(true, Ordering::SeqCst) {
            self.nap(LOOK);
            return !thread.is_dying();
        }
        let goes_on = self.end_one(thread);
        self.ending.store(false, Ordering::SeqCst);
        goes_on
    }

    fn end_one(&self, thread: &Thread) -> bool {
        let others: alloc::vec::Vec<_> = self.processes.with(|all| all.values().cloned().collect());
        // What a process had is free when it has ended, and not when nobody has its memory any more.
        let lives = |process: &Process| process.ended.load(Ordering::SeqCst) == 0;
        let dies = |process: &&Arc<Process>| process.dying.load(Ordering::SeqCst) != 0 && lives(process);
        let dying = others.iter().find(dies);
        // Whoever settles may have taken the space of somebody else, who ends meanwhile. In this order: who has ended has said that its space came, and if
        // as many were gone before as had come then, none was on its way.
        let gone = self.left.spaces[1].load(Ordering::SeqCst);
        let came = self.left.spaces[0].load(Ordering::SeqCst);
        let victim = match dying {
            Some(dying) => Some(dying.clone()),
            None if gone < came => None,
            None => {
                let Some(worst) = self.worst(&others) else { return false };
                let name = worst.place.with(|place| text(&place.name));
                let kib = self.pages_of(&worst) * 4;
                self.machine
                    .note(format_args!("out of memory: {name} ({}) is ended, with {kib} KiB", worst.pid));
                self.kill(&worst, number::KILL);
                Some(worst)
            }
        };
        let until = self.now() + PATIENCE;
        while victim.as_ref().is_some_and(|victim| lives(victim))
            || self.left.spaces[1].load(Ordering::SeqCst) < came
        {
            if thread.is_dying() || self.now() > until {
                return false;
            }
            self.nap(LOOK);
        }
        true
    }

    /// The one of these that has most.
    fn worst(&self, of: &[Arc<Process>]) -> Option<Arc<Process>> {
        let all = self.all_pages();
        let has_memory = |process: &Process| process.memory.with(|memory| memory.is_some());
        let bad = |process: &Arc<Process>| {
            let bad = badness(self.pages_of(process), all, process.adjust.load(Ordering::Relaxed));
            bad.map(|bad| (bad, process.clone()))
        };
        let worst =
            of.iter().filter(|process| has_memory(process)).filter_map(bad).max_by_key(|(bad, _)| *bad);
        worst.map(|(_, worst)| worst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_most_is_worst_unless_it_was_adjusted() {
        assert_eq!([badness(500, 1000, 0), badness(10, 1000, 0)], [Some(500), Some(10)]);
        assert_eq!([badness(10, 1000, 600), badness(500, 1000, -400)], [Some(610), Some(100)]);
        // It is the last choice, and is one still.
        assert_eq!([badness(5, 1000, -999), badness(5, 1000, -1000)], [Some(1), None]);
    }

    #[test]
    fn scores_are_told_as_linux_tells_them() {
        let scores = [(0, 0), (500, 0), (0, 500), (5, -999), (5, -1000)];
        assert_eq!(scores.map(|(pages, adjust)| score_of(pages, 1000, adjust)), [666, 1000, 1000, 4, 0]);
    }
}
