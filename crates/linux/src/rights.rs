//! What a process may do with files by their rights: as a user, as one of a group, or as anybody else.

use core::sync::atomic::Ordering;

use crate::capabilities::{OVERRIDES, OWNS_FILES, READS};
use crate::errno::Errno;
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::process::{Owner, Thread};
use crate::tree::Inode;

/// What is wanted; of a directory to execute it means to look for names in it.
pub(crate) const EXECUTE: u32 = 1;
pub(crate) const WRITE: u32 = 2;
pub(crate) const READ: u32 = 4;

/// Of a directory: names are taken away only by whose they are, or whose it is.
pub(crate) const STICKY: u32 = 0o1000;

/// Whether somebody may do what is wanted with a file. What is made up below `/proc` says so itself.
pub(crate) fn allows(inode: &Inode, wanted: u32, owner: &Owner, real: bool) -> bool {
    let which = if real { 0 } else { 3 };
    let (user, group) = (owner.users[which], owner.groups[which]);
    let rights = inode.mode.load(Ordering::Relaxed);
    if user != 0 && crate::procfs::is_made_up(inode) {
        return true;
    }
    let [whose, of] = inode.owner.each_ref().map(|id| id.load(Ordering::Relaxed));
    let shift = match () {
        () if whose == user => 6,
        () if of == group || owner.more.contains(&of) => 3,
        () => 0,
    };
    let is_directory = inode.is_directory();
    // Whoever may do everything may not execute what nobody may.
    let overrides = || wanted & EXECUTE == 0 || is_directory || rights & 0o111 != 0;
    let reads = || wanted == READ || is_directory && wanted & WRITE == 0;
    rights >> shift & wanted == wanted
        || overrides() && owner.may_with_files(OVERRIDES, real)
        || reads() && owner.may_with_files(READS, real)
}

impl<M: Machine> Linux<'_, M> {
    /// Refuses what a process may not do with a file.
    pub(crate) fn may(&self, thread: &Thread, inode: &Inode, wanted: u32) -> Result<(), Errno> {
        let may = thread.process.owner.with(|owner| allows(inode, wanted, owner, false));
        if may { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Refuses to take a name away, or to give it to another.
    pub(crate) fn may_take(&self, thread: &Thread, directory: &Inode, inode: &Inode) -> Result<(), Errno> {
        self.may(thread, directory, WRITE | EXECUTE)?;
        let (user, may) =
            thread.process.owner.with(|owner| (owner.users[3], owner.may_with_files(OWNS_FILES, false)));
        let is = |inode: &Inode| inode.owner[0].load(Ordering::Relaxed) == user;
        let is_sticky = directory.mode.load(Ordering::Relaxed) & STICKY != 0;
        if is_sticky && !may && !is(directory) && !is(inode) { Err(Errno::EPERM) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Body, mode};

    #[test]
    fn a_file_is_its_owners_its_groups_or_anybodys() {
        let may = |user: u32, group: u32, more: &[u32], rights: u32, wanted: u32| {
            let inode = Inode::new(1, mode::SOCKET | rights, 0, Body::Socket);
            inode.owner[0].store(5, Ordering::Relaxed);
            inode.owner[1].store(6, Ordering::Relaxed);
            let (users, groups) = ([user; 4], [group; 4]);
            let mut owner = Owner { users, groups, more: more.to_vec(), ..Owner::default() };
            owner.users_changed([0; 4]);
            allows(&inode, wanted, &owner, false)
        };
        assert!(may(5, 1, &[], 0o600, READ | WRITE) && !may(5, 1, &[], 0o600, EXECUTE));
        assert!(!may(5, 6, &[], 0o077, READ), "the owner is not one of the group");
        assert!(may(1, 6, &[], 0o040, READ) && may(1, 1, &[6], 0o040, READ) && !may(1, 6, &[], 0o604, READ));
        assert!(may(1, 1, &[], 0o004, READ) && !may(1, 1, &[], 0o004, READ | WRITE));
        assert!(
            may(0, 1, &[], 0, READ | WRITE)
                && !may(0, 1, &[], 0o666, EXECUTE)
                && may(0, 1, &[], 0o1, EXECUTE)
        );
    }
}
