//! Parts of a workload that come one after another: tasks sleep until it is their turn.

use core::sync::atomic::{AtomicU32, Ordering};

use quietmm::platform::WaitKey;

use crate::machine::Machine;
use crate::system::System;

/// What the tasks of a turn wait for: apart from naps (numbers of tasks) and from devices.
const fn key(turn: u32) -> WaitKey {
    WaitKey::Own(1 << 63 | turn as u64)
}

/// Whose turn it is.
#[derive(Default)]
pub struct Turns {
    now: AtomicU32,
    all: AtomicU32,
}

impl Turns {
    /// One more, after all that there are.
    pub fn add(&self) -> u32 {
        self.all.fetch_add(1, Ordering::Relaxed)
    }

    /// Sleeps until it is this one's turn.
    pub fn wait<M: Machine>(&self, system: &System<'_, M>, turn: u32) {
        // Acquire: partner of the Release in `next`.
        system.mm.platform().wait(key(turn), &mut || self.now.load(Ordering::Acquire) == turn);
    }

    /// Ends this turn and begins the next. Called once a turn, by one of its tasks.
    pub fn next<M: Machine>(&self, system: &System<'_, M>) {
        let turn = self.now.fetch_add(1, Ordering::Release) + 1;
        system.mm.platform().wake(key(turn));
    }
}
