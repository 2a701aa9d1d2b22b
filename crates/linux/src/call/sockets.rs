//! Calls about sockets: those that make them, and what all have in common. `socket.rs` has what sockets are.

mod addresses;
mod connect;
mod interfaces;
mod messages;
mod netlink;
mod options;
mod receive;
mod send;

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::layout::Pack;
use crate::machine::Machine;
use crate::network::{INET, INET6};
use crate::open::{Kind, Open, flag};
use crate::process::Thread;
use crate::socket::{Socket, UNIX, kind};

/// Flags of sends and receives.
mod message {
    pub const URGENT: u64 = 1;
    pub const PEEK: u64 = 2;
    pub const CUT_CONTROL: u64 = 8;
    pub const CUT: u64 = 0x20;
    pub const NO_WAIT: u64 = 0x40;
    pub const ALL: u64 = 0x100;
    pub const ERRORS: u64 = 0x2000;
    pub const NO_SIGNAL: u64 = 0x4000;
    /// Only the first is waited for.
    pub const FIRST: u64 = 0x1_0000;
    pub const CLOSE_ON_EXEC: u64 = 0x4000_0000;
}

/// What goes along with bytes.
#[derive(Default)]
pub(super) struct Extra {
    flags: u64,
    to: Option<Vec<u8>>,
    files: Vec<Arc<Open>>,
    /// As who it says that it sends: process, user and group.
    who: Option<[u32; 3]>,
}

impl<M: Machine> Linux<'_, M> {
    fn socket_of(&self, thread: &Thread, number: u64) -> Result<(Arc<Open>, Arc<Socket>), Errno> {
        let open = self.open_used(thread, number)?;
        match &open.kind {
            Kind::Socket(socket) => {
                let socket = socket.clone();
                Ok((open, socket))
            }
            _ => Err(Errno::ENOTSOCK),
        }
    }

    /// Who a process is for the other ends of its sockets.
    fn seen_as(thread: &Thread) -> [u32; 3] {
        let process = &thread.process;
        process.owner.with(|owner| [process.pid, owner.users[1], owner.groups[1]])
    }

    fn new_socket(&self, family: u16, of: u32) -> Arc<Socket> {
        Socket::new(family, of, &self.names, &self.left)
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
            // Raw ones of that kind are packets.
            (UNIX, 3, 0 | 1) => return Ok((family, kind::PACKETS, flags)),
            (UNIX, kind::STREAM | kind::PACKETS | kind::SEQUENCE, _) => return Err(Errno::EPROTONOSUPPORT),
            (INET | INET6, kind::STREAM, 0 | 6) | (INET | INET6, kind::PACKETS, 0 | 17) => {}
            (INET | INET6, kind::STREAM | kind::PACKETS, _) => return Err(Errno::EPROTONOSUPPORT),
            // Raw and packets are the same there. Of its protocols one is here, and one that says where else to look.
            (netlink::FAMILY, 3 | kind::PACKETS, 0 | netlink::SOCKETS) => {
                return Ok((family, kind::PACKETS, flags));
            }
            (netlink::FAMILY, 3 | kind::PACKETS, _) => return Err(Errno::EPROTONOSUPPORT),
            (UNIX | INET | INET6 | netlink::FAMILY, _, _) => return Err(Errno::ESOCKTNOSUPPORT),
            _ => return Err(Errno::EAFNOSUPPORT),
        }
        Ok((family, of, flags))
    }

    pub(crate) fn socket(&self, thread: &Thread, family: u64, of: u64, protocol: u64) -> Answer {
        let (family, of, flags) = self.wanted(family, of, protocol)?;
        let socket = self.new_socket(family, of);
        if family == netlink::FAMILY {
            let asks = protocol as u32 == netlink::SOCKETS;
            socket.state.with(|state| (state.own, state.asks_sockets) = (netlink::address(0), asks));
        }
        self.open_socket(thread, socket, flags)
    }

    pub(crate) fn socketpair(&self, thread: &Thread, [family, of, protocol, to]: [u64; 4]) -> Answer {
        let (family, of, flags) = self.wanted(family, of, protocol)?;
        if family != UNIX {
            return Err(Errno::EOPNOTSUPP);
        }
        let ends = [0; 2].map(|_| self.new_socket(family, of));
        ends[0].join(&ends[1]);
        let me = Self::seen_as(thread);
        for end in &ends {
            end.state.with(|state| state.peer.iter_mut().for_each(|peer| peer.who = me));
        }
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

    fn until(&self, socket: &Socket, which: usize) -> Option<u64> {
        let time = socket.state.with(|state| state.times[which]);
        (time != 0).then(|| self.now().saturating_add(time))
    }
}
