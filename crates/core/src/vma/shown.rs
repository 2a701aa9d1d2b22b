//! The reverse map's trees: which VMAs show a page of a file, or an anonymous page?
//!
//! A **family** (Linux: `anon_vma`) is a mapping of anonymous memory, or of a file's private copies, with all that splits,
//! moves and forks made of it. An anonymous page belongs to a family and has an index there: the page at which the family
//! showed it first. So the reverse map finds its entries wherever they have gone: it asks each VMA of the family that
//! shows this index, and looks whether the entry there leads to the page. Two VMAs of a family may show one index
//! differently, as after a copied write: then the frame in the entry tells them apart.
//!
//! A file and a family have an interval tree each, so a page's walk visits those VMAs that show its index and no others,
//! however many there are. The walk lets go of the tree's lock now and then: whoever maps, unmaps, execs or exits waits
//! for a bounded part of it. It goes on after the last one it has visited, by its key:
//!
//! - **One order.** VMAs are sorted by the first index that they show, and among equals by when they were linked. An entry only
//!   moves from a VMA to one that comes later: fork links the child's VMA, and a move that at the new address, while the
//!   old one is linked and before the first entry goes there. So a walk that has passed the old one with the
//!   entry still there has dealt with it, and one that has not comes by the new one. (Linux relies on the same order in `fork`
//!   and `mremap`.)
//! - **What begins lower.** Where two VMAs become one, what the second showed is found at the key of the first, which a
//!   walk may have passed. So merging counts `lowered` up, and a walk that finds it changed begins anew; after a few times
//!   it keeps the lock instead, so that it ends.
//! - **What may be missed all the same**: an entry that a fault makes behind the walk. Reclaim asks the page's map count, not
//!   the walk, whether an entry is left; aging counts too few; and of a page that write-back has locked no fault makes an
//!   entry that may be written through (INV-2). A VMA may be visited twice, when it was split in between: what users of the
//!   walk do is the same done twice.

use core::ops::ControlFlow;

use super::family::{Alone, Family, FamilyId, Of, Shown};
use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::error::Error;
use crate::frame::AllocFrom;
use crate::memmap::MAX_INDEX;
use crate::platform::Platform;
use crate::resched::{Work, cost};
use crate::rule::Rule;
use crate::sync::Word64;
use crate::tree::interval::{Intervals, update_end};
use crate::tree::{Links, Nodes};
use crate::vma::{Region, Space};

/// How often a walk begins anew because VMAs were merged, before it keeps the lock.
const REWALKS: u32 = 3;

/// The VMAs of a file, or of a family, by what they show first.
struct ByIndex<'a, 'p, P: Platform> {
    mm: &'a Manager<'p, P>,
    of: Of,
}

impl<P: Platform> Nodes for ByIndex<'_, '_, P> {
    /// The first index; the serial number.
    type Key = (u64, u64);

    fn links(&self, handle: u32) -> &Links {
        &self.mm.region(handle).place(self.of).links
    }
    fn key(&self, handle: u32) -> (u64, u64) {
        let (p, region) = (self.mm.platform(), self.mm.region(handle));
        (region.first_index(p, self.of), region.serial.get(p))
    }
    fn update(&self, handle: u32) -> bool {
        update_end(self.mm.platform(), self, handle)
    }
}

impl<P: Platform> Intervals for ByIndex<'_, '_, P> {
    fn start(&self, handle: u32) -> u64 {
        self.mm.region(handle).first_index(self.mm.platform(), self.of)
    }
    fn end(&self, handle: u32) -> u64 {
        let (p, region) = (self.mm.platform(), self.mm.region(handle));
        region.first_index(p, self.of) + region.pages.get(p)
    }
    fn highest_end(&self, handle: u32) -> &Word64 {
        &self.mm.region(handle).place(self.of).highest_end
    }
}

impl Shown {
    pub fn clear<P: Platform>(&self, p: &P) {
        self.by_index.clear(p);
    }

    pub fn is_empty<P: Platform>(&self, p: &P) -> bool {
        self.by_index.is_empty(p)
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    pub(crate) fn family(&self, id: FamilyId) -> &'p Family {
        self.root.families.get(self, id.0)
    }

    /// A family that nobody belongs to yet, if anonymous pages can be reclaimed. May wait for memory.
    pub(crate) fn new_family(&self) -> Result<Option<FamilyId>, Error> {
        if !self.config().swap {
            return Ok(None);
        }
        let id = FamilyId(self.root.families.reserve(self, AllocFrom::HERE)?.commit());
        self.family(id).shown.clear(self.platform());
        Ok(Some(id))
    }

    /// The family of a neighbour of `range`, and the index with which the range goes on in it: so that neighbours that are
    /// mapped one by one can become one region.
    pub(crate) fn neighbours_family(&self, space: &Space, range: PageRange) -> Option<(FamilyId, u64)> {
        let p = self.platform();
        let before = || {
            let (_, region) = self.region_before(space, range.start)?;
            let next_to = region.range(p).end() == range.start;
            next_to.then(|| Some((region.family(p)?, region.family_index(p, range.start)))).flatten()
        };
        let after = || {
            let (_, region) = self.region_from(space, range.end())?;
            let next_to = region.range(p).start == range.end();
            let index = || region.family_index(p, range.end()).checked_sub(range.pages);
            next_to.then(|| Some((region.family(p)?, index()?))).flatten()
        };
        let fits = |&(_, index): &(FamilyId, u64)| index + range.pages <= MAX_INDEX;
        before().filter(fits).or_else(|| after().filter(fits))
    }

    /// Gives a family back to which no VMA belongs. Pages that somebody still works on may name it: the reverse map
    /// then finds nothing, or VMAs of another family, and no entry that leads to them.
    pub(crate) fn release_family(&self, id: FamilyId) {
        self.root.families.release(self, id.0);
    }

    /// Has the reverse map of a VMA's file and of its family alone: while its borders or its place change, so that no
    /// reverse map misses an entry of it. May wait.
    pub(crate) fn alone_with_shown(&self, region: &Region) -> Alone<'p, P> {
        let p = self.platform();
        Alone {
            _file: region.file(p).map(|file| self.file(file).shown.lock.write(p)),
            _family: region.family(p).map(|family| self.family(family).shown.lock.write(p)),
        }
    }

    /// Puts a described VMA into the trees of what it shows, behind all that show the same from the same index on. Under
    /// their locks, held alone.
    pub(crate) fn link_shown(&self, handle: u32) {
        let (p, region) = (self.platform(), self.region(handle));
        let trees = || self.trees_of(region).map(|(_, shown)| shown);
        let serial = 1 + trees().map(|shown| shown.linked.get(p)).max().unwrap_or(0);
        trees().for_each(|shown| shown.linked.set(p, serial));
        region.serial.set(p, serial);
        self.insert_shown(handle);
    }

    /// Takes a VMA out of both trees. Under their locks, held alone. Returns its family if it was the last of it: to be
    /// released once the locks are.
    #[must_use]
    pub(crate) fn unlink_shown(&self, handle: u32) -> Option<FamilyId> {
        let (p, region) = (self.platform(), self.region(handle));
        self.remove_shown(handle);
        region.family(p).filter(|&family| self.family(family).shown.is_empty(p))
    }

    /// Moves the borders of a VMA; what it shows where stays. Under the locks of its trees, held alone.
    pub(crate) fn trim_shown(&self, handle: u32, to: PageRange) {
        let (p, region) = (self.platform(), self.region(handle));
        if region.range(p).start == to.start {
            region.trim(p, to);
            for (of, shown) in self.trees_of(region) {
                shown.by_index.refresh(p, &ByIndex { mm: self, of }, handle);
            }
        } else {
            // Others may begin between its old place and its new one.
            self.remove_shown(handle);
            region.trim(p, to);
            self.insert_shown(handle);
        }
    }

    /// What a VMA with a higher key has shown is this one's from now on. Under the locks of its trees, held alone.
    pub(crate) fn note_lowered(&self, region: &Region) {
        let p = self.platform();
        self.trees_of(region)
            .for_each(|(_, shown)| shown.lowered.set(p, shown.lowered.get(p).wrapping_add(1)));
    }

    fn insert_shown(&self, handle: u32) {
        for (of, shown) in self.trees_of(self.region(handle)) {
            shown.by_index.insert(self.platform(), &ByIndex { mm: self, of }, handle);
        }
    }

    fn remove_shown(&self, handle: u32) {
        for (of, shown) in self.trees_of(self.region(handle)) {
            shown.by_index.remove(self.platform(), &ByIndex { mm: self, of }, handle);
        }
    }

    /// The trees that a VMA belongs to.
    fn trees_of(&self, region: &Region) -> impl Iterator<Item = (Of, &'p Shown)> {
        let p = self.platform();
        let file = region.file(p).map(|file| (Of::File, &self.file(file).shown));
        let family = region.family(p).map(|family| (Of::Family, &self.family(family).shown));
        file.into_iter().chain(family)
    }

    /// Visits the VMAs that show `index` of a file, or of a family, with the address where they do, until `each` has
    /// enough. Gives way between some of them, with the lock let go: the module says what that means. The caller holds no
    /// spin lock, and neither this lock nor one inside it.
    pub(crate) fn each_that_shows(
        &self,
        shown: &Shown,
        of: Of,
        index: u64,
        mut each: impl FnMut(&'p Region, PageNumber) -> ControlFlow<()>,
    ) {
        let (p, nodes) = (self.platform(), ByIndex { mm: self, of });
        let tree = &shown.by_index;
        let mut work = Work::begin(self);
        let (mut after, mut rewalks) = (None, 0);
        let mut lowered = None;
        loop {
            let shared = shown.lock.read(p);
            let now = shown.lowered.get(p);
            if lowered.replace(now).is_some_and(|before| before != now) && !p.broken(Rule::RewalkAfterMerge) {
                (after, rewalks) = (None, rewalks + 1);
            }
            let mut at = match after {
                None => tree.first_over(p, &nodes, index),
                Some((start, serial)) => tree.first_over_from(p, &nodes, (start, serial + 1), index),
            };
            loop {
                let Some(handle) = at else { return };
                let region = self.region(handle);
                let page = PageNumber(region.start.get(p) + (index - region.first_index(p, of)));
                if each(region, page).is_break() {
                    return;
                }
                if work.is_due(cost::VMA) {
                    if rewalks < REWALKS {
                        after = Some(nodes.key(handle));
                        break;
                    }
                    work.give_way();
                }
                at = tree.next_over(p, &nodes, handle, index);
            }
            drop(shared);
            work.give_way();
        }
    }
}
