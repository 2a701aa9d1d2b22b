//! Latencies that a workload measured, and those of direct reclaim: a histogram for each operation and number of pages, and
//! the curve of one-page shootdowns. Three digits are kept, and the exact mean and maximum.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use quietmm_workloads::{Op, Pace, Shootdown};

use crate::figures::{self, Figure, Metric};

/// Digits of a latency that a histogram keeps.
const DIGITS: u8 = 3;

/// All that a run measured.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    ops: BTreeMap<(Op, u64), Samples>,
    /// By CPUs and sockets.
    shootdowns: BTreeMap<(u32, u32), (Samples, u64)>,
    /// Operations in 1000 s, all CPUs together, by parts of other work.
    paces: BTreeMap<u32, u64>,
}

/// Latencies of one kind, in nanoseconds.
#[derive(Clone, Debug)]
struct Samples {
    histogram: Histogram<u64>,
    sum: u64,
    max: u64,
}

/// What there is to say of one kind of operation; in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
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

/// So many operations took as long: at least `from`, and less than `to`, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bin {
    /// At least so long.
    pub from: u64,
    /// Less than that.
    pub to: u64,
    /// Operations.
    pub count: u64,
}

/// Where bins begin, in every power of ten: each about a quarter longer than the one before (the series R10 of ISO 3).
const BINS: [u64; 10] = [100, 125, 160, 200, 250, 315, 400, 500, 630, 800];

/// The `nth` place where a bin begins.
fn begins(nth: usize) -> u64 {
    let power = 10u64.saturating_pow((nth / BINS.len()) as u32);
    BINS[nth % BINS.len()].saturating_mul(power)
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

    /// One CPU's pace.
    pub(crate) fn paced(&mut self, &Pace { parts, operations, ns }: &Pace) {
        *self.paces.entry(parts).or_default() += operations * 1_000_000_000_000 / ns.max(1);
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

    /// How the times of one operation are spread, whatever the pages: bins side by side, from the shortest to the longest. What took
    /// less than 100 ns is in the first.
    #[must_use]
    pub fn bins(&self, op: Op) -> Vec<Bin> {
        let mut all: BTreeMap<u64, u64> = BTreeMap::new();
        for (_, samples) in self.of(op) {
            for one in samples.histogram.iter_recorded() {
                let ns = one.value_iterated_to().min(samples.max);
                *all.entry(ns).or_default() += one.count_at_value();
            }
        }
        let mut bins: Vec<Bin> = Vec::new();
        let mut nth = 0;
        for (ns, count) in all {
            while ns >= begins(nth + 1) {
                nth += 1;
                if !bins.is_empty() {
                    bins.push(Bin { from: begins(nth), to: begins(nth + 1), count: 0 });
                }
            }
            match bins.last_mut() {
                Some(bin) => bin.count += count,
                None => bins.push(Bin { from: begins(nth), to: begins(nth + 1), count }),
            }
        }
        bins
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
        use figures as f;
        let mut list = Vec::new();
        let small = self.curve().find(|shot| (shot.cpus, shot.sockets) == (16, 2));
        list.extend(small.map(|shot| f::SHOOTDOWN_16.real(shot.latency.mean / 1e3)));
        list.extend(self.curve().last().map(|shot| f::SHOOTDOWN_ALL.real(shot.latency.mean / 1e3)));
        if let Some(one) = self.of_all(Op::DirectReclaim) {
            list.push(f::DIRECT_RECLAIM_MEAN.real(one.mean / 1e3));
            list.push(f::DIRECT_RECLAIM_P50.real(one.p50 as f64 / 1e3));
            list.push(f::DIRECT_RECLAIM_P99.real(one.p99 as f64 / 1e3));
        }
        if let Some(drain) = self.of_all(Op::Drain) {
            list.push(f::DRAIN_P50.real(drain.p50 as f64 / 1e3));
            list.push(f::DRAIN_P99.real(drain.p99 as f64 / 1e3));
        }
        if let Some(all) = self.of_all(Op::AllocStall) {
            list.push(f::ALLOC_STALL_P50.real(all.p50 as f64 / 1e3));
            list.push(f::ALLOC_STALL_P99.real(all.p99 as f64 / 1e3));
        }
        if let Some(fork) = self.of_all(Op::Fork) {
            list.push(f::FORK_MEAN.real(fork.mean));
            list.push(f::FORK_P50.real(fork.p50 as f64));
            list.push(f::FORK_P99.real(fork.p99 as f64));
            let copy = self.over_all(Op::Copy);
            list.push(f::COPY_MEAN.real(copy.mean));
            list.push(f::COPY_P99.real(copy.p99 as f64));
            list.push(f::EXIT_MEAN.real(self.over_all(Op::Exit).mean));
        }
        list.extend(self.paces.iter().map(|(&parts, &pace)| {
            let figure = match parts {
                0 => &f::OPS_0,
                1 => &f::OPS_1,
                4 => &f::OPS_4,
                28 => &f::OPS_28,
                _ => &f::OPS_100,
            };
            figure.real(pace as f64 / 1e3)
        }));
        let means = [
            (Op::MapCycle, &f::MAP_CYCLE),
            (Op::RamCycle, &f::RAM_CYCLE),
            (Op::Vunmap, &f::VUNMAP_MEAN),
            (Op::UnmapAliases, &f::UNMAP_ALIASES_MEAN),
            (Op::MixMap, &f::MIX_MAP_MEAN),
            (Op::MixUnmap, &f::MIX_UNMAP_MEAN),
        ];
        list.extend(means.iter().filter_map(|(op, figure)| Some(figure.real(self.of_all(*op)?.mean))));
        let mut whole = |[mean, p50, p99, max]: [&'static Figure; 4], one: Latency| {
            list.push(mean.real(one.mean));
            list.push(p50.real(one.p50 as f64));
            list.push(p99.real(one.p99 as f64));
            list.push(max.real(one.max as f64));
        };
        if let Some((_, one)) = self.by_pages(Op::Unmap).find(|(pages, _)| *pages == 1) {
            whole([&f::UNMAP_1_MEAN, &f::UNMAP_1_P50, &f::UNMAP_1_P99, &f::UNMAP_1_MAX], one);
        }
        if let Some(all) = self.of_all(Op::Unmap) {
            whole([&f::UNMAP_MEAN, &f::UNMAP_P50, &f::UNMAP_P99, &f::UNMAP_MAX], all);
        }
        list
    }

    /// Of one operation, whatever the pages, if it was measured.
    fn of_all(&self, op: Op) -> Option<Latency> {
        self.ops().contains(&op).then(|| self.over_all(op))
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
    fn each_operation_is_in_the_bin_of_its_time() {
        let mut latencies = Latencies::default();
        let times = [40, 101, 110, 126, 1_000, 1_249, 1_250, 9_000_000, 9_000_000];
        times.iter().for_each(|ns| latencies.add(Op::Unmap, 1, *ns));
        let bins = latencies.bins(Op::Unmap);
        // The histogram keeps three digits: what is told is the end of what it cannot tell apart.
        let inside = |bin: &Bin| {
            let first = bin.from == 100;
            times.iter().filter(|ns| (first || **ns >= bin.from) && **ns < bin.to).count() as u64
        };
        for bin in &bins {
            assert_eq!(bin.count, inside(bin), "{bin:?}");
        }
        assert!(bins.windows(2).all(|two| two[0].to == two[1].from), "side by side: {bins:?}");
        assert_eq!(bins.iter().map(|bin| bin.count).sum::<u64>(), times.len() as u64);
        assert_eq!((bins[0].from, bins[bins.len() - 1].to), (100, 10_000_000));
        assert_eq!(latencies.bins(Op::Map), []);
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
