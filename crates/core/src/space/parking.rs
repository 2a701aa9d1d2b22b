//! What an operation would park of what it takes out (`parked.rs`).

use crate::Manager;
use crate::kind::Kind;
use crate::memmap::{Frame, FrameVec};
use crate::paging::Entry;
use crate::platform::Platform;

/// What an operation has taken out so far, as long as all of it can be parked.
pub(super) struct Parking {
    pub frames: FrameVec,
    pub fits: bool,
}

impl Parking {
    pub fn begin<P: Platform>(mm: &Manager<'_, P>) -> Parking {
        Parking { frames: FrameVec::new(), fits: mm.parks() }
    }

    /// For an operation that parks nothing.
    pub fn never() -> Parking {
        Parking { frames: FrameVec::new(), fits: false }
    }

    /// An entry was taken out that led to so many pages.
    pub fn add<P: Platform>(&mut self, mm: &Manager<'_, P>, old: Entry, pages: u64) {
        if self.fits {
            let frame = mm.memmap().get(old.frame());
            self.fits = pages == 1
                && !self.frames.is_full()
                && frame.kind(mm.platform()) == Kind::Anon
                && Frame::order_of(frame.state.get(mm.platform())) == 0;
            if self.fits {
                self.frames.push(old.frame());
            }
        }
    }
}
