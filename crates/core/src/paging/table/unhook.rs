//! Tables that are taken out of the tree, and how they are freed once nobody can be in them any more (INV-9).

use core::sync::atomic::Ordering;

use super::slot::slot;
use super::spare::free_spares;
use super::{ROOT_LEVEL, USER_ROOT_ENTRIES, is_large, large_of};
use crate::Manager;
use crate::addr::{FrameNumber, LARGE_PAGES, PageNumber, PageRange};
use crate::paging::Entry;
use crate::platform::Platform;
use crate::resched::{Work, cost};

/// Takes the table of small pages that `page` is in out of the tree; nothing takes its place. What is in it can be looked at until it is freed: when
/// no CPU and no reverse map can be in it any more (INV-9). By whoever holds the VMAs alone.
pub(crate) fn unhook_small<P: Platform>(mm: &Manager<'_, P>, root: FrameNumber, page: PageNumber) {
    let above = large_of(mm, root, page);
    above.lock(mm).take(page);
    mm.memmap().get(above.table).refs.fetch_sub(mm.platform(), 1, Ordering::Relaxed);
}

/// Tables that hang on no tree any more, with what is under them. CPUs may still walk them until a flush that lazy
/// CPUs hear too.
#[must_use = "these tables are lost unless they are freed"]
pub(crate) struct Unhooked {
    first: FrameNumber,
}

impl Unhooked {
    pub const NONE: Unhooked = Unhooked { first: FrameNumber::NONE };

    pub fn is_empty(&self) -> bool {
        self.first == FrameNumber::NONE
    }

    /// Takes a table that an entry leads to out of the tree: nothing takes its place. The table that the entry is in is of this level.
    pub(super) fn add<P: Platform>(
        &mut self,
        mm: &Manager<'_, P>,
        (above, level): (FrameNumber, u32),
        index: usize,
        (table, start): (FrameNumber, u64),
    ) {
        let p = mm.platform();
        slot(mm, (above, level), index).store(Entry::NONE);
        mm.memmap().get(above).refs.fetch_sub(p, 1, Ordering::Relaxed);
        let frame = mm.memmap().get(table);
        frame.owner.set(p, self.first.0);
        // Its first page, and, in the low bits that are 0 there, its level.
        frame.index.set(p, start | u64::from(level - 1));
        self.first = table;
    }
}

/// Whether a table may go with a range: one that leads to nothing but pages in `gap`.
pub(crate) fn goes(range: PageRange, gap: PageRange) -> bool {
    let ends = [range.start, PageNumber(range.end().0 - 1)];
    // One that lies in the range as a whole, or at an end of it.
    let first = range.start.0.next_multiple_of(LARGE_PAGES);
    first + LARGE_PAGES <= range.end().0
        || ends.into_iter().any(|page| gap.covers(PageRange::new(page.large(), LARGE_PAGES)))
}

/// Takes every table on the way to `range` that leads to nothing but pages in `gap` out of the tree of `root`. By who
/// has the VMAs alone, none of which lies in `gap` but those of `range`, which are being unmapped.
pub(crate) fn unhook<P: Platform>(
    mm: &Manager<'_, P>,
    root: FrameNumber,
    range: PageRange,
    gap: PageRange,
) -> Unhooked {
    let mut chain = Unhooked::NONE;
    unhook_into(mm, root, (range, gap), &mut chain);
    chain
}

/// The same of a range that stays mapped and of which all pages were taken out, with those of others. By who has the reverse map of what it
/// shows alone, too.
pub(crate) fn unhook_into<P: Platform>(
    mm: &Manager<'_, P>,
    root: FrameNumber,
    (range, gap): (PageRange, PageRange),
    chain: &mut Unhooked,
) {
    fn below<P: Platform>(
        mm: &Manager<'_, P>,
        table: FrameNumber,
        (level, base): (u32, u64),
        (range, gap): (PageRange, PageRange),
        chain: &mut Unhooked,
    ) {
        let span = 1u64 << (9 * level);
        let first = range.start.0.max(base);
        let last = (range.end().0 - 1).min(base + span * 512 - 1);
        for i in (first - base) / span..=(last - base) / span {
            let entry = slot(mm, (table, level), i as usize).load();
            if !entry.is_present() || is_large(entry, level) {
                continue;
            }
            let (child, at) = (entry.frame(), base + i * span);
            if gap.covers(PageRange::new(PageNumber(at), span)) {
                chain.add(mm, (table, level), i as usize, (child, at));
            } else if level > 1 {
                below(mm, child, (level - 1, at), (range, gap), chain);
            }
        }
    }
    below(mm, root, (ROOT_LEVEL, 0), (range, gap), chain);
}

/// Frees unhooked tables; `each` gets every entry of `range` that is still in them, and there are no others. No CPU can
/// walk them any more, and no reverse map leads to them (INV-9). Gives way between entries.
pub(crate) fn free_unhooked<P: Platform>(
    mm: &Manager<'_, P>,
    tables: Unhooked,
    range: PageRange,
    work: &mut Work<'_, '_, P>,
    each: &mut dyn FnMut(Entry),
) {
    let p = mm.platform();
    let mut at = tables.first;
    while at != FrameNumber::NONE {
        let frame = mm.memmap().get(at);
        let (next, place) = (FrameNumber(frame.owner.get(p)), frame.index.get(p));
        free_below(mm, at, ((place & 511) as u32, place & !511), range, work, each);
        at = next;
    }
}

/// Frees the tables under `root` and `root` itself. No CPU can walk them any more (INV-9), and no entry of a page is
/// left. Gives way between tables.
pub(crate) fn free_tables<P: Platform>(mm: &Manager<'_, P>, root: FrameNumber, work: &mut Work<'_, '_, P>) {
    free_below(mm, root, (ROOT_LEVEL, 0), PageRange::new(PageNumber(0), 0), work, &mut |_| {});
}

/// Looks only where there may be something: at the entries of `range`, and further only for tables that are counted and
/// were not found there.
fn free_below<P: Platform>(
    mm: &Manager<'_, P>,
    table: FrameNumber,
    (level, base): (u32, u64),
    range: PageRange,
    work: &mut Work<'_, '_, P>,
    each: &mut dyn FnMut(Entry),
) {
    let p = mm.platform();
    let span = 1u64 << (9 * level);
    let slots = if level == ROOT_LEVEL { USER_ROOT_ENTRIES } else { 512 };
    let inside = PageRange::new(PageNumber(base), slots * span).intersect(range);
    let inside =
        inside.map_or(0..0, |part| (part.start.0 - base) / span..(part.end().0 - 1 - base) / span + 1);
    let outside = (0..slots).filter(|i| !inside.contains(i));
    let mut tables = if level == 0 { 0 } else { mm.memmap().get(table).refs.load(p, Ordering::Acquire) };
    for i in inside.clone().chain(outside) {
        if tables == 0 && !inside.contains(&i) {
            break;
        }
        let entry = slot(mm, (table, level), i as usize).load();
        if level == 0 || is_large(entry, level) {
            each(entry);
            work.did(if entry == Entry::NONE { 1 } else { cost::FRAME });
        } else if entry.is_present() {
            // INV-9: the flush was of the tables on the way to the range. Of a whole space's there is no range.
            debug_assert!(
                range.pages == 0 || inside.contains(&i),
                "a table goes that is on the way to no page of the range"
            );
            tables -= 1;
            free_below(mm, entry.frame(), (level - 1, base + i * span), range, work, each);
        }
    }
    if level == 1 {
        free_spares(mm, table);
    }
    mm.free_one(table);
    work.did(cost::FRAME);
}
