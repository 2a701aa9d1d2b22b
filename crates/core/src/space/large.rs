//! Large pages: 2 MiB of anonymous memory behind one entry. (What files show so is another thing: `large_file.rs`.)
//!
//! A large page belongs to one space alone. What concerns a part of it, and all that would share it, makes it small
//! first: a table of 512 entries for the same frames with the same rights takes the place of the one entry. A CPU that
//! has the large translation cached still reaches the same frames with the same rights, so this alone owes no flush
//! (Intel SDM 3A 4.10.2.3 wants one only where the page size changes together with frame or rights; the operation that
//! comes next changes rights, and flushes for both). Machines with an erratum about two sizes of translation for one
//! address must not be advised [`Advice::Large`](crate::paging::Advice::Large).
//!
//! Where pages may go to swap, a large page is on a list like others, and goes out in small ones: reclaim that finds it
//! idle makes it small. Aging flushes when it clears the accessed bit of a large page, whatever the policy is
//! (`reclaim/aging`, PITFALLS 33).

use crate::Manager;
use crate::addr::{FrameNumber, LARGE_ORDER, LARGE_PAGES, PageNumber, PageRange};
use crate::error::Error;
use crate::event::Event;
use crate::frame::AllocFrom;
use crate::handle::SpaceId;
use crate::kind::Kind;
use crate::paging::table::{self, Leaf, Way};
use crate::paging::{Entry, UserAccess};
use crate::platform::Platform;
use crate::resched::{Work, cost};
use crate::sync::Word32;
use crate::vma::{SpaceState, Vma};
use core::sync::atomic::Ordering;

impl<'p, P: Platform> Manager<'p, P> {
    /// Makes the large page that lies across `page`, if there is one, small. By whoever holds the VMAs alone.
    pub(super) fn split_large_at(&self, space: &SpaceState, page: PageNumber) -> Result<(), Error> {
        if page == page.large() {
            return Ok(());
        }
        match table::find(self, space.root(self.platform()), page) {
            Way::Large(leaf) => self.make_small(space, leaf, page),
            _ => Ok(()),
        }
    }

    /// Makes the large entry that a way ends at small, whatever it shows. By whoever holds the VMAs alone.
    fn make_small(&self, space: &SpaceState, leaf: Leaf, page: PageNumber) -> Result<(), Error> {
        if self.has_spares() {
            let locked = leaf.lock(self);
            if locked.leads_on(page) || locked.split_file(page) {
                return Ok(());
            }
        }
        let first = leaf.peek(self, page.large()).frame();
        self.split_large(leaf, page.large(), self.table_for(space, first)?);
        Ok(())
    }

    /// Makes every large page in a range small, and every large entry of a file. By whoever holds the VMAs alone.
    pub(super) fn split_all_large(
        &self,
        space: &SpaceState,
        range: PageRange,
        work: &mut Work<'_, 'p, P>,
    ) -> Result<(), Error> {
        self.each_large(space, range, work, |leaf, page| {
            self.make_small(space, leaf, page)?;
            Ok(true)
        })
    }

    /// The same, but entries of files stay.
    pub(super) fn split_own_large(
        &self,
        space: &SpaceState,
        range: PageRange,
        work: &mut Work<'_, 'p, P>,
    ) -> Result<(), Error> {
        self.each_large(space, range, work, |leaf, page| {
            let is_own = |entry: Entry| entry.has(Entry::LARGE) && !self.shows_file(entry);
            let own = !self.has_spares() || is_own(leaf.peek(self, page));
            if own {
                self.make_small(space, leaf, page)?;
            }
            Ok(own)
        })
    }

    /// The entries of files alone: for whoever changes what is in a range. By whoever holds the VMAs alone.
    pub(super) fn split_file_entries(
        &self,
        space: &SpaceState,
        range: PageRange,
        work: &mut Work<'_, 'p, P>,
    ) {
        if self.has_spares() {
            let split = |leaf: Leaf, page| Ok(leaf.lock(self).split_file(page));
            let _: Result<(), Error> = self.each_large(space, range, work, split);
        }
    }

    /// Shows `each` where the large entries of a range are, until it fails. It says whether it made one small.
    fn each_large(
        &self,
        space: &SpaceState,
        range: PageRange,
        work: &mut Work<'_, 'p, P>,
        mut each: impl FnMut(Leaf, PageNumber) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let mut page = range.start;
        while page < range.end() {
            page = match table::find(self, space.root(self.platform()), page) {
                Way::Gap(next) => next,
                Way::Small(leaf) => leaf.end(page),
                Way::Large(leaf) => {
                    work.did(if each(leaf, page)? { LARGE_PAGES as u32 } else { 1 });
                    leaf.end(page)
                }
            };
            work.did(cost::TABLE);
        }
        Ok(())
    }

    /// Makes a large page that reclaim has isolated, locked and found idle small, if its space's VMAs are to be had
    /// without waiting: the small pages are on the lists then, as idle as it was, and
    /// reclaim finds them one by one. Returns whether it did.
    pub(crate) fn split_idle(&self, n: FrameNumber) -> bool {
        let p = self.platform();
        let Some((id, page)) = crate::rmap::mapped_at(self, n) else { return false };
        let Ok(space) = self.find_space(id) else { return false };
        // Reclaim may wait for nobody who may wait for it: a fault that has the VMAs may wait for this very page.
        let Some(_alone) = self.try_lock_vmas(id, PageRange::new(page, 1)) else { return false };
        let still = |leaf: &Leaf| {
            let entry = leaf.peek(self, page);
            entry.is_mapped() && entry.frame() == n
        };
        match table::find(self, space.root(p), page) {
            Way::Large(leaf) if still(&leaf) => {
                let Some(table) = self.take_deposit(n) else { return false };
                self.split_large(leaf, page, table);
                true
            }
            _ => false,
        }
    }

    /// Where memory may go to swap, each large page has the table with it that will take its place: reclaim makes it small
    /// when no frame is free. Returns whether that is so.
    fn deposit_table(&self, space: &SpaceState, first: FrameNumber) -> bool {
        if !self.config().swap {
            return true;
        }
        let from = AllocFrom { node: None, may_reclaim: false };
        let Ok(table) = table::make_table(self, from, self.group_of(space)) else { return false };
        self.deposit(first).set(self.platform(), table.0 + 1);
        true
    }

    /// Where the table of a large page is noted: with its second frame, of which nothing else is kept.
    fn deposit(&self, first: FrameNumber) -> &'p Word32 {
        &self.memmap().get(first.add(1)).owner
    }

    /// The table that a large page has with it; it is the caller's. By whoever holds the page alone, or has it locked and its
    /// VMAs alone.
    fn take_deposit(&self, first: FrameNumber) -> Option<FrameNumber> {
        let p = self.platform();
        if !self.config().swap {
            return None;
        }
        self.deposit(first).swap(p, 0, Ordering::AcqRel).checked_sub(1).map(FrameNumber)
    }

    /// The table of small pages that become this large one: it stays with it where it may be wanted again. No CPU can walk it any more (INV-9).
    pub(super) fn keep_table(&self, first: FrameNumber, table: FrameNumber) {
        if self.config().swap {
            table::empty(self, table);
            self.deposit(first).set(self.platform(), table.0 + 1);
        } else {
            self.free_one(table);
        }
    }

    /// A large page is about to be freed whole.
    pub(super) fn free_deposit(&self, first: FrameNumber) {
        if let Some(table) = self.take_deposit(first) {
            self.free_one(table);
        }
    }

    /// Whether a frame that begins a large page has a table with it: for audits.
    pub(crate) fn has_deposit(&self, first: FrameNumber) -> bool {
        self.config().swap && self.deposit(first).get(self.platform()) != 0
    }

    /// The table for a large page that an operation makes small: the one that it has with it, or a new one.
    fn table_for(&self, space: &SpaceState, first: FrameNumber) -> Result<FrameNumber, Error> {
        let make = || table::make_table(self, AllocFrom::HERE, self.group_of(space));
        self.take_deposit(first).map_or_else(make, Ok)
    }

    /// Puts a table of small pages in place of a large one. By whoever holds the VMAs alone. Gives way.
    ///
    /// Reclaim asks nobody for the VMAs: from the step on in which the table takes its place, it takes entries out of it.
    /// So all is ready before (INV-1), also what the hardware has said in the large entry until then:
    ///
    /// ```text
    ///   this CPU, under the large table's lock     a CPU that writes
    ///   reads the large entry: clean
    ///   fills the small table: clean
    ///                                              walks, sets accessed and dirty in the large entry, caches it
    ///   compare-and-swap finds another entry
    ///   fills the small table: accessed, dirty
    ///   compare-and-swap: the table is there
    ///                                              writes on through what it has cached
    /// ```
    ///
    /// So each small entry says of its page what the large one said of all: dirty, if a CPU writes on through a dirty
    /// translation without a look at the tables; idle (not accessed) only if no CPU has used the large one since that bit was
    /// cleared, with a flush under this lock (`reclaim/aging`). What a CPU has begun to write through a clean translation when
    /// the table comes, and sees in no entry, is not lost: none of the pages has a slot, so each is dirty when it gets one, and
    /// is flushed before it is written out (INV-2).
    fn split_large(&self, leaf: Leaf, page: PageNumber, small: FrameNumber) {
        let p = self.platform();
        let locked = leaf.lock(self);
        let large = locked.read(page);
        let first = large.frame();
        let fill = |large: Entry| {
            // The one that reclaim may be looking for comes last.
            for i in (0..LARGE_PAGES as u32).rev() {
                let entry = Entry(large.0 & !Entry::LARGE).leading_to(first.add(i));
                Leaf::prepare(self, small, i as usize, entry);
            }
        };
        fill(large);
        let head = self.memmap().get(first);
        let (owner, index) = (head.owner.get(p), head.anon_index(p));
        self.split_charge(first, LARGE_PAGES as u32);
        // The first stays where it is, on a list or in the hands of reclaim: only its size is another.
        head.make_small(p);
        for i in 1..LARGE_PAGES as u32 {
            let frame = self.memmap().get(first.add(i));
            frame.set_kind(p, Kind::Anon, 0);
            frame.owner.set(p, owner);
            frame.index.set(p, index + u64::from(i));
            frame.maps.set(p, 1);
            frame.refs.set(p, 1);
        }
        locked.put_table(page, large, small, fill);
        drop(locked);
        if self.config().swap {
            let mut work = Work::begin(self);
            for i in 1..LARGE_PAGES as u32 {
                // The caller has the VMAs alone: nobody lets go of them meanwhile.
                self.lru_add(first.add(i));
                work.did(cost::FRAME);
            }
        }
        self.emit(Event::LargeSplit);
    }

    /// Puts a large page where `page` is missing, if the VMA wants one, it fits, and a large frame is to spare.
    pub(super) fn fault_large(
        &self,
        (id, space, vma): (SpaceId, &SpaceState, &Vma),
        page: PageNumber,
        access: UserAccess,
        major: &mut bool,
    ) -> Result<bool, Error> {
        let p = self.platform();
        let span = PageRange::new(page.large(), LARGE_PAGES);
        if !vma.wants_large(p) || !vma.range(p).covers(span) {
            return Ok(false);
        }
        if vma.file(p).is_some() {
            return self.fault_large_file((id, space, vma), page, access);
        }
        let leaf = table::find_or_make_large(self, space.root(p), page, &|| self.group_of(space))?;
        if leaf.peek(self, page) != Entry::NONE {
            return Ok(false);
        }
        let Ok(charge) = self.charge_group(space.group_slot(p), LARGE_PAGES, false) else { return Ok(false) };
        let nodes = self.spare_nodes(vma, span.start);
        let Some(first) = self.alloc_spare(LARGE_ORDER, Kind::Anon, nodes) else { return Ok(false) };
        charge.put_on(first);
        if !self.deposit_table(space, first) {
            self.free_one(first);
            return Ok(false);
        }
        let mut work = Work::begin(self);
        for i in 0..LARGE_PAGES as u32 {
            p.clear_frame(first.add(i));
            work.did(cost::FRAME);
        }
        if !self.map_large(id, vma, leaf, (span.start, first)) {
            self.free_deposit(first);
            self.free_one(first);
            return Ok(false);
        }
        self.emit(Event::LargeFaulted);
        *major = true;
        Ok(true)
    }

    /// Maps a large frame that has its content, and its table, where nothing is. Returns whether there was nothing.
    pub(super) fn map_large(
        &self,
        id: SpaceId,
        vma: &Vma,
        leaf: Leaf,
        (page, first): (PageNumber, FrameNumber),
    ) -> bool {
        let p = self.platform();
        let frame = self.memmap().get(first);
        frame.owner.set(p, vma.anon_vma(p).map_or(0, |anon_vma| anon_vma.0));
        frame.index.set(p, vma.anon_index(p, page));
        frame.maps.set(p, 1);
        frame.refs.set(p, 1);
        let entry = Entry(Entry::page(first, vma.prot(p)).0 | Entry::LARGE);
        let list = self.ref_for_list(first);
        if !leaf.lock(self).fill_empty(page, entry) {
            return false;
        }
        if list {
            self.list_held(first);
        }
        self.emit(Event::Mapped { space: id, page, frame: first, pages: LARGE_PAGES as u32 });
        true
    }

    /// A fault on a large page that is there: another thread was faster, or rights were given since.
    /// Returns whether the entry was changed.
    pub(super) fn fault_on_large(&self, leaf: Leaf, page: PageNumber, vma: &Vma, access: UserAccess) -> bool {
        let locked = leaf.lock(self);
        let entry = locked.read(page);
        let gives = entry.is_present() && !entry.permits(access);
        if gives {
            locked.set_prot(page, vma.prot(self.platform()));
        }
        gives
    }
}
