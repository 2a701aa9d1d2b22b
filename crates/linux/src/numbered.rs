//! What programs find by a key and name by a number (System V): sets of semaphores, queues of messages.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use crate::errno::Errno;
use crate::process::Owner;
use crate::rights::{READ, WRITE};
use crate::sync::Spin;

/// How many there may be of each kind.
pub const MOST: usize = 32_000;

/// Whose something is, who made it, and what may be done with it.
#[derive(Clone, Copy, Debug)]
pub struct Rights {
    /// A user and a group.
    pub owner: [u32; 2],
    /// By whom it was made, likewise.
    pub maker: [u32; 2],
    /// As the rights of a file are.
    pub mode: u32,
}

impl Rights {
    /// Of what somebody makes and says so of.
    pub fn made(by: &Owner, flags: u64) -> Rights {
        let maker = [by.users[1], by.groups[1]];
        Rights { owner: maker, maker, mode: flags as u32 & 0o777 }
    }

    /// Refuses what somebody may not do with it.
    ///
    /// # Errors
    /// `EACCES`.
    pub fn allow(&self, who: &Owner, wanted: u32) -> Result<(), Errno> {
        let ours = [self.owner[1], self.maker[1]];
        let shift = match () {
            () if self.is_of(who) => 6,
            () if ours.iter().any(|group| *group == who.groups[1] || who.more.contains(group)) => 3,
            () => 0,
        };
        if who.is_root() || self.mode >> shift & wanted == wanted { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Whether it is somebody's, or was made by them.
    fn is_of(&self, who: &Owner) -> bool {
        [self.owner[0], self.maker[0]].contains(&who.users[1])
    }

    /// Refuses who may not say whose it is, nor take it away.
    ///
    /// # Errors
    /// `EPERM`.
    pub fn own(&self, who: &Owner) -> Result<(), Errno> {
        if who.is_root() || self.is_of(who) { Ok(()) } else { Err(Errno::EPERM) }
    }
}

/// One of them.
struct Entry<T> {
    key: u32,
    object: Arc<T>,
    rights: Rights,
}

/// Objects by number; those with a key that is not 0 are found by it.
pub struct Numbered<T>(Spin<Table<T>>);

struct Table<T> {
    all: BTreeMap<u32, Entry<T>>,
    next: u32,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Numbered(Spin::new(Table { all: BTreeMap::new(), next: 0 }))
    }
}

impl<T> Numbered<T> {
    /// The number of what has this key, if it `fits` and somebody may use it as they say, or of a new one.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT`; `ENOSPC`; `EACCES`; those of `fits` and `make`.
    pub fn find(
        &self,
        key: u32,
        flags: u64,
        who: &Owner,
        fits: impl Fn(&T) -> Result<(), Errno>,
        make: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<u32, Errno> {
        const CREATE: u64 = 0o1000;
        const EXCLUSIVE: u64 = 0o2000;
        let there = |table: &Table<T>| {
            // One without a key is nobody's to find, however many there are.
            let all = if key == 0 { None } else { Some(&table.all) };
            let (&id, found) = all?.iter().find(|(_, other)| other.key == key)?;
            let wanted = (flags >> 6 | flags >> 3 | flags) as u32 & (READ | WRITE);
            Some(match flags & CREATE == 0 || flags & EXCLUSIVE == 0 {
                true => fits(&found.object).and_then(|()| found.rights.allow(who, wanted)).map(|()| id),
                false => Err(Errno::EEXIST),
            })
        };
        if let Some(answer) = self.0.with(|table| there(table)) {
            return answer;
        }
        if key != 0 && flags & CREATE == 0 {
            return Err(Errno::ENOENT);
        }
        let new = Arc::new(make()?);
        self.0.with(|table| {
            // Somebody may have been faster.
            if let Some(answer) = there(table) {
                return answer;
            }
            if table.all.len() >= MOST {
                return Err(Errno::ENOSPC);
            }
            while table.all.contains_key(&table.next) {
                table.next = (table.next + 1) & i32::MAX as u32;
            }
            let id = table.next;
            table.all.insert(id, Entry { key, object: new.clone(), rights: Rights::made(who, flags) });
            table.next = (id + 1) & i32::MAX as u32;
            Ok(id)
        })
    }

    /// What has this number, and its rights.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn get(&self, id: u64) -> Result<(Rights, Arc<T>), Errno> {
        let parts = |entry: &Entry<T>| (entry.rights, entry.object.clone());
        self.0.with(|table| table.all.get(&(id as u32)).map(parts)).ok_or(Errno::EINVAL)
    }

    /// The key of what has this number; 0 of what has none.
    pub fn key(&self, id: u64) -> u32 {
        self.0.with(|table| table.all.get(&(id as u32)).map_or(0, |entry| entry.key))
    }

    /// What has this number has other rights from now on.
    pub fn set_rights(&self, id: u64, rights: Rights) {
        self.0.with(|table| {
            table.all.get_mut(&(id as u32)).into_iter().for_each(|entry| entry.rights = rights)
        });
    }

    /// The number of the one at a place among all; how many there are.
    pub fn nth(&self, place: u64) -> (Option<u32>, usize) {
        let nth = |table: &Table<T>| table.all.keys().nth(usize::try_from(place).ok()?).copied();
        self.0.with(|table| (nth(table), table.all.len()))
    }

    /// All there are.
    pub fn sum(&self, of: impl Fn(&T) -> usize) -> usize {
        self.0.with(|table| table.all.values().map(|entry| of(&entry.object)).sum())
    }

    /// Nobody finds it any more.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn remove(&self, id: u64) -> Result<Arc<T>, Errno> {
        self.0.with(|table| table.all.remove(&(id as u32))).map(|entry| entry.object).ok_or(Errno::EINVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_done_depends_on_whose_it_is() {
        let of = |user, group| Owner { users: [user; 4], groups: [group; 4], ..Owner::default() };
        let mut rights = Rights::made(&of(7, 70), 0o1640);
        assert_eq!(rights.mode, 0o640);
        let may =
            |rights: &Rights, who: &Owner| [READ, WRITE].map(|wanted| rights.allow(who, wanted).is_ok());
        assert_eq!(may(&rights, &of(7, 1)), [true, true]);
        assert_eq!(may(&rights, &of(8, 70)), [true, false]);
        assert_eq!((may(&rights, &of(8, 80)), may(&rights, &of(0, 0))), ([false, false], [true, true]));
        rights.owner = [8, 80];
        assert!(
            rights.own(&of(8, 1)).is_ok() && rights.own(&of(7, 1)).is_ok(),
            "whose it is, and who made it"
        );
        assert_eq!(rights.own(&of(9, 80)), Err(Errno::EPERM));
        let all = Numbered::default();
        let find = |key, flags, who: &Owner| all.find(key, flags, who, |_| Ok(()), || Ok(()));
        assert_eq!(find(5, 0o600, &of(7, 70)), Err(Errno::ENOENT));
        let id = find(5, 0o1600, &of(7, 70)).unwrap();
        assert_eq!((find(5, 0o600, &of(7, 1)), find(5, 0, &of(9, 1))), (Ok(id), Ok(id)));
        assert_eq!(
            (find(5, 0o600, &of(9, 1)), find(5, 0o3600, &of(7, 1))),
            (Err(Errno::EACCES), Err(Errno::EEXIST))
        );
        assert_eq!((all.key(id.into()), all.key(99)), (5, 0));
    }
}
