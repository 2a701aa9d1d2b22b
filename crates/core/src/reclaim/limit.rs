//! What becomes of a task that wants memory of a group that is charged with all that it may have.
//!
//! It reclaims of the group's own pages, and of no others; where it finds none it lets others finish, as any task does that
//! finds no frame (`stall.rs`), and in the end asks the embedding kernel for a victim in the group.

use crate::Manager;
use crate::addr::NodeSet;
use crate::charge::charge;
use crate::event::Event;
use crate::group::Room;
use crate::handle::{GroupId, GroupSlot};
use crate::kind::Kind;
use crate::platform::{Platform, Shortage};
use crate::profile::Scope;
use crate::reclaim::scan::of_group;
use crate::reclaim::stall::{RETRIES, RETRY_NS, VAIN};
use crate::resched::Work;

impl<'p, P: Platform> Manager<'p, P> {
    /// Reclaims of a group's pages for as long as they are `wanted`, and some come. Whether they are is looked at after each point where
    /// others may run: the group may end there, and another have its place. Needs interrupts on and no spin lock held. May wait.
    pub(crate) fn shrink_group_while(
        &self,
        group: GroupSlot,
        wanted: &dyn Fn() -> bool,
        work: &mut Work<'_, 'p, P>,
    ) {
        let mut frees = || of_group(self, group, wanted, work) > 0;
        while wanted() && (frees() || wanted() && self.drain_lru_of(group) && frees()) {}
    }

    /// Reclaims of a group until `try_charge` succeeds. Needs interrupts on and no spin lock held. May wait.
    pub(crate) fn make_room(&self, id: GroupId, pages: u64, try_charge: impl Fn() -> bool) -> Room {
        let p = self.platform();
        let _scope = charge(p, Scope::AllocStall);
        self.might_sleep();
        let (group, state) = (id.slot, self.groups().state(id.slot));
        state.hits.fetch_add(p, 1, core::sync::atomic::Ordering::Relaxed);
        let goes_on = || state.life.is(p, id.life);
        let look = || match goes_on() {
            false => Some(Room::Ended),
            true => (try_charge() || self.return_stocks(group) && try_charge()).then_some(Room::Charged),
        };
        let mut work = Work::begin(self);
        if self.parks() {
            // What waits for a sweep may be this group's.
            self.unpark(&mut work);
        }
        let mut vain = 0;
        loop {
            for round in 0..RETRIES {
                if let Some(found) = look() {
                    return found;
                }
                let mut freed = of_group(self, group, &goes_on, &mut work);
                // No scan finds what is on its way to a list: on this CPU, or on others.
                if freed == 0 && (round == 0 || round + 1 == RETRIES) && self.drain_lru_of(group) {
                    freed = of_group(self, group, &goes_on, &mut work);
                }
                if let Some(found) = look() {
                    return found;
                }
                // What could be reclaimed is in other hands: they are done soon.
                if freed == 0 && !self.await_pageout() {
                    work.give_way();
                    p.pause(RETRY_NS);
                }
            }
            // Nobody has to end for tables in which nothing is left.
            if goes_on() {
                self.reclaim_tables(Some(group), &mut work);
            }
            // A victim of before may have ended since: nobody else has to.
            if let Some(found) = look() {
                return found;
            }
            let before = state.charged.pages.get(p);
            let (order, node) = (pages.ilog2() as u8, self.node_here());
            let short = Shortage { order, node, nodes: NodeSet::ALL, kind: Kind::Anon, group: Some(id) };
            let ask = || {
                let again = p.out_of_memory(&short);
                self.emit(Event::OutOfMemory { again });
                again
            };
            if vain == VAIN || !ask() {
                // Somebody may have ended while this was decided.
                return look().unwrap_or(Room::None);
            }
            let mut freed = false;
            for pause in 0..RETRIES << vain {
                if pause > 0 {
                    work.give_way();
                    p.pause(RETRY_NS);
                }
                if let Some(found) = look() {
                    return found;
                }
                // Others may have been faster: it was not in vain.
                freed = state.charged.pages.get(p) < before;
                if freed {
                    break;
                }
            }
            vain = if freed { 0 } else { vain + 1 };
        }
    }
}
