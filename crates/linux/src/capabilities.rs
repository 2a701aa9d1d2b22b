//! What a process may: kept as Linux does, so that programs which give rights up find that they have. Those over files are asked for, of the
//! others few. The calls are in `call/tasks/capabilities.rs`.

use crate::process::Owner;

/// The last of them.
pub(crate) const LAST: u64 = 40;
pub(crate) const ALL: u64 = (1 << (LAST + 1)) - 1;
/// Who may give rights to what programs inherit.
pub(crate) const MAY_CHANGE: u64 = 1 << 8;
/// Who may give files to others; use them whatever their rights; read them, and look for names; do what is their owners': by their numbers.
pub(crate) const GIVES: u32 = 0;
pub(crate) const OVERRIDES: u32 = 1;
pub(crate) const READS: u32 = 2;
pub(crate) const OWNS_FILES: u32 = 3;
/// Who may mark files as another group's.
pub(crate) const KEEPS_MARKS: u32 = 4;
/// Who may become other groups, and other users.
pub(crate) const JOINS: u32 = 6;
pub(crate) const BECOMES: u32 = 7;
/// Who may have the ports of well-known services.
pub(crate) const SERVES: u32 = 10;
/// Who may have its paths begin elsewhere.
pub(crate) const MOVES_ROOT: u32 = 18;
/// Who may do what is only the owner's of a machine, be served before others, and take more than others: by their numbers.
pub(crate) const OWNS: u32 = 21;
pub(crate) const COMES_FIRST: u32 = 23;
pub(crate) const TAKES_MORE: u32 = 24;
/// Who may hang up terminals, and make devices.
pub(crate) const HANGS_UP: u32 = 26;
pub(crate) const MAKES_DEVICES: u32 = 27;

/// Rights by their numbers, a bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Capabilities {
    pub effective: u64,
    pub permitted: u64,
    pub inheritable: u64,
    /// What it can ever have.
    pub bounding: u64,
    pub ambient: u64,
    /// They stay when its users change.
    pub stay: bool,
}

impl Default for Capabilities {
    /// Those of root.
    fn default() -> Self {
        let (effective, permitted, bounding) = (ALL, ALL, ALL);
        Capabilities { effective, permitted, inheritable: 0, bounding, ambient: 0, stay: false }
    }
}

impl Owner {
    /// It has this right, by its number, and uses it.
    pub fn may(&self, right: u32) -> bool {
        self.capabilities.effective >> right & 1 != 0
    }

    /// The same of what it does with files, which another user may do than it is otherwise; or, for `real`, whoever it is in truth.
    pub fn may_with_files(&self, right: u32, real: bool) -> bool {
        match real {
            true => self.users[0] == 0 && self.capabilities.permitted >> right & 1 != 0,
            false => self.may(right) && (self.users[3] == 0 || self.users[1] != 0),
        }
    }

    /// Its users were these before: rights go with the last that was root, and come with one that acts.
    pub fn users_changed(&mut self, old: [u32; 4]) {
        let any = |ids: &[u32; 4]| ids[..3].contains(&0);
        let all = &mut self.capabilities;
        if any(&old) && !any(&self.users) {
            all.ambient = 0;
            if !all.stay {
                (all.permitted, all.effective) = (0, 0);
            }
        }
        if old[1] == 0 && self.users[1] != 0 {
            all.effective = 0;
        }
        if old[1] != 0 && self.users[1] == 0 {
            all.effective = all.permitted;
        }
    }

    /// It becomes another program, which acts as the file's owner or group where its marks say so.
    pub fn acts_by_marks(&mut self, mode: u32, [user, group]: [u32; 2]) {
        const AS_USER: u32 = 0o4000;
        // With the group's right to run it; without, it was a mark for locks once.
        const AS_GROUP: u32 = 0o2010;
        if mode & AS_USER != 0 {
            self.users[1] = user;
        }
        if mode & AS_GROUP == AS_GROUP {
            self.groups[1] = group;
        }
    }

    /// It acts as another user or group than it is.
    pub fn acts_as_another(&self) -> bool {
        self.users[1] != self.users[0] || self.groups[1] != self.groups[0]
    }

    /// It becomes another program.
    pub fn rights_of_program(&mut self) {
        for ids in [&mut self.users, &mut self.groups] {
            (ids[2], ids[3]) = (ids[1], ids[1]);
        }
        let root = self.users[0] == 0 || self.users[1] == 0;
        let acts = self.users[1] == 0;
        let all = &mut self.capabilities;
        all.stay = false;
        all.permitted = if root { all.bounding | all.inheritable } else { all.ambient };
        all.effective = if acts { all.permitted } else { all.ambient };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_a_marked_program_acts_as_its_owner_and_its_group() {
        let mut owner = Owner { users: [5; 4], groups: [6; 4], ..Owner::default() };
        owner.acts_by_marks(0o2755, [0, 7]);
        owner.rights_of_program();
        assert_eq!((owner.users, owner.groups), ([5; 4], [6, 7, 7, 7]));
        assert_eq!((owner.capabilities.effective, owner.acts_as_another()), (0, true));
        owner.groups = [6; 4];
        owner.acts_by_marks(0o6745, [0, 7]);
        owner.rights_of_program();
        assert_eq!((owner.users, owner.groups), ([5, 0, 0, 0], [6; 4]));
        assert_eq!((owner.capabilities.effective, owner.acts_as_another()), (ALL, true));
    }

    #[test]
    fn rights_go_with_root_and_come_back_with_who_acts_as_root() {
        let mut owner = Owner::default();
        let change = |owner: &mut Owner, users: [u32; 4]| {
            let old = core::mem::replace(&mut owner.users, users);
            owner.users_changed(old);
            (owner.capabilities.effective, owner.capabilities.permitted)
        };
        assert_eq!(change(&mut owner, [0, 5, 0, 5]), (0, ALL));
        assert_eq!(change(&mut owner, [0, 0, 0, 0]), (ALL, ALL));
        owner.capabilities.stay = true;
        assert_eq!(change(&mut owner, [5; 4]), (0, ALL));
        owner.rights_of_program();
        assert_eq!(
            (owner.capabilities.effective, owner.capabilities.permitted, owner.capabilities.stay),
            (0, 0, false)
        );
        let mut owner = Owner::default();
        assert_eq!(change(&mut owner, [5; 4]), (0, 0));
    }
}
