//! Slots, 512 in a cluster: who uses each, and which page of the swap cache it leads to.
//!
//! A cluster is one frame of slots and one lock, which lies in the frame's bookkeeping with the number of slots in use.

use core::sync::atomic::Ordering;

use super::area::{Area, CLUSTER, SwapSlot};
use crate::Manager;
use crate::addr::{FrameNumber, PhysAddr};
use crate::kind::Kind;
use crate::memmap::Frame;
use crate::percpu::{CpuGuard, MAX_AREAS};
use crate::platform::Platform;
use crate::sync::SpinGuard;

/// Slots that a CPU takes of one device before it turns to the next of equal priority: as many as are read together.
pub(super) const RUN: u32 = 8;
/// Whose a cluster is that belongs to no area.
pub(super) const NOBODY: usize = u32::MAX as usize;

/// A cluster with its lock held.
pub(crate) struct Cluster<'a, 'p, P: Platform> {
    mm: &'a Manager<'p, P>,
    frame: FrameNumber,
    /// The number of its first slot.
    first: u32,
    _lock: SpinGuard<'a, P>,
}

impl<'a, 'p, P: Platform> Cluster<'a, 'p, P> {
    /// Makes a frame, zeroed once, the empty cluster of this area, whose it stays.
    pub fn prepare(mm: &Manager<'_, P>, cluster: FrameNumber, first: u32, area: usize) {
        let (p, frame) = (mm.platform(), mm.memmap().get(cluster));
        debug_assert_eq!(frame.kind(p), Kind::Kernel);
        frame.owner.set(p, area as u32);
        frame.maps.set(p, first);
        frame.refs.set(p, 0);
        frame.prepare_cluster(p);
    }

    /// It is this area's from now on.
    pub fn belongs_to(&self, area: usize) {
        self.own().owner.set(self.mm.platform(), area as u32);
    }

    /// The cluster of a slot, with its lock.
    pub fn of(mm: &'a Manager<'p, P>, slot: u32) -> Self {
        let frame = mm.cluster_frame(slot);
        let own: &'p Frame = mm.memmap().get(frame);
        Cluster { mm, frame, first: slot / CLUSTER * CLUSTER, _lock: own.cluster_lock().lock(mm) }
    }

    fn own(&self) -> &'p Frame {
        self.mm.memmap().get(self.frame)
    }

    fn slot(&self, slot: u32) -> &'p SwapSlot {
        let into = u64::from(slot - self.first) * size_of::<SwapSlot>() as u64;
        // SAFETY: the cluster's frame is the swap map's for ever, zeroed before it was published; the slot lies inside,
        // aligned, and is made of atomics.
        unsafe { &*self.mm.platform().direct(PhysAddr(self.frame.phys().0 + into)).cast() }
    }

    /// Slots in use.
    pub fn used(&self) -> u32 {
        self.own().refs.get(self.mm.platform())
    }

    pub fn page(&self, slot: u32) -> Option<FrameNumber> {
        self.slot(slot).frame.get(self.mm.platform()).checked_sub(1).map(FrameNumber)
    }

    pub fn users(&self, slot: u32) -> u32 {
        self.slot(slot).users.get(self.mm.platform())
    }

    pub fn is_free(&self, slot: u32) -> bool {
        self.page(slot).is_none() && self.users(slot) == 0
    }

    /// Puts a page in a slot that is in use.
    pub fn set_page(&self, slot: u32, page: FrameNumber) {
        self.slot(slot).frame.set(self.mm.platform(), page.0 + 1);
        self.area().count_cached(self.mm.platform());
    }

    fn area(&self) -> &'p Area {
        self.mm.area(self.own().owner.get(self.mm.platform()) as usize)
    }

    /// One more entry names the slot.
    pub fn add_user(&self, slot: u32) {
        let users = &self.slot(slot).users;
        users.set(self.mm.platform(), users.get(self.mm.platform()) + 1);
    }

    /// One entry less names it; returns how many are left. A slot without users and page is free from here on.
    pub fn remove_user(&self, slot: u32) -> u32 {
        let p = self.mm.platform();
        let users = &self.slot(slot).users;
        let left = users.get(p) - 1;
        users.set(p, left);
        self.settle(slot);
        left
    }

    /// The page of the slot is another from now on.
    pub fn replace_page(&self, slot: u32, page: FrameNumber) {
        self.slot(slot).frame.set(self.mm.platform(), page.0 + 1);
    }

    /// Takes the page out of the slot.
    pub fn clear_page(&self, slot: u32) {
        self.slot(slot).frame.set(self.mm.platform(), 0);
        self.area().count_left(self.mm.platform());
        self.settle(slot);
    }

    /// A slot that has just lost a user or its page is free if nothing is left.
    fn settle(&self, slot: u32) {
        if !self.is_free(slot) {
            return;
        }
        let p = self.mm.platform();
        let used = self.used();
        self.own().refs.set(p, used - 1);
        self.area().count_freed(p);
        if used == CLUSTER {
            self.area().opens(self.mm, self.frame);
        }
    }

    /// Takes a free slot for a page, from `from` on and round, if there is one and the area is open.
    pub(super) fn take(&self, from: u32, page: FrameNumber) -> Option<u32> {
        let p = self.mm.platform();
        // None: its device has gone off since the caller has found it.
        let area = self.mm.root.swap.areas.get(self.own().owner.get(p) as usize)?;
        let used = self.used();
        if used == CLUSTER || !area.gives_slots(p) {
            return None;
        }
        let round = (from - self.first..CLUSTER).chain(0..from - self.first);
        let slot = round.map(|into| self.first + into).find(|&slot| self.is_free(slot))?;
        self.set_page(slot, page);
        self.own().refs.set(p, used + 1);
        area.count_taken(p);
        if used + 1 == CLUSTER {
            area.closes(self.mm, self.frame);
        }
        Some(slot)
    }

    /// Entries that name its slots, its pages in memory, and whether slots and pages agree: for audits.
    pub fn audit(&self) -> (u64, u32, bool) {
        let p = self.mm.platform();
        let (mut users, mut used, mut pages, mut good) = (0, 0, 0, true);
        for slot in self.first..self.first + CLUSTER {
            let (of_slot, page) = (self.slot(slot).users.unseen(), self.slot(slot).frame.unseen());
            users += u64::from(of_slot);
            used += u32::from(of_slot > 0 || page > 0);
            if let Some(n) = page.checked_sub(1).map(FrameNumber) {
                pages += 1;
                let frame = self.mm.memmap().get(n);
                good &= frame.kind(p) == Kind::Anon && frame.slot(p) == Some(slot);
            }
        }
        (users, pages, good && used == self.used())
    }
}

impl<P: Platform> Manager<'_, P> {
    /// A free slot for a page, on the device of the highest priority that has one; returns its number.
    ///
    /// Each CPU goes on where it took its last one: so pages that go out together lie together, and CPUs seldom meet in
    /// a cluster. If one device fails to give a slot, the next is asked.
    pub(super) fn take_slot(&self, page: FrameNumber) -> Option<u32> {
        let p = self.platform();
        let last = self.next_device();
        let mut level = u32::MAX;
        loop {
            let priorities = self.areas().filter(|&area| self.area(area).is_open(p));
            level =
                priorities.map(|area| self.area(area).priority(p) + 1).filter(|&own| own < level).max()?;
            let (before, after) =
                (self.areas().take_while(|&area| area < last), self.areas().skip_while(|&area| area < last));
            for index in after.chain(before).filter(|&index| self.area(index).priority(p) + 1 == level) {
                if let Some(slot) = self.take_slot_of(index, page) {
                    return Some(slot);
                }
            }
        }
    }

    /// Which device this CPU turns to: the last one, until it has taken a run there.
    fn next_device(&self) -> usize {
        let here = CpuGuard::new(self);
        let hint = &here.slot().swap;
        let left = hint.left.get().checked_sub(1).unwrap_or_else(|| {
            hint.device.set((hint.device.get() + 1) % MAX_AREAS as u32);
            RUN - 1
        });
        hint.left.set(left);
        hint.device.get() as usize
    }

    fn take_slot_of(&self, index: usize, page: FrameNumber) -> Option<u32> {
        let (p, area) = (self.platform(), self.area(index));
        if !area.has_room(p) || !area.may_write(p) {
            return None;
        }
        let hint = CpuGuard::new(self).slot().swap.next[index].get().checked_sub(1);
        let go_on =
            hint.filter(|&slot| area.has(p, slot)).and_then(|slot| Cluster::of(self, slot).take(slot, page));
        let slot = go_on.or_else(|| {
            // Others may fill a cluster before it is looked at; then they have got what they wanted.
            while let Some(frame) = area.next_open(self) {
                let first = self.first_slot_of(frame);
                if let Some(slot) = Cluster::of(self, first).take(first, page) {
                    return Some(slot);
                }
                if !area.is_open(p) {
                    break;
                }
            }
            None
        })?;
        let here = CpuGuard::new(self);
        // The next one, plus one; none beyond the end of the cluster.
        here.slot().swap.next[index].set(if (slot + 1).is_multiple_of(CLUSTER) { 0 } else { slot + 2 });
        if here.slot().swap.device.get() as usize != index {
            here.slot().swap.device.set(index as u32);
            here.slot().swap.left.set(RUN - 1);
        }
        Some(slot)
    }

    /// The first slot of the cluster in this frame.
    fn first_slot_of(&self, cluster: FrameNumber) -> u32 {
        self.memmap().get(cluster).maps.load(self.platform(), Ordering::Relaxed)
    }
}
