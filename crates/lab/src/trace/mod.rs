//! Traces of real programs: recorded with valgrind, folded into a small file, described in a few lines.
//!
//! The file format and what it keeps is in [`quietmm_workloads::trace`]. Here is what needs a heap and files:
//! [`mod@import`] turns the output of `valgrind --tool=lackey --trace-mem=yes PROGRAM` into a trace, [`mod@show`] says
//! what is in one.

mod args;
mod compact;
mod counts;
mod error;
mod fold;
mod import;
mod line;
mod options;
mod show;
mod summary;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;

pub use args::{ImportArgs, ShowArgs};
pub use error::ImportError;
pub use show::load;
