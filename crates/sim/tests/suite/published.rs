//! What was published of batched unmapping on a machine of 4 x 12 CPUs, on the simulated one: who is interrupted
//! how often, and what that gains. At scale 512, where a run takes seconds; the default scale is finer.

use crate::common;

use common::{Figures, policy, run, spec};
use quietmm_sim::{Report, RunSpec, Workload};

/// The spec at scale 512.
fn small(workload: Workload) -> RunSpec {
    RunSpec { scale: 512, ..spec(workload) }
}

/// Runs a spec with each of the two policies, both at once: `per-page`, then `batch`.
fn before_and_after(spec: &RunSpec) -> (Report, Report) {
    let before = RunSpec { policy: policy("linux+unmap=per-page"), ..spec.clone() };
    let after = RunSpec { policy: policy("linux"), ..spec.clone() };
    std::thread::scope(|scope| {
        let before = scope.spawn(move || run(&before));
        let after = run(&after);
        (before.join().expect("a run"), after)
    })
}

/// How much smaller a figure became, in percent.
fn gain((before, after): &(Report, Report), key: &str) -> f64 {
    100.0 * (before.figure(key) - after.figure(key)) / before.figure(key)
}

fn assert_within(what: &str, value: f64, range: std::ops::RangeInclusive<f64>) {
    assert!(range.contains(&value), "{what} is {value}, not in {range:?}");
}

const PER_PAGE: &str = "ipis_per_reclaimed_page";

#[test]
fn a_batch_interrupts_rarely_and_saves_a_fifth_of_the_time() {
    let both = before_and_after(&small(Workload::Reader));
    assert_within("IPIs a page, per-page", both.0.figure(PER_PAGE), 0.95 * 0.85..=0.95 * 1.15);
    assert_within("IPIs a page, batch", both.1.figure(PER_PAGE), 0.05..=0.18);
    assert_within("gain in elapsed time", gain(&both, "elapsed_s"), 21.0..=40.0);
    assert_within("gain in system time", gain(&both, "system_s"), 25.0..=50.0);
    assert_within("gain in user time", gain(&both, "user_s"), -10.0..=10.0);
    for report in [&both.0, &both.1] {
        assert_eq!((report.count("stale_accesses"), report.count("lost_writes")), (0, 0));
        assert!(report.count("pages_reclaimed") > 100_000, "memory was short");
    }
}

/// One `kswapd` for eight CPUs that only read does not keep up; one for each does, and where it runs nobody has to be interrupted.
#[test]
fn with_enough_kswapds_no_reader_reclaims_for_itself() {
    for (name, fewer) in [("linux", 0.25), ("quiet", 0.0)] {
        let few =
            RunSpec { policy: policy(name), machine: common::machine("uma-8"), ..small(Workload::Reader) };
        let mut many = few.clone();
        many.machine.kernel.kswapd = 8;
        let (few, many) = (run(&few), run(&many));
        let direct = |report: &Report| {
            let [direct, kswapd] = ["pgsteal_direct", "pgsteal_kswapd"].map(|key| report.figure(key));
            direct / (direct + kswapd)
        };
        assert!(direct(&few) > 0.5, "{name}: {}", direct(&few));
        assert!(direct(&many) < 0.05, "{name}: {}", direct(&many));
        let ipis = |report: &Report| report.figure("ipis_received");
        assert!(ipis(&many) <= fewer * ipis(&few), "{name}: {} and {}", ipis(&few), ipis(&many));
        assert_eq!((many.count("stale_accesses"), many.count("lost_writes")), (0, 0), "{name}");
    }
}

#[test]
fn without_pressure_no_policy_of_reclaim_makes_a_difference() {
    let both = before_and_after(&small(Workload::NoPressure));
    for key in ["elapsed_s", "system_s", "user_s"] {
        assert_within(key, gain(&both, key), -1.0..=1.0);
    }
    assert_eq!((both.0.count("pages_reclaimed"), both.1.count("pages_reclaimed")), (0, 0));
}

#[test]
fn the_more_pages_a_cpu_gathers_for_the_lists_the_fewer_interrupts_a_batch_costs() {
    // A CPU's pages come to the list `lru_batch` in a row, so a batch of reclaim concerns fewer CPUs.
    let with = |lru_batch: &str| {
        let mut spec = RunSpec { scale: 2048, ..spec(Workload::Reader) };
        spec.machine.set("lru_batch", lru_batch).expect("a constant");
        run(&spec).figure(PER_PAGE)
    };
    let curve = std::thread::scope(|scope| {
        let first = scope.spawn(|| ["1", "7"].map(with));
        let last = ["14", "32"].map(with);
        let [one, seven] = first.join().expect("runs");
        [one, seven, last[0], last[1]]
    });
    assert!(curve.windows(2).all(|pair| pair[1] < pair[0]), "{curve:?}");
    assert!(curve[0] > 2.0 * curve[3], "{curve:?}");
}

#[test]
fn kernel_work_that_is_not_modelled_changes_times_and_hardly_who_is_interrupted() {
    let with = |work: &str| {
        let mut spec = RunSpec { scale: 2048, ..spec(Workload::Reader) };
        spec.machine.set("other_kernel_work", work).expect("a constant");
        before_and_after(&spec)
    };
    let own = spec(Workload::Reader).machine.cost.other_kernel_work;
    let [less, more] = [75, 125].map(|percent| with(&format!("{} ps", own * percent / 100)));
    for (less, more) in [(&less.0, &more.0), (&less.1, &more.1)] {
        assert_within("IPIs a page", more.figure(PER_PAGE) / less.figure(PER_PAGE), 0.9..=1.1);
        assert!(more.figure("elapsed_s") > less.figure("elapsed_s"), "time follows the constant");
    }
}
