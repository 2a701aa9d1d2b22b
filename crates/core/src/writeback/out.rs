//! What waits for devices: how many pages may be on their way at once, and who waits until some have gone.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::event::Event;
use crate::platform::{Platform, WaitKey};
use crate::sync::{Word32, full_fence};

/// Pages on their way to devices, of swap and of files. On a line of its own.
#[repr(C, align(64))]
pub(crate) struct Writing {
    pages: Word32,
    /// Batches that are through; wraps.
    ended: Word32,
    /// Somebody waits for the next one.
    awaited: Word32,
}

impl<P: Platform> Manager<'_, P> {
    fn writing(&self) -> &Writing {
        &self.root.writing
    }

    /// Whether nothing is on its way. On a quiet system.
    pub(crate) fn audit_writes(&self) -> bool {
        self.writing().pages.get(self.platform()) == 0
    }

    /// A batch of pages begins to be written out.
    pub(crate) fn pageout_begins(&self, pages: u32) {
        self.writing().pages.fetch_add(self.platform(), pages, Ordering::Relaxed);
    }

    /// It is through: written, and what became free of it is.
    pub(crate) fn pageout_ends(&self, pages: u32) {
        let (p, writing) = (self.platform(), self.writing());
        let most = self.config().pageout_limit;
        // Release: partner of the Acquire in `throttle`.
        let before = writing.pages.fetch_sub(p, pages, Ordering::Release);
        // Release: partner of the Acquires in `await_pageout`: whoever sees this finds the pages free, and not on their way.
        writing.ended.fetch_add(p, 1, Ordering::Release);
        // Partner: the fence in `await_pageout`. Who set the mark before is woken; whoever sets it later sees that this has ended.
        full_fence(p);
        let awaited = || writing.awaited.load(p, Ordering::Relaxed) != 0;
        let awaited = awaited() && writing.awaited.swap(p, 0, Ordering::Relaxed) != 0;
        if awaited || before >= most && before - pages < most {
            p.wake(WaitKey::PageOut);
        }
    }

    /// Waits until a batch that is on its way to devices is through; false if there is none. Interrupts on, no spin lock held.
    pub(crate) fn await_pageout(&self) -> bool {
        let (p, writing) = (self.platform(), self.writing());
        // Acquire: partner of the Release in `pageout_ends`. Before the look at the pages: what is counted there then ends later.
        let seen = writing.ended.load(p, Ordering::Acquire);
        if writing.pages.load(p, Ordering::Relaxed) == 0 {
            return false;
        }
        let over = || writing.ended.load(p, Ordering::Acquire) != seen;
        p.wait(WaitKey::PageOut, &mut || {
            over() || {
                writing.awaited.store(p, 1, Ordering::Relaxed);
                full_fence(p);
                over()
            }
        });
        true
    }

    /// Waits while as many pages as may be are being written out: a task that needs memory adds no more to the queues of
    /// devices that are saturated. Interrupts on, no lock held. `kswapd` does not wait: it has one batch on its way.
    pub(crate) fn throttle(&self) {
        let p = self.platform();
        let most = self.config().pageout_limit;
        let pages = &self.writing().pages;
        if pages.load(p, Ordering::Relaxed) < most {
            return;
        }
        self.emit(Event::Throttled);
        p.wait(WaitKey::PageOut, &mut || pages.load(p, Ordering::Acquire) < most);
    }
}
