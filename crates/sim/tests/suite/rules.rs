//! Each rule that an invariant rests on, left out: on the workload `revisit` something stale is used, or a write is
//! lost; with all rules kept, never. A race may need several seeds to show.

use crate::common;

use std::sync::Arc;

use common::{Figures, policy, run, shared, spec};
use quietmm_sim::{Report, Rule, RunSpec, Workload};

/// Within so many seeds a broken rule must show.
const SEEDS: u64 = 8;

fn harm(report: &Report) -> (u64, u64) {
    (report.count("stale_accesses"), report.count("lost_writes"))
}

/// `revisit` with half of its memory: as much happens for each page.
fn revisit(broken: Option<Rule>) -> RunSpec {
    let mut spec = RunSpec { scale: 2048, ..spec(Workload::Revisit) };
    // With five it has a process that unmaps. One window is so narrow that it takes all CPUs to fall into it.
    let cpus = if broken == Some(Rule::GenerationBeforeMask) { 8 } else { 5 };
    spec.machine = spec.machine.with_cpus(cpus).expect("so many of its CPUs");
    RunSpec { broken, ..spec }
}

/// The first seed's report in which a broken rule shows.
fn broken(rule: Rule) -> Arc<Report> {
    broken_as(rule, |_| true)
}

/// The same, of those that are as wanted.
fn broken_as(rule: Rule, wanted: impl Fn(&Report) -> bool) -> Arc<Report> {
    let mut runs = (1..=SEEDS).map(|seed| shared(&RunSpec { seed, ..revisit(Some(rule)) }));
    runs.find(|report| harm(report) != (0, 0) && wanted(report))
        .unwrap_or_else(|| panic!("{rule} was left out with {SEEDS} seeds, and nothing came of it"))
}

/// The numbers of the CPUs that a text names.
fn cpus(text: &str) -> Vec<u32> {
    let after = text.split("CPU ").skip(1);
    after.map(|rest| rest.split(' ').next().and_then(|n| n.parse().ok()).expect("a CPU's number")).collect()
}

/// A story that tells which page was used, by whom, who took it away, and which step was left out.
fn is_told(report: &Report, rule: Rule) -> bool {
    let whole = |story: &str| {
        let first = story.lines().next().unwrap_or("");
        let cleared = story.lines().find(|line| line.contains("cleared the entry of"));
        let skipped = format!("skipped a step: {rule}, \"{}\"", rule.about());
        let rests = format!("{} rests on that step", rule.invariant());
        let Some(page) = first.split(' ').find(|word| word.starts_with("0x")) else { return false };
        first.contains("through a stale TLB entry")
            && cleared.is_some_and(|line| line.contains(&format!("{page} ")) && cpus(line) != cpus(first))
            && story.contains(&skipped)
            && story.contains(&rests)
    };
    report.stories.iter().any(|story| whole(&story.to_string()))
}

fn assert_stale(rule: Rule) {
    let report = broken(rule);
    assert!(harm(&report).0 > 0, "{rule}: {:?}", harm(&report));
    broken_as(rule, |report| is_told(report, rule));
}

#[test]
fn nothing_stale_is_used_and_no_write_is_lost_while_all_rules_are_kept() {
    for (text, seed) in [
        ("linux", 1),
        ("linux+unmap=per-page", 1),
        ("linux+unmap=batch-clean", 2),
        ("vanilla", 3),
        ("linux", 2),
    ] {
        let report = shared(&RunSpec { policy: policy(text), seed, ..revisit(None) });
        assert_eq!(harm(&report), (0, 0), "{text}, seed {seed}: {:#?}", report.stories);
        assert!(report.stories.is_empty());
        assert!(report.count("pages_reclaimed") > 10_000, "{text}: memory was short");
        let deferred = report.count("window_accesses") > 0 && report.count("tlb_batch_flushes") > 0;
        assert!(deferred || text != "linux", "{text}: pages in use were taken, and flushed later");
    }
}

#[test]
fn without_the_flush_before_free_a_freed_page_is_used() {
    assert_stale(Rule::FlushBeforeFree);
}

#[test]
fn without_the_flush_before_unmap_returns_a_page_is_used_that_was_taken_away() {
    assert_stale(Rule::FlushBeforeUnmapReturns);
}

#[test]
fn a_cpu_that_acknowledges_without_a_flush_uses_stale_pages() {
    assert_stale(Rule::AcknowledgeAfterFlush);
}

#[test]
fn a_cpu_that_comes_back_from_lazy_without_a_look_uses_stale_pages() {
    assert_stale(Rule::LazyReturnFlush);
}

#[test]
fn a_mask_that_is_read_before_the_generation_is_raised_misses_a_cpu() {
    assert_stale(Rule::GenerationBeforeMask);
}

#[test]
fn a_cpu_that_comes_back_to_a_tag_without_a_look_uses_stale_pages() {
    assert_stale(Rule::SwitchFlush);
}

#[test]
fn a_page_that_is_freed_while_somebody_holds_it_loses_a_write_or_is_used_on() {
    broken(Rule::FreezeBeforeFree);
}

#[test]
fn a_cpu_that_does_not_wait_for_the_acknowledgement_frees_what_others_still_use() {
    assert_stale(Rule::WaitForAcknowledgement);
}

/// INV-12: Linux leaves this window open; that ours is closed costs the readers not one interrupt more.
#[test]
fn closing_the_refault_window_costs_the_readers_no_interrupt() {
    let sent = |workload, broken| {
        let report = run(&RunSpec { scale: 2048, broken, ..spec(workload) });
        assert!(report.count("tlb_batch_pages") > 1000, "flushes were deferred");
        report.count("ipis_sent")
    };
    for workload in [Workload::Reader, Workload::SharedReader] {
        assert_eq!(
            sent(workload, None),
            sent(workload, Some(Rule::RefaultAfterFlush)),
            "{}",
            workload.name()
        );
    }
}
