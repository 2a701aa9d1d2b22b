//! What programs have open.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::epoll::Epoll;
use crate::errno::Errno;
use crate::hearer::Hearer;
use crate::mailbox::Mailbox;
use crate::pipe::{End, Way};
use crate::process::{Memory, Process};
use crate::socket::Socket;
use crate::sync::{Mutex, Spin};
use crate::terminal::Side;
use crate::timer::Timer;
use crate::tree::{Device, Inode};
use crate::uses::Use;
use crate::watches::Watches;

/// Flags of `open`.
pub mod flag {
    pub const WRITE_ONLY: u32 = 1;
    pub const READ_WRITE: u32 = 2;
    pub const ACCESS: u32 = 3;
    pub const CREATE: u32 = 0o100;
    pub const EXCLUSIVE: u32 = 0o200;
    pub const TRUNCATE: u32 = 0o1000;
    pub const APPEND: u32 = 0o2000;
    pub const NO_WAIT: u32 = 0o4000;
    pub const SIGNALS: u32 = 0o20_000;
    pub const DIRECT: u32 = 0o40_000;
    pub const NO_TIME: u32 = 0o1_000_000;
    pub const DIRECTORY: u32 = 0o200_000;
    pub const NO_FOLLOW: u32 = 0o400_000;
    pub const CLOSE_ON_EXEC: u32 = 0o2_000_000;
    pub const PATH: u32 = 0o10_000_000;
    pub const TEMPORARY: u32 = 0o20_000_000;
    /// Those that can be changed later.
    pub const LATER: u32 = APPEND | NO_WAIT | SIGNALS | DIRECT | NO_TIME;
}

/// What it is that is open.
pub enum Kind {
    /// A regular file.
    File(Arc<Inode>),
    /// A directory.
    Directory(Arc<Inode>),
    /// A device.
    Device(Device, Arc<Inode>),
    /// An end of a pipe.
    Pipe(End),
    /// Both ends of one: to read, and to write.
    Both(End, End),
    /// Bytes that are made up: when they are read from the start, and kept for whoever reads on.
    Text(Spin<Option<Arc<Vec<u8>>>>, Arc<Inode>),
    /// The standard output or error output.
    Console(u32),
    /// A counter (`eventfd`).
    Event(Counter),
    /// A socket.
    Socket(Arc<Socket>),
    /// A set of files that are watched (`epoll`).
    Poll(Epoll),
    /// A timer, and its clock (`timerfd`).
    Timer(Timer, u64),
    /// Signals that can be read (`signalfd`).
    Signals(AtomicU64),
    /// What a process has in memory, by its addresses.
    Space(Weak<Memory>, Arc<Inode>),
    /// Which of its pages are in memory.
    PageMap(Weak<Memory>, Arc<Inode>),
    /// A process (`pidfd`).
    Process(Arc<Process>),
    /// What is to be heard of files (`inotify`).
    Watches(Arc<Watches>),
    /// A queue of messages with a name.
    Mailbox(Arc<Mailbox>),
    /// The master of a terminal, and a side of programs.
    Master(Side, Arc<Inode>),
    Slave(Side, Arc<Inode>),
}

/// A counter that can be waited for.
pub struct Counter {
    count: AtomicU64,
    /// Each read takes one.
    pub by_one: bool,
    /// How often it grew, and how often it was taken from.
    pub changes: [AtomicU64; 2],
}

impl Counter {
    /// What it can be at most.
    pub const MOST: u64 = u64::MAX - 1;

    /// A new one.
    pub fn new(count: u64, by_one: bool) -> Counter {
        Counter { count: AtomicU64::new(count), by_one, changes: Default::default() }
    }

    /// What it is.
    pub fn now(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Takes one, or all; `None` if there is none.
    pub fn take(&self) -> Option<u64> {
        let left = |count: u64| (count > 0).then_some(if self.by_one { count - 1 } else { 0 });
        let was = self.count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).ok()?;
        self.changes[1].fetch_add(1, Ordering::SeqCst);
        Some(if self.by_one { 1 } else { was })
    }

    /// Adds, if it fits.
    pub fn add(&self, more: u64) -> bool {
        let sum = |count: u64| count.checked_add(more).filter(|&sum| sum <= Self::MOST);
        let fits = self.count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, sum).is_ok();
        self.changes[0].fetch_add(u64::from(fits), Ordering::SeqCst);
        fits
    }
}

/// Something open.
pub struct Open {
    /// What.
    pub kind: Kind,
    /// How it was opened.
    pub flags: AtomicU32,
    /// Where the next read or write is.
    pub offset: Mutex<u64>,
    /// Its path, for `/proc`, and for directories that paths begin at.
    pub path: Vec<u8>,
    /// The directory in which it was found, if it was found by a name.
    pub above: Spin<Option<Weak<Inode>>>,
    /// Who is to hear when something has come.
    pub hearer: Spin<Hearer>,
    /// It was opened by a name to write to it: nobody runs it.
    pub writes: Spin<Option<Use>>,
}

impl Open {
    pub fn new(kind: Kind, flags: u32, path: Vec<u8>) -> Arc<Open> {
        Arc::new(Open {
            kind,
            flags: AtomicU32::new(flags & !flag::CLOSE_ON_EXEC),
            offset: Mutex::new(0),
            path,
            above: Spin::default(),
            hearer: Spin::default(),
            writes: Spin::default(),
        })
    }

    pub fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    /// These flags are so from now on; no others change, whoever changes some at once.
    pub fn set_flags(&self, which: u32, to: u32) {
        let set = |flags: u32| Some(flags & !which | to & which);
        let _ = self.flags.fetch_update(Ordering::Relaxed, Ordering::Relaxed, set);
    }

    /// How it was opened, as programs are told: what has a name says that it may be large.
    pub fn shown_flags(&self) -> u32 {
        const LARGE: u32 = 0o100_000;
        let flags = self.flags.load(Ordering::Relaxed);
        match &self.kind {
            Kind::Pipe(end) if self.path == b"pipe" => {
                flags & !flag::ACCESS | if end.way == Way::Write { flag::WRITE_ONLY } else { 0 }
            }
            Kind::Socket(_) | Kind::Event(_) | Kind::Poll(_) | Kind::Timer(..) | Kind::Signals(_) => flags,
            Kind::Process(_) | Kind::Watches(_) => flags,
            _ if flags & flag::PATH != 0 => flags,
            _ => flags | LARGE,
        }
    }

    /// It has no places.
    pub fn flows(&self) -> bool {
        matches!(self.kind, Kind::Pipe(_) | Kind::Both(..) | Kind::Socket(_))
    }

    pub fn may_read(&self) -> bool {
        match &self.kind {
            Kind::Pipe(end) => end.way == Way::Read,
            _ => self.flags.load(Ordering::Relaxed) & flag::ACCESS != flag::WRITE_ONLY,
        }
    }

    pub fn may_write(&self) -> bool {
        match &self.kind {
            Kind::Pipe(end) => end.way == Way::Write,
            _ => self.flags.load(Ordering::Relaxed) & flag::ACCESS != 0,
        }
    }

    /// By which it is told from all others, where it has no inode.
    pub fn number(&self) -> u64 {
        core::ptr::from_ref(self).addr() as u64 >> 4 & 0xffff_ffff
    }

    /// Its path, as `/proc` shows it: of what has no name, what it is.
    pub fn shown(&self) -> Vec<u8> {
        match &self.kind {
            Kind::Pipe(end) if self.path == b"pipe" => {
                let number = Arc::as_ptr(&end.pipe).addr() as u64 >> 4 & 0xffff_ffff;
                alloc::format!("pipe:[{number}]").into_bytes()
            }
            Kind::Console(_) => alloc::format!("pipe:[{}]", self.number()).into_bytes(),
            Kind::Socket(_) => alloc::format!("socket:[{}]", self.number()).into_bytes(),
            Kind::Event(_) | Kind::Poll(_) | Kind::Timer(..) | Kind::Signals(_) | Kind::Watches(_)
                if !self.path.starts_with(b"anon_inode") =>
            {
                [b"anon_inode:[", self.path.as_slice(), b"]"].concat()
            }
            // It has no name any more, or never had one.
            Kind::File(inode) if inode.links.load(Ordering::Relaxed) == 0 => {
                [self.path.as_slice(), b" (deleted)"].concat()
            }
            Kind::Directory(inode) if inode.is_gone() && !crate::procfs::is_made_up(inode) => {
                [self.path.as_slice(), b" (deleted)"].concat()
            }
            Kind::Pipe(end) | Kind::Both(end, _)
                if end.file.as_ref().is_some_and(|inode| inode.links.load(Ordering::Relaxed) == 0) =>
            {
                [self.path.as_slice(), b" (deleted)"].concat()
            }
            _ => self.path.clone(),
        }
    }

    /// Its inode, if it has one.
    pub fn inode(&self) -> Option<&Arc<Inode>> {
        match &self.kind {
            Kind::File(inode)
            | Kind::Directory(inode)
            | Kind::Device(_, inode)
            | Kind::Text(_, inode)
            | Kind::Space(_, inode)
            | Kind::PageMap(_, inode)
            | Kind::Master(_, inode)
            | Kind::Slave(_, inode) => Some(inode),
            Kind::Pipe(end) | Kind::Both(end, _) => end.file.as_ref(),
            _ => None,
        }
    }
}

/// What a process may have open, and what it may ask for.
pub const USUAL: usize = 1024;
pub const MOST: usize = 524_288;

/// Open files by number. A process's threads share them.
#[derive(Clone)]
pub struct Files {
    all: BTreeMap<usize, (Arc<Open>, bool)>,
    /// No number below this one is free.
    first: usize,
    most: usize,
}

impl Files {
    pub fn new() -> Files {
        Files { all: BTreeMap::new(), first: 0, most: USUAL }
    }

    /// Numbers from here on are not given.
    pub fn limit(&mut self, most: u64) {
        self.most = most.min(MOST as u64) as usize;
    }

    pub fn most(&self) -> usize {
        self.most
    }

    /// How many are open.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    pub fn get(&self, number: u64) -> Result<Arc<Open>, Errno> {
        let slot = usize::try_from(number as u32).ok().and_then(|number| self.all.get(&number));
        slot.map(|(open, _)| open.clone()).ok_or(Errno::EBADF)
    }

    /// The lowest number that is free, from `from` on.
    fn free(&self, from: usize) -> usize {
        let taken = self.all.range(from..).zip(from..).take_while(|((number, _), free)| *number == free);
        from + taken.count()
    }

    /// Whether nothing more can be open.
    pub fn is_full(&self) -> bool {
        self.free(self.first) >= self.most
    }

    /// Opens it under the lowest number that is free, from `least` on.
    pub fn add(&mut self, open: Arc<Open>, close_on_exec: bool, least: usize) -> Result<u64, Errno> {
        let from = least.max(self.first);
        let number = self.free(from);
        if number >= self.most {
            return Err(Errno::EMFILE);
        }
        if from == self.first {
            self.first = number + 1;
        }
        self.all.insert(number, (open, close_on_exec));
        Ok(number as u64)
    }

    /// In place of whatever has this number, which is given back: the caller drops it outside all locks.
    pub fn replace(
        &mut self,
        number: u64,
        open: Arc<Open>,
        cloexec: bool,
    ) -> Result<Option<Arc<Open>>, Errno> {
        let number =
            usize::try_from(number as u32).ok().filter(|&number| number < self.most).ok_or(Errno::EBADF)?;
        Ok(self.all.insert(number, (open, cloexec)).map(|(open, _)| open))
    }

    pub fn take(&mut self, number: u64) -> Result<Arc<Open>, Errno> {
        let number = number as u32 as usize;
        let (open, _) = self.all.remove(&number).ok_or(Errno::EBADF)?;
        self.first = self.first.min(number);
        Ok(open)
    }

    pub fn close_on_exec(&mut self, number: u64) -> Result<&mut bool, Errno> {
        self.all.get_mut(&(number as u32 as usize)).map(|(_, cloexec)| cloexec).ok_or(Errno::EBADF)
    }

    /// Takes out those that a new program does not get.
    pub fn take_for_exec(&mut self) -> Vec<Arc<Open>> {
        let gone: Vec<usize> =
            self.all.iter().filter(|(_, (_, cloexec))| *cloexec).map(|(&number, _)| number).collect();
        gone.into_iter().filter_map(|number| self.take(number as u64).ok()).collect()
    }

    /// Each that is open.
    pub fn each(&self, mut work: impl FnMut(&Arc<Open>)) {
        self.all.values().for_each(|(open, _)| work(open));
    }

    pub fn into_each(self, mut work: impl FnMut(Arc<Open>)) {
        self.all.into_values().for_each(|(open, _)| work(open));
    }

    pub fn numbers(&self) -> Vec<u64> {
        self.all.keys().map(|&number| number as u64).collect()
    }
}

/// What a process has open. Its threads share it, and processes that were made so.
pub struct Shared {
    /// Under its lock, so that nobody has the table for a moment who is none of those that share it: the last of these closes what is open.
    table: Spin<Arc<Spin<Files>>>,
}

impl Shared {
    pub fn new(files: Files) -> Shared {
        Shared { table: Spin::new(Arc::new(Spin::new(files))) }
    }

    /// Works on it. `work` must not come back here, nor to another process's.
    pub fn with<R>(&self, work: impl FnOnce(&mut Files) -> R) -> R {
        self.table.with(|table| table.with(work))
    }

    /// For a process that shares it.
    pub fn share(&self) -> Shared {
        Shared { table: Spin::new(self.table.with(|table| table.clone())) }
    }

    /// For a process with a table of its own, of the same open files.
    pub fn copy(&self) -> Shared {
        Shared::new(self.with(|files| files.clone()))
    }

    /// From now on no other process has it; all of them have the same open as before.
    pub fn unshare(&self) {
        if self.table.with(|table| Arc::strong_count(table) > 1) {
            let copy = self.with(|files| files.clone());
            drop(self.leave_for(copy));
        }
    }

    /// The process ends. Returns what is to be closed, if no other has it.
    #[must_use]
    pub fn leave(&self) -> Option<Files> {
        self.leave_for(Files::new())
    }

    fn leave_for(&self, files: Files) -> Option<Files> {
        let table = Arc::new(Spin::new(files));
        let before = self.table.with(|now| core::mem::replace(now, table));
        Arc::into_inner(before).map(Spin::into_inner)
    }

    /// Where it is: the same for those that share it.
    pub fn address(&self) -> usize {
        self.table.with(|table| Arc::as_ptr(table).addr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> Arc<Open> {
        Open::new(Kind::Console(1), 0, Vec::new())
    }

    #[test]
    fn the_lowest_number_that_is_free_is_given() {
        let mut files = Files::new();
        let numbers: Vec<_> = (0..5).map(|_| files.add(open(), false, 0).unwrap()).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4]);
        assert_eq!(files.add(open(), true, 100), Ok(100));
        files.take(3).unwrap();
        files.take(1).unwrap();
        assert_eq!((files.add(open(), false, 2), files.add(open(), false, 0)), (Ok(3), Ok(1)));
        assert_eq!(files.add(open(), false, 0), Ok(5));
        assert!(files.replace(7, open(), false).unwrap().is_none());
        assert!(files.replace(7, open(), false).unwrap().is_some());
        assert_eq!((files.add(open(), false, 0), files.add(open(), false, 0)), (Ok(6), Ok(8)));
        assert_eq!(files.take_for_exec().len(), 1);
        assert_eq!(files.add(open(), false, 99), Ok(99));
        assert!(!files.is_full());
        files.limit(8);
        assert!(files.is_full());
        assert_eq!(
            (files.add(open(), false, 0), files.get(100).err()),
            (Err(Errno::EMFILE), Some(Errno::EBADF))
        );
    }
}
