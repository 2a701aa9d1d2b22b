//! Swap devices that are in use, and which of them a page goes to.

use core::sync::atomic::{AtomicU32, Ordering};

use super::area::{Area, CLUSTER, state};
use super::slots::{Cluster, NOBODY};
use super::transit;
use crate::Manager;
use crate::addr::{FrameNumber, PageNumber, PhysAddr};
use crate::charge::charge;
use crate::error::Error;
use crate::frame::AllocFrom;
use crate::group::Payer;
use crate::handle::SpaceId;
use crate::memmap::MAX_SLOT;
use crate::percpu::MAX_AREAS;
use crate::platform::{Platform, Store};
use crate::profile::Scope;
use crate::resched::{Work, cost};
use crate::sync::{SpinLock, Word32};
use crate::view::Swap;
use crate::writeback::Backoff;
use crate::zeroed::Zeroed;

/// Directories of clusters.
const DIRECTORIES: usize = (MAX_SLOT / (CLUSTER * PER_DIRECTORY)) as usize + 1;
/// Clusters that a directory names: a frame of their numbers.
const PER_DIRECTORY: u32 = 1024;

/// How full swap is, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SwapUsage {
    /// Slots of all devices in use.
    pub slots: u64,
    /// Slots that are not free.
    pub used: u64,
    /// Of these, slots whose page is in memory too.
    pub cached: u64,
    /// Slots, in use or not, of devices that do not take pages: their writes fail. They are tried now and then, and pages go
    /// to others meanwhile, or stay in memory.
    pub failing: u64,
}

/// All about swap. All zeros is no device.
#[repr(C)]
pub(crate) struct SwapDevices {
    /// Guards which areas there are.
    pub(super) lock: SpinLock<{ Scope::SwapLock as u8 }>,
    /// Clusters that have numbers.
    numbered: Word32,
    /// Areas that there ever were.
    made: Word32,
    /// Not 0 once a device took no pages any more: till then nobody looks whether one does. It orders nothing, and to look at it costs nothing that
    /// the machine counts.
    closed: AtomicU32,
    /// The last one is that of pages that change their frame.
    pub(super) areas: [Area; MAX_AREAS + 1],
    directories: [Word32; DIRECTORIES],
}

// SAFETY: atomics and locks; lists are made before use.
unsafe impl Zeroed for SwapDevices {}

impl<'p, P: Platform> Swap<'_, 'p, P> {
    /// How full swap is. A moment's truth.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// mm.swap().on(0, 1024, 0)?;
    /// assert_eq!(mm.swap().usage().slots, 1024);
    /// # Ok(())
    /// # });
    /// ```
    pub fn usage(&self) -> SwapUsage {
        let mm = self.mm;
        let p = mm.platform();
        let mut usage = SwapUsage::default();
        for area in mm.areas().map(|index| mm.area(index)).filter(|area| area.is_used(p)) {
            let slots = u64::from(area.clusters.get(p)) * u64::from(CLUSTER);
            usage.slots += slots;
            usage.failing += if area.backoff.is_failing(p) { slots } else { 0 };
            usage.used += u64::from(area.counts.used.get(p));
            usage.cached += u64::from(area.counts.cached.get(p));
        }
        usage
    }

    /// Begins to use a swap device of so many pages. Pages go to the device of the highest priority that has room, and to
    /// devices of equal priority by turns. `device` is the number in [`Store::Swap`]. Takes 8 bytes of memory for each
    /// page of the device. May wait for memory.
    ///
    /// # Errors
    /// [`Error::NoSwap`] unless [`Config::swap`](crate::Config::swap) was set; [`Error::BadRange`] for fewer than 512
    /// pages or more than 1 TiB in all; [`Error::NoSuchSwapDevice`] if it is in use; [`Error::TooMany`] devices;
    /// [`Error::OutOfMemory`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// mm.swap().on(0, 1024, 0)?;
    /// assert_eq!(mm.swap().on(0, 1024, 0), Err(Error::NoSuchSwapDevice));
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "swapon")]
    pub fn on(&self, device: u32, pages: u64, priority: i16) -> Result<(), Error> {
        let mm = self.mm;
        if !mm.config().swap {
            return Err(Error::NoSwap);
        }
        // What is left of the last cluster is not used.
        let clusters = pages / u64::from(CLUSTER);
        if clusters == 0 || clusters > u64::from(transit::NUMBER) {
            return Err(Error::BadRange);
        }
        let clusters = clusters as u32;
        let index = mm.claim_area(device, clusters)?;
        let (p, area) = (mm.platform(), mm.area(index));
        if let Err(error) = mm.make_clusters(index, clusters) {
            mm.end_area(area);
            return Err(error);
        }
        area.priority.set(p, (i32::from(priority) + (1 << 15)) as u32);
        // Release: partner of the Acquire in `is_open`.
        area.state.store(p, state::OPEN, Ordering::Release);
        Ok(())
    }

    /// Brings all pages of a swap device back into memory, and uses it no more. May wait, and takes long; pages that the
    /// device cannot give back stay where they are, all others come, and the device stays then. Each page is charged to the group of its space, above
    /// its limit if need be: that group reclaims when it next wants a page. One of a memory file is charged so to the group of whoever calls this.
    ///
    /// # Errors
    /// [`Error::NoSuchSwapDevice`]; [`Error::SwapDevice`] for the first page that could not be read, [`Error::Device`] if that is a memory
    /// file's: nothing goes to the device any more, and it can be asked again; [`Error::OutOfMemory`], likewise.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// mm.swap().on(0, 1024, 0)?;
    /// mm.swap().off(0)?;
    /// assert_eq!(mm.swap().usage().slots, 0);
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "swapoff")]
    pub fn off(&self, device: u32) -> Result<(), Error> {
        let mm = self.mm;
        let (p, swap) = (mm.platform(), &mm.root.swap);
        let _scope = charge(p, Scope::SwapOff);
        let area = {
            let _guard = swap.lock.lock(mm);
            let own = |area: &&Area| area.is_used(p) && area.device.get(p) == device;
            let area = swap.areas[..MAX_AREAS].iter().find(own).ok_or(Error::NoSuchSwapDevice)?;
            if area.state.get(p) == state::BUSY {
                return Err(Error::NoSuchSwapDevice);
            }
            swap.closed.store(1, Ordering::Relaxed);
            area.state.store(p, state::BUSY, Ordering::Release);
            area
        };
        if let Err(error) = mm.bring_all_back(area) {
            area.state.store(p, state::GONE, Ordering::Release);
            return Err(error);
        }
        // Before the number is free: else this would be about the next device that has it.
        if let Some(devices) = p.device() {
            devices.end(Store::Swap(device));
        }
        mm.end_area(area);
        Ok(())
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    pub(crate) fn area(&self, index: usize) -> &'p Area {
        &self.root.swap.areas[index]
    }

    /// The areas that there ever were.
    pub(super) fn areas(&self) -> core::ops::Range<usize> {
        0..self.root.swap.made.load(self.platform(), Ordering::Acquire) as usize
    }

    /// The area of a slot that an entry or a page names.
    fn area_of(&self, slot: u32) -> &'p Area {
        self.area(self.memmap().get(self.cluster_frame(slot)).owner.get(self.platform()) as usize)
    }

    /// Whether the device of a slot takes pages.
    pub(super) fn takes_pages(&self, slot: u32) -> bool {
        self.area_of(slot).is_open(self.platform())
    }

    /// Whether an anonymous page is in the slot of a device that goes off, or is gone, and somebody wants it: then it stays in memory, since that device
    /// gets nothing any more, and may not give again what it has. By whoever has locked the page.
    pub(crate) fn is_stranded(&self, n: FrameNumber) -> bool {
        self.closed_slot_of(n).is_some_and(|slot| self.swap_users(slot) > 0)
    }

    /// The slot of an anonymous page, if it is that of a device which goes off, or is gone. By whoever has locked the page.
    pub(crate) fn closed_slot_of(&self, n: FrameNumber) -> Option<u32> {
        if self.root.swap.closed.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.slot_of(n).filter(|&slot| !Self::is_transit(slot) && !self.takes_pages(slot))
    }

    /// What came of writes to the device of a slot.
    pub(crate) fn swap_backoff(&self, slot: u32) -> &'p Backoff {
        &self.area_of(slot).backoff
    }

    /// Where the content of a slot is.
    pub(crate) fn place_of(&self, slot: u32) -> (Store, u64) {
        let p = self.platform();
        let area = self.area_of(slot);
        (Store::Swap(area.device.get(p)), u64::from(slot - area.slots(p).start))
    }

    /// Whether an anonymous page could leave memory: a slot is free, or some page in memory has one, or may be lazy, and needs none. A moment's
    /// truth.
    pub(crate) fn swap_may_shrink(&self) -> bool {
        let p = self.platform();
        let some = |area: &Area| area.has_room(p) || area.is_used(p) && area.counts.cached.get(p) > 0;
        self.root.lazy.load(Ordering::Relaxed) != 0 || self.areas().any(|index| some(self.area(index)))
    }

    /// Whether slots are short: more than half are in use. Then who has a page in memory does not keep its slot for
    /// later (Linux's rule).
    pub(crate) fn swap_is_tight(&self) -> bool {
        let usage = self.swap().usage();
        usage.used * 2 > usage.slots
    }

    /// The word with the frame of a cluster, plus one, if its directory is made.
    fn cluster_word(&self, number: u32) -> Option<&'p Word32> {
        let p = self.platform();
        // Acquire: partner of the Release in `make_clusters`.
        let directory =
            self.root.swap.directories[(number / PER_DIRECTORY) as usize].load(p, Ordering::Acquire);
        let frame = FrameNumber(directory.checked_sub(1)?);
        let at = PhysAddr(frame.phys().0 + u64::from(number % PER_DIRECTORY) * 4);
        // SAFETY: a directory is a frame that stays, zeroed before it was published; the word lies in it, aligned.
        Some(unsafe { &*p.direct(at).cast() })
    }

    /// The frame of the cluster that a slot belongs to. It stays for ever.
    pub(super) fn cluster_frame(&self, slot: u32) -> FrameNumber {
        let word = self.cluster_word(slot / CLUSTER).expect("a slot that was given out has a cluster");
        FrameNumber(word.load(self.platform(), Ordering::Acquire) - 1)
    }

    /// An area for a device, with numbers for its clusters that no other has.
    fn claim_area(&self, device: u32, clusters: u32) -> Result<usize, Error> {
        let (p, swap) = (self.platform(), &self.root.swap);
        let _guard = swap.lock.lock(self);
        if swap.areas[..MAX_AREAS].iter().any(|area| area.is_used(p) && area.device.get(p) == device) {
            return Err(Error::NoSuchSwapDevice);
        }
        let index = (0..MAX_AREAS).find(|&index| !swap.areas[index].is_used(p)).ok_or(Error::TooMany)?;
        let first = self.free_numbers(clusters).ok_or(Error::BadRange)?;
        swap.numbered.set(p, swap.numbered.get(p).max(first + clusters));
        let area = &swap.areas[index];
        area.device.set(p, device);
        area.first.set(p, first);
        area.clusters.set(p, clusters);
        area.backoff.clear(p);
        {
            // Who still looks for a cluster of an earlier device finds none.
            let _guard = area.lock.lock(self);
            area.open.init(p);
        }
        area.state.store(p, state::BUSY, Ordering::Release);
        // Release: partner of the Acquire in `areas`.
        swap.made.fetch_max(p, index as u32 + 1, Ordering::Release);
        Ok(index)
    }

    /// The first of so many numbers in a row that no area has. Under the lock of areas.
    fn free_numbers(&self, clusters: u32) -> Option<u32> {
        let p = self.platform();
        let used = || self.root.swap.areas[..MAX_AREAS].iter().filter(|area| area.is_used(p));
        let end = |area: &Area| area.first.get(p) + area.clusters.get(p);
        // They begin at 0, or behind an area's.
        let starts = core::iter::once(0).chain(used().map(end));
        let fits = |&first: &u32| {
            first + clusters <= transit::NUMBER
                && !used().any(|area| first < end(area) && area.first.get(p) < first + clusters)
        };
        starts.filter(fits).min()
    }

    /// Makes an area's clusters, all free. What was made stays if memory runs out, and is found the next time.
    fn make_clusters(&self, index: usize, clusters: u32) -> Result<(), Error> {
        let (p, area) = (self.platform(), self.area(index));
        let (first, mut work) = (area.first.get(p), Work::begin(self));
        for number in first..first + clusters {
            work.did(2 * cost::FRAME);
            self.make_cluster(number, index)?;
            let word = self.cluster_word(number).expect("its directory was just made");
            let cluster = FrameNumber(word.get(p) - 1);
            area.opens(self, cluster);
        }
        Ok(())
    }

    /// Makes one cluster, all free, if it is not there.
    pub(super) fn make_cluster(&self, number: u32, index: usize) -> Result<(), Error> {
        let p = self.platform();
        let directory = &self.root.swap.directories[(number / PER_DIRECTORY) as usize];
        if directory.load(p, Ordering::Acquire) == 0 {
            let made = self.alloc_own(AllocFrom::HERE)?;
            if directory.replace(p, 0, made.0 + 1, Ordering::AcqRel).is_err() {
                self.free_one(made);
            }
        }
        let word = self.cluster_word(number).expect("its directory was just made");
        if word.load(p, Ordering::Acquire) == 0 {
            let made = self.alloc_own(AllocFrom::HERE)?;
            Cluster::prepare(self, made, number * CLUSTER, index);
            if word.replace(p, 0, made.0 + 1, Ordering::AcqRel).is_err() {
                // Of two who make the slots of no device one does.
                self.free_one(made);
            }
        } else {
            // It was another device's. Somebody may have its lock, to look in vain for a page.
            Cluster::of(self, number * CLUSTER).belongs_to(index);
        }
        Ok(())
    }

    /// Its device does not take or give anything any more.
    pub(crate) fn note_gone(&self, slot: u32) {
        let (p, area) = (self.platform(), self.area_of(slot));
        self.root.swap.closed.store(1, Ordering::Relaxed);
        // Nothing is undone if another CPU noted it first.
        _ = area.state.replace(p, state::OPEN, state::GONE, Ordering::AcqRel);
    }

    /// Nobody has a slot of it: its clusters may be another's.
    fn end_area(&self, area: &Area) {
        let p = self.platform();
        {
            // Whoever has seen it open, and comes only now, finds no cluster here: it may be on another's list next.
            let _guard = area.lock.lock(self);
            area.open.init(p);
        }
        // And who comes only now with the number of one, when this is another device's area, perhaps, takes no slot of it.
        let mut work = Work::begin(self);
        for number in area.first.get(p)..area.first.get(p) + area.clusters.get(p) {
            work.did(cost::FRAME);
            if self.cluster_word(number).is_some_and(|word| word.load(p, Ordering::Acquire) != 0) {
                Cluster::of(self, number * CLUSTER).belongs_to(NOBODY);
            }
        }
        // Release: partner of the Acquire in `is_used`.
        area.state.store(p, state::UNUSED, Ordering::Release);
    }

    fn bring_all_back(&self, area: &Area) -> Result<(), Error> {
        let p = self.platform();
        let mut work = Work::begin(self);
        // A space that forks meanwhile may have given entries to one that was looked at: so again until none is found.
        loop {
            let (mut found, mut unread) = self.bring_files_back(&|slot| area.has(p, slot))?;
            for slot in self.space_slots() {
                work.did(cost::TABLE);
                let Some(id) = self.live_space(slot) else { continue };
                let mut from = PageNumber(0);
                while let Some(page) = self.next_swapped(id, from, |slot| area.has(p, slot)) {
                    found += 1;
                    match self.bring_back_at(id, page) {
                        // It stays; those behind it come.
                        Err(error @ Error::SwapDevice(_)) => {
                            unread = unread.or(Some(error));
                            from = PageNumber(page.0 + 1);
                        }
                        other => {
                            other?;
                            if from == page {
                                // Still there: it is being unmapped.
                                p.pause(1000);
                            }
                            from = page;
                        }
                    }
                    p.cond_resched();
                }
            }
            if let Some(error) = unread {
                return Err(error);
            }
            // Whoever takes a slot does so under its cluster's lock, and looks whether the area is open: where this finds none there will be none.
            let mut held = self.count_used(area, &mut work);
            if held > 0 {
                held = self.let_go_of_slots(area);
            }
            if held == 0 {
                return Ok(());
            }
            if found == 0 {
                // Pages on their way: somebody reads or writes them, or lets go of them.
                p.pause(1000);
                p.cond_resched();
            }
        }
    }

    /// Brings the page of one entry back. An entry that leads elsewhere by now is left alone.
    fn bring_back_at(&self, id: SpaceId, page: PageNumber) -> Result<(), Error> {
        match self.swap_in_at(id, page, Payer::Regardless) {
            Err(Error::NoSuchSpace | Error::NotMapped(_)) => Ok(()),
            other => other,
        }
    }

    /// Takes every page that is in memory out of the swap cache of an area. Returns how many slots are left in use.
    fn let_go_of_slots(&self, area: &Area) -> u32 {
        let (mut left, mut work) = (0, Work::begin(self));
        for slot in area.slots(self.platform()) {
            if let Some(n) = self.swap_find(slot) {
                self.lock_page(n);
                self.swap_detach(n, slot);
                self.unlock_page(n);
                self.put_page(n);
            }
            left += u32::from(self.slot_in_use(slot));
            work.did(cost::FRAME);
        }
        left
    }

    /// Slots of an area that somebody has, each cluster under its lock.
    fn count_used(&self, area: &Area, work: &mut Work<'_, 'p, P>) -> u32 {
        let mut used = 0;
        for slot in area.slots(self.platform()).step_by(CLUSTER as usize) {
            used += Cluster::of(self, slot).used();
            work.did(cost::FRAME);
        }
        used
    }

    pub(super) fn each_cluster(&self, area: &Area, mut each: impl FnMut(&Cluster<'_, 'p, P>)) {
        let p = self.platform();
        for slot in area.slots(p).step_by(CLUSTER as usize) {
            each(&Cluster::of(self, slot));
        }
    }

    /// Frames of the slots' bookkeeping, and what does not add up: for audits of a quiet system, in which so many
    /// entries name slots.
    pub(crate) fn audit_swap(&self, entries: u64) -> (u64, Option<&'static str>) {
        let (p, swap) = (self.platform(), &self.root.swap);
        let directories = swap.directories.iter().filter(|word| word.get(p) != 0).count() as u64;
        let mut frames = directories;
        for number in (0..swap.numbered.get(p)).chain(transit::NUMBER..transit::NUMBER + transit::MOST) {
            frames += u64::from(self.cluster_word(number).is_some_and(|word| word.get(p) != 0));
        }
        let (mut users, mut wrong) = (0, None);
        for area in swap.areas.iter().filter(|area| area.is_used(p)) {
            let (mut open, mut used, mut cached) = (0, 0, 0);
            self.each_cluster(area, |cluster| {
                let (of_cluster, pages, good) = cluster.audit();
                users += of_cluster;
                (used, cached) = (used + cluster.used(), cached + pages);
                open += u64::from(cluster.used() < CLUSTER);
                if !good {
                    wrong = Some(
                        "a swap slot and the page that it leads to, or the count of slots in use, differ",
                    );
                }
            });
            if (used, cached) != (area.counts.used.get(p), area.counts.cached.get(p)) {
                wrong = Some("a swap device's counts of its slots differ from its slots");
            }
            if open != area.open.len(p) {
                wrong = Some("a swap device's list of clusters with room is not that");
            }
        }
        if users != entries {
            wrong = Some("users of swap slots and entries that name slots differ");
        }
        (frames, wrong)
    }
}
