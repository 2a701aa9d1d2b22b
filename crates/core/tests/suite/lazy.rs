//! Memory whose content is not wanted any more unless it is written again: reclaim drops it without I/O, and nothing that was
//! written since.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use crate::machine;

use machine::race::{at_every_touch, at_places, every_third, race};
use machine::showing::two_nodes;
use machine::swapping::{AT, DEVICE, anonymous, is_out, sound, squeeze, swapping, take_free, written};
use machine::{Host, Mm, Setup, bare, exhaust, give_back, pages};
use quietmm::{
    Advice, Backing, Counter, Error, FrameNumber, NodeId, NodeSet, PageNumber, Prot, Rule, SpaceId, Term,
    UserAccess,
};

const POLICIES: [&str; 4] = ["linux", "vanilla", "quiet", "linux+unmap=batch-clean"];

fn free(mm: &Mm<'_>, id: SpaceId, at: u64, count: u64) {
    mm.space(id).advise(pages(at, count), Advice::Free).unwrap();
}

/// Pages written to swap, and dropped, when memory is wanted three times; and what 16 pages show then.
fn after(policy: &str, before: fn(&Mm<'_>, SpaceId)) -> (u64, u64, Vec<u64>) {
    let host = Host::new(Setup { cpus: 2, frames: 512, ..Setup::default() });
    host.run(swapping(policy), |mm| {
        let id = written(mm, 512, 16);
        mm.drain_lru_batch();
        before(mm, id);
        (0..3).for_each(|_| squeeze(mm));
        let counts = [Counter::PswpOut, Counter::LazyFreed].map(|counter| mm.counter(counter));
        let shows = (AT..AT + 16).map(|page| host.read(mm, id, page).unwrap()).collect();
        sound(mm);
        (counts[0], counts[1], shows)
    })
}

#[test]
fn what_is_not_wanted_is_dropped_and_nothing_is_written() {
    for policy in POLICIES {
        assert_eq!(after(policy, |mm, id| free(mm, id, AT, 16)), (0, 16, vec![0; 16]), "{policy}");
        let (out, dropped, shows) = after(policy, |_, _| ());
        assert_eq!((out, dropped, shows), (16, 0, (AT..AT + 16).collect()), "{policy}: control");
    }
}

#[test]
fn what_is_written_again_is_wanted_and_what_is_read_is_not() {
    for policy in POLICIES {
        let (out, dropped, shows) = after(policy, |mm, id| {
            free(mm, id, AT, 16);
            mm.platform().write(mm, id, AT + 3, 33).unwrap();
            assert_eq!(mm.platform().read(mm, id, AT + 5), Ok(AT + 5), "until it goes it is what was there");
        });
        let mut want = vec![0; 16];
        want[3] = 33;
        assert_eq!((out, dropped, shows), (1, 15, want), "{policy}");
    }
}

#[test]
fn what_others_have_or_use_or_must_stay_is_left_alone() {
    let all: Vec<u64> = (AT..AT + 16).collect();
    // Shared with a child that was there before.
    let (_, dropped, shows) = after("linux", |mm, id| {
        mm.space(id).fork().unwrap();
        free(mm, id, AT, 16);
    });
    assert_eq!((dropped, shows), (0, all.clone()));
    // Locked.
    let (_, dropped, shows) = after("linux", |mm, id| {
        mm.space(id).lock(pages(AT, 16)).unwrap();
        free(mm, id, AT, 16);
        mm.space(id).unlock(pages(AT, 16)).unwrap();
    });
    assert_eq!((dropped, shows), (0, all.clone()));
}

#[test]
fn whatever_takes_it_drops_it() {
    for policy in POLICIES {
        // Asked for at once.
        let (out, dropped, shows) = after(policy, |mm, id| {
            free(mm, id, AT, 16);
            mm.platform().write(mm, id, AT + 3, 33).unwrap();
            mm.space(id).advise(pages(AT, 16), Advice::PageOut).unwrap();
        });
        let mut want = vec![0; 16];
        want[3] = 33;
        assert_eq!((out, dropped, shows), (1, 15, want), "{policy}");
        // Shown by a child that came later, too, which has written to one.
        let (out, dropped, shows) = after(policy, |mm, id| {
            free(mm, id, AT, 16);
            let child = mm.space(id).fork().unwrap();
            mm.space(child).switch_to().unwrap();
            mm.platform().write(mm, child, AT + 5, 55).unwrap();
            mm.space(id).switch_to().unwrap();
        });
        assert_eq!((out, dropped, shows), (1, 16, vec![0; 16]), "{policy}: with a child");
    }
}

#[test]
fn rights_that_come_back_do_not_make_it_wanted_and_a_write_does() {
    for prot in [Prot::Read, Prot::None] {
        let change = match prot {
            Prot::Read => |mm: &Mm<'_>, id: SpaceId| {
                free(mm, id, AT, 16);
                mm.space(id).protect(pages(AT, 16), Prot::Read).unwrap();
                mm.space(id).protect(pages(AT, 16), Prot::ReadWrite).unwrap();
                mm.platform().write(mm, id, AT, 1).unwrap();
            },
            _ => |mm: &Mm<'_>, id: SpaceId| {
                free(mm, id, AT, 16);
                mm.space(id).protect(pages(AT, 16), Prot::None).unwrap();
                mm.space(id).protect(pages(AT, 16), Prot::ReadWrite).unwrap();
                mm.platform().write(mm, id, AT, 1).unwrap();
            },
        };
        let (out, dropped, shows) = after("linux", change);
        let mut want = vec![0; 16];
        want[0] = 1;
        assert_eq!((out, dropped, shows), (1, 15, want), "{prot:?}");
    }
}

#[test]
fn a_child_that_comes_later_has_what_is_not_wanted_too() {
    let host = Host::new(Setup { frames: 512, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        let id = written(mm, 512, 8);
        free(mm, id, AT, 8);
        let child = mm.space(id).fork().unwrap();
        host.write(mm, id, AT, 7).unwrap();
        (0..3).for_each(|_| squeeze(mm));
        assert_eq!(host.read(mm, id, AT), Ok(7));
        mm.space(child).switch_to().unwrap();
        for page in AT..AT + 8 {
            let shows = host.read(mm, child, page).unwrap();
            assert!(shows == 0 || shows == page);
        }
        host.write(mm, child, AT + 1, 8).unwrap();
        (0..3).for_each(|_| squeeze(mm));
        assert_eq!(host.read(mm, child, AT + 1), Ok(8));
        sound(mm);
    });
}

/// What needs no place on a device goes where there is none: no device, or a full one.
#[test]
fn it_goes_where_swap_has_no_room() {
    for policy in POLICIES {
        for slots in [0, 512] {
            let host = Host::new(Setup { cpus: 2, ..Setup::default() });
            host.run(swapping(policy), |mm| {
                if slots > 0 {
                    mm.swap().on(DEVICE, slots, 0).unwrap();
                }
                if slots > 0 {
                    // All that swap has room for is there.
                    let full = anonymous(mm, slots);
                    (0..3).for_each(|_| squeeze(mm));
                    assert!((AT..AT + slots).all(|page| is_out(mm, full, page)), "{policy}");
                }
                let id = anonymous(mm, 200);
                mm.drain_lru_batch();
                free(mm, id, AT, 200);
                host.write(mm, id, AT + 7, 77).unwrap();
                (0..3).for_each(|_| squeeze(mm));
                assert_eq!(mm.counter(Counter::LazyFreed), 199, "{policy}, {slots}");
                let shows = [AT, AT + 7, AT + 199].map(|page| host.read(mm, id, page));
                assert_eq!(shows, [Ok(0), Ok(77), Ok(0)], "{policy}, {slots}");
                sound(mm);
            });
        }
    }
}

#[test]
fn without_swap_it_goes_at_once() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let id = machine::swapping::anonymous(mm, 4);
        free(mm, id, AT, 4);
        assert_eq!(mm.space(id).residency(pages(AT, 4), &mut [0; 4]), Ok(0));
        let hole = Err(Error::NotMapped(PageNumber(AT + 4)));
        assert_eq!(mm.space(id).advise(pages(AT, 8), Advice::Free), hole);
    });
}

#[test]
fn what_is_not_mapped_cannot_be_freed_lazily() {
    let host = Host::new(Setup { frames: 512, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        let id = written(mm, 512, 8);
        mm.space(id).unmap(pages(AT + 3, 1)).unwrap();
        let hole = Err(Error::NotMapped(PageNumber(AT + 3)));
        assert_eq!(mm.space(id).advise(pages(AT, 8), Advice::Free), hole);
        (0..3).for_each(|_| squeeze(mm));
        assert_eq!(mm.counter(Counter::LazyFreed), 0, "nothing was done");
    });
}

/// CPU 1 writes to a page that was made lazy while CPU 0 reclaims, or the other way; whether it shows what was written.
fn written_while_reclaimed(policy: &str, write_first: bool) -> usize {
    let setup = Setup { cpus: 2, frames: 144, ..Setup::default() };
    let cases = at_every_touch(&setup, &swapping(policy), None, |mm, place| {
        let host = mm.platform();
        let id = written(mm, 512, 4);
        mm.drain_lru_batch();
        host.on(1, || {
            mm.space(id).switch_to().unwrap();
            host.write(mm, id, AT + 1, 5).unwrap();
        });
        free(mm, id, AT, 4);
        // In the middle of reclaim there may be no frame for it.
        let refused = Cell::new(false);
        let write = || match host.write(mm, id, AT + 1, 6) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error, Error::OutOfMemory);
                refused.set(true);
            }
        };
        if write_first {
            race(mm, place, write, || squeeze(mm));
        } else {
            race(mm, every_third(place), || squeeze(mm), || host.on(1, write));
        }
        if refused.get() {
            host.write(mm, id, AT + 1, 6).unwrap();
        }
        (0..2).for_each(|_| squeeze(mm));
        let shows = [0, 1].map(|cpu| host.on(cpu, || host.read(mm, id, AT + 1)));
        shows == [Ok(6); 2] && host.stale.get() == 0
    });
    // Reclaim's places are in parts.
    let least = if write_first { 10 } else { 3 };
    assert!(cases.results.len() > least, "{} places", cases.results.len());
    cases.count(|sound| !sound)
}

parts!(
    a_write_that_meets_reclaim_is_not_lost,
    |part, parts| {
        // The write comes first in the first three parts, which are short.
        let policy = ["linux", "quiet", "vanilla"][part % 3];
        let (write_first, places) = if part < 3 { (true, (0, 1)) } else { (false, (part / 3 - 1, parts / 3 - 1)) };
        let lost = at_places(places, || written_while_reclaimed(policy, write_first));
        assert_eq!(lost, 0, "{policy}: the write first: {write_first}");
    },
    [
        p0 p1 p2 p3 p4 p5 p6 p7 p8 p9 p10 p11 p12 p13 p14 p15 p16 p17 p18 p19 p20 p21 p22 p23 p24
        p25 p26 p27 p28 p29 p30 p31 p32
    ]
);

/// A program says that it does not want a page while reclaim is about to take it, and has given it a slot: it has both then. The device takes nothing, so the
/// page is found in memory. What is written there is kept, also when the device goes off and with it the slot.
#[test]
fn what_is_written_to_a_page_that_was_let_go_while_it_got_a_slot_is_not_lost() {
    let setup = Setup { cpus: 2, frames: 144, ..Setup::default() };
    let cases = at_every_touch(&setup, &swapping("linux"), None, |mm, place| {
        let (host, id) = (mm.platform(), written(mm, 512, 1));
        mm.drain_lru_batch();
        host.fail_writes.set(true);
        let goes = || mm.space(id).advise(pages(AT, 1), Advice::PageOut).unwrap();
        race(mm, place, goes, || free(mm, id, AT, 1));
        let out = is_out(mm, id, AT);
        host.write(mm, id, AT, 7).unwrap();
        mm.swap().off(DEVICE).unwrap();
        mm.space(id).advise(pages(AT, 1), Advice::PageOut).unwrap();
        (out, host.read(mm, id, AT))
    });
    assert!(cases.count(|&(out, _)| out) > 0);
    assert_eq!(cases.count(|&(_, shows)| shows != Ok(7)), 0);
}

/// A page leaves its only space while reclaim has it in its hands: it was wanted until then.
#[test]
fn what_is_unmapped_while_reclaim_looks_at_it_was_not_lazy() {
    let setup = Setup { cpus: 2, frames: 144, ..Setup::default() };
    let cases = at_every_touch(&setup, &swapping("linux"), None, |mm, place| {
        let id = anonymous(mm, 1);
        mm.drain_lru_batch();
        let hole = Err(Error::NotMapped(PageNumber(AT)));
        let goes = || {
            let asked = mm.space(id).advise(pages(AT, 1), Advice::PageOut);
            assert!(asked == Ok(()) || asked == hole);
        };
        race(mm, place, goes, || mm.space(id).unmap(pages(AT, 1)).unwrap());
        sound(mm);
        mm.counter(Counter::LazyFreed)
    });
    assert!(cases.results.len() > 20 && cases.count(|&freed| freed > 0) == 0);
}

/// A fork waits for memory for the copy of a page that is pinned and not wanted; it is let go meanwhile, and reclaim drops it.
#[test]
fn what_is_dropped_while_a_fork_is_to_copy_it_is_not_copied() {
    let setup = Setup { cpus: 2, frames: 144, ..Setup::default() };
    let dropped = Cell::new(0);
    let cases = at_every_touch(&setup, &swapping("linux"), None, |mm, place| {
        let host = mm.platform();
        let id = written(mm, 512, 4);
        // What reclaim may drop later is behind the pinned page.
        free(mm, id, AT, 4);
        mm.drain_lru_batch();
        let pins = Cell::new(Some(mm.space(id).pin(pages(AT, 1), UserAccess::Read, Term::Short).unwrap()));
        let held = Cell::new(Vec::new());
        let let_go = || {
            host.on(1, || {
                pins.take().into_iter().for_each(|pins| mm.unpin(pins));
                held.set(exhaust(mm));
            });
        };
        let child = Cell::new(None);
        race(mm, place, || child.set(Some(mm.space(id).fork())), let_go);
        give_back(mm, held.take());
        pins.take().into_iter().for_each(|pins| mm.unpin(pins));
        dropped.set(dropped.get().max(mm.counter(Counter::LazyFreed)));
        let shows = child.take().unwrap().map(|child| {
            mm.space(child).switch_to().unwrap();
            [0, 1, 2, 3].map(|n| host.read(mm, child, AT + n).unwrap())
        });
        sound(mm);
        shows.is_err() || shows.unwrap().iter().zip(AT..).all(|(&shows, was)| shows == 0 || shows == was)
    });
    assert_eq!(cases.count(|sound| !sound), 0);
    assert!(cases.results.len() > 10 && dropped.get() == 4, "{} places, {dropped:?}", cases.results.len());
}

#[test]
fn a_cpu_that_could_write_cannot_any_more_when_it_returns() {
    let lost = |broken: Option<Rule>| {
        let host = Host::new(Setup { cpus: 2, frames: 512, ..Setup::default() });
        host.broken.set(broken);
        host.run(swapping("linux"), |mm| {
            let id = written(mm, 512, 4);
            host.on(1, || {
                mm.space(id).switch_to().unwrap();
                host.write(mm, id, AT, 5).unwrap();
                mm.drain_lru_batch();
            });
            mm.drain_lru_batch();
            let sent = mm.counter(Counter::IpisSent);
            free(mm, id, AT, 4);
            let sent = mm.counter(Counter::IpisSent) - sent;
            host.on(1, || host.write(mm, id, AT, 6).unwrap());
            (0..3).for_each(|_| squeeze(mm));
            let out = is_out(mm, id, AT);
            let shows = host.on(1, || host.read(mm, id, AT));
            (sent, out, shows != Ok(6))
        })
    };
    assert_eq!(lost(None), (1, true, false));
    let (sent, _, lost) = lost(Some(Rule::FlushBeforeDropReturns));
    assert_eq!((sent, lost), (0, true));
}

/// A page that was only read is clean, and its entry may be writable all the same.
#[test]
fn who_has_read_a_page_cannot_write_to_it_without_a_fault_once_it_is_lazy() {
    for guarantees in [true, false] {
        let host = Host::new(Setup { cpus: 2, guarantees, ..Setup::default() });
        host.run(swapping("vanilla"), |mm| {
            let id = mm.create_space().unwrap();
            mm.space(id).map(pages(AT, 4), Backing::Anonymous, Prot::ReadWrite).unwrap();
            for cpu in [0, 1] {
                host.on(cpu, || {
                    mm.space(id).switch_to().unwrap();
                    (AT..AT + 4).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(0)));
                });
            }
            assert!(mm.space(id).lookup(PageNumber(AT)).unwrap().permits(UserAccess::Write));
            assert!(host.caches(1, AT));
            mm.space(id).advise(pages(AT, 4), Advice::Free).unwrap();
            assert!((AT..AT + 4).all(|page| !host.caches(0, page) && !host.caches(1, page)));
            host.on(1, || mm.unload());
        });
    }
}

/// What a device writes to a page that was not wanted when it was pinned is wanted.
#[test]
fn what_a_device_writes_is_not_dropped() {
    let (_, dropped, shows) = after("linux", |mm, id| {
        let pins = mm.space(id).pin(pages(AT + 3, 2), UserAccess::Write, Term::Long).unwrap();
        free(mm, id, AT, 16);
        mm.platform().word(pins.frames()[0], 0).store(83, Ordering::SeqCst);
        mm.platform().word(pins.frames()[1], 0).store(84, Ordering::SeqCst);
        mm.unpin(pins);
    });
    let mut want = vec![0; 16];
    want[3..5].copy_from_slice(&[83, 84]);
    assert_eq!((dropped, shows), (14, want));
}

#[test]
fn copies_of_a_files_pages_are_wanted() {
    let host = Host::new(Setup { frames: 512, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        mm.swap().on(machine::swapping::DEVICE, 512, 0).unwrap();
        let file = mm.create_file(4).unwrap();
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(AT, 4), Backing::Private { file, offset: 0 }, Prot::ReadWrite).unwrap();
        mm.space(id).switch_to().unwrap();
        (AT..AT + 4).for_each(|page| host.write(mm, id, page, page).unwrap());
        free(mm, id, AT, 4);
        (0..3).for_each(|_| squeeze(mm));
        assert_eq!(mm.counter(Counter::LazyFreed), 0);
        assert!((AT..AT + 4).all(|page| host.read(mm, id, page) == Ok(page)));
        sound(mm);
    });
}

/// From the middle of one large page to the middle of the next: all of it, and nothing beside it.
#[test]
fn parts_of_large_pages_go_to_the_page() {
    const LARGE: u64 = 0x40000;
    let host = Host::new(Setup { frames: 4096, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        mm.swap().on(machine::swapping::DEVICE, 2048, 0).unwrap();
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(LARGE, 1024), Backing::Anonymous, Prot::ReadWrite).unwrap();
        mm.space(id).advise(pages(LARGE, 1024), Advice::Large).unwrap();
        mm.space(id).switch_to().unwrap();
        (LARGE..LARGE + 1024).for_each(|page| host.write(mm, id, page, page).unwrap());
        assert_eq!(mm.counter(Counter::LargeFault), 2);
        mm.drain_lru_batch();
        free(mm, id, LARGE + 500, 30);
        mm.space(id).advise(pages(LARGE + 490, 50), Advice::PageOut).unwrap();
        assert_eq!(mm.counter(Counter::LazyFreed), 30);
        for page in LARGE + 490..LARGE + 540 {
            let goes = (LARGE + 500..LARGE + 530).contains(&page);
            assert_eq!(host.read(mm, id, page), Ok(if goes { 0 } else { page }));
        }
        sound(mm);
    });
}

/// A page is made lazy in the midst of being written out, and is written to again.
#[test]
fn what_becomes_lazy_on_its_way_out_and_is_written_again_is_wanted() {
    let setup = Setup { cpus: 2, frames: 256, ..Setup::default() };
    let cases = at_every_touch(&setup, &swapping("linux"), None, |mm, place| {
        let host = mm.platform();
        let id = written(mm, 512, 2);
        host.on(1, || mm.space(id).switch_to().unwrap());
        let goes = || mm.space(id).advise(pages(AT, 1), Advice::PageOut).unwrap();
        race(mm, place, goes, || {
            free(mm, id, AT, 1);
            host.write(mm, id, AT, 6).unwrap();
        });
        goes();
        let shows = [0, 1].map(|cpu| host.on(cpu, || host.read(mm, id, AT)));
        sound(mm);
        shows == [Ok(6); 2] && host.stale.get() == 0
    });
    assert!(cases.results.len() > 50 && cases.count(|sound| !sound) == 0, "{}", cases.results.len());
}

/// A page that somebody moves to another node becomes its space's own in the midst of that, and lazy, and is written to again.
#[test]
fn what_becomes_lazy_while_it_moves_and_is_written_again_is_wanted() {
    let anywhere = NodeSet::of(&[NodeId(0), NodeId(1)]).unwrap();
    for policy in ["linux", "quiet"] {
        let cases = at_every_touch(&two_nodes(), &swapping(policy), None, |mm, place| {
            let host = mm.platform();
            let id = written(mm, 512, 2);
            mm.drain_lru_batch();
            let child = mm.space(id).fork().unwrap();
            host.on(1, || mm.space(id).switch_to().unwrap());
            let moves = || _ = mm.space(id).migrate_all(pages(AT, 2), anywhere, NodeId(1)).unwrap();
            race(mm, place, moves, || {
                mm.space(child).destroy().unwrap();
                free(mm, id, AT, 2);
            });
            host.write(mm, id, AT, 6).unwrap();
            for _ in 0..3 {
                [0, 1].iter().for_each(|&cpu| host.on(cpu, || mm.drain_lru_batch()));
                mm.space(id).advise(pages(AT, 2), Advice::PageOut).unwrap();
            }
            let shows = [0, 1].map(|cpu| host.on(cpu, || host.read(mm, id, AT)));
            sound(mm);
            shows == [Ok(6); 2] && host.stale.get() == 0
        });
        assert!(cases.results.len() > 300, "{}", cases.results.len());
        assert_eq!(cases.count(|sound| !sound), 0, "{policy}");
    }
}

/// Where a block of memory is emptied, what is not wanted any more is dropped, and not moved.
#[test]
fn what_is_not_wanted_does_not_move() {
    const LAST: FrameNumber = FrameNumber(0x10800);
    for lazy in [true, false] {
        let host = Host::new(Setup::default());
        host.run(swapping("linux"), |mm| {
            // With tables for the pages that come into the block.
            let id = anonymous(mm, 1);
            mm.space(id).map(pages(AT + 1, 16), Backing::Anonymous, Prot::ReadWrite).unwrap();
            let (last, others): (Vec<_>, Vec<_>) =
                take_free(mm).into_iter().partition(|frames| frames.first() >= LAST);
            give_back(mm, last);
            (AT + 1..AT + 17).for_each(|page| host.write(mm, id, page, page).unwrap());
            give_back(mm, others);
            mm.drain_lru_batch();
            if lazy {
                free(mm, id, AT + 1, 16);
            }
            let leaving = mm.frames().begin_offline(LAST).unwrap();
            mm.frames().bring_online(mm.frames().finish_offline(leaving).unwrap());
            let counts = [Counter::LazyFreed, Counter::PgMigrated].map(|counter| mm.counter(counter));
            assert_eq!(counts, if lazy { [16, 0] } else { [0, 16] });
            sound(mm);
        });
    }
}
