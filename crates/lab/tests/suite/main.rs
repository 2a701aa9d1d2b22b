//! All tests of this crate from outside, in one binary: the core is generic, and would be compiled anew for each.

#[cfg(unix)]
mod any_command;
mod bad_input;
#[cfg(target_os = "linux")]
mod boot;
mod check;
mod common;
#[cfg(unix)]
mod corpus;
#[cfg(unix)]
mod documents;
#[cfg(unix)]
mod embedded;
mod explain;
#[cfg(target_os = "linux")]
mod interrupt;
#[cfg(target_os = "linux")]
mod metal;
mod output;
mod profile;
mod programs;
#[cfg(unix)]
mod report;
#[cfg(unix)]
mod sweep;
#[cfg(unix)]
mod timeline;
