//! Shadows of pages that reclaim took: whether one that is wanted again went too soon.
//!
//! A clock counts pages that reclaim takes. A page's *distance* is how far the clock has moved between its going and its
//! coming back: about as many more pages of memory would have kept it. If that is fewer than the active lists hold, it
//! deserves memory more than what is there: it goes to the active list at once (Linux's workingset detection).
//!
//! Shadows lie in a table of fixed size, four bytes for each frame of memory: buckets of one cache line, in which a new
//! shadow takes the place of the oldest. So they need no memory when memory is short, no lock, and no index to be kept.
//! One that was overwritten is a page that went long ago; one page in 4096 or so is taken for another.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::FrameNumber;
use crate::event::Event;
use crate::memmap::flag;
use crate::platform::{Platform, Store};
use crate::reclaim::lru::LruType;
use crate::sync::Word32;
use crate::zeroed::Zeroed;

/// Shadows in a bucket.
pub(crate) const PER_BUCKET: usize = 16;
/// The lower bits of a shadow are the time, in ticks of the clock; the upper ones say whose it is, and are not all 0.
/// Sixteen of a bucket are looked at, so 16 bits of name make one page in 4096 taken for another.
const TIME_BITS: u32 = 16;
const TIME: u32 = (1 << TIME_BITS) - 1;

/// A cache line of shadows. All zeros holds none.
#[repr(C, align(64))]
pub(crate) struct Bucket([Word32; PER_BUCKET]);

// SAFETY: atomics.
unsafe impl Zeroed for Bucket {}

/// Pages that reclaim took: a line of its own.
#[repr(C, align(64))]
pub(crate) struct Clock(Word32);

/// The table: a part in each region of memory, and the clock. Empty where no shadows are kept.
#[derive(Clone, Copy)]
pub(crate) struct Shadows<'p> {
    parts: &'p [&'p [Bucket]],
    /// log2 of the pages in a tick: so that the time wraps only after four times the memory.
    tick: u32,
}

impl<'p> Shadows<'p> {
    /// For so many frames of memory.
    pub fn new(parts: &'p [&'p [Bucket]], frames: u64) -> Self {
        let ticks = (frames * 4) >> TIME_BITS;
        Shadows { parts, tick: (ticks + 1).next_power_of_two().ilog2() }
    }

    /// Where the shadow of a page would be, and the upper bits that say so.
    fn place(&self, store: Store, block: u64) -> Option<(&'p Bucket, u32)> {
        if self.parts.is_empty() {
            return None;
        }
        let (kind, number) = match store {
            // What is remembered of an ended file is not its successor's.
            Store::File(file) => (0, u64::from(file.index()) ^ (file.nth() - 1) << 32),
            Store::Swap(device) => (1, u64::from(device)),
        };
        let hash = mix(mix(block) ^ number << 1 ^ kind);
        let part = self.parts[(hash >> 48) as usize % self.parts.len()];
        let bucket = &part[(hash & 0xffff_ffff) as usize % part.len()];
        let own = ((hash >> 32) as u32 & 0xffff).max(1) << TIME_BITS;
        Some((bucket, own))
    }
}

/// Spreads bits: the finalizer of SplitMix64.
const fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Ticks from `then` to `now`.
const fn since(then: u32, now: u32) -> u32 {
    now.wrapping_sub(then) & TIME
}

impl<P: Platform> Manager<'_, P> {
    fn shadow_time(&self) -> u32 {
        // Relaxed: the clock orders nothing.
        self.root.clock.0.load(self.platform(), Ordering::Relaxed) >> self.shadows().tick & TIME
    }

    /// Reclaim has taken so many pages.
    pub(super) fn advance_clock(&self, pages: u32) {
        if !self.shadows().parts.is_empty() && pages > 0 {
            self.root.clock.0.fetch_add(self.platform(), pages, Ordering::Relaxed);
        }
    }

    /// Reclaim has taken this page.
    pub(super) fn leave_shadow(&self, store: Store, block: u64) {
        let Some((bucket, own)) = self.shadows().place(store, block) else { return };
        let (p, now) = (self.platform(), self.shadow_time());
        let age = |word: &Word32| match word.load(p, Ordering::Relaxed) {
            0 => u32::MAX - 1,
            // The page has one already: it was read beside another, and went unused. Two would be one too many.
            shadow if shadow & !TIME == own => u32::MAX,
            shadow => since(shadow, now),
        };
        // Two CPUs may choose the same place: then one page less is remembered.
        let oldest = bucket.0.iter().max_by_key(|word| age(word));
        oldest.into_iter().for_each(|word| word.store(p, own | now, Ordering::Relaxed));
    }

    /// A page was read that may have been here before: says whether, and if it went a short time ago marks it for the
    /// active list. By whoever has locked it, before it is on a list.
    pub(crate) fn note_refault(&self, n: FrameNumber, store: Store, block: u64) {
        let Some((bucket, own)) = self.shadows().place(store, block) else { return };
        let (p, now) = (self.platform(), self.shadow_time());
        let found = bucket.0.iter().find_map(|word| {
            let shadow = word.load(p, Ordering::Relaxed);
            let gone = shadow & !TIME == own && word.replace(p, shadow, 0, Ordering::Relaxed).is_ok();
            gone.then(|| since(shadow, now))
        });
        let Some(ticks) = found else { return };
        let distance = u64::from(ticks) << self.shadows().tick;
        let group = self.groups().of_frame(p, n);
        let active = |kind| self.node_ids().map(|node| self.lists(node, group).lens(p, kind).1).sum::<u64>();
        let activated = distance < active(LruType::Files) + active(LruType::Anon);
        if activated {
            self.memmap().get(n).set_flags(p, flag::ACTIVE);
        }
        self.emit(Event::Refaulted { activated });
    }
}

// SAFETY: an atomic.
unsafe impl Zeroed for Clock {}

#[cfg(test)]
mod tests {
    use super::{TIME, since};

    #[test]
    fn time_goes_round() {
        assert_eq!([since(5, 5), since(5, 9), since(0, TIME)], [0, 4, TIME]);
        assert_eq!([since(TIME, 0), since(TIME - 2, 3), since(9, 5)], [1, 6, TIME - 3]);
        // Whose a shadow is says nothing of when.
        assert_eq!(since(7 << super::TIME_BITS | 2, 6), 4);
    }
}
