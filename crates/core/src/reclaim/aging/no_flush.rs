//! `aging=no-flush`: clear the bit only. While an entry stays cached its use sets no bit, so a page in use
//! may look idle; it is then unmapped like any other, flush and all, and no data is lost (INV-10). With `unmap=quiet` it
//! is not judged before a sweep has ended (INV-13).

use crate::platform::Platform;
use crate::rmap::Mapping;

/// No IPI.
pub(super) fn clear<P: Platform>(mapping: &Mapping<'_, '_, P>) {
    mapping.leaf.age(mapping.page);
}
