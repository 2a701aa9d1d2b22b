//! Shards: parts of the kernel range with locks of their own, so that many CPUs do not meet in one.
//!
//! Mostly there is one for each CPU, so that page tables, too, are one CPU's. A CPU takes addresses from its own, then from the others in turn. An extent that no shard alone has
//! room for is looked for across their borders, under the locks of all of them, from the lowest up.
//!
//! A shard's lock is held for one search, or while [`HOLD`] extents come back (PITFALLS 30); no interrupt handler takes it.
//! Extents in use are found without it: see `used.rs`.

use super::extent::{Owned, Place, Want};
use super::slots::Pile;
use super::state::KernelRange;
use super::state::{MAX_SHARDS, Shard};
use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::charge::charge;
use crate::cpu::CpuId;
use crate::error::Error;
use crate::frame::AllocFrom;
use crate::platform::Platform;
use crate::profile::Scope;

/// No shard is shorter than this where nothing else is said, in pages: 64 MiB.
const SHORTEST: u64 = 1 << 14;
/// Extents that come back under one hold of a shard's lock.
pub(super) const HOLD: u32 = 32;
/// Slots that a shard takes from the pool at a time, unless it makes new slabs of them, and keeps at most. It keeps many, and makes twice
/// as many slabs each time: a slot of the pool costs a look at the whole machine's lock.
const REFILL: u32 = 16;
const MOST_SLABS: u32 = 16;
pub(super) const KEEP: u32 = 2048;
/// Numbers of slabs that a shard has to itself from the start, and claims when it has used them: at one word of the pool's that all write. The
/// words of a directory that 16 slabs share a line with are mostly of the same shard so.
pub(super) const NUMBERS: u32 = 64;
/// Slots that taking one extent can need: its own, and that of the rest behind it.
const SLOTS: u32 = 2;

/// Whether a shard could be looked into.
enum Look {
    Found(Owned),
    NoRoom,
    /// It has too few spare slots.
    NoSlots,
}

/// How many shards, where nothing else is said.
pub(super) fn shards_for(cpus: u32, pages: u64) -> u32 {
    let by_size = (pages / SHORTEST).clamp(1, MAX_SHARDS.into()) as u32;
    cpus.min(by_size)
}

impl<'p> KernelRange<'p> {
    /// The pages of a shard.
    pub(super) fn part(&self, index: usize) -> PageRange {
        let start = PageNumber(self.range.start.0 + index as u64 * self.shard_pages);
        let last = index + 1 == self.shards.len();
        let end = if last { self.range.end() } else { PageNumber(start.0 + self.shard_pages) };
        PageRange::between(start, end)
    }

    /// Which shard a page of the range lies in.
    pub(super) fn shard_of(&self, page: PageNumber) -> usize {
        let index = (page.0 - self.range.start.0) / self.shard_pages;
        (index as usize).min(self.shards.len() - 1)
    }

    /// The shard that a CPU looks into first.
    pub(super) fn home(&self, cpu: CpuId) -> usize {
        cpu.index() * self.shards.len() / self.cpus.len()
    }

    /// Makes every shard's part free. Before any CPU uses the manager.
    pub(super) fn fill<P: Platform>(&self, mm: &Manager<'p, P>) -> Result<(), Error> {
        let (p, pool) = (mm.platform(), &self.state.extents);
        for shard in self.shards {
            shard.numbers.next(p, pool.numbers(), NUMBERS)?;
        }
        for (index, shard) in self.shards.iter().enumerate() {
            let handle = pool.reserve(mm, AllocFrom::NOW)?.commit();
            self.extent(mm, handle).place(p, self.part(index));
            shard.holes.insert(p, &self.free_by_address(mm), handle);
        }
        // What is free of the last slab: otherwise all CPUs would stand in line for it at first.
        while pool.has_room(mm) {
            self.shards[0].spare.push(mm, self, pool.reserve(mm, AllocFrom::NOW)?.commit());
        }
        Ok(())
    }

    /// Takes an extent out of the first shard that has room for it, this CPU's first; `None` if none has. May wait for
    /// memory.
    pub(super) fn take<P: Platform>(&self, mm: &Manager<'p, P>, want: &Want) -> Result<Option<Owned>, Error> {
        let (home, count) = (self.home(mm.platform().this_cpu()), self.shards.len());
        for index in (home..count).chain(0..home) {
            if self.part(index).intersect(want.within).is_none_or(|part| part.pages < want.pages) {
                continue;
            }
            loop {
                match self.look(mm, index, want) {
                    Look::Found(owned) => return Ok(Some(owned)),
                    Look::NoRoom => break,
                    Look::NoSlots => self.refill(mm, index)?,
                }
            }
        }
        if count > 1 { self.take_across(mm, want) } else { Ok(None) }
    }

    fn look<P: Platform>(&self, mm: &Manager<'p, P>, index: usize, want: &Want) -> Look {
        let _scope = charge(mm.platform(), Scope::ExtentSearch);
        let shard = &self.shards[index];
        let _guard = shard.free.lock(mm);
        let Some((hole, place)) = self.find_free(mm, &shard.holes, want) else { return Look::NoRoom };
        if shard.spare.len.get(mm.platform()) < SLOTS {
            return Look::NoSlots;
        }
        let spare = || shard.spare.pop(mm, self);
        match self.cut(mm, shard, hole, place, spare) {
            Some(handle) => Look::Found(self.owned(mm, handle, place)),
            None => Look::NoSlots,
        }
    }

    pub(super) fn owned<P: Platform>(&self, mm: &Manager<'p, P>, handle: u32, place: PageRange) -> Owned {
        let (p, extent) = (mm.platform(), self.extent(mm, handle));
        extent.place(p, place);
        extent.more.set(p, 0);
        Owned::new(handle, place)
    }

    /// Cuts `place` out of a free extent; returns a slot that describes nothing yet. `None`, with nothing changed, if there
    /// are too few slots. Under the shard's lock.
    pub(super) fn cut<P: Platform>(
        &self,
        mm: &Manager<'p, P>,
        shard: &Shard,
        hole: u32,
        place: PageRange,
        mut spare: impl FnMut() -> Option<u32>,
    ) -> Option<u32> {
        let (p, nodes) = (mm.platform(), self.free_by_address(mm));
        let extent = self.extent(mm, hole);
        let whole = extent.range(p);
        let front = PageRange::between(whole.start, place.start);
        let back = PageRange::between(place.end(), whole.end());
        if front.pages == 0 && back.pages == 0 {
            shard.holes.remove(p, &nodes, hole);
            return Some(hole);
        }
        let taken = spare()?;
        // Either end stays between its neighbours, so the node stays where it is in the tree.
        extent.place(p, if front.pages > 0 { front } else { back });
        shard.holes.refresh(p, &nodes, hole);
        if front.pages > 0 && back.pages > 0 {
            // Both were counted before: `SLOTS`.
            let rest = spare()?;
            self.extent(mm, rest).place(p, back);
            shard.holes.insert(p, &nodes, rest);
        }
        Some(taken)
    }

    /// Adds spare slots. No lock is held; may wait for memory.
    fn refill<P: Platform>(&self, mm: &Manager<'p, P>, index: usize) -> Result<(), Error> {
        let (p, shard) = (mm.platform(), &self.shards[index]);
        let slabs = (2 * shard.slabs.get(p)).clamp(1, MOST_SLABS);
        let number = || {
            let _guard = shard.free.lock(mm);
            shard.numbers.take(p, self.state.extents.numbers(), NUMBERS)
        };
        let new = Pile::some(mm, self, (REFILL, slabs), number)?;
        shard.slabs.set(p, slabs);
        let _guard = shard.free.lock(mm);
        while let Some(slot) = new.pop(mm, self) {
            shard.spare.push(mm, self, slot);
        }
        Ok(())
    }

    /// Whatever a look at a quiet system needs: the free and the used extents of a shard.
    pub(super) fn each_extent<P: Platform>(&self, mm: &Manager<'p, P>, mut each: impl FnMut(u32, Place)) {
        let p = mm.platform();
        for shard in self.shards {
            let nodes = self.free_by_address(mm);
            let mut at = shard.holes.first(p, &nodes);
            while let Some(handle) = at {
                each(handle, Place::Free);
                at = shard.holes.next(p, &nodes, handle);
            }
            let mut next = shard.spare.first.get(p);
            while let Some(handle) = next.checked_sub(1) {
                each(handle, Place::Spare);
                next = self.extent(mm, handle).next.get(p);
            }
        }
        self.each_used(mm, |handle| each(handle, Place::Used));
        for cache in self.cpus {
            cache.each(mm, self, |handle, waits| {
                each(handle, if waits { Place::Waits } else { Place::Cached })
            });
        }
        if let Some(sweeping) = &self.sweeping {
            sweeping.each(mm, self, |handle| each(handle, Place::Waits));
        }
    }
}
