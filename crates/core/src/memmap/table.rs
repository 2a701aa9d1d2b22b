//! From a frame's number to what is kept about it, in one load.

use core::marker::PhantomData;

use super::frame::Frame;
use crate::addr::FrameNumber;
use crate::kind::Kind;
use crate::platform::Hooks;

/// Frames in a section: the bookkeeping of a section lies in one piece.
pub(crate) const SECTION: u32 = 1024;

/// A block of frames: its first one, and what is kept about that.
#[derive(Clone, Copy)]
pub(crate) struct FrameBlock<'p> {
    pub n: FrameNumber,
    pub frame: &'p Frame,
}

/// All frames' bookkeeping. Written at start, then only read.
#[derive(Clone, Copy)]
pub(crate) struct FrameTable<'p> {
    /// For each section the bookkeeping of its first frame, or null.
    sections: *const *const Frame,
    count: u32,
    lives: PhantomData<&'p Frame>,
}

// SAFETY: the section table is never written after start, and `Frame` is made of atomics.
unsafe impl Send for FrameTable<'_> {}
// SAFETY: as above.
unsafe impl Sync for FrameTable<'_> {}

impl<'p> FrameTable<'p> {
    /// # Safety
    /// `sections` holds `count` pointers, each null or to [`SECTION`] frames that live for `'p`.
    pub unsafe fn new(sections: *const *const Frame, count: u32) -> Self {
        FrameTable { sections, count, lives: PhantomData }
    }

    /// What is kept about a frame, if its section has memory.
    #[inline(always)]
    pub fn find(&self, n: FrameNumber) -> Option<&'p Frame> {
        let section = n.0 / SECTION;
        if section >= self.count {
            return None;
        }
        // SAFETY: inside the table; a non-null section holds SECTION frames.
        unsafe {
            let first = *self.sections.add(section as usize);
            (!first.is_null()).then(|| &*first.add((n.0 % SECTION) as usize))
        }
    }

    /// What is kept about a frame that the core itself put on a list or into a table.
    #[inline(always)]
    pub fn get(&self, n: FrameNumber) -> &'p Frame {
        match self.find(n) {
            Some(frame) => frame,
            None => unknown_frame(n),
        }
    }

    /// A block that the core itself put on a list.
    #[inline(always)]
    pub(crate) fn block(&self, n: FrameNumber) -> FrameBlock<'p> {
        FrameBlock { n, frame: self.get(n) }
    }

    /// Every managed frame.
    pub fn iter<P: Hooks>(&self, p: &P) -> impl Iterator<Item = (FrameNumber, &'p Frame)> {
        // By section: the number of frames up to the end of the last one may be 2^32.
        (0..self.count)
            .map(|section| FrameNumber(section * SECTION))
            .filter(|&first| self.find(first).is_some())
            .flat_map(|first| (0..SECTION).map(move |i| first.add(i)))
            .filter_map(|n| Some((n, self.find(n)?)))
            .filter(|(_, frame)| frame.kind(p) != Kind::Absent)
    }
}

#[cold]
#[inline(never)]
fn unknown_frame(n: FrameNumber) -> ! {
    panic!("the core's own tables lead to {n:?}, which was never handed over: memory is corrupt")
}
