//! What a simulated machine is made of: CPUs, nodes, memory, TLB, and what everything costs.
//!
//! A machine is a TOML file. Each constant in it is `{ value, unit, source }`, and all three are obligatory: a
//! number that cannot say where it comes from has no place in a comparison. Some machines are shipped inside the
//! command ([`Machine::builtin`]); others are loaded by path ([`Machine::load`]); any constant can be changed
//! for one run ([`Machine::set`]). All ways in go through the same range checks, so whoever holds a [`Machine`]
//! that came from here may rely on the ranges of [`Machine::constants`].
//!
//! Numbers are exact: a decimal such as `2.7` never passes through a float.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the machine as the simulator reads it |
//! | `key.rs` | the one table of constants: name, kind, range, where it lives |
//! | `quantity.rs` | exact decimals and units |
//! | `measure.rs` | values of one constant as whole numbers, to go from one to another |
//! | `parse.rs` | a TOML text to a machine |
//! | `set.rs` | changes to a machine: one constant, the number of CPUs |
//! | `builtin.rs` | the machines inside the command, and how a machine is found |
//! | `error.rs` | one line that says what was wrong and what would be right |

mod builtin;
mod error;
mod key;
mod measure;
mod parse;
mod quantity;
mod set;
#[cfg(test)]
mod tests;

use quietmm::Architecture;

pub use error::MachineError;
pub use measure::{Amount, Measure};

/// Memory that each node needs at least, in bytes: its zone, its page tables and its low watermarks.
pub const MIN_MEMORY_PER_NODE: u64 = 4 << 20;

/// Memory that each CPU needs at least, in bytes: the page tables and kernel stack of one task, and a full batch of
/// frames on its per-CPU lists.
pub const MIN_MEMORY_PER_CPU: u64 = 128 << 10;

/// Most CPUs a machine may have.
pub const MAX_CPUS: u32 = 4096;

/// Most nodes a machine may have.
pub const MAX_NODES: u32 = 64;

/// A simulated SMP machine.
///
/// Made by [`Machine::builtin`], [`Machine::load`] or [`Machine::parse`], which check every field. The fields
/// are plain numbers for the simulator to read; change them by [`Machine::set`] and [`Machine::with_cpus`], which
/// check again and keep the sources up to date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The machine's name, as on the command line: lower-case letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// One line that says what machine this is.
    pub about: String,
    /// The year whose hardware it describes.
    pub year: u32,
    /// How page tables are written, and what a CPU does of itself with them. x86-64 unless the file says otherwise.
    pub architecture: Architecture,
    /// CPUs (hardware threads), 1 to [`MAX_CPUS`].
    pub cpus: u32,
    /// Memory nodes, 1 to [`MAX_NODES`], at most one a CPU.
    pub nodes: u32,
    /// Bytes of memory, spread over the nodes evenly. A multiple of 4096.
    pub memory: u64,
    /// So many bytes of it, at its end, come later, in blocks of 4 MiB, where a workload says so; none by default.
    #[doc(alias = "hot-add")]
    pub later: u64,
    /// Distances between nodes, `nodes` x `nodes`, in the manner of the ACPI SLIT: 10 is local, symmetric.
    pub distance: Vec<Vec<u32>>,
    /// The TLB of each CPU.
    pub tlb: Tlb,
    /// What each operation of the hardware costs, and the declared cost of what is not modelled.
    pub cost: Cost,
    /// The block device of files.
    pub device: Device,
    /// The swap devices, if there are any: without, anonymous pages stay in memory.
    pub swap: Option<Swap>,
    /// The node with slower memory and no CPU, if there is one: its number is [`nodes`](Self::nodes).
    pub slow: Option<Slow>,
    /// What the translation hardware guarantees.
    pub guarantees: Guarantees,
    /// Choices of the kernel that runs on the machine.
    pub kernel: Kernel,
    /// Clock in hertz, for constants given in cycles.
    hz: Option<u64>,
    /// What each constant was written as and where it is from, in the order of `key::KEYS`.
    notes: Vec<Note>,
}

/// The TLB of one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tlb {
    /// First-level entries for 4 KiB pages.
    pub l1_entries: u32,
    /// Ways of the first level; divides `l1_entries`.
    pub l1_ways: u32,
    /// Second-level entries; 0 means there is no second level.
    pub l2_entries: u32,
    /// Ways of the second level; divides `l2_entries`; 0 only when there is no second level.
    pub l2_ways: u32,
    /// Entries for 2 MiB pages, fully associative; 0 means that each use walks the tables.
    pub large_entries: u32,
    /// Address-space tags usable at once; 1 means no tags: every switch of the space flushes.
    pub tags: u32,
    /// Entries of the cache of upper page-table levels; 0 means none.
    pub walk_cache: u32,
    /// Pages that one instruction flushes on all CPUs (AMD's INVLPGB); 0 means that the machine has none.
    pub broadcast_pages: u32,
}

/// What operations cost. Every field is in integer picoseconds unless it says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// One sequential user access of 8 bytes whose translation hits, with its share of the memory stream.
    pub user_access: u64,
    /// Extra time of a first-level miss that hits the second level.
    pub tlb_l2_hit: u64,
    /// One page-table level read by the walker.
    pub walk_step: u64,
    /// Flush one page on this CPU.
    pub invlpg: u64,
    /// The instruction that flushes everything of a space on this CPU: a CR3 write, or INVPCID.
    pub flush_all: u64,
    /// Load another address space: CR3.
    pub load_space: u64,
    /// A fault: from the faulting instruction to the first instruction of the handler.
    pub trap_enter: u64,
    /// Return from a fault.
    pub trap_exit: u64,
    /// An interrupt: vectoring and entry stub.
    pub irq_enter: u64,
    /// Return from an interrupt: EOI and IRET.
    pub irq_exit: u64,
    /// The sender's cost for each target of an IPI: the ICR write.
    pub ipi_send: u64,
    /// Extra a hop, as for `ipi_flight_hop`. 0 by default.
    pub ipi_send_hop: u64,
    /// The kernel's own work for any interrupt: accounting, statistics, RCU, looking for soft interrupts.
    pub irq_work: u64,
    /// From ICR write to vectoring on a target of the same node.
    pub ipi_flight_local: u64,
    /// Extra flight a hop: flight = `ipi_flight_local` + `ipi_flight_hop` * (distance - 10) / 10.
    pub ipi_flight_hop: u64,
    /// Time an idle CPU takes to leave its idle state on an interrupt.
    pub idle_wake: u64,
    /// How much of that is for a task that is to run: an interrupt that only asks for a flush is served so much sooner. 0 by default.
    pub idle_task: u64,
    /// Work of a periodic timer tick besides `irq_enter` and `irq_exit`.
    pub tick_work: u64,
    /// Timer ticks a second on each CPU that is not idle, in hertz.
    pub tick_hz: u32,
    /// The scheduler's own work of a task switch, besides `load_space`.
    pub task_switch: u64,
    /// An access to a line that this CPU has in its own cache.
    pub cache_hit: u64,
    /// Move a line between two CPUs of one node.
    pub line_local: u64,
    /// Extra a hop, as for `ipi_flight_hop`.
    pub line_hop: u64,
    /// A line from the memory of this node.
    pub dram_local: u64,
    /// Extra a hop, as for `ipi_flight_hop`.
    pub dram_hop: u64,
    /// A line that nobody touched for so long comes from memory.
    pub cache_lifetime: u64,
    /// One spin hint. Never 0, so that a spinning CPU lets time pass.
    pub pause: u64,
    /// Clear a 4 KiB frame.
    pub clear_frame: u64,
    /// Copy a 4 KiB frame.
    pub copy_frame: u64,
    /// Enter the kernel by a system call and return.
    pub syscall: u64,
    /// Kernel work for each page fault that is not modelled: file system, accounting.
    pub other_kernel_work: u64,
    /// Pages whose share of `other_kernel_work` with interrupts off is done in one stretch. 1 to 64.
    pub other_kernel_work_pages: u32,
    /// Percent of `other_kernel_work` that a page costs when it leaves the page cache; the rest is paid when it is
    /// faulted in. 0 to 100.
    pub other_kernel_work_goes: u32,
    /// Percent of `other_kernel_work` that runs with interrupts off, 0 to 100.
    pub other_kernel_work_irqs_off: u32,
    /// Mean time between two moments at which something below the kernel takes a CPU away; 0 means never.
    pub stall_every: u64,
    /// Longest time that it is away.
    pub stall: u64,
    /// The instruction that begins a flush on all CPUs: INVLPGB. 0 by default, as are the next two: most machines have none.
    pub broadcast: u64,
    /// For so long such an instruction keeps others of the whole machine waiting.
    pub broadcast_gap: u64,
    /// From its turn until all CPUs have answered, which TLBSYNC waits for.
    pub broadcast_sync: u64,
    /// What a command to a block device costs the CPU that gives it: block layer and driver. 0 by default.
    pub io_submit: u64,
    /// What its completion costs the CPU that is interrupted, besides the interrupt. 0 by default.
    pub io_complete: u64,
    /// For so long whoever waits for a lock that may sleep looks whether it is free before it sleeps, if nobody else waits for its CPU. 0 by default.
    pub lock_spin: u64,
}

impl Cost {
    /// How long an idle CPU takes until it begins to serve a request to flush.
    pub const fn idle_answer(&self) -> u64 {
        self.idle_wake.saturating_sub(self.idle_task)
    }
}

/// A block device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Latency of a 4 KiB read, in picoseconds.
    pub read_latency: u64,
    /// Latency of a 4 KiB write, in picoseconds.
    pub write_latency: u64,
    /// Commands that may be in flight at once.
    pub parallel: u32,
    /// Bytes a second, all commands together.
    pub bandwidth: u64,
}

/// The swap devices, all alike, each with queues and interrupts of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swap {
    /// How many.
    pub devices: u32,
    /// Bytes of each. A multiple of 4096.
    pub size: u64,
    /// Latency of a read of one page, without what its bytes take by the bandwidth, in picoseconds.
    pub read_latency: u64,
    /// That of a write.
    pub write_latency: u64,
    /// Commands that each device works on at once; more wait in its queue.
    pub parallel: u32,
    /// Bytes a second that one device reads, all its commands together.
    pub read_bandwidth: u64,
    /// And writes. Reads and writes share the device's time.
    pub write_bandwidth: u64,
    /// By so much each device's priority is below the one's before it; 0: pages are striped over all.
    pub priority_step: u32,
    /// Of a thousand pages that are read so many fail, at random by the seed.
    pub read_errors: u32,
    /// And of those that are written.
    pub write_errors: u32,
    /// From this time on the last device is not there any more, in picoseconds; 0 means never.
    pub gone_at: u64,
    /// From this time on the first device takes no more writes; 0 means never.
    pub full_at: u64,
}

/// A node that has memory and no CPU, as far from all others: memory behind CXL. Costs are as those of [`Cost`] with the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slow {
    /// Bytes of memory, beside [`Machine::memory`]. A multiple of 4096; 0: it is not there.
    pub size: u64,
    /// Its distance from every other node, in the manner of the ACPI SLIT.
    pub node_distance: u32,
    /// A line from its memory, in picoseconds.
    pub latency: u64,
    /// One sequential user access of 8 bytes there.
    pub user_access: u64,
    /// Clear a frame there.
    pub clear_frame: u64,
    /// Copy a frame that is there, or goes there.
    pub copy_frame: u64,
}

/// What the translation hardware guarantees beyond the necessary: [`quietmm::platform::Guarantees`]. What is
/// withdrawn is not declared to the core, which refuses the policies that rest on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guarantees {
    /// A write through a cached clean entry walks the table again, and faults if the entry is gone. Withdrawn, it
    /// goes through, and the table does not hear of it.
    pub clean_write_walks: bool,
    /// The accessed bit may be cleared without a flush.
    pub unflushed_accessed: bool,
}

impl Default for Guarantees {
    /// Those of x86-64: all.
    fn default() -> Self {
        Guarantees { clean_write_walks: true, unflushed_accessed: true }
    }
}

/// Choices of the kernel that runs on the machine. They do not depend on the machine, so a file may leave them
/// out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Pages that a CPU gathers before it moves them to an LRU list. 14 by default.
    #[doc(alias = "PAGEVEC_SIZE")]
    pub lru_batch: u32,
    /// Pages that reclaim takes from an LRU list at once. 32 by default.
    #[doc(alias = "SWAP_CLUSTER_MAX")]
    pub scan_batch: u32,
    /// Most pages that are flushed one by one; more are one full flush. 33 by default.
    #[doc(alias = "tlb_single_page_flush_ceiling")]
    pub flush_ceiling: u32,
    /// Time a task may run while others wait, in picoseconds. 3 ms by default.
    pub time_slice: u64,
    /// Tasks that reclaim ahead of need, for each node. 1 by default.
    pub kswapd: u32,
    /// Whether reclaim moves pages to the slow node before it takes them out of memory. No by default.
    #[doc(alias = "demotion_enabled")]
    pub demotion: bool,
    /// Whether new pages of programs come on the slow node where no other has room. Yes by default; if not, programs are bound to the
    /// other nodes.
    #[doc(alias = "numactl")]
    pub slow_fallback: bool,
    /// Reserve in KiB that watermarks are computed from; `None` means from the memory size.
    #[doc(alias = "min_free_kbytes")]
    pub min_free_kib: Option<u64>,
    /// KiB of kernel addresses that are unmapped and wait, before they are purged; `None` means from the number of CPUs.
    #[doc(alias = "lazy_max_pages")]
    pub vmap_lazy_kib: Option<u64>,
    /// Parts of the kernel range with locks of their own; `None` means from the number of CPUs.
    pub vmap_shards: Option<u32>,
}

impl Default for Kernel {
    fn default() -> Self {
        Kernel {
            lru_batch: 14,
            scan_batch: 32,
            flush_ceiling: 33,
            time_slice: 3_000_000_000,
            kswapd: 1,
            demotion: false,
            slow_fallback: true,
            min_free_kib: None,
            vmap_lazy_kib: None,
            vmap_shards: None,
        }
    }
}

/// One constant of a machine, to be printed or recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Section and name, such as `cost.invlpg`: what [`Machine::set`] takes.
    pub key: String,
    /// The value as it was written, in `unit`.
    pub value_text: String,
    /// The unit, such as `ns`.
    pub unit: String,
    /// Where the value is from.
    pub source: String,
}

/// How a constant was written, and where it is from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Note {
    value_text: String,
    unit: String,
    source: String,
}

impl Machine {
    /// The node of a CPU: contiguous blocks, which differ by at most one CPU.
    ///
    /// A CPU that the machine does not have counts as its last one.
    #[must_use]
    pub fn node_of(&self, cpu: u32) -> u32 {
        let cpus = u64::from(self.cpus.max(1));
        let cpu = u64::from(cpu).min(cpus - 1);
        u32::try_from(cpu * u64::from(self.nodes) / cpus).unwrap_or(0)
    }

    /// All memory, that of the slow node too, in bytes.
    #[must_use]
    pub fn all_memory(&self) -> u64 {
        self.memory + self.slow.as_ref().map_or(0, |slow| slow.size)
    }

    /// All nodes, the slow one too.
    #[must_use]
    pub fn all_nodes(&self) -> u32 {
        self.nodes + u32::from(self.slow.is_some())
    }

    /// How far a node is from another, of all nodes.
    #[must_use]
    pub fn distance_of(&self, from: u32, to: u32) -> u32 {
        match &self.slow {
            Some(_) if from == to => 10,
            Some(slow) if from.max(to) >= self.nodes => slow.node_distance,
            _ => self.distance[from as usize][to as usize],
        }
    }

    /// Every constant with its unit and source, in a fixed order; first the distances.
    #[must_use]
    pub fn constants(&self) -> Vec<Constant> {
        let names =
            std::iter::once("memory.distance".to_owned()).chain(key::KEYS.iter().map(key::Key::full_name));
        let there = |name: &str| name.split('.').next().is_none_or(|section| key::has_section(self, section));
        names
            .zip(&self.notes)
            .filter(|(name, note)| !note.value_text.is_empty() && there(name))
            .map(|(key, note)| Constant {
                key,
                value_text: note.value_text.clone(),
                unit: note.unit.clone(),
                source: note.source.clone(),
            })
            .collect()
    }

    /// A machine of which nothing is known yet but the kernel's defaults.
    fn blank() -> Self {
        let mut machine = Machine {
            name: String::new(),
            about: String::new(),
            year: 0,
            architecture: Architecture::X86_64,
            cpus: 0,
            nodes: 0,
            memory: 0,
            later: 0,
            distance: Vec::new(),
            tlb: Tlb::default(),
            cost: Cost::default(),
            device: Device::default(),
            swap: None,
            slow: None,
            guarantees: Guarantees::default(),
            kernel: Kernel::default(),
            hz: None,
            notes: vec![Note::default(); key::KEYS.len() + 1],
        };
        for (at, key) in key::KEYS.iter().enumerate() {
            if let key::Need::Default(value_text, unit, source) = key.need {
                machine.notes[at + 1] =
                    Note { value_text: value_text.into(), unit: unit.into(), source: source.into() };
            }
        }
        machine
    }

    /// The distances as one line of text.
    fn distance_text(&self) -> String {
        let row = |row: &Vec<u32>| row.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        self.distance.iter().map(row).collect::<Vec<_>>().join(" / ")
    }
}
