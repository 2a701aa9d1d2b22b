//! What is mapped where: address spaces, their VMAs, and the trees that lead from a file or an `anon_vma` to the VMAs
//! that show it. `space/` has the operations.

mod anon_vma;
mod area;
mod enter;
mod rmap_tree;
mod space;
mod together;

pub(crate) use anon_vma::{AnonVma, AnonVmaId, Of, RmapTree};
pub(crate) use area::Vma;
pub(crate) use space::{SpaceState, VmasAlone};

use crate::addr::{PageNumber, PageRange};
use crate::error::Error;

/// The range, if it is not empty and inside user addresses.
pub(crate) fn check_range(range: PageRange) -> Result<PageRange, Error> {
    let end = range.start.0.checked_add(range.pages).ok_or(Error::BadRange)?;
    if range.pages == 0 || end > PageNumber::USER_END.0 { Err(Error::BadRange) } else { Ok(range) }
}

/// The range, if something can be mapped there.
pub(crate) fn check_mappable(range: PageRange) -> Result<PageRange, Error> {
    let (range, all) = (check_range(range)?, PageRange::MAPPABLE);
    match range.start {
        start if start < all.start => Err(Error::NotMappable(start)),
        _ if range.end() > all.end() => Err(Error::NotMappable(all.end())),
        _ => Ok(range),
    }
}
