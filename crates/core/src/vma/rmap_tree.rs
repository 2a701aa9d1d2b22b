//! The reverse map's trees: which VMAs show a page of a file, or an anonymous page?
//!
//! An **`anon_vma`** is, as in Linux, a mapping of anonymous memory, or of a file's private copies, with all that splits,
//! moves and forks made of it. An anonymous page belongs to an `anon_vma` and has an index there: the page at which the `anon_vma`
//! showed it first. So the reverse map finds its entries wherever they have gone: it asks each VMA of the `anon_vma` that
//! shows this index, and looks whether the entry there leads to the page. Two VMAs of an `anon_vma` may show one index
//! differently, as after a copied write: then the frame in the entry tells them apart.
//!
//! A file and an `anon_vma` have an interval tree each, so a page's walk visits those VMAs that show its index and no others,
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

use super::anon_vma::{Alone, AnonVma, AnonVmaId, Of, RmapTree};
use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::error::Error;
use crate::frame::AllocFrom;
use crate::memmap::MAX_INDEX;
use crate::platform::Platform;
use crate::resched::{Work, cost};
use crate::rule::Rule;
use crate::sync::{ReadGuard, Word64};
use crate::tree::interval::{Found, Intervals, update_end};
use crate::tree::{Links, Nodes};
use crate::vma::{SpaceState, Vma};

/// How often a walk begins anew because VMAs were merged, before it keeps the lock.
const REWALKS: u32 = 3;

/// The VMAs of a file, or of an `anon_vma`, by what they show first.
struct ByIndex<'a, 'p, P: Platform> {
    mm: &'a Manager<'p, P>,
    of: Of,
}

impl<P: Platform> Nodes for ByIndex<'_, '_, P> {
    /// The first index; the serial number.
    type Key = (u64, u64);

    type Node = Vma;

    fn node(&self, handle: u32) -> &Vma {
        self.mm.vma(handle)
    }
    fn links<'n>(&self, vma: &'n Vma) -> &'n Links {
        &vma.place(self.of).links
    }
    fn key(&self, vma: &Vma) -> (u64, u64) {
        let p = self.mm.platform();
        (vma.first_index(p, self.of), vma.serial.get(p))
    }
    fn update(&self, vma: &Vma) -> bool {
        update_end(self.mm.platform(), self, vma)
    }
}

impl<P: Platform> ByIndex<'_, '_, P> {
    /// Where a VMA shows an index that it has.
    fn page(&self, vma: &Vma, index: u64) -> PageNumber {
        let p = self.mm.platform();
        PageNumber(vma.start.get(p) + (index - vma.first_index(p, self.of)))
    }
}

impl<P: Platform> Intervals for ByIndex<'_, '_, P> {
    fn start(&self, vma: &Vma) -> u64 {
        vma.first_index(self.mm.platform(), self.of)
    }
    fn end(&self, vma: &Vma) -> u64 {
        let p = self.mm.platform();
        vma.first_index(p, self.of) + vma.pages.get(p)
    }
    fn highest_end<'n>(&self, vma: &'n Vma) -> &'n Word64 {
        &vma.place(self.of).highest_end
    }
}

impl RmapTree {
    pub fn clear<P: Platform>(&self, p: &P) {
        self.by_index.clear(p);
    }

    pub fn is_empty<P: Platform>(&self, p: &P) -> bool {
        self.by_index.is_empty(p)
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    pub(crate) fn anon_vma(&self, id: AnonVmaId) -> &'p AnonVma {
        self.root.anon_vmas.get(self, id.0)
    }

    /// An `anon_vma` that nobody belongs to yet, if anonymous pages can be reclaimed. May wait for memory.
    pub(crate) fn new_anon_vma(&self) -> Result<Option<AnonVmaId>, Error> {
        if !self.config().swap {
            return Ok(None);
        }
        let id = AnonVmaId(self.root.anon_vmas.reserve(self, AllocFrom::HERE)?.commit());
        self.anon_vma(id).rmap.clear(self.platform());
        Ok(Some(id))
    }

    /// The `anon_vma` of a neighbour of `range`, and the index with which the range goes on in it: so that neighbours that are
    /// mapped one by one can become one VMA.
    pub(crate) fn neighbours_anon_vma(
        &self,
        space: &SpaceState,
        range: PageRange,
    ) -> Option<(AnonVmaId, u64)> {
        let p = self.platform();
        let before = || {
            let (_, vma) = self.vma_before(space, range.start)?;
            let next_to = vma.range(p).end() == range.start;
            next_to.then(|| Some((vma.anon_vma(p)?, vma.anon_index(p, range.start)))).flatten()
        };
        let after = || {
            let (_, vma) = self.vma_from(space, range.end())?;
            let next_to = vma.range(p).start == range.end();
            let index = || vma.anon_index(p, range.end()).checked_sub(range.pages);
            next_to.then(|| Some((vma.anon_vma(p)?, index()?))).flatten()
        };
        let fits = |&(_, index): &(AnonVmaId, u64)| index + range.pages <= MAX_INDEX;
        before().filter(fits).or_else(|| after().filter(fits))
    }

    /// Gives an `anon_vma` back to which no VMA belongs. Pages that somebody still works on may name it: the reverse map
    /// then finds nothing, or VMAs of another `anon_vma`, and no entry that leads to them.
    pub(crate) fn release_anon_vma(&self, id: AnonVmaId) {
        self.root.anon_vmas.release(self, id.0);
    }

    /// Has the reverse map of a VMA's file and of its `anon_vma` alone: while its borders or its place change, so that no
    /// reverse map misses an entry of it. May wait.
    pub(crate) fn lock_rmap(&self, vma: &Vma) -> Alone<'p, P> {
        let p = self.platform();
        Alone {
            _file: vma.file(p).map(|file| self.file_at(file).rmap.lock.write(p)),
            _anon_vma: vma.anon_vma(p).map(|anon_vma| self.anon_vma(anon_vma).rmap.lock.write(p)),
        }
    }

    /// Puts a described VMA into the trees of what it shows, behind all that show the same from the same index on. Under
    /// their locks, held alone.
    pub(crate) fn link_rmap(&self, handle: u32) {
        let (p, vma) = (self.platform(), self.vma(handle));
        let trees = || self.trees_of(vma).map(|(_, rmap)| rmap);
        let serial = 1 + trees().map(|rmap| rmap.linked.get(p)).max().unwrap_or(0);
        trees().for_each(|rmap| rmap.linked.set(p, serial));
        vma.serial.set(p, serial);
        self.insert_rmap(handle);
    }

    /// Takes a VMA out of both trees. Under their locks, held alone. Returns its `anon_vma` if it was the last of it: to be
    /// released once the locks are.
    #[must_use]
    pub(crate) fn unlink_rmap(&self, handle: u32) -> Option<AnonVmaId> {
        let (p, vma) = (self.platform(), self.vma(handle));
        self.remove_rmap(handle);
        vma.anon_vma(p).filter(|&anon_vma| self.anon_vma(anon_vma).rmap.is_empty(p))
    }

    /// Moves the borders of a VMA; what it shows where stays. Under the locks of its trees, held alone.
    pub(crate) fn trim_rmap(&self, handle: u32, to: PageRange) {
        let (p, vma) = (self.platform(), self.vma(handle));
        if vma.range(p).start == to.start {
            vma.trim(p, to);
            for (of, rmap) in self.trees_of(vma) {
                rmap.by_index.refresh(p, &ByIndex { mm: self, of }, handle);
            }
        } else {
            // Others may begin between its old place and its new one.
            self.remove_rmap(handle);
            vma.trim(p, to);
            self.insert_rmap(handle);
        }
    }

    /// What a VMA with a higher key has shown is this one's from now on. Under the locks of its trees, held alone.
    pub(crate) fn note_lowered(&self, vma: &Vma) {
        let p = self.platform();
        self.trees_of(vma).for_each(|(_, rmap)| rmap.lowered.set(p, rmap.lowered.get(p).wrapping_add(1)));
    }

    fn insert_rmap(&self, handle: u32) {
        for (of, rmap) in self.trees_of(self.vma(handle)) {
            rmap.by_index.insert(self.platform(), &ByIndex { mm: self, of }, handle);
        }
    }

    fn remove_rmap(&self, handle: u32) {
        for (of, rmap) in self.trees_of(self.vma(handle)) {
            rmap.by_index.remove(self.platform(), &ByIndex { mm: self, of }, handle);
        }
    }

    /// The trees that a VMA belongs to.
    fn trees_of(&self, vma: &Vma) -> impl Iterator<Item = (Of, &'p RmapTree)> {
        let p = self.platform();
        let file = vma.file(p).map(|file| (Of::File, &self.file_at(file).rmap));
        let anon_vma = vma.anon_vma(p).map(|anon_vma| (Of::AnonVma, &self.anon_vma(anon_vma).rmap));
        file.into_iter().chain(anon_vma)
    }

    /// How many trees a VMA belongs to: for audits.
    pub(crate) fn count_trees(&self, vma: &Vma) -> usize {
        self.trees_of(vma).count()
    }

    /// How many VMAs are in a tree, if each `belongs` there, and they are in order: for audits of a quiet system.
    pub(crate) fn audit_rmap(
        &self,
        rmap: &RmapTree,
        of: Of,
        belongs: impl Fn(&Vma) -> bool,
    ) -> Option<usize> {
        let (p, nodes, tree) = (self.platform(), ByIndex { mm: self, of }, &rmap.by_index);
        let (mut last, mut count) = (None, 0);
        let mut at = tree.first(p, &nodes);
        while let Some(handle) = at {
            let vma = self.vma(handle);
            let key = nodes.key(vma);
            // What it keeps about those below it would not change.
            let good = last < Some(key) && key.1 <= rmap.linked.get(p) && belongs(vma) && !nodes.update(vma);
            good.then_some(())?;
            (last, count, at) = (Some(key), count + 1, tree.next(p, &nodes, handle));
        }
        Some(count)
    }

    /// Visits the VMAs that show `index` of a file, or of an `anon_vma`, with the address where they do, until `each` has
    /// enough. Gives way between some of them, with the lock let go: the module says what that means. The caller holds no
    /// spin lock, and neither this lock nor one inside it.
    pub(crate) fn each_vma(
        &self,
        rmap: &RmapTree,
        of: Of,
        index: u64,
        mut each: impl FnMut(&Vma, PageNumber) -> ControlFlow<()>,
    ) {
        let (p, nodes) = (self.platform(), ByIndex { mm: self, of });
        let shared = rmap.lock.read(p);
        let lowered = rmap.lowered.get(p);
        // Most pages are shown once: what follows is not made ready for them.
        if let Some(first) = rmap.by_index.first_over(p, &nodes, index)
            && each(first.1, nodes.page(first.1, index)).is_continue()
        {
            self.each_vma_after(rmap, &nodes, index, (first, lowered, shared), &mut each);
        }
    }

    /// The same behind the first one, which was found, with the lock held since then, when `lowered` was this.
    #[inline(never)]
    fn each_vma_after<'n>(
        &self,
        rmap: &'n RmapTree,
        nodes: &'n ByIndex<'_, 'p, P>,
        index: u64,
        (first, mut lowered, mut shared): (Found<'n, ByIndex<'_, 'p, P>>, u32, ReadGuard<'n, P>),
        each: &mut dyn FnMut(&Vma, PageNumber) -> ControlFlow<()>,
    ) {
        let (p, tree) = (self.platform(), &rmap.by_index);
        let mut work = Work::begin(self);
        let (mut passed, mut rewalks) = (first, 0);
        loop {
            let next = if !work.is_due(cost::VMA) {
                tree.next_over(p, nodes, passed, index)
            } else if rewalks >= REWALKS {
                work.give_way();
                tree.next_over(p, nodes, passed, index)
            } else {
                let (start, serial) = nodes.key(passed.1);
                drop(shared);
                work.give_way();
                shared = rmap.lock.read(p);
                let before = core::mem::replace(&mut lowered, rmap.lowered.get(p));
                if before != lowered && !p.broken(Rule::RewalkAfterMerge) {
                    rewalks += 1;
                    tree.first_over(p, nodes, index)
                } else {
                    tree.first_over_from(p, nodes, (start, serial + 1), index)
                }
            };
            let Some(found) = next else { return };
            passed = found;
            if each(passed.1, nodes.page(passed.1, index)).is_break() {
                return;
            }
        }
    }
}
