//! A flush of a space: raise its generation, read its mask, ask those that are not lazy.

use super::broadcast;
use super::local::local;
use super::targets::choose;
use crate::Manager;
use crate::addr::PageRange;
use crate::charge::charge;
use crate::error::Error;
use crate::event::{Event, FlushReason};
use crate::handle::SpaceId;
use crate::ipi;
use crate::percpu::{CpuGuard, Work};
use crate::platform::Platform;
use crate::profile::Scope;
use crate::rule::Rule;
use crate::sync::full_fence;
use crate::view::Space;

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
    let _scope = charge(mm.platform(), Scope::TlbFlush);
    let p = mm.platform();
    let (id, space) = (id.slot(), mm.space_at(id));
    let here = CpuGuard::new(mm);
    if let Some(hardware) = broadcast::serves(&here, space, tables) {
        return broadcast::flush(&here, hardware, space, range, reason);
    }
    mm.emit(Event::FlushBegins { root: space.root_for_event(), tables });
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

/// Completes what reclaim deferred for this space, if anything is outstanding (INV-4, PITFALLS 1).
pub(crate) fn complete_deferred<P: Platform>(mm: &Manager<'_, P>, id: SpaceId) {
    if mm.space_at(id).has_deferred(mm.platform()) {
        mm.emit(Event::DeferredCompleted);
        flush(mm, id, None, FlushReason::Deferred, false);
    }
}

impl<'p, P: Platform> Space<'_, 'p, P> {
    /// Flushes pages of a space on every CPU that may hold them. More pages than the flush ceiling flush
    /// the whole space. At most one IPI per CPU that uses the space; none for lazy CPUs and for this one.
    /// Any context but an interrupt handler.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`], [`Error::BadRange`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// let heap = PageRange::new(PageNumber(0x400), 16);
    /// space.map(heap, Backing::Anonymous, Prot::ReadWrite)?;
    /// // After the kernel itself has changed what lies behind an entry.
    /// space.flush_range(heap)?;
    /// # Ok(())
    /// # });
    /// ```
    pub fn flush_range(&self, range: PageRange) -> Result<(), Error> {
        let Space { mm, id } = *self;
        mm.find_space(id)?;
        let range = crate::vma::check_range(range)?;
        flush(mm, id, Some(range), FlushReason::Asked, false);
        Ok(())
    }

    /// Flushes a whole space, like [`Space::flush_range`](crate::Space::flush_range).
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// space.flush()?;
    /// # Ok(())
    /// # });
    /// ```
    pub fn flush(&self) -> Result<(), Error> {
        let Space { mm, id } = *self;
        mm.find_space(id)?;
        flush(mm, id, None, FlushReason::Asked, false);
        Ok(())
    }
}
