//! The entries of kernel pages, in tables that all spaces share and that are never freed: whoever walks them needs no lock.
//!
//! Whoever has an extent is alone with its entries. Where frames go with an extent, their numbers stay in the entries while it
//! waits for its flush, marked as taken: so an unmap of any size needs no memory.

use crate::Manager;
use crate::addr::{FrameNumber, PageNumber, PageRange};
use crate::error::Error;
use crate::frame::AllocFrom;
use crate::handle::GroupSlot;
use crate::kind::Kind;
use crate::memmap::{FrameVec, flag};
use crate::paging::table::{Leaf, Way, find, find_or_make};
use crate::paging::{Entry, KernelProt};
use crate::platform::Platform;
use crate::resched::{Work, cost};

/// No group is charged with tables of the kernel's.
fn nobody() -> GroupSlot {
    GroupSlot::NONE
}

/// Calls `each` for every page of a range whose table exists.
fn each<P: Platform>(mm: &Manager<'_, P>, range: PageRange, mut each: impl FnMut(Leaf, PageNumber)) {
    let mut at = range.start;
    while at < range.end() {
        match find(mm, mm.kernel_root(), at) {
            Way::Small(leaf) => {
                let end = leaf.end(at).min(range.end());
                (at.0..end.0).for_each(|page| each(leaf, PageNumber(page)));
                at = end;
            }
            Way::Large(leaf) => at = leaf.end(at),
            Way::Gap(next) => at = next,
        }
    }
}

/// What a page's entry says.
pub(super) fn peek<P: Platform>(mm: &Manager<'_, P>, page: PageNumber) -> Entry {
    match find(mm, mm.kernel_root(), page) {
        Way::Small(leaf) => leaf.peek(mm, page),
        _ => Entry::NONE,
    }
}

/// Makes the tables of a range. May wait for memory. Those that were made before it ran out stay.
pub(super) fn make_tables<P: Platform>(mm: &Manager<'_, P>, range: PageRange) -> Result<(), Error> {
    let (mut at, mut work) = (range.start, Work::begin(mm));
    while at < range.end() {
        at = find_or_make(mm, mm.kernel_root(), at, &nobody)?.end(at);
        work.did(cost::FRAME);
    }
    Ok(())
}

/// Makes the pages of a range present, and its tables where they are missing; or does nothing. May wait for memory.
/// Nothing is there: no CPU can have cached anything but that ([`Vmap::fault`](crate::Vmap::fault)).
pub(super) fn set<P: Platform>(
    mm: &Manager<'_, P>,
    range: PageRange,
    frames: &[FrameNumber],
    prot: KernelProt,
) -> Result<(), Error> {
    let put = |leaf: Leaf, from: PageNumber, to: PageNumber| {
        let first = (from.0 - range.start.0) as usize;
        for (page, &frame) in (from.0..to.0).zip(&frames[first..]) {
            leaf.put(mm, PageNumber(page), Entry::kernel(frame, prot));
        }
    };
    let first = find_or_make(mm, mm.kernel_root(), range.start, &nobody)?;
    if first.end(range.start) >= range.end() {
        put(first, range.start, range.end());
        return Ok(());
    }
    // All of them before the first page is present.
    make_tables(mm, range)?;
    let (mut at, mut work) = (range.start, Work::begin(mm));
    while at < range.end() {
        let leaf = find_or_make(mm, mm.kernel_root(), at, &nobody)?;
        let end = leaf.end(at).min(range.end());
        put(leaf, at, end);
        work.did((end.0 - at.0) as u32 * cost::ENTRY);
        at = end;
    }
    Ok(())
}

/// Allocates a frame for each page of a range, and makes all present, or none. May wait for memory.
///
/// Until all are there the entries are only marked, so that a failure leaves nothing that a CPU could have cached.
pub(super) fn set_own<P: Platform>(
    mm: &Manager<'_, P>,
    range: PageRange,
    from: AllocFrom,
    prot: KernelProt,
) -> Result<(), Error> {
    let (p, mut work) = (mm.platform(), Work::begin(mm));
    make_tables(mm, range)?;
    for page in (range.start.0..range.end().0).map(PageNumber) {
        let frame = match mm.alloc_one(Kind::Kernel, from) {
            Ok(frame) => frame,
            Err(error) => {
                free_taken_parts(mm, PageRange::between(range.start, page), &mut work);
                return Err(error);
            }
        };
        mm.memmap().get(frame).set_flags(p, flag::OWN);
        each(mm, PageRange::new(page, 1), |leaf, page| {
            leaf.put(mm, page, Entry::kernel(frame, prot).taken());
        });
        work.did(cost::FRAME + cost::TABLE);
    }
    for part in parts(range) {
        each(mm, part, |leaf, page| leaf.put(mm, page, leaf.peek(mm, page).restored()));
        work.did(part.pages as u32 * cost::ENTRY);
    }
    Ok(())
}

/// Clears the entries of a range. CPUs may go on using what they have cached.
pub(super) fn clear<P: Platform>(mm: &Manager<'_, P>, range: PageRange) {
    each(mm, range, |leaf, page| leaf.put(mm, page, Entry::NONE));
}

/// The same for frames that go with the range: their numbers stay.
pub(super) fn take<P: Platform>(mm: &Manager<'_, P>, range: PageRange) {
    each(mm, range, |leaf, page| leaf.put(mm, page, leaf.peek(mm, page).taken()));
}

/// A range in parts that are worked on at once.
fn parts(range: PageRange) -> impl Iterator<Item = PageRange> {
    const PART: usize = 64;
    let ends = move |start: u64| PageNumber((start + PART as u64).min(range.end().0));
    (range.start.0..range.end().0)
        .step_by(PART)
        .map(move |start| PageRange::between(PageNumber(start), ends(start)))
}

/// As [`free_taken`]. Gives way between parts.
pub(super) fn free_taken_parts<'p, P: Platform>(
    mm: &Manager<'p, P>,
    range: PageRange,
    work: &mut Work<'_, 'p, P>,
) {
    for part in parts(range) {
        free_taken(mm, part);
        work.did(part.pages as u32 * cost::FRAME);
    }
}

/// Frees the frames of taken entries, some at a time. Who calls it answers for INV-1.
pub(super) fn free_taken<P: Platform>(mm: &Manager<'_, P>, range: PageRange) {
    let mut frames = FrameVec::new();
    each(mm, range, |leaf, page| {
        let entry = leaf.peek(mm, page);
        if !entry.is_taken() {
            return;
        }
        leaf.put(mm, page, Entry::NONE);
        if frames.is_full() {
            mm.free_all(frames.as_slice());
            frames.clear();
        }
        frames.push(entry.frame());
    });
    mm.free_all(frames.as_slice());
}
