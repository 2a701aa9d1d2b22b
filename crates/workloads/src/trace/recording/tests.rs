//! The codec of recordings against random events, and against every way to damage one.

extern crate std;

use proptest::collection::vec as list;
use proptest::prelude::*;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use super::super::{AnyTrace, EncodeError, Fault};
use super::*;

const CPUS: u16 = 4;

/// The events before any random one: three threads, a file and a stack, so that all may be named.
fn preamble() -> Vec<Event<'static>> {
    let event = |thread, what| Event { at: 0, thread, cpu: 0, ran: 0, what };
    let start = |by, shares| What::Start { by, shares, call: Call::default() };
    vec![
        event(0, start(0, false)),
        event(1, start(0, true)),
        event(2, start(1, false)),
        event(2, What::File("libc.so.6")),
        event(2, What::Stack("munmap;free;main")),
        event(0, What::Exec("räume")),
    ]
}

fn any_what() -> impl Strategy<Value = What<'static>> {
    let number = || prop_oneof![0u64..3, 0u64..100_000, 0u64..1 << 40];
    let pages =
        || (0u64..1 << 51, 1u64..1 << 50).prop_map(|(start, count)| Pages::new(start, count).unwrap());
    let call = || (any::<u64>(), 0u32..=1).prop_map(|(took, stack)| Call { took, stack });
    let rights = || (0u64..8).prop_map(Rights::from_bits);
    let backing = prop_oneof![
        Just(Backing::Anonymous),
        number().prop_map(|offset| Backing::Private { file: 0, offset }),
        number().prop_map(|offset| Backing::Shared { file: 0, offset }),
    ];
    let victim = prop_oneof![
        Just(Victim::Other),
        Just(Victim::Idle),
        Just(Victim::Left),
        (0u32..3).prop_map(Victim::Thread)
    ];
    prop_oneof![
        Just(What::Name("worker")),
        Just(What::End),
        number().prop_map(|ns| What::Sleep { ns }),
        (0u32..3).prop_map(What::Join),
        (pages(), rights(), backing, any::<bool>(), call()).prop_map(
            |(pages, rights, backing, populate, call)| What::Map { pages, rights, backing, populate, call }
        ),
        (pages(), call()).prop_map(|(pages, call)| What::Unmap { pages, call }),
        (pages(), rights(), call()).prop_map(|(pages, rights, call)| What::Protect { pages, rights, call }),
        (pages(), any::<u32>(), call()).prop_map(|(pages, advice, call)| What::Advise {
            pages,
            advice,
            call
        }),
        (pages(), pages(), call()).prop_map(|(from, to, call)| What::Move { from, to, call }),
        (0u64..1 << 52, any::<bool>()).prop_map(|(page, write)| What::Fault { page, write }),
        (0u64..1 << 52, any::<u32>(), any::<u32>()).prop_map(|(page, reads, writes)| What::Access {
            page,
            reads,
            writes
        }),
        (victim, number()).prop_map(|(victim, pages)| What::Shootdown { victim, pages }),
        number().prop_map(|count| What::Lost { count }),
    ]
}

fn any_events() -> impl Strategy<Value = Vec<Event<'static>>> {
    let event = (0u64..1 << 30, 0u32..3, 0u16..CPUS, 0u64..1 << 40, any_what());
    list(event, 0..40).prop_map(|rest| {
        let (mut at, mut all) = (0, preamble());
        all.extend(rest.into_iter().map(|(step, thread, cpu, ran, what)| {
            at += step;
            Event { at, thread, cpu, ran, what }
        }));
        all
    })
}

fn about(duration: u64) -> About<'static> {
    About {
        program: "räume",
        command: "räume -j2",
        method: "a test",
        faults: true,
        bounded: false,
        times: true,
        shootdowns: false,
        cpus: CPUS,
        duration,
        lost: 0,
        received: Shootdowns { machine: None, program: Some(3) },
    }
}

fn written(events: &[Event<'_>]) -> Vec<u8> {
    let (mut body, mut encoder) = (Vec::new(), RecordingEncoder::new(CPUS));
    events.iter().for_each(|event| encoder.push(event, &mut body).unwrap());
    let mut file = Vec::new();
    let header = RecordingHeader { about: about(encoder.last()), sums: encoder.finish() };
    header.encode(&mut file).unwrap();
    file.extend(body);
    file
}

fn parsed(bytes: &[u8]) -> Recording<'_> {
    match AnyTrace::parse(bytes).unwrap() {
        AnyTrace::Operations(recording) => recording,
        AnyTrace::Accesses(_) => panic!("a recording was read as accesses"),
    }
}

fn fault(bytes: &[u8]) -> Fault {
    AnyTrace::parse(bytes).expect_err("a damaged recording was accepted").fault
}

proptest! {
    #[test]
    fn what_is_written_is_read_and_written_alike(events in any_events()) {
        let file = written(&events);
        let recording = parsed(&file);
        prop_assert_eq!(recording.header().about, about(events.last().unwrap().at));
        prop_assert_eq!(recording.header().sums.threads, 3);
        let read: Vec<Event<'_>> = recording.events().collect();
        prop_assert_eq!(&read, &events);
        prop_assert_eq!(written(&read), file);
    }

    #[test]
    fn a_changed_byte_is_noticed(events in any_events(), at in any::<prop::sample::Index>(), by in 1u8..) {
        let mut file = written(&events);
        let at = at.index(file.len());
        file[at] ^= by;
        prop_assert!(AnyTrace::parse(&file).is_err());
    }

    #[test]
    fn a_cut_file_is_noticed(events in any_events(), at in any::<prop::sample::Index>()) {
        let file = written(&events);
        let cut = at.index(file.len());
        prop_assert!(AnyTrace::parse(&file[..cut]).is_err());
    }

    /// With right checksums, so that the events themselves are reached.
    #[test]
    fn any_body_is_read_or_refused(body in list(any::<u8>(), 0..200), events in any_events()) {
        let mut bytes = Vec::new();
        let mut encoder = RecordingEncoder::new(CPUS);
        events.iter().for_each(|event| encoder.push(event, &mut bytes).unwrap());
        bytes.extend(body);
        let mut sums = encoder.finish();
        sums.bytes = bytes.len() as u64;
        sums.checksum = super::super::checksum::Checksum::of(&[&bytes]);
        let mut file = Vec::new();
        RecordingHeader { about: about(u64::MAX), sums }.encode(&mut file).unwrap();
        file.extend(bytes);
        let _ = AnyTrace::parse(&file);
    }
}

#[test]
fn an_event_that_goes_back_in_time_is_simultaneous() {
    let mut events = preamble();
    let later = Event { at: 50, thread: 0, cpu: 1, ran: 1, what: What::End };
    events.extend([later, Event { at: 20, thread: 1, ..later }]);
    let times: Vec<u64> = parsed(&written(&events)).events().skip(6).map(|event| event.at).collect();
    assert_eq!(times, [50, 50]);
}

#[test]
fn what_is_not_there_cannot_be_named() {
    let refused = |event: Event<'_>| {
        let mut encoder = RecordingEncoder::new(CPUS);
        let mut out = Vec::new();
        preamble().iter().for_each(|event| encoder.push(event, &mut out).unwrap());
        let before = out.clone();
        let error = encoder.push(&event, &mut out).unwrap_err();
        assert_eq!(out, before, "a refused event leaves nothing behind");
        match error {
            EncodeError::Unknown { what, .. } => what.to_string(),
            other => other.to_string(),
        }
    };
    let event = |what| Event { at: 0, thread: 0, cpu: 0, ran: 0, what };
    let pages = Pages::new(1, 1).unwrap();
    let call = Call { took: 0, stack: 2 };
    let map = |backing| What::Map {
        pages,
        rights: Rights::default(),
        backing,
        populate: false,
        call: Call::default(),
    };
    let cases: [(Event<'_>, &str); 8] = [
        (Event { thread: 3, ..event(What::End) }, "thread"),
        (Event { cpu: CPUS, ..event(What::End) }, "CPU"),
        (event(What::Start { by: 0, shares: true, call: Call::default() }), "thread"),
        (Event { thread: 3, ..event(What::Start { by: 4, shares: true, call: Call::default() }) }, "thread"),
        (event(What::Join(3)), "thread"),
        (event(What::Shootdown { victim: Victim::Thread(3), pages: 1 }), "thread"),
        (event(map(Backing::Private { file: 1, offset: 0 })), "file"),
        (event(What::Unmap { pages, call }), "stack"),
    ];
    let found: Vec<String> = cases.iter().map(|(event, _)| refused(*event)).collect();
    assert_eq!(found, cases.map(|(_, what)| what));
}

#[test]
fn totals_and_reserved_bytes_are_checked() {
    let forged = |forge: fn(&mut RecordingHeader<'_>)| {
        let (mut body, mut encoder) = (Vec::new(), RecordingEncoder::new(CPUS));
        preamble().iter().for_each(|event| encoder.push(event, &mut body).unwrap());
        let mut header = RecordingHeader { about: about(5), sums: encoder.finish() };
        forge(&mut header);
        let mut file = Vec::new();
        header.encode(&mut file).unwrap();
        file.extend(body);
        file
    };
    assert!(AnyTrace::parse(&forged(|_| ())).is_ok());
    assert_eq!(fault(&forged(|h| h.sums.threads = 4)), Fault::Total { of: "threads", header: 4, body: 3 });
    assert_eq!(fault(&forged(|h| h.sums.events = 4)), Fault::Total { of: "events", header: 4, body: 6 });
    assert_eq!(fault(&forged(|h| h.about.cpus = 0)), Fault::Cpu);
    let late = Event { at: 9, thread: 0, cpu: 0, ran: 0, what: What::End };
    let mut events = preamble();
    events.push(late);
    let (mut body, mut encoder) = (Vec::new(), RecordingEncoder::new(CPUS));
    events.iter().for_each(|event| encoder.push(event, &mut body).unwrap());
    let mut file = Vec::new();
    RecordingHeader { about: about(8), sums: encoder.finish() }.encode(&mut file).unwrap();
    file.extend(body);
    assert_eq!(fault(&file), Fault::Total { of: "nanoseconds", header: 8, body: 9 });
}
