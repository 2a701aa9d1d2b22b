//! Whose files are, what may be done with them, and how old they are.

use core::sync::atomic::Ordering;

use super::{EMPTY_PATH, NO_FOLLOW, Times};
use crate::call::HERE;
use crate::call::watches::Reached;
use crate::capabilities::{GIVES, KEEPS_MARKS, OWNS_FILES};
use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::open::Kind;
use crate::process::{Owner, Thread};
use crate::rights;
use crate::tree::{Inode, mode, seal};
use crate::watches::event;

/// Runs as its owner, and as its group if that may run it.
const AS_USER: u32 = 0o4000;
const AS_GROUP: u32 = 0o2010;
const RUNS: u32 = 0o10;
const MARKS: u32 = 0o6000;

impl<M: Machine> Linux<'_, M> {
    /// Whether a process may say whose a file is, and what may be done with it.
    pub(crate) fn owns(&self, thread: &Thread, inode: &Inode) -> Result<(), Errno> {
        let user = inode.owner[0].load(Ordering::Relaxed);
        let owns = thread
            .process
            .owner
            .with(|owner| owner.may_with_files(OWNS_FILES, false) || owner.users[3] == user);
        if owns { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// A file that somebody writes to does not act as its owner any more, nor as its group, unless the writer may keep that.
    pub(crate) fn drop_marks(&self, thread: &Thread, inode: &Inode) {
        let rights = inode.mode.load(Ordering::Relaxed);
        if rights & MARKS == 0 || inode.is_directory() {
            return;
        }
        let group = inode.owner[1].load(Ordering::Relaxed);
        let (may, in_it) = thread
            .process
            .owner
            .with(|owner| (owner.may(KEEPS_MARKS), owner.groups[3] == group || owner.more.contains(&group)));
        if !may {
            // Without the group's right to run it, the mark is as good as the writer's own.
            let of_group = if rights & RUNS != 0 || !in_it { MARKS & !AS_USER } else { 0 };
            inode.mode.fetch_and(!(AS_USER | of_group), Ordering::Relaxed);
        }
    }

    pub(crate) fn chown(
        &self,
        thread: &Thread,
        directory: u64,
        path: u64,
        to: [u64; 2],
        flags: u64,
    ) -> Answer {
        let set = |reached: &Reached| {
            let inode = &reached.inode;
            let is_marked = !inode.is_directory() && inode.mode.load(Ordering::Relaxed) & MARKS != 0;
            // Who asks for nothing may be anybody.
            if is_marked || to.iter().any(|id| *id as u32 != u32::MAX) {
                self.owns(thread, inode)?;
            }
            let fits = |owner: &Owner| {
                let (user, group) = (to[0] as u32, to[1] as u32);
                let same = |which: usize, id: u32| {
                    id == u32::MAX || id == inode.owner[which].load(Ordering::Relaxed)
                };
                owner.may_with_files(GIVES, false)
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
        let differs = (reached.inode.mode.load(Ordering::Relaxed) ^ rights) & 0o111 != 0;
        if differs && reached.inode.seals.load(Ordering::SeqCst) & seal::EXECUTE != 0 {
            return Err(Errno::EPERM);
        }
        let inode = &reached.inode;
        self.owns(thread, inode)?;
        inode.changed.store(self.clock(), Ordering::Relaxed);
        let kind = inode.mode.load(Ordering::Relaxed) & mode::KIND;
        // Nobody has others act as a group of which he is none.
        let group = inode.owner[1].load(Ordering::Relaxed);
        let in_it =
            |owner: &Owner| owner.may(KEEPS_MARKS) || owner.groups[3] == group || owner.more.contains(&group);
        let mark = if thread.process.owner.with(|owner| in_it(owner)) { 0 } else { 0o2000 };
        inode.mode.store(kind | rights & 0o7777 & !mark, Ordering::Relaxed);
        self.happened_at(reached, event::ATTRIBUTES);
        Ok(0)
    }

    pub(crate) fn chmod(&self, thread: &Thread, directory: u64, path: u64, rights: u32) -> Answer {
        let reached = self.reach(thread, directory, path, true)?;
        self.set_rights(thread, &reached, rights)
    }

    pub(crate) fn fchmod(&self, thread: &Thread, number: u64, rights: u32) -> Answer {
        let open = self.open_used(thread, number)?;
        if let Kind::Socket(socket) = &open.kind {
            socket.rights.store(rights & 0o7777, Ordering::Relaxed);
        }
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
        if matches!(form, Times::Nanoseconds)
            && times != 0
            && [self.load_long(times + 8)?, self.load_long(times + 24)?] == [OMIT; 2]
        {
            // Not even looked whether it is there.
            return Ok(0);
        }
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
            // Whoever may write it may say that it was just now.
            let is_now = times == 0 || new == [Some(now); 2];
            match self.owns(thread, inode) {
                Err(_) if is_now => self.may(thread, inode, rights::WRITE)?,
                owns => owns?,
            }
            for (time, new) in [&inode.accessed, &inode.modified].into_iter().zip(new) {
                new.into_iter().for_each(|new| time.store(new, Ordering::Relaxed));
            }
            inode.changed.store(now, Ordering::Relaxed);
            // Whoever says one of the two says that it was read, or written.
            let what = match new {
                [Some(_), None] => event::ACCESS,
                [None, Some(_)] => event::MODIFY,
                _ => event::ATTRIBUTES,
            };
            self.happened_at(reached, what);
            Ok(0)
        };
        if path == 0 || flags & EMPTY_PATH != 0 && self.load_path(path)?.is_empty() {
            if path == 0 && directory as u32 == HERE as u32 {
                return Err(Errno::EFAULT);
            }
            let open = if path == 0 {
                self.open_used(thread, directory)?
            } else {
                self.open_file(thread, directory)?
            };
            return Reached::of(&open).map_or(Ok(0), |reached| set(&reached));
        }
        set(&self.reach(thread, directory, path, flags & NO_FOLLOW == 0)?)
    }
}
