//! Who is interrupted in a replay: whoever was when it was recorded.

use quietmm_sim::{RunSpec, Workload};
use quietmm_workloads::trace::recording::{Backing, Call, Rights, Victim, What};

use super::{CALL, Did, map, pages, recorded_at, sound, start, touch};
use crate::common::{Figures, machine, policy, run, spec};

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
