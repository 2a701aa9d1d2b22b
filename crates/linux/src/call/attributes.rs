//! Extended attributes: what programs note of files, by names.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use super::HERE;
use super::watches::Reached;
use crate::capabilities::OWNS;
use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::process::Thread;
use crate::rights::{self, STICKY};
use crate::tree::{Inode, mode};
use crate::watches::event;

/// Bytes of a name, and of what it stands for; and of all of one file, which the kernel keeps.
const LONGEST_NAME: usize = 255;
const LONGEST: u64 = 65536;

/// Whose attributes are meant.
#[derive(Clone, Copy)]
pub enum Of {
    /// What a path leads to, with a link at its end or without.
    Path(u64, bool),
    /// What is open under a number.
    Open(u64),
}

impl Of {
    pub fn path(at: u64, follow: bool) -> Of {
        Of::Path(at, follow)
    }
}

impl<M: Machine> Linux<'_, M> {
    fn of(&self, thread: &Thread, of: Of) -> Result<Reached, Errno> {
        match of {
            Of::Path(at, follow) => self.reach(thread, HERE, at, follow),
            Of::Open(number) => Reached::of(&*self.open_used(thread, number)?).ok_or(Errno::EOPNOTSUPP),
        }
    }

    /// A name that may be. There are programs' own, of files and directories, for whoever may read and write these; and those of
    /// whoever may do everything, of which `security.` is for all to read.
    fn attribute_name(
        &self,
        thread: &Thread,
        at: u64,
        inode: &Inode,
        writes: bool,
    ) -> Result<Vec<u8>, Errno> {
        let name = self.load_text(at, LONGEST_NAME).map_err(|error| match error {
            Errno::ENAMETOOLONG => Errno::ERANGE,
            other => other,
        })?;
        if name.is_empty() || name.len() > LONGEST_NAME {
            return Err(Errno::ERANGE);
        }
        let own = name.starts_with(b"user.");
        if !own && !name.starts_with(b"trusted.") && !name.starts_with(b"security.") {
            return Err(Errno::EOPNOTSUPP);
        }
        let none = if writes { Errno::EPERM } else { Errno::ENODATA };
        if !own {
            let may = Self::owns_machine(thread) || !writes && name.starts_with(b"security.");
            return if may { Ok(name) } else { Err(none) };
        }
        let set = inode.mode.load(Ordering::Relaxed);
        if !matches!(set & mode::KIND, mode::FILE | mode::DIRECTORY) {
            return Err(none);
        }
        if writes && inode.is_directory() && set & STICKY != 0 {
            self.owns(thread, inode)?;
        }
        self.may(thread, inode, if writes { rights::WRITE } else { rights::READ })?;
        Ok(name)
    }

    /// Whether a process may do what is only the owner's of a machine.
    fn owns_machine(thread: &Thread) -> bool {
        thread.process.owner.with(|owner| owner.may(OWNS))
    }

    pub(crate) fn set_attribute(
        &self,
        thread: &Thread,
        of: Of,
        [name, from, bytes, flags]: [u64; 4],
    ) -> Answer {
        const NEW: u64 = 1;
        const OTHER: u64 = 2;
        if flags & !(NEW | OTHER) != 0 {
            return Err(Errno::EINVAL);
        }
        let reached = self.of(thread, of)?;
        let inode = &reached.inode;
        let name = self.attribute_name(thread, name, inode, true)?;
        if bytes > LONGEST {
            return Err(Errno::E2BIG);
        }
        let mut value = alloc::vec![0; bytes as usize];
        self.machine.read_user(from, &mut value)?;
        inode.extended.with(|all| {
            let is_there = all.contains_key(&name);
            if flags & NEW != 0 && is_there {
                return Err(Errno::EEXIST);
            }
            if flags & OTHER != 0 && !is_there {
                return Err(Errno::ENODATA);
            }
            let now: usize =
                all.iter().filter(|(other, _)| **other != name).map(|(a, b)| a.len() + b.len()).sum();
            if (now + name.len() + value.len()) as u64 > LONGEST {
                return Err(Errno::ENOSPC);
            }
            all.insert(name, value);
            Ok(())
        })?;
        inode.changed.store(self.clock(), Ordering::Relaxed);
        self.happened_at(&reached, event::ATTRIBUTES);
        Ok(0)
    }

    /// Gives bytes to whoever has room for them, and says how many there are to whoever has none.
    fn give(&self, bytes: &[u8], to: u64, room: u64) -> Answer {
        if room != 0 {
            if bytes.len() as u64 > room {
                return Err(Errno::ERANGE);
            }
            self.machine.write_user(to, bytes)?;
        }
        Ok(bytes.len() as u64)
    }

    pub(crate) fn get_attribute(&self, thread: &Thread, of: Of, [name, to, room]: [u64; 3]) -> Answer {
        let inode = self.of(thread, of)?.inode;
        let name = self.attribute_name(thread, name, &inode, false)?;
        let value = inode.extended.with(|all| all.get(&name).cloned()).ok_or(Errno::ENODATA)?;
        self.give(&value, to, room)
    }

    pub(crate) fn list_attributes(&self, thread: &Thread, of: Of, to: u64, room: u64) -> Answer {
        let inode = self.of(thread, of)?.inode;
        let all_seen = Self::owns_machine(thread);
        let names = inode.extended.with(|all| {
            let seen = all.keys().filter(|name| all_seen || !name.starts_with(b"trusted."));
            let all = seen.flat_map(|name| name.iter().copied().chain([0]));
            all.collect::<Vec<u8>>()
        });
        self.give(&names, to, room)
    }

    pub(crate) fn remove_attribute(&self, thread: &Thread, of: Of, name: u64) -> Answer {
        let reached = self.of(thread, of)?;
        let inode = &reached.inode;
        let name = self.attribute_name(thread, name, inode, true)?;
        inode.extended.with(|all| all.remove(&name)).ok_or(Errno::ENODATA)?;
        inode.changed.store(self.clock(), Ordering::Relaxed);
        self.happened_at(&reached, event::ATTRIBUTES);
        Ok(0)
    }
}
