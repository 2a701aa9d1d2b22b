//! What reclaim takes on a node moves to a slower one that has room, in place of going to swap or being dropped.

use crate::machine;

use machine::race::{Place, at, at_every_touch, at_places, race};
use machine::showing::{ANON, AT, frame, mapped, read_in, shared, two_nodes, write_all};
use machine::swapping::{DEVICE, sound, swapping, take_free};
use machine::{Happened, Mm, Setup, counted, give_back, pages, settled};
use quietmm::addr::PAGE_SIZE;
use quietmm::{
    Advice, Config, Counter, Error, FrameNumber, Frames, NodeId, NodePolicy, NodeSet, PageNumber, Prot, Rule,
    SpaceId,
};

const NEAR: NodeId = NodeId(0);
const FAR: NodeId = NodeId(1);

fn node_of(n: FrameNumber) -> NodeId {
    NodeId(u16::from(n.0 >= 0xfc00 + 2048))
}

/// A space whose pages come on the near node alone.
fn bound(mm: &Mm<'_>, count: u64) -> SpaceId {
    let id = mapped(mm, ANON, count);
    let near = NodeSet::of(&[NEAR]).unwrap();
    mm.space(id).set_node_policy(pages(AT, count), NodePolicy::Bind(near)).unwrap();
    id
}

/// More pages than the node has are written, once each: what came of that, how many went to swap, and how many moved.
fn overfilled(policy: &str, demotes: bool, swap: bool) -> (Result<(), Error>, u64, u64) {
    at(&two_nodes(), &swapping(policy), None, |mm| {
        let host = mm.platform();
        if swap {
            mm.swap().on(DEVICE, 4096, 0).unwrap();
        }
        if demotes {
            mm.frames().set_demotion(NEAR, Some(FAR)).unwrap();
        }
        let id = bound(mm, 3000);
        host.on(1, || mm.space(id).switch_to().unwrap());
        host.forget();
        let done = (AT..AT + 3000).try_for_each(|page| host.write(mm, id, page, page));
        let (out, moved) = (counted(mm, Counter::PswpOut), counted(mm, Counter::PgDemoted));
        if done.is_ok() {
            let read = counted(mm, Counter::PswpIn);
            let far = |page| {
                let entry = mm.space(id).lookup(PageNumber(page)).unwrap();
                entry.is_mapped() && node_of(entry.frame()) == FAR
            };
            let on_far = (AT..AT + 3000).filter(|&page| far(page)).count() as u64;
            assert_eq!(on_far, moved, "they are mapped where they are");
            assert_eq!((AT..AT + 3000).find(|&page| host.read(mm, id, page) != Ok(page)), None);
            assert_eq!(counted(mm, Counter::PswpIn) - read > 0, out > 0);
        }
        assert_eq!(counted(mm, Counter::PgMigrated), moved);
        if demotes {
            assert_eq!(mm.swap().usage().used, 0);
        }
        assert_eq!(settled(mm).broken, None, "{policy}");
        assert_eq!(host.stale.get(), 0);
        (done, out, moved)
    })
}

#[test]
fn what_was_to_go_to_swap_goes_to_the_slower_node() {
    for policy in ["vanilla", "linux", "quiet"] {
        let (done, out, moved) = overfilled(policy, false, true);
        assert!(done.is_ok() && out > 900 && moved == 0, "{policy}: {done:?}, {out} out");
        for swap in [true, false] {
            let (done, out, moved) = overfilled(policy, true, swap);
            assert!(done.is_ok() && out == 0 && moved > 900, "{policy}: {done:?}, {out} out, {moved} moved");
        }
    }
    // Without either there is no room.
    assert_eq!(overfilled("linux", false, false).0, Err(Error::OutOfMemory));
}

/// A device that is off, or gone, has nothing to do with what moves: nor has what it kept for pages that are in memory.
#[test]
fn pages_move_after_a_swap_device_has_gone() {
    for gone in [false, true] {
        at(&two_nodes(), &swapping("linux"), None, |mm| {
            let host = mm.platform();
            mm.swap().on(DEVICE, 4096, 0).unwrap();
            let id = bound(mm, 41);
            write_all(mm, id, 41);
            mm.drain_lru_batch();
            mm.space(id).advise(pages(AT, 41), quietmm::Advice::PageOut).unwrap();
            (AT..AT + 40).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(page)));
            // The last one is on the device.
            host.fail_reads.set(gone);
            let off = if gone { Err(Error::SwapDevice(PageNumber(AT + 40))) } else { Ok(()) };
            assert_eq!(mm.swap().off(DEVICE), off);
            host.fail_reads.set(false);
            mm.frames().set_demotion(NEAR, Some(FAR)).unwrap();
            let wants = bound(mm, 3000);
            assert_eq!((AT..AT + 3000).find(|&page| host.write(mm, wants, page, page).is_err()), None);
            assert!(counted(mm, Counter::PgDemoted) > 900);
            assert!((AT..AT + 40).all(|page| node_of(frame(mm, id, page)) == FAR));
            mm.space(id).switch_to().unwrap();
            assert!((AT..AT + 41).all(|page| host.read(mm, id, page) == Ok(page)));
            assert_eq!(mm.swap().off(DEVICE), if gone { Ok(()) } else { Err(Error::NoSuchSwapDevice) });
            sound(mm);
        });
    }
}

/// All frames of a node that are free but for some.
fn fill(mm: &Mm<'_>, node: NodeId, but: usize) -> Vec<Frames> {
    let (mut own, others): (Vec<_>, Vec<_>) =
        take_free(mm).into_iter().partition(|frame| node_of(frame.first()) == node);
    let left = own.split_off(own.len().saturating_sub(but));
    give_back(mm, others);
    give_back(mm, left);
    own
}

#[test]
fn pages_of_files_move_and_are_as_dirty_as_they_were() {
    for memory in [false, true] {
        at(&two_nodes(), &swapping("linux"), None, |mm| {
            let host = mm.platform();
            mm.frames().set_demotion(NEAR, Some(FAR)).unwrap();
            assert_eq!((mm.frames().demotion(NEAR), mm.frames().demotion(FAR)), (Some(FAR), None));
            let file = if memory { mm.create_memory_file(16) } else { mm.create_file(16) }.unwrap();
            let a = mapped(mm, shared(file), 16);
            write_all(mm, a, 8);
            (AT + 8..AT + 16).for_each(|page| assert_eq!(host.read(mm, a, page), Ok(0)));
            mm.drain_lru_batch();
            let all = take_free(mm);
            let (far, near) = all.into_iter().partition(|frame| node_of(frame.first()) == FAR);
            give_back(mm, far);
            // Nothing is read or written.
            host.fail_reads.set(true);
            host.fail_writes.set(true);
            for _ in 0..64 {
                mm.space(a).advise(pages(AT, 16), quietmm::Advice::Cold).unwrap();
                let wants = bound(mm, 1);
                host.write(mm, wants, AT, 1).unwrap();
                mm.space(a).switch_to().unwrap();
            }
            assert!(counted(mm, Counter::PgDemoted) >= 16, "{}", counted(mm, Counter::PgDemoted));
            give_back(mm, near);
            for page in AT..AT + 16 {
                assert_eq!(host.read(mm, a, page), Ok(if page < AT + 8 { page } else { 0 }));
            }
            host.fail_reads.set(false);
            host.fail_writes.set(false);
            assert!((AT..AT + 16).filter(|&page| node_of(frame(mm, a, page)) == FAR).count() > 8);
            assert_eq!(mm.file(file).write_back(), Ok(if memory { 0 } else { 8 }));
            sound(mm);
        });
    }
}

#[test]
fn where_the_slower_node_is_full_pages_go_to_swap() {
    at(&two_nodes(), &swapping("linux"), None, |mm| {
        let host = mm.platform();
        mm.swap().on(DEVICE, 4096, 0).unwrap();
        mm.frames().set_demotion(NEAR, Some(FAR)).unwrap();
        let held = fill(mm, FAR, 64);
        let id = bound(mm, 3000);
        (AT..AT + 3000).for_each(|page| host.write(mm, id, page, page).unwrap());
        let (out, moved) = (counted(mm, Counter::PswpOut), counted(mm, Counter::PgDemoted));
        assert!(out > 800 && moved > 0, "{out} out, {moved} moved");
        assert_eq!((AT..AT + 3000).find(|&page| host.read(mm, id, page) != Ok(page)), None);
        give_back(mm, held);
        sound(mm);
    });
}

#[test]
fn nodes_stand_in_a_row_and_never_in_a_circle() {
    at(&two_nodes(), &swapping("linux"), None, |mm| {
        let circle = |result| assert!(matches!(result, Err(Error::BadSetting(_))), "{result:?}");
        circle(mm.frames().set_demotion(NEAR, Some(NEAR)));
        mm.frames().set_demotion(NEAR, Some(FAR)).unwrap();
        circle(mm.frames().set_demotion(FAR, Some(NEAR)));
        assert_eq!(mm.frames().set_demotion(NodeId(2), None), Err(Error::NoSuchNode));
        assert_eq!(mm.frames().set_demotion(NEAR, Some(NodeId(2))), Err(Error::NoSuchNode));
        mm.frames().set_demotion(NEAR, None).unwrap();
        mm.frames().set_demotion(FAR, Some(NEAR)).unwrap();
        assert_eq!(
            (mm.frames().demotion(NEAR), mm.frames().demotion(FAR), mm.frames().demotion(NodeId(99))),
            (None, Some(NEAR), None)
        );
    });
}

/// Whoever is at the limit of a group has its pages leave memory: elsewhere they would count as well.
#[test]
fn a_group_at_its_limit_gains_nothing_by_pages_that_move() {
    let config = Config { groups: 1, ..swapping("linux") };
    at(&two_nodes(), &config, None, |mm| {
        let host = mm.platform();
        mm.swap().on(DEVICE, 512, 0).unwrap();
        mm.frames().set_demotion(NEAR, Some(FAR)).unwrap();
        let group = mm.create_group(64).unwrap();
        let id = mm.create_space().unwrap();
        mm.space(id).set_group(Some(group)).unwrap();
        mm.space(id).map(pages(AT, 128), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).switch_to().unwrap();
        (AT..AT + 128).for_each(|page| host.write(mm, id, page, page).unwrap());
        assert!(mm.group(group).usage().unwrap().charged <= 64);
        assert!(counted(mm, Counter::PswpOut) >= 64);
        assert_eq!(counted(mm, Counter::PgDemoted), 0);
        sound(mm);
    });
    // Where it is the node that is full its pages move, and it is charged with as many.
    at(&two_nodes(), &config, None, |mm| {
        let host = mm.platform();
        mm.frames().set_demotion(NEAR, Some(FAR)).unwrap();
        let group = mm.create_group(200).unwrap();
        let id = mm.create_space().unwrap();
        mm.space(id).set_group(Some(group)).unwrap();
        mm.space(id).map(pages(AT, 32), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).switch_to().unwrap();
        (AT..AT + 32).for_each(|page| host.write(mm, id, page, page).unwrap());
        let charged = mm.group(group).usage().unwrap().charged;
        let held = fill(mm, NEAR, 0);
        let other = bound(mm, 8);
        (AT..AT + 8).for_each(|page| host.write(mm, other, page, page).unwrap());
        assert!(counted(mm, Counter::PgDemoted) >= 8);
        assert_eq!(mm.group(group).usage().unwrap().charged, charged);
        mm.space(id).switch_to().unwrap();
        (AT..AT + 32).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(page)));
        give_back(mm, held);
        sound(mm);
    });
}

/// Every so many touches, and all in `make soak`.
fn some_of(place: Place, step: u32) -> Place {
    match place {
        Place::Touch(n) if !machine::soaks() => Place::Touch(step * n),
        place => place,
    }
}

/// CPU 0 reclaims; CPU 1 writes to a page that moves meanwhile.
fn lost(broken: Option<Rule>, swap: bool, forked: bool) -> usize {
    let cases = at_every_touch(&two_nodes(), &swapping("linux"), broken, |mm, place| {
        let host = mm.platform();
        if swap {
            mm.swap().on(DEVICE, 512, 0).unwrap();
        }
        mm.frames().set_demotion(NEAR, Some(FAR)).unwrap();
        let id = mapped(mm, ANON, 4);
        write_all(mm, id, 4);
        let child = forked.then(|| mm.space(id).fork().unwrap());
        host.on(1, || mm.space(id).switch_to().unwrap());
        host.on(1, || host.write(mm, id, AT, 1)).unwrap();
        mm.drain_lru_batch();
        let wants = bound(mm, 1);
        assert_eq!(host.read(mm, wants, AT), Ok(0));
        mm.space(wants).advise(pages(AT, 1), quietmm::Advice::Drop).unwrap();
        mm.space(id).switch_to().unwrap();
        let held = take_free(mm);
        let (far, near) = held.into_iter().partition(|frame| node_of(frame.first()) == FAR);
        give_back(mm, far);
        [0, 1].iter().for_each(|&cpu| host.on(cpu, || (AT..AT + 4).for_each(|page| host.make_idle(page))));
        host.uses_windows.set(true);
        race(
            mm,
            some_of(place, if broken.is_some() { 3 } else { 13 }),
            || {
                // A frame of the near node is to be had by reclaim alone.
                mm.space(wants).switch_to().unwrap();
                host.write(mm, wants, AT, 5).unwrap();
            },
            || host.write(mm, id, AT, 77).unwrap(),
        );
        assert!(broken.is_some() || counted(mm, Counter::PgDemoted) > 0);
        mm.space(id).switch_to().unwrap();
        let mut good = host.read(mm, id, AT) == Ok(77) && host.on(1, || host.read(mm, id, AT)) == Ok(77);
        good &= (AT + 1..AT + 4).all(|page| host.read(mm, id, page) == Ok(page));
        good &= child.is_none_or(|child| (AT..AT + 4).all(|page| read_in(mm, child, page) == Ok(page)));
        give_back(mm, near);
        if broken.is_none() {
            sound(mm);
        }
        good
    });
    cases.count(|&good| !good)
}

parts!(
    what_is_written_while_a_page_moves_is_there,
    |part, parts| {
        let swap = part % 2 == 0;
        at_places((part / 2, parts / 2), || assert_eq!(lost(None, swap, swap), 0));
    },
    [
        p0 p1 p2 p3 p4 p5 p6 p7
    ]
);

#[test]
fn what_is_written_while_a_page_moves_is_not_lost() {
    // The control of what is above.
    assert!(lost(Some(Rule::FlushBeforeFree), true, false) > 0);
}

/// CPU 0 reclaims, and two spaces show the pages; one of them locks its range meanwhile, so that they stay. Where an entry of the other one
/// was gone by then, it leads to the page again: how many spaces have no such entry.
fn unmapped_by_what_stays(by_child: bool) -> usize {
    let cases = at_every_touch(&two_nodes(), &swapping("linux"), None, |mm, place| {
        let host = mm.platform();
        mm.frames().set_demotion(NEAR, Some(FAR)).unwrap();
        let id = mapped(mm, ANON, 2);
        write_all(mm, id, 2);
        let child = mm.space(id).fork().unwrap();
        (AT..AT + 2).for_each(|page| assert_eq!(read_in(mm, child, page), Ok(page)));
        mm.drain_lru_batch();
        let wants = bound(mm, 1);
        assert_eq!(host.read(mm, wants, AT), Ok(0));
        mm.space(wants).advise(pages(AT, 1), quietmm::Advice::Drop).unwrap();
        let (far, near) = take_free(mm).into_iter().partition(|frame| node_of(frame.first()) == FAR);
        give_back(mm, far);
        for space in [id, child] {
            // Who locks what may be written takes a page of its own.
            mm.space(space).protect(pages(AT, 2), Prot::Read).unwrap();
            mm.space(space).switch_to().unwrap();
            (AT..AT + 2).for_each(|page| host.make_idle(page));
        }
        let locks = if by_child { child } else { id };
        race(
            mm,
            some_of(place, 13),
            || {
                mm.space(wants).switch_to().unwrap();
                // It may find nothing while all that could move is in use.
                let _short = host.write(mm, wants, AT, 5);
            },
            || mm.space(locks).lock(pages(AT, 2)).unwrap(),
        );
        let shown =
            |space| (AT..AT + 2).all(|page| mm.space(space).lookup(PageNumber(page)).unwrap().is_present());
        let without = [id, child].into_iter().filter(|&space| !shown(space)).count();
        give_back(mm, near);
        sound(mm);
        without
    });
    assert!(cases.results.len() > 50);
    cases.results.iter().sum()
}

#[test]
fn what_stays_after_all_is_shown_where_it_was_shown() {
    assert_eq!([true, false].map(unmapped_by_what_stays), [0, 0]);
}

/// The last room on the slower node goes to the first of a batch. What its device does not take stays where it is then, and nobody asks the device again.
#[test]
fn what_no_device_takes_and_no_node_has_room_for_stays() {
    [false, true].into_iter().for_each(without_room);
}

fn without_room(memory: bool) {
    at(&two_nodes(), &swapping("linux"), None, |mm| {
        let host = mm.platform();
        mm.frames().set_demotion(NEAR, Some(FAR)).unwrap();
        let file = if memory { mm.create_memory_file(40) } else { mm.create_file(40) }.unwrap();
        let id = mapped(mm, shared(file), 40);
        write_all(mm, id, 40);
        mm.drain_lru_batch();
        host.fail_writes.set(true);
        mm.space(id).advise(pages(AT, 40), quietmm::Advice::PageOut).unwrap();
        let wants = bound(mm, 1);
        assert_eq!(host.read(mm, wants, AT), Ok(0));
        mm.space(wants).advise(pages(AT, 1), quietmm::Advice::Drop).unwrap();
        let (mut far, near): (Vec<_>, Vec<_>) =
            take_free(mm).into_iter().partition(|frame| node_of(frame.first()) == FAR);
        give_back(mm, far.split_off(far.len() - 3));
        host.forget();
        mm.space(id).advise(pages(AT, 40), quietmm::Advice::Cold).unwrap();
        mm.space(wants).switch_to().unwrap();
        let _short = host.write(mm, wants, AT, 1);
        let moved = counted(mm, Counter::PgDemoted);
        assert!((1..4).contains(&moved), "{moved}");
        // It is tried now and then, by a page alone.
        let tried = host.count(|what| matches!(what, Happened::DiskWrite(..)));
        assert!(tried <= if memory { 0 } else { 16 }, "{tried} tries");
        host.fail_writes.set(false);
        give_back(mm, near);
        give_back(mm, far);
        mm.space(id).switch_to().unwrap();
        (AT..AT + 40).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(page)));
        assert_eq!(mm.file(file).write_back(), Ok(if memory { 0 } else { 40 }));
        sound(mm);
    });
}

/// Two say at the same time where pages go: what both need for it is there once.
#[test]
fn two_that_say_where_pages_go_make_what_they_need_once() {
    let setup = Setup { cpus: 5, ..two_nodes() };
    let cases = at_every_touch(&setup, &swapping("linux"), None, |mm, place| {
        let say = || mm.frames().set_demotion(NEAR, Some(FAR)).unwrap();
        race(mm, place, say, say);
        assert_eq!(mm.frames().demotion(NEAR), Some(FAR));
        sound(mm);
    });
    assert!(cases.results.len() > 50, "{}", cases.results.len());
}

/// Pages that only move make no other older: what had gone before they did, and comes back, went a moment ago.
#[test]
fn pages_that_move_make_nothing_older_that_has_gone() {
    at(&two_nodes(), &Config { shadows: true, ..swapping("linux") }, None, |mm| {
        let host = mm.platform();
        mm.frames().set_demotion(NEAR, Some(FAR)).unwrap();
        let [hot, other, goes] = [16, 256, 8].map(|count| mm.create_file(count).unwrap());
        let id = mapped(mm, shared(hot), 16);
        let mut word = [0; 8];
        for page in 0..16 {
            assert_eq!(host.read(mm, id, AT + page), Ok(0));
            mm.file(hot).read(page * PAGE_SIZE, &mut word).unwrap();
        }
        mm.drain_lru_batch();
        assert_eq!(mm.file(other).read_ahead(0, 256), Ok(256));
        let last = mapped(mm, shared(goes), 8);
        (AT..AT + 8).for_each(|page| assert_eq!(host.read(mm, last, page), Ok(0)));
        mm.drain_lru_batch();
        let near = fill(mm, NEAR, 0);
        let wants = |count| write_all(mm, bound(mm, count), count);
        wants(1);
        assert_eq!(counted(mm, Counter::PgActivate), 16);
        mm.space(last).advise(pages(AT, 8), Advice::PageOut).unwrap();
        assert_eq!(mm.file(goes).cached_pages(), Ok(0));
        let before = counted(mm, Counter::PgDemoted);
        wants(64);
        let moved = counted(mm, Counter::PgDemoted) - before;
        assert!(moved > 50, "{moved}");
        give_back(mm, near);
        (0..8).for_each(|page| _ = mm.file(goes).read(page * PAGE_SIZE, &mut word).unwrap());
        let came =
            [Counter::WorkingsetRefault, Counter::WorkingsetActivate].map(|counter| counted(mm, counter));
        assert_eq!(came, [8, 8]);
        sound(mm);
    });
}

/// The slower node is of two regions, and the first is full.
#[test]
fn pages_move_to_whichever_zone_of_the_slower_node_has_room() {
    const THIRD: FrameNumber = FrameNumber(0xfc00 + 3072);
    let region = |start, frames, node| quietmm::Region { start: FrameNumber(start), frames, node };
    let regions =
        vec![region(0xfc00, 2048, NEAR), region(0xfc00 + 2048, 1024, FAR), region(THIRD.0, 1024, FAR)];
    at(&Setup { regions: Some(regions), ..two_nodes() }, &swapping("linux"), None, |mm| {
        mm.frames().set_demotion(NEAR, Some(FAR)).unwrap();
        let id = bound(mm, 9);
        write_all(mm, id, 8);
        mm.drain_lru_batch();
        let (near, far): (Vec<_>, Vec<_>) =
            take_free(mm).into_iter().partition(|frame| node_of(frame.first()) == NEAR);
        let (third, second): (Vec<_>, Vec<_>) = far.into_iter().partition(|frame| frame.first() >= THIRD);
        give_back(mm, third);
        assert_eq!(mm.platform().write(mm, id, AT + 8, AT + 8), Ok(()));
        assert!(counted(mm, Counter::PgDemoted) > 0);
        assert!((AT..AT + 9).all(|page| mm.platform().read(mm, id, page) == Ok(page)));
        give_back(mm, near);
        give_back(mm, second);
    });
}

/// Of a batch only some find room on the slower node. Their group is charged with those that moved once, and with the others as before.
#[test]
fn a_group_is_charged_as_before_where_the_room_is_for_some() {
    at(&two_nodes(), &Config { groups: 1, ..swapping("linux") }, None, |mm| {
        let host = mm.platform();
        mm.swap().on(DEVICE, 512, 0).unwrap();
        mm.frames().set_demotion(NEAR, Some(FAR)).unwrap();
        let group = mm.create_group(100).unwrap();
        let id = bound(mm, 16);
        mm.space(id).set_group(Some(group)).unwrap();
        write_all(mm, id, 16);
        mm.drain_lru_batch();
        let charged = |mm: &Mm<'_>| {
            let usage = mm.group(group).usage().unwrap();
            usage.charged - usage.stocked
        };
        let (before, wants) = (charged(mm), bound(mm, 8));
        host.write(mm, wants, AT, 1).unwrap();
        let (mut far, near): (Vec<_>, Vec<_>) =
            take_free(mm).into_iter().partition(|frame| node_of(frame.first()) == FAR);
        give_back(mm, far.split_off(far.len() - 3));
        mm.space(id).advise(pages(AT, 16), Advice::Cold).unwrap();
        for page in AT + 1..AT + 8 {
            host.write(mm, wants, page, 1).unwrap();
        }
        let moved = counted(mm, Counter::PgDemoted);
        assert!(moved > 0, "some found room");
        give_back(mm, far);
        give_back(mm, near);
        assert!(charged(mm) <= before);
        sound(mm);
    });
}
