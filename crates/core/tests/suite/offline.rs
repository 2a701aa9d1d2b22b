//! Memory that goes offline and comes back: every frame of the block is accounted for, whatever goes on meanwhile.

use crate::machine;

use std::cell::Cell;
use std::rc::Rc;

use machine::faults::{AT, read_all, showing};
use machine::race::{Place, at, at_every_touch, race};
use machine::showing::{frame, two_nodes};
use machine::swapping::swapping;
use machine::{
    Host, Mm, Setup, bare, everywhere_as, give_back, keep_batches, kept_free, pages, pcp, settled,
};
use proptest::prelude::*;
use quietmm::{
    AllocFrom, Backing, Config, Counter, Error, FrameNumber, Frames, Kind, Leaving, NodeId, Offline, Prot,
    Region, Rule,
};

/// Blocks of the machine's memory: the core's bookkeeping is in the first.
const FIRST: FrameNumber = FrameNumber(0xfc00);
const BLOCK: u32 = 1024;
const SECOND: FrameNumber = FrameNumber(0x10000);
const LAST: FrameNumber = FrameNumber(0x10800);

const POLICIES: [&str; 3] = ["linux+drain=all-cpus", "linux+drain=holding-cpus", "linux+drain=remote"];

fn small(policy: &str) -> Config {
    Config { page_lists: pcp(8), ..bare(policy) }
}

fn cpus(cpus: u32) -> Setup {
    Setup { cpus, ..Setup::default() }
}

fn is_in(block: FrameNumber, frame: FrameNumber) -> bool {
    (block.0..block.0 + BLOCK).contains(&frame.0)
}

fn all(mm: &Mm<'_>) -> Vec<Frames> {
    std::iter::from_fn(|| mm.frames().alloc(0, AllocFrom::NOW).ok()).collect()
}

fn finished(mm: &Mm<'_>, leaving: Leaving) -> Offline {
    mm.frames().finish_offline(leaving).unwrap_or_else(|remains| panic!("{remains:?}"))
}

#[test]
fn a_free_block_goes_offline_and_comes_back() {
    for policy in POLICIES {
        let host = Host::new(cpus(2));
        host.run(small(policy), |mm| {
            let start = settled(mm);
            let leaving = mm.frames().begin_offline(LAST).unwrap();
            assert_eq!(leaving.first(), LAST);
            let block = finished(mm, leaving);
            let audit = settled(mm);
            assert_eq!((audit.offline, audit.free), (1024, start.free - 1024));
            assert_eq!((audit.total, audit.broken), (start.total, None));
            let frames = all(mm);
            assert_eq!(frames.len() as u64, audit.free);
            assert!(!frames.iter().any(|frame| is_in(LAST, frame.first())));
            assert_eq!(mm.frames().free_at(LAST, 0), Err(Error::NoSuchFrame(LAST)));
            give_back(mm, frames);
            mm.frames().bring_online(block);
            assert_eq!(settled(mm), start);
            assert_eq!(mm.counter(Counter::MemoryOffline), 1);
            assert_eq!(mm.counter(Counter::MemoryOnline), 1);
            // Whole again.
            let whole: Vec<_> = std::iter::from_fn(|| mm.frames().alloc(10, AllocFrom::NOW).ok()).collect();
            assert!(whole.iter().any(|block| block.first() == LAST));
            give_back(mm, whole);
        });
    }
}

#[test]
fn a_block_that_cannot_go_is_refused_and_nothing_changes() {
    let host = Host::new(cpus(1));
    host.run(small("linux"), |mm| {
        let start = settled(mm);
        let refused = |first, error| {
            assert_eq!(mm.frames().begin_offline(first), Err(error));
            assert_eq!(settled(mm), start);
        };
        refused(FIRST, Error::NotMovable(FIRST));
        refused(FrameNumber(0x10001), Error::BadBlock(FrameNumber(0x10001)));
        refused(FrameNumber(0x2000), Error::BadBlock(FrameNumber(0x2000)));
        refused(FrameNumber(0), Error::BadBlock(FrameNumber(0)));
        refused(FrameNumber(u32::MAX - 1023), Error::BadBlock(FrameNumber(u32::MAX - 1023)));
        let leaving = mm.frames().begin_offline(LAST).unwrap();
        assert_eq!(mm.frames().begin_offline(SECOND), Err(Error::Busy), "one at a time");
        assert_eq!(mm.frames().begin_offline(LAST), Err(Error::Busy), "it is on its way");
        let block = finished(mm, leaving);
        assert_eq!(mm.frames().begin_offline(LAST), Err(Error::NoSuchFrame(LAST)), "it is gone");
        let second = finished(mm, mm.frames().begin_offline(SECOND).unwrap());
        mm.frames().bring_online(block);
        mm.frames().bring_online(second);
        assert_eq!(settled(mm), start);
    });
    // Half a block at the end.
    let region = Region { start: FIRST, frames: 2048 + 512, node: quietmm::NodeId(0) };
    let host = Host::new(Setup { regions: Some(vec![region]), ..cpus(1) });
    host.run(small("linux"), |mm| {
        assert_eq!(
            mm.frames().begin_offline(FrameNumber(0x10400)),
            Err(Error::BadBlock(FrameNumber(0x10400)))
        );
    });
}

#[test]
fn a_frame_in_use_is_named_and_the_block_waits_for_it_or_stays() {
    let host = Host::new(cpus(1));
    host.run(small("linux"), |mm| {
        let start = settled(mm);
        let mut frames = all(mm);
        let at = frames.iter().position(|frame| is_in(LAST, frame.first())).unwrap();
        let one = frames.swap_remove(at);
        let in_use = one.first();
        give_back(mm, frames);
        let leaving = mm.frames().begin_offline(LAST).unwrap();
        let remains = mm.frames().finish_offline(leaving).unwrap_err();
        assert_eq!((remains.frame, remains.kind), (in_use, Kind::Kernel));
        // Given up: all is as it was.
        mm.frames().cancel_offline(remains.leaving);
        assert_eq!(settled(mm).free, start.free - 1);
        assert_eq!(mm.frames().list_limits(quietmm::NodeId(0)), pcp(8));
        // Freed while it is on its way: it is not handed out again.
        let leaving = mm.frames().begin_offline(LAST).unwrap();
        mm.frames().free(one);
        assert!(
            !all(mm).into_iter().map(|frame| (frame.first(), mm.frames().free(frame)).0).any(|n| n == in_use)
        );
        mm.frames().bring_online(finished(mm, leaving));
        assert_eq!(settled(mm), start);
    });
}

#[test]
fn pages_of_files_make_room_with_what_was_written_to_them() {
    // Those that are in use, too: where all are taken without a flush this is one place where some are not.
    ["linux", "quiet"].into_iter().for_each(pages_make_room);
}

fn pages_make_room(policy: &str) {
    let host = Host::new(cpus(2));
    host.run(small(policy), |mm| {
        // All memory but the block is taken, so that the file's pages are there.
        let (in_block, others): (Vec<_>, Vec<_>) =
            all(mm).into_iter().partition(|frame| is_in(LAST, frame.first()));
        let spare = others.len() - 64;
        let (keep, near) = others.into_iter().enumerate().partition::<Vec<_>, _>(|(i, _)| *i < spare);
        give_back(mm, near.into_iter().map(|(_, frame)| frame).collect());
        let (id, file) = showing(mm, 48, &[0]);
        read_all(mm, id, 0, 8);
        give_back(mm, in_block);
        // The last of them wait in this CPU's batch.
        (AT..AT + 48).for_each(|page| assert!(host.read(mm, id, page).is_ok()));
        let page = AT + 20;
        host.on(0, || host.write(mm, id, page, 77)).unwrap();
        // Nothing is free elsewhere, so they cannot move.
        let full: Vec<_> = std::iter::from_fn(|| mm.frames().alloc(0, AllocFrom::NOW).ok()).collect();
        let leaving = host.on(1, || mm.frames().begin_offline(LAST).unwrap());
        let (full, gone): (Vec<_>, Vec<_>) = full.into_iter().partition(|frame| !is_in(LAST, frame.first()));
        give_back(mm, gone);
        let block = host.on(1, || finished(mm, leaving));
        assert!(mm.file(file).cached_pages().unwrap() < 48);
        give_back(mm, full);
        assert_eq!(host.on(0, || host.read(mm, id, page)), Ok(77));
        mm.frames().bring_online(block);
        give_back(mm, keep.into_iter().map(|(_, frame)| frame).collect());
    });
}

#[test]
fn the_watermarks_follow_the_memory_that_is_online() {
    let half = |node| Region {
        start: FrameNumber(0xfc00 + 2048 * u32::from(node)),
        frames: 2048,
        node: NodeId(node),
    };
    for (nodes, regions) in [(1, None), (2, Some(vec![half(0), half(1)]))] {
        let host = Host::new(Setup { cpus: 2, nodes, regions, ..Setup::default() });
        let config = Config { min_free: None, page_lists: Some(machine::NO_PCP), ..machine::config("linux") };
        host.run(config, |mm| {
            // Shared out by size, and rounded for each zone.
            let linux = |frames| Config::linux_min_free(frames);
            let is = |frames: u64| {
                let left = kept_free(mm);
                assert!(
                    left <= linux(frames) && left + u64::from(nodes) > linux(frames),
                    "{left} of {frames}"
                );
            };
            is(4096);
            let mut gone = Vec::new();
            for block in mm.frames().blocks().collect::<Vec<_>>() {
                let Ok(leaving) = mm.frames().begin_offline(block) else { continue };
                is(4096 - 1024 * gone.len() as u64);
                gone.push(finished(mm, leaving));
                is(4096 - 1024 * gone.len() as u64);
            }
            let away = gone.len() as u64;
            assert!(away >= 2 && linux(4096) - linux(4096 - 1024 * away) > 30, "it makes a difference");
            for (n, block) in gone.into_iter().enumerate() {
                mm.frames().bring_online(block);
                is(4096 - 1024 * (away - n as u64 - 1));
            }
            // Whoever gives up has changed nothing.
            let leaving = mm.frames().begin_offline(LAST).unwrap();
            mm.frames().cancel_offline(leaving);
            is(4096);
        });
    }
}

#[test]
fn memory_that_is_no_longer_short_is_not_taken_for_it() {
    let host = Host::new(cpus(2));
    host.run(Config { min_free: None, page_lists: pcp(8), ..machine::config("linux") }, |mm| {
        let leaving = mm.frames().begin_offline(LAST).unwrap();
        let block = finished(mm, leaving);
        // Short for 3072 frames, and more so for 4096.
        let mut held = all(mm);
        mm.frames().bring_online(block);
        assert!(mm.frames().available() > 1024);
        // Plenty: CPUs take frames in batches again, for their lists.
        held.push(mm.frames().alloc(0, AllocFrom::NOW).unwrap());
        assert!(mm.frames().on_lists() > 0);
        give_back(mm, held);
    });
}

/// A block cannot go while one of its pages is being read: how many frames the pools have more after it was tried so often.
#[test]
fn a_page_that_somebody_works_on_costs_nothing_however_often_its_block_is_tried() {
    let host = Host::new(cpus(1));
    host.run(bare("linux"), |mm| {
        let (id, file) = showing(mm, 2, &[0]);
        // The tables are there; the page comes when the first block is full.
        assert_eq!(host.read(mm, id, AT + 1), Ok(0));
        let (low, high): (Vec<_>, Vec<_>) = all(mm).into_iter().partition(|frame| frame.first() < SECOND);
        give_back(mm, high);
        let read = Rc::new(Cell::new(None));
        let found = Rc::clone(&read);
        host.on_disk_read.borrow_mut().push_back(Box::new(move |mm| {
            let before = mm.validate();
            let mut remains = 0;
            for block in mm.frames().blocks().collect::<Vec<_>>() {
                for _ in 0..20 {
                    let Ok(leaving) = mm.frames().begin_offline(block) else { break };
                    match mm.frames().finish_offline(leaving) {
                        Ok(offline) => mm.frames().bring_online(offline),
                        Err(left) => {
                            remains += u32::from(left.kind == Kind::File);
                            mm.frames().cancel_offline(left.leaving);
                        }
                    }
                }
            }
            let after = mm.validate();
            found.set(Some((remains, after.pools - before.pools, after.batches)));
        }));
        assert_eq!(host.read(mm, id, AT), Ok(0));
        assert_eq!(read.get(), Some((20, 0, 0)));
        mm.unload();
        mm.space(id).destroy().unwrap();
        mm.file(file).destroy().unwrap();
        give_back(mm, low);
        assert_eq!(settled(mm).broken, None);
    });
}

/// At each touch of what CPU 1 does, CPU 0 takes a block offline. Whether CPU 1 was given a frame of it afterwards.
fn gone_in_the_middle(policy: &str, broken: Option<Rule>, orders: &'static [u8]) -> (Vec<bool>, u32) {
    everywhere_as(&cpus(2), &small(policy), broken, |mm, n| {
        settled(mm);
        let host = mm.platform();
        let gone = Rc::new(Cell::new(false));
        let note = Rc::clone(&gone);
        host.at_touch(1, n, move |mm| {
            mm.platform().on(0, || {
                let leaving = mm.frames().begin_offline(LAST).unwrap();
                match mm.frames().finish_offline(leaving) {
                    // It stays away.
                    Ok(_block) => note.set(true),
                    Err(remains) => mm.frames().cancel_offline(remains.leaving),
                }
            });
        });
        let given = host.on(1, || {
            let blocks: Vec<_> =
                orders.iter().map(|&order| mm.frames().alloc(order, AllocFrom::NOW).unwrap()).collect();
            let given = blocks.iter().any(|block| is_in(LAST, block.first()));
            give_back(mm, blocks);
            given
        });
        host.all_placed();
        if broken.is_none() {
            assert_eq!(settled(mm).broken, None);
            assert_eq!(settled(mm).offline, if gone.get() { 1024 } else { 0 });
        }
        // High frames are handed out first in this test: what CPU 1 gets is of the last block while that is there.
        given && gone.get()
    })
}

#[test]
fn no_frame_of_a_block_that_is_gone_is_handed_out() {
    for policy in POLICIES {
        for orders in [&[0, 0, 0][..], &[3, 0], &[5]] {
            let (given, _) = gone_in_the_middle(policy, None, orders);
            assert!(given.len() > 5, "{policy} {orders:?}: {} cases", given.len());
            assert!(!given.contains(&true), "{policy} {orders:?}");
        }
    }
}

/// At each touch of CPU 0's taking a block offline, CPU 1 takes and frees, or goes. Policies differ in the drain only: every fifth touch
/// of the others.
fn others_meanwhile(policy: &str, other: fn(&Mm<'_>)) -> (Vec<()>, u32) {
    let stride = if policy == POLICIES[0] { 1 } else { 5 };
    everywhere_as(&cpus(2), &small(policy), None, |mm, n| {
        let n = n * stride + n % stride;
        settled(mm);
        let host = mm.platform();
        host.on(1, || give_back(mm, (0..9).map(|_| mm.frames().alloc(0, AllocFrom::NOW).unwrap()).collect()));
        host.at_touch(0, n, move |mm| mm.platform().on(1, || other(mm)));
        let leaving = mm.frames().begin_offline(SECOND).unwrap();
        let offline = match mm.frames().finish_offline(leaving) {
            Ok(_block) => 1024,
            Err(remains) => {
                mm.frames().cancel_offline(remains.leaving);
                0
            }
        };
        host.all_placed();
        let audit = mm.validate();
        assert_eq!((audit.broken, audit.offline), (None, offline), "{policy}, touch {n}");
    })
}

#[test]
fn p18_whatever_others_do_meanwhile_every_frame_is_accounted_for() {
    for policy in POLICIES {
        let (cases, _) = others_meanwhile(policy, |mm| {
            let frames = (0..3).map(|_| mm.frames().alloc(0, AllocFrom::NOW).unwrap()).collect();
            give_back(mm, frames);
        });
        assert!(cases.len() > 100, "{policy}: {}", cases.len());
        let (cases, _) = others_meanwhile(policy, |mm| {
            mm.cpu_offline().unwrap();
            mm.platform().off[1].set(true);
        });
        assert!(cases.len() > 100, "{policy}: {}", cases.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Blocks of memory come and go while two CPUs take and free, limits change and lists are drained.
    #[test]
    fn frames_add_up_while_memory_comes_and_goes(
        steps in prop::collection::vec((0u8..16, any::<u16>()), 1..80),
        policy in prop::sample::select(POLICIES.to_vec()),
    ) {
        let host = Host::new(cpus(2));
        host.run(small(policy), |mm| {
            let start = settled(mm);
            let (mut taken, mut gone) = (Vec::<Frames>::new(), Vec::<Offline>::new());
            for &(what, pick) in &steps {
                host.on(pick % 2, || match what {
                    0..8 => taken.extend(mm.frames().alloc(what % 4, AllocFrom::NOW)),
                    8..12 if !taken.is_empty() => mm.frames().free(taken.swap_remove(pick as usize % taken.len())),
                    12 => {
                        if let Ok(leaving) = mm.frames().begin_offline(FrameNumber(0xfc00 + BLOCK * u32::from(pick % 4))) {
                            match mm.frames().finish_offline(leaving) {
                                Ok(block) => gone.push(block),
                                Err(remains) => mm.frames().cancel_offline(remains.leaving),
                            }
                        }
                    }
                    13 => gone.pop().into_iter().for_each(|block| mm.frames().bring_online(block)),
                    14 => {
                        let high = u32::from(pick % 64);
                        let limits = quietmm::ListLimits { batch: (high / 2).max(1), high };
                        mm.frames().set_list_limits(quietmm::NodeId(0), limits).unwrap();
                    }
                    15 => _ = mm.frames().drain(quietmm::Certainty::Likely),
                    _ => {}
                });
                let audit = mm.validate();
                assert_eq!(audit.broken, None);
                let mine: u64 = taken.iter().map(|block| 1 << block.order()).sum();
                let offline = 1024 * gone.len() as u64;
                assert_eq!((audit.kernel, audit.offline, audit.free), (mine, offline, start.free - mine - offline));
                for block in &taken {
                    assert!(!gone.iter().any(|gone| is_in(gone.first(), block.first())));
                }
            }
            give_back(mm, taken);
            gone.into_iter().for_each(|block| mm.frames().bring_online(block));
            assert_eq!(settled(mm), start);
        });
    }
}

/// CPU 0 frees a frame of a block that CPU 1 begins to take offline meanwhile: wherever it stood, the frame is on no
/// CPU's list when both are through, so the block goes.
#[test]
fn a_block_goes_whatever_was_being_freed_as_it_began_to() {
    for policy in POLICIES {
        let cases = at_every_touch(&cpus(2), &small(policy), None, |mm, place| {
            let mut frames = all(mm);
            let at = frames.iter().position(|frame| is_in(LAST, frame.first())).unwrap();
            let one = Cell::new(Some(frames.swap_remove(at)));
            give_back(mm, frames);
            (0..2).for_each(|cpu| mm.platform().on(cpu, || mm.frames().drain_here()));
            let free = || mm.frames().free(one.take().unwrap());
            let leaving = race(mm, place, free, || mm.frames().begin_offline(LAST).unwrap());
            mm.frames().bring_online(finished(mm, leaving));
        });
        assert!(cases.results.len() > 5, "{policy}: {} cases", cases.results.len());
    }
}

/// Where there is not a single frame for a batch of pages that are to go, none goes and none is left locked; later they do.
#[test]
fn pages_stay_where_there_is_no_memory_for_their_batch() {
    for policy in ["linux", "quiet"] {
        let host = Host::new(cpus(5));
        host.run(bare(policy), |mm| {
            keep_batches(mm);
            let (in_block, others): (Vec<_>, Vec<_>) =
                all(mm).into_iter().partition(|frame| is_in(LAST, frame.first()));
            let (keep, near): (Vec<_>, Vec<_>) = others.into_iter().enumerate().partition(|(n, _)| *n >= 64);
            give_back(mm, near.into_iter().map(|(_, frame)| frame).collect());
            let (id, _) = showing(mm, 8, &[0]);
            // What is needed beside the pages.
            host.write(mm, id, AT, 5).unwrap();
            let rest = all(mm);
            give_back(mm, in_block);
            read_all(mm, id, 0, 8);
            let leaving = mm.frames().begin_offline(LAST).unwrap();
            assert_eq!(all(mm).len(), 0, "not one is free");
            let remains = mm.frames().finish_offline(leaving).expect_err("nothing could go");
            assert_eq!(remains.kind, Kind::File);
            let audit = mm.validate();
            assert_eq!((audit.broken, audit.mapped), (None, 8));
            (AT..AT + 8).for_each(|page| assert!(host.try_read(page).is_some(), "{policy}"));
            give_back(mm, rest);
            mm.frames().bring_online(finished(mm, remains.leaving));
            assert_eq!(host.read(mm, id, AT), Ok(5));
            give_back(mm, keep.into_iter().map(|(_, frame)| frame).collect());
        });
    }
}

/// A block is one that lies whole in a region: from the first frame to the last.
#[test]
fn blocks_are_those_that_lie_whole_in_a_region() {
    const FRAMES: u32 = 1024;
    let start = 64 * FRAMES;
    for (at, frames, first, count) in [
        (start, 4 * FRAMES, start, 4),
        (start + 1, 4 * FRAMES - 1, start + FRAMES, 3),
        (start, 4 * FRAMES - 1, start, 3),
        (start + FRAMES - 1, 2 * FRAMES + 2, start + FRAMES, 2),
        (start + 1, 2 * FRAMES - 2, 0, 0),
    ] {
        let regions =
            Some(vec![quietmm::Region { start: FrameNumber(at), frames, node: quietmm::NodeId(0) }]);
        let host = Host::new(Setup { base: start, frames: 4 * FRAMES, regions, ..Setup::default() });
        host.run(bare("linux"), |mm| {
            let blocks: Vec<u32> = mm.frames().blocks().map(|block| block.0).collect();
            assert_eq!(
                blocks,
                (0..count).map(|n| first + n * FRAMES).collect::<Vec<_>>(),
                "{frames} from {at:#x}"
            );
            for other in [at, at + 1, first + count * FRAMES, first.wrapping_sub(FRAMES)] {
                if !blocks.contains(&other) {
                    let told = mm.frames().begin_offline(FrameNumber(other)).map(drop);
                    assert_eq!(told, Err(quietmm::Error::BadBlock(FrameNumber(other))), "{other:#x}");
                }
            }
        });
    }
}

/// A block has a thousand frames, to each of which the same is done: most touches are left out, but not the same ones in each step.
fn seldom(place: Place) -> Place {
    match place {
        Place::Touch(n) => Place::Touch(61 * n),
        place => place,
    }
}

/// Two take the same block offline: wherever the first stood when the second did, one of them has it, and nobody is given a frame of it.
#[test]
fn of_two_who_take_a_block_offline_one_has_it() {
    let cases = at_every_touch(&cpus(2), &small("linux"), None, |mm, place| {
        let (place, start) = (seldom(place), settled(mm));
        let begun = Cell::new(None);
        let first = || begun.set(Some(mm.frames().begin_offline(LAST)));
        let gone = race(mm, place, first, || Some(finished(mm, mm.frames().begin_offline(LAST).ok()?)));
        match begun.take().unwrap() {
            Ok(leaving) => mm.frames().cancel_offline(leaving),
            Err(error) => assert!(matches!(error, Error::NoSuchFrame(LAST) | Error::Busy), "{error}"),
        }
        let audit = settled(mm);
        assert_eq!((audit.broken, audit.offline), (None, if gone.is_some() { 1024 } else { 0 }));
        let given = all(mm);
        assert!(gone.is_none() || !given.iter().any(|frame| is_in(LAST, frame.first())), "{place:?}");
        give_back(mm, given);
        gone.into_iter().for_each(|block| mm.frames().bring_online(block));
        assert_eq!(settled(mm), start);
    });
    assert!(cases.results.len() > 50, "{} cases", cases.results.len());
}

/// One gives a block up, another begins with it: what the first has not put back yet is not counted twice, so the block stays while a frame of
/// it is in use.
#[test]
fn a_block_that_is_given_up_begins_anew() {
    let cases = at_every_touch(&cpus(2), &small("linux"), None, |mm, place| {
        let place = seldom(place);
        let (mut held, others): (Vec<_>, Vec<_>) =
            all(mm).into_iter().partition(|frame| is_in(LAST, frame.first()));
        held.sort_by_key(Frames::first);
        let (in_use, freed) = (held.pop().unwrap(), Cell::new(held.pop()));
        give_back(mm, others);
        give_back(mm, held);
        settled(mm);
        let leaving = Cell::new(Some(mm.frames().begin_offline(LAST).unwrap()));
        let again = race(
            mm,
            place,
            || mm.frames().cancel_offline(leaving.take().unwrap()),
            || {
                mm.frames().free(freed.take().unwrap());
                mm.frames().begin_offline(LAST)
            },
        );
        match again {
            Ok(leaving) => {
                let remains = mm.frames().finish_offline(leaving).expect_err("one frame is in use");
                assert_eq!(remains.frame, in_use.first());
                mm.frames().cancel_offline(remains.leaving);
            }
            Err(error) => assert_eq!(error, Error::Busy),
        }
        mm.frames().free(in_use);
        assert_eq!(settled(mm).broken, None);
        mm.frames().bring_online(finished(mm, mm.frames().begin_offline(LAST).unwrap()));
    });
    assert!(cases.results.len() > 50, "{} cases", cases.results.len());
}

/// A block that is all of its region but for the bookkeeping comes back, and another takes it offline again at once: never are more frames
/// offline than there are.
#[test]
fn a_block_comes_back_while_another_takes_it_offline() {
    const HALF: u32 = BLOCK / 2;
    let region = |start, frames| Region { start, frames, node: NodeId(0) };
    let regions =
        Some(vec![region(FIRST, 2 * BLOCK + HALF), region(FrameNumber(LAST.0 - HALF), HALF + BLOCK)]);
    let setup = Setup { regions, ..cpus(2) };
    // Whether the other had it, and how often the first touched memory.
    let play = |place| {
        at(&setup, &small("linux"), None, |mm| {
            let start = settled(mm);
            let block = Cell::new(Some(finished(mm, mm.frames().begin_offline(LAST).unwrap())));
            let before = mm.platform().touches_of(0);
            let touches = Cell::new(0);
            let first = || {
                mm.frames().bring_online(block.take().unwrap());
                touches.set(mm.platform().touches_of(0) - before);
            };
            let again = race(mm, place, first, || Some(finished(mm, mm.frames().begin_offline(LAST).ok()?)));
            mm.platform().forget_placed();
            assert_eq!(settled(mm).offline, if again.is_some() { 1024 } else { 0 });
            let had = again.is_some();
            again.into_iter().for_each(|block| mm.frames().bring_online(block));
            assert_eq!(settled(mm), start);
            (had, touches.get())
        })
    };
    // At the end, when all of it is back.
    let (_, touches) = play(Place::Touch(u32::MAX));
    let had = (touches - 40..touches).filter(|&n| play(Place::Touch(n)).0).count();
    assert!(had > 5, "{had} of {touches}");
}

/// A CPU that has a batch for what it writes out next, and goes, leaves that behind for others.
#[test]
fn a_cpu_that_goes_offline_gives_its_batch_back() {
    let host = Host::new(cpus(3));
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(1).unwrap();
        for cpu in [1, 2] {
            host.on(cpu, || {
                assert_eq!(mm.file(file).write_back(), Ok(0));
                mm.cpu_offline().unwrap();
            });
            assert_eq!(mm.validate().broken, None);
        }
        [1, 2].into_iter().for_each(|cpu| host.on(cpu, || mm.cpu_online()).unwrap());
        assert_eq!(settled(mm).broken, None);
    });
}

/// CPU 0 wants a page for a space of a group, and stands still at a touch; CPU 1 takes the block offline from which its frame comes, stands still
/// likewise, and goes on when the page is on its list. Returns whether CPU 1 came so far, and what is left of the block.
fn listed_in_the_middle(mm: &Mm<'_>, (n, deep): (u32, u32)) -> (bool, Option<Kind>) {
    let host = mm.platform();
    let group = mm.create_group(1000).unwrap();
    let id = machine::showing::mapped(mm, Backing::Anonymous, 2);
    mm.space(id).set_group(Some(group)).unwrap();
    let at = machine::showing::AT;
    host.write(mm, id, at, 1).unwrap();
    // The frame that is taken next lies in the last block, and those after it in the second if that one goes.
    let blocks = (0..=10)
        .rev()
        .flat_map(|order| std::iter::from_fn(move || mm.frames().alloc(order, AllocFrom::NOW).ok()));
    let (last, others): (Vec<_>, Vec<_>) = blocks.partition(|block| is_in(LAST, block.first()));
    let (second, held): (Vec<_>, Vec<_>) = others.into_iter().partition(|block| is_in(SECOND, block.first()));
    give_back(mm, second);
    give_back(mm, last);
    let (mut came, mut what) = (false, None);
    host.place();
    host.aside(
        0,
        || host.write(mm, id, at + 1, 7).unwrap(),
        |wants| {
            host.at_touch(0, n, |mm| mm.platform().stop());
            host.resume();
            let leaving = host.on(1, || mm.frames().begin_offline(LAST).unwrap());
            host.place();
            let finish = || what = Some(mm.frames().finish_offline(leaving));
            host.aside(1, finish, |goes| {
                host.at_touch(1, deep, |mm| mm.platform().stop());
                host.resume_one(goes);
                came = host.all_placed();
                host.place();
                while host.resume_one(wants) {
                    host.resume_one(goes);
                }
            });
        },
    );
    host.forget_placed();
    host.all_placed();
    let left = match what.unwrap() {
        Ok(block) => {
            mm.frames().bring_online(block);
            None
        }
        Err(remains) => {
            mm.frames().cancel_offline(remains.leaving);
            Some(remains.kind)
        }
    };
    give_back(mm, held);
    assert_eq!(settled(mm).broken, None, "{n}, {deep}");
    assert_eq!((host.read(mm, id, at), host.read(mm, id, at + 1)), (Ok(1), Ok(7)));
    (came, left)
}

#[test]
fn a_page_that_is_listed_while_its_block_goes_is_on_one_list() {
    let config = Config { groups: 1, swap: true, lru_batch: 1, ..bare("linux") };
    let at = |n, deep| at(&cpus(2), &config, None, |mm| listed_in_the_middle(mm, (n, deep)));
    // The frame is CPU 0's, and the group is not charged with it yet.
    let first = (0..1000).find(|&n| at(n, u32::MAX).1 == Some(Kind::Anon)).unwrap();
    // CPU 1 looks through the block, and then for the page on its list.
    let looks = 3 * BLOCK;
    assert!((looks..looks + 400).all(|deep| at(first, deep).0));
}

/// Whoever takes the block offline, and wherever that one runs.
#[test]
fn pages_that_leave_a_block_go_to_another_of_their_node() {
    const SECOND_NODE: FrameNumber = FrameNumber(FIRST.0 + 2 * BLOCK);
    let host = Host::new(two_nodes());
    host.run(swapping("linux"), |mm| {
        let near = AllocFrom { node: Some(NodeId(1)), may_reclaim: false };
        let (file, id) = (mm.create_file(5).unwrap(), mm.create_space().unwrap());
        mm.space(id).map(pages(AT, 4), Backing::File { file, offset: 0 }, Prot::Read).unwrap();
        mm.space(id).map(pages(AT + 4, 5), Backing::Anonymous, Prot::ReadWrite).unwrap();
        // Tables and the file's tree are elsewhere.
        mm.space(id).switch_to().unwrap();
        host.write(mm, id, AT + 8, 8).unwrap();
        mm.file(file).read(4 * 4096, &mut [0]).unwrap();
        let use_all = || {
            host.on(1, || {
                mm.space(id).switch_to().unwrap();
                (0..4).for_each(|page| _ = host.read(mm, id, AT + page).unwrap());
                (4..8).for_each(|page| host.write(mm, id, AT + page, page).unwrap());
                [0, 1, 2, 3, 4, 5, 6, 7].map(|page| frame(mm, id, AT + page))
            })
        };
        let mut held: Vec<Frames> = Vec::new();
        while held.last().is_none_or(|last| last.first() < LAST) {
            held.push(mm.frames().alloc(0, near).unwrap());
        }
        give_back(mm, held.split_off(held.len() - 1));
        let before = use_all();
        assert!(before.iter().all(|&n| is_in(LAST, n)), "{before:?}");
        give_back(mm, held);
        let block = finished(mm, mm.frames().begin_offline(LAST).unwrap());
        let after = use_all();
        assert!(after.iter().all(|&n| is_in(SECOND_NODE, n)), "{after:?}");
        mm.frames().bring_online(block);
    });
}
