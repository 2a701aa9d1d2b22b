//! Small pages become a large one again: what `large.rs` does, the other way round. It costs what that does not, a copy and a flush: each page
//! gets another frame, and the table of the small ones goes.
//!
//! ```text
//!   who collapses, with the VMAs alone                who else
//!   has the large frame, and it is charged
//!   the reverse map alone
//!     is one pinned, or in swap? then no more         pins are taken by whoever shares the VMAs: none comes
//!     each entry taken, its dirty bit to the page     reclaim walks the reverse map: it waits
//!     the table out of the one above
//!   the reverse map let go                            reclaim finds no entry, and a mapping that is counted: the page stays
//!   one flush for up to 16 large pages                no CPU can use the pages, or walk the table (INV-2, INV-9, INV-12)
//!   copies; the entry of the large page; the small pages are let go of
//! ```
//!
//! A page that another space has too is copied like the others, as by a write, and that space keeps it: until this mapping is let go of,
//! it is counted, so the other space writes to a copy of its own. What is in swap comes back first.
//!
//! Of a file nothing is copied for the space: `large_file.rs`.

use crate::Manager;
use crate::addr::{FrameNumber, LARGE_ORDER, LARGE_PAGES, PageNumber, PageRange};
use crate::error::Error;
use crate::event::{Event, FlushReason};
use crate::group::{Charge, Payer};
use crate::handle::{GroupSlot, SpaceId};
use crate::kind::Kind;
use crate::paging::Entry;
use crate::paging::table::{self, Leaf, LockedLeaf, Way};
use crate::platform::Platform;
use crate::resched::{Work, cost};
use crate::rmap;
use crate::rule::Rule;
use crate::space::range::Gather;
use crate::space::refs::Gone;
use crate::vma::{SpaceState, Vma};

/// Large pages that are made under one flush: 32 MiB. So much memory is taken twice for a moment, where there is as much.
const TOGETHER: usize = 16;
/// Entries that are looked at, or taken, under one hold of their table's lock.
const HELD: u64 = 64;
/// How often reclaim may be faster than who brings a range back from swap.
const TRIES: u32 = 4;

/// A large page that is on its way: its small pages are taken out.
#[derive(Clone, Copy)]
struct Begun {
    start: PageNumber,
    large: FrameNumber,
    /// The table of the small pages, which nobody finds any more.
    table: Leaf,
}

/// Why small pages stay small.
enum Hitch {
    /// One of them is in swap, again.
    Swapped,
    Error(Error),
}

impl From<Error> for Hitch {
    fn from(error: Error) -> Self {
        Hitch::Error(error)
    }
}

/// What there is of a range of small pages.
#[derive(Clone, Copy, Default)]
struct There {
    /// In memory.
    pages: u64,
    /// Of these, pages that become free, and that the space's group is charged with.
    paid: u64,
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Makes large pages of all aligned parts of a range that small pages of memory of the space's own are in. May wait.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`], [`Error::NotMapped`]. The first that kept a part small, once all were tried: [`Error::NotCollapsible`],
    /// [`Error::OutOfMemory`], [`Error::LimitReached`], [`Error::SwapDevice`].
    pub(super) fn collapse(&self, id: SpaceId, range: PageRange) -> Result<(), Error> {
        let mut work = Work::begin(self);
        self.check_mapped(id, range, &mut work)?;
        let end = range.end().large();
        let mut at = PageNumber(range.start.0.next_multiple_of(LARGE_PAGES));
        let (mut kept, mut tries) = (None, 0);
        while at < end {
            let rest = PageRange::between(at, end);
            let (next, error) = match self.file_part(id, rest)? {
                true => (
                    PageNumber(at.0 + LARGE_PAGES),
                    self.collapse_file(id, PageRange::new(at, LARGE_PAGES), &mut work).err(),
                ),
                false => self.collapse_some(id, rest, tries < TRIES, &mut work)?,
            };
            kept = kept.or(error);
            work.did(cost::VMA);
            tries = if next == at { tries + 1 } else { 0 };
            at = next;
        }
        kept.map_or(Ok(()), Err)
    }

    /// The same for as many parts as one flush is enough for. Returns where to go on, and the first error. Where reclaim was faster it stops,
    /// if it `may_stop`.
    fn collapse_some(
        &self,
        id: SpaceId,
        rest: PageRange,
        may_stop: bool,
        work: &mut Work<'_, 'p, P>,
    ) -> Result<(PageNumber, Option<Error>), Error> {
        let p = self.platform();
        let some = PageRange::new(rest.start, rest.pages.min(TOGETHER as u64 * LARGE_PAGES));
        let ready = match self.bring_back(id, some, work) {
            Ok(()) => some,
            // Those before it are there.
            Err((page, error)) if page.large() == some.start => {
                return Ok((PageNumber(some.start.0 + LARGE_PAGES), Some(error)));
            }
            Err((page, _)) => PageRange::between(some.start, page.large()),
        };
        let (space, _alone) = self.write_lock(id, some)?;
        let mut gather = Gather::begin(p, space);
        let mut begun: [Option<Begun>; TOGETHER] = [None; TOGETHER];
        let (mut next, mut len, mut kept) = (ready.start, 0, None);
        // A file behind memory of the space's own is another call's.
        let is_file = |at| self.find_vma(id, space, at).is_some_and(|(_, vma)| vma.file(p).is_some());
        while next < ready.end() && (next == ready.start || !is_file(next)) {
            match self.begin_collapse(id, space, PageRange::new(next, LARGE_PAGES), &mut gather, work) {
                Ok(None) => {}
                Ok(one) => {
                    begun[len] = one;
                    len += 1;
                }
                Err(Hitch::Swapped) if may_stop || len > 0 => break,
                // What comes goes again at once.
                Err(Hitch::Swapped) => kept = kept.or(Some(Error::OutOfMemory)),
                // The small pages of those that are begun will be free.
                Err(Hitch::Error(Error::OutOfMemory | Error::LimitReached(_))) if len > 0 => break,
                Err(Hitch::Error(error)) => kept = kept.or(Some(error)),
            }
            next = PageNumber(next.0 + LARGE_PAGES);
        }
        if len > 0 {
            gather.flush(self, id, FlushReason::Collapse, Rule::FlushBeforeCollapse).done();
        } else {
            gather.already_flushed(p).done();
        }
        begun.iter().flatten().for_each(|one| self.end_collapse(id, space, one, work));
        Ok((next, kept))
    }

    /// Brings pages of a range back from swap. With an error the page that could not be had.
    fn bring_back(
        &self,
        id: SpaceId,
        range: PageRange,
        work: &mut Work<'_, 'p, P>,
    ) -> Result<(), (PageNumber, Error)> {
        let mut rest = range;
        let first = |rest: PageRange, work: &mut _| self.first_in_swap(id, rest, work);
        while let Some(page) = first(rest, work).map_err(|error| (rest.start, error))? {
            // Else as many as are let in go again, page by page, for a large page that its group never has room for.
            let group = self.find_space(id).map(|space| self.group_of(space));
            group.and_then(|group| self.may_ever_have(group, LARGE_PAGES)).map_err(|error| (page, error))?;
            self.swap_in_at(id, page, Payer::Within).map_err(|error| (page, error))?;
            work.did(cost::FAULT);
            rest = PageRange::between(PageNumber(page.0 + 1), range.end());
        }
        Ok(())
    }

    /// Takes the small pages of an aligned range out, if all of them can become parts of a large page, for which it has the frame; the flush is
    /// left to `gather`. `None`: there is no small page. By whoever holds the VMAs alone.
    fn begin_collapse(
        &self,
        id: SpaceId,
        space: &SpaceState,
        span: PageRange,
        gather: &mut Gather<'_>,
        work: &mut Work<'_, 'p, P>,
    ) -> Result<Option<Begun>, Hitch> {
        let p = self.platform();
        let vma = self.collapsible(id, space, span).ok_or(Error::NotCollapsible(span.start))?;
        let Way::Small(table) = table::find(self, space.root(p), span.start) else { return Ok(None) };
        // A first look, before memory is taken for it.
        let there = self.look_at_small(table, span, Some(self.group_of(space)))?;
        work.did(LARGE_PAGES as u32 * cost::ENTRY);
        if there.pages == 0 {
            return Ok(None);
        }
        let group = self.group_of(space);
        let charge = self.charge_group(group, LARGE_PAGES - there.paid, false)?;
        let charge = charge.and(Charge::regardless(self, group, there.paid));
        let large = self
            .alloc_spare(LARGE_ORDER, Kind::Anon, self.spare_nodes(vma, span.start))
            .ok_or(Error::OutOfMemory)?;
        charge.put_on(large);
        // INV-9, INV-12: with it no walk is in the table, and no entry becomes one that names a swap slot.
        let alone = (!p.broken(Rule::CollapseIsAlone)).then(|| self.lock_rmap(vma));
        if let Err(hitch) = self.look_at_small(table, span, None) {
            drop(alone);
            self.free_one(large);
            return Err(hitch);
        }
        self.take_small((id, space), table, span);
        drop(alone);
        gather.add_table(span);
        work.did(LARGE_PAGES as u32 * cost::ENTRY);
        Ok(Some(Begun { start: span.start, large, table }))
    }

    /// Copies small pages that are taken out and flushed into their large page, lets go of them, and maps that. By whoever holds the VMAs alone.
    fn end_collapse(&self, id: SpaceId, space: &SpaceState, one: &Begun, work: &mut Work<'_, 'p, P>) {
        let (p, &Begun { start, large, table }) = (self.platform(), one);
        let span = PageRange::new(start, LARGE_PAGES);
        let Some(vma) = self.collapsible(id, space, span) else { return };
        let small = |i: u64| Some(table.peek(self, PageNumber(start.0 + i))).filter(|entry| entry.is_taken());
        for i in 0..LARGE_PAGES {
            let to = large.add(i as u32);
            match small(i) {
                Some(entry) => p.copy_frame(entry.frame(), to),
                None => p.clear_frame(to),
            }
            work.did(cost::FRAME);
        }
        let mut gone = Gone::new();
        for entry in (0..LARGE_PAGES).filter_map(small) {
            gone.add(self, entry.frame());
            work.did(cost::FRAME);
        }
        gone.free(self);
        self.keep_table(large, table.frame());
        self.map_large(id, vma, table::large_of(self, space.root(p), start), (start, large));
        self.emit(Event::LargeCollapsed);
    }

    /// Whether the first page of a range is one of a file.
    fn file_part(&self, id: SpaceId, range: PageRange) -> Result<bool, Error> {
        let (space, _shared) = self.read_lock(id)?;
        let found = self.find_vma(id, space, range.start);
        Ok(found.is_some_and(|(_, vma)| vma.file(self.platform()).is_some()))
    }

    /// The VMA that shows all of an aligned range, if that is memory of the space's own and no file's.
    fn collapsible(&self, id: SpaceId, space: &SpaceState, span: PageRange) -> Option<&'p Vma> {
        let p = self.platform();
        let (_, vma) = self.find_vma(id, space, span.start)?;
        (vma.file(p).is_none() && vma.range(p).covers(span)).then_some(vma)
    }

    /// What there is of a range of small pages, if nothing is in the way; and what a group pays of it.
    fn look_at_small(&self, table: Leaf, span: PageRange, group: Option<GroupSlot>) -> Result<There, Hitch> {
        let p = self.platform();
        let mut there = There::default();
        let mut hitch = None;
        self.each_small(table, span, |_, page, entry| {
            if entry.is_swapped() {
                hitch = Some(Hitch::Swapped);
            }
            if hitch.is_some() || !entry.is_mapped() {
                return;
            }
            let n = entry.frame();
            // INV-15.
            if rmap::is_kept(self, n) {
                hitch = Some(Hitch::Error(Error::NotCollapsible(page)));
            }
            there.pages += 1;
            // One whose slot another space's entry names stays for that.
            let paid = group.is_some_and(|group| {
                self.memmap().get(n).maps.get(p) == 1
                    && self.groups().of_frame(p, n) == group
                    && !self.slot_is_used(n)
            });
            there.paid += u64::from(paid);
        });
        hitch.map_or(Ok(there), Err)
    }

    /// Takes the entries of a table of small pages out, what each knew of its page with it, and the table out of the one above. By whoever holds the VMAs and
    /// the reverse map alone, and owes the flush.
    pub(super) fn take_small(&self, (id, space): (SpaceId, &SpaceState), table: Leaf, span: PageRange) {
        let p = self.platform();
        self.each_small(table, span, |leaf, page, entry| {
            if !entry.is_mapped() {
                return;
            }
            let old = leaf.take(page);
            leaf.write(page, old.taken());
            if old.may_be_dirty(p) && !p.broken(Rule::DirtyBeforeUnlock) {
                self.note_dirty(old.frame(), old.has(Entry::WRITABLE));
            }
            self.emit(Event::Unmapped { space: id, page, frame: old.frame(), pages: 1, deferred: false });
        });
        table::unhook_small(self, space.root(p), span.start);
    }

    /// Shows `each` the entries of a table of small pages, with its lock held for some at a time.
    pub(super) fn each_small(
        &self,
        table: Leaf,
        span: PageRange,
        mut each: impl FnMut(&LockedLeaf<'_, 'p, P>, PageNumber, Entry),
    ) {
        for first in (span.start.0..span.end().0).step_by(HELD as usize) {
            let locked = table.lock(self);
            for page in (first..first + HELD).map(PageNumber) {
                each(&locked, page, locked.read(page));
            }
        }
    }
}
