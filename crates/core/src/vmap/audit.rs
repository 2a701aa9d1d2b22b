//! Does everything add up in the kernel range? For the end of a test, on a quiet system.

use super::extent::{Place, Purpose};
use super::state::KernelRange;
use super::{blocks, eager, pressure, purge, recount};
use crate::Manager;
use crate::addr::PageNumber;
use crate::paging::{Entry, table};
use crate::platform::Platform;
use crate::policy::VmapPolicy;
use crate::sync::Word32;

/// What a look at the kernel range found.
#[derive(Clone, Copy, Default)]
pub(crate) struct Findings {
    /// Frames of its bookkeeping.
    pub pools: u64,
    /// Its page tables.
    pub tables: u64,
    /// Frames of `Vmap::alloc`, those that wait for a purge too.
    pub frames: u64,
    pub waiting_frames: u64,
    /// The first thing that does not add up.
    pub broken: Option<&'static str>,
}

/// Sums over all extents and blocks.
#[derive(Default)]
struct Sums {
    /// Pages of extents.
    free: u64,
    used: u64,
    waiting: u64,
    cached: u64,
    blocks: u64,
    /// Pages that should be present, and those whose frames should be kept in taken entries.
    present: u64,
    taken: u64,
    own: u64,
    /// Slots of the pool.
    slots: u32,
    dirty: u64,
    tree_good: bool,
}

pub(super) fn look<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>) -> Findings {
    let state = v.state;
    let (mut present, mut taken, mut astray) = (0, 0, false);
    let tables = table::count_kernel(mm, mm.kernel_root(), v.range, &mut |page: PageNumber, entry: Entry| {
        present += u64::from(entry.is_present());
        taken += u64::from(entry.is_taken());
        astray |= entry != Entry::NONE && (!v.range.contains(page) || !entry.has(Entry::GLOBAL));
    });
    let lazy = mm.config().policy.vmap != VmapPolicy::Eager;
    let sums = if lazy { lazy_sums(mm, v) } else { eager_sums(mm, v) };
    let in_use = state.extents.audit_used(mm);
    let waits = pressure::waits(mm, v);
    let all = sums.free + sums.used + sums.waiting + sums.cached + sums.blocks;
    // Slots of blocks that were flushed and not looked at since are dirty, too.
    let counted = waits.pages.checked_sub(sums.waiting).is_some_and(|slots| slots <= sums.dirty);
    let checks = [
        (!astray, "an entry outside the kernel range, or one that is not global"),
        (present == sums.present, "present kernel pages are not those of the extents in use"),
        (taken == sums.taken, "frames kept in kernel entries are not those that wait for a purge"),
        (!lazy || all == v.range.pages, "kernel pages that are neither free nor in use nor waiting"),
        (in_use == u64::from(sums.slots), "slots of extents that nobody has"),
        (sums.tree_good, "free kernel extents that touch, or a largest gap that is wrong"),
        (counted, "kernel pages that wait and their count differ"),
        (waits.frames == sums.taken, "frames that wait for a purge and their count differ"),
    ];
    let broken = checks.iter().find(|(good, _)| !good);
    Findings {
        pools: v.fixed_frames()
            + state.extents.frames(mm)
            + state.blocks.frames(mm)
            + v.index_frames(mm)
            + v.used_frames(mm),
        tables,
        frames: sums.own + sums.taken,
        waiting_frames: sums.taken,
        broken: broken.map(|(_, what)| *what).or_else(|| lazy.then(|| recount::look(mm, v)).flatten()),
    }
}

fn lazy_sums<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>) -> Sums {
    let p = mm.platform();
    let mut sums = Sums { tree_good: v.free_tree_good(mm), ..Sums::default() };
    // One that reaches across borders has a slot for each shard.
    let slots_of = |handle| {
        let link = |word: &Word32| word.get(p).checked_sub(1);
        let more =
            core::iter::successors(link(&v.extent(mm, handle).more), |&slot| link(&v.extent(mm, slot).next));
        1 + more.count() as u32
    };
    v.each_extent(mm, |handle, place| {
        let extent = v.extent(mm, handle);
        let (whole, mapped) = (extent.range(p).pages, extent.mapped(p).pages);
        let own = extent.purpose(p) == Purpose::Alloc;
        sums.slots +=
            if matches!(place, Place::Used | Place::Waits | Place::Cached) { slots_of(handle) } else { 1 };
        match place {
            Place::Free => sums.free += whole,
            Place::Used => {
                sums.used += whole;
                sums.present += mapped;
                sums.own += if own { mapped } else { 0 };
            }
            Place::Waits => {
                sums.waiting += whole;
                sums.taken += purge::own_frames(mm, v, handle);
            }
            Place::Cached => sums.cached += whole,
            Place::Spare => {}
        }
    });
    blocks::each(mm, v, |extent, mapped, dirty| {
        sums.slots += slots_of(extent);
        sums.blocks += v.extent(mm, extent).range(p).pages;
        sums.present += mapped;
        sums.dirty += dirty;
    });
    sums
}

fn eager_sums<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>) -> Sums {
    let p = mm.platform();
    let mut sums = Sums { tree_good: true, ..Sums::default() };
    let mut end = v.range.start;
    eager::each(mm, v, |handle| {
        let extent = v.extent(mm, handle);
        sums.tree_good &= extent.range(p).start >= end;
        end = extent.range(p).end();
        sums.slots += 1;
        sums.present += extent.mapped(p).pages;
        sums.own += if extent.purpose(p) == Purpose::Alloc { extent.mapped(p).pages } else { 0 };
    });
    sums
}
