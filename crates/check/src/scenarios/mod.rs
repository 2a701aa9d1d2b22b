//! The situations that come along.

mod before;
mod hotplug;
mod ranges;
mod reclaim;
mod switching;

use crate::scenario::Scenario;

/// All of them, by room.
pub fn all() -> Vec<Scenario> {
    [ranges::all(), switching::all(), hotplug::all(), reclaim::all()].into_iter().flatten().collect()
}
