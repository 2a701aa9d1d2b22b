//! Making a page clean everywhere before it is written back (INV-11).

use core::ops::ControlFlow;

use super::walk::{Mapping, Size, walk_all};
use crate::addr::FrameNumber;
use crate::event::Event;
use crate::memmap::flag;
use crate::paging::Entry;
use crate::platform::Platform;
use crate::rule::Rule;
use crate::tlb::UnmapBatch;
use crate::vma::SpaceState;

/// Takes the right to write, and with it the dirty bit, from every entry that leads to the page, and leaves the flush to
/// the batch; returns whether the page has anything to write. The caller holds and has locked the page, so that no fault
/// gives the right back before it is unlocked. May wait.
///
/// Of a page that has something to write a clean entry is flushed too, if it was writable, or if an operation may have made
/// it read-only and not flushed it yet. That a write through a cached clean entry walks again is not enough: only where the
/// entry is *gone* does the walk come to a fault for certain. Where it is read-only by now, many CPUs go on:
///
/// ```text
///   this CPU                                a CPU of another space that shows the page
///                                           begins a write: the entry is writable and clean
///   this entry: no right to write any more
///   flush of the space that wrote before
///                                           sets the dirty bit, in an entry that is read-only
///   the device begins to read
///                                           writes (INV-2)
/// ```
///
/// (x86 without shadow stacks does so; Linux tells of it where it write-protects an entry.) Nothing would be lost, since the
/// dirty bit is in the entry, but the device would read what changes. A CPU acknowledges a flush between two instructions:
/// by then the write has come to its end. A page that has nothing to write owes no flush: nobody reads it.
pub(crate) fn clean<P: Platform>(batch: &UnmapBatch<'_, '_, P>, n: FrameNumber) -> bool {
    let mm = batch.manager();
    let p = mm.platform();
    mm.must_be_locked(n);
    let frame = mm.memmap().get(n);
    // PITFALLS 4: an operation may have taken an entry of this page out, moved its dirty bit to the page, and not have flushed
    // yet: a CPU still writes through it.
    let missing = |id, space: &SpaceState| {
        if space.is_changing(p) && !p.broken(Rule::TakenIsMapped) {
            batch.defer(id, space);
        }
    };
    // Whether an entry was dirty, and whether one was left without a flush before it was known that it needs one.
    let (mut dirty, mut late) = (false, false);
    // The large entry of a file lets nobody write: it stays as it is.
    walk_all(
        mm,
        (n, Size::Any),
        |mapping| {
            if p.broken(Rule::CleanProtects) {
                // PITFALLS 36: only the bit.
                if mapping.leaf.clear_bits(mapping.page, Entry::DIRTY).has(Entry::DIRTY) {
                    mm.make_dirty(n);
                }
                return ControlFlow::Continue(());
            }
            let old = mapping.leaf.clear_bits(mapping.page, Entry::WRITABLE | Entry::DIRTY);
            let written = old.may_be_dirty(p);
            if written {
                mm.note_dirty(n, old.has(Entry::WRITABLE));
                dirty = true;
            }
            let begun = !written && (old.has(Entry::WRITABLE) || mapping.space.is_changing(p));
            let begun = begun && !p.broken(Rule::FlushWritable);
            if written || begun && dirty {
                batch.defer(mapping.id, mapping.space);
                mm.emit(Event::Cleaned { space: mapping.id, page: mapping.page, frame: n });
            } else {
                late |= begun;
            }
            ControlFlow::Continue(())
        },
        missing,
    );
    let dirty = frame.state.get(p) & flag::DIRTY != 0;
    if dirty && late {
        let flush = |mapping: Mapping<'_, '_, P>| {
            batch.defer(mapping.id, mapping.space);
            ControlFlow::Continue(())
        };
        walk_all(mm, (n, Size::Any), flush, missing);
    }
    dirty
}
