//! The manager: made once from the platform's memory, used from every CPU.

use crate::addr::{FrameNumber, MAX_NODES, NodeId, Region};
use crate::boot::{self, Carved};
use crate::config::Config;
use crate::cpu::CpuId;
use crate::cpumask::CpuMask;
use crate::error::Error;
use crate::event::{Counter, Event};
use crate::frame::{AllocFrom, Zone};
use crate::group::Groups;
use crate::handle::GroupSlot;
use crate::memmap::FrameTable;
use crate::percpu::{CpuGuard, CpuSlot};
use crate::platform::Platform;
use crate::reclaim::{GroupLists, LruVec, Node, Shadows, Turn};
use crate::root::Root;
use crate::rule::Rule;
use crate::space::Parked;
use crate::view::FrameAllocator;
use crate::vmap::KernelRange;

/// The memory manager. All CPUs share it by reference.
pub struct Manager<'p, P: Platform> {
    p: &'p P,
    config: Config,
    carved: Carved<'p>,
    pub(crate) root: &'p Root,
    kernel_root: FrameNumber,
    pub(crate) vmap: Option<KernelRange<'p>>,
}

impl<'p, P: Platform> FrameAllocator<'_, 'p, P> {
    /// Free frames on per-CPU lists, which only their CPUs can use until the lists are drained. While they run it is a
    /// sum of moments.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let block = mm.frames().alloc(0, AllocFrom::HERE)?;
    /// mm.frames().free(block);
    /// assert!(mm.frames().on_lists() > 0);
    /// # Ok(())
    /// # });
    /// ```
    pub fn on_lists(&self) -> u64 {
        self.mm.carved.cpus.iter().map(|slot| u64::from(slot.pages.held(self.mm.p))).sum()
    }

    /// Free frames in all zones, without those on per-CPU lists
    /// ([`FrameAllocator::on_lists`](crate::FrameAllocator::on_lists)).
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let before = mm.frames().available();
    /// let block = mm.frames().alloc(9, AllocFrom::HERE)?;
    /// assert_eq!(mm.frames().available(), before - 512);
    /// # Ok(())
    /// # });
    /// ```
    pub fn available(&self) -> u64 {
        self.mm.zones().map(|zone| zone.free(self.mm.p)).sum()
    }

    /// Frames that the core's bookkeeping took at start.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// assert!(mm.frames().reserved() > 0);
    /// # Ok(())
    /// # });
    /// ```
    pub fn reserved(&self) -> u64 {
        self.mm.carved.reserved
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Takes over memory. Called once, on one CPU, before any other uses the manager. Regions are sorted and
    /// disjoint; the core carves at most 64 bytes of bookkeeping per frame out of them, and some 3 KiB per
    /// CPU. Memory that may come later is what [`Memory::later_region`](crate::platform::Memory::later_region) says.
    ///
    /// # Errors
    /// [`Error::TooLittleMemory`], [`Error::BadRegion`], [`Error::BadTopology`], [`Error::BadSetting`], and
    /// [`Error::GuaranteeMissing`] for a policy that needs what the platform does not guarantee.
    ///
    /// # Safety
    /// The regions are memory that nobody else uses, and they go to one manager, once: not to a second one while this one lives, nor after it,
    /// while a CPU still walks its tables or something still holds a block of it.
    pub unsafe fn new(p: &'p P, regions: &[Region], config: Config) -> Result<Self, Error> {
        config.check()?;
        if !p.broken(Rule::AskGuarantees) {
            config.policy.check(p.guarantees(), p.broadcast().is_some())?;
        }
        let carved = boot::carve(p, regions, &config)?;
        let root = carved.root;
        let mut mm = Manager { p, config, carved, root, kernel_root: FrameNumber::NONE, vmap: None };
        root.init(p);
        mm.nodes().for_each(|node| node.init(p));
        mm.carved.group_lists.iter().flatten().for_each(|lists| lists.init(p));
        mm.note_presence();
        boot::fill(&mm);
        mm.kernel_root = crate::paging::table::make_table(&mm, AllocFrom::NOW, GroupSlot::NONE)
            .map_err(|_| Error::TooLittleMemory)?;
        p.prepare_root(mm.kernel_root);
        mm.vmap = config.vmap.map(|range| KernelRange::new(&mm, range)).transpose()?;
        // Reclaim must not need a frame to begin: the first batches exist before memory runs short.
        let batch = mm.root.batches.reserve(&mm, AllocFrom::NOW).map_err(|_| Error::TooLittleMemory)?;
        mm.root.batches.release(&mm, batch.commit());
        Ok(mm)
    }

    /// What it was made with.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// assert!(mm.config().swap);
    /// # Ok(())
    /// # });
    /// ```
    pub fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn holders(&self) -> &'p CpuMask {
        &self.root.holders.0
    }

    /// The machine under it.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// assert_eq!(mm.platform().possible_cpus(), 1);
    /// # Ok(())
    /// # });
    /// ```
    #[inline(always)]
    pub fn platform(&self) -> &'p P {
        self.p
    }

    /// To be called by the interrupt handler for [`Cpus::interrupt`](crate::platform::Cpus::interrupt), with interrupts off.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// // The handler of the vector that `Cpus::interrupt` sends, interrupts off.
    /// let on = mm.platform().irqs_off();
    /// mm.on_interrupt();
    /// if on {
    ///     mm.platform().irqs_on();
    /// }
    /// # Ok(())
    /// # });
    /// ```
    pub fn on_interrupt(&self) {
        crate::ipi::on_interrupt(self);
    }

    /// Serves what other CPUs want of this one: for kernels that spin on locks of their own with interrupts
    /// off (INV-8). Any context but a non-maskable interrupt.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// // A lock of the kernel's own, for which a CPU spins with interrupts off.
    /// let mut tries = 3;
    /// let mut try_lock = || {
    ///     tries -= 1;
    ///     tries == 0
    /// };
    /// let on = mm.platform().irqs_off();
    /// while !try_lock() {
    ///     mm.serve();
    /// }
    /// if on {
    ///     mm.platform().irqs_on();
    /// }
    /// # Ok(())
    /// # });
    /// ```
    pub fn serve(&self) {
        crate::ipi::serve(&CpuGuard::new(self));
    }

    /// A counter, summed over all CPUs. While they run it is a sum of moments. What the handler of an interrupt does while the task that it
    /// interrupted counts the same may be missing.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// space.map(PageRange::new(PageNumber(0x400), 1), Backing::Anonymous, Prot::ReadWrite)?;
    /// space.fault(PageNumber(0x400).addr(), UserAccess::Write)?;
    /// assert_eq!(mm.counter(Counter::PgFault), 1);
    /// # Ok(())
    /// # });
    /// ```
    pub fn counter(&self, counter: Counter) -> u64 {
        self.carved.cpus.iter().map(|slot| slot.counters.get(counter)).sum()
    }

    #[inline(always)]
    pub(crate) fn emit(&self, event: Event) {
        self.emit_at(self.slot(self.p.this_cpu()), event);
    }

    /// The same for whoever has this CPU's slot already.
    #[inline(always)]
    pub(crate) fn emit_at(&self, slot: &CpuSlot, event: Event) {
        slot.counters.fold(&event);
        self.p.observe(&event);
    }

    #[inline(always)]
    pub(crate) fn memmap(&self) -> FrameTable<'p> {
        self.carved.frames
    }

    #[inline(always)]
    pub(crate) fn slot(&self, cpu: CpuId) -> &'p CpuSlot {
        self.carved.cpus[cpu.index()]
    }

    /// Of each CPU, where operations park what they take out; empty where they do not.
    pub(crate) fn parked(&self) -> &'p [&'p Parked] {
        self.carved.parked
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

    #[inline(always)]
    pub(crate) fn groups(&self) -> &Groups<'p> {
        &self.carved.groups
    }

    /// The lists of a group on a node.
    pub(crate) fn lists(&self, node: NodeId, group: GroupSlot) -> &'p LruVec {
        match self.carved.group_lists.get(usize::from(node.0)) {
            Some(Some(lists)) if group != GroupSlot::NONE => lists.of(group),
            _ => &self.node(node).lists,
        }
    }

    /// The lists of all groups, node by node.
    pub(crate) fn group_lists(&self) -> impl Iterator<Item = GroupLists<'p>> + use<'_, 'p, P> {
        self.carved.group_lists.iter().filter_map(|lists| *lists)
    }

    /// Whose turn it is on a node to give up pages, where there can be groups.
    pub(crate) fn turn(&self, node: NodeId) -> Option<&'p Turn> {
        self.carved.group_lists.get(usize::from(node.0)).copied().flatten().map(|lists| lists.turn)
    }

    pub(crate) fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<'p, P> {
        let nodes = self.carved.nodes.iter().enumerate();
        nodes.filter(|(_, node)| node.is_some()).map(|(number, _)| NodeId(number as u16))
    }

    pub(crate) fn node_here(&self) -> NodeId {
        self.p.node_of(self.p.this_cpu())
    }

    pub(crate) fn kernel_root(&self) -> FrameNumber {
        self.kernel_root
    }
}
