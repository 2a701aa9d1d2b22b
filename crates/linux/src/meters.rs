//! What threads and processes have used of CPUs: signals when it is so much, and when it is more than the process may use.

use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU64, Ordering};

use crate::kernel::{Linux, SHORTEST};
use crate::machine::Machine;
use crate::process::{Clock, Process, Thread, limit};
use crate::signal::{Info, number};

/// How a limit counts, in nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// How long something has run.
#[derive(Default)]
pub struct Meter {
    /// That, while it rests; while it runs, when it would have begun if it had never rested.
    state: AtomicU64,
    /// The most that anybody has been told. It may rest a moment before somebody else has looked: still no clock runs backwards.
    told: AtomicU64,
}

impl Meter {
    const RUNS: u64 = 1 << 63;

    /// It begins to run, or goes on.
    pub fn begin(&self, now: u64) {
        self.state.store(Meter::RUNS | now.saturating_sub(self.read(now)), Ordering::Relaxed);
    }

    /// It rests.
    pub fn rest(&self, now: u64) {
        self.state.store(self.read(now), Ordering::Relaxed);
    }

    /// How long it has run.
    pub fn read(&self, now: u64) -> u64 {
        let state = self.state.load(Ordering::Relaxed);
        let ran = if state & Meter::RUNS == 0 { state } else { now.saturating_sub(state & !Meter::RUNS) };
        self.told.fetch_max(ran, Ordering::Relaxed).max(ran)
    }
}

/// Whose use of CPUs is meant.
#[derive(Clone)]
pub(crate) enum Metered {
    Process(Weak<Process>),
    Thread(Weak<Thread>),
}

impl Metered {
    /// How much it has used, and how many threads at most may use more; `None` if it is gone.
    pub fn read(&self, now: u64) -> Option<(u64, u64)> {
        match self {
            Metered::Process(process) => process.upgrade().map(|process| process.spent(now)),
            Metered::Thread(thread) => thread.upgrade().map(|thread| (thread.ran.read(now), 1)),
        }
    }
}

impl Process {
    /// What it has used of CPUs, and how many threads it has that may use more.
    pub(crate) fn spent(&self, now: u64) -> (u64, u64) {
        self.threads.with(|all| {
            let running: u64 = all.iter().map(|thread| thread.ran.read(now)).sum();
            (running + self.spent[0].load(Ordering::Relaxed), all.len() as u64)
        })
    }

    /// Its thread of this number.
    pub(crate) fn thread(&self, tid: u32) -> Option<Arc<Thread>> {
        self.threads.with(|all| all.iter().find(|thread| thread.tid == tid).cloned())
    }

    /// A thread has ended: from now on the process has used what it has.
    pub(crate) fn takes_over(&self, thread: &Arc<Thread>, now: u64) -> bool {
        self.threads.with(|all| {
            all.retain(|other| !Arc::ptr_eq(other, thread));
            self.spent[0].fetch_add(thread.ran.read(now), Ordering::Relaxed);
            all.is_empty()
        })
    }
}

/// How long nobody looks at what another uses: it may have more threads meanwhile. In nanoseconds.
pub(crate) const LOOKS: u64 = 10_000_000;

/// When whoever has used so much, with so many threads, will have used as much as that at the soonest.
pub(crate) fn soonest(now: u64, (spent, threads): (u64, u64), at: u64) -> u64 {
    now.saturating_add((at.saturating_sub(spent) / threads.max(1)).max(SHORTEST))
}

impl<M: Machine> Linux<'_, M> {
    /// Sends what is due of what a process has used of CPUs; returns when to look again.
    pub(crate) fn look_at_meters(&self, process: &Arc<Process>, now: u64) -> u64 {
        const SIGNALS: [u32; 2] = [26, 27];
        if !is_metered(process) {
            return u64::MAX;
        }
        let used = process.spent(now);
        let spent = used.0;
        let later = |at: u64| soonest(now, used, at);
        let mut next = u64::MAX;
        let due = process.meters.with(|all| {
            let mut look = |(at, every): &mut (u64, u64)| {
                let due = *at != 0 && *at <= spent;
                if due {
                    let every = (*every > 0).then(|| (*every).max(SHORTEST));
                    *at = every.map_or(0, |every| at.saturating_add(((spent - *at) / every + 1) * every));
                }
                if *at != 0 {
                    next = next.min(later(*at));
                }
                due
            };
            let [first, second] = all;
            [look(first), look(second)]
        });
        let tell = |signal| self.post(process, None, Info { signal, code: 128, ..Info::default() });
        SIGNALS.into_iter().zip(due).filter(|(_, due)| *due).for_each(|(signal, _)| tell(signal));
        let (signal, at) = self.over_limit(process, spent);
        signal.into_iter().for_each(tell);
        at.map_or(next, |at| next.min(later(at)))
    }

    /// The signal by which a process hears that it has used as much as it may, and what it may use until the next. It hears of the soft
    /// limit each second; the hard one ends it.
    fn over_limit(&self, process: &Process, spent: u64) -> (Option<u32>, Option<u64>) {
        process.limits.with(|limits| {
            let [soft, hard] = &mut limits[limit::CPU];
            if *soft == u64::MAX || process.ended.load(Ordering::SeqCst) != 0 {
                return (None, None);
            }
            if *hard != u64::MAX && spent >= hard.saturating_mul(SECOND) {
                return (Some(number::KILL), None);
            }
            let is_over = spent >= soft.saturating_mul(SECOND);
            if is_over {
                *soft += 1;
            }
            (is_over.then_some(number::CPU_LIMIT), Some((*soft).min(*hard).saturating_mul(SECOND)))
        })
    }
}

/// Whether it matters to anybody what a process uses of CPUs: it may use so much, or somebody is to hear when it has.
pub(crate) fn is_metered(process: &Process) -> bool {
    process.limits.with(|limits| limits[limit::CPU][0]) != u64::MAX
        || process.meters.with(|all| all.iter().any(|(at, _)| *at != 0))
        || process.timers.with(|all| all.values().any(|one| matches!(one.clock, Clock::Cpus(_))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ran_is_what_was_between_beginning_and_rest() {
        let meter = Meter::default();
        assert_eq!(meter.read(500), 0);
        meter.begin(1000);
        assert_eq!((meter.read(999), meter.read(1000), meter.read(1007)), (0, 0, 7));
        // It went on already.
        meter.begin(1008);
        meter.rest(1010);
        assert_eq!((meter.read(1010), meter.read(5000)), (10, 10));
        meter.rest(6000);
        meter.begin(7000);
        assert_eq!(meter.read(7005), 15);
        meter.rest(7005);
        assert_eq!(meter.read(u64::MAX >> 1), 15);
        // It rests a moment before somebody has looked.
        meter.begin(8000);
        assert_eq!(meter.read(8005), 20);
        meter.rest(8003);
        assert_eq!(meter.read(8010), 20);
        meter.begin(8010);
        assert_eq!((meter.read(8010), meter.read(8011)), (20, 21));
    }

    #[test]
    fn many_threads_use_as_much_sooner() {
        assert_eq!(soonest(100, (0, 1), 8 * SHORTEST), 100 + 8 * SHORTEST);
        assert_eq!(soonest(100, (4 * SHORTEST, 2), 8 * SHORTEST), 100 + 2 * SHORTEST);
        assert_eq!(
            soonest(100, (9 * SHORTEST, 0), 8 * SHORTEST),
            100 + SHORTEST,
            "it is looked at now and then"
        );
    }
}
