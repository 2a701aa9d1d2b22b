//! Entries that name the slot of a page lead to it again.

use core::ops::ControlFlow;
use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{FrameNumber, PageNumber};
use crate::charge::charge;
use crate::event::Event;
use crate::handle::{SpaceId, SpaceSlot};
use crate::paging::Entry;
use crate::paging::table::{self, Way};
use crate::platform::Platform;
use crate::pool::Reading;
use crate::profile::Scope;
use crate::vma::Of;

/// Has those entries that name the slot of an anonymous page lead to it again, whose spaces nobody changes at the moment: the others do by a fault. Nothing
/// says that the page was used there. The caller holds and has locked the page, whose entries were flushed (INV-12). May wait, but for no
/// space's VMAs: the caller may have some.
///
/// Whoever has the VMAs alone may have passed by an entry that names a slot, and expects to find it so later.
pub(crate) fn map_again<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber) {
    let (p, frame) = (mm.platform(), mm.memmap().get(n));
    let _scope = charge(p, Scope::RmapWalk);
    mm.must_be_locked(n);
    let Some(slot) = mm.slot_of(n).filter(|&slot| mm.swap_users(slot) > 0) else { return };
    let reading = Reading::begin(mm);
    let Some(anon_vma) = mm.root.anon_vmas.read(&reading, frame.owner.get(p)) else { return };
    mm.each_vma(&anon_vma.rmap, Of::AnonVma, frame.anon_index(p), |vma, page| {
        let space_slot = SpaceSlot(vma.space.get(p));
        let space = mm.space_at(space_slot);
        let Some(_shared) = space.vmas.lock.try_read(mm).filter(|_| !vma.is_leaving(p)) else {
            return ControlFlow::Continue(());
        };
        let Way::Small(leaf) = table::find(mm, space.root(p), page) else {
            return ControlFlow::Continue(());
        };
        let locked = leaf.lock(mm);
        if locked.read(page).swap_slot() != Some(slot) {
            return ControlFlow::Continue(());
        }
        frame.refs.fetch_add(p, 1, Ordering::Relaxed);
        let before = frame.maps.fetch_add(p, 1, Ordering::Relaxed);
        let others = mm.swap_undo(slot);
        let prot = vma.prot(p);
        // Its content may have become unwanted after whoever moves it looked: then the first write is a fault, as before.
        let own = before == 0 && others == 0 && !mm.is_lazy(n);
        let entry = Entry::page(n, if own { prot } else { prot.read_only() });
        if p.architecture().sets_accessed() {
            locked.write_idle(page, entry);
        } else {
            locked.write(page, entry);
        }
        mm.emit(Event::Mapped { space: space.id(p, space_slot), page, frame: n, pages: 1 });
        if others == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
}

/// Where a locked range shows an anonymous page, and its entry names the slot of that all the same: when the page came back its space was being changed. What is
/// being unmapped, or has ended, wants it no more. A moment's truth. The caller holds the page. May wait.
pub(crate) fn missed_lock<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber) -> Option<(SpaceId, PageNumber)> {
    let (p, frame) = (mm.platform(), mm.memmap().get(n));
    if mm.root.locks.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let slot = mm.slot_of(n).filter(|&slot| mm.swap_users(slot) > 0)?;
    let reading = Reading::begin(mm);
    let anon_vma = mm.root.anon_vmas.read(&reading, frame.owner.get(p))?;
    let mut found = None;
    // They stay linked meanwhile, so their spaces' tables stay too.
    mm.each_vma(&anon_vma.rmap, Of::AnonVma, frame.anon_index(p), |vma, page| {
        let space_slot = SpaceSlot(vma.space.get(p));
        let space = mm.space_at(space_slot);
        let names = |way: Way| match way {
            Way::Small(leaf) => leaf.lock(mm).read(page).swap_slot() == Some(slot),
            _ => false,
        };
        let goes = || vma.is_leaving(p) || !space.goes_on(p);
        if mm.stays(vma) && !goes() && names(table::find(mm, space.root(p), page)) {
            found = Some((space.id(p, space_slot), page));
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    found
}
