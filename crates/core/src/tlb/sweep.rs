//! Sweeps: all CPUs flush all that user addresses have left, each by itself, when it is in the core anyway.
//!
//! **INV-13: an entry that is not accessed, and whose accessed bit was cleared before the last sweep began, is cached by no
//! CPU that may use it.** Hardware that sets the accessed bit before it caches an entry
//! ([`Guarantees::with_accessed_before_cached`](crate::platform::Guarantees::with_accessed_before_cached)) has cached nothing
//! since the bit was cleared, or it would be set again; and what it had cached before went with the sweep. So such an entry
//! is taken out without a flush. `docs/quiet.md` has the proof and what it rests on.
//!
//! The *epoch* is the number of the last sweep that has begun. Each CPU notes up to which one it has flushed. A sweep is
//! over when each CPU has, or may be left alone: one that is lazy or offline reads the epoch before it touches a user address
//! again.
//!
//! ```text
//!   CPU that comes back                who looks whether a sweep is over
//!   presence = ACTIVE                  read the epoch: 5
//!   ---- fence ----                    ---- fence ----
//!   read the epoch: 5, flush           read presence: LAZY, so its look at the epoch comes later
//! ```
//!
//! Sweeps follow each other, as `epochs.rs` counts them: the next begins when the last is over, and only when somebody wants it.

use core::sync::atomic::Ordering;

use super::local::catch_up;
use crate::Manager;
use crate::addr::PageNumber;
use crate::charge::charge;
use crate::cpu::CpuId;
use crate::event::{Counter, Event, FlushReason};
use crate::ipi;
use crate::paging::{Entry, Stamp};
use crate::percpu::{CpuGuard, Presence, Work};
use crate::platform::Platform;
use crate::policy::{Free, Unmap};
use crate::profile::Scope;
use crate::resched;
use crate::rule::Rule;
use crate::sync::full_fence;
use crate::tlb::epochs::{Epochs, Look};
use crate::vma::SpaceState;

/// What all CPUs share of sweeps.
#[repr(C, align(64))]
pub(crate) struct Sweeps {
    epochs: Epochs,
    look: Look,
}

/// What an entry that is not accessed says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Idle {
    /// No CPU has it cached.
    Uncached,
    /// The same, and its sweep is the last that is over.
    UncachedSince,
    /// Some CPU may: a sweep must end first.
    Unswept,
}

impl<P: Platform> Manager<'_, P> {
    /// Takes part in a sweep, if one is under way. Any context.
    pub(crate) fn sweep_here(&self) {
        if self.sweeps() {
            join(&CpuGuard::new(self));
        }
    }

    /// Whether there are sweeps.
    #[inline(always)]
    pub(crate) fn sweeps(&self) -> bool {
        self.stamps() || self.parks()
    }

    /// Whether entries have stamps, and what was not used since a sweep is taken out without a flush.
    #[inline(always)]
    pub(crate) fn stamps(&self) -> bool {
        self.config().policy.unmap == Unmap::Quiet
    }

    /// Whether operations park what they take out.
    #[inline(always)]
    pub(crate) fn parks(&self) -> bool {
        self.config().policy.free == Free::Sweep
    }

    /// The number of the last sweep that has begun.
    pub(crate) fn epoch(&self) -> u64 {
        self.root.sweeps.epochs.last(self.platform())
    }

    /// Whether sweeps are as they are between two looks, and as many as were told: for audits of a quiet system.
    pub(crate) fn audit_sweeps(&self) -> bool {
        let (p, Sweeps { epochs, look }) = (self.platform(), &self.root.sweeps);
        epochs.audit(p, look) && self.counter(Counter::Sweeps) == self.epoch()
    }

    /// How many sweeps are over.
    pub(crate) fn sweeps_over(&self) -> u64 {
        self.root.sweeps.epochs.last_over(self.platform())
    }

    /// Who may have cached an entry that is not accessed (INV-13). It was read under its table's lock, and this comes after:
    /// whoever stamped it knew of no sweep that is not known here.
    pub(crate) fn idle(&self, entry: Entry) -> Idle {
        let p = self.platform();
        let completed = self.sweeps_over();
        match entry.stamp() {
            stamp if !stamp.is_over(p, completed) => Idle::Unswept,
            stamp if stamp == Stamp::of(p, completed) => Idle::UncachedSince,
            _ => Idle::Uncached,
        }
    }

    /// Whether a CPU may have cached what the entry of a page was until it was taken out, or lost a right. By whoever has its
    /// table's lock.
    pub(crate) fn may_be_cached(&self, space: &SpaceState, page: PageNumber, old: Entry) -> bool {
        let uncached = self.stamps() && !old.has(Entry::ACCESSED) && self.idle(old) != Idle::Unswept;
        if uncached {
            self.emit(Event::FlushSpared { root: space.root(self.platform()), page });
        }
        !uncached
    }

    /// Begins a sweep, unless one is under way, or the policy wants none. Reclaim does so by itself; this is for kernels that
    /// see a shortage coming. Any context. No IPI.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// mm.begin_sweep(); // with `unmap=quiet`; this policy wants none
    /// assert!(mm.sweep_is_over());
    /// # Ok(())
    /// # });
    /// ```
    pub fn begin_sweep(&self) {
        if !self.sweeps() {
            return;
        }
        if self.root.sweeps.epochs.begin(self.platform()) {
            self.emit(Event::SweepBegun);
        }
    }

    /// Looks whether the last sweep is over. Each CPU is looked at once in a sweep, and the first that has not taken part once
    /// in each look. Any context but an interrupt handler. No IPI.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// assert!(mm.sweep_is_over());
    /// # Ok(())
    /// # });
    /// ```
    pub fn sweep_is_over(&self) -> bool {
        let (p, Sweeps { epochs, look }) = (self.platform(), &self.root.sweeps);
        if epochs.at_rest(p) {
            return true;
        }
        let looked = epochs.look(p, look, u32::MAX, |cpu, epoch| self.is_past(cpu, epoch), || false);
        looked.is_some() && epochs.at_rest(p)
    }

    /// Whether a CPU has taken part in a sweep, or will before it touches a user address.
    fn is_past(&self, cpu: CpuId, epoch: u64) -> bool {
        let (p, presence) = (self.platform(), &self.slot(cpu).presence);
        // Acquire: partner of the Releases of `enter_lazy`, `cpu_offline` and `join`: its last use comes before.
        self.was_broadcast(epoch)
            || presence.word.load(p, Ordering::Acquire) != Presence::ACTIVE
            || presence.swept.load(p, Ordering::Acquire) >= epoch
            || p.broken(Rule::CountEveryCpu)
    }

    /// Waits until the sweep that is under way is over; begins one if none is. Those who have not taken part by the deadline
    /// are flushed by the hardware, or interrupted. Interrupts on, no spin lock held. May wait.
    pub(crate) fn await_sweep(&self, work: &mut resched::Work<'_, '_, P>) {
        let _scope = charge(self.platform(), Scope::SweepWait);
        self.begin_sweep();
        // Who begins the next one at once keeps nobody waiting.
        let wanted = self.epoch();
        let is_over = || {
            self.sweep_here();
            self.sweep_is_over() || self.sweeps_over() >= wanted
        };
        let mut waited = 0;
        while !is_over() {
            if waited >= self.config().sweep_deadline {
                if !self.broadcast_sweep() {
                    self.ask_laggards();
                }
                waited = 0;
                // They have, so this finds that; if not, because somebody else looks, that one does.
                if is_over() {
                    return;
                }
            }
            work.give_way();
            let ns = (waited / 8).clamp(1_000, 50_000);
            self.platform().pause(ns as u32);
            waited += ns;
        }
    }

    /// Interrupts those who have not taken part in the sweep that is under way.
    fn ask_laggards(&self) {
        let epoch = self.epoch();
        let forced = |targets| Event::SweepForced { targets };
        ask(self, |cpu| self.is_past(cpu, epoch), forced, Work::Sweep, join);
    }
}

/// Interrupts the CPUs that are not past a sweep, and has this one take part meanwhile; returns when all have. Interrupts on,
/// no spin lock held.
pub(crate) fn ask<P: Platform>(
    mm: &Manager<'_, P>,
    is_past: impl Fn(CpuId) -> bool,
    forced: impl FnOnce(u32) -> Event,
    work: Work,
    join: impl FnOnce(&CpuGuard<'_, '_, P>),
) {
    let p = mm.platform();
    let here = CpuGuard::new(mm);
    let targets = &here.slot().targets;
    for cpu in (0..p.possible_cpus()).map(|cpu| CpuId(cpu as u16)) {
        if cpu != here.cpu && !is_past(cpu) {
            targets.insert(cpu);
        }
    }
    let count = targets.len();
    if count > 0 {
        mm.emit(forced(count));
        mm.emit(Event::RemoteFlush { reason: FlushReason::Sweep, targets: count });
    }
    ipi::call(here, work, join);
}

/// This CPU takes part in the sweep that is under way, if it has not yet and counts. Tags that are not loaded are forgotten,
/// so they are flushed when they are loaded.
pub(crate) fn join<P: Platform>(here: &CpuGuard<'_, '_, P>) {
    let (mm, p, slot) = (here.mm, here.mm.platform(), here.slot());
    let epoch = mm.epoch();
    if slot.presence.swept.get(p) >= epoch || slot.presence.word.get(p) != Presence::ACTIVE {
        return;
    }
    if mm.was_broadcast(epoch) {
        // Release: as below.
        return slot.presence.swept.store(p, epoch, Ordering::Release);
    }
    // Partner: the fence in `LockedLeaf::age`. Entries that were cleared before this sweep began are found so from here on.
    full_fence(p);
    if !p.broken(Rule::FlushBeforeSwept) {
        let tlb = &slot.tlb;
        for (tag, (space, _)) in tlb.tags.iter().enumerate() {
            if tag != usize::from(tlb.tag.get()) {
                space.set(0);
            }
        }
        catch_up(here);
    }
    mm.emit(Event::Swept);
    // Release: partner of the Acquire in `is_past`.
    slot.presence.swept.store(p, epoch, Ordering::Release);
}
