//! What a program drops of a range.
//!
//! A few anonymous pages are dropped while others fault, and drop elsewhere: allocators give memory back from all threads at once (Linux shares the VMAs for
//! `MADV_DONTNEED`, too).
//!
//! ```text
//!   VMAs shared   the tables are claimed: nobody else drops anything under them
//!                 entries are taken out, and stay as marks
//!                 the flush
//!                 the marks go, then the claims, then the pages
//! ```
//!
//! A fault meanwhile that finds a mark waits until the VMAs can be had alone; where nothing was it maps a page, which stays. What concerns more than
//! small pages under one or two tables (whole tables, large pages, files, swap slots, pages that are parked) is dropped with the VMAs alone, and so is what
//! another drop has claimed.

use crate::Manager;
use crate::addr::{LARGE_PAGES, PageNumber, PageRange};
use crate::error::Error;
use crate::event::{FlushReason, Revoked};
use crate::handle::SpaceId;
use crate::paging::Entry;
use crate::paging::table::{self, Leaf, Way};
use crate::platform::Platform;
use crate::resched::{Work, cost};
use crate::rule::Rule;
use crate::space::parking::Parking;
use crate::space::range::Gather;
use crate::space::refs::Gone;
use crate::vma::SpaceState;

/// Tables under which a range lies that covers none of them as a whole, at most.
const TABLES: usize = 2;

/// How much of a range was dropped with the VMAs shared.
#[derive(PartialEq, Eq)]
enum Beside {
    Nothing,
    /// All but pages that were in swap.
    Part,
    All,
}

/// Tables under which nobody else drops anything, each with the part of a range that lies under it. Let go when dropped.
struct Claimed<'m, 'p, P: Platform> {
    mm: &'m Manager<'p, P>,
    parts: [Option<(Leaf, PageRange)>; TABLES],
}

impl<P: Platform> Claimed<'_, '_, P> {
    fn parts(&self) -> impl Iterator<Item = (Leaf, PageRange)> {
        self.parts.into_iter().flatten()
    }
}

impl<P: Platform> Drop for Claimed<'_, '_, P> {
    fn drop(&mut self) {
        if !self.mm.platform().broken(Rule::ClaimWhatIsDropped) {
            self.parts().for_each(|(leaf, _)| self.mm.unlock_page(leaf.frame()));
        }
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Drops a range, all of which must be mapped: when it returns no CPU can use what was there (INV-4). One flush; with the VMAs shared first, where
    /// that will do. May wait.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`], [`Error::NotMapped`]; [`Error::OutOfMemory`] when a large page must be split.
    pub(super) fn drop_range(&self, id: SpaceId, range: PageRange) -> Result<(), Error> {
        let (mm, p, mut work) = (self, self.platform(), Work::begin(self));
        let beside = self.drop_beside(id, range, &mut work)?;
        if beside == Beside::All {
            return Ok(());
        }
        let (space, _alone) = mm.write_lock(id, range)?;
        // All of it was mapped when its first page went: what others have unmapped since was dropped before that.
        let was_mapped = beside == Beside::Part && !p.broken(Rule::BegunDropEnds);
        if let Some(hole) = mm.first_unmapped(space, range, &mut work).filter(|_| !was_mapped) {
            return Err(Error::NotMapped(hole));
        }
        mm.split_large_at(space, range.start)?;
        mm.split_large_at(space, range.end())?;
        let mut gather = Gather::begin(p, space);
        let mut parking = Parking::begin(mm);
        mm.take_range(id, space, range, (&mut gather, &mut parking), &mut work);
        if mm.park((id, space), range, &parking, &gather, &mut work) {
            gather.already_flushed(p).done();
            return Ok(());
        }
        mm.unhook_dropped(space, range, &mut gather, &mut work);
        let flushed = gather.flush(mm, id, FlushReason::Drop, Rule::FlushBeforeDropReturns);
        mm.drop_taken(space, range, flushed, &mut work);
        mm.revoke(id, space, range, Revoked::All);
        Ok(())
    }

    /// The same with the VMAs shared, as far as that is possible.
    fn drop_beside(
        &self,
        id: SpaceId,
        range: PageRange,
        work: &mut Work<'_, 'p, P>,
    ) -> Result<Beside, Error> {
        let p = self.platform();
        let has_whole_table = range.start.0.next_multiple_of(LARGE_PAGES) + LARGE_PAGES <= range.end().0;
        if has_whole_table || self.parks() {
            return Ok(Beside::Nothing);
        }
        let (space, _shared) = self.read_lock(id)?;
        if let Some(hole) = self.first_unmapped(space, range, work) {
            return Err(Error::NotMapped(hole));
        }
        let mut vmas =
            self.vmas_from(space, range.start).take_while(|(_, vma)| vma.range(p).start < range.end());
        // What an unmap has taken out there it lets go of itself, once it has flushed. A page of a file that comes meanwhile and that reclaim takes would
        // leave a mark like one from before the drop, of which more would be told than is so.
        if vmas.any(|(_, vma)| vma.file(p).is_some() || vma.is_leaving(p)) {
            return Ok(Beside::Nothing);
        }
        let Some(claimed) = self.claim_tables(space, range) else { return Ok(Beside::Nothing) };
        let (mut gather, mut all) = (Gather::begin(p, space), true);
        for (_, part) in claimed.parts() {
            // What was in swap here may come back before the marks go, by a fault or by whoever turns a device off: it is not dropped then.
            all &= self.take_range(id, space, part, (&mut gather, &mut Parking::never()), work);
        }
        gather.flush(self, id, FlushReason::Drop, Rule::FlushBeforeDropReturns).done();
        let mut gone = Gone::new();
        for (leaf, part) in claimed.parts() {
            self.drop_marks((id, space), (leaf, part), &mut gone, work);
        }
        drop(claimed);
        gone.free(self);
        Ok(if all { Beside::All } else { Beside::Part })
    }

    /// Claims the tables of small pages on the way to a range that are there, unless somebody else has claimed one, or a large page is there. By whoever
    /// shares the VMAs: no table goes, and what comes under one that was not there came after the drop.
    fn claim_tables(&self, space: &SpaceState, range: PageRange) -> Option<Claimed<'_, 'p, P>> {
        let p = self.platform();
        let mut claimed = Claimed { mm: self, parts: [None; TABLES] };
        let (mut page, mut count) = (range.start, 0);
        while page < range.end() {
            match table::find(self, space.root(p), page) {
                Way::Gap(next) => page = next,
                Way::Large(_) => return None,
                Way::Small(leaf) => {
                    let free =
                        p.broken(Rule::ClaimWhatIsDropped) || self.memmap().get(leaf.frame()).try_lock(p);
                    if !free {
                        return None;
                    }
                    let end = leaf.end(page).min(range.end());
                    claimed.parts[count] = Some((leaf, PageRange::between(page, end)));
                    (page, count) = (end, count + 1);
                }
            }
        }
        Some(claimed)
    }

    /// Lets go of the pages that this drop took out of a part of a table, and tells what nobody can use any more: pages that have come since stay.
    /// By whoever has claimed the table.
    fn drop_marks(
        &self,
        (id, space): (SpaceId, &SpaceState),
        (leaf, part): (Leaf, PageRange),
        gone: &mut Gone,
        work: &mut Work<'_, 'p, P>,
    ) {
        let (p, mut page) = (self.platform(), part.start);
        while page < part.end() {
            work.did(cost::TABLE);
            let locked = leaf.lock(self);
            let mut revoked: Option<PageRange> = None;
            let mut due = false;
            while page < part.end() && !due {
                let entry = locked.read(page);
                // What reclaim took before is flushed, too, and leaves its mark.
                let was_there = entry.is_taken() || entry.deferred_until(|| space.generation(p)).is_some();
                if was_there {
                    let one = PageRange::new(page, 1);
                    revoked = Some(revoked.map_or(one, |run| run.hull(one)));
                } else if let Some(run) = revoked.take() {
                    self.revoke(id, space, run, Revoked::All);
                }
                if entry.is_taken() {
                    locked.write(page, Entry::NONE);
                    gone.add_entry(self, entry);
                }
                due = work.is_due(if entry == Entry::NONE { 1 } else { cost::FRAME });
                page = PageNumber(page.0 + 1);
            }
            // Before anything can come there.
            if let Some(run) = revoked {
                self.revoke(id, space, run, Revoked::All);
            }
        }
    }
}
