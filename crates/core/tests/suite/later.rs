//! Memory that comes later: nobody meets it before it is there, and then it is as any other.

use crate::machine;

use std::cell::Cell;

use machine::faults::{read_all, showing};
use machine::race::{Cases, Place, at_every_touch, race};
use machine::swapping::{AT, swapping, take_free, write};
use machine::{Host, Mm, NO_PCP, Setup, bare, give_back, kept_free, pages, pcp, settled};
use quietmm::addr::PhysAddr;
use quietmm::platform::WaitKey;
use quietmm::{
    AllocFrom, Audit, Backing, Config, Counter, Error, FrameNumber, Frames, Kind, NodeId, NodePolicy,
    NodeSet, Offline, PageNumber, Prot, Region, Rule,
};

const BLOCK: u32 = 1024;
/// Two blocks that are there, the core's bookkeeping in the first; three that come later.
const FIRST: FrameNumber = FrameNumber(0xfc00);
const SECOND: FrameNumber = FrameNumber(0x10000);
const LATER: FrameNumber = FrameNumber(0x10400);
const LAST: FrameNumber = FrameNumber(0x10c00);
/// Frames in which lies what is kept about a block's frames.
const BOOKS: u64 = 8;
const ANYWHERE: PhysAddr = PhysAddr(u64::MAX);

fn region(start: FrameNumber, frames: u32, node: u16) -> Region {
    Region { start, frames, node: NodeId(node) }
}

/// What comes later is of the last node.
fn setup(cpus: u32, nodes: u16) -> Setup {
    let regions = Some(vec![region(FIRST, 2 * BLOCK, 0)]);
    let later = vec![region(LATER, 3 * BLOCK, nodes - 1)];
    Setup { cpus, nodes, frames: 5 * BLOCK, regions, later, soiled: true, ..Setup::default() }
}

fn small(policy: &str) -> Config {
    Config { page_lists: pcp(8), ..bare(policy) }
}

fn add(mm: &Mm<'_>, first: FrameNumber) -> Result<Offline, Error> {
    // SAFETY: the machine has all of it, and nobody uses it.
    unsafe { mm.frames().add_block(first) }
}

fn come(mm: &Mm<'_>, first: FrameNumber) {
    mm.frames().bring_online(add(mm, first).unwrap());
}

fn is_in(block: FrameNumber, frame: FrameNumber) -> bool {
    (block.0..block.0 + BLOCK).contains(&frame.0)
}

fn gone(mm: &Mm<'_>, first: FrameNumber) -> Offline {
    let leaving = mm.frames().begin_offline(first).unwrap();
    mm.frames().finish_offline(leaving).unwrap_or_else(|remains| panic!("{remains:?}"))
}

fn is_untouched(host: &Host, block: FrameNumber) -> bool {
    use std::sync::atomic::Ordering;
    let words = (0..BLOCK).flat_map(|n| (0..512).map(move |word| (block.add(n), word)));
    words.into_iter().all(|(n, word)| host.word(n, word).load(Ordering::Relaxed) == 0x5a5a_5a5a_5a5a_5a5a)
}

#[test]
fn a_block_comes_goes_offline_and_comes_back() {
    for policy in ["linux+drain=all-cpus", "linux+drain=holding-cpus", "linux+drain=remote"] {
        let host = Host::new(setup(2, 1));
        host.run(small(policy), |mm| {
            let start = settled(mm);
            assert_eq!((start.total, start.offline), (2048, 0));
            assert_eq!(mm.frames().blocks().collect::<Vec<_>>(), [FIRST, SECOND]);
            let block = add(mm, LAST).unwrap();
            assert_eq!(block.first(), LAST);
            let here = Audit {
                total: start.total + 1024,
                offline: 1024,
                free: start.free - BOOKS,
                pools: start.pools + BOOKS,
                ..start
            };
            assert_eq!(settled(mm), here);
            assert_eq!(mm.frames().blocks().collect::<Vec<_>>(), [FIRST, SECOND, LAST]);
            assert!(is_untouched(&host, LAST), "it may still be taken away");
            mm.frames().bring_online(block);
            let online = Audit { offline: 0, free: here.free + 1024, ..here };
            assert_eq!(settled(mm), online);
            let frames = take_free(mm);
            assert_eq!(frames.iter().filter(|frame| is_in(LAST, frame.first())).count(), 1024);
            give_back(mm, frames);
            // As any other.
            let block = gone(mm, LAST);
            assert_eq!(settled(mm), here);
            assert!(!take_free_without(mm, LAST));
            mm.frames().bring_online(block);
            assert_eq!(settled(mm), online);
            assert_eq!((mm.counter(Counter::MemoryOnline), mm.counter(Counter::MemoryOffline)), (2, 1));
            // The others have not.
            assert!(is_untouched(&host, LATER) && is_untouched(&host, LATER.add(BLOCK)));
            let piece = mm.frames().alloc_contiguous(1024, ANYWHERE).unwrap();
            assert_eq!(piece.first(), LAST);
            assert_eq!(mm.frames().alloc_contiguous(2048, ANYWHERE), Err(Error::OutOfMemory));
            mm.frames().free_contiguous(piece);
        });
    }
}

/// Whether one of all frames that can be had is of the block.
fn take_free_without(mm: &Mm<'_>, block: FrameNumber) -> bool {
    let frames = take_free(mm);
    let any = frames.iter().any(|frame| is_in(block, frame.first()));
    give_back(mm, frames);
    any
}

#[test]
fn blocks_that_have_come_are_one_piece() {
    let host = Host::new(setup(1, 1));
    host.run(bare("linux"), |mm| {
        // From above: what is kept about one may lie in the one before, but not where a piece is to be.
        let held = take_free(mm);
        let (books, held): (Vec<_>, Vec<_>) = held.into_iter().partition(|frame| is_in(FIRST, frame.first()));
        give_back(mm, books);
        let blocks = [LATER, LATER.add(BLOCK), LAST].map(|first| add(mm, first).unwrap());
        blocks.into_iter().for_each(|block| mm.frames().bring_online(block));
        let piece = mm.frames().alloc_contiguous(3 * 1024, ANYWHERE).unwrap();
        assert_eq!(piece.first(), LATER);
        mm.frames().free_contiguous(piece);
        give_back(mm, held);
    });
}

#[test]
fn what_has_not_come_is_met_by_nobody() {
    let host = Host::new(setup(2, 1));
    host.run(Config { swap: true, ..small("linux") }, |mm| {
        let start = settled(mm);
        let frames = mm.frames();
        for n in [LATER, LATER.add(77), LAST.add(BLOCK - 1)] {
            assert_eq!(frames.free_at(n, 0), Err(Error::NoSuchFrame(n)));
        }
        for first in [LATER, LAST] {
            assert_eq!(frames.begin_offline(first), Err(Error::NoSuchFrame(first)));
        }
        assert_eq!(
            frames.alloc_contiguous(1024, ANYWHERE).map(|piece| frames.free_contiguous(piece)),
            Ok(())
        );
        assert_eq!(frames.alloc_contiguous(1025, ANYWHERE), Err(Error::OutOfMemory));
        let block = frames.alloc_below(10, ANYWHERE, AllocFrom::HERE).unwrap();
        assert_eq!(frames.alloc_below(10, ANYWHERE, AllocFrom::HERE), Err(Error::OutOfMemory));
        frames.free(block);
        // Nor by reclaim, where memory is short.
        machine::swapping::squeeze(mm);
        assert_eq!(settled(mm), start);
        assert!([LATER, LATER.add(BLOCK), LAST].iter().all(|&block| is_untouched(&host, block)));
    });
}

#[test]
fn what_cannot_come_is_refused_and_nothing_changes() {
    let host = Host::new(setup(2, 1));
    host.run(Config { groups: 2, ..bare("linux") }, |mm| {
        let refused = |first: FrameNumber, error: Error| {
            let start = settled(mm);
            assert_eq!(add(mm, first), Err(error));
            assert_eq!(settled(mm), start);
        };
        for n in [LATER.add(1), LATER.add(512), LAST.add(BLOCK), FrameNumber(0), FrameNumber(u32::MAX - 1023)]
        {
            refused(n, Error::BadBlock(n));
        }
        refused(FIRST, Error::AlreadyHere(FIRST));
        refused(SECOND, Error::AlreadyHere(SECOND));
        let block = add(mm, LATER).unwrap();
        refused(LATER, Error::AlreadyHere(LATER));
        mm.frames().bring_online(block);
        refused(LATER, Error::AlreadyHere(LATER));
        let block = gone(mm, LATER);
        refused(LATER, Error::AlreadyHere(LATER));
        mm.frames().bring_online(block);
        refused(LATER, Error::AlreadyHere(LATER));
        // No memory for what is kept about its frames, or for the groups' part of it alone.
        let mut held = take_free(mm);
        refused(LAST, Error::OutOfMemory);
        held.sort_by_key(Frames::first);
        let run = (0..).find(|&at| {
            let first = held[at].first();
            first.0.is_multiple_of(8) && held[at + 7].first() == first.add(7)
        });
        give_back(mm, held.drain(run.unwrap()..run.unwrap() + 8).collect());
        refused(LAST, Error::OutOfMemory);
        mm.frames().free(held.pop().unwrap());
        mm.frames().bring_online(add(mm, LAST).unwrap());
        give_back(mm, held);
    });
}

/// More memory comes: it takes the last that is left, below all watermarks.
#[test]
fn memory_comes_where_there_is_hardly_any() {
    let host = Host::new(setup(1, 1));
    host.run(Config { page_lists: Some(NO_PCP), ..machine::config("linux") }, |mm| {
        let held = take_free(mm);
        let stalls = mm.counter(Counter::AllocStall);
        come(mm, LATER);
        assert_eq!(mm.counter(Counter::AllocStall), stalls, "nobody had to wait");
        assert!(mm.frames().available() > 1024);
        give_back(mm, held);
    });
}

#[test]
fn regions_that_make_no_sense_are_refused() {
    let half = BLOCK / 2;
    for (later, error) in [
        (vec![region(LATER, 0, 0)], Error::BadRegion),
        (vec![region(LATER, BLOCK + half, 0)], Error::BadRegion),
        (vec![region(LATER.add(half), BLOCK, 0)], Error::BadRegion),
        (vec![region(SECOND, 2 * BLOCK, 0)], Error::BadRegion),
        (vec![region(FrameNumber(0xf800), 3 * BLOCK, 0)], Error::BadRegion),
        (vec![region(LAST, BLOCK, 0), region(LATER, BLOCK, 0)], Error::BadRegion),
        (vec![region(LATER, 2 * BLOCK, 0), region(LATER.add(BLOCK), BLOCK, 0)], Error::BadRegion),
        (vec![region(FrameNumber::END, BLOCK, 0)], Error::BadRegion),
        (vec![region(FrameNumber(u32::MAX - 1023), BLOCK, 0)], Error::BadRegion),
        (vec![region(LATER, BLOCK, 64)], Error::BadTopology),
        ((0..255).map(|n| region(LATER.add(n * BLOCK), BLOCK, 0)).collect(), Error::BadTopology),
    ] {
        let host = Host::new(Setup { later: later.clone(), ..setup(1, 1) });
        assert_eq!(host.make(bare("linux")).map(drop), Err(error), "{later:?}");
    }
    // Below and above what is there, and beside it.
    let below = region(FrameNumber(0xf000), 2 * BLOCK, 0);
    let later = vec![below, region(LATER, BLOCK, 0), region(LAST, BLOCK, 0)];
    let host = Host::new(Setup { later, base: 0xf000, frames: 8 * BLOCK, ..setup(1, 1) });
    host.run(bare("linux"), |mm| {
        come(mm, below.start);
        assert!(take_free_without(mm, below.start));
    });
    // None of what is there at the start may be missing.
    let host = Host::new(Setup { regions: Some(Vec::new()), ..setup(1, 1) });
    assert_eq!(host.make(bare("linux")).map(drop), Err(Error::TooLittleMemory));
}

/// What it costs before it comes: words of the tables, and a zone. Whatever its size.
#[test]
fn memory_that_does_not_come_costs_next_to_nothing() {
    let reserved = |later| {
        let host = Host::new(Setup { later, ..setup(4, 1) });
        host.run(small("linux"), |mm| mm.frames().reserved())
    };
    let without = reserved(Vec::new());
    // 64 GiB: 16384 blocks, of 8 bytes each, are 32 frames.
    assert!(reserved(vec![region(LATER, 16384 * BLOCK, 0)]) - without <= 32 + 1);
    assert!(reserved(vec![region(LATER, 3 * BLOCK, 0)]) - without <= 1);
}

#[test]
fn watermarks_and_lists_follow_what_has_come() {
    let more = 64;
    for nodes in [1, 2] {
        let later = vec![region(LATER, more * BLOCK, nodes - 1)];
        let host = Host::new(Setup { later, frames: (2 + more) * BLOCK, soiled: false, ..setup(2, nodes) });
        let config = Config { min_free: None, ..machine::config("linux") };
        host.run(config, |mm| {
            let node = NodeId(nodes - 1);
            let is = |blocks: u32| {
                (0..2).for_each(|cpu| mm.platform().on(cpu, || mm.frames().drain_here()));
                let all = Config::linux_min_free(u64::from((2 + blocks) * BLOCK));
                let left = kept_free(mm);
                // Shared out by size, and rounded for each zone; what CPUs keep beside it.
                assert!(left <= all && left + 2 > all, "{left} of {all} with {blocks} blocks");
                let frames = u64::from(blocks * BLOCK);
                let min = all * frames / u64::from((2 + blocks) * BLOCK);
                if nodes == 2 {
                    let limits = Config::linux_page_lists(frames, min, 1);
                    assert_eq!(
                        mm.frames().list_limits(node),
                        (blocks > 0).then_some(limits).or(mm.frames().list_limits(node))
                    );
                }
            };
            is(0);
            for n in 0..more {
                come(mm, LATER.add(n * BLOCK));
                if n % 21 == 0 {
                    is(n + 1);
                }
            }
            is(more);
            // Limits that somebody chose stay.
            let chosen = quietmm::ListLimits { batch: 5, high: 17 };
            mm.frames().set_list_limits(node, chosen).unwrap();
            let block = gone(mm, LATER.add((more - 1) * BLOCK));
            assert_eq!(mm.frames().list_limits(node), Some(chosen));
            mm.frames().bring_online(block);
            assert_eq!(mm.frames().list_limits(node), Some(chosen));
        });
    }
}

#[test]
fn a_node_that_had_no_memory_gets_some() {
    let host = Host::new(setup(2, 2));
    host.run(Config { page_lists: pcp(8), swap: true, ..machine::config("linux") }, |mm| {
        let (far, bound) = (NodeId(1), NodePolicy::Bind(NodeSet::of(&[NodeId(1)]).unwrap()));
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(AT, 8), Backing::Anonymous, Prot::ReadWrite).unwrap();
        let bind = || mm.space(id).set_node_policy(pages(AT, 8), bound);
        // CPU 1 gets what is nearest, and as fast as CPU 0.
        let fast = |cpu: u16| {
            host.on(cpu, || {
                let take = || mm.frames().alloc(0, AllocFrom::HERE).unwrap();
                mm.frames().free(take());
                let before = host.touches_of(cpu);
                let frame = take();
                let touches = host.touches_of(cpu) - before;
                let first = frame.first();
                mm.frames().free(frame);
                (first, touches)
            })
        };
        let (first, touches) = fast(0);
        assert!(first < LATER);
        let (first, same) = fast(1);
        assert!(first < LATER && same == touches, "{same} touches, and not {touches}");
        assert_eq!(bind(), Err(Error::NoSuchNode));
        // Where memory runs short nobody waits for this node.
        let held = take_free(mm);
        assert_eq!(mm.counter(Counter::KswapdWoken), 1);
        assert!(!host.take_woken().contains(&WaitKey::Kswapd(far)));
        give_back(mm, held);
        mm.kswapd(NodeId(0)).unwrap();

        come(mm, LATER);
        let (first, same) = fast(1);
        assert!(is_in(LATER, first) && same == touches, "{same} touches, and not {touches}");
        assert!(fast(0).0 < LATER);
        assert_eq!(bind(), Ok(()));
        host.on(0, || (AT..AT + 8).for_each(|page| write(mm, id, page, page).unwrap()));
        let at = |page| mm.space(id).lookup(PageNumber(page)).unwrap().frame();
        assert!((AT..AT + 8).all(|page| is_in(LATER, at(page))));
        let held = take_free(mm);
        assert!(host.take_woken().contains(&WaitKey::Kswapd(far)));
        give_back(mm, held);
        mm.kswapd(far).unwrap();

        // All of it goes: what was bound there stays where it is, or the block would not be empty.
        mm.unload();
        mm.space(id).destroy().unwrap();
        let block = gone(mm, LATER);
        let (first, same) = fast(1);
        assert!(first < LATER && same == touches);
        assert_eq!(settled(mm).broken, None);
        mm.frames().bring_online(block);
        assert!(is_in(LATER, fast(1).0));
    });
}

/// What is kept about a block lies on its node, once that has memory; there it keeps the block that it lies in.
#[test]
fn what_is_kept_about_a_block_lies_near_and_stays() {
    let host = Host::new(setup(2, 2));
    host.run(bare("linux"), |mm| {
        come(mm, LATER);
        let far = |mm: &Mm<'_>| {
            mm.frames().alloc(3, AllocFrom { node: Some(NodeId(1)), may_reclaim: false }).unwrap()
        };
        let block = far(mm);
        assert!(is_in(LATER, block.first()));
        mm.frames().free(block);
        come(mm, LAST);
        let leaving = mm.frames().begin_offline(LATER).unwrap();
        let remains = mm.frames().finish_offline(leaving).expect_err("it has what is kept about the other");
        assert_eq!(remains.kind, Kind::Kernel);
        mm.frames().cancel_offline(remains.leaving);
        // Nobody frees it by its number.
        assert_eq!(mm.frames().free_at(remains.frame, 3), Err(Error::NotAllocated(remains.frame)));
        let block = gone(mm, LAST);
        mm.frames().bring_online(block);
    });
}

/// Also where hardly any is free: what is left of its own node comes before what is left of others.
#[test]
fn what_is_kept_about_a_block_lies_near_where_memory_is_short() {
    let host = Host::new(setup(2, 2));
    host.run(Config { min_free: Some(200), ..bare("linux") }, |mm| {
        come(mm, LATER);
        let held = take_free(mm);
        assert!(mm.frames().available() <= 100);
        let block = add(mm, LAST).unwrap();
        give_back(mm, held);
        mm.frames().bring_online(block);
        let leaving = mm.frames().begin_offline(LATER).unwrap();
        let remains = mm.frames().finish_offline(leaving).expect_err("it has what is kept about the other");
        mm.frames().cancel_offline(remains.leaving);
    });
}

#[test]
fn pages_in_memory_that_came_are_charged_moved_and_swapped() {
    let host = Host::new(setup(2, 1));
    host.run(Config { groups: 2, shadows: true, ..swapping("linux") }, |mm| {
        mm.swap().on(machine::swapping::DEVICE, 512, 0).unwrap();
        let group = mm.create_group(1000).unwrap();
        let held = take_free(mm);
        // Nothing is free but what comes, and where what is kept about it lies.
        let (mut books, held): (Vec<_>, Vec<_>) =
            held.into_iter().partition(|frame| is_in(SECOND, frame.first()));
        let keep = books.split_off(64);
        give_back(mm, books);
        // What is needed beside the pages.
        let id = crate::groups::space_in(mm, Some(group), 64);
        crate::groups::write_all(mm, id, 16);
        come(mm, LATER);
        crate::groups::write_all(mm, id, 64);
        let count = |block| {
            let at = |page| mm.space(id).lookup(PageNumber(page)).unwrap();
            (AT..AT + 64).filter(|&page| at(page).is_present() && is_in(block, at(page).frame())).count()
        };
        assert!(count(LATER) > 40, "{}", count(LATER));
        assert!(crate::groups::charged(mm, group) >= 64);
        assert_eq!(settled(mm).broken, None);
        give_back(mm, keep);
        give_back(mm, held);
        // They move elsewhere, and the block goes.
        let block = gone(mm, LATER);
        assert_eq!(count(LATER), 0);
        (AT..AT + 64).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(page)));
        mm.frames().bring_online(block);
        machine::swapping::squeeze(mm);
        (AT..AT + 64).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(page)));
        mm.unload();
        mm.space(id).destroy().unwrap();
        assert_eq!(crate::groups::charged(mm, group), 0);
    });
}

/// Of a piece of work that looks at each of a block's frames, some touches; more of them in `make soak`.
fn seldom(place: Place) -> Place {
    match place {
        Place::Touch(n) => Place::Touch(n * if machine::soaks() { 7 } else { 101 }),
        place => place,
    }
}

/// CPU 0 brings a block, wherever it is CPU 1 does this.
fn while_it_comes(config: &Config, other: fn(&Mm<'_>)) {
    let cases = at_every_touch(&setup(2, 1), config, None, |mm, place| {
        let start = settled(mm);
        race(mm, seldom(place), || come(mm, LATER), || other(mm));
        let audit = settled(mm);
        assert_eq!((audit.broken, audit.total, audit.offline), (None, 3 * 1024, 0), "{place:?}");
        assert_eq!(
            audit.free + audit.file + audit.anon + audit.pools + audit.tables,
            start.free + start.file + start.anon + start.pools + start.tables + 1024
        );
    });
    assert!(cases.results.len() > 50, "{} cases", cases.results.len());
}

#[test]
fn memory_comes_while_others_take_and_free() {
    while_it_comes(&small("linux"), |mm| {
        let frames = [0, 3, 0, 9, 1].map(|order| mm.frames().alloc(order, AllocFrom::NOW));
        give_back(mm, frames.into_iter().flatten().collect());
    });
}

#[test]
fn memory_comes_while_others_are_short_of_it() {
    while_it_comes(&small("linux"), |mm| give_back(mm, take_free(mm)));
}

#[test]
fn memory_comes_while_others_want_a_large_piece() {
    while_it_comes(&small("linux"), |mm| {
        if let Ok(piece) = mm.frames().alloc_contiguous(1024, ANYWHERE) {
            mm.frames().free_contiguous(piece);
        }
        let _ = mm.frames().alloc_contiguous(1025, ANYWHERE).map(|piece| mm.frames().free_contiguous(piece));
    });
}

#[test]
fn memory_comes_while_others_reclaim() {
    let cases = at_every_touch(&setup(2, 1), &bare("linux"), None, |mm, place| {
        let (id, file) = showing(mm, 16, &[0]);
        read_all(mm, id, 0, 16);
        mm.drain_lru_batches();
        // The other takes all that there is: where that came first, there may be nothing left.
        let came = Cell::new(true);
        let first = || match add(mm, LATER) {
            Ok(block) => mm.frames().bring_online(block),
            Err(error) => came.set(error != Error::OutOfMemory),
        };
        race(mm, seldom(place), first, || machine::swapping::squeeze(mm));
        let audit = settled(mm);
        assert_eq!((audit.broken, audit.total), (None, if came.get() { 3 * 1024 } else { 2 * 1024 }));
        if !came.get() {
            come(mm, LATER);
        }
        read_all(mm, id, 0, 16);
        mm.unload();
        mm.space(id).destroy().unwrap();
        mm.file(file).destroy().unwrap();
        came.get()
    });
    let came = cases.results.iter().filter(|&&came| came).count();
    assert!(came > 50, "{came} cases");
}

#[test]
fn a_block_that_comes_does_not_go_before_it_is_all_there() {
    let cases = at_every_touch(&setup(2, 1), &small("linux"), None, |mm, place| {
        let left = race(
            mm,
            seldom(place),
            || come(mm, LATER),
            || {
                let leaving = mm.frames().begin_offline(LATER)?;
                Ok(mm.frames().finish_offline(leaving))
            },
        );
        match left {
            Err(error) => assert!(matches!(error, Error::NoSuchFrame(LATER) | Error::Busy), "{error}"),
            Ok(Ok(block)) => mm.frames().bring_online(block),
            Ok(Err(remains)) => mm.frames().cancel_offline(remains.leaving),
        }
        let audit = settled(mm);
        assert_eq!((audit.broken, audit.total, audit.offline), (None, 3 * 1024, 0), "{place:?}");
    });
    assert!(cases.results.len() > 50, "{} cases", cases.results.len());
}

/// Two say that the same block has come: whether both were right.
fn two_say_so(broken: Option<Rule>) -> Cases<bool> {
    let config = Config { groups: 2, ..small("linux") };
    at_every_touch(&setup(2, 1), &config, broken, |mm, place| {
        let start = settled(mm);
        let first = Cell::new(None);
        let second = race(mm, seldom(place), || first.set(Some(add(mm, LATER))), || add(mm, LATER));
        let both = [first.take().unwrap(), second];
        let right = both.iter().filter(|block| block.is_ok()).count();
        if broken.is_none() {
            assert_eq!(right, 1);
            assert!(both.contains(&Err(Error::AlreadyHere(LATER))));
            let audit = settled(mm);
            assert_eq!((audit.broken, audit.offline), (None, 1024));
            assert_eq!(audit.free, start.free - BOOKS - 1, "what the other took is back");
        }
        both.into_iter().flatten().for_each(|block| mm.frames().bring_online(block));
        right > 1 || settled(mm).broken.is_some()
    })
}

#[test]
fn of_two_who_say_that_a_block_has_come_one_is_right() {
    let cases = two_say_so(None);
    assert!(cases.results.len() > 5 && cases.count(|&both| both) == 0, "{} cases", cases.results.len());
    assert!(two_say_so(Some(Rule::AddedOnce)).count(|&both| both) > 3);
}

/// The memory of a CPU's own node comes while another node's is still away: it is the nearest from then on.
#[test]
fn memory_that_comes_to_a_cpus_own_node_is_its_nearest() {
    let regions = Some(vec![region(FIRST, 2 * BLOCK, 1)]);
    let later = vec![region(LATER, BLOCK, 0), region(LATER.add(BLOCK), BLOCK, 1)];
    let host = Host::new(Setup { cpus: 1, nodes: 2, frames: 4 * BLOCK, regions, later, ..Setup::default() });
    host.run(small("linux"), |mm| {
        // Some of the other node's frames are on the CPU's lists.
        let frame = mm.frames().alloc(0, AllocFrom::HERE).unwrap();
        mm.frames().free(frame);
        come(mm, LATER);
        let frames: Vec<Frames> = (0..8).map(|_| mm.frames().alloc(0, AllocFrom::HERE).unwrap()).collect();
        assert!(frames.iter().all(|frame| is_in(LATER, frame.first())), "{frames:?}");
        give_back(mm, frames);
    });
}
