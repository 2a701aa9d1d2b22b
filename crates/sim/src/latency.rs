//! Latencies that a workload measured, and those of direct reclaim: a histogram for each operation and number of pages, and
//! the curve of one-page shootdowns. Three digits are kept, and the exact mean and maximum.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use quietmm_workloads::{Op, Shootdown};

use crate::metrics::Metric;

/// Digits of a latency that a histogram keeps.
const DIGITS: u8 = 3;

/// All that a run measured.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    ops: BTreeMap<(Op, u64), Samples>,
    /// By CPUs and sockets.
    shootdowns: BTreeMap<(u32, u32), (Samples, u64)>,
}

/// Latencies of one kind, in nanoseconds.
#[derive(Clone, Debug)]
struct Samples {
    histogram: Histogram<u64>,
    sum: u64,
    max: u64,
}

/// What there is to say of one kind of operation; in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Latency {
    /// Operations.
    pub count: u64,
    /// The mean.
    pub mean: f64,
    /// Half of them took no longer; 90, 99 and 99.9 percent of them.
    pub p50: u64,
    /// See `p50`.
    pub p90: u64,
    /// See `p50`.
    pub p99: u64,
    /// See `p50`.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

/// A point of the curve: one page unmapped by one CPU, that so many had cached.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shot {
    /// CPUs that had it cached, with the one that unmapped it.
    pub cpus: u32,
    /// The sockets that these are on.
    pub sockets: u32,
    /// How long the system call took.
    pub latency: Latency,
    /// Interrupts a shootdown.
    pub ipis: f64,
}

impl Samples {
    fn new() -> Samples {
        // Never fails: the digits are valid.
        let histogram = Histogram::new(DIGITS).expect("a valid number of digits");
        Samples { histogram, sum: 0, max: 0 }
    }

    fn add(&mut self, ns: u64) {
        // Never fails: the histogram grows as it must.
        self.histogram.record(ns).expect("a histogram that grows");
        self.sum += ns;
        self.max = self.max.max(ns);
    }

    fn merge(&mut self, other: &Samples) {
        // As in `add`.
        self.histogram.add(&other.histogram).expect("a histogram that grows");
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    fn summary(&self) -> Latency {
        // A quantile is the end of its bucket, which may lie above the longest.
        let at = |quantile| self.histogram.value_at_quantile(quantile).min(self.max);
        let count = self.histogram.len();
        Latency {
            count,
            mean: self.sum as f64 / count.max(1) as f64,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: self.max,
        }
    }
}

impl Latencies {
    /// One operation.
    pub(crate) fn add(&mut self, op: Op, pages: u64, ns: u64) {
        self.ops.entry((op, pages)).or_insert_with(Samples::new).add(ns);
    }

    /// One shootdown.
    pub(crate) fn shot(&mut self, &Shootdown { cpus, sockets, ipis, ns }: &Shootdown) {
        let (samples, sent) = self.shootdowns.entry((cpus, sockets)).or_insert_with(|| (Samples::new(), 0));
        samples.add(ns);
        *sent += ipis;
    }

    /// Whether nothing was measured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty() && self.shootdowns.is_empty()
    }

    /// The operations that were measured.
    #[must_use]
    pub fn ops(&self) -> Vec<Op> {
        let mut ops: Vec<Op> = self.ops.keys().map(|(op, _)| *op).collect();
        ops.dedup();
        ops
    }

    /// Of one operation, by pages; nothing for what is not done to a number of pages.
    pub fn by_pages(&self, op: Op) -> impl Iterator<Item = (u64, Latency)> + '_ {
        self.of(op).filter(|(pages, _)| *pages > 0).map(|(pages, samples)| (pages, samples.summary()))
    }

    /// Of one operation, whatever the pages.
    #[must_use]
    pub fn over_all(&self, op: Op) -> Latency {
        let mut all = Samples::new();
        self.of(op).for_each(|(_, samples)| all.merge(samples));
        all.summary()
    }

    fn of(&self, op: Op) -> impl Iterator<Item = (u64, &Samples)> + '_ {
        self.ops
            .iter()
            .filter(move |((other, _), _)| *other == op)
            .map(|((_, pages), samples)| (*pages, samples))
    }

    /// The curve of one-page shootdowns, by CPUs.
    pub fn curve(&self) -> impl Iterator<Item = Shot> + '_ {
        self.shootdowns.iter().map(|(&(cpus, sockets), (samples, sent))| {
            let latency = samples.summary();
            Shot { cpus, sockets, ipis: *sent as f64 / latency.count.max(1) as f64, latency }
        })
    }

    /// The figures of a table: those that policies are compared by.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let mut list = Vec::new();
        let mut us = |key, label, value, about| list.push(Metric::real(key, label, "us", value, 2, about));
        let small = self.curve().find(|shot| (shot.cpus, shot.sockets) == (16, 2));
        if let Some(shot) = small {
            let about = "mean time to unmap one page that 16 CPUs on 2 sockets have cached, 8 on each";
            us(
                "shootdown_16_cpus_2_sockets_us",
                "shootdown 16 CPUs/2 sockets",
                shot.latency.mean / 1e3,
                about,
            );
        }
        if let Some(shot) = self.curve().last() {
            let about = "mean time to unmap one page that all CPUs have cached";
            us("shootdown_all_cpus_us", "shootdown all CPUs", shot.latency.mean / 1e3, about);
        }
        if self.ops().contains(&Op::DirectReclaim) {
            let one = self.over_all(Op::DirectReclaim);
            let about =
                "how long a task took to reclaim once for itself, to have lists drained, and to look again";
            us("direct_reclaim_mean_us", "direct reclaim, mean", one.mean / 1e3, about);
            us("direct_reclaim_p50_us", "direct reclaim, p50", one.p50 as f64 / 1e3, about);
            us("direct_reclaim_p99_us", "direct reclaim, p99", one.p99 as f64 / 1e3, about);
        }
        if self.ops().contains(&Op::AllocStall) {
            let all = self.over_all(Op::AllocStall);
            let about = "how long a task waited for frames in all, until it had them or was refused";
            us("alloc_stall_p50_us", "allocation stall, p50", all.p50 as f64 / 1e3, about);
            us("alloc_stall_p99_us", "allocation stall, p99", all.p99 as f64 / 1e3, about);
        }
        let mut ns = |key, label, value, about| list.push(Metric::real(key, label, "ns", value, 0, about));
        if self.ops().contains(&Op::Fork) {
            let (fork, about) = (self.over_all(Op::Fork), "a process forks while its other threads write");
            ns("fork_mean_ns", "fork, mean", fork.mean, about);
            ns("fork_p50_ns", "fork, p50", fork.p50 as f64, about);
            ns("fork_p99_ns", "fork, p99", fork.p99 as f64, about);
            let (copy, about) = (self.over_all(Op::Copy), "a child's first write to a page");
            ns("copy_mean_ns", "copy, mean", copy.mean, about);
            ns("copy_p99_ns", "copy, p99", copy.p99 as f64, about);
            let (exit, about) = (self.over_all(Op::Exit), "a child's space ends");
            ns("exit_mean_ns", "exit, mean", exit.mean, about);
        }
        if !self.ops().contains(&Op::Unmap) {
            return list;
        }
        if let Some((_, one)) = self.by_pages(Op::Unmap).find(|(pages, _)| *pages == 1) {
            let about = "a thread unmaps one page while all others unmap too";
            ns("unmap_1_mean_ns", "unmap 1 page, mean", one.mean, about);
            ns("unmap_1_p50_ns", "unmap 1 page, p50", one.p50 as f64, about);
            ns("unmap_1_p99_ns", "unmap 1 page, p99", one.p99 as f64, about);
            ns("unmap_1_max_ns", "unmap 1 page, max", one.max as f64, about);
        }
        let (all, about) = (self.over_all(Op::Unmap), "a thread unmaps a range while all others unmap too");
        ns("unmap_mean_ns", "unmap, mean", all.mean, about);
        ns("unmap_p50_ns", "unmap, p50", all.p50 as f64, about);
        ns("unmap_p99_ns", "unmap, p99", all.p99 as f64, about);
        ns("unmap_max_ns", "unmap, max", all.max as f64, about);
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_samples_and_mean_and_maximum_are_exact() {
        let mut latencies = Latencies::default();
        (1..=1000).for_each(|ns| latencies.add(Op::Unmap, 1, ns * 1000 + 7));
        let one = latencies.over_all(Op::Unmap);
        assert_eq!((one.count, one.mean, one.max), (1000, 500_507.0, 1_000_007));
        for (quantile, exact) in
            [(one.p50, 500_007), (one.p90, 900_007), (one.p99, 990_007), (one.p999, 999_007)]
        {
            let error = quantile as f64 / f64::from(exact) - 1.0;
            assert!((0.0..=0.001).contains(&error), "{quantile} for {exact}");
        }
    }

    #[test]
    fn operations_and_numbers_of_pages_are_kept_apart() {
        let mut latencies = Latencies::default();
        latencies.add(Op::Unmap, 1, 100);
        latencies.add(Op::Unmap, 64, 300);
        latencies.add(Op::Map, 64, 5);
        assert_eq!(latencies.ops(), [Op::Map, Op::Unmap]);
        let by_pages: Vec<_> = latencies.by_pages(Op::Unmap).map(|(pages, one)| (pages, one.max)).collect();
        assert_eq!(by_pages, [(1, 100), (64, 300)]);
        let all = latencies.over_all(Op::Unmap);
        assert_eq!((all.count, all.mean, all.p50, all.max), (2, 200.0, 100, 300));
    }

    #[test]
    fn what_is_not_done_to_a_number_of_pages_has_no_line_for_one() {
        let mut latencies = Latencies::default();
        latencies.add(Op::DirectReclaim, 0, 3000);
        assert_eq!(latencies.by_pages(Op::DirectReclaim).count(), 0);
        assert_eq!(latencies.over_all(Op::DirectReclaim).p99, 3000);
        let keys: Vec<_> = latencies.metrics().iter().map(|metric| metric.key).collect();
        assert_eq!(keys, ["direct_reclaim_mean_us", "direct_reclaim_p50_us", "direct_reclaim_p99_us"]);
    }

    #[test]
    fn the_curve_goes_by_cpus_and_a_figure_that_was_not_measured_is_left_out() {
        let mut latencies = Latencies::default();
        let shot = |cpus, ns| Shootdown { cpus, sockets: 2, ipis: u64::from(cpus) - 1, ns };
        latencies.shot(&shot(30, 9000));
        latencies.shot(&shot(16, 5000));
        latencies.shot(&shot(16, 7000));
        let curve: Vec<_> = latencies.curve().map(|shot| (shot.cpus, shot.latency.mean, shot.ipis)).collect();
        assert_eq!(curve, [(16, 6000.0, 15.0), (30, 9000.0, 29.0)]);
        let keys: Vec<_> = latencies.metrics().iter().map(|metric| metric.key).collect();
        assert_eq!(keys, ["shootdown_16_cpus_2_sockets_us", "shootdown_all_cpus_us"]);
    }
}
