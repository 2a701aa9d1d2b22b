//! `unmap=quiet`: take what no CPU can have cached, and owe nothing (INV-13).
//!
//! The page was not used since a sweep. If a CPU begins to use it at this moment it sets the accessed bit first, and then the
//! entry does not say what was judged: it stays. So nobody can write to the page from here on, and it goes to its device or to
//! the allocator at once.

use super::take::{behind, note_taken};
use crate::Manager;
use crate::addr::FrameNumber;
use crate::event::Event;
use crate::paging::Entry;
use crate::platform::Platform;
use crate::rmap::walk::Mapping;
use crate::tlb::Idle;

/// Whether the entry was taken out. No IPI, now or later.
pub(super) fn clear<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber, mapping: &Mapping<'_, '_, P>) -> bool {
    if !is_uncached(mm, mapping) {
        return false;
    }
    let taken = mapping.leaf.take_judged(mapping.page, mapping.entry, behind(mm, n));
    if !taken && let Some(slot) = mm.slot_of(n) {
        mm.swap_undo(slot);
    }
    if taken {
        note_taken(mm, n, mapping, mapping.entry, false);
        mm.emit(Event::FlushSpared { root: mapping.space.root(mm.platform()), page: mapping.page });
    }
    taken
}

/// Whether no CPU that may use the entry has it cached, and none will without setting its accessed bit (INV-13). An entry
/// that lets nobody use it was flushed when it became so. While that may be going on its bit and its stamp say it, as they say
/// it of others: what CPUs have of it is from before, and goes with the next sweep. So who reclaims waits for a sweep, and never
/// for an operation, which may wait for memory itself.
pub(crate) fn is_uncached<P: Platform>(mm: &Manager<'_, P>, mapping: &Mapping<'_, '_, P>) -> bool {
    let Mapping { entry, space, .. } = mapping;
    if !entry.is_present() && !space.is_changing(mm.platform()) {
        return true;
    }
    if entry.has(Entry::ACCESSED) {
        return false;
    }
    let idle = mm.idle(*entry);
    if idle == Idle::UncachedSince {
        // The first of those that waited for the last sweep. What comes behind them waits for the next: it had better begin
        // now.
        mm.begin_sweep();
    }
    idle != Idle::Unswept
}
