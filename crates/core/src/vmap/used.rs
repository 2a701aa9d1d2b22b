//! Extents in use, by address: under a lock of their own, which is always held with interrupts off, so that interrupt handlers
//! may unmap, and which no purge takes, so that nobody who looks an address up waits for one.

use core::sync::atomic::Ordering;

use super::Vmap;
use super::extent::Purpose;
use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::error::Error;
use crate::percpu::Here;
use crate::platform::Platform;
use crate::profile::Scope;
use crate::sync::SpinLock;
use crate::tree::Tree;

/// On lines of its own: those who free do not disturb those who take.
#[repr(C, align(64))]
pub(super) struct Busy {
    lock: SpinLock<{ Scope::UsedExtentsLock as u8 }>,
    /// Extents in use, by address.
    pub used: Tree,
}

impl<'p> Vmap<'p> {
    /// Runs `work` on the extents in use of a page's shard, interrupts off.
    fn with_used<P: Platform, R>(
        &self,
        mm: &Manager<'p, P>,
        page: PageNumber,
        work: impl FnOnce(&Tree) -> R,
    ) -> R {
        let busy = &self.shards[self.shard_of(page)].busy;
        // Before the lock, and until after it: an interrupt handler on this CPU may want it.
        let _here = Here::new(mm);
        let _guard = busy.lock.lock(mm);
        work(&busy.used)
    }

    /// From now on whoever knows the address may look it up and unmap it.
    pub(super) fn publish<P: Platform>(&self, mm: &Manager<'p, P>, whole: PageRange, handle: u32) {
        let (p, nodes) = (mm.platform(), self.busy_by_address(mm));
        if self.reaches_across(whole) {
            self.state.numbers.across.fetch_add(p, 1, Ordering::Relaxed);
        }
        self.with_used(mm, whole.start, |used| used.insert(p, &nodes, handle));
    }

    /// Takes an extent out of use that starts here and is used for this; gives it, its pages, and those without a guard.
    /// Whoever gets it is alone with it. Any context.
    pub(super) fn withdraw<P: Platform>(
        &self,
        mm: &Manager<'p, P>,
        start: PageNumber,
        purpose: Purpose,
    ) -> Result<(u32, PageRange, PageRange), Error> {
        let (p, nodes) = (mm.platform(), self.busy_by_address(mm));
        let (handle, whole, range) = self.with_used(mm, start, |used| {
            let before = used.at_or_before(p, &nodes, start.0).ok_or(Error::NotMapped(start))?;
            let extent = self.extent(mm, before);
            let (whole, (used_for, guard)) = (extent.range(p), extent.used_for(p));
            let range = PageRange::new(whole.start, whole.pages - guard);
            if !range.contains(start) {
                return Err(Error::NotMapped(start));
            }
            if range.start != start || used_for != purpose {
                return Err(Error::WrongRelease(start));
            }
            used.remove(p, &nodes, before);
            Ok((before, whole, range))
        })?;
        if self.reaches_across(whole) {
            self.state.numbers.across.fetch_sub(p, 1, Ordering::Relaxed);
        }
        Ok((handle, whole, range))
    }

    /// The pages of the extent in use that holds this one. Any context.
    pub(super) fn find_used<P: Platform>(&self, mm: &Manager<'p, P>, page: PageNumber) -> Option<PageRange> {
        let (p, nodes) = (mm.platform(), self.busy_by_address(mm));
        let here = self.shard_of(page);
        // One that reaches across borders is in the shard of its first page, and then nothing lies before the page in
        // the shards in between. Who knows of such a page has seen that it was counted.
        let across = self.state.numbers.across.load(p, Ordering::Relaxed) > 0;
        (if across { 0 } else { here }..=here)
            .rev()
            .find_map(|index| {
                self.with_used(mm, self.part(index).start, |used| {
                    used.at_or_before(p, &nodes, page.0).map(|handle| self.extent(mm, handle).mapped(p))
                })
            })
            .filter(|range| range.contains(page))
    }

    fn reaches_across(&self, whole: PageRange) -> bool {
        self.part(self.shard_of(whole.start)).end() < whole.end()
    }
}
