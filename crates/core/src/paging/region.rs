//! What is mapped where: regions of a space, in order of address, each on its file's list too.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::file::FileId;
use crate::percpu::Here;
use crate::platform::Platform;
use crate::pool::Zeroed;
use crate::sync::{Word32, Word64};

use super::{Backing, Prot, Space, SpaceId};

/// A run of pages mapped alike. Guarded by its space's region lock; its place on the file's list, and what
/// the reverse map reads, by the file's mapping lock too.
#[repr(C)]
pub(crate) struct Region {
    pub start: Word64,
    pub pages: Word64,
    /// The page of the file at `start`.
    pub offset: Word64,
    pub space: Word32,
    /// The file plus one; 0 is anonymous memory.
    pub file: Word32,
    pub writable: Word32,
    /// Next in the space, next and previous on the file's list: handles plus one.
    next: Word32,
    next_of_file: Word32,
    prev_of_file: Word32,
}

// SAFETY: atomics only.
unsafe impl Zeroed for Region {}

impl Region {
    pub fn range<P: Platform>(&self, p: &P) -> PageRange {
        PageRange::new(PageNumber(self.start.get(p)), self.pages.get(p))
    }

    pub fn file<P: Platform>(&self, p: &P) -> Option<FileId> {
        self.file.get(p).checked_sub(1).map(FileId)
    }

    pub fn is_writable<P: Platform>(&self, p: &P) -> bool {
        self.writable.get(p) != 0
    }

    /// The page of the file that `page` shows.
    pub fn file_page<P: Platform>(&self, p: &P, page: PageNumber) -> u64 {
        self.offset.get(p) + (page.0 - self.start.get(p))
    }

    /// Where this region shows page `index` of its file, if it does.
    pub fn page_of<P: Platform>(&self, p: &P, index: u64) -> Option<PageNumber> {
        let into = index.checked_sub(self.offset.get(p))?;
        (into < self.pages.get(p)).then(|| PageNumber(self.start.get(p) + into))
    }

    pub fn describe<P: Platform>(
        &self,
        p: &P,
        space: SpaceId,
        range: PageRange,
        backing: Backing,
        prot: Prot,
    ) {
        let (file, offset) = match backing {
            Backing::Anonymous => (0, 0),
            Backing::File { file, offset } => (file.0 + 1, offset),
        };
        self.start.set(p, range.start.0);
        self.pages.set(p, range.pages);
        self.offset.set(p, offset);
        self.file.set(p, file);
        self.writable.set(p, (prot == Prot::ReadWrite).into());
        // Last: a CPU whose hint still leads here believes it only once the space is its own.
        self.space.store(p, space.0, Ordering::Release);
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    pub(crate) fn region(&self, handle: u32) -> &'p Region {
        self.root.regions.get(self, handle)
    }

    /// The region that holds `page`. Under the region lock.
    pub(crate) fn find_region(
        &self,
        id: SpaceId,
        space: &Space,
        page: PageNumber,
    ) -> Option<(u32, &'p Region)> {
        let p = self.platform();
        // This CPU's last fault was probably in the same region.
        let hint = Here::new(self).slot().last_region.get();
        if let Some(hint) = hint.checked_sub(1)
            && let Some(region) = self.root.regions.find(self, hint)
            && region.space.get(p) == id.0
            && region.range(p).contains(page)
        {
            return Some((hint, region));
        }
        let (handle, region) = self.regions_of(space).find(|(_, region)| region.range(p).end() > page)?;
        if !region.range(p).contains(page) {
            return None;
        }
        Here::new(self).slot().last_region.set(handle + 1);
        Some((handle, region))
    }

    /// The regions of a space by address. Under the region lock.
    pub(crate) fn regions_of(&self, space: &Space) -> impl Iterator<Item = (u32, &'p Region)> + '_ {
        let p = self.platform();
        let mut next = space.first_region.get(p);
        core::iter::from_fn(move || {
            let handle = next.checked_sub(1)?;
            let region = self.region(handle);
            next = region.next.get(p);
            Some((handle, region))
        })
    }

    /// The regions that show a file. Under the file's mapping lock.
    pub(crate) fn regions_of_file(&self, file: FileId) -> impl Iterator<Item = (u32, &'p Region)> + '_ {
        let p = self.platform();
        let mut next = self.file(file).first_mapping.get(p);
        core::iter::from_fn(move || {
            let handle = next.checked_sub(1)?;
            let region = self.region(handle);
            next = region.next_of_file.get(p);
            Some((handle, region))
        })
    }

    /// Puts a described region into its space and on its file's list. Under the region lock, held alone.
    pub(crate) fn link_region(&self, space: &Space, handle: u32) {
        let p = self.platform();
        let region = self.region(handle);
        let start = region.start.get(p);
        let before = self.regions_of(space).take_while(|(_, r)| r.start.get(p) < start).last();
        let link = before.map_or(&space.first_region, |(_, r)| &r.next);
        region.next.set(p, link.get(p));
        link.set(p, handle + 1);
        if let Some(file) = region.file(p) {
            let file = self.file(file);
            let _alone = file.mapping_lock.write(p);
            let first = file.first_mapping.get(p);
            region.next_of_file.set(p, first);
            region.prev_of_file.set(p, 0);
            if let Some(first) = first.checked_sub(1) {
                self.region(first).prev_of_file.set(p, handle + 1);
            }
            file.first_mapping.set(p, handle + 1);
        }
    }

    /// Takes a region out of both. Under the region lock, held alone. Afterwards no reverse map finds it.
    pub(crate) fn unlink_region(&self, space: &Space, handle: u32) {
        let p = self.platform();
        let region = self.region(handle);
        let before = self.regions_of(space).take_while(|(h, _)| *h != handle).last();
        let link = before.map_or(&space.first_region, |(_, r)| &r.next);
        link.set(p, region.next.get(p));
        if let Some(file) = region.file(p) {
            let file = self.file(file);
            let _alone = file.mapping_lock.write(p);
            let (prev, next) = (region.prev_of_file.get(p), region.next_of_file.get(p));
            match prev.checked_sub(1) {
                Some(prev) => self.region(prev).next_of_file.set(p, next),
                None => file.first_mapping.set(p, next),
            }
            if let Some(next) = next.checked_sub(1) {
                self.region(next).prev_of_file.set(p, prev);
            }
        }
    }

    /// Gives an unlinked or never linked region back. A CPU's hint may still lead to it.
    pub(crate) fn release_region(&self, handle: u32) {
        let region = self.region(handle);
        region.space.store(self.platform(), u32::MAX, Ordering::Release);
        self.root.regions.release(self, handle);
    }

    /// Moves a region's borders. Under the region lock, held alone, with nothing mapped in what it loses.
    pub(crate) fn trim_region(&self, handle: u32, to: PageRange) {
        let p = self.platform();
        let region = self.region(handle);
        let file = region.file(p).map(|f| self.file(f));
        let _alone = file.map(|f| f.mapping_lock.write(p));
        region.offset.set(p, region.offset.get(p) + (to.start.0 - region.start.get(p)));
        region.start.set(p, to.start.0);
        region.pages.set(p, to.pages);
    }
}
