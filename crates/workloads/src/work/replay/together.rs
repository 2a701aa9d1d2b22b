//! Which calls of a recording were under way together.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use quietmm::Advice;

use super::advice::advice;
use crate::trace::Recording;
use crate::trace::recording::{Event, Spaces, What};

/// What a call does to whoever else is under way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It may take something out.
    Takes,
    /// It may, and has the mappings alone.
    Changes,
    Other,
}

/// A call: the number of its event, its space, from when until when.
struct Under {
    nth: usize,
    space: u32,
    began: u64,
    ended: u64,
    kind: Kind,
}

/// Calls by the numbers of their events.
pub(super) struct Together {
    /// Those that end while another one of their space is under way, and may take something out. Of two that change mappings one waits for the other
    /// (`mmap_lock`), and has not begun to take anything out when the other ends.
    pub nested: BTreeSet<usize>,
    /// Those of which no other one of their space was under way meanwhile: none has waited for another.
    pub alone: BTreeSet<usize>,
}

impl Together {
    pub(super) fn of(recording: &Recording<'_>) -> Together {
        let mut calls = calls(recording);
        let nested = nested(&calls);
        calls.sort_unstable_by_key(|call| (call.space, call.began));
        Together { nested, alone: alone(&calls) }
    }
}

/// All that say how long they took, in the order of their ends.
fn calls(recording: &Recording<'_>) -> Vec<Under> {
    let (mut calls, mut spaces) = (Vec::new(), Spaces::default());
    for (nth, event) in recording.events().enumerate() {
        let space = spaces.see(&event);
        let Event { at, what, .. } = event;
        let kind = match what {
            What::Unmap { .. } | What::Protect { .. } => Kind::Changes,
            What::Advise { advice: number, .. }
                if matches!(advice(number), Some(Advice::Drop | Advice::Cold)) =>
            {
                Kind::Takes
            }
            What::Map { .. } | What::Move { .. } | What::Advise { .. } => Kind::Other,
            _ => continue,
        };
        calls.push(Under { nth, space, began: at.saturating_sub(what.took()), ended: at, kind });
    }
    calls
}

/// [`Together::nested`], of calls in the order of their ends.
fn nested(calls: &[Under]) -> BTreeSet<usize> {
    // When those behind began at the earliest, of each space: advice, and changes of mappings.
    let mut earliest: BTreeMap<u32, [u64; 2]> = BTreeMap::new();
    let mut nested = BTreeSet::new();
    for call in calls.iter().rev().filter(|call| call.kind != Kind::Other) {
        let changes = call.kind == Kind::Changes;
        let others = earliest.entry(call.space).or_insert([u64::MAX; 2]);
        if others[0] < call.ended || (others[1] < call.ended && !changes) {
            nested.insert(call.nth);
        }
        let own = &mut others[usize::from(changes)];
        *own = call.began.min(*own);
    }
    nested
}

/// [`Together::alone`], of calls by spaces, in the order of their beginnings.
fn alone(calls: &[Under]) -> BTreeSet<usize> {
    let mut alone = BTreeSet::new();
    // The space, until when calls of it were under way, and the last of them.
    let mut before: Option<(u32, u64, usize)> = None;
    for call in calls {
        let until = match before {
            Some((space, until, other)) if space == call.space && call.began < until => {
                alone.remove(&other);
                until.max(call.ended)
            }
            _ => {
                alone.insert(call.nth);
                call.ended
            }
        };
        before = Some((call.space, until, call.nth));
    }
    alone
}
