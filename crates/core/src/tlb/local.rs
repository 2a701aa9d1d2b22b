//! What a CPU does to its own TLB.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{Generation, PageNumber, PageRange};
use crate::charge::charge;
use crate::event::Event;
use crate::handle::{SpaceId, SpaceSlot};
use crate::percpu::{CpuGuard, Presence};
use crate::platform::Platform;
use crate::profile::Scope;
use crate::rule::Rule;

/// Flushes a range of a space on this CPU only (INV-14): the others catch up when they load it, or in a sweep.
pub(crate) fn flush_here<P: Platform>(
    mm: &Manager<'_, P>,
    id: SpaceId,
    range: Option<PageRange>,
    generation: Generation,
) {
    local(&CpuGuard::new(mm), id.slot(), range, generation, false);
}

/// Flushes on this CPU what it has not flushed yet. A space that is not loaded needs nothing: its tag, if
/// it has one, is compared when it is loaded again.
pub(crate) fn local<P: Platform>(
    here: &CpuGuard<'_, '_, P>,
    id: SpaceSlot,
    range: Option<PageRange>,
    until: Generation,
    tables: bool,
) {
    let _scope = charge(here.mm.platform(), Scope::LocalFlush);
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
    // INV-9: what is kept of tables goes too.
    let by_page = !tables || p.architecture().page_flush_reaches_tables();
    match range {
        // All before was flushed here, so these pages are all that is missing.
        Some(range) if range.pages <= ceiling && mine.0 + 1 == until.0 && by_page => {
            for page in range.start.0..range.end().0 {
                p.flush_page(PageNumber(page).addr());
            }
            mm.emit(Event::FlushedPages { pages: range.pages as u32 });
            tlb.set_generation(until);
        }
        _ => catch_up(here),
    }
}

/// An access of the program on this CPU faulted, and is permitted by now. The CPU may keep that it found no entry, or one that
/// forbade it: then it would fault for ever. So may others, who come here when they fault.
pub(crate) fn forget_refusal<P: Platform>(mm: &Manager<'_, P>, page: PageNumber) {
    let p = mm.platform();
    if p.architecture().keeps_refusals() && !p.broken(Rule::ForgetRefusals) {
        let _here = CpuGuard::new(mm);
        p.flush_page(page.addr());
        mm.emit(Event::FlushedPages { pages: 1 });
    }
}

/// A fault found nothing to do: the CPU may keep a refusal of a table that has come since, which the flush of a page does not
/// reach.
pub(crate) fn forget_refusals_above<P: Platform>(mm: &Manager<'_, P>) {
    let (p, how) = (mm.platform(), mm.platform().architecture());
    if how.keeps_refusals() && !how.page_flush_reaches_tables() && !p.broken(Rule::ForgetRefusals) {
        catch_up(&CpuGuard::new(mm));
    }
}

/// Flushes all that user addresses left on this CPU, and notes the generation that this covers.
pub(crate) fn catch_up<P: Platform>(here: &CpuGuard<'_, '_, P>) {
    let (mm, p, tlb) = (here.mm, here.mm.platform(), &here.slot().tlb);
    let Some(id) = tlb.loaded() else { return };
    // Read before the flush: entries cleared up to this generation cannot be cached again after it.
    let covered = mm.space_at(id).generation(p);
    p.flush_space();
    mm.emit(Event::FlushedAll);
    tlb.set_generation(covered);
}

/// Who flushes, or looks at a sweep, leaves this CPU alone from here on.
pub(super) fn mark_lazy<P: Platform>(p: &P, presence: &Presence) {
    // Release: the CPU's last user access comes before.
    presence.word.store(p, Presence::LAZY, Ordering::Release);
}

/// Loads the kernel's own table in place of whatever space is loaded.
pub(crate) fn unload<P: Platform>(here: &CpuGuard<'_, '_, P>) {
    let (mm, p, slot) = (here.mm, here.mm.platform(), here.slot());
    let Some(old) = slot.tlb.loaded() else { return };
    let tag = slot.tlb.tag.get();
    // INV-9: as in `switch_to`, the mask is left last.
    let leave = || mm.space_at(old).cpus.0.remove(p, here.cpu);
    let early = p.broken(Rule::LeaveMaskAfterLoad);
    if early {
        leave();
    }
    p.load_space(mm.kernel_root(), tag, false);
    slot.tlb.loaded.set(0);
    slot.tlb.tags[tag as usize].0.set(0);
    mark_lazy(p, &slot.presence);
    if !early {
        leave();
    }
}
