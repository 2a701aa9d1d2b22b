//! Mappings that grow downwards when they are touched below their first page: stacks.
//!
//! A fault where nothing is mapped asks for it, with the VMAs let go, and is tried again. Who never faults there pays nothing.

use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::charge::charge;
use crate::error::Error;
use crate::handle::SpaceId;
use crate::paging::Prot;
use crate::platform::Platform;
use crate::profile::Scope;
use crate::resched::Work;
use crate::rule::Rule;
use crate::view::Space;
use crate::vma::{SpaceState, Vma};

impl<P: Platform> Space<'_, '_, P> {
    /// Pages between a mapping that grows and the one below it, unless that one lets nobody use it: 1 MiB, as in Linux (`stack_guard_gap`).
    #[doc(alias = "stack_guard_gap")]
    pub const STACK_GAP: u64 = 256;

    /// Has the mapping that begins at `start`, which must be no file's, grow downwards: a fault below it, where nothing is mapped, makes it begin at
    /// that page. Until it is `most` pages long, as far as [`STACK_GAP`](Self::STACK_GAP) pages are left below it. With no more than it has it grows no
    /// longer. Forks of the space have it grow too, and it does so where it was moved to. Pages that are cut off its lower end may come again. May wait for
    /// a lock. No flush and no IPI, neither now nor when it grows.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`]; [`Error::NotMapped`] where no mapping begins at `start`, [`Error::BadRange`] where it is a file's.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// let stack = PageRange::new(PageNumber(0x4000), 2);
    /// space.map(stack, Backing::Anonymous, Prot::ReadWrite)?;
    /// space.grow_down(stack.start, 2048)?; // `RLIMIT_STACK`, 8 MiB
    /// let below = PageNumber(0x4000 - 5);
    /// space.fault(below.addr(), UserAccess::Write)?;
    /// assert!(space.lookup(below)?.is_present());
    /// let beyond = PageNumber(0x4002 - 2049);
    /// assert_eq!(space.fault(beyond.addr(), UserAccess::Write), Err(Error::NotMapped(beyond)));
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "MAP_GROWSDOWN")]
    pub fn grow_down(&self, start: PageNumber, most: u64) -> Result<(), Error> {
        let Space { mm, id } = *self;
        let _scope = charge(mm.platform(), Scope::Advise);
        let p = mm.platform();
        // Its neighbours change too, if they are one with it then.
        let (space, _alone) = mm.write_lock(id, PageRange::MAPPABLE)?;
        let found = mm.find_vma(id, space, start).filter(|(_, vma)| vma.range(p).start == start);
        let (_, vma) = found.ok_or(Error::NotMapped(start))?;
        if vma.file(p).is_some() {
            return Err(Error::BadRange);
        }
        let range = vma.range(p);
        vma.set_room_below(p, most.saturating_sub(range.pages));
        mm.merge_vmas(space, range, &mut Work::begin(mm));
        Ok(())
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Has a mapping grow down to a page where nothing is mapped, if there is one that may. Returns whether something is mapped there now, or it is to be looked for anew. May wait.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`].
    pub(super) fn grow_to(&self, id: SpaceId, page: PageNumber) -> Result<bool, Error> {
        let p = self.platform();
        let start = {
            // An access that is only wrong has nobody wait.
            let (space, _shared) = self.read_lock(id)?;
            if self.find_vma(id, space, page).is_some() {
                return Ok(true);
            }
            let Some((_, vma)) = self.grows_to(space, page) else { return Ok(false) };
            vma.range(p).start
        };
        let (space, _alone) = self.write_lock(id, PageRange::between(page, start))?;
        if self.find_vma(id, space, page).is_some() {
            return Ok(true);
        }
        let Some((handle, vma)) = self.grows_to(space, page) else { return Ok(false) };
        let range = vma.range(p);
        if range.start > start {
            // Another one, further up: looked at anew.
            return Ok(true);
        }
        self.settle(id, space, PageRange::between(page, range.start), &mut Work::begin(self));
        let alone = self.lock_rmap(vma);
        // A walk that gave way finds it again, at its new place.
        self.note_lowered(vma);
        self.trim_rmap(handle, PageRange::between(page, range.end()));
        drop(alone);
        // Where nobody can use either, it may have come to its like.
        self.merge_vmas_at(space, page);
        Ok(true)
    }

    /// The mapping above a page that is not mapped, if it may grow down to there. Under the VMA lock.
    fn grows_to(&self, space: &SpaceState, page: PageNumber) -> Option<(u32, &'p Vma)> {
        let p = self.platform();
        let (handle, vma) = self.vma_from(space, page)?;
        let pages = vma.range(p).start.0.checked_sub(page.0).filter(|&pages| pages > 0)?;
        let room = vma.room_below(p);
        // One that was moved may have begun so close to the first index.
        let fits = pages <= room && page >= PageRange::MAPPABLE.start && vma.has_index_below(p, pages);
        let apart = |(_, below): (u32, &Vma)| {
            below.prot(p) == Prot::None || page.0 - below.range(p).end().0 >= Space::<P>::STACK_GAP
        };
        let apart = self.vma_before(space, page).is_none_or(apart) || p.broken(Rule::StackGap);
        (fits && apart).then_some((handle, vma))
    }
}
