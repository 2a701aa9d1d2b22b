//! `quietmm` on bare x86-64: the platform for real page tables, real interrupts and as many CPUs as the local APIC can
//! name, and an image of it that boots.
//!
//! | module | holds |
//! |---|---|
//! | `boot.s`, [`start`] | from the loader to the first Rust; the order in which the machine comes up |
//! | [`pvh`], [`command`] | what the loader says: memory, the command line |
//! | [`cpu`] | what each CPU has for itself: segments, interrupt stacks, counters |
//! | [`apic`], [`clock`], [`alarm`] | interrupts to other CPUs; time; the timer |
//! | `interrupts.s`, [`interrupts`] | entries and handlers |
//! | [`paging`] | where memory is mapped; stacks with a guard page |
//! | `user.s`, [`user`] | accesses that may fault |
//! | [`platform`], [`machine`], [`tasks`] | the core's `Platform`, the workloads' `Machine`, contexts |
//! | `program.s`, [`program`] | Linux's programs in ring 3: entries, copies, tasks, the run from archive to exit code |
//! | [`store`], [`disk`] | the pages of files; virtio-blk |
//! | [`serial`], [`lock`], [`heap`], [`memory`], [`end`] | the console, a lock, the heap, `memcpy` and its like, the end |
//! | [`run`], [`report`] | one workload or test from start to report |
//! | [`timeline`] | what each CPU did when, if that is wanted |
//! | [`stretches`] | how long the core makes others wait, for the test that asks |
//!
//! The image runs one workload or one test per boot; README.md has its command line and what it prints.
//!
//! Without the feature `image` there is nothing in here: no host's program has a use for it, and `memcpy` is not to be
//! defined twice. `scripts/metal clippy` and `scripts/metal doc` look at it.

#![no_std]
#![cfg(all(target_arch = "x86_64", feature = "image"))]

extern crate alloc;

pub mod alarm;
pub mod apic;
pub mod clock;
pub mod command;
pub mod cpu;
pub mod disk;
pub mod end;
pub mod heap;
pub mod interrupts;
pub mod lock;
pub mod machine;
pub mod memory;
pub mod paging;
pub mod platform;
pub mod program;
pub mod pvh;
pub mod report;
pub mod run;
pub mod serial;
pub mod start;
pub mod store;
pub mod stretches;
pub mod tasks;
pub mod test;
pub mod timeline;
pub mod user;

#[cfg(feature = "image")]
core::arch::global_asm!(
    include_str!("boot.s"),
    include_str!("interrupts.s"),
    include_str!("tasks.s"),
    include_str!("user.s"),
    include_str!("program.s"),
    options(att_syntax)
);
