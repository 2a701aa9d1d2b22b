//! Files to their device, and out of memory.

use core::ops::Range;

use crate::areas::PAGE;
use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::open::Kind;
use crate::process::Thread;
use crate::tree::Inode;

impl<M: Machine> Linux<'_, M> {
    /// Pages of a file to its device.
    pub(crate) fn write_back(&self, inode: &Inode, pages: Range<u64>) -> Result<(), Errno> {
        if let Some(file) = inode.file() {
            self.mm.file(file).write_back_range(pages.start, pages.end - pages.start)?;
        }
        Ok(())
    }

    pub(crate) fn fsync(&self, thread: &Thread, number: u64) -> Answer {
        let open = self.open_used(thread, number)?;
        match &open.kind {
            Kind::File(inode) => self.write_back(inode, 0..u64::MAX).map(|()| 0),
            Kind::Directory(_) => Ok(0),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Reads ahead by itself.
    pub(crate) fn readahead(&self, thread: &Thread, number: u64) -> Answer {
        let open = self.open_used(thread, number)?;
        match &open.kind {
            _ if !open.may_read() => Err(Errno::EBADF),
            Kind::File(_) => Ok(0),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Part of a file to its device, if that is to be waited for; all that is behind `at` where it has no length.
    pub(crate) fn sync_file_range(&self, thread: &Thread, [number, at, bytes, flags]: [u64; 4]) -> Answer {
        const AFTER: u64 = 4;
        let open = self.open_used(thread, number)?;
        let end = at.checked_add(bytes).filter(|end| (at | end) >> 63 == 0);
        let Some(end) = end.filter(|_| flags & !7 == 0) else { return Err(Errno::EINVAL) };
        let pages = at / PAGE..if bytes == 0 { u64::MAX } else { end.div_ceil(PAGE) };
        match &open.kind {
            Kind::File(inode) if flags & AFTER != 0 => self.write_back(inode, pages).map(|()| 0),
            Kind::File(_) | Kind::Directory(_) | Kind::Device(..) | Kind::Text(..) => Ok(0),
            _ => Err(Errno::ESPIPE),
        }
    }

    pub(crate) fn fadvise(&self, thread: &Thread, [number, at, bytes, advice, ..]: [u64; 6]) -> Answer {
        const NOT_NEEDED: u64 = 4;
        let open = self.open_used(thread, number)?;
        if advice > 5 || bytes >> 63 != 0 {
            return Err(Errno::EINVAL);
        }
        let inode = match &open.kind {
            Kind::File(inode) => inode,
            Kind::Pipe(_) | Kind::Both(..) => return Err(Errno::ESPIPE),
            _ => return Ok(0),
        };
        if advice == NOT_NEEDED
            && let Some(file) = inode.file()
        {
            let pages = if bytes == 0 { u64::MAX } else { bytes.div_ceil(4096) };
            self.mm.file(file).evict(at / 4096, pages)?;
        }
        Ok(0)
    }
}
