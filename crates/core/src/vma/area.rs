//! What is mapped where: the VMAs of a space, in order of address, each in the trees of what it shows too.

use super::anon_vma::{Alone, AnonVmaId, Of, Place};
use super::space::SpaceState;
use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::error::Error;
use crate::frame::AllocFrom;
use crate::handle::{FileSlot, SpaceId};
use crate::paging::{Backing, Prot};
use crate::percpu::CpuGuard;
use crate::platform::Platform;
use crate::pool::{Goes, Pooled, SlotLink};
use crate::resched::{Work, cost};
use crate::rule::Rule;
use crate::sync::{Gate, Word32, Word64};
use crate::tree::{Links, Nodes};
use crate::zeroed::Zeroed;

/// A VMA: a run of pages mapped alike. Guarded by its space's VMA lock; its place in the trees of its file and its
/// `anon_vma`, and what the reverse map reads, by their locks too.
#[repr(C, align(64))]
pub(crate) struct Vma {
    pub start: Word64,
    pub pages: Word64,
    /// The page of the file at `start`; or, of one that grows downwards, how many pages it may grow.
    offset: Word64,
    /// The index in the `anon_vma` at `start`.
    index: Word64,
    pub space: Word32,
    /// The file plus one; 0 is anonymous memory.
    file: Word32,
    /// The `anon_vma` of its anonymous pages plus one; 0 if it has none, or none can be reclaimed.
    anon_vma: Word32,
    /// See `flag`.
    flags: Word32,
    /// Its place in the space's tree.
    links: Links,
    link: SlotLink,
    /// Shut while the VMA changes, or what is mapped in it other than by faults, and while it is in no space. Whoever is inside may rely on
    /// all that it says, and on its space. Beside what changes when its neighbours do, and not beside what faults read.
    pub gate: Gate,
    of_file: Place,
    of_anon_vma: Place,
    /// Among those that show the same from the same index on: a later one has a higher number.
    pub(crate) serial: Word64,
}

// What a search and a fault read is one line.
const _: () = assert!(size_of::<Vma>() == 128 && core::mem::offset_of!(Vma, link) == 64);

// SAFETY: atomics only.
unsafe impl Zeroed for Vma {}

impl Pooled for Vma {
    // Whoever looks at one has its space's VMA lock, or that of a tree in which it is, or is inside; or reads, and is about to enter.
    const GOES: Goes = Goes::Unread;

    fn link(&self) -> &SlotLink {
        &self.link
    }
}

/// A VMA that is in no tree any more, and the `anon_vma` of which it was the last.
#[must_use = "its slot is still in use"]
pub(crate) struct Removed {
    vma: u32,
    childless: Option<AnonVmaId>,
}

/// The VMAs of a space are sorted by their first page.
struct ByAddress<'a, 'p, P: Platform>(&'a Manager<'p, P>);

impl<P: Platform> Nodes for ByAddress<'_, '_, P> {
    type Key = u64;
    type Node = Vma;

    fn node(&self, handle: u32) -> &Vma {
        self.0.vma(handle)
    }

    fn links<'n>(&self, vma: &'n Vma) -> &'n Links {
        &vma.links
    }

    fn key(&self, vma: &Vma) -> u64 {
        vma.start.get(self.0.platform())
    }
}

/// Bits of a VMA's flags.
mod flag {
    pub const READ: u32 = 1;
    pub const WRITE: u32 = 2;
    /// Writes to pages of the file are copied.
    pub const PRIVATE: u32 = 4;
    /// Large pages are wanted.
    pub const LARGE: u32 = 8;
    /// Instructions are fetched.
    pub const EXECUTE: u32 = 16;
    /// What programs may do.
    pub const RIGHTS: u32 = READ | WRITE | EXECUTE;
    /// The file is known to be written to before it is.
    pub const WATCHED: u32 = 32;
    /// Its pages stay in memory.
    pub const LOCKED: u32 = 64;
    /// The same, while it is looked whether all of them are there.
    pub const LOCKING: u32 = 128;
    /// It grows downwards.
    pub const GROWS: u32 = 256;
    /// It is being unmapped, and holds its place until no CPU can use its pages.
    pub const LEAVING: u32 = 512;
    /// On which nodes its anonymous pages come: a number that `space/nodes.rs` reads, from this bit on. 0: where they are touched.
    pub const NODES_SHIFT: u32 = 16;
    pub const NODES: u32 = 0xff << NODES_SHIFT;
}

const fn prot_flags(prot: Prot) -> u32 {
    match prot {
        Prot::None => 0,
        Prot::Read => flag::READ,
        Prot::ReadWrite => flag::READ | flag::WRITE,
        Prot::ReadExecute => flag::READ | flag::EXECUTE,
        Prot::ReadWriteExecute => flag::RIGHTS,
    }
}

impl Vma {
    pub fn range<P: Platform>(&self, p: &P) -> PageRange {
        PageRange::new(PageNumber(self.start.get(p)), self.pages.get(p))
    }

    pub fn file<P: Platform>(&self, p: &P) -> Option<FileSlot> {
        self.file.get(p).checked_sub(1).map(FileSlot)
    }

    pub fn anon_vma<P: Platform>(&self, p: &P) -> Option<AnonVmaId> {
        self.anon_vma.get(p).checked_sub(1).map(AnonVmaId)
    }

    pub fn prot<P: Platform>(&self, p: &P) -> Prot {
        self.rights(p).0
    }

    /// What may be done with its pages, and whether they are dirty before this lets a program write to them: of a watched file, shared.
    pub fn rights<P: Platform>(&self, p: &P) -> (Prot, bool) {
        const WRITABLE: u32 = flag::READ | flag::WRITE;
        const EXECUTABLE: u32 = flag::READ | flag::EXECUTE;
        let flags = self.flags.get(p);
        let prot = match flags & flag::RIGHTS {
            0 => Prot::None,
            flag::READ => Prot::Read,
            WRITABLE => Prot::ReadWrite,
            EXECUTABLE => Prot::ReadExecute,
            _ => Prot::ReadWriteExecute,
        };
        (prot, flags & flag::WATCHED != 0)
    }

    pub fn set_prot<P: Platform>(&self, p: &P, prot: Prot) {
        self.assert_shut(p);
        self.flags.set(p, self.flags.get(p) & !flag::RIGHTS | prot_flags(prot));
    }

    /// Whether large pages are wanted.
    pub fn wants_large<P: Platform>(&self, p: &P) -> bool {
        self.flags.get(p) & flag::LARGE != 0
    }

    pub fn want_large<P: Platform>(&self, p: &P, want: bool) {
        self.assert_shut(p);
        let others = self.flags.get(p) & !flag::LARGE;
        self.flags.set(p, others | if want { flag::LARGE } else { 0 });
    }

    /// On which nodes its anonymous pages come: see `space/nodes.rs`.
    pub fn nodes<P: Platform>(&self, p: &P) -> u8 {
        (self.flags.get(p) >> flag::NODES_SHIFT) as u8
    }

    pub fn set_nodes<P: Platform>(&self, p: &P, nodes: u8) {
        self.assert_shut(p);
        let others = self.flags.get(p) & !flag::NODES;
        self.flags.set(p, others | u32::from(nodes) << flag::NODES_SHIFT);
    }

    /// How many pages it may grow downwards.
    pub fn room_below<P: Platform>(&self, p: &P) -> u64 {
        if self.flags.get(p) & flag::GROWS != 0 { self.offset.get(p) } else { 0 }
    }

    /// It may grow downwards so far from now on. It is no file's.
    pub fn set_room_below<P: Platform>(&self, p: &P, pages: u64) {
        self.assert_shut(p);
        let others = self.flags.get(p) & !flag::GROWS;
        self.flags.set(p, others | if pages > 0 { flag::GROWS } else { 0 });
        // There is no more room than that, and it is counted up and down from here on.
        self.offset.set(p, pages.min(PageNumber::USER_END.0));
    }

    /// Whether pages so far below it have an index.
    pub fn has_index_below<P: Platform>(&self, p: &P, pages: u64) -> bool {
        self.anon_vma.get(p) == 0 || self.index.get(p) >= pages
    }

    /// Whether its offset is that of its first page.
    fn has_offset<P: Platform>(&self, p: &P) -> bool {
        self.file.get(p) != 0 || self.flags.get(p) & flag::GROWS != 0
    }

    /// Whether its pages stay in memory.
    pub fn is_locked<P: Platform>(&self, p: &P) -> bool {
        self.flags.get(p) & (flag::LOCKED | flag::LOCKING) != 0
    }

    /// Its pages stay in memory while it is looked whether all of them are there.
    pub fn begin_lock<P: Platform>(&self, p: &P) {
        self.assert_shut(p);
        self.flags.set(p, self.flags.get(p) | flag::LOCKING);
    }

    /// From then on they do if they are; else it is as it was. Unless it was being locked: then it is not locked any more.
    pub fn end_lock<P: Platform>(&self, p: &P, locked: bool) {
        self.assert_shut(p);
        let was = self.flags.get(p);
        let stays = locked || was & (flag::LOCKED | flag::LOCKING) == flag::LOCKED | flag::LOCKING;
        let others = was & !(flag::LOCKED | flag::LOCKING);
        self.flags.set(p, others | if stays { flag::LOCKED } else { 0 });
    }

    /// Whether it is being unmapped: it holds its place, and nothing is mapped in it any more.
    pub fn is_leaving<P: Platform>(&self, p: &P) -> bool {
        self.flags.get(p) & flag::LEAVING != 0
    }

    /// From now on it is.
    pub fn leave<P: Platform>(&self, p: &P) {
        self.assert_shut(p);
        self.flags.set(p, self.flags.get(p) | flag::LEAVING);
    }

    /// Whether what is written here is this space's own: anonymous memory, or copies of a file's pages.
    pub fn is_private<P: Platform>(&self, p: &P) -> bool {
        self.file(p).is_none() || self.flags.get(p) & flag::PRIVATE != 0
    }

    /// See [`rights`](Self::rights).
    pub fn is_watched<P: Platform>(&self, p: &P) -> bool {
        self.rights(p).1
    }

    /// The file is watched, and shared. Before it is linked.
    pub fn watch<P: Platform>(&self, p: &P) {
        self.assert_shut(p);
        self.flags.set(p, self.flags.get(p) | flag::WATCHED);
    }

    /// The page of the file that `page` shows.
    pub fn file_page<P: Platform>(&self, p: &P, page: PageNumber) -> u64 {
        self.offset.get(p) + (page.0 - self.start.get(p))
    }

    /// The first page of its file, or the first index in its `anon_vma`, that it shows.
    pub(crate) fn first_index<P: Platform>(&self, p: &P, of: Of) -> u64 {
        match of {
            Of::File => self.offset.get(p),
            Of::AnonVma => self.index.get(p),
        }
    }

    /// Its place in one of its trees.
    pub(crate) fn place(&self, of: Of) -> &Place {
        match of {
            Of::File => &self.of_file,
            Of::AnonVma => &self.of_anon_vma,
        }
    }

    /// The index in the `anon_vma` of an anonymous page that is shown at `page`.
    pub fn anon_index<P: Platform>(&self, p: &P, page: PageNumber) -> u64 {
        self.index.get(p) + (page.0 - self.start.get(p))
    }

    /// Its anonymous pages belong to this `anon_vma` from now on. Before it is linked.
    pub fn join<P: Platform>(&self, p: &P, anon_vma: AnonVmaId, index: u64) {
        self.assert_shut(p);
        self.anon_vma.set(p, anon_vma.0 + 1);
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
        self.assert_shut(p);
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
        self.anon_vma.set(p, 0);
        self.index.set(p, 0);
        self.space.set(p, space.index());
    }

    /// Makes this show at `to` what `whole` shows where it is. Not linked yet.
    pub fn describe_moved<P: Platform>(&self, p: &P, whole: &Vma, to: PageNumber, space: SpaceId) {
        self.describe_part(p, whole, whole.range(p), space);
        self.start.set(p, to.0);
    }

    /// Makes this the part `range` of what `whole` shows, in `space`.
    pub fn describe_part<P: Platform>(&self, p: &P, whole: &Vma, range: PageRange, space: SpaceId) {
        self.assert_shut(p);
        let at = whole.start.get(p);
        // Other memory has no offset; it stays 0.
        let offset = if whole.has_offset(p) { whole.offset.get(p) + (range.start.0 - at) } else { 0 };
        self.start.set(p, range.start.0);
        self.pages.set(p, range.pages);
        self.offset.set(p, offset);
        self.file.set(p, whole.file.get(p));
        self.flags.set(p, whole.flags.get(p));
        self.anon_vma.set(p, whole.anon_vma.get(p));
        // Without an `anon_vma` nobody asks for it.
        self.index.set(p, whole.index.get(p) + (range.start.0 - at));
        self.space.set(p, space.index());
    }

    /// Who changes it has shut its gate.
    fn assert_shut<P: Platform>(&self, p: &P) {
        debug_assert!(
            self.gate.is_shut(p) || p.broken(Rule::WaitUntilInsideLeave),
            "a fault may be in a VMA that is changed"
        );
    }

    /// Whether a VMA behind this one could be one with it: for audits of a quiet system.
    pub(crate) fn audit_apart<P: Platform>(&self, p: &P, next: &Vma) -> bool {
        !self.continues_in(p, next)
    }

    /// Whether `next` goes on where this ends, in every respect.
    fn continues_in<P: Platform>(&self, p: &P, next: &Vma) -> bool {
        let end = self.range(p).end();
        end == next.range(p).start
            && self.flags.get(p) == next.flags.get(p)
            && self.file.get(p) == next.file.get(p)
            && (self.file.get(p) == 0 || self.file_page(p, end) == next.offset.get(p))
            && self.anon_vma.get(p) == next.anon_vma.get(p)
            && (self.anon_vma.get(p) == 0 || self.anon_index(p, end) == next.index.get(p))
    }

    /// Moves its borders; what it shows where stays. While it is in no tree where that changes its place.
    pub(crate) fn trim<P: Platform>(&self, p: &P, to: PageRange) {
        self.assert_shut(p);
        if self.has_offset(p) {
            self.offset.set(p, (self.offset.get(p) + to.start.0).wrapping_sub(self.start.get(p)));
        }
        if self.anon_vma.get(p) != 0 {
            self.index.set(p, (self.index.get(p) + to.start.0).wrapping_sub(self.start.get(p)));
        }
        self.start.set(p, to.start.0);
        self.pages.set(p, to.pages);
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    pub(crate) fn vma(&self, handle: u32) -> &'p Vma {
        self.root.vmas.get(self, handle)
    }

    /// The VMA that holds `page`, unless it is leaving. Under the VMA lock.
    pub(crate) fn find_vma(
        &self,
        id: SpaceId,
        space: &SpaceState,
        page: PageNumber,
    ) -> Option<(u32, &'p Vma)> {
        let p = self.platform();
        self.find_holder(id, space, page)
            .filter(|(_, vma)| !vma.is_leaving(p) || p.broken(Rule::LeavingIsUnmapped))
    }

    #[inline(always)]
    fn find_holder(&self, id: SpaceId, space: &SpaceState, page: PageNumber) -> Option<(u32, &'p Vma)> {
        let p = self.platform();
        // This CPU's last fault was probably in the same VMA.
        let shape = space.vmas.shape.get(p);
        if let Some(hint) = CpuGuard::new(self).slot().last_vma.get(id.slot(), shape)
            && let vma = self.vma(hint)
            && vma.range(p).contains(page)
        {
            return Some((hint, vma));
        }
        self.search_holder(id, space, page)
    }

    /// The same by the tree; this CPU remembers it.
    #[inline(never)]
    fn search_holder(&self, id: SpaceId, space: &SpaceState, page: PageNumber) -> Option<(u32, &'p Vma)> {
        let p = self.platform();
        let handle = space.vmas.by_address.at_or_before(p, &ByAddress(self), page.0)?;
        let vma = self.vma(handle);
        if !vma.range(p).contains(page) {
            return None;
        }
        self.remember_vma(id, space, handle);
        Some((handle, vma))
    }

    /// This CPU's next fault in a space will probably be in this VMA. Under the VMA lock.
    pub(crate) fn remember_vma(&self, id: SpaceId, space: &SpaceState, handle: u32) {
        let shape = space.vmas.shape.get(self.platform());
        CpuGuard::new(self).slot().last_vma.set(id.slot(), shape, handle);
    }

    /// The VMAs of a space by address. Under the VMA lock.
    pub(crate) fn vmas_of(&self, space: &SpaceState) -> impl Iterator<Item = (u32, &'p Vma)> {
        self.vmas_from(space, PageNumber(0))
    }

    /// The VMAs of a space from the first whose end lies above `page`. Under the VMA lock.
    pub(crate) fn vmas_from(
        &self,
        space: &SpaceState,
        page: PageNumber,
    ) -> impl Iterator<Item = (u32, &'p Vma)> {
        core::iter::successors(self.vma_from(space, page), |&(before, _)| {
            let handle = space.vmas.by_address.next(self.platform(), &ByAddress(self), before)?;
            Some((handle, self.vma(handle)))
        })
    }

    /// The first VMA that ends above `page`. Under the VMA lock.
    pub(crate) fn vma_from(&self, space: &SpaceState, page: PageNumber) -> Option<(u32, &'p Vma)> {
        let p = self.platform();
        let (tree, nodes) = (&space.vmas.by_address, ByAddress(self));
        let handle = match tree.at_or_before(p, &nodes, page.0) {
            Some(before) if self.vma(before).range(p).end() > page => before,
            Some(before) => tree.next(p, &nodes, before)?,
            None => tree.first(p, &nodes)?,
        };
        Some((handle, self.vma(handle)))
    }

    /// Puts a described VMA into its space and into the trees of what it shows. Under the VMA lock and those of the
    /// trees, all held alone.
    pub(crate) fn link_vma(&self, space: &SpaceState, handle: u32) {
        self.place_vma(space, handle);
        self.link_rmap(handle);
    }

    /// Takes a VMA out of all, and lets go of `alone` and of the VMA. Under the VMA lock, held alone. Afterwards
    /// no reverse map finds it, and a CPU that remembers it finds its gate shut.
    pub(crate) fn remove_vma(&self, space: &SpaceState, handle: u32, alone: Alone<'p, P>) {
        let removed = self.unlink_vma(space, handle, alone);
        self.release_removed(Some(removed));
    }

    /// The first half of it.
    fn unlink_vma(&self, space: &SpaceState, handle: u32, alone: Alone<'p, P>) -> Removed {
        self.displace_vma(space, handle);
        let childless = self.unlink_rmap(handle);
        drop(alone);
        Removed { vma: handle, childless }
    }

    /// The second: it waits for other CPUs, and had better not keep those waiting who want the VMAs.
    pub(crate) fn release_removed(&self, removed: Option<Removed>) {
        let Some(Removed { vma, childless }) = removed else { return };
        self.release_vma(vma);
        childless.into_iter().for_each(|anon_vma| self.release_anon_vma(anon_vma));
    }

    fn place_vma(&self, space: &SpaceState, handle: u32) {
        let p = self.platform();
        space.vmas.by_address.insert(p, &ByAddress(self), handle);
        space.vmas.map_count.set(p, space.vmas.map_count.get(p) + 1);
    }

    fn displace_vma(&self, space: &SpaceState, handle: u32) {
        let p = self.platform();
        self.vma(handle).assert_shut(p);
        space.vmas.by_address.remove(p, &ByAddress(self), handle);
        space.vmas.map_count.set(p, space.vmas.map_count.get(p) - 1);
        space.vmas.shape.set(p, space.vmas.shape.get(p) + 1);
    }

    /// A slot for one VMA more of a space. Under its VMA lock, held alone. May wait for memory.
    pub(crate) fn new_vma(&self, space: &SpaceState) -> Result<u32, Error> {
        self.new_vma_from(space, AllocFrom::HERE)
    }

    fn new_vma_from(&self, space: &SpaceState, from: AllocFrom) -> Result<u32, Error> {
        self.check_map_count(space)?;
        Ok(self.root.vmas.reserve(self, from)?.commit())
    }

    /// Whether a space may have one VMA more. Under its VMA lock, held alone.
    pub(crate) fn check_map_count(&self, space: &SpaceState) -> Result<(), Error> {
        let most = self.config().max_map_count;
        if space.vmas.map_count.get(self.platform()) < most { Ok(()) } else { Err(Error::MapCount { most }) }
    }

    /// Gives a VMA back that is not linked.
    pub(crate) fn release_vma(&self, handle: u32) {
        self.root.vmas.release(self, handle);
    }

    /// Makes `page` a border between VMAs. Under the VMA lock, held alone. May wait for memory.
    pub(crate) fn split_vma_at(
        &self,
        id: SpaceId,
        space: &SpaceState,
        page: PageNumber,
    ) -> Result<(), Error> {
        self.split_vma_from(id, space, page, AllocFrom::HERE)
    }

    /// The same with memory that comes from there.
    pub(crate) fn split_vma_from(
        &self,
        id: SpaceId,
        space: &SpaceState,
        page: PageNumber,
        from: AllocFrom,
    ) -> Result<(), Error> {
        let p = self.platform();
        let Some((handle, vma)) = self.vma_from(space, page) else { return Ok(()) };
        let whole = vma.range(p);
        if whole.start >= page {
            return Ok(());
        }
        let tail = self.new_vma_from(space, from)?;
        let _alone = self.lock_rmap(vma);
        self.vma(tail).describe_part(p, vma, PageRange::between(page, whole.end()), id);
        self.trim_rmap(handle, PageRange::between(whole.start, page));
        self.link_vma(space, tail);
        Ok(())
    }

    /// Joins the VMAs on both sides of `page` if they show one thing in one way. Under the VMA lock, held alone.
    pub(crate) fn merge_vmas_at(&self, space: &SpaceState, page: PageNumber) {
        let p = self.platform();
        let Some(before) = page.0.checked_sub(1).map(PageNumber) else { return };
        let mut both = self.vmas_from(space, before);
        let (Some((first, left)), Some((handle, right))) = (both.next(), both.next()) else { return };
        if right.range(p).start != page || !left.continues_in(p, right) {
            return;
        }
        let whole = PageRange::between(left.range(p).start, right.range(p).end());
        let alone = self.lock_rmap(right);
        self.note_lowered(left);
        self.trim_rmap(first, whole);
        self.remove_vma(space, handle, alone);
    }

    /// The first page of `range` that no VMA holds. Under the VMA lock.
    pub(crate) fn first_unmapped(
        &self,
        space: &SpaceState,
        range: PageRange,
        work: &mut Work<'_, 'p, P>,
    ) -> Option<PageNumber> {
        let p = self.platform();
        let mut at = range.start;
        for (_, vma) in self.vmas_from(space, range.start) {
            let found = vma.range(p);
            if at >= range.end() || found.start > at {
                break;
            }
            at = found.end();
            work.did(cost::VMA);
        }
        (at < range.end()).then_some(at)
    }

    /// The first page of `range` that a VMA holds. Under the VMA lock.
    pub(crate) fn first_mapped(&self, space: &SpaceState, range: PageRange) -> Option<PageNumber> {
        let p = self.platform();
        let (_, vma) = self.vma_from(space, range.start)?;
        vma.range(p).intersect(range).map(|clash| clash.start)
    }

    /// What would lie between VMAs around `range` if it held none.
    pub(crate) fn gap_around(&self, space: &SpaceState, range: PageRange) -> PageRange {
        let p = self.platform();
        let before = self.vma_before(space, range.start).map(|(_, vma)| vma.range(p).end());
        let after = self.vma_from(space, range.end()).map(|(_, vma)| vma.range(p).start);
        PageRange::between(
            before.map_or(PageNumber(0), |end| end.min(range.start)),
            after.map_or(PageNumber::USER_END, |start| start.max(range.end())),
        )
    }

    /// Takes `range` out of all VMAs, with nothing mapped in it any more. `spare` is the slot for the second half of
    /// the one that goes on at both ends. Under the VMA lock, held alone. Returns the last VMA that it took out whole, which is
    /// still to be [released](Self::release_removed).
    pub(crate) fn cut_vmas(
        &self,
        id: SpaceId,
        space: &SpaceState,
        range: PageRange,
        mut spare: Option<u32>,
        work: &mut Work<'_, 'p, P>,
    ) -> Option<Removed> {
        let (p, mut last) = (self.platform(), None);
        while let Some((handle, vma)) =
            self.vma_from(space, range.start).filter(|(_, vma)| vma.range(p).start < range.end())
        {
            let whole = vma.range(p);
            let alone = self.lock_rmap(vma);
            if whole.end() > range.end() {
                let tail = PageRange::between(range.end(), whole.end());
                if whole.start >= range.start {
                    self.trim_rmap(handle, tail);
                    break;
                }
                if let Some(spare) = spare.take() {
                    self.vma(spare).describe_part(p, vma, tail, id);
                    self.link_vma(space, spare);
                }
            }
            if whole.start < range.start {
                self.trim_rmap(handle, PageRange::between(whole.start, range.start));
                continue;
            }
            let removed = self.unlink_vma(space, handle, alone);
            self.release_removed(last.replace(removed));
            work.did(cost::LINK);
        }
        last
    }

    pub(crate) fn vma_before(&self, space: &SpaceState, page: PageNumber) -> Option<(u32, &'p Vma)> {
        let p = self.platform();
        let handle = space.vmas.by_address.at_or_before(p, &ByAddress(self), page.0.checked_sub(1)?)?;
        Some((handle, self.vma(handle)))
    }
}
