//! A group: 20 sockets, and how many of those who use them are left.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::socket::Socket;
use super::{MEMBERS, RECEIVERS, SENDERS, key};
use crate::guarded::Guarded;
use crate::latency::Tally;
use crate::machine::Machine;
use crate::system::System;

/// A group.
pub struct Group {
    /// By receiver.
    pub sockets: Vec<Guarded<Socket>>,
    /// Senders that have not ended: without any, an empty socket is at its end.
    senders: AtomicU32,
    /// Processes that have not ended.
    left: AtomicU32,
    /// One of them did not come to its own end.
    maimed: AtomicBool,
}

impl Group {
    /// Of processes that are not made yet.
    pub fn new() -> Group {
        Group {
            sockets: (0..RECEIVERS).map(|_| Guarded::new(Socket::new())).collect(),
            senders: AtomicU32::new(SENDERS),
            left: AtomicU32::new(MEMBERS),
            maimed: AtomicBool::new(false),
        }
    }

    /// Whether nobody writes any more. What was written before is in the sockets by then.
    pub fn is_at_end(&self) -> bool {
        // Acquire: partner of the Release in `leave`.
        self.senders.load(Ordering::Acquire) == 0
    }

    /// A process writes and reads no more, or never will: those who wait for it must not wait for ever.
    pub fn leave<M: Machine>(&self, system: &System<'_, M>, process: u32) {
        let m = system.mm.platform();
        let member = process % MEMBERS;
        if member < RECEIVERS {
            let (frames, woken) = self.sockets[member as usize].with(&system.mm, Socket::close);
            frames.into_iter().for_each(|frame| system.mm.frames().free(frame));
            woken.into_iter().for_each(|sender| m.wake(key(sender)));
        } else if self.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            let first = process - member;
            (first..first + RECEIVERS).for_each(|receiver| m.wake(key(receiver)));
        }
    }

    /// A process has ended, by itself or not.
    pub fn ended<M: Machine>(&self, system: &System<'_, M>, well: bool) {
        if !well {
            self.maimed.store(true, Ordering::Relaxed);
        }
        // AcqRel: the last one sees what the others stored.
        let last = self.left.fetch_sub(1, Ordering::AcqRel) == 1;
        if last && !self.maimed.load(Ordering::Relaxed) {
            system.mm.platform().tally(Tally::GroupsCompleted, 1);
        }
    }
}
