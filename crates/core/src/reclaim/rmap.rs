//! The reverse map: from a page to every entry that leads to it.

use crate::Manager;
use crate::addr::{FrameNumber, PageNumber};
use crate::file::FileSlot;
use crate::frame::Kind;
use crate::paging::table::{self, LockedLeaf, Way};
use crate::paging::{Entry, FamilyId, Region, Space, SpaceId, SpaceSlot};
use crate::platform::Platform;
use crate::profile::{self, Scope};
use crate::sync::full_fence;

/// An entry that leads to the page, with its table's lock held.
pub(super) struct Mapping<'a, 'p, P: Platform> {
    pub id: SpaceId,
    pub space: &'p Space,
    pub page: PageNumber,
    pub leaf: LockedLeaf<'a, 'p, P>,
    pub entry: Entry,
}

/// Visits every present entry that leads to `n`. The caller holds and has locked the page. May wait.
pub(super) fn walk<'p, P: Platform>(
    mm: &Manager<'p, P>,
    n: FrameNumber,
    visit: impl FnMut(Mapping<'_, 'p, P>),
) {
    walk_all(mm, n, visit, |_, _| {});
}

/// Where a page is shown that only one space shows: of a large page, its first small one.
pub(crate) fn shown_at<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber) -> Option<(SpaceId, PageNumber)> {
    let mut found = None;
    walk(mm, n, |mapping| found = Some((mapping.id, mapping.page)));
    found
}

/// The same; and names each space that shows the page at an address where no entry leads to it.
pub(super) fn walk_all<'p, P: Platform>(
    mm: &Manager<'p, P>,
    n: FrameNumber,
    mut visit: impl FnMut(Mapping<'_, 'p, P>),
    mut missing: impl FnMut(SpaceId, &'p Space),
) {
    let p = mm.platform();
    let _scope = profile::scope(p, Scope::RmapWalk);
    let frame = mm.frames().get(n);
    let owner = frame.owner.get(p);
    let mut look = |region: &Region, page: Option<PageNumber>| {
        let Some(page) = page else { return };
        let id = mm.space_id(SpaceSlot(region.space.get(p)));
        let space = mm.space(id);
        let leaf = match table::find(mm, space.root(p), page) {
            Way::Small(leaf) | Way::Large(leaf) => leaf,
            Way::Gap(_) => return missing(id, space),
        };
        // The entry of a large page begins at its own first page; whoever shows a part of it shows no page of ours.
        if leaf.is_large() && page != page.large() {
            return missing(id, space);
        }
        let leaf = leaf.lock(mm);
        let entry = leaf.read(page);
        if entry.is_present() && entry.frame() == n {
            visit(Mapping { id, space, page, leaf, entry });
        } else {
            missing(id, space);
        }
    };
    // Shared: regions stay linked, so their spaces' tables stay too, until the lock is dropped.
    if frame.kind(p) == Kind::File {
        // The page was locked before; tables are read next. Partner: the fences in a fault on a shared file, which draws it.
        full_fence(p);
        let (file, index) = (FileSlot(owner), frame.index.get(p));
        let _shared = mm.file(file).shown.lock.read(p);
        for region in mm.regions_of_file(file) {
            look(region, region.page_of(p, index));
        }
    } else if mm.config().swap {
        let (family, index) = (FamilyId(owner), frame.family_index(p));
        let _shared = mm.family(family).shown.lock.read(p);
        for region in mm.regions_of_family(family) {
            look(region, region.page_of_family(p, index));
        }
    }
}
