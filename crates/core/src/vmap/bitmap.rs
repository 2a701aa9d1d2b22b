//! What a block keeps about its pages: runs of bits in words, claimed by one compare-and-swap each.

use core::sync::atomic::Ordering;

use crate::platform::Hooks;
use crate::pool::{Goes, Pooled, SlotLink};
use crate::sync::{Word32, Word64};
use crate::zeroed::Zeroed;

/// Pages of the largest block, 4 MiB, and of the smallest.
pub(super) const BLOCK: u64 = 1024;
pub(super) const SMALLEST_BLOCK: u64 = 64;
/// Pages that a word stands for.
pub(super) const WORD: u64 = 64;
const WORDS: usize = (BLOCK / WORD) as usize;
/// A block.
#[repr(C, align(64))]
pub(crate) struct VmapBlock {
    /// Its first page. Believed only by whoever has claimed a slot of it.
    pub(super) start: Word64,
    /// Its addresses.
    pub(super) extent: Word32,
    /// The next one of its CPU, plus one.
    pub(super) next: Word32,
    link: SlotLink,
    /// The purge that what is `flushing` waits for; 0 if nothing is. This and the link are under the lock of its CPU.
    pub(super) purge: Word64,
    /// The purge that the latest unmap in it waits for.
    pub(super) latest: Word64,
    pub(super) parts: [Part; WORDS],
}

/// What is known of 64 pages.
#[repr(C)]
pub(super) struct Part {
    /// Neither mapped nor waiting for a flush. Zero, as in a slot that was never a block, is no room: whoever looks into such a
    /// one by mistake finds none.
    pub free: Word64,
    /// The first page of each map, and the last.
    pub first: Word64,
    pub last: Word64,
    /// Unmapped.
    pub dirty: Word64,
    /// The same, set aside until a purge has flushed it.
    pub flushing: Word64,
}

// SAFETY: atomics only.
unsafe impl Zeroed for VmapBlock {}

impl Pooled for VmapBlock {
    // Who claims in one, or looks into one, may have read of it before it was given back.
    const GOES: Goes = Goes::Never;

    fn link(&self) -> &SlotLink {
        &self.link
    }
}

/// The bits of a run of pages in a word.
pub(super) fn run(bit: u64, pages: u64) -> u64 {
    (u64::MAX >> (WORD - pages)) << bit
}

/// The first run of `pages` clear bits.
fn first_run(taken: u64, pages: u64) -> Option<u64> {
    let (mut starts, mut have) = (!taken, 1);
    while have < pages {
        let step = have.min(pages - have);
        // A one moves in only where that many follow; beyond the end of the word there are none.
        starts &= starts >> step;
        have += step;
    }
    (starts != 0).then(|| starts.trailing_zeros().into())
}

impl VmapBlock {
    pub(super) fn parts(&self, block_pages: u64) -> &[Part] {
        &self.parts[..(block_pages / WORD) as usize]
    }

    /// Claims so many pages; returns their place in the block.
    pub(super) fn claim<P: Hooks>(&self, p: &P, block_pages: u64, pages: u64) -> Option<u64> {
        self.parts(block_pages).iter().enumerate().find_map(|(index, part)| {
            let mut free = part.free.load(p, Ordering::Relaxed);
            loop {
                let bit = first_run(!free, pages)?;
                // Acquire: partner of the Releases in `clear_flushed` and `make`: the bits are flushed, and the block is whole.
                match part.free.replace(p, free, free & !run(bit, pages), Ordering::AcqRel) {
                    Ok(_) => return Some(index as u64 * WORD + bit),
                    Err(now) => free = now,
                }
            }
        })
    }

    pub(super) fn has_room<P: Hooks>(&self, p: &P, block_pages: u64, pages: u64) -> bool {
        self.parts(block_pages)
            .iter()
            .any(|part| first_run(!part.free.load(p, Ordering::Relaxed), pages).is_some())
    }

    /// What was set aside was flushed: there is room again. Under the lock of its CPU.
    pub(super) fn clear_flushed<P: Hooks>(&self, p: &P, block_pages: u64) {
        for part in self.parts(block_pages) {
            let flushed = part.flushing.get(p);
            if flushed != 0 {
                part.flushing.set(p, 0);
                // Release: partner of the Acquire in `claim`: the flush comes before the next map.
                part.free.fetch_or(p, flushed, Ordering::Release);
            }
        }
        self.purge.set(p, 0);
    }

    /// Closes it if nothing in it is taken: from then on nobody finds room in it.
    pub(super) fn close<P: Hooks>(&self, p: &P, block_pages: u64) -> bool {
        let parts = self.parts(block_pages);
        let shut = |part: &Part| part.free.replace(p, u64::MAX, 0, Ordering::AcqRel).is_ok();
        let closed = parts.iter().take_while(|part| shut(part)).count();
        if closed < parts.len() {
            parts[..closed].iter().for_each(|part| part.free.store(p, u64::MAX, Ordering::Release));
        }
        closed == parts.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{first_run, run};

    #[test]
    fn a_run_is_found_where_it_fits_and_nowhere_else() {
        for (taken, pages, found) in [
            (0, 64, Some(0)),
            (1, 64, None),
            (1, 63, Some(1)),
            (u64::MAX, 1, None),
            (u64::MAX >> 1, 1, Some(63)),
            (u64::MAX >> 1, 2, None),
            (0b1011, 1, Some(2)),
            (0b1011, 2, Some(4)),
            (!run(20, 5), 5, Some(20)),
            (!run(20, 5), 6, None),
            (!(run(3, 7) | run(40, 9)), 8, Some(40)),
        ] {
            assert_eq!(first_run(taken, pages), found, "{pages} pages in {taken:#x}");
        }
    }
}
