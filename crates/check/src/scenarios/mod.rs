//! The situations that come along.

mod blocks;
mod drain;
mod reclaim;
mod swap;
mod vmap;

use crate::scenario::Scenario;

/// All of them, by room.
pub fn all() -> Vec<Scenario> {
    [reclaim::all(), drain::all(), swap::all(), vmap::all(), blocks::all()].concat()
}
