//! Which calls of a recording were under way together.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use quietmm::Advice;

use super::advice::advice;
use crate::trace::Recording;
use crate::trace::recording::{Event, What};

/// Calls that end while another one of their space is under way, each by the number of its event: those that may take something out. Of two that change mappings
/// one waits for the other (`mmap_lock`), and has not begun to take anything out when the other ends.
pub(super) fn nested(recording: &Recording<'_>) -> BTreeSet<usize> {
    let thread_space = |of: &BTreeMap<u32, u32>, thread| of.get(&thread).copied().unwrap_or(0);
    let (mut calls, mut space_of, mut spaces) = (Vec::new(), BTreeMap::new(), 0);
    for (nth, Event { at, thread, what, .. }) in recording.events().enumerate() {
        match what {
            What::Start { by, shares: true, .. } if by != thread => {
                let space = thread_space(&space_of, by);
                space_of.insert(thread, space);
            }
            What::Start { .. } | What::Exec(_) => {
                spaces += 1;
                space_of.insert(thread, spaces);
            }
            What::Unmap { call, .. } | What::Protect { call, .. } => {
                calls.push((nth, thread_space(&space_of, thread), at.saturating_sub(call.took), at, true));
            }
            What::Advise { advice: number, call, .. }
                if matches!(advice(number), Some(Advice::Drop | Advice::Cold)) =>
            {
                calls.push((nth, thread_space(&space_of, thread), at.saturating_sub(call.took), at, false));
            }
            _ => {}
        }
    }
    // When those behind began at the earliest, of each space: advice, and changes of mappings.
    let mut earliest: BTreeMap<u32, [u64; 2]> = BTreeMap::new();
    let mut nested = BTreeSet::new();
    for (nth, space, began, ended, changes) in calls.into_iter().rev() {
        let others = earliest.entry(space).or_insert([u64::MAX; 2]);
        if others[0] < ended || (others[1] < ended && !changes) {
            nested.insert(nth);
        }
        let own = &mut others[usize::from(changes)];
        *own = began.min(*own);
    }
    nested
}
