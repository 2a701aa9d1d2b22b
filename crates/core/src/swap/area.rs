//! One swap device in use: the clusters of its slots, and how many are taken.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{FrameNumber, PAGE_SIZE};
use crate::memmap::List;
use crate::platform::Platform;
use crate::profile::Scope;
use crate::sync::{SpinLock, Word32};
use crate::writeback::Backoff;

/// Slots in a cluster: 2 MiB of swap.
pub(crate) const CLUSTER: u32 = (PAGE_SIZE / size_of::<SwapSlot>() as u64) as u32;

/// A slot. Under its cluster's lock.
#[repr(C)]
pub(super) struct SwapSlot {
    /// The frame of its page plus one, if that is in the swap cache.
    pub(super) frame: Word32,
    /// Entries that name it.
    pub(super) users: Word32,
}

/// What an area is doing.
pub(super) mod state {
    /// It has no device.
    pub const UNUSED: u32 = 0;
    /// It is being made, or given up.
    pub const BUSY: u32 = 1;
    /// It takes pages.
    pub const OPEN: u32 = 2;
    /// Its device is gone: what it has may be asked for, in vain or not, and nothing goes there any more.
    pub const GONE: u32 = 3;
    /// It has no device: see `transit.rs`.
    pub const TRANSIT: u32 = 4;
}

/// A device in use, and the clusters of its slots.
#[repr(C, align(64))]
pub(crate) struct Area {
    pub(super) state: Word32,
    pub(super) device: Word32,
    /// An `i16` above zero: plus 2^15.
    pub(super) priority: Word32,
    /// Its first cluster's number, and how many it has.
    pub(super) first: Word32,
    pub(super) clusters: Word32,
    /// What came of writes to it.
    pub(super) backoff: Backoff,
    /// Guards `open`.
    pub(super) lock: SpinLock<{ Scope::SwapOpenLock as u8 }>,
    /// Clusters with a free slot.
    pub(super) open: List,
    pub(super) counts: Counts,
}

/// On a line of its own: every slot that is taken or freed changes it.
#[repr(C, align(64))]
pub(super) struct Counts {
    /// Slots in use.
    pub(super) used: Word32,
    /// Of these, slots whose page is in memory.
    pub(super) cached: Word32,
}

impl Area {
    /// Whether pages may go there.
    pub fn is_open<P: Platform>(&self, p: &P) -> bool {
        self.state.load(p, Ordering::Acquire) == state::OPEN
    }

    /// Whether slots of it may be taken.
    pub(super) fn gives_slots<P: Platform>(&self, p: &P) -> bool {
        matches!(self.state.load(p, Ordering::Acquire), state::OPEN | state::TRANSIT)
    }

    pub(super) fn is_used<P: Platform>(&self, p: &P) -> bool {
        self.state.load(p, Ordering::Acquire) != state::UNUSED
    }

    pub(super) fn slots<P: Platform>(&self, p: &P) -> core::ops::Range<u32> {
        let first = self.first.get(p) * CLUSTER;
        first..first + self.clusters.get(p) * CLUSTER
    }

    pub fn has<P: Platform>(&self, p: &P, slot: u32) -> bool {
        self.slots(p).contains(&slot)
    }

    pub fn priority<P: Platform>(&self, p: &P) -> u32 {
        self.priority.get(p)
    }

    /// Whether a page may be written there: see [`Backoff::may_write`].
    pub fn may_write<P: Platform>(&self, p: &P) -> bool {
        self.backoff.may_write(p)
    }

    /// Whether one of its slots is free: a moment's truth.
    pub fn has_room<P: Platform>(&self, p: &P) -> bool {
        self.is_open(p) && self.open.len(p) > 0
    }

    /// A slot is in use from now on. Relaxed, as all of these: nothing is ordered by the counts.
    pub fn count_taken<P: Platform>(&self, p: &P) {
        self.counts.used.fetch_add(p, 1, Ordering::Relaxed);
    }

    pub fn count_freed<P: Platform>(&self, p: &P) {
        self.counts.used.fetch_sub(p, 1, Ordering::Relaxed);
    }

    /// The page of a slot is in memory from now on.
    pub fn count_cached<P: Platform>(&self, p: &P) {
        self.counts.cached.fetch_add(p, 1, Ordering::Relaxed);
    }

    pub fn count_left<P: Platform>(&self, p: &P) {
        self.counts.cached.fetch_sub(p, 1, Ordering::Relaxed);
    }

    /// A cluster with a free slot, the one that has waited longest: so CPUs that fill clusters at the same time seldom
    /// fill the same one.
    pub fn next_open<P: Platform>(&self, mm: &Manager<'_, P>) -> Option<FrameNumber> {
        let p = mm.platform();
        let mut out = [FrameNumber::NONE];
        let _guard = self.lock.lock(mm);
        if self.open.cut_back(p, &mm.memmap(), &mut out) == 0 {
            return None;
        }
        self.open.push_front(p, &mm.memmap(), out[0]);
        Some(out[0])
    }

    /// This cluster has a free slot again. Under its lock.
    pub fn opens<P: Platform>(&self, mm: &Manager<'_, P>, cluster: FrameNumber) {
        let _guard = self.lock.lock(mm);
        self.open.push_front(mm.platform(), &mm.memmap(), cluster);
    }

    /// This cluster has no free slot any more. Under its lock.
    pub fn closes<P: Platform>(&self, mm: &Manager<'_, P>, cluster: FrameNumber) {
        let _guard = self.lock.lock(mm);
        self.open.remove(mm.platform(), &mm.memmap(), cluster);
    }
}
