//! A mapping becomes longer or shorter where it is, or moves and becomes longer or shorter, in one step that is done or not.

use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::charge::charge;
use crate::error::Error;
use crate::file::MAX_PAGES;
use crate::handle::SpaceId;
use crate::memmap::MAX_INDEX;
use crate::platform::Platform;
use crate::profile::Scope;
use crate::resched::Work;
use crate::view::Space;
use crate::vma::{SpaceState, Vma, check_mappable, check_range};

impl<P: Platform> Space<'_, '_, P> {
    /// Makes the mapping at `from`, all of which must be mapped, the one at `to`: from the same first page on it becomes longer or
    /// shorter; from another it moves, and becomes longer or shorter. What it gains goes on where the last page of `from` ends, in every
    /// respect, and comes when it is touched; what it loses is unmapped. May wait.
    ///
    /// What only grows costs no flush. What becomes shorter costs what [`Space::unmap`](crate::Space::unmap) does, what moves what
    /// [`Space::move_range`](crate::Space::move_range) does; both, two flushes.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`], [`Error::BadRange`] (also beyond page 2^40 of a file, and for
    /// anonymous memory that moved and grew until it is 2^36 pages from where it began), [`Error::NotMappable`], [`Error::NotMapped`],
    /// [`Error::Overlaps`]: something is mapped where it would grow or move to, which may be a part of `from`; [`Error::MapCount`],
    /// [`Error::OutOfMemory`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// let page = PageNumber(0x400);
    /// space.map(PageRange::new(page, 16), Backing::Anonymous, Prot::ReadWrite)?;
    /// space.remap(PageRange::new(page, 16), PageRange::new(page, 64))?; // in place
    /// space.fault(PageNumber(0x43f).addr(), UserAccess::Write)?;
    /// space.remap(PageRange::new(page, 64), PageRange::new(PageNumber(0x800), 128))?; // elsewhere, and longer
    /// assert!(space.lookup(PageNumber(0x83f))?.is_present());
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "mremap")]
    pub fn remap(&self, from: PageRange, to: PageRange) -> Result<(), Error> {
        let Space { mm, id } = *self;
        let _scope = charge(mm.platform(), Scope::MoveRange);
        let (from, to) = (check_range(from)?, check_mappable(to)?);
        let mut work = Work::begin(mm);
        let (space, _alone) = mm.write_lock(id, from.hull(to))?;
        let who = (id, space);
        if let Some(hole) = mm.first_unmapped(space, from, &mut work) {
            return Err(Error::NotMapped(hole));
        }
        let stays = PageRange::new(from.start, from.pages.min(to.pages));
        let goes = PageRange::between(stays.end(), from.end());
        let moved = PageRange::new(to.start, stays.pages);
        let gained = PageRange::between(moved.end(), to.end());
        if gained.pages > 0 {
            mm.check_growth(space, from, gained.pages)?;
        }
        if from.start == to.start {
            if let Some(clash) = mm.first_mapped(space, gained).filter(|_| gained.pages > 0) {
                return Err(Error::Overlaps(clash));
            }
            if goes.pages > 0 {
                return mm.unmap_alone(who, goes, &mut work);
            }
        } else {
            if let Some(clash) = mm.first_mapped(space, to) {
                return Err(Error::Overlaps(clash));
            }
            if goes.pages > 0 {
                // With borders at its ends nothing can stand in the way of its end.
                mm.split_vmas(id, space, goes, &mut work)?;
            }
            if let Err(error) = mm.move_alone(who, stays, to.start, &mut work) {
                mm.merge_vmas(space, from, &mut work);
                return Err(error);
            }
            if goes.pages > 0 {
                let gone = mm.unmap_alone(who, goes, &mut work);
                debug_assert_eq!(gone, Ok(()));
            }
        }
        if gained.pages > 0 {
            mm.grow(who, gained, &mut work);
        }
        Ok(())
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Whether what a range shows in the end could go on for so many pages: a file, and what its anonymous pages can say of their place.
    fn check_growth(&self, space: &SpaceState, from: PageRange, pages: u64) -> Result<(), Error> {
        let p = self.platform();
        let last = PageNumber(from.end().0 - 1);
        let goes_on = |vma: &Vma| {
            let file = vma.file(p).is_none() || vma.file_page(p, last) + pages < MAX_PAGES;
            file && (vma.anon_vma(p).is_none() || vma.anon_index(p, last) + pages < MAX_INDEX)
        };
        match self.vma_from(space, last) {
            Some((_, vma)) if !goes_on(vma) => Err(Error::BadRange),
            _ => Ok(()),
        }
    }

    /// Has the VMA that ends where `gained` begins, where nothing is mapped, show that too. By whoever holds the VMAs alone.
    fn grow(&self, (id, space): (SpaceId, &SpaceState), gained: PageRange, work: &mut Work<'_, 'p, P>) {
        let p = self.platform();
        self.settle(id, space, gained, work);
        let Some((handle, vma)) = self.vma_before(space, gained.start) else { return };
        let alone = self.lock_rmap(vma);
        self.trim_rmap(handle, PageRange::between(vma.range(p).start, gained.end()));
        drop(alone);
        self.merge_vmas_at(space, gained.end());
    }
}
