//! Which CPU goes next: a tournament of their times.

/// Times of all CPUs; the earliest wins, the lower number first among equals. Changing one costs log2(n).
///
/// A node holds the smaller of the two below: a time, and in the low bits whose it is, so that one comparison
/// of integers decides both.
pub struct Order {
    nodes: Vec<u64>,
    leaves: usize,
}

/// Not in the race.
pub const NEVER: u64 = u64::MAX >> CPU_BITS;

/// Room for 4096 CPUs; 52 bits remain for picoseconds: 75 minutes.
const CPU_BITS: u32 = 12;

impl Order {
    /// Nobody in the race.
    pub fn new(cpus: usize) -> Order {
        let leaves = cpus.next_power_of_two().max(2);
        Order { nodes: vec![u64::MAX; 2 * leaves], leaves }
    }

    /// Sets a CPU's time.
    #[inline]
    pub fn set(&mut self, cpu: u16, time: u64) {
        let mut node = self.leaves + cpu as usize;
        // A later time would lose its upper bits, and be the first.
        let mut best = time.min(NEVER) << CPU_BITS | u64::from(cpu);
        self.nodes[node] = best;
        while node > 1 {
            best = best.min(self.nodes[node ^ 1]);
            node /= 2;
            self.nodes[node] = best;
        }
    }

    /// A CPU's time.
    pub fn get(&self, cpu: u16) -> u64 {
        self.nodes[self.leaves + cpu as usize] >> CPU_BITS
    }

    /// The earliest time, and whose it is.
    #[inline]
    pub fn first(&self) -> (u64, u16) {
        let best = self.nodes[1];
        (best >> CPU_BITS, (best & ((1 << CPU_BITS) - 1)) as u16)
    }

    /// The earliest time of all CPUs but one, and whose it is.
    #[inline]
    pub fn first_but(&self, cpu: u16) -> (u64, u16) {
        let mut node = self.leaves + cpu as usize;
        let mut best = u64::MAX;
        while node > 1 {
            best = best.min(self.nodes[node ^ 1]);
            node /= 2;
        }
        (best >> CPU_BITS, (best & ((1 << CPU_BITS) - 1)) as u16)
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
                let other = (0..cpus).filter(|&c| c != cpu).map(|c| plain[c]).min().unwrap_or(NEVER);
                assert_eq!(order.first_but(cpu as u16).0, other);
            }
        }
    }
}
