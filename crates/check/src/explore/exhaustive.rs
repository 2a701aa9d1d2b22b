//! Every schedule that departs from the ordinary one at no more than so many decisions, without those that differ in nothing
//! that matters.
//!
//! A run shows which pairs of accesses could come in the other order (`order`); each is a new schedule, of one departure more.
//! This is dynamic partial-order reduction (Flanagan and Godefroid, POPL 2005) with a bound on departures, as in
//! iterative context bounding (Musuvathi and Qadeer, PLDI 2007). Where a run turns out to be one that was seen, nothing new
//! follows from it. What is given up for the bound: a run that was seen may come again with fewer departures
//! left or more, and only the first is followed. Shorter lists come first, so the first has the fewest.

use std::collections::{BTreeSet, VecDeque};

use quietmm::Rule;

use super::{Tally, order};
use crate::driver::{Deviation, Strategy, Trace};
use crate::machine::Hardware;
use crate::runner::{Order, Outcome, Runner};

/// Schedules that are remembered at most: with two or three departures some 100 MB.
const KNOWN: usize = 1 << 20;

/// Such a search, as far as it has come.
pub struct Exhaustive {
    hardware: Hardware,
    broken: Option<Rule>,
    bound: usize,
    /// Schedules to be tried, by how many departures they have.
    waiting: Vec<VecDeque<Vec<Deviation>>>,
    /// Schedules that are, or were.
    known: BTreeSet<Vec<Deviation>>,
    /// Runs that were, by fingerprint.
    seen: BTreeSet<u64>,
    /// Some were not even noted.
    cut: bool,
    trace: Option<Trace>,
}

impl Exhaustive {
    /// With at most `bound` departures.
    pub fn new(hardware: Hardware, broken: Option<Rule>, bound: usize) -> Self {
        let mut waiting = vec![VecDeque::new(); bound + 1];
        waiting[0].push_back(Vec::new());
        let (known, seen) = (BTreeSet::new(), BTreeSet::new());
        Exhaustive {
            hardware,
            broken,
            bound,
            waiting,
            known,
            seen,
            cut: false,
            trace: Some(Trace::default()),
        }
    }

    /// Whether nothing is left that the bound allows.
    pub fn is_complete(&self) -> bool {
        !self.cut && self.waiting.iter().all(VecDeque::is_empty)
    }

    /// Tries the next schedule.
    pub fn next(&mut self, runner: &mut Runner<'_>, tally: &mut Tally) -> Option<Outcome> {
        let list = self.waiting.iter_mut().find_map(VecDeque::pop_front)?;
        let mut trace = self.trace.take().unwrap_or_default();
        trace.accesses.clear();
        trace.decisions.clear();
        let mut outcome = runner.run(Order {
            strategy: Strategy::Follow(list.clone()),
            hardware: self.hardware,
            broken: self.broken,
            log: false,
            trace: Some(trace),
        });
        let trace = outcome.trace.take().unwrap_or_default();
        let found = order::look(&trace);
        self.trace = Some(trace);
        let is_new = self.seen.insert(found.fingerprint);
        tally.add(&outcome, Some(is_new));
        if is_new && outcome.violation.is_none() {
            for (at, act) in found.reversals {
                // Up to there all is as it was; what was decided later is decided anew.
                let kept = list.iter().take_while(|made| made.at < at);
                let next: Vec<Deviation> = kept.copied().chain([Deviation { at, act }]).collect();
                if next.len() > self.bound {
                    continue;
                }
                if self.known.len() >= KNOWN {
                    self.cut = true;
                } else if self.known.insert(next.clone()) {
                    self.waiting[next.len()].push_back(next);
                }
            }
        }
        Some(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::Act;
    use crate::scenario::Scenario;
    use crate::task::{Task, range};

    const AT: u64 = 0x11f8;

    /// A space that two CPUs run in, with a page that both have cached.
    fn shared(task: &Task<'_>) {
        let space = task.create_space();
        task.map(space, AT, 2);
        for cpu in 0..2 {
            task.as_cpu(cpu, |task| {
                task.run_in(space);
                let _ = task.write(space, AT);
                let _ = task.write(space, AT + 1);
            });
        }
    }

    /// Small enough to try every single departure.
    fn small() -> Scenario {
        Scenario::new("small", "an unmap against a program and a switch", "linux")
            .before(shared)
            .cpu(|task| {
                task.must("unmap", |mm| mm.unmap(task.space(0), range(AT, 1)));
                task.forget(0, AT, 1);
                task.must("protect", |mm| mm.protect(task.space(0), range(AT + 1, 1), quietmm::Prot::Read));
            })
            .cpu(|task| {
                task.go_lazy();
                task.leave_lazy();
                let _ = task.peek(0, AT);
                let _ = task.write(0, AT + 1);
            })
    }

    fn fingerprint(runner: &mut Runner<'_>, hardware: Hardware, list: &[Deviation]) -> (u64, Trace) {
        let outcome = runner.run(Order {
            strategy: Strategy::Follow(list.to_vec()),
            hardware,
            broken: None,
            log: false,
            trace: Some(Trace::default()),
        });
        assert_eq!((outcome.violation, outcome.missed), (None, 0));
        let trace = outcome.trace.unwrap();
        (order::look(&trace).fingerprint, trace)
    }

    /// Everything that could have been decided otherwise from a decision on.
    fn departures(trace: &Trace, from: u32) -> impl Iterator<Item = Deviation> {
        trace.decisions.iter().enumerate().skip(from as usize).flat_map(|(at, decision)| {
            let others = decision.enabled & !decision.chosen.bit();
            Act::of_set(others).map(move |act| Deviation { at: at as u32, act })
        })
    }

    /// Against every single departure, tried one by one, and a fifth of all second ones. Of the latter it misses some: those in
    /// which a handler that was interrupted by nobody stands still while others go on (`docs/checking.md`).
    #[test]
    fn little_that_matters_is_left_out() {
        let scenario = small();
        let mut runner = Runner::new(&scenario);
        for hardware in [Hardware::Quiet, Hardware::Grasping] {
            let (first, trace) = fingerprint(&mut runner, hardware, &[]);
            let (mut single, mut double) = (BTreeSet::from([first]), BTreeSet::new());
            for one in departures(&trace, 0) {
                let (print, trace) = fingerprint(&mut runner, hardware, &[one]);
                single.insert(print);
                for other in departures(&trace, one.at + 1).step_by(5) {
                    double.insert(fingerprint(&mut runner, hardware, &[one, other]).0);
                }
            }
            let (mut search, mut tally) = (Exhaustive::new(hardware, None, 5), Tally::default());
            while tally.schedules < 20_000 && search.next(&mut runner, &mut tally).is_some() {}
            let missed = |all: &BTreeSet<u64>| all.difference(&search.seen).count();
            assert!(single.len() >= 15 && double.len() >= 40, "too small to say anything");
            assert_eq!(missed(&single), 0, "of {}", single.len());
            assert!(10 * missed(&double) <= double.len(), "{} of {}", missed(&double), double.len());
        }
    }

    #[test]
    fn what_differs_in_nothing_is_tried_once() {
        let scenario = small();
        let mut runner = Runner::new(&scenario);
        let (mut search, mut tally) = (Exhaustive::new(Hardware::Quiet, None, 1), Tally::default());
        while search.next(&mut runner, &mut tally).is_some() {}
        let (_, trace) = fingerprint(&mut runner, Hardware::Quiet, &[]);
        let departures: u32 = trace.decisions.iter().map(|decision| decision.enabled.count_ones() - 1).sum();
        assert!(tally.schedules < u64::from(departures), "{} of {departures} departures", tally.schedules);
        assert_eq!(tally.violations, 0);
    }
}
