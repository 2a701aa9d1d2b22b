//! What is kept about frames lies in sections: from a frame's number to its part in one load. A section is there from the start, or comes later and
//! stays.

use core::sync::atomic::{AtomicPtr, Ordering};

use crate::addr::FrameNumber;
use crate::zeroed::Zeroed;

/// Frames in a section: the bookkeeping of a section lies in one piece.
pub(crate) const SECTION: u32 = 1024;

/// Where a section lies. Zeros: nowhere yet.
#[repr(transparent)]
pub(crate) struct Slot<T>(AtomicPtr<T>);

// SAFETY: zeros are the null pointer.
unsafe impl<T> Zeroed for Slot<T> {}

/// For each frame a `T`.
pub(crate) struct Sections<'p, T> {
    slots: &'p [Slot<T>],
}

impl<T> Clone for Sections<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Sections<'_, T> {}

impl<'p, T> Sections<'p, T> {
    /// Of no frame.
    pub const NONE: Self = Sections { slots: &[] };

    /// With these slots, which lead nowhere yet, for [`put`](Self::put).
    pub fn new(slots: &'p [Slot<T>]) -> Self {
        Sections { slots }
    }

    #[inline(always)]
    fn look(&self, n: FrameNumber, order: Ordering) -> Option<&'p T> {
        let first = self.slots.get((n.0 / SECTION) as usize)?.0.load(order);
        // SAFETY: only `put` has stored one: the first of SECTION that live for 'p.
        (!first.is_null()).then(|| unsafe { &*first.add((n.0 % SECTION) as usize) })
    }

    /// That of a frame of which somebody has the number from outside, if its section is there.
    #[inline(always)]
    pub fn find(&self, n: FrameNumber) -> Option<&'p T> {
        // Acquire: partner of the Release in `put`.
        self.look(n, Ordering::Acquire)
    }

    /// That of a frame that was on a list or in a table of the core's own: whoever put it there has seen its section.
    #[inline(always)]
    pub fn get(&self, n: FrameNumber) -> Option<&'p T> {
        self.look(n, Ordering::Relaxed)
    }

    /// The first frame of each section that is there.
    pub fn firsts(&self) -> impl Iterator<Item = FrameNumber> + use<'p, T> {
        let all = *self;
        let firsts = (0..self.slots.len() as u32).map(|section| FrameNumber(section * SECTION));
        firsts.filter(move |&first| all.find(first).is_some())
    }

    /// A section comes, for ever; says whether it does: there may be one already.
    pub fn put(&self, first: FrameNumber, section: &'p [T]) -> bool {
        assert!(section.len() == SECTION as usize);
        let slot = &self.slots[(first.0 / SECTION) as usize].0;
        // Release: partner of the Acquire in `find`: what lies there was written before it is found.
        let to = section.as_ptr().cast_mut();
        slot.compare_exchange(core::ptr::null_mut(), to, Ordering::Release, Ordering::Relaxed).is_ok()
    }
}
