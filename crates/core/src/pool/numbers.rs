//! Numbers of slabs: which of them somebody has, and some that are one owner's, to make slabs without the pool's lock.

use core::sync::atomic::Ordering;

use crate::error::Error;
use crate::platform::Hooks;
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
    pub fn end<P: Hooks>(&self, p: &P) -> u32 {
        self.end.load(p, Ordering::Acquire).min(Self::MOST)
    }

    /// A slab has this number. Where slabs go, and under the pool's lock.
    pub fn given<P: Hooks>(&self, p: &P, number: u32) {
        self.end.store(p, self.end.get(p).max(number + 1), Ordering::Release);
    }

    /// So many in a row that no slab has had, and none will have but the caller's; returns the first. Any context, no lock. Where
    /// slabs never go.
    fn claim<P: Hooks>(&self, p: &P, count: u32) -> Result<u32, Error> {
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
    pub fn next<P: Hooks>(&self, p: &P, numbers: &SlabNumbers, more: u32) -> Result<u32, Error> {
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
    pub fn used<P: Hooks>(&self, p: &P) {
        self.next.set(p, self.next.get(p) + 1);
    }

    /// Takes the first of them.
    pub fn take<P: Hooks>(&self, p: &P, numbers: &SlabNumbers, more: u32) -> Result<u32, Error> {
        let number = self.next(p, numbers, more)?;
        self.used(p);
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::tree::tests::Touches;

    const MOST: u32 = SlabNumbers::MOST;

    fn numbers(end: u32) -> SlabNumbers {
        SlabNumbers { end: Word32::new(end) }
    }

    fn claim() -> Claim {
        Claim { next: Word32::new(0), end: Word32::new(0) }
    }

    /// Who claims some at once, and who claims one at a time: each number is given once, up to the last, and then none.
    #[test]
    fn each_number_is_given_once_up_to_the_last() {
        let p = Touches::default();
        for (left, more) in [(40, 8), (41, 8), (47, 8), (8, 8), (7, 8), (1, 8), (0, 8), (5, 1)] {
            let (numbers, owners) = (numbers(MOST - left), [claim(), claim()]);
            let mut given = Vec::new();
            for at in 0..2 * left {
                // By turns, until one finds no more: then the other has some, perhaps.
                let owner = &owners[at as usize % 2];
                given.extend(owner.take(&p, &numbers, if at % 2 == 0 { more } else { 1 }));
            }
            given.sort_unstable();
            assert_eq!(given, (MOST - left..MOST).collect::<Vec<_>>(), "{left} left, {more} at once");
            for owner in owners.iter().cycle().take(4) {
                assert_eq!(owner.take(&p, &numbers, more), Err(Error::TooMany));
            }
            assert_eq!(numbers.end(&p), MOST);
        }
    }

    #[test]
    fn who_is_refused_again_and_again_counts_nothing_round() {
        let (p, numbers) = (Touches::default(), numbers(MOST - 1));
        for _ in 0..5 {
            assert_eq!(numbers.claim(&p, 2), Err(Error::TooMany));
            assert_eq!(numbers.end.get(&p), MOST - 1, "there is one");
        }
        assert_eq!(numbers.claim(&p, 1), Ok(MOST - 1));
        for _ in 0..5 {
            assert_eq!(numbers.claim(&p, 1), Err(Error::TooMany));
        }
        assert_eq!(numbers.end.get(&p), MOST);
    }

    /// Two who claim at once may both have seen that there is one.
    #[test]
    fn a_number_behind_the_last_is_nobodys_however_far_others_have_counted() {
        let (p, numbers) = (Touches::default(), numbers(MOST + 3));
        assert_eq!((numbers.claim(&p, 1), numbers.end(&p)), (Err(Error::TooMany), MOST));
    }

    #[test]
    fn a_number_is_the_same_until_it_is_used() {
        let (p, numbers, owner) = (Touches::default(), numbers(7), claim());
        for first in [7, 8, 9, 10] {
            assert_eq!([(); 2].map(|()| owner.next(&p, &numbers, 2)), [Ok(first); 2]);
            owner.used(&p);
        }
        assert_eq!((numbers.claim(&p, 1), owner.take(&p, &numbers, 2)), (Ok(11), Ok(12)));
    }

    /// Where slabs go numbers are used again: none is forgotten that was given.
    #[test]
    fn a_lower_number_that_is_given_again_moves_no_end() {
        let (p, numbers) = (Touches::default(), numbers(0));
        for (number, end) in [(0, 1), (1, 2), (0, 2), (5, 6), (3, 6), (5, 6)] {
            numbers.given(&p, number);
            assert_eq!(numbers.end(&p), end, "after {number}");
        }
    }
}
