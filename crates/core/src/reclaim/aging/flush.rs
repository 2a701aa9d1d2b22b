//! `aging=flush`: clear the bit and flush the page, so that the next use sets it again.

use crate::Manager;
use crate::addr::PageRange;
use crate::event::FlushReason;
use crate::platform::Platform;
use crate::reclaim::aging::no_flush;
use crate::rmap::Mapping;
use crate::tlb;

/// One IPI per CPU that uses the space and is neither lazy nor this one.
#[doc(alias = "ptep_clear_flush_young")]
pub(super) fn clear<P: Platform>(mm: &Manager<'_, P>, mapping: &Mapping<'_, '_, P>) {
    no_flush::clear(mapping);
    tlb::flush(mm, mapping.id, Some(PageRange::new(mapping.page, 1)), FlushReason::Aging, false);
}
