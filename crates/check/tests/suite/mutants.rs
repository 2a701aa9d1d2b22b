//! Each rule, when it is broken, is shown by a schedule of a scenario that says so; its counterexample is shrunk, saved and
//! played again.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use quietmm::Rule;
use quietmm_check::explore::{Budget, Counterexample, Way};
use quietmm_check::replay::{self, Replay};
use quietmm_check::scenario::Scenario;
use quietmm_check::{hunt, scenarios, shrink, timeline};

/// A short look by each way before a long one by any: where one is blind, another may see it at once.
const BUDGETS: [Budget; 2] = [
    Budget { random: 200, exhaustive: 200, departures: 2 },
    Budget { random: 2000, exhaustive: 4000, departures: 2 },
];

/// The ways that need fewest schedules first.
const WAYS: [Way; 3] = [Way::Priorities, Way::Exhaustive, Way::Random];

fn found(all: &[Scenario], rule: Rule) -> Option<Counterexample> {
    let looks = BUDGETS.iter().flat_map(|budget| WAYS.map(|way| (way, budget)));
    looks.into_iter().find_map(|(way, budget)| hunt::hunt(all, rule, way, 1, budget, &mut || true).found)
}

#[test]
fn every_rule_is_shown() {
    let all = scenarios::all();
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(&rule) = Rule::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if found(&all, rule).is_none() {
                        missed.lock().unwrap().push(rule.name());
                    }
                }
            });
        }
    });
    assert_eq!(missed.into_inner().unwrap(), Vec::<&str>::new(), "of {}", Rule::ALL.len());
}

fn counterexample(rule: Rule) -> (Scenario, Counterexample) {
    let all = scenarios::all();
    let found = found(&all, rule).expect("it is shown");
    let scenario = all.into_iter().find(|scenario| scenario.name == found.scenario).expect("one of them");
    (scenario, found)
}

#[test]
fn a_counterexample_becomes_shorter_and_stays_one() {
    let (scenario, mut found) = counterexample(Rule::FlushBeforeUnmapReturns);
    let (before, invariant) = (found.schedule.len(), found.violation.invariant);
    shrink::shrink(&scenario, &mut found, &mut || true);
    assert!(found.schedule.len() <= before.min(3), "{:?}", found.schedule);
    assert_eq!(found.violation.invariant, invariant);
}

#[test]
fn a_file_plays_the_same_again() {
    let (scenario, found) = counterexample(Rule::DeferredBeforeUnmapReturns);
    let text = replay::write(&found);
    let read = Replay::parse(&text).expect("what was written");
    let outcome = read.run(&scenario);
    assert_eq!(outcome.violation, Some(found.violation.clone()));
    assert_eq!((outcome.made, outcome.missed), (found.schedule.clone(), 0));
    // And with the rule kept nothing happens: the negative control of the negative control.
    let sound = Replay { broken: None, ..Replay::from(&found) }.run(&scenario);
    assert_eq!(sound.violation, None);
}

#[test]
fn the_timeline_names_who_left_out_what_and_what_was_promised() {
    let (scenario, mut found) = counterexample(Rule::DeferredBeforeUnmapReturns);
    shrink::shrink(&scenario, &mut found, &mut || true);
    let drawn = timeline::draw(&scenario, &Replay::from(&found).run(&scenario), 160);
    for needed in [
        "CPU 0",
        "CPU 1",
        "SKIPS deferred-before-unmap-returns",
        found.violation.invariant,
        "left out, at step",
        "promises",
    ] {
        assert!(drawn.contains(needed), "{needed:?} is missing:\n{drawn}");
    }
    // A narrow terminal gets narrow columns, not a mess.
    let narrow = timeline::draw(&scenario, &Replay::from(&found).run(&scenario), 10);
    assert!(narrow.lines().all(|line| line.chars().count() < 160), "{narrow}");
}
