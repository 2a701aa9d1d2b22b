//! Kernel virtual ranges: scattered frames at contiguous addresses.
//!
//! | file | holds |
//! |---|---|
//! | `state.rs`, `cpu.rs` | all that there is: of the whole range, and of each CPU |
//! | `extent.rs` | runs of kernel pages, and what each may do next, as types |
//! | `shard.rs`, `slots.rs` | the free ones, in parts of the range with locks of their own; spare slots |
//! | `extent_cache.rs`, `bins.rs`, `list.rs` | what each CPU has unmapped, and what of it was flushed and is in the CPU's cache |
//! | `across.rs`, `free.rs`, `returning.rs` | what reaches across their borders; finding a free one; how extents become free |
//! | `used.rs` | the ones in use, by address |
//! | `request.rs` | what may be asked for |
//! | `entries.rs` | the page tables that all spaces share |
//! | `purge.rs` | unmapped extents wait for one flush, and become free after it (INV-3) |
//! | `block.rs`, `blocks.rs`, `bitmap.rs`, `index.rs` | small maps from per-CPU blocks; what is taken in one; the block of an address |
//! | `eager.rs`, `lazy.rs` | the policies: `sweep` is `lazy` but for the flush |
//! | `sweep.rs`, `sweeping.rs` | unmapped extents wait until each CPU has flushed by itself |
//! | `pressure.rs` | what waits is made free early when memory or the range runs short |
//! | `audit.rs` | does everything add up |
//!
//! Locks, from the outside in: the purge's (sleeping), a shard's free extents (several only from the lowest shard up), a
//! pool's. What a CPU has for itself is under a lock of its own that is taken with interrupts off, alone. Extents in use are
//! found without a lock. The policy `eager` has one lock instead of all these, and holds it while it flushes.

mod across;
mod audit;
mod bins;
mod bitmap;
mod block;
mod blocks;
mod cpu;
mod eager;
mod entries;
mod extent;
mod extent_cache;
mod free;
mod index;
mod lazy;
mod list;
mod pressure;
mod purge;
mod recount;
mod request;
mod returning;
mod shard;
mod slots;
mod state;
mod sweep;
mod sweeping;
mod used;

pub(crate) use audit::Findings;
use bitmap::{BLOCK, SMALLEST_BLOCK};
use cpu::ExtentCache;
pub use pressure::Waits;
pub use request::VmapPlace;
use request::VmapRequest;
use shard::shards_for;
pub(crate) use state::KernelRange;
use state::{MAX_SHARDS, Shard, State};
pub(crate) use sweep::{come_back, go_away, join_sweep, start_empty, ticked};
use sweeping::Sweeping;

use crate::Manager;
use crate::addr::{FrameNumber, PageNumber, PageRange, VirtAddr};
use crate::charge::charge;
use crate::config::Config;
use crate::cpu::CpuId;
use crate::error::Error;
use crate::frame::{AllocFrom, order_of, own};
use crate::paging::{Entry, KernelProt, UserAccess, table};
use crate::percpu::CpuGuard;
use crate::platform::Platform;
use crate::policy::VmapPolicy;
use crate::profile::Scope;
use crate::rule::Rule;
use crate::sync::Word32;
use crate::tlb::kernel;
use crate::view::Vmap;

/// The most frames that [`Vmap::map_ram`] takes.
pub(crate) const MAX_RAM: usize = 64;
impl Config {
    pub(crate) fn check_vmap(&self) -> Result<(), Error> {
        let Some(range) = self.vmap else { return Ok(()) };
        let end = range.start.0.checked_add(range.pages);
        let inside = range.start >= PageNumber::KERNEL_START;
        if range.pages == 0 || !inside || end.is_none_or(|end| end > PageNumber::KERNEL_END.0) {
            return Err(Error::BadSetting("vmap must be a range of the upper half of addresses"));
        }
        if self.vmap_shards.is_some_and(|n| n == 0 || n > MAX_SHARDS || u64::from(n) > range.pages) {
            return Err(Error::BadSetting(
                "vmap_shards must be 1 to 4096, and at most the pages of the range",
            ));
        }
        Ok(())
    }
}

impl<'p> KernelRange<'p> {
    /// Frames of what is there from the start.
    fn fixed_frames(&self) -> u64 {
        let orders = [
            order_of::<State>(1),
            order_of::<Shard>(self.shards.len()),
            order_of::<ExtentCache>(self.cpus.len()),
            order_of::<Word32>(self.index.len()),
            order_of::<Word32>(self.used.len()),
        ];
        let sweeping = self.sweeping.map_or(0, |sweeping| sweeping.fixed_frames());
        sweeping + orders.iter().map(|order| 1 << order).sum::<u64>()
    }

    /// The range of `config`, all of it free. Before any CPU uses the manager.
    pub fn new<P: Platform>(mm: &Manager<'p, P>, range: PageRange) -> Result<Self, Error> {
        let cpus = mm.platform().possible_cpus();
        let count = mm.config().vmap_shards.unwrap_or_else(|| shards_for(cpus, range.pages));
        // A sixteenth of what there is for a CPU, so that blocks leave room for all else on a small range.
        let share = (range.pages / u64::from(cpus) / 16).max(1);
        let block_pages = (1 << share.ilog2()).clamp(SMALLEST_BLOCK, BLOCK);
        let sweeps = mm.config().policy.vmap == VmapPolicy::Sweep;
        let v = KernelRange {
            range,
            shard_pages: range.pages / u64::from(count),
            block_pages,
            state: &own::<P, State>(mm, 1)?[0],
            shards: own(mm, count as usize)?,
            cpus: own(mm, cpus as usize)?,
            index: own(mm, index::tables(range, block_pages))?,
            used: own(mm, used::tables(range))?,
            sweeping: if sweeps { Some(Sweeping::new(mm)?) } else { None },
        };
        if sweeps {
            v.cpus.iter().for_each(|cache| cache.never_visited(mm.platform()));
        }
        v.state.extents.init(mm.platform());
        v.state.blocks.init(mm.platform());
        table::make_kernel_top(mm, mm.kernel_root(), range).map_err(|_| Error::TooLittleMemory)?;
        if mm.config().policy.vmap != VmapPolicy::Eager {
            for cache in v.cpus {
                cache.blocks.numbers.next(mm.platform(), v.state.blocks.numbers(), blocks::NUMBERS)?;
            }
            v.fill(mm).map_err(|_| Error::TooLittleMemory)?;
        }
        v.set_threshold(mm);
        Ok(v)
    }
}

impl<'p, P: Platform> Vmap<'_, 'p, P> {
    /// Maps frames, in this order, at contiguous kernel addresses; returns these. The frames stay the caller's, who must not
    /// free them before [`Vmap::unmap`](crate::Vmap::unmap) and a purge: see [`Vmap::unmap_aliases`](crate::Vmap::unmap_aliases).
    ///
    /// In a task's context; may wait. Costs no IPI unless addresses are short and must be purged.
    ///
    /// # Errors
    /// [`Error::NoKernelRange`], [`Error::BadRange`], [`Error::BadAlignment`], [`Error::NoSuchFrame`],
    /// [`Error::NoAddress`], [`Error::OutOfMemory`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let frames = [0, 1].map(|_| mm.frames().alloc(0, AllocFrom::HERE).expect("plenty is free").into_raw().0);
    /// let range = mm.vmap().map(&frames, VmapPlace::ANYWHERE, KernelProt::ReadWrite)?;
    /// assert_eq!(range.pages, 2);
    /// mm.vmap().unmap(range.start)?;
    /// mm.vmap().unmap_aliases()?; // before they are somebody else's
    /// frames.into_iter().try_for_each(|frame| mm.frames().free_at(frame, 0))?;
    /// # Ok(())
    /// # });
    /// ```
    pub fn map(
        &self,
        frames: &[FrameNumber],
        place: VmapPlace,
        prot: KernelProt,
    ) -> Result<PageRange, Error> {
        let mm = self.mm;
        let _scope = charge(mm.platform(), Scope::Vmap);
        let v = mm.kernel_range()?;
        mm.check_frames(frames)?;
        let asked = VmapRequest { pages: frames.len() as u64, place, purpose: extent::Purpose::Map };
        mm.make_kernel(v, asked, |range| entries::set(mm, range, frames, prot))
    }

    /// Unmaps what [`Vmap::map`](crate::Vmap::map) gave. CPUs may go on using the addresses until the next purge.
    ///
    /// With `vmap=lazy` and `vmap=sweep` in any context but a non-maskable interrupt, interrupts on or off: it never waits, and
    /// sends no IPI. With `vmap=eager` interrupts must be on; one IPI per CPU that is online but this one.
    ///
    /// # Errors
    /// [`Error::NoKernelRange`], [`Error::BadRange`], [`Error::NotMapped`], [`Error::WrongRelease`]; with `vmap=eager`
    /// [`Error::NeedsInterrupts`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let (frame, _) = mm.frames().alloc(0, AllocFrom::HERE)?.into_raw();
    /// let range = mm.vmap().map(&[frame], VmapPlace::ANYWHERE, KernelProt::Read)?;
    /// mm.vmap().unmap(range.start)?;
    /// mm.vmap().unmap_aliases()?; // before the frame is somebody else's
    /// mm.frames().free_at(frame, 0)?;
    /// # Ok(())
    /// # });
    /// ```
    pub fn unmap(&self, start: PageNumber) -> Result<(), Error> {
        let mm = self.mm;
        let _scope = charge(mm.platform(), Scope::Vunmap);
        mm.release_kernel(start, extent::Purpose::Map)
    }

    /// Maps `pages` frames of its own, not cleared, at contiguous kernel addresses; returns these. `place` says of which node
    /// the frames should be.
    ///
    /// Context and cost as of [`Vmap::map`](crate::Vmap::map).
    ///
    /// # Errors
    /// Those of [`Vmap::map`](crate::Vmap::map); [`Error::NoSuchNode`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let stack = mm.vmap().alloc(4, VmapPlace::ANYWHERE, KernelProt::ReadWrite)?;
    /// mm.vmap().free(stack.start)?;
    /// # Ok(())
    /// # });
    /// ```
    pub fn alloc(&self, pages: u64, place: VmapPlace, prot: KernelProt) -> Result<PageRange, Error> {
        let mm = self.mm;
        let _scope = charge(mm.platform(), Scope::Vmalloc);
        let v = mm.kernel_range()?;
        if place.node.is_some_and(|node| !mm.has_node(node)) {
            return Err(Error::NoSuchNode);
        }
        let from = AllocFrom { node: place.node, may_reclaim: true };
        let asked = VmapRequest { pages, place, purpose: extent::Purpose::Alloc };
        mm.make_kernel(v, asked, |range| entries::set_own(mm, range, from, prot))
    }

    /// Unmaps what [`Vmap::alloc`](crate::Vmap::alloc) gave. Its frames are free after the next purge, or, with `vfree_at_once`,
    /// when this returns, if interrupts are on.
    ///
    /// Context and cost as of [`Vmap::unmap`](crate::Vmap::unmap).
    ///
    /// # Errors
    /// Those of [`Vmap::unmap`](crate::Vmap::unmap).
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let stack = mm.vmap().alloc(4, VmapPlace::ANYWHERE, KernelProt::ReadWrite)?;
    /// mm.vmap().free(stack.start)?;
    /// assert_eq!(mm.vmap().find(stack.start), Err(Error::NotMapped(stack.start)));
    /// # Ok(())
    /// # });
    /// ```
    pub fn free(&self, start: PageNumber) -> Result<(), Error> {
        let mm = self.mm;
        let _scope = charge(mm.platform(), Scope::Vfree);
        mm.release_kernel(start, extent::Purpose::Alloc)
    }

    /// Maps at most 64 frames for a short time, from this CPU's block of addresses. Otherwise as [`Vmap::map`](crate::Vmap::map),
    /// without a guard page; mostly without a lock.
    ///
    /// # Errors
    /// [`Error::NoKernelRange`], [`Error::BadRange`] for none or more than 64, [`Error::NoSuchFrame`],
    /// [`Error::NoAddress`], [`Error::OutOfMemory`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let (frame, _) = mm.frames().alloc(0, AllocFrom::HERE)?.into_raw();
    /// let range = mm.vmap().map_ram(&[frame], KernelProt::ReadWrite)?;
    /// assert_eq!(mm.vmap().find(range.start)?, range);
    /// mm.vmap().unmap_ram(range)?;
    /// mm.vmap().unmap_aliases()?;
    /// mm.frames().free_at(frame, 0)?;
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "vm_map_ram")]
    pub fn map_ram(&self, frames: &[FrameNumber], prot: KernelProt) -> Result<PageRange, Error> {
        let mm = self.mm;
        let _scope = charge(mm.platform(), Scope::MapRam);
        let v = mm.kernel_range()?;
        if frames.is_empty() || frames.len() > MAX_RAM {
            return Err(Error::BadRange);
        }
        mm.check_frames(frames)?;
        match mm.config().policy.vmap {
            VmapPolicy::Eager => eager::map_ram(mm, v, frames, prot),
            VmapPolicy::Lazy | VmapPolicy::Sweep => block::map(mm, v, frames, prot),
        }
    }

    /// Unmaps what [`Vmap::map_ram`](crate::Vmap::map_ram) gave: all of it.
    ///
    /// Context and cost as of [`Vmap::unmap`](crate::Vmap::unmap).
    ///
    /// # Errors
    /// Those of [`Vmap::unmap`](crate::Vmap::unmap).
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let (frame, _) = mm.frames().alloc(0, AllocFrom::HERE)?.into_raw();
    /// let range = mm.vmap().map_ram(&[frame], KernelProt::ReadWrite)?;
    /// mm.vmap().unmap_ram(range)?;
    /// assert_eq!(mm.vmap().unmap_ram(range), Err(Error::NotMapped(range.start)));
    /// mm.vmap().unmap_aliases()?;
    /// mm.frames().free_at(frame, 0)?;
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "vm_unmap_ram")]
    pub fn unmap_ram(&self, range: PageRange) -> Result<(), Error> {
        let mm = self.mm;
        let _scope = charge(mm.platform(), Scope::UnmapRam);
        let v = mm.kernel_range()?;
        v.check_page(range.start)?;
        match mm.config().policy.vmap {
            VmapPolicy::Eager => eager::unmap_ram(mm, v, range),
            VmapPolicy::Lazy | VmapPolicy::Sweep => block::unmap(mm, v, range),
        }
    }

    /// Says whether an access of the kernel to an address of the range may be tried again after a fault: what is mapped there
    /// permits it, and this CPU has forgotten that it found something else. Call it from the page-fault handler of an
    /// [`Architecture`](crate::Architecture) that keeps refusals; on others a fault there is an error of the kernel, whatever this
    /// says. A fetch is none that it can judge, unless the address is known to be of [`KernelProt::ReadExecute`]: then it is a
    /// read. Any context, interrupts on or off. No IPI.
    ///
    /// # Errors
    /// [`Error::NoKernelRange`], [`Error::BadRange`]; [`Error::NotMapped`], [`Error::NotPermitted`]: the fault is an error of the kernel.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let table = mm.vmap().alloc(1, VmapPlace::ANYWHERE, KernelProt::Read)?;
    /// let at = table.start.addr();
    /// mm.vmap().fault(at, UserAccess::Read)?;
    /// assert_eq!(mm.vmap().fault(at, UserAccess::Write), Err(Error::NotPermitted(table.start)));
    /// # Ok(())
    /// # });
    /// ```
    pub fn fault(&self, at: VirtAddr, access: UserAccess) -> Result<(), Error> {
        let mm = self.mm;
        let page = at.page();
        mm.kernel_range()?.check_page(page)?;
        let entry = entries::peek(mm, page);
        if !entry.is_present() {
            return Err(Error::NotMapped(page));
        }
        let permitted = match access {
            UserAccess::Read => true,
            UserAccess::Write => entry.has(Entry::WRITABLE),
            UserAccess::Execute => !entry.has(Entry::NO_EXECUTE),
        };
        if !permitted {
            return Err(Error::NotPermitted(page));
        }
        let p = mm.platform();
        if p.architecture().keeps_refusals() && !p.broken(Rule::ForgetRefusals) {
            // The refusal may be of a table that was not there.
            let page_is_enough = p.architecture().page_flush_reaches_tables();
            kernel::local(&CpuGuard::new(mm), page_is_enough.then_some(PageRange::new(page, 1)));
        }
        Ok(())
    }

    /// When it returns no CPU can use any address that was unmapped before it was called: for whoever gives frames to somebody
    /// that must not be seen through old mappings (PITFALLS 28). Free addresses and frames are a by-product.
    ///
    /// In a task's context with interrupts on; may wait for a running purge. At most one IPI per CPU that is online but
    /// this one, none if nothing was unmapped since the last purge; with `vmap=sweep` none for those that are idle
    /// ([`enter_idle`](crate::Manager::enter_idle)).
    ///
    /// # Errors
    /// [`Error::NoKernelRange`]; [`Error::NeedsInterrupts`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let stack = mm.vmap().alloc(4, VmapPlace::ANYWHERE, KernelProt::ReadWrite)?;
    /// mm.vmap().free(stack.start)?;
    /// mm.vmap().unmap_aliases()?;
    /// assert_eq!(mm.vmap().waits()?.pages, 0);
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "vm_unmap_aliases")]
    pub fn unmap_aliases(&self) -> Result<(), Error> {
        self.purge().map(|_| ())
    }

    /// Flushes all that was unmapped, once, and makes it free; returns how many pages. Context and cost as of
    /// [`Vmap::unmap_aliases`](crate::Vmap::unmap_aliases).
    ///
    /// # Errors
    /// Those of [`Vmap::unmap_aliases`](crate::Vmap::unmap_aliases).
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let stack = mm.vmap().alloc(4, VmapPlace::ANYWHERE, KernelProt::ReadWrite)?;
    /// mm.vmap().free(stack.start)?;
    /// assert_eq!(mm.vmap().purge()?, 5); // with the guard page
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "purge_vmap_area_lazy")]
    pub fn purge(&self) -> Result<u64, Error> {
        let mm = self.mm;
        let v = mm.kernel_range()?;
        crate::tlb::kernel::may_wait(mm)?;
        Ok(purge::purge(mm, v, purge::Effort::Soft).unwrap_or(0))
    }

    /// Waits until enough is unmapped for a purge, then purges. Call it in a loop from a task of its own: unmapping never
    /// does it by itself. May wait. At most one IPI per CPU that is online but this one. With `vmap=sweep` it waits until there
    /// are frames to be freed that every CPU has flushed, or until a sweep takes too long: then one IPI per CPU that has not
    /// taken part.
    ///
    /// # Errors
    /// [`Error::NoKernelRange`].
    ///
    /// # Examples
    /// ```no_run
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// // A kernel's thread.
    /// loop {
    ///     mm.vmap().purger()?;
    /// }
    /// # });
    /// ```
    pub fn purger(&self) -> Result<(), Error> {
        let mm = self.mm;
        let v = mm.kernel_range()?;
        pressure::await_wanted(mm, v);
        purge::serve(mm, v);
        Ok(())
    }

    /// What waits for a purge. A sum of moments.
    ///
    /// # Errors
    /// [`Error::NoKernelRange`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let stack = mm.vmap().alloc(4, VmapPlace::ANYWHERE, KernelProt::ReadWrite)?;
    /// mm.vmap().free(stack.start)?;
    /// assert_eq!(mm.vmap().waits()?.frames, 4);
    /// # Ok(())
    /// # });
    /// ```
    pub fn waits(&self) -> Result<Waits, Error> {
        let mm = self.mm;
        Ok(pressure::waits(mm, mm.kernel_range()?))
    }

    /// The kernel pages that were mapped together with this one: of `map`, `alloc` or `map_ram`. Any context but with
    /// `vmap=eager`, never delayed by a purge.
    ///
    /// # Errors
    /// [`Error::NoKernelRange`]; [`Error::NotMapped`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let stack = mm.vmap().alloc(4, VmapPlace::ANYWHERE, KernelProt::ReadWrite)?;
    /// let inside = PageNumber(stack.start.0 + 2);
    /// assert_eq!(mm.vmap().find(inside)?, stack);
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "find_vm_area")]
    pub fn find(&self, page: PageNumber) -> Result<PageRange, Error> {
        let mm = self.mm;
        let _scope = charge(mm.platform(), Scope::VmapFind);
        let v = mm.kernel_range()?;
        v.check_page(page).map_err(|_| Error::NotMapped(page))?;
        let found = match mm.config().policy.vmap {
            VmapPolicy::Eager => eager::find(mm, v, page),
            VmapPolicy::Lazy | VmapPolicy::Sweep => {
                block::find(mm, v, page).or_else(|| v.find_used(mm, page))
            }
        };
        found.ok_or(Error::NotMapped(page))
    }

    /// The frame that a kernel page leads to.
    ///
    /// # Errors
    /// [`Error::NoKernelRange`]; [`Error::NotMapped`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let (frame, _) = mm.frames().alloc(0, AllocFrom::HERE)?.into_raw();
    /// let range = mm.vmap().map(&[frame], VmapPlace::ANYWHERE, KernelProt::Read)?;
    /// assert_eq!(mm.vmap().frame_at(range.start)?, frame);
    /// mm.vmap().unmap(range.start)?;
    /// mm.vmap().unmap_aliases()?;
    /// mm.frames().free_at(frame, 0)?;
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "vmalloc_to_page")]
    pub fn frame_at(&self, page: PageNumber) -> Result<FrameNumber, Error> {
        let mm = self.mm;
        let v = mm.kernel_range()?;
        v.check_page(page).map_err(|_| Error::NotMapped(page))?;
        let entry = entries::peek(mm, page);
        if entry.is_present() { Ok(entry.frame()) } else { Err(Error::NotMapped(page)) }
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Takes addresses, has `fill` make their pages present, and makes them known. What `fill` cannot do leaves nothing.
    fn make_kernel(
        &self,
        v: &KernelRange<'p>,
        asked: VmapRequest,
        fill: impl FnOnce(PageRange) -> Result<(), Error>,
    ) -> Result<PageRange, Error> {
        match self.config().policy.vmap {
            VmapPolicy::Eager => eager::make(self, v, asked, fill),
            VmapPolicy::Lazy | VmapPolicy::Sweep => lazy::make(self, v, asked, fill),
        }
    }

    fn release_kernel(&self, start: PageNumber, purpose: extent::Purpose) -> Result<(), Error> {
        let v = self.kernel_range()?;
        v.check_page(start)?;
        match self.config().policy.vmap {
            VmapPolicy::Eager => eager::unmap(self, v, start, purpose),
            VmapPolicy::Lazy | VmapPolicy::Sweep => lazy::unmap(self, v, start, purpose),
        }
    }

    fn kernel_range(&self) -> Result<&KernelRange<'p>, Error> {
        self.vmap.as_ref().ok_or(Error::NoKernelRange)
    }

    pub(crate) fn has_kernel_range(&self) -> bool {
        self.vmap.is_some()
    }

    /// Puts what all spaces share into a new space's top table.
    pub(crate) fn share_kernel_range(&self, root: FrameNumber) {
        if let Some(v) = &self.vmap {
            table::share_kernel_top(self, self.kernel_root(), root, v.range);
        }
    }

    /// Before this CPU goes offline: others may have its blocks.
    pub(crate) fn leave_block(&self) {
        if let Some(v) = &self.vmap {
            blocks::leave(self, v);
        }
    }

    pub(crate) fn has_block(&self, cpu: CpuId) -> bool {
        self.vmap.is_some_and(|v| v.cpus[cpu.index()].blocks.any(self.platform()))
    }

    /// Frees the frames that wait for a purge, if at least so many do; returns how many. For whoever reclaims: may wait. With
    /// `vmap=sweep` those that were flushed by now, unless this is the `last` resort.
    pub(crate) fn purge_frames(&self, least: u32, last: bool) -> u32 {
        let Some(v) = &self.vmap else { return 0 };
        let waits = pressure::waits(self, v);
        if waits.frames < least.into() || crate::tlb::kernel::may_wait(self).is_err() {
            return 0;
        }
        purge::free_frames(self, v, last).min(u32::MAX.into()) as u32
    }

    /// CPUs came or went.
    pub(crate) fn adjust_vmap(&self) {
        if let Some(v) = &self.vmap {
            v.set_threshold(self);
        }
    }

    /// What a look at a quiet system finds about the kernel range.
    pub(crate) fn audit_vmap(&self) -> Findings {
        self.vmap.as_ref().map_or(Findings::default(), |v| audit::look(self, v))
    }
}
