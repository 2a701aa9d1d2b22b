//! The manager: made once from the platform's memory, used from every CPU.

use crate::addr::{FrameNumber, NodeId, PageRange};
use crate::cpu::{CpuId, CpuMask};
use crate::error::Error;
use crate::event::{Counter, Event};
use crate::file::File;
use crate::frame::boot::{self, Carved, MAX_NODES};
use crate::frame::percpu::Holders;
use crate::frame::{AllocFrom, FrameTable, ListLimits, Zone, own};
use crate::paging::{Family, Parked, Region as Mapping, Space};
use crate::percpu::{CpuSlot, Here, MAX_LRU_BATCH};
use crate::platform::Platform;
use crate::policy::Policy;
use crate::pool::{Pool, Zeroed};
use crate::profile::Scope;
use crate::reclaim::{Clock, Node, Shadows};
use crate::rule::Rule;
use crate::swap::Swap;
use crate::sync::{SpinLock, Word32};
use crate::tlb::{BatchSlot, Sweeps, Swept};
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
    /// How many free frames of each zone a CPU keeps at hand. `None`: Linux's rule, by the size of the zone.
    pub page_lists: Option<ListLimits>,
    /// Frames kept free in all zones together (the sum of the min watermarks), instead of Linux's rule.
    pub min_free: Option<u32>,
    /// Kernel pages that the core may give out, in the upper half of addresses: see [`Manager::vmap`]. `None`: none.
    pub vmap: Option<PageRange>,
    /// Parts of that range with locks of their own: 1 to 4096. `None`: one for each CPU, of 64 MiB at least.
    pub vmap_shards: Option<u32>,
    /// Kernel pages that are unmapped and wait, before a purge is asked for. `None`: Linux's rule, 32 MiB for each doubling
    /// of the CPUs that are online. With `vmap=sweep`, on all CPUs together: each begins a sweep when its share waits there.
    /// `None`: 8 MiB a CPU.
    pub vmap_lazy: Option<u64>,
    /// Pages that may be on their way to devices before tasks that reclaim must wait: at least 1. Linux has a limit per
    /// device, of 128 commands.
    pub pageout_limit: u32,
    /// Reclaim remembers which pages it took, to know those that are wanted again too soon. 4 bytes for each frame.
    pub shadows: bool,
    /// Anonymous pages may be reclaimed: they are on the lists and can be found by the reverse map, and
    /// [`Manager::swap_on`] is allowed. Costs a slot of 128 bytes for each mapping of memory that is a space's own.
    pub swap: bool,
    /// Mappings that a space may have, with those that `unmap` and `protect` make of one: at least 1. What bounds the memory that
    /// one space takes for its mappings: 128 bytes each, and with [`swap`](Self::swap) another 128. Linux
    /// (`vm.max_map_count`): 65530.
    pub max_map_count: u32,
    /// How much a task does in the core before it lets others run ([`Platform::cond_resched`]), in looks at page-table
    /// entries: at least 1. What is dearer counts for more: 1024 is some 64 VMAs, or 64 frames that are freed or copied.
    pub resched_after: u32,
    /// [`Manager::vfree`] frees frames before their addresses are flushed, as Linux does: a CPU may still use them (INV-1).
    pub vfree_at_once: bool,
    /// How long a sweep is waited for before those CPUs are interrupted that have not taken part, in nanoseconds: by a task that
    /// needs memory with `unmap=quiet`, by who purges with `vmap=sweep`. More than a period of their timers, or sweeps come by
    /// interrupt.
    pub sweep_deadline: u64,
}

impl Config {
    /// Linux's settings with this policy.
    pub const fn new(policy: Policy) -> Self {
        Config {
            policy,
            lru_batch: 14,
            scan_batch: 32,
            flush_ceiling: 33,
            page_lists: None,
            min_free: None,
            vmap: None,
            vmap_shards: None,
            vmap_lazy: None,
            pageout_limit: 1024,
            shadows: false,
            swap: false,
            max_map_count: 65_530,
            resched_after: 1024,
            vfree_at_once: false,
            sweep_deadline: 25_000_000,
        }
    }

    /// Linux's rule for the lists of a zone of so many frames that keeps `min_free` of them free (its share), on a node
    /// of so many CPUs.
    pub const fn linux_page_lists(frames: u64, min_free: u64, cpus: u32) -> ListLimits {
        ListLimits::linux(frames, min_free + min_free / 4 + 1, cpus)
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
        self.page_lists.map_or(Ok(()), |limits| limits.check().map(drop))?;
        if self.pageout_limit == 0 {
            return Err(Error::BadSetting("pageout_limit must be at least 1"));
        }
        if self.max_map_count == 0 {
            return Err(Error::BadSetting("max_map_count must be at least 1"));
        }
        if self.resched_after == 0 {
            return Err(Error::BadSetting("resched_after must be at least 1"));
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
    pub families: Pool<Family>,
    pub files: Pool<File>,
    pub batches: Pool<BatchSlot>,
    pub swap: Swap,
    pub clock: Clock,
    pub sweeps: Sweeps,
    pub swept: Swept,
    /// CPUs that run.
    pub online: CpuMask,
    pub online_cpus: Word32,
    pub holders: Holders,
    /// Whoever works out the watermarks. Zones' locks are taken inside.
    pub watermarks: SpinLock<{ Scope::ZoneLock as u8 }>,
}

// SAFETY: pools are.
unsafe impl Zeroed for Root {}

impl Root {
    /// Before anybody uses it.
    fn init<P: Platform>(&self, p: &P) {
        self.spaces.init(p);
        self.regions.init(p);
        self.families.init(p);
        self.files.init(p);
        self.batches.init(p);
    }
}

/// The memory manager. All CPUs share it by reference.
pub struct Manager<'p, P: Platform> {
    p: &'p P,
    config: Config,
    carved: Carved<'p>,
    pub(crate) root: &'p Root,
    kernel_root: FrameNumber,
    pub(crate) vmap: Option<Vmap<'p>>,
    /// Of each CPU, where operations park what they take out.
    pub(crate) parked: &'p [Parked],
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
            config.policy.check(p.guarantees(), p.broadcast().is_some())?;
        }
        let carved = boot::carve(p, regions, &config)?;
        let root = carved.root;
        let mut mm =
            Manager { p, config, carved, root, kernel_root: FrameNumber::NONE, vmap: None, parked: &[] };
        root.init(p);
        mm.nodes().for_each(|node| node.init(p));
        mm.note_presence();
        boot::fill(&mm);
        mm.kernel_root =
            crate::paging::table::make_table(&mm, AllocFrom::NOW).map_err(|_| Error::TooLittleMemory)?;
        p.prepare_root(mm.kernel_root);
        if mm.parks() {
            mm.parked = own(&mm, p.possible_cpus() as usize)?;
        }
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

    /// Free frames that CPUs have at hand, which only they can use until the lists are drained. While they run it is a
    /// sum of moments.
    pub fn frames_at_hand(&self) -> u64 {
        self.carved.cpus.iter().map(|slot| u64::from(slot.pages.held(self.p))).sum()
    }

    pub(crate) fn holders(&self) -> &'p CpuMask {
        &self.root.holders.0
    }

    /// The machine under it.
    #[inline(always)]
    pub fn platform(&self) -> &'p P {
        self.p
    }

    /// To be called by the interrupt handler for [`Platform::interrupt`], with interrupts off.
    pub fn on_interrupt(&self) {
        crate::ipi::on_interrupt(self);
    }

    /// Serves what other CPUs want of this one: for kernels that spin on locks of their own with interrupts
    /// off (INV-8). Any context but a non-maskable interrupt.
    pub fn serve(&self) {
        crate::ipi::serve(&Here::new(self));
    }

    /// A counter, summed over all CPUs. While they run it is a sum of moments.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.carved.cpus.iter().map(|slot| slot.counters.get(counter)).sum()
    }

    /// Free frames in all zones, without those that CPUs have at hand ([`frames_at_hand`](Self::frames_at_hand)).
    pub fn free_frame_count(&self) -> u64 {
        self.zones().map(|zone| zone.free(self.p)).sum()
    }

    #[inline(always)]
    pub(crate) fn emit(&self, event: Event) {
        self.emit_at(self.slot(self.p.this_cpu()), event);
    }

    /// The same for who has this CPU's slot at hand.
    #[inline(always)]
    pub(crate) fn emit_at(&self, slot: &CpuSlot, event: Event) {
        slot.counters.fold(&event);
        self.p.observe(&event);
    }

    #[inline(always)]
    pub(crate) fn frames(&self) -> FrameTable<'p> {
        self.carved.frames
    }

    #[inline(always)]
    pub(crate) fn slot(&self, cpu: CpuId) -> &'p CpuSlot {
        self.carved.cpus[cpu.index()]
    }

    #[inline(always)]
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

    pub(crate) fn shadows(&self) -> &Shadows<'p> {
        &self.carved.shadows
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
