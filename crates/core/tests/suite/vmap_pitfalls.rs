//! The faults that grown systems had with kernel virtual ranges, one test each, by the numbers of `docs/rules.md`: what is
//! to be expected of a sound core, and that the fault is seen when it is put back.

use crate::machine;

use std::cell::Cell;
use std::rc::Rc;

use machine::kernel::{BARE, RW, START, at, frames, free, kernel, next, room};
use machine::race::{at_every_touch, race};
use machine::{Happened, Host, Mm, Setup, everywhere_as, exhaust, give_back};
use quietmm::{AllocFrom, Config, Error, Event, FrameNumber, PageNumber, PageRange, Rule, VmapPlace};

fn host(cpus: u32, broken: Option<Rule>) -> Host {
    let host = Host::new(Setup { cpus, frames: 1024, ..Setup::default() });
    host.broken.set(broken);
    host
}

/// CPU 1 has used a page at an address that CPU 0 unmaps, and maps again to another frame. What CPU 1 then reads.
fn mapped_again(policy: &str, broken: Option<Rule>) -> (Option<u64>, u32) {
    let host = host(2, broken);
    host.run(kernel(policy, 64), |mm| {
        let list = frames(mm, 128);
        let fill = |i: usize, value| {
            let range = mm.vmap().map(&list[i..=i], BARE, RW).unwrap();
            assert!(host.write_kernel(range.start, value));
            range
        };
        let old = fill(0, 1);
        assert_eq!(host.on(1, || host.read_kernel(old.start)), Some(1));
        mm.vmap().unmap(old.start).unwrap();
        mm.vmap().unmap_aliases().unwrap();
        let new = fill(1, 2);
        assert_eq!(new, old, "the same address");
        let read = host.on(1, || host.read_kernel(new.start));
        mm.vmap().unmap(new.start).unwrap();
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
        (read, host.kernel_stale.get())
    })
}

#[test]
fn an_address_is_flushed_before_it_is_mapped_again() {
    for policy in ["vanilla", "linux"] {
        assert_eq!(mapped_again(policy, None), (Some(2), 0), "{policy}");
        let (read, stale) = mapped_again(policy, Some(Rule::FlushBeforeReuse));
        assert_eq!(
            (read, stale),
            (Some(2), 2),
            "{policy}: CPU 0 has written to the old frame, and CPU 1 reads it"
        );
    }
}

/// The same, where CPU 1 is lazy.
fn mapped_again_under_a_lazy_cpu(broken: Option<Rule>) -> Option<u64> {
    let host = host(2, broken);
    host.run(kernel("linux", 64), |mm| {
        let (list, id) = (frames(mm, 1), mm.create_space().unwrap());
        let range = mm.vmap().map(&list, BARE, RW).unwrap();
        host.on(1, || {
            mm.space(id).switch_to().unwrap();
            mm.enter_lazy();
            assert!(host.read_kernel(range.start).is_some(), "kernel threads run there");
        });
        mm.vmap().unmap(range.start).unwrap();
        mm.vmap().unmap_aliases().unwrap();
        let read = host.on(1, || host.read_kernel(range.start));
        host.on(1, || mm.unload());
        mm.space(id).destroy().unwrap();
        free(mm, list);
        read
    })
}

#[test]
fn a_lazy_cpu_is_flushed_before_a_kernel_address_is_free() {
    assert_eq!(mapped_again_under_a_lazy_cpu(None), None);
    assert!(mapped_again_under_a_lazy_cpu(Some(Rule::KernelFlushToLazy)).is_some());
}

/// CPU 1 goes offline with a kernel page in its TLB, and comes online at the `n`th touch of shared memory of the purge,
/// or, if there are fewer, after it. Whether it came in the middle, and what it reads then, once the purge is done.
fn comes_online(broken: Option<Rule>) -> Vec<(bool, Option<u64>)> {
    let setup = Setup { cpus: 3, frames: 512, ..Setup::default() };
    let case = |mm: &Mm<'_>, n| {
        let host = mm.platform();
        let list = frames(mm, 1);
        let range = mm.vmap().map(&list, BARE, RW).unwrap();
        host.on(1, || {
            assert!(host.read_kernel(range.start).is_some());
            mm.cpu_offline().unwrap();
        });
        mm.vmap().unmap(range.start).unwrap();
        host.at_touch(0, n, |mm| mm.platform().on(1, || mm.cpu_online().unwrap()));
        mm.vmap().unmap_aliases().unwrap();
        let came = host.all_placed();
        let read = host.on(1, || host.read_kernel(range.start));
        free(mm, list);
        (came, read)
    };
    let (results, stuck) = everywhere_as(&setup, &kernel("linux", 64), broken, case);
    assert_eq!(stuck, 0);
    assert!(results.len() > 10 && results.iter().all(|(came, _)| *came));
    results
}

#[test]
fn a_cpu_that_comes_online_in_the_middle_of_a_purge_misses_nothing() {
    assert!(comes_online(None).iter().all(|(_, read)| read.is_none()));
    let seen = comes_online(Some(Rule::OnlineFlushesKernel));
    assert!(seen.iter().any(|(_, read)| read.is_some()), "it was taken for offline, and has not flushed");
}

/// A block that is full; CPU 1 has used one of its maps, which is unmapped, and the aliases are flushed. What CPU 1 still
/// reads there.
fn alias_in_a_full_block(broken: Option<Rule>) -> Option<u64> {
    let host = host(2, broken);
    host.run(kernel("linux", 256), |mm| {
        let list = frames(mm, 4);
        let all: Vec<_> = (0..16).map(|_| mm.vmap().map_ram(&list, RW).unwrap()).collect();
        assert!(all.iter().all(|range| range.start.0 - START.0 < 64), "they fill the block");
        assert!(host.on(1, || host.read_kernel(all[7].start)).is_some());
        mm.vmap().unmap_ram(all[7]).unwrap();
        mm.vmap().unmap_aliases().unwrap();
        let read = host.on(1, || host.read_kernel(all[7].start));
        all.iter().filter(|range| **range != all[7]).for_each(|range| mm.vmap().unmap_ram(*range).unwrap());
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
        read
    })
}

#[test]
fn p21_a_block_that_is_full_and_partly_unmapped_is_flushed_too() {
    assert_eq!(alias_in_a_full_block(None), None);
    assert!(alias_in_a_full_block(Some(Rule::AliasesInFullBlocks)).is_some());
}

/// Two maps of one block are unmapped, a purge after each. The pages that each purge flushed.
fn flushed_one_by_one(broken: Option<Rule>) -> [u64; 2] {
    host(2, broken).run(kernel("linux", 256), |mm| {
        let list = frames(mm, 4);
        let [first, second] = [0, 1].map(|_| mm.vmap().map_ram(&list, RW).unwrap());
        let flushed = [first, second].map(|range| {
            mm.vmap().unmap_ram(range).unwrap();
            mm.vmap().purge().unwrap()
        });
        free(mm, list);
        flushed
    })
}

#[test]
fn p22_what_was_flushed_is_not_flushed_again() {
    assert_eq!(flushed_one_by_one(None), [4, 4]);
    assert_eq!(flushed_one_by_one(Some(Rule::ForgetWhatWasFlushed)), [4, 8]);
}

/// A purge that gives three extents back whose slots go to others at once, because somebody wants all 4096 pages. Whether
/// it gets them.
fn all_after_a_purge(broken: Option<Rule>) -> Result<PageRange, Error> {
    let host = host(1, None);
    host.run(kernel("linux", 4096), |mm| {
        let list = frames(mm, 1);
        let three = [0, 1, 2].map(|_| mm.vmap().map(&list, BARE, RW).unwrap());
        // As many slots are spare as may be, so that one that is left over goes back to the pool.
        assert_eq!(room(mm, list[0], 1), 4093);
        assert_eq!(mm.vmap().map(&[list[0]; 4096], BARE, RW), Err(Error::NoAddress));
        three.iter().for_each(|range| mm.vmap().unmap(range.start).unwrap());
        host.broken.set(broken);
        let all = mm.vmap().map(&[list[0]; 4096], BARE, RW);
        if let Ok(range) = all {
            mm.vmap().unmap(range.start).unwrap();
            mm.vmap().unmap_aliases().unwrap();
        }
        free(mm, list);
        all
    })
}

#[test]
fn p23_a_purge_reads_on_before_it_gives_a_slot_away() {
    assert_eq!(all_after_a_purge(None), Ok(at(0, 4096)));
    assert_eq!(all_after_a_purge(Some(Rule::NextBeforeRelease)), Err(Error::NoAddress), "the rest is lost");
}

/// CPU 1 purges at every touch of CPU 0's unmap. The largest number of pages that anybody was told of.
fn counted_while_purged(broken: Option<Rule>) -> u64 {
    let setup = Setup { cpus: 2, frames: 512, ..Setup::default() };
    // Each unmap is told to all at once.
    let config = Config { vmap_lazy: Some(4), ..kernel("linux", 256) };
    let (results, _) = everywhere_as(&setup, &config, broken, |mm, n| {
        let host = mm.platform();
        let list = frames(mm, 4);
        let (range, ram) = (mm.vmap().map(&list, BARE, RW).unwrap(), mm.vmap().map_ram(&list, RW).unwrap());
        let most = Rc::new(Cell::new(0));
        let seen = Rc::clone(&most);
        host.at_touch(0, n, move |mm| {
            mm.platform().on(1, || mm.vmap().purge().unwrap());
            seen.set(mm.vmap().waits().unwrap().pages);
        });
        mm.vmap().unmap(range.start).unwrap();
        mm.vmap().unmap_ram(ram).unwrap();
        if host.all_placed() {
            mm.vmap().purge().unwrap();
            assert_eq!(mm.vmap().waits().unwrap().pages, 0);
        }
        free(mm, list);
        most.get()
    });
    assert!(results.len() > 20, "{} cases", results.len());
    results.into_iter().max().unwrap_or(0)
}

#[test]
fn p24_what_waits_is_counted_before_it_can_be_purged() {
    assert!(counted_while_purged(None) <= 8);
    assert!(counted_while_purged(Some(Rule::CountBeforeWaiting)) > 1 << 60, "it is below zero");
}

/// All addresses wait, and CPU 1 is in the middle of purging them. CPU 0 wants one.
fn maps_during_a_purge(broken: Option<Rule>) -> Result<PageRange, Error> {
    let host = host(3, broken);
    host.run(kernel("linux", 64), |mm| {
        let list = frames(mm, 1);
        assert_eq!(room(mm, list[0], 1), 64);
        let (result, mine) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(None)));
        let found = Rc::clone(&mine);
        let frame = list[0];
        host.aside(
            0,
            || found.set(Some(mm.vmap().map(&[frame], BARE, RW))),
            |_| {
                host.hold_interrupts.set(true);
                host.on_pause.borrow_mut().push_back(Box::new(|mm| _ = mm.platform().resume()));
                host.on(1, || mm.vmap().unmap_aliases().unwrap());
                host.hold_interrupts.set(false);
            },
        );
        result.set(mine.get());
        if let Some(Ok(range)) = result.get() {
            mm.vmap().unmap(range.start).unwrap();
        }
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
        result.get().expect("CPU 0 has an answer")
    })
}

#[test]
fn p25_who_finds_no_address_waits_for_a_running_purge() {
    assert_eq!(maps_during_a_purge(None), Ok(at(0, 1)));
    assert_eq!(maps_during_a_purge(Some(Rule::WaitForPurge)), Err(Error::NoAddress));
}

/// There is no memory for the tables of a range; later there is.
fn mapped_after_a_failure(policy: &str, broken: Option<Rule>) -> Result<PageRange, Error> {
    host(1, broken).run(kernel(policy, 4096), |mm| {
        let list = frames(mm, 1);
        // The slots that an extent needs are there, so that only its tables are missing.
        let range = mm.vmap().map(&list, BARE, RW).unwrap();
        mm.vmap().unmap(range.start).unwrap();
        mm.vmap().unmap_aliases().unwrap();
        let all = exhaust(mm);
        assert_eq!(mm.vmap().map(&vec![list[0]; 2000], BARE, RW), Err(Error::OutOfMemory));
        assert_eq!(mm.vmap().alloc(1, BARE, RW), Err(Error::OutOfMemory));
        give_back(mm, all);
        let result = mm.vmap().map(&vec![list[0]; 4096], BARE, RW);
        if let Ok(range) = result {
            mm.vmap().unmap(range.start).unwrap();
            mm.vmap().unmap_aliases().unwrap();
        }
        free(mm, list);
        result
    })
}

#[test]
fn p26_what_fails_gives_its_addresses_back() {
    for policy in ["vanilla", "linux"] {
        assert_eq!(mapped_after_a_failure(policy, None), Ok(at(0, 4096)), "{policy}");
        let failed = mapped_after_a_failure(policy, Some(Rule::GiveBackWhatFailed));
        assert_eq!(failed, Err(Error::NoAddress), "{policy}");
    }
}

/// Every CPU has used a block or two, and unmapped all. Whether the whole range can be mapped then.
fn mapped_after_blocks(broken: Option<Rule>) -> Result<PageRange, Error> {
    let host = host(4, broken);
    host.run(kernel("linux", 1024), |mm| {
        let list = frames(mm, 8);
        let mut live = Vec::new();
        for cpu in 0..4 {
            host.on(cpu, || live.extend((0..12).map(|_| mm.vmap().map_ram(&list, RW).unwrap())));
        }
        // Not in order, so that each block is left with holes.
        for i in 0..7 {
            live.iter().skip(i).step_by(7).for_each(|range| mm.vmap().unmap_ram(*range).unwrap());
            mm.vmap().purge().unwrap();
        }
        let result = mm.vmap().map(&[list[0]; 1024], BARE, RW);
        if result.is_ok() {
            mm.vmap().unmap(START).unwrap();
            mm.vmap().unmap_aliases().unwrap();
        }
        free(mm, list);
        result
    })
}

#[test]
fn p27_blocks_in_which_nothing_is_mapped_give_their_addresses_back() {
    assert_eq!(mapped_after_blocks(None), Ok(at(0, 1024)));
    assert_eq!(mapped_after_blocks(Some(Rule::EmptyBlocksGoBack)), Err(Error::NoAddress));
}

/// CPU 1 has used a page of `vmalloc`. CPU 0 frees it, and takes frames for something else. What CPU 1 still reads, and
/// whether anybody else has its frame by then.
fn frame_used_elsewhere(broken: Option<Rule>) -> (Option<u64>, bool) {
    let host = host(2, broken);
    host.run(kernel("linux", 64), |mm| {
        let range = mm.vmap().alloc(1, BARE, RW).unwrap();
        let frame = mm.vmap().frame_at(range.start).unwrap();
        assert!(host.write_kernel(range.start, 1));
        assert_eq!(host.on(1, || host.read_kernel(range.start)), Some(1));
        mm.vmap().free(range.start).unwrap();
        let taken: Vec<_> = std::iter::from_fn(|| mm.frames().alloc(0, AllocFrom::NOW).ok()).collect();
        let reused = taken.iter().any(|block| block.first() == frame);
        let read = host.on(1, || host.read_kernel(range.start));
        give_back(mm, taken);
        mm.vmap().unmap_aliases().unwrap();
        assert_eq!(host.on(1, || host.read_kernel(range.start)), None, "who asks for no aliases gets none");
        let now = exhaust(mm);
        assert!(now.iter().any(|block| block.first() == frame), "and the frame is free");
        give_back(mm, now);
        (read, reused)
    })
}

#[test]
fn p28_a_frame_is_nobody_elses_while_an_old_mapping_is_there() {
    assert_eq!(frame_used_elsewhere(None), (Some(1), false));
    assert_eq!(frame_used_elsewhere(Some(Rule::FramesWaitForPurge)), (Some(1), true));
}

/// Two ranges of one page, each with a guard page, in four pages. Where they lie, and whether who writes beyond the end of
/// the first hits something.
fn beyond_the_end(policy: &str, broken: Option<Rule>) -> (u64, bool) {
    let host = host(1, broken);
    host.run(kernel(policy, 4), |mm| {
        let list = frames(mm, 2);
        let [first, second] = [0, 1].map(|i| mm.vmap().map(&list[i..=i], VmapPlace::ANYWHERE, RW).unwrap());
        assert_eq!((first.pages, second.pages), (1, 1));
        let hit = host.write_kernel(PageNumber(first.start.0 + 1), 7);
        [first, second].iter().for_each(|range| mm.vmap().unmap(range.start).unwrap());
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
        (second.start.0 - first.start.0, hit)
    })
}

#[test]
fn p29_a_guard_page_is_left_once() {
    for policy in ["vanilla", "linux"] {
        assert_eq!(beyond_the_end(policy, None), (2, false), "{policy}");
        assert_eq!(beyond_the_end(policy, Some(Rule::GuardPage)), (1, true), "{policy}");
    }
}

/// Only one hole is left, as long as what is wanted, and it lies well.
fn aligned_in_the_last_hole(broken: Option<Rule>) -> Result<PageRange, Error> {
    host(1, broken).run(kernel("linux", 256), |mm| {
        let list = frames(mm, 1);
        let wanted = |within| VmapPlace { within: Some(within), ..BARE };
        let [low, high] = [at(0, 64), at(128, 128)]
            .map(|part| mm.vmap().map(&vec![list[0]; part.pages as usize], wanted(part), RW));
        let result = mm.vmap().map(&[list[0]; 64], VmapPlace { align: 64, ..BARE }, RW);
        [low, high, result].into_iter().flatten().for_each(|range| mm.vmap().unmap(range.start).unwrap());
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
        result
    })
}

#[test]
fn p29_an_aligned_range_finds_the_only_hole() {
    assert_eq!(aligned_in_the_last_hole(None), Ok(at(64, 64)));
    assert_eq!(aligned_in_the_last_hole(Some(Rule::ExactFit)), Err(Error::NoAddress));
}

/// The most extents that a purge of 200 gives back under one hold of a lock.
fn longest_hold(broken: Option<Rule>) -> u32 {
    let host = host(1, broken);
    host.run(kernel("linux", 256), |mm| {
        let list = frames(mm, 1);
        assert_eq!(room(mm, list[0], 1), 256);
        host.forget();
        // Whoever finds no address purges, and makes all free that CPUs have in their caches.
        let all = mm.vmap().map(&[list[0]; 256], BARE, RW).unwrap();
        let held = |what: &Happened| match what {
            Happened::Event(Event::VmapReturned { extents }) => Some(*extents),
            _ => None,
        };
        let log = host.log.borrow();
        assert_eq!(log.iter().filter_map(held).sum::<u32>(), 256);
        let most = log.iter().filter_map(held).max().unwrap_or(0);
        drop(log);
        mm.vmap().unmap(all.start).unwrap();
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
        most
    })
}

#[test]
fn p30_a_purge_lets_go_of_its_lock_now_and_then() {
    assert_eq!(longest_hold(None), 32);
    assert_eq!(longest_hold(Some(Rule::BoundedHold)), 256);
}

/// At every touch of CPU 0's small map, CPU 1 takes the addresses of CPU 0's block, which is empty, and makes a block of
/// its own elsewhere. In how many cases CPU 0 then maps where CPU 1 has mapped.
fn block_taken_away(broken: Option<Rule>) -> usize {
    let setup = Setup { cpus: 2, frames: 512, ..Setup::default() };
    let (results, _) = everywhere_as(&setup, &kernel("linux", 256), broken, |mm, n| {
        let host = mm.platform();
        let list = frames(mm, 64);
        // CPU 0 has a block, and nothing in it.
        mm.vmap().unmap_ram(mm.vmap().map_ram(&list[..1], RW).unwrap()).unwrap();
        mm.vmap().purge().unwrap();
        let theirs = Rc::new(Cell::new(None));
        let (found, all) = (Rc::clone(&theirs), list.clone());
        host.at_touch(0, n, move |mm| {
            mm.platform().on(1, || {
                let there = VmapPlace { within: Some(at(0, 64)), ..BARE };
                let taken = mm.vmap().map(&all, there, RW).ok();
                let ram = mm.vmap().map_ram(&all[..2], RW).unwrap();
                found.set(Some((taken, ram)));
            });
        });
        let mine = mm.vmap().map_ram(&list[..3], RW);
        let placed = host.all_placed();
        let Ok(mine) = mine else {
            // With the rule broken: it has set entries where it had nothing, and finds no block there.
            return placed;
        };
        let (taken, ram) = theirs.get().unwrap_or((None, mine));
        let clash = [taken, Some(ram)].into_iter().flatten().any(|range| range.intersect(mine).is_some());
        if placed && broken.is_none() {
            mm.vmap().unmap_ram(mine).unwrap();
            mm.vmap().unmap_ram(ram).unwrap();
            taken.into_iter().for_each(|range| mm.vmap().unmap(range.start).unwrap());
            mm.vmap().unmap_aliases().unwrap();
        }
        clash && placed
    });
    assert!(results.len() > 10, "{} cases", results.len());
    results.into_iter().filter(|clash| *clash).count()
}

#[test]
fn p31_a_block_that_is_taken_away_between_choice_and_use_is_not_used() {
    assert_eq!(block_taken_away(None), 0, "not even an error");
    assert!(block_taken_away(Some(Rule::ClaimBeforeAddress)) > 0);
}

/// What requests that make no sense give.
fn nonsense(policy: &str, broken: Option<Rule>) -> [Result<(), Error>; 2] {
    let ask = |work: fn(&Mm<'_>) -> Result<PageRange, Error>| {
        host(1, broken).run(kernel(policy, 64), |mm| work(mm).map(|_| ()))
    };
    [
        ask(|mm| mm.vmap().map(&[], BARE, RW)),
        ask(|mm| mm.vmap().map(&[FrameNumber(0xfc00)], VmapPlace { align: 3, ..BARE }, RW)),
    ]
}

#[test]
fn p32_a_request_that_makes_no_sense_is_refused() {
    for policy in ["vanilla", "linux"] {
        assert_eq!(nonsense(policy, None), [Err(Error::BadRange), Err(Error::BadAlignment(3))], "{policy}");
        assert_eq!(nonsense(policy, Some(Rule::CheckRequest)), [Ok(()), Ok(())], "{policy}");
    }
}

/// Who unmaps a range, and stands still in the middle while another does so first and memory of the kernel's own comes to lie there, is told so: that
/// memory stays.
#[test]
fn an_unmap_that_comes_too_late_takes_nothing_away() {
    let setup = Setup { cpus: 2, frames: 512, ..Setup::default() };
    let cases = at_every_touch(&setup, &kernel("linux", 64), None, |mm, place| {
        let list = frames(mm, 64);
        let range = mm.vmap().map(&list, BARE, RW).unwrap();
        let late = Cell::new(None);
        let own = race(
            mm,
            place,
            || late.set(Some(mm.vmap().unmap(range.start))),
            || {
                let first = mm.vmap().unmap(range.start);
                mm.vmap().purge().unwrap();
                mm.vmap().alloc(64, BARE, RW).map(|own| (own, first.is_ok()))
            },
        );
        if let Ok((own, was_first)) = own {
            assert_ne!(late.get().expect("it has ended").is_ok(), was_first, "{place:?}");
            assert!((0..64).all(|page| mm.vmap().frame_at(next(own.start, page)).is_ok()), "{place:?}");
            mm.vmap().free(own.start).unwrap();
        }
        mm.vmap().purge().unwrap();
        free(mm, list);
        own.is_ok_and(|(_, was_first)| was_first)
    });
    assert!(cases.count(|&was_first| was_first) > 0);
}
