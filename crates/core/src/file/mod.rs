//! Files: a page cache each, and the VMAs that show them.

mod cut;
mod flusher;
mod io;
mod memory;
mod readahead;
mod state;
mod tree;
mod watch;
mod window;
mod writeback;

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{FrameNumber, PAGE_SIZE};
use crate::error::Error;
use crate::event::Event;
use crate::frame::AllocFrom;
use crate::group::Payer;
use crate::handle::{FileId, FileSlot};
use crate::kind::Kind;
use crate::memmap::{Frame, flag};
use crate::platform::{Platform, Store, Transfer};
use crate::resched::{Work, cost};
use crate::view::File;
pub(crate) use state::{FileAt, FilePage, FileState, MAX_PAGES};
use tree::{Cached, Insert};
pub use window::ReadAhead;
pub(crate) use window::Window;

impl<'p, P: Platform> File<'_, 'p, P> {
    /// Ends a file that nobody maps, and lets go of its cached pages. May wait, for whoever reads or writes it too.
    /// Dirty pages are dropped. Costs no IPI: an unmapped page was flushed when it was unmapped.
    ///
    /// # Errors
    /// [`Error::NoSuchFile`]; [`Error::Busy`] while a VMA shows it.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let file = mm.file(mm.create_file(16)?);
    /// file.destroy()?;
    /// assert_eq!(file.size(), Err(Error::NoSuchFile));
    /// # Ok(())
    /// # });
    /// ```
    pub fn destroy(&self) -> Result<(), Error> {
        let File { mm, id } = *self;
        let p = mm.platform();
        let file = mm.find_file(id)?;
        let _idle = file.io.write(mm);
        {
            // Ended under the lock under which VMAs come to it: from here on none does, and nobody else ends it.
            let _alone = file.rmap.lock.write(p);
            if !file.is(p, id) {
                return Err(Error::NoSuchFile);
            }
            if !file.rmap.is_empty(p) {
                return Err(Error::Busy);
            }
            file.life.end(p);
        }
        let (mut at, mut work) = (0, Work::begin(mm));
        while let Some((index, n)) = mm.ref_next_cached(id.slot, at..file.pages(p)) {
            at = index + 1;
            // Whoever writes the page out, or reads it, does so of this file: that ends first, and none begins.
            mm.lock_page(n);
            // Whoever has pinned it, and writes to it, makes it dirty no more.
            mm.memmap().get(n).set_flags(p, flag::CUT);
            let before = mm.memmap().get(n).clear_flags(p, flag::DIRTY | flag::UNUSED);
            mm.note_unused(before);
            mm.count_clean(before);
            let was_there = mm.detach_cached(id.slot, index, n);
            mm.unlock_page(n);
            // Its own reference and the cache's, unless the page could not be read, and has left the cache for that.
            // Whoever still works on it (an LRU batch, reclaim) frees it when it lets go.
            mm.put_page(n);
            if was_there {
                mm.put_page(n);
            }
            work.did(cost::FRAME);
        }
        mm.drop_out(id.slot, 0..file.pages(p));
        if let Some(device) = p.device() {
            device.end(Store::File(id));
        }
        mm.root.files.release(mm, id.slot.0);
        Ok(())
    }

    /// Pages of a file that are cached now.
    ///
    /// # Errors
    /// [`Error::NoSuchFile`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let file = mm.file(mm.create_file(16)?);
    /// assert_eq!(file.cached_pages()?, 0);
    /// file.read(0, &mut [0; 8])?;
    /// assert_eq!(file.cached_pages()?, 1);
    /// # Ok(())
    /// # });
    /// ```
    pub fn cached_pages(&self) -> Result<u64, Error> {
        let File { mm, id } = *self;
        let (p, file) = (mm.platform(), mm.find_file(id)?);
        let cached = file.cached.load(p, Ordering::Acquire);
        // It may have ended meanwhile, and this be of the next.
        if file.is(p, id) { Ok(cached.into()) } else { Err(Error::NoSuchFile) }
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    pub(crate) fn file_at(&self, slot: impl Into<FileSlot>) -> &'p FileState {
        self.root.files.get(self, slot.into().0)
    }

    /// A file, by the handle that a caller gave.
    pub(crate) fn find_file(&self, id: FileId) -> Result<&'p FileState, Error> {
        let found = self.root.files.made(self, id.slot.0);
        found.filter(|file| file.is(self.platform(), id)).ok_or(Error::NoSuchFile)
    }

    /// The handle of the file that is in a slot, also while it ends.
    pub(crate) fn file_id(&self, slot: FileSlot) -> FileId {
        self.file_at(slot).id(self.platform(), slot)
    }

    /// The files that live. A moment's truth for each.
    pub(crate) fn live_files(&self) -> impl Iterator<Item = FileId> {
        self.file_slots().filter_map(|slot| self.live_file(slot))
    }

    /// Where files are, or were: there may be many of which none lives.
    pub(crate) fn file_slots(&self) -> impl DoubleEndedIterator<Item = FileSlot> + use<P> {
        (0..self.root.files.bound(self)).map(FileSlot)
    }

    /// The file in a slot, if one lives there.
    pub(crate) fn live_file(&self, slot: FileSlot) -> Option<FileId> {
        Some(self.file_id(slot)).filter(|&id| self.find_file(id).is_ok())
    }

    /// A new file of `pages` pages, all holes. The [`BlockDevice`](crate::platform::BlockDevice) is asked with the handle.
    /// May wait for memory.
    ///
    /// # Errors
    /// [`Error::BadRange`] above 2^40 pages; [`Error::OutOfMemory`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let file = mm.create_file(16)?;
    /// assert_eq!(mm.file(file).size()?, 16 * PAGE_SIZE);
    /// # Ok(())
    /// # });
    /// ```
    pub fn create_file(&self, pages: u64) -> Result<FileId, Error> {
        self.new_file(pages, false)
    }

    fn new_file(&self, pages: u64, memory: bool) -> Result<FileId, Error> {
        const { assert!(P::SPACES, "a platform without spaces") };
        let p = self.platform();
        if pages == 0 || pages > MAX_PAGES {
            return Err(Error::BadRange);
        }
        let slot = FileSlot(self.root.files.reserve(self, AllocFrom::HERE)?.commit());
        let file = self.file_at(slot);
        file.root.set(p, FrameNumber::NONE.0);
        file.levels.set(p, tree::levels(pages));
        file.cached.set(p, 0);
        // A page that no device keeps counts as no dirty one.
        let counted = self.counts_dirty() && !memory;
        file.watched.store(if counted { watch::COUNTED } else { 0 }, Ordering::Relaxed);
        file.memory.store(memory.into(), Ordering::Relaxed);
        file.dirty_since.set(p, 0);
        file.written_to.set(p, 0);
        file.backoff.clear(p);
        file.rmap.clear(p);
        file.len.set(p, pages * PAGE_SIZE);
        file.closed.iter().for_each(|end| end.set(p, 0));
        if self.config().read_ahead > 0 {
            file.mapped.clear(p);
        }
        file.life.begin(p);
        Ok(self.file_id(slot))
    }

    /// A page of a file, held for the caller, from its cache or on its way there. May wait for memory. The caller has a VMA
    /// that shows the file, or shares `io`, or the file could end meanwhile.
    ///
    /// A page is in the cache, locked, before it is read: whoever wants it too waits, and does not read a second frame whose
    /// content would be old once the first was written to, written out and forgotten. And the file ends only after that.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::BeyondFile`].
    pub(crate) fn file_page(&self, file: FileAt<'_>, index: u64) -> Result<FilePage, Error> {
        loop {
            let page = match self.find_cached(file.1, index) {
                Cached::Page(n) => Some(self.as_found(n)),
                Cached::Out(slot) => {
                    let payer = || Payer::Within(self.group_here());
                    self.page_from_swap((file.0, index), slot, (AllocFrom::HERE, payer))?
                }
                Cached::No if index >= file.1.pages(self.platform()) => {
                    return Err(Error::BeyondFile);
                }
                Cached::No => self.new_page_in_cache(file, index, None, AllocFrom::HERE)?,
            };
            if let Some(page) = page {
                return Ok(page);
            }
        }
    }

    /// A page behind all that a file shows, which makes it so many bytes long: held, locked and without content, and so nobody sees it yet. By whoever
    /// has `io` alone. May wait for memory.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    fn new_last_page(&self, file: FileAt<'_>, index: u64, len: u64) -> Result<FrameNumber, Error> {
        match self.new_page_in_cache(file, index, Some(len), AllocFrom::HERE)? {
            Some(FilePage::New(n)) => Ok(n),
            _ => unreachable!("nobody puts a page behind a file's end but who has it alone"),
        }
    }

    /// The same where none seems to be there, with no more memory than may be had so; `None` if it is in swap. With a length that is where the file
    /// ends from then on.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::BeyondFile`].
    fn new_page_in_cache(
        &self,
        (slot, file): FileAt<'_>,
        index: u64,
        len: Option<u64>,
        from: AllocFrom,
    ) -> Result<Option<FilePage>, Error> {
        let n = self.new_file_page(slot, index, from)?;
        match self.insert_cached(file, index, n, len, from) {
            Ok(Insert::Done) => Ok(Some(FilePage::New(n))),
            // Another CPU was faster.
            Ok(Insert::There(theirs)) => {
                self.free_one(n);
                Ok(Some(self.as_found(theirs)))
            }
            Ok(Insert::Closed) => {
                self.free_one(n);
                Ok(Some(FilePage::Closed))
            }
            Ok(Insert::Out) => {
                self.free_one(n);
                Ok(None)
            }
            Err(error) => {
                self.free_one(n);
                Err(error)
            }
        }
    }

    fn as_found(&self, n: FrameNumber) -> FilePage {
        let state = self.memmap().get(n).state.load(self.platform(), Ordering::Acquire);
        if state & flag::UNUSED != 0 {
            self.note_used(n);
        }
        // One that leaves the cache is locked until it has.
        if state & (flag::UNREAD | flag::CUT) == 0 { FilePage::Found(n) } else { FilePage::Busy(n) }
    }

    /// Whether a page that the caller holds leaves its file's cache, or has left it.
    pub(crate) fn is_cut(&self, n: FrameNumber) -> bool {
        let state = self.memmap().get(n).state.load(self.platform(), Ordering::Acquire);
        state & flag::CUT != 0 && Frame::kind_of(state) == Kind::File
    }

    /// Waits until no hole is made in a file.
    pub(crate) fn wait_open(&self, id: FileSlot) {
        drop(self.file_at(id).io.read(self));
    }

    /// A frame for a page of a file that nobody sees yet: locked and without content, with the cache's reference and
    /// the caller's.
    fn new_file_page(&self, id: FileSlot, index: u64, from: AllocFrom) -> Result<FrameNumber, Error> {
        let p = self.platform();
        let n = self.alloc_charged(Kind::File, from, self.group_here())?;
        let frame = self.memmap().get(n);
        frame.owner.set(p, id.0);
        frame.index.set(p, index);
        frame.maps.set(p, 0);
        frame.refs.set(p, Frame::CACHE_AND_CALLER);
        let memory = if self.is_memory_file(id) { flag::MEMORY } else { 0 };
        frame.state.set(p, frame.state.get(p) | flag::LOCKED | flag::UNREAD | memory);
        Ok(n)
    }

    /// Reads a page that is in the cache, locked, and lets go of the lock; the reference stays. No lock is held. May
    /// wait.
    ///
    /// # Errors
    /// [`Error::Device`]: the page has left the cache, and the reference is gone.
    pub(crate) fn read_in(&self, id: FileId, index: u64, n: FrameNumber) -> Result<(), Error> {
        let mut one = [Transfer::new(Store::File(id), index, n)];
        self.read_from_device(id, &mut one);
        if self.settle_read(id, &one[0], false) {
            return Ok(());
        }
        self.put_page(n);
        Err(Error::Device)
    }

    fn read_from_device(&self, id: FileId, transfers: &mut [Transfer]) {
        let p = self.platform();
        match (self.device_of(id), transfers) {
            (_, []) => {}
            (Some(device), [one]) => one.result = device.read(one.store, one.block, one.frame),
            (Some(device), several) => device.read_all(several),
            (None, holes) => holes.iter_mut().for_each(|one| {
                p.clear_frame(one.frame);
                one.result = Ok(());
            }),
        }
    }

    /// What came of a read, of a page that was asked for or one `ahead`: lets go of the lock. The caller's reference
    /// stays; without its content the page has left the cache.
    fn settle_read(&self, id: FileId, one: &Transfer, ahead: bool) -> bool {
        let (index, n) = (one.block, one.frame);
        if one.result.is_ok() {
            if ahead {
                self.memmap().get(n).set_flags(self.platform(), flag::UNUSED);
                self.emit(Event::ReadAhead);
            } else {
                self.note_refault(n, Store::File(id), index);
            }
            self.has_content(n);
            return true;
        }
        self.detach_cached(id.slot, index, n);
        self.unlock_page(n);
        // The cache's reference. Those who wait have their own, and try for themselves.
        self.put_page(n);
        false
    }

    /// A page that is in the cache, locked, has its content now: lets go of the lock.
    fn has_content(&self, n: FrameNumber) {
        // Release, with the unlock: whoever finds it read finds its content.
        self.memmap().get(n).clear_flags(self.platform(), flag::UNREAD);
        self.unlock_page(n);
        self.lru_add(n);
    }

    /// Somebody uses a page that may have been read ahead.
    pub(crate) fn note_used(&self, n: FrameNumber) {
        let (p, frame) = (self.platform(), self.memmap().get(n));
        if frame.state.fetch_and(p, !flag::UNUSED, Ordering::Relaxed) & flag::UNUSED != 0 {
            self.emit(Event::ReadAheadUsed);
        }
    }

    /// A page leaves the cache that was in this state.
    fn note_unused(&self, state: u32) {
        if state & flag::UNUSED != 0 {
            self.emit(Event::ReadAheadUnused);
        }
    }

    /// Puts another frame, locked, that is yet to get the content of this page, in its place in the cache, if nobody but the cache and the caller holds the page:
    /// with these of its flags, and the cache's reference. The caller then owns the old frame alone. The look and the change are one step under the
    /// tree's lock: a look afterwards would find a page that somebody has written to in between.
    pub(crate) fn replace_cached(&self, n: FrameNumber, new: FrameNumber, flags: u32) -> bool {
        self.must_be_locked(n);
        let (p, frame) = (self.platform(), self.memmap().get(n));
        let (file, index) = (self.file_at(FileSlot(frame.owner.get(p))), frame.index.get(p));
        let _guard = file.lock.lock(self);
        // The file may have ended, and its slot may be another file's by now.
        if self.cached_at(file, index) != Some(n) || !frame.freeze(p) {
            return false;
        }
        self.memmap().get(new).set_flags(p, frame.state.load(p, Ordering::Acquire) & flags);
        self.tree_page_moves(file, index, new);
        true
    }

    /// Takes a page out of the cache if nobody but the cache and the caller holds it and nobody made it
    /// dirty; the caller then owns it alone. The look and the taking are one step under the tree's lock,
    /// where every new reference is taken too (PITFALLS 35).
    pub(crate) fn remove_cached(&self, file: &FileState, index: u64, n: FrameNumber) -> bool {
        self.must_be_locked(n);
        let p = self.platform();
        let _guard = file.lock.lock(self);
        let frame = self.memmap().get(n);
        // The file may have ended, and its slot may be another file's by now.
        if self.cached_at(file, index) != Some(n) || !frame.freeze(p) {
            return false;
        }
        // Only now that nobody can reach the page: it may have been mapped, written and unmapped again since
        // the caller looked, and its dirtiness came before those references were dropped.
        let state = frame.state.load(p, Ordering::Acquire);
        if state & flag::DIRTY != 0 {
            frame.refs.store(p, Frame::CACHE_AND_CALLER, Ordering::Release);
            return false;
        }
        self.tree_remove(file, index);
        file.cached.set(p, file.cached.get(p) - 1);
        self.note_unused(state);
        true
    }
}
