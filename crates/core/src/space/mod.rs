//! Address spaces: faults, and the operations on ranges.

mod advise;
mod around;
mod collapse;
mod drop;
mod emptied;
mod fault;
mod fork;
mod groups;
mod grow;
mod large;
mod large_file;
mod lazy;
mod lock;
mod map;
mod migrate;
mod moving;
mod nodes;
mod outside;
mod parked;
mod parking;
mod pin;
mod protect;
mod range;
mod refs;
mod remap;
mod residency;
mod unmap;
mod usage;

pub use groups::GroupUsage;
pub use migrate::Migrated;
pub(crate) use parked::Parked;
pub use pin::{Pins, Term};
pub use usage::SpaceUsage;
