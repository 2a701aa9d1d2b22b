//! Protect, move, fork, advise, migrate: what they change, what they cost, and what an error leaves.

use crate::machine;

use std::sync::atomic::Ordering;

use machine::race::{at_every_touch, race};
use machine::showing::{
    ANON, AT, LARGE, TO, frame, mapped, private, read_in, shared, two_nodes, write_all, write_in,
};
use machine::{Host, Mm, Setup, bare, counted, exhaust, give_back, pages, settled};
use quietmm::{
    Advice, Audit, Backing, Config, Counter, Error, FrameNumber, NodeId, PageNumber, Prot, Region, Rule,
    SpaceId,
};

/// Tries with 0, 1, 2 … frames free until it works; after each failure `check` must hold. Returns how often it failed.
fn until_it_fits<T>(
    mm: &Mm<'_>,
    mut attempt: impl FnMut() -> Result<T, Error>,
    mut check: impl FnMut(usize),
) -> (usize, T) {
    for frames in 0..64 {
        let mut held = exhaust(mm);
        let free = held.split_off(held.len() - frames);
        give_back(mm, free);
        let done = attempt();
        give_back(mm, held);
        assert_eq!(mm.validate().broken, None, "with {frames} frames");
        match done {
            Ok(done) => return (frames, done),
            Err(error) => assert_eq!(error, Error::OutOfMemory),
        }
        check(frames);
        assert_eq!(mm.platform().stale.get(), 0);
    }
    panic!("it never fits");
}

/// Maps single pages, in a space of their own, until every slot for VMAs is taken: the next VMA needs a frame.
fn fill_the_region_pool(mm: &Mm<'_>) {
    let (id, mut at) = (mm.create_space().unwrap(), 16);
    let mut until_it_grows = || {
        let (pools, mut count) = (mm.validate().pools, 0);
        while mm.validate().pools == pools {
            at += 2;
            mm.space(id).map(pages(at, 1), ANON, Prot::Read).unwrap();
            count += 1;
        }
        count
    };
    until_it_grows();
    let slab = until_it_grows();
    // One slot of the newest slab is in use.
    (1..slab).for_each(|i| mm.space(id).map(pages((1 << 20) + 2 * i, 1), ANON, Prot::Read).unwrap());
}

#[test]
fn a_fork_that_runs_out_of_memory_leaves_everything_as_it_was() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(8).unwrap();
        let id = mapped(mm, ANON, 16);
        mm.space(id).map(pages(1 << 30, 4), private(file), Prot::ReadWrite).unwrap();
        mm.space(id).map(pages(LARGE, 512), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).advise(pages(LARGE, 512), Advice::Large).unwrap();
        write_all(mm, id, 16);
        host.write(mm, id, 1 << 30, 5).unwrap();
        host.write(mm, id, LARGE + 7, 6).unwrap();
        fill_the_region_pool(mm);
        // Pages of the file that reclaim can take are gone before it is asked to.
        settled(mm);
        give_back(mm, exhaust(mm));
        let before = settled(mm);
        let check = |frames| {
            let now = settled(mm);
            // The large page was made small at most.
            let small = now.tables - before.tables;
            let want = Audit { free: before.free - small - (now.pools - before.pools), ..before };
            let want = Audit { tables: now.tables, pools: now.pools, mapped: now.mapped, ..want };
            assert_eq!(now, want, "with {frames} frames");
            assert_eq!(now.mapped, before.mapped + 511 * small);
            for page in (AT..AT + 16).rev() {
                assert_eq!(host.read(mm, id, page), Ok(page));
                host.write(mm, id, page, page).unwrap();
            }
            host.write(mm, id, 1 << 30, 5).unwrap();
            host.write(mm, id, LARGE + 7, 6).unwrap();
        };
        let (failed, child) = until_it_fits(mm, || mm.space(id).fork(), check);
        assert!(failed > 6, "{failed}: root, VMAs, tables");
        for (page, value) in [(AT, AT), (AT + 15, AT + 15), (1 << 30, 5), (LARGE + 7, 6), (LARGE + 8, 0)] {
            assert_eq!(read_in(mm, child, page), Ok(value));
        }
        mm.space(child).destroy().unwrap();
    });
}

#[test]
fn operations_that_run_out_of_memory_leave_the_state_as_it_was() {
    type Attempt = fn(&Mm<'_>, SpaceId) -> Result<(), Error>;
    let attempts: [(&str, Attempt); 6] = [
        ("unmap", |mm, id| mm.space(id).unmap(pages(AT + 4, 4))),
        ("protect", |mm, id| mm.space(id).protect(pages(AT + 4, 4), Prot::None)),
        ("move", |mm, id| mm.space(id).move_range(pages(AT + 4, 8), PageNumber((1 << 30) - 4))),
        ("advise", |mm, id| mm.space(id).advise(pages(AT + 4, 4), Advice::Large)),
        ("unmap of a part of a large page", |mm, id| mm.space(id).unmap(pages(LARGE + 3, 4))),
        ("drop of a part of a large page", |mm, id| mm.space(id).advise(pages(LARGE + 3, 4), Advice::Drop)),
    ];
    for (name, attempt) in attempts {
        let host = Host::new(Setup::default());
        host.run(bare("linux"), |mm| {
            let id = mapped(mm, ANON, 16);
            mm.space(id).map(pages(LARGE, 512), ANON, Prot::ReadWrite).unwrap();
            mm.space(id).advise(pages(LARGE, 512), Advice::Large).unwrap();
            write_all(mm, id, 16);
            host.write(mm, id, LARGE + 3, 6).unwrap();
            fill_the_region_pool(mm);
            let before = settled(mm);
            let check = |_| {
                let now = settled(mm);
                assert_eq!((now.anon, now.mapped), (before.anon, before.mapped), "{name}");
                for page in AT..AT + 16 {
                    assert_eq!(host.read(mm, id, page), Ok(page), "{name}");
                    host.write(mm, id, page, page).unwrap();
                }
                assert_eq!(host.read(mm, id, LARGE + 3), Ok(6), "{name}");
            };
            let (failed, ()) = until_it_fits(mm, || attempt(mm, id), check);
            assert!(failed > 0, "{name} needs memory");
        });
    }
}

#[test]
fn regions_join_again_when_they_are_alike() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(64).unwrap();
        for (backing, from) in [(ANON, 0x100), (shared(file), 0x8100), (private(file), 0x10100)] {
            let id = mm.create_space().unwrap();
            mm.space(id).map(pages(from, 64), backing, Prot::ReadWrite).unwrap();
            let pools = mm.validate().pools;
            // More than a slab of VMAs, if each left one behind.
            for i in 0..300 {
                let part = pages(from + i % 60, 1 + i % 4);
                mm.space(id).protect(part, Prot::Read).unwrap();
                mm.space(id).protect(part, Prot::ReadWrite).unwrap();
                mm.space(id).move_range(part, PageNumber(from + 0x1000)).unwrap();
                mm.space(id).move_range(pages(from + 0x1000, part.pages), part.start).unwrap();
                if backing == ANON {
                    mm.space(id).advise(part, Advice::Large).unwrap();
                    mm.space(id).advise(part, Advice::Small).unwrap();
                }
            }
            assert_eq!(mm.validate().pools, pools, "{backing:?}");
            // One VMA again: taking it out as a whole needs no memory.
            let held = exhaust(mm);
            mm.space(id).unmap(pages(from, 64)).unwrap();
            give_back(mm, held);
            mm.space(id).destroy().unwrap();
        }
    });
}

#[test]
fn after_a_fork_each_side_sees_only_its_own_writes() {
    let host = Host::new(Setup { cpus: 2, tags: 4, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let id = mapped(mm, ANON, 16);
        write_all(mm, id, 16);
        host.on(1, || {
            mm.space(id).switch_to().unwrap();
            write_all(mm, id, 16); // cached, writable and dirty
        });
        host.forget();
        let child = mm.space(id).fork().unwrap();
        assert_eq!(host.interrupts_to(1), 1, "one flush for all");
        let grandchild = mm.space(child).fork().unwrap();
        assert_eq!(host.interrupts(), 1, "nobody runs in the child");
        host.on(1, || host.write(mm, id, AT, 1)).unwrap();
        write_in(mm, child, AT + 1, 2).unwrap();
        write_in(mm, grandchild, AT, 3).unwrap();
        write_in(mm, grandchild, AT + 9, 4).unwrap();
        let see = |id| [AT, AT + 1, AT + 9].map(|page| read_in(mm, id, page).unwrap());
        assert_eq!(see(id), [1, AT + 1, AT + 9]);
        assert_eq!(see(child), [AT, 2, AT + 9]);
        assert_eq!(see(grandchild), [3, AT + 1, 4]);
        assert_eq!(host.on(1, || host.read(mm, id, AT)), Ok(1));
        assert_eq!(counted(mm, Counter::PgCopied), 4);
        assert_eq!(settled(mm).anon, 16 + 4);
        mm.space(child).destroy().unwrap();
        assert_eq!(see(grandchild), [3, AT + 1, 4]);
        assert_eq!(host.stale.get(), 0);
    });
}

#[test]
fn the_last_owner_writes_in_place() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let id = mapped(mm, ANON, 4);
        write_all(mm, id, 4);
        host.on(1, || mm.space(id).switch_to().unwrap());
        let child = mm.space(id).fork().unwrap();
        let old = frame(mm, id, AT);
        mm.space(child).destroy().unwrap();
        host.on(1, || host.read(mm, id, AT).unwrap());
        host.forget();
        host.write(mm, id, AT, 7).unwrap();
        assert_eq!(frame(mm, id, AT), old);
        assert_eq!((counted(mm, Counter::PgCopied), host.interrupts()), (0, 0));
        assert_eq!(host.flushes(0), (0, 0));
        assert_eq!(host.on(1, || host.read(mm, id, AT)), Ok(7));
    });
}

#[test]
fn a_private_page_shows_its_file_until_it_is_written() {
    let host = Host::new(Setup { cpus: 2, tags: 2, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(4).unwrap();
        let writer = mapped(mm, shared(file), 4);
        host.on(1, || {
            let id = mapped(mm, private(file), 4);
            assert_eq!(host.read(mm, id, AT), Ok(0));
            host.on(0, || host.write(mm, writer, AT, 5).unwrap());
            assert_eq!(host.read(mm, id, AT), Ok(5), "not written yet");
            host.write(mm, id, AT, 6).unwrap();
            host.write(mm, id, AT + 1, 7).unwrap(); // without a read before
            host.on(0, || host.write(mm, writer, AT, 8).unwrap());
            assert_eq!((host.read(mm, id, AT), host.read(mm, id, AT + 1)), (Ok(6), Ok(7)));
            assert_eq!(host.on(0, || host.read(mm, writer, AT + 1)), Ok(0), "the file does not see it");
            assert_eq!(counted(mm, Counter::PgCopied), 2);
            // What is dropped shows the file again, as it is now.
            mm.space(id).advise(pages(AT, 4), Advice::Drop).unwrap();
            assert_eq!((host.read(mm, id, AT), host.read(mm, id, AT + 1)), (Ok(8), Ok(0)));
            assert_eq!(mm.file(file).write_back(), Ok(1), "only what the shared mapping wrote");
            assert_eq!(host.on_disk(file, 0), Some(8));
        });
        assert_eq!(settled(mm).anon, 0);
    });
}

#[test]
fn a_page_that_may_not_be_touched_keeps_its_content() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(16).unwrap();
        for backing in [ANON, shared(file), private(file)] {
            let id = mapped(mm, backing, 16);
            host.on(1, || mm.space(id).switch_to().unwrap());
            write_all(mm, id, 16);
            host.on(1, || write_all(mm, id, 16));
            host.forget();
            mm.space(id).protect(pages(AT + 4, 8), Prot::None).unwrap();
            assert_eq!(host.interrupts_to(1), 1);
            mm.space(id).protect(pages(AT + 4, 8), Prot::None).unwrap();
            assert_eq!(host.interrupts_to(1), 1, "nothing is lost the second time");
            for cpu in [0, 1] {
                host.on(cpu, || {
                    let no = Error::NotPermitted(PageNumber(AT + 4));
                    assert_eq!(host.read(mm, id, AT + 4), Err(no));
                    assert_eq!(host.write(mm, id, AT + 4, 1), Err(no));
                    assert_eq!(host.write(mm, id, AT + 3, AT + 3), Ok(()));
                });
            }
            mm.space(id).protect(pages(AT + 4, 8), Prot::Read).unwrap();
            assert_eq!(host.read(mm, id, AT + 4), Ok(AT + 4));
            assert_eq!(host.write(mm, id, AT + 4, 1), Err(Error::NotPermitted(PageNumber(AT + 4))));
            mm.space(id).protect(pages(AT, 16), Prot::ReadWrite).unwrap();
            assert_eq!(host.interrupts_to(1), 1, "rights that are given cost nothing");
            for page in AT..AT + 16 {
                assert_eq!(host.on(1, || host.read(mm, id, page)), Ok(page));
                assert_eq!(host.on(1, || host.write(mm, id, page, page)), Ok(()));
            }
            host.on(1, || mm.unload());
            mm.space(id).destroy().unwrap();
        }
        assert_eq!(host.stale.get(), 0);
    });
}

#[test]
fn a_range_that_moves_keeps_its_content() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(16).unwrap();
        for (backing, cached) in [(ANON, 0), (private(file), 0), (shared(file), 16)] {
            let id = mapped(mm, backing, 16);
            host.on(1, || mm.space(id).switch_to().unwrap());
            write_all(mm, id, 16);
            host.on(1, || write_all(mm, id, 16));
            let old = frame(mm, id, AT + 5);
            host.forget();
            mm.space(id).move_range(pages(AT + 2, 12), PageNumber(TO)).unwrap();
            assert_eq!(host.interrupts_to(1), 1);
            assert_eq!(frame(mm, id, TO + 3), old);
            for (i, page) in (AT + 2..AT + 14).enumerate() {
                assert_eq!(host.on(1, || host.read(mm, id, page)), Err(Error::NotMapped(PageNumber(page))));
                assert_eq!(host.on(1, || host.read(mm, id, TO + i as u64)), Ok(page));
            }
            assert_eq!(host.read(mm, id, AT + 14), Ok(AT + 14));
            if cached > 0 {
                assert_eq!(mm.file(file).write_back(), Ok(16), "dirty wherever it lies");
                host.write(mm, id, TO, 99).unwrap();
                mm.space(id).move_range(pages(TO, 12), PageNumber(TO + 100)).unwrap();
                mm.drain_lru_batch();
                host.on(1, || mm.drain_lru_batch());
                give_back(mm, exhaust(mm));
                assert_eq!(mm.file(file).cached_pages(), Ok(0), "reclaim finds it at its new place");
                assert_eq!(host.on_disk(file, 2), Some(99));
                assert_eq!(host.read(mm, id, TO + 100), Ok(99));
            }
            host.on(1, || mm.unload());
            mm.space(id).destroy().unwrap();
        }
        assert_eq!(host.stale.get(), 0);
    });
}

#[test]
fn a_range_does_not_move_onto_what_is_mapped() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let id = mapped(mm, ANON, 16);
        mm.space(id).map(pages(TO, 1), ANON, Prot::Read).unwrap();
        write_all(mm, id, 16);
        let before = settled(mm);
        host.forget();
        for (from, to, error) in [
            (pages(AT, 16), AT, Error::Overlaps(PageNumber(AT))),
            (pages(AT, 8), AT + 4, Error::Overlaps(PageNumber(AT + 4))),
            (pages(AT + 4, 8), AT - 2, Error::Overlaps(PageNumber(AT))),
            (pages(AT, 4), TO - 3, Error::Overlaps(PageNumber(TO))),
            (pages(AT, 17), TO + 1, Error::NotMapped(PageNumber(AT + 16))),
            (pages(AT - 1, 4), TO + 1, Error::NotMapped(PageNumber(AT - 1))),
            (pages(AT, 4), PageNumber::USER_END.0 - 3, Error::BadRange),
            (pages(AT, 4), u64::MAX, Error::BadRange),
            (pages(AT, 0), TO + 1, Error::BadRange),
        ] {
            assert_eq!(mm.space(id).move_range(from, PageNumber(to)), Err(error));
            assert_eq!((settled(mm), host.flushes(0)), (before, (0, 0)));
        }
        (AT..AT + 16).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(page)));
    });
}

#[test]
fn what_is_dropped_is_zeros_again() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(16).unwrap();
        let id = mapped(mm, ANON, 16);
        mm.space(id).map(pages(TO, 16), shared(file), Prot::ReadWrite).unwrap();
        host.on(1, || mm.space(id).switch_to().unwrap());
        host.on(1, || write_all(mm, id, 16));
        host.on(1, || host.write(mm, id, TO, 9)).unwrap();
        host.forget();
        mm.space(id).advise(pages(AT + 4, 4), Advice::Drop).unwrap();
        assert_eq!(host.interrupts_to(1), 1);
        mm.space(id).advise(pages(AT + 4, 4), Advice::Drop).unwrap();
        assert_eq!(host.interrupts_to(1), 1, "nothing is there");
        assert_eq!(settled(mm).anon, 12);
        for page in AT..AT + 16 {
            let gone = (AT + 4..AT + 8).contains(&page);
            assert_eq!(host.on(1, || host.read(mm, id, page)), Ok(if gone { 0 } else { page }));
        }
        mm.space(id).advise(pages(TO, 16), Advice::Drop).unwrap();
        assert_eq!(
            mm.file(file).write_back(),
            Ok(1),
            "what was dropped from the space is dirty in the cache"
        );
        assert_eq!(host.read(mm, id, TO), Ok(9));
        assert_eq!(
            mm.space(id).advise(pages(AT, 17), Advice::Drop),
            Err(Error::NotMapped(PageNumber(AT + 16)))
        );
    });
}

#[test]
fn pages_that_migrate_keep_their_content_and_leave_their_frames() {
    let host = Host::new(two_nodes());
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(4).unwrap();
        let id = mapped(mm, ANON, 16);
        mm.space(id).map(pages(TO, 4), shared(file), Prot::ReadWrite).unwrap();
        host.on(1, || mm.space(id).switch_to().unwrap());
        write_all(mm, id, 16);
        host.write(mm, id, TO, 4).unwrap();
        host.on(1, || write_all(mm, id, 16));
        let node = |page| NodeId(u16::from(frame(mm, id, page).0 >= 0xfc00 + 2048));
        assert_eq!(node(AT), NodeId(0));
        let before = settled(mm);
        host.forget();
        assert_eq!(mm.space(id).migrate(pages(AT + 4, 8), NodeId(1)), Ok(8));
        assert_eq!((host.interrupts_to(1), counted(mm, Counter::PgMigrated)), (1, 8));
        assert_eq!((node(AT + 3), node(AT + 4), node(AT + 12)), (NodeId(0), NodeId(1), NodeId(0)));
        assert_eq!(settled(mm), before, "the old frames are free");
        host.forget();
        assert_eq!(mm.space(id).migrate(pages(AT + 4, 8), NodeId(1)), Ok(0));
        assert_eq!(mm.space(id).migrate(pages(TO, 4), NodeId(1)), Ok(0), "pages of a file stay");
        assert_eq!(mm.space(id).migrate(pages(AT, 1), NodeId(2)), Err(Error::NoSuchNode));
        assert_eq!(
            mm.space(id).migrate(pages(AT, 17), NodeId(1)),
            Err(Error::NotMapped(PageNumber(AT + 16)))
        );
        assert_eq!(host.interrupts(), 0);
        for page in AT..AT + 16 {
            assert_eq!(host.on(1, || host.read(mm, id, page)), Ok(page));
            host.on(1, || host.write(mm, id, page, page + 1)).unwrap();
            assert_eq!(host.read(mm, id, page), Ok(page + 1));
        }
        // What two spaces share stays; so does what finds no room.
        let child = mm.space(id).fork().unwrap();
        assert_eq!(mm.space(id).migrate(pages(AT, 4), NodeId(1)), Ok(0));
        mm.space(child).destroy().unwrap();
        let held = exhaust(mm);
        assert_eq!(mm.space(id).migrate(pages(AT, 4), NodeId(1)), Ok(0));
        give_back(mm, held);
        (AT..AT + 4).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(page + 1)));
        assert_eq!(host.stale.get(), 0);
    });
}

#[test]
fn tables_go_with_the_last_mapping_that_needs_them() {
    let host = Host::new(Setup { cpus: 3, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let id = mm.create_space().unwrap();
        let start = mm.validate().tables;
        mm.space(id).map(pages(LARGE, 1024), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).map(pages(LARGE + 1030, 2), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).switch_to().unwrap();
        for page in [0, 512, 1030].map(|page| LARGE + page) {
            host.write(mm, id, page, page).unwrap();
        }
        host.on(1, || mm.space(id).switch_to().unwrap());
        host.on(1, || host.read(mm, id, LARGE).unwrap());
        host.on(2, || {
            mm.space(id).switch_to().unwrap();
            mm.enter_lazy();
        });
        assert_eq!(mm.validate().tables, start + 5);
        host.forget();
        mm.space(id).unmap(pages(LARGE, 500)).unwrap();
        assert_eq!(mm.validate().tables, start + 5, "the rest of the table is mapped");
        assert_eq!((host.interrupts_to(1), host.interrupts_to(2)), (1, 0), "a lazy CPU is left alone");
        mm.space(id).unmap(pages(LARGE + 500, 500)).unwrap();
        assert_eq!(mm.validate().tables, start + 4);
        assert_eq!(
            (host.interrupts_to(1), host.interrupts_to(2)),
            (2, 1),
            "or else it could walk what is freed"
        );
        assert_eq!(host.on(2, || mm.loaded_space()), None);
        mm.space(id).unmap(pages(LARGE + 1000, 24)).unwrap();
        assert_eq!(mm.validate().tables, start + 3);
        mm.space(id).unmap(pages(LARGE + 1031, 1)).unwrap();
        assert_eq!(host.read(mm, id, LARGE + 1030), Ok(LARGE + 1030), "a neighbour lives there");
        mm.space(id).unmap(pages(LARGE + 1030, 1)).unwrap();
        assert_eq!(mm.validate().tables, start);
        assert_eq!(host.stale.get(), 0);
    });
}

#[test]
fn a_page_that_is_only_read_is_flushed_too_before_it_migrates() {
    for (broken, stale) in [(None, 0), (Some(Rule::FlushNarrowed), 1)] {
        let host = Host::new(two_nodes());
        host.broken.set(broken);
        host.run(bare("linux"), |mm| {
            let id = mapped(mm, ANON, 1);
            write_all(mm, id, 1);
            mm.space(id).protect(pages(AT, 1), Prot::Read).unwrap();
            host.on(1, || mm.space(id).switch_to().unwrap());
            host.on(1, || host.read(mm, id, AT)).unwrap();
            assert_eq!(mm.space(id).migrate(pages(AT, 1), NodeId(1)), Ok(1));
            host.on(1, || host.read(mm, id, AT)).unwrap();
            assert_eq!(host.stale.get(), stale);
        });
    }
}

#[test]
fn a_page_that_is_copied_or_moved_is_whole() {
    // What the programs of other tests write is a page's first word.
    let fill = |host: &Host, frame| {
        (1..512).for_each(|n| host.word(frame, n).store(n as u64 * 0x1001, Ordering::SeqCst));
    };
    let whole = |host: &Host, frame| {
        (1..512).all(|n| host.word(frame, n).load(Ordering::SeqCst) == n as u64 * 0x1001)
    };
    let region = |node: u16| Region {
        start: FrameNumber(0xfc00 + 2048 * u32::from(node)),
        frames: 2048,
        node: NodeId(node),
    };
    let regions = Some(vec![region(0), region(1)]);
    let host = Host::new(Setup { nodes: 2, regions, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        // A fork, and the first write on each side.
        let id = mapped(mm, ANON, 2);
        host.write(mm, id, AT, 7).unwrap();
        let first = frame(mm, id, AT);
        fill(&host, first);
        let child = mm.space(id).fork().unwrap();
        host.write(mm, id, AT, 8).unwrap();
        assert_ne!(frame(mm, id, AT), first);
        assert!(whole(&host, frame(mm, id, AT)), "the copy");
        assert!(whole(&host, frame(mm, child, AT)), "the original");
        assert_eq!(read_in(mm, child, AT), Ok(7));
        // To the other node.
        assert_eq!(mm.space(id).migrate(pages(AT, 1), NodeId(1)), Ok(1));
        assert!(frame(mm, id, AT) >= region(1).start && whole(&host, frame(mm, id, AT)));
        // A page of a file that becomes this space's own.
        let file = mm.create_file(2).unwrap();
        mm.space(id).map(pages(TO, 2), private(file), Prot::ReadWrite).unwrap();
        assert_eq!(host.read(mm, id, TO), Ok(0));
        let cached = frame(mm, id, TO);
        fill(&host, cached);
        host.write(mm, id, TO, 9).unwrap();
        assert!(frame(mm, id, TO) != cached && whole(&host, frame(mm, id, TO)) && whole(&host, cached));
        // And a fresh page holds nothing of what a frame held before.
        mm.space(id).unmap(pages(AT, 2)).unwrap();
        mm.space(id).map(pages(AT, 64), ANON, Prot::ReadWrite).unwrap();
        for page in AT..AT + 64 {
            host.write(mm, id, page, 1).unwrap();
            let fresh = frame(mm, id, page);
            assert!((1..512).all(|n| host.word(fresh, n).load(Ordering::SeqCst) == 0), "page {page:#x}");
        }
    });
}

#[test]
fn a_page_may_get_one_more_user_at_any_moment_while_it_migrates() {
    let cases = at_every_touch(&Setup { cpus: 2, ..two_nodes() }, &bare("linux"), None, |mm, place| {
        let host = mm.platform();
        let id = mapped(mm, ANON, 1);
        write_all(mm, id, 1);
        host.on(1, || mm.space(id).switch_to().unwrap());
        let child = race(
            mm,
            place,
            || _ = mm.space(id).migrate(pages(AT, 1), NodeId(1)),
            || mm.space(id).fork().unwrap(),
        );
        assert_eq!([id, child].map(|id| read_in(mm, id, AT)), [Ok(AT), Ok(AT)]);
    });
    assert!(cases.results.len() > 50, "{}", cases.results.len());
}

/// Mappings that touch are one if they show pages of a file that follow each other, and two if not, whatever is done to both at once.
#[test]
fn mappings_side_by_side_show_each_its_own_pages_of_a_file() {
    for (offset, mappings) in [(4, 1), (8, 2), (3, 2), (5, 2)] {
        for private in [false, true] {
            let host = Host::new(Setup::default());
            host.run(Config { max_map_count: 10, ..bare("linux") }, |mm| {
                let (id, file) = (mm.create_space().unwrap(), mm.create_file(16).unwrap());
                for page in 0..16 {
                    mm.file(file).write(page * 4096, &page.to_ne_bytes()).unwrap();
                }
                mm.space(id).switch_to().unwrap();
                for (at, offset) in [(0x1000, 0), (0x1004, offset)] {
                    let backing = if private {
                        Backing::Private { file, offset }
                    } else {
                        Backing::File { file, offset }
                    };
                    mm.space(id).map(pages(at, 4), backing, Prot::ReadWrite).unwrap();
                }
                mm.space(id).protect(pages(0x1000, 8), Prot::Read).unwrap();
                let shown = (0..4).chain(offset..offset + 4);
                for (page, shown) in (0x1000..).zip(shown) {
                    assert_eq!(host.read(mm, id, page), Ok(shown), "from {offset} on");
                }
                let more = (0..).take_while(|n| {
                    mm.space(id).map(pages(0x9000 + 2 * n, 1), Backing::Anonymous, Prot::Read).is_ok()
                });
                assert_eq!(more.count(), 10 - mappings, "from {offset} on");
            });
        }
    }
}
