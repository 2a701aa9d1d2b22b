//! Options of sockets.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use super::UNIX;
use crate::connections;
use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::layout::Pack;
use crate::machine::Machine;
use crate::network::{INET, INET6};
use crate::process::Thread;
use crate::socket::{Late, ROOM, Socket, kind};
use crate::sync::key_of;

/// Whether a socket has options of a level: those of all sockets, of its addresses, and of how its bytes go.
fn is_of_level(socket: &Socket, level: u64) -> bool {
    match (level as u32, socket.family) {
        (1, _) => true,
        (_, UNIX) => false,
        (0, INET | INET6) | (41, INET6) => true,
        (6, INET | INET6) => socket.is_stream(),
        (17, INET | INET6) => !socket.is_stream(),
        (_, INET | INET6) => false,
        _ => true,
    }
}

/// Whether there may be such an option: of the network, none has a number above these.
fn is_known(socket: &Socket, level: u64, what: u64) -> bool {
    let last = match level as u32 {
        0 => 52,
        6 => 45,
        17 => 104,
        41 => 80,
        _ => u32::MAX,
    };
    is_of_level(socket, level) && what as u32 <= last
}

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn setsockopt(&self, thread: &Thread, [number, level, what, at, len]: [u64; 5]) -> Answer {
        let (_, socket) = self.socket_of(thread, number)?;
        /// Options and bytes of one that are kept.
        const MOST: usize = 64;
        const LONGEST: u64 = 16;
        if socket.family == UNIX && level != 1 {
            return Err(Errno::EOPNOTSUPP);
        }
        if !is_known(&socket, level, what) {
            return Err(Errno::ENOPROTOOPT);
        }
        // How long receives and sends wait; nothing that can be seen depends on the others, but what they are.
        if let (1, 20 | 21) = (level, what) {
            if len < 16 {
                return Err(Errno::EINVAL);
            }
            let (seconds, micros) = (self.load_long(at)?, self.load_long(at + 8)?);
            if micros >= 1_000_000 {
                return Err(Errno::EDOM);
            }
            let time = match seconds as i64 {
                // Over before it begins.
                ..0 => 1,
                _ => seconds.saturating_mul(1_000_000_000).saturating_add(micros.saturating_mul(1000)),
            };
            socket.state.with(|state| state.times[what as usize - 20] = time);
            return Ok(0);
        }
        let mut value = alloc::vec![0; len.min(LONGEST) as usize];
        self.machine.read_user(at, &mut value)?;
        if (level == 1 || level == 6) && value.len() < 4 {
            return Err(Errno::EINVAL);
        }
        let mut what = what;
        if let (1, 32 | 33) = (level, what)
            && !thread.process.owner.with(|owner| owner.is_root())
        {
            return Err(Errno::EPERM);
        }
        // Room is counted with what the kernel needs for itself. The last two are for who may have more than others: here nobody may.
        if let (1, 7 | 8 | 32 | 33) = (level, what) {
            let receives = matches!(what, 8 | 33);
            let least = if receives { 1152 } else { 2304 };
            let asked = u32::from_le_bytes([value[0], value[1], value[2], value[3]]);
            let room = 2 * asked.clamp(least, ROOM as u32);
            socket.set_room(receives, room as usize);
            let inbox =
                if receives { Some(socket.inbox.clone()) } else { socket.peer().map(|peer| peer.inbox) };
            // Whoever waits for room may have it now.
            inbox.into_iter().for_each(|inbox| {
                inbox.goes();
                self.changed(key_of(&*inbox));
            });
            value = room.to_le_bytes().to_vec();
            what = 7 + u64::from(receives);
        }
        // What is on or off is 1 or 0.
        if matches!((level, what), (1, 2 | 5 | 6 | 9 | 10 | 15 | 16 | 29 | 35) | (6, 1 | 3)) {
            value = u32::from(value[..4] != [0; 4]).to_le_bytes().to_vec();
        }
        if let (1, 16) = (level, what) {
            socket.inbox.asks_who.store(value[0] != 0, Ordering::Relaxed);
        }
        if let (1, 10) = (level, what) {
            socket.inbox.is_inline.store(value[0] != 0, Ordering::Relaxed);
        }
        let key = (level as u32, what as u32);
        socket.state.with(|state| {
            if state.options.len() < MOST || state.options.contains_key(&key) {
                state.options.insert(key, value);
            }
        });
        Ok(0)
    }

    pub(crate) fn getsockopt(&self, thread: &Thread, [number, level, what, to, len_at]: [u64; 5]) -> Answer {
        let (_, socket) = self.socket_of(thread, number)?;
        if !is_of_level(&socket, level) {
            return Err(Errno::EOPNOTSUPP);
        }
        if !is_known(&socket, level, what) {
            return Err(Errno::ENOPROTOOPT);
        }
        let word = |word: u32| Pack::default().word(word).0;
        let kept = socket.state.with(|state| state.options.get(&(level as u32, what as u32)).cloned());
        let value = match (level, what) {
            (1, 3 | 4 | 17 | 20 | 21 | 30 | 38 | 39) | (6, 11) => None,
            _ => kept,
        };
        let value = match (level, what) {
            _ if value.is_some() => value.unwrap_or_default(),
            (1, 13) => alloc::vec![0; 8],
            (1, 3) => word(socket.kind),
            // Errors are told at once, but of connections that nobody waited for, and of packets that came to nobody.
            (1, 4) if let Some(error) = socket.inbox.take_break(false) => word(error.0.into()),
            (1, 4) if socket.take_refusal() => word(Errno::ECONNREFUSED.0.into()),
            (1, 4) => word(socket.state.with(|state| match state.late {
                Late::Refused => {
                    state.late = Late::Over;
                    Errno::ECONNREFUSED.0.into()
                }
                _ => 0,
            })),
            // What was set is not kept.
            (1, 2 | 5 | 6 | 9..=12 | 15 | 16 | 29 | 34..=36 | 40 | 42 | 44..=46 | 60) => word(0),
            (1, 7 | 8) => word(ROOM as u32),
            // A byte is enough to be woken.
            (1, 18) => word(1),
            (1, 17) => {
                let who =
                    socket.state.with(|state| state.peer.as_ref().map_or(state.listens_as, |peer| peer.who));
                who.into_iter().fold(Pack::default(), |all, word| all.word(word)).0
            }
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
            // The longest piece that goes at once: of this machine's own network.
            (6, 2) if socket.family != UNIX && socket.is_stream() => word(match socket.family {
                _ if socket.peer().is_none() => 536,
                // Half of the first window, without what goes before it.
                2 => 32_741,
                _ => 32_732,
            }),
            // How packets are held back where there are too many; and what is known of a connection: its state, and that nothing is lost.
            (6, 13) if socket.is_stream() => b"cubic\0\0\0\0\0\0\0\0\0\0\0".to_vec(),
            (6, 11) if socket.is_stream() => {
                Pack::default().word(connections::state_of(&socket).into()).zeros_to(232).0
            }
            (6, what) if socket.family != UNIX && socket.is_stream() => word(match what {
                // When and how often it is asked whether the other end is there, how often a connection is tried, whether receipts go at once.
                4 => 7200,
                5 => 75,
                6 => 9,
                7 => 6,
                8 => 60,
                12 => 1,
                _ => 0,
            }),
            // Options that go along with each packet: there are none.
            (0, 4) if socket.family != UNIX => Vec::new(),
            // Over how many machines packets go; to many, and back to the sender.
            (0, 2) | (41, 16) if socket.family != UNIX => word(64),
            (0, 10 | 33 | 34) | (41, 18 | 19) if socket.family != UNIX => word(1),
            (0 | 41, _) if socket.family != UNIX => word(0),
            _ => return Err(Errno::ENOPROTOOPT),
        };
        let room = self.load_word(len_at)? as i32;
        let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
        let len = value.len().min(room);
        self.machine.write_user(to, &value[..len])?;
        self.machine.write_user(len_at, &(len as u32).to_le_bytes()).map(|()| 0)
    }
}
