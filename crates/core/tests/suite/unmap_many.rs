//! More than two who unmap in one space at the same time: those who come while one flushes are flushed for together, all of them, once.

use crate::machine;

use std::cell::Cell;
use std::rc::Rc;

use machine::showing::ANON;
use machine::{Aside, Host, Mm, Setup, bare, pages, settled};
use quietmm::{Prot, SpaceId};

/// What is unmapped: two pages each, close to each other, so that single pages are flushed.
const NEAR: [u64; 4] = [0x10003, 0x10006, 0x10009, 0x1000c];
/// Stays, in the same table.
const STAYS: u64 = 0x10000;
/// Under a table of its own, which goes.
const FAR: u64 = 0x12000;
/// Where somebody maps.
const APART: u64 = 0x18000;
/// A touch of an unmap at which it has the VMAs alone, and has not looked yet whether others wait.
const ALONE: u32 = 16;

/// CPUs that use the space: one runs in it, one is lazy.
const RUNS: u16 = 1;
const LAZY: u16 = 7;

fn stop(mm: &Mm<'_>) {
    // An interrupt that another CPU sends is served on that one's stack.
    if mm.platform().is_aside() {
        mm.platform().stop();
    }
}

type Work<'w> = (u16, Box<dyn FnOnce() + 'w>);

/// Puts all of this on the side, and goes on with `main`.
fn beside(host: &Host, mut works: Vec<Work<'_>>, mut asides: Vec<Rc<Aside>>, main: &dyn Fn(&[Rc<Aside>])) {
    let Some((cpu, work)) = works.pop() else { return main(&asides) };
    host.aside(cpu, work, |aside| {
        asides.insert(0, Rc::clone(aside));
        beside(host, works, asides, main);
    });
}

/// What it came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Came {
    /// Unmaps after which a CPU still had a page cached.
    late: u32,
    /// Interrupts to whoever runs in the space, and to whoever is lazy.
    runs: usize,
    lazy: usize,
    /// Flushes of all that who runs has, rather than of pages.
    full: usize,
}

/// CPU 0 unmaps the first of `places`, and CPUs from 2 on the others, in this order, while it waits for an answer to its flush. It gets the answer
/// before so many of them have come as `before` says.
fn together(places: &[u64], before: usize) -> Came {
    one_after_the_other(&[(places, before)]).pop().unwrap()
}

/// The same several times, in one space.
fn one_after_the_other(rounds: &[(&[u64], usize)]) -> Vec<Came> {
    let host = &Host::new(Setup { cpus: 8, frames: 512, ..Setup::default() });
    host.patient.set(true);
    host.run(bare("linux"), |mm| {
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(STAYS, 2), ANON, Prot::ReadWrite).unwrap();
        let came = rounds.iter().map(|&(places, before)| round(mm, id, places, before)).collect();
        ends(mm, id);
        came
    })
}

fn round(mm: &Mm<'_>, id: SpaceId, places: &[u64], before: usize) -> Came {
    let host = mm.platform();
    let shown: Vec<u64> = places.iter().copied().chain([STAYS]).collect();
    places.iter().for_each(|&at| mm.space(id).map(pages(at, 2), ANON, Prot::ReadWrite).unwrap());
    for cpu in [RUNS, LAZY] {
        host.on(cpu, || {
            mm.space(id).switch_to().unwrap();
            shown
                .iter()
                .flat_map(|&at| [at, at + 1])
                .for_each(|page| host.write(mm, id, page, page).unwrap());
        });
    }
    host.on(LAZY, || mm.enter_lazy());
    host.forget();
    let late = &Cell::new(0);
    let unmap = |at: u64| -> Box<dyn FnOnce() + '_> {
        Box::new(move || {
            mm.space(id).unmap(pages(at, 2)).unwrap();
            let cached = [at, at + 1].iter().any(|&page| host.caches(RUNS, page));
            late.set(late.get() + u32::from(cached));
        })
    };
    let mut works: Vec<Work<'_>> = (0..).zip(places).map(|(nth, &at)| (nth, unmap(at))).collect();
    // CPU 1 runs in the space.
    works.iter_mut().skip(1).for_each(|work| work.0 += 1);
    // Somebody waits behind the last, so that this one lets go of the VMAs, too.
    let maps = || mm.space(id).map(pages(APART, 1), ANON, Prot::ReadWrite).unwrap();
    works.push((6, Box::new(maps)));
    host.place();
    host.at_touch(0, ALONE, stop);
    beside(host, works, Vec::new(), &|asides| {
        let (first, others) = asides.split_first().unwrap();
        assert!(host.resume_one(first), "it stands still with the VMAs");
        assert!(others.iter().all(|other| host.resume_one(other)), "they wait");
        host.hold_interrupts.set(true);
        host.on_pause.borrow_mut().push_back(Box::new(stop));
        assert!(host.resume_one(first), "it waits for an answer");
        host.hold_interrupts.set(false);
        for (nth, other) in others.iter().enumerate() {
            if nth == before {
                // It has its answer, and waits for the VMAs behind the others.
                host.resume_one(first);
            }
            host.resume_one(other);
        }
        while asides.iter().filter(|aside| host.resume_one(aside)).count() > 0 {}
    });
    host.all_placed();
    let full = host.flushes(RUNS).0;
    let came =
        Came { late: late.get(), runs: host.interrupts_to(RUNS), lazy: host.interrupts_to(LAZY), full };
    mm.space(id).unmap(pages(APART, 1)).unwrap();
    came
}

fn ends(mm: &Mm<'_>, id: SpaceId) {
    let host = mm.platform();
    [RUNS, LAZY].iter().for_each(|&cpu| host.on(cpu, || mm.unload()));
    mm.space(id).destroy().unwrap();
    assert_eq!(settled(mm).broken, None);
}

/// The first one's, and that of all who wait, with whoever comes when that has ended; whoever comes later needs one more.
fn flushes(before: usize) -> usize {
    if before == 1 { 3 } else { 2 }
}

/// All orders of three.
const ORDERS: [[usize; 3]; 6] = [[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]];

#[test]
fn all_who_unmap_during_a_flush_are_flushed_for_by_the_next() {
    for order in ORDERS {
        for before in [4, 2, 1] {
            let places = [0, order[0], order[1], order[2]].map(|n| NEAR[n]);
            let came = together(&places, before);
            assert_eq!(
                came,
                Came { late: 0, runs: flushes(before), lazy: 0, full: 0 },
                "{order:?}, {before}"
            );
        }
    }
}

#[test]
fn where_a_table_of_one_of_them_goes_lazy_cpus_are_asked_once() {
    for at in 1..4 {
        for before in [4, 2, 1] {
            let mut places = NEAR;
            places[at] = FAR;
            let came = together(&places, before);
            assert_eq!((came.late, came.runs, came.lazy), (0, flushes(before), 1), "{at}, {before}");
        }
    }
}

/// What was flushed for some is flushed: whoever comes later in the same space does not have it flushed again, neither the pages nor the tables.
#[test]
fn what_was_flushed_together_is_not_flushed_again() {
    let far = [NEAR[0], FAR, NEAR[1], NEAR[2]];
    for before in [4, 2, 1] {
        for first in [NEAR, far] {
            let came =
                one_after_the_other(&[(&first, before), (&NEAR, before), (&far[..1], 1), (&NEAR, before)]);
            let close = Came { late: 0, runs: flushes(before), lazy: 0, full: 0 };
            assert_eq!(came[1..], [close, Came { runs: 1, ..close }, close], "{first:x?}, {before}");
        }
    }
}

/// CPU 2 waits for CPU 0's flush to end, and stands still at a place when it is woken; CPU 3 flushes meanwhile, for both. CPU 2 finds that it has
/// nothing to flush, also where it is about to.
fn overtaken(touch: u32) -> bool {
    let host = &Host::new(Setup { cpus: 8, frames: 512, ..Setup::default() });
    host.patient.set(true);
    host.run(bare("linux"), |mm| {
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(STAYS, 2), ANON, Prot::ReadWrite).unwrap();
        let unmap = |at: u64| -> Box<dyn FnOnce() + '_> {
            mm.space(id).map(pages(at, 2), ANON, Prot::ReadWrite).unwrap();
            host.on(RUNS, || {
                mm.space(id).switch_to().unwrap();
                [at, at + 1].into_iter().for_each(|page| host.write(mm, id, page, page).unwrap());
            });
            Box::new(move || {
                mm.space(id).unmap(pages(at, 2)).unwrap();
                assert!(!host.caches(RUNS, at) && !host.caches(RUNS, at + 1));
            })
        };
        let mut works: Vec<Work<'_>> = vec![(0, unmap(NEAR[0])), (2, unmap(NEAR[1])), (3, unmap(NEAR[2]))];
        // Somebody waits behind the last, so that this one lets go of the VMAs, too.
        works.push((6, Box::new(|| mm.space(id).map(pages(APART, 1), ANON, Prot::ReadWrite).unwrap())));
        host.place();
        host.at_touch(0, ALONE, stop);
        let placed = Cell::new(false);
        beside(host, works, Vec::new(), &|asides| {
            let [first, second, third, _] = asides else { unreachable!() };
            assert!(host.resume_one(first), "it stands still with the VMAs");
            assert!(asides[1..].iter().all(|other| host.resume_one(other)), "they wait");
            host.hold_interrupts.set(true);
            host.on_pause.borrow_mut().push_back(Box::new(stop));
            assert!(host.resume_one(first), "it waits for an answer");
            host.hold_interrupts.set(false);
            assert!(host.resume_one(second), "it waits for the first");
            host.resume_one(first);
            host.at_touch(2, touch, stop);
            host.resume_one(second);
            placed.set(host.all_placed());
            host.place();
            host.resume_one(third);
            while asides.iter().filter(|aside| host.resume_one(aside)).count() > 0 {}
        });
        host.all_placed();
        host.forget_placed();
        mm.space(id).unmap(pages(APART, 1)).unwrap();
        assert_eq!(settled(mm).broken, None, "nobody flushes any more");
        ends(mm, id);
        placed.get()
    })
}

#[test]
fn who_is_flushed_for_while_it_is_about_to_flush_ends_that() {
    let placed = (0..40).filter(|&touch| overtaken(touch)).count();
    assert!(placed > 5, "{placed}");
}
