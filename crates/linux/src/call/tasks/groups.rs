//! Groups of processes, and sessions.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::process::{Process, Thread};

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn group_of(&self, thread: &Thread, pid: u64) -> Answer {
        self.process_of(thread, pid).map(|process| process.group.load(Ordering::Relaxed).into())
    }

    pub(crate) fn set_group(&self, thread: &Thread, pid: u64, group: u64) -> Answer {
        let me = &thread.process;
        if (group as i32) < 0 {
            return Err(Errno::EINVAL);
        }
        let process = self.process_of(thread, u64::from(pid as u32))?;
        if pid as u32 != 0 && process.pid != pid as u32 {
            // It is a thread's.
            return Err(Errno::EINVAL);
        }
        if pid as i32 > 0 && process.pid != me.pid && process.parent.load(Ordering::SeqCst) != me.pid {
            return Err(Errno::ESRCH);
        }
        let group = if group as u32 == 0 { process.pid } else { group as u32 };
        if group as i32 <= 0 {
            return Err(Errno::EINVAL);
        }
        // In one step: it may be about to begin a session, and the last of the group to leave that.
        self.processes.with(|all| {
            let session = process.session.load(Ordering::Relaxed);
            let in_it = |other: &Arc<Process>| {
                other.group.load(Ordering::Relaxed) == group
                    && other.session.load(Ordering::Relaxed) == session
            };
            let exists = group == process.pid || all.values().any(in_it);
            if session == process.pid || session != me.session.load(Ordering::Relaxed) || !exists {
                return Err(Errno::EPERM);
            }
            self.announced.with(|announced| announced.joins(&process, group));
            Ok(0)
        })
    }

    pub(crate) fn session_of(&self, thread: &Thread, pid: u64) -> Answer {
        let process = self.process_of(thread, u64::from(pid as u32))?;
        Ok(process.session.load(Ordering::Relaxed).into())
    }

    /// A session of its own, and a group.
    pub(crate) fn set_session(&self, thread: &Thread) -> Answer {
        let me = &thread.process;
        let leads = |other: &Arc<Process>| other.group.load(Ordering::Relaxed) == me.pid;
        // In one step: of two threads one begins it.
        self.processes.with(|all| {
            if all.values().any(leads) {
                return Err(Errno::EPERM);
            }
            me.session.store(me.pid, Ordering::Relaxed);
            self.announced.with(|announced| announced.joins(me, me.pid));
            Ok(())
        })?;
        drop(me.terminal.with(Option::take));
        Ok(me.pid.into())
    }
}
