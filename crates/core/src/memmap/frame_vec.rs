//! A few frames on the stack.

use crate::addr::FrameNumber;
use crate::config::MAX_LRU_BATCH;

/// As many as fit: those of a scan, or of an LRU batch.
pub(crate) struct FrameVec {
    frames: [FrameNumber; FrameVec::MOST],
    len: usize,
}

impl FrameVec {
    /// The most that fit.
    pub const MOST: usize = MAX_LRU_BATCH;

    pub const fn new() -> Self {
        FrameVec { frames: [FrameNumber::NONE; FrameVec::MOST], len: 0 }
    }

    pub fn push(&mut self, frame: FrameNumber) {
        self.frames[self.len] = frame;
        self.len += 1;
    }

    /// Keeps those of which this is true, in their order; asked of each once, the first one first.
    pub fn retain(&mut self, mut keeps: impl FnMut(FrameNumber) -> bool) {
        let (mut kept, all) = (0, self.len);
        for nth in 0..all {
            let frame = self.frames[nth];
            if keeps(frame) {
                self.frames[kept] = frame;
                kept += 1;
            }
        }
        self.len = kept;
    }

    pub fn is_full(&self) -> bool {
        self.len == FrameVec::MOST
    }

    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The other way round.
    pub fn reverse(&mut self) {
        self.frames[..self.len].reverse();
    }

    pub fn as_slice(&self) -> &[FrameNumber] {
        &self.frames[..self.len]
    }
}
