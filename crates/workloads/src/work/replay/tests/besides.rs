//! What Linux flushes besides, and this core does not.

use alloc::vec;
use alloc::vec::Vec;

use quietmm::Advice;

use super::super::plan::{Plan, Step};
use super::super::space::Shown;
use super::{NO_CALL, map, pages, plan_of, planned, recorded, recorded_at, start, touch};
use crate::latency::Tally;
use crate::trace::recording::{Backing, Call, Rights, What};

/// Pages at which Linux replaces the page of zeros, by thread, in the order of its steps.
fn replaced(plan: &Plan) -> Vec<Vec<u64>> {
    let pages = |step: &Step| match *step {
        Step::Replace { page, shown: Shown::Zeros } => Some(page),
        _ => None,
    };
    plan.lives.iter().map(|life| life.steps.iter().filter_map(pages).collect()).collect()
}

fn read(page: u64) -> What<'static> {
    What::Fault { page, write: false }
}

fn advise(start: u64, count: u64, advice: u32) -> What<'static> {
    What::Advise { pages: pages(start, count), advice, call: NO_CALL }
}

#[test]
fn the_first_write_to_what_was_only_read_replaces_the_page_of_zeros_and_no_other_does() {
    let rights = Rights::from_bits(3);
    let of_file = What::Map {
        pages: pages(300, 1),
        rights,
        backing: Backing::Private { file: 0, offset: 0 },
        populate: false,
        call: NO_CALL,
    };
    let plan = planned(&[
        (0, 0, start(0, false)),
        (1, 0, start(0, true)),
        (0, 0, map(100, 50)),
        // Read by one and written by another, twice: once.
        (0, 0, read(100)),
        (1, 0, touch(100)),
        (1, 0, touch(100)),
        // Written first, or read twice: never.
        (0, 0, touch(101)),
        (0, 0, read(101)),
        (0, 0, touch(101)),
        (0, 0, read(102)),
        (0, 0, read(102)),
        // Dropped or mapped anew in between: what comes then is no page of zeros.
        (0, 0, read(103)),
        (0, 0, advise(103, 1, 4)),
        (0, 0, touch(103)),
        (0, 0, read(104)),
        (0, 0, map(104, 1)),
        (0, 0, touch(104)),
        // Advice that takes nothing away, other rights, and a move leave it there.
        (0, 0, read(105)),
        (0, 0, advise(105, 1, 15)),
        (0, 0, What::Protect { pages: pages(105, 1), rights: Rights::from_bits(1), call: NO_CALL }),
        (0, 0, What::Protect { pages: pages(105, 1), rights, call: NO_CALL }),
        (0, 0, What::Move { from: pages(105, 1), to: pages(205, 1), call: NO_CALL }),
        (0, 0, touch(205)),
        // A file has no page of zeros: the core copies its page itself.
        (0, 0, What::File("/file")),
        (0, 0, of_file),
        (0, 0, read(300)),
        (0, 0, touch(300)),
        // After a fork each has one of its own to replace.
        (0, 0, read(120)),
        (2, 0, start(0, false)),
        (2, 0, touch(120)),
        (0, 0, touch(120)),
    ]);
    assert_eq!(replaced(&plan), [vec![205, 120], vec![100], vec![120]]);
}

#[test]
fn a_call_that_finds_nothing_and_ends_while_another_one_is_under_way_flushes_all() {
    let call = |took| Call { took, stack: 0 };
    let drops = |start, count, took| What::Advise { pages: pages(start, count), advice: 4, call: call(took) };
    let unmaps = |start, count, took| What::Unmap { pages: pages(start, count), call: call(took) };
    let starts = [
        (0, 0, 0, start(0, false)),
        (0, 1, 0, start(0, true)),
        (0, 0, 0, map(100, 8)),
        (0, 0, 0, map(200, 50)),
        (0, 1, 0, read(101)),
        (0, 1, 0, touch(102)),
    ];
    // Where the first thread flushes all, by the second one's call, which has begun 15 before its end at 100.
    let flushes_beside = |other: What<'static>, others: bool, calls: &[(u64, What<'static>)]| {
        let mut events = starts.to_vec();
        // A process of its own.
        events.push((0, 2, 0, start(0, false)));
        events.extend(calls.iter().map(|&(at, what)| (at, 0, 0, what)));
        events.push((100, if others { 2 } else { 1 }, 0, other));
        let plan = plan_of(&recorded_at(&events));
        plan.lives[0].steps.iter().filter(|step| **step == Step::FlushAll).count()
    };
    let flushes = |others, calls: &[_]| flushes_beside(drops(200, 50, 15), others, calls);
    // It is under way when it has begun; what finds something flushes that anyway; nothing that is mapped is nothing to take.
    assert_eq!(flushes(false, &[(85, drops(100, 1, 3)), (90, drops(100, 1, 3)), (99, drops(103, 5, 3))]), 2);
    assert_eq!(flushes(false, &[(90, drops(101, 1, 3)), (91, drops(100, 8, 3)), (92, drops(100, 8, 3))]), 1);
    assert_eq!(
        flushes(false, &[(90, unmaps(103, 2, 3)), (91, unmaps(102, 3, 3)), (92, unmaps(102, 3, 3))]),
        1
    );
    // Advice that takes nothing, rights, and what another process does.
    let advice = What::Advise { pages: pages(100, 1), advice: 15, call: call(3) };
    let rights = What::Protect { pages: pages(100, 1), rights: Rights::from_bits(1), call: call(3) };
    assert_eq!(flushes(false, &[(90, advice), (92, rights)]), 0);
    assert_eq!(flushes(true, &[(90, drops(100, 1, 3))]), 0);
    // Of two changes of mappings one waits for the other.
    let changes = [(90, drops(100, 1, 3)), (91, unmaps(103, 2, 3))];
    assert_eq!(
        [unmaps(200, 50, 15), drops(200, 50, 15)].map(|other| flushes_beside(other, false, &changes)),
        [1, 2]
    );
}

#[test]
fn pages_come_at_once_where_they_may_and_are_flushed_when_they_get_cold() {
    let steps = |events: &[What<'static>]| {
        let rights = |start, count, bits| What::Protect {
            pages: pages(start, count),
            rights: Rights::from_bits(bits),
            call: NO_CALL,
        };
        let mut all = vec![(0, 0, start(0, false)), (0, 0, map(100, 8)), (0, 0, rights(104, 2, 1))];
        all.extend(events.iter().map(|&what| (0, 0, what)));
        let plan = plan_of(&recorded(&all));
        assert_eq!(plan.mended, 0);
        plan.lives[0]
            .steps
            .iter()
            .skip(2)
            .copied()
            .filter(|step| !matches!(step, Step::End { .. }))
            .collect::<Vec<_>>()
    };
    let touched = |pages: core::ops::Range<u64>, write| {
        pages.map(|page| Step::Touch { page, write, count: 1 }).collect::<Vec<_>>()
    };
    // As far as the right to it goes, or there is something; from its beginning.
    assert_eq!(steps(&[advise(100, 8, 23)]), touched(100..104, true));
    assert_eq!(steps(&[advise(102, 20, 22)]), touched(102..108, false));
    assert_eq!(steps(&[advise(99, 3, 22)]), []);
    // Whatever is there is flushed, and nothing else is.
    let cold = Step::Advise { pages: pages(100, 4), advice: Advice::Cold };
    assert_eq!(steps(&[advise(100, 4, 20)]), [cold]);
    let flushed = [
        &touched(100..102, true)[..],
        &[cold, Step::FlushRange { pages: pages(100, 4), of: Tally::AgedFlushes }],
    ]
    .concat();
    assert_eq!(steps(&[advise(100, 2, 23), advise(100, 4, 20)]), flushed);
    // Once, until one of them is touched or others come in its place.
    let (again, drop) = (advise(100, 4, 20), Step::Advise { pages: pages(100, 4), advice: Advice::Drop });
    assert_eq!(steps(&[advise(100, 2, 23), again, again]), [&flushed[..], &[cold]].concat());
    let flushes = |between: &[What<'static>]| {
        let all = [&[advise(100, 2, 23), again][..], between, &[again]].concat();
        steps(&all).iter().filter(|step| matches!(step, Step::FlushRange { .. })).count()
    };
    assert_eq!((flushes(&[touch(101)]), flushes(&[advise(100, 4, 4)])), (2, 1));
    assert_eq!(flushes(&[advise(100, 4, 4), touch(101)]), 2);
    assert!(steps(&[advise(100, 4, 4)]).contains(&drop));
    // A write that tells by a fault of what it found replaces that; one that brings all at once does not say what Linux showed there.
    let replaced = |write| {
        steps(&[advise(100, 2, 22), write]).iter().filter(|step| matches!(step, Step::Replace { .. })).count()
    };
    assert_eq!((replaced(touch(100)), replaced(advise(100, 2, 23))), (1, 0));
    // Nobody's page of zeros.
    assert_eq!(steps(&[advise(100, 2, 22), again]), [&touched(100..102, false)[..], &[cold]].concat());
}

#[test]
fn pages_that_nobody_may_use_are_flushed_when_they_are_dropped() {
    let flushes = |events: &[What<'static>]| {
        let rights = What::Protect { pages: pages(104, 4), rights: Rights::from_bits(0), call: NO_CALL };
        let mut all = vec![start(0, false), map(100, 8), touch(105), rights];
        all.extend(events);
        let all: Vec<_> = all.into_iter().map(|what| (0, 0, what)).collect();
        let flush = |step: &Step| match *step {
            Step::FlushRange { pages, of: Tally::HiddenFlushes } => Some((pages.start, pages.count)),
            _ => None,
        };
        planned(&all).lives[0].steps.iter().filter_map(flush).collect::<Vec<_>>()
    };
    // Once, where something is; and with pages that may be used the core flushes by itself.
    assert_eq!(flushes(&[advise(104, 4, 4), advise(104, 4, 4)]), [(104, 4)]);
    assert_eq!(flushes(&[advise(106, 2, 4), advise(103, 3, 4)]), []);
    // Cold ones stay as they are.
    assert_eq!(flushes(&[advise(104, 4, 20)]), []);
}

#[test]
fn with_a_page_of_a_file_those_around_it_come_and_the_first_write_to_one_copies_it() {
    let map = |start, count, shared, offset| What::Map {
        pages: pages(start, count),
        rights: Rights::from_bits(3),
        backing: match shared {
            true => Backing::Shared { file: 0, offset },
            false => Backing::Private { file: 0, offset },
        },
        populate: false,
        call: NO_CALL,
    };
    // What is done besides, and where pages of files are replaced then.
    let replaced = |events: &[What<'static>]| -> Vec<u64> {
        let first = [start(0, false), What::File("/file"), map(160, 40, false, 7)];
        let all: Vec<_> = first.iter().chain(events).map(|&what| (0, 0, what)).collect();
        let pages = |step: &Step| match *step {
            Step::Replace { page, shown: Shown::File } => Some(page),
            _ => None,
        };
        planned(&all).lives[0].steps.iter().filter_map(pages).collect()
    };
    let writes = |pages: &[u64]| pages.iter().map(|&page| touch(page)).collect::<Vec<_>>();
    // From a multiple of 16 on, each once; what was read itself the core has, and copies by itself.
    let all: Vec<u64> = (155..200).chain(160..200).collect();
    assert_eq!(
        replaced(&[&[read(181)][..], &writes(&all)].concat()),
        (176..192).filter(|&page| page != 181).collect::<Vec<_>>()
    );
    // Nothing comes with a write, nor with what was written before.
    assert_eq!(replaced(&writes(&[181, 182])), []);
    assert_eq!(replaced(&[touch(181), read(181), touch(182)]), []);
    // Whoever read it first found nothing there.
    assert_eq!(replaced(&[read(181), read(182), touch(182), touch(183)]), [183]);
    // Written before, dropped, or mapped anew in between: then nothing of the file is shown there.
    assert_eq!(replaced(&[touch(182), read(181), touch(182), touch(183)]), [183]);
    assert_eq!(replaced(&[read(181), advise(182, 1, 4), touch(182), touch(183)]), [183]);
    assert_eq!(replaced(&[read(181), map(182, 1, false, 29), touch(182), touch(183)]), [183]);
    // Moved: it goes along.
    let moves = What::Move { from: pages(182, 1), to: pages(400, 1), call: NO_CALL };
    assert_eq!(replaced(&[read(181), moves, touch(400)]), [400]);
    // Where the mapping begins within such 16 pages it is 16 from there on, up to its end.
    assert_eq!(
        replaced(&[&[map(500, 40, false, 0), read(507)][..], &writes(&[499, 500, 511, 512])].concat()),
        [500, 511]
    );
    assert_eq!(
        replaced(&[&[map(580, 40, false, 0), read(581)][..], &writes(&[580, 595, 596])].concat()),
        [580, 595]
    );
    assert_eq!(
        replaced(&[&[map(640, 4, false, 0), read(641)][..], &writes(&[640, 643, 644])].concat()),
        [640, 643]
    );
    // Only of the same mapping: as it shows the file, with these rights, and not of what is shared.
    let other = [map(700, 4, false, 0), map(704, 4, false, 9), map(708, 4, false, 8)];
    assert_eq!(replaced(&[&other[..], &[read(705)], &writes(&[703, 704, 707, 708])].concat()), [704, 707]);
    let rights = What::Protect { pages: pages(184, 8), rights: Rights::from_bits(1), call: NO_CALL };
    let back = What::Protect { pages: pages(184, 8), rights: Rights::from_bits(3), call: NO_CALL };
    assert_eq!(replaced(&[rights, read(181), back, touch(183), touch(184)]), [183]);
    assert_eq!(replaced(&[map(800, 16, true, 0), read(801), touch(802)]), []);
}
