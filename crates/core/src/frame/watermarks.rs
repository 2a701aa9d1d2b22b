//! How many frames of each zone stay free (Linux: `watermark`).

use super::buddy::Watermarks;
use crate::config::Config;
use crate::platform::Platform;

/// For a zone with so many of all frames. Min is what `Config` says, at most a quarter of the memory, shared out by size; low
/// and high are 5/4 and 3/2 of it, as in Linux.
pub(crate) fn watermarks(config: &Config, frames: u32, all: u64) -> Watermarks {
    let min_all = config.min_free.map_or_else(|| Config::linux_min_free(all), u64::from).min(all / 4);
    let min = (min_all * u64::from(frames) / all.max(1)) as u32;
    Watermarks { min, low: min + min / 4 + 1, high: min + min / 2 + 2 }
}

/// Works the watermarks of all zones out: when the manager is made, and where memory has come or gone. Any context but an
/// interrupt handler.
pub(crate) fn set_watermarks<P: Platform>(mm: &crate::Manager<'_, P>) {
    let p = mm.platform();
    // Who comes last has seen what all others have changed.
    let _guard = mm.root.watermarks.lock(mm);
    let all = mm.zones().map(|zone| u64::from(zone.present(p))).sum();
    for zone in mm.zones() {
        let marks = watermarks(mm.config(), zone.present(p), all);
        zone.lock(mm).set_watermarks(marks);
    }
}
