//! Write-back: the dirty pages of a file to its device, while programs go on.

use core::ops::Range;
use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::FrameNumber;
use crate::charge::charge;
use crate::error::Error;
use crate::event::FlushReason;
use crate::handle::FileId;
use crate::memmap::FrameVec;
use crate::platform::Platform;
use crate::profile::Scope;
use crate::resched::{Work, cost};
use crate::rmap;
use crate::sync::full_fence;
use crate::tlb::{Fate, UnmapBatch};
use crate::view::File;
use crate::writeback;

/// Pages made clean together, and flushed once.
pub(super) const TOGETHER: usize = 32;

impl<'p, P: Platform> File<'_, 'p, P> {
    /// Writes every page of a file that was dirty when this was called to its device; returns how many. Programs may go on
    /// writing: to a page that is on its way they wait until it is out (INV-2). May wait.
    ///
    /// One flush for up to 32 pages: at most one IPI per CPU that uses a space through which one that is written out could be
    /// written to, and is neither lazy nor this one (INV-11, INV-2); none for pages that nobody has written to through a
    /// mapping.
    ///
    /// What a device that has a page pinned writes after that is not in it: of a watched file such a page stays dirty, and its file system is
    /// asked anew.
    ///
    /// # Errors
    /// [`Error::NoSuchFile`], [`Error::OutOfMemory`]; [`Error::Device`] when the device did not take a page, or there is
    /// none: the others are written, that one stays dirty.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let file = mm.file(mm.create_file(16)?);
    /// file.write(0, b"to be kept")?;
    /// assert_eq!(file.write_back()?, 1);
    /// assert_eq!(file.write_back()?, 0);
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "fsync")]
    #[doc(alias = "page_mkclean")]
    pub fn write_back(&self) -> Result<u64, Error> {
        let File { mm, id } = *self;
        if mm.find_file(id)?.is_memory() {
            return Ok(0);
        }
        let mut all = (0, false);
        mm.write_while(id, &mut all, || true)?;
        if all.1 { Err(Error::Device) } else { Ok(all.0) }
    }

    /// The same of `pages` pages from page `first` on: what lies elsewhere is not looked at. What lies beyond the file's end is nothing.
    ///
    /// # Errors
    /// As of [`write_back`](Self::write_back).
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let file = mm.file(mm.create_file(16)?);
    /// file.write(0, &[1; 3 * 4096])?;
    /// assert_eq!(file.write_back_range(1, 1)?, 1);
    /// assert_eq!(file.write_back()?, 2);
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "filemap_write_and_wait_range")]
    #[doc(alias = "sync_file_range")]
    pub fn write_back_range(&self, first: u64, pages: u64) -> Result<u64, Error> {
        let File { mm, id } = *self;
        if mm.find_file(id)?.is_memory() {
            return Ok(0);
        }
        let mut all = (0, false);
        mm.write_each(id, first..first.saturating_add(pages), &mut all, || true)?;
        if all.1 { Err(Error::Device) } else { Ok(all.0) }
    }
}

/// What came of some pages of a file.
pub(super) struct Round {
    pub written: u32,
    /// A device did not take one, which stays dirty.
    pub failed: bool,
    /// No page of the file lies behind them.
    pub was_last: bool,
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Writes a file's dirty pages back, in their order, for as long as they are to go, and adds how many were written and whether a device did not take
    /// one. May wait.
    ///
    /// # Errors
    /// As [`write_next`](Self::write_next).
    pub(super) fn write_while(
        &self,
        id: FileId,
        so_far: &mut (u64, bool),
        goes_on: impl Fn() -> bool,
    ) -> Result<(), Error> {
        let p = self.platform();
        let since =
            self.counts_dirty().then(|| self.find_file(id)).transpose()?.map(|file| &file.dirty_since);
        // Before the pages: whoever makes one dirty from here on says so again.
        let before = since.map_or(0, |since| since.swap(p, 0, Ordering::Relaxed));
        if since.is_some() {
            // Partner: the fence in `count_dirty`.
            full_fence(p);
        }
        let through = self.write_each(id, 0..u64::MAX, so_far, goes_on);
        if let Some(since) = since.filter(|_| before != 0 && through != Ok(true)) {
            // What is left is as old as it was, also where another page became dirty meanwhile, or one stayed so: that is younger. And where the
            // file has ended this may be the age of the next one in its slot, which nobody else would know.
            since.store(p, before, Ordering::Relaxed);
        }
        through.map(|_| ())
    }

    /// The same of a part of the file, of whose age nothing is known then. Returns whether it came to the end.
    ///
    /// # Errors
    /// As [`write_next`](Self::write_next).
    fn write_each(
        &self,
        id: FileId,
        range: Range<u64>,
        (written, failed): &mut (u64, bool),
        goes_on: impl Fn() -> bool,
    ) -> Result<bool, Error> {
        let (mut at, mut work) = (range.start, Work::begin(self));
        loop {
            let round = self.write_next(id, &mut at, range.end)?;
            *written += u64::from(round.written);
            *failed |= round.failed;
            if round.was_last {
                return Ok(true);
            }
            work.did(TOGETHER as u32 * cost::FRAME);
            if !goes_on() {
                return Ok(false);
            }
        }
    }

    /// Looks at the next few pages of a file that are in its cache, from `at` on, which moves behind them, and before `end`, and writes those out that are dirty.
    /// No lock is held. May wait.
    ///
    /// # Errors
    /// [`Error::NoSuchFile`], [`Error::OutOfMemory`].
    pub(super) fn write_next(&self, id: FileId, at: &mut u64, end: u64) -> Result<Round, Error> {
        let mm = self;
        let _scope = charge(mm.platform(), Scope::WriteBack);
        let file = mm.find_file(id)?;
        let (mut looked, mut dirty) = (FrameVec::new(), FrameVec::new());
        let make_clean = |batch: &UnmapBatch<'_, '_, P>| {
            let pages = *at..file.pages(mm.platform()).min(end);
            *at = mm.ref_next_few_cached(id.slot(), pages, TOGETHER, &mut looked);
            let ended = mm.find_file(id).is_err();
            for &n in looked.as_slice() {
                if ended {
                    // Perhaps another file's page: this one's were all let go before.
                    mm.put_page(n);
                    continue;
                }
                mm.lock_page(n);
                if rmap::clean(batch, n) {
                    batch.push(n, Fate::WriteBack);
                } else {
                    mm.let_go(n);
                }
            }
        };
        // Of those that nobody but a device can write to any more, by place. Looked at while they are dirty: who unpins
        // one later finds it so, or is counted here.
        let mut pinned = 0u32;
        UnmapBatch::fill(mm, FlushReason::Clean, make_clean, |n, _| {
            pinned |= u32::from(mm.is_watched_and_pinned(n)) << dirty.as_slice().len();
            dirty.push(n);
        })?;
        let writing = dirty.as_slice().len() as u32;
        let (mut written, mut failed) = (0, false);
        mm.pageout_begins(writing);
        writeback::write_all(mm, dirty.as_slice(), |n, ok| {
            match ok {
                true => written += 1,
                false => failed = true,
            }
            if ok && pinned & 1 != 0 {
                mm.ask_for_locked(id, mm.memmap().get(n).index.get(mm.platform()), n);
            }
            pinned >>= 1;
            mm.let_go(n);
        });
        mm.pageout_ends(writing);
        // It may have ended since that look: what it had then was dropped, unless this has it.
        if writing == 0 && mm.find_file(id).is_err() {
            return Err(Error::NoSuchFile);
        }
        Ok(Round { written, failed, was_last: looked.as_slice().len() < TOGETHER })
    }

    /// Whether a device may write to a page of a watched file that the caller has locked, and that no entry lets anybody write to.
    fn is_watched_and_pinned(&self, n: FrameNumber) -> bool {
        self.memmap().get(n).is_pinned(self.platform()) && self.is_page_watched(n)
    }

    fn let_go(&self, n: FrameNumber) {
        self.unlock_page(n);
        self.put_page(n);
    }
}
