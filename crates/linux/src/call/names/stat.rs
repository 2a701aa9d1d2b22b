//! What is said of files.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use super::{EMPTY_PATH, NO_FOLLOW};
use crate::call::HERE;
use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::layout::{Pack, Stat};
use crate::machine::Machine;
use crate::open::{Kind, Open, flag};
use crate::process::Thread;
use crate::procfs::is_of_proc;
use crate::rights;
use crate::tree::{Body, Inode, mode};

/// Kinds of file systems, as `statfs` has them.
const TMPFS: u64 = 0x0102_1994;
const PROC: u64 = 0x9fa0;
const PIPES: u64 = 0x5049_5045;

/// Flags of `stat`: nothing is mounted by being looked at, and how fresh what is said is to be: it is.
const AUTOMOUNT: u64 = 0x800;
const FRESH: u64 = 0x6000;

impl<M: Machine> Linux<'_, M> {
    fn stat_of(&self, inode: &Inode) -> Stat {
        let (bytes, pages) = match &inode.body {
            Body::File(content) => {
                let bytes = self.file_len(content.file);
                (bytes, content.extents.with(|extents| extents.count(bytes.div_ceil(4096))))
            }
            // A link's target lies beside the link.
            Body::Link(target) => (target.len() as u64, 0),
            Body::Directory(_) => (4096, 1),
            _ => (0, 0),
        };
        let device = match &inode.body {
            Body::Device(device) => device.number(),
            Body::Terminal(terminal) => crate::terminal::device(terminal.number),
            _ => 0,
        };
        let mode = inode.mode.load(Ordering::Relaxed);
        let times = [&inode.accessed, &inode.modified, &inode.changed];
        // What is made up has no length, one name, and is as old as its process at most: as it is looked at.
        let made_up = crate::procfs::is_made_up(inode);
        let now = self.clock();
        Stat {
            lies_on: if is_of_proc(inode) { 2 } else { 1 },
            number: inode.number,
            mode,
            links: if made_up { inode.names().max(1) } else { inode.names() },
            device,
            bytes: if made_up { 0 } else { bytes },
            pages: if made_up { 0 } else { pages },
            times: times.map(|time| match time.load(Ordering::Relaxed) {
                0 if made_up => now,
                time => time,
            }),
            born: if made_up && inode.born == 0 { now } else { inode.born },
            owner: [0, 1].map(|which| inode.owner[which].load(Ordering::Relaxed)),
        }
    }

    fn stat_open(&self, open: &Open) -> Stat {
        if let Some(inode) = open.inode() {
            return self.stat_of(inode);
        }
        let (mode, device) = match &open.kind {
            Kind::Pipe(_) | Kind::Both(..) => (mode::PIPE | 0o600, 0),
            // A pipe, and no terminal: that is what the output goes to.
            Kind::Console(_) => (mode::PIPE | 0o600, 0),
            Kind::Socket(socket) => (mode::SOCKET | socket.rights.load(Ordering::Relaxed), 0),
            _ => (0o600, 0),
        };
        let own = match &open.kind {
            // Both ends are one file.
            Kind::Pipe(end) | Kind::Both(end, _) => Arc::as_ptr(&end.pipe).addr(),
            _ => core::ptr::from_ref(open).addr(),
        };
        let number = own as u64 >> 4 & 0xffff_ffff;
        let (times, born) = ([self.clock(); 3], self.clock());
        Stat { lies_on: 1, number, mode, links: 1, device, bytes: 0, pages: 0, times, born, owner: [0; 2] }
    }

    fn stat_at(&self, thread: &Thread, directory: u64, path: u64, flags: u64) -> Result<Stat, Errno> {
        if flags & EMPTY_PATH != 0 && (path == 0 || self.load_path(path)?.is_empty()) {
            if directory as u32 == HERE as u32 {
                let here = thread.process.place.with(|place| place.directory.clone());
                return Ok(self.stat_of(&here));
            }
            return self.open_file(thread, directory).map(|open| self.stat_open(&open));
        }
        let follow = flags & NO_FOLLOW == 0;
        let inode = self.there(thread, directory, path, follow)?;
        match &inode.body {
            Body::Opened(number) if follow => {
                self.opened(thread, &inode, *number).map(|open| self.stat_open(&open))
            }
            // The link's rights say for what it is open.
            Body::Opened(number) => {
                let open = self.opened(thread, &inode, *number)?;
                let is_named = open.flags.load(Ordering::Relaxed) & flag::PATH != 0;
                let reads = if open.may_read() && !is_named { 0o500 } else { 0 };
                let writes = if open.may_write() && !is_named { 0o300 } else { 0 };
                Ok(Stat { mode: mode::LINK | reads | writes, ..self.stat_of(&inode) })
            }
            _ => Ok(self.stat_of(&inode)),
        }
    }

    pub(crate) fn stat(&self, thread: &Thread, directory: u64, path: u64, to: u64, flags: u64) -> Answer {
        if flags as u32 as u64 & !(EMPTY_PATH | NO_FOLLOW | AUTOMOUNT | FRESH) != 0 {
            return Err(Errno::EINVAL);
        }
        let stat = self.stat_at(thread, directory, path, flags)?;
        self.machine.write_user(to, &stat.pack()).map(|()| 0)
    }

    pub(crate) fn fstat(&self, thread: &Thread, number: u64, to: u64) -> Answer {
        let open = self.open_file(thread, number)?;
        self.machine.write_user(to, &self.stat_open(&open).pack()).map(|()| 0)
    }

    pub(crate) fn statx(&self, thread: &Thread, [directory, path, flags, mask, to, _]: [u64; 6]) -> Answer {
        if flags & !(EMPTY_PATH | NO_FOLLOW | AUTOMOUNT | FRESH) != 0
            || flags & FRESH == FRESH
            || mask >> 31 & 1 != 0
        {
            return Err(Errno::EINVAL);
        }
        let stat = self.stat_at(thread, directory, path, flags)?;
        self.machine.write_user(to, &stat.pack_extended()).map(|()| 0)
    }

    pub(crate) fn statfs(&self, thread: &Thread, path: u64, to: u64) -> Answer {
        let inode = self.there(thread, HERE, path, true)?;
        self.store_statfs(to, if is_of_proc(&inode) { PROC } else { TMPFS })
    }

    pub(crate) fn fstatfs(&self, thread: &Thread, number: u64, to: u64) -> Answer {
        let open = self.open_file(thread, number)?;
        let is_pipe = matches!(open.kind, Kind::Pipe(_) | Kind::Both(..)) && open.inode().is_none();
        let kind = match open.inode() {
            Some(inode) if is_of_proc(inode) => PROC,
            _ if is_pipe => PIPES,
            _ => TMPFS,
        };
        self.store_statfs(to, kind)
    }

    fn store_statfs(&self, to: u64, kind: u64) -> Answer {
        // What is made up takes no room.
        let ((total, free), files) =
            if kind == PROC { ((0, 0), 0) } else { (self.machine.memory(), 1 << 20) };
        let head = Pack::default().long(kind).long(4096).long(total / 4).long(free / 4).long(free / 4);
        let all = head.long(files).long(files).long(0).long(255).long(4096).zeros_to(120);
        self.machine.write_user(to, &all.0).map(|()| 0)
    }

    /// Whether a process may do something with a file: as who it really is, unless it is to be asked as what it acts.
    pub(crate) fn access(&self, thread: &Thread, directory: u64, [path, how, flags]: [u64; 3]) -> Answer {
        const AS_ACTING: u64 = 0x200;
        if how & !7 != 0 || flags & !(AS_ACTING | NO_FOLLOW | EMPTY_PATH) != 0 {
            return Err(Errno::EINVAL);
        }
        let inode = if flags & EMPTY_PATH != 0 && self.load_path(path)?.is_empty() {
            let open = self.open_file(thread, directory)?;
            let Some(inode) = open.inode().cloned() else { return Ok(0) };
            inode
        } else {
            self.there(thread, directory, path, flags & NO_FOLLOW == 0)?
        };
        let real = flags & AS_ACTING == 0;
        let may = thread.process.owner.with(|owner| rights::allows(&inode, how as u32, owner, real));
        if may { Ok(0) } else { Err(Errno::EACCES) }
    }
}
