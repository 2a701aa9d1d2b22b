//! Large pages: 2 MiB of anonymous memory behind one entry.
//!
//! A large page belongs to one space alone. What concerns a part of it, and all that would share it, makes it small
//! first: a table of 512 entries for the same frames with the same rights takes the place of the one entry. A CPU that
//! has the large translation cached still reaches the same frames with the same rights, so this alone owes no flush
//! (Intel SDM 3A 4.10.2.3 wants one only where the page size changes together with frame or rights; the operation that
//! comes next changes rights, and flushes for both). Machines with an erratum about two sizes of translation for one
//! address must not be advised [`Advice::Large`](super::Advice::Large).

use super::table::{self, Leaf, Way};
use super::{Entry, Region, Space, SpaceId, UserAccess};
use crate::Manager;
use crate::addr::{LARGE_ORDER, LARGE_PAGES, PageNumber, PageRange};
use crate::error::Error;
use crate::event::Event;
use crate::frame::{AllocFrom, Kind};
use crate::platform::Platform;

impl<'p, P: Platform> Manager<'p, P> {
    /// Makes the large page that lies across `page`, if there is one, small. By who has the regions alone.
    pub(super) fn split_large_at(&self, space: &Space, page: PageNumber) -> Result<(), Error> {
        if page == page.large() {
            return Ok(());
        }
        match table::find(self, space.root(self.platform()), page) {
            Way::Large(leaf) => self.split_large(leaf, page.large()),
            _ => Ok(()),
        }
    }

    /// Makes every large page in a range small. By who has the regions alone.
    pub(super) fn split_all_large(&self, space: &Space, range: PageRange) -> Result<(), Error> {
        let mut page = range.start;
        while page < range.end() {
            page = match table::find(self, space.root(self.platform()), page) {
                Way::Gap(next) => next,
                Way::Small(leaf) => leaf.end(page),
                Way::Large(leaf) => {
                    self.split_large(leaf, page.large())?;
                    leaf.end(page)
                }
            };
        }
        Ok(())
    }

    fn split_large(&self, leaf: Leaf, page: PageNumber) -> Result<(), Error> {
        let p = self.platform();
        let small = table::make_table(self, AllocFrom::HERE)?;
        let locked = leaf.lock(self);
        let large = locked.read(page);
        let fill = |bits: u64| {
            for i in 0..LARGE_PAGES as u32 {
                let entry = Entry(large.0 & !Entry::LARGE | bits).leading_to(large.frame().add(i));
                Leaf::prepare(self, small, i as usize, entry);
            }
        };
        // What a CPU writes from here on through the large entry it has cached was written through a dirty one: so
        // all of it is dirty if any is.
        fill(0);
        let old = locked.put_table(page, small);
        if old.has(Entry::DIRTY) && !large.has(Entry::DIRTY) {
            fill(Entry::DIRTY | Entry::ACCESSED);
        }
        let head = self.frames().get(large.frame());
        let (owner, index) = (head.owner.get(p), head.family_index(p));
        for i in 0..LARGE_PAGES as u32 {
            let frame = self.frames().get(large.frame().add(i));
            frame.set_kind(p, Kind::Anon, 0);
            frame.owner.set(p, owner);
            frame.index.set(p, index + u64::from(i));
            frame.maps.set(p, 1);
            frame.refs.set(p, 1);
        }
        drop(locked);
        if self.config().swap {
            // The caller has the regions alone: nobody lets go of them meanwhile.
            (0..LARGE_PAGES as u32).for_each(|i| self.lru_add(large.frame().add(i)));
        }
        self.emit(Event::LargeSplit);
        Ok(())
    }

    /// Puts a large page where `page` is missing, if the region wants one, it fits, and a large frame is to spare.
    pub(super) fn fault_large(
        &self,
        id: SpaceId,
        space: &Space,
        region: &Region,
        page: PageNumber,
    ) -> Result<bool, Error> {
        let p = self.platform();
        let span = PageRange::new(page.large(), LARGE_PAGES);
        if !region.wants_large(p) || !region.range(p).covers(span) {
            return Ok(false);
        }
        let leaf = table::find_or_make_large(self, space.root(p), page)?;
        if leaf.peek(self, page) != Entry::NONE {
            return Ok(false);
        }
        let Some(first) = self.alloc_spare(LARGE_ORDER, Kind::Anon) else { return Ok(false) };
        (0..LARGE_PAGES as u32).for_each(|i| p.clear_frame(first.add(i)));
        let frame = self.frames().get(first);
        frame.owner.set(p, region.family(p).map_or(0, |family| family.0));
        frame.index.set(p, region.family_index(p, span.start));
        frame.maps.set(p, 1);
        frame.refs.set(p, 1);
        let entry = Entry(Entry::page(first, region.prot(p)).0 | Entry::LARGE);
        if !leaf.lock(self).fill_empty(span.start, entry) {
            self.free_one(first);
            return Ok(false);
        }
        self.emit(Event::LargeFaulted);
        self.emit(Event::Mapped { space: id, page: span.start, frame: first, pages: LARGE_PAGES as u32 });
        Ok(true)
    }

    /// A fault on a large page that is there: another thread was faster, or rights were given since.
    pub(super) fn fault_on_large(&self, leaf: Leaf, page: PageNumber, region: &Region, access: UserAccess) {
        let locked = leaf.lock(self);
        let entry = locked.read(page);
        if entry.is_present() && !entry.permits(access) {
            locked.set_bits(page, region.prot(self.platform()).bits());
        }
    }
}
