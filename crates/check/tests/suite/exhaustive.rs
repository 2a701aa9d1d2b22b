//! The exhaustive way against every schedule of a small scenario, tried one by one.

use std::collections::BTreeSet;

use quietmm::Prot;
use quietmm_check::act::Act;
use quietmm_check::driver::{Deviation, Strategy, Trace};
use quietmm_check::explore::{Exhaustive, Tally, order};
use quietmm_check::machine::Hardware;
use quietmm_check::runner::{Order, Runner};
use quietmm_check::scenario::Scenario;
use quietmm_check::task::Task;

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
            task.unmap(0, AT, 1);
            task.protect(0, AT + 1, 1, Prot::Read);
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
        let missed = |all: &BTreeSet<u64>| all.iter().filter(|&&print| !search.has_seen(print)).count();
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
