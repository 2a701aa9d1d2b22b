//! What there is of the kernel range: its shards, its CPUs' own, and what is there once.

use super::bitmap::VmapBlock;
use super::cpu::{ExtentCache, Numbers};
use super::extent::Extent;
use super::list::HandleList;
use super::sweeping::Sweeping;
use crate::Manager;
use crate::addr::PageRange;
use crate::platform::Platform;
use crate::pool::{Claim, Pool};
use crate::profile::Scope;
use crate::sync::{RwLock, SpinLock, Word32, Word64};
use crate::tree::Tree;
use crate::zeroed::Zeroed;

/// The most shards.
pub(super) const MAX_SHARDS: u32 = 4096;

/// What the manager keeps about its kernel range. All that CPUs share lies behind these references.
#[derive(Clone, Copy)]
pub(crate) struct KernelRange<'p> {
    pub(super) range: PageRange,
    /// Pages of each shard but the last, which has the rest too.
    pub(super) shard_pages: u64,
    /// Pages of a per-CPU block: a power of two.
    pub(super) block_pages: u64,
    pub(super) state: &'p State,
    pub(super) shards: &'p [Shard],
    pub(super) cpus: &'p [ExtentCache],
    /// Frames of the index of blocks: see `index.rs`.
    pub(super) index: &'p [Word32],
    /// Frames of the words that say which extent is in use where: see `used.rs`.
    pub(super) used: &'p [Word32],
    /// Only with `vmap=sweep`.
    pub(super) sweeping: Option<Sweeping<'p>>,
}

/// What is there once. What all read has lines of its own.
#[repr(C)]
pub(super) struct State {
    pub(super) numbers: Numbers,
    /// Pages that wait, without what CPUs have not told yet.
    pub(super) reported: Apart<Word64>,
    pub(super) asked: Apart<PurgeRequest>,
    pub(super) extents: Apart<Pool<Extent>>,
    pub(super) blocks: Apart<Pool<VmapBlock>>,
    /// Had alone by whoever purges.
    pub(super) purging: Apart<RwLock<{ Scope::PurgeLock as u8 }>>,
    /// Of a running purge: extents with frames.
    pub(super) owning: HandleList,
    pub(super) eager: Areas,
}

/// On lines of its own.
#[repr(C, align(64))]
pub(super) struct Apart<T>(T);

impl<T> core::ops::Deref for Apart<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

// SAFETY: pools, locks and atomics.
unsafe impl Zeroed for State {}

/// Who purges, and who asks for it.
#[repr(C)]
pub(super) struct PurgeRequest {
    /// Somebody was woken to purge, and has not begun.
    pub(super) wanted: Word32,
    /// A purge is under way: see `Rule::WaitForPurge`.
    pub(super) running: Word32,
}

/// A part of the kernel range.
#[repr(C, align(64))]
pub(crate) struct Shard {
    pub(super) free: SpinLock<{ Scope::FreeExtentsLock as u8 }>,
    /// Of who has the locks of several.
    pub(super) ticket: Word32,
    /// Free extents, by address.
    pub(super) holes: Tree,
    /// Spare slots.
    pub(super) spare: SlotChain,
    /// Slabs that the last refill might make.
    pub(super) slabs: Word32,
    /// Numbers for more. Under the lock of `free`.
    pub(super) numbers: Claim,
}

// SAFETY: atomics, locks and trees.
unsafe impl Zeroed for Shard {}

/// Slots on a list, under somebody's lock.
#[repr(C)]
pub(super) struct SlotChain {
    pub(super) first: Word32,
    pub(super) len: Word32,
}

/// The areas.
#[repr(C)]
pub(super) struct Areas {
    pub(super) lock: SpinLock<{ Scope::EagerListLock as u8 }>,
    /// The one with the lowest address, plus one; each leads to the next.
    pub(super) first: Word32,
}

impl<'p> KernelRange<'p> {
    pub(super) fn extent<P: Platform>(&self, mm: &Manager<'p, P>, handle: u32) -> &'p Extent {
        self.state.extents.get(mm, handle)
    }

    pub(super) fn link<P: Platform>(&self, mm: &Manager<'p, P>) -> impl Fn(u32) -> &'p Word32 {
        move |handle| &self.extent(mm, handle).next
    }
}
