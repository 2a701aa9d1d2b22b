//! Whom Linux asks for a flush, and this core does not: CPUs that have gone on with another space.
//!
//! Since 6.14 a CPU that goes on with another program stays in the mask of the old one's space, so that a switch writes to no line that others want.
//! A flush that finds it gone takes it out. If page tables go, everybody in the mask is asked; otherwise those who have left are asked by one flush
//! in a second, and by none in the first second of a space.

use std::collections::{BTreeMap, BTreeSet};

use quietmm::FrameNumber;

/// Picoseconds between two flushes that look for CPUs that have left.
const TRIM: u64 = 1_000_000_000_000;

/// A space, as Linux would see it.
struct Seen {
    /// Who has used it, and was not found gone since.
    mask: BTreeSet<u16>,
    /// When the next flush looks for those who have left, in picoseconds.
    trim: u64,
}

/// The masks of all spaces, by their top tables.
#[derive(Default)]
pub(crate) struct Left(BTreeMap<FrameNumber, Seen>);

impl Left {
    /// A CPU uses a space from here on.
    pub fn loads(&mut self, cpu: u16, root: FrameNumber, now: u64) {
        let begins = || Seen { mask: BTreeSet::new(), trim: now + TRIM };
        self.0.entry(root).or_insert_with(begins).mask.insert(cpu);
    }

    /// A frame is free: if it was a top table, its space has ended.
    pub fn ends(&mut self, frame: FrameNumber) {
        self.0.remove(&frame);
    }

    /// A CPU begins a flush of a space. Returns how many others are asked that no longer use it, by what is said of each: they leave the mask.
    /// One that is lazy is asked only if tables go.
    pub fn asked(
        &mut self,
        by: u16,
        root: FrameNumber,
        tables: bool,
        now: u64,
        (uses, lazy): (impl Fn(u16) -> bool, impl Fn(u16) -> bool),
    ) -> u64 {
        let Some(seen) = self.0.get_mut(&root) else { return 0 };
        // Whoever is alone looks for nobody.
        let looks = now >= seen.trim && seen.mask.iter().any(|&cpu| cpu != by);
        if looks {
            seen.trim = now + TRIM;
        }
        if !tables && !looks {
            return 0;
        }
        let before = seen.mask.len();
        seen.mask.retain(|&cpu| cpu == by || uses(cpu) || (!tables && lazy(cpu)));
        (before - seen.mask.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: FrameNumber = FrameNumber(7);

    #[test]
    fn who_has_left_is_asked_once_if_tables_go_and_otherwise_by_one_flush_in_a_second() {
        let mut left = Left::default();
        let uses = |cpu| cpu == 0;
        let asked = |left: &mut Left, by, root, tables, now| {
            left.asked(by, root, tables, now, (uses, |cpu| cpu == 4))
        };
        (0..3).for_each(|cpu| left.loads(cpu, ROOT, 10));
        assert_eq!(asked(&mut left, 0, ROOT, false, 9 + TRIM), 0, "the first second");
        assert_eq!(asked(&mut left, 0, ROOT, true, 9 + TRIM), 2);
        assert_eq!(asked(&mut left, 0, ROOT, true, 10 + TRIM), 0, "they were found gone");
        left.loads(1, ROOT, 11 + TRIM);
        assert_eq!(asked(&mut left, 0, ROOT, false, 12 + TRIM), 1, "nobody has looked since, but one alone");
        left.loads(1, ROOT, 12 + TRIM);
        left.loads(4, ROOT, 12 + TRIM);
        assert_eq!(asked(&mut left, 0, ROOT, false, 11 + 2 * TRIM), 0, "and not again in the next");
        assert_eq!(asked(&mut left, 1, ROOT, false, 12 + 2 * TRIM), 0, "nobody asks itself, nor who is lazy");
        assert_eq!(asked(&mut left, 1, ROOT, true, 13 + 2 * TRIM), 1, "unless tables go");
        assert_eq!(asked(&mut left, 0, FrameNumber(8), true, 40), 0, "another space");
        left.ends(ROOT);
        assert_eq!(asked(&mut left, 0, ROOT, true, 3 * TRIM), 0, "one that has ended");
    }
}
