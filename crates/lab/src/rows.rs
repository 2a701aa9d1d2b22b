//! Which figures a table shows, in which order, under which label.

use crate::figure::Figure;
use crate::measure::Column;

/// What mmtests calls the operations of a workload: `Ops WORKLOAD-elapsed`.
const OPS: [(&str, &str); 3] =
    [("elapsed_s", "elapsed"), ("time_range_s", "time_range"), ("time_stddev_s", "time_stddv")];

/// Seconds of the whole machine.
const TIMES: [(&str, &str); 3] = [("user_s", "User"), ("system_s", "System"), ("elapsed_s", "Elapsed")];

/// What the CPUs did to each other.
const TRAFFIC: [&str; 14] = [
    "interrupts_per_s",
    "ticks_per_s",
    "ipis_sent",
    "ipis_received",
    "pages_reclaimed",
    "ipis_sent_per_reclaimed_page",
    "ipis_per_reclaimed_page",
    "flushes_received_per_reclaimed_page",
    "pages_per_flush",
    "flushes_full",
    "flushes_page",
    "tlb_refills",
    "stale_accesses",
    "window_accesses",
];

/// What swap did, on machines that swap.
const SWAP: [&str; 14] = [
    "swapouts_per_s",
    "swapins_per_s",
    "wrong_reclaims",
    "wrong_reclaims_percent",
    "workingset_refault",
    "workingset_activate",
    "swap_commands",
    "swap_pages_per_command",
    "swap_busy_percent",
    "swap_in_flight",
    "swap_command_us",
    "swap_errors",
    "io_interrupts",
    "pageout_throttled",
];

/// A workload's own figures begin with one of these, and those of tasks that had to reclaim for themselves.
const OWN: [&str; 11] = [
    "bystander_",
    "shootdown_",
    "unmap_",
    "hackbench_",
    "page_alloc_",
    "direct_reclaim_",
    "ns_per_op",
    "ops_per_s_",
    "vunmap_",
    "vmap_mix_",
    "scan_",
];

/// Rows that belong together: label and key.
pub type Group = Vec<(String, &'static str)>;

/// The groups of rows for `workload`; `all` adds every counter. Figures that no column has are left out.
pub fn groups(workload: &str, columns: &[Column<'_>], all: bool) -> Vec<Group> {
    let known = |key: &str| columns.iter().find_map(|column| column.figure(key));
    let all_figures = || columns.first().into_iter().flat_map(|column| &column.figures);
    let named = |figure: &Figure| (figure.label.to_string(), figure.key);

    let ops = OPS.iter().map(|(key, name)| (format!("Ops {workload}-{name}"), *key));
    let times = TIMES.iter().map(|(key, name)| (name.to_string(), *key));
    let traffic = TRAFFIC.iter().filter_map(|key| known(key)).map(named);
    let swaps = known(SWAP[0]).is_some();
    let swap = SWAP.iter().filter(|_| swaps).filter_map(|key| known(key)).map(named);
    let own = all_figures().filter(|figure| OWN.iter().any(|own| figure.key.starts_with(own))).map(named);
    let mut groups: Vec<Group> =
        vec![ops.collect(), times.collect(), traffic.collect(), swap.collect(), own.collect()];
    if all {
        let shown: Vec<&str> = groups.iter().flatten().map(|(_, key)| *key).collect();
        groups.push(all_figures().filter(|figure| !shown.contains(&figure.key)).map(named).collect());
    }
    for group in &mut groups {
        group.retain(|(_, key)| known(key).is_some());
    }
    groups.retain(|group| !group.is_empty());
    groups
}
