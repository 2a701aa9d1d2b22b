//! Extents that a CPU has for itself, on a list for each small size: the next one of a size is there without a search. All
//! that are longer share one list.

use super::cpu::{Bins, SIZES};
use super::extent::Want;
use super::list::HandleList;
use super::state::KernelRange;
use crate::Manager;
use crate::addr::PageRange;
use crate::platform::Platform;

/// Which list.
fn bin(pages: u64) -> usize {
    (pages.saturating_sub(1)).min(SIZES as u64) as usize
}

/// The numbers of the bits that are set.
fn bits(mut set: u32) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(bit)
    })
}

impl Bins {
    pub fn is_empty<P: Platform>(&self, p: &P) -> bool {
        self.some.get(p) == 0
    }

    /// Puts an extent of so many pages behind the others of its size.
    pub fn push<'p, P: Platform>(&self, mm: &Manager<'p, P>, v: &KernelRange<'p>, pages: u64, handle: u32) {
        let (p, bin) = (mm.platform(), bin(pages));
        self.lists[bin].push(p, v.link(mm), handle);
        self.mark(p, bin, true);
    }

    fn mark<P: Platform>(&self, p: &P, bin: usize, is_some: bool) {
        let old = self.some.get(p);
        let new = if is_some { old | 1 << bin } else { old & !(1 << bin) };
        if new != old {
            self.some.set(p, new);
        }
    }

    /// Takes all that others have, behind what is here.
    pub fn take_over<'p, P: Platform>(&self, mm: &Manager<'p, P>, v: &KernelRange<'p>, other: &Bins) {
        let p = mm.platform();
        let theirs = other.some.get(p);
        if theirs != 0 {
            bits(theirs).for_each(|bin| self.lists[bin].take_over(p, &other.lists[bin], v.link(mm)));
            self.some.set(p, self.some.get(p) | theirs);
            other.some.set(p, 0);
        }
    }

    /// Puts all behind what is on a list.
    pub fn empty_into<'p, P: Platform>(&self, mm: &Manager<'p, P>, v: &KernelRange<'p>, list: &HandleList) {
        let p = mm.platform();
        let mine = self.some.get(p);
        if mine != 0 {
            bits(mine).for_each(|bin| list.take_over(p, &self.lists[bin], v.link(mm)));
            self.some.set(p, 0);
        }
    }

    /// Takes one that is just what is wanted, of the first `looks` that may be.
    pub fn take<'p, P: Platform>(
        &self,
        mm: &Manager<'p, P>,
        v: &KernelRange<'p>,
        want: &Want,
        looks: usize,
    ) -> Option<(u32, PageRange)> {
        let (p, bin) = (mm.platform(), bin(want.pages));
        if self.some.get(p) & 1 << bin == 0 {
            return None;
        }
        let list = &self.lists[bin];
        let found = list.take_one(p, looks, |handle| {
            let extent = v.extent(mm, handle);
            let range = extent.range(p);
            (&extent.next, (range.pages == want.pages && want.fit(range) == Some(range)).then_some(range))
        });
        if list.is_empty(p) {
            self.mark(p, bin, false);
        }
        found
    }

    /// Takes the first of those that have no list of their own.
    pub fn pop_long<'p, P: Platform>(&self, mm: &Manager<'p, P>, v: &KernelRange<'p>) -> Option<u32> {
        let (p, list) = (mm.platform(), &self.lists[SIZES]);
        let found = list.pop(p, v.link(mm));
        if found.is_some() && list.is_empty(p) {
            self.mark(p, SIZES, false);
        }
        found
    }

    /// For a look at a quiet system.
    pub fn each<'p, P: Platform>(&self, mm: &Manager<'p, P>, v: &KernelRange<'p>, mut each: impl FnMut(u32)) {
        self.lists.iter().for_each(|list| list.each(mm.platform(), v.link(mm), &mut each));
    }
}

/// Whether extents of so many pages share a list with longer ones.
pub(super) fn is_long(pages: u64) -> bool {
    bin(pages) == SIZES
}
