//! The TLB, as the processor describes it.

use std::arch::x86_64::{__cpuid, __cpuid_count};

use super::Results;

/// Entries and ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Level {
    entries: u64,
    ways: u64,
}

impl Level {
    /// If it can be.
    fn new(entries: u64, ways: u64) -> Option<Level> {
        let ways = ways.min(entries);
        (entries > 0 && ways > 0 && entries.is_multiple_of(ways)).then_some(Level { entries, ways })
    }
}

/// First level, second level, entries for large pages.
type Found = (Option<Level>, Option<Level>, Option<u64>);

/// Writes down what the processor says.
pub fn tlb(results: &mut Results) {
    let most = __cpuid(0).eax;
    let vendor = __cpuid(0).ebx;
    let amd = vendor == u32::from_le_bytes(*b"Auth") || vendor == u32::from_le_bytes(*b"Hygo");
    let (first, second, large) = if amd { by_amd() } else { by_intel(most) };
    let how = "CPUID of the processor; a hyperthread that shares it is not counted";
    let mut level = |what: &str, level: Option<Level>, entries: &'static str, ways: &'static str| match level
    {
        Some(level) => {
            results.count("tlb", entries, level.entries, "entries", how);
            results.count("tlb", ways, level.ways, "ways", how);
        }
        None => results.not(what, "the processor does not say"),
    };
    level("the first level of the TLB", first, "l1_entries", "l1_ways");
    level("the second level of the TLB", second, "l2_entries", "l2_ways");
    match large {
        Some(large) => results.count("tlb", "large_entries", large, "entries", how),
        None => results.not("tlb.large_entries", "the processor does not say"),
    }
    // PCID is bit 17 of ECX of leaf 1; Linux keeps six of them apart.
    if __cpuid(1).ecx >> 17 & 1 == 0 {
        results.count("tlb", "tags", 1, "tags", "the processor has no PCIDs");
    }
}

/// AMD: leaves 8000_0005 and 8000_0006.
fn by_amd() -> Found {
    let most = __cpuid(0x8000_0000).eax;
    if most < 0x8000_0006 {
        return (None, None, None);
    }
    let (first, second) = (__cpuid(0x8000_0005), __cpuid(0x8000_0006));
    of_amd(first.eax, first.ebx, second.ebx)
}

/// Large pages and small ones of the first level, small ones of the second.
fn of_amd(large: u32, first: u32, second: u32) -> Found {
    let byte = |word: u32, at: u32| u64::from(word >> at & 0xff);
    let entries = byte(first, 16);
    // 255 ways are all.
    let ways = if byte(first, 24) == 0xff { entries } else { byte(first, 24) };
    let size = u64::from(second >> 16 & 0xfff);
    let ways_of_second = match second >> 28 {
        1 => 1,
        2 => 2,
        3 => 3,
        4 => 4,
        5 => 6,
        6 => 8,
        8 => 16,
        10 => 32,
        11 => 48,
        12 => 64,
        13 => 96,
        14 => 128,
        15 => size,
        // 9 says that another leaf has it, which has no TLBs.
        _ => 0,
    };
    let large = byte(large, 16);
    (Level::new(entries, ways), Level::new(size, ways_of_second), (large > 0).then_some(large))
}

/// Intel: leaf 18, a level a subleaf.
fn by_intel(most: u32) -> Found {
    if most < 0x18 {
        return (None, None, None);
    }
    let last = __cpuid_count(0x18, 0).eax;
    let (mut first, mut second, mut large) = (None, None, None);
    for subleaf in 0..=last.min(64) {
        let leaf = __cpuid_count(0x18, subleaf);
        let (kind, level) = (leaf.edx & 0x1f, leaf.edx >> 5 & 7);
        // Data, unified, or loads only.
        if !matches!(kind, 1 | 3 | 4) {
            continue;
        }
        let ways = u64::from(leaf.ebx >> 16);
        let found = Level::new(ways * u64::from(leaf.ecx), ways);
        let (small, two_mib) = (leaf.ebx & 1 != 0, leaf.ebx & 2 != 0);
        if level == 1 && small && first.is_none() {
            first = found;
        }
        if level == 2 && small && second.is_none() {
            second = found;
        }
        if level == 1 && two_mib && large.is_none() {
            large = found.map(|level| level.entries);
        }
    }
    (first, second, large)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amd_describes_both_levels() {
        // Zen 3: 64 entries, all ways, also for large pages; 2048 entries, 8 ways.
        let found = of_amd(0xff40_ff40, 0xff40_ff40, 6 << 28 | 2048 << 16);
        let (first, second) = (Level { entries: 64, ways: 64 }, Level { entries: 2048, ways: 8 });
        assert_eq!(found, (Some(first), Some(second), Some(64)));
        // What cannot be is not believed.
        assert_eq!(of_amd(0, 0, 9 << 28 | 2048 << 16), (None, None, None));
        assert_eq!(Level::new(100, 8), None);
    }
}
