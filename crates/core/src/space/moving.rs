//! Move a range to another address, and pages to other frames: what is taken out in one place appears in another, and
//! between the two lies the flush.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{FrameNumber, NodeId, NodeSet, PageNumber, PageRange};
use crate::charge::charge;
use crate::error::Error;
use crate::event::{Event, FlushReason, Revoked};
use crate::handle::SpaceId;
use crate::kind::Kind;
use crate::memmap::{Frame, MAX_ORDER, flag};
use crate::paging::Entry;
use crate::paging::table::{self, Way};
use crate::platform::Platform;
use crate::profile::Scope;
use crate::resched::{Work, cost};
use crate::rule::Rule;
use crate::space::parking::Parking;
use crate::space::range::Gather;
use crate::view::Space;
use crate::vma::{SpaceState, Vma, check_mappable, check_range};

/// Entries carried at a time.
const TOGETHER: usize = 32;

/// A few taken entries on their way.
struct Carried {
    entries: [(PageNumber, Entry); TOGETHER],
    len: usize,
}

impl Carried {
    fn as_slice(&self) -> &[(PageNumber, Entry)] {
        &self.entries[..self.len]
    }
}

impl<'p, P: Platform> Space<'_, 'p, P> {
    /// Moves `from`, all of which must be mapped, so that it begins at `to`, where nothing may be mapped. Pages keep
    /// their frames; large pages become small ones. When it returns no CPU can use the old addresses (INV-4), and no
    /// CPU could use both at any time (PITFALLS 5). May wait.
    ///
    /// One flush, thus at most one IPI per CPU that uses the space and is neither lazy nor this one; none if no page
    /// was present and nothing is deferred. Where whole page tables become empty they are freed, behind a second flush that lazy CPUs
    /// hear too (INV-9): the first has to be over before an entry is at its new place.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`], [`Error::BadRange`], [`Error::NotMappable`], [`Error::NotMapped`], [`Error::Overlaps`] (also
    /// where the two ranges overlap), [`Error::MapCount`], [`Error::OutOfMemory`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// let heap = PageRange::new(PageNumber(0x400), 16);
    /// space.map(heap, Backing::Anonymous, Prot::ReadWrite)?;
    /// space.fault(heap.start.addr(), UserAccess::Write)?;
    /// let frame = space.lookup(heap.start)?.frame();
    /// space.move_range(heap, PageNumber(0x800))?;
    /// assert_eq!(space.lookup(PageNumber(0x800))?.frame(), frame);
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "mremap")]
    pub fn move_range(&self, from: PageRange, to: PageNumber) -> Result<(), Error> {
        let Space { mm, id } = *self;
        let _scope = charge(mm.platform(), Scope::MoveRange);
        let from = check_range(from)?;
        check_mappable(PageRange::new(to, from.pages))?;
        let mut work = Work::begin(mm);
        let (space, _alone) = mm.write_lock(id, from.hull(PageRange::new(to, from.pages)))?;
        mm.move_alone((id, space), from, to, &mut work)
    }

    /// Moves the pages of `range` that are anonymous, present and no other space's to frames of node `to`, as many as
    /// have room there; returns how many. Those that are [pinned](crate::Space::pin) stay, and are counted
    /// ([`Counter::PinnedKept`](crate::Counter::PinnedKept)). Large pages become small ones. May wait.
    ///
    /// One flush, thus at most one IPI per CPU that uses the space and is neither lazy nor this one; none if there is
    /// nothing to move.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`], [`Error::NoSuchNode`], [`Error::BadRange`], [`Error::NotMapped`], [`Error::OutOfMemory`]
    /// (no table to split a large page).
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// let heap = PageRange::new(PageNumber(0x400), 16);
    /// space.map(heap, Backing::Anonymous, Prot::ReadWrite)?;
    /// space.fault(heap.start.addr(), UserAccess::Write)?;
    /// assert_eq!(space.migrate(heap, NodeId(0))?, 0); // it is there
    /// assert_eq!(space.migrate(heap, NodeId(1)), Err(Error::NoSuchNode));
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "move_pages")]
    pub fn migrate(&self, range: PageRange, to: NodeId) -> Result<u64, Error> {
        let Space { mm, id } = *self;
        let _scope = charge(mm.platform(), Scope::Migrate);
        let range = check_range(range)?;
        let mut work = Work::begin(mm);
        let (space, _alone) = mm.write_lock(id, range)?;
        if !mm.has_node(to) {
            return Err(Error::NoSuchNode);
        }
        if let Some(hole) = mm.first_unmapped(space, range, &mut work) {
            return Err(Error::NotMapped(hole));
        }
        mm.migrate_alone((id, space), range, Moves::To(NodeSet::ALL, to), &mut work)
    }
}

/// Which pages are to move, and where to.
#[derive(Clone, Copy)]
pub(super) enum Moves {
    /// Those of these nodes, but for this one, to this one.
    To(NodeSet, NodeId),
    /// Those of the block of the largest order that begins here, to wherever there is room. Nothing is allocated from it.
    OutOf(FrameNumber),
}

impl Moves {
    fn concerns<P: Platform>(self, p: &P, n: FrameNumber, frame: &Frame) -> bool {
        match self {
            Moves::To(from, to) => {
                let node = Frame::node_of(frame.state.get(p));
                node != to && from.contains(node)
            }
            Moves::OutOf(block) => (n.0 ^ block.0) >> MAX_ORDER == 0,
        }
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Moves the page in `n` out of a block from which nothing is allocated, if it is an anonymous one that one space shows. One flush.
    /// With no lock held. May wait.
    pub(crate) fn move_out_of(&self, block: FrameNumber, n: FrameNumber, work: &mut Work<'_, 'p, P>) {
        let p = self.platform();
        let Some((id, page)) = crate::reclaim::place_of(self, n) else { return };
        let pages = 1 << Frame::order_of(self.memmap().get(n).state.get(p));
        let _scope = charge(p, Scope::Migrate);
        // The place was a moment's truth: what is there now may be another page, and stays if it is none of the block.
        let Ok(range) = check_range(PageRange::new(page, pages)) else { return };
        let Ok((space, _alone)) = self.write_lock(id, range) else { return };
        if self.first_unmapped(space, range, work).is_none() {
            // Without a table to make a large page small it stays.
            let _stays = self.migrate_alone((id, space), range, Moves::OutOf(block), work);
        }
    }

    /// Moves the pages of a range, all of which is mapped. By whoever holds the VMAs alone. Returns how many.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]: no table to make a large page small.
    pub(super) fn migrate_alone(
        &self,
        (id, space): (SpaceId, &'p SpaceState),
        range: PageRange,
        moves: Moves,
        work: &mut Work<'_, 'p, P>,
    ) -> Result<u64, Error> {
        let (mm, p) = (self, self.platform());
        mm.split_all_large(space, range, work)?;
        let mut gather = Gather::begin(p, space);
        mm.visit(space, range, (work, cost::ENTRY), |leaf, page, entry, pages| {
            if !entry.is_mapped() {
                return;
            }
            let frame = mm.memmap().get(entry.frame());
            let concerns = moves.concerns(p, entry.frame(), frame);
            // What has a swap slot stays where it is: the slot would lead to the old frame.
            let in_swap = mm.slot_of(entry.frame()).is_some();
            if !concerns || frame.kind(p) != Kind::Anon || frame.maps.get(p) != 1 || in_swap {
                return;
            }
            // INV-15. A pin is taken by whoever shares the VMAs, so none comes meanwhile.
            if frame.is_pinned(p) && !p.broken(Rule::PinnedIsMapped) {
                return mm.emit(Event::PinnedKept);
            }
            let old = leaf.take(page);
            leaf.write(page, old.taken());
            mm.emit(Event::Unmapped { space: id, page, frame: old.frame(), pages: 1, deferred: false });
            // Read-only ones too (PITFALLS 6): a CPU would go on reading the old frame.
            if mm.may_be_cached(space, page, old)
                && (old.has(Entry::WRITABLE) || !p.broken(Rule::FlushNarrowed))
            {
                gather.add(page, pages);
            }
        });
        gather.flush(mm, id, FlushReason::Migrate, Rule::FlushBeforeMigrate).done();
        let mut moved = 0;
        mm.carry(
            space,
            range,
            (work, cost::FRAME),
            // Those that name swap slots stay: whoever has moved a page of a locked range looks for them there (`rmap::missed_lock`).
            (Entry::is_taken, || ()),
            |page, entry| {
                let old = entry.frame();
                let new = mm.copy_of(old, moves, || match moves {
                    Moves::To(..) => NodeSet::ALL,
                    Moves::OutOf(_) => mm.nodes_for(id, space, page),
                });
                moved += u64::from(new.is_some());
                let frame = new.unwrap_or(old);
                if let Way::Small(leaf) = table::find(mm, space.root(p), page) {
                    leaf.lock(mm).write(page, entry.restored().leading_to(frame));
                }
                mm.emit(Event::Mapped { space: id, page, frame, pages: 1 });
                if let Some(new) = new {
                    mm.emit(Event::Migrated { from: old, to: new });
                    mm.drop_mapping(old);
                    if mm.config().swap {
                        mm.lru_add(new);
                    }
                }
            },
        );
        Ok(moved)
    }

    /// Moves a range to where nothing is mapped. By whoever holds the VMAs alone. May wait.
    ///
    /// # Errors
    /// [`Error::NotMapped`], [`Error::Overlaps`], [`Error::MapCount`], [`Error::OutOfMemory`].
    pub(super) fn move_alone(
        &self,
        (id, space): (SpaceId, &'p SpaceState),
        from: PageRange,
        to: PageNumber,
        work: &mut Work<'_, 'p, P>,
    ) -> Result<(), Error> {
        let (mm, p) = (self, self.platform());
        let target = PageRange::new(to, from.pages);
        if let Some(clash) = mm.first_mapped(space, target) {
            return Err(Error::Overlaps(clash));
        }
        mm.split_vmas(id, space, from, work)?;
        let ready = mm
            .split_all_large(space, from, work)
            .and_then(|()| mm.make_way(space, from, to, work))
            .and_then(|()| mm.link_moved((id, space), from, to, work));
        if let Err(error) = ready {
            mm.merge_vmas(space, from, work);
            // Tables that were made for it.
            mm.drop_emptied((id, space), target, FlushReason::Move, work);
            return Err(error);
        }
        let mut gather = Gather::begin(p, space);
        mm.settle(id, space, target, work);
        mm.take_range(id, space, from, (&mut gather, &mut Parking::never()), work);
        gather.flush(mm, id, FlushReason::Move, Rule::FlushBeforeMove).done();
        let there = |page: PageNumber| PageNumber(page.0 - from.start.0 + to.0);
        while let Some((handle, vma)) = mm.vma_inside(space, from) {
            let together = || mm.lock_rmap(vma);
            let goes = |entry: Entry| entry.is_taken() || entry.is_swapped();
            let units = cost::ENTRY;
            mm.carry(space, vma.range(p), (work, units), (goes, together), |page, entry| {
                let new = there(page);
                let moved =
                    if entry.is_taken() { mm.without_stale_write(vma, entry.restored()) } else { entry };
                if let Way::Small(leaf) = table::find(mm, space.root(p), new) {
                    leaf.lock(mm).write(new, moved);
                }
                if moved.is_mapped() {
                    mm.emit(Event::Mapped { space: id, page: new, frame: entry.frame(), pages: 1 });
                }
            });
            mm.remove_vma(space, handle, mm.lock_rmap(vma));
            work.did(cost::LINK);
        }
        mm.drop_emptied((id, space), from, FlushReason::Move, work);
        mm.revoke(id, space, from, Revoked::All);
        mm.merge_vmas(space, target, work);
        Ok(())
    }

    /// A copy of an anonymous page that nobody can write to now, where it is to go; it has the mapping's reference.
    fn copy_of(
        &self,
        old: FrameNumber,
        moves: Moves,
        nodes: impl FnOnce() -> NodeSet,
    ) -> Option<FrameNumber> {
        let p = self.platform();
        let node_of = |n: FrameNumber| Frame::node_of(self.memmap().get(n).state.get(p));
        let node = if let Moves::To(_, node) = moves { node } else { node_of(old) };
        let new = self.alloc_in_place(Kind::Anon, (node, nodes()), self.groups().of_frame(p, old))?;
        if matches!(moves, Moves::To(_, node) if node_of(new) != node) {
            self.free_one(new);
            return None;
        }
        p.copy_frame(old, new);
        let (from, copy) = (self.memmap().get(old), self.memmap().get(new));
        copy.owner.set(p, from.owner.get(p));
        // Without the slot: reclaim may have given one to the old page since this operation looked.
        copy.index.set(p, from.anon_index(p));
        copy.maps.set(p, 1);
        copy.refs.set(p, 1);
        Some(new)
    }

    /// Links a VMA at the new address of each one in `from`, which shows the same and has no entries yet. The old one stays
    /// linked until its entries have moved, and comes first in the trees of the reverse map: a walk finds each entry at
    /// the one or at the other, however often it lets go of the tree's lock in between (`rmap_tree.rs`).
    fn link_moved(
        &self,
        (id, space): (SpaceId, &SpaceState),
        from: PageRange,
        to: PageNumber,
        work: &mut Work<'_, 'p, P>,
    ) -> Result<(), Error> {
        let p = self.platform();
        let there = |page: PageNumber| PageNumber(page.0 - from.start.0 + to.0);
        for (_, vma) in self.vmas_from(space, from.start) {
            if vma.range(p).start >= from.end() {
                break;
            }
            let handle = match self.new_vma(space) {
                Ok(handle) => handle,
                Err(error) => {
                    let made = PageRange::between(to, there(vma.range(p).start));
                    while let Some((handle, vma)) = self.vma_inside(space, made) {
                        self.remove_vma(space, handle, self.lock_rmap(vma));
                    }
                    return Err(error);
                }
            };
            self.vma(handle).describe_moved(p, vma, there(vma.range(p).start), id);
            let alone = self.lock_rmap(vma);
            self.link_vma(space, handle);
            drop(alone);
            work.did(cost::LINK);
        }
        Ok(())
    }

    /// The first VMA in a range, if it lies in it whole.
    fn vma_inside(&self, space: &SpaceState, range: PageRange) -> Option<(u32, &'p Vma)> {
        self.vma_from(space, range.start).filter(|(_, vma)| range.covers(vma.range(self.platform())))
    }

    /// Takes those entries of a range that are to go out of their tables, a few at a time, and hands on
    /// each with no spin lock held. Counts `units` for each. What `together` returns is held but where this gives way,
    /// and then no entry is on its way.
    fn carry<G>(
        &self,
        space: &SpaceState,
        range: PageRange,
        (work, units): (&mut Work<'_, 'p, P>, u32),
        (goes, together): (impl Fn(Entry) -> bool, impl Fn() -> G),
        mut put: impl FnMut(PageNumber, Entry),
    ) {
        let mut page = range.start;
        let mut held = Some(together());
        while page < range.end() {
            let mut carried = Carried { entries: [(PageNumber(0), Entry::NONE); TOGETHER], len: 0 };
            let mut looked = cost::TABLE;
            match table::find(self, space.root(self.platform()), page) {
                Way::Gap(next) => page = next,
                Way::Small(leaf) | Way::Large(leaf) => {
                    let end = leaf.end(page).min(range.end());
                    let locked = leaf.lock(self);
                    while page < end && carried.len < TOGETHER {
                        let entry = locked.read(page);
                        if goes(entry) {
                            locked.write(page, Entry::NONE);
                            carried.entries[carried.len] = (page, entry);
                            carried.len += 1;
                        }
                        page = PageNumber(page.0 + leaf.step()).min(end);
                        looked += 1;
                    }
                }
            }
            carried.as_slice().iter().for_each(|&(page, entry)| put(page, entry));
            if work.is_due(looked + units * carried.len as u32) {
                drop(held.take());
                work.give_way();
                held = Some(together());
            }
        }
    }

    /// The entry, without the right to write if its page is being written out (INV-2), or was and is of a watched file: write-back,
    /// which found it taken out, flushed the space and left it alone.
    ///
    /// ```text
    ///   this CPU                           write-back
    ///   entry taken out, not flushed
    ///                                      page locked; no entry here, the space is changing
    ///                                      flush, write begins
    ///   flush
    ///   page locked: entry read-only
    ///                                      write ends, page unlocked
    /// ```
    ///
    /// It locks a page before it looks for entries, and looks with the tree of the file's VMAs shared, which is this CPU's
    /// alone here: so it has locked this one by now, or finds the entry at its new place.
    fn without_stale_write(&self, vma: &Vma, entry: Entry) -> Entry {
        let p = self.platform();
        let state = self.memmap().get(entry.frame()).state.load(p, Ordering::Acquire);
        if Frame::kind_of(state) != Kind::File {
            return entry;
        }
        let busy = state & flag::LOCKED != 0 && !p.broken(Rule::WriteWaitsForIo);
        let clean = state & flag::DIRTY == 0 && vma.is_watched(p) && !p.broken(Rule::MovedIsReadOnly);
        if busy || clean { entry.read_only() } else { entry }
    }

    /// Makes the tables to which the entries of `from` will move.
    fn make_way(
        &self,
        space: &SpaceState,
        from: PageRange,
        to: PageNumber,
        work: &mut Work<'_, 'p, P>,
    ) -> Result<(), Error> {
        let p = self.platform();
        let (root, payer) = (space.root(p), || self.group_of(space));
        let there = |page: PageNumber| PageNumber(page.0 - from.start.0 + to.0);
        let mut page = from.start;
        while page < from.end() {
            work.did(cost::FRAME);
            match table::find(self, root, page) {
                Way::Gap(next) => page = next,
                Way::Small(leaf) | Way::Large(leaf) => {
                    let end = leaf.end(page).min(from.end());
                    // What one table holds goes to two at most.
                    table::find_or_make(self, root, there(page), &payer)?;
                    table::find_or_make(self, root, there(PageNumber(end.0 - 1)), &payer)?;
                    page = end;
                }
            }
        }
        Ok(())
    }
}
