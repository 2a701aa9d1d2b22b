//! A counterexample, made short: the fewest departures that still break the same invariant, on the tamest hardware.
//!
//! Delta debugging (Zeller and Hildebrandt, 2002) over the list of departures; then each is moved to where the run is
//! shortest.

use crate::act::Act;
use crate::driver::{Deviation, Strategy};
use crate::explore::Counterexample;
use crate::machine::Hardware;
use crate::runner::{Order, Outcome, Runner};
use crate::scenario::Scenario;

/// Points after which a counterexample is short enough: some ten seconds.
const POINTS: u64 = 100_000_000;

/// Makes a counterexample short, while `go_on` says so. Returns how many runs it took.
pub fn shrink(scenario: &Scenario, found: &mut Counterexample, go_on: &mut dyn FnMut() -> bool) -> u32 {
    let mut shrinking = Shrinking { runner: Runner::new(scenario), found, go_on, runs: 0, points: 0 };
    shrinking.tame();
    loop {
        let before = shrinking.found.schedule.len();
        shrinking.drop_some();
        shrinking.tame();
        if shrinking.found.schedule.len() == before {
            break;
        }
    }
    shrinking.shorten();
    shrinking.runs
}

struct Shrinking<'s, 'c> {
    runner: Runner<'s>,
    found: &'c mut Counterexample,
    go_on: &'c mut dyn FnMut() -> bool,
    runs: u32,
    points: u64,
}

impl Shrinking<'_, '_> {
    /// Whether this schedule breaks the same invariant; then it is the counterexample from now on.
    fn takes(&mut self, schedule: Vec<Deviation>, hardware: Hardware) -> bool {
        self.takes_if(schedule, hardware, |_| true)
    }

    fn takes_if(
        &mut self,
        schedule: Vec<Deviation>,
        hardware: Hardware,
        good: impl FnOnce(&Outcome) -> bool,
    ) -> bool {
        if self.points >= POINTS || !(self.go_on)() {
            return false;
        }
        self.runs += 1;
        let outcome = self.runner.run(Order {
            strategy: Strategy::Follow(schedule),
            hardware,
            broken: self.found.broken,
            log: false,
            trace: None,
        });
        self.points += u64::from(outcome.steps);
        let same =
            outcome.violation.as_ref().is_some_and(|seen| seen.invariant == self.found.violation.invariant);
        if !same || !good(&outcome) {
            return false;
        }
        self.found.hardware = hardware;
        self.found.schedule = outcome.made;
        self.found.violation = outcome.violation.expect("just looked at");
        true
    }

    /// Hardware that does less of itself.
    fn tame(&mut self) {
        for hardware in [Hardware::Quiet, Hardware::Grasping] {
            if self.found.hardware == hardware || self.takes(self.found.schedule.clone(), hardware) {
                return;
            }
        }
    }

    /// Leaves out more and more, in smaller and smaller pieces.
    fn drop_some(&mut self) {
        let mut piece = self.found.schedule.len().div_ceil(2);
        while piece >= 1 {
            let mut at = 0;
            let mut dropped = false;
            while at < self.found.schedule.len() {
                let list = &self.found.schedule;
                let end = (at + piece).min(list.len());
                let rest: Vec<Deviation> = list[..at].iter().chain(&list[end..]).copied().collect();
                if self.takes(rest, self.found.hardware) {
                    dropped = true;
                } else {
                    at = end;
                }
            }
            if !dropped || piece > self.found.schedule.len() {
                piece /= 2;
            }
        }
    }

    /// Makes departures earlier, while the run becomes shorter and no departure more.
    fn shorten(&mut self) {
        for n in 0..self.found.schedule.len() {
            let mut earlier = true;
            while earlier {
                earlier = false;
                let now = self.found.schedule[n];
                let least = if n == 0 { 0 } else { self.found.schedule[n - 1].at + 1 };
                for by in [64, 8, 1] {
                    let Some(at) = now.at.checked_sub(by).filter(|&at| at >= least) else { continue };
                    let mut list = self.found.schedule.clone();
                    let shift = |made: &mut Deviation| made.at = made.at.saturating_sub(by);
                    list[n].at = at;
                    list[n + 1..].iter_mut().for_each(shift);
                    let (length, count) = (self.found.violation.step, list.len());
                    let good = |outcome: &Outcome| outcome.steps < length && outcome.made.len() <= count;
                    if self.takes_if(list, self.found.hardware, good) {
                        earlier = n < self.found.schedule.len();
                        break;
                    }
                }
            }
            if n + 1 >= self.found.schedule.len() {
                break;
            }
        }
    }
}

/// The acts of a schedule, for a line of text.
pub fn describe(schedule: &[Deviation]) -> String {
    let one = |made: &Deviation| format!("{}: {}", made.at, Act::to_string(&made.act));
    schedule.iter().map(one).collect::<Vec<_>>().join(", ")
}
