//! Reclaim: which pages go when memory runs short, and what that costs other CPUs.
//!
//! Pages of files are on two lists per node, active and inactive, and so are anonymous pages where they may go to swap. New ones come to the inactive list through
//! small per-CPU batches; a scan takes 32 from its end, gives those in use a second chance, unmaps the rest
//! into one [`UnmapBatch`](crate::tlb::UnmapBatch), flushes that once, and only then frees them.

mod aging;
mod asked;
mod caches;
mod demote;
mod eviction;
mod kswapd;
mod limit;
mod lru;
mod migrate;
mod piece;
mod scan;
mod shadow;
mod sizes;
mod stall;

pub use sizes::LruPages;

pub(crate) use asked::{deactivate, evict, page_out, place_of};
pub(crate) use lru::{GroupLists, LruVec, Node, Turn, hand_over};
pub(crate) use migrate::{AT_ONCE, Destination, migrate, migrate_out};
pub(crate) use piece::Piece;
pub(crate) use scan::direct;
pub(crate) use shadow::{Bucket, Clock, PER_BUCKET, Shadows};
