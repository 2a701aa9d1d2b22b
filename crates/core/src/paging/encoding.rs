//! How an entry lies in memory.
//!
//! What is not present looks alike everywhere: bit 0 is clear, and no hardware looks at the others. What is present has the
//! bits that the architecture wants. Of a table's entry and a page's, x86-64 wants the same bits; RISC-V knows a page by its
//! rights, so whoever reads or writes a word says of which level its table is.

use crate::addr::FrameNumber;
use crate::architecture::Architecture;
use crate::paging::Entry;

/// A word of an Sv48 table (privileged specification, 12.4.1).
mod sv48 {
    pub const VALID: u64 = 1 << 0;
    pub const READ: u64 = 1 << 1;
    pub const WRITE: u64 = 1 << 2;
    pub const EXECUTE: u64 = 1 << 3;
    pub const USER: u64 = 1 << 4;
    pub const GLOBAL: u64 = 1 << 5;
    pub const ACCESSED: u64 = 1 << 6;
    pub const DIRTY: u64 = 1 << 7;
    /// Two bits for software, and with Svrsw60t59b two more; without it no stamp reaches these.
    const LOW_SHIFT: u32 = 8;
    const HIGH_SHIFT: u32 = 59;
    const TWO: u64 = 3;
    pub const FRAME_SHIFT: u32 = 10;
    pub const FRAME: u64 = (1 << 44) - 1;

    /// Where a stamp lies.
    pub const fn with_stamp(word: u64, stamp: u8) -> u64 {
        let stamp = stamp as u64;
        word | (stamp & TWO) << LOW_SHIFT | (stamp >> 2 & TWO) << HIGH_SHIFT
    }

    pub const fn stamp(word: u64) -> u8 {
        (word >> LOW_SHIFT & TWO | (word >> HIGH_SHIFT & TWO) << 2) as u8
    }
}

/// Bits that an entry has on both sides.
const PAIRS: [(u64, u64); 5] = [
    (Entry::WRITABLE, sv48::WRITE),
    (Entry::USER, sv48::USER),
    (Entry::GLOBAL, sv48::GLOBAL),
    (Entry::ACCESSED, sv48::ACCESSED),
    (Entry::DIRTY, sv48::DIRTY),
];

impl Entry {
    /// The word for it in a table of this level: 0 for tables of small pages.
    #[inline(always)]
    pub const fn encode(self, architecture: Architecture, level: u32) -> u64 {
        match architecture {
            Architecture::X86_64 => self.0,
            Architecture::Sv48 | Architecture::Sv48Adu => self.encode_sv48(level),
        }
    }

    /// What a word in a table of this level says.
    #[inline(always)]
    pub const fn decode(word: u64, architecture: Architecture, level: u32) -> Entry {
        match architecture {
            Architecture::X86_64 => Entry(word),
            Architecture::Sv48 | Architecture::Sv48Adu => Entry::decode_sv48(word, level),
        }
    }

    const fn encode_sv48(self, level: u32) -> u64 {
        if !self.is_present() {
            return self.0;
        }
        let word = (self.frame().0 as u64) << sv48::FRAME_SHIFT | sv48::VALID;
        if level > 0 && !self.has(Entry::LARGE) {
            // The entry of a table has no other bits.
            return word;
        }
        let execute = if self.has(Entry::NO_EXECUTE) { 0 } else { sv48::EXECUTE };
        let mut word = sv48::with_stamp(word | sv48::READ | execute, self.stamp().0);
        let mut i = 0;
        while i < PAIRS.len() {
            if self.has(PAIRS[i].0) {
                word |= PAIRS[i].1;
            }
            i += 1;
        }
        word
    }

    const fn decode_sv48(word: u64, level: u32) -> Entry {
        if word & sv48::VALID == 0 {
            return Entry(word);
        }
        let frame = FrameNumber((word >> sv48::FRAME_SHIFT & sv48::FRAME) as u32);
        if word & (sv48::READ | sv48::WRITE | sv48::EXECUTE) == 0 {
            return Entry::table(frame);
        }
        let execute = if word & sv48::EXECUTE == 0 { Entry::NO_EXECUTE } else { 0 };
        let large = if level > 0 { Entry::LARGE } else { 0 };
        let mut bits = frame.phys().0 | Entry::PRESENT | execute | large;
        let mut i = 0;
        while i < PAIRS.len() {
            if word & PAIRS[i].1 != 0 {
                bits |= PAIRS[i].0;
            }
            i += 1;
        }
        Entry(bits).with_stamp(sv48::stamp(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Generation;
    use crate::paging::{KernelProt, Prot, Stamp};

    /// All that the core puts into tables of small pages.
    fn entries() -> impl Iterator<Item = Entry> {
        let frames = [1, 0x1234, FrameNumber::END.0 - 1].map(FrameNumber);
        frames.into_iter().flat_map(|frame| {
            let user = Prot::ALL.map(|prot| Entry::page(frame, prot));
            let kernel = [KernelProt::Read, KernelProt::ReadWrite, KernelProt::ReadExecute]
                .map(|prot| Entry::kernel(frame, prot));
            let written = user.map(|entry| Entry(entry.0 | Entry::DIRTY));
            let aged = [0, 1, 2, 3, 15].map(|n| Entry::page(frame, Prot::ReadWrite).aged(Stamp(n)));
            let pages = user.into_iter().chain(written).chain(kernel).chain(aged);
            pages.flat_map(|entry| [entry, entry.taken()])
        })
    }

    #[test]
    fn what_is_written_is_read_again() {
        let absent =
            [Entry::NONE, Entry::swapped(77), Entry::deferred(Generation(5)), Entry::parked(1 << 40)];
        for architecture in Architecture::ALL {
            for entry in entries().chain(absent) {
                let word = entry.encode(architecture, 0);
                assert_eq!(Entry::decode(word, architecture, 0), entry, "{architecture:?}: {word:#x}");
                assert_eq!(word & 1 != 0, entry.is_present(), "valid is bit 0 everywhere");
            }
            let large = Entry(Entry::page(FrameNumber(512), Prot::ReadWrite).0 | Entry::LARGE | Entry::DIRTY);
            let table = Entry::table(FrameNumber(3));
            for entry in [large, large.taken(), large.with_prot(Prot::None), table, Entry::NONE] {
                let word = entry.encode(architecture, 1);
                assert_eq!(Entry::decode(word, architecture, 1), entry, "{architecture:?}: {word:#x}");
            }
        }
    }

    #[test]
    fn an_sv48_word_is_what_the_specification_says() {
        let word = |entry: Entry, level| entry.encode(Architecture::Sv48, level);
        // V R W X U A, and D; the frame from bit 10 on.
        let data = Entry::page(FrameNumber(0x345), Prot::ReadWrite);
        assert_eq!(word(data, 0), 0x345 << 10 | 0b0101_0111, "not to be executed");
        assert_eq!(word(Entry::page(FrameNumber(0x345), Prot::ReadExecute), 0), 0x345 << 10 | 0b0101_1011);
        let page = Entry::page(FrameNumber(0x345), Prot::ReadWriteExecute);
        assert_eq!(word(page, 0), 0x345 << 10 | 0b0101_1111);
        assert_eq!(word(Entry(page.0 | Entry::DIRTY), 0), 0x345 << 10 | 0b1101_1111);
        assert_eq!(word(page.aged(Stamp(2)), 0), 0x345 << 10 | 2 << 8 | 0b0001_1111);
        assert_eq!(word(page.aged(Stamp(6)), 0), 1 << 59 | 0x345 << 10 | 2 << 8 | 0b0001_1111);
        // Not the program's, not executable, global: V R W G A D.
        let kernel = Entry::kernel(FrameNumber(1), KernelProt::ReadWrite);
        assert_eq!(word(kernel, 0), 1 << 10 | 0b1110_0111);
        // A table: nothing but V. Its accessed, dirty and user bits are reserved.
        assert_eq!(word(Entry::table(FrameNumber(9)), 2), 9 << 10 | 1);
    }
}
