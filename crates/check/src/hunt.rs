//! Looks for the schedule that shows what a step is for: the rule is broken, and something must be seen.

use quietmm::Rule;

use crate::explore::{Budget, Counterexample, Search, Tally, Way};
use crate::scenario::Scenario;

/// What one way found of one rule.
#[derive(Clone, Debug)]
pub struct Hunted {
    /// The counterexample, if there is one.
    pub found: Option<Counterexample>,
    /// Schedules of all scenarios that were tried, the last one too.
    pub schedules: u64,
    /// Whether it was stopped before its end.
    pub stopped: bool,
}

/// Scenarios in which a rule should show when it is broken.
pub fn scenarios_for(scenarios: &[Scenario], rule: Rule) -> impl Iterator<Item = &Scenario> {
    scenarios.iter().filter(move |scenario| scenario.rules.contains(&rule))
}

/// Breaks the rule in the scenarios that should show it, one after the other, until one does. `go_on` is asked after each
/// schedule.
pub fn hunt(
    scenarios: &[Scenario],
    rule: Rule,
    way: Way,
    seed: u64,
    budget: &Budget,
    go_on: &mut dyn FnMut() -> bool,
) -> Hunted {
    let mut hunted = Hunted { found: None, schedules: 0, stopped: false };
    for scenario in scenarios_for(scenarios, rule) {
        let mut search = Search::new(scenario, Some(rule));
        let mut stopped = false;
        let mut ask = |_: &Tally| {
            stopped = !go_on();
            !stopped
        };
        hunted.found = search.go(way, seed, budget, &mut ask);
        hunted.schedules += search.tally.schedules;
        hunted.stopped = stopped;
        if hunted.found.is_some() || stopped {
            break;
        }
    }
    hunted
}
