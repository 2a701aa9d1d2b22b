//! Files are opened by their names, or made for that.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use crate::areas::PAGE;
use crate::call::watches::Reached;
use crate::errno::{Answer, Errno};
use crate::kernel::{AGAIN, Kept, Linux, Waited};
use crate::machine::Machine;
use crate::open::{Kind, Open, flag};
use crate::path::{self, Within};
use crate::pipe::{Pipe, Way};
use crate::process::{Process, Thread};
use crate::rights;
use crate::sync::{Spin, key_of};
use crate::tree::{Body, Device, Inode, Made, seal};
use crate::uses::{How, Use};
use crate::watches::event;

/// All that is heard of what is opened only as a place.
const OF_PATH: u32 = flag::PATH | flag::DIRECTORY | flag::NO_FOLLOW | flag::CLOSE_ON_EXEC;

/// Whether it is a directory, or a link that may lead to one.
fn may_be_directory(inode: &Inode) -> bool {
    inode.is_directory() || matches!(inode.body, Body::Opened(_))
}

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn open(&self, thread: &Thread, directory: u64, path: u64, flags: u32, rights: u32) -> Answer {
        self.open_within(thread, directory, path, flags, rights, Within::default())
    }

    /// The same by a way that may not do everything, and asked for in nothing that nobody knows.
    pub(crate) fn open_how(&self, thread: &Thread, [directory, path, how, bytes]: [u64; 4]) -> Answer {
        const KNOWN: u64 = 0o37_777_703;
        if bytes < 24 {
            return Err(Errno::EINVAL);
        }
        if bytes > PAGE {
            return Err(Errno::E2BIG);
        }
        let mut all = alloc::vec![0; bytes as usize];
        self.machine.read_user(how, &mut all)?;
        if all[24..].iter().any(|&byte| byte != 0) {
            return Err(Errno::E2BIG);
        }
        let [flags, rights, resolve] =
            [0, 8, 16].map(|at| u64::from_le_bytes(all[at..at + 8].try_into().expect("8 bytes")));
        let makes = flags & u64::from(flag::CREATE) != 0 || flags as u32 & flag::TEMPORARY == flag::TEMPORARY;
        let of_path = flags & u64::from(flag::PATH) != 0;
        if flags & !KNOWN != 0
            || rights & !(if makes { 0o7777 } else { 0 }) != 0
            || resolve & !0x3f != 0
            || resolve & 0x18 == 0x18
            || of_path && flags & !u64::from(OF_PATH) != 0
        {
            return Err(Errno::EINVAL);
        }
        let bit = |bit: u32| resolve >> bit & 1 != 0;
        // That it may not wait for a device (bit 5) is no matter.
        let within = Within {
            one_mount: bit(0),
            no_magic: bit(1),
            no_links: bit(2),
            beneath: bit(3),
            in_root: bit(4),
        };
        self.open_within(thread, directory, path, flags as u32, rights as u32, within)
    }

    fn open_within(
        &self,
        thread: &Thread,
        directory: u64,
        path: u64,
        flags: u32,
        rights: u32,
        within: Within,
    ) -> Answer {
        let path = self.load_path(path)?;
        let flags = if flags & flag::PATH != 0 { flags & OF_PATH } else { flags };
        // Neither a directory nor a file without a name is made with one.
        if flags & (flag::CREATE | flag::DIRECTORY) == flag::CREATE | flag::DIRECTORY {
            return Err(Errno::EINVAL);
        }
        if flags & flag::TEMPORARY == flag::TEMPORARY {
            return self.open_temporary(thread, directory, &path, flags, rights);
        }
        // Whoever can have no more open makes nothing, and empties nothing.
        if thread.process.files.with(|files| files.is_full()) {
            return Err(Errno::EMFILE);
        }
        let exclusive = flags & flag::CREATE != 0 && flags & flag::EXCLUSIVE != 0;
        let follow = flags & flag::NO_FOLLOW == 0 && !exclusive;
        let found = self.walk_within(thread, directory, &path, follow, within)?;
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
            _ if flags & flag::CREATE != 0 && found.directory_meant && !found.name.is_empty() => {
                return Err(Errno::EISDIR);
            }
            Some(_) if exclusive => return Err(Errno::EEXIST),
            Some(inode) if found.directory_meant && !may_be_directory(inode) => return Err(Errno::ENOTDIR),
            Some(inode)
                if flags & (flag::CREATE | flag::TRUNCATE) != 0
                    && flags & flag::PATH == 0
                    && inode.is_directory() =>
            {
                return Err(Errno::EISDIR);
            }
            Some(inode) => {
                // Links are refused for what they are.
                if !matches!(inode.body, Body::Link(_) | Body::Itself(_) | Body::Opened(_)) {
                    self.may(thread, inode, wanted)?;
                    // That it was read is kept from nobody but its owner.
                    if flags & flag::NO_TIME != 0 {
                        self.owns(thread, inode)?;
                    }
                }
                inode.clone()
            }
            None if flags & flag::CREATE == 0 => return Err(Errno::ENOENT),
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
        let cut = match &opened.kind {
            Kind::File(inode) if flags & flag::TRUNCATE != 0 && !made => Some(inode),
            _ => None,
        };
        if cut.is_some_and(|inode| inode.uses.runs()) {
            return Err(Errno::ETXTBSY);
        }
        if flags & flag::PATH == 0 {
            self.happened_to(&opened, event::OPEN);
        }
        // It is open before it is cut, for who watches.
        if cut.is_some()
            && let Some(reached) = Reached::of(&opened)
        {
            self.set_len(thread, &reached, 0)?;
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
            Kind::Pipe(end) if end.file.is_none() => {
                let writes = flags & flag::ACCESS == flag::WRITE_ONLY;
                let again = end.pipe.end(if writes { Way::Write } else { Way::Read });
                self.changed(key_of(&*again.pipe));
                Kind::Pipe(again)
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
            Body::Directory(_) | Body::OpenFiles(_) if writes => return Err(Errno::EISDIR),
            Body::Directory(_) | Body::OpenFiles(_) => Kind::Directory(inode.clone()),
            Body::Link(_) | Body::Itself(_) | Body::Opened(_) if flags & flag::PATH == 0 => {
                return Err(Errno::ELOOP);
            }
            Body::Link(_) | Body::Itself(_) | Body::Opened(_) => Kind::Text(Spin::default(), inode.clone()),
            Body::Device(_) | Body::Terminal(_) if flags & flag::PATH != 0 => {
                Kind::Text(Spin::default(), inode.clone())
            }
            Body::Device(Device::Terminals) => self.open_master(thread, &inode)?,
            Body::Device(Device::Own) => {
                let (terminal, inode) = self.own_terminal(thread)?;
                self.open_slave(thread, &terminal, &inode, flags)?
            }
            Body::Terminal(terminal) => self.open_slave(thread, terminal, &inode, flags)?,
            Body::Device(Device::Absent(_)) => return Err(Errno::ENXIO),
            Body::Device(Device::Console) => Kind::Device(Device::Console, inode.clone()),
            Body::Device(device) => Kind::Device(*device, inode.clone()),
            Body::Fifo(_) if flags & flag::PATH != 0 => Kind::Text(Spin::default(), inode.clone()),
            Body::Fifo(pipe) => self.open_fifo(thread, pipe, &inode, flags)?,
            Body::Socket if flags & flag::PATH == 0 => return Err(Errno::ENXIO),
            Body::Socket => Kind::Text(Spin::default(), inode.clone()),
            Body::Made(_) => Kind::Text(Spin::default(), inode.clone()),
            Body::MadeOf(pid, _, made @ (Made::Space | Made::PageMap)) => {
                let process = self.processes.with(|all| all.get(pid).cloned()).ok_or(Errno::ESRCH)?;
                if !self.may_look_into(thread, &process) {
                    return Err(Errno::EACCES);
                }
                let memory = process.memory.with(|memory| memory.as_ref().map(Arc::downgrade));
                let memory = memory.unwrap_or_default();
                match made {
                    Made::Space => Kind::Space(memory, inode.clone()),
                    _ => Kind::PageMap(memory, inode.clone()),
                }
            }
            Body::MadeOf(pid, ..) => {
                self.processes.with(|all| all.get(pid).map(|_| ())).ok_or(Errno::ESRCH)?;
                Kind::Text(Spin::default(), inode.clone())
            }
            Body::File(_) => Kind::File(inode.clone()),
        };
        let writes = match &kind {
            Kind::File(inode) if writes => Some(Use::begin(inode, How::Written)?),
            _ => None,
        };
        let open = Open::new(kind, flags & !(flag::CREATE | flag::EXCLUSIVE | flag::TRUNCATE), path);
        open.writes.with(|now| *now = writes);
        Ok(open)
    }

    /// What is in a file that is made up, for whoever reads from `at` on.
    pub(in crate::call) fn text_of(
        &self,
        thread: &Thread,
        (text, inode): (&Spin<Option<Arc<Vec<u8>>>>, &Inode),
        at: u64,
    ) -> Result<Arc<Vec<u8>>, Errno> {
        if let Some(kept) = text.with(|text| text.clone()).filter(|_| at > 0) {
            return Ok(kept);
        }
        let new = Arc::new(match &inode.body {
            Body::Made(made) => self.made(&thread.process, None, *made)?,
            Body::MadeOf(pid, tid, made) => {
                let process = self.processes.with(|all| all.get(pid).cloned()).ok_or(Errno::ESRCH)?;
                self.made(&process, *tid, *made)?
            }
            _ => Vec::new(),
        });
        // What was there before goes outside the lock.
        let before = text.with(|text| text.replace(new.clone()));
        drop(before);
        Ok(new)
    }

    /// What is shown of a process, if there is memory for it.
    fn made(&self, process: &Arc<Process>, tid: Option<u32>, made: Made) -> Result<Vec<u8>, Errno> {
        let bytes = match made {
            // A line for each area, and twice that while it grows.
            Made::Maps => self.bytes_of_maps(process, 512),
            Made::Areas => self.bytes_of_maps(process, 3072),
            // The title, and the arguments before it.
            Made::CommandLine | Made::Environment => {
                2 * process.place.with(|place| place.environment.end - place.arguments.start)
            }
            _ => 0,
        };
        if bytes > 0 && !self.machine.has_piece(bytes) {
            Err(Errno::ENOMEM)
        } else {
            Ok(self.make(process, tid, made))
        }
    }

    /// An end of a pipe with a name, once somebody has the other one.
    fn open_fifo(
        &self,
        thread: &Thread,
        pipe: &Arc<Pipe>,
        inode: &Arc<Inode>,
        flags: u32,
    ) -> Result<Kind, Errno> {
        let (way, other) = match flags & flag::ACCESS {
            0 => (Way::Read, Way::Write),
            flag::WRITE_ONLY => (Way::Write, Way::Read),
            _ => {
                let mut end = pipe.end(Way::Read);
                end.file = Some(inode.clone());
                let both = Kind::Both(end, pipe.end(Way::Write));
                self.changed(key_of(&**pipe));
                return Ok(both);
            }
        };
        let at_once = flags & flag::NO_WAIT != 0;
        if at_once && way == Way::Write && !pipe.is_open(Way::Read) {
            return Err(Errno::ENXIO);
        }
        let (mut end, before) = pipe.end_before(way, other);
        end.file = Some(inode.clone());
        self.changed(key_of(&**pipe));
        let met = || before.is_none_or(|before| pipe.is_open(other) || pipe.opened(other) != before);
        if !at_once && self.wait(thread, key_of(&**pipe), None, met) != Waited::Ready {
            return Err(AGAIN);
        }
        Ok(Kind::Pipe(end))
    }

    pub(crate) fn memfd(&self, thread: &Thread, name: u64, flags: u64) -> Answer {
        const MAY_SEAL: u64 = 2;
        const LARGE: u64 = 4;
        /// It cannot become a program, and that is sealed; or it can, as it is without a word.
        const NO_PROGRAM: u64 = 8;
        const PROGRAM: u64 = 16;
        const LONGEST: usize = 249;
        let name = self.load_text(name, LONGEST).map_err(|error| match error {
            Errno::ENAMETOOLONG => Errno::EINVAL,
            other => other,
        })?;
        if name.len() > LONGEST {
            return Err(Errno::EINVAL);
        }
        let known = if flags & LARGE == 0 { 0x1f } else { 0xfc00_001f };
        if flags & !known != 0 || flags & (NO_PROGRAM | PROGRAM) == NO_PROGRAM | PROGRAM {
            return Err(Errno::EINVAL);
        }
        if flags & LARGE != 0 {
            return Err(crate::memory::no_large_pages(flags));
        }
        let inode = self.new_file(Kept::InMemory, if flags & NO_PROGRAM == 0 { 0o777 } else { 0o666 })?;
        let more = match flags & (MAY_SEAL | NO_PROGRAM) {
            0 => seal::NO_MORE,
            MAY_SEAL => 0,
            _ => seal::EXECUTE,
        };
        inode.seals.store(seal::SEALABLE | more, Ordering::SeqCst);
        let path = [b"/memfd:", name.as_slice()].concat();
        let open = Open::new(Kind::File(inode), flag::READ_WRITE, path);
        thread.process.files.with(|files| files.add(open, flags & 1 != 0, 0))
    }
}
