//! Plans of random recordings, played in random orders on a model of spaces: nothing impossible, no deadlock, and the
//! recorded order wherever pages are the same.

extern crate std;

mod besides;
mod times;

use std::collections::{BTreeMap, BTreeSet};
use std::vec;
use std::vec::Vec;

use proptest::collection::vec as list;
use proptest::prelude::*;
use quietmm::Prot;

use super::order::Done;
use super::plan::{Plan, Step, plan};
use super::space::{MAPPABLE, Shows};
use crate::trace::AnyTrace;
use crate::trace::recording::{
    About, Backing, Call, Event, Pages, RecordingEncoder, RecordingHeader, Rights, Shootdowns, Victim, What,
};

fn recorded(events: &[(u32, u64, What<'_>)]) -> Vec<u8> {
    let timed: Vec<_> = (0..).zip(events).map(|(at, &(thread, ran, what))| (at, thread, ran, what)).collect();
    recorded_as(&timed, false)
}

/// The same, each with its time.
fn recorded_at(events: &[(u64, u32, u64, What<'_>)]) -> Vec<u8> {
    recorded_as(events, true)
}

fn recorded_as(events: &[(u64, u32, u64, What<'_>)], times: bool) -> Vec<u8> {
    recorded_on(events, times, |_| 0)
}

/// The same, each thread on this CPU.
fn recorded_on(events: &[(u64, u32, u64, What<'_>)], times: bool, on: impl Fn(u32) -> u16) -> Vec<u8> {
    let (mut body, mut encoder) = (Vec::new(), RecordingEncoder::new(8));
    for &(at, thread, ran, what) in events {
        encoder.push(&Event { at, thread, cpu: on(thread), ran, what }, &mut body).unwrap();
    }
    let about = About {
        program: "test",
        command: "",
        method: "",
        faults: true,
        bounded: false,
        times,
        shootdowns: false,
        cpus: 8,
        duration: encoder.last(),
        lost: 0,
        received: Shootdowns::default(),
    };
    let mut file = Vec::new();
    RecordingHeader { about, sums: encoder.finish() }.encode(&mut file).unwrap();
    file.extend(body);
    file
}

fn planned(events: &[(u32, u64, What<'_>)]) -> Plan {
    plan_of(&recorded(events))
}

fn plan_of(file: &[u8]) -> Plan {
    match AnyTrace::parse(file).unwrap() {
        AnyTrace::Operations(recording) => plan(&recording, LAG),
        AnyTrace::Accesses(_) => panic!("a recording was read as accesses"),
    }
}

/// Whoever is woken runs so many nanoseconds later.
const LAG: u64 = 20;

const NO_CALL: Call = Call { took: 0, stack: 0 };

fn start(by: u32, shares: bool) -> What<'static> {
    What::Start { by, shares, call: NO_CALL }
}

fn pages(start: u64, count: u64) -> Pages {
    Pages::new(start, count).unwrap()
}

fn map(start: u64, count: u64) -> What<'static> {
    let rights = Rights::from_bits(3);
    What::Map {
        pages: pages(start, count),
        rights,
        backing: Backing::Anonymous,
        populate: false,
        call: NO_CALL,
    }
}

fn unmap(start: u64, count: u64) -> What<'static> {
    What::Unmap { pages: pages(start, count), call: NO_CALL }
}

fn touch(page: u64) -> What<'static> {
    What::Fault { page, write: true }
}

/// Spaces of a machine that plays a plan, and how far each thread is.
struct Model<'a> {
    plan: &'a Plan,
    spaces: Vec<Option<BTreeMap<u64, Prot>>>,
    done: Vec<u32>,
    space: Vec<Option<u32>>,
    /// For each seat the threads that are still to sit on it.
    seats: Vec<Vec<u32>>,
}

impl<'a> Model<'a> {
    fn new(plan: &'a Plan) -> Self {
        let mut spaces = vec![None; plan.spaces as usize];
        for life in plan.lives.iter().filter(|life| life.founds) {
            spaces[life.space as usize] = Some(BTreeMap::new());
        }
        let mut seats = vec![Vec::new(); plan.seats.count as usize];
        for (thread, &seat) in plan.seats.of.iter().enumerate().rev() {
            seats[seat as usize].push(thread as u32);
        }
        let done = vec![0; plan.lives.len()];
        Model { plan, spaces, done, space: vec![None; plan.lives.len()], seats }
    }

    fn is_done(&self, done: Done) -> bool {
        let life = &self.plan.lives[done.thread as usize];
        assert!(life.awaited.contains(&done.steps), "nobody would be woken after {done:?}");
        self.done[done.thread as usize] >= done.steps
    }

    /// The thread on a seat does one step. Returns whether it could.
    fn step(&mut self, seat: usize) -> bool {
        let Some(&thread) = self.seats[seat].last() else { return false };
        let life = &self.plan.lives[thread as usize];
        if self.space[thread as usize].is_none() {
            if life.after.is_some_and(|after| !self.is_done(after)) {
                return false;
            }
            assert!(self.spaces[life.space as usize].is_some(), "its space is there when it begins");
            self.space[thread as usize] = Some(life.space);
        }
        let step = &life.steps[self.done[thread as usize] as usize];
        let awaited = match *step {
            // The sleep that it is for comes next.
            Step::Await(done) | Step::Beside(done) => Some(done),
            Step::Sleep { after, .. } => after,
            _ => None,
        };
        if awaited.is_some_and(|done| !self.is_done(done)) {
            return false;
        }
        self.act(thread, step);
        self.done[thread as usize] += 1;
        if self.done[thread as usize] as usize == life.steps.len() {
            assert!(matches!(step, Step::End { .. }));
            self.seats[seat].pop();
        }
        true
    }

    fn act(&mut self, thread: u32, step: &Step) {
        let here = self.space[thread as usize].unwrap();
        let space = self.spaces[here as usize].as_mut().expect("a space lives as long as its threads");
        let all = |pages: Pages| pages.start..pages.end();
        // As the core refuses them: a task would end early.
        let mappable = |pages: Pages| assert!(all(pages).all(|page| MAPPABLE.contains(&page)), "{pages:?}");
        match *step {
            Step::Run(_)
            | Step::Answered(_)
            | Step::FlushAll
            | Step::On(_)
            | Step::Rest { .. }
            | Step::Beside(_)
            | Step::Sleep { .. }
            | Step::Await(_) => {}
            Step::Map { pages, prot, .. } => {
                mappable(pages);
                for page in all(pages) {
                    assert_eq!(space.insert(page, prot), None, "{page} is mapped already");
                }
            }
            Step::Unmap { pages, .. } => {
                all(pages).for_each(|page| assert!(space.remove(&page).is_some(), "{page} is not mapped"));
            }
            Step::Protect { pages, prot } => {
                all(pages).for_each(|page| *space.get_mut(&page).expect("mapped") = prot);
            }
            Step::Advise { pages, .. } | Step::FlushRange { pages, .. } => {
                all(pages).for_each(|page| assert!(space.contains_key(&page)))
            }
            Step::Move { pages, to } => {
                mappable(Pages { start: to, ..pages });
                let prots: Vec<Prot> = all(pages).map(|page| space.remove(&page).expect("mapped")).collect();
                for (page, prot) in (to..).zip(prots) {
                    assert_eq!(space.insert(page, prot), None, "{page} is mapped already");
                }
            }
            Step::Replace { page, .. } => {
                assert_eq!(space[&page], Prot::ReadWrite, "it is about to be written")
            }
            Step::Touch { page, write, .. } => {
                let prot = space[&page];
                assert!(prot == Prot::ReadWrite || (prot == Prot::Read && !write), "no right to {page}");
            }
            Step::Fork { to } => {
                let copy = space.clone();
                self.spaces[to as usize] = Some(copy);
            }
            Step::Exec { to, ends } => {
                self.leave(thread, here, ends);
                self.spaces[to as usize] = Some(BTreeMap::new());
                self.space[thread as usize] = Some(to);
            }
            Step::End { ends, .. } => self.leave(thread, here, ends),
        }
    }

    fn leave(&mut self, thread: u32, space: u32, ends: bool) {
        self.space[thread as usize] = None;
        if ends {
            assert!(!self.space.contains(&Some(space)), "somebody is left in a space that ends");
            self.spaces[space as usize] = None;
        } else {
            self.space[thread as usize] = Some(u32::MAX);
        }
    }

    /// Plays all, one seat's step at a time, as `choose` says.
    fn play(&mut self, mut choose: impl FnMut(usize) -> usize) {
        while self.seats.iter().any(|seat| !seat.is_empty()) {
            let first = choose(self.seats.len());
            let moved = (0..self.seats.len()).any(|nth| self.step((first + nth) % self.seats.len()));
            assert!(moved, "deadlock");
        }
        assert!(self.spaces.iter().all(Option::is_none), "all spaces have ended");
    }
}

/// Anything that up to 6 threads may do to a few pages, among them what makes no sense.
fn any_events() -> impl Strategy<Value = Vec<(u32, u64, What<'static>)>> {
    let range = || (0u64..40, 1u64..12).prop_map(|(start, count)| pages(start, count));
    let what = prop_oneof![
        4 => (range(), 0u64..8, any::<bool>()).prop_map(|(pages, bits, populate)| What::Map {
            pages,
            rights: Rights::from_bits(bits),
            backing: Backing::Anonymous,
            populate,
            call: NO_CALL,
        }),
        3 => range().prop_map(|pages| What::Unmap { pages, call: NO_CALL }),
        2 => (range(), 0u64..8).prop_map(|(pages, bits)| What::Protect {
            pages,
            rights: Rights::from_bits(bits),
            call: NO_CALL
        }),
        1 => (range(), prop_oneof![Just(4u32), Just(20), Just(22), Just(23)])
            .prop_map(|(pages, advice)| What::Advise { pages, advice, call: NO_CALL }),
        1 => (range(), range()).prop_map(|(from, to)| What::Move { from, to, call: NO_CALL }),
        8 => (0u64..50, any::<bool>()).prop_map(|(page, write)| What::Fault { page, write }),
        1 => (0u64..9).prop_map(|ns| What::Sleep { ns }),
        1 => Just(What::Exec("other")),
        1 => Just(What::End),
        1 => (0u32..6).prop_map(What::Join),
        2 => (0u32..6, any::<bool>()).prop_map(|(by, shares)| start(by, shares)),
    ];
    list((0u32..6, 0u64..3, what), 0..120).prop_map(|drawn| {
        let mut events = vec![(0, 0, start(0, false))];
        let mut threads = 1;
        for (thread, ran, what) in drawn {
            match what {
                What::Start { by, shares, .. } => {
                    let by = by.min(threads);
                    events.push((threads, 0, start(by, shares)));
                    threads += 1;
                }
                What::Join(other) => events.push((thread % threads, ran, What::Join(other % threads))),
                what => events.push((thread % threads, ran, what)),
            }
        }
        events
    })
}

proptest! {
    #[test]
    fn any_recording_can_be_played_in_any_order(events in any_events(), orders in list(list(any::<u8>(), 64), 4)) {
        let plan = planned(&events);
        for order in orders {
            let mut at = 0;
            Model::new(&plan).play(|seats| {
                at += 1;
                // Long runs of one seat too.
                usize::from(order[at / 7 % order.len()]) % seats
            });
        }
    }

    #[test]
    fn threads_share_a_seat_only_one_after_another(events in any_events()) {
        let plan = planned(&events);
        let mut sitting = BTreeSet::new();
        let mut ended = BTreeSet::new();
        for (thread, _, what) in &events {
            match what {
                What::Start { .. } => {
                    prop_assert!(sitting.insert(plan.seats.of[*thread as usize]), "the seat is taken");
                }
                What::End if ended.insert(*thread) => {
                    sitting.remove(&plan.seats.of[*thread as usize]);
                }
                _ => {}
            }
        }
    }
}

#[test]
fn a_touch_waits_for_the_mapping_that_another_thread_made_and_an_unmap_for_the_touch() {
    let plan = planned(&[
        (0, 0, start(0, false)),
        (1, 0, start(0, true)),
        (0, 0, map(100, 4)),
        (1, 0, touch(101)),
        (0, 0, unmap(100, 4)),
    ]);
    assert_eq!(plan.lives[1].steps[0], Step::Await(Done { thread: 0, steps: 1 }));
    assert!(plan.lives[0].steps.contains(&Step::Await(Done { thread: 1, steps: 2 })));
    assert_eq!(plan.mended, 0);
}

#[test]
fn threads_that_work_on_pages_of_their_own_do_not_wait() {
    let mut events = vec![(0, 0, start(0, false)), (1, 0, start(0, true))];
    for round in 0..5 {
        for thread in 0..2 {
            let at = 100 * u64::from(thread) + round;
            events.extend([(thread, 5, map(at, 1)), (thread, 5, touch(at)), (thread, 5, unmap(at, 1))]);
        }
    }
    let plan = planned(&events);
    let waits =
        |life: &super::plan::Life| life.steps.iter().filter(|step| matches!(step, Step::Await(_))).count();
    // The last one to leave waits for the other.
    assert_eq!((waits(&plan.lives[0]), waits(&plan.lives[1])), (0, 1));
}

#[test]
fn a_join_takes_the_place_of_the_sleep_in_which_it_was_waited() {
    let plan = planned(&[
        (0, 0, start(0, false)),
        (1, 0, start(0, false)),
        (1, 7, What::End),
        (0, 3, What::Sleep { ns: 1000 }),
        (0, 0, What::Join(1)),
    ]);
    let steps = &plan.lives[0].steps;
    assert_eq!(steps[1..4], [Step::Run(3), Step::Run(0), Step::Await(Done { thread: 1, steps: 2 })]);
}

#[test]
fn pages_that_nobody_can_have_are_left_out_and_counted() {
    let file = Backing::Private { file: 0, offset: 5 };
    let far = Backing::Private { file: 0, offset: 1 << 40 };
    let rights = Rights::from_bits(3);
    let low = |start, count, backing| What::Map {
        pages: pages(start, count),
        rights,
        backing,
        populate: true,
        call: NO_CALL,
    };
    let last = MAPPABLE.end;
    let plan = planned(&[
        (0, 0, start(0, false)),
        (0, 0, What::File("/file")),
        // A null pointer, the last page, a map of which the first half lies below what can be mapped, one of which all does.
        (0, 0, touch(0)),
        (0, 0, touch(last)),
        (0, 0, low(14, 4, file)),
        (0, 0, low(0, 3, Backing::Anonymous)),
        // Nowhere to go to.
        (0, 0, What::Move { from: pages(16, 1), to: pages(3, 1), call: NO_CALL }),
        (0, 0, touch(20)),
        (0, 0, unmap(0, 18)),
        // Further in a file than files reach here.
        (0, 0, What::Map { pages: pages(99, 1), rights, backing: far, populate: false, call: NO_CALL }),
    ]);
    assert_eq!(plan.mended, 7, "two touches, three maps, a move, and a map for what is touched");
    assert_eq!(plan.files, [9]);
    let shows = Shows::File { file: 0, offset: 7, shared: false };
    let inside = Pages { start: 16, count: 2 };
    let steps = &plan.lives[0].steps;
    assert!(
        matches!(steps[0], Step::Map { pages, shows: s, .. } if pages == inside && s == shows),
        "{steps:?}"
    );
    assert_eq!(steps[1..3], [16, 17].map(|page| Step::Touch { page, write: true, count: 1 }));
    assert!(matches!(steps[3], Step::Map { pages: Pages { start: 18, count: 14 }, .. }), "{steps:?}");
    assert_eq!(steps[5], Step::Unmap { pages: inside });
}

#[test]
fn pages_that_come_at_once_come_up_to_a_gibibyte_and_what_does_not_is_counted() {
    for (count, touched, mended) in [(1 << 18, 1 << 18, 0), ((1 << 18) + 1, 1 << 18, 1)] {
        let (rights, backing) = (Rights::from_bits(3), Backing::Anonymous);
        let all = What::Map { pages: pages(1000, count), rights, backing, populate: true, call: NO_CALL };
        let plan = planned(&[(0, 0, start(0, false)), (0, 0, all)]);
        let touches = plan.lives[0].steps.iter().filter(|step| matches!(step, Step::Touch { .. }));
        assert_eq!((touches.count(), plan.mended), (touched, mended));
    }
}

#[test]
fn what_must_have_been_there_is_added_and_counted() {
    // A fault where nothing is known, a mapping over another one, a write without the right to.
    let plan = planned(&[
        (0, 0, start(0, false)),
        (0, 0, touch(100)),
        (0, 0, map(90, 20)),
        (0, 0, What::Protect { pages: pages(90, 1), rights: Rights::from_bits(0), call: NO_CALL }),
        (0, 0, touch(90)),
    ]);
    assert_eq!(plan.mended, 2);
    let steps = &plan.lives[0].steps;
    assert!(matches!(steps[0], Step::Map { pages: Pages { start: 96, count: 16 }, .. }), "{steps:?}");
    assert!(
        matches!(steps[2], Step::Unmap { pages: Pages { start: 96, count: 14 } }),
        "what lies under it: {steps:?}"
    );
}

#[test]
fn hours_in_which_nothing_happens_are_cut_and_the_order_of_sleeps_stays() {
    const SECOND: u64 = 1_000_000_000;
    let sleep = |seconds: u64| What::Sleep { ns: seconds * SECOND };
    let file = recorded_at(&[
        (0, 0, 0, start(0, false)),
        (0, 1, 0, start(0, true)),
        // Fifty seconds are nothing to cut; three hours are. The other thread slept through both.
        (50 * SECOND, 0, 0, sleep(50)),
        (10_850 * SECOND, 0, 10_800 * SECOND, sleep(5)),
        (10_851 * SECOND, 1, 0, sleep(10_851)),
        // As far as times go.
        (u64::MAX - 1, 0, u64::MAX, sleep(1)),
        (u64::MAX, 1, 0, What::Sleep { ns: u64::MAX }),
    ]);
    let plan = plan_of(&file);
    assert_eq!(plan.mended, 2);
    let times = |thread: usize| -> Vec<(u64, u64)> {
        let seconds = |step: &Step| match *step {
            Step::Sleep { ns, until, .. } => Some((ns / SECOND, until / SECOND)),
            Step::Run(ns) => Some((ns / SECOND, 0)),
            _ => None,
        };
        plan.lives[thread].steps.iter().filter_map(seconds).collect()
    };
    assert_eq!(times(0), [(50, 50), (60, 0), (5, 110), (60, 0), (1, 171)]);
    assert_eq!(times(1), [(60, 111), (60, 171)]);
}

#[test]
fn a_thread_sleeps_until_it_ran_first_if_times_are_known() {
    let call = Call { took: 30, stack: 0 };
    let events = [
        (0, 0, 0, start(0, false)),
        (100, 0, 10, touch(100)),
        (110, 1, 0, start(0, true)),
        (190, 1, 20, What::Unmap { pages: pages(100, 1), call }),
        // This one did something all the time.
        (200, 2, 0, start(0, true)),
        (300, 2, 40, What::Sleep { ns: 60 }),
    ];
    let firsts =
        |file: &[u8]| -> Vec<Step> { plan_of(file).lives.iter().map(|life| life.steps[0]).collect() };
    let slept = |ns, until, after| Step::Sleep { ns, since: until - ns, until, cpu: 0, after };
    // The second had the CPU after the first, which had slept, run, mapped what it touched, and touched it.
    let after = Some(Done { thread: 0, steps: 4 });
    let slept = [slept(90, 90, None), slept(30, 140, after), Step::Run(40)];
    assert_eq!(firsts(&recorded_as(&events, true)), slept);
    assert_eq!(firsts(&recorded_as(&events, false)), [10, 20, 40].map(Step::Run));
}

#[test]
fn a_thread_comes_back_to_its_cpu_after_whoever_had_it_and_what_it_ran_before_comes_first() {
    let file = recorded_at(&[
        (0, 0, 0, start(0, false)),
        (0, 1, 0, start(0, true)),
        (10, 0, 10, What::Name("one")),
        // It came when the first had run for 20 more; for 60 of 70 that one could have gone on.
        (35, 1, 0, What::Sleep { ns: 35 }),
        (90, 1, 55, What::Name("other")),
        (100, 0, 20, What::Sleep { ns: 10 }),
        (200, 1, 5, What::Sleep { ns: 105 }),
        // Another program had the CPU for 10 of the 50 of a call, which is told at its end.
        (300, 0, 0, What::Sleep { ns: 10 }),
        (300, 0, 3, What::Unmap { pages: pages(1, 1), call: Call { took: 40, stack: 0 } }),
    ]);
    let plan = plan_of(&file);
    let slept = |ns, (since, until), after: Option<(u32, u32)>| Step::Sleep {
        ns,
        since,
        until,
        cpu: 0,
        after: after.map(|(thread, steps)| Done { thread, steps }),
    };
    assert_eq!(
        plan.lives[0].steps[..5],
        [
            Step::Run(10),
            Step::Run(20),
            slept(10, (30, 100), Some((1, 3))),
            slept(10, (100, 260), Some((1, 4))),
            Step::Run(3),
        ]
    );
    assert_eq!(
        plan.lives[1].steps[..4],
        [slept(35, (0, 35), Some((0, 2))), Step::Run(55), Step::Run(5), slept(105, (95, 200), Some((0, 3))),]
    );
    assert!(
        plan.lives.iter().zip([[2, 3], [3, 4]]).all(|(life, awaited)| life.awaited.starts_with(&awaited))
    );
}

#[test]
fn requests_to_flush_that_a_thread_answered_while_it_ran_are_told_and_not_those_in_its_calls() {
    let shot = |at, victim| (at, 1, 0, What::Shootdown { victim: Victim::Thread(victim), pages: 1 });
    let file = recorded_at(&[
        (0, 0, 0, start(0, false)),
        (0, 1, 0, start(0, true)),
        shot(10, 0),
        shot(20, 0),
        shot(70, 0),
        (100, 0, 60, What::Unmap { pages: pages(1, 1), call: Call { took: 40, stack: 0 } }),
        (150, 0, 50, What::Name("later")),
        // While it was about to leave its CPU, and when it had.
        shot(155, 0),
        shot(170, 0),
        (190, 0, 10, What::Sleep { ns: 30 }),
        (200, 0, 10, What::End),
    ]);
    let steps = plan_of(&file).lives.remove(0).steps;
    let own: Vec<_> = steps
        .into_iter()
        .filter(|step| !matches!(step, Step::Sleep { .. } | Step::Await(_) | Step::Rest { .. }))
        .collect();
    let end = Step::End { ends: false, cut: false };
    let run = |answered, ns| [Step::Answered(answered), Step::Run(ns)];
    assert_eq!(own, [&run(2, 60)[..], &[Step::Run(50)], &run(1, 10), &[Step::Run(10), end]].concat());
}
