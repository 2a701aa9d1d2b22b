//! Memory that goes offline and comes back, in blocks of the largest order.
//!
//! A block that leaves is isolated first: nothing more is handed out of it, what is free in it is taken off the zone's
//! lists, and what is freed into it from then on is retired too. Then what is still in use has to go: pages move to other frames, and those that
//! cannot are reclaimed; all else has to be freed by whoever uses it: also anonymous pages where
//! [`Config::swap`](crate::Config::swap) is not set, and so no reverse map leads from them to their entries. When the last
//! frame is retired the block is offline.
//!
//! While a block leaves, CPUs keep nothing of its zone on their lists. So one certain drain after the isolation is
//! enough (INV-7), and no frame of the block hides on a list.

use crate::Manager;
use crate::addr::FrameNumber;
use crate::error::Error;
use crate::event::Event;
use crate::frame::Certainty;
use crate::frame::Zone;
use crate::frame::set_watermarks;
use crate::kind::Kind;
use crate::memmap::{Frame, FrameVec, MAX_ORDER};
use crate::platform::Platform;
use crate::resched::{Work, cost};
use crate::view::FrameAllocator;

/// Frames of a block.
pub(super) const FRAMES: u32 = 1 << MAX_ORDER;
/// Frames that are looked at under one hold of the zone's lock.
pub(super) const STEP: u32 = 64;

/// A block on its way offline: isolated, and perhaps not empty yet.
///
/// Not `Copy`, and to be used up: by [`FrameAllocator::finish_offline`] or [`FrameAllocator::cancel_offline`]. One that is dropped
/// leaves the block isolated for ever, and its zone without lists.
#[must_use = "the block stays isolated until it is offline or the attempt is cancelled"]
#[derive(Debug, PartialEq, Eq)]
pub struct Leaving {
    first: FrameNumber,
}

impl Leaving {
    /// Its first frame.
    pub fn first(&self) -> FrameNumber {
        self.first
    }
}

/// A block that is offline. The embedding kernel may take the memory away, or give it back by
/// [`FrameAllocator::bring_online`], once it is there.
#[must_use = "memory that is dropped stays offline"]
#[derive(Debug, PartialEq, Eq)]
pub struct Offline {
    first: FrameNumber,
}

impl Offline {
    /// All of its frames are out of use, and counted so.
    pub(super) fn of(first: FrameNumber) -> Offline {
        Offline { first }
    }

    /// Its first frame.
    pub fn first(&self) -> FrameNumber {
        self.first
    }
}

/// A block that is not empty yet.
#[derive(Debug, PartialEq, Eq)]
pub struct Remains {
    /// It is still isolated.
    pub leaving: Leaving,
    /// A frame of it that is in use.
    pub frame: FrameNumber,
    /// What for.
    pub kind: Kind,
    /// How often it is [pinned](crate::Space::pin): it stays until these are given back.
    pub pins: u32,
}

impl<'p, P: Platform> FrameAllocator<'_, 'p, P> {
    /// The blocks of memory that begin and end in one region, offline or not, and are here. Those with the core's bookkeeping can
    /// never go offline.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// assert_eq!(mm.frames().blocks().count(), 4);
    /// # Ok(())
    /// # });
    /// ```
    pub fn blocks(&self) -> impl Iterator<Item = FrameNumber> + use<'p, P> {
        let memmap = self.mm.memmap();
        let whole = self.mm.zones().flat_map(|zone| {
            let first = zone.start.0.next_multiple_of(FRAMES);
            let end = zone.end.0 - zone.end.0 % FRAMES;
            (first..end.max(first)).step_by(FRAMES as usize).map(FrameNumber)
        });
        whole.filter(move |&first| memmap.find(first).is_some())
    }

    /// Begins to take the block of 2^[`MAX_ORDER`] frames at `first` offline: from now on nothing is
    /// allocated from it. At most one block of a zone at a time. With interrupts on and no lock held; may wait.
    ///
    /// IPIs: those of a certain [`FrameAllocator::drain`](crate::FrameAllocator::drain).
    ///
    /// # Errors
    /// [`Error::BadBlock`] if it is not aligned or not whole in one region; [`Error::NoSuchFrame`] if it is offline
    /// already, not here yet, or part of memory that somebody [gets](FrameAllocator::alloc_contiguous) in one piece at this moment; [`Error::NotMovable`] if it holds
    /// the core's bookkeeping; [`Error::Busy`] if a block of the region is on its way.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let last = mm.frames().blocks().last().expect("there are blocks");
    /// let leaving = mm.frames().begin_offline(last)?;
    /// mm.frames().cancel_offline(leaving);
    /// # Ok(())
    /// # });
    /// ```
    pub fn begin_offline(&self, first: FrameNumber) -> Result<Leaving, Error> {
        let mm = self.mm;
        let p = mm.platform();
        let zone = mm.zone_of_block(first)?;
        if mm.memmap().find(first).is_none() {
            return Err(Error::NoSuchFrame(first));
        }
        // It stays what it is, so that no lock is needed for the look.
        let is_reserved = |n: &FrameNumber| mm.memmap().get(*n).kind(p) == Kind::Reserved;
        if let Some(n) = (0..FRAMES).map(|i| first.add(i)).find(is_reserved) {
            return Err(Error::NotMovable(n));
        }
        zone.lock(mm).begin_leave(first)?;
        let (mut n, mut work) = (first, Work::begin(mm));
        while n < first.add(FRAMES) {
            // What is freed behind this walk is retired by whoever frees it.
            let guard = zone.lock(mm);
            let end = n.add(STEP);
            while n < end {
                n = guard.retire_if_free(n);
            }
            drop(guard);
            work.did(STEP * cost::ENTRY);
        }
        self.drain(Certainty::Certain);
        Ok(Leaving { first })
    }

    /// Empties the block as far as it can, and takes it offline if nothing of it is in use any more. With interrupts on
    /// and no lock held; may wait. IPIs: where something of it is in use, one per other CPU that is online, and another where frames of
    /// [`Vmap::free`](crate::Vmap::free) wait for a flush; one batch for up to 32 pages that are mapped, and one for each that cannot move.
    ///
    /// # Errors
    /// What is left, with the block still isolated: to be tried again when it may have been freed, or cancelled.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let before = mm.frames().available();
    /// let last = mm.frames().blocks().last().expect("there are blocks");
    /// let leaving = mm.frames().begin_offline(last)?;
    /// let offline = mm.frames().finish_offline(leaving).expect("nobody uses it");
    /// assert!(mm.frames().available() < before);
    /// mm.frames().bring_online(offline);
    /// # Ok(())
    /// # });
    /// ```
    pub fn finish_offline(&self, leaving: Leaving) -> Result<Offline, Remains> {
        let mm = self.mm;
        let p = mm.platform();
        let first = leaving.first;
        let mut work = Work::begin(mm);
        let is_offline = mm.vacate(first, true, &mut work);
        if is_offline {
            set_watermarks(mm);
            mm.emit(Event::MemoryOffline { first, frames: FRAMES });
            return Ok(Offline { first });
        }
        work.did(FRAMES);
        let in_use = |n: &FrameNumber| !matches!(mm.memmap().get(*n).kind(p), Kind::Absent | Kind::Tail);
        // A tail alone: it is being freed at this moment, or belongs to a block that is named instead.
        let frame = (0..FRAMES).map(|i| first.add(i)).find(in_use).unwrap_or(first);
        let kind = mm.memmap().get(frame).kind(p);
        let pins = mm.memmap().get(frame).pins(p);
        Err(Remains { leaving, frame, kind, pins })
    }

    /// Gives up: the block is as any other again. With interrupts on and no lock held. No IPI.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let last = mm.frames().blocks().last().expect("there are blocks");
    /// let leaving = mm.frames().begin_offline(last)?;
    /// mm.frames().cancel_offline(leaving);
    /// # Ok(())
    /// # });
    /// ```
    pub fn cancel_offline(&self, leaving: Leaving) {
        let mm = self.mm;
        let (p, first) = (mm.platform(), leaving.first);
        let zone = mm.zone(Frame::zone_of(mm.memmap().get(first).state.get(p)));
        zone.lock(mm).begin_stay(first);
        mm.put_back_retired(zone, first, &mut Work::begin(mm));
        zone.lock(mm).stays();
    }

    /// Memory comes back. With interrupts on and no lock held. No IPI.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let last = mm.frames().blocks().last().expect("there are blocks");
    /// let leaving = mm.frames().begin_offline(last)?;
    /// let offline = mm.frames().finish_offline(leaving).expect("nobody uses it");
    /// let before = mm.frames().available();
    /// mm.frames().bring_online(offline);
    /// assert_eq!(mm.frames().available(), before + 1024);
    /// # Ok(())
    /// # });
    /// ```
    pub fn bring_online(&self, block: Offline) {
        let mm = self.mm;
        let (p, first) = (mm.platform(), block.first);
        let zone = mm.zone(Frame::zone_of(mm.memmap().get(first).state.get(p)));
        // First: whoever takes the block offline again, once it is back, counts it again.
        zone.lock(mm).count_offline(-(FRAMES as i32));
        mm.put_back_retired(zone, first, &mut Work::begin(mm));
        set_watermarks(mm);
        mm.emit(Event::MemoryOnline { first, frames: FRAMES });
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Empties a block that is isolated as far as it can, and ends its way if nothing of it is in use any more: all its frames are out of use
    /// then, and whoever called counts them as `offline`, or uses them. May wait.
    pub(super) fn vacate(&self, first: FrameNumber, offline: bool, work: &mut Work<'_, 'p, P>) -> bool {
        let (mm, p) = (self, self.platform());
        let zone = mm.zone(Frame::zone_of(mm.memmap().get(first).state.get(p)));
        if P::SPACES && zone.lock(mm).left() < FRAMES {
            // Pages on their way to a list are held by that.
            mm.drain_lru_batches();
        }
        mm.unpark(work);
        if offline && zone.lock(mm).left() < FRAMES {
            // What was freed with its kernel addresses, and waits for their flush. Whoever wants memory in one piece looks for none with kernel frames.
            mm.purge_frames(1, true);
        }
        if P::SPACES {
            mm.move_pages_out(first, work);
        }
        // What has gone was freed here, into the block.
        let guard = zone.lock(mm);
        let empty = guard.end_leave();
        guard.count_offline(if empty && offline { FRAMES as i32 } else { 0 });
        empty
    }

    /// Moves the pages of a block elsewhere, some at a time, and has reclaim take those that stay.
    fn move_pages_out(&self, first: FrameNumber, work: &mut Work<'_, 'p, P>) {
        let (mm, p) = (self, self.platform());
        let block = || (0..FRAMES).map(|i| first.add(i));
        let goes = |n: &FrameNumber| mm.memmap().get(*n).kind(p) == Kind::File || mm.is_swappable(*n);
        let mut some = FrameVec::new();
        if block().any(|n| mm.is_swappable(n) && !mm.memmap().get(n).is_pinned(p)) {
            // Without them fewer move.
            let _without = mm.make_transit();
        }
        let move_some = |some: &mut FrameVec, work: &mut Work<'_, 'p, P>| {
            crate::reclaim::migrate_out(mm, some.as_slice());
            work.did(some.as_slice().len() as u32 * 2 * cost::RECLAIM);
            some.clear();
        };
        for n in block() {
            if mm.is_swappable(n) && Frame::order_of(mm.memmap().get(n).state.get(p)) > 0 {
                mm.move_out_of(first, n, work);
                work.did(2 * cost::RECLAIM);
            }
            if goes(&n) {
                some.push(n);
            }
            if some.as_slice().len() == crate::reclaim::AT_ONCE {
                move_some(&mut some, work);
            }
        }
        move_some(&mut some, work);
        for n in block().filter(goes) {
            crate::reclaim::evict(mm, n);
            work.did(2 * cost::RECLAIM);
        }
    }

    pub(super) fn put_back_retired(&self, zone: &Zone, first: FrameNumber, work: &mut Work<'_, 'p, P>) {
        let p = self.platform();
        for step in (0..FRAMES).step_by(STEP as usize) {
            let guard = zone.lock(self);
            for n in (step..step + STEP).map(|i| first.add(i)) {
                if self.memmap().get(n).kind(p) == Kind::Absent {
                    guard.put(n, 0);
                }
            }
            drop(guard);
            work.did(STEP * cost::FRAME);
        }
    }

    pub(super) fn zone_of_block(&self, first: FrameNumber) -> Result<&Zone, Error> {
        let last = FrameNumber(first.0 | (FRAMES - 1));
        let whole = first.0.is_multiple_of(FRAMES);
        let zone = self.zones().find(|zone| whole && zone.contains(first) && zone.contains(last));
        zone.ok_or(Error::BadBlock(first))
    }

    /// Frames that are offline, or isolated on the way there, in all zones. On a quiet system.
    pub(crate) fn offline_frames(&self) -> u64 {
        let p = self.platform();
        // Those that are not here yet were never handed over.
        let is_absent =
            |n: &u32| self.memmap().find(FrameNumber(*n)).is_some_and(|frame| frame.kind(p) == Kind::Absent);
        self.zones().map(|zone| (zone.start.0..zone.end.0).filter(is_absent).count() as u64).sum()
    }
}
