//! Pages of which a program says that it will not want them soon.

use super::aging;
use super::eviction::{Leave, detach, take_out};
use super::migrate::isolate;
use crate::Manager;
use crate::addr::{FrameNumber, PageNumber};
use crate::event::Event;
use crate::handle::SpaceId;
use crate::kind::Kind;
use crate::memmap::{FrameVec, flag};
use crate::platform::Platform;
use crate::rmap::mapped_at;

/// Reclaims this page, in use or not, if it is on a list and nobody works on it. May wait.
pub(crate) fn evict<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber) {
    if isolate_locked(mm, n) {
        take(mm, &[n]);
    }
}

/// The same for pages that the caller holds, as many as a batch takes, with one flush; drops the references.
pub(crate) fn page_out<P: Platform>(mm: &Manager<'_, P>, held: &[FrameNumber]) {
    let mut mine = FrameVec::new();
    for &n in held {
        if isolate_locked(mm, n) {
            mine.push(n);
        }
        mm.put_page(n);
    }
    if !mine.as_slice().is_empty() {
        take(mm, mine.as_slice());
    }
}

/// Puts pages that the caller holds where reclaim looks next, as if nobody had used them; drops the references. One
/// flush for each page that was used, where aging flushes.
pub(crate) fn deactivate<P: Platform>(mm: &Manager<'_, P>, held: &[FrameNumber]) {
    let mut old = FrameVec::new();
    for &n in held {
        if isolate_locked(mm, n) {
            aging::uses(mm, n);
            mm.emit(Event::Deactivated);
            mm.unlock_page(n);
            old.push(n);
        }
        mm.put_page(n);
    }
    mm.put_back_old(old.as_slice());
}

/// Where the one space that shows an anonymous page shows it, if the page is on a list and nobody works on it: a moment's truth. May wait.
pub(crate) fn place_of<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber) -> Option<(SpaceId, PageNumber)> {
    let p = mm.platform();
    if !mm.isolate_one(n) {
        return None;
    }
    let frame = mm.memmap().get(n);
    let place = frame.try_lock(p).then(|| {
        let alone = frame.kind(p) == Kind::Anon && frame.maps.get(p) == 1;
        let place = if alone { mapped_at(mm, n) } else { None };
        mm.unlock_page(n);
        place
    });
    mm.put_back(&[n]);
    place.flatten()
}

/// Takes a page off its list, with a reference, and locks it, if it is on one and nobody works on it. From there on it
/// counts as not used.
fn isolate_locked<P: Platform>(mm: &Manager<'_, P>, n: FrameNumber) -> bool {
    let mine = isolate(mm, n) == Some(true);
    if mine {
        mm.memmap().get(n).clear_flags(mm.platform(), flag::REFERENCED | flag::ACTIVE);
    }
    mine
}

/// Takes pages out of memory that are isolated and locked.
fn take<P: Platform>(mm: &Manager<'_, P>, pages: &[FrameNumber]) {
    let gone = take_out(mm, None, |batch| {
        for &n in pages {
            let fate = detach(batch, &Leave::of(mm, n), true);
            batch.push(n, fate);
        }
    });
    if gone.is_err() {
        pages.iter().for_each(|&n| mm.unlock_page(n));
        mm.put_back(pages);
    }
}
