//! Data under a spin lock that is held with interrupts off: the scheduler's own.

use core::cell::UnsafeCell;

#[cfg(not(feature = "unfair"))]
use quietmm::sync::SpinLock as Lock;
use quietmm::{Manager, Platform};

#[cfg(feature = "unfair")]
use crate::unfair::Unfair as Lock;

/// A `T` that one CPU at a time may touch.
pub struct Guarded<T> {
    lock: Lock,
    data: UnsafeCell<T>,
}

// SAFETY: `with` hands out the data to one CPU at a time, with interrupts off, so no handler can nest.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    /// Unlocked.
    pub fn new(data: T) -> Self {
        Guarded { lock: Lock::new(), data: UnsafeCell::new(data) }
    }

    /// Works on the data. `work` must not come back here for the same data.
    pub fn with<P: Platform, R>(&self, mm: &Manager<'_, P>, work: impl FnOnce(&mut T) -> R) -> R {
        let p = mm.platform();
        #[cfg(feature = "unfair")]
        let were_on = self.lock.lock(mm);
        #[cfg(not(feature = "unfair"))]
        let were_on = p.irqs_off();
        let result = {
            #[cfg(not(feature = "unfair"))]
            let _guard = self.lock.lock(mm);
            // SAFETY: the lock is held and interrupts are off, so nobody else has a reference.
            work(unsafe { &mut *self.data.get() })
        };
        #[cfg(feature = "unfair")]
        self.lock.unlock(p);
        if were_on {
            p.irqs_on();
        }
        result
    }

    /// Looks at the data without the lock.
    ///
    /// # Safety
    /// All CPUs have stopped and none goes on, not even one that was stopped with the lock held.
    pub unsafe fn look<R>(&self, work: impl FnOnce(&T) -> R) -> R {
        // SAFETY: as the caller says, nobody uses the data.
        work(unsafe { &*self.data.get() })
    }
}
