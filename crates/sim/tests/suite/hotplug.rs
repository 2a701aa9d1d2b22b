//! `hotplug` on many seeds: CPUs and blocks of memory go and come in the middle of drains, and every frame has one owner
//! and is accounted for (a run whose frames do not add up fails).

use crate::common;

use std::sync::Mutex;

use common::{Figures, machine, policy, run, spec, what};
use quietmm_sim::{RunSpec, Workload};

/// Seeds of each policy; `make soak` has more.
const SEEDS: u64 = 4;

#[test]
fn every_frame_is_accounted_for_whatever_the_drain_while_cpus_and_memory_go_and_come() {
    let policies = ["linux+drain=all-cpus", "linux+drain=holding-cpus", "linux+drain=remote"];
    let specs = policies.iter().flat_map(|text| {
        let seed = |seed| RunSpec { policy: policy(text), seed, ..spec(Workload::Hotplug) };
        (0..SEEDS).map(seed)
    });
    // One node, and one CPU of which nothing can be taken away.
    let few = [1, 2, 8].map(|cpus| {
        let machine = machine("uma-8").with_cpus(cpus).expect("so many CPUs");
        RunSpec { machine, scale: 512, ..spec(Workload::Hotplug) }
    });
    // A block of the last node's is not there at the start.
    let later = (0..SEEDS).map(|seed| {
        let mut machine = machine("stress-4x4");
        machine
            .set("memory.size", "32MiB")
            .and_then(|()| machine.set("later", "4MiB"))
            .expect("so much memory");
        RunSpec { machine, seed, policy: policy("linux+drain=remote"), ..spec(Workload::Hotplug) }
    });
    let specs = Mutex::new(specs.chain(later).chain(few).collect::<Vec<_>>());
    let work = || {
        while let Some(spec) = { specs.lock().expect("no panic").pop() } {
            let report = run(&spec);
            let harm = ["stale_accesses", "lost_writes", "wrong_contents"].map(|key| report.count(key));
            assert_eq!(harm, [0; 3], "{}: {:#?}", what(&spec), report.stories);
            let came = spec.machine.later >> 22;
            if came > 0 {
                assert_eq!(report.count("memory_blocks_came"), came, "{}", what(&spec));
            }
            let (offline, online) =
                (report.count("memory_blocks_offline"), report.count("memory_blocks_online"));
            assert_eq!(offline + came, online, "{}", what(&spec));
            assert!(report.count("memory_blocks_offline") > 0, "{}", what(&spec));
            assert!(report.count("cpus_offline") > 0 || spec.machine.cpus == 1, "{}", what(&spec));
            assert!(
                report.count("pcp_global_drain") > 0 && report.count("pcp_refill") > 0,
                "{}",
                what(&spec)
            );
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
}
