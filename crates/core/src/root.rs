//! The pools, and what else there is once: in the platform's memory like everything that CPUs share.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use crate::cpumask::CpuMask;
use crate::file::FileState;
use crate::platform::Platform;
use crate::pool::Pool;
use crate::profile::Scope;
use crate::reclaim::Clock;
use crate::swap::SwapDevices;
use crate::sync::{SpinLock, Word32, Word64};
use crate::tlb::{BatchSlot, Sweeps, Swept};
use crate::vma::{AnonVma, SpaceState, Vma};
use crate::writeback::{Dirty, Writing};
use crate::zeroed::Zeroed;

/// CPUs that may have frames on their lists: set by the CPU that gets its first, cleared by whoever empties its lists.
#[repr(C, align(64))]
pub(crate) struct Holders(pub CpuMask);

/// The pools, in the platform's memory like everything that CPUs share.
#[repr(C)]
pub(crate) struct Root {
    pub spaces: Pool<SpaceState>,
    pub vmas: Pool<Vma>,
    pub anon_vmas: Pool<AnonVma>,
    pub files: Pool<FileState>,
    pub batches: Pool<BatchSlot>,
    pub swap: SwapDevices,
    /// Pages that are being written out, to any device.
    pub writing: Writing,
    /// Pages of files that are dirty.
    pub dirty: Dirty,
    pub clock: Clock,
    pub sweeps: Sweeps,
    pub swept: Swept,
    /// When somebody who found no memory last looked for empty tables in vain; 0 if the last one found some, or nobody did.
    pub tables_looked: Word64,
    /// CPUs that run.
    pub online: CpuMask,
    pub online_cpus: Word32,
    pub holders: Holders,
    /// Whoever works out the watermarks. Zones' locks are taken inside.
    pub watermarks: SpinLock<{ Scope::ZoneLock as u8 }>,
    /// Not 0 once a range was locked: till then nobody looks whether one is.
    pub locks: AtomicU32,
    /// The same of pages that were made lazy.
    pub lazy: AtomicU32,
    /// And of ranges that have a policy for nodes.
    pub placed: AtomicU32,
    /// Tables of large entries that may show files: how many have spares beside them.
    pub spares: AtomicU32,
    /// And of memory files.
    pub memory_files: AtomicU32,
    /// And of nodes from which pages go to another before they leave memory.
    pub demotes: AtomicU32,
    /// Where to, plus one; 0 is nowhere.
    pub demotions: [AtomicU8; 64],
    /// Sets of nodes that policies of ranges name by their place here, each once. One that was never named is 0.
    pub node_sets: [AtomicU64; 63],
    /// Frames in which lies what is kept about memory that came later.
    pub later_frames: Word64,
}

// SAFETY: pools are.
unsafe impl Zeroed for Root {}

impl Root {
    /// Before anybody uses it.
    pub fn init<P: Platform>(&self, p: &P) {
        self.spaces.init(p);
        self.vmas.init(p);
        self.anon_vmas.init(p);
        self.files.init(p);
        self.batches.init(p);
    }
}
