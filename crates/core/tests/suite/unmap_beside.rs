//! Unmaps of one space at the same time: they flush together, with no VMA held, and what they unmap holds its place until then.

use crate::machine;
use crate::revoked::told;

use std::cell::Cell;

use machine::race::{Cases, Place, at_every_touch, every_third};
use machine::showing::{ANON, AT, shared};
use machine::swapping::{DEVICE, is_out, squeeze, swapping, take_free};
use machine::{Host, Mm, Setup, bare, give_back, pages, settled};
use quietmm::event::Revoked;
use quietmm::{Advice, Config, Counter, Entry, Error, PageNumber, Prot, Rule, SpaceId, UserAccess};

/// Under another table than `AT`.
const FAR: u64 = AT + 0x1000;
/// Where nothing is touched, and under no table that leads to the others but the first.
const APART: u64 = AT + (3 << 27);
/// Under another one, and the tables above are the same.
const STAYS: u64 = AT + 0x2000;

fn setup() -> Setup {
    Setup { cpus: 4, frames: 512, ..Setup::default() }
}

fn fault(mm: &Mm<'_>, id: SpaceId, page: u64) -> Result<(), Error> {
    mm.space(id).fault(PageNumber(page).addr(), UserAccess::Write)
}

/// A space in which both CPUs run, with a VMA of two pages at each of these places, which both have cached.
fn cached(mm: &Mm<'_>, places: &[u64]) -> SpaceId {
    let (host, id) = (mm.platform(), mm.create_space().unwrap());
    for &at in places {
        mm.space(id).map(pages(at, 2), ANON, Prot::ReadWrite).unwrap();
    }
    for cpu in [1, 0] {
        host.on(cpu, || {
            mm.space(id).switch_to().unwrap();
            for page in places.iter().flat_map(|&at| [at, at + 1]) {
                host.write(mm, id, page, page).unwrap();
            }
        });
    }
    id
}

/// How many CPUs have one of two pages cached.
fn caching(mm: &Mm<'_>, at: u64) -> usize {
    let host = mm.platform();
    host.deliver_all();
    [0, 1].iter().filter(|&&cpu| host.caches(cpu, at) || host.caches(cpu, at + 1)).count()
}

fn leaves(mm: &Mm<'_>) {
    let host = mm.platform();
    [0, 1].iter().for_each(|&cpu| host.on(cpu, || mm.unload()));
}

fn stop(mm: &Mm<'_>) {
    // An interrupt that another CPU sends is served on that one's stack.
    if mm.platform().is_aside() {
        mm.platform().stop();
    }
}

/// A touch of an unmap at which it has the VMAs alone, and has not looked yet whether others wait.
const ALONE: u32 = 16;

/// CPU 0 unmaps, and CPUs 2 and 3 wait for the VMAs meanwhile: so it lets go of them for its flush. It stands still at a place after that.
/// CPU 2 does what it wants them for as far as it can, and then CPU 1 does `second`.
fn beside<R>(
    (mm, id): (&Mm<'_>, SpaceId),
    place: Place,
    unmaps: impl FnOnce(),
    behind: impl FnOnce(),
    second: impl FnOnce() -> R,
) -> R {
    let Place::Touch(n) = place else { panic!("{place:?}") };
    let host = mm.platform();
    host.place();
    host.at_touch(0, ALONE, stop);
    let result = host.aside(3, maps(mm, id, APART), |third| {
        host.aside(2, behind, |other| {
            host.aside(0, unmaps, |first| {
                assert!(host.resume_one(first), "it stands still");
                assert!(host.resume_one(other) && host.resume_one(third), "they wait");
                host.at_touch(0, n, stop);
                host.resume_one(first);
                for aside in [other, third] {
                    host.resume_one(aside);
                }
                let result = host.on(1, second);
                while [first, other, third].map(|aside| host.resume_one(aside)).contains(&true) {}
                result
            })
        })
    });
    host.all_placed();
    result
}

fn maps<'m>(mm: &'m Mm<'_>, id: SpaceId, at: u64) -> impl FnOnce() + 'm {
    move || mm.space(id).map(pages(at, 1), ANON, Prot::ReadWrite).unwrap()
}

/// CPU 0 unmaps at the first place, CPU 2 at the other; a third VMA may stay. How many CPUs could use what was unmapped when either was told that it is.
fn two_unmaps([first, other]: [u64; 2], stays: Option<u64>, broken: Option<Rule>) -> Cases<usize> {
    two_unmaps_at([first, other], stays, broken, |place| place)
}

fn two_unmaps_at(
    [first, other]: [u64; 2],
    stays: Option<u64>,
    broken: Option<Rule>,
    at: fn(Place) -> Place,
) -> Cases<usize> {
    at_every_touch(&setup(), &bare("linux"), broken, |mm, place| {
        let places: Vec<u64> = [first, other].into_iter().chain(stays).collect();
        let id = cached(mm, &places);
        let late = Cell::new(0);
        let unmap = |at| {
            mm.space(id).unmap(pages(at, 2)).unwrap();
            late.set(late.get() + caching(mm, at));
        };
        beside((mm, id), at(place), || unmap(first), || unmap(other), || ());
        let tables = mm.space(id).usage().unwrap().tables;
        // No table but those on the way to what stays: where CPU 3 has mapped nothing is touched.
        let right = tables == if stays.is_some() { 4 } else { 1 };
        assert!(broken.is_some() || right, "{tables} tables are left");
        leaves(mm);
        mm.space(id).destroy().unwrap();
        if broken.is_none() {
            assert_eq!(settled(mm).broken, None);
        }
        late.get()
    })
}

parts!(
    what_is_unmapped_at_the_same_time_is_used_nowhere,
    |part, _| {
        let other = [FAR, AT + 2, AT + 100, AT + (1 << 27)][part / 2];
        let cases = two_unmaps([AT, other], [None, Some(STAYS)][part % 2], None);
        assert!(cases.results.len() > 100);
        assert_eq!(cases.count(|&late| late > 0), 0, "{other:#x}: {:?}", cases.results);
    },
    [
        p0 p1 p2 p3 p4 p5 p6 p7
    ]
);

#[test]
fn what_is_unmapped_at_the_same_time_nobody_can_use_when_either_returns() {
    // The controls of what is above.
    for rule in [Rule::WaitForWhoFlushes, Rule::FlushedIsWhatWasTaken, Rule::FlushBeforeUnmapReturns] {
        assert!(two_unmaps([AT, FAR], Some(STAYS), Some(rule)).count(|&late| late > 0) > 0, "{rule}");
    }
}

// A table that goes when both have left, and with neither alone, goes: of whatever level, and whichever end of a range lies under it.
parts!(
    what_two_leave_together_goes_with_the_last,
    |part, _| {
        // Over the end of a table.
        let across = AT + 7;
        let (places, stays) = [
            ([AT, AT + (1 << 18)], None),
            ([AT + 10, across], Some(AT)),
            ([across, AT + 10], Some(AT)),
            ([AT, across], Some(AT + 10)),
            ([across, AT], Some(AT + 10)),
        ][part];
        let cases = two_unmaps_at(places, stays, None, every_third);
        assert_eq!(cases.count(|&late| late > 0), 0, "{places:x?}: {:?}", cases.results);
    },
    [
        p0 p1 p2 p3 p4
    ]
);

/// Two unmaps under one table, under which CPU 1 walks to where nothing is, before both have left: how many tables are freed under it.
fn walked_under(broken: Option<Rule>) -> Cases<u32> {
    at_every_touch(&setup(), &bare("linux"), broken, |mm, place| {
        let (host, id) = (mm.platform(), cached(mm, &[AT, AT + 2]));
        let unmap = |at| mm.space(id).unmap(pages(at, 2)).unwrap();
        let walks = || assert_eq!(host.try_read(AT + 100), None);
        beside((mm, id), place, || unmap(AT), || unmap(AT + 2), walks);
        leaves(mm);
        mm.space(id).destroy().unwrap();
        host.stale.take()
    })
}

#[test]
fn a_table_that_the_last_takes_along_is_flushed_once_more() {
    let cases = walked_under(None);
    assert_eq!(cases.count(|&stale| stale > 0), 0, "{:?}", cases.results);
    assert!(walked_under(Some(Rule::TablesAfterFlush)).count(|&stale| stale > 0) > 0);
}

/// CPU 1 cuts a page off a file, and stands still in the middle of it; CPU 0 unmaps that page, and its table, as far as it can, alone or while CPU 2 waits for the
/// VMAs. That whoever walks there touches no table that is free is a law of the machine's.
#[test]
fn a_table_goes_once_no_reverse_map_leads_to_it() {
    for awaited in [false, true] {
        let cases = at_every_touch(&setup(), &bare("linux"), None, |mm, place| {
            let Place::Touch(n) = place else { panic!("{place:?}") };
            let (host, id, file) = (mm.platform(), cached(mm, &[FAR]), mm.create_file(1).unwrap());
            mm.space(id).map(pages(AT, 1), shared(file), Prot::ReadWrite).unwrap();
            assert_eq!(host.read(mm, id, AT), Ok(0));
            host.place();
            host.at_touch(1, n, stop);
            let walks = || mm.file(file).punch_hole(0, 4096).unwrap();
            let unmaps = || mm.space(id).unmap(pages(AT, 1)).unwrap();
            let waits = || awaited.then(maps(mm, id, APART)).unwrap_or_default();
            host.aside(1, walks, |walker| {
                host.resume_one(walker);
                host.at_touch(0, ALONE, stop);
                host.aside(2, waits, |waits| {
                    host.aside(0, unmaps, |unmapper| {
                        let all = [unmapper, waits, unmapper, walker];
                        while all.map(|aside| host.resume_one(aside)).contains(&true) {}
                    })
                })
            });
            let standing = host.all_placed();
            leaves(mm);
            assert_eq!(settled(mm).broken, None);
            standing
        });
        assert!(cases.count(|&standing| standing) > 100, "{:?}", cases.results);
    }
}

#[test]
fn what_leaves_is_told_of_once() {
    let host = Host::new(setup());
    host.patient.set(true);
    host.run(bare("linux"), |mm| {
        let id = cached(mm, &[AT, FAR]);
        host.forget();
        let unmap = |at| mm.space(id).unmap(pages(at, 2)).unwrap();
        beside((mm, id), Place::Touch(0), || unmap(AT), || unmap(FAR), || ());
        assert_eq!(told(&host), [AT, FAR].map(|at| (id, pages(at, 2), Revoked::All)));
        leaves(mm);
        assert_eq!(settled(mm).broken, None);
    });
}

/// CPU 0 unmaps what CPU 1 touches.
fn touched_while_it_leaves(broken: Option<Rule>) -> Cases<Result<(), Error>> {
    at_every_touch(&setup(), &bare("linux"), broken, |mm, place| {
        let id = cached(mm, &[AT, FAR]);
        // CPU 1 does not remember the VMA: it looks for it.
        mm.platform().on(1, || fault(mm, id, FAR)).unwrap();
        let told = beside(
            (mm, id),
            place,
            || mm.space(id).unmap(pages(AT, 2)).unwrap(),
            maps(mm, id, APART + 2),
            || fault(mm, id, AT),
        );
        assert_eq!(fault(mm, id, AT), Err(Error::NotMapped(PageNumber(AT))));
        leaves(mm);
        assert_eq!(settled(mm).broken, None);
        told
    })
}

#[test]
fn to_a_fault_what_leaves_is_not_there() {
    let cases = touched_while_it_leaves(None);
    let gone = Err(Error::NotMapped(PageNumber(AT)));
    assert!(cases.results.len() > 50 && cases.count(|&told| told != gone) == 0, "{:?}", cases.results);
    assert!(touched_while_it_leaves(Some(Rule::LeavingIsUnmapped)).fell > 0);
}

type Op = fn(&Mm<'_>, SpaceId) -> Result<(), Error>;

fn in_the_way_of((part, parts): (usize, usize)) {
    let gone = Err(Error::NotMapped(PageNumber(AT)));
    let ops: [(&str, Op, Result<(), Error>); 6] = [
        (
            "map",
            |mm, id| mm.space(id).map(pages(AT, 2), ANON, Prot::Read),
            Err(Error::Overlaps(PageNumber(AT))),
        ),
        ("unmap", |mm, id| mm.space(id).unmap(pages(AT, 2)), gone),
        ("unmap more", |mm, id| mm.space(id).unmap(pages(AT, 4)), gone),
        ("unmap more, from before it on", |mm, id| mm.space(id).unmap(pages(AT - 2, 4)), gone),
        ("protect", |mm, id| mm.space(id).protect(pages(AT, 2), Prot::Read), gone),
        // What was taken out there is not its own to let go of.
        (
            "drop",
            |mm, id| {
                let done = mm.space(id).advise(pages(AT, 2), Advice::Drop);
                assert!(done.is_err() || caching(mm, AT) == 0, "dropped, and a CPU has it");
                done
            },
            gone,
        ),
    ];
    let (name, op, other) = ops[part % ops.len()];
    let (first_place, step) = ((part / ops.len()) as u32, (parts / ops.len()) as u32);
    let cases = at_every_touch(&setup(), &bare("linux"), None, |mm, place| {
        let Place::Touch(n) = place else { panic!("{place:?}") };
        let place = Place::Touch(n * step + first_place);
        let id = cached(mm, &[AT - 2, AT, AT + 2, FAR]);
        let unmaps = || mm.space(id).unmap(pages(AT, 2));
        let first = Cell::new(Ok(()));
        let told = beside((mm, id), place, || first.set(unmaps()), maps(mm, id, APART + 2), || op(mm, id));
        let late = caching(mm, AT);
        leaves(mm);
        assert_eq!(settled(mm).broken, None);
        (first.get(), told, late)
    });
    let is_right = |&(first, told, late): &(Result<(), Error>, Result<(), Error>, usize)| {
        // One page is unmapped once, and whoever finds it gone is told so.
        let once = !name.starts_with("unmap") || first.is_ok() != told.is_ok();
        late == 0 && (told == Ok(()) || told == other) && (first == Ok(()) || first == gone) && once
    };
    assert_eq!(cases.count(|case| !is_right(case)), 0, "{name}: {:?}", cases.results);
    assert!(cases.count(|case| case.1 == other) * step as usize > 20, "{name}: {:?}", cases.results);
}

parts!(
    what_leaves_is_in_the_way_of_a_map_and_others_wait_until_it_has_left,
    |part, parts| in_the_way_of((part, parts)),
    [
        p0 p1 p2 p3 p4 p5 p6 p7 p8 p9 p10 p11 p12 p13 p14 p15 p16 p17
    ]
);

/// The first page of a large one.
const LARGE: u64 = AT.next_multiple_of(512) + 0x4000;

#[test]
fn a_look_at_a_large_page_that_leaves_finds_nothing() {
    let setup = Setup { frames: 4096, ..setup() };
    let cases = at_every_touch(&setup, &bare("linux"), None, |mm, place| {
        let id = cached(mm, &[FAR]);
        large_page(mm, id);
        let unmaps = || mm.space(id).unmap(pages(LARGE, 512)).unwrap();
        let look = || mm.space(id).lookup(PageNumber(LARGE + 5)).unwrap();
        let seen = beside((mm, id), place, unmaps, maps(mm, id, APART + 2), look);
        leaves(mm);
        assert_eq!(settled(mm).broken, None);
        seen
    });
    assert!(cases.results.len() > 50);
    assert_eq!(cases.count(|&seen| seen != Entry::NONE), 0, "{:?}", cases.results);
}

/// Whoever must split a large page to unmap a part of it does so also where it lets others go on meanwhile: the rest is as it was.
#[test]
fn what_lies_around_a_part_of_a_large_page_that_leaves_stays() {
    let setup = Setup { frames: 4096, ..setup() };
    for (from, count) in [(100, 100), (0, 100), (100, 412), (511, 1)] {
        let host = Host::new(setup.clone());
        host.patient.set(true);
        host.run(bare("linux"), |mm| {
            let id = cached(mm, &[FAR]);
            large_page(mm, id);
            (0..512).for_each(|page| host.write(mm, id, LARGE + page, page + 1).unwrap());
            let part = pages(LARGE + from, count);
            let unmaps = || mm.space(id).unmap(part).unwrap();
            beside((mm, id), Place::Touch(0), unmaps, maps(mm, id, APART + 2), || ());
            for page in 0..512 {
                let seen = host.read(mm, id, LARGE + page);
                let gone = Error::NotMapped(PageNumber(LARGE + page));
                let is_gone = part.contains(PageNumber(LARGE + page));
                assert_eq!(seen, if is_gone { Err(gone) } else { Ok(page + 1) }, "{from}, {count}: {page}");
            }
            assert_eq!(mm.counter(Counter::LargeSplit), 1);
            leaves(mm);
            assert_eq!(settled(mm).broken, None);
        });
    }
}

fn large_page(mm: &Mm<'_>, id: SpaceId) {
    mm.space(id).map(pages(LARGE, 512), ANON, Prot::ReadWrite).unwrap();
    mm.space(id).advise(pages(LARGE, 512), Advice::Large).unwrap();
    fault(mm, id, LARGE).unwrap();
    assert!(mm.space(id).lookup(PageNumber(LARGE + 5)).unwrap().is_present());
}

/// How many mappings a space may have more.
fn mappings_left(mm: &Mm<'_>, id: SpaceId) -> u64 {
    let place = |n| pages(APART + 0x1000 + 2 * n, 1);
    let count = (0..).take_while(|&n| mm.space(id).map(place(n), ANON, Prot::Read).is_ok()).count() as u64;
    (0..count).for_each(|n| mm.space(id).unmap(place(n)).unwrap());
    count
}

/// There is no memory to split a large page: nothing is unmapped, nor is anything cut that was in one piece.
#[test]
fn an_unmap_that_is_refused_where_others_wait_leaves_mappings_in_one_piece() {
    let host = Host::new(Setup { frames: 4096, ..setup() });
    host.patient.set(true);
    host.run(Config { max_map_count: 12, ..bare("linux") }, |mm| {
        let id = cached(mm, &[FAR]);
        large_page(mm, id);
        let left = mappings_left(mm, id);
        let held = take_free(mm);
        for (from, count) in [(100, 100), (0, 100), (100, 412)] {
            let told = Cell::new(Ok(()));
            let unmaps = || told.set(mm.space(id).unmap(pages(LARGE + from, count)));
            beside((mm, id), Place::Touch(0), unmaps, || _ = mm.space(id).usage(), || ());
            assert_eq!(told.get(), Err(Error::OutOfMemory), "{from}, {count}");
            mm.space(id).unmap(pages(APART, 1)).unwrap();
            assert_eq!(mappings_left(mm, id), left, "{from}, {count}");
        }
        give_back(mm, held);
        mm.space(id).unmap(pages(LARGE + 100, 100)).unwrap();
        assert_eq!(mappings_left(mm, id), left - 1);
        leaves(mm);
        assert_eq!(settled(mm).broken, None);
    });
}

#[test]
fn where_parked_pages_lose_their_table_nothing_is_mapped_before_the_flush() {
    let cases = at_every_touch(&setup(), &bare("linux+free=sweep"), None, |mm, place| {
        let (host, other) = (mm.platform(), AT + 4);
        let id = cached(mm, &[AT, other]);
        [0, 1].iter().for_each(|&cpu| host.on(cpu, || mm.drain_lru_batch()));
        // Parked: CPU 1 may use it still.
        mm.space(id).unmap(pages(AT, 2)).unwrap();
        let parked = host.caches(1, AT);
        let unmaps = || mm.space(id).unmap(pages(other, 2)).unwrap();
        let old = beside((mm, id), place, unmaps, maps(mm, id, APART + 2), || {
            mm.space(id).map(pages(AT, 2), ANON, Prot::ReadWrite).unwrap();
            fault(mm, id, AT).unwrap();
            host.caches(1, AT)
        });
        leaves(mm);
        mm.space(id).destroy().unwrap();
        (parked, old)
    });
    assert!(cases.results.len() > 50);
    assert_eq!(cases.count(|&case| case != (true, false)), 0, "{:?}", cases.results);
}

/// What leaves is still in swap, in a table that goes along or in one that stays, and a device that goes off waits until it has left.
#[test]
fn a_device_goes_off_while_what_it_has_leaves() {
    for other in [FAR, AT + 4] {
        let cases = at_every_touch(&setup(), &swapping("linux"), None, |mm, place| {
            let host = mm.platform();
            mm.swap().on(DEVICE, 512, 0).unwrap();
            let id = cached(mm, &[AT, other]);
            squeeze(mm);
            assert!(is_out(mm, id, AT) && is_out(mm, id, AT + 1));
            for cpu in [1, 0] {
                host.on(cpu, || host.read(mm, id, other).unwrap());
            }
            let before = host.rescheds.get();
            host.at_cond_resched(move |mm| {
                assert!(
                    mm.platform().rescheds.get() - before < 100_000,
                    "it goes round, and the others stand still"
                );
            });
            let unmaps = || mm.space(id).unmap(pages(AT, 2)).unwrap();
            let off = || mm.swap().off(DEVICE);
            assert_eq!(beside((mm, id), every_third(place), unmaps, maps(mm, id, APART + 2), off), Ok(()));
            assert_eq!(host.read(mm, id, other + 1), Ok(other + 1));
            leaves(mm);
            mm.space(id).destroy().unwrap();
            assert_eq!(settled(mm).broken, None);
        });
        assert!(cases.results.len() > 20);
    }
}
