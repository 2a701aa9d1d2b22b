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

use crate::addr::{PageNumber, PageRange};
use crate::platform::Platform;
use crate::pool::{Goes, Pooled, SlotLink};
use crate::sync::{Word32, Word64};
use crate::tree::Links;
use crate::zeroed::Zeroed;

/// A run of kernel pages, its guard page included.
#[repr(C)]
pub(crate) struct Extent {
    pub(super) links: Links,
    pub(super) start: Word64,
    pub(super) pages: Word64,
    /// In the tree of free extents: the most pages of any at or below this one.
    pub(super) longest: Word64,
    /// The next one on whatever list this is on, plus one: spare, waiting for a purge, or of the eager policy.
    pub next: Word32,
    /// What it is in use for, and whether its last page is a guard.
    purpose: Word32,
    /// Extents for the further shards that it reaches into when it becomes free, plus one.
    pub more: Word32,
    link: SlotLink,
}

// SAFETY: atomics only.
unsafe impl Zeroed for Extent {}

impl Pooled for Extent {
    // Those in use are found without a lock.
    const GOES: Goes = Goes::Never;

    fn link(&self) -> &SlotLink {
        &self.link
    }
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
    VmapBlock = 4,
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
    /// `FlushedExtents` of the purge.
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
            4 => Purpose::VmapBlock,
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

/// Where an extent is found by a look at a quiet system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Free,
    Used,
    Spare,
    Waits,
    /// Flushed, and some CPU's.
    Cached,
}
