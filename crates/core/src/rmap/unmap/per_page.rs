//! `unmap=per-page`: flush each page on every CPU that may hold it, before the next.

use super::take::take;
use crate::Manager;
use crate::addr::{FrameNumber, PageRange};
use crate::event::FlushReason;
use crate::platform::Platform;
use crate::rmap::walk::Mapping;
use crate::rule::Rule;
use crate::tlb;

/// One IPI per CPU that uses the space and is neither lazy nor this one, for each page.
pub(crate) fn clear<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber, mapping: &Mapping<'_, '_, P>) {
    take(mm, n, mapping, false);
    flush(mm, mapping);
}

/// The flush of one page whose entry was just taken out.
pub(super) fn flush<P: Platform>(mm: &Manager<'_, P>, mapping: &Mapping<'_, '_, P>) {
    if !mm.platform().broken(Rule::FlushBeforeFree) {
        let range = PageRange::new(mapping.page, 1);
        tlb::flush(mm, mapping.id, Some(range), FlushReason::ReclaimPage, false);
    }
}
