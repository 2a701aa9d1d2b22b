//! What each CPU has for itself of the kernel range. `extent_cache.rs`, `bins.rs` and `blocks.rs` change it.

use core::sync::atomic::Ordering;

use super::list::HandleList;
use crate::platform::Platform;
use crate::pool::Claim;
use crate::profile::Scope;
use crate::sync::{SpinLock, Word32, Word64};
use crate::tlb::Epochs;
use crate::zeroed::Zeroed;

/// Sizes with a list of their own: 1 to so many pages, a guard's too.
pub(super) const SIZES: usize = 17;

/// All zeros is empty. Under its CPU's lock.
#[repr(C)]
pub(super) struct Bins {
    /// A bit for each list on which something is: an empty one costs no look.
    pub(super) some: Word32,
    pub(super) lists: [HandleList; SIZES + 1],
}

/// A CPU's blocks. Changed under its lock.
#[repr(C)]
pub(super) struct Blocks {
    /// The one in which it maps: its handle, plus one. Read without the lock, as a hint.
    pub(super) current: Word32,
    pub(super) line: HandleList,
    pub(super) len: Word32,
    /// Spare slots, which were never blocks.
    pub(super) spare: HandleList,
    /// Numbers of slabs for more.
    pub(super) numbers: Claim,
}

impl Blocks {
    pub fn any<P: Platform>(&self, p: &P) -> bool {
        self.current.load(p, Ordering::Relaxed) != 0 || !self.line.is_empty(p)
    }
}

/// A CPU's own. Nobody else writes here but who purges, once a purge and on the first line alone, and who is short of
/// addresses.
#[repr(C, align(128))]
pub(crate) struct ExtentCache {
    pub(super) lock: SpinLock<{ Scope::StockLock as u8 }>,
    /// Something was unmapped here since a purge came by.
    pub(super) waits: Word32,
    /// Pages that no purge has come for, those of blocks too, and what they lie between.
    pub(super) pages: Word64,
    pub(super) from: Word64,
    pub(super) to: Word64,
    /// As many of them as `State::reported` knows of.
    pub(super) told: Word64,
    /// Frames that wait: some do as long as there is something in `owning`.
    pub(super) frames: Word64,
    /// The last purge that came by. Where nothing `waits` since, it covers all that is in `fresh` and `sealed`.
    pub(super) visited: Word64,
    pub(super) fresh: Batch,
    /// What waits for the purge before that of `fresh`.
    pub(super) sealed: Batch,
    /// Extents with frames of their own, for the next purge to free.
    pub(super) owning: HandleList,
    /// Flushed, and ready for use.
    pub(super) ready: Bins,
    /// The same, and not wanted from one purge to the next; some of it was there at this purge, and since.
    pub(super) surplus: Bins,
    pub(super) since: Word64,
    /// The same, and not wanted for `LONG` purges: it goes back.
    pub(super) excess: HandleList,
    pub(super) blocks: Blocks,
}

// SAFETY: atomics only.
unsafe impl Zeroed for ExtentCache {}

/// Extents that wait for the same purge.
#[repr(C)]
pub(super) struct Batch {
    pub(super) extents: Bins,
    /// The number of the purge; 0 if there are none.
    pub(super) purge: Word64,
}

/// What all read, and what is written twice a purge: where many CPUs map, each write costs each of them a move of the line.
#[repr(C, align(64))]
pub(super) struct Numbers {
    /// The last purge that has begun, and the last one that has flushed. Written by whoever has the purge's lock; with
    /// `vmap=sweep`, of sweeps.
    pub sweeps: Epochs,
    /// Pages that wait before a purge is asked for; with `vmap=sweep`, on one CPU before it begins a sweep.
    pub threshold: Word64,
    /// Twice as much waits: whoever maps purges.
    pub pressing: Word32,
}

impl Numbers {
    /// The purge that covers what was unmapped before this is read.
    pub fn next<P: Platform>(&self, p: &P) -> u64 {
        self.sweeps.last(p) + 1
    }

    pub fn has_flushed<P: Platform>(&self, p: &P, purge: u64) -> bool {
        self.sweeps.last_over(p) >= purge
    }
}
