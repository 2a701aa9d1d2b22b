//! Extents that reach across borders of shards: what no shard alone has room for.
//!
//! Shards are locked from the lowest up, each is looked at once, and the locks are held of those only that the run of free
//! addresses lies in that is looked at. Such an extent has a slot for each shard that it lies
//! in, so that it can become free without memory.

use super::extent::{Owned, Want};
use super::slots::Pile;
use super::state::KernelRange;
use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::error::Error;
use crate::platform::Platform;
use crate::sync::Ticket;

impl<'p> KernelRange<'p> {
    /// Looks for room that lies across borders of shards: at most one look at each. For what no shard has room for by itself.
    pub(super) fn take_across<P: Platform>(
        &self,
        mm: &Manager<'p, P>,
        want: &Want,
    ) -> Result<Option<Owned>, Error> {
        if want.within.pages < want.pages {
            return Ok(None);
        }
        // A slot for each shard that it can reach into, and for a rest.
        let parts = (want.pages / self.shard_pages + 2).min(self.shards.len() as u64) + 1;
        let slots = Pile::reserve(mm, self, parts)?;
        let mut held = Held { mm, v: self, from: 0, to: 0 };
        let found = self.run_across(mm, want, &mut held).and_then(|place| self.cut_across(mm, place, &slots));
        drop(held);
        slots.release(mm, self);
        Ok(found)
    }

    /// The first place in a run of free extents that touch each other at borders; the locks of its shards are held then.
    fn run_across<P: Platform>(
        &self,
        mm: &Manager<'p, P>,
        want: &Want,
        held: &mut Held<'_, 'p, P>,
    ) -> Option<PageRange> {
        let (p, nodes) = (mm.platform(), self.free_by_address(mm));
        let mut run: Option<PageNumber> = None;
        for (index, shard) in self.shards.iter().enumerate() {
            if run.is_none() {
                held.release();
            }
            let part = self.part(index);
            if part.intersect(want.within).is_none() {
                run = None;
                continue;
            }
            held.lock(index);
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
            // A run that begins here: those before are not in it.
            held.release_below(index);
            let last = shard.holes.at_or_before(p, &nodes, part.end().0);
            let last =
                last.map(|hole| self.extent(mm, hole).range(p)).filter(|hole| hole.end() == part.end());
            run = last.map(|hole| hole.start);
        }
        None
    }

    /// Takes a place out of all shards that it lies in. Under their locks.
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
}

/// Shards in a row whose locks are held.
struct Held<'a, 'p, P: Platform> {
    mm: &'a Manager<'p, P>,
    v: &'a KernelRange<'p>,
    from: usize,
    /// One more than the last.
    to: usize,
}

impl<P: Platform> Held<'_, '_, P> {
    /// The next one.
    fn lock(&mut self, index: usize) {
        if self.from == self.to {
            self.from = index;
        }
        let shard = &self.v.shards[index];
        let ticket = shard.free.take(self.mm);
        shard.ticket.set(self.mm.platform(), ticket.number());
        self.to = index + 1;
    }

    fn release_below(&mut self, end: usize) {
        let p = self.mm.platform();
        for shard in &self.v.shards[self.from..end] {
            shard.free.release(self.mm, Ticket::of(shard.ticket.get(p)));
        }
        self.from = end;
    }

    fn release(&mut self) {
        self.release_below(self.to);
    }
}

impl<P: Platform> Drop for Held<'_, '_, P> {
    fn drop(&mut self) {
        self.release();
    }
}
