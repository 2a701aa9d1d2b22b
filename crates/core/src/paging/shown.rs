//! Who shows a page: the regions of a file, or of a family.
//!
//! A **family** is a mapping of anonymous memory, or of a file's private copies, with all that splits, moves and forks
//! made of it. An anonymous page belongs to a family and has an index there: the page at which the family showed it
//! first. So the reverse map finds its entries wherever they have gone: it asks each region of the family where it
//! shows this index, and looks whether the entry there leads to the page. Two regions of a family may show one index
//! differently, as after a copied write: then the frame in the entry tells them apart.

use core::sync::atomic::Ordering;

use super::{Region, Space};
use crate::Manager;
use crate::addr::PageRange;
use crate::error::Error;
use crate::file::FileSlot;
use crate::frame::{AllocFrom, MAX_INDEX};
use crate::platform::Platform;
use crate::pool::Zeroed;
use crate::profile::Scope;
use crate::sync::{RwLock, Word32, WriteGuard};

/// The regions that show something.
#[repr(C)]
pub(crate) struct Shown {
    /// Shared by the reverse map; had alone by whoever changes the list, or the borders or the place of a region on it.
    pub lock: RwLock<{ Scope::ReverseMapLock as u8 }>,
    /// Handle plus one.
    first: Word32,
}

/// A region's neighbours on such a list: handles plus one.
#[repr(C)]
pub(crate) struct Neighbours {
    next: Word32,
    prev: Word32,
}

/// A family, by the handle of its slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FamilyId(pub u32);

/// What the core keeps about a family.
#[repr(C, align(64))]
pub(crate) struct Family {
    pub shown: Shown,
}

// SAFETY: atomics and locks only; zeros are shown by nobody.
unsafe impl Zeroed for Family {}

/// The reverse map cannot look at a region meanwhile: neither through its file nor through its family.
pub(crate) struct Alone<'p, P: Platform> {
    _file: Option<WriteGuard<'p, P>>,
    _family: Option<WriteGuard<'p, P>>,
}

impl Shown {
    pub fn clear<P: Platform>(&self, p: &P) {
        self.first.set(p, 0);
    }

    pub fn is_empty<P: Platform>(&self, p: &P) -> bool {
        self.first.get(p) == 0
    }

    fn link<P: Platform>(&self, mm: &Manager<'_, P>, handle: u32, of: impl Fn(&Region) -> &Neighbours) {
        let p = mm.platform();
        let first = self.first.get(p);
        let own = of(mm.region(handle));
        own.next.set(p, first);
        own.prev.set(p, 0);
        if let Some(first) = first.checked_sub(1) {
            of(mm.region(first)).prev.set(p, handle + 1);
        }
        self.first.set(p, handle + 1);
    }

    fn unlink<P: Platform>(&self, mm: &Manager<'_, P>, handle: u32, of: impl Fn(&Region) -> &Neighbours) {
        let p = mm.platform();
        let own = of(mm.region(handle));
        let (prev, next) = (own.prev.get(p), own.next.get(p));
        match prev.checked_sub(1) {
            Some(prev) => of(mm.region(prev)).next.set(p, next),
            None => self.first.set(p, next),
        }
        if let Some(next) = next.checked_sub(1) {
            of(mm.region(next)).prev.set(p, prev);
        }
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    pub(crate) fn family(&self, id: FamilyId) -> &'p Family {
        self.root.families.get(self, id.0)
    }

    /// A family that nobody belongs to yet, if anonymous pages can be reclaimed. May wait for memory.
    pub(super) fn new_family(&self) -> Result<Option<FamilyId>, Error> {
        if !self.config().swap {
            return Ok(None);
        }
        let id = FamilyId(self.root.families.reserve(self, AllocFrom::HERE)?.commit());
        self.family(id).shown.clear(self.platform());
        Ok(Some(id))
    }

    /// The family of a neighbour of `range`, and the index with which the range goes on in it: so that neighbours that are
    /// mapped one by one can become one region.
    pub(super) fn neighbours_family(&self, space: &Space, range: PageRange) -> Option<(FamilyId, u64)> {
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

    /// Gives a family back to which no region belongs. Pages that somebody still works on may name it: the reverse map
    /// then finds nothing, or regions of another family, and no entry that leads to them.
    pub(super) fn release_family(&self, id: FamilyId) {
        self.root.families.release(self, id.0);
    }

    /// Has the reverse map of a region's file and of its family alone: while its borders or its place change, so that no
    /// reverse map misses an entry of it. May wait.
    pub(crate) fn alone_with_shown(&self, region: &Region) -> Alone<'p, P> {
        let p = self.platform();
        Alone {
            _file: region.file(p).map(|file| self.file(file).shown.lock.write(p)),
            _family: region.family(p).map(|family| self.family(family).shown.lock.write(p)),
        }
    }

    /// Puts a described region on the lists of what it shows. Under their locks, held alone.
    pub(super) fn link_shown(&self, handle: u32) {
        let p = self.platform();
        let region = self.region(handle);
        if let Some(file) = region.file(p) {
            self.file(file).shown.link(self, handle, |region| &region.of_file);
        }
        if let Some(family) = region.family(p) {
            self.family(family).shown.link(self, handle, |region| &region.of_family);
        }
    }

    /// Takes a region off both lists. Under their locks, held alone. Gives its family if it was the last of it: to be
    /// released once the locks are.
    #[must_use]
    pub(super) fn unlink_shown(&self, handle: u32) -> Option<FamilyId> {
        let p = self.platform();
        let region = self.region(handle);
        if let Some(file) = region.file(p) {
            self.file(file).shown.unlink(self, handle, |region| &region.of_file);
        }
        let family = region.family(p)?;
        let shown = &self.family(family).shown;
        shown.unlink(self, handle, |region| &region.of_family);
        shown.is_empty(p).then_some(family)
    }

    /// The regions that show a file. Under its lock.
    pub(crate) fn regions_of_file(&self, file: FileSlot) -> impl Iterator<Item = &'p Region> + '_ {
        self.regions_on(&self.file(file).shown, |region| &region.of_file)
    }

    /// The regions of a family. Under its lock.
    pub(crate) fn regions_of_family(&self, family: FamilyId) -> impl Iterator<Item = &'p Region> + '_ {
        self.regions_on(&self.family(family).shown, |region| &region.of_family)
    }

    fn regions_on(
        &self,
        shown: &Shown,
        of: impl Fn(&Region) -> &Neighbours,
    ) -> impl Iterator<Item = &'p Region> {
        let p = self.platform();
        let mut next = shown.first.load(p, Ordering::Relaxed);
        core::iter::from_fn(move || {
            let region = self.region(next.checked_sub(1)?);
            next = of(region).next.get(p);
            Some(region)
        })
    }
}
