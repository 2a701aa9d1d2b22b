//! The workloads: what tasks do, the same on every machine.

mod bystander;
mod churn;
mod dir_buffers;
mod fork_storm;
mod groups;
mod hackbench;
mod hotplug;
mod page_alloc;
mod pressure;
mod reader;
pub mod replay;
mod revisit;
mod scan_resist;
mod shootdown;
mod swap_threads;
mod turns;
mod unmap_storm;
mod vmap_mix;
mod vmap_touch;

use alloc::vec::Vec;

use quietmm::{Backing, CpuId, Error, FileId, PageNumber, PageRange, Prot, SpaceId};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256StarStar;

use crate::latency::Op;
use crate::machine::Machine;
use crate::system::System;
use crate::trace::AnyTrace;

/// Where workloads map their files.
const BASE: PageNumber = PageNumber(0x10_0000);
/// User accesses per page in a sequential read of 8 bytes at a time.
const READS_PER_PAGE: u32 = 512;

/// What a workload is sized by.
#[derive(Clone, Copy)]
pub struct Params<'t> {
    /// CPUs.
    pub cpus: u32,
    /// Frames of memory, all nodes together.
    pub frames: u64,
    /// Varies what is random: start delays, and what random workloads do.
    pub seed: u64,
    /// The trace to be replayed.
    pub trace: Option<AnyTrace<'t>>,
    /// Threads that work, where one may choose: 1 to `cpus`.
    pub threads: u32,
    /// How much other work there is, where one may choose: one of [`Workload::parts`], or all of them.
    pub parts: Option<u32>,
}

macro_rules! workloads {
    ($($variant:ident, $name:literal, $machine:literal, $scale:literal, $about:literal;)*) => {
        /// A workload.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Workload { $(#[doc = $about] $variant,)* }

        impl Workload {
            /// All of them.
            pub const ALL: &'static [Workload] = &[$(Workload::$variant,)*];

            /// The name on the command line.
            pub const fn name(self) -> &'static str {
                match self { $(Workload::$variant => $name,)* }
            }

            /// What it does, in one line.
            pub const fn about(self) -> &'static str {
                match self { $(Workload::$variant => $about,)* }
            }

            /// The machine that it runs on unless another is named.
            pub const fn default_machine(self) -> &'static str {
                match self { $(Workload::$variant => $machine,)* }
            }

            /// Memory and work are divided by this unless something else is said.
            pub const fn default_scale(self) -> u32 {
                match self { $(Workload::$variant => $scale,)* }
            }
        }
    };
}

workloads! {
    Reader, "lru-file-mmap-read", "numa-4x12", 64,
        "a process per CPU reads its own sparse file, 10 x memory in all, once and in order";
    SharedReader, "lru-file-mmap-read-shared", "numa-4x12", 128,
        "the same by the threads of one process, one per CPU";
    NoPressure, "no-pressure", "numa-4x12", 64,
        "a process per CPU reads a file four times; all files fit in half the memory";
    Bystander, "tlb-bystander", "numa-4x12", 128,
        "half the threads of a process use a hot set that fits the TLB, the others read cold pages";
    Replay, "trace", "uma-8", 256,
        "recorded work of a real program: a copy of its accesses on each CPU, or its threads and what they asked for";
    Churn, "churn", "stress-4x4", 1,
        "every operation at random on 2 to 16 CPUs that leave and return, memory short, every content checked";
    SwapThreads, "swap-threads", "ssd-8", 32,
        "a thread per CPU of one process sweeps through memory of 2 x the machine's, a hot part beside it, contents checked";
    ScanResist, "scan-resist", "ssd-8", 32,
        "threads use a hot set of 3/8 of memory while others sweep once through files and new memory: what is lost of it";
    Groups, "groups", "uma-8", 512,
        "a group uses its memory alone, beside one that wants far more than its limit, and beside the same without a limit";
    SwapChurn, "swap-churn", "stress-swap", 1,
        "churn with more anonymous memory than fits, swap devices that fail at random, and pages given up that are lost";
    Revisit, "revisit", "uma-8", 1024,
        "threads re-read, write, unmap and map hot pages while memory is short and CPUs change spaces";
    ForkStorm, "fork-storm", "uma-8", 256,
        "a thread of each process forks again and again while the others write; children write a quarter and end";
    Hotplug, "hotplug", "stress-4x4", 1,
        "CPUs and blocks of memory go and come while all CPUs take frames and free them, and drain";
    UnmapStorm, "unmap-storm", "numa-8x15", 64,
        "one CPU unmaps a page that N have cached, for a curve of N; then all threads of a process unmap 1 to 512 pages";
    HackbenchOom, "hackbench-oom", "vm-8", 8,
        "groups of 20 senders and 20 receivers pass messages, memory too small for all: victims end until the rest fits";
    PageAlloc, "page-alloc", "modern-2x64", 64,
        "each CPU allocates and frees frames in bulk, at random, in pairs and for another CPU, orders 0 and 9";
    VmapTouch, "vmap-touch", "opteron-2x4", 16,
        "threads map 4 scattered pages in the kernel, touch and unmap them: by vmap, then by map_ram (--threads N)";
    VmapMix, "vmap-mix", "numa-4x12", 64,
        "15,000 kernel mappings of 1 to 100 pages, aligned by up to 4 MiB: a quarter stays, the others come and go";
    DirBuffers, "dir-buffers", "sn2-64", 64,
        "each CPU maps buffers of 1 to 16 scattered pages, searches and unmaps them, between 0 to 100 parts of other work";
}

impl Workload {
    /// By its name.
    pub fn parse(name: &str) -> Option<Workload> {
        Self::ALL.iter().copied().find(|w| w.name() == name)
    }

    /// Whether it replays a trace.
    pub const fn needs_trace(self) -> bool {
        matches!(self, Workload::Replay)
    }

    /// Whether one may choose how many threads it has.
    pub const fn takes_threads(self) -> bool {
        matches!(self, Workload::VmapTouch | Workload::SwapThreads)
    }

    /// Parts of other work to one of its own that one may choose among; none for most.
    pub const fn parts(self) -> &'static [u32] {
        match self {
            Workload::DirBuffers => &dir_buffers::RATIOS,
            _ => &[],
        }
    }

    /// Pages of the kernel range that it needs on so many CPUs; `None` if it maps nothing there.
    pub const fn kernel_pages(self, cpus: u32) -> Option<u64> {
        match self {
            Workload::VmapMix => Some(vmap_mix::kernel_pages(cpus)),
            Workload::VmapTouch | Workload::DirBuffers => Some(vmap_touch::kernel_pages(cpus)),
            _ => None,
        }
    }

    /// Groups of spaces that it makes; none for most.
    pub const fn groups(self) -> u32 {
        if matches!(self, Workload::Groups) { 2 } else { 0 }
    }

    /// Whether it says nothing on a machine without swap devices.
    pub const fn needs_swap(self) -> bool {
        matches!(self, Workload::SwapThreads | Workload::ScanResist | Workload::SwapChurn)
    }

    /// Whether it is about memory that is short: it says little where it never is.
    pub const fn needs_pressure(self) -> bool {
        use Workload::{Bystander, HackbenchOom, Reader, Replay, Revisit, SharedReader};
        matches!(self, Reader | SharedReader | Bystander | Replay | Revisit | HackbenchOom)
            || self.needs_swap()
    }

    /// Whether nothing runs any more once its user tasks have ended: it has no tasks that go on for ever.
    pub const fn comes_to_rest(self) -> bool {
        !matches!(self, Workload::Bystander)
    }

    /// Whether it takes frames as a kernel does and does not give them back.
    pub const fn keeps_frames(self) -> bool {
        matches!(self, Workload::Churn | Workload::SwapChurn)
    }

    /// User tasks and others that it makes at most, on so many CPUs with so many frames: what a machine keeps stacks for.
    pub const fn tasks(self, cpus: u32, frames: u64) -> u32 {
        match self {
            Workload::Revisit => 3 * cpus,
            Workload::Churn | Workload::SwapChurn => 2 * cpus,
            Workload::ScanResist => cpus + cpus.div_ceil(2) + 2,
            Workload::Hotplug => cpus + 1,
            Workload::Groups if cpus == 1 => 2,
            Workload::UnmapStorm => unmap_storm::tasks(cpus),
            Workload::HackbenchOom => hackbench::tasks(cpus, frames),
            _ => cpus,
        }
    }

    /// Makes the spaces, files and tasks on a machine that does not run yet. Returns the pages of work, for
    /// whoever shows progress.
    ///
    /// # Errors
    /// The core's: memory too small for the tables that the work needs.
    pub fn set_up<'p, M: Machine>(self, system: &System<'p, M>, params: &Params<'p>) -> Result<u64, Error> {
        match self {
            Workload::Reader => reader::processes(system, params),
            Workload::SharedReader => reader::threads(system, params),
            Workload::NoPressure => pressure::none(system, params),
            Workload::Bystander => bystander::set_up(system, params),
            Workload::Replay => replay::set_up(system, params),
            Workload::Churn => churn::set_up(system, params, churn::Kind::Plain),
            Workload::SwapChurn => churn::set_up(system, params, churn::Kind::Swap),
            Workload::SwapThreads => swap_threads::set_up(system, params),
            Workload::ScanResist => scan_resist::set_up(system, params),
            Workload::Groups => groups::set_up(system, params),
            Workload::Revisit => revisit::set_up(system, params),
            Workload::ForkStorm => fork_storm::set_up(system, params),
            Workload::Hotplug => hotplug::set_up(system, params),
            Workload::UnmapStorm => unmap_storm::set_up(system, params),
            Workload::HackbenchOom => hackbench::set_up(system, params),
            Workload::PageAlloc => page_alloc::set_up(system, params),
            Workload::VmapTouch => vmap_touch::set_up(system, params),
            Workload::VmapMix => vmap_mix::set_up(system, params),
            Workload::DirBuffers => dir_buffers::set_up(system, params),
        }
    }
}

impl Params<'_> {
    /// Random numbers of one task.
    fn rng(&self, task: u32) -> Xoshiro256StarStar {
        Xoshiro256StarStar::seed_from_u64(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(task))
    }

    /// A short random delay before a task begins, in accesses: no two CPUs start in step.
    fn delay(&self, task: u32) -> u32 {
        (self.rng(task).next_u64() % 16_384) as u32
    }
}

/// Does it, and tells the machine how long it took.
fn timed<M: Machine, R>(
    system: &System<'_, M>,
    op: Op,
    pages: u64,
    work: impl FnOnce() -> Result<R, Error>,
) -> Result<R, Error> {
    let m = system.mm.platform();
    let start = m.now().0;
    let result = work()?;
    m.latency(op, pages, m.now().0 - start);
    Ok(result)
}

/// A space for each CPU.
fn spaces<M: Machine>(system: &System<'_, M>, cpus: u32) -> Result<Vec<(CpuId, SpaceId)>, Error> {
    (0..cpus).map(|cpu| Ok((CpuId(cpu as u16), system.create_space()?))).collect()
}

/// A file of `pages` pages, mapped whole at `at`.
fn map_file<M: Machine>(
    system: &System<'_, M>,
    space: SpaceId,
    at: PageNumber,
    pages: u64,
    prot: Prot,
) -> Result<FileId, Error> {
    let file = system.mm.create_file(pages)?;
    system.mm.space(space).map(PageRange::new(at, pages), Backing::File { file, offset: 0 }, prot)?;
    Ok(file)
}
