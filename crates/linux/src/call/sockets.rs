//! Calls about sockets. `socket.rs` has what they are.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use super::transfer::Load;
use crate::errno::{Answer, Errno};
use crate::kernel::{AGAIN, Linux, Waited};
use crate::layout::Pack;
use crate::machine::Machine;
use crate::open::{Kind, Open, flag};
use crate::process::Thread;
use crate::signal::{Info, number};
use crate::socket::{Inbox, Peer, Received, Sent, Socket, kind};
use crate::sync::key_of;
use crate::tree::{Body, Inode, mode};

const UNIX: u16 = 1;
const INET: u16 = 2;
const INET6: u16 = 10;

/// Flags of sends and receives.
mod message {
    pub const PEEK: u64 = 2;
    pub const CUT_CONTROL: u64 = 8;
    pub const CUT: u64 = 0x20;
    pub const NO_WAIT: u64 = 0x40;
    pub const ALL: u64 = 0x100;
    pub const ERRORS: u64 = 0x2000;
    pub const NO_SIGNAL: u64 = 0x4000;
    pub const CLOSE_ON_EXEC: u64 = 0x4000_0000;
}

/// Open files that one message brings at most.
const MOST_FILES: usize = 253;

/// What goes along with bytes.
#[derive(Default)]
pub(super) struct Extra {
    flags: u64,
    to: Option<Vec<u8>>,
    files: Vec<Arc<Open>>,
}

/// `struct msghdr`.
struct Header {
    name: u64,
    name_len: u32,
    buffers: Vec<(u64, u64)>,
    control: u64,
    control_len: u64,
}

/// The address of a socket of the network, on this machine.
fn local(family: u16, port: u16) -> Arc<[u8]> {
    let head = Pack::default().half(family).half(port.to_be());
    let all = match family {
        INET => head.word(u32::from_be_bytes([127, 0, 0, 1]).to_be()).zeros_to(16),
        _ => head.word(0).long(0).long(1_u64.to_be()).word(0),
    };
    Arc::from(all.0)
}

/// The port of an address, if it is one of this machine.
fn port_of(family: u16, address: &[u8]) -> Result<u16, Errno> {
    let len = if family == INET { 16 } else { 28 };
    if address.len() < len {
        return Err(Errno::EINVAL);
    }
    let here = match family {
        INET => address[4] == 127 || address[4..8] == [0; 4],
        // `::`, `::1`, and what is mapped of the others.
        _ => {
            let (head, last) = (&address[8..20], &address[20..24]);
            head == [0; 12] && matches!(last, [0, 0, 0, 0 | 1])
                || head == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff] && (last[0] == 127 || last == [0; 4])
        }
    };
    if here { Ok(u16::from_be_bytes([address[2], address[3]])) } else { Err(Errno::ENETUNREACH) }
}

/// The name under which a port stands.
fn name_of_port(socket: &Socket, port: u16) -> Vec<u8> {
    [b'p', socket.kind as u8, (port >> 8) as u8, port as u8].to_vec()
}

impl<M: Machine> Linux<'_, M> {
    fn socket_of(&self, thread: &Thread, number: u64) -> Result<(Arc<Open>, Arc<Socket>), Errno> {
        let open = self.open_file(thread, number)?;
        match &open.kind {
            Kind::Socket(socket) => {
                let socket = socket.clone();
                Ok((open, socket))
            }
            _ => Err(Errno::ENOTSOCK),
        }
    }

    fn new_socket(&self, thread: &Thread, family: u16, of: u32) -> Arc<Socket> {
        Socket::new(family, of, thread.process.pid, &self.names, &self.left)
    }

    /// Opens a socket under a number.
    fn open_socket(&self, thread: &Thread, socket: Arc<Socket>, flags: u32) -> Answer {
        let open =
            Open::new(Kind::Socket(socket), flags & flag::NO_WAIT | flag::READ_WRITE, b"socket".to_vec());
        thread.process.files.with(|files| files.add(open, flags & flag::CLOSE_ON_EXEC != 0, 0))
    }

    fn wanted(&self, family: u64, of: u64, protocol: u64) -> Result<(u16, u32, u32), Errno> {
        let (of, flags) = (of as u32 & 0xf, of as u32 & !0xf);
        if flags & !(flag::NO_WAIT | flag::CLOSE_ON_EXEC) != 0 {
            return Err(Errno::EINVAL);
        }
        let family = u16::try_from(family).map_err(|_| Errno::EAFNOSUPPORT)?;
        match (family, of, protocol as u32) {
            (UNIX, kind::STREAM | kind::PACKETS | kind::SEQUENCE, 0 | 1) => {}
            (UNIX, kind::STREAM | kind::PACKETS | kind::SEQUENCE, _) => return Err(Errno::EPROTONOSUPPORT),
            (INET | INET6, kind::STREAM, 0 | 6) | (INET | INET6, kind::PACKETS, 0 | 17) => {}
            (INET | INET6, kind::STREAM | kind::PACKETS, _) => return Err(Errno::EPROTONOSUPPORT),
            (UNIX | INET | INET6, _, _) => return Err(Errno::ESOCKTNOSUPPORT),
            _ => return Err(Errno::EAFNOSUPPORT),
        }
        Ok((family, of, flags))
    }

    pub(crate) fn socket(&self, thread: &Thread, family: u64, of: u64, protocol: u64) -> Answer {
        let (family, of, flags) = self.wanted(family, of, protocol)?;
        self.open_socket(thread, self.new_socket(thread, family, of), flags)
    }

    pub(crate) fn socketpair(&self, thread: &Thread, [family, of, protocol, to]: [u64; 4]) -> Answer {
        let (family, of, flags) = self.wanted(family, of, protocol)?;
        if family != UNIX {
            return Err(Errno::EOPNOTSUPP);
        }
        let ends = [0; 2].map(|_| self.new_socket(thread, family, of));
        ends[0].join(&ends[1]);
        let [first, second] = ends;
        let first = self.open_socket(thread, first, flags)?;
        let close = |number: u64| {
            let gone = thread.process.files.with(|files| files.take(number));
            drop(gone);
        };
        let second = self.open_socket(thread, second, flags).inspect_err(|_| close(first))?;
        self.machine.write_user(to, &Pack::default().word(first as u32).word(second as u32).0).inspect_err(
            |_| {
                close(first);
                close(second);
            },
        )?;
        Ok(0)
    }

    fn load_address(&self, at: u64, len: u64) -> Result<Vec<u8>, Errno> {
        if !(2..=128).contains(&(len as u32)) {
            return Err(Errno::EINVAL);
        }
        let mut address = alloc::vec![0; len as u32 as usize];
        self.machine.read_user(at, &mut address)?;
        Ok(address)
    }

    /// Writes an address, as much of it as there is room for, and how long it is.
    fn store_address(&self, address: &[u8], to: u64, len_at: u64) -> Result<(), Errno> {
        if to == 0 {
            return Ok(());
        }
        let room = self.load_word(len_at)? as i32;
        let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
        self.machine.write_user(to, &address[..address.len().min(room)])?;
        self.machine.write_user(len_at, &(address.len() as u32).to_le_bytes())
    }

    /// The path or the name of an address of the Unix kind; `None` if it has none.
    fn unix_name(address: &[u8]) -> Option<(bool, &[u8])> {
        let name = address.get(2..).filter(|name| !name.is_empty())?;
        if name[0] == 0 {
            return Some((true, &name[1..]));
        }
        Some((false, name.split(|&byte| byte == 0).next().unwrap_or(name)))
    }

    pub(crate) fn bind(&self, thread: &Thread, number: u64, at: u64, len: u64) -> Answer {
        let (_, socket) = self.socket_of(thread, number)?;
        let address = self.load_address(at, len)?;
        let family = u16::from_le_bytes([address[0], address[1]]);
        if family != socket.family {
            return Err(if socket.family == UNIX { Errno::EINVAL } else { Errno::EAFNOSUPPORT });
        }
        if socket.state.with(|state| state.name.is_some()) {
            return Err(Errno::EINVAL);
        }
        if family != UNIX {
            let port = port_of(family, &address).map_err(|error| match error {
                Errno::ENETUNREACH => Errno::EADDRNOTAVAIL,
                other => other,
            })?;
            let port = match port {
                0 => self.free_port(&socket)?,
                port if self.names.put(&name_of_port(&socket, port), &socket) => port,
                _ => return Err(Errno::EADDRINUSE),
            };
            let mut own = address[..if family == INET { 16 } else { 28 }].to_vec();
            own[2..4].copy_from_slice(&port.to_be_bytes());
            socket.state.with(|state| state.own = Arc::from(own));
            return Ok(0);
        }
        match Self::unix_name(&address) {
            None => {
                // A name of the kernel's choice.
                let name = alloc::format!("{:05x}", self.random() & 0xf_ffff);
                let own = [&address[..2], &[0], name.as_bytes()].concat();
                if !self.names.put(&[b"a", name.as_bytes()].concat(), &socket) {
                    return Err(Errno::EADDRINUSE);
                }
                socket.state.with(|state| state.own = Arc::from(own));
            }
            Some((true, name)) => {
                if !self.names.put(&[b"a", name].concat(), &socket) {
                    return Err(Errno::EADDRINUSE);
                }
                socket.state.with(|state| state.own = Arc::from(address.as_slice()));
            }
            Some((false, path)) => {
                let found = self.walk(thread, None, path, false)?;
                if found.inode.is_some() || found.name.is_empty() {
                    return Err(Errno::EADDRINUSE);
                }
                let rights = self.umask(thread, 0o777);
                let inode =
                    Inode::new(self.inode_number(), mode::SOCKET | rights, self.clock(), Body::Socket);
                let name = [b"i", &inode.number.to_le_bytes()[..]].concat();
                found.directory.put(&found.name, inode).map_err(|error| match error {
                    Errno::EEXIST => Errno::EADDRINUSE,
                    other => other,
                })?;
                self.names.put(&name, &socket);
                let own = [&address[..2], path, &[0]].concat();
                socket.state.with(|state| state.own = Arc::from(own));
            }
        }
        Ok(0)
    }

    /// Gives a port that nobody has.
    fn free_port(&self, socket: &Arc<Socket>) -> Result<u16, Errno> {
        let first = self.random() as u16 % 28_000;
        let ports = (0..28_000).map(|at| 32_768 + (first + at) % 28_000);
        let mut free = ports.filter(|&port| self.names.put(&name_of_port(socket, port), socket));
        free.next().ok_or(Errno::EADDRINUSE)
    }

    /// A socket of the network has an address from its first use on.
    fn give_port(&self, socket: &Arc<Socket>) -> Result<(), Errno> {
        if socket.family == UNIX || socket.state.with(|state| state.name.is_some()) {
            return Ok(());
        }
        let port = self.free_port(socket)?;
        socket.state.with(|state| state.own = local(socket.family, port));
        Ok(())
    }

    pub(crate) fn listen(&self, thread: &Thread, number: u64, most: u64) -> Answer {
        let (_, socket) = self.socket_of(thread, number)?;
        if socket.kind == kind::PACKETS {
            return Err(Errno::EOPNOTSUPP);
        }
        if socket.family == UNIX && socket.state.with(|state| state.name.is_none()) || socket.peer().is_some()
        {
            return Err(Errno::EINVAL);
        }
        self.give_port(&socket)?;
        let most = (most as i32).clamp(1, 4096) as usize;
        socket.state.with(|state| match &mut state.waiting {
            Some((_, now)) => *now = most,
            none => *none = Some((alloc::collections::VecDeque::new(), most)),
        });
        Ok(0)
    }

    /// Who has an address.
    fn find_socket(&self, thread: &Thread, socket: &Socket, address: &[u8]) -> Result<Arc<Socket>, Errno> {
        let family = u16::from_le_bytes([address[0], address[1]]);
        if family != socket.family && !(socket.family == INET6 && family == INET) {
            return Err(if socket.family == UNIX { Errno::EINVAL } else { Errno::EAFNOSUPPORT });
        }
        let name = if family != UNIX {
            name_of_port(socket, port_of(family, address)?)
        } else {
            match Self::unix_name(address).ok_or(Errno::EINVAL)? {
                (true, name) => [b"a", name].concat(),
                (false, path) => {
                    let inode = self.walk(thread, None, path, true)?.inode.ok_or(Errno::ENOENT)?;
                    [b"i", &inode.number.to_le_bytes()[..]].concat()
                }
            }
        };
        let found = self.names.find(&name).ok_or(Errno::ECONNREFUSED)?;
        if found.kind == socket.kind { Ok(found) } else { Err(Errno::EPROTOTYPE) }
    }

    fn until(&self, socket: &Socket, which: usize) -> Option<u64> {
        let time = socket.state.with(|state| state.times[which]);
        (time != 0).then(|| self.now().saturating_add(time))
    }

    pub(crate) fn connect(&self, thread: &Thread, number: u64, at: u64, len: u64) -> Answer {
        let (open, socket) = self.socket_of(thread, number)?;
        let address = self.load_address(at, len)?;
        if socket.kind == kind::PACKETS {
            let peer = match u16::from_le_bytes([address[0], address[1]]) {
                0 => None,
                _ => {
                    Some(match self.find_socket(thread, &socket, &address) {
                        Ok(found) => {
                            Peer { inbox: found.inbox.clone(), address: found.own(), process: found.process }
                        }
                        // Of the network nobody need be there: whoever sends hears of it.
                        Err(Errno::ECONNREFUSED) if socket.family != UNIX => {
                            let inbox = Inbox::new(&self.left);
                            self.left.add_open(inbox.close());
                            Peer { inbox, address: Arc::from(address.as_slice()), process: 0 }
                        }
                        Err(error) => return Err(error),
                    })
                }
            };
            self.give_port(&socket)?;
            let before = socket.state.with(|state| core::mem::replace(&mut state.peer, peer));
            drop(before);
            return Ok(0);
        }
        if socket.state.with(|state| state.waiting.is_some()) {
            return Err(Errno::EINVAL);
        }
        if socket.peer().is_some() {
            return Err(Errno::EISCONN);
        }
        let listener = self.find_socket(thread, &socket, &address)?;
        self.give_port(&socket)?;
        if Arc::ptr_eq(&listener, &socket) {
            return Err(Errno::ECONNREFUSED);
        }
        let theirs = self.new_socket(thread, socket.family, socket.kind);
        // Whoever waits to be taken in does not keep the listener: once nobody has it open, nobody takes anybody in.
        let (key, process) = (key_of(&listener.changes), listener.process);
        let weak = Arc::downgrade(&listener);
        drop(listener);
        // Before anybody can find it, and with no lock of another socket held: two might connect to each other.
        socket.join(&theirs);
        socket.state.with(|state| state.peer.iter_mut().for_each(|peer| peer.process = process));
        let alone = |error: Errno| {
            let peer = socket.state.with(|state| state.peer.take());
            drop(peer);
            error
        };
        let mut refused = false;
        let mut try_it = || {
            let taken = weak.upgrade().and_then(|listener| {
                listener.state.with(|state| {
                    let own = state.own.clone();
                    let (waiting, most) = state.waiting.as_mut()?;
                    if waiting.len() > *most {
                        return Some(false);
                    }
                    theirs.state.with(|state| state.own = own);
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
            return Err(alone(Errno::ECONNREFUSED));
        }
        self.changed(key);
        Ok(0)
    }

    pub(crate) fn accept(&self, thread: &Thread, [number, to, len_at, flags]: [u64; 4]) -> Answer {
        let flags = flags as u32;
        if flags & !(flag::NO_WAIT | flag::CLOSE_ON_EXEC) != 0 {
            return Err(Errno::EINVAL);
        }
        let (open, socket) = self.socket_of(thread, number)?;
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
        let address = found.peer().map_or(found.own(), |peer| peer.address);
        self.store_address(&address, to, len_at)?;
        self.open_socket(thread, found, flags)
    }

    pub(crate) fn socket_name(&self, thread: &Thread, [number, to, len_at]: [u64; 3], peer: bool) -> Answer {
        let (_, socket) = self.socket_of(thread, number)?;
        let address = match peer {
            true => socket.peer().ok_or(Errno::ENOTCONN)?.address,
            false if socket.family != UNIX && socket.own().len() == 2 => {
                let mut none = local(socket.family, 0).to_vec();
                none[4..].fill(0);
                Arc::from(none)
            }
            false => socket.own(),
        };
        self.store_address(&address, to, len_at).map(|()| 0)
    }

    /// Sends the bytes of several buffers.
    pub(super) fn send(
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
    pub(super) fn send_from(
        &self,
        thread: &Thread,
        open: &Open,
        socket: &Arc<Socket>,
        from: &[(u64, u64)],
        extra: Extra,
        load: &Load<'_>,
    ) -> Answer {
        let Extra { flags, to, mut files } = extra;
        let stream = socket.is_stream();
        let whole: u64 = from.iter().fold(0, |sum, &(_, bytes)| sum.saturating_add(bytes));
        if !stream && whole as usize > crate::socket::ROOM - 512 {
            return Err(Errno::EMSGSIZE);
        }
        // A packet is one piece here, and one on its way.
        if !stream && !self.machine.has_piece(2 * whole) {
            return Err(Errno::ENOMEM);
        }
        // Packets of the network are lost where nobody is, and where there is no room.
        let may_be_lost = socket.kind == kind::PACKETS && socket.family != UNIX;
        let inbox: Arc<Inbox> = match to {
            Some(address) if !stream => {
                let found = self.find_socket(thread, socket, &address);
                self.give_port(socket)?;
                match found {
                    Ok(found) => found.inbox.clone(),
                    Err(Errno::ECONNREFUSED) if may_be_lost => return Ok(whole),
                    Err(error) => return Err(error),
                }
            }
            _ => match socket.peer() {
                // Somebody else may have come there.
                Some(peer) if may_be_lost && peer.inbox.state().2 => {
                    let found = self.find_socket(thread, socket, &peer.address)?;
                    let there =
                        Peer { inbox: found.inbox.clone(), address: found.own(), process: found.process };
                    let before = socket.state.with(|state| state.peer.replace(there));
                    drop(before);
                    found.inbox.clone()
                }
                Some(peer) => peer.inbox,
                None if stream || socket.kind == kind::SEQUENCE => return Err(Errno::ENOTCONN),
                None => return Err(Errno::EDESTADDRREQ),
            },
        };
        let own = socket.own();
        if !files.is_empty() {
            self.left.flights.send(&files);
        }
        let at_once = open.has(flag::NO_WAIT) || flags & message::NO_WAIT != 0;
        let until = self.until(socket, 1);
        // Puts one piece in, all of it.
        let mut put = |piece: &[u8]| -> Result<(), (usize, Errno)> {
            let mut done = 0;
            loop {
                let silent = socket.state.with(|state| state.silent);
                let mut sent = if silent {
                    Sent::Closed
                } else {
                    inbox.send(&piece[done..], &own, files.clone(), stream)
                };
                if sent == Sent::Wait && may_be_lost {
                    return Ok(());
                }
                if sent == Sent::Wait {
                    if at_once {
                        return Err((done, Errno::EAGAIN));
                    }
                    let how = self.wait(thread, key_of(&*inbox), until, || {
                        sent = inbox.send(&piece[done..], &own, files.clone(), stream);
                        sent != Sent::Wait
                    });
                    match how {
                        Waited::Ready => {}
                        Waited::Late => return Err((done, Errno::EAGAIN)),
                        Waited::Interrupted => return Err((done, AGAIN)),
                    }
                }
                match sent {
                    Sent::Bytes(count) => done += count,
                    Sent::Closed if socket.kind == kind::PACKETS => return Err((done, Errno::ECONNREFUSED)),
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
        if stream {
            'all: for &(at, bytes) in from {
                let mut done = 0;
                while done < bytes {
                    let mut piece = alloc::vec![0; ((bytes - done) as usize).min(self.piece())];
                    let put = match load(at + done, &mut piece) {
                        Ok(()) => put(&piece),
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
            let mut piece = alloc::vec![0; whole as usize];
            let mut place = 0;
            for &(at, bytes) in from {
                load(at, &mut piece[place..place + bytes as usize])?;
                place += bytes as usize;
            }
            match put(&piece) {
                Ok(()) => sum = whole,
                Err((_, error)) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if sum == 0 => {
                if error == Errno::EPIPE && stream && flags & message::NO_SIGNAL == 0 {
                    let word = u64::from(thread.process.pid);
                    self.post(&thread.process, None, Info { signal: number::PIPE, word, ..Info::default() });
                }
                Err(error)
            }
            _ => Ok(sum),
        }
    }

    /// Receives into several buffers; gives how many bytes, and what else came.
    pub(super) fn receive(
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
        if socket.kind != kind::PACKETS && socket.peer().is_none() {
            return Err(Errno::ENOTCONN);
        }
        let room: u64 = into.iter().fold(0, |sum, &(_, bytes)| sum.saturating_add(bytes));
        let at_once = open.has(flag::NO_WAIT) || flags & message::NO_WAIT != 0;
        let peek = flags & message::PEEK != 0;
        let until = self.until(socket, 0);
        let mut all: Option<Received> = None;
        let mut done = 0;
        loop {
            let want =
                (room - done).min(if stream { self.piece() as u64 } else { crate::socket::ROOM as u64 })
                    as usize;
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
                let how = self.wait(thread, key_of(&*socket.inbox), until, || {
                    found = socket.inbox.receive(want, stream, peek);
                    found.is_some()
                });
                match how {
                    Waited::Ready => {}
                    _ if done > 0 => break,
                    Waited::Late => return Err(Errno::EAGAIN),
                    Waited::Interrupted => return Err(AGAIN),
                }
            }
            let Some(found) = found else { break };
            self.changed(key_of(&*socket.inbox));
            self.scatter(into, done, &found.bytes)?;
            let count = found.bytes.len() as u64;
            done += count;
            let last = !stream || peek || count == 0 || done == room || !found.files.is_empty();
            match &mut all {
                Some(all) => all.files.extend(found.files),
                None => all = Some(found),
            }
            if last {
                break;
            }
        }
        Ok((
            done,
            all.unwrap_or(Received { bytes: Vec::new(), whole: 0, from: Arc::from([]), files: Vec::new() }),
        ))
    }

    /// Up to so many bytes, once there are any.
    pub(super) fn receive_bytes(
        &self,
        thread: &Thread,
        open: &Open,
        socket: &Socket,
        most: usize,
    ) -> Result<Vec<u8>, Errno> {
        let mut found = socket.inbox.receive(most, socket.is_stream(), false);
        if found.is_none() {
            if open.has(flag::NO_WAIT) {
                return Err(Errno::EAGAIN);
            }
            let how = self.wait(thread, key_of(&*socket.inbox), self.until(socket, 0), || {
                found = socket.inbox.receive(most, socket.is_stream(), false);
                found.is_some()
            });
            if how == Waited::Interrupted {
                return Err(AGAIN);
            }
        }
        self.changed(key_of(&*socket.inbox));
        Ok(found.ok_or(Errno::EAGAIN)?.bytes)
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
            self.store_address(&received.from, to, len_at)?;
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
            let len = received.from.len().min(header.name_len as usize);
            self.machine.write_user(header.name, &received.from[..len])?;
            name_len = received.from.len();
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

    pub(crate) fn shutdown(&self, thread: &Thread, number: u64, how: u64) -> Answer {
        let (_, socket) = self.socket_of(thread, number)?;
        let peer = socket.peer();
        if how > 2 {
            return Err(Errno::EINVAL);
        }
        if peer.is_none() && socket.state.with(|state| state.waiting.is_none()) {
            return Err(Errno::ENOTCONN);
        }
        if how != 1 {
            self.left.add_open(socket.empty());
            self.changed(key_of(&*socket.inbox));
        }
        if let Some(peer) = peer.filter(|_| how != 0) {
            socket.state.with(|state| state.silent = true);
            peer.inbox.end();
            self.changed(key_of(&*peer.inbox));
        }
        socket.changes.fetch_add(1, Ordering::SeqCst);
        self.changed(key_of(&socket.changes));
        Ok(0)
    }

    pub(crate) fn setsockopt(&self, thread: &Thread, [number, level, what, at, len]: [u64; 5]) -> Answer {
        let (_, socket) = self.socket_of(thread, number)?;
        // How long receives and sends wait; nothing that can be seen depends on the others.
        if let (1, 20 | 21) = (level, what) {
            if len < 16 {
                return Err(Errno::EINVAL);
            }
            let (seconds, micros) = (self.load_long(at)?, self.load_long(at + 8)?);
            let time = seconds.saturating_mul(1_000_000_000).saturating_add(micros.saturating_mul(1000));
            socket.state.with(|state| state.times[what as usize - 20] = time);
        } else {
            self.load_word(at)?;
        }
        Ok(0)
    }

    pub(crate) fn getsockopt(&self, thread: &Thread, [number, level, what, to, len_at]: [u64; 5]) -> Answer {
        let (_, socket) = self.socket_of(thread, number)?;
        let word = |word: u32| Pack::default().word(word).0;
        let value = match (level, what) {
            (1, 3) => word(socket.kind),
            // Errors are told at once; and what was set is not kept.
            (1, 4 | 2 | 5 | 6 | 9 | 10 | 13 | 15 | 16) => word(0),
            (1, 7 | 8) => word(crate::socket::ROOM as u32),
            (1, 17) => word(socket.peer().map_or(0, |peer| peer.process)).into_iter().chain([0; 8]).collect(),
            (1, 20 | 21) => {
                let time = socket.state.with(|state| state.times[what as usize - 20]);
                Pack::default().long(time / 1_000_000_000).long(time % 1_000_000_000 / 1000).0
            }
            (1, 30) => word(socket.state.with(|state| state.waiting.is_some()).into()),
            (1, 38) => word(match (socket.family, socket.kind) {
                (UNIX, _) => 0,
                (_, kind::STREAM) => 6,
                _ => 17,
            }),
            (1, 39) => word(socket.family.into()),
            (6, _) if socket.family != UNIX && socket.is_stream() => word(0),
            (0 | 41, _) if socket.family != UNIX => word(0),
            _ => return Err(Errno::ENOPROTOOPT),
        };
        let room = self.load_word(len_at)? as usize;
        let len = value.len().min(room);
        self.machine.write_user(to, &value[..len])?;
        self.machine.write_user(len_at, &(len as u32).to_le_bytes()).map(|()| 0)
    }
}
