//! `unmap=quiet`: take what no CPU can have cached, and owe nothing (INV-13).
//!
//! The page was not used since a sweep. If a CPU begins to use it at this moment it sets the accessed bit first, and then the
//! entry does not say what was judged: it stays. So nobody can write to the page from here on, and it goes to its device or to
//! the allocator at once.

use super::{behind, note_taken};
use crate::Manager;
use crate::addr::FrameNumber;
use crate::event::Event;
use crate::platform::Platform;
use crate::reclaim::aging::is_uncached;
use crate::reclaim::rmap::Mapping;

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
