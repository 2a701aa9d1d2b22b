//! Blocks that go back to a zone together: what lies side by side is put together before, and not under the zone's lock.

use crate::addr::FrameNumber;
use crate::memmap::{FrameVec, MAX_ORDER};

/// Free blocks of one zone, which nobody else knows: those that came one after another and are buddies are one.
pub(super) struct Pieces {
    first: [FrameNumber; FrameVec::MOST],
    order: [u8; FrameVec::MOST],
    len: usize,
}

impl Pieces {
    pub fn new() -> Self {
        Pieces { first: [FrameNumber::NONE; FrameVec::MOST], order: [0; FrameVec::MOST], len: 0 }
    }

    /// One more. What was the first frame of a block, and is a part of a larger one now, `becomes_part`.
    pub fn push(&mut self, mut n: FrameNumber, mut order: u8, becomes_part: impl Fn(FrameNumber)) {
        while let Some(last) = self.len.checked_sub(1)
            && (self.first[last].0, self.order[last]) == (n.0 ^ 1 << order, order)
            && order < MAX_ORDER
        {
            becomes_part(n.max(self.first[last]));
            n = n.min(self.first[last]);
            order += 1;
            self.len = last;
        }
        (self.first[self.len], self.order[self.len]) = (n, order);
        self.len += 1;
    }

    /// What there is: the first frame and the order of each.
    pub fn iter(&self) -> impl Iterator<Item = (FrameNumber, u8)> {
        self.first.iter().copied().zip(self.order.iter().copied()).take(self.len)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::vec::Vec;

    use super::*;

    /// What becomes of single frames that come in this order, and which become parts.
    fn put_together(frames: impl IntoIterator<Item = u32>) -> (Vec<(u32, u8)>, Vec<u32>) {
        let (mut pieces, parts) = (Pieces::new(), RefCell::new(Vec::new()));
        for n in frames {
            pieces.push(FrameNumber(n), 0, |part| parts.borrow_mut().push(part.0));
        }
        let mut parts = parts.into_inner();
        parts.sort_unstable();
        (pieces.iter().map(|(n, order)| (n.0, order)).collect(), parts)
    }

    #[test]
    fn a_run_becomes_the_largest_blocks_up_or_down() {
        // 5, 6 to 7, 8 to 15, 16.
        let (up, parts) = put_together(5..17);
        assert_eq!(up, [(5, 0), (6, 1), (8, 3), (16, 0)]);
        assert_eq!(parts, [7, 9, 10, 11, 12, 13, 14, 15], "the first frame of a block is no part");
        let (mut down, same) = put_together((5..17).rev());
        down.reverse();
        assert_eq!((down, same), (up, parts));
    }

    #[test]
    fn what_is_no_buddy_stays_apart() {
        // Side by side, but halves of different blocks; the same place in another block; not one after another.
        assert_eq!(put_together([1, 2]).0, [(1, 0), (2, 0)]);
        assert_eq!(put_together([4, 9]).0, [(4, 0), (9, 0)]);
        assert_eq!(put_together([4, 8, 5]).0, [(4, 0), (8, 0), (5, 0)]);
        // A block is no buddy of one that is larger.
        assert_eq!(put_together([2, 3, 0]).0, [(2, 1), (0, 0)]);
    }

    #[test]
    fn nothing_grows_beyond_the_largest_order() {
        let (mut pieces, largest) = (Pieces::new(), 1 << MAX_ORDER);
        pieces.push(FrameNumber(0), MAX_ORDER, |_| unreachable!());
        pieces.push(FrameNumber(largest), MAX_ORDER, |_| unreachable!());
        let both: Vec<_> = pieces.iter().collect();
        assert_eq!(both, [(FrameNumber(0), MAX_ORDER), (FrameNumber(largest), MAX_ORDER)]);
        // Halves of one become one.
        let (mut pieces, half) = (Pieces::new(), MAX_ORDER - 1);
        pieces.push(FrameNumber(largest), half, |_| ());
        pieces.push(FrameNumber(largest / 2 * 3), half, |part| assert_eq!(part.0, largest / 2 * 3));
        assert_eq!(pieces.iter().collect::<Vec<_>>(), [(FrameNumber(largest), MAX_ORDER)]);
    }

    #[test]
    fn as_many_as_are_cut_off_at_once_have_room() {
        let apart = put_together((0..FrameVec::MOST as u32).map(|i| 2 * i));
        assert_eq!((apart.0.len(), apart.1.len()), (FrameVec::MOST, 0));
    }
}
