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
    /// Frames in large pages that may be kept where more may than `high` says.
    large: Word32,
    /// So many CPUs share the zone by Linux's rule, which follows its memory; 0 where limits were chosen.
    shared: Word32,
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

    /// At start: so many CPUs share the zone by Linux's rule.
    pub fn share<P: Platform>(&self, p: &P, cpus: u32) {
        self.shared.set(p, cpus);
    }

    /// By Linux's rule for so many frames with this low watermark; `None` where limits were chosen.
    pub fn by_rule<P: Platform>(&self, p: &P, frames: u32, low: u32) -> Option<ListLimits> {
        let cpus = Some(self.shared.get(p)).filter(|&cpus| cpus > 0)?;
        Some(ListLimits::linux(frames.into(), low.into(), cpus))
    }

    /// The zone has so many frames now, and this low watermark. Where Linux's rule counts each CPU may keep large pages too, all CPUs together a
    /// sixty-fourth of the zone.
    pub fn follow<P: Platform>(&self, p: &P, frames: u32, low: u32) {
        if let Some(limits) = self.by_rule(p, frames, low) {
            self.large.set(p, frames / 64 / self.shared.get(p));
            self.set(p, limits);
        }
    }

    /// These count from now on, however much memory there is.
    pub fn choose<P: Platform>(&self, p: &P, limits: ListLimits) {
        self.shared.set(p, 0);
        self.large.set(p, 0);
        self.set(p, limits);
    }

    /// Those that were set.
    pub fn chosen<P: Platform>(&self, p: &P) -> ListLimits {
        ListLimits { batch: self.get(p).batch, high: self.high.get(p) }
    }

    /// Under the zone's lock, like all that follows.
    fn set<P: Platform>(&self, p: &P, limits: ListLimits) {
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
