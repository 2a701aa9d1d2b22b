//! What is mapped where: the VMAs of a space, in order of address, each in the trees of what it shows too.

use super::family::{Alone, FamilyId, Of, Place};
use super::space::Space;
use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::error::Error;
use crate::frame::AllocFrom;
use crate::handle::{FileSlot, SpaceId};
use crate::paging::{Backing, Prot};
use crate::percpu::Here;
use crate::platform::Platform;
use crate::pool::{Goes, Pooled};
use crate::resched::{Work, cost};
use crate::sync::{Word32, Word64};
use crate::tree::{Links, Nodes};
use crate::zeroed::Zeroed;

/// A VMA: a run of pages mapped alike. Guarded by its space's region lock; its place in the trees of its file and its
/// family, and what the reverse map reads, by their locks too.
#[repr(C)]
pub(crate) struct Region {
    pub start: Word64,
    pub pages: Word64,
    /// The page of the file at `start`.
    offset: Word64,
    /// The index in the family at `start`.
    index: Word64,
    pub space: Word32,
    /// The file plus one; 0 is anonymous memory.
    file: Word32,
    /// The family of its anonymous pages plus one; 0 if it has none, or none can be reclaimed.
    family: Word32,
    /// See `flag`.
    flags: Word32,
    /// Its place in the space's tree.
    links: Links,
    of_file: Place,
    of_family: Place,
    /// Among those that show the same from the same index on: a later one has a higher number.
    pub(crate) serial: Word64,
}

// SAFETY: atomics only.
unsafe impl Zeroed for Region {}

impl Pooled for Region {
    // Who looks at one has its space's region lock, or that of a tree in which it is.
    const GOES: Goes = Goes::AtOnce;
}

/// The regions of a space are sorted by their first page.
struct ByAddress<'a, 'p, P: Platform>(&'a Manager<'p, P>);

impl<P: Platform> Nodes for ByAddress<'_, '_, P> {
    type Key = u64;

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

    pub fn file<P: Platform>(&self, p: &P) -> Option<FileSlot> {
        self.file.get(p).checked_sub(1).map(FileSlot)
    }

    pub fn family<P: Platform>(&self, p: &P) -> Option<FamilyId> {
        self.family.get(p).checked_sub(1).map(FamilyId)
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

    /// The first page of its file, or the first index in its family, that it shows.
    pub(crate) fn first_index<P: Platform>(&self, p: &P, of: Of) -> u64 {
        match of {
            Of::File => self.offset.get(p),
            Of::Family => self.index.get(p),
        }
    }

    /// Its place in one of its trees.
    pub(crate) fn place(&self, of: Of) -> &Place {
        match of {
            Of::File => &self.of_file,
            Of::Family => &self.of_family,
        }
    }

    /// The index in the family of an anonymous page that is shown at `page`.
    pub fn family_index<P: Platform>(&self, p: &P, page: PageNumber) -> u64 {
        self.index.get(p) + (page.0 - self.start.get(p))
    }

    /// Its anonymous pages belong to this family from now on. Before it is linked.
    pub fn join<P: Platform>(&self, p: &P, family: FamilyId, index: u64) {
        self.family.set(p, family.0 + 1);
        self.index.set(p, index);
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
            Backing::File { file, offset } => (file.index() + 1, offset, 0),
            Backing::Private { file, offset } => (file.index() + 1, offset, flag::PRIVATE),
        };
        self.start.set(p, range.start.0);
        self.pages.set(p, range.pages);
        self.offset.set(p, offset);
        self.file.set(p, file);
        self.flags.set(p, prot_flags(prot) | private);
        self.family.set(p, 0);
        self.index.set(p, 0);
        self.space.set(p, space.index());
    }

    /// Makes this show at `to` what `whole` shows where it is. Not linked yet.
    pub fn describe_moved<P: Platform>(&self, p: &P, whole: &Region, to: PageNumber, space: SpaceId) {
        self.describe_part(p, whole, whole.range(p), space);
        self.start.set(p, to.0);
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
        self.family.set(p, whole.family.get(p));
        self.index
            .set(p, if whole.family.get(p) == 0 { 0 } else { whole.index.get(p) + (range.start.0 - at) });
        self.space.set(p, space.index());
    }

    /// Whether `next` goes on where this ends, in every respect.
    fn continues_in<P: Platform>(&self, p: &P, next: &Region) -> bool {
        let end = self.range(p).end();
        end == next.range(p).start
            && self.flags.get(p) == next.flags.get(p)
            && self.file.get(p) == next.file.get(p)
            && (self.file.get(p) == 0 || self.file_page(p, end) == next.offset.get(p))
            && self.family.get(p) == next.family.get(p)
            && (self.family.get(p) == 0 || self.family_index(p, end) == next.index.get(p))
    }

    /// Moves its borders; what it shows where stays. While it is in no tree where that changes its place.
    pub(crate) fn trim<P: Platform>(&self, p: &P, to: PageRange) {
        if self.file.get(p) != 0 {
            self.offset.set(p, (self.offset.get(p) + to.start.0).wrapping_sub(self.start.get(p)));
        }
        if self.family.get(p) != 0 {
            self.index.set(p, (self.index.get(p) + to.start.0).wrapping_sub(self.start.get(p)));
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
        let shape = space.shape.get(p);
        if let Some(hint) = Here::new(self).slot().last_region.get(id.slot(), shape)
            && let region = self.region(hint)
            && region.range(p).contains(page)
        {
            return Some((hint, region));
        }
        let handle = space.by_address.at_or_before(p, &ByAddress(self), page.0)?;
        let region = self.region(handle);
        if !region.range(p).contains(page) {
            return None;
        }
        Here::new(self).slot().last_region.set(id.slot(), shape, handle);
        Some((handle, region))
    }

    /// The regions of a space by address. Under the region lock.
    pub(crate) fn regions_of(&self, space: &Space) -> impl Iterator<Item = (u32, &'p Region)> {
        self.regions_from(space, PageNumber(0))
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

    /// Puts a described region into its space and into the trees of what it shows. Under the region lock and those of the
    /// trees, all held alone.
    pub(crate) fn link_region(&self, space: &Space, handle: u32) {
        self.place_region(space, handle);
        self.link_shown(handle);
    }

    /// Takes a region out of all, and lets go of `alone` and of the region. Under the region lock, held alone. Afterwards
    /// no reverse map finds it, and no CPU's hint leads to it.
    pub(crate) fn remove_region(&self, space: &Space, handle: u32, alone: Alone<'p, P>) {
        self.displace_region(space, handle);
        let childless = self.unlink_shown(handle);
        drop(alone);
        self.release_region(handle);
        if let Some(family) = childless {
            self.release_family(family);
        }
    }

    fn place_region(&self, space: &Space, handle: u32) {
        let p = self.platform();
        space.by_address.insert(p, &ByAddress(self), handle);
        space.map_count.set(p, space.map_count.get(p) + 1);
    }

    fn displace_region(&self, space: &Space, handle: u32) {
        let p = self.platform();
        space.by_address.remove(p, &ByAddress(self), handle);
        space.map_count.set(p, space.map_count.get(p) - 1);
        space.shape.set(p, space.shape.get(p) + 1);
    }

    /// A slot for one region more of a space. Under its region lock, held alone. May wait for memory.
    pub(crate) fn new_region(&self, space: &Space) -> Result<u32, Error> {
        self.check_map_count(space)?;
        Ok(self.root.regions.reserve(self, AllocFrom::HERE)?.commit())
    }

    /// Whether a space may have one region more. Under its region lock, held alone.
    pub(crate) fn check_map_count(&self, space: &Space) -> Result<(), Error> {
        let most = self.config().max_map_count;
        if space.map_count.get(self.platform()) < most { Ok(()) } else { Err(Error::MapCount { most }) }
    }

    /// Gives a region back that is not linked.
    pub(crate) fn release_region(&self, handle: u32) {
        self.root.regions.release(self, handle);
    }

    /// Makes `page` a border between regions. Under the region lock, held alone. May wait for memory.
    pub(crate) fn split_region_at(&self, id: SpaceId, space: &Space, page: PageNumber) -> Result<(), Error> {
        let p = self.platform();
        let Some((handle, region)) = self.region_from(space, page) else { return Ok(()) };
        let whole = region.range(p);
        if whole.start >= page {
            return Ok(());
        }
        let tail = self.new_region(space)?;
        let _alone = self.alone_with_shown(region);
        self.region(tail).describe_part(p, region, PageRange::between(page, whole.end()), id);
        self.trim_shown(handle, PageRange::between(whole.start, page));
        self.link_region(space, tail);
        Ok(())
    }

    /// Joins the regions on both sides of `page` if they show one thing in one way. Under the region lock, held alone.
    pub(crate) fn merge_regions_at(&self, space: &Space, page: PageNumber) {
        let p = self.platform();
        let Some(before) = page.0.checked_sub(1).map(PageNumber) else { return };
        let mut both = self.regions_from(space, before);
        let (Some((first, left)), Some((handle, right))) = (both.next(), both.next()) else { return };
        if right.range(p).start != page || !left.continues_in(p, right) {
            return;
        }
        let whole = PageRange::between(left.range(p).start, right.range(p).end());
        let alone = self.alone_with_shown(right);
        self.note_lowered(left);
        self.trim_shown(first, whole);
        self.remove_region(space, handle, alone);
    }

    /// The first page of `range` that no region holds. Under the region lock.
    pub(crate) fn first_unmapped(
        &self,
        space: &Space,
        range: PageRange,
        work: &mut Work<'_, 'p, P>,
    ) -> Option<PageNumber> {
        let p = self.platform();
        let mut at = range.start;
        for (_, region) in self.regions_from(space, range.start) {
            let found = region.range(p);
            if at >= range.end() || found.start > at {
                break;
            }
            at = found.end();
            work.did(cost::VMA);
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
    pub(crate) fn cut_regions(
        &self,
        id: SpaceId,
        space: &Space,
        range: PageRange,
        mut spare: Option<u32>,
        work: &mut Work<'_, 'p, P>,
    ) {
        let p = self.platform();
        while let Some((handle, region)) =
            self.region_from(space, range.start).filter(|(_, region)| region.range(p).start < range.end())
        {
            let whole = region.range(p);
            let alone = self.alone_with_shown(region);
            if whole.end() > range.end() {
                let tail = PageRange::between(range.end(), whole.end());
                if whole.start >= range.start {
                    self.trim_shown(handle, tail);
                    break;
                }
                if let Some(spare) = spare.take() {
                    self.region(spare).describe_part(p, region, tail, id);
                    self.link_region(space, spare);
                }
            }
            if whole.start < range.start {
                self.trim_shown(handle, PageRange::between(whole.start, range.start));
                continue;
            }
            self.remove_region(space, handle, alone);
            work.did(cost::LINK);
        }
    }

    pub(crate) fn region_before(&self, space: &Space, page: PageNumber) -> Option<(u32, &'p Region)> {
        let p = self.platform();
        let handle = space.by_address.at_or_before(p, &ByAddress(self), page.0.checked_sub(1)?)?;
        Some((handle, self.region(handle)))
    }
}
