//! Reads and writes that are asked for, and heard of later (`io_submit`).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::sync::Spin;

/// What came of one: what was said with it, where it was, and what the call would have answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    pub data: u64,
    pub at: u64,
    pub answer: i64,
}

/// Those that belong together. Each is done when it is asked for; what came of it waits here.
pub struct Context {
    /// As many as may be asked for and not be heard of.
    pub most: usize,
    done: Spin<VecDeque<Event>>,
}

impl Context {
    pub fn new(most: usize) -> Context {
        Context { most, done: Spin::default() }
    }

    /// Whether another one may be asked for.
    pub fn has_room(&self) -> bool {
        self.done.with(|done| done.len() < self.most)
    }

    pub fn put(&self, event: Event) {
        self.done.with(|done| done.push_back(event));
    }

    /// Takes out up to so many, in their order.
    pub fn take(&self, most: usize) -> Vec<Event> {
        self.done.with(|done| {
            let count = most.min(done.len());
            done.drain(..count).collect()
        })
    }
}
