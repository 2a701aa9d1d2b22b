//! The slow path: what becomes of a task that wants frames where no zone has any above its mark.
//!
//! It reclaims for itself and looks, has the per-CPU lists of frames drained and looks again, a number of times.
//! Where nothing was found it lets others finish: what could be reclaimed is in other hands, or on its way to a device.
//! From the first drain on, until the zones have their low watermark free again, CPUs keep nothing on their lists: what
//! is freed is found by all, and the next drain has nobody to ask. In the end the task asks the embedding kernel for a
//! victim ([`Services::out_of_memory`](crate::platform::Services::out_of_memory)): then it waits for what that frees
//! and begins anew, or has to do without.

use crate::Manager;
use crate::addr::{FrameNumber, NodeSet};
use crate::charge::charge;
use crate::error::Error;
use crate::event::{Counter, Event};
use crate::frame::{AllocRequest, Certainty, Zone};
use crate::platform::{Platform, Shortage};
use crate::profile::Scope;
use crate::resched::Work;

/// How many looks in a row find nothing before the embedding kernel is asked for a victim. Linux: 16.
pub(super) const RETRIES: u32 = 16;
/// How long a task leaves others to finish when it finds nothing, in nanoseconds: about a write to a fast device.
pub(super) const RETRY_NS: u32 = 20_000;
/// How many times in a row the embedding kernel is believed that memory comes, and none does. The wait doubles each time: more
/// than a second in all.
pub(super) const VAIN: u32 = 12;
/// The largest order for which frames that others free are progress. Linux: the same, its costly order.
const COSTLY: u8 = 3;

impl<P: Platform> Manager<'_, P> {
    /// Reclaims until a block can be had. Needs interrupts on and no spin lock held. May wait.
    pub(crate) fn stall(&self, request: &AllocRequest) -> Result<FrameNumber, Error> {
        let _scope = charge(self.platform(), Scope::AllocStall);
        let p = self.platform();
        self.might_sleep();
        let began = p.now().0;
        self.emit(Event::AllocStall);
        let found = self.struggle(request);
        self.emit(Event::AllocStallEnds { ns: p.now().0 - began });
        found
    }

    fn struggle(&self, request: &AllocRequest) -> Result<FrameNumber, Error> {
        let p = self.platform();
        let &AllocRequest { order, kind, node, nodes } = request;
        // What is freed may be of no use: it is of another node, or too small.
        let helps = order <= COSTLY && nodes == NodeSet::ALL;
        let mut vain = 0;
        let mut work = Work::begin(self);
        if self.parks() {
            self.unpark(&mut work);
            if let Some(found) = self.take_above(request, Zone::min) {
                return Ok(found);
            }
        }
        loop {
            if let Some(found) = self.reclaim_often(request, &mut work) {
                return Ok(found);
            }
            // Nobody has to end for tables in which nothing is left.
            if P::SPACES {
                if self.reclaim_tables(None, &mut work) > 0 {
                    self.frames().drain(Certainty::Likely);
                }
                if let Some(found) = self.take_above(request, Zone::min) {
                    return Ok(found);
                }
            }
            loop {
                let before = self.counter(Counter::PgFree);
                let again = p.out_of_memory(&Shortage { order, node, nodes, kind, group: None });
                self.emit(Event::OutOfMemory { again });
                if !again {
                    return Err(Error::OutOfMemory);
                }
                let freed = self.await_freed(before, RETRIES << vain, &mut work);
                vain = if freed && helps { 0 } else { vain + 1 };
                // Memory that has come online was not freed.
                if let Some(found) = self.take_above(request, Zone::min) {
                    return Ok(found);
                }
                if vain == VAIN {
                    return Err(Error::OutOfMemory);
                }
                if freed {
                    break;
                }
            }
        }
    }

    fn reclaim_often(&self, request: &AllocRequest, work: &mut Work<'_, '_, P>) -> Option<FrameNumber> {
        let p = self.platform();
        for round in 0..RETRIES {
            let began = p.now().0;
            let (found, reclaimed) = self.reclaim_once(request, round, work);
            self.emit(Event::DirectReclaim { ns: p.now().0 - began });
            if found.is_some() {
                return found;
            }
            // What could be reclaimed is in other hands: on its way to a device, or isolated. They are done soon. Also where
            // this CPU is the only one: other tasks run in the first, and the device's interrupt arrives in the second.
            if reclaimed == 0 && !self.await_pageout() {
                work.give_way();
                p.pause(RETRY_NS);
            }
        }
        None
    }

    /// Waits until any frame is freed, anywhere, for at most so many looks; whether one was since the count was `before`.
    fn await_freed(&self, before: u64, looks: u32, work: &mut Work<'_, '_, P>) -> bool {
        let p = self.platform();
        (0..looks).any(|look| {
            if look > 0 {
                work.give_way();
                p.pause(RETRY_NS);
            }
            self.counter(Counter::PgFree) != before
        })
    }

    /// Reclaims once and looks; has the CPUs' lists drained and looks again. Returns the block, and how much was reclaimed.
    fn reclaim_once(
        &self,
        request: &AllocRequest,
        round: u32,
        work: &mut Work<'_, '_, P>,
    ) -> (Option<FrameNumber>, u32) {
        let look = || self.take_above(request, Zone::min);
        // Without spaces there is nothing to take but frames that wait for a flush of kernel addresses.
        let reclaimed = if P::SPACES {
            crate::reclaim::direct(self, request, work)
        } else {
            match self.purge_frames(1, true) {
                0 => crate::reclaim::caches::ask_all(self, request.node, work),
                purged => purged,
            }
        };
        if let Some(found) = look() {
            return (Some(found), reclaimed);
        }
        // What was reclaimed, and all else that is free, may be on the lists of other CPUs. Where nothing was, the
        // first round has seen to that; the last one sees to it again, before anybody has to end for it.
        if reclaimed == 0 && round > 0 && round + 1 < RETRIES {
            return (None, 0);
        }
        self.zones_for(request).for_each(|zone| zone.starve(self));
        self.frames().drain(Certainty::Likely);
        (look(), reclaimed)
    }
}
