//! Calls that name files.

mod open;
mod owner;
mod stat;

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use super::HERE;
use super::watches::Reached;
use crate::capabilities::{MAKES_DEVICES, MOVES_ROOT};
use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::open::{Kind, Open};
use crate::path::{self, Found, Within};
use crate::pipe::Pipe;
use crate::process::Thread;
use crate::rights;
use crate::tree::{Body, Device, Inode, mode};
use crate::watches::event;

/// The file itself that has a number, with an empty path.
const EMPTY_PATH: u64 = 0x1000;
const NO_FOLLOW: u64 = 0x100;

/// How times are written: each as seconds and a part of one, or seconds alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    Nanoseconds,
    Microseconds,
    Seconds,
}

impl<M: Machine> Linux<'_, M> {
    /// Walks from a directory, or from the current one.
    pub(crate) fn walk(
        &self,
        thread: &Thread,
        from: Option<&Arc<Inode>>,
        path: &[u8],
        follow: bool,
    ) -> Result<Found, Errno> {
        self.walk_from(thread, from, path, follow, Within::default())
    }

    fn walk_from(
        &self,
        thread: &Thread,
        from: Option<&Arc<Inode>>,
        path: &[u8],
        follow: bool,
        within: Within,
    ) -> Result<Found, Errno> {
        let (here, root) = thread.process.place.with(|place| (place.directory.clone(), place.root.clone()));
        let directory = from.unwrap_or(&here);
        let is_open = |process, number| self.opened_by(thread, process, number).is_ok();
        let directory_open = |process, number| {
            let open = self.opened_by(thread, process, number).ok()?;
            open.inode().filter(|inode| inode.is_directory()).cloned()
        };
        let (process, shown) =
            (thread.process.pid, |directory: &Inode, number| self.shown(directory, number));
        let owner = thread.process.owner.with(|owner| owner.clone());
        let may_search = |inode: &Inode| rights::allows(inode, rights::EXECUTE, &owner, false);
        let (root, thread) = (&root, thread.tid);
        let (shown, is_open, directory_open, may_search) = (&shown, &is_open, &directory_open, &may_search);
        let from = path::From {
            root,
            directory,
            process,
            thread,
            shown,
            is_open,
            directory_open,
            may_search,
            within,
        };
        path::walk(&from, path, follow)
    }

    /// What a process has open under a number; of 0, the one that looks.
    fn opened_by(&self, thread: &Thread, process: u32, number: u64) -> Result<Arc<Open>, Errno> {
        match process {
            0 => self.open_file(thread, number),
            own if own == thread.process.pid => self.open_file(thread, number),
            other => {
                let process = self.processes.with(|all| all.get(&other).cloned()).ok_or(Errno::ENOENT)?;
                process.files.with(|files| files.get(number))
            }
        }
    }

    /// What such a link leads to.
    pub(crate) fn opened(&self, thread: &Thread, link: &Inode, number: u64) -> Result<Arc<Open>, Errno> {
        self.opened_by(thread, link.opener(), number)
    }

    fn walk_at(&self, thread: &Thread, directory: u64, path: &[u8], follow: bool) -> Result<Found, Errno> {
        self.walk_within(thread, directory, path, follow, Within::default())
    }

    fn walk_within(
        &self,
        thread: &Thread,
        directory: u64,
        path: &[u8],
        follow: bool,
        within: Within,
    ) -> Result<Found, Errno> {
        let absolute = path.first() == Some(&b'/') && !within.in_root;
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        if directory as u32 == HERE as u32 || absolute {
            return self.walk_from(thread, None, path, follow, within);
        }
        let open = self.open_file(thread, directory)?;
        match &open.kind {
            Kind::Directory(inode) => self.walk_from(thread, Some(inode), path, follow, within),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// What is there.
    pub(super) fn there(
        &self,
        thread: &Thread,
        directory: u64,
        path: u64,
        follow: bool,
    ) -> Result<Arc<Inode>, Errno> {
        self.reach(thread, directory, path, follow).map(|reached| reached.inode)
    }

    /// The same, with where it lies. What leads to something open leads there.
    pub(super) fn reach(
        &self,
        thread: &Thread,
        directory: u64,
        path: u64,
        follow: bool,
    ) -> Result<Reached, Errno> {
        let path = self.load_path(path)?;
        let found = self.walk_at(thread, directory, &path, follow)?;
        let inode = found.inode.ok_or(Errno::ENOENT)?;
        if let Body::Opened(number) = &inode.body
            && follow
            && let Some(reached) = Reached::of(&*self.opened(thread, &inode, *number)?)
        {
            return Ok(reached);
        }
        if found.directory_meant && !inode.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        let above = (!found.name.is_empty()).then_some((found.directory, found.name));
        Ok(Reached { inode, above })
    }

    /// Walks to a name itself, whatever has it: a slash behind it says that a directory is meant, and leads nowhere.
    fn walk_to_name(&self, thread: &Thread, directory: u64, path: &[u8]) -> Result<Found, Errno> {
        let end = path.iter().rposition(|&byte| byte != b'/').map_or(path.len(), |last| last + 1);
        let found = self.walk_at(thread, directory, &path[..end], false)?;
        let directory_meant = found.directory_meant || end < path.len();
        Ok(Found { directory_meant, ..found })
    }

    /// Where something new is to be.
    fn place(&self, thread: &Thread, directory: u64, path: u64) -> Result<Found, Errno> {
        let found = self.walk_to_name(thread, directory, &self.load_path(path)?)?;
        if found.inode.is_some() || found.name.is_empty() { Err(Errno::EEXIST) } else { Ok(found) }
    }

    /// The same of what is no directory.
    fn place_of_file(&self, thread: &Thread, directory: u64, path: u64) -> Result<Found, Errno> {
        self.place(thread, directory, path)
            .and_then(|found| if found.directory_meant { Err(Errno::ENOENT) } else { Ok(found) })
    }

    /// Gives a new thing its owner.
    fn give_owner(&self, thread: &Thread, directory: &Inode, new: &Inode) {
        const GROUP_OF_DIRECTORY: u32 = 0o2000;
        let (user, group) = thread.process.owner.with(|owner| (owner.users[3], owner.groups[3]));
        let inherits = directory.mode.load(Ordering::Relaxed) & GROUP_OF_DIRECTORY != 0;
        let group = if inherits { directory.owner[1].load(Ordering::Relaxed) } else { group };
        new.owner[0].store(user, Ordering::Relaxed);
        new.owner[1].store(group, Ordering::Relaxed);
        if inherits && new.is_directory() {
            new.mode.fetch_or(GROUP_OF_DIRECTORY, Ordering::Relaxed);
        }
    }

    /// Gives a new thing its name, and its owner.
    pub(super) fn name_it(&self, thread: &Thread, found: &Found, new: Arc<Inode>) -> Result<(), Errno> {
        self.may(thread, &found.directory, rights::WRITE | rights::EXECUTE)?;
        self.give_owner(thread, &found.directory, &new);
        found.directory.put(&found.name, new.clone())?;
        found.directory.touch(self.clock());
        self.happened(Some(&new), Some((&found.directory, &found.name)), event::CREATE, 0);
        Ok(())
    }

    pub(super) fn umask(&self, thread: &Thread, rights: u32) -> u32 {
        rights & !thread.process.place.with(|place| place.umask)
    }

    pub(crate) fn mknod(&self, thread: &Thread, [directory, path, what, device]: [u64; 4]) -> Answer {
        let found = self.place_of_file(thread, directory, path)?;
        let what = what as u32;
        let rights = self.umask(thread, what) & 0o7777;
        let made = |kind: u32, body| Inode::new(self.inode_number(), kind | rights, self.clock(), body);
        let inode = match what & mode::KIND {
            0 | mode::FILE => self.new_file_in(&found.directory, rights)?,
            mode::PIPE => made(mode::PIPE, Body::Fifo(Pipe::named(&self.left))),
            mode::SOCKET => made(mode::SOCKET, Body::Socket),
            mode::DEVICE | mode::BLOCKS if !thread.process.owner.with(|owner| owner.may(MAKES_DEVICES)) => {
                return Err(Errno::EPERM);
            }
            kind @ (mode::DEVICE | mode::BLOCKS) => {
                made(kind, Body::Device(Device::of(device as u32, kind == mode::BLOCKS)))
            }
            mode::DIRECTORY => return Err(Errno::EPERM),
            _ => return Err(Errno::EINVAL),
        };
        self.name_it(thread, &found, inode).map(|()| 0)
    }

    pub(crate) fn readlink(&self, thread: &Thread, directory: u64, path: u64, to: u64, bytes: u64) -> Answer {
        if bytes as i32 <= 0 {
            return Err(Errno::EINVAL);
        }
        // A link that is open to be named.
        let inode = if directory as u32 != HERE as u32 && self.load_path(path)?.is_empty() {
            let open = self.open_file(thread, directory)?;
            let link = open.inode().filter(|inode| matches!(inode.body, Body::Link(_)));
            link.cloned().ok_or(Errno::ENOENT)?
        } else {
            self.there(thread, directory, path, false)?
        };
        let target = match &inode.body {
            Body::Link(target) => target.clone(),
            Body::Itself(of_thread) => path::itself(thread.process.pid, of_thread.then_some(thread.tid)),
            Body::Opened(number) => self.opened(thread, &inode, *number)?.shown(),
            _ => return Err(Errno::EINVAL),
        };
        let len = target.len().min(bytes as usize);
        self.machine.write_user(to, &target[..len])?;
        Ok(len as u64)
    }

    pub(crate) fn getcwd(&self, thread: &Thread, to: u64, bytes: u64) -> Answer {
        let here = thread.process.place.with(|place| place.directory.clone());
        if here.is_gone() {
            return Err(Errno::ENOENT);
        }
        let root = thread.process.place.with(|place| place.root.clone());
        // No name is moved meanwhile: for a moment the way up would be by where it was.
        let mut path = self.moving.with(|()| path::path_of(&here));
        if !Arc::ptr_eq(&root, &self.root) {
            let above = path::path_of(&root);
            path = match path.strip_prefix(above.as_slice()) {
                Some(b"") => b"/".to_vec(),
                Some(below) if below.starts_with(b"/") => below.to_vec(),
                _ => [b"(unreachable)", path.as_slice()].concat(),
            };
        }
        path.push(0);
        if path.len() > path::LONGEST {
            return Err(Errno::ENAMETOOLONG);
        }
        if path.len() > bytes as usize {
            return Err(Errno::ERANGE);
        }
        self.machine.write_user(to, &path)?;
        Ok(path.len() as u64)
    }

    pub(crate) fn chdir(&self, thread: &Thread, path: u64) -> Answer {
        let inode = self.there(thread, HERE, path, true)?;
        if !inode.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        self.may(thread, &inode, rights::EXECUTE)?;
        thread.process.place.with(|place| place.directory = inode);
        Ok(0)
    }

    /// Paths begin there from now on.
    pub(crate) fn chroot(&self, thread: &Thread, path: u64) -> Answer {
        let inode = self.there(thread, HERE, path, true)?;
        if !inode.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        self.may(thread, &inode, crate::rights::EXECUTE)?;
        if !thread.process.owner.with(|owner| owner.may(MOVES_ROOT)) {
            return Err(Errno::EPERM);
        }
        thread.process.place.with(|place| place.root = inode);
        Ok(0)
    }

    pub(crate) fn fchdir(&self, thread: &Thread, number: u64) -> Answer {
        let open = self.open_file(thread, number)?;
        let Kind::Directory(inode) = &open.kind else { return Err(Errno::ENOTDIR) };
        self.may(thread, inode, rights::EXECUTE)?;
        thread.process.place.with(|place| place.directory = inode.clone());
        Ok(0)
    }

    pub(crate) fn mkdir(&self, thread: &Thread, directory: u64, path: u64, rights: u32) -> Answer {
        let found = self.place(thread, directory, path)?;
        // Whose group it has is no right of it.
        let rights = self.umask(thread, rights) & 0o1777;
        let new = Inode::directory(self.inode_number(), rights, self.clock());
        self.name_it(thread, &found, new).map(|()| 0)
    }

    pub(crate) fn unlink(&self, thread: &Thread, directory: u64, path: u64, is_directory: bool) -> Answer {
        let path = self.load_path(path)?;
        let found = self.walk_to_name(thread, directory, &path)?;
        if found.name.is_empty() {
            return Err(match is_directory {
                true if path.iter().all(|&byte| byte == b'/') => Errno::EBUSY,
                true if path.ends_with(b"..") => Errno::ENOTEMPTY,
                true => Errno::EINVAL,
                false => Errno::EISDIR,
            });
        }
        if found.directory_meant && !is_directory {
            return Err(match &found.inode {
                None => Errno::ENOENT,
                Some(inode) if inode.is_directory() => Errno::EISDIR,
                Some(_) => Errno::ENOTDIR,
            });
        }
        if let Some(inode) = &found.inode {
            self.may_take(thread, &found.directory, inode)?;
        }
        let gone = self.moving.with(|()| found.directory.take(&found.name, is_directory))?;
        let now = self.clock();
        found.directory.touch(now);
        gone.changed.store(now, Ordering::Relaxed);
        let last = is_directory || gone.links.load(Ordering::Relaxed) == 0;
        if !is_directory {
            self.happened(Some(&gone), None, event::ATTRIBUTES, 0);
        }
        if last {
            self.happened(Some(&gone), None, event::DELETE_SELF, 0);
        }
        self.happened(Some(&gone), Some((&found.directory, &found.name)), event::DELETE, 0);
        Ok(0)
    }

    pub(crate) fn rename(&self, thread: &Thread, [from, path, to, new, flags]: [u64; 5]) -> Answer {
        const NO_REPLACE: u64 = 1;
        const EXCHANGE: u64 = 2;
        let (path, new) = (self.load_path(path)?, self.load_path(new)?);
        let from = self.walk_to_name(thread, from, &path)?;
        let to = self.walk_to_name(thread, to, &new)?;
        if flags & !(NO_REPLACE | EXCHANGE) != 0 || flags == NO_REPLACE | EXCHANGE {
            return Err(Errno::EINVAL);
        }
        if from.inode.is_none() {
            return Err(Errno::ENOENT);
        }
        if flags & NO_REPLACE != 0 && to.inode.is_some() {
            return Err(Errno::EEXIST);
        }
        if from.name.is_empty() || to.name.is_empty() {
            return Err(Errno::EBUSY);
        }
        // What the new name is to replace is not empty, if the old one lies in it.
        let mut above = if flags & EXCHANGE == 0 { Some(from.directory.clone()) } else { None };
        while let Some(directory) = above {
            if to.inode.as_ref().is_some_and(|inode| Arc::ptr_eq(inode, &directory)) {
                return Err(Errno::ENOTEMPTY);
            }
            above = directory.parent();
        }
        let is_file = |found: &Found| !found.inode.as_ref().is_some_and(|inode| inode.is_directory());
        let comes = if flags & EXCHANGE != 0 { &to } else { &from };
        if is_file(&from) && from.directory_meant || is_file(comes) && to.directory_meant {
            return Err(Errno::ENOTDIR);
        }
        for place in [&from, &to] {
            match &place.inode {
                Some(inode) => self.may_take(thread, &place.directory, inode)?,
                None => self.may(thread, &place.directory, rights::WRITE | rights::EXECUTE)?,
            }
        }
        // What is above a directory is written in it.
        if !Arc::ptr_eq(&from.directory, &to.directory) {
            let moves = [Some(&from), Some(&to).filter(|_| flags & EXCHANGE != 0)];
            let moves = moves.into_iter().flatten().filter_map(|place| place.inode.as_ref());
            for directory in moves.filter(|inode| inode.is_directory()) {
                self.may(thread, directory, rights::WRITE)?;
            }
        }
        let moved = self.moving.with(|()| {
            if flags & EXCHANGE != 0 {
                return from.directory.exchange(&from.name, &to.directory, &to.name).map(|()| None);
            }
            let replaces = flags & NO_REPLACE == 0;
            from.directory.rename(&from.name, &to.directory, &to.name, replaces).map(Some)
        })?;
        let now = self.clock();
        if let Some(inode) = &from.inode {
            let cookie = self.random() as u32 | 1;
            self.happened(Some(inode), Some((&from.directory, &from.name)), event::MOVED_FROM, cookie);
            self.happened(Some(inode), Some((&to.directory, &to.name)), event::MOVED_TO, cookie);
            self.happened(Some(inode), None, event::MOVE_SELF, 0);
        }
        for directory in [&from.directory, &to.directory] {
            directory.touch(now);
        }
        // What loses its name has others perhaps.
        for inode in moved.iter().chain(&from.inode).chain(&to.inode) {
            inode.changed.store(now, Ordering::Relaxed);
        }
        Ok(0)
    }

    pub(crate) fn link(&self, thread: &Thread, [from, path, to, new, flags]: [u64; 5]) -> Answer {
        const FOLLOW: u64 = 0x400;
        if flags & !(FOLLOW | EMPTY_PATH) != 0 {
            return Err(Errno::EINVAL);
        }
        let inode = if flags & EMPTY_PATH != 0 && self.load_path(path)?.is_empty() {
            self.open_file(thread, from)?.inode().cloned().ok_or(Errno::EXDEV)?
        } else {
            self.there(thread, from, path, flags & FOLLOW != 0)?
        };
        let found = self.place_of_file(thread, to, new)?;
        if inode.is_directory() {
            return Err(Errno::EPERM);
        }
        // What is made up has no other names.
        if crate::procfs::is_made_up(&inode) {
            return Err(Errno::EXDEV);
        }
        self.may(thread, &found.directory, rights::WRITE | rights::EXECUTE)?;
        self.moving.with(|()| {
            // What has lost its last name gets none.
            let may = inode.links.load(Ordering::Relaxed) > 0 || inode.nameless.load(Ordering::Relaxed);
            if matches!(inode.body, Body::File(_)) && !may {
                return Err(Errno::ENOENT);
            }
            found.directory.put(&found.name, inode.clone())?;
            inode.nameless.store(false, Ordering::Relaxed);
            Ok(())
        })?;
        let now = self.clock();
        found.directory.touch(now);
        inode.changed.store(now, Ordering::Relaxed);
        self.happened(Some(&inode), None, event::ATTRIBUTES, 0);
        self.happened(Some(&inode), Some((&found.directory, &found.name)), event::CREATE, 0);
        Ok(0)
    }

    pub(crate) fn symlink(&self, thread: &Thread, target: u64, directory: u64, path: u64) -> Answer {
        let target = self.load_path(target)?;
        let found = self.place_of_file(thread, directory, path)?;
        if target.is_empty() {
            return Err(Errno::ENOENT);
        }
        let link = Inode::new(self.inode_number(), mode::LINK | 0o777, self.clock(), Body::Link(target));
        self.name_it(thread, &found, link).map(|()| 0)
    }
}
