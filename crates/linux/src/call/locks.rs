//! Calls about locks of files, and seals.

use alloc::sync::Arc;
use core::ops::Range;
use core::sync::atomic::Ordering;

use crate::errno::{Answer, Errno};
use crate::kernel::{AGAIN, Linux, Waited};
use crate::layout::Pack;
use crate::locks::{Lock, Of, Owner};
use crate::machine::Machine;
use crate::open::{Kind, Open};
use crate::process::Thread;
use crate::sync::key_of;

const ALL: Range<u64> = 0..u64::MAX;

impl<M: Machine> Linux<'_, M> {
    fn take_lock(&self, thread: &Thread, of: Of, wanted: &Lock, wait: bool) -> Answer {
        let mut taken = self.locks.with(|locks| locks.lock(of, wanted))?;
        if !taken {
            if !wait {
                return Err(Errno::EAGAIN);
            }
            // What is open may be anybody's: of those nobody knows who waits for whom.
            let is_process = matches!(wanted.owner, Owner::Process(_));
            if is_process {
                self.locks.with(|locks| locks.wait(of, wanted))?;
            }
            let mut failed = None;
            let how = self.wait(thread, key_of(&self.locks), None, || {
                let now = self.locks.with(|locks| {
                    let now = match locks.lock(of, wanted) {
                        Ok(false) if is_process => locks.ends(of, wanted).map(|()| false),
                        now => now,
                    };
                    // In the same step: of two in a circle one hears of it, and the other goes on to wait.
                    if is_process && now.is_err() {
                        locks.waits_no_more(of, wanted);
                    }
                    now
                });
                match now {
                    Ok(now) => taken = now,
                    Err(error) => failed = Some(error),
                }
                taken || failed.is_some()
            });
            if is_process && failed.is_none() {
                self.locks.with(|locks| locks.waits_no_more(of, wanted));
            }
            if how != Waited::Ready {
                return Err(AGAIN);
            }
            if let Some(error) = failed {
                return Err(error);
            }
        }
        // Whoever had more there before has less now, perhaps.
        self.changed(key_of(&self.locks));
        Ok(0)
    }

    fn drop_lock(&self, of: Of, owner: &Owner, range: &Range<u64>) -> Answer {
        if self.locks.with(|locks| locks.unlock(of, owner, range)) {
            self.changed(key_of(&self.locks));
        }
        Ok(0)
    }

    pub(crate) fn flock(&self, thread: &Thread, number: u64, what: u64) -> Answer {
        const AT_ONCE: u64 = 4;
        let open = self.open_used(thread, number)?;
        // Of what has no inode each is one of its own.
        let number = open.inode().map_or_else(|| 1 << 63 | open.number(), |inode| inode.number);
        let (of, owner) = ((number, true), Owner::open(&open));
        match what & !AT_ONCE {
            1 | 2 => {
                let wanted = Lock { owner, range: ALL, alone: what & 2 != 0 };
                // Who cannot have it at once lets go of what it has: of two who want more one goes on.
                if self.locks.with(|locks| locks.in_the_way(of, &wanted)).is_some() {
                    self.drop_lock(of, &wanted.owner, &ALL)?;
                }
                self.take_lock(thread, of, &wanted, what & AT_ONCE == 0)
            }
            8 => self.drop_lock(of, &owner, &ALL),
            // Of kinds that are no more nothing is kept.
            what if what & 32 != 0 => Ok(0),
            _ => Err(Errno::EINVAL),
        }
    }

    /// `fcntl` about locks of parts: to ask for one, to take it, to wait for it; with `by_file` the open file has it.
    pub(super) fn record_lock(
        &self,
        thread: &Thread,
        (open, number): (&Arc<Open>, u64),
        what: u64,
        at: u64,
    ) -> Answer {
        const READ: u16 = 0;
        const WRITE: u16 = 1;
        const FREE: u16 = 2;
        let (ask, wait, by_file) = match what {
            5 => (true, false, false),
            6 => (false, false, false),
            7 => (false, true, false),
            36 => (true, false, true),
            37 => (false, false, true),
            _ => (false, true, true),
        };
        let mut bytes = [0; 32];
        self.machine.read_user(at, &mut bytes)?;
        let half = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().expect("2 bytes"));
        let long = |at: usize| i64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let (kind, whence, start, len) = (half(0), half(2), long(8), long(16));
        let Some(inode) = open.inode() else { return Err(Errno::EINVAL) };
        let base = match whence {
            0 => 0,
            1 => open.offset.with(self.machine, |offset| *offset) as i64,
            2 => inode.file().map_or(0, |file| self.file_len(file)) as i64,
            _ => return Err(Errno::EINVAL),
        };
        let start = base.checked_add(start).ok_or(Errno::EOVERFLOW)?;
        let (start, end) = match len {
            0 => (start, i64::MAX),
            1.. => (start, start.checked_add(len).unwrap_or(i64::MAX)),
            _ => (start.checked_add(len).ok_or(Errno::EINVAL)?, start),
        };
        if start < 0 || kind > FREE || by_file && bytes[24..28] != [0; 4] {
            return Err(Errno::EINVAL);
        }
        let range = start as u64..end as u64;
        let owner = if by_file { Owner::open(open) } else { Owner::Process(thread.process.pid) };
        let of = (inode.number, false);
        if kind == FREE {
            return if ask { Err(Errno::EINVAL) } else { self.drop_lock(of, &owner, &range) };
        }
        let wanted = Lock { owner, range, alone: kind == WRITE };
        if !ask {
            if kind == READ && !open.may_read() || kind == WRITE && !open.may_write() {
                return Err(Errno::EBADF);
            }
            self.take_lock(thread, of, &wanted, wait)?;
            // Another thread may have closed it meanwhile, and found no lock to let go of.
            let is_open = || self.open_file(thread, number).is_ok_and(|now| Arc::ptr_eq(&now, open));
            if !by_file && !is_open() {
                self.drop_lock(of, &wanted.owner, &wanted.range)?;
                return Err(Errno::EBADF);
            }
            return Ok(0);
        }
        let Some(found) = self.locks.with(|locks| locks.in_the_way(of, &wanted)) else {
            return self.machine.write_user(at, &FREE.to_le_bytes()).map(|()| 0);
        };
        let len = if found.range.end >= i64::MAX as u64 { 0 } else { found.range.end - found.range.start };
        let pid = match found.owner {
            Owner::Process(pid) => pid,
            Owner::Open(_) => u32::MAX,
        };
        let head = Pack::default().half(if found.alone { WRITE } else { READ }).half(0).word(0);
        self.machine.write_user(at, &head.long(found.range.start).long(len).word(pid).0).map(|()| 0)
    }

    /// A process has closed a file: it has no locks of it any more, however often it has it open.
    pub(crate) fn closed(&self, thread: &Thread, open: Arc<Open>) {
        if let Some(inode) = open.inode() {
            let _ = self.drop_lock((inode.number, false), &Owner::Process(thread.process.pid), &ALL);
        }
        self.closes(&open);
        match &open.kind {
            Kind::Socket(_) => self.left.flights.let_go(false),
            // Nor does it hear of messages, whichever of its numbers that was.
            Kind::Mailbox(mailbox) => mailbox.hear_no_more(thread.process.pid),
            _ => {}
        }
        drop(open);
        self.unlocked();
    }

    /// Something was closed: what was locked as a whole is free, if nobody else has it open.
    pub(crate) fn unlocked(&self) {
        if self.locks.with(|locks| locks.end(0)) {
            self.changed(key_of(&self.locks));
        }
    }

    pub(super) fn seals(&self, open: &Open, add: Option<u64>) -> Answer {
        let Kind::File(inode) = &open.kind else { return Err(Errno::EINVAL) };
        let now = inode.seals.load(Ordering::SeqCst);
        if now & crate::tree::seal::SEALABLE == 0 {
            return Err(Errno::EINVAL);
        }
        match add {
            None => Ok(u64::from(now & !crate::tree::seal::SEALABLE)),
            Some(more) if more & !0x3f != 0 => Err(Errno::EINVAL),
            Some(_) if !open.may_write() || now & crate::tree::seal::NO_MORE != 0 => Err(Errno::EPERM),
            Some(more) => inode.sealing.with(self.machine, |()| {
                let more = more as u32;
                // First the seal and then the look: whoever maps it meanwhile finds the one, or is found.
                let before = inode.seals.fetch_or(more, Ordering::SeqCst);
                let denies = more & !before & crate::tree::seal::WRITE_AT_ALL != 0;
                if denies && self.mapped(inode, &|file| file.may_write) > 0 {
                    inode.seals.store(before, Ordering::SeqCst);
                    return Err(Errno::EBUSY);
                }
                Ok(0)
            }),
        }
    }
}
