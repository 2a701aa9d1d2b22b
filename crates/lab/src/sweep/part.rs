//! A part of a grid, for one of many machines. Of as many points in a row as there are parts each part has one, and which one
//! changes from row to row as if by chance: along an axis points mostly take longer and longer, and no part has only the long ones.

use std::fmt;
use std::str::FromStr;

/// Parts of one grid, at most.
const MOST: u64 = 1_000_000;

/// The `nth` of so many parts, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    nth: u64,
    of: u64,
}

impl Part {
    /// The whole grid.
    pub const ALL: Part = Part { nth: 1, of: 1 };

    /// How many of `points` are in it.
    pub fn count(self, points: u64) -> u64 {
        let rows = points / self.of;
        rows + u64::from(self.of_row(rows) < points)
    }

    /// Its points, in order.
    pub fn points(self, points: u64) -> impl Iterator<Item = u64> {
        (0..self.count(points)).map(move |row| self.of_row(row))
    }

    /// Its point of a row.
    fn of_row(self, row: u64) -> u64 {
        row * self.of + (self.nth - 1 + self.of - self.turn(row)) % self.of
    }

    /// By so much a row is turned.
    fn turn(self, row: u64) -> u64 {
        // Fibonacci hashing: rows one after the other are turned by amounts far apart.
        (row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % self.of
    }

    /// Where in it a point stands, if it is one of its.
    pub fn index(self, point: u64) -> Option<u64> {
        (self.with(point) == self).then_some(point / self.of)
    }

    /// The part of as many that has a point.
    pub fn with(self, point: u64) -> Part {
        Part { nth: (point % self.of + self.turn(point / self.of)) % self.of + 1, of: self.of }
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        let part = text.split_once('/').and_then(|(nth, of)| Some((nth.parse().ok()?, of.parse().ok()?)));
        match part {
            Some((nth, of)) if (1..=MOST).contains(&of) && (1..=of).contains(&nth) => Ok(Part { nth, of }),
            Some((_, of)) if (1..=MOST).contains(&of) => Err(format!("must be 1/{of} to {of}/{of}")),
            Some(_) => Err(format!("must be I/N with 1 to {MOST} parts")),
            None => Err("must be I/N, as 2/8: the second of eight parts".to_string()),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.nth, self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_grid_have_each_point_once() {
        for (points, of) in [(12, 1), (12, 5), (12, 12), (3, 7), (1, 1), (1000, 7)] {
            let parts = (1..=of).map(|nth| Part { nth, of });
            let mut all: Vec<u64> = parts.clone().flat_map(|part| part.points(points)).collect();
            all.sort_unstable();
            assert_eq!(all, (0..points).collect::<Vec<_>>(), "{points} in {of}");
            for part in parts {
                assert_eq!(part.points(points).count() as u64, part.count(points));
                for (index, point) in part.points(points).enumerate() {
                    assert_eq!((part.index(point), part.with(point)), (Some(index as u64), part));
                }
                assert!(of == 1 || (0..of).filter(|&point| part.index(point).is_some()).count() == 1);
            }
        }
    }

    #[test]
    fn no_part_has_only_what_takes_long() {
        // The longest are those of the last column.
        for (width, of) in [(7, 7), (6, 7), (8, 7), (14, 7), (13, 4), (4, 2)] {
            let long: Vec<usize> = (1..=of)
                .map(|nth| {
                    Part { nth, of }.points(width * 60).filter(|point| point % width == width - 1).count()
                })
                .collect();
            let (least, most) = (long.iter().min().unwrap(), long.iter().max().unwrap());
            assert!(*least * 4 > *most, "{width} in {of}: {long:?}");
        }
    }

    #[test]
    fn a_part_reads_as_it_is_written() {
        assert_eq!("2/8".parse::<Part>().map(|part| part.to_string()), Ok("2/8".to_string()));
        for wrong in ["", "2", "0/8", "9/8", "1/0", "a/b", "1/1000001", "-1/2", "1/2/3"] {
            assert!(wrong.parse::<Part>().unwrap_err().starts_with("must be"), "{wrong}");
        }
    }
}
