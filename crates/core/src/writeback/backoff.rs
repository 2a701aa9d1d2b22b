//! Devices that do not take what is written to them are left alone for a while.
//!
//! A page whose write failed stays in memory, dirty: nothing is lost. But reclaim looks at it again and again, more often the
//! shorter memory is, and each try costs a command. So after a number of failures in a row only single pages are tried, and
//! between two tries so many are passed by that would have to be written, twice as many each time. The first that is taken
//! ends that.

use crate::Manager;
use crate::addr::FrameNumber;
use crate::handle::FileSlot;
use crate::platform::Platform;
use crate::sync::Word32;

/// Failures in a row from which on a device is left alone: a batch. Single bad blocks between good ones are none.
const PATIENCE: u32 = 32;
/// log2 of the most pages that are passed by between two tries.
const LONGEST: u32 = 12;

/// What is known of the writes to a device, or to a file. All zeros is one that takes them. Relaxed throughout: it orders
/// nothing, and a page more or less does no harm.
#[repr(C)]
pub(crate) struct Backoff {
    /// Writes in a row that failed.
    failed: Word32,
    /// Pages that are passed by before the next is tried.
    rest: Word32,
}

impl Backoff {
    /// A new one.
    pub fn clear<P: Platform>(&self, p: &P) {
        self.failed.set(p, 0);
        self.rest.set(p, 0);
    }

    /// Whether it is left alone but for single tries.
    pub fn is_failing<P: Platform>(&self, p: &P) -> bool {
        self.failed.get(p) >= PATIENCE
    }

    /// Whether a page may be written there. Asked once for each that reclaim would write: the answer counts.
    pub fn may_write<P: Platform>(&self, p: &P) -> bool {
        let Some(over) = self.failed.get(p).checked_sub(PATIENCE) else { return true };
        let rest = self.rest.get(p);
        let (may, rest) = if rest > 0 { (false, rest - 1) } else { (true, 1 << over.min(LONGEST)) };
        self.rest.set(p, rest);
        may
    }

    /// What came of a write.
    pub fn note<P: Platform>(&self, p: &P, taken: bool) {
        let failed = self.failed.get(p);
        if !taken {
            self.failed.set(p, failed.saturating_add(1));
        } else if failed > 0 {
            self.clear(p);
        }
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Whether a page's device takes it now, if it has one. By whoever has locked it.
    pub(crate) fn may_write_out(&self, n: FrameNumber) -> bool {
        let p = self.platform();
        match self.slot_of(n) {
            Some(slot) => !Self::is_transit(slot) && self.swap_backoff(slot).may_write(p),
            None => self.file_at(FileSlot(self.memmap().get(n).owner.get(p))).backoff.may_write(p),
        }
    }

    /// What is known of the device of a page that has one. By whoever has locked it.
    pub(crate) fn backoff_of(&self, n: FrameNumber) -> &'p Backoff {
        match self.slot_of(n) {
            Some(slot) => self.swap_backoff(slot),
            None => &self.file_at(FileSlot(self.memmap().get(n).owner.get(self.platform()))).backoff,
        }
    }
}
