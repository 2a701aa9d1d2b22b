//! Kernel virtual ranges: what is mapped where, what it costs in interrupts, and what is refused.

use crate::machine;

use machine::kernel::{BARE, RW, START, at, frames, free, host, kernel, next, room};
use machine::race::{at_every_touch, race};
use machine::{Host, Mm, Setup, bare, counted, everywhere_as};
use quietmm::platform::Cpus;
use quietmm::{Config, Counter, Error, FrameNumber, KernelProt, NodeId, PageNumber, PageRange, VmapPlace};

#[test]
fn without_a_kernel_range_every_call_is_refused() {
    host(1).run(bare("linux"), |mm| {
        let (frame, none) = (FrameNumber(0x1000), Error::NoKernelRange);
        assert_eq!(mm.vmap().map(&[frame], BARE, RW), Err(none));
        assert_eq!(mm.vmap().alloc(1, BARE, RW), Err(none));
        assert_eq!(mm.vmap().map_ram(&[frame], RW), Err(none));
        assert_eq!(mm.vmap().unmap(START), Err(none));
        assert_eq!(mm.vmap().free(START), Err(none));
        assert_eq!(mm.vmap().unmap_ram(at(0, 1)), Err(none));
        assert_eq!(mm.vmap().unmap_aliases(), Err(none));
        assert_eq!(mm.vmap().purge(), Err(none));
        assert_eq!(mm.vmap().purger(), Err(none));
        assert_eq!(mm.vmap().find(START), Err(none));
        assert_eq!(mm.vmap().frame_at(START), Err(none));
        assert_eq!(mm.vmap().waits(), Err(none));
    });
}

/// Numbers of pages are told apart by all of their bits: extents of 2^16 pages, with one in use between them, are no
/// neighbours of what lies 2^16 pages away.
#[test]
fn extents_that_lie_65536_pages_apart_are_not_joined() {
    const FAR: u64 = 1 << 16;
    for policy in ["linux", "linux+vmap=eager", "linux+vmap=sweep"] {
        host(1).run(kernel(policy, 4 * FAR), |mm| {
            let list = frames(mm, 1);
            let whole = vec![list[0]; FAR as usize];
            // 16 pages, 2^16 less 16, and again.
            let mapped: Vec<_> = (0..3)
                .flat_map(|_| [&whole[..16], &whole[16..]])
                .map(|frames| mm.vmap().map(frames, BARE, RW).unwrap())
                .collect();
            assert!(mapped.windows(2).all(|two| two[0].end() == two[1].start || two[0].start > two[1].start));
            // The fourth begins 2^16 pages behind the end of the first.
            for first in [0, 3, 1, 2, 5, 4] {
                mm.vmap().unmap(mapped[first].start).unwrap();
                mm.vmap().purge().unwrap();
                assert_eq!(mm.validate().broken, None, "{policy}");
            }
            assert_eq!(room(mm, list[0], FAR), 4 * FAR, "{policy}: all of it is one extent again");
            free(mm, list);
        });
    }
}

#[test]
fn a_kernel_range_must_lie_in_the_upper_half() {
    let host = host(1);
    let end = PageNumber::KERNEL_END;
    for range in [
        PageRange::new(START, 0),
        PageRange::new(PageNumber(0x1000), 8),
        PageRange::new(PageNumber(PageNumber::KERNEL_START.0 - 1), 8),
        PageRange::new(next(end, 0), 1),
        PageRange::new(PageNumber(end.0 - 4), 8),
        PageRange::new(START, u64::MAX),
    ] {
        let config = Config { vmap: Some(range), ..bare("linux") };
        let made = host.make(config).map(|_| ());
        assert!(matches!(made, Err(Error::BadSetting(_))), "{range:?}: {made:?}");
    }
    for (shards, pages) in [(0, 4096), (4097, 8192), (9, 8)] {
        let config = Config { vmap_shards: Some(shards), ..kernel("linux", pages) };
        let made = host.make(config).map(|_| ());
        assert!(matches!(made, Err(Error::BadSetting(_))), "{shards} shards: {made:?}");
    }
    let each_a_page = Config { vmap_shards: Some(8), ..kernel("linux", 8) };
    assert_eq!(host.make(each_a_page).map(|_| ()), Ok(()));
}

#[test]
fn frames_are_seen_in_their_order_from_every_cpu_and_every_space() {
    for policy in ["vanilla", "linux"] {
        let host = host(3);
        host.run(kernel(policy, 4096), |mm| {
            let before = mm.create_space().unwrap();
            let list = frames(mm, 600);
            let range = mm.vmap().map(&list, VmapPlace::ANYWHERE, RW).unwrap();
            assert_eq!(range.pages, 600);
            let after = mm.create_space().unwrap();
            let child = mm.space(before).fork().unwrap();
            host.on(1, || mm.space(before).switch_to().unwrap());
            for i in [0, 255, 256, 511, 599] {
                assert!(host.write_kernel(next(range.start, i), 100 + i));
                assert_eq!(mm.vmap().frame_at(next(range.start, i)), Ok(list[i as usize]));
                assert_eq!(host.on(1, || host.read_kernel(next(range.start, i))), Some(100 + i));
                for space in [after, child] {
                    let read = || {
                        mm.space(space).switch_to().unwrap();
                        host.read_kernel(next(range.start, i))
                    };
                    assert_eq!(host.on(2, read), Some(100 + i), "{policy}");
                }
                assert_eq!(mm.vmap().find(next(range.start, i)), Ok(range));
            }
            assert_eq!(mm.vmap().find(range.end()), Err(Error::NotMapped(range.end())), "the guard page");
            (0..3).for_each(|cpu| host.on(cpu, || mm.unload()));
            [before, after, child].into_iter().for_each(|id| mm.space(id).destroy().unwrap());
            mm.vmap().unmap(range.start).unwrap();
            mm.vmap().unmap_aliases().unwrap();
            assert_eq!(host.read_kernel(range.start), None);
            free(mm, list);
        });
    }
}

#[test]
fn a_lazy_unmap_interrupts_nobody_and_a_purge_each_cpu_once() {
    let host = host(4);
    host.run(kernel("linux", 4096), |mm| {
        let list = frames(mm, 4);
        let mut used = Vec::new();
        host.forget();
        for _ in 0..50 {
            let range = mm.vmap().map(&list, BARE, RW).unwrap();
            for cpu in 0..4 {
                assert!(host.on(cpu, || host.read_kernel(range.start)).is_some());
            }
            assert!(!used.contains(&range.start), "{range:?} was given out again before its flush");
            used.push(range.start);
            mm.vmap().unmap(range.start).unwrap();
        }
        assert_eq!(host.interrupts(), 0);
        assert_eq!(mm.vmap().waits().unwrap().pages, 200);
        assert!(host.caches_kernel(3, used[0]), "nobody has flushed");
        assert_eq!(mm.vmap().purge(), Ok(200));
        assert_eq!([0, 1, 2, 3].map(|cpu| host.interrupts_to(cpu)), [0, 1, 1, 1]);
        assert_eq!([0, 1, 2, 3].map(|cpu| host.kernel_flushes(cpu)), [(1, 0); 4]);
        assert_eq!(mm.vmap().waits().unwrap().pages, 0);
        assert_eq!(mm.vmap().map(&list, BARE, RW).unwrap().start, used[0], "the lowest is free again");
        mm.vmap().unmap(used[0]).unwrap();
        host.forget();
        assert_eq!(mm.vmap().purge(), Ok(4));
        assert_eq!([0, 1, 2, 3].map(|cpu| host.kernel_flushes(cpu)), [(0, 4); 4], "few: one by one");
        host.forget();
        assert_eq!(mm.vmap().purge(), Ok(0));
        assert_eq!((host.interrupts(), host.kernel_flushes(0)), (0, (0, 0)), "nothing was unmapped since");
        assert_eq!(counted(mm, Counter::VmapPurges), 2);
        assert_eq!(host.kernel_stale.get(), 0);
        free(mm, list);
    });
}

#[test]
fn an_eager_unmap_interrupts_every_other_cpu() {
    let host = host(4);
    host.run(kernel("vanilla", 4096), |mm| {
        let list = frames(mm, 4);
        host.on(3, || mm.cpu_offline().unwrap());
        host.forget();
        for n in 1..=10 {
            let range = mm.vmap().map(&list, BARE, RW).unwrap();
            assert_eq!(range.start, START, "the first place is free at once");
            assert!(host.on(2, || host.read_kernel(range.start)).is_some());
            mm.vmap().unmap(range.start).unwrap();
            assert_eq!([1, 2, 3].map(|cpu| host.interrupts_to(cpu)), [n, n, 0]);
            assert_eq!(host.on(2, || host.read_kernel(range.start)), None);
        }
        let range = mm.vmap().map_ram(&list, RW).unwrap();
        mm.vmap().unmap_ram(range).unwrap();
        assert_eq!(host.interrupts_to(1), 11);
        mm.vmap().unmap_aliases().unwrap();
        assert_eq!(host.interrupts_to(1), 11, "nothing waits");
        host.on(3, || mm.cpu_online().unwrap());
        free(mm, list);
    });
}

#[test]
fn a_flush_of_aliases_costs_what_one_eager_unmap_costs() {
    let cost = |policy| {
        let host = host(4);
        host.run(kernel(policy, 4096), |mm| {
            let list = frames(mm, 4);
            let range = mm.vmap().map(&list, BARE, RW).unwrap();
            host.forget();
            mm.vmap().unmap(range.start).unwrap();
            mm.vmap().unmap_aliases().unwrap();
            free(mm, list);
            (host.interrupts(), (0..4).map(|cpu| host.kernel_flushes(cpu)).collect::<Vec<_>>())
        })
    };
    assert_eq!(cost("vanilla"), cost("linux"));
    assert_eq!(cost("linux"), (3, vec![(0, 4); 4]));
}

#[test]
fn lazy_cpus_are_flushed_too_and_those_that_are_off_are_not_asked() {
    let host = host(4);
    host.run(kernel("linux", 4096), |mm| {
        let (list, id) = (frames(mm, 1), mm.create_space().unwrap());
        let range = mm.vmap().map(&list, BARE, RW).unwrap();
        host.on(1, || {
            mm.space(id).switch_to().unwrap();
            mm.enter_lazy();
        });
        for cpu in 0..4 {
            assert!(host.on(cpu, || host.read_kernel(range.start)).is_some());
        }
        host.on(3, || mm.cpu_offline().unwrap());
        mm.vmap().unmap(range.start).unwrap();
        host.forget();
        mm.vmap().unmap_aliases().unwrap();
        assert_eq!([1, 2, 3].map(|cpu| host.interrupts_to(cpu)), [1, 1, 0]);
        assert_eq!([0, 1, 2, 3].map(|cpu| host.caches_kernel(cpu, range.start)), [false, false, false, true]);
        host.on(3, || mm.cpu_online().unwrap());
        assert!(!host.caches_kernel(3, range.start), "who comes online starts with everything flushed");
        host.on(1, || mm.unload());
        mm.space(id).destroy().unwrap();
        free(mm, list);
    });
}

#[test]
fn frames_of_their_own_wait_for_the_purge_and_are_counted() {
    for at_once in [false, true] {
        let host = host(2);
        let config = Config { vfree_at_once: at_once, ..kernel("linux", 4096) };
        host.run(config, |mm| {
            mm.vmap().purge().unwrap();
            let range = mm.vmap().alloc(10, VmapPlace::ANYWHERE, RW).unwrap();
            assert!(host.write_kernel(next(range.start, 9), 7));
            assert_eq!(host.on(1, || host.read_kernel(next(range.start, 9))), Some(7));
            let before = mm.frames().available();
            mm.vmap().free(range.start).unwrap();
            let waits = if at_once { 0 } else { 10 };
            assert_eq!(mm.vmap().waits().unwrap().frames, waits);
            assert_eq!(mm.frames().available() - before, 10 - waits);
            assert_eq!((mm.validate().vmalloc, mm.validate().unpurged), (waits, waits));
            assert_eq!(mm.vmap().purge(), Ok(11), "with the guard page");
            assert_eq!(mm.frames().available() - before, 10);
            // With interrupts off they wait in any case: a lock may be held by whom this interrupts.
            let range = mm.vmap().alloc(10, VmapPlace::ANYWHERE, RW).unwrap();
            host.irqs_off();
            mm.vmap().free(range.start).unwrap();
            host.irqs_on();
            assert_eq!(mm.vmap().waits().unwrap().frames, 10);
            mm.vmap().purge().unwrap();
        });
    }
    host(2).run(kernel("vanilla", 4096), |mm| {
        let before = {
            let range = mm.vmap().alloc(10, BARE, RW).unwrap();
            mm.vmap().free(range.start).unwrap();
            mm.frames().available()
        };
        let range = mm.vmap().alloc(10, BARE, RW).unwrap();
        mm.vmap().free(range.start).unwrap();
        assert_eq!(mm.frames().available(), before, "eager: at once, and flushed");
    });
}

#[test]
fn alignment_limits_and_nodes_are_kept_to() {
    for policy in ["vanilla", "linux"] {
        let host = Host::new(machine::showing::two_nodes());
        host.run(kernel(policy, 4096), |mm| {
            let list = frames(mm, 3);
            for align in [1, 2, 64, 1024] {
                let place = VmapPlace { align, ..VmapPlace::ANYWHERE };
                let range = mm.vmap().map(&list, place, RW).unwrap();
                assert_eq!(range.start.0 % align, 0, "{policy}");
                mm.vmap().unmap(range.start).unwrap();
            }
            let within = at(3000, 3);
            let place = VmapPlace { within: Some(within), guard: false, ..VmapPlace::ANYWHERE };
            assert_eq!(mm.vmap().map(&list, place, RW), Ok(within));
            assert_eq!(mm.vmap().map(&list, place, RW), Err(Error::NoAddress), "{policy}");
            mm.vmap().unmap(within.start).unwrap();
            for node in [0, 1] {
                let place = VmapPlace { node: Some(NodeId(node)), ..VmapPlace::ANYWHERE };
                let range = mm.vmap().alloc(5, place, RW).unwrap();
                for i in 0..5 {
                    let frame = mm.vmap().frame_at(next(range.start, i)).unwrap().0;
                    assert_eq!((frame - 0xfc00) / 2048, u32::from(node), "{policy}");
                }
                mm.vmap().free(range.start).unwrap();
            }
            let nowhere = VmapPlace { node: Some(NodeId(7)), ..VmapPlace::ANYWHERE };
            assert_eq!(mm.vmap().alloc(5, nowhere, RW), Err(Error::NoSuchNode));
            mm.vmap().unmap_aliases().unwrap();
            free(mm, list);
        });
    }
}

#[test]
fn what_is_read_only_cannot_be_written() {
    let host = host(1);
    host.run(kernel("linux", 4096), |mm| {
        let list = frames(mm, 1);
        for (prot, writable, executable) in [
            (KernelProt::Read, false, false),
            (KernelProt::ReadWrite, true, false),
            (KernelProt::ReadExecute, false, true),
        ] {
            let range = mm.vmap().map(&list, BARE, prot).unwrap();
            assert!(host.read_kernel(range.start).is_some());
            assert_eq!(host.write_kernel(range.start, 1), writable, "{prot:?}");
            assert_eq!(host.may_execute(range.start), executable, "{prot:?}");
            mm.vmap().unmap(range.start).unwrap();
        }
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
    });
}

#[test]
fn nonsense_is_refused_and_changes_nothing() {
    for policy in ["vanilla", "linux"] {
        let host = host(2);
        host.run(kernel(policy, 4096), |mm| {
            let list = frames(mm, 4);
            let other = mm.vmap().map(&list, VmapPlace::ANYWHERE, RW).unwrap();
            let own = mm.vmap().alloc(2, VmapPlace::ANYWHERE, RW).unwrap();
            let ram = mm.vmap().map_ram(&list, RW).unwrap();
            let before = (mm.validate(), mm.vmap().waits().unwrap());
            let place = |align| VmapPlace { align, ..BARE };
            let within = |range| VmapPlace { within: Some(range), ..BARE };
            let check = |what: Result<PageRange, Error>, error| assert_eq!(what, Err(error), "{policy}");
            check(mm.vmap().map(&[], BARE, RW), Error::BadRange);
            check(mm.vmap().alloc(0, BARE, RW), Error::BadRange);
            check(mm.vmap().alloc(4097, BARE, RW), Error::BadRange);
            check(mm.vmap().alloc(u64::MAX, BARE, RW), Error::BadRange);
            for align in [0, 3, 1 << 40, u64::MAX] {
                check(mm.vmap().map(&list, place(align), RW), Error::BadAlignment(align));
            }
            check(mm.vmap().map(&list, within(at(0, 3)), RW), Error::BadRange);
            check(mm.vmap().map(&list, within(at(4096, 8)), RW), Error::BadRange);
            check(mm.vmap().map(&list, within(PageRange::new(START, u64::MAX)), RW), Error::BadRange);
            check(mm.vmap().map(&[FrameNumber(1)], BARE, RW), Error::NoSuchFrame(FrameNumber(1)));
            check(mm.vmap().map_ram(&[], RW), Error::BadRange);
            check(mm.vmap().map_ram(&[list[0]; 65], RW), Error::BadRange);
            let far = PageNumber(0x1000);
            let last = next(START, 4095);
            for (what, error) in [
                (mm.vmap().unmap(far), Error::BadRange),
                (mm.vmap().unmap(next(START, 4096)), Error::BadRange),
                (mm.vmap().unmap(last), Error::NotMapped(last)),
                (mm.vmap().unmap(next(other.start, 1)), Error::WrongRelease(next(other.start, 1))),
                (mm.vmap().free(other.start), Error::WrongRelease(other.start)),
                (mm.vmap().unmap(own.start), Error::WrongRelease(own.start)),
                (mm.vmap().unmap_ram(own), Error::WrongRelease(own.start)),
                (mm.vmap().unmap_ram(PageRange::new(ram.start, 3)), Error::BadRange),
                (mm.vmap().unmap_ram(PageRange::new(last, 1)), Error::NotMapped(last)),
                (mm.vmap().unmap_ram(PageRange::new(far, 1)), Error::BadRange),
            ] {
                assert_eq!(what, Err(error), "{policy}");
            }
            assert!(mm.vmap().unmap(ram.start).is_err() && mm.vmap().free(ram.start).is_err(), "{policy}");
            assert_eq!((mm.validate(), mm.vmap().waits().unwrap()), before, "{policy}");
            assert_eq!(mm.vmap().find(next(ram.start, 2)), Ok(ram));
            mm.vmap().unmap_ram(ram).unwrap();
            assert_eq!(mm.vmap().unmap_ram(ram), Err(Error::NotMapped(ram.start)), "{policy}");
            mm.vmap().unmap(other.start).unwrap();
            assert_eq!(mm.vmap().unmap(other.start), Err(Error::NotMapped(other.start)), "{policy}");
            mm.vmap().free(own.start).unwrap();
            assert_eq!(mm.vmap().free(own.start), Err(Error::NotMapped(own.start)), "{policy}");
            mm.vmap().unmap_aliases().unwrap();
            free(mm, list);
        });
    }
}

#[test]
fn who_needs_interrupts_on_says_so() {
    let host = host(2);
    host.run(kernel("vanilla", 4096), |mm| {
        let list = frames(mm, 1);
        let range = mm.vmap().map(&list, BARE, RW).unwrap();
        host.irqs_off();
        assert_eq!(mm.vmap().unmap(range.start), Err(Error::NeedsInterrupts));
        assert_eq!(mm.vmap().unmap_aliases(), Err(Error::NeedsInterrupts));
        host.irqs_on();
        assert_eq!(mm.vmap().unmap(range.start), Ok(()));
        free(mm, list);
    });
}

/// What an interrupt handler is to do, and in the middle of what.
type Work = fn(&Mm<'_>, &[FrameNumber], PageRange);

/// CPU 0 is interrupted at every touch of shared memory, where it has interrupts on, by a handler that unmaps.
fn interrupted(work: Work, handler: fn(&Mm<'_>, PageRange), make: fn(&Mm<'_>, &[FrameNumber]) -> PageRange) {
    let setup = Setup { cpus: 2, frames: 1024, ..Setup::default() };
    let config = Config { vmap_shards: Some(2), ..kernel("linux", 2048) };
    let (cases, stuck) = everywhere_as(&setup, &config, None, |mm, n| {
        let host = mm.platform();
        let list = frames(mm, 3);
        let (mine, other) = (make(mm, &list), mm.vmap().map(&list, BARE, RW).unwrap());
        host.at_touch(0, n, move |mm| {
            let host = mm.platform();
            // Where they are off none can come: it comes when they are on again.
            if host.irqs_off() {
                handler(mm, mine);
                host.irqs_on();
            } else {
                host.on_irqs_on.borrow_mut().push_back(Box::new(move |mm| handler(mm, mine)));
            }
        });
        work(mm, &list, other);
        let all = host.all_placed();
        if all {
            mm.vmap().unmap_aliases().unwrap();
            assert_eq!(mm.vmap().waits().unwrap(), quietmm::Waits::default());
            assert_eq!(mm.vmap().find(mine.start), Err(Error::NotMapped(mine.start)));
            free(mm, list);
        }
        all
    });
    assert!(cases.len() > 20, "{} cases", cases.len());
    assert_eq!(stuck, 0, "a handler waits for whom it has interrupted");
}

#[test]
fn an_interrupt_handler_may_unmap_in_the_middle_of_anything() {
    let works: [Work; 5] = [
        |mm, _, other| mm.vmap().unmap(other.start).unwrap(),
        |mm, list, other| {
            let range = mm.vmap().map(list, BARE, RW).unwrap();
            mm.vmap().unmap(range.start).unwrap();
            mm.vmap().unmap(other.start).unwrap();
        },
        |mm, list, other| {
            let range = mm.vmap().map_ram(list, RW).unwrap();
            mm.vmap().unmap_ram(range).unwrap();
            mm.vmap().unmap(other.start).unwrap();
        },
        |mm, _, other| {
            mm.vmap().unmap(other.start).unwrap();
            mm.vmap().unmap_aliases().unwrap();
        },
        |mm, _, other| {
            assert_eq!(mm.vmap().find(other.start), Ok(other));
            mm.vmap().unmap(other.start).unwrap();
        },
    ];
    for work in works {
        interrupted(
            work,
            |mm, mine| mm.vmap().unmap(mine.start).unwrap(),
            |mm, list| mm.vmap().map(list, BARE, RW).unwrap(),
        );
        interrupted(
            work,
            |mm, mine| mm.vmap().free(mine.start).unwrap(),
            |mm, _| mm.vmap().alloc(3, BARE, RW).unwrap(),
        );
        interrupted(
            work,
            |mm, mine| mm.vmap().unmap_ram(mine).unwrap(),
            |mm, list| mm.vmap().map_ram(list, RW).unwrap(),
        );
    }
}

#[test]
fn exhaustion_purges_and_then_says_so() {
    let host = host(3);
    host.run(kernel("linux", 512), |mm| {
        let list = frames(mm, 1);
        assert_eq!(room(mm, list[0], 1), 512);
        host.forget();
        assert_eq!(mm.vmap().waits().unwrap().pages, 512);
        let range = mm.vmap().map(&[list[0]; 512], BARE, RW).unwrap();
        assert_eq!((range, host.interrupts()), (at(0, 512), 2), "one purge found room");
        assert_eq!(mm.vmap().map(&list, BARE, RW), Err(Error::NoAddress));
        mm.vmap().unmap(range.start).unwrap();
        assert_eq!(room(mm, list[0], 4), 512);
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
    });
}

/// Whatever its size, it may begin with the last page of a part, and end with the first of another.
#[test]
fn an_extent_may_reach_into_as_many_shards_as_it_can() {
    let host = Host::new(Setup { cpus: 8, ..Setup::default() });
    host.run(Config { vmap_shards: Some(8), ..kernel("linux", 800) }, |mm| {
        let list = frames(mm, 1);
        for whole in 0..=6 {
            for pages in [whole * 100 + 1, whole * 100 + 2, whole * 100 + 99, whole * 100 + 100] {
                for start in [0, 1, 98, 99] {
                    let within = at(start, pages);
                    let place = VmapPlace { within: Some(within), ..BARE };
                    let got = mm.vmap().map(&vec![list[0]; pages as usize], place, RW);
                    assert_eq!(got, Ok(within));
                    mm.vmap().unmap(within.start).unwrap();
                    mm.vmap().unmap_aliases().unwrap();
                }
            }
        }
        assert_eq!(mm.vmap().map(&[list[0]; 800], BARE, RW), Ok(at(0, 800)));
        mm.vmap().unmap(at(0, 800).start).unwrap();
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
    });
}

#[test]
fn an_extent_may_reach_across_shards() {
    let host = Host::new(Setup { cpus: 4, ..Setup::default() });
    host.run(Config { vmap_shards: Some(4), ..kernel("linux", 1000) }, |mm| {
        let list = frames(mm, 1);
        let whole = mm.vmap().map(&[list[0]; 1000], BARE, RW).unwrap();
        assert_eq!(whole, at(0, 1000));
        assert_eq!(mm.vmap().find(next(START, 999)), Ok(whole));
        mm.vmap().unmap(whole.start).unwrap();
        assert_eq!(mm.vmap().purge(), Ok(1000));
        // Each CPU takes from its own part; what is left reaches from one into the next.
        let parts =
            [0, 1, 2, 3].map(|cpu| host.on(cpu, || mm.vmap().map(&[list[0]; 100], BARE, RW).unwrap()));
        assert_eq!(parts, [0, 250, 500, 750].map(|page| at(page, 100)));
        host.on(1, || mm.vmap().unmap(parts[1].start).unwrap());
        assert_eq!(mm.vmap().map(&[list[0]; 400], BARE, RW), Ok(at(100, 400)), "after a purge");
        assert_eq!(mm.vmap().find(next(START, 300)), Ok(at(100, 400)));
        mm.vmap().unmap(at(100, 400).start).unwrap();
        [0, 2, 3].into_iter().for_each(|i| mm.vmap().unmap(parts[i].start).unwrap());
        mm.vmap().unmap_aliases().unwrap();
        assert_eq!(mm.vmap().map(&[list[0]; 1000], BARE, RW), Ok(whole));
        mm.vmap().unmap(whole.start).unwrap();
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
    });
}

/// Two shards whose extents lie in slabs of a directory that is not there yet: whoever comes second finds that of the first.
#[test]
fn shards_that_need_a_directory_at_once_make_one() {
    // So many that what is made at the start lies in the second directory.
    const SHARDS: u32 = 18;
    let setup = Setup { cpus: 2, ..Setup::default() };
    let config = Config { vmap_shards: Some(SHARDS), ..kernel("linux", 100 * u64::from(SHARDS)) };
    let cases = at_every_touch(&setup, &config, None, |mm, place| {
        let list = frames(mm, 1);
        let map = |shard: u64| {
            let within = Some(at(100 * shard, 100));
            mm.vmap().map(&list, VmapPlace { within, ..BARE }, RW).unwrap()
        };
        let before = mm.frames().available();
        let first = std::cell::Cell::new(None);
        let second = race(mm, place, || first.set(Some(map(1))), || map(2));
        let took = before - mm.frames().available();
        for (range, shard) in [(first.get().unwrap(), 1), (second, 2)] {
            assert_eq!(range, at(100 * shard, 1));
            assert_eq!(mm.vmap().find(range.start), Ok(range));
            mm.vmap().unmap(range.start).unwrap();
        }
        mm.vmap().unmap_aliases().unwrap();
        assert_eq!(mm.validate().broken, None);
        free(mm, list);
        took
    });
    let fewest = cases.results.iter().min().unwrap();
    assert!(cases.results.iter().all(|took| took == fewest), "{:?}: no frame is lost", cases.results);
}

/// What is being made is found when it is whole, by whoever asks at whatever place.
#[test]
fn who_asks_for_a_map_that_is_being_made_finds_it_whole_or_not_at_all() {
    let setup = Setup { cpus: 2, frames: 512, ..Setup::default() };
    for policy in ["linux", "linux+vmap=eager", "linux+vmap=sweep"] {
        let cases = at_every_touch(&setup, &kernel(policy, 1024), None, |mm, place| {
            let host = mm.platform();
            let made = std::cell::Cell::new(None);
            let makes = || made.set(mm.vmap().alloc(3, BARE, RW).ok());
            let found = race(mm, place, makes, || {
                let found = mm.vmap().find(next(START, 1));
                let whole = || (0..3).all(|n| host.read_kernel(next(START, n)).is_some());
                assert!(found.is_err() || whole(), "{policy} {place:?}: {found:?}");
                found.is_ok()
            });
            mm.vmap().free(made.get().expect("there is memory").start).unwrap();
            mm.vmap().unmap_aliases().unwrap();
            found
        });
        assert!(cases.count(|&found| !found) > 10, "{policy}");
    }
}

/// Maps that begin inside a hole and end inside it need two slots, others one, in whatever order: no address is lost.
#[test]
fn maps_in_the_middle_of_holes_and_at_their_ends_lose_no_address() {
    for before in 0..4 {
        host(1).run(kernel("linux", 4096), |mm| {
            let list = frames(mm, 1);
            (0..before).for_each(|_| _ = mm.vmap().map(&list, BARE, RW).unwrap());
            let aligned = VmapPlace { align: 4, ..BARE };
            let mut live = Vec::new();
            for n in 0..400 {
                let place = if n % 3 == 2 { BARE } else { aligned };
                live.push(mm.vmap().map(&list, place, RW).unwrap().start);
                assert_eq!(mm.validate().broken, None, "after {n}");
            }
            live.into_iter().for_each(|at| mm.vmap().unmap(at).unwrap());
            (0..before).for_each(|n| mm.vmap().unmap(next(START, n)).unwrap());
            mm.vmap().unmap_aliases().unwrap();
            assert_eq!(room(mm, list[0], 4096), 4096);
            mm.vmap().unmap_aliases().unwrap();
            free(mm, list);
        });
    }
}

/// An extent across shards takes a slot for each at once: where memory is out after some of them, these go back.
#[test]
fn slots_for_an_extent_across_shards_are_not_lost_where_memory_is_out() {
    const SHARDS: u32 = 512;
    for pages in [17, 20, 33, 36, 49, 65] {
        let host = Host::new(Setup { frames: 2048, ..Setup::default() });
        host.run(Config { vmap_shards: Some(SHARDS), ..kernel("linux", 16 * u64::from(SHARDS)) }, |mm| {
            let list = frames(mm, 1);
            let whole = vec![list[0]; pages];
            let map = |pages: usize| mm.vmap().map(&whole[..pages], BARE, RW).map(|range| range.start);
            // All tables are there.
            let all: Vec<_> = (0..SHARDS).map(|_| map(16).unwrap()).collect();
            all.into_iter().for_each(|start| mm.vmap().unmap(start).unwrap());
            mm.vmap().purge().unwrap();
            let mut live = vec![map(pages).unwrap()];
            let held = machine::swapping::take_free(mm);
            let refused = loop {
                match map(pages) {
                    Ok(start) => live.push(start),
                    Err(error) => break error,
                }
            };
            assert_eq!(refused, Error::OutOfMemory, "after {} of {pages} pages", live.len());
            assert_eq!(mm.validate().broken, None, "after {} of {pages} pages", live.len());
            live.into_iter().for_each(|start| mm.vmap().unmap(start).unwrap());
            mm.vmap().purge().unwrap();
            machine::give_back(mm, held);
            free(mm, list);
        });
    }
}
