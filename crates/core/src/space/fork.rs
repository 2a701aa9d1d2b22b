//! Fork: a second space that shows the same, and copies what either writes.

use crate::Manager;
use crate::addr::PageNumber;
use crate::charge::charge;
use crate::error::Error;
use crate::event::{Event, FlushReason, Revoked};
use crate::handle::SpaceId;
use crate::kind::Kind;
use crate::memmap::flag;
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
    /// one flush of that page in the space that writes; if the other has let go of it meanwhile, none.
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
        mm.find_space(id)?;
        let child = mm.create_space()?;
        let (parent, alone) = match mm.write_lock(id) {
            Ok(found) => found,
            Err(error) => {
                mm.space(child).destroy()?;
                return Err(error);
            }
        };
        let (mut gather, mut work) = (Gather::begin(p, parent), Work::begin(mm));
        let copied = mm.copy_vmas(parent, child, &mut gather, &mut work);
        gather.flush(mm, id, FlushReason::Fork, Rule::FlushBeforeForkReturns).done();
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
    fn copy_vmas(
        &self,
        parent: &SpaceState,
        id: SpaceId,
        gather: &mut Gather<'_>,
        work: &mut Work<'_, 'p, P>,
    ) -> Result<(), Error> {
        let p = self.platform();
        let child = self.space_at(id);
        for (_, vma) in self.vmas_of(parent) {
            let handle = self.new_vma(child)?;
            let range = vma.range(p);
            self.vma(handle).describe_part(p, vma, range, id);
            let alone = self.lock_rmap(vma);
            self.link_vma(child, handle);
            drop(alone);
            work.did(cost::LINK);
            if vma.is_private(p) {
                self.split_all_large(parent, range, work)?;
                self.copy_entries(parent, (id, child), vma, gather, work)?;
            }
        }
        Ok(())
    }

    /// Lets the child have every anonymous page that the parent has in a VMA, and neither write to it. Pages of a
    /// file come by fault.
    fn copy_entries(
        &self,
        parent: &SpaceState,
        (id, child): (SpaceId, &SpaceState),
        vma: &Vma,
        gather: &mut Gather<'_>,
        work: &mut Work<'_, 'p, P>,
    ) -> Result<(), Error> {
        let p = self.platform();
        let range = vma.range(p);
        let mut page = range.start;
        while page < range.end() {
            work.did(cost::TABLE);
            let from = match table::find(self, parent.root(p), page) {
                Way::Gap(next) => {
                    page = next;
                    continue;
                }
                Way::Small(leaf) | Way::Large(leaf) => leaf,
            };
            let to = table::find_or_make(self, child.root(p), page)?;
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
                frame.maps.fetch_add(p, 1, Ordering::Relaxed);
                frame.refs.fetch_add(p, 1, Ordering::Relaxed);
                to.write(at, Entry(entry.0 & !(Entry::WRITABLE | Entry::DIRTY)));
                self.emit(Event::Mapped { space: id, page: at, frame: entry.frame(), pages: 1 });
            }
        }
        Ok(())
    }
}
