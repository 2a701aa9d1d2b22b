//! How many threads a user may have (`RLIMIT_NPROC`).

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use crate::capabilities::{OWNS, TAKES_MORE};
use crate::errno::Errno;
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::process::{Process, Thread, limit};

impl<M: Machine> Linux<'_, M> {
    /// How many threads there are of a user.
    fn threads_of(&self, user: u32) -> u64 {
        let all: alloc::vec::Vec<_> = self.processes.with(|all| all.values().cloned().collect());
        let its = |process: &&Arc<Process>| process.owner.with(|owner| owner.users[0] == user);
        // Whoever has ended and was not waited for counts as one.
        let count = |process: &Arc<Process>| process.threads.with(|threads| threads.len().max(1)) as u64;
        all.iter().filter(its).map(count).sum()
    }

    /// Whether the process's user has more threads than the process's limit, with so many more or fewer than there are.
    fn has_too_many(&self, thread: &Thread, more: i64) -> bool {
        let process = &thread.process;
        let most = process.limits.with(|limits| limits[limit::THREADS][0]);
        let user = process.owner.with(|owner| owner.users[0]);
        // Root has as many as there can be.
        user != 0 && most != u64::MAX && self.threads_of(user).saturating_add_signed(more) > most
    }

    /// Refuses a thread more than the user may have, unless who makes it may take more than others.
    pub(super) fn may_make_more(&self, thread: &Thread) -> Result<(), Errno> {
        let may = || thread.process.owner.with(|owner| owner.may(OWNS) || owner.may(TAKES_MORE));
        if self.has_too_many(thread, 1) && !may() { Err(Errno::EAGAIN) } else { Ok(()) }
    }

    /// A process is perhaps another user's than before. If that one had too many already it stays what it is, but runs no other program.
    pub(super) fn user_changed(&self, thread: &Thread, before: u32) {
        let process = &thread.process;
        if process.owner.with(|owner| owner.users[0] != before) {
            let own = process.threads.with(|threads| threads.len()) as i64;
            process.crowds.store(self.has_too_many(thread, -own), Ordering::Relaxed);
        }
    }

    /// Refuses to run another program for a user who had too many when the process became theirs, and still has.
    pub(super) fn may_run_another(&self, thread: &Thread) -> Result<(), Errno> {
        let crowds = &thread.process.crowds;
        if crowds.load(Ordering::Relaxed) && self.has_too_many(thread, 0) {
            return Err(Errno::EAGAIN);
        }
        crowds.store(false, Ordering::Relaxed);
        Ok(())
    }
}
