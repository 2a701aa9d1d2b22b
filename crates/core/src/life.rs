//! Handles that name one use of a slot and no later one.

use core::sync::atomic::Ordering;

use crate::platform::Platform;
use crate::sync::Word64;

/// Which use of a slot this is, where callers hold handles to it. It counts beginnings and ends, so it is odd while what is
/// in the slot lives, and no two lives of a slot have the same number: 64 bits never wrap (PITFALLS 15).
///
/// A slot's memory stays a slot's for ever, so a look with an old handle is safe, and finds another number.
#[repr(transparent)]
pub(crate) struct Life(Word64);

/// Whether this life ends is being decided.
const ENDING: u64 = 1 << 63;

impl Life {
    /// The slot is ready, and found from now on.
    pub fn begin<P: Platform>(&self, p: &P) {
        debug_assert!(self.0.get(p).is_multiple_of(2), "a slot in use begins again");
        // Release: partner of the Acquire in `is`.
        self.0.store(p, self.0.get(p) + 1, Ordering::Release);
    }

    /// Somebody, who alone may, decides whether it ends: [`end`](Self::end) or [`stay`](Self::stay) follows at once.
    pub fn decide<P: Platform>(&self, p: &P) {
        self.0.store(p, self.0.get(p) | ENDING, Ordering::Relaxed);
    }

    /// It does not end.
    pub fn stay<P: Platform>(&self, p: &P) {
        self.0.store(p, self.0.get(p) & !ENDING, Ordering::Relaxed);
    }

    /// No handle leads here any more.
    pub fn end<P: Platform>(&self, p: &P) {
        let now = self.0.get(p) & !ENDING;
        debug_assert!(!now.is_multiple_of(2), "a slot that is free ends again");
        // Release: partner of the Acquire in `is`.
        self.0.store(p, now + 1, Ordering::Release);
    }

    /// Whether this is still the life that a handle names. While it is being decided, it is.
    pub fn is<P: Platform>(&self, p: &P, life: u64) -> bool {
        // Acquire: partner of the Releases in `begin` and `end`.
        self.0.load(p, Ordering::Acquire) & !ENDING == life
    }

    /// Whether the slot's life goes on, once that is decided. Waits for whoever decides: for a few steps, with interrupts
    /// off, in which nobody is waited for.
    pub fn goes_on<P: Platform>(&self, p: &P) -> bool {
        loop {
            let now = self.0.load(p, Ordering::Acquire);
            if now & ENDING == 0 {
                return !now.is_multiple_of(2);
            }
            p.pause(50);
        }
    }

    /// The number of this life, or of the last one.
    pub fn now<P: Platform>(&self, p: &P) -> u64 {
        (self.0.load(p, Ordering::Acquire) & !ENDING).saturating_sub(1) | 1
    }
}
