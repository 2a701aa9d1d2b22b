//! Protect, move, fork, advise, migrate, write back: what they change, what they cost, and what an error leaves.

mod machine;

use std::cell::Cell;
use std::rc::Rc;

use machine::{Happened, Host, Mm, Setup, bare, counted, everywhere, exhaust, give_back, pages, settled};
use quietmm::{
    Advice, Audit, Backing, Counter, Entry, Error, FileId, FrameNumber, NodeId, PageNumber, Prot, Region,
    Rule, SpaceId, UserAccess,
};

const ANON: Backing = Backing::Anonymous;
const AT: u64 = 0x11f8; // 8 pages before the end of a table
const TO: u64 = 0x23f0;
/// The start of a large page.
const LARGE: u64 = 0x40000;

fn shared(file: FileId) -> Backing {
    Backing::File { file, offset: 0 }
}

fn private(file: FileId) -> Backing {
    Backing::Private { file, offset: 0 }
}

/// Something done to a space.
type Operation = fn(&Mm<'_>, SpaceId);

/// A space of this backing at `AT`, loaded on CPU 0.
fn mapped(mm: &Mm<'_>, backing: Backing, count: u64) -> SpaceId {
    let id = mm.create_space().unwrap();
    mm.map(id, pages(AT, count), backing, Prot::ReadWrite).unwrap();
    mm.switch_to(id).unwrap();
    id
}

fn write_all(mm: &Mm<'_>, id: SpaceId, count: u64) {
    (AT..AT + count).for_each(|page| mm.platform().write(mm, id, page, page).unwrap());
}

/// What a CPU that runs in the space reads.
fn read_in(mm: &Mm<'_>, id: SpaceId, page: u64) -> Result<u64, Error> {
    let before = mm.loaded_space();
    mm.switch_to(id).unwrap();
    let value = mm.platform().read(mm, id, page);
    mm.switch_to(before.unwrap()).unwrap();
    value
}

fn write_in(mm: &Mm<'_>, id: SpaceId, page: u64, value: u64) -> Result<(), Error> {
    let before = mm.loaded_space();
    mm.switch_to(id).unwrap();
    let done = mm.platform().write(mm, id, page, value);
    mm.switch_to(before.unwrap()).unwrap();
    done
}

fn entry(mm: &Mm<'_>, id: SpaceId, page: u64) -> Entry {
    mm.lookup(id, PageNumber(page)).unwrap()
}

fn frame(mm: &Mm<'_>, id: SpaceId, page: u64) -> FrameNumber {
    let entry = entry(mm, id, page);
    assert!(entry.is_present());
    entry.frame()
}

/// Two nodes of equal size; CPU 0 is on node 0.
fn two_nodes() -> Setup {
    let setup = Setup { nodes: 2, cpus: 2, ..Setup::default() };
    let region = |node: u16| Region {
        start: FrameNumber(setup.base + 2048 * u32::from(node)),
        frames: 2048,
        node: NodeId(node),
    };
    Setup { regions: Some(vec![region(0), region(1)]), ..setup }
}

/// Tries with 0, 1, 2 … frames free until it works; after each failure `check` must hold. Gives how often it failed.
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

/// Maps single pages, in a space of their own, until every slot for regions is taken: the next region needs a frame.
fn fill_the_region_pool(mm: &Mm<'_>) {
    let (id, mut at) = (mm.create_space().unwrap(), 0);
    let mut until_it_grows = || {
        let (pools, mut count) = (mm.validate().pools, 0);
        while mm.validate().pools == pools {
            at += 2;
            mm.map(id, pages(at, 1), ANON, Prot::Read).unwrap();
            count += 1;
        }
        count
    };
    until_it_grows();
    let slab = until_it_grows();
    // One slot of the newest slab is in use.
    (1..slab).for_each(|i| mm.map(id, pages((1 << 20) + 2 * i, 1), ANON, Prot::Read).unwrap());
}

#[test]
fn a_fork_that_runs_out_of_memory_leaves_everything_as_it_was() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(8).unwrap();
        let id = mapped(mm, ANON, 16);
        mm.map(id, pages(1 << 30, 4), private(file), Prot::ReadWrite).unwrap();
        mm.map(id, pages(LARGE, 512), ANON, Prot::ReadWrite).unwrap();
        mm.advise(id, pages(LARGE, 512), Advice::Large).unwrap();
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
        let (failed, child) = until_it_fits(mm, || mm.fork(id), check);
        assert!(failed > 6, "{failed}: root, regions, tables");
        for (page, value) in [(AT, AT), (AT + 15, AT + 15), (1 << 30, 5), (LARGE + 7, 6), (LARGE + 8, 0)] {
            assert_eq!(read_in(mm, child, page), Ok(value));
        }
        mm.destroy_space(child).unwrap();
    });
}

#[test]
fn operations_that_run_out_of_memory_leave_the_state_as_it_was() {
    type Attempt = fn(&Mm<'_>, SpaceId) -> Result<(), Error>;
    let attempts: [(&str, Attempt); 6] = [
        ("unmap", |mm, id| mm.unmap(id, pages(AT + 4, 4))),
        ("protect", |mm, id| mm.protect(id, pages(AT + 4, 4), Prot::None)),
        ("move", |mm, id| mm.move_range(id, pages(AT + 4, 8), PageNumber((1 << 30) - 4))),
        ("advise", |mm, id| mm.advise(id, pages(AT + 4, 4), Advice::Large)),
        ("unmap of a part of a large page", |mm, id| mm.unmap(id, pages(LARGE + 3, 4))),
        ("drop of a part of a large page", |mm, id| mm.advise(id, pages(LARGE + 3, 4), Advice::Drop)),
    ];
    for (name, attempt) in attempts {
        let host = Host::new(Setup::default());
        host.run(bare("linux"), |mm| {
            let id = mapped(mm, ANON, 16);
            mm.map(id, pages(LARGE, 512), ANON, Prot::ReadWrite).unwrap();
            mm.advise(id, pages(LARGE, 512), Advice::Large).unwrap();
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
            mm.map(id, pages(from, 64), backing, Prot::ReadWrite).unwrap();
            let pools = mm.validate().pools;
            // More than a slab of regions, if each left one behind.
            for i in 0..300 {
                let part = pages(from + i % 60, 1 + i % 4);
                mm.protect(id, part, Prot::Read).unwrap();
                mm.protect(id, part, Prot::ReadWrite).unwrap();
                mm.move_range(id, part, PageNumber(from + 0x1000)).unwrap();
                mm.move_range(id, pages(from + 0x1000, part.pages), part.start).unwrap();
                if backing == ANON {
                    mm.advise(id, part, Advice::Large).unwrap();
                    mm.advise(id, part, Advice::Small).unwrap();
                }
            }
            assert_eq!(mm.validate().pools, pools, "{backing:?}");
            // One region again: taking it out as a whole needs no memory.
            let held = exhaust(mm);
            mm.unmap(id, pages(from, 64)).unwrap();
            give_back(mm, held);
            mm.destroy_space(id).unwrap();
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
            mm.switch_to(id).unwrap();
            write_all(mm, id, 16); // cached, writable and dirty
        });
        host.forget();
        let child = mm.fork(id).unwrap();
        assert_eq!(host.interrupts_to(1), 1, "one flush for all");
        let grandchild = mm.fork(child).unwrap();
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
        mm.destroy_space(child).unwrap();
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
        host.on(1, || mm.switch_to(id).unwrap());
        let child = mm.fork(id).unwrap();
        let old = frame(mm, id, AT);
        mm.destroy_space(child).unwrap();
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
            mm.advise(id, pages(AT, 4), Advice::Drop).unwrap();
            assert_eq!((host.read(mm, id, AT), host.read(mm, id, AT + 1)), (Ok(8), Ok(0)));
            assert_eq!(mm.write_back(file), Ok(1), "only what the shared mapping wrote");
            assert_eq!(host.on_disk(file.0, 0), Some(8));
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
            host.on(1, || mm.switch_to(id).unwrap());
            write_all(mm, id, 16);
            host.on(1, || write_all(mm, id, 16));
            host.forget();
            mm.protect(id, pages(AT + 4, 8), Prot::None).unwrap();
            assert_eq!(host.interrupts_to(1), 1);
            mm.protect(id, pages(AT + 4, 8), Prot::None).unwrap();
            assert_eq!(host.interrupts_to(1), 1, "nothing is lost the second time");
            for cpu in [0, 1] {
                host.on(cpu, || {
                    let no = Error::NotPermitted(PageNumber(AT + 4));
                    assert_eq!(host.read(mm, id, AT + 4), Err(no));
                    assert_eq!(host.write(mm, id, AT + 4, 1), Err(no));
                    assert_eq!(host.write(mm, id, AT + 3, AT + 3), Ok(()));
                });
            }
            mm.protect(id, pages(AT + 4, 8), Prot::Read).unwrap();
            assert_eq!(host.read(mm, id, AT + 4), Ok(AT + 4));
            assert_eq!(host.write(mm, id, AT + 4, 1), Err(Error::NotPermitted(PageNumber(AT + 4))));
            mm.protect(id, pages(AT, 16), Prot::ReadWrite).unwrap();
            assert_eq!(host.interrupts_to(1), 1, "rights that are given cost nothing");
            for page in AT..AT + 16 {
                assert_eq!(host.on(1, || host.read(mm, id, page)), Ok(page));
                assert_eq!(host.on(1, || host.write(mm, id, page, page)), Ok(()));
            }
            host.on(1, || mm.unload());
            mm.destroy_space(id).unwrap();
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
            host.on(1, || mm.switch_to(id).unwrap());
            write_all(mm, id, 16);
            host.on(1, || write_all(mm, id, 16));
            let old = frame(mm, id, AT + 5);
            host.forget();
            mm.move_range(id, pages(AT + 2, 12), PageNumber(TO)).unwrap();
            assert_eq!(host.interrupts_to(1), 1);
            assert_eq!(frame(mm, id, TO + 3), old);
            for (i, page) in (AT + 2..AT + 14).enumerate() {
                assert_eq!(host.on(1, || host.read(mm, id, page)), Err(Error::NotMapped(PageNumber(page))));
                assert_eq!(host.on(1, || host.read(mm, id, TO + i as u64)), Ok(page));
            }
            assert_eq!(host.read(mm, id, AT + 14), Ok(AT + 14));
            if cached > 0 {
                assert_eq!(mm.write_back(file), Ok(16), "dirty wherever it lies");
                host.write(mm, id, TO, 99).unwrap();
                mm.move_range(id, pages(TO, 12), PageNumber(TO + 100)).unwrap();
                mm.drain_lru_batch();
                host.on(1, || mm.drain_lru_batch());
                give_back(mm, exhaust(mm));
                assert_eq!(mm.cached_pages(file), Ok(0), "reclaim finds it at its new place");
                assert_eq!(host.on_disk(file.0, 2), Some(99));
                assert_eq!(host.read(mm, id, TO + 100), Ok(99));
            }
            host.on(1, || mm.unload());
            mm.destroy_space(id).unwrap();
        }
        assert_eq!(host.stale.get(), 0);
    });
}

#[test]
fn a_range_does_not_move_onto_what_is_mapped() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let id = mapped(mm, ANON, 16);
        mm.map(id, pages(TO, 1), ANON, Prot::Read).unwrap();
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
            assert_eq!(mm.move_range(id, from, PageNumber(to)), Err(error));
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
        mm.map(id, pages(TO, 16), shared(file), Prot::ReadWrite).unwrap();
        host.on(1, || mm.switch_to(id).unwrap());
        host.on(1, || write_all(mm, id, 16));
        host.on(1, || host.write(mm, id, TO, 9)).unwrap();
        host.forget();
        mm.advise(id, pages(AT + 4, 4), Advice::Drop).unwrap();
        assert_eq!(host.interrupts_to(1), 1);
        mm.advise(id, pages(AT + 4, 4), Advice::Drop).unwrap();
        assert_eq!(host.interrupts_to(1), 1, "nothing is there");
        assert_eq!(settled(mm).anon, 12);
        for page in AT..AT + 16 {
            let gone = (AT + 4..AT + 8).contains(&page);
            assert_eq!(host.on(1, || host.read(mm, id, page)), Ok(if gone { 0 } else { page }));
        }
        mm.advise(id, pages(TO, 16), Advice::Drop).unwrap();
        assert_eq!(mm.write_back(file), Ok(1), "what was dropped from the space is dirty in the cache");
        assert_eq!(host.read(mm, id, TO), Ok(9));
        assert_eq!(mm.advise(id, pages(AT, 17), Advice::Drop), Err(Error::NotMapped(PageNumber(AT + 16))));
    });
}

/// A space of two large pages, advised and touched.
fn large(mm: &Mm<'_>) -> SpaceId {
    let id = mm.create_space().unwrap();
    mm.map(id, pages(LARGE, 1024), ANON, Prot::ReadWrite).unwrap();
    mm.advise(id, pages(LARGE, 1024), Advice::Large).unwrap();
    mm.switch_to(id).unwrap();
    for page in [LARGE, LARGE + 511, LARGE + 600] {
        mm.platform().write(mm, id, page, page).unwrap();
    }
    assert_eq!(counted(mm, Counter::LargeFault), 2);
    id
}

#[test]
fn a_large_page_comes_by_one_fault_and_goes_whole() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let id = large(mm);
        assert_eq!(counted(mm, Counter::PgFault), 2);
        let first = entry(mm, id, LARGE);
        assert!(first.has(Entry::LARGE));
        for part in [0, 1, 300, 511] {
            let part = part as u32;
            assert_eq!(entry(mm, id, LARGE + u64::from(part)).frame(), first.frame().add(part));
        }
        let now = settled(mm);
        assert_eq!((now.anon, now.mapped), (1024, 2));
        mm.unmap(id, pages(LARGE, 512)).unwrap();
        let after = settled(mm);
        assert_eq!((after.anon, after.mapped, after.free), (512, 1, now.free + 512));
        assert_eq!(counted(mm, Counter::LargeSplit), 0);
        // A block of that order can be had again.
        mm.unmap(id, pages(LARGE + 512, 512)).unwrap();
        assert_eq!((settled(mm).anon, host.stale.get()), (0, 0));
    });
}

#[test]
fn without_a_large_frame_the_pages_are_small() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let id = mm.create_space().unwrap();
        mm.map(id, pages(LARGE, 1024), ANON, Prot::ReadWrite).unwrap();
        mm.advise(id, pages(LARGE, 1024), Advice::Large).unwrap();
        mm.switch_to(id).unwrap();
        let mut held = exhaust(mm);
        // Every other frame: enough, and none of them next to another.
        let mut other = Vec::new();
        for (i, block) in held.drain(..).enumerate() {
            if i % 2 == 0 { other.push(block) } else { mm.free_frames(block) }
        }
        host.write(mm, id, LARGE + 3, 5).unwrap();
        assert_eq!((counted(mm, Counter::LargeFault), settled(mm).anon), (0, 1));
        give_back(mm, other);
        host.write(mm, id, LARGE + 4, 6).unwrap();
        assert_eq!(counted(mm, Counter::LargeFault), 0, "small pages are there");
        host.write(mm, id, LARGE + 512, 7).unwrap();
        assert_eq!(counted(mm, Counter::LargeFault), 1);
        // Not where the region ends inside, and not where nobody asked.
        let (b, c) = (LARGE + 2048, LARGE + 4096);
        mm.map(id, pages(b, 511), ANON, Prot::ReadWrite).unwrap();
        mm.advise(id, pages(b, 511), Advice::Large).unwrap();
        mm.map(id, pages(c, 512), ANON, Prot::ReadWrite).unwrap();
        host.write(mm, id, b, 8).unwrap();
        host.write(mm, id, c, 9).unwrap();
        assert_eq!(counted(mm, Counter::LargeFault), 1);
        mm.advise(id, pages(LARGE, 1024), Advice::Small).unwrap();
        assert!(entry(mm, id, LARGE + 512).has(Entry::LARGE), "what is there stays");
        assert_eq!((host.read(mm, id, LARGE + 3), host.read(mm, id, LARGE + 512)), (Ok(5), Ok(7)));
    });
}

#[test]
fn what_concerns_a_part_of_a_large_page_makes_it_small() {
    let part = pages(LARGE + 100, 300);
    let changes: [(Operation, u64); 5] = [
        (|mm, id| mm.unmap(id, pages(LARGE + 100, 300)).unwrap(), 300),
        (|mm, id| mm.advise(id, pages(LARGE + 100, 300), Advice::Drop).unwrap(), 300),
        (|mm, id| mm.protect(id, pages(LARGE + 100, 300), Prot::Read).unwrap(), 0),
        (|mm, id| mm.move_range(id, pages(LARGE + 100, 300), PageNumber(TO)).unwrap(), 0),
        (|mm, id| _ = mm.fork(id).unwrap(), 0),
    ];
    for (i, (change, freed)) in changes.into_iter().enumerate() {
        let host = Host::new(Setup { cpus: 2, ..Setup::default() });
        host.run(bare("linux"), |mm| {
            let id = large(mm);
            host.write(mm, id, LARGE + 200, 200).unwrap();
            host.on(1, || {
                mm.switch_to(id).unwrap();
                host.write(mm, id, LARGE + 1, 1).unwrap();
            });
            host.forget();
            change(mm, id);
            assert_eq!(host.interrupts_to(1), 1, "change {i}");
            assert!(!entry(mm, id, LARGE).has(Entry::LARGE));
            let fork = i == 4;
            assert_eq!(entry(mm, id, LARGE + 512).has(Entry::LARGE), !fork);
            assert_eq!(settled(mm).anon, 1024 - freed);
            for cpu in [0, 1] {
                host.on(cpu, || {
                    let value = host.read(mm, id, LARGE + 200);
                    let hole = Err(Error::NotMapped(PageNumber(LARGE + 200)));
                    assert_eq!(value, [hole, Ok(0), Ok(200), hole, Ok(200)][i], "change {i}");
                    assert_eq!(host.read(mm, id, LARGE + 511), Ok(LARGE + 511));
                    assert_eq!(host.read(mm, id, LARGE + 1), Ok(1));
                    host.write(mm, id, LARGE + 2, 2).unwrap();
                    let inside = host.write(mm, id, part.start.0 + 7, 3);
                    assert_eq!(inside.is_ok(), matches!(i, 1 | 4), "change {i}");
                });
            }
            if i == 3 {
                assert_eq!(host.read(mm, id, TO + 100), Ok(200));
            }
            assert_eq!(host.stale.get(), 0);
        });
    }
}

#[test]
fn a_whole_large_page_is_protected_as_it_is() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let id = large(mm);
        mm.protect(id, pages(LARGE, 512), Prot::Read).unwrap();
        assert_eq!(host.write(mm, id, LARGE + 9, 1), Err(Error::NotPermitted(PageNumber(LARGE + 9))));
        mm.protect(id, pages(LARGE, 1024), Prot::None).unwrap();
        assert_eq!(host.read(mm, id, LARGE + 600), Err(Error::NotPermitted(PageNumber(LARGE + 600))));
        mm.protect(id, pages(LARGE, 1024), Prot::ReadWrite).unwrap();
        assert_eq!(host.read(mm, id, LARGE + 600), Ok(LARGE + 600));
        host.write(mm, id, LARGE + 9, 1).unwrap();
        assert_eq!((counted(mm, Counter::LargeSplit), settled(mm).anon), (0, 1024));
        mm.advise(id, pages(LARGE, 512), Advice::Drop).unwrap();
        assert_eq!((counted(mm, Counter::LargeSplit), settled(mm).anon), (0, 512));
        assert_eq!(host.read(mm, id, LARGE), Ok(0));
        assert_eq!(counted(mm, Counter::LargeFault), 3, "and comes again as one");
    });
}

#[test]
fn write_back_writes_what_is_dirty_and_costs_one_flush_for_many_pages() {
    for (guarantees, policy) in [(true, "linux"), (false, "vanilla")] {
        let host = Host::new(Setup { cpus: 2, guarantees, ..Setup::default() });
        host.run(bare(policy), |mm| {
            let file = mm.create_file(64).unwrap();
            let id = mapped(mm, shared(file), 64);
            host.on(1, || {
                mm.switch_to(id).unwrap();
                (AT..AT + 32).for_each(|page| host.write(mm, id, page, page).unwrap());
            });
            host.forget();
            assert_eq!(mm.write_back(file), Ok(32));
            assert_eq!(host.interrupts_to(1), 1);
            assert!((0..32).all(|i| host.on_disk(file.0, i) == Some(AT + i)));
            host.forget();
            assert_eq!((mm.write_back(file), host.interrupts()), (Ok(0), 0));
            host.on(1, || host.write(mm, id, AT + 3, 5)).unwrap();
            assert_eq!((mm.write_back(file), host.on_disk(file.0, 3)), (Ok(1), Some(5)));
            assert_eq!(mm.write_back(FileId(file.0 + 1)), Err(Error::NoSuchFile));
            assert_eq!(host.stale.get(), 0);
        });
    }
}

#[test]
fn what_the_device_does_not_take_stays_dirty() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(8).unwrap();
        let id = mapped(mm, shared(file), 8);
        write_all(mm, id, 3);
        host.fail_writes.set(true);
        assert_eq!(mm.write_back(file), Err(Error::Device));
        host.fail_writes.set(false);
        assert_eq!(mm.write_back(file), Ok(3));
        assert_eq!(host.on_disk(file.0, 2), Some(AT + 2));
    });
}

/// While CPU 0 writes the page at `AT` out CPU 1 does `work`; gives whether it had to wait for the page.
fn waits_during_io(work: impl FnOnce(&Mm<'_>, SpaceId) + 'static) -> bool {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(2).unwrap();
        let id = mapped(mm, shared(file), 2);
        host.on(1, || mm.switch_to(id).unwrap());
        host.write(mm, id, AT, 1).unwrap();
        host.write(mm, id, AT + 1, 1).unwrap();
        host.on_disk_write.borrow_mut().push_back(Box::new(move |mm| {
            let host = mm.platform();
            host.instead_of_page_wait.set(Some(Rule::WriteWaitsForIo));
            host.on(1, || work(mm, id));
            host.broken.set(None);
        }));
        assert_eq!(mm.write_back(file), Ok(2));
        assert_eq!(host.on_disk(file.0, 0), Some(1), "what it was when it was flushed");
        assert_eq!(host.stale.get(), 0);
        host.instead_of_page_wait.take().is_none()
    })
}

#[test]
fn who_writes_to_a_page_on_its_way_to_the_device_waits_and_who_reads_does_not() {
    assert!(waits_during_io(|mm, id| mm.platform().write(mm, id, AT, 2).unwrap()));
    assert!(!waits_during_io(|mm, id| assert_eq!(mm.platform().read(mm, id, AT), Ok(1))));
    // Not mapped at the time, thus brought by the fault.
    let dropped = |mm: &Mm<'_>, id| mm.advise(id, pages(AT, 1), Advice::Drop).unwrap();
    assert!(waits_during_io(move |mm, id| {
        dropped(mm, id);
        mm.platform().write(mm, id, AT, 2).unwrap();
    }));
    assert!(!waits_during_io(move |mm, id| {
        dropped(mm, id);
        assert_eq!(mm.platform().read(mm, id, AT), Ok(1));
    }));
    // A private copy is no business of the device.
    assert!(!waits_during_io(|mm, _| {
        let id = mm.create_space().unwrap();
        mm.map(id, pages(AT, 1), private(FileId(0)), Prot::ReadWrite).unwrap();
        mm.switch_to(id).unwrap();
        mm.platform().write(mm, id, AT, 2).unwrap();
    }));
}

#[test]
fn rights_that_are_given_during_the_write_out_wait_too() {
    assert!(waits_during_io(|mm, id| {
        mm.protect(id, pages(AT, 1), Prot::Read).unwrap();
        mm.protect(id, pages(AT, 1), Prot::ReadWrite).unwrap();
        mm.platform().write(mm, id, AT, 2).unwrap();
    }));
    assert!(waits_during_io(|mm, id| {
        mm.move_range(id, pages(AT, 1), PageNumber(TO)).unwrap();
        mm.platform().write(mm, id, TO, 2).unwrap();
    }));
}

/// While an operation on CPU 0 waits for CPU 1 to flush, CPU 2 writes the file back. Gives whether CPU 1 could write to
/// the page without a fault when it was on its way to the device.
fn writable_inside(policy: &str, operation: Operation, broken: Option<Rule>) -> bool {
    let host = Host::new(Setup { cpus: 3, guarantees: policy != "vanilla", ..Setup::default() });
    host.run(bare(policy), |mm| {
        let file = mm.create_file(1).unwrap();
        let id = mapped(mm, shared(file), 1);
        host.on(1, || mm.switch_to(id).unwrap());
        host.on(1, || host.write(mm, id, AT, 1)).unwrap();
        let writable = Rc::new(Cell::new(false));
        let seen = Rc::clone(&writable);
        host.hold_interrupts.set(true);
        host.broken.set(broken);
        host.on_pause.borrow_mut().push_back(Box::new(move |mm| {
            let host = mm.platform();
            let look = move |mm: &Mm<'_>| seen.set(mm.platform().caches(1, AT));
            host.on_disk_write.borrow_mut().push_back(Box::new(look));
            host.on(2, || assert_eq!(mm.write_back(file), Ok(1)));
        }));
        operation(mm, id);
        host.hold_interrupts.set(false);
        host.deliver_all();
        host.broken.set(None);
        assert_eq!((host.on_disk(file.0, 0), host.stale.get()), (Some(1), 0));
        writable.get()
    })
}

#[test]
fn write_back_in_the_middle_of_an_operation_flushes_before_it_writes() {
    let operations: [(&str, Operation); 4] = [
        ("protect", |mm, id| mm.protect(id, pages(AT, 1), Prot::Read).unwrap()),
        ("drop", |mm, id| mm.advise(id, pages(AT, 1), Advice::Drop).unwrap()),
        ("move", |mm, id| mm.move_range(id, pages(AT, 1), PageNumber(TO)).unwrap()),
        ("unmap", |mm, id| mm.unmap(id, pages(AT, 1)).unwrap()),
    ];
    for (name, operation) in operations {
        for policy in ["linux", "vanilla"] {
            assert!(!writable_inside(policy, operation, None), "{name}, {policy}");
            // Protect takes nothing out, and leaves the dirty bit in its entry.
            let seen = writable_inside(policy, operation, Some(Rule::TakenIsMapped));
            assert_eq!(seen, name != "protect", "{name}, {policy}");
        }
    }
}

/// CPU 0 moves a page. Before its flush CPU 2 begins to write the page out, and before that write ends the move
/// does. Gives whether CPU 0 then had to wait to write to the page.
fn waits_after_a_move_during_io(broken: Option<Rule>) -> bool {
    let host = Host::new(Setup { cpus: 3, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(1).unwrap();
        let id = mapped(mm, shared(file), 1);
        host.write(mm, id, AT, 1).unwrap();
        host.on(1, || mm.switch_to(id).unwrap());
        host.on(1, || host.read(mm, id, AT)).unwrap();
        host.hold_interrupts.set(true);
        let moving = || {
            // The flush waits for CPU 1.
            host.on_pause.borrow_mut().push_back(Box::new(|mm| mm.platform().stop()));
            mm.move_range(id, pages(AT, 1), PageNumber(TO)).unwrap();
        };
        let waited = Rc::new(Cell::new(false));
        let writing = || {
            let waited = Rc::clone(&waited);
            host.on_disk_write.borrow_mut().push_back(Box::new(move |mm| {
                let host = mm.platform();
                host.stop();
                host.instead_of_page_wait.set(Some(Rule::WriteWaitsForIo));
                host.on(0, || host.write(mm, id, TO, 2)).unwrap();
                host.broken.set(None);
                waited.set(host.instead_of_page_wait.take().is_none());
            }));
            assert_eq!(mm.write_back(file), Ok(1));
        };
        host.aside(0, moving, |moving| {
            host.aside(2, writing, |writing| {
                assert!(host.resume_one(moving), "taken out and not flushed");
                host.hold_interrupts.set(false);
                assert!(host.resume_one(writing), "found nothing, flushed, and writes");
                host.broken.set(broken);
                assert!(!host.resume_one(moving), "moved");
                assert!(!host.resume_one(writing), "written out");
            });
        });
        assert_eq!(host.read(mm, id, TO), Ok(2));
        assert_eq!((mm.write_back(file), host.on_disk(file.0, 0)), (Ok(1), Some(2)));
        assert_eq!(host.stale.get(), 0);
        waited.get()
    })
}

#[test]
fn a_page_that_moves_while_it_is_written_out_stays_read_only() {
    assert!(waits_after_a_move_during_io(None));
    assert!(!waits_after_a_move_during_io(Some(Rule::WriteWaitsForIo)));
}

#[test]
fn pages_that_migrate_keep_their_content_and_leave_their_frames() {
    let host = Host::new(two_nodes());
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(4).unwrap();
        let id = mapped(mm, ANON, 16);
        mm.map(id, pages(TO, 4), shared(file), Prot::ReadWrite).unwrap();
        host.on(1, || mm.switch_to(id).unwrap());
        write_all(mm, id, 16);
        host.write(mm, id, TO, 4).unwrap();
        host.on(1, || write_all(mm, id, 16));
        let node = |page| NodeId(u16::from(frame(mm, id, page).0 >= 0x1000 + 2048));
        assert_eq!(node(AT), NodeId(0));
        let before = settled(mm);
        host.forget();
        assert_eq!(mm.migrate(id, pages(AT + 4, 8), NodeId(1)), Ok(8));
        assert_eq!((host.interrupts_to(1), counted(mm, Counter::PgMigrated)), (1, 8));
        assert_eq!((node(AT + 3), node(AT + 4), node(AT + 12)), (NodeId(0), NodeId(1), NodeId(0)));
        assert_eq!(settled(mm), before, "the old frames are free");
        host.forget();
        assert_eq!(mm.migrate(id, pages(AT + 4, 8), NodeId(1)), Ok(0));
        assert_eq!(mm.migrate(id, pages(TO, 4), NodeId(1)), Ok(0), "pages of a file stay");
        assert_eq!(mm.migrate(id, pages(AT, 1), NodeId(2)), Err(Error::NoSuchNode));
        assert_eq!(mm.migrate(id, pages(AT, 17), NodeId(1)), Err(Error::NotMapped(PageNumber(AT + 16))));
        assert_eq!(host.interrupts(), 0);
        for page in AT..AT + 16 {
            assert_eq!(host.on(1, || host.read(mm, id, page)), Ok(page));
            host.on(1, || host.write(mm, id, page, page + 1)).unwrap();
            assert_eq!(host.read(mm, id, page), Ok(page + 1));
        }
        // What two spaces share stays; so does what finds no room.
        let child = mm.fork(id).unwrap();
        assert_eq!(mm.migrate(id, pages(AT, 4), NodeId(1)), Ok(0));
        mm.destroy_space(child).unwrap();
        let held = exhaust(mm);
        assert_eq!(mm.migrate(id, pages(AT, 4), NodeId(1)), Ok(0));
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
        mm.map(id, pages(LARGE, 1024), ANON, Prot::ReadWrite).unwrap();
        mm.map(id, pages(LARGE + 1030, 2), ANON, Prot::ReadWrite).unwrap();
        mm.switch_to(id).unwrap();
        for page in [0, 512, 1030].map(|page| LARGE + page) {
            host.write(mm, id, page, page).unwrap();
        }
        host.on(1, || mm.switch_to(id).unwrap());
        host.on(1, || host.read(mm, id, LARGE).unwrap());
        host.on(2, || {
            mm.switch_to(id).unwrap();
            mm.enter_lazy();
        });
        assert_eq!(mm.validate().tables, start + 5);
        host.forget();
        mm.unmap(id, pages(LARGE, 500)).unwrap();
        assert_eq!(mm.validate().tables, start + 5, "the rest of the table is mapped");
        assert_eq!((host.interrupts_to(1), host.interrupts_to(2)), (1, 0), "a lazy CPU is left alone");
        mm.unmap(id, pages(LARGE + 500, 500)).unwrap();
        assert_eq!(mm.validate().tables, start + 4);
        assert_eq!(
            (host.interrupts_to(1), host.interrupts_to(2)),
            (2, 1),
            "or else it could walk what is freed"
        );
        assert_eq!(host.on(2, || mm.loaded_space()), None);
        mm.unmap(id, pages(LARGE + 1000, 24)).unwrap();
        assert_eq!(mm.validate().tables, start + 3);
        mm.unmap(id, pages(LARGE + 1031, 1)).unwrap();
        assert_eq!(host.read(mm, id, LARGE + 1030), Ok(LARGE + 1030), "a neighbour lives there");
        mm.unmap(id, pages(LARGE + 1030, 1)).unwrap();
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
            mm.protect(id, pages(AT, 1), Prot::Read).unwrap();
            host.on(1, || mm.switch_to(id).unwrap());
            host.on(1, || host.read(mm, id, AT)).unwrap();
            assert_eq!(mm.migrate(id, pages(AT, 1), NodeId(1)), Ok(1));
            host.on(1, || host.read(mm, id, AT)).unwrap();
            assert_eq!(host.stale.get(), stale);
        });
    }
}

#[test]
fn what_is_on_its_way_to_the_device_gets_there_before_its_file_ends() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(2).unwrap();
        let id = mapped(mm, shared(file), 2);
        write_all(mm, id, 2);
        mm.unmap(id, pages(AT, 2)).unwrap();
        let writing = || {
            host.on_disk_write.borrow_mut().push_back(Box::new(|mm| mm.platform().stop()));
            assert_eq!(mm.write_back(file), Ok(2));
        };
        let ending = || {
            mm.destroy_file(file).unwrap();
            // The next file may have the same number.
            assert_eq!(mm.create_file(2), Ok(file));
        };
        host.aside(1, writing, |writing| {
            host.aside(0, ending, |ending| {
                assert!(host.resume_one(writing));
                let waits = host.resume_one(ending);
                host.forget();
                assert!(!host.resume_one(writing));
                assert!(waits, "until the device has the page");
                assert!(!host.resume_one(ending));
                assert!(host.count(|what| matches!(what, Happened::DiskWrite(..))) <= 1);
            });
        });
        assert_eq!((mm.cached_pages(file), settled(mm).file), (Ok(0), 0));
    });
}

/// A page that was written to, and that nobody maps now, is reclaimed by CPU 1 at the `n`th touch of a fault that brings
/// it back. Gives whether the program could write to it while it was on its way to the device.
fn written_during_pageout(mm: &Mm<'_>, n: u32) -> bool {
    let host = mm.platform();
    let (id, file) = (mm.create_space().unwrap(), mm.create_file(1).unwrap());
    mm.map(id, pages(AT, 1), Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
    mm.switch_to(id).unwrap();
    host.write(mm, id, AT, 1).unwrap();
    mm.drain_lru_batch();
    mm.advise(id, pages(AT, 1), Advice::Drop).unwrap();
    let in_io = Rc::new(Cell::new(false));
    let inside = Rc::clone(&in_io);
    host.on_disk_write.borrow_mut().push_back(Box::new(move |mm| {
        inside.set(true);
        mm.platform().stop();
        inside.set(false);
    }));
    // On the side, who stands before a lock lets the other go on.
    let give_way = |mm: &Mm<'_>| {
        if mm.platform().is_aside() {
            mm.platform().stop();
        }
    };
    (0..50).for_each(|_| host.on_pause.borrow_mut().push_back(Box::new(give_way)));
    let reclaim = || give_back(mm, exhaust(mm));
    host.aside(1, reclaim, |_| {
        host.at_touch(0, n, |mm| {
            if !mm.platform().is_aside() {
                mm.platform().resume();
            }
        });
        assert_eq!(mm.fault(id, PageNumber(AT).addr(), UserAccess::Read), Ok(()));
        host.all_placed();
        in_io.get() && host.try_write(AT, 2)
    })
}

#[test]
fn a_fault_that_brings_back_a_page_gives_no_right_to_write_while_it_is_written_out() {
    let (written, skipped) = everywhere(&Setup { cpus: 2, ..Setup::default() }, None, written_during_pageout);
    assert_eq!((written.iter().filter(|bad| **bad).count(), skipped), (0, 0), "of {}", written.len());
}

/// CPU 1 has a page cached that is clean and writable; while CPU 0 takes the right to write away it writes.
fn written_during_a_protect(guarantees: bool) -> (bool, Option<u64>) {
    let host = Host::new(Setup { cpus: 2, guarantees, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let (id, file) = (mm.create_space().unwrap(), mm.create_file(1).unwrap());
        mm.map(id, pages(AT, 1), Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
        host.on(1, || mm.switch_to(id).unwrap());
        host.on(1, || host.read(mm, id, AT)).unwrap();
        let wrote = Rc::new(Cell::new(false));
        let seen = Rc::clone(&wrote);
        host.hold_interrupts.set(true);
        host.on_pause.borrow_mut().push_back(Box::new(move |mm| {
            let host = mm.platform();
            seen.set(host.on(1, || host.try_write(AT, 7)));
            host.hold_interrupts.set(false);
        }));
        mm.protect(id, pages(AT, 1), Prot::Read).unwrap();
        mm.write_back(file).unwrap();
        (wrote.get(), host.on_disk(file.0, 0))
    })
}

#[test]
fn what_is_written_while_the_right_is_taken_away_reaches_the_file() {
    assert_eq!(written_during_a_protect(true), (false, None));
    assert_eq!(written_during_a_protect(false), (true, Some(7)));
}
