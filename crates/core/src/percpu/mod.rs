//! What each CPU has for itself, and the proof that a caller may use it.

use core::cell::Cell;

mod hints;
mod inbox;
mod online;
mod pages;
mod presence;
mod reads;

pub(crate) use hints::{LastVma, MAX_AREAS, SwapHint};
pub(crate) use inbox::{Inbox, IpiRequest, Work};
pub(crate) use pages::{ORDERS, PageLists, ZoneLists, list_of};
pub(crate) use presence::Presence;
pub(crate) use reads::Reads;

use crate::Manager;
use crate::addr::{FrameNumber, Generation};
use crate::config::MAX_LRU_BATCH;
use crate::cpu::{CpuId, CpuSet};
use crate::event::Counters;
use crate::handle::{GroupSlot, SpaceSlot};
use crate::memmap::FrameStack;
use crate::own::OwnU32;
use crate::platform::Platform;
use crate::sync::{VisibleReads, Word32};
use crate::zeroed::Zeroed;

/// The most address-space tags that the core uses on a CPU.
pub(crate) const MAX_TAGS: usize = 16;
/// One CPU's slot: first what others write, then what others read, then its own.
#[repr(C, align(128))]
pub(crate) struct CpuSlot {
    /// Who wants something of this CPU.
    pub inbox: Inbox,
    /// What this CPU wants of others.
    pub request: IpiRequest,
    /// Whether this CPU takes part, and whether it may be left alone.
    pub presence: Presence,
    /// CPUs that the request goes to, and those that must be interrupted for it.
    pub targets: CpuSet,
    pub sending: CpuSet,
    pub tlb: TlbState,
    /// Lists of free frames.
    pub pages: PageLists,
    /// Free frames that other CPUs have handed to this one.
    pub returned: FrameStack,
    /// Pages bound for their lists, likewise.
    pub returned_lru: FrameStack,
    /// Pages on their way to an LRU list.
    pub lru: LruBatch,
    /// An unmap batch that nobody uses, plus one.
    pub spare_batch: Cell<u32>,
    /// The VMA in which this CPU's last fault lay.
    pub last_vma: LastVma,
    /// Who looks at what others may give up.
    pub reads: Reads,
    /// Who shares a lock.
    pub visible_reads: VisibleReads,
    /// Where this CPU goes on with swap.
    pub swap: SwapHint,
    pub counters: Counters,
    /// Spin locks that this CPU holds.
    #[cfg(debug_assertions)]
    pub spin_locks: OwnU32,
}

// With debug assertions or without, so that a simulated machine has the same memory in both.
const _: () = assert!(size_of::<CpuSlot>() == 27 * 128);

// SAFETY: everything in it is a cell or an atomic of integers, for which zeros are values: no space loaded
// (`SpaceSlot` plus one is stored), no request, empty sets.
unsafe impl Zeroed for CpuSlot {}
// SAFETY: `Cell`s are reached only through `CpuGuard`, which proves that this CPU is the slot's own and takes no
// interrupt meanwhile; all else is atomic, `Manager::validate` reads no more than that of other CPUs.
unsafe impl Sync for CpuSlot {}

/// What this CPU's TLB may hold.
#[repr(C, align(64))]
pub(crate) struct TlbState {
    /// The loaded space plus one; 0 is the kernel's own table.
    pub loaded: OwnU32,
    /// The tag under which it is loaded.
    pub tag: Cell<u16>,
    /// The tag that is taken next when a space has none.
    pub next_tag: Cell<u16>,
    /// For each tag the space plus one, and the generation up to which it is flushed.
    pub tags: [(Cell<u32>, Cell<u64>); MAX_TAGS],
}

impl TlbState {
    pub fn loaded(&self) -> Option<SpaceSlot> {
        self.loaded.get().checked_sub(1).map(SpaceSlot)
    }

    /// The generation up to which the loaded space is flushed here.
    pub fn generation(&self) -> Generation {
        Generation(self.tags[self.tag.get() as usize].1.get())
    }

    pub fn set_generation(&self, generation: Generation) {
        self.tags[self.tag.get() as usize].1.set(generation.0);
    }
}

/// Pages that wait to be put on an LRU list together.
#[repr(C)]
pub(crate) struct LruBatch {
    len: OwnU32,
    pages: [Cell<u32>; MAX_LRU_BATCH],
    /// Groups that are charged with some of them: a bit for each, which it shares with every 32nd. Others read it.
    groups: Word32,
}

impl LruBatch {
    /// Notes that a page which was added is charged to a group.
    pub fn note_group<P: Platform>(&self, p: &P, group: GroupSlot) {
        let (groups, bit) = (self.groups.get(p), group.bit());
        if groups & bit == 0 {
            self.groups.set(p, groups | bit);
        }
    }

    /// The batch is empty, where there are groups.
    pub fn note_empty<P: Platform>(&self, p: &P) {
        self.groups.set(p, 0);
    }

    /// Whether it has no page of any group: for audits.
    pub fn has_no_group<P: Platform>(&self, p: &P) -> bool {
        self.groups.get(p) == 0
    }

    /// Whether a CPU may have pages of a group's in its batch: a moment's truth.
    pub fn may_have<P: Platform>(&self, p: &P, group: GroupSlot) -> bool {
        self.groups.get(p) & group.bit() != 0
    }

    pub fn len(&self) -> usize {
        self.len.get() as usize
    }

    pub fn push(&self, page: FrameNumber) {
        self.pages[self.len()].set(page.0);
        self.len.set(self.len.get() + 1);
    }

    pub fn pop(&self) -> Option<FrameNumber> {
        let len = self.len.get().checked_sub(1)?;
        self.len.set(len);
        Some(FrameNumber(self.pages[len as usize].get()))
    }
}

/// This CPU, with interrupts off until it is dropped. The key to the CPU's slot.
pub(crate) struct CpuGuard<'m, 'p, P: Platform> {
    pub mm: &'m Manager<'p, P>,
    pub cpu: CpuId,
    slot: &'p CpuSlot,
    were_on: bool,
}

impl<'m, 'p, P: Platform> CpuGuard<'m, 'p, P> {
    #[inline(always)]
    pub fn new(mm: &'m Manager<'p, P>) -> Self {
        let were_on = mm.platform().irqs_off();
        let cpu = mm.platform().this_cpu();
        CpuGuard { mm, cpu, slot: mm.slot(cpu), were_on }
    }

    #[inline(always)]
    pub fn slot(&self) -> &'p CpuSlot {
        self.slot
    }
}

impl<P: Platform> Drop for CpuGuard<'_, '_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.were_on {
            self.mm.platform().irqs_on();
        }
    }
}
