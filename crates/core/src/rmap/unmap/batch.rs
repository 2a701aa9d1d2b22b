//! `unmap=batch` and `unmap=batch-clean`: leave the flush to the batch.
//!
//! Needs the guarantee that a write through a cached clean entry walks the table again. A dirty entry gives
//! no such second look: a cached one writes on silently until the flush. `batch-clean` therefore flushes
//! dirty pages at once; `batch` defers them too and holds back their I/O until the batch is flushed (INV-2).

use super::per_page;
use super::take::take;
use crate::addr::FrameNumber;
use crate::paging::Entry;
use crate::platform::Platform;
use crate::rmap::walk::Mapping;
use crate::tlb::UnmapBatch;

/// No IPI now, if the entry may be deferred and another CPU uses the space.
#[doc(alias = "should_defer_flush")]
pub(super) fn clear<P: Platform>(
    batch: &UnmapBatch<'_, '_, P>,
    n: FrameNumber,
    mapping: &Mapping<'_, '_, P>,
    may_defer: impl Fn(Entry) -> bool,
) {
    let mm = batch.manager();
    let p = mm.platform();
    // A space that only this CPU uses costs no IPI: flush it now and owe nothing.
    if mapping.space.cpus.0.is_empty_but(p, p.this_cpu()) {
        return per_page::clear(mm, n, mapping);
    }
    let old = take(mm, n, mapping, true);
    if may_defer(old) {
        let until = batch.defer(mapping.id, mapping.space);
        // INV-12: whoever faults here again learns which flush must come first. Where the entry names a swap slot they find
        // the page by it, and wait for its lock, which it has until the batch is flushed.
        if mm.slot_of(n).is_none() {
            mapping.leaf.write(mapping.page, Entry::deferred(until));
        }
    } else {
        per_page::flush(mm, mapping);
    }
}
