//! Aging: was this page used since the last look?

mod flush;
mod no_flush;

use core::ops::ControlFlow;

use super::rmap::{Mapping, walk};
use crate::Manager;
use crate::addr::FrameNumber;
use crate::frame::flag;
use crate::paging::Entry;
use crate::platform::Platform;
use crate::policy::Aging;
use crate::rule::Rule;

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

/// Clears the accessed bit of an entry and says whether it was set.
///
/// With `no-flush` it costs no IPI; with `flush`, if the bit was set, one per CPU that may hold the page.
///
/// **A large page is flushed under both** (PITFALLS 33). One bit stands for 512 pages, and a TLB that holds a whole working
/// set in a few large entries never drops them by itself, as it drops small ones: cleared without a flush, the bit would
/// stay clear for as long as the page is in use, and the hottest memory would look idlest. The price is one flush for
/// 512 pages.
pub(super) fn was_used<P: Platform>(mm: &Manager<'_, P>, mapping: &Mapping<'_, '_, P>) -> bool {
    if !mapping.entry.has(Entry::ACCESSED) {
        return false;
    }
    let large = mapping.leaf.is_large() && !mm.platform().broken(Rule::LargeAgingFlushes);
    match mm.config().policy.aging {
        Aging::Flush => flush::clear(mm, mapping),
        Aging::NoFlush if large => flush::clear(mm, mapping),
        Aging::NoFlush => no_flush::clear(mm, mapping),
    }
    true
}

/// Clears the accessed bits of all entries that lead to a page and says how many were set.
pub(super) fn uses<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber) -> u32 {
    let (mut used, mut seen) = (0, 0);
    let maps = mm.frames().get(n).maps.get(mm.platform());
    walk(mm, n, |mapping| {
        used += u32::from(was_used(mm, &mapping));
        seen += 1;
        if seen == maps { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    used
}

/// The second chance: no use, reclaim; the first, go round once more; another, or several at once, activate.
pub(super) fn judge<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber, used: u32) -> Verdict {
    let p = mm.platform();
    let frame = mm.frames().get(n);
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
