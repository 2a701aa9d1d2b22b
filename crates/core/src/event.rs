//! One typed stream of events. Counters fold it; profiles, timelines and counterexamples print it.
//!
//! Counters carry Linux's names where Linux counts the same thing.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::addr::{FrameNumber, PageNumber, PageRange};
use crate::broadcast::Everywhere;
use crate::handle::SpaceId;
use crate::kind::Kind;

/// Why a TLB is flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushReason {
    /// Reclaim unmapped one page and flushes it at once.
    ReclaimPage,
    /// Reclaim flushes a batch of pages that it has unmapped.
    ReclaimBatch,
    /// A range was unmapped.
    Unmap,
    /// An operation completes a flush that reclaim deferred (INV-4), or a fault does (INV-12).
    Deferred,
    /// Rights to a range were taken away.
    Protect,
    /// A range was moved.
    Move,
    /// A space was forked: what was its own is now read-only until it is copied.
    Fork,
    /// A range's content was given up.
    Drop,
    /// A write fault replaced a page by its copy.
    Copy,
    /// Write-back made pages clean.
    Clean,
    /// Pages of a file were cut off.
    Cut,
    /// Pages were moved to other frames.
    Migrate,
    /// Small pages become a large one.
    Collapse,
    /// Aging cleared an accessed bit.
    Aging,
    /// Page tables are about to be freed.
    Teardown,
    /// Kernel addresses were unmapped.
    KernelUnmap,
    /// Kernel addresses that were unmapped become free again.
    Purge,
    /// A CPU that does not tick has not taken part in a sweep.
    Sweep,
    /// A caller of the public interface asked.
    Asked,
}

/// Who reclaims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reclaimer {
    /// The node's `kswapd`.
    Kswapd,
    /// A task that needs a frame.
    Direct,
}

/// What programs cannot do any more through what their CPUs had cached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Revoked {
    /// Anything.
    All,
    /// Write.
    Writes,
    /// Execute.
    Execution,
}

/// Something that happened on the CPU that reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// Interrupts were sent to this many CPUs.
    IpiSent {
        /// How many.
        targets: u32,
    },
    /// An interrupt from another CPU arrived.
    IpiReceived,
    /// A flush was asked of other CPUs, interrupted or not.
    RemoteFlush {
        /// Why.
        reason: FlushReason,
        /// How many CPUs.
        targets: u32,
    },
    /// The entries of a space that are cleared or narrowed by now are to leave all TLBs: whoever may hold them is asked next, if there is anybody. Not of a batch
    /// of reclaim's, and not where the hardware flushes all CPUs.
    FlushBegins {
        /// The top table of the space.
        root: FrameNumber,
        /// Whether page tables go too, so that lazy CPUs are asked as well.
        tables: bool,
    },
    /// A flush was asked of the hardware, which carries it out on every CPU.
    Broadcast {
        /// What of.
        what: Everywhere,
        /// Why.
        reason: FlushReason,
    },
    /// A flush request from another CPU was carried out.
    FlushServed,
    /// This CPU flushed single pages of its TLB.
    FlushedPages {
        /// How many.
        pages: u32,
    },
    /// This CPU flushed its whole TLB but the global entries.
    FlushedAll,
    /// This CPU flushed all kernel addresses that the core gives out.
    FlushedKernel,
    /// A lazy CPU was left alone: it compares generations when it comes back (INV-6).
    LazySkipped,
    /// A sweep begins: each CPU is to flush once, by itself (INV-13).
    SweepBegun,
    /// This CPU has flushed for a sweep.
    Swept,
    /// Somebody has waited too long for a sweep, and asks those that have not taken part.
    SweepForced {
        /// How many CPUs.
        targets: u32,
    },
    /// Pages seem idle, and wait for a sweep until that is known.
    Unswept {
        /// How many.
        pages: u32,
    },
    /// An entry was taken out, or lost a right, and nobody owes a flush for it: no CPU that may use it has it cached
    /// (INV-13).
    FlushSpared {
        /// The top table of the space.
        root: FrameNumber,
        /// The page.
        page: PageNumber,
    },
    /// A block of frames was taken from the allocator.
    Taken {
        /// The first frame.
        frame: FrameNumber,
        /// log2 of how many.
        order: u8,
        /// What for.
        kind: Kind,
    },
    /// A block of frames went back to the allocator: from here on no CPU may use it (INV-1).
    Freed {
        /// The first frame.
        frame: FrameNumber,
        /// log2 of how many.
        order: u8,
    },
    /// A page, or a large one, was mapped.
    Mapped {
        /// The space.
        space: SpaceId,
        /// The page.
        page: PageNumber,
        /// Its first frame.
        frame: FrameNumber,
        /// How many small pages it is.
        pages: u32,
    },
    /// A page's entry was cleared. Until the flush, CPUs may still use it.
    Unmapped {
        /// The space.
        space: SpaceId,
        /// The page.
        page: PageNumber,
        /// The first frame that it led to.
        frame: FrameNumber,
        /// How many small pages it was.
        pages: u32,
        /// Whether the flush is left to a batch.
        deferred: bool,
    },
    /// A page's entry was made clean and read-only, and its flush left to a batch.
    Cleaned {
        /// The space.
        space: SpaceId,
        /// The page.
        page: PageNumber,
        /// The frame that it leads to.
        frame: FrameNumber,
    },
    /// An operation that promises a changed mapping is about to return (INV-4).
    Revoked {
        /// The space.
        space: SpaceId,
        /// The root of its tables.
        root: FrameNumber,
        /// The pages.
        range: PageRange,
        /// What was taken away.
        what: Revoked,
    },
    /// A batch of unmapped pages was flushed.
    BatchFlushed {
        /// How many entries had been cleared.
        pages: u32,
        /// On how many other CPUs.
        targets: u32,
    },
    /// A flush that reclaim had deferred was completed early.
    DeferredCompleted,
    /// The content of a frame begins to be written out (INV-2).
    WriteBegins {
        /// The frame.
        frame: FrameNumber,
    },
    /// The content of a frame has been written out.
    WriteEnds {
        /// The frame.
        frame: FrameNumber,
        /// Whether the device took it.
        ok: bool,
    },
    /// This CPU goes offline.
    CpuOffline,
    /// This CPU is online again.
    CpuOnline,
    /// A write fault copied a page.
    Copied,
    /// A file system was asked whether a page may be written to through a mapping.
    WriteAsked {
        /// What it said.
        may: bool,
    },
    /// A page was moved to another frame: the content is there, and nobody uses the old one any more.
    Migrated {
        /// The old frame.
        from: FrameNumber,
        /// The new one.
        to: FrameNumber,
    },
    /// Reclaim moved a page to the node that its own is demoted to, in place of taking it out of memory.
    Demoted,
    /// A page was pinned: from here on a device may use its frame.
    Pinned {
        /// The space.
        space: SpaceId,
        /// The page.
        page: PageNumber,
        /// Its frame.
        frame: FrameNumber,
        /// Whether the device may write to it.
        writes: bool,
    },
    /// A pin is given back.
    Unpinned {
        /// The frame.
        frame: FrameNumber,
    },
    /// Reclaim, a migration or a collapse left a page where it is, because it is pinned.
    PinnedKept,
    /// A large page was mapped.
    LargeFaulted,
    /// A large page was made small.
    LargeSplit,
    /// Small pages were made a large one.
    LargeCollapsed,
    /// A page fault was resolved.
    Faulted {
        /// Whether a page had to be made or read.
        major: bool,
    },
    /// Reclaim looked at pages.
    Scanned {
        /// Who.
        by: Reclaimer,
        /// How many.
        pages: u32,
    },
    /// Reclaim gave pages back.
    Reclaimed {
        /// Who.
        by: Reclaimer,
        /// How many.
        pages: u32,
    },
    /// The embedding kernel's caches were asked for memory.
    CachesAsked {
        /// How many frames they gave back.
        frames: u32,
    },
    /// A page was found in use and moved to the active list.
    Activated,
    /// A page was moved from the active to the inactive list.
    Deactivated,
    /// A page was found in use once and goes round again.
    Rotated,
    /// Aging looked at all entries that lead to a page, and cleared their accessed bits.
    Looked {
        /// Its first frame.
        frame: FrameNumber,
        /// Whether one of them was set.
        used: bool,
    },
    /// Reclaim has taken a page out of memory.
    Evicted {
        /// Its frame.
        frame: FrameNumber,
    },
    /// A page that was reclaimed is wanted again.
    Refaulted {
        /// Whether it went so short a time ago that it goes to the active list.
        activated: bool,
    },
    /// A page was written to a swap device.
    SwappedOut,
    /// A page was read from a swap device.
    SwappedIn {
        /// Nobody has asked for it yet: it lay beside one that was wanted.
        ahead: bool,
    },
    /// A page that was read ahead is wanted.
    AheadUsed,
    /// Reclaim dropped the content of a page that was not wanted.
    LazyFreed,
    /// A page of a file was mapped because it lies beside one that a fault wanted, and was in memory.
    MappedAround,
    /// A page of a file was read because the use of those before it was sequential, or somebody said that it would be wanted.
    ReadAhead,
    /// Such a page is wanted.
    ReadAheadUsed,
    /// Such a page has left memory, and nobody wanted it.
    ReadAheadUnused,
    /// A swap device did not give a page back.
    SwapLost,
    /// No swap device had a slot for a page.
    SwapFull,
    /// A page was not written out, because its device does not take pages at the moment.
    PageoutDeferred,
    /// A task had to wait because as many pages as may be are being written out.
    Throttled,
    /// A task had to reclaim for itself.
    AllocStall,
    /// A round of that: it has reclaimed, perhaps drained, and looked for its frames.
    DirectReclaim {
        /// How long it took, in nanoseconds.
        ns: u64,
    },
    /// And has got its frames, or the news that there are none.
    AllocStallEnds {
        /// How long it took, in nanoseconds.
        ns: u64,
    },
    /// A CPU took a batch of frames from a zone, for its list.
    Refilled {
        /// How many.
        frames: u32,
    },
    /// Frames on per-CPU lists went back to a zone, under one hold of its lock.
    Spilled {
        /// How many.
        frames: u32,
    },
    /// The per-CPU lists of frames were drained.
    Drained {
        /// How many went back to their zones.
        frames: u32,
        /// CPUs that were asked, by an interrupt unless another was on its way to them.
        sent: u32,
        /// Other CPUs that are online and were not.
        saved: u32,
        /// Whether at most half of the CPUs had frames. False if nobody looked.
        few: bool,
        /// How long it took, in nanoseconds.
        ns: u64,
    },
    /// A block of memory is offline.
    MemoryOffline {
        /// Its first frame.
        first: FrameNumber,
        /// How many.
        frames: u32,
    },
    /// A block of memory is back.
    MemoryOnline {
        /// Its first frame.
        first: FrameNumber,
        /// How many.
        frames: u32,
    },
    /// Nothing was left to reclaim, and the embedding kernel was asked for a victim.
    OutOfMemory {
        /// Whether it found one: the task tries again.
        again: bool,
    },
    /// `kswapd` of a node was woken.
    KswapdWoken,
    /// Unmapped kernel addresses were flushed on all CPUs, once for all of them.
    VmapPurged {
        /// How many pages.
        pages: u64,
    },
    /// Pages were taken out of a range, and wait for the sweep after the next to begin: they are freed when that is over, and
    /// until then other CPUs may use them (INV-14).
    Parked {
        /// How many.
        pages: u32,
    },
    /// A sweep of kernel addresses begins: each CPU is to flush them once, by itself (INV-3).
    KernelSweepBegun,
    /// This CPU has flushed its kernel addresses for a sweep.
    KernelSwept,
    /// Kernel addresses or frames are short, or a sweep takes too long: CPUs that have not taken part are asked.
    KernelSweepForced {
        /// How many are interrupted.
        targets: u32,
    },
    /// Every CPU has taken part: what was unmapped before the sweep began is free.
    KernelSweepOver,
    /// Extents became free again under one hold of their lock.
    VmapReturned {
        /// How many.
        extents: u32,
    },
    /// Enough kernel addresses wait for a purge: whoever does that was woken.
    VmapPurgeWanted,
}

macro_rules! counters {
    ($($variant:ident, $name:literal, $about:literal;)*) => {
        /// What the core counts, on each CPU.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        #[non_exhaustive]
        pub enum Counter { $(#[doc = $about] $variant,)* }

        impl Counter {
            /// All of them.
            pub const ALL: &'static [Counter] = &[$(Counter::$variant,)*];

            /// The name.
            pub const fn name(self) -> &'static str {
                match self { $(Counter::$variant => $name,)* }
            }

            /// What it counts, in one line.
            pub const fn about(self) -> &'static str {
                match self { $(Counter::$variant => $about,)* }
            }
        }
    };
}

counters! {
    IpisSent, "ipis_sent", "interrupts sent to other CPUs";
    IpisReceived, "ipis_received", "interrupts received from other CPUs";
    RemoteFlush, "nr_tlb_remote_flush", "flushes asked of other CPUs";
    Broadcasts, "tlb_broadcasts", "flushes that the hardware carried out on all CPUs";
    RemoteFlushReceived, "nr_tlb_remote_flush_received", "flush requests from other CPUs carried out";
    LocalFlushAll, "nr_tlb_local_flush_all", "flushes of a CPU's whole TLB but the global entries";
    LocalFlushOne, "nr_tlb_local_flush_one", "pages flushed one by one";
    LazySkipped, "tlb_lazy_skipped", "CPUs not interrupted because they were lazy";
    Sweeps, "tlb_sweeps", "sweeps begun: each CPU flushes once, by itself";
    SweepFlushes, "tlb_sweep_flushes", "flushes by CPUs that took part in a sweep";
    SweepForced, "tlb_sweep_forced", "CPUs that were asked by interrupt to take part in a sweep";
    Unswept, "pgunswept", "times that a page which seemed idle had to wait for a sweep";
    FlushSpared, "tlb_flush_spared", "entries that were taken out, or lost a right, without a flush, since no CPU had them cached";
    Parked, "pgparked", "pages that a program unmapped or dropped, and that wait for a sweep instead of a flush";
    BatchFlushes, "tlb_batch_flushes", "unmap batches flushed";
    BatchPages, "tlb_batch_pages", "flushes of an entry that were left to a batch";
    DeferredCompleted, "tlb_deferred_completed", "deferred flushes completed early by an operation or a fault";
    CpuOffline, "cpus_offline", "CPUs that went offline";
    CpuOnline, "cpus_online", "CPUs that came online";
    PcpRefill, "pcp_refill", "frames that CPUs took from zones for their per-CPU lists";
    PcpSpill, "pcp_spill", "frames on per-CPU lists that went back to their zones";
    PcpGlobalDrain, "pcp_global_drain", "drains of the per-CPU lists of frames";
    PcpGlobalIpiSaved, "pcp_global_ipi_saved", "drains in which at most half of the CPUs had frames on their lists";
    DrainIpisSent, "drain_ipis_sent", "CPUs asked by interrupt for a drain";
    DrainIpisSaved, "drain_ipis_saved", "other CPUs online and not asked for a drain";
    MemoryOffline, "memory_blocks_offline", "blocks of memory that went offline";
    MemoryOnline, "memory_blocks_online", "blocks of memory that came back";
    PgFault, "pgfault", "page faults resolved";
    PgMajFault, "pgmajfault", "page faults for which a page was made or read";
    PgAlloc, "pgalloc", "frames taken from the allocator";
    PgFree, "pgfree", "frames given back to the allocator";
    PgCopied, "pgcopied", "pages copied by a write fault";
    MkwriteAsked, "page_mkwrite", "times that a file system was asked whether a page may be written to through a mapping";
    MkwriteRefused, "page_mkwrite_refused", "of these, times that it said no";
    PgMigrated, "pgmigrate_success", "pages moved to another frame";
    PgDemoted, "pgdemote", "of these, pages that reclaim moved to a slower node";
    Pinned, "nr_foll_pin_acquired", "pages pinned for devices, or for the kernel's own look";
    Unpinned, "nr_foll_pin_released", "pins given back";
    PinnedKept, "pinned_kept", "pages that reclaim, a migration or a collapse left where they are, because they are pinned";
    LargeFault, "thp_fault_alloc", "large pages mapped by a fault";
    LargeSplit, "thp_split_page", "large pages made small";
    LargeCollapse, "thp_collapse_alloc", "large pages made of small ones";
    PgMapped, "pgmapped", "entries set";
    PgUnmapped, "pgunmapped", "entries cleared";
    PgScanKswapd, "pgscan_kswapd", "pages looked at by kswapd";
    PgScanDirect, "pgscan_direct", "pages looked at by tasks that needed a frame";
    PgStealKswapd, "pgsteal_kswapd", "pages reclaimed by kswapd";
    PgStealDirect, "pgsteal_direct", "pages reclaimed by tasks that needed a frame";
    CachesAsked, "shrinker_asked", "times that the embedding kernel's caches were asked for memory";
    CachesFreed, "shrinker_freed", "frames that they gave back";
    PgActivate, "pgactivate", "pages moved to the active list";
    PgDeactivate, "pgdeactivate", "pages moved to the inactive list";
    PgRotated, "pgrotated", "pages in use once that go round again";
    PgPgOut, "pgpgout", "pages written out";
    PgPgOutFailed, "pgpgout_failed", "pages that the device did not take";
    PgEvicted, "pgevicted", "pages that reclaim took out of memory";
    WorkingsetRefault, "workingset_refault", "reclaimed pages that were wanted again";
    WorkingsetActivate, "workingset_activate", "of these, pages that went to the active list at once";
    PswpOut, "pswpout", "pages written to swap devices";
    PswpIn, "pswpin", "pages read from swap devices";
    SwapRa, "swap_ra", "of these, pages read ahead";
    SwapRaHit, "swap_ra_hit", "pages read ahead that were wanted";
    LazyFreed, "pglazyfreed", "pages whose content reclaim dropped, since nobody wanted it";
    FaultAround, "fault_around", "pages of files mapped because they lay beside one that was wanted";
    FileRa, "file_ra", "pages of files read ahead of those who would want them";
    FileRaHit, "file_ra_hit", "of these, pages that were wanted";
    FileRaUnused, "file_ra_unused", "of these, pages that left memory before anybody wanted them";
    SwapLost, "swap_lost", "pages that a swap device did not give back";
    SwapFull, "swap_full", "pages that found no slot on a swap device";
    PageoutDeferred, "pageout_deferred", "pages that were not written, because their device takes none at the moment";
    Throttled, "pageout_throttled", "tasks that waited because too many pages were being written out";
    AllocStall, "allocstall", "tasks that had to reclaim for themselves";
    DirectReclaim, "direct_reclaims", "rounds of reclaim by tasks that needed a frame";
    OutOfMemory, "out_of_memory", "times that the embedding kernel was asked for a victim";
    KswapdWoken, "kswapd_woken", "times that a kswapd was woken";
    LocalFlushKernel, "nr_tlb_local_flush_kernel", "flushes of all kernel addresses that the core gives out";
    VmapPurges, "vmap_purges", "flushes of kernel addresses that were unmapped";
    VmapPurgedPages, "vmap_purged_pages", "pages that these flushes covered";
    KernelSweeps, "vmap_sweeps", "sweeps of kernel addresses: each CPU flushes them once, by itself";
    KernelSweepFlushes, "vmap_sweep_flushes", "flushes by CPUs that took part in a sweep of kernel addresses";
    KernelSweepForced, "vmap_sweep_forced", "CPUs that were asked by interrupt to take part in one";
    VmapPurgeWanted, "vmap_purge_wanted", "times that enough waited for a purge";
}

const COUNTERS: usize = Counter::ALL.len();

/// One CPU's counters. Only that CPU writes; anybody may sum up.
#[repr(C)]
pub(crate) struct Counters([AtomicU64; COUNTERS]);

impl Counters {
    #[inline]
    fn add(&self, counter: Counter, n: u64) {
        // One writer: a load and a store cost no locked instruction. Readers want no ordering.
        let slot = &self.0[counter as usize];
        slot.store(slot.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    pub(crate) fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize].load(Ordering::Relaxed)
    }

    /// Folds an event in. Where the event is made on the spot, one addition is left of this.
    #[inline(always)]
    pub(crate) fn fold(&self, event: &Event) {
        use Counter as C;
        match *event {
            Event::IpiSent { targets } => self.add(C::IpisSent, targets.into()),
            Event::IpiReceived => self.add(C::IpisReceived, 1),
            Event::RemoteFlush { .. } => self.add(C::RemoteFlush, 1),
            Event::Broadcast { .. } => self.add(C::Broadcasts, 1),
            Event::FlushServed => self.add(C::RemoteFlushReceived, 1),
            Event::FlushedPages { pages } => self.add(C::LocalFlushOne, pages.into()),
            Event::FlushedAll => self.add(C::LocalFlushAll, 1),
            Event::LazySkipped => self.add(C::LazySkipped, 1),
            Event::SweepBegun => self.add(C::Sweeps, 1),
            Event::Swept => self.add(C::SweepFlushes, 1),
            Event::SweepForced { targets } => self.add(C::SweepForced, targets.into()),
            Event::Unswept { pages } => self.add(C::Unswept, pages.into()),
            Event::FlushSpared { .. } => self.add(C::FlushSpared, 1),
            Event::Parked { pages } => self.add(C::Parked, pages.into()),
            Event::Taken { order, .. } => self.add(C::PgAlloc, 1 << order),
            Event::Freed { order, .. } => self.add(C::PgFree, 1 << order),
            Event::Mapped { pages, .. } => self.add(C::PgMapped, pages.into()),
            Event::Unmapped { pages, .. } => self.add(C::PgUnmapped, pages.into()),
            Event::Revoked { .. } | Event::WriteBegins { .. } | Event::Cleaned { .. } => {}
            Event::BatchFlushed { pages, .. } => {
                self.add(C::BatchFlushes, 1);
                self.add(C::BatchPages, pages.into());
            }
            Event::CpuOffline => self.add(C::CpuOffline, 1),
            Event::CpuOnline => self.add(C::CpuOnline, 1),
            Event::Copied => self.add(C::PgCopied, 1),
            Event::WriteAsked { may } => {
                self.add(C::MkwriteAsked, 1);
                self.add(C::MkwriteRefused, (!may).into());
            }
            Event::Migrated { .. } => self.add(C::PgMigrated, 1),
            Event::Demoted => self.add(C::PgDemoted, 1),
            Event::Pinned { .. } => self.add(C::Pinned, 1),
            Event::Unpinned { .. } => self.add(C::Unpinned, 1),
            Event::PinnedKept => self.add(C::PinnedKept, 1),
            Event::LargeFaulted => self.add(C::LargeFault, 1),
            Event::LargeSplit => self.add(C::LargeSplit, 1),
            Event::LargeCollapsed => self.add(C::LargeCollapse, 1),
            Event::DeferredCompleted => self.add(C::DeferredCompleted, 1),
            Event::WriteEnds { ok, .. } => self.add(if ok { C::PgPgOut } else { C::PgPgOutFailed }, 1),
            Event::Faulted { major } => {
                self.add(C::PgFault, 1);
                self.add(C::PgMajFault, major.into());
            }
            Event::Scanned { by: Reclaimer::Kswapd, pages } => self.add(C::PgScanKswapd, pages.into()),
            Event::Scanned { by: Reclaimer::Direct, pages } => self.add(C::PgScanDirect, pages.into()),
            Event::Reclaimed { by: Reclaimer::Kswapd, pages } => self.add(C::PgStealKswapd, pages.into()),
            Event::Reclaimed { by: Reclaimer::Direct, pages } => self.add(C::PgStealDirect, pages.into()),
            Event::CachesAsked { frames } => {
                self.add(C::CachesAsked, 1);
                self.add(C::CachesFreed, frames.into());
            }
            Event::Activated => self.add(C::PgActivate, 1),
            Event::Deactivated => self.add(C::PgDeactivate, 1),
            Event::Rotated => self.add(C::PgRotated, 1),
            Event::Looked { .. } => {}
            Event::Evicted { .. } => self.add(C::PgEvicted, 1),
            Event::Refaulted { activated } => {
                self.add(C::WorkingsetRefault, 1);
                self.add(C::WorkingsetActivate, activated.into());
            }
            Event::SwappedOut => self.add(C::PswpOut, 1),
            Event::SwappedIn { ahead } => {
                self.add(C::PswpIn, 1);
                self.add(C::SwapRa, ahead.into());
            }
            Event::AheadUsed => self.add(C::SwapRaHit, 1),
            Event::LazyFreed => self.add(C::LazyFreed, 1),
            Event::MappedAround => self.add(C::FaultAround, 1),
            Event::ReadAhead => self.add(C::FileRa, 1),
            Event::ReadAheadUsed => self.add(C::FileRaHit, 1),
            Event::ReadAheadUnused => self.add(C::FileRaUnused, 1),
            Event::SwapLost => self.add(C::SwapLost, 1),
            Event::SwapFull => self.add(C::SwapFull, 1),
            Event::PageoutDeferred => self.add(C::PageoutDeferred, 1),
            Event::Throttled => self.add(C::Throttled, 1),
            Event::Refilled { frames } => self.add(C::PcpRefill, frames.into()),
            Event::Spilled { frames } => self.add(C::PcpSpill, frames.into()),
            Event::Drained { sent, saved, few, .. } => {
                self.add(C::PcpGlobalDrain, 1);
                self.add(C::PcpGlobalIpiSaved, few.into());
                self.add(C::DrainIpisSent, sent.into());
                self.add(C::DrainIpisSaved, saved.into());
            }
            Event::MemoryOffline { .. } => self.add(C::MemoryOffline, 1),
            Event::MemoryOnline { .. } => self.add(C::MemoryOnline, 1),
            Event::AllocStall => self.add(C::AllocStall, 1),
            Event::DirectReclaim { .. } => self.add(C::DirectReclaim, 1),
            Event::AllocStallEnds { .. } => {}
            Event::OutOfMemory { .. } => self.add(C::OutOfMemory, 1),
            Event::KswapdWoken => self.add(C::KswapdWoken, 1),
            Event::FlushedKernel => self.add(C::LocalFlushKernel, 1),
            Event::VmapPurged { pages } => {
                self.add(C::VmapPurges, 1);
                self.add(C::VmapPurgedPages, pages);
            }
            Event::KernelSweepBegun | Event::FlushBegins { .. } => {}
            Event::KernelSwept => self.add(C::KernelSweepFlushes, 1),
            Event::KernelSweepForced { targets } => self.add(C::KernelSweepForced, targets.into()),
            Event::KernelSweepOver => self.add(C::KernelSweeps, 1),
            Event::VmapReturned { .. } => {}
            Event::VmapPurgeWanted => self.add(C::VmapPurgeWanted, 1),
        }
    }
}
