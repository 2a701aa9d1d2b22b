//! Aging: was this page used since the last look?

mod flush;
mod no_flush;

use super::rmap::walk;
use crate::Manager;
use crate::addr::FrameNumber;
use crate::frame::flag;
use crate::paging::Entry;
use crate::platform::Platform;
use crate::policy::Aging;

/// What aging advises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Not used: take it.
    Reclaim,
    /// Used once: it goes round again, and the next use counts.
    Rotate,
    /// Used again, or by several: to the active list.
    Activate,
}

/// Clears the accessed bits of all entries that lead to a page and says how many were set.
///
/// With `no-flush` it costs no IPI; with `flush`, one per CPU that may hold the page, for each entry.
pub(super) fn uses<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber) -> u32 {
    let mut used = 0;
    walk(mm, n, |mapping| {
        if mapping.entry.has(Entry::ACCESSED) {
            used += 1;
            match mm.config().policy.aging {
                Aging::Flush => flush::clear(mm, &mapping),
                Aging::NoFlush => no_flush::clear(mm, &mapping),
            }
        }
    });
    used
}

/// The second chance: no use, reclaim; the first, go round once more; another, or several at once, activate.
pub(super) fn judge<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber) -> Verdict {
    let p = mm.platform();
    let frame = mm.frames().get(n);
    let used = if frame.maps.get(p) > 0 { uses(mm, n) } else { 0 };
    let before = frame.state.get(p) & flag::REFERENCED != 0;
    match used {
        0 => Verdict::Reclaim,
        1 if !before => {
            frame.set_flags(p, flag::REFERENCED);
            Verdict::Rotate
        }
        _ => Verdict::Activate,
    }
}
