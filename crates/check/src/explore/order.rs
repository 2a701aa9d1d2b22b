//! What of a run's order matters: two accesses to the same place of which one changes it. Runs in which all of these happen in
//! the same order are one run; and only where two are not ordered otherwise can their order be another.

use std::collections::BTreeMap;

use crate::act::Act;
use crate::driver::{Decision, Trace};
use crate::machine::LANES;

/// Scripts, and their CPUs' interrupt handlers.
const THREADS: usize = 2 * LANES;

type Clock = [u32; THREADS];

fn join(into: &mut Clock, from: &Clock) {
    into.iter_mut().zip(from).for_each(|(a, &b)| *a = (*a).max(b));
}

/// The last accesses to a place.
#[derive(Default)]
struct Last {
    /// The last change: which access, whose, at what time of its thread.
    write: Option<(u32, u8, u32)>,
    /// What happened before it.
    before_write: Clock,
    /// The last look of each thread since.
    reads: [Option<(u32, u32)>; THREADS],
    /// What happened before those.
    before_reads: Clock,
}

/// What was found in a run.
pub struct Found {
    /// The same for all runs that differ in nothing that matters.
    pub fingerprint: u64,
    /// Where something else could have been decided so that two accesses change places: decision and act.
    pub reversals: Vec<(u32, Act)>,
}

/// Looks through a run.
pub fn look(trace: &Trace) -> Found {
    let mut clocks = [[0u32; THREADS]; THREADS];
    let mut places: BTreeMap<u64, Last> = BTreeMap::new();
    let mut fingerprint = 0u64;
    let mut races: Vec<(u32, u8)> = Vec::new();
    for (index, access) in trace.accesses.iter().enumerate() {
        let thread = usize::from(access.thread);
        let last = places.entry(access.place).or_default();
        let mine = &mut clocks[thread];
        if !access.write
            && let Some((at, _)) = &mut last.reads[thread]
        {
            // It looks again, and nothing has changed: who spins does so, and nothing depends on how often.
            *at = index as u32;
            continue;
        }
        if let Some((at, whose, time)) = last.write
            && whose != access.thread
            && mine[usize::from(whose)] < time
        {
            races.push((at, access.thread));
        }
        if access.write {
            for (whose, read) in last.reads.iter().enumerate().filter(|(whose, _)| *whose != thread) {
                if let Some((at, time)) = *read
                    && mine[whose] < time
                {
                    races.push((at, access.thread));
                }
            }
            join(mine, &last.before_reads);
        }
        join(mine, &last.before_write);
        mine[thread] += 1;
        if access.write {
            last.write = Some((index as u32, access.thread, mine[thread]));
            last.before_write = *mine;
            last.reads = Default::default();
            last.before_reads = Clock::default();
        } else {
            last.reads[thread] = Some((index as u32, mine[thread]));
            join(&mut last.before_reads, mine);
        }
        let mut hash = mix(access.place ^ u64::from(access.thread) << 56 ^ u64::from(access.write) << 55);
        mine.iter().for_each(|&time| hash = mix(hash ^ u64::from(time)));
        // A sum: accesses that are not ordered count the same in whatever order they came.
        fingerprint = fingerprint.wrapping_add(hash);
    }
    Found { fingerprint, reversals: reversals(trace, &races) }
}

/// For each pair, the decision just before the first of the two, and how the second could have gone first there.
fn reversals(trace: &Trace, races: &[(u32, u8)]) -> Vec<(u32, Act)> {
    let mut all = Vec::new();
    for &(first, second) in races {
        let at = trace.accesses[first as usize].decision;
        if at == u32::MAX {
            continue;
        }
        let decision = trace.decisions[at as usize];
        let others = decision.enabled & !decision.chosen.bit();
        let cpu = u16::from(second) % LANES as u16;
        let handler = [Act::interrupt(cpu), Act::tick(cpu)].map(Act::bit).iter().sum::<u64>();
        let wanted = (Act::run(cpu).bit() | handler) & others;
        // Whoever comes second cannot go on yet: whoever can may be what it waits for.
        let acts = if wanted == 0 { others } else { wanted };
        all.extend(Act::of_set(acts).map(|act| (at, act)));
    }
    // A device may fail wherever it is asked.
    let fails = |(at, decision): (usize, &Decision)| {
        let can = decision.enabled & !decision.chosen.bit() & Act::DEVICE_FAILS.bit() != 0;
        can.then_some((at as u32, Act::DEVICE_FAILS))
    };
    all.extend(trace.decisions.iter().enumerate().filter_map(fails));
    all.sort_unstable();
    all.dedup();
    all
}

fn mix(value: u64) -> u64 {
    // The finaliser of SplitMix64 (Steele and others, OOPSLA 2014).
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Access;

    fn trace(accesses: &[(u8, u64, bool)]) -> Trace {
        let both = Act::run(0).bit() | Act::run(1).bit();
        Trace {
            decisions: accesses
                .iter()
                .map(|a| Decision { enabled: both, chosen: Act::run(a.0.into()) })
                .collect(),
            accesses: accesses
                .iter()
                .enumerate()
                .map(|(n, &(thread, place, write))| Access { decision: n as u32, thread, place, write })
                .collect(),
        }
    }

    #[test]
    fn what_does_not_conflict_can_be_swapped_without_a_trace() {
        let (one, other) = (trace(&[(0, 1, true), (1, 2, true)]), trace(&[(1, 2, true), (0, 1, true)]));
        assert_eq!(look(&one).fingerprint, look(&other).fingerprint);
        assert!(look(&one).reversals.is_empty());
        let (one, other) = (trace(&[(0, 1, false), (1, 1, false)]), trace(&[(1, 1, false), (0, 1, false)]));
        assert_eq!(look(&one).fingerprint, look(&other).fingerprint);
    }

    #[test]
    fn what_conflicts_is_another_run_and_a_reversal() {
        let (one, other) = (trace(&[(0, 1, true), (1, 1, false)]), trace(&[(1, 1, false), (0, 1, true)]));
        assert_ne!(look(&one).fingerprint, look(&other).fingerprint);
        assert_eq!(look(&one).reversals, [(0, Act::run(1))]);
    }

    #[test]
    fn what_is_ordered_by_something_else_is_no_reversal() {
        // 0 writes 1 and says so in 2; 1 hears it and reads 1.
        let run = trace(&[(0, 1, true), (0, 2, true), (1, 2, false), (1, 1, false)]);
        assert_eq!(look(&run).reversals, [(1, Act::run(1))]);
    }
}
