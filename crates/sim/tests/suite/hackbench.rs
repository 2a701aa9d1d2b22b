//! `hackbench-oom` comes to an end whatever is killed, gives back all it took (a run that does not fails), and does the
//! same on every host; `page-alloc` likewise.

use crate::common;

use common::{Figures, machine, policy, run, spec};
use quietmm_sim::{Op, Report, RunSpec, Workload};

/// So many MiB on a machine; `hackbench-oom` makes a group for each 10.
fn with_memory(workload: Workload, name: &str, mib: u64) -> RunSpec {
    let machine = machine(name);
    let scale = (machine.memory / (mib << 20)) as u32;
    RunSpec { machine, scale, ..spec(workload) }
}

/// What is left after the books are closed, as text.
fn bytes(report: &Report) -> String {
    format!("{:?}\n{:?}\n{}", report.metrics, report.latencies, report.host.events)
}

fn no_harm(report: &Report) {
    let harm = ["stale_accesses", "lost_writes", "wrong_contents", "hackbench_forks_failed"];
    assert_eq!(harm.map(|key| report.count(key)), [0; 4], "{:#?}", report.stories);
}

#[test]
fn some_processes_are_ended_and_the_rest_fits_and_completes() {
    for (seed, text) in [(1, "linux"), (2, "vanilla")] {
        let small = with_memory(Workload::HackbenchOom, "vm-8", 128);
        let report = run(&RunSpec { seed, policy: policy(text), ..small });
        no_harm(&report);
        let [killed, completed, messages] =
            ["hackbench_processes_killed", "hackbench_groups_completed", "hackbench_messages"]
                .map(|key| report.count(key));
        // 13 groups of 40.
        assert!((1..=260).contains(&killed), "{killed} of 520 were ended");
        assert!((1..13).contains(&completed), "{completed} of 13 groups completed");
        // 100 rounds of 20 senders to 20 receivers, in groups that completed; others passed some.
        assert!((completed * 40_000..13 * 40_000).contains(&messages), "{messages} in {completed} groups");
        assert!(report.count("out_of_memory") >= killed, "somebody asked for each victim");
        assert!(report.count("pages_reclaimed") > 0, "cached files went first");
        for (op, count) in [
            (Op::AllocStall, "allocstall"),
            (Op::DirectReclaim, "direct_reclaims"),
            (Op::Drain, "pcp_global_drain"),
        ] {
            assert_eq!(report.latencies.over_all(op).count, report.count(count), "the time of each is known");
        }
    }
}

#[test]
fn every_cpu_takes_part_and_nothing_hangs_whatever_the_machine_and_the_seed() {
    let cases = [("vm-8", 1, 24), ("uma-8", 2, 24), ("numa-4x12", 16, 48), ("modern-2x64", 96, 96)];
    for (seed, (name, cpus, mib)) in (1..).zip(cases) {
        let mut spec = with_memory(Workload::HackbenchOom, name, mib);
        spec.machine = spec.machine.with_cpus(cpus).expect("so many CPUs");
        spec.scale = (spec.machine.memory / (mib << 20)) as u32;
        let report = run(&RunSpec { seed, ..spec });
        no_harm(&report);
        assert!(report.count("hackbench_processes_killed") > 0, "{name}: memory was too small");
        assert!(report.count("hackbench_messages") > 0, "{name}: some processes were left");
    }
}

#[test]
fn what_page_alloc_takes_it_frees_and_every_operation_is_timed() {
    for (seed, name) in (1..).zip(["modern-2x64", "numa-4x12", "vm-8", "uma-8"]) {
        let report = run(&RunSpec { seed, ..with_memory(Workload::PageAlloc, name, 256) });
        let harm = ["stale_accesses", "lost_writes", "wrong_contents", "page_alloc_blocks_refused"];
        assert_eq!(harm.map(|key| report.count(key)), [0; 4], "{name}: {:#?}", report.stories);
        for pages in [1, 512] {
            let count = |op| {
                report.latencies.by_pages(op).find(|(of, _)| *of == pages).map_or(0, |(_, one)| one.count)
            };
            assert!(count(Op::Pair) > 0 && count(Op::RandomFree) > 0, "{name}, {pages} pages");
            assert_eq!(count(Op::BulkAlloc), count(Op::BulkFree) + count(Op::HandedFree));
            assert_eq!(count(Op::RandomAlloc), count(Op::RandomFree));
        }
    }
}

#[test]
fn the_same_run_gives_the_same_bytes_twice() {
    for spec in
        [with_memory(Workload::HackbenchOom, "vm-8", 40), with_memory(Workload::PageAlloc, "numa-4x12", 64)]
    {
        assert_eq!(bytes(&run(&spec)), bytes(&run(&spec)));
    }
}
