//! Page tables: which there are after each operation, as a small model has it, and that none is lost, whatever lies how far apart.

use crate::machine;

use std::collections::BTreeSet;

use machine::faults::{AT, own};
use machine::race::{at_every_touch, race};
use machine::{Host, Mm, Setup, bare, exhaust, give_back, pages, settled};
use quietmm::{Advice, Backing, Config, PageNumber, PageRange, Prot, Rule, SpaceId, UserAccess};

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
    all.retain(|&page| page >= PageRange::MAPPABLE.start.0);
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

impl Model {
    /// Where there are tables at the old place there are some at the new one, pages or not.
    fn move_to(&mut self, (from, end): (u64, u64), to: u64) {
        let there = |page: u64| page - from + to;
        let of_pages = self.tables.iter().filter(|(level, _)| *level == 0);
        let parts: Vec<(u64, u64)> = of_pages
            .map(|&(_, number)| ((number << SHIFT).max(from), ((number + 1) << SHIFT).min(end)))
            .filter(|(first, end)| first < end)
            .collect();
        for page in parts.into_iter().flat_map(|(first, end)| [there(first), there(end - 1)]) {
            self.tables.extend((0..LEVELS).map(|level| (level, page >> (SHIFT * (level + 1)))));
        }
        let touched: Vec<u64> = self.touched.range(from..end).copied().collect();
        self.mapped.push((to, there(end)));
        self.mapped.sort_unstable();
        self.unmap((from, end));
        self.touched.extend(touched.into_iter().map(there));
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
        match chance(10) {
            0..3 => {
                let done = space.map(pages(from, to - from), Backing::Anonymous, Prot::ReadWrite);
                assert_eq!(done.is_ok(), self.model.is_free((from, to)), "{done:?}");
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
            8.. => {
                let Some(&(start, end)) = self.model.mapped.iter().find(|&&(_, end)| end > two) else {
                    return;
                };
                let (start, end) = (start.max(two), end.min(two.max(start) + 1024));
                let is_free = self.model.is_free((one, one + end - start));
                let moved = space.move_range(pages(start, end - start), PageNumber(one));
                assert_eq!(moved.is_ok(), is_free, "{moved:?}");
                if is_free {
                    self.model.move_to((start, end), one);
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

/// A page is moved away, or a place without one, and with it goes the last that its table led to; a CPU touches the old place before and after. Returns tables that
/// were freed under a CPU, flushes of others for the move, and the tables that are left.
fn moved_away(policy: &str, present: bool, broken: Option<Rule>) -> (u32, usize, u64) {
    const BESIDE: u64 = AT + 0x400;
    let host = Host::new(Setup { cpus: 2, tags: 2, frames: 1024, broadcast: true, ..Setup::default() });
    host.broken.set(broken);
    host.run(bare(policy), |mm| {
        let id = own(mm, 2, &[0, 1]);
        mm.space(id).map(pages(BESIDE, 1), Backing::Anonymous, Prot::ReadWrite).unwrap();
        for (cpu, page) in [(0, AT), (1, AT), (1, BESIDE)] {
            host.on(cpu, || host.write(mm, id, page, 7).unwrap());
        }
        if !present {
            mm.space(id).advise(pages(BESIDE, 1), Advice::Drop).unwrap();
            host.on(1, || assert_eq!(host.try_read(BESIDE), None, "it walks, and finds no page"));
        }
        host.forget();
        // Under the same upper tables.
        mm.space(id).move_range(pages(BESIDE, 1), PageNumber(AT + 0x800)).unwrap();
        let flushes = host.interrupts() + host.broadcasts().len();
        // Nothing is mapped there: the program has an error, and the CPU would keep the way if there were one.
        host.on(1, || assert_eq!(host.try_read(BESIDE), None));
        mm.space(id).unmap(pages(AT, 2)).unwrap();
        (host.stale.get(), flushes, mm.space(id).usage().unwrap().tables)
    })
}

#[test]
fn tables_that_a_move_has_emptied_go_with_it_after_a_flush() {
    for policy in ["linux", "linux+flush=broadcast"] {
        // The root, two above, and the one of what was moved.
        assert_eq!(
            moved_away(policy, true, None),
            (0, 2, 4),
            "{policy}: before entries move, before the table goes"
        );
        assert_eq!(moved_away(policy, false, None), (0, 1, 4), "{policy}: before the table goes");
        let (stale, ..) = moved_away(policy, false, Some(Rule::TablesAfterFlush));
        assert!(stale > 0, "{policy}");
    }
}

#[test]
fn a_page_that_is_moved_on_and_on_has_no_more_tables_than_it_needs() {
    let host = Host::new(Setup { frames: 1024, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let id = own(mm, 1, &[0]);
        host.write(mm, id, AT, 1).unwrap();
        let tables = mm.space(id).usage().unwrap().tables;
        for n in 0..50 {
            mm.space(id).move_range(pages(AT + 0x200 * n, 1), PageNumber(AT + 0x200 * (n + 1))).unwrap();
            assert_eq!(mm.space(id).usage().unwrap().tables, tables, "after {n}");
        }
    });
}

#[test]
fn a_move_for_which_there_is_no_memory_leaves_no_tables() {
    let host = Host::new(Setup { frames: 1024, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        // Two pages that lie in two tables, and would lie in two at the new place, where there is none at all.
        let id = own(mm, 0x400, &[0]);
        [AT, AT + 0x3ff].iter().for_each(|&page| host.write(mm, id, page, 1).unwrap());
        let free = |leave: usize| {
            let mut held = exhaust(mm);
            let left = held.split_off(held.len() - leave);
            give_back(mm, left);
            held
        };
        let before = mm.space(id).usage().unwrap();
        let mut failed = 0;
        for leave in 0..6 {
            let held = free(leave);
            if mm.space(id).move_range(pages(AT, 0x400), PageNumber(AT << 18)).is_ok() {
                give_back(mm, held);
                break;
            }
            failed += 1;
            assert_eq!(mm.space(id).usage().unwrap(), before, "with {leave} frames");
            give_back(mm, held);
        }
        assert!((3..6).contains(&failed), "{failed} failed");
        assert_eq!(mm.validate().broken, None);
    });
}

/// A long range moves, at both of whose ends others share its tables: the table in the middle, of which all was the range's, goes.
#[test]
fn a_table_in_the_middle_of_a_range_that_moves_goes() {
    const FIRST: u64 = 0x40000;
    let ranges = |mm: &Mm<'_>, count| {
        let id = mm.create_space().unwrap();
        mm.space(id).switch_to().unwrap();
        let map = |at, count, prot| mm.space(id).map(pages(at, count), Backing::Anonymous, prot).unwrap();
        map(FIRST, 256, Prot::Read);
        map(FIRST + 256, count, Prot::ReadWrite);
        map(FIRST + 256 + count, 100, Prot::Read);
        mm.platform().write(mm, id, FIRST + 700, 5).unwrap();
        (id, settled(mm).tables)
    };
    // As long as two tables, longer, and shorter.
    for count in [768, 800, 1024, 1100] {
        let host = Host::new(Setup::default());
        host.run(bare("linux"), |mm| {
            let (id, before) = ranges(mm, count);
            mm.space(id).move_range(pages(FIRST + 256, count), PageNumber(FIRST + 4096 + 256)).unwrap();
            assert_eq!(settled(mm).tables, before, "{count}");
            assert_eq!(host.read(mm, id, FIRST + 4096 + 700), Ok(5));
        });
        // Where the page could wait for a sweep, too: not with its table.
        for policy in ["linux", "linux+free=sweep"] {
            Host::new(Setup::default()).run(bare(policy), |mm| {
                let (id, before) = ranges(mm, count);
                mm.space(id).unmap(pages(FIRST + 256, count)).unwrap();
                assert_eq!(settled(mm).tables, before - 1, "{policy}: {count}");
            });
        }
    }
}

/// Two CPUs want pages that no table leads to yet, at each step of one of them: each table is there once, and gone with the space.
#[test]
fn tables_that_two_make_at_the_same_time_are_there_once() {
    let setup = Setup { cpus: 2, frames: 256, ..Setup::default() };
    let cases = at_every_touch(&setup, &bare("linux"), None, |mm, place| {
        let (host, id) = (mm.platform(), mm.create_space().unwrap());
        mm.space(id).map(pages(0x10000, 2), Backing::Anonymous, Prot::ReadWrite).unwrap();
        (0..2).for_each(|cpu| host.on(cpu, || mm.space(id).switch_to().unwrap()));
        let write = |page: u64| host.write(mm, id, 0x10000 + page, page).unwrap();
        race(mm, place, || write(0), || write(1));
        assert_eq!(settled(mm).broken, None);
        (0..2).for_each(|cpu| host.on(cpu, || mm.unload()));
        mm.space(id).destroy().unwrap();
        assert_eq!(settled(mm).broken, None);
    });
    assert!(cases.results.len() > 20, "{}", cases.results.len());
}
