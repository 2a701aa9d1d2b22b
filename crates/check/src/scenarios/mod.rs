//! The situations that come along.

mod before;
mod blocks;
mod drain;
mod faults;
mod hardware;
mod hotplug;
mod pageout;
mod ranges;
mod reclaim;
mod swap;
mod switching;
mod vmap;
mod writeback;

use crate::scenario::Scenario;

/// All of them, by room.
pub fn all() -> Vec<Scenario> {
    let paging = [ranges::all(), faults::all(), switching::all(), hotplug::all(), hardware::all()];
    let memory = [reclaim::all(), pageout::all(), writeback::all()];
    let rest = [drain::all(), swap::all(), vmap::all(), blocks::all()];
    paging.into_iter().chain(memory).chain(rest).flatten().collect()
}
