//! What all operations on a range have in common: change entries, flush once, and only then go on.
//!
//! The entries that an operation takes out stay in their tables, not present and marked as taken, until the flush: so
//! a range of any size costs one flush and no memory. From the first change to the flush the space is marked as
//! changing: write-back, which finds no entry of a page there, knows that a CPU may still write through one (INV-2,
//! PITFALLS 4).

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::error::Error;
use crate::event::{Event, FlushReason, Revoked};
use crate::handle::SpaceId;
use crate::paging::Entry;
use crate::paging::table::{self, LockedLeaf, Unhooked, Way};
use crate::platform::Platform;
use crate::resched::{Work, cost};
use crate::rule::Rule;
use crate::space::parking::Parking;
use crate::space::refs::Gone;
use crate::tlb;
use crate::vma::{SpaceState, Vma};

/// The flush that an operation owes for the entries that it changed.
#[must_use = "the entries are changed and not flushed"]
pub(super) struct Gather<'p> {
    space: &'p SpaceState,
    /// From the first to the last page changed.
    changed: Option<PageRange>,
    /// Tables that no space has any more.
    tables: Unhooked,
    /// Pages on the way to which these lie.
    under_tables: PageRange,
    /// Whether tables go that the operation keeps itself.
    others_go: bool,
}

/// No CPU can use what the operation took out or narrowed.
#[must_use = "what was taken out must be put somewhere"]
pub(super) struct FlushedGather {
    tables: Unhooked,
}

impl<'p> Gather<'p> {
    /// An operation begins to change entries. By whoever has the space's VMAs alone, until those that it changes are leaving or flushed, or shares them and has
    /// claimed the tables.
    pub fn begin<P: Platform>(p: &P, space: &'p SpaceState) -> Gather<'p> {
        space.changing.fetch_add(p, 1, Ordering::Relaxed);
        let under_tables = PageRange::new(PageNumber(0), 0);
        Gather { space, changed: None, tables: Unhooked::NONE, under_tables, others_go: false }
    }

    /// Whether nothing was changed that another CPU may have cached.
    pub fn is_none(&self) -> bool {
        self.changed.is_none()
    }

    /// From the first to the last page changed.
    pub fn range(&self) -> Option<PageRange> {
        self.changed
    }

    pub fn add(&mut self, page: PageNumber, pages: u64) {
        let new = PageRange::new(page, pages);
        self.changed = Some(
            self.changed
                .map_or(new, |old| PageRange::between(old.start.min(new.start), old.end().max(new.end()))),
        );
    }

    /// These tables are freed after the flush, too. Each of them lies on the way to a page of `range`.
    pub fn add_tables(&mut self, tables: Unhooked, range: PageRange) {
        (self.tables, self.under_tables) = (tables, range);
    }

    /// A table whose entries are pages of `span` has gone, and the operation does with it what is to be done after the flush.
    pub fn add_table(&mut self, span: PageRange) {
        self.add(span.start, span.pages);
        self.others_go = true;
    }

    /// Flushes all of it at once, with whatever reclaim deferred in the space (INV-4): at most one IPI per CPU that
    /// uses the space and, unless tables go, is not lazy; none if nothing was changed and nothing is deferred.
    /// `rule` is the rule by which this flush can be left out.
    pub fn flush<P: Platform>(
        self,
        mm: &Manager<'_, P>,
        id: SpaceId,
        reason: FlushReason,
        rule: Rule,
    ) -> FlushedGather {
        self.flush_by(mm, id, rule, |range, tables| tlb::flush(mm, id, range, reason, tables))
    }

    /// The same at once with those who unmap other ranges of the space. With no VMA held.
    pub fn flush_together<P: Platform>(
        self,
        mm: &Manager<'_, P>,
        id: SpaceId,
        reason: FlushReason,
        rule: Rule,
    ) -> FlushedGather {
        self.flush_by(mm, id, rule, |range, tables| tlb::flush_together(mm, id, range, reason, tables))
    }

    fn flush_by<P: Platform>(
        mut self,
        mm: &Manager<'_, P>,
        id: SpaceId,
        rule: Rule,
        flush: impl FnOnce(Option<PageRange>, bool),
    ) -> FlushedGather {
        let p = mm.platform();
        let tables = (!self.tables.is_empty() || self.others_go) && !p.broken(Rule::TablesAfterFlush);
        if tables && !self.tables.is_empty() {
            // INV-9: a flush of a page reaches what CPUs keep of the tables on the way to it, and of no others. So all
            // pages are flushed, changed or not.
            self.add(self.under_tables.start, self.under_tables.pages);
        }
        if self.changed.is_some() && !p.broken(rule) {
            // A flush covers what reclaim deferred before it. What reclaim defers from here on lies elsewhere, or was
            // narrowed by this operation before: the caller was not promised anything about it.
            // With tables go their marks of what is parked (INV-14).
            let range = self.changed.filter(|_| !(tables && mm.parks()));
            flush(range, tables);
        } else if !p.broken(Rule::DeferredBeforeUnmapReturns) {
            // What reclaim cleared in this space and did not flush yet is gone too before the operation returns.
            tlb::complete_deferred(mm, id);
        }
        self.already_flushed(p)
    }

    /// For whoever has made all CPUs let go of the space before it took anything out.
    pub fn already_flushed<P: Platform>(self, p: &P) -> FlushedGather {
        // Release: whoever finds the space at rest finds every CPU flushed.
        self.space.changing.fetch_sub(p, 1, Ordering::Release);
        FlushedGather { tables: self.tables }
    }
}

impl FlushedGather {
    /// Nothing was changed.
    pub fn done(self) {
        debug_assert!(self.tables.is_empty(), "tables were unhooked and not freed");
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Makes the ends of a range borders between VMAs, and between large pages. By whoever holds the VMAs alone. May
    /// wait for memory; costs no flush.
    ///
    /// # Errors
    /// [`Error::NotMapped`] if not all of it is mapped; [`Error::OutOfMemory`].
    pub(super) fn split_vmas(
        &self,
        id: SpaceId,
        space: &SpaceState,
        range: PageRange,
        work: &mut Work<'_, 'p, P>,
    ) -> Result<(), Error> {
        if let Some(hole) = self.first_unmapped(space, range, work) {
            return Err(Error::NotMapped(hole));
        }
        let ends = [range.start, range.end()];
        let cut = |at| {
            self.split_vma_at(id, space, at)?;
            self.split_large_at(space, at)
        };
        let done = ends.into_iter().try_for_each(cut);
        if done.is_err() {
            self.merge_vmas(space, range, work);
        }
        done
    }

    /// Each VMA in a range that begins and ends at borders of VMAs.
    pub(super) fn each_part(
        &self,
        space: &SpaceState,
        range: PageRange,
        work: &mut Work<'_, 'p, P>,
        each: impl Fn(&Vma),
    ) {
        for (_, vma) in self.vmas_from(space, range.start) {
            if vma.range(self.platform()).start >= range.end() {
                break;
            }
            each(vma);
            work.did(cost::VMA);
        }
    }

    /// Joins the VMAs of a range with each other and with their neighbours where they are alike.
    pub(super) fn merge_vmas(&self, space: &SpaceState, range: PageRange, work: &mut Work<'_, 'p, P>) {
        let p = self.platform();
        self.merge_vmas_at(space, range.start);
        let mut at = range.start;
        while let Some((_, vma)) = self.vma_from(space, at) {
            at = vma.range(p).end();
            if vma.range(p).start >= range.end() || at > range.end() {
                break;
            }
            // Joined, the VMA ends later: the same place is a border no more.
            self.merge_vmas_at(space, at);
            work.did(cost::LINK);
        }
    }

    /// Visits every entry in a range that is not empty, with its table's lock held, and says how many pages it covers.
    /// Counts `units` for each, and gives way in between with the lock let go; the caller has the VMAs. No large
    /// page lies across an end of the range: who changes entries has split those.
    pub(super) fn visit(
        &self,
        space: &SpaceState,
        range: PageRange,
        (work, units): (&mut Work<'_, 'p, P>, u32),
        mut each: impl FnMut(&LockedLeaf<'_, 'p, P>, PageNumber, Entry, u64),
    ) {
        self.visit_until(space, range, (work, units), |leaf, page, entry, pages| {
            each(leaf, page, entry, pages);
            true
        });
    }

    /// The same until `each` wants no more; returns the page at which it said so.
    pub(super) fn visit_until(
        &self,
        space: &SpaceState,
        range: PageRange,
        (work, units): (&mut Work<'_, 'p, P>, u32),
        mut each: impl FnMut(&LockedLeaf<'_, 'p, P>, PageNumber, Entry, u64) -> bool,
    ) -> Option<PageNumber> {
        let mut page = range.start;
        while page < range.end() {
            work.did(cost::TABLE);
            let leaf = match table::find(self, space.root(self.platform()), page) {
                Way::Gap(next) => {
                    page = next;
                    continue;
                }
                Way::Small(leaf) | Way::Large(leaf) => leaf,
            };
            let end = leaf.end(page).min(range.end());
            let locked = leaf.lock(self);
            if locked.leads_on(page) {
                continue;
            }
            let mut due = false;
            while page < end && !due {
                let entry = locked.read(page);
                if entry != Entry::NONE && !each(&locked, page, entry, leaf.step()) {
                    return Some(page);
                }
                due = work.is_due(if entry == Entry::NONE { 1 } else { units });
                page = PageNumber(page.0 + leaf.step()).min(end);
            }
        }
        None
    }

    /// Takes every entry of a range that leads to a page out, and leaves each marked as taken. What it knew of its page moves to
    /// the page before the table's lock is dropped (PITFALLS 4). Returns whether no entry named a swap slot: those stay as they are.
    pub(super) fn take_range(
        &self,
        id: SpaceId,
        space: &SpaceState,
        range: PageRange,
        (gather, parking): (&mut Gather<'_>, &mut Parking),
        work: &mut Work<'_, 'p, P>,
    ) -> bool {
        let (p, mut all) = (self.platform(), true);
        self.split_file_entries(space, range, work);
        self.visit(space, range, (work, cost::ENTRY), |leaf, page, entry, pages| {
            if !entry.is_mapped() {
                all &= !entry.is_swapped();
                // INV-14: the mark goes, so its flush comes now.
                if entry.parked_until().is_some_and(|until| self.may_be_used(until)) {
                    gather.add(page, pages);
                }
                return;
            }
            let old = leaf.take(page);
            leaf.write(page, old.taken());
            if old.may_be_dirty(p) && !p.broken(Rule::DirtyBeforeUnlock) {
                self.note_dirty(old.frame(), old.has(Entry::WRITABLE));
            }
            self.emit(Event::Unmapped {
                space: id,
                page,
                frame: old.frame(),
                pages: pages as u32,
                deferred: false,
            });
            // What nobody may use was flushed when it became so, and was not present since: no CPU has it. Nor one that was
            // not used since a sweep (INV-13).
            if old.is_present() && self.may_be_cached(space, page, old) {
                gather.add(page, pages);
            }
            parking.add(self, old, pages);
        });
        all
    }

    /// Lets go of the pages that an operation took out of a range, of those that are in swap, and of its tables. No reverse map leads
    /// to those.
    pub(super) fn drop_taken(
        &self,
        space: &SpaceState,
        range: PageRange,
        flushed: FlushedGather,
        work: &mut Work<'_, 'p, P>,
    ) {
        let mut gone = Gone::new();
        self.drop_tables(flushed, range, &mut gone, work);
        self.drop_entries(space, range, &mut gone, work);
        gone.free(self);
    }

    /// The tables, with what is in them.
    pub(super) fn drop_tables(
        &self,
        flushed: FlushedGather,
        range: PageRange,
        gone: &mut Gone,
        work: &mut Work<'_, 'p, P>,
    ) {
        table::free_unhooked(self, flushed.tables, range, work, &mut |entry| gone.add_entry(self, entry));
    }

    /// Lets go of the tables that lead to nothing any more, since nothing is mapped in `range` and no entry is left there. By whoever holds the VMAs alone.
    /// At most one IPI for each CPU that uses the space, lazy ones too (INV-9); none if no table goes.
    pub(super) fn drop_emptied(
        &self,
        (id, space): (SpaceId, &'p SpaceState),
        range: PageRange,
        reason: FlushReason,
        work: &mut Work<'_, 'p, P>,
    ) {
        let Some(gather) = self.take_emptied(space, range) else { return };
        let flushed = gather.flush(self, id, reason, Rule::TablesAfterFlush);
        let mut gone = Gone::new();
        self.drop_tables(flushed, range, &mut gone, work);
        gone.free(self);
    }

    /// The first half of it: out of the tree they are, and the flush is owed. None if no table goes.
    pub(super) fn take_emptied(&self, space: &'p SpaceState, range: PageRange) -> Option<Gather<'p>> {
        let p = self.platform();
        let gap = self.gap_around(space, range);
        let tables = table::goes(range, gap).then(|| table::unhook(self, space.root(p), range, gap))?;
        if tables.is_empty() {
            return None;
        }
        let mut gather = Gather::begin(p, space);
        gather.add_tables(tables, range);
        Some(gather)
    }

    /// What is in the tables that stay. By whoever holds the VMAs alone, or while those of the range are leaving.
    pub(super) fn drop_entries(
        &self,
        space: &SpaceState,
        range: PageRange,
        gone: &mut Gone,
        work: &mut Work<'_, 'p, P>,
    ) {
        self.visit(space, range, (work, cost::FRAME), |leaf, page, entry, _| {
            // What reclaim left behind goes, too: its flush is done.
            leaf.write(page, Entry::NONE);
            gone.add_entry(self, entry);
        });
    }

    /// Tells that an operation which promises a changed mapping has flushed and will return (INV-4).
    pub(super) fn revoke(&self, id: SpaceId, space: &SpaceState, range: PageRange, what: Revoked) {
        self.emit(Event::Revoked { space: id, root: space.root(self.platform()), range, what });
    }
}
