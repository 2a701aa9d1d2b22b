//! The reverse map: from a page to every entry that leads to it.

use core::ops::ControlFlow;
use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{FrameNumber, PageNumber};
use crate::charge::charge;
use crate::handle::{FileSlot, SpaceId, SpaceSlot};
use crate::kind::Kind;
use crate::paging::Entry;
use crate::paging::table::{self, LockedLeaf, Way};
use crate::platform::Platform;
use crate::pool::Reading;
use crate::profile::Scope;
use crate::rule::Rule;
use crate::sync::full_fence;
use crate::vma::{Of, SpaceState, Vma};

/// An entry that leads to the page, with its table's lock held.
pub(crate) struct Mapping<'a, 'p, P: Platform> {
    pub id: SpaceId,
    pub space: &'p SpaceState,
    pub page: PageNumber,
    pub leaf: LockedLeaf<'a, 'p, P>,
    pub entry: Entry,
    /// Whether the page has to stay in memory for it.
    pub locked: bool,
}

/// Visits the entries that lead to `n`, also those that let nobody use it ([`Prot::None`](crate::Prot::None)), until `visit`
/// has enough. The caller holds and has locked the page. May wait, and gives way; what a walk may miss then,
/// `vma/rmap_tree.rs` says.
pub(crate) fn walk<'p, P: Platform>(
    mm: &Manager<'p, P>,
    n: FrameNumber,
    visit: impl FnMut(Mapping<'_, 'p, P>) -> ControlFlow<()>,
) {
    walk_all(mm, (n, Size::Any), visit, |_, _| {});
}

/// The same for whoever takes the entries out: the large entry of a file that shows the page among others becomes small before it is visited.
pub(crate) fn walk_small<'p, P: Platform>(
    mm: &Manager<'p, P>,
    n: FrameNumber,
    visit: impl FnMut(Mapping<'_, 'p, P>) -> ControlFlow<()>,
) {
    walk_all(mm, (n, Size::Small), visit, |_, _| {});
}

/// How whoever walks wants the entries of files.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// As they are: a large entry shows other pages too, and is changed for all of them.
    Any,
    /// Of one page each.
    Small,
}

impl<P: Platform> Manager<'_, P> {
    /// Whether pages that a VMA shows stay in memory. Under the lock of their table.
    pub(crate) fn stays(&self, vma: &Vma) -> bool {
        let p = self.platform();
        self.root.locks.load(Ordering::Relaxed) != 0 && vma.is_locked(p) && !p.broken(Rule::LockedStays)
    }
}

/// Where a page is shown that only one space shows: of a large page, its first small one.
pub(crate) fn mapped_at<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber) -> Option<(SpaceId, PageNumber)> {
    let mut found = None;
    walk(mm, n, |mapping| {
        found = Some((mapping.id, mapping.page));
        ControlFlow::Break(())
    });
    found
}

/// The same; and names each space that shows the page at an address where no entry leads to it.
pub(crate) fn walk_all<'p, P: Platform>(
    mm: &Manager<'p, P>,
    (n, size): (FrameNumber, Size),
    mut visit: impl FnMut(Mapping<'_, 'p, P>) -> ControlFlow<()>,
    mut missing: impl FnMut(SpaceId, &'p SpaceState),
) {
    let p = mm.platform();
    let _scope = charge(p, Scope::RmapWalk);
    let frame = mm.memmap().get(n);
    let owner = frame.owner.get(p);
    let look = |vma: &Vma, page: PageNumber| {
        let slot = SpaceSlot(vma.space.get(p));
        let space = mm.space_at(slot);
        let id = space.id(p, slot);
        let find = || match table::find(mm, space.root(p), page) {
            Way::Large(_) if page != page.large() && !mm.has_spares() => None,
            Way::Small(leaf) | Way::Large(leaf) => Some(leaf.lock(mm)),
            Way::Gap(_) => None,
        };
        // A large page is found by its first small one; a large entry of a file by each of its pages.
        let leads_here = |leaf: &LockedLeaf<'_, 'p, P>, entry: Entry| {
            let part = if leaf.is_large() { page.index(0) as u32 } else { 0 };
            entry.is_mapped() && entry.frame().add(part) == n
        };
        let mut leaf = find();
        if let Some(large) = leaf.take_if(|leaf| leaf.is_large()) {
            let here = !large.leads_on(page) && leads_here(&large, large.read(page));
            leaf = if here && (size == Size::Any || !large.split_file(page)) {
                Some(large)
            } else {
                // None of ours, or small by now.
                drop(large);
                find().filter(|leaf| !leaf.is_large())
            };
        }
        if let Some(leaf) = leaf
            && let entry = leaf.read(page)
            && leads_here(&leaf, entry)
        {
            let locked = mm.stays(vma);
            return visit(Mapping { id, space, page, leaf, entry, locked });
        }
        missing(id, space);
        ControlFlow::Continue(())
    };
    // VMAs are visited with the lock of their tree shared: they stay linked, so their spaces' tables stay too.
    if frame.kind(p) == Kind::File {
        // The page was locked before; tables are read next. Partner: the fences in a fault on a shared file, which draws it.
        full_fence(p);
        mm.each_vma(&mm.file_at(FileSlot(owner)).rmap, Of::File, frame.index.get(p), look);
    } else if mm.config().swap {
        // Its `anon_vma` may have ended, if nobody maps the page any more.
        let reading = Reading::begin(mm);
        if let Some(anon_vma) = mm.root.anon_vmas.read(&reading, owner) {
            mm.each_vma(&anon_vma.rmap, Of::AnonVma, frame.anon_index(p), look);
        }
    }
}
