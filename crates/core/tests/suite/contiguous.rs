//! Frames in one piece, and below an address: whoever asks has them alone, and pages that were in the way are elsewhere, with what was in them.

use std::cell::Cell;
use std::rc::Rc;

use crate::machine;

use machine::faults::{AT, own, showing};
use machine::race::{Place, at, race};
use machine::showing::two_nodes;
use machine::swapping::swapping;
use machine::{Happened, Host, Mm, Setup, bare, give_back, pages, settled};
use quietmm::addr::{PAGE_SIZE, PhysAddr};
use quietmm::{
    Advice, AllocFrom, Config, Counter, Error, Event, FrameNumber, Frames, NodeId, PageNumber, PageRange,
    Region, Term, UserAccess,
};

const ANYWHERE: PhysAddr = PhysAddr(u64::MAX);
/// The first of three blocks without bookkeeping.
const SECOND: FrameNumber = FrameNumber(0x10000);

fn below(frame: u32) -> PhysAddr {
    FrameNumber(frame).phys()
}

fn all(mm: &Mm<'_>) -> Vec<Frames> {
    std::iter::from_fn(|| mm.frames().alloc(0, AllocFrom::NOW).ok()).collect()
}

#[test]
fn a_piece_of_any_size_is_one_owners_alone_and_comes_back() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let start = settled(mm);
        for frames in [1, 63, 64, 65, 1023, 1024, 1025, 2048, 3000, 3 * 1024] {
            let piece = mm.frames().alloc_contiguous(frames, ANYWHERE).unwrap();
            assert_eq!((piece.first().0 % 1024, piece.frames()), (0, frames));
            let audit = settled(mm);
            assert_eq!((audit.broken, audit.offline), (None, 0));
            assert_eq!(mm.frames().available(), start.free - u64::from(frames));
            let inside = piece.first().0..piece.first().0 + frames;
            let rest = all(mm);
            assert!(!rest.iter().any(|frame| inside.contains(&frame.first().0)), "nobody else has it");
            give_back(mm, rest);
            mm.frames().free_contiguous(piece);
            assert_eq!(settled(mm), start, "{frames} frames");
        }
        // Not one more than there are, and none at all.
        assert_eq!(mm.frames().alloc_contiguous(3 * 1024 + 1, ANYWHERE), Err(Error::OutOfMemory));
        assert_eq!(mm.frames().alloc_contiguous(u32::MAX, ANYWHERE), Err(Error::OutOfMemory));
        assert!(matches!(mm.frames().alloc_contiguous(0, ANYWHERE), Err(Error::BadSetting(_))));
        assert_eq!(settled(mm), start);
        // Its memory is whole again.
        let blocks: Vec<_> = std::iter::from_fn(|| mm.frames().alloc(10, AllocFrom::NOW).ok()).collect();
        assert_eq!(blocks.len(), 3);
        give_back(mm, blocks);
    });
}

/// Frame by frame, or as a whole; what was freed behind the owner's back stays whose it is.
#[test]
fn a_piece_goes_back_once() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let start = settled(mm);
        let (first, frames) = mm.frames().alloc_contiguous(100, ANYWHERE).unwrap().into_raw();
        (0..frames).for_each(|i| mm.frames().free_at(first.add(i), 0).unwrap());
        assert_eq!(mm.frames().free_at(first, 0), Err(Error::NotAllocated(first)));
        assert_eq!(settled(mm), start);
        let piece = mm.frames().alloc_contiguous(100, ANYWHERE).unwrap();
        let freed = piece.first().add(40);
        mm.frames().free_at(freed, 0).unwrap();
        mm.frames().free_contiguous(piece);
        assert_eq!(settled(mm), start);
    });
}

#[test]
fn a_piece_lies_below_the_address_as_a_whole() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let start = settled(mm);
        let end = below(SECOND.0 + 1024);
        for limit in [end, PhysAddr(end.0 + 4095), below(SECOND.0 + 2047)] {
            let piece = mm.frames().alloc_contiguous(1024, limit).unwrap();
            assert_eq!(piece.first(), SECOND);
            assert_eq!(mm.frames().alloc_contiguous(1, limit), Err(Error::OutOfMemory));
            mm.frames().free_contiguous(piece);
        }
        for limit in [PhysAddr(end.0 - 1), below(SECOND.0), PhysAddr(0)] {
            assert_eq!(mm.frames().alloc_contiguous(1024, limit), Err(Error::OutOfMemory));
        }
        assert_eq!(settled(mm), start);
    });
}

/// What is allocated by others in the middle of a piece leaves the rest of it: the piece lies behind it.
#[test]
fn a_piece_lies_beside_what_does_not_move() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        for (taken, size, first) in
            [(0, 2048, 1024), (1, 1024, 0), (1, 2048, u32::MAX), (2, 2048, 0), (2, 3072, u32::MAX)]
        {
            let mut frames = all(mm);
            let at =
                frames.iter().position(|frame| frame.first().0 == SECOND.0 + 1024 * taken + 500).unwrap();
            let stays = frames.swap_remove(at);
            give_back(mm, frames);
            let start = settled(mm);
            match mm.frames().alloc_contiguous(size, ANYWHERE) {
                Ok(piece) => {
                    assert_eq!(piece.first().0, SECOND.0 + first, "{size} beside block {taken}");
                    mm.frames().free_contiguous(piece);
                }
                Err(error) => assert_eq!((error, first), (Error::OutOfMemory, u32::MAX)),
            }
            assert_eq!(settled(mm), start);
            mm.frames().free(stays);
        }
    });
}

/// Anonymous pages and pages of a file in every block, so that no piece of a block is free.
fn littered<R>(work: impl FnOnce(&Mm<'_>, &dyn Fn(), quietmm::SpaceId) -> R) -> R {
    let host = Host::new(Setup { cpus: 2, disk: true, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        let host = mm.platform();
        let (shown, _file) = showing(mm, 150, &[1]);
        let space = own(mm, 450, &[0]);
        // Every fifth frame is to be had.
        let (near, far): (Vec<_>, Vec<_>) = all(mm).into_iter().partition(|frame| frame.first().0 % 5 == 0);
        give_back(mm, near);
        for i in 0..450 {
            host.on(0, || host.write(mm, space, AT + i, 7000 + i)).unwrap();
            if i < 150 {
                host.on(1, || host.write(mm, shown, AT + i, 9000 + i)).unwrap();
            }
        }
        mm.drain_lru_batches();
        give_back(mm, far);
        let check = || {
            for i in 0..450 {
                assert_eq!(host.on(0, || host.read(mm, space, AT + i)), Ok(7000 + i));
                if i < 150 {
                    assert_eq!(host.on(1, || host.read(mm, shown, AT + i)), Ok(9000 + i));
                }
            }
        };
        work(mm, &check, space)
    })
}

#[test]
fn pages_in_the_way_are_elsewhere_with_what_was_in_them() {
    littered(|mm, check, space| {
        let frame = |i: u64| mm.space(space).lookup(PageNumber(AT + i)).unwrap().frame();
        let blocks = |i: u64| (frame(i).0 - SECOND.0) / 1024;
        let used: std::collections::BTreeSet<_> = (0..450).map(blocks).collect();
        assert!(used.len() >= 3, "pages are everywhere");
        let (moved, started) = (mm.counter(Counter::PgMigrated), mm.counter(Counter::PswpOut));
        let piece = mm.frames().alloc_contiguous(2 * 1024 - 7, ANYWHERE).unwrap();
        let inside = piece.first().0..piece.first().0 + piece.frames();
        assert!((0..450).all(|i| !inside.contains(&frame(i).0)), "none is in the piece");
        let entry = |i: u64| mm.space(space).lookup(PageNumber(AT + i)).unwrap();
        assert!((0..450).all(|i| entry(i).permits(UserAccess::Write)), "no write faults for it");
        assert!(mm.counter(Counter::PgMigrated) - moved >= 100, "they have moved");
        assert_eq!(mm.counter(Counter::PswpOut), started, "and were not written out");
        check();
        assert_eq!(mm.validate().broken, None);
        mm.frames().free_contiguous(piece);
        check();
        assert_eq!(mm.validate().broken, None);
    });
}

/// Less is free than a piece has: pages leave memory for it.
#[test]
fn a_piece_is_had_where_less_is_free_than_it_has() {
    let host = Host::new(Setup::default());
    host.run(swapping("linux"), |mm| {
        let file = mm.file(mm.create_file(5000).unwrap());
        // What leads to its pages, which stays, lies together.
        let all = (0..5000).step_by(16).chain(0..5000);
        all.for_each(|page| _ = file.read(page * PAGE_SIZE, &mut [0; 8]).unwrap());
        assert!(mm.frames().available() < 1024);
        let piece = mm.frames().alloc_contiguous(1024, ANYWHERE).unwrap();
        assert_eq!(settled(mm).broken, None);
        mm.frames().free_contiguous(piece);
        assert_eq!(settled(mm).broken, None);
    });
}

/// Without swap nobody knows who shows a page of a space's own: no block that one lies in is tried, and nobody is interrupted for it.
#[test]
fn where_nothing_can_move_nothing_is_tried() {
    for swap in [false, true] {
        let host = Host::new(Setup { cpus: 2, frames: 8192, ..Setup::default() });
        host.run(Config { swap, ..swapping("linux") }, |mm| {
            let space = own(mm, 7400, &[0]);
            // Tables, which stay, lie together.
            let write = |i| host.on(0, || host.write(mm, space, AT + i, i)).unwrap();
            (0..7400).step_by(512).chain(0..7400).for_each(write);
            // Some go, and each block has others.
            (0..7400)
                .step_by(8)
                .for_each(|i| mm.space(space).advise(pages(AT + i, 1), Advice::Drop).unwrap());
            mm.drain_lru_batches();
            host.forget();
            let piece = mm.frames().alloc_contiguous(1024, ANYWHERE);
            let tried = host.count(|what| matches!(what, Happened::Event(Event::Drained { .. })));
            assert_eq!(tried > 0, swap, "{tried} blocks");
            match piece {
                Ok(piece) => mm.frames().free_contiguous(piece),
                Err(error) => assert_eq!((error, swap), (Error::OutOfMemory, false)),
            }
            assert_eq!(settled(mm).broken, None);
        });
    }
}

/// The control: what may not move keeps each piece from being had, and nothing is lost on the way.
#[test]
fn a_pinned_page_in_each_block_is_in_the_way_until_it_is_let_go() {
    littered(|mm, check, space| {
        let frame = |i: u64| mm.space(space).lookup(PageNumber(AT + i)).unwrap().frame();
        let one_of = |block: u32| {
            (0..450).find(|&i| frame(i).0 / 1024 == SECOND.0 / 1024 + block).expect("pages are everywhere")
        };
        let pins: Vec<_> = (0..3)
            .map(|block| {
                let page = PageRange::new(PageNumber(AT + one_of(block)), 1);
                mm.space(space).pin(page, UserAccess::Read, Term::Short).unwrap()
            })
            .collect();
        let free = mm.frames().available();
        assert_eq!(mm.frames().alloc_contiguous(1024, ANYWHERE), Err(Error::OutOfMemory));
        assert_eq!(mm.validate().broken, None);
        // What moved may have needed slots for the way: two frames.
        assert!(mm.frames().available() + 2 >= free);
        check();
        pins.into_iter().for_each(|pins| mm.unpin(pins));
        let piece = mm.frames().alloc_contiguous(1024, ANYWHERE).unwrap();
        check();
        mm.frames().free_contiguous(piece);
    });
}

/// Memory of a node that low devices reach, and as much above it.
fn two_zones() -> Setup {
    let zone = |n: u32| Region { start: FrameNumber(0xfc00 + 2048 * n), frames: 2048, node: NodeId(0) };
    Setup { cpus: 1, regions: Some(vec![zone(0), zone(1)]), ..Setup::default() }
}

#[test]
fn blocks_below_an_address_come_from_there_and_others_from_above() {
    let host = Host::new(two_zones());
    host.run(swapping("linux"), |mm| {
        let (frames, border) = (mm.frames(), 0xfc00 + 2048);
        let start = settled(mm);
        let other = frames.alloc(0, AllocFrom::NOW).unwrap();
        assert!(other.first().0 >= border, "low memory is kept for those who need it");
        for order in 0..=10 {
            let block = frames.alloc_below(order, below(border), AllocFrom::NOW).unwrap();
            assert!(block.first().0 + (1 << order) <= border && block.order() == order);
            frames.free(block);
        }
        for limit in [PhysAddr(below(border).0 - 1), PhysAddr(0)] {
            assert_eq!(frames.alloc_below(0, limit, AllocFrom::NOW), Err(Error::OutOfMemory));
        }
        assert_eq!(frames.alloc_below(11, below(border), AllocFrom::HERE), Err(Error::BadOrder(11)));
        let nowhere = AllocFrom { node: Some(NodeId(9)), may_reclaim: false };
        assert_eq!(frames.alloc_below(0, below(border), nowhere), Err(Error::NoSuchNode));
        frames.free(other);
        assert_eq!(settled(mm), start);
    });
}

/// Also where all is full, and something has to go.
#[test]
fn a_block_below_an_address_comes_from_the_node_that_was_asked_for() {
    let host = Host::new(two_nodes());
    host.run(swapping("linux"), |mm| {
        let file = mm.create_file(4096).unwrap();
        let read = |page: u64| _ = mm.file(file).read(page * PAGE_SIZE, &mut [0]).unwrap();
        // The nodes of its tree lie beside each other, in a block that stays.
        (0..4).for_each(|n| read(1024 * n));
        for node in [1, 0] {
            (0..4096).for_each(read);
            let from = |may_reclaim| AllocFrom { node: Some(NodeId(node)), may_reclaim };
            assert_eq!(mm.frames().alloc_below(10, ANYWHERE, from(false)), Err(Error::OutOfMemory));
            let block = mm.frames().alloc_below(10, ANYWHERE, from(true)).unwrap();
            assert_eq!(block.first().0 >= 0xfc00 + 2048, node == 1);
            mm.frames().free(block);
        }
    });
}

#[test]
fn pages_make_room_for_who_needs_memory_below_an_address() {
    let host = Host::new(two_zones());
    host.run(swapping("linux"), |mm| {
        let (host, frames, border) = (mm.platform(), mm.frames(), 0xfc00 + 2048);
        let (low, high): (Vec<_>, Vec<_>) = all(mm).into_iter().partition(|frame| frame.first().0 < border);
        let count = 400;
        // All of low memory is full: its second block of pages alone, the first one, which has the core's bookkeeping, of what their tables take too.
        let (mut second, mut first) =
            low.into_iter().partition::<Vec<_>, _>(|frame| frame.first().0 >= SECOND.0);
        give_back(mm, first.split_off(first.len() - 50));
        let space = own(mm, count, &[0]);
        [0, count - 1].into_iter().for_each(|i| host.write(mm, space, AT + i, i).unwrap());
        give_back(mm, second.split_off(second.len() - count as usize));
        (0..count).for_each(|i| host.write(mm, space, AT + i, i).unwrap());
        mm.drain_lru_batches();
        let left: Vec<_> = all(mm);
        assert!(left.iter().all(|frame| frame.first().0 < border));
        assert_eq!(frames.alloc_below(0, below(border), AllocFrom::NOW), Err(Error::OutOfMemory));
        give_back(mm, high);
        // Those who cannot wait get none, and those who can get any.
        assert_eq!(frames.alloc_below(0, below(border), AllocFrom::NOW), Err(Error::OutOfMemory));
        give_back(mm, left);
        give_back(mm, first);
        give_back(mm, second);
        let blocks: Vec<_> =
            std::iter::from_fn(|| frames.alloc_below(10, below(border), AllocFrom::HERE).ok()).collect();
        assert_eq!(blocks.len(), 1, "the other has the core's bookkeeping");
        assert_eq!(blocks[0].first(), SECOND);
        for inside in [SECOND, SECOND.add(1), SECOND.add(1023)] {
            assert_eq!(frames.free_at(inside, 0), Err(Error::NotAllocated(inside)));
        }
        assert!(mm.counter(Counter::PgMigrated) > 0, "pages were in its way");
        (0..count).for_each(|i| assert_eq!(host.read(mm, space, AT + i), Ok(i)));
        assert_eq!(mm.validate().broken, None);
        give_back(mm, blocks);
        assert_eq!(mm.validate().broken, None);
    });
}

/// Two want pieces at once, and there are blocks for both, of which each has one page in it.
#[test]
fn two_at_once_get_a_piece_each() {
    let setup = Setup { cpus: 2, ..Setup::default() };
    for n in (0..20_000).step_by(499) {
        at(&setup, &swapping("linux"), None, |mm| {
            let id = own(mm, 8, &[0]);
            (AT..AT + 8).for_each(|page| mm.platform().write(mm, id, page, page).unwrap());
            mm.drain_lru_batch();
            let first = std::cell::Cell::new(None);
            let piece = || mm.frames().alloc_contiguous(1024, ANYWHERE);
            let second = race(mm, Place::Touch(n), || first.set(Some(piece())), piece);
            let pieces =
                [first.take().unwrap(), second].map(|piece| piece.unwrap_or_else(|e| panic!("{n}: {e:?}")));
            assert_ne!(pieces[0].first(), pieces[1].first());
            pieces.into_iter().for_each(|piece| mm.frames().free_contiguous(piece));
            assert_eq!(settled(mm).broken, None);
        });
    }
}

/// A block of the region is on its way offline, for as long as the kernel likes.
#[test]
fn who_keeps_a_block_on_its_way_offline_is_not_waited_for_long() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let leaving = mm.frames().begin_offline(SECOND).unwrap();
        assert_eq!(mm.frames().alloc_contiguous(1024, ANYWHERE), Err(Error::OutOfMemory));
        assert!(host.pauses.borrow().iter().map(|&ns| u64::from(ns)).sum::<u64>() < 100_000_000);
        mm.frames().cancel_offline(leaving);
        let piece = mm.frames().alloc_contiguous(1024, ANYWHERE).unwrap();
        mm.frames().free_contiguous(piece);
    });
}

/// Whoever takes so much that memory runs short has it reclaimed for those who come next.
#[test]
fn a_piece_that_leaves_little_wakes_kswapd() {
    let host = Host::new(Setup::default());
    host.run(Config { min_free: None, ..bare("linux") }, |mm| {
        let woken = || mm.counter(Counter::KswapdWoken);
        let mut held = Vec::new();
        // Blocks stay whole as long as there are frames in the first one; then one of the three is taken for good.
        while mm.frames().available() > 1024 + Config::linux_min_free(4096) + 8 {
            held.push(mm.frames().alloc(0, AllocFrom::NOW).unwrap());
        }
        let before = woken();
        let piece = mm.frames().alloc_contiguous(1024, ANYWHERE).unwrap();
        assert_eq!(woken() - before, 1, "{} are free", mm.frames().available());
        mm.frames().free_contiguous(piece);
        give_back(mm, held);
    });
}

/// The second of two blocks turns out to be in use, by what cannot be moved: the first is as it was.
#[test]
fn a_piece_of_two_blocks_of_which_one_stays_gives_the_other_back() {
    let host = Host::new(Setup { cpus: 1, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        let id = own(mm, 1, &[0]);
        // Its table, and then its page in the middle of the three blocks.
        host.write(mm, id, AT, 1).unwrap();
        mm.space(id).advise(machine::pages(AT, 1), quietmm::Advice::Drop).unwrap();
        let (inside, rest): (Vec<_>, Vec<_>) =
            all(mm).into_iter().partition(|frame| frame.first().0 >> 10 == (SECOND.0 >> 10) + 1);
        give_back(mm, inside);
        host.write(mm, id, AT, 5).unwrap();
        let pins = mm.space(id).pin(machine::pages(AT, 1), UserAccess::Read, Term::Long).unwrap();
        assert_eq!(pins.frames()[0].0 >> 10, (SECOND.0 >> 10) + 1);
        give_back(mm, rest);
        let before = settled(mm);
        assert_eq!(mm.frames().alloc_contiguous(2048, ANYWHERE), Err(Error::OutOfMemory));
        assert_eq!(settled(mm), before);
        mm.unpin(pins);
        let piece = mm.frames().alloc_contiguous(2048, ANYWHERE).unwrap();
        mm.frames().free_contiguous(piece);
        assert_eq!(host.read(mm, id, AT), Ok(5));
    });
}

/// Memory below an address is kept for those who must not wait as all other memory is: the marks are the same.
#[test]
fn who_can_wait_leaves_memory_below_an_address_at_its_mark() {
    for (from, left) in [(AllocFrom::HERE, 100), (AllocFrom::NOW, 50)] {
        let host = Host::new(Setup { frames: 512, ..Setup::default() });
        host.run(Config { min_free: Some(100), ..bare("linux") }, |mm| {
            let anywhere = PhysAddr(u64::MAX);
            let held: Vec<_> =
                std::iter::from_fn(|| mm.frames().alloc_below(0, anywhere, from).ok()).collect();
            assert_eq!(mm.frames().available(), left);
            give_back(mm, held);
        });
    }
}

/// A node that would keep less than it should is asked for a piece only where no other has one that is free.
#[test]
fn a_piece_that_is_free_comes_from_a_node_that_keeps_enough() {
    at(&two_nodes(), &Config { min_free: Some(64), ..bare("linux") }, None, |mm| {
        let here = AllocFrom { node: Some(NodeId(0)), may_reclaim: false };
        let mut held = Vec::new();
        // What is left of the node is one block, and no frame besides.
        loop {
            let frame = mm.frames().alloc(0, here).unwrap();
            if frame.first() >= SECOND {
                break mm.frames().free(frame);
            }
            held.push(frame);
        }
        let piece = mm.frames().alloc_contiguous(1024, ANYWHERE).unwrap();
        assert!(piece.first() >= SECOND.add(1024), "{:?} is of the node that is short", piece.first());
        let other = mm.frames().alloc_contiguous(1024, ANYWHERE).unwrap();
        mm.frames().free_contiguous(piece);
        mm.frames().free_contiguous(other);
        give_back(mm, held);
    });
}

/// Somebody else has a block of the zone leave for a while: that is waited for, however often it takes a look.
#[test]
fn whoever_wants_a_piece_waits_until_no_block_of_its_zone_leaves() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let leaving = Rc::new(Cell::new(Some(mm.frames().begin_offline(SECOND).unwrap())));
        for look in 0..5 {
            let leaving = Rc::clone(&leaving);
            host.on_pause.borrow_mut().push_back(Box::new(move |mm| {
                if look == 4 {
                    leaving.take().into_iter().for_each(|leaving| mm.frames().cancel_offline(leaving));
                }
            }));
        }
        let piece = mm.frames().alloc_contiguous(2048, ANYWHERE).unwrap();
        assert!(host.on_pause.borrow().is_empty() && leaving.take().is_none());
        mm.frames().free_contiguous(piece);
    });
}

/// Pages would have to move for it, or go.
#[test]
fn who_cannot_wait_has_nothing_below_an_address_that_is_not_free() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(4096).unwrap();
        // The tree comes first, so that a block has nothing but pages.
        (0..4).for_each(|part| _ = mm.file(file).read(part * 1024 * PAGE_SIZE, &mut [0]).unwrap());
        mm.file(file).read_ahead(0, 4096).unwrap();
        let held = all(mm);
        let cached = mm.file(file).cached_pages().unwrap();
        assert!(cached > 3000, "{cached}");
        for order in [0, 3, 10] {
            assert_eq!(
                mm.frames().alloc_below(order, below(0x10c00), AllocFrom::NOW),
                Err(Error::OutOfMemory)
            );
        }
        assert_eq!(mm.file(file).cached_pages(), Ok(cached));
        // Who can has it.
        let block = mm.frames().alloc_below(10, below(0x10c00), AllocFrom::HERE).unwrap();
        give_back(mm, vec![block]);
        give_back(mm, held);
    });
}
