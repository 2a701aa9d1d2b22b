//! Flushes that the hardware carries out on all CPUs at once, where the machine has that ([`Broadcast`]) and the policy takes it.
//!
//! **Generations need not move** (INV-6). They are for CPUs that a flush leaves alone: those that are lazy, or have a space under
//! a tag and not loaded. A broadcast leaves nobody alone. What a CPU was behind with before it is behind with after; what
//! was cleared before the broadcast nobody has afterwards, whatever generation a CPU believes in. So there is no race with
//! `switch_to` and `leave_lazy` either: a CPU that loads the space in the middle keeps, under its tag, only what the broadcast
//! has left, and what it reads anew it reads from tables that were changed before.
//!
//! **What reclaim has deferred** ([`UnmapBatch`](crate::tlb::UnmapBatch)) lies at addresses that only its batch knew. A flush by
//! interrupt covers it, because a CPU that has missed a generation flushes everything. A broadcast covers it by being one of
//! the whole space where anything is outstanding (INV-4).
//!
//! **CPUs that are offline** start with nothing (INV-6), or flush the kernel range before they use it (INV-3). The hardware
//! reaches them from before that moment on, so no look at who is online is needed, and none at who is lazy.
//!
//! **A sweep** (`sweep.rs`) that somebody has waited for too long is ended by one broadcast of all spaces, which is every CPU's
//! part in it.
//!
//! **A space that ends** is the one case that is left to interrupts (INV-9): a lazy CPU has its root loaded, and no flush
//! takes that away.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::PageRange;
use crate::broadcast::{Broadcast, Everywhere};
use crate::event::{Event, FlushReason};
use crate::handle::SpaceSlot;
use crate::percpu::{CpuGuard, Presence};
use crate::platform::Platform;
use crate::policy::Flush;
use crate::rule::Rule;
use crate::sync::{Word64, full_fence};
use crate::vma::SpaceState;

impl<'p, P: Platform> Manager<'p, P> {
    /// The hardware that flushes all CPUs, if there is one and the policy takes it.
    #[inline(always)]
    pub(crate) fn broadcast(&self) -> Option<&'p dyn Broadcast> {
        if self.config().policy.flush == Flush::Ipi { None } else { self.platform().broadcast() }
    }
}

/// The last sweep that a broadcast has carried out.
#[repr(C, align(64))]
pub(crate) struct Swept(Word64);

impl<P: Platform> Manager<'_, P> {
    /// Whether the hardware has flushed all CPUs since this sweep began.
    pub(super) fn was_broadcast(&self, sweep: u64) -> bool {
        // Acquire: partner of the Release below.
        self.broadcast().is_some() && self.root.swept.0.load(self.platform(), Ordering::Acquire) >= sweep
    }

    /// Carries out the sweep that was begun last, for all CPUs; says whether there is hardware for that.
    pub(super) fn broadcast_sweep(&self) -> bool {
        let Some(hardware) = self.broadcast() else { return false };
        let (p, here) = (self.platform(), CpuGuard::new(self));
        let epoch = self.epoch();
        // Partner: the fence in `LockedLeaf::age`. Entries that were cleared before this sweep began are found so from here on.
        full_fence(p);
        everywhere(&here, hardware, [Everywhere::Spaces], FlushReason::Sweep);
        // Release: the flush comes before what those do who see this.
        self.root.swept.0.fetch_max(p, epoch, Ordering::Release);
        true
    }
}

/// The hardware, if it should flush this space: others use it, whom it would interrupt, or who have tables that go. A
/// moment's truth is enough: a broadcast reaches all, and without one generations see to it that nobody is missed.
pub(super) fn serves<'p, P: Platform>(
    here: &CpuGuard<'_, 'p, P>,
    space: &SpaceState,
    tables: bool,
) -> Option<&'p dyn Broadcast> {
    let (mm, p) = (here.mm, here.mm.platform());
    let hardware = mm.broadcast()?;
    // Relaxed: see above. Whoever is offline is in no mask.
    let is_active = |cpu| mm.slot(cpu).presence.word.load(p, Ordering::Relaxed) == Presence::ACTIVE;
    let needed = space.cpus.0.any(p, |cpu| cpu != here.cpu && (tables || is_active(cpu)));
    let root_stays = !tables || space.goes_on(p);
    (needed && root_stays).then_some(hardware)
}

/// Flushes a range of a space (`None`: all), and with it whatever reclaim has deferred there.
pub(super) fn flush<P: Platform>(
    here: &CpuGuard<'_, '_, P>,
    hardware: &dyn Broadcast,
    space: &SpaceState,
    range: Option<PageRange>,
    reason: FlushReason,
) {
    let (mm, p) = (here.mm, here.mm.platform());
    let (root, ceiling) = (space.root(p), u64::from(mm.config().flush_ceiling));
    // Read before the flush: entries cleared up to this generation are gone with the space.
    let covered = space.generation(p);
    let deferred = space.has_deferred(p);
    let widened = deferred && !p.broken(Rule::DeferredWidensBroadcast);
    let what = match range.filter(|range| range.pages <= ceiling && !widened) {
        Some(range) => Everywhere::Pages { root, range },
        None => Everywhere::Space { root },
    };
    everywhere(here, hardware, [what], reason);
    if deferred {
        space.flushed(p, covered);
    }
}

/// Flushes all of the spaces in which a batch has cleared entries. A batch knows some of them; if there may be more, all that
/// there are.
pub(super) fn batch<P: Platform>(
    here: &CpuGuard<'_, '_, P>,
    hardware: &dyn Broadcast,
    spaces: Option<impl Iterator<Item = SpaceSlot>>,
    reason: FlushReason,
) {
    let (mm, p) = (here.mm, here.mm.platform());
    match spaces {
        // A space that has ended meanwhile is loaded nowhere, and flushed where it is loaded again.
        Some(spaces) => {
            let roots = spaces.map(|space| Everywhere::Space { root: mm.space_at(space).root(p) });
            everywhere(here, hardware, roots, reason);
        }
        None => everywhere(here, hardware, [Everywhere::Spaces], reason),
    }
}

/// Flushes kernel pages (`None`: all that the core gives out).
pub(super) fn kernel<P: Platform>(
    here: &CpuGuard<'_, '_, P>,
    hardware: &dyn Broadcast,
    range: Option<PageRange>,
    reason: FlushReason,
) {
    let what = match range {
        _ if here.mm.platform().broken(Rule::BroadcastGlobals) => Everywhere::Spaces,
        Some(range) => Everywhere::KernelPages(range),
        None => Everywhere::Kernel,
    };
    everywhere(here, hardware, [what], reason);
}

/// Interrupts are off: the flushes begin, and are waited for, on one CPU.
fn everywhere<P: Platform>(
    here: &CpuGuard<'_, '_, P>,
    hardware: &dyn Broadcast,
    all: impl IntoIterator<Item = Everywhere>,
    reason: FlushReason,
) {
    let (mm, p) = (here.mm, here.mm.platform());
    for what in all {
        mm.emit(Event::Broadcast { what, reason });
        hardware.flush(what);
    }
    if !p.broken(Rule::SyncBroadcast) {
        hardware.sync();
    }
}
