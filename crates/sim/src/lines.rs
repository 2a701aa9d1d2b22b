//! What an access to shared memory costs: a cache line that another CPU has must be moved, over a distance,
//! and a contended one waits its turn.

use quietmm::platform::Access;

use crate::machine::{Cost, Machine};

/// What is known of one 64-byte line.
#[derive(Clone, Copy)]
#[repr(C)]
struct Line {
    /// CPUs that have it. With more than 64, those of a node share the node's bits, and some hits are assumed that
    /// are none: what another CPU of the socket has just read. Distances are true with any number.
    holders: u64,
    /// When its last move ended, or about when it was used last, in picoseconds; in the low bits who wrote it
    /// last, plus one.
    since_writer: u64,
}

/// Room for 4096 CPUs and none; 51 bits remain for picoseconds: 37 minutes.
const WRITER_BITS: u32 = 13;

impl Line {
    fn since(&self) -> u64 {
        self.since_writer >> WRITER_BITS
    }

    fn writer(&self) -> Option<u16> {
        ((self.since_writer & ((1 << WRITER_BITS) - 1)) as u16).checked_sub(1)
    }

    fn set(&mut self, since: u64, writer: Option<u16>) {
        self.since_writer = since << WRITER_BITS | writer.map_or(0, |cpu| u64::from(cpu) + 1);
    }
}

/// All lines of the machine's memory.
pub struct Lines {
    /// Zero pages until a line is used.
    lines: memmap2::MmapMut,
    count: usize,
    nodes: usize,
    /// For each CPU its bit among the holders, and for each node those of its CPUs.
    bit_of: Vec<u8>,
    node_bits: Vec<u64>,
    node_of: Vec<u16>,
    /// Cost of moving a line between nodes, and of fetching it from a node's memory.
    line: Vec<u64>,
    dram: Vec<u64>,
    node_bytes: u64,
    hit: u64,
    lifetime: u64,
}

impl Lines {
    /// Lines for `bytes` of memory, spread over the nodes evenly.
    pub fn new(machine: &Machine, bytes: u64) -> std::io::Result<Lines> {
        let count = (bytes / 64) as usize;
        let lines = memmap2::MmapOptions::new()
            .len((count * size_of::<Line>()).max(1))
            .no_reserve_swap()
            .map_anon()?;
        let nodes = machine.nodes as usize;
        let Cost { line_local, line_hop, dram_local, dram_hop, .. } = machine.cost;
        let by_distance = |local: u64, hop: u64| {
            let rows = machine.distance.iter();
            rows.flat_map(|row| row.iter().map(move |&d| local + hop * u64::from(d - 10) / 10)).collect()
        };
        let node_of: Vec<u16> = (0..machine.cpus).map(|cpu| machine.node_of(cpu) as u16).collect();
        let share = 64 / nodes;
        let bit = |(cpu, &node): (usize, &u16)| {
            if machine.cpus <= 64 { cpu as u8 } else { (usize::from(node) * share + cpu % share) as u8 }
        };
        let bit_of: Vec<u8> = node_of.iter().enumerate().map(bit).collect();
        let mut node_bits = vec![0u64; nodes];
        for (&node, &bit) in node_of.iter().zip(&bit_of) {
            node_bits[node as usize] |= 1 << bit;
        }
        Ok(Lines {
            lines,
            count,
            nodes,
            bit_of,
            node_bits,
            node_of,
            line: by_distance(line_local, line_hop),
            dram: by_distance(dram_local, dram_hop),
            node_bytes: (bytes / nodes as u64).max(1),
            hit: machine.cost.cache_hit,
            lifetime: machine.cost.cache_lifetime,
        })
    }

    /// The cost of an access at byte `offset` by `cpu` at time `now`, in picoseconds.
    #[inline]
    pub fn access(&mut self, cpu: u16, offset: u64, access: Access, now: u64) -> u64 {
        let index = (offset / 64) as usize;
        if index >= self.count {
            return 0;
        }
        // SAFETY: the mapping holds `count` lines, page-aligned, and zeros are a line nobody has.
        let line = unsafe { &mut *self.lines.as_mut_ptr().cast::<Line>().add(index) };
        let mine = 1u64 << self.bit_of[cpu as usize];
        let (since, writer) = (line.since(), line.writer());
        let alive = now < since + self.lifetime;
        let hit = match access {
            Access::Read => line.holders & mine != 0,
            Access::Write | Access::Rmw => line.holders == mine && writer == Some(cpu),
        };
        if hit && alive {
            // A line in steady use is not written for each use.
            if now > since + self.lifetime / 16 {
                line.set(now, writer);
            }
            return self.hit;
        }
        let node = self.node_of[cpu as usize] as usize;
        let new_writer = (access != Access::Read).then_some(cpu);
        if !alive || line.holders == 0 {
            let home = ((offset / self.node_bytes) as usize).min(self.nodes - 1);
            let cost = self.dram[node * self.nodes + home];
            line.holders = mine;
            line.set(now + cost, new_writer);
            return cost;
        }
        let busy = since.saturating_sub(now);
        match access {
            Access::Read => {
                // From whoever wrote it last, who must give it up first; once it is shared, any copy serves.
                let from = writer.map_or(node, |w| self.node_of[w as usize] as usize);
                let cost = self.line[node * self.nodes + from];
                let exclusive = line.holders.count_ones() == 1 && writer.is_some();
                let wait = if exclusive { busy } else { 0 };
                line.holders |= mine;
                line.set(since.max(now + wait + cost), writer);
                wait + cost
            }
            Access::Write | Access::Rmw => {
                // Every copy must go: the farthest one decides. The last writer's may hide behind our own bit.
                let others = line.holders & !mine;
                let theirs = writer.filter(|&w| w != cpu).map(|w| self.node_of[w as usize] as usize);
                let far = (0..self.nodes)
                    .filter(|&n| others & self.node_bits[n] != 0)
                    .chain(theirs)
                    .map(|n| self.line[node * self.nodes + n])
                    .max()
                    .unwrap_or(self.hit);
                line.holders = mine;
                line.set(now + busy + far, new_writer);
                busy + far
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> (Lines, Cost) {
        let machine = Machine::builtin("numa-4x12").unwrap();
        (Lines::new(&machine, 4 << 20).unwrap(), machine.cost)
    }

    #[test]
    fn a_line_of_ones_own_is_a_hit() {
        let (mut lines, cost) = lines();
        assert_eq!(lines.access(0, 64, Access::Write, 0), cost.dram_local);
        let now = cost.dram_local;
        assert_eq!(lines.access(0, 100, Access::Rmw, now), cost.cache_hit);
    }

    #[test]
    fn a_line_of_another_cpu_is_moved_by_distance() {
        let (mut lines, cost) = lines();
        lines.access(0, 0, Access::Write, 0);
        let near = lines.access(1, 0, Access::Rmw, 1_000_000);
        let far = lines.access(47, 0, Access::Rmw, 2_000_000);
        assert_eq!(near, cost.line_local);
        assert!(far > near);
    }

    #[test]
    fn distances_are_true_on_a_machine_of_more_cpus_than_bits() {
        let machine = Machine::builtin("many-32x128").unwrap();
        let mut lines = Lines::new(&machine, 4 << 20).unwrap();
        lines.access(0, 0, Access::Write, 0);
        // A neighbour, one with the same bit, and one in another box.
        let steps = [(1, 10), (65, 10), (4095, 50), (4094, 10)];
        for (step, (cpu, distance)) in (1..).zip(steps) {
            let cost = lines.access(cpu, 0, Access::Rmw, step * 1_000_000);
            let hops = machine.cost.line_hop * (distance - 10) / 10;
            assert_eq!(cost, machine.cost.line_local + hops, "to CPU {cpu}");
        }
    }

    #[test]
    fn a_contended_line_waits_its_turn() {
        let (mut lines, cost) = lines();
        lines.access(0, 0, Access::Write, 0);
        let now = 1_000_000;
        let first = lines.access(1, 0, Access::Rmw, now);
        let second = lines.access(2, 0, Access::Rmw, now);
        assert_eq!(second, first + cost.line_local);
    }

    #[test]
    fn readers_share() {
        let (mut lines, cost) = lines();
        lines.access(0, 0, Access::Write, 0);
        lines.access(1, 0, Access::Read, 1_000_000);
        assert_eq!(lines.access(1, 0, Access::Read, 2_000_000), cost.cache_hit);
        assert_eq!(lines.access(0, 0, Access::Read, 2_000_000), cost.cache_hit);
        assert!(lines.access(0, 0, Access::Write, 3_000_000) > cost.cache_hit);
    }

    #[test]
    fn an_old_line_comes_from_memory() {
        let (mut lines, cost) = lines();
        lines.access(0, 0, Access::Write, 0);
        let later = 10 * cost.cache_lifetime;
        assert_eq!(lines.access(0, 0, Access::Read, later), cost.dram_local);
    }
}
