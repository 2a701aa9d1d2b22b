//! Locks of files: of parts of one, by processes (`fcntl`), and of whole ones, by what is open (`flock`). They bind only those who ask.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::ops::Range;

use crate::errno::Errno;
use crate::open::Open;

/// Who has a lock.
#[derive(Clone)]
pub enum Owner {
    /// A process: whatever it has open.
    Process(u32),
    /// What is open: whoever has it.
    Open(Weak<Open>),
}

impl Owner {
    /// Something open.
    pub fn open(open: &Arc<Open>) -> Owner {
        Owner::Open(Arc::downgrade(open))
    }

    fn is(&self, other: &Owner) -> bool {
        match (self, other) {
            (Owner::Process(a), Owner::Process(b)) => a == b,
            (Owner::Open(a), Owner::Open(b)) => a.ptr_eq(b),
            _ => false,
        }
    }

    fn lives(&self) -> bool {
        match self {
            Owner::Process(_) => true,
            Owner::Open(open) => open.strong_count() > 0,
        }
    }
}

/// One lock.
#[derive(Clone)]
pub struct Lock {
    /// Who has it.
    pub owner: Owner,
    /// Of these bytes.
    pub range: Range<u64>,
    /// Nobody else may have one.
    pub alone: bool,
}

/// A file, and which of the two kinds.
pub type Of = (u64, bool);

/// Locks of one file: each takes memory of the kernel's.
const MOST: usize = 4096;

/// How many wait one for the other, as far as that is looked at.
const LONGEST: usize = 16;

/// All locks, and who waits for which.
#[derive(Default)]
pub struct Locks {
    all: BTreeMap<Of, Vec<Lock>>,
    waits: Vec<(Of, Lock)>,
}

impl Locks {
    /// The first lock that is in the way of another one.
    pub fn in_the_way(&mut self, of: Of, wanted: &Lock) -> Option<Lock> {
        let all = self.all.get_mut(&of)?;
        all.retain(|lock| lock.owner.lives());
        let meets = |lock: &&Lock| {
            let apart = lock.range.end <= wanted.range.start || wanted.range.end <= lock.range.start;
            !apart && !lock.owner.is(&wanted.owner) && (lock.alone || wanted.alone)
        };
        all.iter().find(meets).cloned()
    }

    /// Takes a lock, in place of what its owner has there, if none is in the way; says whether.
    ///
    /// # Errors
    /// `ENOLCK`: too many.
    pub fn lock(&mut self, of: Of, wanted: &Lock) -> Result<bool, Errno> {
        if self.in_the_way(of, wanted).is_some() {
            return Ok(false);
        }
        if self.all.get(&of).is_some_and(|all| all.len() >= MOST) {
            return Err(Errno::ENOLCK);
        }
        self.unlock(of, &wanted.owner, &wanted.range);
        let (all, mut lock) = (self.all.entry(of).or_default(), wanted.clone());
        // Side by side they are one.
        all.retain(|other| {
            let touches = other.range.end == lock.range.start || lock.range.end == other.range.start;
            let joins = touches && other.owner.is(&lock.owner) && other.alone == lock.alone;
            if joins {
                lock.range = lock.range.start.min(other.range.start)..lock.range.end.max(other.range.end);
            }
            !joins
        });
        // Those of one owner lie together, by where they begin: who asks what is in the way hears of the first.
        let its = |other: &Lock| other.owner.is(&lock.owner);
        let behind = all.iter().position(|other| its(other) && other.range.start > lock.range.start);
        let at = behind.or_else(|| all.iter().rposition(its).map(|last| last + 1)).unwrap_or(all.len());
        all.insert(at, lock);
        Ok(true)
    }

    /// Lets go of what an owner has in a range; says whether that was anything.
    pub fn unlock(&mut self, of: Of, owner: &Owner, range: &Range<u64>) -> bool {
        let Some(all) = self.all.get_mut(&of) else { return false };
        let mut any = false;
        let mut left = Vec::new();
        for lock in all.drain(..) {
            if !lock.owner.is(owner) || lock.range.end <= range.start || range.end <= lock.range.start {
                left.push(lock);
                continue;
            }
            any = true;
            let Lock { owner, range: old, alone } = lock;
            for rest in [old.start..range.start.max(old.start), range.end.min(old.end)..old.end] {
                if !rest.is_empty() {
                    left.push(Lock { owner: owner.clone(), range: rest, alone });
                }
            }
        }
        *all = left;
        if all.is_empty() {
            self.all.remove(&of);
        }
        any
    }

    /// A process is about to wait for a lock, and is known to until [`waits_no_more`](Self::waits_no_more).
    ///
    /// # Errors
    /// As [`ends`](Self::ends).
    pub fn wait(&mut self, of: Of, wanted: &Lock) -> Result<(), Errno> {
        self.ends(of, wanted)?;
        self.waits.push((of, wanted.clone()));
        Ok(())
    }

    /// Whether the wait of a process for a lock can end. Who let go of one may leave a circle behind: asked each time that it is woken.
    ///
    /// # Errors
    /// `EDEADLK`: whoever is in the way waits for another, and so on, and one of them for this process.
    pub fn ends(&mut self, of: Of, wanted: &Lock) -> Result<(), Errno> {
        let mut next = (of, wanted.clone());
        for _ in 0..LONGEST {
            let found = self.in_the_way(next.0, &next.1);
            let Some(there) = found.filter(|lock| matches!(lock.owner, Owner::Process(_))) else { break };
            if there.owner.is(&wanted.owner) {
                return Err(Errno::EDEADLK);
            }
            let waits = self.waits.iter().find(|(_, waits)| waits.owner.is(&there.owner));
            let Some(waits) = waits else { break };
            next = waits.clone();
        }
        Ok(())
    }

    /// A process waits for a lock no more.
    pub fn waits_no_more(&mut self, of: Of, wanted: &Lock) {
        let same = |(other, lock): &(Of, Lock)| {
            *other == of
                && lock.owner.is(&wanted.owner)
                && lock.range == wanted.range
                && lock.alone == wanted.alone
        };
        if let Some(at) = self.waits.iter().position(same) {
            self.waits.swap_remove(at);
        }
    }

    /// A process lets go of all that it has; says whether there are any locks.
    pub fn end(&mut self, process: u32) -> bool {
        let any = !self.all.is_empty();
        let its = |lock: &Lock| matches!(lock.owner, Owner::Process(owner) if owner == process);
        self.all.retain(|_, all| {
            all.retain(|lock| !its(lock) && lock.owner.lives());
            !all.is_empty()
        });
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Of = (7, false);
    const ALL: Range<u64> = 0..u64::MAX;

    fn lock(process: u32, range: Range<u64>, alone: bool) -> Lock {
        Lock { owner: Owner::Process(process), range, alone }
    }

    #[test]
    fn readers_share_and_a_writer_is_alone() {
        let mut locks = Locks::default();
        assert_eq!(locks.lock(FILE, &lock(1, 0..10, false)), Ok(true));
        assert_eq!(locks.lock(FILE, &lock(2, 5..15, false)), Ok(true));
        assert_eq!(locks.lock(FILE, &lock(2, 5..15, true)), Ok(false));
        assert_eq!(locks.lock(FILE, &lock(2, 10..15, true)), Ok(true));
        assert_eq!(locks.lock((8, false), &lock(3, ALL, true)), Ok(true), "another file");
        let found = locks.in_the_way(FILE, &lock(3, 12..13, false)).unwrap();
        assert_eq!((found.range, found.alone), (10..15, true));
        assert!(locks.end(2) && locks.in_the_way(FILE, &lock(3, 12..13, true)).is_none());
    }

    #[test]
    fn nobody_waits_for_itself() {
        let mut locks = Locks::default();
        for process in 1..=3 {
            let at = u64::from(process);
            assert_eq!(locks.lock(FILE, &lock(process, at..at + 1, true)), Ok(true));
        }
        assert_eq!(locks.wait(FILE, &lock(1, 2..3, true)), Ok(()));
        assert_eq!(locks.wait(FILE, &lock(2, 3..4, false)), Ok(()));
        assert_eq!(locks.wait(FILE, &lock(3, 1..2, false)), Err(Errno::EDEADLK), "by way of two others");
        assert_eq!(locks.wait(FILE, &lock(4, 1..2, true)), Ok(()), "for whom nobody waits");
        locks.waits_no_more(FILE, &lock(1, 2..3, true));
        assert_eq!(locks.wait(FILE, &lock(3, 1..2, false)), Ok(()));
        assert_eq!(locks.wait(FILE, &lock(1, 3..4, false)), Err(Errno::EDEADLK));
    }

    #[test]
    fn who_is_left_may_wait_for_itself() {
        let mut locks = Locks::default();
        for (process, range) in [(1, 0..5), (2, 5..10), (3, 10..15)] {
            assert_eq!(locks.lock(FILE, &lock(process, range, true)), Ok(true));
        }
        let (second, third) = (lock(2, 10..15, true), lock(3, 0..10, true));
        assert_eq!(locks.wait(FILE, &second), Ok(()));
        assert_eq!(locks.wait(FILE, &third), Ok(()), "the first is in the way, and waits for nobody");
        locks.end(1);
        assert_eq!(locks.ends(FILE, &third), Err(Errno::EDEADLK));
        assert_eq!(locks.ends(FILE, &second), Err(Errno::EDEADLK), "until the other hears of it");
        locks.waits_no_more(FILE, &third);
        assert_eq!(locks.ends(FILE, &second), Ok(()));
    }

    #[test]
    fn those_side_by_side_are_one_and_the_first_is_told() {
        let mut locks = Locks::default();
        for (range, alone) in
            [(20..25, true), (5..10, false), (0..5, false), (10..12, false), (30..31, false)]
        {
            assert_eq!(locks.lock(FILE, &lock(1, range, alone)), Ok(true));
        }
        assert_eq!(locks.lock(FILE, &lock(3, 40..41, true)), Ok(true));
        for (asked, told) in [(0..100, 0..12), (12..100, 20..25), (25..100, 30..31), (35..100, 40..41)] {
            assert_eq!(locks.in_the_way(FILE, &lock(2, asked, true)).unwrap().range, told);
        }
    }

    #[test]
    fn letting_go_of_the_middle_leaves_both_ends() {
        let mut locks = Locks::default();
        assert_eq!(locks.lock(FILE, &lock(1, ALL, true)), Ok(true));
        assert!(locks.unlock(FILE, &Owner::Process(1), &(10..20)));
        assert!(!locks.unlock(FILE, &Owner::Process(2), &ALL));
        for (range, free) in [(0..10, false), (10..20, true), (9..11, false), (20..21, false)] {
            assert_eq!(locks.in_the_way(FILE, &lock(2, range.clone(), false)).is_none(), free, "{range:?}");
        }
    }

    #[test]
    fn what_is_closed_has_no_locks() {
        use crate::open::{Counter, Kind};
        let open = Open::new(Kind::Event(Counter::new(0, false)), 0, Vec::new());
        let mut locks = Locks::default();
        assert_eq!(locks.lock(FILE, &Lock { owner: Owner::open(&open), range: ALL, alone: true }), Ok(true));
        assert_eq!(locks.lock(FILE, &lock(1, ALL, true)), Ok(false));
        drop(open);
        assert_eq!(locks.lock(FILE, &lock(1, ALL, true)), Ok(true));
    }
}
