//! Memory that the core takes for itself before any CPU uses it, and keeps: for what only some configurations have.

use super::AllocFrom;
use crate::Manager;
use crate::addr::PAGE_SIZE;
use crate::error::Error;
use crate::memmap::{MAX_ORDER, flag};
use crate::platform::Platform;
use crate::zeroed::Zeroed;

/// The order of the block that `count` of `T` take.
pub(crate) const fn order_of<T>(count: usize) -> u8 {
    let frames = (size_of::<T>() as u64 * count as u64).div_ceil(PAGE_SIZE);
    frames.next_power_of_two().trailing_zeros() as u8
}

/// Zeroed memory for `count` of `T`, for ever.
pub(crate) fn own<'p, P: Platform, T: Zeroed>(mm: &Manager<'p, P>, count: usize) -> Result<&'p [T], Error> {
    const { assert!(align_of::<T>() <= PAGE_SIZE as usize) };
    let (p, order) = (mm.platform(), order_of::<T>(count));
    if order > MAX_ORDER {
        return Err(Error::TooLittleMemory);
    }
    let (first, _) = mm.frames().alloc(order, AllocFrom::NOW).map_err(|_| Error::TooLittleMemory)?.into_raw();
    mm.memmap().get(first).set_flags(p, flag::OWN);
    (0..1 << order).for_each(|n| p.clear_frame(first.add(n)));
    let at = p.direct(first.phys()).cast::<T>();
    // SAFETY: the block is nobody else's, never given back, contiguous in the direct map as all memory that was handed
    // over is, large enough, aligned to a page, and zeros are a valid T.
    Ok(unsafe { core::slice::from_raw_parts(at, count) })
}
