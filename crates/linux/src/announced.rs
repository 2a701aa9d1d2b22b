//! Signals for many processes at once: those of a group, or all. Whoever is made at that moment is in no list yet, and hears of them when it is.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use crate::process::Process;
use crate::signal::{Info, number};

/// So many are kept: more are not sent while one process is made, or that one misses the first of them.
const MOST: usize = 64;

/// For whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meant {
    /// Of a group.
    Group(u32),
    /// All but the first one and this one.
    AllBut(u32),
}

impl Meant {
    /// Whether this one is meant.
    pub fn is(self, process: &Process) -> bool {
        match self {
            Meant::Group(group) => process.group.load(Ordering::Relaxed) == group,
            Meant::AllBut(pid) => process.pid != 1 && process.pid != pid,
        }
    }
}

/// What counts of whoever sends a signal.
#[derive(Clone, Copy)]
pub(crate) struct Sender {
    pid: u32,
    /// Its real user, and its effective one.
    users: [u32; 2],
    session: u32,
}

impl Sender {
    /// A process, as it is now.
    pub fn of(process: &Process) -> Sender {
        let users = process.owner.with(|owner| [owner.users[0], owner.users[1]]);
        Sender { pid: process.pid, users, session: process.session.load(Ordering::Relaxed) }
    }

    /// Whether it may send this signal to that one: to its own processes, and root's to all.
    pub fn may_signal(&self, target: &Process, signal: u32) -> bool {
        if self.users[1] == 0 || target.pid == self.pid {
            return true;
        }
        let of = target.owner.with(|owner| [owner.users[0], owner.users[2]]);
        self.users.iter().any(|user| of.contains(user))
            || signal == number::CONTINUE && target.session.load(Ordering::Relaxed) == self.session
    }
}

/// The last that were sent. Read and written with the lock of all processes held: whoever is made is found by who sends, or finds what was sent.
#[derive(Default)]
pub(crate) struct Announced {
    count: u64,
    /// Of nobody's if the kernel has sent it.
    last: VecDeque<(Meant, Option<Sender>, Info)>,
}

impl Announced {
    /// One more: returns its number.
    pub fn note(&mut self, meant: Meant, from: Option<Sender>, info: Info) -> u64 {
        self.count += 1;
        self.last.truncate(MOST - 1);
        self.last.push_front((meant, from, info));
        self.count
    }

    /// Those for a process that is there from now on, which its parent has not heard of: since this one. Others are none of its own.
    pub fn since(&self, heard: u64, process: &Process) -> Vec<Info> {
        process.heard.store(self.count, Ordering::SeqCst);
        let new = self.last.iter().take((self.count - heard) as usize).rev();
        new.filter(|(meant, from, info)| {
            meant.is(process) && from.is_none_or(|from| from.may_signal(process, info.signal))
        })
        .map(|&(_, _, info)| info)
        .collect()
    }

    /// A process belongs to another group from now on: what was sent before is none of its own.
    pub fn joins(&self, process: &Process, group: u32) {
        process.heard.store(self.count, Ordering::SeqCst);
        process.group.store(group, Ordering::Relaxed);
    }
}
