//! Page tables in which nothing is left while something is mapped where they lie: reclaim has taken its pages, a file was cut, a program
//! has dropped what was there. They are given back when somebody asks, when memory runs short, and by a drop whose flush takes everything anyway.
//!
//! ```text
//!   VMAs shared   a table is found in which nothing is
//!   VMAs alone    no fault puts anything there
//!     reverse map alone   nobody is in it; it leaves the tree
//!   the flush, for some at once, which lazy CPUs hear too (INV-9)
//!     they are freed
//! ```
//!
//! A table that two VMAs share stays until one is unmapped. Whoever reclaims waits for no VMAs: whoever has them may wait for memory, and it may be
//! the one that holds those of a space itself.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::charge::charge;
use crate::error::Error;
use crate::event::FlushReason;
use crate::handle::{GroupSlot, SpaceId};
use crate::paging::table::{self, Emptied, Unhooked};
use crate::platform::Platform;
use crate::policy;
use crate::profile::Scope;
use crate::resched::{Work, cost};
use crate::rule::Rule;
use crate::space::range::Gather;
use crate::space::refs::Gone;
use crate::tlb;
use crate::view::Space;
use crate::vma::{SpaceState, Vma, VmasAlone};

/// Tables that one flush is for.
const TOGETHER: u64 = 64;
/// Tables looked at while the VMAs are shared, and while they are held alone.
const LOOKS: u32 = 1024;
const LOOKS_ALONE: u32 = 2 * TOGETHER as u32;
/// For so long nobody who finds no memory looks again where a look has found nothing, in nanoseconds: it reads all tables.
const LOOK_AGAIN_NS: u64 = 100_000_000;

/// Whether the VMAs are waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Vmas {
    Waited,
    Tried,
}

/// What a look has found.
enum Found {
    /// In this VMA, on the way to this page.
    Table(PageRange, PageNumber),
    /// Nothing up to there.
    Later(PageNumber),
    Nothing,
}

impl<P: Platform> Space<'_, '_, P> {
    /// Gives the page tables of the space back in which nothing is left, though something is mapped where they lie; returns how many. They come again
    /// when they are wanted. For a kernel that looks after its spaces now and then; the core does it by itself for spaces whose VMAs nobody holds, before
    /// it asks for a victim, but for 100 ms after it has found none. Looks at all tables, with points to give way. May wait.
    ///
    /// One flush for 64 of them, thus at most one IPI per CPU that uses the space, the lazy ones too (INV-9); none where none is found.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// let heap = PageRange::new(PageNumber(0x400), 512);
    /// space.map(heap, Backing::Anonymous, Prot::ReadWrite)?;
    /// space.fault(heap.start.addr(), UserAccess::Write)?;
    /// assert_eq!(space.free_empty_tables()?, 0);
    /// space.advise(PageRange::new(heap.start, 1), Advice::Drop)?;
    /// assert_eq!(space.free_empty_tables()?, 3);
    /// # Ok(())
    /// # });
    /// ```
    pub fn free_empty_tables(&self) -> Result<u64, Error> {
        let Space { mm, id } = *self;
        let _scope = charge(mm.platform(), Scope::Advise);
        mm.find_space(id)?;
        mm.free_emptied(id, Vmas::Waited, &mut Work::begin(mm))
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// The same of all spaces, or of those of a group, but for those whose VMAs somebody holds. Needs interrupts on and no spin lock held. May wait.
    pub(crate) fn reclaim_tables(&self, of: Option<GroupSlot>, work: &mut Work<'_, 'p, P>) -> u64 {
        let (p, looked, mut freed) = (self.platform(), &self.root.tables_looked, 0);
        // Relaxed, here and below: it is advice.
        let look_again = |last: u64| last == 0 || p.now().0 >= last + LOOK_AGAIN_NS;
        if p.broken(Rule::TablesBeforeVictim)
            || of.is_none() && !look_again(looked.load(p, Ordering::Relaxed))
        {
            return freed;
        }
        if of.is_none() {
            // Others who find no memory meanwhile do not look too.
            looked.store(p, p.now().0.max(1), Ordering::Relaxed);
        }
        for slot in self.space_slots() {
            work.did(cost::VMA);
            let its = |id| self.find_space(id).map(|space| self.group_of(space));
            if let Some(id) = self.live_space(slot)
                && of.is_none_or(|group| its(id) == Ok(group))
            {
                // One that has ended has none.
                freed += self.free_emptied(id, Vmas::Tried, work).unwrap_or(0);
            }
        }
        if of.is_none() {
            looked.store(p, if freed > 0 { 0 } else { p.now().0.max(1) }, Ordering::Relaxed);
        }
        freed
    }

    fn free_emptied(&self, id: SpaceId, how: Vmas, work: &mut Work<'_, 'p, P>) -> Result<u64, Error> {
        let (mut from, mut freed) = (PageNumber(0), 0);
        loop {
            let found = match how {
                Vmas::Waited => {
                    let (space, _shared) = self.read_lock(id)?;
                    self.find_emptied(space, from, work)
                }
                Vmas::Tried => {
                    let space = self.find_space(id)?;
                    let Some(_shared) = space.vmas.lock.try_read(self) else { return Ok(freed) };
                    self.find_space(id)?;
                    self.find_emptied(space, from, work)
                }
            };
            from = match found {
                Found::Nothing => return Ok(freed),
                Found::Later(page) => page,
                Found::Table(within, page) => {
                    let (space, _alone) = match how {
                        Vmas::Waited => self.write_lock(id, within)?,
                        Vmas::Tried => match self.try_write_lock(id, within) {
                            Some(locked) => locked,
                            None => return Ok(freed),
                        },
                    };
                    let (next, count) = self.free_some((id, space), (within, page), work);
                    freed += count;
                    next
                }
            };
            work.did(cost::VMA);
        }
    }

    /// As `write_lock`, if nobody has the VMAs, and none is leaving. Never waits.
    fn try_write_lock(
        &self,
        id: SpaceId,
        range: PageRange,
    ) -> Option<(&'p SpaceState, VmasAlone<'_, 'p, P>)> {
        let alone = self.try_lock_vmas(id, range)?;
        let space = self.find_space(id).ok()?;
        (space.vmas.leaving.get(self.platform()) == 0).then_some((space, alone))
    }

    /// The first table in which nothing is, from a page on. By whoever shares the VMAs.
    fn find_emptied(&self, space: &SpaceState, from: PageNumber, work: &mut Work<'_, 'p, P>) -> Found {
        let p = self.platform();
        let mut left = LOOKS;
        for (_, vma) in self.vmas_from(space, from) {
            let (whole, mut found) = (vma.range(p), None);
            let rest = PageRange::between(whole.start.max(from), whole.end());
            let mut each = |one: Emptied| {
                found = Some(one.start().max(rest.start));
                false
            };
            let next = self.search(space, (vma, rest), (&mut left, work), &mut each);
            if let Some(page) = found {
                return Found::Table(whole, page);
            }
            if next < rest.end() {
                return Found::Later(next);
            }
            work.did(cost::LINK);
        }
        Found::Nothing
    }

    /// The tables on the way to a part of a VMA that lead to no other VMA, and to nothing.
    fn search(
        &self,
        space: &SpaceState,
        (vma, part): (&Vma, PageRange),
        (left, work): (&mut u32, &mut Work<'_, 'p, P>),
        each: &mut dyn FnMut(Emptied) -> bool,
    ) -> PageNumber {
        let p = self.platform();
        let gap = self.gap_around(space, vma.range(p));
        table::each_emptied(self, space.root(p), (part, gap), (left, work), each)
    }

    /// Frees tables in which nothing is, from the first page of a VMA on, as many as one flush is for; returns how far it came, and how many. By whoever
    /// holds the VMAs alone, and has shut those that touch a range.
    fn free_some(
        &self,
        (id, space): (SpaceId, &'p SpaceState),
        (within, from): (PageRange, PageNumber),
        work: &mut Work<'_, 'p, P>,
    ) -> (PageNumber, u64) {
        let p = self.platform();
        // It may be another by now.
        let Some((_, vma)) = self.vma_from(space, from).filter(|(_, vma)| vma.range(p).start < within.end())
        else {
            return (within.end(), 0);
        };
        let whole = vma.range(p);
        let part = PageRange::between(whole.start.max(from), whole.end());
        let mut gather = Gather::begin(p, space);
        let (mut tables, mut under, mut count) = (Unhooked::NONE, PageRange::new(from, 1), 0);
        let mut each = |one: Emptied| {
            // INV-9: reclaim that has looked at the table a moment ago is done with it, and does not find it from now on.
            let alone = (!p.broken(Rule::EmptiedIsAlone)).then(|| self.lock_rmap(vma));
            one.unhook(self, &mut tables);
            drop(alone);
            let first = PageRange::new(one.start(), 1);
            under = if count == 0 { first } else { under.hull(first) };
            count += 1;
            count < TOGETHER
        };
        let next = self.search(space, (vma, part), (&mut LOOKS_ALONE.clone(), work), &mut each);
        if count == 0 {
            gather.already_flushed(p).done();
        } else {
            gather.add_tables(tables, under);
            let flushed = gather.flush(self, id, FlushReason::Teardown, Rule::TablesAfterFlush);
            self.drop_tables(flushed, PageRange::new(from, 0), &mut Gone::new(), work);
        }
        (next, count)
    }

    /// Takes the tables out of the tree in which nothing is left but what was taken out of a range that stays mapped, if the flush that is owed for that
    /// serves them too: it takes everything, and interrupts nobody more. With `emptied=at-once` those that lie in the range as a whole go also where it does.
    /// By whoever holds the VMAs alone.
    pub(super) fn unhook_dropped(
        &self,
        space: &'p SpaceState,
        range: PageRange,
        gather: &mut Gather<'p>,
        work: &mut Work<'_, 'p, P>,
    ) {
        let (p, ceiling) = (self.platform(), u64::from(self.config().flush_ceiling));
        let Some(changed) = gather.range() else { return };
        let quietly = changed.pages > ceiling && !tlb::others_are_lazy(self, space);
        if !quietly && self.config().policy.emptied == policy::Emptied::Quietly {
            return;
        }
        let mut tables = Unhooked::NONE;
        for (_, vma) in self.vmas_from(space, range.start) {
            let whole = vma.range(p);
            let Some(part) = whole.intersect(range) else { break };
            let around = self.gap_around(space, whole);
            let gap = PageRange::between(
                if quietly && part.start == whole.start { around.start } else { part.start },
                if quietly && part.end() == whole.end() { around.end() } else { part.end() },
            );
            if table::goes(part, gap) {
                let alone = (!p.broken(Rule::EmptiedIsAlone)).then(|| self.lock_rmap(vma));
                table::unhook_into(self, space.root(p), (part, gap), &mut tables);
                drop(alone);
            }
            work.did(cost::LINK);
        }
        gather.add_tables(tables, range);
    }
}
