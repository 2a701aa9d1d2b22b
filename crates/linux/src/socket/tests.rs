use super::*;
use crate::inbox::OVERHEAD;

fn pair(kind: u32) -> (Arc<Socket>, Arc<Socket>) {
    pair_of(UNIX, kind)
}

fn pair_of(family: u16, kind: u32) -> (Arc<Socket>, Arc<Socket>) {
    let (names, left) = (Arc::default(), Arc::default());
    let [a, b] = [(), ()].map(|()| Socket::new(family, kind, &names, &left));
    a.join(&b);
    (a, b)
}

fn send(from: &Socket, bytes: &[u8]) -> Sent {
    from.peer().unwrap().inbox.send(
        bytes,
        &Sender::at(&from.own()),
        Vec::new(),
        from.is_stream(),
        from.sends(),
    )
}

#[test]
fn a_stream_has_no_borders_and_packets_have() {
    let (a, b) = pair(kind::STREAM);
    assert_eq!((send(&a, b"hello"), send(&a, b"world")), (Sent::Bytes(5), Sent::Bytes(5)));
    assert_eq!(b.inbox.receive(7, true, true).unwrap().bytes, b"hellowo", "a look");
    assert_eq!(b.inbox.receive(7, true, false).unwrap().bytes, b"hellowo");
    assert_eq!(b.inbox.receive(7, true, false).unwrap().bytes, b"rld");
    assert!(b.inbox.receive(7, true, false).is_none());
    let (a, b) = pair(kind::PACKETS);
    assert_eq!((send(&a, b"hello"), send(&a, b"world")), (Sent::Bytes(5), Sent::Bytes(5)));
    let first = b.inbox.receive(2, false, false).unwrap();
    assert_eq!((first.bytes.as_slice(), first.whole), (&b"he"[..], 5), "the rest is gone");
    assert_eq!(b.inbox.receive(9, false, false).unwrap().bytes, b"world");
    assert_eq!(b.inbox.counted(), 0);
}

#[test]
fn what_comes_with_files_is_the_last_that_is_received_at_once() {
    let (a, b) = pair(kind::STREAM);
    let (inbox, own) = (a.peer().unwrap().inbox, Sender::at(&a.own()));
    let file = || alloc::vec![Open::new(crate::open::Kind::Console(1), 1, Vec::new())];
    for (bytes, files) in [(b"a", Vec::new()), (b"b", file()), (b"c", file()), (b"d", Vec::new())] {
        assert_eq!(inbox.send(bytes, &own, files, true, ROOM), Sent::Bytes(1));
    }
    let next = || b.inbox.receive(9, true, false).map(|found| (found.bytes, found.files.len())).unwrap();
    assert_eq!([next(), next(), next()], [(b"ab".to_vec(), 1), (b"c".to_vec(), 1), (b"d".to_vec(), 0)]);
    assert_eq!(b.inbox.counted(), 0);
}

#[test]
fn what_was_there_before_nobody_receives_any_more_is_received() {
    let (a, b) = pair(kind::STREAM);
    send(&a, b"last");
    b.hears_no_more();
    assert_eq!(send(&a, b"x"), Sent::Closed);
    assert_eq!(b.inbox.receive(9, true, false).unwrap().bytes, b"last");
    assert_eq!(b.inbox.receive(9, true, false).unwrap().bytes, b"");
}

#[test]
fn who_closes_ends_what_the_other_receives_and_can_send() {
    let (a, b) = pair(kind::STREAM);
    send(&a, b"last");
    drop(a);
    assert_eq!(b.inbox.receive(9, true, false).unwrap().bytes, b"last");
    assert_eq!(b.inbox.receive(9, true, false).unwrap().bytes, b"", "the end");
    assert_eq!(send(&b, b"x"), Sent::Closed);
}

#[test]
fn a_full_inbox_takes_no_more_until_something_is_received() {
    let (a, b) = pair(kind::STREAM);
    let many = alloc::vec![7; 2 * ROOM];
    let Sent::Bytes(first) = send(&a, &many) else { panic!("it is empty") };
    assert!(first < ROOM && send(&a, b"x") == Sent::Wait && !b.inbox.has_room(a.sends()));
    assert_eq!(b.inbox.receive(first, true, false).unwrap().bytes.len(), first);
    assert_eq!(send(&a, b"x"), Sent::Bytes(1));
    let (a, b) = pair(kind::PACKETS);
    let mut sent = 0;
    while send(&a, &many[..5000]) == Sent::Bytes(5000) {
        sent += 1;
    }
    assert_eq!(sent, ROOM.div_ceil(5000 + OVERHEAD), "the last may be more than is left");
    assert!(!b.inbox.has_room(a.sends()));
    assert!(b.inbox.receive(1, false, false).is_some() && b.inbox.has_room(a.sends()));
    assert_eq!(send(&a, &many[..5000]), Sent::Bytes(5000));
}

#[test]
fn sockets_that_lie_in_each_other_are_closed_one_after_the_other() {
    let (names, left) = (Arc::default(), Arc::<Left>::default());
    let new = || Socket::new(1, kind::STREAM, &names, &left);
    let mut inner: Option<Arc<Open>> = None;
    for _ in 0..50_000 {
        let (a, b) = (new(), new());
        a.join(&b);
        let files = inner.take().into_iter().collect();
        let own = Sender::at(&a.own());
        assert_eq!(a.peer().unwrap().inbox.send(b"x", &own, files, true, ROOM), Sent::Bytes(1));
        inner = Some(Open::new(crate::open::Kind::Socket(b), 2, Vec::new()));
    }
    drop(inner);
    let mut closed = 0;
    while let Some(open) = left.take_open() {
        drop(open);
        closed += 1;
    }
    assert_eq!(closed, 49_999);
}

#[test]
fn who_is_closed_with_bytes_to_read_breaks_off() {
    let (a, b) = pair(kind::STREAM);
    assert_eq!((send(&a, b"hello"), send(&b, b"bye")), (Sent::Bytes(5), Sent::Bytes(3)));
    assert_eq!(a.inbox.broken(), Broken::No);
    drop(b);
    assert_eq!(a.inbox.broken(), Broken::Yes(Errno::ECONNRESET));
    assert_eq!(a.inbox.take_break(true), None, "first what came before");
    assert_eq!(a.inbox.receive(9, true, false).unwrap().bytes, b"bye");
    assert_eq!(
        [true, false].map(|read| a.inbox.take_break(read)),
        [Some(Errno::ECONNRESET), None],
        "it is said once"
    );
    let (a, b) = pair(kind::STREAM);
    send(&b, b"bye");
    drop(b);
    assert_eq!(a.inbox.broken(), Broken::No, "it had read all");
    let (names, left) = (Arc::default(), Arc::default());
    let (a, b) = (Socket::new(2, kind::STREAM, &names, &left), Socket::new(2, kind::STREAM, &names, &left));
    a.join(&b);
    b.state.with(|state| state.options.insert((1, 13), alloc::vec![1, 0, 0, 0, 0, 0, 0, 0]));
    drop(b);
    assert_eq!(a.inbox.broken(), Broken::Yes(Errno::ECONNRESET), "it was to be closed at once");
}

#[test]
fn as_much_is_on_its_way_as_both_have_room_for() {
    let taken = |family, of, sends: usize, receives: usize| {
        let (a, b) = pair_of(family, of);
        a.set_room(false, sends);
        b.set_room(true, receives);
        let mut sum = 0;
        while send(&a, &[7; 100]) == Sent::Bytes(100) {
            sum += 100;
        }
        assert!(!b.inbox.has_room(a.sends()) || of == kind::PACKETS);
        sum
    };
    let inet = crate::network::INET;
    // Of the Unix kind by who sends, packets of the network by who receives, and a connection of it by both.
    assert_eq!(taken(UNIX, kind::STREAM, 8192, 1), 7600);
    assert_eq!(taken(inet, kind::STREAM, 8192, 4096), 11_700);
    assert_eq!(taken(inet, kind::PACKETS, 1, 8192), 2300);
    // Whoever is taken in is as who listens.
    let (a, b) = pair_of(inet, kind::STREAM);
    a.set_room(false, 5000);
    a.set_room(true, 6000);
    b.takes_after(&a);
    assert_eq!((b.sends(), b.inbox.takes.load(Ordering::Relaxed)), (5000, 6000));
}
