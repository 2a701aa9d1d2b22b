//! Who reads slots that may be given up meanwhile. `pool/reading.rs` has the argument.

use crate::sync::Word64;

/// How often readers began, and ended, on this CPU.
#[repr(C)]
pub(crate) struct Reads {
    pub entered: Word64,
    pub left: Word64,
}
