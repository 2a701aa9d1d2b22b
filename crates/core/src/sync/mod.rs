//! The one wrapper round memory that several CPUs share, and the locks made of it.
//!
//! Every access goes through [`Hooks::touch`](crate::platform::Hooks::touch): the simulated machine charges the cache line there and
//! may switch to another CPU. Nothing may bypass it.

mod biased;
mod gate;
mod holder;
#[cfg(loom)]
mod modelled;
mod rwlock;
mod spin;
mod word;

pub use biased::{BiasedRwLock, SharedGuard};
pub use gate::{Gate, Inside};
pub use holder::{Holder, VisibleReads};
pub use rwlock::{ReadGuard, RwLock, WriteGuard};
pub(crate) use spin::Ticket;
pub use spin::{SpinGuard, SpinLock};
pub(crate) use word::full_fence;
pub use word::{Word32, Word64};
