//! Eviction: how pages leave memory. Those of a batch are unmapped, flushed once, written out where they must be, and freed.

use core::cell::Cell;
use core::ops::ControlFlow;
use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{FrameNumber, NodeId};
use crate::error::Error;
use crate::event::{Event, FlushReason};
use crate::handle::FileSlot;
use crate::memmap::{Frame, FrameVec, flag};
use crate::paging::Entry;
use crate::platform::{Platform, Store};
use crate::reclaim::aging::{self, Seen, Uses};
use crate::reclaim::demote;
use crate::rmap;
use crate::rule::Rule;
use crate::swap::Added;
use crate::tlb::{Fate, UnmapBatch};
use crate::writeback;

/// Has pages unmapped into a batch, flushes it, and does what their fates say: frees those that nobody holds, writes the
/// dirty ones out and frees those too if it can, puts all others back on their lists; those that are to move go to the node `demote`. Returns what `unmap` returned, and how many
/// are free. May wait.
pub(super) fn take_out<'p, P: Platform, R>(
    mm: &Manager<'p, P>,
    demote: Option<NodeId>,
    unmap: impl FnOnce(&UnmapBatch<'_, 'p, P>) -> R,
) -> Result<(R, u32), Error> {
    let (mut free, mut back, mut dirty) = (FrameVec::new(), FrameVec::new(), FrameVec::new());
    let mut keep = |n| {
        mm.unlock_page(n);
        back.push(n);
    };
    let result = UnmapBatch::fill(mm, FlushReason::ReclaimBatch, unmap, |n, fate| match fate {
        Fate::Free => free.push(n),
        // One that is to move may be clean: see below.
        Fate::Write | Fate::Move => dirty.push(n),
        Fate::Swap(slot) if mm.move_to_swap(n, slot) => dirty.push(n),
        Fate::Leave if uncache(mm, n) == Fate::Free => free.push(n),
        Fate::Keep if demote.is_some() => {
            // Some of its entries may be gone.
            demote::stay(mm, n);
            keep(n);
        }
        Fate::Keep | Fate::Leave | Fate::WriteBack | Fate::Swap(_) => keep(n),
    })?;
    let mut demoted = 0;
    if let Some(node) = demote {
        dirty.retain(|n| {
            match demote::demote(mm, n, node) {
                Some(new) => {
                    demoted += 1;
                    free.push(n);
                    keep(new);
                }
                // The last room went to others of the batch, or somebody holds the page.
                None if demote::must_stay(mm, n) => keep(n),
                None if mm.memmap().get(n).state.get(mm.platform()) & flag::DIRTY != 0 => return true,
                None if uncache(mm, n) == Fate::Free => free.push(n),
                None => keep(n),
            }
            false
        });
    }
    let writing = dirty.as_slice().len() as u32;
    if writing > 0 {
        mm.pageout_begins(writing);
        writeback::write_all(mm, dirty.as_slice(), |n, written| {
            if written && uncache(mm, n) == Fate::Free { free.push(n) } else { keep(n) }
        });
    }
    mm.advance_clock(free.as_slice().len() as u32 - demoted);
    mm.free_all(free.as_slice());
    mm.put_back(back.as_slice());
    if writing > 0 {
        mm.pageout_ends(writing);
    }
    Ok((result, free.as_slice().len() as u32))
}

/// What stands in the way of a locked page that is to leave memory. Asked as often as one likes, and counted once.
pub(super) struct Leave<'a, 'p, P: Platform> {
    mm: &'a Manager<'p, P>,
    page: FrameNumber,
    may_write: Cell<Option<bool>>,
    /// What a memory file's page has got to go to.
    slot: Cell<Option<u32>>,
    /// Whether it is to move to another node, and not to leave memory.
    pub demotes: bool,
}

impl<'a, 'p, P: Platform> Leave<'a, 'p, P> {
    pub fn of(mm: &'a Manager<'p, P>, page: FrameNumber) -> Self {
        Leave { mm, page, may_write: Cell::new(None), slot: Cell::new(None), demotes: false }
    }

    /// Whether its entries may be taken out: a page of a file has its file, an anonymous one needs a slot, and one of a memory file too if it is, or
    /// would be, dirty; and if another is, its device must take pages. Any spin lock but those of clusters may be held. The error says why not.
    fn may_unmap(&self, dirty: bool) -> Result<(), Event> {
        let (mm, p) = (self.mm, self.mm.platform());
        if self.may_write.get() == Some(true) || self.demotes && demote::may_unmap(mm, self.page) {
            return Ok(());
        }
        if mm.is_swappable(self.page) {
            match mm.swap_add(self.page) {
                Added::Full => return Err(self.full()),
                Added::Now => self.may_write.set(Some(true)),
                Added::Before => {}
            }
        }
        let is_dirty = || mm.memmap().get(self.page).state.get(p) & flag::DIRTY != 0;
        if mm.is_memory_page(self.page) {
            let has_place = !(dirty || is_dirty()) || self.slot.get().is_some();
            if !has_place {
                self.slot.set(mm.swap_reserve(self.page));
            }
            return if has_place || self.slot.get().is_some() { Ok(()) } else { Err(self.full()) };
        }
        if (dirty || is_dirty()) && !self.may_write() { Err(Event::PageoutDeferred) } else { Ok(()) }
    }

    /// Why no slot is to be had.
    fn full(&self) -> Event {
        if self.mm.swap().usage().failing > 0 { Event::PageoutDeferred } else { Event::SwapFull }
    }

    /// Whether this entry may be taken out, which leads to it. Under the lock of its table: what is lazy there is so until the entry is
    /// gone, and needs no place.
    fn may_take(&self, entry: Entry) -> bool {
        self.mm.is_lazy(self.page) || self.may_unmap(entry.may_be_dirty(self.mm.platform())).is_ok()
    }

    /// Whether its device takes it now. For a page with a place there.
    fn may_write(&self) -> bool {
        let may = self.may_write.get().unwrap_or_else(|| self.mm.may_write_out(self.page));
        self.may_write.set(Some(may));
        may
    }
}

impl<P: Platform> Drop for Leave<'_, '_, P> {
    fn drop(&mut self) {
        // It does not go, or not there.
        self.slot.get().into_iter().for_each(|slot| self.mm.swap_detach(self.page, slot));
        if self.demotes {
            // Nor does it need one for the way, if no entry names that.
            demote::let_go(self.mm, self.page);
        }
    }
}

/// How many of a page's mappings were used since the last look. A page with one mapping that was not used is
/// unmapped in the same step: most pages that reclaim takes are such, and a walk is saved.
pub(super) fn look<P: Platform>(batch: &UnmapBatch<'_, '_, P>, leave: &Leave<'_, '_, P>) -> Uses {
    let (mm, n) = (batch.manager(), leave.page);
    match mm.memmap().get(n).maps.get(mm.platform()) {
        0 => Uses::default(),
        1 => {
            let mut uses = Uses::default();
            rmap::walk(mm, n, |mapping| {
                let mut seen = aging::look(mm, &mapping);
                let stays = || {
                    rmap::is_kept(mm, n)
                        || leave.may_take(mapping.entry) && !rmap::clear(batch, n, &mapping, false)
                };
                if seen == Seen::Idle && !mapping.leaf.is_large() && stays() {
                    // By a device, or at this moment.
                    seen = Seen::Used;
                }
                uses.add(seen);
                ControlFlow::Break(())
            });
            uses
        }
        _ => aging::uses(mm, n),
    }
}

/// Unmaps a page, also from whoever uses it if it `must` go, and says what is to become of it after the flush.
pub(super) fn detach<P: Platform>(
    batch: &UnmapBatch<'_, '_, P>,
    leave: &Leave<'_, '_, P>,
    must: bool,
) -> Fate {
    let (mm, n) = (batch.manager(), leave.page);
    let p = mm.platform();
    let frame = mm.memmap().get(n);
    let anon = mm.is_swappable(n);
    let is_dirty = || frame.state.get(p) & flag::DIRTY != 0;
    if anon && Frame::order_of(frame.state.get(p)) > 0 {
        // A large page goes in small ones, each by itself: it, and they, are looked at again.
        mm.split_idle(n);
        return Fate::Keep;
    }
    // INV-2: of a page of a file that will be written out the entries are looked for even if it seems to have none. A fault
    // may have found it unlocked and be about to count and to write its entry; the walk waits for the lock of that
    // entry's table:
    //
    //   fault, in its table's lock         reclaim
    //   page not locked: may write
    //                                      lock the page; no entry counted
    //   maps += 1, entry writable
    //                                      write the page out
    //
    // A fault that brings an anonymous page back has the page's lock.
    let look = frame.maps.get(p) > 0 || !anon && is_dirty() && !p.broken(Rule::WalkBeforeIo);
    if look && rmap::is_kept(mm, n) {
        // A hint: of what is left it needs no slot. It is asked again at each entry.
        return Fate::Keep;
    }
    // What is lazy may be so no longer, or not everywhere, when its entries are looked at: it is asked again at each.
    let lazy = mm.is_lazy(n);
    if look
        && !lazy
        && let Err(why) = leave.may_unmap(false)
    {
        mm.emit(why);
        return Fate::Keep;
    }
    if look && !rmap::unmap(batch, n, must, |entry| !lazy || leave.may_take(entry)) {
        return Fate::Keep;
    }
    if anon && !mm.slot_is_used(n) {
        return uncache(mm, n);
    }
    if anon && mm.is_stranded(n) {
        mm.emit(leave.full());
        return Fate::Keep;
    }
    if leave.demotes && demote::may_unmap(mm, n) {
        return Fate::Move;
    }
    // In this order it costs nobody an access who has no memory file.
    if mm.is_memory_page(n) && is_dirty() {
        if let Err(why) = leave.may_unmap(true) {
            mm.emit(why);
            return Fate::Keep;
        }
        let Some(slot) = leave.slot.take() else { return Fate::Keep };
        // INV-2, and INV-12: as below, and as for a page that leaves its cache. Until the flush a fault finds the page, and so keeps it.
        if !p.broken(Rule::FlushBeforeIo) {
            return Fate::Swap(slot);
        }
        let gone = mm.move_to_swap(n, slot) && writeback::write(mm, n);
        return if gone { uncache(mm, n) } else { Fate::Keep };
    }
    if is_dirty() {
        if !leave.may_write() {
            mm.emit(Event::PageoutDeferred);
            // It may have come to its frame when somebody had its entries.
            if mm.slot_of(n).is_some_and(Manager::<P>::is_transit) {
                rmap::map_again(mm, n);
            }
            return Fate::Keep;
        }
        // INV-2: a CPU may still write through its cached entry until the batch is flushed.
        return if p.broken(Rule::FlushBeforeIo) && writeback::write(mm, n) {
            uncache(mm, n)
        } else {
            Fate::Write
        };
    }
    if p.broken(Rule::CacheUntilFlush) {
        return uncache(mm, n);
    }
    // INV-12: it is found in its cache until the flush. Were it not, a fault would read a second frame, in this space (an
    // entry names its slot) or in another that maps the file, while a CPU still uses this one. A fault that finds it takes
    // a reference, and so keeps it: `uncache` leaves it alone then.
    Fate::Leave
}

/// A page without a place on a device goes only if its content is not wanted, and nobody but the caller holds it.
fn drop_content<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber) -> Fate {
    if !mm.is_lazy(n) || mm.memmap().get(n).refs.replace(mm.platform(), 1, 0, Ordering::AcqRel).is_err() {
        return Fate::Keep;
    }
    mm.emit(Event::LazyFreed);
    Fate::Free
}

/// Takes a clean page from its file or from the swap cache, if nobody else holds it.
fn uncache<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber) -> Fate {
    let p = mm.platform();
    let frame = mm.memmap().get(n);
    let (taken, store, block) = if mm.is_swappable(n) {
        // None: it was never given a slot, and whoever drops its last reference frees it.
        let Some(slot) = mm.slot_of(n) else { return drop_content(mm, n) };
        if Manager::<P>::is_transit(slot) {
            return if mm.swap_remove(n, slot) { Fate::Free } else { Fate::Keep };
        }
        let (store, block) = mm.place_of(slot);
        (mm.swap_remove(n, slot), store, block)
    } else {
        let (slot, index) = (FileSlot(frame.owner.get(p)), frame.index.get(p));
        let file = mm.file_at(slot);
        let id = file.id(p, slot);
        (mm.remove_cached(file, index, n), Store::File(id), index)
    };
    if !taken {
        return Fate::Keep;
    }
    if let Some(device) = p.device() {
        device.forget(store, block);
    }
    mm.leave_shadow(store, block);
    mm.emit(Event::Evicted { frame: n });
    Fate::Free
}
