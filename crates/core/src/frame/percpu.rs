//! Free frames on per-CPU lists, so that most allocations and frees touch nothing that other CPUs touch.
//!
//! Each CPU has, for each zone, a list for each of the small orders, and one for large pages. A list that runs dry takes a batch from its zone; a
//! CPU that holds more of a zone than it may gives the oldest batch back. What is on a list is free, and nobody else can
//! have it until the list is drained (see [`drain`](super::drain)).
//!
//! A CPU changes its lists in a [`PcpAccess`]: with interrupts off, and, where others may empty them (`drain=remote`), with
//! a lock that is its own. No section takes another lock or waits, so nobody waits long for one, and an interrupt
//! handler that empties the lists of its CPU never finds them half changed.

use super::buddy::Zone;
use super::pieces::Pieces;
use crate::Manager;
use crate::addr::{FrameNumber, LARGE_ORDER};
use crate::charge::charge;
use crate::config::{ListLimits, MAX_PAGE_BATCH};
use crate::cpu::CpuId;
use crate::error::Error;
use crate::event::Event;
use crate::kind::Kind;
use crate::memmap::{Frame, FrameBlock, FrameChain, FrameVec, flag};
use crate::percpu::{CpuGuard, CpuSlot, ORDERS, ZoneLists, list_of};
use crate::platform::Platform;
use crate::policy::Drain;
use crate::profile::Scope;
use crate::rule::Rule;
use crate::sync::Ticket;
use crate::view::FrameAllocator;

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

/// The lists of a CPU, to be changed.
///
/// Not a guard: what a guard does when a panic drops it would keep it in memory, with all its parts, for the whole of a
/// path that takes a few nanoseconds. After a panic in a section of a CPU's own nobody else gets in, to see its lists half
/// changed.
pub(crate) struct PcpAccess<'m, 'p, P: Platform> {
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

impl<'m, 'p, P: Platform> PcpAccess<'m, 'p, P> {
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
    pub fn of_handler<R>(here: &CpuGuard<'m, 'p, P>, work: impl FnOnce(&Self) -> R) -> R {
        work(&Self::open(here.mm, here.cpu))
    }

    /// Works on those of any CPU: only where each takes its lock.
    pub fn of<R>(mm: &'m Manager<'p, P>, cpu: CpuId, work: impl FnOnce(&Self) -> R) -> R {
        // With interrupts off, so that the CPU whose lock this is never waits for a handler of ours.
        let _here = CpuGuard::new(mm);
        let section = Self::open(mm, cpu);
        let must_lock = !mm.platform().broken(Rule::RemoteTakesLock);
        let _guard = must_lock.then(|| section.slot.pages.lock.lock(mm));
        work(&section)
    }

    #[inline(always)]
    fn open(mm: &'m Manager<'p, P>, cpu: CpuId) -> Self {
        PcpAccess { mm, cpu, slot: mm.slot(cpu) }
    }

    /// Those of the zone that is nearest to this CPU.
    #[inline(always)]
    fn nearest(&self) -> &'p ZoneLists {
        self.slot.pages.nearest()
    }

    #[inline(always)]
    pub(super) fn of_zone(&self, zone: usize) -> &'p ZoneLists {
        &self.slot.pages.lists()[zone]
    }

    /// Counts what this CPU does in a section of its own.
    #[inline(always)]
    pub(super) fn emit(&self, event: Event) {
        self.mm.emit_at(self.slot, event);
    }

    /// The youngest block of this order, now used for this.
    #[inline(always)]
    pub(super) fn pop(&self, lists: &ZoneLists, order: u8, kind: Kind) -> Option<FrameNumber> {
        let p = self.mm.platform();
        let FrameBlock { n, frame } = lists.chains[list_of(order)?].pop_front(p, &self.mm.memmap())?;
        frame.set_kind(p, kind, order);
        let count = lists.count(order);
        count.set(p, count.get(p) - (1 << order));
        let held = &self.slot.pages.held;
        held.set(p, held.get(p) - (1 << order));
        Some(n)
    }

    /// Puts a free block of a zone on its list, if that may be. The limits are to be read in this section (PITFALLS 20):
    /// a drain that comes after they were changed cannot come between.
    #[inline(always)]
    fn keep(&self, zone: usize, block: FrameBlock<'_>, order: u8, limits: ListLimits) -> Kept {
        let (p, mm, lists) = (self.mm.platform(), self.mm, self.of_zone(zone));
        let Some(list) = list_of(order).filter(|_| limits.high >= 1 << order) else { return Kept::Not };
        block.frame.set_pcp(p, order);
        lists.chains[list].push_front(p, &mm.memmap(), block);
        let count = lists.count(order);
        let before = count.get(p);
        count.set(p, before + (1 << order));
        let held = &self.slot.pages.held;
        held.set(p, held.get(p) + (1 << order));
        if before == 0 {
            Self::note_holder(mm, self.slot, self.cpu, zone);
        }
        if before + (1 << order) > limits.high { Kept::Above } else { Kept::Within }
    }

    /// The same for whoever cannot let go of what is too much; says whether it is kept.
    pub(super) fn keeps(&self, zone: usize, block: FrameBlock<'_>, order: u8, limits: ListLimits) -> bool {
        self.keep(zone, block, order, limits) != Kept::Not
    }

    /// Whether there is room for a block, if so many frames may be there.
    pub(super) fn has_room(&self, zone: usize, order: u8, most: u32) -> bool {
        self.of_zone(zone).count(order).get(self.mm.platform()) + (1 << order) <= most
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

    /// Leaves the mask, if the lists are empty. Only where that lasts: else each refill would have to enter it again.
    fn leave_holders(&self) {
        let (p, pages) = (self.mm.platform(), &self.slot.pages);
        if pages.zones.get(p) != 0 && pages.held.get(p) == 0 {
            pages.zones.set(p, 0);
            self.mm.holders().remove(p, self.cpu);
        }
    }

    /// Cuts off about a batch of frames, the oldest of this order first, then of the others that share its limits.
    pub fn cut(&self, zone: usize, order: u8, batch: u32) -> FrameVec {
        let (p, mm, lists) = (self.mm.platform(), self.mm, self.of_zone(zone));
        let (mut cut, mut frames) = (FrameVec::new(), 0);
        let first = list_of(order).unwrap_or(0);
        // Large pages alone, or all small orders.
        let alike = if order == LARGE_ORDER { first..first + 1 } else { 0..ORDERS.len() - 1 };
        for list in (first..alike.end).chain(alike.start..first) {
            lists.chains[list].cut_back(p, &mm.memmap(), |n| {
                let more = frames < batch;
                if more {
                    cut.push(n);
                    frames += 1 << ORDERS[list];
                }
                more
            });
        }
        let count = lists.count(order);
        count.set(p, count.get(p) - frames);
        self.slot.pages.held.set(p, self.slot.pages.held.get(p) - frames);
        cut
    }

    /// Takes everything off: a few stores for each zone that has any, however much it is.
    pub fn detach(&self) -> FrameChain {
        let (p, mm) = (self.mm.platform(), self.mm);
        let mut all = FrameChain::NONE;
        let zones = self.slot.pages.zones.get(p);
        if zones == 0 {
            return all;
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
            if lists.frames(p) == 0 {
                continue;
            }
            for chain in &lists.chains {
                if !chain.is_empty(p) {
                    all.append(mm, chain.first(p), chain.last(p));
                    chain.init(p);
                }
            }
            // PITFALLS 19: the count goes with what it counts.
            if !p.broken(Rule::CountWithList) {
                lists.counts.iter().for_each(|count| count.set(p, 0));
            }
        }
        self.slot.pages.held.set(p, 0);
        self.slot.pages.zones.set(p, 0);
        mm.holders().remove(p, self.cpu);
        all
    }

    /// Whether each list is what its count says, and its frames are what they should be. For audits.
    pub fn audit(&self) -> bool {
        let (p, mm) = (self.mm.platform(), self.mm);
        let mut held = 0;
        let mut good = true;
        for (z, lists) in self.slot.pages.lists().iter().enumerate() {
            let mut counts = [0; 2];
            for (order, chain) in ORDERS.into_iter().zip(&lists.chains) {
                let (mut n, count) = (chain.first(p), &mut counts[usize::from(order == LARGE_ORDER)]);
                while n != FrameNumber::NONE && *count <= lists.count(order).get(p) {
                    let state = mm.memmap().get(n).state.get(p);
                    good &= Frame::kind_of(state) == Kind::Tail
                        && state & flag::LISTED != 0
                        && Frame::order_of(state) == order
                        && Frame::zone_of(state) == z;
                    *count += 1 << order;
                    n = mm.memmap().get(n).next(p);
                }
            }
            good &= counts == [0, 1].map(|i: usize| lists.counts[i].get(p));
            let count: u32 = counts.iter().sum();
            good &= count == 0 || self.slot.pages.zones.get(p) & 1 << (z % 64) != 0;
            held += count;
        }
        good && held == self.slot.pages.held.get(p) && (held == 0 || mm.holders().contains(p, self.cpu))
    }
}

impl<'p, P: Platform> FrameAllocator<'_, 'p, P> {
    /// Changes how many free frames of each zone of a node each CPU keeps on its lists, however much memory comes there or goes. Lists that are too long then
    /// shrink with the next free; [`FrameAllocator::drain`](crate::FrameAllocator::drain) empties them at once. Any
    /// context but an interrupt handler, while all CPUs allocate and free. No IPI.
    ///
    /// # Errors
    /// [`Error::BadSetting`], [`Error::NoSuchNode`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let limits = mm.frames().list_limits(NodeId(0)).expect("there is memory");
    /// mm.frames().set_list_limits(NodeId(0), ListLimits { batch: 1, ..limits })?;
    /// # Ok(())
    /// # });
    /// ```
    pub fn set_list_limits(&self, node: crate::NodeId, limits: ListLimits) -> Result<(), Error> {
        let mm = self.mm;
        let limits = limits.check()?;
        if !mm.has_node(node) {
            return Err(Error::NoSuchNode);
        }
        for zone in mm.zones().filter(|zone| zone.node == node) {
            let _guard = zone.lock(mm);
            zone.limits.choose(mm.platform(), limits);
        }
        Ok(())
    }

    /// The limits of the lists for a node's memory; `None` for a node that has none, and gets none later.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// assert!(mm.frames().list_limits(NodeId(0)).is_some());
    /// assert!(mm.frames().list_limits(NodeId(1)).is_none());
    /// # Ok(())
    /// # });
    /// ```
    pub fn list_limits(&self, node: crate::NodeId) -> Option<ListLimits> {
        let mm = self.mm;
        let zone = mm.zones().find(|zone| zone.node == node)?;
        Some(zone.limits.chosen(mm.platform()))
    }
}

impl<P: Platform> Manager<'_, P> {
    /// What most allocations need: a block from this CPU's list of the zone that is nearest to it. Counts it.
    #[inline(always)]
    pub(super) fn take_nearest(&self, order: u8, kind: Kind) -> Option<FrameNumber> {
        list_of(order)?;
        let (section, leave) = PcpAccess::enter(self);
        let found = section.pop(section.nearest(), order, kind);
        if let Some(frame) = found {
            section.emit(Event::Taken { frame, order, kind });
        }
        section.leave(leave);
        found
    }

    /// A block from this CPU's list.
    pub(super) fn take_pcp(&self, zone: &Zone, order: u8, kind: Kind) -> Option<FrameNumber> {
        list_of(order)?;
        PcpAccess::own(self, |section| section.pop(section.of_zone(zone.index()), order, kind))
    }

    /// A block from this CPU's lists or, `floor` frames left, from the zone itself; with a batch for the list.
    pub(crate) fn take_from(&self, zone: &Zone, order: u8, kind: Kind, floor: u64) -> Option<FrameNumber> {
        self.take_pcp(zone, order, kind).or_else(|| self.take_fresh(zone, order, kind, floor))
    }

    /// A block from the zone, with a batch for this CPU's list.
    fn take_fresh(&self, zone: &Zone, order: u8, kind: Kind, floor: u64) -> Option<FrameNumber> {
        let limits = zone.limits.of(self.platform(), order);
        if limits.high == 0 {
            // Its lists stay empty for a while: drains need not look at this CPU.
            PcpAccess::own(self, PcpAccess::leave_holders);
        }
        if list_of(order).is_none() || limits.high == 0 {
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
        let mut want = (limits.batch >> order).max(1);
        let mut blocks = FrameVec::new();
        let guard = zone.lock(self);
        // Large pieces, which nobody has to take apart under the lock.
        while let Some((first, count)) = guard.take_piece(order, want, floor) {
            (0..count).for_each(|i| blocks.push(first.add(i << order)));
            want -= count;
        }
        drop(guard);
        let (&taken, more) = blocks.as_slice().split_first()?;
        self.memmap().get(taken).set_kind(p, kind, order);
        if more.is_empty() {
            return Some(taken);
        }
        // The lock is gone before the section begins: no section waits. So the limits may have changed meanwhile.
        self.emit(Event::Refilled { frames: (more.len() as u32) << order });
        let seen = p.broken(Rule::LimitsAtPush).then_some(limits);
        let limits = || seen.unwrap_or_else(|| zone.limits.of(p, order));
        self.give_within(zone, more.iter().rev(), order, limits);
        Some(taken)
    }

    /// Puts a block that was just freed where it is needed next: on this CPU's list or, if it is large or nothing is kept
    /// on lists, into its zone. Counts it.
    #[inline(always)]
    pub(super) fn give(&self, zone: &Zone, block: FrameBlock<'_>, order: u8) {
        let _scope = charge(self.platform(), Scope::FreeFrame);
        if list_of(order).is_none() {
            self.emit(Event::Freed { frame: block.n, order });
            return self.give_zone(zone, block.n, order);
        }
        let (section, leave) = PcpAccess::enter(self);
        section.emit(Event::Freed { frame: block.n, order });
        let kept = section.keep(zone.index(), block, order, zone.limits.of(self.platform(), order));
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
        let _scope = charge(self.platform(), Scope::FreeFrame);
        if list_of(order).is_none() {
            let guard = zone.lock(self);
            return blocks.iter().for_each(|&n| guard.put(n, order));
        }
        self.give_within(zone, blocks.iter(), order, || zone.limits.of(self.platform(), order));
    }

    fn give_within<'a>(
        &self,
        zone: &Zone,
        mut rest: impl ExactSizeIterator<Item = &'a FrameNumber> + Clone,
        order: u8,
        limits: impl Fn() -> ListLimits,
    ) {
        let frames = self.memmap();
        while rest.len() > 0 {
            // As many as fit, in one section.
            let kept = PcpAccess::own(self, |section| {
                let limits = limits();
                let mut kept = Kept::Within;
                let mut after = rest.clone();
                while let (Kept::Within, Some(&n)) = (kept, after.next()) {
                    kept = section.keep(zone.index(), frames.block(n), order, limits);
                    if kept != Kept::Not {
                        rest = after.clone();
                    }
                }
                kept
            });
            match kept {
                Kept::Within => {}
                Kept::Above => self.spill(zone, order),
                Kept::Not => {
                    let guard = zone.lock(self);
                    return rest.for_each(|&n| guard.put(n, order));
                }
            }
        }
    }

    /// Gives back a batch of what this CPU has too much of.
    #[cold]
    #[inline(never)]
    fn spill(&self, zone: &Zone, order: u8) {
        let p = self.platform();
        let blocks =
            PcpAccess::own(self, |section| section.cut(zone.index(), order, zone.limits.of(p, order).batch));
        if blocks.as_slice().is_empty() {
            return; // Somebody has drained them since.
        }
        let (mut pieces, mut frames) = (Pieces::new(), 0);
        for &n in blocks.as_slice() {
            let order = Frame::order_of(self.memmap().get(n).state.get(p));
            pieces.push(n, order, |part| self.memmap().get(part).set_kind(p, Kind::Tail, 0));
            frames += 1 << order;
        }
        let guard = zone.lock(self);
        pieces.iter().for_each(|(n, order)| guard.put(n, order));
        drop(guard);
        self.emit(Event::Spilled { frames });
    }

    /// Puts frames that were taken off lists into their zones, a bounded number under one hold of a zone's lock
    /// (PITFALLS 19). Returns how many. Any context but an interrupt handler.
    pub(super) fn put_chain(&self, chain: FrameChain) -> u32 {
        let p = self.platform();
        let (mut n, mut total) = (chain.first(), 0);
        while n != FrameNumber::NONE {
            let zone = self.zone(Frame::zone_of(self.memmap().get(n).state.get(p)));
            let mut frames = 0;
            let guard = zone.lock(self);
            while n != FrameNumber::NONE && zone.contains(n) {
                let (frame, block) = (self.memmap().get(n), n);
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
}
