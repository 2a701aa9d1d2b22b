//! Extents in use, by address: a word a page, read and written without a lock, in frames that are never given back.
//!
//! The word of an extent's first page names it, and so does that of each page behind it whose number is a multiple of
//! [`GROUP`]. Whoever knows the first page finds the extent at once; from any other page it is at most [`GROUP`] words
//! down. No purge writes here, so nobody who looks an address up waits for one; and neither does who unmaps, in whatever
//! context.
//!
//! Whoever clears the first page's word is alone with the extent:
//!
//! ```text
//!   one who unmaps                     another, who unmaps the same
//!   reads the word: extent e           reads the word: extent e
//!   word = 0, if it is still e
//!                                      the word is not e: not mapped
//! ```

use core::sync::atomic::Ordering;

use super::extent::Purpose;
use super::index::{PER_FRAME, below, make_below};
use super::state::KernelRange;
use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::error::Error;
use crate::platform::Platform;
use crate::sync::Word32;

/// At most so many words are read for one address: four lines.
const GROUP: u64 = 64;
/// Pages that a frame of words stands for, and that a word of the first level does.
const FRAME: u64 = PER_FRAME as u64;
const TOP: u64 = FRAME * FRAME;

/// Words of the first level.
pub(super) fn tables(range: PageRange) -> usize {
    ((range.end().0 - 1) / TOP - range.start.0 / TOP + 1) as usize
}

/// The pages of an extent whose words name it.
pub(super) fn named(whole: PageRange) -> impl Iterator<Item = PageNumber> {
    let second = (whole.start.0 / GROUP + 1) * GROUP;
    let more = (second..whole.end().0).step_by(GROUP as usize);
    core::iter::once(whole.start.0).chain(more).map(PageNumber)
}

impl<'p> KernelRange<'p> {
    fn used_top(&self, page: PageNumber) -> &'p Word32 {
        &self.used[(page.0 / TOP - self.range.start.0 / TOP) as usize]
    }

    /// The word of a page of the range, if there is one.
    fn used_word<P: Platform>(&self, mm: &Manager<'p, P>, page: PageNumber) -> Option<&'p Word32> {
        let middle = below(mm, self.used_top(page), (page.0 / FRAME % FRAME) as usize)?;
        below(mm, middle, (page.0 % FRAME) as usize)
    }

    /// Makes the words of an extent. May wait for memory. Those that were made before it ran out stay.
    pub(super) fn make_findable<P: Platform>(
        &self,
        mm: &Manager<'p, P>,
        whole: PageRange,
    ) -> Result<(), Error> {
        for unit in whole.start.0 / FRAME..=(whole.end().0 - 1) / FRAME {
            let top = self.used_top(PageNumber(unit * FRAME));
            make_below(mm, top)?;
            if let Some(middle) = below(mm, top, (unit % FRAME) as usize) {
                make_below(mm, middle)?;
            }
        }
        Ok(())
    }

    /// From now on whoever knows the address may look it up and unmap it. Its words exist.
    pub(super) fn publish<P: Platform>(&self, mm: &Manager<'p, P>, whole: PageRange, handle: u32) {
        for word in named(whole).filter_map(|page| self.used_word(mm, page)) {
            // Release: partner of the Acquires in `withdraw` and `find_used`: the extent says where it lies and what for.
            word.store(mm.platform(), handle + 1, Ordering::Release);
        }
    }

    /// Takes an extent out of use that starts here and is used for this; returns it, its pages, and those without a guard.
    /// Whoever gets it is alone with it. Any context.
    pub(super) fn withdraw<P: Platform>(
        &self,
        mm: &Manager<'p, P>,
        start: PageNumber,
        purpose: Purpose,
    ) -> Result<(u32, PageRange, PageRange), Error> {
        let p = mm.platform();
        let read = |handle| {
            let extent = self.extent(mm, handle);
            let (whole, (used_for, guard)) = (extent.range(p), extent.used_for(p));
            let wanted = whole.start == start && used_for == purpose;
            wanted.then(|| (handle, whole, PageRange::new(whole.start, whole.pages - guard)))
        };
        let not_here = || match self.find_used(mm, start) {
            Some(_) => Error::WrongRelease(start),
            None => Error::NotMapped(start),
        };
        let word = self.used_word(mm, start).ok_or(Error::NotMapped(start))?;
        let named_by = word.load(p, Ordering::Acquire);
        let seen = named_by.checked_sub(1).and_then(read).ok_or_else(not_here)?;
        word.replace(p, named_by, 0, Ordering::AcqRel).map_err(|_| Error::NotMapped(start))?;
        // Between the two it may have been unmapped and mapped again, in the same slot, by those whose it is.
        let Some(found) = read(seen.0) else {
            word.store(p, named_by, Ordering::Release);
            return Err(Error::WrongRelease(start));
        };
        for word in named(found.1).skip(1).filter_map(|page| self.used_word(mm, page)) {
            word.store(p, 0, Ordering::Relaxed);
        }
        Ok(found)
    }

    /// The pages of the extent in use that holds this one: for certain while nobody unmaps that. Any context.
    pub(super) fn find_used<P: Platform>(&self, mm: &Manager<'p, P>, page: PageNumber) -> Option<PageRange> {
        let p = mm.platform();
        loop {
            let pages = (page.0 / GROUP * GROUP..=page.0).rev().map(PageNumber);
            let found = pages.filter(|&page| page >= self.range.start).find_map(|page| {
                let word = self.used_word(mm, page)?;
                Some(word).zip(word.load(p, Ordering::Acquire).checked_sub(1))
            });
            let (word, handle) = found?;
            let range = self.extent(mm, handle).mapped(p);
            // Unmapped meanwhile: what was read may be of another one in the same slot. Somebody else has got on, then.
            if word.load(p, Ordering::Acquire) == handle + 1 {
                return Some(range).filter(|range| range.contains(page));
            }
        }
    }

    /// For a look at a quiet system.
    pub(super) fn each_used<P: Platform>(&self, mm: &Manager<'p, P>, mut each: impl FnMut(u32)) {
        self.each_name(mm, |page, handle| {
            if self.extent(mm, handle).range(mm.platform()).start == page {
                each(handle);
            }
        });
    }

    /// Each address that names an extent, and that.
    pub(super) fn each_name<P: Platform>(&self, mm: &Manager<'p, P>, mut each: impl FnMut(PageNumber, u32)) {
        let p = mm.platform();
        let first = self.range.start.0 / TOP;
        for (top, from) in self.used.iter().zip((first..).map(|n| n * TOP)) {
            for (n, middle) in words(mm, top) {
                for (m, word) in words(mm, middle) {
                    let handle = word.get(p).checked_sub(1);
                    handle.into_iter().for_each(|handle| each(PageNumber(from + n * FRAME + m), handle));
                }
            }
        }
    }

    /// Frames of the second and third level.
    pub(super) fn used_frames<P: Platform>(&self, mm: &Manager<'p, P>) -> u64 {
        let made = |word: &Word32| u64::from(word.get(mm.platform()) != 0);
        let below = |top| -> u64 { words(mm, top).map(|(_, word)| made(word)).sum() };
        self.used.iter().map(|top| made(top) + below(top)).sum()
    }
}

/// The words of the frame that this one names, if there is one, with their numbers.
pub(super) fn words<'p, P: Platform>(
    mm: &Manager<'p, P>,
    slot: &Word32,
) -> impl Iterator<Item = (u64, &'p Word32)> {
    let count = if slot.get(mm.platform()) == 0 { 0 } else { PER_FRAME };
    (0..count).filter_map(move |n| Some((n as u64, below(mm, slot, n)?)))
}
