//! For whom a process acts: users and groups, and how willing it is that others run first.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use super::scheduling::{may_be_nice, may_serve};
use crate::capabilities::{BECOMES, JOINS};
use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::layout::Pack;
use crate::machine::Machine;
use crate::process::{Owner, Process, Thread};

/// "As it is", where a user or a group is meant.
const SAME: u32 = u32::MAX;
/// Groups that a process may be in.
const MOST_GROUPS: u64 = 65536;

/// Users, or groups.
#[derive(Clone, Copy)]
pub(crate) enum Which {
    User,
    Group,
}

impl Owner {
    /// It may be anybody.
    fn may_change(&self, which: Which) -> bool {
        let right = match which {
            Which::User => BECOMES,
            Which::Group => JOINS,
        };
        self.may(right)
    }

    fn ids(&mut self, which: Which) -> &mut [u32; 4] {
        match which {
            Which::User => &mut self.users,
            Which::Group => &mut self.groups,
        }
    }
}

impl<M: Machine> Linux<'_, M> {
    /// Real, effective, saved, and of files.
    pub(crate) fn ids(&self, thread: &Thread, which: Which) -> [u32; 4] {
        thread.process.owner.with(|owner| *owner.ids(which))
    }

    /// `setuid`: all of them, of whoever may do everything; of others the effective one.
    pub(crate) fn set_id(&self, thread: &Thread, which: Which, id: u64) -> Answer {
        let id = id as u32;
        if id == SAME {
            return Err(Errno::EINVAL);
        }
        let before = self.ids(thread, Which::User)[0];
        let changed = thread.process.owner.with(|owner| {
            let users = owner.users;
            let root = owner.may_change(which);
            let ids = owner.ids(which);
            match () {
                () if root => *ids = [id; 4],
                () if id == ids[0] || id == ids[2] => (ids[1], ids[3]) = (id, id),
                () => return Err(Errno::EPERM),
            }
            owner.users_changed(users);
            Ok(0)
        });
        self.user_changed(thread, before);
        changed
    }

    /// `setreuid`: whoever is not root exchanges those that it has.
    pub(crate) fn set_two_ids(&self, thread: &Thread, which: Which, [real, effective]: [u64; 2]) -> Answer {
        let (real, effective) = (real as u32, effective as u32);
        let before = self.ids(thread, Which::User)[0];
        let changed = thread.process.owner.with(|owner| {
            let users = owner.users;
            let root = owner.may_change(which);
            let ids = owner.ids(which);
            let old = *ids;
            let fits = |id: u32, all: &[u32]| root || id == SAME || all.contains(&id);
            if !fits(real, &old[..2]) || !fits(effective, &old[..3]) {
                return Err(Errno::EPERM);
            }
            ids[0] = if real == SAME { old[0] } else { real };
            ids[1] = if effective == SAME { old[1] } else { effective };
            if real != SAME || effective != SAME && effective != old[0] {
                ids[2] = ids[1];
            }
            ids[3] = ids[1];
            owner.users_changed(users);
            Ok(0)
        });
        self.user_changed(thread, before);
        changed
    }

    /// `setresuid`.
    pub(crate) fn set_all_ids(&self, thread: &Thread, which: Which, new: [u64; 3]) -> Answer {
        let new = new.map(|id| id as u32);
        let before = self.ids(thread, Which::User)[0];
        let changed = thread.process.owner.with(|owner| {
            let users = owner.users;
            let root = owner.may_change(which);
            let ids = owner.ids(which);
            let old = *ids;
            if !root && new.iter().any(|id| *id != SAME && !old[..3].contains(id)) {
                return Err(Errno::EPERM);
            }
            for (id, new) in ids.iter_mut().zip(new).filter(|(_, new)| *new != SAME) {
                *id = new;
            }
            ids[3] = ids[1];
            owner.users_changed(users);
            Ok(0)
        });
        self.user_changed(thread, before);
        changed
    }

    /// `setfsuid`: says which it was, whether it changed or not.
    pub(crate) fn set_file_id(&self, thread: &Thread, which: Which, id: u64) -> Answer {
        let id = id as u32;
        thread.process.owner.with(|owner| {
            let root = owner.may_change(which);
            let ids = owner.ids(which);
            let old = ids[3];
            if id != SAME && (root || ids.contains(&id)) {
                ids[3] = id;
            }
            Ok(old.into())
        })
    }

    pub(crate) fn get_all_ids(&self, thread: &Thread, which: Which, at: [u64; 3]) -> Answer {
        let ids = self.ids(thread, which);
        at.iter().zip(ids).try_for_each(|(&at, id)| self.machine.write_user(at, &id.to_le_bytes()))?;
        Ok(0)
    }

    pub(crate) fn get_groups(&self, thread: &Thread, most: u64, to: u64) -> Answer {
        let more = thread.process.owner.with(|owner| owner.more.clone());
        let most = most as i32;
        if most < 0 || most != 0 && more.len() > most as usize {
            return Err(Errno::EINVAL);
        }
        if most != 0 {
            let all = more.iter().fold(Pack::default(), |all, &group| all.word(group));
            self.machine.write_user(to, &all.0)?;
        }
        Ok(more.len() as u64)
    }

    pub(crate) fn set_groups(&self, thread: &Thread, count: u64, from: u64) -> Answer {
        if !thread.process.owner.with(|owner| owner.may_change(Which::Group)) {
            return Err(Errno::EPERM);
        }
        if count > MOST_GROUPS {
            return Err(Errno::EINVAL);
        }
        let more: Vec<u32> = (0..count).map(|at| self.load_word(from + 4 * at)).collect::<Result<_, _>>()?;
        thread.process.owner.with(|owner| owner.more = more);
        Ok(0)
    }

    /// Those whose priority is meant: of a process, of a group, or of a user.
    fn meant(&self, thread: &Thread, which: u64, who: u64) -> Result<Vec<Arc<Process>>, Errno> {
        let me = &thread.process;
        let who = who as u32;
        let is_meant = |process: &&Arc<Process>| match which as u32 {
            0 => process.pid == if who == 0 { me.pid } else { who },
            1 => {
                let group = if who == 0 { me.group.load(Ordering::Relaxed) } else { who };
                process.group.load(Ordering::Relaxed) == group
            }
            _ => {
                let user = |process: &Process| process.owner.with(|owner| owner.users[0]);
                user(process) == if who == 0 { user(me) } else { who }
            }
        };
        if which as u32 > 2 {
            return Err(Errno::EINVAL);
        }
        let mut all: Vec<_> = self.processes.with(|all| all.values().filter(is_meant).cloned().collect());
        if all.is_empty() && which as u32 == 0 {
            // A thread of somebody.
            all.extend(self.process_with(who));
        }
        if all.is_empty() { Err(Errno::ESRCH) } else { Ok(all) }
    }

    /// The best that one of them has: 20 is usual, more comes first.
    pub(crate) fn get_priority(&self, thread: &Thread, which: u64, who: u64) -> Answer {
        let all = self.meant(thread, which, who)?;
        Ok(all.iter().map(|process| process.nice.load(Ordering::Relaxed)).max().unwrap_or(20).into())
    }

    /// It is kept, and all are served alike.
    pub(crate) fn set_priority(&self, thread: &Thread, which: u64, who: u64, nice: u64) -> Answer {
        let all = self.meant(thread, which, who)?;
        let new = (20 - (nice as i32).clamp(-20, 19)) as u32;
        let mut answer = Ok(0);
        for process in all {
            if !may_serve(thread, &process) {
                answer = Err(Errno::EPERM);
            } else if new > process.nice.load(Ordering::Relaxed) && !may_be_nice(thread, &process, new) {
                answer = Err(Errno::EACCES);
            } else {
                process.nice.store(new, Ordering::Relaxed);
            }
        }
        answer
    }
}
