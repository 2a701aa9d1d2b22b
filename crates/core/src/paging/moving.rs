//! Move a range to another address, and pages to other frames: what is taken out in one place appears in another, and
//! between the two lies the flush.

use super::range::Owed;
use super::table::{self, Way};
use super::{Entry, Space, SpaceId, check_range};
use crate::Manager;
use crate::addr::{FrameNumber, NodeId, PageNumber, PageRange};
use crate::error::Error;
use crate::event::{Event, FlushReason, Revoked};
use crate::frame::{AllocFrom, Frame, Kind};
use crate::platform::Platform;
use crate::profile::{self, Scope};
use crate::rule::Rule;

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

impl<'p, P: Platform> Manager<'p, P> {
    /// Moves `from`, all of which must be mapped, so that it begins at `to`, where nothing may be mapped. Pages keep
    /// their frames; large pages become small ones. When it returns no CPU can use the old addresses (INV-4), and no
    /// CPU could use both at any time (PITFALLS 5). May wait.
    ///
    /// One flush, thus at most one IPI per CPU that uses the space and is neither lazy nor this one; none if no page
    /// was present and nothing is deferred.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`], [`Error::BadRange`], [`Error::NotMapped`], [`Error::Overlaps`] (also where the two ranges
    /// overlap), [`Error::OutOfMemory`].
    #[doc(alias = "mremap")]
    pub fn move_range(&self, id: SpaceId, from: PageRange, to: PageNumber) -> Result<(), Error> {
        let _scope = profile::scope(self.platform(), Scope::MoveRange);
        let p = self.platform();
        let from = check_range(from)?;
        let target = check_range(PageRange::new(to, from.pages))?;
        let (space, _alone) = self.alone_in(id)?;
        if let Some(clash) = self.first_mapped(space, target) {
            return Err(Error::Overlaps(clash));
        }
        self.carve(id, space, from)?;
        let ready = self.split_all_large(space, from).and_then(|()| self.make_way(space, from, to));
        if let Err(error) = ready {
            self.mend(space, from);
            return Err(error);
        }
        let mut owed = Owed::begin(p, space);
        self.take_range(id, space, from, &mut owed);
        owed.flush(self, id, FlushReason::Move, Rule::FlushBeforeMove).done();
        let there = |page: PageNumber| PageNumber(page.0 - from.start.0 + to.0);
        while let Some((handle, region)) =
            self.region_from(space, from.start).filter(|(_, r)| from.covers(r.range(p)))
        {
            let range = region.range(p);
            // Entries and region move in one step for the reverse map.
            let _alone = self.alone_with_shown(region);
            self.carry(space, range, |page, entry| {
                let new = there(page);
                let moved = if entry.is_taken() { self.without_busy_write(entry.restored()) } else { entry };
                if let Way::Small(leaf) = table::find(self, space.root(p), new) {
                    leaf.lock(self).write(new, moved);
                }
                if moved.is_present() {
                    self.emit(Event::Mapped { space: id, page: new, frame: entry.frame(), pages: 1 });
                }
            });
            self.move_region(space, handle, there(range.start));
        }
        self.revoke(id, space, from, Revoked::All);
        self.mend(space, target);
        Ok(())
    }

    /// Moves the pages of `range` that are anonymous, present and no other space's to frames of node `to`, as many as
    /// have room there; gives how many. Large pages become small ones. May wait.
    ///
    /// One flush, thus at most one IPI per CPU that uses the space and is neither lazy nor this one; none if there is
    /// nothing to move.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`], [`Error::NoSuchNode`], [`Error::BadRange`], [`Error::NotMapped`], [`Error::OutOfMemory`]
    /// (no table to split a large page).
    #[doc(alias = "move_pages")]
    pub fn migrate(&self, id: SpaceId, range: PageRange, to: NodeId) -> Result<u64, Error> {
        let _scope = profile::scope(self.platform(), Scope::Migrate);
        let p = self.platform();
        let range = check_range(range)?;
        let (space, _alone) = self.alone_in(id)?;
        if !self.has_node(to) {
            return Err(Error::NoSuchNode);
        }
        if let Some(hole) = self.first_unmapped(space, range) {
            return Err(Error::NotMapped(hole));
        }
        self.split_all_large(space, range)?;
        let mut owed = Owed::begin(p, space);
        self.visit(space, range, |leaf, page, entry, pages| {
            if !entry.is_present() {
                return;
            }
            let frame = self.frames().get(entry.frame());
            let elsewhere = Frame::node_of(frame.state.get(p)) != to;
            // What has a swap slot stays where it is: the slot would lead to the old frame.
            let in_swap = self.slot_of(entry.frame()).is_some();
            if !elsewhere || frame.kind(p) != Kind::Anon || frame.maps.get(p) != 1 || in_swap {
                return;
            }
            let old = leaf.take(page);
            leaf.write(page, old.taken());
            self.emit(Event::Unmapped { space: id, page, frame: old.frame(), pages: 1, deferred: false });
            // Read-only ones too (PITFALLS 6): a CPU would go on reading the old frame.
            if old.has(Entry::WRITABLE) || !p.broken(Rule::FlushNarrowed) {
                owed.add(page, pages);
            }
        });
        owed.flush(self, id, FlushReason::Migrate, Rule::FlushBeforeMigrate).done();
        let mut moved = 0;
        self.carry(space, range, |page, entry| {
            if entry.is_swapped() {
                if let Way::Small(leaf) = table::find(self, space.root(p), page) {
                    leaf.lock(self).write(page, entry);
                }
                return;
            }
            let old = entry.frame();
            let new = self.copy_to(old, to);
            moved += u64::from(new.is_some());
            let frame = new.unwrap_or(old);
            if let Way::Small(leaf) = table::find(self, space.root(p), page) {
                leaf.lock(self).write(page, entry.restored().leading_to(frame));
            }
            self.emit(Event::Mapped { space: id, page, frame, pages: 1 });
            if let Some(new) = new {
                self.emit(Event::Migrated);
                self.drop_mapping(old);
                if self.config().swap {
                    self.lru_add(new);
                }
            }
        });
        Ok(moved)
    }

    /// A copy of an anonymous page that nobody can write to now, on this node; it has the mapping's hold.
    fn copy_to(&self, old: FrameNumber, to: NodeId) -> Option<FrameNumber> {
        let p = self.platform();
        let new = self.alloc_one(Kind::Anon, AllocFrom { node: Some(to), may_reclaim: false }).ok()?;
        if Frame::node_of(self.frames().get(new).state.get(p)) != to {
            self.free_one(new);
            return None;
        }
        p.copy_frame(old, new);
        let (from, copy) = (self.frames().get(old), self.frames().get(new));
        copy.owner.set(p, from.owner.get(p));
        // Without the slot: reclaim may have given one to the old page since this operation looked.
        copy.index.set(p, from.family_index(p));
        copy.maps.set(p, 1);
        copy.refs.set(p, 1);
        Some(new)
    }

    /// Takes the taken entries of a range out of their tables, and those that name swap slots, a few at a time, and hands on
    /// each with no lock held.
    fn carry(&self, space: &Space, range: PageRange, mut put: impl FnMut(PageNumber, Entry)) {
        let mut from = Some(range.start);
        while let Some(start) = from {
            let mut carried = Carried { entries: [(PageNumber(0), Entry::NONE); TOGETHER], len: 0 };
            from = self.visit_until(space, PageRange::between(start, range.end()), |leaf, page, entry, _| {
                if entry.is_taken() || entry.is_swapped() {
                    if carried.len == TOGETHER {
                        return false;
                    }
                    leaf.write(page, Entry::NONE);
                    carried.entries[carried.len] = (page, entry);
                    carried.len += 1;
                }
                true
            });
            carried.as_slice().iter().for_each(|&(page, entry)| put(page, entry));
        }
    }

    /// The entry, without the right to write if its page is being written out (INV-2): write-back, which found it taken
    /// out, flushed the space and left it alone.
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
    /// It locks a page before it looks for entries, and looks with the file shared, which is this CPU's alone here: so it
    /// has locked this one by now, or finds the entry at its new place.
    fn without_busy_write(&self, entry: Entry) -> Entry {
        let p = self.platform();
        let n = entry.frame();
        let busy = self.frames().get(n).kind(p) == Kind::File && self.is_page_locked(n);
        if busy && !p.broken(Rule::WriteWaitsForIo) { entry.read_only() } else { entry }
    }

    /// Makes the tables to which the entries of `from` will move.
    fn make_way(&self, space: &Space, from: PageRange, to: PageNumber) -> Result<(), Error> {
        let root = space.root(self.platform());
        let there = |page: PageNumber| PageNumber(page.0 - from.start.0 + to.0);
        let mut page = from.start;
        while page < from.end() {
            match table::find(self, root, page) {
                Way::Gap(next) => page = next,
                Way::Small(leaf) | Way::Large(leaf) => {
                    let end = leaf.end(page).min(from.end());
                    // What one table holds goes to two at most.
                    table::find_or_make(self, root, there(page))?;
                    table::find_or_make(self, root, there(PageNumber(end.0 - 1)))?;
                    page = end;
                }
            }
        }
        Ok(())
    }
}
