//! A CPU's lists of free frames (Linux: `per_cpu_pages`): a list for each zone and each of some orders.
//! `frame/percpu.rs` changes them.

use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::addr::LARGE_ORDER;
use crate::memmap::Chain;
use crate::platform::Hooks;
use crate::profile::Scope;
use crate::sync::{SpinLock, Word32, Word64};
use crate::zeroed::Zeroed;

/// The orders that are kept on lists, in this order: small ones, and that of large pages. Linux: up to
/// `PAGE_ALLOC_COSTLY_ORDER`, and `HPAGE_PMD_ORDER`.
pub(crate) const ORDERS: [u8; 5] = [0, 1, 2, 3, LARGE_ORDER];

/// Which list is that of this order; `None` if there is none.
#[inline(always)]
pub(crate) fn list_of(order: u8) -> Option<usize> {
    match order {
        0..=3 => Some(usize::from(order)),
        LARGE_ORDER => Some(4),
        _ => None,
    }
}

/// The free frames of a CPU, all zones together. One line: drainers look at it.
#[repr(C, align(64))]
pub(crate) struct PageLists {
    /// Taken only with `drain=remote`.
    pub lock: SpinLock<{ Scope::CpuListsLock as u8 }>,
    /// Frames on all lists.
    pub held: Word32,
    /// A bit for each zone that may have frames here, zones 64 apart sharing one. Zero: this CPU is in nobody's mask.
    pub zones: Word64,
    /// The lists, one [`ZoneLists`] for each zone. Like the next one set at start, then only read.
    lists: AtomicPtr<ZoneLists>,
    zone_count: AtomicUsize,
    /// Those of the zone with memory that is nearest to this CPU: written where the first memory of a zone comes, or its last goes.
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

    /// Which zone is nearest. Relaxed: any is right, and the lists are there from the start.
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
        // SAFETY: `init` has set it, before any other CPU ran, and `set_nearest` sets one of the same lists.
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
    /// Frames, not blocks, of small orders and of large pages: each is held against limits of its own. [`ZoneLists::count`]
    /// finds the right one.
    pub counts: [Word32; 2],
    /// By order, as in [`ORDERS`]; the youngest block first.
    pub chains: [Chain; ORDERS.len()],
}

impl ZoneLists {
    /// Frames on the lists that share this order's limits.
    #[inline(always)]
    pub fn count(&self, order: u8) -> &Word32 {
        &self.counts[usize::from(order == LARGE_ORDER)]
    }

    /// Frames on all lists.
    pub fn frames<P: Hooks>(&self, p: &P) -> u32 {
        self.counts.iter().map(|count| count.get(p)).sum()
    }
}

// SAFETY: atomics; `PageLists::init` makes the chains.
unsafe impl Zeroed for ZoneLists {}
