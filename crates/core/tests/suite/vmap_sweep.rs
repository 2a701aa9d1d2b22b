//! `vmap=sweep`: kernel addresses that were unmapped are free when each CPU has flushed by itself (INV-3). Who is interrupted,
//! and what is seen when a step is left out.

use crate::machine;

use machine::kernel::{BARE, RW, at, frames, free, kernel};
use machine::race::{at_every_touch, race};
use machine::{Host, Mm, Setup, counted, everywhere_as, exhaust, give_back, ticks};
use quietmm::{AllocFrom, Config, Counter, Error, FrameNumber, PageRange, Rule};

const SWEEP: &str = "vanilla+drain=remote+vmap=sweep";
const DEADLINE: u64 = 25_000_000;

fn setup(cpus: u32) -> Setup {
    Setup { cpus, frames: 1024, ..Setup::default() }
}

fn host(cpus: u32, broken: Option<Rule>) -> Host {
    let host = Host::new(setup(cpus));
    host.broken.set(broken);
    host
}

/// Sweeps begin as so many pages wait on a CPU.
fn config(cpus: u64, share: u64, pages: u64) -> Config {
    Config { vmap_lazy: Some(share * cpus), sweep_deadline: DEADLINE, ..kernel(SWEEP, pages) }
}

/// Maps a frame, and uses it on all these CPUs.
fn used(mm: &Mm<'_>, frame: FrameNumber, cpus: &[u16]) -> PageRange {
    let range = mm.vmap().map(&[frame], BARE, RW).unwrap();
    for &cpu in cpus {
        assert!(mm.platform().on(cpu, || mm.platform().read_kernel(range.start)).is_some());
    }
    range
}

/// Whether this CPU still has the page cached.
fn cached(mm: &Mm<'_>, cpu: u16, range: PageRange) -> bool {
    mm.platform().on(cpu, || mm.platform().caches_kernel(cpu, range.start))
}

/// A sweep that comes and goes, of which a share is unmapped.
fn first_sweep(mm: &Mm<'_>, share: usize, frame: FrameNumber) {
    let range = mm.vmap().map(&vec![frame; share], BARE, RW).unwrap();
    mm.vmap().unmap(range.start).unwrap();
    ticks(mm, &[0, 1, 0]);
}

fn sent(mm: &Mm<'_>) -> u64 {
    counted(mm, Counter::IpisSent)
}

#[test]
fn addresses_come_round_and_nobody_is_interrupted() {
    let host = host(4, None);
    host.run(config(4, 16, 256), |mm| {
        let list = frames(mm, 2);
        let mut seen = std::collections::BTreeSet::new();
        for n in 0..1000 {
            let range = used(mm, list[n % 2], &[0, 1, 2, 3]);
            assert!(host.write_kernel(range.start, n as u64));
            assert_eq!(host.on(3, || host.read_kernel(range.start)), Some(n as u64));
            seen.insert(range.start);
            mm.vmap().unmap(range.start).unwrap();
            if n % 8 == 7 {
                ticks(mm, &[(n / 8 % 4) as u16]);
            }
        }
        assert!(seen.len() < 200, "{} addresses for 1000 maps", seen.len());
        assert_eq!((sent(mm), host.kernel_stale.get()), (0, 0));
        let (sweeps, flushes) =
            (counted(mm, Counter::KernelSweeps), counted(mm, Counter::KernelSweepFlushes));
        assert!((10..=1000 / 16).contains(&sweeps), "{sweeps} sweeps");
        assert!(flushes <= (sweeps + 1) * 4, "{flushes} flushes in {sweeps} sweeps");
        assert_eq!(counted(mm, Counter::KernelSweepForced), 0);
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
    });
}

/// A page that CPU 1 has used is unmapped, and others until its address comes round, or none can be had; CPU 1 ticks now and
/// then. What it reads by what it had cached: whether that is stale.
fn comes_round(broken: Option<Rule>) -> bool {
    let host = host(2, broken);
    host.run(config(2, 4, 32), |mm| {
        let list = frames(mm, 2);
        first_sweep(mm, 4, list[0]);
        let old = used(mm, list[0], &[0, 1]);
        mm.vmap().unmap(old.start).unwrap();
        for n in 0..100 {
            let range = used(mm, list[1], &[0]);
            if n % 3 == 0 {
                ticks(mm, &[1]);
            }
            if range == old {
                break;
            }
            mm.vmap().unmap(range.start).unwrap();
        }
        host.on(1, || _ = host.read_kernel(old.start));
        host.kernel_stale.get() > 0
    })
}

#[test]
fn an_address_waits_for_a_sweep_in_which_every_cpu_has_flushed() {
    assert!(!comes_round(None));
    for rule in [Rule::NextKernelSweep, Rule::KernelSweepCountsAll, Rule::FlushBeforeKernelSwept] {
        assert!(comes_round(Some(rule)), "{rule}");
    }
}

/// The same where no CPU ticks, and a block's slots come round.
fn slot_comes_round(broken: Option<Rule>) -> bool {
    let host = host(2, broken);
    host.run(config(2, 4, 256), |mm| {
        let list = frames(mm, 2);
        first_sweep(mm, 4, list[0]);
        let old = mm.vmap().map_ram(&list[..1], RW).unwrap();
        assert!(host.on(1, || host.read_kernel(old.start)).is_some());
        mm.vmap().unmap_ram(old).unwrap();
        for _ in 0..600 {
            let range = mm.vmap().map_ram(&list[1..], RW).unwrap();
            assert!(host.read_kernel(range.start).is_some());
            if range == old {
                break;
            }
            mm.vmap().unmap_ram(range).unwrap();
        }
        host.on(1, || _ = host.read_kernel(old.start));
        host.kernel_stale.get() > 0
    })
}

#[test]
fn a_small_map_waits_for_a_sweep_too() {
    assert!(!slot_comes_round(None));
    for rule in [Rule::NextKernelSweep, Rule::KernelSweepCountsAll, Rule::FlushBeforeKernelSwept] {
        assert!(slot_comes_round(Some(rule)), "{rule}");
    }
}

#[test]
fn what_is_unmapped_while_a_sweep_goes_on_waits_for_the_next() {
    let host = host(2, None);
    host.run(config(2, 2, 64), |mm| {
        let list = frames(mm, 2);
        let all = [0; 3].map(|_| used(mm, list[0], &[0, 1]));
        let waits = || mm.vmap().waits().unwrap().pages;
        mm.vmap().unmap(all[0].start).unwrap();
        ticks(mm, &[0, 1]);
        assert_eq!((waits(), counted(mm, Counter::KernelSweepFlushes)), (1, 0), "nothing has begun");
        mm.vmap().unmap(all[1].start).unwrap();
        ticks(mm, &[1]);
        mm.vmap().unmap(all[2].start).unwrap();
        ticks(mm, &[0]);
        assert_eq!((waits(), counted(mm, Counter::KernelSweeps)), (1, 1));
        mm.vmap().purge().unwrap();
        assert_eq!((waits(), sent(mm)), (0, 1));
        assert!(all.iter().all(|&range| !cached(mm, 1, range)));
        free(mm, list);
    });
}

#[test]
fn a_lazy_cpu_counts_and_one_that_is_idle_or_offline_does_not() {
    let host = host(4, None);
    host.run(config(4, 1, 64), |mm| {
        let (list, id) = (frames(mm, 1), mm.create_space().unwrap());
        let range = used(mm, list[0], &[0, 1, 2, 3]);
        host.on(1, || {
            mm.space(id).switch_to().unwrap();
            mm.enter_lazy();
        });
        host.on(2, || mm.enter_idle());
        host.on(3, || mm.cpu_offline().unwrap());
        mm.vmap().unmap(range.start).unwrap();
        ticks(mm, &[0, 2, 0]);
        assert_eq!(mm.vmap().waits().unwrap().pages, 1, "the lazy one runs kernel threads");
        assert!(cached(mm, 1, range));
        ticks(mm, &[1, 0]);
        assert_eq!((mm.vmap().waits().unwrap().pages, sent(mm)), (0, 0));
        assert!(!cached(mm, 1, range), "it has flushed");
        assert!(cached(mm, 2, range) && cached(mm, 3, range), "nobody has asked them");
        host.on(2, || mm.leave_idle());
        host.on(3, || mm.cpu_online().unwrap());
        assert!(!cached(mm, 2, range) && !cached(mm, 3, range), "and now they have");
        // Once more, with nothing to be caught up with.
        let flushes = counted(mm, Counter::KernelSweepFlushes);
        host.on(2, || {
            mm.enter_idle();
            mm.leave_idle();
            mm.leave_idle();
        });
        assert_eq!(counted(mm, Counter::KernelSweepFlushes), flushes);
        host.on(1, || mm.unload());
        mm.space(id).destroy().unwrap();
        free(mm, list);
    });
}

/// CPU 0 unmaps what CPU 1 has used, takes part in the sweep, and maps another page there, while CPU 1 does `meanwhile` at each
/// place; in the end that one uses the address once more. How often it used anything stale.
fn used_in_the_middle(broken: Option<Rule>, before: fn(&Mm<'_>), meanwhile: fn(&Mm<'_>, PageRange)) -> usize {
    let cases = at_every_touch(&setup(2), &config(2, 1, 64), broken, |mm, place| {
        let host = mm.platform();
        let list = frames(mm, 2);
        first_sweep(mm, 1, list[0]);
        let old = used(mm, list[0], &[0, 1]);
        host.on(1, || before(mm));
        let comes_round = || {
            mm.vmap().unmap(old.start).unwrap();
            ticks(mm, &[0]);
            let new = used(mm, list[1], &[0]);
            mm.vmap().unmap(new.start).unwrap();
        };
        race(mm, place, comes_round, || meanwhile(mm, old));
        let new = used(mm, list[1], &[0]);
        host.on(1, || {
            mm.leave_idle();
            _ = host.read_kernel(old.start);
        });
        mm.vmap().unmap(new.start).unwrap();
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
        host.kernel_stale.get() > 0
    });
    cases.count(|&stale| stale)
}

fn idle_in_the_middle(broken: Option<Rule>) -> usize {
    used_in_the_middle(
        broken,
        |mm| mm.enter_idle(),
        |mm, old| {
            mm.leave_idle();
            _ = mm.platform().read_kernel(old.start);
            mm.enter_idle();
        },
    )
}

fn tick_in_the_middle(broken: Option<Rule>) -> usize {
    used_in_the_middle(
        broken,
        |_| {},
        |mm, old| {
            _ = mm.platform().read_kernel(old.start);
            ticks(mm, &[1]);
            _ = mm.platform().read_kernel(old.start);
        },
    )
}

#[test]
fn who_leaves_the_idle_loop_misses_no_sweep() {
    assert_eq!(idle_in_the_middle(None), 0);
    assert!(idle_in_the_middle(Some(Rule::IdleReturnSweep)) > 0);
}

/// CPU 1 goes offline with a kernel page in its TLB, and comes online at the `n`th touch of a purge. What it reads then.
fn online_in_the_middle(broken: Option<Rule>) -> Vec<Option<u64>> {
    let case = |mm: &Mm<'_>, n| {
        let host = mm.platform();
        let list = frames(mm, 1);
        let range = used(mm, list[0], &[1]);
        host.on(1, || mm.cpu_offline().unwrap());
        mm.vmap().unmap(range.start).unwrap();
        host.at_touch(0, n, |mm| mm.platform().on(1, || mm.cpu_online().unwrap()));
        mm.vmap().unmap_aliases().unwrap();
        host.all_placed();
        let read = host.on(1, || host.read_kernel(range.start));
        free(mm, list);
        read
    };
    let (results, stuck) = everywhere_as(&setup(3), &kernel(SWEEP, 64), broken, case);
    assert_eq!(stuck, 0);
    assert!(results.len() > 10);
    results
}

#[test]
fn a_cpu_that_comes_online_in_the_middle_of_a_sweep_misses_nothing() {
    assert!(online_in_the_middle(None).iter().all(Option::is_none));
    assert!(online_in_the_middle(Some(Rule::OnlineFlushesKernel)).iter().any(Option::is_some));
}

/// A sweep is under way, in which CPU 1 has taken part before it used a page; the page is unmapped. What CPU 1 reads after
/// `unmap_aliases`, and how many were asked.
fn certain(broken: Option<Rule>) -> (Option<u64>, u64) {
    let host = host(3, broken);
    host.run(config(3, 1, 64), |mm| {
        let list = frames(mm, 2);
        let first = used(mm, list[0], &[0]);
        mm.vmap().unmap(first.start).unwrap();
        ticks(mm, &[1]);
        let range = used(mm, list[1], &[1]);
        mm.vmap().unmap(range.start).unwrap();
        mm.vmap().unmap_aliases().unwrap();
        let asked = sent(mm);
        let read = host.on(1, || host.read_kernel(range.start));
        free(mm, list);
        (read, asked)
    })
}

#[test]
fn who_must_be_certain_waits_for_a_sweep_that_begins_then() {
    assert_eq!(certain(None), (None, 2), "one interrupt for each other CPU, though two sweeps end");
    assert!(certain(Some(Rule::AliasesBeginSweep)).0.is_some());
}

#[test]
fn who_takes_too_long_is_asked_and_nobody_else() {
    let host = host(4, None);
    host.run(config(4, 1, 64), |mm| {
        let list = frames(mm, 1);
        let range = used(mm, list[0], &[0, 1, 2, 3]);
        mm.vmap().unmap(range.start).unwrap();
        host.clock.set(DEADLINE);
        ticks(mm, &[0, 2]);
        assert_eq!(counted(mm, Counter::VmapPurgeWanted), 0, "it may take that long");
        host.clock.set(DEADLINE + 1);
        ticks(mm, &[3]);
        assert_eq!(counted(mm, Counter::VmapPurgeWanted), 1, "who asks them was woken");
        mm.vmap().purger().unwrap();
        assert_eq!((sent(mm), counted(mm, Counter::KernelSweepForced)), (1, 1), "CPU 1 does not tick");
        assert_eq!(mm.vmap().waits().unwrap().pages, 0);
        free(mm, list);
    });
}

#[test]
fn where_nobody_purges_who_maps_asks() {
    let host = host(3, None);
    host.run(config(3, 4, 4096), |mm| {
        let list = frames(mm, 1);
        let cycle = || {
            let range = used(mm, list[0], &[0, 1]);
            mm.vmap().unmap(range.start).unwrap();
        };
        (0..64).for_each(|_| cycle());
        assert_eq!((mm.vmap().waits().unwrap().pages, sent(mm)), (64, 0));
        host.clock.set(2 * DEADLINE + 1);
        ticks(mm, &[2]);
        assert_eq!(sent(mm), 0);
        (0..4).for_each(|_| cycle());
        assert_eq!((sent(mm), counted(mm, Counter::KernelSweepForced)), (1, 1));
        assert!(mm.vmap().waits().unwrap().pages < 64 + 4);
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
    });
}

#[test]
fn when_addresses_are_short_those_are_asked_that_have_not_taken_part() {
    let host = host(4, None);
    host.run(config(4, 8, 16), |mm| {
        let list = frames(mm, 1);
        let old = [0; 8].map(|_| used(mm, list[0], &[0, 1, 2, 3]));
        old.iter().for_each(|range| mm.vmap().unmap(range.start).unwrap());
        ticks(mm, &[0, 2]);
        assert_eq!(sent(mm), 0);
        // Half of the range waits for a sweep that CPUs 1 and 3 have not taken part in.
        let all = mm.vmap().map(&[list[0]; 16], BARE, RW).unwrap();
        assert_eq!((sent(mm), counted(mm, Counter::KernelSweepForced)), (2, 2));
        assert_eq!(mm.vmap().map(&list, BARE, RW), Err(Error::NoAddress));
        mm.vmap().unmap(all.start).unwrap();
        // Nothing has begun for these: all are asked.
        let before = sent(mm);
        let all = mm.vmap().map(&[list[0]; 16], BARE, RW).unwrap();
        assert!(sent(mm) - before <= 3);
        mm.vmap().unmap(all.start).unwrap();
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
    });
}

#[test]
fn frames_are_free_after_the_sweep_without_an_interrupt() {
    let host = host(3, None);
    host.run(config(3, 8, 4096), |mm| {
        let before = mm.frames().available();
        let range = mm.vmap().alloc(8, BARE, RW).unwrap();
        assert!(host.on(1, || host.read_kernel(range.start)).is_some());
        let tables = before - mm.frames().available() - 8;
        mm.vmap().free(range.start).unwrap();
        let waits = mm.vmap().waits().unwrap();
        assert_eq!((waits.pages, waits.frames), (8, 8));
        ticks(mm, &[0, 1]);
        assert_eq!(counted(mm, Counter::VmapPurgeWanted), 0);
        ticks(mm, &[2]);
        assert_eq!(counted(mm, Counter::VmapPurgeWanted), 1, "who frees them was woken");
        assert_eq!(mm.vmap().waits().unwrap().frames, 8, "they wait for him");
        assert!(before - mm.frames().available() >= 8 + tables);
        mm.vmap().purger().unwrap();
        assert_eq!(mm.vmap().waits().unwrap(), quietmm::Waits::default());
        assert_eq!((before - mm.frames().available(), sent(mm)), (tables, 0));
    });
}

#[test]
fn when_nothing_more_is_unmapped_no_sweep_begins_and_nobody_is_woken() {
    let host = host(2, None);
    host.run(config(2, 1, 64), |mm| {
        let list = frames(mm, 1);
        let range = mm.vmap().alloc(1, BARE, RW).unwrap();
        mm.vmap().free(range.start).unwrap();
        // More is unmapped while that sweep is under way: one more begins at its end, and no third.
        let range = used(mm, list[0], &[0, 1]);
        mm.vmap().unmap(range.start).unwrap();
        (0..10).for_each(|_| ticks(mm, &[0, 1]));
        assert_eq!(counted(mm, Counter::KernelSweeps), 2);
        mm.vmap().purger().unwrap();
        let woken = counted(mm, Counter::VmapPurgeWanted);
        // What is unmapped now has no frames that somebody has to free.
        let range = used(mm, list[0], &[0, 1]);
        mm.vmap().unmap(range.start).unwrap();
        ticks(mm, &[0, 1, 0]);
        assert_eq!(counted(mm, Counter::KernelSweeps), 3);
        assert_eq!(counted(mm, Counter::VmapPurgeWanted), woken);
        free(mm, list);
    });
}

/// CPU 0 asks for the next sweep, and at every place in the middle CPU 1 ends the one that is under way. Where it does so between a look
/// and a word nobody sees that word.
#[test]
fn a_sweep_that_was_asked_for_as_the_last_one_ended_begins_after_another_share() {
    let cases = at_every_touch(&setup(2), &config(2, 4, 256), None, |mm, place| {
        let list = frames(mm, 1);
        let share = |cpu| {
            mm.platform().on(cpu, || {
                let range = mm.vmap().map(&[list[0]; 4], BARE, RW).unwrap();
                mm.vmap().unmap(range.start).unwrap();
            });
        };
        share(1);
        ticks(mm, &[0]);
        race(mm, place, || share(0), || ticks(mm, &[1]));
        ticks(mm, &[0, 1, 0, 1]);
        let overlooked = counted(mm, Counter::KernelSweeps) == 1;
        share(0);
        ticks(mm, &[0, 1, 0, 1]);
        assert!(counted(mm, Counter::KernelSweeps) > 1, "{place:?}: no sweep begins");
        assert_eq!((mm.vmap().waits().unwrap().pages, sent(mm)), (0, 0), "{place:?}");
        free(mm, list);
        overlooked
    });
    assert!(cases.count(|&overlooked| overlooked) > 0, "of {}", cases.results.len());
}

#[test]
fn who_maps_looks_after_a_share_again_once_that_was_flushed() {
    let host = host(2, None);
    host.run(config(2, 16, 4096), |mm| {
        let list = frames(mm, 1);
        let once = || mm.vmap().unmap(mm.vmap().map(&[list[0]], BARE, RW).unwrap().start).unwrap();
        // CPU 1 lets the first sweep wait for long, and takes part in all others at once.
        (0..200).for_each(|_| once());
        ticks(mm, &[1, 0, 1, 0]);
        assert_eq!(mm.vmap().waits().unwrap().pages, 0);
        (0..16).for_each(|_| once());
        ticks(mm, &[1]);
        (0..8).for_each(|_| once());
        let waits = mm.vmap().waits().unwrap().pages;
        assert!(waits < 16, "{waits} pages wait: who maps has not looked whether the sweep is over");
        assert_eq!(sent(mm), 0);
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
    });
}

/// At each place in the middle its hardware walks to a page, as it may, and CPU 1 unmaps that, sweeps as far as it can, and maps
/// another.
#[test]
fn a_cpu_that_comes_online_counts_before_it_flushes() {
    let cases = at_every_touch(&setup(2), &config(2, 1, 64), None, |mm, place| {
        let host = mm.platform();
        let list = frames(mm, 2);
        let old = used(mm, list[0], &[1]);
        mm.cpu_offline().unwrap();
        let (walked, new) = race(
            mm,
            place,
            || mm.cpu_online().unwrap(),
            || {
                let walked = host.on(0, || host.read_kernel(old.start)).is_some();
                mm.vmap().unmap(old.start).unwrap();
                ticks(mm, &[1]);
                let new = used(mm, list[1], &[1]);
                (walked, new)
            },
        );
        _ = host.read_kernel(old.start);
        mm.vmap().unmap(new.start).unwrap();
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
        (walked, host.kernel_stale.get())
    });
    assert!(cases.count(|&(walked, _)| walked) > 0, "of {}", cases.results.len());
    assert_eq!(cases.count(|&(_, stale)| stale > 0), 0);
}

/// What waits for a sweep that is over is enough: nobody is asked to take part in the one that is under way.
#[test]
fn frames_whose_sweep_is_over_come_without_an_interrupt_while_another_is_under_way() {
    let host = host(3, None);
    host.run(config(3, 4, 256), |mm| {
        let goes = || {
            let range = mm.vmap().alloc(8, BARE, RW).unwrap();
            mm.vmap().free(range.start).unwrap();
        };
        goes();
        ticks(mm, &[0, 1, 2, 0]);
        goes();
        let waits = mm.vmap().waits().unwrap().frames;
        assert_eq!((counted(mm, Counter::KernelSweeps), waits), (1, 16), "the second is under way");
        let held: Vec<_> = std::iter::from_fn(|| mm.frames().alloc(0, AllocFrom::NOW).ok()).collect();
        let one = mm.frames().alloc(0, AllocFrom::HERE).unwrap();
        assert_eq!((counted(mm, Counter::KernelSweepForced), sent(mm)), (0, 0));
        mm.frames().free(one);
        give_back(mm, held);
        mm.vmap().unmap_aliases().unwrap();
    });
}

#[test]
fn frames_that_wait_are_found_when_memory_is_short() {
    let host = Host::new(Setup { cpus: 3, frames: 512, ..Setup::default() });
    host.run(config(3, 1 << 20, 1 << 16), |mm| {
        let range = mm.vmap().alloc(100, BARE, RW).unwrap();
        let all = exhaust(mm);
        mm.vmap().free(range.start).unwrap();
        let one = mm
            .frames()
            .alloc(0, AllocFrom::HERE)
            .expect("reclaim asks for a sweep, and for those that take no part");
        assert_eq!(mm.vmap().waits().unwrap().frames, 0);
        assert_eq!((sent(mm), counted(mm, Counter::KernelSweepForced)), (2, 2));
        mm.frames().free(one);
        give_back(mm, all);
    });
}

#[test]
fn a_tick_in_the_middle_of_an_unmap_does_not_count_for_it() {
    assert_eq!(tick_in_the_middle(None), 0);
    for rule in [Rule::NextKernelSweep, Rule::KernelSweepCountsAll, Rule::FlushBeforeKernelSwept] {
        assert!(tick_in_the_middle(Some(rule)) > 0, "{rule}");
    }
}

#[test]
fn all_of_the_range_comes_back() {
    let host = host(2, None);
    host.run(config(2, 8, 512), |mm| {
        let list = frames(mm, 1);
        for _ in 0..4 {
            let all: Vec<_> = (0..32).map(|_| mm.vmap().map(&[list[0]; 7], BARE, RW).unwrap()).collect();
            let rams: Vec<_> = (0..8).map(|_| mm.vmap().map_ram(&[list[0]; 3], RW).unwrap()).collect();
            let own: Vec<_> = (0..8).map(|_| mm.vmap().alloc(3, BARE, RW).unwrap()).collect();
            all.iter().for_each(|range| mm.vmap().unmap(range.start).unwrap());
            rams.iter().for_each(|range| mm.vmap().unmap_ram(*range).unwrap());
            own.iter().for_each(|range| mm.vmap().free(range.start).unwrap());
            assert_eq!(mm.validate().broken, None);
            ticks(mm, &[1]);
        }
        assert_eq!(mm.vmap().map(&[list[0]; 512], BARE, RW), Ok(at(0, 512)));
        mm.vmap().unmap(at(0, 1).start).unwrap();
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
    });
}

/// A sweep has come half round when one begins anew, for what was unmapped since: it asks each CPU again. CPU 1 takes part in it, and
/// looks whether it is over, before CPU 0 has.
#[test]
fn a_sweep_that_begins_anew_counts_nobody_who_had_taken_part_in_the_one_before() {
    let cases = at_every_touch(&setup(2), &config(2, 1, 64), None, |mm, place| {
        let list = frames(mm, 2);
        let first = used(mm, list[0], &[0, 1]);
        mm.vmap().unmap(first.start).unwrap();
        ticks(mm, &[0]);
        let range = used(mm, list[1], &[0, 1]);
        let late = std::cell::Cell::new(false);
        let purges = || {
            mm.vmap().unmap(range.start).unwrap();
            mm.vmap().unmap_aliases().unwrap();
            late.set(cached(mm, 0, range) || cached(mm, 1, range));
        };
        race(mm, place, purges, || ticks(mm, &[1]));
        free(mm, list);
        late.get()
    });
    assert!(cases.results.len() > 50);
    assert_eq!(cases.count(|&late| late), 0);
}

/// CPU 0 does something in which it flushes kernel addresses; at each place in that it has another page cached, which CPU 1 unmaps, and
/// waits until nobody has it. Whether CPU 0 has it in the end.
fn cached_in_the_middle(before: fn(&Mm<'_>), flushes: fn(&Mm<'_>)) -> usize {
    let cases = at_every_touch(&setup(2), &config(2, 1, 64), None, |mm, place| {
        let list = frames(mm, 2);
        let [first, other] = [0, 1].map(|n| used(mm, list[n], &[1]));
        before(mm);
        // A sweep begins.
        mm.platform().on(1, || mm.vmap().unmap(first.start).unwrap());
        race(
            mm,
            place,
            || flushes(mm),
            || {
                _ = mm.platform().on(0, || mm.platform().read_kernel(other.start));
                mm.vmap().unmap(other.start).unwrap();
                mm.vmap().unmap_aliases().unwrap();
            },
        );
        free(mm, list);
        cached(mm, 0, other)
    });
    assert!(cases.results.len() > 5);
    cases.count(|&late| late)
}

#[test]
fn who_flushes_counts_for_the_sweep_that_had_begun_before_it_did() {
    assert_eq!(cached_in_the_middle(|_| {}, |mm| ticks(mm, &[0])), 0, "a timer");
    assert_eq!(cached_in_the_middle(|mm| mm.enter_idle(), |mm| mm.leave_idle()), 0, "it was idle");
    assert_eq!(
        cached_in_the_middle(|mm| mm.cpu_offline().unwrap(), |mm| mm.cpu_online().unwrap()),
        0,
        "it was offline"
    );
}

/// CPUs that have never been online keep no sweep waiting, nor do they get an interrupt for it.
#[test]
fn a_cpu_that_was_never_there_keeps_no_sweep_waiting() {
    let host = Host::new(Setup { first_alone: true, ..setup(4) });
    host.run(config(4, 4, 1024), |mm| {
        let list = frames(mm, 1);
        for _ in 0..40 {
            let range = mm.vmap().map(&list, BARE, RW).unwrap();
            mm.vmap().unmap(range.start).unwrap();
            ticks(mm, &[0]);
        }
        assert!(counted(mm, Counter::KernelSweeps) > 2, "sweeps end");
        assert!(mm.vmap().waits().unwrap().pages < 20);
        mm.vmap().unmap_aliases().unwrap();
        assert_eq!(host.interrupts(), 0);
        free(mm, list);
    });
}

/// CPU 1 has unmapped something, for which a sweep is under way, and CPU 2 has it cached. CPU 0 asks that nobody has, and stands still at a touch; CPU 1 unmaps
/// something else, and stands still in the middle of that. Whether CPU 2 has it after CPU 0 is through, and whether the two places were there.
fn unmaps_in_the_middle_of_a_look((n, k): (u32, u32)) -> (bool, [bool; 2]) {
    let host = host(3, None);
    host.run(config(3, 4, 256), |mm| {
        let list = frames(mm, 4);
        let (other, old) = host.on(1, || (used(mm, list[0], &[1]), mm.vmap().map(&list, BARE, RW).unwrap()));
        assert!(host.on(2, || host.read_kernel(old.start)).is_some());
        host.on(1, || mm.vmap().unmap(old.start).unwrap());
        ticks(mm, &[0, 1]);
        let late = std::cell::Cell::new(false);
        let stop = |mm: &Mm<'_>| {
            if mm.platform().is_aside() {
                mm.platform().stop()
            }
        };
        let asks = || {
            mm.vmap().unmap_aliases().unwrap();
            late.set(cached(mm, 2, old));
        };
        let mut stood = [false; 2];
        host.place();
        host.aside(0, asks, |first| {
            host.at_touch(0, n, stop);
            stood[0] = host.resume();
            host.aside(
                1,
                || mm.vmap().unmap(other.start).unwrap(),
                |second| {
                    host.at_touch(1, k, stop);
                    stood[1] = host.resume();
                    // Where it waits for the other that goes on.
                    while host.resume_one(first) {
                        host.resume_one(second);
                    }
                },
            );
        });
        host.all_placed();
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
        (late.get(), stood)
    })
}

#[test]
fn who_must_be_certain_misses_nothing_that_moves_meanwhile() {
    let (mut cases, mut late) = (0, 0);
    for n in 0..60 {
        for k in 0..60 {
            let (is_late, stood) = unmaps_in_the_middle_of_a_look((n, k));
            cases += 1;
            late += u32::from(is_late);
            if stood != [true; 2] {
                break;
            }
        }
    }
    assert!(cases > 1000, "{cases} cases");
    assert_eq!(late, 0);
}
