//! `flush=broadcast`: hardware flushes all CPUs at the word of one, and nobody is interrupted.

use crate::machine;

use machine::faults::{AT, found, own, read_all, reclaim_all, run_in, showing};
use machine::kernel::{BARE, RW, frames, free, kernel};
use machine::race::{at, at_every_touch, race};
use machine::swapping::{reclaim, take_free};
use machine::{Host, Mm, Setup, bare, counted, everywhere_as, give_back, pages, pcp, ticks};
use quietmm::platform::Everywhere;
use quietmm::{Advice, Backing, Config, Counter, Error, PageNumber, Prot, Rule, SpaceId};

const POLICY: &str = "linux+flush=broadcast";

fn setup(cpus: u32) -> Setup {
    Setup { cpus, tags: 2, frames: 1024, broadcast: true, ..Setup::default() }
}

fn machine(cpus: u32, broken: Option<Rule>) -> Host {
    let host = Host::new(setup(cpus));
    host.broken.set(broken);
    host
}

/// All of these CPUs have cached `count` pages of a space.
fn used(mm: &Mm<'_>, id: SpaceId, count: u64, cpus: &[u16]) {
    for &cpu in cpus {
        mm.platform().on(cpu, || {
            (AT..AT + count).for_each(|page| mm.platform().write(mm, id, page, page).unwrap());
        });
    }
}

/// CPUs 0 to 3 have cached 4 pages; then CPU 2 is lazy, and CPU 3 runs in another space and has a tag for this one.
fn scattered(mm: &Mm<'_>) -> SpaceId {
    let host = mm.platform();
    let (id, other) = (own(mm, 4, &[0, 1, 2, 3]), mm.create_space().unwrap());
    used(mm, id, 4, &[0, 1, 2, 3]);
    host.on(2, || mm.enter_lazy());
    host.on(3, || mm.space(other).switch_to().unwrap());
    host.forget();
    id
}

#[test]
fn no_cpu_is_interrupted_and_none_is_left_behind() {
    type Operation = fn(&Mm<'_>, SpaceId);
    let operations: [(&str, Operation); 4] = [
        ("unmap", |mm, id| mm.space(id).unmap(pages(AT, 3)).unwrap()),
        ("protect", |mm, id| mm.space(id).protect(pages(AT, 3), Prot::None).unwrap()),
        ("drop", |mm, id| mm.space(id).advise(pages(AT, 3), Advice::Drop).unwrap()),
        ("flush", |mm, id| mm.space(id).flush_range(pages(AT, 3)).unwrap()),
    ];
    for (name, operation) in operations {
        let host = machine(4, None);
        host.run(bare(POLICY), |mm| {
            let id = scattered(mm);
            operation(mm, id);
            assert_eq!((host.interrupts(), mm.counter(Counter::IpisSent)), (0, 0), "{name}");
            let broadcasts = host.broadcasts();
            let [Everywhere::Pages { range, .. }] = broadcasts[..] else { panic!("{name}: {broadcasts:?}") };
            assert_eq!(range, pages(AT, 3), "{name}");
            assert_eq!(mm.counter(Counter::Broadcasts), 1, "{name}");
            // Whoever comes back finds that nothing was missed, and keeps what it had beside.
            host.on(2, || _ = mm.leave_lazy());
            host.on(3, || mm.space(id).switch_to().unwrap());
            for cpu in 0..4 {
                assert_eq!(host.flushes(cpu), (0, 0), "{name}: CPU {cpu}");
                assert!(host.caches(cpu, AT + 3), "{name}: CPU {cpu}");
                assert!((AT..AT + 3).all(|page| !host.caches(cpu, page)), "{name}: CPU {cpu}");
            }
            assert_eq!(host.stale.get(), 0, "{name}");
        });
    }
}

#[test]
fn more_than_the_ceiling_is_one_broadcast_of_the_space_and_of_no_other() {
    let host = machine(3, None);
    host.run(bare(POLICY), |mm| {
        let other = own(mm, 4, &[2]);
        used(mm, other, 4, &[2]);
        let id = own(mm, 40, &[0, 1]);
        used(mm, id, 40, &[0, 1]);
        host.forget();
        mm.space(id).flush_range(pages(AT, 33)).unwrap();
        assert!(matches!(host.broadcasts()[..], [Everywhere::Pages { .. }]), "{:?}", host.broadcasts());
        used(mm, id, 40, &[0, 1]);
        host.forget();
        mm.space(id).unmap(pages(AT, 34)).unwrap();
        assert!(matches!(host.broadcasts()[..], [Everywhere::Space { .. }]), "{:?}", host.broadcasts());
        assert!((AT..AT + 40).all(|page| !host.caches(0, page) && !host.caches(1, page)));
        assert!(host.caches(2, AT), "another space, at the same address");
    });
}

#[test]
fn who_would_interrupt_nobody_broadcasts_nothing() {
    let host = machine(3, None);
    host.run(bare(POLICY), |mm| {
        let id = own(mm, 8, &[0, 1]);
        used(mm, id, 8, &[0, 1]);
        // A lazy CPU catches up by itself, unless tables go.
        host.on(1, || mm.enter_lazy());
        host.forget();
        mm.space(id).protect(pages(AT, 2), Prot::Read).unwrap();
        assert_eq!((host.broadcasts().len(), host.interrupts(), host.flushes(0)), (0, 0, (0, 2)));
        host.on(1, || {
            mm.leave_lazy();
            assert_eq!(host.flushes(1), (1, 0));
        });
        host.on(1, || mm.unload());
        host.forget();
        mm.space(id).unmap(pages(AT, 2)).unwrap();
        assert_eq!((host.broadcasts().len(), host.interrupts(), host.flushes(0)), (0, 0, (0, 2)));
    });
}

#[test]
fn tables_go_without_an_interrupt_to_who_is_lazy_and_roots_with_one() {
    let host = machine(3, None);
    host.run(bare(POLICY), |mm| {
        let id = own(mm, 2, &[0, 1]);
        used(mm, id, 2, &[0, 1]);
        host.on(1, || mm.enter_lazy());
        host.forget();
        // The only pages: their tables go too. The machine looks who could walk them (INV-9).
        mm.space(id).unmap(pages(AT, 2)).unwrap();
        assert_eq!((host.broadcasts().len(), host.interrupts(), host.stale.get()), (1, 0, 0));
        host.on(1, || assert_eq!(mm.loaded_space(), Some(id), "it keeps the space"));
        mm.unload();
        host.forget();
        mm.space(id).destroy().unwrap();
        assert_eq!((host.broadcasts().len(), host.interrupts_to(1), host.stale.get()), (0, 1, 0));
        host.on(1, || assert_eq!(mm.loaded_space(), None));
    });
}

/// CPU 0 takes pages away that CPU 1 has cached; how often CPU 1 uses what is gone.
fn stale_after_unmap(broken: Option<Rule>) -> u32 {
    at(&setup(2), &bare(POLICY), broken, |mm| {
        let id = own(mm, 4, &[0, 1]);
        used(mm, id, 4, &[0, 1]);
        mm.space(id).unmap(pages(AT, 2)).unwrap();
        let host = mm.platform();
        host.on(1, || (AT..AT + 2).for_each(|page| _ = host.try_read(page)));
        host.stale.get()
    })
}

#[test]
fn what_is_flushed_is_waited_for() {
    assert_eq!(stale_after_unmap(None), 0);
    assert_eq!(stale_after_unmap(Some(Rule::SyncBroadcast)), 2);
}

/// Reclaim on CPU 0 has taken the entry of the first page out and not flushed it. CPU 1 does `then`, which flushes, and nothing
/// is left of what was deferred: nobody flushes for it again. How often CPU 2 then uses what is gone.
fn stale_after_deferral(broken: Option<Rule>, then: fn(&Mm<'_>, SpaceId)) -> u32 {
    let host = machine(3, broken);
    host.run(Config { page_lists: pcp(31), ..bare(POLICY) }, |mm| {
        let (id, _) = showing(mm, 32, &[1, 2]);
        [1, 2].iter().for_each(|&cpu| read_all(mm, id, cpu, 32));
        let (seen, result) = found();
        host.when_unmapped(id, AT, move |mm| {
            let host = mm.platform();
            assert!(host.caches(2, AT), "the window is open");
            host.on(1, || then(mm, id));
            host.forget();
            host.on(1, || mm.space(id).flush_range(pages(AT + 5, 1)).unwrap());
            assert!(matches!(host.broadcasts()[..], [Everywhere::Pages { .. }]), "nothing is left of it");
            host.on(2, || (AT..AT + 2).for_each(|page| _ = host.try_read(page)));
            seen.set(Some(host.stale.get()));
        });
        reclaim_all(mm);
        result()
    })
}

#[test]
fn a_broadcast_covers_what_reclaim_has_deferred() {
    let unmap = |mm: &Mm<'_>, id| mm.space(id).unmap(pages(AT, 2)).unwrap();
    assert_eq!(stale_after_deferral(None, unmap), 0);
    assert_eq!(stale_after_deferral(Some(Rule::DeferredWidensBroadcast), unmap), 1);
    // Of one page that was there, and of several.
    let unmap = |mm: &Mm<'_>, id| mm.space(id).unmap(pages(AT, 4)).unwrap();
    assert_eq!(stale_after_deferral(None, unmap), 0);
    assert_eq!(stale_after_deferral(Some(Rule::DeferredWidensBroadcast), unmap), 1);
}

#[test]
fn a_broadcast_of_a_space_covers_what_reclaim_has_deferred_too() {
    assert_eq!(stale_after_deferral(None, |mm, id| mm.space(id).flush().unwrap()), 0);
}

#[test]
fn a_batch_is_flushed_by_broadcast_of_its_spaces() {
    // The tables that reclaim leaves empty are none of its batches.
    let host = machine(4, Some(Rule::TablesBeforeVictim));
    host.run(Config { scan_batch: 8, ..bare(POLICY) }, |mm| {
        let (id, file) = showing(mm, 16, &[1, 2]);
        let second = mm.create_space().unwrap();
        mm.space(second).map(pages(AT, 16), Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
        run_in(mm, second, &[3]);
        [1, 2].iter().for_each(|&cpu| read_all(mm, id, cpu, 16));
        read_all(mm, second, 3, 16);
        host.forget();
        reclaim_all(mm);
        assert_eq!((host.interrupts(), host.stale.get()), (0, 0));
        let batches = mm.counter(Counter::BatchFlushes);
        assert!(batches >= 2);
        assert_eq!(host.broadcasts().len() as u64, 2 * batches, "two spaces each");
        [1, 2].iter().for_each(|&cpu| read_all(mm, id, cpu, 16));
    });
}

#[test]
fn a_batch_of_more_spaces_than_it_knows_flushes_all() {
    let cpus = 41;
    let host = machine(cpus, Some(Rule::TablesBeforeVictim));
    host.run(bare(POLICY), |mm| {
        let file = mm.create_file(1).unwrap();
        for cpu in 1..cpus as u16 {
            let id = mm.create_space().unwrap();
            mm.space(id).map(pages(AT, 1), Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
            run_in(mm, id, &[cpu]);
            read_all(mm, id, cpu, 1);
        }
        host.forget();
        reclaim_all(mm);
        let all = host.broadcasts();
        assert!(!all.is_empty() && all.iter().all(|what| *what == Everywhere::Spaces), "{all:?}");
        assert_eq!(host.interrupts(), 0);
        for cpu in 1..cpus as u16 {
            host.on(cpu, || assert_eq!(host.try_read(AT), None));
        }
        assert_eq!(host.stale.get(), 0);
    });
}

/// At every place of CPU 0's while it unmaps, CPU 1 comes to use the pages: how often it uses what is gone.
fn stale_beside(prepare: fn(&Mm<'_>, SpaceId), comes: fn(&Mm<'_>, SpaceId)) -> usize {
    let cases = at_every_touch(&setup(3), &bare(POLICY), None, |mm, place| {
        let host = mm.platform();
        let id = own(mm, 2, &[0, 1, 2]);
        used(mm, id, 2, &[0, 1, 2]);
        host.on(1, || prepare(mm, id));
        // CPU 1 uses what is being unmapped.
        host.uses_windows.set(true);
        race(
            mm,
            place,
            || mm.space(id).unmap(pages(AT, 1)).unwrap(),
            || {
                comes(mm, id);
                (AT..AT + 2).for_each(|page| _ = host.try_read(page));
            },
        );
        let before = host.stale.get();
        host.on(1, || assert_eq!(host.try_read(AT), None, "it is unmapped"));
        assert!(host.on(1, || host.try_read(AT + 1)).is_some());
        host.stale.get() > before
    });
    assert!(cases.results.len() > 10);
    cases.count(|&stale| stale)
}

#[test]
fn who_comes_in_the_middle_of_a_broadcast_misses_nothing() {
    let lazy = |mm: &Mm<'_>, _: SpaceId| mm.enter_lazy();
    assert_eq!(stale_beside(lazy, |mm, _| _ = mm.leave_lazy()), 0);
    let away = |mm: &Mm<'_>, _: SpaceId| {
        let other = mm.create_space().unwrap();
        mm.space(other).switch_to().unwrap();
    };
    assert_eq!(stale_beside(away, |mm, id| mm.space(id).switch_to().unwrap()), 0);
    let off = |mm: &Mm<'_>, _: SpaceId| {
        mm.cpu_offline().unwrap();
        mm.platform().off[1].set(true);
    };
    let on = |mm: &Mm<'_>, id: SpaceId| {
        mm.platform().off[1].set(false);
        mm.cpu_online().unwrap();
        mm.space(id).switch_to().unwrap();
    };
    assert_eq!(stale_beside(off, on), 0);
}

/// CPU 1 has used a kernel page, and is lazy; it is unmapped and mapped to another frame, which CPU 0 writes to. How
/// often they then use the old one.
fn stale_kernel_uses(broken: Option<Rule>) -> u32 {
    let host = machine(2, broken);
    host.run(kernel(POLICY, 64), |mm| {
        let (list, id) = (frames(mm, 2), own(mm, 1, &[1]));
        let fill = |i: usize, value| {
            let range = mm.vmap().map(&list[i..=i], BARE, RW).unwrap();
            assert!(host.write_kernel(range.start, value));
            range
        };
        let old = fill(0, 1);
        host.on(1, || {
            assert_eq!(host.read_kernel(old.start), Some(1));
            mm.enter_lazy();
        });
        mm.vmap().unmap(old.start).unwrap();
        mm.vmap().unmap_aliases().unwrap();
        assert_eq!(host.interrupts(), 0);
        let new = fill(1, 2);
        assert_eq!(new, old, "the same address");
        assert_eq!(host.on(1, || host.read_kernel(new.start)), Some(2));
        mm.vmap().unmap(new.start).unwrap();
        mm.vmap().unmap_aliases().unwrap();
        host.on(1, || mm.unload());
        mm.space(id).destroy().unwrap();
        free(mm, list);
        host.kernel_stale.get()
    })
}

#[test]
fn kernel_addresses_are_flushed_by_broadcast() {
    assert_eq!(stale_kernel_uses(None), 0);
    for rule in [Rule::BroadcastGlobals, Rule::SyncBroadcast] {
        assert_eq!(stale_kernel_uses(Some(rule)), 2, "{rule}");
    }
}

/// Where sweeps flush kernel addresses, whoever cannot wait for one has the hardware end it.
#[test]
fn a_sweep_of_kernel_addresses_is_ended_by_one_broadcast() {
    let host = machine(3, None);
    host.run(kernel("linux+vmap=sweep+flush=broadcast", 64), |mm| {
        let list = frames(mm, 8);
        for _ in 0..3 {
            let range = mm.vmap().map(&list, BARE, RW).unwrap();
            (0..3).for_each(|cpu| host.on(cpu, || assert!(host.read_kernel(range.start).is_some())));
            mm.vmap().unmap(range.start).unwrap();
            host.forget();
            mm.vmap().unmap_aliases().unwrap();
            assert!(matches!(host.broadcasts()[..], [Everywhere::Kernel]), "{:?}", host.broadcasts());
            assert_eq!(host.interrupts(), 0);
            assert!((0..3).all(|cpu| !host.caches_kernel(cpu, range.start)));
            assert_eq!(mm.vmap().purge().map(|_| mm.validate().broken), Ok(None));
        }
        free(mm, list);
    });
}

#[test]
fn a_long_run_of_kernel_pages_is_one_broadcast_of_all() {
    for (count, all) in [(32, false), (40, true)] {
        let host = machine(2, None);
        host.run(kernel(POLICY, 64), |mm| {
            let list = frames(mm, count);
            let range = mm.vmap().map(&list, BARE, RW).unwrap();
            mm.vmap().unmap(range.start).unwrap();
            host.forget();
            mm.vmap().unmap_aliases().unwrap();
            let broadcasts = host.broadcasts();
            let fits = match broadcasts[..] {
                [Everywhere::Kernel] => all,
                [Everywhere::KernelPages(flushed)] => !all && flushed == range,
                _ => false,
            };
            assert!(fits, "{broadcasts:?}");
            free(mm, list);
        });
    }
}

/// CPU 1 comes online at the `n`th touch of shared memory of a purge: what it can read of the page.
#[test]
fn a_cpu_that_comes_online_in_the_middle_of_a_purge_is_reached() {
    let (results, stuck) = everywhere_as(&setup(3), &kernel(POLICY, 64), None, |mm, n| {
        let host = mm.platform();
        let list = frames(mm, 1);
        let range = mm.vmap().map(&list, BARE, RW).unwrap();
        host.on(1, || {
            assert!(host.read_kernel(range.start).is_some());
            mm.cpu_offline().unwrap();
            host.off[1].set(true);
        });
        mm.vmap().unmap(range.start).unwrap();
        host.at_touch(0, n, |mm| {
            mm.platform().off[1].set(false);
            mm.platform().on(1, || mm.cpu_online().unwrap());
        });
        mm.vmap().unmap_aliases().unwrap();
        host.all_placed();
        let read = host.on(1, || host.read_kernel(range.start));
        free(mm, list);
        read
    });
    assert_eq!(stuck, 0);
    assert!(results.len() > 5 && results.iter().all(Option::is_none));
}

#[test]
fn without_the_hardware_it_is_refused_or_cpus_are_interrupted() {
    let host = Host::new(Setup { broadcast: false, ..setup(2) });
    let refused = Error::GuaranteeMissing { policy: "flush=broadcast", guarantee: "broadcast" };
    assert_eq!(host.make(bare(POLICY)).err(), Some(refused));
    for (policy, broadcast, asked) in
        [("quiet", false, (1, 0)), ("quiet", true, (0, 1)), ("quiet+flush=ipi", true, (1, 0))]
    {
        let host = Host::new(Setup { broadcast, ..setup(2) });
        host.run(bare(policy), |mm| {
            let id = own(mm, 4, &[0, 1]);
            used(mm, id, 4, &[0, 1]);
            host.forget();
            mm.space(id).unmap(pages(AT, 2)).unwrap();
            assert_eq!((host.interrupts(), host.broadcasts().len()), asked, "{policy}");
            assert!(mm.space(id).lookup(PageNumber(AT + 2)).unwrap().is_present());
        });
    }
}

/// CPU 1 has a page cached. CPU 0 needs all memory, twice, and no timer fires. Interrupts; sweeps; how often CPU 1 uses what is gone.
fn swept(policy: &str, broken: Option<Rule>) -> (u64, u64, u32) {
    let config = Config { page_lists: pcp(1), lru_batch: 1, scan_batch: 4, ..bare(policy) };
    at(&Setup { frames: 512, ..setup(3) }, &config, broken, |mm| {
        let host = mm.platform();
        let (id, _) = showing(mm, 4, &[1, 2]);
        [1, 2].iter().for_each(|&cpu| read_all(mm, id, cpu, 4));
        host.on(2, || mm.enter_lazy());
        let before = mm.counter(Counter::IpisSent);
        reclaim_all(mm);
        let seen = |cpu| host.on(cpu, || (AT..AT + 4).for_each(|page| _ = host.try_read(page)));
        seen(1);
        host.on(2, || _ = mm.leave_lazy());
        seen(2);
        (mm.counter(Counter::IpisSent) - before, mm.counter(Counter::Sweeps), host.stale.get())
    })
}

#[test]
fn a_sweep_that_is_waited_for_is_one_broadcast() {
    let (sent, sweeps, stale) = swept("quiet", None);
    assert!(sweeps > 0);
    assert_eq!((sent, stale), (0, 0));
    let (sent, _, stale) = swept("quiet+flush=ipi", None);
    assert!(sent > 0, "nobody ticks");
    assert_eq!(stale, 0);
    assert!(swept("quiet", Some(Rule::SyncBroadcast)).2 > 0);
}

/// The next sweep asks each CPU, also those that had taken part in the one that the hardware ended.
#[test]
fn a_sweep_after_one_that_the_hardware_has_ended_counts_every_cpu() {
    let host = machine(3, None);
    let config =
        Config { vmap_lazy: Some(3), sweep_deadline: 1000, ..kernel("linux+vmap=sweep+flush=broadcast", 64) };
    host.run(config, |mm| {
        let list = frames(mm, 1);
        let unmapped = || {
            let range = mm.vmap().map(&list, BARE, RW).unwrap();
            (0..3).for_each(|cpu| host.on(cpu, || assert!(host.read_kernel(range.start).is_some())));
            mm.vmap().unmap(range.start).unwrap();
            range
        };
        let waits = || mm.vmap().waits().unwrap().pages;
        for (nth, first) in (1..).zip([&[0_u16][..], &[0, 1]]) {
            unmapped();
            machine::ticks(mm, first);
            host.clock.set(host.clock.get() + 1001);
            machine::ticks(mm, &[2]);
            if waits() > 0 {
                mm.vmap().purger().unwrap();
            }
            assert_eq!(waits(), 0);
            let range = unmapped();
            machine::ticks(mm, &[2, 1]);
            assert_eq!((waits(), host.caches_kernel(0, range.start)), (1, true), "CPU 0 has not flushed");
            machine::ticks(mm, &[0]);
            assert_eq!((waits(), host.caches_kernel(0, range.start)), (0, false));
            assert_eq!(mm.counter(Counter::KernelSweeps), 2 * nth, "one of two by the hardware");
        }
        free(mm, list);
    });
}

/// A broadcast ends the sweep that had begun, and is none for the next.
#[test]
fn a_broadcast_counts_for_the_sweep_before_it_and_not_for_the_next() {
    let host = machine(2, None);
    host.run(Config { sweep_deadline: 0, ..bare("linux+free=sweep+flush=broadcast") }, |mm| {
        let id = own(mm, 3, &[0, 1]);
        for cpu in [1, 0] {
            host.on(cpu, || {
                (AT..AT + 3).for_each(|page| host.write(mm, id, page, 1).unwrap());
                mm.drain_lru_batch();
            });
        }
        mm.space(id).unmap(pages(AT, 1)).unwrap();
        assert_eq!(mm.counter(Counter::Parked), 1);
        // Memory is short: whoever wants some waits for the sweep.
        machine::give_back(mm, machine::exhaust(mm));
        assert!(host.broadcasts().contains(&Everywhere::Spaces), "{:?}", host.broadcasts());
        assert!(mm.sweep_is_over());
        host.forget();
        machine::ticks(mm, &[1]);
        assert_eq!(host.flushes(1), (0, 0), "the hardware has done its part");
        mm.begin_sweep();
        for cpu in [0, 1] {
            assert!(!mm.sweep_is_over(), "CPU {cpu} has not flushed");
            machine::ticks(mm, &[cpu]);
        }
        assert!(mm.sweep_is_over());
        [0, 1].into_iter().for_each(|cpu| host.on(cpu, || mm.unload()));
        mm.space(id).destroy().unwrap();
    });
}

/// CPU 0 has the hardware end a sweep; at each step of that the others end it by themselves, and begin the next. That one is not over until CPU 2, which does
/// nothing, has been flushed since it began.
#[test]
fn a_broadcast_ends_no_sweep_that_began_after_it() {
    let config = Config { sweep_deadline: 0, ..bare("linux+free=sweep+flush=broadcast") };
    let cases = at_every_touch(&Setup { frames: 512, ..setup(3) }, &config, None, |mm, place| {
        let host = mm.platform();
        let id = own(mm, 3, &[0, 1, 2]);
        used(mm, id, 3, &[0, 1, 2]);
        mm.space(id).unmap(pages(AT, 1)).unwrap();
        let held = take_free(mm);
        let begun = || counted(mm, Counter::Sweeps);
        let next = || {
            ticks(mm, &[1, 2]);
            mm.sweep_is_over();
            let before = begun();
            mm.begin_sweep();
            host.forget();
            begun() > before
        };
        let begins = race(mm, place, || reclaim(mm), next);
        let flushed = host.flushes(2) != (0, 0) || !host.broadcasts().is_empty();
        assert!(!begins || flushed || !mm.sweep_is_over(), "CPU 2 was not flushed since it began");
        give_back(mm, held);
        begins && !flushed
    });
    assert!(cases.results.iter().any(|&alone| alone), "a sweep began and nobody was flushed since");
}
