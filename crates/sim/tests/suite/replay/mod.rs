//! Recordings of threads and processes on the simulated machine: nothing fails, nothing stale is used, and what the
//! recording says decides who is interrupted.

mod interrupts;
mod times;

use std::sync::Arc;

use proptest::collection::vec as list;
use proptest::prelude::*;
use quietmm_sim::{Report, Rule, RunSpec, Workload};
use quietmm_workloads::trace::recording::{
    About, Backing, Call, Event, Pages, RecordingEncoder, RecordingHeader, Rights, Shootdowns, What,
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
