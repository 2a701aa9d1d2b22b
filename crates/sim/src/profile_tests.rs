//! The account of CPU time against what else the machine knows of it: clocks, modes, ticks.

use quietmm::{Config, CpuId, NodeId, Policy, Scope};
use quietmm_workloads::{Machine as _, Params, TaskKind, Workload};

use crate::cpu::Mode;
use crate::machine::Machine;
use crate::profile::{Own, Place, Profile, Row};
use crate::sim::{Sim, Stop, Watch};
use quietmm::platform::{Cpus, Hooks};

struct Nobody;

impl Watch for Nobody {
    fn progress(&self, _done: u64, _total: u64) {}
    fn cancelled(&self) -> bool {
        false
    }
}

fn machine(name: &str, cpus: u32, mib: u64) -> Machine {
    let mut machine =
        Machine::builtin(name).and_then(|machine| machine.with_cpus(cpus).ok()).expect("a machine");
    machine.memory = mib << 20;
    machine
}

fn sim(machine: Machine, tasks: u32) -> Sim<'static, true> {
    let mut sim = Sim::new(machine, tasks as usize, 1, None, &Nobody).expect("memory of the host");
    sim.keep_profile();
    sim
}

fn row(profile: &Profile, place: Place) -> Row {
    let found = profile.rows.iter().find(|row| row.place == place);
    *found.unwrap_or(&Row { place, own_ps: 0, total_ps: 0, calls: 0 })
}

fn own(profile: &Profile, own: Own) -> u64 {
    row(profile, Place::Own(own)).own_ps
}

/// Every picosecond of every CPU once, and what is user work and idle time here is so by the CPUs' modes, which are kept
/// apart from this.
fn adds_up(sim: &Sim<'_, true>, what: &str) -> Profile {
    let profile = sim.profile().expect("it was asked for");
    let latest = sim.cpus.iter().map(|cpu| cpu.now.get()).max().expect("it has CPUs");
    assert_eq!(profile.span_ps, latest, "{what}");
    let all: u64 = profile.rows.iter().map(|row| row.own_ps).sum();
    assert_eq!(all, sim.cpus.len() as u64 * latest, "{what}");
    sim.cpus.iter().for_each(|cpu| cpu.close(latest));
    let mode = |mode| sim.cpus.iter().map(|cpu| cpu.spent(mode)).sum::<u64>();
    assert_eq!(own(&profile, Own::Idle) + own(&profile, Own::Off), mode(Mode::Idle), "{what}");
    // What a stall takes away from a program is the program's by the modes.
    let (user, stalled) = (own(&profile, Own::User), own(&profile, Own::Stall));
    assert!(user <= mode(Mode::User) && mode(Mode::User) <= user + stalled, "{what}: {profile:?}");
    assert_eq!(profile.busy_ps() + stalled, mode(Mode::User) + mode(Mode::System), "{what}");
    assert!(profile.rows.iter().all(|row| row.total_ps >= row.own_ps), "{what}: {profile:?}");
    profile
}

fn play(workload: Workload, machine: Machine, policy: &str) -> Profile {
    let (cpus, frames) = (machine.cpus, machine.memory / 4096);
    let kernel = workload.kernel_pages(cpus);
    let tasks = cpus + machine.nodes + 1 + workload.tasks(cpus, frames);
    let sim = sim(machine, tasks);
    let policy = Policy::parse(policy).expect("a policy of this name");
    let range = |pages| quietmm::PageRange::new(quietmm::PageNumber(0xf_fffc_9000_0000), pages);
    let config = Config { vmap: kernel.map(range), ..Config::new(policy) };
    let system = sim.system(config).expect("enough memory");
    let params = Params { cpus, frames, seed: 1, trace: None, threads: cpus, parts: None };
    workload.set_up(&system, &params).expect("enough memory");
    assert_eq!(sim.run(&system), Stop::Finished, "{}", workload.name());
    adds_up(&sim, workload.name())
}

#[test]
fn every_picosecond_of_every_cpu_is_charged_once() {
    let shapes = [
        (Workload::Reader, "uma-8", 4, 8, "vanilla"),
        (Workload::Reader, "numa-4x12", 8, 24, "linux"),
        (Workload::Revisit, "uma-8", 6, 16, "linux"),
        (Workload::ForkStorm, "uma-8", 4, 32, "linux"),
        (Workload::Bystander, "uma-8", 4, 16, "linux"),
        (Workload::DirBuffers, "opteron-2x4", 8, 64, "linux+vmap=eager"),
        (Workload::DirBuffers, "opteron-2x4", 8, 64, "linux"),
    ];
    for (workload, name, cpus, mib, policy) in shapes {
        let profile = play(workload, machine(name, cpus, mib), policy);
        assert!(own(&profile, Own::User) > 0 && profile.rows.len() > 10, "{profile:?}");
    }
}

#[test]
fn time_that_a_cpu_is_away_or_switched_off_is_charged_too() {
    let mut stalls = machine("stress-4x4", 8, 32);
    stalls.set("stall_every", "5us").expect("a constant");
    stalls.set("stall", "20us").expect("a constant");
    let profile = play(Workload::Hotplug, stalls, "linux");
    assert!(own(&profile, Own::Stall) > 0 && own(&profile, Own::Off) > 0, "{profile:?}");
}

#[test]
fn an_interrupt_in_the_middle_of_user_work_is_no_user_work() {
    let machine = machine("uma-8", 1, 8);
    let (cost, tick) = (machine.cost.user_access, machine.cost.tick_work);
    let sim = sim(machine, 4);
    let config = Config::new(Policy::parse("linux").expect("a policy of this name"));
    let system = sim.system(config).expect("enough memory");
    let space = system.mm.create_space().expect("enough memory");
    let count = 20_000_000;
    system.spawn("worker".into(), TaskKind::User(space), CpuId(0), move |system| {
        system.mm.platform().compute(count);
        Ok(())
    });
    assert_eq!(sim.run(&system), Stop::Finished);
    let profile = adds_up(&sim, "one worker");
    let user = row(&profile, Place::Own(Own::User));
    assert_eq!((user.own_ps, user.total_ps, user.calls), (u64::from(count) * cost, user.own_ps, 1));
    let ticks = row(&profile, Place::Own(Own::Tick));
    assert!(ticks.calls > 2, "the work is long: {ticks:?}");
    assert_eq!(ticks.calls, sim.cpus[0].ticks.get());
    assert!(ticks.total_ps >= ticks.calls * tick);
    assert_eq!(row(&profile, Place::Own(Own::Interrupt)).calls, ticks.calls);
}

#[test]
fn a_task_that_waits_on_one_cpu_and_goes_on_on_another_is_still_where_it_was() {
    let sim = sim(machine("uma-8", 4, 8), 8);
    let cost = sim.machine.cost.user_access;
    let config = Config::new(Policy::parse("linux").expect("a policy of this name"));
    let system = sim.system(config).expect("enough memory");
    let space = system.mm.create_space().expect("enough memory");
    let (nap, count) = (50_000, 1000);
    // A kernel task goes on wherever there is room; this one sleeps and computes within one scope.
    system.spawn("mover".into(), TaskKind::Kernel(NodeId(0)), CpuId(0), move |system| {
        let m = system.mm.platform();
        m.enter(Scope::Migrate);
        let mut moves = 0;
        for _ in 0..8 {
            let from = m.this_cpu();
            system.nap(nap);
            moves += u32::from(m.this_cpu() != from);
            m.compute(count);
        }
        m.leave(Scope::Migrate);
        assert_eq!(moves, 8, "it went on where it was: the test says nothing");
        Ok(())
    });
    system.spawn("other".into(), TaskKind::User(space), CpuId(1), move |system| {
        system.nap(16 * nap);
        Ok(())
    });
    assert_eq!(sim.run(&system), Stop::Finished);
    let profile = adds_up(&sim, "a task that moves");
    let scope = row(&profile, Place::Core(Scope::Migrate));
    let computed = 8 * u64::from(count) * cost;
    assert_eq!((scope.calls, own(&profile, Own::User)), (1, computed));
    // What it slept is nobody's CPU time: the scope holds its own work, and the scheduler's for it.
    let total = scope.total_ps;
    assert!(total >= computed && total < computed + 8 * 10_000_000, "{total} of {computed}");
    let slept = profile.slept.iter().find(|slept| slept.wait == crate::Wait::Core(Scope::Migrate));
    let slept = slept.expect("it slept");
    assert_eq!(slept.count, 8);
    assert!(slept.ps >= 8 * (nap - 1_000) * 1000, "{slept:?}");
}

#[test]
fn without_being_asked_no_account_is_kept() {
    let sim = Sim::<true>::new(machine("uma-8", 1, 8), 1, 1, None, &Nobody).expect("memory of the host");
    sim.enter(Scope::Fault);
    sim.leave(Scope::Fault);
    assert!(sim.profile().is_none());
}
