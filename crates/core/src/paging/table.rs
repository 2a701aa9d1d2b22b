//! Four-level tables on the direct map.
//!
//! A walk reads without a lock. Tables are added while their space's VMAs are shared, or by who is in one of them; they are
//! taken out of the tree only by who has the VMAs alone, where no VMA lies, and freed only when no CPU and no reverse map can be in them any more
//! (INV-9). What a leaf table holds is changed under that table's own lock, which lies in its frame's bookkeeping;
//! an entry for a large page under the lock of the table that holds it. The `refs` of a table's frame count the tables
//! below it.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{FrameNumber, LARGE_PAGES, PageNumber, PageRange, PhysAddr};
use crate::architecture::Architecture;
use crate::error::Error;
use crate::frame::AllocFrom;
use crate::handle::GroupSlot;
use crate::kind::Kind;
use crate::memmap::Frame;
use crate::paging::{Entry, Prot, Stamp};
use crate::platform::Platform;
use crate::resched::{Work, cost};
use crate::rule::Rule;
use crate::sync::{SpinGuard, Word64, full_fence};

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

/// The place of an entry in a table, where it lies as the architecture wants it.
struct Slot<'p, P> {
    p: &'p P,
    word: &'p Word64,
    level: u32,
}

fn slot<'p, P: Platform>(
    mm: &Manager<'p, P>,
    (table, level): (FrameNumber, u32),
    index: usize,
) -> Slot<'p, P> {
    let p = mm.platform();
    let at = PhysAddr(table.phys().0 + 8 * index as u64);
    // SAFETY: `table` is a frame of kind `Table`, which the direct map covers and which nobody frees while a
    // walk can reach it (INV-9); the entry lies inside, aligned. `Word64` is an atomic, as the hardware's
    // own updates of accessed and dirty bits demand.
    Slot { p, word: unsafe { &*p.direct(at).cast() }, level }
}

impl<P: Platform> Slot<'_, P> {
    #[inline(always)]
    fn encode(&self, entry: Entry) -> u64 {
        entry.encode(self.p.architecture(), self.level)
    }

    #[inline(always)]
    fn decode(&self, word: u64) -> Entry {
        Entry::decode(word, self.p.architecture(), self.level)
    }

    #[cfg_attr(loom, track_caller)]
    #[inline(always)]
    fn load(&self) -> Entry {
        // Acquire: partner of the Release that published the table.
        self.decode(self.word.load(self.p, Ordering::Acquire))
    }

    /// Where nobody else changes it.
    #[cfg_attr(loom, track_caller)]
    #[inline(always)]
    fn get(&self) -> Entry {
        self.decode(self.word.get(self.p))
    }

    /// Where nobody else sees it.
    #[cfg_attr(loom, track_caller)]
    #[inline(always)]
    fn set(&self, entry: Entry) {
        self.word.set(self.p, self.encode(entry));
    }

    #[cfg_attr(loom, track_caller)]
    #[inline(always)]
    fn store(&self, entry: Entry) {
        self.word.store(self.p, self.encode(entry), Ordering::Release);
    }

    #[cfg_attr(loom, track_caller)]
    #[inline(always)]
    fn swap(&self, entry: Entry) -> Entry {
        self.decode(self.word.swap(self.p, self.encode(entry), Ordering::AcqRel))
    }

    /// Puts `new` in the place of `old`, or returns what is there instead.
    #[cfg_attr(loom, track_caller)]
    #[inline(always)]
    fn replace(&self, old: Entry, new: Entry) -> Result<(), Entry> {
        let replaced = self.word.replace(self.p, self.encode(old), self.encode(new), Ordering::AcqRel);
        replaced.map(drop).map_err(|now| self.decode(now))
    }

    /// Changes what it says, in one step of which no bit that the hardware sets meanwhile is lost; returns what was there.
    #[cfg_attr(loom, track_caller)]
    #[inline(always)]
    fn update(&self, change: impl Fn(Entry) -> Entry) -> Entry {
        let mut seen = self.load();
        while let Err(now) = self.replace(seen, change(seen)) {
            seen = now;
        }
        seen
    }

    /// The same, of bits: by one instruction where they lie in the word as they do in the entry.
    #[cfg_attr(loom, track_caller)]
    #[inline(always)]
    fn clear_bits(&self, bits: u64) -> Entry {
        match self.p.architecture() {
            Architecture::X86_64 => Entry(self.word.fetch_and(self.p, !bits, Ordering::AcqRel)),
            _ => self.update(|entry| Entry(entry.0 & !bits)),
        }
    }

    #[cfg_attr(loom, track_caller)]
    #[inline(always)]
    fn set_bits(&self, bits: u64) {
        match self.p.architecture() {
            Architecture::X86_64 => drop(self.word.fetch_or(self.p, bits, Ordering::AcqRel)),
            _ => drop(self.update(|entry| Entry(entry.0 | bits))),
        }
    }
}

/// Whether an entry of a table of this level is, or was until it was taken, a large page.
fn is_large(entry: Entry, level: u32) -> bool {
    level == LARGE_LEVEL && entry.has(Entry::LARGE) && (entry.is_mapped() || entry.is_taken())
}

/// The way to `page`, as far as it goes.
pub(crate) fn find<P: Platform>(mm: &Manager<'_, P>, root: FrameNumber, page: PageNumber) -> Way {
    let mut table = root;
    for level in (1..=ROOT_LEVEL).rev() {
        let entry = slot(mm, (table, level), page.index(level)).load();
        if is_large(entry, level) {
            return Way::Large(Leaf { table, level });
        }
        if !entry.is_present() {
            let span = 1 << (9 * level);
            return Way::Gap(PageNumber((page.0 / span + 1) * span));
        }
        table = entry.frame();
    }
    Way::Small(Leaf { table, level: 0 })
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
    let mut table = root;
    for level in (1..=ROOT_LEVEL).rev() {
        table = match step(mm, table, level, page, payer)? {
            Ok(next) => next,
            Err(large) => return Ok(large),
        };
    }
    Ok(Leaf { table, level: 0 })
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
        if let Ok(next) = step(mm, table, level, page, payer)? {
            table = next;
        }
    }
    Ok(Leaf { table, level: LARGE_LEVEL })
}

/// The table whose entry for `page` may be a large page, where the tables above it are there. By who has the VMAs alone.
pub(crate) fn large_of<P: Platform>(mm: &Manager<'_, P>, root: FrameNumber, page: PageNumber) -> Leaf {
    let above = (LARGE_LEVEL + 1..=ROOT_LEVEL).rev();
    let table = above.fold(root, |table, level| slot(mm, (table, level), page.index(level)).load().frame());
    Leaf { table, level: LARGE_LEVEL }
}

/// Takes the table of small pages that `page` is in out of the tree; nothing takes its place. What is in it can be looked at until it is freed: when
/// no CPU and no reverse map can be in it any more (INV-9). By who has the VMAs alone.
pub(crate) fn unhook_small<P: Platform>(mm: &Manager<'_, P>, root: FrameNumber, page: PageNumber) {
    let above = large_of(mm, root, page);
    above.lock(mm).take(page);
    mm.memmap().get(above.table).refs.fetch_sub(mm.platform(), 1, Ordering::Relaxed);
}

/// Makes a table empty that no CPU can walk any more, and that is kept for later.
pub(crate) fn empty<P: Platform>(mm: &Manager<'_, P>, table: FrameNumber) {
    mm.platform().clear_frame(table);
    mm.memmap().get(table).prepare_table(mm.platform());
}

/// From a table to the next one below, made if it is missing; the inner error is a large page in its place.
fn step<P: Platform>(
    mm: &Manager<'_, P>,
    table: FrameNumber,
    level: u32,
    page: PageNumber,
    payer: &impl Fn() -> GroupSlot,
) -> Result<Result<FrameNumber, Leaf>, Error> {
    let slot = slot(mm, (table, level), page.index(level));
    let entry = slot.load();
    if is_large(entry, level) {
        return Ok(Err(Leaf { table, level }));
    }
    if entry.is_present() {
        return Ok(Ok(entry.frame()));
    }
    let new = make_table(mm, AllocFrom::HERE, payer())?;
    // Release: the table is zeroed and its lock ready, before anybody can walk into it.
    match slot.replace(entry, Entry::table(new)) {
        Ok(()) => {
            mm.memmap().get(table).refs.fetch_add(mm.platform(), 1, Ordering::Relaxed);
            Ok(Ok(new))
        }
        Err(_) => {
            mm.free_one(new);
            step(mm, table, level, page, payer)
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
}

/// Whether a table may go with a range: one that leads to nothing but pages in `gap`.
pub(crate) fn goes(range: PageRange, gap: PageRange) -> bool {
    let ends = [range.start, PageNumber(range.end().0 - 1)];
    ends.into_iter().any(|page| gap.covers(PageRange::new(page.large(), LARGE_PAGES)))
        || range.pages > 2 * LARGE_PAGES
}

/// Whether a table on the way to an end of `range` leads to others than pages in `gap`, and to none but those in `wider`.
pub(crate) fn goes_with_more(range: PageRange, gap: PageRange, wider: PageRange) -> bool {
    let ends = [range.start, PageNumber(range.end().0 - 1)];
    (1..=ROOT_LEVEL).any(|level| {
        let span = 1u64 << (9 * level);
        let under = ends.map(|page| PageRange::new(PageNumber(page.0 / span * span), span));
        under.iter().any(|&under| wider.covers(under) && !gap.covers(under))
    })
}

/// Takes every table on the way to `range` that leads to nothing but pages in `gap` out of the tree of `root`. By who
/// has the VMAs alone, none of which lies in `gap` but those of `range`, which are being unmapped.
pub(crate) fn unhook<P: Platform>(
    mm: &Manager<'_, P>,
    root: FrameNumber,
    range: PageRange,
    gap: PageRange,
) -> Unhooked {
    fn below<P: Platform>(
        mm: &Manager<'_, P>,
        table: FrameNumber,
        (level, base): (u32, u64),
        (range, gap): (PageRange, PageRange),
        chain: &mut Unhooked,
    ) {
        let p = mm.platform();
        let span = 1u64 << (9 * level);
        let first = range.start.0.max(base);
        let last = (range.end().0 - 1).min(base + span * 512 - 1);
        for i in (first - base) / span..=(last - base) / span {
            let slot = slot(mm, (table, level), i as usize);
            let entry = slot.load();
            if !entry.is_present() || is_large(entry, level) {
                continue;
            }
            let (child, at) = (entry.frame(), base + i * span);
            if gap.covers(PageRange::new(PageNumber(at), span)) {
                slot.store(Entry::NONE);
                mm.memmap().get(table).refs.fetch_sub(p, 1, Ordering::Relaxed);
                let frame = mm.memmap().get(child);
                frame.owner.set(p, chain.first.0);
                // Its first page, and, in the low bits that are 0 there, its level.
                frame.index.set(p, at | u64::from(level - 1));
                chain.first = child;
            } else if level > 1 {
                below(mm, child, (level - 1, at), (range, gap), chain);
            }
        }
    }
    let mut chain = Unhooked::NONE;
    below(mm, root, (ROOT_LEVEL, 0), (range, gap), &mut chain);
    chain
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
    mm.free_one(table);
    work.did(cost::FRAME);
}

/// How many tables there are under `root`, with it. By who shares the VMAs: none goes meanwhile. Gives way between tables.
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
        if level == 1 || children == 0 {
            return children;
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
    let (mut found, mut own, mut good) = (0, 0, true);
    for i in first..=last {
        let entry = slot(mm, (table, level), i as usize).get();
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

    /// Sets an entry of a kernel range, without a lock: it belongs to who has its extent.
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

    /// Clears bits of a present entry in one step (INV-10); gives what was there.
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
    /// gives what was there.
    pub fn set_prot(&self, page: PageNumber, prot: Prot) -> Entry {
        self.slot(page).update(|seen| seen.with_prot(prot))
    }

    /// Sets bits of a present entry in one step.
    pub fn set_bits(&self, page: PageNumber, bits: u64) {
        self.slot(page).set_bits(bits);
    }
}
