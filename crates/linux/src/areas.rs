//! What a program has mapped where: the list that a kernel needs to find free addresses, to unmap where there are holes, and to
//! print `/proc/self/maps`. The core maps what is told here, and cannot be asked for it.

use alloc::collections::BTreeMap;
use core::cell::Cell;
use core::ops::Range;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// What stays free below an area that grows down: who runs over its stack is to be told, and not to write to what lies there.
pub const GUARD: u64 = 256 * PAGE;

/// Rights, as `mmap` has them: read, write, execute.
pub mod rights {
    /// It may be read.
    pub const READ: u8 = 1;
    /// It may be written.
    pub const WRITE: u8 = 2;
    /// It may be executed.
    pub const EXECUTE: u8 = 4;
    /// All of these.
    pub const ALL: u8 = 7;
    /// It stays in memory.
    pub const LOCKED: u8 = 8;
    /// It grows down when what lies below it is used.
    pub const GROWS: u8 = 16;
    /// A forked process does not have it.
    pub const NOT_FORKED: u8 = 32;
    /// A forked process has it empty.
    pub const WIPED: u8 = 64;
}

/// What an area shows; `F` is a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What<F> {
    /// Memory of the program's own, with a name for whoever asks.
    Own(&'static str),
    /// Part of a file, from this page on.
    File {
        /// The file.
        file: F,
        /// Its first page that is shown.
        page: u64,
        /// What is written reaches it.
        shared: bool,
    },
}

/// What a mapping wants to have.
#[derive(Clone, Copy)]
pub struct Wanted {
    /// So much.
    pub bytes: u64,
    /// It is the program's own to write.
    pub is_data: bool,
    /// Memory is to be there for it.
    pub counts: bool,
}

impl Wanted {
    /// More of what is there already.
    pub fn more(bytes: u64, of: u8) -> Wanted {
        Wanted { bytes, is_data: of & rights::WRITE != 0, counts: of & rights::WRITE != 0 }
    }
}

/// An area: addresses that show the same thing with the same rights.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Area<F> {
    /// One past its last address.
    pub end: u64,
    /// See [`rights`].
    pub rights: u8,
    /// What it shows.
    pub what: What<F>,
}

/// All areas of a space, by their first address.
#[derive(Clone, Debug)]
pub struct Areas<F>(BTreeMap<u64, Area<F>>, Cell<Full>);

/// From an address on up to another one no so many bytes are free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Full {
    from: u64,
    to: u64,
    bytes: u64,
}

/// Nothing is known of any.
const UNKNOWN: Full = Full { from: u64::MAX, to: u64::MAX, bytes: u64::MAX };

impl<F> Default for Areas<F> {
    fn default() -> Self {
        Areas(BTreeMap::new(), Cell::new(UNKNOWN))
    }
}

impl<F: Clone + PartialEq> What<F> {
    fn from(&self, bytes: u64) -> What<F> {
        match self {
            What::File { file, page, shared } => {
                What::File { file: file.clone(), page: page + bytes / PAGE, shared: *shared }
            }
            other => other.clone(),
        }
    }
}

impl<F: Clone + PartialEq> Areas<F> {
    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Area<F>)> {
        self.0.iter().map(|(&start, area)| (start, area))
    }

    /// Those that have an address in common with this range.
    fn meeting(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, &Area<F>)> {
        let (start, end) = (range.start, range.end);
        let first = self.0.range(..start).next_back().filter(|(_, area)| area.end > start);
        let first = first.map_or(start, |(&at, _)| at);
        let end = if range.is_empty() { first } else { end };
        self.0.range(first..end).map(|(&at, area)| (at, area))
    }

    /// The area that has an address.
    pub fn at(&self, address: u64) -> Option<(u64, &Area<F>)> {
        self.0
            .range(..=address)
            .next_back()
            .map(|(&at, area)| (at, area))
            .filter(|(_, area)| area.end > address)
    }

    /// The first area that begins above an address.
    pub fn next(&self, address: u64) -> Option<(u64, &Area<F>)> {
        self.0.range(address + 1..).next().map(|(&at, area)| (at, area))
    }

    /// Whether nothing lies there.
    pub fn is_free(&self, range: &Range<u64>) -> bool {
        self.meeting(range).next().is_none()
    }

    /// The highest free addresses for so many bytes within these bounds, apart from areas that grow down.
    pub fn find_free(&self, bytes: u64, within: &Range<u64>) -> Option<u64> {
        // Where a look for no more has found nothing is looked no more: there may be very many areas.
        let full = self.1.get();
        let skips = full.to == within.end && full.bytes <= bytes;
        let mut end = if skips { full.from } else { within.end };
        for (&start, area) in self.0.range(..end.saturating_add(GUARD)).rev() {
            if area.end < end && end - area.end >= bytes {
                break;
            }
            let apart = if area.rights & rights::GROWS != 0 { GUARD } else { 0 };
            end = end.min(start.saturating_sub(apart));
        }
        if !skips || full.bytes == bytes {
            self.1.set(Full { from: end, to: within.end, bytes });
        }
        end.checked_sub(bytes).filter(|&start| start >= within.start)
    }

    /// Whether nothing that grows down begins so near behind an address that it could come there.
    pub fn is_apart(&self, end: u64) -> bool {
        let behind = end..end.saturating_add(GUARD);
        self.meeting(&behind).next().is_none_or(|(_, area)| area.rights & rights::GROWS == 0)
    }

    /// Whether an area that begins at `end` may grow down to `start`: nothing lies there, and what lies below is far away, unless
    /// nobody may use it, or it grows down as well.
    pub fn may_grow(&self, start: u64, end: u64) -> bool {
        self.0.range(..end).next_back().is_none_or(|(_, last)| {
            let harmless = last.rights & rights::ALL == 0 || last.rights & rights::GROWS != 0;
            last.end <= if harmless { start } else { start.saturating_sub(GUARD) }
        })
    }

    /// How many bytes of a range something lies at.
    pub fn bytes_in(&self, range: &Range<u64>) -> u64 {
        let part = |(at, area): (u64, &Area<F>)| area.end.min(range.end) - at.max(range.start);
        self.meeting(range).map(part).sum()
    }

    /// The first part of a range where something lies, as long as can be.
    pub fn part(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let mut all = self.meeting(range);
        let (start, first) = all.next()?;
        let mut end = first.end;
        for (start, area) in all {
            if start != end {
                break;
            }
            end = area.end;
        }
        Some(start.max(range.start)..end.min(range.end))
    }

    /// Whether something lies at each address of a range.
    pub fn covers(&self, range: &Range<u64>) -> bool {
        self.part(range).is_some_and(|part| part == *range)
    }

    /// The first area in a range, cut to it. Whoever wants all asks again behind it: there may be too many for a list of them.
    pub fn first(&self, range: &Range<u64>) -> Option<(u64, Area<F>)> {
        let (at, area) = self.meeting(range).next()?;
        let start = at.max(range.start);
        let what = area.what.from(start - at);
        Some((start, Area { end: area.end.min(range.end), rights: area.rights, what }))
    }

    /// From where to where the area reaches that an address lies in.
    pub fn around(&self, address: u64) -> Option<Range<u64>> {
        let (at, area) = self.meeting(&(address..address + 1)).next()?;
        Some(at..area.end)
    }

    /// Nothing lies in this range any more.
    pub fn remove(&mut self, range: &Range<u64>) {
        let full = self.1.get();
        if range.end.saturating_add(GUARD) > full.from {
            // What is free there ends with the next area.
            let from = self.0.range(range.end..).next().map_or(full.to, |(&at, _)| at);
            self.1.set(Full { from: from.max(full.from).min(full.to), ..full });
        }
        let next = |areas: &Self| areas.meeting(range).next().map(|(at, area)| (at, area.clone()));
        while let Some((at, area)) = next(self) {
            self.0.remove(&at);
            if area.end > range.end {
                let what = area.what.from(range.end - at);
                self.0.insert(range.end, Area { end: area.end, rights: area.rights, what });
            }
            if at < range.start {
                self.0.insert(at, Area { end: range.start, ..area });
            }
        }
    }

    /// An area where nothing lies.
    pub fn insert(&mut self, start: u64, mut area: Area<F>) {
        debug_assert!(self.is_free(&(start..area.end)));
        let mut start = start;
        // It becomes one area with what lies beside it, if that goes on as it does.
        let goes_on = |at: u64, one: &Area<F>, other: &Area<F>| {
            one.rights == other.rights && one.what.from(one.end - at) == other.what
        };
        if let Some(next) = self.0.get(&area.end).filter(|next| goes_on(start, &area, next)) {
            let end = next.end;
            self.0.remove(&area.end);
            area.end = end;
        }
        let last = self.0.range(..start).next_back().filter(|(_, last)| last.end == start);
        if let Some((&at, last)) = last.filter(|(at, last)| goes_on(**at, last, &area)) {
            area.what = last.what.clone();
            self.0.remove(&at);
            start = at;
        }
        self.0.insert(start, area);
    }

    /// Other rights for all that lies in a range. What is locked stays locked, and what is said besides stays too.
    pub fn protect(&mut self, range: &Range<u64>, rights: u8) {
        self.change(range, |now| now & !rights::ALL | rights);
    }

    /// All that lies in a range is locked, or not any more.
    pub fn lock(&mut self, range: &Range<u64>, on: bool) {
        self.mark(range, rights::LOCKED, on);
    }

    /// Something besides the rights is so for all that lies in a range, or not any more.
    pub fn mark(&mut self, range: &Range<u64>, what: u8, on: bool) {
        self.change(range, |now| if on { now | what } else { now & !what });
    }

    fn change(&mut self, range: &Range<u64>, to: impl Fn(u8) -> u8) {
        let mut at = range.start;
        while let Some((start, area)) = self.first(&(at..range.end)) {
            at = area.end;
            let rights = to(area.rights);
            if rights != area.rights {
                self.remove(&(start..at));
                self.insert(start, Area { rights, ..area });
            }
        }
    }

    /// Nothing is locked any more.
    pub fn unlock_all(&mut self) {
        self.0.values_mut().for_each(|area| area.rights &= !rights::LOCKED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn own(end: u64) -> Area<u32> {
        Area { end, rights: 3, what: What::Own("") }
    }

    fn file(end: u64, page: u64) -> Area<u32> {
        Area { end, rights: 1, what: What::File { file: 7, page, shared: false } }
    }

    #[test]
    fn a_hole_in_the_middle_leaves_both_ends() {
        let mut areas = Areas::default();
        areas.insert(0x1000, file(0x9000, 10));
        assert_eq!(areas.first(&(0x3000..0x5000)), Some((0x3000, file(0x5000, 12))));
        areas.remove(&(0x3000..0x5000));
        assert_eq!(areas.first(&(0x3000..0x5000)), None);
        let left: Vec<_> = areas.iter().map(|(at, area)| (at, area.clone())).collect();
        assert_eq!(left, [(0x1000, file(0x3000, 10)), (0x5000, file(0x9000, 14))]);
        let parts = [0, 0x2000, 0x3000, 0x9000].map(|at| areas.part(&(at..0x10000)));
        assert_eq!(parts, [Some(0x1000..0x3000), Some(0x2000..0x3000), Some(0x5000..0x9000), None]);
        assert!(
            areas.covers(&(0x5000..0x9000))
                && !areas.covers(&(0x4000..0x6000))
                && !areas.covers(&(0x8000..0xa000))
        );
    }

    #[test]
    fn the_highest_gap_that_is_large_enough_is_found() {
        let mut areas = Areas::default();
        let within = 0x1000..0x10000;
        assert_eq!(areas.find_free(0x1000, &within), Some(0xf000));
        areas.insert(0xe000, own(0x10000));
        areas.insert(0xb000, own(0xd000));
        assert_eq!(areas.find_free(0x1000, &within), Some(0xd000));
        assert_eq!(areas.find_free(0x2000, &within), Some(0x9000));
        assert_eq!(areas.find_free(0xa000, &within), Some(0x1000));
        assert_eq!(areas.find_free(0xb000, &within), None);
        // What lies above the bounds, and across them, is not looked at.
        areas.insert(0x20000, own(0x30000));
        assert_eq!(areas.find_free(0x1000, &within), Some(0xd000));
        assert_eq!(areas.find_free(0x1000, &(0x1000..0xf000)), Some(0xd000));
    }

    #[test]
    fn what_was_found_full_is_looked_at_again_once_something_goes() {
        // By chance, beside one that knows of nothing.
        let (mut areas, mut seed) = (Areas::<u32>::default(), 1_u64);
        let mut chance = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let ends = [600 * PAGE, 1000 * PAGE];
        for _ in 0..20_000 {
            let (bytes, within) = ((1 + chance(6)) * PAGE, PAGE..ends[chance(2) as usize]);
            let found = areas.find_free(bytes, &within);
            let fresh = Areas(areas.0.clone(), Cell::new(UNKNOWN));
            assert_eq!(found, fresh.find_free(bytes, &within), "{areas:?}");
            let grows = if chance(20) == 0 { rights::GROWS } else { 0 };
            match found {
                Some(at) if chance(3) > 0 => {
                    areas.insert(at, Area { rights: chance(4) as u8 | grows, ..own(at + bytes) });
                }
                _ => {
                    let at = chance(1000) * PAGE;
                    areas.remove(&(at..at + (1 + chance(20)) * PAGE));
                }
            }
        }
    }

    #[test]
    fn what_an_area_may_grow_into_is_not_free_for_others() {
        let (mut areas, at) = (Areas::default(), 2 * GUARD);
        areas.insert(at, Area { rights: rights::GROWS, ..own(at + PAGE) });
        let found = |within: Range<u64>| areas.find_free(PAGE, &within);
        assert_eq!(found(0..at + 2 * PAGE), Some(at + PAGE));
        assert_eq!(found(0..at + PAGE), Some(at - GUARD - PAGE));
        assert_eq!(found(at - GUARD..at), None);
    }

    #[test]
    fn own_memory_side_by_side_is_one_area() {
        let mut areas = Areas::default();
        areas.insert(0x1000, own(0x2000));
        areas.insert(0x3000, own(0x4000));
        areas.insert(0x2000, own(0x3000));
        assert_eq!(areas.iter().count(), 1);
        areas.protect(&(0x2000..0x3000), 1);
        assert_eq!(areas.iter().count(), 3);
        areas.protect(&(0x2000..0x3000), 3);
        assert_eq!(areas.iter().count(), 1);
    }

    #[test]
    fn parts_of_a_file_that_go_on_are_one_area() {
        let mut areas = Areas::default();
        areas.insert(0x1000, file(0x4000, 10));
        areas.protect(&(0x2000..0x3000), 3);
        assert_eq!(areas.iter().count(), 3);
        areas.protect(&(0x2000..0x3000), 1);
        let all = |areas: &Areas<u32>| areas.iter().map(|(at, area)| (at, area.clone())).collect::<Vec<_>>();
        assert_eq!(all(&areas), [(0x1000, file(0x4000, 10))]);
        areas.insert(0x4000, file(0x5000, 14));
        areas.insert(0x6000, file(0x7000, 16));
        areas.insert(0x5000, file(0x6000, 15));
        assert_eq!(all(&areas), [(0x1000, file(0x4000, 10)), (0x4000, file(0x7000, 14))]);
        assert_eq!(
            [0..0x9000, 0x2000..0x3000, 0x6000..0x9000].map(|range| areas.bytes_in(&range)),
            [0x6000, 0x1000, 0x1000]
        );
    }

    #[test]
    fn what_grows_keeps_away_from_what_may_be_used() {
        let (mut areas, at) = (Areas::default(), 4 * GUARD);
        areas.insert(at, Area { rights: rights::GROWS | 3, ..own(at + PAGE) });
        assert!(areas.may_grow(0, at) && !areas.is_apart(at - PAGE) && areas.is_apart(at - GUARD));
        areas.insert(GUARD, own(2 * GUARD));
        assert!(areas.may_grow(3 * GUARD, at) && !areas.may_grow(3 * GUARD - PAGE, at));
        areas.protect(&(GUARD..2 * GUARD), 0);
        assert!(areas.may_grow(2 * GUARD, at) && !areas.may_grow(2 * GUARD - PAGE, at));
    }

    #[test]
    fn what_is_locked_stays_so_whatever_its_rights() {
        let mut areas = Areas::default();
        areas.insert(0x1000, own(0x9000));
        areas.lock(&(0x2000..0x4000), true);
        areas.protect(&(0x3000..0x6000), 1);
        let rights = |areas: &Areas<u32>, at| areas.at(at).unwrap().1.rights;
        assert_eq!([0x1000, 0x2000, 0x3000, 0x4000].map(|at| rights(&areas, at)), [3, 11, 9, 1]);
        areas.lock(&(0x1000..0x9000), false);
        areas.protect(&(0x1000..0x9000), 3);
        assert_eq!(areas.iter().count(), 1);
    }

    #[test]
    fn whoever_asks_again_behind_each_comes_to_the_end() {
        let mut areas = Areas::default();
        areas.insert(0x1000, own(0x9000));
        // Inside one area, with the rights that it has.
        areas.protect(&(0x2000..0x4000), 3);
        assert_eq!(areas.iter().count(), 1);
        assert_eq!(areas.first(&(0x4000..0x4000)), None);
        assert!(areas.part(&(0x4000..0x4000)).is_none() && areas.is_free(&(0x4000..0x4000)));
        assert!(!areas.covers(&(0x8000..0xa000)) && areas.covers(&(0x8000..0x9000)));
    }

    #[test]
    fn it_says_what_a_plain_list_of_pages_says() {
        let mut random = 12345_u64;
        let mut next = |most: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % most
        };
        let (mut areas, mut plain) = (Areas::default(), [None; 64]);
        for _ in 0..5000 {
            let start = next(60);
            let pages = 1 + next(8).min(63 - start);
            let range = start * PAGE..(start + pages) * PAGE;
            let there = start as usize..(start + pages) as usize;
            match next(3) {
                0 => {
                    areas.remove(&range);
                    plain[there].fill(None);
                }
                1 => {
                    areas.remove(&range);
                    areas.insert(range.start, file(range.end, start));
                    there.clone().for_each(|page| plain[page] = Some((page as u64, 1)));
                }
                _ => {
                    areas.protect(&range, 5);
                    plain[there].iter_mut().flatten().for_each(|(_, rights)| *rights = 5);
                }
            }
            for (page, plain) in plain.iter().enumerate() {
                let found = areas.at(page as u64 * PAGE).map(|(at, area)| {
                    let What::File { page: first, .. } = area.what else { panic!("all are files") };
                    (first + page as u64 - at / PAGE, area.rights)
                });
                assert_eq!(found, *plain, "page {page}");
            }
        }
    }
}
