//! Free frames at hand on each CPU, so that most allocations and frees touch nothing that other CPUs touch.
//!
//! Each CPU has, for each zone, a list for each of the small orders. A list that runs dry takes a batch from its zone; a
//! CPU that holds more of a zone than it may gives the oldest batch back. What is on a list is free, and nobody else can
//! have it until the list is drained (see [`drain`](super::drain)).
//!
//! A CPU changes its lists in a [`Section`]: with interrupts off, and, where others may empty them (`drain=remote`), with
//! a lock that is its own. No section takes another lock or waits, so nobody waits long for one, and an interrupt
//! handler that empties the lists of its CPU never finds them half changed.

use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::table::Block;
use super::{Chain, Few, Frame, Kind, Loose, Zone, flag};
use crate::Manager;
use crate::addr::FrameNumber;
use crate::cpu::{CpuId, CpuMask};
use crate::error::Error;
use crate::event::Event;
use crate::percpu::{CpuSlot, Here};
use crate::platform::Platform;
use crate::policy::Drain;
use crate::profile::{self, Scope};
use crate::rule::Rule;
use crate::sync::{SpinLock, Ticket, Word32, Word64};

/// Orders 0 to 3 are kept at hand. Linux: up to `PAGE_ALLOC_COSTLY_ORDER`.
const ORDERS: usize = 4;
/// The largest batch, in frames.
pub(crate) const MAX_PAGE_BATCH: u32 = 63;

/// How many free frames of a zone a CPU keeps at hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListLimits {
    /// Frames that go from the zone to the list, or back, at a time: 1 to 63.
    pub batch: u32,
    /// More frames than this, and a batch goes back; at least `batch`. 0: nothing is kept at hand.
    pub high: u32,
}

impl ListLimits {
    pub(crate) fn check(self) -> Result<Self, Error> {
        if !(1..=MAX_PAGE_BATCH).contains(&self.batch) {
            return Err(Error::BadSetting("a list's batch must be 1 to 63"));
        }
        if self.high != 0 && self.high < self.batch {
            return Err(Error::BadSetting("a list's high must be 0 or at least its batch"));
        }
        Ok(self)
    }

    /// Linux's rule: a quarter of a thousandth of the zone, of 256 pages at most, times 1.5, rounded down to a power of
    /// two, less one; and the zone's low watermark, shared out to the CPUs of its node, but at least four batches.
    pub(crate) const fn linux(frames: u64, low: u64, cpus: u32) -> Self {
        let thousandth = if frames / 1024 < 256 { frames / 1024 } else { 256 };
        let batch = if thousandth < 4 { 1 } else { thousandth / 4 };
        let power = 1 << (batch + batch / 2).ilog2();
        let batch = if power < 2 { 1 } else { power - 1 };
        let share = low / if cpus == 0 { 1 } else { cpus } as u64;
        let share = if share > u32::MAX as u64 >> 1 { u32::MAX >> 1 } else { share as u32 };
        ListLimits { batch, high: if share > 4 * batch { share } else { 4 * batch } }
    }
}

/// Why nothing is kept at hand for now.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Pause {
    /// Memory of the zone goes offline.
    Leaving = 1,
    /// Tasks wait for frames: what is freed goes where they look, and needs no drain.
    Starved = 2,
}

/// The limits of a zone: set under its lock, read without.
#[repr(C)]
pub(crate) struct Limits {
    /// Those that count, in one word, so that whoever reads them gets two that belong together.
    now: Word64,
    /// What `high` is while it counts.
    high: Word32,
    /// A bit for each reason why it does not.
    paused: Word32,
}

impl Limits {
    /// Those that count now.
    #[inline(always)]
    pub fn get<P: Platform>(&self, p: &P) -> ListLimits {
        let now = self.now.get(p);
        ListLimits { batch: now as u32, high: (now >> 32) as u32 }
    }

    /// Those that were set.
    pub fn chosen<P: Platform>(&self, p: &P) -> ListLimits {
        ListLimits { batch: self.get(p).batch, high: self.high.get(p) }
    }

    /// Under the zone's lock, like all that follows.
    pub fn set<P: Platform>(&self, p: &P, limits: ListLimits) {
        self.high.set(p, limits.high);
        let high = if self.paused.get(p) == 0 { limits.high } else { 0 };
        self.now.set(p, u64::from(high) << 32 | u64::from(limits.batch));
    }

    /// Without the lock a guess.
    pub fn is_paused<P: Platform>(&self, p: &P, why: Pause) -> bool {
        self.paused.get(p) & why as u32 != 0
    }

    /// From now on nothing is kept at hand.
    pub fn pause<P: Platform>(&self, p: &P, why: Pause) {
        self.paused.set(p, self.paused.get(p) | why as u32);
        self.set(p, self.chosen(p));
    }

    /// No longer for this reason.
    pub fn resume<P: Platform>(&self, p: &P, why: Pause) {
        self.paused.set(p, self.paused.get(p) & !(why as u32));
        self.set(p, self.chosen(p));
    }
}

/// What a CPU has at hand, all zones together. One line: drainers look at it.
#[repr(C, align(64))]
pub(crate) struct PageLists {
    /// Taken only with `drain=remote`.
    lock: SpinLock<{ Scope::CpuListsLock as u8 }>,
    /// Frames on all lists.
    held: Word32,
    /// A bit for each zone that may have frames here, zones 64 apart sharing one. Zero: this CPU is in nobody's mask.
    zones: Word64,
    /// The lists, one [`ZoneLists`] for each zone. Like the next two set at start, then only read.
    lists: AtomicPtr<ZoneLists>,
    zone_count: AtomicUsize,
    /// Those of the zone that is nearest to this CPU.
    nearest: AtomicPtr<ZoneLists>,
}

impl PageLists {
    /// At start: where the lists are. They live as long as this does.
    pub fn init<P: Platform>(&self, p: &P, lists: &[ZoneLists]) {
        lists.iter().flat_map(|lists| &lists.chains).for_each(|chain| chain.init(p));
        self.lists.store(lists.as_ptr().cast_mut(), Ordering::Relaxed);
        self.zone_count.store(lists.len(), Ordering::Relaxed);
        self.set_nearest(0);
    }

    /// At start: which zone is nearest.
    pub fn set_nearest(&self, zone: usize) {
        let nearest = &raw const self.lists()[zone];
        self.nearest.store(nearest.cast_mut(), Ordering::Relaxed);
    }

    #[inline(always)]
    fn lists(&self) -> &[ZoneLists] {
        let (first, count) = (self.lists.load(Ordering::Relaxed), self.zone_count.load(Ordering::Relaxed));
        // SAFETY: `init` has set both, before any other CPU ran.
        unsafe { core::slice::from_raw_parts(first, count) }
    }

    #[inline(always)]
    fn nearest(&self) -> &ZoneLists {
        // SAFETY: `init` has set it, before any other CPU ran.
        unsafe { &*self.nearest.load(Ordering::Relaxed) }
    }

    /// Frames on all lists; a moment's truth for other CPUs.
    pub fn held<P: Platform>(&self, p: &P) -> u32 {
        self.held.get(p)
    }
}

/// What a CPU has at hand of one zone.
#[repr(C, align(64))]
pub(crate) struct ZoneLists {
    /// Frames, not blocks.
    count: Word32,
    /// By order, the youngest first.
    chains: [Chain; ORDERS],
}

// SAFETY: atomics; `PageLists::init` makes the chains.
unsafe impl crate::pool::Zeroed for ZoneLists {}

/// What became of a block that was offered to a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// It is on the list.
    Within,
    /// It is, and now the CPU has too much.
    Above,
    /// Not kept.
    Not,
}

/// CPUs that may have frames at hand: set by the CPU that gets its first, cleared by whoever empties its lists.
#[repr(C, align(64))]
pub(crate) struct Holders(pub CpuMask);

/// The lists of a CPU, to be changed.
///
/// Not a guard: what a guard does when a panic drops it would keep it in memory, with all its parts, for the whole of a
/// path that takes a few nanoseconds. After a panic in a section of a CPU's own nobody else gets in, to see its lists half
/// changed.
pub(crate) struct Section<'m, 'p, P: Platform> {
    mm: &'m Manager<'p, P>,
    cpu: CpuId,
    slot: &'p CpuSlot,
}

/// What ends a section of a CPU's own.
#[must_use = "a section that is never left keeps interrupts off"]
struct Leave {
    ticket: Option<Ticket>,
    were_on: bool,
}

impl<'m, 'p, P: Platform> Section<'m, 'p, P> {
    /// Works on this CPU's own.
    pub fn own<R>(mm: &'m Manager<'p, P>, work: impl FnOnce(&Self) -> R) -> R {
        let (section, leave) = Self::enter(mm);
        let result = work(&section);
        section.leave(leave);
        result
    }

    #[inline(always)]
    fn enter(mm: &'m Manager<'p, P>) -> (Self, Leave) {
        let p = mm.platform();
        let were_on = p.irqs_off();
        let section = Self::open(mm, p.this_cpu());
        let must_lock = mm.config().policy.drain == Drain::Remote && !p.broken(Rule::RemoteTakesLock);
        let ticket = must_lock.then(|| section.slot.pages.lock.take(mm));
        (section, Leave { ticket, were_on })
    }

    #[inline(always)]
    fn leave(self, leave: Leave) {
        let p = self.mm.platform();
        // In this order: the lock goes before interrupts come.
        if let Some(ticket) = leave.ticket {
            self.slot.pages.lock.release(self.mm, ticket);
        }
        if leave.were_on {
            p.irqs_on();
        }
    }

    /// Works on those of this CPU, in the handler of an interrupt.
    pub fn of_handler<R>(here: &Here<'m, 'p, P>, work: impl FnOnce(&Self) -> R) -> R {
        work(&Self::open(here.mm, here.cpu))
    }

    /// Works on those of any CPU: only where each takes its lock.
    pub fn of<R>(mm: &'m Manager<'p, P>, cpu: CpuId, work: impl FnOnce(&Self) -> R) -> R {
        // With interrupts off, so that the CPU whose lock this is never waits for a handler of ours.
        let _here = Here::new(mm);
        let section = Self::open(mm, cpu);
        let must_lock = !mm.platform().broken(Rule::RemoteTakesLock);
        let _guard = must_lock.then(|| section.slot.pages.lock.lock(mm));
        work(&section)
    }

    #[inline(always)]
    fn open(mm: &'m Manager<'p, P>, cpu: CpuId) -> Self {
        Section { mm, cpu, slot: mm.slot(cpu) }
    }

    /// Those of the zone that is nearest to this CPU.
    #[inline(always)]
    fn nearest(&self) -> &'p ZoneLists {
        self.slot.pages.nearest()
    }

    #[inline(always)]
    fn of_zone(&self, zone: usize) -> &'p ZoneLists {
        &self.slot.pages.lists()[zone]
    }

    /// Counts what this CPU does in a section of its own.
    #[inline(always)]
    fn emit(&self, event: Event) {
        self.mm.emit_at(self.slot, event);
    }

    /// The youngest block of this order, now used for this.
    #[inline(always)]
    fn pop(&self, lists: &ZoneLists, order: u8, kind: Kind) -> Option<FrameNumber> {
        let p = self.mm.platform();
        let Block { n, frame } = lists.chains[usize::from(order)].pop_front(p, &self.mm.frames())?;
        frame.set_kind(p, kind, order);
        lists.count.set(p, lists.count.get(p) - (1 << order));
        let held = &self.slot.pages.held;
        held.set(p, held.get(p) - (1 << order));
        Some(n)
    }

    /// Puts a free block of a zone on its list, if that may be. The limits are to be read in this section (PITFALLS 20):
    /// a drain that comes after they were changed cannot come between.
    #[inline(always)]
    fn keep(&self, zone: usize, block: Block<'_>, order: u8, limits: ListLimits) -> Kept {
        if limits.high < 1 << order {
            return Kept::Not;
        }
        let (p, mm, lists) = (self.mm.platform(), self.mm, self.of_zone(zone));
        block.frame.set_at_hand(p, order);
        lists.chains[usize::from(order)].push_front(p, &mm.frames(), block);
        let before = lists.count.get(p);
        lists.count.set(p, before + (1 << order));
        let held = &self.slot.pages.held;
        held.set(p, held.get(p) + (1 << order));
        if before == 0 {
            Self::note_holder(mm, self.slot, self.cpu, zone);
        }
        if before + (1 << order) > limits.high { Kept::Above } else { Kept::Within }
    }

    /// Marks that there are frames of this zone here.
    #[cold]
    #[inline(never)]
    fn note_holder(mm: &Manager<'p, P>, slot: &CpuSlot, cpu: CpuId, zone: usize) {
        let (p, zones) = (mm.platform(), &slot.pages.zones);
        let before = zones.get(p);
        zones.set(p, before | 1 << (zone % 64));
        if before == 0 {
            mm.holders().insert(p, cpu);
        }
    }

    /// Leaves the mask, if nothing is at hand. Only where that lasts: else each refill would have to enter it again.
    fn leave_holders(&self) {
        let (p, pages) = (self.mm.platform(), &self.slot.pages);
        if pages.zones.get(p) != 0 && pages.held.get(p) == 0 {
            pages.zones.set(p, 0);
            self.mm.holders().remove(p, self.cpu);
        }
    }

    /// Cuts off about a batch of frames, the oldest of this order first, then of the others.
    pub fn cut(&self, zone: usize, order: u8, batch: u32) -> Few {
        let (p, mm, lists) = (self.mm.platform(), self.mm, self.of_zone(zone));
        let (mut cut, mut frames) = (Few::new(), 0);
        for o in (0..ORDERS).map(|i| (usize::from(order) + i) % ORDERS) {
            lists.chains[o].cut_back(p, &mm.frames(), |n| {
                let more = frames < batch;
                if more {
                    cut.push(n);
                    frames += 1 << o;
                }
                more
            });
        }
        lists.count.set(p, lists.count.get(p) - frames);
        self.slot.pages.held.set(p, self.slot.pages.held.get(p) - frames);
        cut
    }

    /// Takes everything off: a few stores for each zone that has any, however much it is.
    pub fn detach(&self) -> Loose {
        let (p, mm) = (self.mm.platform(), self.mm);
        let mut loose = Loose::NONE;
        let zones = self.slot.pages.zones.get(p);
        if zones == 0 {
            return loose;
        }
        for lists in self
            .slot
            .pages
            .lists()
            .iter()
            .enumerate()
            .filter(|(z, _)| zones & 1 << (z % 64) != 0)
            .map(|(_, l)| l)
        {
            if lists.count.get(p) == 0 {
                continue;
            }
            for chain in &lists.chains {
                if !chain.is_empty(p) {
                    loose.append(mm, chain.first(p), chain.last(p));
                    chain.init(p);
                }
            }
            // PITFALLS 19: the count goes with what it counts.
            if !p.broken(Rule::CountWithList) {
                lists.count.set(p, 0);
            }
        }
        self.slot.pages.held.set(p, 0);
        self.slot.pages.zones.set(p, 0);
        mm.holders().remove(p, self.cpu);
        loose
    }

    /// Whether each list is what its count says, and its frames are what they should be. For audits.
    pub fn audit(&self) -> bool {
        let (p, mm) = (self.mm.platform(), self.mm);
        let mut held = 0;
        let mut good = true;
        for (z, lists) in self.slot.pages.lists().iter().enumerate() {
            let mut count = 0;
            for (order, chain) in lists.chains.iter().enumerate() {
                let mut n = chain.first(p);
                while n != FrameNumber::NONE && count <= lists.count.get(p) {
                    let state = mm.frames().get(n).state.get(p);
                    good &= Frame::kind_of(state) == Kind::Tail
                        && state & flag::LISTED != 0
                        && usize::from(Frame::order_of(state)) == order
                        && Frame::zone_of(state) == z;
                    count += 1 << order;
                    n = mm.frames().get(n).next(p);
                }
            }
            good &= count == lists.count.get(p);
            good &= count == 0 || self.slot.pages.zones.get(p) & 1 << (z % 64) != 0;
            held += count;
        }
        good && held == self.slot.pages.held.get(p) && (held == 0 || mm.holders().contains(p, self.cpu))
    }
}

impl<P: Platform> Manager<'_, P> {
    /// What most allocations need: a block that this CPU has at hand of the zone that is nearest to it. Counts it.
    #[inline(always)]
    pub(super) fn take_nearest(&self, order: u8, kind: Kind) -> Option<FrameNumber> {
        if usize::from(order) >= ORDERS {
            return None;
        }
        let (section, leave) = Section::enter(self);
        let found = section.pop(section.nearest(), order, kind);
        if let Some(frame) = found {
            section.emit(Event::Taken { frame, order, kind });
        }
        section.leave(leave);
        found
    }

    /// A block from this CPU's list.
    pub(super) fn take_at_hand(&self, zone: &Zone, order: u8, kind: Kind) -> Option<FrameNumber> {
        if usize::from(order) >= ORDERS {
            return None;
        }
        Section::own(self, |section| section.pop(section.of_zone(zone.index()), order, kind))
    }

    /// A block from this CPU's lists or, `floor` frames left, from the zone itself; with a batch for the list.
    pub(super) fn take_from(&self, zone: &Zone, order: u8, kind: Kind, floor: u64) -> Option<FrameNumber> {
        self.take_at_hand(zone, order, kind).or_else(|| self.take_fresh(zone, order, kind, floor))
    }

    /// A block from the zone, with a batch for this CPU's list.
    fn take_fresh(&self, zone: &Zone, order: u8, kind: Kind, floor: u64) -> Option<FrameNumber> {
        let limits = zone.limits.get(self.platform());
        if limits.high == 0 {
            // Its lists stay empty for a while: drains need not look at this CPU.
            Section::own(self, Section::leave_holders);
        }
        if usize::from(order) >= ORDERS || limits.high == 0 {
            return zone.take(self, order, kind, floor);
        }
        self.refill(zone, order, kind, floor, limits)
    }

    #[cold]
    fn refill(
        &self,
        zone: &Zone,
        order: u8,
        kind: Kind,
        floor: u64,
        limits: ListLimits,
    ) -> Option<FrameNumber> {
        let p = self.platform();
        // A look before the lock: an exhausted zone is passed without moving its lock's line for writing.
        if zone.free(p) < floor + (1 << order) {
            return None;
        }
        let blocks = (limits.batch >> order).max(1);
        let mut more = Few::new();
        let guard = zone.lock(self);
        let taken = guard.take(order, kind, floor)?;
        while (more.as_slice().len() as u32) < blocks - 1 {
            let Some(n) = guard.take(order, Kind::Tail, floor) else { break };
            more.push(n);
        }
        drop(guard);
        if more.as_slice().is_empty() {
            return Some(taken);
        }
        // The lock is gone before the section begins: no section waits. So the limits may have changed meanwhile.
        self.emit(Event::Refilled { frames: (more.as_slice().len() as u32) << order });
        more.reverse();
        let seen = p.broken(Rule::LimitsAtPush).then_some(limits);
        self.give_within(zone, more.as_slice(), order, || seen.unwrap_or_else(|| zone.limits.get(p)));
        Some(taken)
    }

    /// Puts a block that was just freed where it is needed next: on this CPU's list or, if it is large or nothing is kept
    /// at hand, into its zone. Counts it.
    #[inline(always)]
    pub(super) fn give(&self, zone: &Zone, block: Block<'_>, order: u8) {
        let _scope = profile::scope(self.platform(), Scope::FreeFrame);
        if usize::from(order) >= ORDERS {
            self.emit(Event::Freed { frame: block.n, order });
            return self.give_zone(zone, block.n, order);
        }
        let (section, leave) = Section::enter(self);
        section.emit(Event::Freed { frame: block.n, order });
        let kept = section.keep(zone.index(), block, order, zone.limits.get(self.platform()));
        section.leave(leave);
        match kept {
            Kept::Within => {}
            Kept::Above => self.spill(zone, order),
            Kept::Not => self.give_zone(zone, block.n, order),
        }
    }

    #[inline(never)]
    fn give_zone(&self, zone: &Zone, n: FrameNumber, order: u8) {
        zone.lock(self).put(n, order);
    }

    /// The same for free blocks of a zone that are counted already, all of one order.
    pub(super) fn give_all(&self, zone: &Zone, blocks: &[FrameNumber], order: u8) {
        let _scope = profile::scope(self.platform(), Scope::FreeFrame);
        if usize::from(order) >= ORDERS {
            let guard = zone.lock(self);
            return blocks.iter().for_each(|&n| guard.put(n, order));
        }
        self.give_within(zone, blocks, order, || zone.limits.get(self.platform()));
    }

    fn give_within(&self, zone: &Zone, blocks: &[FrameNumber], order: u8, limits: impl Fn() -> ListLimits) {
        let frames = self.frames();
        let mut rest = blocks;
        while !rest.is_empty() {
            // As many as fit, in one section.
            let kept = Section::own(self, |section| {
                let limits = limits();
                let mut kept = Kept::Within;
                while let (Kept::Within, Some((&n, after))) = (kept, rest.split_first()) {
                    kept = section.keep(zone.index(), frames.block(n), order, limits);
                    rest = if kept == Kept::Not { rest } else { after };
                }
                kept
            });
            match kept {
                Kept::Within => {}
                Kept::Above => self.spill(zone, order),
                Kept::Not => {
                    let guard = zone.lock(self);
                    return rest.iter().for_each(|&n| guard.put(n, order));
                }
            }
        }
    }

    /// Gives back a batch of what this CPU has too much of.
    #[cold]
    #[inline(never)]
    fn spill(&self, zone: &Zone, order: u8) {
        let p = self.platform();
        let blocks = Section::own(self, |section| section.cut(zone.index(), order, zone.limits.get(p).batch));
        if blocks.as_slice().is_empty() {
            return; // Somebody has drained them since.
        }
        let mut frames = 0;
        let guard = zone.lock(self);
        for &n in blocks.as_slice() {
            let order = Frame::order_of(self.frames().get(n).state.get(p));
            guard.put(n, order);
            frames += 1 << order;
        }
        drop(guard);
        self.emit(Event::Spilled { frames });
    }

    /// Puts frames that were taken off lists into their zones, a bounded number under one hold of a zone's lock
    /// (PITFALLS 19). Gives how many. Any context but an interrupt handler.
    pub(super) fn put_loose(&self, loose: Loose) -> u32 {
        let p = self.platform();
        let (mut n, mut total) = (loose.first(), 0);
        while n != FrameNumber::NONE {
            let zone = self.zone(Frame::zone_of(self.frames().get(n).state.get(p)));
            let mut frames = 0;
            let guard = zone.lock(self);
            while n != FrameNumber::NONE && zone.contains(n) {
                let (frame, block) = (self.frames().get(n), n);
                let order = Frame::order_of(frame.state.get(p));
                n = frame.next(p);
                guard.put(block, order);
                frames += 1 << order;
                if frames >= MAX_PAGE_BATCH && !p.broken(Rule::DrainInChunks) {
                    break;
                }
            }
            drop(guard);
            self.emit(Event::Spilled { frames });
            total += frames;
        }
        total
    }

    /// Changes how many free frames each CPU keeps at hand of each zone of a node. Lists that are too long then shrink
    /// with the next free; [`drain_page_lists`](Self::drain_page_lists) empties them at once. Any context but an
    /// interrupt handler, while all CPUs allocate and free. No IPI.
    ///
    /// # Errors
    /// [`Error::BadSetting`], [`Error::NoSuchNode`].
    pub fn set_list_limits(&self, node: crate::NodeId, limits: ListLimits) -> Result<(), Error> {
        let limits = limits.check()?;
        if !self.has_node(node) {
            return Err(Error::NoSuchNode);
        }
        for zone in self.zones().filter(|zone| zone.node == node) {
            let _guard = zone.lock(self);
            zone.limits.set(self.platform(), limits);
        }
        Ok(())
    }

    /// The limits of the lists for a node's memory; `None` for a node without any.
    pub fn list_limits(&self, node: crate::NodeId) -> Option<ListLimits> {
        let zone = self.zones().find(|zone| zone.node == node)?;
        Some(zone.limits.chosen(self.platform()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_follow_the_zones_size() {
        for (frames, batch) in [(0, 1), (4096, 1), (16 << 10, 3), (32 << 10, 7), (1 << 20, 63), (4 << 20, 63)]
        {
            assert_eq!(ListLimits::linux(frames, 0, 8).batch, batch, "{frames} frames");
        }
    }

    #[test]
    fn high_is_a_cpus_share_of_the_low_watermark_and_at_least_four_batches() {
        assert_eq!(ListLimits::linux(4 << 20, 16_000, 16).high, 1000);
        assert_eq!(ListLimits::linux(4 << 20, 100, 16).high, 4 * 63);
        assert_eq!(ListLimits::linux(100, 7, 0).high, 7);
    }

    #[test]
    fn limits_that_contradict_each_other_are_refused() {
        for (batch, high) in [(0, 0), (64, 256), (8, 7)] {
            assert!(ListLimits { batch, high }.check().is_err());
        }
        assert!(ListLimits { batch: 8, high: 0 }.check().is_ok());
    }
}
