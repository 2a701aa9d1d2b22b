//! Sockets of one machine: of the Unix kind, and those of the network that stay on it (`127.0.0.1`, `::1`).
//!
//! Each socket has an inbox. Two that are connected know each other's, and never each other: who closes leaves word in both.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::errno::Errno;
use crate::left::{Leaving, Left};
use crate::open::Open;
use crate::pipe::{first, take_first};
use crate::sync::{Mutex, Spin, key_of};

pub use crate::socket_names::{Name, Names, shares};

/// The family of sockets of one machine.
pub const UNIX: u16 = 1;

/// Bytes that are sent and not received at most, unless it is said otherwise.
pub const ROOM: usize = 212_992;
/// Bytes that each packet is counted with beyond its own.
const OVERHEAD: usize = 256;

/// What of that whoever sends may have on its way, and what waits beside it where it comes.
fn rooms(family: u16, kind: u32) -> [usize; 2] {
    match (family, kind) {
        (UNIX, _) => [ROOM, 0],
        (_, kind::PACKETS) => [0, ROOM],
        _ => [ROOM / 2, ROOM / 2],
    }
}

/// Kinds of sockets, by their numbers.
pub mod kind {
    /// Bytes in order.
    pub const STREAM: u32 = 1;
    /// Packets.
    pub const PACKETS: u32 = 2;
    /// Packets, between two.
    pub const SEQUENCE: u32 = 5;
}

/// Who sends.
#[derive(Clone, PartialEq, Eq)]
pub struct Sender {
    /// From which address.
    pub address: Arc<[u8]>,
    /// The process, its user and its group, as whoever receives may ask to be told.
    pub who: [u32; 3],
}

impl Sender {
    /// Nobody knows who it is.
    pub const UNKNOWN: [u32; 3] = [0, 65_534, 65_534];

    /// One of whom only that is known.
    pub fn at(address: &Arc<[u8]>) -> Sender {
        Sender { address: address.clone(), who: Self::UNKNOWN }
    }
}

/// What one send has left.
pub struct Packet {
    /// What is left of it.
    pub bytes: VecDeque<u8>,
    /// Who sent it.
    pub from: Sender,
    /// Open files that come with it.
    pub files: Vec<Arc<Open>>,
}

#[derive(Default)]
struct Content {
    packets: VecDeque<Packet>,
    bytes: usize,
    /// Nobody sends any more.
    ended: bool,
    /// Nobody receives any more; and the socket is gone.
    closed: bool,
    gone: bool,
    /// Whether whoever sent here broke off.
    broken: Broken,
    /// The last byte of the stream that was sent as urgent, until what is read goes past it.
    mark: Option<Mark>,
}

/// A byte of a stream that need not wait until those before it are read.
struct Mark {
    /// Bytes that come before it.
    before: usize,
    /// Somebody has taken it, out of its turn.
    is_taken: bool,
}

impl Content {
    /// Whether the next byte is the urgent one.
    fn is_at_mark(&self) -> bool {
        self.mark.as_ref().is_some_and(|mark| mark.before == 0)
    }

    /// Bytes that are there, those that nobody reads in their turn too.
    fn all(&self) -> usize {
        self.packets.iter().map(|packet| packet.bytes.len()).sum()
    }

    /// The next byte is the urgent one and goes unread, as who reads wants it.
    fn pass_mark(&mut self) {
        self.mark = None;
        if let Some(packet) = self.packets.front_mut() {
            packet.bytes.pop_front();
            self.bytes -= 1;
            if packet.bytes.is_empty() {
                self.bytes -= OVERHEAD;
                self.packets.pop_front();
            }
        }
    }
}

/// Whether the other end broke off: it was closed with bytes that it had not read, never taken in, or something was sent to it that it does not hear any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Broken {
    /// It did not.
    #[default]
    No,
    /// It did, and nobody has heard of that, as this error.
    Yes(Errno),
    /// That was said.
    Said,
}

/// What has been sent to a socket.
pub struct Inbox {
    content: Spin<Content>,
    /// How often something has come here, how often room has, and how often one of the ends has said its last.
    changes: [AtomicU64; 3],
    /// Bytes that wait here beside what whoever sends may have on its way.
    takes: AtomicUsize,
    /// Whether who sends is to be noted: whoever receives asks for it, or nobody has taken it in yet.
    pub asks_who: AtomicBool,
    /// Whether the urgent byte is read among the others, and not beside them.
    pub is_inline: AtomicBool,
    left: Arc<Left>,
}

/// What came of a look into an inbox.
pub struct Received {
    /// The bytes, as many as were wanted.
    pub bytes: Vec<u8>,
    /// How long the packet was.
    pub whole: usize,
    /// Who sent it.
    pub from: Sender,
    /// What came with it.
    pub files: Vec<Arc<Open>>,
    /// The urgent byte comes next: no read goes over it.
    pub is_at_mark: bool,
}

impl Received {
    /// Nothing, from nobody.
    pub fn nothing() -> Received {
        let (bytes, files) = (Vec::new(), Vec::new());
        Received { bytes, whole: 0, from: Sender::at(&Arc::from([])), files, is_at_mark: false }
    }
}

/// Whether something can be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// So many bytes went.
    Bytes(usize),
    /// It must be waited for.
    Wait,
    /// Nobody receives any more.
    Closed,
}

impl Inbox {
    /// An empty one.
    pub fn new(left: &Arc<Left>, takes: usize) -> Arc<Inbox> {
        let (content, changes) = (Spin::default(), Default::default());
        let (takes, asks_who, is_inline) = (AtomicUsize::new(takes), Default::default(), Default::default());
        Arc::new(Inbox { content, changes, takes, asks_who, is_inline, left: left.clone() })
    }

    /// How many bytes more may come of one who may have so many on their way.
    fn room(&self, content: &Content, sends: usize) -> usize {
        (self.takes.load(Ordering::Relaxed) + sends).saturating_sub(content.bytes)
    }

    fn comes(&self) {
        self.changes[0].fetch_add(1, Ordering::SeqCst);
    }

    /// There may be room now.
    pub fn goes(&self) {
        self.changes[1].fetch_add(1, Ordering::SeqCst);
    }

    /// Whatever somebody waits for, it hears of this.
    fn ends(&self) {
        self.changes[2].fetch_add(1, Ordering::SeqCst);
    }

    /// Takes up to `most` bytes: of a stream from as many packets of one sender as it takes, up to one with files; of others from one. `None`: there is
    /// nothing yet. With `peek` it stays. A read ends before the urgent byte, and one that begins there goes past it.
    pub fn receive(&self, most: usize, stream: bool, peek: bool) -> Option<Received> {
        let mut received = Received::nothing();
        let is_inline = self.is_inline.load(Ordering::Relaxed);
        let found = self.content.with(|content| {
            let passes = content.is_at_mark() && most > 0;
            if passes && !peek && is_inline {
                content.mark = None;
            } else if passes && !peek {
                content.pass_mark();
            }
            let skip = usize::from(passes && peek && !is_inline);
            let ahead = content.mark.as_ref().filter(|_| !passes).map(|mark| mark.before);
            let most = ahead.map_or(most, |before| most.min(before));
            // A packet that is no more than the urgent byte is looked over.
            let over = usize::from(
                skip > 0 && content.packets.front().is_some_and(|packet| packet.bytes.len() == skip),
            );
            if content.packets.len() <= over {
                return content.ended || content.closed;
            }
            if peek {
                let packet = &content.packets[over];
                let skip = skip - over;
                received.whole = packet.bytes.len() - skip;
                received.bytes = first(&packet.bytes, most + skip).split_off(skip);
                received.from = packet.from.clone();
                received.files.clone_from(&packet.files);
                if !packet.files.is_empty() {
                    self.left.flights.take();
                }
                return true;
            }
            let mut first = true;
            while let Some(packet) = content.packets.front_mut() {
                if !first
                    && (received.bytes.len() == most
                        || !received.files.is_empty()
                        || received.from.who != packet.from.who)
                {
                    break;
                }
                let take = packet.bytes.len().min(most - received.bytes.len());
                if first {
                    received.whole = packet.bytes.len();
                    received.from = packet.from.clone();
                }
                if !packet.files.is_empty() {
                    received.files = core::mem::take(&mut packet.files);
                    self.left.flights.take();
                }
                let before = received.bytes.len();
                received.bytes.resize(before + take, 0);
                take_first(&mut packet.bytes, &mut received.bytes[before..]);
                content.bytes -= take;
                first = false;
                let done = packet.bytes.is_empty() || !stream;
                if done {
                    let left = packet.bytes.len();
                    content.bytes -= left + OVERHEAD;
                    content.packets.pop_front();
                }
                if !done || !stream {
                    break;
                }
            }
            if let Some(mark) = &mut content.mark {
                mark.before -= received.bytes.len();
                received.is_at_mark = mark.before == 0;
            }
            true
        });
        if found && !peek {
            self.goes();
        }
        found.then_some(received)
    }

    /// Puts a packet in, whole; of a stream as much as there is room for, and nothing behind the end.
    pub fn send(
        &self,
        bytes: &[u8],
        from: &Sender,
        files: Vec<Arc<Open>>,
        stream: bool,
        sends: usize,
    ) -> Sent {
        self.send_as(bytes, from, files, (stream, false), sends)
    }

    /// The same; of a stream the last byte may be urgent, once it goes in. Another before it is as all others now; but who has read all that came before that does
    /// not read it.
    pub fn send_as(
        &self,
        bytes: &[u8],
        from: &Sender,
        files: Vec<Arc<Open>>,
        (stream, is_urgent): (bool, bool),
        sends: usize,
    ) -> Sent {
        let sent = self.content.with(|content| {
            if content.closed || content.ended {
                return Sent::Closed;
            }
            let room = self.room(content, sends);
            let fits = if stream { room.saturating_sub(OVERHEAD).min(bytes.len()) } else { bytes.len() };
            // What may be on its way is reckoned before, so that one packet may be more than is left; where it comes it must fit.
            let needs = if sends > 0 { 1 } else { bytes.len() + OVERHEAD };
            let is_full =
                if stream { fits == 0 && !bytes.is_empty() } else { room < needs && content.bytes > 0 };
            if is_full {
                return Sent::Wait;
            }
            let is_urgent = is_urgent && fits == bytes.len();
            if is_urgent && content.is_at_mark() && !self.is_inline.load(Ordering::Relaxed) {
                content.pass_mark();
            }
            content.bytes += fits;
            match content.packets.back_mut() {
                // Small pieces of a stream become one.
                Some(last)
                    if stream
                        && files.is_empty()
                        && last.files.is_empty()
                        && last.from.who == from.who
                        && last.bytes.len() < ROOM / 4 =>
                {
                    last.bytes.extend(&bytes[..fits]);
                }
                _ => {
                    content.bytes += OVERHEAD;
                    let bytes = VecDeque::from(bytes[..fits].to_vec());
                    content.packets.push_back(Packet { bytes, from: from.clone(), files });
                }
            }
            if is_urgent {
                content.mark = Some(Mark { before: content.all() - 1, is_taken: false });
            }
            Sent::Bytes(fits)
        });
        if let Sent::Bytes(_) = sent {
            self.comes();
        }
        sent
    }

    /// Whether a read would not wait; whether nobody sends any more; whether nobody receives any more.
    pub fn state(&self) -> (bool, bool, bool) {
        self.content.with(|content| {
            let is_urgent = content.is_at_mark() && !self.is_inline.load(Ordering::Relaxed);
            let is_alone = is_urgent && content.all() == 1;
            let some = !content.packets.is_empty() && !is_alone;
            (some || content.ended || content.closed, content.ended, content.closed)
        })
    }

    /// Whether there is room for one who may have so many bytes on their way.
    pub fn has_room(&self, sends: usize) -> bool {
        self.content.with(|content| self.room(content, sends) > OVERHEAD)
    }

    /// Bytes in it: all of a stream, up to the urgent byte if that is read beside the others, or of the next packet.
    pub fn len(&self, stream: bool) -> usize {
        self.content.with(|content| match &content.mark {
            Some(mark) if !self.is_inline.load(Ordering::Relaxed) => mark.before,
            _ if stream => content.all(),
            _ => content.packets.front().map_or(0, |packet| packet.bytes.len()),
        })
    }

    /// The urgent byte, if nobody has taken it; it stays there to be looked at, or is taken.
    pub fn urgent(&self, stays: bool) -> Option<u8> {
        if self.is_inline.load(Ordering::Relaxed) {
            return None;
        }
        self.content.with(|content| {
            let mark = content.mark.as_mut().filter(|mark| !mark.is_taken)?;
            mark.is_taken = !stays;
            let mut place = mark.before;
            content.packets.iter().find_map(|packet| {
                let byte = packet.bytes.get(place).copied();
                place = place.wrapping_sub(packet.bytes.len());
                byte
            })
        })
    }

    /// Whether there is an urgent byte that nobody has taken or read; and whether it comes next.
    pub fn urgency(&self) -> (bool, bool) {
        self.content
            .with(|content| (content.mark.as_ref().is_some_and(|mark| !mark.is_taken), content.is_at_mark()))
    }

    /// Nobody sends any more: whoever did broke off, which is said once what came before is read.
    pub fn break_off(&self, said: Errno) {
        self.content.with(|content| (content.ended, content.broken) = (true, Broken::Yes(said)));
        self.ends();
    }

    /// Whether whoever sent here broke off.
    pub fn broken(&self) -> Broken {
        self.content.with(|content| content.broken)
    }

    /// What is to be said of that now; with `read`, only if nothing is left to be read, and not if it was sent to one that had said all: then it reads the end.
    pub fn take_break(&self, read: bool) -> Option<Errno> {
        self.content.with(|content| match content.broken {
            Broken::Yes(said) if !read || said == Errno::ECONNRESET && content.packets.is_empty() => {
                content.broken = Broken::Said;
                Some(said)
            }
            _ => None,
        })
    }

    /// Whether something is left to be read.
    fn is_left(&self) -> bool {
        self.content.with(|content| !content.packets.is_empty())
    }

    /// Nobody sends any more.
    pub fn end(&self) {
        self.content.with(|content| content.ended = true);
        self.ends();
    }

    /// Nobody receives any more but what is there.
    pub fn close_behind(&self) {
        self.content.with(|content| content.closed = true);
        self.ends();
    }

    /// Whether its socket is gone.
    pub fn is_gone(&self) -> bool {
        self.content.with(|content| content.gone)
    }

    /// Nobody receives any more; what was there is gone, but for files that were on their way.
    #[must_use = "files that lie in each other are closed one after the other"]
    pub fn close(&self) -> Vec<Arc<Open>> {
        let gone = self.content.with(|content| {
            (content.closed, content.gone) = (true, true);
            (content.bytes, content.mark) = (0, None);
            core::mem::take(&mut content.packets)
        });
        self.ends();
        gone.into_iter().flat_map(|packet| packet.files).collect()
    }
}

/// Who is at the other end.
#[derive(Clone)]
pub struct Peer {
    /// Its inbox.
    pub inbox: Arc<Inbox>,
    /// Its address.
    pub address: Arc<[u8]>,
    /// The process, its user and its group, as they were when it was connected or began to listen.
    pub who: [u32; 3],
}

/// Nobody knows who is at the other end.
pub const NOBODY: [u32; 3] = [0, u32::MAX, u32::MAX];

/// What changes about a socket.
pub struct State {
    /// Its address; of one without, the family only.
    pub own: Arc<[u8]>,
    /// Under which it stands among the names: one of the network may have its port in both kinds of addresses.
    pub names: Vec<Vec<u8>>,
    /// What it sent last came to nobody, and it has not heard of that.
    pub refused: bool,
    /// It was given its address by its program; that is all of this machine.
    pub bound: bool,
    pub anywhere: bool,
    /// Options that were set, by level and number: nothing else depends on them.
    pub options: BTreeMap<(u32, u32), Vec<u8>>,
    /// Whom it is connected to.
    pub peer: Option<Peer>,
    /// Who began to listen.
    pub listens_as: [u32; 3],
    /// Sockets that wait to be accepted, and how many may; `None` if it does not listen.
    pub waiting: Option<(VecDeque<Arc<Socket>>, usize)>,
    /// It sends no more.
    pub silent: bool,
    /// How long a receive and a send wait, in nanoseconds; 0 for ever.
    pub times: [u64; 2],
    /// What is still to be said of a connection that was not waited for.
    pub late: Late,
    /// Its messages ask for sockets (of `netlink` alone).
    pub asks_sockets: bool,
}

/// What came of such a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Late {
    /// It has been said.
    #[default]
    Nothing,
    /// It is there.
    There,
    /// Nobody listened.
    Refused,
    /// That was said, but not by another try.
    Over,
}

/// A socket.
pub struct Socket {
    /// Which family of addresses.
    pub family: u16,
    /// See [`kind`].
    pub kind: u32,
    /// What was sent to it.
    pub inbox: Arc<Inbox>,
    /// Bytes that it may have on their way.
    sends: AtomicUsize,
    /// Rights to it, and to the file that has its address.
    pub rights: AtomicU32,
    /// The rest.
    pub state: Spin<State>,
    /// How often one came that waits to be accepted, and the like.
    pub changes: AtomicU64,
    /// Held while it gets its address: of two that give it one, one does.
    pub naming: Mutex<()>,
    names: Arc<Names>,
    left: Arc<Left>,
}

impl Socket {
    /// A new one, with nobody at the other end.
    pub fn new(family: u16, kind: u32, names: &Arc<Names>, left: &Arc<Left>) -> Arc<Socket> {
        let own = Arc::from(family.to_le_bytes());
        let (names_now, options) = (Vec::new(), BTreeMap::new());
        let (peer, waiting, silent, times) = (None, None, false, [0; 2]);
        let [sends, takes] = rooms(family, kind);
        let state = State {
            own,
            names: names_now,
            bound: false,
            anywhere: false,
            refused: false,
            options,
            peer,
            listens_as: NOBODY,
            waiting,
            silent,
            times,
            late: Late::Nothing,
            asks_sockets: false,
        };
        Arc::new(Socket {
            family,
            kind,
            inbox: Inbox::new(left, takes),
            sends: AtomicUsize::new(sends),
            rights: AtomicU32::new(0o777),
            state: Spin::new(state),
            changes: AtomicU64::new(0),
            naming: Mutex::new(()),
            names: names.clone(),
            left: left.clone(),
        })
    }

    /// Bytes that it may have on their way: of packets of the Unix kind in one, since many share the room.
    pub fn sends(&self) -> usize {
        self.sends.load(Ordering::Relaxed)
    }

    /// What of the room where it sends to it may fill.
    pub fn fills(&self) -> usize {
        let sends = self.sends();
        if self.family == UNIX && !self.is_stream() { sends.max(ROOM) } else { sends }
    }

    /// It has as much room as another of its kind.
    pub fn takes_after(&self, other: &Socket) {
        self.set_room(false, other.sends());
        self.set_room(true, other.inbox.takes.load(Ordering::Relaxed));
    }

    /// It has room for so many bytes that it sends, or that it receives, from now on.
    pub fn set_room(&self, receives: bool, bytes: usize) {
        let at = if receives { &self.inbox.takes } else { &self.sends };
        // What does not count for its kind does not count now.
        if rooms(self.family, self.kind)[usize::from(receives)] > 0 {
            at.store(bytes, Ordering::Relaxed);
        }
    }

    /// Whether nobody listened when it was connected, which whoever asks hears once.
    pub fn was_refused(&self) -> bool {
        self.state.with(|state| {
            let refused = state.late == Late::Refused;
            if refused {
                state.late = Late::Over;
            }
            refused
        })
    }

    /// What it sent came to nobody: the next who asks hears of it.
    pub fn refuse(&self) {
        self.state.with(|state| state.refused = true);
        self.inbox.comes();
    }

    /// Whether that is so, for whoever asks.
    pub fn take_refusal(&self) -> bool {
        self.state.with(|state| core::mem::take(&mut state.refused))
    }

    /// It talks to nobody any more: it is where its program had it, or nowhere.
    pub fn comes_apart(&self) {
        let gone = self.state.with(|state| {
            let mut own = state.own.to_vec();
            if !state.bound {
                own.truncate(2);
            } else if state.anywhere {
                own[4..].fill(0);
            }
            state.own = Arc::from(own);
            if state.bound { Vec::new() } else { core::mem::take(&mut state.names) }
        });
        gone.iter().for_each(|name| self.names.take(name, self));
    }

    /// Whether bytes have no borders.
    pub fn is_stream(&self) -> bool {
        self.kind == kind::STREAM
    }

    /// Whom it is connected to.
    pub fn peer(&self) -> Option<Peer> {
        self.state.with(|state| state.peer.clone())
    }

    /// Its address.
    pub fn own(&self) -> Arc<[u8]> {
        self.state.with(|state| state.own.clone())
    }

    fn as_peer(&self) -> Peer {
        Peer { inbox: self.inbox.clone(), address: self.own(), who: NOBODY }
    }

    /// Both are each other's other end, unless this one has another, or listens: says which. The other is one that nobody else can find.
    pub fn join(&self, other: &Socket) -> bool {
        let (mine, theirs) = (self.as_peer(), other.as_peer());
        let joined = self.state.with(|state| {
            let free = state.peer.is_none() && state.waiting.is_none();
            if free {
                state.peer = Some(theirs);
            }
            free
        });
        if !joined {
            return false;
        }
        other.state.with(|state| state.peer = Some(mine));
        [&self.inbox, &other.inbox].iter().for_each(|inbox| {
            inbox.comes();
            inbox.goes();
        });
        true
    }

    /// Goes through the open files that lie in its inbox, and in those of sockets that wait to be accepted here.
    pub fn each_file(&self, each: &mut dyn FnMut(&Arc<Open>)) {
        let mut inbox = |inbox: &Inbox| {
            inbox
                .content
                .with(|content| content.packets.iter().flat_map(|packet| &packet.files).for_each(&mut *each));
        };
        inbox(&self.inbox);
        self.state.with(|state| {
            state.waiting.iter().flat_map(|(all, _)| all).for_each(|socket| inbox(&socket.inbox));
        });
    }

    /// Nobody will receive anything here any more. What lies there goes, and so do sockets that wait to be accepted.
    #[must_use = "files that lie in each other are closed one after the other"]
    pub fn empty(&self) -> Vec<Arc<Open>> {
        let waiting = self.state.with(|state| state.waiting.take());
        turn_away(waiting);
        self.inbox.close()
    }

    /// It is to receive no more but what is there, and takes in nobody any more.
    pub fn hears_no_more(&self) {
        let waiting = self.state.with(|state| state.waiting.take());
        turn_away(waiting);
        self.inbox.close_behind();
    }

    /// Whether an option of it is on.
    pub fn is_set(&self, level: u32, what: u32) -> bool {
        let is_on = |word: &Vec<u8>| word.iter().any(|&byte| byte != 0);
        self.state.with(|state| state.options.get(&(level, what)).is_some_and(is_on))
    }

    /// It is to be closed at once, whatever is on its way.
    fn closes_at_once(&self) -> bool {
        const LINGER: (u32, u32) = (1, 13);
        let how = self.state.with(|state| state.options.get(&LINGER).cloned());
        self.family != UNIX
            && how.is_some_and(|how| how.len() >= 8 && how[..4] != [0; 4] && how[4..8] == [0; 4])
    }

    /// How often anything has come, and how often room has where it sends to.
    pub fn changes(&self) -> [u64; 2] {
        /// So far apart that none of the others makes up for one of its own: whom it is connected to may change.
        const APART: u64 = 0x9e37_79b9_7f4a_7c15;
        let count = |inbox: &Inbox, which: usize| inbox.changes[which].load(Ordering::SeqCst);
        let [room, over] = self.peer().map_or([0; 2], |peer| [1, 2].map(|which| count(&peer.inbox, which)));
        let own = self.changes.load(Ordering::SeqCst).wrapping_mul(APART);
        let all = own.wrapping_add(count(&self.inbox, 2) + over);
        [all.wrapping_add(count(&self.inbox, 0)), all.wrapping_add(room)]
    }
}

/// Sockets that nobody takes in any more.
fn turn_away(waiting: Option<(VecDeque<Arc<Socket>>, usize)>) {
    for socket in waiting.into_iter().flat_map(|(all, _)| all) {
        if let Some(peer) = socket.peer() {
            peer.inbox.break_off(Errno::ECONNRESET);
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let breaks = self.inbox.is_left() || self.closes_at_once();
        let (names, peer, waiting) = self
            .state
            .with(|state| (core::mem::take(&mut state.names), state.peer.take(), state.waiting.take()));
        names.iter().for_each(|name| self.names.forget(name));
        self.left.add_open(self.inbox.close());
        self.left.add(Leaving::Key(key_of(&*self.inbox)));
        if let Some(peer) = peer {
            match self.kind {
                kind::PACKETS => {}
                _ if breaks => peer.inbox.break_off(Errno::ECONNRESET),
                _ => peer.inbox.end(),
            }
            self.left.add(Leaving::Key(key_of(&*peer.inbox)));
        }
        // Who waits to be taken in.
        self.left.add(Leaving::Key(key_of(&self.changes)));
        turn_away(waiting);
    }
}

#[cfg(test)]
mod tests;
