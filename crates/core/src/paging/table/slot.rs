//! The place of an entry in a table, where it lies as the architecture wants it.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{FrameNumber, PhysAddr};
use crate::architecture::Architecture;
use crate::paging::Entry;
use crate::platform::Platform;
use crate::sync::Word64;

/// The place of an entry in a table, where it lies as the architecture wants it.
pub(super) struct Slot<'p, P> {
    p: &'p P,
    word: &'p Word64,
    level: u32,
}

pub(super) fn slot<'p, P: Platform>(
    mm: &Manager<'p, P>,
    (table, level): (FrameNumber, u32),
    index: usize,
) -> Slot<'p, P> {
    let p = mm.platform();
    let at = PhysAddr(table.phys().0 + 8 * index as u64);
    // SAFETY: `table` is a frame of kind `Table`, which the direct map covers and which nobody frees while a
    // walk can reach it (INV-9); the entry lies inside, aligned. `Word64` is an atomic, as the hardware's
    // own updates of accessed and dirty bits demand.
    Slot { p, word: unsafe { &*p.direct(at).cast() }, level }
}

impl<P: Platform> Slot<'_, P> {
    #[inline(always)]
    fn encode(&self, entry: Entry) -> u64 {
        entry.encode(self.p.architecture(), self.level)
    }

    #[inline(always)]
    fn decode(&self, word: u64) -> Entry {
        Entry::decode(word, self.p.architecture(), self.level)
    }

    #[cfg_attr(loom, track_caller)]
    #[inline(always)]
    pub(super) fn load(&self) -> Entry {
        // Acquire: partner of the Release that published the table.
        self.decode(self.word.load(self.p, Ordering::Acquire))
    }

    /// Where nobody else changes it.
    #[cfg_attr(loom, track_caller)]
    #[inline(always)]
    pub(super) fn get(&self) -> Entry {
        self.decode(self.word.get(self.p))
    }

    /// For audits of a quiet system.
    pub(super) fn unseen(&self) -> Entry {
        self.decode(self.word.unseen())
    }

    /// Where nobody else sees it.
    #[cfg_attr(loom, track_caller)]
    #[inline(always)]
    pub(super) fn set(&self, entry: Entry) {
        self.word.set(self.p, self.encode(entry));
    }

    #[cfg_attr(loom, track_caller)]
    #[inline(always)]
    pub(super) fn store(&self, entry: Entry) {
        self.word.store(self.p, self.encode(entry), Ordering::Release);
    }

    #[cfg_attr(loom, track_caller)]
    #[inline(always)]
    pub(super) fn swap(&self, entry: Entry) -> Entry {
        self.decode(self.word.swap(self.p, self.encode(entry), Ordering::AcqRel))
    }

    /// Puts `new` in the place of `old`, or returns what is there instead.
    #[cfg_attr(loom, track_caller)]
    #[inline(always)]
    pub(super) fn replace(&self, old: Entry, new: Entry) -> Result<(), Entry> {
        let replaced = self.word.replace(self.p, self.encode(old), self.encode(new), Ordering::AcqRel);
        replaced.map(drop).map_err(|now| self.decode(now))
    }

    /// Changes what it says, in one step of which no bit that the hardware sets meanwhile is lost; returns what was there.
    #[cfg_attr(loom, track_caller)]
    #[inline(always)]
    pub(super) fn update(&self, change: impl Fn(Entry) -> Entry) -> Entry {
        let mut seen = self.load();
        while let Err(now) = self.replace(seen, change(seen)) {
            seen = now;
        }
        seen
    }

    /// The same, of bits: by one instruction where they lie in the word as they do in the entry.
    #[cfg_attr(loom, track_caller)]
    #[inline(always)]
    pub(super) fn clear_bits(&self, bits: u64) -> Entry {
        match self.p.architecture() {
            Architecture::X86_64 => Entry(self.word.fetch_and(self.p, !bits, Ordering::AcqRel)),
            _ => self.update(|entry| Entry(entry.0 & !bits)),
        }
    }

    #[cfg_attr(loom, track_caller)]
    #[inline(always)]
    pub(super) fn set_bits(&self, bits: u64) {
        match self.p.architecture() {
            Architecture::X86_64 => drop(self.word.fetch_or(self.p, bits, Ordering::AcqRel)),
            _ => drop(self.update(|entry| Entry(entry.0 | bits))),
        }
    }
}
