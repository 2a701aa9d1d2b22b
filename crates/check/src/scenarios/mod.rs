//! The situations that come along.

mod reclaim;

use crate::scenario::Scenario;

/// All of them, by room.
pub fn all() -> Vec<Scenario> {
    reclaim::all()
}
