//! Calls that name files.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use super::HERE;
use super::watches::Reached;
use crate::errno::{Answer, Errno};
use crate::kernel::{AGAIN, Kept, Linux, Waited};
use crate::layout::{Pack, Stat};
use crate::machine::Machine;
use crate::open::{Kind, Open, flag};
use crate::path::{self, Found};
use crate::pipe::{Pipe, Way};
use crate::process::{Process, Thread};
use crate::rights;
use crate::sync::key_of;
use crate::tree::{Body, Device, Inode, Made, mode, seal};
use crate::watches::event;

/// The file itself that has a number, with an empty path.
const EMPTY_PATH: u64 = 0x1000;
const NO_FOLLOW: u64 = 0x100;

impl<M: Machine> Linux<'_, M> {
    /// Walks from a directory, or from the current one.
    pub(crate) fn walk(
        &self,
        thread: &Thread,
        from: Option<&Arc<Inode>>,
        path: &[u8],
        follow: bool,
    ) -> Result<Found, Errno> {
        let (here, root) = thread.process.place.with(|place| (place.directory.clone(), place.root.clone()));
        let directory = from.unwrap_or(&here);
        let is_open = |process, number| self.opened_by(thread, process, number).is_ok();
        let (process, shown) =
            (thread.process.pid, |directory: &Inode, number| self.shown(directory, number));
        let owner = thread.process.owner.with(|owner| owner.clone());
        let may_search = |inode: &Inode| rights::allows(inode, rights::EXECUTE, &owner, false);
        let (root, thread) = (&root, thread.tid);
        let (shown, is_open, may_search) = (&shown, &is_open, &may_search);
        let from = path::From { root, directory, process, thread, shown, is_open, may_search };
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
        if directory as u32 == HERE as u32 || path.first() == Some(&b'/') {
            return self.walk(thread, None, path, follow);
        }
        let open = self.open_file(thread, directory)?;
        match &open.kind {
            Kind::Directory(inode) => self.walk(thread, Some(inode), path, follow),
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

    /// Where something new is to be.
    fn place(&self, thread: &Thread, directory: u64, path: u64) -> Result<Found, Errno> {
        let path = self.load_path(path)?;
        let found = self.walk_at(thread, directory, &path, false)?;
        if found.inode.is_some() || found.name.is_empty() { Err(Errno::EEXIST) } else { Ok(found) }
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

    pub(crate) fn open(&self, thread: &Thread, directory: u64, path: u64, flags: u32, rights: u32) -> Answer {
        let path = self.load_path(path)?;
        if flags & flag::TEMPORARY == flag::TEMPORARY {
            return self.open_temporary(thread, directory, &path, flags, rights);
        }
        let exclusive = flags & flag::CREATE != 0 && flags & flag::EXCLUSIVE != 0;
        let follow = flags & flag::NO_FOLLOW == 0 && !exclusive;
        let found = self.walk_at(thread, directory, &path, follow)?;
        // What is new is empty already, and nobody hears that it is made so.
        let mut made = false;
        let wanted = match flags & flag::ACCESS {
            _ if flags & flag::PATH != 0 => 0,
            0 if flags & flag::TRUNCATE != 0 => rights::READ | rights::WRITE,
            0 => rights::READ,
            flag::WRITE_ONLY => rights::WRITE,
            _ => rights::READ | rights::WRITE,
        };
        let inode = match &found.inode {
            Some(_) if exclusive => return Err(Errno::EEXIST),
            Some(inode) => {
                // Links are refused for what they are.
                if !matches!(inode.body, Body::Link(_) | Body::Itself(_) | Body::Opened(_)) {
                    self.may(thread, inode, wanted)?;
                }
                inode.clone()
            }
            None if flags & flag::CREATE == 0 => return Err(Errno::ENOENT),
            None if found.directory_meant => return Err(Errno::EISDIR),
            None => {
                let new = self.new_file_in(&found.directory, self.umask(thread, rights))?;
                match self.name_it(thread, &found, new.clone()) {
                    Ok(()) => {
                        made = true;
                        new
                    }
                    // Somebody was faster.
                    Err(Errno::EEXIST) if !exclusive => {
                        found.directory.get(&found.name)?.ok_or(Errno::ENOENT)?
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        let above = found.directory.clone();
        let opened = match &inode.body {
            Body::Opened(number) if follow => self.open_again(thread, &inode, *number, flags)?,
            _ => self.open_inode(thread, inode, flags, path::whole(&found))?,
        };
        opened.above.with(|kept| *kept = Some(Arc::downgrade(&above)));
        if flags & flag::TRUNCATE != 0
            && !made
            && flags & flag::ACCESS != 0
            && let Kind::File(_) = &opened.kind
            && let Some(reached) = Reached::of(&opened)
        {
            self.set_len(thread, &reached, 0)?;
        }
        if flags & flag::PATH == 0 {
            self.happened_to(&opened, event::OPEN);
        }
        let cloexec = flags & flag::CLOSE_ON_EXEC != 0;
        thread.process.files.with(|files| files.add(opened, cloexec, 0))
    }

    /// Opens a file that has no name, as one in this directory: it may get a name later, unless it is said that it gets none.
    fn open_temporary(
        &self,
        thread: &Thread,
        directory: u64,
        path: &[u8],
        flags: u32,
        rights: u32,
    ) -> Answer {
        if flags & flag::DIRECTORY == 0 || flags & flag::ACCESS == 0 {
            return Err(Errno::EINVAL);
        }
        let found = self.walk_at(thread, directory, path, true)?;
        let above = found.inode.clone().ok_or(Errno::ENOENT)?;
        if !matches!(above.body, Body::Directory(_)) {
            return Err(Errno::ENOTDIR);
        }
        self.may(thread, &above, rights::WRITE | rights::EXECUTE)?;
        let inode = self.new_file_in(&above, self.umask(thread, rights))?;
        self.give_owner(thread, &above, &inode);
        inode.nameless.store(flags & flag::EXCLUSIVE == 0, Ordering::Relaxed);
        let mut whole = path::path_of(&above);
        if whole.len() > 1 {
            whole.push(b'/');
        }
        whole.extend(alloc::format!("#{}", inode.number).into_bytes());
        let open = Open::new(Kind::File(inode), flags & !(flag::CREATE | flag::EXCLUSIVE), whole);
        thread.process.files.with(|files| files.add(open, flags & flag::CLOSE_ON_EXEC != 0, 0))
    }

    /// Opens what is open under a number once more.
    fn open_again(&self, thread: &Thread, link: &Inode, number: u64, flags: u32) -> Result<Arc<Open>, Errno> {
        let open = self.opened(thread, link, number)?;
        if flags & flag::DIRECTORY != 0 && !matches!(open.kind, Kind::Directory(_)) {
            return Err(Errno::ENOTDIR);
        }
        let kind = match &open.kind {
            Kind::Pipe(end) => {
                let writes = flags & flag::ACCESS == flag::WRITE_ONLY;
                Kind::Pipe(end.pipe.end(if writes { Way::Write } else { Way::Read }))
            }
            Kind::Console(which) => Kind::Console(*which),
            _ => {
                let inode = open.inode().ok_or(Errno::ENXIO)?.clone();
                return self.open_inode(thread, inode, flags, open.path.clone());
            }
        };
        Ok(Open::new(kind, flags, open.path.clone()))
    }

    fn open_inode(
        &self,
        thread: &Thread,
        inode: Arc<Inode>,
        flags: u32,
        path: Vec<u8>,
    ) -> Result<Arc<Open>, Errno> {
        let writes = flags & flag::ACCESS != 0;
        if flags & flag::DIRECTORY != 0 && !inode.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        let kind = match &inode.body {
            Body::Directory(_) | Body::OpenFiles(_) if writes && flags & flag::PATH == 0 => {
                return Err(Errno::EISDIR);
            }
            Body::Directory(_) | Body::OpenFiles(_) => Kind::Directory(inode.clone()),
            Body::Link(_) | Body::Itself(_) | Body::Opened(_) if flags & flag::PATH == 0 => {
                return Err(Errno::ELOOP);
            }
            Body::Link(_) | Body::Itself(_) | Body::Opened(_) => Kind::Text(Vec::new(), inode.clone()),
            Body::Device(_) | Body::Terminal(_) if flags & flag::PATH != 0 => {
                Kind::Text(Vec::new(), inode.clone())
            }
            Body::Device(Device::Terminals) => self.open_master(thread, &inode)?,
            Body::Device(Device::Own) => {
                let (terminal, inode) = self.own_terminal(thread)?;
                self.open_slave(thread, &terminal, &inode, flags)?
            }
            Body::Terminal(terminal) => self.open_slave(thread, terminal, &inode, flags)?,
            Body::Device(Device::Console) => Kind::Device(Device::Console, inode.clone()),
            Body::Device(device) => Kind::Device(*device, inode.clone()),
            Body::Fifo(_) if flags & flag::PATH != 0 => Kind::Text(Vec::new(), inode.clone()),
            Body::Fifo(pipe) => self.open_fifo(thread, pipe, flags)?,
            Body::Socket if flags & flag::PATH == 0 => return Err(Errno::ENXIO),
            Body::Socket => Kind::Text(Vec::new(), inode.clone()),
            Body::Made(made) => Kind::Text(self.made(&thread.process, None, *made)?, inode.clone()),
            Body::MadeOf(pid, _, Made::Space) => {
                let process = self.processes.with(|all| all.get(pid).cloned()).ok_or(Errno::ESRCH)?;
                if !self.may_look_into(thread, &process) {
                    return Err(Errno::EACCES);
                }
                let memory = process.memory.with(|memory| memory.as_ref().map(Arc::downgrade));
                Kind::Space(memory.unwrap_or_default(), inode.clone())
            }
            Body::MadeOf(pid, tid, made) => {
                let process = self.processes.with(|all| all.get(pid).cloned()).ok_or(Errno::ESRCH)?;
                Kind::Text(self.made(&process, *tid, *made)?, inode.clone())
            }
            Body::File(_) => Kind::File(inode.clone()),
        };
        Ok(Open::new(kind, flags & !(flag::CREATE | flag::EXCLUSIVE | flag::TRUNCATE), path))
    }

    /// What is shown of a process, if there is memory for it.
    fn made(&self, process: &Arc<Process>, tid: Option<u32>, made: Made) -> Result<Vec<u8>, Errno> {
        let bytes = match made {
            // A line for each area, and twice that while it grows.
            Made::Maps => self.bytes_of_maps(process, 512),
            Made::Areas => self.bytes_of_maps(process, 3072),
            Made::CommandLine => process.place.with(|place| place.arguments.len()) as u64,
            Made::Environment => process.place.with(|place| place.environment.len()) as u64,
            _ => 0,
        };
        if bytes > 0 && !self.machine.has_piece(bytes) {
            Err(Errno::ENOMEM)
        } else {
            Ok(self.make(process, tid, made))
        }
    }

    /// An end of a pipe with a name, once somebody has the other one.
    fn open_fifo(&self, thread: &Thread, pipe: &Arc<Pipe>, flags: u32) -> Result<Kind, Errno> {
        let (way, other) = match flags & flag::ACCESS {
            0 => (Way::Read, Way::Write),
            flag::WRITE_ONLY => (Way::Write, Way::Read),
            _ => return Ok(Kind::Both(pipe.end(Way::Read), pipe.end(Way::Write))),
        };
        let at_once = flags & flag::NO_WAIT != 0;
        if at_once && way == Way::Write && !pipe.is_open(Way::Read) {
            return Err(Errno::ENXIO);
        }
        let (end, before) = pipe.end_before(way, other);
        self.changed(key_of(&**pipe));
        let met = || before.is_none_or(|before| pipe.is_open(other) || pipe.opened(other) != before);
        if !at_once && self.wait(thread, key_of(&**pipe), None, met) != Waited::Ready {
            return Err(AGAIN);
        }
        Ok(Kind::Pipe(end))
    }

    pub(crate) fn mknod(&self, thread: &Thread, [directory, path, what, device]: [u64; 4]) -> Answer {
        let found = self.place(thread, directory, path)?;
        let what = what as u32;
        let rights = self.umask(thread, what) & 0o7777;
        let made = |kind: u32, body| Inode::new(self.inode_number(), kind | rights, self.clock(), body);
        let inode = match what & mode::KIND {
            0 | mode::FILE => self.new_file_in(&found.directory, rights)?,
            mode::PIPE => made(mode::PIPE, Body::Fifo(Pipe::named(&self.left))),
            mode::SOCKET => made(mode::SOCKET, Body::Socket),
            mode::DEVICE => {
                let device = match device {
                    0x103 => Device::Null,
                    0x105 => Device::Zero,
                    0x107 => Device::Full,
                    0x108 | 0x109 => Device::Random,
                    _ => return Err(Errno::EPERM),
                };
                made(mode::DEVICE, Body::Device(device))
            }
            _ => return Err(Errno::EPERM),
        };
        self.name_it(thread, &found, inode).map(|()| 0)
    }

    pub(crate) fn memfd(&self, thread: &Thread, name: u64, flags: u64) -> Answer {
        const MAY_SEAL: u64 = 2;
        const LONGEST: usize = 249;
        let name = self.load_text(name, LONGEST).map_err(|error| match error {
            Errno::ENAMETOOLONG => Errno::EINVAL,
            other => other,
        })?;
        if name.len() > LONGEST {
            return Err(Errno::EINVAL);
        }
        if flags & !0x1f != 0 {
            return Err(Errno::EINVAL);
        }
        let inode = self.new_file(Kept::InMemory, 0o777)?;
        let more = if flags & MAY_SEAL == 0 { seal::NO_MORE } else { 0 };
        inode.seals.store(seal::SEALABLE | more, Ordering::SeqCst);
        let path = [b"/memfd:", name.as_slice()].concat();
        let open = Open::new(Kind::File(inode), flag::READ_WRITE, path);
        thread.process.files.with(|files| files.add(open, flags & 1 != 0, 0))
    }

    fn stat_of(&self, inode: &Inode) -> Stat {
        let bytes = match &inode.body {
            Body::File(content) => self.file_len(content.file),
            Body::Link(target) => target.len() as u64,
            Body::Directory(_) => 4096,
            _ => 0,
        };
        let device = match &inode.body {
            Body::Device(Device::Null) => 0x103,
            Body::Device(Device::Zero) => 0x105,
            Body::Device(Device::Full) => 0x107,
            Body::Device(Device::Random) => 0x109,
            Body::Device(Device::Console) => 0x501,
            Body::Device(Device::Own) => 0x500,
            Body::Device(Device::Terminals) => 0x502,
            Body::Terminal(terminal) => crate::terminal::device(terminal.number),
            _ => 0,
        };
        let mode = inode.mode.load(Ordering::Relaxed);
        let times = [&inode.accessed, &inode.modified, &inode.changed];
        // What is made up has no length, one name, and is as old as its process at most: as it is looked at.
        let made_up = crate::procfs::is_made_up(inode);
        let now = self.clock();
        Stat {
            number: inode.number,
            mode,
            links: if made_up { inode.names().max(1) } else { inode.names() },
            device,
            bytes: if made_up { 0 } else { bytes },
            times: times.map(|time| match time.load(Ordering::Relaxed) {
                0 if made_up => now,
                time => time,
            }),
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
            Kind::Socket(_) => (mode::SOCKET | 0o777, 0),
            _ => (0o600, 0),
        };
        let own = match &open.kind {
            // Both ends are one file.
            Kind::Pipe(end) | Kind::Both(end, _) => Arc::as_ptr(&end.pipe).addr(),
            _ => core::ptr::from_ref(open).addr(),
        };
        let number = own as u64 >> 4 & 0xffff_ffff;
        Stat { number, mode, links: 1, device, bytes: 0, times: [self.clock(); 3], owner: [0; 2] }
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
            _ => Ok(self.stat_of(&inode)),
        }
    }

    pub(crate) fn stat(&self, thread: &Thread, directory: u64, path: u64, to: u64, flags: u64) -> Answer {
        let stat = self.stat_at(thread, directory, path, flags)?;
        self.machine.write_user(to, &stat.pack()).map(|()| 0)
    }

    pub(crate) fn fstat(&self, thread: &Thread, number: u64, to: u64) -> Answer {
        let open = self.open_file(thread, number)?;
        self.machine.write_user(to, &self.stat_open(&open).pack()).map(|()| 0)
    }

    pub(crate) fn statx(&self, thread: &Thread, [directory, path, flags, _, to, _]: [u64; 6]) -> Answer {
        let stat = self.stat_at(thread, directory, path, flags)?;
        self.machine.write_user(to, &stat.pack_extended()).map(|()| 0)
    }

    pub(crate) fn statfs(&self, to: u64) -> Answer {
        const TMPFS: u64 = 0x0102_1994;
        let (total, free) = self.machine.memory();
        let head = Pack::default().long(TMPFS).long(4096).long(total / 4).long(free / 4).long(free / 4);
        let all = head.long(1 << 20).long(1 << 20).long(0).long(255).long(4096).zeros_to(120);
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

    pub(crate) fn readlink(&self, thread: &Thread, directory: u64, path: u64, to: u64, bytes: u64) -> Answer {
        let inode = self.there(thread, directory, path, false)?;
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
        let mut path = path::path_of(&here);
        if !Arc::ptr_eq(&root, &self.root) {
            let above = path::path_of(&root);
            path = match path.strip_prefix(above.as_slice()) {
                Some(b"") => b"/".to_vec(),
                Some(below) if below.starts_with(b"/") => below.to_vec(),
                _ => [b"(unreachable)", path.as_slice()].concat(),
            };
        }
        path.push(0);
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
        if !thread.process.owner.with(|owner| owner.is_root()) {
            return Err(Errno::EPERM);
        }
        thread.process.place.with(|place| place.root = inode);
        Ok(0)
    }

    pub(crate) fn fchdir(&self, thread: &Thread, number: u64) -> Answer {
        let open = self.open_file(thread, number)?;
        let Kind::Directory(inode) = &open.kind else { return Err(Errno::ENOTDIR) };
        thread.process.place.with(|place| place.directory = inode.clone());
        Ok(0)
    }

    pub(crate) fn mkdir(&self, thread: &Thread, directory: u64, path: u64, rights: u32) -> Answer {
        let found = self.place(thread, directory, path)?;
        let new = Inode::directory(self.inode_number(), self.umask(thread, rights), self.clock());
        self.name_it(thread, &found, new).map(|()| 0)
    }

    pub(crate) fn unlink(&self, thread: &Thread, directory: u64, path: u64, is_directory: bool) -> Answer {
        let path = self.load_path(path)?;
        let found = self.walk_at(thread, directory, &path, false)?;
        if found.name.is_empty() {
            return Err(if is_directory { Errno::EINVAL } else { Errno::EISDIR });
        }
        if let Some(inode) = &found.inode {
            self.may_take(thread, &found.directory, inode)?;
        }
        let take = || found.directory.take(&found.name, is_directory);
        let gone = if is_directory { self.moving.with(|()| take()) } else { take() }?;
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
        let from = self.walk_at(thread, from, &path, false)?;
        let to = self.walk_at(thread, to, &new, false)?;
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
            return Err(Errno::EINVAL);
        }
        for place in [&from, &to] {
            match &place.inode {
                Some(inode) => self.may_take(thread, &place.directory, inode)?,
                None => self.may(thread, &place.directory, rights::WRITE | rights::EXECUTE)?,
            }
        }
        let moved = self.moving.with(|()| {
            if flags & EXCHANGE != 0 {
                return from.directory.exchange(&from.name, &to.directory, &to.name).map(|()| None);
            }
            from.directory.rename(&from.name, &to.directory, &to.name).map(Some)
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
        for inode in moved.iter().chain(&from.inode) {
            inode.changed.store(now, Ordering::Relaxed);
        }
        Ok(0)
    }

    pub(crate) fn link(&self, thread: &Thread, [from, path, to, new, flags]: [u64; 5]) -> Answer {
        const FOLLOW: u64 = 0x400;
        let inode = self.there(thread, from, path, flags & FOLLOW != 0)?;
        let found = self.place(thread, to, new)?;
        if inode.is_directory() {
            return Err(Errno::EPERM);
        }
        // What is made up has no other names, and what has lost its last one gets none.
        if crate::procfs::is_made_up(&inode) {
            return Err(Errno::EXDEV);
        }
        let may = || inode.links.load(Ordering::Relaxed) > 0 || inode.nameless.swap(false, Ordering::Relaxed);
        if matches!(inode.body, Body::File(_)) && !may() {
            return Err(Errno::ENOENT);
        }
        self.may(thread, &found.directory, rights::WRITE | rights::EXECUTE)?;
        found.directory.put(&found.name, inode.clone())?;
        let now = self.clock();
        found.directory.touch(now);
        inode.changed.store(now, Ordering::Relaxed);
        self.happened(Some(&inode), None, event::ATTRIBUTES, 0);
        self.happened(Some(&inode), Some((&found.directory, &found.name)), event::CREATE, 0);
        Ok(0)
    }

    pub(crate) fn symlink(&self, thread: &Thread, target: u64, directory: u64, path: u64) -> Answer {
        let target = self.load_path(target)?;
        let found = self.place(thread, directory, path)?;
        if target.is_empty() {
            return Err(Errno::ENOENT);
        }
        let link = Inode::new(self.inode_number(), mode::LINK | 0o777, self.clock(), Body::Link(target));
        self.name_it(thread, &found, link).map(|()| 0)
    }

    /// Whether a process may say whose a file is, and what may be done with it.
    fn owns(&self, thread: &Thread, inode: &Inode) -> Result<(), Errno> {
        let user = inode.owner[0].load(Ordering::Relaxed);
        let owns = thread.process.owner.with(|owner| owner.is_root() || owner.users[3] == user);
        if owns { Ok(()) } else { Err(Errno::EPERM) }
    }

    pub(crate) fn chown(
        &self,
        thread: &Thread,
        directory: u64,
        path: u64,
        to: [u64; 2],
        flags: u64,
    ) -> Answer {
        /// Runs as its owner, and as its group if that may run it.
        const AS_USER: u32 = 0o4000;
        const AS_GROUP: u32 = 0o2010;
        let set = |reached: &Reached| {
            let inode = &reached.inode;
            self.owns(thread, inode)?;
            let fits = |owner: &crate::process::Owner| {
                let (user, group) = (to[0] as u32, to[1] as u32);
                let same = |which: usize, id: u32| {
                    id == u32::MAX || id == inode.owner[which].load(Ordering::Relaxed)
                };
                owner.is_root()
                    || same(0, user)
                        && (same(1, group) || group == owner.groups[3] || owner.more.contains(&group))
            };
            if !thread.process.owner.with(|owner| fits(owner)) {
                return Err(Errno::EPERM);
            }
            for (owner, id) in inode.owner.iter().zip(to).filter(|(_, id)| *id as u32 != u32::MAX) {
                owner.store(id as u32, Ordering::Relaxed);
            }
            let rights = inode.mode.load(Ordering::Relaxed);
            if !inode.is_directory() {
                let group = if rights & AS_GROUP == AS_GROUP { 0o2000 } else { 0 };
                inode.mode.store(rights & !(AS_USER | group), Ordering::Relaxed);
            }
            inode.changed.store(self.clock(), Ordering::Relaxed);
            self.happened_at(reached, event::ATTRIBUTES);
            Ok(0)
        };
        if flags & !(EMPTY_PATH | NO_FOLLOW) != 0 {
            return Err(Errno::EINVAL);
        }
        if flags & EMPTY_PATH != 0 && (path == 0 || self.load_path(path)?.is_empty()) {
            if directory as u32 == HERE as u32 {
                let inode = thread.process.place.with(|place| place.directory.clone());
                return set(&Reached { inode, above: None });
            }
            let open = self.open_file(thread, directory)?;
            return Reached::of(&open).map_or(Ok(0), |reached| set(&reached));
        }
        self.reach(thread, directory, path, flags & NO_FOLLOW == 0).and_then(|reached| set(&reached))
    }

    fn set_rights(&self, thread: &Thread, reached: &Reached, rights: u32) -> Answer {
        let inode = &reached.inode;
        self.owns(thread, inode)?;
        inode.changed.store(self.clock(), Ordering::Relaxed);
        let kind = inode.mode.load(Ordering::Relaxed) & mode::KIND;
        inode.mode.store(kind | rights & 0o7777, Ordering::Relaxed);
        self.happened_at(reached, event::ATTRIBUTES);
        Ok(0)
    }

    pub(crate) fn chmod(&self, thread: &Thread, directory: u64, path: u64, rights: u32) -> Answer {
        let reached = self.reach(thread, directory, path, true)?;
        self.set_rights(thread, &reached, rights)
    }

    pub(crate) fn fchmod(&self, thread: &Thread, number: u64, rights: u32) -> Answer {
        let open = self.open_file(thread, number)?;
        Reached::of(&open).map_or(Ok(0), |reached| self.set_rights(thread, &reached, rights))
    }

    /// Sets when a file was read and modified: as a program says, or now, each.
    pub(crate) fn utimens(
        &self,
        thread: &Thread,
        [directory, path, times, flags]: [u64; 4],
        form: Times,
    ) -> Answer {
        const NOW: u64 = 0x3fff_ffff;
        const OMIT: u64 = 0x3fff_fffe;
        const SECOND: u64 = 1_000_000_000;
        if flags & !(NO_FOLLOW | EMPTY_PATH) != 0 {
            return Err(Errno::EINVAL);
        }
        let now = self.clock();
        let load = |at: u64| {
            let seconds = self.load_long(at)?;
            let (part, most, unit) = match form {
                Times::Nanoseconds => (self.load_long(at + 8)?, SECOND, 1),
                Times::Microseconds => (self.load_long(at + 8)?, SECOND / 1000, 1000),
                Times::Seconds => (0, 1, 0),
            };
            match (form, part) {
                (Times::Nanoseconds, NOW) => Ok(Some(now)),
                (Times::Nanoseconds, OMIT) => Ok(None),
                (_, part) if part >= most => Err(Errno::EINVAL),
                (_, part) => Ok(Some(seconds.wrapping_mul(SECOND).wrapping_add(part * unit))),
            }
        };
        let second = if matches!(form, Times::Seconds) { 8 } else { 16 };
        let new = if times == 0 { [Some(now); 2] } else { [load(times)?, load(times + second)?] };
        let set = |reached: &Reached| {
            let inode = &reached.inode;
            if new == [None; 2] {
                return Ok(0);
            }
            // Who may write it may say that it was just now.
            let is_now = times == 0 || new == [Some(now); 2];
            match self.owns(thread, inode) {
                Err(_) if is_now => self.may(thread, inode, rights::WRITE)?,
                owns => owns?,
            }
            for (time, new) in [&inode.accessed, &inode.modified].into_iter().zip(new) {
                new.into_iter().for_each(|new| time.store(new, Ordering::Relaxed));
            }
            inode.changed.store(now, Ordering::Relaxed);
            self.happened_at(reached, event::ATTRIBUTES);
            Ok(0)
        };
        if path == 0 || flags & EMPTY_PATH != 0 && self.load_path(path)?.is_empty() {
            if path == 0 && directory as u32 == HERE as u32 {
                return Err(Errno::EFAULT);
            }
            let open = self.open_file(thread, directory)?;
            return Reached::of(&open).map_or(Ok(0), |reached| set(&reached));
        }
        set(&self.reach(thread, directory, path, flags & NO_FOLLOW == 0)?)
    }
}

/// How times are written: each as seconds and a part of one, or seconds alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    Nanoseconds,
    Microseconds,
    Seconds,
}
