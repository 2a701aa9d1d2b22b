//! Slots of extents that describe nothing: spare in a shard, or on their way.

use core::cell::Cell;

use super::state::{KernelRange, SlotChain};
use crate::Manager;
use crate::error::Error;
use crate::frame::AllocFrom;
use crate::platform::Platform;

impl SlotChain {
    pub fn push<'p, P: Platform>(&self, mm: &Manager<'p, P>, v: &KernelRange<'p>, handle: u32) {
        let p = mm.platform();
        v.extent(mm, handle).next.set(p, self.first.get(p));
        self.first.set(p, handle + 1);
        self.len.set(p, self.len.get(p) + 1);
    }

    pub fn pop<'p, P: Platform>(&self, mm: &Manager<'p, P>, v: &KernelRange<'p>) -> Option<u32> {
        let p = mm.platform();
        let handle = self.first.get(p).checked_sub(1)?;
        self.first.set(p, v.extent(mm, handle).next.get(p));
        self.len.set(p, self.len.get(p) - 1);
        Some(handle)
    }
}

/// Slots that are this call's alone, linked like those of a [`SlotChain`].
#[derive(Default)]
pub(super) struct Pile {
    /// The first one, plus one.
    pub first: Cell<u32>,
}

impl Pile {
    pub fn push<'p, P: Platform>(&self, mm: &Manager<'p, P>, v: &KernelRange<'p>, handle: u32) {
        v.extent(mm, handle).next.set(mm.platform(), self.first.replace(handle + 1));
    }

    pub fn pop<'p, P: Platform>(&self, mm: &Manager<'p, P>, v: &KernelRange<'p>) -> Option<u32> {
        let handle = self.first.get().checked_sub(1)?;
        self.first.set(v.extent(mm, handle).next.get(mm.platform()));
        Some(handle)
    }

    /// Reserves so many slots, or none. No lock is held; may wait for memory.
    pub fn reserve<'p, P: Platform>(
        mm: &Manager<'p, P>,
        v: &KernelRange<'p>,
        count: u64,
    ) -> Result<Pile, Error> {
        let pile = Pile::default();
        for _ in 0..count {
            match v.state.extents.reserve(mm, AllocFrom::HERE) {
                Ok(slot) => pile.push(mm, v, slot.commit()),
                Err(error) => {
                    pile.release(mm, v);
                    return Err(error);
                }
            }
        }
        Ok(pile)
    }

    /// Reserves some slots, at least one: at most so many, or all of at most so many slabs, for which `number` returns numbers.
    /// No lock is held; may wait for memory.
    pub fn some<'p, P: Platform>(
        mm: &Manager<'p, P>,
        v: &KernelRange<'p>,
        most: (u32, u32),
        number: impl Fn() -> Result<u32, Error>,
    ) -> Result<Pile, Error> {
        let (pile, pool) = (Pile::default(), &v.state.extents);
        pool.reserve_some(mm, AllocFrom::HERE, most, number, |slot| pile.push(mm, v, slot))?;
        Ok(pile)
    }

    /// Gives all back to the pool.
    pub fn release<'p, P: Platform>(&self, mm: &Manager<'p, P>, v: &KernelRange<'p>) {
        while let Some(slot) = self.pop(mm, v) {
            v.state.extents.release(mm, slot);
        }
    }
}
