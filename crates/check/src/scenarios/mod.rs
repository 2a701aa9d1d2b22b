//! The situations that come along.

mod around;
mod before;
mod blocks;
mod broadcast;
mod collapse;
mod cut;
mod drain;
mod emptied;
mod faults;
mod groups;
mod hardware;
mod hotplug;
mod large_file;
mod memory_files;
mod pageout;
mod parked;
mod pins;
mod quiet;
mod ranges;
mod reclaim;
mod stacks;
mod swap;
mod sweeps;
mod switching;
mod vmap;
mod writeback;

use crate::scenario::Scenario;

/// All of them, by room.
pub fn all() -> Vec<Scenario> {
    let paging = [ranges::all(), faults::all(), switching::all(), hotplug::all(), hardware::all()];
    let memory = [reclaim::all(), pageout::all(), writeback::all(), cut::all(), around::all(), groups::all()];
    let quiet = [quiet::all(), broadcast::all(), parked::all()];
    let programs = [pins::all(), collapse::all(), large_file::all(), emptied::all(), stacks::all()];
    let rest = [drain::all(), swap::all(), memory_files::all(), vmap::all(), blocks::all(), sweeps::all()];
    paging.into_iter().chain(memory).chain(quiet).chain(programs).chain(rest).flatten().collect()
}
