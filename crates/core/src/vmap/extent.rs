//! Extents: runs of kernel pages, and the tree of those that are free.
//!
//! Each free extent keeps the length of the longest one below it in the tree, so the first hole after any place that is
//! long enough is found in O(log n). Neighbours are merged when an extent comes back: no two free ones touch.
//!
//! What an extent may do next is said by the type that holds its handle:
//!
//! ```text
//!   free --take--> Owned --(entries set)--> in use --(entries cleared)--> Unmapped --(flush)--> Idle --> free
//!                    |                                                                           ^
//!                    +---------------------- never mapped: nothing to flush ---------------------+
//! ```
//!
//! Only an [`Idle`] one becomes free, so no address is handed out before its flush (INV-3).

use super::Vmap;
use super::shard::Place;
use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::platform::Platform;
use crate::pool::{Goes, Pool, Pooled, Zeroed};
use crate::rule::Rule;
use crate::sync::{Word32, Word64};
use crate::tree::{Links, Nodes, Tree};

/// A run of kernel pages, its guard page included.
#[repr(C)]
pub(crate) struct Extent {
    links: Links,
    start: Word64,
    pages: Word64,
    /// In the tree of free extents: the most pages of any at or below this one.
    longest: Word64,
    /// The next one on whatever list this is on, plus one: spare, waiting for a purge, or of the eager policy.
    pub next: Word32,
    /// What it is in use for, and whether its last page is a guard.
    purpose: Word32,
    /// Extents for the further shards that it reaches into when it becomes free, plus one.
    pub more: Word32,
}

// SAFETY: atomics only.
unsafe impl Zeroed for Extent {}

impl Pooled for Extent {
    // Those in use are found without a lock.
    const GOES: Goes = Goes::Never;
}

/// What an extent is in use for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Purpose {
    /// Nobody may release it: it is being made.
    Unfinished = 0,
    /// Frames that the caller gave.
    Map = 1,
    /// Frames of its own.
    Alloc = 2,
    /// A few frames that the caller gave, without a block.
    Ram = 3,
    /// A per-CPU block.
    Block = 4,
}

const GUARD: u32 = 1 << 8;

/// An extent that was taken and that no entry leads to: nothing is owed for it.
#[must_use = "its addresses are lost"]
#[derive(Debug)]
pub(super) struct Owned {
    handle: u32,
    place: PageRange,
}

/// An extent whose entries were cleared: CPUs may still use them.
#[must_use = "it must wait for a purge, or be flushed"]
pub(super) struct Unmapped(u32);

/// An extent that no CPU can use any more, and that may become free.
#[must_use = "its addresses are lost"]
pub(super) struct Idle(u32);

impl Owned {
    /// With all its pages.
    pub(super) fn new(handle: u32, place: PageRange) -> Owned {
        Owned { handle, place }
    }
    pub fn handle(&self) -> u32 {
        self.handle
    }
    /// Its pages, those of a guard too.
    pub fn place(&self) -> PageRange {
        self.place
    }
    /// Its entries are about to be set.
    pub fn in_use(self) -> u32 {
        self.handle
    }
    /// No entry of it was ever present.
    pub fn never_mapped(self) -> Idle {
        Idle(self.handle)
    }
}

impl Unmapped {
    /// Taken out of use by the caller, its entries cleared.
    pub fn cleared(handle: u32) -> Unmapped {
        Unmapped(handle)
    }
    pub fn handle(&self) -> u32 {
        self.0
    }
    /// Every CPU has flushed since the entries were cleared. For those who have just done so: the eager policy, and
    /// `Flushed` of the purge.
    pub fn flushed(self) -> Idle {
        Idle(self.0)
    }
}

impl Idle {
    pub fn handle(&self) -> u32 {
        self.0
    }
}

impl Extent {
    /// With its guard page.
    pub fn range<P: Platform>(&self, p: &P) -> PageRange {
        PageRange::new(PageNumber(self.start.get(p)), self.pages.get(p))
    }

    /// Without.
    pub fn mapped<P: Platform>(&self, p: &P) -> PageRange {
        PageRange::new(PageNumber(self.start.get(p)), self.pages.get(p) - self.used_for(p).1)
    }

    /// What it is in use for, and how many pages its guard has.
    pub fn used_for<P: Platform>(&self, p: &P) -> (Purpose, u64) {
        let word = self.purpose.get(p);
        let purpose = match word & (GUARD - 1) {
            1 => Purpose::Map,
            2 => Purpose::Alloc,
            3 => Purpose::Ram,
            4 => Purpose::Block,
            _ => Purpose::Unfinished,
        };
        (purpose, u64::from(word & GUARD != 0))
    }

    pub fn place<P: Platform>(&self, p: &P, range: PageRange) {
        self.start.set(p, range.start.0);
        self.pages.set(p, range.pages);
    }

    pub fn purpose<P: Platform>(&self, p: &P) -> Purpose {
        self.used_for(p).0
    }

    pub fn set_purpose<P: Platform>(&self, p: &P, purpose: Purpose, guard: bool) {
        self.purpose.set(p, purpose as u32 | if guard { GUARD } else { 0 });
    }
}

/// Free extents by their address, with the longest below.
pub(super) struct ByAddress<'a, 'p, P: Platform> {
    mm: &'a Manager<'p, P>,
    pool: &'p Pool<Extent>,
}

impl<P: Platform> ByAddress<'_, '_, P> {
    fn longest(&self, handle: u32) -> u64 {
        self.pool.get(self.mm, handle).longest.get(self.mm.platform())
    }
}

impl<P: Platform> Nodes for ByAddress<'_, '_, P> {
    type Key = u64;
    fn links(&self, handle: u32) -> &Links {
        &self.pool.get(self.mm, handle).links
    }
    fn key(&self, handle: u32) -> u64 {
        self.pool.get(self.mm, handle).start.get(self.mm.platform())
    }
    fn update(&self, handle: u32) -> bool {
        let (p, extent) = (self.mm.platform(), self.pool.get(self.mm, handle));
        let below = extent.links.children(p).into_iter().flatten().map(|child| self.longest(child));
        let longest = below.fold(extent.pages.get(p), u64::max);
        let is_new = extent.longest.get(p) != longest;
        if is_new {
            extent.longest.set(p, longest);
        }
        is_new
    }
}

/// What is looked for: pages, at an alignment, between two addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub pages: u64,
    pub align: u64,
    pub within: PageRange,
}

impl Want {
    /// The first place for it in a hole.
    pub fn fit(&self, hole: PageRange) -> Option<PageRange> {
        let room = hole.intersect(self.within)?;
        let start = room.start.0.checked_next_multiple_of(self.align)?;
        let end = start.checked_add(self.pages)?;
        (end <= room.end().0).then(|| PageRange::new(PageNumber(start), self.pages))
    }
}

impl<'p> Vmap<'p> {
    pub(super) fn extent<P: Platform>(&self, mm: &Manager<'p, P>, handle: u32) -> &'p Extent {
        self.state.extents.get(mm, handle)
    }

    pub(super) fn free_by_address<'a, P: Platform>(&self, mm: &'a Manager<'p, P>) -> ByAddress<'a, 'p, P> {
        ByAddress { mm, pool: &self.state.extents }
    }

    /// The first free extent in which `want` has a place, and the place. Under the tree's lock.
    ///
    /// O(log n), because a hole of `pages + align - 1` fits wherever it lies. Only where no hole is as long as that are
    /// those looked at that are long enough and perhaps lie badly, one by one (PITFALLS 29).
    pub(super) fn find_free<P: Platform>(
        &self,
        mm: &Manager<'p, P>,
        tree: &Tree,
        want: &Want,
    ) -> Option<(u32, PageRange)> {
        let p = mm.platform();
        let surely = want.pages.checked_add(want.align - 1)?;
        let lengths = [surely, want.pages];
        let exact = want.align > 1 && !p.broken(Rule::ExactFit);
        for length in &lengths[..if exact { 2 } else { 1 }] {
            let mut at = self.first_long(mm, tree, want.within.start, *length);
            while let Some(handle) = at {
                let hole = self.extent(mm, handle).range(p);
                if hole.start >= want.within.end() {
                    break;
                }
                if let Some(place) = want.fit(hole) {
                    return Some((handle, place));
                }
                at = self.next_long(mm, tree, handle, *length);
            }
        }
        None
    }

    /// Whether no two free extents touch, and each knows the longest below it. On a quiet system.
    pub(super) fn free_tree_good<P: Platform>(&self, mm: &Manager<'p, P>) -> bool {
        let (p, nodes) = (mm.platform(), self.free_by_address(mm));
        let (mut end, mut good) = (None, true);
        self.each_extent(mm, |handle, place| {
            if place != Place::Free {
                return;
            }
            let range = self.extent(mm, handle).range(p);
            let below =
                nodes.links(handle).children(p).into_iter().flatten().map(|child| nodes.longest(child));
            // At a border between shards two may touch.
            let touches =
                end == Some(range.start) && self.part(self.shard_of(range.start)).start != range.start;
            good &= range.pages > 0 && !touches && nodes.longest(handle) == below.fold(range.pages, u64::max);
            end = Some(range.end());
        });
        good
    }

    /// The first free extent of at least `pages` that ends above `from`. O(log n).
    fn first_long<P: Platform>(
        &self,
        mm: &Manager<'p, P>,
        tree: &Tree,
        from: PageNumber,
        pages: u64,
    ) -> Option<u32> {
        let (p, nodes) = (mm.platform(), self.free_by_address(mm));
        let top = tree.top(p).filter(|&top| nodes.longest(top) >= pages)?;
        let Some(before) = tree.at_or_before(p, &nodes, from.0) else {
            return Some(self.lowest_long(mm, top, pages));
        };
        let range = self.extent(mm, before).range(p);
        if range.end() > from && range.pages >= pages {
            return Some(before);
        }
        self.next_long(mm, tree, before, pages)
    }

    /// The first free extent after this one that has at least `pages`. O(log n): up until somebody on the right has a long
    /// one, and straight down to it.
    fn next_long<P: Platform>(
        &self,
        mm: &Manager<'p, P>,
        _tree: &Tree,
        handle: u32,
        pages: u64,
    ) -> Option<u32> {
        let (p, nodes) = (mm.platform(), self.free_by_address(mm));
        let right =
            |node: u32| nodes.links(node).children(p)[1].filter(|&right| nodes.longest(right) >= pages);
        if let Some(right) = right(handle) {
            return Some(self.lowest_long(mm, right, pages));
        }
        let mut below = handle;
        while let Some(parent) = nodes.links(below).parent(p) {
            let from_left = nodes.links(parent).children(p)[0] == Some(below);
            if from_left && self.extent(mm, parent).pages.get(p) >= pages {
                return Some(parent);
            }
            if from_left && let Some(right) = right(parent) {
                return Some(self.lowest_long(mm, right, pages));
            }
            below = parent;
        }
        None
    }

    /// The lowest of at least `pages` at or below `top`, where there is one.
    fn lowest_long<P: Platform>(&self, mm: &Manager<'p, P>, top: u32, pages: u64) -> u32 {
        let (p, nodes) = (mm.platform(), self.free_by_address(mm));
        let mut at = top;
        loop {
            let [left, right] = nodes.links(at).children(p);
            if let Some(left) = left.filter(|&left| nodes.longest(left) >= pages) {
                at = left;
            } else if self.extent(mm, at).pages.get(p) >= pages {
                return at;
            } else if let Some(right) = right {
                at = right;
            } else {
                return at;
            }
        }
    }
}
