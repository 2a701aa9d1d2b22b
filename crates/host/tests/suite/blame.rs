//! Who interrupts whom: each shootdown belongs to the call of its sender in which it fell.

use quietmm_host::blame::{Alike, Blame, Cause, Group, Whom};
use quietmm_workloads::trace::AnyTrace;
use quietmm_workloads::trace::recording::{
    About, Call, Event, Pages, RecordingEncoder, RecordingHeader, Rights, Shootdowns, Victim, What,
};

/// Events with their time in microseconds and their thread.
fn blame(events: &[(u64, u32, What<'_>)]) -> Blame {
    blame_as(events, true)
}

/// The same; whether shootdowns were recorded.
fn blame_as(events: &[(u64, u32, What<'_>)], shootdowns: bool) -> Blame {
    let (mut body, mut encoder) = (Vec::new(), RecordingEncoder::new(2));
    for &(at, thread, what) in events {
        encoder.push(&Event { at: at * 1000, thread, cpu: 0, ran: 0, what }, &mut body).unwrap();
    }
    let about = About {
        program: "program",
        command: "",
        method: "",
        faults: true,
        bounded: false,
        times: true,
        shootdowns,
        cpus: 2,
        duration: encoder.last(),
        lost: 0,
        received: Shootdowns::default(),
    };
    let mut file = Vec::new();
    RecordingHeader { about, sums: encoder.finish() }.encode(&mut file).unwrap();
    file.extend(body);
    match AnyTrace::parse(&file).unwrap() {
        AnyTrace::Operations(recording) => Blame::of(&recording),
        AnyTrace::Accesses(_) => panic!("a recording was read as accesses"),
    }
}

fn call(us: u64) -> Call {
    Call { took: us * 1000, stack: 0 }
}

fn start(by: u32, shares: bool) -> What<'static> {
    What::Start { by, shares, call: call(40) }
}

fn pages(count: u64) -> Pages {
    Pages::new(0x100, count).unwrap()
}

fn advise(us: u64, advice: u32) -> What<'static> {
    What::Advise { pages: pages(3), advice, call: call(us) }
}

fn shot(victim: Victim) -> What<'static> {
    What::Shootdown { victim, pages: 1 }
}

fn group<'a>(blame: &'a Blame, name: &str, cause: Cause) -> &'a Group {
    let found = blame.groups.iter().find(|group| group.name == name && group.cause == cause);
    found.unwrap_or_else(|| panic!("{name} {cause:?}: {blame:?}"))
}

#[test]
fn a_shootdown_is_the_calls_in_which_it_fell() {
    const DONTNEED: u32 = 4;
    let blame = blame(&[
        (0, 0, start(0, false)),
        (1, 1, start(0, true)),
        (2, 1, What::Name("worker")),
        (3, 0, What::Stack("madvise;purge;free")),
        // Three calls: the first two interrupt, and follow each other at once.
        (100, 0, shot(Victim::Thread(1))),
        (101, 0, shot(Victim::Idle)),
        (110, 0, What::Advise { pages: pages(3), advice: DONTNEED, call: Call { took: 20_000, stack: 1 } }),
        (150, 0, shot(Victim::Thread(1))),
        (160, 0, advise(30, DONTNEED)),
        (200, 0, advise(5, DONTNEED)),
        // Advice that takes nothing cannot be guilty.
        (201, 0, advise(5, 14)),
        // Much later: a burst of its own.
        (5000, 0, shot(Victim::Left)),
        (5010, 0, advise(20, DONTNEED)),
        // The other thread unmaps, and nobody is interrupted; then a fault that copies.
        (6000, 1, What::Unmap { pages: pages(2), call: call(7) }),
        (6100, 1, What::Fault { page: 0x500, write: true }),
        (6105, 1, shot(Victim::Other)),
        (6200, 1, What::End),
    ]);
    assert_eq!(blame.shootdowns, 5);
    let madvise = group(&blame, "program", Cause::Madvise);
    assert_eq!((madvise.calls, madvise.shared, madvise.guilty, madvise.bursts), (4, 4, 3, 2));
    assert_eq!((madvise.shootdowns, madvise.pages, madvise.took), (4, 9, [75_000, 70_000]));
    let worker = Whom::Threads("worker".into());
    assert_eq!(madvise.victims, [(worker, 2), (Whom::Idle, 1), (Whom::Left, 1)]);
    assert_eq!(madvise.stacks, [("madvise;purge;free".to_owned(), 2)]);
    assert_eq!(madvise.took_each(), Some([20_000, 5_000]), "of 20, 30 and 20 us; of 5");
    let unmap = group(&blame, "worker", Cause::Munmap);
    assert_eq!((unmap.calls, unmap.shared, unmap.guilty, unmap.shootdowns), (1, 1, 0, 0));
    let fault = group(&blame, "worker", Cause::Fault);
    assert_eq!((fault.shootdowns, &fault.victims[..]), (1, &[(Whom::Others, 1)][..]));
    assert_eq!(blame.groups[0], *madvise, "most shootdowns first");
}

#[test]
fn without_shootdowns_stacks_are_those_of_calls_that_may_interrupt() {
    let unmap = |stack| What::Unmap { pages: pages(1), call: Call { took: 1000, stack } };
    let events = [
        (0, 0, start(0, false)),
        (1, 0, What::Stack("munmap;alone")),
        (2, 0, What::Stack("munmap;beside")),
        (10, 0, unmap(1)),
        (20, 1, start(0, true)),
        (30, 0, unmap(2)),
        (40, 0, unmap(2)),
        (50, 0, unmap(0)),
    ];
    let stacks = |shootdowns| group(&blame_as(&events, shootdowns), "program", Cause::Munmap).stacks.clone();
    assert_eq!(stacks(false), [("munmap;beside".to_owned(), 2)]);
    assert_eq!(stacks(true), [], "nobody was interrupted");
}

#[test]
fn a_fork_interrupts_for_its_maker_and_a_space_without_others_is_not_shared() {
    let blame = blame(&[
        (0, 0, start(0, false)),
        (10, 0, What::Unmap { pages: pages(1), call: call(1) }),
        (20, 1, start(0, true)),
        (90, 0, shot(Victim::Thread(1))),
        (100, 2, start(0, false)),
        (110, 2, What::Exec("/bin/sh")),
        (120, 2, What::Protect { pages: pages(1), rights: Rights::from_bits(1), call: call(1) }),
        (130, 1, What::End),
        (140, 0, What::Unmap { pages: pages(1), call: call(1) }),
        // Long after anything that it did.
        (900, 0, shot(Victim::Idle)),
    ]);
    let fork = group(&blame, "program", Cause::Fork);
    assert_eq!((fork.calls, fork.guilty, fork.shootdowns), (1, 1, 1));
    assert_eq!(fork.victims, [(Whom::Threads("program".into()), 1)]);
    // Both while it was alone.
    let unmap = group(&blame, "program", Cause::Munmap);
    assert_eq!((unmap.calls, unmap.shared), (2, 0));
    assert_eq!(group(&blame, "sh", Cause::Mprotect).shared, 0);
    assert_eq!(group(&blame, "program", Cause::Other).shootdowns, 1);
}

#[test]
fn calls_are_held_against_those_that_found_as_many_pages() {
    // Unmaps of pages that were touched take 40 us, and 50 where they interrupt, as every second one does. Where nobody has touched
    // anything they take 1 us.
    let mut events = vec![(0, 0, start(0, false)), (1, 1, start(0, true))];
    let unmap = |took| What::Unmap { pages: pages(3), call: call(took) };
    for round in 0..10u64 {
        let at = 1000 * (round + 1);
        for page in 0x100..0x103 {
            events.push((at, 0, What::Fault { page, write: true }));
        }
        let interrupts = round % 2 == 0;
        if interrupts {
            events.push((at + 290, 0, shot(Victim::Thread(1))));
        }
        events.push((at + 300, 0, unmap(if interrupts { 50 } else { 40 })));
        // They were unmapped: there is nothing any more.
        events.extend((0..3).map(|nth| (at + 400 + 10 * nth, 0, unmap(1))));
    }
    let told = blame(&events);
    let of = group(&told, "program", Cause::Munmap);
    assert_eq!(of.took_each(), Some([50_000, 1_000]), "what interrupts has more to do besides");
    assert_eq!(of.alike, Some(Alike { longer: 10_000, calls: 5 }));
    // With four on one side nothing is said.
    let fewer: Vec<_> = events.iter().filter(|(at, ..)| *at < 9000).copied().collect();
    let told = blame(&fewer);
    assert_eq!(group(&told, "program", Cause::Munmap).alike, None);
}
