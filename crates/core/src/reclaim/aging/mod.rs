//! Aging: was this page used since the last look?

mod flush;
mod no_flush;

use core::ops::ControlFlow;

use crate::Manager;
use crate::addr::FrameNumber;
use crate::memmap::flag;
use crate::paging::Entry;
use crate::platform::Platform;
use crate::policy::Aging;
use crate::rmap::{self, Mapping, walk};
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

/// What an entry says of its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    /// It was used since the last look.
    Used,
    /// It seems not; but a CPU that had it cached could use it unseen.
    Unswept,
    /// It was not.
    Idle,
}

/// What all entries that lead to a page say of it.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Uses {
    /// By how many it was used.
    pub used: u32,
    /// Whether one says that a sweep must end first.
    pub unswept: bool,
}

impl Uses {
    pub fn add(&mut self, seen: Seen) {
        self.used += u32::from(seen == Seen::Used);
        self.unswept |= seen == Seen::Unswept;
    }
}

/// Clears the accessed bit of an entry and says whether it was set.
///
/// With `no-flush` it costs no IPI; with `flush`, if the bit was set, one per CPU that may hold the page.
///
/// **A large page is flushed under both** (PITFALLS 33). One bit stands for 512 pages, and a TLB that holds a whole working
/// set in a few large entries never drops them by itself, as it drops small ones: cleared without a flush, the bit would
/// stay clear for as long as the page is in use, and the hottest memory would look idlest. The price is one flush for
/// 512 pages. With `unmap=quiet` a sweep is that flush, of all pages.
pub(super) fn look<P: Platform>(mm: &Manager<'_, P>, mapping: &Mapping<'_, '_, P>) -> Seen {
    if mapping.locked {
        // Whatever its bit says.
        return Seen::Used;
    }
    let sweeps = mm.stamps();
    // What the one bit of a large entry of a file said of this page when somebody looked at another.
    let young = mapping.leaf.is_large() && mapping.leaf.take_young(mapping.page);
    if !mapping.entry.has(Entry::ACCESSED) {
        if young {
            return Seen::Used;
        }
        return if sweeps && !rmap::is_uncached(mm, mapping) { Seen::Unswept } else { Seen::Idle };
    }
    let large = mapping.leaf.is_large() && !sweeps && !mm.platform().broken(Rule::LargeAgingFlushes);
    match mm.config().policy.aging {
        Aging::Flush => flush::clear(mm, mapping),
        Aging::NoFlush if large => flush::clear(mm, mapping),
        Aging::NoFlush => no_flush::clear(mapping),
    }
    if mapping.leaf.is_large() {
        mapping.leaf.make_young(mapping.page);
    }
    Seen::Used
}

/// Clears the accessed bits of all entries that lead to a page and says how many were set.
pub(super) fn uses<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber) -> Uses {
    let (mut uses, mut seen) = (Uses::default(), 0);
    let maps = mm.memmap().get(n).maps.get(mm.platform());
    walk(mm, n, |mapping| {
        uses.add(look(mm, &mapping));
        seen += 1;
        if seen == maps { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    uses
}

/// The second chance: no use, reclaim; the first, go round once more; another, or several at once, activate.
pub(super) fn judge<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber, used: u32) -> Verdict {
    let p = mm.platform();
    let frame = mm.memmap().get(n);
    let state = frame.state.get(p);
    let before = state & flag::REFERENCED != 0;
    if used > 0 && state & flag::UNUSED != 0 {
        mm.note_used(n);
    }
    match used {
        0 => Verdict::Reclaim,
        1 if !before => {
            frame.set_flags(p, flag::REFERENCED);
            Verdict::Rotate
        }
        _ => Verdict::Activate,
    }
}
