//! What a fault waits for outside: with the VMAs of its space let go.
//!
//! A device may take milliseconds. Were the VMAs held so long, one `map` that waits to have them alone would stop the
//! faults of all threads, who stand behind it. So a fault that must read a page, or wait for whoever works on one, notes it, lets
//! go of the VMAs, does it, and begins anew (Linux: `VM_FAULT_RETRY`): other VMAs may be there by now, and the space may have
//! ended. What it has read or waited for it holds meanwhile, so that reclaim does not take it and the next round finds it.

use crate::Manager;
use crate::addr::{FrameNumber, PageNumber, PageRange};
use crate::error::Error;
use crate::file::{FileAt, Window};
use crate::handle::{FileId, FileSlot, SpaceId};
use crate::platform::Platform;
use crate::rule::Rule;
use crate::vma::{SpaceState, Vma};

/// Something to be waited for with no VMA held.
#[must_use = "its page stays held, and locked if it is to be read"]
pub(super) enum Outside {
    /// Whoever has locked this page. It is held.
    Page(FrameNumber),
    /// A page of a file: in its cache, held, locked, and yet to be read, with others.
    File((FileId, u64), FrameNumber, Window),
    /// The same of a swap slot.
    Swap(u32, FrameNumber),
    /// The file system, which is asked whether this page of a file may be written to. It is held.
    Write(FileId, u64, FrameNumber),
    /// The hole that is made in a file.
    Hole(FileSlot),
    /// Whoever drops the page, with the VMAs of its space shared.
    Dropped(SpaceId),
}

/// A page that a fault has waited for, held until the fault ends.
pub(super) struct Kept<'m, 'p, P: Platform> {
    mm: &'m Manager<'p, P>,
    page: Option<FrameNumber>,
    /// The file that it is a page of, and which, if this fault has read it.
    file: Option<(FileId, u64)>,
}

impl<P: Platform> Kept<'_, '_, P> {
    /// This page of a file, with the reference, if it is the one that this fault has read: while the file lives a page that is
    /// held stays in its cache, unless it is cut off. By whoever holds the VMAs, of which one shows it.
    pub fn take_if(&mut self, (slot, file): FileAt<'_>, index: u64) -> Option<FrameNumber> {
        let p = self.mm.platform();
        let read = self.file?;
        if read != (file.id(p, slot), index) && !p.broken(Rule::RetryLooksAnew) {
            return None;
        }
        self.file = None;
        self.page.take()
    }
}

impl<P: Platform> Drop for Kept<'_, '_, P> {
    fn drop(&mut self) {
        self.page.into_iter().for_each(|page| self.mm.put_page(page));
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Does `work` with the VMA that holds the page `at` while nobody changes it, again and again until it has to wait for nothing outside.
    /// `major` becomes true if something was read. May wait.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`], also if it ends meanwhile; [`Error::NotMapped`]; what `work` says; [`Error::Device`],
    /// [`Error::SwapDevice`], [`Error::WriteRefused`].
    pub(super) fn with_vma<'m>(
        &'m self,
        id: SpaceId,
        at: PageNumber,
        major: &mut bool,
        mut work: impl FnMut(
            (&'p SpaceState, &'p Vma),
            &mut Kept<'m, 'p, P>,
            &mut bool,
        ) -> Result<Option<Outside>, Error>,
    ) -> Result<(), Error> {
        let mut kept = Kept { mm: self, page: None, file: None };
        loop {
            let (space, vma, shared) = self.share_vma(id, at)?;
            let outside = work((space, vma), &mut kept, major)?;
            drop(shared);
            let Some(outside) = outside else { return Ok(()) };
            kept = self.wait_outside(outside, at, major)?;
        }
    }

    #[inline(always)]
    fn wait_outside(
        &self,
        outside: Outside,
        at: PageNumber,
        major: &mut bool,
    ) -> Result<Kept<'_, 'p, P>, Error> {
        let (page, file) = match outside {
            Outside::Hole(file) => {
                self.wait_open(file);
                return Ok(Kept { mm: self, page: None, file: None });
            }
            Outside::Dropped(id) => {
                drop(self.write_lock(id, PageRange::new(at, 1))?);
                return Ok(Kept { mm: self, page: None, file: None });
            }
            Outside::Page(page) => {
                self.wait_page(page);
                (page, None)
            }
            Outside::File(place, page, window) => {
                self.read_in_with(place, page, window)?;
                *major = true;
                (page, Some(place))
            }
            Outside::Write(file, index, page) => {
                if !self.ask_to_write(file, index, page) {
                    self.put_page(page);
                    return Err(Error::WriteRefused(at));
                }
                (page, None)
            }
            Outside::Swap(slot, page) => {
                self.swap_read(slot, page, at)?;
                *major = true;
                (page, None)
            }
        };
        Ok(Kept { mm: self, page: Some(page), file })
    }
}
