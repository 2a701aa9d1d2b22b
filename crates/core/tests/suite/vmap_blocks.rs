//! Small maps of kernel pages, from a block of each CPU.

use crate::machine;

use std::cell::{Cell, RefCell};

use machine::kernel::{BARE, RW, START, at, frames, free, host, kernel, next};
use machine::race::{at_every_touch, race};
use machine::{Mm, Setup};
use quietmm::{Error, FrameNumber, PageRange, VmapPlace};

#[test]
fn small_maps_come_from_a_block_of_each_cpu() {
    let host = host(2);
    host.run(kernel("linux", 1 << 16), |mm| {
        let list = frames(mm, 64);
        let [mine, other] = [0, 1].map(|cpu| host.on(cpu, || mm.vmap().map_ram(&list[..4], RW).unwrap()));
        assert_ne!(mine.start.0 / 1024, other.start.0 / 1024, "1024 pages each");
        assert_eq!(mm.vmap().map_ram(&list[..1], RW).unwrap().start, mine.end());
        host.forget();
        let mut used = Vec::new();
        for _ in 0..100 {
            let range = mm.vmap().map_ram(&list[..4], RW).unwrap();
            assert!(host.on(1, || host.read_kernel(next(range.start, 3))).is_some());
            assert!(!used.contains(&range.start), "a slot is used again before its flush");
            used.push(range.start);
            mm.vmap().unmap_ram(range).unwrap();
        }
        assert_eq!(host.interrupts(), 0);
        assert_eq!(mm.vmap().purge(), Ok(400));
        assert_eq!(host.interrupts_to(1), 1);
        // Its CPU looks what was flushed when its block is full.
        let mut live = Vec::new();
        let again = loop {
            let range = mm.vmap().map_ram(&list[..4], RW).unwrap();
            if used.contains(&range.start) {
                break range;
            }
            assert_eq!(range.start.0 / 1024, mine.start.0 / 1024, "the same block");
            live.push(range);
        };
        assert_eq!(again.start, used[0], "the slot has room again");
        assert!(live.len() < 1024 / 4);
        live.into_iter().for_each(|range| mm.vmap().unmap_ram(range).unwrap());
        // All sizes; none crosses a word's end, and none touches another.
        let mut live = Vec::new();
        for pages in (1..=64).chain(1..=64) {
            let range = mm.vmap().map_ram(&list[..pages], RW).unwrap();
            assert_eq!(range.pages, pages as u64);
            live.push(range);
        }
        live.sort_unstable_by_key(|range| range.start);
        assert!(live.windows(2).all(|pair| pair[0].end() <= pair[1].start));
        live.into_iter().for_each(|range| mm.vmap().unmap_ram(range).unwrap());
        mm.vmap().unmap_ram(mine).unwrap();
        mm.vmap().unmap_ram(other).unwrap();
        mm.vmap().unmap_ram(PageRange::new(mine.end(), 1)).unwrap();
        mm.vmap().unmap_ram(PageRange::new(used[0], 4)).unwrap();
        mm.vmap().unmap_aliases().unwrap();
        assert_eq!(host.kernel_stale.get(), 0);
        free(mm, list);
    });
}

#[test]
fn blocks_are_smaller_where_the_range_is_small_and_give_way_when_it_is_full() {
    let host = host(4);
    host.run(kernel("linux", 1024), |mm| {
        let list = frames(mm, 8);
        let all = [0, 1, 2, 3].map(|cpu| host.on(cpu, || mm.vmap().map_ram(&list, RW).unwrap()));
        assert!(all.iter().all(|range| range.start.0 - START.0 < 4 * 64 + 64), "64 pages each: {all:?}");
        for (cpu, range) in (0..4).zip(all) {
            host.on(cpu, || mm.vmap().unmap_ram(range).unwrap());
        }
        let whole = mm.vmap().map(&[list[0]; 1024], BARE, RW).unwrap();
        assert_eq!(mm.vmap().map_ram(&list, RW), Err(Error::NoAddress));
        mm.vmap().unmap(whole.start).unwrap();
        let range = mm.vmap().map_ram(&list, RW).unwrap();
        mm.vmap().unmap_ram(range).unwrap();
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
    });
}

#[test]
fn a_map_finds_room_in_whatever_block_there_is() {
    let host = host(2);
    host.run(kernel("linux", 256), |mm| {
        let list = frames(mm, 64);
        let hog = mm.vmap().map(&[list[0]; 64], BARE, RW).unwrap();
        let mut live: Vec<_> = std::iter::from_fn(|| mm.vmap().map_ram(&list[..8], RW).ok()).collect();
        assert!(live.len() >= 16, "{} maps", live.len());
        // Room in the middle of a block of CPU 0, found by CPU 1.
        let hole = live.remove(5);
        mm.vmap().unmap_ram(hole).unwrap();
        let found = host.on(1, || mm.vmap().map_ram(&list[..3], RW).unwrap());
        assert!(hole.contains(found.start), "{hole:?} {found:?}");
        live.push(found);
        live.into_iter().for_each(|range| mm.vmap().unmap_ram(range).unwrap());
        mm.vmap().unmap(hog.start).unwrap();
        assert_eq!(mm.vmap().map(&[list[0]; 256], BARE, RW), Ok(at(0, 256)));
        mm.vmap().unmap(START).unwrap();
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
    });
}

/// The next pages come behind `range`, in the same block; CPU 1 is offline, and comes back.
fn goes_on(mm: &Mm<'_>, range: PageRange, list: Vec<FrameNumber>) {
    let next = mm.vmap().map_ram(&list, RW).unwrap();
    assert_eq!(next.start, range.end(), "the same block");
    [range, next].into_iter().for_each(|range| mm.vmap().unmap_ram(range).unwrap());
    mm.platform().on(1, || mm.cpu_online().unwrap());
    mm.vmap().unmap_aliases().unwrap();
    free(mm, list);
}

#[test]
fn a_cpu_that_goes_offline_leaves_its_block_to_others() {
    let host = host(2);
    host.run(kernel("linux", 4096), |mm| {
        let list = frames(mm, 2);
        let range = host.on(1, || {
            let range = mm.vmap().map_ram(&list, RW).unwrap();
            mm.cpu_offline().unwrap();
            range
        });
        assert_eq!(mm.validate().broken, None);
        goes_on(mm, range, list);
    });
}

/// Where no other CPU is online the last one has its blocks still when it is back.
#[test]
fn the_last_cpu_that_goes_offline_keeps_its_block() {
    let host = host(2);
    host.run(kernel("linux", 4096), |mm| {
        let list = frames(mm, 2);
        host.on(1, || mm.cpu_offline().unwrap());
        let range = mm.vmap().map_ram(&list, RW).unwrap();
        mm.cpu_offline().unwrap();
        mm.cpu_online().unwrap();
        goes_on(mm, range, list);
    });
}

/// One CPU unmaps a slot of a full block while another looks for room in it: one of the two stands still at a place. What is found afterwards
/// waited for its flush: the CPU that had used it reads nothing that was there.
fn slots_unmapped_while_others_look(policy: &str, unmaps_first: bool) -> usize {
    let setup = Setup { cpus: 2, frames: 512, ..Setup::default() };
    let (maps, unmaps) = if unmaps_first { (1, 0) } else { (0, 1) };
    let cases = at_every_touch(&setup, &kernel(policy, 1024), None, |mm, place| {
        let (host, list) = (mm.platform(), frames(mm, 8));
        let map = || host.on(maps, || mm.vmap().map_ram(&list[..4], RW).unwrap());
        // Its block is full: some were unmapped and are flushed, one is in use elsewhere.
        let mut live: Vec<_> = (0..16).map(|_| map()).collect();
        let block = live[0].start.0 / 64;
        assert!(live.iter().all(|range| range.start.0 / 64 == block), "one block");
        let (flushed, used) = (live.remove(1), live.remove(8));
        mm.vmap().unmap_ram(flushed).unwrap();
        mm.vmap().purge().unwrap();
        assert!(host.on(unmaps, || host.read_kernel(used.start)).is_some());
        let more = RefCell::new(Vec::new());
        let look = || more.borrow_mut().push(map());
        let unmap = || mm.vmap().unmap_ram(used).unwrap();
        if unmaps_first {
            race(mm, place, unmap, look);
        } else {
            race(mm, place, look, unmap);
        }
        let mut more = more.into_inner();
        while more.last().is_some_and(|range| range.start.0 / 64 == block) {
            more.push(host.on(maps, || mm.vmap().map_ram(&list[4..], RW).unwrap()));
        }
        more.iter().for_each(|range| _ = host.on(unmaps, || host.read_kernel(range.start)));
        assert_eq!(host.kernel_stale.get(), 0, "{policy}: a slot is used again before its flush");
        live.into_iter().chain(more).for_each(|range| mm.vmap().unmap_ram(range).unwrap());
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
    });
    cases.results.len()
}

#[test]
fn a_slot_that_is_unmapped_while_others_look_for_room_waits_for_its_flush() {
    for policy in ["linux", "linux+vmap=sweep"] {
        for unmaps_first in [false, true] {
            let cases = slots_unmapped_while_others_look(policy, unmaps_first);
            assert!(cases > 20, "{policy}: {cases}");
        }
    }
}

/// A map of one page goes, and another comes beside it, while somebody asks what lies there, at every place: it is told of a map that there was.
#[test]
fn who_asks_what_lies_in_a_block_is_told_of_no_map_that_never_was() {
    let setup = Setup { cpus: 2, frames: 512, ..Setup::default() };
    let cases = at_every_touch(&setup, &kernel("linux", 1024), None, |mm, place| {
        let (host, list) = (mm.platform(), frames(mm, 2));
        let gone = host.on(1, || mm.vmap().map_ram(&list[..1], RW).unwrap());
        let (page, found) = (gone.end(), Cell::new(Err(Error::NoAddress)));
        let changes = || {
            mm.vmap().unmap_ram(gone).unwrap();
            mm.vmap().map_ram(&list, RW).unwrap()
        };
        let comes = race(mm, place, || found.set(mm.vmap().find(page)), changes);
        assert_eq!(comes.start, page, "the test is about a neighbour");
        let told = found.get();
        assert!(told == Ok(comes) || told == Err(Error::NotMapped(page)), "{place:?}: {told:?}");
        mm.vmap().unmap_ram(comes).unwrap();
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
    });
    assert!(cases.results.len() > 5);
}

/// Where a block was, and has gone back, other maps come: they are not taken for what was in it.
#[test]
fn what_comes_where_a_block_was_is_no_map_of_the_block() {
    let host = host(1);
    host.run(kernel("linux", 256), |mm| {
        let list = frames(mm, 8);
        let old = mm.vmap().map_ram(&list[..4], RW).unwrap();
        mm.vmap().unmap_ram(old).unwrap();
        let whole = mm.vmap().map(&[list[0]; 256], BARE, RW).unwrap();
        assert_eq!(mm.vmap().unmap_ram(old), Err(Error::WrongRelease(old.start)));
        assert_eq!(mm.vmap().find(old.start), Ok(whole));
        mm.vmap().unmap(whole.start).unwrap();
        mm.vmap().unmap_aliases().unwrap();
        assert_eq!(mm.vmap().unmap_ram(old), Err(Error::NotMapped(old.start)));
        free(mm, list);
    });
}

/// A hole of which something in its middle is taken needs two slots for what is left of it: whoever has only one left gets more first, and nothing is lost.
#[test]
fn a_hole_that_becomes_two_when_one_slot_is_left_is_lost_for_nobody() {
    for before in 0..2 {
        let host = host(1);
        host.run(kernel("linux", 4096), |mm| {
            let frames = frames(mm, 1);
            // Where a hole begins one slot is enough.
            let own: Vec<_> = (0..before).map(|_| mm.vmap().map(&frames, BARE, RW).unwrap()).collect();
            let aligned = VmapPlace { align: 16, ..BARE };
            let middle: Vec<_> = std::iter::from_fn(|| mm.vmap().map(&frames, aligned, RW).ok()).collect();
            assert_eq!(middle.len(), 256 - before, "each 16th page");
            assert_eq!(mm.validate().broken, None);
            own.iter().chain(&middle).for_each(|range| mm.vmap().unmap(range.start).unwrap());
            free(mm, frames);
        });
    }
}

/// A block of which a page is in use stays its CPU's where addresses are short, with all that is free in it.
#[test]
fn a_block_that_is_partly_in_use_keeps_what_is_free() {
    let host = host(2);
    host.run(kernel("linux", 4096), |mm| {
        let list = frames(mm, 64);
        let first = mm.vmap().map_ram(&list, RW).unwrap();
        let stays = mm.vmap().map_ram(&list[..1], RW).unwrap();
        assert_eq!(stays.start, first.end(), "in the next word of the block");
        mm.vmap().unmap_ram(first).unwrap();
        assert_eq!(mm.vmap().map(&[list[0]; 4096], BARE, RW), Err(Error::NoAddress));
        assert_eq!(mm.validate().broken, None);
        assert_eq!(mm.vmap().map_ram(&list, RW), Ok(first), "it was flushed, and is free");
        [first, stays].iter().for_each(|&range| mm.vmap().unmap_ram(range).unwrap());
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
    });
}

/// Wherever in a block there is room again, whoever maps next finds it, and makes no other block.
#[test]
fn room_in_any_word_of_a_block_is_found_again() {
    // 1024 pages of a block by 64 of a word.
    const WORDS: usize = 16;
    for word in [0, 1, 9, WORDS - 1] {
        host(1).run(kernel("linux", 1 << 16), |mm| {
            let list = frames(mm, 64);
            let mut maps: Vec<_> = (0..WORDS).map(|_| mm.vmap().map_ram(&list, RW).unwrap()).collect();
            mm.vmap().unmap_ram(maps[word]).unwrap();
            mm.vmap().unmap_aliases().unwrap();
            let again = mm.vmap().map_ram(&list, RW).unwrap();
            assert_eq!(again, maps[word], "word {word}");
            maps[word] = again;
            maps.into_iter().for_each(|range| mm.vmap().unmap_ram(range).unwrap());
            mm.vmap().unmap_aliases().unwrap();
            free(mm, list);
        });
    }
}
