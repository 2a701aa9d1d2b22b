//! Who has to end when memory is out: the largest process. It is told, and ends by itself, as soon as it runs.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use quietmm::Error;

use super::key;
use crate::latency::Tally;
use crate::machine::Machine;
use crate::system::System;

/// How long a task waits that has picked a victim, or found one on its way out: a tick of Linux at 250 a second.
const NAP_NS: u64 = 4_000_000;

/// Not made yet.
const UNBORN: u8 = 0;
/// Lives.
const ALIVE: u8 = 1;
/// Has been picked, and has not given its memory back yet.
const DYING: u8 = 2;
/// Has given back all it had.
const ENDED: u8 = 3;

struct Life {
    state: AtomicU8,
    /// Pages of its own, which are what counts.
    pages: AtomicU32,
}

/// What is known of each process.
pub struct Victims {
    lives: Vec<Life>,
    /// How many are on their way out, and how many may be at once.
    dying: AtomicU32,
    at_once: u32,
}

impl Victims {
    /// Of so many processes that are not made yet.
    pub fn new(processes: u32, at_once: u32) -> Victims {
        let unborn = |_| Life { state: AtomicU8::new(UNBORN), pages: AtomicU32::new(0) };
        Victims { lives: (0..processes).map(unborn).collect(), dying: AtomicU32::new(0), at_once }
    }

    /// A process is made: from now on it can be picked.
    pub fn is_born(&self, process: u32) {
        self.lives[process as usize].state.store(ALIVE, Ordering::Release);
    }

    /// It has one page more.
    pub fn grows(&self, process: u32) {
        self.lives[process as usize].pages.fetch_add(1, Ordering::Relaxed);
    }

    /// It has given back all it had. Says whether it had been picked.
    pub fn has_ended(&self, process: u32) -> bool {
        // AcqRel: partner of the exchange in `condemn`, which comes before this or fails.
        let picked = self.lives[process as usize].state.swap(ENDED, Ordering::AcqRel) == DYING;
        if picked {
            self.dying.fetch_sub(1, Ordering::Release);
        }
        picked
    }

    /// Whether it has been picked and has to end.
    pub fn is_dying(&self, process: u32) -> bool {
        self.lives[process as usize].state.load(Ordering::Acquire) == DYING
    }

    /// What a process asks wherever a kernel looks for signals.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]: it has to end.
    pub fn may_go_on(&self, process: u32) -> Result<(), Error> {
        if self.is_dying(process) { Err(Error::OutOfMemory) } else { Ok(()) }
    }

    /// Memory is out, and `caller` (none if it is not one of the processes) wants some. Whether it should try again.
    pub fn pick<M: Machine>(&self, system: &System<'_, M>, caller: Option<u32>) -> bool {
        let m = system.mm.platform();
        if caller.is_some_and(|caller| self.is_dying(caller)) {
            return false;
        }
        let one_more = |dying: u32| (dying < self.at_once).then_some(dying + 1);
        if self.dying.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_more).is_ok() {
            let Some(victim) = self.condemn() else {
                // Nobody is left to end; wait for those who are about to.
                let others = self.dying.fetch_sub(1, Ordering::AcqRel) > 1;
                if others {
                    system.nap(NAP_NS);
                }
                return others;
            };
            m.tally(Tally::ProcessesKilled, 1);
            if caller == Some(victim) {
                return false;
            }
            m.wake(key(victim));
        }
        // What is on its way out gives its memory back soon.
        system.nap(NAP_NS);
        !caller.is_some_and(|caller| self.is_dying(caller))
    }

    /// Picks the largest process, the oldest among equals.
    fn condemn(&self) -> Option<u32> {
        loop {
            let all = (0..self.lives.len()).map(|n| (n as u32, &self.lives[n]));
            let alive = all.filter(|(_, life)| life.state.load(Ordering::Acquire) == ALIVE);
            // The last of the largest, from the youngest on: the oldest.
            let (victim, life) = alive.rev().max_by_key(|(_, life)| life.pages.load(Ordering::Relaxed))?;
            let picked = life.state.compare_exchange(ALIVE, DYING, Ordering::AcqRel, Ordering::Relaxed);
            // Else it has just ended by itself.
            if picked.is_ok() {
                return Some(victim);
            }
        }
    }
}
