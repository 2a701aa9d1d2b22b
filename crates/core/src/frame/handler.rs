//! Frames in the handler of an interrupt, of the kernel's own: from this CPU's lists, and back to them.
//!
//! A zone's lock may be held by the very task that was interrupted; a CPU changes its lists with interrupts off, so no handler finds them
//! half changed. What the lists cannot do a task does later.

use core::sync::atomic::Ordering;

use super::alloc::Frames;
use super::percpu::PcpAccess;
use crate::Manager;
use crate::addr::FrameNumber;
use crate::error::Error;
use crate::event::Event;
use crate::kind::Kind;
use crate::memmap::{Frame, FrameBlock};
use crate::platform::Platform;
use crate::view::FrameAllocator;

impl<P: Platform> FrameAllocator<'_, '_, P> {
    /// Allocates a block of 2^`order` frames, not cleared, in any context, the handler of an interrupt too: one that lies on this CPU's lists.
    /// `None` where there is none, be it that much is free elsewhere: lists have blocks of small orders and large pages, which
    /// tasks bring by [`alloc`](FrameAllocator::alloc), a batch at a time. No lock but that of the lists (`drain=remote`), no IPI.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let frames = mm.frames();
    /// let (Some(a), Some(b)) = (frames.alloc_in_handler(0), frames.alloc_in_handler(0)) else {
    ///     return Ok(()); // the device waits
    /// };
    /// for block in [a, b] {
    ///     if let Some(left) = frames.free_in_handler(block) {
    ///         frames.free(left); // by a task
    ///     }
    /// }
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "GFP_ATOMIC")]
    pub fn alloc_in_handler(&self, order: u8) -> Option<Frames> {
        let (mm, kind) = (self.mm, Kind::Kernel);
        let first = PcpAccess::own(mm, |section| {
            let mut zones = mm.fallback(mm.node_here());
            let frame = zones.find_map(|zone| section.pop(section.of_zone(zone.index()), order, kind))?;
            section.emit(Event::Taken { frame, order, kind });
            Some(frame)
        })?;
        Some(Frames::of(first, order))
    }

    /// Gives a block back in any context, the handler of an interrupt too: to this CPU's lists. Returns it where they do not keep it: blocks of
    /// other orders, while memory is short or goes offline, and once they have twice what they may. A task frees it then.
    /// No lock but that of the lists, no IPI.
    ///
    /// # Examples
    /// See [`alloc_in_handler`](FrameAllocator::alloc_in_handler).
    #[must_use = "a block that is returned is not free"]
    pub fn free_in_handler(&self, block: Frames) -> Option<Frames> {
        let (mm, p) = (self.mm, self.mm.platform());
        let (n, order) = (block.first(), block.order());
        // As `free`: what somebody has freed behind the owner's back keeps its state.
        let frame = mm.memmap().find(n)?;
        let state = frame.state.get(p);
        if !Frame::is_given_out(state, order) {
            return None;
        }
        (!mm.keep_in_handler(FrameBlock { n, frame }, order)).then_some(block)
    }

    /// The same of a block by its number, as [`free_at`](FrameAllocator::free_at): one that no [`Frames`] stands for any more. Says whether this CPU's lists keep it;
    /// if not, it is allocated as before, and a task frees it.
    ///
    /// # Errors
    /// [`Error::NoSuchFrame`]; [`Error::NotAllocated`] for a block that is free already, that the core itself uses, or that has another order.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let (first, order) = mm.frames().alloc(0, AllocFrom::HERE)?.into_raw();
    /// if !mm.frames().free_at_in_handler(first, order)? {
    ///     mm.frames().free_at(first, order)?; // by a task
    /// }
    /// assert_eq!(mm.frames().free_at_in_handler(first, order), Err(Error::NotAllocated(first)));
    /// # Ok(())
    /// # });
    /// ```
    #[must_use = "a block that is not kept is not free"]
    pub fn free_at_in_handler(&self, first: FrameNumber, order: u8) -> Result<bool, Error> {
        let (mm, p) = (self.mm, self.mm.platform());
        let owned = mm.memmap().find(first).map(|frame| frame.state.get(p));
        let frame = mm.claim_at(first, order)?;
        let kept = mm.keep_in_handler(FrameBlock { n: first, frame }, order);
        if let Some(owned) = owned.filter(|_| !kept) {
            // Nobody else changes what is claimed. Release: whoever is told the number finds it allocated by `claim`.
            frame.state.store(p, owned, Ordering::Release);
        }
        Ok(kept)
    }
}

impl<P: Platform> Manager<'_, P> {
    /// Puts a block that is nobody's any more on this CPU's lists, if they keep it.
    fn keep_in_handler(&self, block: FrameBlock<'_>, order: u8) -> bool {
        let p = self.platform();
        let zone = self.zone(Frame::zone_of(block.frame.state.get(p)));
        PcpAccess::own(self, |section| {
            let (limits, frame) = (zone.limits.of(p, order), block.n);
            let kept = section.has_room(zone.index(), order, limits.high.saturating_mul(2))
                && section.keeps(zone.index(), block, order, limits);
            if kept {
                section.emit(Event::Freed { frame, order });
            }
            kept
        })
    }
}
