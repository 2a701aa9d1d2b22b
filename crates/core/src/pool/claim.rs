//! Numbers of slabs that are one owner's: to make slabs without the pool's lock.

use core::sync::atomic::Ordering;

use super::{NUMBERS, Pool, Pooled};
use crate::error::Error;
use crate::platform::Platform;
use crate::sync::Word32;

/// Numbers that nobody else gives to a slab, up to an end. Under its owner's lock. All zeros is none.
#[repr(C)]
pub(crate) struct Claim {
    next: Word32,
    end: Word32,
}

impl Claim {
    /// The first of them. Where none is left, claims so many more of the pool, or one if there are no longer so many.
    pub fn next<P: Platform, T: Pooled>(&self, p: &P, pool: &Pool<T>, more: u32) -> Result<u32, Error> {
        if self.next.get(p) == self.end.get(p) {
            let (first, count) =
                pool.claim(p, more).map(|first| (first, more)).or_else(|_| Ok((pool.claim(p, 1)?, 1)))?;
            self.next.set(p, first);
            self.end.set(p, first + count);
        }
        Ok(self.next.get(p))
    }

    /// The first of them is no longer here.
    pub fn used<P: Platform>(&self, p: &P) {
        self.next.set(p, self.next.get(p) + 1);
    }

    /// Takes the first of them.
    pub fn take<P: Platform, T: Pooled>(&self, p: &P, pool: &Pool<T>, more: u32) -> Result<u32, Error> {
        let number = self.next(p, pool, more)?;
        self.used(p);
        Ok(number)
    }
}

impl<T: Pooled> Pool<T> {
    /// So many numbers in a row that no slab has had, and none will have but the caller's; returns the first. No lock. Where slabs
    /// never go: the others' numbers come round, under the lock.
    fn claim<P: Platform>(&self, p: &P, count: u32) -> Result<u32, Error> {
        // Read first, so that who is refused again and again does not count it round.
        if self.numbers.load(p, Ordering::Relaxed) > NUMBERS - count {
            return Err(Error::TooMany);
        }
        // AcqRel, as all that counts here; what lies under a number is published by its directory's word.
        let first = self.numbers.fetch_add(p, count, Ordering::AcqRel);
        if first > NUMBERS - count { Err(Error::TooMany) } else { Ok(first) }
    }
}
