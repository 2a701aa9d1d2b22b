//! Reclaim of pages that programs go on using: aging, and writing out what is dirty.

use quietmm::{Policy, Rule};

use super::before::{AT, FIRST, crowded, make_idle, pcp, showing, written};
use super::reclaim::{idle, reclaims};
use crate::scenario::Scenario;

pub(super) fn all() -> Vec<Scenario> {
    vec![write(), write_clean(), write_each(), write_unsure(), age(), age_each()]
}

fn write() -> Scenario {
    idle("reclaim-write", "reclaim writes out pages that programs go on writing to")
        .shows(&[Rule::FlushBeforeIo, Rule::DirtyBeforeUnlock, Rule::FreezeBeforeFree])
        .repeats(&[3, 4])
        .config(pcp)
        .before(|task| {
            written(task, 2);
            make_idle(task);
            task.give_back(1);
        })
        .cpu(|task| {
            let _ = task.write(0, AT);
        })
        .cpu(|task| {
            let _ = task.write(0, FIRST);
            let _ = task.write(0, AT);
        })
        .cpu(reclaims)
}

/// The same under another policy.
fn under(mut scenario: Scenario, name: &'static str, about: &'static str, policy: &str) -> Scenario {
    (scenario.name, scenario.about) = (name, about);
    scenario.config.policy = Policy::parse(policy).expect("a policy's name");
    scenario
}

fn write_clean() -> Scenario {
    let about = "the same where only clean pages are left to a batch";
    under(write(), "reclaim-write-clean", about, "linux+unmap=batch-clean").shows(&[
        Rule::FlushBeforeFree,
        Rule::DirtyBeforeUnlock,
        Rule::FreezeBeforeFree,
    ])
}

fn write_each() -> Scenario {
    let about = "the same where every page is flushed by itself, and aging flushes";
    under(write(), "reclaim-write-each", about, "vanilla").shows(&[
        Rule::FlushBeforeFree,
        Rule::DirtyBeforeUnlock,
        Rule::FreezeBeforeFree,
    ])
}

fn write_unsure() -> Scenario {
    let about = "the same where a clean entry lets a CPU write unseen";
    under(write(), "reclaim-write-unsure", about, "vanilla")
        .machine(|setup| setup.guarantees = false)
        .shows(&[Rule::FlushBeforeFree, Rule::DirtyBeforeUnlock, Rule::FreezeBeforeFree])
        .before(|task| {
            showing(task, 2);
            make_idle(task);
            task.give_back(1);
        })
}

fn age() -> Scenario {
    idle("reclaim-age", "aging clears the accessed bits of pages that a program writes to")
        .shows(&[Rule::AtomicAccessedClear])
        .repeats(&[38])
        .cpus(2)
        .before(|task| {
            showing(task, 1);
            // All are in use: reclaim looks twice.
            crowded(task, 1);
        })
        .cpu(|task| {
            let _ = task.write(0, AT);
        })
        .cpu(reclaims)
}

fn age_each() -> Scenario {
    let about = "the same where aging flushes";
    under(age(), "reclaim-age-each", about, "vanilla")
}
