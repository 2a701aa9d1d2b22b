//! What a batch of reclaim flushes, and what others flush for it; why each flush comes.

use crate::machine;

use std::cell::Cell;
use std::rc::Rc;

use machine::flushing::{AT, cached, shared};
use machine::race::{Cases, at_every_touch, race};
use machine::{Happened, Host, Mm, Setup, bare, exhaust, give_back, pages, pcp, settled};
use quietmm::event::FlushReason;
use quietmm::{Advice, AllocFrom, Backing, Config, Counter, Event, NodeId, PageNumber, Prot, Rule, SpaceId};

/// CPU 0 reclaims file pages that CPU 2 has cached. When the first page's entry is cleared and not flushed, CPU 1
/// does `then`. Says whether CPU 2 still has that page when `then` is done, and how many flushes were completed
/// early.
fn in_the_window(broken: Option<Rule>, then: impl Fn(&Mm<'_>, SpaceId) + 'static) -> (bool, u64) {
    in_the_window_after(0, broken, then)
}

/// The same in a space that was flushed so often before.
fn in_the_window_after(
    flushes: u32,
    broken: Option<Rule>,
    then: impl Fn(&Mm<'_>, SpaceId) + 'static,
) -> (bool, u64) {
    let host = Host::new(Setup { cpus: 3, ..Setup::default() });
    host.broken.set(broken);
    host.run(Config { page_lists: pcp(31), ..bare("linux") }, |mm| {
        let (id, file) = cached(mm, 32, &[1, 2]);
        if flushes > 0 {
            [1, 2].iter().for_each(|&cpu| host.on(cpu, || mm.unload()));
            (0..flushes).for_each(|_| mm.space(id).flush().unwrap());
            for cpu in [1, 2] {
                host.on(cpu, || {
                    mm.space(id).switch_to().unwrap();
                    (AT..AT + 32).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(0)));
                });
            }
        }
        // What CPU 1 will need is on its lists.
        host.on(1, || {
            mm.frames().drain_here();
            mm.frames().free(mm.frames().alloc(0, AllocFrom::NOW).unwrap());
        });
        let seen = Rc::new(Cell::new(None));
        let result = Rc::clone(&seen);
        host.when_unmapped(id, AT, move |mm| {
            let host = mm.platform();
            assert!(host.caches(2, AT), "the window is open");
            let before = mm.counter(Counter::DeferredCompleted);
            host.on(1, || then(mm, id));
            result.set(Some((host.caches(2, AT), mm.counter(Counter::DeferredCompleted) - before)));
        });
        let held = exhaust(mm);
        assert!(mm.file(file).cached_pages().unwrap() <= 1);
        give_back(mm, held);
        seen.get().expect("the window came")
    })
}

#[test]
fn an_unmap_completes_what_reclaim_deferred() {
    let unmap = |mm: &Mm<'_>, id| mm.space(id).unmap(pages(AT, 1)).unwrap();
    assert_eq!(in_the_window(None, unmap), (false, 1));
    assert_eq!(in_the_window(Some(Rule::DeferredBeforeUnmapReturns), unmap), (true, 0));
    // Also where numbers of 16 bits would come round between the last flush and what is deferred.
    for flushes in (1 << 16) - 3..=1 << 16 {
        assert_eq!(in_the_window_after(flushes, None, unmap), (false, 1), "{flushes} flushes before");
    }
}

#[test]
fn an_unmap_elsewhere_in_the_space_completes_it_with_its_own_flush() {
    // The range has a page that is present: one flush does for both.
    let unmap = |mm: &Mm<'_>, id| {
        let before = mm.counter(Counter::RemoteFlush);
        mm.space(id).unmap(pages(AT, 32)).unwrap();
        assert_eq!(mm.counter(Counter::RemoteFlush) - before, 1);
    };
    assert_eq!(in_the_window(None, unmap), (false, 0));
}

#[test]
fn a_page_that_is_wanted_before_its_flush_is_mapped_again_without_one() {
    // It is still in its cache: what CPU 2 has cached leads to the same frame.
    let refault = |mm: &Mm<'_>, id| {
        mm.space(id).fault(PageNumber(AT).addr(), quietmm::UserAccess::Read).unwrap();
        assert!(mm.space(id).lookup(PageNumber(AT)).unwrap().is_present());
    };
    assert_eq!(in_the_window(None, refault), (true, 0));
}

/// CPU 0, with a space of its own loaded, reclaims `count` pages that CPU 1 has cached.
fn reclaimed_beside(count: u64, lazy: bool, check: impl FnOnce(&Mm<'_>, SpaceId)) {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    // Tables are flushed for themselves.
    host.broken.set(Some(Rule::TablesBeforeVictim));
    host.run(bare("linux"), |mm| {
        shared(mm, 1, &[0]);
        let (id, _) = cached(mm, count, &[1]);
        if lazy {
            host.on(1, || mm.enter_lazy());
        }
        host.forget();
        give_back(mm, exhaust(mm));
        assert_eq!(mm.space(id).lookup(PageNumber(AT)).map(|entry| entry.is_present()), Ok(false));
        check(mm, id);
        host.on(1, || mm.unload());
    });
}

#[test]
fn a_batch_is_flushed_where_its_pages_were_used_and_nowhere_else() {
    reclaimed_beside(32, false, |mm, _| {
        let host = mm.platform();
        assert_eq!((host.flushes(0), host.flushes(1)), ((0, 0), (1, 0)));
        assert_eq!(host.interrupts_to(1) as u64 - mm.counter(Counter::DrainIpisSent), 1);
    });
    reclaimed_beside(32, true, |mm, id| {
        let host = mm.platform();
        assert_eq!((host.flushes(0), host.flushes(1)), ((0, 0), (0, 0)), "it is lazy");
        assert_eq!(host.interrupts_to(1) as u64, mm.counter(Counter::DrainIpisSent));
        host.on(1, || assert_eq!((mm.leave_lazy(), host.read(mm, id, AT)), (Some(id), Ok(0))));
        assert_eq!((host.flushes(1), host.stale.get()), ((1, 0), 0));
    });
}

#[test]
fn what_a_batch_has_flushed_no_operation_flushes_again() {
    // In one space after the other, more of them than a batch can vouch for, so that what one batch noted is not the next one's.
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.broken.set(Some(Rule::TablesBeforeVictim));
    host.run(bare("linux"), |mm| {
        for n in 0..40 {
            let (id, file) = cached(mm, 4, &[1]);
            host.forget();
            give_back(mm, exhaust(mm));
            let flushes = host.flushes(1);
            assert_eq!(flushes, (1, 0));
            mm.space(id).unmap(pages(AT, 1)).unwrap();
            assert_eq!(mm.counter(Counter::DeferredCompleted), 0, "space {n}");
            assert_eq!(host.flushes(1), flushes, "space {n}: nothing was left to flush");
            host.on(1, || mm.unload());
            mm.space(id).destroy().unwrap();
            mm.file(file).destroy().unwrap();
        }
    });
}

#[test]
fn batches_that_one_flush_answers_cost_one() {
    // CPUs 1 and 2 each write a file back that CPU 3 has written to, while that one does not look.
    let host = Host::new(Setup { cpus: 4, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let files = [mm.create_file(4).unwrap(), mm.create_file(4).unwrap()];
        let id = mm.create_space().unwrap();
        for (at, file) in [AT, AT + 4].into_iter().zip(files) {
            mm.space(id).map(pages(at, 4), Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
        }
        host.on(3, || {
            mm.space(id).switch_to().unwrap();
            (AT..AT + 8).for_each(|page| host.write(mm, id, page, page).unwrap());
            mm.drain_lru_batch();
        });
        host.forget();
        host.hold_interrupts.set(true);
        host.on_pause.borrow_mut().push_back(Box::new(move |mm| {
            mm.platform().on(2, || assert_eq!(mm.file(files[1]).write_back(), Ok(4)));
        }));
        host.on(1, || assert_eq!(mm.file(files[0]).write_back(), Ok(4)));
        host.hold_interrupts.set(false);
        assert_eq!((host.flushes(3), host.interrupts_to(3)), ((1, 0), 1));
        host.on(3, || mm.unload());
    });
}

#[test]
fn a_lazy_cpu_is_left_alone_by_a_flush_that_completes_anothers() {
    let host = Host::new(Setup { cpus: 3, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let (id, _) = cached(mm, 32, &[1, 2]);
        host.on(2, || mm.enter_lazy());
        host.when_unmapped(id, AT, move |mm| {
            let host = mm.platform();
            host.forget();
            mm.platform().on(1, || mm.space(id).unmap(pages(AT, 1)).unwrap());
            assert_eq!(mm.counter(Counter::DeferredCompleted), 1);
            assert_eq!(host.interrupts_to(2), 0);
            assert_eq!(host.on(2, || mm.loaded_space()), Some(id));
        });
        give_back(mm, exhaust(mm));
        (1..3).for_each(|cpu| host.on(cpu, || mm.unload()));
    });
}

/// Why flushes were asked for since [`Host::forget`].
fn reasons(host: &Host) -> Vec<FlushReason> {
    let reason = |what: &Happened| match what {
        Happened::Event(Event::RemoteFlush { reason, .. }) => Some(*reason),
        _ => None,
    };
    host.log.borrow().iter().filter_map(reason).collect()
}

#[test]
fn each_flush_says_why() {
    type Work = fn(&Mm<'_>, SpaceId);
    let cases: [(FlushReason, Work); 9] = [
        (FlushReason::Asked, |mm, id| mm.space(id).flush_range(pages(AT, 1)).unwrap()),
        (FlushReason::Asked, |mm, id| mm.space(id).flush().unwrap()),
        (FlushReason::Unmap, |mm, id| mm.space(id).unmap(pages(AT, 1)).unwrap()),
        (FlushReason::Protect, |mm, id| mm.space(id).protect(pages(AT, 4), Prot::Read).unwrap()),
        (FlushReason::Move, |mm, id| mm.space(id).move_range(pages(AT, 4), PageNumber(AT + 64)).unwrap()),
        (FlushReason::Fork, |mm, id| {
            let child = mm.space(id).fork().unwrap();
            mm.space(child).destroy().unwrap();
        }),
        (FlushReason::Drop, |mm, id| mm.space(id).advise(pages(AT, 4), Advice::Drop).unwrap()),
        (FlushReason::Migrate, |mm, id| _ = mm.space(id).migrate(pages(AT, 1), NodeId(0)).unwrap()),
        (FlushReason::KernelUnmap, |mm, _| {
            let frames = machine::kernel::frames(mm, 1);
            let range = mm.vmap().map(&frames, machine::kernel::BARE, machine::kernel::RW).unwrap();
            mm.vmap().unmap(range.start).unwrap();
            machine::kernel::free(mm, frames);
        }),
    ];
    for (reason, work) in cases {
        let host = Host::new(Setup { cpus: 2, ..Setup::default() });
        host.run(machine::kernel::kernel("vanilla", 64), |mm| {
            let id = shared(mm, 4, &[1]);
            work(mm, id);
            let mut told = reasons(&host);
            told.dedup();
            let moved = matches!(reason, FlushReason::Migrate) && told.is_empty();
            assert!(told == [reason] || moved, "{reason:?}: {told:?}");
            host.on(1, || mm.unload());
        });
    }
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.broken.set(Some(Rule::TablesBeforeVictim));
    host.run(machine::kernel::kernel("linux", 64), |mm| {
        let frames = machine::kernel::frames(mm, 1);
        let range = mm.vmap().map(&frames, machine::kernel::BARE, machine::kernel::RW).unwrap();
        mm.vmap().unmap(range.start).unwrap();
        host.forget();
        mm.vmap().purge().unwrap();
        assert_eq!(reasons(&host), [FlushReason::Purge]);
        machine::kernel::free(mm, frames);
        // Write-back, reclaim.
        let (id, file) = cached(mm, 4, &[1]);
        host.on(1, || (AT..AT + 4).for_each(|page| host.write(mm, id, page, page).unwrap()));
        host.forget();
        mm.file(file).write_back().unwrap();
        assert_eq!(reasons(&host), [FlushReason::Clean]);
        host.on(1, || (AT..AT + 4).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(page))));
        host.forget();
        give_back(mm, exhaust(mm));
        let told = reasons(&host);
        assert!(!told.is_empty() && told.iter().all(|why| *why == FlushReason::ReclaimBatch), "{told:?}");
        host.on(1, || mm.unload());
    });
}

/// A task of CPU 1 waits for a page in the middle of a batch, and another one on this CPU makes a batch meanwhile: a CPU keeps one of them,
/// and the other goes back.
#[test]
fn batches_of_two_tasks_of_one_cpu_are_given_back() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.patient.set(true);
    host.run(bare("linux"), |mm| {
        let files = [0; 2].map(|_| {
            let file = mm.create_file(1).unwrap();
            mm.file(file).write(0, &[3; 8]).unwrap();
            file
        });
        let write_back = |file| mm.file(file).write_back().unwrap();
        host.place();
        host.on_disk_write.borrow_mut().push_back(Box::new(|mm| mm.platform().stop()));
        host.aside(
            0,
            || assert_eq!(write_back(files[0]), 1),
            |first| {
                assert!(host.resume_one(first), "the device has the page");
                host.aside(
                    1,
                    || _ = write_back(files[0]),
                    |second| {
                        assert!(host.resume_one(second), "it waits for the page");
                        assert_eq!(host.on(1, || write_back(files[1])), 1);
                        while [first, second].map(|aside| host.resume_one(aside)).contains(&true) {}
                    },
                );
            },
        );
        host.all_placed();
        let end = settled(mm);
        assert_eq!((end.broken, end.batches), (None, 0));
    });
}

/// A flush of the whole space that somebody has begun is not done before each CPU has flushed: an operation that comes meanwhile, and has nothing to
/// flush itself, does not return with what reclaim deferred.
#[test]
fn a_flush_that_is_under_way_has_completed_nothing_yet() {
    let setup = Setup { cpus: 4, ..Setup::default() };
    let Cases { results, .. } = at_every_touch(&setup, &bare("linux"), None, |mm, place| {
        let (id, _) = cached(mm, 1, &[1, 2]);
        let host = mm.platform();
        // With this beside it the page's table stays, which would want a flush of its own.
        mm.space(id).map(pages(AT + 8, 1), Backing::Anonymous, Prot::Read).unwrap();
        let seen = Rc::new(Cell::new(false));
        let result = Rc::clone(&seen);
        host.when_unmapped(id, AT, move |mm| {
            let host = mm.platform();
            assert!(host.caches(2, AT), "the window is open");
            // Interrupts come when somebody waits for them.
            host.hold_interrupts.set(true);
            let unmap = || {
                mm.space(id).unmap(pages(AT, 1)).unwrap();
                assert!(!host.caches(2, AT), "{place:?}: the caller was promised that nobody uses it");
            };
            race(mm, place, || mm.space(id).flush().unwrap(), unmap);
            host.hold_interrupts.set(false);
            result.set(true);
        });
        host.on(3, || give_back(mm, exhaust(mm)));
        assert!(seen.get(), "the window came");
    });
    assert!(results.len() > 10, "{}", results.len());
}

/// A batch knows the spaces that it is about, however many others were before it: what it has flushed nobody completes.
#[test]
fn what_a_batch_has_flushed_is_done_however_many_came_before() {
    let host = Host::new(Setup { cpus: 2, frames: 1024, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        for n in 0..40 {
            let (id, _) = cached(mm, 2, &[1]);
            give_back(mm, exhaust(mm));
            assert!(!mm.space(id).lookup(PageNumber(AT)).unwrap().is_present());
            let before = (mm.counter(Counter::DeferredCompleted), mm.counter(Counter::RemoteFlush));
            mm.space(id).unmap(pages(AT, 1)).unwrap();
            let after = (mm.counter(Counter::DeferredCompleted), mm.counter(Counter::RemoteFlush));
            assert_eq!(after, before, "after {n} others");
        }
    });
}
