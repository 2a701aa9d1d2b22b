//! What a program wants to stay in memory.

use core::ops::Range;
use core::sync::atomic::Ordering;

use quietmm::{Error, SpaceId};

use super::{ALL, pages, range, whole_pages};
use crate::areas::{Area, PAGE, What, rights};
use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::process::{Layout, Lock, MOST_LOCKED, Mapped, Memory, Thread, limit};

impl<M: Machine> Linux<'_, M> {
    /// Bytes that a program may lock: up to its limit, and up to a quarter of the memory if who may lock all has set none. Whatever the limit
    /// says, the rest is for others.
    pub(super) fn most_locked(&self, thread: &Thread) -> u64 {
        let share = MOST_LOCKED.max(self.machine.memory().0 << 10 >> 2);
        let set = thread.process.limits_locks.load(Ordering::Relaxed);
        match thread.process.limits.with(|limits| limits[limit::LOCKED][0]) {
            _ if !set && thread.process.owner.with(|owner| owner.is_root()) => share,
            most => most.min(share),
        }
    }

    /// Whether a program may lock so many bytes more.
    pub(super) fn may_lock(&self, thread: &Thread, memory: &Memory, more: u64) -> Result<(), Errno> {
        let most = self.most_locked(thread);
        let now = self.mm.space(memory.space).locked_pages()?.saturating_mul(PAGE);
        if now.saturating_add(more) > most { Err(Errno::ENOMEM) } else { Ok(()) }
    }

    /// Locks pages that are mapped.
    pub(super) fn lock_pages(&self, space: SpaceId, range: &Range<u64>, lock: Lock) -> Result<(), Error> {
        let space = self.mm.space(space);
        match lock {
            Lock::All => space.lock(pages(range)),
            Lock::Used => space.lock_on_fault(pages(range)),
        }
    }

    /// Locks what lies in a range, up to the first hole. What may not be brought is locked once it is there, and this says so.
    pub(super) fn lock(&self, memory: &Memory, range: Range<u64>, lock: Lock) -> Result<(), Errno> {
        let mut at = range.start;
        let mut brought = true;
        while at < range.end {
            let next = memory.layout.with(self.machine, |layout| layout.areas.first(&(at..range.end)));
            let Some((start, area)) = next.filter(|(start, _)| *start == at) else {
                return Err(Errno::ENOMEM);
            };
            let here = start..area.end;
            match self.lock_pages(memory.space, &here, lock) {
                Ok(()) => {}
                Err(Error::OutOfMemory) => return Err(Errno::EAGAIN),
                Err(_) => {
                    brought = false;
                    self.lock_pages(memory.space, &here, Lock::Used).map_err(|_| Errno::ENOMEM)?;
                }
            }
            // What another thread has unmapped meanwhile is not there any more.
            memory.layout.with(self.machine, |layout| layout.areas.lock(&here, true));
            at = here.end;
        }
        if brought { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// Pages stay in memory: up to the limit, whoever asks.
    pub(crate) fn mlock(&self, thread: &Thread, at: u64, bytes: u64, lock: Lock) -> Answer {
        let start = at & !(PAGE - 1);
        let range = range(start, whole_pages(bytes.wrapping_add(at - start)))?;
        let most = self.most_locked(thread);
        if most == 0 {
            return Err(Errno::EPERM);
        }
        let memory = thread.memory();
        let len = range.end - range.start;
        if self.may_lock(thread, &memory, len).is_err() {
            // What is locked there already counts once.
            let there: u64 = memory.layout.with(self.machine, |layout| {
                let mut there = 0;
                let mut at = range.start;
                while let Some((start, area)) = layout.areas.first(&(at..range.end)) {
                    at = area.end;
                    there += if area.rights & rights::LOCKED != 0 { at - start } else { 0 };
                }
                there
            });
            self.may_lock(thread, &memory, len - there)?;
        }
        if range.is_empty() {
            return Ok(0);
        }
        self.lock(&memory, range, lock).map(|()| 0)
    }

    /// Up to the first hole.
    pub(crate) fn munlock(&self, thread: &Thread, at: u64, bytes: u64) -> Answer {
        let start = at & !(PAGE - 1);
        let range = range(start, whole_pages(bytes.wrapping_add(at - start)))?;
        let memory = thread.memory();
        memory.layout.with(self.machine, |layout| {
            let mut hole = range.start;
            while let Some((_, area)) =
                layout.areas.first(&(hole..range.end)).filter(|(start, _)| *start == hole)
            {
                hole = area.end;
            }
            self.unlock(&memory, layout, &(range.start..hole))?;
            if hole == range.end { Ok(0) } else { Err(Errno::ENOMEM) }
        })
    }

    fn unlock(&self, memory: &Memory, layout: &mut Layout, range: &Range<u64>) -> Result<(), Errno> {
        let mut at = range.start;
        while let Some((start, area)) = layout.areas.first(&(at..range.end)) {
            at = area.end;
            if area.rights & rights::LOCKED != 0 {
                self.mm.space(memory.space).unlock(pages(&(start..at)))?;
                layout.areas.lock(&(start..at), false);
            }
        }
        Ok(())
    }

    /// Locks all that is mapped, or what will be; of the stack what is used of it, from `pointer` on.
    pub(crate) fn mlockall(&self, thread: &Thread, flags: u64, pointer: u64) -> Answer {
        const NOW: u64 = 1;
        const LATER: u64 = 2;
        const USED: u64 = 4;
        if flags == 0 || flags & !(NOW | LATER | USED) != 0 || flags == USED {
            return Err(Errno::EINVAL);
        }
        let most = self.most_locked(thread);
        if most == 0 {
            return Err(Errno::EPERM);
        }
        let memory = thread.memory();
        let parts: alloc::vec::Vec<Range<u64>> = memory.layout.with(self.machine, |layout| {
            // A list of all areas would be too long where there are very many: as a whole then.
            let part = |(start, area): (u64, &Area<Mapped>)| {
                let stack = matches!(area.what, What::Own("[stack]")) && (start..area.end).contains(&pointer);
                (if stack { pointer & !(PAGE - 1) } else { start })..area.end
            };
            if !self.machine.has_piece(32 * layout.areas.iter().count() as u64) {
                return Err(Errno::ENOMEM);
            }
            Ok(layout.areas.iter().map(part).collect())
        })?;
        let all: u64 = parts.iter().map(|part| part.end - part.start).sum();
        if flags & NOW != 0 && all > most {
            return Err(Errno::ENOMEM);
        }
        let lock = if flags & USED != 0 { Lock::Used } else { Lock::All };
        memory.layout.with(self.machine, |layout| layout.locks_more = (flags & LATER != 0).then_some(lock));
        if flags & NOW != 0 {
            for part in parts {
                // As much of it as can be had.
                let _ = self.lock(&memory, part, lock);
                if thread.is_dying() {
                    return Err(Errno::EINTR);
                }
            }
        }
        Ok(0)
    }

    pub(crate) fn munlockall(&self, thread: &Thread) -> Answer {
        let memory = thread.memory();
        memory.layout.with(self.machine, |layout| {
            layout.locks_more = None;
            self.unlock(&memory, layout, &ALL)
        })?;
        Ok(0)
    }
}
