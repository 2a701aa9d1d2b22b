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

use super::catch_up;
use super::epochs::{Epochs, Look};
use crate::Manager;
use crate::addr::PageNumber;
use crate::cpu::CpuId;
use crate::event::{Event, FlushReason};
use crate::ipi::{self, Work};
use crate::paging::{Entry, Space};
use crate::percpu::{Here, Presence};
use crate::platform::Platform;
use crate::policy::Unmap;
use crate::profile::{self, Scope};
use crate::resched;
use crate::rule::Rule;
use crate::sync::full_fence;

/// What all CPUs share of sweeps.
#[repr(C, align(64))]
pub(crate) struct Sweeps {
    epochs: Epochs,
    look: Look,
}

/// Sweeps that a stamp tells apart.
const CODES: u64 = 127;

/// Until which sweep CPUs may have cached an entry whose accessed bit was cleared: its number, modulo 127, plus one; 0 is
/// none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp(pub(crate) u8);

impl Stamp {
    const fn of(sweep: u64) -> Stamp {
        Stamp((sweep % CODES + 1) as u8)
    }

    /// For an entry that was cleared in this epoch: the first sweep that begins later.
    pub(crate) fn after<P: Platform>(p: &P, epoch: u64) -> Stamp {
        if p.broken(Rule::StampWhatIsCleared) { Stamp::of(epoch) } else { Stamp::of(epoch + 1) }
    }

    /// Whether its sweep is over, where so many are. Of the sweeps that are not, a stamp names the next or the one after it,
    /// since one at most is under way: all other numbers are from before. One that is very old may look like those: then its
    /// entry waits for a sweep once more.
    fn is_over<P: Platform>(self, p: &P, completed: u64) -> bool {
        let next = Stamp::of(completed + 1) == self;
        let one_after = Stamp::of(completed + 2) == self && !p.broken(Rule::StampsOfTwoSweeps);
        self.0 != 0 && !next && !one_after
    }
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
    /// To be called by the handler of each CPU's periodic timer, with interrupts off: where the policy wants sweeps, this is
    /// where CPUs that are busy elsewhere take part in them. Reads one line that all CPUs share, for user addresses and for kernel
    /// addresses each; while a sweep is under way, once, it flushes what these have left in this CPU's TLB. With `vmap=sweep` it
    /// also looks whether others have taken part, at no more than 64 CPUs, and may wake who waits in
    /// [`vmap_purger`](Self::vmap_purger). No lock is waited for; no IPI.
    ///
    /// A CPU whose timer is stopped is in lazy mode ([`enter_lazy`](Self::enter_lazy)) or offline, or is interrupted for each
    /// sweep that somebody waits for longer than [`Config::sweep_deadline`](crate::Config::sweep_deadline).
    pub fn tick(&self) {
        self.sweep_here();
        crate::vmap::ticked(self);
    }

    /// The same where this CPU is in the core anyway. Any context.
    pub(crate) fn sweep_here(&self) {
        if self.sweeps() {
            join(&Here::new(self));
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

    /// The number of the last sweep that has begun.
    pub(crate) fn epoch(&self) -> u64 {
        self.root.sweeps.epochs.last(self.platform())
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
            stamp if stamp == Stamp::of(completed) => Idle::UncachedSince,
            _ => Idle::Uncached,
        }
    }

    /// Whether a CPU may have cached what the entry of a page was until it was taken out, or lost a right. By who has its
    /// table's lock.
    pub(crate) fn may_be_cached(&self, space: &Space, page: PageNumber, old: Entry) -> bool {
        let uncached = self.stamps() && !old.has(Entry::ACCESSED) && self.idle(old) != Idle::Unswept;
        if uncached {
            self.emit(Event::FlushSpared { root: space.root(self.platform()), page });
        }
        !uncached
    }

    /// Begins a sweep, unless one is under way, or the policy wants none. Reclaim does so by itself; this is for kernels that
    /// see a shortage coming. Any context. No IPI.
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
        let _scope = profile::scope(self.platform(), Scope::SweepWait);
        self.begin_sweep();
        // Who begins the next one at once keeps nobody waiting.
        let wanted = self.epoch();
        let mut waited = 0;
        loop {
            self.sweep_here();
            if self.sweep_is_over() || self.sweeps_over() >= wanted {
                return;
            }
            if waited >= self.config().sweep_deadline {
                if !self.broadcast_sweep() {
                    self.ask_laggards();
                }
                // They have, so the next look finds that; if not, because somebody else looks, that one does.
                waited = 0;
                continue;
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
    join: impl FnOnce(&Here<'_, '_, P>),
) {
    let p = mm.platform();
    let here = Here::new(mm);
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
pub(crate) fn join<P: Platform>(here: &Here<'_, '_, P>) {
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
