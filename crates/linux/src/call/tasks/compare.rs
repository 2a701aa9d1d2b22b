//! Whether two processes have the same of something (`kcmp`).

use alloc::sync::Arc;
use core::cmp::Ordering;

use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::process::{Process, Thread};

impl<M: Machine> Linux<'_, M> {
    /// 0 if it is the same, and 1 or 2 by an order that stays.
    pub(crate) fn kcmp(&self, thread: &Thread, [one, other, what, first, second]: [u64; 5]) -> Answer {
        const FILE: u64 = 0;
        const SPACE: u64 = 1;
        const FILES: u64 = 2;
        /// The last of what processes have, or share, as a whole.
        const UNDO: u64 = 6;
        let find = |pid: u64| {
            let found = self.processes.with(|all| all.get(&(pid as u32)).cloned()).ok_or(Errno::ESRCH)?;
            if self.may_look_into(thread, &found) { Ok(found) } else { Err(Errno::EPERM) }
        };
        let (one, other) = (find(one)?, find(other)?);
        let file = |process: &Process, number: u64| {
            process.files.with(|files| files.get(number)).map(|open| Arc::as_ptr(&open).addr())
        };
        let space = |process: &Process| {
            process.memory.with(|memory| memory.as_ref().map(|memory| Arc::as_ptr(memory).addr()))
        };
        let order = match what {
            FILE => file(&one, first)?.cmp(&file(&other, second)?),
            SPACE => space(&one).cmp(&space(&other)),
            FILES => one.files.address().cmp(&other.files.address()),
            3..=UNDO => one.pid.cmp(&other.pid),
            _ => return Err(Errno::EINVAL),
        };
        Ok(match order {
            Ordering::Equal => 0,
            Ordering::Less => 1,
            Ordering::Greater => 2,
        })
    }
}
