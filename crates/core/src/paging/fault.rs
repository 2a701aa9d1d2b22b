//! Page faults on user addresses.

use core::sync::atomic::Ordering;

use super::{Entry, Region, Space, SpaceId, table};
use crate::Manager;
use crate::addr::{FrameNumber, PageNumber, PageRange, VirtAddr};
use crate::error::Error;
use crate::event::{Event, FlushReason};
use crate::frame::{AllocFrom, Kind};
use crate::platform::Platform;
use crate::rule::Rule;
use crate::tlb;

/// What a user access does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UserAccess {
    /// It reads.
    Read,
    /// It writes.
    Write,
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Resolves a fault at `at` in `id`. Call it from the page-fault handler, with interrupts on. May wait
    /// for memory and I/O. Sends no IPI, unless it reclaims or the address still waits for a deferred flush
    /// (INV-12).
    ///
    /// # Errors
    /// [`Error::NotMapped`] and [`Error::NotPermitted`] are the program's fault; [`Error::OutOfMemory`] and
    /// [`Error::Device`] are not. [`Error::NoSuchSpace`].
    pub fn fault(&self, id: SpaceId, at: VirtAddr, access: UserAccess) -> Result<(), Error> {
        let p = self.platform();
        let page = at.page();
        let space = self.root.spaces.find(self, id.0).ok_or(Error::NoSuchSpace)?;
        if page >= PageNumber::USER_END {
            return Err(Error::NotMapped(page));
        }
        let _shared = space.regions.read(p);
        let (_, region) = self.find_region(id, space, page).ok_or(Error::NotMapped(page))?;
        let writable = region.is_writable(p);
        if access == UserAccess::Write && !writable {
            return Err(Error::NotPermitted(page));
        }
        let leaf = table::find_or_make(self, space.root(p), page)?;
        let (frame, major) = self.page_for(region, page)?;
        loop {
            let locked = leaf.lock(self);
            let now = locked.read(page);
            if now.is_present() {
                // Another thread was faster.
                drop(locked);
                self.put_page(frame);
                break;
            }
            if let Some(until) = now.deferred_until() {
                // INV-12: another CPU may still see the old frame here. Finish that flush first, without
                // the lock, and look again.
                if space.is_behind(p, until) && !p.broken(Rule::RefaultAfterFlush) {
                    drop(locked);
                    self.emit(Event::DeferredCompleted);
                    tlb::flush(self, id, Some(PageRange::new(page, 1)), FlushReason::Deferred, false);
                    continue;
                }
            }
            self.frames().get(frame).maps.fetch_add(p, 1, Ordering::Relaxed);
            locked.fill(page, Entry::page(frame, writable));
            self.emit(Event::Mapped { space: id, page, frame });
            break;
        }
        self.emit(Event::Faulted { major });
        Ok(())
    }

    /// The frame for a page, held for the caller, and whether it had to be made or read.
    fn page_for(&self, region: &Region, page: PageNumber) -> Result<(FrameNumber, bool), Error> {
        let p = self.platform();
        if let Some(file) = region.file(p) {
            return self.file_page(file, region.file_page(p, page));
        }
        let n = self.alloc_one(Kind::Anon, AllocFrom::HERE)?;
        p.clear_frame(n);
        let frame = self.frames().get(n);
        frame.owner.set(p, region.space.get(p));
        frame.index.set(p, page.0);
        frame.maps.set(p, 0);
        frame.refs.set(p, 1);
        Ok((n, true))
    }

    /// What the tables of a space say of a page now: for kernels that look before they copy.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`]; [`Error::BadRange`] beyond user addresses.
    pub fn lookup(&self, id: SpaceId, page: PageNumber) -> Result<Entry, Error> {
        let space: &Space = self.root.spaces.find(self, id.0).ok_or(Error::NoSuchSpace)?;
        if page >= PageNumber::USER_END {
            return Err(Error::BadRange);
        }
        let _shared = space.regions.read(self.platform());
        let leaf = table::find(self, space.root(self.platform()), page);
        Ok(leaf.map_or(Entry::NONE, |leaf| leaf.lock(self).read(page)))
    }
}
