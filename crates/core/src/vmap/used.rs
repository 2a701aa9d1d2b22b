//! Extents in use, by address: under a lock of their own, which is always held with interrupts off, so that interrupt handlers
//! may unmap, and which no purge takes, so that nobody who looks an address up waits for one.

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
    pub(super) fn publish<P: Platform>(&self, mm: &Manager<'p, P>, handle: u32) {
        let (p, nodes) = (mm.platform(), self.busy_by_address(mm));
        let start = self.extent(mm, handle).range(p).start;
        self.with_used(mm, start, |used| used.insert(p, &nodes, handle));
    }

    /// Takes an extent out of use that starts here and is used for this. Whoever gets it is alone with it. Any context.
    pub(super) fn withdraw<P: Platform>(
        &self,
        mm: &Manager<'p, P>,
        start: PageNumber,
        purpose: Purpose,
    ) -> Result<u32, Error> {
        let (p, nodes) = (mm.platform(), self.busy_by_address(mm));
        self.with_used(mm, start, |used| {
            let handle = self.covering(mm, used, start).ok_or(Error::NotMapped(start))?;
            let extent = self.extent(mm, handle);
            if extent.range(p).start != start || extent.purpose(p) != purpose {
                return Err(Error::WrongRelease(start));
            }
            used.remove(p, &nodes, handle);
            Ok(handle)
        })
    }

    fn covering<P: Platform>(&self, mm: &Manager<'p, P>, used: &Tree, page: PageNumber) -> Option<u32> {
        let p = mm.platform();
        let handle = used.at_or_before(p, &self.busy_by_address(mm), page.0)?;
        self.extent(mm, handle).mapped(p).contains(page).then_some(handle)
    }

    /// The pages of the extent in use that holds this one. Any context.
    pub(super) fn find_used<P: Platform>(&self, mm: &Manager<'p, P>, page: PageNumber) -> Option<PageRange> {
        let (p, nodes) = (mm.platform(), self.busy_by_address(mm));
        // One that reaches across borders is in the shard of its first page, and then nothing lies before the page in
        // the shards in between.
        (0..=self.shard_of(page))
            .rev()
            .find_map(|index| {
                self.with_used(mm, self.part(index).start, |used| {
                    used.at_or_before(p, &nodes, page.0).map(|handle| self.extent(mm, handle).mapped(p))
                })
            })
            .filter(|range| range.contains(page))
    }
}
