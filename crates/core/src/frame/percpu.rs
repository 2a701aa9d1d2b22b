//! Single frames at hand on each CPU, so that the zone's lock is taken once for many.
//!
//! Refilled in batches from the zone that has memory. What is on a list is free, and nobody else can have it:
//! at most a batch per CPU.

use core::cell::Cell;

use crate::Manager;
use crate::addr::FrameNumber;
use crate::percpu::Here;
use crate::platform::Platform;

/// The largest batch.
pub(crate) const MAX_PAGE_BATCH: usize = 63;

/// One CPU's list.
#[repr(C)]
pub(crate) struct PageList {
    len: Cell<u32>,
    frames: [Cell<u32>; MAX_PAGE_BATCH],
}

impl PageList {
    pub fn len(&self) -> u32 {
        self.len.get()
    }

    pub fn push(&self, n: FrameNumber) {
        self.frames[self.len.get() as usize].set(n.0);
        self.len.set(self.len.get() + 1);
    }

    pub fn pop(&self) -> Option<FrameNumber> {
        let len = self.len.get().checked_sub(1)?;
        self.len.set(len);
        Some(FrameNumber(self.frames[len as usize].get()))
    }
}

/// Linux's rule: a quarter of a thousandth of the zone, of 128 pages at most, times 1.5, rounded down to a
/// power of two, less one.
pub(crate) const fn batch_for(frames: u64) -> u32 {
    let thousandth = if frames / 1024 < 128 { frames / 1024 } else { 128 };
    let batch = thousandth / 4;
    let batch = if batch < 1 { 1 } else { batch };
    let power = 1 << (batch + batch / 2).ilog2();
    if power < 2 { 1 } else { power - 1 }
}

impl<P: Platform> Manager<'_, P> {
    /// Gives this CPU's list back to the zones: before it goes offline. Any context but an interrupt handler.
    pub fn drain_page_list(&self) {
        loop {
            let taken = Here::new(self).slot().pages.pop();
            let Some(n) = taken else { return };
            self.return_one(n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::batch_for;

    #[test]
    fn batches_follow_the_zones_size() {
        for (frames, batch) in [(0, 1), (4096, 1), (16 << 10, 3), (32 << 10, 7), (4 << 20, 31)] {
            assert_eq!(batch_for(frames), batch, "{frames} frames");
        }
    }
}
