//! `quietmm`: a memory manager for machines with many CPUs that leaves other CPUs alone.
//!
//! A kernel, unikernel or hypervisor writes one [`Platform`], hands over memory, and gets page frames, address
//! spaces, reclaim and the TLB flushes that these need; every interruption of another CPU is counted, has
//! a reason, and is avoided where it can be proved unnecessary.
//!
//! | to | see |
//! |---|---|
//! | say what the machine can do | [`Platform`], and [`platform`] for devices, guarantees and hardware that flushes all CPUs |
//! | choose | [`Config`], [`Policy`], [`policy`] |
//! | make the manager, and call it from interrupts, ticks, idle loops, CPUs that come and go | [`Manager`] |
//! | have address spaces: map, fault, protect, fork | [`Space`], by [`Manager::space`] |
//! | let devices, or itself, at the memory of programs | [`Space::pin`], [`Manager::unpin`] |
//! | have files: read, write, truncate, write back | [`File`], by [`Manager::file`] |
//! | give spaces a share of memory that they cannot exceed | [`Group`], by [`Manager::create_group`] |
//! | have frames, and memory that goes and comes | [`FrameAllocator`], by [`Manager::frames`] |
//! | have contiguous kernel addresses | [`Vmap`], by [`Manager::vmap`] |
//! | swap | [`Swap`], by [`Manager::swap`] |
//! | have frames or kernel addresses only, and no spaces | [`Alone`] |
//! | look: counters, what happened, where time goes, does all add up | [`Manager::counter`], [`Event`], [`profile`], [`Manager::validate`] |
//! | break a rule on purpose | [`rule`] |
//! | use the locks and shared words | [`sync`], [`cpumask`], [`cpu`] |
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
mod alone;
mod architecture;
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
mod group;
mod handle;
mod handlers;
mod hotplug;
mod ipi;
mod kind;
mod life;
mod manager;
mod memmap;
mod own;
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
mod shrinker;
mod space;
#[cfg(loom)]
pub mod step;
mod swap;
pub mod sync;
mod tlb;
mod tree;
mod validate;
mod view;
mod vma;
mod vmap;
mod writeback;
mod zeroed;

pub use addr::{FrameNumber, NodeId, NodeSet, PageNumber, PageRange, PhysAddr, Region, VirtAddr};
pub use alone::{Alone, Machine, Part};
pub use architecture::Architecture;
pub use config::{Config, ListLimits};
pub use cpu::{CpuId, CpuSet};
pub use error::Error;
pub use event::{Counter, Event};
pub use file::ReadAhead;
pub use frame::{AllocFrom, Certainty, Frames};
pub use handle::{FileId, GroupId, SpaceId};
pub use hotplug::{Contiguous, Leaving, Offline, Remains};
pub use kind::Kind;
pub use manager::Manager;
pub use memmap::MAX_ORDER;
pub use paging::{Advice, Backing, Entry, KernelProt, NodePolicy, Prot, UserAccess};
pub use platform::Platform;
pub use policy::Policy;
pub use profile::Scope;
pub use reclaim::LruPages;
pub use rule::Rule;
pub use space::{GroupUsage, Migrated, Pins, SpaceUsage, Term};
pub use swap::SwapUsage;
pub use validate::Audit;
pub use view::{File, FrameAllocator, Group, Space, Swap, Vmap};
pub use vmap::{VmapPlace, Waits};

// The guide's examples are compiled by `cargo test`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
struct EmbeddingGuide;
