//! On which CPUs threads run, and what they want of the scheduler.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use crate::capabilities::COMES_FIRST;
use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::layout::Pack;
use crate::machine::Machine;
use crate::process::{Process, Thread, limit};

/// What a thread wants is not what those want that it makes.
const RESET: u32 = 0x4000_0000;

/// What a new thread wants of the scheduler, as who makes it does.
pub(super) fn of_child((how, priority): (u32, u32)) -> (u32, u32) {
    match how & !RESET {
        1 | 2 if how & RESET != 0 => (0, 0),
        kind => (kind, priority),
    }
}

/// Whether a process may do so, or the other one is its user's.
pub(super) fn may_serve(thread: &Thread, other: &Process) -> bool {
    let (may, me) = thread.process.owner.with(|owner| (owner.may(COMES_FIRST), owner.users[1]));
    may || other.owner.with(|owner| owner.users[..2].contains(&me))
}

/// Whether others may stand back so little for who is not better served by right.
pub(super) fn may_be_nice(thread: &Thread, other: &Process, nice: u32) -> bool {
    thread.process.owner.with(|owner| owner.may(COMES_FIRST))
        || u64::from(nice) <= other.limits.with(|limits| limits[limit::NICE][0])
}

/// Whether a process may have this, kind and priority, of a thread that has had the other.
fn may_change(thread: &Thread, meant: &Thread, old: (u32, u32), new: (u32, u32)) -> bool {
    const IDLE: u32 = 5;
    let process = &meant.process;
    let is_real = |how: u32| matches!(how & !RESET, 1 | 2);
    let most = process.limits.with(|limits| limits[limit::REAL_TIME][0]);
    let better = is_real(new.0)
        && (old.0 & !RESET != new.0 & !RESET && most == 0 || new.1 > old.1 && u64::from(new.1) > most);
    let wakes = old.0 & !RESET == IDLE
        && new.0 & !RESET != IDLE
        && !may_be_nice(thread, process, process.nice.load(Ordering::Relaxed));
    let keeps = old.0 & RESET != 0 && new.0 & RESET == 0;
    thread.process.owner.with(|owner| owner.may(COMES_FIRST))
        || may_serve(thread, process) && !better && !wakes && !keeps
}

/// Processes of a group or of a user, by number, or one.
const OF_PROCESS: u64 = 1;
const OF_USER: u64 = 3;

impl<M: Machine> Linux<'_, M> {
    /// How requests of a process to devices are to be served.
    pub(crate) fn io_priority(&self, thread: &Thread, [which, who, new]: [u64; 3], sets: bool) -> Answer {
        const HIGHEST_CLASS: u32 = 3;
        if !(OF_PROCESS..=OF_USER).contains(&(which as u32 as u64)) {
            return Err(Errno::EINVAL);
        }
        let process =
            if which == OF_PROCESS { self.process_of(thread, who)? } else { thread.process.clone() };
        if !sets {
            return Ok(process.said.io.load(Ordering::Relaxed).into());
        }
        if !may_serve(thread, &process) {
            return Err(Errno::EPERM);
        }
        let (class, data) = (new as u32 >> 13, new as u32 & 0x1fff);
        if class > HIGHEST_CLASS || class == 0 && data != 0 || (class == 1 || class == 2) && data & 7 != data
        {
            return Err(Errno::EINVAL);
        }
        process.said.io.store(new as u32, Ordering::Relaxed);
        Ok(0)
    }

    /// A thread by its number, or the one that asks.
    fn thread_of(&self, thread: &Thread, tid: u64) -> Result<Option<Arc<Thread>>, Errno> {
        let tid = tid as u32;
        if tid == 0 || tid == thread.tid {
            return Ok(None);
        }
        if tid as i32 <= 0 {
            return Err(Errno::EINVAL);
        }
        self.thread_numbered(tid).map(Some).ok_or(Errno::ESRCH)
    }

    pub(crate) fn get_affinity(&self, thread: &Thread, tid: u64, bytes: u64, to: u64) -> Answer {
        let cpus = self.machine.possible_cpus() as usize;
        let len = cpus.div_ceil(64) * 8;
        if (tid as i32) < 0 {
            return Err(Errno::ESRCH);
        }
        if (bytes as usize) < len || !bytes.is_multiple_of(8) {
            return Err(Errno::EINVAL);
        }
        let other = self.thread_of(thread, tid)?;
        let within = other.as_deref().unwrap_or(thread).within.with(|within| *within);
        let mut set = alloc::vec![0_u8; len];
        let has = |cpu: &usize| within.get(cpu / 64).is_none_or(|word| word >> (cpu % 64) & 1 != 0);
        (0..cpus).filter(has).for_each(|cpu| set[cpu / 8] |= 1 << (cpu % 8));
        self.machine.write_user(to, &set)?;
        Ok(len as u64)
    }

    /// On which CPUs a thread runs from now on: another one as soon as it is back in its program.
    pub(crate) fn set_affinity(&self, thread: &Thread, tid: u64, bytes: u64, from: u64) -> Answer {
        let mut set = [0; 32];
        let len = (bytes as usize).min(set.len());
        self.machine.read_user(from, &mut set[..len])?;
        let other = self.thread_of(thread, tid)?;
        if other.as_ref().is_some_and(|other| !may_serve(thread, &other.process)) {
            return Err(Errno::EPERM);
        }
        let mut within = [0_u64; 4];
        for (word, bytes) in within.iter_mut().zip(set.chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        }
        let cpus = self.machine.possible_cpus() as usize;
        let possible = |at: usize| match cpus.saturating_sub(64 * at) {
            0 => 0,
            left @ 1..64 => (1_u64 << left) - 1,
            _ => u64::MAX,
        };
        (0..4).for_each(|at| within[at] &= possible(at));
        if within == [0; 4] {
            return Err(Errno::EINVAL);
        }
        if (0..4).all(|at| within[at] == possible(at)) {
            within = [u64::MAX; 4];
        }
        let meant = other.as_deref().unwrap_or(thread);
        meant.within.with(|now| *now = within);
        meant.moves.store(true, Ordering::SeqCst);
        Ok(0)
    }

    /// `sched_getattr`: what it wants, and what does not matter here.
    pub(crate) fn get_scheduling(&self, thread: &Thread, [tid, to, bytes, flags]: [u64; 4]) -> Answer {
        const BYTES: u64 = 56;
        if flags != 0 || to == 0 || !(48..=4096).contains(&(bytes as u32)) {
            return Err(Errno::EINVAL);
        }
        let (how, priority) = self.scheduling(thread, tid, None)?;
        let (how, flags) = (how & !RESET, u64::from(how & RESET != 0));
        let other = self.thread_of(thread, tid)?;
        let nice = other.as_deref().unwrap_or(thread).process.nice.load(Ordering::Relaxed);
        let nice = if how == 0 || how == 3 { 20_u32.wrapping_sub(nice) } else { 0 };
        let len = bytes.min(BYTES);
        let head = Pack::default().word(len as u32).word(how).long(flags).word(nice).word(priority);
        self.machine.write_user(to, &head.zeros_to(len as usize).0).map(|()| 0)
    }

    pub(crate) fn set_scheduling(&self, thread: &Thread, [tid, from, flags]: [u64; 3]) -> Answer {
        if flags != 0 || from == 0 || (tid as i32) < 0 {
            return Err(Errno::EINVAL);
        }
        let (how, nice, priority) =
            (self.load_word(from + 4)?, self.load_word(from + 16)?, self.load_word(from + 20)?);
        self.scheduling(thread, tid, Some((Some(how), priority)))?;
        if how == 0 || how == 3 {
            self.set_priority(thread, 0, tid, nice.into()).map_err(|_| Errno::EPERM)?;
        }
        Ok(0)
    }

    /// What a thread wants of the scheduler, and its priority. It is kept, and all are served alike.
    pub(crate) fn scheduling(
        &self,
        thread: &Thread,
        tid: u64,
        new: Option<(Option<u32>, u32)>,
    ) -> Result<(u32, u32), Errno> {
        if (tid as i32) < 0 {
            return Err(Errno::EINVAL);
        }
        let found = match self.thread_of(thread, tid) {
            // Until it was waited for, one that has ended is there.
            Err(Errno::ESRCH) if self.process_of(thread, tid).is_ok() => return Ok((0, 0)),
            found => found?,
        };
        let meant = found.as_deref().unwrap_or(thread);
        let (old, old_priority) = meant.scheduling.with(|kept| *kept);
        if let Some((how, priority)) = new {
            let how = how.unwrap_or(old);
            let fits = match how & !RESET {
                0 | 3 | 5 => priority == 0,
                1 | 2 => (1..=99).contains(&priority),
                _ => false,
            };
            if !fits {
                return Err(Errno::EINVAL);
            }
            if !may_change(thread, meant, (old, old_priority), (how, priority)) {
                return Err(Errno::EPERM);
            }
            meant.scheduling.with(|kept| *kept = (how, priority));
        }
        Ok((old, old_priority))
    }

    /// How long a thread runs before others of its priority do: of those that take turns.
    pub(crate) fn get_turn(&self, thread: &Thread, tid: u64, to: u64) -> Answer {
        const IN_TURN: u32 = 2;
        const TURN: u64 = 100_000_000;
        let (how, _) = self.scheduling(thread, tid, None)?;
        let turn = if how & !RESET == IN_TURN { TURN } else { 0 };
        self.machine.write_user(to, &Pack::default().time(turn).0).map(|()| 0)
    }

    pub(crate) fn getcpu(&self, cpu: u64, node: u64) -> Answer {
        let here = u32::from(self.machine.this_cpu().0);
        for (at, value) in [(cpu, here), (node, 0)] {
            if at != 0 {
                self.machine.write_user(at, &value.to_le_bytes())?;
            }
        }
        Ok(0)
    }
}
