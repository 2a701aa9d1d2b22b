//! Tables of small pages that are ready for large entries of files.
//!
//! A large entry of a file shows pages each of which has its own count, list and lock, and may be shown elsewhere too. Reclaim, and whoever cuts the file, takes
//! one of them out when no frame is free. So the table that makes the entry small is there from the start: its *spare*. Where the spares of a table of large
//! entries are stands in a table beside it, which its frame names (`maps`: a table has no mappings).
//!
//! Until it is wanted nobody can walk a spare. It keeps what the one accessed bit of the large entry cannot: aging looks at 512 pages, each at another time, and
//! whoever clears the bit tells the others that it was set (`take_young`).

use core::sync::atomic::Ordering;

use super::slot::slot;
use super::{LARGE_LEVEL, Leaf, LockedLeaf, make_table};
use crate::Manager;
use crate::addr::{FrameNumber, LARGE_PAGES, PageNumber};
use crate::error::Error;
use crate::event::Event;
use crate::frame::AllocFrom;
use crate::handle::GroupSlot;
use crate::paging::{Entry, Prot};
use crate::platform::Platform;

/// What nobody reclaims for: whoever wants a large entry can do without.
const SPARE: AllocFrom = AllocFrom { node: None, may_reclaim: false };

/// A table that is to become the spare of a large entry. The caller's until then.
pub(crate) fn make_spare<P: Platform>(mm: &Manager<'_, P>, group: GroupSlot) -> Result<FrameNumber, Error> {
    make_table(mm, SPARE, group)
}

/// Sees to it that there is a table beside this one in which its spares are.
pub(crate) fn make_spares<P: Platform>(
    mm: &Manager<'_, P>,
    leaf: Leaf,
    group: GroupSlot,
) -> Result<(), Error> {
    let (p, place) = (mm.platform(), &mm.memmap().get(leaf.table).maps);
    if place.load(p, Ordering::Acquire) == 0 {
        let new = make_table(mm, SPARE, group)?;
        // Release: it is zeroed.
        match place.replace(p, 0, new.0, Ordering::AcqRel) {
            Ok(_) => _ = mm.root.spares.fetch_add(1, Ordering::Relaxed),
            Err(_) => mm.free_one(new),
        }
    }
    Ok(())
}

/// The table of spares beside a table of large entries, if there is one.
fn spares_of<P: Platform>(mm: &Manager<'_, P>, table: FrameNumber) -> Option<FrameNumber> {
    let found = || mm.memmap().get(table).maps.load(mm.platform(), Ordering::Acquire);
    Some(FrameNumber(if mm.has_spares() { found() } else { 0 })).filter(|&spares| spares != FrameNumber(0))
}

/// How many tables there are beside this one, and its spares. By whoever shares the VMAs, at least.
pub(super) fn count_spares<P: Platform>(mm: &Manager<'_, P>, table: FrameNumber) -> u64 {
    spares_of(mm, table).map_or(0, |spares| {
        let ready = |&i: &usize| slot(mm, (spares, LARGE_LEVEL), i).load() != Entry::NONE;
        1 + (0..LARGE_PAGES as usize).filter(ready).count() as u64
    })
}

/// A table of large entries is about to be freed: so is what lies beside it. None of its entries has a spare any more.
pub(super) fn free_spares<P: Platform>(mm: &Manager<'_, P>, table: FrameNumber) {
    if let Some(spares) = spares_of(mm, table) {
        debug_assert_eq!(count_spares(mm, table), 1, "a spare table is lost");
        mm.memmap().get(table).maps.set(mm.platform(), 0);
        mm.root.spares.fetch_sub(1, Ordering::Relaxed);
        mm.free_one(spares);
    }
}

impl<P: Platform> Manager<'_, P> {
    /// Whether there may be a large entry of a file: no access that a machine sees.
    pub(crate) fn has_spares(&self) -> bool {
        self.root.spares.load(Ordering::Relaxed) != 0
    }
}

impl<'p, P: Platform> LockedLeaf<'_, 'p, P> {
    /// Makes 2 MiB of a file present where nothing is, not even a table. The spare, empty, is this entry's from then on.
    pub fn fill_large(&self, page: PageNumber, entry: Entry, spare: FrameNumber) -> bool {
        let Some(spares) = spares_of(self.mm, self.leaf.table) else { return false };
        let filled = self.fill_empty(page, entry);
        if filled {
            slot(self.mm, (spares, LARGE_LEVEL), page.index(LARGE_LEVEL)).set(Entry::table(spare));
        }
        filled
    }

    /// Whether a way that ended at a large entry leads on by now: to small ones, of a file, which others may have made of it.
    pub fn leads_on(&self, page: PageNumber) -> bool {
        let entry = || self.read(page);
        self.is_large() && self.mm.has_spares() && entry().is_present() && !entry().has(Entry::LARGE)
    }

    /// The spare of a large entry.
    fn spare(&self, page: PageNumber) -> Option<FrameNumber> {
        let spares = spares_of(self.mm, self.leaf.table)?;
        let entry = slot(self.mm, (spares, LARGE_LEVEL), page.index(LARGE_LEVEL)).get();
        entry.is_present().then(|| entry.frame())
    }

    /// Makes the large entry of a file small: its spare takes its place. The same frames with the same rights, so it owes no flush, as `space/large.rs` says.
    /// Returns whether it was one.
    pub fn split_file(&self, page: PageNumber) -> bool {
        let Some(spare) = self.spare(page).filter(|_| self.is_large()) else { return false };
        let fill = |large: Entry| {
            for i in (0..LARGE_PAGES as usize).rev() {
                let young = slot(self.mm, (spare, 0), i).get().0 & Entry::ACCESSED;
                let entry = Entry(large.0 & !Entry::LARGE | young).leading_to(large.frame().add(i as u32));
                Leaf::prepare(self.mm, spare, i, entry);
            }
        };
        let (mm, large) = (self.mm, self.read(page));
        fill(large);
        if let Some(spares) = spares_of(mm, self.leaf.table) {
            slot(mm, (spares, LARGE_LEVEL), page.index(LARGE_LEVEL)).set(Entry::NONE);
        }
        self.put_table(page, large, spare, fill);
        mm.emit(Event::LargeSplit);
        true
    }

    /// Whether a page of a file that a large entry shows was used since this was asked of it: by that entry's accessed bit, when somebody looked at another page and
    /// cleared it.
    pub fn take_young(&self, page: PageNumber) -> bool {
        self.spare(page).is_some_and(|spare| {
            let slot = slot(self.mm, (spare, 0), page.index(0));
            let young = slot.get().has(Entry::ACCESSED);
            if young {
                slot.set(Entry::NONE);
            }
            young
        })
    }

    /// The accessed bit of a large entry of a file is cleared: all its pages but this were used, for whoever looks at them next.
    pub fn make_young(&self, page: PageNumber) {
        if let Some(spare) = self.spare(page) {
            for i in (0..LARGE_PAGES as usize).filter(|&i| i != page.index(0)) {
                slot(self.mm, (spare, 0), i).set(Entry::page(FrameNumber(0), Prot::Read));
            }
        }
    }
}
