//! When threads run, and for how long: as they did when they were recorded.

use quietmm_sim::{RunSpec, Workload};
use quietmm_workloads::trace::recording::{Call, Victim, What};

use super::{CALL, Did, map, pages, recorded_at, replay, sound, start, touch};
use crate::common::{Figures, machine, policy, run, spec};

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
