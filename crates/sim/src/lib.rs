//! `quietmm-sim`: a simulated SMP machine, deterministic to the byte, that runs the real core.
//!
//! | module | holds |
//! |---|---|
//! | [`machine`] | machine descriptions: what it is made of, what everything costs, and where that is from |
//! | `sim` | the machine: time, turns, interrupts |
//! | `platform` | the core's `Platform` on it |
//! | `user` | what programs and the kernel see: addresses, page faults, contexts |
//! | `disk`, `ssd` | block devices: of files, and for swap; `swapping` what they are reported to have done |
//! | `cpu`, `order` | one CPU's state; whose turn it is |
//! | `tlb`, `walks`, `lines` | translations and tables that CPUs cache; cache lines that move between them |
//! | [`near`] | names near a name that does not exist |
//! | `content` | what user pages hold |
//! | `stalls` | moments at which something takes a CPU away |
//! | `truth` | what is true of every frame: the account of stale accesses |
//! | `latency` | histograms of what workloads measure |
//! | `stacks`, `zeroed` | the tasks' stacks; large arrays that cost nothing where they are not used |
//! | `profile` | where the CPUs' time went |
//! | `traffic` | who interrupts whom, and memory over time |
//! | [`timeline`] | what each CPU did when |
//! | [`figures`] | the one table of figures: names, units, which way is better |
//! | `run` | one run from spec to report |

mod broadcast;
mod content;
mod cpu;
mod disk;
#[cfg(test)]
mod disk_tests;
pub mod figures;
#[cfg(test)]
mod hardware_tests;
#[cfg(test)]
mod hotplug_tests;
mod interrupts;
mod keys;
mod latency;
mod left;
mod lines;
pub mod machine;
pub mod near;
mod observed;
#[cfg(test)]
mod oom_tests;
mod order;
#[cfg(test)]
mod patience_tests;
mod platform;
mod profile;
#[cfg(test)]
mod profile_tests;
mod run;
mod sim;
mod ssd;
mod stacks;
mod stalls;
pub mod story;
mod swapping;
pub mod timeline;
mod tlb;
mod traffic;
mod truth;
mod user;
mod walks;
mod zeroed;

pub use figures::{Better, Figure, Group, Metric, Value};
pub use latency::{Bin, Latencies, Latency, Shot};
pub use profile::{Own, Place, Profile, Row, Slept, Spent, Wait};
pub use quietmm::profile::{Room, Scope};
pub use quietmm::{Architecture, Counter, Policy, Rule};
pub use quietmm_workloads::{Op, Tally, Workload};
pub use run::{Host, Report, RunError, RunSpec, least_memory, run};
pub use sim::Watch;
pub use traffic::{Moment, Traffic};
