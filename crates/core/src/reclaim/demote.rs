//! Demotion: what reclaim takes on a node goes to a slower one that has room, and leaves memory only from there (Linux: tiered memory).
//!
//! A node has no place to demote to unless the kernel says so. Then each batch of reclaim there unmaps and flushes as ever, and what was to be written to swap, or dropped,
//! is copied instead. A group that is at its limit has its pages leave memory: that they are elsewhere would not help it.

use core::sync::atomic::Ordering;

use super::migrate;
use crate::Manager;
use crate::addr::{FrameNumber, NodeId};
use crate::error::Error;
use crate::event::Event;
use crate::kind::Kind;
use crate::memmap::Frame;
use crate::memmap::flag;
use crate::platform::Platform;
use crate::view::FrameAllocator;

impl<P: Platform> FrameAllocator<'_, '_, P> {
    /// From now on, pages that reclaim would take out of memory on `node` move to node `to` where there is room above its low watermarks; with `None`,
    /// no more. They are mapped there where they were mapped before, or come by a fault without I/O, and age there as others do. Nodes may stand in a row,
    /// but not in a circle. Pages that move are in [`Counter::PgDemoted`](crate::Counter::PgDemoted).
    ///
    /// Pages of files move, and, where [`Config::swap`](crate::Config::swap) is set, anonymous ones: for these no swap device is needed. Where a group is at its limit nothing
    /// moves for that; the node policies of ranges are not asked. May wait for memory: two frames, the first time. No IPI.
    ///
    /// # Errors
    /// [`Error::NoSuchNode`]; [`Error::BadSetting`] for a circle; [`Error::OutOfMemory`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// // One node has nowhere to go.
    /// assert!(matches!(mm.frames().set_demotion(NodeId(0), Some(NodeId(0))), Err(Error::BadSetting(_))));
    /// assert_eq!(mm.frames().demotion(NodeId(0)), None);
    /// mm.frames().set_demotion(NodeId(0), None)?;
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "node_demotion")]
    pub fn set_demotion(&self, node: NodeId, to: Option<NodeId>) -> Result<(), Error> {
        const { assert!(P::SPACES, "a platform without spaces") };
        let mm = self.mm;
        if [Some(node), to].into_iter().flatten().any(|node| !mm.has_node(node)) {
            return Err(Error::NoSuchNode);
        }
        if to.is_some() {
            mm.make_transit()?;
        }
        let _guard = mm.root.watermarks.lock(mm);
        let mut next = to;
        while let Some(on) = next {
            if on == node {
                return Err(Error::BadSetting("pages that are demoted must not come back to their node"));
            }
            next = self.demotion(on);
        }
        // Relaxed, both: the words are all that there is to see.
        mm.root.demotions[usize::from(node.0)].store(to.map_or(0, |to| to.0 as u8 + 1), Ordering::Relaxed);
        let some = mm.node_ids().any(|node| self.demotion(node).is_some());
        mm.root.demotes.store(some.into(), Ordering::Relaxed);
        Ok(())
    }

    /// Where pages of a node are demoted to.
    ///
    /// # Examples
    /// See [`set_demotion`](Self::set_demotion).
    pub fn demotion(&self, node: NodeId) -> Option<NodeId> {
        let to = self.mm.root.demotions.get(usize::from(node.0))?.load(Ordering::Relaxed);
        to.checked_sub(1).map(|to| NodeId(to.into()))
    }
}

impl<P: Platform> Manager<'_, P> {
    /// The same, if there is room; if there is not, that node's `kswapd` is woken.
    pub(super) fn demotion_of(&self, node: NodeId) -> Option<NodeId> {
        if self.root.demotes.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let to = self.frames().demotion(node)?;
        let zones = || self.zones().filter(|zone| zone.node == to);
        let p = self.platform();
        let room = zones().any(|zone| !zone.is_short(p) && zone.free(p) > zone.low(p));
        if !room {
            zones().for_each(|zone| self.wake_kswapd(zone));
        }
        room.then_some(to)
    }
}

/// Whether a page may move, so that its entries may be taken out: an anonymous one gets a slot for the way if it has none. By whoever has locked it. Any
/// spin lock but those of clusters may be held.
pub(super) fn may_unmap<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber) -> bool {
    let frame = mm.memmap().get(n);
    if frame.kind(mm.platform()) == Kind::File {
        return true;
    }
    if let Some(slot) = mm.closed_slot_of(n) {
        // What names it there would have to stay. Unless something does already it moves as one that has none.
        mm.swap_detach(n, slot);
    }
    mm.is_swappable(n) && (mm.slot_of(n).is_some() || mm.transit_add(n))
}

/// Moves a page whose entries are gone and flushed; returns its new frame, locked and held. The old one is the caller's to free.
pub(super) fn demote<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber, to: NodeId) -> Option<FrameNumber> {
    let (p, frame) = (mm.platform(), mm.memmap().get(n));
    let new = mm.alloc_spare_in_place(frame.kind(p), to, mm.groups().of_frame(p, n))?;
    if !migrate::replace(mm, n, new) {
        mm.free_one(new);
        return None;
    }
    migrate::show_again(mm, new);
    mm.emit(Event::Demoted);
    Some(new)
}

/// A page that has not moved, locked: whether nothing but memory can have it. Then its entries lead to it again.
pub(super) fn must_stay<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber) -> bool {
    let p = mm.platform();
    let state = mm.memmap().get(n).state.get(p);
    let stays = match mm.slot_of(n) {
        Some(slot) => Manager::<P>::is_transit(slot),
        None => Frame::is_memory(state) && state & flag::DIRTY != 0,
    };
    let stays = stays || state & flag::DIRTY != 0 && !mm.may_write_out(n);
    if stays {
        migrate::show_again(mm, n);
    }
    stays
}

/// A page that was to move, locked, and does not: its slot for the way is free, unless an entry names it.
pub(super) fn let_go<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber) {
    if let Some(slot) = mm.slot_of(n).filter(|&slot| Manager::<P>::is_transit(slot)) {
        mm.swap_detach(n, slot);
    }
}

/// The same once what was cleared is flushed: the entries that name the slot lead to the page again.
pub(super) fn stay<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber) {
    if mm.slot_of(n).is_some_and(Manager::<P>::is_transit) {
        migrate::show_again(mm, n);
    }
}
