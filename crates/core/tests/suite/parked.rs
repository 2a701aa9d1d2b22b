//! `free=sweep`: what a program unmaps or drops waits for a sweep, and nobody is interrupted (INV-14).

use crate::machine;

use machine::faults::{AT, own, run_in};
use machine::race::{at, at_every_touch, race};
use machine::showing::{read_in, write_in};
use machine::swapping::{is_out, squeeze, swapping, take_free};
use machine::{Host, Mm, Setup, bare, exhaust, give_back, pages, settled, ticks};
use quietmm::{
    Advice, AllocFrom, Backing, Config, Counter, Error, PageNumber, Prot, Rule, SpaceId, UserAccess,
};

/// What is parked until a sweep is begun for it, what fits in all, and in one operation.
const ENOUGH: u64 = 126;
const ROOM: u64 = 253;
const TOGETHER: u64 = 64;

const CPUS: [u16; 3] = [0, 1, 2];

fn config() -> Config {
    bare("linux+free=sweep")
}

fn setup() -> Setup {
    Setup { cpus: 3, frames: 1024, ..Setup::default() }
}

fn host() -> Host {
    Host::new(setup())
}

/// A space with `count` pages and one before and behind, so that no table goes, in which all CPUs have written every page.
fn written(mm: &Mm<'_>, count: u64) -> SpaceId {
    let id = own(mm, count, &CPUS);
    mm.space(id).map(pages(AT - 1, 1), Backing::Anonymous, Prot::Read).unwrap();
    mm.space(id).map(pages(AT + count, 1), Backing::Anonymous, Prot::Read).unwrap();
    for cpu in CPUS {
        mm.platform().on(cpu, || {
            (AT..AT + count).for_each(|page| mm.platform().write(mm, id, page, page).unwrap());
            mm.drain_lru_batch();
        });
    }
    id
}

fn stale(mm: &Mm<'_>) -> u32 {
    mm.platform().stale.get()
}

fn sent(mm: &Mm<'_>) -> u64 {
    mm.counter(Counter::IpisSent)
}

/// What a CPU reads without a fault.
fn sees(mm: &Mm<'_>, cpu: u16, page: u64) -> Option<u64> {
    mm.platform().on(cpu, || mm.platform().try_read(page))
}

/// Every CPU's timer fires, so often that a sweep begins and ends, and the next.
fn swept(mm: &Mm<'_>) {
    for _ in 0..3 {
        mm.begin_sweep();
        ticks(mm, &CPUS);
        mm.sweep_is_over();
    }
}

/// What nobody may use no CPU has cached: it waits for nobody, and is free at once.
#[test]
fn what_nobody_may_use_is_not_parked() {
    for gone in [
        |mm: &Mm<'_>, id| mm.space(id).advise(pages(AT, 8), Advice::Drop).unwrap(),
        |mm: &Mm<'_>, id| mm.space(id).unmap(pages(AT, 8)).unwrap(),
    ] {
        host().run(config(), |mm| {
            let id = written(mm, 8);
            mm.space(id).protect(pages(AT, 8), Prot::None).unwrap();
            let free = settled(mm).free;
            gone(mm, id);
            assert_eq!((mm.counter(Counter::Parked), settled(mm).free), (0, free + 8));
        });
    }
}

#[test]
fn unmap_and_drop_interrupt_nobody() {
    let interrupts = |policy: &str, gone: fn(&Mm<'_>, SpaceId)| {
        host().run(bare(policy), |mm| {
            let id = written(mm, 8);
            let before = sent(mm);
            gone(mm, id);
            assert_eq!(sees(mm, 0, AT), None, "{policy}: whoever took it out has it no more");
            (sent(mm) - before, sees(mm, 1, AT + 1), stale(mm))
        })
    };
    let unmap = |mm: &Mm<'_>, id| mm.space(id).unmap(pages(AT, 8)).unwrap();
    let drop = |mm: &Mm<'_>, id| mm.space(id).advise(pages(AT, 8), Advice::Drop).unwrap();
    for gone in [unmap, drop] as [fn(&Mm<'_>, SpaceId); 2] {
        assert_eq!(interrupts("linux", gone), (2, None, 0));
        // What is weaker: another CPU still reads the old page, and nobody else's.
        assert_eq!(interrupts("linux+free=sweep", gone), (0, Some(AT + 1), 0));
        assert_eq!(interrupts("quiet+free=sweep", gone), (0, Some(AT + 1), 0));
    }
}

#[test]
fn who_touches_what_is_unmapped_after_the_sweep_is_refused() {
    host().run(config(), |mm| {
        let id = written(mm, 4);
        mm.space(id).unmap(pages(AT, 4)).unwrap();
        assert_eq!(sees(mm, 1, AT), Some(AT));
        swept(mm);
        assert_eq!(sees(mm, 1, AT), None);
        assert_eq!(read_in(mm, id, AT), Err(Error::NotMapped(PageNumber(AT))));
        assert_eq!((mm.platform().parked_uses.get(), stale(mm)), (1, 0));
    });
}

/// All memory is wanted, while CPU 1 goes on with what it has cached, at its timer or not: what it reads.
fn all_is_wanted(broken: Option<Rule>) -> (usize, u32) {
    at(&setup(), &config(), broken, |mm| {
        // One stays, and so does the table: to free it would need a flush.
        let id = written(mm, TOGETHER + 1);
        let free = take_free(mm).len();
        mm.space(id).unmap(pages(AT, TOGETHER)).unwrap();
        let frames = exhaust(mm);
        (0..TOGETHER).for_each(|page| _ = sees(mm, 1, AT + page));
        let taken = frames.len();
        give_back(mm, frames);
        assert!(free > 0);
        (taken, stale(mm))
    })
}

#[test]
fn parked_frames_are_given_up_before_a_task_waits_for_memory() {
    // All of them, and those that CPUs were asked for: nobody ticks here.
    assert_eq!(all_is_wanted(None), (TOGETHER as usize, 0));
    assert!(all_is_wanted(Some(Rule::ParkUntilSwept)).1 > 0);
}

/// CPU 0 takes a page away and puts another one there; CPU 1 has the old one cached. What CPU 1 reads, and whether that is old.
fn put_anew(setup: &Setup, broken: Option<Rule>, anew: impl Fn(&Mm<'_>, SpaceId)) -> (Option<u64>, u32) {
    let flush = if setup.broadcast { "linux+free=sweep+flush=broadcast" } else { "linux+free=sweep" };
    at(setup, &bare(flush), broken, |mm| {
        let id = written(mm, 4);
        anew(mm, id);
        (sees(mm, 1, AT), stale(mm))
    })
}

#[test]
fn nothing_else_is_mapped_at_a_parked_address() {
    let mapped = |mm: &Mm<'_>, id| {
        mm.space(id).unmap(pages(AT, 4)).unwrap();
        mm.space(id).map(pages(AT, 1), Backing::Anonymous, Prot::ReadWrite).unwrap();
        write_in(mm, id, AT, 7).unwrap();
    };
    let dropped = |mm: &Mm<'_>, id| {
        mm.space(id).advise(pages(AT, 4), Advice::Drop).unwrap();
        write_in(mm, id, AT, 7).unwrap();
    };
    let moved = |mm: &Mm<'_>, id| {
        mm.space(id).map(pages(AT + 8, 1), Backing::Anonymous, Prot::ReadWrite).unwrap();
        write_in(mm, id, AT + 8, 7).unwrap();
        mm.space(id).unmap(pages(AT, 4)).unwrap();
        mm.space(id).move_range(pages(AT + 8, 1), PageNumber(AT)).unwrap();
    };
    // Dropped, and then unmapped with a page that does not fit beside it.
    let unmapped_later = |mm: &Mm<'_>, id| {
        let file = mm.create_file(1).unwrap();
        mm.space(id).map(pages(AT + 5, 1), Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
        mm.space(id).map(pages(AT + 9, 1), Backing::Anonymous, Prot::Read).unwrap();
        write_in(mm, id, AT + 5, 1).unwrap();
        mm.space(id).unmap(pages(AT + 4, 1)).unwrap();
        mm.space(id).map(pages(AT + 4, 1), Backing::Anonymous, Prot::ReadWrite).unwrap();
        mm.space(id).advise(pages(AT, 4), Advice::Drop).unwrap();
        mm.space(id).unmap(pages(AT, 6)).unwrap();
        mm.space(id).map(pages(AT, 1), Backing::Anonymous, Prot::ReadWrite).unwrap();
        write_in(mm, id, AT, 7).unwrap();
    };
    // Its table goes with the last page, and with it the marks.
    let table_gone = |mm: &Mm<'_>, id| {
        mm.space(id).unmap(pages(AT, 4)).unwrap();
        mm.space(id).unmap(pages(AT - 1, 1)).unwrap();
        mm.space(id).unmap(pages(AT + 4, 1)).unwrap();
        mm.space(id).map(pages(AT, 1), Backing::Anonymous, Prot::ReadWrite).unwrap();
        write_in(mm, id, AT, 7).unwrap();
    };
    // Nothing else would be flushed.
    let unmapped_alone = |mm: &Mm<'_>, id| {
        mm.space(id).advise(pages(AT, 1), Advice::Drop).unwrap();
        mm.space(id).unmap(pages(AT, 1)).unwrap();
        mm.space(id).map(pages(AT, 1), Backing::Anonymous, Prot::ReadWrite).unwrap();
        write_in(mm, id, AT, 7).unwrap();
    };
    type Anew = fn(&Mm<'_>, SpaceId);
    // Without interrupts hardware flushes no more than it is told; a CPU that is asked catches up with all that it missed.
    let broadcast = Setup { broadcast: true, ..setup() };
    for (what, anew) in [
        ("mapped", mapped as Anew),
        ("dropped", dropped),
        ("moved", moved),
        ("unmapped later", unmapped_later),
        ("unmapped alone", unmapped_alone),
        ("its table gone", table_gone),
    ] {
        for setup in [setup(), broadcast.clone()] {
            let (read, stale) = put_anew(&setup, None, anew);
            assert!(read.is_none_or(|read| read == 7), "{what}: {read:?}");
            assert_eq!(stale, 0, "{what}");
        }
        let (_, stale) = put_anew(&broadcast, Some(Rule::ParkedAddressFlushed), anew);
        assert_eq!(stale > 0, what != "its table gone", "{what}, not flushed");
    }
    assert!(put_anew(&setup(), Some(Rule::ParkedAddressFlushed), mapped).1 > 0);
}

/// What was dropped is nobody else's, and it is no more the program's than its rights say.
#[test]
fn rights_that_are_taken_away_hold_for_what_was_dropped_too() {
    for broadcast in [false, true] {
        let flush = if broadcast { "+flush=broadcast" } else { "" };
        let after = |prot: Prot, sweep: bool| {
            Host::new(Setup { broadcast, ..setup() }).run(bare(&format!("linux+free=sweep{flush}")), |mm| {
                let id = written(mm, 4);
                mm.space(id).advise(pages(AT, 4), Advice::Drop).unwrap();
                if sweep {
                    swept(mm);
                }
                let before = mm.counter(Counter::IpisSent) + mm.counter(Counter::Broadcasts);
                mm.space(id).protect(pages(AT, 4), prot).unwrap();
                let asked = mm.counter(Counter::IpisSent) + mm.counter(Counter::Broadcasts) - before;
                let writes = mm.platform().on(1, || mm.platform().try_write(AT, 9));
                let reads = sees(mm, 1, AT + 1);
                mm.space(id).protect(pages(AT, 4), Prot::ReadWrite).unwrap();
                assert_eq!((read_in(mm, id, AT), stale(mm)), (Ok(0), 0));
                (asked > 0, writes, reads)
            })
        };
        assert_eq!(after(Prot::Read, false), (true, false, None), "{flush}");
        assert_eq!(after(Prot::None, false), (true, false, None), "{flush}");
        // What gives rights asks nobody, and after the sweep there is nothing to ask for.
        assert_eq!(after(Prot::ReadWriteExecute, false), (false, true, Some(AT + 1)), "{flush}");
        assert_eq!(after(Prot::Read, true), (false, false, None), "{flush}");
    }
    // The control.
    assert!(at(&setup(), &config(), Some(Rule::ParkedAddressFlushed), |mm| {
        let id = written(mm, 4);
        mm.space(id).advise(pages(AT, 4), Advice::Drop).unwrap();
        mm.space(id).protect(pages(AT, 4), Prot::Read).unwrap();
        mm.platform().on(1, || mm.platform().try_write(AT, 9))
    }));
}

#[test]
fn an_address_whose_sweep_is_over_costs_no_flush() {
    host().run(config(), |mm| {
        let id = written(mm, 8);
        mm.space(id).unmap(pages(AT, 4)).unwrap();
        mm.space(id).advise(pages(AT + 4, 4), Advice::Drop).unwrap();
        swept(mm);
        let before = (sent(mm), mm.counter(Counter::DeferredCompleted));
        mm.space(id).map(pages(AT, 4), Backing::Anonymous, Prot::ReadWrite).unwrap();
        for page in AT..AT + 8 {
            assert_eq!(read_in(mm, id, page), Ok(0));
        }
        assert_eq!((sent(mm), mm.counter(Counter::DeferredCompleted)), before);
    });
}

#[test]
fn a_thread_that_moves_takes_what_it_dropped_along() {
    host().run(config(), |mm| {
        let id = written(mm, 4);
        mm.space(id).advise(pages(AT, 4), Advice::Drop).unwrap();
        assert_eq!(sees(mm, 1, AT), Some(AT), "another thread");
        // CPU 1 has the space loaded, and switches to it for this one; CPU 2 comes from a kernel thread.
        run_in(mm, id, &[1]);
        assert_eq!(sees(mm, 1, AT), None);
        mm.platform().on(2, || {
            mm.enter_lazy();
            mm.space(id).switch_to().unwrap();
        });
        assert_eq!((sees(mm, 2, AT), stale(mm)), (None, 0));
    });
}

#[test]
fn a_page_that_is_parked_is_not_its_other_owners_alone() {
    host().run(config(), |mm| {
        let id = written(mm, 4);
        let child = mm.space(id).fork().unwrap();
        // Fork has flushed: the parent's threads read the page that both have.
        CPUS.iter()
            .for_each(|&cpu| assert_eq!(mm.platform().on(cpu, || mm.platform().read(mm, id, AT)), Ok(AT)));
        mm.space(id).unmap(pages(AT, 4)).unwrap();
        mm.platform().on(2, || {
            mm.space(child).switch_to().unwrap();
            mm.platform().write(mm, child, AT, 99).unwrap();
        });
        assert_eq!(sees(mm, 1, AT), Some(AT), "not what the child has written");
        swept(mm);
        assert_eq!(sees(mm, 1, AT), None);
        give_back(mm, exhaust(mm));
        assert_eq!(mm.platform().on(2, || mm.platform().read(mm, child, AT)), Ok(99));
        assert_eq!((settled(mm).broken, stale(mm)), (None, 0));
    });
}

#[test]
fn what_cannot_be_parked_is_flushed_at_once() {
    let flushes = |gone: fn(&Mm<'_>) -> SpaceId| {
        Host::new(Setup { frames: 4096, ..setup() }).run(config(), |mm| {
            let id = gone(mm);
            assert_eq!((mm.counter(Counter::Parked), sees(mm, 1, AT), stale(mm)), (0, None, 0));
            assert_eq!(settled(mm).broken, None);
            mm.space(id).destroy().err()
        })
    };
    // More than fit; a page of a file among them; a large page; a table that goes.
    let many = |mm: &Mm<'_>| {
        let id = written(mm, TOGETHER + 1);
        mm.space(id).unmap(pages(AT, TOGETHER + 1)).unwrap();
        id
    };
    let file = |mm: &Mm<'_>| {
        let id = written(mm, 4);
        let file = mm.create_file(1).unwrap();
        mm.space(id).map(pages(AT + 5, 1), Backing::File { file, offset: 0 }, Prot::Read).unwrap();
        read_in(mm, id, AT + 5).unwrap();
        mm.space(id).unmap(pages(AT, 6)).unwrap();
        id
    };
    let large = |mm: &Mm<'_>| {
        let id = own(mm, 1024, &CPUS);
        mm.space(id).advise(pages(AT, 1024), Advice::Large).unwrap();
        CPUS.iter().for_each(|&cpu| mm.platform().on(cpu, || mm.platform().write(mm, id, AT, 1).unwrap()));
        assert_eq!(mm.counter(Counter::LargeFault), 1);
        mm.space(id).advise(pages(AT, 512), Advice::Drop).unwrap();
        id
    };
    let alone = |mm: &Mm<'_>| {
        let id = own(mm, 1, &CPUS);
        CPUS.iter().for_each(|&cpu| mm.platform().on(cpu, || mm.platform().write(mm, id, AT, 1).unwrap()));
        mm.space(id).unmap(pages(AT, 1)).unwrap();
        id
    };
    for gone in [many, file, large, alone] as [fn(&Mm<'_>) -> SpaceId; 4] {
        assert_eq!(flushes(gone), Some(Error::Busy));
    }
}

#[test]
fn a_cpu_begins_a_sweep_when_much_waits_and_goes_on_when_it_is_over() {
    host().run(config(), |mm| {
        // In two tables, neither of which goes.
        let (id, all) = (written(mm, 4 * TOGETHER), AT + 512);
        mm.space(id).map(pages(all, 9 * TOGETHER), Backing::Anonymous, Prot::ReadWrite).unwrap();
        for cpu in CPUS {
            mm.platform().on(cpu, || {
                (all..all + 8 * TOGETHER).for_each(|page| mm.platform().write(mm, id, page, page).unwrap());
            });
        }
        let unmap = |from: u64, count: u64| {
            (from..from + count).step_by(TOGETHER as usize).for_each(|at| {
                mm.space(id).unmap(pages(at, TOGETHER.min(from + count - at))).unwrap();
            });
        };
        let parked = || (mm.counter(Counter::Sweeps), mm.counter(Counter::Parked));
        let before = sent(mm);
        unmap(AT, ENOUGH - 1);
        assert_eq!(parked(), (0, ENOUGH - 1));
        unmap(AT + ENOUGH - 1, 1);
        assert_eq!(parked(), (1, ENOUGH));
        // What comes now waits for the next one, which begins when this one is over.
        unmap(all, ROOM);
        assert_eq!(parked(), (1, ENOUGH + ROOM));
        assert_eq!((mm.validate().parked, sent(mm)), (ENOUGH + ROOM, before));
        // No room until all have ticked: flushed at once.
        unmap(all + ROOM, 2);
        assert_eq!((parked(), sent(mm)), ((1, ENOUGH + ROOM), before + 2));
        ticks(mm, &CPUS);
        unmap(all + ROOM + 2, 2);
        assert_eq!((parked(), sent(mm)), ((2, ENOUGH + ROOM + 2), before + 2));
        assert_eq!(mm.validate().parked, ROOM + 2, "the first are free");
        swept(mm);
        assert_eq!((settled(mm).broken, stale(mm)), (None, 0));
    });
}

#[test]
fn slots_of_what_is_out_are_given_back_at_once() {
    host().run(Config { swap: true, ..swapping("linux+free=sweep") }, |mm| {
        mm.swap().on(7, 512, 0).unwrap();
        let id = written(mm, 8);
        squeeze(mm);
        assert!((AT..AT + 8).all(|page| is_out(mm, id, page)));
        // One is back, on all CPUs.
        CPUS.iter()
            .for_each(|&cpu| assert_eq!(mm.platform().on(cpu, || mm.platform().read(mm, id, AT)), Ok(AT)));
        let before = sent(mm);
        mm.space(id).advise(pages(AT, 8), Advice::Drop).unwrap();
        assert_eq!((sent(mm), mm.counter(Counter::Parked)), (before, 1));
        let audit = settled(mm);
        assert_eq!((audit.broken, audit.swapped, audit.parked), (None, 0, 1));
        swept(mm);
        give_back(mm, exhaust(mm));
        (AT..AT + 8).for_each(|page| assert_eq!(read_in(mm, id, page), Ok(0)));
    });
}

#[test]
fn a_space_that_ends_leaves_what_it_parked() {
    host().run(config(), |mm| {
        let id = written(mm, 8);
        mm.space(id).unmap(pages(AT, 8)).unwrap();
        CPUS.iter().for_each(|&cpu| mm.platform().on(cpu, || mm.unload()));
        mm.space(id).destroy().unwrap();
        assert_eq!((settled(mm).broken, settled(mm).parked), (None, 8));
        give_back(mm, exhaust(mm));
        let audit = settled(mm);
        assert_eq!((audit.broken, audit.parked, audit.anon), (None, 0, 0));
    });
}

#[test]
fn memory_goes_offline_with_what_is_parked_in_it() {
    Host::new(Setup { frames: 4096, ..setup() }).run(config(), |mm| {
        let end = |mm: &Mm<'_>, id| {
            CPUS.iter().for_each(|&cpu| mm.platform().on(cpu, || mm.unload()));
            mm.space(id).destroy().unwrap();
        };
        // The pools have what they need.
        end(mm, written(mm, 8));
        // One block, whole, and in it nothing but a space's pages.
        let block = mm.frames().alloc(10, AllocFrom::HERE).unwrap();
        let first = block.first();
        let others = take_free(mm);
        mm.frames().free(block);
        let id = written(mm, 8);
        assert!((first.0..first.0 + 1024).contains(&mm.space(id).lookup(PageNumber(AT)).unwrap().frame().0));
        mm.space(id).unmap(pages(AT, 8)).unwrap();
        give_back(mm, others);
        end(mm, id);
        assert_eq!(mm.validate().parked, 8);
        let leaving = mm.frames().begin_offline(first).unwrap();
        let offline = mm.frames().finish_offline(leaving).map_err(|remains| remains.frame).unwrap();
        assert_eq!((mm.validate().parked, stale(mm)), (0, 0));
        mm.frames().bring_online(offline);
    });
}

#[test]
fn a_mapping_that_grows_over_what_is_parked_shows_nobody_what_was_there() {
    host().run(config(), |mm| {
        let id = own(mm, 8, &CPUS);
        for cpu in CPUS {
            mm.platform().on(cpu, || {
                (AT..AT + 8).for_each(|page| mm.platform().write(mm, id, page, page).unwrap());
            });
        }
        mm.space(id).unmap(pages(AT + 4, 4)).unwrap();
        assert_eq!(sees(mm, 1, AT + 5), Some(AT + 5), "it waits for a sweep");
        mm.space(id).remap(pages(AT, 4), pages(AT, 8)).unwrap();
        assert!(CPUS.iter().all(|&cpu| sees(mm, cpu, AT + 5).is_none()));
        assert!(
            CPUS.iter().all(|&cpu| mm.platform().on(cpu, || mm.platform().read(mm, id, AT + 5)) == Ok(0))
        );
        assert_eq!(stale(mm), 0);
    });
}

/// Reclaim has cleared the entry of a file's page, and its flush waits for the batch. Whoever unmaps that page and one of its own, which is
/// parked, returns when no CPU can use the file's page any more (INV-4).
#[test]
fn who_parks_a_page_completes_the_flush_of_what_reclaim_took_there() {
    at(&setup(), &config(), None, |mm| {
        let host = mm.platform();
        let file = mm.create_file(32).unwrap();
        let id = machine::faults::showing_as(mm, Backing::File { file, offset: 0 }, 32, &CPUS);
        // The rest stay, and with them the table.
        mm.space(id).map(pages(AT - 2, 2), Backing::Anonymous, Prot::ReadWrite).unwrap();
        for cpu in CPUS {
            machine::faults::read_all(mm, id, cpu, 32);
            host.on(cpu, || {
                host.write(mm, id, AT - 1, 1).unwrap();
                mm.drain_lru_batch();
                mm.frames().drain_here();
            });
        }
        let (seen, result) = machine::faults::found();
        host.when_unmapped(id, AT, move |mm| {
            let host = mm.platform();
            assert!(host.caches(2, AT), "the window is open");
            let before = mm.counter(Counter::Parked);
            host.on(1, || mm.space(id).unmap(pages(AT - 1, 2)).unwrap());
            host.deliver_all();
            seen.set(Some((host.caches(2, AT), mm.counter(Counter::Parked) - before)));
        });
        give_back(mm, exhaust(mm));
        assert_eq!(result(), (false, 1), "cached by CPU 2, and parked");
        assert_eq!((stale(mm), settled(mm).broken), (0, None));
    });
}

/// Where something else comes to some of the pages that are parked, each of these is flushed, and the others wait on.
#[test]
fn each_parked_page_to_whose_address_something_comes_is_flushed() {
    for (from, count) in [(0, 4), (0, 3), (1, 2), (1, 3), (3, 1)] {
        // By the hardware: a CPU that is interrupted flushes all that it has, since it has missed the unmap.
        let host = Host::new(Setup { broadcast: true, ..setup() });
        host.run(bare("linux+free=sweep+flush=broadcast"), |mm| {
            let id = written(mm, 4);
            mm.space(id).unmap(pages(AT, 4)).unwrap();
            assert!((AT..AT + 4).all(|page| [1, 2].iter().all(|&cpu| host.caches(cpu, page))));
            let comes = pages(AT + from, count);
            mm.space(id).map(comes, Backing::Anonymous, Prot::ReadWrite).unwrap();
            for (cpu, page) in [1, 2].into_iter().flat_map(|cpu| (AT..AT + 4).map(move |page| (cpu, page))) {
                let waits = !comes.contains(PageNumber(page));
                assert_eq!(host.caches(cpu, page), waits, "{comes:?}: CPU {cpu}, page {page:#x}");
            }
            (0..3).for_each(|cpu| host.on(cpu, || mm.unload()));
            mm.space(id).destroy().unwrap();
        });
    }
}

/// Two CPUs touch what was dropped and is parked, at the same time, at every place: one page comes, and both see it.
#[test]
fn a_parked_address_that_two_touch_at_once_has_one_page() {
    let cases = at_every_touch(&setup(), &config(), None, |mm, place| {
        let id = written(mm, 2);
        mm.space(id).advise(pages(AT, 2), Advice::Drop).unwrap();
        let host = mm.platform();
        let fault = |access| mm.space(id).fault(PageNumber(AT).addr(), access).unwrap();
        race(mm, place, || fault(UserAccess::Write), || fault(UserAccess::Read));
        // Nobody has what was parked any more.
        mm.begin_sweep();
        (0..2).for_each(|_| ticks(mm, &CPUS));
        host.write(mm, id, AT, 1).unwrap();
        let now = [0, 1, 2].map(|cpu| host.on(cpu, || host.read(mm, id, AT)));
        assert_eq!(now, [Ok(1); 3], "{place:?}");
        assert_eq!(settled(mm).broken, None);
    });
    assert!(cases.results.len() > 30);
}

/// What is parked while a sweep is under way waits for the next one. Whoever has no memory waits for both, and asks nobody to end.
#[test]
fn who_has_no_memory_waits_for_what_was_parked_during_a_sweep() {
    let host = host();
    host.run(config(), |mm| {
        let id = written(mm, 64);
        mm.begin_sweep();
        assert!(!mm.sweep_is_over());
        mm.space(id).advise(pages(AT, 64), Advice::Drop).unwrap();
        assert_eq!(settled(mm).parked, 64);
        let held = take_free(mm);
        let more = mm.frames().alloc(0, AllocFrom::HERE).unwrap();
        assert_eq!((mm.counter(Counter::OutOfMemory), host.shortages.borrow().len()), (0, 0));
        mm.frames().free(more);
        give_back(mm, held);
        assert_eq!(settled(mm).parked, 0);
    });
}

/// `kswapd` gives back first what has waited for a sweep that is over: then it need not reclaim.
#[test]
fn kswapd_begins_with_what_was_parked() {
    let host = Host::new(Setup { frames: 2048, ..setup() });
    host.run(Config { min_free: Some(200), ..config() }, |mm| {
        let id = written(mm, TOGETHER + 1);
        let mut held = Vec::new();
        while mm.counter(Counter::KswapdWoken) == 0 {
            held.push(mm.frames().alloc(0, AllocFrom::NOW).unwrap());
        }
        // With what is parked there is enough.
        give_back(mm, held.split_off(held.len() - 60));
        mm.space(id).unmap(pages(AT, TOGETHER)).unwrap();
        let free = mm.frames().available();
        ticks(mm, &CPUS);
        mm.begin_sweep();
        ticks(mm, &CPUS);
        assert!(mm.sweep_is_over());
        let waited = mm.frames().available();
        mm.kswapd(quietmm::NodeId(0)).unwrap();
        assert_eq!((waited, mm.frames().available()), (free, free + TOGETHER));
        assert_eq!(mm.counter(Counter::PgScanKswapd), 0);
        give_back(mm, held);
    });
}

/// Others begin the next one as soon as one is over.
#[test]
fn whoever_waits_for_a_sweep_waits_for_that_one_alone() {
    let host = host();
    host.run(Config { sweep_deadline: u64::MAX, ..config() }, |mm| {
        let id = written(mm, 4);
        mm.space(id).unmap(pages(AT, 4)).unwrap();
        assert_eq!(mm.counter(Counter::Parked), 4);
        let held = take_free(mm);
        for _ in 0..8 {
            host.on_pause.borrow_mut().push_back(Box::new(|mm| {
                ticks(mm, &[1, 2]);
                mm.platform().on(1, || {
                    mm.sweep_is_over();
                    mm.begin_sweep();
                });
            }));
        }
        let one = mm.frames().alloc(0, AllocFrom::HERE).unwrap();
        assert_eq!(
            (host.on_pause.take().len(), sent(mm)),
            (7, 0),
            "it looked once more, and had what it wanted"
        );
        mm.frames().free(one);
        give_back(mm, held);
    });
}

#[test]
fn what_any_cpu_has_parked_is_found_when_memory_is_short() {
    for cpu in CPUS {
        let host = host();
        host.run(config(), |mm| {
            let id = written(mm, 4);
            // No table is empty that could be had in their place.
            host.read(mm, id, AT + 4).unwrap();
            host.on(cpu, || mm.space(id).unmap(pages(AT, 4)).unwrap());
            assert_eq!(mm.counter(Counter::Parked), 4);
            let held = take_free(mm);
            let one = mm.frames().alloc(0, AllocFrom::HERE);
            assert!(one.is_ok(), "CPU {cpu} has parked it");
            give_back(mm, one.into_iter().collect());
            give_back(mm, held);
        });
    }
}
