//! With no rule broken no schedule breaks anything; the same seed plays the same schedules.

use quietmm::Architecture;
use quietmm_check::driver::Strategy;
use quietmm_check::explore::{Budget, Search, Way};
use quietmm_check::machine::Hardware;
use quietmm_check::runner::{Order, Runner};
use quietmm_check::scenario::Scenario;
use quietmm_check::scenarios;

/// A look by each way, as short as those that show nearly every rule in `mutants.rs`; `quietmm check` and `make soak` go on from here.
const BUDGET: Budget = Budget { random: 50, exhaustive: 100, departures: 2 };

#[test]
fn no_schedule_breaks_anything() {
    for scenario in scenarios::all() {
        breaks_nothing(&scenario, &BUDGET);
    }
}

/// The same scenarios, where tables are written otherwise, CPUs keep refusals, and the kernel or the CPU sets accessed bits.
#[test]
fn no_schedule_breaks_anything_on_another_architecture() {
    let budget = Budget { random: 15, exhaustive: 30, departures: 2 };
    for architecture in [Architecture::Sv48, Architecture::Sv48Adu] {
        for scenario in scenarios::all() {
            breaks_nothing(&scenario.on(architecture), &budget);
        }
    }
}

fn breaks_nothing(scenario: &Scenario, budget: &Budget) {
    for way in Way::ALL {
        let mut search = Search::new(scenario, None);
        if let Some(found) = search.go(way, 7, budget, &mut |_| true) {
            panic!("{}: {found:?}", scenario.name);
        }
    }
}

#[test]
fn the_same_seed_plays_the_same_schedules() {
    for scenario in scenarios::all().iter().step_by(7) {
        let play = |runner: &mut Runner<'_>, seed| {
            let hardware = Hardware::ALL[seed as usize % 3];
            let order = |strategy| Order { strategy, hardware, broken: None, log: true, trace: None };
            let (one, two) = (
                runner.run(order(Strategy::random(seed))),
                runner.run(order(Strategy::priorities(seed, 3, 200))),
            );
            let told = |outcome: &quietmm_check::runner::Outcome| {
                outcome
                    .log
                    .iter()
                    .map(|entry| format!("{} {} {:?}", entry.step, entry.cpu, entry.what))
                    .collect::<Vec<_>>()
            };
            // Addresses of locks are the host's.
            let same = |line: &String| !line.contains("Sleeps");
            let lines: Vec<String> = told(&one).into_iter().chain(told(&two)).filter(same).collect();
            (one.made, one.steps, two.made, two.steps, lines)
        };
        let (mut first, mut second) = (Runner::new(scenario), Runner::new(scenario));
        for seed in 0..6 {
            assert!(play(&mut first, seed) == play(&mut second, seed), "{}, seed {seed}", scenario.name);
        }
    }
}

#[test]
fn a_run_leaves_nothing_behind() {
    for scenario in scenarios::all() {
        let mut runner = Runner::new(&scenario);
        for seed in 0..3 {
            let strategy = Strategy::random(seed);
            runner.run(Order { strategy, hardware: Hardware::Fickle, broken: None, log: false, trace: None });
            assert!(runner.leaves_nothing_behind(), "{}", scenario.name);
        }
    }
}

#[test]
fn names_are_unique_and_each_has_a_line() {
    let all = scenarios::all();
    for (n, scenario) in all.iter().enumerate() {
        assert!(all[n + 1..].iter().all(|other| other.name != scenario.name), "{}", scenario.name);
        assert!(!scenario.about.is_empty() && scenario.name.is_ascii() && !scenario.name.contains(' '));
        assert!(scenario.scripts.len() <= usize::from(scenario.setup.cpus), "{}", scenario.name);
    }
}

#[test]
fn each_known_fault_of_other_systems_has_a_scenario() {
    let all = scenarios::all();
    let without: Vec<u8> =
        (1..=39).filter(|n| !all.iter().any(|scenario| scenario.pitfalls.contains(n))).collect();
    assert_eq!(without, [], "numbers of docs/rules.md");
}
