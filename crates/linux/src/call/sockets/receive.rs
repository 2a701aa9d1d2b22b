//! Bytes on their way out of a socket.

use alloc::vec::Vec;

use super::message;
use crate::errno::Errno;
use crate::kernel::{AGAIN, Linux, Waited};
use crate::machine::Machine;
use crate::open::{Open, flag};
use crate::process::Thread;
use crate::socket::{Received, Socket, UNIX, kind};
use crate::sync::key_of;

/// Refuses who is connected to nobody, where that is needed: nothing ever comes.
fn may_hear(socket: &Socket) -> Result<(), Errno> {
    match () {
        () if socket.kind == kind::PACKETS || socket.peer().is_some() => Ok(()),
        () if socket.was_refused() => Err(Errno::ECONNREFUSED),
        () if socket.is_stream() && socket.family == UNIX => Err(Errno::EINVAL),
        () => Err(Errno::ENOTCONN),
    }
}

impl<M: Machine> Linux<'_, M> {
    /// Receives into several buffers; returns how many bytes, and what else came.
    pub(in crate::call) fn receive(
        &self,
        thread: &Thread,
        open: &Open,
        socket: &Socket,
        into: &[(u64, u64)],
        flags: u64,
    ) -> Result<(u64, Received), Errno> {
        let stream = socket.is_stream();
        // Nothing is ever on the list of errors.
        if flags & message::ERRORS != 0 {
            return Err(Errno::EAGAIN);
        }
        may_hear(socket)?;
        let room: u64 = into.iter().fold(0, |sum, &(_, bytes)| sum.saturating_add(bytes));
        let at_once = open.has(flag::NO_WAIT) || flags & message::NO_WAIT != 0;
        let peek = flags & message::PEEK != 0;
        if stream && socket.family != UNIX && flags & message::URGENT != 0 {
            let byte = socket.inbox.urgent(peek).ok_or(Errno::EINVAL)?;
            let bytes = if room > 0 { alloc::vec![byte] } else { Vec::new() };
            self.scatter(into, 0, &bytes)?;
            let whole = bytes.len();
            return Ok((whole as u64, Received { bytes, whole, ..Received::nothing() }));
        }
        let until = self.until(socket, 0);
        let mut all: Option<Received> = None;
        let mut done = 0;
        if socket.take_refusal() {
            return Err(Errno::ECONNREFUSED);
        }
        loop {
            // A packet comes whole, however long it is.
            let want = (room - done).min(if stream { self.piece() as u64 } else { u64::MAX }) as usize;
            let mut found = socket.inbox.receive(want, stream, peek);
            if found.is_none() {
                if done > 0 && flags & message::ALL == 0 {
                    break;
                }
                if at_once {
                    if done > 0 {
                        break;
                    }
                    return Err(Errno::EAGAIN);
                }
                let mut refused = false;
                let how = self.wait(thread, key_of(&*socket.inbox), until, || {
                    refused = socket.take_refusal();
                    if !refused {
                        found = socket.inbox.receive(want, stream, peek);
                    }
                    refused || found.is_some()
                });
                match how {
                    Waited::Ready if refused => return Err(Errno::ECONNREFUSED),
                    Waited::Ready => {}
                    _ if done > 0 => break,
                    Waited::Late => return Err(Errno::EAGAIN),
                    Waited::Interrupted => return Err(AGAIN),
                }
            }
            let Some(found) = found else { break };
            if done == 0
                && found.bytes.is_empty()
                && socket.kind != kind::PACKETS
                && let Some(error) = socket.inbox.take_break(true)
            {
                return Err(error);
            }
            self.changed(key_of(&*socket.inbox));
            // Of a stream of the network bytes that are cut are gone, and go nowhere.
            if !(stream && socket.family != UNIX && flags & message::CUT != 0) {
                self.scatter(into, done, &found.bytes)?;
            }
            let count = found.bytes.len() as u64;
            done += count;
            let is_over =
                !stream || peek || count == 0 || done == room || found.is_at_mark || !found.files.is_empty();
            // What another has sent is not of the same message.
            let is_told = socket.family == UNIX && socket.is_set(1, 16) && flags & message::ALL == 0;
            let last = is_over || is_told;
            match &mut all {
                Some(all) => all.files.extend(found.files),
                None => all = Some(found),
            }
            if last {
                break;
            }
        }
        Ok((done, all.unwrap_or_else(Received::nothing)))
    }

    /// Up to so many bytes, once there are any.
    pub(in crate::call) fn receive_bytes(
        &self,
        thread: &Thread,
        open: &Open,
        socket: &Socket,
        most: usize,
    ) -> Result<Vec<u8>, Errno> {
        may_hear(socket)?;
        if socket.take_refusal() {
            return Err(Errno::ECONNREFUSED);
        }
        let mut found = socket.inbox.receive(most, socket.is_stream(), false);
        if found.is_none() {
            if open.has(flag::NO_WAIT) {
                return Err(Errno::EAGAIN);
            }
            let mut refused = false;
            let how = self.wait(thread, key_of(&*socket.inbox), self.until(socket, 0), || {
                refused = socket.take_refusal();
                if !refused {
                    found = socket.inbox.receive(most, socket.is_stream(), false);
                }
                refused || found.is_some()
            });
            if refused {
                return Err(Errno::ECONNREFUSED);
            }
            if how == Waited::Interrupted {
                return Err(AGAIN);
            }
        }
        self.changed(key_of(&*socket.inbox));
        let bytes = found.ok_or(Errno::EAGAIN)?.bytes;
        let ended = bytes.is_empty() && socket.kind != kind::PACKETS;
        match ended.then(|| socket.inbox.take_break(true)).flatten() {
            Some(error) => Err(error),
            None => Ok(bytes),
        }
    }

    /// Writes bytes to buffers, from a place in all of them on.
    fn scatter(&self, into: &[(u64, u64)], mut skip: u64, mut bytes: &[u8]) -> Result<(), Errno> {
        for &(at, len) in into {
            let here = skip.min(len);
            skip -= here;
            let count = bytes.len().min((len - here) as usize);
            self.machine.write_user(at + here, &bytes[..count])?;
            bytes = &bytes[count..];
        }
        Ok(())
    }
}
