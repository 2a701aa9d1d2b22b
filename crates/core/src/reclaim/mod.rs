//! Reclaim: which pages go when memory runs short, and what that costs other CPUs.
//!
//! Pages of files are on two lists per node, active and inactive, and so are anonymous pages where they may go to swap. New ones come to the inactive list through
//! small per-CPU batches; a scan takes 32 from its end, gives those in use a second chance, unmaps the rest
//! into one [`UnmapBatch`](crate::tlb::UnmapBatch), flushes that once, and only then frees them.

mod aging;
mod backoff;
mod clean;
mod kswapd;
mod lru;
pub(crate) mod pageout;
mod rmap;
mod scan;
mod shadow;
mod unmap;

pub(crate) use backoff::Backoff;
pub(crate) use clean::clean;
pub(crate) use lru::{Node, hand_over};
pub(crate) use rmap::shown_at;
pub(crate) use scan::{direct, evict};
pub(crate) use shadow::{Bucket, Clock, PER_BUCKET, Shadows};
pub(crate) use unmap::{unmap_all, unmap_now};
