//! A group's limit holds, and it is worth something to those beside it.

use crate::common;

use common::{Figures, policy, run, spec};
use quietmm_sim::{Report, RunSpec, Workload};

/// A run of `groups` under a policy, and how many times as long the neighbour took beside a group with a limit, and without.
fn beside(text: &str, seed: u64) -> (Report, f64, f64) {
    let report = run(&RunSpec { scale: 1024, policy: policy(text), seed, ..spec(Workload::Groups) });
    let harm = ["stale_accesses", "lost_writes", "wrong_contents"].map(|key| report.count(key));
    assert_eq!(harm, [0; 3], "{text}: {:#?}", report.stories);
    let took = |key: &str| report.count(key) as f64;
    let alone = took("group_neighbour_alone_ns");
    let (limited, unlimited) = (took("group_neighbour_limited_ns"), took("group_neighbour_unlimited_ns"));
    (report, limited / alone, unlimited / alone)
}

#[test]
fn a_group_stays_within_its_limit_and_does_not_slow_its_neighbour() {
    for (text, seed) in [("vanilla", 1), ("linux", 1), ("linux", 2), ("quiet", 1), ("quiet", 2)] {
        let (report, limited, unlimited) = beside(text, seed);
        let count = |key: &str| report.count(key);
        let (limit, most) = (count("group_limit"), count("group_most_charged"));
        assert!(most <= limit, "{text}: {most} of {limit}");
        assert!(most > limit / 2, "{text}: the limit was reached, {most} of {limit}");
        assert!(count("group_swept") > 2 * limit, "{text}: the group wanted more than it may have");
        assert_eq!(count("group_limited_lost"), 0, "{text}: pages of the neighbour");
        assert!(limited < 1.01, "{text}: {limited} times as long");
        // The control: the same group, without a limit.
        assert!(
            unlimited > 1.5 && count("group_unlimited_lost") > limit,
            "{text}: {unlimited} times as long"
        );
        if text == "quiet" {
            assert_eq!(count("ipis_received"), 0, "{text}");
        }
    }
}
