//! Addresses of sockets: which one has which, and who is found by one.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use super::UNIX;
use crate::capabilities::SERVES;
use crate::connections::leads_nowhere;
use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::layout::Pack;
use crate::machine::Machine;
use crate::network::{INET, INET6, MAPPED, as_seen, host_of, is_any, port_in};
use crate::process::Thread;
use crate::socket::{NOBODY, Name, Peer, Socket, kind, shares};
use crate::tree::{Body, Inode, mode};

/// The address of a socket of the network, on this machine.
fn local(family: u16, port: u16) -> Arc<[u8]> {
    let head = Pack::default().half(family).half(port.to_be());
    let all = match family {
        INET => head.word(u32::from_be_bytes([127, 0, 0, 1]).to_be()).zeros_to(16),
        _ => head.word(0).long(0).long(1_u64.to_be()).word(0),
    };
    Arc::from(all.0)
}

/// The address of a socket that talks to this one of this machine: of the same kind.
pub(super) fn opposite(family: u16, port: u16, to: &[u8]) -> Arc<[u8]> {
    let mut own = local(family, port).to_vec();
    let is_mapped = to.len() >= 20 && to[8..20] == MAPPED;
    if family == INET6 && (to.len() == 16 || is_mapped) {
        own[8..20].copy_from_slice(&MAPPED);
        own[20..24].copy_from_slice(&[127, 0, 0, 1]);
    }
    Arc::from(own)
}

/// Where a socket is that is bound to all addresses, for whoever has come to it by this one.
pub(super) fn where_found(own: &Arc<[u8]>, by: &[u8]) -> Arc<[u8]> {
    let family = u16::from_le_bytes([own[0], own[1]]);
    let host = match family {
        INET => own.get(4..8),
        INET6 => own.get(8..24),
        _ => None,
    };
    if host.is_some_and(|host| host.iter().all(|&byte| byte == 0)) {
        let by = if by.len() >= 16 { by } else { own };
        return opposite(family, port_in(own), by);
    }
    own.clone()
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

/// The first port that anybody may have.
const FOR_ALL: u16 = 1024;

/// The level and number of the option by which a socket is of the longer addresses alone.
const ONLY: (u32, u32) = (41, 26);

/// The name under which a port stands at an address; at all of them, where that means none.
fn name_of_port(kind: u32, family: u16, port: u16, host: &[u8]) -> Name {
    let key = [b'p', kind as u8, family as u8, (port >> 8) as u8, port as u8].to_vec();
    Name { key, host: if is_any(host) { Vec::new() } else { host.to_vec() } }
}

/// Those under which a socket with this port at an address stands: one that has all of the longer ones has the shorter ones too, unless it
/// wants to have not.
fn names_of_port(socket: &Socket, port: u16, address: &[u8]) -> Vec<Name> {
    let only =
        socket.state.with(|state| state.options.get(&ONLY).is_some_and(|word| word.first() != Some(&0)));
    let (family, host) = host_of(address);
    let mut all = alloc::vec![name_of_port(socket.kind, family, port, host)];
    if family == INET6 && is_any(host) && !only {
        all.push(name_of_port(socket.kind, INET, port, &[]));
    }
    all
}

/// The name by which a socket of the network is looked for: that of this machine, if no address of it is said.
fn looked_for(kind: u32, port: u16, address: &[u8]) -> Name {
    let (family, host) = host_of(address);
    let own = local(family, port);
    name_of_port(kind, family, port, if is_any(host) { host_of(&own).1 } else { host })
}

/// With whom a socket shares its port. One that listens has it alone, unless ports are shared.
fn sharing(socket: &Socket) -> u8 {
    let address =
        if socket.is_set(1, 2) && socket.kind == kind::PACKETS { shares::ADDRESS } else { shares::NOBODY };
    address | if socket.is_set(1, 15) { shares::PORT } else { shares::NOBODY }
}

impl<M: Machine> Linux<'_, M> {
    /// Who has come to a socket by an address, as its other end. It has its name, and may just be getting its address.
    pub(super) fn peer_at(&self, found: &Socket, by: &[u8]) -> Peer {
        let own = found.naming.with(self.machine, |()| found.own());
        Peer { inbox: found.inbox.clone(), address: where_found(&own, by), who: NOBODY }
    }

    pub(super) fn load_address(&self, at: u64, len: u64) -> Result<Vec<u8>, Errno> {
        if !(2..=128).contains(&(len as u32)) {
            return Err(Errno::EINVAL);
        }
        let mut address = alloc::vec![0; len as u32 as usize];
        self.machine.read_user(at, &mut address)?;
        Ok(address)
    }

    /// Writes an address, as much of it as there is room for, and how long it is.
    pub(super) fn store_address(&self, address: &[u8], to: u64, len_at: u64) -> Result<(), Errno> {
        if to == 0 {
            return Ok(());
        }
        let room = self.load_word(len_at)? as i32;
        let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
        // Where nothing is to be written may be nowhere.
        if !address.is_empty() {
            self.machine.write_user(to, &address[..address.len().min(room)])?;
        }
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
        socket.naming.with(self.machine, |()| self.bind_to(thread, &socket, &address))
    }

    /// The same of an address of its family, while nobody else gives it one.
    fn bind_to(&self, thread: &Thread, socket: &Arc<Socket>, address: &[u8]) -> Answer {
        let family = socket.family;
        if socket.state.with(|state| !state.names.is_empty()) {
            // Of a path, whether something is there is asked first.
            return match Self::unix_name(address).filter(|_| family == UNIX) {
                Some((false, path)) if self.walk(thread, None, path, false)?.inode.is_some() => {
                    Err(Errno::EADDRINUSE)
                }
                _ => Err(Errno::EINVAL),
            };
        }
        if family == super::netlink::FAMILY {
            let number = address.get(4..8).ok_or(Errno::EINVAL)?;
            let number = u32::from_le_bytes([number[0], number[1], number[2], number[3]]);
            self.bind_netlink(thread, socket, number);
            return Ok(0);
        }
        if family != UNIX {
            let port = port_of(family, address).map_err(|error| match error {
                Errno::ENETUNREACH => Errno::EADDRNOTAVAIL,
                other => other,
            })?;
            let port = match port {
                0 => self.free_port(socket, address)?,
                1..FOR_ALL if !thread.process.owner.with(|owner| owner.may(SERVES)) => {
                    return Err(Errno::EACCES);
                }
                port => {
                    let names = names_of_port(socket, port, address);
                    if !self.names.put_all(&names, socket, sharing(socket)) {
                        return Err(Errno::EADDRINUSE);
                    }
                    port
                }
            };
            let mut own = address[..if family == INET { 16 } else { 28 }].to_vec();
            own[2..4].copy_from_slice(&port.to_be_bytes());
            let anywhere = is_any(host_of(&own).1);
            socket.state.with(|state| {
                (state.own, state.bound, state.anywhere) = (Arc::from(own), true, anywhere);
            });
            return Ok(0);
        }
        match Self::unix_name(address) {
            None => {
                // A name of the kernel's choice.
                let name = alloc::format!("{:05x}", self.random() & 0xf_ffff);
                let own = [&address[..2], &[0], name.as_bytes()].concat();
                if !self.names.put(&[b"a", name.as_bytes()].concat(), socket) {
                    return Err(Errno::EADDRINUSE);
                }
                socket.state.with(|state| state.own = Arc::from(own));
            }
            Some((true, name)) => {
                if !self.names.put(&[b"a", name].concat(), socket) {
                    return Err(Errno::EADDRINUSE);
                }
                socket.state.with(|state| state.own = Arc::from(address));
            }
            Some((false, path)) => {
                let found = self.walk(thread, None, path, false)?;
                if found.inode.is_some() || found.name.is_empty() {
                    return Err(Errno::EADDRINUSE);
                }
                let rights = self.umask(thread, socket.rights.load(Ordering::Relaxed));
                let inode =
                    Inode::new(self.inode_number(), mode::SOCKET | rights, self.clock(), Body::Socket);
                let name = [b"i", &inode.number.to_le_bytes()[..]].concat();
                self.name_it(thread, &found, inode).map_err(|error| match error {
                    Errno::EEXIST => Errno::EADDRINUSE,
                    other => other,
                })?;
                self.names.put(&name, socket);
                let own = [&address[..2], path, &[0]].concat();
                socket.state.with(|state| state.own = Arc::from(own));
            }
        }
        Ok(0)
    }

    /// Gives a port that nobody has at this address.
    fn free_port(&self, socket: &Arc<Socket>, address: &[u8]) -> Result<u16, Errno> {
        let first = self.random() as u16 % 28_000;
        let ports = (0..28_000).map(|at| 32_768 + (first + at) % 28_000);
        let shares = sharing(socket);
        let mut free =
            ports.filter(|&port| self.names.put_new(&names_of_port(socket, port, address), socket, shares));
        free.next().ok_or(Errno::EADDRINUSE)
    }

    /// One that listens without an address is found by all of this machine.
    pub(super) fn give_any_port(&self, socket: &Arc<Socket>) -> Result<(), Errno> {
        socket.naming.with(self.machine, |()| {
            if socket.family == UNIX || socket.state.with(|state| !state.names.is_empty()) {
                return Ok(());
            }
            let mut own = local(socket.family, 0).to_vec();
            own[4..].fill(0);
            let port = self.free_port(socket, &own)?;
            own[2..4].copy_from_slice(&port.to_be_bytes());
            socket.state.with(|state| state.own = Arc::from(own));
            Ok(())
        })
    }

    /// A socket of the network has an address from its first use on: of the kind to which it sends, once it talks to one alone.
    pub(super) fn give_port(&self, socket: &Arc<Socket>, to: &[u8], connects: bool) -> Result<(), Errno> {
        if socket.family == UNIX || to.len() < 16 {
            return Ok(());
        }
        socket.naming.with(self.machine, |()| {
            if socket.state.with(|state| !state.names.is_empty()) {
                // Where it is now that it has somebody to talk to.
                socket.state.with(|state| {
                    if !connects {
                        return;
                    }
                    state.own = match state.bound {
                        true => where_found(&state.own, to),
                        false => opposite(socket.family, port_in(&state.own), to),
                    };
                });
                return Ok(());
            }
            let mut all = local(socket.family, 0).to_vec();
            all[4..].fill(0);
            let port = self.free_port(socket, &all)?;
            all[2..4].copy_from_slice(&port.to_be_bytes());
            let own = if connects { opposite(socket.family, port, to) } else { Arc::from(all) };
            socket.state.with(|state| state.own = own);
            Ok(())
        })
    }

    /// Who has an address.
    pub(super) fn find_socket(
        &self,
        thread: &Thread,
        socket: &Socket,
        address: &[u8],
    ) -> Result<Arc<Socket>, Errno> {
        let family = u16::from_le_bytes([address[0], address[1]]);
        if family != socket.family && !(socket.family == INET6 && family == INET) {
            return Err(if socket.family == UNIX { Errno::EINVAL } else { Errno::EAFNOSUPPORT });
        }
        let name = if family != UNIX {
            looked_for(socket.kind, port_of(family, address)?, address)
        } else {
            match Self::unix_name(address).ok_or(Errno::EINVAL)? {
                (true, name) => Name::anywhere(&[b"a", name].concat()),
                (false, path) => {
                    let inode = self.walk(thread, None, path, true)?.inode.ok_or(Errno::ENOENT)?;
                    self.may(thread, &inode, crate::rights::WRITE)?;
                    Name::anywhere(&[b"i", &inode.number.to_le_bytes()[..]].concat())
                }
            }
        };
        let found = self.names.find(&name, &socket.own()).ok_or(Errno::ECONNREFUSED)?;
        if found.kind == socket.kind { Ok(found) } else { Err(Errno::EPROTOTYPE) }
    }

    pub(crate) fn socket_name(&self, thread: &Thread, [number, to, len_at]: [u64; 3], peer: bool) -> Answer {
        let (_, socket) = self.socket_of(thread, number)?;
        let address = match peer {
            true if leads_nowhere(&socket) => return Err(Errno::ENOTCONN),
            true => as_seen(socket.family, &socket.peer().ok_or(Errno::ENOTCONN)?.address),
            false if socket.family != UNIX && socket.own().len() == 2 => {
                let mut none = local(socket.family, 0).to_vec();
                none[4..].fill(0);
                Arc::from(none)
            }
            false => socket.own(),
        };
        if to == 0 && self.load_word(len_at)? as i32 > 0 {
            return Err(Errno::EFAULT);
        }
        self.store_address(&address, to, len_at).map(|()| 0)
    }
}
