//! From a frame's number to what is kept about it, in one load.

use super::frame::Frame;
use super::sections::{SECTION, Sections};
use crate::addr::FrameNumber;
use crate::kind::Kind;

/// A block of frames: its first one, and what is kept about that.
#[derive(Clone, Copy)]
pub(crate) struct FrameBlock<'p> {
    pub n: FrameNumber,
    pub frame: &'p Frame,
}

/// All frames' bookkeeping.
#[derive(Clone, Copy)]
pub(crate) struct FrameTable<'p>(pub Sections<'p, Frame>);

impl<'p> FrameTable<'p> {
    /// What is kept about a frame, if its section has memory.
    #[inline(always)]
    pub fn find(&self, n: FrameNumber) -> Option<&'p Frame> {
        self.0.find(n)
    }

    /// What is kept about a frame that the core itself put on a list or into a table.
    #[inline(always)]
    pub fn get(&self, n: FrameNumber) -> &'p Frame {
        match self.0.get(n) {
            Some(frame) => frame,
            None => unknown_frame(n),
        }
    }

    /// A block that the core itself put on a list.
    #[inline(always)]
    pub(crate) fn block(&self, n: FrameNumber) -> FrameBlock<'p> {
        FrameBlock { n, frame: self.get(n) }
    }

    /// Whether a frame is out of use: a hole, offline, or not here yet.
    pub fn is_absent(&self, n: FrameNumber) -> bool {
        self.find(n).is_none_or(|frame| Frame::kind_of(frame.state.unseen()) == Kind::Absent)
    }

    /// Every managed frame: for audits of a quiet system.
    pub fn iter(&self) -> impl Iterator<Item = (FrameNumber, &'p Frame)> {
        // By section: the number of frames up to the end of the last one may be 2^32.
        self.0
            .firsts()
            .flat_map(|first| (0..SECTION).map(move |i| first.add(i)))
            .filter_map(|n| Some((n, self.find(n)?)))
            .filter(|(_, frame)| Frame::kind_of(frame.state.unseen()) != Kind::Absent)
    }
}

#[cold]
#[inline(never)]
fn unknown_frame(n: FrameNumber) -> ! {
    panic!("the core's own tables lead to {n:?}, which was never handed over: memory is corrupt")
}
