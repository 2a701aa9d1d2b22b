//! Kernel pages that wait for a purge: who asks for it, who does it, and what is found when memory is short.

use crate::machine;

use machine::kernel::{BARE, RW, START, at, frames, free, host, kernel, next};
use machine::race::{at_every_touch, race};
use machine::swapping::take_free;
use machine::{Happened, Host, Setup, counted, exhaust, give_back, pages, ticks};
use quietmm::platform::Cpus;
use quietmm::{AllocFrom, Backing, Config, Counter, Error, Event, FrameNumber, PageRange, Prot};

#[test]
fn a_purge_is_asked_for_at_the_threshold_and_done_by_who_maps_at_twice_that() {
    let host = host(2);
    host.run(Config { vmap_lazy: Some(120), ..kernel("linux", 4096) }, |mm| {
        let list = frames(mm, 1);
        // A CPU tells the others what waits as it comes to half its share: 40 pages at a time.
        let once = || mm.vmap().unmap(mm.vmap().map(&[list[0]; 10], BARE, RW).unwrap().start).unwrap();
        (0..9).for_each(|_| once());
        assert_eq!(counted(mm, Counter::VmapPurgeWanted), 0);
        (0..10).for_each(|_| once());
        assert_eq!(counted(mm, Counter::VmapPurgeWanted), 1, "asked once");
        assert_eq!(mm.vmap().waits().unwrap().pages, 190);
        mm.vmap().purger().unwrap();
        assert_eq!(mm.vmap().waits().unwrap().pages, 0);
        (0..24).for_each(|_| once());
        assert_eq!(mm.vmap().waits().unwrap().pages, 240);
        once();
        assert_eq!(mm.vmap().waits().unwrap().pages, 10, "who maps has purged first");
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
    });
}

#[test]
fn the_threshold_follows_the_cpus_that_are_online() {
    let host = Host::new(Setup { cpus: 4, frames: 1024, ..Setup::default() });
    let config = Config { vmap_lazy: None, ..kernel("linux", 1 << 20) };
    host.run(config, |mm| {
        let list = frames(mm, 1);
        // 32 MiB for each doubling: of 4 CPUs three times, of one once.
        let asked_at = || {
            let mut pages = 0;
            let before = counted(mm, Counter::VmapPurgeWanted);
            while counted(mm, Counter::VmapPurgeWanted) == before {
                let range = mm.vmap().map(&[list[0]; 1024], BARE, RW).unwrap();
                mm.vmap().unmap(range.start).unwrap();
                pages += 1024;
            }
            mm.vmap().purge().unwrap();
            pages
        };
        assert_eq!(asked_at(), 3 * 8192);
        (1..4).for_each(|cpu| host.on(cpu, || mm.cpu_offline().unwrap()));
        assert_eq!(asked_at(), 8192);
        (1..4).for_each(|cpu| host.on(cpu, || mm.cpu_online().unwrap()));
        free(mm, list);
    });
}

#[test]
fn running_out_of_memory_leaves_everything_as_it_was() {
    for policy in ["vanilla", "linux"] {
        let host = Host::new(Setup { cpus: 1, frames: 512, ..Setup::default() });
        host.run(kernel(policy, 1 << 16), |mm| {
            let list = frames(mm, 1);
            let all = exhaust(mm);
            assert_eq!(mm.vmap().alloc(4, BARE, RW), Err(Error::OutOfMemory), "{policy}");
            assert_eq!(mm.vmap().map(&[list[0]; 1024], BARE, RW), Err(Error::OutOfMemory), "{policy}");
            assert_eq!(mm.vmap().map_ram(&list, RW), Err(Error::OutOfMemory), "{policy}");
            assert_eq!(mm.validate().broken, None, "{policy}");
            give_back(mm, all);
            let free_frames = mm.frames().available();
            assert_eq!(mm.vmap().alloc(free_frames, BARE, RW), Err(Error::OutOfMemory), "{policy}");
            assert_eq!(mm.validate().broken, None, "{policy}");
            assert_eq!(mm.vmap().map(&[list[0]; 1024], BARE, RW), Ok(at(0, 1024)), "nothing was taken");
            mm.vmap().unmap(START).unwrap();
            mm.vmap().unmap_aliases().unwrap();
            free(mm, list);
        });
    }
}

#[test]
fn frames_that_wait_cost_one_flush_for_many_while_other_memory_can_be_had() {
    let host = Host::new(Setup { cpus: 4, frames: 1024, ..Setup::default() });
    host.run(kernel("quiet+unmap=batch+vmap=lazy", 4096), |mm| {
        let (id, file) = (mm.create_space().unwrap(), mm.create_file(512).unwrap());
        let shown = Backing::File { file, offset: 0 };
        mm.space(id).map(pages(0x1000, 512), shown, Prot::ReadWrite).unwrap();
        mm.space(id).switch_to().unwrap();
        (0x1000..0x1200).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(0)));
        let held = take_free(mm);
        let before = (counted(mm, Counter::VmapPurges), counted(mm, Counter::IpisSent));
        for _ in 0..100 {
            let range = mm.vmap().alloc(1, BARE, RW).unwrap();
            mm.vmap().free(range.start).unwrap();
        }
        let purges = counted(mm, Counter::VmapPurges) - before.0;
        assert!((1..=100 / 32).contains(&purges), "{purges} purges");
        // Drains ask nobody with this policy, and only this CPU uses the space.
        assert_eq!(counted(mm, Counter::IpisSent) - before.1, purges * 3);
        // A batch of the file's pages goes between two looks.
        assert!(mm.vmap().waits().unwrap().frames <= 64);
        give_back(mm, held);
    });
}

#[test]
fn frames_that_wait_are_found_when_memory_is_short() {
    let host = Host::new(Setup { cpus: 2, frames: 512, ..Setup::default() });
    host.run(kernel("linux", 1 << 16), |mm| {
        let range = mm.vmap().alloc(100, BARE, RW).unwrap();
        let all = exhaust(mm);
        mm.vmap().free(range.start).unwrap();
        assert_eq!(mm.vmap().waits().unwrap().frames, 100);
        let one = mm.frames().alloc(0, AllocFrom::HERE).expect("reclaim purges");
        assert_eq!(mm.vmap().waits().unwrap().frames, 0);
        mm.frames().free(one);
        give_back(mm, all);
    });
}

/// The more CPUs are online, the more may wait for a purge: whoever comes back counts again.
#[test]
fn a_cpu_that_comes_back_lets_as_much_wait_as_before() {
    const PAGES: u64 = 512;
    let host = machine::kernel::host(4);
    let config = quietmm::Config { vmap_lazy: None, ..kernel("linux", 1 << 18) };
    host.run(config, |mm| {
        let taken = frames(mm, 1);
        let all = vec![taken[0]; PAGES as usize];
        let wanted_after = |times: u64| {
            mm.vmap().purge().unwrap();
            let before = mm.counter(Counter::VmapPurgeWanted);
            let mapped: Vec<_> = (0..times).map(|_| mm.vmap().map(&all, BARE, RW).unwrap()).collect();
            mapped.iter().for_each(|range| mm.vmap().unmap(range.start).unwrap());
            mm.counter(Counter::VmapPurgeWanted) - before
        };
        // 8192 pages for each doubling: three with four CPUs, two with three. And what a CPU has not told others of yet.
        let [less, more] = [5 * 4096 / PAGES, 7 * 4096 / PAGES];
        assert_eq!([less, more].map(wanted_after), [0, 1]);
        host.on(3, || mm.cpu_offline()).unwrap();
        assert_eq!(wanted_after(less), 1);
        host.on(3, || mm.cpu_online()).unwrap();
        assert_eq!([less, more].map(wanted_after), [0, 1]);
        free(mm, taken);
    });
}

/// As many pages as may be flushed one by one are; one more, and all is.
#[test]
fn kernel_pages_are_flushed_one_by_one_up_to_the_ceiling() {
    for policy in ["linux", "linux+vmap=eager"] {
        for (pages, flushes) in [(7, (0, 7)), (8, (0, 8)), (9, (1, 0))] {
            let host = host(2);
            host.run(Config { flush_ceiling: 8, ..kernel(policy, 64) }, |mm| {
                let list = frames(mm, pages);
                let range = mm.vmap().map(&list, BARE, RW).unwrap();
                host.forget();
                mm.vmap().unmap(range.start).unwrap();
                mm.vmap().unmap_aliases().unwrap();
                for cpu in [0, 1] {
                    assert_eq!(host.kernel_flushes(cpu), flushes, "{policy}, {pages} pages, CPU {cpu}");
                }
                free(mm, list);
            });
        }
    }
}

/// What was unmapped of a block while a purge went on waits for the next, whoever notes last for which one a slot waits.
#[test]
fn a_slot_that_was_given_back_during_a_purge_is_used_again_after_the_next() {
    let setup = Setup { cpus: 3, frames: 512, ..Setup::default() };
    let cases = at_every_touch(&setup, &kernel("linux", 512), None, |mm, place| {
        let (host, list) = (mm.platform(), frames(mm, 2));
        let [one, other] = [0, 1].map(|_| mm.vmap().map_ram(&list[..1], RW).unwrap());
        let reads = || host.on(2, || _ = host.read_kernel(other.start));
        reads();
        let unmap = |range| mm.vmap().unmap_ram(range).unwrap();
        race(
            mm,
            place,
            || unmap(one),
            || {
                mm.vmap().purge().unwrap();
                reads();
                unmap(other);
            },
        );
        // Until its slot comes round, or there is no room in the block.
        let block = |range: PageRange| (range.start.0 - one.start.0) / 64;
        let mut live = Vec::new();
        loop {
            let range = mm.vmap().map_ram(&list[1..], RW).unwrap();
            live.push(range);
            if range == other || block(range) > 0 {
                break;
            }
        }
        reads();
        live.into_iter().for_each(unmap);
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
        host.kernel_stale.get()
    });
    assert!(cases.results.len() > 20);
    assert_eq!(cases.count(|&stale| stale > 0), 0, "{:?}", cases.results);
}

/// Blocks that cannot be made for want of a page table leave nothing: how many frames the core keeps for itself in the end.
fn pools_after(refused: u32) -> u64 {
    let host = Host::new(Setup { frames: 512, ..Setup::default() });
    host.run(kernel("linux", 1 << 16), |mm| {
        let list = vec![frames(mm, 1)[0]; 64];
        let map = || mm.vmap().map_ram(&list, RW);
        let first = map().unwrap();
        // Up to the end of the first block: the next needs tables.
        let mut live: Vec<_> = (1..1024 / 64).map(|_| map().unwrap()).collect();
        assert!(live.iter().all(|range| range.start.0 - first.start.0 < 1024));
        let held = take_free(mm);
        for _ in 0..refused {
            assert_eq!(map(), Err(Error::OutOfMemory));
        }
        give_back(mm, held);
        live.extend([first, map().unwrap()]);
        let pools = mm.validate().pools;
        live.into_iter().for_each(|range| mm.vmap().unmap_ram(range).unwrap());
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list[..1].to_vec());
        pools
    })
}

#[test]
fn a_block_that_cannot_be_made_leaves_nothing() {
    assert_eq!(pools_after(40), pools_after(0));
}

/// The last frame that there is waits for a flush of kernel addresses: whoever wants one gets it.
#[test]
fn the_only_frame_that_waits_for_a_purge_can_be_had() {
    for policy in ["linux", "linux+vmap=sweep"] {
        let host = Host::new(Setup { cpus: 2, frames: 512, ..Setup::default() });
        host.run(kernel(policy, 1024), |mm| {
            let one = mm.vmap().alloc(1, BARE, RW).unwrap();
            let held = take_free(mm);
            mm.vmap().free(one.start).unwrap();
            let more = exhaust(mm);
            assert_eq!(more.len(), 1, "{policy}");
            give_back(mm, more);
            give_back(mm, held);
        });
    }
}

/// One CPU wants all addresses, and purges for that; another unmaps its part at each step of this. What was flushed since is free for whoever purged: nobody has to
/// purge again for it.
#[test]
fn what_a_purge_has_flushed_is_free_for_who_purged() {
    let setup = Setup { cpus: 2, frames: 512, ..Setup::default() };
    let cases = at_every_touch(&setup, &kernel("linux", 32), None, |mm, place| {
        let (host, list) = (mm.platform(), frames(mm, 1));
        // The last part: a flush of the others alone does not reach it.
        let parts: Vec<_> = (0..4).map(|_| mm.vmap().map(&[list[0]; 8], BARE, RW).unwrap()).collect();
        let mut starts: Vec<_> = parts.iter().map(|part| part.start).collect();
        starts.sort_unstable();
        let other = starts.remove(3);
        starts.into_iter().for_each(|start| mm.vmap().unmap(start).unwrap());
        host.forget();
        let mut got = None;
        let unmaps = || {
            mm.vmap().unmap(other).unwrap();
            host.forget();
        };
        race(mm, place, || got = Some(mm.vmap().map(&[list[0]; 32], BARE, RW)), unmaps);
        let covered = |what: &Happened| match *what {
            Happened::FlushKernelPage(0, page) => page == other.0,
            Happened::FlushKernel(cpu) => cpu == 0,
            _ => false,
        };
        let flushed = host.count(covered) > 0;
        let got = got.expect("it is through");
        assert!(got.is_ok() || !flushed, "{got:?}, and it was flushed");
        let whole = got.or_else(|_| mm.vmap().map(&[list[0]; 32], BARE, RW)).unwrap();
        mm.vmap().unmap(whole.start).unwrap();
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
        flushed
    });
    assert!(cases.results.iter().filter(|&&flushed| flushed).count() > 5, "{:?}", cases.results);
}

/// More is unmapped than may wait, at each step of a purge: either that covers it, or another is asked for.
#[test]
fn what_a_purge_does_not_cover_is_asked_for_again() {
    let setup = Setup { cpus: 2, frames: 512, ..Setup::default() };
    // In all there is, or with room beside.
    for (lazy, each, all) in [(32, 40, 128), (16, 20, 512)] {
        let config = Config { vmap_lazy: Some(lazy), ..kernel("linux", all) };
        let cases = at_every_touch(&setup, &config, None, |mm, place| {
            let list = frames(mm, 1);
            let part = || mm.vmap().map(&vec![list[0]; each], BARE, RW).unwrap().start;
            let [one, other] = [0; 2].map(|_| part());
            mm.vmap().unmap(one).unwrap();
            race(mm, place, || mm.vmap().purger().unwrap(), || mm.vmap().unmap(other).unwrap());
            let left = mm.vmap().waits().unwrap().pages;
            // It does not sleep.
            if left > 0 {
                mm.vmap().purger().unwrap();
            }
            assert_eq!(mm.vmap().waits().unwrap().pages, 0, "{place:?}");
            mm.vmap().unmap_aliases().unwrap();
            free(mm, list);
            left > 0
        });
        assert!(cases.count(|&left| left) > 0 && cases.count(|&left| !left) > 0);
    }
}

/// A sweep begins in the place of one that half of the CPUs have taken part in, and the other half takes part at each step of that: it is over when all have.
#[test]
fn a_sweep_in_the_place_of_another_counts_those_who_took_part_in_that_one() {
    let setup = Setup { cpus: 4, frames: 512, ..Setup::default() };
    let config = Config { vmap_lazy: Some(4), sweep_deadline: u64::MAX, ..kernel("linux+vmap=sweep", 64) };
    let cases = at_every_touch(&setup, &config, None, |mm, place| {
        let (host, list) = (mm.platform(), frames(mm, 1));
        let [one, other] = [0; 2].map(|_| mm.vmap().map(&list, BARE, RW).unwrap().start);
        let cached = |page| (0..4).filter(|&cpu| host.caches_kernel(cpu, page)).count();
        for page in [one, other] {
            (0..4).for_each(|cpu| host.on(cpu, || assert!(host.read_kernel(page).is_some())));
        }
        mm.vmap().unmap(one).unwrap();
        ticks(mm, &[0, 1]);
        assert_eq!((mm.vmap().waits().unwrap().pages, cached(one)), (1, 2));
        (0..2).for_each(|cpu| host.on(cpu, || assert!(host.read_kernel(other).is_some())));
        mm.vmap().unmap(other).unwrap();
        let over = || {
            ticks(mm, &[2, 3]);
            mm.vmap().waits().unwrap().pages == 0
        };
        let early = race(mm, place, || mm.vmap().unmap_aliases().unwrap(), || (over(), cached(other)));
        assert!(!early.0 || early.1 == 0, "it is over, and {} CPUs have it", early.1);
        assert_eq!((mm.vmap().waits().unwrap().pages, cached(other)), (0, 0));
        free(mm, list);
    });
    assert!(cases.results.len() > 20);
}

/// What was freed and waits for a flush keeps no memory from going offline.
#[test]
fn frames_that_wait_go_with_memory_that_goes_offline() {
    for policy in ["linux", "linux+vmap=sweep"] {
        let host = host(2);
        host.run(kernel(policy, 8192), |mm| {
            let all = mm.vmap().alloc(3000, BARE, RW).unwrap();
            let lies_in = |page| mm.vmap().frame_at(next(all.start, page)).unwrap().0 / 1024 * 1024;
            let count = |block: &FrameNumber| (0..all.pages).filter(|&page| lies_in(page) == block.0).count();
            let full = mm.frames().blocks().find(|block| count(block) == 1024).expect("of 3000 frames");
            mm.vmap().free(all.start).unwrap();
            let leaving = mm.frames().begin_offline(full).unwrap();
            let block = mm.frames().finish_offline(leaving).expect("nobody uses it");
            mm.frames().bring_online(block);
        });
    }
}

/// More was unmapped while a sweep was under way, so that the next begins as that one ends: each CPU takes part in that one too before it is over.
#[test]
fn a_sweep_that_begins_as_another_ends_asks_each_cpu_again() {
    let host = host(2);
    let config = Config { vmap_lazy: Some(8), sweep_deadline: u64::MAX, ..kernel("linux+vmap=sweep", 256) };
    host.run(config, |mm| {
        let list = frames(mm, 4);
        let [one, other] = [0; 2].map(|_| mm.vmap().map(&list, BARE, RW).unwrap().start);
        mm.vmap().unmap(one).unwrap();
        ticks(mm, &[1]);
        host.on(1, || assert!(host.read_kernel(other).is_some()));
        mm.vmap().unmap(other).unwrap();
        ticks(mm, &[0]);
        assert_eq!((counted(mm, Counter::KernelSweeps), mm.vmap().waits().unwrap().pages), (1, 4));
        // CPU 0 looks again and again, and CPU 1 has not flushed since.
        ticks(mm, &[0, 0, 0]);
        assert!(host.caches_kernel(1, other));
        assert_eq!(mm.vmap().waits().unwrap().pages, 4);
        ticks(mm, &[1, 0]);
        assert_eq!((host.caches_kernel(1, other), mm.vmap().waits().unwrap().pages), (false, 0));
        assert_eq!(counted(mm, Counter::KernelSweeps), 2);
        free(mm, list);
    });
}

/// A sweep ends while the purger is at work, at whatever place: what it leaves to be freed is freed by the purger.
#[test]
fn a_sweep_that_ends_while_the_purger_is_at_work_is_heard_of() {
    let setup = Setup { cpus: 2, frames: 512, ..Setup::default() };
    let config = Config { vmap_lazy: Some(8), sweep_deadline: u64::MAX, ..kernel("linux+vmap=sweep", 512) };
    let cases = at_every_touch(&setup, &config, None, |mm, place| {
        let [one, other] = [0; 2].map(|_| mm.vmap().alloc(8, BARE, RW).unwrap().start);
        mm.vmap().free(one).unwrap();
        ticks(mm, &[0, 1, 0]);
        mm.vmap().free(other).unwrap();
        ticks(mm, &[0]);
        race(mm, place, || mm.vmap().purger().unwrap(), || ticks(mm, &[1]));
        ticks(mm, &[0, 1]);
        let waits = mm.vmap().waits().unwrap().frames;
        if waits > 0 {
            // It does not sleep.
            mm.vmap().purger().unwrap();
        }
        assert_eq!(mm.vmap().waits().unwrap().frames, 0, "{place:?}");
        waits
    });
    assert!(cases.count(|&waits| waits > 0) > 0);
}

/// Frames that wait for their flush are counted, whichever CPUs freed them.
#[test]
fn frames_that_wait_are_those_of_all_cpus() {
    for policy in ["linux", "linux+vmap=sweep"] {
        let host = host(4);
        host.run(kernel(policy, 1024), |mm| {
            for cpu in 0..4 {
                host.on(cpu, || {
                    let range = mm.vmap().alloc(8 + u64::from(cpu), BARE, RW).unwrap();
                    mm.vmap().free(range.start).unwrap();
                });
            }
            let waits = mm.vmap().waits().unwrap();
            assert_eq!((waits.frames, waits.pages), (8 + 9 + 10 + 11, 8 + 9 + 10 + 11), "{policy}");
            mm.vmap().purge().unwrap();
            assert_eq!(mm.vmap().waits().unwrap().frames, 0, "{policy}");
        });
    }
}

/// Sweeps begin as four pages wait on one of two CPUs, and may take a second.
fn sweeping() -> Config {
    const SECOND: u64 = 1_000_000_000;
    Config { vmap_lazy: Some(8), sweep_deadline: SECOND, ..kernel("vanilla+drain=remote+vmap=sweep", 4096) }
}

/// How long a sweep has taken counts from its own beginning: nobody hastens it because the last one is long ago.
#[test]
fn a_sweep_is_late_by_its_own_beginning() {
    let host = host(2);
    host.run(sweeping(), |mm| {
        let list = frames(mm, 1);
        let once = || mm.vmap().unmap(mm.vmap().map(&[list[0]; 4], BARE, RW).unwrap().start).unwrap();
        once();
        ticks(mm, &[0, 1, 0]);
        assert_eq!(counted(mm, Counter::KernelSweeps), 1);
        host.clock.set(10_000_000_000);
        once();
        ticks(mm, &[0]);
        assert_eq!(counted(mm, Counter::VmapPurgeWanted), 0, "it has just begun");
        host.clock.set(12_000_000_000);
        ticks(mm, &[0]);
        assert_eq!(counted(mm, Counter::VmapPurgeWanted), 1);
        mm.vmap().purger().unwrap();
        assert_eq!(counted(mm, Counter::KernelSweepForced), 1);
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
    });
}

/// The purger is woken each time that there is something for it to free.
#[test]
fn a_purger_that_was_served_is_woken_again() {
    let host = host(2);
    host.run(sweeping(), |mm| {
        for nth in 1..=3 {
            let range = mm.vmap().alloc(4, BARE, RW).unwrap();
            mm.vmap().free(range.start).unwrap();
            ticks(mm, &[0, 1, 0]);
            assert_eq!(counted(mm, Counter::VmapPurgeWanted), nth);
            mm.vmap().purger().unwrap();
            assert_eq!(mm.vmap().waits().unwrap().frames, 0);
        }
    });
}

/// Frames that wait for a sweep are fewer than begin one, and as many as reclaim looks at in a batch. Where memory is short it begins, and nobody is interrupted while there are pages to be had.
#[test]
fn a_sweep_begins_for_frames_that_wait_where_memory_is_short() {
    let host = Host::new(Setup { cpus: 2, frames: 512, ..Setup::default() });
    host.run(Config { vmap_lazy: Some(400), ..sweeping() }, |mm| {
        let (id, file) = (mm.create_space().unwrap(), mm.create_file(64).unwrap());
        mm.space(id).map(pages(0x1000, 64), Backing::File { file, offset: 0 }, Prot::Read).unwrap();
        mm.space(id).switch_to().unwrap();
        (0x1000..0x1040).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(0)));
        mm.unload();
        mm.drain_lru_batch();
        let range = mm.vmap().alloc(100, BARE, RW).unwrap();
        let held = take_free(mm);
        mm.vmap().free(range.start).unwrap();
        ticks(mm, &[0, 1, 0]);
        assert_eq!(counted(mm, Counter::KernelSweeps), 0, "it is not enough");
        machine::swapping::reclaim(mm);
        assert_eq!(mm.vmap().waits().unwrap().frames, 100);
        ticks(mm, &[0, 1, 0]);
        assert_eq!((counted(mm, Counter::KernelSweeps), counted(mm, Counter::KernelSweepForced)), (1, 0));
        give_back(mm, held);
    });
}

/// Whichever of neighbours is unmapped first.
#[test]
fn a_purge_reaches_the_first_page_that_waits_and_the_last() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]] {
        let host = host(2);
        host.run(kernel("linux", 4096), |mm| {
            let list = frames(mm, 1);
            let mut starts = [(); 3].map(|()| mm.vmap().map(&list, BARE, RW).unwrap().start);
            starts.sort_unstable();
            assert_eq!([next(starts[0], 1), next(starts[0], 2)], starts[1..], "side by side");
            host.on(1, || starts.iter().for_each(|&start| assert!(host.read_kernel(start).is_some())));
            order.iter().for_each(|&page: &usize| mm.vmap().unmap(starts[page]).unwrap());
            assert_eq!(mm.vmap().purge(), Ok(3));
            assert_eq!(starts.map(|start| host.caches_kernel(1, start)), [false; 3], "{order:?}");
            free(mm, list);
        });
    }
}

/// Extents that a CPU has had for long go back a few at a time, by its next unmap: not by that of a handler, which may have come in the middle of a
/// search among the free ones.
#[test]
fn a_handler_that_unmaps_puts_back_nothing_else() {
    let host = host(1);
    host.run(kernel("linux", 4096), |mm| {
        let list = frames(mm, 1);
        let map = |pages| mm.vmap().map(&vec![list[0]; pages], BARE, RW).unwrap().start;
        let (many, others) = ([(); 8].map(|()| map(3)), [(); 4].map(|()| map(5)));
        let purge = || _ = mm.vmap().purge().unwrap();
        many.into_iter().for_each(|start| mm.vmap().unmap(start).unwrap());
        purge();
        for start in &others[..2] {
            mm.vmap().unmap(*start).unwrap();
            purge();
        }
        // Nobody has wanted one of that size since.
        (0..20).for_each(|_| purge());
        let returned = |start, in_handler: bool| {
            host.forget();
            if in_handler {
                host.irqs_off();
            }
            mm.vmap().unmap(start).unwrap();
            if in_handler {
                host.irqs_on();
            }
            host.count(|what| matches!(what, Happened::Event(Event::VmapReturned { .. })))
        };
        assert_eq!(returned(others[2], true), 0);
        assert!(returned(others[3], false) > 0, "what the handler has left");
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
    });
}

/// What waits for a flush is taken first; where that is enough nobody looks at a page.
#[test]
fn frames_that_a_purge_frees_spare_the_pages_of_files() {
    let host = Host::new(Setup { frames: 512, ..Setup::default() });
    host.run(Config { scan_batch: 8, ..kernel("linux", 4096) }, |mm| {
        let file = mm.create_file(32).unwrap();
        assert_eq!(mm.file(file).read_ahead(0, 32), Ok(32));
        mm.drain_lru_batch();
        let range = mm.vmap().alloc(16, BARE, RW).unwrap();
        let held = take_free(mm);
        mm.vmap().free(range.start).unwrap();
        let one = mm.frames().alloc(0, AllocFrom::HERE).unwrap();
        assert_eq!((counted(mm, Counter::PgScanDirect), mm.file(file).cached_pages()), (0, Ok(32)));
        mm.frames().free(one);
        give_back(mm, held);
    });
}
