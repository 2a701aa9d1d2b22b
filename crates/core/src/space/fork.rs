//! Fork: a second space that shows the same, and copies what either writes.

use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::charge::charge;
use crate::error::Error;
use crate::event::{Event, FlushReason, Revoked};
use crate::handle::SpaceId;
use crate::kind::Kind;
use crate::memmap::{Frame, flag};
use crate::paging::Entry;
use crate::paging::table::{self, Way};
use crate::platform::Platform;
use crate::profile::Scope;
use crate::resched::{Work, cost};
use crate::rule::Rule;
use crate::space::range::Gather;
use crate::view::Space;
use crate::vma::{SpaceState, Vma};
use core::sync::atomic::Ordering;

impl<'p, P: Platform> Space<'_, 'p, P> {
    /// A new space with the same mappings. What is a space's own (anonymous memory, copies of a file's pages) is shared
    /// until one of them writes; shared mappings stay shared. Large pages become small ones in both. When it returns no
    /// CPU can write to what is shared without a fault (INV-4). May wait.
    ///
    /// One flush of the old space, thus at most one IPI per CPU that uses it and is neither lazy nor this one; none if
    /// none of its own pages was writable and nothing is deferred. A later write fault on a page that both have costs
    /// one flush of that page in the space that writes; if the other has let go of it meanwhile, none. A page of its own that
    /// is [pinned](crate::Space::pin) is copied for the new space at once.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`], [`Error::OutOfMemory`]: there is no new space then, and the old one shows what it did.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// let heap = PageRange::new(PageNumber(0x400), 16);
    /// space.map(heap, Backing::Anonymous, Prot::ReadWrite)?;
    /// space.fault(heap.start.addr(), UserAccess::Write)?;
    /// let child = mm.space(space.fork()?);
    /// // One frame for both, until one of them writes.
    /// assert_eq!(child.lookup(heap.start)?.frame(), space.lookup(heap.start)?.frame());
    /// child.fault(heap.start.addr(), UserAccess::Write)?;
    /// assert_ne!(child.lookup(heap.start)?.frame(), space.lookup(heap.start)?.frame());
    /// # Ok(())
    /// # });
    /// ```
    pub fn fork(&self) -> Result<SpaceId, Error> {
        let Space { mm, id } = *self;
        let _scope = charge(mm.platform(), Scope::Fork);
        let p = mm.platform();
        // Its root is charged where its pages will be.
        let group = mm.group_of(mm.find_space(id)?);
        let child = mm.new_space(group)?;
        let (parent, alone) = match mm.write_lock(id, PageRange::MAPPABLE) {
            Ok(found) => found,
            Err(error) => {
                mm.space(child).destroy()?;
                return Err(error);
            }
        };
        // Nobody has been told of the child, but who looks at all spaces finds it (`Swap::off`), with VMAs and entries that come one by one.
        let (_, child_alone) = mm.write_lock(child, PageRange::MAPPABLE)?;
        mm.join_group(mm.space_at(child), parent.group_slot(p));
        mm.space_at(child).nodes.store(parent.nodes.load(Ordering::Relaxed), Ordering::Relaxed);
        let (mut gather, mut work) = (Gather::begin(p, parent), Work::begin(mm));
        let copied = mm.copy_vmas(parent, child, &mut gather, &mut work);
        gather.flush(mm, id, FlushReason::Fork, Rule::FlushBeforeForkReturns).done();
        // Those that are pinned now that nobody can write to them: no CPU, that is.
        let copied =
            copied.and_then(|pinned| if pinned { mm.copy_pinned(parent, child, &mut work) } else { Ok(()) });
        if mm.root.locks.load(Ordering::Relaxed) != 0 {
            // What differed by its lock alone is one there. Behind the entries: a walk that has passed the first of them begins anew.
            mm.merge_vmas(mm.space_at(child), PageRange::MAPPABLE, &mut work);
        }
        drop(child_alone);
        for (_, vma) in mm.vmas_of(parent) {
            if vma.is_private(p) {
                mm.revoke(id, parent, vma.range(p), Revoked::Writes);
            }
            work.did(cost::VMA);
        }
        drop(alone);
        if let Err(error) = copied {
            // Nobody has seen it, so nobody runs in it.
            mm.space(child).destroy()?;
            return Err(error);
        }
        Ok(child)
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Returns whether pages are left to be copied, after the flush.
    fn copy_vmas(
        &self,
        parent: &SpaceState,
        id: SpaceId,
        gather: &mut Gather<'_>,
        work: &mut Work<'_, 'p, P>,
    ) -> Result<bool, Error> {
        let p = self.platform();
        let child = self.space_at(id);
        let mut pinned = false;
        for (_, vma) in self.vmas_of(parent) {
            let handle = self.new_vma(child)?;
            let range = vma.range(p);
            self.vma(handle).describe_part(p, vma, range, id);
            if self.root.locks.load(Ordering::Relaxed) != 0 {
                self.vma(handle).end_lock(p, false);
            }
            let alone = self.lock_rmap(vma);
            self.link_vma(child, handle);
            drop(alone);
            work.did(cost::LINK);
            if vma.is_private(p) {
                self.split_own_large(parent, range, work)?;
                pinned |= self.copy_entries(parent, (id, child), vma, gather, work)?;
            }
        }
        Ok(pinned)
    }

    /// Lets the child have every anonymous page that the parent has in a VMA, and neither write to it. Pages of a
    /// file come by fault. Returns whether one is pinned, and left out.
    fn copy_entries(
        &self,
        parent: &SpaceState,
        (id, child): (SpaceId, &SpaceState),
        vma: &Vma,
        gather: &mut Gather<'_>,
        work: &mut Work<'_, 'p, P>,
    ) -> Result<bool, Error> {
        let p = self.platform();
        let range = vma.range(p);
        let (mut page, mut pinned) = (range.start, false);
        while page < range.end() {
            work.did(cost::TABLE);
            let from = match table::find(self, parent.root(p), page) {
                Way::Gap(next) => {
                    page = next;
                    continue;
                }
                Way::Small(leaf) => leaf,
                // Of a file: what the child has of it comes by fault.
                Way::Large(leaf) => {
                    page = leaf.end(page);
                    continue;
                }
            };
            let to = table::find_or_make(self, child.root(p), page, &|| self.group_of(child))?;
            let end = from.end(page).min(range.end());
            let (from, to) = (from.lock(self), to.lock(self));
            let mut due = false;
            while page < end && !due {
                let at = page;
                page = PageNumber(at.0 + 1);
                let entry = from.read(at);
                due = work.is_due(if entry == Entry::NONE { 1 } else { cost::ENTRY });
                if let Some(slot) = entry.swap_slot() {
                    self.swap_dup(slot);
                    to.write(at, entry);
                }
                if !entry.is_mapped() {
                    continue;
                }
                let frame = self.memmap().get(entry.frame());
                if frame.kind(p) != Kind::Anon {
                    continue;
                }
                if entry.has(Entry::WRITABLE) {
                    let old = from.clear_bits(at, Entry::WRITABLE);
                    // Until the flush a CPU may go on writing; where a clean entry lets it, no dirty bit will tell.
                    if old.may_be_dirty(p) && !p.broken(Rule::DirtyBeforeUnlock) {
                        frame.set_flags(p, flag::DIRTY);
                    }
                    if self.may_be_cached(parent, at, old) {
                        gather.add(at, 1);
                    }
                }
                // Relaxed: the parent's mapping keeps the page meanwhile.
                let maps = frame.maps.fetch_add(p, 1, Ordering::Relaxed);
                let refs = frame.refs.fetch_add(p, 1, Ordering::Relaxed);
                if Frame::tells_pin(refs, maps) && !p.broken(Rule::ForkCopiesPinned) {
                    // INV-15. Pins are taken by whoever shares the VMAs: none comes meanwhile. So a fork in which nothing is pinned looks at
                    // no more words than it writes.
                    frame.maps.fetch_sub(p, 1, Ordering::Relaxed);
                    frame.refs.fetch_sub(p, 1, Ordering::Relaxed);
                    pinned = true;
                    continue;
                }
                to.write(at, Entry(entry.0 & !(Entry::WRITABLE | Entry::DIRTY)));
                self.emit(Event::Mapped { space: id, page: at, frame: entry.frame(), pages: 1 });
            }
        }
        Ok(pinned)
    }

    /// Copies the pages that were left out for the child. Neither space is anybody else's, and no CPU can write to what is copied; the device
    /// whose pins these are may: what it writes at this moment the child has or has not.
    fn copy_pinned(&self, parent: &SpaceState, id: SpaceId, work: &mut Work<'_, 'p, P>) -> Result<(), Error> {
        let (p, child) = (self.platform(), self.space_at(id));
        let is_left = |page: PageNumber, entry: Entry| {
            let here = entry.is_mapped() && self.memmap().get(entry.frame()).kind(p) == Kind::Anon;
            let there = || match table::find(self, child.root(p), page) {
                Way::Small(leaf) | Way::Large(leaf) => leaf.peek(self, page) != Entry::NONE,
                Way::Gap(_) => false,
            };
            (here || entry.is_swapped()) && !there()
        };
        for (_, vma) in self.vmas_of(parent) {
            let mut range = vma.range(p);
            if !vma.is_private(p) {
                continue;
            }
            while let Some(page) =
                self.visit_until(parent, range, (&mut *work, cost::ENTRY), |_, page, entry, _| {
                    !is_left(page, entry)
                })
            {
                self.copy_for(parent, (id, child), vma, page)?;
                range = PageRange::between(PageNumber(page.0 + 1), range.end());
                work.did(cost::FRAME);
            }
        }
        Ok(())
    }

    /// Gives the child a copy of a page of the parent's own; or its slot, if it was unpinned meanwhile and reclaim took it; or nothing, if its
    /// content was not wanted and reclaim dropped it.
    fn copy_for(
        &self,
        parent: &SpaceState,
        (id, child): (SpaceId, &SpaceState),
        vma: &Vma,
        page: PageNumber,
    ) -> Result<(), Error> {
        let p = self.platform();
        let to = table::find_or_make(self, child.root(p), page, &|| self.group_of(child))?;
        let Way::Small(from) = table::find(self, parent.root(p), page) else { return Ok(()) };
        let copy = self.new_anon(child, vma, page)?;
        let locked = from.lock(self);
        let entry = locked.read(page);
        if let Some(slot) = entry.swap_slot() {
            self.swap_dup(slot);
            to.lock(self).write(page, entry);
            drop(locked);
            self.free_one(copy);
            return Ok(());
        }
        if !entry.is_mapped() {
            drop(locked);
            self.free_one(copy);
            return Ok(());
        }
        // Under the lock: reclaim does not take it meanwhile.
        p.copy_frame(entry.frame(), copy);
        drop(locked);
        let list = self.ref_for_list(copy);
        self.memmap().get(copy).maps.set(p, 1);
        to.lock(self).write(page, Entry::page(copy, vma.prot(p)));
        self.emit(Event::Mapped { space: id, page, frame: copy, pages: 1 });
        self.emit(Event::Copied);
        if list {
            self.list_held(copy);
        }
        Ok(())
    }
}
