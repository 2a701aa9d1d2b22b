//! What was published of one-page TLB shootdowns, on the simulated machine: LATR (ASPLOS 2018) has about 6 us with 16
//! cores on 2 sockets and about 80 us with 120 cores on 8. One constant of numa-8x15 is fitted to this pair.

use crate::common;

use common::{Figures, machine, run, spec};
use quietmm_sim::{Op, Report, RunSpec, Shot, Workload};

const PUBLISHED: [((u32, u32), f64); 2] = [((16, 2), 6.0), ((120, 8), 80.0)];

fn curve(report: &Report) -> Vec<Shot> {
    report.latencies.curve().collect()
}

fn us(curve: &[Shot], at: (u32, u32)) -> f64 {
    let shot = curve.iter().find(|shot| (shot.cpus, shot.sockets) == at);
    shot.unwrap_or_else(|| panic!("{at:?} is in the curve")).latency.mean / 1e3
}

#[test]
fn one_page_shootdowns_are_within_30_percent_of_the_published_pair() {
    let report = run(&spec(Workload::UnmapStorm));
    let curve = curve(&report);
    for (at, published) in PUBLISHED {
        let error = us(&curve, at) / published - 1.0;
        assert!(error.abs() <= 0.3, "{at:?}: {} us, published {published}", us(&curve, at));
    }
    assert_eq!(report.figure("shootdown_16_cpus_2_sockets_us"), us(&curve, (16, 2)));
    assert_eq!(report.figure("shootdown_all_cpus_us"), us(&curve, (120, 8)));
    // Each CPU more costs more, and each of them but the one that unmaps is interrupted once.
    for pair in curve.windows(2) {
        assert!(pair[0].latency.mean < pair[1].latency.mean, "{pair:?}");
    }
    for shot in &curve {
        assert_eq!(shot.ipis, f64::from(shot.cpus - 1), "{shot:?}");
    }
    // The storm: every size was unmapped, and no operation is missing.
    let sizes: Vec<u64> = report.latencies.by_pages(Op::Unmap).map(|(pages, _)| pages).collect();
    assert_eq!(sizes, (0..10).map(|log| 1 << log).collect::<Vec<_>>());
    let counts = [Op::Map, Op::Touch, Op::Unmap].map(|op| report.latencies.over_all(op).count);
    assert_eq!(counts, [1200; 3]);
}

#[test]
fn without_the_fitted_constant_distance_costs_too_little() {
    let mut spec = RunSpec { scale: 256, ..spec(Workload::UnmapStorm) };
    spec.machine.set("ipi_send_hop", "0 ns").expect("a constant");
    let curve = curve(&run(&spec));
    assert!(us(&curve, (120, 8)) < 0.7 * 80.0, "{} us", us(&curve, (120, 8)));
}

#[test]
fn small_memory_makes_small_ranges() {
    let machine = machine("uma-8");
    let scale = (machine.memory / (16 << 20)) as u32;
    let report = run(&RunSpec { machine, scale, ..spec(Workload::UnmapStorm) });
    let most = report.latencies.by_pages(Op::Unmap).map(|(pages, _)| pages).max();
    assert_eq!(most, Some(128), "8 threads' ranges take a quarter of 4096 frames");
}

#[test]
fn who_waits_for_a_lock_that_is_soon_free_has_it_sooner_if_the_machine_looks_before_it_sleeps() {
    let waits = |lock_spin: &str| {
        let mut machine = machine("uma-8");
        machine.set("lock_spin", lock_spin).expect("a time");
        // The mean of several runs: who waits longest is chance.
        let one = |seed| {
            let machine = machine.clone();
            run(&RunSpec { machine, seed, scale: 16, ..spec(Workload::UnmapStorm) }).figure("unmap_mean_ns")
        };
        (1..=3).map(one).sum::<f64>()
    };
    let (sleeps, looks, moment) = (waits("0us"), waits("25us"), waits("100ns"));
    assert!(looks < 0.94 * sleeps && moment > 0.96 * sleeps, "{sleeps} {looks} {moment}");
}
