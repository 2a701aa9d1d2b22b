//! Memory that the core takes for itself, and keeps: for what only some configurations have, before any CPU uses it, and for memory that comes
//! later.

use super::{AllocFrom, Frames};
use crate::Manager;
use crate::addr::{FrameNumber, PAGE_SIZE};
use crate::error::Error;
use crate::memmap::{MAX_ORDER, Sections, flag};
use crate::platform::Platform;
use crate::zeroed::Zeroed;

/// The order of the block that `count` of `T` take.
pub(crate) const fn order_of<T>(count: usize) -> u8 {
    let frames = (size_of::<T>() as u64 * count as u64).div_ceil(PAGE_SIZE);
    frames.next_power_of_two().trailing_zeros() as u8
}

/// Zeroed memory for `count` of `T`, for ever.
pub(crate) fn own<'p, P: Platform, T: Zeroed>(mm: &Manager<'p, P>, count: usize) -> Result<&'p [T], Error> {
    let order = order_of::<T>(count);
    if order > MAX_ORDER {
        return Err(Error::TooLittleMemory);
    }
    let block = mm.frames().alloc(order, AllocFrom::NOW).map_err(|_| Error::TooLittleMemory)?;
    Ok(OwnPiece::of(mm, block, count).keep())
}

/// Zeroed memory that is the core's, and may still go back.
#[must_use = "a piece that is dropped is lost"]
pub(crate) struct OwnPiece<'p, T> {
    first: FrameNumber,
    piece: &'p [T],
}

impl<'p, T: Zeroed> OwnPiece<'p, T> {
    /// A block becomes the core's own: `count` of `T`, which have room there.
    pub fn of<P: Platform>(mm: &Manager<'p, P>, block: Frames, count: usize) -> Self {
        const { assert!(align_of::<T>() <= PAGE_SIZE as usize) };
        let (p, (first, order)) = (mm.platform(), block.into_raw());
        assert!(order_of::<T>(count) <= order);
        mm.memmap().get(first).set_flags(p, flag::OWN);
        (0..1 << order).for_each(|n| p.clear_frame(first.add(n)));
        let at = p.direct(first.phys()).cast::<T>();
        // SAFETY: the block is nobody else's, given back only where nobody has seen the piece (`put`), contiguous in the direct map as
        // all memory that was handed over is, large enough, aligned to a page, and zeros are a valid T.
        OwnPiece { first, piece: unsafe { core::slice::from_raw_parts(at, count) } }
    }

    /// What lies there.
    pub fn as_slice(&self) -> &[T] {
        self.piece
    }

    /// It is not wanted after all.
    pub fn give_back<P: Platform>(self, mm: &Manager<'p, P>) {
        mm.free_one(self.first);
    }

    /// For ever.
    pub fn keep(self) -> &'p [T] {
        self.piece
    }

    /// It becomes the section of these frames, for ever, unless they have one: then it goes back. Says whether it does.
    pub fn put<P: Platform>(self, mm: &Manager<'p, P>, to: &Sections<'p, T>, first: FrameNumber) -> bool {
        let kept = to.put(first, self.piece);
        if !kept {
            self.give_back(mm);
        }
        kept
    }
}
