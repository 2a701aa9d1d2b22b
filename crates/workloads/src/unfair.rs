//! A lock without an order, for machines whose CPUs share processors: whoever is next in a fair one may not be running,
//! and then all others wait for it with interrupts off.

use core::sync::atomic::Ordering;

use quietmm::sync::Word32;
use quietmm::{Manager, Platform};

/// In place of the core's fair lock. Held with interrupts off; waited for with interrupts as the caller had them.
pub struct Unfair(Word32);

impl Unfair {
    /// Unlocked.
    pub const fn new() -> Self {
        Unfair(Word32::new(0))
    }

    /// Takes the lock; interrupts are off after it. Says whether they were on.
    pub fn lock<P: Platform>(&self, mm: &Manager<'_, P>) -> bool {
        let p = mm.platform();
        loop {
            let were_on = p.irqs_off();
            // Acquire: partner of the Release in `unlock`.
            if self.0.replace(p, 0, 1, Ordering::Acquire).is_ok() {
                return were_on;
            }
            if were_on {
                p.irqs_on();
            } else {
                // INV-8: nobody else would.
                mm.serve();
            }
            p.pause(100);
        }
    }

    /// Lets go of it.
    pub fn unlock<P: Platform>(&self, p: &P) {
        // Release: partner of the Acquire in `lock`.
        self.0.store(p, 0, Ordering::Release);
    }
}
