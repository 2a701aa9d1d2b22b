//! Which pages of a file are there: what was written or asked for takes room, and what lies between is a hole.

use alloc::collections::BTreeMap;
use core::ops::Range;

/// Pieces that are kept of one file. Of one in more pieces all counts as there.
const MOST: usize = 4096;

/// Ranges of numbers that have no number in common and do not touch: each start with its end.
#[derive(Clone, Default, Debug)]
pub struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// All numbers of a range belong to it.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        // Those that it touches become one with it.
        while let Some((&at, &to)) = self.0.range(..=end).next_back().filter(|(_, to)| **to >= start) {
            self.0.remove(&at);
            (start, end) = (start.min(at), end.max(to));
        }
        self.0.insert(start, end);
    }

    /// No number of a range belongs to it any more.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&at, &to)) =
            self.0.range(..range.end).next_back().filter(|(_, to)| **to > range.start)
        {
            self.0.remove(&at);
            if to > range.end {
                self.0.insert(range.end, to);
            }
            if at < range.start {
                self.0.insert(at, range.start);
            }
        }
    }

    /// How many numbers belong to it.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(at, end)| end - at).sum()
    }

    /// The first number from `from` on that belongs to it.
    pub fn next(&self, from: u64) -> Option<u64> {
        let inside = self.0.range(..=from).next_back().filter(|(_, end)| **end > from);
        inside.map(|_| from).or_else(|| self.0.range(from..).next().map(|(&at, _)| at))
    }

    /// The first number from `from` on that does not.
    pub fn gap(&self, from: u64) -> u64 {
        self.0.range(..=from).next_back().map_or(from, |(_, &end)| end.max(from))
    }
}

/// The pages of a file that are there.
#[derive(Clone, Debug)]
pub enum Extents {
    /// All of them: a program writes through a mapping, which nobody sees, or there are too many pieces.
    All,
    /// Those that take room, and those of them that were written to.
    Some {
        /// Those that take room.
        kept: Ranges,
        /// Those that were written to.
        written: Ranges,
    },
}

impl Extents {
    /// Of a file whose first pages are there.
    pub fn new(pages: u64) -> Extents {
        let mut all = Ranges::default();
        all.insert(0..pages);
        Extents::Some { kept: all.clone(), written: all }
    }

    /// Pages are written to.
    pub fn write(&mut self, pages: Range<u64>) {
        if let Extents::Some { kept, written } = self {
            kept.insert(pages.clone());
            written.insert(pages);
            if written.0.len() > MOST || kept.0.len() > MOST {
                *self = Extents::All;
            }
        }
    }

    /// Pages are to take room, whether anything is written there or not.
    pub fn keep(&mut self, pages: Range<u64>) {
        if let Extents::Some { kept, .. } = self {
            kept.insert(pages);
            if kept.0.len() > MOST {
                *self = Extents::All;
            }
        }
    }

    /// Pages become a hole.
    pub fn cut(&mut self, pages: Range<u64>) {
        if let Extents::Some { kept, written } = self {
            kept.remove(pages.clone());
            written.remove(pages);
        }
    }

    /// How many pages take room, of a file of so many.
    pub fn count(&self, pages: u64) -> u64 {
        match self {
            Extents::All => pages,
            Extents::Some { kept, .. } => kept.count(),
        }
    }

    /// The first page from `from` on that was written to.
    pub fn data(&self, from: u64) -> Option<u64> {
        match self {
            Extents::All => Some(from),
            Extents::Some { written, .. } => written.next(from),
        }
    }

    /// The first page from `from` on that was not; of a file that is all there, none.
    pub fn hole(&self, from: u64) -> Option<u64> {
        match self {
            Extents::All => None,
            Extents::Some { written, .. } => Some(written.gap(from)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_say_what_a_plain_list_says() {
        let mut random = 99_u64;
        let mut next = |most: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % most
        };
        let (mut ranges, mut plain) = (Ranges::default(), [false; 64]);
        for _ in 0..5000 {
            let start = next(60);
            let range = start..start + next(5);
            let put = next(2) == 0;
            plain[range.start as usize..range.end as usize].fill(put);
            if put {
                ranges.insert(range)
            } else {
                ranges.remove(range)
            }
            assert_eq!(ranges.count(), plain.iter().filter(|&&there| there).count() as u64);
            for from in 0..64 {
                let first = |what| plain[from..].iter().position(|&there| there == what).map(|at| from + at);
                assert_eq!(ranges.next(from as u64), first(true).map(|at| at as u64));
                assert_eq!(ranges.gap(from as u64), first(false).unwrap_or(64) as u64);
            }
            let apart =
                ranges.0.iter().zip(ranges.0.iter().skip(1)).all(|((_, end), (start, _))| end < start);
            assert!(apart, "{ranges:?}");
        }
    }

    #[test]
    fn what_is_asked_for_takes_room_and_holds_no_data() {
        let mut extents = Extents::new(2);
        extents.keep(4..8);
        extents.write(5..6);
        assert_eq!((extents.count(100), extents.data(2), extents.hole(0)), (6, Some(5), Some(2)));
        extents.cut(5..7);
        assert_eq!((extents.count(100), extents.data(2), extents.hole(1)), (4, None, Some(2)));
    }

    #[test]
    fn a_file_in_too_many_pieces_counts_as_all_there() {
        let mut extents = Extents::new(0);
        (0..MOST as u64).for_each(|piece| extents.write(2 * piece..2 * piece + 1));
        assert_eq!(extents.count(1 << 20), MOST as u64);
        extents.write(1 << 19..(1 << 19) + 1);
        assert_eq!((extents.count(1 << 20), extents.data(7), extents.hole(7)), (1 << 20, Some(7), None));
    }
}
