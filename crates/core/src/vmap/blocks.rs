//! The blocks that a CPU has in line: what was flushed in them, and those that go back.

use core::sync::atomic::Ordering;

use super::bitmap::{Part, VmapBlock};
use super::cpu::{Blocks, ExtentCache};
use super::extent::Unmapped;
use super::state::KernelRange;
use crate::Manager;
use crate::addr::PageNumber;
use crate::cpu::CpuId;
use crate::platform::Platform;
use crate::sync::Word64;

/// Blocks that a map looks into before it makes a new one, and that are looked at under one hold of a CPU's lock.
pub(super) const LOOKS: usize = 8;
/// Numbers of slabs for blocks that a CPU has to itself from the start, and claims when it has used them.
pub(super) const NUMBERS: u32 = 16;

impl Blocks {
    pub(super) fn push<'p, P: Platform>(&self, mm: &Manager<'p, P>, v: &KernelRange<'p>, handle: u32) {
        let p = mm.platform();
        self.line.push(p, |handle| &block(mm, v, handle).next, handle);
        self.len.set(p, self.len.get(p) + 1);
    }

    pub(super) fn pop<'p, P: Platform>(&self, mm: &Manager<'p, P>, v: &KernelRange<'p>) -> Option<u32> {
        let p = mm.platform();
        let handle = self.line.pop(p, |handle| &block(mm, v, handle).next)?;
        self.len.set(p, self.len.get(p) - 1);
        Some(handle)
    }

    /// From now on this CPU maps in another block.
    pub(super) fn change<'p, P: Platform>(&self, mm: &Manager<'p, P>, v: &KernelRange<'p>, new: Option<u32>) {
        let p = mm.platform();
        if let Some(old) = self.current.get(p).checked_sub(1) {
            self.push(mm, v, old);
        }
        self.current.store(p, new.map_or(0, |handle| handle + 1), Ordering::Release);
    }
}

pub(super) fn block<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>, handle: u32) -> &'p VmapBlock {
    v.state.blocks.get(mm, handle)
}

/// What was flushed is clear. What was not is set aside, with the purge that it waits for. Under the lock of the CPU whose it
/// is.
pub(super) fn freshen_one<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>, found: &VmapBlock) {
    let (p, parts) = (mm.platform(), found.parts(v.block_pages));
    // What was set aside before, what was unmapped since, and what was set aside meanwhile.
    for _ in 0..3 {
        let purge = found.purge.get(p);
        if purge != 0 {
            if !v.state.numbers.has_flushed(p, purge) {
                return;
            }
            found.clear_flushed(p, v.block_pages);
        }
        let mut any = false;
        for part in parts {
            if part.dirty.load(p, Ordering::Relaxed) != 0 {
                // Acquire: partner of the Release in `unmap`: whoever set it has said before which purge it waits for.
                part.flushing.set(p, part.dirty.swap(p, 0, Ordering::Acquire));
                any = true;
            }
        }
        if !any {
            return;
        }
        found.purge.set(p, found.latest.load(p, Ordering::Relaxed));
    }
}

/// Looks at all blocks of all CPUs: what was flushed is clear, and with `back` those in which nothing is taken are given
/// back. For whoever is short of addresses.
pub(super) fn freshen<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>, back: bool) {
    let p = mm.platform();
    for cache in v.cpus.iter().filter(|cache| cache.blocks.any(p)) {
        // A few under each hold. Those that come meanwhile were looked at by whoever brings them.
        let mut left = cache.blocks.len.get(p) as usize + 1;
        while left > 0 {
            let looks = left.min(LOOKS);
            let gone = cache.with(mm, || freshen_some(mm, v, cache, looks, back));
            gone.into_iter().flatten().for_each(|handle| give_back(mm, v, handle));
            left -= looks;
        }
    }
}

/// Looks at so many blocks of a CPU, at most [`LOOKS`]; returns those that are closed for good. Under its lock.
fn freshen_some<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    cache: &ExtentCache,
    looks: usize,
    back: bool,
) -> [Option<u32>; LOOKS] {
    let mut gone = [None; LOOKS];
    // In line with the others: whoever maps next takes the first that has room.
    cache.blocks.change(mm, v, None);
    for place in &mut gone[..looks] {
        let Some(handle) = cache.blocks.pop(mm, v) else { break };
        let found = block(mm, v, handle);
        freshen_one(mm, v, found);
        // If that fails somebody has just claimed a slot.
        if back && found.close(mm.platform(), v.block_pages) {
            *place = Some(handle);
        } else {
            cache.blocks.push(mm, v, handle);
        }
    }
    gone
}

/// Gives the addresses of a block back that is closed and nobody's.
fn give_back<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>, handle: u32) {
    let (p, old) = (mm.platform(), block(mm, v, handle));
    v.set_block(mm, PageNumber(old.start.get(p)), None);
    // Every slot that was ever mapped in it has been flushed since: its bit was clear.
    v.put_back(mm, Unmapped::cleared(old.extent.get(p)).flushed());
    v.state.blocks.release(mm, handle);
}

/// This CPU is offline from now on: another one has its blocks. If there is none they stay, for when it comes back.
///
/// Two may go at once:
///
/// ```text
///   this CPU                          another
///   presence = OFFLINE                presence = OFFLINE
///   own lock: a block taken off
///                                     own lock: all taken off
///   its lock: is it online?
///     yes: the block is its own, and it has not looked yet
///     no: somebody else's
/// ```
pub(super) fn leave<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>) {
    let mine = &v.cpus[mm.platform().this_cpu().index()];
    while let Some(handle) = mine.with(mm, || {
        mine.blocks.change(mm, v, None);
        mine.blocks.pop(mm, v)
    }) {
        let takes = |cpu: &usize| {
            let (online, theirs) = (|| mm.is_online(CpuId(*cpu as u16)), &v.cpus[*cpu]);
            online()
                && theirs.with(mm, || {
                    // Again: whoever goes has said so before it takes this lock to look what it has.
                    let stays = online();
                    if stays {
                        theirs.blocks.push(mm, v, handle);
                    }
                    stays
                })
        };
        if !(0..v.cpus.len()).any(|cpu| takes(&cpu)) {
            return mine.with(mm, || mine.blocks.push(mm, v, handle));
        }
    }
}

/// For a look at a quiet system: of each block its extent, the pages that are mapped, and those that wait for a purge.
pub(super) fn each<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    mut each: impl FnMut(u32, u64, u64),
) {
    let p = mm.platform();
    for handle in v.state.blocks.used(mm) {
        let found = block(mm, v, handle);
        // A spare slot, which was never a block.
        if found.start.get(p) == 0 {
            continue;
        }
        let sum = |bits: fn(&Part) -> &Word64| -> u64 {
            found.parts(v.block_pages).iter().map(|part| u64::from(bits(part).get(p).count_ones())).sum()
        };
        let dirty = sum(|part| &part.dirty) + sum(|part| &part.flushing);
        each(found.extent.get(p), v.block_pages - sum(|part| &part.free) - dirty, dirty);
    }
}
