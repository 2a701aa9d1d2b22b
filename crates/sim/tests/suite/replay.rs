//! Recordings of threads and processes on the simulated machine: nothing fails, nothing stale is used, and what the
//! recording says decides who is interrupted.

use std::sync::Arc;

use proptest::collection::vec as list;
use proptest::prelude::*;
use quietmm_sim::{Report, Rule, RunSpec, Workload};
use quietmm_workloads::trace::recording::{
    About, Backing, Call, Event, Pages, RecordingEncoder, RecordingHeader, Rights, Shootdowns, Victim, What,
};

use crate::common::{Figures, machine, policy, run, spec};

type Did = (u32, u64, What<'static>);

const CALL: Call = Call { took: 0, stack: 0 };

fn recorded(events: &[Did]) -> Arc<[u8]> {
    let (mut body, mut encoder) = (Vec::new(), RecordingEncoder::new(2));
    for (at, &(thread, ran, what)) in events.iter().enumerate() {
        let event = Event { at: at as u64, thread, cpu: 0, ran, what };
        encoder.push(&event, &mut body).expect("a sound event");
    }
    finish(&encoder, body)
}

fn finish(encoder: &RecordingEncoder, body: Vec<u8>) -> Arc<[u8]> {
    let about = About {
        program: "test",
        command: "",
        method: "",
        faults: true,
        bounded: false,
        times: true,
        shootdowns: false,
        cpus: 2,
        duration: encoder.last(),
        lost: 0,
        received: Shootdowns::default(),
    };
    let mut file = Vec::new();
    RecordingHeader { about, sums: encoder.finish() }.encode(&mut file).expect("short texts");
    file.extend(body);
    file.into()
}

fn replay(events: &[Did], cpus: u32) -> RunSpec {
    let machine = machine("uma-8").with_cpus(cpus).expect("a machine");
    RunSpec { machine, trace: Some(recorded(events)), ..spec(Workload::Replay) }
}

fn sound(report: &Report) {
    for key in ["stale_accesses", "lost_writes", "wrong_contents"] {
        assert_eq!(report.count(key), 0, "{key}: {:#?}", report.stories);
    }
}

fn pages(start: u64, count: u64) -> Pages {
    Pages::new(start, count).expect("pages")
}

fn start(by: u32, shares: bool) -> What<'static> {
    What::Start { by, shares, call: CALL }
}

fn map(start: u64, count: u64) -> What<'static> {
    let (pages, rights) = (pages(start, count), Rights::from_bits(3));
    What::Map { pages, rights, backing: Backing::Anonymous, populate: false, call: CALL }
}

fn touch(page: u64) -> What<'static> {
    What::Fault { page, write: true }
}

/// Thread 0 maps and unmaps while others run in its space, or in spaces of their own.
fn unmaps(others: u32, shares: bool, rounds: u64) -> Vec<Did> {
    let mut events = vec![(0, 0, start(0, false))];
    events.extend((1..=others).map(|other| (other, 0, start(0, shares))));
    for round in 0..rounds {
        let at = 1000 + 16 * round;
        events.extend([
            (0, 50_000, map(at, 4)),
            (0, 50_000, touch(at)),
            (0, 50_000, What::Unmap { pages: pages(at, 4), call: CALL }),
        ]);
    }
    let busy = 150_000 * rounds + 1_000_000;
    events.extend((1..=others).map(|other| (other, busy, What::End)));
    events
}

#[test]
fn an_unmap_interrupts_the_threads_that_share_the_space_and_no_others() {
    let received = |others, shares| {
        let report = run(&replay(&unmaps(others, shares, 100), 4));
        sound(&report);
        report.count("nr_tlb_remote_flush_received")
    };
    assert_eq!(received(0, true), 0, "a thread alone");
    let (three, one) = (received(3, true), received(1, true));
    assert!((300..330).contains(&three), "three others each time: {three}");
    assert!((100..120).contains(&one), "one other each time: {one}");
    // Each fork copies a space in which only its own threads run.
    assert!(received(3, false) < 20, "processes");
}

#[test]
fn more_threads_than_cpus_share_them_and_fewer_spread() {
    let busy = |threads: u32, cpus| {
        let mut events = vec![(0, 0, start(0, false))];
        events.extend((1..threads).map(|thread| (thread, 0, start(0, true))));
        events.extend((0..threads).map(|thread| (thread, 20_000_000, What::End)));
        run(&replay(&events, cpus)).figure("elapsed_s")
    };
    let (crowded, exact, roomy) = (busy(8, 2), busy(4, 4), busy(4, 8));
    assert!((0.08..0.09).contains(&crowded), "8 threads of 20 ms on 2 CPUs: {crowded}");
    assert!((0.02..0.022).contains(&exact) && (0.02..0.022).contains(&roomy), "{exact} {roomy}");
}

/// Events with the nanosecond and the CPU of each.
fn recorded_at(events: &[(u64, u16, Did)]) -> Arc<[u8]> {
    let (mut body, mut encoder) = (Vec::new(), RecordingEncoder::new(2));
    for &(at, cpu, (thread, ran, what)) in events {
        encoder.push(&Event { at, thread, cpu, ran, what }, &mut body).expect("a sound event");
    }
    finish(&encoder, body)
}

#[test]
fn who_slept_at_the_same_time_does_so_again() {
    const MS: u64 = 1_000_000;
    // Two threads: in each round one works for a millisecond and gives memory back while the other sleeps. Nobody is interrupted. In the
    // control the other one works all the time.
    let received = |sleeps: bool| {
        let mut events = vec![(0, 0, (0, 0, start(0, false))), (0, 1, (1, 0, start(0, true)))];
        for round in 0..50 {
            let at = 1000 + 16 * round;
            let began = 2 * MS * round;
            // It takes longer each round than it did: if the other did not wait for as long, they would meet.
            events.extend([
                (began + MS / 2, 0, (0, MS / 2 + MS / 20, map(at, 4))),
                (began + MS / 2, 0, (0, 0, touch(at))),
                (began + MS, 0, (0, MS / 2, What::Advise { pages: pages(at, 4), advice: 4, call: CALL })),
            ]);
            if sleeps {
                events.push((began + 3 * MS / 2, 1, (1, 0, What::Sleep { ns: 3 * MS / 2 })));
            }
            let ran = if sleeps { MS / 2 } else { 2 * MS + MS / 20 };
            events.push((began + 2 * MS, 1, (1, ran, What::Name("other"))));
            events.push((began + 2 * MS, 0, (0, 0, What::Sleep { ns: MS })));
        }
        let machine = machine("uma-8").with_cpus(2).expect("a machine");
        let report = run(&RunSpec { machine, trace: Some(recorded_at(&events)), ..spec(Workload::Replay) });
        sound(&report);
        report.count("nr_tlb_remote_flush_received")
    };
    let (apart, together) = (received(true), received(false));
    assert!(apart <= 2, "{apart} times");
    assert!(together >= 45, "{together} times");
}

#[test]
fn threads_run_on_the_cpus_on_which_they_ran_if_there_are_as_many() {
    const MS: u64 = 1_000_000;
    let elapsed = |cpus_of: [u16; 2], cpus| {
        let mut events = vec![(0, 0, (0, 0, start(0, false))), (0, 0, (1, 0, start(0, true)))];
        for round in 0..10 {
            for (thread, cpu) in [(0, cpus_of[0]), (1, cpus_of[1])] {
                events.push(((round + 1) * MS, cpu, (thread, MS, What::Name("thread"))));
                events.push(((round + 1) * MS, cpu, (thread, 0, What::Sleep { ns: 1 })));
            }
        }
        let machine = machine("uma-8").with_cpus(cpus).expect("a machine");
        let spec = RunSpec { machine, trace: Some(recorded_at(&events)), ..spec(Workload::Replay) };
        run(&spec).figure("elapsed_s")
    };
    // Taken to another CPU without a sleep.
    let taken = |cpu: u16| {
        let mut events = vec![(0, 0, (0, 0, start(0, false))), (0, 0, (1, 0, start(0, true)))];
        events.extend([0, 1].map(|thread| (1, 0, (thread, 0, What::Name("thread")))));
        events.extend(
            [(0, 0), (1, cpu)].map(|(thread, cpu)| (10 * MS, cpu, (thread, 10 * MS, What::Name("later")))),
        );
        // Somebody is on the other CPU, so that it is known where threads ran.
        events.push((10 * MS, 1, (1, 0, What::Name("last"))));
        let machine = machine("uma-8").with_cpus(2).expect("a machine");
        run(&RunSpec { machine, trace: Some(recorded_at(&events)), ..spec(Workload::Replay) })
            .figure("elapsed_s")
    };
    let (stayed, went) = (taken(0), taken(1));
    assert!((0.02..0.022).contains(&stayed) && (0.01..0.011).contains(&went), "{stayed} {went}");
    let (both, one, other) = (elapsed([0, 1], 2), elapsed([1, 1], 2), elapsed([1, 1], 4));
    assert!((0.01..0.011).contains(&both), "each on its own: {both}");
    assert!((0.018..0.022).contains(&one), "both on one: {one}");
    assert!((0.01..0.011).contains(&other), "on another machine they find a place: {other}");
}

#[test]
fn threads_have_their_cpu_in_the_order_in_which_they_had_it_however_long_they_take() {
    const MS: u64 = 1_000_000;
    const SWITCH: u64 = 3000;
    // On one CPU two threads that always have something to do have it for 10 ms each, in turn; the second lives in a space of its own. On the other
    // CPU somebody gives memory back while one of them runs: that interrupts the first, and not the second. The first one's ten calls took no time, and
    // take 2 ms here: all others are as much later, and nobody has the CPU before it has done them.
    let replayed = |while_first: bool| {
        let drop = |page| What::Advise { pages: pages(page, 1), advice: 4, call: CALL };
        let mut events = vec![
            (0, 0, (0, 0, start(0, false))),
            (0, 1, (1, 0, start(0, true))),
            (0, 1, (2, 0, start(0, false))),
            (0, 0, (0, 0, map(1000, 400))),
            (1, 1, (1, 1, What::Name("first"))),
        ];
        let turn = 10 * MS - SWITCH;
        for round in 0..20 {
            let began = 20 * MS * round;
            let gives = began + if while_first { 4 } else { 14 } * MS;
            if round > 0 {
                events.push((began, 1, (1, 5 * MS - SWITCH, What::Sleep { ns: SWITCH })));
            }
            events.extend(
                (0..10).map(|nth| (began + 5 * MS, 1, (1, if nth == 0 { 5 * MS } else { 0 }, drop(1399)))),
            );
            events.push((
                began + 10 * MS,
                1,
                (2, if round > 0 { turn } else { 0 }, What::Sleep { ns: SWITCH }),
            ));
            events.push((gives, 0, (0, 0, What::Sleep { ns: 20 * MS })));
            let dropped = (1000 + 16 * round..).take(8).flat_map(|page| [touch(page), drop(page)]);
            events.extend(dropped.map(|what| (gives, 0, (0, 0, what))));
        }
        events.push((400 * MS, 1, (2, turn, What::End)));
        events.push((400 * MS, 1, (1, 5 * MS - SWITCH, What::End)));
        events.sort_by_key(|&(at, ..)| at);
        let mut machine = machine("uma-8").with_cpus(2).expect("a machine");
        machine.cost.syscall = MS / 5 * 1000;
        let report = run(&RunSpec { machine, trace: Some(recorded_at(&events)), ..spec(Workload::Replay) });
        sound(&report);
        (report.count("nr_tlb_remote_flush_received"), report.figure("elapsed_s"))
    };
    let ((first, later), (second, _)) = (replayed(true), replayed(false));
    assert!((150..=162).contains(&first) && second <= 4, "{first} {second}");
    assert!((0.436..0.445).contains(&later), "{later}");
}

#[test]
fn interrupts_are_a_part_of_the_recorded_time() {
    const MS: u64 = 1_000_000;
    // A tick takes a quarter of the time, and a request to flush a fifth of a millisecond of whom it interrupts: so they did when it was recorded.
    let elapsed = |shot: bool, policies: &str| {
        let mut machine = machine("uma-8").with_cpus(2).expect("a machine");
        (machine.cost.tick_work, machine.cost.irq_work) = (MS * 1000, MS / 5 * 1000);
        let mut events = vec![
            (0, 0, (0, 0, start(0, false))),
            (0, 1, (1, 0, start(0, true))),
            (0, 0, (0, 0, map(1000, 100))),
        ];
        for page in 0..50 {
            let at = 2 * MS * (page + 1);
            let read = What::Fault { page: 1000 + page, write: false };
            events.extend([(at, 0, (0, 2 * MS, read)), (at, 0, (0, 0, touch(1000 + page)))]);
            if shot {
                events.push((at + 1, 1, (0, 0, What::Shootdown { victim: Victim::Thread(1), pages: 1 })));
            }
        }
        // The other one is there for longer.
        events.push((110 * MS, 0, (0, 9 * MS, What::End)));
        events.push((200 * MS, 1, (1, 200 * MS, What::End)));
        let spec = RunSpec {
            machine,
            trace: Some(recorded_at(&events)),
            policy: policy(policies),
            ..spec(Workload::Replay)
        };
        let report = run(&spec);
        sound(&report);
        (report.count("nr_tlb_remote_flush_received"), report.figure("elapsed_s"))
    };
    let (some, as_recorded) = elapsed(true, "linux");
    let (none, without) = elapsed(true, "linux+unmap=quiet");
    let (more, with) = elapsed(false, "linux");
    assert!(some >= 45 && none <= 1 && more >= 45, "{some} {none} {more}");
    assert!((0.199..0.202).contains(&as_recorded), "{as_recorded}");
    assert!((0.188..0.192).contains(&without) && (0.209..0.213).contains(&with), "{without} {with}");
}

#[test]
fn the_first_write_to_a_page_of_a_file_that_came_with_another_interrupts() {
    const MS: u64 = 1_000_000;
    let counts = |write: u64, policies: &str| {
        let file = What::Map {
            pages: pages(1008, 32),
            rights: Rights::from_bits(3),
            backing: Backing::Private { file: 0, offset: 0 },
            populate: false,
            call: CALL,
        };
        let events = [
            (0, 0, (0, 0, start(0, false))),
            (0, 1, (1, 0, start(0, true))),
            (0, 0, (0, 0, What::File("file"))),
            (0, 0, (0, 0, file)),
            (MS, 0, (0, MS, What::Fault { page: 1010, write: false })),
            (2 * MS, 0, (0, MS, touch(write))),
            (9 * MS, 1, (1, 9 * MS, What::End)),
        ];
        let machine = machine("uma-8").with_cpus(2).expect("a machine");
        let trace = Some(recorded_at(&events));
        let report = run(&RunSpec { machine, trace, policy: policy(policies), ..spec(Workload::Replay) });
        sound(&report);
        let counted = report.metrics.iter().any(|metric| metric.key == "trace_around_replaced");
        (report.count("nr_tlb_remote_flush_received"), counted.then(|| report.count("trace_around_replaced")))
    };
    // The end of the space interrupts, too.
    assert_eq!(counts(1011, "linux"), (2, Some(1)));
    assert_eq!(counts(1024, "linux"), (1, Some(0)), "too far away");
    assert_eq!(counts(1010, "linux"), (2, Some(0)), "that one the core has, too");
    assert_eq!(counts(1011, "linux+unmap=quiet"), (1, None));
}

#[test]
fn a_call_that_found_nothing_and_ended_while_another_was_under_way_interrupts_as_on_linux() {
    const MS: u64 = 1_000_000;
    let counts = |took: u64, policies: &str| {
        let mut events = vec![
            (0, 0, (0, 0, start(0, false))),
            (0, 1, (1, 0, start(0, true))),
            (0, 0, (0, 0, map(1000, 8))),
        ];
        // Each tells the kernel to drop what is not there, and the first one's call ends before the other one's.
        for round in 1..=20 {
            let drop = |start, took| What::Advise {
                pages: pages(start, 4),
                advice: 4,
                call: Call { took, stack: 0 },
            };
            events.push((round * MS, 0, (0, MS, drop(1000, 1000))));
            events.push((round * MS + 1000, 1, (1, MS, drop(1004, took))));
        }
        let machine = machine("uma-8").with_cpus(2).expect("a machine");
        let trace = Some(recorded_at(&events));
        let report = run(&RunSpec { machine, trace, policy: policy(policies), ..spec(Workload::Replay) });
        sound(&report);
        let counted = report.metrics.iter().any(|metric| metric.key == "trace_nested_flushes");
        (report.count("nr_tlb_remote_flush_received"), counted.then(|| report.count("trace_nested_flushes")))
    };
    let (overlapping, apart) = (counts(1500, "linux"), counts(500, "linux"));
    assert!(overlapping.0 >= 19 && overlapping.1 == Some(20), "{overlapping:?}");
    assert!(apart.0 <= 1 && apart.1 == Some(0), "{apart:?}");
    let quiet = counts(1500, "linux+unmap=quiet");
    assert!(quiet.0 <= 1 && quiet.1.is_none(), "{quiet:?}");
}

#[test]
fn pages_that_are_said_to_be_cold_are_flushed_as_on_linux() {
    const MS: u64 = 1_000_000;
    let counts = |advice: u32, policies: &str| {
        let mut events = vec![
            (0, 0, (0, 0, start(0, false))),
            (0, 1, (1, 0, start(0, true))),
            (0, 0, (0, 0, map(1000, 8))),
            (0, 0, (0, 0, touch(1001))),
            (20 * MS, 1, (1, 20 * MS, What::End)),
        ];
        let says = |round| What::Advise { pages: pages(1000 + round % 2 * 4, 4), advice, call: CALL };
        events.extend((1..=10).map(|round| (round * MS, 0, (0, MS, says(round)))));
        // What was cold is touched again now and then, with no fault of this core's.
        events.extend([3, 7].map(|round| (round * MS + 1000, 0, (0, 1000, touch(1001)))));
        events.sort_by_key(|event| event.0);
        let machine = machine("uma-8").with_cpus(2).expect("a machine");
        let trace = Some(recorded_at(&events));
        let report = run(&RunSpec { machine, trace, policy: policy(policies), ..spec(Workload::Replay) });
        sound(&report);
        let counted = report.metrics.iter().any(|metric| metric.key == "trace_aged_flushes");
        (report.count("nr_tlb_remote_flush_received"), counted.then(|| report.count("trace_aged_flushes")))
    };
    // Half of the calls are about the page, and three find it used; the end of the space interrupts, too.
    let (cold, will_need) = (counts(20, "linux"), counts(3, "linux"));
    assert!((3..=4).contains(&cold.0) && cold.1 == Some(3), "{cold:?}");
    assert!(will_need.0 <= 1 && will_need.1 == Some(0), "{will_need:?}");
    let quiet = counts(20, "linux+unmap=quiet");
    assert!(quiet.0 <= 1 && quiet.1.is_none(), "{quiet:?}");
}

#[test]
fn who_interrupts_another_cpu_was_not_on_it() {
    const MS: u64 = 1_000_000;
    // Each on a CPU of its own, and one gives a page back every tenth of a millisecond. Were it taken to the CPU that it interrupts, which the
    // event names, it would meet nobody on its own.
    let mut events = vec![(0, 0, (0, 0, start(0, false))), (0, 1, (1, 0, start(0, true)))];
    events.push((1, 0, (0, 0, map(1000, 100))));
    events.push((1, 1, (1, 0, What::Name("other"))));
    for page in 0..100 {
        let (at, there) = (MS / 10 * (page + 1), pages(1000 + page, 1));
        events.extend([
            (at, 0, (0, MS / 10, touch(1000 + page))),
            (at, 0, (0, 0, What::Advise { pages: there, advice: 4, call: CALL })),
            (at, 1, (0, 0, What::Shootdown { victim: Victim::Thread(1), pages: 1 })),
            (at, 1, (0, 0, What::Lost { count: 1 })),
        ]);
    }
    events.push((10 * MS, 1, (1, 10 * MS, What::End)));
    let machine = machine("uma-8").with_cpus(2).expect("a machine");
    let report = run(&RunSpec { machine, trace: Some(recorded_at(&events)), ..spec(Workload::Replay) });
    sound(&report);
    let (received, elapsed) = (report.count("nr_tlb_remote_flush_received"), report.figure("elapsed_s"));
    assert!((95..=100).contains(&received), "{received} times");
    assert!((0.01..0.012).contains(&elapsed), "{elapsed}");
}

#[test]
fn a_thread_that_ends_leaves_its_space_on_its_cpu_and_one_whose_recording_ends_does_not() {
    const MS: u64 = 1_000_000;
    let received = |events: &[(u64, u16, Did)]| {
        let machine = machine("uma-8").with_cpus(2).expect("a machine");
        let report = run(&RunSpec { machine, trace: Some(recorded_at(events)), ..spec(Workload::Replay) });
        sound(&report);
        report.count("nr_tlb_remote_flush_received")
    };
    let began = [
        (0, 0, (0, 0, start(0, false))),
        (0, 1, (1, 0, start(0, true))),
        (0, 0, (0, 0, map(1024, 512))),
        (MS, 0, (0, MS, touch(1024))),
        (MS, 1, (1, MS, touch(1025))),
    ];
    // A range goes with its page tables, and whoever still has the space must know. Then nobody has it.
    let drops = [
        (2 * MS, 1, (1, 0, What::End)),
        (9 * MS, 0, (0, 0, What::Sleep { ns: 8 * MS })),
        (9 * MS, 0, (0, 0, What::Unmap { pages: pages(1024, 512), call: CALL })),
        (9 * MS, 0, (0, 0, What::End)),
    ];
    assert_eq!(received(&[&began[..], &drops[..]].concat()), 1);
    // The space goes with all of its tables.
    let ends = [
        (2 * MS, 0, (0, 0, What::End)),
        (9 * MS, 1, (1, 0, What::Sleep { ns: 8 * MS })),
        (9 * MS, 1, (1, 0, What::End)),
    ];
    assert_eq!(received(&[&began[..], &ends[..]].concat()), 1);
    assert_eq!(received(&began), 0);
}

/// An idle CPU answers a request to flush sooner than it is there for a task, where a machine says so.
#[test]
fn who_interrupts_an_idle_cpu_waits_until_it_answers_and_whoever_sleeps_until_it_is_awake() {
    const MS: u64 = 1_000_000;
    let elapsed = |task: u64, events: &[(u64, u16, Did)]| {
        let mut machine = machine("uma-8").with_cpus(2).expect("a machine");
        (machine.cost.idle_wake, machine.cost.idle_task) = (4 * MS * 1000, task * 1000);
        let report = run(&RunSpec { machine, trace: Some(recorded_at(events)), ..spec(Workload::Replay) });
        sound(&report);
        report.figure("elapsed_s")
    };
    let flush = [
        (0, 0, (0, 0, start(0, false))),
        (0, 1, (1, 0, start(0, true))),
        (0, 0, (0, 0, map(1024, 512))),
        (MS, 0, (0, MS, touch(1024))),
        (MS, 1, (1, MS, touch(1025))),
        (2 * MS, 1, (1, 0, What::End)),
        (30 * MS, 0, (0, 29 * MS, What::Unmap { pages: pages(1024, 512), call: CALL })),
        (30 * MS, 0, (0, 0, What::End)),
    ];
    let (awake, answers) = (elapsed(0, &flush), elapsed(3 * MS, &flush));
    assert!((0.034..0.0341).contains(&awake) && (0.031..0.0311).contains(&answers), "{awake} {answers}");
    // A child runs where nobody did: two wait for an idle CPU to wake, and a flush interrupts one when the space ends.
    let child = [
        (0, 0, (0, 0, start(0, false))),
        (MS, 0, (0, MS, What::Name("parent"))),
        (MS, 1, (1, 0, start(0, true))),
        (2 * MS, 1, (1, MS, What::End)),
        (2 * MS, 0, (0, MS, What::End)),
    ];
    let (awake, answers) = (elapsed(0, &child), elapsed(3 * MS, &child));
    assert!((0.014..0.0141).contains(&awake) && (0.011..0.0111).contains(&answers), "{awake} {answers}");
}

/// Linux keeps a CPU in the mask of a space that it has left, until a flush finds it gone. That is counted, and nobody is interrupted for it.
#[test]
fn a_cpu_that_has_left_is_one_that_linux_asks_once_more() {
    const MS: u64 = 1_000_000;
    let counts = |events: &[(u64, u16, Did)], policies: &str| {
        let machine = machine("uma-8").with_cpus(2).expect("a machine");
        let trace = Some(recorded_at(events));
        let report = run(&RunSpec { machine, trace, policy: policy(policies), ..spec(Workload::Replay) });
        sound(&report);
        let counts = report.metrics.iter().any(|metric| metric.key == "trace_left_asked");
        (report.count("nr_tlb_remote_flush_received"), counts.then(|| report.count("trace_left_asked")))
    };
    let began = [
        (0, 0, (0, 0, start(0, false))),
        (0, 1, (1, 0, start(0, true))),
        (0, 1, (2, 0, start(0, false))),
        (0, 0, (0, 0, map(1024, 2048))),
        (MS, 0, (0, MS, touch(1024))),
        (MS, 1, (1, MS, touch(1536))),
        (2 * MS, 1, (1, 0, What::End)),
    ];
    // Each 2 MiB goes with its page table.
    let drops = |at: u64, start: u64| {
        [
            (at, 0, (0, 0, What::Sleep { ns: MS })),
            (at, 0, (0, 0, touch(start))),
            (at, 0, (0, 0, What::Unmap { pages: pages(start, 512), call: CALL })),
        ]
    };
    let thrice = [&began[..], &drops(9 * MS, 1024), &drops(10 * MS, 1536), &drops(11 * MS, 2048)].concat();
    // The first finds that CPU lazy, and has it let go of the space; the second finds it gone; the third knows.
    assert_eq!(counts(&thrice, "linux"), (1, Some(1)));
    assert_eq!(counts(&thrice, "linux+unmap=quiet").1, None, "only where all that Linux flushes is");
    // Another program went on there.
    let other = [(8 * MS, 1, (2, 6 * MS, What::Name("other")))];
    let gone = [&began[..], &other, &drops(9 * MS, 1024), &drops(10 * MS, 1536)].concat();
    assert_eq!(counts(&gone, "linux"), (0, Some(1)));
}

#[test]
fn who_wakes_too_early_because_its_cpu_had_something_to_do_sleeps_on() {
    const MS: u64 = 1_000_000;
    // A CPU that has nothing to do takes 4 ms to wake. The first one has something to do when thread 0 is to wake, and the thread gives memory back then: to the
    // other one's CPU it means nothing by then.
    let received = |sleeps: u64| {
        let mut machine = machine("uma-8").with_cpus(2).expect("a machine");
        machine.cost.idle_wake = 4 * MS * 1000;
        let mut events = [
            (0, 0, (0, 0, start(0, false))),
            (0, 0, (1, 0, start(0, true))),
            (0, 1, (2, 0, start(0, true))),
            (0, 0, (0, 0, map(1000, 1))),
            (0, 0, (0, 0, touch(1000))),
            (29 * MS, 1, (2, 29 * MS, What::Name("other"))),
            (sleeps, 0, (0, 0, What::Sleep { ns: sleeps })),
            (sleeps, 0, (0, 0, What::Advise { pages: pages(1000, 1), advice: 4, call: CALL })),
            (sleeps + 1, 0, (0, 0, What::End)),
            (60 * MS, 0, (1, 60 * MS, What::End)),
            (60 * MS, 1, (2, 0, What::Sleep { ns: 31 * MS })),
        ];
        events.sort_by_key(|&(at, ..)| at);
        let report = run(&RunSpec { machine, trace: Some(recorded_at(&events)), ..spec(Workload::Replay) });
        sound(&report);
        report.count("nr_tlb_remote_flush_received")
    };
    assert_eq!(received(25 * MS), received(31 * MS) + 1);
}

#[test]
fn a_flush_for_a_page_of_zeros_is_wholly_a_part_of_the_recorded_time() {
    const MS: u64 = 1_000_000;
    let elapsed = |interrupt: u64| {
        let mut machine = machine("uma-8").with_cpus(2).expect("a machine");
        machine.cost.ipi_flight_local = interrupt * 1000;
        let mut events = vec![
            (0, 0, (0, 0, start(0, false))),
            (0, 1, (1, 0, start(0, true))),
            (0, 0, (0, 0, map(1000, 50))),
        ];
        for round in 1..=50 {
            let page = 1000 + round - 1;
            events.push((round * MS, 0, (0, MS, What::Fault { page, write: false })));
            events.push((round * MS, 0, (0, 0, touch(page))));
        }
        events.push((50 * MS, 1, (1, 50 * MS, What::End)));
        events.push((100 * MS, 0, (0, 50 * MS, What::End)));
        let report = run(&RunSpec { machine, trace: Some(recorded_at(&events)), ..spec(Workload::Replay) });
        assert!(report.count("nr_tlb_remote_flush_received") >= 45);
        report.figure("elapsed_s")
    };
    let (quick, slow) = (elapsed(0), elapsed(MS / 10));
    assert!((0.1..0.101).contains(&quick) && (quick..quick + 0.002).contains(&slow), "{quick} {slow}");
}

#[test]
fn a_call_takes_as_long_as_it_was_recorded_to_but_for_what_it_asks_of_others() {
    const US: u64 = 1000;
    // A thread unmaps a page a hundred times. Another one runs beside it until then, and was interrupted each time, or ran before it.
    let elapsed = |took: u64, beside: bool, told: bool| {
        let call = Call { took, stack: 0 };
        let mut events = vec![(0, 0, (0, 0, start(0, false))), (0, 1, (1, 0, start(0, true)))];
        for at in (0..100).map(|round| 1000 + round * 110 * US) {
            events.push((at, 0, (0, 0, map(100, 1))));
            events.push((at + 10 * US, 0, (0, 10 * US, touch(100))));
            if told {
                let shot = What::Shootdown { victim: Victim::Thread(1), pages: 1 };
                events.push((at + 50 * US, 1, (0, 0, shot)));
            }
            events.push((at + 110 * US, 0, (0, 0, What::Unmap { pages: pages(100, 1), call })));
        }
        events.push((11_100 * US, 0, (0, 0, What::End)));
        let ran = if beside { 10_700 * US } else { 1 };
        events.push((ran + 1, 1, (1, ran, What::End)));
        events.sort_by_key(|event| event.0);
        let machine = machine("uma-8").with_cpus(2).expect("a machine");
        let trace = Some(recorded_at(&events));
        let report = run(&RunSpec { machine, trace, ..spec(Workload::Replay) });
        sound(&report);
        (report.count("nr_tlb_remote_flush_received"), report.figure("elapsed_s") * 1e3)
    };
    let close = |ms: f64, to: f64| (to..to + 0.1).contains(&ms);
    let (none, alone) = elapsed(100 * US, false, false);
    let (_, untimed) = elapsed(0, false, false);
    assert!(none <= 1 && close(alone, 11.0) && untimed < 1.5, "{none}: {alone} {untimed}");
    // Beside another one it asks, which was a part of the recorded time if it asked then too.
    let (first, asked) = elapsed(100 * US, true, true);
    let (second, more) = elapsed(100 * US, true, false);
    assert!(first >= 95 && second >= 95, "{first} {second}");
    assert!(close(asked, 11.0) && close(more - asked, 0.03), "{asked} {more}");
}

#[test]
fn who_was_woken_when_another_had_done_its_work_sleeps_until_that_is_done() {
    const US: u64 = 1000;
    const MS: u64 = 1000 * US;
    let mut events = vec![(0, 0, (0, 0, start(0, false))), (0, 1, (1, 0, start(0, true)))];
    events.push((1, 1, (1, 1, What::Name("sleeps"))));
    // A microsecond for what takes more here.
    for at in (10..60).map(|us| us * US) {
        let parts = [map(100, 1), touch(100), What::Unmap { pages: pages(100, 1), call: CALL }];
        events.extend(parts.map(|what| (at, 0, (0, 0, what))));
    }
    events.push((100 * US, 1, (1, 0, What::Sleep { ns: 100 * US - 1 })));
    events.push((5 * MS, 1, (1, 4 * MS, What::End)));
    events.push((5 * MS, 0, (0, 0, What::End)));
    let mut machine = machine("uma-8").with_cpus(2).expect("a machine");
    machine.cost.idle_wake = 0;
    let report = run(&RunSpec { machine, trace: Some(recorded_at(&events)), ..spec(Workload::Replay) });
    sound(&report);
    // Some while it begins, and none of those that are still to come when it would have woken.
    let received = report.count("nr_tlb_remote_flush_received");
    assert!(received < 10, "{received}");
}

#[test]
fn a_thread_begins_when_it_began_and_wakes_when_it_woke() {
    const MS: u64 = 1_000_000;
    let elapsed = |events: &[(u64, u16, Did)], idle_wake: u64| {
        let mut machine = machine("uma-8").with_cpus(2).expect("a machine");
        machine.cost.idle_wake = idle_wake * 1000;
        run(&RunSpec { machine, trace: Some(recorded_at(events)), ..spec(Workload::Replay) })
            .figure("elapsed_s")
    };
    // The program was there before its recorder was, and did nothing.
    let late = [(0, 0, (0, 0, start(0, false))), (30 * MS, 0, (0, MS, What::End))];
    let (quick, slow) = (elapsed(&late, 0), elapsed(&late, MS / 4));
    assert!((0.03..0.0301).contains(&quick) && (0.03..0.0301).contains(&slow), "{quick} {slow}");
    // A CPU that has nothing to do takes a quarter of a millisecond to wake, and did so in the recording too.
    let mut sleeps = vec![(0, 0, (0, 0, start(0, false)))];
    for round in 1..=100 {
        sleeps.push((round * MS, 0, (0, MS / 4, What::Sleep { ns: MS / 4 * 3 })));
    }
    let (quick, slow) = (elapsed(&sleeps, 0), elapsed(&sleeps, MS / 4));
    assert!((0.1..0.101).contains(&quick) && (0.1..0.101).contains(&slow), "{quick} {slow}");
    // A sleep that is shorter than that ends when the CPU is awake.
    let mut short = vec![(0, 0, (0, 0, start(0, false)))];
    for round in 1..=100 {
        short.push((round * MS / 2, 0, (0, MS / 10 * 4, What::Sleep { ns: MS / 10 })));
    }
    let (quick, slow) = (elapsed(&short, 0), elapsed(&short, MS / 4));
    assert!((0.05..0.051).contains(&quick) && (0.064..0.067).contains(&slow), "{quick} {slow}");
    // So does one that was taken to another CPU which had nothing to do.
    let mut taken = vec![(0, 0, (0, 0, start(0, false)))];
    for round in 1..=100 {
        taken.push((round * MS, (round % 2) as u16, (0, MS, What::Name("elsewhere"))));
    }
    let (quick, slow) = (elapsed(&taken, 0), elapsed(&taken, MS / 8));
    assert!((0.1..0.101).contains(&quick) && (0.1..0.101).contains(&slow), "{quick} {slow}");
}

#[test]
fn whoever_sleeps_as_its_first_act_does_not_begin_when_it_wakes() {
    const MS: u64 = 1_000_000;
    // It is made, runs for a moment and sleeps until the other one, whose CPU it then has, has ended; all that is known of it is from then.
    let events = [
        (0, 0, (0, 0, start(0, false))),
        (0, 0, (1, 0, start(0, true))),
        (MS, 1, (0, MS, What::Name("works"))),
        (20 * MS, 1, (0, 19 * MS, What::End)),
        (21 * MS, 1, (1, MS / 10, What::Sleep { ns: 20 * MS })),
        (21 * MS, 1, (1, 0, What::End)),
    ];
    let machine = machine("uma-8").with_cpus(2).expect("a machine");
    let report = run(&RunSpec { machine, trace: Some(recorded_at(&events)), ..spec(Workload::Replay) });
    let elapsed = report.figure("elapsed_s");
    assert!((0.021..0.0212).contains(&elapsed), "{elapsed}");
}

#[test]
fn a_sleep_lasts_as_long_and_a_join_as_long_as_it_must() {
    let slept = [(0, 0, start(0, false)), (0, 1_000_000, What::Sleep { ns: 30_000_000 })];
    let elapsed = run(&replay(&slept, 2)).figure("elapsed_s");
    assert!((0.031..0.032).contains(&elapsed), "{elapsed}");
    // It slept for 30 ms because it waited for a child that runs for 5 here.
    let joined = [
        (0, 0, start(0, false)),
        (1, 0, start(0, false)),
        (1, 5_000_000, What::End),
        (0, 0, What::Sleep { ns: 30_000_000 }),
        (0, 0, What::Join(1)),
    ];
    let elapsed = run(&replay(&joined, 2)).figure("elapsed_s");
    assert!((0.005..0.006).contains(&elapsed), "{elapsed}");
}

#[test]
fn a_replay_with_a_flush_left_out_is_caught() {
    // One thread uses a page, the other drops it, and the first uses it again: by what its TLB has, if nobody flushed.
    let mut events = vec![(0, 0, start(0, false)), (1, 0, start(0, true)), (0, 0, map(1000, 100))];
    for page in 1000..1100 {
        let drop = What::Advise { pages: pages(page, 1), advice: 4, call: CALL };
        let read = What::Access { page, reads: 10, writes: 0 };
        events.extend([(1, 0, touch(page)), (0, 0, drop), (1, 0, read)]);
    }
    let whole = replay(&events, 2);
    sound(&run(&whole));
    let broken = run(&RunSpec { broken: Some(Rule::FlushBeforeDropReturns), ..whole });
    assert!(broken.count("stale_accesses") > 50, "{}", broken.count("stale_accesses"));
}

/// Anything that a few threads may do to a few pages.
fn any_events() -> impl Strategy<Value = Vec<Did>> {
    let range = || (16u64..80, 1u64..24).prop_map(|(start, count)| pages(start, count));
    let backing = prop_oneof![
        2 => Just(Backing::Anonymous),
        1 => (0u64..9).prop_map(|offset| Backing::Private { file: 0, offset }),
        1 => (0u64..9).prop_map(|offset| Backing::Shared { file: 0, offset }),
    ];
    let what = prop_oneof![
        4 => (range(), 0u64..8, backing, any::<bool>()).prop_map(|(pages, bits, backing, populate)| What::Map {
            pages, rights: Rights::from_bits(bits), backing, populate, call: CALL,
        }),
        3 => range().prop_map(|pages| What::Unmap { pages, call: CALL }),
        2 => (range(), 0u64..8).prop_map(|(pages, bits)| What::Protect {
            pages, rights: Rights::from_bits(bits), call: CALL
        }),
        2 => (range(), prop_oneof![Just(4u32), Just(8), Just(14), Just(15), Just(0)])
            .prop_map(|(pages, advice)| What::Advise { pages, advice, call: CALL }),
        1 => (range(), range()).prop_map(|(from, to)| What::Move { from, to, call: CALL }),
        10 => (16u64..110, any::<bool>()).prop_map(|(page, write)| What::Fault { page, write }),
        1 => (0u64..90_000).prop_map(|ns| What::Sleep { ns }),
        1 => Just(What::Exec("other")),
        1 => Just(What::End),
        1 => (0u32..8).prop_map(What::Join),
        2 => (0u32..8, any::<bool>()).prop_map(|(by, shares)| start(by, shares)),
    ];
    list((0u32..8, 0u64..9000, what), 0..150).prop_map(|drawn| {
        let mut events = vec![(0, 0, start(0, false)), (0, 0, What::File("file"))];
        let mut threads = 1;
        for (thread, ran, what) in drawn {
            match what {
                What::Start { by, shares, .. } => {
                    events.push((threads, 0, start(by.min(threads), shares)));
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
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_recording_replays_on_any_machine(events in any_events(), cpus in 1u32..6, linux in any::<bool>()) {
        let policy = policy(if linux { "linux" } else { "vanilla" });
        let report = run(&RunSpec { policy, ..replay(&events, cpus) });
        sound(&report);
        prop_assert_eq!(&report.metrics, &run(&RunSpec { policy, ..replay(&events, cpus) }).metrics);
    }
}
