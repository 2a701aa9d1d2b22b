//! Compacting the address space: a program's few regions lie terabytes apart, and page numbers have 32 bits.
//!
//! Small gaps stay. A large one shrinks, but to a distance that leaves each page at its place in its lowest-level page
//! table; so two pages share a table in the trace exactly if they shared one in the program.

use std::collections::BTreeMap;

use quietmm_workloads::trace::MAX_SPAN;

/// Pages under one page table of the lowest level on x86-64, and the longest gap that stays as it is.
pub(super) const GAP: u32 = 512;

/// Where the page at `page` goes, if the page below it, at `below`, went to `to`.
fn place(page: u64, below: u64, to: u64) -> u64 {
    let gap = u64::from(GAP);
    let distance = page - below;
    if distance <= gap { to + distance } else { to + gap + distance % gap }
}

/// The compacted number of each page, by its number of first touch. The error is the span that would be needed.
pub(super) fn compact(ids: &BTreeMap<u64, u32>) -> Result<Vec<u32>, u64> {
    let mut numbers = vec![0; ids.len()];
    let mut below = None;
    let mut span = 0;
    for (&page, &id) in ids {
        let to = match below {
            None => page % u64::from(GAP),
            Some((below, to)) => place(page, below, to),
        };
        below = Some((page, to));
        span = to + 1;
        // Cut off here only if the span is refused below.
        numbers[id as usize] = to as u32;
    }
    if span > MAX_SPAN { Err(span) } else { Ok(numbers) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compacted(pages: &[u64]) -> Vec<u32> {
        compact(&pages.iter().enumerate().map(|(id, &page)| (page, id as u32)).collect()).unwrap()
    }

    #[test]
    fn small_gaps_stay_and_large_ones_shrink() {
        assert_eq!(compacted(&[0x401, 0x402, 0x602, 0x1_fff0_0002, 0x1_fff0_0003]), [1, 2, 514, 1026, 1027]);
    }

    #[test]
    fn pages_share_a_table_exactly_if_they_did() {
        let mut state = 1u64;
        let mut pages: Vec<u64> = (0..3000)
            .map(|_| {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let spread = [300, 3000, 1 << 20, 1 << 40][(state >> 60) as usize % 4];
                (state >> 20) % spread
            })
            .collect();
        pages.sort_unstable();
        pages.dedup();
        let numbers = compacted(&pages);
        for (page, number) in pages.windows(2).zip(numbers.windows(2)) {
            assert_eq!(page[0] / 512 == page[1] / 512, number[0] / 512 == number[1] / 512, "{page:?}");
            assert!(number[0] < number[1]);
            assert_eq!(page[1] % 512, u64::from(number[1]) % 512);
        }
    }

    #[test]
    fn a_span_beyond_32_bits_is_refused() {
        let pages = (0..(1u64 << 23)).map(|id| (id * 1023, id as u32)).collect();
        assert!(compact(&pages).unwrap_err() > MAX_SPAN);
    }
}
