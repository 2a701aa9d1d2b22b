//! Read-ahead: which pages come with those that are wanted, how many commands that saves, and that nobody else pays for it.

use crate::machine;

use machine::faults::reclaim_all;
use machine::race::{at_every_touch, race};
use machine::showing::{AT, mapped, private, shared};
use machine::{Host, Mm, Setup, bare, exhaust, give_back, settled};
use quietmm::addr::PAGE_SIZE;
use quietmm::platform::{DeviceError, Memory, Store};
use quietmm::{Config, Counter, Error, FileId, ReadAhead, SpaceId};

const PAGES: u64 = 64;

fn ahead(most: u32) -> Config {
    Config { read_ahead: most, ..bare("linux") }
}

const LINUX: u32 = Config::LINUX_READ_AHEAD;

/// Has a machine with a file of so many pages, each of which has its number, on its device alone.
fn with_file<R>(config: Config, pages: u64, work: impl FnOnce(&Host, &Mm<'_>, FileId) -> R) -> R {
    let host = Host::new(Setup { cpus: 2, frames: 512, ..Setup::default() });
    host.run(config, |mm| {
        let file = mm.create_file(pages).unwrap();
        for page in 0..pages {
            mm.file(file).write(page * PAGE_SIZE, &page.to_ne_bytes()).unwrap();
        }
        mm.file(file).write_back().unwrap();
        mm.drain_lru_batch();
        assert_eq!(mm.file(file).evict(0, pages).unwrap(), pages);
        host.read_commands.set(0);
        let result = work(&host, mm, file);
        settled(mm);
        result
    })
}

fn reads(mm: &Mm<'_>, file: FileId, open: &ReadAhead, page: u64) {
    let mut word = [0; 8];
    assert_eq!(mm.file(file).read_with(open, page * PAGE_SIZE, &mut word), Ok(8));
    assert_eq!(u64::from_ne_bytes(word), page);
}

/// Pages that were read ahead, those that were wanted, and those that went before.
fn counts(mm: &Mm<'_>) -> [u64; 3] {
    [Counter::FileRa, Counter::FileRaHit, Counter::FileRaUnused].map(|counter| mm.counter(counter))
}

/// Reads these pages in this order, each by a use of the file; commands to the device, and what was read ahead.
fn commands(most: u32, order: impl Iterator<Item = (u64, usize)>) -> (u32, [u64; 3]) {
    with_file(ahead(most), PAGES, |host, mm, file| {
        let open = [ReadAhead::new(), ReadAhead::new()];
        order.for_each(|(page, by)| reads(mm, file, &open[by], page));
        (host.read_commands.get(), counts(mm))
    })
}

/// All pages, in no order: neighbours are far apart.
fn random() -> impl Iterator<Item = (u64, usize)> {
    (0..PAGES / 4).map(|i| ((i * 27 + 5) % (PAGES / 4) * 4 + 1, 0))
}

#[test]
fn a_sequential_read_takes_a_few_commands() {
    // 0 with 1 to 4; 8, 16, 32 more at the marks; the last 3.
    assert_eq!(commands(LINUX, (0..PAGES).map(|page| (page, 0))), (5, [63, 63, 0]));
    // A smaller bound is kept.
    let (few, _) = commands(8, (0..PAGES).map(|page| (page, 0)));
    assert_eq!(few, 2 + (PAGES as u32 - 13).div_ceil(8));
    // Control.
    assert_eq!(commands(0, (0..PAGES).map(|page| (page, 0))), (PAGES as u32, [0; 3]));
}

/// Who reads a page in parts, or twice, is where he was.
#[test]
fn a_sequential_read_in_parts_of_pages_takes_no_more_commands() {
    let whole = commands(LINUX, (0..PAGES).map(|page| (page, 0)));
    for parts in [2, 5] {
        let in_parts = (0..PAGES).flat_map(|page| std::iter::repeat_n((page, 0), parts));
        assert_eq!(commands(LINUX, in_parts), whole, "{parts} parts");
    }
}

/// With the first pages of a file come as many as the next power of two, and four at least: all of them are ahead of what was asked for.
#[test]
fn what_comes_with_the_first_read_is_as_much_as_was_asked_for() {
    for (asked, ahead) in [(1, 4), (2, 4), (4, 4), (5, 8), (8, 8)] {
        with_file(self::ahead(LINUX), PAGES, |_, mm, file| {
            let mut into = vec![0; asked * PAGE_SIZE as usize];
            assert_eq!(mm.file(file).read_with(&ReadAhead::new(), 0, &mut into), Ok(into.len()));
            assert_eq!(mm.file(file).cached_pages(), Ok(asked as u64 + ahead), "{asked} pages");
            assert_eq!(counts(mm), [ahead, 0, 0], "{asked} pages");
        });
    }
}

#[test]
fn random_use_reads_nothing_ahead() {
    assert_eq!(commands(LINUX, random()), (PAGES as u32 / 4, [0; 3]));
    // Control: the same pages and those between, in order.
    assert!(commands(LINUX, (0..PAGES / 4).map(|page| (page, 0))).1[0] > 0);
}

#[test]
fn readers_that_alternate_do_not_disturb_each_other() {
    let two = || (0..PAGES / 2).flat_map(|page| [(page, 0), (page + PAGES / 2, 1)]);
    let (own, _) = commands(LINUX, two());
    // Each alone: 0, and marks at 1, 5, 13 of the first; of the second, which begins with what looks like a jump, one more.
    assert_eq!(own, 9);
    // Through one descriptor the cache alone says that they are sequential.
    let (one, _) = commands(LINUX, two().map(|(page, _)| (page, 0)));
    assert!(one <= 10, "{one} commands");
    // Control: whoever is never sequential.
    assert_eq!(commands(LINUX, two().filter(|(page, _)| page % 4 == 1)).0, PAGES as u32 / 4);
}

#[test]
fn a_large_read_is_one_command_and_what_was_asked_for_is_not_ahead() {
    with_file(ahead(LINUX), PAGES, |host, mm, file| {
        let mut bytes = vec![0; 16 * PAGE_SIZE as usize];
        assert_eq!(mm.file(file).read_with(&ReadAhead::new(), 20 * PAGE_SIZE, &mut bytes), Ok(bytes.len()));
        assert_eq!((host.read_commands.get(), counts(mm)), (1, [0; 3]));
        assert_eq!(mm.file(file).cached_pages(), Ok(16));
        for (page, bytes) in bytes.chunks(PAGE_SIZE as usize).enumerate() {
            assert_eq!(bytes[..8], (page as u64 + 20).to_ne_bytes());
        }
        // Control: without the memory of a use.
        assert_eq!(mm.file(file).read(40 * PAGE_SIZE, &mut bytes), Ok(bytes.len()));
        assert_eq!(host.read_commands.get(), 1 + 16);
    });
}

/// Commands and pages read ahead while a program reads these pages of a mapped file.
fn by_faults(most: u32, private_too: bool, order: impl Iterator<Item = u64>) -> (u32, [u64; 3]) {
    with_file(ahead(most), PAGES, |host, mm, file| {
        let id = mapped(mm, if private_too { private(file) } else { shared(file) }, PAGES);
        order.for_each(|page| assert_eq!(host.read(mm, id, AT + page), Ok(page)));
        (host.read_commands.get(), counts(mm))
    })
}

#[test]
fn a_program_that_maps_a_file_and_goes_through_it_takes_a_few_commands() {
    for private in [false, true] {
        assert_eq!(by_faults(LINUX, private, 0..PAGES), (5, [63, 63, 0]));
        assert_eq!(by_faults(LINUX, private, random().map(|(page, _)| page)), (PAGES as u32 / 4, [0; 3]));
        assert_eq!(by_faults(0, private, 0..PAGES), (PAGES as u32, [0; 3]));
    }
}

#[test]
fn nothing_behind_the_end_of_a_file_is_read() {
    for pages in [1, 2, 3, 5, 6, 13, 14] {
        with_file(ahead(LINUX), pages, |_, mm, file| {
            let open = ReadAhead::new();
            (0..pages).for_each(|page| reads(mm, file, &open, page));
            assert_eq!(mm.file(file).read_with(&open, pages * PAGE_SIZE, &mut [0; 8]), Ok(0));
            assert_eq!(mm.file(file).cached_pages(), Ok(pages));
            assert_eq!(mm.file(file).read_ahead(pages, 8), Ok(0));
            assert_eq!(mm.file(file).read_ahead(u64::MAX, u64::MAX), Ok(0));
        });
    }
}

#[test]
fn pages_that_go_before_they_are_wanted_are_counted() {
    let gone = |go: fn(&Mm<'_>, FileId)| {
        with_file(ahead(LINUX), PAGES, |_, mm, file| {
            let open = ReadAhead::new();
            (0..2).for_each(|page| reads(mm, file, &open, page));
            mm.drain_lru_batch();
            go(mm, file);
            counts(mm)
        })
    };
    // Of 1 to 12 page 1 was wanted.
    assert_eq!(gone(|_, _| ()), [12, 1, 0]);
    assert_eq!(gone(|mm, file| _ = mm.file(file).evict(0, PAGES).unwrap()), [12, 1, 11]);
    assert_eq!(gone(|mm, file| mm.file(file).set_size(8 * PAGE_SIZE).unwrap()), [12, 1, 5]);
    assert_eq!(gone(|mm, file| mm.file(file).punch_hole(4 * PAGE_SIZE, 2 * PAGE_SIZE).unwrap()), [12, 1, 2]);
    assert_eq!(gone(|mm, _| reclaim_all(mm)), [12, 1, 11]);
    assert_eq!(gone(|mm, file| mm.file(file).destroy().unwrap()), [12, 1, 11]);
}

#[test]
fn a_page_that_cannot_be_read_is_only_its_own_readers_error() {
    fn third(_: Store, block: u64) -> Option<DeviceError> {
        (block == 3).then_some(DeviceError::Failed)
    }
    with_file(ahead(LINUX), PAGES, |host, mm, file| {
        host.refuse_reads.set(Some(third));
        let open = ReadAhead::new();
        reads(mm, file, &open, 0);
        assert_eq!(mm.file(file).cached_pages(), Ok(4), "0, 1, 2 and 4");
        (1..3).for_each(|page| reads(mm, file, &open, page));
        // Control: whoever wants it is told.
        assert_eq!(mm.file(file).read_with(&open, 3 * PAGE_SIZE, &mut [0; 8]), Err(Error::Device));
        let id = mapped(mm, shared(file), PAGES);
        assert_eq!(host.read(mm, id, AT + 3), Err(Error::Device));
        assert_eq!(host.read(mm, id, AT + 4), Ok(4));
        host.refuse_reads.set(None);
        (3..PAGES).for_each(|page| reads(mm, file, &open, page));
    });
}

#[test]
fn nobody_reclaims_for_pages_that_nobody_has_asked_for() {
    let with_free = |frames: usize| {
        with_file(ahead(LINUX), PAGES, |_, mm, file| {
            // The tree's node, which stays, and a page of another file that could be reclaimed.
            reads(mm, file, &ReadAhead::new(), 40);
            let other = mm.create_file(1).unwrap();
            mm.file(other).read(0, &mut [0; 8]).unwrap();
            let mut held: Vec<_> =
                std::iter::from_fn(|| mm.frames().alloc(0, quietmm::AllocFrom::NOW).ok()).collect();
            held.split_off(held.len() - frames).into_iter().for_each(|frame| mm.frames().free(frame));
            let stalls = mm.counter(Counter::AllocStall);
            reads(mm, file, &ReadAhead::new(), 0);
            let came = mm.counter(Counter::FileRa);
            assert_eq!((mm.counter(Counter::AllocStall), mm.file(other).cached_pages()), (stalls, Ok(1)));
            give_back(mm, held);
            came
        })
    };
    assert_eq!([1, 2, 4, 8].map(with_free), [0, 1, 3, 4]);
}

/// A fault, or a read, at page 0 while `meanwhile` goes on in the middle of the first command; what is in memory after it.
fn in_the_middle(meanwhile: fn(&Mm<'_>, FileId, SpaceId)) -> u64 {
    with_file(ahead(LINUX), PAGES, |host, mm, file| {
        let id = mapped(mm, shared(file), PAGES);
        host.on_disk_read.borrow_mut().push_back(Box::new(move |mm| {
            mm.platform().on(1, || meanwhile(mm, file, id));
        }));
        assert_eq!(host.read(mm, id, AT), Ok(0));
        let cached = mm.file(file).cached_pages().unwrap();
        (0..PAGES).for_each(|page| assert_eq!(host.read(mm, id, AT + page), Ok(page)));
        cached
    })
}

#[test]
fn pages_on_their_way_stay_in_the_cache() {
    assert_eq!(in_the_middle(|_, _, _| ()), 5);
    assert_eq!(in_the_middle(|mm, file, _| assert_eq!(mm.file(file).evict(0, PAGES), Ok(0))), 5);
    assert_eq!(in_the_middle(|mm, _, _| give_back(mm, exhaust(mm))), 5);
    // Whoever reads what comes behind them goes on.
    assert_eq!(in_the_middle(|mm, file, _| reads(mm, file, &ReadAhead::new(), 30)), 6);
}

#[test]
fn a_fault_reads_nothing_ahead_while_the_file_is_cut() {
    let during = |cuts: bool| {
        with_file(ahead(LINUX), PAGES, |host, mm, file| {
            let id = mapped(mm, shared(file), PAGES);
            let faults = move |mm: &Mm<'_>| {
                let host = mm.platform();
                host.on(1, || {
                    mm.space(id).switch_to().unwrap();
                    (0..3).for_each(|page| assert_eq!(host.read(mm, id, AT + page), Ok(page)));
                });
            };
            if cuts {
                host.on_discard.borrow_mut().push_back(Box::new(faults));
                mm.file(file).punch_hole(8 * PAGE_SIZE, PAGE_SIZE).unwrap();
                assert!(host.on_discard.borrow().is_empty());
            } else {
                faults(mm);
            }
            (host.read_commands.get(), mm.counter(Counter::FileRa))
        })
    };
    // Each page by itself: whoever cuts may wait for a page that a fault has locked, so a fault does not wait for him.
    assert_eq!(during(true), (3, 0));
    assert_eq!(during(false), (2, 12));
}

#[test]
fn what_is_said_to_be_wanted_comes_in_commands_of_32() {
    with_file(Config { read_ahead: 0, ..ahead(0) }, PAGES, |host, mm, file| {
        assert_eq!(mm.file(file).read_ahead(10, 50), Ok(50));
        assert_eq!((host.read_commands.get(), counts(mm)), (2, [50, 0, 0]));
        assert_eq!(mm.file(file).read_ahead(0, PAGES), Ok(14), "the others are there");
        reads(mm, file, &ReadAhead::new(), 20);
        assert_eq!(counts(mm), [64, 1, 0]);
        mm.file(file).destroy().unwrap();
        assert_eq!(mm.file(file).read_ahead(0, 1), Err(Error::NoSuchFile));
    });
}

#[test]
fn only_a_power_of_two_is_taken_for_a_window() {
    for (most, good) in [(0, true), (1, true), (3, false), (512, true), (1024, false)] {
        let host = Host::new(Setup::default());
        let made = host.make(ahead(most));
        assert_eq!(made.is_ok(), good, "{most}");
    }
}

/// Eight pages of a file, read ahead by CPU 0, while CPU 1 does something in the midst of it; what is found out afterwards, in each case.
fn read_ahead_while<R>(other: fn(&Mm<'_>, FileId), found: fn(&Mm<'_>, FileId) -> R) -> Vec<R> {
    let setup = Setup { cpus: 2, frames: 256, ..Setup::default() };
    let cases = at_every_touch(&setup, &ahead(LINUX), None, |mm, place| {
        let file = mm.create_file(8).unwrap();
        for page in 0..8 {
            mm.file(file).write(page * PAGE_SIZE, &(page + 1).to_ne_bytes()).unwrap();
        }
        mm.file(file).write_back().unwrap();
        mm.drain_lru_batch();
        assert_eq!(mm.file(file).evict(0, 8), Ok(8));
        let reads = || match mm.file(file).read_ahead(0, 8) {
            Ok(_) | Err(Error::NoSuchFile) => {}
            Err(error) => panic!("{error}"),
        };
        race(mm, place, reads, || other(mm, file));
        let found = found(mm, file);
        assert_eq!(settled(mm).broken, None);
        found
    });
    assert!(cases.results.len() > 20, "{} places", cases.results.len());
    cases.results
}

fn shows(mm: &Mm<'_>, file: FileId) -> [u64; 8] {
    [0, 1, 2, 3, 4, 5, 6, 7].map(|page| {
        let mut word = [0; 8];
        mm.file(file).read(page * PAGE_SIZE, &mut word).unwrap();
        u64::from_ne_bytes(word)
    })
}

#[test]
fn two_who_read_ahead_at_once_bring_each_page_once_and_hold_none() {
    let cases = read_ahead_while(
        |mm, file| _ = mm.file(file).read_ahead(2, 8).unwrap(),
        |mm, file| {
            (0..2).for_each(|cpu| mm.platform().on(cpu, || mm.drain_lru_batch()));
            let all = (mm.counter(Counter::FileRa), mm.file(file).cached_pages().unwrap());
            (all, mm.file(file).evict(0, 8).unwrap(), shows(mm, file))
        },
    );
    let sound = ((8, 8), 8, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert!(cases.iter().all(|found| *found == sound), "{cases:?}");
}

#[test]
fn what_is_cut_off_or_ends_while_it_is_read_ahead_is_gone() {
    let cut = read_ahead_while(
        |mm, file| mm.file(file).set_size(3 * PAGE_SIZE).unwrap(),
        |mm, file| {
            mm.file(file).set_size(8 * PAGE_SIZE).unwrap();
            shows(mm, file)
        },
    );
    assert!(cut.iter().all(|found| *found == [1, 2, 3, 0, 0, 0, 0, 0]), "{cut:?}");
    let hole =
        read_ahead_while(|mm, file| mm.file(file).punch_hole(PAGE_SIZE, 5 * PAGE_SIZE).unwrap(), shows);
    assert!(hole.iter().all(|found| *found == [1, 0, 0, 0, 0, 0, 7, 8]), "{hole:?}");
    let ended = read_ahead_while(
        |mm, file| mm.file(file).destroy().unwrap(),
        |mm, _| {
            (0..2).for_each(|cpu| mm.platform().on(cpu, || mm.drain_lru_batch()));
            // Whoever has its place finds nothing of it.
            let next = mm.create_file(8).unwrap();
            (mm.file(next).cached_pages().unwrap(), mm.validate().file)
        },
    );
    assert!(ended.iter().all(|found| *found == (0, 0)), "{ended:?}");
}

#[test]
fn pages_that_cannot_be_read_did_not_come() {
    with_file(ahead(0), 8, |host, mm, file| {
        host.refuse_reads.set(Some(|_, block| (block == 3).then_some(DeviceError::Failed)));
        assert_eq!(mm.file(file).read_ahead(0, 8), Ok(7));
        host.refuse_reads.set(None);
        assert_eq!(mm.file(file).cached_pages(), Ok(7));
        assert_eq!(mm.file(file).read_ahead(0, 8), Ok(1));
    });
}

/// A program comes to the mark of a window; before it reads on the file ends, and another has its slot.
#[test]
fn nothing_is_read_ahead_for_a_file_that_ended() {
    let setup = Setup { cpus: 2, frames: 512, ..Setup::default() };
    let config = ahead(LINUX);
    let cases = at_every_touch(&setup, &config, None, |mm, place| {
        let host = mm.platform();
        let file = mm.create_file(16).unwrap();
        for page in 0..16 {
            mm.file(file).write(page * PAGE_SIZE, &99_u64.to_ne_bytes()).unwrap();
        }
        mm.file(file).write_back().unwrap();
        mm.drain_lru_batch();
        assert_eq!(mm.file(file).evict(0, 16), Ok(16));
        let id = mapped(mm, shared(file), 16);
        assert_eq!(host.read(mm, id, AT), Ok(99));
        let other = mm.create_space().unwrap();
        host.on(1, || mm.space(other).switch_to().unwrap());
        let reads = || match host.read(mm, id, AT + 1) {
            Ok(99) | Err(Error::NotMapped(_)) => {}
            other => panic!("{other:?}"),
        };
        let next = race(mm, place, reads, || {
            mm.space(id).unmap(machine::pages(AT, 16)).unwrap();
            mm.file(file).destroy().unwrap();
            mm.create_file(16).unwrap()
        });
        let came = mm.file(next).cached_pages();
        let mut word = [9; 8];
        assert_eq!(mm.file(next).read(6 * PAGE_SIZE, &mut word), Ok(8));
        assert_eq!(settled(mm).broken, None);
        (came, word) == (Ok(0), [0; 8])
    });
    assert!(cases.results.len() > 20 && cases.count(|sound| !sound) == 0);
}

/// Where the one before it was read tells nothing of where a file is read.
#[test]
fn a_file_is_not_read_ahead_because_the_one_before_it_in_its_slot_was() {
    with_file(ahead(LINUX), PAGES, |host, mm, file| {
        let id = mapped(mm, shared(file), PAGES);
        (0..5).for_each(|page| assert_eq!(host.read(mm, id, AT + page), Ok(page)));
        mm.space(id).unmap(machine::pages(AT, PAGES)).unwrap();
        mm.file(file).destroy().unwrap();
        let next = mm.create_file(PAGES).unwrap();
        assert_eq!(next.index(), file.index());
        mm.space(id).map(machine::pages(AT, PAGES), shared(next), quietmm::Prot::Read).unwrap();
        assert_eq!(host.read(mm, id, AT + 5), Ok(0));
        assert_eq!(mm.file(next).cached_pages(), Ok(1));
    });
}

/// What a fault beside it has mapped is found used when reclaim looks at it: no fault has said so.
#[test]
fn a_page_that_was_read_ahead_and_is_used_without_a_fault_of_its_own_was_wanted() {
    with_file(Config { fault_around: 16, ..ahead(LINUX) }, 8, |host, mm, file| {
        let id = mapped(mm, shared(file), 8);
        assert_eq!(mm.file(file).read_ahead(0, 8), Ok(8));
        let faults = mm.counter(Counter::PgFault);
        (0..6).for_each(|page| assert_eq!(host.read(mm, id, AT + page), Ok(page)));
        assert_eq!((mm.counter(Counter::PgFault) - faults, counts(mm)), (1, [8, 1, 0]));
        mm.drain_lru_batch();
        reclaim_all(mm);
        // Where the hardware does not say who uses a page, all that is mapped counts as used.
        let used = if host.architecture().sets_accessed() { 6 } else { 8 };
        assert_eq!((mm.file(file).cached_pages(), counts(mm)), (Ok(0), [8, used, 8 - used]));
    });
}
