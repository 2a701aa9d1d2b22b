//! Who gets a frame: the nearest zone above its low watermark, then any above min, then whoever reclaims.

use super::buddy::Zone;
use crate::Manager;
use crate::addr::{FrameNumber, NodeId, NodeSet};
use crate::charge::charge;
use crate::error::Error;
use crate::event::Event;
use crate::group::Charge;
use crate::handle::GroupSlot;
use crate::kind::Kind;
use crate::memmap::{Frame, FrameBlock, MAX_ORDER, flag};
use crate::platform::Platform;
use crate::profile::Scope;
use crate::view::FrameAllocator;

/// A block of frames that its owner may use and must give back.
///
/// Not `Copy`: whoever frees it no longer has it.
///
/// ```compile_fail,E0382
/// fn twice<P: quietmm::Platform>(mm: &quietmm::Manager<'_, P>, block: quietmm::Frames) {
///     mm.frames().free(block);
///     mm.frames().free(block); // error: use of moved value
/// }
/// ```
#[must_use = "frames that are dropped are lost; give them back with `FrameAllocator::free`"]
#[derive(Debug, PartialEq, Eq)]
pub struct Frames {
    first: FrameNumber,
    order: u8,
}

impl Frames {
    /// The first frame.
    pub fn first(&self) -> FrameNumber {
        self.first
    }

    /// log2 of how many.
    pub fn order(&self) -> u8 {
        self.order
    }

    /// A block that was allocated for whoever gets this.
    pub(crate) fn of(first: FrameNumber, order: u8) -> Frames {
        Frames { first, order }
    }

    /// Forgets the ownership, to keep the number elsewhere. Back by [`FrameAllocator::free_at`].
    pub fn into_raw(self) -> (FrameNumber, u8) {
        (self.first, self.order)
    }
}

/// Where an allocation looks, and how hard.
#[derive(Clone, Copy, Debug)]
pub struct AllocFrom {
    /// The node to start from; others follow by distance. `None`: the node of this CPU.
    pub node: Option<NodeId>,
    /// Whether the caller may wait while pages are reclaimed for it.
    pub may_reclaim: bool,
}

impl AllocFrom {
    /// This CPU's node first; may reclaim.
    pub const HERE: AllocFrom = AllocFrom { node: None, may_reclaim: true };
    /// This CPU's node first; never waits.
    pub const NOW: AllocFrom = AllocFrom { node: None, may_reclaim: false };
}

/// What an allocation looks for.
pub(crate) struct AllocRequest {
    pub order: u8,
    pub kind: Kind,
    /// The node that comes first.
    pub node: NodeId,
    /// From no others.
    pub nodes: NodeSet,
}

impl<'p, P: Platform> FrameAllocator<'_, 'p, P> {
    /// Allocates a block of 2^`order` frames, not cleared. With `may_reclaim` it may wait and needs
    /// interrupts on; otherwise any context but an interrupt handler.
    ///
    /// Costs no IPI unless it must reclaim.
    ///
    /// # Errors
    /// [`Error::BadOrder`], [`Error::NoSuchNode`], [`Error::OutOfMemory`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let frames = mm.frames();
    /// let block = frames.alloc(3, AllocFrom::HERE)?; // 8 frames, not cleared
    /// assert_eq!(block.first().0 % 8, 0);
    /// frames.free(block);
    /// # Ok(())
    /// # });
    /// ```
    // Inlined where the order is known: half of the instructions are about the order.
    #[inline(always)]
    pub fn alloc(&self, order: u8, from: AllocFrom) -> Result<Frames, Error> {
        let mm = self.mm;
        let first = mm.alloc(order, Kind::Kernel, from)?;
        Ok(Frames::of(first, order))
    }

    /// Gives a block back. Any context but an interrupt handler. Costs no IPI.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let block = mm.frames().alloc(0, AllocFrom::NOW)?;
    /// mm.frames().free(block);
    /// # Ok(())
    /// # });
    /// ```
    #[inline(always)] // As `alloc`.
    pub fn free(&self, block: Frames) {
        let mm = self.mm;
        let p = mm.platform();
        let Frames { first, order } = block;
        // A `Frames` exists only for an allocated block, so no other CPU frees it at this moment, and a look is enough.
        // It fails if somebody has freed it by number behind the owner's back; that somebody had the error's chance, we
        // keep the state.
        if let Some(frame) = mm.memmap().find(first)
            && let state = frame.state.get(p)
            && Frame::is_given_out(state, order)
        {
            mm.give(mm.zone(Frame::zone_of(state)), FrameBlock { n: first, frame }, order);
        }
    }

    /// Gives a block back by its number: one that no [`Frames`] stands for any more ([`Frames::into_raw`]). Of two who
    /// free it so at once, one does. Any context but an interrupt handler.
    ///
    /// # Errors
    /// [`Error::NoSuchFrame`]; [`Error::NotAllocated`] for a block that is free already, that the core
    /// itself uses, or that has another order.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let (first, order) = mm.frames().alloc(1, AllocFrom::HERE)?.into_raw();
    /// mm.frames().free_at(first, order)?;
    /// assert_eq!(mm.frames().free_at(first, order), Err(Error::NotAllocated(first)));
    /// # Ok(())
    /// # });
    /// ```
    pub fn free_at(&self, first: FrameNumber, order: u8) -> Result<(), Error> {
        let mm = self.mm;
        let frame = mm.claim_at(first, order)?;
        let zone = mm.zone(Frame::zone_of(frame.state.get(mm.platform())));
        mm.give(zone, FrameBlock { n: first, frame }, order);
        Ok(())
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Takes a block out of the embedding kernel's hands by its number.
    pub(super) fn claim_at(&self, first: FrameNumber, order: u8) -> Result<&'p Frame, Error> {
        let p = self.platform();
        let frame = self.memmap().find(first).ok_or(Error::NoSuchFrame(first))?;
        if frame.claim(p, order) {
            return Ok(frame);
        }
        let absent = frame.kind(p) == Kind::Absent;
        Err(if absent { Error::NoSuchFrame(first) } else { Error::NotAllocated(first) })
    }

    /// Frees one frame of the core's own.
    pub(crate) fn free_one(&self, n: FrameNumber) {
        self.free_all(&[n]);
    }

    /// Frees frames and large pages of the core's own.
    pub(crate) fn free_all(&self, frames: &[FrameNumber]) {
        let p = self.platform();
        let state = |n: FrameNumber| self.memmap().get(n).state.get(p);
        let place = |n: FrameNumber| (Frame::zone_of(state(n)), Frame::order_of(state(n)));
        let mut rest = frames;
        while let Some(&first) = rest.first() {
            let (zone, order) = place(first);
            let run = rest.iter().take_while(|&&n| place(n) == (zone, order)).count();
            let (run, after) = rest.split_at(run);
            run.iter().for_each(|&frame| self.emit(Event::Freed { frame, order }));
            self.uncharge_all(run, order);
            self.give_all(self.zone(zone), run, order);
            rest = after;
        }
    }

    /// A cleared frame for the core's own bookkeeping: not to be freed by its number from outside.
    pub(crate) fn alloc_own(&self, from: AllocFrom) -> Result<FrameNumber, Error> {
        Ok(self.make_own(self.alloc_one(Kind::Kernel, from)?))
    }

    /// The same for reclaim itself, down to the very last one: it will free more. Wakes no `kswapd`: that would be one
    /// that finds no frame waking another, for ever.
    pub(crate) fn alloc_for_reclaim(&self) -> Result<FrameNumber, Error> {
        Ok(self.make_own(self.alloc_last(self.node_here(), 0)?.first))
    }

    /// A block of the last that is free, for whoever brings more.
    pub(crate) fn alloc_last(&self, node: NodeId, order: u8) -> Result<Frames, Error> {
        let kind = Kind::Kernel;
        let any = |zone| self.take_pcp(zone, order, kind).or_else(|| zone.take(self, order, kind, 0));
        let frame = self.fallback(node).find_map(any).ok_or(Error::OutOfMemory)?;
        self.emit(Event::Taken { frame, order, kind });
        Ok(Frames::of(frame, order))
    }

    fn make_own(&self, n: FrameNumber) -> FrameNumber {
        self.memmap().get(n).set_flags(self.platform(), flag::OWN);
        self.platform().clear_frame(n);
        n
    }

    pub(crate) fn alloc_one(&self, kind: Kind, from: AllocFrom) -> Result<FrameNumber, Error> {
        self.alloc(0, kind, from)
    }

    /// A frame that a group is charged with.
    pub(crate) fn alloc_charged(
        &self,
        kind: Kind,
        from: AllocFrom,
        group: GroupSlot,
    ) -> Result<FrameNumber, Error> {
        let charge = self.charge_group(group, 1, from.may_reclaim)?;
        let n = self.alloc(0, kind, from)?;
        charge.put_on(n);
        Ok(n)
    }

    /// The same from these nodes alone.
    pub(crate) fn alloc_charged_on(
        &self,
        kind: Kind,
        (from, nodes): (AllocFrom, NodeSet),
        group: GroupSlot,
    ) -> Result<FrameNumber, Error> {
        let charge = self.charge_group(group, 1, from.may_reclaim)?;
        let frame = self.alloc_one_on(kind, (from, nodes))?;
        charge.put_on(frame);
        Ok(frame)
    }

    /// A frame of one of these nodes alone.
    pub(crate) fn alloc_one_on(
        &self,
        kind: Kind,
        (from, nodes): (AllocFrom, NodeSet),
    ) -> Result<FrameNumber, Error> {
        let frame = self.find_block(0, kind, from, nodes)?;
        self.emit(Event::Taken { frame, order: 0, kind });
        Ok(frame)
    }

    /// The same without waiting, for a page that takes the place of another, of a group that is charged whether it has room or not.
    pub(crate) fn alloc_in_place(
        &self,
        kind: Kind,
        (node, nodes): (NodeId, NodeSet),
        group: GroupSlot,
    ) -> Option<FrameNumber> {
        let charge = Charge::regardless(self, group, 1);
        let from = AllocFrom { node: Some(node), may_reclaim: false };
        let frame = self.alloc_one_on(kind, (from, nodes)).ok()?;
        charge.put_on(frame);
        Some(frame)
    }

    /// A block of one of these nodes, if it has plenty: for whoever can do without.
    pub(crate) fn alloc_spare(&self, order: u8, kind: Kind, nodes: NodeSet) -> Option<FrameNumber> {
        let p = self.platform();
        let low = |zone: &Zone| zone.low(p);
        let plenty = self.zones().filter(|zone| nodes.contains(zone.node) && !zone.is_short(p));
        let frame = plenty.filter_map(|zone| self.take_from(zone, order, kind, low(zone))).next()?;
        self.emit(Event::Taken { frame, order, kind });
        Some(frame)
    }

    /// The same of one node, for a page that takes the place of another, of a group that is charged whether it has room or not.
    pub(crate) fn alloc_spare_in_place(
        &self,
        kind: Kind,
        node: NodeId,
        group: GroupSlot,
    ) -> Option<FrameNumber> {
        let charge = Charge::regardless(self, group, 1);
        let frame = self.alloc_spare(0, kind, NodeSet::of(&[node])?)?;
        charge.put_on(frame);
        Some(frame)
    }

    #[inline(always)]
    fn alloc(&self, order: u8, kind: Kind, from: AllocFrom) -> Result<FrameNumber, Error> {
        let _scope = charge(self.platform(), Scope::AllocFrame);
        if from.node.is_none()
            && let Some(frame) = self.take_nearest(order, kind)
        {
            return Ok(frame);
        }
        self.alloc_anywhere(order, kind, from)
    }

    #[inline(never)]
    fn alloc_anywhere(&self, order: u8, kind: Kind, from: AllocFrom) -> Result<FrameNumber, Error> {
        let frame = self.find_block(order, kind, from, NodeSet::ALL)?;
        self.emit(Event::Taken { frame, order, kind });
        Ok(frame)
    }

    fn find_block(
        &self,
        order: u8,
        kind: Kind,
        from: AllocFrom,
        nodes: NodeSet,
    ) -> Result<FrameNumber, Error> {
        if order > MAX_ORDER {
            return Err(Error::BadOrder(order));
        }
        let node = from.node.unwrap_or_else(|| self.node_here());
        if !self.has_node(node) {
            return Err(Error::NoSuchNode);
        }
        let request = AllocRequest { order, kind, node, nodes };
        let p = self.platform();
        for zone in self.zones_for(&request) {
            let found = if zone.is_short(p) {
                self.take_pcp(zone, order, kind)
            } else {
                self.take_from(zone, order, kind, zone.low(p))
            };
            if let Some(found) = found {
                return Ok(found);
            }
        }
        self.zones_for(&request).for_each(|zone| self.wake_kswapd(zone));
        if let Some(found) = self.take_above(&request, Zone::min) {
            return Ok(found);
        }
        if !from.may_reclaim {
            // Those who cannot wait may go half-way below the mark that all others respect.
            let half = self.take_above(&request, |zone, p| zone.min(p) / 2);
            return half.ok_or(Error::OutOfMemory);
        }
        self.stall(&request)
    }

    /// A block of the nearest zone of which one is on this CPU's list, or that keeps at least `floor` frames.
    pub(crate) fn take_above(
        &self,
        request: &AllocRequest,
        floor: fn(&Zone, &P) -> u32,
    ) -> Option<FrameNumber> {
        let &AllocRequest { order, kind, .. } = request;
        let p = self.platform();
        self.zones_for(request).find_map(|zone| self.take_from(zone, order, kind, floor(zone, p).into()))
    }

    /// The zones that may be asked, by distance.
    pub(crate) fn zones_for(&self, request: &AllocRequest) -> impl Iterator<Item = &'p Zone> + use<'p, P> {
        let nodes = request.nodes;
        self.fallback(request.node).filter(move |zone| nodes.contains(zone.node))
    }
}
