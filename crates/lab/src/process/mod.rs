//! The command as a process of its host: threads, terminal, Ctrl-C, exit codes.

pub mod caller;
pub mod ending;
pub mod interrupt;
pub mod jobs;
pub mod output;
mod paint;
pub mod plain;
pub mod progress;
pub mod replace;
pub mod sealed;
