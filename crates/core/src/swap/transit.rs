//! Slots of no device: for pages that change their frame, and have no other slot.
//!
//! A page on its way is as one that goes to swap: its entries name its slot, by that a fault finds it, and waits for its lock. What differs is that nothing is
//! written, and that the entries lead to the page again once it has its new frame. So a few slots are enough. Where an entry could not be had
//! at that moment (somebody has the VMAs of its space alone), the page keeps its slot until a fault brings it back.
//!
//! They are the last clusters that have a number, one for each four CPUs, of an area behind those of devices: no page goes there to stay. With one for all
//! of sixteen CPUs these spent most of their time at its lock.

use core::sync::atomic::Ordering;

use super::area::{CLUSTER, state};
use super::slots::Cluster;
use crate::Manager;
use crate::addr::FrameNumber;
use crate::error::Error;
use crate::memmap::{MAX_SLOT, flag};
use crate::percpu::MAX_AREAS;
use crate::platform::Platform;

/// The most of such clusters.
pub(super) const MOST: u32 = 8;
/// The number of the first. Those of devices are below.
pub(super) const NUMBER: u32 = MAX_SLOT / CLUSTER - MOST;

const FIRST: u32 = NUMBER * CLUSTER;

impl<P: Platform> Manager<'_, P> {
    /// Whether a slot is none of a device's.
    pub(crate) const fn is_transit(slot: u32) -> bool {
        slot >= FIRST
    }

    /// How many of these clusters there are.
    fn transit_clusters(&self) -> u32 {
        self.platform().possible_cpus().div_ceil(4).clamp(1, MOST)
    }

    /// Makes the slots, if they are not there yet and there is swap at all: two frames that stay, and one more for each four CPUs beyond the first. May wait for memory.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn make_transit(&self) -> Result<(), Error> {
        let (p, area) = (self.platform(), &self.root.swap.areas[MAX_AREAS]);
        if !self.config().swap || area.state.load(p, Ordering::Acquire) == state::TRANSIT {
            return Ok(());
        }
        let numbers = NUMBER..NUMBER + self.transit_clusters();
        numbers.clone().try_for_each(|number| self.make_cluster(number, MAX_AREAS))?;
        let _guard = self.root.swap.lock.lock(self);
        if area.state.get(p) == state::UNUSED {
            area.device.set(p, u32::MAX);
            area.first.set(p, NUMBER);
            area.clusters.set(p, self.transit_clusters());
            let _guard = area.lock.lock(self);
            area.open.init(p);
            for number in numbers {
                area.open.push_front(p, &self.memmap(), self.cluster_frame(number * CLUSTER));
            }
            // Release: partner of the Acquire above, and in `transit_add`.
            area.state.store(p, state::TRANSIT, Ordering::Release);
        }
        Ok(())
    }

    /// Gives a page that has none one of these slots, if one is free: it is in the swap cache from now on, and dirty. By whoever has locked the page.
    pub(crate) fn transit_add(&self, n: FrameNumber) -> bool {
        self.must_be_locked(n);
        let (p, frame) = (self.platform(), self.memmap().get(n));
        if self.root.swap.areas[MAX_AREAS].state.load(p, Ordering::Acquire) != state::TRANSIT {
            return false;
        }
        frame.refs.fetch_add(p, 1, Ordering::Relaxed);
        // All CPUs take from these, under their locks: each page begins to look elsewhere, and finds one at once unless most are taken.
        let (clusters, place) = (self.transit_clusters(), n.0 % CLUSTER);
        let first = n.0 / CLUSTER % clusters;
        let found = (0..clusters).find_map(|nth| {
            let slot = FIRST + (first + nth) % clusters * CLUSTER + place;
            Cluster::of(self, slot).take(slot, n)
        });
        let Some(slot) = found else {
            frame.refs.fetch_sub(p, 1, Ordering::Relaxed);
            return false;
        };
        frame.set_flags(p, flag::DIRTY);
        frame.set_slot(p, Some(slot));
        true
    }
}
