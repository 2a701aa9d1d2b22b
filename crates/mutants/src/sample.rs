//! A part of all mutants, chosen by chance: what is true of it is true of all, within bounds.

use std::collections::BTreeMap;
use std::fmt;

use crate::mutant::{Mutant, hash};
use crate::rooms::room;

/// So many of each room, by this chance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    pub each: usize,
    pub seed: u64,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`--sample {} --seed {}`", self.each, self.seed)
    }
}

/// Where the share of all lies, in percent, if `good` of `all` are, 95 times of 100 (Wilson).
pub fn interval(good: usize, all: usize) -> (f64, f64) {
    if all == 0 {
        return (0.0, 100.0);
    }
    let (n, z) = (all as f64, 1.96_f64);
    let share = good as f64 / n;
    let middle = (share + z * z / (2.0 * n)) / (1.0 + z * z / n);
    let half = z * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt() / (1.0 + z * z / n);
    (100.0 * (middle - half), 100.0 * (middle + half))
}

impl Sample {
    /// Leaves those that are chosen. A change of the source elsewhere changes little of the choice.
    pub fn choose(self, mutants: &mut Vec<Mutant>) {
        let mut order: Vec<(u64, usize)> = mutants
            .iter()
            .enumerate()
            .map(|(at, mutant)| {
                (self.chance(&format!("{} {}", mutant.place_and_change(), mutant.key.nth)), at)
            })
            .collect();
        order.sort_unstable();
        let mut left: BTreeMap<&str, usize> = BTreeMap::new();
        let mut is_chosen = vec![false; mutants.len()];
        for (_, at) in order {
            let left = left.entry(room(&mutants[at].key.file)).or_insert(self.each);
            is_chosen[at] = *left > 0;
            *left = left.saturating_sub(1);
        }
        let mut is_chosen = is_chosen.into_iter();
        mutants.retain(|_| is_chosen.next() == Some(true));
    }

    /// Every bit of the seed and the text matters to every bit of the outcome (the end of splitmix64).
    fn chance(self, text: &str) -> u64 {
        let mix = |bits: u64, shift: u32, by: u64| (bits ^ bits >> shift).wrapping_mul(by);
        let bits = hash(text).wrapping_add(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let bits = mix(mix(bits, 30, 0xbf58_476d_1ce4_e5b9), 27, 0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_holds_the_share_and_narrows() {
        let (low, high) = interval(90, 100);
        assert!((82.0..84.0).contains(&low) && (94.0..95.0).contains(&high), "{low} to {high}");
        let (lower, higher) = interval(9, 10);
        assert!(lower < low && higher > high);
        assert!(interval(10, 10).1 > 99.9 && interval(0, 0) == (0.0, 100.0));
    }
}
