//! How reclaim unmaps a page, and when the flush follows.

mod batch;
mod per_page;
mod quiet;
mod take;

pub(crate) use quiet::is_uncached;

use core::ops::ControlFlow;
use core::sync::atomic::Ordering;

use crate::addr::FrameNumber;
use crate::event::Event;
use crate::paging::Entry;
use crate::platform::Platform;
use crate::policy::Unmap;
use crate::rmap::walk::{Mapping, walk_small};
use crate::rule::Rule;
use crate::tlb::UnmapBatch;

/// Clears every entry that leads to a page, flushed or left to the batch as the policy says, unless it is pinned. Returns whether
/// no entry is left; where the policy says that only idle ones go, it stops at the first that is not, unless they `must`. At one of a locked
/// range it stops in any case, and at one that may not go for the caller: asked under the lock of its table.
/// The caller holds and has locked the page. May wait.
pub(crate) fn unmap<P: Platform>(
    batch: &UnmapBatch<'_, '_, P>,
    n: FrameNumber,
    must: bool,
    may_go: impl Fn(Entry) -> bool,
) -> bool {
    let mm = batch.manager();
    mm.must_be_locked(n);
    let p = mm.platform();
    let frame = mm.memmap().get(n);
    let is_unmapped = || frame.maps.load(p, Ordering::Acquire) == 0;
    walk_small(mm, n, |mapping| {
        let stays = mapping.locked || is_kept(mm, n) || !may_go(mapping.entry);
        if stays || !clear(batch, n, &mapping, must) || is_unmapped() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    is_unmapped()
}

/// Clears every entry that leads to a page of a file, whatever programs and devices do with it, and leaves the flush to the batch as the policy
/// says; returns whether none is left. An operation that has taken one out, and not let go of the page yet, is as one that is left. The
/// caller holds and has locked the page. May wait.
///
/// Unlike `unmap` it does not stop where no entry is counted: a fault may be about to count one.
pub(crate) fn unmap_all<P: Platform>(batch: &UnmapBatch<'_, '_, P>, n: FrameNumber) -> bool {
    let mm = batch.manager();
    mm.must_be_locked(n);
    walk_small(mm, n, |mapping| {
        clear(batch, n, &mapping, true);
        ControlFlow::Continue(())
    });
    mm.memmap().get(n).maps.load(mm.platform(), Ordering::Acquire) == 0
}

/// Clears every entry that leads to a page which is to move to another frame, used or not, shows each to `see`, and leaves the flush to the batch as the policy
/// says; returns whether none is left. Stops where the page is pinned, and one of a file at an entry of a locked range: its entries do not
/// come back by themselves. The caller holds and has locked the page. May wait.
pub(crate) fn unmap_to_move<P: Platform>(
    batch: &UnmapBatch<'_, '_, P>,
    n: FrameNumber,
    mut see: impl FnMut(Entry),
) -> bool {
    let mm = batch.manager();
    mm.must_be_locked(n);
    let p = mm.platform();
    let is_unmapped = || mm.memmap().get(n).maps.load(p, Ordering::Acquire) == 0;
    walk_small(mm, n, |mapping| {
        if is_kept(mm, n) || mapping.locked && mm.slot_of(n).is_none() {
            return ControlFlow::Break(());
        }
        see(mapping.entry);
        clear(batch, n, &mapping, true);
        if is_unmapped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    is_unmapped()
}

/// The same without a batch: a flush for each entry.
pub(crate) fn unmap_now<P: Platform>(mm: &crate::Manager<'_, P>, n: FrameNumber) -> bool {
    mm.must_be_locked(n);
    walk_small(mm, n, |mapping| {
        per_page::clear(mm, n, &mapping);
        let_go(mm, n);
        ControlFlow::Continue(())
    });
    mm.memmap().get(n).maps.load(mm.platform(), Ordering::Acquire) == 0
}

/// An entry that led to the page is gone. The caller's own reference keeps this from being the last.
fn let_go<P: Platform>(mm: &crate::Manager<'_, P>, n: FrameNumber) {
    let frame = mm.memmap().get(n);
    frame.maps.fetch_sub(mm.platform(), 1, Ordering::Release);
    frame.refs.fetch_sub(mm.platform(), 1, Ordering::Release);
}

/// Whether a page must stay where programs see it, because it is pinned: counted. Under the lock of the table whose entry is to go.
///
/// INV-15: pins are taken under that lock, where an entry leads to the page. So either this finds the pin, or who pins finds no entry.
pub(crate) fn is_kept<P: Platform>(mm: &crate::Manager<'_, P>, n: FrameNumber) -> bool {
    let p = mm.platform();
    let kept = mm.memmap().get(n).is_pinned(p) && !p.broken(Rule::PinnedIsMapped);
    if kept {
        mm.emit(Event::PinnedKept);
    }
    kept
}

/// Clears one entry, flushed or left to the batch as the policy says; returns whether it did, which where it `must` it does.
pub(crate) fn clear<P: Platform>(
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
