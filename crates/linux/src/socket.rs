//! Sockets of one machine: of the Unix kind, and those of the network that stay on it (`127.0.0.1`, `::1`).
//!
//! Each socket has an inbox. Two that are connected know each other's, and never each other: who closes leaves word in both.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::errno::Errno;
use crate::left::{Leaving, Left};
use crate::open::Open;
use crate::sync::{Mutex, Spin, key_of};

pub use crate::inbox::{Broken, Inbox, ROOM, Received, Sender, Sent};
pub use crate::socket_names::{Name, Names, shares};

/// The family of sockets of one machine.
pub const UNIX: u16 = 1;

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
        self.inbox.each_file(each);
        self.state.with(|state| {
            state.waiting.iter().flat_map(|(all, _)| all).for_each(|socket| socket.inbox.each_file(each));
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
