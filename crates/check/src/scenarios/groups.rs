//! Groups of spaces that are close to their limits.

use quietmm::{GroupId, Rule};

use super::before::AT;
use crate::scenario::Scenario;
use crate::task::Task;
use crate::task::swap::{DEVICE, SLOTS, swapping};

pub(super) fn all() -> Vec<Scenario> {
    vec![stock(), lists(), limit(), leaves()]
}

/// Charged first, far from its limit: 32 pages in stock where that CPU runs.
const FAR: u64 = 1000;

/// A space of a group's, in which CPU 1 runs and has written to its first page; so that this CPU has pages of the group in stock.
fn member(task: &Task<'_>) -> GroupId {
    let group = task.must("create_group", |mm| mm.create_group(FAR));
    let id = task.space(task.create_space());
    task.must("set_group", |mm| mm.space(id).set_group(Some(group)));
    task.map(0, AT, 8);
    task.as_cpu(1, |task| {
        task.run_in(0);
        task.promise(task.write(0, AT).is_ok(), "there is room");
    });
    group
}

/// Of the group that the first space belongs to.
fn limit_to(task: &Task<'_>, pages: u64) {
    let id = task.space(0);
    let group = task.must("group", |mm| mm.space(id).group());
    task.promise(group.is_some(), "it belongs to a group");
    group.into_iter().for_each(|group| task.must("set_limit", |mm| mm.group(group).set_limit(pages)));
}

fn charged(task: &Task<'_>) -> u64 {
    let id = task.space(0);
    let group = task.must("group", |mm| mm.space(id).group());
    group.map_or(0, |group| task.must("usage", |mm| mm.group(group).usage()).charged)
}

fn stock() -> Scenario {
    Scenario::new(
        "group-stock",
        "two CPUs want the last pages that a group may have, most of which are in one's stock",
        "linux",
    )
    .config(|config| config.groups = 1)
    .shows(&[Rule::StocksBeforeRefusal])
    .before(|task| {
        let group = member(task);
        let usage = task.must("usage", |mm| mm.group(group).usage());
        task.promise(usage.stocked > 0, "there is a stock");
        task.run_in(0);
        limit_to(task, usage.charged + 1);
    })
    .cpu(|task| (AT + 1..AT + 4).for_each(|page| task.promise(task.write(0, page).is_ok(), "there is room")))
    .cpu(|task| (AT + 4..AT + 6).for_each(|page| task.promise(task.write(0, page).is_ok(), "there is room")))
}

fn lists() -> Scenario {
    Scenario::new(
        "group-lists",
        "a CPU wants a page of its group, which is full of pages that another CPU has on their way to a list",
        "linux",
    )
    .config(|config| {
        config.groups = 1;
        config.lru_batch = 8;
    })
    .shows(&[Rule::ListsBeforeRefusal])
    .before(|task| {
        let group = member(task);
        let file = task.create_file(3);
        task.as_cpu(1, |task| (0..3).for_each(|page| _ = task.read_file(file, page)));
        let usage = task.must("usage", |mm| mm.group(group).usage());
        task.run_in(0);
        limit_to(task, usage.charged - usage.stocked);
    })
    .cpu(|task| task.promise(task.write(0, AT + 1).is_ok(), "a page of the file goes for it"))
    .cpu(|task| _ = task.read_file(0, 1))
}

fn limit() -> Scenario {
    Scenario::new(
        "group-limit",
        "a CPU reclaims of its group for a page, and another uses and gives up what it may take",
        "linux",
    )
    .config(|config| {
        swapping(config);
        config.groups = 1;
        config.scan_batch = 1;
    })
    .shows(&[Rule::FlushBeforeIo, Rule::SwapInLocks])
    .watch(AT, 4)
    .before(|task| {
        task.swap_on(DEVICE, SLOTS);
        member(task);
        task.run_in(0);
        task.promise(task.write(0, AT + 1).is_ok(), "there is room");
        task.settle();
        // Those two and the tables, and one more.
        limit_to(task, 6);
    })
    .cpu(|task| {
        (AT + 2..AT + 4).for_each(|page| task.promise(task.write(0, page).is_ok(), "a page goes for it"))
    })
    .cpu(|task| {
        task.promise(task.read(0, AT).is_ok(), "it is mapped");
        task.forget(0, AT + 1, 1);
        task.drop_pages(0, AT + 1, 1);
    })
    .after(|task| task.promise(charged(task) <= 6, "no more is charged than may be"))
}

fn leaves() -> Scenario {
    Scenario::new(
        "group-leave",
        "a space leaves its group, which ends, while a program of it writes",
        "linux",
    )
    .config(|config| config.groups = 1)
    .before(|task| {
        member(task);
        task.run_in(0);
    })
    .cpu(|task| {
        let id = task.space(0);
        let group = task.must("group", |mm| mm.space(id).group());
        task.must("set_group", |mm| mm.space(id).set_group(None));
        group.into_iter().for_each(|group| task.must("destroy_group", |mm| mm.group(group).destroy()));
        let next = task.call("create_group", |mm| mm.create_group(1));
        task.promise(next.is_err(), "the old one is still charged with pages");
    })
    .cpu(|task| (AT..AT + 3).for_each(|page| task.promise(task.write(0, page).is_ok(), "there is room")))
}
