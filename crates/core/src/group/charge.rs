//! Charging: before a frame is allocated, and the other way when it is freed.

use core::sync::atomic::Ordering;

use super::state::GroupState;
use crate::Manager;
use crate::addr::FrameNumber;
use crate::error::Error;
use crate::handle::GroupSlot;
use crate::memmap::Frame;
use crate::platform::Platform;
use crate::rule::Rule;

/// Pages that a CPU takes at once, far from the limit.
const STOCK: u64 = 32;

/// What became of a task that wanted room in a group.
pub(crate) enum Room {
    /// The group is charged.
    Charged,
    /// The group has ended: nobody's limit is in the way.
    Ended,
    /// Nothing could be had.
    None,
}

/// A group is charged with some pages, for which there is no frame yet.
#[must_use = "charged for no frame: put it on one, or drop it"]
pub(crate) struct Charge<'m, 'p, P: Platform> {
    mm: &'m Manager<'p, P>,
    group: GroupSlot,
    pages: u64,
}

/// The group that is charged with a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Payer {
    /// Within its limit.
    Within(GroupSlot),
    /// Whether there is room or not.
    Regardless(GroupSlot),
}

impl<'m, 'p, P: Platform> Charge<'m, 'p, P> {
    /// Whether there is room or not: for a page that takes the place of another, which goes, and for one whose place on a device ends.
    pub fn regardless(mm: &'m Manager<'p, P>, group: GroupSlot, pages: u64) -> Self {
        if group != GroupSlot::NONE {
            mm.groups().state(group).charged.pages.fetch_add(mm.platform(), pages, Ordering::Relaxed);
        }
        Charge { mm, group, pages }
    }

    /// Both at once. They are of one group.
    pub fn and(mut self, other: Self) -> Self {
        debug_assert!(self.group == other.group, "of two groups");
        self.pages += other.pages;
        core::mem::forget(other);
        self
    }

    /// These are the pages.
    pub fn put_on(self, first: FrameNumber) {
        if self.group != GroupSlot::NONE {
            self.mm.groups().set_of_frame(self.mm.platform(), first, self.group);
        }
        core::mem::forget(self);
    }
}

impl<P: Platform> Drop for Charge<'_, '_, P> {
    fn drop(&mut self) {
        self.mm.uncharge(self.group, self.pages);
    }
}

impl GroupState {
    /// How many pages it may be charged with now, for so many that are wanted and so many that are welcome: all, or only those that are
    /// wanted, or none.
    fn take<P: Platform>(&self, p: &P, want: u64, welcome: u64, far: u64) -> Option<u64> {
        let mut charged = self.charged.pages.get(p);
        loop {
            let room = self.limit.get(p).saturating_sub(charged);
            if room < want {
                return None;
            }
            let take = if room >= far { want + welcome } else { want };
            match self.charged.pages.replace(p, charged, charged + take, Ordering::Relaxed) {
                Ok(_) => return Some(take),
                Err(now) => charged = now,
            }
        }
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Charges a group with pages. With `may_reclaim` it may wait while the group's own pages are reclaimed; interrupts are on then, and
    /// no spin lock is held.
    ///
    /// # Errors
    /// [`Error::LimitReached`].
    pub(crate) fn charge_group(
        &self,
        group: GroupSlot,
        pages: u64,
        may_reclaim: bool,
    ) -> Result<Charge<'_, 'p, P>, Error> {
        let charged = Charge { mm: self, group, pages };
        if group == GroupSlot::NONE || self.try_charge(group, pages) {
            return Ok(charged);
        }
        core::mem::forget(charged);
        // From here on the caller may wait, while the group ends and its place becomes another's.
        let id = self.groups().id(self.platform(), group);
        let try_charge = || self.try_charge(group, pages);
        let room = if may_reclaim {
            self.make_room(id, pages, try_charge)
        } else if self.return_stocks(group) && try_charge() {
            Room::Charged
        } else {
            Room::None
        };
        match room {
            Room::Charged => Ok(Charge { mm: self, group, pages }),
            Room::Ended => Ok(Charge { mm: self, group: GroupSlot::NONE, pages }),
            Room::None => Err(Error::LimitReached(id)),
        }
    }

    /// Whether a group's limit allows so many pages at all.
    ///
    /// # Errors
    /// [`Error::LimitReached`].
    pub(crate) fn may_ever_have(&self, group: GroupSlot, pages: u64) -> Result<(), Error> {
        let p = self.platform();
        if group == GroupSlot::NONE || self.groups().state(group).limit.get(p) >= pages {
            return Ok(());
        }
        Err(Error::LimitReached(self.groups().id(p, group)))
    }

    /// From this CPU's stock, or the group itself.
    fn try_charge(&self, group: GroupSlot, pages: u64) -> bool {
        let p = self.platform();
        if self.take_stock(group, pages) {
            return true;
        }
        // All CPUs may have stocks, and the room must do for them.
        let far = pages + STOCK * (u64::from(self.root.online_cpus.get(p)) + 1);
        let Some(taken) = self.groups().state(group).take(p, pages, STOCK, far) else { return false };
        if taken > pages {
            self.put_stock(group, taken - pages);
        }
        true
    }

    /// Takes pages out of this CPU's stock, if that is this group's and there are as many. Others may take it whole at any moment.
    fn take_stock(&self, group: GroupSlot, pages: u64) -> bool {
        let p = self.platform();
        let stock = &self.groups().stocks[p.this_cpu().index()].0;
        let mut now = stock.get(p);
        while GroupSlot((now >> 32) as u32) == group && now & u64::from(u32::MAX) >= pages {
            match stock.replace(p, now, now - pages, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        false
    }

    /// Makes pages that a group is charged with this CPU's stock. What it had goes back.
    fn put_stock(&self, group: GroupSlot, pages: u64) {
        let p = self.platform();
        self.groups().state(group).charged.stocks.fetch_add(p, 1, Ordering::Relaxed);
        let stock = &self.groups().stocks[p.this_cpu().index()].0;
        self.give_back(stock.swap(p, u64::from(group.0) << 32 | pages, Ordering::Relaxed));
    }

    /// Takes the stocks of all CPUs that have some of this group back. Whether there were any.
    pub(crate) fn return_stocks(&self, group: GroupSlot) -> bool {
        let p = self.platform();
        if self.groups().state(group).charged.stocks.get(p) == 0 || p.broken(Rule::StocksBeforeRefusal) {
            return false;
        }
        for stock in self.groups().stocks {
            let now = stock.0.get(p);
            // Whoever changes it meanwhile is a CPU that takes from it, or fills it anew: the next look finds that.
            if now >> 32 == group.0.into() && stock.0.replace(p, now, 0, Ordering::Relaxed).is_ok() {
                self.give_back(now);
            }
        }
        true
    }

    /// Pages of a group that are in CPUs' stocks.
    pub(crate) fn stocked(&self, group: GroupSlot) -> u64 {
        let stocks = self.groups().stocks.iter().map(|stock| stock.0.get(self.platform()));
        stocks.filter(|stock| stock >> 32 == group.0.into()).map(|stock| stock & u64::from(u32::MAX)).sum()
    }

    /// What was a CPU's stock is charged no more.
    fn give_back(&self, stock: u64) {
        let (p, group) = (self.platform(), GroupSlot((stock >> 32) as u32));
        if group != GroupSlot::NONE {
            self.groups().state(group).charged.stocks.fetch_sub(p, 1, Ordering::Relaxed);
            self.uncharge(group, stock & u64::from(u32::MAX));
        }
    }

    fn uncharge(&self, group: GroupSlot, pages: u64) {
        if group != GroupSlot::NONE && pages > 0 {
            self.groups().state(group).charged.pages.fetch_sub(self.platform(), pages, Ordering::Relaxed);
        }
    }

    /// Frames of one order are about to be freed: their groups are charged with them no more.
    pub(crate) fn uncharge_all(&self, frames: &[FrameNumber], order: u8) {
        let (p, groups) = (self.platform(), self.groups());
        if !groups.exist() {
            return;
        }
        let mut rest = frames;
        while let Some(&first) = rest.first() {
            // A run of one group's costs one step.
            let group = groups.of_frame(p, first);
            let run = rest.iter().take_while(|&&n| groups.of_frame(p, n) == group).count();
            let (run, after) = rest.split_at(run);
            if group != GroupSlot::NONE {
                run.iter().for_each(|&n| groups.set_of_frame(p, n, GroupSlot::NONE));
                self.uncharge(group, (run.len() as u64) << order);
            }
            rest = after;
        }
    }

    /// A large page becomes small ones: each is charged for itself.
    pub(crate) fn split_charge(&self, first: FrameNumber, pages: u32) {
        let (p, groups) = (self.platform(), self.groups());
        let group = groups.of_frame(p, first);
        if group != GroupSlot::NONE {
            (1..pages).for_each(|i| groups.set_of_frame(p, first.add(i), group));
        }
    }

    /// Whether what each group is charged with is what frames and stocks say: for audits.
    pub(crate) fn audit_groups(&self) -> bool {
        let (p, groups, memmap) = (self.platform(), self.groups(), self.memmap());
        groups.slots(p).all(|group| {
            let frames = memmap.iter().filter(|&(n, _)| groups.of_frame(p, n) == group);
            let held: u64 = frames.map(|(_, frame)| 1 << Frame::order_of(frame.state.unseen())).sum();
            let stocks = groups.stocks.iter().filter(|stock| stock.0.get(p) >> 32 == group.0.into()).count();
            let charged = &groups.state(group).charged;
            charged.pages.get(p) == held + self.stocked(group) && charged.stocks.get(p) as usize == stocks
        })
    }
}
