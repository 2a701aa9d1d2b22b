//! 2 MiB of a file behind one entry: as long as it is merely used.

use crate::machine;

use machine::race::{Place, at, at_every_touch, race};
use machine::showing::{ANON, LARGE, entry, frame, private, shared};
use machine::swapping::{DEVICE, read, reclaim, squeeze, take_free, write};
use machine::{Host, Mm, Setup, bare, counted, exhaust, give_back, pages, pcp, settled, soaks};
use quietmm::addr::PAGE_SIZE;
use quietmm::platform::Cpus;
use quietmm::{
    Advice, Architecture, Backing, Config, Counter, Entry, Error, FileId, NodeId, NodeSet, PageNumber, Prot,
    Rule, SpaceId, Term, UserAccess,
};

const POLICIES: [&str; 5] = ["linux", "vanilla", "quiet", "quiet+free=sweep", "linux+unmap=batch-clean"];
const PAGES: u64 = 512;

fn setup(cpus: u32) -> Setup {
    Setup { cpus, frames: 4096, ..Setup::default() }
}

fn config(policy: &str) -> Config {
    Config { swap: true, lru_batch: 1, scan_batch: 4, page_lists: pcp(1), ..bare(policy) }
}

/// A file of 2 MiB and a bit, each page of which begins with its number and one, in memory. Its frames lie anyhow.
fn file(mm: &Mm<'_>) -> FileId {
    let id = mm.create_file(PAGES + 8).unwrap();
    for page in (0..PAGES + 8).rev() {
        let word = page + 1;
        assert_eq!(mm.file(id).write(page * PAGE_SIZE, &word.to_ne_bytes()), Ok(8));
    }
    mm.drain_lru_batch();
    id
}

fn showing(mm: &Mm<'_>, backing: Backing, prot: Prot) -> SpaceId {
    let id = mm.create_space().unwrap();
    mm.space(id).map(pages(LARGE, PAGES + 8), backing, prot).unwrap();
    mm.space(id).switch_to().unwrap();
    id
}

fn collapse(mm: &Mm<'_>, id: SpaceId) -> Result<(), Error> {
    mm.space(id).advise(pages(LARGE, PAGES), Advice::Collapse)
}

/// A space that shows a file by a large entry.
fn large(mm: &Mm<'_>, backing: fn(FileId) -> Backing, prot: Prot) -> (SpaceId, FileId) {
    let file = file(mm);
    let id = showing(mm, backing(file), prot);
    assert_eq!(collapse(mm, id), Ok(()));
    assert!(is_large(mm, id));
    (id, file)
}

fn is_large(mm: &Mm<'_>, id: SpaceId) -> bool {
    entry(mm, id, LARGE).has(Entry::LARGE)
}

fn holds(mm: &Mm<'_>, id: SpaceId) -> bool {
    (0..PAGES + 8).all(|page| read(mm, id, LARGE + page) == Ok(page + 1))
}

/// Everybody leaves, and nothing is left.
fn end(mm: &Mm<'_>, spaces: &[SpaceId], file: FileId) {
    (0..mm.platform().possible_cpus() as u16).for_each(|cpu| mm.platform().on(cpu, || mm.unload()));
    spaces.iter().for_each(|&id| mm.space(id).destroy().unwrap());
    mm.file(file).destroy().unwrap();
    let end = settled(mm);
    assert_eq!((end.broken, end.anon, end.file, end.mapped), (None, 0, 0, 0));
}

#[test]
fn pages_come_to_lie_in_one_piece_behind_one_entry_for_one_flush() {
    for policy in POLICIES {
        let host = Host::new(setup(3));
        host.run(config(policy), |mm| {
            let file = file(mm);
            let id = showing(mm, shared(file), Prot::ReadWrite);
            // One uses the space, one is lazy. Some pages are mapped, and some are dirty.
            for cpu in [1, 2] {
                host.on(cpu, || assert!(mm.space(id).switch_to().is_ok() && holds(mm, id)));
            }
            host.write(mm, id, LARGE + 5, 6).unwrap();
            host.on(2, || mm.enter_lazy());
            let before = mm.space(id).usage().unwrap();
            host.forget();
            assert_eq!(collapse(mm, id), Ok(()), "{policy}");
            assert_eq!([1, 2].map(|cpu| host.interrupts_to(cpu)), [1, 1], "{policy}");
            assert!(is_large(mm, id), "{policy}");
            let first = frame(mm, id, LARGE);
            assert_eq!(first.0 % 512, 0);
            assert!((0..PAGES).all(|page| frame(mm, id, LARGE + page) == first.add(page as u32)));
            assert!(!entry(mm, id, LARGE + PAGES).has(Entry::LARGE));
            host.on(1, || assert!(holds(mm, id), "{policy}"));
            let after = mm.space(id).usage().unwrap();
            // The table is the spare one now, and another says where that is.
            assert_eq!(
                (after.file, after.anon, after.tables),
                (before.file, 0, before.tables + 1),
                "{policy}"
            );
            assert_eq!(counted(mm, Counter::LargeCollapse), 1);
            assert_eq!((settled(mm).broken, mm.file(file).cached_pages()), (None, Ok(PAGES + 8)), "{policy}");
            host.forget();
            assert_eq!(collapse(mm, id), Ok(()), "it is large");
            assert_eq!(host.interrupts(), 0);
            assert_eq!(host.stale.get(), 0, "{policy}");
            end(mm, &[id], file);
        });
    }
}

#[test]
fn one_call_is_for_a_file_between_memory_of_the_programs_own() {
    const PARTS: [u64; 3] = [LARGE, LARGE + 512, LARGE + 1024];
    let host = Host::new(setup(1));
    host.run(config("linux"), |mm| {
        let (file, id) = (file(mm), mm.create_space().unwrap());
        for (at, backing) in PARTS.into_iter().zip([ANON, shared(file), ANON]) {
            mm.space(id).map(pages(at, 512), backing, Prot::ReadWrite).unwrap();
        }
        write(mm, id, LARGE + 3, 3).unwrap();
        write(mm, id, LARGE + 1027, 27).unwrap();
        mm.drain_lru_batch();
        assert_eq!(mm.space(id).advise(pages(LARGE, 3 * 512), Advice::Collapse), Ok(()));
        assert_eq!(PARTS.map(|at| entry(mm, id, at).has(Entry::LARGE)), [true; 3]);
        assert_eq!([3, 512, 1027].map(|page| read(mm, id, LARGE + page)), [Ok(3), Ok(1), Ok(27)]);
        end(mm, &[id], file);
    });
}

/// Of a file with enough pages, of which a mapping shows the first half only, or the last.
#[test]
fn a_mapping_of_a_part_is_no_large_one_though_the_file_has_the_rest() {
    let host = Host::new(setup(1));
    host.run(config("linux"), |mm| {
        let file = file(mm);
        for shown in [0, 256] {
            let id = mm.create_space().unwrap();
            mm.space(id).map(pages(LARGE, 512), ANON, Prot::ReadWrite).unwrap();
            mm.space(id).unmap(pages(LARGE + shown, 256)).unwrap();
            let backing = Backing::File { file, offset: shown };
            mm.space(id).map(pages(LARGE + shown, 256), backing, Prot::Read).unwrap();
            assert_eq!(collapse(mm, id), Err(Error::NotCollapsible(PageNumber(LARGE))));
            assert!(!is_large(mm, id));
            assert_eq!(read(mm, id, LARGE + shown), Ok(shown + 1));
            assert_eq!(read(mm, id, LARGE + 256 - shown), Ok(0));
            mm.unload();
            mm.space(id).destroy().unwrap();
        }
        end(mm, &[], file);
    });
}

#[test]
fn another_space_that_wants_it_large_has_it_by_one_fault() {
    let host = Host::new(setup(2));
    host.run(config("linux"), |mm| {
        let (id, file) = large(mm, shared, Prot::ReadExecute);
        let other = showing(mm, private(file), Prot::ReadWrite);
        read(mm, other, LARGE + 7).unwrap();
        assert!(!is_large(mm, other), "nobody asked");
        mm.space(other).unmap(pages(LARGE, PAGES + 8)).unwrap();
        mm.space(other).map(pages(LARGE, PAGES + 8), private(file), Prot::ReadWrite).unwrap();
        mm.space(other).advise(pages(LARGE, PAGES + 8), Advice::Large).unwrap();
        let faults = counted(mm, Counter::PgFault);
        assert_eq!(read(mm, other, LARGE + 7), Ok(8));
        assert!(is_large(mm, other) && frame(mm, other, LARGE + 7) == frame(mm, id, LARGE + 7));
        assert!((0..PAGES).all(|page| read(mm, other, LARGE + page) == Ok(page + 1)));
        assert_eq!(counted(mm, Counter::PgFault), faults + 1);
        // The first access is a write: to a copy, of one page.
        mm.space(other).advise(pages(LARGE, PAGES), Advice::Drop).unwrap();
        write(mm, other, LARGE + 7, 70).unwrap();
        assert_eq!((read(mm, other, LARGE + 7), is_large(mm, other)), (Ok(70), false));
        assert_eq!(counted(mm, Counter::LargeFault), 1, "it was not large for a moment");
        // Where they do not lie so, they come one by one.
        let elsewhere = mm.create_file(PAGES).unwrap();
        mm.space(other).unmap(pages(LARGE, PAGES + 8)).unwrap();
        mm.space(other).map(pages(LARGE, PAGES), shared(elsewhere), Prot::Read).unwrap();
        mm.space(other).advise(pages(LARGE, PAGES), Advice::Large).unwrap();
        assert_eq!((read(mm, other, LARGE), is_large(mm, other)), (Ok(0), false));
        mm.space(other).unmap(pages(LARGE, PAGES)).unwrap();
        mm.file(elsewhere).destroy().unwrap();
        end(mm, &[id, other], file);
    });
}

#[test]
fn a_write_makes_it_small_and_the_page_is_the_files_or_a_copy() {
    for policy in POLICIES {
        let host = Host::new(setup(2));
        host.run(config(policy), |mm| {
            let (id, file) = large(mm, shared, Prot::ReadWrite);
            let own = showing(mm, private(file), Prot::ReadWrite);
            assert_eq!(collapse(mm, own), Ok(()));
            host.on(1, || assert!(holds(mm, id)));
            host.forget();
            write(mm, id, LARGE + 9, 90).unwrap();
            assert!(!is_large(mm, id) && is_large(mm, own));
            assert_eq!(read(mm, own, LARGE + 9), Ok(90));
            assert_eq!(host.interrupts(), 0, "{policy}: it is the same page");
            write(mm, own, LARGE + 10, 91).unwrap();
            assert_eq!([id, own].map(|id| read(mm, id, LARGE + 10)), [Ok(11), Ok(91)]);
            assert!(!is_large(mm, own));
            host.on(1, || assert_eq!(host.read(mm, id, LARGE + 10), Ok(11)));
            // A copy of the space's own is in the way.
            let copy = Err(Error::NotCollapsible(PageNumber(LARGE + 10)));
            assert_eq!((collapse(mm, own), collapse(mm, id)), (copy, Ok(())));
            assert_eq!(read(mm, id, LARGE + 9), Ok(90));
            assert_eq!((settled(mm).broken, host.stale.get()), (None, 0), "{policy}");
            end(mm, &[id, own], file);
        });
    }
}

#[test]
fn what_concerns_a_part_makes_it_small_and_all_of_it_is_there() {
    for policy in POLICIES {
        let host = Host::new(setup(2));
        host.run(config(policy), |mm| {
            let file = file(mm);
            let id = showing(mm, shared(file), Prot::ReadWrite);
            let again = |what: &str| {
                assert_eq!(collapse(mm, id), Ok(()), "{policy}: {what}");
                assert!(is_large(mm, id) && holds(mm, id), "{policy}: {what}");
                // A CPU that has cached it, and must not use it longer than others.
                host.on(1, || assert!(mm.space(id).switch_to().is_ok() && holds(mm, id)));
            };
            let small = |what: &str| {
                assert!(!is_large(mm, id), "{policy}: {what}");
                assert!(holds(mm, id), "{policy}: {what}");
                assert_eq!((settled(mm).broken, host.stale.get()), (None, 0), "{policy}: {what}");
            };
            again("first");
            mm.space(id).protect(pages(LARGE + 3, 1), Prot::Read).unwrap();
            small("protect");
            assert_eq!(host.write(mm, id, LARGE + 3, 1), Err(Error::NotPermitted(PageNumber(LARGE + 3))));
            mm.space(id).protect(pages(LARGE + 3, 1), Prot::ReadWrite).unwrap();
            again("protect");
            mm.space(id).protect(pages(LARGE, PAGES + 8), Prot::None).unwrap();
            assert!(host.read(mm, id, LARGE).is_err() && !is_large(mm, id));
            assert_eq!(collapse(mm, id), Err(Error::NotCollapsible(PageNumber(LARGE))));
            mm.space(id).protect(pages(LARGE, PAGES + 8), Prot::ReadWrite).unwrap();
            again("nobody may use it");
            mm.space(id).advise(pages(LARGE + 3, 1), Advice::Drop).unwrap();
            assert!(!entry(mm, id, LARGE + 3).is_present());
            small("drop");
            again("drop");
            mm.space(id).unmap(pages(LARGE + 3, 1)).unwrap();
            assert!(host.read(mm, id, LARGE + 3).is_err());
            let part = Backing::File { file, offset: 3 };
            mm.space(id).map(pages(LARGE + 3, 1), part, Prot::ReadWrite).unwrap();
            small("unmap");
            again("unmap");
            let to = PageNumber(4 * LARGE + 1);
            mm.space(id).move_range(pages(LARGE, PAGES + 8), to).unwrap();
            assert!((0..PAGES + 8).all(|page| read(mm, id, to.0 + page) == Ok(page + 1)));
            mm.space(id).move_range(pages(to.0, PAGES + 8), PageNumber(LARGE)).unwrap();
            small("move");
            again("move");
            let pins = mm.space(id).pin(pages(LARGE + 3, 1), UserAccess::Read, Term::Short).unwrap();
            assert_eq!(pins.frames()[0], frame(mm, id, LARGE + 3));
            mm.unpin(pins);
            small("pin");
            again("pin");
            let child = mm.space(id).fork().unwrap();
            assert!(is_large(mm, id) && !is_large(mm, child), "what a file shows comes by faults");
            assert!(holds(mm, child));
            write(mm, child, LARGE + 4, 5).unwrap();
            assert!(is_large(mm, id) && holds(mm, id));
            mm.space(id).switch_to().unwrap();
            mm.space(child).destroy().unwrap();
            let here = NodeSet::of(&[NodeId(0)]).unwrap();
            mm.space(id).migrate_all(pages(LARGE, PAGES), here, NodeId(0)).unwrap();
            small("migrate");
            again("migrate");
            assert_eq!(mm.space(id).residency(pages(LARGE, PAGES), &mut [0; 512]), Ok(PAGES));
            host.on(1, || mm.unload());
            end(mm, &[id], file);
        });
    }
}

#[test]
fn what_is_not_in_memory_or_does_not_lie_so_stays_small() {
    let host = Host::new(setup(1));
    host.run(config("linux"), |mm| {
        let (id, file) = large(mm, shared, Prot::Read);
        // The file's first page must be a large page's.
        let part = Backing::File { file, offset: 1 };
        let other = mm.create_space().unwrap();
        mm.space(other).map(pages(LARGE, 520), part, Prot::Read).unwrap();
        let refused = Err(Error::NotCollapsible(PageNumber(LARGE)));
        assert_eq!(collapse(mm, other), refused);
        mm.space(other).unmap(pages(LARGE, 520)).unwrap();
        // And all of them must be there.
        let holes = mm.create_file(PAGES - 1).unwrap();
        (0..PAGES - 1).for_each(|page| _ = mm.file(holes).write(page * PAGE_SIZE, &[1]).unwrap());
        mm.space(other).map(pages(LARGE, PAGES), shared(holes), Prot::Read).unwrap();
        let missing = Err(Error::NotCollapsible(PageNumber(LARGE + PAGES - 1)));
        assert_eq!(collapse(mm, other), missing);
        let free = settled(mm).free;
        assert_eq!(collapse(mm, other), missing);
        assert_eq!(settled(mm).free, free);
        mm.file(holes).set_size(PAGES * PAGE_SIZE).unwrap();
        assert_eq!(mm.file(holes).write((PAGES - 1) * PAGE_SIZE, &[1]), Ok(1));
        mm.drain_lru_batch();
        let pins = mm.space(other).pin(pages(LARGE + 77, 1), UserAccess::Read, Term::Short).unwrap();
        // A page that a device uses stays where it is, and is shown there.
        let kept = Err(Error::NotCollapsible(PageNumber(LARGE + 77)));
        assert_eq!(collapse(mm, other), kept);
        let pinned = frame(mm, other, LARGE + 77);
        assert_eq!(pins.frames()[0], pinned);
        assert_eq!(mm.validate().broken, None);
        // Also from another space, where the others move for nothing.
        let third = showing(mm, shared(holes), Prot::Read);
        assert_eq!(collapse(mm, third), refused);
        mm.unload();
        mm.space(third).destroy().unwrap();
        mm.unpin(pins);
        assert_eq!(collapse(mm, other), Ok(()));
        mm.space(other).destroy().unwrap();
        mm.file(holes).destroy().unwrap();
        // What is locked stays where programs see it.
        mm.space(id).unmap(pages(LARGE, PAGES + 8)).unwrap();
        mm.space(id).map(pages(LARGE, PAGES + 8), shared(file), Prot::Read).unwrap();
        mm.space(id).lock(pages(LARGE, PAGES)).unwrap();
        let locked = settled(mm).mapped;
        assert_eq!((collapse(mm, id), settled(mm).mapped), (refused, locked));
        mm.space(id).unlock(pages(LARGE, PAGES)).unwrap();
        assert_eq!(collapse(mm, id), Ok(()));
        // No frame of that size.
        mm.space(id).unmap(pages(LARGE, PAGES + 8)).unwrap();
        let held = take_free(mm);
        let full = file_in_memory_of_others(mm, file);
        assert_eq!(full, Err(Error::OutOfMemory));
        give_back(mm, held);
        end(mm, &[id], file);
    });
}

/// A second file of which nothing lies in one piece, while no memory is free.
fn file_in_memory_of_others(mm: &Mm<'_>, file: FileId) -> Result<(), Error> {
    let id = showing(mm, shared(file), Prot::Read);
    // One page moves elsewhere.
    let moved = mm.file(file).set_size(5 * PAGE_SIZE).and_then(|()| mm.file(file).set_size(520 * PAGE_SIZE));
    assert_eq!(moved, Ok(()));
    for page in 5..PAGES {
        mm.file(file).write(page * PAGE_SIZE, &[1]).unwrap();
    }
    mm.drain_lru_batch();
    let done = collapse(mm, id);
    mm.space(id).destroy().unwrap();
    done
}

#[test]
fn reclaim_takes_pages_that_nobody_uses_one_by_one() {
    for policy in POLICIES {
        let host = Host::new(setup(2));
        host.run(config(policy), |mm| {
            mm.swap().on(DEVICE, 512, 0).unwrap();
            let (id, file) = large(mm, shared, Prot::Read);
            host.on(1, || assert!(mm.space(id).switch_to().is_ok() && holds(mm, id)));
            (0..3).for_each(|_| squeeze(mm));
            assert!(mm.file(file).cached_pages().unwrap() < PAGES, "{policy}");
            assert!(!is_large(mm, id), "{policy}");
            assert!(holds(mm, id), "{policy}");
            host.on(1, || assert!(holds(mm, id), "{policy}"));
            assert_eq!((settled(mm).broken, host.stale.get()), (None, 0), "{policy}");
            mm.swap().off(DEVICE).unwrap();
            end(mm, &[id], file);
        });
    }
}

#[test]
fn what_is_said_of_a_page_is_said_of_no_other() {
    let host = Host::new(setup(2));
    host.run(config("linux"), |mm| {
        let (id, file) = large(mm, shared, Prot::Read);
        let there = |page: u64| {
            mm.space(id).advise(pages(LARGE, PAGES), Advice::Drop).unwrap();
            let mut pages_there = [0; 512];
            mm.space(id).residency(pages(LARGE, PAGES), &mut pages_there).unwrap();
            (pages_there.iter().filter(|&&there| there == 0).count(), pages_there[page as usize])
        };
        mm.file(file).write_back().unwrap();
        mm.space(id).advise(pages(LARGE + 77, 1), Advice::PageOut).unwrap();
        assert!(!is_large(mm, id));
        assert_eq!(there(77), (1, 0));
        assert!(holds(mm, id));
        mm.drain_lru_batch();
        assert_eq!(collapse(mm, id), Ok(()));
        // What another space shows by itself is shared, and stays.
        let other = showing(mm, shared(file), Prot::Read);
        assert_eq!(read(mm, other, LARGE + 78), Ok(79));
        assert_eq!(mm.space(id).usage().unwrap().shared, 1);
        mm.space(id).advise(pages(LARGE + 77, 2), Advice::PageOut).unwrap();
        assert_eq!((there(77), there(78)), ((1, 0), (1, 1)));
        end(mm, &[id, other], file);
    });
}

#[test]
fn small_entries_say_that_they_were_used_if_the_large_one_did_to_anybody() {
    for architecture in Architecture::ALL {
        let host = Host::new(Setup { architecture, ..setup(2) });
        host.run(config("linux"), |mm| {
            let (id, file) = large(mm, shared, Prot::ReadWrite);
            let other = showing(mm, shared(file), Prot::Read);
            let accessed = |page: u64| entry(mm, id, LARGE + page).has(Entry::ACCESSED);
            assert!(read(mm, id, LARGE + 7).is_ok());
            // Somebody looks at one page, and clears the one bit.
            mm.space(id).advise(pages(LARGE + 3, 1), Advice::Cold).unwrap();
            assert!(!accessed(0) && is_large(mm, id));
            write(mm, id, LARGE + 9, 10).unwrap();
            assert_eq!([3, 4, 7, 511].map(accessed), [false, true, true, true]);
            // And of a page about which somebody has been told since, it is clear.
            assert_eq!(collapse(mm, id), Ok(()));
            mm.space(id).advise(pages(LARGE + 3, 2), Advice::Cold).unwrap();
            write(mm, id, LARGE + 9, 10).unwrap();
            assert_eq!([3, 4, 5].map(accessed), [false, false, true]);
            end(mm, &[id, other], file);
        });
    }
}

#[test]
fn what_was_written_before_they_lie_in_one_piece_goes_to_the_device() {
    for policy in POLICIES {
        let host = Host::new(setup(2));
        host.run(config(policy), |mm| {
            let file = file(mm);
            let id = showing(mm, shared(file), Prot::ReadWrite);
            mm.file(file).write_back().unwrap();
            // Only the entry knows of it.
            write(mm, id, LARGE + 5, 50).unwrap();
            assert_eq!(collapse(mm, id), Ok(()));
            assert!(is_large(mm, id), "{policy}");
            mm.file(file).write_back().unwrap();
            assert_eq!(host.on_disk(file, 5), Some(50), "{policy}");
            assert!(is_large(mm, id), "{policy}: nobody can write to it");
            end(mm, &[id], file);
        });
    }
}

#[test]
fn each_page_stays_charged_to_its_group_and_no_cpus_batch_keeps_one() {
    let host = Host::new(setup(2));
    host.run(Config { groups: 2, lru_batch: 31, ..config("linux") }, |mm| {
        let group = mm.create_group(4000).unwrap();
        let id = mm.create_space().unwrap();
        mm.space(id).set_group(Some(group)).unwrap();
        let file = mm.create_file(PAGES).unwrap();
        mm.space(id).map(pages(LARGE, PAGES), shared(file), Prot::ReadWrite).unwrap();
        // The last of them wait in CPU 1's batch.
        host.on(1, || {
            mm.space(id).switch_to().unwrap();
            (0..PAGES).for_each(|page| host.write(mm, id, LARGE + page, page).unwrap());
        });
        let charged = || crate::groups::charged(mm, group);
        // Another space has one pinned: that stays, and what it would have moved to is charged to nobody.
        let other = mm.create_space().unwrap();
        mm.space(other).map(pages(LARGE, PAGES), shared(file), Prot::Read).unwrap();
        let pins = mm.space(other).pin(pages(LARGE + 77, 1), UserAccess::Read, Term::Short).unwrap();
        mm.space(id).advise(pages(LARGE, PAGES), Advice::Drop).unwrap();
        assert_eq!(collapse(mm, id), Err(Error::NotCollapsible(PageNumber(LARGE))));
        mm.unpin(pins);
        mm.space(other).destroy().unwrap();
        mm.drain_lru_batches();
        assert_eq!(mm.validate().broken, None);
        mm.space(id).populate(pages(LARGE, PAGES), UserAccess::Read).unwrap();
        let before = charged();
        assert_eq!(collapse(mm, id), Ok(()));
        assert!(is_large(mm, id));
        assert_eq!(charged(), before + 1, "and the table that says where the spare one is");
        assert_eq!(mm.validate().broken, None);
        host.on(1, || mm.unload());
        mm.space(id).destroy().unwrap();
        mm.file(file).destroy().unwrap();
        mm.drain_lru_batches();
        assert_eq!(charged(), 0);
    });
}

/// Whether the entry stays large, and how many pages stay, when reclaim looks at all of them once, and then finds others that nobody uses.
fn after_one_look(policy: &str) -> (bool, u64) {
    let host = Host::new(setup(2));
    host.run(config(policy), |mm| {
        let (id, file) = large(mm, shared, Prot::Read);
        mm.space(id).unmap(pages(LARGE + PAGES, 8)).unwrap();
        mm.file(file).set_size(PAGES * PAGE_SIZE).unwrap();
        let unused = mm.create_file(64).unwrap();
        assert_eq!(mm.file(unused).write(0, &[1; 64 * 4096]), Ok(64 * 4096));
        mm.file(unused).write_back().unwrap();
        mm.drain_lru_batch();
        let held = take_free(mm);
        // One page of it is used.
        assert!(read(mm, id, LARGE + 7).is_ok());
        reclaim(mm);
        assert!(mm.file(unused).cached_pages().unwrap() < 64, "{policy}");
        let seen = (is_large(mm, id), mm.file(file).cached_pages().unwrap());
        give_back(mm, held);
        seen
    })
}

#[test]
fn aging_sees_that_all_of_it_is_used_though_one_bit_says_so() {
    for policy in ["linux", "vanilla", "quiet"] {
        assert_eq!(after_one_look(policy), (true, PAGES), "{policy}");
    }
}

/// A large entry needs a table beside it, and another that says where that is. Where there is memory for one of them the page comes by itself, and nothing is kept.
#[test]
fn a_large_entry_without_memory_for_its_tables_is_a_small_one() {
    let host = Host::new(setup(1));
    host.run(config("linux"), |mm| {
        let (first, file) = large(mm, shared, Prot::Read);
        let id = showing(mm, shared(file), Prot::Read);
        mm.space(id).advise(pages(LARGE, PAGES), Advice::Large).unwrap();
        // Behind it: so the tables above are there.
        assert_eq!(read(mm, id, LARGE + PAGES), Ok(PAGES + 1));
        let mut held = take_free(mm);
        give_back(mm, vec![held.pop().unwrap()]);
        let before = mm.space(id).usage().unwrap();
        assert_eq!(read(mm, id, LARGE), Ok(1));
        let after = mm.space(id).usage().unwrap();
        assert!(!is_large(mm, id) && is_large(mm, first));
        assert_eq!((after.tables, after.file), (before.tables + 1, before.file + 1));
        assert_eq!(mm.file(file).cached_pages(), Ok(PAGES + 8), "nobody had to go for it");
        assert_eq!(mm.validate().broken, None);
        give_back(mm, held);
        end(mm, &[first, id], file);
    });
}

/// The file becomes shorter, or is reclaimed, while a large entry comes that shows it.
fn meanwhile(broken: Option<Rule>, what: fn(&Mm<'_>, FileId)) -> usize {
    let cases = at_every_touch(&setup(2), &config("linux"), broken, |mm, place| {
        let (id, file) = large(mm, shared, Prot::Read);
        mm.space(id).unmap(pages(LARGE, PAGES + 8)).unwrap();
        mm.space(id).map(pages(LARGE, PAGES), shared(file), Prot::Read).unwrap();
        let host = mm.platform();
        host.on(1, || mm.space(id).switch_to().unwrap());
        let Place::Touch(n) = place else { unreachable!() };
        race(mm, Place::Touch(41 * n), || _ = collapse(mm, id), || what(mm, file));
        let mut good = true;
        for cpu in [0, 1] {
            for page in [0, 300, 511] {
                let word = 1000 + page;
                assert_eq!(mm.file(file).write(page * PAGE_SIZE, &word.to_ne_bytes()), Ok(8));
                good &= host.on(cpu, || host.read(mm, id, LARGE + page)) == Ok(word);
            }
        }
        good && host.stale.get() == 0 && mm.validate().broken.is_none()
    });
    assert!(cases.results.len() + cases.fell > 50, "{}", cases.results.len());
    cases.count(|&good| !good)
}

fn cut(mm: &Mm<'_>, file: FileId) {
    mm.file(file).set_size(0).unwrap();
    mm.file(file).set_size(PAGES * PAGE_SIZE).unwrap();
}

fn reclaimed(mm: &Mm<'_>, _: FileId) {
    mm.drain_lru_batch();
    give_back(mm, exhaust(mm));
}

#[test]
fn a_file_that_becomes_shorter_meanwhile_is_shown_nowhere_as_it_was() {
    assert_eq!(meanwhile(None, cut), 0);
}

#[test]
fn pages_that_nobody_locks_are_shown_after_they_are_cut_off() {
    assert!(meanwhile(Some(Rule::LargeFileLocks), cut) > 0);
}

#[test]
fn what_is_reclaimed_meanwhile_is_one_page_of_the_file() {
    assert_eq!(meanwhile(None, reclaimed), 0);
}

/// What finds a large entry that another CPU makes small at this moment; whether it is well.
type Finds = (&'static str, fn(&Mm<'_>, SpaceId, FileId) -> bool);

const FINDS: [Finds; 7] = [
    ("a shorter file", |mm, _, file| mm.file(file).set_size((PAGES - 1) * PAGE_SIZE).is_ok()),
    ("a look at an entry", |mm, id, _| {
        let found = entry(mm, id, LARGE + 300);
        found.is_present() && found.frame().0 % 512 == 300
    }),
    ("usage", |mm, id, _| mm.space(id).usage().is_ok_and(|usage| (usage.file, usage.anon) == (PAGES, 0))),
    ("residency", |mm, id, _| mm.space(id).residency(pages(LARGE, PAGES), &mut [0; 512]) == Ok(PAGES)),
    ("a fork", |mm, id, _| mm.space(id).fork().is_ok_and(|child| mm.space(child).destroy().is_ok())),
    ("rights", |mm, id, _| mm.space(id).protect(pages(LARGE + 300, 1), Prot::Read).is_ok()),
    ("another write", |mm, id, _| mm.platform().write(mm, id, LARGE + 300, 301) == Ok(())),
];

#[test]
fn whoever_finds_it_while_it_becomes_small_finds_small_ones() {
    for (what, finds) in FINDS {
        let cases = at_every_touch(&setup(2), &config("linux"), None, |mm, place| {
            let (id, file) = large(mm, shared, Prot::ReadWrite);
            mm.space(id).unmap(pages(LARGE + PAGES, 8)).unwrap();
            let host = mm.platform();
            host.on(1, || assert!(mm.space(id).switch_to().is_ok() && host.read(mm, id, LARGE).is_ok()));
            let good = std::cell::Cell::new(false);
            let Place::Touch(n) = place else { unreachable!() };
            // What looks at all pages does the same for each.
            let place = Place::Touch(if n < 40 || soaks() { n } else { 40 + (n - 40) * 29 });
            race(mm, place, || good.set(finds(mm, id, file)), || _ = host.write(mm, id, LARGE + 7, 8));
            let there = (0..PAGES - 1).all(|page| host.read(mm, id, LARGE + page) == Ok(page + 1));
            good.get() && there && host.stale.get() == 0 && settled(mm).broken.is_none()
        });
        assert!(cases.results.len() > 10, "{what}: {}", cases.results.len());
        assert_eq!(cases.count(|&good| !good), 0, "{what}");
    }
}

/// Who faults for what the entry permits, because his CPU knew less, makes nothing small.
#[test]
fn a_fault_for_what_is_permitted_leaves_it_large() {
    let host = Host::new(setup(1));
    host.run(config("linux"), |mm| {
        let (id, file) = large(mm, shared, Prot::ReadWrite);
        mm.space(id).fault(PageNumber(LARGE + 3).addr(), UserAccess::Read).unwrap();
        assert!(is_large(mm, id) && holds(mm, id));
        end(mm, &[id], file);
    });
}

/// What a frame was before says nothing of the table that lies in it now: a slab of mappings counts its slots where a table says where its
/// spares are.
#[test]
fn a_table_where_a_slab_was_has_no_spares() {
    let host = Host::new(setup(1));
    host.run(config("linux"), |mm| {
        let (id, file) = large(mm, shared, Prot::ReadWrite);
        let other = mm.create_space().unwrap();
        let map = |page| mm.space(other).map(pages(page, 1), Backing::Anonymous, Prot::ReadWrite).unwrap();
        let apart = (0..200).map(|n| 0x1000 + 2 * n);
        apart.clone().for_each(map);
        apart.for_each(|page| mm.space(other).unmap(pages(page, 1)).unwrap());
        // Each in a GiB of its own, with a table of large entries.
        for gib in 1..=20 {
            map(gib << 18);
            assert_eq!(write(mm, other, gib << 18, gib), Ok(()));
        }
        assert_eq!(mm.space(other).usage().unwrap().tables, 1 + 1 + 2 * 20);
        assert_eq!(settled(mm).broken, None);
        mm.space(id).switch_to().unwrap();
        assert!(holds(mm, id));
        end(mm, &[id, other], file);
    });
}

/// Whoever wants to write to a page can do so at once, although the entry becomes small meanwhile, for another of its pages.
#[test]
fn what_is_brought_to_be_written_to_is_so_when_the_entry_becomes_small() {
    for n in 0..40 {
        at(&setup(2), &config("linux"), None, |mm| {
            let (id, file) = large(mm, shared, Prot::ReadWrite);
            mm.platform().on(1, || mm.space(id).switch_to().unwrap());
            let bring = || mm.space(id).populate(pages(LARGE + 5, 1), UserAccess::Write).unwrap();
            let take = || mm.space(id).advise(pages(LARGE + 9, 1), Advice::PageOut).unwrap();
            race(mm, Place::Touch(n), bring, take);
            assert!(entry(mm, id, LARGE + 5).permits(UserAccess::Write), "at touch {n}");
            end(mm, &[id], file);
        });
    }
}

/// A CPU shows a piece of a file for the first time, and stands still in the middle, while another shows a page of it, or a piece of another file under the
/// same table: what is made ready for large entries is made once, and none of it is lost.
#[test]
fn who_shows_a_piece_while_another_shows_something_beside_it_loses_nothing() {
    let host = Host::new(setup(2));
    host.patient.set(true);
    host.run(config("linux"), |mm| {
        let (first, one) = large(mm, shared, Prot::Read);
        let (second, other) = large(mm, shared, Prot::Read);
        for beside in [LARGE + 5, LARGE + 1024] {
            let (mut n, mut small) = (0, 0);
            loop {
                let id = mm.create_space().unwrap();
                for (file, at) in [(one, LARGE), (other, LARGE + 1024)] {
                    mm.space(id).map(pages(at, PAGES), shared(file), Prot::Read).unwrap();
                    mm.space(id).advise(pages(at, PAGES), Advice::Large).unwrap();
                }
                let fault = |at| mm.space(id).fault(PageNumber(at).addr(), UserAccess::Read).unwrap();
                race(mm, Place::Touch(n), || fault(LARGE), || fault(beside));
                small += u32::from(!is_large(mm, id));
                assert_eq!(mm.validate().broken, None, "touch {n}");
                mm.space(id).destroy().unwrap();
                let ended = !host.all_placed();
                host.forget_placed();
                if ended {
                    break;
                }
                n += if soaks() { 1 } else { 11 };
            }
            assert_eq!(small > 0, beside < LARGE + PAGES, "{small} of {n}");
        }
        mm.unload();
        mm.space(second).destroy().unwrap();
        mm.file(other).destroy().unwrap();
        end(mm, &[first], one);
    });
}

/// Pages on their way to a list move too: one's own cost nobody an interrupt, and those of others one.
#[test]
fn pages_on_their_way_to_a_list_come_to_lie_in_the_piece_too() {
    for other in [false, true] {
        let host = Host::new(setup(2));
        host.run(Config { lru_batch: 15, ..config("linux") }, |mm| {
            let file = mm.create_file(PAGES + 8).unwrap();
            for page in (0..PAGES + 8).rev() {
                let cpu = u16::from(other && page == 5);
                let word = page + 1;
                let write = || mm.file(file).write(page * PAGE_SIZE, &word.to_ne_bytes());
                assert_eq!(host.on(cpu, write), Ok(8));
            }
            let id = showing(mm, shared(file), Prot::Read);
            host.forget();
            assert_eq!(collapse(mm, id), Ok(()));
            assert_eq!(host.interrupts(), usize::from(other));
            assert!(is_large(mm, id) && holds(mm, id));
            end(mm, &[id], file);
        });
    }
}
