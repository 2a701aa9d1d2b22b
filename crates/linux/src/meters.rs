//! What a process has used of CPUs: signals when it is so much, and when it is more than the process may use.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use crate::kernel::{Linux, SHORTEST};
use crate::machine::Machine;
use crate::process::{Process, limit};
use crate::signal::{Info, number};

/// How a limit counts, in nanoseconds.
const SECOND: u64 = 1_000_000_000;

impl<M: Machine> Linux<'_, M> {
    /// Sends what is due of what a process has used of CPUs; returns when to look again.
    pub(crate) fn look_at_meters(&self, process: &Arc<Process>, now: u64) -> u64 {
        const SIGNALS: [u32; 2] = [26, 27];
        if process.meters.with(|all| all.iter().all(|(at, _)| *at == 0)) && !has_limit(process) {
            return u64::MAX;
        }
        let spent = self.spent(process);
        // No sooner than that, if all of its threads run all the time.
        let later = |at: u64| now.saturating_add(at.saturating_sub(spent).max(SHORTEST));
        let mut next = u64::MAX;
        let due = process.meters.with(|all| {
            let mut look = |(at, every): &mut (u64, u64)| {
                let due = *at != 0 && *at <= spent;
                if due {
                    *at = if *every > 0 { spent.saturating_add((*every).max(SHORTEST)) } else { 0 };
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

/// Whether there is an end to what a process may use of CPUs.
pub(crate) fn has_limit(process: &Process) -> bool {
    process.limits.with(|limits| limits[limit::CPU][0]) != u64::MAX
}
