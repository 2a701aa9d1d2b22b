//! Stalls: something below the kernel (firmware, a hypervisor) takes a CPU away for a while, whether its interrupts
//! are on or not, between any two accesses to shared memory. This makes narrow races wide.

use std::cell::{Cell, RefCell};

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256StarStar;

use crate::machine::Cost;
use crate::order::NEVER;

/// One CPU's stalls.
pub struct Stalls {
    /// When the next one begins, or `NEVER` if there are none.
    next: Cell<u64>,
    /// Longest time between two, and longest stall.
    gap: u64,
    longest: u64,
    rng: RefCell<Xoshiro256StarStar>,
}

impl Stalls {
    /// Those of CPU `id`, if the machine has any.
    pub fn new(cost: &Cost, seed: u64, id: u32) -> Stalls {
        let stalls = Stalls {
            next: Cell::new(NEVER),
            // The time between two is any from 1 to this: half of it in the mean.
            gap: 2 * cost.stall_every,
            longest: cost.stall,
            // Not the numbers that a task of the same number draws.
            rng: RefCell::new(Xoshiro256StarStar::seed_from_u64(
                seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (u64::from(id) + 1) << 32,
            )),
        };
        stalls.after(0);
        stalls
    }

    /// When the next one begins.
    #[inline]
    pub fn next(&self) -> u64 {
        self.next.get()
    }

    /// Takes the one that is due at `now`; returns when it ends.
    pub fn take(&self, now: u64) -> u64 {
        let end = now + 1 + self.rng.borrow_mut().next_u64() % self.longest;
        self.after(end);
        end
    }

    /// The CPU had nothing to do until `now`: a stall in that time went unseen.
    pub fn skip(&self, now: u64) {
        if self.next.get() <= now {
            self.after(now);
        }
    }

    fn after(&self, now: u64) {
        if self.gap > 0 && self.longest > 0 {
            self.next.set(now + 1 + self.rng.borrow_mut().next_u64() % self.gap);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stalls(every: u64, longest: u64, seed: u64) -> Stalls {
        Stalls::new(&Cost { stall_every: every, stall: longest, ..Cost::default() }, seed, 3)
    }

    /// The first `n`: begin and end.
    fn first(stalls: &Stalls, n: usize) -> Vec<(u64, u64)> {
        (0..n).map(|_| (stalls.next(), stalls.take(stalls.next()))).collect()
    }

    #[test]
    fn stalls_come_at_random_within_their_bounds_and_the_same_for_a_seed() {
        let all = first(&stalls(1000, 50, 1), 10_000);
        assert!(all.iter().all(|(begin, end)| (1..=50).contains(&(end - begin))));
        let gaps: Vec<u64> = all.windows(2).map(|pair| pair[1].0 - pair[0].1).collect();
        assert!(gaps.iter().all(|gap| (1..=2000).contains(gap)));
        assert!((950..1050).contains(&(gaps.iter().sum::<u64>() / gaps.len() as u64)));
        assert_eq!(all, first(&stalls(1000, 50, 1), 10_000));
        assert_ne!(all, first(&stalls(1000, 50, 2), 10_000));
    }

    #[test]
    fn a_machine_without_stalls_never_stalls() {
        assert_eq!(stalls(0, 50, 1).next(), NEVER);
        assert_eq!(stalls(1000, 0, 1).next(), NEVER);
    }

    #[test]
    fn a_stall_while_there_is_nothing_to_do_goes_unseen() {
        let stalls = stalls(1000, 50, 1);
        let due = stalls.next();
        stalls.skip(due - 1);
        assert_eq!(stalls.next(), due);
        stalls.skip(due + 5);
        assert!(stalls.next() > due + 5);
    }
}
