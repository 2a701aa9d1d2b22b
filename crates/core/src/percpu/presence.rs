//! Whether a CPU takes part, and whether it may be left alone.

use crate::sync::{Word32, Word64};

/// On a line of its own: flushers read it, and only its CPU writes it, when it enters or leaves lazy mode, goes or
/// comes, and once in a sweep.
#[repr(C, align(64))]
pub(crate) struct Presence {
    pub word: Word32,
    /// The last sweep in which it has taken part.
    pub swept: Word64,
}

impl Presence {
    /// It may touch user addresses: who flushes must ask it.
    pub const ACTIVE: u32 = 0;
    /// It touches no user address: it has no space loaded, or only keeps it.
    pub const LAZY: u32 = 1;
    /// It is switched off, holds nothing, and answers nothing.
    pub const OFFLINE: u32 = 2;
}
