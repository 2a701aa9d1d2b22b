//! A manager that must be refused is not played, and one that is made all the same is a violation.

use quietmm_check::explore::{Budget, Search, Way};
use quietmm_check::scenario::Scenario;
use quietmm_check::scenarios;

const BUDGET: Budget = Budget { random: 1, exhaustive: 1, departures: 0 };

fn seen(scenario: &Scenario) -> Option<&'static str> {
    let found = Search::new(scenario, None).go(Way::Random, 1, &BUDGET, &mut |_| true);
    found.map(|found| found.violation.invariant)
}

#[test]
fn a_manager_that_is_made_though_it_must_be_refused_is_seen() {
    let named =
        |name| scenarios::all().into_iter().find(|scenario| scenario.name == name).expect("one of them");
    assert_eq!(seen(&named("no-guarantees")), None);
    let mut made = named("unmap-write");
    assert_eq!(seen(&made), None);
    made.refused = true;
    assert_eq!(seen(&made), Some("promise"));
}
