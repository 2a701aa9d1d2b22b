//! Each rule, when it is broken, is shown by a schedule of a scenario that says so; its counterexample is shrunk, saved and
//! played again.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use quietmm::{Architecture, Rule};
use quietmm_check::explore::{Budget, Counterexample, Way};
use quietmm_check::machine::Hardware;
use quietmm_check::replay::{self, Replay};
use quietmm_check::scenario::Scenario;
use quietmm_check::timeline::{Lasting, Reach, Row, Story};
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
    assert_eq!(not_shown(&scenarios::all()), Vec::<&str>::new(), "of {}", Rule::ALL.len());
}

/// What a rule is for is the same where tables are written otherwise. With Svade no CPU sets bits of an entry: a fault does, under
/// the table's lock. What is there only because a CPU may set them at any moment cannot be seen missing.
#[test]
#[ignore = "long: make soak"]
fn every_rule_is_shown_on_another_architecture() {
    let on = |architecture| {
        let all: Vec<_> = scenarios::all().into_iter().map(|scenario| scenario.on(architecture)).collect();
        not_shown(&all)
    };
    assert_eq!(on(Architecture::Sv48Adu), Vec::<&str>::new());
    let mut not_shown = on(Architecture::Sv48);
    not_shown.sort_unstable();
    let needless =
        ["ask-guarantees", "atomic-accessed-clear", "flush-writable", "split-whole", "take-what-was-judged"];
    assert_eq!(not_shown, needless);
}

fn not_shown(all: &[Scenario]) -> Vec<&'static str> {
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(&rule) = Rule::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if found(all, rule).is_none() {
                        missed.lock().unwrap().push(rule.name());
                    }
                }
            });
        }
    });
    missed.into_inner().unwrap()
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

/// What is wrong with how the rows of a story hang together.
fn wrong(story: &Story) -> Vec<String> {
    let said = |row: usize| match &story.rows[row] {
        Row::Across(said) => (None, *said),
        Row::Of(event) => (Some(event.cpu), &event.said[..]),
    };
    let mut wrong = Vec::new();
    for arrow in &story.arrows {
        let (to, there, begun) = match arrow.what {
            Reach::Interrupt => (arrow.cpu, "--> interrupt", format!("interrupts CPU {} -->", arrow.cpu)),
            Reach::Broadcast => (said(arrow.from).0.unwrap(), "that is done", " on all CPUs".to_string()),
        };
        if !said(arrow.from).1.ends_with(&begun) {
            wrong.push(format!("{arrow:?} begins with {:?}", said(arrow.from)));
        }
        // It is there with the first such row behind it, and not before the end if there is none.
        let first = (arrow.from..story.rows.len()).find(|&row| said(row) == (Some(to), there));
        if arrow.to != first {
            wrong.push(format!("{arrow:?} should be there at {first:?}"));
        }
    }
    let sends = |row: &Row| matches!(row, Row::Of(event) if event.said.starts_with("interrupts CPU"));
    let interrupts = story.arrows.iter().filter(|arrow| arrow.what == Reach::Interrupt).count();
    if story.rows.iter().filter(|row| sends(row)).count() != interrupts {
        wrong.push(format!("{interrupts} interrupts have arrows"));
    }
    for span in &story.spans {
        let (first, last) = (said(span.from), span.to.map(said));
        let ends = match span.what {
            Lasting::Call => first.1.ends_with("() {") && last.is_none_or(|last| last.1.starts_with("} ")),
            Lasting::Handler => first.1.starts_with("--> ") && last.is_none_or(|last| last.1 == "<-- done"),
            Lasting::Sleep => first.1.starts_with("sleeps") && last.is_none_or(|last| last.1 == "goes on"),
        };
        if !ends || first.0 != Some(span.cpu) || last.is_some_and(|last| last.0 != Some(span.cpu)) {
            wrong.push(format!("{span:?}: {first:?} to {last:?}"));
        }
    }
    wrong
}

#[test]
fn arrows_lead_from_who_sends_to_where_it_arrives() {
    let (scenario, mut found) = counterexample(Rule::DeferredBeforeUnmapReturns);
    shrink::shrink(&scenario, &mut found, &mut || true);
    let mut story = Story::of(&scenario, &Replay::from(&found).run(&scenario));
    assert_eq!(wrong(&story), Vec::<String>::new());
    // The flush that was not waited for is still on its way in the end.
    assert!(story.arrows.iter().any(|arrow| arrow.to.is_none()), "{:?}", story.arrows);
    assert!(story.arrows.iter().any(|arrow| arrow.to.is_some()), "{:?}", story.arrows);
    let broken = story.broken.as_ref().expect("a rule was broken");
    assert!(broken.law().starts_with("INV-") && broken.said.len() == 2, "{broken:?}");
    // The negative control: one that arrives elsewhere is seen.
    story.arrows[0].to = Some(0);
    assert!(!wrong(&story).is_empty());
}

#[test]
fn a_flush_by_hardware_leads_to_all_who_are_there() {
    let all = scenarios::all();
    let mut reached = Vec::new();
    for scenario in all.iter().filter(|scenario| scenario.setup.broadcast) {
        let ordinary = Replay {
            scenario: scenario.name.to_string(),
            architecture: scenario.setup.architecture,
            broken: None,
            hardware: Hardware::Quiet,
            invariant: String::new(),
            schedule: Vec::new(),
        };
        let story = Story::of(scenario, &ordinary.run(scenario));
        assert_eq!(wrong(&story), Vec::<String>::new(), "{}", scenario.name);
        let broadcasts = story.arrows.iter().filter(|arrow| arrow.what == Reach::Broadcast);
        reached.extend(broadcasts.map(|arrow| (scenario.name, arrow.from, arrow.to.is_some())));
    }
    assert!(reached.len() > 3 && reached.iter().all(|(_, _, there)| *there), "{reached:?}");
}
