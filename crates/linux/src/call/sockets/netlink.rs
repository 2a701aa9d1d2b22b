//! Questions about the network by messages (`netlink`): what interfaces there are, and which addresses. There is one interface, which leads back
//! here, and nothing of it can be changed.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::layout::Pack;
use crate::machine::Machine;
use crate::process::Thread;
use crate::socket::{Sender, Socket};
use crate::sync::key_of;

pub(super) const FAMILY: u16 = 16;
/// The protocol of questions for sockets: there are none by messages. Who hears that looks into `/proc/net`.
pub(super) const SOCKETS: u32 = 4;

/// Bytes that are asked at once.
const MOST: u64 = 32_768;

mod what {
    pub const ERROR: u16 = 2;
    pub const DONE: u16 = 3;
    pub const NEW_LINK: u16 = 16;
    pub const GET_LINK: u16 = 18;
    pub const NEW_ADDRESS: u16 = 20;
    pub const GET_ADDRESS: u16 = 22;
    pub const GET_ROUTE: u16 = 26;
    pub const GET_NEIGHBOUR: u16 = 30;
    pub const GET_RULE: u16 = 34;
}
/// Flags of messages: several parts; an answer is wanted in any case; of all.
const MANY: u16 = 2;
const ACKNOWLEDGED: u16 = 4;
const ALL: u16 = 0x300;

/// What the interface is, and that it is up, leads back here, runs, and that what is below it is up.
const LOOPBACK: u16 = 772;
const FLAGS: u32 = 0x1_0049;
const NAME: &[u8] = b"lo\0";

/// The address of a socket: of the kernel, or of whoever has this number.
pub(super) fn address(number: u32) -> Arc<[u8]> {
    Arc::from(Pack::default().half(FAMILY).half(0).word(number).word(0).0)
}

/// An attribute: its length, its kind, and what it says.
fn attribute(mut all: Pack, kind: u16, value: &[u8]) -> Pack {
    all = all.half(4 + value.len() as u16).half(kind);
    all.0.extend_from_slice(value);
    let end = all.0.len().next_multiple_of(4);
    all.zeros_to(end)
}

/// A message: its head, and what it says.
fn message(kind: u16, flags: u16, (sequence, to): (u32, u32), said: &[u8]) -> Vec<u8> {
    let head = Pack::default().word(16 + said.len() as u32).half(kind).half(flags).word(sequence).word(to);
    let mut all = head.0;
    all.extend_from_slice(said);
    all.resize(all.len().next_multiple_of(4), 0);
    all
}

fn link() -> Vec<u8> {
    let word = |word: u32| word.to_le_bytes();
    let all = Pack::default().half(0).half(LOOPBACK).word(1).word(FLAGS).word(0);
    let all = attribute(all, 3, NAME);
    // Packets that wait; up or not is unknown; as by default; the longest piece.
    let all = attribute(all, 13, &word(1000));
    let all = attribute(all, 16, &[0]);
    let all = attribute(all, 17, &[0]);
    let all = attribute(all, 4, &word(65_536));
    let all = attribute(all, 27, &word(0));
    let all = attribute(all, 6, b"noqueue\0");
    let all = attribute(all, 1, &[0; 6]);
    attribute(all, 2, &[0; 6]).0
}

fn address_of(family: u8, prefix: u8, bytes: &[u8]) -> Vec<u8> {
    const FOR_EVER: u8 = 0x80;
    const HOST: u8 = 254;
    let all = Pack(alloc::vec![family, prefix, FOR_EVER, HOST]).word(1);
    let all = attribute(all, 1, bytes);
    let all = match family {
        2 => attribute(attribute(all, 2, bytes), 3, NAME),
        _ => all,
    };
    let all = attribute(all, 6, &[[0xff; 8], [0; 8]].concat());
    attribute(all, 8, &u32::from(FOR_EVER).to_le_bytes()).0
}

/// Whether a question about one interface means this one: by its number, or by an attribute with its name.
fn means_ours(asked: &[u8]) -> bool {
    let number = asked.get(4..8).map_or(0, |word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    if number != 0 {
        return number == 1;
    }
    let mut at = 16;
    while let Some(head) = asked.get(at..at + 4) {
        let (len, kind) =
            (usize::from(u16::from_le_bytes([head[0], head[1]])), u16::from_le_bytes([head[2], head[3]]));
        let Some(value) = asked.get(at + 4..at + len) else { return false };
        if kind == 3 || kind == 53 {
            return value.split(|&byte| byte == 0).next() == Some(b"lo");
        }
        at += len.next_multiple_of(4).max(4);
    }
    false
}

/// What is answered to the messages in these bytes, whose sender has this number.
fn answers(mut asked: &[u8], from: u32, sockets: bool) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(head) = asked.get(..16) {
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (len, kind, flags) = (word(0) as usize, word(4) as u16, (word(4) >> 16) as u16);
        let Some(whole) = asked.get(..len).filter(|_| len >= 16) else { break };
        let (to, body) = ((word(8), from), &whole[16..]);
        let family = body.first().copied().unwrap_or(0);
        let fails = |error: u16| {
            let said = [&(-i32::from(error)).to_le_bytes()[..], whole].concat();
            message(what::ERROR, 0, to, &said)
        };
        let all = flags & ALL != 0;
        match kind {
            // Those of the netlink's own.
            0..16 => {}
            _ if sockets => out.extend(fails(Errno::ENOENT.0)),
            what::GET_LINK if !all && !means_ours(body) => out.extend(fails(Errno::ENODEV.0)),
            what::GET_LINK if !all => out.extend(message(what::NEW_LINK, 0, to, &link())),
            what::GET_LINK => {
                out.extend(message(what::NEW_LINK, MANY, to, &link()));
                out.extend(message(what::DONE, MANY, to, &[0; 4]));
            }
            what::GET_ADDRESS if all => {
                let mut long = [0; 16];
                long[15] = 1;
                if family == 0 || family == 2 {
                    let said = address_of(2, 8, &[127, 0, 0, 1]);
                    out.extend(message(what::NEW_ADDRESS, MANY, to, &said));
                }
                if family == 0 || family == 10 {
                    out.extend(message(what::NEW_ADDRESS, MANY, to, &address_of(10, 128, &long)));
                }
                out.extend(message(what::DONE, MANY, to, &[0; 4]));
            }
            // Nothing is known of other machines.
            what::GET_ROUTE | what::GET_NEIGHBOUR | what::GET_RULE if all => {
                out.extend(message(what::DONE, MANY, to, &[0; 4]));
            }
            what::GET_ROUTE => out.extend(fails(Errno::ENETUNREACH.0)),
            // A question of another kind, or a change.
            kind if kind % 4 == 2 => out.extend(fails(Errno::EOPNOTSUPP.0)),
            _ => out.extend(fails(Errno::EPERM.0)),
        }
        if kind < 16 && flags & ACKNOWLEDGED != 0 {
            out.extend(fails(0));
        }
        asked = asked.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    out
}

impl<M: Machine> Linux<'_, M> {
    /// Has an address from here on, if it had none.
    pub(super) fn bind_netlink(&self, thread: &Thread, socket: &Socket, number: u32) -> u32 {
        socket.state.with(|state| {
            if !state.bound {
                let number = if number == 0 { thread.process.pid } else { number };
                (state.own, state.bound) = (address(number), true);
            }
            u32::from_le_bytes([state.own[4], state.own[5], state.own[6], state.own[7]])
        })
    }

    /// Answers what is asked.
    pub(super) fn ask_netlink(&self, thread: &Thread, socket: &Socket, from: &[(u64, u64)]) -> Answer {
        let number = self.bind_netlink(thread, socket, 0);
        let whole: u64 = from.iter().fold(0, |sum, &(_, bytes)| sum.saturating_add(bytes));
        if whole > MOST {
            return Err(Errno::EMSGSIZE);
        }
        if !self.machine.has_piece(8 * whole) {
            return Err(Errno::ENOMEM);
        }
        let mut asked = alloc::vec![0; whole as usize];
        let mut place = 0;
        for &(at, bytes) in from {
            self.machine.read_user(at, &mut asked[place..place + bytes as usize])?;
            place += bytes as usize;
        }
        let out = answers(&asked, number, socket.state.with(|state| state.asks_sockets));
        if !out.is_empty() {
            // Whoever does not read what comes loses it.
            let _ = socket.inbox.send(&out, &Sender::at(&address(0)), Vec::new(), false, socket.sends());
            self.changed(key_of(&*socket.inbox));
        }
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(kind: u16, flags: u16, body: &[u8]) -> Vec<(u16, u16, Vec<u8>)> {
        let mut out = answers(&message(kind, flags | 1, (7, 0), body), 42, false);
        let mut found = Vec::new();
        while !out.is_empty() {
            let word = |at: usize| u32::from_le_bytes(out[at..at + 4].try_into().unwrap());
            assert_eq!((word(8), word(12)), (7, 42));
            let len = word(0) as usize;
            found.push((word(4) as u16, (word(4) >> 16) as u16, out[16..len].to_vec()));
            out.drain(..len.next_multiple_of(4));
        }
        found
    }

    #[test]
    fn one_interface_is_there_with_two_addresses() {
        let kinds = |all: &[(u16, u16, Vec<u8>)]| all.iter().map(|(kind, ..)| *kind).collect::<Vec<_>>();
        assert_eq!(kinds(&ask(what::GET_LINK, ALL, &[0; 16])), [what::NEW_LINK, what::DONE]);
        assert_eq!(
            kinds(&ask(what::GET_ADDRESS, ALL, &[0])),
            [what::NEW_ADDRESS, what::NEW_ADDRESS, what::DONE]
        );
        let four = ask(what::GET_ADDRESS, ALL, &[2]);
        assert_eq!(kinds(&four), [what::NEW_ADDRESS, what::DONE]);
        assert_eq!(four[0].2[..16], [2, 8, 0x80, 254, 1, 0, 0, 0, 8, 0, 1, 0, 127, 0, 0, 1]);
    }

    #[test]
    fn one_interface_is_found_by_number_and_by_name_and_no_other() {
        let by_number =
            |number: u32| ask(what::GET_LINK, 0, &Pack::default().word(0).word(number).zeros_to(16).0);
        let by_name =
            |name: &[u8]| ask(what::GET_LINK, 0, &attribute(Pack::default().zeros_to(16), 3, name).0);
        for found in [by_number(1), by_name(b"lo\0")] {
            assert_eq!(found[0].0, what::NEW_LINK);
        }
        for lost in [by_number(2), by_name(b"eth0\0"), ask(what::GET_LINK, 0, &[0; 16])] {
            assert_eq!((lost[0].0, &lost[0].2[..4]), (what::ERROR, &(-19_i32).to_le_bytes()[..]));
        }
        assert_eq!(ask(what::NEW_LINK, 0, &[0; 16])[0].2[..4], (-1_i32).to_le_bytes());
    }

    #[test]
    fn torn_messages_are_answered_by_nothing_and_end() {
        let whole = message(what::GET_LINK, ALL, (1, 0), &[0; 16]);
        for len in 0..whole.len() {
            assert!(answers(&whole[..len], 1, false).is_empty(), "{len}");
        }
        let mut zero = whole.clone();
        zero[..4].fill(0);
        assert!(answers(&zero, 1, false).is_empty());
        // An attribute without a length.
        assert!(!means_ours(&[0; 24]));
    }
}
