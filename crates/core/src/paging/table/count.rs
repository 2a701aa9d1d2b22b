//! How many tables a tree has, and what is in them.

use core::sync::atomic::Ordering;

use super::slot::slot;
use super::spare::count_spares;
use super::{ROOT_LEVEL, USER_ROOT_ENTRIES, is_large};
use crate::Manager;
use crate::addr::{FrameNumber, PageNumber, PageRange};
use crate::paging::Entry;
use crate::platform::Platform;
use crate::resched::{Work, cost};

/// How many tables there are under `root`, with it. By whoever shares the VMAs: none goes meanwhile. Gives way between tables.
pub(crate) fn count_tables<P: Platform>(
    mm: &Manager<'_, P>,
    root: FrameNumber,
    work: &mut Work<'_, '_, P>,
) -> u64 {
    fn below<P: Platform>(
        mm: &Manager<'_, P>,
        (table, level): (FrameNumber, u32),
        work: &mut Work<'_, '_, P>,
    ) -> u64 {
        work.did(cost::TABLE);
        let children = u64::from(mm.memmap().get(table).refs.load(mm.platform(), Ordering::Relaxed));
        if level == 1 {
            return children + count_spares(mm, table);
        }
        if children == 0 {
            return 0;
        }
        let slots = if level == ROOT_LEVEL { USER_ROOT_ENTRIES } else { 512 };
        let entries = (0..slots).map(|i| slot(mm, (table, level), i as usize).load());
        let tables = entries.filter(|&entry| entry.is_present() && !is_large(entry, level));
        children + tables.map(|entry| below(mm, (entry.frame(), level - 1), work)).sum::<u64>()
    }
    1 + below(mm, (root, ROOT_LEVEL), work)
}

/// Tables under `root`, with it, and every entry of a page; and whether each table counts those below it: for audits of a quiet
/// system.
pub(crate) fn count<P: Platform>(
    mm: &Manager<'_, P>,
    root: FrameNumber,
    visit: &mut dyn FnMut(PageNumber, Entry),
) -> (u64, bool) {
    let (found, good) = count_below(mm, root, (ROOT_LEVEL, 0), (0, USER_ROOT_ENTRIES - 1), visit);
    (1 + found, good)
}

/// The same below the part of the kernel's root that belongs to a kernel range, without the root, which counts none of them.
pub(crate) fn count_kernel<P: Platform>(
    mm: &Manager<'_, P>,
    root: FrameNumber,
    range: PageRange,
    visit: &mut dyn FnMut(PageNumber, Entry),
) -> u64 {
    let [first, last] = [range.start.0, range.end().0 - 1].map(|at| PageNumber(at).index(ROOT_LEVEL) as u64);
    // Addresses of the upper half are those of the lower with all bits above set.
    let base = PageNumber::KERNEL_START.0 - (USER_ROOT_ENTRIES << (9 * ROOT_LEVEL));
    count_below(mm, root, (ROOT_LEVEL, base), (first, last), visit).0
}

fn count_below<P: Platform>(
    mm: &Manager<'_, P>,
    table: FrameNumber,
    (level, base): (u32, u64),
    (first, last): (u64, u64),
    visit: &mut dyn FnMut(PageNumber, Entry),
) -> (u64, bool) {
    let spares = if level == 1 { count_spares(mm, table) } else { 0 };
    let (mut found, mut own, mut good) = (spares, 0, true);
    for i in first..=last {
        let entry = slot(mm, (table, level), i as usize).unseen();
        let at = base + (i << (9 * level));
        if level == 0 || is_large(entry, level) {
            visit(PageNumber(at), entry);
        } else if entry.is_present() {
            let (below, below_good) = count_below(mm, entry.frame(), (level - 1, at), (0, 511), visit);
            (found, own, good) = (found + 1 + below, own + 1, good && below_good);
        }
    }
    (found, good && (level == 0 || own == mm.memmap().get(table).refs.get(mm.platform())))
}

/// Shows `each` the addresses of every table below this one: for audits of a quiet system.
pub(crate) fn each_span<P: Platform>(
    mm: &Manager<'_, P>,
    root: FrameNumber,
    each: &mut dyn FnMut(PageRange),
) {
    fn below<P: Platform>(
        mm: &Manager<'_, P>,
        (table, level, base): (FrameNumber, u32, u64),
        each: &mut dyn FnMut(PageRange),
    ) {
        let (slots, span) = (if level == ROOT_LEVEL { USER_ROOT_ENTRIES } else { 512 }, 1u64 << (9 * level));
        if mm.memmap().get(table).refs.get(mm.platform()) == 0 {
            return;
        }
        for i in 0..slots {
            let entry = slot(mm, (table, level), i as usize).unseen();
            if entry.is_present() && !is_large(entry, level) {
                let at = base + i * span;
                each(PageRange::new(PageNumber(at), span));
                if level > 1 {
                    below(mm, (entry.frame(), level - 1, at), each);
                }
            }
        }
    }
    below(mm, (root, ROOT_LEVEL, 0), each);
}
