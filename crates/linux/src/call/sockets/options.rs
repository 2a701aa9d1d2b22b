//! Options of sockets.

use super::UNIX;
use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::layout::Pack;
use crate::machine::Machine;
use crate::process::Thread;
use crate::socket::kind;

impl<M: Machine> Linux<'_, M> {
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
