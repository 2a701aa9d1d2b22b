//! The frames on per-CPU lists: drains against allocation, against each other, and against CPUs that come and go.

use quietmm::{AllocFrom, Certainty, Config, Frames, ListLimits, Rule};

use crate::scenario::Scenario;
use crate::task::Task;

pub(super) fn all() -> Vec<Scenario> {
    vec![
        together(),
        against_alloc("drain-alloc", "linux").shows(&[
            Rule::ForceAsksAll,
            Rule::LimitsAtPush,
            Rule::CountWithList,
        ]),
        against_alloc("drain-alloc-all", "linux+drain=all-cpus")
            .shows(&[Rule::LimitsAtPush, Rule::CountWithList]),
        against_alloc("drain-alloc-remote", "quiet").shows(REMOTE),
        offline("drain-offline", "linux").shows(&[
            Rule::OfflineDrainsLists,
            Rule::TakeBack,
            Rule::OwnDrainSet,
        ]),
        offline("drain-offline-all", "linux+drain=all-cpus")
            .shows(&[Rule::OfflineDrainsLists, Rule::TakeBack]),
        offline("drain-offline-remote", "quiet").shows(&[Rule::RemoteTakesLock, Rule::CountWithList]),
        online("drain-online", "linux").shows(&[Rule::ForceAsksAll, Rule::LimitsAtPush]),
        online("drain-online-remote", "quiet").shows(REMOTE),
        many("drain-many", "linux").shows(&[Rule::DrainInChunks, Rule::OwnDrainSet]),
        many("drain-many-remote", "quiet").shows(&[Rule::DrainInChunks, Rule::RemoteTakesLock]),
    ]
}

const REMOTE: &[Rule] = &[Rule::ForceAsksAll, Rule::LimitsAtPush, Rule::CountWithList, Rule::RemoteTakesLock];

fn keeps_some(config: &mut Config) {
    config.page_lists = Some(ListLimits { batch: 2, high: 8 });
}

/// Leaves frames on a CPU's lists: it takes so many blocks, and frees them.
fn hold(task: &Task<'_>, cpu: u16, blocks: usize, order: u8) {
    task.as_cpu(cpu, |task| {
        let take = || task.must("alloc_frames", |mm| mm.frames().alloc(order, AllocFrom::NOW));
        let taken: Vec<Frames> = (0..blocks).map(|_| take()).collect();
        taken.into_iter().for_each(|block| task.mm().frames().free(block));
    });
}

fn together() -> Scenario {
    Scenario::new(
        "drain-drain",
        "two CPUs drain at the same time, and a third has frames on its lists",
        "linux",
    )
    .cpus(3)
    .config(keeps_some)
    .shows(&[Rule::OwnDrainSet, Rule::CountWithList])
    .repeats(&[16, 19])
    .before(|task| hold(task, 2, 2, 0))
    .cpu(drain_all)
    .cpu(drain_all)
}

fn drain_all(task: &Task<'_>) {
    task.drain(Certainty::Likely);
    task.nothing_on_pcp();
}

/// Nothing is to be kept on per-CPU lists any more, and nothing is from then on.
fn switch_off(task: &Task<'_>) {
    task.limit_lists(1, 0);
    task.drain(Certainty::Certain);
}

/// A frame is taken, with a batch, and given back.
fn take_and_give(task: &Task<'_>) {
    task.take_frames(1);
    task.give_back(1);
}

fn against_alloc(name: &'static str, policy: &str) -> Scenario {
    Scenario::new(name, "per-CPU lists are switched off while another CPU takes and frees some", policy)
        .config(keeps_some)
        .repeats(&[17, 19, 20])
        .before(|task| hold(task, 0, 1, 0))
        .cpu(switch_off)
        .cpu(take_and_give)
        .after(|task| task.nothing_on_pcp())
}

fn offline(name: &'static str, policy: &str) -> Scenario {
    Scenario::new(name, "a CPU goes offline with frames on its lists in the middle of two drains", policy)
        .cpus(3)
        .config(keeps_some)
        .repeats(&[18])
        .before(|task| hold(task, 1, 2, 0))
        .cpu(|task| task.drain(Certainty::Certain))
        .cpu(|task| task.go_offline())
        .cpu(|task| task.drain(Certainty::Likely))
        .after(|task| task.nothing_on_pcp())
}

fn online(name: &'static str, policy: &str) -> Scenario {
    Scenario::new(
        name,
        "per-CPU lists are switched off while a CPU comes online, and takes and frees some",
        policy,
    )
    .machine(|setup| setup.offline = 1)
    .config(keeps_some)
    .repeats(&[18, 20])
    .cpu(switch_off)
    .cpu(|task| {
        task.come_online();
        take_and_give(task);
    })
    .after(|task| task.nothing_on_pcp())
}

fn many(name: &'static str, policy: &str) -> Scenario {
    Scenario::new(name, "a CPU has more frames on its lists than go back under one hold of a lock", policy)
        .config(|config| config.page_lists = Some(ListLimits { batch: 8, high: 200 }))
        .repeats(&[19])
        .before(|task| hold(task, 1, 9, 3))
        .cpu(drain_all)
        .cpu(|task| task.drain(Certainty::Likely))
        // 63 and the rest of a block.
        .after(|task| {
            task.promise(task.told().spilled.get() <= 70, "a lock is held for 63 frames and a block at most")
        })
}
