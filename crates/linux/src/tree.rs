//! Files and directories in memory. What a file holds is the core's: here is its name, and who may still want it.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use quietmm::FileId;

use crate::errno::Errno;
use crate::extents::Extents;
use crate::left::{Leaving, Left};
use crate::pipe::Pipe;
use crate::sync::{Mutex, Spin};
use crate::terminal::Terminal;
use crate::uses::Uses;

/// Kinds of files, in the mode.
pub mod mode {
    /// All bits of the kind.
    pub const KIND: u32 = 0o170000;
    /// A directory.
    pub const DIRECTORY: u32 = 0o040000;
    /// A regular file.
    pub const FILE: u32 = 0o100000;
    /// A symbolic link.
    pub const LINK: u32 = 0o120000;
    /// A device of characters.
    pub const DEVICE: u32 = 0o020000;
    /// A device of blocks.
    pub const BLOCKS: u32 = 0o060000;
    /// A pipe.
    pub const PIPE: u32 = 0o010000;
    /// A socket.
    pub const SOCKET: u32 = 0o140000;
}

/// What may not be done to a file in memory any more.
pub mod seal {
    /// No more seals.
    pub const NO_MORE: u32 = 1;
    /// Not shorter.
    pub const SHRINK: u32 = 2;
    /// Not longer.
    pub const GROW: u32 = 4;
    /// Not written at all.
    pub const WRITE_AT_ALL: u32 = 8;
    /// Not made a program.
    pub const EXECUTE: u32 = 32;
    /// Not written, nor written any more by whoever maps it anew.
    pub const WRITE: u32 = WRITE_AT_ALL | 16;
    /// It can have seals.
    pub const SEALABLE: u32 = 1 << 31;
}

/// A file of the core's. It ends when nobody has this any more.
pub struct Content {
    /// Which.
    pub file: FileId,
    /// Which pages of it are there.
    pub extents: Spin<Extents>,
    /// It lies in memory and swap alone.
    pub in_memory: bool,
    /// Held by whoever makes it longer and must not make it shorter, or writes beyond its end.
    pub growing: Mutex<()>,
    /// Programs map it to write to copies of their own, or did.
    pub is_copied: AtomicBool,
    left: Arc<Left>,
}

impl Content {
    /// Of this file, whose first pages are there.
    pub fn new(file: FileId, there: u64, in_memory: bool, left: &Arc<Left>) -> Self {
        Content {
            file,
            extents: Spin::new(Extents::new(there)),
            in_memory,
            growing: Mutex::new(()),
            is_copied: AtomicBool::new(false),
            left: left.clone(),
        }
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        self.left.add(Leaving::File(self.file));
    }
}

/// Files that are no files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Device {
    /// Takes everything, and has nothing.
    Null,
    /// Has zeros.
    Zero,
    /// Takes nothing.
    Full,
    /// Has what nobody expects.
    Random,
    /// The console.
    Console,
    /// The terminal of whoever opens it.
    Own,
    /// Gives terminals.
    Terminals,
    /// A number behind which there is nothing.
    Absent(u32),
}

impl Device {
    /// What has a number: of characters, or of blocks, of which there are none.
    pub fn of(number: u32, of_blocks: bool) -> Device {
        match number {
            0x103 if !of_blocks => Device::Null,
            0x105 if !of_blocks => Device::Zero,
            0x107 if !of_blocks => Device::Full,
            0x108 | 0x109 if !of_blocks => Device::Random,
            _ => Device::Absent(number),
        }
    }

    /// Its number.
    pub fn number(self) -> u64 {
        match self {
            Device::Null => 0x103,
            Device::Zero => 0x105,
            Device::Full => 0x107,
            Device::Random => 0x109,
            Device::Own => 0x500,
            Device::Console => 0x501,
            Device::Terminals => 0x502,
            Device::Absent(number) => number.into(),
        }
    }
}

/// Files that are made up when they are opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Made {
    Maps,
    Status,
    Stat,
    Statm,
    CommandLine,
    Name,
    MemoryInfo,
    Swaps,
    /// What lies in its memory, by its addresses.
    Space,
    /// Which of its pages are in memory.
    PageMap,
    Score,
    Adjust,
    CpuInfo,
    Online,
    Mounts,
    Uptime,
    LoadAverage,
    SystemStat,
    /// What the core has counted.
    Counters,
    Version,
    /// A number that never changes, and a text.
    Number(u64),
    Fixed(&'static str),
    /// CPUs from one up to another, a bit each.
    Mask(u32, u32),
    Limits,
    Environment,
    Auxiliary,
    Areas,
    Counts,
    Host,
    Identity,
    Memory,
    HostName,
    /// What is open under a number.
    Opened(u32),
    /// All sockets of a kind.
    Sockets(crate::connections::Table),
}

/// What an inode is.
pub enum Body {
    /// A regular file.
    File(Content),
    /// A directory.
    Directory(Spin<Entries>),
    /// The directory of what whoever looks has open, as links by number. Nothing can be put into it.
    OpenFiles(Spin<Entries>),
    /// One of these links.
    Opened(u64),
    /// A symbolic link.
    Link(Vec<u8>),
    /// A symbolic link to the process that looks, or to its thread.
    Itself(bool),
    /// A device.
    Device(Device),
    /// Made up.
    Made(Made),
    /// Made up, of a process, or of a thread of it.
    MadeOf(u32, Option<u32>, Made),
    /// Where a socket can be found.
    Socket,
    /// A pipe that all who open this share.
    Fifo(Arc<Pipe>),
    /// A terminal.
    Terminal(Arc<Terminal>),
}

/// What is in a directory.
pub struct Entries {
    names: BTreeMap<Vec<u8>, (u64, Arc<Inode>)>,
    /// The place of the next name: places go up, so that whoever reads names and takes them away meanwhile misses none.
    next: u64,
    parent: Weak<Inode>,
    /// It has no name any more, and gets none inside.
    gone: bool,
    /// Directories in it.
    directories: u32,
}

impl Entries {
    fn empty() -> Spin<Entries> {
        Spin::new(Entries {
            names: BTreeMap::new(),
            next: FIRST_PLACE,
            parent: Weak::new(),
            gone: false,
            directories: 0,
        })
    }
}

/// Something in a directory, with its place and its name.
pub type Named = (u64, Vec<u8>, Arc<Inode>);

/// The place of the first name in a directory, behind those of `.` and `..`.
pub const FIRST_PLACE: u64 = 3;

/// A file or directory.
pub struct Inode {
    /// Its number.
    pub number: u64,
    /// Kind and rights.
    pub mode: AtomicU32,
    /// Names that it has.
    pub links: AtomicU32,
    /// When what is in it was last changed, in nanoseconds since 1970.
    pub modified: AtomicU64,
    /// When it was last read, as far as that is kept: once after each change.
    pub accessed: AtomicU64,
    /// When it was made.
    pub born: u64,
    /// When something about it was last changed.
    pub changed: AtomicU64,
    /// Whose it is: a user and a group.
    pub owner: [AtomicU32; 2],
    /// Attributes that programs gave it, by name.
    pub extended: Spin<BTreeMap<Vec<u8>, Vec<u8>>>,
    /// Held by whoever writes at its end.
    pub append: Mutex<()>,
    /// What may not be done to it: see [`seal`].
    pub seals: AtomicU32,
    /// It was made without a name, and may get one.
    pub nameless: AtomicBool,
    /// Held while seals are looked at and what they forbid is done, if it can have any.
    pub sealing: Mutex<()>,
    /// Who writes to it, and who runs it.
    pub uses: Uses,
    /// What it is.
    pub body: Body,
}

impl Inode {
    /// A new one, without a name.
    pub fn new(number: u64, mode: u32, modified: u64, body: Body) -> Arc<Inode> {
        let born = modified;
        let [modified, accessed, changed] = [born; 3].map(AtomicU64::new);
        Arc::new(Inode {
            born,
            number,
            mode: AtomicU32::new(mode),
            links: AtomicU32::new(0),
            modified,
            accessed,
            changed,
            owner: Default::default(),
            extended: Spin::default(),
            append: Mutex::new(()),
            seals: AtomicU32::new(0),
            nameless: AtomicBool::new(false),
            sealing: Mutex::new(()),
            uses: Uses::default(),
            body,
        })
    }

    /// An empty directory.
    pub fn directory(number: u64, rights: u32, modified: u64) -> Arc<Inode> {
        Inode::new(number, mode::DIRECTORY | rights & 0o7777, modified, Body::Directory(Entries::empty()))
    }

    /// The directory of what whoever looks has open.
    pub fn open_files(number: u64) -> Arc<Inode> {
        Inode::new(number, mode::DIRECTORY | 0o500, 0, Body::OpenFiles(Entries::empty()))
    }

    /// A directory that is made up: these are in it, and nothing else can be put there.
    pub fn made(number: u64, parent: &Arc<Inode>, all: Vec<(Vec<u8>, Arc<Inode>)>) -> Arc<Inode> {
        let below: Vec<_> = all.iter().map(|(_, inode)| inode.clone()).collect();
        let names = (FIRST_PLACE..).zip(all).map(|(place, (name, inode))| (name, (place, inode)));
        let (names, next) = (names.collect(), u64::MAX);
        let directories = below.iter().filter(|inode| inode.is_directory()).count() as u32;
        let entries = Entries { names, next, parent: Arc::downgrade(parent), gone: true, directories };
        let made = Inode::new(number, mode::DIRECTORY | 0o555, 0, Body::Directory(Spin::new(entries)));
        for inode in below {
            if let Body::Directory(entries) | Body::OpenFiles(entries) = &inode.body {
                entries.with(|entries| entries.parent = Arc::downgrade(&made));
            }
        }
        made
    }

    /// The link to what whoever looks has open under a number.
    pub fn opened(number: u64) -> Arc<Inode> {
        Inode::opened_by(0, number)
    }

    /// The link to what a process has open under a number; of 0, whoever looks.
    pub fn opened_by(process: u32, number: u64) -> Arc<Inode> {
        // No file that was made has such a number.
        let own = 1 << 62 | u64::from(process) << 32 | number & 0xffff_ffff;
        Inode::new(own, mode::LINK | 0o700, 0, Body::Opened(number))
    }

    /// The process whose link this is, or 0.
    pub fn opener(&self) -> u32 {
        (self.number >> 32) as u32 & 0x3fff_ffff
    }

    /// What is in it has changed just now.
    pub fn touch(&self, now: u64) {
        self.modified.store(now, Ordering::Relaxed);
        self.changed.store(now, Ordering::Relaxed);
    }

    /// It has been read just now: that is kept if it has changed since it was read last.
    pub fn note_read(&self, now: u64) {
        let read = self.accessed.load(Ordering::Relaxed);
        if self.modified.load(Ordering::Relaxed).max(self.changed.load(Ordering::Relaxed)) >= read {
            self.accessed.store(now, Ordering::Relaxed);
        }
    }

    /// Names of it that there are: of a directory also its own, and those of what lies below.
    pub fn names(&self) -> u32 {
        match &self.body {
            Body::Directory(entries) => entries.with(|entries| 2 + entries.directories),
            Body::OpenFiles(_) => 2,
            _ => self.links.load(Ordering::Relaxed),
        }
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self.body, Body::Directory(_) | Body::OpenFiles(_))
    }

    /// Its file, if it is one.
    pub fn file(&self) -> Option<FileId> {
        if let Body::File(content) = &self.body { Some(content.file) } else { None }
    }

    /// Whether it is a file that lies in memory and swap alone.
    pub fn is_in_memory(&self) -> bool {
        matches!(&self.body, Body::File(content) if content.in_memory)
    }

    /// Which of its pages are there, if it is a file.
    pub fn extents(&self) -> Option<&Spin<Extents>> {
        if let Body::File(content) = &self.body { Some(&content.extents) } else { None }
    }

    /// What keeps it from becoming shorter where it is to become longer, if it is a file.
    pub fn growing(&self) -> Option<&Mutex<()>> {
        if let Body::File(content) = &self.body { Some(&content.growing) } else { None }
    }

    fn entries(&self) -> Result<&Spin<Entries>, Errno> {
        match &self.body {
            Body::Directory(entries) | Body::OpenFiles(entries) => Ok(entries),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// What has this name in a directory.
    ///
    /// # Errors
    /// `ENOTDIR`.
    pub fn get(&self, name: &[u8]) -> Result<Option<Arc<Inode>>, Errno> {
        self.entries()
            .map(|entries| entries.with(|entries| entries.names.get(name).map(|(_, inode)| inode.clone())))
    }

    /// The directory in which a directory lies; `None` for the root.
    pub fn parent(&self) -> Option<Arc<Inode>> {
        self.entries().ok().and_then(|entries| entries.with(|entries| entries.parent.upgrade()))
    }

    /// Whether a directory has no name any more.
    pub fn is_gone(&self) -> bool {
        self.entries().is_ok_and(|entries| entries.with(|entries| entries.gone))
    }

    /// The next names in a directory behind a place, up to so many, with what they name, in the order in which they came.
    ///
    /// # Errors
    /// `ENOTDIR`.
    pub fn behind(&self, place: u64, most: usize) -> Result<Vec<Named>, Errno> {
        self.entries()?.with(|entries| {
            // No more than are wanted are kept at a time: there may be very many.
            let mut next = BTreeMap::new();
            for (name, (at, inode)) in entries.names.iter().filter(|(_, (at, _))| *at > place) {
                if next.len() < most || next.last_key_value().is_some_and(|(last, _)| at < last) {
                    next.insert(*at, (name, inode));
                }
                if next.len() > most {
                    next.pop_last();
                }
            }
            Ok(next.into_iter().map(|(at, (name, inode))| (at, name.clone(), inode.clone())).collect())
        })
    }

    /// The name that an inode has in a directory.
    pub fn name_of(&self, inode: &Arc<Inode>) -> Option<Vec<u8>> {
        self.entries().ok()?.with(|entries| {
            let mut all = entries.names.iter();
            all.find(|(_, (_, other))| Arc::ptr_eq(other, inode)).map(|(name, _)| name.clone())
        })
    }

    /// Gives a name to an inode.
    ///
    /// # Errors
    /// `EEXIST`, `ENOTDIR`; `ENOENT`: the directory is gone; `EPERM`: its names are made up.
    pub fn put(self: &Arc<Inode>, name: &[u8], inode: Arc<Inode>) -> Result<(), Errno> {
        if matches!(self.body, Body::OpenFiles(_)) {
            return Err(Errno::EPERM);
        }
        self.entries()?.with(|entries| {
            if entries.gone {
                return Err(Errno::ENOENT);
            }
            if entries.names.contains_key(name) {
                return Err(Errno::EEXIST);
            }
            entries.names.insert(name.to_vec(), (entries.next, inode.clone()));
            entries.next += 1;
            entries.directories += u32::from(inode.is_directory());
            Ok(())
        })?;
        inode.links.fetch_add(1, Ordering::Relaxed);
        if let Body::Directory(below) | Body::OpenFiles(below) = &inode.body {
            below.with(|below| below.parent = Arc::downgrade(self));
        }
        Ok(())
    }

    /// Takes a name away; returns what had it. One at a time, as [`rename`](Self::rename) has it.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`; `EISDIR` and `ENOTDIR` if it is not of the kind that is meant; `ENOTEMPTY`.
    pub fn take(&self, name: &[u8], directory: bool) -> Result<Arc<Inode>, Errno> {
        let inode = self.entries()?.with(|entries| {
            let (_, inode) = entries.names.get(name).ok_or(Errno::ENOENT)?;
            let inode = inode.clone();
            inode.go(directory)?;
            entries.names.remove(name);
            entries.directories -= u32::from(inode.is_directory());
            Ok::<_, Errno>(inode)
        })?;
        inode.links.fetch_sub(1, Ordering::Relaxed);
        Ok(inode)
    }

    /// A name of it is about to be taken away by whoever means a directory, or none. A directory must be empty, and stays so.
    fn go(&self, directory: bool) -> Result<(), Errno> {
        match &self.body {
            Body::Directory(_) if !directory => Err(Errno::EISDIR),
            Body::Directory(below) => below.with(|below| {
                below.gone = below.names.is_empty();
                if below.gone { Ok(()) } else { Err(Errno::ENOTEMPTY) }
            }),
            _ if directory => Err(Errno::ENOTDIR),
            _ => Ok(()),
        }
    }

    /// Moves a name, in place of what may have the new one if it `replaces` that: whoever looks for that meanwhile finds the one or the other. The
    /// caller sees to it that names are moved and taken away one at a time: of two at once each would find the name, and two directories could be put
    /// into each other, and be a circle that hangs nowhere.
    ///
    /// # Errors
    /// As of [`take`](Self::take) and [`put`](Self::put); `EINVAL`: a directory into itself.
    pub fn rename(
        self: &Arc<Inode>,
        name: &[u8],
        to: &Arc<Inode>,
        new: &[u8],
        replaces: bool,
    ) -> Result<Arc<Inode>, Errno> {
        let inode = self.get(name)?.ok_or(Errno::ENOENT)?;
        if matches!(to.body, Body::OpenFiles(_)) {
            return Err(Errno::EPERM);
        }
        let mut above = Some(to.clone());
        while let Some(directory) = above {
            if Arc::ptr_eq(&directory, &inode) {
                return Err(Errno::EINVAL);
            }
            above = directory.parent();
        }
        let old = to.entries()?.with(|entries| {
            if entries.gone {
                return Err(Errno::ENOENT);
            }
            match entries.names.get(new) {
                Some(_) if !replaces => return Err(Errno::EEXIST),
                // Two names of one file both stay.
                Some((_, old)) if Arc::ptr_eq(old, &inode) => return Ok(None),
                Some((_, old)) => old.go(inode.is_directory())?,
                None => {}
            }
            entries.next += 1;
            let old = entries.names.insert(new.to_vec(), (entries.next - 1, inode.clone()));
            if inode.is_directory() && old.is_none() {
                entries.directories += 1;
            }
            Ok(Some(old))
        })?;
        let Some(old) = old else { return Ok(inode) };
        if let Some((_, old)) = old {
            old.links.fetch_sub(1, Ordering::Relaxed);
        }
        if let Body::Directory(below) = &inode.body {
            below.with(|below| below.parent = Arc::downgrade(to));
        }
        self.entries()?.with(|entries| {
            entries.names.remove(name);
            entries.directories -= u32::from(inode.is_directory());
        });
        Ok(inode)
    }

    /// Each of two names gets what the other has; both directories may be one. One at a time, as of [`rename`](Self::rename).
    ///
    /// # Errors
    /// `ENOENT`; `EINVAL`: a directory into itself; `EPERM`: a directory's names are made up.
    pub fn exchange(self: &Arc<Inode>, name: &[u8], to: &Arc<Inode>, new: &[u8]) -> Result<(), Errno> {
        let both = [self.get(name)?.ok_or(Errno::ENOENT)?, to.get(new)?.ok_or(Errno::ENOENT)?];
        for (inode, directory) in both.iter().zip([to, self]) {
            let mut above = Some(directory.clone());
            while let Some(directory) = above {
                if Arc::ptr_eq(&directory, inode) {
                    return Err(Errno::EINVAL);
                }
                above = directory.parent();
            }
        }
        for (directory, name, new, old) in [(self, name, &both[1], &both[0]), (to, new, &both[0], &both[1])] {
            directory.entries()?.with(|entries| {
                // Somebody may have taken it meanwhile.
                let (_, slot) = entries.names.get_mut(name).ok_or(Errno::ENOENT)?;
                *slot = new.clone();
                entries.directories += u32::from(new.is_directory());
                entries.directories -= u32::from(old.is_directory());
                Ok::<_, Errno>(())
            })?;
            if let Body::Directory(below) = &new.body {
                below.with(|below| below.parent = Arc::downgrade(directory));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> Arc<Inode> {
        Inode::directory(7, 0o755, 0)
    }

    #[test]
    fn names_come_in_pieces_in_the_order_in_which_they_were_given() {
        let root = directory();
        let name = |i: u64| alloc::format!("{}", i * 7919 % 1000).into_bytes();
        (0..100).for_each(|i| root.put(&name(i), directory()).unwrap());
        let (mut place, mut seen) = (0, Vec::new());
        loop {
            let some = root.behind(place, 7).unwrap();
            assert!(some.len() <= 7);
            let Some((last, ..)) = some.last() else { break };
            place = *last;
            // Whatever goes away meanwhile, no other is missed.
            root.take(&some[0].1, true).unwrap();
            seen.extend(some.into_iter().map(|(_, name, _)| name));
        }
        assert_eq!(seen, (0..100).map(name).collect::<Vec<_>>());
    }

    #[test]
    fn a_directory_that_was_taken_away_gets_no_names() {
        let (root, other) = (directory(), directory());
        root.put(b"a", other.clone()).unwrap();
        other.put(b"x", directory()).unwrap();
        assert_eq!(root.take(b"a", true).err(), Some(Errno::ENOTEMPTY));
        other.take(b"x", true).unwrap();
        root.take(b"a", true).unwrap();
        assert!(other.is_gone() && !root.is_gone());
        assert_eq!(other.put(b"x", directory()), Err(Errno::ENOENT));
        root.put(b"b", directory()).unwrap();
        assert_eq!(root.rename(b"b", &other, b"b", true).err(), Some(Errno::ENOENT));
        // One that was replaced is gone too.
        let replaced = directory();
        root.put(b"c", replaced.clone()).unwrap();
        root.rename(b"b", &root, b"c", true).map(drop).unwrap();
        assert_eq!(replaced.put(b"x", directory()), Err(Errno::ENOENT));
        assert!(root.get(b"b").unwrap().is_none());
    }

    /// Names are given and taken while the directory is taken away: what is in it then would be nowhere.
    #[test]
    fn nothing_is_put_into_a_directory_while_it_goes() {
        for _ in 0..2000 {
            let (root, inner) = (directory(), directory());
            root.put(b"a", inner.clone()).unwrap();
            let (went, put) = std::thread::scope(|scope| {
                let went = scope.spawn(|| root.take(b"a", true).is_ok());
                let put = inner.put(b"x", directory()).is_ok();
                (went.join().unwrap(), put)
            });
            assert!(went != put, "one of them is refused");
        }
    }
}
