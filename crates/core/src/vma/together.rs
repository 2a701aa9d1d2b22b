//! What several CPUs want flushed in one space at the same time: [`tlb::flush_together`](crate::tlb::flush_together) makes one flush of it.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::platform::{Platform, WaitKey};
use crate::profile::Scope;
use crate::sync::{SpinLock, Word32, Word64};

/// What waits to be flushed in one space. All zeros: nothing, and nobody flushes. On a line of its own: faults do not write it.
#[repr(C, align(64))]
pub(crate) struct Together {
    /// Guards what follows, up to `asked`.
    lock: SpinLock<{ Scope::TogetherLock as u8 }>,
    /// From the first page that waits to the last one's end; no page waits where that is 0.
    start: Word64,
    end: Word64,
    /// Whether tables go.
    tables: Word32,
    /// Not 0 while somebody flushes, and whether somebody waits for that.
    flushing: Word32,
    /// How many have asked.
    asked: Word64,
    /// As many of those who asked first have their pages flushed.
    done: Word64,
}

const FLUSHES: u32 = 1;
const AWAITED: u32 = 2;

impl Together {
    /// Adds to what waits; returns how many have asked, with this one.
    pub fn add<P: Platform>(&self, mm: &Manager<'_, P>, range: PageRange, tables: bool) -> u64 {
        let p = mm.platform();
        let _lock = self.lock.lock(mm);
        let (start, end) = (self.start.get(p), self.end.get(p));
        self.start.set(p, if end == 0 { range.start.0 } else { start.min(range.start.0) });
        self.end.set(p, end.max(range.end().0));
        self.tables.set(p, self.tables.get(p) | u32::from(tables));
        let asked = self.asked.get(p) + 1;
        self.asked.set(p, asked);
        asked
    }

    /// Takes all that waits, and how many have asked for it. By who flushes, when somebody waits.
    pub fn take<P: Platform>(&self, mm: &Manager<'_, P>) -> (PageRange, bool, u64) {
        let p = mm.platform();
        let _lock = self.lock.lock(mm);
        let range = PageRange::between(PageNumber(self.start.get(p)), PageNumber(self.end.get(p)));
        let tables = self.tables.get(p) != 0;
        self.nothing_waits(p);
        (range, tables, self.asked.get(p))
    }

    /// The same with these pages, which are asked for now.
    pub fn take_with<P: Platform>(
        &self,
        mm: &Manager<'_, P>,
        range: PageRange,
        tables: bool,
    ) -> (PageRange, bool, u64) {
        let p = mm.platform();
        let _lock = self.lock.lock(mm);
        let asked = self.asked.get(p) + 1;
        self.asked.set(p, asked);
        let (start, end) = (PageNumber(self.start.get(p)), PageNumber(self.end.get(p)));
        if end.0 == 0 {
            return (range, tables, asked);
        }
        let tables = tables || self.tables.get(p) != 0;
        self.nothing_waits(p);
        (PageRange::between(start, end).hull(range), tables, asked)
    }

    fn nothing_waits<P: Platform>(&self, p: &P) {
        self.end.set(p, 0);
        self.tables.set(p, 0);
    }

    /// How many have asked so far.
    pub fn asked<P: Platform>(&self, p: &P) -> u64 {
        self.asked.load(p, Ordering::Relaxed)
    }

    /// Whether what the `nth` who asked wants is flushed.
    pub fn is_done<P: Platform>(&self, p: &P, nth: u64) -> bool {
        // Acquire: partner of the Release in `end`: the flush comes before what the caller does next.
        self.done.load(p, Ordering::Acquire) >= nth
    }

    /// Whether nobody flushed, and the caller does now; if not, whoever does will wake those who wait.
    pub fn begin<P: Platform>(&self, p: &P) -> bool {
        loop {
            // Acquire: partner of the Release in `end`: what was done before is seen.
            match self.flushing.replace(p, 0, FLUSHES, Ordering::Acquire) {
                Ok(_) => return true,
                Err(FLUSHES) => {
                    if self.flushing.replace(p, FLUSHES, AWAITED, Ordering::Relaxed).is_ok() {
                        return false;
                    }
                }
                Err(_) => return false,
            }
        }
    }

    /// What so many have asked for is flushed. By who flushes.
    pub fn done<P: Platform>(&self, p: &P, asked: u64) {
        self.done.store(p, asked, Ordering::Release);
    }

    /// Nobody flushes any more.
    pub fn end<P: Platform>(&self, p: &P) {
        if self.flushing.swap(p, 0, Ordering::Release) == AWAITED {
            p.wake(self.key());
        }
    }

    /// What those who do not flush themselves wait for.
    pub fn key(&self) -> WaitKey {
        WaitKey::Lock((&raw const *self).addr())
    }

    /// Whether nobody flushes, or waits for that. A moment's truth.
    pub fn audit_free<P: Platform>(&self, p: &P) -> bool {
        self.flushing.get(p) == 0 && self.end.get(p) == 0 && self.done.get(p) == self.asked.get(p)
    }
}
