//! What `vmap=sweep` has besides. `sweep.rs` changes it.

use super::list::HandleList;
use crate::cpumask::CpuMask;
use crate::sync::{Word32, Word64};
use crate::tlb::Look;
use crate::zeroed::Zeroed;

/// Pages that wait for the next sweep on a CPU before it begins one, where the configuration does not say: 8 MiB.
pub(super) const SHARE: u64 = 2048;

/// What `vmap=sweep` has besides.
#[derive(Clone, Copy)]
pub(super) struct Sweeping<'p> {
    pub(super) shared: &'p Shared,
    /// The last sweep in which each CPU has taken part, and whether it is [`AWAY`]. Written by it alone, once in a sweep, and
    /// as it comes and goes. They lie close together, for whoever looks at all of them.
    pub(super) swept: &'p [Word64],
    pub(super) waiting: &'p [Waiting],
    pub(super) groups: &'p [Group],
}

/// A CPU that is away has taken part in whatever sweep there is.
pub(super) const AWAY: u64 = 1 << 63;

#[repr(C)]
pub(super) struct Shared {
    pub(super) look: Look,
    pub(super) demand: Demand,
    /// CPUs that have extents with frames of their own.
    pub(super) owners: CpuMask,
}

/// On a line of its own: read by whoever has unmapped a share.
#[repr(C, align(64))]
pub(super) struct Demand {
    /// Somebody has unmapped enough for another sweep since the last began.
    pub(super) more: Word32,
    /// When the last sweep began, about.
    pub(super) begun_at: Word64,
}

// SAFETY: atomics only.
unsafe impl Zeroed for Shared {}

/// CPUs of a [`Group`].
pub(super) const GROUP: usize = 64;

/// CPUs with numbers next to each other, of which one at a time comes to the words that all CPUs share. Many find at the same moment that
/// a sweep should begin, or might be over, since the last one let all of them go on at once; where 4096 write a line one after the other, who
/// only reads it waits for all of them. Hints: no invariant rests on it.
#[repr(C, align(64))]
pub(super) struct Group {
    /// The last sweep that one of them has asked for.
    pub(super) asked: Word64,
    /// One of them looks whether a sweep is over.
    pub(super) looks: Word32,
}

// SAFETY: atomics only.
unsafe impl Zeroed for Group {}

/// What of a CPU's waits. Under its extent cache's lock, but for sums.
#[repr(C, align(64))]
pub(super) struct Waiting {
    pub(super) fresh: Part,
    /// What waits for the sweep before that of `fresh`.
    pub(super) sealed: Part,
    /// Flushed, and to be freed.
    pub(super) flushed: Owned,
    /// With so many pages it looks whether the sweep is over.
    pub(super) look_at: Word64,
}

// SAFETY: atomics only.
unsafe impl Zeroed for Waiting {}

/// What waits for the same sweep.
#[repr(C)]
pub(super) struct Part {
    /// Its number; 0 if there is nothing.
    pub(super) until: Word64,
    /// Pages, without those of `owned`.
    pub(super) pages: Word64,
    pub(super) owned: Owned,
}

/// Extents with frames of their own.
#[repr(C)]
pub(super) struct Owned {
    pub(super) extents: HandleList,
    pub(super) pages: Word64,
    pub(super) frames: Word64,
}
