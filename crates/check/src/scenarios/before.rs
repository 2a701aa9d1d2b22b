//! What is there before: shared by several situations.

use quietmm::{Backing, Config, FileId, ListLimits, Prot};

use crate::machine::Setup;
use crate::task::Task;

/// The first of four pages that everything is about: two at the end of one table, two at the start of the next. With the
/// first and the last still mapped, no table goes when the two in the middle do.
pub(super) const AT: u64 = 0x11fe;
/// The two in the middle.
pub(super) const FIRST: u64 = AT + 1;
/// The second of these.
pub(super) const SECOND: u64 = AT + 2;
/// Where ranges are moved to: in the first table.
pub(super) const TO: u64 = 0x1000;
/// Where pages of a file are mapped for a moment.
const SPARE: u64 = 0x1100;

/// A machine with little memory, of which all can be taken quickly.
pub(super) fn small(setup: &mut Setup) {
    setup.frames = 192;
}

/// The same, and two spaces can be in a TLB at the same time.
pub(super) fn tagged(setup: &mut Setup) {
    small(setup);
    setup.tags = 2;
}

/// A CPU that goes offline, and comes back to the space.
pub(super) fn comes_back(task: &Task<'_>) {
    task.go_offline();
    task.come_online();
    task.run_in(0);
    let _ = task.read(0, FIRST);
}

/// Four pages of its own in a space; so many CPUs run there and have written to all of them.
pub(super) fn own(task: &Task<'_>, cpus: u16) {
    let space = task.create_space();
    task.map(space, AT, 4);
    everybody_writes(task, space, cpus);
}

/// Four pages of a file in a space; so many CPUs run there and have read all of them.
pub(super) fn showing(task: &Task<'_>, cpus: u16) {
    showing_as(task, cpus, |file| Backing::File { file, offset: 0 });
}

/// The same of whatever shows the file.
pub(super) fn showing_as(task: &Task<'_>, cpus: u16, shown: fn(FileId) -> Backing) {
    task.create_file(8);
    showing_first(task, cpus, shown);
}

/// The same, and its file system is asked before a program writes to it.
pub(super) fn showing_watched(task: &Task<'_>, cpus: u16) {
    task.create_watched_file(8);
    showing_first(task, cpus, |file| Backing::File { file, offset: 0 });
}

fn showing_first(task: &Task<'_>, cpus: u16, shown: fn(FileId) -> Backing) {
    let space = task.create_space();
    task.map_as(space, AT, 4, shown(task.file(0)), Prot::ReadWrite);
    for cpu in (0..cpus).rev() {
        task.as_cpu(cpu, |task| {
            task.run_in(space);
            (AT..AT + 4).for_each(|page| task.promise(task.peek(space, page).is_ok(), "it is mapped"));
        });
    }
    task.settle();
}

/// The same, and they have written to all of them.
pub(super) fn written(task: &Task<'_>, cpus: u16) {
    showing(task, cpus);
    everybody_writes(task, 0, cpus);
}

/// The first file, from this page on.
pub(super) fn backing(task: &Task<'_>, offset: u64) -> Backing {
    Backing::File { file: task.file(0), offset }
}

fn everybody_writes(task: &Task<'_>, space: usize, cpus: u16) {
    for cpu in (0..cpus).rev() {
        task.as_cpu(cpu, |task| {
            task.run_in(space);
            (AT..AT + 4).for_each(|page| task.promise(task.write(space, page).is_ok(), "it is mapped"));
        });
    }
}

/// No memory is free, and the pages at `AT` are the oldest and were not used since the last look. Behind them are a few
/// that nobody maps, so that whoever reclaims comes to an end. By CPU 0, which runs in the first space.
pub(super) fn make_idle(task: &Task<'_>) {
    spare(task, 4, 1);
    task.take_all_memory();
    // Looks at all of them, and takes the last.
    task.promise(task.reclaim(), "there is one to take");
    task.give_back(8);
    crowded(task, 3);
}

/// So many pages that nobody maps are there for whoever reclaims, and no memory is free. By CPU 0, likewise.
pub(super) fn crowded(task: &Task<'_>, spares: u64) {
    spare(task, 5, spares);
    task.take_all_memory();
}

/// What a CPU frees stays on its lists, for its own next fault.
pub(super) fn pcp(config: &mut Config) {
    config.page_lists = Some(ListLimits { batch: 1, high: 4 });
}

/// So many pages of the first file are in memory, and nobody maps them.
pub(super) fn spare(task: &Task<'_>, first: u64, count: u64) {
    for offset in first..first + count {
        task.map_as(0, SPARE, 1, backing(task, offset), Prot::Read);
        task.promise(task.peek(0, SPARE).is_ok(), "it is mapped");
        task.unmap(0, SPARE, 1);
    }
    task.settle();
}
