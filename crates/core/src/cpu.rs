//! CPUs by number, and sets of them.
//!
//! A set holds 4096 bits under one summary word, so that an empty or small one is read in a line or two. It is not `Copy`, and
//! never lives on a stack: it is half a kilobyte.

use crate::own::OwnU64;

/// The most CPUs that the core knows.
pub const MAX_CPUS: u32 = 4096;
pub(crate) const WORDS: usize = (MAX_CPUS / 64) as usize;

/// A CPU, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct CpuId(pub u16);

impl CpuId {
    /// As an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
    pub(crate) const fn word(self) -> usize {
        self.0 as usize / 64
    }
    pub(crate) const fn bit(self) -> u64 {
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
    summary: OwnU64,
    words: [OwnU64; WORDS],
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

    /// Adds those of a word.
    pub(crate) fn insert_word(&self, place: usize, word: u64) {
        if word != 0 {
            let mine = &self.words[place];
            mine.set(mine.get() | word);
            self.summary.set(self.summary.get() | 1 << place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> CpuSet {
        CpuSet { summary: OwnU64::new(0), words: [const { OwnU64::new(0) }; WORDS] }
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
