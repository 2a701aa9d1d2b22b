//! What a program says of how another one will use its memory (`process_madvise`).

use super::range;
use crate::capabilities::COMES_FIRST;
use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::open::Kind;
use crate::process::Thread;

/// What may be said of another's memory: none of these changes what is there.
const WILL_NEED: u64 = 3;
const COLD: u64 = 20;
const PAGE_OUT: u64 = 21;
const COLLAPSE: u64 = 25;

impl<M: Machine> Linux<'_, M> {
    /// Advice about ranges of the memory of another process, which its number as an open file says, or of one's own; says for how many
    /// bytes it was taken.
    pub(crate) fn process_madvise(
        &self,
        thread: &Thread,
        [number, at, count, advice, flags]: [u64; 5],
    ) -> Answer {
        if flags as u32 != 0 {
            return Err(Errno::EINVAL);
        }
        let vectors = self.vectors(at, count)?;
        let process = match &self.open_file(thread, number)?.kind {
            Kind::Process(process) => process.clone(),
            _ => return Err(Errno::EBADF),
        };
        let own = process.pid == thread.process.pid;
        let memory = process.memory.with(|memory| memory.clone()).ok_or(Errno::ESRCH)?;
        if !own {
            if !self.may_look_into(thread, &process) {
                return Err(Errno::EACCES);
            }
            if !matches!(advice, WILL_NEED | COLD | PAGE_OUT | COLLAPSE) {
                return Err(Errno::EINVAL);
            }
            if !thread.process.owner.with(|owner| owner.may(COMES_FIRST)) {
                return Err(Errno::EPERM);
            }
        }
        let mut done = 0;
        for (at, bytes) in vectors {
            match range(at, bytes).and_then(|range| self.advise(thread, &memory, range, advice)) {
                Ok(_) => done += bytes,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }
}
