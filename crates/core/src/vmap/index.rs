//! The block that an address lies in: two levels, read without a lock, and never shrunk.
//!
//! Blocks are aligned to their size, so an address says which one it would be. The first level is made at start, a word
//! for 1024 blocks; the second comes, a frame at a time, with the blocks.

use core::sync::atomic::Ordering;

use super::state::KernelRange;
use crate::Manager;
use crate::addr::{FrameNumber, PAGE_SIZE, PageNumber, PageRange};
use crate::error::Error;
use crate::frame::AllocFrom;
use crate::platform::Platform;
use crate::sync::Word32;

/// Words of a frame: blocks that one of the second level stands for.
pub(super) const PER_FRAME: usize = PAGE_SIZE as usize / size_of::<Word32>();

/// Words of the first level.
pub(super) fn tables(range: PageRange, block_pages: u64) -> usize {
    let blocks = (range.end().0 - 1) / block_pages - range.start.0 / block_pages + 1;
    (blocks as usize).div_ceil(PER_FRAME)
}

/// A word in the frame of words that `slot` names, if it names one.
pub(super) fn below<'p, P: Platform>(
    mm: &Manager<'p, P>,
    slot: &Word32,
    number: usize,
) -> Option<&'p Word32> {
    // Acquire: partner of the Release in `make_below`: the frame was cleared before.
    let frame = slot.load(mm.platform(), Ordering::Acquire).checked_sub(1)?;
    let at = mm.platform().direct(FrameNumber(frame).phys()).cast::<Word32>();
    // SAFETY: a frame of the core's own, full of atomics, zeroed before it was published and never given back; the word
    // lies inside.
    Some(unsafe { &*at.add(number % PER_FRAME) })
}

/// Makes a frame of words, all zero, if `slot` names none. May wait for memory.
pub(super) fn make_below<P: Platform>(mm: &Manager<'_, P>, slot: &Word32) -> Result<(), Error> {
    let p = mm.platform();
    if slot.load(p, Ordering::Acquire) == 0 {
        let frame = mm.alloc_own(AllocFrom::HERE)?;
        if slot.replace(p, 0, frame.0 + 1, Ordering::AcqRel).is_err() {
            mm.free_one(frame);
        }
    }
    Ok(())
}

impl<'p> KernelRange<'p> {
    fn number(&self, page: PageNumber) -> usize {
        (page.0 / self.block_pages - self.range.start.0 / self.block_pages) as usize
    }

    fn word<P: Platform>(&self, mm: &Manager<'p, P>, page: PageNumber) -> Option<&'p Word32> {
        let number = self.number(page);
        // Acquire: partner of the Release in `make_indexed`: the frame was cleared before.
        below(mm, &self.index[number / PER_FRAME], number % PER_FRAME)
    }

    /// The handle of the block in which a page lies.
    pub(super) fn block_at<P: Platform>(&self, mm: &Manager<'p, P>, page: PageNumber) -> Option<u32> {
        // Acquire: partner of the Release in `set_block`: the block is whole.
        self.word(mm, page)?.load(mm.platform(), Ordering::Acquire).checked_sub(1)
    }

    /// Makes room in the index for the block of this page. May wait for memory.
    pub(super) fn make_indexed<P: Platform>(
        &self,
        mm: &Manager<'p, P>,
        page: PageNumber,
    ) -> Result<(), Error> {
        make_below(mm, &self.index[self.number(page) / PER_FRAME])
    }

    /// Says which block is there from now on, or none. Its place in the index exists.
    pub(super) fn set_block<P: Platform>(&self, mm: &Manager<'p, P>, page: PageNumber, block: Option<u32>) {
        if let Some(word) = self.word(mm, page) {
            word.store(mm.platform(), block.map_or(0, |block| block + 1), Ordering::Release);
        }
    }

    /// Frames of the second level.
    pub(super) fn index_frames<P: Platform>(&self, mm: &Manager<'p, P>) -> u64 {
        self.index.iter().filter(|word| word.get(mm.platform()) != 0).count() as u64
    }
}
