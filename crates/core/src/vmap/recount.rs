//! What the kernel range keeps about its extents and blocks, counted anew: for audits of a quiet system.

use super::blocks;
use super::state::KernelRange;
use super::sweeping::Owned;
use super::{index, used};
use crate::Manager;
use crate::addr::PageNumber;
use crate::cpu::CpuId;
use crate::platform::Platform;

/// The first thing that does not add up.
pub(super) fn look<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>) -> Option<&'static str> {
    let checks = [
        (
            v.state.extents.audit(mm) && v.state.blocks.audit(mm),
            "a slab of extents or of blocks has other slots than it says",
        ),
        (blocks_have_owners(mm, v), "a block of kernel addresses that is no CPU's, or is another's too"),
        (index_leads_to_blocks(mm, v), "the index of blocks leads to what is no block, or not to one"),
        (names_are_of_extents(mm, v), "a kernel address that leads to an extent which does not hold it"),
        (reports_add_up(mm, v), "kernel pages that CPUs have reported, and their sum, differ"),
        (spare_slots_add_up(mm, v), "spare slots of extents, and their count, differ"),
        (sweeps_add_up(mm, v), "what waits for a sweep of kernel addresses, and its counts, differ"),
    ];
    checks.iter().find(|(good, _)| !good).map(|(_, what)| *what)
}

fn blocks_have_owners<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>) -> bool {
    let p = mm.platform();
    let (mut owned, mut good, mut all) = (0, true, 0);
    for cache in v.cpus {
        let blocks = &cache.blocks;
        let mut line = 0;
        blocks.line.each(p, |handle| &blocks::block(mm, v, handle).next, |_| line += 1);
        good &= line == blocks.len.get(p);
        owned += line + u32::from(blocks.current.get(p) != 0);
    }
    blocks::each(mm, v, |_, _, _| all += 1);
    good && owned == all
}

fn index_leads_to_blocks<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>) -> bool {
    let p = mm.platform();
    let (mut named, mut good, mut all) = (0, true, 0);
    let first = v.range.start.0 / v.block_pages;
    for (top, from) in v.index.iter().zip((0..).map(|nth| nth * index::PER_FRAME as u64)) {
        for (n, word) in used::words(mm, top) {
            let Some(handle) = word.get(p).checked_sub(1) else { continue };
            let start = blocks::block(mm, v, handle).start.get(p);
            good &= v.state.blocks.is_used(mm, handle) && start / v.block_pages == first + from + n;
            named += 1;
        }
    }
    blocks::each(mm, v, |_, _, _| all += 1);
    good && named == all
}

fn names_are_of_extents<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>) -> bool {
    let p = mm.platform();
    let (mut names, mut good) = (0, true);
    v.each_name(mm, |page: PageNumber, handle| {
        let range = v.extent(mm, handle).range(p);
        good &= v.state.extents.is_used(mm, handle) && range.contains(page);
        names += 1;
    });
    let mut expected = 0;
    v.each_used(mm, |handle| expected += used::named(v.extent(mm, handle).range(p)).count());
    good && names == expected
}

fn reports_add_up<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>) -> bool {
    let p = mm.platform();
    if v.sweeping.is_some() {
        return true;
    }
    let told: u64 = v.cpus.iter().map(|cache| cache.told.get(p)).sum();
    let idle = |cache: &super::cpu::ExtentCache| cache.waits.get(p) != 0 || cache.pages.get(p) == 0;
    told == v.state.reported.get(p)
        && v.cpus.iter().all(|cache| cache.told.get(p) <= cache.pages.get(p) && idle(cache))
        && v.state.asked.running.get(p) == 0
}

fn spare_slots_add_up<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>) -> bool {
    let p = mm.platform();
    v.shards.iter().all(|shard| {
        let first = shard.spare.first.get(p).checked_sub(1);
        let slots = core::iter::successors(first, |&slot| v.extent(mm, slot).next.get(p).checked_sub(1));
        slots.count() as u32 == shard.spare.len.get(p)
    })
}

fn sweeps_add_up<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>) -> bool {
    let p = mm.platform();
    let Some(sweeping) = &v.sweeping else { return true };
    let owns = |owned: &Owned| {
        let (mut pages, mut frames) = (0, 0);
        owned.extents.each(p, v.link(mm), |handle| {
            let extent = v.extent(mm, handle);
            pages += extent.range(p).pages;
            frames += extent.mapped(p).pages;
        });
        (pages, frames) == (owned.pages.get(p), owned.frames.get(p))
    };
    let waits = sweeping.waiting.iter().enumerate().all(|(cpu, waiting)| {
        let parts = [&waiting.sealed, &waiting.fresh];
        let known = sweeping.shared.owners.contains(p, CpuId(cpu as u16));
        parts.iter().all(|part| {
            let nothing = part.pages.get(p) == 0 && part.owned.extents.is_empty(p);
            owns(&part.owned)
                && (part.until.get(p) != 0 || nothing)
                && (known || part.owned.extents.is_empty(p))
        }) && owns(&waiting.flushed)
    });
    waits
        && v.state.numbers.sweeps.audit(p, &sweeping.shared.look)
        && sweeping.groups.iter().all(|group| group.looks.get(p) == 0)
}
