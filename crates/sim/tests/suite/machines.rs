//! Every machine runs every workload, whatever the number of CPUs, and ends with frames that add up: a run
//! whose frames do not is an error. What cannot run is refused in a line that says why.

use crate::common;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Figures, machine, policy, refusal, run, spec, what};
use quietmm_sim::machine::Machine;
use quietmm_sim::{RunError, RunSpec, Watch, Workload};

/// A workload on a machine with so many CPUs and, about, so many MiB.
fn small(workload: Workload, name: &str, cpus: u32, mib: u64) -> RunSpec {
    let mut machine = machine(name).with_cpus(cpus).expect("so many CPUs");
    // Whose page is lost ends early; only this one goes on.
    if machine.swap.is_some() && workload != Workload::SwapChurn {
        machine.set("read_errors", "0").expect("a constant of swap devices");
    }
    let scale = (machine.memory / (mib << 20)) as u32;
    RunSpec { machine, scale, ..spec(workload) }
}

/// Runs them on two host threads; each must end well.
fn all_end_well(specs: Vec<RunSpec>) {
    let queue = Mutex::new(specs);
    let work = || {
        while let Some(spec) = { queue.lock().expect("no panic").pop() } {
            let report = run(&spec);
            let harm = ["stale_accesses", "lost_writes", "wrong_contents"].map(|key| report.count(key));
            assert_eq!(harm, [0; 3], "{}: {:#?}", what(&spec), report.stories);
            if spec.machine.cpus == 1 {
                assert_eq!(report.count("ipis_sent"), 0, "{}: there is nobody to interrupt", what(&spec));
            }
            // A trace is as long as it is, and fits if few CPUs replay it; storms and page-alloc take part of the
            // memory, and churn as much as its seed says.
            use Workload::{
                Churn, DirBuffers, ForkStorm, Hotplug, NoPressure, PageAlloc, Replay, UnmapStorm, VmapMix,
                VmapTouch,
            };
            if !matches!(
                spec.workload,
                NoPressure
                    | Replay
                    | UnmapStorm
                    | ForkStorm
                    | Hotplug
                    | PageAlloc
                    | Churn
                    | VmapTouch
                    | VmapMix
                    | DirBuffers
            ) {
                assert!(report.count("pages_reclaimed") > 0, "{}: memory was short", what(&spec));
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
}

/// Numbers of CPUs that each machine and each workload meet. With fewer than five nobody unmaps in `revisit`.
const CPUS: [u32; 4] = [1, 2, 3, 5];
/// And in the soak.
const MORE_CPUS: [u32; 4] = [1, 2, 3, 8];

/// Each workload on each machine that it can run on, with the numbers of both.
fn every_pair() -> impl Iterator<Item = ((usize, &'static str), (usize, Workload))> {
    Machine::builtin_names().enumerate().flat_map(|(m, name)| {
        let swaps = machine(name).swap.is_some();
        let workloads = Workload::ALL.iter().copied().enumerate();
        let fit = workloads.filter(move |(_, workload)| swaps || !workload.needs_swap());
        fit.map(move |(w, workload)| ((m, name), (w, workload)))
    })
}

fn with_cpus(name: &str, workload: Workload, cpus: u32) -> RunSpec {
    let text = if cpus % 2 == 1 { "vanilla" } else { "linux" };
    let nodes = machine(name).nodes.min(cpus);
    let mib = u64::from(nodes * 4).max(16);
    RunSpec { policy: policy(text), ..small(workload, name, cpus, mib) }
}

/// A third of all pairs, each with one number of CPUs: whatever is a workload's or a machine's own is met.
#[test]
fn every_machine_runs_and_so_does_every_workload_with_any_number_of_cpus() {
    let third = every_pair().filter(|((m, _), (w, _))| (m + w) % 3 == 0);
    let mut specs: Vec<RunSpec> = Vec::new();
    for ((_, name), (_, workload)) in third {
        // What the two have met least.
        let met = |cpus: u32| {
            let theirs = |spec: &&RunSpec| spec.machine.name == name || spec.workload == workload;
            specs.iter().filter(theirs).filter(|spec| spec.machine.cpus == cpus).count()
        };
        let cpus = CPUS.into_iter().min_by_key(|&cpus| met(cpus)).expect("four of them");
        specs.push(with_cpus(name, workload, cpus));
    }
    let all_met = |ours: &dyn Fn(&RunSpec) -> bool, what: &str| {
        let met = |&cpus: &u32| specs.iter().any(|spec| ours(spec) && spec.machine.cpus == cpus);
        assert!(CPUS.iter().all(met), "{what}");
    };
    for &workload in Workload::ALL.iter().filter(|workload| !workload.needs_swap()) {
        all_met(&|spec| spec.workload == workload, workload.name());
    }
    for name in Machine::builtin_names() {
        all_met(&|spec| spec.machine.name == name, name);
    }
    all_end_well(specs);
}

#[test]
#[ignore = "long: make soak"]
fn every_machine_runs_every_workload_with_any_number_of_cpus() {
    let with_any = every_pair()
        .flat_map(|((_, name), (_, workload))| MORE_CPUS.map(|cpus| with_cpus(name, workload, cpus)));
    all_end_well(with_any.collect());
}

#[test]
fn nodes_need_not_have_the_same_number_of_cpus_and_there_may_be_many() {
    let reader = |name, cpus, mib| small(Workload::Reader, name, cpus, mib);
    all_end_well(vec![reader("numa-4x12", 5, 16), reader("modern-2x64", 128, 80)]);
}

#[test]
fn a_machine_of_4096_cpus_starts_and_works() {
    // To its end it takes a minute: all of its CPUs fault at once, and queue for two zones' locks.
    let spec = small(Workload::NoPressure, "modern-2x64", 4096, 2100);
    let watch = Stopper { after: 1, done: AtomicU64::new(0) };
    assert_eq!(quietmm_sim::run(&spec, &watch).err(), Some(RunError::Cancelled));
    assert!(watch.done.load(Ordering::Relaxed) >= 1024, "pages were read");
}

#[test]
fn a_machine_that_is_too_small_is_refused_with_what_it_needs() {
    let mut spec = spec(Workload::Reader);
    spec.scale = 1_000_000;
    let RunError::Refused(why) = refusal(&spec) else { panic!("not the user's to mend") };
    assert!(why.contains("numa-4x12 at scale 1/1000000") && why.contains("at least"), "{why}");
    assert!(why.lines().count() == 1, "{why}");
    // What it says is enough for the tables is accepted by what checks it: then the work decides.
    let least: u64 =
        why.split("at least ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok()).expect(&why);
    spec.scale = (spec.machine.memory / 1024 / least) as u32;
    if let Err(error) = quietmm_sim::run(&spec, &common::Nobody) {
        assert!(matches!(&error, RunError::Refused(why) if why.lines().count() == 1), "{error:?}");
    }
}

/// Asks to stop once so many pages are done.
struct Stopper {
    after: u64,
    done: AtomicU64,
}

impl Watch for Stopper {
    fn progress(&self, done: u64, _total: u64) {
        self.done.store(done, Ordering::Relaxed);
    }
    fn cancelled(&self) -> bool {
        self.done.load(Ordering::Relaxed) >= self.after
    }
}

#[test]
fn a_cancelled_run_stops_within_a_few_pages() {
    for cpus in [1, 8] {
        for &workload in Workload::ALL {
            let name = if workload.needs_swap() { "ssd-8" } else { "uma-8" };
            let spec = small(workload, name, cpus, 128);
            let watch = Stopper { after: 1, done: AtomicU64::new(0) };
            let ended = quietmm_sim::run(&spec, &watch);
            assert_eq!(ended.err(), Some(RunError::Cancelled), "{}", what(&spec));
            assert!(watch.done.load(Ordering::Relaxed) < 2048, "{}: asked once, and went on", what(&spec));
        }
    }
}
