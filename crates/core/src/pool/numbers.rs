//! Numbers of slabs: which of them somebody has, and some that are one owner's, to make slabs without the pool's lock.

use core::sync::atomic::Ordering;

use crate::error::Error;
use crate::platform::Platform;
use crate::sync::Word32;

/// The numbers of a pool. All zeros is none given.
#[repr(C)]
pub(crate) struct SlabNumbers {
    /// One more than the highest that a slab ever had, or that somebody has [claimed](Claim).
    end: Word32,
}

impl SlabNumbers {
    /// How many there can be.
    pub const MOST: u32 = 1 << 19;

    /// All that were ever given lie below.
    pub fn end<P: Platform>(&self, p: &P) -> u32 {
        self.end.load(p, Ordering::Acquire).min(Self::MOST)
    }

    /// A slab has this number. Where slabs go, and under the pool's lock.
    pub fn given<P: Platform>(&self, p: &P, number: u32) {
        self.end.store(p, self.end.get(p).max(number + 1), Ordering::Release);
    }

    /// So many in a row that no slab has had, and none will have but the caller's; returns the first. Any context, no lock. Where
    /// slabs never go.
    fn claim<P: Platform>(&self, p: &P, count: u32) -> Result<u32, Error> {
        // Read first, so that who is refused again and again does not count it round.
        if self.end.load(p, Ordering::Relaxed) > Self::MOST - count {
            return Err(Error::TooMany);
        }
        // AcqRel, as all that counts here; what lies under a number is published by its directory's word.
        let first = self.end.fetch_add(p, count, Ordering::AcqRel);
        if first > Self::MOST - count { Err(Error::TooMany) } else { Ok(first) }
    }
}

/// Numbers that nobody else gives to a slab, up to an end. Under its owner's lock. All zeros is none.
#[repr(C)]
pub(crate) struct Claim {
    next: Word32,
    end: Word32,
}

impl Claim {
    /// The first of them. Where none is left, claims so many more of the pool, or one if there are no longer so many.
    pub fn next<P: Platform>(&self, p: &P, numbers: &SlabNumbers, more: u32) -> Result<u32, Error> {
        if self.next.get(p) == self.end.get(p) {
            let (first, count) = numbers
                .claim(p, more)
                .map(|first| (first, more))
                .or_else(|_| Ok((numbers.claim(p, 1)?, 1)))?;
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
    pub fn take<P: Platform>(&self, p: &P, numbers: &SlabNumbers, more: u32) -> Result<u32, Error> {
        let number = self.next(p, numbers, more)?;
        self.used(p);
        Ok(number)
    }
}
