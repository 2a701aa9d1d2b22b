//! Per-CPU blocks: small maps without a lock.
//!
//! A block is an aligned run of addresses whose tables exist. A map is a run of bits in one word of its bitmap, claimed by
//! one compare-and-swap, so it does not matter on which CPU its task goes on meanwhile, nor who else looks into the same
//! block (PITFALLS 31). What is unmapped is *dirty*: its bits stay taken until a purge has flushed them (INV-3), and then
//! the same block has room again.
//!
//! Who may give a block back is who has the *reference* to it: it is some CPU's, or on its shard's list of blocks with
//! room, or, where it has no room, nobody's (`LOOSE`): then it comes back when something in it was unmapped and flushed.
//! A block is given back by taking all bits of all words at once, none of which was taken: whoever still looks into it,
//! having read of it before, finds no room. Slots of blocks are never memory for anything else, so that look is safe.

use core::sync::atomic::Ordering;

use super::bitmap::{Block, Part, WORD, run};
use super::extent::{Purpose, Unmapped, Want};
use super::shard::Waiting;
use super::{Vmap, entries, lazy, purge};
use crate::Manager;
use crate::addr::{FrameNumber, PageNumber, PageRange};
use crate::cpu::CpuId;
use crate::error::Error;
use crate::frame::AllocFrom;
use crate::paging::KernelProt;
use crate::platform::Platform;
use crate::pool::Zeroed;
use crate::rule::Rule;
use crate::sync::{Word32, Word64};

/// Listed blocks that a map looks into before it makes a new one.
const LOOKS: usize = 8;

const LOOSE: u32 = 0;
const OF_A_CPU: u32 = 1;
const LISTED: u32 = 2;
const GONE: u32 = 3;

/// A CPU's block.
#[repr(C, align(64))]
pub(crate) struct OnCpu {
    /// Its handle, plus one.
    pub block: Word32,
}

// SAFETY: atomics only.
unsafe impl Zeroed for OnCpu {}

fn block<'p, P: Platform>(mm: &Manager<'p, P>, v: &Vmap<'p>, handle: u32) -> &'p Block {
    v.state.blocks.get(mm, handle)
}

pub(super) fn map<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &Vmap<'p>,
    frames: &[FrameNumber],
    prot: KernelProt,
) -> Result<PageRange, Error> {
    let pages = frames.len() as u64;
    purge::ease(mm, v);
    let start = slot(mm, v, pages)?;
    let (p, range) = (mm.platform(), PageRange::new(start, pages));
    entries::set(mm, range, frames, prot);
    let (part, bit) = part_of(mm, v, start).ok_or(Error::NotMapped(start))?;
    part.last.fetch_or(p, 1 << (bit + pages - 1), Ordering::Relaxed);
    // Release: who finds the first page finds the last one too.
    part.first.fetch_or(p, 1 << bit, Ordering::Release);
    Ok(range)
}

/// Claims addresses for so many pages: from this CPU's block, else from another, else from a new one.
fn slot<'p, P: Platform>(mm: &Manager<'p, P>, v: &Vmap<'p>, pages: u64) -> Result<PageNumber, Error> {
    let p = mm.platform();
    loop {
        // From here on only a hint: an interrupt may come, and others may take the block away.
        let mine = &v.cpus[p.this_cpu().index()].block;
        if let Some(start) = claim_in(mm, v, mine.load(p, Ordering::Acquire), pages) {
            return Ok(start);
        }
        let other = match listed(mm, v, pages, v.home(p.this_cpu()), LOOKS) {
            Some(handle) => handle,
            None => match make(mm, v) {
                Ok(handle) => handle,
                Err(error) => return anywhere(mm, v, pages).ok_or(error),
            },
        };
        let old = mine.swap(p, other + 1, Ordering::AcqRel);
        let start = claim_in(mm, v, other + 1, pages);
        if let Some(old) = old.checked_sub(1) {
            let_go(mm, v, old);
        }
        if let Some(start) = start {
            return Ok(start);
        }
    }
}

/// Claims in a block, by its handle plus one; gives the first page.
fn claim_in<'p, P: Platform>(mm: &Manager<'p, P>, v: &Vmap<'p>, word: u32, pages: u64) -> Option<PageNumber> {
    let (p, block) = (mm.platform(), block(mm, v, word.checked_sub(1)?));
    // PITFALLS 31. What is read before the claim may be of an earlier block in the same slot:
    //
    //   this CPU                        another
    //   chooses the block
    //                                   purges: it is empty, and goes back
    //                                   the slot is a block elsewhere
    //   claims: in the new one
    //   reads where it lies
    let early = block.start.load(p, Ordering::Relaxed);
    let at = block.claim(p, v, pages)?;
    let start =
        if p.broken(Rule::ClaimBeforeAddress) { early } else { block.start.load(p, Ordering::Acquire) };
    Some(PageNumber(start + at))
}

/// Takes a block with room off the list of a shard, looking at so many. The reference is the caller's.
fn listed<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &Vmap<'p>,
    pages: u64,
    shard: usize,
    looks: usize,
) -> Option<u32> {
    let p = mm.platform();
    v.with_blocks(mm, shard, |list| {
        let mut next = list[0].get(p);
        for _ in 0..looks {
            let handle = next.checked_sub(1)?;
            let found = block(mm, v, handle);
            if found.has_room(p, v, pages) {
                unlist(mm, v, list, found);
                found.place.set(p, OF_A_CPU);
                return Some(handle);
            }
            next = found.beside[1].get(p);
        }
        None
    })
}

fn unlist<'p, P: Platform>(mm: &Manager<'p, P>, v: &Vmap<'p>, list: &[Word32; 2], gone: &Block) {
    let p = mm.platform();
    let [before, after] = [0, 1].map(|side| gone.beside[side].get(p));
    let set = |beside: u32, side: usize, to: u32| match beside.checked_sub(1) {
        Some(handle) => block(mm, v, handle).beside[side].set(p, to),
        None => list[1 - side].set(p, to),
    };
    set(before, 1, after);
    set(after, 0, before);
}

/// Puts it behind the others, by who has its reference.
fn list<'p, P: Platform>(mm: &Manager<'p, P>, v: &Vmap<'p>, list: &[Word32; 2], handle: u32) {
    let (p, new) = (mm.platform(), block(mm, v, handle));
    let last = list[1].get(p);
    new.beside[0].set(p, last);
    new.beside[1].set(p, 0);
    match last.checked_sub(1) {
        Some(last) => block(mm, v, last).beside[1].set(p, handle + 1),
        None => list[0].set(p, handle + 1),
    }
    list[1].set(p, handle + 1);
    new.place.set(p, LISTED);
}

/// Gives up the reference to a block: its addresses go back if nothing is taken in it; else it goes to its shard's list if
/// it has room, and to nobody if not.
fn let_go<'p, P: Platform>(mm: &Manager<'p, P>, v: &Vmap<'p>, handle: u32) {
    let (p, old) = (mm.platform(), block(mm, v, handle));
    let start = PageNumber(old.start.get(p));
    loop {
        let idle = v.with_blocks(mm, v.shard_of(start), |blocks| {
            // Looked at under the lock: a purge that makes room does so before it takes the lock, and then asks whose it is.
            let idle = old.is_idle(p, v) && !p.broken(Rule::EmptyBlocksGoBack);
            if !idle && old.has_room(p, v, 1) {
                list(mm, v, blocks, handle);
            } else if !idle {
                old.place.set(p, LOOSE);
            }
            idle
        });
        if !idle {
            return;
        }
        // If that fails somebody has just claimed a slot: look again.
        if old.close(p, v) {
            break;
        }
    }
    old.place.set(p, GONE);
    v.set_block(mm, start, None);
    // Every slot that was ever mapped in it has been flushed since: its bit was clear.
    v.put_back(mm, Unmapped::cleared(old.extent.get(p)).flushed());
    v.state.blocks.release(mm, handle);
}

/// Makes a block. The reference is the caller's. May wait.
fn make<'p, P: Platform>(mm: &Manager<'p, P>, v: &Vmap<'p>) -> Result<u32, Error> {
    let p = mm.platform();
    let want = Want { pages: v.block_pages, align: v.block_pages, within: v.range };
    let reserved = v.state.blocks.reserve(mm, AllocFrom::HERE)?.commit();
    let owned = match lazy::take(mm, v, &want) {
        Ok(owned) => owned,
        Err(error) => {
            v.state.blocks.release(mm, reserved);
            return Err(error);
        }
    };
    let range = v.extent(mm, owned.handle()).range(p);
    if let Err(error) = entries::make_tables(mm, range).and_then(|()| v.make_indexed(mm, range.start)) {
        lazy::give_up(mm, v, owned);
        v.state.blocks.release(mm, reserved);
        return Err(error);
    }
    v.extent(mm, owned.handle()).set_purpose(p, Purpose::Block, false);
    let new = block(mm, v, reserved);
    new.start.set(p, range.start.0);
    new.extent.set(p, owned.in_use());
    new.place.set(p, OF_A_CPU);
    for part in &new.parts {
        part.first.set(p, 0);
        part.last.set(p, 0);
        part.dirty.set(p, 0);
        part.flushing.set(p, 0);
    }
    v.set_block(mm, range.start, Some(reserved));
    // Last, and Release: who claims finds the rest. Until here it was closed, or nobody knew it.
    new.parts(v).iter().for_each(|part| part.taken.store(p, 0, Ordering::Release));
    Ok(reserved)
}

/// Claims wherever there is room: on any list, or in the block of any CPU. For who would get nothing else.
fn anywhere<'p, P: Platform>(mm: &Manager<'p, P>, v: &Vmap<'p>, pages: u64) -> Option<PageNumber> {
    let p = mm.platform();
    for shard in 0..v.shards.len() {
        if let Some(handle) = listed(mm, v, pages, shard, usize::MAX) {
            let start = claim_in(mm, v, handle + 1, pages);
            let_go(mm, v, handle);
            if start.is_some() {
                return start;
            }
        }
    }
    v.cpus.iter().find_map(|cpu| claim_in(mm, v, cpu.block.load(p, Ordering::Acquire), pages))
}

/// The part of a block that says about this page, and its bit.
fn part_of<'p, P: Platform>(mm: &Manager<'p, P>, v: &Vmap<'p>, page: PageNumber) -> Option<(&'p Part, u64)> {
    let found = block(mm, v, v.block_at(mm, page)?);
    let at = page.0.checked_sub(found.start.get(mm.platform())).filter(|&at| at < v.block_pages)?;
    Some((&found.parts[(at / WORD) as usize], at % WORD))
}

/// Unmaps a map. Any context: no lock.
pub(super) fn unmap<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &Vmap<'p>,
    range: PageRange,
) -> Result<(), Error> {
    let p = mm.platform();
    let not_mapped = Error::NotMapped(range.start);
    let Some((part, bit)) = part_of(mm, v, range.start) else {
        return Err(match v.find_used(mm, range.start) {
            Some(_) => Error::WrongRelease(range.start),
            None => not_mapped,
        });
    };
    // Acquire: partner of the Release in `map`.
    if part.first.load(p, Ordering::Acquire) & 1 << bit == 0 {
        return Err(not_mapped);
    }
    // The first last page from here on is that of this map: none begins inside another.
    let pages = u64::from((part.last.load(p, Ordering::Relaxed) >> bit).trailing_zeros()) + 1;
    if pages != range.pages {
        return Err(Error::BadRange);
    }
    // Whoever takes the first page's bit is alone with the map.
    if part.first.fetch_and(p, !(1 << bit), Ordering::AcqRel) & 1 << bit == 0 {
        return Err(not_mapped);
    }
    part.last.fetch_and(p, !(1 << (bit + pages - 1)), Ordering::Relaxed);
    entries::clear(mm, range);
    let Some(handle) = v.block_at(mm, range.start) else { return Err(not_mapped) };
    let home = block(mm, v, handle);
    // Counted where its block begins: a block may reach into another shard.
    let start = PageNumber(home.start.get(p));
    purge::count(mm, v, start, pages, || {
        // Release: partner of the Acquire in `gather`: the entries are cleared, and it is counted.
        part.dirty.fetch_or(p, run(bit, pages), Ordering::Release);
        // From here on it may be gone, if it was on the list before: then what is pushed is a slot with nothing to flush, or
        // another block.
        if home.waits.swap(p, 1, Ordering::AcqRel) == 0 {
            Waiting::push(p, &v.state.waiting_blocks, &home.next_waiting, handle);
        }
    });
    Ok(())
}

/// The pages of the map that holds this one. Any context.
pub(super) fn find<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &Vmap<'p>,
    page: PageNumber,
) -> Option<PageRange> {
    let (p, (part, bit)) = (mm.platform(), part_of(mm, v, page)?);
    let until = part.first.load(p, Ordering::Acquire) & run(0, bit + 1);
    let first = u64::from(until.checked_ilog2()?);
    let last = u64::from((part.last.load(p, Ordering::Relaxed) >> first).trailing_zeros()) + first;
    (bit <= last && last < WORD).then(|| PageRange::new(PageNumber(page.0 - bit + first), last - first + 1))
}

/// Takes what is dirty in a block that waits: how many pages, and what they span. By who purges.
pub(super) fn gather<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &Vmap<'p>,
    block: &Block,
) -> (u64, Option<PageRange>) {
    let p = mm.platform();
    // Before the bits are taken: who sets one later pushes the block again. Whoever found it waiting set his before.
    block.waits.swap(p, 0, Ordering::AcqRel);
    let start = block.start.get(p);
    let (mut pages, mut span) = (0, None::<(u64, u64)>);
    // PITFALLS 21: a block is not done with because nobody can map in it any more.
    if p.broken(Rule::AliasesInFullBlocks) && !block.has_room(p, v, 1) {
        return (0, None);
    }
    for (index, part) in block.parts(v).iter().enumerate() {
        let dirty = if p.broken(Rule::ForgetWhatWasFlushed) {
            part.dirty.load(p, Ordering::Acquire)
        } else {
            part.dirty.swap(p, 0, Ordering::AcqRel)
        };
        part.flushing.set(p, dirty);
        if dirty != 0 {
            pages += u64::from(dirty.count_ones());
            let at = start + index as u64 * WORD;
            let from = at + u64::from(dirty.trailing_zeros());
            span = Some((span.map_or(from, |span| span.0), at + u64::from(dirty.ilog2()) + 1));
        }
    }
    (pages, span.map(|(from, to)| PageRange::between(PageNumber(from), PageNumber(to))))
}

/// What was gathered is flushed: there is room again, or the whole block goes back. By who purges.
pub(super) fn settle<'p, P: Platform>(mm: &Manager<'p, P>, v: &Vmap<'p>, handle: u32) {
    let (p, flushed) = (mm.platform(), block(mm, v, handle));
    for part in flushed.parts(v) {
        // Release: partner of the Acquire in `claim`: the flush comes before the next map.
        part.taken.fetch_and(p, !part.flushing.get(p), Ordering::Release);
    }
    let shard = v.shard_of(PageNumber(flushed.start.get(p)));
    let mine = v.with_blocks(mm, shard, |blocks| {
        let place = flushed.place.get(p);
        let back = flushed.is_idle(p, v) && !p.broken(Rule::EmptyBlocksGoBack);
        match place {
            LISTED if back => unlist(mm, v, blocks, flushed),
            LOOSE if back => {}
            LOOSE => {
                list(mm, v, blocks, handle);
                return false;
            }
            // Somebody else's, or no block any more.
            _ => return false,
        }
        flushed.place.set(p, OF_A_CPU);
        true
    });
    if mine {
        let_go(mm, v, handle);
    }
}

/// Takes from every CPU the block in which nothing is mapped: addresses are short.
pub(super) fn give_up_idle<'p, P: Platform>(mm: &Manager<'p, P>, v: &Vmap<'p>) {
    let p = mm.platform();
    if p.broken(Rule::EmptyBlocksGoBack) {
        return;
    }
    for cpu in v.cpus {
        let Some(handle) = cpu.block.load(p, Ordering::Acquire).checked_sub(1) else { continue };
        if block(mm, v, handle).is_idle(p, v) && cpu.block.replace(p, handle + 1, 0, Ordering::AcqRel).is_ok()
        {
            let_go(mm, v, handle);
        }
    }
}

/// This CPU goes offline.
pub(super) fn leave<'p, P: Platform>(mm: &Manager<'p, P>, v: &Vmap<'p>) {
    let CpuId(cpu) = mm.platform().this_cpu();
    if let Some(handle) =
        v.cpus[usize::from(cpu)].block.swap(mm.platform(), 0, Ordering::AcqRel).checked_sub(1)
    {
        let_go(mm, v, handle);
    }
}

/// For a look at a quiet system: of each block its extent, the pages that are mapped, and those that wait for a purge.
pub(super) fn each<'p, P: Platform>(mm: &Manager<'p, P>, v: &Vmap<'p>, mut each: impl FnMut(u32, u64, u64)) {
    let p = mm.platform();
    for handle in (0..v.state.blocks.bound(mm)).filter(|&handle| v.state.blocks.find(mm, handle).is_some()) {
        let found = block(mm, v, handle);
        let sum = |bits: fn(&Part) -> &Word64| -> u64 {
            found.parts(v).iter().map(|part| u64::from(bits(part).get(p).count_ones())).sum()
        };
        let dirty = sum(|part| &part.dirty);
        each(found.extent.get(p), sum(|part| &part.taken) - dirty, dirty);
    }
}
