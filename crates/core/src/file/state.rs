//! What the core keeps about a file.

use core::sync::atomic::{AtomicU32, Ordering};

use super::window::ReadAhead;
use crate::addr::{FrameNumber, PAGE_SIZE};
use crate::handle::{FileId, FileSlot};
use crate::life::Life;
use crate::platform::Platform;
use crate::pool::{Goes, Pooled, SlotLink};
use crate::profile::Scope;
use crate::sync::{BiasedRwLock, SpinLock, Word32, Word64};
use crate::vma::RmapTree;
use crate::writeback::Backoff;
use crate::zeroed::Zeroed;

const _: () = assert!(size_of::<FileState>() == 192);

/// What the core keeps about a file.
#[repr(C, align(64))]
pub(crate) struct FileState {
    /// Whoever reads or writes it shares this; whoever changes its length, or takes a part of it out, has it alone.
    pub(crate) io: BiasedRwLock<{ Scope::FileLock as u8 }>,
    /// Length in bytes. Changed by whoever has `io` alone, under `lock`.
    pub(super) len: Word64,
    /// Pages that do not come into the cache, from the first to behind the last: a hole is made there. As `len`.
    pub(super) closed: [Word64; 2],
    /// Guards the tree and the number of cached pages.
    pub(super) lock: SpinLock<{ Scope::FileTreeLock as u8 }>,
    pub(super) root: Word32,
    pub(super) levels: Word32,
    pub(super) cached: Word32,
    /// Not 0: it is known before a page of it can be written to through a mapping, and why (`watch.rs`). Changes while no VMA shows it, under the lock of `rmap`:
    /// it orders nothing, and to look at it, where a VMA is made or a page was written to, costs nothing that the machine counts.
    pub(super) watched: AtomicU32,
    /// What came of its pages' writes.
    pub backoff: Backoff,
    /// The VMAs that show it.
    pub rmap: RmapTree,
    /// Which use of the slot this is. It ends, under the lock of `rmap`, before its pages are let go.
    pub(super) life: Life,
    /// Where those who map it read.
    pub(crate) mapped: ReadAhead,
    /// Where pages are counted that are dirty: since when one may be, in nanoseconds; 0 if none is.
    pub(crate) dirty_since: Word64,
    /// How far who was at the limit has written it back. Advice.
    pub(super) written_to: Word64,
    /// Whether it is a memory file, and how many of its pages are in swap.
    pub(super) memory: AtomicU32,
    pub(super) out: Word32,
    link: SlotLink,
}

// SAFETY: atomics and locks only.
unsafe impl Zeroed for FileState {}

impl Pooled for FileState {
    // An old handle may come at any time, and so may who holds a page that was its.
    const GOES: Goes = Goes::Never;

    fn link(&self) -> &SlotLink {
        &self.link
    }
}

/// A file's slot, and the file.
pub(crate) type FileAt<'p> = (FileSlot, &'p FileState);

/// A page of a file, held for whoever wanted it.
#[must_use = "it is held"]
pub(crate) enum FilePage {
    /// In the cache, with its content.
    Found(FrameNumber),
    /// In the cache; somebody reads it.
    Busy(FrameNumber),
    /// In the cache now, locked: the caller must read it.
    New(FrameNumber),
    /// It is a memory file's, and in the swap cache of this slot now, locked: the caller must read it from there.
    Out(u32, FrameNumber),
    /// A hole is being made there: to be waited for.
    Closed,
}

/// Pages of the longest file.
pub(crate) const MAX_PAGES: u64 = 1 << 40;

impl FileState {
    /// The handle of the file that is here, in this slot, also while it ends.
    pub fn id<P: Platform>(&self, p: &P, slot: FileSlot) -> FileId {
        FileId::of(slot, self.life.now(p))
    }

    /// Whether this is still the file that a handle names.
    pub fn is<P: Platform>(&self, p: &P, id: FileId) -> bool {
        self.life.is(p, id.life())
    }

    /// Length in pages, the last of which may be used in part.
    pub fn pages<P: Platform>(&self, p: &P) -> u64 {
        self.len.load(p, Ordering::Acquire).div_ceil(PAGE_SIZE)
    }
}
