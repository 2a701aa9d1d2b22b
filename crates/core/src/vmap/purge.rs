//! Unmapped addresses wait, and one flush for all of them makes them free (INV-3).
//!
//! What waits stays where it is, on the lists of the CPUs that unmapped it (`extent_cache.rs`): a purge counts it, flushes, and says
//! so. Only what has frames of its own is taken off, because somebody may want the frames and its CPU may never map again.
//! So an unmap never waits, in whatever context. Three types in a row: [`Taken`] says what one flush must cover,
//! [`FlushedExtents`] that every CPU has flushed it, and only its extents are [`Idle`](super::extent::Idle).
//!
//! Longest lock holds: a few steps on each CPU's own, and [`HOLD`](super::shard) extents of O(log n) each to make them free.

use core::sync::atomic::Ordering;

use super::extent::{Purpose, Unmapped};
use super::pressure::waits;
use super::returning::Returning;
use super::state::KernelRange;
use super::sweeping::Sweeping;
use super::{blocks, entries, sweep};
use crate::Manager;
use crate::addr::PageRange;
use crate::charge::charge;
use crate::event::{Event, FlushReason};
use crate::platform::Platform;
use crate::profile::Scope;
use crate::resched::Work;
use crate::rule::Rule;
use crate::sync::full_fence;
use crate::tlb::kernel;

/// How hard a purge tries to find addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effort {
    /// What waits.
    Soft,
    /// What waits for the sweep that is under way, if one is, and what else `Hard` finds.
    Begun,
    /// Also what CPUs have in their caches, and blocks in which nothing is mapped.
    Hard,
}

/// Whoever maps purges if twice of what may wait does: who was woken has not come. So what waits is bounded even where
/// nobody calls [`purger`](crate::Vmap::purger).
pub(super) fn throttle<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>) {
    if let Some(sweeping) = &v.sweeping {
        return sweep::throttle(mm, v, sweeping);
    }
    let (p, pressing) = (mm.platform(), &v.state.numbers.pressing);
    let too_many = || {
        let most = v.state.numbers.threshold.load(p, Ordering::Relaxed).saturating_mul(2);
        v.state.reported.load(p, Ordering::Relaxed) >= most
    };
    if pressing.load(p, Ordering::Relaxed) != 0 && kernel::may_wait(mm).is_ok() {
        if is_running(mm, v) {
            // With a thousand CPUs here, each would have the lock in turn, to find that nothing is to be done. As readers they
            // all go on at once when that purge has ended.
            return drop(v.state.purging.read(p));
        }
        let alone = v.state.purging.write(p);
        // Others may have stood in line before, and one purge was for all.
        if too_many() {
            let _ = purge_alone(mm, v, Effort::Soft);
        } else {
            pressing.store(p, 0, Ordering::Relaxed);
        }
        drop(alone);
    }
}

pub(super) fn is_running<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>) -> bool {
    v.state.asked.running.load(mm.platform(), Ordering::Acquire) != 0
}

/// What one purge found.
#[must_use = "these addresses are lost unless they are flushed and made free"]
struct Taken {
    number: u64,
    /// What one flush must cover.
    span: Option<PageRange>,
    pages: u64,
}

/// The same, flushed on every CPU.
#[must_use = "these addresses are lost unless they are made free"]
struct FlushedExtents(Taken);

/// Does what [`purger`](crate::Vmap::purger) was woken for.
pub(super) fn serve<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>) {
    let Some(sweeping) = &v.sweeping else {
        purge(mm, v, Effort::Soft);
        return;
    };
    let p = mm.platform();
    let _alone = v.state.purging.write(p);
    v.state.asked.wanted.store(p, 0, Ordering::Release);
    // Partner: the fence in `sweep::wake`.
    full_fence(p);
    sweep::hasten(mm, v, sweeping);
    sweep::gather(mm, v, sweeping);
    free_owning(mm, v);
}

/// Frees frames that wait; returns how many. As [`Manager::purge_frames`] says.
pub(super) fn free_frames<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>, last: bool) -> u64 {
    let Some(sweeping) = &v.sweeping else {
        let frames = waits(mm, v).frames;
        purge(mm, v, Effort::Soft);
        return frames;
    };
    let _alone = v.state.purging.write(mm.platform());
    let gathered = || {
        sweep::gather(mm, v, sweeping);
        free_owning(mm, v)
    };
    let mut freed = gathered();
    if freed == 0 && !last {
        sweep::want(mm, v, sweeping);
    }
    if freed == 0
        && last
        && let Some(sweep) = sweep::under_way(mm, v)
    {
        sweep::finish(mm, v, sweeping, sweep);
        freed = gathered();
    }
    if freed == 0 && last && waits(mm, v).frames > 0 {
        sweep::flush_now(mm, v, sweeping);
        freed = gathered();
    }
    freed
}

/// Flushes all that waits and makes it free; returns how many pages, and `None` if there was nothing to do. Waits for a running
/// purge first. Interrupts are on.
pub(super) fn purge<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    effort: Effort,
) -> Option<u64> {
    if effort == Effort::Begun && (v.sweeping.is_none() || sweep::under_way(mm, v).is_none()) {
        return None;
    }
    let _alone = v.state.purging.write(mm.platform());
    Some(purge_alone(mm, v, effort))
}

/// The same by whoever has the purge's lock.
fn purge_alone<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>, effort: Effort) -> u64 {
    let _scope = charge(mm.platform(), Scope::VmapPurge);
    let (p, numbers) = (mm.platform(), &v.state.numbers);
    v.state.asked.running.store(p, 1, Ordering::Release);
    // Before anything is counted: what comes later asks again.
    v.state.asked.wanted.store(p, 0, Ordering::Release);
    if numbers.pressing.load(p, Ordering::Relaxed) != 0 {
        numbers.pressing.store(p, 0, Ordering::Relaxed);
    }
    let pages = match &v.sweeping {
        Some(sweeping) => sweep_alone(mm, v, sweeping, effort),
        None => {
            let taken = Taken::all(mm, v);
            let pages = taken.pages;
            taken.flush(mm).settle(mm, v);
            pages
        }
    };
    if effort != Effort::Soft {
        let mut returning = Returning::new(mm, v);
        v.cpus.iter().for_each(|cache| give_back(mm, v, &mut returning, cache.drain(mm, v)));
        returning.finish();
        blocks::freshen(mm, v, !p.broken(Rule::EmptyBlocksGoBack));
    }
    v.state.asked.running.store(p, 0, Ordering::Release);
    pages
}

/// The same where sweeps flush.
fn sweep_alone<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    sweeping: &Sweeping<'p>,
    effort: Effort,
) -> u64 {
    let pages = waits(mm, v).pages;
    match (effort, sweep::under_way(mm, v)) {
        (Effort::Begun, under_way) => {
            under_way.into_iter().for_each(|sweep| sweep::finish(mm, v, sweeping, sweep));
        }
        // INV-3: a sum of moments may miss what its CPU seals meanwhile, and that waits for a sweep that is under way.
        //
        //   this CPU                       another, that unmaps something
        //   sealed there: nothing
        //                                  what was fresh is sealed: its sweep has begun
        //   fresh there: nothing
        //                                  what it unmaps is fresh
        (_, under_way) if pages > 0 || under_way.is_some() && sweeping.any_waits(mm, v) => {
            sweep::flush_now(mm, v, sweeping);
        }
        _ => {}
    }
    sweep::gather(mm, v, sweeping);
    free_owning(mm, v);
    pages
}

impl Taken {
    fn all<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>) -> Taken {
        let (p, numbers) = (mm.platform(), &v.state.numbers);
        let number = numbers.next(p);
        let mut taken = Taken { number, span: None, pages: 0 };
        // Release: partner of the Acquire in `next`: whoever waits for purge n + 1 knows that n - 1 has ended.
        numbers.sweeps.begun.store(p, number, Ordering::Release);
        // Partner: the fence in `wait_for_purge`. Whoever unmaps on a CPU where nothing is found waits for the next purge.
        full_fence(p);
        for found in v.cpus.iter().filter_map(|cache| cache.visit(mm, v, number)) {
            taken.pages += found.pages;
            let span = taken.span.unwrap_or(found.span);
            let end = span.end().max(found.span.end());
            taken.span = Some(PageRange::between(span.start.min(found.span.start), end));
        }
        taken
    }

    /// One flush for all of it: at most one IPI per CPU that is online.
    fn flush<P: Platform>(self, mm: &Manager<'_, P>) -> FlushedExtents {
        if let Some(span) = self.span {
            if !mm.platform().broken(Rule::FlushBeforeReuse) {
                kernel::flush(mm, span, FlushReason::Purge);
            }
            mm.emit(Event::VmapPurged { pages: self.pages });
        }
        FlushedExtents(self)
    }
}

impl FlushedExtents {
    /// Says so, and makes that free which its CPUs do not take back: what has frames.
    fn settle<'p, P: Platform>(self, mm: &Manager<'p, P>, v: &KernelRange<'p>) {
        let p = mm.platform();
        // Release: partner of the Acquire in `last_over`.
        v.state.numbers.sweeps.over.store(p, self.0.number, Ordering::Release);
        free_owning(mm, v);
    }
}

/// Frees the frames of extents that have some and were flushed, and makes these free; returns how many frames. By whoever has the
/// purge's lock.
fn free_owning<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>) -> u64 {
    let p = mm.platform();
    let owning = v.state.owning.take_all(p);
    let (mut next, mut frames, mut work) = (owning, 0, Work::begin(mm));
    // Frames first, without any shard's lock.
    while let Some(handle) = next.checked_sub(1) {
        let extent = v.extent(mm, handle);
        let range = extent.mapped(p);
        entries::free_taken_parts(mm, range, &mut work);
        frames += range.pages;
        next = extent.next.get(p);
    }
    let mut returning = Returning::new(mm, v);
    give_back(mm, v, &mut returning, owning);
    returning.finish();
    frames
}

/// Makes a list of extents free that every CPU has flushed: handles plus one.
fn give_back<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    returning: &mut Returning<'_, 'p, P>,
    first: u32,
) {
    let p = mm.platform();
    let mut next = first;
    while let Some(handle) = next.checked_sub(1) {
        let slot = v.extent(mm, handle);
        // PITFALLS 23: the slot may be another extent's as soon as it is put back.
        let after = slot.next.get(p);
        returning.put(Unmapped::cleared(handle).flushed());
        next = if p.broken(Rule::NextBeforeRelease) { slot.next.get(p) } else { after };
    }
}

/// Frames that wait with an extent: its first entry says whether they do.
pub(super) fn own_frames<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>, handle: u32) -> u64 {
    let p = mm.platform();
    let (extent, range) = (v.extent(mm, handle), v.extent(mm, handle).mapped(p));
    let waits = extent.purpose(p) == Purpose::Alloc && entries::peek(mm, range.start).is_taken();
    if waits { range.pages } else { 0 }
}
