//! What programs have open.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::epoll::Epoll;
use crate::errno::Errno;
use crate::pipe::{End, Way};
use crate::process::Process;
use crate::socket::Socket;
use crate::sync::{Mutex, Spin};
use crate::timer::Timer;
use crate::tree::{Device, Inode};

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
    pub const DIRECTORY: u32 = 0o200_000;
    pub const NO_FOLLOW: u32 = 0o400_000;
    pub const CLOSE_ON_EXEC: u32 = 0o2_000_000;
    pub const PATH: u32 = 0o10_000_000;
    pub const TEMPORARY: u32 = 0o20_000_000;
    /// Those that can be changed later.
    pub const LATER: u32 = APPEND | NO_WAIT;
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
    /// Bytes that were made up when it was opened.
    Text(Vec<u8>, Arc<Inode>),
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
    /// A process (`pidfd`).
    Process(Arc<Process>),
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
}

impl Open {
    pub fn new(kind: Kind, flags: u32, path: Vec<u8>) -> Arc<Open> {
        Arc::new(Open {
            kind,
            flags: AtomicU32::new(flags & !flag::CLOSE_ON_EXEC),
            offset: Mutex::new(0),
            path,
        })
    }

    pub fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
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

    /// Its inode, if it has one.
    pub fn inode(&self) -> Option<&Arc<Inode>> {
        match &self.kind {
            Kind::File(inode) | Kind::Directory(inode) | Kind::Device(_, inode) | Kind::Text(_, inode) => {
                Some(inode)
            }
            _ => None,
        }
    }
}

/// What a process may have open, and what it may ask for.
pub const USUAL: usize = 1024;
pub const MOST: usize = 4096;

/// Open files by number. A process's threads share them.
#[derive(Clone)]
pub struct Files {
    all: Vec<Option<(Arc<Open>, bool)>>,
    most: usize,
}

impl Files {
    pub fn new() -> Files {
        Files { all: Vec::new(), most: USUAL }
    }

    /// Numbers from here on are not given.
    pub fn limit(&mut self, most: u64) {
        self.most = most.min(MOST as u64) as usize;
    }

    pub fn most(&self) -> usize {
        self.most
    }

    pub fn get(&self, number: u64) -> Result<Arc<Open>, Errno> {
        let slot = usize::try_from(number).ok().and_then(|number| self.all.get(number));
        slot.and_then(|slot| slot.as_ref()).map(|(open, _)| open.clone()).ok_or(Errno::EBADF)
    }

    /// The lowest number that is free, from `least` on.
    pub fn add(&mut self, open: Arc<Open>, close_on_exec: bool, least: usize) -> Result<u64, Errno> {
        let free = (least..).find(|&number| self.all.get(number).is_none_or(Option::is_none));
        let number = free.filter(|&number| number < self.most).ok_or(Errno::EMFILE)?;
        self.put(number, open, close_on_exec);
        Ok(number as u64)
    }

    fn put(&mut self, number: usize, open: Arc<Open>, close_on_exec: bool) -> Option<Arc<Open>> {
        if self.all.len() <= number {
            self.all.resize_with(number + 1, || None);
        }
        self.all[number].replace((open, close_on_exec)).map(|(open, _)| open)
    }

    /// In place of whatever has this number, which is given back: the caller drops it outside all locks.
    pub fn replace(
        &mut self,
        number: u64,
        open: Arc<Open>,
        cloexec: bool,
    ) -> Result<Option<Arc<Open>>, Errno> {
        let number = usize::try_from(number).ok().filter(|&number| number < self.most).ok_or(Errno::EBADF)?;
        Ok(self.put(number, open, cloexec))
    }

    pub fn take(&mut self, number: u64) -> Result<Arc<Open>, Errno> {
        let slot = usize::try_from(number).ok().and_then(|number| self.all.get_mut(number));
        slot.and_then(Option::take).map(|(open, _)| open).ok_or(Errno::EBADF)
    }

    pub fn close_on_exec(&mut self, number: u64) -> Result<&mut bool, Errno> {
        let slot = usize::try_from(number).ok().and_then(|number| self.all.get_mut(number));
        slot.and_then(Option::as_mut).map(|(_, cloexec)| cloexec).ok_or(Errno::EBADF)
    }

    /// Takes out those that a new program does not get.
    pub fn take_for_exec(&mut self) -> Vec<Arc<Open>> {
        let gone = |slot: &mut Option<(Arc<Open>, bool)>| {
            slot.take_if(|(_, cloexec)| *cloexec).map(|(open, _)| open)
        };
        self.all.iter_mut().filter_map(gone).collect()
    }

    pub fn numbers(&self) -> Vec<u64> {
        (0..self.all.len()).filter(|&number| self.all[number].is_some()).map(|number| number as u64).collect()
    }
}

/// What a process has open.
pub type Shared = Spin<Files>;
