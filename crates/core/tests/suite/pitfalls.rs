//! The faults that grown systems had when they unmap, protect, move and free, one test each, by the numbers of
//! `docs/rules.md`: what is to be expected of a sound core, and that the fault is seen when it is put back. The other
//! numbers are in `entries.rs`, `hotplug.rs` and `parallel.rs`.

use crate::machine;

use std::cell::Cell;
use std::rc::Rc;

use machine::faults::{
    AT, TO, found, in_the_window, machine, own, read_all, reclaim_all, run_in, showing, write_first,
};
use machine::{Happened, Host, Mm, Setup, bare, pages};
use quietmm::platform::Cpus;
use quietmm::{Advice, Backing, Counter, FrameNumber, NodeId, PageNumber, Prot, Region, Rule, SpaceId};

type Operation = fn(&Mm<'_>, SpaceId);

#[test]
fn p01_an_unmap_completes_what_reclaim_deferred() {
    let operations: [(&str, Operation); 5] = [
        ("unmap", |mm, id| mm.space(id).unmap(pages(AT, 1)).unwrap()),
        ("protect", |mm, id| mm.space(id).protect(pages(AT, 1), Prot::None).unwrap()),
        ("move", |mm, id| mm.space(id).move_range(pages(AT, 1), PageNumber(TO)).unwrap()),
        ("drop", |mm, id| mm.space(id).advise(pages(AT, 1), Advice::Drop).unwrap()),
        ("fork", |mm, id| assert_ne!(mm.space(id).fork().unwrap(), id)),
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
    let unmap: Operation = |mm, id| mm.space(id).unmap(pages(AT, 1)).unwrap();
    assert_eq!(after(None, unmap), (None, false));
    assert_eq!(after(Some(Rule::FlushBeforeUnmapReturns), unmap), (Some(5), true));
}

#[test]
fn p01_a_protect_flushes_before_it_returns() {
    let protect: Operation = |mm, id| mm.space(id).protect(pages(AT, 1), Prot::Read).unwrap();
    assert_eq!(after(None, protect), (Some(5), false));
    assert_eq!(after(Some(Rule::FlushBeforeProtectReturns), protect), (Some(5), true));
    let protect: Operation = |mm, id| mm.space(id).protect(pages(AT, 1), Prot::None).unwrap();
    assert_eq!(after(None, protect), (None, false));
    assert_eq!(after(Some(Rule::FlushBeforeProtectReturns), protect), (Some(5), true));
}

#[test]
fn p01_a_drop_flushes_before_it_returns() {
    let drop: Operation = |mm, id| mm.space(id).advise(pages(AT, 1), Advice::Drop).unwrap();
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
        let child = host.on(1, || mm.space(id).fork().unwrap());
        host.on(2, || host.write(mm, id, AT, 6).unwrap());
        mm.space(child).switch_to().unwrap();
        host.read(mm, child, AT).unwrap()
    })
}

#[test]
fn p01_a_fork_flushes_before_it_returns() {
    assert_eq!(after_fork(None), 5);
    assert_eq!(after_fork(Some(Rule::FlushBeforeForkReturns)), 6, "the parent writes to what is shared");
}

/// While CPU 0's flush waits for CPU 2, CPU 1 reclaims a page of the same space and stands still before its own flush.
/// CPU 0 then unmaps that page; returns what CPU 2 still reads there, and the flushes that were completed early.
fn deferred_during_a_flush(broken: Option<Rule>) -> (Option<u64>, u64) {
    let host = machine(3, broken);
    host.run(bare("linux"), |mm| {
        let (id, _) = showing(mm, 32, &[0, 2]);
        read_all(mm, id, 2, 32);
        host.when_unmapped(id, AT, |mm| mm.platform().stop());
        host.aside(
            1,
            || reclaim_all(mm),
            |_| {
                host.hold_interrupts.set(true);
                host.on_pause.borrow_mut().push_back(Box::new(|mm| {
                    assert!(mm.platform().resume(), "CPU 1 stands still, its batch not flushed");
                }));
                mm.space(id).flush_range(pages(AT + 20, 1)).unwrap();
                assert!(host.caches(2, AT), "that flush was for another page");
                assert!(!mm.space(id).lookup(PageNumber(AT)).unwrap().is_present());
                let before = mm.counter(Counter::DeferredCompleted);
                mm.space(id).unmap(pages(AT, 1)).unwrap();
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
/// back meanwhile. Returns how many pages CPU 1 wrote, whether CPU 2 could still write when the device read the page, and
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
            count.set(Some(host.on(1, || mm.file(file).write_back().unwrap())));
        }));
        mm.space(id).unmap(pages(AT, 1)).unwrap();
        host.hold_interrupts.set(false);
        reclaim_all(mm);
        mm.space(id).map(pages(AT, 1), Backing::File { file, offset: 0 }, Prot::Read).unwrap();
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
/// another space, so that it is in use after all. As soon as the entry of the next page is out, and the batch is not
/// flushed, CPU 3 writes the first one back, and CPU 1 writes to it, if it can, when the device has it. Whether it came
/// to that, and whether the write is lost.
fn mapped_at(policy: &str, nth: u32) -> (bool, bool) {
    let host = machine(4, None);
    host.run(bare(policy), |mm| {
        let (other, file) = showing(mm, 1, &[2]);
        // What was mapped last is found first.
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(AT, 1), Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
        run_in(mm, id, &[1]);
        let others = mm.create_file(8).unwrap();
        mm.space(id)
            .map(pages(AT + 8, 8), Backing::File { file: others, offset: 0 }, Prot::ReadWrite)
            .unwrap();
        write_first(mm, id, 1, 1);
        host.on(1, || {
            (AT + 8..AT + 16).for_each(|page| assert!(host.read(mm, id, page).is_ok()));
            mm.drain_lru_batch();
        });
        // The other space's tables are made before memory runs short.
        mm.space(other).map(pages(AT + 8, 1), Backing::Anonymous, Prot::ReadWrite).unwrap();
        host.on(2, || assert!(host.read(mm, other, AT + 8).is_ok()));
        let (came, mapped) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
        let (touched, late) = (Rc::clone(&came), Rc::clone(&mapped));
        let map = move |mm: &Mm<'_>| {
            touched.set(true);
            mm.platform().on(2, || assert!(mm.platform().read(mm, other, AT).is_ok()));
        };
        host.on(1, || host.watch(AT, nth, Box::new(map)));
        host.when_unmapped(id, AT + 8, |mm| _ = mm.platform().resume());
        host.on_disk_write.borrow_mut().push_back(Box::new(move |mm| {
            let host = mm.platform();
            late.set(u64::from(host.on(1, || host.try_write(AT, 2))));
        }));
        host.aside(3, || assert!(mm.file(file).write_back().is_ok()), |_| reclaim_all(mm));
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
/// can. Later CPU 1 reclaims all again. Returns the cached pages after the first reclaim, and what CPU 2 then still
/// reads at the old address.
fn moved(broken: Option<Rule>) -> (Option<u64>, Option<u64>) {
    let host = machine(3, broken);
    // CPU 2 is deaf for a while: no drain may wait for it.
    host.run(bare("vanilla+drain=remote"), |mm| {
        let (id, file) = showing(mm, 1, &[0, 2]);
        write_first(mm, id, 2, 5);
        // Both tables stay, whoever looks for memory: they would want a flush of their own.
        for at in [AT + 8, TO + 8] {
            mm.space(id).map(pages(at, 1), Backing::Anonymous, Prot::Read).unwrap();
            host.read(mm, id, at).unwrap();
        }
        host.hold_interrupts.set(true);
        let during = Rc::new(Cell::new(None));
        let seen = Rc::clone(&during);
        host.on_pause.borrow_mut().push_back(Box::new(move |mm| {
            let host = mm.platform();
            assert!(host.caches(2, AT));
            // CPU 2 is deaf as long as that lasts, whoever waits.
            assert!(host.on(2, || host.irqs_off()));
            host.on(1, || reclaim_all(mm));
            host.uses_windows.set(true);
            assert_eq!(host.on(2, || host.try_read(AT)), Some(5), "still its page");
            host.on(2, || host.irqs_on());
            seen.set(Some(mm.file(file).cached_pages().unwrap()));
        }));
        mm.space(id).move_range(pages(AT, 1), PageNumber(TO)).unwrap();
        host.hold_interrupts.set(false);
        assert_eq!(host.read(mm, id, TO), Ok(5));
        let kept = during.take();
        // Without the flush nobody waited.
        host.on_pause.borrow_mut().clear();
        host.on(1, || reclaim_all(mm));
        assert_eq!(mm.file(file).cached_pages(), Ok(0), "by its new address it can be reclaimed");
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
        start: FrameNumber(0xfc00 + at),
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
            mm.space(id).protect(pages(AT, 1), Prot::Read).unwrap();
            assert_eq!(host.on(2, || host.try_read(AT)), Some(5));
        }
        // Somebody else, whose tables are made, takes the frame.
        let other = own(mm, 2, &[1]);
        host.on(1, || host.write(mm, other, AT + 1, 1).unwrap());
        assert_eq!(mm.space(id).migrate(pages(AT, 1), NodeId(1)), Ok(1));
        mm.space(other).switch_to().unwrap();
        host.write(mm, other, AT, 77).unwrap();
        let read = host.on(2, || host.try_read(AT));
        let wrote = host.on(2, || host.try_write(AT, 6));
        mm.space(id).switch_to().unwrap();
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
/// span is left, so that only the tables want a flush. Returns how many tables were freed under it, and the interrupts.
fn tables_freed(broken: Option<Rule>, lazy: bool) -> (u32, usize) {
    let host = machine(2, broken);
    host.run(bare("vanilla"), |mm| {
        let id = own(mm, 512, &[0, 1]);
        write_first(mm, id, 1, 1);
        if lazy {
            host.on(1, || mm.enter_lazy());
        } else {
            mm.space(id).advise(pages(AT, 512), Advice::Drop).unwrap();
            assert_eq!(host.on(1, || host.try_read(AT)), None, "it walks, and finds no page");
        }
        host.forget();
        mm.space(id).unmap(pages(AT, 512)).unwrap();
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
