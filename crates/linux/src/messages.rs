//! Queues of messages (System V): each message has a kind, by which it is chosen.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::errno::Errno;
use crate::sync::Spin;

/// The longest message.
pub const LONGEST: usize = 8192;

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Its kind; more than 0.
    pub kind: i64,
    /// What it says.
    pub bytes: Vec<u8>,
}

/// What is known of a queue.
#[derive(Clone, Copy, Default)]
pub struct Known {
    /// When something was last sent, received, and changed, in seconds since 1970.
    pub times: [u64; 3],
    /// Bytes in it, and messages.
    pub bytes: usize,
    /// Messages in it.
    pub count: usize,
    /// Bytes that fit.
    pub most: usize,
    /// Who sent and who received last.
    pub pids: [u32; 2],
}

#[derive(Default)]
struct State {
    /// In the order in which they came. They take memory one by one: there may be very many.
    all: BTreeMap<u64, Message>,
    next: u64,
    known: Known,
    gone: bool,
}

/// A queue.
pub struct Queue(Spin<State>);

/// Which message is wanted: of a kind, or of any with 0; below 0 one of the lowest kind up to that many.
fn chosen(all: &BTreeMap<u64, Message>, kind: i64, except: bool) -> Option<u64> {
    let mut all = all.iter();
    let found = match kind {
        0 => all.next(),
        1.. => all.find(|(_, one)| (one.kind == kind) != except),
        _ => {
            let fits = all.filter(|(_, one)| one.kind.unsigned_abs() <= kind.unsigned_abs());
            fits.min_by_key(|(at, one)| (one.kind, *at))
        }
    };
    found.map(|(&at, _)| at)
}

impl Queue {
    /// An empty one.
    pub fn new(now: u64) -> Queue {
        let known = Known { times: [0, 0, now], most: 16384, ..Known::default() };
        Queue(Spin::new(State { known, ..State::default() }))
    }

    /// What is known of it.
    pub fn known(&self) -> Known {
        self.0.with(|state| Known { count: state.all.len(), ..state.known })
    }

    /// Puts a message in, if there is room; says whether. Then it has it.
    ///
    /// # Errors
    /// `EIDRM`: it is gone.
    pub fn send(&self, message: &mut Option<Message>, pid: u32, now: u64) -> Result<bool, Errno> {
        self.0.with(|state| {
            if state.gone {
                return Err(Errno::EIDRM);
            }
            let bytes = message.as_ref().map_or(0, |message| message.bytes.len());
            let known = &mut state.known;
            if known.bytes + bytes > known.most || state.all.len() >= known.most {
                return Ok(false);
            }
            known.bytes += bytes;
            (known.pids[0], known.times[0]) = (pid, now);
            state.all.extend(message.take().map(|message| (state.next, message)));
            state.next += 1;
            Ok(true)
        })
    }

    /// Takes a message out, if there is one of those that are wanted.
    ///
    /// # Errors
    /// `EIDRM`: it is gone; `E2BIG`: it is longer than this, and stays.
    pub fn receive(
        &self,
        (kind, except): (i64, bool),
        most: usize,
        pid: u32,
        now: u64,
    ) -> Result<Option<Message>, Errno> {
        self.0.with(|state| {
            if state.gone {
                return Err(Errno::EIDRM);
            }
            let Some(at) = chosen(&state.all, kind, except) else { return Ok(None) };
            if state.all.get(&at).is_some_and(|found| found.bytes.len() > most) {
                return Err(Errno::E2BIG);
            }
            let found = state.all.remove(&at);
            state.known.bytes -= found.as_ref().map_or(0, |found| found.bytes.len());
            (state.known.pids[1], state.known.times[1]) = (pid, now);
            Ok(found)
        })
    }

    /// From now on so many bytes fit.
    pub fn resize(&self, most: usize, now: u64) {
        self.0.with(|state| (state.known.most, state.known.times[2]) = (most, now));
    }

    /// It is gone: whoever waits hears of it.
    pub fn end(&self) {
        let gone = self.0.with(|state| {
            state.gone = true;
            core::mem::take(&mut state.all)
        });
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_chosen_by_their_kind() {
        let queue = Queue::new(0);
        let send =
            |kind, bytes: usize| queue.send(&mut Some(Message { kind, bytes: alloc::vec![7; bytes] }), 1, 0);
        for kind in [5, 3, 9, 3] {
            assert_eq!(send(kind, kind as usize), Ok(true));
        }
        let receive =
            |kind, except| queue.receive((kind, except), 100, 2, 0).unwrap().map(|found| found.kind);
        assert_eq!(queue.receive((9, false), 8, 2, 0), Err(Errno::E2BIG));
        assert_eq!(
            [receive(4, false), receive(9, false), receive(-4, false), receive(3, true)],
            [None, Some(9), Some(3), Some(5)]
        );
        assert_eq!((queue.known().bytes, queue.known().count, queue.known().pids), (3, 1, [1, 2]));
        assert_eq!([receive(-2, false), receive(0, false), receive(0, false)], [None, Some(3), None]);
        assert_eq!((send(1, LONGEST), send(1, LONGEST), send(1, 1)), (Ok(true), Ok(true), Ok(false)));
        queue.end();
        assert_eq!((send(1, 1), queue.receive((0, false), 1, 2, 0)), (Err(Errno::EIDRM), Err(Errno::EIDRM)));
    }
}
