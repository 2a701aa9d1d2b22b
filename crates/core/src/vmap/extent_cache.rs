//! What each CPU has for itself: what it has unmapped, what of that was flushed since, and its blocks.
//!
//! Purges are numbered. What is unmapped is put on its CPU's own list, with the number of the purge that it waits for; once
//! that purge has flushed, its CPU takes it back itself, when it maps next, and mostly gives the same extent out again.
//! So nothing that is unmapped and mapped again leaves its CPU, and a purge looks at one line a CPU, not at extents.
//!
//! ```text
//!   who unmaps, under its CPU's lock          who purges
//!   (entries cleared)
//!   `waits` = 1, if it was 0                  `started` = n
//!   ---- fence, then ----                     ---- fence ----
//!   reads `started`                           reads `waits` of each CPU
//!     n: waits for purge n + 1                  0: whoever unmaps there next reads n
//!     n - 1: waits for purge n                  1: takes the lock: counts it, with what it spans
//!                                             flushes, then `ended` = n
//! ```
//!
//! The lock is taken with interrupts off, for a few steps, by interrupt handlers too.

use core::sync::atomic::Ordering;

use super::bins;
use super::cpu::{Batch, ExtentCache};
use super::extent::{Owned, Unmapped, Want};
use super::pressure::{self, Waits};
use super::state::KernelRange;
use super::sweep;
use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::percpu::CpuGuard;
use crate::platform::Platform;
use crate::rule::Rule;
use crate::sync::full_fence;
use crate::tlb::kernel::may_wait;

/// Cached extents that a map looks at for one of just its size, where sizes share a list or an alignment is asked for.
const LOOKS: usize = 32;
/// What is not wanted goes back to its shard, so many at a time.
const BACK: usize = 2;
/// Purges after which a CPU gives back what has been in its cache all the time. With many CPUs they come fast, and some
/// have less to do than others in between.
const LONG: u64 = 16;
/// Each CPU tells all others what it has unmapped when it comes to this part of its share of the threshold.
const PART: u64 = 2;

/// What a purge found at a CPU.
pub(super) struct Found {
    pub pages: u64,
    pub span: PageRange,
}

impl<'p> KernelRange<'p> {
    /// Runs `work` on this CPU's own, under its lock, interrupts off.
    pub(super) fn own<P: Platform, R>(
        &self,
        mm: &Manager<'p, P>,
        work: impl FnOnce(&'p ExtentCache) -> R,
    ) -> R {
        let here = CpuGuard::new(mm);
        let cache = &self.cpus[here.cpu.index()];
        let _guard = cache.lock.lock(mm);
        work(cache)
    }
}

impl ExtentCache {
    /// No purge comes by here: sweeps take their place. Before any CPU uses the manager.
    pub fn never_visited<P: Platform>(&self, p: &P) {
        self.waits.set(p, 1);
    }

    /// Runs `work` under the lock, interrupts off.
    pub fn with<P: Platform, R>(&self, mm: &Manager<'_, P>, work: impl FnOnce() -> R) -> R {
        let _here = CpuGuard::new(mm);
        let _guard = self.lock.lock(mm);
        work()
    }

    /// Moves on what was flushed meanwhile; returns the number of the purge that new things wait for. Under the lock.
    pub fn turn<'p, P: Platform>(&self, mm: &Manager<'p, P>, v: &KernelRange<'p>) -> u64 {
        let (p, numbers) = (mm.platform(), &v.state.numbers);
        let next = numbers.next(p);
        let oldest =
            [&self.sealed, &self.fresh].map(|batch| batch.purge.get(p)).into_iter().find(|&n| n != 0);
        if oldest.is_none_or(|oldest| oldest == next) {
            return next;
        }
        if oldest.is_some_and(|oldest| numbers.has_flushed(p, oldest)) {
            if self.surplus.is_empty(p) {
                self.since.set(p, next);
            } else if next - self.since.get(p) > LONG {
                self.surplus.empty_into(mm, v, &self.excess);
                self.since.set(p, next);
            }
            self.surplus.take_over(mm, v, &self.ready);
        }
        for batch in [&self.sealed, &self.fresh] {
            let purge = batch.purge.get(p);
            if purge != 0 && numbers.has_flushed(p, purge) {
                self.ready.take_over(mm, v, &batch.extents);
                batch.purge.set(p, 0);
            }
        }
        let fresh = self.fresh.purge.get(p);
        if fresh != 0 && fresh < next {
            // Its purge is under way. Those before have ended, so nothing is in `sealed`; or a sweep was begun over another
            // that was under way: then both wait for the later one.
            self.seal(mm, v, fresh);
        }
        next
    }

    /// What is in `fresh` waits for this purge, as does what is in `sealed`. Under the lock.
    fn seal<'p, P: Platform>(&self, mm: &Manager<'p, P>, v: &KernelRange<'p>, purge: u64) {
        let p = mm.platform();
        self.sealed.extents.take_over(mm, v, &self.fresh.extents);
        self.sealed.purge.set(p, purge);
        self.fresh.purge.set(p, 0);
    }

    /// What says that it waits for the purge after the one that came by was here before, and is flushed by that one too. Its
    /// CPU says so itself, before anything new comes: the purge touches one line here. Under the lock.
    fn heed_visit<'p, P: Platform>(&self, mm: &Manager<'p, P>, v: &KernelRange<'p>) {
        let p = mm.platform();
        if self.waits.get(p) == 0 && self.fresh.purge.get(p) > self.visited.get(p) {
            // Those before are moved on first: they may have ended.
            self.turn(mm, v);
            if self.fresh.purge.get(p) != 0 {
                self.seal(mm, v, self.visited.get(p));
            }
        }
    }

    /// Counts pages that wait from here on; returns how many all should hear of, or 0. Under the lock.
    fn count<'p, P: Platform>(&self, mm: &Manager<'p, P>, v: &KernelRange<'p>, range: PageRange) -> u64 {
        let p = mm.platform();
        let pages = self.pages.get(p);
        if pages == 0 || range.start.0 < self.from.get(p) {
            self.from.set(p, range.start.0);
        }
        if pages == 0 || range.end().0 > self.to.get(p) {
            self.to.set(p, range.end().0);
        }
        self.pages.set(p, pages + range.pages);
        let untold = pages + range.pages - self.told.get(p);
        let share = v.state.numbers.threshold.load(p, Ordering::Relaxed) / v.cpus.len() as u64;
        if untold <= share / PART {
            return 0;
        }
        self.told.set(p, pages + range.pages);
        untold
    }

    /// What waits here for purge `n`, which has begun. By whoever has the purge's lock.
    pub fn visit<'p, P: Platform>(&self, mm: &Manager<'p, P>, v: &KernelRange<'p>, n: u64) -> Option<Found> {
        let p = mm.platform();
        // Relaxed: the fences order it: see above.
        if self.waits.load(p, Ordering::Relaxed) == 0 {
            return None;
        }
        self.with(mm, || {
            let pages = self.pages.get(p);
            let span = PageRange::between(PageNumber(self.from.get(p)), PageNumber(self.to.get(p)));
            v.state.reported.fetch_sub(p, self.told.get(p), Ordering::Relaxed);
            // PITFALLS 22: it is not to be flushed again.
            if !p.broken(Rule::ForgetWhatWasFlushed) {
                self.pages.set(p, 0);
                self.waits.store(p, 0, Ordering::Relaxed);
            }
            self.told.set(p, 0);
            if self.frames.get(p) > 0 {
                self.frames.set(p, 0);
                v.state.owning.take_over(p, &self.owning, v.link(mm));
            }
            self.visited.set(p, n);
            Some(Found { pages, span })
        })
    }

    /// Takes all that was flushed: a list of handles plus one. For whoever is short of addresses.
    pub fn drain<'p, P: Platform>(&self, mm: &Manager<'p, P>, v: &KernelRange<'p>) -> u32 {
        self.with(mm, || {
            self.heed_visit(mm, v);
            self.turn(mm, v);
            let p = mm.platform();
            self.surplus.empty_into(mm, v, &self.excess);
            self.ready.empty_into(mm, v, &self.excess);
            self.excess.take_all(p)
        })
    }

    pub fn waits<P: Platform>(&self, p: &P) -> Waits {
        Waits {
            pages: self.pages.load(p, Ordering::Relaxed).wrapping_sub(self.told.load(p, Ordering::Relaxed)),
            frames: self.frames.load(p, Ordering::Relaxed),
        }
    }

    /// For a look at a quiet system: all extents, and whether they wait for a purge.
    pub fn each<'p, P: Platform>(
        &self,
        mm: &Manager<'p, P>,
        v: &KernelRange<'p>,
        mut each: impl FnMut(u32, bool),
    ) {
        let p = mm.platform();
        let covered = if self.waits.get(p) == 0 { self.visited.get(p) } else { u64::MAX };
        let waits = |batch: &Batch| !v.state.numbers.has_flushed(p, batch.purge.get(p).min(covered));
        self.owning.each(p, v.link(mm), |handle| each(handle, true));
        self.excess.each(p, v.link(mm), |handle| each(handle, false));
        for (bins, waits) in [
            (&self.fresh.extents, waits(&self.fresh)),
            (&self.sealed.extents, waits(&self.sealed)),
            (&self.ready, false),
            (&self.surplus, false),
        ] {
            bins.each(mm, v, |handle| each(handle, waits));
        }
    }
}

/// Counts what a CPU has unmapped, with `put` under the same hold of its CPU's lock, and asks for a purge when enough
/// waits. Returns the number of the purge that it waits for. Any context.
fn wait_for_purge<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    range: PageRange,
    put: impl FnOnce(&ExtentCache, u64),
) -> u64 {
    if let Some(sweeping) = &v.sweeping {
        return sweep::wait(mm, v, sweeping, range, put);
    }
    let (p, reported) = (mm.platform(), &v.state.reported);
    // PITFALLS 24: a purge that comes next subtracts it.
    let late = p.broken(Rule::CountBeforeWaiting);
    let mut report = v.own(mm, |cache| {
        if cache.waits.get(p) == 0 {
            cache.heed_visit(mm, v);
            cache.waits.store(p, 1, Ordering::Relaxed);
            // Partner: the fence in `Taken::all`.
            full_fence(p);
        }
        let report = cache.count(mm, v, range);
        let before = if report > 0 && !late { reported.fetch_add(p, report, Ordering::Relaxed) } else { 0 };
        let next = cache.turn(mm, v);
        put(cache, next);
        (report, before, next)
    });
    if report.0 > 0 && late {
        report.1 = reported.fetch_add(p, report.0, Ordering::Relaxed);
    }
    if report.0 > 0 {
        pressure::ask(mm, v, report.1.wrapping_add(report.0));
    }
    report.2
}

/// An extent of these pages waits for a purge, with so many frames of its own. Any context.
pub(super) fn defer<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    extent: Unmapped,
    whole: PageRange,
    frames: u64,
) {
    let p = mm.platform();
    let handle = extent.handle();
    let were_on = may_wait(mm).is_ok();
    let mut back = [None; BACK];
    wait_for_purge(mm, v, whole, |cache, next| {
        if let Some(sweeping) = v.sweeping.as_ref().filter(|_| frames > 0) {
            sweeping.own(mm, v, handle, whole, frames);
        } else if frames > 0 {
            cache.frames.set(p, cache.frames.get(p) + frames);
            cache.owning.push(p, v.link(mm), handle);
        } else {
            cache.fresh.extents.push(mm, v, whole.pages, handle);
            cache.fresh.purge.set(p, next);
        }
        // Not in an interrupt handler: it may have come in the middle of a shard's lock.
        if !cache.excess.is_empty(p) && were_on {
            back = [(); BACK].map(|()| cache.excess.pop(p, v.link(mm)));
        }
    });
    give_back(mm, v, back);
}

/// Slots of a block wait for a purge: for which one. Any context.
pub(super) fn defer_slots<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    range: PageRange,
) -> u64 {
    wait_for_purge(mm, v, range, |_, _| ())
}

/// Takes an extent of just this size from this CPU's cache. If it has only others, some of them go back: longer ones,
/// or such as nobody has wanted for long. Small sizes come round, and a list of them that has run out once does so less and
/// less often if others stay.
pub(super) fn take<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>, want: &Want) -> Option<Owned> {
    let p = mm.platform();
    let mut back = [None; BACK];
    let found = v.own(mm, |cache| {
        cache.turn(mm, v);
        let bins = [&cache.surplus, &cache.ready];
        let found = bins.iter().find_map(|bins| bins.take(mm, v, want, LOOKS));
        if found.is_none() {
            let long = || bins.iter().find_map(|bins| bins.pop_long(mm, v));
            let next = || cache.excess.pop(p, v.link(mm)).or_else(|| bins::is_long(want.pages).then(long)?);
            back = [(); BACK].map(|()| next());
        }
        found.map(|(handle, place)| Owned::new(handle, place))
    });
    give_back(mm, v, back);
    found
}

/// Extents that every CPU has flushed.
fn give_back<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>, back: [Option<u32>; BACK]) {
    back.into_iter().flatten().for_each(|handle| v.put_back(mm, Unmapped::cleared(handle).flushed()));
}
