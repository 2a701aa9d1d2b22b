//! What a thread has to wait for, so that threads which depend on each other replay in the recorded order.
//!
//! Every wait is for something that stands earlier in the recording, so waits never form a circle.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::plan::Step;

/// A place in the life of a thread: it has done so many of its steps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Done {
    pub thread: u32,
    pub steps: u32,
}

/// What threads have waited for so far.
#[derive(Default)]
pub struct Order {
    /// Up to where the first has seen the second.
    seen: BTreeMap<(u32, u32), u32>,
    /// Up to where threads are waited for, each in ascending order.
    awaited: Vec<Vec<u32>>,
}

impl Order {
    pub fn add_thread(&mut self) {
        self.awaited.push(Vec::new());
    }

    /// The thread goes on only after all of `before`: adds steps that wait, unless it has waited for as much already.
    pub fn after(&mut self, thread: u32, before: impl IntoIterator<Item = Done>, steps: &mut Vec<Step>) {
        for done in before.into_iter().filter(|done| done.thread != thread) {
            let seen = self.seen.entry((thread, done.thread)).or_default();
            if *seen < done.steps {
                *seen = done.steps;
                self.awaited[done.thread as usize].push(done.steps);
                steps.push(Step::Await(done));
            }
        }
    }

    /// Somebody may wait until a thread has done so much.
    pub fn awaited(&mut self, done: Done) {
        self.awaited[done.thread as usize].push(done.steps);
    }

    /// For each thread the numbers of steps that somebody waits for.
    pub fn finish(self) -> Vec<Vec<u32>> {
        let mut awaited = self.awaited;
        for list in &mut awaited {
            list.sort_unstable();
            list.dedup();
        }
        awaited
    }
}
