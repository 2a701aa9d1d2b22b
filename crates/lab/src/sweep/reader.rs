//! The lines of a file of a sweep, for another program that reads them itself: each is held against the first.

use crate::sweep::header::{Header, Values};
use crate::sweep::part::Part;
use crate::sweep::point;

/// What a file should have, by its first line.
pub struct SweepReader {
    axes: Vec<Values>,
    points: u64,
    part: Part,
}

impl SweepReader {
    /// Of a file with this first line; or what is wrong with it.
    pub fn of(line: &[u8]) -> Result<SweepReader, String> {
        let line = line.strip_suffix(b"\n").ok_or("it is no file of a sweep; another name")?;
        let header = Header::read(line)?;
        let axes = header.axes().unwrap_or_default();
        Ok(SweepReader { axes, points: header.points, part: header.part().unwrap_or(Part::ALL) })
    }

    /// How many points it has when it is done: of one part, if it is one.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.part.count(self.points)
    }

    /// The point of another of its lines; or what is wrong with that, behind "line N".
    pub fn point(&self, line: &[u8]) -> Result<u64, String> {
        point::whose(line, &self.axes, self.points, self.part).map(|(point, _)| point)
    }
}
