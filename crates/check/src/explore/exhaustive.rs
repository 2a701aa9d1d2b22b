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

    /// Whether a run with this fingerprint was among those tried.
    pub fn has_seen(&self, fingerprint: u64) -> bool {
        self.seen.contains(&fingerprint)
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
