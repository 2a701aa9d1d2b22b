//! What is known of a page's content: whether it is newer than what keeps it; and how many pages of files are so, where somebody wants to know.
//!
//! A page that is *counted* is one of a file whose state says dirty. Whoever changes that bit of a file's page changes it by what is here, and
//! counts when the state that it found was another. A program that writes through a mapping is seen since no entry of a clean page lets it
//! (`file/watch.rs`).

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::FrameNumber;
use crate::handle::FileSlot;
use crate::kind::Kind;
use crate::memmap::{Frame, flag};
use crate::platform::{Platform, WaitKey};
use crate::sync::{Word32, Word64, full_fence};

/// Pages of files that are dirty. On a line of its own.
#[repr(C, align(64))]
pub(crate) struct Dirty {
    pub pages: Word64,
    /// The slot of the file behind the one that somebody who was at the limit wrote back last.
    pub next: Word32,
}

impl<P: Platform> Manager<'_, P> {
    /// Whether dirty pages of files are counted.
    #[inline(always)]
    pub(crate) fn counts_dirty(&self) -> bool {
        let config = self.config();
        config.dirty_limit | config.dirty_background | config.dirty_expire != 0
    }

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
            self.make_dirty(n);
        }
    }

    /// The content of a page that the caller holds, or has an entry of, is newer than what keeps it. Any context.
    pub(crate) fn make_dirty(&self, n: FrameNumber) {
        let before = self.memmap().get(n).state.fetch_or(self.platform(), flag::DIRTY, Ordering::AcqRel);
        self.count_dirty(n, before);
    }

    /// A page was made dirty that was in this state. Any context.
    pub(crate) fn count_dirty(&self, n: FrameNumber, before: u32) {
        if !self.counts_dirty() || before & flag::DIRTY != 0 || !Frame::is_kept_by_device(before) {
            return;
        }
        let p = self.platform();
        let since = &self.file_at(FileSlot(self.memmap().get(n).owner.get(p))).dirty_since;
        // Partner: the fence in `write_while`. Either this finds that nothing is known to be dirty, or whoever writes the file back finds the
        // page so.
        full_fence(p);
        if since.load(p, Ordering::Relaxed) == 0 {
            // Of two who are first either is right.
            since.store(p, p.now().0 | 1, Ordering::Relaxed);
        }
        let pages = self.root.dirty.pages.fetch_add(p, 1, Ordering::Relaxed);
        let background = self.config().dirty_background;
        if background > 0 && pages == background {
            p.wake(WaitKey::Flusher);
        }
    }

    /// A page was made clean that was in this state.
    pub(crate) fn count_clean(&self, before: u32) {
        if self.counts_dirty() && before & flag::DIRTY != 0 && Frame::is_kept_by_device(before) {
            self.root.dirty.pages.fetch_sub(self.platform(), 1, Ordering::Relaxed);
        }
    }

    /// Pages of files that are dirty now. Whoever makes one dirty counts it a moment later, and another may have made it clean by then, and counted that.
    pub(crate) fn count_of_dirty(&self) -> u64 {
        let pages = self.root.dirty.pages.load(self.platform(), Ordering::Relaxed);
        if pages > i64::MAX as u64 { 0 } else { pages }
    }
}
