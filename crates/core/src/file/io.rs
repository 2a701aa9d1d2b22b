//! Reading and writing a file by copy: what a kernel's `read` and `write` are made of.
//!
//! Both go through the page cache, so a program that maps the file sees the same bytes. Whoever reads or writes shares the
//! file's lock; whoever changes its length has it alone. No lock of a space is taken, and the caller's buffer is the kernel's own: a
//! copy to a program's memory, which may fault, comes before or after.

use core::sync::atomic::Ordering;

use super::state::{FilePage, FileState, MAX_PAGES};
use crate::Manager;
use crate::addr::{FrameNumber, PAGE_SIZE};
use crate::charge::charge;
use crate::error::Error;
use crate::handle::FileId;
use crate::memmap::flag;
use crate::platform::{Platform, Store};
use crate::profile::Scope;
use crate::resched::{Work, cost};
use crate::rule::Rule;
use crate::view::File;

/// A part of a page.
struct Part {
    index: u64,
    /// Its first byte in the page.
    at: usize,
    len: usize,
}

/// A page that nobody else works on, held.
pub(super) enum Whole {
    /// With its content.
    Read(FrameNumber),
    /// In the cache now, locked, and without content.
    Empty(FrameNumber),
}

impl Part {
    /// What of so many bytes from `at` on lies in the first page.
    fn first(at: u64, bytes: u64) -> Part {
        let in_page = at % PAGE_SIZE;
        Part { index: at / PAGE_SIZE, at: in_page as usize, len: bytes.min(PAGE_SIZE - in_page) as usize }
    }

    /// Where in the file it ends.
    fn end(&self) -> u64 {
        self.index * PAGE_SIZE + (self.at + self.len) as u64
    }
}

impl<'p, P: Platform> File<'_, 'p, P> {
    /// Copies what a file has from byte `at` on into a buffer; returns how many bytes: fewer than the buffer takes where the file ends,
    /// or where a page could not be had. May wait for memory and I/O. No IPI, unless it reclaims.
    ///
    /// Each page is read as it is when its turn comes: a write at the same time may be seen in part.
    ///
    /// # Errors
    /// [`Error::NoSuchFile`]; [`Error::OutOfMemory`] and [`Error::Device`] if not a single byte could be had.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let file = mm.file(mm.create_file(16)?);
    /// file.write(4090, b"over a border")?;
    /// let mut buffer = [0; 13];
    /// assert_eq!(file.read(4090, &mut buffer)?, 13);
    /// assert_eq!(&buffer, b"over a border");
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "pread")]
    #[doc(alias = "generic_file_read_iter")]
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<usize, Error> {
        self.read_by(at, into, |index, _| self.mm.read_page(self.id, index))
    }

    /// The same with pages as `page` returns them, held, which hears how many are wanted from there on.
    pub(super) fn read_by(
        &self,
        at: u64,
        into: &mut [u8],
        page: impl Fn(u64, u64) -> Result<FrameNumber, Error>,
    ) -> Result<usize, Error> {
        let File { mm, id } = *self;
        let p = mm.platform();
        let _scope = charge(p, Scope::ReadFile);
        let file = mm.find_file(id)?;
        let _shared = file.io.read(mm);
        let left = mm.find_file(id)?.len.load(p, Ordering::Acquire).saturating_sub(at);
        let all = into.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let (mut done, mut work) = (0, Work::begin(mm));
        while done < all {
            let part = Part::first(at + done as u64, (all - done) as u64);
            let asked = (at + all as u64).div_ceil(PAGE_SIZE) - part.index;
            let n = match page(part.index, asked) {
                Ok(n) => n,
                Err(error) => return if done > 0 { Ok(done) } else { Err(error) },
            };
            p.read_frame(n, part.at, &mut into[done..done + part.len]);
            mm.note_use(n);
            mm.put_page(n);
            done += part.len;
            work.did(cost::FAULT);
        }
        Ok(done)
    }

    /// Copies a buffer into a file from byte `at` on; returns how many bytes: fewer than there are where a page could not be had. The
    /// file becomes longer where it has to; what lies between its old end and `at` is zeros. The content is in memory, dirty, when this
    /// returns: [`File::write_back`](crate::File::write_back) writes it out. May wait for memory and I/O. No IPI, unless it reclaims, or has to write back
    /// itself ([`Config::dirty_limit`](crate::Config::dirty_limit)): then those of `File::write_back`.
    ///
    /// A write inside a file shares it with other reads and writes: of two at the same place each page is one's or the other's. One that makes it
    /// longer has it alone, and lengthens it page by page: programs that map the file see no part of it before what is written there.
    ///
    /// # Errors
    /// [`Error::NoSuchFile`]; [`Error::BadRange`] if it ended above 2^40 pages; [`Error::OutOfMemory`] and [`Error::Device`] if not a
    /// single byte could be written: the file is as long as it was.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let file = mm.file(mm.create_file(16)?);
    /// // Beyond its end it becomes longer.
    /// file.write(16 * PAGE_SIZE, b"more")?;
    /// assert_eq!(file.size()?, 16 * PAGE_SIZE + 4);
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "pwrite")]
    #[doc(alias = "generic_perform_write")]
    pub fn write(&self, at: u64, from: &[u8]) -> Result<usize, Error> {
        let File { mm, id } = *self;
        let p = mm.platform();
        let _scope = charge(p, Scope::WriteFile);
        let file = mm.find_file(id)?;
        let end = at
            .checked_add(from.len() as u64)
            .filter(|&end| end <= MAX_PAGES * PAGE_SIZE && mm.may_be_long(id, end))
            .ok_or(Error::BadRange)?;
        if from.is_empty() {
            return Ok(0);
        }
        {
            let _shared = file.io.read(mm);
            if end <= mm.find_file(id)?.len.load(p, Ordering::Acquire) {
                return mm.write_parts(at, from, |part, from| mm.write_part(id, part, from));
            }
        }
        let _alone = file.io.write(mm);
        mm.write_longer((id, mm.find_file(id)?), at, from)
    }
}

impl<P: Platform> Manager<'_, P> {
    /// The same where the file may have to become longer, by whoever has `io` alone. Its length follows what is written, page by page: else a
    /// program that maps the file would find zeros there, and what it stores would be written over.
    fn write_longer(&self, (id, file): (FileId, &FileState), at: u64, from: &[u8]) -> Result<usize, Error> {
        let p = self.platform();
        let (old, end) = (file.len.get(p), at + from.len() as u64);
        if end > old {
            self.prepare_growth((id, file), end)?;
        }
        if p.broken(Rule::ContentBeforeLength) {
            file.set_len(self, old.max(end));
        }
        let pages = file.pages(p);
        self.write_parts(at, from, |part, from| {
            if part.index >= pages {
                return self.write_new_part((id, file), part, from);
            }
            self.write_part(id, part, from)?;
            if part.end() > file.len.get(p) {
                file.set_len(self, part.end());
            }
            Ok(())
        })
    }

    /// Writes part by part; returns how many bytes, if any could be.
    fn write_parts(
        &self,
        at: u64,
        from: &[u8],
        write: impl Fn(&Part, &[u8]) -> Result<(), Error>,
    ) -> Result<usize, Error> {
        let (mut done, mut work) = (0, Work::begin(self));
        while done < from.len() {
            let part = Part::first(at + done as u64, (from.len() - done) as u64);
            if let Err(error) = write(&part, &from[done..done + part.len]) {
                return if done > 0 { Ok(done) } else { Err(error) };
            }
            done += part.len;
            work.did(cost::FAULT);
        }
        Ok(done)
    }

    /// Makes a file longer by a page, or more if a hole comes before it, and writes a part of that page. By whoever has `io` alone.
    fn write_new_part(
        &self,
        (id, file): (FileId, &FileState),
        part: &Part,
        from: &[u8],
    ) -> Result<(), Error> {
        let p = self.platform();
        self.balance_dirty(id, part.index);
        // Whoever finds it now waits until it has its content.
        let n = self.new_last_page((id.slot(), file), part.index, part.end())?;
        if from.len() as u64 != PAGE_SIZE {
            p.clear_frame(n);
        }
        p.write_frame(n, part.at, from);
        self.make_dirty(n);
        self.has_content(n);
        self.put_page(n);
        Ok(())
    }

    /// Writes inside a file. The caller shares `io`, or has it alone.
    fn write_part(&self, id: FileId, part: &Part, from: &[u8]) -> Result<(), Error> {
        let p = self.platform();
        self.balance_dirty(id, part.index);
        let n = if from.len() as u64 == PAGE_SIZE {
            match self.whole_page(id, part.index)? {
                // Nothing of it is there yet, and nothing needs to be read.
                Whole::Empty(n) => {
                    p.write_frame(n, 0, from);
                    self.make_dirty(n);
                    self.note_refault(n, Store::File(id), part.index);
                    self.has_content(n);
                    self.put_page(n);
                    return Ok(());
                }
                Whole::Read(n) => n,
            }
        } else {
            self.read_page(id, part.index)?
        };
        // INV-2: nobody writes it out meanwhile. And a program that maps it may write on: that is its own affair.
        let locks = !p.broken(Rule::WriteLocksPage);
        if locks {
            self.lock_page(n);
        }
        p.write_frame(n, part.at, from);
        self.make_dirty(n);
        if locks {
            self.unlock_page(n);
        }
        self.note_use(n);
        self.put_page(n);
        Ok(())
    }

    /// A page of a file, held, with its content. The caller shares `io`, or has it alone, and `index` lies in the file: nobody cuts
    /// the page off. May wait.
    pub(super) fn read_page(&self, id: FileId, index: u64) -> Result<FrameNumber, Error> {
        match self.whole_page(id, index)? {
            Whole::Read(n) => Ok(n),
            Whole::Empty(n) => self.read_in(id, index, n).map(|()| n),
        }
    }

    /// The same, or one without content.
    pub(super) fn whole_page(&self, id: FileId, index: u64) -> Result<Whole, Error> {
        let file = (id.slot(), self.file_at(id));
        loop {
            match self.file_page(file, index)? {
                FilePage::Found(n) => return Ok(Whole::Read(n)),
                FilePage::New(n) => return Ok(Whole::Empty(n)),
                FilePage::Busy(n) => {
                    self.wait_page(n);
                    self.put_page(n);
                }
                FilePage::Out(slot, n) => {
                    self.read_from_swap(slot, n)?;
                    self.put_page(n);
                }
                FilePage::Closed => unreachable!("who makes a hole has the file alone"),
            }
        }
    }

    /// A page in the cache was used otherwise than through a mapping: aging counts that as one use.
    #[doc(alias = "mark_page_accessed")]
    fn note_use(&self, n: FrameNumber) {
        let (p, frame) = (self.platform(), self.memmap().get(n));
        if frame.state.load(p, Ordering::Relaxed) & flag::REFERENCED == 0 {
            frame.set_flags(p, flag::REFERENCED);
        }
    }
}
