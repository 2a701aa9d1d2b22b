//! 2 MiB of a file behind one entry.
//!
//! The pages stay what they are: each has its count, its list, its lock, and may be shown by itself elsewhere. What is large is the entry of a space, where 512 pages
//! lie in one piece of memory in the order of the file. So it lets nobody write, and becomes small, with no flush and no memory (`paging/table/spare.rs`), as soon as
//! anything concerns a part of it: a write, an operation on the range, reclaim that takes one of the pages, a file that becomes shorter. While it is merely used it stays,
//! and aging looks at it as at others.
//!
//! Nobody works on a page while an entry comes that shows it: whoever makes the entry has all of them locked. A walk of the reverse map, which wants the page
//! locked too, comes before, and finds no entry that could be missed, or after, and finds this one (INV-2, INV-12).
//!
//! Pages come to lie in one piece by [`Advice::Collapse`](crate::paging::Advice::Collapse), which moves them there, whoever shows them.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{FrameNumber, LARGE_ORDER, LARGE_PAGES, NodeSet, PageNumber, PageRange};
use crate::error::Error;
use crate::event::{Event, FlushReason};
use crate::handle::{FileId, SpaceId};
use crate::kind::Kind;
use crate::memmap::{FrameVec, flag};
use crate::paging::table::{self, Leaf, Way};
use crate::paging::{Entry, Prot, UserAccess};
use crate::platform::Platform;
use crate::reclaim::{self, Destination, Piece};
use crate::resched::{Work, cost};
use crate::rmap;
use crate::rule::Rule;
use crate::space::range::Gather;
use crate::space::refs::Gone;
use crate::vma::{SpaceState, Vma};

/// How often others may show, or use, small pages in between.
const TRIES: u32 = 4;

/// Pages of a file that lie in one piece, held and locked: so many from the first one on.
struct Locked<'m, 'p, P: Platform> {
    mm: &'m Manager<'p, P>,
    first: FrameNumber,
    pages: u32,
}

impl<P: Platform> Drop for Locked<'_, '_, P> {
    fn drop(&mut self) {
        for n in (0..self.pages).map(|i| self.first.add(i)) {
            if !self.mm.platform().broken(Rule::LargeFileLocks) {
                self.mm.unlock_page(n);
            }
            self.mm.put_page(n);
        }
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Whether an entry leads to a page of a file, or to several.
    pub(crate) fn shows_file(&self, entry: Entry) -> bool {
        self.memmap().get(entry.frame()).kind(self.platform()) == Kind::File
    }

    /// What a large entry of a file says of one of its pages, as an entry of that page would; any other as it is.
    pub(super) fn part_of_file(&self, entry: Entry, page: PageNumber) -> Entry {
        let is_large = self.has_spares() && entry.has(Entry::LARGE) && entry.is_mapped();
        if is_large && self.shows_file(entry) {
            Entry(entry.0 & !Entry::LARGE).leading_to(entry.frame().add(page.index(0) as u32))
        } else {
            entry
        }
    }

    /// The pages of a file from `index` on, if all of a large entry's lie in one piece and nobody works on any.
    fn lock_in_piece(
        &self,
        file: FileId,
        index: u64,
        work: &mut Work<'_, 'p, P>,
    ) -> Option<Locked<'_, 'p, P>> {
        let p = self.platform();
        let mut locked = Locked { mm: self, first: FrameNumber::NONE, pages: 0 };
        while u64::from(locked.pages) < LARGE_PAGES {
            let mut held = FrameVec::new();
            let range = index + u64::from(locked.pages)..index + LARGE_PAGES;
            // The first one nearly always says whether it is worth looking on.
            let most = if locked.pages == 0 { 1 } else { reclaim::AT_ONCE };
            // Where one is missing those behind it come in its place, and the last of them lies elsewhere.
            self.ref_next_few_cached(file.slot, range, most, &mut held);
            let mut good = !held.as_slice().is_empty();
            for &n in held.as_slice() {
                if locked.pages == 0 {
                    locked.first = n;
                    good &= u64::from(n.0).is_multiple_of(LARGE_PAGES);
                }
                let frame = self.memmap().get(n);
                let lies = good && n == locked.first.add(locked.pages);
                if !(lies && (p.broken(Rule::LargeFileLocks) || frame.try_lock(p))) {
                    good = false;
                    self.put_page(n);
                    continue;
                }
                locked.pages += 1;
                // It may have left the cache since it was found there: by a hole, or because it could not be read.
                good = frame.state.load(p, Ordering::Acquire) & (flag::UNREAD | flag::CUT) == 0;
            }
            work.did(held.as_slice().len() as u32 * cost::FRAME);
            if !good {
                return None;
            }
        }
        Some(locked)
    }

    /// The file that a VMA shows in all of an aligned range, and its first page there, if that can lie behind one entry.
    fn large_part_of_file(&self, vma: &Vma, span: PageRange) -> Option<(FileId, u64)> {
        let p = self.platform();
        let file = self.file_id(vma.file(p)?);
        let fits = vma.range(p).covers(span) && vma.prot(p) != Prot::None;
        let index = fits.then(|| vma.file_page(p, span.start))?;
        index.is_multiple_of(LARGE_PAGES).then_some((file, index))
    }

    /// Shows pages that lie in one piece by one entry where nothing is, not even a table. Returns whether it did. By whoever shares the VMAs, at least.
    fn map_in_piece(
        &self,
        (id, space, vma): (SpaceId, &SpaceState, &Vma),
        (leaf, page): (Leaf, PageNumber),
        locked: &Locked<'_, 'p, P>,
        spare: Option<FrameNumber>,
    ) -> Result<bool, Error> {
        let (p, group) = (self.platform(), self.group_of(space));
        let make = || table::make_spare(self, group);
        let spare = spare.map_or_else(make, Ok)?;
        let ready = table::make_spares(self, leaf, group);
        let frames = || (0..locked.pages).map(|i| self.memmap().get(locked.first.add(i)));
        for frame in frames() {
            frame.maps.fetch_add(p, 1, Ordering::Relaxed);
            frame.refs.fetch_add(p, 1, Ordering::Relaxed);
        }
        let entry = Entry(Entry::page(locked.first, vma.prot(p).read_only()).0 | Entry::LARGE);
        let done = ready.is_ok() && leaf.lock(self).fill_large(page, entry, spare);
        if done {
            let pages = LARGE_PAGES as u32;
            self.emit(Event::Mapped { space: id, page, frame: locked.first, pages });
        } else {
            self.free_one(spare);
            for frame in frames() {
                frame.maps.fetch_sub(p, 1, Ordering::Relaxed);
                frame.refs.fetch_sub(p, 1, Ordering::Relaxed);
            }
        }
        ready.map(|()| done)
    }

    /// Puts the large entry of a file where `page` is missing, if its VMA wants one and the pages lie so. By whoever shares the VMA. Returns whether it did.
    pub(super) fn fault_large_file(
        &self,
        (id, space, vma): (SpaceId, &SpaceState, &Vma),
        page: PageNumber,
        access: UserAccess,
    ) -> Result<bool, Error> {
        let span = PageRange::new(page.large(), LARGE_PAGES);
        let Some((file, index)) = self.large_part_of_file(vma, span).filter(|_| access != UserAccess::Write)
        else {
            return Ok(false);
        };
        let root = space.root(self.platform());
        let leaf = table::find_or_make_large(self, root, page, &|| self.group_of(space))?;
        if leaf.peek(self, page) != Entry::NONE {
            return Ok(false);
        }
        let Some(locked) = self.lock_in_piece(file, index, &mut Work::begin(self)) else { return Ok(false) };
        // Without memory for the table beside it the page comes by itself.
        let shown = self.map_in_piece((id, space, vma), (leaf, span.start), &locked, None).unwrap_or(false);
        if shown {
            self.emit(Event::LargeFaulted);
        }
        Ok(shown)
    }

    /// Shows 2 MiB of a file by one entry; its pages come to lie in one piece for that. May wait.
    ///
    /// # Errors
    /// [`Error::NotCollapsible`], [`Error::OutOfMemory`], [`Error::NoSuchSpace`], [`Error::NotMapped`].
    pub(super) fn collapse_file(
        &self,
        id: SpaceId,
        span: PageRange,
        work: &mut Work<'_, 'p, P>,
    ) -> Result<(), Error> {
        self.bring_in(id, span)?;
        for _ in 0..TRIES {
            match self.try_collapse_file(id, span, work)? {
                None => return Ok(()),
                Some((file, index)) => self.make_piece(file, index, span, work)?,
            }
        }
        Err(Error::NotCollapsible(span.start))
    }

    /// The same where the pages lie in one piece already; if they do not, returns which those are.
    fn try_collapse_file(
        &self,
        id: SpaceId,
        span: PageRange,
        work: &mut Work<'_, 'p, P>,
    ) -> Result<Option<(FileId, u64)>, Error> {
        let p = self.platform();
        let (space, _alone) = self.write_lock(id, span)?;
        let stays = Error::NotCollapsible(span.start);
        let (_, vma) = self.find_vma(id, space, span.start).ok_or(Error::NotMapped(span.start))?;
        // Pages of a locked range are kept by its entries: they may not go, not even for a moment.
        let part = self.large_part_of_file(vma, span).filter(|_| !self.stays(vma));
        let (file, index) = part.ok_or(stays)?;
        let leaf = table::find_or_make_large(self, space.root(p), span.start, &|| self.group_of(space))?;
        let spare = match table::find(self, space.root(p), span.start) {
            Way::Large(_) => return Ok(None),
            Way::Gap(_) => None,
            Way::Small(small) => Some(self.clear_for_file((id, space, vma), small, span, work)?),
        };
        let Some(locked) = self.lock_in_piece(file, index, work) else {
            spare.into_iter().for_each(|spare| self.free_one(spare));
            return Ok(Some((file, index)));
        };
        if !self.map_in_piece((id, space, vma), (leaf, span.start), &locked, spare)? {
            return Err(stays);
        }
        self.emit(Event::LargeCollapsed);
        Ok(None)
    }

    /// Takes the small entries of an aligned range of a file out with their table, flushes, and lets go of the pages. The table, empty, is the caller's. By whoever
    /// holds the VMAs alone.
    fn clear_for_file(
        &self,
        (id, space, vma): (SpaceId, &'p SpaceState, &Vma),
        small: Leaf,
        span: PageRange,
        work: &mut Work<'_, 'p, P>,
    ) -> Result<FrameNumber, Error> {
        let p = self.platform();
        // INV-9, INV-12: with it no walk is in the table.
        let alone = (!p.broken(Rule::CollapseIsAlone)).then(|| self.lock_rmap(vma));
        let mut own = None;
        self.each_small(small, span, |_, page, entry| {
            // INV-15.
            let kept = |n| rmap::is_kept(self, n);
            let stays = entry.is_mapped() && (!self.shows_file(entry) || kept(entry.frame()));
            own = own.or((entry.is_swapped() || stays).then_some(page));
        });
        // A copy of the space's own, or a page that a device uses.
        if let Some(page) = own {
            return Err(Error::NotCollapsible(page));
        }
        let mut gather = Gather::begin(p, space);
        self.take_small((id, space), small, span);
        drop(alone);
        gather.add_table(span);
        gather.flush(self, id, FlushReason::Collapse, Rule::FlushBeforeCollapse).done();
        work.did(LARGE_PAGES as u32 * cost::ENTRY);
        let mut gone = Gone::new();
        for page in (span.start.0..span.end().0).map(PageNumber) {
            gone.add_entry(self, small.peek(self, page));
            work.did(cost::FRAME);
        }
        gone.free(self);
        table::empty(self, small.frame());
        Ok(small.frame())
    }

    /// Moves the pages of a file from `index` on, as many as a large entry shows, into one piece of memory, whoever shows them: those that nobody holds or works on.
    ///
    /// # Errors
    /// [`Error::NotCollapsible`] if not all are in memory; [`Error::OutOfMemory`] without a large frame to spare on this CPU's node.
    fn make_piece(
        &self,
        id: FileId,
        index: u64,
        span: PageRange,
        work: &mut Work<'_, 'p, P>,
    ) -> Result<(), Error> {
        let gone = Error::NotCollapsible(span.start);
        // The file does not end meanwhile.
        let _shared = self.find_file(id).map_err(|_| gone)?.io.read(self);
        self.find_file(id).map_err(|_| gone)?;
        let all = index..index + LARGE_PAGES;
        if let Some(missing) = self.first_not_cached(id, all.clone(), work) {
            return Err(Error::NotCollapsible(PageNumber(span.start.0 + missing - index)));
        }
        let here = NodeSet::of(&[self.node_here()]).unwrap_or_default();
        let first = self.alloc_spare(LARGE_ORDER, Kind::File, here).ok_or(Error::OutOfMemory)?;
        let piece = Piece::new(self, first, (id.slot, index));
        self.drain_lru_batch();
        for last in [false, true] {
            let (mut at, mut unlisted) = (all.start, 0);
            while at < all.end {
                let mut held = FrameVec::new();
                at = self.ref_next_few_cached(id.slot, at..all.end, reclaim::AT_ONCE, &mut held);
                if held.as_slice().is_empty() {
                    break;
                }
                unlisted += reclaim::migrate(self, held.as_slice(), Destination::Piece(&piece)).1;
                work.did(held.as_slice().len() as u32 * cost::RECLAIM);
            }
            if unlisted == 0 || last {
                break;
            }
            self.drain_lru_batches();
        }
        Ok(())
    }

    /// The first page of a range of a file that is not in memory.
    fn first_not_cached(
        &self,
        id: FileId,
        range: core::ops::Range<u64>,
        work: &mut Work<'_, 'p, P>,
    ) -> Option<u64> {
        let mut at = range.start;
        while at < range.end {
            let mut held = FrameVec::new();
            self.ref_next_few_cached(id.slot, at..range.end, reclaim::AT_ONCE, &mut held);
            let before = at;
            for &n in held.as_slice() {
                at += u64::from(self.memmap().get(n).index.get(self.platform()) == at);
                self.put_page(n);
            }
            if at != before + held.as_slice().len() as u64 || held.as_slice().is_empty() {
                return Some(at);
            }
            work.did(held.as_slice().len() as u32 * cost::FRAME);
        }
        None
    }
}
