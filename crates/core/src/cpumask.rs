//! A mask of CPUs that all CPUs share: a [`CpuSet`] of words that several may use.

use core::sync::atomic::Ordering;

use crate::cpu::{CpuId, CpuSet, WORDS, bits};
use crate::platform::Hooks;
use crate::sync::Word64;

/// A mask of CPUs that every CPU may change and read.
///
/// The summary's bits are only ever set: taking one back could hide a CPU that enters the mask at that
/// moment, and a hidden CPU is a lost flush. A stale summary bit costs the look at one word.
#[repr(C)]
pub struct CpuMask {
    summary: Word64,
    words: [Word64; WORDS],
}

impl CpuMask {
    /// Sets the CPU's bit. Sequentially consistent: see `tlb::switch` for the partner.
    pub fn insert<P: Hooks>(&self, p: &P, cpu: CpuId) {
        self.words[cpu.word()].fetch_or(p, cpu.bit(), Ordering::SeqCst);
        if self.summary.load(p, Ordering::Relaxed) & (1 << cpu.word()) == 0 {
            self.summary.fetch_or(p, 1 << cpu.word(), Ordering::SeqCst);
        }
    }

    /// Clears the CPU's bit.
    pub fn remove<P: Hooks>(&self, p: &P, cpu: CpuId) {
        // Release: the CPU's last use of the space comes before its leaving. Partner: the Acquire of
        // whoever finds the mask empty and frees the tables.
        self.words[cpu.word()].fetch_and(p, !cpu.bit(), Ordering::Release);
    }

    /// Whether the CPU's bit is set.
    pub fn contains<P: Hooks>(&self, p: &P, cpu: CpuId) -> bool {
        self.words[cpu.word()].load(p, Ordering::Acquire) & cpu.bit() != 0
    }

    /// Does `work` for each CPU in it, as they are read one word after the other.
    pub fn for_each<P: Hooks>(&self, p: &P, mut work: impl FnMut(CpuId)) {
        for w in bits(self.summary.load(p, Ordering::Relaxed)) {
            // Acquire: partner of the Release in `remove`: a CPU that is not in it has left before.
            let word = self.words[w as usize].load(p, Ordering::Acquire);
            bits(word).for_each(|b| work(CpuId((w * 64 + b) as u16)));
        }
    }

    /// Whether this is true of some CPU in it.
    pub fn any<P: Hooks>(&self, p: &P, mut which: impl FnMut(CpuId) -> bool) -> bool {
        bits(self.summary.load(p, Ordering::Relaxed)).any(|w| {
            // Acquire: as in `for_each`.
            let word = self.words[w as usize].load(p, Ordering::Acquire);
            bits(word).any(|b| which(CpuId((w * 64 + b) as u16)))
        })
    }

    /// Adds all its CPUs to a set, as they are read one word after the other.
    pub fn add_to<P: Hooks>(&self, p: &P, set: &CpuSet) {
        for w in bits(self.summary.load(p, Ordering::Relaxed)) {
            // Acquire: as in `for_each`.
            set.insert_word(w as usize, self.words[w as usize].load(p, Ordering::Acquire));
        }
    }

    /// Whether no CPU is in it. A moment's truth.
    pub fn is_empty<P: Hooks>(&self, p: &P) -> bool {
        bits(self.summary.load(p, Ordering::Relaxed))
            .all(|w| self.words[w as usize].load(p, Ordering::Relaxed) == 0)
    }

    /// Whether no CPU is in it other than `but`.
    pub fn is_empty_but<P: Hooks>(&self, p: &P, but: CpuId) -> bool {
        bits(self.summary.load(p, Ordering::Relaxed)).all(|w| {
            let word = self.words[w as usize].load(p, Ordering::Acquire);
            let mine = if w as usize == but.word() { but.bit() } else { 0 };
            word & !mine == 0
        })
    }
}
