//! Calls that send and receive messages: bytes, and what goes along with them.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Extra, UNIX, message};
use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::layout::Pack;
use crate::machine::Machine;
use crate::network::as_seen;
use crate::open::Open;
use crate::process::Thread;
use crate::socket::kind;

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

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn sendto(&self, thread: &Thread, [number, at, bytes, flags, to, len]: [u64; 6]) -> Answer {
        let (open, socket) = self.socket_of(thread, number)?;
        let to = if to == 0 { None } else { Some(self.load_address(to, len)?) };
        self.send(thread, &open, &socket, &[(at, bytes)], Extra { flags, to, files: Vec::new() })
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
        if socket.kind == kind::PACKETS {
            self.store_address(&as_seen(socket.family, &received.from), to, len_at)?;
        }
        Ok(if flags & message::CUT != 0 && !socket.is_stream() { received.whole as u64 } else { done })
    }

    fn load_header(&self, at: u64) -> Result<Header, Errno> {
        let (buffers, count) = (self.load_long(at + 16)?, self.load_long(at + 24)?);
        Ok(Header {
            name: self.load_long(at)?,
            name_len: self.load_word(at + 8)?,
            buffers: self.vectors(buffers, count).map_err(|error| match error {
                Errno::EINVAL => Errno::EMSGSIZE,
                other => other,
            })?,
            control: self.load_long(at + 32)?,
            control_len: self.load_long(at + 40)?,
        })
    }

    /// The open files that a message takes along.
    fn load_files(&self, thread: &Thread, header: &Header) -> Result<Vec<Arc<Open>>, Errno> {
        let mut files = Vec::new();
        if header.control == 0 || header.control_len < 16 {
            return Ok(files);
        }
        let mut control = alloc::vec![0; header.control_len.min(4096) as usize];
        self.machine.read_user(header.control, &mut control)?;
        let mut at = 0;
        while let Some(head) = control.get(at..at + 16) {
            let len = u64::from_le_bytes(head[..8].try_into().expect("8 bytes"));
            let what = u64::from_le_bytes(head[8..].try_into().expect("8 bytes"));
            let end = usize::try_from(len).ok().and_then(|len| at.checked_add(len)).ok_or(Errno::EINVAL)?;
            let data = control.get(at + 16..end).ok_or(Errno::EINVAL)?;
            // The level of sockets, and the rights to files.
            if what == 1 | 1 << 32 {
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
        Ok(files)
    }

    pub(crate) fn sendmsg(&self, thread: &Thread, number: u64, at: u64, flags: u64) -> Answer {
        let (open, socket) = self.socket_of(thread, number)?;
        let header = self.load_header(at)?;
        let to = match header.name {
            0 => None,
            name => Some(self.load_address(name, header.name_len.into())?),
        };
        let files = if socket.family == UNIX { self.load_files(thread, &header)? } else { Vec::new() };
        self.send(thread, &open, &socket, &header.buffers, Extra { flags, to, files })
    }

    pub(crate) fn recvmsg(&self, thread: &Thread, number: u64, at: u64, flags: u64) -> Answer {
        let (open, socket) = self.socket_of(thread, number)?;
        let header = self.load_header(at)?;
        let (done, received) = self.receive(thread, &open, &socket, &header.buffers, flags)?;
        let mut said = 0;
        if !socket.is_stream() && received.whole as u64 > done {
            said |= message::CUT;
        }
        let mut name_len = 0;
        if header.name != 0 && socket.kind == kind::PACKETS {
            let from = as_seen(socket.family, &received.from);
            let len = from.len().min(header.name_len as usize);
            self.machine.write_user(header.name, &from[..len])?;
            name_len = from.len();
        }
        let mut control_len = 0;
        if !received.files.is_empty() {
            let room = if header.control == 0 { 0 } else { header.control_len.saturating_sub(16) / 4 };
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
                control_len = 16 + 4 * numbers.len() as u64;
                let head = Pack::default().long(control_len).word(1).word(1);
                let all = numbers.iter().fold(head, |all, &number| all.word(number));
                self.machine.write_user(header.control, &all.0)?;
                control_len = control_len.next_multiple_of(8).min(header.control_len);
            }
        }
        self.machine.write_user(at + 8, &(name_len as u32).to_le_bytes())?;
        self.machine.write_user(at + 40, &Pack::default().long(control_len).word(said as u32).0)?;
        Ok(if flags & message::CUT != 0 && !socket.is_stream() { received.whole as u64 } else { done })
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

    pub(crate) fn recvmmsg(&self, thread: &Thread, [number, at, count, flags]: [u64; 4]) -> Answer {
        // Only the first is waited for, whatever is said: the others come with the next call.
        self.messages(at, count, |at, later| {
            self.recvmsg(thread, number, at, flags | if later { message::NO_WAIT } else { 0 })
        })
    }

    pub(crate) fn sendmmsg(&self, thread: &Thread, [number, at, count, flags]: [u64; 4]) -> Answer {
        self.messages(at, count, |at, _| self.sendmsg(thread, number, at, flags))
    }
}
