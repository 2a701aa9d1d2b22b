//! Parts of one grid together: each point once, in order.

use crate::process::ending::Failure;
use crate::study::file::Target;
use crate::sweep::args::MergeArgs;
use crate::sweep::header::Header;
use crate::sweep::lines::Lines;

/// The parts, and which of them has each point.
pub struct Parts {
    parts: Vec<Lines>,
    /// By point; as many parts as there may be files.
    of: Vec<u32>,
    pub header: Header,
}

impl Parts {
    /// All files of a command line, if they are parts of one grid that have each point once.
    pub fn of(args: &MergeArgs) -> Result<Parts, Failure> {
        let mut parts: Vec<Lines> = Vec::new();
        for path in &args.parts {
            let part = Lines::read(path)?;
            if let Some(first) = parts.first() {
                let differences = first.header.whole().differences(&part.header.whole());
                if !differences.is_empty() {
                    let (here, there) = (first.name(), part.name());
                    return Err(Failure::Input(format!(
                        "{there} is no part of the grid of {here}: {differences} (here is {here})"
                    )));
                }
            }
            parts.push(part);
        }
        let Some(header) = parts.first().map(|first| first.header.whole()) else {
            return Err(Failure::Input("no part is named".to_string()));
        };
        let mut of = vec![u32::MAX; header.points as usize];
        for (nth, part) in parts.iter().enumerate() {
            for point in part.there() {
                let slot = &mut of[point as usize];
                if *slot != u32::MAX {
                    let (one, other) = (parts[*slot as usize].name(), part.name());
                    let what = if one == other { "twice".to_string() } else { format!("and {other}") };
                    return Err(Failure::Input(format!("point {point} is in {one} {what}; each part once")));
                }
                *slot = nth as u32;
            }
        }
        let parts = Parts { parts, of, header };
        parts.complete()?;
        Ok(parts)
    }

    /// Whether each point is somewhere.
    fn complete(&self) -> Result<(), Failure> {
        let lacks = |point: &usize| self.of[*point] == u32::MAX;
        let lacking = || (0..self.of.len()).filter(lacks);
        let Some(first) = lacking().next() else { return Ok(()) };
        let count = lacking().count();
        let said = crate::sweep::header::said(self.parts[0].axes(), first as u64);
        let several = if count == 1 { "1 point is".to_string() } else { format!("{count} points are") };
        let missing = format!("{several} missing, the first is point {first} ({said})");
        // Whose it is: of a part that is named and not done, or of one that is not named.
        let unfinished = self.parts.iter().find(|part| part.part().index(first as u64).is_some());
        let right = match unfinished {
            Some(part) => format!("{} is not done; run its command again", part.name()),
            None => format!("the part --shard {} is not named", self.parts[0].part().with(first as u64)),
        };
        Err(Failure::Input(format!("{missing}; {right}")))
    }

    /// Writes all of it.
    pub fn write(&mut self, target: &Target) -> Result<(), Failure> {
        let header = self.header.line();
        target.write("sweep", |to| {
            to.write_all(header.as_bytes())?;
            for (point, &part) in self.of.iter().enumerate() {
                to.write_all(&self.parts[part as usize].line(point as u64)?)?;
            }
            Ok(())
        })
    }
}
