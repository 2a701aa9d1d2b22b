//! The way from a top table to the entry of a page.

use quietmm::{Architecture, Entry, FrameNumber, PageNumber};

/// Levels of tables.
pub const LEVELS: u32 = 4;
/// The level of tables whose entries may be large pages.
pub const LARGE_LEVEL: u32 = 1;
/// Pages in a large one.
pub const LARGE_PAGES: u64 = 512;

/// Where a way ends: at the entry of a page, whatever that says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaf {
    /// The table that it is in.
    pub table: FrameNumber,
    /// Its place there.
    pub index: usize,
    /// The table's level: 0 for small pages, 1 for large ones.
    pub level: u32,
    /// What it said.
    pub entry: Entry,
}

impl Leaf {
    /// Whether it stands for a large page.
    pub fn is_large(&self) -> bool {
        self.level == LARGE_LEVEL
    }
}

/// Walks from `root` to `page`. `word` reads an entry's word, with the level of its table; without one there is no memory. Nothing
/// where no table leads to the page.
///
/// Each entry counts as it is at that moment. The core gives all rights in the tables above; one that does not leads nowhere, here.
#[inline]
pub fn walk(
    architecture: Architecture,
    root: FrameNumber,
    page: PageNumber,
    mut word: impl FnMut(u32, FrameNumber, usize) -> Option<u64>,
) -> Option<Leaf> {
    let mut table = root;
    for level in (0..LEVELS).rev() {
        let index = page.index(level);
        let entry = Entry::decode(word(level, table, index)?, architecture, level);
        if level == 0 || level == LARGE_LEVEL && entry.has(Entry::PRESENT | Entry::LARGE) {
            return Some(Leaf { table, index, level, entry });
        }
        // On x86-64 the rights of each table count; RISC-V's tables have none, and are read as if they had all.
        if !entry.has(Entry::PRESENT | Entry::USER | Entry::WRITABLE) {
            return None;
        }
        table = entry.frame();
    }
    None
}

/// The frame that a cached entry, small or large, gives for one small page.
#[inline]
pub fn frame_for(entry: Entry, large: bool, page: PageNumber) -> FrameNumber {
    if large {
        FrameNumber(entry.frame().0 & !(LARGE_PAGES as u32 - 1)).add((page.0 % LARGE_PAGES) as u32)
    } else {
        entry.frame()
    }
}

/// The bits of an entry's word that stand for these of [`Entry::ACCESSED`] and [`Entry::DIRTY`]: what a CPU sets by itself.
#[inline]
pub fn bits_of(architecture: Architecture, bits: u64) -> u64 {
    // Whatever the rest of a page's entry is: these are bits of their own everywhere.
    let page = Entry(Entry::PRESENT);
    page.encode(architecture, 0) ^ Entry(page.0 | bits).encode(architecture, 0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use quietmm::Prot;

    use super::*;

    const PAGE: PageNumber = PageNumber(0x7_1234_5678);

    fn tables(architecture: Architecture, last: u32, entry: Entry) -> BTreeMap<(u32, usize), u64> {
        let above = (last + 1..LEVELS).map(|level| {
            let to = Entry::table(FrameNumber(101 - level)).encode(architecture, level);
            ((100 - level, PAGE.index(level)), to)
        });
        above.chain([((100 - last, PAGE.index(last)), entry.encode(architecture, last))]).collect()
    }

    #[test]
    fn a_walk_ends_at_a_small_page_a_large_one_or_nowhere() {
        let small = Entry::page(FrameNumber(7), Prot::Read);
        let large = Entry(Entry::page(FrameNumber(512), Prot::ReadWrite).0 | Entry::LARGE);
        for architecture in Architecture::ALL {
            for (level, entry) in [(0, small), (0, Entry::NONE), (1, large)] {
                let tables = tables(architecture, level, entry);
                let mut seen = Vec::new();
                let leaf = walk(architecture, FrameNumber(97), PAGE, |level, table, index| {
                    seen.push((level, table.0));
                    tables.get(&(table.0, index)).copied()
                });
                let table = FrameNumber(100 - level);
                assert_eq!(leaf, Some(Leaf { table, index: PAGE.index(level), level, entry }));
                let way: Vec<_> = (level..LEVELS).rev().map(|level| (level, 100 - level)).collect();
                assert_eq!(seen, way);
            }
            let gap = tables(architecture, 2, Entry::NONE);
            assert_eq!(
                walk(architecture, FrameNumber(97), PAGE, |_, t, i| gap.get(&(t.0, i)).copied()),
                None
            );
            assert_eq!(walk(architecture, FrameNumber(97), PAGE, |_, _, _| None), None, "no memory");
        }
        let mut narrow = tables(Architecture::X86_64, 0, small);
        *narrow.get_mut(&(98, PAGE.index(2))).unwrap() &= !Entry::USER;
        let found =
            walk(Architecture::X86_64, FrameNumber(97), PAGE, |_, t, i| narrow.get(&(t.0, i)).copied());
        assert_eq!(found, None, "a table without a right");
    }

    #[test]
    fn a_cpu_sets_two_bits() {
        let both = Entry::ACCESSED | Entry::DIRTY;
        assert_eq!(bits_of(Architecture::X86_64, both), 1 << 5 | 1 << 6);
        assert_eq!(bits_of(Architecture::Sv48Adu, both), 1 << 6 | 1 << 7);
        assert_eq!(bits_of(Architecture::Sv48Adu, Entry::ACCESSED), 1 << 6);
    }

    #[test]
    fn a_page_of_a_large_one_has_its_own_frame() {
        let large = Entry(Entry::page(FrameNumber(1024), Prot::Read).0 | Entry::LARGE);
        assert_eq!(frame_for(large, true, PageNumber(512 * 3 + 7)), FrameNumber(1031));
        assert_eq!(frame_for(Entry::page(FrameNumber(5), Prot::Read), false, PageNumber(3)), FrameNumber(5));
    }
}
