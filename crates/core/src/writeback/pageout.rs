//! Writing dirty pages out, after their flush (INV-2).

use crate::Manager;
use crate::addr::FrameNumber;
use crate::charge::charge;
use crate::event::Event;
use crate::memmap::flag;
use crate::platform::{BlockDevice, DeviceError, Platform, Store, Transfer};
use crate::profile::Scope;
use crate::rule::Rule;

/// Pages that go to their devices at once.
const TOGETHER: usize = 32;

/// Writes pages out that nobody maps and every CPU has flushed, as many at once as the devices take; `each` hears of
/// every page whether its device has its content now. If not, it stays dirty. The caller holds and has locked them. May
/// wait.
#[inline(never)]
pub(crate) fn write_all<P: Platform>(
    mm: &Manager<'_, P>,
    pages: &[FrameNumber],
    mut each: impl FnMut(FrameNumber, bool),
) {
    let _scope = charge(mm.platform(), Scope::PageOut);
    let Some(device) = mm.platform().device() else {
        return pages.iter().for_each(|&n| each(n, false));
    };
    let mut transfers = [NOTHING; TOGETHER];
    for some in pages.chunks(TOGETHER) {
        let transfers = &mut transfers[..some.len()];
        send(mm, device, some, transfers);
        for one in transfers {
            each(one.frame, ended(mm, one));
        }
    }
}

/// The same for one page.
pub(crate) fn write<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber) -> bool {
    let _scope = charge(mm.platform(), Scope::PageOut);
    let Some(device) = mm.platform().device() else { return false };
    let mut one = [NOTHING];
    send(mm, device, &[n], &mut one);
    ended(mm, &one[0])
}

const NOTHING: Transfer = Transfer::new(Store::Swap(0), 0, FrameNumber::NONE);

/// Has the devices write as many pages as there are transfers.
fn send<P: Platform>(
    mm: &Manager<'_, P>,
    device: &dyn BlockDevice,
    pages: &[FrameNumber],
    transfers: &mut [Transfer],
) {
    for (one, &n) in transfers.iter_mut().zip(pages) {
        // Before the write: who dirties the page from here on finds it clean and makes it dirty again.
        mm.count_clean(mm.memmap().get(n).clear_flags(mm.platform(), flag::DIRTY));
        mm.emit(Event::WriteBegins { frame: n });
        let (store, block) = mm.kept_in(n);
        *one = Transfer::new(store, block, n);
    }
    device.write_all(transfers);
}

/// A page has been written, or not; returns whether its device has its content.
fn ended<P: Platform>(mm: &Manager<'_, P>, one: &Transfer) -> bool {
    let (p, n) = (mm.platform(), one.frame);
    mm.emit(Event::WriteEnds { frame: n, ok: one.result.is_ok() });
    if mm.is_swappable(n) {
        note_swapped(mm, one);
    }
    mm.backoff_of(n).note(p, one.result.is_ok());
    let kept = one.result.is_ok() || p.broken(Rule::KeepWhatFailed);
    if !kept {
        mm.make_dirty(n);
    }
    kept
}

fn note_swapped<P: Platform>(mm: &Manager<'_, P>, one: &Transfer) {
    match one.result {
        Ok(()) => mm.emit(Event::SwappedOut),
        Err(DeviceError::Failed) => {}
        Err(DeviceError::Gone) => {
            if let Some(slot) = mm.slot_of(one.frame) {
                mm.note_gone(slot);
            }
        }
    }
}
