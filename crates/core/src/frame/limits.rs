//! How many free frames of a zone each CPU keeps on its lists, and when it keeps none.

use crate::addr::{LARGE_ORDER, LARGE_PAGES};
use crate::config::ListLimits;
use crate::platform::Platform;
use crate::sync::{Word32, Word64};

/// Why nothing is kept on per-CPU lists for now.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Pause {
    /// Memory of the zone goes offline.
    Leaving = 1,
    /// Tasks wait for frames: what is freed goes where they look, and needs no drain.
    Starved = 2,
}

/// The limits of a zone: set under its lock, read without.
#[repr(C)]
pub(crate) struct Limits {
    /// Those that count, in one word, so that whoever reads them gets two that belong together.
    now: Word64,
    /// What `high` is while it counts.
    high: Word32,
    /// A bit for each reason why it does not.
    paused: Word32,
    /// Frames in large pages that may be kept where more may than `high` says: set at start.
    large: Word32,
}

/// Large pages that go from the zone to a list, or back, at a time: at most so many.
const LARGE_BATCH: u32 = 8;

impl Limits {
    /// Those that count now.
    #[inline(always)]
    pub fn get<P: Platform>(&self, p: &P) -> ListLimits {
        let now = self.now.get(p);
        ListLimits { batch: now as u32, high: (now >> 32) as u32 }
    }

    /// Those that count now for blocks of this order.
    #[inline(always)]
    pub fn of<P: Platform>(&self, p: &P, order: u8) -> ListLimits {
        let limits = self.get(p);
        if order == LARGE_ORDER && limits.high != 0 { self.of_large(p, limits.high) } else { limits }
    }

    fn of_large<P: Platform>(&self, p: &P, high: u32) -> ListLimits {
        let large = LARGE_PAGES as u32;
        let high = high.max(self.large.get(p)) / large;
        ListLimits { batch: (high / 2).clamp(1, LARGE_BATCH) * large, high: high * large }
    }

    /// At start: each of so many CPUs may keep large pages, together a sixty-fourth of the zone.
    pub fn share_large<P: Platform>(&self, p: &P, frames: u32, cpus: u32) {
        self.large.set(p, frames / 64 / cpus.max(1));
    }

    /// Those that were set.
    pub fn chosen<P: Platform>(&self, p: &P) -> ListLimits {
        ListLimits { batch: self.get(p).batch, high: self.high.get(p) }
    }

    /// Under the zone's lock, like all that follows.
    pub fn set<P: Platform>(&self, p: &P, limits: ListLimits) {
        self.high.set(p, limits.high);
        let high = if self.paused.get(p) == 0 { limits.high } else { 0 };
        self.now.set(p, u64::from(high) << 32 | u64::from(limits.batch));
    }

    /// Without the lock a guess.
    pub fn is_paused<P: Platform>(&self, p: &P, why: Pause) -> bool {
        self.paused.get(p) & why as u32 != 0
    }

    /// From now on nothing is kept on per-CPU lists.
    pub fn pause<P: Platform>(&self, p: &P, why: Pause) {
        self.paused.set(p, self.paused.get(p) | why as u32);
        self.set(p, self.chosen(p));
    }

    /// No longer for this reason.
    pub fn resume<P: Platform>(&self, p: &P, why: Pause) {
        self.paused.set(p, self.paused.get(p) & !(why as u32));
        self.set(p, self.chosen(p));
    }
}
