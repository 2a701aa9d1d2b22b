//! Calls about what is to be heard of files, and the hearing (`inotify`).

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use super::HERE;
use crate::errno::{Answer, Errno};
use crate::kernel::{AGAIN, Linux, Waited};
use crate::machine::Machine;
use crate::open::{Kind, Open, flag};
use crate::process::Thread;
use crate::sync::key_of;
use crate::tree::Inode;
use crate::watches::{Watches, ask, event};

/// As many as may be at a time.
const MOST: usize = 1024;

/// What was found, and under which name in which directory, if it was by one.
pub(crate) struct Reached {
    pub inode: Arc<Inode>,
    pub above: Option<(Arc<Inode>, alloc::vec::Vec<u8>)>,
}

impl Reached {
    /// What is open, if it has an inode.
    pub fn of(open: &Open) -> Option<Reached> {
        let inode = open.inode()?.clone();
        let above = open.above.with(|above| above.as_ref().and_then(|above| above.upgrade()));
        let name = open.path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        Some(Reached { inode, above: above.map(|above| (above, name.to_vec())) })
    }
}

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn inotify(&self, thread: &Thread, flags: u64) -> Answer {
        let flags = flags as u32;
        if flags & !(flag::NO_WAIT | flag::CLOSE_ON_EXEC) != 0 {
            return Err(Errno::EINVAL);
        }
        let watches = Arc::new(Watches::default());
        self.watches.with(|all| {
            all.retain(|watches| watches.strong_count() > 0);
            if all.len() >= MOST {
                return Err(Errno::EMFILE);
            }
            all.push(Arc::downgrade(&watches));
            self.watching.store(all.len() as u32, Ordering::SeqCst);
            Ok(())
        })?;
        let open = Open::new(Kind::Watches(watches), flags & flag::NO_WAIT, b"inotify".to_vec());
        thread.process.files.with(|files| files.add(open, flags & flag::CLOSE_ON_EXEC != 0, 0))
    }

    fn watches_of(&self, thread: &Thread, number: u64) -> Result<Arc<Watches>, Errno> {
        match &self.open_file(thread, number)?.kind {
            Kind::Watches(watches) => Ok(watches.clone()),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(crate) fn add_watch(&self, thread: &Thread, number: u64, path: u64, mask: u64) -> Answer {
        let mask = mask as u32;
        let watches = self.watches_of(thread, number)?;
        if mask & event::ALL == 0 || mask & ask::NEW != 0 && mask & ask::ADD != 0 {
            return Err(Errno::EINVAL);
        }
        let inode = self.there(thread, HERE, path, mask & ask::NO_FOLLOW == 0)?;
        self.may(thread, &inode, crate::rights::READ)?;
        if mask & ask::ONLY_DIRECTORY != 0 && !inode.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        watches.watch(&inode, mask).map(|number| number as u64)
    }

    pub(crate) fn leave_watch(&self, thread: &Thread, number: u64, watch: u64) -> Answer {
        let watches = self.watches_of(thread, number)?;
        watches.leave(watch as i32)?;
        self.changed(key_of(&*watches));
        Ok(0)
    }

    pub(crate) fn read_watches(
        &self,
        thread: &Thread,
        open: &Open,
        watches: &Watches,
        room: u64,
    ) -> Result<alloc::vec::Vec<u8>, Errno> {
        let room = room.min(65536) as usize;
        let mut found = watches.read(room)?;
        if found.is_empty() {
            if open.has(flag::NO_WAIT) {
                return Err(Errno::EAGAIN);
            }
            let mut failed = None;
            let how = self.wait(thread, key_of(watches), None, || {
                match watches.read(room) {
                    Ok(now) => found = now,
                    Err(error) => failed = Some(error),
                }
                !found.is_empty() || failed.is_some()
            });
            if how != Waited::Ready {
                return Err(AGAIN);
            }
            failed.map_or(Ok(()), Err)?;
        }
        Ok(found)
    }

    /// Something has happened to a file, which has this name in that directory: whoever wants to hear it does.
    pub(crate) fn happened(
        &self,
        inode: Option<&Arc<Inode>>,
        above: Option<(&Arc<Inode>, &[u8])>,
        what: u32,
        cookie: u32,
    ) {
        if self.noted.load(Ordering::Relaxed) != 0
            && let Some((directory, _)) = above
        {
            self.noted(directory, what);
        }
        if self.watching.load(Ordering::Relaxed) == 0 || !self.machine.has_room(0) {
            return;
        }
        let of_itself = what & (event::DELETE_SELF | event::MOVE_SELF) != 0;
        let is_directory = inode.is_some_and(|inode| inode.is_directory()) && !of_itself;
        let what = what | if is_directory { event::DIRECTORY } else { 0 };
        let all: alloc::vec::Vec<_> =
            self.watches.with(|all| all.iter().filter_map(|one| one.upgrade()).collect());
        for watches in all {
            if watches.happened(inode, above, what, cookie) {
                self.changed(key_of(&*watches));
            }
        }
    }

    /// The same of what was found: whoever watches it hears it, and whoever watches where it lies.
    pub(crate) fn happened_at(&self, reached: &Reached, what: u32) {
        let above = reached.above.as_ref().map(|(directory, name)| (directory, name.as_slice()));
        self.happened(Some(&reached.inode), above, what, 0);
    }

    /// The same of what is open.
    pub(crate) fn happened_to(&self, open: &Open, what: u32) {
        if self.watching.load(Ordering::Relaxed) | self.noted.load(Ordering::Relaxed) != 0
            && let Kind::File(_) | Kind::Directory(_) | Kind::Pipe(_) | Kind::Both(..) = &open.kind
            && let Some(reached) = Reached::of(open)
        {
            self.happened_at(&reached, what);
        }
    }

    /// A process closes what it has open; it may be that nobody has it then.
    pub(crate) fn closes(&self, open: &Arc<Open>) {
        if self.watching.load(Ordering::Relaxed) != 0 && Arc::strong_count(open) == 1 && !open.has(flag::PATH)
        {
            self.happened_to(open, if open.may_write() { event::CLOSE_WRITTEN } else { event::CLOSE });
        }
    }
}
