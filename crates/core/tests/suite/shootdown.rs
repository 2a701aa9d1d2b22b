//! Who is interrupted, how often, and what each CPU flushes: by counts.

use crate::machine;

use std::cell::Cell;
use std::rc::Rc;

use machine::{Host, Mm, Setup, at_hand, bare, exhaust, give_back, pages};
use quietmm::{AllocFrom, Backing, Config, Counter, Error, FileId, PageNumber, Prot, Rule, SpaceId};

const AT: u64 = 0x1000;

/// A space with anonymous memory of `count` pages from `AT`, all written, loaded on `cpus`, each of which has
/// read every page.
fn shared(mm: &Mm<'_>, count: u64, cpus: &[u16]) -> SpaceId {
    let host = mm.platform();
    let id = mm.create_space().unwrap();
    mm.map(id, pages(AT, count), Backing::Anonymous, Prot::ReadWrite).unwrap();
    for &cpu in cpus {
        host.on(cpu, || {
            mm.switch_to(id).unwrap();
            (AT..AT + count).for_each(|page| host.write(mm, id, page, page).unwrap());
        });
    }
    host.forget();
    id
}

/// A file of `count` pages, shown at `AT`, read by each of `cpus`; the pages are on the LRU lists.
fn cached(mm: &Mm<'_>, count: u64, cpus: &[u16]) -> (SpaceId, FileId) {
    let host = mm.platform();
    let (id, file) = (mm.create_space().unwrap(), mm.create_file(count).unwrap());
    mm.map(id, pages(AT, count), Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
    for &cpu in cpus {
        host.on(cpu, || {
            mm.switch_to(id).unwrap();
            (AT..AT + count).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(0)));
            mm.drain_lru_batch();
        });
    }
    host.forget();
    (id, file)
}

#[test]
fn only_cpus_that_run_in_the_space_are_interrupted() {
    let host = Host::new(Setup { cpus: 5, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let other = shared(mm, 1, &[2]);
        let id = shared(mm, 4, &[0, 1, 3, 4]);
        host.on(3, || mm.switch_to(other).unwrap());
        host.on(4, || mm.unload());
        host.forget();
        mm.unmap(id, pages(AT, 4)).unwrap();
        assert_eq!((host.interrupts(), host.interrupts_to(1)), (1, 1));
        assert_eq!(mm.counter(Counter::IpisSent), 1);
        assert_eq!((host.flushes(0), host.flushes(1)), ((0, 4), (0, 4)));
        assert_eq!((host.flushes(2), host.flushes(3), host.flushes(4)), ((0, 0), (0, 0), (0, 0)));
        // From outside the space: two that use it would be interrupted, one is left.
        host.forget();
        host.on(2, || mm.flush_space(id).unwrap());
        assert_eq!((host.interrupts_to(0), host.interrupts_to(1), host.interrupts()), (1, 1, 2));
        assert_eq!(host.flushes(2), (0, 0), "it does not use the space itself");
    });
}

#[test]
fn a_full_inbox_is_not_rung_twice() {
    for (held, interrupts) in [(true, 1), (false, 2)] {
        let host = Host::new(Setup { cpus: 3, ..Setup::default() });
        host.run(bare("vanilla"), |mm| {
            let id = shared(mm, 4, &[2]);
            host.hold_interrupts.set(held);
            let ask = move |mm: &Mm<'_>| mm.platform().on(1, || mm.flush_range(id, pages(AT, 1)).unwrap());
            if held {
                // CPU 1 asks while CPU 0 waits for CPU 2, which has not looked yet.
                host.on_pause.borrow_mut().push_back(Box::new(ask));
                mm.flush_range(id, pages(AT + 1, 1)).unwrap();
            } else {
                mm.flush_range(id, pages(AT + 1, 1)).unwrap();
                ask(mm);
            }
            assert_eq!(host.interrupts(), interrupts);
            assert_eq!(mm.counter(Counter::RemoteFlushReceived), 2, "both requests were carried out");
            assert!(!host.caches(2, AT) && !host.caches(2, AT + 1));
        });
    }
}

/// CPU 1 is lazy while CPU 0 unmaps; says how often CPU 1 then used what is gone.
fn lazily(broken: Option<Rule>) -> (Result<u64, Error>, u32) {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.broken.set(broken);
    host.run(bare("vanilla"), |mm| {
        let id = shared(mm, 4, &[0, 1]);
        host.on(1, || mm.enter_lazy());
        mm.unmap(id, pages(AT, 2)).unwrap();
        mm.unmap(id, pages(AT + 2, 1)).unwrap();
        assert_eq!((host.interrupts(), mm.counter(Counter::LazySkipped)), (0, 2));
        assert!(host.caches(1, AT), "it was left alone");
        host.on(1, || {
            mm.leave_lazy();
            let flushes = host.flushes(1);
            mm.leave_lazy();
            assert_eq!(host.flushes(1), flushes, "once");
            if broken.is_none() {
                assert_eq!(flushes, (1, 0));
                assert_eq!(host.read(mm, id, AT + 3), Ok(AT + 3));
            }
            (host.read(mm, id, AT), host.stale.get())
        })
    })
}

#[test]
fn a_lazy_cpu_is_left_alone_and_catches_up() {
    assert_eq!(lazily(None), (Err(Error::NotMapped(PageNumber(AT))), 0));
    let (_, stale) = lazily(Some(Rule::LazyReturnFlush));
    assert_eq!(stale, 1, "without the flush on return it uses what is gone");
}

#[test]
fn a_lazy_cpu_that_missed_nothing_flushes_nothing() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let id = shared(mm, 1, &[0, 1]);
        host.on(1, || {
            mm.enter_lazy();
            mm.leave_lazy();
            assert!(host.caches(1, AT));
            mm.enter_lazy();
            mm.switch_to(id).unwrap();
            assert!(host.caches(1, AT));
        });
        assert_eq!(host.flushes(1), (0, 0));
    });
}

/// CPU 0 is lazy in one space and goes to another; while it is on its way, CPU 1 unmaps a page there that CPU 0
/// still has under its tag. CPU 0 is interrupted, or finds out by itself; it must not be left alone *and* believe
/// itself up to date.
#[test]
fn a_cpu_on_its_way_from_lazy_into_a_space_misses_no_flush() {
    let host = Host::new(Setup { cpus: 2, tags: 2, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let id = shared(mm, 2, &[0, 1]);
        let other = mm.create_space().unwrap();
        mm.switch_to(other).unwrap();
        mm.enter_lazy();
        host.on_load.borrow_mut().push_back(Box::new(move |mm| {
            // CPU 0 has interrupts off and cannot go on in this one thread: where CPU 1 waits for it, it has to be
            // let go without the flush.
            let let_go = |mm: &Mm<'_>| mm.platform().on(0, || mm.serve());
            mm.platform().on_pause.borrow_mut().push_back(Box::new(let_go));
            mm.platform().on(1, || mm.unmap(id, pages(AT, 1)).unwrap());
        }));
        mm.switch_to(id).unwrap();
        if host.interrupts_to(0) == 0 {
            assert_eq!(host.read(mm, id, AT), Err(Error::NotMapped(PageNumber(AT))));
            assert_eq!(host.read(mm, id, AT + 1), Ok(AT + 1));
            assert_eq!(host.stale.get(), 0);
        }
    });
}

#[test]
fn up_to_the_ceiling_pages_go_one_by_one() {
    for (ceiling, count, flushes) in [
        (33, 1, (0, 1)),
        (33, 33, (0, 33)),
        (33, 34, (1, 0)),
        (33, 64, (1, 0)),
        (1, 2, (1, 0)),
        (64, 64, (0, 64)),
    ] {
        let host = Host::new(Setup { cpus: 2, ..Setup::default() });
        host.run(Config { flush_ceiling: ceiling, ..bare("vanilla") }, |mm| {
            let id = shared(mm, count, &[0, 1]);
            mm.unmap(id, pages(AT, count)).unwrap();
            assert_eq!((host.flushes(0), host.flushes(1)), (flushes, flushes), "{count} pages");
            assert_eq!((host.interrupts(), mm.counter(Counter::RemoteFlush)), (1, 1), "one flush");
        });
    }
}

#[test]
fn an_unmap_costs_one_flush_however_many_pages_were_present() {
    for (mapped, present, flushes) in [(1000, 0, 0), (1000, 1, 1), (1000, 65, 1), (600, 600, 1)] {
        let host = Host::new(Setup { cpus: 2, ..Setup::default() });
        host.run(bare("vanilla"), |mm| {
            let id = shared(mm, mapped, &[]);
            host.on(1, || mm.switch_to(id).unwrap());
            // Spread over the whole range, and over two tables.
            let step = mapped / present.max(1);
            (0..present).for_each(|i| {
                host.on(1, || host.write(mm, id, AT + i * step, 1).unwrap());
            });
            mm.unmap(id, pages(AT, mapped)).unwrap();
            assert_eq!(mm.counter(Counter::RemoteFlush), flushes, "{present} pages present");
            assert_eq!(host.interrupts() as u64, flushes);
            assert!((0..mapped).all(|i| !host.caches(1, AT + i)));
        });
    }
}

/// CPU 0 reclaims file pages that CPU 2 has cached. When the first page's entry is cleared and not flushed, CPU 1
/// does `then`. Says whether CPU 2 still has that page when `then` is done, and how many flushes were completed
/// early.
fn in_the_window(broken: Option<Rule>, then: impl Fn(&Mm<'_>, SpaceId) + 'static) -> (bool, u64) {
    let host = Host::new(Setup { cpus: 3, ..Setup::default() });
    host.broken.set(broken);
    host.run(Config { page_lists: at_hand(31), ..bare("linux") }, |mm| {
        let (id, file) = cached(mm, 32, &[1, 2]);
        // What CPU 1 will need is at hand there.
        host.on(1, || {
            mm.drain_page_list();
            mm.free_frames(mm.alloc_frames(0, AllocFrom::NOW).unwrap());
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
        assert!(mm.cached_pages(file).unwrap() <= 1);
        give_back(mm, held);
        seen.get().expect("the window came")
    })
}

#[test]
fn an_unmap_completes_what_reclaim_deferred() {
    let unmap = |mm: &Mm<'_>, id| mm.unmap(id, pages(AT, 1)).unwrap();
    assert_eq!(in_the_window(None, unmap), (false, 1));
    assert_eq!(in_the_window(Some(Rule::DeferredBeforeUnmapReturns), unmap), (true, 0));
}

#[test]
fn an_unmap_elsewhere_in_the_space_completes_it_with_its_own_flush() {
    // The range has a page that is present: one flush does for both.
    let unmap = |mm: &Mm<'_>, id| {
        let before = mm.counter(Counter::RemoteFlush);
        mm.unmap(id, pages(AT, 32)).unwrap();
        assert_eq!(mm.counter(Counter::RemoteFlush) - before, 1);
    };
    assert_eq!(in_the_window(None, unmap), (false, 0));
}

#[test]
fn a_page_that_is_wanted_before_its_flush_is_mapped_again_without_one() {
    // It is still in its cache: what CPU 2 has cached leads to the same frame.
    let refault = |mm: &Mm<'_>, id| {
        mm.fault(id, PageNumber(AT).addr(), quietmm::UserAccess::Read).unwrap();
        assert!(mm.lookup(id, PageNumber(AT)).unwrap().is_present());
    };
    assert_eq!(in_the_window(None, refault), (true, 0));
}

/// CPU 1 has a space under a tag and runs elsewhere while the space ends and its slot is used again.
fn reused(broken: Option<Rule>) -> (u64, u32) {
    let host = Host::new(Setup { cpus: 2, tags: 2, ..Setup::default() });
    host.broken.set(broken);
    host.run(bare("vanilla"), |mm| {
        let old = shared(mm, 1, &[1]);
        let aside = mm.create_space().unwrap();
        host.on(1, || mm.switch_to(aside).unwrap());
        mm.destroy_space(old).unwrap();
        assert_eq!(host.interrupts(), 0, "it does not run there");
        let new = mm.create_space().unwrap();
        assert_eq!(new.index(), old.index(), "the slot is used again");
        mm.map(new, pages(AT, 1), Backing::Anonymous, Prot::ReadWrite).unwrap();
        host.on(1, || {
            mm.switch_to(new).unwrap();
            (host.read(mm, new, AT).unwrap(), host.stale.get())
        })
    })
}

#[test]
fn a_slot_that_is_used_again_goes_on_counting() {
    assert_eq!(reused(None), (0, 0));
    assert_eq!(reused(Some(Rule::SwitchFlush)).1, 1, "the old tag is believed");
}

#[test]
fn a_tag_that_missed_nothing_keeps_its_entries() {
    let host = Host::new(Setup { cpus: 2, tags: 2, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let id = shared(mm, 2, &[0]);
        let other = shared(mm, 1, &[0]);
        mm.switch_to(id).unwrap();
        assert!(host.caches(0, AT + 1));
        mm.switch_to(other).unwrap();
        host.on(1, || mm.unmap(id, pages(AT, 1)).unwrap());
        assert_eq!(host.interrupts(), 0, "it runs elsewhere");
        mm.switch_to(id).unwrap();
        assert!(!host.caches(0, AT) && !host.caches(0, AT + 1));
    });
}

/// CPU 1 keeps the space lazily while it ends.
fn ended_under_a_lazy_cpu(broken: Option<Rule>) -> (usize, Option<SpaceId>) {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.broken.set(broken);
    host.run(bare("vanilla"), |mm| {
        let id = shared(mm, 4, &[1]);
        host.on(1, || mm.enter_lazy());
        mm.destroy_space(id).unwrap();
        (host.interrupts(), host.on(1, || mm.loaded_space()))
    })
}

#[test]
fn a_lazy_cpu_lets_go_of_a_space_before_its_tables_are_freed() {
    assert_eq!(ended_under_a_lazy_cpu(None), (1, None));
    let (interrupts, loaded) = ended_under_a_lazy_cpu(Some(Rule::TablesToLazy));
    assert!(interrupts == 0 && loaded.is_some(), "it goes on with tables that are free");
}

#[test]
fn a_single_cpu_defers_nothing_and_sends_nothing() {
    for policy in ["vanilla", "linux", "linux+unmap=batch-clean", "quiet"] {
        let host = Host::new(Setup::default());
        host.run(bare(policy), |mm| {
            let (id, _) = cached(mm, 1000, &[0]);
            give_back(mm, exhaust(mm));
            assert_eq!(mm.lookup(id, PageNumber(AT)).map(|entry| entry.is_present()), Ok(false));
            mm.destroy_space(id).unwrap();
            assert_eq!(host.interrupts(), 0);
            assert_eq!((mm.counter(Counter::BatchPages), mm.counter(Counter::RemoteFlush)), (0, 0));
        });
    }
}

#[test]
fn a_cpu_that_spins_with_interrupts_off_serves_by_hand() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        use quietmm::Platform;
        let id = shared(mm, 2, &[0, 1]);
        host.hold_interrupts.set(true);
        // Its interrupt cannot arrive: a kernel that spins on a lock of its own asks the core instead.
        host.on_pause.borrow_mut().push_back(Box::new(move |mm| {
            let host = mm.platform();
            host.on(1, || {
                assert!(host.irqs_off());
                mm.serve();
                host.irqs_on();
            });
        }));
        assert!(host.irqs_off());
        mm.flush_range(id, pages(AT, 1)).unwrap();
        host.irqs_on();
        assert!(!host.caches(0, AT) && !host.caches(1, AT) && host.caches(1, AT + 1));
    });
}

#[test]
fn a_wait_of_seconds_ends_like_any_other() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let id = shared(mm, 1, &[1]);
        host.hold_interrupts.set(true);
        // Each look is 2 us later at most: together more nanoseconds than 32 bits hold.
        (0..2_200_000).for_each(|_| host.on_pause.borrow_mut().push_back(Box::new(|_| {})));
        mm.unmap(id, pages(AT, 1)).unwrap();
        assert!(host.on_pause.borrow().is_empty() && !host.caches(1, AT));
    });
}
