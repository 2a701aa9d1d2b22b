//! `vmap-touch`: threads map scattered pages in the kernel for a moment. On every machine nothing stale is used and the books
//! add up; on the machine of the published table the old way costs what was published; a flush that is left out is seen.

use crate::common;

use std::sync::Arc;

use common::{Figures, machine, policy, run, shared, spec, what};
use quietmm_sim::machine::Machine;
use quietmm_sim::{Report, Rule, RunSpec, Workload};

/// ns per map, touch and unmap by 1, 2, 4 and 8 threads before the rewrite (Linux 2.6.28, commit db64fe0225), and after.
const PUBLISHED: [(u32, f64, f64); 4] =
    [(1, 14700.0, 2900.0), (2, 33600.0, 3000.0), (4, 49500.0, 2800.0), (8, 70631.0, 2900.0)];

const EAGER: &str = "linux+vmap=eager";
const SWEEP: &str = "linux+vmap=sweep";

fn touch(text: &str, threads: u32) -> RunSpec {
    RunSpec { policy: policy(text), threads: Some(threads), ..spec(Workload::VmapTouch) }
}

/// On another machine, with 64 MiB.
fn elsewhere(name: &str, cpus: u32, text: &str, threads: u32) -> RunSpec {
    let machine = machine(name).with_cpus(cpus).expect("so many CPUs");
    let scale = (machine.memory / (64 << 20)) as u32;
    RunSpec { machine, scale, ..touch(text, threads) }
}

/// No harm, and nobody used an address after it was unmapped: the books have added up, or there would be no report.
fn is_sound(spec: &RunSpec) -> Arc<Report> {
    let report = shared(spec);
    let harm = ["stale_accesses", "lost_writes", "wrong_contents"].map(|key| report.count(key));
    assert_eq!(harm, [0; 3], "{}: {:#?}", what(spec), report.stories);
    assert_eq!(report.count("window_accesses"), 0, "{}", what(spec));
    assert!(report.figure("ns_per_op") > 0.0 && report.figure("ns_per_op_ram") > 0.0, "{}", what(spec));
    report
}

/// Policies and numbers of threads.
const WAYS: [(&str, u32); 4] = [("vanilla", 3), (SWEEP, 8), ("linux", 8), ("linux", 1)];

#[test]
#[ignore = "long: make soak"]
fn on_every_machine_each_way_uses_nothing_stale() {
    for name in Machine::builtin_names() {
        WAYS.iter().for_each(|&(text, threads)| _ = is_sound(&elsewhere(name, 8, text, threads)));
    }
}

#[test]
fn on_every_machine_and_with_any_number_of_threads_nothing_stale_is_used() {
    // Each machine with one way, each way on several machines.
    for (name, (text, threads)) in Machine::builtin_names().zip(WAYS.into_iter().cycle()) {
        is_sound(&elsewhere(name, 8, text, threads));
    }
    for (cpus, text) in [(1, "linux"), (1, EAGER), (3, "linux"), (48, EAGER), (1, SWEEP), (48, SWEEP)] {
        is_sound(&elsewhere("numa-4x12", cpus, text, cpus));
    }
}

/// 48 CPUs unmap faster than one purges: blocks are given back, and made anew elsewhere, in the middle of an unmap. Once a
/// block was pushed on the list of the shard where it had been, and lost there; and the task that purges, which found more
/// to do each time, kept its CPU for ever.
#[test]
fn where_more_is_unmapped_than_one_task_purges_all_come_to_an_end() {
    for shards in ["6", "48"] {
        let mut spec = touch("linux", 48);
        spec.machine = machine("numa-4x12");
        spec.scale = 256;
        spec.machine.set("vmap_shards", shards).expect("a constant");
        spec.machine.set("vmap_lazy_kib", "16384").expect("a constant");
        let report = is_sound(&spec);
        assert!(report.count("vmap_purges") > 64, "more than were asked for");
    }
}

#[test]
fn buffers_of_a_directory_are_mapped_more_often_by_the_new_way_the_less_else_there_is_to_do() {
    let rates = |text| {
        let mut spec = RunSpec { policy: policy(text), scale: 512, ..spec(Workload::DirBuffers) };
        spec.machine = spec.machine.with_cpus(32).expect("half of its CPUs");
        let report = run(&spec);
        assert_eq!((report.count("stale_accesses"), report.count("window_accesses")), (0, 0), "{text}");
        [0, 28, 100].map(|parts| report.figure(&format!("ops_per_s_{parts}")))
    };
    let (old, new) = (rates(EAGER), rates("linux"));
    let gain = [0, 1, 2].map(|at| new[at] / old[at]);
    assert!(gain[0] > gain[1] && gain[1] > gain[2] && gain[2] > 1.0, "{gain:?}");
}

#[test]
fn the_old_way_costs_what_was_published_and_the_new_one_less() {
    let means = |text, threads| {
        let report = is_sound(&touch(text, threads));
        ["ns_per_op", "ns_per_op_ram"].map(|key| report.figure(key))
    };
    let mut before = 0.0;
    for (threads, old, new) in PUBLISHED {
        let [eager, eager_ram] = means(EAGER, threads);
        // The first is fitted.
        let most = if threads == 1 { 0.02 } else { 0.35 };
        assert!((eager / old - 1.0).abs() <= most, "{threads} threads: {eager} ns, published {old}");
        assert!((eager_ram / eager - 1.0).abs() < 0.05, "there were no blocks then: {eager_ram}, {eager}");
        assert!(eager > before, "{threads} threads: {eager} ns after {before}");
        before = eager;
        let [lazy, lazy_ram] = means("linux", threads);
        assert!(lazy_ram < new && lazy < eager / 3.0, "{threads} threads: {lazy} ns, {lazy_ram} by map_ram");
    }
}

#[test]
fn each_old_unmap_interrupts_every_other_cpu_and_each_purge_does() {
    let (old, new) = (is_sound(&touch(EAGER, 1)), is_sound(&touch("linux", 1)));
    let cycles = 2 * (32768 + 4096) + 64;
    assert_eq!(old.count("ipis_sent"), 7 * cycles);
    assert_eq!(new.count("ipis_sent"), 7 * new.count("vmap_purges"));
    let purges = new.count("vmap_purges");
    assert!((64..100).contains(&purges), "64 are asked for, and few others are needed: {purges}");
}

#[test]
fn unmap_aliases_costs_little_more_than_one_old_unmap() {
    let (old, new) = (shared(&touch(EAGER, 1)), shared(&touch("linux", 1)));
    let (one, all) = (old.figure("vunmap_mean_ns"), new.figure("unmap_aliases_mean_ns"));
    assert!(all <= 1.5 * one, "{all} ns, an old unmap {one}");
}

#[test]
fn where_cpus_sweep_nobody_is_interrupted_and_threads_do_not_meet() {
    let spec = |text, threads: u32| {
        let machine = Machine::builtin("numa-4x12").expect("it comes along");
        RunSpec { machine, ..touch(text, threads) }
    };
    let [one, many] = [1, 48].map(|threads| is_sound(&spec(SWEEP, threads)));
    for report in [&one, &many] {
        assert_eq!((report.count("ipis_sent"), report.count("vmap_sweep_forced")), (0, 0));
        assert!(report.count("vmap_sweeps") > 20, "{} sweeps", report.count("vmap_sweeps"));
    }
    for key in ["ns_per_op", "ns_per_op_ram"] {
        let times = many.figure(key) / one.figure(key);
        assert!(times < 2.0, "{key}: {times} times as long with 48 threads");
    }
}

#[test]
fn with_a_sweep_that_counts_nobody_old_translations_are_used() {
    for rule in [Rule::KernelSweepCountsAll, Rule::FlushBeforeKernelSwept] {
        let mut spec = RunSpec { broken: Some(rule), ..touch(SWEEP, 4) };
        spec.machine.set("vmap_lazy_kib", "512").expect("a constant");
        let report = run(&spec);
        assert!(report.count("stale_accesses") > 100, "{rule}: {}", report.count("stale_accesses"));
        spec.broken = None;
        is_sound(&spec);
    }
}

#[test]
fn without_the_flush_before_reuse_old_translations_are_used() {
    for text in [EAGER, "linux"] {
        let mut spec = RunSpec { broken: Some(Rule::FlushBeforeReuse), ..touch(text, 4) };
        // A purge often: what is mapped again is still cached then.
        spec.machine.set("vmap_lazy_kib", "512").expect("a constant");
        let report = run(&spec);
        assert!(report.count("stale_accesses") > 1000, "{text}: {}", report.count("stale_accesses"));
        let story = report.stories[0].to_string();
        for part in ["wrote to 0xffffc9", "though the address leads to", "flush-before-reuse", "INV-3 rests"]
        {
            assert!(story.contains(part), "{text}: {part} is not in {story}");
        }
        spec.broken = None;
        is_sound(&spec);
    }
}
