//! Which pages of a range are in memory, and what programs say of that: that they want them now or soon, not soon, or not at all for a while.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::charge::charge;
use crate::error::Error;
use crate::group::Payer;
use crate::handle::{FileId, SpaceId};
use crate::kind::Kind;
use crate::memmap::{Frame, FrameVec};
use crate::paging::table::{self, LockedLeaf, Way};
use crate::paging::{Entry, UserAccess};
use crate::platform::Platform;
use crate::profile::Scope;
use crate::reclaim;
use crate::resched::{Work, cost};
use crate::view::Space;
use crate::vma::{SpaceState, check_range};

impl<P: Platform> Space<'_, '_, P> {
    /// Has every page of a range in memory, so that this access finds it there: what is missing comes by faults. May wait for memory and
    /// I/O. Reclaim may take pages again. IPIs as [`Space::fault`](crate::Space::fault) for each page that is missing.
    ///
    /// # Errors
    /// What [`Space::fault`](crate::Space::fault) says of the first page that cannot be had: those before it are there.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// let heap = PageRange::new(PageNumber(0x400), 16);
    /// space.map(heap, Backing::Anonymous, Prot::ReadWrite)?;
    /// space.populate(heap, UserAccess::Write)?;
    /// assert_eq!(space.residency(heap, &mut [0; 16])?, 16);
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "MADV_POPULATE_READ")]
    #[doc(alias = "MADV_POPULATE_WRITE")]
    pub fn populate(&self, range: PageRange, access: UserAccess) -> Result<(), Error> {
        let Space { mm, id } = *self;
        let range = check_range(range)?;
        let (mut rest, mut work) = (range, Work::begin(mm));
        while let Some(page) = mm.first_not_ready(id, rest, access, &mut work)? {
            self.fault(page.addr(), access)?;
            work.did(cost::FAULT);
            // It may be gone again by now: whoever wants more than that locks it.
            rest = PageRange::between(PageNumber(page.0 + 1), range.end());
        }
        Ok(())
    }

    /// Says for each page of a range whether it is in memory: 1 if an entry leads to it, or it is in the cache of its file or of swap,
    /// else 0; returns how many are. A moment's truth. May wait for a lock. No IPI.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`]; [`Error::BadRange`], also if `into` has not one byte for each page; [`Error::NotMapped`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// let heap = PageRange::new(PageNumber(0x400), 4);
    /// space.map(heap, Backing::Anonymous, Prot::ReadWrite)?;
    /// space.fault(PageNumber(0x402).addr(), UserAccess::Write)?;
    /// let mut pages = [9; 4];
    /// assert_eq!(space.residency(heap, &mut pages)?, 1);
    /// assert_eq!(pages, [0, 0, 1, 0]);
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "mincore")]
    pub fn residency(&self, range: PageRange, into: &mut [u8]) -> Result<u64, Error> {
        let Space { mm, id } = *self;
        let _scope = charge(mm.platform(), Scope::Advise);
        let p = mm.platform();
        let range = check_range(range)?;
        if into.len() as u64 != range.pages {
            return Err(Error::BadRange);
        }
        let mut work = Work::begin(mm);
        let (space, _shared) = mm.read_lock(id)?;
        if let Some(hole) = mm.first_unmapped(space, range, &mut work) {
            return Err(Error::NotMapped(hole));
        }
        into.fill(0);
        // For a while: its content is nowhere but in swap.
        const OUT: u8 = 2;
        let at = |page: PageNumber| (page.0 - range.start.0) as usize;
        mm.look_through(space, range, &mut work, |_, page, entry, pages| {
            let out = entry.swap_slot().is_some_and(|slot| mm.swap_is_out(slot));
            let there = entry.is_mapped() || entry.is_swapped();
            into[at(page)..][..pages as usize].fill(if out { OUT } else { there.into() });
            true
        });
        for (_, vma) in mm.vmas_from(space, range.start) {
            let Some(part) = vma.range(p).intersect(range) else { break };
            let Some(file) = vma.file(p) else { continue };
            for page in (part.start.0..part.end().0).map(PageNumber) {
                let there = &mut into[at(page)];
                // A private page in swap is no page of the file.
                if *there == 0 {
                    *there = u8::from(mm.is_cached(file, vma.file_page(p, page)));
                    work.did(cost::TABLE);
                }
                work.did(1);
            }
        }
        into.iter_mut().filter(|there| **there == OUT).for_each(|there| *there = 0);
        Ok(into.iter().map(|&there| u64::from(there)).sum())
    }
}

/// Where a part ends, and the pages of a file that it shows: from which one on, and how many.
type Part = (PageNumber, Option<(FileId, u64, u64)>);

/// What programs say of pages that are in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unwanted {
    /// They are the next to go.
    Soon,
    /// They go now.
    Now,
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Reads what a range shows and is not in memory: of files as much as costs no reclaim, of swap all of it. May wait.
    pub(super) fn bring_in(&self, id: SpaceId, range: PageRange) -> Result<(), Error> {
        let mut work = Work::begin(self);
        self.check_mapped(id, range, &mut work)?;
        let mut at = range.start;
        while let Some((page, file)) = self.next_part(id, PageRange::between(at, range.end()))? {
            at = page;
            if let Some((file, first, pages)) = file {
                // It may have ended meanwhile.
                let _ = self.file(file).read_ahead(first, pages);
            }
        }
        let mut rest = range;
        while let Some(page) = self.first_in_swap(id, rest, &mut work)? {
            match self.swap_in_at(id, page, Payer::Within) {
                // Nobody has asked for it yet.
                Ok(()) | Err(Error::SwapDevice(_) | Error::NotMapped(_)) => {}
                Err(error) => return Err(error),
            }
            work.did(cost::FAULT);
            rest = PageRange::between(PageNumber(page.0 + 1), range.end());
        }
        Ok(())
    }

    /// Has reclaim take those pages of a range that are in memory and no other space's, now or soon. May wait.
    pub(super) fn let_pages_go(&self, id: SpaceId, range: PageRange, when: Unwanted) -> Result<(), Error> {
        let mut work = Work::begin(self);
        self.check_mapped(id, range, &mut work)?;
        // Those on their way to a list are on none.
        self.drain_lru_batch();
        let (mut rest, mut again) = (range, false);
        while rest.pages > 0 {
            let mut held = FrameVec::new();
            let (next, large) = self.ref_own(id, rest, &mut held, &mut work)?;
            match when {
                Unwanted::Soon => reclaim::deactivate(self, held.as_slice()),
                Unwanted::Now => reclaim::page_out(self, held.as_slice()),
            }
            work.did(held.as_slice().len() as u32 * cost::RECLAIM);
            // A large page has become small ones, and those are what goes: the last of them are on their way to a list.
            again = large && when == Unwanted::Now && !again;
            if again {
                self.drain_lru_batch();
            } else {
                rest = PageRange::between(next, range.end());
            }
        }
        Ok(())
    }

    /// Takes references to pages of a range that no other space has, as many as one batch takes; returns behind which
    /// page this stopped, and whether there is a large one among them.
    fn ref_own(
        &self,
        id: SpaceId,
        range: PageRange,
        held: &mut FrameVec,
        work: &mut Work<'_, 'p, P>,
    ) -> Result<(PageNumber, bool), Error> {
        let p = self.platform();
        let most = self.config().scan_batch as usize;
        let (space, _shared) = self.read_lock(id)?;
        let mut large = false;
        let next = self.look_through(space, range, work, |_, _, entry, _| {
            if held.as_slice().len() == most {
                return false;
            }
            let frame = entry.is_mapped().then(|| self.memmap().get(entry.frame()));
            let own =
                |frame: &&Frame| matches!(frame.kind(p), Kind::File | Kind::Anon) && frame.maps.get(p) == 1;
            if let Some(frame) = frame.filter(own) {
                // The mapping's reference keeps it while its table's lock is held.
                frame.refs.fetch_add(p, 1, Ordering::Relaxed);
                held.push(entry.frame());
                large |= entry.has(Entry::LARGE);
            }
            true
        });
        Ok((next, large))
    }

    pub(super) fn check_mapped(
        &self,
        id: SpaceId,
        range: PageRange,
        work: &mut Work<'_, 'p, P>,
    ) -> Result<(), Error> {
        let (space, _shared) = self.read_lock(id)?;
        self.first_unmapped(space, range, work).map_or(Ok(()), |hole| Err(Error::NotMapped(hole)))
    }

    /// The next part of a range that one VMA shows: where it ends, and the pages of a file that it shows.
    fn next_part(&self, id: SpaceId, range: PageRange) -> Result<Option<Part>, Error> {
        let p = self.platform();
        let (space, _shared) = self.read_lock(id)?;
        let found = self.vma_from(space, range.start).and_then(|(_, vma)| {
            let part = vma.range(p).intersect(range)?;
            let file = vma.file(p).map(|file| (self.file_id(file), vma.file_page(p, part.start), part.pages));
            Some((part.end(), file))
        });
        Ok(found)
    }

    /// The first page of a range that is in swap.
    pub(super) fn first_in_swap(
        &self,
        id: SpaceId,
        range: PageRange,
        work: &mut Work<'_, 'p, P>,
    ) -> Result<Option<PageNumber>, Error> {
        let (space, _shared) = self.read_lock(id)?;
        let page = self.look_through(space, range, work, |_, _, entry, _| entry.swap_slot().is_none());
        Ok((page < range.end()).then_some(page))
    }

    /// The first page of a range that this access would not find.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`]; [`Error::NotMapped`] of a page where nothing is mapped: no stack grows to there, since nobody has touched it.
    fn first_not_ready(
        &self,
        id: SpaceId,
        range: PageRange,
        access: UserAccess,
        work: &mut Work<'_, 'p, P>,
    ) -> Result<Option<PageNumber>, Error> {
        let (space, _shared) = self.read_lock(id)?;
        let missing = |page| self.find_vma(id, space, page).map(|_| Some(page)).ok_or(Error::NotMapped(page));
        let mut page = range.start;
        while page < range.end() {
            let leaf = match table::find(self, space.root(self.platform()), page) {
                Way::Gap(_) => return missing(page),
                Way::Small(leaf) | Way::Large(leaf) => leaf,
            };
            let entry = leaf.peek(self, page);
            work.did(1);
            if leaf.is_large() && entry.is_present() && !entry.has(Entry::LARGE) {
                // It has become small meanwhile: look in the table to which this leads.
                continue;
            }
            if !entry.permits(access) {
                return missing(page);
            }
            page = if leaf.is_large() { leaf.end(page) } else { PageNumber(page.0 + 1) };
        }
        Ok(None)
    }

    /// Shows `each` the entries of a range that are not in a gap, with how many of its pages each covers, and of a large entry of a file what it says of each page, until it wants no more; returns the
    /// page at which it said so, or the end. A large page may lie across an end. By whoever shares the VMAs.
    pub(super) fn look_through(
        &self,
        space: &SpaceState,
        range: PageRange,
        work: &mut Work<'_, 'p, P>,
        mut each: impl FnMut(&LockedLeaf<'_, 'p, P>, PageNumber, Entry, u64) -> bool,
    ) -> PageNumber {
        let mut page = range.start;
        while page < range.end() {
            work.did(cost::TABLE);
            let leaf = match table::find(self, space.root(self.platform()), page) {
                Way::Gap(next) => {
                    page = next.min(range.end());
                    continue;
                }
                Way::Small(leaf) | Way::Large(leaf) => leaf,
            };
            let end = leaf.end(page).min(range.end());
            let locked = leaf.lock(self);
            if locked.leads_on(page) {
                continue;
            }
            while page < end {
                let entry = self.part_of_file(locked.read(page), page);
                let pages = if leaf.is_large() && entry.has(Entry::LARGE) { end.0 - page.0 } else { 1 };
                if !each(&locked, page, entry, pages) {
                    return page;
                }
                page = PageNumber(page.0 + pages);
                work.count(1);
            }
        }
        page
    }
}
