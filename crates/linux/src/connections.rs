//! The tables of all sockets, as `/proc/net` has them.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::kernel::Linux;
use crate::layout::text;
use crate::machine::Machine;
use crate::network::{INET, INET6, as_seen};
use crate::open::{Kind, Open};
use crate::socket::{Broken, Socket, UNIX, kind};

/// Which table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Table {
    /// Streams and packets of the network, with short addresses or long ones.
    Network { kind: u32, long: bool },
    /// Those of the Unix kind.
    Unix,
}

/// States, by Linux's numbers.
mod state {
    pub const CONNECTED: u8 = 1;
    /// It says no more, and the other end may still; the other way round.
    pub const SAID_ALL: u8 = 5;
    pub const NONE: u8 = 7;
    pub const HEARD_ALL: u8 = 8;
    pub const LISTENS: u8 = 10;
}

/// An address of the network as the tables have it: words as they lie in memory, and the port.
fn address(address: Option<&[u8]>, long: bool) -> String {
    let words = if long { 4 } else { 1 };
    let from = if long { 8 } else { 4 };
    let there = address.filter(|address| address.len() >= from + 4 * words);
    let mut all = String::new();
    for word in 0..words {
        let bytes = there.map_or([0; 4], |all| core::array::from_fn(|byte| all[from + 4 * word + byte]));
        all += &format!("{:08X}", u32::from_le_bytes(bytes));
    }
    let port = there.map_or(0, |all| u16::from_be_bytes([all[2], all[3]]));
    all + &format!(":{port:04X}")
}

/// What a socket of the network does.
pub fn state_of(socket: &Socket) -> u8 {
    let (listens, peer, silent) =
        socket.state.with(|state| (state.waiting.is_some(), state.peer.is_some(), state.silent));
    let (_, ended, _) = socket.inbox.state();
    match (silent, ended) {
        _ if listens => state::LISTENS,
        _ if !peer || socket.inbox.broken() != Broken::No => state::NONE,
        _ if socket.kind == kind::PACKETS => state::CONNECTED,
        (false, false) => state::CONNECTED,
        (false, true) => state::HEARD_ALL,
        (true, false) => state::SAID_ALL,
        (true, true) => state::NONE,
    }
}

/// Whether it is a stream of the network that leads to nobody: it never did, both ends have said all, or one broke off.
pub fn leads_nowhere(socket: &Socket) -> bool {
    socket.family != UNIX && socket.is_stream() && state_of(socket) == state::NONE
}

/// Whether it stands in a table: one that does nothing only if it is for packets, and has a name.
fn is_shown(socket: &Socket) -> bool {
    let named = || socket.state.with(|state| !state.names.is_empty());
    state_of(socket) != state::NONE || socket.kind == kind::PACKETS && named()
}

fn network_line(index: usize, number: u64, socket: &Socket, state: u8, long: bool) -> String {
    let own = address(Some(&socket.own()), long);
    let other = socket.peer().map(|peer| as_seen(socket.family, &peer.address));
    let other = address(other.as_deref(), long);
    let waiting = socket.state.with(|state| state.waiting.as_ref().map(|(all, _)| all.len()));
    let bytes = waiting.unwrap_or_else(|| socket.inbox.len(socket.is_stream()));
    let rest = format!("{state:02X} 00000000:{bytes:08X} 00:00000000 00000000     0        0 {number}");
    if socket.kind == kind::PACKETS {
        return format!("{index:5}: {own} {other} {rest} 2 0000000000000000 0\n");
    }
    let line = format!("{index:4}: {own} {other} {rest} 1 0000000000000000 100 0 0 10 0");
    format!("{line:<149}\n")
}

fn unix_line(number: u64, socket: &Socket) -> String {
    let (listens, peer) = socket.state.with(|state| (state.waiting.is_some(), state.peer.is_some()));
    let flags = if listens { 0x1_0000 } else { 0 };
    let state = if peer { 3 } else { 1 };
    let mut name = String::new();
    let own = socket.own();
    if own.len() > 2 {
        let is_abstract = own[2] == 0;
        let bytes =
            if is_abstract { &own[3..] } else { own[2..].split(|&byte| byte == 0).next().unwrap_or(&[]) };
        // Names of the abstract kind may have zeros in them.
        let shown: Vec<u8> = bytes.iter().map(|&byte| if byte == 0 { b'@' } else { byte }).collect();
        name = format!(" {}{}", if is_abstract { "@" } else { "" }, text(&shown));
    }
    format!("{:016x}: {:08X} {:08X} {flags:08X} {:04X} {state:02X} {number:5}{name}\n", 0, 2, 0, socket.kind)
}

impl<M: Machine> Linux<'_, M> {
    /// All sockets that are open, by their numbers.
    fn all_sockets(&self) -> BTreeMap<u64, Arc<Open>> {
        let mut found = BTreeMap::new();
        for process in self.processes.with(|all| all.values().cloned().collect::<Vec<_>>()) {
            process.files.with(|files| {
                files.each(|open| {
                    if matches!(open.kind, Kind::Socket(_)) {
                        found.insert(open.number(), open.clone());
                    }
                });
            });
        }
        found
    }

    /// One of the tables.
    pub(crate) fn connections(&self, table: Table) -> String {
        let all = self.all_sockets();
        let sockets = all.iter().filter_map(|(&number, open)| match &open.kind {
            Kind::Socket(socket) => Some((number, socket)),
            _ => None,
        });
        // Those that wait to be accepted are not open yet, and have no number.
        let waiting: Vec<Arc<Socket>> = sockets
            .clone()
            .filter(|_| table != Table::Unix)
            .flat_map(|(_, socket)| {
                socket
                    .state
                    .with(|state| state.waiting.iter().flat_map(|(all, _)| all).cloned().collect::<Vec<_>>())
            })
            .collect();
        let sockets = sockets.chain(waiting.iter().map(|socket| (0, socket)));
        let Table::Network { kind, long } = table else {
            let lines = sockets.filter(|(_, socket)| socket.family == UNIX);
            let head = String::from("Num       RefCount Protocol Flags    Type St Inode Path\n");
            return lines.fold(head, |all, (number, socket)| all + &unix_line(number, socket));
        };
        let addresses = if long {
            "local_address                         remote_address                        st"
        } else {
            "local_address rem_address   st"
        };
        let rest = "tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
        let head = match (kind, long) {
            (kind::PACKETS, false) => format!("   sl  {addresses} {rest} ref pointer drops"),
            (kind::PACKETS, true) => format!("  sl  {addresses} {rest} ref pointer drops"),
            _ => format!("  sl  {addresses} {rest}"),
        };
        let width = if long {
            0
        } else if kind == kind::PACKETS {
            127
        } else {
            149
        };
        let family = if long { INET6 } else { INET };
        let ours = sockets.filter(|(_, socket)| (socket.family, socket.kind) == (family, kind));
        let shown = ours
            .filter(|(_, socket)| is_shown(socket))
            .map(|(number, socket)| (number, socket, state_of(socket)));
        shown.enumerate().fold(format!("{head:<width$}\n"), |all, (index, (number, socket, state))| {
            all + &network_line(index, number, socket, state, long)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;

    #[test]
    fn lines_are_as_linux_has_them() {
        let (names, left) = (Arc::default(), Arc::default());
        let new = |family, kind| Socket::new(family, kind, &names, &left);
        let socket = new(INET, kind::STREAM);
        assert!(!is_shown(&socket));
        socket.state.with(|state| {
            state.own = Arc::from([&[2, 0, 0x1f, 0xbc, 127, 0, 0, 1][..], &[0; 8]].concat());
            state.waiting = Some((VecDeque::new(), 5));
        });
        assert_eq!(state_of(&socket), state::LISTENS);
        let (one, other) = (new(INET, kind::STREAM), new(INET, kind::STREAM));
        one.join(&other);
        assert_eq!(state_of(&one), state::CONNECTED);
        one.state.with(|state| state.silent = true);
        other.inbox.end();
        assert_eq!((state_of(&one), state_of(&other)), (state::SAID_ALL, state::HEARD_ALL));
        one.inbox.end();
        assert!(!is_shown(&one), "both ends have said all");
        let line = network_line(0, 12345, &socket, state::LISTENS, false);
        let start = "   0: 0100007F:1FBC 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12345 1 ";
        assert!(line.starts_with(start) && line.len() == 150, "{line}");
        let mut long = alloc::vec![0; 28];
        (long[0], long[3], long[23]) = (10, 80, 1);
        assert_eq!(address(Some(&long), true), "00000000000000000000000001000000:0050");
        let unix = new(UNIX, kind::STREAM);
        unix.state.with(|state| state.own = Arc::from(&b"\x01\x00\x00x"[..]));
        assert_eq!(unix_line(7, &unix), "0000000000000000: 00000002 00000000 00000000 0001 01     7 @x\n");
        unix.state.with(|state| state.own = Arc::from(&b"\x01\x00\x00x\x00y"[..]));
        assert!(unix_line(7, &unix).ends_with(" @x@y\n"));
    }
}
