//! Map, unmap, and the life of a space.

use super::{Entry, SpaceId, check_range, table};
use crate::Manager;
use crate::addr::{FrameNumber, PageNumber, PageRange};
use crate::error::Error;
use crate::event::{Event, FlushReason};
use crate::file::FileId;
use crate::frame::{AllocFrom, Frame, Kind, flag};
use crate::percpu::{Here, Presence};
use crate::platform::Platform;
use crate::rule::Rule;
use crate::tlb;

/// What may be done with mapped pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prot {
    /// Read.
    Read,
    /// Read and write. On a file page the write reaches the file (a shared mapping).
    ReadWrite,
}

/// What a region shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Zeros until written, this space's own.
    Anonymous,
    /// Pages of a file, from page `offset` on.
    File {
        /// The file.
        file: FileId,
        /// Its first page that is shown.
        offset: u64,
    },
}

/// Pages that an unmap has taken out of tables and may not free before the flush.
const GATHERED: usize = 64;

impl<'p, P: Platform> Manager<'p, P> {
    /// A new, empty address space. May wait for memory.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn create_space(&self) -> Result<SpaceId, Error> {
        let p = self.platform();
        let slot = self.root.spaces.reserve(self, AllocFrom::HERE)?;
        let root = match table::make_table(self, AllocFrom::HERE) {
            Ok(root) => root,
            Err(error) => {
                self.root.spaces.release(self, slot.commit());
                return Err(error);
            }
        };
        p.prepare_root(root);
        let id = SpaceId(slot.commit());
        let space = self.space(id);
        space.first_region.set(p, 0);
        space.root.set(p, root.0);
        Ok(id)
    }

    /// Ends a space: unmaps all, makes lazy CPUs let go of it, and frees its tables (INV-9). No CPU may run
    /// in it any more except lazily. May wait. At most two IPIs per CPU that still has it loaded.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`]; [`Error::Busy`] when another CPU runs in it.
    pub fn destroy_space(&self, id: SpaceId) -> Result<(), Error> {
        let p = self.platform();
        let space = self.root.spaces.find(self, id.0).ok_or(Error::NoSuchSpace)?;
        let alone = space.regions.write(p);
        {
            let here = Here::new(self);
            let running = |cpu| self.slot(cpu).presence.0.get(p) == Presence::ACTIVE;
            here.slot().targets.insert_all(p, &space.cpus.0);
            here.slot().targets.remove(here.cpu);
            let busy = here.slot().targets.iter().any(running);
            here.slot().targets.clear();
            if busy {
                return Err(Error::Busy);
            }
            if here.slot().tlb.loaded() == Some(id) {
                super::unload(&here);
            }
        }
        while let Some((handle, region)) = self.regions_of(space).next() {
            self.zap(id, region.range(p));
            self.unlink_region(space, handle);
            self.release_region(handle);
        }
        // INV-9: whoever still has the tables loaded, lazily, lets go of them before they are freed.
        tlb::flush(self, id, None, FlushReason::Teardown, true);
        table::free_tables(self, space.root(p));
        drop(alone);
        self.root.spaces.release(self, id.0);
        Ok(())
    }

    /// Maps `range`; pages come when they are touched. May wait. Costs no IPI and no flush: what was not
    /// present is cached by nobody.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`], [`Error::NoSuchFile`], [`Error::BadRange`], [`Error::BeyondFile`],
    /// [`Error::Overlaps`], [`Error::OutOfMemory`].
    pub fn map(&self, id: SpaceId, range: PageRange, backing: Backing, prot: Prot) -> Result<(), Error> {
        let p = self.platform();
        let range = check_range(range)?;
        let space = self.root.spaces.find(self, id.0).ok_or(Error::NoSuchSpace)?;
        if let Backing::File { file, offset } = backing {
            let pages = self.root.files.find(self, file.0).ok_or(Error::NoSuchFile)?.pages.get(p);
            if offset.checked_add(range.pages).is_none_or(|end| end > pages) {
                return Err(Error::BeyondFile);
            }
        }
        let slot = self.root.regions.reserve(self, AllocFrom::HERE)?;
        let _alone = space.regions.write(p);
        let clash = self.regions_of(space).find_map(|(_, r)| r.range(p).intersect(range));
        let handle = slot.commit();
        if let Some(clash) = clash {
            self.release_region(handle);
            return Err(Error::Overlaps(clash.start));
        }
        self.region(handle).describe(p, id, range, backing, prot);
        self.link_region(space, handle);
        Ok(())
    }

    /// Unmaps `range`, all of which must be mapped. When it returns no CPU can use any of it, not even by an
    /// entry that reclaim cleared and left for later (INV-4). May wait.
    ///
    /// One flush, thus at most one IPI per CPU that uses the space and is neither lazy nor this one; one more
    /// for each further 64 pages that were present. None if no page was present and nothing is deferred.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`], [`Error::BadRange`], [`Error::NotMapped`], [`Error::OutOfMemory`] (the range
    /// lies inside a region, which must be split).
    pub fn unmap(&self, id: SpaceId, range: PageRange) -> Result<(), Error> {
        let p = self.platform();
        let range = check_range(range)?;
        let space = self.root.spaces.find(self, id.0).ok_or(Error::NoSuchSpace)?;
        // For the second half of a region that is split: reserved before the lock, missed only if it is needed.
        let spare = self.root.regions.reserve(self, AllocFrom::HERE).map(|slot| slot.commit());
        let alone = space.regions.write(p);
        let mut at = range.start;
        for (_, region) in self.regions_of(space) {
            let found = region.range(p);
            if found.contains(at) {
                at = found.end();
            }
        }
        if at < range.end() {
            drop(alone);
            if let Ok(spare) = spare {
                self.release_region(spare);
            }
            return Err(Error::NotMapped(at));
        }
        let mut splits = self.regions_of(space).map(|(_, region)| region.range(p));
        if splits.any(|whole| whole.start < range.start && whole.end() > range.end()) {
            spare?;
        }
        self.zap(id, range);
        let mut spare = spare.ok();
        while let Some((handle, whole, cut)) =
            self.regions_of(space).find_map(|(h, r)| Some((h, r.range(p), r.range(p).intersect(range)?)))
        {
            let head = PageRange::new(whole.start, cut.start.0 - whole.start.0);
            let tail = PageRange::new(cut.end(), whole.end().0 - cut.end().0);
            match (head.pages > 0, tail.pages > 0) {
                (false, false) => {
                    self.unlink_region(space, handle);
                    self.release_region(handle);
                }
                (true, false) => self.trim_region(handle, head),
                (false, true) => self.trim_region(handle, tail),
                (true, true) => {
                    let region = self.region(handle);
                    let backing = region.file(p).map_or(Backing::Anonymous, |file| Backing::File {
                        file,
                        offset: region.file_page(p, tail.start),
                    });
                    let prot = if region.is_writable(p) { Prot::ReadWrite } else { Prot::Read };
                    self.trim_region(handle, head);
                    // Only one region can hold the range on both sides, so one spare is enough.
                    if let Some(other) = spare.take() {
                        self.region(other).describe(p, id, tail, backing, prot);
                        self.link_region(space, other);
                    }
                }
            }
        }
        drop(alone);
        if let Some(spare) = spare {
            self.release_region(spare);
        }
        self.emit(Event::Revoked { space: id, root: space.root(p), range });
        Ok(())
    }

    /// Clears every entry in `range`, flushes, and lets go of the frames: never one before its flush.
    fn zap(&self, id: SpaceId, range: PageRange) {
        let p = self.platform();
        let space = self.space(id);
        let root = space.root(p);
        let mut gathered = [(FrameNumber::NONE, PageNumber(0)); GATHERED];
        let mut count = 0;
        let mut page = range.start;
        while page < range.end() {
            let Some(leaf) = table::find(self, root, page) else {
                page = table::skip(self, root, page);
                continue;
            };
            let table_end = PageNumber((page.0 | 511) + 1).min(range.end());
            let locked = leaf.lock(self);
            while page < table_end && count < GATHERED {
                let old = locked.take(page);
                if old.is_present() {
                    self.emit(Event::Unmapped { space: id, page, frame: old.frame(), deferred: false });
                    if old.has(Entry::DIRTY) {
                        self.frames().get(old.frame()).set_flags(p, flag::DIRTY);
                    }
                    gathered[count] = (old.frame(), page);
                    count += 1;
                }
                page = PageNumber(page.0 + 1);
            }
            drop(locked);
            if count == GATHERED {
                self.flush_gathered(id, &gathered);
                count = 0;
            }
        }
        self.flush_gathered(id, &gathered[..count]);
        // What reclaim cleared in this space and did not flush yet is gone too before we return (INV-4).
        if !p.broken(Rule::DeferredBeforeUnmapReturns) {
            tlb::complete_deferred(self, id);
        }
    }

    fn flush_gathered(&self, id: SpaceId, gathered: &[(FrameNumber, PageNumber)]) {
        let [(_, first), ..] = gathered else { return };
        if !self.platform().broken(Rule::FlushBeforeUnmapReturns) {
            let (_, last) = gathered[gathered.len() - 1];
            let range = PageRange::new(*first, last.0 + 1 - first.0);
            tlb::flush(self, id, Some(range), FlushReason::Unmap, false);
        }
        for &(frame, _) in gathered {
            self.drop_mapping(frame);
        }
    }

    /// A mapping of the frame is gone and flushed: lets go of its hold.
    pub(crate) fn drop_mapping(&self, n: FrameNumber) {
        use core::sync::atomic::Ordering;
        let p = self.platform();
        let frame: &Frame = self.frames().get(n);
        frame.maps.fetch_sub(p, 1, Ordering::Release);
        self.put_page(n);
    }

    /// Lets go of one hold on a page; the last one frees it.
    pub(crate) fn put_page(&self, n: FrameNumber) {
        use core::sync::atomic::Ordering;
        let p = self.platform();
        let frame: &Frame = self.frames().get(n);
        // AcqRel: every other holder's last use comes before the free.
        if frame.refs.fetch_sub(p, 1, Ordering::AcqRel) == 1 {
            debug_assert!(matches!(frame.kind(p), Kind::Anon | Kind::File));
            self.unlist(n);
            self.free_one(n);
        }
    }
}
