//! Does everything add up? For the end of a test, on a quiet system.

mod mapped;
mod recount;
mod rest;

use crate::Manager;
use crate::addr::{LARGE_PAGES, PageNumber};
use crate::cpu::CpuId;
use crate::frame::percpu::PcpAccess;
use crate::kind::Kind;
use crate::memmap::{Frame, PIN, flag};
use crate::paging::{Entry, table};
use crate::platform::Platform;

/// What a look at every frame found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Audit {
    /// Frames handed over.
    pub total: u64,
    /// Taken at start for bookkeeping.
    pub reserved: u64,
    /// Free.
    pub free: u64,
    /// Offline, or isolated on the way there.
    pub offline: u64,
    /// Of those that are free, on per-CPU lists.
    pub pcp: u64,
    /// Page tables.
    pub tables: u64,
    /// In the core's pools and page-cache indexes, and what is kept about frames that came later.
    pub pools: u64,
    /// Allocated by the embedding kernel, all frames of each block.
    pub kernel: u64,
    /// Anonymous pages.
    pub anon: u64,
    /// Cached file pages.
    pub file: u64,
    /// Pages of a batch that was never flushed: leaks.
    pub leaked: u64,
    /// Unmap batches in use: leaks, where nobody reclaims.
    pub batches: u64,
    /// Mapped by [`Vmap::alloc`](crate::Vmap::alloc), or waiting for the purge of its addresses.
    pub vmalloc: u64,
    /// Of these, frames that wait for a purge.
    pub unpurged: u64,
    /// Anonymous pages that programs unmapped or dropped, and that wait for a sweep.
    pub parked: u64,
    /// Pins that are out ([`Space::pin`](crate::Space::pin)).
    pub pinned: u64,
    /// Entries in all spaces that lead to pages, those of [`Prot::None`](crate::Prot::None) too.
    pub mapped: u64,
    /// Entries in all spaces that name swap slots.
    pub swapped: u64,
    /// The first thing that does not add up.
    pub broken: Option<&'static str>,
}

impl<P: Platform> Manager<'_, P> {
    /// Walks all frames, lists, tables and trees, and compares. Nothing else may run meanwhile, on any CPU,
    /// and every LRU batch is drained or counts as held.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let audit = mm.validate();
    /// assert_eq!((audit.broken, audit.leaked), (None, 0));
    /// # Ok(())
    /// # });
    /// ```
    pub fn validate(&self) -> Audit {
        let p = self.platform();
        let pcp = self.frames().on_lists();
        let mut audit = Audit { reserved: self.frames().reserved(), free: pcp, pcp, ..Audit::default() };
        audit.offline = self.offline_frames();
        audit.total = audit.offline;
        let (mut allocated, mut owned, mut listed, mut maps, mut deposited) = (0, 0, 0, 0, 0);
        let (mut refs, mut wrong_frame) = (0, None);
        let (mut dirty, mut kept, mut pages) = (0, 0, recount::Pages::default());
        // Pages that have left their caches, or whose file has ended, and wait in LRU batches: those hold them.
        let mut cut = 0;
        for (n, frame) in self.memmap().iter() {
            audit.total += 1;
            // Of each frame, and of no concern to a machine that counts what others may see.
            let state = frame.state.unseen();
            let (block, kind) = (1 << Frame::order_of(state), Frame::kind_of(state));
            match kind {
                Kind::Kernel => {
                    allocated += block;
                    owned += if state & flag::OWN != 0 { block } else { 0 };
                }
                Kind::Table => audit.tables += 1,
                Kind::Anon => {
                    audit.anon += block;
                    deposited += u64::from(block > 1 && self.has_deposit(n));
                }
                Kind::File => {
                    audit.file += 1;
                    let keeps = Frame::is_kept_by_device(state);
                    dirty += u64::from(state & flag::DIRTY != 0 && keeps);
                    let waits = || frame.refs.get(p) > 0 && !self.audit_cached(n);
                    cut += u64::from(state & flag::CUT != 0 || waits());
                }
                Kind::Free => audit.free += block,
                Kind::Tail => {
                    kept += if state & flag::LISTED != 0 { block } else { 0 };
                    continue;
                }
                Kind::Absent | Kind::Reserved => continue,
            }
            audit.leaked += u64::from(state & flag::UNFLUSHED != 0);
            listed += u64::from(state & flag::LISTED != 0);
            if matches!(kind, Kind::Anon | Kind::File) {
                maps += u64::from(frame.maps.get(p));
            }
            pages.add(self, frame, state);
            match self.audit_frame(n, frame) {
                Ok(held) => {
                    refs += held % u64::from(PIN);
                    audit.pinned += held / u64::from(PIN);
                }
                Err(wrong) => wrong_frame = Some(wrong),
            }
        }
        let mut tables = 1 + deposited; // the kernel's own root, and those that large pages have with them
        let (mut wrong_entry, mut beside) = (None, 0);
        for id in self.live_spaces() {
            let mut visit = |page: PageNumber, entry: Entry| {
                audit.mapped += u64::from(entry.is_mapped());
                // Each page of a file counts by itself.
                let large = entry.is_mapped() && entry.has(Entry::LARGE) && self.shows_file(entry);
                beside += if large { LARGE_PAGES - 1 } else { 0 };
                audit.swapped += u64::from(entry.is_swapped());
                if entry != Entry::NONE {
                    wrong_entry = wrong_entry.or(self.audit_entry(id, page, entry));
                }
            };
            let (count, good) = table::count(self, self.space_at(id).root(p), &mut visit);
            tables += count;
            let wrong_count = "a table counts others than those below it";
            wrong_entry = wrong_entry.or((!good).then_some(wrong_count));
            wrong_entry = wrong_entry.or(self.audit_vmas(id));
        }
        audit.parked = self.parked_frames();
        let root = self.root;
        audit.pools = root.spaces.frames(self)
            + root.vmas.frames(self)
            + root.anon_vmas.frames(self)
            + root.files.frames(self)
            + root.batches.frames(self)
            + root.later_frames.get(p);
        audit.batches = self.batches_in_use();
        let (mut cached, mut out, mut out_good, mut trees_good) = (0, 0, true, true);
        for id in self.live_files() {
            let (nodes, good) = self.audit_tree(id.slot());
            audit.pools += nodes;
            trees_good &= good;
            cached += self.file(id).cached_pages().unwrap_or(0);
            let in_swap = self.audit_out(id.slot());
            out += in_swap.unwrap_or(0);
            out_good &= in_swap.is_none_or(|out| self.file(id).swapped_pages() == Ok(out));
        }
        let (of_swap, swap_broken) = self.audit_swap(audit.swapped + out);
        audit.pools += of_swap;
        let vmap = self.audit_vmap();
        audit.pools += vmap.pools;
        tables += vmap.tables;
        (audit.vmalloc, audit.unpurged) = (vmap.frames, vmap.waiting_frames);
        let own = audit.pools + audit.vmalloc;
        audit.kernel = allocated - own.min(allocated);
        let zones_good = self.zones().all(|zone| zone.lock(self).audit().1);
        let mut cpus = (0..p.possible_cpus()).map(|cpu| CpuId(cpu as u16));
        // No frame says that it is on a per-CPU list but those that are.
        let pcp_good = kept == pcp && cpus.all(|cpu| PcpAccess::of(self, cpu, |section| section.audit()));
        let (on_lists, lists_good) = self.audit_lists();
        let sum = audit.reserved
            + audit.free
            + audit.tables
            + own
            + audit.kernel
            + audit.anon
            + audit.file
            + audit.offline;
        let mut offline =
            (0..p.possible_cpus()).map(|cpu| CpuId(cpu as u16)).filter(|&cpu| !self.is_online(cpu));
        let left_nothing = offline.all(|cpu| self.left_nothing(cpu, self.live_spaces()));
        let under_way = self.audit_rest();
        let miscounted = self.audit_counts(&pages, audit.pinned);
        let checks = [
            (zones_good, "a zone's free lists and its count differ"),
            (pcp_good, "a CPU's list of free frames and its count differ"),
            (lists_good, "an LRU list and its count differ"),
            (on_lists == listed, "pages marked as listed are not the pages on the lists"),
            (audit.leaked == 0, "pages of an unmap batch that was never flushed"),
            (audit.batches == 0, "an unmap batch that nobody flushes"),
            (own == owned, "frames of the core's own that no pool, index or kernel range holds"),
            (swap_broken.is_none(), swap_broken.unwrap_or_default()),
            (vmap.broken.is_none(), vmap.broken.unwrap_or_default()),
            (sum == audit.total, "frames that are neither free nor in use"),
            (tables == audit.tables, "page tables that no space reaches"),
            (
                maps == audit.mapped + beside + audit.parked,
                "mapping counts and entries that lead to pages differ",
            ),
            (cached + cut == audit.file, "file pages that no cache holds"),
            (trees_good, "a file's tree has other pages or nodes than it says"),
            (out_good, "pages of a memory file that are in swap, and their count, differ"),
            (
                !self.counts_dirty() || dirty == self.dirty_pages(),
                "pages of files that are dirty, and their count, differ",
            ),
            (self.audit_groups(), "what a group is charged with, and its pages and stocks, differ"),
            (self.online_adds_up(), "CPUs that are online, and their mask or their count, differ"),
            (wrong_frame.is_none(), wrong_frame.unwrap_or_default()),
            (
                refs == self.batch_refs(),
                "references to pages that neither a mapping, a cache nor a batch has",
            ),
            (wrong_entry.is_none(), wrong_entry.unwrap_or_default()),
            (under_way.is_none(), under_way.unwrap_or_default()),
            (miscounted.is_none(), miscounted.unwrap_or_default()),
            (left_nothing, "a CPU that is offline and still in a mask, or with frames, pages or requests"),
        ];
        audit.broken = checks.iter().find(|(good, _)| !good).map(|(_, what)| *what);
        audit
    }
}
