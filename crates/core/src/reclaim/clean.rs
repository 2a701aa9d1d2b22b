//! Making a page clean everywhere before it is written back (INV-11).

use core::ops::ControlFlow;

use super::rmap;
use crate::addr::FrameNumber;
use crate::event::Event;
use crate::frame::flag;
use crate::paging::Entry;
use crate::platform::Platform;
use crate::rule::Rule;
use crate::tlb::UnmapBatch;

/// Takes the right to write, and with it the dirty bit, from every entry that leads to the page, and leaves the flush to
/// the batch; gives whether the page has anything to write. The caller holds and has locked the page, so that no fault
/// gives the right back before it is unlocked. May wait.
pub(crate) fn clean<P: Platform>(batch: &UnmapBatch<'_, '_, P>, n: FrameNumber) -> bool {
    let mm = batch.manager();
    let p = mm.platform();
    let frame = mm.frames().get(n);
    rmap::walk_all(
        mm,
        n,
        |mapping| {
            if p.broken(Rule::CleanProtects) {
                // PITFALLS 36: only the bit.
                if mapping.leaf.clear_bits(mapping.page, Entry::DIRTY).has(Entry::DIRTY) {
                    frame.set_flags(p, flag::DIRTY);
                }
                return ControlFlow::Continue(());
            }
            let old = mapping.leaf.clear_bits(mapping.page, Entry::WRITABLE | Entry::DIRTY);
            if old.may_be_dirty(p) {
                frame.set_flags(p, flag::DIRTY);
            }
            // Where no guarantee helps, a CPU may write through any entry that was writable, also one that an operation has
            // made read-only and not flushed yet.
            let narrowed = !p.guarantees().clean_write_walks() && mapping.space.is_changing(p);
            if old.may_be_dirty(p) || narrowed {
                batch.defer(mapping.id, mapping.space);
                mm.emit(Event::Cleaned { space: mapping.id, page: mapping.page, frame: n });
            }
            ControlFlow::Continue(())
        },
        |id, space| {
            // PITFALLS 4: an operation may have taken an entry of this page out, moved its dirty bit to the page, and
            // not have flushed yet: a CPU still writes through it.
            if space.is_changing(p) && !p.broken(Rule::TakenIsMapped) {
                batch.defer(id, space);
            }
        },
    );
    frame.state.get(p) & flag::DIRTY != 0
}
