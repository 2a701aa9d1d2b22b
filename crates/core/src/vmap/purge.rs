//! Unmapped addresses wait, and one flush for all of them makes them free (INV-3).
//!
//! What waits is pushed without a lock and taken whole by who purges. So an unmap never waits, in whatever context, and no
//! node is looked at by two (PITFALLS 23). Three types in a row: [`Taken`] off the lists, [`Flushed`] on every CPU, and
//! only its extents are [`Idle`](super::extent::Idle).
//!
//! Longest lock holds: none to take what waits, and [`HOLD`](super::shard) extents of O(log n) each to make it free.

use core::sync::atomic::Ordering;

use super::bitmap::Block;
use super::extent::{Purpose, Unmapped};
use super::returning::Returning;
use super::shard::{MAX_SHARDS, Waiting};
use super::{Vmap, block, entries};
use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::cpu::CpuId;
use crate::event::{Event, FlushReason};
use crate::platform::{Platform, WaitKey};
use crate::profile::{self, Scope};
use crate::rule::Rule;
use crate::tlb::kernel;

/// 32 MiB, in pages: what may wait for each doubling of the CPUs that are online.
const LAZY: u64 = 8192;

/// How hard a purge tries to find addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effort {
    /// What waits.
    Soft,
    /// Also blocks in which nothing is mapped and that CPUs have for themselves.
    Hard,
}

/// What waits for a purge of kernel addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waits {
    /// Pages of addresses that were unmapped and are not free yet.
    pub pages: u64,
    /// Frames of `vmalloc` that go with them.
    pub frames: u64,
}

impl<'p> Vmap<'p> {
    /// By how many CPUs are online, or as the configuration says.
    pub(super) fn set_threshold<P: Platform>(&self, mm: &Manager<'p, P>) {
        let p = mm.platform();
        let online = || (0..p.possible_cpus()).filter(|&cpu| mm.is_online(CpuId(cpu as u16))).count() as u32;
        let pages = mm.config().vmap_lazy.unwrap_or_else(|| u64::from(32 - online().leading_zeros()) * LAZY);
        self.state.threshold.store(p, pages, Ordering::Relaxed);
    }

    fn waiting(&self, page: PageNumber) -> &'p Waiting {
        &self.shards[self.shard_of(page)].waiting
    }
}

pub(super) fn waits<'p, P: Platform>(mm: &Manager<'p, P>, v: &Vmap<'p>) -> Waits {
    let p = mm.platform();
    let mut sum = Waits::default();
    for shard in v.shards {
        sum.pages += shard.waiting.pages.load(p, Ordering::Relaxed);
        sum.frames += shard.waiting.frames.load(p, Ordering::Relaxed);
    }
    sum
}

/// An extent waits for a purge, with so many frames of its own. Any context: no lock.
pub(super) fn defer<'p, P: Platform>(mm: &Manager<'p, P>, v: &Vmap<'p>, extent: Unmapped, frames: u64) {
    let p = mm.platform();
    let handle = extent.handle();
    let slot = v.extent(mm, handle);
    let range = slot.range(p);
    let waiting = v.waiting(range.start);
    let push = || Waiting::push(p, &waiting.extents, &slot.next, handle);
    // The frames' number is the extent's to say when they are freed; here it is only counted.
    waiting.frames.fetch_add(p, frames, Ordering::Relaxed);
    count(mm, v, range.start, range.pages, push);
}

/// Counts pages, then lets `push` make them wait: a purge that finds them subtracts them (PITFALLS 24). Asks for a purge
/// when enough wait.
pub(super) fn count<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &Vmap<'p>,
    page: PageNumber,
    pages: u64,
    push: impl FnOnce(),
) {
    let p = mm.platform();
    let counter = &v.waiting(page).pages;
    let before = if p.broken(Rule::CountBeforeWaiting) {
        push();
        counter.fetch_add(p, pages, Ordering::Relaxed)
    } else {
        // Release, with that of the push: whoever takes the node finds it counted.
        let before = counter.fetch_add(p, pages, Ordering::Release);
        push();
        before
    };
    let threshold = v.state.threshold.load(p, Ordering::Relaxed);
    // All shards are summed up only now and then: what waits is known to an eighth.
    let step = (threshold / 8 / v.shards.len() as u64).max(1);
    if before / step != (before.wrapping_add(pages)) / step && waits(mm, v).pages >= threshold {
        let wanted = &v.state.wanted;
        if wanted.load(p, Ordering::Relaxed) == 0 && wanted.swap(p, 1, Ordering::AcqRel) == 0 {
            mm.emit(Event::VmapPurgeWanted);
            p.wake(WaitKey::VmapPurge);
        }
    }
}

/// Waits until a purge is asked for.
pub(super) fn await_wanted<'p, P: Platform>(mm: &Manager<'p, P>, v: &Vmap<'p>) {
    let p = mm.platform();
    p.wait(WaitKey::VmapPurge, &mut || v.state.wanted.load(p, Ordering::Acquire) != 0);
}

/// Whoever maps purges if twice of what may wait does: who was woken has not come. So what waits is bounded even where
/// nobody calls [`Manager::vmap_purger`].
pub(super) fn ease<'p, P: Platform>(mm: &Manager<'p, P>, v: &Vmap<'p>) {
    let p = mm.platform();
    let too_many = || waits(mm, v).pages >= v.state.threshold.load(p, Ordering::Relaxed).saturating_mul(2);
    // A cheap look first: nothing is asked for, so less than that waits.
    if v.state.wanted.load(p, Ordering::Relaxed) != 0 && too_many() && kernel::may_wait(mm).is_ok() {
        let alone = v.state.purging.write(p);
        // Others may have stood in line before, and one purge was for all.
        if too_many() {
            purge_alone(mm, v, Effort::Soft);
        }
        drop(alone);
    }
}

pub(super) fn is_running<'p, P: Platform>(mm: &Manager<'p, P>, v: &Vmap<'p>) -> bool {
    v.state.running.load(mm.platform(), Ordering::Acquire) != 0
}

/// What one purge took off the lists.
#[must_use = "these addresses are lost unless they are flushed and made free"]
struct Taken {
    /// By shard, the first of the list: handles plus one.
    extents: [u32; MAX_SHARDS as usize],
    /// Blocks with slots to flush, on a list of their own.
    blocks: u32,
    /// What one flush must cover.
    span: Option<PageRange>,
    pages: u64,
}

/// The same, flushed on every CPU.
#[must_use = "these addresses are lost unless they are made free"]
struct Flushed(Taken);

/// Flushes all that waits and makes it free; gives how many pages. Waits for a running purge first. Interrupts are on.
pub(super) fn purge<'p, P: Platform>(mm: &Manager<'p, P>, v: &Vmap<'p>, effort: Effort) -> u64 {
    let _alone = v.state.purging.write(mm.platform());
    purge_alone(mm, v, effort)
}

/// The same by who has the purge's lock.
fn purge_alone<'p, P: Platform>(mm: &Manager<'p, P>, v: &Vmap<'p>, effort: Effort) -> u64 {
    let _scope = profile::scope(mm.platform(), Scope::VmapPurge);
    let p = mm.platform();
    v.state.running.store(p, 1, Ordering::Release);
    // Before the lists are taken: what is pushed later asks again.
    v.state.wanted.store(p, 0, Ordering::Release);
    let taken = Taken::all(mm, v);
    let pages = taken.pages;
    taken.flush(mm).settle(mm, v);
    if effort == Effort::Hard {
        block::give_up_idle(mm, v);
    }
    v.state.running.store(p, 0, Ordering::Release);
    pages
}

impl Taken {
    fn all<'p, P: Platform>(mm: &Manager<'p, P>, v: &Vmap<'p>) -> Taken {
        let p = mm.platform();
        let mut taken = Taken { extents: [0; MAX_SHARDS as usize], blocks: 0, span: None, pages: 0 };
        for (index, shard) in v.shards.iter().enumerate() {
            let waiting = &shard.waiting;
            if waiting.extents.load(p, Ordering::Relaxed) != 0 {
                // Acquire: partner of the Release of the push: the entries are cleared, and it is counted.
                taken.extents[index] = waiting.extents.swap(p, 0, Ordering::AcqRel);
            }
            let (mut pages, mut frames) = (0, 0);
            let mut next = taken.extents[index];
            while let Some(handle) = next.checked_sub(1) {
                let extent = v.extent(mm, handle);
                taken.cover(extent.range(p));
                pages += extent.range(p).pages;
                frames += own_frames(mm, v, handle);
                next = extent.next.get(p);
            }
            if pages > 0 {
                waiting.pages.fetch_sub(p, pages, Ordering::Relaxed);
                waiting.frames.fetch_sub(p, frames, Ordering::Relaxed);
            }
            taken.pages += pages;
        }
        let blocks = &v.state.waiting_blocks;
        let mut next =
            if blocks.load(p, Ordering::Relaxed) == 0 { 0 } else { blocks.swap(p, 0, Ordering::AcqRel) };
        while let Some(handle) = next.checked_sub(1) {
            let block: &Block = v.state.blocks.get(mm, handle);
            // First: once it is gathered it may be pushed again.
            next = block.next_waiting.get(p);
            let (pages, span) = block::gather(mm, v, block);
            if let Some(span) = span {
                // Slots that were taken kept the block where it was when they were counted.
                v.waiting(PageNumber(block.start.get(p))).pages.fetch_sub(p, pages, Ordering::Relaxed);
                taken.cover(span);
                taken.pages += pages;
            }
            block.next_flushed.set(p, core::mem::replace(&mut taken.blocks, handle + 1));
        }
        taken
    }

    fn cover(&mut self, range: PageRange) {
        let span = self.span.unwrap_or(range);
        let end = span.end().max(range.end());
        self.span = Some(PageRange::between(span.start.min(range.start), end));
    }

    /// One flush for all of it: at most one IPI per CPU that is online.
    fn flush<P: Platform>(self, mm: &Manager<'_, P>) -> Flushed {
        if let Some(span) = self.span {
            if !mm.platform().broken(Rule::FlushBeforeReuse) {
                kernel::flush(mm, span, FlushReason::Purge);
            }
            mm.emit(Event::VmapPurged { pages: self.pages });
        }
        Flushed(self)
    }
}

/// Frames that wait with an extent: its first entry says whether they do.
pub(super) fn own_frames<'p, P: Platform>(mm: &Manager<'p, P>, v: &Vmap<'p>, handle: u32) -> u64 {
    let p = mm.platform();
    let (extent, range) = (v.extent(mm, handle), v.extent(mm, handle).mapped(p));
    let waits = extent.purpose(p) == Purpose::Alloc && entries::peek(mm, range.start).is_taken();
    if waits { range.pages } else { 0 }
}

impl Flushed {
    /// Frees the frames, and makes the addresses free.
    fn settle<'p, P: Platform>(self, mm: &Manager<'p, P>, v: &Vmap<'p>) {
        let p = mm.platform();
        // Frames first, without any shard's lock.
        for first in self.0.extents {
            let mut next = first;
            while let Some(handle) = next.checked_sub(1) {
                let extent = v.extent(mm, handle);
                if extent.purpose(p) == Purpose::Alloc {
                    entries::free_taken(mm, extent.mapped(p));
                }
                next = extent.next.get(p);
            }
        }
        let mut returning = Returning::new(mm, v);
        for first in self.0.extents {
            let mut next = first;
            while let Some(handle) = next.checked_sub(1) {
                let slot = v.extent(mm, handle);
                // PITFALLS 23: the slot may be another extent's as soon as it is put back.
                let after = slot.next.get(p);
                returning.put(Unmapped::cleared(handle).flushed());
                next = if p.broken(Rule::NextBeforeRelease) { slot.next.get(p) } else { after };
            }
        }
        returning.finish();
        let mut next = self.0.blocks;
        while let Some(handle) = next.checked_sub(1) {
            next = v.state.blocks.get(mm, handle).next_flushed.get(p);
            block::settle(mm, v, handle);
        }
    }
}
