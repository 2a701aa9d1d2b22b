//! Where in a file one is, and how long it is: unless its seals forbid it, it becomes longer or shorter, or gets a hole.

use core::sync::atomic::Ordering;

use crate::areas::PAGE;
use crate::call::watches::Reached;
use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::open::Kind;
use crate::process::{Thread, limit};
use crate::signal::number;
use crate::tree::{Inode, seal};

impl<M: Machine> Linux<'_, M> {
    /// Looks at the seals of a file and does what they may forbid. If it can have any, none is added meanwhile.
    pub(in crate::call) fn unless_sealed<R>(&self, inode: &Inode, work: impl FnOnce(u32) -> R) -> R {
        if inode.seals.load(Ordering::SeqCst) & seal::SEALABLE == 0 {
            return work(0);
        }
        inode.sealing.with(self.machine, |()| work(inode.seals.load(Ordering::SeqCst)))
    }

    pub(crate) fn lseek(&self, thread: &Thread, number: u64, by: i64, whence: u64) -> Answer {
        let open = self.open_used(thread, number)?;
        let end = match &open.kind {
            Kind::File(inode) => inode.file().map_or(0, |file| self.file_len(file)),
            Kind::Text(text, _) => text.with(|text| text.as_ref().map_or(0, |text| text.len())) as u64,
            Kind::Directory(_) | Kind::Space(..) | Kind::PageMap(..) => i64::MAX as u64,
            Kind::Device(..) => return Ok(0),
            _ => return Err(Errno::ESPIPE),
        };
        open.offset.with(self.machine, |offset| {
            let base = match whence {
                0 => 0,
                1 => *offset as i64,
                2 => end as i64,
                3 | 4 if by < 0 || by as u64 >= end => return Err(Errno::ENXIO),
                kind @ (3 | 4) => {
                    let at = by as u64;
                    let extents = open.inode().and_then(|inode| inode.extents());
                    // There is a hole at the end.
                    let found = match (extents, kind) {
                        (None, 3) => Some(at / PAGE),
                        (None, _) => None,
                        (Some(extents), 3) => extents.with(|extents| extents.data(at / PAGE)),
                        (Some(extents), _) => extents.with(|extents| extents.hole(at / PAGE)),
                    };
                    let found = match found.map(|page| (page * PAGE).max(at)).filter(|&found| found < end) {
                        Some(found) => found,
                        None if kind == 3 => return Err(Errno::ENXIO),
                        None => end,
                    };
                    *offset = found;
                    return Ok(found);
                }
                _ => return Err(Errno::EINVAL),
            };
            let new = base.checked_add(by).filter(|&new| new >= 0).ok_or(Errno::EINVAL)?;
            *offset = new as u64;
            Ok(*offset)
        })
    }

    /// How much of a write from `at` a process may still do; whoever may do nothing hears of it.
    pub(in crate::call) fn within_limit(&self, thread: &Thread, at: u64, bytes: u64) -> Result<u64, Errno> {
        let most = thread.process.limits.with(|limits| limits[limit::BYTES_OF_FILE][0]);
        if bytes == 0 || most.saturating_sub(at) > 0 {
            return Ok(bytes.min(most.saturating_sub(at)));
        }
        self.post_to_itself(thread, number::FILE_SIZE);
        Err(Errno::EFBIG)
    }

    pub(in crate::call) fn set_len(&self, thread: &Thread, reached: &Reached, len: u64) -> Answer {
        self.change_len(thread, reached, len, false)
    }

    /// The same; one that `only_grows` stays as it is if it is that long by now.
    fn change_len(&self, thread: &Thread, reached: &Reached, len: u64, only_grows: bool) -> Answer {
        let inode = &reached.inode;
        let file = inode.file().ok_or(if inode.is_directory() { Errno::EISDIR } else { Errno::EINVAL })?;
        if len >> 63 != 0 {
            return Err(Errno::EINVAL);
        }
        if len > self.file_len(file) {
            self.within_limit(thread, len - 1, 1)?;
        }
        self.drop_marks(thread, inode);
        let now = self.file_len(file);
        let change = |seals| {
            let now = self.file_len(file);
            if only_grows && len <= now {
                return Ok(());
            }
            if seals & seal::SHRINK != 0 && len < now || seals & seal::GROW != 0 && len > now {
                return Err(Errno::EPERM);
            }
            self.mm.file(file).set_size(len).map_err(|error| match error {
                quietmm::Error::BadRange => Errno::EFBIG,
                other => Errno::from(other),
            })?;
            if let Some(extents) = inode.extents() {
                extents.with(|extents| extents.cut(len.div_ceil(PAGE)..u64::MAX));
            }
            Ok(())
        };
        self.unless_sealed(inode, |seals| match inode.growing().filter(|_| only_grows) {
            Some(growing) => growing.with(self.machine, |()| change(seals)),
            None => change(seals),
        })?;
        if len < now {
            self.drop_copies(inode, len.div_ceil(PAGE));
        }
        inode.touch(self.clock());
        self.happened_at(reached, crate::watches::event::MODIFY);
        Ok(0)
    }

    pub(crate) fn ftruncate(&self, thread: &Thread, number: u64, len: u64) -> Answer {
        let open = self.open_used(thread, number)?;
        match &open.kind {
            Kind::File(_) if open.may_write() => {
                let reached = Reached::of(&open).ok_or(Errno::EINVAL)?;
                self.set_len(thread, &reached, len)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    pub(crate) fn truncate(&self, thread: &Thread, path: u64, len: u64) -> Answer {
        let reached = self.reach(thread, crate::call::HERE, path, true)?;
        self.may(thread, &reached.inode, crate::rights::WRITE)?;
        if reached.inode.uses.runs() {
            return Err(Errno::ETXTBSY);
        }
        self.set_len(thread, &reached, len)
    }

    pub(crate) fn fallocate(&self, thread: &Thread, number: u64, mode: u64, at: u64, bytes: u64) -> Answer {
        const KEEP: u64 = 1;
        const HOLE: u64 = 2;
        const ZEROS: u64 = 16;
        let open = self.open_used(thread, number)?;
        if (at as i64) < 0 || (bytes as i64) <= 0 {
            return Err(Errno::EINVAL);
        }
        let end = at + bytes;
        if !matches!(mode & !KEEP, 0 | HOLE | ZEROS) || mode == HOLE {
            return Err(Errno::EOPNOTSUPP);
        }
        if !open.may_write() {
            return Err(Errno::EBADF);
        }
        let Kind::File(inode) = &open.kind else {
            let is_pipe = matches!(open.kind, Kind::Pipe(_) | Kind::Both(..));
            return Err(if is_pipe { Errno::ESPIPE } else { Errno::ENODEV });
        };
        let file = inode.file().ok_or(Errno::ENODEV)?;
        if end >> 63 != 0 {
            return Err(Errno::EFBIG);
        }
        // As of all files in memory on Linux.
        if mode & ZEROS != 0 && inode.is_in_memory() {
            return Err(Errno::EOPNOTSUPP);
        }
        self.drop_marks(thread, inode);
        if mode & (HOLE | ZEROS) != 0 {
            self.punch(inode, at, bytes)?;
        }
        if mode & HOLE == 0 {
            if mode & KEEP == 0 && end > self.file_len(file) {
                let reached = Reached { inode: inode.clone(), above: None };
                self.change_len(thread, &reached, end, true)?;
            }
            if let Some(extents) = inode.extents() {
                extents.with(|extents| extents.keep(at / PAGE..end.div_ceil(PAGE)));
            }
        }
        Ok(0)
    }

    /// Makes a hole in a file, unless its seals forbid it.
    pub(crate) fn punch(&self, inode: &Inode, at: u64, bytes: u64) -> Result<(), Errno> {
        let file = inode.file().ok_or(Errno::EINVAL)?;
        self.unless_sealed(inode, |seals| {
            if seals & seal::WRITE != 0 {
                return Err(Errno::EPERM);
            }
            self.mm.file(file).punch_hole(at, bytes)?;
            if let Some(extents) = inode.extents() {
                let whole = at.div_ceil(PAGE)..(at + bytes) / PAGE;
                extents.with(|extents| extents.cut(whole));
            }
            Ok(())
        })
    }
}
