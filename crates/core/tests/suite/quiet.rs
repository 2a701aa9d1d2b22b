//! `unmap=quiet`: what no CPU can have cached is taken out without a flush (INV-13).

use crate::machine;

use machine::faults::{AT, TO, own, read_all, reclaim_all, run_in, showing};
use machine::race::{at, at_every_touch, at_places, race};
use machine::showing::Operation;
use machine::swapping::{DEVICE, end, is_out, read, swapping, take_free, written};
use machine::{Host, Mm, Setup, bare, give_back, pages, pcp, ticks};
use quietmm::platform::Guarantees;
use quietmm::{
    Advice, AllocFrom, Backing, Config, Counter, Entry, Error, NodeId, PageNumber, Policy, Prot, Rule,
    SpaceId,
};

/// Pages that are reclaimed in most tests.
const MANY: u64 = 32;

fn config() -> Config {
    Config { page_lists: pcp(1), lru_batch: 1, scan_batch: 4, ..bare("quiet") }
}

fn setup(cpus: u32) -> Setup {
    Setup { cpus, frames: 512, ..Setup::default() }
}

/// Whoever waits for a sweep leaves others time to tick.
fn ticking(config: Config) -> Config {
    Config { sweep_deadline: 25_000_000, ..config }
}

/// A task on CPU 0 needs memory, once: a batch is looked at, or some.
fn look(mm: &Mm<'_>) {
    if let Ok(frame) = mm.frames().alloc(0, AllocFrom::HERE) {
        mm.frames().free(frame);
    }
}

/// How often CPUs used what they must not.
fn stale(mm: &Mm<'_>) -> u32 {
    mm.platform().stale.get()
}

fn sent(mm: &Mm<'_>) -> u64 {
    mm.counter(Counter::IpisSent)
}

#[test]
fn reclaim_interrupts_nobody_where_cpus_tick() {
    let taken = |policy: &str| {
        let host = Host::new(setup(4));
        // Where nothing is left but the tables those are flushed for, whatever the policy.
        host.broken.set(Some(Rule::TablesBeforeVictim));
        host.run(ticking(bare(policy)), |mm| {
            let (id, _) = showing(mm, MANY, &[1, 2, 3]);
            [1, 2, 3].iter().for_each(|&cpu| read_all(mm, id, cpu, MANY));
            let timers = |mm: &Mm<'_>| ticks(mm, &[1, 2, 3]);
            host.at_cond_resched(timers);
            let before = sent(mm);
            reclaim_all(mm);
            let left =
                (AT..AT + MANY).filter(|&page| mm.space(id).lookup(PageNumber(page)).unwrap().is_present());
            assert_eq!(left.count(), 0, "{policy}: all are gone");
            let sent = sent(mm) - before;
            // And the pages come back, with what they held.
            read_all(mm, id, 1, MANY);
            assert_eq!(stale(mm), 0);
            sent
        })
    };
    assert_eq!(taken("quiet"), 0);
    assert!(taken("quiet+unmap=batch") > 0);
}

#[test]
fn what_was_written_goes_to_its_device_without_an_interrupt() {
    let host = Host::new(Setup { disk: true, ..setup(3) });
    host.run(ticking(swapping("quiet")), |mm| {
        mm.swap().on(0, 512, 0).unwrap();
        let id = own(mm, MANY, &[0, 1, 2]);
        for page in AT..AT + MANY {
            [0, 1, 2].iter().for_each(|&cpu| host.on(cpu, || host.write(mm, id, page, page).unwrap()));
        }
        host.at_cond_resched(|mm| ticks(mm, &[1, 2]));
        let before = sent(mm);
        mm.drain_lru_batch();
        reclaim_all(mm);
        let out = (AT..AT + MANY).filter(|&page| is_out(mm, id, page)).count();
        assert_eq!((out, sent(mm) - before), (MANY as usize, 0));
        (AT..AT + MANY).for_each(|page| assert_eq!(read(mm, id, page), Ok(page)));
        assert_eq!((stale(mm), host.torn.get()), (0, 0));
    });
}

/// CPU 1 has a page cached. CPU 0 needs all memory, twice, and nobody ticks. What CPU 1 reads by what it has cached: whether
/// that is stale.
fn stale_after(broken: Option<Rule>) -> bool {
    at(&setup(2), &config(), broken, |mm| {
        let (id, _) = showing(mm, 4, &[1]);
        read_all(mm, id, 1, 4);
        let held = take_free(mm);
        (0..8).for_each(|_| look(mm));
        mm.platform().on(1, || (AT..AT + 4).for_each(|page| _ = mm.platform().try_read(page)));
        give_back(mm, held);
        stale(mm) > 0
    })
}

#[test]
fn an_entry_that_a_cpu_may_have_cached_is_not_taken() {
    assert!(!stale_after(None));
    for rule in [Rule::StampWhatIsCleared, Rule::CountEveryCpu, Rule::FlushBeforeSwept] {
        assert!(stale_after(Some(rule)), "{rule}");
    }
}

#[test]
fn who_does_not_tick_is_asked_after_the_deadline() {
    let host = Host::new(setup(3));
    host.run(ticking(config()), |mm| {
        let (id, _) = showing(mm, 4, &[1, 2]);
        [1, 2].iter().for_each(|&cpu| read_all(mm, id, cpu, 4));
        let held = take_free(mm);
        host.at_cond_resched(|mm| ticks(mm, &[2]));
        let before = sent(mm);
        (0..8).for_each(|_| look(mm));
        let forced = mm.counter(Counter::SweepForced);
        assert!(forced > 0, "CPU 1 has no timer");
        assert_eq!(sent(mm) - before, forced, "and only it was asked");
        // The last sweep may go on.
        assert!(forced <= mm.counter(Counter::Sweeps), "once in each sweep");
        give_back(mm, held);
    });
}

#[test]
fn who_waits_for_a_sweep_is_not_kept_waiting_by_the_next() {
    let host = Host::new(setup(2));
    // Nobody is ever asked.
    host.run(Config { sweep_deadline: u64::MAX, ..config() }, |mm| {
        let (id, _) = showing(mm, 4, &[1]);
        read_all(mm, id, 1, 4);
        let held = take_free(mm);
        // Wherever CPU 0 gives way, the sweep ends and somebody begins another.
        host.at_cond_resched(|mm| {
            ticks(mm, &[0, 1]);
            assert!(mm.sweep_is_over());
            mm.begin_sweep();
        });
        (0..8).for_each(|_| look(mm));
        let left = (AT..AT + 4).filter(|&page| mm.space(id).lookup(PageNumber(page)).unwrap().is_present());
        assert_eq!(left.count(), 0, "all are gone");
        assert_eq!((stale(mm), sent(mm)), (0, 0));
        give_back(mm, held);
    });
}

/// CPU 0 stands still anywhere while it needs memory, also as it looks whether a sweep is over. CPU 1, which needs some too, lets it go on.
#[test]
fn whoever_waits_for_anothers_look_lets_it_go_on() {
    let cases = at_every_touch(&setup(2), &config(), None, |mm, place| {
        let (id, _) = showing(mm, 4, &[1]);
        read_all(mm, id, 1, 4);
        let held = take_free(mm);
        race(mm, place, || look(mm), || look(mm));
        give_back(mm, held);
    });
    assert!(cases.results.len() > 100);
}

/// A sweep is under way that CPU 1 has not joined when CPU 0 finds that a page was used: not that one but the next must be
/// over before the page goes.
fn stale_after_two(broken: Option<Rule>) -> bool {
    at(&setup(2), &config(), broken, |mm| {
        let (id, _) = showing(mm, 1, &[1]);
        read_all(mm, id, 1, 1);
        let held = take_free(mm);
        mm.begin_sweep();
        assert!(!mm.sweep_is_over());
        look(mm);
        mm.platform().on(1, || _ = mm.platform().try_read(AT));
        give_back(mm, held);
        stale(mm) > 0
    })
}

#[test]
fn an_entry_that_is_cleared_while_a_sweep_goes_on_waits_for_the_next() {
    assert!(!stale_after_two(None));
    assert!(stale_after_two(Some(Rule::StampsOfTwoSweeps)));
}

/// At every place of CPU 0's while it needs memory, CPU 1 joins the sweep that begins then, and uses the page once more.
fn stale_in_the_middle(broken: Option<Rule>) -> usize {
    let cases = at_every_touch(&setup(2), &config(), broken, |mm, place| {
        let (id, _) = showing(mm, 1, &[1]);
        read_all(mm, id, 1, 1);
        let held = take_free(mm);
        race(
            mm,
            place,
            || (0..3).for_each(|_| look(mm)),
            || {
                mm.begin_sweep();
                mm.tick();
                _ = mm.platform().try_read(AT);
            },
        );
        mm.platform().on(1, || _ = mm.platform().try_read(AT));
        give_back(mm, held);
        stale(mm) > 0
    });
    cases.count(|&stale| stale)
}

#[test]
fn a_sweep_that_begins_while_an_entry_is_cleared_does_not_count() {
    assert_eq!(stale_in_the_middle(None), 0);
    assert!(stale_in_the_middle(Some(Rule::EpochAgainAfterClear)) > 0);
    assert!(stale_in_the_middle(Some(Rule::TakeWhatWasJudged)) > 0);
}

fn used_while_it_is_taken() {
    let config = Config { page_lists: pcp(1), ..swapping("quiet") };
    let cases = at_every_touch(&setup(2), &config, None, |mm, place| {
        let id = on_cpu_1_written(mm);
        let held = take_free(mm);
        let use_again = || {
            mm.begin_sweep();
            mm.tick();
            mm.platform().try_write(AT, 9)
        };
        let used = race(mm, place, || (0..3).for_each(|_| look(mm)), use_again);
        give_back(mm, held);
        // A page that is read back says what was written last, and in the end no slot is anybody's.
        assert_eq!(mm.platform().on(1, || read(mm, id, AT)), Ok(if used { 9 } else { AT }));
        end(mm, &[id], &[DEVICE]);
        used
    });
    let used = cases.results.iter().filter(|&&used| used).count();
    assert!(used > 0 && used < cases.results.len(), "{used} of {}", cases.results.len());
}

parts!(
    a_page_that_is_used_while_it_is_taken_gives_its_slot_back,
    |part, parts| at_places((part, parts), used_while_it_is_taken),
    [
        p0 p1 p2 p3 p4 p5
    ]
);

/// A page of its own that CPU 1 has written with its number, and that goes to swap.
fn on_cpu_1_written(mm: &Mm<'_>) -> SpaceId {
    mm.platform().on(1, || {
        let id = written(mm, 512, 1);
        mm.drain_lru_batch();
        id
    })
}

/// CPU 1 is lazy while a page that it has cached goes.
fn stale_after_lazy(broken: Option<Rule>) -> bool {
    at(&setup(2), &config(), broken, |mm| {
        let (id, _) = showing(mm, 4, &[1]);
        read_all(mm, id, 1, 4);
        mm.platform().on(1, || mm.enter_lazy());
        let held = take_free(mm);
        let before = sent(mm);
        (0..8).for_each(|_| look(mm));
        assert_eq!(sent(mm), before, "a lazy CPU is left alone");
        mm.platform().on(1, || {
            assert_eq!(mm.leave_lazy(), Some(id));
            (AT..AT + 4).for_each(|page| _ = mm.platform().try_read(page));
        });
        give_back(mm, held);
        stale(mm) > 0
    })
}

#[test]
fn a_cpu_that_was_lazy_joins_when_it_comes_back() {
    assert!(!stale_after_lazy(None));
    assert!(stale_after_lazy(Some(Rule::LazyReturnSweep)));
}

#[test]
fn what_lies_under_other_tags_is_swept_too() {
    for tags in [1, 2, 8] {
        at(&Setup { tags, ..setup(2) }, &config(), None, |mm| {
            let (id, _) = showing(mm, 4, &[1]);
            read_all(mm, id, 1, 4);
            let other = mm.create_space().unwrap();
            run_in(mm, other, &[1]);
            let held = take_free(mm);
            (0..8).for_each(|_| look(mm));
            run_in(mm, id, &[1]);
            mm.platform().on(1, || (AT..AT + 4).for_each(|page| _ = mm.platform().try_read(page)));
            give_back(mm, held);
            assert_eq!(stale(mm), 0, "{tags} tags");
        });
    }
}

#[test]
fn a_page_that_is_used_between_two_looks_stays() {
    at(&setup(2), &ticking(config()), None, |mm| {
        let (id, _) = showing(mm, 1, &[1]);
        read_all(mm, id, 1, 1);
        let held = take_free(mm);
        mm.platform().at_cond_resched(|mm| {
            ticks(mm, &[1]);
            mm.platform().on(1, || _ = mm.platform().try_read(AT));
        });
        look(mm);
        assert!(mm.space(id).lookup(PageNumber(AT)).unwrap().is_present());
        give_back(mm, held);
    });
}

/// What an operation on pages costs that CPUs 1 and 2 have used: none of them since a sweep, or just now.
fn cost_of(policy: &str, now: bool, operation: fn(&Mm<'_>, SpaceId)) -> u64 {
    at(&setup(3), &ticking(Config { scan_batch: 4, ..bare(policy) }), None, |mm| {
        let (id, _) = showing(mm, MANY, &[1, 2]);
        // Its table stays.
        mm.space(id).map(pages(AT + MANY + 8, 1), Backing::Anonymous, Prot::ReadWrite).unwrap();
        let host = mm.platform();
        host.on(1, || host.write(mm, id, AT + MANY + 8, 1).unwrap());
        [1, 2].iter().for_each(|&cpu| read_all(mm, id, cpu, MANY));
        let held = take_free(mm);
        host.at_cond_resched(|mm| ticks(mm, &[1, 2]));
        look(mm);
        give_back(mm, held);
        if now {
            read_all(mm, id, 1, MANY);
        }
        let before = sent(mm);
        operation(mm, id);
        let cost = sent(mm) - before;
        host.on(1, || (AT..AT + MANY).for_each(|page| _ = host.try_read(page)));
        assert_eq!(stale(mm), 0);
        cost
    })
}

#[test]
fn an_operation_on_what_no_cpu_has_cached_interrupts_nobody() {
    let operations: [(&str, Operation); 5] = [
        ("unmap", |mm, id| mm.space(id).unmap(pages(AT, MANY)).unwrap()),
        ("protect", |mm, id| mm.space(id).protect(pages(AT, MANY), Prot::None).unwrap()),
        ("read-only", |mm, id| mm.space(id).protect(pages(AT, MANY), Prot::Read).unwrap()),
        ("drop", |mm, id| mm.space(id).advise(pages(AT, MANY), Advice::Drop).unwrap()),
        ("move", |mm, id| mm.space(id).move_range(pages(AT, MANY), PageNumber(TO)).unwrap()),
    ];
    for (name, operation) in operations {
        assert_eq!(cost_of("quiet", false, operation), 0, "{name}");
        assert!(cost_of("quiet", true, operation) > 0, "{name}: it was used just now");
        assert!(cost_of("quiet+unmap=batch", false, operation) > 0, "{name}");
    }
}

/// What was idle for a while and is used again may be cached (INV-13): each page that goes is flushed, by itself too.
#[test]
fn what_is_used_again_after_a_sweep_is_flushed_page_by_page() {
    at(&setup(2), &ticking(Config { scan_batch: 4, ..bare("quiet") }), None, |mm| {
        let (id, _) = showing(mm, MANY, &[1]);
        read_all(mm, id, 1, MANY);
        let (host, held) = (mm.platform(), take_free(mm));
        host.at_cond_resched(|mm| ticks(mm, &[1]));
        look(mm);
        give_back(mm, held);
        let idle = |page: &u64| {
            let entry = mm.space(id).lookup(PageNumber(*page)).unwrap();
            entry.is_present() && !entry.has(Entry::ACCESSED)
        };
        let idle: Vec<u64> = (AT..AT + MANY).filter(idle).collect();
        assert!(!idle.is_empty());
        for page in idle {
            host.on(1, || host.read(mm, id, page).unwrap());
            mm.space(id).unmap(pages(page, 1)).unwrap();
            assert!(!host.caches(1, page), "page {page:#x}");
        }
        assert_eq!(stale(mm), 0);
    });
}

#[test]
fn a_policy_without_the_guarantee_is_refused() {
    let policy = Policy::parse("quiet").unwrap();
    // SAFETY: no hardware is used.
    let given = unsafe { Guarantees::none().with_clean_write_walks().with_unflushed_accessed() };
    let refused = Error::GuaranteeMissing { policy: "unmap=quiet", guarantee: "with_accessed_before_cached" };
    assert_eq!(policy.check(given, false), Err(refused));
    // SAFETY: the same.
    assert_eq!(policy.check(unsafe { given.with_accessed_before_cached() }, false), Ok(()));
}

/// `kswapd` is asked for memory that pages of a file have, and none is to be had from anybody else. How many stay.
fn after_kswapd(policy: &str, count: u64) -> u64 {
    Host::new(setup(2)).run(ticking(bare(policy)), |mm| {
        let id = (count > 0).then(|| showing(mm, count, &[1]).0);
        id.inspect(|&id| read_all(mm, id, 1, count));
        // CPU 1's timer is slow: a sweep takes its time.
        let rescheds = std::cell::Cell::new(0_u32);
        mm.platform().at_cond_resched(move |mm| {
            if rescheds.replace(rescheds.get() + 1) % 64 == 63 {
                ticks(mm, &[1]);
            }
        });
        let held = take_free(mm);
        let looks = || mm.counter(Counter::PgScanKswapd);
        let before = looks();
        mm.kswapd(NodeId(0)).unwrap();
        // It waits where there is nothing to be had before a sweep is over, and does not look all the time.
        let looks = looks() - before;
        assert!(looks <= 4 * count, "{looks} looks at {count} pages");
        let left = (AT..AT + count)
            .filter(|&page| mm.space(id.unwrap()).lookup(PageNumber(page)).unwrap().is_present())
            .count();
        give_back(mm, held);
        left as u64
    })
}

#[test]
fn kswapd_waits_for_a_sweep_that_frees_pages_and_for_none_that_would_not() {
    for policy in ["linux", "quiet"] {
        assert_eq!(after_kswapd(policy, 0), 0);
        assert!(after_kswapd(policy, MANY) < MANY, "{policy}");
    }
}

/// What nobody may use any more was flushed when it became so: it goes at once, though it was used until then.
#[test]
fn a_page_that_nobody_may_use_goes_without_a_sweep_and_without_an_interrupt() {
    let config = Config { scan_batch: 4, ..swapping("quiet") };
    at(&Setup { cpus: 3, frames: 768, ..Setup::default() }, &config, None, |mm| {
        let host = mm.platform();
        let id = written(mm, 512, 8);
        [1, 2].iter().for_each(|&cpu| {
            host.on(cpu, || {
                mm.space(id).switch_to().unwrap();
                (AT..AT + 8).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(page)));
            });
        });
        mm.drain_lru_batch();
        mm.space(id).protect(pages(AT, 8), Prot::None).unwrap();
        let (before, sweeps) = (sent(mm), mm.counter(Counter::Sweeps));
        let held = take_free(mm);
        look(mm);
        look(mm);
        let out = (AT..AT + 8).filter(|&page| is_out(mm, id, page)).count();
        assert!(out >= 4, "{out} are out");
        assert_eq!((sent(mm) - before, mm.counter(Counter::Sweeps) - sweeps), (0, 0));
        give_back(mm, held);
        mm.space(id).protect(pages(AT, 8), Prot::ReadWrite).unwrap();
        assert!((AT..AT + 8).all(|page| read(mm, id, page) == Ok(page)));
        assert_eq!(stale(mm), 0);
        end(mm, &[id], &[DEVICE]);
    });
}

/// While an operation changes another part of the space, which may wait for memory itself, what nobody may use goes with a sweep: nobody has
/// to wait for the operation.
#[test]
fn a_page_that_nobody_may_use_waits_for_no_operation() {
    let config = Config { scan_batch: 4, page_lists: pcp(1), ..swapping("quiet") };
    let setup = Setup { cpus: 2, frames: 768, ..Setup::default() };
    let cases = at_every_touch(&setup, &config, None, |mm, place| {
        let (host, done) = (mm.platform(), std::cell::Cell::new(false));
        let id = written(mm, 512, 8);
        mm.drain_lru_batch();
        mm.space(id).protect(pages(AT, 4), Prot::None).unwrap();
        let held = take_free(mm);
        let changes = || {
            mm.space(id).protect(pages(AT + 4, 4), Prot::Read).unwrap();
            done.set(true);
        };
        let (out, swept) = race(mm, place, changes, || {
            let sweeps = mm.counter(Counter::Sweeps);
            (0..2).for_each(|_| look(mm));
            let (before, swept) = (!done.get(), mm.counter(Counter::Sweeps) > sweeps);
            // This waits for the operation.
            let out = (AT..AT + 4).filter(|&page| is_out(mm, id, page)).count();
            (if before { out } else { 0 }, swept)
        });
        give_back(mm, held);
        mm.space(id).protect(pages(AT, 8), Prot::ReadWrite).unwrap();
        assert!((AT..AT + 8).all(|page| host.on(0, || read(mm, id, page)) == Ok(page)));
        end(mm, &[id], &[DEVICE]);
        (out, swept)
    });
    let with_some_out = |swept| cases.results.iter().filter(|case| case.0 > 0 && case.1 == swept).count();
    assert!(with_some_out(false) > 0 && with_some_out(true) > 0, "{:?}", cases.results);
}

/// While rights are taken away, a CPU may have what nobody may use any more cached, until the flush or a sweep.
#[test]
fn a_page_that_nobody_may_use_from_now_on_is_not_taken_before_it_is_flushed() {
    let cases = at_every_touch(&setup(2), &config(), None, |mm, place| {
        let (id, _) = showing(mm, 4, &[1]);
        read_all(mm, id, 1, 4);
        let held = take_free(mm);
        let takes_away = || mm.space(id).protect(pages(AT, 4), Prot::None).unwrap();
        let uses_again = || {
            (0..2).for_each(|_| look(mm));
            (AT..AT + 4).for_each(|page| _ = mm.platform().try_read(page));
        };
        race(mm, place, takes_away, uses_again);
        give_back(mm, held);
        stale(mm)
    });
    assert_eq!(cases.count(|&stale| stale > 0), 0);
}

/// A CPU that runs in no space has nothing cached: no sweep waits for it, and nobody asks it.
#[test]
fn a_cpu_that_has_let_go_of_its_space_keeps_no_sweep_waiting() {
    for policy in ["quiet", "quiet+free=sweep"] {
        let host = Host::new(setup(3));
        host.run(bare(policy), |mm| {
            let id = own(mm, 1, &[0, 1, 2]);
            host.on(1, || mm.unload());
            host.on(2, || mm.enter_lazy());
            for _ in 0..3 {
                mm.begin_sweep();
                assert!(!mm.sweep_is_over(), "{policy}: CPU 0 has not taken part");
                ticks(mm, &[0]);
                assert!(mm.sweep_is_over(), "{policy}");
            }
            mm.unload();
            host.on(2, || mm.unload());
            mm.space(id).destroy().unwrap();
        });
    }
}

/// A page with a swap slot is judged, and used before it is taken: it stays, and nobody counts as a user of its slot for it.
#[test]
fn a_page_that_is_used_when_it_is_about_to_go_to_its_slot_stays() {
    let config = Config { page_lists: pcp(1), ..swapping("quiet") };
    let cases = at_every_touch(&setup(3), &config, None, |mm, place| {
        let host = mm.platform();
        let id = written(mm, 512, 1);
        host.on(1, || mm.space(id).switch_to().unwrap());
        let at = machine::swapping::AT;
        mm.unload();
        // Out and back: it has a slot, and is clean.
        for _ in 0..6 {
            mm.drain_lru_batch();
            look(mm);
            let held = take_free(mm);
            look(mm);
            give_back(mm, held);
            ticks(mm, &[1, 2]);
        }
        host.on(1, || assert_eq!(host.read(mm, id, at), Ok(at)));
        mm.drain_lru_batch();
        host.on(1, || mm.drain_lru_batch());
        let held = take_free(mm);
        // Aged, and swept.
        look(mm);
        ticks(mm, &[0, 1, 2]);
        mm.begin_sweep();
        ticks(mm, &[0, 1, 2]);
        race(mm, place, || look(mm), || assert_eq!(host.read(mm, id, at), Ok(at)));
        give_back(mm, held);
        assert_eq!(machine::settled(mm).broken, None, "{place:?}");
        assert_eq!(stale(mm), 0);
        end(mm, &[id], &[DEVICE]);
        mm.counter(Counter::PswpOut)
    });
    assert!(cases.results.len() > 20 && cases.count(|&out| out > 0) > 0);
}

/// Pages that wait for a sweep are the first that are looked at when it is over: they have waited longest.
#[test]
fn what_waits_for_a_sweep_is_looked_at_before_what_came_later() {
    let host = Host::new(setup(2));
    host.run(config(), |mm| {
        let (id, file) = showing(mm, 8, &[0, 1]);
        read_all(mm, id, 1, 8);
        let held = take_free(mm);
        mm.space(id).advise(pages(AT, 8), Advice::Cold).unwrap();
        let there = |n: u64| mm.space(id).lookup(PageNumber(AT + n)).unwrap().is_present();
        assert!((0..8).all(there));
        look(mm);
        // The last of which that was said lie at the old end.
        assert_eq!((0..8).map(there).collect::<Vec<_>>(), [[true; 4], [false; 4]].concat());
        give_back(mm, held);
        mm.unload();
        host.on(1, || mm.unload());
        mm.space(id).destroy().unwrap();
        mm.file(file).destroy().unwrap();
    });
}

/// A CPU has a space under each tag that its TLB knows, and runs in one of them: with a sweep it lets go of what lies under each other tag too.
#[test]
fn a_sweep_reaches_what_lies_under_every_tag() {
    const TAGS: u16 = 16;
    let host = Host::new(Setup { cpus: 2, tags: TAGS, frames: 1024, ..Setup::default() });
    host.run(config(), |mm| {
        let spaces: Vec<SpaceId> = (0..TAGS).map(|_| showing(mm, 1, &[1]).0).collect();
        for &id in &spaces {
            run_in(mm, id, &[1]);
            read_all(mm, id, 1, 1);
        }
        for runs in [spaces[0], spaces[TAGS as usize - 1]] {
            run_in(mm, runs, &[1]);
            let held = take_free(mm);
            (0..4).for_each(|_| look(mm));
            assert!(mm.counter(Counter::FlushSpared) > 0, "quietly");
            for &id in &spaces {
                run_in(mm, id, &[1]);
                host.on(1, || _ = host.try_read(AT));
            }
            assert_eq!(stale(mm), 0);
            give_back(mm, held);
            spaces.iter().for_each(|&id| {
                run_in(mm, id, &[1]);
                read_all(mm, id, 1, 1);
            });
        }
    });
}

/// A CPU goes offline with something under each tag, and what is reclaimed meanwhile is taken from it without a word: it starts with nothing when it comes back.
#[test]
fn a_cpu_that_comes_back_has_nothing_under_any_tag() {
    const TAGS: u16 = 4;
    let host = Host::new(Setup { cpus: 2, tags: TAGS, ..setup(2) });
    host.run(config(), |mm| {
        let spaces: Vec<SpaceId> = (0..TAGS).map(|_| showing(mm, 1, &[1]).0).collect();
        for &id in &spaces {
            run_in(mm, id, &[1]);
            read_all(mm, id, 1, 1);
        }
        host.on(1, || mm.cpu_offline().unwrap());
        let held = take_free(mm);
        (0..4).for_each(|_| look(mm));
        assert!(mm.counter(Counter::FlushSpared) > 0, "quietly");
        host.on(1, || mm.cpu_online().unwrap());
        for &id in &spaces {
            run_in(mm, id, &[1]);
            host.on(1, || _ = host.try_read(AT));
        }
        assert_eq!(stale(mm), 0);
        give_back(mm, held);
    });
}
