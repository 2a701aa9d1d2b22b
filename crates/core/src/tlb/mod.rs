//! What must be flushed where.
//!
//! A flush raises the space's generation, reads the mask, and asks those CPUs that are not lazy; each CPU
//! remembers up to which generation it has flushed, so a request that it has already outrun costs it
//! nothing (INV-6). Where the hardware flushes all CPUs at once, it does so instead (`broadcast.rs`).

mod batch;
mod broadcast;
mod epochs;
pub(crate) mod kernel;
pub(crate) mod sweep;

pub(crate) use batch::{BatchSlot, Fate, UnmapBatch};
pub(crate) use broadcast::Swept;
pub(crate) use epochs::{Epochs, Look};
pub(crate) use sweep::{Idle, Stamp, Sweeps};

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{Generation, PageRange};
use crate::error::Error;
use crate::event::{Event, FlushReason};
use crate::ipi::{self, Work};
use crate::paging::{Space, SpaceId, SpaceSlot, unload};
use crate::percpu::{Here, Presence};
use crate::platform::Platform;
use crate::profile::{self, Scope};
use crate::rule::Rule;
use crate::sync::full_fence;

/// Flushes `range` of a space (`None`: all) on every CPU that may hold it, and returns when it is gone.
/// Entries were cleared or narrowed before. With `tables`, lazy CPUs let go of the space too (INV-9).
///
/// At most one IPI per CPU that uses the space and is neither lazy nor this one; none if there is none, or if the hardware
/// flushes all CPUs. Any context but an interrupt handler.
pub(crate) fn flush<P: Platform>(
    mm: &Manager<'_, P>,
    id: SpaceId,
    range: Option<PageRange>,
    reason: FlushReason,
    tables: bool,
) {
    let _scope = profile::scope(mm.platform(), Scope::TlbFlush);
    let p = mm.platform();
    let (id, space) = (id.slot(), mm.space(id));
    let here = Here::new(mm);
    if let Some(hardware) = broadcast::serves(&here, space, tables) {
        return broadcast::flush(&here, hardware, space, range, reason);
    }
    let targets = &here.slot().targets;
    let generation = if p.broken(Rule::GenerationBeforeMask) {
        choose(&here, space, tables);
        space.raise(p)
    } else {
        let generation = space.raise(p);
        full_fence(p);
        choose(&here, space, tables);
        generation
    };
    let count = targets.len();
    if count > 0 {
        mm.emit(Event::RemoteFlush { reason, targets: count });
    }
    let work = Work::Flush { space: id, range, generation, tables };
    ipi::call(here, work, |here| local(here, id, range, generation, tables));
    if p.broken(Rule::NoteWhatWasFlushed) {
        // PITFALLS 2: whatever was deferred meanwhile is taken for flushed.
        return space.flushed(p, space.deferred(p));
    }
    space.flushed(p, generation);
}

/// Puts into `targets` the CPUs of the space's mask but this one, those that are offline and, if they may be left
/// alone, the lazy.
fn choose<P: Platform>(here: &Here<'_, '_, P>, space: &Space, tables: bool) {
    let p = here.mm.platform();
    let targets = &here.slot().targets;
    targets.insert_all(p, &space.cpus.0);
    targets.remove(here.cpu);
    leave_alone(here, !tables || p.broken(Rule::TablesToLazy));
}

/// Takes out of `targets` who needs no flush (INV-6). CPUs that are offline hold nothing, and start with nothing
/// when they come back. Lazy ones, where asked for, compare generations before they touch a user address again,
/// and the generation was raised before this looks.
fn leave_alone<P: Platform>(here: &Here<'_, '_, P>, lazy: bool) {
    let (mm, p) = (here.mm, here.mm.platform());
    let targets = &here.slot().targets;
    for cpu in targets.iter() {
        // Acquire: partner of the Releases of `enter_lazy` and `cpu_offline`: its last use comes before.
        match mm.slot(cpu).presence.word.load(p, Ordering::Acquire) {
            Presence::OFFLINE => targets.remove(cpu),
            Presence::LAZY if lazy => {
                targets.remove(cpu);
                mm.emit(Event::LazySkipped);
            }
            _ => {}
        }
    }
}

/// Carries out a request on this CPU.
pub(crate) fn serve<P: Platform>(here: &Here<'_, '_, P>, work: Work) {
    here.mm.emit(Event::FlushServed);
    match work {
        Work::Drain | Work::DrainLru => {}
        Work::FlushAll => catch_up(here),
        Work::Flush { space, range, generation, tables } => local(here, space, range, generation, tables),
        Work::Kernel(range) => kernel::local(here, range),
        Work::Sweep => sweep::join(here),
        Work::KernelSweep => crate::vmap::join_sweep(here),
    }
}

/// Flushes a range of a space on this CPU only (INV-14): the others catch up when they load it, or in a sweep.
pub(crate) fn flush_here<P: Platform>(
    mm: &Manager<'_, P>,
    id: SpaceId,
    range: Option<PageRange>,
    generation: Generation,
) {
    local(&Here::new(mm), id.slot(), range, generation, false);
}

/// Flushes on this CPU what it has not flushed yet. A space that is not loaded needs nothing: its tag, if
/// it has one, is compared when it is loaded again.
fn local<P: Platform>(
    here: &Here<'_, '_, P>,
    id: SpaceSlot,
    range: Option<PageRange>,
    until: Generation,
    tables: bool,
) {
    let _scope = profile::scope(here.mm.platform(), Scope::LocalFlush);
    let (mm, p, tlb) = (here.mm, here.mm.platform(), &here.slot().tlb);
    if tlb.loaded() != Some(id) {
        return;
    }
    if tables && here.slot().presence.word.get(p) == Presence::LAZY {
        return unload(here);
    }
    let mine = tlb.generation();
    if mine >= until {
        return;
    }
    let ceiling = u64::from(mm.config().flush_ceiling);
    match range {
        // All before was flushed here, so these pages are all that is missing.
        Some(range) if range.pages <= ceiling && mine.0 + 1 == until.0 => {
            for page in range.start.0..range.end().0 {
                p.flush_page(crate::addr::PageNumber(page).addr());
            }
            mm.emit(Event::FlushedPages { pages: range.pages as u32 });
            tlb.set_generation(until);
        }
        _ => catch_up(here),
    }
}

/// Flushes all that user addresses left on this CPU, and notes the generation that this covers.
pub(crate) fn catch_up<P: Platform>(here: &Here<'_, '_, P>) {
    let (mm, p, tlb) = (here.mm, here.mm.platform(), &here.slot().tlb);
    let Some(id) = tlb.loaded() else { return };
    // Read before the flush: entries cleared up to this generation cannot be cached again after it.
    let covered = mm.space(id).generation(p);
    p.flush_space();
    mm.emit(Event::FlushedAll);
    tlb.set_generation(covered);
}

/// Completes what reclaim deferred for this space, if anything is outstanding (INV-4, PITFALLS 1).
pub(crate) fn complete_deferred<P: Platform>(mm: &Manager<'_, P>, id: SpaceId) {
    if mm.space(id).has_deferred(mm.platform()) {
        mm.emit(Event::DeferredCompleted);
        flush(mm, id, None, FlushReason::Deferred, false);
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Flushes pages of a space on every CPU that may hold them. More pages than the flush ceiling flush
    /// the whole space. At most one IPI per CPU that uses the space; none for lazy CPUs and for this one.
    /// Any context but an interrupt handler.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`], [`Error::BadRange`].
    pub fn flush_range(&self, id: SpaceId, range: PageRange) -> Result<(), Error> {
        self.find_space(id)?;
        let range = crate::paging::check_range(range)?;
        flush(self, id, Some(range), FlushReason::Asked, false);
        Ok(())
    }

    /// Flushes a whole space, like [`flush_range`](Self::flush_range).
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`].
    pub fn flush_space(&self, id: SpaceId) -> Result<(), Error> {
        self.find_space(id)?;
        flush(self, id, None, FlushReason::Asked, false);
        Ok(())
    }
}
