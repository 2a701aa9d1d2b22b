//! Ranges whose pages stay in memory.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::charge::charge;
use crate::error::Error;
use crate::group::Payer;
use crate::handle::SpaceId;
use crate::paging::UserAccess;
use crate::platform::Platform;
use crate::profile::Scope;
use crate::resched::{Work, cost};
use crate::view::Space;
use crate::vma::{Vma, check_range};

/// How often reclaim may be faster than who brings a range.
const TRIES: u32 = 16;

impl<'p, P: Platform> Space<'_, 'p, P> {
    /// Brings all of a range, and has its pages stay in memory until it is unlocked or unmapped: reclaim takes none of them, nor does memory
    /// that goes offline. What may be written and is this space's own is this space's own when it returns. A fork does not hand the lock
    /// on; what is moved keeps it, and what a locked mapping gains comes when it is touched. How much a program may lock is the kernel's
    /// affair: [`Space::locked_pages`](crate::Space::locked_pages) says how much it has. May wait for memory and I/O. IPIs as
    /// [`Space::populate`](crate::Space::populate).
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`], [`Error::BadRange`], [`Error::NotMapped`], [`Error::MapCount`], [`Error::OutOfMemory`]; what
    /// [`Space::populate`](crate::Space::populate) says of a page that cannot be had. Then no more is locked than was.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// let keys = PageRange::new(PageNumber(0x400), 2);
    /// space.map(keys, Backing::Anonymous, Prot::ReadWrite)?;
    /// space.lock(keys)?;
    /// assert_eq!(space.residency(keys, &mut [0; 2])?, 2);
    /// space.unlock(keys)?;
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "mlock")]
    pub fn lock(&self, range: PageRange) -> Result<(), Error> {
        let Space { mm, id } = *self;
        let range = check_range(range)?;
        for _ in 0..TRIES {
            mm.bring_all(id, range)?;
            if mm.lock_what_is_there(id, range)? {
                return Ok(());
            }
        }
        // What comes goes again at once.
        Err(Error::OutOfMemory)
    }

    /// Has the pages of a range stay in memory that are there, and those that come when they are touched, as [`lock`](Self::lock) does, and brings none.
    /// May wait for memory, and for whoever takes or moves a page. No IPI, unless it reclaims.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`], [`Error::BadRange`], [`Error::NotMapped`]; [`Error::MapCount`] and [`Error::OutOfMemory`] when a VMA must be
    /// split.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// let heap = PageRange::new(PageNumber(0x400), 512);
    /// space.map(heap, Backing::Anonymous, Prot::ReadWrite)?;
    /// space.lock_on_fault(heap)?;
    /// assert_eq!((space.locked_pages()?, space.residency(heap, &mut [0; 512])?), (512, 0));
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "MLOCK_ONFAULT")]
    pub fn lock_on_fault(&self, range: PageRange) -> Result<(), Error> {
        let Space { mm, id } = *self;
        mm.root.locks.store(1, Ordering::Relaxed);
        self.mark_locked(range, true)?;
        mm.keep_what_is_there(id, range)
    }

    /// Lets reclaim take pages of a range again. May wait. No IPI.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`], [`Error::BadRange`], [`Error::NotMapped`]; [`Error::MapCount`] and [`Error::OutOfMemory`] when a VMA must be
    /// split.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// let keys = PageRange::new(PageNumber(0x400), 2);
    /// space.map(keys, Backing::Anonymous, Prot::ReadWrite)?;
    /// space.lock(keys)?;
    /// space.unlock(PageRange::new(keys.start, 1))?;
    /// assert_eq!(space.locked_pages()?, 1);
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "munlock")]
    pub fn unlock(&self, range: PageRange) -> Result<(), Error> {
        self.mark_locked(range, false)
    }

    /// Each VMA of a range is locked from now on, or is not, whatever is there of it.
    fn mark_locked(&self, range: PageRange, locked: bool) -> Result<(), Error> {
        let Space { mm, id } = *self;
        let _scope = charge(mm.platform(), Scope::Advise);
        let range = check_range(range)?;
        let (space, _alone) = mm.write_lock(id, range)?;
        let mut work = Work::begin(mm);
        mm.split_vmas(id, space, range, &mut work)?;
        mm.each_part(space, range, &mut work, |vma| vma.end_lock(mm.platform(), locked));
        mm.merge_vmas(space, range, &mut work);
        Ok(())
    }

    /// Pages of the ranges that are locked. May wait for a lock. No IPI.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// assert_eq!(space.locked_pages()?, 0);
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "locked_vm")]
    pub fn locked_pages(&self) -> Result<u64, Error> {
        let Space { mm, id } = *self;
        let p = mm.platform();
        let (space, _shared) = mm.read_lock(id)?;
        let (mut locked, mut work) = (0, Work::begin(mm));
        for (_, vma) in mm.vmas_of(space) {
            locked += if vma.is_locked(p) { vma.range(p).pages } else { 0 };
            work.did(cost::VMA);
        }
        Ok(locked)
    }
}

/// What must be possible with a locked page at once: a copy of what is shared would be another page.
fn access_of<P: Platform>(p: &P, vma: &Vma) -> UserAccess {
    let copies = vma.is_private(p) && vma.prot(p).permits(UserAccess::Write);
    if copies { UserAccess::Write } else { UserAccess::Read }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Populates each part of a range as its lock wants it. May wait.
    fn bring_all(&self, id: SpaceId, range: PageRange) -> Result<(), Error> {
        let mut at = range.start;
        while at < range.end() {
            let (vma, access) = self.to_bring(id, at)?;
            let part = PageRange::between(at, vma.end().min(range.end()));
            match self.space(id).populate(part, access) {
                // It could be written to a moment ago.
                Err(Error::NotPermitted(page)) if self.to_bring(id, page)?.1 != access => {}
                populated => {
                    populated?;
                    at = part.end();
                }
            }
        }
        Ok(())
    }

    /// The VMA of a page, and what must be possible with its pages.
    fn to_bring(&self, id: SpaceId, page: PageNumber) -> Result<(PageRange, UserAccess), Error> {
        let p = self.platform();
        let (space, _shared) = self.read_lock(id)?;
        let (_, vma) = self.find_vma(id, space, page).ok_or(Error::NotMapped(page))?;
        Ok((vma.range(p), access_of(p, vma)))
    }

    /// Locks a range if all of it is there; whether it was.
    ///
    /// ```text
    ///   this CPU                         reclaim
    ///   VMAs marked                      table locked
    ///   table locked                       marked?
    ///     is the page there?                 yes: it stays
    ///       no: not all is                   no: its entry goes
    /// ```
    ///
    /// Whoever has the table's lock first is seen by the other.
    fn lock_what_is_there(&self, id: SpaceId, range: PageRange) -> Result<bool, Error> {
        let _scope = charge(self.platform(), Scope::Advise);
        let p = self.platform();
        let mut work = Work::begin(self);
        let (space, _alone) = self.write_lock(id, range)?;
        self.split_vmas(id, space, range, &mut work)?;
        self.root.locks.store(1, Ordering::Relaxed);
        self.each_part(space, range, &mut work, |vma| vma.begin_lock(p));
        let mut there = 0;
        let mut at = range.start;
        while let Some((_, vma)) = self.vma_from(space, at).filter(|_| at < range.end()) {
            let (part, access) = (vma.range(p), access_of(p, vma));
            self.look_through(space, part, &mut work, |_, _, entry, pages| {
                there += if entry.permits(access) { pages } else { 0 };
                true
            });
            at = part.end();
        }
        let all = there == range.pages;
        self.each_part(space, range, &mut work, |vma| vma.end_lock(p, all));
        self.merge_vmas(space, range, &mut work);
        Ok(all)
    }

    /// Has what is there of a range that was just marked stay. Whoever takes a page looks for the mark with the table's lock held: this looks into each table with
    /// its lock, too, and so whoever missed the mark has come first, as [`lock_what_is_there`](Self::lock_what_is_there) draws it. A page that such a one has left in the
    /// swap cache, as one that moves does, is mapped again.
    fn keep_what_is_there(&self, id: SpaceId, range: PageRange) -> Result<(), Error> {
        let _scope = charge(self.platform(), Scope::Advise);
        let (mut rest, mut work) = (range, Work::begin(self));
        while rest.pages > 0 {
            let page = {
                let (space, _shared) = self.read_lock(id)?;
                self.look_through(space, rest, &mut work, |_, _, entry, _| {
                    entry.swap_slot().is_none_or(|slot| self.swap_is_out(slot))
                })
            };
            if page >= range.end() {
                break;
            }
            // One that has gone since, or was unmapped, was not there. One for which there is no memory goes.
            let _gone = self.swap_in_at(id, page, Payer::Within);
            work.did(cost::FAULT);
            rest = PageRange::between(PageNumber(page.0 + 1), range.end());
        }
        Ok(())
    }
}
