//! `aging=no-flush`: clear the bit only. While an entry stays cached its use sets no bit, so a page in use
//! may look idle; it is then unmapped like any other, flush and all, and no data is lost (INV-10).

use super::super::rmap::Mapping;
use crate::Manager;
use crate::paging::Entry;
use crate::platform::Platform;
use crate::rule::Rule;

/// No IPI.
pub(super) fn clear<P: Platform>(mm: &Manager<'_, P>, mapping: &Mapping<'_, '_, P>) {
    if mm.platform().broken(Rule::AtomicAccessedClear) {
        mapping.leaf.clear_bits_torn(mapping.page, Entry::ACCESSED);
    } else {
        mapping.leaf.clear_bits(mapping.page, Entry::ACCESSED);
    }
}
