//! All tests of this crate from outside, in one binary: the core is generic, and would be compiled anew for each.

mod broadcast;
mod churn;
mod common;
mod groups;
mod hackbench;
mod hardware;
mod hostile_machines;
mod hotplug;
mod machines;
mod profile;
mod published;
mod replay;
mod rules;
mod same_bytes;
mod shootdown;
mod swap;
mod timeline;
mod traffic;
mod vmap;
