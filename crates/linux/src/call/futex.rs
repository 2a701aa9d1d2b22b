//! Words that programs wait on (`futex`), and locks whose word names their owner: also once that has died.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use crate::areas::{What, rights};
use crate::errno::{Answer, Errno};
use crate::futex::Word;
use crate::kernel::{AGAIN, Linux, RESTART, Waited};
use crate::machine::Machine;
use crate::memory::ALL;
use crate::process::{Process, Thread};

/// In the word of a lock: others wait, and its owner has died.
const WAITERS: u32 = 1 << 31;
const DIED: u32 = 1 << 30;

/// How many are woken: who asks for fewer than one gets one all the same.
fn at_least_one(count: u64) -> u32 {
    (count as i32).max(1) as u32
}

impl<M: Machine> Linux<'_, M> {
    /// The word that an address stands for: of its space, or of the file that several spaces map there.
    pub(crate) fn futex_word(&self, thread: &Thread, at: u64, private: bool) -> Word {
        let memory = thread.memory();
        if !private {
            let shared = memory.layout.with(self.machine, |layout| {
                let (start, area) = layout.areas.at(at)?;
                match &area.what {
                    What::File { file, page, shared: true } => {
                        Some((file.inode.number << 1 | 1, page * 4096 + (at - start)))
                    }
                    _ => None,
                }
            });
            if let Some(word) = shared {
                return word;
            }
        }
        (u64::from(memory.space.index()) << 1, at)
    }

    /// The same for an address that a program names: where it can have no word it hears so. One that others may see is looked at, and
    /// memory of its own that nobody can write never changes.
    fn word_of_program(&self, thread: &Thread, at: u64, private: bool) -> Result<Word, Errno> {
        let may_change = || {
            thread.memory().layout.with(self.machine, |layout| {
                layout.areas.at(at).is_some_and(|(_, area)| match area.what {
                    What::Own(_) => area.rights & rights::WRITE != 0,
                    _ => area.rights & rights::ALL != 0,
                })
            })
        };
        if at >= ALL.end || !private && !may_change() {
            return Err(Errno::EFAULT);
        }
        Ok(self.futex_word(thread, at, private))
    }

    pub(crate) fn wake_futex(&self, word: Word, count: u32, bits: u32) -> u64 {
        let woken = self.futexes.wake(word, count, bits);
        woken.iter().for_each(|sleeper| self.machine.wake(sleeper.key()));
        woken.len() as u64
    }

    pub(crate) fn futex(&self, thread: &Thread, [at, what, value, time, other, value3]: [u64; 6]) -> Answer {
        const PRIVATE: u64 = 0x80;
        const REAL_TIME: u64 = 0x100;
        let private = what & PRIVATE != 0;
        let kind = u64::from(what as u32) & !(PRIVATE | REAL_TIME);
        // Of these, time may be that of the clock on the wall.
        if what & REAL_TIME != 0 && !matches!(kind, 9 | 11 | 13) {
            return Err(Errno::ENOSYS);
        }
        let at_two = matches!(kind, 3..=5);
        if !at.is_multiple_of(4) || at_two && !other.is_multiple_of(4) {
            return Err(Errno::EINVAL);
        }
        let word = |at: u64| self.word_of_program(thread, at, private);
        match kind {
            // To wait; with bits, and until a time.
            kind @ (0 | 9) => {
                let bits = if kind == 9 { value3 as u32 } else { u32::MAX };
                if bits == 0 {
                    return Err(Errno::EINVAL);
                }
                let until = match time {
                    0 => None,
                    time => {
                        let time = self.time(time)?;
                        Some(match (kind, what & REAL_TIME != 0) {
                            (0, _) => self.end_of_wait(thread, time),
                            (_, true) => self.now().saturating_add(time.saturating_sub(self.clock())),
                            (_, false) => time,
                        })
                    }
                };
                let sleeper = self.futexes.stand(word(at)?, bits, thread.priority());
                let now = self.machine.load_user(at);
                if now != Ok(value as u32) && self.futexes.leave(&sleeper) {
                    return now.and(Err(Errno::EAGAIN));
                }
                let how = self.wait(thread, sleeper.key(), until, || sleeper.is_woken());
                if how == Waited::Ready || !self.futexes.leave(&sleeper) {
                    return Ok(0);
                }
                match how {
                    Waited::Late => Err(Errno::ETIMEDOUT),
                    _ if until.is_some() => {
                        // Of a time of the clock the call itself knows when that is.
                        thread.deadline.with(|at| *at = until.filter(|_| kind == 0));
                        Err(RESTART)
                    }
                    _ => Err(AGAIN),
                }
            }
            kind @ (1 | 10) => {
                let bits = if kind == 10 { value3 as u32 } else { u32::MAX };
                if bits == 0 {
                    return Err(Errno::EINVAL);
                }
                Ok(self.wake_futex(word(at)?, at_least_one(value), bits))
            }
            // To wake some and move others, perhaps only if the word is as it was.
            kind @ (3 | 4) => {
                if (value as i32) < 0 || (time as i32) < 0 {
                    return Err(Errno::EINVAL);
                }
                let (from, to) = (word(at)?, word(other)?);
                if kind == 4 && self.machine.load_user(at)? != value3 as u32 {
                    return Err(Errno::EAGAIN);
                }
                let woken = self.wake_futex(from, value as u32, u32::MAX);
                Ok(woken + self.futexes.requeue(from, to, time as u32))
            }
            5 => {
                let code = value3 as u32;
                let (operation, compare) = (code >> 28, code >> 24 & 15);
                let (mut operand, compared) = (code >> 12 & 0xfff, code & 0xfff);
                if operation & 8 != 0 {
                    operand = 1 << (operand & 31);
                }
                let old = loop {
                    let old = self.machine.load_user(other)?;
                    let new = match operation & 7 {
                        0 => operand,
                        1 => old.wrapping_add(operand),
                        2 => old | operand,
                        3 => old & !operand,
                        4 => old ^ operand,
                        _ => return Err(Errno::ENOSYS),
                    };
                    if self.machine.swap_user(other, old, new)? == old {
                        break old;
                    }
                };
                let (old, compared) = (old as i32, (compared << 20) as i32 >> 20);
                let holds = match compare {
                    0 => old == compared,
                    1 => old != compared,
                    2 => old < compared,
                    3 => old <= compared,
                    4 => old > compared,
                    5 => old >= compared,
                    _ => return Err(Errno::ENOSYS),
                };
                let (first, second) = (word(at)?, word(other)?);
                let woken = self.wake_futex(first, at_least_one(value), u32::MAX);
                Ok(woken + if holds { self.wake_futex(second, at_least_one(time), u32::MAX) } else { 0 })
            }
            // Locks whose word names their owner.
            kind @ (6 | 8 | 13) => {
                let until = match time {
                    0 => None,
                    time => {
                        let time = self.time(time)?;
                        let is_real = kind == 6 || what & REAL_TIME != 0;
                        let ahead = if is_real { self.clock() - self.now() } else { 0 };
                        Some(time.saturating_sub(ahead))
                    }
                };
                self.lock_owned(thread, at, word(at)?, until, kind == 8)
            }
            7 => self.unlock_owned(thread, at, word(at)?),
            14.. => Err(Errno::ENOSYS),
            _ => {
                self.note_unknown(thread, super::n::futex);
                Err(Errno::ENOSYS)
            }
        }
    }

    /// Takes a lock whose word names its owner. Priorities are not inherited: there are none.
    fn lock_owned(&self, thread: &Thread, at: u64, word: Word, until: Option<u64>, at_once: bool) -> Answer {
        let mut waited = false;
        loop {
            if thread.is_dying() {
                return Err(AGAIN);
            }
            let now = self.machine.load_user(at)?;
            let owner = now & !(WAITERS | DIED);
            if owner == 0 {
                // Whoever has waited does not know of others: it says that there are some.
                let more = if waited || now & WAITERS != 0 { WAITERS } else { 0 };
                if self.machine.swap_user(at, now, thread.tid | now & DIED | more)? == now {
                    return Ok(0);
                }
                continue;
            }
            if owner == thread.tid {
                return Err(Errno::EDEADLK);
            }
            if at_once {
                return Err(Errno::EAGAIN);
            }
            let lives = |process: &Arc<Process>| {
                process.threads.with(|threads| threads.iter().any(|thread| thread.tid == owner))
            };
            let is_gone = || !self.processes.with(|all| all.values().any(lives));
            if is_gone() {
                // Or it has let go, as its last deed, since the word was read.
                if self.machine.load_user(at)? != now {
                    continue;
                }
                // It has died meanwhile: whoever waited is its heir. Whoever only comes has named nobody.
                if !waited {
                    return Err(Errno::ESRCH);
                }
                if self.machine.swap_user(at, now, thread.tid | DIED | WAITERS)? == now {
                    return Ok(0);
                }
                continue;
            }
            if now & WAITERS == 0 && self.machine.swap_user(at, now, now | WAITERS)? != now {
                continue;
            }
            let sleeper = self.futexes.stand_as_heir(word);
            // An owner that ends from here on wakes it.
            if (self.machine.load_user(at) != Ok(now | WAITERS) || is_gone()) && self.futexes.leave(&sleeper)
            {
                waited = true;
                continue;
            }
            let how = self.wait(thread, sleeper.key(), until, || sleeper.is_woken());
            waited = true;
            if how == Waited::Ready || !self.futexes.leave(&sleeper) {
                continue;
            }
            return Err(if how == Waited::Late { Errno::ETIMEDOUT } else { AGAIN });
        }
    }

    fn unlock_owned(&self, thread: &Thread, at: u64, word: Word) -> Answer {
        loop {
            let now = self.machine.load_user(at)?;
            if now & !(WAITERS | DIED) != thread.tid {
                return Err(Errno::EPERM);
            }
            if self.machine.swap_user(at, now, 0)? == now {
                self.wake_futex(word, 1, u32::MAX);
                return Ok(0);
            }
        }
    }

    /// The locks that a thread holds when it ends: each says so, and one who waits for it is woken.
    pub(crate) fn leave_locks(&self, thread: &Thread) {
        const MOST: u32 = 2048;
        let head = thread.robust.swap(0, Ordering::SeqCst);
        if head == 0 {
            return;
        }
        let words = [head, head + 8, head + 16].map(|at| self.load_long(at));
        let [Ok(first), Ok(offset), Ok(pending)] = words else { return };
        let mut at = first;
        for _ in 0..MOST {
            if at & !1 == head {
                break;
            }
            let Ok(next) = self.load_long(at & !1) else { break };
            if at & !1 != pending & !1 {
                self.leave_lock(thread, (at & !1).wrapping_add(offset), false);
            }
            at = next;
        }
        if pending & !1 != 0 {
            self.leave_lock(thread, (pending & !1).wrapping_add(offset), true);
        }
    }

    fn leave_lock(&self, thread: &Thread, at: u64, pending: bool) {
        if !at.is_multiple_of(4) {
            return;
        }
        while let Ok(now) = self.machine.load_user(at) {
            // It had let go of this one, and not woken anybody yet.
            if pending && now == 0 {
                self.wake_futex(self.futex_word(thread, at, false), 1, u32::MAX);
                self.wake_futex(self.futex_word(thread, at, true), 1, u32::MAX);
            }
            if now & !(WAITERS | DIED) != thread.tid {
                return;
            }
            match self.machine.swap_user(at, now, now & WAITERS | DIED) {
                Ok(was) if was == now => {
                    if now & WAITERS != 0 {
                        self.wake_futex(self.futex_word(thread, at, false), 1, u32::MAX);
                        self.wake_futex(self.futex_word(thread, at, true), 1, u32::MAX);
                    }
                    return;
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    pub(crate) fn get_robust_list(&self, thread: &Thread, [tid, head, len]: [u64; 3]) -> Answer {
        let found = match tid as u32 {
            0 => thread.robust.load(Ordering::SeqCst),
            tid => {
                let target = self.thread_numbered(tid).ok_or(Errno::ESRCH)?;
                if !self.may_look_into(thread, &target.process) {
                    return Err(Errno::EPERM);
                }
                target.robust.load(Ordering::SeqCst)
            }
        };
        self.machine.write_user(head, &found.to_le_bytes())?;
        self.machine.write_user(len, &24_u64.to_le_bytes()).map(|()| 0)
    }
}
