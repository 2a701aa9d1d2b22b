//! Frames between lists: a chain that its owner carries, and the place where other CPUs leave chains for one.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::FrameNumber;
use crate::platform::Platform;
use crate::sync::Word32;

/// Frames taken off lists, blocks of any zone and order, linked one to the next. They belong to nobody else and are in
/// no count: whoever has them puts them where they belong.
#[must_use = "frames that are dropped are lost"]
pub(crate) struct FrameChain {
    first: FrameNumber,
    last: FrameNumber,
}

impl FrameChain {
    pub const NONE: FrameChain = FrameChain { first: FrameNumber::NONE, last: FrameNumber::NONE };

    /// Puts a chain, from its first to its last, at the end.
    pub fn append<P: Platform>(&mut self, mm: &Manager<'_, P>, first: FrameNumber, last: FrameNumber) {
        match self.last {
            FrameNumber::NONE => self.first = first,
            end => mm.memmap().get(end).set_next(mm.platform(), first),
        }
        self.last = last;
    }

    /// The chain as a number to keep elsewhere. Returns its first frame, and makes its last one lead to `next`.
    pub fn first(&self) -> FrameNumber {
        self.first
    }

    /// Makes what stands behind `next` the end of this.
    pub fn lead_to<P: Platform>(&self, mm: &Manager<'_, P>, next: FrameNumber) {
        if self.last != FrameNumber::NONE {
            mm.memmap().get(self.last).set_next(mm.platform(), next);
        }
    }

    /// What [`first`](Self::first) and [`lead_to`](Self::lead_to) have put together.
    pub fn from_first(first: FrameNumber) -> Self {
        FrameChain { first, last: FrameNumber::NONE }
    }
}

/// What other CPUs have handed to this one. A stack of frames that many push and one takes whole, so that a number seen
/// twice (ABA) does no harm. The first frame plus one; 0 is none.
#[repr(C, align(64))]
pub(crate) struct FrameStack(Word32);

impl FrameStack {
    /// Adds what this CPU has: any CPU, in the handler of an interrupt too.
    pub fn push<P: Platform>(&self, mm: &Manager<'_, P>, chain: &FrameChain) {
        if chain.first() == FrameNumber::NONE {
            return;
        }
        let p = mm.platform();
        let mut seen = self.0.get(p);
        loop {
            chain.lead_to(mm, FrameNumber(seen.wrapping_sub(1)));
            // Release: partner of the Acquire in `take`. The links are whole.
            match self.0.replace(p, seen, chain.first().0 + 1, Ordering::Release) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Takes all: only the CPU whose it is.
    pub fn take<P: Platform>(&self, p: &P) -> FrameChain {
        FrameChain::from_first(FrameNumber(self.0.swap(p, 0, Ordering::Acquire).wrapping_sub(1)))
    }

    /// Whether nothing waits here. On a quiet system.
    pub fn is_empty<P: Platform>(&self, p: &P) -> bool {
        self.0.get(p) == 0
    }
}
