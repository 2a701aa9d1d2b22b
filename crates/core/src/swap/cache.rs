//! The swap cache: from a page to its slot and back.
//!
//! Lock order: a table's lock, then a cluster's; then those of frames. Frames are freed after the cluster's lock.

use core::sync::atomic::Ordering;

use super::slots::Cluster;
use crate::Manager;
use crate::addr::FrameNumber;
use crate::handle::FileSlot;
use crate::kind::Kind;
use crate::memmap::{Frame, flag};
use crate::platform::{Platform, Store};
use crate::rule::Rule;

/// What came of putting a page into the swap cache.
pub(super) enum Inserted {
    /// It is in.
    Now,
    /// Another page is, held for the caller.
    Already(FrameNumber),
    /// No entry names the slot any more.
    NoUser,
}

/// What came of giving a page a slot.
pub(crate) enum Added {
    /// It has one, on a device that takes pages.
    Now,
    /// It had one.
    Before,
    /// None is to be had.
    Full,
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Whether a page is one that goes to swap: anonymous, on a machine that has asked for swap.
    pub(crate) fn is_swappable(&self, n: FrameNumber) -> bool {
        self.config().swap && self.memmap().get(n).kind(self.platform()) == Kind::Anon
    }

    /// Whether a page is a memory file's: it goes to swap once it is dirty. Where there never was such a file it costs nothing.
    pub(crate) fn is_memory_page(&self, n: FrameNumber) -> bool {
        self.root.memory_files.load(Ordering::Relaxed) != 0
            && Frame::is_memory(self.memmap().get(n).state.get(self.platform()))
    }

    /// Whether the content of an anonymous page may be dropped. Under the lock of a table whose entry leads to it; or by whoever has locked a page to which
    /// none does.
    pub(crate) fn is_lazy(&self, n: FrameNumber) -> bool {
        let (p, frame) = (self.platform(), self.memmap().get(n));
        self.root.lazy.load(Ordering::Relaxed) != 0
            && frame.state.load(p, Ordering::Acquire) & flag::LAZY != 0
            && frame.kind(p) == Kind::Anon
    }

    /// The slot of an anonymous page in the swap cache. For whoever holds the page; stable while it is locked.
    pub(crate) fn slot_of(&self, n: FrameNumber) -> Option<u32> {
        if self.is_swappable(n) { self.memmap().get(n).slot(self.platform()) } else { None }
    }

    /// Gives an anonymous page a slot, if it has none and there is one: it is in the swap cache from now on, and dirty. One
    /// whose device takes nothing any more, or not at the moment what the page has to write, is given back for another,
    /// unless an entry names it: then it stays in memory with the slot, if the device takes nothing any more. By whoever has locked the
    /// page. Any spin lock but those of clusters may be held.
    pub(crate) fn swap_add(&self, n: FrameNumber) -> Added {
        self.must_be_locked(n);
        let (p, frame) = (self.platform(), self.memmap().get(n));
        if let Some(slot) = self.slot_of(n) {
            let stale = frame.state.get(p) & flag::DIRTY != 0;
            if self.takes_pages(slot) && !(stale && self.swap_backoff(slot).is_failing(p)) {
                return Added::Before;
            }
            self.swap_detach(n, slot);
            if self.slot_of(n).is_some() {
                // Onto a device that goes off nothing is put back: where memory is short, what `Swap::off` brings would go as
                // fast as it comes, for ever. And one that is gone may not give it again.
                return if self.takes_pages(slot) { Added::Before } else { Added::Full };
            }
        }
        let Some(slot) = self.swap_reserve(n) else { return Added::Full };
        frame.set_flags(p, flag::DIRTY);
        frame.set_slot(p, Some(slot));
        Added::Now
    }

    /// Takes a slot for a page that the caller has locked, if one is to be had: the slot leads to the page, and nothing names the slot yet. What
    /// undoes it is [`swap_detach`](Self::swap_detach). Any spin lock but those of clusters may be held.
    pub(crate) fn swap_reserve(&self, n: FrameNumber) -> Option<u32> {
        self.must_be_locked(n);
        let (p, frame) = (self.platform(), self.memmap().get(n));
        // The cache's reference comes first: whoever finds the page there has its own on top.
        frame.refs.fetch_add(p, 1, Ordering::Relaxed);
        let slot = self.take_slot(n);
        if slot.is_none() {
            frame.refs.fetch_sub(p, 1, Ordering::Relaxed);
        }
        slot
    }

    /// Takes a page out of the cache, and of the slot its only user, which goes on to have the page. The cache's reference is the user's now. By who
    /// has locked the page.
    pub(crate) fn swap_take_out(&self, n: FrameNumber, slot: u32) {
        self.must_be_locked(n);
        let cluster = Cluster::of(self, slot);
        debug_assert!(cluster.page(slot) == Some(n) && cluster.users(slot) == 1);
        self.memmap().get(n).set_slot(self.platform(), None);
        cluster.remove_user(slot);
        cluster.clear_page(slot);
    }

    /// Whether an entry names the slot of an anonymous page, so that its content must be kept. By whoever has locked it.
    pub(crate) fn slot_is_used(&self, n: FrameNumber) -> bool {
        self.slot_of(n).is_some_and(|slot| self.swap_users(slot) > 0)
    }

    /// What keeps a page that is to be written out, and where.
    pub(crate) fn kept_in(&self, n: FrameNumber) -> (Store, u64) {
        let (p, frame) = (self.platform(), self.memmap().get(n));
        match self.slot_of(n) {
            Some(slot) => self.place_of(slot),
            None => (Store::File(self.file_id(FileSlot(frame.owner.get(p)))), frame.index.get(p)),
        }
    }

    /// An entry is about to name this slot: reclaim puts it there, or fork copies one.
    pub(crate) fn swap_dup(&self, slot: u32) {
        Cluster::of(self, slot).add_user(slot);
    }

    /// Entries that name a slot. A moment's truth, but for whoever has its page locked: then none is added.
    pub(crate) fn swap_users(&self, slot: u32) -> u32 {
        Cluster::of(self, slot).users(slot)
    }

    /// The page in a slot, with a reference for the caller.
    pub(super) fn swap_find(&self, slot: u32) -> Option<FrameNumber> {
        let cluster = Cluster::of(self, slot);
        let n = cluster.page(slot)?;
        // Relaxed: the cache has a reference, and drops it only under this lock.
        self.memmap().get(n).refs.fetch_add(self.platform(), 1, Ordering::Relaxed);
        Some(n)
    }

    /// Puts a page into the cache that is to be read from this slot. It is locked and has the cache's reference.
    pub(super) fn swap_insert(&self, slot: u32, n: FrameNumber) -> Inserted {
        let p = self.platform();
        let cluster = Cluster::of(self, slot);
        if let Some(there) = cluster.page(slot) {
            self.memmap().get(there).refs.fetch_add(p, 1, Ordering::Relaxed);
            return Inserted::Already(there);
        }
        if cluster.users(slot) == 0 {
            return Inserted::NoUser;
        }
        cluster.set_page(slot, n);
        self.memmap().get(n).set_slot(p, Some(slot));
        Inserted::Now
    }

    /// Whether a slot waits to be read: entries name it, and its page is not in memory.
    pub(crate) fn swap_is_out(&self, slot: u32) -> bool {
        let cluster = Cluster::of(self, slot);
        cluster.users(slot) > 0 && cluster.page(slot).is_none()
    }

    pub(super) fn slot_in_use(&self, slot: u32) -> bool {
        !Cluster::of(self, slot).is_free(slot)
    }

    /// An entry that named a slot leads to its page again, which the caller has locked and holds. Returns how many others
    /// name it.
    pub(crate) fn swap_undo(&self, slot: u32) -> u32 {
        Cluster::of(self, slot).remove_user(slot)
    }

    /// An entry that named a slot is gone. A page that only the cache still holds goes too, and its slot is free.
    pub(crate) fn swap_drop(&self, slot: u32) {
        let cluster = Cluster::of(self, slot);
        let left = cluster.remove_user(slot);
        if left > 0 {
            return;
        }
        if self.platform().broken(Rule::SlotHeldWhileRead) && cluster.page(slot).is_some() {
            // PITFALLS 34: the slot is another's from here on, and its page is still being read.
            return cluster.clear_page(slot);
        }
        self.drop_from_cache(cluster, slot);
    }

    /// A mapping of a page that was, or is, in this slot is gone: if nobody wants the page any more, it goes.
    pub(crate) fn swap_trim(&self, n: FrameNumber, slot: u32) {
        let cluster = Cluster::of(self, slot);
        if cluster.page(slot) == Some(n) && cluster.users(slot) == 0 {
            self.drop_from_cache(cluster, slot);
        }
    }

    /// Takes a page out that nobody but the cache holds, and frees both. Who else holds it lets go of it later: it is
    /// found without users then.
    fn drop_from_cache(&self, cluster: Cluster<'_, 'p, P>, slot: u32) {
        let p = self.platform();
        let Some(n) = cluster.page(slot) else { return };
        let frame = self.memmap().get(n);
        if frame.refs.replace(p, 1, 0, Ordering::AcqRel).is_err() {
            return;
        }
        frame.set_slot(p, None);
        cluster.clear_page(slot);
        drop(cluster);
        self.unlist(n);
        self.free_one(n);
    }

    /// Takes a page out of the cache if nobody but the cache and the caller, who has locked it, holds it, and if its
    /// slot has its content, or nobody wants that; the caller then owns the page alone. The look and the taking are one
    /// step under the lock under which every reference by the cache's way is taken (PITFALLS 35).
    pub(crate) fn swap_remove(&self, n: FrameNumber, slot: u32) -> bool {
        self.must_be_locked(n);
        let p = self.platform();
        let cluster = Cluster::of(self, slot);
        let frame = self.memmap().get(n);
        if frame.state.load(p, Ordering::Acquire) & flag::DIRTY != 0 && cluster.users(slot) > 0 {
            return false;
        }
        if !frame.freeze(p) {
            return false;
        }
        frame.set_slot(p, None);
        cluster.clear_page(slot);
        true
    }

    /// Takes a page that the caller holds and has locked out of the cache, unless an entry names its slot or it is gone
    /// from there.
    pub(crate) fn swap_detach(&self, n: FrameNumber, slot: u32) {
        self.must_be_locked(n);
        let p = self.platform();
        let cluster = Cluster::of(self, slot);
        if cluster.page(slot) != Some(n) || cluster.users(slot) > 0 {
            return;
        }
        self.memmap().get(n).set_slot(p, None);
        cluster.clear_page(slot);
        // The caller has its own.
        self.memmap().get(n).refs.fetch_sub(p, 1, Ordering::AcqRel);
    }

    /// Puts another page, locked, that is yet to get the content of this one, in its place in the cache, if nobody but the cache and the caller,
    /// who has locked it, holds it: with these of its flags, and the cache's reference. The caller then owns the old one alone. One step, as
    /// [`swap_remove`](Self::swap_remove).
    pub(crate) fn swap_replace(&self, n: FrameNumber, slot: u32, new: FrameNumber, flags: u32) -> bool {
        self.must_be_locked(n);
        let (p, frame) = (self.platform(), self.memmap().get(n));
        let cluster = Cluster::of(self, slot);
        if cluster.page(slot) != Some(n) || !frame.freeze(p) {
            return false;
        }
        self.memmap().get(new).set_flags(p, frame.state.load(p, Ordering::Acquire) & flags);
        self.memmap().get(new).set_slot(p, Some(slot));
        frame.set_slot(p, None);
        cluster.replace_page(slot, new);
        true
    }

    /// Takes a page out of the cache whose content could not be read. The entries go on naming the slot. By whoever has
    /// locked it.
    pub(super) fn swap_forget(&self, n: FrameNumber, slot: u32) {
        self.must_be_locked(n);
        let cluster = Cluster::of(self, slot);
        self.memmap().get(n).set_slot(self.platform(), None);
        cluster.clear_page(slot);
    }
}
