//! Connections of sockets: to listen, to connect, to take in who has connected, and to say no more.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use super::UNIX;
use crate::connections::leads_nowhere;
use crate::errno::{Answer, Errno};
use crate::kernel::{AGAIN, Linux, Waited};
use crate::machine::Machine;
use crate::network::port_in;
use crate::open::flag;
use crate::process::Thread;
use crate::socket::{Inbox, Late, NOBODY, Peer, kind};
use crate::sync::key_of;

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn listen(&self, thread: &Thread, number: u64, most: u64) -> Answer {
        let (_, socket) = self.socket_of(thread, number)?;
        if socket.kind == kind::PACKETS {
            return Err(Errno::EOPNOTSUPP);
        }
        if socket.family == UNIX && socket.state.with(|state| state.names.is_empty())
            || socket.peer().is_some()
        {
            return Err(Errno::EINVAL);
        }
        self.give_any_port(&socket)?;
        let most = (most as u32).min(4096) as usize;
        socket.state.with(|state| {
            state.listens_as = Self::seen_as(thread);
            match &mut state.waiting {
                Some((_, now)) => *now = most,
                // It may have connected meanwhile.
                _ if state.peer.is_some() => return Err(Errno::EINVAL),
                none => *none = Some((alloc::collections::VecDeque::new(), most)),
            }
            Ok(())
        })?;
        // Whoever waits to be taken in may have room now.
        self.changed(key_of(&socket.changes));
        Ok(0)
    }

    pub(crate) fn connect(&self, thread: &Thread, number: u64, at: u64, len: u64) -> Answer {
        let (open, socket) = self.socket_of(thread, number)?;
        let address = self.load_address(at, len)?;
        if socket.family == super::netlink::FAMILY {
            self.bind_netlink(thread, &socket, 0);
            return Ok(0);
        }
        if socket.kind == kind::PACKETS {
            let peer = match u16::from_le_bytes([address[0], address[1]]) {
                0 => None,
                // A port that there is not is nobody's.
                _ if socket.family != UNIX && address.len() >= 16 && port_in(&address) == 0 => None,
                _ => {
                    Some(match self.find_socket(thread, &socket, &address) {
                        Ok(found) => self.peer_at(&found, &address),
                        // Of the network nobody need be there: whoever sends hears of it.
                        Err(Errno::ECONNREFUSED) if socket.family != UNIX => {
                            let inbox = Inbox::new(&self.left, 0);
                            self.left.add_open(inbox.close());
                            Peer { inbox, address: Arc::from(address.as_slice()), who: NOBODY }
                        }
                        Err(error) => return Err(error),
                    })
                }
            };
            if address[..2] != [0; 2] {
                self.give_port(&socket, &address, true)?;
            } else if socket.family != UNIX {
                socket.comes_apart();
            }
            let before = socket.state.with(|state| core::mem::replace(&mut state.peer, peer));
            drop(before);
            // Where it sends to now there may be room.
            socket.changes.fetch_add(1, Ordering::SeqCst);
            self.changed(key_of(&socket.changes));
            return Ok(0);
        }
        if socket.state.with(|state| state.waiting.is_some()) {
            return Err(Errno::EINVAL);
        }
        // What was not waited for is said now.
        match socket.state.with(|state| core::mem::take(&mut state.late)) {
            Late::Nothing => {}
            Late::There => return Ok(0),
            Late::Refused => return Err(Errno::ECONNREFUSED),
            Late::Over => return Err(Errno::ECONNABORTED),
        }
        if socket.peer().is_some() {
            return Err(Errno::EISCONN);
        }
        let goes_on = open.has(flag::NO_WAIT) && socket.family != UNIX;
        let refuse = || {
            socket.state.with(|state| state.late = Late::Refused);
            socket.changes.fetch_add(1, Ordering::SeqCst);
            self.changed(key_of(&socket.changes));
            Err(Errno::EINPROGRESS)
        };
        let listener = match self.find_socket(thread, &socket, &address) {
            Err(Errno::ECONNREFUSED) if goes_on => return refuse(),
            found => found?,
        };
        self.give_port(&socket, &address, true)?;
        if Arc::ptr_eq(&listener, &socket) {
            return Err(Errno::ECONNREFUSED);
        }
        let theirs = self.new_socket(socket.family, socket.kind);
        // Who waits to be taken in does not keep the listener: once nobody has it open, nobody takes anybody in.
        let (key, who) = (key_of(&listener.changes), listener.state.with(|state| state.listens_as));
        let own = super::addresses::where_found(&listener.own(), &address);
        let weak = Arc::downgrade(&listener);
        if socket.family != UNIX {
            theirs.takes_after(&listener);
        }
        drop(listener);
        // Before anybody can find it, and with no lock of another socket held: two might connect to each other.
        theirs.state.with(|state| state.own = own);
        theirs.inbox.asks_who.store(true, Ordering::Relaxed);
        if !socket.join(&theirs) {
            return Err(Errno::EISCONN);
        }
        for (end, who) in [(&socket, who), (&theirs, Self::seen_as(thread))] {
            end.state.with(|state| state.peer.iter_mut().for_each(|peer| peer.who = who));
        }
        let alone = |error: Errno| {
            let peer = socket.state.with(|state| state.peer.take());
            drop(peer);
            error
        };
        let mut refused = false;
        let mut try_it = || {
            let taken = weak.upgrade().and_then(|listener| {
                listener.state.with(|state| {
                    let (waiting, most) = state.waiting.as_mut()?;
                    // On the network who does not wait to be taken in has all the time that it takes.
                    if waiting.len() > *most && !goes_on {
                        return Some(false);
                    }
                    waiting.push_back(theirs.clone());
                    listener.changes.fetch_add(1, Ordering::SeqCst);
                    Some(true)
                })
            });
            refused = taken.is_none();
            taken.unwrap_or(true)
        };
        if !try_it() {
            if open.has(flag::NO_WAIT) {
                return Err(alone(Errno::EAGAIN));
            }
            match self.wait(thread, key, self.until(&socket, 1), &mut try_it) {
                Waited::Ready => {}
                Waited::Late if socket.family == UNIX => return Err(alone(Errno::EAGAIN)),
                Waited::Late => return Err(alone(Errno::EINPROGRESS)),
                Waited::Interrupted => return Err(alone(AGAIN)),
            }
        }
        if refused {
            let error = alone(Errno::ECONNREFUSED);
            return if goes_on { refuse() } else { Err(error) };
        }
        self.changed(key);
        if goes_on {
            socket.state.with(|state| state.late = Late::There);
            return Err(Errno::EINPROGRESS);
        }
        Ok(0)
    }

    pub(crate) fn accept(&self, thread: &Thread, [number, to, len_at, flags]: [u64; 4]) -> Answer {
        let flags = flags as u32;
        if flags & !(flag::NO_WAIT | flag::CLOSE_ON_EXEC) != 0 {
            return Err(Errno::EINVAL);
        }
        let (open, socket) = self.socket_of(thread, number)?;
        // Who cannot have it open takes in nobody.
        if thread.process.files.with(|files| files.is_full()) {
            return Err(Errno::EMFILE);
        }
        if socket.kind == kind::PACKETS {
            return Err(Errno::EOPNOTSUPP);
        }
        let next = || socket.state.with(|state| state.waiting.as_mut().map(|(all, _)| all.pop_front()));
        let mut found = next().ok_or(Errno::EINVAL)?;
        if found.is_none() {
            if open.has(flag::NO_WAIT) {
                return Err(Errno::EAGAIN);
            }
            let how = self.wait(thread, key_of(&socket.changes), self.until(&socket, 0), || {
                let now = next();
                // It may listen no more.
                let over = now.is_none();
                found = now.flatten();
                over || found.is_some()
            });
            match how {
                Waited::Ready => {}
                Waited::Late => return Err(Errno::EAGAIN),
                Waited::Interrupted => return Err(AGAIN),
            }
        }
        let found = found.ok_or(Errno::EINVAL)?;
        socket.changes.fetch_add(1, Ordering::SeqCst);
        self.changed(key_of(&socket.changes));
        // Who is taken in is as who listens: on the network in all, of others in whether it hears who sends.
        let (options, times) = socket.state.with(|state| (state.options.clone(), state.times));
        found.state.with(|state| {
            let heard = options.into_iter().filter(|(what, _)| socket.family != UNIX || *what == (1, 16));
            state.options.extend(heard);
            if socket.family != UNIX {
                state.times = times;
            }
        });
        found.inbox.asks_who.store(found.is_set(1, 16), Ordering::Relaxed);
        found.inbox.is_inline.store(found.is_set(1, 10), Ordering::Relaxed);
        let address = found.peer().map_or(found.own(), |peer| peer.address);
        let address = crate::network::as_seen(socket.family, &address);
        self.store_address(&address, to, len_at)?;
        self.open_socket(thread, found.clone(), flags).inspect_err(|_| {
            // Another thread has taken the last number: it waits for the next who takes it in.
            socket
                .state
                .with(|state| state.waiting.iter_mut().for_each(|(all, _)| all.push_front(found.clone())));
            socket.changes.fetch_add(1, Ordering::SeqCst);
            self.changed(key_of(&socket.changes));
        })
    }

    pub(crate) fn shutdown(&self, thread: &Thread, number: u64, how: u64) -> Answer {
        let (_, socket) = self.socket_of(thread, number)?;
        let peer = socket.peer();
        if how > 2 {
            return Err(Errno::EINVAL);
        }
        if leads_nowhere(&socket) || peer.is_none() && socket.state.with(|state| state.waiting.is_none()) {
            return Err(Errno::ENOTCONN);
        }
        if how != 1 {
            socket.hears_no_more();
            self.changed(key_of(&*socket.inbox));
        }
        if let Some(peer) = peer.filter(|_| how != 0) {
            socket.state.with(|state| state.silent = true);
            // Of packets others may send there too.
            if socket.kind != kind::PACKETS {
                peer.inbox.end();
            }
            self.changed(key_of(&*peer.inbox));
        }
        socket.changes.fetch_add(1, Ordering::SeqCst);
        self.changed(key_of(&socket.changes));
        Ok(0)
    }
}
