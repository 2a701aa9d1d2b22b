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

/// Each workload on each machine, with a number of CPUs each.
fn every_pair() -> impl Iterator<Item = [RunSpec; 4]> {
    let pairs = Machine::builtin_names().flat_map(|name| {
        let swaps = machine(name).swap.is_some();
        let workloads = Workload::ALL.iter().filter(move |workload| swaps || !workload.needs_swap());
        workloads.map(move |&workload| (name, workload))
    });
    pairs.map(|(name, workload)| {
        [1, 2, 3, 8].map(|cpus| {
            let text = if cpus % 2 == 1 { "vanilla" } else { "linux" };
            let nodes = machine(name).nodes.min(cpus);
            let mib = u64::from(nodes * 4).max(16);
            RunSpec { policy: policy(text), ..small(workload, name, cpus, mib) }
        })
    })
}

/// Each pair with one number of CPUs in turn: every machine and every workload meets all of them.
#[test]
fn every_machine_runs_every_workload() {
    let specs: Vec<RunSpec> =
        every_pair().enumerate().map(|(nth, specs)| specs.into_iter().nth(nth % 4).expect("four")).collect();
    for &workload in Workload::ALL.iter().filter(|workload| !workload.needs_swap()) {
        let met = |cpus| specs.iter().any(|spec| spec.workload == workload && spec.machine.cpus == cpus);
        assert!([1, 2, 3, 8].into_iter().all(met), "{}", workload.name());
    }
    all_end_well(specs);
}

#[test]
#[ignore = "long: make soak"]
fn every_machine_runs_every_workload_with_any_number_of_cpus() {
    all_end_well(every_pair().flatten().collect());
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
