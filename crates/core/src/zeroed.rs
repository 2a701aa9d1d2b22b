//! Types that begin as zeros: all that lies in memory which the core takes for itself.

use crate::sync::{Word32, Word64};

/// A type for which all zeros is a valid value, shared by all CPUs through its own cells and atomics.
///
/// # Safety
/// All-zero bytes must be a valid value, and `Drop` must not matter.
pub(crate) unsafe trait Zeroed {}

// SAFETY: an atomic integer.
unsafe impl Zeroed for Word32 {}
// SAFETY: an atomic integer.
unsafe impl Zeroed for Word64 {}
