//! Pages that move to another frame, whoever shows them: anonymous ones that several spaces share, and those of files.
//!
//! ```text
//!   every entry is taken out           as if the page were to be reclaimed; an anonymous one leaves its slot behind
//!   one flush for all of a batch       from here on no CPU can use the old frames
//!   the cache leads to the new frame   one step, if nobody else holds the page; whoever finds the new one waits
//!   the content is copied
//!   entries lead to the page again     of anonymous ones; pages of a file come by faults
//!   the new page is unlocked           the old frame is free
//! ```
//!
//! The cache is the file's, or that of swap: so a page that is found is one page, before and after (INV-12). Whoever has a reference, a fault on its way or a
//! device, keeps the page where it is; its entries come back.

use core::cell::Cell;

use crate::Manager;
use crate::addr::{FrameNumber, NodeId, NodeSet};
use crate::error::Error;
use crate::event::{Event, FlushReason};
use crate::group::Payer;
use crate::kind::Kind;
use crate::memmap::{Frame, FrameVec, flag};
use crate::paging::Entry;
use crate::platform::Platform;
use crate::reclaim::piece::Places;
use crate::rmap;
use crate::rule::Rule;
use crate::swap::Added;
use crate::tlb::{Fate, UnmapBatch};

/// Where pages move to.
#[derive(Clone, Copy)]
pub(crate) enum Destination<'a> {
    /// Frames of this node, and of no other.
    Node(NodeId),
    /// Wherever there is room: first on their own node, and where somebody said on which nodes they come, on no others. Nothing is allocated from
    /// where they are.
    Anywhere,
    /// Each page of a part of a file to its place in a piece.
    Piece(&'a dyn Places),
}

/// Pages that move with one flush: so many that others who want the CPU wait no longer than for reclaim.
pub(crate) const AT_ONCE: usize = 32;

/// Moves pages that the caller holds, [`AT_ONCE`] at most, with one flush; drops the references. Those on which somebody works stay. Returns how many moved,
/// and how many were on no list: they may be on their way to one. May wait.
pub(crate) fn migrate<P: Platform>(
    mm: &Manager<'_, P>,
    held: &[FrameNumber],
    to: Destination<'_>,
) -> (u32, u32) {
    let (mut mine, mut unlisted) = (FrameVec::new(), 0);
    for &n in held {
        match isolate(mm, n) {
            Some(true) => mine.push(n),
            Some(false) => {}
            None => unlisted += 1,
        }
        mm.put_page(n);
    }
    (move_all(mm, mine.as_slice(), to), unlisted)
}

/// The same of pages in frames that nobody allocates anew.
pub(crate) fn migrate_out<P: Platform>(mm: &Manager<'_, P>, pages: &[FrameNumber]) -> u32 {
    let mut mine = FrameVec::new();
    pages.iter().filter(|&&n| isolate(mm, n) == Some(true)).for_each(|&n| mine.push(n));
    move_all(mm, mine.as_slice(), Destination::Anywhere)
}

/// Takes a page off its list, with a reference, and locks it, if nobody works on it; returns whether it did. `None`: it is on no list.
pub(super) fn isolate<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber) -> Option<bool> {
    if !mm.isolate_one(n) {
        return None;
    }
    let mine = mm.memmap().get(n).try_lock(mm.platform());
    if !mine {
        mm.put_back(&[n]);
    }
    Some(mine)
}

/// Moves pages that are isolated and locked, and lets go of all.
fn move_all<P: Platform>(mm: &Manager<'_, P>, pages: &[FrameNumber], to: Destination<'_>) -> u32 {
    if pages.is_empty() {
        return 0;
    }
    let p = mm.platform();
    let (mut free, mut back) = (FrameVec::new(), FrameVec::new());
    let moved = Cell::new(0);
    let mut let_go = |n| {
        settle(mm, n);
        back.push(n);
    };
    // In the order of the pages.
    let new = [const { Cell::new(FrameNumber::NONE) }; FrameVec::MOST];
    let mut next = new.iter();
    let filled = UnmapBatch::fill(
        mm,
        FlushReason::Migrate,
        |batch| {
            for (&n, new) in pages.iter().zip(&new) {
                let goes = new_frame(mm, n, to).filter(|&new| take_entries(batch, n) || give_up(mm, new, to));
                new.set(goes.unwrap_or(FrameNumber::NONE));
                let mut fate = if goes.is_some() { Fate::Leave } else { Fate::Keep };
                if p.broken(Rule::FlushBeforeMigrate) && goes.is_some_and(|to| replace(mm, n, to)) {
                    fate = Fate::Free;
                }
                batch.push(n, fate);
            }
        },
        |n, fate| {
            let new = next.next().map_or(FrameNumber::NONE, Cell::get);
            match fate {
                Fate::Keep => let_go(n),
                _ if fate == Fate::Free || replace(mm, n, new) => {
                    moved.set(moved.get() + 1);
                    let_go(new);
                    free.push(n);
                }
                _ => {
                    give_up(mm, new, to);
                    let_go(n);
                }
            }
        },
    );
    if filled.is_err() {
        pages.iter().for_each(|&n| let_go(n));
    }
    mm.free_all(free.as_slice());
    for &n in back.as_slice() {
        // Before reclaim finds it: in a locked range it is there again when this returns.
        while let Some((id, page)) = rmap::missed_lock(mm, n) {
            match mm.swap_in_at(id, page, Payer::Within) {
                // It may have gone since it was found: others may be left.
                Ok(()) | Err(Error::NoSuchSpace | Error::NotMapped(_)) => {}
                Err(_) => break,
            }
        }
    }
    mm.put_back(back.as_slice());
    moved.get()
}

/// A frame for a page that is to move.
fn new_frame<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber, to: Destination<'_>) -> Option<FrameNumber> {
    let (p, frame) = (mm.platform(), mm.memmap().get(n));
    let here = Frame::node_of(frame.state.get(p));
    let place = match to {
        Destination::Node(node) => (node, NodeSet::of(&[node])?),
        Destination::Anywhere => (here, mm.nodes_of_page(n)),
        Destination::Piece(places) => return places.take(n),
    };
    mm.alloc_in_place(frame.kind(p), place, mm.groups().of_frame(p, n))
}

/// A frame that was not needed after all. Returns false.
fn give_up<P: Platform>(mm: &Manager<'_, P>, new: FrameNumber, to: Destination<'_>) -> bool {
    match to {
        Destination::Piece(places) => places.give_back(new),
        _ => mm.free_one(new),
    }
    false
}

/// Takes every entry of a page out, if it is one that can move, and leaves the flush to the batch. An anonymous one is in the swap cache then.
pub(super) fn take_entries<P: Platform>(batch: &UnmapBatch<'_, '_, P>, n: FrameNumber) -> bool {
    let mm = batch.manager();
    let (p, frame) = (mm.platform(), mm.memmap().get(n));
    let state = frame.state.get(p);
    let anon = Frame::kind_of(state) == Kind::Anon;
    // What is lazy is not worth it. Without swap nobody knows where an anonymous page is shown.
    if anon && (Frame::order_of(state) > 0 || mm.is_lazy(n) || !mm.is_swappable(n)) || rmap::is_kept(mm, n) {
        return false;
    }
    if anon && matches!(mm.swap_add(n), Added::Full) && mm.slot_of(n).is_none() && !mm.transit_add(n) {
        return false;
    }
    let mut used = false;
    let gone =
        frame.maps.get(p) == 0 || rmap::unmap_to_move(batch, n, |entry| used |= entry.has(Entry::ACCESSED));
    if used {
        // What the entries knew of it: as if aging had looked.
        frame.set_flags(p, flag::REFERENCED);
    }
    gone
}

/// Has a cache lead to another frame in place of this one, whose entries are gone and flushed, and copies the content; not if somebody else holds the page, or it has
/// left the cache. The new page is locked, and held for the caller; the old frame is the caller's to free.
pub(super) fn replace<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber, new: FrameNumber) -> bool {
    let p = mm.platform();
    let (from, to) = (mm.memmap().get(n), mm.memmap().get(new));
    let slot = mm.slot_of(n);
    let mut flags = flag::REFERENCED | flag::ACTIVE | flag::DIRTY | flag::UNUSED | flag::MEMORY;
    if slot.is_some() {
        flags |= flag::AHEAD;
    }
    if p.broken(Rule::MovedStaysDirty) {
        flags &= !flag::DIRTY;
    }
    to.owner.set(p, from.owner.get(p));
    to.index.set(p, from.index.get(p));
    to.maps.set(p, 0);
    to.refs.set(p, Frame::CACHE_AND_CALLER);
    // As one that is being read: whoever finds it waits (INV-12).
    to.state.set(p, to.state.get(p) | flag::LOCKED | flag::UNREAD);
    let done = match slot {
        Some(slot) => mm.swap_replace(n, slot, new, flags),
        None => from.kind(p) == Kind::File && mm.replace_cached(n, new, flags),
    };
    if done {
        if p.broken(Rule::ContentBeforeFound) {
            to.clear_flags(p, flag::UNREAD);
            to.clear_flags(p, flag::AWAITED);
        }
        p.copy_frame(n, new);
        // Release, with the unlock: whoever finds it read finds its content.
        to.clear_flags(p, flag::UNREAD);
        mm.emit(Event::Migrated { from: n, to: new });
    }
    done
}

/// The same, and unlocks it.
fn settle<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber) {
    show_again(mm, n);
    mm.unlock_page(n);
}

/// The entries of an anonymous page that is where it stays lead to it again, and the slot that it had for that is free. By whoever has locked it.
pub(super) fn show_again<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber) {
    if let Some(slot) = mm.slot_of(n) {
        rmap::map_again(mm, n);
        let is_old = mm.memmap().get(n).state.get(mm.platform()) & flag::DIRTY != 0;
        if is_old || Manager::<P>::is_transit(slot) {
            mm.swap_detach(n, slot);
        }
    }
}
