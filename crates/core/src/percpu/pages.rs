//! A CPU's lists of free frames (Linux: `per_cpu_pages`): a list for each zone and each of the small orders.
//! `frame/percpu.rs` changes them.

use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::memmap::Chain;
use crate::platform::Hooks;
use crate::profile::Scope;
use crate::sync::{SpinLock, Word32, Word64};
use crate::zeroed::Zeroed;

/// Orders 0 to 3 are kept on lists. Linux: up to `PAGE_ALLOC_COSTLY_ORDER`.
pub(crate) const ORDERS: usize = 4;

/// The free frames of a CPU, all zones together. One line: drainers look at it.
#[repr(C, align(64))]
pub(crate) struct PageLists {
    /// Taken only with `drain=remote`.
    pub lock: SpinLock<{ Scope::CpuListsLock as u8 }>,
    /// Frames on all lists.
    pub held: Word32,
    /// A bit for each zone that may have frames here, zones 64 apart sharing one. Zero: this CPU is in nobody's mask.
    pub zones: Word64,
    /// The lists, one [`ZoneLists`] for each zone. Like the next two set at start, then only read.
    lists: AtomicPtr<ZoneLists>,
    zone_count: AtomicUsize,
    /// Those of the zone that is nearest to this CPU.
    nearest: AtomicPtr<ZoneLists>,
}

impl PageLists {
    /// At start: where the lists are. They live as long as this does.
    pub fn init<P: Hooks>(&self, p: &P, lists: &[ZoneLists]) {
        lists.iter().flat_map(|lists| &lists.chains).for_each(|chain| chain.init(p));
        self.lists.store(lists.as_ptr().cast_mut(), Ordering::Relaxed);
        self.zone_count.store(lists.len(), Ordering::Relaxed);
        self.set_nearest(0);
    }

    /// At start: which zone is nearest.
    pub fn set_nearest(&self, zone: usize) {
        let nearest = &raw const self.lists()[zone];
        self.nearest.store(nearest.cast_mut(), Ordering::Relaxed);
    }

    #[inline(always)]
    pub fn lists(&self) -> &[ZoneLists] {
        let (first, count) = (self.lists.load(Ordering::Relaxed), self.zone_count.load(Ordering::Relaxed));
        // SAFETY: `init` has set both, before any other CPU ran.
        unsafe { core::slice::from_raw_parts(first, count) }
    }

    #[inline(always)]
    pub fn nearest(&self) -> &ZoneLists {
        // SAFETY: `init` has set it, before any other CPU ran.
        unsafe { &*self.nearest.load(Ordering::Relaxed) }
    }

    /// Frames on all lists; a moment's truth for other CPUs.
    pub fn held<P: Hooks>(&self, p: &P) -> u32 {
        self.held.get(p)
    }
}

/// The free frames of a CPU, of one zone.
#[repr(C, align(64))]
pub(crate) struct ZoneLists {
    /// Frames, not blocks.
    pub count: Word32,
    /// By order, the youngest first.
    pub chains: [Chain; ORDERS],
}

// SAFETY: atomics; `PageLists::init` makes the chains.
unsafe impl Zeroed for ZoneLists {}
