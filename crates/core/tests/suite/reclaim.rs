//! Reclaim: which pages go, in what order things happen to them, and what it costs other CPUs.

use crate::machine;

use std::cell::Cell;
use std::rc::Rc;

use machine::{Happened, Host, Mm, Setup, bare, exhaust, give_back, pages};
use quietmm::{
    Advice, AllocFrom, Backing, Config, Counter, Event, FileId, FrameNumber, NodeId, PageNumber, Prot,
    Region, Rule, SpaceId,
};

const AT: u64 = 0x1000;

/// A file of `count` pages, shown at `AT` in a space that `cpus` run in. Nothing is touched yet.
fn mapped(mm: &Mm<'_>, count: u64, cpus: &[u16]) -> (SpaceId, FileId) {
    let (id, file) = (mm.create_space().unwrap(), mm.create_file(count).unwrap());
    mm.space(id).map(pages(AT, count), Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
    cpus.iter().for_each(|&cpu| mm.platform().on(cpu, || mm.space(id).switch_to().unwrap()));
    (id, file)
}

fn each_page(mm: &Mm<'_>, count: u64, cpus: &[u16], mut touch: impl FnMut(&Host, u64)) {
    let host = mm.platform();
    for &cpu in cpus {
        host.on(cpu, || {
            (AT..AT + count).for_each(|page| touch(host, page));
            mm.drain_lru_batch();
        });
    }
    host.forget();
}

fn read_all(mm: &Mm<'_>, id: SpaceId, count: u64, cpus: &[u16]) {
    each_page(mm, count, cpus, |host, page| assert!(host.read(mm, id, page).is_ok()));
}

fn present(mm: &Mm<'_>, id: SpaceId, page: u64) -> bool {
    mm.space(id).lookup(PageNumber(page)).unwrap().is_present()
}

#[test]
fn a_first_use_rotates_and_a_second_activates() {
    for used_again in [true, false] {
        let host = Host::new(Setup::default());
        host.run(Config { scan_batch: 16, ..bare("linux+aging=flush") }, |mm| {
            let (id, _) = mapped(mm, 32, &[0]);
            read_all(mm, id, 32, &[0]);
            if used_again {
                // The oldest page is judged first; it is used once more right after its bit was cleared.
                host.on_rotated.borrow_mut().push_back(Box::new(move |mm| {
                    assert!(mm.platform().read(mm, id, AT).is_ok());
                }));
            }
            // The first frame that is missing: what is reclaimed for it is one batch.
            let mut held = Vec::new();
            while mm.counter(Counter::PgStealDirect) == 0 {
                held.push(mm.frames().alloc(0, quietmm::AllocFrom::HERE).unwrap());
            }
            assert_eq!(mm.counter(Counter::PgRotated), 32, "every page was used once");
            assert_eq!(mm.counter(Counter::PgActivate), u64::from(used_again));
            // 16 are wanted; where one of the first 16 is kept, another 16 are looked at.
            assert_eq!(mm.counter(Counter::PgStealDirect), if used_again { 31 } else { 16 });
            assert_eq!(present(mm, id, AT), used_again);
            assert!((1..16).all(|i| !present(mm, id, AT + i)));
            give_back(mm, held);
        });
    }
}

#[test]
fn a_page_that_two_spaces_use_is_activated_at_once() {
    let host = Host::new(Setup::default());
    host.run(Config { scan_batch: 16, ..bare("linux") }, |mm| {
        let (a, file) = mapped(mm, 32, &[0]);
        read_all(mm, a, 32, &[0]);
        let b = mm.create_space().unwrap();
        mm.space(b).map(pages(AT, 1), Backing::File { file, offset: 5 }, Prot::Read).unwrap();
        mm.space(b).switch_to().unwrap();
        read_all(mm, b, 1, &[0]);
        let mut held = Vec::new();
        while mm.counter(Counter::PgStealDirect) == 0 {
            held.push(mm.frames().alloc(0, quietmm::AllocFrom::HERE).unwrap());
        }
        assert_eq!((mm.counter(Counter::PgActivate), mm.counter(Counter::PgRotated)), (1, 31));
        assert!(present(mm, a, AT + 5) && present(mm, b, AT));
        give_back(mm, held);
    });
}

/// CPU 0 reclaims 128 pages that CPUs 1 and 2 have cached: interrupts, batches, pages.
fn reclaimed(policy: &str) -> (u64, u64, u64) {
    let host = Host::new(Setup { cpus: 3, ..Setup::default() });
    // The tables that are empty in the end are not its matter.
    host.broken.set(Some(Rule::TablesBeforeVictim));
    host.run(bare(policy), |mm| {
        let (id, file) = mapped(mm, 128, &[1, 2]);
        read_all(mm, id, 128, &[1, 2]);
        let held = exhaust(mm);
        assert_eq!(mm.file(file).cached_pages(), Ok(0));
        assert!((0..128).all(|i| !host.caches(1, AT + i) && !host.caches(2, AT + i)));
        assert_eq!(host.interrupts_to(1), host.interrupts_to(2));
        give_back(mm, held);
        // Those of drains, when nothing was left to reclaim, are another matter.
        let interrupts = host.interrupts() as u64 - mm.counter(Counter::DrainIpisSent);
        (interrupts, mm.counter(Counter::BatchFlushes), mm.counter(Counter::BatchPages))
    })
}

#[test]
fn a_batch_interrupts_a_cpu_at_most_once_and_per_page_once_a_page() {
    assert_eq!(reclaimed("linux+unmap=per-page"), (2 * 128, 0, 0));
    assert_eq!(reclaimed("linux"), (2 * 4, 4, 128));
    assert_eq!(reclaimed("linux+unmap=batch-clean"), (2 * 4, 4, 128), "all pages are clean");
}

#[test]
fn aging_with_a_flush_interrupts_once_a_page_more() {
    assert_eq!(reclaimed("vanilla"), (2 * 2 * 128, 0, 0));
    assert_eq!(reclaimed("linux+aging=flush").0, 2 * 128 + 2 * 4);
}

#[test]
fn dirty_pages_are_flushed_at_once_where_only_clean_ones_are_deferred() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.broken.set(Some(Rule::TablesBeforeVictim));
    host.run(bare("linux+unmap=batch-clean"), |mm| {
        let (id, _) = mapped(mm, 32, &[1]);
        each_page(mm, 32, &[1], |host, page| {
            let done = if page % 4 == 0 {
                host.write(mm, id, page, page)
            } else {
                host.read(mm, id, page).map(|_| ())
            };
            done.unwrap();
        });
        let held = exhaust(mm);
        assert_eq!(mm.counter(Counter::BatchPages), 24);
        assert_eq!(host.interrupts(), 8 + 1);
        give_back(mm, held);
    });
}

/// CPU 0 writes out what CPU 1 has dirtied; says on how many of the writes CPU 1 could still have written on.
fn writable_during_io(policy: &str, broken: Option<Rule>) -> u32 {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.broken.set(broken);
    host.run(bare(policy), |mm| {
        let (id, file) = mapped(mm, 16, &[1]);
        each_page(mm, 16, &[1], |host, page| host.write(mm, id, page, page).unwrap());
        let early = Rc::new(Cell::new(0));
        for _ in 0..16 {
            let early = Rc::clone(&early);
            host.on_disk_write.borrow_mut().push_back(Box::new(move |mm| {
                let host = mm.platform();
                let Some(Happened::DiskWrite(_, block)) = host.log.borrow().last().copied() else {
                    panic!("a write was noted");
                };
                early.set(early.get() + u32::from(host.caches(1, AT + block)));
            }));
        }
        let held = exhaust(mm);
        give_back(mm, held);
        assert_eq!((mm.counter(Counter::PgPgOut), mm.file(file).cached_pages()), (16, Ok(0)));
        assert!((0..16).all(|i| host.on_disk(file, i) == Some(AT + i)));
        // And it comes back.
        host.on(1, || (AT..AT + 16).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(page))));
        early.get()
    })
}

#[test]
fn a_dirty_page_is_flushed_before_it_is_written_out() {
    for policy in ["vanilla", "linux", "linux+unmap=batch-clean"] {
        assert_eq!(writable_during_io(policy, None), 0, "{policy}");
    }
    assert_eq!(writable_during_io("linux", Some(Rule::FlushBeforeIo)), 16);
}

#[test]
fn no_page_is_freed_before_its_flush() {
    for (broken, early) in [(None, 0), (Some(Rule::FlushBeforeFree), 32)] {
        let host = Host::new(Setup { cpus: 2, ..Setup::default() });
        host.broken.set(broken);
        host.run(bare("linux"), |mm| {
            let (id, _) = mapped(mm, 32, &[1]);
            read_all(mm, id, 32, &[1]);
            let held = exhaust(mm);
            let log = host.log.borrow();
            let mut flushed = false;
            let mut unmapped = Vec::new();
            let mut wrong = 0;
            for what in log.iter() {
                match what {
                    Happened::FlushSpace(1) => flushed = true,
                    Happened::Event(Event::Unmapped { frame, .. }) => {
                        unmapped.push(*frame);
                        flushed = false;
                    }
                    Happened::Event(Event::Freed { frame, .. }) if unmapped.contains(frame) => {
                        wrong += u32::from(!flushed);
                    }
                    _ => {}
                }
            }
            drop(log);
            assert_eq!((unmapped.len(), wrong), (32, early));
            give_back(mm, held);
        });
    }
}

#[test]
fn a_page_whose_write_fails_stays_dirty_and_in_memory() {
    for policy in ["vanilla", "linux"] {
        let host = Host::new(Setup { cpus: 2, ..Setup::default() });
        host.run(bare(policy), |mm| {
            let (id, file) = mapped(mm, 16, &[1]);
            each_page(mm, 16, &[1], |host, page| host.write(mm, id, page, page).unwrap());
            host.fail_writes.set(true);
            give_back(mm, exhaust(mm));
            assert!(mm.counter(Counter::PgPgOutFailed) >= 16);
            assert_eq!((mm.counter(Counter::PgPgOut), mm.file(file).cached_pages()), (0, Ok(16)));
            host.on(1, || (AT..AT + 16).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(page))));
            host.fail_writes.set(false);
            give_back(mm, exhaust(mm));
            assert_eq!(mm.file(file).cached_pages(), Ok(0));
            assert!((0..16).all(|i| host.on_disk(file, i) == Some(AT + i)), "still dirty, so written now");
        });
    }
}

#[test]
fn without_a_device_dirty_pages_stay_and_clean_ones_go() {
    let host = Host::new(Setup { disk: false, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let (id, file) = mapped(mm, 32, &[0]);
        each_page(mm, 32, &[0], |host, page| {
            let done = if page % 2 == 0 {
                host.write(mm, id, page, page)
            } else {
                host.read(mm, id, page).map(|_| ())
            };
            done.unwrap();
        });
        give_back(mm, exhaust(mm));
        assert_eq!(mm.file(file).cached_pages(), Ok(16));
        (AT..AT + 32).for_each(|page| {
            assert_eq!(host.read(mm, id, page), Ok(if page % 2 == 0 { page } else { 0 }));
        });
    });
}

/// While a page is being written out, another CPU maps it again, writes to it and unmaps it: nobody holds it when
/// the write is done, but its content is newer than the device's. Returns whether that CPU had to wait.
fn written_to_during_its_io(broken: Option<Rule>) -> bool {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let (id, file) = mapped(mm, 1, &[1]);
        let other = mm.create_space().unwrap();
        // A neighbour keeps the tables on the way, so that the access below needs no memory.
        mm.space(other).map(pages(AT + 1, 1), Backing::Anonymous, Prot::Read).unwrap();
        mm.space(other).map(pages(AT, 1), Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
        host.on(1, || {
            mm.space(other).switch_to().unwrap();
            host.read(mm, other, AT).unwrap();
            mm.space(other).advise(pages(AT, 1), Advice::Drop).unwrap();
            mm.space(id).switch_to().unwrap();
        });
        each_page(mm, 1, &[1], |host, page| host.write(mm, id, page, 1).unwrap());
        host.on_disk_write.borrow_mut().push_back(Box::new(move |mm| {
            let host = mm.platform();
            host.broken.set(broken);
            host.instead_of_page_wait.set(Some(Rule::WriteWaitsForIo));
            host.on(1, || {
                mm.space(other).switch_to().unwrap();
                host.write(mm, other, AT, 2).unwrap();
                mm.space(other).unmap(pages(AT, 1)).unwrap();
                mm.space(id).switch_to().unwrap();
            });
            host.broken.set(None);
        }));
        give_back(mm, exhaust(mm));
        assert!(mm.counter(Counter::PgPgOut) >= 1);
        assert_eq!(host.on(1, || host.read(mm, id, AT)), Ok(2));
        host.instead_of_page_wait.take().is_none()
    })
}

#[test]
fn who_writes_to_a_page_that_reclaim_writes_out_waits_for_it() {
    assert!(written_to_during_its_io(None));
}

#[test]
fn a_page_that_was_written_to_during_its_io_is_not_dropped() {
    assert!(!written_to_during_its_io(Some(Rule::WriteWaitsForIo)));
}

#[test]
fn kswapd_is_woken_below_low_and_reclaims_to_high() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    let min = 400;
    host.run(Config { min_free: Some(min), ..bare("linux") }, |mm| {
        let (id, file) = mapped(mm, 5000, &[1]);
        host.on(1, || {
            let woken = |page: &u64| {
                host.read(mm, id, *page).unwrap();
                mm.counter(Counter::KswapdWoken) > 0
            };
            (AT..AT + 5000).find(woken).expect("memory runs short");
        });
        let (low, high) = (u64::from(min + min / 4 + 1), u64::from(min + min / 2 + 2));
        assert!(mm.frames().available() <= low && mm.frames().available() > u64::from(min));
        assert_eq!(mm.counter(Counter::AllocStall), 0, "nobody had to reclaim for himself");
        mm.kswapd(NodeId(0)).unwrap();
        let free = mm.frames().available();
        assert!(free >= high && free < high + 32, "{free} free, high is {high}");
        assert_eq!(mm.counter(Counter::PgStealDirect), 0);
        assert!(mm.counter(Counter::PgStealKswapd) >= high - low);
        let cached = mm.file(file).cached_pages().unwrap();
        // It stops there: the next one is woken only when memory is short again.
        host.on(1, || host.read(mm, id, AT + 4999).unwrap());
        assert_eq!((mm.counter(Counter::KswapdWoken), mm.file(file).cached_pages()), (1, Ok(cached + 1)));
    });
}

/// A node of two zones, of which the second is full of what nobody can take: it never has as much free as it should.
#[test]
fn kswapd_takes_no_more_where_a_zone_is_full_of_what_stays() {
    let base = Setup::default().base;
    let region = |from: u32, frames: u32| Region { start: FrameNumber(base + from), frames, node: NodeId(0) };
    let regions = Some(vec![region(0, 3072), region(3072, 512)]);
    let host = Host::new(Setup { cpus: 2, regions, ..Setup::default() });
    host.run(Config { min_free: Some(100), lru_batch: 1, ..bare("linux") }, |mm| {
        let all: Vec<_> = std::iter::from_fn(|| mm.frames().alloc(0, AllocFrom::NOW).ok()).collect();
        let (stay, go): (Vec<_>, Vec<_>) = all.into_iter().partition(|frame| frame.first().0 >= base + 3072);
        assert!(stay.len() > 400);
        give_back(mm, go);
        mm.kswapd(NodeId(0)).unwrap();
        let woken = mm.counter(Counter::KswapdWoken);
        let (id, file) = mapped(mm, 5000, &[1]);
        host.on(1, || {
            let wakes = |page: &u64| {
                host.read(mm, id, *page).unwrap();
                mm.counter(Counter::KswapdWoken) > woken
            };
            (AT..AT + 5000).find(wakes).expect("memory runs short");
        });
        let cached = mm.file(file).cached_pages().unwrap();
        mm.kswapd(NodeId(0)).unwrap();
        let gone = cached - mm.file(file).cached_pages().unwrap();
        // The high watermarks of both, less what is free of either, and a batch.
        assert!((1..200).contains(&gone), "{gone} of {cached} pages");
        // Whoever wants a frame finds one, and wakes nobody.
        host.on(1, || host.read(mm, id, AT + 4999).unwrap());
        assert_eq!((mm.counter(Counter::KswapdWoken), mm.counter(Counter::AllocStall)), (woken + 1, 0));
        give_back(mm, stay);
    });
}

#[test]
fn pages_on_their_way_to_a_list_are_drained_by_their_cpu() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let (id, file) = mapped(mm, 13, &[1]);
        host.on(1, || (AT..AT + 13).for_each(|page| assert!(host.read(mm, id, page).is_ok())));
        give_back(mm, exhaust(mm));
        assert_eq!(mm.file(file).cached_pages(), Ok(13), "one short of a batch: no list has them");
        host.on(1, || mm.drain_lru_batch());
        give_back(mm, exhaust(mm));
        assert_eq!(mm.file(file).cached_pages(), Ok(0));
    });
}

#[test]
fn reclaim_begins_when_not_one_frame_is_free() {
    let host = Host::new(Setup::default());
    host.run(bare("vanilla"), |mm| {
        let (id, file) = mapped(mm, 10_000, &[0]);
        // The whole memory becomes page cache; the first reclaim comes when the last frame is gone.
        (AT..AT + 10_000).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(0)));
        assert!(mm.file(file).cached_pages().unwrap() > 3900);
    });
}

/// CPU 1 reads a page of a file from the device and stands still with it. CPU 0 wants the same page, writes to it, and it is
/// written out and forgotten. Whatever CPU 1 has in its hands must not be taken for the page after that.
#[test]
fn a_page_that_is_read_twice_at_once_is_one_page() {
    // It stays: what happens while somebody sleeps outlives the test's frame.
    let host: &'static Host = Box::leak(Box::new(Host::new(Setup { cpus: 2, ..Setup::default() })));
    host.run(bare("linux"), |mm| {
        let (id, file) = mapped(mm, 1, &[0, 1]);
        host.on_disk_read.borrow_mut().push_back(Box::new(|mm| mm.platform().stop()));
        host.aside(
            1,
            || assert!(matches!(host.read(mm, id, AT), Ok(0 | 7))),
            |_| {
                assert!(host.resume(), "CPU 1 stands still with what it has read");
                host.on_wait.borrow_mut().push_back(Box::new(|| _ = host.resume()));
                host.write(mm, id, AT, 7).unwrap();
                mm.drain_lru_batch();
                host.on(1, || mm.drain_lru_batch());
                give_back(mm, exhaust(mm));
                assert_eq!(mm.file(file).cached_pages(), Ok(0));
                host.resume();
                assert_eq!(host.read(mm, id, AT), Ok(7));
            },
        );
    });
}

/// More pages than one batch takes are on their way to lists on other CPUs: all of them come there.
#[test]
fn pages_on_their_way_to_lists_on_many_cpus_all_come_there() {
    const EACH: u64 = 30;
    let host = Host::new(Setup { cpus: 5, ..Setup::default() });
    host.run(Config { lru_batch: 31, ..bare("linux") }, |mm| {
        let file = mm.create_file(4 * EACH).unwrap();
        for cpu in 1..5 {
            let first = (u64::from(cpu) - 1) * EACH;
            host.on(cpu, || assert_eq!(mm.file(file).read_ahead(first, EACH), Ok(EACH)));
        }
        assert_eq!(mm.file(file).evict(0, 4 * EACH), Ok(0), "each waits on its CPU");
        mm.drain_lru_batches();
        assert_eq!(mm.file(file).evict(0, 4 * EACH), Ok(4 * EACH));
    });
}

/// Each look at a page is counted, on whatever list it is, and what came of it: it goes round, becomes active or no longer is, or leaves.
#[test]
fn what_comes_of_each_look_at_a_page_is_counted() {
    const AT: u64 = 0x1000;
    let host = Host::new(Setup { frames: 512, ..Setup::default() });
    host.run(Config { lru_batch: 1, scan_batch: 4, ..bare("vanilla") }, |mm| {
        let file = mm.create_file(16).unwrap();
        let id = machine::faults::showing_as(mm, machine::showing::shared(file), 16, &[0]);
        (AT..AT + 16).for_each(|page| _ = host.read(mm, id, page).unwrap());
        mm.drain_lru_batch();
        // They are used again before they are looked at a second time.
        for _ in 0..6 {
            host.on_rotated.borrow_mut().push_back(Box::new(move |mm: &Mm<'_>| {
                for page in AT..AT + 16 {
                    if mm.space(id).lookup(PageNumber(page)).unwrap().is_present() {
                        mm.platform().read(mm, id, page).unwrap();
                    }
                }
            }));
        }
        let counters = [
            Counter::PgScanDirect,
            Counter::PgActivate,
            Counter::PgDeactivate,
            Counter::PgStealDirect,
            Counter::PgRotated,
        ];
        let before = counters.map(|counter| mm.counter(counter));
        machine::swapping::squeeze(mm);
        let mut after =
            counters.map(|counter| mm.counter(counter)).into_iter().zip(before).map(|(now, then)| now - then);
        let [looks, active, inactive, freed, round] = [(); 5].map(|()| after.next().unwrap());
        assert!(active > 0 && freed == 16, "{active} became active, {freed} went");
        assert_eq!(inactive, active, "who leaves is not active");
        assert_eq!(looks, round + active + inactive + freed);
    });
}

/// Pages that are used again whenever somebody gives way, and what is done with them there; how often one was rotated, and one activated.
fn used_all_the_time(also: fn(&Mm<'_>, SpaceId)) -> (u64, u64) {
    const COUNT: u64 = 32;
    let host = Host::new(Setup { frames: 512, ..Setup::default() });
    host.run(Config { scan_batch: 4, lru_batch: 1, ..bare("linux+aging=flush") }, |mm| {
        let (id, _) = mapped(mm, COUNT, &[0]);
        read_all(mm, id, COUNT, &[0]);
        let held = machine::swapping::take_free(mm);
        host.at_cond_resched(move |mm| {
            also(mm, id);
            (AT..AT + COUNT).for_each(|page| _ = mm.platform().try_read(page));
        });
        let more = mm.frames().alloc(0, AllocFrom::HERE);
        *host.on_cond_resched.borrow_mut() = None;
        more.into_iter().for_each(|frame| mm.frames().free(frame));
        give_back(mm, held);
        (mm.counter(Counter::PgRotated), mm.counter(Counter::PgActivate))
    })
}

/// A page is active once it was used twice: since it was last deactivated, too, by whomever.
#[test]
fn what_was_deactivated_begins_anew() {
    let (rotated, activated) = used_all_the_time(|_, _| {});
    assert!(activated > 64 && activated <= rotated, "{activated} of {rotated}");
    let cold = |mm: &Mm<'_>, id| mm.space(id).advise(pages(AT, 32), Advice::Cold).unwrap();
    let (rotated, activated) = used_all_the_time(cold);
    assert!(rotated > 64 && activated == 0, "{activated} of {rotated}");
}
