//! Address spaces: what may be mapped, what a fault gives, and what comes back in the end.

use crate::machine;

use std::panic::resume_unwind;

use machine::{Host, Mm, Setup, StandsStill, bare, everywhere, exhaust, give_back, pages, settled};
use quietmm::{
    Advice, Backing, Entry, Error, FileId, NodeId, PageNumber, PageRange, Prot, SpaceId, UserAccess, VirtAddr,
};

const ANON: Backing = Backing::Anonymous;
const AT: u64 = 0x1000;

fn file(file: FileId, offset: u64) -> Backing {
    Backing::File { file, offset }
}

fn refused<T: std::fmt::Debug>(mm: &Mm<'_>, error: Error, attempt: impl FnOnce() -> Result<T, Error>) {
    let before = (mm.validate(), mm.loaded_space());
    assert_eq!(attempt().unwrap_err(), error);
    assert_eq!((mm.validate(), mm.loaded_space()), before);
}

fn fault(mm: &Mm<'_>, id: SpaceId, page: u64, access: UserAccess) -> Result<(), Error> {
    mm.space(id).fault(PageNumber(page).addr(), access)
}

#[test]
fn a_mapping_that_cannot_be_is_refused_and_changes_nothing() {
    let host = Host::new(Setup::default());
    host.run(bare("vanilla"), |mm| {
        let id = mm.create_space().unwrap();
        let f = mm.create_file(10).unwrap();
        mm.space(id).map(pages(100, 10), ANON, Prot::ReadWrite).unwrap();
        let end = PageNumber::USER_END.0;
        let map = |range, backing| move || mm.space(id).map(range, backing, Prot::ReadWrite);
        for wrong in [pages(5, 0), pages(end, 1), pages(end - 1, 2), pages(u64::MAX, 1), pages(1, u64::MAX)] {
            refused(mm, Error::BadRange, map(wrong, ANON));
            refused(mm, Error::BadRange, || mm.space(id).unmap(wrong));
            refused(mm, Error::BadRange, || mm.space(id).flush_range(wrong));
        }
        for (wrong, at) in
            [(pages(100, 10), 100), (pages(90, 11), 100), (pages(109, 5), 109), (pages(16, 1000), 100)]
        {
            refused(mm, Error::Overlaps(PageNumber(at)), map(wrong, ANON));
        }
        for (count, offset) in [(1, 1 << 40), (2, (1 << 40) - 1), (1, u64::MAX), (2, u64::MAX)] {
            refused(mm, Error::BadRange, map(pages(500, count), file(f, offset)));
        }
        // Handles of another machine's, which has more of both.
        let (spaces, files) = elsewhere();
        for &unknown in &files[1..] {
            refused(mm, Error::NoSuchFile, map(pages(500, 1), file(unknown, 0)));
        }
        for &unknown in &spaces[1..] {
            refused(mm, Error::NoSuchSpace, || mm.space(unknown).map(pages(16, 1), ANON, Prot::Read));
            refused(mm, Error::NoSuchSpace, || mm.space(unknown).unmap(pages(1, 1)));
            refused(mm, Error::NoSuchSpace, || mm.space(unknown).switch_to());
            refused(mm, Error::NoSuchSpace, || mm.space(unknown).destroy());
            refused(mm, Error::NoSuchSpace, || mm.space(unknown).flush());
            refused(mm, Error::NoSuchSpace, || mm.space(unknown).lookup(PageNumber(1)));
            refused(mm, Error::NoSuchSpace, || fault(mm, unknown, 100, UserAccess::Read));
        }
        refused(mm, Error::BadRange, || mm.create_file(0));
        refused(mm, Error::BadRange, || mm.create_file((1 << 40) + 1));
        // The borders themselves are fine.
        mm.space(id).map(pages(110, 1), ANON, Prot::Read).unwrap();
        mm.space(id).map(pages(16, 84), ANON, Prot::Read).unwrap();
        mm.space(id).map(pages(end - 11, 10), file(f, 0), Prot::Read).unwrap();
    });
}

#[test]
fn the_first_pages_and_the_last_cannot_be_mapped() {
    let host = Host::new(Setup::default());
    host.run(bare("vanilla"), |mm| {
        let (id, all) = (mm.create_space().unwrap(), PageRange::MAPPABLE);
        let (first, end) = (all.start.0, all.end().0);
        assert_eq!((first, end), (16, PageNumber::USER_END.0 - 1), "64 KiB, and a page");
        let f = mm.create_file(100).unwrap();
        mm.space(id).map(pages(100, 4), file(f, 0), Prot::ReadWrite).unwrap();
        for (wrong, at) in [
            (pages(0, 1), 0),
            (pages(1, 1), 1),
            (pages(first - 1, 2), first - 1),
            (pages(end, 1), end),
            (pages(end - 1, 2), end),
            (pages(0, PageNumber::USER_END.0), 0),
        ] {
            let error = Error::NotMappable(PageNumber(at));
            for backing in [ANON, file(f, 0)] {
                refused(mm, error, || mm.space(id).map(wrong, backing, Prot::None));
            }
            if wrong.pages < 4 {
                refused(mm, error, || mm.space(id).move_range(pages(100, wrong.pages), wrong.start));
            }
            refused(mm, Error::NotMapped(PageNumber(at)), || fault(mm, id, at, UserAccess::Read));
            refused(mm, Error::NotMapped(wrong.start), || mm.space(id).unmap(wrong));
            assert!(
                error.to_string().ends_with("programs may map from 0x10000 up to 0x7ffffffff000"),
                "{error}"
            );
        }
        mm.space(id).switch_to().unwrap();
        for page in [first, end - 1] {
            mm.space(id).map(pages(page, 1), ANON, Prot::ReadWrite).unwrap();
            host.write(mm, id, page, page).unwrap();
        }
        mm.space(id).unmap(pages(end - 1, 1)).unwrap();
        mm.space(id).move_range(pages(first, 1), PageNumber(end - 1)).unwrap();
        assert_eq!(host.read(mm, id, end - 1), Ok(first));
        let before = settled(mm).tables;
        mm.space(id).unmap(pages(end - 1, 1)).unwrap();
        assert_eq!(
            settled(mm).tables,
            before - 3,
            "the last page that can be mapped is the last of its tables"
        );
    });
}

/// Handles of spaces and files, of which this machine has one each.
fn elsewhere() -> (Vec<SpaceId>, Vec<FileId>) {
    Host::new(Setup::default()).run(bare("vanilla"), |mm| {
        let spaces = std::iter::repeat_with(|| mm.create_space().unwrap()).take(20).collect();
        (spaces, std::iter::repeat_with(|| mm.create_file(1).unwrap()).take(40).collect())
    })
}

#[test]
fn handles_of_what_was_destroyed_are_refused() {
    let host = Host::new(Setup::default());
    host.run(bare("vanilla"), |mm| {
        let id = mm.create_space().unwrap();
        let f = mm.create_file(10).unwrap();
        mm.space(id).map(pages(100, 10), file(f, 0), Prot::Read).unwrap();
        refused(mm, Error::Busy, || mm.file(f).destroy());
        mm.space(id).destroy().unwrap();
        mm.file(f).destroy().unwrap();
        refused(mm, Error::NoSuchSpace, || mm.space(id).destroy());
        refused(mm, Error::NoSuchSpace, || mm.space(id).map(pages(100, 1), ANON, Prot::Read));
        refused(mm, Error::NoSuchFile, || mm.file(f).destroy());
        refused(mm, Error::NoSuchFile, || mm.file(f).cached_pages());
    });
}

#[test]
fn unmap_wants_all_of_its_range_mapped() {
    let host = Host::new(Setup::default());
    host.run(bare("vanilla"), |mm| {
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(100, 10), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).map(pages(112, 10), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).switch_to().unwrap();
        for page in [100, 109, 112] {
            host.write(mm, id, page, page).unwrap();
        }
        host.forget();
        for (wrong, hole) in
            [(pages(100, 22), 110), (pages(99, 3), 99), (pages(115, 10), 122), (pages(50, 1), 50)]
        {
            refused(mm, Error::NotMapped(PageNumber(hole)), || mm.space(id).unmap(wrong));
        }
        assert_eq!(host.flushes(0), (0, 0), "a refused unmap flushes nothing");
        for page in [100, 109, 112] {
            assert_eq!(host.read(mm, id, page), Ok(page));
        }
        // Neighbours go in one call.
        mm.space(id).map(pages(110, 2), ANON, Prot::Read).unwrap();
        mm.space(id).unmap(pages(105, 12)).unwrap();
        assert_eq!(host.read(mm, id, 100), Ok(100));
        for page in 105..117 {
            assert_eq!(host.read(mm, id, page), Err(Error::NotMapped(PageNumber(page))));
        }
        assert_eq!(host.read(mm, id, 117), Ok(0));
    });
}

#[test]
fn a_region_that_is_split_shows_the_same_pages_as_before() {
    let host = Host::new(Setup::default());
    host.run(bare("vanilla"), |mm| {
        let (id, f) = (mm.create_space().unwrap(), mm.create_file(100).unwrap());
        mm.space(id).map(pages(1000, 90), file(f, 10), Prot::ReadWrite).unwrap();
        mm.space(id).map(pages(2000, 100), file(f, 0), Prot::Read).unwrap();
        mm.space(id).switch_to().unwrap();
        for page in 0..90 {
            host.write(mm, id, 1000 + page, 10 + page).unwrap();
        }
        mm.space(id).unmap(pages(1030, 20)).unwrap(); // the middle
        mm.space(id).unmap(pages(1000, 5)).unwrap(); // the head
        mm.space(id).unmap(pages(1080, 10)).unwrap(); // the tail
        for page in 0..90 {
            let gone = page < 5 || (30..50).contains(&page) || page >= 80;
            let want = if gone { Err(Error::NotMapped(PageNumber(1000 + page))) } else { Ok(10 + page) };
            assert_eq!(host.read(mm, id, 1000 + page), want);
            assert_eq!(host.read(mm, id, 2010 + page), Ok(10 + page), "the other mapping is as it was");
        }
        mm.space(id).map(pages(1030, 20), ANON, Prot::Read).unwrap();
        assert_eq!(host.read(mm, id, 1030), Ok(0));
        assert_eq!(host.write(mm, id, 1030, 1), Err(Error::NotPermitted(PageNumber(1030))));
        assert_eq!(host.write(mm, id, 2010, 1), Err(Error::NotPermitted(PageNumber(2010))));
        assert_eq!(host.write(mm, id, 1079, 5), Ok(()), "the second half is still writable");
        assert_eq!(host.read(mm, id, 2089), Ok(5));
    });
}

#[test]
fn a_fault_outside_every_mapping_is_the_programs() {
    let host = Host::new(Setup::default());
    host.run(bare("vanilla"), |mm| {
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(100, 1), ANON, Prot::Read).unwrap();
        for page in [99, 101, PageNumber::USER_END.0 - 1, PageNumber::USER_END.0, u64::MAX >> 12] {
            refused(mm, Error::NotMapped(PageNumber(page)), || fault(mm, id, page, UserAccess::Read));
        }
        refused(mm, Error::NotPermitted(PageNumber(100)), || fault(mm, id, 100, UserAccess::Write));
        let far = VirtAddr(u64::MAX);
        refused(mm, Error::NotMapped(far.page()), || mm.space(id).fault(far, UserAccess::Read));
        fault(mm, id, 100, UserAccess::Read).unwrap();
        let entry = mm.space(id).lookup(PageNumber(100)).unwrap();
        assert!(entry.is_present() && !entry.has(Entry::WRITABLE));
        assert_eq!(mm.space(id).lookup(PageNumber(101)), Ok(Entry::NONE));
    });
}

#[test]
fn a_lookup_beyond_user_addresses_is_refused() {
    let host = Host::new(Setup::default());
    host.run(bare("vanilla"), |mm| {
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(100, 1), ANON, Prot::Read).unwrap();
        fault(mm, id, 100, UserAccess::Read).unwrap();
        let end = PageNumber::USER_END.0;
        // The second has the same place in every table as the page that is mapped.
        for beyond in [end, 2 * end + 100, u64::MAX] {
            refused(mm, Error::BadRange, || mm.space(id).lookup(PageNumber(beyond)));
        }
        assert!(mm.space(id).lookup(PageNumber(100)).unwrap().is_present());
        assert_eq!(mm.space(id).lookup(PageNumber(end - 1)), Ok(Entry::NONE));
    });
}

/// Leaves exactly `frames` free and tries `attempt`.
fn with_only(mm: &Mm<'_>, frames: usize, attempt: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    let mut held = exhaust(mm);
    let free = held.split_off(held.len() - frames);
    give_back(mm, free);
    let result = attempt();
    assert_eq!(mm.validate().broken, None);
    give_back(mm, held);
    result
}

#[test]
fn a_fault_that_runs_out_of_memory_half_way_works_later() {
    let host = Host::new(Setup::default());
    // Else whoever takes all memory here takes the tables.
    host.broken.set(Some(quietmm::Rule::TablesBeforeVictim));
    host.run(bare("vanilla"), |mm| {
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(0x1000, 1), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).map(pages(1 << 30, 1), ANON, Prot::ReadWrite).unwrap();
        let start = settled(mm);
        mm.space(id).switch_to().unwrap();
        // Three tables and the page: what was made of them stays and is found by the next try.
        for frames in [0, 1, 1, 1] {
            let tried = with_only(mm, frames, || fault(mm, id, 0x1000, UserAccess::Write));
            assert_eq!(tried, Err(Error::OutOfMemory));
        }
        assert_eq!(mm.validate().tables, start.tables + 3);
        host.write(mm, id, 0x1000, 7).unwrap();
        assert_eq!(with_only(mm, 3, || fault(mm, id, 1 << 30, UserAccess::Write)), Err(Error::OutOfMemory));
        assert_eq!(with_only(mm, 1, || fault(mm, id, 1 << 30, UserAccess::Write)), Ok(()));
        assert_eq!(host.read(mm, id, 0x1000), Ok(7));
        mm.space(id).unmap(pages(0x1000, 1)).unwrap();
        mm.space(id).destroy().unwrap();
        assert_eq!(settled(mm).free, start.free + start.tables - 1);
    });
}

#[test]
fn a_file_fault_that_runs_out_of_memory_leaves_nothing_behind() {
    let host = Host::new(Setup::default());
    host.run(bare("vanilla"), |mm| {
        let id = mm.create_space().unwrap();
        // Three levels of index.
        let f = mm.create_file(3 << 20).unwrap();
        mm.space(id).map(pages(0x1000, 3 << 20), file(f, 0), Prot::ReadWrite).unwrap();
        fault(mm, id, 0x1000, UserAccess::Read).unwrap();
        mm.space(id).unmap(pages(0x1000, 3 << 20)).unwrap();
        mm.file(f).destroy().unwrap();
        let start = settled(mm);
        for frames in 0..7 {
            let f = mm.create_file(3 << 20).unwrap();
            mm.space(id).map(pages(0x1000, 3 << 20), file(f, 0), Prot::ReadWrite).unwrap();
            let tried = with_only(mm, frames, || fault(mm, id, 0x1000, UserAccess::Read));
            assert_eq!(tried, Err(Error::OutOfMemory), "with {frames} frames");
            assert_eq!(mm.file(f).cached_pages(), Ok(0));
            mm.space(id).unmap(pages(0x1000, 3 << 20)).unwrap();
            mm.file(f).destroy().unwrap();
            assert_eq!(settled(mm), start, "with {frames} frames");
        }
    });
}

#[test]
fn unmapping_a_whole_region_needs_no_memory() {
    let host = Host::new(Setup::default());
    host.run(bare("vanilla"), |mm| {
        let id = mm.create_space().unwrap();
        let map = |i: u64| mm.space(id).map(pages(100 + 10 * i, 5), ANON, Prot::ReadWrite).unwrap();
        map(0);
        let one_slab = mm.validate().pools;
        let grown = (1..1000).find(|&i| {
            map(i);
            mm.validate().pools > one_slab
        });
        let slab = grown.unwrap();
        (slab + 1..2 * slab).for_each(map);
        let two_slabs = mm.validate().pools;
        assert_eq!(two_slabs, one_slab + 1, "every slot of both slabs is in use");
        let held = exhaust(mm);
        // The middle of a VMA would make it two: that takes a slot.
        refused(mm, Error::OutOfMemory, || mm.space(id).unmap(pages(132, 1)));
        mm.space(id).unmap(pages(120, 5)).unwrap();
        mm.space(id).unmap(pages(132, 1)).unwrap();
        mm.space(id).unmap(pages(130, 2)).unwrap();
        give_back(mm, held);
        mm.space(id).destroy().unwrap();
    });
}

#[test]
fn a_file_page_is_one_frame_in_every_space_that_shows_it() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let f = mm.create_file(4).unwrap();
        let [a, b] = [0x100, 0x900].map(|at| {
            let id = mm.create_space().unwrap();
            mm.space(id).map(pages(at, 4), file(f, 0), Prot::ReadWrite).unwrap();
            id
        });
        mm.space(a).switch_to().unwrap();
        host.write(mm, a, 0x102, 77).unwrap();
        host.on(1, || {
            mm.space(b).switch_to().unwrap();
            assert_eq!(host.read(mm, b, 0x902), Ok(77));
            host.write(mm, b, 0x902, 78).unwrap();
        });
        assert_eq!(host.read(mm, a, 0x102), Ok(78));
        let frame = |id, page| mm.space(id).lookup(PageNumber(page)).unwrap().frame();
        assert_eq!(frame(a, 0x102), frame(b, 0x902));
        assert_eq!((mm.file(f).cached_pages(), mm.validate().file), (Ok(1), 1));
        mm.space(a).unmap(pages(0x100, 4)).unwrap();
        assert_eq!(host.on(1, || host.read(mm, b, 0x902)), Ok(78), "the other space keeps it");
    });
}

#[test]
fn a_read_that_the_device_fails_fails_only_that_fault() {
    let host = Host::new(Setup::default());
    host.run(bare("vanilla"), |mm| {
        let (id, f) = (mm.create_space().unwrap(), mm.create_file(4).unwrap());
        mm.space(id).map(pages(100, 4), file(f, 0), Prot::ReadWrite).unwrap();
        fault(mm, id, 100, UserAccess::Read).unwrap();
        host.fail_reads.set(true);
        refused(mm, Error::Device, || fault(mm, id, 101, UserAccess::Read));
        mm.space(id).switch_to().unwrap();
        assert_eq!(host.read(mm, id, 100), Ok(0), "what is cached needs no device");
        host.fail_reads.set(false);
        fault(mm, id, 101, UserAccess::Read).unwrap();
    });
}

#[test]
fn a_space_in_which_another_cpu_runs_is_not_destroyed() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(100, 1), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).switch_to().unwrap();
        host.on(1, || mm.space(id).switch_to().unwrap());
        host.write(mm, id, 100, 5).unwrap();
        refused(mm, Error::Busy, || mm.space(id).destroy());
        assert_eq!(host.read(mm, id, 100), Ok(5), "this CPU still runs in it");
        host.on(1, || mm.unload());
        mm.space(id).destroy().unwrap();
        assert_eq!(mm.loaded_space(), None);
    });
}

#[test]
fn everything_comes_back_in_the_end() {
    for policy in ["vanilla", "linux", "linux+unmap=batch-clean"] {
        let host = Host::new(Setup { cpus: 3, tags: 4, ..Setup::default() });
        host.run(bare(policy), |mm| {
            let (warm, f) = (mm.create_space().unwrap(), mm.create_file(1).unwrap());
            mm.space(warm).map(pages(16, 1), ANON, Prot::Read).unwrap();
            mm.file(f).destroy().unwrap();
            mm.space(warm).destroy().unwrap();
            let start = settled(mm);
            let f = mm.create_file(3000).unwrap();
            let ids: Vec<_> = (0..3).map(|_| mm.create_space().unwrap()).collect();
            for (cpu, &id) in ids.iter().enumerate() {
                mm.space(id).map(pages(0x1000, 3000), file(f, 0), Prot::ReadWrite).unwrap();
                mm.space(id).map(PageRange::new(PageNumber(1 << 30), 100), ANON, Prot::ReadWrite).unwrap();
                host.on(cpu as u16, || {
                    mm.space(id).switch_to().unwrap();
                    (0..1000).for_each(|i| host.write(mm, id, 0x1000 + 3 * i, i).unwrap());
                    (0..100).for_each(|i| host.write(mm, id, (1 << 30) + i, i).unwrap());
                    mm.enter_lazy();
                });
            }
            give_back(mm, exhaust(mm));
            let pools = mm.validate().pools;
            ids.iter().for_each(|&id| mm.space(id).destroy().unwrap());
            mm.file(f).destroy().unwrap();
            let end = settled(mm);
            assert_eq!(end.free + end.pools, start.free + start.pools);
            assert!(end.pools <= pools, "only pools keep what they have");
            assert_eq!((end.tables, end.anon, end.file, end.kernel, end.leaked), (1, 0, 0, 0, 0));
        });
    }
}

/// What a CPU does to a space while another one ends it.
type Late = fn(&Mm<'_>, SpaceId) -> Result<(), Error>;

#[test]
fn who_comes_too_late_finds_no_space() {
    let late: [(&str, Late); 11] = [
        ("destroy", |mm, id| mm.space(id).destroy()),
        ("map", |mm, id| mm.space(id).map(pages(AT + 8, 1), ANON, Prot::Read)),
        ("lookup", |mm, id| mm.space(id).lookup(PageNumber(AT)).map(|_| ())),
        ("fork", |mm, id| mm.space(id).fork().map(|_| ())),
        ("unmap", |mm, id| mm.space(id).unmap(pages(AT, 1))),
        ("protect", |mm, id| mm.space(id).protect(pages(AT, 1), Prot::Read)),
        ("move", |mm, id| mm.space(id).move_range(pages(AT, 1), PageNumber(AT + 8))),
        ("migrate", |mm, id| mm.space(id).migrate(pages(AT, 1), NodeId(0)).map(|_| ())),
        ("drop", |mm, id| mm.space(id).advise(pages(AT, 1), Advice::Drop)),
        ("fault", |mm, id| mm.space(id).fault(PageNumber(AT).addr(), UserAccess::Write)),
        ("run in", |mm, id| {
            let entered = mm.space(id).switch_to();
            mm.unload();
            entered
        }),
    ];
    for (name, late) in late {
        let (results, _) = everywhere(&Setup { cpus: 2, ..Setup::default() }, None, |mm, n| {
            let host = mm.platform();
            let id = mm.create_space().unwrap();
            mm.space(id).map(pages(AT, 1), ANON, Prot::ReadWrite).unwrap();
            mm.space(id).fault(PageNumber(AT).addr(), UserAccess::Write).unwrap();
            host.at_touch(0, n, move |mm| {
                mm.platform().on(1, || {
                    mm.space(id).destroy().ok();
                })
            });
            // Whoever ends the space has to wait for the other: nothing to see.
            host.on_wait.borrow_mut().push_back(Box::new(|| resume_unwind(Box::new(StandsStill))));
            let result = late(mm, id);
            host.all_placed();
            result
        });
        assert!(results.contains(&Err(Error::NoSuchSpace)), "{name}");
        let others = results.iter().find(|result| !matches!(result, Ok(()) | Err(Error::NoSuchSpace)));
        assert_eq!(others, None, "{name}");
    }
}

/// What lies side by side is one mapping only where the file goes on: not 2^32 pages further on.
#[test]
fn mappings_whose_places_in_a_file_are_alike_in_32_bits_stay_apart() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let (file, id) = (mm.create_file((1 << 32) + 2).unwrap(), mm.create_space().unwrap());
        mm.space(id).switch_to().unwrap();
        let far = (1 << 32) + 1;
        for (page, offset) in [(0, 0), (1, far)] {
            mm.file(file).write(offset * 4096, &(offset + 5).to_ne_bytes()).unwrap();
            let backing = Backing::File { file, offset };
            mm.space(id).map(pages(AT + page, 1), backing, Prot::Read).unwrap();
        }
        assert_eq!([0, 1].map(|page| host.read(mm, id, AT + page)), [Ok(5), Ok(far + 5)]);
    });
}
