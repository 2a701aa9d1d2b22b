//! Each page against what keeps it, and each entry against its VMA and its page.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{FrameNumber, LARGE_ORDER, LARGE_PAGES, PageNumber};
use crate::handle::SpaceId;
use crate::kind::Kind;
use crate::memmap::{Frame, PIN, flag};
use crate::paging::{Entry, Prot, UserAccess};
use crate::platform::Platform;
use crate::vma::Vma;

impl<P: Platform> Manager<'_, P> {
    /// The references to a frame that belong to no mapping and no cache, pins among them; or what is wrong with it.
    pub(super) fn audit_frame(&self, n: FrameNumber, frame: &Frame) -> Result<u64, &'static str> {
        let p = self.platform();
        let state = frame.state.load(p, Ordering::Acquire);
        // All flags but the order's bits.
        let flags = state & (flag::UNREAD | 0xff00);
        let cached = match Frame::kind_of(state) {
            Kind::File => u32::from(self.audit_cached(n)),
            Kind::Anon => u32::from(self.slot_of(n).is_some()),
            Kind::Free | Kind::Tail | Kind::Absent | Kind::Reserved => {
                // A tail with that flag is on a per-CPU list.
                let free = flags & !flag::LISTED == 0;
                return if free { Ok(0) } else { Err("a frame that is no page's, with flags of one") };
            }
            Kind::Kernel | Kind::Table => return Ok(0),
        };
        // Awaited it may be: who was about to wait, and found it free by then, leaves the mark.
        if state & (flag::LOCKED | flag::UNREAD) != 0 {
            return Err("a page that is locked, or was never read, and nobody works on it");
        }
        let held = frame.refs.get(p).checked_sub(frame.maps.get(p) + cached);
        let held = held.ok_or("a page with fewer references than mappings and caches")?;
        let own = Frame::kind_of(state) == Kind::Anon;
        if held >= PIN && own && (frame.maps.get(p) > 1 || self.slot_is_used(n)) {
            return Err("a page of a space's own is pinned, and others have it too");
        }
        Ok(u64::from(held))
    }

    /// What is wrong with an entry that is not empty.
    pub(super) fn audit_entry(&self, id: SpaceId, page: PageNumber, entry: Entry) -> Option<&'static str> {
        let p = self.platform();
        let space = self.space_at(id);
        if entry.is_taken() {
            return Some("an entry that an operation has taken and not let go of");
        }
        let generation = space.generation(p);
        if let Some(until) = entry.deferred_until(|| generation) {
            return (until > generation).then_some("an entry waits for a flush that never comes");
        }
        if let Some(until) = entry.parked_until() {
            return (until > self.epoch() + 1).then_some("an entry waits for a sweep that never comes");
        }
        let found = self.vma_from(space, page).filter(|(_, vma)| vma.range(p).contains(page));
        let Some((_, vma)) = found else { return Some("an entry where no VMA is") };
        if entry.is_swapped() {
            return (!vma.is_private(p)).then_some("a swap slot where a file is shared");
        }
        if !entry.is_mapped() {
            return Some("an entry that says nothing");
        }
        let writable = entry.permits(UserAccess::Write);
        let prot = vma.prot(p);
        // The right to write may come later, by a fault.
        let rights = match prot {
            Prot::None => entry.is_prot_none(),
            _ => entry.permits(UserAccess::Read) && !entry.exceeds(prot),
        };
        let rights = rights && entry.permits(UserAccess::Execute) == prot.permits(UserAccess::Execute);
        if !rights {
            return Some("an entry with other rights than its VMA");
        }
        self.audit_mapped(vma, page, entry, writable)
    }

    /// Whether an entry leads to the page that its VMA shows there.
    fn audit_mapped(
        &self,
        vma: &Vma,
        page: PageNumber,
        entry: Entry,
        writable: bool,
    ) -> Option<&'static str> {
        let p = self.platform();
        let Some(frame) = self.memmap().find(entry.frame()) else {
            return Some("an entry that leads to no frame");
        };
        let state = frame.state.get(p);
        let (large, file) = (entry.has(Entry::LARGE), frame.kind(p) == Kind::File);
        if large && file {
            return self.audit_large_file(vma, page, entry, writable);
        }
        let order = if large && !file { LARGE_ORDER } else { 0 };
        if Frame::order_of(state) != order {
            return Some("an entry of another size than its page");
        }
        match Frame::kind_of(state) {
            Kind::File => {
                let file = vma.file(p).is_some_and(|file| file.0 == frame.owner.get(p));
                let index = file && vma.file_page(p, page) == frame.index.get(p);
                if !index {
                    return Some("an entry leads to another page of a file than its VMA shows");
                }
                if writable && vma.is_private(p) {
                    return Some("a page of a file that is written to instead of a copy");
                }
                let unasked = writable && vma.is_watched(p) && state & flag::DIRTY == 0;
                unasked.then_some("a clean page of a watched file that can be written to")
            }
            Kind::Anon => {
                if !vma.is_private(p) {
                    return Some("a page of a space's own where a file is shared");
                }
                let only = frame.maps.get(p) == 1 && !self.is_swappable(entry.frame())
                    || frame.maps.get(p) == 1 && !self.slot_is_used(entry.frame());
                if writable && !only {
                    return Some("a page that others have too is written to instead of a copy");
                }
                let anon_vma = vma.anon_vma(p).map(|anon_vma| anon_vma.0);
                let known = !self.config().swap
                    || anon_vma == Some(frame.owner.get(p)) && frame.anon_index(p) == vma.anon_index(p, page);
                (!known).then_some("the reverse map does not find an entry")
            }
            _ => Some("an entry that leads to what is no page"),
        }
    }

    /// The same of a large entry of a file: each page that it shows, as if it had an entry of its own.
    fn audit_large_file(
        &self,
        vma: &Vma,
        page: PageNumber,
        entry: Entry,
        writable: bool,
    ) -> Option<&'static str> {
        if writable {
            return Some("a large entry of a file that can be written to");
        }
        let small = Entry(entry.0 & !Entry::LARGE);
        (0..LARGE_PAGES).find_map(|i| {
            let entry = small.leading_to(small.frame().add(i as u32));
            self.audit_mapped(vma, PageNumber(page.0 + i), entry, false)
        })
    }

    /// Whether the VMAs of a space lie in order, and are counted.
    pub(super) fn audit_vmas(&self, id: SpaceId) -> Option<&'static str> {
        let (p, space) = (self.platform(), self.space_at(id));
        let (mut end, mut count, mut good) = (PageNumber(0), 0, true);
        for (_, vma) in self.vmas_of(space) {
            let range = vma.range(p);
            good &= range.pages > 0 && range.start >= end && range.end() <= PageNumber::USER_END;
            good &= vma.space.get(p) == id.index();
            (end, count) = (range.end(), count + 1);
        }
        if !good {
            return Some("VMAs of a space that are not in order");
        }
        (count != space.vmas.map_count.get(p)).then_some("the VMAs of a space are not as many as it says")
    }
}
