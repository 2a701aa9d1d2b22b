//! CPUs that go and come while `revisit` does its worst: nothing stale is used, no write is lost, every task ends, and a
//! CPU that is off has nothing.

use std::cell::Cell;
use std::rc::Rc;

use quietmm::{Config, CpuId, Policy, Rule};
use quietmm_workloads::{Params, TaskKind, Workload};
use rand_core::{Rng, SeedableRng};

use crate::machine::Machine;
use crate::sim::{Sim, Stop, Watch};
use crate::story::Story;

struct Nobody;

impl Watch for Nobody {
    fn progress(&self, _done: u64, _total: u64) {}
    fn cancelled(&self) -> bool {
        false
    }
}

/// What came of a run.
#[derive(Debug)]
struct Outcome {
    stop: Stop,
    stale: u64,
    lost_writes: u64,
    /// How often a CPU went.
    went: u64,
    broken: Option<&'static str>,
    stories: Vec<Story>,
}

/// `revisit` on eight CPUs with little memory, and a task that takes CPUs away and brings them back.
fn play(seed: u64, broken: Option<Rule>, rounds: u64) -> Outcome {
    let mut machine = Machine::builtin("uma-8").expect("a builtin machine");
    machine.memory = 16 << 20;
    let cpus = machine.cpus;
    let tasks = cpus + machine.nodes + Workload::Revisit.tasks(cpus, machine.memory / 4096) + 1;
    let sim = Sim::<true>::new(machine, tasks as usize, seed, broken, &Nobody).expect("memory of the host");
    let config =
        Config { min_free: Some(256), ..Config::new(Policy::parse("linux").expect("a policy of this name")) };
    let system = sim.system(config).expect("enough memory");
    let params =
        Params { cpus, frames: sim.machine.memory / 4096, seed, trace: None, threads: cpus, parts: None };
    Workload::Revisit.set_up(&system, &params).expect("enough memory");
    let space = system.mm.create_space().expect("enough memory");
    let went = Rc::new(Cell::new(0));
    let mut rng = rand_xoshiro::Xoshiro256StarStar::seed_from_u64(seed);
    // It lives on CPU 0, which goes too: then it goes with the others.
    let count = Rc::clone(&went);
    system.spawn("power".into(), TaskKind::User(space), CpuId(0), move |system| {
        for _ in 0..rounds {
            // Some stay away for a while, so that several are away at once.
            let cpu = CpuId((rng.next_u64() % u64::from(cpus)) as u16);
            count.set(count.get() + u64::from(system.take_offline(cpu)));
            system.nap(1_000 + rng.next_u64() % 100_000);
            let cpu = CpuId((rng.next_u64() % u64::from(cpus)) as u16);
            for cpu in [cpu, CpuId((cpu.0 + 1) % cpus as u16)] {
                system.bring_online(cpu);
            }
        }
        Ok(())
    });
    let stop = sim.run(&system);
    let (stale, lost_writes) = (sim.truth().stale, sim.truth().lost);
    // With a rule broken the core may be in any state.
    let broken = if broken.is_none() && stop == Stop::Finished && sim.rest(&system) != Stop::Deadlock {
        Some("it does not come to rest")
    } else if broken.is_none() {
        assert!((0..cpus as u16).map(CpuId).all(|cpu| system.is_online(cpu) == system.mm.is_online(cpu)));
        system.mm.validate().broken
    } else {
        None
    };
    Outcome { stop, stale, lost_writes, went: went.get(), broken, stories: sim.truth().stories.clone() }
}

#[test]
fn cpus_go_and_come_and_nothing_stale_is_used() {
    for seed in 1..=2 {
        let outcome = play(seed, None, 400);
        assert_eq!(outcome.stop, Stop::Finished, "seed {seed}: {outcome:?}");
        assert_eq!((outcome.stale, outcome.lost_writes, outcome.broken), (0, 0, None), "{outcome:#?}");
        assert!(outcome.went > 200, "{outcome:?}");
        assert!(outcome.stories.is_empty());
    }
}

/// With the rule broken something stale is used, with one seed of a few.
fn shows(rule: Rule) {
    let shown = (1..=6).any(|seed| play(seed, Some(rule), 400).stale > 0);
    assert!(shown, "{rule} was left out, and nothing came of it");
}

#[test]
fn a_cpu_that_goes_with_its_space_loaded_uses_stale_pages_when_it_comes_back() {
    shows(Rule::OfflineLeavesMasks);
}

#[test]
fn a_cpu_that_comes_back_with_its_old_tags_uses_stale_pages() {
    shows(Rule::OnlineStartsEmpty);
}
