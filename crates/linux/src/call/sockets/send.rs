//! Bytes on their way into a socket.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use super::addresses::where_found;
use super::{Extra, UNIX, message};
use crate::call::transfer::Load;
use crate::errno::{Answer, Errno};
use crate::kernel::{AGAIN, Linux, Waited};
use crate::machine::Machine;
use crate::network::{INET, port_in};
use crate::open::{Open, flag};
use crate::process::Thread;
use crate::signal::number;
use crate::socket::{Broken, Inbox, Sender, Sent, Socket, kind};
use crate::sync::key_of;

/// That one wants to hear that what it has sent came to nobody: of the short addresses, and of the long ones.
const HEARS_ERRORS: [u32; 2] = [11, 25];

impl<M: Machine> Linux<'_, M> {
    /// Sends the bytes of several buffers.
    pub(in crate::call) fn send(
        &self,
        thread: &Thread,
        open: &Open,
        socket: &Arc<Socket>,
        from: &[(u64, u64)],
        extra: Extra,
    ) -> Answer {
        self.send_from(thread, open, socket, from, extra, &|at, into| self.machine.read_user(at, into))
    }

    /// The same of bytes that `load` gives, by their place.
    pub(in crate::call) fn send_from(
        &self,
        thread: &Thread,
        open: &Open,
        socket: &Arc<Socket>,
        from: &[(u64, u64)],
        extra: Extra,
        load: &Load<'_>,
    ) -> Answer {
        let Extra { flags, to, mut files, who } = extra;
        if socket.family == super::netlink::FAMILY {
            return self.ask_netlink(thread, socket, from);
        }
        let stream = socket.is_stream();
        // Only in a stream a byte can come before others.
        if flags & message::URGENT != 0 && socket.kind == kind::PACKETS {
            return Err(Errno::EOPNOTSUPP);
        }
        let whole: u64 = from.iter().fold(0, |sum, &(_, bytes)| sum.saturating_add(bytes));
        // The network's packets say in 16 bits how long they are, with or without their first head.
        let longest = match socket.family {
            UNIX => socket.sends().saturating_sub(32) as u64,
            INET => 65_507,
            _ => 65_527,
        };
        if !stream && whole > longest {
            return Err(Errno::EMSGSIZE);
        }
        // Whom a stream goes to is said by what it is connected to alone.
        if stream && socket.family == UNIX && to.is_some() {
            return Err(if socket.peer().is_some() { Errno::EISCONN } else { Errno::EOPNOTSUPP });
        }
        // A packet is one piece here, and one on its way.
        if !stream && !self.machine.has_piece(2 * whole) {
            return Err(Errno::ENOMEM);
        }
        let mut packet = Vec::new();
        if !stream {
            packet.resize(whole as usize, 0);
            let mut rest = &mut packet[..];
            for &(at, bytes) in from {
                let (piece, more) = core::mem::take(&mut rest).split_at_mut(bytes as usize);
                load(at, piece)?;
                rest = more;
            }
        }
        // Packets of the network are lost where nobody is, and where there is no room.
        let may_be_lost = socket.kind == kind::PACKETS && socket.family != UNIX;
        // Nobody took an earlier one: it is told once, and this is not sent.
        if may_be_lost && socket.take_refusal() {
            return Err(Errno::ECONNREFUSED);
        }
        let mut from_here = socket.own();
        let inbox: Arc<Inbox> = match to {
            Some(address) if !stream => {
                if may_be_lost && address.len() >= 16 && port_in(&address) == 0 {
                    return Err(Errno::EINVAL);
                }
                let found = self.find_socket(thread, socket, &address);
                self.give_port(socket, &address, false)?;
                from_here = where_found(&socket.own(), &address);
                match found {
                    Ok(found) => found.inbox.clone(),
                    Err(Errno::ECONNREFUSED) if may_be_lost => {
                        // Whoever is connected to nobody hears of that only if it wants to.
                        if socket.peer().is_some()
                            || socket.is_set(0, HEARS_ERRORS[0])
                            || socket.is_set(41, HEARS_ERRORS[1])
                        {
                            socket.refuse();
                            self.changed(key_of(&*socket.inbox));
                        }
                        return Ok(whole);
                    }
                    Err(error) => return Err(error),
                }
            }
            _ => match socket.peer() {
                // Somebody else may have come there, or come before who was there.
                Some(peer) if may_be_lost => {
                    let found = match self.find_socket(thread, socket, &peer.address) {
                        Ok(found) => found,
                        // It hears of that with what it asks next.
                        Err(Errno::ECONNREFUSED) => {
                            socket.refuse();
                            self.changed(key_of(&*socket.inbox));
                            return Ok(whole);
                        }
                        Err(error) => return Err(error),
                    };
                    if !Arc::ptr_eq(&found.inbox, &peer.inbox) {
                        let there = self.peer_at(&found, &peer.address);
                        let before = socket.state.with(|state| state.peer.replace(there));
                        drop(before);
                    }
                    found.inbox.clone()
                }
                Some(peer) => peer.inbox,
                None if socket.was_refused() => return Err(Errno::ECONNREFUSED),
                None if stream && socket.family != UNIX => {
                    self.tell_of_pipe(thread, flags);
                    return Err(Errno::EPIPE);
                }
                None if socket.family == UNIX => return Err(Errno::ENOTCONN),
                None => return Err(Errno::EDESTADDRREQ),
            },
        };
        let process = &thread.process;
        // It is noted only if one of both asks for it.
        let me = || match socket.inbox.asks_who.load(Relaxed) || inbox.asks_who.load(Relaxed) {
            true => process.owner.with(|owner| [process.pid, owner.users[0], owner.groups[0]]),
            false => Sender::UNKNOWN,
        };
        let own = Sender { address: from_here, who: who.unwrap_or_else(me) };
        if !files.is_empty() {
            self.left.flights.send(&files);
        }
        let at_once = open.has(flag::NO_WAIT) || flags & message::NO_WAIT != 0;
        let until = self.until(socket, 1);
        // Puts one piece in, all of it.
        let mut put = |piece: &[u8], is_urgent: bool| -> Result<(), (usize, Errno)> {
            let mut done = 0;
            loop {
                let silent = socket.state.with(|state| state.silent);
                let is_network = stream && socket.family != UNIX;
                if is_network && let Some(error) = socket.inbox.take_break(false) {
                    return Err((done, error));
                }
                let mut sent = if silent || is_network && socket.inbox.broken() != Broken::No {
                    Sent::Closed
                } else {
                    inbox.send_as(&piece[done..], &own, files.clone(), (stream, is_urgent), socket.fills())
                };
                if sent == Sent::Wait && may_be_lost {
                    return Ok(());
                }
                if sent == Sent::Wait {
                    if at_once {
                        return Err((done, Errno::EAGAIN));
                    }
                    let how = self.wait(thread, key_of(&*inbox), until, || {
                        let how = (stream, is_urgent);
                        sent = inbox.send_as(&piece[done..], &own, files.clone(), how, socket.fills());
                        sent != Sent::Wait
                    });
                    match how {
                        Waited::Ready => {}
                        Waited::Late => return Err((done, Errno::EAGAIN)),
                        Waited::Interrupted => return Err((done, AGAIN)),
                    }
                }
                // Another thread may have ended what it sends.
                let silent = silent || socket.state.with(|state| state.silent);
                // The network takes what it sends; of one that has said all and hears nothing it says later that nobody was there.
                let is_whole = !silent && socket.inbox.broken() == Broken::No;
                if sent == Sent::Closed && is_network && is_whole {
                    let (_, ended, _) = socket.inbox.state();
                    if ended {
                        socket.inbox.break_off(Errno::EPIPE);
                    }
                    sent = Sent::Bytes(piece.len() - done);
                }
                match sent {
                    Sent::Bytes(count) => done += count,
                    // It is gone; or it is there, and hears no more.
                    Sent::Closed if socket.kind == kind::PACKETS && !silent && inbox.is_gone() => {
                        return Err((done, Errno::ECONNREFUSED));
                    }
                    _ => return Err((done, Errno::EPIPE)),
                }
                files.clear();
                self.changed(key_of(&*inbox));
                if done == piece.len() {
                    return Ok(());
                }
            }
        };
        let mut sum = 0;
        let mut failed = None;
        // The last byte is.
        let is_urgent = stream && socket.family != UNIX && flags & message::URGENT != 0;
        if stream {
            'all: for &(at, bytes) in from {
                let mut done = 0;
                while done < bytes {
                    let mut piece = alloc::vec![0; ((bytes - done) as usize).min(self.piece())];
                    let put = match load(at + done, &mut piece) {
                        Ok(()) => put(&piece, is_urgent && sum + piece.len() as u64 == whole),
                        Err(error) => Err((0, error)),
                    };
                    if let Err((part, error)) = put {
                        sum += part as u64;
                        failed = Some(error);
                        break 'all;
                    }
                    done += piece.len() as u64;
                    sum += piece.len() as u64;
                    self.machine.cond_resched();
                }
            }
        } else {
            match put(&packet, false) {
                Ok(()) => sum = whole,
                Err((_, error)) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if sum == 0 => {
                if error == Errno::EPIPE && stream {
                    self.tell_of_pipe(thread, flags);
                }
                Err(error)
            }
            _ => Ok(sum),
        }
    }

    /// Nobody reads what it sends: a signal says so, unless it wants none.
    fn tell_of_pipe(&self, thread: &Thread, flags: u64) {
        if flags & message::NO_SIGNAL == 0 {
            self.post_to_itself(thread, number::PIPE);
        }
    }
}
