//! Where the faults of `docs/rules.md` are put back: a few CPUs that share a page or some.

use std::cell::Cell;
use std::rc::Rc;

use quietmm::{AllocFrom, Backing, Config, FileId, Prot, Rule, SpaceId};

use super::{Host, Mm, Setup, bare, exhaust, give_back, pages, pcp};

pub const AT: u64 = 0x1000;
/// Where ranges are moved to: in another table.
pub const TO: u64 = 0x3000;

pub fn machine(cpus: u32, broken: Option<Rule>) -> Host {
    let host = Host::new(Setup { cpus, frames: 1024, ..Setup::default() });
    host.broken.set(broken);
    host
}

/// A space with `count` pages of a file at `AT`, in which `cpus` run.
pub fn showing(mm: &Mm<'_>, count: u64, cpus: &[u16]) -> (SpaceId, FileId) {
    let file = mm.create_file(count).unwrap();
    (showing_as(mm, Backing::File { file, offset: 0 }, count, cpus), file)
}

/// The same of whatever is shown.
pub fn showing_as(mm: &Mm<'_>, backing: Backing, count: u64, cpus: &[u16]) -> SpaceId {
    let id = mm.create_space().unwrap();
    mm.space(id).map(pages(AT, count), backing, Prot::ReadWrite).unwrap();
    run_in(mm, id, cpus);
    id
}

/// A space with `count` pages of its own at `AT`, in which `cpus` run.
pub fn own(mm: &Mm<'_>, count: u64, cpus: &[u16]) -> SpaceId {
    let id = mm.create_space().unwrap();
    mm.space(id).map(pages(AT, count), Backing::Anonymous, Prot::ReadWrite).unwrap();
    run_in(mm, id, cpus);
    id
}

pub fn run_in(mm: &Mm<'_>, id: SpaceId, cpus: &[u16]) {
    cpus.iter().for_each(|&cpu| mm.platform().on(cpu, || mm.space(id).switch_to().unwrap()));
}

/// This CPU reads every page, and what it brought to the cache goes to the LRU lists.
pub fn read_all(mm: &Mm<'_>, id: SpaceId, cpu: u16, count: u64) {
    let host = mm.platform();
    host.on(cpu, || {
        (AT..AT + count).for_each(|page| assert!(host.read(mm, id, page).is_ok()));
        mm.drain_lru_batch();
    });
}

/// This CPU writes `value` to the first page, and the page is on an LRU list.
pub fn write_first(mm: &Mm<'_>, id: SpaceId, cpu: u16, value: u64) {
    let host = mm.platform();
    host.on(cpu, || {
        host.write(mm, id, AT, value).unwrap();
        mm.drain_lru_batch();
    });
}

pub fn reclaim_all(mm: &Mm<'_>) {
    give_back(mm, exhaust(mm));
}

/// What a hook found.
pub fn found<T: Copy + 'static>() -> (Rc<Cell<Option<T>>>, impl Fn() -> T) {
    let cell = Rc::new(Cell::new(None));
    let result = Rc::clone(&cell);
    (cell, move || result.get().expect("the hook ran"))
}

/// CPU 0 reclaims a file that CPUs 1 and 2 have cached. When the first page's entry is cleared and not flushed, CPU 1
/// does `then`.
pub fn in_the_window<T: Copy + 'static>(
    broken: Option<Rule>,
    then: impl FnOnce(&Mm<'_>, SpaceId) -> T + 'static,
) -> T {
    in_the_window_of(broken, |file| Backing::File { file, offset: 0 }, then)
}

/// The same where the file is shown in another way.
pub fn in_the_window_of<T: Copy + 'static>(
    broken: Option<Rule>,
    shown: fn(FileId) -> Backing,
    then: impl FnOnce(&Mm<'_>, SpaceId) -> T + 'static,
) -> T {
    let host = machine(3, broken);
    host.run(Config { page_lists: pcp(31), ..bare("linux") }, |mm| {
        let id = showing_as(mm, shown(mm.create_file(32).unwrap()), 32, &[1, 2]);
        read_all(mm, id, 1, 32);
        read_all(mm, id, 2, 32);
        // What CPU 1 will need is on its lists.
        host.on(1, || {
            mm.frames().drain_here();
            mm.frames().free(mm.frames().alloc(0, AllocFrom::NOW).unwrap());
        });
        let (seen, result) = found();
        host.when_unmapped(id, AT, move |mm| {
            let host = mm.platform();
            assert!(host.caches(2, AT), "the window is open");
            seen.set(Some(host.on(1, || then(mm, id))));
        });
        reclaim_all(mm);
        result()
    })
}
