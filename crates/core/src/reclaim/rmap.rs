//! The reverse map: from a page to every entry that leads to it.

use crate::Manager;
use crate::addr::{FrameNumber, PageNumber};
use crate::file::FileId;
use crate::frame::Kind;
use crate::paging::table::{self, LockedLeaf, Way};
use crate::paging::{Entry, Space, SpaceId};
use crate::platform::Platform;
use crate::profile::{self, Scope};

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
    if frame.kind(p) != Kind::File {
        return; // Anonymous pages are on no list while there is no swap.
    }
    let (file, index) = (FileId(frame.owner.get(p)), frame.index.get(p));
    // Shared: regions stay linked, so their spaces' tables stay too, until this is dropped.
    let _shared = mm.file(file).mapping_lock.read(p);
    for (_, region) in mm.regions_of_file(file) {
        let Some(page) = region.page_of(p, index) else { continue };
        let id = SpaceId(region.space.get(p));
        let space = mm.space(id);
        let Way::Small(leaf) = table::find(mm, space.root(p), page) else {
            missing(id, space);
            continue;
        };
        let leaf = leaf.lock(mm);
        let entry = leaf.read(page);
        if entry.is_present() && entry.frame() == n {
            visit(Mapping { id, space, page, leaf, entry });
        } else {
            missing(id, space);
        }
    }
}
