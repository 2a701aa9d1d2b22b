//! What a CPU remembers to be quicker: the VMA of its last fault, and where it goes on with swap.

use core::cell::Cell;

use crate::handle::SpaceSlot;

/// The most swap devices at once.
pub(crate) const MAX_AREAS: usize = 16;

/// The VMA in which a CPU's last fault lay: worth a look as long as the space has lost none since. All zeros is none.
#[repr(C)]
pub(crate) struct LastVma {
    shape: Cell<u64>,
    /// The space, and the VMA, plus one.
    space: Cell<u32>,
    vma: Cell<u32>,
}

impl LastVma {
    pub fn get(&self, space: SpaceSlot, shape: u64) -> Option<u32> {
        let same = self.space.get() == space.0 + 1 && self.shape.get() == shape;
        if same { self.vma.get().checked_sub(1) } else { None }
    }

    /// The VMA of the space's last fault, or what has become of its slot.
    pub fn last(&self, space: SpaceSlot) -> Option<u32> {
        if self.space.get() == space.0 + 1 { self.vma.get().checked_sub(1) } else { None }
    }

    pub fn set(&self, space: SpaceSlot, shape: u64, vma: u32) {
        self.space.set(space.0 + 1);
        self.shape.set(shape);
        self.vma.set(vma + 1);
    }
}

/// Where a CPU goes on: the device and the slots that it takes next, and how far it reads ahead. Its own, with interrupts
/// off.
#[repr(C)]
pub(crate) struct SwapHint {
    pub device: Cell<u32>,
    /// Slots left before the next device's turn.
    pub left: Cell<u32>,
    /// For each area the next slot, plus one.
    pub next: [Cell<u32>; MAX_AREAS],
    /// log2 of the pages that the next fault reads.
    pub window: Cell<u32>,
    /// Pages read ahead that were wanted since the last fault that had to read.
    pub hits: Cell<u32>,
    /// Faults that have read one page alone, since one read more.
    pub alone: Cell<u32>,
}
