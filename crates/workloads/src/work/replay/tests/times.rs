//! How long calls take, and whom a thread waits for that has slept or made a process.

use alloc::vec::Vec;

use super::super::order::Done;
use super::super::plan::{Plan, Step};
use super::{map, pages, plan_of, recorded_as, recorded_at, recorded_on, start, touch, unmap};
use crate::trace::recording::{Backing, Call, Rights, Victim, What};

fn unmapped(page: u64, took: u64) -> What<'static> {
    What::Unmap { pages: pages(page, 1), call: Call { took, stack: 0 } }
}

/// The rests of a thread: how long, and how many were asked.
fn rests(plan: &Plan, thread: usize) -> Vec<(u64, [u32; 2])> {
    let rest = |step: &Step| match *step {
        Step::Rest { ns, asked } => Some((ns, asked)),
        _ => None,
    };
    plan.lives[thread].steps.iter().filter_map(rest).collect()
}

#[test]
fn a_call_takes_as_long_as_it_was_recorded_to_if_it_waited_for_no_other() {
    let shot = |at, victim| (at, 0, 0, What::Shootdown { victim, pages: 1 });
    let events = [
        (0, 0, 0, start(0, false)),
        (0, 1, 0, start(0, true)),
        (0, 2, 0, start(0, false)),
        // Asked before the call, and in it: of a thread, a CPU that had left, and one with nothing to do.
        shot(40, Victim::Idle),
        shot(60, Victim::Thread(1)),
        shot(70, Victim::Left),
        shot(80, Victim::Idle),
        (100, 0, 10, unmapped(1, 50)),
        (100, 0, 0, touch(9)),
        (200, 0, 0, unmapped(1, 30)),
        // Three in a row of which each meets the next, and one that begins when the last ends; in another space nobody meets them.
        (300, 0, 0, unmapped(1, 30)),
        (310, 2, 0, unmapped(1, 20)),
        (320, 1, 0, unmapped(1, 30)),
        (340, 0, 0, unmapped(1, 25)),
        (350, 1, 0, unmapped(1, 10)),
        // A long one, and two within it.
        (450, 1, 0, unmapped(1, 10)),
        (470, 1, 0, unmapped(1, 10)),
        (500, 0, 0, unmapped(1, 90)),
        // A call of which nobody knows how long it took.
        (600, 0, 0, unmap(1, 1)),
    ];
    let plan = plan_of(&recorded_at(&events));
    let none = [0, 0];
    assert_eq!(rests(&plan, 0), [(50, [2, 1]), (30, none), (0, none), (0, none), (0, none)], "a thread's");
    assert_eq!(rests(&plan, 1), [(0, none), (10, none), (0, none), (0, none)], "its sibling's");
    assert_eq!(rests(&plan, 2), [(20, none)], "another space's");
    assert!(rests(&plan_of(&recorded_as(&events, false)), 0).is_empty(), "without times nothing is known");
}

#[test]
fn who_wakes_does_so_no_sooner_than_others_were_so_far_when_it_was_woken() {
    let events = [
        (0, 0, 0, start(0, false)),
        (0, 1, 0, start(0, true)),
        (0, 2, 0, start(0, true)),
        (0, 3, 0, start(0, true)),
        (0, 4, 0, start(0, true)),
        (5, 2, 5, What::Name("ends")),
        (6, 2, 1, What::End),
        (8, 4, 8, What::Name("goes")),
        (10, 1, 10, map(100, 9)),
        (20, 1, 10, touch(101)),
        (30, 1, 10, touch(102)),
        // It could go on 20 before, when its sibling had touched one page. The third is gone, the fourth shows nothing, and the fifth is away.
        (45, 0, 5, What::Sleep { ns: 40 }),
        (60, 0, 15, What::End),
        (70, 4, 5, What::Sleep { ns: 57 }),
    ];
    // Each on a CPU of its own.
    let file = recorded_on(&events, true, |thread| thread as u16);
    let steps = &plan_of(&file).lives[0].steps;
    let beside: Vec<_> = steps.iter().filter(|step| matches!(step, Step::Beside(_))).collect();
    let sibling = &plan_of(&file).lives[1].steps;
    let touched = sibling.iter().position(|step| matches!(step, Step::Touch { page: 101, .. })).unwrap();
    assert_eq!(beside, [&Step::Beside(Done { thread: 1, steps: touched as u32 + 1 })]);
    let at = |step: &Step| steps.iter().position(|other| other == step).unwrap();
    assert!(matches!(steps[at(beside[0]) + 1], Step::Sleep { .. }), "its sleep comes next");
    assert!(plan_of(&file).lives[1].awaited.contains(&(touched as u32 + 1)));
}

#[test]
fn a_stack_that_a_touch_made_grow_is_mapped_round_that() {
    let unmaps = |before: What<'static>, took: u64| {
        let (pages, rights) = (pages(200, 100), Rights::from_bits(3));
        let (backing, call) = (Backing::Anonymous, Call { took, stack: 0 });
        let grows = What::Map { pages, rights, backing, populate: false, call };
        let events =
            [(0, 0, 0, start(0, false)), (10, 0, 9, before), (20, 0, 2, grows), (30, 0, 5, touch(200))];
        let steps = plan_of(&recorded_at(&events)).lives.remove(0).steps;
        let mapped = |step: &Step| {
            if let Step::Map { pages, .. } = step { Some((pages.start, pages.count)) } else { None }
        };
        let unmaps = steps.iter().filter(|step| matches!(step, Step::Unmap { .. })).count();
        (unmaps, steps.iter().filter_map(mapped).collect::<Vec<_>>())
    };
    // What the touch needs is there before, and stays there.
    assert_eq!(unmaps(touch(260), 0), (0, alloc::vec![(256, 16), (200, 56), (272, 28)]));
    // A call replaces it, and so does whoever touched something else.
    assert_eq!(unmaps(touch(260), 5), (1, alloc::vec![(256, 16), (200, 100)]));
    assert_eq!(unmaps(map(250, 10), 0), (1, alloc::vec![(250, 10), (200, 100)]));
}

#[test]
fn who_makes_a_process_that_shares_its_space_waits_until_it_runs_another_program() {
    let made = |meanwhile: &[(u64, u32, u64, What<'static>)]| {
        let mut events =
            alloc::vec![(0, 0, 0, start(0, false)), (10, 0, 10, map(100, 9)), (20, 1, 0, start(0, true))];
        events.extend_from_slice(meanwhile);
        events.extend([(40, 1, 5, What::Exec("other")), (50, 0, 5, touch(101)), (60, 1, 5, What::End)]);
        let plan = plan_of(&recorded_at(&events));
        let exec = plan.lives[1].steps.iter().position(|step| matches!(step, Step::Exec { .. })).unwrap();
        let done = Step::Await(Done { thread: 1, steps: exec as u32 + 1 });
        let steps = &plan.lives[0].steps;
        let touch = steps.iter().position(|step| matches!(step, Step::Touch { page: 101, .. })).unwrap();
        steps.iter().position(|step| *step == done).is_some_and(|waits| waits < touch)
    };
    assert!(made(&[]));
    assert!(!made(&[(30, 0, 0, touch(100))]), "one that did something meanwhile did not wait");
}
