//! Which CPU goes next: a tournament of their times.

/// Times of all CPUs; the earliest wins, the lower number first among equals. Changing one costs log2(n).
pub struct Order {
    /// A complete binary tree of winners; leaves hold the CPUs' own times.
    times: Vec<u64>,
    winners: Vec<u16>,
    leaves: usize,
}

/// Not in the race.
pub const NEVER: u64 = u64::MAX;

impl Order {
    /// Nobody in the race.
    pub fn new(cpus: usize) -> Order {
        let leaves = cpus.next_power_of_two().max(2);
        let mut order = Order { times: vec![NEVER; leaves], winners: vec![0; leaves], leaves };
        for cpu in 0..leaves {
            order.winners[(leaves + cpu) / 2] = (cpu & !1) as u16;
        }
        for node in (1..leaves / 2).rev() {
            order.winners[node] = order.winners[2 * node];
        }
        order
    }

    /// Sets a CPU's time.
    #[inline]
    pub fn set(&mut self, cpu: u16, time: u64) {
        self.times[cpu as usize] = time;
        let even = cpu & !1;
        let pair = [self.times[even as usize], self.times[even as usize + 1]];
        let mut node = (self.leaves + cpu as usize) / 2;
        self.winners[node] = if pair[1] < pair[0] { even + 1 } else { even };
        while node > 1 {
            node /= 2;
            let (a, b) = (self.winners[2 * node], self.winners[2 * node + 1]);
            self.winners[node] = if self.times[b as usize] < self.times[a as usize] { b } else { a };
        }
    }

    /// A CPU's time.
    pub fn get(&self, cpu: u16) -> u64 {
        self.times[cpu as usize]
    }

    /// The earliest time, and whose it is.
    #[inline]
    pub fn first(&self) -> (u64, u16) {
        let cpu = self.winners[1];
        (self.times[cpu as usize], cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::{Rng, SeedableRng};

    #[test]
    fn the_tournament_finds_what_a_search_finds() {
        let mut rng = rand_xoshiro::SplitMix64::seed_from_u64(1);
        for cpus in [1usize, 2, 3, 48, 100] {
            let mut order = Order::new(cpus);
            let mut plain = vec![NEVER; cpus];
            for _ in 0..2000 {
                let cpu = rng.next_u64() as usize % cpus;
                let time = if rng.next_u64().is_multiple_of(8) { NEVER } else { rng.next_u64() % 50 };
                order.set(cpu as u16, time);
                plain[cpu] = time;
                let best = (0..cpus).min_by_key(|&c| (plain[c], c)).unwrap();
                let (time, first) = order.first();
                assert_eq!(time, plain[best]);
                assert!(time == NEVER || first as usize == best);
            }
        }
    }
}
