//! When a run is given up: by events, not by the host's time, so that it ends everywhere at the same place.

use quietmm::{Config, CpuId, Policy};
use quietmm_workloads::{Machine as _, TaskKind};

use crate::machine::Machine;
use crate::sim::{Sim, Stop, Watch, patience};

/// The patience with the machine of [`play`].
const MOST: u64 = patience(1, MEMORY / 4096);
const MEMORY: u64 = 8 << 20;

struct Nobody;

impl Watch for Nobody {
    fn progress(&self, _done: u64, _total: u64) {}
    fn cancelled(&self) -> bool {
        false
    }
}

/// How a run of one CPU ends of which it was said that it has `total` pages of work, and which needs so many events for each
/// of `pages`.
fn play(total: u64, pages: u64, events: u64) -> Stop {
    let mut machine = Machine::builtin("uma-8").unwrap().with_cpus(1).unwrap();
    machine.memory = MEMORY;
    let sim = Sim::<true>::new(machine, 8, 1, None, &Nobody).unwrap();
    let system = sim.system(Config::new(Policy::parse("linux").unwrap())).unwrap();
    let space = system.mm.create_space().unwrap();
    system.spawn("worker".into(), TaskKind::User(space), CpuId(0), move |system| {
        let machine = system.mm.platform();
        for _ in 0..pages {
            (0..events).for_each(|_| machine.compute(1));
            machine.progressed(1);
        }
        Ok(())
    });
    sim.total.set(total);
    sim.run(&system)
}

#[test]
fn a_run_in_which_nothing_gets_done_is_given_up() {
    assert_eq!(play(1, 1, MOST + (1 << 20)), Stop::Stuck);
    // The control: a page that takes nearly as long, and the next one.
    assert_eq!(play(1_000, 2, MOST / 100 * 99), Stop::Finished);
}

#[test]
fn a_run_in_which_little_gets_done_is_given_up() {
    // None of these pages takes too long, and the last comes later than two pages may.
    assert_eq!(play(2, 4, MOST / 2), Stop::TooSlow);
    // The control: so many were to come.
    assert_eq!(play(2_000, 4, MOST / 2), Stop::Finished);
}

#[test]
fn reclaim_may_look_at_every_page_and_interrupt_everybody_for_it() {
    // `tlb-bystander` with `aging=flush` on 16 CPUs took 675 events for each look at one of its 120,968 pages, and each had
    // been used.
    assert!(patience(16, 131_072) > 120_968 * 675);
}
