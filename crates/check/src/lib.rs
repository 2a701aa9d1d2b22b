//! Looks for the schedule, the interrupt or the freak of hardware that breaks an invariant of the real core.
//!
//! - [`scenario`]: a small situation, and [`task`] what its scripts can do; [`scenarios`] has those that come along.
//! - [`machine`]: a machine without time, on which somebody else decides at each point who goes on, and the laws.
//! - [`driver`]: who decides, and what a schedule is; [`runner`] one run.
//! - [`explore`]: which schedules are tried.
//! - [`shrink`] and [`timeline`]: a violation, made short, for people; [`replay`] its file.

pub mod act;
pub mod driver;
pub mod explore;
pub mod hunt;
pub mod machine;
mod panics;
pub mod replay;
pub mod runner;
pub mod scenario;
pub mod scenarios;
pub mod shrink;
pub mod task;
pub mod timeline;
pub mod violation;
