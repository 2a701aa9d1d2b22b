//! Files of which it is known before a page can be written to through a mapping: the file system is asked first.
//!
//! A program writes to a page that it shares without a word to anybody. In a watched file a page is therefore read-only in all entries
//! while it is clean. The fault that wants to write has the file system asked, with the VMAs let go and the page locked, and makes the page
//! dirty; then it looks again, and only a page that is dirty, and not locked, becomes writable. Write-back locks the page, takes
//! the right to write away from all entries, and makes it clean: the next write is a fault again. A device that has the page pinned may
//! write on without a fault: for such a page the file system is asked anew as soon as it is written out, and it is dirty again.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::FrameNumber;
use crate::error::Error;
use crate::event::Event;
use crate::handle::FileId;
use crate::memmap::flag;
use crate::platform::Platform;
use crate::view::File;

use super::state::FileState;

/// Why it is known: dirty pages are counted,
pub(super) const COUNTED: u32 = 1;
/// or the file system is asked.
const ASKED: u32 = 2;

impl FileState {
    /// Whether it is known before a page of it can be written to. Under the lock of `rmap`, or by whoever has a VMA that shows it.
    pub(crate) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed) != 0
    }

    /// Whether its file system is asked. As above.
    pub(super) fn is_asked_for(&self) -> bool {
        self.watched.load(Ordering::Relaxed) & ASKED != 0
    }
}

impl<'p, P: Platform> File<'_, 'p, P> {
    /// From now on [`BlockDevice::page_mkwrite`](crate::platform::BlockDevice::page_mkwrite) is called before a page of this file becomes
    /// writable through a shared mapping: each time anew once it was written out. [`File::write`](crate::File::write),
    /// `set_size` and `punch_hole` do not call it: who calls these knows. Costs a fault for each page that a program writes to after
    /// it was clean. May wait for a lock.
    ///
    /// # Errors
    /// [`Error::NoSuchFile`]; [`Error::Busy`] while a VMA shows it: best done when it is made.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let file = mm.file(mm.create_file(16)?);
    /// file.watch_writes()?;
    /// let (space, range) = (mm.space(mm.create_space()?), PageRange::new(PageNumber(0x400), 16));
    /// space.map(range, Backing::File { file: file.id(), offset: 0 }, Prot::ReadWrite)?;
    /// space.fault(range.start.addr(), UserAccess::Read)?;
    /// assert!(!space.lookup(range.start)?.permits(UserAccess::Write));
    /// // Now the file system is asked.
    /// space.fault(range.start.addr(), UserAccess::Write)?;
    /// assert!(space.lookup(range.start)?.permits(UserAccess::Write));
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "page_mkwrite")]
    pub fn watch_writes(&self) -> Result<(), Error> {
        let File { mm, id } = *self;
        let p = mm.platform();
        let file = mm.find_file(id)?;
        let _alone = file.rmap.lock.write(p);
        if !file.is(p, id) {
            return Err(Error::NoSuchFile);
        }
        if !file.rmap.is_empty(p) {
            return Err(Error::Busy);
        }
        file.watched.fetch_or(ASKED, Ordering::Relaxed);
        Ok(())
    }
}

impl<P: Platform> Manager<'_, P> {
    /// Asks the file system whether a page, which the caller holds, may be written to, and makes it dirty if so: the caller looks at
    /// it again. Returns false if not. The file may have lost the page, or ended, meanwhile, and somebody else may have asked: then nobody is
    /// asked. No lock is held. May wait.
    pub(crate) fn ask_to_write(&self, id: FileId, index: u64, n: FrameNumber) -> bool {
        self.balance_dirty(id, index);
        let is_dirty = || self.memmap().get(n).state.get(self.platform()) & flag::DIRTY != 0;
        self.lock_page(n);
        // Whoever takes it out of the cache locks it first.
        let may = !self.is_page_of(id, index, n) || is_dirty() || self.ask_for_locked(id, index, n);
        self.unlock_page(n);
        may
    }

    /// Asks for a page of a file that the caller has locked, and makes it dirty if it may be written to. May wait.
    pub(super) fn ask_for_locked(&self, id: FileId, index: u64, n: FrameNumber) -> bool {
        let mut may = true;
        if self.file_at(id.slot()).is_asked_for() {
            may = self.platform().device().is_none_or(|device| device.page_mkwrite(id, index).is_ok());
            self.emit(Event::WriteAsked { may });
        }
        if may {
            self.make_dirty(n);
        }
        may
    }
}
