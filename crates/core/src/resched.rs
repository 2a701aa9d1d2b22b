//! Points to give way, and how much is done between two of them.
//!
//! No task is switched on a CPU that is inside the core but where the core says so. An operation on a range, a walk over all
//! who map a page, a scan may be of any size: so each loop over entries, tables, VMAs or frames tells a [`Work`] what it has
//! done, and that lets another task run ([`Services::cond_resched`](crate::platform::Services::cond_resched)) when [`Config::resched_after`] units are done. What is
//! held meanwhile: sleeping locks at most, and nothing of the CPU's own: the task may go on elsewhere.
//!
//! [`Config::resched_after`]: crate::config::Config::resched_after

use crate::Manager;
use crate::platform::Platform;
#[cfg(debug_assertions)]
use crate::sync::Holder;

/// What counts for how much. The unit is a look at an entry that is empty, some ten instructions; `docs/stretches.md` has what was
/// measured.
pub(crate) mod cost {
    /// An entry that is changed, or moved.
    pub const ENTRY: u32 = 4;
    /// A step into a table.
    pub const TABLE: u32 = 8;
    /// A VMA that is looked at.
    pub const VMA: u32 = 16;
    /// One that is linked, unlinked, or held against its neighbours: searches in its trees.
    pub const LINK: u32 = 128;
    /// A frame that is made, copied or freed.
    pub const FRAME: u32 = 16;
    /// A fault that makes its page, or finds it.
    pub const FAULT: u32 = 64;
    /// One that reclaim judges, and takes.
    pub const RECLAIM: u32 = 64;
}

/// Counts what a task has done since others could run.
pub(crate) struct Work<'m, 'p, P: Platform> {
    mm: &'m Manager<'p, P>,
    done: u32,
}

impl<'m, 'p, P: Platform> Work<'m, 'p, P> {
    /// A task begins something that may be long.
    pub fn begin(mm: &'m Manager<'p, P>) -> Self {
        Work { mm, done: 0 }
    }

    /// So many units are done, where others cannot run, or need not.
    #[inline]
    pub fn count(&mut self, units: u32) {
        self.done = self.done.saturating_add(units);
    }

    /// So many units are done. May give way: interrupts are on and no spin lock is held.
    #[inline]
    pub fn did(&mut self, units: u32) {
        if self.is_due(units) {
            self.give_way();
        }
    }

    /// The same for those who must let go of something first, and then call [`give_way`](Self::give_way).
    #[inline]
    #[must_use]
    pub fn is_due(&mut self, units: u32) -> bool {
        self.count(units);
        self.done >= self.mm.config().resched_after
    }

    /// Lets others run.
    pub fn give_way(&mut self) {
        self.done = 0;
        self.mm.might_sleep();
        self.mm.platform().cond_resched();
    }
}

impl<P: Platform> Manager<'_, P> {
    /// The task may wait here, or be switched: no spin lock is held. Looked at where debug assertions are on.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn might_sleep(&self) {
        #[cfg(debug_assertions)]
        assert_eq!(self.spin_locks_held().get(), 0, "a task waits, or gives way, with a spin lock held");
    }
}
