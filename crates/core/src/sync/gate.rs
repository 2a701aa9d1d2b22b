//! A lock for many who come and go and one who shuts them out, where those who find it shut go another way.
//!
//! Nobody waits to enter. Who shuts it waits until all who are inside have left; there is only one such at a time, by some other lock.
//!
//! ```text
//!   who enters                          who shuts
//!   open? then inside += 1              open = no
//!     in one step                       inside = 0?
//!   ...                                   no: waits
//!   inside -= 1: the last one of a        yes: nobody is inside, nor comes
//!     shut gate wakes                   ...
//!                                       open = yes
//! ```

use core::sync::atomic::Ordering;

use super::word::Word32;
use crate::platform::{Platform, WaitKey};
use crate::rule::Rule;

/// The lock. All zeros is shut, with nobody inside.
#[repr(C)]
#[derive(Default)]
pub struct Gate {
    /// How many are inside, and whether it is open.
    word: Word32,
}

const OPEN: u32 = 1 << 31;

impl Gate {
    /// Enters if it is open. Never waits.
    pub fn enter<'a, P: Platform>(&'a self, p: &'a P) -> Option<Inside<'a, P>> {
        let mut seen = self.word.load(p, Ordering::Relaxed);
        while seen & OPEN != 0 {
            // Acquire: partner of the Release in `open`: what was changed while it was shut comes before.
            match self.word.replace(p, seen, seen + 1, Ordering::Acquire) {
                Ok(_) => return Some(Inside { gate: self, p }),
                Err(now) => seen = now,
            }
        }
        None
    }

    /// From here on nobody enters; returns whether nobody is inside. Never waits; those who are inside stay.
    pub fn shut<P: Platform>(&self, p: &P) -> bool {
        // Acquire: partner of the Release of whoever leaves.
        self.word.fetch_and(p, !OPEN, Ordering::Acquire) & !OPEN == 0
    }

    /// Waits until nobody is inside. By whoever has shut it. May wait.
    pub fn wait_empty<P: Platform>(&self, p: &P) {
        // Acquire: as above.
        let is_empty = || self.word.load(p, Ordering::Acquire) & !OPEN == 0;
        if !is_empty() && !p.broken(Rule::WaitUntilInsideLeave) {
            p.wait(self.key(), &mut || is_empty());
        }
    }

    /// Shuts it if it is shut already, or nobody is inside; whether it is shut. Never waits.
    pub fn try_shut<P: Platform>(&self, p: &P) -> bool {
        // Acquire: as above.
        let found = self.word.replace(p, OPEN, 0, Ordering::Acquire);
        found.is_ok() || found == Err(0)
    }

    /// Opens it. By whoever has shut it, or made it.
    pub fn open<P: Platform>(&self, p: &P) {
        // Release: partner of the Acquire of whoever enters.
        self.word.fetch_or(p, OPEN, Ordering::Release);
    }

    /// Whether it is shut, and nobody is inside. A moment's truth, but for whoever has shut it.
    pub(crate) fn is_shut<P: Platform>(&self, p: &P) -> bool {
        self.word.get(p) == 0
    }

    /// Whether it is open, and nobody is inside. A moment's truth.
    pub(crate) fn audit_free<P: Platform>(&self, p: &P) -> bool {
        self.word.get(p) == OPEN
    }

    fn key(&self) -> WaitKey {
        WaitKey::Lock((&raw const *self).addr())
    }
}

/// Inside until dropped.
#[must_use]
pub struct Inside<'a, P: Platform> {
    gate: &'a Gate,
    p: &'a P,
}

impl<P: Platform> Drop for Inside<'_, P> {
    fn drop(&mut self) {
        // Release: partner of the Acquire of whoever shuts.
        if self.gate.word.fetch_sub(self.p, 1, Ordering::Release) == 1 {
            self.p.wake(self.gate.key());
        }
    }
}
