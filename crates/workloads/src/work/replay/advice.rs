//! What a program says of its memory, by Linux's numbers.

use quietmm::Advice;

/// What Linux's number of an advice is here, if it is anything. Memory is enough, so nothing is read ahead; what Linux would write to swap is given up.
pub(super) fn advice(number: u32) -> Option<Advice> {
    match number {
        // MADV_DONTNEED, MADV_FREE, MADV_REMOVE, MADV_PAGEOUT, MADV_DONTNEED_LOCKED, MADV_GUARD_INSTALL.
        4 | 8 | 9 | 21 | 24 | 102 => Some(Advice::Drop),
        14 => Some(Advice::Large),
        15 => Some(Advice::Small),
        20 => Some(Advice::Cold),
        22 => Some(Advice::PopulateRead),
        23 => Some(Advice::PopulateWrite),
        _ => None,
    }
}
