//! The unmap batch: pages whose entries are cleared and whose flush is still owed.
//!
//! The batch *owns* its pages, those that will be kept too, and only its flush yields them ([`FlushedBatch`], INV-1). Nobody can
//! forget one: [`UnmapBatch::fill`] lends it to whoever fills it, flushes it, and hands the pages on, however the filling
//! ends. [`Manager::validate`] counts batches in use, and pages in one.

use core::cell::Cell;
use core::sync::atomic::Ordering;

use super::broadcast;
use super::local::catch_up;
use super::targets::leave_alone;
use crate::Manager;
use crate::addr::{FrameNumber, Generation};
use crate::charge::charge;
use crate::cpu::{CpuId, CpuSet};
use crate::error::Error;
use crate::event::{Event, FlushReason};
use crate::handle::{SpaceId, SpaceSlot};
use crate::ipi;
use crate::memmap::flag;
use crate::percpu::{CpuGuard, Work};
use crate::platform::Platform;
use crate::pool::{Goes, Pooled, SlotLink};
use crate::profile::Scope;
use crate::rule::Rule;
use crate::sync::full_fence;
use crate::vma::SpaceState;
use crate::zeroed::Zeroed;

/// The most pages that a batch takes.
pub(crate) const CAPACITY: usize = 64;
/// The most spaces whose generations a batch can vouch for. Of further spaces nothing is noted, and the
/// next operation in one of them flushes once more than it had to.
const SPACES: usize = 32;

/// What becomes of a page once it is flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// Nobody else holds it: to the allocator.
    Free,
    /// Somebody still holds it: back to its list.
    Keep,
    /// Its content must be written out first.
    Write,
    /// Its file or its slot has its content: it leaves its cache and goes to the allocator, unless somebody has asked for
    /// it by then (INV-12).
    Leave,
    /// Its content is written out, and it stays where it is.
    WriteBack,
    /// It moves to another node.
    Move,
    /// It is a memory file's: it goes to this slot of swap, which it has, and must be written out there.
    Swap(u32),
}

impl Fate {
    const ALL: [Fate; 6] = [Fate::Free, Fate::Keep, Fate::Write, Fate::Leave, Fate::WriteBack, Fate::Move];
    /// From here on it is a slot of swap.
    const SWAP: u32 = Fate::ALL.len() as u32;

    const fn pack(self) -> u32 {
        match self {
            Fate::Free => 0,
            Fate::Keep => 1,
            Fate::Write => 2,
            Fate::Leave => 3,
            Fate::WriteBack => 4,
            Fate::Move => 5,
            Fate::Swap(slot) => Self::SWAP + slot,
        }
    }

    fn unpack(word: u32) -> Fate {
        match word.checked_sub(Self::SWAP) {
            None => Self::ALL[word as usize],
            Some(slot) => Fate::Swap(slot),
        }
    }
}

/// The part of a batch that is too large for a stack. Owned by whoever reserved it.
#[repr(C)]
pub(crate) struct BatchSlot {
    /// CPUs that may hold an entry that this batch cleared.
    cpus: CpuSet,
    cleared: Cell<u32>,
    spaces: [(Cell<u32>, Cell<u64>); SPACES],
    space_count: Cell<u32>,
    pages: [Cell<(u32, u32)>; CAPACITY],
    len: Cell<u32>,
    link: SlotLink,
}

impl BatchSlot {
    /// The spaces in which entries were cleared, if they are all known.
    fn all_spaces(&self) -> Option<impl Iterator<Item = SpaceSlot>> {
        let spaces = &self.spaces[..self.space_count.get() as usize];
        (spaces.len() < SPACES).then(|| spaces.iter().map(|(id, _)| SpaceSlot(id.get())))
    }
}

// SAFETY: cells of integers.
unsafe impl Zeroed for BatchSlot {}

impl Pooled for BatchSlot {
    // One owner each.
    const GOES: Goes = Goes::AtOnce;

    fn link(&self) -> &SlotLink {
        &self.link
    }
}

/// Pages that reclaim has unmapped and not flushed.
#[must_use = "its pages are lost unless it is flushed"]
pub(crate) struct UnmapBatch<'m, 'p, P: Platform> {
    mm: &'m Manager<'p, P>,
    handle: u32,
    slot: &'p BatchSlot,
}

/// The pages of a batch, every CPU flushed.
#[must_use = "its pages are lost unless they are handed on"]
struct FlushedBatch<'m, 'p, P: Platform> {
    mm: &'m Manager<'p, P>,
    handle: u32,
    slot: &'p BatchSlot,
}

impl<'m, 'p, P: Platform> UnmapBatch<'m, 'p, P> {
    /// Has a batch filled; then flushes, for this reason, every CPU that may still hold one of the cleared entries, and hands
    /// each page on: to be freed, written or put back. At most one IPI each, none to lazy CPUs. Needs interrupts on; never
    /// reclaims for itself: reclaim is what it is for.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or [`Error::TooMany`], where there is no batch: then nothing has been done.
    #[doc(alias = "try_to_unmap_flush")]
    pub(crate) fn fill<R>(
        mm: &'m Manager<'p, P>,
        reason: FlushReason,
        with: impl FnOnce(&Self) -> R,
        each: impl FnMut(FrameNumber, Fate),
    ) -> Result<R, Error> {
        let batch = Self::new(mm)?;
        let result = with(&batch);
        batch.flush(reason).hand_on(each);
        Ok(result)
    }

    fn new(mm: &'m Manager<'p, P>) -> Result<Self, Error> {
        // This CPU's last one, if nobody has it: the pool's lock is the whole machine's.
        let kept = CpuGuard::new(mm).slot().spare_batch.replace(0);
        let handle = match kept.checked_sub(1) {
            Some(handle) => handle,
            None => mm.root.batches.reserve_for_reclaim(mm)?.commit(),
        };
        let slot = mm.root.batches.get(mm, handle);
        slot.cpus.clear();
        slot.cleared.set(0);
        slot.space_count.set(0);
        slot.len.set(0);
        Ok(UnmapBatch { mm, handle, slot })
    }

    pub(crate) fn manager(&self) -> &'m Manager<'p, P> {
        self.mm
    }

    /// An entry of `space` was cleared and this batch owes its flush; returns the generation to wait for.
    /// Under the lock of the entry's table.
    #[doc(alias = "arch_tlbbatch_add_pending")]
    pub(crate) fn defer(&self, id: SpaceId, space: &SpaceState) -> Generation {
        let _scope = charge(self.mm.platform(), Scope::UnmapDefer);
        let (p, slot) = (self.mm.platform(), self.slot);
        if p.broken(Rule::GenerationBeforeMask) {
            space.cpus.0.add_to(p, &slot.cpus);
        }
        // Raising the generation is the part of the flush that reaches those who are left alone.
        let skip = p.broken(Rule::FlushBeforeFree);
        let generation = if skip { space.generation(p) } else { space.raise(p) };
        full_fence(p);
        if !p.broken(Rule::GenerationBeforeMask) {
            space.cpus.0.add_to(p, &slot.cpus);
        }
        space.defer(p, generation);
        slot.cleared.set(slot.cleared.get() + 1);
        let count = slot.space_count.get() as usize;
        let known = slot.spaces[..count].iter().find(|(s, _)| s.get() == id.index());
        match known {
            Some((_, newest)) => newest.set(generation.0),
            None if count < SPACES => {
                slot.spaces[count].0.set(id.index());
                slot.spaces[count].1.set(generation.0);
                slot.space_count.set(count as u32 + 1);
            }
            None => {}
        }
        generation
    }

    /// Entries that were cleared and whose flush this owes.
    pub(crate) fn cleared(&self) -> u32 {
        self.slot.cleared.get()
    }

    /// Hands a page over, isolated and locked.
    pub(crate) fn push(&self, page: FrameNumber, fate: Fate) {
        let (p, slot) = (self.mm.platform(), self.slot);
        self.mm.memmap().get(page).set_flags(p, flag::UNFLUSHED);
        let len = slot.len.get();
        slot.pages[len as usize].set((page.0, fate.pack()));
        slot.len.set(len + 1);
    }

    fn flush(self, reason: FlushReason) -> FlushedBatch<'m, 'p, P> {
        let _scope = charge(self.mm.platform(), Scope::UnmapFlush);
        let (mm, p, slot) = (self.mm, self.mm.platform(), self.slot);
        if slot.cleared.get() > 0 {
            let here = CpuGuard::new(mm);
            let targets = &here.slot().targets;
            for cpu in slot.cpus.iter().filter(|&cpu| cpu != here.cpu) {
                targets.insert(cpu);
            }
            // Every space's generation was raised when its entry was cleared, so a lazy CPU catches up by
            // itself, and so does one that has meanwhile switched away under a tag.
            leave_alone(&here, true);
            let skip = p.broken(Rule::FlushBeforeFree);
            if skip {
                targets.clear();
            }
            let count = targets.len();
            let mine = slot.cpus.contains(here.cpu) && !skip;
            let hardware = mm.broadcast().filter(|_| count > 0);
            if count > 0 && hardware.is_none() {
                mm.emit(Event::RemoteFlush { reason, targets: count });
            }
            mm.emit(Event::BatchFlushed { pages: slot.cleared.get(), targets: count });
            match hardware {
                Some(hardware) => {
                    targets.clear();
                    broadcast::batch(&here, hardware, slot.all_spaces(), reason);
                }
                None => ipi::call(here, Work::FlushAll, |here| {
                    if mine {
                        catch_up(here);
                    }
                }),
            }
            for (id, newest) in &slot.spaces[..slot.space_count.get() as usize] {
                mm.space_at(SpaceSlot(id.get())).flushed(p, Generation(newest.get()));
            }
        }
        FlushedBatch { mm, handle: self.handle, slot }
    }
}

impl<'m, 'p, P: Platform> FlushedBatch<'m, 'p, P> {
    /// Takes each page out, and keeps the empty batch for this CPU's next.
    fn hand_on(self, mut each: impl FnMut(FrameNumber, Fate)) {
        let (p, slot) = (self.mm.platform(), self.slot);
        for page in &slot.pages[..slot.len.get() as usize] {
            let (page, fate) = page.get();
            // Release: whoever sees the page out of the batch sees it flushed.
            self.mm.memmap().get(FrameNumber(page)).state.fetch_and(p, !flag::UNFLUSHED, Ordering::Release);
            each(FrameNumber(page), Fate::unpack(fate));
        }
        let here = CpuGuard::new(self.mm);
        if here.slot().spare_batch.get() == 0 {
            here.slot().spare_batch.set(self.handle + 1);
        } else {
            drop(here);
            self.mm.root.batches.release(self.mm, self.handle);
        }
    }
}

impl<P: Platform> Manager<'_, P> {
    /// Batches that somebody fills, or has lost: for audits of a quiet system, where there is none.
    pub(crate) fn batches_in_use(&self) -> u64 {
        let batches = &self.root.batches;
        let all = (0..batches.bound(self)).filter(|&handle| batches.is_used(self, handle)).count();
        let cpus = (0..self.platform().possible_cpus()).map(|cpu| CpuId(cpu as u16));
        let kept = cpus.filter(|&cpu| self.slot(cpu).spare_batch.get() != 0).count();
        all as u64 - kept as u64
    }

    /// Gives back the batch that this CPU keeps: before it goes offline.
    pub(crate) fn drain_batch(&self) {
        let kept = CpuGuard::new(self).slot().spare_batch.replace(0);
        if let Some(handle) = kept.checked_sub(1) {
            self.root.batches.release(self, handle);
        }
    }
}
