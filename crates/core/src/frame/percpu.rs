//! Free frames at hand on each CPU, so that most allocations and frees touch nothing that other CPUs touch.
//!
//! Each CPU has, for each zone, a list for each of the small orders. A list that runs dry takes a batch from its zone; a
//! CPU that holds more of a zone than it may gives the oldest batch back. What is on a list is free, and nobody else can
//! have it until the list is drained (see [`drain`](super::drain)).
//!
//! A CPU changes its lists in a [`Section`]: with interrupts off, and, where others may empty them (`drain=remote`), with
//! a lock that is its own. No section takes another lock or waits, so nobody waits long for one, and an interrupt
//! handler that empties the lists of its CPU never finds them half changed.

use super::{Chain, Few, Frame, Kind, Loose, Zone, flag};
use crate::Manager;
use crate::addr::FrameNumber;
use crate::cpu::{CpuId, CpuMask};
use crate::error::Error;
use crate::event::Event;
use crate::percpu::Here;
use crate::platform::Platform;
use crate::policy::Drain;
use crate::rule::Rule;
use crate::sync::{SpinGuard, SpinLock, Word32, Word64};

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

/// The limits of a zone, in one word: whoever reads them gets two that belong together.
#[repr(transparent)]
pub(crate) struct Limits(Word64);

/// Why nothing is kept at hand for now.
#[derive(Clone, Copy)]
#[repr(u64)]
pub(crate) enum Pause {
    /// Memory of the zone goes offline.
    Leaving = 1 << 63,
    /// Tasks wait for frames: what is freed goes where they look, and needs no drain.
    Starved = 1 << 62,
}

/// Either.
const PAUSED: u64 = Pause::Leaving as u64 | Pause::Starved as u64;

impl Limits {
    /// Those that hold now.
    pub fn get<P: Platform>(&self, p: &P) -> ListLimits {
        let word = self.0.get(p);
        let high = if word & PAUSED != 0 { 0 } else { (word >> 32) as u32 };
        ListLimits { batch: word as u32, high }
    }

    /// Those that were set.
    pub fn chosen<P: Platform>(&self, p: &P) -> ListLimits {
        let word = self.0.get(p) & !PAUSED;
        ListLimits { batch: word as u32, high: (word >> 32) as u32 }
    }

    /// Under the zone's lock.
    pub fn set<P: Platform>(&self, p: &P, limits: ListLimits) {
        let paused = self.0.get(p) & PAUSED;
        self.0.set(p, paused | u64::from(limits.high) << 32 | u64::from(limits.batch));
    }

    pub fn is_paused<P: Platform>(&self, p: &P, why: Pause) -> bool {
        self.0.get(p) & why as u64 != 0
    }

    /// From now on nothing is kept at hand. Under the zone's lock.
    pub fn pause<P: Platform>(&self, p: &P, why: Pause) {
        self.0.set(p, self.0.get(p) | why as u64);
    }

    /// No longer for this reason. Under the zone's lock.
    pub fn resume<P: Platform>(&self, p: &P, why: Pause) {
        self.0.set(p, self.0.get(p) & !(why as u64));
    }
}

/// What a CPU has at hand, all zones together. One line: drainers look at it.
#[repr(C, align(64))]
pub(crate) struct PageLists {
    /// Taken only with `drain=remote`.
    lock: SpinLock,
    /// Frames on all lists.
    held: Word32,
    /// A bit for each zone that may have frames here, zones 64 apart sharing one. Zero: this CPU is in nobody's mask.
    zones: Word64,
}

impl PageLists {
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

// SAFETY: atomics; `init` makes the chains.
unsafe impl crate::pool::Zeroed for ZoneLists {}

impl ZoneLists {
    pub fn init<P: Platform>(&self, p: &P) {
        self.chains.iter().for_each(|chain| chain.init(p));
    }
}

/// CPUs that may have frames at hand: set by the CPU that gets its first, cleared by whoever empties its lists.
#[repr(C, align(64))]
pub(crate) struct Holders(pub CpuMask);

/// The lists of a CPU, to be changed.
pub(crate) struct Section<'m, 'p, P: Platform> {
    mm: &'m Manager<'p, P>,
    cpu: CpuId,
    head: &'p PageLists,
    zones: &'p [ZoneLists],
    // In this order: the lock goes before interrupts come.
    _lock: Option<SpinGuard<'p, P>>,
    _here: Option<Here<'m, 'p, P>>,
}

impl<'m, 'p, P: Platform> Section<'m, 'p, P> {
    /// This CPU's own.
    #[inline]
    pub fn new(mm: &'m Manager<'p, P>) -> Self {
        let here = Here::new(mm);
        let cpu = here.cpu;
        let head = &here.slot().pages;
        let lock = Self::must_lock(mm).then(|| head.lock.lock(mm));
        Section { mm, cpu, head, zones: mm.page_lists(cpu), _lock: lock, _here: Some(here) }
    }

    /// Those of this CPU, in the handler of an interrupt.
    pub fn of_handler(here: &Here<'m, 'p, P>) -> Self {
        let (mm, cpu) = (here.mm, here.cpu);
        Section { mm, cpu, head: &here.slot().pages, zones: mm.page_lists(cpu), _lock: None, _here: None }
    }

    /// Those of any CPU: only where each takes its lock.
    pub fn of(mm: &'m Manager<'p, P>, cpu: CpuId) -> Self {
        // With interrupts off, so that the CPU whose lock this is never waits for a handler of ours.
        let here = Here::new(mm);
        let head = &mm.slot(cpu).pages;
        let lock = (!mm.platform().broken(Rule::RemoteTakesLock)).then(|| head.lock.lock(mm));
        Section { mm, cpu, head, zones: mm.page_lists(cpu), _lock: lock, _here: Some(here) }
    }

    fn must_lock(mm: &Manager<'p, P>) -> bool {
        mm.config().policy.drain == Drain::Remote && !mm.platform().broken(Rule::RemoteTakesLock)
    }

    /// The youngest block of this order.
    #[inline]
    pub fn pop(&self, zone: usize, order: u8) -> Option<FrameNumber> {
        let (p, lists) = (self.mm.platform(), &self.zones[zone]);
        let n = lists.chains[usize::from(order)].pop_front(p, &self.mm.frames())?;
        lists.count.set(p, lists.count.get(p) - (1 << order));
        self.head.held.set(p, self.head.held.get(p) - (1 << order));
        Some(n)
    }

    /// Puts a block on its list, if this many may be kept at hand.
    #[inline]
    pub fn push(&self, zone: usize, n: FrameNumber, order: u8) {
        let (p, mm, lists) = (self.mm.platform(), self.mm, &self.zones[zone]);
        mm.frames().get(n).set_at_hand(p, order);
        lists.chains[usize::from(order)].push_front(p, &mm.frames(), n);
        lists.count.set(p, lists.count.get(p) + (1 << order));
        self.head.held.set(p, self.head.held.get(p) + (1 << order));
        let (zones, bit) = (self.head.zones.get(p), 1 << (zone % 64));
        if zones & bit == 0 {
            self.head.zones.set(p, zones | bit);
            if zones == 0 {
                mm.holders().insert(p, self.cpu);
            }
        }
    }

    /// Frames at hand of a zone.
    pub fn count(&self, zone: usize) -> u32 {
        self.zones[zone].count.get(self.mm.platform())
    }

    /// Cuts off about a batch of frames, the oldest of this order first, then of the others.
    pub fn cut(&self, zone: usize, order: u8, batch: u32) -> Few {
        let (p, mm, lists) = (self.mm.platform(), self.mm, &self.zones[zone]);
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
        self.head.held.set(p, self.head.held.get(p) - frames);
        cut
    }

    /// Takes everything off: a few stores for each zone that has any, however much it is.
    pub fn detach(&self) -> Loose {
        let (p, mm) = (self.mm.platform(), self.mm);
        let mut loose = Loose::NONE;
        let zones = self.head.zones.get(p);
        if zones == 0 {
            return loose;
        }
        for lists in self.zones.iter().enumerate().filter(|(z, _)| zones & 1 << (z % 64) != 0).map(|(_, l)| l)
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
        self.head.held.set(p, 0);
        self.head.zones.set(p, 0);
        mm.holders().remove(p, self.cpu);
        loose
    }

    /// Whether each list is what its count says, and its frames are what they should be. For audits.
    pub fn audit(&self) -> bool {
        let (p, mm) = (self.mm.platform(), self.mm);
        let mut held = 0;
        let mut good = true;
        for (z, lists) in self.zones.iter().enumerate() {
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
            good &= count == 0 || self.head.zones.get(p) & 1 << (z % 64) != 0;
            held += count;
        }
        good && held == self.head.held.get(p) && (held == 0 || mm.holders().contains(p, self.cpu))
    }
}

impl<P: Platform> Manager<'_, P> {
    /// A block from this CPU's lists or, `floor` frames left, from the zone itself; with a batch for the list.
    #[inline]
    pub(super) fn take_from(&self, zone: &Zone, order: u8, kind: Kind, floor: u64) -> Option<FrameNumber> {
        if usize::from(order) >= ORDERS {
            return zone.take(self, order, kind, floor);
        }
        self.take_at_hand(zone, order, kind).or_else(|| self.refill(zone, order, kind, floor))
    }

    /// A block from this CPU's list.
    #[inline]
    pub(super) fn take_at_hand(&self, zone: &Zone, order: u8, kind: Kind) -> Option<FrameNumber> {
        if usize::from(order) >= ORDERS {
            return None;
        }
        let n = Section::new(self).pop(zone.index(), order)?;
        self.frames().get(n).set_kind(self.platform(), kind, order);
        Some(n)
    }

    #[cold]
    fn refill(&self, zone: &Zone, order: u8, kind: Kind, floor: u64) -> Option<FrameNumber> {
        let p = self.platform();
        // A look before the lock: an exhausted zone is passed without moving its lock's line for writing.
        if zone.free(p) < floor + (1 << order) {
            return None;
        }
        let limits = zone.limits.get(p);
        let blocks = if limits.high == 0 { 1 } else { (limits.batch >> order).max(1) };
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

    /// Puts free blocks of a zone, all of one order, where they are needed next: on this CPU's list or, if they are large
    /// or nothing is kept at hand, into the zone.
    pub(super) fn give_all(&self, zone: &Zone, blocks: &[FrameNumber], order: u8) {
        if usize::from(order) >= ORDERS {
            let guard = zone.lock(self);
            return blocks.iter().for_each(|&n| guard.put(n, order));
        }
        self.give_within(zone, blocks, order, || zone.limits.get(self.platform()));
    }

    /// Puts free blocks on this CPU's list, and gives back what is too much.
    #[inline]
    fn give_within(&self, zone: &Zone, blocks: &[FrameNumber], order: u8, limits: impl Fn() -> ListLimits) {
        let mut rest = blocks;
        while !rest.is_empty() {
            let section = Section::new(self);
            // PITFALLS 20: read in here, where a drain that comes after a change of the limits cannot come between.
            let limits = limits();
            if limits.high < 1 << order {
                drop(section);
                let guard = zone.lock(self);
                rest.iter().for_each(|&n| guard.put(n, order));
                return;
            }
            let mut spill = Few::new();
            while let Some((&n, after)) = rest.split_first() {
                section.push(zone.index(), n, order);
                rest = after;
                if section.count(zone.index()) > limits.high {
                    spill = section.cut(zone.index(), order, limits.batch);
                    break;
                }
            }
            drop(section);
            self.spill(zone, spill.as_slice());
        }
    }

    /// The same for one block.
    #[inline]
    pub(super) fn give(&self, n: FrameNumber, order: u8) {
        let zone = Frame::zone_of(self.frames().get(n).state.get(self.platform()));
        self.give_all(self.zone(zone), &[n], order);
    }

    /// Puts what was cut off a list into the zone: at most a batch, under one hold of the lock.
    fn spill(&self, zone: &Zone, blocks: &[FrameNumber]) {
        if blocks.is_empty() {
            return;
        }
        let p = self.platform();
        let mut frames = 0;
        let guard = zone.lock(self);
        for &n in blocks {
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
    /// with the next free; [`drain_page_lists`](Self::drain_page_lists) empties them at once. Any context, while all
    /// CPUs allocate and free. No IPI.
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
