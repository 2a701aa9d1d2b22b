//! From which nodes a program has its memory: there is one.

use core::sync::atomic::Ordering;

use super::range;
use crate::areas::PAGE;
use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::memory::pages;
use crate::process::Thread;

impl<M: Machine> Linux<'_, M> {
    /// Where memory is to be had from: there is one node, and it may be any that has this one.
    pub(crate) fn set_policy(&self, thread: &Thread, of_range: bool, all: [u64; 6]) -> Answer {
        const HIGHEST: u64 = 6;
        /// Of these no node need be named.
        const USUAL: u64 = 0;
        const PREFERRED: u64 = 1;
        const LOCAL: u64 = 4;
        let [mode, mask, bits] = if of_range { [all[2], all[3], all[4]] } else { [all[0], all[1], all[2]] };
        let mode = mode & !0xe000;
        if mode > HIGHEST {
            return Err(Errno::EINVAL);
        }
        let first = if mask == 0 || bits == 0 { 0 } else { self.load_long(mask)? };
        let fits = match mode {
            USUAL | LOCAL => first == 0,
            PREFERRED => first <= 1,
            _ => first & 1 != 0,
        };
        if !fits {
            return Err(Errno::EINVAL);
        }
        if of_range {
            let range = range(all[0], all[1])?;
            let memory = thread.memory();
            let covers =
                memory.layout.with(self.machine, |layout| range.is_empty() || layout.areas.covers(&range));
            return if covers { Ok(0) } else { Err(Errno::EFAULT) };
        }
        let kept = mode as u32 | (first as u32 & 1) << 16;
        thread.process.policy.store(kept, Ordering::Relaxed);
        Ok(0)
    }

    pub(crate) fn get_policy(&self, thread: &Thread, [mode, mask, bits, at, flags, _]: [u64; 6]) -> Answer {
        const NODE: u64 = 1;
        const AT: u64 = 2;
        const ALLOWED: u64 = 4;
        if flags & !(NODE | AT | ALLOWED) != 0 || flags & AT == 0 && at != 0 {
            return Err(Errno::EINVAL);
        }
        let kept = thread.process.policy.load(Ordering::Relaxed);
        let (now, nodes) = match flags {
            ALLOWED => (0, 1),
            flags if flags & NODE != 0 => (0, 0),
            flags if flags & AT != 0 => (0, 0),
            _ => (kept & 0xffff, kept >> 16),
        };
        if flags & AT != 0
            && !thread.memory().layout.with(self.machine, |layout| layout.areas.at(at).is_some())
        {
            return Err(Errno::EFAULT);
        }
        if mode != 0 {
            self.machine.write_user(mode, &now.to_le_bytes())?;
        }
        if mask != 0 && bits != 0 {
            let mut set = alloc::vec![0; (bits.div_ceil(64) * 8).min(4096) as usize];
            set[0] = nodes as u8;
            self.machine.write_user(mask, &set)?;
        }
        Ok(0)
    }

    /// Says of each of some pages on which node it is, or moves it: there is one node, and it is there if it is anywhere.
    pub(crate) fn move_pages(&self, thread: &Thread, [pid, count, all, to, said, flags]: [u64; 6]) -> Answer {
        /// What others have too; all of them.
        const OWN: u64 = 2;
        const SHARED: u64 = 4;
        if flags & !(OWN | SHARED) != 0 {
            return Err(Errno::EINVAL);
        }
        let process = self.process_of(thread, pid)?;
        if !self.may_look_into(thread, &process) {
            return Err(Errno::EPERM);
        }
        let memory = process.memory.with(|memory| memory.clone()).ok_or(Errno::EINVAL)?;
        for index in 0..count {
            let at = self.load_long(all.wrapping_add(8 * index))?;
            if to != 0 && self.load_word(to.wrapping_add(4 * index))? != 0 {
                return Err(Errno::ENODEV);
            }
            let is_mapped = memory.layout.with(self.machine, |layout| layout.areas.at(at).is_some());
            let (start, mut there) = (at & !(PAGE - 1), [0]);
            let status = match () {
                () if !is_mapped => Err(Errno::EFAULT),
                () => {
                    match self.mm.space(memory.space).residency(pages(&(start..start + PAGE)), &mut there) {
                        Ok(1..) => Ok(0),
                        _ => Err(Errno::ENOENT),
                    }
                }
            };
            let status = status.unwrap_or_else(Errno::register) as u32;
            if said != 0 {
                self.machine.write_user(said.wrapping_add(4 * index), &status.to_le_bytes())?;
            }
            if thread.is_dying() {
                return Err(Errno::EINTR);
            }
            self.machine.cond_resched();
        }
        Ok(0)
    }
}
