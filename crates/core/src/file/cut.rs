//! A file becomes longer or shorter, or gets a hole, while programs map it.
//!
//! A page that is cut off leaves its cache though others may hold it, or be about to map it:
//!
//! ```text
//!   a fault                               who cuts
//!   finds the page, holds it              page locked, marked
//!   table made, or found
//!   ---- fence ----                       ---- fence ----
//!   table locked: is the page marked?     walk: each table that shows it, locked
//!     yes: looks again                      its entry goes
//!     no: mapped                          flush; out of the cache; page unlocked
//! ```
//!
//! One of the two sees the other (INV-12). Whoever comes later waits for the page, and finds that it is gone: then the file's length, and
//! what is closed, say whether a new one may come. Both change under the lock of the tree, where pages come in.

use core::ops::Range;
use core::sync::atomic::Ordering;

use super::state::{FileState, MAX_PAGES};
use crate::Manager;
use crate::addr::{FrameNumber, PAGE_SIZE};
use crate::charge::charge;
use crate::error::Error;
use crate::event::{Event, FlushReason};
use crate::handle::{FileId, FileSlot};
use crate::memmap::{FrameVec, flag};
use crate::platform::{Platform, Store};
use crate::profile::Scope;
use crate::resched::{Work, cost};
use crate::rmap::{unmap_all, unmap_now};
use crate::rule::Rule;
use crate::tlb::{Fate, UnmapBatch};
use crate::view::File;

/// Pages that leave together, and are flushed once.
const TOGETHER: usize = 32;
/// How long to wait for an operation that has taken an entry out and not put it anywhere yet, in nanoseconds.
const MOMENT: u32 = 1000;

static ZEROS: [u8; PAGE_SIZE as usize] = [0; PAGE_SIZE as usize];

/// Whole pages inside a range of bytes.
fn whole_pages(bytes: &Range<u64>) -> Range<u64> {
    let start = bytes.start.div_ceil(PAGE_SIZE);
    start..(bytes.end / PAGE_SIZE).max(start)
}

impl FileState {
    /// Whether no page may come to `index` of the cache now. Under the lock of the tree.
    pub(super) fn is_closed<P: Platform>(&self, p: &P, index: u64) -> bool {
        (self.closed[0].get(p)..self.closed[1].get(p)).contains(&index)
            && !p.broken(Rule::ClosedWhileDiscarded)
    }

    /// Nobody reads or writes it, and it has no part into which no page may come. A moment's truth.
    pub(crate) fn is_idle<P: Platform>(&self, p: &P) -> bool {
        self.io.audit_free(p) && self.closed.iter().all(|end| end.get(p) == 0)
    }

    fn close<P: Platform>(&self, mm: &Manager<'_, P>, pages: &Range<u64>) {
        let _guard = self.lock.lock(mm);
        self.closed[0].set(mm.platform(), pages.start);
        self.closed[1].set(mm.platform(), pages.end);
    }

    /// By whoever has `io` alone.
    pub(super) fn set_len<P: Platform>(&self, mm: &Manager<'_, P>, len: u64) {
        let _guard = self.lock.lock(mm);
        self.len.store(mm.platform(), len, Ordering::Release);
    }
}

impl<'p, P: Platform> File<'_, 'p, P> {
    /// Length of a file in bytes.
    ///
    /// # Errors
    /// [`Error::NoSuchFile`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let file = mm.file(mm.create_file(16)?);
    /// assert_eq!(file.size()?, 16 * PAGE_SIZE);
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "i_size_read")]
    pub fn size(&self) -> Result<u64, Error> {
        let File { mm, id } = *self;
        let (p, file) = (mm.platform(), mm.find_file(id)?);
        let len = file.len.load(p, Ordering::Acquire);
        // It may have ended meanwhile, and this be the length of the next.
        if file.is(p, id) { Ok(len) } else { Err(Error::NoSuchFile) }
    }

    /// Makes a file longer or shorter, while programs map it. What it gains is zeros. What lies beyond its new end leaves memory,
    /// dirty or not, and a later access by a program that maps it is [`Error::BeyondFile`]; a private copy of such a page stays.
    /// May wait: for I/O, and for whoever reads or writes the file.
    ///
    /// One flush for up to 32 pages that were mapped: at most one IPI per CPU that uses a space where they were, and is neither
    /// lazy nor this one.
    ///
    /// # Errors
    /// [`Error::NoSuchFile`]; [`Error::BadRange`] above 2^40 pages; [`Error::OutOfMemory`]; [`Error::Device`] when the page in which
    /// the file ends cannot be read, or the device cannot [`discard`](crate::platform::BlockDevice::discard) what it gains. The
    /// file is as long as it was.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let file = mm.file(mm.create_file(16)?);
    /// file.write(0, b"cut here")?;
    /// file.set_size(3)?;
    /// let mut rest = [0; 8];
    /// assert_eq!(file.read(0, &mut rest)?, 3);
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "truncate_setsize")]
    #[doc(alias = "ftruncate")]
    pub fn set_size(&self, bytes: u64) -> Result<(), Error> {
        let File { mm, id } = *self;
        let _scope = charge(mm.platform(), Scope::CutFile);
        let file = mm.find_file(id)?;
        if bytes > MAX_PAGES * PAGE_SIZE || !mm.may_be_long(id, bytes) {
            return Err(Error::BadRange);
        }
        let _alone = file.io.write(mm);
        mm.set_len_alone((id, mm.find_file(id)?), bytes)
    }

    /// Makes a part of a file zeros, and lets go of the memory and of the device's blocks behind it: whole pages leave the cache, dirty
    /// or not. The file stays as long as it is; of the part beyond its end there is nothing to do. May wait: for I/O, and for whoever reads
    /// or writes the file.
    ///
    /// IPIs as in [`File::set_size`](crate::File::set_size).
    ///
    /// # Errors
    /// [`Error::NoSuchFile`]; [`Error::BadRange`] if the part is empty or wraps; [`Error::OutOfMemory`], [`Error::Device`]: a page that
    /// is made zeros in part could not be read, and nothing has changed. [`Error::Device`] also where the device cannot
    /// [`discard`](crate::platform::BlockDevice::discard) whole pages: then the file shows what the device has of them, without what
    /// was not written back.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let file = mm.file(mm.create_file(16)?);
    /// file.write(0, b"abcdef")?;
    /// file.punch_hole(1, 2)?;
    /// let mut rest = [0; 6];
    /// file.read(0, &mut rest)?;
    /// assert_eq!(&rest, b"a\0\0def");
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "fallocate")]
    #[doc(alias = "truncate_pagecache_range")]
    pub fn punch_hole(&self, at: u64, len: u64) -> Result<(), Error> {
        let File { mm, id } = *self;
        let _scope = charge(mm.platform(), Scope::CutFile);
        let file = mm.find_file(id)?;
        let end = at.checked_add(len).filter(|_| len > 0).ok_or(Error::BadRange)?;
        let _alone = file.io.write(mm);
        let file = mm.find_file(id)?;
        let bytes = at..end.min(file.pages(mm.platform()) * PAGE_SIZE);
        if bytes.is_empty() {
            return Ok(());
        }
        let pages = whole_pages(&bytes);
        // The parts of pages at both ends, which may be the same page.
        let first_end = bytes.start.next_multiple_of(PAGE_SIZE).min(bytes.end);
        let last_start = (bytes.end - bytes.end % PAGE_SIZE).max(first_end);
        let first = mm.page_of_part(id, bytes.start, first_end)?;
        let last = match mm.page_of_part(id, last_start, bytes.end) {
            Ok(last) => last,
            Err(error) => {
                first.into_iter().for_each(|n| mm.put_page(n));
                return Err(error);
            }
        };
        file.close(mm, &pages);
        mm.cut_pages(id.slot(), pages.clone());
        let discarded = mm.discard(id, pages);
        file.close(mm, &(0..0));
        for (page, start, end) in [(first, bytes.start, first_end), (last, last_start, bytes.end)] {
            let Some(n) = page else { continue };
            if discarded.is_ok() {
                let in_page = start % PAGE_SIZE;
                mm.clear_bytes(n, in_page..in_page + (end - start));
            }
            mm.put_page(n);
        }
        discarded
    }

    /// Lets go of cached pages of a file that are clean and used by nobody, from the page `first` on; returns how many. Pages that another
    /// CPU has read a moment ago, and not put on a list yet, stay. Dirty ones go after [`File::write_back`](crate::File::write_back). May wait for a lock, not for I/O. No IPI.
    ///
    /// # Errors
    /// [`Error::NoSuchFile`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let file = mm.file(mm.create_file(16)?);
    /// file.read(0, &mut [0; 8])?;
    /// mm.drain_lru_batch();
    /// assert_eq!(file.evict(0, 16)?, 1);
    /// assert_eq!(file.cached_pages()?, 0);
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "invalidate_mapping_pages")]
    #[doc(alias = "posix_fadvise")]
    pub fn evict(&self, first: u64, pages: u64) -> Result<u64, Error> {
        let File { mm, id } = *self;
        let p = mm.platform();
        let file = mm.find_file(id)?;
        let _shared = file.io.read(mm);
        mm.find_file(id)?;
        // Pages on their way to a list are held by that: those that other CPUs have there stay.
        mm.drain_lru_batch();
        let (mut at, mut gone, mut work) = (first, 0, Work::begin(mm));
        let end = first.saturating_add(pages).min(file.pages(p));
        while let Some((index, n)) = mm.ref_next_cached(id.slot(), at..end) {
            at = index + 1;
            gone += u64::from(mm.evict_held(id, index, n));
            work.did(cost::FRAME);
        }
        Ok(gone)
    }
}

impl<P: Platform> Manager<'_, P> {
    /// The same by whoever has the file's `io` alone.
    pub(super) fn set_len_alone(&self, (id, file): (FileId, &FileState), len: u64) -> Result<(), Error> {
        let old = file.len.get(self.platform());
        if len > old {
            self.prepare_growth((id, file), len)?;
            file.set_len(self, len);
            return Ok(());
        }
        let last = self.page_behind(id, len)?;
        file.set_len(self, len);
        let gone = len.div_ceil(PAGE_SIZE)..old.div_ceil(PAGE_SIZE);
        self.cut_pages(id.slot(), gone.clone());
        // Room for the device. It is asked again before the file shows these pages anew, and has to take it then.
        let _ = self.discard(id, gone);
        self.clear_behind(last, len);
        Ok(())
    }

    /// Makes all ready for a file to become longer: what it gains is zeros, which it does not show yet. By whoever has its `io` alone.
    pub(super) fn prepare_growth(&self, (id, file): (FileId, &FileState), len: u64) -> Result<(), Error> {
        let old = file.len.get(self.platform());
        let last = self.page_behind(id, old)?;
        let gained = old.div_ceil(PAGE_SIZE)..len.div_ceil(PAGE_SIZE);
        let ready = self.tree_grow(file, gained.end).and_then(|()| self.discard(id, gained));
        match ready {
            Ok(()) => self.clear_behind(last, old),
            Err(_) => last.into_iter().for_each(|n| self.put_page(n)),
        }
        ready
    }

    /// The page in which a length lies, held and read, if a part of it lies behind that.
    fn page_behind(&self, id: FileId, len: u64) -> Result<Option<FrameNumber>, Error> {
        self.page_of_part(id, len, len.next_multiple_of(PAGE_SIZE))
    }

    /// What programs may have written behind a length, in that page, is not shown later. Lets go of the page.
    fn clear_behind(&self, page: Option<FrameNumber>, len: u64) {
        page.into_iter().for_each(|n| {
            self.clear_bytes(n, len % PAGE_SIZE..PAGE_SIZE);
            self.put_page(n);
        });
    }

    /// Frees a page that the caller holds, if nobody else does but its cache and it is clean; else lets go of it.
    fn evict_held(&self, id: FileId, index: u64, n: FrameNumber) -> bool {
        let p = self.platform();
        if !self.memmap().get(n).try_lock(p) {
            self.put_page(n);
            return false;
        }
        // A mapping has a reference.
        if !self.remove_cached(self.file_at(id), index, n) {
            self.unlock_page(n);
            self.put_page(n);
            return false;
        }
        self.unlist(n);
        if let Some(device) = p.device() {
            device.forget(Store::File(id), index);
        }
        self.emit(Event::Evicted { frame: n });
        self.free_one(n);
        true
    }

    fn discard(&self, id: FileId, pages: Range<u64>) -> Result<(), Error> {
        match self.device_of(id) {
            Some(device) if !pages.is_empty() => device.discard(id, pages).map_err(|_| Error::Device),
            _ => Ok(()),
        }
    }

    /// The page in which the bytes from `start` to `end` lie, held and read, unless there are none.
    fn page_of_part(&self, id: FileId, start: u64, end: u64) -> Result<Option<FrameNumber>, Error> {
        (start < end).then(|| self.read_page(id, start / PAGE_SIZE)).transpose()
    }

    /// Makes bytes of a page that the caller holds zeros. May wait for the page.
    fn clear_bytes(&self, n: FrameNumber, bytes: Range<u64>) {
        self.lock_page(n);
        self.platform().write_frame(
            n,
            bytes.start as usize,
            &ZEROS[bytes.start as usize..bytes.end as usize],
        );
        self.make_dirty(n);
        self.unlock_page(n);
    }

    /// Takes the pages of a range out of a file's cache, out of all tables too. None comes there meanwhile: the file is shorter, or closed
    /// there. By whoever has `io` alone. May wait.
    fn cut_pages(&self, id: FileSlot, pages: Range<u64>) {
        let (mut at, mut work) = (pages.start, Work::begin(self));
        while at < pages.end {
            let mut held = FrameVec::new();
            at = self.ref_next_few_cached(id, at..pages.end, TOGETHER, &mut held);
            let cut = held.as_slice();
            if cut.is_empty() {
                break;
            }
            for &n in cut {
                self.lock_page(n);
                self.memmap().get(n).set_flags(self.platform(), flag::CUT);
            }
            // The fence that the module draws is the walk's, in `rmap::walk::walk_all`.
            self.unmap_cut(cut, &mut work);
            for &n in cut {
                // What entries knew is known by now, and of no use.
                let frame = self.memmap().get(n);
                let before = frame.clear_flags(self.platform(), flag::DIRTY | flag::UNUSED);
                self.note_unused(before);
                self.count_clean(before);
                // Unless the page could not be read, and has left the cache for that.
                let was_there = self.detach_cached(id, frame.index.get(self.platform()), n);
                self.unlock_page(n);
                self.put_page(n);
                if was_there {
                    self.put_page(n);
                }
            }
            // Each has left the tables that showed it, too.
            work.did(cut.len() as u32 * cost::RECLAIM);
        }
        // Those that go to swap before they are held here are there now.
        self.drop_out(id, pages);
    }

    /// Takes every entry of these pages out and flushes once. The caller holds them, and has locked and marked them.
    fn unmap_cut(&self, pages: &[FrameNumber], work: &mut Work<'_, '_, P>) {
        let p = self.platform();
        if p.broken(Rule::CutPagesAreUnmapped) {
            return;
        }
        let mut moment = || {
            // An operation has an entry in its hands: it lets go of the page, or puts the entry back.
            p.pause(MOMENT);
            work.give_way();
        };
        let all = |batch: &UnmapBatch<'_, '_, P>| {
            for &n in pages {
                while !unmap_all(batch, n) {
                    moment();
                }
                batch.push(n, Fate::Keep);
            }
        };
        if UnmapBatch::fill(self, FlushReason::Cut, all, |_, _| {}).is_err() {
            // No memory for a batch: a flush for each.
            for &n in pages {
                while !unmap_now(self, n) {
                    moment();
                }
            }
        }
    }
}
