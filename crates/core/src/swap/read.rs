//! Pages back from swap, and those beside them.

use core::sync::atomic::Ordering;

use super::area::CLUSTER;
use super::cache::Inserted;
use super::slots::RUN;
use crate::Manager;
use crate::addr::{FrameNumber, NodeSet, PageNumber};
use crate::charge::charge;
use crate::error::Error;
use crate::event::Event;
use crate::frame::AllocFrom;
use crate::group::{Charge, Payer};
use crate::handle::GroupSlot;
use crate::kind::Kind;
use crate::memmap::{Frame, flag};
use crate::percpu::CpuGuard;
use crate::platform::{DeviceError, Platform, Transfer};
use crate::profile::Scope;
use crate::rule::Rule;

/// The most pages that one fault reads: those of an aligned run of slots.
const WINDOW: u32 = RUN;
/// Of so many faults that would read one page alone the first tries two. Odd: with an even number every try of a program
/// that goes from slot to slot could fall on the second of a pair, whose first it has.
const TRY_ONE_IN: u32 = 15;

/// Where a page comes, where somebody said so: where to look first, and on which nodes it may come.
pub(crate) type Place = Option<(AllocFrom, NodeSet)>;

/// What came of looking for the page of a slot.
#[must_use = "it is held, and perhaps locked"]
pub(crate) enum SwapIn {
    /// It is in the cache and has its content: held and locked.
    Found(FrameNumber),
    /// Somebody works on it: held.
    Busy(FrameNumber),
    /// It is in the cache now, held and locked: the caller must read it.
    New(FrameNumber),
    /// It was there and went, or no entry names the slot any more: look again.
    Gone,
}

impl<'p, P: Platform> Manager<'p, P> {
    /// The page of a slot that an entry names, from the cache or on its way there. Interrupts on, no spin lock held. May
    /// wait for memory. The caller has a VMA with that entry, or the slot's device could go off meanwhile. `new` says who is charged with a new page, the group of
    /// that VMA's space, and where it comes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::LimitReached`].
    pub(crate) fn swap_in(&self, slot: u32, new: impl FnOnce() -> (Payer, Place)) -> Result<SwapIn, Error> {
        let _scope = charge(self.platform(), Scope::SwapIn);
        if let Some(page) = self.swap_find(slot) {
            return Ok(self.lock_cached(page, slot));
        }
        let (payer, place) = new();
        let page = self.new_swap_page(place, payer)?;
        Ok(match self.swap_insert(slot, page) {
            Inserted::Now => SwapIn::New(page),
            Inserted::Already(there) => {
                self.free_one(page);
                self.lock_cached(there, slot)
            }
            Inserted::NoUser => {
                self.free_one(page);
                SwapIn::Gone
            }
        })
    }

    /// Reads a page that [`swap_in`](Self::swap_in) has made, with what lies beside it, and lets go of its lock; the
    /// reference stays. The device stays in use meanwhile: it goes off only when nobody has a page of it locked.
    /// Interrupts on, no lock held. Waits for the device.
    ///
    /// # Errors
    /// [`Error::SwapDevice`], with the address `at` where it is wanted, if the device cannot give it; the reference is
    /// gone.
    pub(crate) fn swap_read(&self, slot: u32, page: FrameNumber, at: PageNumber) -> Result<(), Error> {
        let p = self.platform();
        let _scope = charge(p, Scope::SwapIn);
        let (store, block) = self.place_of(slot);
        let mut transfers = [Transfer::new(store, block, page); WINDOW as usize];
        let mut slots = [slot; WINDOW as usize];
        // What comes with a page is charged where that is: pages that went out together, and so lie together, were of one group.
        let group = self.groups().of_frame(p, page);
        let count = self.gather_ahead(slot, group, &mut slots, &mut transfers);
        match p.device() {
            Some(device) => device.read_all(&mut transfers[..count]),
            None => transfers.iter_mut().for_each(|one| one.result = Err(DeviceError::Gone)),
        }
        for (one, &slot) in transfers[1..count].iter().zip(&slots[1..]) {
            self.note_read(one, slot, true);
            self.unlock_page(one.frame);
            self.put_page(one.frame);
        }
        let is_read = self.note_read(&transfers[0], slot, false);
        self.unlock_page(page);
        if is_read {
            return Ok(());
        }
        self.put_page(page);
        self.emit(Event::SwapLost);
        Err(Error::SwapDevice(at))
    }

    /// A page for content that is yet to be read: locked, with the cache's reference and the caller's. Which `anon_vma`
    /// it belongs to is known when it is mapped.
    fn new_swap_page(&self, place: Place, payer: Payer) -> Result<FrameNumber, Error> {
        let p = self.platform();
        let charge = match payer {
            Payer::Within(group) => {
                let may_reclaim = place.is_none_or(|(from, _)| from.may_reclaim);
                self.charge_group(group, 1, may_reclaim)?
            }
            Payer::Regardless(group) => Charge::regardless(self, group, 1),
        };
        let n = match place {
            None => self.alloc_one(Kind::Anon, AllocFrom::HERE)?,
            Some(place) => self.alloc_one_on(Kind::Anon, place)?,
        };
        charge.put_on(n);
        let frame = self.memmap().get(n);
        frame.owner.set(p, Frame::NO_OWNER);
        frame.index.set(p, 0);
        frame.maps.set(p, 0);
        frame.refs.set(p, 2);
        frame.state.set(p, frame.state.get(p) | flag::LOCKED | flag::UNREAD);
        Ok(n)
    }

    /// A page that the cache had, if nobody works on it, it is still there and has its content.
    fn lock_cached(&self, page: FrameNumber, slot: u32) -> SwapIn {
        let p = self.platform();
        let frame = self.memmap().get(page);
        if p.broken(Rule::SwapInLocks) {
            // PITFALLS 35: it may be on its way out. Somebody else's lock will be let go of twice.
            frame.set_flags(p, flag::LOCKED);
        } else if !frame.try_lock(p) {
            return SwapIn::Busy(page);
        }
        let state = frame.state.load(p, Ordering::Acquire);
        if state & flag::UNREAD != 0 || self.slot_of(page) != Some(slot) {
            self.unlock_page(page);
            self.put_page(page);
            return SwapIn::Gone;
        }
        if state & flag::AHEAD != 0 {
            frame.clear_flags(p, flag::AHEAD);
            let here = CpuGuard::new(self);
            let hits = &here.slot().swap.hits;
            hits.set(hits.get().saturating_add(1));
            drop(here);
            self.emit(Event::AheadUsed);
        }
        SwapIn::Found(page)
    }

    /// What came of a read: with its content the page is on its way to a list.
    fn note_read(&self, one: &Transfer, slot: u32, ahead: bool) -> bool {
        let (p, n) = (self.platform(), one.frame);
        self.must_be_locked(n);
        let frame = self.memmap().get(n);
        if let Err(error) = one.result {
            if error == DeviceError::Gone {
                self.note_gone(slot);
            }
            self.swap_forget(n, slot);
            // The cache's. Whoever waits for the page has its own reference, and finds it unread.
            self.put_page(n);
            return false;
        }
        if ahead {
            frame.set_flags(p, flag::AHEAD);
        }
        // Release, with the unlock: whoever finds it read finds its content.
        frame.clear_flags(p, flag::UNREAD);
        self.emit(Event::SwappedIn { ahead });
        if !ahead {
            self.note_refault(n, one.store, one.block);
        }
        self.lru_add(n);
        true
    }

    /// How many pages to read with one that is wanted: twice as many as last time if one of those read ahead was wanted
    /// since, half as many if not.
    fn window(&self) -> u32 {
        let here = CpuGuard::new(self);
        let hint = &here.slot().swap;
        let log = hint.window.get();
        let next =
            if hint.hits.replace(0) > 0 { (log + 1).min(WINDOW.ilog2()) } else { log.saturating_sub(1) };
        // A window of one never learns: now and then one more is read.
        let alone = hint.alone.get();
        let tries = next == 0 && alone == 0;
        hint.alone.set(if next == 0 { (alone + 1) % TRY_ONE_IN } else { 1 });
        hint.window.set(if tries { 1 } else { next });
        1 << hint.window.get()
    }

    /// Makes ready what lies around a slot, in the same aligned run, and is not in memory. The first is there already.
    /// Returns how many there are.
    fn gather_ahead(
        &self,
        slot: u32,
        group: GroupSlot,
        slots: &mut [u32],
        transfers: &mut [Transfer],
    ) -> usize {
        let window = self.window();
        let first = slot / window * window;
        // Where somebody said on which nodes pages come, what lies beside a page comes where it did.
        let node = Frame::node_of(self.memmap().get(transfers[0].frame).state.get(self.platform()));
        let placed = self.root.placed.load(Ordering::Relaxed) != 0;
        let (node, nodes) = if placed {
            (Some(node), NodeSet::of(&[node]).unwrap_or_default())
        } else {
            (None, NodeSet::ALL)
        };
        let place = (AllocFrom { node, may_reclaim: false }, nodes);
        debug_assert!(CLUSTER.is_multiple_of(WINDOW));
        let mut count = 1;
        for beside in (first..first + window).filter(|&beside| beside != slot) {
            if !self.swap_is_out(beside) {
                continue;
            }
            // Only what is to be had for nothing: nobody reclaims for pages that nobody has asked for.
            let Some(page) = self.new_page_to_spare(group, place) else { break };
            match self.swap_insert(beside, page) {
                Inserted::Now => {
                    let (store, block) = self.place_of(beside);
                    slots[count] = beside;
                    transfers[count] = Transfer::new(store, block, page);
                    count += 1;
                }
                Inserted::Already(there) => {
                    self.put_page(there);
                    self.free_one(page);
                }
                Inserted::NoUser => self.free_one(page),
            }
        }
        count
    }

    fn new_page_to_spare(&self, group: GroupSlot, place: (AllocFrom, NodeSet)) -> Option<FrameNumber> {
        // Above the min watermark. Where pages are read back memory is short all the time, and a page read ahead saves a
        // command and a wait: asking for plenty here leaves most threads waiting for single pages.
        self.new_swap_page(Some(place), Payer::Within(group)).ok()
    }
}
