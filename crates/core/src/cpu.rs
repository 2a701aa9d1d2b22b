//! CPUs by number, sets of them, and masks of them that all CPUs share.
//!
//! Both kinds hold 4096 bits under one summary word, so that an empty or small one is read in a line or
//! two. Neither is `Copy`, and neither ever lives on a stack: they are half a kilobyte.

use core::cell::Cell;
use core::sync::atomic::Ordering;

use crate::platform::Platform;
use crate::sync::Word64;

/// The most CPUs that the core knows.
pub const MAX_CPUS: u32 = 4096;
const WORDS: usize = (MAX_CPUS / 64) as usize;

/// A CPU, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct CpuId(pub u16);

impl CpuId {
    /// As an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
    const fn word(self) -> usize {
        self.0 as usize / 64
    }
    const fn bit(self) -> u64 {
        1 << (self.0 % 64)
    }
}

/// The bits of `word`, lowest first.
pub(crate) fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        (word != 0).then(|| {
            let bit = word.trailing_zeros();
            word &= word - 1;
            bit
        })
    })
}

/// A set of CPUs that one owner writes and reads. All zeros is the empty set.
#[repr(C)]
pub struct CpuSet {
    summary: Cell<u64>,
    words: [Cell<u64>; WORDS],
}

impl CpuSet {
    /// Adds a CPU.
    pub fn insert(&self, cpu: CpuId) {
        let word = &self.words[cpu.word()];
        word.set(word.get() | cpu.bit());
        self.summary.set(self.summary.get() | 1 << cpu.word());
    }

    /// Takes a CPU out.
    pub fn remove(&self, cpu: CpuId) {
        let word = &self.words[cpu.word()];
        word.set(word.get() & !cpu.bit());
        if word.get() == 0 {
            self.summary.set(self.summary.get() & !(1 << cpu.word()));
        }
    }

    /// Whether the CPU is in.
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.words[cpu.word()].get() & cpu.bit() != 0
    }

    /// Whether it holds no CPU.
    pub fn is_empty(&self) -> bool {
        self.summary.get() == 0
    }

    /// How many CPUs it holds.
    pub fn len(&self) -> u32 {
        bits(self.summary.get()).map(|w| self.words[w as usize].get().count_ones()).sum()
    }

    /// Empties it.
    pub fn clear(&self) {
        bits(self.summary.get()).for_each(|w| self.words[w as usize].set(0));
        self.summary.set(0);
    }

    /// The CPUs, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        bits(self.summary.get())
            .flat_map(|w| bits(self.words[w as usize].get()).map(move |b| CpuId((w * 64 + b) as u16)))
    }

    /// Adds all CPUs of a shared mask, as they are read one word after the other.
    pub fn insert_all<P: Platform>(&self, p: &P, mask: &CpuMask) {
        let summary = mask.summary.load(p, Ordering::Relaxed);
        for w in bits(summary) {
            // Acquire: partner of the Release in `remove`, as in `for_each`.
            let word = mask.words[w as usize].load(p, Ordering::Acquire);
            if word != 0 {
                let mine = &self.words[w as usize];
                mine.set(mine.get() | word);
                self.summary.set(self.summary.get() | 1 << w);
            }
        }
    }
}

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
    /// Sets the CPU's bit. Sequentially consistent: see `paging::switch` for the partner.
    pub fn insert<P: Platform>(&self, p: &P, cpu: CpuId) {
        self.words[cpu.word()].fetch_or(p, cpu.bit(), Ordering::SeqCst);
        if self.summary.load(p, Ordering::Relaxed) & (1 << cpu.word()) == 0 {
            self.summary.fetch_or(p, 1 << cpu.word(), Ordering::SeqCst);
        }
    }

    /// Clears the CPU's bit.
    pub fn remove<P: Platform>(&self, p: &P, cpu: CpuId) {
        // Release: the CPU's last use of the space comes before its leaving. Partner: the Acquire of
        // whoever finds the mask empty and frees the tables.
        self.words[cpu.word()].fetch_and(p, !cpu.bit(), Ordering::Release);
    }

    /// Whether the CPU's bit is set.
    pub fn contains<P: Platform>(&self, p: &P, cpu: CpuId) -> bool {
        self.words[cpu.word()].load(p, Ordering::Acquire) & cpu.bit() != 0
    }

    /// Does `work` for each CPU in it, as they are read one word after the other.
    pub fn for_each<P: Platform>(&self, p: &P, mut work: impl FnMut(CpuId)) {
        for w in bits(self.summary.load(p, Ordering::Relaxed)) {
            // Acquire: partner of the Release in `remove`: a CPU that is not in it has left before.
            let word = self.words[w as usize].load(p, Ordering::Acquire);
            bits(word).for_each(|b| work(CpuId((w * 64 + b) as u16)));
        }
    }

    /// Whether this is true of some CPU in it.
    pub fn any<P: Platform>(&self, p: &P, mut which: impl FnMut(CpuId) -> bool) -> bool {
        bits(self.summary.load(p, Ordering::Relaxed)).any(|w| {
            // Acquire: as in `for_each`.
            let word = self.words[w as usize].load(p, Ordering::Acquire);
            bits(word).any(|b| which(CpuId((w * 64 + b) as u16)))
        })
    }

    /// Whether no CPU is in it. A moment's truth.
    pub fn is_empty<P: Platform>(&self, p: &P) -> bool {
        bits(self.summary.load(p, Ordering::Relaxed))
            .all(|w| self.words[w as usize].load(p, Ordering::Relaxed) == 0)
    }

    /// Whether no CPU is in it other than `but`.
    pub fn is_empty_but<P: Platform>(&self, p: &P, but: CpuId) -> bool {
        bits(self.summary.load(p, Ordering::Relaxed)).all(|w| {
            let word = self.words[w as usize].load(p, Ordering::Acquire);
            let mine = if w as usize == but.word() { but.bit() } else { 0 };
            word & !mine == 0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> CpuSet {
        CpuSet { summary: Cell::new(0), words: [const { Cell::new(0) }; WORDS] }
    }

    #[test]
    fn a_set_keeps_its_summary_true() {
        let set = empty();
        for cpu in [0, 63, 64, 4095] {
            set.insert(CpuId(cpu));
        }
        assert_eq!(set.iter().map(|c| c.0).collect::<std::vec::Vec<_>>(), [0, 63, 64, 4095]);
        assert_eq!(set.len(), 4);
        set.remove(CpuId(63));
        assert!(set.contains(CpuId(0)) && !set.contains(CpuId(63)));
        set.remove(CpuId(0));
        assert_eq!(set.summary.get().count_ones(), 2);
        set.clear();
        assert!(set.is_empty() && set.iter().next().is_none());
    }
}
