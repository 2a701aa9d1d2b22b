//! Calls that send and receive messages: bytes, and what goes along with them.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::addresses::where_found;
use super::{Extra, UNIX, message};
use crate::capabilities::{BECOMES, OWNS};
use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::layout::Pack;
use crate::machine::Machine;
use crate::network::{INET, INET6, as_seen};
use crate::process::Thread;
use crate::socket::{Received, Sender, Socket, kind};

/// Open files that one message brings at most.
const MOST_FILES: usize = 253;

/// `struct msghdr`.
struct Header {
    name: u64,
    name_len: u32,
    buffers: Vec<(u64, u64)>,
    control: u64,
    control_len: u64,
}

/// What goes along with bytes, by its kind: open files, and who sends.
const FILES: u64 = 1;
const WHO: u64 = 2;

/// What is told besides bytes: its level, its kind, and what is said.
type More = (u32, u32, Vec<u8>);

/// The address of the sender, as the receiver is told: of a stream of the network none, and of a sender that has none.
fn seen(socket: &Socket, from: &Sender) -> Arc<[u8]> {
    let is_told = if socket.family == UNIX { from.address.len() > 2 } else { !socket.is_stream() };
    if is_told { as_seen(socket.family, &from.address) } else { Arc::from([]) }
}

/// What a socket's options have told of what was received: who sent it, when it came, and to which address.
fn more_of(socket: &Socket, received: &Received, now: u64) -> Vec<More> {
    const TIME: u32 = 29;
    const FINE_TIME: u32 = 35;
    /// Of the short addresses, and of the long ones; the option of these, and what is told.
    const PLACE: u32 = 8;
    const LONG_PLACE: (u32, u32) = (49, 50);
    const LOOPBACK: u32 = 1;
    let mut all = Vec::new();
    if socket.family == UNIX && socket.is_set(1, 16) {
        let who = received.from.who.iter().fold(Pack::default(), |all, &word| all.word(word));
        all.push((1, WHO as u32, who.0));
    }
    if socket.kind != kind::PACKETS || !matches!(socket.family, INET | INET6) {
        return all;
    }
    for (what, unit) in [(TIME, 1000), (FINE_TIME, 1)] {
        if socket.is_set(1, what) {
            let time = Pack::default().long(now / 1_000_000_000).long(now % 1_000_000_000 / unit);
            all.push((1, what, time.0));
        }
    }
    let place = where_found(&socket.own(), &received.from.address);
    if socket.family == INET && socket.is_set(0, PLACE) && place.len() >= 8 {
        let mut said = Pack::default().word(LOOPBACK).0;
        said.extend([&place[4..8]; 2].concat());
        all.push((0, PLACE, said));
    }
    if socket.family == INET6 && socket.is_set(41, LONG_PLACE.0) && place.len() >= 24 {
        let said = [&place[8..24], &LOOPBACK.to_le_bytes()].concat();
        all.push((41, LONG_PLACE.1, said));
    }
    all
}

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn sendto(&self, thread: &Thread, [number, at, bytes, flags, to, len]: [u64; 6]) -> Answer {
        let (open, socket) = self.socket_of(thread, number)?;
        let to = if to == 0 { None } else { Some(self.load_address(to, len)?) };
        self.send(thread, &open, &socket, &[(at, bytes)], Extra { flags, to, ..Extra::default() })
    }

    pub(crate) fn recvfrom(
        &self,
        thread: &Thread,
        [number, at, bytes, flags, to, len_at]: [u64; 6],
    ) -> Answer {
        let (open, socket) = self.socket_of(thread, number)?;
        let (done, received) = self.receive(thread, &open, &socket, &[(at, bytes)], flags)?;
        // Nobody wants them.
        self.left.add_open(received.files);
        self.store_address(&seen(&socket, &received.from), to, len_at)?;
        Ok(if flags & message::CUT != 0 && !socket.is_stream() { received.whole as u64 } else { done })
    }

    fn load_header(&self, at: u64) -> Result<Header, Errno> {
        let (buffers, count) = (self.load_long(at + 16)?, self.load_long(at + 24)?);
        let name_len = self.load_word(at + 8)?;
        if (name_len as i32) < 0 {
            return Err(Errno::EINVAL);
        }
        Ok(Header {
            name: self.load_long(at)?,
            name_len,
            buffers: self.vectors(buffers, count).map_err(|error| match error {
                Errno::EINVAL => Errno::EMSGSIZE,
                other => other,
            })?,
            control: self.load_long(at + 32)?,
            control_len: self.load_long(at + 40)?,
        })
    }

    /// What a message takes along: open files, and who sends it, which nobody but root may make up.
    fn load_extra(&self, thread: &Thread, header: &Header) -> Result<Extra, Errno> {
        let (mut files, mut who) = (Vec::new(), None);
        if header.control == 0 || header.control_len < 16 {
            return Ok(Extra::default());
        }
        let mut control = alloc::vec![0; header.control_len.min(4096) as usize];
        self.machine.read_user(header.control, &mut control)?;
        let mut at = 0;
        while let Some(head) = control.get(at..at + 16) {
            let len = u64::from_le_bytes(head[..8].try_into().expect("8 bytes"));
            let what = u64::from_le_bytes(head[8..].try_into().expect("8 bytes"));
            let end = usize::try_from(len).ok().and_then(|len| at.checked_add(len)).ok_or(Errno::EINVAL)?;
            let data = control.get(at + 16..end).ok_or(Errno::EINVAL)?;
            if what == 1 | WHO << 32 {
                let word = |at: usize| {
                    data.get(at..at + 4).map(|it| u32::from_le_bytes([it[0], it[1], it[2], it[3]]))
                };
                let (Some(pid), Some(user), Some(group), 12) = (word(0), word(4), word(8), data.len()) else {
                    return Err(Errno::EINVAL);
                };
                let may = thread.process.owner.with(|owner| {
                    let is_own = owner.users[..3].contains(&user) && owner.groups[..3].contains(&group);
                    let may_be = |right: u32, is: bool| is || owner.may(right);
                    may_be(OWNS, pid == thread.process.pid) && may_be(BECOMES, is_own)
                });
                if !may {
                    return Err(Errno::EPERM);
                }
                if !self.processes.with(|all| all.contains_key(&pid)) {
                    return Err(Errno::ESRCH);
                }
                who = Some([pid, user, group]);
            }
            // The level of sockets, and the rights to files.
            if what == 1 | FILES << 32 {
                for number in data.chunks_exact(4) {
                    let number = u32::from_le_bytes(number.try_into().expect("4 bytes"));
                    files.push(self.open_file(thread, number.into())?);
                }
                if files.len() > MOST_FILES {
                    return Err(Errno::EINVAL);
                }
            }
            at = end.next_multiple_of(8);
        }
        Ok(Extra { files, who, ..Extra::default() })
    }

    pub(crate) fn sendmsg(&self, thread: &Thread, number: u64, at: u64, flags: u64) -> Answer {
        let (open, socket) = self.socket_of(thread, number)?;
        let header = self.load_header(at)?;
        let to = match header.name {
            0 => None,
            name => Some(self.load_address(name, header.name_len.into())?),
        };
        let extra = if socket.family == UNIX { self.load_extra(thread, &header)? } else { Extra::default() };
        self.send(thread, &open, &socket, &header.buffers, Extra { flags, to, ..extra })
    }

    pub(crate) fn recvmsg(&self, thread: &Thread, number: u64, at: u64, flags: u64) -> Answer {
        let (open, socket) = self.socket_of(thread, number)?;
        let header = self.load_header(at)?;
        let (done, received) = self.receive(thread, &open, &socket, &header.buffers, flags)?;
        let mut said = flags & message::CLOSE_ON_EXEC;
        if !socket.is_stream() && received.whole as u64 > done {
            said |= message::CUT;
        }
        let mut name_len = 0;
        if header.name != 0 {
            let from = seen(&socket, &received.from);
            let len = from.len().min(header.name_len as usize);
            self.machine.write_user(header.name, &from[..len])?;
            name_len = from.len();
        }
        let (mut control_len, cut) = self.tell_more(&header, &more_of(&socket, &received, self.clock()))?;
        if cut {
            said |= message::CUT_CONTROL;
        }
        if !received.files.is_empty() {
            let left = if header.control == 0 { 0 } else { header.control_len - control_len };
            let room = left.saturating_sub(16) / 4;
            let cloexec = flags & message::CLOSE_ON_EXEC != 0;
            let mut numbers = Vec::new();
            for file in received.files.iter().take(room as usize) {
                match thread.process.files.with(|files| files.add(file.clone(), cloexec, 0)) {
                    Ok(number) => numbers.push(number as u32),
                    Err(_) => break,
                }
            }
            if numbers.len() < received.files.len() {
                said |= message::CUT_CONTROL;
            }
            if !numbers.is_empty() {
                let len = 16 + 4 * numbers.len() as u64;
                let head = Pack::default().long(len).word(1).word(FILES as u32);
                let all = numbers.iter().fold(head, |all, &number| all.word(number));
                self.machine.write_user(header.control + control_len, &all.0)?;
                control_len += len.next_multiple_of(8).min(left);
            }
        }
        // What had no room is closed; whoever waits for it to be hears of that.
        self.left.add_open(received.files);
        self.machine.write_user(at + 8, &(name_len as u32).to_le_bytes())?;
        self.machine.write_user(at + 40, &Pack::default().long(control_len).word(said as u32).0)?;
        Ok(if flags & message::CUT != 0 && !socket.is_stream() { received.whole as u64 } else { done })
    }

    /// Writes what is told besides the bytes; how long that is, and whether there was no room for all of it.
    fn tell_more(&self, header: &Header, more: &[More]) -> Result<(u64, bool), Errno> {
        let mut at = 0;
        for (level, kind, said) in more {
            let room = if header.control == 0 { 0 } else { header.control_len - at };
            if room < 16 {
                return Ok((at, true));
            }
            let len = (16 + said.len() as u64).min(room);
            let head = Pack::default().long(len).word(*level).word(*kind).0;
            let all = [head.as_slice(), &said[..len as usize - 16]].concat();
            self.machine.write_user(header.control + at, &all)?;
            at += len.next_multiple_of(8).min(room);
            if len < 16 + said.len() as u64 {
                return Ok((at, true));
            }
        }
        Ok((at, false))
    }

    /// Several messages, until one fails: `each` does one of them.
    pub(crate) fn messages(&self, at: u64, count: u64, mut each: impl FnMut(u64, bool) -> Answer) -> Answer {
        const EACH: u64 = 64;
        let mut done = 0;
        for index in 0..count.min(1024) {
            let at = at + EACH * index;
            match each(at, index > 0) {
                Ok(bytes) => self.machine.write_user(at + 56, &(bytes as u32).to_le_bytes())?,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            done += 1;
        }
        Ok(done)
    }

    /// Several messages, each of which is waited for, or the first alone; no more once the time is over, which is seen as one comes.
    pub(crate) fn recvmmsg(&self, thread: &Thread, [number, at, count, flags, time_at]: [u64; 5]) -> Answer {
        let until = match time_at {
            0 => None,
            _ => Some(self.now().saturating_add(self.time(time_at)?)),
        };
        let is_late = || until.is_some_and(|until| until <= self.now());
        let at_once = if flags & message::FIRST != 0 { message::NO_WAIT } else { 0 };
        let done = self.messages(at, count, |at, later| match later {
            true if is_late() => Err(Errno::EAGAIN),
            _ => self.recvmsg(thread, number, at, flags | if later { at_once } else { 0 }),
        });
        if done.is_ok_and(|count| count > 0) {
            self.tell_left(time_at, until, 1);
        }
        done
    }

    pub(crate) fn sendmmsg(&self, thread: &Thread, [number, at, count, flags]: [u64; 4]) -> Answer {
        self.messages(at, count, |at, _| self.sendmsg(thread, number, at, flags))
    }
}
