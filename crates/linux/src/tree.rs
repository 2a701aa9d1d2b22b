//! Files and directories in memory. What a file holds is the core's: here is its name, and who may still want it.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use quietmm::platform::WaitKey;
use quietmm::{FileId, SpaceId};

use crate::errno::Errno;
use crate::open::Open;
use crate::pipe::Pipe;
use crate::sync::{Mutex, Spin};

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
    /// Not written, nor written any more by who maps it anew.
    pub const WRITE: u32 = 8 | 16;
    /// It can have seals.
    pub const SEALABLE: u32 = 1 << 31;
}

/// What has come to its end and is the core's to end, or somebody's to hear of: handed over when the last who had it lets go,
/// who may be anybody, and seen to when a system call returns.
#[derive(Default)]
pub struct Left {
    any: AtomicBool,
    list: Spin<Vec<Leaving>>,
    opened: Spin<Vec<Arc<Open>>>,
}

/// One of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaving {
    /// A file that nobody can open or map any more.
    File(FileId),
    /// A space in which nobody runs any more.
    Space(SpaceId),
    /// Whoever waits with this key should look.
    Key(WaitKey),
}

impl Left {
    /// One more.
    pub fn add(&self, what: Leaving) {
        self.list.with(|list| list.push(what));
        self.any.store(true, Ordering::Release);
    }

    /// Open files that were on their way to somebody who is gone. Those on their way by way of these come here too, and so none is
    /// closed inside another.
    pub(crate) fn add_open(&self, open: Vec<Arc<Open>>) {
        self.opened.with(|all| all.extend(open));
    }

    /// One of these, to be closed.
    pub(crate) fn take_open(&self) -> Option<Arc<Open>> {
        self.opened.with(Vec::pop)
    }

    /// All that there are.
    pub fn take(&self) -> Vec<Leaving> {
        if !self.any.load(Ordering::Acquire) || !self.any.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        self.list.with(core::mem::take)
    }
}

/// A file of the core's. It ends when nobody has this any more.
pub struct Content {
    /// Which.
    pub file: FileId,
    left: Arc<Left>,
}

impl Content {
    /// Of this file.
    pub fn new(file: FileId, left: &Arc<Left>) -> Self {
        Content { file, left: left.clone() }
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
    MemoryInfo,
    CpuInfo,
    Online,
    Mounts,
    Uptime,
    LoadAverage,
    SystemStat,
    Version,
    /// A number that never changes.
    Number(u64),
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
    /// A symbolic link to whoever runs.
    Executable,
    /// A device.
    Device(Device),
    /// Made up.
    Made(Made),
    /// Where a socket can be found.
    Socket,
    /// A pipe that all who open this share.
    Fifo(Arc<Pipe>),
}

/// What is in a directory.
pub struct Entries {
    names: BTreeMap<Vec<u8>, (u64, Arc<Inode>)>,
    /// The place of the next name: places go up, so that whoever reads names and takes them away meanwhile misses none.
    next: u64,
    parent: Weak<Inode>,
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
    /// When it was last changed, in nanoseconds since 1970.
    pub modified: AtomicU64,
    /// Held by whoever writes at its end.
    pub append: Mutex<()>,
    /// What may not be done to it: see [`seal`].
    pub seals: AtomicU32,
    /// What it is.
    pub body: Body,
}

impl Inode {
    /// A new one, without a name.
    pub fn new(number: u64, mode: u32, modified: u64, body: Body) -> Arc<Inode> {
        let (mode, links, modified) = (AtomicU32::new(mode), AtomicU32::new(0), AtomicU64::new(modified));
        Arc::new(Inode {
            number,
            mode,
            links,
            modified,
            append: Mutex::new(()),
            seals: AtomicU32::new(0),
            body,
        })
    }

    /// An empty directory.
    pub fn directory(number: u64, rights: u32, modified: u64) -> Arc<Inode> {
        let entries = Entries { names: BTreeMap::new(), next: FIRST_PLACE, parent: Weak::new() };
        Inode::new(number, mode::DIRECTORY | rights & 0o7777, modified, Body::Directory(Spin::new(entries)))
    }

    /// The directory of what whoever looks has open.
    pub fn open_files(number: u64) -> Arc<Inode> {
        let entries = Entries { names: BTreeMap::new(), next: FIRST_PLACE, parent: Weak::new() };
        Inode::new(number, mode::DIRECTORY | 0o500, 0, Body::OpenFiles(Spin::new(entries)))
    }

    /// The link to what whoever looks has open under a number.
    pub fn opened(number: u64) -> Arc<Inode> {
        // No file that was made has such a number.
        Inode::new(1 << 62 | number, mode::LINK | 0o700, 0, Body::Opened(number))
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self.body, Body::Directory(_) | Body::OpenFiles(_))
    }

    /// Its file, if it is one.
    pub fn file(&self) -> Option<FileId> {
        if let Body::File(content) = &self.body { Some(content.file) } else { None }
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

    /// The names in a directory, with what they name, in the order in which they came.
    ///
    /// # Errors
    /// `ENOTDIR`.
    pub fn list(&self) -> Result<Vec<Named>, Errno> {
        let list = |entries: &mut Entries| -> Vec<Named> {
            entries.names.iter().map(|(name, (place, inode))| (*place, name.clone(), inode.clone())).collect()
        };
        let mut all = self.entries()?.with(list);
        all.sort_unstable_by_key(|&(place, ..)| place);
        Ok(all)
    }

    /// Gives a name to an inode.
    ///
    /// # Errors
    /// `EEXIST`, `ENOTDIR`; `EPERM`: its names are made up.
    pub fn put(self: &Arc<Inode>, name: &[u8], inode: Arc<Inode>) -> Result<(), Errno> {
        if matches!(self.body, Body::OpenFiles(_)) {
            return Err(Errno::EPERM);
        }
        self.entries()?.with(|entries| {
            if entries.names.contains_key(name) {
                return Err(Errno::EEXIST);
            }
            entries.names.insert(name.to_vec(), (entries.next, inode.clone()));
            entries.next += 1;
            Ok(())
        })?;
        inode.links.fetch_add(1, Ordering::Relaxed);
        if let Body::Directory(below) | Body::OpenFiles(below) = &inode.body {
            below.with(|below| below.parent = Arc::downgrade(self));
        }
        Ok(())
    }

    /// Takes a name away; gives what had it.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`; `EISDIR` and `ENOTDIR` if it is not of the kind that is meant; `ENOTEMPTY`.
    pub fn take(&self, name: &[u8], directory: bool) -> Result<Arc<Inode>, Errno> {
        let inode = self.get(name)?.ok_or(Errno::ENOENT)?;
        inode.may_go(directory)?;
        self.entries()?.with(|entries| entries.names.remove(name));
        inode.links.fetch_sub(1, Ordering::Relaxed);
        Ok(inode)
    }

    /// Whether a name of it may be taken away by who means a directory, or none.
    fn may_go(&self, directory: bool) -> Result<(), Errno> {
        match &self.body {
            Body::Directory(_) if !directory => Err(Errno::EISDIR),
            Body::Directory(below) if below.with(|below| !below.names.is_empty()) => Err(Errno::ENOTEMPTY),
            Body::Directory(_) => Ok(()),
            _ if directory => Err(Errno::ENOTDIR),
            _ => Ok(()),
        }
    }

    /// Moves a name, in place of what may have the new one: whoever looks for that meanwhile finds the one or the other.
    ///
    /// # Errors
    /// As of [`take`](Self::take); `EINVAL`: a directory into itself.
    pub fn rename(self: &Arc<Inode>, name: &[u8], to: &Arc<Inode>, new: &[u8]) -> Result<Arc<Inode>, Errno> {
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
        if let Some(old) = to.get(new)? {
            if Arc::ptr_eq(&old, &inode) {
                return Ok(inode);
            }
            old.may_go(inode.is_directory())?;
        }
        let old = to.entries()?.with(|entries| {
            entries.next += 1;
            entries.names.insert(new.to_vec(), (entries.next - 1, inode.clone()))
        });
        if let Some((_, old)) = old {
            old.links.fetch_sub(1, Ordering::Relaxed);
        }
        if let Body::Directory(below) = &inode.body {
            below.with(|below| below.parent = Arc::downgrade(to));
        }
        self.entries()?.with(|entries| entries.names.remove(name));
        Ok(inode)
    }
}
