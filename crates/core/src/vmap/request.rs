//! What may be asked for. What makes no sense is refused before anything changes (PITFALLS 32).

use super::extent::{Purpose, Want};
use super::state::KernelRange;
use crate::Manager;
use crate::addr::{FrameNumber, NodeId, PageNumber, PageRange};
use crate::error::Error;
use crate::platform::Platform;
use crate::rule::Rule;

/// Where in the kernel range something is to be mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VmapPlace {
    /// The address is a multiple of so many pages: a power of two.
    pub align: u64,
    /// Only here. `None`: anywhere in the kernel range.
    pub within: Option<PageRange>,
    /// Leave one page behind it unmapped, so that who writes beyond its end faults.
    pub guard: bool,
    /// The node of frames that are allocated with it; others follow by distance. `None`: this CPU's.
    pub node: Option<NodeId>,
}

impl VmapPlace {
    /// Anywhere, with a guard page.
    pub const ANYWHERE: VmapPlace = VmapPlace { align: 1, within: None, guard: true, node: None };
}

impl Default for VmapPlace {
    fn default() -> Self {
        Self::ANYWHERE
    }
}

/// A mapping that is wanted, before anything is checked.
#[derive(Clone, Copy)]
pub(super) struct VmapRequest {
    /// Its pages, without a guard page.
    pub pages: u64,
    /// Where it is to be.
    pub place: VmapPlace,
    /// What for, and so by which operation it goes.
    pub purpose: Purpose,
}

impl KernelRange<'_> {
    /// What to look for, if it can exist in this range.
    pub(super) fn want<P: Platform>(
        &self,
        mm: &Manager<'_, P>,
        pages: u64,
        place: VmapPlace,
    ) -> Result<Want, Error> {
        let p = mm.platform();
        let guard = u64::from(place.guard && !p.broken(Rule::GuardPage));
        let want = |within| Want { pages: pages.saturating_add(guard), align: place.align.max(1), within };
        if p.broken(Rule::CheckRequest) {
            return Ok(want(self.range));
        }
        if pages == 0 || pages > self.range.pages {
            return Err(Error::BadRange);
        }
        if !place.align.is_power_of_two() || place.align > self.range.pages.next_power_of_two() {
            return Err(Error::BadAlignment(place.align));
        }
        let within = match place.within {
            None => self.range,
            Some(limits) => {
                limits.start.0.checked_add(limits.pages).ok_or(Error::BadRange)?;
                limits.intersect(self.range).ok_or(Error::BadRange)?
            }
        };
        if pages > within.pages {
            return Err(Error::BadRange);
        }
        Ok(want(within))
    }

    /// A page of the kernel range.
    pub(super) fn check_page(&self, page: PageNumber) -> Result<(), Error> {
        if self.range.contains(page) { Ok(()) } else { Err(Error::BadRange) }
    }
}

impl<P: Platform> Manager<'_, P> {
    /// Frames that the core manages. Others, of devices, have no place in its bookkeeping.
    pub(super) fn check_frames(&self, frames: &[FrameNumber]) -> Result<(), Error> {
        match frames.iter().find(|&&frame| self.memmap().find(frame).is_none()) {
            Some(&frame) => Err(Error::NoSuchFrame(frame)),
            None => Ok(()),
        }
    }
}
