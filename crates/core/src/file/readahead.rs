//! Read-ahead: pages that a sequential use of a file will want next come with the one that it wants now.
//!
//! Each use of a file has a *window*: the pages that were read ahead of it. It begins small and doubles while the use goes on, up to
//! [`Config::read_ahead`](crate::Config::read_ahead). The first page of the newest window is its *mark*: whoever comes there has the next
//! one read, before it runs out of pages.
//!
//! ```text
//!   miss at 0        0 | 1 2 3 4                      window of 4, mark at 1
//!   at 1             1 | . . . | 5 6 7 8 9 10 11 12   window of 8, mark at 5
//!   miss at 90       90                               no window: it may be the only one
//! ```
//!
//! What a use did last lies in a [`ReadAhead`]: a kernel keeps one for each descriptor, and all who map a file share one of the file's.
//! Where several go through a file by one of these, each would look like a jump to the others. So on a jump the cache is asked too:
//! pages that lie right before the wanted one were read by somebody who came this way, and the window is as large as that run.
//!
//! A device reads when it is told and no earlier: the window is one batch of [`BlockDevice::read_all`](crate::platform::BlockDevice::read_all), for
//! which whoever comes to the mark waits. Others who use the file go on meanwhile, but for those pages. A page that is read ahead is locked
//! and unread as any that is read; if it cannot be had it leaves the cache again, and whoever wants it tries for himself.
//! It takes only memory that is to be had for nothing.

use super::io::Whole;
use super::state::FilePage;
use super::window::{ReadAhead, Window};
use crate::Manager;
use crate::addr::FrameNumber;
use crate::error::Error;
use crate::frame::AllocFrom;
use crate::handle::FileId;
use crate::platform::{Platform, Store, Transfer};
use crate::resched::{Work, cost};
use crate::view::File;

/// Pages that one command to the device brings.
const TOGETHER: usize = 32;

/// Pages on their way from the device: in the cache, locked, unread, and held.
struct Batch {
    transfers: [Transfer; TOGETHER],
    len: usize,
}

impl<P: Platform> File<'_, '_, P> {
    /// [`File::read`](crate::File::read), by a use of the file that is remembered: where it is sequential, what it will want next is read
    /// with what it wants now, as far as [`Config::read_ahead`](crate::Config::read_ahead) says. May wait for memory and I/O. No IPI,
    /// unless it reclaims; for pages that nobody has asked for it does not.
    ///
    /// # Errors
    /// As [`File::read`](crate::File::read). That a page which nobody has asked for cannot be read is no error.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let file = mm.file(mm.create_file(16)?);
    /// let descriptor = ReadAhead::new(); // beside its position, in the kernel's table
    /// let mut buffer = [0; 100];
    /// assert_eq!(file.read_with(&descriptor, 0, &mut buffer)?, 100);
    /// assert_eq!(file.cached_pages()?, 1 + 4); // the first window
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "page_cache_sync_readahead")]
    #[doc(alias = "page_cache_async_readahead")]
    pub fn read_with(&self, open: &ReadAhead, at: u64, into: &mut [u8]) -> Result<usize, Error> {
        self.read_by(at, into, |index, asked| self.mm.read_page_with(self.id, index, asked, open))
    }

    /// Reads pages of a file that will be wanted soon, as many as there is memory for without reclaim; returns how many came. Those that
    /// cannot be read stay away. May wait for I/O. No IPI.
    ///
    /// # Errors
    /// [`Error::NoSuchFile`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let file = mm.file(mm.create_file(16)?);
    /// assert_eq!(file.read_ahead(12, 100)?, 4);
    /// assert_eq!(file.cached_pages()?, 4);
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "readahead")]
    #[doc(alias = "POSIX_FADV_WILLNEED")]
    pub fn read_ahead(&self, first: u64, pages: u64) -> Result<u64, Error> {
        let File { mm, id } = *self;
        let file = mm.find_file(id)?;
        let _shared = file.io.read(mm);
        mm.find_file(id)?;
        let part = first..first.saturating_add(pages);
        if file.is_memory() {
            // Holes are to be had at any time.
            return Ok(mm.read_ahead_from_swap(id.slot(), part));
        }
        mm.read_window(id, None, Window { pages: part, ahead: first })
    }
}

impl Batch {
    fn new() -> Self {
        let none = Transfer::new(Store::Swap(0), 0, FrameNumber::NONE);
        Batch { transfers: [none; TOGETHER], len: 0 }
    }

    fn is_full(&self) -> bool {
        self.len == TOGETHER
    }

    fn push(&mut self, id: FileId, index: u64, n: FrameNumber) {
        self.transfers[self.len] = Transfer::new(Store::File(id), index, n);
        self.len += 1;
    }
}

impl<P: Platform> Manager<'_, P> {
    /// As `read_page`, of the first of so many pages, by a use that remembers. The caller shares the file's `io`.
    fn read_page_with(
        &self,
        id: FileId,
        index: u64,
        asked: u64,
        open: &ReadAhead,
    ) -> Result<FrameNumber, Error> {
        if self.is_memory_file(id) {
            return self.read_page(id, index);
        }
        match self.whole_page(id, index)? {
            Whole::Read(n) => {
                self.read_window(id, None, self.window_of_hit(open, index))?;
                Ok(n)
            }
            Whole::Empty(n) => {
                let window = self.window_of_miss(open, id, index, asked);
                self.read_window(id, Some((index, n)), window).map(|_| n)
            }
        }
    }

    /// What to read now that a fault comes to a page that is in the cache, or is not.
    pub(crate) fn window_of_fault(&self, id: FileId, index: u64, cached: bool) -> Window {
        if self.config().read_ahead == 0 || self.is_memory_file(id) {
            return Window::default();
        }
        let mapped = &self.file_at(id.slot()).mapped;
        if cached { self.window_of_hit(mapped, index) } else { self.window_of_miss(mapped, id, index, 1) }
    }

    /// What to read now that a use comes to a page that is in the cache.
    fn window_of_hit(&self, open: &ReadAhead, index: u64) -> Window {
        match self.config().read_ahead {
            0 => Window::default(),
            most => open.hit(self.platform(), index, most.into()),
        }
    }

    /// What to read with a page that is not, the first of so many that are wanted. The file lives.
    fn window_of_miss(&self, open: &ReadAhead, id: FileId, index: u64, asked: u64) -> Window {
        match u64::from(self.config().read_ahead) {
            0 => Window::default(),
            most => open
                .miss(self.platform(), (index, asked), most, || self.cached_before(id.slot(), index, most)),
        }
    }

    /// Reads a page that a fault has put into the cache, with a window; with no VMA held. Where the file's length is being changed, or
    /// it ends, the page alone: whoever does that may wait for the page. May wait for I/O.
    ///
    /// # Errors
    /// As [`read_in`](Self::read_in).
    pub(crate) fn read_in_with(
        &self,
        (id, index): (FileId, u64),
        n: FrameNumber,
        window: Window,
    ) -> Result<(), Error> {
        if !window.is_empty()
            && let Some(_shared) = self.file_at(id.slot()).io.try_read(self)
            && self.find_file(id).is_ok()
        {
            return self.read_window(id, Some((index, n)), window).map(drop);
        }
        self.read_in(id, index, n)
    }

    /// Reads the window that a fault has come to the mark of, with no lock held; unless the file's length is being changed, or it has ended.
    /// May wait for I/O.
    pub(crate) fn read_next(&self, id: FileId, window: Window) {
        if let Some(_shared) = self.file_at(id.slot()).io.try_read(self)
            && self.find_file(id).is_ok()
        {
            // Of no page that anybody has asked for.
            let _ = self.read_window(id, None, window);
        }
    }

    /// Reads a page that is wanted, if one is: it is in the cache, locked; the reference to it stays. With it what of a
    /// window is not in memory, and for which there is some. Returns how many of those came. The caller shares the
    /// file's `io`. May wait for I/O.
    ///
    /// # Errors
    /// [`Error::Device`], of the page that is wanted: it has left the cache, and the reference is gone.
    fn read_window(
        &self,
        id: FileId,
        mut wanted: Option<(u64, FrameNumber)>,
        mut window: Window,
    ) -> Result<u64, Error> {
        let (mut came, mut result, mut work) = (0, Ok(()), Work::begin(self));
        loop {
            let mut batch = Batch::new();
            let first = wanted.take();
            first.into_iter().for_each(|(index, n)| batch.push(id, index, n));
            let more = self.gather(id, &mut window, &mut batch, &mut work);
            let transfers = &mut batch.transfers[..batch.len];
            self.read_from_device(id, transfers);
            for (at, one) in transfers.iter().enumerate() {
                let is_wanted = at == 0 && first.is_some();
                let read = self.settle_read(id, one, !is_wanted && one.block >= window.ahead);
                if is_wanted && !read {
                    result = Err(Error::Device);
                }
                if !is_wanted || !read {
                    self.put_page(one.frame);
                }
                came += u64::from(!is_wanted && read);
            }
            if !more || window.is_empty() {
                return result.map(|()| came);
            }
            work.did(TOGETHER as u32 * cost::FRAME);
        }
    }

    /// Puts pages of a window that are not in the cache there, and into the batch, until that is full; the window is what is left of it. Returns
    /// whether there is memory for more.
    fn gather(&self, id: FileId, window: &mut Window, batch: &mut Batch, work: &mut Work<'_, '_, P>) -> bool {
        let file = self.file_at(id);
        window.pages.end = window.pages.end.min(file.pages(self.platform()));
        while !batch.is_full()
            && let Some(index) = window.pages.next()
        {
            work.did(cost::TABLE);
            if self.is_cached(id.slot(), index) {
                continue;
            }
            // Only what is to be had for nothing: nobody reclaims for pages that nobody has asked for.
            match self.new_page_in_cache((id.slot(), file), index, None, AllocFrom::NOW) {
                Ok(Some(FilePage::New(n))) => batch.push(id, index, n),
                Ok(Some(FilePage::Found(there) | FilePage::Busy(there))) => self.put_page(there),
                Ok(Some(FilePage::Out(..) | FilePage::Closed) | None) | Err(_) => return false,
            }
        }
        true
    }
}
