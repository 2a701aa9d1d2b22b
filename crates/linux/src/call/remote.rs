//! The memory of another process: `process_vm_readv` and `process_vm_writev`, its file below `/proc`, and what a tracer reads and writes.
//!
//! Its frames are pinned page by page, and copied from or to by the kernel's own map of them: no other space is entered, and what
//! the other process does meanwhile, fork among it, takes no page from under the copy.

use alloc::sync::Weak;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use quietmm::{PageNumber, PageRange, SpaceId, Term, UserAccess};

use crate::areas::{PAGE, What, rights};
use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::memory::{pages, prot};
use crate::open::Open;
use crate::process::{Memory, Process, Thread};

/// Buffers one after the other, as far as they have been used.
struct Buffers {
    all: Vec<(u64, u64)>,
    next: usize,
}

impl Buffers {
    /// Where the next byte lies, and how many lie there.
    fn here(&mut self) -> Option<(u64, u64)> {
        while self.all.get(self.next).is_some_and(|&(_, bytes)| bytes == 0) {
            self.next += 1;
        }
        self.all.get(self.next).copied()
    }

    fn advance(&mut self, by: u64) {
        let (at, bytes) = &mut self.all[self.next];
        (*at, *bytes) = (*at + by, *bytes - by);
    }
}

impl<M: Machine> Linux<'_, M> {
    /// Copies between this process and another, from or to it; as many bytes as both sides have, up to the first that cannot be had.
    pub(crate) fn copy_remote(
        &self,
        thread: &Thread,
        [pid, own, own_count, other, other_count, flags]: [u64; 6],
        write: bool,
    ) -> Answer {
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        let buffers = |at, count| self.vectors(at, count).map(|all| Buffers { all, next: 0 });
        let (mut own, mut other) = (buffers(own, own_count)?, buffers(other, other_count)?);
        if own.here().is_none() || other.here().is_none() {
            return Ok(0);
        }
        let process = self.process_with(pid as u32).ok_or(Errno::ESRCH)?;
        if !self.may_look_into(thread, &process) {
            return Err(Errno::EPERM);
        }
        let memory = process.memory.with(|memory| memory.clone()).ok_or(Errno::ESRCH)?;
        let (mut buffer, mut done) = (vec![0; PAGE as usize], 0);
        while let (Some((here, most)), Some((there, bytes))) = (own.here(), other.here()) {
            let some = most.min(bytes).min(PAGE - there % PAGE);
            match self.copy_part(memory.space, [here, there], &mut buffer[..some as usize], write) {
                Ok(()) => done += some,
                Err(error) => return if done > 0 { Ok(done) } else { Err(error) },
            }
            own.advance(some);
            other.advance(some);
            self.machine.cond_resched();
        }
        Ok(done)
    }

    /// What lies in one page of the other process.
    fn copy_part(
        &self,
        space: SpaceId,
        [here, there]: [u64; 2],
        bytes: &mut [u8],
        write: bool,
    ) -> Result<(), Errno> {
        if write {
            self.machine.read_user(here, bytes)?;
        }
        self.copy_page(space, there, bytes, write)?;
        if write { Ok(()) } else { self.machine.write_user(here, bytes) }
    }

    /// To or from what lies in one page of another space.
    fn copy_page(&self, space: SpaceId, there: u64, bytes: &mut [u8], write: bool) -> Result<(), Errno> {
        let page = PageRange::new(PageNumber(there / PAGE), 1);
        let access = if write { UserAccess::Write } else { UserAccess::Read };
        let pins = self.mm.space(space).pin(page, access, Term::Short).map_err(|_| Errno::EFAULT)?;
        let (frame, at) = (pins.frames()[0], (there % PAGE) as usize);
        match write {
            true => self.machine.write_frame(frame, at, bytes),
            false => self.machine.read_frame(frame, at, bytes),
        }
        self.mm.unpin(pins);
        Ok(())
    }

    /// What a process has there, up to the first page that it may not read itself.
    pub(crate) fn look_into(&self, process: &Process, Range { mut start, end }: Range<u64>) -> Vec<u8> {
        let mut found = Vec::new();
        let Some(memory) = process.memory.with(|memory| memory.clone()) else { return found };
        while start < end {
            let (before, some) = (found.len(), (end - start).min(PAGE - start % PAGE));
            found.resize(before + some as usize, 0);
            if self.copy_page(memory.space, start, &mut found[before..], false).is_err() {
                found.truncate(before);
                break;
            }
            start += some;
            self.machine.cond_resched();
        }
        found
    }

    /// Reads or writes what another process has there, whatever its own rights: how many bytes, up to the first that cannot be had. What is
    /// written where it may only read becomes its own, as by itself.
    pub(crate) fn reach_into(&self, memory: &Memory, at: u64, bytes: &mut [u8], write: bool) -> usize {
        let mut done = 0;
        while done < bytes.len() {
            let Some(there) = at.checked_add(done as u64) else { break };
            let end = bytes.len().min(done + (PAGE - there % PAGE) as usize);
            let part = &mut bytes[done..end];
            let went = self.copy_page(memory.space, there, part, write);
            if went.or_else(|_| self.copy_anyway(memory, there, part, write)).is_err() {
                break;
            }
            done = end;
            self.machine.cond_resched();
        }
        done
    }

    /// Reads or writes a process's memory as a file, by its addresses.
    pub(crate) fn each_of_space(
        &self,
        open: &Open,
        memory: &Weak<Memory>,
        (own, bytes): (u64, u64),
        at: Option<u64>,
        write: bool,
    ) -> Answer {
        let go = |there: u64| {
            // Whose process has ended has nothing there.
            let Some(memory) = memory.upgrade() else { return Ok(0) };
            let (mut buffer, mut done) = (vec![0; PAGE as usize], 0);
            while done < bytes {
                let part = &mut buffer[..(bytes - done).min(PAGE) as usize];
                if write {
                    self.machine.read_user(own + done, part)?;
                }
                let went = self.reach_into(&memory, there.wrapping_add(done), part, write);
                if !write {
                    self.machine.write_user(own + done, &part[..went])?;
                }
                done += went as u64;
                if went < part.len() {
                    break;
                }
            }
            if done == 0 && bytes > 0 { Err(Errno::EIO) } else { Ok(done) }
        };
        self.at_place(open, at, go)
    }

    /// Goes from this place on, or from that where the last one ended.
    pub(crate) fn at_place(&self, open: &Open, at: Option<u64>, go: impl FnOnce(u64) -> Answer) -> Answer {
        match at {
            Some(at) => go(at),
            None => open.offset.with(self.machine, |offset| {
                let done = go(*offset)?;
                *offset += done;
                Ok(done)
            }),
        }
    }

    /// The same within a page to which the process has no such right: it has for a moment.
    fn copy_anyway(&self, memory: &Memory, there: u64, bytes: &mut [u8], write: bool) -> Result<(), Errno> {
        let wanted = if write { rights::READ | rights::WRITE } else { rights::READ };
        memory.layout.with(self.machine, |layout| {
            let (_, area) = layout.areas.at(there).ok_or(Errno::EIO)?;
            let is_shared = matches!(area.what, What::File { shared: true, .. });
            if area.rights & wanted == wanted || write && is_shared {
                return Err(Errno::EIO);
            }
            let start = there & !(PAGE - 1);
            let (page, of) = (pages(&(start..start + PAGE)), area.rights);
            let space = self.mm.space(memory.space);
            space.protect(page, prot(of | wanted))?;
            let done = self.copy_page(memory.space, there, bytes, write);
            space.protect(page, prot(of))?;
            done
        })
    }
}
