//! Tables in which nothing is left though something is mapped where they lie: how they are found.
//!
//! A look costs nobody anything: no entry is counted. So it reads tables entry by entry, up to the first that says something. What reclaim
//! leaves behind where it deferred a flush, and an operation where it parked a page, is nothing: whoever takes the table out flushes for both.

use core::sync::atomic::Ordering;

use super::slot::slot;
use super::unhook::Unhooked;
use super::{ROOT_LEVEL, is_large};
use crate::Manager;
use crate::addr::{FrameNumber, PageNumber, PageRange};
use crate::paging::Entry;
use crate::platform::Platform;
use crate::resched::{Work, cost};

/// A table in which nothing was, and where it hangs in its tree.
#[derive(Clone, Copy)]
pub(crate) struct Emptied {
    above: FrameNumber,
    /// Of the one above.
    level: u32,
    index: usize,
    table: FrameNumber,
    start: u64,
}

impl Emptied {
    /// The first page that it could lead to.
    pub fn start(self) -> PageNumber {
        PageNumber(self.start)
    }

    /// Takes it out of the tree. By whoever has held the VMAs alone since it was looked at, so that nothing has come, and now has the reverse map of
    /// what is mapped there alone too: then nobody is in it, about to mark what it has taken out.
    pub fn unhook<P: Platform>(self, mm: &Manager<'_, P>, chain: &mut Unhooked) {
        chain.add(mm, (self.above, self.level), self.index, (self.table, self.start));
    }
}

const ENTRIES: usize = 512;

/// Whether an entry leads to no table and no page, and names no swap slot.
fn leads_to_nothing(entry: Entry) -> bool {
    entry == Entry::NONE || !(entry.is_mapped() || entry.is_taken() || entry.is_swapped())
}

/// How many entries, from the first on, lead to nothing.
fn entries_of_none<P: Platform>(mm: &Manager<'_, P>, (table, level): (FrameNumber, u32)) -> usize {
    if level > 0 && mm.memmap().get(table).refs.load(mm.platform(), Ordering::Relaxed) > 0 {
        return 0;
    }
    let mut entries = (0..ENTRIES).map(|index| slot(mm, (table, level), index).load());
    entries.position(|entry| !leads_to_nothing(entry)).unwrap_or(ENTRIES)
}

/// Shows `each` the tables on the way to `range` in which nothing is and which lead to no page outside `gap`, those below before those above, until
/// it wants no more, or as many tables were looked at as are `left`; returns how far it came. By whoever shares the VMAs, at least. Gives way.
pub(crate) fn each_emptied<'p, P: Platform>(
    mm: &Manager<'p, P>,
    root: FrameNumber,
    (range, gap): (PageRange, PageRange),
    (left, work): (&mut u32, &mut Work<'_, 'p, P>),
    each: &mut dyn FnMut(Emptied) -> bool,
) -> PageNumber {
    let mut search = Search { mm, range, gap, left, work, each, stopped: None };
    search.below((root, ROOT_LEVEL), 0);
    search.stopped.unwrap_or(range.end())
}

struct Search<'a, 'm, 'p, P: Platform> {
    mm: &'a Manager<'p, P>,
    range: PageRange,
    gap: PageRange,
    left: &'a mut u32,
    work: &'a mut Work<'m, 'p, P>,
    each: &'a mut dyn FnMut(Emptied) -> bool,
    stopped: Option<PageNumber>,
}

impl<P: Platform> Search<'_, '_, '_, P> {
    fn below(&mut self, (table, level): (FrameNumber, u32), base: u64) {
        let mm = self.mm;
        let span = 1u64 << (9 * level);
        let first = self.range.start.0.max(base);
        let last = (self.range.end().0 - 1).min(base + span * 512 - 1);
        for i in (first - base) / span..=(last - base) / span {
            let start = base + i * span;
            if *self.left == 0 {
                // Those above are still looked at: nobody comes by them again.
                self.stopped.get_or_insert(PageNumber(start).max(self.range.start));
                return;
            }
            let entry = slot(mm, (table, level), i as usize).load();
            if !entry.is_present() || is_large(entry, level) {
                self.work.did(1);
                continue;
            }
            *self.left -= 1;
            self.work.did(cost::TABLE);
            let child = (entry.frame(), level - 1);
            if level > 1 {
                self.below(child, start);
            }
            if self.gap.covers(PageRange::new(PageNumber(start), span)) {
                let none = entries_of_none(mm, child);
                self.work.did(none as u32);
                let one = Emptied { above: table, level, index: i as usize, table: child.0, start };
                if none == ENTRIES && !(self.each)(one) {
                    *self.left = 0;
                }
            }
        }
    }
}
