//! Address spaces: page tables, what is mapped where, and which CPUs use each.

mod advise;
mod entry;
mod fault;
mod fork;
mod holds;
mod large;
mod map;
mod moving;
mod outside;
mod parked;
mod prot;
mod protect;
mod range;
mod region;
mod shown;
mod space;
mod switch;
pub(crate) mod table;

pub use entry::Entry;
pub(crate) use parked::Parked;
pub use prot::{Advice, Backing, KernelProt, Prot, UserAccess};
pub(crate) use region::{LastRegion, Region};
pub(crate) use shown::{Family, FamilyId, Of, Shown};
pub(crate) use space::Space;
pub use space::SpaceId;
pub(crate) use space::SpaceSlot;
pub(crate) use switch::unload;

use crate::addr::{PageNumber, PageRange};
use crate::error::Error;

/// The range, if it is not empty and inside user addresses.
pub(crate) fn check_range(range: PageRange) -> Result<PageRange, Error> {
    let end = range.start.0.checked_add(range.pages).ok_or(Error::BadRange)?;
    if range.pages == 0 || end > PageNumber::USER_END.0 { Err(Error::BadRange) } else { Ok(range) }
}

/// The range, if something can be mapped there.
fn check_mappable(range: PageRange) -> Result<PageRange, Error> {
    let (range, all) = (check_range(range)?, PageRange::MAPPABLE);
    match range.start {
        start if start < all.start => Err(Error::NotMappable(start)),
        _ if range.end() > all.end() => Err(Error::NotMappable(all.end())),
        _ => Ok(range),
    }
}
