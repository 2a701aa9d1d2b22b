//! The faults that grown systems had, one test each, by the numbers of `docs/rules.md`: what is to be expected of a
//! sound core, and that the fault is seen when it is put back. The other numbers are in `hotplug.rs` and
//! `parallel.rs`.

mod machine;

use std::cell::Cell;
use std::rc::Rc;

use machine::{Happened, Host, Mm, Setup, bare, exhaust, give_back, pages};
use quietmm::{
    Advice, AllocFrom, Backing, Config, Counter, Error, FileId, FrameNumber, Manager, NodeId, PageNumber,
    Platform, Prot, Region, Rule, SpaceId,
};

const AT: u64 = 0x1000;
/// Where ranges are moved to: in another table.
const TO: u64 = 0x3000;

fn machine(cpus: u32, broken: Option<Rule>) -> Host {
    let host = Host::new(Setup { cpus, frames: 1024, ..Setup::default() });
    host.broken.set(broken);
    host
}

/// A space with `count` pages of a file at `AT`, in which `cpus` run.
fn showing(mm: &Mm<'_>, count: u64, cpus: &[u16]) -> (SpaceId, FileId) {
    let (id, file) = (mm.create_space().unwrap(), mm.create_file(count).unwrap());
    mm.map(id, pages(AT, count), Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
    run_in(mm, id, cpus);
    (id, file)
}

/// A space with `count` pages of its own at `AT`, in which `cpus` run.
fn own(mm: &Mm<'_>, count: u64, cpus: &[u16]) -> SpaceId {
    let id = mm.create_space().unwrap();
    mm.map(id, pages(AT, count), Backing::Anonymous, Prot::ReadWrite).unwrap();
    run_in(mm, id, cpus);
    id
}

fn run_in(mm: &Mm<'_>, id: SpaceId, cpus: &[u16]) {
    cpus.iter().for_each(|&cpu| mm.platform().on(cpu, || mm.switch_to(id).unwrap()));
}

/// This CPU reads every page, and what it brought to the cache goes to the LRU lists.
fn read_all(mm: &Mm<'_>, id: SpaceId, cpu: u16, count: u64) {
    let host = mm.platform();
    host.on(cpu, || {
        (AT..AT + count).for_each(|page| assert!(host.read(mm, id, page).is_ok()));
        mm.drain_lru_batch();
    });
}

/// This CPU writes `value` to the first page, and the page is on an LRU list.
fn write_first(mm: &Mm<'_>, id: SpaceId, cpu: u16, value: u64) {
    let host = mm.platform();
    host.on(cpu, || {
        host.write(mm, id, AT, value).unwrap();
        mm.drain_lru_batch();
    });
}

fn reclaim_all(mm: &Mm<'_>) {
    give_back(mm, exhaust(mm));
}

/// What a hook found.
fn found<T: Copy + 'static>() -> (Rc<Cell<Option<T>>>, impl Fn() -> T) {
    let cell = Rc::new(Cell::new(None));
    let result = Rc::clone(&cell);
    (cell, move || result.get().expect("the hook ran"))
}

/// CPU 0 reclaims a file that CPUs 1 and 2 have cached. When the first page's entry is cleared and not flushed, CPU 1
/// does `then`.
fn in_the_window<T: Copy + 'static>(
    broken: Option<Rule>,
    then: impl FnOnce(&Mm<'_>, SpaceId) -> T + 'static,
) -> T {
    let host = machine(3, broken);
    host.run(Config { page_batch: Some(31), ..bare("linux") }, |mm| {
        let (id, _) = showing(mm, 32, &[1, 2]);
        read_all(mm, id, 1, 32);
        read_all(mm, id, 2, 32);
        // What CPU 1 will need is at hand there.
        host.on(1, || {
            mm.drain_page_list();
            mm.free_frames(mm.alloc_frames(0, AllocFrom::NOW).unwrap());
        });
        let (seen, result) = found();
        host.on_forget.borrow_mut().push_back(Box::new(move |mm| {
            let host = mm.platform();
            assert!(!mm.lookup(id, PageNumber(AT)).unwrap().is_present());
            assert!(host.caches(2, AT), "the window is open");
            seen.set(Some(host.on(1, || then(mm, id))));
        }));
        reclaim_all(mm);
        result()
    })
}

type Operation = fn(&Mm<'_>, SpaceId);

#[test]
fn p01_an_unmap_completes_what_reclaim_deferred() {
    let operations: [(&str, Operation); 5] = [
        ("unmap", |mm, id| mm.unmap(id, pages(AT, 1)).unwrap()),
        ("protect", |mm, id| mm.protect(id, pages(AT, 1), Prot::None).unwrap()),
        ("move", |mm, id| mm.move_range(id, pages(AT, 1), PageNumber(TO)).unwrap()),
        ("drop", |mm, id| mm.advise(id, pages(AT, 1), Advice::Drop).unwrap()),
        ("fork", |mm, id| assert_ne!(mm.fork(id).unwrap(), id)),
    ];
    for (name, operation) in operations {
        let still_used = |broken| {
            in_the_window(broken, move |mm, id| {
                let before = mm.counter(Counter::DeferredCompleted);
                operation(mm, id);
                let completed = mm.counter(Counter::DeferredCompleted) - before;
                let host = mm.platform();
                (host.on(2, || host.try_read(AT).is_some()), completed)
            })
        };
        assert_eq!(still_used(None), (false, 1), "{name}");
        assert_eq!(still_used(Some(Rule::DeferredBeforeUnmapReturns)), (true, 0), "{name}");
    }
}

/// CPU 1's operation on a page that CPU 2 has cached and written to; what CPU 2 can still do when it has returned.
fn after(broken: Option<Rule>, operation: Operation) -> (Option<u64>, bool) {
    let host = machine(3, broken);
    host.run(bare("vanilla"), |mm| {
        let id = own(mm, 4, &[1, 2]);
        write_first(mm, id, 2, 5);
        host.on(1, || operation(mm, id));
        host.on(2, || (host.try_read(AT), host.try_write(AT, 6)))
    })
}

#[test]
fn p01_an_unmap_flushes_before_it_returns() {
    let unmap: Operation = |mm, id| mm.unmap(id, pages(AT, 1)).unwrap();
    assert_eq!(after(None, unmap), (None, false));
    assert_eq!(after(Some(Rule::FlushBeforeUnmapReturns), unmap), (Some(5), true));
}

#[test]
fn p01_a_protect_flushes_before_it_returns() {
    let protect: Operation = |mm, id| mm.protect(id, pages(AT, 1), Prot::Read).unwrap();
    assert_eq!(after(None, protect), (Some(5), false));
    assert_eq!(after(Some(Rule::FlushBeforeProtectReturns), protect), (Some(5), true));
    let protect: Operation = |mm, id| mm.protect(id, pages(AT, 1), Prot::None).unwrap();
    assert_eq!(after(None, protect), (None, false));
    assert_eq!(after(Some(Rule::FlushBeforeProtectReturns), protect), (Some(5), true));
}

#[test]
fn p01_a_drop_flushes_before_it_returns() {
    let drop: Operation = |mm, id| mm.advise(id, pages(AT, 1), Advice::Drop).unwrap();
    assert_eq!(after(None, drop), (None, false));
    let (read, written) = after(Some(Rule::FlushBeforeDropReturns), drop);
    assert!(read.is_some() && written, "it uses a frame that is free");
}

/// CPU 2 goes on writing after CPU 1 has forked its space; what the child then reads.
fn after_fork(broken: Option<Rule>) -> u64 {
    let host = machine(3, broken);
    host.run(bare("vanilla"), |mm| {
        let id = own(mm, 4, &[1, 2]);
        write_first(mm, id, 2, 5);
        let child = host.on(1, || mm.fork(id).unwrap());
        host.on(2, || host.write(mm, id, AT, 6).unwrap());
        mm.switch_to(child).unwrap();
        host.read(mm, child, AT).unwrap()
    })
}

#[test]
fn p01_a_fork_flushes_before_it_returns() {
    assert_eq!(after_fork(None), 5);
    assert_eq!(after_fork(Some(Rule::FlushBeforeForkReturns)), 6, "the parent writes to what is shared");
}

/// While CPU 0's flush waits for CPU 2, CPU 1 reclaims a page of the same space and stands still before its own flush.
/// CPU 0 then unmaps that page; gives what CPU 2 still reads there, and the flushes that were completed early.
fn deferred_during_a_flush(broken: Option<Rule>) -> (Option<u64>, u64) {
    let host = machine(3, broken);
    host.run(bare("linux"), |mm| {
        let (id, _) = showing(mm, 32, &[0, 2]);
        read_all(mm, id, 2, 32);
        host.on_forget.borrow_mut().push_back(Box::new(|mm| mm.platform().stop()));
        host.aside(
            1,
            || reclaim_all(mm),
            |_| {
                host.hold_interrupts.set(true);
                host.on_pause.borrow_mut().push_back(Box::new(|mm| {
                    assert!(mm.platform().resume(), "CPU 1 stands still, its batch not flushed");
                }));
                mm.flush_range(id, pages(AT + 20, 1)).unwrap();
                assert!(host.caches(2, AT), "that flush was for another page");
                assert!(!mm.lookup(id, PageNumber(AT)).unwrap().is_present());
                let before = mm.counter(Counter::DeferredCompleted);
                mm.unmap(id, pages(AT, 1)).unwrap();
                let completed = mm.counter(Counter::DeferredCompleted) - before;
                (host.on(2, || host.try_read(AT)), completed)
            },
        )
    })
}

#[test]
fn p02_what_is_deferred_during_a_flush_is_not_taken_for_flushed() {
    assert_eq!(deferred_during_a_flush(None), (None, 1));
    assert_eq!(deferred_during_a_flush(Some(Rule::NoteWhatWasFlushed)), (Some(0), 0));
}

/// CPU 0 writes out the eight pages that CPU 1 has dirtied, and frees them. CPU 1 wants to write to each while the device
/// has it; says how many it could, and how many of those writes are lost.
fn written_during_pageout(broken: Option<Rule>) -> (u32, u32) {
    let host = machine(2, broken);
    host.run(bare("linux"), |mm| {
        let (id, _) = showing(mm, 8, &[1]);
        host.on(1, || {
            (AT..AT + 8).for_each(|page| host.write(mm, id, page, 1).unwrap());
            mm.drain_lru_batch();
        });
        let written = Rc::new(Cell::new(0));
        for _ in 0..8 {
            let written = Rc::clone(&written);
            host.on_disk_write.borrow_mut().push_back(Box::new(move |mm| {
                let host = mm.platform();
                let Some(Happened::DiskWrite(_, block)) = host.log.borrow().last().copied() else {
                    panic!("a write was noted");
                };
                written.set(written.get() + u32::from(host.on(1, || host.try_write(AT + block, 2))));
            }));
        }
        reclaim_all(mm);
        let kept = host.on(1, || (AT..AT + 8).filter(|&page| host.read(mm, id, page) == Ok(2)).count());
        (written.get(), written.get() - kept as u32)
    })
}

#[test]
fn p03_a_dirty_page_is_flushed_before_its_io() {
    assert_eq!(written_during_pageout(None), (0, 0));
    assert_eq!(written_during_pageout(Some(Rule::FlushBeforeIo)), (8, 8));
}

/// CPU 2 has written to a page. CPU 0 unmaps it: the entry is out, the flush waits for CPU 2. CPU 1 writes the file
/// back meanwhile. Gives how many pages CPU 1 wrote, whether CPU 2 could still write when the device read the page, and
/// what the file holds in the end.
fn written_back_during_an_unmap(broken: Option<Rule>) -> (u64, bool, u64) {
    let host = machine(3, broken);
    host.run(bare("linux"), |mm| {
        let (id, file) = showing(mm, 1, &[0, 2]);
        write_first(mm, id, 2, 1);
        host.hold_interrupts.set(true);
        let (late, could_write) = found();
        let (count, written) = found();
        late.set(Some(false));
        host.on_pause.borrow_mut().push_back(Box::new(move |mm| {
            let host = mm.platform();
            let walks = host.on(0, || host.try_read(AT));
            assert!(host.caches(2, AT) && walks.is_none(), "the entry is out, and CPU 2 still has it");
            host.on_disk_write.borrow_mut().push_back(Box::new(move |mm| {
                let host = mm.platform();
                late.set(Some(host.on(2, || host.try_write(AT, 2))));
            }));
            count.set(Some(host.on(1, || mm.write_back(file).unwrap())));
        }));
        mm.unmap(id, pages(AT, 1)).unwrap();
        host.hold_interrupts.set(false);
        reclaim_all(mm);
        mm.map(id, pages(AT, 1), Backing::File { file, offset: 0 }, Prot::Read).unwrap();
        (written(), could_write(), host.read(mm, id, AT).unwrap())
    })
}

#[test]
fn p04_a_page_taken_out_and_not_flushed_is_not_written_back() {
    assert_eq!(written_back_during_an_unmap(None), (1, false, 1));
    assert_eq!(
        written_back_during_an_unmap(Some(Rule::TakenIsMapped)),
        (1, true, 1),
        "CPU 2 wrote 2 to a page that was clean by then: lost"
    );
}

#[test]
fn p04_a_taken_entrys_dirt_is_its_pages_before_anybody_looks() {
    assert_eq!(written_back_during_an_unmap(None), (1, false, 1));
    assert_eq!(
        written_back_during_an_unmap(Some(Rule::DirtyBeforeUnlock)),
        (0, false, 0),
        "the page passes for clean, and what was written is lost"
    );
}

/// CPU 1 has written to a page. CPU 0 reclaims; just before its `nth` access to the page's entry CPU 2 maps the page in
/// another space, so that it is in use after all. As soon as the next page has left its cache, and the batch is not
/// flushed, CPU 3 writes the first one back, and CPU 1 writes to it, if it can, when the device has it. Whether it came
/// to that, and whether the write is lost.
fn mapped_at(policy: &str, nth: u32) -> (bool, bool) {
    let host = machine(4, None);
    host.run(bare(policy), |mm| {
        let (other, file) = showing(mm, 1, &[2]);
        // What was mapped last is found first.
        let id = mm.create_space().unwrap();
        mm.map(id, pages(AT, 1), Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
        run_in(mm, id, &[1]);
        let others = mm.create_file(8).unwrap();
        mm.map(id, pages(AT + 8, 8), Backing::File { file: others, offset: 0 }, Prot::ReadWrite).unwrap();
        write_first(mm, id, 1, 1);
        host.on(1, || {
            (AT + 8..AT + 16).for_each(|page| assert!(host.read(mm, id, page).is_ok()));
            mm.drain_lru_batch();
        });
        // The other space's tables are made before memory runs short.
        mm.map(other, pages(AT + 8, 1), Backing::Anonymous, Prot::ReadWrite).unwrap();
        host.on(2, || assert!(host.read(mm, other, AT + 8).is_ok()));
        let (came, mapped) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
        let (touched, late) = (Rc::clone(&came), Rc::clone(&mapped));
        let map = move |mm: &Mm<'_>| {
            touched.set(true);
            mm.platform().on(2, || assert!(mm.platform().read(mm, other, AT).is_ok()));
        };
        host.on(1, || host.watch(AT, nth, Box::new(map)));
        host.on_forget.borrow_mut().push_back(Box::new(|mm| _ = mm.platform().resume()));
        host.on_disk_write.borrow_mut().push_back(Box::new(move |mm| {
            let host = mm.platform();
            late.set(u64::from(host.on(1, || host.try_write(AT, 2))));
        }));
        host.aside(3, || assert!(mm.write_back(file).is_ok()), |_| reclaim_all(mm));
        host.watch_nothing();
        reclaim_all(mm);
        let expected = 1 + mapped.get();
        (came.get(), host.on(1, || host.read(mm, id, AT)) != Ok(expected))
    })
}

#[test]
fn p04_a_page_that_is_kept_after_all_is_flushed_before_it_is_let_go() {
    for policy in ["vanilla", "linux", "linux+unmap=batch-clean"] {
        let lost: Vec<_> = (1..50).map(|nth| mapped_at(policy, nth)).take_while(|(came, _)| *came).collect();
        assert!(lost.len() >= 4, "{policy}: {} accesses to the entry", lost.len());
        assert!(lost.iter().all(|(_, lost)| !lost), "{policy}: {lost:?}");
    }
}

/// CPU 2 has a file's page cached at `AT`. CPU 0 moves it to `TO`; while that waits for its flush, CPU 1 reclaims all it
/// can. Later CPU 1 reclaims all again. Gives the cached pages after the first reclaim, and what CPU 2 then still
/// reads at the old address.
fn moved(broken: Option<Rule>) -> (Option<u64>, Option<u64>) {
    let host = machine(3, broken);
    host.run(bare("vanilla"), |mm| {
        let (id, file) = showing(mm, 1, &[0, 2]);
        write_first(mm, id, 2, 5);
        host.hold_interrupts.set(true);
        let during = Rc::new(Cell::new(None));
        let seen = Rc::clone(&during);
        host.on_pause.borrow_mut().push_back(Box::new(move |mm| {
            let host = mm.platform();
            assert!(host.caches(2, AT));
            // CPU 2 is deaf as long as that lasts, whoever waits.
            assert!(host.on(2, || host.irqs_off()));
            host.on(1, || reclaim_all(mm));
            assert_eq!(host.on(2, || host.try_read(AT)), Some(5), "still its page");
            host.on(2, || host.irqs_on());
            seen.set(Some(mm.cached_pages(file).unwrap()));
        }));
        mm.move_range(id, pages(AT, 1), PageNumber(TO)).unwrap();
        host.hold_interrupts.set(false);
        assert_eq!(host.read(mm, id, TO), Ok(5));
        let kept = during.take();
        // Without the flush nobody waited.
        host.on_pause.borrow_mut().clear();
        host.on(1, || reclaim_all(mm));
        assert_eq!(mm.cached_pages(file), Ok(0), "by its new address it can be reclaimed");
        let stale = host.on(2, || host.try_read(AT));
        assert_eq!(host.read(mm, id, TO), Ok(5));
        (kept, stale)
    })
}

#[test]
fn p05_a_moved_page_has_one_address_at_a_time() {
    assert_eq!(moved(None), (Some(1), None));
    let (_, stale) = moved(Some(Rule::FlushBeforeMove));
    assert!(stale.is_some(), "CPU 2 reads a frame that was freed by its new address");
}

/// A machine of two nodes; CPU 2 has a page of node 0 cached, which CPU 0 makes read-only (or not), and moves to
/// node 1. What CPU 2 reads then, after the old frame was given to somebody else; whether it can write; and what CPU 0
/// reads.
fn migrated(broken: Option<Rule>, narrowed: bool) -> (Option<u64>, bool, u64) {
    let regions = [(0, 0), (1, 512)].map(|(node, at)| Region {
        start: FrameNumber(0x1000 + at),
        frames: 512,
        node: NodeId(node),
    });
    let host = Host::new(Setup {
        cpus: 4,
        nodes: 2,
        frames: 1024,
        regions: Some(regions.to_vec()),
        ..Setup::default()
    });
    host.broken.set(broken);
    host.run(bare("vanilla"), |mm| {
        let id = own(mm, 1, &[0, 2]);
        write_first(mm, id, 0, 5);
        write_first(mm, id, 2, 5);
        if narrowed {
            mm.protect(id, pages(AT, 1), Prot::Read).unwrap();
            assert_eq!(host.on(2, || host.try_read(AT)), Some(5));
        }
        // Somebody else, whose tables are made, takes the frame.
        let other = own(mm, 2, &[1]);
        host.on(1, || host.write(mm, other, AT + 1, 1).unwrap());
        assert_eq!(mm.migrate(id, pages(AT, 1), NodeId(1)), Ok(1));
        mm.switch_to(other).unwrap();
        host.write(mm, other, AT, 77).unwrap();
        let read = host.on(2, || host.try_read(AT));
        let wrote = host.on(2, || host.try_write(AT, 6));
        mm.switch_to(id).unwrap();
        (read, wrote, host.read(mm, id, AT).unwrap())
    })
}

#[test]
fn p06_a_page_that_became_read_only_is_flushed_before_it_moves() {
    assert_eq!(migrated(None, true), (Some(5), false, 5));
    assert_eq!(
        migrated(Some(Rule::FlushNarrowed), true),
        (Some(77), false, 5),
        "it reads another space's page"
    );
}

#[test]
fn p06_a_page_is_flushed_before_it_is_copied_to_its_new_frame() {
    assert_eq!(migrated(None, false), (Some(5), true, 6));
    assert_eq!(
        migrated(Some(Rule::FlushBeforeMigrate), false),
        (Some(77), true, 5),
        "6 went to the old frame"
    );
}

/// CPU 1 has walked the tables of a whole 2 MiB span, which CPU 0 unmaps. CPU 1 is lazy; or it is not, and no page of the
/// span is left, so that only the tables want a flush. Gives how many tables were freed under it, and the interrupts.
fn tables_freed(broken: Option<Rule>, lazy: bool) -> (u32, usize) {
    let host = machine(2, broken);
    host.run(bare("vanilla"), |mm| {
        let id = own(mm, 512, &[0, 1]);
        write_first(mm, id, 1, 1);
        if lazy {
            host.on(1, || mm.enter_lazy());
        } else {
            mm.advise(id, pages(AT, 512), Advice::Drop).unwrap();
            assert_eq!(host.on(1, || host.try_read(AT)), None, "it walks, and finds no page");
        }
        host.forget();
        mm.unmap(id, pages(AT, 512)).unwrap();
        (host.stale.get(), host.interrupts())
    })
}

#[test]
fn p07_tables_are_freed_after_a_flush_that_lazy_cpus_hear() {
    for lazy in [false, true] {
        assert_eq!(tables_freed(None, lazy), (0, 1), "lazy: {lazy}");
        let (stale, interrupts) = tables_freed(Some(Rule::TablesAfterFlush), lazy);
        assert!(stale > 0 && interrupts == 0, "{stale} tables, lazy: {lazy}");
    }
    let (stale, interrupts) = tables_freed(Some(Rule::TablesToLazy), true);
    assert!(stale > 0 && interrupts == 0, "{stale} tables");
}

/// CPU 1 writes, CPU 0 writes the file back, CPU 1 writes again, CPU 0 reclaims: what CPU 1 reads in the end.
fn written_after_write_back(broken: Option<Rule>, guarantees: bool) -> u64 {
    let host = Host::new(Setup { cpus: 2, frames: 1024, guarantees, ..Setup::default() });
    host.broken.set(broken);
    host.run(bare(if guarantees { "linux" } else { "vanilla" }), |mm| {
        let (id, file) = showing(mm, 1, &[1]);
        write_first(mm, id, 1, 1);
        assert_eq!(mm.write_back(file), Ok(1));
        assert_eq!(host.on_disk(file.0, 0), Some(1));
        host.on(1, || host.write(mm, id, AT, 2).unwrap());
        reclaim_all(mm);
        assert_eq!(mm.cached_pages(file), Ok(0));
        host.on(1, || host.read(mm, id, AT).unwrap())
    })
}

#[test]
fn p36_a_dirty_bit_goes_only_with_the_right_to_write() {
    assert_eq!(written_after_write_back(None, true), 2);
    assert_eq!(written_after_write_back(None, false), 2, "and on a machine that guarantees nothing");
    assert_eq!(written_after_write_back(Some(Rule::CleanProtects), true), 1, "the second write is lost");
}

/// While CPU 0 writes a page out, CPU 1 wants to write to it: in the space that shows it already, or in one that must
/// fault it in. Whether it could before the device was done; what it reads, and how many pages are dirty, afterwards.
fn written_during_write_back(broken: Option<Rule>, maps: bool) -> (bool, u64, u64) {
    let host = machine(2, broken);
    host.run(bare("linux"), |mm| {
        let (first, file) = showing(mm, 1, &[1]);
        write_first(mm, first, 1, 1);
        let id = if maps { first } else { mm.create_space().unwrap() };
        if !maps {
            mm.map(id, pages(AT, 1), Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
            host.on(1, || mm.switch_to(id).unwrap());
        }
        let wrote = Rc::new(Cell::new(false));
        let (early, seen) = (Rc::clone(&wrote), Rc::clone(&wrote));
        let (during, could_write) = found();
        host.on_disk_write.borrow_mut().push_back(Box::new(move |mm| {
            mm.platform().resume();
            during.set(Some(early.get()));
        }));
        host.aside(
            1,
            || {
                host.write(mm, id, AT, 2).unwrap();
                seen.set(true);
            },
            |_| assert_eq!(mm.write_back(file), Ok(1)),
        );
        assert!(wrote.get(), "it writes as soon as the page is out");
        let read = host.on(1, || host.read(mm, id, AT).unwrap());
        (could_write(), read, mm.write_back(file).unwrap())
    })
}

#[test]
fn p36_a_write_waits_until_the_page_is_out() {
    for maps in [true, false] {
        assert_eq!(written_during_write_back(None, maps), (false, 2, 1));
        assert!(
            written_during_write_back(Some(Rule::WriteWaitsForIo), maps).0,
            "it writes while the device reads"
        );
    }
}

/// CPU 0 moves a page that CPU 2 has written to. While that waits for its flush, CPU 1 begins to write the page back, and
/// stands still while the device has it. Whether CPU 2 can write at the new address then, and what is there in the end.
fn written_after_a_move(broken: Option<Rule>) -> (bool, u64) {
    let host = machine(3, broken);
    host.run(bare("linux"), |mm| {
        let (id, file) = showing(mm, 1, &[0, 2]);
        write_first(mm, id, 2, 1);
        host.on_disk_write.borrow_mut().push_back(Box::new(|mm| mm.platform().stop()));
        let early = host.aside(
            1,
            || assert_eq!(mm.write_back(file), Ok(1)),
            |_| {
                host.hold_interrupts.set(true);
                host.on_pause.borrow_mut().push_back(Box::new(|mm| {
                    assert!(mm.platform().resume(), "the device has the page");
                }));
                mm.move_range(id, pages(AT, 1), PageNumber(TO)).unwrap();
                host.hold_interrupts.set(false);
                host.on(2, || host.try_write(TO, 2))
            },
        );
        host.on(2, || host.write(mm, id, TO, 2).unwrap());
        reclaim_all(mm);
        assert_eq!(mm.cached_pages(file), Ok(0));
        (early, host.read(mm, id, TO).unwrap())
    })
}

#[test]
fn p36_a_page_that_is_moved_cannot_be_written_until_it_is_out() {
    assert_eq!(written_after_a_move(None), (false, 2));
    assert_eq!(written_after_a_move(Some(Rule::WriteWaitsForIo)), (true, 2));
}

/// CPU 2 has written to a page, or only read it. CPU 0 makes it read-only; while that waits for its flush, CPU 1 writes
/// the file back. Whether CPU 2 can still write when the device has the page.
fn written_back_during_a_protect(broken: Option<Rule>, guarantees: bool, dirty_here: bool) -> bool {
    let host = Host::new(Setup { cpus: 3, frames: 1024, guarantees, ..Setup::default() });
    host.broken.set(broken);
    host.run(bare("vanilla"), |mm| {
        let (id, file) = showing(mm, 1, &[0, 2]);
        write_first(mm, id, 0, 1);
        if !dirty_here {
            // Dirty is only the page, by an entry that is gone.
            mm.unmap(id, pages(AT, 1)).unwrap();
            mm.map(id, pages(AT, 1), Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
        }
        host.on(2, || assert_eq!(host.read(mm, id, AT), Ok(1)));
        if dirty_here {
            host.on(2, || host.write(mm, id, AT, 1).unwrap());
        }
        host.hold_interrupts.set(true);
        let (late, could_write) = found();
        host.on_pause.borrow_mut().push_back(Box::new(move |mm| {
            let host = mm.platform();
            host.on_disk_write.borrow_mut().push_back(Box::new(move |mm| {
                let host = mm.platform();
                late.set(Some(host.on(2, || host.try_write(AT, 2))));
            }));
            assert_eq!(host.on(1, || mm.write_back(file)), Ok(1));
        }));
        mm.protect(id, pages(AT, 1), Prot::Read).unwrap();
        could_write()
    })
}

#[test]
fn p36_a_page_that_becomes_read_only_is_flushed_before_its_io() {
    for dirty_here in [true, false] {
        for guarantees in [true, false] {
            let late = written_back_during_a_protect(None, guarantees, dirty_here);
            assert!(!late, "guarantees: {guarantees}, dirty: {dirty_here}");
        }
    }
    for (guarantees, dirty_here) in [(true, true), (false, true), (false, false)] {
        let late = written_back_during_a_protect(Some(Rule::CleanProtects), guarantees, dirty_here);
        assert!(late, "guarantees: {guarantees}, dirty: {dirty_here}");
    }
}

#[test]
fn p37_an_address_is_flushed_before_it_is_mapped_again() {
    let seen = |broken| {
        in_the_window(broken, |mm, id| {
            let host = mm.platform();
            host.write(mm, id, AT, 7).unwrap();
            (host.read(mm, id, AT).unwrap(), host.on(2, || host.read(mm, id, AT).unwrap()))
        })
    };
    assert_eq!(seen(None), (7, 7));
    assert_eq!(seen(Some(Rule::RefaultAfterFlush)), (7, 0), "two threads, two contents");
}

/// CPU 2 has a page cached that a fork shares; CPU 1 writes to it and gets a copy. What each then reads.
fn copied(broken: Option<Rule>) -> (u64, u64) {
    let host = machine(3, broken);
    host.run(bare("vanilla"), |mm| {
        let id = own(mm, 1, &[1, 2]);
        write_first(mm, id, 1, 5);
        host.on(1, || mm.fork(id).unwrap());
        let read = |cpu| host.on(cpu, || host.read(mm, id, AT).unwrap());
        assert_eq!(read(2), 5);
        host.on(1, || host.write(mm, id, AT, 7).unwrap());
        (read(1), read(2))
    })
}

#[test]
fn p37_the_original_is_flushed_before_its_copy_is_mapped() {
    assert_eq!(copied(None), (7, 7));
    assert_eq!(copied(Some(Rule::FlushBeforeCopyMaps)), (7, 5), "two threads, two contents");
}

/// CPU 1 has read a page. CPU 0 ages and reclaims it; just before the core's `nth` access to the entry CPU 1 writes,
/// if it can without a fault. Whether it came to that, and whether the write is lost.
fn written_at(broken: Option<Rule>, policy: &str, nth: u32) -> (bool, bool) {
    let host = machine(2, broken);
    host.run(bare(policy), |mm| {
        let (id, file) = showing(mm, 1, &[1]);
        read_all(mm, id, 1, 1);
        let wrote = Rc::new(Cell::new(None));
        let seen = Rc::clone(&wrote);
        let write = move |mm: &Mm<'_>| {
            let host = mm.platform();
            seen.set(Some(host.on(1, || host.try_write(AT, 9))));
        };
        host.on(1, || host.watch(AT, nth, Box::new(write)));
        reclaim_all(mm);
        assert_eq!(mm.cached_pages(file), Ok(0));
        host.watch_nothing();
        let kept = host.on(1, || host.read(mm, id, AT)) == Ok(9);
        (wrote.get().is_some(), wrote.get() == Some(true) && !kept)
    })
}

/// The placements of a write among the accesses to the entry, and how many of them lose it.
fn placements(broken: Option<Rule>, policy: &str) -> (u32, u32) {
    let lost = (1..100).map(|nth| written_at(broken, policy, nth)).take_while(|(came, _)| *came);
    lost.fold((0, 0), |(all, lost), (_, one)| (all + 1, lost + u32::from(one)))
}

#[test]
fn p38_a_dirty_bit_set_while_the_accessed_bit_is_cleared_survives() {
    for policy in ["vanilla", "linux"] {
        let (all, lost) = placements(None, policy);
        assert!(all >= 4, "{all} accesses to the entry");
        assert_eq!(lost, 0, "{policy}");
        let (all, lost) = placements(Some(Rule::AtomicAccessedClear), policy);
        assert!(lost > 0 && lost < all, "{policy}: {lost} of {all}");
    }
}

/// CPU 1 has read a page of a machine that promises nothing of writes through clean entries. CPU 0 reclaims the page,
/// and as soon as it has left the cache CPU 1 writes. Whether it could, and whether the write is lost.
fn written_without_a_walk(broken: Option<Rule>, policy: &str, guarantees: bool) -> (bool, bool) {
    let host = Host::new(Setup { cpus: 2, frames: 1024, guarantees, ..Setup::default() });
    host.broken.set(broken);
    host.run(bare(policy), |mm| {
        let (id, _) = showing(mm, 1, &[1]);
        read_all(mm, id, 1, 1);
        let (wrote, could_write) = found();
        host.on_forget.borrow_mut().push_back(Box::new(move |mm| {
            let host = mm.platform();
            wrote.set(Some(host.on(1, || host.try_write(AT, 9))));
        }));
        reclaim_all(mm);
        let kept = host.on(1, || host.read(mm, id, AT)) == Ok(9);
        (could_write(), could_write() && !kept)
    })
}

#[test]
fn p39_a_policy_without_its_guarantee_is_refused() {
    let host = Host::new(Setup { guarantees: false, ..Setup::default() });
    for (policy, name, guarantee) in [
        ("linux", "unmap=batch", "with_clean_write_walks"),
        ("vanilla+unmap=batch-clean", "unmap=batch-clean", "with_clean_write_walks"),
        ("vanilla+aging=no-flush", "aging=no-flush", "with_unflushed_accessed"),
    ] {
        let refused = Manager::new(&host, &host.regions(), bare(policy)).err();
        assert_eq!(refused, Some(Error::GuaranteeMissing { policy: name, guarantee }));
    }
    assert_eq!(written_without_a_walk(None, "vanilla", false), (false, false), "flushed before it leaves");
    assert_eq!(written_without_a_walk(None, "linux", true), (false, false), "with the guarantee it walks");
    for policy in ["linux", "linux+unmap=batch-clean"] {
        let lost = written_without_a_walk(Some(Rule::AskGuarantees), policy, false);
        assert_eq!(lost, (true, true), "{policy}: made all the same, it loses a write");
    }
}

const RULES: &str = include_str!("../../../docs/rules.md");

/// A file of tests, as the document names it: of this directory, or by its path from the top.
fn source(file: &str) -> String {
    let from = if file.contains('/') { "../.." } else { "tests" };
    let at = format!("{}/{from}/{file}.rs", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&at).unwrap_or_else(|error| panic!("{at}: {error}"))
}

/// What is between backticks in a text.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_rule_and_every_test_of_the_document_exists() {
    let (_, faults) = RULES.split_once("## Known faults").expect("docs/rules.md: the list of faults");
    let named: Vec<_> = quoted(faults).collect();
    let (_, broken) = faults.split_once("## Where each rule is broken").expect("the list of controls");
    for rule in Rule::ALL {
        let row = broken.lines().find(|line| line.starts_with(&format!("| `{rule}` |")));
        let tests =
            quoted(row.unwrap_or_else(|| panic!("docs/rules.md does not say who breaks {rule}"))).skip(1);
        let files: Vec<_> = tests.filter_map(|test| test.split_once(".rs").map(|(file, _)| file)).collect();
        assert!(!files.is_empty(), "docs/rules.md names no test that breaks {rule}");
        for file in files {
            assert!(source(file).contains(&format!("Rule::{rule:?}")), "{file}.rs does not break {rule}");
        }
        assert!(named.contains(&rule.name()), "docs/rules.md names no fault for the rule {rule}");
    }
    let tests = named.iter().filter_map(|name| name.split_once(".rs: "));
    let mut checked = 0;
    for (file, test) in tests {
        assert!(source(file).contains(&format!("#[test]\nfn {test}()")), "{file}.rs has no test {test}");
        checked += 1;
    }
    assert!(checked >= 60, "only {checked} tests are named");
    // And back: the tests of faults are in the document.
    for file in ["pitfalls", "hotplug", "parallel"] {
        let text = source(file);
        let tests = text.lines().filter_map(|line| line.strip_prefix("fn p")?.strip_suffix("() {"));
        for test in tests.filter(|test| test.starts_with(|first: char| first.is_ascii_digit())) {
            let name = format!("{file}.rs: p{test}");
            assert!(named.contains(&name.as_str()), "docs/rules.md does not name {name}");
        }
    }
}
