//! `hackbench-oom` needs somebody who picks victims: without, it fails.

use quietmm::{Config, Error, Policy};
use quietmm_workloads::{Params, Workload};

use crate::machine::Machine;
use crate::sim::{Sim, Stop, Watch};

struct Nobody;

impl Watch for Nobody {
    fn progress(&self, _done: u64, _total: u64) {}
    fn cancelled(&self) -> bool {
        false
    }
}

/// How the run stops, and how its tasks end.
fn play(picks: bool) -> (Stop, Vec<Error>) {
    let mut machine = Machine::builtin("vm-8").expect("a builtin machine");
    machine.memory = 40 << 20;
    let (cpus, frames) = (machine.cpus, machine.memory / 4096);
    let tasks = cpus + machine.nodes + Workload::HackbenchOom.tasks(cpus, frames);
    let sim = Sim::<true>::new(machine, tasks as usize, 1, None, &Nobody).expect("memory of the host");
    let policy = Policy::parse("linux").expect("a policy of this name");
    let system = sim.system(Config::new(policy)).expect("enough memory");
    if !picks {
        // The first one counts: the workload's own is not asked.
        system.pick_victims(|_, _| false);
    }
    let params = Params { cpus, frames, seed: 1, trace: None, threads: cpus, parts: None };
    Workload::HackbenchOom.set_up(&system, &params).expect("enough memory");
    let stop = sim.run(&system);
    let errors = system.reports().into_iter().filter_map(|task| task.result.err()).collect();
    (stop, errors)
}

#[test]
fn who_finds_no_memory_and_no_victim_fails() {
    assert_eq!(play(true), (Stop::Finished, Vec::new()));
    let (stop, errors) = play(false);
    assert_eq!(stop, Stop::Finished);
    assert!(!errors.is_empty() && errors.iter().all(|&error| error == Error::OutOfMemory), "{errors:?}");
}
