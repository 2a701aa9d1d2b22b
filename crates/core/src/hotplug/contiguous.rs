//! Frames in one piece that is larger than the largest order, and frames that a device can reach.
//!
//! Blocks of the largest order are emptied as if they went offline ([`memory`](super::memory)), one after the other, and belong to whoever
//! asked in the end. Free ones are taken first; then those from which something can move.

use super::memory::{FRAMES, Leaving, STEP};
use crate::Manager;
use crate::addr::{FrameNumber, NodeId, PAGE_SIZE, PhysAddr};
use crate::error::Error;
use crate::event::Event;
use crate::frame::{AllocFrom, Frames, Zone};
use crate::kind::Kind;
use crate::memmap::{Frame, FrameVec, MAX_ORDER, flag};
use crate::platform::Platform;
use crate::resched::{Work, cost};
use crate::view::FrameAllocator;

/// Frames in one piece, of any number, that their owner may use and must give back: [`FrameAllocator::free_contiguous`].
#[must_use = "frames that are dropped are lost; give them back with `FrameAllocator::free_contiguous`"]
#[derive(Debug, PartialEq, Eq)]
pub struct Contiguous {
    first: FrameNumber,
    frames: u32,
}

impl Contiguous {
    /// The first frame.
    pub fn first(&self) -> FrameNumber {
        self.first
    }

    /// How many.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Forgets the ownership: the first frame, and how many. Each goes back by itself, by [`FrameAllocator::free_at`] with order 0.
    pub fn into_raw(self) -> (FrameNumber, u32) {
        (self.first, self.frames)
    }
}

/// How often, and for how long each time, in nanoseconds, somebody is waited for whoever empties a block of the same region: less than a tenth of a
/// second in all. A kernel may keep one on its way offline for as long as it likes.
const PATIENCE: u32 = 4096;
const MOMENT: u32 = 20_000;

/// What may be in blocks that are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Among {
    /// Nothing.
    Free,
    /// Pages that can be moved or reclaimed.
    Used,
}

impl<'p, P: Platform> FrameAllocator<'_, 'p, P> {
    /// Allocates so many frames in one piece, not cleared, that begins at a multiple of 4 MiB (2^[`MAX_ORDER`] frames) and lies below
    /// `below`; `PhysAddr(u64::MAX)` for anywhere. For the buffers of devices that take no list of pieces, and for more than one block of
    /// [`alloc`](FrameAllocator::alloc).
    ///
    /// Where there is no piece that is free, pages are moved out of one and reclaimed. That may wait for devices, and takes long: allocate
    /// early. Of two at once in one region the second waits for the first; where the kernel has a block of it on its way offline, not for long. With
    /// interrupts on and no lock held.
    ///
    /// IPIs: for each 4 MiB those of a certain [`FrameAllocator::drain`](crate::FrameAllocator::drain); where something has to move, one
    /// flush for each page, and one per other CPU that is online.
    ///
    /// # Errors
    /// [`Error::BadSetting`] for none; [`Error::OutOfMemory`] where no piece can be emptied: the core's bookkeeping does not move, nor what
    /// the embedding kernel has, nor what is [pinned](crate::Space::pin), nor, without [`Config::swap`](crate::Config::swap), programs' own memory.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let frames = mm.frames();
    /// let ring = frames.alloc_contiguous(1500, PhysAddr(1 << 32))?; // for a device with 32 address lines
    /// assert_eq!((ring.first().0 % 1024, ring.frames()), (0, 1500));
    /// frames.free_contiguous(ring);
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "alloc_contig_range")]
    #[doc(alias = "cma_alloc")]
    pub fn alloc_contiguous(&self, frames: u32, below: PhysAddr) -> Result<Contiguous, Error> {
        let mm = self.mm;
        if frames == 0 {
            return Err(Error::BadSetting("contiguous memory is of one frame at least"));
        }
        let first = self.take_run(mm.node_here(), frames, below)?;
        for n in (0..frames).map(|i| first.add(i)) {
            mm.emit(Event::Taken { frame: n, order: 0, kind: Kind::Kernel });
        }
        Ok(Contiguous { first, frames })
    }

    /// Gives frames in one piece back. With interrupts on and no lock held; no IPI.
    ///
    /// # Examples
    /// See [`alloc_contiguous`](FrameAllocator::alloc_contiguous).
    pub fn free_contiguous(&self, piece: Contiguous) {
        let mm = self.mm;
        let Contiguous { first, frames } = piece;
        // What was freed by its number behind the owner's back is another's.
        let mine = |n: FrameNumber| {
            let mine = mm.memmap().get(n).claim(mm.platform(), 0);
            if mine {
                mm.emit(Event::Freed { frame: n, order: 0 });
            }
            mine
        };
        mm.put_run(first, frames, &mut Work::begin(mm), mine);
    }

    /// Allocates a block of 2^`order` frames, not cleared, that lies below `below` as a whole: for devices that do not reach all of memory. Looks in
    /// regions of which that is true: hand over memory below such an address as one of its own. Others are used before it
    /// where memory is to be had anywhere. Contexts are those of [`alloc`](FrameAllocator::alloc); with `may_reclaim` it may wait, and
    /// moves pages out of 4 MiB below.
    ///
    /// Costs no IPI unless something has to move; then those of [`alloc_contiguous`](FrameAllocator::alloc_contiguous).
    ///
    /// # Errors
    /// [`Error::BadOrder`], [`Error::NoSuchNode`], [`Error::OutOfMemory`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let block = mm.frames().alloc_below(2, PhysAddr(1 << 32), AllocFrom::HERE)?;
    /// assert!(block.first().0 + 4 <= 1 << 20);
    /// mm.frames().free(block);
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "GFP_DMA32")]
    pub fn alloc_below(&self, order: u8, below: PhysAddr, from: AllocFrom) -> Result<Frames, Error> {
        let (mm, p, kind) = (self.mm, self.mm.platform(), Kind::Kernel);
        if order > MAX_ORDER {
            return Err(Error::BadOrder(order));
        }
        let node = from.node.unwrap_or_else(|| mm.node_here());
        if !mm.has_node(node) {
            return Err(Error::NoSuchNode);
        }
        let low: fn(&Zone, &P) -> u32 = |zone, p| zone.low(p) as u32;
        let half: fn(&Zone, &P) -> u32 = |zone, p| zone.min(p) / 2;
        let floors = [low, Zone::min, if from.may_reclaim { Zone::min } else { half }];
        let found = floors.into_iter().find_map(|floor| {
            let zones = mm.fallback(node).filter(|zone| zone.end.phys() <= below);
            zones.filter_map(|zone| mm.take_from(zone, order, kind, floor(zone, p).into())).next()
        });
        let first = match found {
            Some(first) => first,
            None if from.may_reclaim && P::SPACES => {
                let first = self.take_run(node, 1 << order, below)?;
                (0..1 << order).for_each(|i| mm.memmap().get(first.add(i)).set_kind(p, Kind::Tail, 0));
                mm.memmap().get(first).set_kind(p, kind, order);
                first
            }
            None => return Err(Error::OutOfMemory),
        };
        mm.emit(Event::Taken { frame: first, order, kind });
        Ok(Frames::of(first, order))
    }

    /// So many frames in whole blocks, as near to a node as can be, which are the caller's alone; what is left of the last one goes back.
    fn take_run(&self, node: NodeId, frames: u32, below: PhysAddr) -> Result<FrameNumber, Error> {
        let mm = self.mm;
        let (mut work, mut patience) = (Work::begin(mm), PATIENCE);
        let blocks = frames.div_ceil(FRAMES);
        let end = (below.0 / PAGE_SIZE).min(u32::MAX.into());
        for among in [Among::Free, Among::Used] {
            for zone in mm.fallback(node) {
                let whole = u64::from(blocks) * u64::from(FRAMES);
                if among == Among::Free
                    && zone.free(mm.platform()) < whole + u64::from(zone.min(mm.platform()))
                {
                    continue;
                }
                let end = end.min(zone.end.0.into());
                let mut first = zone.start.0.next_multiple_of(FRAMES);
                while u64::from(first) + whole <= end {
                    match self.take_blocks(
                        zone,
                        FrameNumber(first),
                        (blocks, among),
                        (&mut work, &mut patience),
                    ) {
                        Ok(()) => {
                            let first = FrameNumber(first);
                            mm.own_run(zone, first, frames, &mut work);
                            mm.put_run(first.add(frames), blocks * FRAMES - frames, &mut work, |_| true);
                            if zone.is_short(mm.platform()) {
                                mm.wake_kswapd(zone);
                            }
                            return Ok(first);
                        }
                        Err(block) => first = block.0 + FRAMES,
                    }
                }
            }
        }
        Err(Error::OutOfMemory)
    }

    /// Takes adjacent blocks out of use, all or none.
    ///
    /// # Errors
    /// The block that cannot be had.
    fn take_blocks(
        &self,
        zone: &Zone,
        first: FrameNumber,
        (blocks, among): (u32, Among),
        (work, patience): (&mut Work<'_, 'p, P>, &mut u32),
    ) -> Result<(), FrameNumber> {
        let mm = self.mm;
        let block = |i: u32| first.add(i * FRAMES);
        // A look before anything is touched. The last one that is in the way: what begins behind it is tried next.
        if let Some(i) = (0..blocks).rev().find(|&i| !mm.may_be_had(block(i), among, work)) {
            return Err(block(i));
        }
        for i in 0..blocks {
            let taken = self.begin_patiently(block(i), (&mut *work, &mut *patience)).is_ok_and(|leaving| {
                let empty = mm.vacate(leaving.first(), false, work);
                if !empty {
                    self.cancel_offline(leaving);
                }
                empty
            });
            if !taken {
                (0..i).for_each(|i| mm.put_back_retired(zone, block(i), work));
                return Err(block(i));
            }
        }
        Ok(())
    }
}

impl<'p, P: Platform> FrameAllocator<'_, 'p, P> {
    /// [`begin_offline`](FrameAllocator::begin_offline), once nobody else has a block of the region on its way, if that is soon.
    fn begin_patiently(
        &self,
        block: FrameNumber,
        (work, patience): (&mut Work<'_, 'p, P>, &mut u32),
    ) -> Result<Leaving, Error> {
        loop {
            match self.begin_offline(block) {
                Err(Error::Busy) if *patience > 0 => {
                    *patience -= 1;
                    work.give_way();
                    self.mm.platform().pause(MOMENT);
                }
                done => return done,
            }
        }
    }
}

impl<P: Platform> Manager<'_, P> {
    /// Whether a block looks as if it could be emptied.
    fn may_be_had(&self, first: FrameNumber, among: Among, work: &mut Work<'_, '_, P>) -> bool {
        work.did(FRAMES);
        let (p, mut n) = (self.platform(), first);
        if self.memmap().find(first).is_none() {
            return false;
        }
        while n < first.add(FRAMES) {
            let state = self.memmap().get(n).state.get(p);
            let order = Frame::order_of(state);
            match Frame::kind_of(state) {
                Kind::Free => {}
                Kind::Tail if state & flag::LISTED != 0 => {}
                Kind::File if among == Among::Used => {}
                // Without swap no reverse map leads to its entries.
                Kind::Anon if among == Among::Used && self.config().swap => {}
                _ => return false,
            }
            n = n.add(1 << order);
        }
        true
    }

    /// Frames of a zone that are out of use belong to whoever asked for them. Under its lock: whoever begins to take a block offline there sees
    /// that its last frame is out of use, or that none is.
    fn own_run(&self, zone: &Zone, first: FrameNumber, frames: u32, work: &mut Work<'_, '_, P>) {
        let p = self.platform();
        for step in (0..frames).step_by(STEP as usize) {
            let guard = zone.lock(self);
            (step..frames.min(step + STEP))
                .for_each(|i| self.memmap().get(first.add(i)).set_kind(p, Kind::Kernel, 0));
            drop(guard);
            work.did(STEP * cost::ENTRY);
        }
    }

    /// Frames of one zone go back to it: those of which `mine` says so, and which nobody uses then.
    fn put_run(
        &self,
        first: FrameNumber,
        frames: u32,
        work: &mut Work<'_, '_, P>,
        mine: impl Fn(FrameNumber) -> bool,
    ) {
        if frames == 0 {
            return;
        }
        let zone = self.zone(Frame::zone_of(self.memmap().get(first).state.get(self.platform())));
        for step in (0..frames).step_by(STEP as usize) {
            let mut back = FrameVec::new();
            (step..frames.min(step + STEP))
                .map(|i| first.add(i))
                .filter(|&n| mine(n))
                .for_each(|n| back.push(n));
            let guard = zone.lock(self);
            back.as_slice().iter().for_each(|&n| guard.put(n, 0));
            drop(guard);
            work.did(STEP * cost::ENTRY);
        }
    }
}
