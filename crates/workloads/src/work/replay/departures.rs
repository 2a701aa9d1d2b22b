//! When threads left their CPUs: a recording says it where they come back.

use alloc::vec::Vec;

use crate::trace::Recording;
use crate::trace::recording::{Event, What};

/// A thread leaves its CPU.
pub(super) struct Departure {
    pub at: u64,
    pub thread: u32,
    /// What it ran since its event before.
    pub ran: u64,
    /// Until when it is away, and its event that says so, among all.
    pub until: u64,
    pub back: usize,
}

/// All of them, in the order of time: the recording has each where the thread comes back.
pub(super) fn departures(recording: &Recording<'_>) -> Vec<Departure> {
    let mut departures: Vec<Departure> = Vec::new();
    // Of each thread its last event, and which departure that was about.
    let mut before: Vec<(u64, Option<usize>)> = Vec::new();
    for (back, Event { at, thread, ran, what, .. }) in recording.events().enumerate() {
        let mut about = None;
        match what {
            What::Start { .. } => before.push((at, None)),
            What::Shootdown { .. } | What::Lost { .. } => continue,
            What::Sleep { .. } => {
                let left = before[thread as usize].0.saturating_add(ran).min(at);
                about = Some(departures.len());
                departures.push(Departure { at: left, thread, ran, until: at, back });
            }
            _ => {
                // Somebody else had its CPU during the call, which the recording says at the call's end: it did not wait for so long.
                if let (last, Some(nth)) = before[thread as usize]
                    && last == at
                {
                    departures[nth].until = departures[nth].at.max(at.saturating_sub(what.took()));
                }
            }
        }
        before[thread as usize] = (at, about);
    }
    departures.sort_by_key(|departure| departure.at);
    departures
}
