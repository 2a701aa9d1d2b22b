//! Unmap, while others map and unmap elsewhere in the space: if somebody waits for the VMAs they are let go for the flush.
//!
//! ```text
//!   VMAs alone   entries are taken out, tables unhooked, the VMAs marked as leaving
//!   no VMA       the flush, at once with those of others who unmap; then the pages go
//!   VMAs alone   the VMAs go
//!   no VMA       the tables go, to which no reverse map leads any more
//! ```
//!
//! A VMA that is *leaving* holds its place: nothing is mapped there, no table on the way to it goes with another range, and to a fault it
//! is not there. So a table under which several are leaving is the last one's, who unhooks it where the VMAs would go, and flushes once more before they do.
//! Whoever changes VMAs in any other way waits until none is leaving (`write_lock`).

use crate::Manager;
use crate::addr::PageRange;
use crate::charge::charge;
use crate::error::Error;
use crate::event::{FlushReason, Revoked};
use crate::frame::AllocFrom;
use crate::handle::SpaceId;
use crate::paging::table;
use crate::platform::Platform;
use crate::profile::Scope;
use crate::resched::{Work, cost};
use crate::rule::Rule;
use crate::space::parking::Parking;
use crate::space::range::Gather;
use crate::space::refs::Gone;
use crate::view::Space;
use crate::vma::{SpaceState, Vma, VmasAlone, check_range};

impl<'p, P: Platform> Space<'_, 'p, P> {
    /// Unmaps `range`, all of which must be mapped. When it returns no CPU can use any of it, not even by an
    /// entry that reclaim cleared and left for later (INV-4). May wait.
    ///
    /// One flush, however many pages: at most one IPI per CPU that uses the space and is neither lazy nor this one.
    /// Where whole page tables become empty they are freed, and lazy CPUs are interrupted too (INV-9). None if no page
    /// was present, no table goes and nothing is deferred.
    ///
    /// Where others wait for the space's VMAs they have them during the flush; for all who unmap then one flush is made. Meanwhile the
    /// range is still taken, and an access to it fails as one to what is not mapped. The last of several under a page table flushes once more, for that table.
    ///
    /// With `free=sweep` small anonymous pages cost none, unless a table goes: other CPUs may use them until their next sweep,
    /// and nobody else gets their frames or their addresses before that (INV-14).
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`], [`Error::BadRange`], [`Error::NotMapped`]; [`Error::OutOfMemory`] when a VMA or a large
    /// page must be split, and [`Error::MapCount`] when a VMA must.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// let heap = PageRange::new(PageNumber(0x400), 16);
    /// space.map(heap, Backing::Anonymous, Prot::ReadWrite)?;
    /// space.fault(heap.start.addr(), UserAccess::Write)?;
    /// space.unmap(heap)?;
    /// assert!(space.fault(heap.start.addr(), UserAccess::Write).is_err());
    /// # Ok(())
    /// # });
    /// ```
    pub fn unmap(&self, range: PageRange) -> Result<(), Error> {
        let Space { mm, id } = *self;
        let _scope = charge(mm.platform(), Scope::Unmap);
        let range = check_range(range)?;
        let mut work = Work::begin(mm);
        let (space, vmas) = mm.lock_vmas(id, range)?;
        if let Some(hole) = mm.first_unmapped(space, range, &mut work) {
            return Err(Error::NotMapped(hole));
        }
        if mm.meets_what_leaves(space, range, &mut work) {
            drop(vmas);
            let (space, _alone) = mm.write_lock(id, range)?;
            return match mm.first_unmapped(space, range, &mut work) {
                Some(hole) => Err(Error::NotMapped(hole)),
                None => mm.unmap_alone((id, space), range, &mut work),
            };
        }
        if !mm.may_leave((id, space), range, &mut work) {
            return mm.unmap_alone((id, space), range, &mut work);
        }
        mm.unmap_leaving((id, space), range, vmas, &mut work);
        Ok(())
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Unmaps a range, all of which is mapped. By whoever holds the VMAs alone, none of which is leaving there. May wait.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] and [`Error::MapCount`] where something lies across an end of it.
    pub(super) fn unmap_alone(
        &self,
        (id, space): (SpaceId, &'p SpaceState),
        range: PageRange,
        work: &mut Work<'_, 'p, P>,
    ) -> Result<(), Error> {
        let (mm, p) = (self, self.platform());
        // A VMA that goes on at both ends becomes two, and only that one needs a slot.
        let inside =
            |(_, vma): (u32, &Vma)| vma.range(p).start < range.start && vma.range(p).end() > range.end();
        let spare = match mm.vma_from(space, range.start).is_some_and(inside) {
            true => Some(mm.new_vma(space)?),
            false => None,
        };
        let ends = [range.start, range.end()];
        if let Err(error) = ends.into_iter().try_for_each(|at| mm.split_large_at(space, at)) {
            spare.into_iter().for_each(|spare| mm.release_vma(spare));
            return Err(error);
        }
        let Some(gather) = mm.take_out((id, space), range, work) else {
            mm.release_removed(mm.cut_vmas(id, space, range, spare, work));
            return Ok(());
        };
        let flushed = gather.flush(mm, id, FlushReason::Unmap, Rule::FlushBeforeUnmapReturns);
        mm.release_removed(mm.cut_vmas(id, space, range, spare, work));
        mm.drop_taken(space, range, flushed, work);
        mm.revoke(id, space, range, Revoked::All);
        Ok(())
    }

    /// Whether a VMA is leaving in a range.
    fn meets_what_leaves(&self, space: &SpaceState, range: PageRange, work: &mut Work<'_, 'p, P>) -> bool {
        let p = self.platform();
        if space.vmas.leaving.get(p) == 0 {
            return false;
        }
        let mut inside =
            self.vmas_from(space, range.start).take_while(|(_, vma)| vma.range(p).start < range.end());
        inside.any(|(_, vma)| {
            work.did(cost::VMA);
            vma.is_leaving(p)
        })
    }

    /// Makes a range whole VMAs that can be left to themselves during the flush, if that is worth the trouble: somebody waits for the
    /// VMAs, nobody waits until nothing is leaving, and there is memory. By whoever holds the VMAs alone.
    fn may_leave(
        &self,
        (id, space): (SpaceId, &'p SpaceState),
        range: PageRange,
        work: &mut Work<'_, 'p, P>,
    ) -> bool {
        let p = self.platform();
        // With tables go their marks of what is parked, and nobody may map there before the flush (INV-14).
        let better = space.vmas.lock.is_awaited(p) && space.vmas.waiting.get(p) == 0 && !self.parks();
        if !better {
            return false;
        }
        // Whoever unmaps may be short of memory: what only this needs nobody reclaims for.
        let cut = |at| {
            self.split_vma_from(id, space, at, AllocFrom::NOW)?;
            self.split_large_at(space, at)
        };
        let done = [range.start, range.end()].into_iter().try_for_each(cut).is_ok();
        if !done {
            self.merge_vmas(space, range, work);
        }
        done
    }

    /// Unmaps whole VMAs while others map and unmap. May wait.
    fn unmap_leaving(
        &self,
        (id, space): (SpaceId, &'p SpaceState),
        range: PageRange,
        vmas: VmasAlone<'_, 'p, P>,
        work: &mut Work<'_, 'p, P>,
    ) {
        let p = self.platform();
        let Some(gather) = self.take_out((id, space), range, work) else {
            let last = self.cut_vmas(id, space, range, None, work);
            drop(vmas);
            return self.release_removed(last);
        };
        self.each_part(space, range, work, |vma| vma.leave(p));
        let leaving = &space.vmas.leaving;
        leaving.set(p, leaving.get(p) + 1);
        drop(vmas);
        let flushed = gather.flush_together(self, id, FlushReason::Unmap, Rule::FlushBeforeUnmapReturns);
        let mut gone = Gone::new();
        self.drop_entries(space, range, &mut gone, work);
        self.end_leaving((id, space), range, &mut gone, work);
        self.drop_tables(flushed, range, &mut gone, work);
        gone.free(self);
    }

    /// Takes VMAs out that are leaving, with nothing left in them. Tables on the way to them that others held, who have left meanwhile, go first: with a flush for
    /// each of them at most, and so this calls itself no more often than there are such tables.
    fn end_leaving(
        &self,
        (id, space): (SpaceId, &'p SpaceState),
        range: PageRange,
        gone: &mut Gone,
        work: &mut Work<'_, 'p, P>,
    ) {
        let (p, leaving) = (self.platform(), &space.vmas.leaving);
        let vmas = space.vmas.lock.write(self);
        if let Some(gather) = self.take_emptied(space, range) {
            drop(vmas);
            let flushed = gather.flush_together(self, id, FlushReason::Unmap, Rule::TablesAfterFlush);
            self.end_leaving((id, space), range, gone, work);
            return self.drop_tables(flushed, range, gone, work);
        }
        let last = self.cut_vmas(id, space, range, None, work);
        self.revoke(id, space, range, Revoked::All);
        let others = leaving.get(p) - 1;
        leaving.set(p, others);
        let awaited = others == 0 && space.vmas.waiting.get(p) > 0;
        drop(vmas);
        self.release_removed(last);
        if awaited {
            p.wake(space.vmas.key());
        }
    }

    /// Takes the entries of a range out, and the tables that go with it; what is owed for them. None if all was parked: nothing is
    /// owed, and nothing left to do but to take the VMAs out.
    fn take_out(
        &self,
        (id, space): (SpaceId, &'p SpaceState),
        range: PageRange,
        work: &mut Work<'_, 'p, P>,
    ) -> Option<Gather<'p>> {
        let p = self.platform();
        let mut gather = Gather::begin(p, space);
        let mut parking = Parking::begin(self);
        self.take_range(id, space, range, (&mut gather, &mut parking), work);
        let gap = self.gap_around(space, range);
        if !table::goes(range, gap) && self.park((id, space), range, &parking, &gather, work) {
            gather.already_flushed(p).done();
            return None;
        }
        gather.add_tables(table::unhook(self, space.root(p), range, gap), range);
        Some(gather)
    }
}
