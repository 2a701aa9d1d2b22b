//! The memory of another process: `process_vm_readv` and `process_vm_writev`.
//!
//! Its frames are pinned page by page, and copied from or to by the kernel's own map of them: no other space is entered, and what
//! the other process does meanwhile, fork among it, takes no page from under the copy.

use alloc::vec;
use alloc::vec::Vec;

use quietmm::{PageNumber, PageRange, SpaceId, Term, UserAccess};

use crate::areas::PAGE;
use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::machine::Machine;

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
        [pid, own, own_count, other, other_count, flags]: [u64; 6],
        write: bool,
    ) -> Answer {
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        let buffers = |at, count| self.vectors(at, count).map(|all| Buffers { all, next: 0 });
        let (mut own, mut other) = (buffers(own, own_count)?, buffers(other, other_count)?);
        let process = self.processes.with(|all| all.get(&(pid as u32)).cloned()).ok_or(Errno::ESRCH)?;
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
        let page = PageRange::new(PageNumber(there / PAGE), 1);
        let access = if write { UserAccess::Write } else { UserAccess::Read };
        let pins = self.mm.space(space).pin(page, access, Term::Short).map_err(|_| Errno::EFAULT)?;
        let (frame, at) = (pins.frames()[0], (there % PAGE) as usize);
        match write {
            true => self.machine.write_frame(frame, at, bytes),
            false => self.machine.read_frame(frame, at, bytes),
        }
        self.mm.unpin(pins);
        if write { Ok(()) } else { self.machine.write_user(here, bytes) }
    }
}
