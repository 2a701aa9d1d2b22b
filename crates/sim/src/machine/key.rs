//! The one table of constants: what each is called, what it measures, what it may be and where it lives.
//!
//! A file, `--set` and the printed list all go through this table, so they cannot disagree.

use super::quantity::Kind;
use super::{MAX_CPUS, MAX_NODES, MIN_MEMORY_PER_CPU, MIN_MEMORY_PER_NODE, Machine};

/// Whether a file must give a constant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Need {
    /// It must.
    Required,
    /// It may; without it, there is none.
    Optional,
    /// It may; without it, this value, unit and source stand.
    Default(&'static str, &'static str, &'static str),
}

/// One constant.
pub(super) struct Key {
    pub(super) section: &'static str,
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Smallest and largest value that make sense, in the kind's base units.
    pub(super) least: u64,
    pub(super) most: u64,
    pub(super) need: Need,
    /// Stores a value that is in range.
    pub(super) put: fn(&mut Machine, u64),
}

impl Key {
    pub(super) fn full_name(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    /// The unit of a number without one: of what has no dimension, and of what has its unit in its name.
    pub(super) fn bare_unit(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Frequency if self.name == "mhz" => Some("MHz"),
            Kind::Frequency | Kind::Kib | Kind::Count(_) | Kind::Percent | Kind::Bool => {
                Some(self.kind.natural_unit())
            }
            Kind::Time | Kind::Size | Kind::Bandwidth => None,
        }
    }

    /// The range as words.
    pub(super) fn range(&self) -> String {
        match self.kind {
            Kind::Bool => "true or false".to_owned(),
            Kind::Count(_) | Kind::Percent => format!("{} to {}", self.least, self.kind.show(self.most)),
            _ => format!("{} to {}", self.kind.show(self.least), self.kind.show(self.most)),
        }
    }
}

/// The sections of a file, in order.
pub(super) const SECTIONS: [&str; 9] =
    ["cpu", "memory", "tlb", "cost", "device", SWAP, SLOW, "guarantees", "kernel"];

/// The sections that a file may leave out although they have constants that must be given: then there is no swap, and no slow node.
pub(super) const SWAP: &str = "swap";
pub(super) const SLOW: &str = "slow";

/// Whether a machine has what a section is about.
pub(super) fn has_section(machine: &Machine, section: &str) -> bool {
    match section {
        SWAP => machine.swap.is_some(),
        SLOW => machine.slow.is_some(),
        _ => true,
    }
}

/// Memory comes in blocks of so many bytes.
const BLOCK: u64 = 4 << 20;

/// Entries of all TLBs and walk caches of a machine: less than 2 GiB of the host's memory.
const MOST_TLB_ENTRIES: u64 = 1 << 24;

/// Picoseconds in a second: no operation takes longer.
const SECOND: u64 = 1_000_000_000_000;

/// A constant that a file must give. The range fits the field, so the conversion never fails.
macro_rules! must {
    ($section:ident, $name:ident, $kind:expr, $least:expr, $most:expr, $($field:ident).+) => {
        Key {
            section: stringify!($section),
            name: stringify!($name),
            kind: $kind,
            least: $least,
            most: $most,
            need: Need::Required,
            put: |machine, value| machine.$($field).+ = value.try_into().unwrap_or_default(),
        }
    };
}

/// A cost in time.
macro_rules! time {
    ($name:ident) => {
        must!(cost, $name, Kind::Time, 0, SECOND, cost.$name)
    };
    ($name:ident from $least:expr) => {
        must!(cost, $name, Kind::Time, $least, SECOND, cost.$name)
    };
}

/// A constant of the TLB.
macro_rules! tlb {
    ($name:ident, $word:literal, $least:expr, $most:expr) => {
        must!(tlb, $name, Kind::Count($word), $least, $most, tlb.$name)
    };
}

/// A cost in time that most machines do not have.
macro_rules! rare {
    ($name:ident, $source:literal) => {
        Key { need: Need::Default("0", "ns", $source), ..time!($name) }
    };
}

/// A constant of the swap devices, which a file gives if it has that section.
macro_rules! swap {
    ($name:ident, $kind:expr, $least:expr, $most:expr) => {
        Key {
            section: SWAP,
            name: stringify!($name),
            kind: $kind,
            least: $least,
            most: $most,
            need: Need::Required,
            put: |machine, value| {
                machine.swap.get_or_insert_default().$name = value.try_into().unwrap_or_default();
            },
        }
    };
    ($name:ident, $kind:expr, $most:expr, default $unit:literal, $source:literal) => {
        Key { need: Need::Default("0", $unit, $source), ..swap!($name, $kind, 0, $most) }
    };
}

/// A constant of the slow node, which a file gives if it has that section.
macro_rules! slow {
    ($name:ident, $kind:expr, $least:expr, $most:expr) => {
        Key {
            section: SLOW,
            name: stringify!($name),
            kind: $kind,
            least: $least,
            most: $most,
            need: Need::Required,
            put: |machine, value| {
                machine.slow.get_or_insert_default().$name = value.try_into().unwrap_or_default();
            },
        }
    };
}

/// A guarantee, which x86-64 gives.
macro_rules! guarantee {
    ($name:ident, $source:literal) => {
        Key {
            section: "guarantees",
            name: stringify!($name),
            kind: Kind::Bool,
            least: 0,
            most: 1,
            need: Need::Default("true", "bool", $source),
            put: |machine, value| machine.guarantees.$name = value != 0,
        }
    };
}

/// A choice of the kernel, with a default.
macro_rules! choice {
    ($name:ident, $kind:expr, $least:expr, $most:expr, $default:expr) => {
        Key { need: $default, ..must!(kernel, $name, $kind, $least, $most, kernel.$name) }
    };
}

/// Every constant but the distances. The clock comes first, since others may be given in its cycles.
pub(super) static KEYS: &[Key] = &[
    Key {
        section: "cpu",
        name: "mhz",
        kind: Kind::Frequency,
        least: 1_000_000,
        most: 100_000_000_000,
        need: Need::Optional,
        put: |machine, value| machine.hz = Some(value),
    },
    must!(cpu, cpus, Kind::Count("CPUs"), 1, MAX_CPUS as u64, cpus),
    must!(cpu, nodes, Kind::Count("nodes"), 1, MAX_NODES as u64, nodes),
    must!(memory, size, Kind::Size, MIN_MEMORY_PER_NODE, 64 << 40, memory),
    Key {
        need: Need::Default("0", "MiB", "default: all memory is there at the start"),
        ..must!(memory, later, Kind::Size, 0, 64 << 40, later)
    },
    tlb!(l1_entries, "entries", 1, 65_536),
    tlb!(l1_ways, "ways", 1, 65_536),
    tlb!(l2_entries, "entries", 0, 65_536),
    tlb!(l2_ways, "ways", 0, 65_536),
    tlb!(large_entries, "entries", 0, 65_536),
    // x86 has 12 bits of them.
    tlb!(tags, "tags", 1, 4096),
    tlb!(walk_cache, "entries", 0, 65_536),
    Key {
        need: Need::Default("0", "pages", "default: no CPU flushes another but by interrupt"),
        ..tlb!(broadcast_pages, "pages", 0, 65_536)
    },
    time!(user_access),
    time!(tlb_l2_hit),
    time!(walk_step),
    time!(invlpg),
    time!(flush_all),
    time!(load_space),
    time!(trap_enter),
    time!(trap_exit),
    time!(irq_enter),
    time!(irq_exit),
    time!(ipi_send),
    Key { need: Need::Default("0", "ns", "default: the same for every target"), ..time!(ipi_send_hop) },
    time!(ipi_flight_local),
    time!(ipi_flight_hop),
    time!(idle_wake),
    Key {
        need: Need::Default(
            "0",
            "ns",
            "default: whoever interrupts an idle CPU waits as long as a task that is to run there",
        ),
        ..time!(idle_task)
    },
    time!(tick_work),
    must!(cost, tick_hz, Kind::Frequency, 1, 100_000, cost.tick_hz),
    time!(task_switch),
    time!(cache_hit),
    time!(line_local),
    time!(line_hop),
    time!(dram_local),
    time!(dram_hop),
    time!(cache_lifetime),
    // A spin that costs nothing never ends.
    time!(pause from 1),
    time!(clear_frame),
    time!(copy_frame),
    time!(syscall),
    time!(irq_work),
    time!(other_kernel_work),
    must!(cost, other_kernel_work_goes, Kind::Percent, 0, 100, cost.other_kernel_work_goes),
    must!(cost, other_kernel_work_pages, Kind::Count("pages"), 1, 64, cost.other_kernel_work_pages),
    must!(cost, other_kernel_work_irqs_off, Kind::Percent, 0, 100, cost.other_kernel_work_irqs_off),
    rare!(stall_every, "default: nothing takes a CPU away from the kernel"),
    rare!(stall, "default: nothing takes a CPU away from the kernel"),
    rare!(broadcast, "default: no broadcasts (broadcast_pages)"),
    rare!(broadcast_gap, "default: no broadcasts (broadcast_pages)"),
    rare!(broadcast_sync, "default: no broadcasts (broadcast_pages)"),
    rare!(io_submit, "default: in other_kernel_work"),
    rare!(io_complete, "default: in irq_work"),
    rare!(lock_spin, "default: whoever waits for a lock that may sleep does so at once"),
    must!(device, read_latency, Kind::Time, 0, SECOND, device.read_latency),
    must!(device, write_latency, Kind::Time, 0, SECOND, device.write_latency),
    must!(device, parallel, Kind::Count("commands"), 1, 65_536, device.parallel),
    must!(device, bandwidth, Kind::Bandwidth, 100_000, 1_000_000_000_000, device.bandwidth),
    swap!(devices, Kind::Count("devices"), 1, 16),
    // One cluster of slots at least.
    swap!(size, Kind::Size, 2 << 20, 16 << 40),
    swap!(read_latency, Kind::Time, 0, SECOND),
    swap!(write_latency, Kind::Time, 0, SECOND),
    swap!(parallel, Kind::Count("commands"), 1, 65_536),
    swap!(read_bandwidth, Kind::Bandwidth, 100_000, 1_000_000_000_000),
    swap!(write_bandwidth, Kind::Bandwidth, 100_000, 1_000_000_000_000),
    swap!(priority_step, Kind::Count("steps"), 100, default "steps", "default: all alike, pages are striped"),
    swap!(read_errors, Kind::Count("permille"), 1000, default "permille", "default: none"),
    swap!(write_errors, Kind::Count("permille"), 1000, default "permille", "default: none"),
    swap!(gone_at, Kind::Time, 1000 * SECOND, default "ms", "default: never"),
    swap!(full_at, Kind::Time, 1000 * SECOND, default "ms", "default: never"),
    slow!(size, Kind::Size, 0, 64 << 40),
    slow!(node_distance, Kind::Count("SLIT"), 11, 254),
    slow!(latency, Kind::Time, 0, SECOND),
    slow!(user_access, Kind::Time, 1, SECOND),
    slow!(clear_frame, Kind::Time, 0, SECOND),
    slow!(copy_frame, Kind::Time, 0, SECOND),
    guarantee!(clean_write_walks, "default: x86-64 (Intel SDM 3A 4.10.4.3, AMD64 APM 2 5.5.2)"),
    guarantee!(
        unflushed_accessed,
        "default: x86-64, where a cached entry only keeps the accessed bit from being set again"
    ),
    choice!(
        lru_batch,
        Kind::Count("pages"),
        1,
        4096,
        Need::Default("14", "pages", "default: PAGEVEC_SIZE, Linux 2.6 to 4.14")
    ),
    choice!(
        scan_batch,
        Kind::Count("pages"),
        1,
        4096,
        Need::Default("32", "pages", "default: SWAP_CLUSTER_MAX, Linux include/linux/swap.h")
    ),
    choice!(
        flush_ceiling,
        Kind::Count("pages"),
        0,
        65_536,
        Need::Default("33", "pages", "default: tlb_single_page_flush_ceiling, Linux arch/x86/mm/tlb.c")
    ),
    choice!(
        time_slice,
        Kind::Time,
        1_000_000,
        SECOND,
        Need::Default(
            "3",
            "ms",
            "default: CFS minimum granularity, 0.75 ms x (1 + log2 of 8 CPUs), Linux kernel/sched/fair.c"
        )
    ),
    choice!(
        kswapd,
        Kind::Count("threads"),
        1,
        64,
        Need::Default("1", "threads", "default: one for each node, as Linux has")
    ),
    Key {
        section: "kernel",
        name: "demotion",
        kind: Kind::Bool,
        least: 0,
        most: 1,
        need: Need::Default(
            "false",
            "bool",
            "default: as Linux, where /sys/kernel/mm/numa/demotion_enabled is off",
        ),
        put: |machine, value| machine.kernel.demotion = value != 0,
    },
    Key {
        section: "kernel",
        name: "slow_fallback",
        kind: Kind::Bool,
        least: 0,
        most: 1,
        need: Need::Default(
            "true",
            "bool",
            "default: as Linux without numactl --membind: all nodes serve new pages, the nearest first",
        ),
        put: |machine, value| machine.kernel.slow_fallback = value != 0,
    },
    Key {
        section: "kernel",
        name: "min_free_kib",
        kind: Kind::Kib,
        least: 1,
        most: 32 << 30,
        need: Need::Optional,
        put: |machine, value| machine.kernel.min_free_kib = Some(value),
    },
    Key {
        section: "kernel",
        name: "vmap_lazy_kib",
        kind: Kind::Kib,
        least: 4,
        most: 32 << 30,
        need: Need::Optional,
        put: |machine, value| machine.kernel.vmap_lazy_kib = Some(value),
    },
    Key {
        section: "kernel",
        name: "vmap_shards",
        kind: Kind::Count("shards"),
        least: 1,
        most: 4096,
        need: Need::Optional,
        put: |machine, value| machine.kernel.vmap_shards = Some(value as u32),
    },
];

/// The key called `section.name`, or `name` alone, the first of that name. `memory` is the memory's size.
pub(super) fn find(text: &str) -> Option<usize> {
    if text == "memory" {
        return KEYS.iter().position(|key| key.section == "memory");
    }
    KEYS.iter().position(|key| match text.split_once('.') {
        Some((section, name)) => key.section == section && key.name == name,
        None => key.name == text,
    })
}

/// The full names of all keys of a machine that are called `name`.
pub(super) fn namesakes(machine: &Machine, name: &str) -> Vec<String> {
    KEYS.iter()
        .filter(|key| key.name == name && has_section(machine, key.section))
        .map(Key::full_name)
        .collect()
}

/// What is wrong with a machine whose single constants are in range.
pub(super) struct Conflict {
    /// Index of the constant in `KEYS`, or `None` for the distances.
    pub(super) key: Option<usize>,
    pub(super) wrong: String,
    pub(super) right: String,
}

/// Checks what ties constants together, and says all that does not go together.
pub(super) fn check(machine: &Machine) -> Vec<Conflict> {
    let Machine { cpus, nodes, memory, tlb, .. } = machine;
    let mut all = Vec::new();
    let mut conflict = |key: &str, wrong: String, right: String| {
        all.push(Conflict { key: find(key), wrong, right });
    };
    let need = (u64::from(*nodes) * MIN_MEMORY_PER_NODE).max(u64::from(*cpus) * MIN_MEMORY_PER_CPU);
    if nodes > cpus {
        let right = format!("at most one node a CPU: nodes from 1 to {}", cpus.min(&MAX_NODES));
        conflict("nodes", format!("{nodes} nodes for {cpus} CPUs"), right);
    }
    if *memory < need {
        let size = Kind::Size.show(*memory);
        let wrong = format!("{size} of memory is less than the tables of {nodes} nodes and {cpus} CPUs need");
        conflict("size", wrong, format!("at least {}", Kind::Size.show(need)));
    } else if !memory.is_multiple_of(4096) {
        let wrong = format!("{memory} bytes of memory end inside a frame");
        conflict("size", wrong, "a multiple of 4 KiB".to_owned());
    }
    for (entries_key, entries, ways_key, ways) in [
        ("l1_entries", tlb.l1_entries, "l1_ways", tlb.l1_ways),
        ("l2_entries", tlb.l2_entries, "l2_ways", tlb.l2_ways),
    ] {
        if entries != 0 && (ways == 0 || !entries.is_multiple_of(ways)) {
            let divisor = nearest_divisor(entries, ways);
            let right = format!("`{ways_key}` that divides `{entries_key}`, such as {divisor}");
            conflict(ways_key, format!("{ways} ways do not divide {entries} entries"), right);
        }
    }
    // A CPU whose ticks take all its time never comes to anything else.
    let cost = &machine.cost;
    let tick = cost.irq_enter + cost.irq_work + cost.tick_work + cost.irq_exit;
    if tick >= SECOND / u64::from(cost.tick_hz.max(1)) {
        let each = Kind::Time.show(tick);
        let wrong = format!("{} ticks a second of {each} each leave a CPU no time", cost.tick_hz);
        conflict(
            "tick_hz",
            wrong,
            "fewer ticks, or less irq_enter, irq_work, tick_work and irq_exit".to_owned(),
        );
    }
    // The TLBs of all CPUs are in the host's memory.
    let parts = [
        ("l1_entries", tlb.l1_entries),
        ("l2_entries", tlb.l2_entries),
        ("large_entries", tlb.large_entries),
        ("walk_cache", tlb.walk_cache),
    ];
    let each: u64 = parts.iter().map(|(_, entries)| u64::from(*entries)).sum();
    let most = MOST_TLB_ENTRIES / u64::from((*cpus).max(1));
    if each > most {
        let largest = parts.iter().max_by_key(|(_, entries)| *entries).map_or("l1_entries", |(name, _)| name);
        let wrong =
            format!("{cpus} CPUs with TLBs and walk caches of {each} entries are more than can be simulated");
        conflict(largest, wrong, format!("at most {most} entries a CPU, all levels together"));
    }
    if let Some(kib) = machine.kernel.min_free_kib.filter(|&kib| kib > memory / 2048) {
        let wrong = format!("a reserve of {kib} KiB is more than half of the memory");
        conflict("min_free_kib", wrong, format!("at most {} KiB", memory / 2048));
    }
    if let Some(swap) = machine.swap.as_ref().filter(|swap| !swap.size.is_multiple_of(4096)) {
        let wrong = format!("{} bytes of a swap device end inside a page", swap.size);
        conflict("swap.size", wrong, "a multiple of 4 KiB".to_owned());
    }
    let most = (memory / u64::from((*nodes).max(1))).saturating_sub(MIN_MEMORY_PER_NODE / 2);
    if !machine.later.is_multiple_of(BLOCK) || machine.later > most {
        let size = Kind::Size.show(machine.later);
        let right =
            format!("whole blocks of 4 MiB, at most {} of the last node's memory", Kind::Size.show(most));
        conflict("later", format!("{size} of memory that comes later"), right);
    }
    if let Some(slow) = &machine.slow {
        if slow.size != 0 && slow.size < MIN_MEMORY_PER_NODE || !slow.size.is_multiple_of(4096) {
            let size = Kind::Size.show(slow.size);
            let right = format!("none, or whole pages and at least {}", Kind::Size.show(MIN_MEMORY_PER_NODE));
            conflict("slow.size", format!("a slow node of {size}"), right);
        }
        if *nodes >= MAX_NODES {
            conflict(
                "nodes",
                format!("{nodes} nodes and a slow one"),
                format!("at most {} nodes", MAX_NODES - 1),
            );
        }
    }
    if machine.kernel.demotion && machine.slow.as_ref().is_none_or(|slow| slow.size == 0) {
        let right = "`demotion=false`, or a machine with a section [slow], such as cxl-16".to_owned();
        conflict("demotion", "demotion without a slow node".to_owned(), right);
    }
    let distance = check_distance(machine).err();
    all.extend(distance.map(|(wrong, right)| Conflict { key: None, wrong, right }));
    all
}

fn check_distance(machine: &Machine) -> Result<(), (String, String)> {
    let nodes = machine.nodes as usize;
    let rows = &machine.distance;
    if rows.len() != nodes {
        return Err((
            format!("a distance matrix of {} rows for {nodes} nodes", rows.len()),
            format!("{nodes} rows of {nodes} numbers"),
        ));
    }
    for (a, row) in rows.iter().enumerate() {
        if row.len() != nodes {
            return Err((
                format!("row {a} of the distance matrix has {} numbers", row.len()),
                format!("a square matrix: {nodes} numbers in each row"),
            ));
        }
    }
    for (a, row) in rows.iter().enumerate() {
        for (b, &distance) in row.iter().enumerate() {
            if a == b && distance != 10 {
                return Err((
                    format!("node {a} is at distance {distance} from itself"),
                    "10, the local distance, in the diagonal".to_owned(),
                ));
            }
            if !(10..=254).contains(&distance) {
                return Err((
                    format!("distance {distance} from node {a} to node {b}"),
                    "distances from 10 (local) to 254, as in the ACPI SLIT".to_owned(),
                ));
            }
            if rows[b][a] != distance {
                return Err((
                    format!("distance {distance} from node {a} to node {b}, but {} back", rows[b][a]),
                    "the same distance both ways".to_owned(),
                ));
            }
        }
    }
    Ok(())
}

/// The divisor of `entries` that is nearest to `ways`.
fn nearest_divisor(entries: u32, ways: u32) -> u32 {
    (1..=entries).filter(|&d| entries.is_multiple_of(d)).min_by_key(|&d| d.abs_diff(ways)).unwrap_or(1)
}
