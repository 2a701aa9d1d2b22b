//! How reclaim unmaps a page, and when the flush follows.

mod batch;
mod per_page;
mod quiet;

use core::ops::ControlFlow;
use core::sync::atomic::Ordering;

use super::rmap::{Mapping, walk};
use crate::addr::FrameNumber;
use crate::event::Event;
use crate::frame::flag;
use crate::paging::Entry;
use crate::platform::Platform;
use crate::policy::Unmap;
use crate::rule::Rule;
use crate::tlb::UnmapBatch;

/// Clears every entry that leads to a page, flushed or left to the batch as the policy says. Gives whether
/// no entry is left; where the policy says that only idle ones go, it stops at the first that is not, unless they `must`.
/// The caller holds and has locked the page. May wait.
pub(super) fn unmap<P: Platform>(batch: &UnmapBatch<'_, '_, P>, n: FrameNumber, must: bool) -> bool {
    let mm = batch.manager();
    let p = mm.platform();
    let frame = mm.frames().get(n);
    let is_unmapped = || frame.maps.load(p, Ordering::Acquire) == 0;
    walk(mm, n, |mapping| {
        if !clear(batch, n, &mapping, must) || is_unmapped() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    is_unmapped()
}

/// Clears every entry that leads to a page of a file, whatever programs do with it, and leaves the flush to the batch as the policy
/// says; returns whether none is left. An operation that has taken one out, and not let go of the page yet, is as one that is left. The
/// caller holds and has locked the page. May wait.
///
/// Unlike `unmap` it does not stop where no entry is counted: a fault may be about to count one.
pub(crate) fn unmap_all<P: Platform>(batch: &UnmapBatch<'_, '_, P>, n: FrameNumber) -> bool {
    let mm = batch.manager();
    walk(mm, n, |mapping| {
        clear(batch, n, &mapping, true);
        ControlFlow::Continue(())
    });
    mm.frames().get(n).maps.load(mm.platform(), Ordering::Acquire) == 0
}

/// The same without a batch: a flush for each entry.
pub(crate) fn unmap_now<P: Platform>(mm: &crate::Manager<'_, P>, n: FrameNumber) -> bool {
    walk(mm, n, |mapping| {
        per_page::clear(mm, n, &mapping);
        let_go(mm, n);
        ControlFlow::Continue(())
    });
    mm.frames().get(n).maps.load(mm.platform(), Ordering::Acquire) == 0
}

/// An entry that led to the page is gone. The caller's own hold keeps this from being the last.
fn let_go<P: Platform>(mm: &crate::Manager<'_, P>, n: FrameNumber) {
    let frame = mm.frames().get(n);
    frame.maps.fetch_sub(mm.platform(), 1, Ordering::Release);
    frame.refs.fetch_sub(mm.platform(), 1, Ordering::Release);
}

/// Clears one entry, flushed or left to the batch as the policy says; gives whether it did, which where it `must` it does.
pub(super) fn clear<P: Platform>(
    batch: &UnmapBatch<'_, '_, P>,
    n: FrameNumber,
    mapping: &Mapping<'_, '_, P>,
    must: bool,
) -> bool {
    let mm = batch.manager();
    match mm.config().policy.unmap {
        Unmap::PerPage => per_page::clear(mm, n, mapping),
        Unmap::BatchClean => batch::clear(batch, n, mapping, |entry| !entry.has(Entry::DIRTY)),
        Unmap::Quiet if !must => {
            if !quiet::clear(mm, n, mapping) {
                return false;
            }
        }
        Unmap::Batch | Unmap::Quiet => batch::clear(batch, n, mapping, |_| true),
    }
    let_go(mm, n);
    true
}

/// Takes the entry out and keeps what it knew of the page. What is left behind of an anonymous page names its swap slot,
/// in the same step: a fault that looks without the lock never takes the address for one that was never touched.
fn take<P: Platform>(
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
fn behind<P: Platform>(mm: &crate::Manager<'_, P>, n: FrameNumber) -> Entry {
    let Some(slot) = mm.slot_of(n) else { return Entry::NONE };
    // Before any entry does.
    mm.swap_dup(slot);
    Entry::swapped(slot)
}

/// What an entry that was taken out knew of its page.
fn note_taken<P: Platform>(
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
        mm.frames().get(n).set_flags(p, flag::DIRTY);
    }
    mm.emit(Event::Unmapped { space: mapping.id, page: mapping.page, frame: n, pages: 1, deferred });
}
