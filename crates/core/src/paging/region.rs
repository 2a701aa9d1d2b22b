//! What is mapped where: regions of a space, in order of address, each on its file's list too.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::error::Error;
use crate::file::FileId;
use crate::frame::AllocFrom;
use crate::percpu::Here;
use crate::platform::Platform;
use crate::pool::Zeroed;
use crate::sync::{Word32, Word64, WriteGuard};
use crate::tree::{Links, Nodes};

use super::{Backing, Prot, Space, SpaceId};

/// A run of pages mapped alike. Guarded by its space's region lock; its place on the file's list, and what
/// the reverse map reads, by the file's mapping lock too.
#[repr(C)]
pub(crate) struct Region {
    pub start: Word64,
    pub pages: Word64,
    /// The page of the file at `start`.
    offset: Word64,
    pub space: Word32,
    /// The file plus one; 0 is anonymous memory.
    file: Word32,
    /// See `flag`.
    flags: Word32,
    /// Its place in the space's tree.
    links: Links,
    /// Next and previous on the file's list: handles plus one.
    next_of_file: Word32,
    prev_of_file: Word32,
}

// SAFETY: atomics only.
unsafe impl Zeroed for Region {}

/// The regions of a space are sorted by their first page.
struct ByAddress<'a, 'p, P: Platform>(&'a Manager<'p, P>);

impl<P: Platform> Nodes for ByAddress<'_, '_, P> {
    fn links(&self, handle: u32) -> &Links {
        &self.0.region(handle).links
    }

    fn key(&self, handle: u32) -> u64 {
        self.0.region(handle).start.get(self.0.platform())
    }
}

/// Bits of a region's flags.
mod flag {
    pub const READ: u32 = 1;
    pub const WRITE: u32 = 2;
    /// Writes to pages of the file are copied.
    pub const PRIVATE: u32 = 4;
    /// Large pages are wanted.
    pub const LARGE: u32 = 8;
}

const fn prot_flags(prot: Prot) -> u32 {
    match prot {
        Prot::None => 0,
        Prot::Read => flag::READ,
        Prot::ReadWrite => flag::READ | flag::WRITE,
    }
}

impl Region {
    pub fn range<P: Platform>(&self, p: &P) -> PageRange {
        PageRange::new(PageNumber(self.start.get(p)), self.pages.get(p))
    }

    pub fn file<P: Platform>(&self, p: &P) -> Option<FileId> {
        self.file.get(p).checked_sub(1).map(FileId)
    }

    pub fn prot<P: Platform>(&self, p: &P) -> Prot {
        match self.flags.get(p) & (flag::READ | flag::WRITE) {
            0 => Prot::None,
            flag::READ => Prot::Read,
            _ => Prot::ReadWrite,
        }
    }

    pub fn set_prot<P: Platform>(&self, p: &P, prot: Prot) {
        self.flags.set(p, self.flags.get(p) & !(flag::READ | flag::WRITE) | prot_flags(prot));
    }

    /// Whether large pages are wanted.
    pub fn wants_large<P: Platform>(&self, p: &P) -> bool {
        self.flags.get(p) & flag::LARGE != 0
    }

    pub fn want_large<P: Platform>(&self, p: &P, want: bool) {
        let others = self.flags.get(p) & !flag::LARGE;
        self.flags.set(p, others | if want { flag::LARGE } else { 0 });
    }

    /// Whether what is written here is this space's own: anonymous memory, or copies of a file's pages.
    pub fn is_private<P: Platform>(&self, p: &P) -> bool {
        self.file(p).is_none() || self.flags.get(p) & flag::PRIVATE != 0
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
        let (file, offset, private) = match backing {
            Backing::Anonymous => (0, 0, 0),
            Backing::File { file, offset } => (file.0 + 1, offset, 0),
            Backing::Private { file, offset } => (file.0 + 1, offset, flag::PRIVATE),
        };
        self.start.set(p, range.start.0);
        self.pages.set(p, range.pages);
        self.offset.set(p, offset);
        self.file.set(p, file);
        self.flags.set(p, prot_flags(prot) | private);
        // Last: a CPU whose hint still leads here believes it only once the space is its own.
        self.space.store(p, space.0, Ordering::Release);
    }

    /// Makes this the part `range` of what `whole` shows, in `space`.
    pub fn describe_part<P: Platform>(&self, p: &P, whole: &Region, range: PageRange, space: SpaceId) {
        let at = whole.start.get(p);
        // Anonymous memory has no offset; it stays 0, so that neighbours of equal flags can be merged.
        let offset = if whole.file.get(p) == 0 { 0 } else { whole.offset.get(p) + (range.start.0 - at) };
        self.start.set(p, range.start.0);
        self.pages.set(p, range.pages);
        self.offset.set(p, offset);
        self.file.set(p, whole.file.get(p));
        self.flags.set(p, whole.flags.get(p));
        self.space.store(p, space.0, Ordering::Release);
    }

    /// Whether `next` goes on where this ends, in every respect.
    fn continues_in<P: Platform>(&self, p: &P, next: &Region) -> bool {
        let end = self.range(p).end();
        end == next.range(p).start
            && self.flags.get(p) == next.flags.get(p)
            && self.file.get(p) == next.file.get(p)
            && (self.file.get(p) == 0 || self.file_page(p, end) == next.offset.get(p))
    }

    /// Moves its borders; what it shows where stays.
    fn trim<P: Platform>(&self, p: &P, to: PageRange) {
        if self.file.get(p) != 0 {
            self.offset.set(p, (self.offset.get(p) + to.start.0).wrapping_sub(self.start.get(p)));
        }
        self.start.set(p, to.start.0);
        self.pages.set(p, to.pages);
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
        let handle = space.by_address.at_or_before(p, &ByAddress(self), page.0)?;
        let region = self.region(handle);
        if !region.range(p).contains(page) {
            return None;
        }
        Here::new(self).slot().last_region.set(handle + 1);
        Some((handle, region))
    }

    /// The regions of a space by address. Under the region lock.
    pub(crate) fn regions_of(&self, space: &Space) -> impl Iterator<Item = (u32, &'p Region)> {
        self.regions_from(space, PageNumber(0))
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

    /// The regions of a space from the first whose end lies above `page`. Under the region lock.
    pub(crate) fn regions_from(
        &self,
        space: &Space,
        page: PageNumber,
    ) -> impl Iterator<Item = (u32, &'p Region)> {
        core::iter::successors(self.region_from(space, page), |&(before, _)| {
            let handle = space.by_address.next(self.platform(), &ByAddress(self), before)?;
            Some((handle, self.region(handle)))
        })
    }

    /// The first region that ends above `page`. Under the region lock.
    pub(crate) fn region_from(&self, space: &Space, page: PageNumber) -> Option<(u32, &'p Region)> {
        let p = self.platform();
        let (tree, nodes) = (&space.by_address, ByAddress(self));
        let handle = match tree.at_or_before(p, &nodes, page.0) {
            Some(before) if self.region(before).range(p).end() > page => before,
            Some(before) => tree.next(p, &nodes, before)?,
            None => tree.first(p, &nodes)?,
        };
        Some((handle, self.region(handle)))
    }

    /// Has the reverse map of a region's file alone, if it shows one: while its borders or its place change, so
    /// that no reverse map misses an entry of it.
    pub(crate) fn alone_with_file(&self, region: &Region) -> Option<WriteGuard<'p, P>> {
        let p = self.platform();
        region.file(p).map(|file| self.file(file).mapping_lock.write(p))
    }

    /// Puts a described region into its space and on its file's list. Under the region lock and the file's mapping
    /// lock, both held alone.
    pub(crate) fn link_region(&self, space: &Space, handle: u32) {
        let p = self.platform();
        self.place_region(space, handle);
        let region = self.region(handle);
        if let Some(file) = region.file(p) {
            let file = self.file(file);
            let first = file.first_mapping.get(p);
            region.next_of_file.set(p, first);
            region.prev_of_file.set(p, 0);
            if let Some(first) = first.checked_sub(1) {
                self.region(first).prev_of_file.set(p, handle + 1);
            }
            file.first_mapping.set(p, handle + 1);
        }
    }

    /// Takes a region out of both. Under both locks. Afterwards no reverse map finds it.
    pub(crate) fn unlink_region(&self, space: &Space, handle: u32) {
        let p = self.platform();
        self.displace_region(space, handle);
        let region = self.region(handle);
        if let Some(file) = region.file(p) {
            let file = self.file(file);
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

    fn place_region(&self, space: &Space, handle: u32) {
        space.by_address.insert(self.platform(), &ByAddress(self), handle);
    }

    fn displace_region(&self, space: &Space, handle: u32) {
        space.by_address.remove(self.platform(), &ByAddress(self), handle);
    }

    /// Moves a region to another place in its space, where nothing is mapped. Under both locks.
    pub(crate) fn move_region(&self, space: &Space, handle: u32, to: PageNumber) {
        self.displace_region(space, handle);
        self.region(handle).start.set(self.platform(), to.0);
        self.place_region(space, handle);
    }

    /// Gives an unlinked or never linked region back. A CPU's hint may still lead to it.
    pub(crate) fn release_region(&self, handle: u32) {
        let region = self.region(handle);
        region.space.store(self.platform(), u32::MAX, Ordering::Release);
        self.root.regions.release(self, handle);
    }

    /// Makes `page` a border between regions. Under the region lock, held alone. May wait for memory.
    pub(crate) fn split_region_at(&self, id: SpaceId, space: &Space, page: PageNumber) -> Result<(), Error> {
        let p = self.platform();
        let Some((_, region)) = self.region_from(space, page) else { return Ok(()) };
        let whole = region.range(p);
        if whole.start >= page {
            return Ok(());
        }
        let tail = self.root.regions.reserve(self, AllocFrom::HERE)?.commit();
        let _alone = self.alone_with_file(region);
        self.region(tail).describe_part(p, region, PageRange::between(page, whole.end()), id);
        region.trim(p, PageRange::between(whole.start, page));
        self.link_region(space, tail);
        Ok(())
    }

    /// Joins the regions on both sides of `page` if they show one thing in one way. Under the region lock, held alone.
    pub(crate) fn merge_regions_at(&self, space: &Space, page: PageNumber) {
        let p = self.platform();
        let Some(before) = page.0.checked_sub(1).map(PageNumber) else { return };
        let mut both = self.regions_from(space, before);
        let (Some((_, left)), Some((handle, right))) = (both.next(), both.next()) else { return };
        if right.range(p).start != page || !left.continues_in(p, right) {
            return;
        }
        let whole = PageRange::between(left.range(p).start, right.range(p).end());
        let alone = self.alone_with_file(right);
        self.unlink_region(space, handle);
        left.trim(p, whole);
        drop(alone);
        self.release_region(handle);
    }

    /// The first page of `range` that no region holds. Under the region lock.
    pub(crate) fn first_unmapped(&self, space: &Space, range: PageRange) -> Option<PageNumber> {
        let p = self.platform();
        let mut at = range.start;
        for (_, region) in self.regions_from(space, range.start) {
            let found = region.range(p);
            if at >= range.end() || found.start > at {
                break;
            }
            at = found.end();
        }
        (at < range.end()).then_some(at)
    }

    /// The first page of `range` that a region holds. Under the region lock.
    pub(crate) fn first_mapped(&self, space: &Space, range: PageRange) -> Option<PageNumber> {
        let p = self.platform();
        let (_, region) = self.region_from(space, range.start)?;
        region.range(p).intersect(range).map(|clash| clash.start)
    }

    /// What would lie between regions around `range` if it held none.
    pub(crate) fn gap_around(&self, space: &Space, range: PageRange) -> PageRange {
        let p = self.platform();
        let before = self.region_before(space, range.start).map(|(_, region)| region.range(p).end());
        let after = self.region_from(space, range.end()).map(|(_, region)| region.range(p).start);
        PageRange::between(
            before.map_or(PageNumber(0), |end| end.min(range.start)),
            after.map_or(PageNumber::USER_END, |start| start.max(range.end())),
        )
    }

    /// Takes `range` out of all regions, with nothing mapped in it any more. `spare` is the slot for the second half of
    /// the one that goes on at both ends. Under the region lock, held alone.
    pub(crate) fn cut_regions(&self, id: SpaceId, space: &Space, range: PageRange, mut spare: Option<u32>) {
        let p = self.platform();
        while let Some((handle, region)) =
            self.region_from(space, range.start).filter(|(_, region)| region.range(p).start < range.end())
        {
            let whole = region.range(p);
            let file = self.alone_with_file(region);
            if whole.end() > range.end() {
                let tail = PageRange::between(range.end(), whole.end());
                if whole.start >= range.start {
                    region.trim(p, tail);
                    break;
                }
                if let Some(spare) = spare.take() {
                    self.region(spare).describe_part(p, region, tail, id);
                    self.link_region(space, spare);
                }
            }
            if whole.start < range.start {
                region.trim(p, PageRange::between(whole.start, range.start));
                continue;
            }
            self.unlink_region(space, handle);
            drop(file);
            self.release_region(handle);
        }
    }

    fn region_before(&self, space: &Space, page: PageNumber) -> Option<(u32, &'p Region)> {
        let p = self.platform();
        let handle = space.by_address.at_or_before(p, &ByAddress(self), page.0.checked_sub(1)?)?;
        Some((handle, self.region(handle)))
    }
}
