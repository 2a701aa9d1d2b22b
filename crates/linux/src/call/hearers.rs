//! Signals for those who want to hear that something has come, or has happened in a directory.
//!
//! At the end of each call, and before each wait, whatever somebody wants to hear of is looked at: what has changed since is told.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use super::poll::event::{HANG_UP, IN, OUT, URGENT};
use crate::epoll::Looks;
use crate::errno::{Answer, Errno};
use crate::hearer::note;
use crate::kernel::Linux;
use crate::layout::Pack;
use crate::machine::Machine;
use crate::open::{Kind, Open, flag};
use crate::process::Thread;
use crate::signal::{Info, number};
use crate::tree::Inode;

/// How a signal says what has come, and the same as `poll` has it.
const READS: (i32, u64) = (1, 0x41);
const WRITES: (i32, u64) = (2, 0x304);
const SAYS: (i32, u64) = (3, 0x441);
const URGES: (i32, u64) = (5, 0x82);
const HANGS_UP: (i32, u64) = (6, 0x18);

/// Whether anything comes to what is open, of which somebody could hear.
fn tells(open: &Open) -> bool {
    matches!(
        open.kind,
        Kind::Pipe(_)
            | Kind::Both(..)
            | Kind::Socket(_)
            | Kind::Watches(_)
            | Kind::Master(..)
            | Kind::Slave(..)
    )
}

impl<M: Machine> Linux<'_, M> {
    /// Whether who hears of what is open is to hear that something has come.
    pub(super) fn set_signals(
        &self,
        thread: &Thread,
        open: &Arc<Open>,
        number: u64,
        on: bool,
    ) -> Result<(), Errno> {
        if !tells(open) {
            return Err(Errno::ENOTTY);
        }
        open.set_flags(flag::SIGNALS, if on { flag::SIGNALS } else { 0 });
        open.hearer.with(|hearer| hearer.number = number as u32);
        if on {
            self.begin_to_hear(thread, open);
        }
        Ok(())
    }

    /// From now on what is open is looked at.
    fn begin_to_hear(&self, thread: &Thread, open: &Arc<Open>) {
        let (found, changes) = self.look(thread, open, &Looks::default());
        let new = open.hearer.with(|hearer| {
            // Of one that is looked at already somebody else may be about to tell what has come.
            let new = !core::mem::replace(&mut hearer.listed, true);
            if new {
                hearer.seen = (found, changes.unwrap_or_default());
            }
            new
        });
        if new {
            self.hearing.with(|all| {
                all.retain(|open| open.strong_count() > 0);
                all.push(Arc::downgrade(open));
                self.heard.store(all.len() as u32, Ordering::SeqCst);
            });
        }
    }

    /// Who hears of what is open: a thread, a process or a group, or nobody.
    pub(super) fn set_hearer(&self, thread: &Thread, open: &Arc<Open>, kind: u32, who: u32) -> Answer {
        let group = |who: u32| {
            self.processes.with(|all| all.values().any(|it| it.group.load(Ordering::Relaxed) == who))
        };
        let is_there = who == 0
            || match kind {
                0 => self.thread_numbered(who).is_some(),
                1 => self.processes.with(|all| all.contains_key(&who)),
                _ => group(who),
            };
        if !is_there {
            return Err(Errno::ESRCH);
        }
        open.hearer.with(|hearer| (hearer.kind, hearer.who) = (kind, who));
        if who != 0 && tells(open) {
            self.begin_to_hear(thread, open);
        }
        Ok(0)
    }

    /// `fcntl` about who hears.
    pub(super) fn hearer_call(
        &self,
        thread: &Thread,
        open: &Arc<Open>,
        number: u64,
        what: u64,
        with: u64,
    ) -> Answer {
        let now = open.hearer.with(|hearer| *hearer);
        match what {
            8 => {
                let who = with as i32;
                self.set_hearer(thread, open, if who < 0 { 2 } else { 1 }, who.unsigned_abs())
            }
            9 if now.kind == 2 => Ok(i64::from(now.who).wrapping_neg() as u64),
            9 => Ok(now.who.into()),
            10 if with > u64::from(number::LAST) => Err(Errno::EINVAL),
            10 => {
                open.hearer.with(|hearer| hearer.signal = with as u32);
                Ok(0)
            }
            11 => Ok(now.signal.into()),
            // With its kind.
            15 => {
                let (kind, who) = (self.load_word(with)?, self.load_word(with + 4)?);
                if kind > 2 { Err(Errno::EINVAL) } else { self.set_hearer(thread, open, kind, who) }
            }
            16 => self.machine.write_user(with, &Pack::default().word(now.kind).word(now.who).0).map(|()| 0),
            _ => self.note(thread, open, number, with as u32),
        }
    }

    /// What happens in a directory is told to this process.
    fn note(&self, thread: &Thread, open: &Arc<Open>, number: u64, notes: u32) -> Answer {
        let Kind::Directory(_) = &open.kind else { return Err(Errno::ENOTDIR) };
        let asked = notes & note::ALL != 0;
        open.hearer.with(|hearer| {
            hearer.notes = if !asked { 0 } else { hearer.notes | notes };
            hearer.number = number as u32;
            if hearer.who == 0 {
                (hearer.kind, hearer.who) = (1, thread.process.pid);
            }
        });
        self.noting.with(|all| {
            let same = |one: &Weak<Open>| core::ptr::eq(one.as_ptr(), Arc::as_ptr(open));
            all.retain(|one| one.strong_count() > 0 && !same(one));
            if asked {
                all.push(Arc::downgrade(open));
            }
            self.noted.store(all.len() as u32, Ordering::SeqCst);
        });
        Ok(0)
    }

    /// Something has happened to a name in a directory.
    pub(super) fn noted(&self, directory: &Arc<Inode>, what: u32) {
        let all: Vec<_> = self.noting.with(|all| all.iter().filter_map(Weak::upgrade).collect());
        let what = note::of(what);
        for open in &all {
            let Kind::Directory(inode) = &open.kind else { continue };
            if !Arc::ptr_eq(inode, directory) {
                continue;
            }
            let hears = open.hearer.with(|hearer| {
                let hears = hearer.notes & what != 0;
                if hears && hearer.notes & note::AGAIN == 0 {
                    hearer.notes = 0;
                }
                hears
            });
            if hears {
                self.tell_hearer(open, SAYS);
            }
        }
        self.let_go_of(all);
    }

    /// Tells whoever wants to hear what has come since it was last looked.
    pub(crate) fn hear(&self, thread: &Thread) {
        if self.heard.load(Ordering::SeqCst) == 0 {
            return;
        }
        let all: Vec<_> = self.hearing.with(|all| all.iter().filter_map(Weak::upgrade).collect());
        for open in &all {
            let (before, now) = loop {
                let before = open.hearer.with(|hearer| hearer.seen);
                let (found, changes) = self.look(thread, open, &Looks::default());
                let now = (found, changes.unwrap_or_default());
                // Of two who look at once the one that looked first may come last: it looks again.
                let is_last = open.hearer.with(|hearer| {
                    let is_last = hearer.seen == before;
                    if is_last {
                        hearer.seen = now;
                    }
                    is_last
                });
                if is_last {
                    break (before, now);
                }
            };
            let found = now.0;
            if now == before {
                continue;
            }
            let new = |bit: u32| found & bit != 0 && before.0 & bit == 0;
            if new(URGENT) {
                self.send_to_hearer(open, Info { signal: number::URGENT, code: 0x80, ..Info::default() });
            }
            if !open.has(flag::SIGNALS) {
                continue;
            }
            let is_pipe = matches!(open.kind, Kind::Pipe(_) | Kind::Both(..));
            let came = now.1[0] != before.1[0] && found & IN != 0 && (is_pipe || found & HANG_UP == 0);
            if new(URGENT) {
                self.tell_hearer(open, URGES);
            }
            if came || is_pipe && new(HANG_UP) {
                self.tell_hearer(open, READS);
            }
            if !is_pipe && new(HANG_UP) {
                self.tell_hearer(open, HANGS_UP);
            }
            if new(OUT) || is_pipe && now.1[1] != before.1[1] && found & OUT != 0 && found & IN == 0 {
                self.tell_hearer(open, WRITES);
            }
        }
        self.let_go_of(all);
    }

    /// What may be nobody else's any more.
    fn let_go_of(&self, all: Vec<Arc<Open>>) {
        self.left.add_open(all.into_iter().filter(|open| Arc::strong_count(open) == 1).collect());
    }

    fn tell_hearer(&self, open: &Open, (code, band): (i32, u64)) {
        let hearer = open.hearer.with(|hearer| *hearer);
        let info = match hearer.signal {
            0 => Info { signal: number::INPUT, code: 0x80, ..Info::default() },
            signal => Info { signal, code, word: band, value: hearer.number.into(), error: 0 },
        };
        self.send_to_hearer(open, info);
    }

    fn send_to_hearer(&self, open: &Open, info: Info) {
        let hearer = open.hearer.with(|hearer| *hearer);
        match hearer.kind {
            _ if hearer.who == 0 => {}
            0 => {
                if let Some(thread) = self.thread_numbered(hearer.who) {
                    self.post(&thread.process, Some(&thread), info);
                }
            }
            kind => {
                let all: Vec<_> = self.processes.with(|all| all.values().cloned().collect());
                let meant = all.iter().filter(|process| match kind {
                    1 => process.pid == hearer.who,
                    _ => process.group.load(Ordering::Relaxed) == hearer.who,
                });
                meant
                    .filter(|process| process.ended.load(Ordering::SeqCst) == 0)
                    .for_each(|process| self.post(process, None, info));
            }
        }
    }
}
