//! Small maps from per-CPU blocks.
use crate::scenario::Scenario;
pub(super) fn all() -> Vec<Scenario> {
    vec![]
}
