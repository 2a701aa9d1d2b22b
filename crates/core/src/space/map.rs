//! Map, unmap, and the life of a space.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::charge::charge;
use crate::error::Error;
use crate::event::FlushReason;
use crate::file::MAX_PAGES;
use crate::frame::AllocFrom;
use crate::handle::{GroupSlot, SpaceId, SpaceSlot};
use crate::paging::{Backing, Prot, table};
use crate::platform::Platform;
use crate::profile::Scope;
use crate::resched::{Work, cost};
use crate::space::parking::Parking;
use crate::space::range::Gather;
use crate::tlb;
use crate::view::Space;
use crate::vma::check_mappable;

impl<'p, P: Platform> Space<'_, 'p, P> {
    /// Ends a space: makes lazy CPUs let go of it, unmaps all, and frees its tables (INV-9). A CPU that switches to it
    /// meanwhile is refused, or is there first. May wait. One IPI per CPU that has it loaded lazily: nobody else can use
    /// any of it, however much was mapped.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`]; [`Error::Busy`] when another CPU runs in it, or is about to leave it: it goes on as if it had
    /// not been asked.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// space.destroy()?;
    /// assert_eq!(space.destroy(), Err(Error::NoSuchSpace));
    /// # Ok(())
    /// # });
    /// ```
    pub fn destroy(&self) -> Result<(), Error> {
        let Space { mm, id } = *self;
        let _scope = charge(mm.platform(), Scope::DestroySpace);
        let p = mm.platform();
        let (space, alone) = mm.write_lock(id, PageRange::MAPPABLE)?;
        mm.end_unless_used(id, space)?;
        // INV-9: whoever still has the tables loaded, lazily, lets go of them. After that no CPU can use anything of
        // this space: what a CPU has left under a tag is older than this generation.
        tlb::flush(mm, id, None, FlushReason::Teardown, true);
        let mut work = Work::begin(mm);
        while let Some((handle, vma)) = mm.vma_from(space, PageNumber(0)) {
            let range = vma.range(p);
            let mut gather = Gather::begin(p, space);
            mm.take_range(id, space, range, (&mut gather, &mut Parking::never()), &mut work);
            let flushed = gather.already_flushed(p);
            mm.remove_vma(space, handle, mm.lock_rmap(vma));
            mm.drop_taken(space, range, flushed, &mut work);
            work.did(cost::LINK);
        }
        table::free_tables(mm, space.root(p), &mut work);
        mm.leave_group(space);
        drop(alone);
        mm.root.spaces.release(mm, id.index());
        Ok(())
    }

    /// Maps `range`, which must lie in [`PageRange::MAPPABLE`]; pages come when they are touched. May wait. Costs no IPI and no flush: no CPU keeps more of
    /// what was not present than that it was not. What another thread is about to unmap is in the way until its
    /// [`unmap`](Self::unmap) returns. A file may be mapped beyond its end: an access there is [`Error::BeyondFile`] until the file
    /// has become longer.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`], [`Error::NoSuchFile`], [`Error::BadRange`] (also beyond page 2^40 of a file), [`Error::NotMappable`],
    /// [`Error::Overlaps`], [`Error::MapCount`], [`Error::OutOfMemory`]; [`Error::WriteAndExecute`] where the configuration forbids both.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// let heap = PageRange::new(PageNumber(0x400), 16);
    /// space.map(heap, Backing::Anonymous, Prot::ReadWrite)?;
    /// // Twice it cannot be.
    /// assert_eq!(space.map(heap, Backing::Anonymous, Prot::Read), Err(Error::Overlaps(heap.start)));
    /// # Ok(())
    /// # });
    /// ```
    pub fn map(&self, range: PageRange, backing: Backing, prot: Prot) -> Result<(), Error> {
        let Space { mm, id } = *self;
        let _scope = charge(mm.platform(), Scope::Map);
        let p = mm.platform();
        let range = check_mappable(range)?;
        mm.check_prot(prot)?;
        mm.find_space(id)?;
        if let Some((file, offset)) = backing.file() {
            mm.find_file(file)?;
            if offset.checked_add(range.pages).is_none_or(|end| end > MAX_PAGES) {
                return Err(Error::BadRange);
            }
        }
        let handle = mm.root.vmas.reserve(mm, AllocFrom::HERE)?.commit();
        let own = !matches!(backing, Backing::File { .. });
        let anon_vma = match if own { mm.new_anon_vma() } else { Ok(None) } {
            Ok(anon_vma) => anon_vma,
            Err(error) => {
                mm.release_vma(handle);
                return Err(error);
            }
        };
        let give_back = || {
            mm.release_vma(handle);
            anon_vma.into_iter().for_each(|anon_vma| mm.release_anon_vma(anon_vma));
        };
        let free = mm.lock_vmas(id, range).and_then(|(space, vmas)| match mm.first_mapped(space, range) {
            Some(clash) => Err(Error::Overlaps(clash)),
            None => mm.check_map_count(space).map(|()| (space, vmas)),
        });
        let (space, vmas) = match free {
            Ok(found) => found,
            Err(error) => {
                give_back();
                return Err(error);
            }
        };
        mm.settle(id, space, range, &mut Work::begin(mm));
        let vma = mm.vma(handle);
        vma.describe(p, id, range, backing, prot);
        if let nodes @ 1.. = space.nodes.load(Ordering::Relaxed) {
            vma.set_nodes(p, nodes as u8);
        }
        let mut spare = None;
        if let Some(own) = anon_vma {
            let neighbour = mm.neighbours_anon_vma(space, range);
            spare = neighbour.map(|_| own);
            let (anon_vma, index) = neighbour.unwrap_or((own, range.start.0));
            vma.join(p, anon_vma, index);
        }
        let alone = mm.lock_rmap(vma);
        // Looked at again, now that nobody can end it.
        if let Err(error) = backing.file().map_or(Ok(()), |(file, _)| mm.find_file(file).map(drop)) {
            drop(alone);
            give_back();
            return Err(error);
        }
        if let Backing::File { file, .. } = backing
            && mm.file_at(file.slot()).is_watched()
        {
            vma.watch(p);
        }
        mm.link_vma(space, handle);
        drop(alone);
        mm.remember_vma(id, space, handle);
        mm.merge_vmas(space, range, &mut Work::begin(mm));
        drop(vmas);
        spare.into_iter().for_each(|anon_vma| mm.release_anon_vma(anon_vma));
        Ok(())
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// A new, empty address space. May wait for memory.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.create_space()?;
    /// assert_ne!(mm.create_space()?, space);
    /// # Ok(())
    /// # });
    /// ```
    pub fn create_space(&self) -> Result<SpaceId, Error> {
        self.new_space(self.group_here())
    }

    /// The same, with a group that is charged with its first table; it does not belong there yet.
    pub(super) fn new_space(&self, group: GroupSlot) -> Result<SpaceId, Error> {
        const { assert!(P::SPACES, "a platform without spaces") };
        let _scope = charge(self.platform(), Scope::CreateSpace);
        let p = self.platform();
        let slot = self.root.spaces.reserve(self, AllocFrom::HERE)?;
        let root = match table::make_table(self, AllocFrom::HERE, group) {
            Ok(root) => root,
            Err(error) => {
                self.root.spaces.release(self, slot.commit());
                return Err(error);
            }
        };
        p.prepare_root(root);
        self.share_kernel_range(root);
        let slot = SpaceSlot(slot.commit());
        let space = self.space_at(slot);
        space.vmas.by_address.clear(p);
        space.begin(p, root);
        Ok(self.space_id(slot))
    }
}
