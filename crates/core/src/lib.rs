//! `quietmm`: a memory manager for machines with many CPUs that leaves other CPUs alone.
//!
//! A kernel, unikernel or hypervisor writes one [`Platform`], hands over memory, and gets page frames, address
//! spaces, reclaim and the TLB flushes that these need; every interruption of another CPU is counted, has
//! a reason, and is avoided where it can be proved unnecessary.
//!
//! | module | holds |
//! |---|---|
//! | [`platform`], `device` | what a machine must offer; its block devices |
//! | [`cpu`], [`cpumask`] | CPU numbers, sets and shared masks |
//! | [`sync`], `step` | the wrapper round shared memory; locks |
//! | [`event`] | what happened, and the counters that fold it |
//! | [`profile`], `charge` | where time goes: functions and locks by name |
//! | `config`, `boot`, `root` | what a kernel asks for; how the core lays itself out in it |
//! | `percpu` | what each CPU has for itself; who is online; what others leave for it |
//! | `ipi`, `broadcast` | the doors to other CPUs |
//! | `memmap` | page frames: what the core knows of each, and lists of them |
//! | `frame` | zones, the buddy allocator, watermarks, the drain |
//! | `pool`, `life`, `handle` | typed slabs on frames; handles to what lies in them |
//! | `tree` | a search tree of such slots |
//! | `paging` | tables and their entries |
//! | `vma` | address spaces and their VMAs, as things |
//! | `tlb` | what must be flushed where: generations, ranges, the unmap batch |
//! | `rmap` | from a page to the tables that lead to it |
//! | `file`, `swap`, `writeback` | page caches; swap areas; pages on their way out |
//! | `reclaim` | LRU lists, aging, the scan, `kswapd` |
//! | `space` | what programs ask for: map, unmap, fault, fork, move, advise |
//! | `vmap` | kernel virtual ranges: extents, lazy purge, per-CPU blocks |
//! | `hotplug` | CPUs and memory that go and come |
//! | `handlers` | what runs on a tick and on an interrupt |
//! | `validate` | does everything add up |
//! | [`policy`], [`rule`] | what can be chosen, and what can be broken to see what follows |
//!
//! Each operation says how many CPUs it may interrupt for itself; one that needs memory and finds it short reclaims
//! first, and pays for that too.
//!
//! There is no heap, no thread and no static in here. See `docs/embedding.md` for the guide to embed it,
//! `examples/smallest.rs` for a platform that runs on the host, ARCHITECTURE.md for the layers and for the way from a page fault down to the
//! IPI, and `crates/core/README.md` for how each mechanism works.

#![no_std]

#[cfg(test)]
extern crate std;

pub mod addr;
mod boot;
mod broadcast;
mod charge;
mod config;
pub mod cpu;
pub mod cpumask;
mod device;
pub mod error;
pub mod event;
mod file;
mod frame;
mod handle;
mod handlers;
mod hotplug;
mod ipi;
mod kind;
mod life;
mod manager;
mod memmap;
mod paging;
mod percpu;
pub mod platform;
pub mod policy;
mod pool;
pub mod profile;
mod reclaim;
mod resched;
mod rmap;
mod root;
pub mod rule;
mod space;
#[cfg(loom)]
pub mod step;
mod swap;
pub mod sync;
mod tlb;
mod tree;
mod validate;
mod vma;
mod vmap;
mod writeback;
mod zeroed;

pub use addr::{FrameNumber, NodeId, PageNumber, PageRange, PhysAddr, VirtAddr};
pub use config::{Config, ListLimits, Region};
pub use cpu::{CpuId, CpuSet};
pub use error::Error;
pub use event::{Counter, Event};
pub use frame::{AllocFrom, Certainty, Frames};
pub use handle::{FileId, SpaceId};
pub use hotplug::{Leaving, Offline, Remains};
pub use kind::Kind;
pub use manager::Manager;
pub use memmap::MAX_ORDER;
pub use paging::{Advice, Backing, Entry, KernelProt, Prot, UserAccess};
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
