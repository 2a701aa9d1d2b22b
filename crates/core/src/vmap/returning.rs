//! Extents that become free: merged with their neighbours, some at a time under each hold of a lock (PITFALLS 30).

use super::extent::Idle;
use super::shard::{HOLD, KEEP};
use super::slots::Pile;
use super::state::KernelRange;
use super::state::Shard;
use crate::Manager;
use crate::addr::PageRange;
use crate::event::Event;
use crate::platform::Platform;
use crate::rule::Rule;
use crate::sync::SpinGuard;

/// Extents that become free one after the other, some at a time under each hold of a lock.
pub(super) struct Returning<'a, 'p, P: Platform> {
    mm: &'a Manager<'p, P>,
    v: &'a KernelRange<'p>,
    held: Option<(usize, SpinGuard<'a, P>)>,
    count: u32,
    surplus: Pile,
}

impl<'a, 'p, P: Platform> Returning<'a, 'p, P> {
    pub fn new(mm: &'a Manager<'p, P>, v: &'a KernelRange<'p>) -> Self {
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

impl<'p> KernelRange<'p> {
    /// Makes an extent free.
    pub(super) fn put_back<P: Platform>(&self, mm: &Manager<'p, P>, idle: Idle) {
        let mut returning = Returning::new(mm, self);
        returning.put(idle);
        returning.finish();
    }

    /// Adds to a shard's free extents, merged with its neighbours. Under the shard's lock; the slots that are left over
    /// stay with the shard, or go into `surplus`.
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
}
