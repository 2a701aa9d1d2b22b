//! Lists of frames, linked through the frames themselves: a frame is on one list at most.

use super::table::FrameBlock;
use super::table::FrameTable;
use crate::addr::FrameNumber;
use crate::platform::Hooks;
use crate::sync::{Word32, Word64};

/// A doubly linked list of frames, guarded by somebody's lock. Needs [`Chain::init`].
///
/// The first frame's previous one and an empty list's last one mean nothing: whoever takes the first need not touch the next.
#[repr(C)]
pub(crate) struct Chain {
    head: Word32,
    tail: Word32,
}

impl Chain {
    pub fn init<P: Hooks>(&self, p: &P) {
        self.head.set(p, FrameNumber::NONE.0);
        self.tail.set(p, FrameNumber::NONE.0);
    }

    pub fn first<P: Hooks>(&self, p: &P) -> FrameNumber {
        FrameNumber(self.head.get(p))
    }

    pub fn last<P: Hooks>(&self, p: &P) -> FrameNumber {
        FrameNumber(self.tail.get(p))
    }

    pub fn is_empty<P: Hooks>(&self, p: &P) -> bool {
        self.first(p) == FrameNumber::NONE
    }

    #[inline(always)]
    pub fn push_front<P: Hooks>(
        &self,
        p: &P,
        frames: &FrameTable<'_>,
        FrameBlock { n, frame }: FrameBlock<'_>,
    ) {
        let head = self.head.get(p);
        frame.link.next.set(p, head);
        match FrameNumber(head) {
            FrameNumber::NONE => self.tail.set(p, n.0),
            head => frames.get(head).link.prev.set(p, n.0),
        }
        self.head.set(p, n.0);
    }

    pub fn remove<P: Hooks>(&self, p: &P, frames: &FrameTable<'_>, n: FrameNumber) {
        let link = &frames.get(n).link;
        let (prev, next) = (link.prev.get(p), link.next.get(p));
        if self.first(p) == n {
            self.head.set(p, next);
        } else {
            frames.get(FrameNumber(prev)).link.next.set(p, next);
        }
        match FrameNumber(next) {
            FrameNumber::NONE => self.tail.set(p, prev),
            next => frames.get(next).link.prev.set(p, prev),
        }
    }

    #[inline(always)]
    pub fn pop_front<'p, P: Hooks>(&self, p: &P, frames: &FrameTable<'p>) -> Option<FrameBlock<'p>> {
        let n = self.first(p);
        if n == FrameNumber::NONE {
            return None;
        }
        let block = frames.block(n);
        self.head.set(p, block.frame.next(p).0);
        Some(block)
    }

    /// Cuts frames off the old end, the oldest first, for as long as `wanted` says so: one write per list, one read per
    /// frame.
    pub fn cut_back<P: Hooks>(
        &self,
        p: &P,
        frames: &FrameTable<'_>,
        mut wanted: impl FnMut(FrameNumber) -> bool,
    ) {
        let (first, last) = (self.first(p), self.last(p));
        if first == FrameNumber::NONE {
            return;
        }
        let mut at = last;
        while wanted(at) {
            if at == first {
                return self.head.set(p, FrameNumber::NONE.0);
            }
            at = FrameNumber(frames.get(at).link.prev.get(p));
        }
        self.tail.set(p, at.0);
        frames.get(at).link.next.set(p, FrameNumber::NONE.0);
    }

    /// Puts a frame at the old end.
    pub fn push_back<P: Hooks>(&self, p: &P, frames: &FrameTable<'_>, n: FrameNumber) {
        let (link, tail) = (&frames.get(n).link, self.last(p));
        link.next.set(p, FrameNumber::NONE.0);
        if self.is_empty(p) {
            self.head.set(p, n.0);
        } else {
            link.prev.set(p, tail.0);
            frames.get(tail).link.next.set(p, n.0);
        }
        self.tail.set(p, n.0);
    }

    /// Puts frames at the new end, the oldest first: one write per list, two per frame.
    pub fn join_front<P: Hooks>(&self, p: &P, frames: &FrameTable<'_>, new: &[FrameNumber]) {
        let (Some(oldest), Some(newest)) = (new.first(), new.last()) else { return };
        let head = self.first(p);
        for (i, &n) in new.iter().enumerate() {
            let link = &frames.get(n).link;
            link.next.set(p, if i == 0 { head.0 } else { new[i - 1].0 });
            link.prev.set(p, new.get(i + 1).map_or(FrameNumber::NONE.0, |newer| newer.0));
        }
        match head {
            FrameNumber::NONE => self.tail.set(p, oldest.0),
            head => frames.get(head).link.prev.set(p, oldest.0),
        }
        self.head.set(p, newest.0);
    }
}

/// A [`Chain`] that knows how long it is. Needs [`List::init`].
#[repr(C)]
pub(crate) struct List {
    chain: Chain,
    len: Word64,
}

impl List {
    /// Makes it empty, whatever it was.
    pub fn init<P: Hooks>(&self, p: &P) {
        self.chain.init(p);
        self.len.set(p, 0);
    }

    /// How many frames; without the lock a guess.
    pub fn len<P: Hooks>(&self, p: &P) -> u64 {
        self.len.get(p)
    }

    pub fn first<P: Hooks>(&self, p: &P) -> FrameNumber {
        self.chain.first(p)
    }

    pub fn push_front<P: Hooks>(&self, p: &P, frames: &FrameTable<'_>, n: FrameNumber) {
        self.chain.push_front(p, frames, frames.block(n));
        self.len.set(p, self.len.get(p) + 1);
    }

    pub fn remove<P: Hooks>(&self, p: &P, frames: &FrameTable<'_>, n: FrameNumber) {
        self.chain.remove(p, frames, n);
        self.len.set(p, self.len.get(p) - 1);
    }

    /// Cuts up to `out.len()` frames off the old end, the oldest first.
    pub fn cut_back<P: Hooks>(&self, p: &P, frames: &FrameTable<'_>, out: &mut [FrameNumber]) -> usize {
        let mut count = 0;
        self.chain.cut_back(p, frames, |n| {
            let room = count < out.len();
            if room {
                out[count] = n;
                count += 1;
            }
            room
        });
        if count > 0 {
            self.len.set(p, self.len.get(p) - count as u64);
        }
        count
    }

    /// Puts a frame at the old end.
    pub fn push_back<P: Hooks>(&self, p: &P, frames: &FrameTable<'_>, n: FrameNumber) {
        self.chain.push_back(p, frames, n);
        self.len.set(p, self.len.get(p) + 1);
    }

    /// Puts frames at the new end, the oldest first.
    pub fn join_front<P: Hooks>(&self, p: &P, frames: &FrameTable<'_>, new: &[FrameNumber]) {
        if !new.is_empty() {
            self.chain.join_front(p, frames, new);
            self.len.set(p, self.len.get(p) + new.len() as u64);
        }
    }
}
