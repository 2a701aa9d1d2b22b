//! Ranges that are locked: their pages stay, whoever wants memory, and for no longer than they are locked.

use crate::machine;

use machine::race::{at_every_touch, every_third, race};
use machine::showing::{AT as MAPPED, LARGE, mapped, private, shared};
use machine::swapping::{AT, anonymous, end, is_out, sound, squeeze, swapping, written};
use machine::{Host, Mm, Setup, bare, pages, settled};
use quietmm::addr::PAGE_SIZE;
use quietmm::{
    Advice, Backing, Config, Counter, Error, FrameNumber, NodeId, NodeSet, PageNumber, Prot, Region, Rule,
    SpaceId, UserAccess,
};

fn resident(mm: &Mm<'_>, id: SpaceId, at: u64, count: u64) -> u64 {
    mm.space(id).residency(pages(at, count), &mut vec![0; count as usize]).unwrap()
}

/// Of 16 pages of which some were locked, those that stay when memory is wanted.
fn stay(policy: &str, broken: Option<Rule>, lock: fn(&Mm<'_>, SpaceId)) -> Vec<u64> {
    let host = Host::new(Setup { frames: 512, ..Setup::default() });
    host.broken.set(broken);
    host.run(swapping(policy), |mm| {
        let id = written(mm, 512, 16);
        lock(mm, id);
        (0..3).for_each(|_| squeeze(mm));
        let stay = (0..16).filter(|&page| !is_out(mm, id, AT + page)).collect();
        assert!((AT..AT + 16).all(|page| host.read(mm, id, page) == Ok(page)), "{policy}");
        sound(mm);
        stay
    })
}

#[test]
fn what_is_locked_stays_and_what_is_not_goes() {
    for policy in ["linux", "vanilla", "quiet"] {
        let lock = |mm: &Mm<'_>, id| mm.space(id).lock(pages(AT + 4, 5)).unwrap();
        assert_eq!(stay(policy, None, lock), [4, 5, 6, 7, 8], "{policy}");
        assert!(stay(policy, Some(Rule::LockedStays), lock).is_empty(), "{policy}");
        let half = |mm: &Mm<'_>, id| {
            mm.space(id).lock(pages(AT + 4, 5)).unwrap();
            mm.space(id).unlock(pages(AT, 7)).unwrap();
            assert_eq!(mm.space(id).locked_pages(), Ok(2));
        };
        assert_eq!(stay(policy, None, half), [7, 8], "{policy}");
        // Nor by advice.
        let advised = |mm: &Mm<'_>, id| {
            mm.space(id).lock(pages(AT, 16)).unwrap();
            mm.drain_lru_batch();
            mm.space(id).advise(pages(AT, 16), Advice::PageOut).unwrap();
        };
        assert_eq!(stay(policy, None, advised), (0..16).collect::<Vec<_>>(), "{policy}");
    }
}

/// What is there stays, and what comes stays from then on; nothing is brought.
#[test]
fn a_lock_on_fault_keeps_what_is_there_and_what_comes() {
    for policy in ["linux", "vanilla", "quiet"] {
        let half_there = |mm: &Mm<'_>, id| {
            mm.space(id).advise(pages(AT, 8), Advice::PageOut).unwrap();
            mm.space(id).lock_on_fault(pages(AT + 4, 8)).unwrap();
            assert_eq!((mm.space(id).locked_pages(), resident(mm, id, AT, 12)), (Ok(8), 4));
            assert_eq!(mm.platform().read(mm, id, AT + 5), Ok(AT + 5));
            mm.space(id).unlock(pages(AT + 9, 1)).unwrap();
        };
        let kept = stay(policy, None, half_there);
        assert_eq!(kept, [5, 8, 10, 11], "{policy}");
        assert!(stay(policy, Some(Rule::LockedStays), half_there).is_empty(), "{policy}");
    }
    let host = Host::new(Setup { frames: 512, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        let (id, hole) = (anonymous(mm, 4), Error::NotMapped(PageNumber(AT + 4)));
        assert_eq!(mm.space(id).lock_on_fault(pages(AT, 5)), Err(hole));
        assert_eq!(mm.space(id).lock_on_fault(pages(AT, 0)), Err(Error::BadRange));
        assert_eq!(mm.space(id).locked_pages(), Ok(0));
    });
}

#[test]
fn a_lock_brings_what_is_missing() {
    let host = Host::new(Setup { frames: 512, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        let id = written(mm, 512, 8);
        squeeze(mm);
        assert_eq!(resident(mm, id, AT, 8), 0);
        mm.space(id).lock(pages(AT, 8)).unwrap();
        assert_eq!(resident(mm, id, AT, 8), 8);
        let file = mm.create_file(8).unwrap();
        for shown in [shared(file), private(file)] {
            let shows = mapped(mm, shown, 8);
            mm.space(shows).lock(pages(MAPPED, 8)).unwrap();
            let faults = mm.counter(Counter::PgMajFault);
            (0..3).for_each(|_| squeeze(mm));
            for page in MAPPED..MAPPED + 8 {
                assert_eq!(host.read(mm, shows, page), Ok(0));
                // What is this space's own is so by now.
                assert!(mm.space(shows).lookup(PageNumber(page)).unwrap().permits(UserAccess::Write));
            }
            assert_eq!(mm.counter(Counter::PgMajFault), faults, "nothing was read or copied");
            mm.unload();
            mm.space(shows).destroy().unwrap();
        }
        // A file that is cut takes its pages along.
        let shows = mapped(mm, shared(file), 8);
        mm.space(shows).lock(pages(MAPPED, 8)).unwrap();
        mm.file(file).set_size(2 * PAGE_SIZE).unwrap();
        assert_eq!(
            (resident(mm, shows, MAPPED, 8), host.read(mm, shows, MAPPED + 3)),
            (2, Err(Error::BeyondFile))
        );
        sound(mm);
    });
}

#[test]
fn a_lock_goes_with_its_range_and_not_with_a_fork() {
    let host = Host::new(Setup { frames: 512, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        let id = written(mm, 512, 8);
        let space = mm.space(id);
        space.lock(pages(AT, 8)).unwrap();
        let child = space.fork().unwrap();
        assert_eq!((space.locked_pages(), mm.space(child).locked_pages()), (Ok(8), Ok(0)));
        // The pages that both have stay, for the parent.
        squeeze(mm);
        assert_eq!(resident(mm, id, AT, 8), 8);
        // The child's copies do not.
        mm.space(child).switch_to().unwrap();
        (AT..AT + 8).for_each(|page| host.write(mm, child, page, page + 1).unwrap());
        (0..3).for_each(|_| squeeze(mm));
        assert_eq!((resident(mm, id, AT, 8), resident(mm, child, AT, 8)), (8, 0));
        // Moved, split and made longer it stays; and unmapped it is gone.
        space.remap(pages(AT, 8), pages(AT + 100, 12)).unwrap();
        assert_eq!(space.locked_pages(), Ok(12));
        space.protect(pages(AT + 102, 2), Prot::Read).unwrap();
        space.unmap(pages(AT + 106, 6)).unwrap();
        assert_eq!(space.locked_pages(), Ok(6));
        (0..3).for_each(|_| squeeze(mm));
        assert_eq!(resident(mm, id, AT + 100, 6), 6);
        sound(mm);
    });
}

/// What differed by its lock alone is one mapping for the child: it moves, grows and is counted as one.
#[test]
fn a_child_has_one_mapping_where_a_part_was_locked() {
    let host = Host::new(Setup { frames: 512, ..Setup::default() });
    // Room for all parts, and for none more.
    host.run(Config { max_map_count: 3, ..swapping("linux") }, |mm| {
        let id = written(mm, 512, 8);
        mm.space(id).lock(pages(AT + 2, 3)).unwrap();
        let child = mm.space(id).fork().unwrap();
        assert_eq!((mm.space(id).locked_pages(), mm.space(child).locked_pages()), (Ok(3), Ok(0)));
        sound(mm);
        let full = Err(Error::MapCount { most: 3 });
        assert_eq!(mm.space(id).protect(pages(AT, 1), Prot::Read), full, "the parent has three");
        assert_eq!(mm.space(child).protect(pages(AT + 3, 1), Prot::Read), Ok(()), "the child has one");
        // Reclaim finds the pages of both.
        (0..3).for_each(|_| squeeze(mm));
        assert_eq!(resident(mm, id, AT + 2, 3), 3);
        mm.space(child).switch_to().unwrap();
        assert!((AT..AT + 8).all(|page| host.read(mm, child, page) == Ok(page)));
        sound(mm);
    });
}

#[test]
fn what_cannot_be_had_whole_is_not_locked() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let id = anonymous(mm, 8);
        let space = mm.space(id);
        space.lock(pages(AT, 2)).unwrap();
        let not = |range, error| {
            assert_eq!(space.lock(range), Err(error));
            assert_eq!(space.locked_pages(), Ok(2));
        };
        not(pages(AT + 4, 8), Error::NotMapped(PageNumber(AT + 8)));
        space.protect(pages(AT + 5, 1), Prot::None).unwrap();
        not(pages(AT, 8), Error::NotPermitted(PageNumber(AT + 5)));
        not(pages(AT, 0), Error::BadRange);
        assert_eq!(space.unlock(pages(AT, 9)), Err(Error::NotMapped(PageNumber(AT + 8))));
        let file = mm.create_file(2).unwrap();
        space.map(pages(AT + 16, 4), shared(file), Prot::Read).unwrap();
        not(pages(AT + 16, 4), Error::BeyondFile);
        space.unlock(pages(AT, 8)).unwrap();
        assert_eq!(space.locked_pages(), Ok(0));
        settled(mm);
    });
}

/// CPU 0 locks a range while CPU 1 reclaims, at every place; whether all of it is there afterwards.
fn locked_while_reclaimed(broken: Option<Rule>) -> usize {
    let setup = Setup { cpus: 2, frames: 256, ..Setup::default() };
    let cases = at_every_touch(&setup, &swapping("linux"), broken, |mm, place| {
        let id = written(mm, 512, 4);
        mm.platform().on(1, || mm.space(id).switch_to().unwrap());
        let done = std::cell::Cell::new(false);
        let locks = || done.set(mm.space(id).lock(pages(AT, 4)).is_ok());
        race(mm, place, locks, || squeeze(mm));
        let there = resident(mm, id, AT, 4);
        mm.platform().on(0, || mm.unload());
        mm.platform().on(1, || mm.unload());
        mm.space(id).destroy().unwrap();
        !done.get() || there == 4
    });
    assert!(broken.is_some() || cases.results.len() > 50);
    cases.count(|sound| !sound)
}

#[test]
fn what_is_locked_while_it_is_reclaimed_is_there_in_the_end() {
    assert_eq!(locked_while_reclaimed(None), 0);
    assert!(locked_while_reclaimed(Some(Rule::LockedStays)) > 0);
}

/// CPU 0 locks a range while CPU 1 takes the right to write to a part of it: what may be read can be locked.
#[test]
fn what_loses_its_right_to_be_written_while_it_is_locked_is_locked() {
    let setup = Setup { cpus: 2, ..Setup::default() };
    let cases = at_every_touch(&setup, &bare("linux"), None, |mm, place| {
        let id = mm.create_space().unwrap();
        let space = mm.space(id);
        space.map(pages(AT, 4), Backing::Anonymous, Prot::ReadWrite).unwrap();
        let locks = || assert_eq!(space.lock(pages(AT, 4)), Ok(()), "{place:?}");
        race(mm, place, locks, || space.protect(pages(AT + 1, 2), Prot::Read).unwrap());
        assert_eq!((space.locked_pages(), resident(mm, id, AT, 4)), (Ok(4), 4));
    });
    assert!(cases.results.len() > 50);
}

/// Of a range that is locked pages go as fast as they come, and then cannot be read any more: nothing is locked.
#[test]
fn what_goes_again_before_all_is_there_and_cannot_be_read_is_not_locked() {
    let setup = Setup { cpus: 2, frames: 512, ..Setup::default() };
    let cases = at_every_touch(&setup, &swapping("linux"), None, |mm, place| {
        let host = mm.platform();
        let id = written(mm, 512, 2);
        mm.drain_lru_batch();
        let locked = std::cell::Cell::new(Ok(()));
        let take = || {
            mm.space(id).advise(pages(AT, 2), Advice::PageOut).unwrap();
            host.fail_reads.set(true);
        };
        race(mm, place, || locked.set(mm.space(id).lock(pages(AT, 2))), take);
        host.fail_reads.set(false);
        let pages = if locked.get().is_ok() { 2 } else { 0 };
        assert_eq!(mm.space(id).locked_pages(), Ok(pages), "{:?}", locked.get());
        locked.get().is_err()
    });
    let failed = cases.count(|&failed| failed);
    assert!(failed > 0 && failed < cases.results.len(), "{failed} failed");
}

#[test]
fn a_lock_brings_its_range_and_nothing_beside_it_and_leaves_one_mapping() {
    let host = Host::new(Setup::default());
    host.run(Config { max_map_count: 3, ..bare("linux") }, |mm| {
        let id = mm.create_space().unwrap();
        let space = mm.space(id);
        space.switch_to().unwrap();
        space.map(pages(AT, 16), Backing::Anonymous, Prot::ReadWrite).unwrap();
        let is_one_mapping = || {
            let places = [0, 4, 8].map(|n| pages(AT + 100 + n, 1));
            let more = places.map(|place| space.map(place, Backing::Anonymous, Prot::Read).is_ok());
            places.into_iter().zip(more).filter(|(_, is)| *is).for_each(|(at, _)| space.unmap(at).unwrap());
            assert_eq!(more, [true, true, false]);
        };
        space.lock(pages(AT + 4, 5)).unwrap();
        let mut there = [9; 16];
        assert_eq!(space.residency(pages(AT, 16), &mut there), Ok(5));
        assert_eq!((there[3], there[4], there[8], there[9]), (0, 1, 1, 0));
        // Three parts by now, and one again when nothing is locked, or all.
        space.unlock(pages(AT + 4, 5)).unwrap();
        is_one_mapping();
        space.lock(pages(AT, 8)).unwrap();
        space.lock(pages(AT + 8, 8)).unwrap();
        is_one_mapping();
        assert_eq!(space.locked_pages(), Ok(16));
        settled(mm);
    });
}

/// A range is locked while its space forks, at every place. What the child shares by then is copied, so that no fault of the program's has to wait
/// for memory later; where the fork comes after the lock that is another matter.
#[test]
fn what_a_fork_shares_meanwhile_is_the_spaces_own_when_it_is_locked() {
    let setup = Setup { cpus: 2, frames: 512, ..Setup::default() };
    let cases = at_every_touch(&setup, &bare("linux"), None, |mm, place| {
        let id = mapped(mm, Backing::Anonymous, 3);
        (0..3).for_each(|n| mm.platform().write(mm, id, MAPPED + n, n).unwrap());
        let forks = || {
            let child = mm.space(id).fork().unwrap();
            (child, mm.space(id).locked_pages() == Ok(0))
        };
        let (child, first) = race(mm, place, || mm.space(id).lock(pages(MAPPED, 3)).unwrap(), forks);
        let own = |n| mm.space(id).lookup(PageNumber(MAPPED + n)).unwrap().permits(UserAccess::Write);
        assert!(!first || (0..3).all(own), "{place:?}");
        assert_eq!((mm.space(id).locked_pages(), mm.space(child).locked_pages()), (Ok(3), Ok(0)));
        assert_eq!(settled(mm).broken, None);
        first
    });
    assert!(cases.count(|&first| first) > 10);
}

/// Where the second of two nodes begins.
const SECOND: u32 = 0xfc00 + 256;

fn two_nodes(cpus: u32) -> Setup {
    let node = |node, start| Region { start: FrameNumber(start), frames: 256, node: NodeId(node) };
    let regions = Some(vec![node(0, SECOND - 256), node(1, SECOND)]);
    Setup { cpus, nodes: 2, frames: 512, regions, ..Setup::default() }
}

/// Pages that a child has too move to another node while their space, in which they are locked, changes something elsewhere, at every place: they are there afterwards,
/// and reclaim leaves them.
#[test]
fn what_is_locked_and_moves_while_its_space_is_changed_stays() {
    let anywhere = NodeSet::of(&[NodeId(0), NodeId(1)]).unwrap();
    let setup = two_nodes(2);
    let cases = at_every_touch(&setup, &swapping("linux"), None, |mm, place| {
        let id = written(mm, 512, 4);
        mm.space(id).lock(pages(AT, 2)).unwrap();
        let child = mm.space(id).fork().unwrap();
        mm.drain_lru_batches();
        let frame = |id| mm.space(id).lookup(PageNumber(AT)).unwrap().frame();
        let before = frame(id);
        let here = u16::from(before.0 >= SECOND);
        let changes = || mm.space(id).protect(pages(AT + 2, 1), Prot::Read).unwrap();
        race(mm, every_third(place), changes, || {
            mm.space(child).migrate_all(pages(AT, 2), anywhere, NodeId(1 - here)).unwrap()
        });
        let is_there = |page| mm.space(id).lookup(PageNumber(page)).unwrap().is_present();
        assert!((AT..AT + 2).all(is_there), "{place:?}");
        mm.space(child).advise(pages(AT, 4), Advice::PageOut).unwrap();
        squeeze(mm);
        assert!((AT..AT + 2).all(is_there), "{place:?}");
        assert!((AT..AT + 4).all(|page| mm.platform().read(mm, id, page) == Ok(page)));
        let moved = frame(id) != before;
        sound(mm);
        end(mm, &[id, child], &[machine::swapping::DEVICE]);
        moved
    });
    assert!(cases.count(|&moved| moved) > 20);
}

/// The same while its space looks there for pages that are to move, and finds none. Each of the two waits for the table's lock in turn: so one looks for the entry that
/// names the page's slot right after the other has come by it.
#[test]
fn what_is_locked_and_moves_while_its_space_moves_pages_there_stays() {
    let anywhere = NodeSet::of(&[NodeId(0), NodeId(1)]).unwrap();
    let cases = at_every_touch(&two_nodes(2), &swapping("linux"), None, |mm, place| {
        let id = written(mm, 512, 1);
        mm.space(id).lock(pages(AT, 1)).unwrap();
        let child = mm.space(id).fork().unwrap();
        mm.drain_lru_batches();
        let frame = |id| mm.space(id).lookup(PageNumber(AT)).unwrap().frame();
        let before = frame(id);
        let here = u16::from(before.0 >= SECOND);
        let looks = || assert_eq!(mm.space(id).migrate(pages(AT, 1), NodeId(here)), Ok(0));
        race(mm, place, looks, || {
            mm.space(child).migrate_all(pages(AT, 1), anywhere, NodeId(1 - here)).unwrap();
        });
        assert!(mm.space(id).lookup(PageNumber(AT)).unwrap().is_present(), "{place:?}");
        let moved = frame(id) != before;
        sound(mm);
        end(mm, &[id, child], &[machine::swapping::DEVICE]);
        moved
    });
    assert!(cases.count(|&moved| moved) > 20);
}

/// A space and two of its children, and a page that the first two have locked.
fn two_locked(mm: &Mm<'_>) -> [SpaceId; 3] {
    let id = written(mm, 512, 4);
    mm.space(id).lock(pages(AT, 1)).unwrap();
    let [child, third] = [0; 2].map(|_| mm.space(id).fork().unwrap());
    mm.space(child).lock_on_fault(pages(AT, 1)).unwrap();
    mm.drain_lru_batches();
    [id, child, third]
}

/// The same where it is locked in two spaces, and both are changed at that moment.
#[test]
fn what_is_locked_in_two_spaces_that_are_changed_while_it_moves_stays_in_both() {
    /// A touch of a change at which it has the VMAs alone.
    const ALONE: u32 = 20;
    let anywhere = NodeSet::of(&[NodeId(0), NodeId(1)]).unwrap();
    let setup = two_nodes(3);
    let cases = at_every_touch(&setup, &swapping("linux"), None, |mm, place| {
        let host = mm.platform();
        let [id, child, third] = two_locked(mm);
        let frame = |id| mm.space(id).lookup(PageNumber(AT)).unwrap().frame();
        let before = frame(id);
        let to = NodeId(u16::from(before.0 < SECOND));
        let changes = |id| move || mm.space(id).protect(pages(AT + 2, 1), Prot::Read).unwrap();
        host.place();
        host.aside(2, changes(child), |other| {
            host.at_touch(2, ALONE, |mm| mm.platform().stop());
            assert!(host.resume_one(other), "it has its VMAs alone");
            race(mm, every_third(place), changes(id), || {
                mm.space(third).migrate_all(pages(AT, 1), anywhere, to).unwrap();
            });
        });
        let is_there = |id| mm.space(id).lookup(PageNumber(AT)).unwrap().is_present();
        assert!(is_there(id) && is_there(child), "{place:?}: {} {}", is_there(id), is_there(child));
        let moved = frame(id) != before;
        sound(mm);
        end(mm, &[id, child, third], &[machine::swapping::DEVICE]);
        moved
    });
    assert!(cases.count(|&moved| moved) > 20);
}

/// The same where the first of the two ends at that moment: nothing comes back there, and the other has its page.
#[test]
fn what_is_locked_in_a_space_that_ends_and_in_one_that_is_changed_while_it_moves_stays() {
    /// A touch of an end at which the space has ended, and all is mapped there still.
    const ENDED: u32 = 60;
    let anywhere = NodeSet::of(&[NodeId(0), NodeId(1)]).unwrap();
    let setup = two_nodes(3);
    let cases = at_every_touch(&setup, &swapping("linux"), None, |mm, place| {
        let host = mm.platform();
        let [id, child, third] = two_locked(mm);
        mm.unload();
        let frame = |id| mm.space(id).lookup(PageNumber(AT)).unwrap().frame();
        let before = frame(child);
        let to = NodeId(u16::from(before.0 < SECOND));
        let changes = || mm.space(child).protect(pages(AT + 2, 1), Prot::Read).unwrap();
        host.place();
        host.aside(
            2,
            || mm.space(id).destroy().unwrap(),
            |other| {
                host.at_touch(2, ENDED, |mm| mm.platform().stop());
                assert!(host.resume_one(other), "it is not through");
                assert_eq!(mm.space(id).flush(), Err(Error::NoSuchSpace), "it has ended");
                race(mm, every_third(place), changes, || {
                    mm.space(third).migrate_all(pages(AT, 1), anywhere, to).unwrap();
                });
            },
        );
        assert!(mm.space(child).lookup(PageNumber(AT)).unwrap().is_present(), "{place:?}");
        let moved = frame(child) != before;
        sound(mm);
        end(mm, &[child, third], &[machine::swapping::DEVICE]);
        moved
    });
    assert!(cases.count(|&moved| moved) > 20);
}

/// CPU 0 takes pages out of memory, or moves them; CPU 1 locks what is there of them, at every place: what is there then is there in the end. Returns how often both
/// were, and of how many cases.
fn locked_as_it_is(
    policy: &str,
    shown: fn(&Mm<'_>) -> (SpaceId, u64),
    goes: fn(&Mm<'_>, SpaceId),
) -> (usize, usize) {
    let setup = two_nodes(2);
    let cases = at_every_touch(&setup, &swapping(policy), None, |mm, place| {
        let host = mm.platform();
        let (id, at) = shown(mm);
        mm.drain_lru_batches();
        host.on(1, || mm.space(id).switch_to().unwrap());
        let there = race(
            mm,
            place,
            || goes(mm, id),
            || {
                mm.space(id).lock_on_fault(pages(at, 2)).unwrap();
                [at, at + 1].map(|page| host.raw_entry(page) & 1 != 0)
            },
        );
        let is_there = |page| mm.space(id).lookup(PageNumber(page)).unwrap().is_present();
        let stays = [at, at + 1].map(is_there);
        assert!(
            there.iter().zip(stays).all(|(&there, stays)| stays || !there),
            "{policy}, {place:?}: {there:?}"
        );
        sound(mm);
        stays == [true; 2]
    });
    (cases.count(|&stays| stays), cases.results.len())
}

/// From when it is locked on what is there stays, whoever has begun to take it by then.
#[test]
fn what_is_there_when_it_is_locked_as_it_is_stays_though_it_was_on_its_way_out() {
    for policy in ["linux", "vanilla", "quiet"] {
        let own = |mm: &Mm<'_>| (written(mm, 512, 2), AT);
        let (stayed, all) = locked_as_it_is(policy, own, |mm, id| {
            mm.space(id).advise(pages(AT, 2), Advice::PageOut).unwrap()
        });
        assert!(stayed > 10 && stayed < all, "{policy}: {stayed} of {all}");
        let of_file = |mm: &Mm<'_>| {
            let id = mapped(mm, shared(mm.create_file(2).unwrap()), 2);
            (0..2).for_each(|n| _ = mm.platform().read(mm, id, MAPPED + n).unwrap());
            (id, MAPPED)
        };
        let (stayed, all) = locked_as_it_is(policy, of_file, |mm, id| {
            mm.space(id).advise(pages(MAPPED, 2), Advice::PageOut).unwrap()
        });
        assert!(stayed > 10 && stayed < all, "{policy}, of a file: {stayed} of {all}");
    }
}

/// Pages that only move are there.
#[test]
fn what_moves_when_it_is_locked_as_it_is_is_there() {
    let own = |mm: &Mm<'_>| {
        let id = written(mm, 512, 2);
        mm.space(id).fork().unwrap();
        (id, AT)
    };
    let (stayed, all) = locked_as_it_is("linux", own, |mm, id| {
        let anywhere = NodeSet::of(&[NodeId(0), NodeId(1)]).unwrap();
        let frame = mm.space(id).lookup(PageNumber(AT)).unwrap().frame();
        let to = NodeId(u16::from(frame.0 < SECOND));
        mm.space(id).migrate_all(pages(AT, 2), anywhere, to).unwrap();
    });
    assert_eq!(stayed, all);
}

/// A large page is as many pages as it shows.
#[test]
fn large_pages_are_locked_as_they_are() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(LARGE, 1024), Backing::Anonymous, Prot::ReadWrite).unwrap();
        mm.space(id).advise(pages(LARGE, 1024), Advice::Large).unwrap();
        mm.space(id).switch_to().unwrap();
        host.write(mm, id, LARGE, 1).unwrap();
        host.write(mm, id, LARGE + 512, 2).unwrap();
        mm.space(id).lock(pages(LARGE, 1024)).unwrap();
        assert_eq!((mm.space(id).locked_pages(), mm.counter(Counter::LargeSplit)), (Ok(1024), 0));
        // From the middle of one on it is in two parts.
        mm.space(id).unlock(pages(LARGE + 100, 924)).unwrap();
        mm.space(id).lock(pages(LARGE + 300, 724)).unwrap();
        assert_eq!(mm.space(id).locked_pages(), Ok(824));
        assert_eq!((host.read(mm, id, LARGE), host.read(mm, id, LARGE + 512)), (Ok(1), Ok(2)));
    });
}
