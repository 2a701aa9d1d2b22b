//! Who interrupts whom, against the core's own counters.

use crate::common;

use common::{Figures, machine, run, shared, spec};
use quietmm_sim::{Report, RunSpec, Traffic, Workload};

/// All but the traffic and the host's own.
fn bytes(report: &Report) -> String {
    let Report { metrics, latencies, host, stories, notes, profile, .. } = report;
    format!("{metrics:?}\n{latencies:?}\n{stories:?}\n{notes:?}\n{profile:?}\n{}", host.events)
}

fn traffic(report: &Report) -> &Traffic {
    report.traffic.as_ref().expect("it was asked for")
}

#[test]
fn traffic_changes_nothing_and_adds_up_to_what_the_core_counts() {
    let mut storm = RunSpec { scale: 512, ..spec(Workload::UnmapStorm) };
    storm.machine = machine("uma-8");
    let mut calm = RunSpec { scale: 2048, ..spec(Workload::NoPressure) };
    calm.machine = machine("uma-8");
    let reader = RunSpec { scale: 2048, ..spec(Workload::Reader) };
    for spec in [reader, storm, calm] {
        let name = spec.workload.name();
        let (without, with) = (shared(&spec), run(&RunSpec { traffic: true, ..spec.clone() }));
        assert!(without.traffic.is_none());
        assert_eq!(bytes(&without), bytes(&with), "{name}");
        let traffic = traffic(&with);
        let (sent, received) = (with.count("ipis_sent"), with.count("ipis_received"));
        assert_eq!(traffic.sent.iter().sum::<u64>(), sent, "{name}");
        assert_eq!(traffic.received.iter().sum::<u64>(), received, "{name}");
        assert_eq!(traffic.pairs.iter().sum::<u64>(), sent, "{name}");
        let last = traffic.moments.last().expect("a moment");
        let reclaimed = with.count("pgsteal_kswapd") + with.count("pgsteal_direct");
        assert_eq!((last.reclaimed, last.ipis), (reclaimed, received), "{name}");
        let used = traffic.moments.iter().map(|moment| moment.used).max().expect("a moment");
        assert!((1..=traffic.frames).contains(&used), "{name}: {used}");
        // Rows are senders: a row's sum is what its CPUs sent, whatever they received.
        for (row, cpus) in traffic.sent.chunks(traffic.group as usize).enumerate() {
            let from = row * traffic.groups as usize;
            let row: u64 = traffic.pairs[from..from + traffic.groups as usize].iter().sum();
            assert_eq!(row, cpus.iter().sum::<u64>(), "{name}");
        }
    }
}

#[test]
fn who_only_computes_receives_and_sends_little() {
    // The control of rows and columns: bystanders, the even CPUs, neither unmap nor reclaim, but for a `kswapd` that comes by.
    let report = run(&RunSpec { scale: 2048, traffic: true, ..spec(Workload::Bystander) });
    let traffic = traffic(&report);
    let sum = |of: &[u64], from| of.iter().skip(from).step_by(2).sum::<u64>();
    let [(sent, received), (by_readers, to_readers)] =
        [0, 1].map(|from| (sum(&traffic.sent, from), sum(&traffic.received, from)));
    let told = format!("{:?} {:?}", traffic.sent, traffic.received);
    assert!(4 * sent < by_readers && 2 * received > to_readers && received > sent, "{told}");
}
