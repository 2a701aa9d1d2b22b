//! `quietmm`: a memory manager for machines with many CPUs that leaves other CPUs alone.
//!
//! A kernel, unikernel or hypervisor writes one [`Platform`], hands over memory, and gets page frames, address
//! spaces, reclaim and the TLB flushes that these need; every interruption of another CPU is counted, has
//! a reason, and is avoided where it can be proved unnecessary.
//!
//! | module | holds |
//! |---|---|
//! | [`platform`] | what a machine must offer |
//! | [`cpu`] | CPU numbers, sets and shared masks |
//! | `ipi` | the one door to other CPUs |
//! | `hotplug` | CPUs that go and come |
//! | [`sync`] | the wrapper round shared memory; locks |
//! | `pool`, `life` | typed slabs on frames; handles to what lies in them |
//! | `tree` | a search tree of such slots |
//! | `frame` | zones, the buddy allocator, watermarks |
//! | `file` | page caches |
//! | `paging` | tables, spaces, faults, which CPU uses what |
//! | `tlb` | what must be flushed where: generations, ranges, the unmap batch |
//! | `vmap` | kernel virtual ranges: extents, lazy purge, per-CPU blocks |
//! | `reclaim` | LRU lists, aging, the scan, `kswapd` |
//! | [`event`] | what happened, and the counters that fold it |
//! | [`profile`] | where time goes: functions and locks by name |
//! | [`policy`], [`rule`] | what can be chosen, and what can be broken to see what follows |
//!
//! Each operation says how many CPUs it may interrupt for itself; one that needs memory and finds it short reclaims
//! first, and pays for that too.
//!
//! There is no heap, no thread and no static in here. See `docs/embedding.md` for the guide to embed it,
//! `examples/smallest.rs` for a platform that runs on the host, and ARCHITECTURE.md for the way from a page fault down to the IPI.

#![no_std]

#[cfg(test)]
extern crate std;

pub mod addr;
mod broadcast;
pub mod cpu;
mod device;
pub mod error;
pub mod event;
mod file;
mod frame;
mod hotplug;
mod ipi;
mod life;
mod manager;
mod paging;
mod percpu;
pub mod platform;
pub mod policy;
mod pool;
pub mod profile;
mod reclaim;
mod resched;
pub mod rule;
mod swap;
pub mod sync;
mod tlb;
mod tree;
mod validate;
mod vmap;

pub use addr::{FrameNumber, NodeId, PageNumber, PageRange, PhysAddr, VirtAddr};
pub use cpu::{CpuId, CpuSet};
pub use error::Error;
pub use event::{Counter, Event};
pub use file::FileId;
pub use frame::{AllocFrom, Certainty, Frames, Kind, Leaving, ListLimits, MAX_ORDER, Offline, Remains};
pub use manager::{Config, Manager, Region};
pub use paging::{Advice, Backing, Entry, KernelProt, Prot, SpaceId, UserAccess};
pub use platform::Platform;
pub use policy::Policy;
pub use profile::Scope;
pub use rule::Rule;
pub use swap::SwapUsage;
pub use validate::Audit;
pub use vmap::{VmapPlace, Waits};

// The guide's examples are compiled by `cargo test`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
struct EmbeddingGuide;
