//! A socket: the bounded queue of messages before one receiver.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem;

use quietmm::Frames;

/// Messages whose buffers share a frame. A message of 100 bytes took 768 bytes of kernel memory on Linux 3.4: 512 for the
/// data with its header, 256 for what describes it, from slabs of frames that other messages share.
pub const PER_FRAME: u64 = 5;
/// Messages that a socket queues: 212,992 bytes, Linux's default, in buffers of 768, as whole frames.
pub const MOST: u64 = 275;

/// The queue.
pub struct Socket {
    /// Buffers of the messages from `taken` to `put`: message `n` lies in the frame of `n / PER_FRAME`.
    frames: VecDeque<Frames>,
    /// Messages put in so far, and taken out.
    put: u64,
    taken: u64,
    /// Senders that found no room and sleep.
    blocked: Vec<u32>,
    /// The receiver has gone.
    closed: bool,
}

/// What comes of putting a message in.
pub enum Put {
    /// It is there; whether the receiver may have found nothing before.
    Done { first: bool },
    /// It needs the buffers of another frame first.
    NeedsFrame,
    /// There is no room: whoever asked is woken when there is.
    Full,
    /// Nobody will read it.
    Closed,
}

/// A message that was taken out.
#[derive(Default)]
pub struct Taken {
    /// A frame that holds no message any more.
    pub freed: Option<Frames>,
    /// Senders to be woken.
    pub woken: Vec<u32>,
}

impl Socket {
    /// Empty.
    pub const fn new() -> Socket {
        Socket { frames: VecDeque::new(), put: 0, taken: 0, blocked: Vec::new(), closed: false }
    }

    /// Puts a message in; takes the frame if its buffer needs one.
    pub fn put(&mut self, sender: u32, frame: &mut Option<Frames>) -> Put {
        if self.closed {
            return Put::Closed;
        }
        if self.put - self.taken >= MOST {
            self.blocked.push(sender);
            return Put::Full;
        }
        if self.put.is_multiple_of(PER_FRAME) {
            match frame.take() {
                None => return Put::NeedsFrame,
                Some(frame) => self.frames.push_back(frame),
            }
        }
        self.put += 1;
        Put::Done { first: self.put - self.taken == 1 }
    }

    /// Takes a message out, if there is one. Senders are woken once the queue has fallen to a quarter, as Linux does.
    pub fn take(&mut self) -> Option<Taken> {
        if self.is_empty() {
            return None;
        }
        self.taken += 1;
        let emptied = self.taken.is_multiple_of(PER_FRAME);
        let roomy = self.put - self.taken <= MOST / 4;
        Some(Taken {
            freed: if emptied { self.frames.pop_front() } else { None },
            woken: if roomy { mem::take(&mut self.blocked) } else { Vec::new() },
        })
    }

    /// The receiver goes. Returns the frames of what nobody has read, and whom to wake.
    pub fn close(&mut self) -> (VecDeque<Frames>, Vec<u32>) {
        self.closed = true;
        self.taken = self.put;
        (mem::take(&mut self.frames), mem::take(&mut self.blocked))
    }

    /// Whether there is no message.
    pub fn is_empty(&self) -> bool {
        self.put == self.taken
    }

    /// Whether a sender sleeps because it found no room.
    pub fn blocks(&self, sender: u32) -> bool {
        self.blocked.contains(&sender)
    }
}
