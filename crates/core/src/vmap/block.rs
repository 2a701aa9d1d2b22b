//! Per-CPU blocks: small maps without a lock.
//!
//! A block is an aligned run of addresses whose tables exist. A map is a run of bits in one word of its bitmap, claimed by
//! one compare-and-swap, so it does not matter on which CPU its task goes on meanwhile, nor who else looks into the same
//! block (PITFALLS 31). What is unmapped is *dirty*: its bits stay taken until a purge has flushed them (INV-3), and then
//! the same block has room again.
//!
//! Each block is some CPU's: the one that it maps in, or in line behind it. When that one is full, the CPU looks at some
//! of the others: dirty bits are set aside with the number of the purge that they wait for, and those whose purge has
//! flushed are clear again. So a purge looks into no block, unless addresses are short: then all are looked at after it, and
//! those in which nothing is taken are given back, by taking all bits of all words at once: whoever still looks
//! into such a block, having read of it before, finds no room. Slots of blocks are never memory for anything else, so that look is safe.

use core::sync::atomic::Ordering;

use super::bitmap::{Part, VmapBlock, WORD, run};
use super::blocks::{LOOKS, NUMBERS, block, freshen_one};
use super::cpu::Blocks;
use super::extent::{Purpose, Want};
use super::extent_cache::defer_slots;
use super::list::HandleList;
use super::state::KernelRange;
use super::{entries, lazy, purge};
use crate::Manager;
use crate::addr::{FrameNumber, PageNumber, PageRange};
use crate::error::Error;
use crate::frame::AllocFrom;
use crate::paging::KernelProt;
use crate::platform::Platform;
use crate::rule::Rule;

pub(super) fn map<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    frames: &[FrameNumber],
    prot: KernelProt,
) -> Result<PageRange, Error> {
    let pages = frames.len() as u64;
    purge::throttle(mm, v);
    let start = slot(mm, v, pages)?;
    let (p, range) = (mm.platform(), PageRange::new(start, pages));
    // Tables of a block are there.
    entries::set(mm, range, frames, prot)?;
    let (_, part, bit) = part_of(mm, v, start).ok_or(Error::NotMapped(start))?;
    part.last.fetch_or(p, 1 << (bit + pages - 1), Ordering::Relaxed);
    // Release: whoever finds the first page finds the last one too.
    part.first.fetch_or(p, 1 << bit, Ordering::Release);
    Ok(range)
}

/// Claims addresses for so many pages: from this CPU's block, else from another of its own, else from a new one.
fn slot<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>, pages: u64) -> Result<PageNumber, Error> {
    let p = mm.platform();
    loop {
        // From here on only a hint: an interrupt may come, and others may take the block away.
        let mine = v.cpus[p.this_cpu().index()].blocks.current.load(p, Ordering::Acquire);
        if let Some(start) = claim_in(mm, v, mine, pages) {
            return Ok(start);
        }
        if v.own(mm, |cache| turn_to_next(mm, v, &cache.blocks, pages)) {
            continue;
        }
        match make(mm, v) {
            Ok(handle) => v.own(mm, |cache| cache.blocks.change(mm, v, Some(handle))),
            Err(error) => return anywhere(mm, v, pages).ok_or(error),
        }
    }
}

/// Looks for room in what this CPU has; whether there is some in its current block then. Under its lock.
fn turn_to_next<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    blocks: &Blocks,
    pages: u64,
) -> bool {
    let p = mm.platform();
    let room = |handle: u32| {
        let found = block(mm, v, handle);
        freshen_one(mm, v, found);
        found.has_room(p, v.block_pages, pages)
    };
    if blocks.current.get(p).checked_sub(1).is_some_and(room) {
        return true;
    }
    for _ in 0..LOOKS.min(blocks.len.get(p) as usize) {
        let Some(handle) = blocks.pop(mm, v) else { return false };
        if room(handle) {
            blocks.change(mm, v, Some(handle));
            return true;
        }
        blocks.push(mm, v, handle);
    }
    false
}

/// Claims in a block, by its handle plus one; returns the first page.
fn claim_in<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    word: u32,
    pages: u64,
) -> Option<PageNumber> {
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
    let at = block.claim(p, v.block_pages, pages)?;
    let start =
        if p.broken(Rule::ClaimBeforeAddress) { early } else { block.start.load(p, Ordering::Acquire) };
    Some(PageNumber(start + at))
}

/// A slot for a block: a spare one of this CPU's, else from the pool. Whoever makes a slab of them keeps them all, because
/// the pool's lock is the whole machine's. May wait.
fn reserve<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>) -> Result<u32, Error> {
    let (p, link) = (mm.platform(), |handle| &block(mm, v, handle).next);
    if let Some(slot) = v.own(mm, |cache| cache.blocks.spare.pop(p, link)) {
        return Ok(slot);
    }
    let (mut first, more, pool) = (None, HandleList::default(), &v.state.blocks);
    let number = || v.own(mm, |cache| cache.blocks.numbers.take(p, pool.numbers(), NUMBERS));
    pool.reserve_some(mm, AllocFrom::HERE, (1, 1), number, |slot| match first {
        None => first = Some(slot),
        Some(_) => more.push(p, link, slot),
    })?;
    if !more.is_empty(p) {
        v.own(mm, |cache| cache.blocks.spare.take_over(p, &more, link));
    }
    first.ok_or(Error::OutOfMemory)
}

/// Makes a block, which is no CPU's yet. May wait.
fn make<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>) -> Result<u32, Error> {
    let p = mm.platform();
    let want = Want { pages: v.block_pages, align: v.block_pages, within: v.range };
    let reserved = reserve(mm, v)?;
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
    v.extent(mm, owned.handle()).set_purpose(p, Purpose::VmapBlock, false);
    let new = block(mm, v, reserved);
    new.start.set(p, range.start.0);
    new.extent.set(p, owned.in_use());
    new.purge.set(p, 0);
    new.latest.set(p, 0);
    for part in &new.parts {
        part.first.set(p, 0);
        part.last.set(p, 0);
        part.dirty.set(p, 0);
        part.flushing.set(p, 0);
    }
    v.set_block(mm, range.start, Some(reserved));
    // Last, and Release: who claims finds the rest. Until here it was closed.
    new.parts(v.block_pages).iter().for_each(|part| part.free.store(p, u64::MAX, Ordering::Release));
    Ok(reserved)
}

/// Claims wherever there is room, in the block of any CPU. For whoever would get nothing else. No lock.
fn anywhere<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>, pages: u64) -> Option<PageNumber> {
    v.state.blocks.used(mm).find_map(|handle| claim_in(mm, v, handle + 1, pages))
}

/// The block of this page, the part of it that says about the page, and its bit.
fn part_of<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    page: PageNumber,
) -> Option<(&'p VmapBlock, &'p Part, u64)> {
    let found = block(mm, v, v.block_at(mm, page)?);
    let at = page.0.checked_sub(found.start.get(mm.platform())).filter(|&at| at < v.block_pages)?;
    Some((found, &found.parts[(at / WORD) as usize], at % WORD))
}

/// Unmaps a map. Any context: no lock.
pub(super) fn unmap<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    range: PageRange,
) -> Result<(), Error> {
    let p = mm.platform();
    let not_mapped = Error::NotMapped(range.start);
    let Some((home, part, bit)) = part_of(mm, v, range.start) else {
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
    // Release: partner of the Acquire in `find`.
    part.last.fetch_and(p, !(1 << (bit + pages - 1)), Ordering::Release);
    entries::clear(mm, range);
    // PITFALLS 21: a block is not done with because nobody can map in it any more.
    let skip = p.broken(Rule::AliasesInFullBlocks) && !home.has_room(p, v.block_pages, 1);
    let purge = if skip { v.state.numbers.next(p) } else { defer_slots(mm, v, range) };
    if home.latest.load(p, Ordering::Relaxed) < purge {
        home.latest.fetch_max(p, purge, Ordering::Relaxed);
    }
    // Release: partner of the Acquire in `freshen_one`: the entries are cleared, it is counted, and the block knows which
    // purge to wait for. From here on the block may be gone.
    part.dirty.fetch_or(p, run(bit, pages), Ordering::Release);
    Ok(())
}

/// The pages of the map that holds this one. Any context.
pub(super) fn find<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    page: PageNumber,
) -> Option<PageRange> {
    let (p, (_, part, bit)) = (mm.platform(), part_of(mm, v, page)?);
    loop {
        // Acquire: partner of the Release in `map`: the last page of each map that is found here is known.
        let until = part.first.load(p, Ordering::Acquire) & run(0, bit + 1);
        let first = u64::from(until.checked_ilog2()?);
        // What is found may be unmapped by now, and what lies behind it mapped: then the next last page is another map's.
        //
        //   this CPU                  one who unmaps page 0      one who maps page 1
        //   first: page 0
        //                             first -= 0, last -= 0
        //                                                        last += 1, first += 1
        //   last: page 1
        //   first: no longer the same, so look again
        //
        // Acquire: partner of the Release in `unmap`: who misses that last page misses its first page below.
        let last = u64::from((part.last.load(p, Ordering::Acquire) >> first).trailing_zeros()) + first;
        if part.first.load(p, Ordering::Relaxed) & run(0, bit + 1) == until {
            let found = PageRange::new(PageNumber(page.0 - bit + first), last - first + 1);
            return (bit <= last && last < WORD).then_some(found);
        }
    }
}
