//! The slow path: what becomes of a task that wants frames where no zone has any above its mark.
//!
//! It reclaims for itself and looks, has the frames that CPUs keep at hand drained and looks again, a number of times.
//! From the first drain on, until the zones have their low watermark free again, CPUs keep nothing at hand: what is freed
//! is found by all, and the next drain has nobody to ask. In the end the task asks the embedding kernel for a victim
//! ([`Platform::out_of_memory`]): then it begins anew, or has to do without.

use super::Certainty;
use super::alloc::Request;
use crate::Manager;
use crate::addr::FrameNumber;
use crate::error::Error;
use crate::event::Event;
use crate::platform::{Platform, Shortage};
use crate::profile::{self, Scope};

/// How many looks in a row find nothing before the embedding kernel is asked for a victim. Linux: 16.
const RETRIES: u32 = 16;
/// How long a task leaves others to finish when it finds nothing, in nanoseconds: about a write to a fast device.
const RETRY_NS: u32 = 20_000;

impl<P: Platform> Manager<'_, P> {
    /// Reclaims until a block can be had. Needs interrupts on and no spin lock held. May wait.
    pub(super) fn stall(&self, request: &Request) -> Result<FrameNumber, Error> {
        let _scope = profile::scope(self.platform(), Scope::AllocStall);
        let p = self.platform();
        self.might_sleep();
        let began = p.now().0;
        self.emit(Event::AllocStall);
        let found = self.struggle(request);
        self.emit(Event::AllocStallEnds { ns: p.now().0 - began });
        found
    }

    fn struggle(&self, request: &Request) -> Result<FrameNumber, Error> {
        let p = self.platform();
        let &Request { order, kind, node } = request;
        loop {
            for round in 0..RETRIES {
                let began = p.now().0;
                let (found, reclaimed) = self.reclaim_once(request, round);
                self.emit(Event::DirectReclaim { ns: p.now().0 - began });
                if let Some(found) = found {
                    return Ok(found);
                }
                if reclaimed == 0 && p.possible_cpus() > 1 {
                    // What could be reclaimed is in other hands: isolated, or on its way to the device. They are
                    // done soon.
                    p.cond_resched();
                    p.pause(RETRY_NS);
                }
            }
            let again = p.out_of_memory(&Shortage { order, node, kind });
            self.emit(Event::OutOfMemory { again });
            if !again {
                // The victim, or whoever has none: the last reserve is for those who must come to an end.
                let reserve = self.take_above(request, |zone| zone.watermarks.min / 4);
                return reserve.ok_or(Error::OutOfMemory);
            }
        }
    }

    /// Reclaims once and looks; has the CPUs' lists drained and looks again. Gives the block, and how much was reclaimed.
    fn reclaim_once(&self, request: &Request, round: u32) -> (Option<FrameNumber>, u32) {
        let look = || self.take_above(request, |zone| zone.watermarks.min);
        let reclaimed = crate::reclaim::direct(self, request.node);
        if let Some(found) = look() {
            return (Some(found), reclaimed);
        }
        // What was reclaimed, and all else that is free, may be at hand on other CPUs. Where nothing was, the first round
        // has seen to that; the last one sees to it again, before anybody has to end for it.
        if reclaimed == 0 && round > 0 && round + 1 < RETRIES {
            return (None, 0);
        }
        self.fallback(request.node).for_each(|zone| zone.starve(self));
        self.drain_page_lists(Certainty::Likely);
        (look(), reclaimed)
    }
}
