//! `churn` on many seeds: nothing stale is used, no write is lost, every content is right and every frame accounted for
//! (a run whose frames do not add up fails), while CPUs leave and return; and with a rule broken that is seen.

use crate::common;

use std::sync::Mutex;

use common::{Figures, policy, run, spec, what};
use quietmm_sim::{Report, Rule, RunSpec, Workload};

/// Seeds of each policy: all policies together have 10, which make 2 to 16 CPUs. `make soak` has more.
const SEEDS: u64 = 2;
/// Within so many seeds a broken rule must show.
const ENOUGH: u64 = 60;

fn harm(report: &Report) -> [u64; 3] {
    ["stale_accesses", "lost_writes", "wrong_contents"].map(|key| report.count(key))
}

#[test]
fn every_content_is_right_whatever_the_policy_and_the_number_of_cpus() {
    let policies =
        ["linux", "vanilla", "linux+unmap=batch-clean", "linux+unmap=per-page", "linux+aging=flush"];
    let specs = policies.iter().zip(0..).flat_map(|(text, nth)| {
        let seeds = nth * SEEDS..(nth + 1) * SEEDS;
        seeds.map(|seed| RunSpec { policy: policy(text), seed, ..spec(Workload::Churn) })
    });
    let specs = Mutex::new(specs.collect::<Vec<_>>());
    let work = || {
        while let Some(spec) = { specs.lock().expect("no panic").pop() } {
            let report = run(&spec);
            assert_eq!(harm(&report), [0; 3], "{}: {:#?}", what(&spec), report.stories);
            assert!(report.count("cpus_offline") > 0 && report.count("cpus_online") > 0, "{}", what(&spec));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
}

#[test]
fn a_rule_that_is_broken_is_seen() {
    for rule in [
        Rule::FlushBeforeFree,
        Rule::FlushBeforeUnmapReturns,
        Rule::FlushBeforeProtectReturns,
        Rule::FlushBeforeForkReturns,
        Rule::FlushBeforeDropReturns,
        Rule::FlushBeforeMove,
        Rule::LazyReturnFlush,
        Rule::SwitchFlush,
        Rule::AcknowledgeAfterFlush,
        Rule::CleanProtects,
        Rule::WriteWaitsForIo,
        Rule::DirtyBeforeUnlock,
        Rule::OfflineLeavesMasks,
        Rule::OnlineStartsEmpty,
    ] {
        let broken = |seed| RunSpec { broken: Some(rule), seed, ..spec(Workload::Churn) };
        // A page is seldom used just as it moves. All seeds are tried, beginning with the one that showed it last.
        let first = if rule == Rule::FlushBeforeMove { 56 } else { 1 };
        let seen = (first..=ENOUGH).chain(1..first).any(|seed| harm(&run(&broken(seed))) != [0; 3]);
        assert!(seen, "{rule} was left out with {ENOUGH} seeds, and nothing came of it");
    }
}
