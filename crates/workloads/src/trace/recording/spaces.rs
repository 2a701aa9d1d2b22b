//! Who shares a space.

use alloc::collections::BTreeMap;

use super::event::{Event, What};

/// In which space each thread is, of a recording that is looked at from its beginning.
#[derive(Default)]
pub struct Spaces {
    of: BTreeMap<u32, u32>,
    made: u32,
}

impl Spaces {
    /// Looks at the next event. Returns in which space its thread is then, by a number that is no other space's. Takes time in proportion to the logarithm of the
    /// threads so far, and memory for each.
    pub fn see(&mut self, event: &Event<'_>) -> u32 {
        let Event { thread, ref what, .. } = *event;
        match *what {
            What::Start { by, shares: true, .. } if by != thread => {
                let space = self.of.get(&by).copied().unwrap_or_default();
                self.of.insert(thread, space);
            }
            What::Start { .. } | What::Exec(_) => {
                self.made += 1;
                self.of.insert(thread, self.made);
            }
            _ => {}
        }
        self.of.get(&thread).copied().unwrap_or_default()
    }
}
