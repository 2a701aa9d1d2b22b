//! The figures of a boot, under the names that the simulation's have.

use quietmm_emulator::Accel;
use quietmm_sim::figures as f;
use quietmm_sim::{Counter, Figure, Metric};
use quietmm_workloads::Tally;

use super::lines::Printed;

/// Counters of the image's own.
static IMAGE: [&Figure; 10] = [
    &f::WRONG_CONTENTS,
    &f::TICKS,
    &f::KICKS,
    &f::ALARMS,
    &f::USER_FAULTS,
    &f::DISK_READS,
    &f::DISK_WRITES,
    &f::PAGES_CHECKED,
    &f::PROGRESS,
    &f::COUNTED,
];

/// All figures; none if the machine did not get so far.
pub fn figures(printed: &Printed, accel: Accel) -> Vec<Metric> {
    if printed.counters.is_empty() {
        return Vec::new();
    }
    let counter = |counter: Counter| printed.counter(counter.name());
    let mut list = times(printed, accel);
    list.extend(f::traffic(|one| counter(one).unwrap_or(0)));
    list.extend(IMAGE.iter().filter_map(|figure| Some(figure.int(printed.counter(figure.key)?))));
    let tallies = Tally::ALL.iter().filter_map(|what| Some((what, printed.counter(what.name())?)));
    list.extend(tallies.map(|(what, count)| f::of_tally(*what).int(count)));
    f::add_counters(&mut list, counter);
    list
}

/// What can be said of time: where instructions are the clock, those; elsewhere seconds, judged only on real processors.
fn times(printed: &Printed, accel: Accel) -> Vec<Metric> {
    let Some(ns) = printed.counter("elapsed_ns") else { return Vec::new() };
    match accel {
        Accel::Kvm => vec![f::ELAPSED.real(ns as f64 / 1e9)],
        Accel::Threads => vec![f::ELAPSED_UNJUDGED.real(ns as f64 / 1e9)],
        Accel::Instructions => {
            let pages = printed.counter("progress").filter(|&pages| pages > 0);
            let each = pages.map(|pages| f::INSTRUCTIONS_PER_PAGE.real(ns as f64 / pages as f64));
            [f::INSTRUCTIONS.int(ns)].into_iter().chain(each).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lines::read;
    use super::*;

    const TEXT: &str = r#"{"counters":{"ipis_sent":30,"ipis_received":40,"nr_tlb_remote_flush_received":38,
        "pgsteal_kswapd":300,"pgsteal_direct":100,"progress":50,"hot_lost":2,"wrong_contents":0,"elapsed_ns":5000,"other":1}}"#;

    fn of(accel: Accel, key: &str) -> Option<f64> {
        let list = figures(&read(&TEXT.replace('\n', "")), accel);
        list.iter().find(|metric| metric.key == key).map(|metric| metric.value.number())
    }

    #[test]
    fn the_simulations_names_are_used() {
        assert_eq!(of(Accel::Threads, "pages_reclaimed"), Some(400.0));
        assert_eq!(of(Accel::Threads, "ipis_per_reclaimed_page"), Some(0.1));
        assert_eq!(of(Accel::Threads, "flushes_received_per_reclaimed_page"), Some(0.095));
        assert_eq!(of(Accel::Threads, "scan_hot_lost"), Some(2.0));
        assert_eq!(of(Accel::Threads, "other"), None);
    }

    #[test]
    fn time_is_instructions_where_these_are_the_clock_and_unjudged_where_threads_race() {
        assert_eq!(of(Accel::Instructions, "instructions_per_page"), Some(100.0));
        assert_eq!(of(Accel::Instructions, "elapsed_s"), None);
        assert_eq!(of(Accel::Threads, "elapsed_s"), Some(5e-6));
        let list = figures(&read(&TEXT.replace('\n', "")), Accel::Threads);
        assert_eq!(list[0].better, quietmm_sim::Better::Neither);
    }

    #[test]
    fn a_machine_that_printed_no_counters_has_no_figures() {
        assert!(figures(&read("{\"end\":\"well\"}"), Accel::Threads).is_empty());
    }
}
