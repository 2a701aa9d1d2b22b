//! What user pages hold: each frame of user data one number, which stands for all of its 4096 bytes.

use quietmm::addr::FrameNumber;

use crate::sim::Sim;

impl<const FAULTS: bool> Sim<'_, FAULTS> {
    /// What a frame holds; 0 outside the machine's memory.
    #[inline]
    pub(crate) fn content(&self, n: FrameNumber) -> u64 {
        self.contents.get(n.0 as usize).map_or(0, |content| content.get())
    }

    /// Fills a frame.
    #[inline]
    pub(crate) fn set_content(&self, n: FrameNumber, value: u64) {
        // A frame that holds it already is not written: the host has no memory for frames that were never
        // anything but 0.
        if let Some(content) = self.contents.get(n.0 as usize)
            && content.get() != value
        {
            content.set(value);
        }
    }
}
