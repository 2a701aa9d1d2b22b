//! Where pages are kept outside memory: the trait behind file pages and swap.

use core::ops::Range;

use crate::addr::FrameNumber;
use crate::handle::FileId;

/// What keeps a page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Store {
    /// A file. No later one has this handle, so nothing of an ended file can be taken for another's.
    File(FileId),
    /// A swap device, by the number with which it came to [`Swap::on`](crate::Swap::on).
    Swap(u32),
}

/// One page on its way between memory and what keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// What keeps it.
    pub store: Store,
    /// Its place there, in pages from the start.
    pub block: u64,
    /// Its frame.
    pub frame: FrameNumber,
    /// What became of it.
    pub result: Result<(), DeviceError>,
}

impl Transfer {
    /// A page that is yet to go.
    pub const fn new(store: Store, block: u64, frame: FrameNumber) -> Self {
        Transfer { store, block, frame, result: Err(DeviceError::Failed) }
    }
}

/// Block I/O: needed only by those who page files in and out, or swap.
///
/// Blocks are pages, counted from the start of the file or of the swap device. Calls may wait; they come with interrupts
/// on and no spin lock held. Pages are written out by reclaim: what a write needs of memory must be there before, or come by
/// [`AllocFrom::NOW`](crate::AllocFrom::NOW). A kernel that has devices which take several commands at once starts all transfers of
/// [`read_all`](Self::read_all) and [`write_all`](Self::write_all) before it waits for the first.
pub trait BlockDevice {
    /// Fill `frame` with the page; when it returns nothing writes to the frame any more. A hole of a file is zeros.
    ///
    /// # Errors
    /// When the content cannot be had: of a file the fault that wants it fails, of swap that of this page alone.
    fn read(&self, from: Store, block: u64, frame: FrameNumber) -> Result<(), DeviceError>;
    /// Write `frame` out; when it returns the content is safe, and nothing reads the frame any more: it may be another page
    /// next (INV-2).
    ///
    /// # Errors
    /// When it is not: the page stays in memory.
    fn write(&self, to: Store, block: u64, frame: FrameNumber) -> Result<(), DeviceError>;
    /// Several pages, of any stores; each gets its result. When this returns all are done.
    fn read_all(&self, transfers: &mut [Transfer]) {
        for one in transfers {
            one.result = self.read(one.store, one.block, one.frame);
        }
    }
    /// The same for writing.
    fn write_all(&self, transfers: &mut [Transfer]) {
        for one in transfers {
            one.result = self.write(one.store, one.block, one.frame);
        }
    }
    /// The page has left memory, and no CPU can use it any more: whoever keeps something for cached pages forgets it. Its content is wanted as
    /// before.
    ///
    /// A hint: it comes when the page is out of its cache, so what others do with the block may come first. The page may have been read anew
    /// and be in memory, the block of swap may be another page's, the file may have ended, and the swap device be off or on again. What is
    /// forgotten has to be what can be had again. Interrupts are on and no spin lock is held.
    fn forget(&self, store: Store, block: u64) {
        let _ = (store, block);
    }
    /// These blocks of a file are zeros from now on, until they are written again: a hole was punched, or the file became longer
    /// and shows them again. No page of them is in memory, or comes there before this returns: nobody calls [`forget`](Self::forget) for those that were. May wait.
    ///
    /// # Errors
    /// When they are not, and for a device that cannot tell: such files do not grow and get no holes.
    fn discard(&self, file: FileId, blocks: Range<u64>) -> Result<(), DeviceError> {
        let _ = (file, blocks);
        Err(DeviceError::Failed)
    }
    /// A page of a file that [`File::watch_writes`](crate::File::watch_writes) is about is to become writable through a shared
    /// mapping: a file system finds it a block, or refuses. From then on the page is dirty, and this is not called for it again
    /// until it has been written out. Where a device has the page pinned then, and may write to it without a fault, it is asked for as soon as
    /// it is written out; who refuses that cannot keep what the device writes later. May wait.
    ///
    /// The page is locked meanwhile: nobody reads it, writes it out or cuts it off. So nothing of a
    /// [`File`](crate::File) is called in here, and no lock is taken that is held around such a call.
    ///
    /// # Errors
    /// When the page cannot be kept: the fault gets [`Error::WriteRefused`](crate::Error::WriteRefused).
    fn page_mkwrite(&self, file: FileId, block: u64) -> Result<(), WriteRefused> {
        let _ = (file, block);
        Ok(())
    }
    /// The file has ended, and no other will have its handle: whoever keeps its pages forgets them. Or the swap device is not
    /// used any more; once this has returned its number may come back with the next [`Swap::on`](crate::Swap::on).
    fn end(&self, store: Store) {
        let _ = store;
    }
}

/// A file system lets nobody write to a page: it has no room for it, say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteRefused;

/// Why a device could not do it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceError {
    /// Not this block, not this time.
    Failed,
    /// It is not there any more, or takes nothing any more. A swap device gets no new pages then.
    Gone,
}
