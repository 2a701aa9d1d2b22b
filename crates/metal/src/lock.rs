//! A lock for what the machine itself shares between CPUs: held for a few instructions, with interrupts off, and never
//! across a call into the core.

use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::cpu::{irqs_off, irqs_on};

/// A `T` that one CPU at a time may touch.
pub struct Lock<T> {
    held: AtomicBool,
    data: UnsafeCell<T>,
}

// SAFETY: `with` hands the data to one CPU at a time, with interrupts off, so no handler can nest.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// Unlocked.
    pub const fn new(data: T) -> Self {
        Lock { held: AtomicBool::new(false), data: UnsafeCell::new(data) }
    }

    /// Works on the data. `work` must not come back here, and must not wait for another CPU.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let were_on = irqs_off();
        // Acquire: partner of the Release below.
        while self.held.swap(true, Ordering::Acquire) {
            while self.held.load(Ordering::Relaxed) {
                spin_loop();
            }
        }
        // SAFETY: the lock is held and interrupts are off: there is no other reference.
        let result = work(unsafe { &mut *self.data.get() });
        // Release: partner of the Acquire above.
        self.held.store(false, Ordering::Release);
        if were_on {
            irqs_on();
        }
        result
    }
}
