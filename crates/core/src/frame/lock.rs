//! The lock of a page: held by whoever reclaims it or writes it out.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::FrameNumber;
use crate::charge::charge;
use crate::memmap::flag;
use crate::platform::{Platform, WaitKey};
use crate::profile::Scope;

impl<P: Platform> Manager<'_, P> {
    /// Whether somebody reclaims the page or writes it out.
    pub(crate) fn is_page_locked(&self, n: FrameNumber) -> bool {
        self.memmap().get(n).state.load(self.platform(), Ordering::Acquire) & flag::LOCKED != 0
    }

    /// Whoever works on the page has locked it. Looked at where debug assertions are on, and no step of what a CPU does.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn must_be_locked(&self, n: FrameNumber) {
        #[cfg(all(debug_assertions, not(loom)))]
        assert!(
            self.memmap().get(n).state.unseen() & flag::LOCKED != 0,
            "{n:?} is worked on, and not locked"
        );
        _ = n;
    }

    /// Lets go of the page, and wakes who waits for it.
    #[track_caller]
    pub(crate) fn unlock_page(&self, n: FrameNumber) {
        self.must_be_locked(n);
        let p = self.platform();
        // Release: partner of the Acquire of the next holder.
        let state =
            self.memmap().get(n).state.fetch_and(p, !(flag::LOCKED | flag::AWAITED), Ordering::Release);
        if state & flag::AWAITED != 0 {
            p.wake(WaitKey::Page(n));
        }
    }

    /// Waits until the page is free, and locks it. The caller holds the page. May wait.
    pub(crate) fn lock_page(&self, n: FrameNumber) {
        self.await_page(n, &mut || self.memmap().get(n).try_lock(self.platform()));
    }

    /// Waits until nobody has locked the page. The caller holds the page. May wait.
    pub(crate) fn wait_page(&self, n: FrameNumber) {
        self.await_page(n, &mut || !self.is_page_locked(n));
    }

    fn await_page(&self, n: FrameNumber, free: &mut dyn FnMut() -> bool) {
        let _scope = charge(self.platform(), Scope::PageLock);
        let p = self.platform();
        self.might_sleep();
        p.wait(WaitKey::Page(n), &mut || {
            // Asked again once the mark is set: who unlocks after that finds the mark.
            free() || {
                self.memmap().get(n).set_flags(p, flag::AWAITED);
                free()
            }
        });
    }
}
