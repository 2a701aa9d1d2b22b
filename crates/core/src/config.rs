//! What is chosen when the manager is made.

use crate::addr::PageRange;
use crate::error::Error;
use crate::policy::Policy;

/// The largest LRU batch.
pub(crate) const MAX_LRU_BATCH: usize = 64;
/// The largest batch, in frames.
pub(crate) const MAX_PAGE_BATCH: u32 = 63;

/// The most groups that may be asked for.
const MAX_GROUPS: u32 = 1 << 16;

/// How many free frames of a zone a CPU keeps on its lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListLimits {
    /// Frames that go from the zone to the list, or back, at a time: 1 to 63.
    pub batch: u32,
    /// More frames than this, and a batch goes back; at least `batch`. 0: nothing is kept on lists.
    pub high: u32,
}

impl ListLimits {
    pub(crate) fn check(self) -> Result<Self, Error> {
        if !(1..=MAX_PAGE_BATCH).contains(&self.batch) {
            return Err(Error::BadSetting("a list's batch must be 1 to 63"));
        }
        if self.high != 0 && self.high < self.batch {
            return Err(Error::BadSetting("a list's high must be 0 or at least its batch"));
        }
        Ok(self)
    }

    /// Linux's rule: a quarter of a thousandth of the zone, of 256 pages at most, times 1.5, rounded down to a power of
    /// two, less one; and the zone's low watermark, shared out to the CPUs of its node, but at least four batches.
    pub(crate) const fn linux(frames: u64, low: u64, cpus: u32) -> Self {
        let thousandth = if frames / 1024 < 256 { frames / 1024 } else { 256 };
        let batch = if thousandth < 4 { 1 } else { thousandth / 4 };
        let power = 1 << (batch + batch / 2).ilog2();
        let batch = if power < 2 { 1 } else { power - 1 };
        let share = low / if cpus == 0 { 1 } else { cpus } as u64;
        let share = if share > u32::MAX as u64 >> 1 { u32::MAX >> 1 } else { share as u32 };
        ListLimits { batch, high: if share > 4 * batch { share } else { 4 * batch } }
    }
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
    /// How many free frames of each zone a CPU keeps on its lists. `None`: Linux's rule, by the
    /// memory of the zone, which they follow until [`set_list_limits`](crate::FrameAllocator::set_list_limits).
    pub page_lists: Option<ListLimits>,
    /// Frames kept free in all zones together (the sum of the min watermarks), instead of Linux's rule.
    pub min_free: Option<u32>,
    /// Kernel pages that the core may give out, in the upper half of addresses: see [`Vmap::map`](crate::Vmap::map). `None`: none.
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
    /// Reclaim remembers which pages it took, to know those that are wanted again too soon. 4 bytes for each frame that is handed over
    /// at start.
    pub shadows: bool,
    /// Anonymous pages, and those of [memory files](crate::Manager::create_memory_file), may be reclaimed: the former are on the lists and can be found by the reverse map, and
    /// [`Swap::on`](crate::Swap::on) is allowed. Costs a slot of 64 bytes for each mapping of memory that is a space's own.
    pub swap: bool,
    /// Mappings that a space may have, with those that `unmap` and `protect` make of one: at least 1. What bounds the memory that
    /// one space takes for its mappings: 128 bytes each, and with [`swap`](Self::swap) another 64. Linux
    /// (`vm.max_map_count`): 65530.
    pub max_map_count: u32,
    /// Pages of the largest window that is read ahead of a sequential use of a file: 0 for none, or a power of two up to 512. Linux:
    /// [32](Self::LINUX_READ_AHEAD), 128 KiB. Whoever maps a file has it read ahead, and who reads it by [`File::read_with`](crate::File::read_with).
    pub read_ahead: u32,
    /// Pages of the aligned window in which a read fault on a page of a file maps those that are in the file's cache: a power of two from 1,
    /// for the page alone, to 64. Linux: [16](Self::LINUX_FAULT_AROUND), 64 KiB.
    pub fault_around: u32,
    /// The most groups of spaces that there may be at once: see [`Manager::create_group`](crate::Manager::create_group). 0: none, which costs nothing. Others cost 4
    /// bytes for each frame, a cache line for each CPU, and for each group 128 bytes and 128 more on each node. Linux: 65535.
    pub groups: u32,
    /// Dirty pages of files above which [`Manager::flusher`](crate::Manager::flusher) writes some back. 0: it does not look at their number.
    ///
    /// This, [`dirty_limit`](Self::dirty_limit) and [`dirty_expire`](Self::dirty_expire) have dirty pages counted as soon as one of them is not 0. Then
    /// a page of any file is read-only in all mappings while it is clean: the first write to it is a fault (Linux: the same). If all
    /// are 0 nothing is counted, and that costs nothing. Linux (`vm.dirty_background_ratio`): 10 % of memory.
    pub dirty_background: u64,
    /// Dirty pages of files at which who writes to one more writes some back first, by [`File::write`](crate::File::write) or through a mapping. 0: no
    /// limit. Linux (`vm.dirty_ratio`): 20 % of memory.
    pub dirty_limit: u64,
    /// How long a page of a file may be dirty before [`Manager::flusher`](crate::Manager::flusher) writes it back, in nanoseconds. 0: it does not look
    /// at their age. Linux (`vm.dirty_expire_centisecs`): 30 s.
    pub dirty_expire: u64,
    /// How much a task does in the core before it lets others run ([`Services::cond_resched`](crate::platform::Services::cond_resched)), in looks at page-table
    /// entries: at least 1. What is dearer counts for more: 1024 is some 64 VMAs, or 64 frames that are freed or copied.
    pub resched_after: u32,
    /// [`Vmap::free`](crate::Vmap::free) frees frames before their addresses are flushed, as Linux does: a CPU may still use them (INV-1).
    pub vfree_at_once: bool,
    /// W^X: no mapping may be written and executed at the same time ([`Prot::ReadWriteExecute`](crate::Prot::ReadWriteExecute) is [`Error::WriteAndExecute`]). One may become
    /// the other by [`Space::protect`](crate::Space::protect); and a file that is mapped twice, once each way, is not found.
    pub write_xor_execute: bool,
    /// How long a sweep is waited for before those CPUs are interrupted that have not taken part, in nanoseconds: by a task that
    /// needs memory with `unmap=quiet`, by whoever purges with `vmap=sweep`. More than a period of their timers, or sweeps come by
    /// interrupt.
    pub sweep_deadline: u64,
}

impl Config {
    /// Linux's largest window of [`read_ahead`](Self::read_ahead).
    pub const LINUX_READ_AHEAD: u32 = 32;

    /// Linux's window of [`fault_around`](Self::fault_around).
    pub const LINUX_FAULT_AROUND: u32 = 16;

    /// Linux's settings with this policy; but nothing is read ahead, and a fault maps its page alone.
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
            read_ahead: 0,
            fault_around: 1,
            groups: 0,
            dirty_background: 0,
            dirty_limit: 0,
            dirty_expire: 0,
            resched_after: 1024,
            vfree_at_once: false,
            write_xor_execute: false,
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

    pub(crate) fn check(&self) -> Result<(), Error> {
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
        if self.read_ahead != 0 && (!self.read_ahead.is_power_of_two() || self.read_ahead > 512) {
            return Err(Error::BadSetting("read_ahead must be 0, or a power of two up to 512"));
        }
        if !self.fault_around.is_power_of_two() || self.fault_around > 64 {
            return Err(Error::BadSetting("fault_around must be a power of two up to 64"));
        }
        if self.groups > MAX_GROUPS {
            return Err(Error::BadSetting("groups must be at most 65536"));
        }
        if self.dirty_limit != 0 && self.dirty_background > self.dirty_limit {
            return Err(Error::BadSetting("dirty_background must be at most dirty_limit"));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_follow_the_zones_size() {
        for (frames, batch) in [(0, 1), (4096, 1), (16 << 10, 3), (32 << 10, 7), (1 << 20, 63), (4 << 20, 63)]
        {
            assert_eq!(ListLimits::linux(frames, 0, 8).batch, batch, "{frames} frames");
        }
    }

    #[test]
    fn high_is_a_cpus_share_of_the_low_watermark_and_at_least_four_batches() {
        assert_eq!(ListLimits::linux(4 << 20, 16_000, 16).high, 1000);
        assert_eq!(ListLimits::linux(4 << 20, 100, 16).high, 4 * 63);
        assert_eq!(ListLimits::linux(100, 7, 0).high, 7);
    }

    #[test]
    fn limits_that_contradict_each_other_are_refused() {
        for (batch, high) in [(0, 0), (64, 256), (8, 7)] {
            assert!(ListLimits { batch, high }.check().is_err());
        }
        assert!(ListLimits { batch: 8, high: 0 }.check().is_ok());
    }
}
