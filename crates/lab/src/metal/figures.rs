//! The figures of a boot, under the names that the simulation's have.

use quietmm_emulator::Accel;
use quietmm_sim::{Better, Counter, Metric, Tally, traffic};

use crate::metal::lines::Printed;

/// Rows that only a machine that boots has, under those that the simulation has too.
pub const OWN: [&str; 6] =
    ["instructions", "instructions_per_page", "pages_checked", "wrong_contents", "disk_reads", "disk_writes"];

/// Counters of the image's own: name, label, and what it means.
const IMAGE: [(&str, &str, &str); 9] = [
    ("ticks", "ticks", "timer ticks, all CPUs"),
    ("kicks", "kicks", "the scheduler's interrupts"),
    ("alarms", "alarms", "timer interrupts for tasks that sleep"),
    ("user_faults", "page faults", "faults of programs, in ring 3"),
    ("disk_reads", "pages read from the disk", "by virtio-blk"),
    ("disk_writes", "pages written to the disk", "by virtio-blk"),
    ("pages_checked", "pages checked", "pages whose content was held against what it should be"),
    ("progress", "pages of work", "pages that the workload has done"),
    ("counted", "accesses counted", "of the hot set, by bystanders"),
];

/// What workloads count, by the names that the image gives it.
const TALLIES: [(&str, Tally); 8] = [
    ("groups_completed", Tally::GroupsCompleted),
    ("processes_killed", Tally::ProcessesKilled),
    ("forks_failed", Tally::ForksFailed),
    ("messages", Tally::Messages),
    ("blocks_refused", Tally::BlocksRefused),
    ("hot_pages", Tally::HotPages),
    ("hot_refaults", Tally::HotRefaults),
    ("hot_lost", Tally::HotLost),
];

/// All figures; none if the machine did not get so far.
pub fn figures(printed: &Printed, accel: Accel) -> Vec<Metric> {
    if printed.counters.is_empty() {
        return Vec::new();
    }
    let count = |counter: Counter| printed.counter(counter.name()).unwrap_or(0);
    let mut list = times(printed, accel);
    list.extend(traffic(count));
    list.extend(printed.counter("wrong_contents").map(|wrong| {
        let about = "reads that were checked and that found something else: 0, or a bug";
        Metric::int("wrong_contents", "wrong contents", Better::Less, wrong, about)
    }));
    list.extend(IMAGE.iter().filter_map(|(key, label, about)| {
        Some(Metric::int(key, label, Better::Neither, printed.counter(key)?, about))
    }));
    list.extend(TALLIES.iter().filter_map(|(name, what)| Some(Metric::tally(*what, printed.counter(name)?))));
    for &counter in Counter::ALL {
        if let Some(value) = printed.counter(counter.name()) {
            // Some stand above under the same name.
            if !list.iter().any(|metric| metric.key == counter.name()) {
                let (name, about) = (counter.name(), counter.about());
                list.push(Metric::int(name, name, Better::Neither, value, about));
            }
        }
    }
    list
}

/// What can be said of time: where instructions are the clock, those; elsewhere seconds, judged only on real processors.
fn times(printed: &Printed, accel: Accel) -> Vec<Metric> {
    let Some(ns) = printed.counter("elapsed_ns") else { return Vec::new() };
    if accel != Accel::Instructions {
        let about = "from the first task's start to the last one's end, by the machine's clock";
        let elapsed = Metric::real("elapsed_s", "elapsed", "s", ns as f64 / 1e9, 2, about);
        let better = if accel == Accel::Kvm { Better::Less } else { Better::Neither };
        return vec![Metric { better, ..elapsed }];
    }
    let about = "of all CPUs, from the first task's start to the last one's end; waits for a timer count as if they were";
    let mut list = vec![Metric::int("instructions", "instructions", Better::Less, ns, about)];
    if let Some(pages) = printed.counter("progress").filter(|&pages| pages > 0) {
        let about = "of all CPUs, for each page of work: the program's own are in it";
        let each = ns as f64 / pages as f64;
        list.push(Metric::real("instructions_per_page", "instructions/page", "", each, 1, about));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::number;
    use crate::metal::lines::read;

    const TEXT: &str = r#"{"counters":{"ipis_sent":30,"ipis_received":40,"nr_tlb_remote_flush_received":38,
        "pgsteal_kswapd":300,"pgsteal_direct":100,"progress":50,"hot_lost":2,"wrong_contents":0,"elapsed_ns":5000,"other":1}}"#;

    fn of(accel: Accel, key: &str) -> Option<f64> {
        let list = figures(&read(&TEXT.replace('\n', "")), accel);
        list.iter().find(|metric| metric.key == key).map(|metric| number(metric.value))
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
        assert_eq!(list[0].better, Better::Neither);
    }

    #[test]
    fn a_machine_that_printed_no_counters_has_no_figures() {
        assert!(figures(&read("{\"end\":\"well\"}"), Accel::Threads).is_empty());
    }
}
