//! What becomes of a task that wants memory of a group that is charged with all that it may have.
//!
//! It reclaims of the group's own pages, and of no others; where it finds none it lets others finish, as any task does that
//! finds no frame (`stall.rs`), and in the end asks the embedding kernel for a victim in the group.

use crate::Manager;
use crate::charge::charge;
use crate::handle::GroupSlot;
use crate::kind::Kind;
use crate::platform::{Platform, Shortage};
use crate::profile::Scope;
use crate::reclaim::scan::of_group;
use crate::reclaim::stall::{RETRIES, RETRY_NS, VAIN};
use crate::resched::Work;

impl<'p, P: Platform> Manager<'p, P> {
    /// Reclaims a batch of a group's pages. Gives how many. Needs interrupts on and no spin lock held. May wait.
    pub(crate) fn shrink_group(&self, group: GroupSlot, work: &mut Work<'_, 'p, P>) -> u32 {
        of_group(self, group, work)
    }

    /// Reclaims of a group until `found` finds what it wants; nothing if it never does. Needs interrupts on and no spin lock held. May
    /// wait.
    pub(crate) fn make_room(
        &self,
        group: GroupSlot,
        pages: u64,
        mut found: impl FnMut() -> Option<()>,
    ) -> Option<()> {
        let p = self.platform();
        let _scope = charge(p, Scope::AllocStall);
        self.might_sleep();
        let state = self.groups().state(group);
        state.hits.fetch_add(p, 1, core::sync::atomic::Ordering::Relaxed);
        let mut work = Work::begin(self);
        if self.parks() {
            // What waits for a sweep may be this group's.
            self.unpark(&mut work);
        }
        let mut vain = 0;
        loop {
            for _ in 0..RETRIES {
                self.return_stocks(group);
                if let Some(found) = found() {
                    return Some(found);
                }
                let freed = of_group(self, group, &mut work);
                if let Some(found) = found() {
                    return Some(found);
                }
                // What could be reclaimed is in other hands: they are done soon.
                if freed == 0 && !self.await_pageout() {
                    work.give_way();
                    p.pause(RETRY_NS);
                }
            }
            let order = pages.ilog2() as u8;
            let short = Shortage {
                order,
                node: self.node_here(),
                kind: Kind::Anon,
                group: Some(self.groups().id(p, group)),
            };
            let again = vain < VAIN && p.out_of_memory(&short);
            self.emit(crate::event::Event::OutOfMemory { again });
            if !again {
                return None;
            }
            let before = state.charged.pages.get(p);
            let room = (0..RETRIES << vain).any(|look| {
                if look > 0 {
                    work.give_way();
                    p.pause(RETRY_NS);
                }
                state.charged.pages.get(p) < before || state.limit.get(p) > before
            });
            vain = if room { 0 } else { vain + 1 };
        }
    }
}
