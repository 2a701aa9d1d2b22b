//! Calls about semaphores and messages of System V.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use crate::errno::{Answer, Errno};
use crate::kernel::{Linux, Waited};
use crate::layout::Pack;
use crate::machine::Machine;
use crate::messages::{LONGEST, Message, Queue};
use crate::numbered::{MOST, Rights};
use crate::process::{Owner, Process, Thread};
use crate::rights::{READ, WRITE};
use crate::semaphores::{HIGHEST, Set, Step};
use crate::sync::key_of;

const REMOVE: u64 = 0;
const SET: u64 = 1;
const STATE: u64 = 2;
const LIMITS: u64 = 3;
/// Semaphores in a set, and steps of an operation.
const MOST_IN_SET: u64 = 32_000;
const MOST_STEPS: u64 = 500;
/// Does not wait.
const AT_ONCE: u64 = 0o4000;

/// Whose it is, and who may use it.
fn told(key: u32, Rights { owner, maker, mode }: &Rights) -> Pack {
    [key, owner[0], owner[1], maker[0], maker[1], *mode]
        .iter()
        .fold(Pack::default(), |all, &word| all.word(word))
        .zeros_to(48)
}

impl<M: Machine> Linux<'_, M> {
    fn seconds(&self) -> u64 {
        self.clock() / 1_000_000_000
    }

    /// For whom a process acts.
    fn who(thread: &Thread) -> Owner {
        thread.process.owner.with(|owner| owner.clone())
    }

    /// What somebody says of whose it is and who may use it.
    fn load_rights(&self, at: u64, now: &Rights) -> Result<Rights, Errno> {
        let [user, group, mode] =
            [self.load_word(at + 4)?, self.load_word(at + 8)?, self.load_word(at + 20)?];
        Ok(Rights { owner: [user, group], mode: mode & 0o777, ..*now })
    }

    pub(crate) fn semget(&self, thread: &Thread, key: u64, count: u64, flags: u64) -> Answer {
        const BYTES: u64 = 32;
        let count = u64::from(count as u32);
        if count > MOST_IN_SET {
            return Err(Errno::EINVAL);
        }
        let fits = |set: &Set| if set.count() as u64 >= count { Ok(()) } else { Err(Errno::EINVAL) };
        let make = || match count {
            0 => Err(Errno::EINVAL),
            _ if !self.machine.has_piece(BYTES * count) => Err(Errno::ENOMEM),
            _ => Ok(Set::new(count as usize, self.seconds())),
        };
        self.semaphores.find(key as u32, flags, &Self::who(thread), fits, make).map(u64::from)
    }

    pub(crate) fn semop(&self, thread: &Thread, [id, at, count, time]: [u64; 4]) -> Answer {
        const UNDO: u16 = 0x1000;
        if count == 0 {
            return Err(Errno::EINVAL);
        }
        if count > MOST_STEPS {
            return Err(Errno::E2BIG);
        }
        let until = match time {
            0 => None,
            at => Some(self.end_of_wait(thread, self.time(at)?)),
        };
        let mut bytes = alloc::vec![0; 6 * count as usize];
        self.machine.read_user(at, &mut bytes)?;
        let half = |one: &[u8], at: usize| u16::from_le_bytes([one[at], one[at + 1]]);
        let step = |one: &[u8]| Step {
            index: half(one, 0),
            by: half(one, 2) as i16,
            at_once: u64::from(half(one, 4)) & AT_ONCE != 0,
            undo: half(one, 4) & UNDO != 0,
        };
        let steps: Vec<Step> = bytes.chunks_exact(6).map(step).collect();
        let (rights, set) = self.semaphores.get(id)?;
        if steps.iter().any(|step| usize::from(step.index) >= set.count()) {
            return Err(Errno::EFBIG);
        }
        let changes = steps.iter().any(|step| step.by != 0);
        rights.allow(&Self::who(thread), if changes { WRITE } else { READ })?;
        let pid = thread.process.pid;
        if steps.iter().any(|step| step.undo) {
            thread.process.undo.with(|sets| {
                sets.retain(|one| one.strong_count() > 0);
                if !sets.iter().any(|one| one.as_ptr() == Arc::as_ptr(&set)) {
                    sets.push(Arc::downgrade(&set));
                }
            });
        }
        if let Some(ticket) = set.take(&steps, pid, self.seconds())? {
            let how = self.wait(thread, key_of(&*set), until, || set.has_answer(ticket));
            // What was done for it meanwhile is done.
            match (set.leave(ticket), how) {
                (Some(answer), _) => answer?,
                (None, Waited::Late) => return Err(Errno::EAGAIN),
                (None, _) => return Err(Self::unless_handled(thread, until)),
            }
        }
        self.machine.wake(key_of(&*set));
        Ok(0)
    }

    /// A process has ended, and what it has done is undone.
    pub(crate) fn undo(&self, process: &Process) {
        for set in process.undo.with(core::mem::take).iter().filter_map(Weak::upgrade) {
            set.undo(process.pid, self.seconds());
            self.machine.wake(key_of(&*set));
        }
    }

    pub(crate) fn semctl(&self, thread: &Thread, [id, index, what, with]: [u64; 4]) -> Answer {
        const PID: u64 = 11;
        const VALUE: u64 = 12;
        const VALUES: u64 = 13;
        const MORE: u64 = 14;
        const ZERO: u64 = 15;
        const SET_VALUE: u64 = 16;
        const SET_VALUES: u64 = 17;
        const STATE_OF: u64 = 18;
        const USED: u64 = 19;
        const STATE_OF_ANY: u64 = 20;
        let (nth, count) = self.semaphores.nth(id);
        match what {
            // Limits; and how much there is, where others have what nobody uses.
            LIMITS | USED => {
                let sum = self.semaphores.sum(Set::count) as u32;
                let most = (MOST as u32, MOST_IN_SET as u32, MOST_STEPS as u32);
                let (sets, all) = if what == USED { (count as u32, sum) } else { (20, HIGHEST as u32) };
                let head = Pack::default().word(0).word(most.0).word(u32::MAX >> 1).word(u32::MAX >> 1);
                let info =
                    head.word(most.1).word(most.2).word(most.2).word(sets).word(HIGHEST as u32).word(all);
                self.machine.write_user(with, &info.0)?;
                return Ok(count.saturating_sub(1) as u64);
            }
            STATE_OF | STATE_OF_ANY => {
                let id = u64::from(nth.ok_or(Errno::EINVAL)?);
                let (rights, set) = self.semaphores.get(id)?;
                if what == STATE_OF {
                    rights.allow(&Self::who(thread), READ)?;
                }
                return self.store_set(id, &rights, &set, with).map(|_| id);
            }
            _ => {}
        }
        let (rights, set) = self.semaphores.get(id)?;
        let (pid, now, who) = (thread.process.pid, self.seconds(), Self::who(thread));
        match what {
            REMOVE | SET => rights.own(&who)?,
            STATE | PID | VALUE | VALUES | MORE | ZERO => rights.allow(&who, READ)?,
            SET_VALUE | SET_VALUES => rights.allow(&who, WRITE)?,
            _ => return Err(Errno::EINVAL),
        }
        match what {
            REMOVE => {
                let set = self.semaphores.remove(id)?;
                set.end();
                self.machine.wake(key_of(&*set));
                Ok(0)
            }
            SET => {
                self.semaphores.set_rights(id, self.load_rights(with, &rights)?);
                set.touch(now);
                Ok(0)
            }
            STATE => self.store_set(id, &rights, &set, with),
            PID => set.get(index).map(|one| one.pid.into()),
            VALUE => set.get(index).map(|one| one.value as u64),
            MORE | ZERO => {
                set.get(index).map(|_| set.waiting(index as usize)[usize::from(what == ZERO)].into())
            }
            VALUES => {
                let all = set.values().iter().fold(Pack::default(), |all, &value| all.half(value as u16));
                self.machine.write_user(with, &all.0).map(|()| 0)
            }
            SET_VALUE => {
                set.set(u64::from(index as u32), &[with as i32], pid, now)?;
                self.machine.wake(key_of(&*set));
                Ok(0)
            }
            SET_VALUES => {
                let mut bytes = alloc::vec![0; 2 * set.count()];
                self.machine.read_user(with, &mut bytes)?;
                let value = |one: &[u8]| i32::from(u16::from_le_bytes([one[0], one[1]]));
                set.set(0, &bytes.chunks_exact(2).map(value).collect::<Vec<_>>(), pid, now)?;
                self.machine.wake(key_of(&*set));
                Ok(0)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    fn store_set(&self, id: u64, rights: &Rights, set: &Set, to: u64) -> Answer {
        let [used, changed] = set.times();
        let head = told(self.semaphores.key(id), rights);
        let all = head.long(used).long(0).long(changed).long(0).long(set.count() as u64);
        self.machine.write_user(to, &all.zeros_to(104).0).map(|()| 0)
    }

    pub(crate) fn msgget(&self, thread: &Thread, key: u64, flags: u64) -> Answer {
        let make = || Ok(Queue::new(self.seconds()));
        self.queues.find(key as u32, flags, &Self::who(thread), |_| Ok(()), make).map(u64::from)
    }

    pub(crate) fn msgsnd(&self, thread: &Thread, [id, at, bytes, flags]: [u64; 4]) -> Answer {
        if bytes > LONGEST as u64 {
            return Err(Errno::EINVAL);
        }
        let kind = self.load_long(at)? as i64;
        let (rights, queue) = self.queues.get(id)?;
        if kind <= 0 {
            return Err(Errno::EINVAL);
        }
        rights.allow(&Self::who(thread), WRITE)?;
        let mut text = alloc::vec![0; bytes as usize];
        self.machine.read_user(at.saturating_add(8), &mut text)?;
        let mut message = Some(Message { kind, bytes: text });
        let pid = thread.process.pid;
        let mut sent = queue.send(&mut message, pid, self.seconds());
        if sent == Ok(false) {
            if flags & AT_ONCE != 0 {
                return Err(Errno::EAGAIN);
            }
            let how = self.wait(thread, key_of(&*queue), None, || {
                sent = queue.send(&mut message, pid, self.seconds());
                sent != Ok(false)
            });
            if how != Waited::Ready {
                return Err(Self::unless_handled(thread, None));
            }
        }
        sent?;
        self.machine.wake(key_of(&*queue));
        Ok(0)
    }

    pub(crate) fn msgrcv(&self, thread: &Thread, [id, at, bytes, kind, flags, _]: [u64; 6]) -> Answer {
        const CUT: u64 = 0o10000;
        const EXCEPT: u64 = 0o20000;
        const COPY: u64 = 0o40000;
        if bytes >> 63 != 0 || flags & COPY != 0 {
            return Err(if flags & COPY != 0 { Errno::ENOSYS } else { Errno::EINVAL });
        }
        let (rights, queue) = self.queues.get(id)?;
        rights.allow(&Self::who(thread), READ)?;
        let (wanted, pid) = ((kind as i64, flags & EXCEPT != 0), thread.process.pid);
        let most = if flags & CUT != 0 { usize::MAX } else { bytes as usize };
        let receive = || queue.receive(wanted, most, pid, self.seconds());
        let mut found = receive();
        if found == Ok(None) {
            if flags & AT_ONCE != 0 {
                return Err(Errno::ENOMSG);
            }
            let how = self.wait(thread, key_of(&*queue), None, || {
                found = receive();
                found != Ok(None)
            });
            if how != Waited::Ready {
                return Err(Self::unless_handled(thread, None));
            }
        }
        let Message { kind, bytes: text } = found?.ok_or(Errno::ENOMSG)?;
        self.machine.wake(key_of(&*queue));
        let text = &text[..text.len().min(bytes as usize)];
        self.machine.write_user(at, &kind.to_le_bytes())?;
        self.machine.write_user(at.saturating_add(8), text)?;
        Ok(text.len() as u64)
    }

    pub(crate) fn msgctl(&self, thread: &Thread, id: u64, what: u64, with: u64) -> Answer {
        /// Where a program says how many bytes fit.
        const MOST_AT: u64 = 88;
        const STATE_OF: u64 = 11;
        const USED: u64 = 12;
        const STATE_OF_ANY: u64 = 13;
        let (nth, count) = self.queues.nth(id);
        match what {
            LIMITS | USED => {
                let messages = self.queues.sum(|queue| queue.known().count) as u32;
                let bytes = self.queues.sum(|queue| queue.known().bytes) as u32;
                let used = if what == USED { (count as u32, messages, bytes) } else { (0, 0, 0) };
                let head = Pack::default().word(used.0).word(used.1).word(LONGEST as u32);
                let info = head.word(16384).word(MOST as u32).word(16).word(used.2).word(0xffff);
                self.machine.write_user(with, &info.0)?;
                return Ok(count.saturating_sub(1) as u64);
            }
            STATE_OF | STATE_OF_ANY => {
                let id = u64::from(nth.ok_or(Errno::EINVAL)?);
                let (rights, queue) = self.queues.get(id)?;
                if what == STATE_OF {
                    rights.allow(&Self::who(thread), READ)?;
                }
                return self.store_queue(id, &rights, &queue, with).map(|_| id);
            }
            _ => {}
        }
        let (rights, queue) = self.queues.get(id)?;
        match what {
            REMOVE | SET => rights.own(&Self::who(thread))?,
            STATE => rights.allow(&Self::who(thread), READ)?,
            _ => return Err(Errno::EINVAL),
        }
        match what {
            REMOVE => {
                let queue = self.queues.remove(id)?;
                queue.end();
                self.machine.wake(key_of(&*queue));
                Ok(0)
            }
            SET => {
                let most = self.load_long(with.saturating_add(MOST_AT))?;
                if most > i32::MAX as u64 {
                    return Err(Errno::EINVAL);
                }
                self.queues.set_rights(id, self.load_rights(with, &rights)?);
                queue.resize(most as usize, self.seconds());
                self.machine.wake(key_of(&*queue));
                Ok(0)
            }
            _ => self.store_queue(id, &rights, &queue, with),
        }
    }

    fn store_queue(&self, id: u64, rights: &Rights, queue: &Queue, to: u64) -> Answer {
        let (known, head) = (queue.known(), told(self.queues.key(id), rights));
        let times = known.times.iter().fold(head, |all, &time| all.long(time));
        let counts = times.long(known.bytes as u64).long(known.count as u64).long(known.most as u64);
        let all = known.pids.iter().fold(counts, |all, &pid| all.word(pid)).zeros_to(120);
        self.machine.write_user(to, &all.0).map(|()| 0)
    }
}
