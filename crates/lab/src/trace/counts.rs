//! Counting what is in a trace: pages, how hot they are, working sets.

use std::collections::BTreeMap;

use quietmm_workloads::trace::Trace;

use super::show::{Folded, Hottest, WorkingSet};

/// Accesses over which a working set is taken.
const SLICE: u64 = 1_000_000;
/// Shares of the pages, in percent, whose share of the accesses is told.
const HOTTEST: [u64; 4] = [1, 5, 20, 50];

/// A share, 0 of nothing.
pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// What one page gets in the whole trace.
#[derive(Clone, Copy, Default)]
pub(super) struct Page {
    accesses: u64,
    pub(super) written: bool,
    /// The last slice that touched it, plus 1.
    slice: u64,
}

/// What is counted in one pass over the records.
pub(super) struct Counts {
    /// By page number. A map, because the span is the file's word and may be 2^32.
    pub(super) pages: BTreeMap<u32, Page>,
    pub(super) folded: Vec<Folded>,
    pub(super) working_set: WorkingSet,
}

impl Counts {
    pub(super) fn of(trace: &Trace<'_>) -> Self {
        let mut pages: BTreeMap<u32, Page> = BTreeMap::new();
        let mut folded = [0u64; 64];
        let mut slices = vec![0u64];
        let mut in_slice = 0u64;
        for record in trace.records() {
            let accesses = record.accesses();
            folded[accesses.max(1).ilog2() as usize] += 1;
            // A slice ends with the record that fills it, so it may be a record longer than it should.
            if in_slice >= SLICE {
                slices.push(0);
                in_slice = 0;
            }
            let page = pages.entry(record.page).or_default();
            page.accesses = page.accesses.saturating_add(accesses);
            page.written |= record.writes > 0;
            let slice = slices.len() as u64;
            if page.slice != slice {
                page.slice = slice;
                slices[slice as usize - 1] += 1;
            }
            in_slice = in_slice.saturating_add(accesses);
        }
        if slices.len() > 1 && in_slice < SLICE {
            slices.pop();
        }
        let working_set = WorkingSet {
            slice: SLICE,
            slices: slices.len() as u64,
            least: slices.iter().copied().min().unwrap_or(0),
            mean: slices.iter().sum::<u64>() / slices.len() as u64,
            most: slices.iter().copied().max().unwrap_or(0),
        };
        let folded = folded.iter().enumerate().filter(|(_, records)| **records > 0);
        let folded = folded.map(|(log, &records)| Folded { from: 1 << log, to: (2 << log) - 1, records });
        Self { pages, folded: folded.collect(), working_set }
    }

    /// Aligned groups of `gap` pages that hold at least one.
    pub(super) fn tables(&self, gap: u32) -> u64 {
        let mut tables: Vec<u32> = self.pages.keys().map(|page| page / gap.max(1)).collect();
        tables.dedup();
        tables.len() as u64
    }

    /// How many of `all` accesses the hottest pages get.
    pub(super) fn hottest(&self, all: u64) -> Vec<Hottest> {
        let mut accesses: Vec<u64> = self.pages.values().map(|page| page.accesses).collect();
        accesses.sort_unstable_by(|a, b| b.cmp(a));
        let hottest = |percent: u64| {
            let pages = (accesses.len() as u64 * percent).div_ceil(100);
            let sum = accesses[..pages as usize].iter().fold(0u64, |sum, &count| sum.saturating_add(count));
            Hottest { percent_of_pages: percent, pages, percent_of_accesses: 100.0 * ratio(sum, all) }
        };
        HOTTEST.map(hottest).to_vec()
    }
}
