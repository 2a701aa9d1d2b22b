//! Files to their device, and out of memory.

use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::open::Kind;
use crate::process::Thread;
use crate::tree::Inode;

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn write_back(&self, inode: &Inode) -> Result<(), Errno> {
        if let Some(file) = inode.file() {
            self.mm.file(file).write_back()?;
        }
        Ok(())
    }

    pub(crate) fn fsync(&self, thread: &Thread, number: u64) -> Answer {
        let open = self.open_file(thread, number)?;
        match &open.kind {
            Kind::File(inode) => self.write_back(inode).map(|()| 0),
            Kind::Directory(_) => Ok(0),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Reads ahead by itself.
    pub(crate) fn readahead(&self, thread: &Thread, number: u64) -> Answer {
        let open = self.open_file(thread, number)?;
        match &open.kind {
            _ if !open.may_read() => Err(Errno::EBADF),
            Kind::File(_) => Ok(0),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Part of a file to its device: all of it, if that is to be waited for.
    pub(crate) fn sync_file_range(&self, thread: &Thread, [number, at, bytes, flags]: [u64; 4]) -> Answer {
        const AFTER: u64 = 4;
        let open = self.open_file(thread, number)?;
        let end = at.checked_add(bytes).filter(|end| (at | end) >> 63 == 0);
        if flags & !7 != 0 || end.is_none() {
            return Err(Errno::EINVAL);
        }
        match &open.kind {
            Kind::File(inode) if flags & AFTER != 0 => self.write_back(inode).map(|()| 0),
            Kind::File(_) | Kind::Directory(_) | Kind::Device(..) | Kind::Text(..) => Ok(0),
            _ => Err(Errno::ESPIPE),
        }
    }

    pub(crate) fn fadvise(&self, thread: &Thread, [number, at, bytes, advice, ..]: [u64; 6]) -> Answer {
        const NOT_NEEDED: u64 = 4;
        let open = self.open_file(thread, number)?;
        if advice > 5 {
            return Err(Errno::EINVAL);
        }
        let inode = match &open.kind {
            Kind::File(inode) => inode,
            Kind::Pipe(_) => return Err(Errno::ESPIPE),
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
