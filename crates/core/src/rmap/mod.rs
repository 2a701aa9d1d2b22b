//! The reverse map: from a page to every entry that leads to it, and what is done to all of them.

mod again;
mod clean;
mod unmap;
mod walk;

pub(crate) use again::{map_again, missed_lock};
pub(crate) use clean::clean;
pub(crate) use unmap::{clear, is_kept, is_uncached, unmap, unmap_all, unmap_now, unmap_to_move};
pub(crate) use walk::{Mapping, mapped_at, walk};
