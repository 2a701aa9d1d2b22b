//! Under which names sockets are found. Several may have one, if all of them said that they share it.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::network::is_same;
use crate::socket::{Socket, State, UNIX, kind};
use crate::sync::Spin;

/// With whom a socket shares its names: with those that have a bit of it too.
pub mod shares {
    /// With nobody.
    pub const NOBODY: u8 = 0;
    /// With those that may use an address again (`SO_REUSEADDR`).
    pub const ADDRESS: u8 = 1;
    /// With those that share a port (`SO_REUSEPORT`).
    pub const PORT: u8 = 2;
}

/// A name: of the network a port, and at which address of this machine; none is all of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name {
    /// By which it is looked for.
    pub key: Vec<u8>,
    /// The address, as it lies in memory; empty for all.
    pub host: Vec<u8>,
}

impl Name {
    /// One that is the same at all addresses, or has none.
    pub fn anywhere(key: &[u8]) -> Name {
        Name { key: key.to_vec(), host: Vec::new() }
    }
}

/// One that has a name.
struct Holder {
    socket: Weak<Socket>,
    host: Vec<u8>,
    shares: u8,
}

impl Holder {
    fn is_there(&self) -> bool {
        self.socket.strong_count() > 0
    }

    /// Whether somebody who looks for this address can mean it.
    fn meets(&self, host: &[u8]) -> bool {
        self.host.is_empty() || host.is_empty() || self.host == host
    }
}

/// Who can be found under which name.
#[derive(Default)]
pub struct Names {
    all: Spin<BTreeMap<Vec<u8>, Vec<Holder>>>,
    /// Whose turn it is, of listeners that share a name.
    turn: AtomicUsize,
}

impl Names {
    /// Who has this name. Of several: of packets the one that talks to whoever asks, or the newest that talks to nobody; of others those that
    /// listen, in turn. Whoever has it at this one address comes before those that have it at all.
    pub fn find(&self, name: &Name, asks: &[u8]) -> Option<Arc<Socket>> {
        // Let go of after the lock: the last one to let go of a socket takes its names.
        let mut found: Vec<_> = self.all.with(|all| {
            let holders = all.get(&name.key).into_iter().flatten().filter(|holder| holder.meets(&name.host));
            holders.filter_map(|holder| Some((holder.socket.upgrade()?, !holder.host.is_empty()))).collect()
        });
        // Of the network who talks to another hears nothing of whoever asks.
        found.retain(|(socket, _)| {
            let peer =
                |state: &mut State| state.peer.as_ref().is_none_or(|peer| is_same(&peer.address, asks));
            socket.kind != kind::PACKETS || socket.family == UNIX || socket.state.with(peer)
        });
        let listens = |socket: &Arc<Socket>| socket.state.with(|state| state.waiting.is_some());
        let counts = |socket: &Arc<Socket>| socket.kind == kind::PACKETS || listens(socket);
        let exact = found.iter().any(|(socket, exact)| *exact && counts(socket));
        let mut there: Vec<_> =
            found.into_iter().filter(|(_, is)| *is || !exact).map(|(socket, _)| socket).collect();
        if there.len() > 1 {
            if there[0].kind == kind::PACKETS {
                let talks = |socket: &Arc<Socket>| socket.state.with(|state| state.peer.is_some());
                if let Some(found) = there.iter().rposition(talks) {
                    return Some(there.swap_remove(found));
                }
            } else {
                let listeners: Vec<_> = there.iter().filter(|socket| listens(socket)).cloned().collect();
                if !listeners.is_empty() {
                    let turn = self.turn.fetch_add(1, Ordering::Relaxed) % listeners.len();
                    return listeners.into_iter().nth(turn);
                }
            }
        }
        there.pop()
    }

    /// Gives a name; false if somebody has it.
    pub fn put(&self, key: &[u8], socket: &Arc<Socket>) -> bool {
        self.put_all(&[Name::anywhere(key)], socket, shares::NOBODY)
    }

    /// Gives all of these names, or none: to a socket that has them with those that share them too.
    pub fn put_all(&self, names: &[Name], socket: &Arc<Socket>, shares: u8) -> bool {
        self.give(names, socket, shares, shares)
    }

    /// The same of names that nobody has yet.
    pub fn put_new(&self, names: &[Name], socket: &Arc<Socket>, shares: u8) -> bool {
        self.give(names, socket, shares, shares::NOBODY)
    }

    fn give(&self, names: &[Name], socket: &Arc<Socket>, shares: u8, with: u8) -> bool {
        let free = self.all.with(|all| {
            let may = |holder: &Holder, name: &Name| {
                !holder.is_there() || !holder.meets(&name.host) || holder.shares & with != 0
            };
            let free = names
                .iter()
                .all(|name| all.get(&name.key).into_iter().flatten().all(|holder| may(holder, name)));
            for name in names.iter().filter(|_| free) {
                let holders = all.entry(name.key.clone()).or_default();
                holders.retain(Holder::is_there);
                holders.push(Holder { socket: Arc::downgrade(socket), host: name.host.clone(), shares });
            }
            free
        });
        if free {
            let keys = names.iter().map(|name| name.key.clone()).collect();
            socket.state.with(|state| state.names = keys);
        }
        free
    }

    /// Takes a name from one that has it.
    pub(super) fn take(&self, name: &[u8], socket: &Socket) {
        self.all.with(|all| {
            if let Some(holders) = all.get_mut(name) {
                holders.retain(|holder| holder.is_there() && !core::ptr::eq(holder.socket.as_ptr(), socket));
                if holders.is_empty() {
                    all.remove(name);
                }
            }
        });
    }

    /// One that had this name is gone.
    pub(super) fn forget(&self, name: &[u8]) {
        self.all.with(|all| {
            if let Some(holders) = all.get_mut(name) {
                holders.retain(Holder::is_there);
                if holders.is_empty() {
                    all.remove(name);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{Inbox, NOBODY, Peer};

    fn is(found: Option<Arc<Socket>>, socket: &Arc<Socket>) -> bool {
        found.is_some_and(|found| Arc::ptr_eq(&found, socket))
    }

    #[test]
    fn a_name_is_free_once_its_socket_is_gone() {
        let (names, left) = (Arc::default(), Arc::default());
        let new = || Socket::new(1, kind::STREAM, &names, &left);
        let (a, b) = (new(), new());
        assert!(names.put(b"x", &a) && !names.put(b"x", &b));
        assert!(is(names.find(&Name::anywhere(b"x"), b""), &a));
        drop(a);
        assert!(names.find(&Name::anywhere(b"x"), b"").is_none() && names.put(b"x", &b));
    }

    #[test]
    fn sockets_share_a_name_if_all_of_them_say_so() {
        let (names, left) = (Arc::default(), Arc::default());
        let new = || Socket::new(2, kind::PACKETS, &names, &left);
        let (a, b, c) = (new(), new(), new());
        let name = [Name::anywhere(b"x")];
        assert!(names.put_all(&name, &a, shares::ADDRESS) && !names.put_all(&name, &b, shares::NOBODY));
        assert!(!names.put_all(&name, &b, shares::PORT), "of another kind");
        assert!(names.put_all(&name, &b, shares::ADDRESS | shares::PORT));
        assert!(!names.put_all(&name, &c, shares::PORT), "one of them does not share ports");
        assert!(is(names.find(&Name::anywhere(b"x"), b"me"), &b), "the newest");
        let peer = Peer { inbox: Inbox::new(&left, 0), address: Arc::from(&b"me"[..]), who: NOBODY };
        a.state.with(|state| state.peer = Some(peer.clone()));
        assert!(is(names.find(&Name::anywhere(b"x"), b"me"), &a), "who talks to whoever asks");
        assert!(is(names.find(&Name::anywhere(b"x"), b"else"), &b));
        drop(b);
        assert!(names.find(&Name::anywhere(b"x"), b"else").is_none(), "it talks to another");
        assert!(is(names.find(&Name::anywhere(b"x"), b"me"), &a) && !names.put(b"x", &c));
    }

    #[test]
    fn those_that_listen_take_turns() {
        let (names, left) = (Arc::default(), Arc::default());
        let all = [0; 3].map(|_| Socket::new(2, kind::STREAM, &names, &left));
        let name = [Name::anywhere(b"x")];
        assert!(all.iter().all(|socket| names.put_all(&name, socket, shares::PORT)));
        for socket in &all[1..] {
            socket.state.with(|state| state.waiting = Some((alloc::collections::VecDeque::new(), 1)));
        }
        let found: Vec<_> = (0..4).filter_map(|_| names.find(&Name::anywhere(b"x"), b"")).collect();
        let count = |socket| found.iter().filter(|found| Arc::ptr_eq(found, socket)).count();
        assert_eq!([count(&all[0]), count(&all[1]), count(&all[2])], [0, 2, 2]);
    }

    #[test]
    fn one_port_is_several_at_several_addresses() {
        let (names, left) = (Arc::default(), Arc::default());
        let new = |kind| Socket::new(2, kind, &names, &left);
        let at = |host: &[u8]| Name { key: b"x".to_vec(), host: host.to_vec() };
        let (a, b, all) = (new(kind::STREAM), new(kind::STREAM), new(kind::STREAM));
        assert!(names.put_all(&[at(b"1")], &a, shares::NOBODY), "nobody has it");
        assert!(!names.put_all(&[at(b"1")], &b, shares::NOBODY), "it is had there");
        assert!(!names.put_all(&[at(b"")], &b, shares::NOBODY), "all of them are one more");
        assert!(names.put_all(&[at(b"2")], &b, shares::NOBODY), "another one");
        assert!(is(names.find(&at(b"1"), b""), &a) && is(names.find(&at(b"2"), b""), &b));
        assert!(names.find(&at(b"3"), b"").is_none());
        drop((a, b));
        let (one, names) = (new(kind::PACKETS), Names::default());
        assert!(
            names.put_all(&[at(b"")], &all, shares::PORT) && names.put_all(&[at(b"1")], &one, shares::PORT)
        );
        assert!(is(names.find(&at(b"1"), b""), &one), "who has it there comes first");
        assert!(is(names.find(&at(b"2"), b""), &all));
    }
}
