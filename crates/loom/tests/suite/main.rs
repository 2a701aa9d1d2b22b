//! All tests of this crate from outside, in one binary: the core is generic, and would be compiled anew for each.

#[cfg(loom)]
mod cut;
#[cfg(loom)]
mod drain;
#[cfg(loom)]
mod hotplug;
#[cfg(loom)]
mod locks;
#[cfg(loom)]
mod masks;
#[cfg(loom)]
mod shootdown;
#[cfg(loom)]
mod sweep;
#[cfg(loom)]
mod switch;
#[cfg(loom)]
mod vmap;
#[cfg(loom)]
mod writeback;
