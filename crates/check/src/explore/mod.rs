//! Which schedules are tried.

mod exhaustive;
pub mod order;

use std::collections::BTreeSet;

use quietmm::{Architecture, Rule};

pub use exhaustive::Exhaustive;

use crate::driver::{Deviation, Strategy};
use crate::machine::Hardware;
use crate::runner::{Order, Outcome, Runner};
use crate::scenario::Scenario;
use crate::violation::Violation;

/// A way to choose schedules.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Way {
    /// A random walk.
    Random,
    /// Random priorities with a few changes.
    Priorities,
    /// All with few departures.
    Exhaustive,
}

impl Way {
    /// All of them, in the order in which they are used.
    pub const ALL: [Way; 3] = [Way::Random, Way::Priorities, Way::Exhaustive];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Way::Random => "random",
            Way::Priorities => "priorities",
            Way::Exhaustive => "exhaustive",
        }
    }
}

/// How far to go.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Schedules of each random way.
    pub random: u64,
    /// Schedules of the exhaustive way, for each kind of hardware.
    pub exhaustive: u64,
    /// Departures of the exhaustive way.
    pub departures: usize,
}

/// What was covered.
#[derive(Clone, Default, Debug)]
pub struct Tally {
    /// Schedules that were run.
    pub schedules: u64,
    /// Of these, those in which something was broken.
    pub violations: u64,
    /// Of the exhaustive way, those that differ in something that matters.
    pub distinct: u64,
    /// Decisions at which somebody went another way than the ordinary one.
    points: BTreeSet<u32>,
    /// Decisions of the ordinary run.
    pub decisions: u32,
    /// Points passed in all runs.
    pub steps: u64,
}

impl Tally {
    fn add(&mut self, outcome: &Outcome, is_new: Option<bool>) {
        self.schedules += 1;
        self.violations += u64::from(outcome.violation.is_some());
        self.distinct += u64::from(is_new == Some(true));
        self.steps += u64::from(outcome.steps);
        self.points.extend(outcome.made.iter().map(|made| made.at));
    }

    /// How many of the ordinary run's decisions were made otherwise in some run.
    pub fn departed(&self) -> u64 {
        self.points.range(..self.decisions).count() as u64
    }

    /// Both together.
    pub fn merge(&mut self, other: &Tally) {
        self.schedules += other.schedules;
        self.violations += other.violations;
        self.distinct += other.distinct;
        self.steps += other.steps;
        self.decisions = self.decisions.max(other.decisions);
        self.points.extend(&other.points);
    }
}

/// A schedule that breaks an invariant.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// The scenario's name.
    pub scenario: &'static str,
    /// The machine's architecture.
    pub architecture: Architecture,
    /// What is left out.
    pub broken: Option<Rule>,
    /// What hardware does.
    pub hardware: Hardware,
    /// The schedule.
    pub schedule: Vec<Deviation>,
    /// What it breaks.
    pub violation: Violation,
    /// Which way found it.
    pub way: Way,
    /// After how many schedules of that way.
    pub after: u64,
}

/// Explores one scenario in one way until something breaks or the budget is used up. `go_on` is asked now and then.
pub struct Search<'s> {
    scenario: &'s Scenario,
    runner: Runner<'s>,
    broken: Option<Rule>,
    /// What was covered so far.
    pub tally: Tally,
    /// Whether the exhaustive way has come to its end, for each kind of hardware.
    pub complete: bool,
}

impl<'s> Search<'s> {
    /// Of this scenario, with a rule left out or none.
    pub fn new(scenario: &'s Scenario, broken: Option<Rule>) -> Self {
        let mut runner = Runner::new(scenario);
        let mut tally = Tally::default();
        let outcome = runner.run(Order {
            strategy: Strategy::Ordinary,
            hardware: Hardware::Quiet,
            broken,
            log: false,
            trace: None,
        });
        tally.decisions = outcome.decisions;
        Search { scenario, runner, broken, tally, complete: false }
    }

    /// One way, to its end.
    pub fn go(
        &mut self,
        way: Way,
        seed: u64,
        budget: &Budget,
        go_on: &mut dyn FnMut(&Tally) -> bool,
    ) -> Option<Counterexample> {
        match way {
            Way::Random => self.at_random(way, seed, budget.random, go_on, |seed, _| Strategy::random(seed)),
            Way::Priorities => self.at_random(way, seed, budget.random, go_on, |seed, decisions| {
                Strategy::priorities(seed, 1 + (seed % 4) as u32, decisions)
            }),
            Way::Exhaustive => self.all(budget, go_on),
        }
    }

    fn at_random(
        &mut self,
        way: Way,
        seed: u64,
        count: u64,
        go_on: &mut dyn FnMut(&Tally) -> bool,
        strategy: impl Fn(u64, u32) -> Strategy,
    ) -> Option<Counterexample> {
        for n in 0..count {
            let hardware = Hardware::ALL[(n % 3) as usize];
            let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(n);
            let outcome = self.runner.run(Order {
                strategy: strategy(seed, self.tally.decisions),
                hardware,
                broken: self.broken,
                log: false,
                trace: None,
            });
            self.tally.add(&outcome, None);
            if let Some(violation) = outcome.violation {
                return Some(self.found(way, hardware, outcome.made, violation, n + 1));
            }
            if !go_on(&self.tally) {
                return None;
            }
        }
        None
    }

    fn all(&mut self, budget: &Budget, go_on: &mut dyn FnMut(&Tally) -> bool) -> Option<Counterexample> {
        self.complete = true;
        let mut after = 0;
        for hardware in [Hardware::Grasping, Hardware::Quiet] {
            let mut search = Exhaustive::new(hardware, self.broken, budget.departures);
            for _ in 0..budget.exhaustive {
                let Some(outcome) = search.next(&mut self.runner, &mut self.tally) else { break };
                after += 1;
                if let Some(violation) = outcome.violation {
                    self.complete = false;
                    return Some(self.found(Way::Exhaustive, hardware, outcome.made, violation, after));
                }
                if !go_on(&self.tally) {
                    self.complete = false;
                    return None;
                }
            }
            self.complete &= search.is_complete();
        }
        None
    }

    fn found(
        &self,
        way: Way,
        hardware: Hardware,
        schedule: Vec<Deviation>,
        violation: Violation,
        after: u64,
    ) -> Counterexample {
        let (scenario, broken) = (self.scenario.name, self.broken);
        let architecture = self.scenario.setup.architecture;
        Counterexample { scenario, architecture, broken, hardware, schedule, violation, way, after }
    }
}
