//! Four-level x86-64 tables on the direct map.
//!
//! A walk reads without a lock: tables are only ever added while a space lives, and are freed when it ends
//! (INV-9). What a leaf table holds is changed under that table's own lock, which lies in its frame's
//! bookkeeping. Its `refs` there count the entries that are present.

use core::sync::atomic::Ordering;

use super::Entry;
use crate::Manager;
use crate::addr::{FrameNumber, PageNumber, PhysAddr};
use crate::error::Error;
use crate::frame::{AllocFrom, Frame, Kind};
use crate::platform::Platform;
use crate::sync::{SpinGuard, Word64};

/// The level of the table to which the root's entries lead to: 3 is the root's own.
const ROOT_LEVEL: u32 = 3;

/// A leaf table.
#[derive(Clone, Copy)]
pub(crate) struct Leaf {
    table: FrameNumber,
}

/// A leaf table with its lock held.
pub(crate) struct LockedLeaf<'a, 'p, P: Platform> {
    mm: &'a Manager<'p, P>,
    leaf: Leaf,
    _lock: SpinGuard<'a, P>,
}

fn word<'p, P: Platform>(mm: &Manager<'p, P>, table: FrameNumber, index: usize) -> &'p Word64 {
    let at = PhysAddr(table.phys().0 + 8 * index as u64);
    // SAFETY: `table` is a frame of kind `Table`, which the direct map covers and which nobody frees while a
    // walk can reach it (INV-9); the entry lies inside, aligned. `Word64` is an atomic, as the hardware's
    // own updates of accessed and dirty bits demand.
    unsafe { &*mm.platform().direct(at).cast() }
}

/// The leaf table on the way to `page`, if there is one.
pub(crate) fn find<P: Platform>(mm: &Manager<'_, P>, root: FrameNumber, page: PageNumber) -> Option<Leaf> {
    let mut table = root;
    for level in (1..=ROOT_LEVEL).rev() {
        // Acquire: partner of the Release that published the table.
        let entry = Entry(word(mm, table, page.index(level)).load(mm.platform(), Ordering::Acquire));
        if !entry.is_present() {
            return None;
        }
        table = entry.frame();
    }
    Some(Leaf { table })
}

/// The first page at or after `page` that a leaf table might map, given that `page` has none.
pub(crate) fn skip<P: Platform>(mm: &Manager<'_, P>, root: FrameNumber, page: PageNumber) -> PageNumber {
    let mut table = root;
    for level in (1..=ROOT_LEVEL).rev() {
        let entry = Entry(word(mm, table, page.index(level)).load(mm.platform(), Ordering::Acquire));
        if !entry.is_present() {
            let span = 1 << (9 * level);
            return PageNumber((page.0 / span + 1) * span);
        }
        table = entry.frame();
    }
    page
}

/// The leaf table on the way to `page`, made where it is missing. May reclaim; no lock may be held. Tables
/// that were made before memory ran out stay, empty, and are found the next time.
pub(crate) fn find_or_make<P: Platform>(
    mm: &Manager<'_, P>,
    root: FrameNumber,
    page: PageNumber,
) -> Result<Leaf, Error> {
    let p = mm.platform();
    let mut table = root;
    for level in (1..=ROOT_LEVEL).rev() {
        let slot = word(mm, table, page.index(level));
        let entry = Entry(slot.load(p, Ordering::Acquire));
        if entry.is_present() {
            table = entry.frame();
            continue;
        }
        let new = make_table(mm, AllocFrom::HERE)?;
        // Release: the table is zeroed, its lock and count ready, before anybody can walk into it.
        table = match slot.replace(p, entry.0, Entry::table(new).0, Ordering::AcqRel) {
            Ok(_) => new,
            Err(theirs) => {
                mm.free_one(new);
                Entry(theirs).frame()
            }
        };
    }
    Ok(Leaf { table })
}

/// An empty table.
pub(crate) fn make_table<P: Platform>(mm: &Manager<'_, P>, from: AllocFrom) -> Result<FrameNumber, Error> {
    let table = mm.alloc_one(Kind::Table, from)?;
    mm.platform().clear_frame(table);
    mm.frames().get(table).prepare_table(mm.platform());
    Ok(table)
}

/// Frees the tables under `root` and `root` itself. No CPU can walk them any more (INV-9), and no present
/// leaf entry is left.
pub(crate) fn free_tables<P: Platform>(mm: &Manager<'_, P>, root: FrameNumber) -> u64 {
    fn below<P: Platform>(mm: &Manager<'_, P>, table: FrameNumber, level: u32) -> u64 {
        let mut freed = 1;
        if level > 0 {
            // The upper half of the root belongs to the kernel.
            let user = if level == ROOT_LEVEL { 256 } else { 512 };
            for i in 0..user {
                let entry = Entry(word(mm, table, i).load(mm.platform(), Ordering::Acquire));
                if entry.is_present() {
                    freed += below(mm, entry.frame(), level - 1);
                }
            }
        }
        mm.free_one(table);
        freed
    }
    below(mm, root, ROOT_LEVEL)
}

/// Tables under `root`, with it: for audits of a quiet system.
pub(crate) fn count<P: Platform>(
    mm: &Manager<'_, P>,
    root: FrameNumber,
    visit: &mut dyn FnMut(PageNumber, Entry),
) -> u64 {
    fn below<P: Platform>(
        mm: &Manager<'_, P>,
        table: FrameNumber,
        level: u32,
        base: u64,
        visit: &mut dyn FnMut(PageNumber, Entry),
    ) -> u64 {
        let user = if level == ROOT_LEVEL { 256 } else { 512 };
        let mut found = 1;
        for i in 0..user {
            let entry = Entry(word(mm, table, i).get(mm.platform()));
            let at = base + ((i as u64) << (9 * level));
            match level {
                0 => visit(PageNumber(at), entry),
                _ if entry.is_present() => found += below(mm, entry.frame(), level - 1, at, visit),
                _ => {}
            }
        }
        found
    }
    below(mm, root, ROOT_LEVEL, 0, visit)
}

impl Leaf {
    pub fn lock<'a, 'p, P: Platform>(self, mm: &'a Manager<'p, P>) -> LockedLeaf<'a, 'p, P> {
        let frame: &'p Frame = mm.frames().get(self.table);
        LockedLeaf { mm, leaf: self, _lock: frame.table_lock().lock(mm) }
    }
}

impl<P: Platform> LockedLeaf<'_, '_, P> {
    fn word(&self, page: PageNumber) -> &Word64 {
        word(self.mm, self.leaf.table, page.index(0))
    }

    /// What the entry says now. The hardware may set accessed and dirty bits at any time.
    pub fn read(&self, page: PageNumber) -> Entry {
        Entry(self.word(page).load(self.mm.platform(), Ordering::Acquire))
    }

    /// Makes a page present where none is.
    pub fn fill(&self, page: PageNumber, entry: Entry) {
        self.word(page).store(self.mm.platform(), entry.0, Ordering::Release);
        self.count(1);
    }

    /// Takes a present entry out in one step, so that a dirty bit set at the last moment is in what this
    /// gives.
    pub fn take(&self, page: PageNumber) -> Entry {
        let old = Entry(self.word(page).swap(self.mm.platform(), Entry::NONE.0, Ordering::AcqRel));
        if old.is_present() {
            self.count(-1);
        }
        old
    }

    /// Says in an entry that is not present that its flush was deferred, or that nothing is there.
    pub fn mark(&self, page: PageNumber, entry: Entry) {
        self.word(page).store(self.mm.platform(), entry.0, Ordering::Release);
    }

    /// Clears bits of a present entry in one step (INV-10).
    pub fn clear_bits(&self, page: PageNumber, bits: u64) {
        self.word(page).fetch_and(self.mm.platform(), !bits, Ordering::AcqRel);
    }

    /// PITFALLS 38: what [`clear_bits`](Self::clear_bits) must not be.
    pub fn clear_bits_torn(&self, page: PageNumber, bits: u64) {
        let seen = self.read(page);
        self.word(page).store(self.mm.platform(), seen.0 & !bits, Ordering::Release);
    }

    fn count(&self, by: i32) {
        let refs = &self.mm.frames().get(self.leaf.table).refs;
        refs.set(self.mm.platform(), refs.get(self.mm.platform()).wrapping_add_signed(by));
    }
}
