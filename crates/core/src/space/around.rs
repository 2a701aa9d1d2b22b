//! Fault-around: a fault on a page of a file that is read or executed maps those beside it too that are in the file's cache.
//!
//! What it maps nobody has asked for. So it maps no page that somebody works on, and none that is dirty, waits for nothing, and gives no right to
//! write: the first write is a fault, as ever. Nor does an entry say that its page was used, where the hardware will say that: to
//! reclaim it looks as one that was not used since the last look, and it has the stamp of such a one (INV-13).

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{FrameNumber, PageNumber, PageRange};
use crate::event::Event;
use crate::handle::FileSlot;
use crate::memmap::{FrameVec, flag};
use crate::paging::{Entry, UserAccess};
use crate::platform::Platform;
use crate::rule::Rule;
use crate::space::fault::Fault;

impl<P: Platform> Manager<'_, P> {
    /// Maps what lies around a page that a fault has just mapped: in an aligned window, and in its VMA. By whoever shares the VMAs, with no
    /// other lock held.
    pub(super) fn map_around(&self, fault: &Fault<'_>) {
        let (p, vma) = (self.platform(), fault.vma);
        let around = u64::from(self.config().fault_around);
        if around == 1 || fault.access == UserAccess::Write {
            return;
        }
        let Some(file) = vma.file(p) else { return };
        // In one table: that has as many entries as the largest window, or a multiple of it.
        let window = PageRange::new(PageNumber(fault.page.0 / around * around), around);
        let Some(window) = window.intersect(vma.range(p)) else { return };
        self.map_window(fault, (file, window), around as usize);
    }

    /// The same in this window of this file. Not inlined: what it has on the stack is not there where a fault goes deeper.
    #[inline(never)]
    fn map_window(&self, fault: &Fault<'_>, (file, window): (FileSlot, PageRange), most: usize) {
        let p = self.platform();
        let first = fault.vma.file_page(p, window.start);
        let (mut held, mut left) = (FrameVec::new(), FrameVec::new());
        self.ref_next_few_cached(file, first..first + window.pages, most, &mut held);
        // INV-12: whoever cuts a page off marks it before looking for its entries, and this looks after the fence of `page_for`: that one finds the entry, or
        // this the mark.
        let locked = fault.leaf.lock(self);
        for &n in held.as_slice() {
            let frame = self.memmap().get(n);
            let page = PageNumber(window.start.0 + (frame.index.get(p) - first));
            // An entry that keeps anything, of a deferred flush say, is left to whoever wants its page.
            if locked.read(page) != Entry::NONE || !self.is_at_rest(n) {
                left.push(n);
                continue;
            }
            frame.maps.fetch_add(p, 1, Ordering::Relaxed);
            let entry = Entry::page(n, fault.prot.read_only());
            if p.architecture().sets_accessed() {
                locked.write_idle(page, entry);
            } else {
                locked.write(page, entry);
            }
            self.emit(Event::Mapped { space: fault.id, page, frame: n, pages: 1 });
            self.emit(Event::MappedAround);
        }
        drop(locked);
        // The others' references are their mappings' now.
        left.as_slice().iter().for_each(|&n| self.put_page(n));
    }

    /// Whether nobody works on a page of a file, and it is clean.
    fn is_at_rest(&self, n: FrameNumber) -> bool {
        let p = self.platform();
        let state = self.memmap().get(n).state.load(p, Ordering::Acquire);
        state & (flag::LOCKED | flag::UNREAD | flag::CUT | flag::DIRTY) == 0
            || p.broken(Rule::AroundLooksAtPages)
    }
}
