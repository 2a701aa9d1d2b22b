//! Memory that comes later.
//!
//! The platform names at the start which regions may come ([`Memory::later_region`](crate::platform::Memory::later_region)), as it says which CPUs are possible.
//! Such a region is a zone in which all is offline. What is kept about its frames is not there, so nobody who looks for them by their numbers finds
//! any; a block of it comes with that, which lies in memory that is here: it stays when the block goes offline and its memory away.

use core::sync::atomic::Ordering;

use super::memory::{FRAMES, Offline, STEP};
use crate::Manager;
use crate::addr::{FrameNumber, NodeId};
use crate::error::Error;
use crate::frame::{AllocFrom, OwnPiece, order_of};
use crate::kind::Kind;
use crate::memmap::{Frame, SECTION};
use crate::platform::Platform;
use crate::resched::{Work, cost};
use crate::rule::Rule;
use crate::sync::Word32;
use crate::view::FrameAllocator;
use crate::zeroed::Zeroed;

const _: () = assert!(FRAMES == SECTION);

impl<'p, P: Platform> FrameAllocator<'_, 'p, P> {
    /// The block of 2^[`MAX_ORDER`](crate::MAX_ORDER) frames at `first` has come: memory of one of the regions of
    /// [`Memory::later_region`](crate::platform::Memory::later_region). It is offline, and used once it is brought [online](Self::bring_online). From
    /// then on it is as any other: it [goes offline](Self::begin_offline) and comes back, its frames get what is freed, watermarks and lists follow.
    ///
    /// Costs 32 bytes for each frame, and 4 more with [`Config::groups`](crate::Config::groups), of memory that is here, of the same node if that has some; they stay for
    /// good, and where they lie no block goes offline. So bring a block online before the next one comes. With interrupts on and no lock held; may wait for
    /// memory, but takes the last that is free before it does. No IPI unless it must reclaim.
    ///
    /// # Errors
    /// [`Error::BadBlock`] if it is not aligned or not whole in one region; [`Error::AlreadyHere`] if it has come, also if it is offline since, or was handed
    /// over at the start: of two who say it at once, one is right; [`Error::OutOfMemory`].
    ///
    /// # Safety
    /// The block's memory is there, and the platform's `direct` maps it, for as long as the manager lives or until it is offline and its [`Offline`] is not given back. It is nobody else's.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let before = mm.frames().available();
    /// // The firmware has told of memory at `LATER`, which the platform names as a region that may come.
    /// // SAFETY: it is there, and nobody uses it.
    /// let block = unsafe { mm.frames().add_block(LATER)? };
    /// mm.frames().bring_online(block);
    /// assert!(mm.frames().available() > before + 1000);
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "add_memory")]
    #[doc(alias = "hot-add")]
    pub unsafe fn add_block(&self, first: FrameNumber) -> Result<Offline, Error> {
        let mm = self.mm;
        let p = mm.platform();
        let zone = mm.zone_of_block(first)?;
        if mm.memmap().find(first).is_some() {
            return Err(Error::AlreadyHere(first));
        }
        let frames = mm.own_section::<Frame>(zone.node)?;
        let groups = mm.groups();
        if groups.exist() {
            match mm.own_section::<Word32>(zone.node) {
                // Of two who say it at once either may bring this part.
                Ok(words) => _ = words.put(mm, &groups.pages, first),
                Err(error) => {
                    frames.give_back(mm);
                    return Err(error);
                }
            }
        }
        let mut work = Work::begin(mm);
        for (i, frame) in frames.as_slice().iter().enumerate() {
            frame.set_place(p, (zone.index(), zone.node), Kind::Absent);
            if i % STEP as usize == 0 {
                work.did(STEP * cost::ENTRY);
            }
        }
        // From here on they are found: out of use, and counted so from the start.
        if !frames.put(mm, &mm.memmap().0, first) && !p.broken(Rule::AddedOnce) {
            return Err(Error::AlreadyHere(first));
        }
        let (of_frames, of_groups) =
            (1 << order_of::<Frame>(SECTION as usize), 1 << order_of::<Word32>(SECTION as usize));
        let own = of_frames + if groups.exist() { of_groups } else { 0 };
        // Relaxed: audits add it up.
        mm.root.later_frames.fetch_add(p, own, Ordering::Relaxed);
        Ok(Offline::of(first))
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// What is kept about the frames of a section that comes on a node: from there, or as near as can be.
    fn own_section<T: Zeroed>(&self, node: NodeId) -> Result<OwnPiece<'p, T>, Error> {
        let order = order_of::<T>(SECTION as usize);
        let at = |may_reclaim| AllocFrom { node: Some(node), may_reclaim };
        let frames = self.frames();
        // More memory comes: that is worth the last that is free.
        let block = frames
            .alloc(order, at(false))
            .or_else(|_| self.alloc_last(node, order))
            .or_else(|_| frames.alloc(order, at(true)))?;
        Ok(OwnPiece::of(self, block, SECTION as usize))
    }
}
