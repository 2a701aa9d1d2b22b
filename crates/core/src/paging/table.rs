//! Four-level tables on the direct map.
//!
//! A walk reads without a lock. Tables are added while their space's VMAs are shared, or by whoever is in one of them; they are
//! taken out of the tree only by whoever holds the VMAs alone, where no VMA lies, or where nothing is left of one whose reverse map it has alone too; and freed
//! only when no CPU and no reverse map can be in them any more (INV-9). What a leaf table holds is changed under that table's own lock, which lies in its frame's bookkeeping;
//! an entry for a large page under the lock of the table that holds it. The `refs` of a table's frame count the tables
//! below it.

mod count;
mod emptied;
mod slot;
mod spare;
mod unhook;

use core::sync::atomic::Ordering;

use slot::{Slot, slot};

use crate::Manager;
use crate::addr::{FrameNumber, LARGE_PAGES, PageNumber, PageRange};
use crate::error::Error;
use crate::frame::AllocFrom;
use crate::handle::GroupSlot;
use crate::kind::Kind;
use crate::memmap::Frame;
use crate::paging::{Entry, Prot, Stamp};
use crate::platform::Platform;
use crate::rule::Rule;
use crate::sync::{SpinGuard, full_fence};

pub(crate) use count::{count, count_kernel, count_tables, each_span};
pub(crate) use emptied::{Emptied, each_emptied};
pub(crate) use spare::{make_spare, make_spares};
pub(crate) use unhook::{Unhooked, free_tables, free_unhooked, goes, unhook, unhook_into, unhook_small};

/// The level of the table to which the root's entries lead to: 3 is the root's own.
const ROOT_LEVEL: u32 = 3;
/// The level of tables whose entries may be large pages.
const LARGE_LEVEL: u32 = 1;
/// The upper half of the root belongs to the kernel.
const USER_ROOT_ENTRIES: u64 = 256;

/// A table that holds entries of pages: of small ones, or, a level up, of large ones.
#[derive(Clone, Copy)]
pub(crate) struct Leaf {
    table: FrameNumber,
    level: u32,
}

/// Where the way to a page ends.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    /// In a table of small pages.
    Small(Leaf),
    /// At a large page, mapped or taken.
    Large(Leaf),
    /// Nowhere; the first page after it to which a way may lead.
    Gap(PageNumber),
}

/// A leaf table with its lock held.
pub(crate) struct LockedLeaf<'a, 'p, P: Platform> {
    mm: &'a Manager<'p, P>,
    leaf: Leaf,
    _lock: SpinGuard<'a, P>,
}

/// Whether an entry of a table of this level is, or was until it was taken, a large page.
fn is_large(entry: Entry, level: u32) -> bool {
    level == LARGE_LEVEL && entry.has(Entry::LARGE) && (entry.is_mapped() || entry.is_taken())
}

/// The way to `page`, as far as it goes.
pub(crate) fn find<P: Platform>(mm: &Manager<'_, P>, root: FrameNumber, page: PageNumber) -> Way {
    let below = |table, level| {
        let entry = slot(mm, (table, level), page.index(level)).load();
        match there(entry, (table, level)) {
            Some(Ok(next)) => Ok(next),
            Some(Err(large)) => Err(Way::Large(large)),
            None => {
                let span = 1 << (9 * level);
                Err(Way::Gap(PageNumber((page.0 / span + 1) * span)))
            }
        }
    };
    // Each level by itself: the compiler then knows its shifts.
    let leaf =
        below(root, ROOT_LEVEL).and_then(|table| below(table, 2)).and_then(|table| below(table, LARGE_LEVEL));
    leaf.map_or_else(|way| way, |table| Way::Small(Leaf { table, level: 0 }))
}

/// The table with the entry of `page`, small or large, made with those above it where it is missing. May reclaim; no
/// spin lock may be held. Tables that were made before memory ran out stay, empty, and are found the next time. `payer` is asked who is
/// charged with a table that is made.
pub(crate) fn find_or_make<P: Platform>(
    mm: &Manager<'_, P>,
    root: FrameNumber,
    page: PageNumber,
    payer: &impl Fn() -> GroupSlot,
) -> Result<Leaf, Error> {
    let below = |table, level| {
        let entry = slot(mm, (table, level), page.index(level)).load();
        match there(entry, (table, level)) {
            Some(there) => there.map_err(Ok),
            None => match make(mm, (table, level), entry, page, payer) {
                Ok(there) => there.map_err(Ok),
                Err(error) => Err(Err(error)),
            },
        }
    };
    let leaf =
        below(root, ROOT_LEVEL).and_then(|table| below(table, 2)).and_then(|table| below(table, LARGE_LEVEL));
    match leaf {
        Ok(table) => Ok(Leaf { table, level: 0 }),
        Err(large) => large,
    }
}

/// The table whose entry for `page` may be a large page, with the tables above it.
pub(crate) fn find_or_make_large<P: Platform>(
    mm: &Manager<'_, P>,
    root: FrameNumber,
    page: PageNumber,
    payer: &impl Fn() -> GroupSlot,
) -> Result<Leaf, Error> {
    let mut table = root;
    for level in (LARGE_LEVEL + 1..=ROOT_LEVEL).rev() {
        let entry = slot(mm, (table, level), page.index(level)).load();
        let next = match there(entry, (table, level)) {
            Some(next) => next,
            None => make(mm, (table, level), entry, page, payer)?,
        };
        table = next.unwrap_or(table);
    }
    Ok(Leaf { table, level: LARGE_LEVEL })
}

/// The table whose entry for `page` may be a large page, where the tables above it are there. By whoever holds the VMAs alone.
pub(crate) fn large_of<P: Platform>(mm: &Manager<'_, P>, root: FrameNumber, page: PageNumber) -> Leaf {
    let above = (LARGE_LEVEL + 1..=ROOT_LEVEL).rev();
    let table = above.fold(root, |table, level| slot(mm, (table, level), page.index(level)).load().frame());
    Leaf { table, level: LARGE_LEVEL }
}

/// Makes a table empty that no CPU can walk any more, and that is kept for later.
pub(crate) fn empty<P: Platform>(mm: &Manager<'_, P>, table: FrameNumber) {
    mm.platform().clear_frame(table);
    mm.memmap().get(table).prepare_table(mm.platform());
}

/// Where an entry of a table leads: to the next one below, or to a large page in its place.
#[inline(always)]
fn there(entry: Entry, (table, level): (FrameNumber, u32)) -> Option<Result<FrameNumber, Leaf>> {
    if is_large(entry, level) {
        return Some(Err(Leaf { table, level }));
    }
    entry.is_present().then(|| Ok(entry.frame()))
}

/// Makes a table where an entry led nowhere, unless somebody else is faster.
#[inline(never)]
fn make<P: Platform>(
    mm: &Manager<'_, P>,
    (table, level): (FrameNumber, u32),
    mut entry: Entry,
    page: PageNumber,
    payer: &impl Fn() -> GroupSlot,
) -> Result<Result<FrameNumber, Leaf>, Error> {
    let slot = slot(mm, (table, level), page.index(level));
    loop {
        let new = make_table(mm, AllocFrom::HERE, payer())?;
        // Release: the table is zeroed and its lock ready, before anybody can walk into it.
        if slot.replace(entry, Entry::table(new)).is_ok() {
            mm.memmap().get(table).refs.fetch_add(mm.platform(), 1, Ordering::Relaxed);
            return Ok(Ok(new));
        }
        mm.free_one(new);
        entry = slot.load();
        if let Some(there) = there(entry, (table, level)) {
            return Ok(there);
        }
    }
}

/// Makes the entries of a kernel range in the top table, once and for all: every space's root has the same ones, so that
/// what is mapped below them is mapped in all spaces at once. Before any CPU uses the manager.
pub(crate) fn make_kernel_top<P: Platform>(
    mm: &Manager<'_, P>,
    root: FrameNumber,
    range: PageRange,
) -> Result<(), Error> {
    for slot in kernel_slots(mm, root, range) {
        if !slot.get().is_present() {
            slot.store(Entry::table(make_table(mm, AllocFrom::NOW, GroupSlot::NONE)?));
        }
    }
    Ok(())
}

/// Puts the kernel range's part of one top table into another, which nobody can see yet.
pub(crate) fn share_kernel_top<P: Platform>(
    mm: &Manager<'_, P>,
    from: FrameNumber,
    to: FrameNumber,
    range: PageRange,
) {
    for (from, to) in kernel_slots(mm, from, range).zip(kernel_slots(mm, to, range)) {
        to.set(from.get());
    }
}

/// The words of a top table on the way to a kernel range.
fn kernel_slots<'p, P: Platform>(
    mm: &Manager<'p, P>,
    root: FrameNumber,
    range: PageRange,
) -> impl Iterator<Item = Slot<'p, P>> {
    let last = PageNumber(range.end().0 - 1).index(ROOT_LEVEL);
    (range.start.index(ROOT_LEVEL)..=last).map(move |index| slot(mm, (root, ROOT_LEVEL), index))
}

/// An empty table, with which this group is charged.
pub(crate) fn make_table<P: Platform>(
    mm: &Manager<'_, P>,
    from: AllocFrom,
    group: GroupSlot,
) -> Result<FrameNumber, Error> {
    let table = mm.alloc_charged(Kind::Table, from, group)?;
    empty(mm, table);
    Ok(table)
}

impl Leaf {
    pub fn lock<'a, 'p, P: Platform>(self, mm: &'a Manager<'p, P>) -> LockedLeaf<'a, 'p, P> {
        let frame: &'p Frame = mm.memmap().get(self.table);
        LockedLeaf { mm, leaf: self, _lock: frame.table_lock().lock(mm) }
    }

    /// The frame of the table.
    pub fn frame(self) -> FrameNumber {
        self.table
    }

    /// Pages that each of its entries covers.
    pub fn step(self) -> u64 {
        if self.level == 0 { 1 } else { LARGE_PAGES }
    }

    /// One past the last page that it covers from `page` on: of a table of large pages, one entry.
    pub fn end(self, page: PageNumber) -> PageNumber {
        PageNumber((page.0 / LARGE_PAGES + 1) * LARGE_PAGES)
    }

    /// Whether its entries are large pages.
    pub fn is_large(self) -> bool {
        self.level == LARGE_LEVEL
    }

    /// What an entry says, without the lock: it may be another a moment later.
    pub fn peek<P: Platform>(self, mm: &Manager<'_, P>, page: PageNumber) -> Entry {
        self.slot(mm, page).load()
    }

    fn slot<'p, P: Platform>(self, mm: &Manager<'p, P>, page: PageNumber) -> Slot<'p, P> {
        slot(mm, (self.table, self.level), page.index(self.level))
    }

    /// Sets an entry of a kernel range, without a lock: it belongs to whoever has its extent.
    pub fn put<P: Platform>(self, mm: &Manager<'_, P>, page: PageNumber, entry: Entry) {
        self.slot(mm, page).store(entry);
    }

    /// Writes an entry of a table of small pages that nobody can see yet.
    pub fn prepare<P: Platform>(mm: &Manager<'_, P>, table: FrameNumber, index: usize, entry: Entry) {
        slot(mm, (table, 0), index).set(entry);
    }
}

impl<P: Platform> LockedLeaf<'_, '_, P> {
    /// Whether its entries are large pages.
    pub fn is_large(&self) -> bool {
        self.leaf.is_large()
    }

    fn slot(&self, page: PageNumber) -> Slot<'_, P> {
        self.leaf.slot(self.mm, page)
    }

    /// What the entry says now. The hardware may set accessed and dirty bits at any time.
    pub fn read(&self, page: PageNumber) -> Entry {
        self.slot(page).load()
    }

    /// Makes a page present where none is, or says in an entry that is not present what the next one must know.
    pub fn write(&self, page: PageNumber, entry: Entry) {
        self.slot(page).store(entry);
    }

    /// Makes a large page present where nothing is, not even a table.
    pub fn fill_empty(&self, page: PageNumber, entry: Entry) -> bool {
        self.slot(page).replace(Entry::NONE, entry).is_ok()
    }

    /// Puts a table of small pages, which says what the large one said when it was `seen`, in its place. If that says something
    /// else by then, `fill` makes the table say so before: from the step on in which it takes its place others change what is
    /// in it, under its own lock.
    pub fn put_table(&self, page: PageNumber, mut seen: Entry, table: FrameNumber, fill: impl Fn(Entry)) {
        let (p, slot, new) = (self.mm.platform(), self.slot(page), Entry::table(table));
        if p.broken(Rule::SplitWhole) {
            // It is finished where others find it already.
            let now = self.replace(page, new);
            if now != seen {
                fill(now);
            }
        } else {
            // Release: partner of the Acquire of a walk. The hardware sets two bits at most meanwhile, each once.
            while let Err(now) = slot.replace(seen, new) {
                seen = now;
                fill(seen);
            }
        }
        self.mm.memmap().get(self.leaf.table).refs.fetch_add(p, 1, Ordering::Relaxed);
    }

    /// Takes an entry out in one step, so that a dirty bit set at the last moment is in what this gives.
    pub fn take(&self, page: PageNumber) -> Entry {
        self.replace(page, Entry::NONE)
    }

    /// The same, with an entry that is not present in its place.
    pub fn replace(&self, page: PageNumber, with: Entry) -> Entry {
        self.slot(page).swap(with)
    }

    /// Clears bits of a present entry in one step (INV-10); returns what was there.
    pub fn clear_bits(&self, page: PageNumber, bits: u64) -> Entry {
        self.slot(page).clear_bits(bits)
    }

    /// Clears the accessed bit, in steps of which no bit that the hardware sets meanwhile is lost (INV-10), and stamps the
    /// entry with the sweep after which no CPU has cached it (INV-13). Nothing else clears that bit.
    ///
    /// ```text
    ///   this CPU                                who begins a sweep, and those who join it
    ///   epoch: 4
    ///   entry: not accessed, until sweep 5      epoch = 5
    ///   ---- fence ----                         read it, then flush: after the entry was cleared
    ///   epoch: 5! perhaps it began before:
    ///   entry: until sweep 6
    /// ```
    ///
    /// Nobody judges the first stamp meanwhile: that takes the lock of this table. A bit that the hardware sets between two of these steps is
    /// cleared by the second, as by the first.
    pub fn age(&self, page: PageNumber) {
        let (mm, p) = (self.mm, self.mm.platform());
        if p.broken(Rule::AtomicAccessedClear) {
            // PITFALLS 38: a bit that the hardware sets in between is lost.
            let seen = self.read(page);
            return self.write(page, Entry(seen.0 & !Entry::ACCESSED));
        }
        if !mm.stamps() {
            self.clear_bits(page, Entry::ACCESSED);
            return;
        }
        self.stamp(page, |stamp| _ = self.slot(page).update(|seen| seen.aged(stamp)));
    }

    /// Makes a page present, where nothing is, by an entry that looks as if aging had cleared its accessed bit now: stamped as one, though
    /// no CPU has cached it yet (INV-13).
    pub fn write_idle(&self, page: PageNumber, entry: Entry) {
        if self.mm.stamps() {
            self.stamp(page, |stamp| self.write(page, entry.aged(stamp)));
        } else {
            self.write(page, Entry(entry.0 & !Entry::ACCESSED));
        }
    }

    /// The steps that `age` draws. The first makes the entry not accessed, and each later one stamps it anew.
    fn stamp(&self, page: PageNumber, first: impl FnOnce(Stamp)) {
        let (mm, p) = (self.mm, self.mm.platform());
        let mut epoch = mm.epoch();
        first(Stamp::after(p, epoch));
        loop {
            full_fence(p);
            let now = mm.epoch();
            if now == epoch || p.broken(Rule::EpochAgainAfterClear) {
                return;
            }
            epoch = now;
            self.slot(page).update(|seen| seen.aged(Stamp::after(p, epoch)));
        }
    }

    /// Puts `with` in the place of an entry that says what was `judged`, and nothing else by now; whether it did.
    pub fn take_judged(&self, page: PageNumber, judged: Entry, with: Entry) -> bool {
        let p = self.mm.platform();
        if p.broken(Rule::TakeWhatWasJudged) {
            self.replace(page, with);
            return true;
        }
        self.slot(page).replace(judged, with).is_ok()
    }

    /// Changes what may be done with a mapped page, in one step of which no bit that the hardware sets meanwhile is lost;
    /// returns what was there.
    pub fn set_prot(&self, page: PageNumber, prot: Prot) -> Entry {
        self.slot(page).update(|seen| seen.with_prot(prot))
    }

    /// Sets bits of a present entry in one step.
    pub fn set_bits(&self, page: PageNumber, bits: u64) {
        self.slot(page).set_bits(bits);
    }
}
