//! The situations that come along.

mod before;
mod hardware;
mod hotplug;
mod ranges;
mod reclaim;
mod switching;
mod writeback;

use crate::scenario::Scenario;

/// All of them, by room.
pub fn all() -> Vec<Scenario> {
    [ranges::all(), switching::all(), hotplug::all(), reclaim::all(), writeback::all(), hardware::all()].into_iter().flatten().collect()
}
