//! Address spaces: faults, and the operations on ranges.

mod advise;
mod fault;
mod fork;
mod holds;
mod large;
mod map;
mod moving;
mod outside;
mod parked;
mod parking;
mod protect;
mod range;

pub(crate) use parked::Parked;
