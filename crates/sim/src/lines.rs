//! What an access to shared memory costs: a cache line that another CPU has must be moved, over a distance,
//! and a contended one waits its turn.

use quietmm::platform::Access;

use crate::machine::{Cost, Machine};

/// What is known of one 64-byte line.
#[derive(Clone, Copy)]
#[repr(C)]
struct Line {
    /// CPUs that have it, see `bit_of`: with more than 64 some hits are assumed that are none.
    holders: u64,
    /// When its last move ended, or about when it was used last, in picoseconds; in the low bits who wrote it
    /// last, plus one, and whether another CPU has read it since.
    since_writer: u64,
}

/// Room for 4096 CPUs and none, and a bit; 50 bits remain for picoseconds: 18 minutes.
const WRITER_BITS: u32 = 14;
/// Another CPU than the writer has a copy, be it that the two share a bit of `Line::holders`.
const SHARED: u64 = 1 << 13;

impl Line {
    fn since(&self) -> u64 {
        self.since_writer >> WRITER_BITS
    }

    fn writer(&self) -> Option<u16> {
        ((self.since_writer & (SHARED - 1)) as u16).checked_sub(1)
    }

    fn is_shared(&self) -> bool {
        self.since_writer & SHARED != 0
    }

    fn set(&mut self, since: u64, writer: Option<u16>, shared: bool) {
        let shared = if shared { SHARED } else { 0 };
        self.since_writer = since << WRITER_BITS | shared | writer.map_or(0, |cpu| u64::from(cpu) + 1);
    }
}

/// All lines of the machine's memory.
pub struct Lines {
    /// Zero pages until a line is used.
    lines: memmap2::MmapMut,
    count: usize,
    nodes: usize,
    /// Each CPU's bit in `Line::holders`, and for each node those of its CPUs. With more than 64 CPUs some
    /// share a bit, but none with one of another node (unless there are more than 64): how far a line moves is right.
    bit_of: Vec<u64>,
    node_cpus: Vec<u64>,
    node_of: Vec<u16>,
    /// Cost of moving a line between nodes, and of fetching it from a node's memory.
    line: Vec<u64>,
    dram: Vec<u64>,
    node_bytes: u64,
    /// From here on memory is the slow node's, and what a line costs there.
    slow: (u64, u64),
    hit: u64,
    lifetime: u64,
    /// A line in steady use is not written for each use: so long its last one may be told as an earlier one.
    steady: u64,
}

impl Lines {
    /// Lines for `bytes` of memory, spread over the nodes evenly, but for what is the slow node's.
    pub fn new(machine: &Machine, bytes: u64) -> std::io::Result<Lines> {
        let count = (bytes / 64) as usize;
        let lines = memmap2::MmapOptions::new()
            .len((count * size_of::<Line>()).max(1))
            .no_reserve_swap()
            .map_anon()?;
        let nodes = machine.nodes as usize;
        let fast = bytes - machine.slow.as_ref().map_or(0, |slow| slow.size).min(bytes);
        let Cost { line_local, line_hop, dram_local, dram_hop, .. } = machine.cost;
        let by_distance = |local: u64, hop: u64| {
            let rows = machine.distance.iter();
            rows.flat_map(|row| row.iter().map(move |&d| local + hop * u64::from(d - 10) / 10)).collect()
        };
        let node_of: Vec<u16> = (0..machine.cpus).map(|cpu| machine.node_of(cpu) as u16).collect();
        let each = 64 / nodes.min(64);
        let bit_of: Vec<u64> = (0..node_of.len())
            .map(|cpu| {
                let node = usize::from(node_of[cpu]);
                1 << if node_of.len() <= 64 { cpu } else { node % 64 * each + cpu % each }
            })
            .collect();
        let mut node_cpus = vec![0u64; nodes];
        for (&bit, &node) in bit_of.iter().zip(&node_of) {
            node_cpus[node as usize] |= bit;
        }
        Ok(Lines {
            lines,
            count,
            nodes,
            bit_of,
            node_cpus,
            node_of,
            line: by_distance(line_local, line_hop),
            dram: by_distance(dram_local, dram_hop),
            node_bytes: (fast / nodes as u64).max(1),
            slow: machine.slow.as_ref().map_or((bytes, 0), |slow| (fast, slow.latency)),
            hit: machine.cost.cache_hit,
            lifetime: machine.cost.cache_lifetime,
            steady: machine.cost.cache_lifetime / 16,
        })
    }

    /// The cost of an access at byte `offset` by `cpu` at time `now`, in picoseconds.
    ///
    /// Most are of a line that the CPU has used a moment ago: those end here, in some twenty instructions.
    #[inline(always)]
    pub fn access(&mut self, cpu: u16, offset: u64, access: Access, now: u64) -> u64 {
        let index = (offset / 64) as usize;
        if index >= self.count {
            return 0;
        }
        // SAFETY: the mapping holds `count` lines, page-aligned, and zeros are a line nobody has.
        let line = unsafe { &mut *self.lines.as_mut_ptr().cast::<Line>().add(index) };
        let mine = self.bit_of[cpu as usize];
        let who = line.since_writer & (2 * SHARED - 1);
        let read = access == Access::Read;
        let has = if read && (who & SHARED != 0 || line.holders != mine) {
            line.holders & mine != 0
        } else {
            line.holders == mine && (who == u64::from(cpu) + 1 || read && who == 0)
        };
        if has && now < line.since() + self.steady {
            return self.hit;
        }
        self.move_line(index, cpu, offset, access, now)
    }

    /// The same, of any line.
    #[inline(never)]
    fn move_line(&mut self, index: usize, cpu: u16, offset: u64, access: Access, now: u64) -> u64 {
        // SAFETY: see `access`.
        let line = unsafe { &mut *self.lines.as_mut_ptr().cast::<Line>().add(index) };
        let mine = self.bit_of[cpu as usize];
        let (since, writer, shared) = (line.since(), line.writer(), line.is_shared());
        let alive = now < since + self.lifetime;
        let other = writer.filter(|&writer| writer != cpu);
        let hit = match access {
            // One that another CPU alone has is none, even if the two share a bit.
            Access::Read => {
                line.holders & mine != 0 && (shared || !(line.holders == mine && other.is_some()))
            }
            Access::Write | Access::Rmw => line.holders == mine && writer == Some(cpu) && !shared,
        };
        if hit && alive {
            if now > since + self.steady {
                line.set(now, writer, shared);
            }
            return self.hit;
        }
        let node = self.node_of[cpu as usize] as usize;
        let new_writer = (access != Access::Read).then_some(cpu);
        if !alive || line.holders == 0 {
            let home = ((offset / self.node_bytes) as usize).min(self.nodes - 1);
            let (from, latency) = self.slow;
            let cost = if offset < from { self.dram[node * self.nodes + home] } else { latency };
            line.holders = mine;
            line.set(now + cost, new_writer, false);
            return cost;
        }
        let busy = since.saturating_sub(now);
        match access {
            Access::Read => {
                // From whoever wrote it last, who must give it up first; once it is shared, any copy serves.
                let from = writer.map_or(node, |w| self.node_of[w as usize] as usize);
                let cost = self.line[node * self.nodes + from];
                let exclusive = line.holders.count_ones() == 1 && writer.is_some() && !shared;
                let wait = if exclusive { busy } else { 0 };
                line.holders |= mine;
                line.set(since.max(now + wait + cost), writer, shared || other.is_some());
                wait + cost
            }
            Access::Write | Access::Rmw => {
                // Every copy must go: the farthest one decides.
                let others = line.holders & !mine;
                let last = other.map(|writer| self.node_of[writer as usize] as usize);
                let far = (0..self.nodes)
                    .filter(|&n| others & self.node_cpus[n] != 0 || last == Some(n) || shared && n == node)
                    .map(|n| self.line[node * self.nodes + n])
                    .max()
                    .unwrap_or(self.hit);
                line.holders = mine;
                line.set(now + busy + far, new_writer, false);
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
    fn with_more_cpus_than_bits_a_line_still_comes_from_where_it_is() {
        let machine = Machine::builtin("numa-8x15").unwrap();
        let mut lines = Lines::new(&machine, 4 << 20).unwrap();
        // The line moves from CPU to CPU of one socket, and none of them takes another's for its own.
        lines.access(0, 0, Access::Write, 0);
        for cpu in 1..15 {
            let now = u64::from(cpu) * 1_000_000;
            assert_eq!(lines.access(cpu, 0, Access::Read, now), machine.cost.line_local, "read by {cpu}");
            assert_eq!(lines.access(cpu, 0, Access::Rmw, now + 500_000), machine.cost.line_local);
        }
        assert_eq!(
            lines.access(15, 0, Access::Rmw, 20_000_000),
            machine.cost.line_local + machine.cost.line_hop
        );
    }

    #[test]
    fn with_more_cpus_than_bits_what_one_has_written_is_read_by_all_of_its_node() {
        let machine = Machine::builtin("many-32x128").unwrap();
        let mut lines = Lines::new(&machine, 4 << 20).unwrap();
        // All of one socket, and of one bit.
        let readers: Vec<u16> = (2..128).step_by(2).collect();
        lines.access(0, 0, Access::Write, 0);
        for &cpu in &readers {
            lines.access(cpu, 0, Access::Read, 1_000_000);
        }
        for cpu in readers.into_iter().chain([0]) {
            assert_eq!(
                lines.access(cpu, 0, Access::Read, 2_000_000),
                machine.cost.cache_hit,
                "read by {cpu}"
            );
        }
        // They have copies, which must go; then they have none.
        assert_eq!(lines.access(0, 0, Access::Write, 3_000_000), machine.cost.line_local);
        assert_eq!(lines.access(0, 0, Access::Write, 4_000_000), machine.cost.cache_hit);
        assert_eq!(lines.access(2, 0, Access::Read, 5_000_000), machine.cost.line_local);
    }

    #[test]
    fn a_line_of_the_slow_node_takes_longer() {
        let mut machine = Machine::builtin("cxl-16").unwrap();
        machine.set("slow.size", "4MiB").unwrap();
        let (dram, slow) = (machine.cost.dram_local, machine.slow.clone().unwrap().latency);
        let mut lines = Lines::new(&machine, 12 << 20).unwrap();
        for (offset, cost) in [(0, dram), ((8 << 20) - 64, dram), (8 << 20, slow), ((12 << 20) - 64, slow)] {
            assert_eq!(lines.access(0, offset, Access::Read, 0), cost, "{offset}");
        }
        assert!(slow > 2 * dram);
    }

    #[test]
    fn an_old_line_comes_from_memory() {
        let (mut lines, cost) = lines();
        lines.access(0, 0, Access::Write, 0);
        let later = 10 * cost.cache_lifetime;
        assert_eq!(lines.access(0, 0, Access::Read, later), cost.dram_local);
    }
}
