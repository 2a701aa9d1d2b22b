//! The tree of a shard's free extents: finding a hole, by its length.
//!
//! Each free extent keeps the length of the longest one below it in the tree, so the first hole after any place that is
//! long enough is found in O(log n).

use super::extent::{Extent, Place, Want};
use super::state::KernelRange;
use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::platform::Platform;
use crate::pool::Pool;
use crate::rule::Rule;
use crate::tree::{Links, Nodes, Tree};

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
    type Node = Extent;
    fn node(&self, handle: u32) -> &Extent {
        self.pool.get(self.mm, handle)
    }
    fn links<'n>(&self, extent: &'n Extent) -> &'n Links {
        &extent.links
    }
    fn key(&self, extent: &Extent) -> u64 {
        extent.start.get(self.mm.platform())
    }
    fn update(&self, extent: &Extent) -> bool {
        let p = self.mm.platform();
        let below = extent.links.children(p).into_iter().flatten().map(|child| self.longest(child));
        let longest = below.fold(extent.pages.get(p), u64::max);
        let is_new = extent.longest.get(p) != longest;
        if is_new {
            extent.longest.set(p, longest);
        }
        is_new
    }
}

impl<'p> KernelRange<'p> {
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
                nodes.links_of(handle).children(p).into_iter().flatten().map(|child| nodes.longest(child));
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
            |node: u32| nodes.links_of(node).children(p)[1].filter(|&right| nodes.longest(right) >= pages);
        if let Some(right) = right(handle) {
            return Some(self.lowest_long(mm, right, pages));
        }
        let mut below = handle;
        while let Some(parent) = nodes.links_of(below).parent(p) {
            let from_left = nodes.links_of(parent).children(p)[0] == Some(below);
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
            let [left, right] = nodes.links_of(at).children(p);
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
