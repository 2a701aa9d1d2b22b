//! Who is interrupted, how often, and what each CPU flushes: by counts.

use crate::machine;

use machine::flushing::{AT, cached, shared};
use machine::race::{Place, at_every_touch, race};
use machine::{Happened, Host, Mm, Setup, bare, exhaust, give_back, pages};
use quietmm::platform::Cpus;
use quietmm::{
    Backing, Config, Counter, Error, FrameNumber, KernelProt, PageNumber, PageRange, Prot, Rule, SpaceId,
    VmapPlace,
};

#[test]
fn only_cpus_that_run_in_the_space_are_interrupted() {
    let host = Host::new(Setup { cpus: 5, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let other = shared(mm, 1, &[2]);
        let id = shared(mm, 4, &[0, 1, 3, 4]);
        host.on(3, || mm.space(other).switch_to().unwrap());
        host.on(4, || mm.unload());
        host.forget();
        mm.space(id).unmap(pages(AT, 4)).unwrap();
        assert_eq!((host.interrupts(), host.interrupts_to(1)), (1, 1));
        assert_eq!(mm.counter(Counter::IpisSent), 1);
        assert_eq!((host.flushes(0), host.flushes(1)), ((0, 4), (0, 4)));
        assert_eq!((host.flushes(2), host.flushes(3), host.flushes(4)), ((0, 0), (0, 0), (0, 0)));
        // From outside the space: two that use it would be interrupted, one is left.
        host.forget();
        host.on(2, || mm.space(id).flush().unwrap());
        assert_eq!((host.interrupts_to(0), host.interrupts_to(1), host.interrupts()), (1, 1, 2));
        assert_eq!(host.flushes(2), (0, 0), "it does not use the space itself");
    });
}

#[test]
fn a_full_inbox_is_not_rung_twice() {
    for (held, interrupts) in [(true, 1), (false, 2)] {
        let host = Host::new(Setup { cpus: 3, ..Setup::default() });
        host.run(bare("vanilla"), |mm| {
            let id = shared(mm, 4, &[2]);
            host.hold_interrupts.set(held);
            let ask =
                move |mm: &Mm<'_>| mm.platform().on(1, || mm.space(id).flush_range(pages(AT, 1)).unwrap());
            if held {
                // CPU 1 asks while CPU 0 waits for CPU 2, which has not looked yet.
                host.on_pause.borrow_mut().push_back(Box::new(ask));
                mm.space(id).flush_range(pages(AT + 1, 1)).unwrap();
            } else {
                mm.space(id).flush_range(pages(AT + 1, 1)).unwrap();
                ask(mm);
            }
            assert_eq!(host.interrupts(), interrupts);
            assert_eq!(mm.counter(Counter::RemoteFlushReceived), 2, "both requests were carried out");
            assert!(!host.caches(2, AT) && !host.caches(2, AT + 1));
        });
    }
}

/// Requests are carried out in the order of their senders. The one that is carried out first may be the later one.
#[test]
fn a_later_flush_of_a_page_that_is_carried_out_first_makes_good_the_earlier() {
    for (first, second) in [(0, 1), (1, 0)] {
        let host = Host::new(Setup { cpus: 3, ..Setup::default() });
        host.run(bare("vanilla"), |mm| {
            let id = shared(mm, 4, &[2]);
            host.hold_interrupts.set(true);
            let ask = move |mm: &Mm<'_>, cpu: u16, page: u64| {
                mm.platform().on(cpu, || mm.space(id).flush_range(pages(page, 1)).unwrap());
            };
            host.on_pause.borrow_mut().push_back(Box::new(move |mm| ask(mm, second, AT + 1)));
            ask(mm, first, AT);
            assert_eq!(host.interrupts(), 1, "CPU 2 looks once");
            assert!(!host.caches(2, AT) && !host.caches(2, AT + 1), "CPU {first} asked first");
        });
    }
}

/// CPU 1 is lazy while CPU 0 unmaps; says how often CPU 1 then used what is gone.
fn lazily(broken: Option<Rule>) -> (Result<u64, Error>, u32) {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.broken.set(broken);
    host.run(bare("vanilla"), |mm| {
        let id = shared(mm, 4, &[0, 1]);
        host.on(1, || mm.enter_lazy());
        mm.space(id).unmap(pages(AT, 2)).unwrap();
        mm.space(id).unmap(pages(AT + 2, 1)).unwrap();
        assert_eq!((host.interrupts(), mm.counter(Counter::LazySkipped)), (0, 2));
        assert!(host.caches(1, AT), "it was left alone");
        host.on(1, || {
            mm.leave_lazy();
            let flushes = host.flushes(1);
            mm.leave_lazy();
            assert_eq!(host.flushes(1), flushes, "once");
            if broken.is_none() {
                assert_eq!(flushes, (1, 0));
                assert_eq!(host.read(mm, id, AT + 3), Ok(AT + 3));
            }
            (host.read(mm, id, AT), host.stale.get())
        })
    })
}

#[test]
fn a_lazy_cpu_is_left_alone_and_catches_up() {
    assert_eq!(lazily(None), (Err(Error::NotMapped(PageNumber(AT))), 0));
    let (_, stale) = lazily(Some(Rule::LazyReturnFlush));
    assert_eq!(stale, 1, "without the flush on return it uses what is gone");
}

#[test]
fn a_lazy_cpu_that_missed_nothing_flushes_nothing() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let id = shared(mm, 1, &[0, 1]);
        host.on(1, || {
            mm.enter_lazy();
            mm.leave_lazy();
            assert!(host.caches(1, AT));
            mm.enter_lazy();
            mm.space(id).switch_to().unwrap();
            assert!(host.caches(1, AT));
        });
        assert_eq!(host.flushes(1), (0, 0));
    });
}

/// CPU 0 is lazy in one space and goes to another; while it is on its way, CPU 1 unmaps a page there that CPU 0
/// still has under its tag. CPU 0 is interrupted, or finds out by itself; it must not be left alone *and* believe
/// itself up to date.
#[test]
fn a_cpu_on_its_way_from_lazy_into_a_space_misses_no_flush() {
    let host = Host::new(Setup { cpus: 2, tags: 2, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let id = shared(mm, 2, &[0, 1]);
        let other = mm.create_space().unwrap();
        mm.space(other).switch_to().unwrap();
        mm.enter_lazy();
        host.on_load.borrow_mut().push_back(Box::new(move |mm| {
            // CPU 0 has interrupts off and cannot go on in this one thread: where CPU 1 waits for it, it has to be
            // let go without the flush.
            let let_go = |mm: &Mm<'_>| mm.platform().on(0, || mm.serve());
            mm.platform().on_pause.borrow_mut().push_back(Box::new(let_go));
            mm.platform().on(1, || mm.space(id).unmap(pages(AT, 1)).unwrap());
        }));
        mm.space(id).switch_to().unwrap();
        if host.interrupts_to(0) == 0 {
            assert_eq!(host.read(mm, id, AT), Err(Error::NotMapped(PageNumber(AT))));
            assert_eq!(host.read(mm, id, AT + 1), Ok(AT + 1));
            assert_eq!(host.stale.get(), 0);
        }
    });
}

#[test]
fn up_to_the_ceiling_pages_go_one_by_one() {
    for (ceiling, count, flushes) in [
        (33, 1, (0, 1)),
        (33, 33, (0, 33)),
        (33, 34, (1, 0)),
        (33, 64, (1, 0)),
        (1, 2, (1, 0)),
        (64, 64, (0, 64)),
    ] {
        let host = Host::new(Setup { cpus: 2, ..Setup::default() });
        host.run(Config { flush_ceiling: ceiling, ..bare("vanilla") }, |mm| {
            let id = shared(mm, count, &[0, 1]);
            mm.space(id).unmap(pages(AT, count)).unwrap();
            assert_eq!((host.flushes(0), host.flushes(1)), (flushes, flushes), "{count} pages");
            assert_eq!((host.interrupts(), mm.counter(Counter::RemoteFlush)), (1, 1), "one flush");
        });
    }
}

#[test]
fn an_unmap_costs_one_flush_however_many_pages_were_present() {
    for (mapped, present, flushes) in [(1000, 0, 0), (1000, 1, 1), (1000, 65, 1), (600, 600, 1)] {
        let host = Host::new(Setup { cpus: 2, ..Setup::default() });
        host.run(bare("vanilla"), |mm| {
            let id = shared(mm, mapped, &[]);
            host.on(1, || mm.space(id).switch_to().unwrap());
            // Spread over the whole range, and over two tables.
            let step = mapped / present.max(1);
            (0..present).for_each(|i| {
                host.on(1, || host.write(mm, id, AT + i * step, 1).unwrap());
            });
            mm.space(id).unmap(pages(AT, mapped)).unwrap();
            assert_eq!(mm.counter(Counter::RemoteFlush), flushes, "{present} pages present");
            assert_eq!(host.interrupts() as u64, flushes);
            assert!((0..mapped).all(|i| !host.caches(1, AT + i)));
        });
    }
}

/// CPU 1 has a space under a tag and runs elsewhere while the space ends and its slot is used again.
fn reused(broken: Option<Rule>) -> (u64, u32) {
    let host = Host::new(Setup { cpus: 2, tags: 2, ..Setup::default() });
    host.broken.set(broken);
    host.run(bare("vanilla"), |mm| {
        let old = shared(mm, 1, &[1]);
        let aside = mm.create_space().unwrap();
        host.on(1, || mm.space(aside).switch_to().unwrap());
        mm.space(old).destroy().unwrap();
        assert_eq!(host.interrupts(), 0, "it does not run there");
        let new = mm.create_space().unwrap();
        assert_eq!(new.index(), old.index(), "the slot is used again");
        mm.space(new).map(pages(AT, 1), Backing::Anonymous, Prot::ReadWrite).unwrap();
        host.on(1, || {
            mm.space(new).switch_to().unwrap();
            (host.read(mm, new, AT).unwrap(), host.stale.get())
        })
    })
}

#[test]
fn a_slot_that_is_used_again_goes_on_counting() {
    assert_eq!(reused(None), (0, 0));
    assert_eq!(reused(Some(Rule::SwitchFlush)).1, 1, "the old tag is believed");
}

#[test]
fn a_tag_that_missed_nothing_keeps_its_entries() {
    let host = Host::new(Setup { cpus: 2, tags: 2, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let id = shared(mm, 2, &[0]);
        let other = shared(mm, 1, &[0]);
        mm.space(id).switch_to().unwrap();
        assert!(host.caches(0, AT + 1));
        mm.space(other).switch_to().unwrap();
        host.on(1, || mm.space(id).unmap(pages(AT, 1)).unwrap());
        assert_eq!(host.interrupts(), 0, "it runs elsewhere");
        mm.space(id).switch_to().unwrap();
        assert!(!host.caches(0, AT) && !host.caches(0, AT + 1));
    });
}

/// CPU 1 keeps the space lazily while it ends.
fn ended_under_a_lazy_cpu(broken: Option<Rule>) -> (usize, Option<SpaceId>) {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.broken.set(broken);
    host.run(bare("vanilla"), |mm| {
        let id = shared(mm, 4, &[1]);
        host.on(1, || mm.enter_lazy());
        mm.space(id).destroy().unwrap();
        (host.interrupts(), host.on(1, || mm.loaded_space()))
    })
}

#[test]
fn a_lazy_cpu_lets_go_of_a_space_before_its_tables_are_freed() {
    assert_eq!(ended_under_a_lazy_cpu(None), (1, None));
    let (interrupts, loaded) = ended_under_a_lazy_cpu(Some(Rule::TablesToLazy));
    assert!(interrupts == 0 && loaded.is_some(), "it goes on with tables that are free");
}

#[test]
fn a_single_cpu_defers_nothing_and_sends_nothing() {
    for policy in ["vanilla", "linux", "linux+unmap=batch-clean", "quiet"] {
        let host = Host::new(Setup::default());
        host.run(bare(policy), |mm| {
            let (id, _) = cached(mm, 1000, &[0]);
            give_back(mm, exhaust(mm));
            assert_eq!(mm.space(id).lookup(PageNumber(AT)).map(|entry| entry.is_present()), Ok(false));
            mm.space(id).destroy().unwrap();
            assert_eq!(host.interrupts(), 0);
            assert_eq!((mm.counter(Counter::BatchPages), mm.counter(Counter::RemoteFlush)), (0, 0));
        });
    }
}

#[test]
fn a_cpu_that_spins_with_interrupts_off_serves_by_hand() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let id = shared(mm, 2, &[0, 1]);
        host.hold_interrupts.set(true);
        // Its interrupt cannot arrive: a kernel that spins on a lock of its own asks the core instead.
        host.on_pause.borrow_mut().push_back(Box::new(move |mm| {
            let host = mm.platform();
            host.on(1, || {
                assert!(host.irqs_off());
                mm.serve();
                host.irqs_on();
            });
        }));
        assert!(host.irqs_off());
        mm.space(id).flush_range(pages(AT, 1)).unwrap();
        host.irqs_on();
        assert!(!host.caches(0, AT) && !host.caches(1, AT) && host.caches(1, AT + 1));
    });
}

#[test]
fn a_wait_of_seconds_ends_like_any_other() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let id = shared(mm, 1, &[1]);
        host.hold_interrupts.set(true);
        // Each look is 2 us later at most: together more nanoseconds than 32 bits hold.
        (0..2_200_000).for_each(|_| host.on_pause.borrow_mut().push_back(Box::new(|_| {})));
        mm.space(id).unmap(pages(AT, 1)).unwrap();
        assert!(host.on_pause.borrow().is_empty() && !host.caches(1, AT));
    });
}

#[test]
fn who_was_asked_before_is_not_asked_again_for_another() {
    let host = Host::new(Setup { cpus: 3, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let (one, two) = (shared(mm, 1, &[1]), shared(mm, 1, &[2]));
        mm.space(one).flush().unwrap();
        mm.space(two).flush().unwrap();
        assert_eq!((host.interrupts_to(1), host.interrupts_to(2)), (1, 1));
        assert_eq!((host.flushes(1), host.flushes(2)), ((1, 0), (1, 0)));
    });
}

/// CPU 1 becomes lazy when it has been asked and has not looked yet; says whether it kept the space.
fn lazy_when_asked(ask: fn(&Mm<'_>, SpaceId)) -> bool {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let id = shared(mm, 2, &[1]);
        host.hold_interrupts.set(true);
        host.on_pause.borrow_mut().push_back(Box::new(|mm| mm.platform().on(1, || mm.enter_lazy())));
        ask(mm, id);
        host.hold_interrupts.set(false);
        assert!(host.on_pause.borrow().is_empty() && host.interrupts_to(1) == 1);
        let kept = host.on(1, || mm.loaded_space()) == Some(id);
        host.on(1, || mm.unload());
        kept
    })
}

#[test]
fn a_lazy_cpu_lets_go_of_the_space_where_tables_go_and_only_there() {
    assert!(lazy_when_asked(|mm, id| mm.space(id).flush_range(pages(AT, 1)).unwrap()));
    assert!(lazy_when_asked(|mm, id| mm.space(id).flush().unwrap()));
    assert!(!lazy_when_asked(|mm, id| mm.space(id).unmap(pages(AT, 2)).unwrap()), "its table is freed");
}

#[test]
fn a_range_of_any_length_is_flushed_whole() {
    // Around each power of two that a request could run out of bits at.
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(Config { flush_ceiling: 1 << 21, ..bare("vanilla") }, |mm| {
        for bits in [8, 16, 20, 21] {
            for count in [(1 << bits) - 1, 1 << bits, (1 << bits) + 1, (1 << bits) + 5u64] {
                let id = mm.create_space().unwrap();
                mm.space(id).map(pages(AT, count + 8), Backing::Anonymous, Prot::ReadWrite).unwrap();
                let some = [0, 1, 4, 5, 100, count / 2, count - 2, count - 1].map(|n| AT + n.min(count - 1));
                host.on(1, || {
                    mm.space(id).switch_to().unwrap();
                    some.iter().for_each(|&page| host.write(mm, id, page, 1).unwrap());
                    host.write(mm, id, AT + count, 1).unwrap();
                });
                host.forget();
                mm.space(id).flush_range(pages(AT, count)).unwrap();
                for page in some {
                    assert!(!host.caches(1, page), "page {page:#x} of {count}");
                }
                assert!(host.flushes(1) == (1, 0) || host.caches(1, AT + count), "and no other");
                host.on(1, || mm.unload());
                mm.space(id).destroy().unwrap();
            }
        }
    });
}

#[test]
fn single_flushes_are_for_who_missed_nothing() {
    let host = Host::new(Setup { cpus: 2, tags: 2, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let id = shared(mm, 4, &[0, 1]);
        // Each missed flush, one or many: then a single one would not be enough.
        for missed in 0..3u64 {
            host.on(1, || {
                (AT..AT + 4).for_each(|page| host.write(mm, id, page, page).unwrap());
                mm.enter_lazy();
            });
            (0..missed).for_each(|n| mm.space(id).flush_range(pages(AT + n, 1)).unwrap());
            host.forget();
            host.on(1, || mm.leave_lazy());
            assert_eq!(host.flushes(1), (usize::from(missed > 0), 0), "{missed} missed");
            host.forget();
            mm.space(id).flush_range(pages(AT + 3, 1)).unwrap();
            assert_eq!(host.flushes(1), (0, 1));
            assert!(!host.caches(1, AT + 3));
        }
    });
}

#[test]
fn the_count_of_flushes_may_pass_any_number_of_bits() {
    for bits in [8, 16, 31, 32, 40] {
        let host = Host::new(Setup { cpus: 2, tags: 2, ..Setup::default() });
        host.run(bare("vanilla"), |mm| {
            let id = shared(mm, 4, &[]);
            let other = mm.create_space().unwrap();
            host.grow_old(mm, id, (1 << bits) - 3);
            mm.space(id).switch_to().unwrap();
            // Some flushes reach CPU 1 by themselves, some while it is lazy or away under another tag.
            for n in 0..9u64 {
                host.on(1, || {
                    mm.space(id).switch_to().unwrap();
                    assert_eq!(host.write(mm, id, AT + n % 4, n), Ok(()));
                    match n % 3 {
                        1 => mm.enter_lazy(),
                        2 => mm.space(other).switch_to().unwrap(),
                        _ => {}
                    }
                });
                host.forget();
                if n % 2 == 0 {
                    mm.space(id).flush_range(pages(AT + n % 4, 1)).unwrap();
                } else {
                    mm.space(id).flush().unwrap();
                }
                host.on(1, || {
                    mm.leave_lazy();
                    mm.space(id).switch_to().unwrap();
                    assert!(!host.caches(1, AT + n % 4), "2^{bits}, flush {n}");
                });
            }
            host.on(1, || mm.unload());
            host.on(0, || mm.unload());
        });
    }
}

#[test]
fn who_waits_looks_often_at_first_and_then_every_two_microseconds() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let id = shared(mm, 1, &[1]);
        host.hold_interrupts.set(true);
        (0..100).for_each(|_| host.on_pause.borrow_mut().push_back(Box::new(|_| {})));
        host.pauses.borrow_mut().clear();
        mm.space(id).flush().unwrap();
        host.hold_interrupts.set(false);
        let pauses = host.pauses.borrow().clone();
        // An eighth of the time so far, and neither less than 50 ns nor more than 2 us.
        let mut waited = 0;
        for (at, &pause) in pauses.iter().enumerate() {
            assert_eq!(pause, (waited / 8).clamp(50, 2_000), "look {at}");
            waited += pause;
        }
        assert!(pauses.len() >= 100 && pauses.ends_with(&[2_000; 10]), "{pauses:?}");
        host.on(1, || mm.unload());
    });
}

#[test]
fn a_cpu_that_catches_up_misses_no_flush_that_comes_meanwhile() {
    let setup = Setup { cpus: 2, ..Setup::default() };
    let cases = at_every_touch(&setup, &bare("linux"), None, |mm, place| {
        let host = mm.platform();
        let id = shared(mm, 3, &[0, 1]);
        host.on(0, || mm.enter_lazy());
        host.on(1, || mm.space(id).flush_range(pages(AT, 1)).unwrap());
        // It has missed that. While it comes back it reads ahead, as CPUs do, and then a page goes.
        let ahead = race(
            mm,
            place,
            || _ = mm.leave_lazy(),
            || {
                let ahead = host.on(0, || host.try_read(AT + 1).is_some());
                mm.space(id).unmap(pages(AT + 1, 1)).unwrap();
                ahead
            },
        );
        host.deliver_all();
        assert!(!host.caches(0, AT + 1));
        ahead
    });
    assert!(cases.count(|&ahead| ahead) > 0, "of {}", cases.results.len());
}

/// What CPU 2 does for two who ask it for different things before it looks.
#[test]
fn requests_of_two_kinds_that_one_look_finds_are_both_carried_out() {
    const KERNEL: PageNumber = PageNumber(0xf_fff8_0000_0000);
    for batch_first in [true, false] {
        let host = Host::new(Setup { cpus: 3, ..Setup::default() });
        host.run(Config { vmap: Some(PageRange::new(KERNEL, 1 << 12)), ..bare("linux") }, |mm| {
            let file = mm.create_file(4).unwrap();
            let id = mm.create_space().unwrap();
            mm.space(id).map(pages(AT, 4), Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
            host.on(2, || {
                mm.space(id).switch_to().unwrap();
                (AT..AT + 4).for_each(|page| host.write(mm, id, page, page).unwrap());
                mm.drain_lru_batch();
            });
            // More pages than are flushed one by one.
            let frames = [FrameNumber(0xfc00); 64];
            let mapped = mm.vmap().map(&frames, VmapPlace::ANYWHERE, KernelProt::ReadWrite).unwrap();
            mm.vmap().unmap(mapped.start).unwrap();
            host.forget();
            host.hold_interrupts.set(true);
            let batch = move |mm: &Mm<'_>| assert_eq!(mm.file(file).write_back(), Ok(4));
            let aliases = |mm: &Mm<'_>| mm.vmap().unmap_aliases().unwrap();
            host.on_pause.borrow_mut().push_back(Box::new(move |mm| {
                mm.platform().on(1, || if batch_first { aliases(mm) } else { batch(mm) });
            }));
            if batch_first {
                batch(mm)
            } else {
                aliases(mm)
            }
            host.hold_interrupts.set(false);
            let log = host.log.borrow();
            let count =
                |what: &dyn Fn(&Happened) -> bool| log.iter().filter(|&happened| what(happened)).count();
            let of_space = count(&|happened| matches!(happened, Happened::FlushSpace(cpu) if *cpu == 2));
            let of_kernel = count(&|happened| matches!(happened, Happened::FlushKernel(cpu) if *cpu == 2));
            assert_eq!((of_space, of_kernel), (1, 1), "batch first: {batch_first}");
            drop(log);
            host.on(2, || mm.unload());
        });
    }
}

/// Two ask a CPU at once, and for the first it flushes all that it has: the second asks for nothing that is still there.
#[test]
fn who_has_flushed_all_meanwhile_does_not_flush_again() {
    let host = Host::new(Setup { cpus: 3, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let id = shared(mm, 4, &[2]);
        host.forget();
        host.hold_interrupts.set(true);
        let all = || mm.space(id).flush().unwrap();
        // CPU 0 waits for an answer when CPU 1 comes.
        host.on_pause.borrow_mut().push_back(Box::new(|mm| mm.platform().stop()));
        race(mm, Place::Touch(u32::MAX), all, all);
        host.hold_interrupts.set(false);
        host.forget_placed();
        assert_eq!(host.flushes(2), (1, 0));
    });
}
