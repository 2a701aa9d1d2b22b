//! Page tables: which there are after each operation, as a small model has it, and that none is lost, whatever lies how far apart.

use crate::machine;

use std::collections::BTreeSet;

use machine::{Host, Mm, Setup, bare, pages};
use quietmm::{Backing, Config, PageNumber, Prot, SpaceId, UserAccess};

/// Bits of a page number that a table of each level is found by, and levels below the root.
const SHIFT: u32 = 9;
const LEVELS: u32 = 3;

/// Numbers by chance, always the same.
fn chance(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) % below
    }
}

/// Borders of tables of each level, and their neighbours: pages that share all, some, or no tables.
fn places() -> Vec<u64> {
    let mut all = Vec::new();
    for top in [0, 1, 3] {
        for middle in [0, 1, 511] {
            for low in [0, 2, 511] {
                let table = (top << (3 * SHIFT)) + (middle << (2 * SHIFT)) + (low << SHIFT);
                all.extend([table, table + 1, table + 511]);
            }
        }
    }
    all.retain(|&page| page > 0);
    all.sort_unstable();
    all.dedup();
    all
}

/// What there should be.
#[derive(Default)]
struct Model {
    /// Ranges that are mapped, in order, each by its first page and its end.
    mapped: Vec<(u64, u64)>,
    /// Tables below the root, by level and number.
    tables: BTreeSet<(u32, u64)>,
    touched: BTreeSet<u64>,
}

impl Model {
    fn is_free(&self, (from, to): (u64, u64)) -> bool {
        self.mapped.iter().all(|&(start, end)| end <= from || to <= start)
    }

    fn touch(&mut self, page: u64) {
        self.touched.insert(page);
        self.tables.extend((0..LEVELS).map(|level| (level, page >> (SHIFT * (level + 1)))));
    }

    /// A table goes with the range if it is on the way to a page of it, and to no page that is still mapped.
    fn unmap(&mut self, (from, to): (u64, u64)) {
        let cut = self.mapped.iter().flat_map(|&(start, end)| [(start, end.min(from)), (start.max(to), end)]);
        self.mapped = cut.filter(|(start, end)| start < end).collect();
        let mapped = std::mem::take(&mut self.mapped);
        self.tables.retain(|&(level, number)| {
            let (first, end) = (number << (SHIFT * (level + 1)), (number + 1) << (SHIFT * (level + 1)));
            let is_on_the_way = first < to && from < end;
            !is_on_the_way || mapped.iter().any(|&(start, stop)| start < end && first < stop)
        });
        self.mapped = mapped;
        self.touched.retain(|page| !(from..to).contains(page));
    }
}

struct Case<'m, 'p> {
    mm: &'m Mm<'p>,
    id: SpaceId,
    model: Model,
    before: u64,
}

impl Case<'_, '_> {
    fn step(&mut self, all: &[u64], chance: &mut impl FnMut(u64) -> u64) {
        let space = self.mm.space(self.id);
        let mut place = || all[chance(all.len() as u64) as usize];
        let (one, two) = (place(), place());
        let (from, to) = (one.min(two), one.max(two) + 1);
        match chance(8) {
            0..3 => {
                let done = space.map(pages(from, to - from), Backing::Anonymous, Prot::ReadWrite);
                assert_eq!(done.is_ok(), self.model.is_free((from, to)));
                if done.is_ok() {
                    self.model.mapped.push((from, to));
                    self.model.mapped.sort_unstable();
                }
            }
            3..6 => {
                let mapped = !self.model.is_free((one, one + 1));
                assert_eq!(space.fault(PageNumber(one).addr(), UserAccess::Write).is_ok(), mapped);
                if mapped {
                    self.model.touch(one);
                }
            }
            // A range as it was mapped, or to or from somewhere in its middle; or the pages around one.
            kind => {
                let Some(&(start, end)) = self.model.mapped.iter().find(|&&(_, end)| end > from) else {
                    return;
                };
                let range = match kind {
                    6 if from > start => [(start, from), (from, end)][chance(2) as usize],
                    6 => (start, end),
                    _ => (from.saturating_sub(3).max(start), (from + 3).min(end)),
                };
                if range.0 < range.1 {
                    space.unmap(pages(range.0, range.1 - range.0)).unwrap();
                    self.model.unmap(range);
                }
            }
        }
        let audit = self.mm.validate();
        assert_eq!(audit.broken, None);
        assert_eq!(
            (audit.tables - self.before, audit.anon),
            (self.model.tables.len() as u64, self.model.touched.len() as u64)
        );
    }
}

#[test]
fn tables_that_lead_to_nothing_mapped_go_with_the_range_and_no_others() {
    for policy in ["vanilla", "linux"] {
        let host = Host::new(Setup { cpus: 2, frames: 1024, ..Setup::default() });
        host.run(Config { resched_after: 64, ..bare(policy) }, |mm| {
            let id = mm.create_space().unwrap();
            let before = mm.validate();
            host.on(1, || mm.space(id).switch_to().unwrap());
            let all = places();
            let mut chance = chance(15);
            let mut case = Case { mm, id, model: Model::default(), before: before.tables };
            let mut most = [0; LEVELS as usize];
            for _ in 0..600 {
                case.step(&all, &mut chance);
                for level in 0..LEVELS {
                    let now = case.model.tables.iter().filter(|(of, _)| *of == level).count();
                    most[level as usize] = now.max(most[level as usize]);
                }
            }
            assert!(most.iter().all(|&most| most > 2), "tables of each level, at once: {most:?}");
            let mapped = case.model.mapped.clone();
            mapped.into_iter().for_each(|(from, to)| mm.space(id).unmap(pages(from, to - from)).unwrap());
            let after = mm.validate();
            assert_eq!((after.tables, after.anon, after.mapped), (before.tables, 0, 0));
        });
    }
}
