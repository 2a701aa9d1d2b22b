//! Shards: parts of the kernel range with locks of their own, so that many CPUs do not meet in one.
//!
//! A CPU takes addresses from the shard of its group, then from the others in turn. An extent that no shard alone has
//! room for is looked for across their borders, under the locks of all of them, from the lowest up.
//!
//! A shard has two locks. That of its free extents is held for one search, or while [`HOLD`] extents come back (PITFALLS
//! 30); no interrupt handler takes it. That of its extents in use is held for one search, insertion or removal, and
//! always with interrupts off, so that an interrupt handler may unmap. A purge takes the first and never the second: who
//! looks an address up does not wait for it.

use core::cell::Cell;
use core::sync::atomic::Ordering;

use super::Vmap;
use super::extent::{Idle, Owned, Purpose, Want};
use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::cpu::CpuId;
use crate::error::Error;
use crate::event::Event;
use crate::frame::AllocFrom;
use crate::percpu::Here;
use crate::platform::Platform;
use crate::pool::Zeroed;
use crate::rule::Rule;
use crate::sync::{SpinGuard, SpinLock, Word32, Word64};
use crate::tree::Tree;

/// The most shards.
pub(super) const MAX_SHARDS: u32 = 64;
/// CPUs that share a shard, where nothing else is said.
const GROUP: u32 = 8;
/// No shard is shorter than this where nothing else is said, in pages: 64 MiB.
const SHORTEST: u64 = 1 << 14;
/// Extents that come back under one hold of a shard's lock.
pub(super) const HOLD: u32 = 32;
/// Slots that a shard takes from the pool at a time, and keeps at most.
const REFILL: u32 = 16;
const KEEP: u32 = 64;
/// Slots that taking one extent can need: its own, and that of the rest behind it.
const SLOTS: u32 = 2;

/// A part of the kernel range.
#[repr(C, align(64))]
pub(crate) struct Shard {
    free: SpinLock,
    /// Free extents, by address.
    holes: Tree,
    /// Slots at hand.
    spare: Chain,
    /// Blocks with room that no CPU has: the first and the last, plus one.
    pub listed: [Word32; 2],
    busy: Busy,
    pub waiting: Waiting,
}

// SAFETY: atomics, locks and trees.
unsafe impl Zeroed for Shard {}

/// On lines of its own: those who free do not disturb those who take.
#[repr(C, align(64))]
struct Busy {
    lock: SpinLock,
    /// Extents in use, by address.
    used: Tree,
}

/// What waits for a purge. Pushed without a lock, taken whole.
#[repr(C, align(64))]
pub(crate) struct Waiting {
    /// Extents, and blocks with slots that were unmapped: handles plus one.
    pub extents: Word32,
    pub blocks: Word32,
    /// How many pages that is, and how many frames go with them.
    pub pages: Word64,
    pub frames: Word64,
}

/// Slots on a list, under somebody's lock.
#[repr(C)]
struct Chain {
    first: Word32,
    len: Word32,
}

impl Chain {
    fn push<'p, P: Platform>(&self, mm: &Manager<'p, P>, v: &Vmap<'p>, handle: u32) {
        let p = mm.platform();
        v.extent(mm, handle).next.set(p, self.first.get(p));
        self.first.set(p, handle + 1);
        self.len.set(p, self.len.get(p) + 1);
    }

    fn pop<'p, P: Platform>(&self, mm: &Manager<'p, P>, v: &Vmap<'p>) -> Option<u32> {
        let p = mm.platform();
        let handle = self.first.get(p).checked_sub(1)?;
        self.first.set(p, v.extent(mm, handle).next.get(p));
        self.len.set(p, self.len.get(p) - 1);
        Some(handle)
    }
}

/// Slots that are this call's alone, linked like those of a [`Chain`].
#[derive(Default)]
struct Pile {
    /// The first one, plus one.
    first: Cell<u32>,
}

impl Pile {
    fn push<'p, P: Platform>(&self, mm: &Manager<'p, P>, v: &Vmap<'p>, handle: u32) {
        v.extent(mm, handle).next.set(mm.platform(), self.first.replace(handle + 1));
    }

    fn pop<'p, P: Platform>(&self, mm: &Manager<'p, P>, v: &Vmap<'p>) -> Option<u32> {
        let handle = self.first.get().checked_sub(1)?;
        self.first.set(v.extent(mm, handle).next.get(mm.platform()));
        Some(handle)
    }

    /// Reserves so many slots, or none. No lock is held; may wait for memory.
    fn reserve<'p, P: Platform>(mm: &Manager<'p, P>, v: &Vmap<'p>, count: u64) -> Result<Pile, Error> {
        let pile = Pile::default();
        for _ in 0..count {
            match v.state.extents.reserve(mm, AllocFrom::HERE) {
                Ok(slot) => pile.push(mm, v, slot.commit()),
                Err(error) => {
                    pile.release(mm, v);
                    return Err(error);
                }
            }
        }
        Ok(pile)
    }

    /// Gives all back to the pool.
    fn release<'p, P: Platform>(&self, mm: &Manager<'p, P>, v: &Vmap<'p>) {
        while let Some(slot) = self.pop(mm, v) {
            v.state.extents.release(mm, slot);
        }
    }
}

/// Whether a shard could be looked into.
enum Look {
    Found(Owned),
    NoRoom,
    /// It has too few slots at hand.
    NoSlots,
}

/// How many shards, where nothing else is said.
pub(super) fn shards_for(cpus: u32, pages: u64) -> u32 {
    let by_size = (pages / SHORTEST).clamp(1, MAX_SHARDS.into()) as u32;
    cpus.div_ceil(GROUP).min(by_size)
}

impl<'p> Vmap<'p> {
    /// The pages of a shard.
    pub(super) fn part(&self, index: usize) -> PageRange {
        let start = PageNumber(self.range.start.0 + index as u64 * self.shard_pages);
        let last = index + 1 == self.shards.len();
        let end = if last { self.range.end() } else { PageNumber(start.0 + self.shard_pages) };
        PageRange::between(start, end)
    }

    /// Which shard a page of the range lies in.
    pub(super) fn shard_of(&self, page: PageNumber) -> usize {
        let index = (page.0 - self.range.start.0) / self.shard_pages;
        (index as usize).min(self.shards.len() - 1)
    }

    /// The shard that a CPU looks into first.
    pub(super) fn home(&self, cpu: CpuId) -> usize {
        cpu.index() * self.shards.len() / self.cpus.len()
    }

    /// Makes every shard's part free. Before any CPU uses the manager.
    pub(super) fn fill<P: Platform>(&self, mm: &Manager<'p, P>) -> Result<(), Error> {
        for (index, shard) in self.shards.iter().enumerate() {
            let handle = self.state.extents.reserve(mm, AllocFrom::NOW)?.commit();
            self.extent(mm, handle).place(mm.platform(), self.part(index));
            shard.holes.insert(mm.platform(), &self.free_by_address(mm), handle);
        }
        Ok(())
    }

    /// Takes an extent out of the first shard that has room for it, this CPU's first; `None` if none has. May wait for
    /// memory.
    pub(super) fn take<P: Platform>(&self, mm: &Manager<'p, P>, want: &Want) -> Result<Option<Owned>, Error> {
        let (home, count) = (self.home(mm.platform().this_cpu()), self.shards.len());
        for index in (home..count).chain(0..home) {
            if self.part(index).intersect(want.within).is_none_or(|part| part.pages < want.pages) {
                continue;
            }
            loop {
                match self.look(mm, index, want) {
                    Look::Found(owned) => return Ok(Some(owned)),
                    Look::NoRoom => break,
                    Look::NoSlots => self.refill(mm, index)?,
                }
            }
        }
        if count > 1 { self.take_across(mm, want) } else { Ok(None) }
    }

    fn look<P: Platform>(&self, mm: &Manager<'p, P>, index: usize, want: &Want) -> Look {
        let shard = &self.shards[index];
        let _guard = shard.free.lock(mm);
        let Some((hole, place)) = self.find_free(mm, &shard.holes, want) else { return Look::NoRoom };
        if shard.spare.len.get(mm.platform()) < SLOTS {
            return Look::NoSlots;
        }
        let spare = || shard.spare.pop(mm, self);
        match self.cut(mm, shard, hole, place, spare) {
            Some(handle) => Look::Found(self.owned(mm, handle, place)),
            None => Look::NoSlots,
        }
    }

    fn owned<P: Platform>(&self, mm: &Manager<'p, P>, handle: u32, place: PageRange) -> Owned {
        let (p, extent) = (mm.platform(), self.extent(mm, handle));
        extent.place(p, place);
        extent.set_purpose(p, Purpose::Unfinished, false);
        extent.more.set(p, 0);
        Owned::new(handle)
    }

    /// Cuts `place` out of a free extent; gives a slot that describes nothing yet. `None`, with nothing changed, if there
    /// are too few slots. Under the shard's lock.
    fn cut<P: Platform>(
        &self,
        mm: &Manager<'p, P>,
        shard: &Shard,
        hole: u32,
        place: PageRange,
        mut spare: impl FnMut() -> Option<u32>,
    ) -> Option<u32> {
        let (p, nodes) = (mm.platform(), self.free_by_address(mm));
        let extent = self.extent(mm, hole);
        let whole = extent.range(p);
        let front = PageRange::between(whole.start, place.start);
        let back = PageRange::between(place.end(), whole.end());
        if front.pages == 0 && back.pages == 0 {
            shard.holes.remove(p, &nodes, hole);
            return Some(hole);
        }
        let taken = spare()?;
        // Either end stays between its neighbours, so the node stays where it is in the tree.
        extent.place(p, if front.pages > 0 { front } else { back });
        shard.holes.refresh(p, &nodes, hole);
        if front.pages > 0 && back.pages > 0 {
            // Both were counted before: `SLOTS`.
            let rest = spare()?;
            self.extent(mm, rest).place(p, back);
            shard.holes.insert(p, &nodes, rest);
        }
        Some(taken)
    }

    /// Puts slots at hand. No lock is held; may wait for memory.
    fn refill<P: Platform>(&self, mm: &Manager<'p, P>, index: usize) -> Result<(), Error> {
        let few = || Pile::reserve(mm, self, SLOTS.into());
        let new = Pile::reserve(mm, self, REFILL.into()).or_else(|_| few())?;
        let shard = &self.shards[index];
        let _guard = shard.free.lock(mm);
        while let Some(slot) = new.pop(mm, self) {
            shard.spare.push(mm, self, slot);
        }
        Ok(())
    }

    /// Looks for room that lies across borders of shards, with all of them locked from the lowest up: at most one look at
    /// each. For what no shard has room for by itself.
    fn take_across<P: Platform>(&self, mm: &Manager<'p, P>, want: &Want) -> Result<Option<Owned>, Error> {
        if want.within.pages < want.pages {
            return Ok(None);
        }
        // A slot for each shard that it can reach into, and for a rest.
        let parts = (want.pages / self.shard_pages + 2).min(self.shards.len() as u64) + 1;
        let slots = Pile::reserve(mm, self, parts)?;
        let mut guards = [const { None }; MAX_SHARDS as usize];
        for (guard, shard) in guards.iter_mut().zip(self.shards) {
            *guard = Some(shard.free.lock(mm));
        }
        let found = self.run_across(mm, want).and_then(|place| self.cut_across(mm, place, &slots));
        drop(guards);
        slots.release(mm, self);
        Ok(found)
    }

    /// The first place in a run of free extents that touch each other at borders. Under all locks.
    fn run_across<P: Platform>(&self, mm: &Manager<'p, P>, want: &Want) -> Option<PageRange> {
        let (p, nodes) = (mm.platform(), self.free_by_address(mm));
        let mut run: Option<PageNumber> = None;
        for (index, shard) in self.shards.iter().enumerate() {
            let part = self.part(index);
            let first = shard.holes.first(p, &nodes).map(|hole| self.extent(mm, hole).range(p));
            let first = first.filter(|hole| hole.start == part.start);
            if let (Some(start), Some(first)) = (run, first)
                && let Some(place) = want.fit(PageRange::between(start, first.end()))
            {
                return Some(place);
            }
            if first == Some(part) {
                run = run.or(Some(part.start));
                continue;
            }
            let last = shard.holes.at_or_before(p, &nodes, part.end().0);
            let last =
                last.map(|hole| self.extent(mm, hole).range(p)).filter(|hole| hole.end() == part.end());
            run = last.map(|hole| hole.start);
        }
        None
    }

    /// Takes a place out of all shards that it lies in. Under all locks.
    fn cut_across<P: Platform>(&self, mm: &Manager<'p, P>, place: PageRange, slots: &Pile) -> Option<Owned> {
        let (p, nodes) = (mm.platform(), self.free_by_address(mm));
        let (first, last) = (self.shard_of(place.start), self.shard_of(PageNumber(place.end().0 - 1)));
        let taken = Pile::default();
        for index in first..=last {
            let shard = &self.shards[index];
            let part = self.part(index).intersect(place)?;
            let hole = shard.holes.at_or_before(p, &nodes, part.start.0)?;
            let slot = self.cut(mm, shard, hole, part, || slots.pop(mm, self))?;
            taken.push(mm, self, slot);
        }
        let owned = self.owned(mm, taken.pop(mm, self)?, place);
        self.extent(mm, owned.handle()).more.set(p, taken.first.get());
        Some(owned)
    }

    /// Makes an extent free.
    pub(super) fn put_back<P: Platform>(&self, mm: &Manager<'p, P>, idle: Idle) {
        let mut returning = Returning::new(mm, self);
        returning.put(idle);
        returning.finish();
    }

    /// Adds to a shard's free extents, merged with its neighbours. Under the shard's lock; the slots that are left over
    /// stay at hand, or go into `surplus`.
    fn join<P: Platform>(
        &self,
        mm: &Manager<'p, P>,
        shard: &Shard,
        slot: u32,
        range: PageRange,
        surplus: &Pile,
    ) {
        let (p, nodes) = (mm.platform(), self.free_by_address(mm));
        let spare = |slot| {
            let full = shard.spare.len.get(p) >= KEEP;
            if full { surplus.push(mm, self, slot) } else { shard.spare.push(mm, self, slot) }
        };
        let before = shard.holes.at_or_before(p, &nodes, range.start.0);
        let before = before.filter(|&hole| self.extent(mm, hole).range(p).end() == range.start);
        let after = shard.holes.at_or_after(p, &nodes, range.end().0);
        let after = after.filter(|&hole| self.extent(mm, hole).range(p).start == range.end());
        let start = before.map_or(range.start, |hole| self.extent(mm, hole).range(p).start);
        let end = after.map_or(range.end(), |hole| self.extent(mm, hole).range(p).end());
        let whole = PageRange::between(start, end);
        match (before, after) {
            (None, None) => {
                self.extent(mm, slot).place(p, whole);
                return shard.holes.insert(p, &nodes, slot);
            }
            (Some(stays), after) => {
                if let Some(after) = after {
                    shard.holes.remove(p, &nodes, after);
                    spare(after);
                }
                self.extent(mm, stays).place(p, whole);
                shard.holes.refresh(p, &nodes, stays);
            }
            (None, Some(stays)) => {
                self.extent(mm, stays).place(p, whole);
                shard.holes.refresh(p, &nodes, stays);
            }
        }
        spare(slot);
    }

    /// Runs `work` on the extents in use of a page's shard, interrupts off.
    fn with_used<P: Platform, R>(
        &self,
        mm: &Manager<'p, P>,
        page: PageNumber,
        work: impl FnOnce(&Tree) -> R,
    ) -> R {
        let busy = &self.shards[self.shard_of(page)].busy;
        // Before the lock, and until after it: an interrupt handler on this CPU may want it.
        let _here = Here::new(mm);
        let _guard = busy.lock.lock(mm);
        work(&busy.used)
    }

    /// From now on whoever knows the address may look it up and unmap it.
    pub(super) fn publish<P: Platform>(&self, mm: &Manager<'p, P>, handle: u32) {
        let (p, nodes) = (mm.platform(), self.busy_by_address(mm));
        let start = self.extent(mm, handle).range(p).start;
        self.with_used(mm, start, |used| used.insert(p, &nodes, handle));
    }

    /// Takes an extent out of use that starts here and is used for this. Whoever gets it is alone with it. Any context.
    pub(super) fn withdraw<P: Platform>(
        &self,
        mm: &Manager<'p, P>,
        start: PageNumber,
        purpose: Purpose,
    ) -> Result<u32, Error> {
        let (p, nodes) = (mm.platform(), self.busy_by_address(mm));
        self.with_used(mm, start, |used| {
            let handle = self.covering(mm, used, start).ok_or(Error::NotMapped(start))?;
            let extent = self.extent(mm, handle);
            if extent.range(p).start != start || extent.purpose(p) != purpose {
                return Err(Error::WrongRelease(start));
            }
            used.remove(p, &nodes, handle);
            Ok(handle)
        })
    }

    fn covering<P: Platform>(&self, mm: &Manager<'p, P>, used: &Tree, page: PageNumber) -> Option<u32> {
        let p = mm.platform();
        let handle = used.at_or_before(p, &self.busy_by_address(mm), page.0)?;
        self.extent(mm, handle).mapped(p).contains(page).then_some(handle)
    }

    /// The pages of the extent in use that holds this one. Any context.
    pub(super) fn find_used<P: Platform>(&self, mm: &Manager<'p, P>, page: PageNumber) -> Option<PageRange> {
        let (p, nodes) = (mm.platform(), self.busy_by_address(mm));
        // One that reaches across borders is in the shard of its first page, and then nothing lies before the page in
        // the shards in between.
        (0..=self.shard_of(page))
            .rev()
            .find_map(|index| {
                self.with_used(mm, self.part(index).start, |used| {
                    used.at_or_before(p, &nodes, page.0).map(|handle| self.extent(mm, handle).mapped(p))
                })
            })
            .filter(|range| range.contains(page))
    }

    /// Whatever a look at a quiet system needs: the free and the used extents of a shard.
    pub(super) fn each_extent<P: Platform>(&self, mm: &Manager<'p, P>, mut each: impl FnMut(u32, Place)) {
        let p = mm.platform();
        for shard in self.shards {
            for (tree, place) in [(&shard.holes, Place::Free), (&shard.busy.used, Place::Used)] {
                let nodes = self.free_by_address(mm);
                let mut at = tree.first(p, &nodes);
                while let Some(handle) = at {
                    each(handle, place);
                    at = tree.next(p, &nodes, handle);
                }
            }
            let lists =
                [(shard.spare.first.get(p), Place::Spare), (shard.waiting.extents.get(p), Place::Waits)];
            for (first, place) in lists {
                let mut next = first;
                while let Some(handle) = next.checked_sub(1) {
                    each(handle, place);
                    next = self.extent(mm, handle).next.get(p);
                }
            }
        }
    }

    /// Blocks of a shard that no CPU has, under the lock that guards their list.
    pub(super) fn with_blocks<P: Platform, R>(
        &self,
        mm: &Manager<'p, P>,
        index: usize,
        work: impl FnOnce(&[Word32; 2]) -> R,
    ) -> R {
        let shard = &self.shards[index];
        let _guard = shard.free.lock(mm);
        work(&shard.listed)
    }
}

/// Where an extent is found by a look at a quiet system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Free,
    Used,
    Spare,
    Waits,
}

/// Extents that become free one after the other, some at a time under each hold of a lock.
pub(super) struct Returning<'a, 'p, P: Platform> {
    mm: &'a Manager<'p, P>,
    v: &'a Vmap<'p>,
    held: Option<(usize, SpinGuard<'a, P>)>,
    count: u32,
    surplus: Pile,
}

impl<'a, 'p, P: Platform> Returning<'a, 'p, P> {
    pub fn new(mm: &'a Manager<'p, P>, v: &'a Vmap<'p>) -> Self {
        Returning { mm, v, held: None, count: 0, surplus: Pile::default() }
    }

    /// Makes an extent free, each part of it in its shard.
    pub fn put(&mut self, idle: Idle) {
        let (mm, v, p) = (self.mm, self.v, self.mm.platform());
        let extent = v.extent(mm, idle.handle());
        let whole = extent.range(p);
        let (mut slot, mut more) = (Some(idle.handle()), extent.more.get(p));
        let mut at = whole.start;
        while at < whole.end()
            && let Some(here) = slot
        {
            let index = v.shard_of(at);
            let part = PageRange::between(at, v.part(index).end().min(whole.end()));
            // Taken out first: the slot's link is the list's from here on.
            slot = more.checked_sub(1);
            more = slot.map_or(0, |next| v.extent(mm, next).next.get(p));
            self.hold(index);
            v.join(mm, &v.shards[index], here, part, &self.surplus);
            at = part.end();
        }
    }

    /// Has the lock of a shard, but not for too many extents in a row (PITFALLS 30).
    fn hold(&mut self, index: usize) {
        let p = self.mm.platform();
        let bounded = !p.broken(Rule::BoundedHold);
        if self.held.as_ref().is_some_and(|(at, _)| *at != index) || bounded && self.count == HOLD {
            self.let_go();
        }
        if self.held.is_none() {
            self.held = Some((index, self.v.shards[index].free.lock(self.mm)));
        }
        self.count += 1;
    }

    fn let_go(&mut self) {
        if self.held.take().is_some() {
            self.mm.emit(Event::VmapReturned { extents: core::mem::take(&mut self.count) });
        }
    }

    pub fn finish(mut self) {
        self.let_go();
        self.surplus.release(self.mm, self.v);
    }
}

impl Waiting {
    /// Pushes a node whose link is `next`. Any context, no lock.
    pub fn push<P: Platform>(p: &P, head: &Word32, next: &Word32, handle: u32) {
        let mut seen = head.load(p, Ordering::Relaxed);
        loop {
            next.set(p, seen);
            // Release: partner of the Acquire of the swap in `purge`: the entries were cleared before. Nobody takes single
            // ones, so a head that looks the same is the same.
            match head.replace(p, seen, handle + 1, Ordering::AcqRel) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }
}
