//! References to pages: each mapping has one, and the last to go frees the page.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::FrameNumber;
use crate::kind::Kind;
#[cfg(all(debug_assertions, not(loom)))]
use crate::memmap::flag;
use crate::memmap::{Frame, FrameVec};
use crate::paging::Entry;
use crate::platform::Platform;

/// Pages whose mappings are gone and flushed: those that nobody holds any more are freed some at a time, each run of
/// one zone's under one hold of its lock.
#[must_use = "the last pages are not freed"]
pub(super) struct Gone {
    free: FrameVec,
}

impl Gone {
    pub const fn new() -> Gone {
        Gone { free: FrameVec::new() }
    }

    /// An entry is out of its table, and flushed: lets go of the page or of the swap slot that it named.
    pub fn add_entry<P: Platform>(&mut self, mm: &Manager<'_, P>, entry: Entry) {
        if entry.is_taken() {
            self.add(mm, entry.frame());
        } else if let Some(slot) = entry.swap_slot() {
            mm.swap_drop(slot);
        }
    }

    /// The same for the page of a mapping.
    pub fn add<P: Platform>(&mut self, mm: &Manager<'_, P>, n: FrameNumber) {
        mm.memmap().get(n).maps.fetch_sub(mm.platform(), 1, Ordering::Release);
        let slot = mm.slot_without_mapping(n);
        if !mm.are_last_refs(n, 1) {
            return mm.trim(n, slot);
        }
        if self.free.is_full() {
            mm.free_all(self.free.as_slice());
            self.free.clear();
        }
        self.free.push(n);
    }

    /// Frees the rest.
    pub fn free<P: Platform>(self, mm: &Manager<'_, P>) {
        mm.free_all(self.free.as_slice());
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// A mapping of the page is gone and flushed: drops its reference.
    pub(crate) fn drop_mapping(&self, n: FrameNumber) {
        self.memmap().get(n).maps.fetch_sub(self.platform(), 1, Ordering::Release);
        self.put_page(n);
    }

    /// Drops one reference to a page; the last one frees it.
    pub(crate) fn put_page(&self, n: FrameNumber) {
        self.put_refs(n, 1);
    }

    /// The same for so many at once.
    pub(super) fn put_refs(&self, n: FrameNumber, refs: u32) {
        let slot = self.slot_without_mapping(n);
        if self.are_last_refs(n, refs) {
            self.free_one(n);
        } else {
            self.trim(n, slot);
        }
    }

    /// The swap slot of a page that no entry leads to. By whoever holds the page.
    fn slot_without_mapping(&self, n: FrameNumber) -> Option<u32> {
        let slot = self.slot_of(n)?;
        (self.memmap().get(n).maps.load(self.platform(), Ordering::Relaxed) == 0).then_some(slot)
    }

    /// Others hold the page: if that is only the swap cache, in the slot that the page had a moment ago, and nobody wants it,
    /// it goes.
    fn trim(&self, n: FrameNumber, slot: Option<u32>) {
        if let Some(slot) = slot {
            self.swap_trim(n, slot);
        }
    }

    /// Drops so many references; whether the page is the caller's to free now.
    #[inline(always)]
    fn are_last_refs(&self, n: FrameNumber, refs: u32) -> bool {
        let p = self.platform();
        let frame: &Frame = self.memmap().get(n);
        // AcqRel: every other holder's last use comes before the free.
        let before = frame.refs.fetch_sub(p, refs, Ordering::AcqRel);
        debug_assert!(before >= refs, "more references are dropped than there are");
        if before == refs {
            #[cfg(all(debug_assertions, not(loom)))]
            assert!(frame.state.unseen() & flag::LOCKED == 0, "{n:?} goes, and somebody has locked it");
            self.leave_lists(n);
        }
        before == refs
    }

    /// A page that nobody holds any more leaves what leads to it: it is the caller's to free.
    #[inline(never)]
    fn leave_lists(&self, n: FrameNumber) {
        let p = self.platform();
        let frame = self.memmap().get(n);
        debug_assert!(matches!(frame.kind(p), Kind::Anon | Kind::File));
        self.unlist(n);
        if Frame::order_of(frame.state.get(p)) > 0 {
            self.free_deposit(n);
        }
    }
}
