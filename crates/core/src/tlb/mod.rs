//! What must be flushed where.
//!
//! A flush raises the space's generation, reads the mask, and asks those CPUs that are not lazy; each CPU
//! remembers up to which generation it has flushed, so a request that it has already outrun costs it
//! nothing (INV-6). Where the hardware flushes all CPUs at once, it does so instead (`broadcast.rs`).

mod batch;
mod broadcast;
mod epochs;
mod flush;
pub(crate) mod kernel;
mod local;
pub(crate) mod sweep;
mod switch;
mod targets;
mod together;

pub(crate) use batch::{BatchSlot, Fate, UnmapBatch};
pub(crate) use broadcast::Swept;
pub(crate) use epochs::{Epochs, Look};
pub(crate) use flush::{complete_deferred, flush};
pub(crate) use local::{catch_up, flush_here, forget_refusal, forget_refusals_above, local, unload};
pub(crate) use sweep::{Idle, Sweeps};
pub(crate) use targets::others_are_lazy;
pub(crate) use together::flush_together;
