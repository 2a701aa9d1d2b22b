//! What waits for devices: how many pages may be on their way at once.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::event::Event;
use crate::platform::{Platform, WaitKey};

impl<P: Platform> Manager<'_, P> {
    /// Pages begin to be written out.
    pub(crate) fn writing_begins(&self, pages: u32) {
        self.root.swap.writing.0.fetch_add(self.platform(), pages, Ordering::Relaxed);
    }

    /// And are.
    pub(crate) fn writing_ends(&self, pages: u32) {
        let p = self.platform();
        let most = self.config().pageout_limit;
        // Release: partner of the Acquire in `throttle`.
        let before = self.root.swap.writing.0.fetch_sub(p, pages, Ordering::Release);
        if before >= most && before - pages < most {
            p.wake(WaitKey::PageOut);
        }
    }

    /// Waits while as many pages as may be are being written out: a task that needs memory adds no more to the queues of
    /// devices that are saturated. Interrupts on, no lock held. `kswapd` does not wait: it has one batch on its way.
    pub(crate) fn throttle(&self) {
        let p = self.platform();
        let most = self.config().pageout_limit;
        let writing = &self.root.swap.writing.0;
        if writing.load(p, Ordering::Relaxed) < most {
            return;
        }
        self.emit(Event::Throttled);
        p.wait(WaitKey::PageOut, &mut || writing.load(p, Ordering::Acquire) < most);
    }
}
