//! Taking an entry out: what it knew of its page, and what is left behind.

use crate::addr::FrameNumber;
use crate::event::Event;
use crate::paging::Entry;
use crate::platform::Platform;
use crate::rmap::walk::Mapping;
use crate::rule::Rule;

/// Takes the entry out and keeps what it knew of the page. What is left behind of an anonymous page names its swap slot,
/// in the same step: a fault that looks without the lock never takes the address for one that was never touched.
pub(super) fn take<P: Platform>(
    mm: &crate::Manager<'_, P>,
    n: FrameNumber,
    mapping: &Mapping<'_, '_, P>,
    deferred: bool,
) -> Entry {
    let old = mapping.leaf.replace(mapping.page, behind(mm, n));
    note_taken(mm, n, mapping, old, deferred);
    old
}

/// What is left behind of a page: nothing, or its swap slot, which is not free as long as an entry names it.
pub(super) fn behind<P: Platform>(mm: &crate::Manager<'_, P>, n: FrameNumber) -> Entry {
    let Some(slot) = mm.slot_of(n) else { return Entry::NONE };
    // Before any entry does.
    mm.swap_dup(slot);
    Entry::swapped(slot)
}

/// What an entry that was taken out knew of its page.
pub(super) fn note_taken<P: Platform>(
    mm: &crate::Manager<'_, P>,
    n: FrameNumber,
    mapping: &Mapping<'_, '_, P>,
    old: Entry,
    deferred: bool,
) {
    // Dirtiness moves to the page before its entry's lock is dropped: whoever finds the entry gone finds
    // the page dirty (PITFALLS 4).
    let p = mm.platform();
    // Who defers the flush relies on the dirty bit, and was refused without the guarantee for it (PITFALLS 39).
    let dirty = if deferred { old.has(Entry::DIRTY) } else { old.may_be_dirty(p) };
    if dirty && !p.broken(Rule::DirtyBeforeUnlock) {
        mm.note_dirty(n, old.has(Entry::WRITABLE));
    }
    mm.emit(Event::Unmapped { space: mapping.id, page: mapping.page, frame: n, pages: 1, deferred });
}
