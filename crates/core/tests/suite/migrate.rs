//! Pages that move to another node, whoever shows them: shared anonymous ones, those of files and of memory files.

use crate::machine;

use machine::race::{Cases, Place, at, at_every_touch, at_places, every_third, race};
use machine::showing::{
    ANON, AT, entry, frame, mapped, private, read_in, shared, two_nodes, write_all, write_in,
};
use machine::swapping::{DEVICE, sound, squeeze, swapping, take_free};
use machine::{Mm, bare, counted, give_back, pages, settled};
use quietmm::addr::PAGE_SIZE;
use quietmm::platform::Memory;
use quietmm::{
    Advice, Config, Counter, Entry, Error, FileId, FrameNumber, Kind, Migrated, NodeId, NodeSet, PageNumber,
    Prot, Rule, SpaceId, Term, UserAccess,
};

const COUNT: u64 = 8;
const NEAR: NodeId = NodeId(0);
const FAR: NodeId = NodeId(1);

fn anywhere() -> NodeSet {
    NodeSet::of(&[NEAR, FAR]).unwrap()
}

fn node(mm: &Mm<'_>, id: SpaceId, page: u64) -> NodeId {
    node_of(frame(mm, id, page))
}

fn node_of(n: FrameNumber) -> NodeId {
    NodeId(u16::from(n.0 >= 0xfc00 + 2048))
}

fn moved(moved: u64) -> Result<Migrated, Error> {
    Ok(Migrated { moved, stayed: 0 })
}

fn copied(mm: &Mm<'_>, file: FileId, page: u64) -> Result<u64, Error> {
    let mut word = [0; 8];
    mm.file(file).read(page * PAGE_SIZE, &mut word).map(|_| u64::from_ne_bytes(word))
}

/// What there is of swap while pages move.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Slots {
    /// A device with room.
    Free,
    /// One that is full.
    Taken,
    /// No device.
    None,
}

/// A parent and two children that share all of its pages; CPU 1 runs in the last.
fn family(mm: &Mm<'_>) -> [SpaceId; 3] {
    let a = mapped(mm, ANON, COUNT);
    write_all(mm, a, COUNT);
    let b = mm.space(a).fork().unwrap();
    let c = mm.space(b).fork().unwrap();
    mm.platform().on(1, || mm.space(c).switch_to().unwrap());
    (AT..AT + COUNT)
        .for_each(|page| assert_eq!(mm.platform().on(1, || mm.platform().read(mm, c, page)), Ok(page)));
    (AT..AT + COUNT).for_each(|page| assert_eq!(read_in(mm, b, page), Ok(page)));
    [a, b, c]
}

#[test]
fn pages_that_spaces_share_move_and_are_shared() {
    for slots in [Slots::Free, Slots::Taken, Slots::None] {
        for policy in ["vanilla", "linux", "quiet"] {
            at(&two_nodes(), &swapping(policy), None, |mm| {
                let host = mm.platform();
                if slots != Slots::None {
                    mm.swap().on(DEVICE, 512, 0).unwrap();
                }
                let taken = (slots == Slots::Taken).then(|| {
                    let id = mm.create_space().unwrap();
                    mm.space(id).map(pages(0x9000, 512), ANON, Prot::ReadWrite).unwrap();
                    mm.space(id).switch_to().unwrap();
                    (0x9000..0x9200).for_each(|page| host.write(mm, id, page, page).unwrap());
                    squeeze(mm);
                    assert_eq!(mm.swap().usage().used, 512);
                    id
                });
                let all = family(mm);
                let (before, used) = (settled(mm), mm.swap().usage().used);
                let (ios, moves) = (counted(mm, Counter::PswpOut), counted(mm, Counter::PgMigrated));
                host.forget();
                assert_eq!(mm.space(all[0]).migrate_all(pages(AT, COUNT), anywhere(), FAR), moved(COUNT));
                if policy != "vanilla" {
                    assert_eq!(host.interrupts_to(1), 1, "one flush, {policy}, {slots:?}");
                }
                assert_eq!(counted(mm, Counter::PgMigrated) - moves, COUNT);
                for page in AT..AT + COUNT {
                    let there = all.map(|id| frame(mm, id, page));
                    assert_eq!(there, [there[0]; 3], "one frame for all three, {policy}, {slots:?}");
                    assert_eq!(node_of(there[0]), FAR);
                    assert!(all.iter().all(|&id| !entry(mm, id, page).permits(UserAccess::Write)));
                    assert_eq!(host.on(1, || host.read(mm, all[2], page)), Ok(page));
                }
                let after = settled(mm);
                assert_eq!((after.broken, after.anon, after.mapped), (None, before.anon, before.mapped));
                assert_eq!(
                    (counted(mm, Counter::PswpOut), mm.swap().usage().used),
                    (ios, used),
                    "nothing went out"
                );
                // A write copies for the one, and the last one has the page to itself.
                write_in(mm, all[0], AT, 70).unwrap();
                host.on(1, || host.write(mm, all[2], AT, 71)).unwrap();
                let last = frame(mm, all[1], AT);
                write_in(mm, all[1], AT, 72).unwrap();
                assert_eq!(frame(mm, all[1], AT), last);
                let seen = (read_in(mm, all[0], AT), read_in(mm, all[1], AT), read_in(mm, all[2], AT));
                assert_eq!(seen, (Ok(70), Ok(72), Ok(71)));
                // Only those of these nodes; and back.
                let near = NodeSet::of(&[NEAR]).unwrap();
                assert_eq!(mm.space(all[1]).migrate_all(pages(AT + 1, 7), near, FAR), moved(0));
                assert_eq!(mm.space(all[1]).migrate_all(pages(AT + 1, 7), anywhere(), NEAR), moved(7));
                assert_eq!(node(mm, all[0], AT + 1), NEAR);
                all.into_iter().chain(taken).for_each(|id| {
                    host.on(1, || mm.unload());
                    mm.unload();
                    mm.space(id).destroy().unwrap();
                });
                let left = settled(mm);
                assert_eq!((left.broken, left.anon, mm.swap().usage().used), (None, 0, 0));
                assert_eq!(host.stale.get(), 0);
            });
        }
    }
}

/// A file, or a memory file, and three spaces that show it: shared, shared on CPU 1, and privately with a copy of one page.
fn shown(mm: &Mm<'_>, memory: bool) -> (FileId, [SpaceId; 3]) {
    let file = if memory { mm.create_memory_file(COUNT) } else { mm.create_file(COUNT) }.unwrap();
    let a = mapped(mm, shared(file), COUNT);
    write_all(mm, a, COUNT);
    let [b, c] = [shared(file), private(file)].map(|backing| {
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(AT, COUNT), backing, Prot::ReadWrite).unwrap();
        (AT..AT + COUNT).for_each(|page| assert_eq!(read_in(mm, id, page), Ok(page)));
        id
    });
    write_in(mm, c, AT + 1, 40).unwrap();
    mm.platform().on(1, || mm.space(b).switch_to().unwrap());
    (AT..AT + COUNT)
        .for_each(|page| assert!(mm.platform().on(1, || mm.platform().read(mm, b, page)).is_ok()));
    (file, [a, b, c])
}

#[test]
fn pages_of_files_move_with_what_was_written_to_them() {
    for memory in [false, true] {
        for policy in ["vanilla", "linux", "quiet"] {
            at(&two_nodes(), &swapping(policy), None, |mm| {
                let host = mm.platform();
                mm.swap().on(DEVICE, 512, 0).unwrap();
                let (file, all) = shown(mm, memory);
                let before = settled(mm);
                host.forget();
                let done = mm.space(all[0]).migrate_all(pages(AT, COUNT), anywhere(), FAR);
                assert_eq!(done, moved(COUNT), "{policy}");
                if policy != "vanilla" {
                    assert_eq!(host.interrupts_to(1), 1, "one flush, {policy}");
                }
                assert_eq!(mm.file(file).cached_pages(), Ok(COUNT), "they are in the cache");
                // What is the space's own copy has stayed, and moves with its space.
                assert_eq!((node(mm, all[2], AT + 1), read_in(mm, all[2], AT + 1)), (NEAR, Ok(40)));
                assert_eq!(mm.space(all[2]).migrate_all(pages(AT, COUNT), anywhere(), FAR), moved(1));
                for page in AT..AT + COUNT {
                    assert_eq!(host.read(mm, all[0], page), Ok(page));
                    assert_eq!(host.on(1, || host.read(mm, all[1], page)), Ok(page));
                    let there = [0, 1].map(|i| frame(mm, all[i], page));
                    assert_eq!((there[0], node_of(there[0])), (there[1], FAR));
                }
                assert_eq!((read_in(mm, all[2], AT), read_in(mm, all[2], AT + 1)), (Ok(AT), Ok(40)));
                let after = settled(mm);
                assert_eq!((after.broken, after.file, after.anon), (None, before.file, before.anon));
                // They are as dirty as they were, and not more often.
                assert_eq!(mm.file(file).write_back(), Ok(if memory { 0 } else { COUNT }));
                host.write(mm, all[0], AT + 2, 50).unwrap();
                assert_eq!(mm.file(file).migrate(0, COUNT, anywhere(), NEAR), moved(COUNT));
                assert_eq!(mm.file(file).write_back(), Ok(if memory { 0 } else { 1 }));
                assert_eq!(host.on(1, || host.read(mm, all[1], AT + 2)), Ok(50));
                sound(mm);
                assert_eq!(host.stale.get(), 0);
            });
        }
    }
}

#[test]
fn pages_that_nobody_maps_move_in_their_cache() {
    at(&two_nodes(), &swapping("linux"), None, |mm| {
        let file = mm.create_file(200).unwrap();
        (0..200)
            .for_each(|page| assert_eq!(mm.file(file).write(page * PAGE_SIZE, &page.to_ne_bytes()), Ok(8)));
        mm.platform().forget();
        assert_eq!(mm.file(file).migrate(10, 100, anywhere(), FAR), moved(100));
        assert_eq!(mm.platform().interrupts(), 0, "no CPU has them");
        assert_eq!(mm.file(file).migrate(0, u64::MAX, anywhere(), FAR), moved(100));
        assert_eq!(mm.file(file).migrate(200, 4, anywhere(), NEAR), moved(0));
        assert_eq!(mm.file(file).migrate(0, 1, anywhere(), NodeId(2)), Err(Error::NoSuchNode));
        (0..200).for_each(|page| assert_eq!(copied(mm, file, page), Ok(page)));
        mm.file(file).destroy().unwrap();
        assert_eq!(mm.file(file).migrate(0, 1, anywhere(), FAR), Err(Error::NoSuchFile));
        assert_eq!((settled(mm).broken, settled(mm).file), (None, 0));
    });
}

/// A page that was used, and is used once more where it has moved to, was used twice.
#[test]
fn what_is_known_of_a_pages_use_goes_with_it() {
    let activated = |used: bool| {
        at(&two_nodes(), &swapping("linux"), None, |mm| {
            let file = mm.create_file(COUNT).unwrap();
            let id = mapped(mm, shared(file), COUNT);
            // They come without being used.
            mm.space(id).advise(pages(AT, COUNT), Advice::WillNeed).unwrap();
            if used {
                (0..COUNT).for_each(|page| assert!(copied(mm, file, page).is_ok()));
            }
            assert_eq!(mm.file(file).migrate(0, COUNT, anywhere(), FAR), moved(COUNT));
            (AT..AT + COUNT).for_each(|page| assert!(read_in(mm, id, page).is_ok()));
            let before = counted(mm, Counter::PgActivate);
            squeeze(mm);
            counted(mm, Counter::PgActivate) - before
        })
    };
    assert_eq!((activated(true), activated(false)), (COUNT, 0));
}

#[test]
fn what_finds_no_room_or_is_pinned_stays_and_is_counted() {
    at(&two_nodes(), &swapping("linux"), None, |mm| {
        let host = mm.platform();
        let all = family(mm);
        let (file, shows) = shown(mm, false);
        host.on(1, || mm.space(all[2]).switch_to().unwrap());
        // The slots for the way are made.
        assert_eq!(mm.space(all[0]).migrate_all(pages(AT, COUNT), anywhere(), NEAR), moved(0));
        let held = take_free(mm);
        host.forget();
        let stays = Ok(Migrated { moved: 0, stayed: COUNT });
        assert_eq!(mm.space(all[0]).migrate_all(pages(AT, COUNT), anywhere(), FAR), stays);
        assert_eq!(mm.file(file).migrate(0, COUNT, anywhere(), FAR), stays);
        assert_eq!(host.interrupts(), 0, "nothing was taken out");
        give_back(mm, held);
        let pins = mm.space(shows[0]).pin(pages(AT, 1), UserAccess::Write, Term::Short).unwrap();
        let kept = counted(mm, Counter::PinnedKept);
        let one = Ok(Migrated { moved: COUNT - 1, stayed: 1 });
        assert_eq!(mm.space(shows[1]).migrate_all(pages(AT, COUNT), anywhere(), FAR), one);
        assert!(counted(mm, Counter::PinnedKept) > kept);
        assert_eq!((frame(mm, shows[0], AT), node(mm, shows[0], AT)), (pins.frames()[0], NEAR));
        mm.unpin(pins);
        assert_eq!(mm.file(file).migrate(0, COUNT, anywhere(), FAR), moved(1));
        assert_eq!(
            mm.space(all[0]).migrate_all(pages(AT, COUNT + 1), anywhere(), FAR),
            Err(Error::NotMapped(PageNumber(AT + COUNT)))
        );
        assert_eq!(mm.space(all[0]).migrate_all(pages(AT, 1), anywhere(), NodeId(2)), Err(Error::NoSuchNode));
        sound(mm);
    });
    // Without swap nobody knows where an anonymous page is shown; those of files move.
    at(&two_nodes(), &bare("linux"), None, |mm| {
        let all = family(mm);
        let (file, _) = shown(mm, false);
        let stays = Ok(Migrated { moved: 0, stayed: COUNT });
        assert_eq!(mm.space(all[0]).migrate_all(pages(AT, COUNT), anywhere(), FAR), stays);
        assert_eq!(mm.file(file).migrate(0, COUNT, anywhere(), FAR), moved(COUNT));
        sound(mm);
    });
}

/// Pages that are on their way to a list move too, whichever CPU has them there; others are interrupted only where they may have some.
#[test]
fn pages_on_their_way_to_a_list_move_too() {
    for (cpu, to) in [(0, FAR), (1, NEAR)] {
        at(&two_nodes(), &Config { lru_batch: 16, ..swapping("linux") }, None, |mm| {
            let host = mm.platform();
            let (file, id) = (mm.create_file(COUNT).unwrap(), mm.create_space().unwrap());
            mm.space(id).map(pages(AT, COUNT), shared(file), Prot::Read).unwrap();
            host.on(cpu, || {
                mm.space(id).switch_to().unwrap();
                (AT..AT + COUNT).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(0)));
                mm.unload();
            });
            host.forget();
            assert_eq!(mm.space(id).migrate_all(pages(AT, COUNT), anywhere(), to), moved(COUNT));
            assert_eq!(host.interrupts(), usize::from(cpu), "of CPU {cpu}");
            sound(mm);
        });
    }
}

/// What was written before a page moves is on the device in the end.
fn kept_on_the_device(broken: Option<Rule>) -> Result<u64, Error> {
    at(&two_nodes(), &swapping("linux"), broken, |mm| {
        let file = mm.create_file(1).unwrap();
        let id = mapped(mm, shared(file), 1);
        mm.platform().write(mm, id, AT, 91).unwrap();
        assert_eq!(mm.file(file).migrate(0, 1, anywhere(), FAR), moved(1));
        let clean = mm.file(file).evict(0, 1).unwrap();
        assert_eq!(mm.file(file).write_back(), Ok(1 - clean));
        assert_eq!(mm.file(file).evict(0, 1), Ok(1 - clean));
        copied(mm, file, 0)
    })
}

#[test]
fn a_dirty_page_is_dirty_where_it_has_moved() {
    assert_eq!(kept_on_the_device(None), Ok(91));
    assert_ne!(kept_on_the_device(Some(Rule::MovedStaysDirty)), Ok(91));
}

/// A device has a page of a file that nobody maps any more.
fn a_device_goes_on(broken: Option<Rule>) -> Result<u64, Error> {
    at(&two_nodes(), &swapping("linux"), broken, |mm| {
        let file = mm.create_file(1).unwrap();
        let id = mapped(mm, shared(file), 1);
        mm.platform().write(mm, id, AT, 1).unwrap();
        let pins = mm.space(id).pin(pages(AT, 1), UserAccess::Write, Term::Short).unwrap();
        mm.space(id).unmap(pages(AT, 1)).unwrap();
        let stays = Ok(Migrated { moved: 0, stayed: 1 });
        let done = mm.file(file).migrate(0, 1, anywhere(), FAR);
        mm.platform().word(pins.frames()[0], 0).store(81, std::sync::atomic::Ordering::SeqCst);
        mm.unpin(pins);
        if broken.is_none() {
            assert_eq!(done, stays);
            sound(mm);
        }
        copied(mm, file, 0)
    })
}

#[test]
fn a_page_that_somebody_holds_stays() {
    assert_eq!(a_device_goes_on(None), Ok(81));
    for rule in [Rule::PinnedIsMapped, Rule::FreezeBeforeFree] {
        // One of the two is enough.
        assert_eq!(a_device_goes_on(Some(rule)), Ok(81));
    }
}

/// A fault that has found a page, and is about to map it, has a reference and nothing else.
fn found_and_not_mapped(broken: Option<Rule>) -> Cases<bool> {
    at_every_touch(&two_nodes(), &swapping("linux"), broken, |mm, place| {
        let file = mm.create_file(1).unwrap();
        mm.file(file).write(0, &5_u64.to_ne_bytes()).unwrap();
        mm.drain_lru_batch();
        let id = mapped(mm, shared(file), 1);
        let host = mm.platform();
        race(
            mm,
            place,
            || host.write(mm, id, AT, 6).unwrap(),
            || _ = mm.file(file).migrate(0, 1, anywhere(), FAR).unwrap(),
        );
        let good = (host.read(mm, id, AT), copied(mm, file, 0)) == (Ok(6), Ok(6)) && host.stale.get() == 0;
        if broken.is_none() {
            sound(mm);
        }
        good
    })
}

#[test]
fn a_fault_that_has_found_the_page_keeps_it() {
    assert_eq!(found_and_not_mapped(None).count(|&good| !good), 0);
    assert!(found_and_not_mapped(Some(Rule::FreezeBeforeFree)).count(|&good| !good) > 0);
}

/// CPU 0 moves pages; CPU 1, which has them cached, does something meanwhile. What does not come out as it should.
type Meanwhile = fn(&Mm<'_>, FileId, SpaceId);

fn bad_moves(memory: bool, broken: Option<Rule>, meanwhile: Meanwhile, expected: u64) -> usize {
    let cases = at_every_touch(&two_nodes(), &swapping("linux"), broken, |mm, place| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let (file, all) = shown(mm, memory);
        let host = mm.platform();
        host.on(1, || host.write(mm, all[1], AT, 8)).unwrap();
        host.uses_windows.set(true);
        race(
            mm,
            if broken.is_some() { place } else { every_third(place) },
            || _ = mm.file(file).migrate(0, 2, anywhere(), FAR).unwrap(),
            || meanwhile(mm, file, all[1]),
        );
        let seen = (host.read(mm, all[0], AT), host.on(1, || host.read(mm, all[1], AT)), copied(mm, file, 0));
        let mut good =
            seen == (Ok(expected), Ok(expected), Ok(expected)) && read_in(mm, all[2], AT + 1) == Ok(40);
        if broken.is_none() {
            sound(mm);
        }
        if !memory {
            mm.file(file).write_back().unwrap();
            mm.file(file).evict(0, 1).unwrap();
            good &= copied(mm, file, 0) == Ok(expected);
        }
        good && host.torn.get() == 0
    });
    cases.count(|&good| !good)
}

#[test]
fn what_is_written_to_a_page_of_a_file_while_it_moves_is_not_lost() {
    let write: Meanwhile = |mm, _, id| mm.platform().write(mm, id, AT, 77).unwrap();
    let copy_in: Meanwhile = |mm, file, _| assert_eq!(mm.file(file).write(0, &78_u64.to_ne_bytes()), Ok(8));
    let copy_out: Meanwhile = |mm, file, _| assert_eq!(copied(mm, file, 0), Ok(8));
    for memory in [false, true] {
        assert_eq!(bad_moves(memory, None, write, 77), 0);
        assert_eq!(bad_moves(memory, None, copy_in, 78), 0);
        assert_eq!(bad_moves(memory, None, copy_out, 8), 0);
    }
    assert!(bad_moves(false, Some(Rule::FlushBeforeMigrate), write, 77) > 0);
    assert!(bad_moves(false, Some(Rule::ContentBeforeFound), copy_out, 8) > 0);
}

/// Has pages move to the far node while only its last block has room: the first one has some of the core's own.
fn in_the_last_block(mm: &Mm<'_>, work: impl FnOnce()) {
    let (last, others) = take_free(mm).into_iter().partition(|frame| frame.first().0 >= 0x10800);
    give_back(mm, last);
    work();
    give_back(mm, others);
}

/// Whoever looks at each frame of a block touches many words: every so many of them, and all in `make soak`.
fn some_of(place: Place, step: u32) -> Place {
    match place {
        Place::Touch(n) if !machine::soaks() => Place::Touch(step * n),
        place => place,
    }
}

/// Pages of a space's own, and those that it shares with a child, leave a block of memory that goes offline; CPU 1 writes to one meanwhile.
fn written_while_it_leaves(broken: Option<Rule>, child: bool) -> usize {
    let cases = at_every_touch(&two_nodes(), &swapping("linux"), broken, |mm, place| {
        let host = mm.platform();
        let id = mapped(mm, ANON, 4);
        write_all(mm, id, 4);
        in_the_last_block(mm, || assert_eq!(mm.space(id).migrate(pages(AT, 4), FAR), Ok(4)));
        let other = child.then(|| mm.space(id).fork().unwrap());
        host.on(1, || mm.space(id).switch_to().unwrap());
        (AT..AT + 4).for_each(|page| assert_eq!(host.on(1, || host.read(mm, id, page)), Ok(page)));
        if !child {
            // It may write without a fault.
            host.on(1, || host.write(mm, id, AT, 1)).unwrap();
        }
        mm.drain_lru_batch();
        let block = FrameNumber(frame(mm, id, AT).0 & !1023);
        let leaving = mm.frames().begin_offline(block).unwrap();
        host.uses_windows.set(true);
        let mut remains = None;
        race(
            mm,
            some_of(place, if broken.is_some() { 7 } else { 31 }),
            || remains = Some(mm.frames().finish_offline(leaving)),
            || host.write(mm, id, AT, 77).unwrap(),
        );
        match remains.expect("it has been tried") {
            Ok(gone) => mm.frames().bring_online(gone),
            Err(left) => mm.frames().cancel_offline(left.leaving),
        }
        let mut good = host.read(mm, id, AT) == Ok(77) && host.on(1, || host.read(mm, id, AT)) == Ok(77);
        good &= (AT + 1..AT + 4).all(|page| host.read(mm, id, page) == Ok(page));
        if let Some(other) = other {
            good &= (AT..AT + 4).all(|page| read_in(mm, other, page) == Ok(page));
        }
        if broken.is_none() {
            sound(mm);
        }
        good
    });
    cases.count(|&good| !good)
}

#[test]
fn what_is_written_while_a_page_leaves_its_block_is_not_lost() {
    assert_eq!(written_while_it_leaves(None, false), 0);
    assert_eq!(written_while_it_leaves(None, true), 0);
    assert!(written_while_it_leaves(Some(Rule::FlushBeforeMigrate), false) > 0);
}

#[test]
fn what_spaces_share_leaves_a_block_for_another_frame_and_not_for_swap() {
    for policy in ["vanilla", "linux", "quiet"] {
        at(&two_nodes(), &swapping(policy), None, |mm| {
            let host = mm.platform();
            mm.swap().on(DEVICE, 512, 0).unwrap();
            let all = family(mm);
            let file = mm.create_memory_file(COUNT).unwrap();
            let shows = mapped(mm, shared(file), COUNT);
            write_all(mm, shows, COUNT);
            in_the_last_block(mm, || {
                assert_eq!(mm.space(all[0]).migrate_all(pages(AT, COUNT), anywhere(), FAR), moved(COUNT));
                assert_eq!(mm.file(file).migrate(0, COUNT, anywhere(), FAR), moved(COUNT));
            });
            let moves = counted(mm, Counter::PgMigrated);
            let written = counted(mm, Counter::PswpOut);
            for block in mm.frames().blocks() {
                let Ok(leaving) = mm.frames().begin_offline(block) else { continue };
                match mm.frames().finish_offline(leaving) {
                    Ok(gone) => mm.frames().bring_online(gone),
                    Err(left) => {
                        assert!(!matches!(left.kind, Kind::Anon | Kind::File), "{policy}: {left:?}");
                        mm.frames().cancel_offline(left.leaving);
                    }
                }
            }
            assert!(counted(mm, Counter::PgMigrated) - moves >= 2 * COUNT);
            assert_eq!((counted(mm, Counter::PswpOut), mm.swap().usage().used), (written, 0), "{policy}");
            for page in AT..AT + COUNT {
                let there = all.map(|id| frame(mm, id, page));
                assert_eq!(there, [there[0]; 3]);
                assert_eq!(read_in(mm, shows, page), Ok(page));
                assert_eq!(host.on(1, || host.read(mm, all[2], page)), Ok(page));
            }
            sound(mm);
        });
    }
}

#[test]
fn a_page_of_two_spaces_that_has_moved_is_copied_for_the_first_who_writes() {
    for first in [0, 1] {
        at(&two_nodes(), &swapping("linux"), None, |mm| {
            let a = mapped(mm, ANON, COUNT);
            write_all(mm, a, COUNT);
            let both = [a, mm.space(a).fork().unwrap()];
            assert_eq!(mm.space(a).migrate_all(pages(AT, COUNT), anywhere(), FAR), moved(COUNT));
            let (one, other) = (both[first], both[1 - first]);
            for page in AT..AT + COUNT {
                assert!(both.iter().all(|&id| !entry(mm, id, page).permits(UserAccess::Write)));
                write_in(mm, one, page, 70).unwrap();
                assert_eq!((read_in(mm, one, page), read_in(mm, other, page)), (Ok(70), Ok(page)));
            }
            sound(mm);
        });
    }
}

/// The same, and nobody has written to the pages.
fn unwritten(mm: &Mm<'_>) -> [SpaceId; 3] {
    let a = mapped(mm, ANON, COUNT);
    (AT..AT + COUNT).for_each(|page| assert_eq!(mm.platform().read(mm, a, page), Ok(0)));
    let b = mm.space(a).fork().unwrap();
    let c = mm.space(b).fork().unwrap();
    mm.platform().on(1, || mm.space(c).switch_to().unwrap());
    [a, b, c]
}

/// A page moves while somebody has the VMAs of one of its spaces alone, so that its entry there names a slot of no device; no other space keeps it.
/// Whether the entry leads to the page at once; then there is a device, and memory is short: how many of the space's pages stay.
fn shown_again(written: bool) -> Cases<(bool, u64)> {
    at_every_touch(&two_nodes(), &swapping("linux"), None, |mm, place| {
        let [a, b, c] = if written { family(mm) } else { unwritten(mm) };
        mm.drain_lru_batches();
        race(
            mm,
            every_third(place),
            || mm.space(b).protect(pages(AT + 4, 1), Prot::Read).unwrap(),
            || _ = mm.space(a).migrate_all(pages(AT, 1), anywhere(), FAR).unwrap(),
        );
        let at_once = entry(mm, b, AT).is_present();
        [a, c].into_iter().for_each(|id| mm.space(id).advise(pages(AT, 1), Advice::Drop).unwrap());
        mm.swap().on(DEVICE, 512, 0).unwrap();
        squeeze(mm);
        let stay = settled(mm).anon;
        assert_eq!(read_in(mm, b, AT), Ok(if written { AT } else { 0 }));
        sound(mm);
        (at_once, stay)
    })
}

parts!(
    a_page_that_an_entry_does_not_lead_to_after_it_moved_goes_to_swap_all_the_same,
    |part, parts| {
        let cases = at_places((part / 2, parts / 2), || shown_again(part % 2 == 0));
        assert!(cases.count(|&(at_once, _)| !at_once) > 0, "somebody had it");
        assert_eq!(cases.count(|&(_, stay)| stay > 0), 0);
    },
    [
        p0 p1 p2 p3 p4 p5 p6 p7 p8 p9 p10 p11 p12 p13 p14 p15 p16 p17 p18 p19 p20 p21 p22 p23
    ]
);

/// A page that one of two spaces has used has been used where it moves to, whichever of them that was.
#[test]
fn a_page_that_one_of_its_spaces_has_used_has_been_used_where_it_moves_to() {
    let activated = |other_uses: bool, other_is_first: bool| {
        at(&two_nodes(), &swapping("linux"), None, |mm| {
            let file = mm.create_file(COUNT).unwrap();
            let mut spaces = [0; 2].map(|_| mapped(mm, shared(file), COUNT));
            if other_is_first {
                spaces.reverse();
            }
            let uses = |n: usize| {
                (AT..AT + COUNT).for_each(|page| assert!(read_in(mm, spaces[n], page).is_ok()));
            };
            uses(0);
            mm.drain_lru_batches();
            // Its entries say nothing of it any more.
            mm.space(spaces[0]).advise(pages(AT, COUNT), Advice::Cold).unwrap();
            if other_uses {
                uses(1);
            }
            assert_eq!(mm.file(file).migrate(0, COUNT, anywhere(), FAR), moved(COUNT));
            uses(0);
            let before = counted(mm, Counter::PgActivate);
            squeeze(mm);
            counted(mm, Counter::PgActivate) - before
        })
    };
    for other_is_first in [false, true] {
        let both = [false, true].map(|uses| activated(uses, other_is_first));
        assert_eq!(both, [0, COUNT], "{other_is_first}");
    }
}

/// What moves is charged to whom it was charged to.
#[test]
fn pages_that_move_stay_charged_to_their_group() {
    at(&two_nodes(), &Config { groups: 1, ..swapping("linux") }, None, |mm| {
        let group = mm.create_group(1000).unwrap();
        let file = mm.create_file(COUNT).unwrap();
        let id = mm.create_space().unwrap();
        mm.space(id).set_group(Some(group)).unwrap();
        mm.space(id).map(pages(AT, COUNT), shared(file), Prot::ReadWrite).unwrap();
        mm.space(id).switch_to().unwrap();
        write_all(mm, id, COUNT);
        mm.drain_lru_batches();
        let charged = || {
            let usage = mm.group(group).usage().unwrap();
            usage.charged - usage.stocked
        };
        let before = charged();
        assert_eq!(mm.file(file).migrate(0, COUNT, anywhere(), FAR), moved(COUNT));
        assert_eq!(charged(), before);
        sound(mm);
    });
}

/// On which list a page is moves with it.
#[test]
fn pages_move_to_the_like_of_the_list_that_they_were_on() {
    at(&two_nodes(), &swapping("linux"), None, |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let id = mapped(mm, ANON, COUNT);
        write_all(mm, id, COUNT);
        let child = mm.space(id).fork().unwrap();
        let all_read = || {
            for space in [child, id] {
                (AT..AT + COUNT).for_each(|page| assert_eq!(read_in(mm, space, page), Ok(page)));
            }
            mm.drain_lru_batch();
        };
        for _ in 0..16 {
            all_read();
            let held = take_free(mm);
            machine::swapping::reclaim(mm);
            give_back(mm, held);
        }
        all_read();
        let lists = mm.frames().lru_pages();
        assert!(lists.active_anon > 0, "{lists:?}");
        for to in [FAR, NEAR] {
            assert_eq!(mm.space(id).migrate_all(pages(AT, COUNT), anywhere(), to).unwrap().stayed, 0);
            assert!((AT..AT + COUNT).all(|page| node(mm, child, page) == to));
            assert_eq!(mm.frames().lru_pages(), lists);
        }
        machine::swapping::end(mm, &[id, child], &[DEVICE]);
    });
}

/// A page of swap that nothing shows yet moves out of a block of memory, and is one that was read ahead still.
#[test]
fn a_page_of_swap_that_moves_was_read_ahead() {
    const LAST: FrameNumber = FrameNumber(0x10800);
    let host = machine::Host::new(machine::Setup::default());
    host.run(swapping("linux"), |mm| {
        let id = machine::swapping::written(mm, 512, 2);
        let at = machine::swapping::AT;
        squeeze(mm);
        let (last, others): (Vec<_>, Vec<_>) =
            take_free(mm).into_iter().partition(|frames| frames.first() >= LAST);
        give_back(mm, last);
        // The first page comes with the second.
        assert_eq!(host.read(mm, id, at + 1), Ok(at + 1));
        assert_eq!((counted(mm, Counter::SwapRa), counted(mm, Counter::SwapRaHit)), (1, 0));
        give_back(mm, others);
        mm.drain_lru_batch();
        let leaving = mm.frames().begin_offline(LAST).unwrap();
        mm.frames().bring_online(mm.frames().finish_offline(leaving).unwrap());
        assert_eq!(counted(mm, Counter::PgMigrated), 2);
        assert_eq!(host.read(mm, id, at), Ok(at));
        assert_eq!((counted(mm, Counter::PswpIn), counted(mm, Counter::SwapRaHit)), (2, 1));
        machine::swapping::end(mm, &[id], &[DEVICE]);
    });
}

/// Whoever used it before is known by the page; the entries that lead to it again say what comes from then on.
#[test]
fn an_entry_of_a_page_that_moved_is_accessed_once_somebody_uses_it() {
    at(&two_nodes(), &swapping("linux"), None, |mm| {
        let family = family(mm);
        assert_eq!(mm.space(family[0]).migrate_all(pages(AT, COUNT), anywhere(), FAR), moved(COUNT));
        // Where the hardware sets no such bit an entry has it from the start.
        let idle = mm.platform().architecture().sets_accessed();
        for (&id, page) in family.iter().flat_map(|id| (0..COUNT).map(move |page| (id, page))) {
            assert_eq!(entry(mm, id, AT + page).has(Entry::ACCESSED), !idle, "page {page}");
        }
        read_in(mm, family[1], AT + 3).unwrap();
        assert!(entry(mm, family[1], AT + 3).has(Entry::ACCESSED));
    });
}
