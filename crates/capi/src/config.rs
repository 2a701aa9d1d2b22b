//! What is chosen when the manager is made.

use core::ffi::c_char;
use core::mem::MaybeUninit;

use quietmm::policy::PolicyError;
use quietmm::{FrameNumber, ListLimits, NodeId, PageNumber, PageRange, Policy};

use crate::platform::Range;
use crate::text;

/// A run of memory that is handed over, or may come later.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Region {
    /// Its first frame: its physical address, divided by 4096.
    pub start: u32,
    /// How many frames.
    pub frames: u32,
    /// Its node.
    pub node: u16,
}

impl From<Region> for quietmm::Region {
    fn from(region: Region) -> Self {
        quietmm::Region { start: FrameNumber(region.start), frames: region.frames, node: NodeId(region.node) }
    }
}

/// What is chosen when the manager is made: `quietmm_config` fills it with Linux's settings, and what differs is set then.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Config {
    /// The policy of every mechanism: "vanilla", "linux", "quiet", and what differs: "linux+drain=remote+vmap=lazy".
    pub policy: *const c_char,
    /// Kernel pages that the core may give out, in the upper half of addresses. No pages: none.
    pub vmap: Range,
    /// Parts of that range with locks of their own: 1 to 4096. 0: one for each CPU, of 64 MiB at least.
    pub vmap_shards: u32,
    /// Kernel pages that are unmapped and wait, before a purge is asked for. 0: by the CPUs that are online.
    pub vmap_lazy: u64,
    /// Pages that a CPU gathers before it puts them on an LRU list: 1 to 64.
    pub lru_batch: u32,
    /// Pages that one scan looks at and one unmap batch takes: 1 to 64.
    pub scan_batch: u32,
    /// Pages above which a flush takes everything: at least 1.
    pub flush_ceiling: u32,
    /// Frames that go from a zone to a CPU's list, or back, at a time: 1 to 63. 0: by the size of the zone.
    pub page_list_batch: u32,
    /// With a batch: more frames on a list than this, and a batch goes back. 0: none is kept on lists.
    pub page_list_high: u32,
    /// Frames kept free in all zones together. 0: by the size of memory.
    pub min_free: u32,
    /// Pages that may be on their way to devices before tasks that reclaim must wait: at least 1.
    pub pageout_limit: u32,
    /// Mappings that a space may have: at least 1.
    pub max_map_count: u32,
    /// Pages of the largest window that is read ahead of a sequential use of a file: 0 for none, or a power of two up to 512. Linux: 32.
    pub read_ahead: u32,
    /// Pages of the aligned window in which a read fault maps what is in a file's cache: a power of two up to 64. Linux: 16.
    pub fault_around: u32,
    /// The most groups of spaces that there may be at once, up to 65536. 0: none, which costs nothing.
    pub groups: u32,
    /// Dirty pages of files above which `quietmm_flusher` writes some back. 0: it does not look at their number.
    pub dirty_background: u64,
    /// Dirty pages of files at which who writes to one more writes some back first. 0: no limit.
    pub dirty_limit: u64,
    /// How long a page of a file may be dirty before `quietmm_flusher` writes it back, in nanoseconds. 0: it does not look at their age.
    pub dirty_expire: u64,
    /// How much a task does in the core before it calls `cond_resched`, in looks at page-table entries: at least 1.
    pub resched_after: u32,
    /// How long a sweep is waited for before CPUs that have not taken part are interrupted, in nanoseconds.
    pub sweep_deadline: u64,
    /// Reclaim remembers which pages it took: 4 bytes for each frame.
    pub shadows: bool,
    /// Memory of a space's own may be reclaimed: `quietmm_swap_on` is allowed.
    pub swap: bool,
    /// `quietmm_vmap_free` frees frames before their addresses are flushed, as Linux does: a CPU may still use them.
    pub vfree_at_once: bool,
    /// No mapping may be written and executed at once.
    pub write_xor_execute: bool,
}

/// Fills a configuration with Linux's settings, but for read-ahead and fault-around, which it leaves out, and the policy "vanilla", which needs no guarantee. Any context.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_config(config: &mut MaybeUninit<Config>) {
    let linux = quietmm::Config::new(Policy::VANILLA);
    config.write(Config {
        policy: c"vanilla".as_ptr(),
        vmap: Range { first: 0, pages: 0 },
        vmap_shards: 0,
        vmap_lazy: 0,
        lru_batch: linux.lru_batch,
        scan_batch: linux.scan_batch,
        flush_ceiling: linux.flush_ceiling,
        page_list_batch: 0,
        page_list_high: 0,
        min_free: 0,
        pageout_limit: linux.pageout_limit,
        max_map_count: linux.max_map_count,
        read_ahead: linux.read_ahead,
        fault_around: linux.fault_around,
        groups: linux.groups,
        dirty_background: linux.dirty_background,
        dirty_limit: linux.dirty_limit,
        dirty_expire: linux.dirty_expire,
        resched_after: linux.resched_after,
        sweep_deadline: linux.sweep_deadline,
        shadows: linux.shadows,
        swap: linux.swap,
        vfree_at_once: linux.vfree_at_once,
        write_xor_execute: linux.write_xor_execute,
    });
}

impl Config {
    /// As the core has it. Or why not, if the policy is a text at all.
    ///
    /// # Safety
    /// The policy is a text that ends with a zero byte, or null.
    pub(crate) unsafe fn read(&self) -> Result<quietmm::Config, Option<PolicyError<'_>>> {
        let some = |n: u32| (n != 0).then_some(n);
        // SAFETY: the caller promises it.
        let policy = unsafe { text::read(self.policy) }.ok_or(None)?;
        let policy = Policy::parse(policy).map_err(Some)?;
        Ok(quietmm::Config {
            lru_batch: self.lru_batch,
            scan_batch: self.scan_batch,
            flush_ceiling: self.flush_ceiling,
            page_lists: some(self.page_list_batch)
                .map(|batch| ListLimits { batch, high: self.page_list_high }),
            min_free: some(self.min_free),
            vmap: (self.vmap.pages != 0)
                .then(|| PageRange::new(PageNumber(self.vmap.first), self.vmap.pages)),
            vmap_shards: some(self.vmap_shards),
            vmap_lazy: (self.vmap_lazy != 0).then_some(self.vmap_lazy),
            pageout_limit: self.pageout_limit,
            shadows: self.shadows,
            swap: self.swap,
            max_map_count: self.max_map_count,
            read_ahead: self.read_ahead,
            fault_around: self.fault_around,
            groups: self.groups,
            dirty_background: self.dirty_background,
            dirty_limit: self.dirty_limit,
            dirty_expire: self.dirty_expire,
            resched_after: self.resched_after,
            vfree_at_once: self.vfree_at_once,
            write_xor_execute: self.write_xor_execute,
            sweep_deadline: self.sweep_deadline,
            ..quietmm::Config::new(policy)
        })
    }
}
