//! A piece of memory into which the pages of a part of a file move, each to its place there.

use core::cell::Cell;

use crate::Manager;
use crate::addr::{FrameNumber, LARGE_PAGES};
use crate::group::Charge;
use crate::handle::FileSlot;
use crate::kind::Kind;
use crate::platform::Platform;

const WORDS: usize = LARGE_PAGES as usize / 64;

/// The frames of a large one, for as many pages of a file. Those that no page has moved to are freed with it.
pub(crate) struct Piece<'m, 'p, P: Platform> {
    mm: &'m Manager<'p, P>,
    first: FrameNumber,
    /// The file, and the page of it that goes to the first frame.
    file: FileSlot,
    index: u64,
    /// A bit for each frame that is still to be had.
    left: [Cell<u64>; WORDS],
}

/// What a migration asks of a piece.
pub(crate) trait Places {
    /// The frame for this page, charged as the page is; the caller's. `None` if it is not to move there, or that frame is gone.
    fn take(&self, n: FrameNumber) -> Option<FrameNumber>;
    /// The page did not move after all.
    fn give_back(&self, to: FrameNumber);
}

impl<'m, 'p, P: Platform> Piece<'m, 'p, P> {
    /// Of a large frame that is the caller's.
    pub fn new(mm: &'m Manager<'p, P>, first: FrameNumber, (file, index): (FileSlot, u64)) -> Self {
        let (p, memmap) = (mm.platform(), mm.memmap());
        memmap.get(first).make_small(p);
        for n in (1..LARGE_PAGES as u32).map(|i| first.add(i)) {
            memmap.get(n).set_kind(p, Kind::File, 0);
        }
        let left = [const { Cell::new(u64::MAX) }; WORDS];
        Piece { mm, first, file, index, left }
    }

    fn bit(&self, place: u64) -> (&Cell<u64>, u64) {
        (&self.left[place as usize / 64], 1 << (place % 64))
    }
}

impl<P: Platform> Places for Piece<'_, '_, P> {
    fn take(&self, n: FrameNumber) -> Option<FrameNumber> {
        let (mm, p) = (self.mm, self.mm.platform());
        let frame = mm.memmap().get(n);
        let mine = frame.kind(p) == Kind::File && frame.owner.get(p) == self.file.0;
        let place =
            frame.index.get(p).checked_sub(self.index).filter(|&place| mine && place < LARGE_PAGES)?;
        let to = self.first.add(place as u32);
        let (word, bit) = self.bit(place);
        if word.get() & bit == 0 {
            return None;
        }
        word.set(word.get() & !bit);
        Charge::regardless(mm, mm.groups().of_frame(p, n), 1).put_on(to);
        Some(to)
    }

    fn give_back(&self, to: FrameNumber) {
        let (word, bit) = self.bit(u64::from(to.0 - self.first.0));
        word.set(word.get() | bit);
        self.mm.uncharge_all(&[to], 0);
    }
}

impl<P: Platform> Drop for Piece<'_, '_, P> {
    fn drop(&mut self) {
        for place in (0..LARGE_PAGES).filter(|&place| self.bit(place).0.get() & self.bit(place).1 != 0) {
            self.mm.free_one(self.first.add(place as u32));
        }
    }
}
