//! How many frames of each zone stay free (Linux: `watermark`).

use super::buddy::Watermarks;
use crate::addr::MAX_NODES;
use crate::config::Config;
use crate::cpu::CpuId;
use crate::platform::Platform;

/// All 0 for a zone without memory: nobody waits for any there. For a zone with so many of all frames. Min is what `Config` says, at most a quarter of the memory, shared out by size; low
/// and high are 5/4 and 3/2 of it, as in Linux.
pub(crate) fn watermarks(config: &Config, frames: u32, all: u64) -> Watermarks {
    let min_all = config.min_free.map_or_else(|| Config::linux_min_free(all), u64::from).min(all / 4);
    let min = (min_all * u64::from(frames) / all.max(1)) as u32;
    if frames == 0 {
        return Watermarks::default();
    }
    Watermarks { min, low: min + min / 4 + 1, high: min + min / 2 + 2 }
}

/// Works out the watermarks of all zones, the limits of lists that follow them, and which zone is nearest to each CPU: when the manager is made, and where
/// memory has come or gone. Any context but an interrupt handler.
pub(crate) fn set_watermarks<P: Platform>(mm: &crate::Manager<'_, P>) {
    let p = mm.platform();
    // Whoever comes last has seen what all others have changed.
    let _guard = mm.root.watermarks.lock(mm);
    let all = mm.zones().map(|zone| u64::from(zone.present(p))).sum();
    let mut nearest = false;
    for zone in mm.zones() {
        let frames = zone.present(p);
        let marks = watermarks(mm.config(), frames, all);
        nearest |= zone.has_memory(p) != (frames > 0);
        let guard = zone.lock(mm);
        guard.set_watermarks(marks);
        zone.limits.follow(p, frames, marks.low);
    }
    if nearest {
        set_nearest(mm);
    }
}

/// Has each CPU look first in the nearest zone that has memory.
fn set_nearest<P: Platform>(mm: &crate::Manager<'_, P>) {
    let p = mm.platform();
    let mut nearest = [0; MAX_NODES];
    for node in mm.node_ids() {
        let zone = mm.fallback(node).find(|zone| zone.has_memory(p));
        nearest[usize::from(node.0)] = zone.map_or(0, |zone| zone.index() as u8);
    }
    for cpu in (0..p.possible_cpus()).map(|cpu| CpuId(cpu as u16)) {
        mm.slot(cpu).pages.set_nearest(nearest[usize::from(p.node_of(cpu).0)].into());
    }
}
