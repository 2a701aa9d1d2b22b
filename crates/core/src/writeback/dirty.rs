//! What is known of a page's content: whether it is newer than what keeps it.

use crate::Manager;
use crate::addr::FrameNumber;
use crate::handle::FileSlot;
use crate::kind::Kind;
use crate::memmap::flag;
use crate::platform::Platform;

impl<P: Platform> Manager<'_, P> {
    /// Whether a page that the caller holds, or has an entry of, is of a watched file.
    pub(crate) fn is_page_watched(&self, n: FrameNumber) -> bool {
        let (p, frame) = (self.platform(), self.memmap().get(n));
        frame.kind(p) == Kind::File && self.file_at(FileSlot(frame.owner.get(p))).is_watched()
    }

    /// An entry that leads to a page, may be dirty, and may be written through if it is `writable`, is taken out, or loses a right: what
    /// it knew of the page goes to the page. Under the lock of its table.
    ///
    /// One that may not be written through may still be dirty: a CPU began to write while it might. The page of a watched file
    /// was dirty by then, and perhaps has been written out since, with what that CPU wrote.
    pub(crate) fn note_dirty(&self, n: FrameNumber, writable: bool) {
        if writable || !self.is_page_watched(n) {
            self.memmap().get(n).set_flags(self.platform(), flag::DIRTY);
        }
    }
}
