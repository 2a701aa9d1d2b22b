//! Memory files: what keeps their pages is memory and swap, and no device (Linux: tmpfs, and all memory that programs share).
//!
//! A page of one that is clean is a hole at which somebody has looked: zeros, and it may go at any time. A dirty one that goes becomes a
//! page of the swap cache. The file's tree names its slot then, in place of the page, and is the slot's one user:
//!
//! ```text
//!              in memory              on its way             in swap
//!   tree       the page      ---->    the slot      ---->    the slot
//!   slot       -                      the page               -
//!   the page   the file's             swap's                 -
//!                            <----                  <----
//! ```
//!
//! So all that is true of an anonymous page on its way is true of it, and what does that is the same: whoever wants it finds its slot, by that the page,
//! and waits for the page's lock; devices may fail, `Swap::off` may come, the file may lose the page. What is new are the two steps in the
//! upper line, each one step under the tree's lock, by whoever has locked the page.
//!
//! - **Out**: after the flush (INV-2, INV-12), if nobody but the cache and reclaim holds the page, as where a clean page leaves its file. A fault that has
//!   found it holds it, and so it stays.
//! - **Back**: only where the tree names the slot still, and inside the file, since who cuts pages off changes what is inside under that lock. The slot is
//!   let go of in the same step: nothing but the page has its content from then on, so it is dirty.

use core::ops::Range;
use core::sync::atomic::Ordering;

use super::state::{FilePage, FileState};
use super::tree::Cached;
use crate::Manager;
use crate::addr::{FrameNumber, NodeSet, PAGE_SIZE, PageNumber};
use crate::error::Error;
use crate::frame::AllocFrom;
use crate::group::Payer;
use crate::handle::{FileId, FileSlot};
use crate::kind::Kind;
use crate::memmap::{MAX_INDEX, flag};
use crate::platform::{BlockDevice, Platform};
use crate::resched::{Work, cost};
use crate::rule::Rule;
use crate::swap::SwapIn;
use crate::view::File;

/// The references to a page that reclaim, its file's cache and the swap cache hold.
const CACHES_AND_CALLER: u32 = 3;

/// Pages of the longest memory file: beside the number of one its frame has room for a slot.
const MAX_PAGES: u64 = MAX_INDEX;

/// What came of an attempt to put a page from swap into its file's cache.
enum Back {
    /// It is there.
    Now,
    /// The file does not have it in that slot any more: look again.
    Gone,
    /// None may be there now.
    Closed,
    /// It lies beyond the end.
    Beyond,
}

impl FileState {
    /// Whether nothing but memory and swap keeps its pages. Never changes while it lives, and orders nothing.
    pub(super) fn is_memory(&self) -> bool {
        self.memory.load(Ordering::Relaxed) != 0
    }
}

impl<P: Platform> File<'_, '_, P> {
    /// Pages of a memory file that are in swap now; of other files none.
    ///
    /// # Errors
    /// [`Error::NoSuchFile`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let file = mm.file(mm.create_memory_file(16)?);
    /// file.write(0, b"in memory")?;
    /// assert_eq!((file.cached_pages()?, file.swapped_pages()?), (1, 0));
    /// # Ok(())
    /// # });
    /// ```
    pub fn swapped_pages(&self) -> Result<u64, Error> {
        let File { mm, id } = *self;
        let (p, file) = (mm.platform(), mm.find_file(id)?);
        let out = file.out.load(p, Ordering::Acquire);
        // It may have ended meanwhile, and this be of the next.
        if file.is(p, id) { Ok(out.into()) } else { Err(Error::NoSuchFile) }
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// A new file of `pages` pages, all holes, that no device keeps: the [`BlockDevice`] is asked for none of its pages, and told
    /// only what it is told of any file: that a clean page has left memory, that the file has ended, and, where somebody
    /// [watches](crate::File::watch_writes) it, that a page is to be written to. What is written to it stays in memory, or goes to
    /// [`Swap`](crate::Swap) where memory is short. Memory that programs share is such a file, and so are the files of a file system in memory.
    ///
    /// All calls of a [`File`] are for it too; [`File::write_back`] has nothing to do, and a page that swap cannot
    /// give back is [`Error::Device`] to whoever reads or writes by copy, [`Error::SwapDevice`] to a fault. May wait for memory.
    ///
    /// # Errors
    /// [`Error::BadRange`] above 2^36 pages; [`Error::OutOfMemory`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let file = mm.create_memory_file(16)?;
    /// let (space, range) = (mm.space(mm.create_space()?), PageRange::new(PageNumber(0x400), 16));
    /// space.map(range, Backing::File { file, offset: 0 }, Prot::ReadWrite)?;
    /// space.fault(range.start.addr(), UserAccess::Write)?;
    /// assert_eq!(mm.file(file).write_back(), Ok(0));
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "shmem_file_setup")]
    #[doc(alias = "memfd_create")]
    #[doc(alias = "tmpfs")]
    pub fn create_memory_file(&self, pages: u64) -> Result<FileId, Error> {
        if pages > MAX_PAGES {
            return Err(Error::BadRange);
        }
        self.root.memory_files.store(1, Ordering::Relaxed);
        self.new_file(pages, true)
    }

    /// Whether a file, which lives or has pages, is a memory file. Where there never was one it costs nothing.
    pub(super) fn is_memory_file(&self, id: impl Into<FileSlot>) -> bool {
        self.root.memory_files.load(Ordering::Relaxed) != 0 && self.file_at(id).is_memory()
    }

    /// Whether a file may become so long.
    pub(super) fn may_be_long(&self, id: FileId, bytes: u64) -> bool {
        bytes <= MAX_PAGES * PAGE_SIZE || !self.is_memory_file(id)
    }

    /// The device that keeps a file's pages, if one does.
    pub(super) fn device_of(&self, id: impl Into<FileSlot>) -> Option<&dyn BlockDevice> {
        if self.is_memory_file(id) { None } else { self.platform().device() }
    }

    /// A page of a memory file that is to go, flushed and locked, becomes one of the swap cache, in the slot that it has got, if nobody but the
    /// caller holds it; else the slot is free again. By whoever has taken it off its list.
    pub(crate) fn move_to_swap(&self, n: FrameNumber, slot: u32) -> bool {
        self.must_be_locked(n);
        let (p, frame) = (self.platform(), self.memmap().get(n));
        let (id, index) = (FileSlot(frame.owner.get(p)), frame.index.get(p));
        let file = self.file_at(id);
        let guard = file.lock.lock(self);
        // The file may have ended, and its slot may be another file's by now. The cache's own reference goes in the same step.
        let alone = || {
            let refs = CACHES_AND_CALLER;
            if p.broken(Rule::FreezeBeforeFree) {
                frame.refs.fetch_sub(p, 1, Ordering::AcqRel);
                return true;
            }
            frame.refs.replace(p, refs, refs - 1, Ordering::AcqRel).is_ok()
        };
        if self.cached_at(file, index) != Some(n) || !alone() {
            drop(guard);
            self.swap_detach(n, slot);
            return false;
        }
        self.swap_dup(slot);
        self.tree_page_goes(file, index, slot);
        // As one that was read from there: whose it is the tree knows.
        frame.owner.set(p, 0);
        frame.index.set(p, 0);
        frame.set_slot(p, Some(slot));
        frame.change_kind(p, Kind::Anon, flag::MEMORY, 0);
        true
    }

    /// A page of the swap cache, locked and held, becomes the page of a memory file that is in this slot, if it is still.
    fn move_from_swap(&self, id: FileSlot, index: u64, (slot, n): (u32, FrameNumber)) -> Back {
        let (p, frame, file) = (self.platform(), self.memmap().get(n), self.file_at(id));
        let _guard = file.lock.lock(self);
        if self.out_at(file, index) != Some(slot) {
            return Back::Gone;
        }
        if !p.broken(Rule::BackInsideFile) {
            // Whoever cuts it off has changed these words under this lock before, and lets go of the slot; or finds the page.
            if index >= file.pages(p) {
                return Back::Beyond;
            }
            if file.is_closed(p, index) {
                return Back::Closed;
            }
        }
        let dirty = if p.broken(Rule::BackIsDirty) { 0 } else { flag::DIRTY };
        frame.change_kind(p, Kind::File, flag::AHEAD | flag::DIRTY, flag::MEMORY | dirty);
        // The swap cache's reference is this cache's now.
        self.swap_take_out(n, slot);
        frame.owner.set(p, id.0);
        frame.index.set(p, index);
        self.tree_page_comes(file, index, n);
        Back::Now
    }

    /// The page of a memory file that is in this slot of swap, from there or on its way; `None` if it is not there any more, to be looked for again. Where its
    /// frame comes `from`, and who is charged with it, the caller says. As `file_page`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::LimitReached`]; [`Error::BeyondFile`].
    pub(super) fn page_from_swap(
        &self,
        (id, index): (FileSlot, u64),
        slot: u32,
        (from, payer): (AllocFrom, impl FnOnce() -> Payer),
    ) -> Result<Option<FilePage>, Error> {
        let n = match self.swap_in(slot, || (payer(), Some((from, NodeSet::ALL))))? {
            SwapIn::Found(n) => n,
            SwapIn::Busy(n) => return Ok(Some(FilePage::Busy(n))),
            SwapIn::New(n) => return Ok(Some(FilePage::Out(slot, n))),
            SwapIn::Gone => return Ok(None),
        };
        let back = self.move_from_swap(id, index, (slot, n));
        self.unlock_page(n);
        if let Back::Now = back {
            return Ok(Some(FilePage::Found(n)));
        }
        self.put_page(n);
        match back {
            Back::Closed => Ok(Some(FilePage::Closed)),
            Back::Beyond => Err(Error::BeyondFile),
            Back::Now | Back::Gone => Ok(None),
        }
    }

    /// Reads a page that `page_from_swap` has made, with no lock held but the file's `io`; the reference stays. May wait.
    ///
    /// # Errors
    /// [`Error::Device`]: the reference is gone.
    pub(super) fn read_from_swap(&self, slot: u32, n: FrameNumber) -> Result<(), Error> {
        // The address is one of a space, of which there is none here.
        self.swap_read(slot, n, PageNumber(0)).map_err(|_| Error::Device)
    }

    /// Brings a page of a memory file back that is in one of these slots of swap, this one a moment ago. Returns whether it is in the file's cache then. The
    /// caller shares the file's `io`. May wait, for memory as `from` says.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::LimitReached`]; [`Error::Device`].
    fn bring_page_back(
        &self,
        (id, index): (FileSlot, u64),
        mut slot: u32,
        own: &dyn Fn(u32) -> bool,
        (from, payer): (AllocFrom, fn(&Self) -> Payer),
    ) -> Result<bool, Error> {
        loop {
            match self.page_from_swap((id, index), slot, (from, || payer(self)))? {
                Some(FilePage::Busy(n)) => {
                    self.wait_page(n);
                    self.put_page(n);
                }
                Some(FilePage::Out(slot, n)) => {
                    self.read_from_swap(slot, n)?;
                    self.put_page(n);
                }
                Some(FilePage::Found(n) | FilePage::New(n)) => self.put_page(n),
                Some(FilePage::Closed) | None => {}
            }
            match self.find_cached(self.file_at(id), index) {
                Cached::Out(now) if own(now) => slot = now,
                Cached::Page(n) => {
                    self.put_page(n);
                    return Ok(true);
                }
                Cached::Out(_) | Cached::No => return Ok(false),
            }
        }
    }

    /// Brings those pages of a part of a memory file back that are in swap, as many as there is memory for without reclaim; returns how many came. Those that cannot be
    /// read stay away. The caller shares the file's `io`. May wait, not for memory.
    pub(super) fn read_ahead_from_swap(&self, id: FileSlot, part: Range<u64>) -> u64 {
        let (file, mut at, mut came, mut work) = (self.file_at(id), part.start, 0, Work::begin(self));
        let pays: fn(&Self) -> Payer = |mm| Payer::Within(mm.group_here());
        while let Some((index, slot)) = self.next_out(file, at..part.end, |_| true) {
            at = index + 1;
            match self.bring_page_back((id, index), slot, &|_| true, (AllocFrom::NOW, pays)) {
                Ok(is_there) => came += u64::from(is_there),
                // Of nobody who has asked for it.
                Err(Error::Device) => {}
                Err(_) => break,
            }
            work.did(cost::FAULT);
        }
        came
    }

    /// Brings what is in one of these slots of swap back to all memory files, charged to the group of whoever asks, above its limit if need be. Returns how
    /// many pages there were, and what kept those that could not be read. May wait.
    ///
    /// # Errors
    /// As `bring_page_back`, but for that.
    pub(crate) fn bring_files_back(&self, own: &dyn Fn(u32) -> bool) -> Result<(u64, Option<Error>), Error> {
        let (p, mut brought, mut unread, mut work) = (self.platform(), 0, None, Work::begin(self));
        let pays: fn(&Self) -> Payer = |mm| Payer::Regardless(mm.group_here());
        if self.root.memory_files.load(Ordering::Relaxed) == 0 {
            return Ok((0, None));
        }
        for slot in self.file_slots() {
            work.did(cost::TABLE);
            let Some(id) = self.live_file(slot).filter(|&id| self.is_memory_file(id)) else { continue };
            let file = self.file_at(slot);
            let _shared = file.io.read(self);
            let (mut at, end) = (0, if file.is(p, id) { file.pages(p) } else { 0 });
            while let Some((index, named)) = self.next_out(file, at..end, own) {
                (at, brought) = (index + 1, brought + 1);
                match self.bring_page_back((slot, index), named, own, (AllocFrom::HERE, pays)) {
                    // It stays; those behind it come.
                    Err(Error::Device) => unread = Some(Error::Device),
                    other => _ = other?,
                }
                work.did(cost::FAULT);
            }
        }
        Ok((brought, unread))
    }

    /// Lets go of the slots of a part of a memory file that has no pages in its cache, and to which none can come. By whoever has `io` alone.
    pub(super) fn drop_out(&self, id: FileSlot, part: Range<u64>) {
        if !self.is_memory_file(id) {
            return;
        }
        let (file, mut at, mut work) = (self.file_at(id), part.start, Work::begin(self));
        while let Some((index, slot)) = self.take_next_out(file, at..part.end) {
            at = index + 1;
            self.swap_drop(slot);
            work.did(cost::FRAME);
        }
    }
}
