//! What runs on a machine: tasks, a small scheduler, and the workloads themselves; once, for every machine.
//!
//! A machine that can run them implements [`Machine`]: user memory, contexts to switch between, an idle
//! state. It calls back through [`Kernel`] for interrupts, ticks and page faults. Everything else, from the
//! run queues to one `kswapd` per node, lives here.

#![no_std]

extern crate alloc;

pub mod guarded;
pub mod latency;
pub mod machine;
mod power;
mod scheduler;
pub mod system;
pub mod task;
pub mod trace;
#[cfg(feature = "unfair")]
mod unfair;
pub mod work;

pub use latency::{Op, Pace, Shootdown, Tally};
pub use machine::{Kernel, Machine};
pub use system::System;
pub use task::{Cpus, TaskId, TaskKind, TaskReport};
pub use work::{Params, Workload};
