//! The manager: made once from the platform's memory, used from every CPU.

use crate::addr::{FrameNumber, NodeId, PageRange};
use crate::cpu::CpuId;
use crate::error::Error;
use crate::event::{Counter, Event};
use crate::file::File;
use crate::frame::boot::{self, Carved, MAX_NODES};
use crate::frame::percpu::{MAX_PAGE_BATCH, batch_for};
use crate::frame::{AllocFrom, FrameTable, Zone};
use crate::paging::{Region as Mapping, Space};
use crate::percpu::{CpuSlot, Here, MAX_LRU_BATCH};
use crate::platform::Platform;
use crate::policy::Policy;
use crate::pool::{Pool, Zeroed};
use crate::reclaim::Node;
use crate::rule::Rule;
use crate::tlb::BatchSlot;
use crate::vmap::Vmap;

/// A run of memory handed over at start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// Its first frame.
    pub start: FrameNumber,
    /// How many frames.
    pub frames: u32,
    /// Its node.
    pub node: NodeId,
}

/// What is chosen when the manager is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The policy of every mechanism.
    pub policy: Policy,
    /// Pages that a CPU gathers before it puts them on an LRU list: 1 to 64. Linux of 2015: 14.
    pub lru_batch: u32,
    /// Pages that one scan looks at and one unmap batch takes: 1 to 64. Linux: 32.
    pub scan_batch: u32,
    /// Pages above which a flush takes everything: at least 1. Linux: 33.
    pub flush_ceiling: u32,
    /// Frames that a CPU takes from a zone at a time: 1 to 63. `None`: Linux's rule, by the size of the memory.
    pub page_batch: Option<u32>,
    /// Frames kept free in all zones together (the sum of the min watermarks), instead of Linux's rule.
    pub min_free: Option<u32>,
    /// Kernel pages that the core may give out, in the upper half of addresses: see [`Manager::vmap`]. `None`: none.
    pub vmap: Option<PageRange>,
    /// Parts of that range with locks of their own: 1 to 64. `None`: one for 8 CPUs, of 64 MiB at least.
    pub vmap_shards: Option<u32>,
    /// Kernel pages that are unmapped and wait, before a purge is asked for. `None`: Linux's rule, 32 MiB for each doubling
    /// of the CPUs that are online.
    pub vmap_lazy: Option<u64>,
    /// [`Manager::vfree`] frees frames before their addresses are flushed, as Linux does: a CPU may still use them (INV-1).
    pub vfree_at_once: bool,
}

impl Config {
    /// Linux's settings with this policy.
    pub const fn new(policy: Policy) -> Self {
        Config {
            policy,
            lru_batch: 14,
            scan_batch: 32,
            flush_ceiling: 33,
            page_batch: None,
            min_free: None,
            vmap: None,
            vmap_shards: None,
            vmap_lazy: None,
            vfree_at_once: false,
        }
    }

    /// Linux's rule for `page_batch` on a zone of so many frames.
    pub const fn linux_page_batch(frames: u64) -> u32 {
        batch_for(frames)
    }

    /// Linux's rule for a machine of so many frames: the square root of 16 times the memory in KiB, 128 KiB
    /// to 64 MiB. In frames.
    pub const fn linux_min_free(frames: u64) -> u64 {
        let kib = (frames * 4 * 16).isqrt();
        let kib = if kib < 128 { 128 } else { kib };
        (if kib > 65536 { 65536 } else { kib }) / 4
    }

    fn check(&self) -> Result<(), Error> {
        let fits = |n: u32| (1..=MAX_LRU_BATCH as u32).contains(&n);
        if !fits(self.lru_batch) {
            return Err(Error::BadSetting("lru_batch must be 1 to 64"));
        }
        if !fits(self.scan_batch) {
            return Err(Error::BadSetting("scan_batch must be 1 to 64"));
        }
        if self.page_batch.is_some_and(|n| n == 0 || n > MAX_PAGE_BATCH as u32) {
            return Err(Error::BadSetting("page_batch must be 1 to 63"));
        }
        if self.flush_ceiling == 0 {
            return Err(Error::BadSetting("flush_ceiling must be at least 1"));
        }
        self.check_vmap()
    }
}

/// The pools, in the platform's memory like everything that CPUs share.
#[repr(C)]
pub(crate) struct Root {
    pub spaces: Pool<Space>,
    pub regions: Pool<Mapping>,
    pub files: Pool<File>,
    pub batches: Pool<BatchSlot>,
}

// SAFETY: pools are.
unsafe impl Zeroed for Root {}

/// The memory manager. All CPUs share it by reference.
pub struct Manager<'p, P: Platform> {
    p: &'p P,
    config: Config,
    page_batch: u32,
    carved: Carved<'p>,
    pub(crate) root: &'p Root,
    kernel_root: FrameNumber,
    pub(crate) vmap: Option<Vmap<'p>>,
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Takes over memory. Called once, on one CPU, before any other uses the manager. Regions are sorted and
    /// disjoint; the core carves at most 64 bytes of bookkeeping per frame out of them, and some 3 KiB per
    /// CPU.
    ///
    /// # Errors
    /// [`Error::TooLittleMemory`], [`Error::BadRegion`], [`Error::BadTopology`], [`Error::BadSetting`], and
    /// [`Error::GuaranteeMissing`] for a policy that needs what the platform does not guarantee.
    pub fn new(p: &'p P, regions: &[Region], config: Config) -> Result<Self, Error> {
        config.check()?;
        if !p.broken(Rule::AskGuarantees) {
            config.policy.check(p.guarantees())?;
        }
        let carved = boot::carve(p, regions, &config)?;
        let root = carved.root;
        let largest = regions.iter().map(|r| u64::from(r.frames)).max().unwrap_or(0);
        let page_batch = config.page_batch.unwrap_or(batch_for(largest));
        let mut mm =
            Manager { p, config, page_batch, carved, root, kernel_root: FrameNumber::NONE, vmap: None };
        mm.nodes().for_each(|node| node.init(p));
        mm.note_presence();
        boot::fill(&mm);
        mm.kernel_root =
            crate::paging::table::make_table(&mm, AllocFrom::NOW).map_err(|_| Error::TooLittleMemory)?;
        p.prepare_root(mm.kernel_root);
        mm.vmap = config.vmap.map(|range| Vmap::new(&mm, range)).transpose()?;
        // Reclaim must not need a frame to begin: the first batches exist before memory runs short.
        let batch = mm.root.batches.reserve(&mm, AllocFrom::NOW).map_err(|_| Error::TooLittleMemory)?;
        mm.root.batches.release(&mm, batch.commit());
        Ok(mm)
    }

    /// What it was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn page_batch(&self) -> u32 {
        self.page_batch
    }

    /// Frames at hand on all CPUs.
    pub(crate) fn at_hand(&self) -> u64 {
        self.carved.cpus.iter().map(|slot| u64::from(slot.pages.len())).sum()
    }

    /// The machine under it.
    pub fn platform(&self) -> &'p P {
        self.p
    }

    /// To be called by the interrupt handler for [`Platform::interrupt`], with interrupts off.
    pub fn on_interrupt(&self) {
        crate::ipi::on_interrupt(self);
    }

    /// Serves what other CPUs want of this one: for kernels that spin on locks of their own with interrupts
    /// off (INV-8). Any context.
    pub fn serve(&self) {
        crate::ipi::serve(&Here::new(self));
    }

    /// A counter, summed over all CPUs. While they run it is a sum of moments.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.carved.cpus.iter().map(|slot| slot.counters.get(counter)).sum()
    }

    /// Free frames in all zones.
    pub fn free_frame_count(&self) -> u64 {
        self.zones().map(|zone| zone.free(self.p)).sum()
    }

    pub(crate) fn emit(&self, event: Event) {
        self.slot(self.p.this_cpu()).counters.fold(&event);
        self.p.observe(&event);
    }

    pub(crate) fn frames(&self) -> FrameTable<'p> {
        self.carved.frames
    }

    pub(crate) fn slot(&self, cpu: CpuId) -> &'p CpuSlot {
        self.carved.cpus[cpu.index()]
    }

    pub(crate) fn zone(&self, index: usize) -> &'p Zone {
        self.carved.zones[index]
    }

    pub(crate) fn zones(&self) -> impl Iterator<Item = &'p Zone> + use<'p, P> {
        self.carved.zones.iter().copied()
    }

    /// The zones by distance from a node.
    pub(crate) fn fallback(&self, node: NodeId) -> impl Iterator<Item = &'p Zone> + use<'p, P> {
        let zones = self.carved.zones;
        let first = usize::from(node.0) * zones.len();
        self.carved.fallback[first..first + zones.len()].iter().map(|&z| zones[usize::from(z)])
    }

    pub(crate) fn has_node(&self, node: NodeId) -> bool {
        usize::from(node.0) < MAX_NODES && self.carved.nodes[usize::from(node.0)].is_some()
    }

    pub(crate) fn node(&self, node: NodeId) -> &'p Node {
        self.carved.nodes[usize::from(node.0)].expect("a node of a frame or a checked one")
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &'p Node> + use<'p, P> {
        self.carved.nodes.iter().filter_map(|node| *node)
    }

    pub(crate) fn node_here(&self) -> NodeId {
        self.p.node_of(self.p.this_cpu())
    }

    pub(crate) fn kernel_root(&self) -> FrameNumber {
        self.kernel_root
    }

    /// Frames that the core's bookkeeping took at start.
    pub fn reserved_frames(&self) -> u64 {
        self.carved.reserved
    }
}
