//! Pages that a device uses: they are nobody else's, stay where the program sees them, and nothing that either writes is lost (INV-15).

use crate::machine;

use std::sync::atomic::Ordering;

use machine::race::{at, at_every_touch, every_third, race};
use machine::showing::{AT, LARGE, frame, mapped, private, shared, write_all};
use machine::swapping::{DEVICE, is_out, read, squeeze, swapping, write};
use machine::{Mm, Setup, bare, exhaust, give_back, pages, settled};
use quietmm::addr::PAGE_SIZE;
use quietmm::{
    Advice, Backing, Config, Counter, Error, FrameNumber, NodeId, PageNumber, Pins, Prot, Region, Rule,
    SpaceId, Term, UserAccess,
};

use UserAccess::{Read, Write};

const COUNT: u64 = 6;

fn setup() -> Setup {
    let node = |node: u16| Region {
        start: FrameNumber(0xfc00 + 1024 * u32::from(node)),
        frames: 1024,
        node: NodeId(node),
    };
    Setup { cpus: 3, nodes: 2, frames: 2048, regions: Some(vec![node(0), node(1)]), ..Setup::default() }
}

fn config() -> Config {
    swapping("linux")
}

fn pin(mm: &Mm<'_>, id: SpaceId, page: u64, access: UserAccess, term: Term) -> Pins {
    mm.space(id).pin(pages(page, 1), access, term).unwrap()
}

fn short(mm: &Mm<'_>, id: SpaceId, page: u64, access: UserAccess) -> Pins {
    pin(mm, id, page, access, Term::Short)
}

/// The device writes to the first of the frames.
fn device_writes(mm: &Mm<'_>, pins: &Pins, value: u64) {
    mm.platform().word(pins.frames()[0], 0).store(value, Ordering::SeqCst);
}

fn device_reads(mm: &Mm<'_>, pins: &Pins) -> u64 {
    mm.platform().word(pins.frames()[0], 0).load(Ordering::SeqCst)
}

/// Pages of the space's own, each written with its number, on a machine with swap.
fn own(mm: &Mm<'_>) -> SpaceId {
    mm.swap().on(DEVICE, 512, 0).unwrap();
    let id = mapped(mm, Backing::Anonymous, COUNT);
    write_all(mm, id, COUNT);
    id
}

/// What the device sees of what the program writes, and the program of what the device writes.
fn both_see(mm: &Mm<'_>, id: SpaceId, pins: &Pins) -> (u64, u64) {
    write(mm, id, AT, 5).unwrap();
    let device = device_reads(mm, pins);
    device_writes(mm, pins, 7);
    (device, read(mm, id, AT).unwrap())
}

/// A rule, something done to a space whose first page is pinned, or will be, and how it is pinned.
type Case = (Rule, &'static str, fn(&Mm<'_>, SpaceId) -> Pins);

const CASES: [Case; 5] = [
    (Rule::ForkCopiesPinned, "a fork", |mm, id| {
        let pins = short(mm, id, AT, Write);
        let child = mm.space(id).fork().unwrap();
        assert_eq!(read(mm, child, AT), Ok(AT));
        pins
    }),
    (Rule::ForkCopiesPinned, "a fork of what is pinned to be read", |mm, id| {
        let pins = short(mm, id, AT, Read);
        mm.space(id).fork().unwrap();
        pins
    }),
    (Rule::PinOwnPage, "a fork before", |mm, id| {
        let child = mm.space(id).fork().unwrap();
        let pins = short(mm, id, AT, Read);
        assert_eq!(read(mm, child, AT), Ok(AT));
        pins
    }),
    (Rule::PinnedIsMapped, "reclaim, and then a fork", |mm, id| {
        let pins = short(mm, id, AT, Write);
        squeeze(mm);
        assert!(is_out(mm, id, AT + 1), "memory is short");
        mm.space(id).fork().unwrap();
        pins
    }),
    (Rule::PinnedIsMapped, "a migration", |mm, id| {
        let pins = short(mm, id, AT, Write);
        let moved = mm.space(id).migrate(pages(AT, COUNT), NodeId(1)).unwrap();
        assert!(moved >= COUNT - 1);
        pins
    }),
];

#[test]
fn a_pinned_page_stays_where_the_program_sees_it() {
    for (rule, what, case) in CASES {
        for broken in [None, Some(rule)] {
            let seen = at(&setup(), &config(), broken, |mm| {
                let id = own(mm);
                let pins = case(mm, id);
                let seen = both_see(mm, id, &pins);
                mm.unpin(pins);
                seen
            });
            assert_eq!(seen == (5, 7), broken.is_none(), "{what}, {broken:?}: {seen:?}");
        }
    }
}

#[test]
fn a_child_has_what_was_there_at_the_fork_and_goes_its_own_way() {
    at(&setup(), &config(), None, |mm| {
        let host = mm.platform();
        let id = own(mm);
        let pins = short(mm, id, AT, Write);
        device_writes(mm, &pins, 3);
        host.on(1, || mm.space(id).switch_to().unwrap());
        host.on(1, || host.write(mm, id, AT + 1, 4).unwrap());
        host.forget();
        let copied = mm.counter(Counter::PgCopied);
        let child = mm.space(id).fork().unwrap();
        assert_eq!(
            (host.interrupts_to(1), mm.counter(Counter::PgCopied) - copied),
            (1, 1),
            "one flush, one copy"
        );
        device_writes(mm, &pins, 8);
        assert_eq!((read(mm, child, AT), read(mm, id, AT)), (Ok(3), Ok(8)));
        write(mm, child, AT, 9).unwrap();
        assert_eq!((device_reads(mm, &pins), read(mm, id, AT)), (8, Ok(8)));
        // A child of the child shares all.
        let copied = mm.counter(Counter::PgCopied);
        mm.space(child).fork().unwrap();
        assert_eq!(mm.counter(Counter::PgCopied), copied);
        mm.unpin(pins);
    });
}

#[test]
fn a_fork_that_finds_no_frame_for_a_copy_leaves_nothing() {
    at(&setup(), &bare("linux"), None, |mm| {
        let id = mapped(mm, Backing::Anonymous, COUNT);
        write_all(mm, id, COUNT);
        let pins = mm.space(id).pin(pages(AT, COUNT), Write, Term::Long).unwrap();
        let (start, mut held) = (settled(mm), exhaust(mm));
        // With one frame more each time: the tables come first, and then the copies.
        let mut failed = 0;
        let child = loop {
            match mm.space(id).fork() {
                Ok(child) => break child,
                Err(error) => assert_eq!(error, Error::OutOfMemory),
            }
            failed += 1;
            mm.frames().free(held.pop().expect("it fits at last"));
        };
        assert!(failed >= COUNT, "{failed}");
        assert_eq!(read(mm, child, AT + 2), Ok(AT + 2));
        mm.space(id).switch_to().unwrap();
        mm.space(child).destroy().unwrap();
        give_back(mm, held);
        let end = settled(mm);
        assert_eq!((end.broken, end.anon, end.pinned), (None, start.anon, COUNT));
        mm.unpin(pins);
    });
}

#[test]
fn reclaim_and_migrations_leave_what_is_pinned_and_count_it() {
    at(&setup(), &config(), None, |mm| {
        let id = own(mm);
        let pins = mm.space(id).pin(pages(AT, 2), Write, Term::Long).unwrap();
        squeeze(mm);
        let kept = mm.counter(Counter::PinnedKept);
        assert!(kept >= 2, "{kept}");
        assert_eq!([0, 1, 2].map(|page| is_out(mm, id, AT + page)), [false, false, true]);
        (AT..AT + COUNT).for_each(|page| assert_eq!(read(mm, id, page), Ok(page)));
        assert_eq!(mm.space(id).migrate(pages(AT, 2), NodeId(1)), Ok(0));
        assert_eq!(mm.counter(Counter::PinnedKept), kept + 2);
        mm.unpin(pins);
        // From here on they are like others.
        assert_eq!(mm.space(id).migrate(pages(AT, 2), NodeId(1)), Ok(2));
        squeeze(mm);
        assert!(is_out(mm, id, AT));
        assert_eq!((mm.counter(Counter::Pinned), mm.counter(Counter::Unpinned)), (2, 2));
    });
}

/// The page is clean, and its slot has what it held, when the device writes.
#[test]
fn what_a_device_has_written_goes_to_swap() {
    for broken in [None, Some(Rule::DirtyBeforeUnpin)] {
        let seen = at(&setup(), &config(), broken, |mm| {
            let id = own(mm);
            squeeze(mm);
            assert_eq!(read(mm, id, AT), Ok(AT));
            let pins = short(mm, id, AT, Write);
            device_writes(mm, &pins, 9);
            mm.unpin(pins);
            squeeze(mm);
            assert!(is_out(mm, id, AT));
            read(mm, id, AT).unwrap()
        });
        assert_eq!(seen == 9, broken.is_none(), "{broken:?}: {seen}");
    }
}

#[test]
fn what_a_device_has_written_to_a_file_goes_to_its_device() {
    for broken in [None, Some(Rule::DirtyBeforeUnpin)] {
        let seen = at(&setup(), &config(), broken, |mm| {
            let file = mm.create_file(COUNT).unwrap();
            let id = mapped(mm, shared(file), COUNT);
            let pins = short(mm, id, AT, Write);
            device_writes(mm, &pins, 9);
            // It is written out meanwhile, and once more when the device is through.
            mm.file(file).write_back().unwrap();
            device_writes(mm, &pins, 10);
            mm.unpin(pins);
            (mm.file(file).write_back().unwrap(), mm.platform().on_disk(file, 0))
        });
        assert_eq!(seen == (1, Some(10)), broken.is_none(), "{broken:?}: {seen:?}");
    }
}

/// A page leaves its file, and what a device goes on to write to it comes to nobody: not to the file as it is then either.
#[test]
fn a_pinned_page_that_is_cut_off_is_nobody_elses_and_comes_to_nobody() {
    type Cut = (&'static str, fn(&Mm<'_>, quietmm::FileId));
    let cuts: [Cut; 2] = [
        ("emptied", |mm, file| {
            mm.file(file).set_size(0).unwrap();
            mm.file(file).set_size(COUNT * PAGE_SIZE).unwrap();
        }),
        ("punched", |mm, file| mm.file(file).punch_hole(0, PAGE_SIZE).unwrap()),
    ];
    for (what, cut) in cuts {
        at(&setup(), &config(), None, |mm| {
            let file = mm.create_file(COUNT).unwrap();
            let id = mapped(mm, shared(file), COUNT);
            let (first, second) = (short(mm, id, AT, Write), short(mm, id, AT, Write));
            mm.drain_lru_batch();
            device_writes(mm, &first, 9);
            cut(mm, file);
            assert_eq!(settled(mm).pinned, 2, "{what}");
            device_writes(mm, &first, 10);
            mm.unpin(first);
            // Reclaim finds the page on its list.
            squeeze(mm);
            let held = exhaust(mm);
            assert!(held.iter().all(|block| block.first() != second.frames()[0]), "{what}");
            give_back(mm, held);
            assert_eq!((read(mm, id, AT), mm.platform().on_disk(file, 0)), (Ok(0), None), "{what}");
            mm.unpin(second);
            assert_eq!((settled(mm).pinned, settled(mm).file), (0, 1), "{what}");
        });
    }
}

/// The last pin of such a page goes while reclaim looks at it.
#[test]
fn reclaim_writes_nothing_of_a_page_that_was_cut_off() {
    for broken in [None, Some(Rule::CutStaysClean)] {
        let small = Setup { cpus: 2, frames: 256, ..Setup::default() };
        let cases = at_every_touch(&small, &bare("linux"), broken, |mm, place| {
            let file = mm.create_file(COUNT).unwrap();
            let id = mapped(mm, shared(file), COUNT);
            let pins = short(mm, id, AT, Write);
            mm.drain_lru_batch();
            mm.file(file).set_size(0).unwrap();
            mm.file(file).set_size(COUNT * PAGE_SIZE).unwrap();
            device_writes(mm, &pins, 9);
            // Something that reclaim may take.
            mm.file(file).read(PAGE_SIZE, &mut [0; 3 * PAGE_SIZE as usize]).unwrap();
            mm.drain_lru_batch();
            let held = machine::swapping::take_free(mm);
            race(mm, every_third(place), || machine::swapping::reclaim(mm), || mm.unpin(pins));
            give_back(mm, held);
            read(mm, id, AT) == Ok(0) && mm.platform().on_disk(file, 0).is_none()
        });
        let bad = cases.count(|good| !good);
        assert_eq!(bad == 0, broken.is_none(), "{broken:?}: {bad} of {}", cases.results.len());
    }
}

#[test]
fn the_pages_of_a_file_that_has_ended_stay_as_long_as_their_pins() {
    at(&setup(), &config(), None, |mm| {
        let file = mm.create_file(COUNT).unwrap();
        let id = mapped(mm, shared(file), COUNT);
        let (first, second) = (short(mm, id, AT, Write), short(mm, id, AT, Write));
        mm.drain_lru_batch();
        mm.unload();
        mm.space(id).destroy().unwrap();
        mm.file(file).destroy().unwrap();
        // Another file has its place.
        let next = mm.create_file(COUNT).unwrap();
        device_writes(mm, &first, 9);
        mm.unpin(first);
        squeeze(mm);
        assert_eq!(mm.platform().on_disk(next, 0), None);
        let audit = settled(mm);
        assert_eq!((audit.broken, audit.pinned, audit.file), (None, 1, 1));
        mm.unpin(second);
        let audit = settled(mm);
        assert_eq!((audit.broken, audit.pinned, audit.file), (None, 0, 0));
    });
}

#[test]
fn frames_that_are_pinned_outlive_the_mapping_and_the_space() {
    type End = (&'static str, fn(&Mm<'_>, SpaceId));
    let ends: [End; 3] = [
        ("unmap", |mm, id| mm.space(id).unmap(pages(AT, COUNT)).unwrap()),
        ("drop", |mm, id| mm.space(id).advise(pages(AT, COUNT), Advice::Drop).unwrap()),
        ("destroy", |mm, id| {
            mm.unload();
            mm.space(id).destroy().unwrap();
        }),
    ];
    for ((what, end), policy) in
        ends.iter().flat_map(|end| ["linux", "linux+free=sweep"].map(|policy| (end, policy)))
    {
        at(&setup(), &swapping(policy), None, |mm| {
            let id = own(mm);
            squeeze(mm);
            (AT..AT + COUNT).for_each(|page| assert_eq!(read(mm, id, page), Ok(page)));
            let pins = mm.space(id).pin(pages(AT, 4), Write, Term::Short).unwrap();
            end(mm, id);
            let held = exhaust(mm);
            let free = held.iter().filter(|block| pins.frames().contains(&block.first())).count();
            assert_eq!(free, 0, "{what}");
            device_writes(mm, &pins, 9);
            give_back(mm, held);
            let audit = settled(mm);
            assert_eq!((audit.broken, audit.pinned, audit.anon), (None, 4, 4), "{what}");
            mm.unpin(pins);
            let audit = settled(mm);
            assert_eq!((audit.broken, audit.pinned, audit.anon), (None, 0, 0), "{what}");
        });
    }
}

#[test]
fn a_block_with_a_pinned_page_does_not_go_offline_and_says_so() {
    let last = FrameNumber(0x10800);
    at(&Setup::default(), &config(), None, |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let id = mapped(mm, Backing::Anonymous, COUNT);
        mm.platform().write(mm, id, AT + 2, 1).unwrap();
        // What comes next lies in the last block.
        let (there, elsewhere) = exhaust(mm).into_iter().partition(|block| block.first() >= last);
        give_back(mm, there);
        let pins = mm.space(id).pin(pages(AT, 2), Write, Term::Long).unwrap();
        give_back(mm, elsewhere);
        assert!(pins.frames().iter().all(|&frame| frame >= last));
        let leaving = mm.frames().begin_offline(last).unwrap();
        let remains = mm.frames().finish_offline(leaving).unwrap_err();
        assert!(pins.frames().contains(&remains.frame) && remains.pins == 1, "{remains:?}");
        device_writes(mm, &pins, 9);
        assert_eq!(read(mm, id, AT), Ok(9));
        mm.unpin(pins);
        let offline = mm.frames().finish_offline(remains.leaving).expect("it is empty by now");
        assert_eq!(read(mm, id, AT), Ok(9));
        mm.frames().bring_online(offline);
    });
}

#[test]
fn a_large_page_becomes_small_before_one_of_it_is_pinned() {
    at(&setup(), &bare("linux"), None, |mm| {
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(LARGE, 512), Backing::Anonymous, Prot::ReadWrite).unwrap();
        mm.space(id).advise(pages(LARGE, 512), Advice::Large).unwrap();
        mm.space(id).switch_to().unwrap();
        mm.platform().write(mm, id, LARGE + 7, 70).unwrap();
        assert_eq!(mm.counter(Counter::LargeFault), 1);
        let pins = mm.space(id).pin(pages(LARGE + 7, 2), Write, Term::Long).unwrap();
        assert_eq!(mm.counter(Counter::LargeSplit), 1);
        assert_eq!(device_reads(mm, &pins), 70);
        device_writes(mm, &pins, 71);
        assert_eq!(mm.platform().read(mm, id, LARGE + 7), Ok(71));
        mm.space(id).unmap(pages(LARGE, 512)).unwrap();
        let audit = settled(mm);
        assert_eq!((audit.broken, audit.anon, audit.pinned), (None, 2, 2));
        mm.unpin(pins);
        assert_eq!(settled(mm).anon, 0);
        // One that is missing comes large, and is pinned all the same.
        mm.space(id).map(pages(LARGE, 512), Backing::Anonymous, Prot::ReadWrite).unwrap();
        mm.space(id).advise(pages(LARGE, 512), Advice::Large).unwrap();
        mm.unpin(mm.space(id).pin(pages(LARGE, 1), Write, Term::Short).unwrap());
        assert_eq!((mm.counter(Counter::LargeFault), mm.counter(Counter::LargeSplit)), (2, 2));
    });
}

#[test]
fn a_files_page_is_pinned_short_or_to_be_read_and_a_private_one_long_is_the_spaces_own() {
    at(&setup(), &config(), None, |mm| {
        let file = mm.create_file(COUNT).unwrap();
        let (id, own) = (mapped(mm, shared(file), COUNT), mm.create_space().unwrap());
        mm.space(own).map(pages(AT, COUNT), private(file), Prot::Read).unwrap();
        let range = pages(AT, 2);
        assert_eq!(mm.space(id).pin(range, Write, Term::Long), Err(Error::NotPinnable(range.start)));
        let (one, two) = (pin(mm, id, AT, Read, Term::Long), short(mm, own, AT, Read));
        assert_eq!(one.frames(), two.frames(), "both see the file's");
        let copied = mm.counter(Counter::PgCopied);
        let long = pin(mm, own, AT, Read, Term::Long);
        assert_ne!(long.frames(), two.frames());
        assert_eq!(mm.counter(Counter::PgCopied) - copied, 1, "it is the space's own by now");
        assert_eq!(frame(mm, own, AT), long.frames()[0]);
        // With no right that it had not.
        assert_eq!(mm.space(own).pin(range, Write, Term::Short), Err(Error::NotPermitted(range.start)));
        [one, two, long].into_iter().for_each(|pins| mm.unpin(pins));
        assert_eq!(settled(mm).pinned, 0);
    });
}

#[test]
fn what_cannot_be_pinned_whole_is_not_pinned_at_all() {
    at(&setup(), &config(), None, |mm| {
        let id = own(mm);
        mm.space(id).protect(pages(AT + 4, 2), Prot::Read).unwrap();
        let refused = |range, access, error| {
            let before = settled(mm);
            assert_eq!(mm.space(id).pin(range, access, Term::Short), Err(error));
            assert_eq!(settled(mm), before);
        };
        refused(pages(AT, 33), Read, Error::BadRange);
        refused(pages(AT, 0), Read, Error::BadRange);
        refused(pages(AT + 4, 4), Read, Error::NotMapped(PageNumber(AT + COUNT)));
        refused(pages(AT + 2, 4), Write, Error::NotPermitted(PageNumber(AT + 4)));
        mm.space(id).protect(pages(AT + 5, 1), Prot::None).unwrap();
        refused(pages(AT + 4, 2), Read, Error::NotPermitted(PageNumber(AT + 5)));
        let gone = mm.create_space().unwrap();
        mm.space(gone).destroy().unwrap();
        assert_eq!(mm.space(gone).pin(pages(AT, 1), Read, Term::Short), Err(Error::NoSuchSpace));
    });
}

#[test]
fn a_page_is_pinned_as_often_as_can_be_counted() {
    at(&setup(), &config(), None, |mm| {
        let id = own(mm);
        let all: Vec<_> =
            std::iter::from_fn(|| mm.space(id).pin(pages(AT, 1), Write, Term::Short).ok()).collect();
        assert_eq!(mm.space(id).pin(pages(AT, 1), Read, Term::Long), Err(Error::TooManyPins(PageNumber(AT))));
        assert_eq!(all.len(), 1 << 15);
        let child = mm.space(id).fork().unwrap();
        assert_eq!(settled(mm).pinned, 1 << 15);
        all.into_iter().for_each(|pins| mm.unpin(pins));
        assert_eq!(both_see(mm, child, &short(mm, child, AT, Write)), (5, 7));
    });
}

#[test]
fn an_interrupt_lets_go_of_what_is_mapped_and_takes_no_lock() {
    at(&setup(), &config(), None, |mm| {
        let host = mm.platform();
        let id = own(mm);
        squeeze(mm);
        (AT..AT + COUNT).for_each(|page| assert_eq!(read(mm, id, page), Ok(page)));
        let pins = mm.space(id).pin(pages(AT, 4), Write, Term::Short).unwrap();
        device_writes(mm, &pins, 9);
        mm.space(id).unmap(pages(AT + 1, 2)).unwrap();
        let frames = pins.frames().to_vec();
        assert!(quietmm::platform::Cpus::irqs_off(host));
        let left = mm.unpin_in_interrupt(pins).expect("two that nobody maps");
        quietmm::platform::Cpus::irqs_on(host);
        assert_eq!((left.frames(), left.access()), (&frames[1..3], Write));
        assert_eq!(settled(mm).pinned, 2);
        mm.unpin(left);
        assert_eq!((settled(mm).pinned, settled(mm).anon), (0, COUNT - 2));
        squeeze(mm);
        assert!(is_out(mm, id, AT));
        assert_eq!(read(mm, id, AT), Ok(9), "it was dirty");
        let pins = short(mm, id, AT, Read);
        assert_eq!(mm.unpin_in_interrupt(pins), None);
    });
}

/// Whoever pins and reclaim meet at every place; and then a fork, which shares what is swapped out.
#[test]
fn pins_and_reclaim_meet_at_every_place() {
    for (rule, first) in
        [(None, true), (None, false), (Some(Rule::PinnedIsMapped), true), (Some(Rule::PinnedIsMapped), false)]
    {
        let cases = at_every_touch(&setup(), &config(), rule, |mm, place| {
            let id = own(mm);
            mm.drain_lru_batch();
            mm.platform().on(1, || mm.space(id).switch_to().unwrap());
            let held = std::cell::RefCell::new(machine::swapping::take_free(mm));
            let pinned = std::cell::Cell::new(None);
            let pins = || pinned.set(Some(short(mm, id, AT, Write)));
            let reclaims = || {
                machine::swapping::reclaim(mm);
                machine::swapping::reclaim(mm);
            };
            if first {
                race(mm, place, pins, reclaims);
            } else {
                race(mm, place, reclaims, pins);
            }
            give_back(mm, held.take());
            let pins = pinned.take().expect("it is pinned");
            let stays = frame_or_none(mm, id) == Some(pins.frames()[0]);
            mm.space(id).fork().unwrap();
            let seen = both_see(mm, id, &pins);
            mm.unpin(pins);
            stays && seen == (5, 7)
        });
        let bad = cases.count(|good| !good);
        assert_eq!(bad == 0, rule.is_none(), "{rule:?}, {first}: {bad} of {}", cases.results.len());
    }
}

/// Where the first page is, if it is in memory.
fn frame_or_none(mm: &Mm<'_>, id: SpaceId) -> Option<FrameNumber> {
    let entry = mm.space(id).lookup(PageNumber(AT)).unwrap();
    entry.is_present().then(|| entry.frame())
}

#[test]
fn as_many_pages_as_fit_are_pinned_by_one_call() {
    at(&setup(), &config(), None, |mm| {
        let most = Pins::MOST as u64;
        let id = mapped(mm, Backing::Anonymous, most + 1);
        let pins = mm.space(id).pin(pages(AT, most), Write, Term::Short).unwrap();
        assert_eq!((pins.frames().len() as u64, settled(mm).pinned), (most, most));
        mm.unpin(pins);
        assert_eq!(mm.space(id).pin(pages(AT, most + 1), Write, Term::Short), Err(Error::BadRange));
    });
}

/// The page is the parent's alone in memory; the child's entry names its slot.
#[test]
fn a_page_of_which_another_space_has_the_slot_is_copied_before_it_is_pinned() {
    for broken in [None, Some(Rule::PinOwnPage)] {
        let seen = at(&setup(), &config(), broken, |mm| {
            let id = own(mm);
            let child = mm.space(id).fork().unwrap();
            squeeze(mm);
            assert!(is_out(mm, id, AT) && is_out(mm, child, AT));
            assert_eq!(read(mm, id, AT), Ok(AT));
            let pins = short(mm, id, AT, Read);
            let seen = (both_see(mm, id, &pins), read(mm, child, AT));
            mm.unpin(pins);
            seen
        });
        assert_eq!(seen == ((5, 7), Ok(AT)), broken.is_none(), "{broken:?}: {seen:?}");
    }
}

/// A space forks with a page that is pinned, and the pin goes meanwhile, and with it the page, at every place: the child has what it held.
#[test]
fn a_page_that_goes_when_it_was_to_be_copied_is_the_childs_too() {
    let setup = Setup { cpus: 3, frames: 256, ..Setup::default() };
    let cases = at_every_touch(&setup, &config(), None, |mm, place| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let id = mapped(mm, Backing::Anonymous, 2);
        write_all(mm, id, 2);
        mm.drain_lru_batch();
        let pins = short(mm, id, AT, Read);
        let child = std::cell::Cell::new(None);
        let goes = || {
            mm.unpin(pins);
            (0..2).for_each(|_| squeeze(mm));
            mm.counter(Counter::PswpOut) > 0
        };
        let went = race(mm, place, || child.set(mm.space(id).fork().ok()), goes);
        // All memory may have been taken at that moment.
        let Some(child) = child.get() else {
            machine::swapping::end(mm, &[id], &[DEVICE]);
            return false;
        };
        for one in [child, id] {
            assert_eq!([AT, AT + 1].map(|page| read(mm, one, page)), [Ok(AT), Ok(AT + 1)], "{place:?}");
        }
        machine::swapping::end(mm, &[id, child], &[DEVICE]);
        went
    });
    assert!(cases.count(|&went| went) > 10);
}

/// Where one page cannot be pinned no device has seen the others: they are as clean as before.
#[test]
fn what_was_pinned_in_vain_is_not_written_back() {
    at(&setup(), &bare("linux"), None, |mm| {
        let file = mm.create_file(2).unwrap();
        let id = mapped(mm, shared(file), 2);
        assert_eq!(mm.platform().read(mm, id, AT), Ok(0));
        let refused = mm.space(id).pin(pages(AT, 3), Write, Term::Short);
        assert_eq!(refused, Err(Error::NotMapped(PageNumber(AT + 2))));
        assert_eq!((mm.file(file).write_back(), settled(mm).pinned), (Ok(0), 0));
        mm.unpin(mm.space(id).pin(pages(AT, 2), Write, Term::Short).unwrap());
        assert_eq!(mm.file(file).write_back(), Ok(2));
    });
}
