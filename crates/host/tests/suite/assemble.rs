//! From what a source sees to events: who shares a space, what a call did, how long a thread ran.

use proptest::collection::vec as list;
use proptest::prelude::*;
use quietmm_host::assemble::{Assembled, Assembly, Strangers};
use quietmm_host::seen::{Saw, Seen};
use quietmm_host::syscall::{CLONE_THREAD, CLONE_VM, Syscall};
use quietmm_workloads::trace::recording::{
    Backing, Call, Event, Pages, RecordingEncoder, Rights, Victim, What,
};

type Events = Vec<Event<'static>>;

/// The events of what was seen of a program whose first thread is 100.
fn assembled(seen: &[(u64, i32, Saw<'_>)]) -> Assembled<Events> {
    let mut assembly = Assembly::new(Vec::new(), 4, Strangers::Leave, true);
    assembly.known(1000, 100, &[100]).unwrap();
    for &(at, tid, saw) in seen {
        assembly.take(Seen { at, cpu: 1, tid, saw }).unwrap();
    }
    assembly.finish()
}

fn events(seen: &[(u64, i32, Saw<'_>)]) -> Vec<(u32, u64, What<'static>)> {
    let all = assembled(seen).sink.into_iter().skip(1);
    all.map(|event| (event.thread, event.ran, event.what)).collect()
}

fn enter(call: Syscall, args: [u64; 6]) -> Saw<'static> {
    Saw::Enter { call, args, path: None, stack: "" }
}

fn leave(call: Syscall, result: i64) -> Saw<'static> {
    Saw::Leave { call, result }
}

fn call(took: u64) -> Call {
    Call { took, stack: 0 }
}

fn pages(start: u64, count: u64) -> Pages {
    Pages::new(start, count).unwrap()
}

#[test]
fn a_call_is_what_it_did_when_it_came_back() {
    const RW: u64 = 3;
    let found = events(&[
        (1000, 100, Saw::On),
        (3000, 100, enter(Syscall::Mmap, [0, 5000, RW, 0x22, u64::MAX, 0])),
        (3500, 100, leave(Syscall::Mmap, 0x7000)),
        (5500, 100, Saw::Fault { address: 0x7abc, write: true }),
        (6000, 100, enter(Syscall::Munmap, [0x7000, 0x2000, 0, 0, 0, 0])),
        (6300, 100, leave(Syscall::Munmap, -22)),
        (6500, 100, enter(Syscall::Mprotect, [0x7000, 1, 1, 0, 0, 0])),
        (6600, 100, leave(Syscall::Mprotect, 0)),
        (6700, 100, enter(Syscall::Mremap, [0x7000, 0x1000, 0x3000, 1, 0, 0])),
        (6800, 100, leave(Syscall::Mremap, 0x9000)),
    ]);
    let (map, rights) = (pages(7, 2), Rights::from_bits(RW));
    assert_eq!(
        found,
        [
            (
                0,
                2000,
                What::Map {
                    pages: map,
                    rights,
                    backing: Backing::Anonymous,
                    populate: false,
                    call: call(500)
                }
            ),
            (0, 2000, What::Fault { page: 7, write: true }),
            // The unmap that failed did nothing; its time was the thread's.
            (0, 1000, What::Protect { pages: pages(7, 1), rights: Rights::from_bits(1), call: call(100) }),
            (0, 100, What::Move { from: pages(7, 1), to: pages(9, 3), call: call(100) }),
        ]
    );
}

#[test]
fn the_heap_grows_and_shrinks_by_whole_pages() {
    let brk = |at: u64, to: i64| {
        [(at, 100, enter(Syscall::Brk, [to as u64; 6])), (at, 100, leave(Syscall::Brk, to))]
    };
    let seen = [brk(1, 0x5000), brk(2, 0x7001), brk(3, 0x7fff), brk(4, 0x6000)].concat();
    let found: Vec<_> = events(&seen).into_iter().map(|event| event.2).collect();
    assert!(matches!(found[0], What::Map { pages: Pages { start: 5, count: 3 }, .. }), "{found:?}");
    assert!(matches!(found[1], What::Unmap { pages: Pages { start: 6, count: 2 }, .. }), "{found:?}");
    assert_eq!(found.len(), 2);
}

#[test]
fn a_stack_that_grows_is_mapped_where_it_grows() {
    let stack = |at: u64, pages: u64| {
        let (address, length) = (at << 12, pages << 12);
        (1000, 100, Saw::Mapped { address, length, offset: 0, prot: 3, flags: 0, path: "[stack]" })
    };
    let mapped = |seen: &[(u64, i32, Saw<'_>)]| -> Vec<Pages> {
        let all = events(seen).into_iter();
        all.filter_map(|event| if let What::Map { pages, .. } = event.2 { Some(pages) } else { None })
            .collect()
    };
    let grown = [stack(100, 20), stack(90, 30), stack(90, 30), stack(70, 50)];
    assert_eq!(mapped(&grown), [pages(100, 20), pages(90, 10), pages(70, 20)]);
    // Another program has another one.
    let anew = [stack(100, 20), (1001, 100, Saw::Exec("other")), stack(90, 30)];
    assert_eq!(mapped(&anew), [pages(100, 20), pages(90, 30)]);
}

#[test]
fn threads_share_children_copy_and_a_vfork_shares_until_it_runs_another_program() {
    let made = |tid, process, flags| Saw::Made { tid, process, shares: Some(flags & CLONE_VM != 0) };
    let assembled = assembled(&[
        (1000, 100, made(101, Some(100), CLONE_VM | CLONE_THREAD)),
        (1001, 101, made(102, None, 0)),
        (1002, 100, made(103, None, CLONE_VM)),
        (1003, 103, Saw::Exec("sh")),
        (1004, 103, Saw::Gone),
        (1005, 100, enter(Syscall::Wait4, [0; 6])),
        (1006, 100, leave(Syscall::Wait4, 103)),
        (1007, 555, Saw::Fault { address: 0x1000, write: false }),
    ]);
    let found: Vec<_> = assembled.sink.iter().map(|event| (event.thread, event.what)).collect();
    let start = |by, shares| What::Start { by, shares, call: call(0) };
    assert_eq!(
        found,
        [
            (0, start(0, false)),
            (1, start(0, true)),
            (2, start(1, false)),
            (3, start(0, true)),
            (3, What::Exec("")),
            (3, What::End),
            (0, What::Join(3)),
        ]
    );
}

#[test]
fn time_on_a_cpu_counts_and_sleep_is_told_but_not_that_of_a_call() {
    let found = events(&[
        (10_000, 100, Saw::On),
        (28_000, 100, Saw::Off { preempted: false }),
        (78_000, 100, Saw::On),
        (79_000, 100, enter(Syscall::Munmap, [0x1000, 0x1000, 0, 0, 0, 0])),
        (80_000, 100, Saw::Off { preempted: false }),
        (99_000, 100, Saw::On),
        (99_500, 100, leave(Syscall::Munmap, 0)),
        (99_900, 100, Saw::Gone),
    ]);
    assert_eq!(
        found,
        [
            (0, 18_000, What::Sleep { ns: 50_000 }),
            (0, 1000, What::Unmap { pages: pages(1, 1), call: call(20_500) }),
            (0, 400, What::End),
        ]
    );
}

#[test]
fn a_cpu_that_other_programs_took_is_a_sleep_and_one_that_a_sibling_took_is_not() {
    let made = Saw::Made { tid: 101, process: Some(100), shares: Some(true) };
    let found = events(&[
        (10_000, 100, Saw::On),
        (10_000, 100, made),
        (20_000, 100, Saw::Off { preempted: true }),
        // Its sibling has the CPU for 30 of 45 microseconds.
        (25_000, 101, Saw::On),
        (55_000, 101, Saw::Off { preempted: true }),
        (65_000, 100, Saw::On),
        (66_000, 100, enter(Syscall::Munmap, [0x1000, 0x1000, 0, 0, 0, 0])),
        (67_000, 100, Saw::Off { preempted: true }),
        (87_000, 100, Saw::On),
        (88_000, 100, leave(Syscall::Munmap, 0)),
    ]);
    assert_eq!(
        found[1..],
        [
            (0, 10_000, What::Sleep { ns: 15_000 }),
            (0, 0, What::Sleep { ns: 20_000 }),
            // 22 microseconds, of which others had the CPU for 20.
            (0, 1000, What::Unmap { pages: pages(1, 1), call: call(2000) }),
        ]
    );
}

#[test]
fn when_a_thread_has_its_cpu_again_is_told_even_if_siblings_had_it_all_the_time() {
    let made = Saw::Made { tid: 101, process: Some(100), shares: Some(true) };
    let found = events(&[
        (10_000, 100, Saw::On),
        (10_000, 100, made),
        (20_000, 100, Saw::Off { preempted: true }),
        (20_500, 101, Saw::On),
        (54_500, 101, Saw::Off { preempted: true }),
        (55_000, 100, Saw::On),
        // A microsecond is not worth telling.
        (60_000, 100, Saw::Off { preempted: true }),
        (61_000, 100, Saw::On),
        (65_000, 100, Saw::Gone),
    ]);
    assert_eq!(found[1..], [(0, 10_000, What::Sleep { ns: 0 }), (0, 9000, What::End)]);
}

#[test]
fn a_shootdown_has_a_sender_and_a_victim() {
    let assembled = assembled(&[
        (2000, 100, Saw::Made { tid: 101, process: Some(100), shares: Some(true) }),
        (2001, 100, Saw::Sends(&[0b1010])),
        (2002, 101, Saw::Flushed { pages: 3, left: false }),
        // Nobody has sent to this CPU since, and it is none of ours.
        (2003, 7, Saw::Flushed { pages: 1, left: false }),
        // One of ours is interrupted by a program that is not recorded.
        (2004, 9, Saw::Sends(&[0b10])),
        (2005, 101, Saw::Flushed { pages: 0, left: true }),
        // A CPU that had left the space.
        (2006, 101, Saw::Sends(&[0b10])),
        (2007, 9, Saw::Flushed { pages: 2, left: true }),
    ]);
    let found: Vec<_> = assembled.sink.iter().skip(2).map(|event| (event.thread, event.what)).collect();
    let shot = |victim, pages| What::Shootdown { victim, pages };
    assert_eq!(found, [(0, shot(Victim::Thread(1), 3)), (1, shot(Victim::Left, 2))]);
    assert_eq!((assembled.shootdowns, assembled.odd.unsent), (2, 0));
}

#[test]
fn a_cpu_that_is_asked_to_flush_and_says_nothing_was_idle() {
    let flushed = |left| Saw::Flushed { pages: 1, left };
    let assembled = assembled(&[
        (2000, 100, Saw::Made { tid: 101, process: Some(100), shares: Some(true) }),
        // Something that the kernel sent before: nobody knows what.
        (2000, 100, Saw::Sends(&[0b1])),
        (1_002_000, 100, enter(Syscall::Munmap, [0x1000, 0x1000, 0, 0, 0, 0])),
        // One of two answers, and then the call ends.
        (1_002_001, 100, Saw::Asks(1)),
        (1_002_001, 100, Saw::Asks(0)),
        (1_002_002, 101, flushed(false)),
        (1_002_003, 100, leave(Syscall::Munmap, 0)),
        // What the kernel sends is of no interest any more.
        (1_002_004, 100, Saw::Sends(&[0b11])),
        (1_002_005, 101, flushed(false)),
        // Whoever asks is none of ours.
        (1_002_006, 9, Saw::Asks(1)),
        (1_002_007, 9, Saw::Off { preempted: false }),
        // A thread that goes on without being seen has its answer before another one asks, unless that is at the same time.
        (1_003_000, 100, Saw::Asks(1)),
        (2_003_000, 101, Saw::Asks(1)),
        (2_003_001, 100, Saw::Asks(1)),
        (2_003_002, 100, Saw::Off { preempted: false }),
        // No CPU has this number.
        (2_003_003, 100, Saw::Asks(2)),
    ]);
    let found = assembled.sink.iter().skip(2).map(|event| (event.thread, event.cpu, event.what));
    let shot = |victim, pages| What::Shootdown { victim, pages };
    let unmap = What::Unmap { pages: pages(1, 1), call: call(3) };
    assert_eq!(
        found.collect::<Vec<_>>(),
        [
            (0, 1, shot(Victim::Thread(1), 1)),
            (0, 0, shot(Victim::Idle, 0)),
            (0, 1, unmap),
            (0, 1, shot(Victim::Idle, 0)),
            (0, 1, shot(Victim::Idle, 0)),
        ]
    );
    assert_eq!(assembled.shootdowns, 4);
}

#[test]
fn what_is_asked_while_the_space_of_a_thread_that_has_ended_goes_is_its_own() {
    const SECOND: u64 = 1_000_000_000;
    let flushed = Saw::Flushed { pages: 0, left: true };
    let assembled = assembled(&[
        (2000, 100, Saw::Made { tid: 101, process: Some(101), shares: Some(false) }),
        (3000, 101, Saw::Gone),
        // A CPU that had left, and one with nothing to do, which is known once the thread leaves its own.
        (3001, 101, Saw::Asks(1)),
        (3002, 9, flushed),
        (3003, 101, Saw::Asks(1)),
        (3004, 101, Saw::Off { preempted: false }),
        // Long after it another one has its number.
        (3000 + SECOND, 101, Saw::Asks(1)),
        (3001 + SECOND, 9, flushed),
    ]);
    let found: Vec<_> = assembled.sink.iter().skip(3).map(|event| (event.thread, event.what)).collect();
    let shot = |victim| (1, What::Shootdown { victim, pages: 0 });
    assert_eq!(found, [shot(Victim::Left), shot(Victim::Idle)]);
    assert_eq!(assembled.shootdowns, 2);
}

#[test]
fn where_nobody_is_seen_to_send_a_thread_that_is_interrupted_is_its_own_programs() {
    let flushed = Saw::Flushed { pages: 1, left: false };
    let assembled = assembled(&[(2000, 100, flushed), (2001, 7, flushed)]);
    assert_eq!((assembled.shootdowns, assembled.odd.unsent), (1, 1));
}

#[test]
fn a_number_that_comes_again_is_another_thread() {
    let made = Saw::Made { tid: 101, process: None, shares: Some(false) };
    let assembled = assembled(&[(1, 100, made), (2, 100, made), (3, 101, Saw::Gone)]);
    let found: Vec<_> = assembled.sink.iter().skip(1).map(|event| (event.thread, event.what)).collect();
    let start = What::Start { by: 0, shares: false, call: call(0) };
    assert_eq!(found, [(1, start), (1, What::End), (2, start), (2, What::End)]);
    assert_eq!(assembled.odd.again, 1);
}

#[test]
fn a_thread_that_begins_a_program_goes_on_under_the_number_of_its_process() {
    let made = Saw::Made { tid: 101, process: Some(100), shares: Some(true) };
    let begins = enter(Syscall::Execve, [0; 6]);
    let touch = Saw::Fault { address: 0x7000, write: true };
    let found = events(&[
        (1, 100, made),
        (2, 101, begins),
        (3, 100, Saw::Gone),
        (4, 100, Saw::Exec("ls")),
        (5, 100, leave(Syscall::Execve, 0)),
        (6, 100, touch),
        (7, 100, Saw::Gone),
    ]);
    let found: Vec<_> = found.into_iter().map(|(thread, _, what)| (thread, what)).skip(1).collect();
    let fault = What::Fault { page: 7, write: true };
    assert_eq!(found, [(0, What::End), (1, What::Exec("")), (1, fault), (1, What::End)]);
}

fn any_saw() -> impl Strategy<Value = Saw<'static>> {
    let syscall = || any::<prop::sample::Index>().prop_map(|at| Syscall::ALL[at.index(Syscall::ALL.len())]);
    let number = || prop_oneof![0u64..10, (0u64..64).prop_map(|page| page << 12), any::<u64>()];
    let tid = || 95i32..105;
    prop_oneof![
        (syscall(), [number(), number(), number(), number(), number(), number()])
            .prop_map(|(call, args)| enter(call, args)),
        (syscall(), prop_oneof![-5i64..200, any::<i64>()]).prop_map(|(call, result)| leave(call, result)),
        (any::<u64>(), any::<bool>()).prop_map(|(address, write)| Saw::Fault { address, write }),
        (number(), number(), number(), number(), number()).prop_map(
            |(address, length, offset, prot, flags)| {
                Saw::Mapped { address, length, offset, prot, flags, path: "/lib" }
            }
        ),
        (tid(), prop::option::of(tid()), prop::option::of(any::<bool>()))
            .prop_map(|(tid, process, shares)| Saw::Made { tid, process, shares }),
        Just(Saw::Exec("x")),
        Just(Saw::Name("y")),
        Just(Saw::Gone),
        Just(Saw::On),
        any::<bool>().prop_map(|preempted| Saw::Off { preempted }),
        Just(Saw::Sends(&[7])),
        Just(Saw::Sends(&[])),
        any::<u16>().prop_map(Saw::Asks),
        (any::<u64>(), any::<bool>()).prop_map(|(pages, left)| Saw::Flushed { pages, left }),
        any::<u64>().prop_map(Saw::Lost),
    ]
}

proptest! {
    /// Whatever a source says, what comes of it is a recording.
    #[test]
    fn anything_that_is_seen_makes_a_recording(
        seen in list((prop_oneof![0u64..9000, any::<u64>()], any::<u16>(), 95i32..105, any_saw()), 0..200),
        belong in any::<bool>(),
        switches in any::<bool>(),
    ) {
        let strangers = if belong { Strangers::Belong } else { Strangers::Leave };
        let mut assembly = Assembly::new(Events::new(), 4, strangers, switches);
        assembly.known(5, 100, &[100, 99]).unwrap();
        for &(at, cpu, tid, saw) in &seen {
            assembly.take(Seen { at, cpu, tid, saw }).unwrap();
        }
        let (mut encoder, mut body) = (RecordingEncoder::new(4), Vec::new());
        for event in assembly.finish().sink {
            encoder.push(&event, &mut body).unwrap();
        }
    }
}
