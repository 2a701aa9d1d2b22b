//! What programs find by a key and name by a number (System V): sets of semaphores, queues of messages.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use crate::errno::Errno;
use crate::sync::Spin;

/// How many there may be of each kind.
pub const MOST: usize = 32_000;

/// Objects by number; those with a key that is not 0 are found by it.
pub struct Numbered<T>(Spin<Table<T>>);

struct Table<T> {
    all: BTreeMap<u32, (u32, Arc<T>)>,
    next: u32,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Numbered(Spin::new(Table { all: BTreeMap::new(), next: 0 }))
    }
}

impl<T> Numbered<T> {
    /// The number of what has this key, if it `fits`, or of a new one.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT`; `ENOSPC`; those of `fits` and `make`.
    pub fn find(
        &self,
        key: u32,
        flags: u64,
        fits: impl Fn(&T) -> Result<(), Errno>,
        make: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<u32, Errno> {
        const CREATE: u64 = 0o1000;
        const EXCLUSIVE: u64 = 0o2000;
        let there = |table: &Table<T>| {
            let (&id, (_, object)) = table.all.iter().find(|(_, (other, _))| key != 0 && *other == key)?;
            let wanted = flags & CREATE == 0 || flags & EXCLUSIVE == 0;
            Some(if wanted { fits(object).map(|()| id) } else { Err(Errno::EEXIST) })
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
            table.all.insert(id, (key, new.clone()));
            table.next = (id + 1) & i32::MAX as u32;
            Ok(id)
        })
    }

    /// What has this number, and its key.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn get(&self, id: u64) -> Result<(u32, Arc<T>), Errno> {
        self.0.with(|table| table.all.get(&(id as u32)).cloned()).ok_or(Errno::EINVAL)
    }

    /// The number of the one at a place among all; how many there are.
    pub fn nth(&self, place: u64) -> (Option<u32>, usize) {
        let nth = |table: &Table<T>| table.all.keys().nth(usize::try_from(place).ok()?).copied();
        self.0.with(|table| (nth(table), table.all.len()))
    }

    /// All there are.
    pub fn sum(&self, of: impl Fn(&T) -> usize) -> usize {
        self.0.with(|table| table.all.values().map(|(_, object)| of(object)).sum())
    }

    /// Nobody finds it any more.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn remove(&self, id: u64) -> Result<Arc<T>, Errno> {
        self.0.with(|table| table.all.remove(&(id as u32))).map(|(_, object)| object).ok_or(Errno::EINVAL)
    }
}
