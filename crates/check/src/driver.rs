//! Who decides what happens next, and what it remembers of it.
//!
//! A schedule is the list of decisions that were *not* the ordinary one: everything else follows. The ordinary one is that
//! whoever runs goes on; that otherwise the next CPU does that can; and that interrupts arrive when nobody else can go on.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256StarStar;

use crate::act::{Act, Kind};

/// A decision that was not the ordinary one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Deviation {
    /// Which decision, counted from the start of the run.
    pub at: u32,
    /// What was decided.
    pub act: Act,
}

/// How decisions are made.
#[derive(Default)]
pub enum Strategy {
    /// As ordinary.
    #[default]
    Ordinary,
    /// As a list says, in its order.
    Follow(Vec<Deviation>),
    /// At random: one decision in so many is not the ordinary one.
    Random {
        /// Where chance comes from.
        rng: Xoshiro256StarStar,
        /// In how many.
        one_in: u32,
    },
    /// By random priorities, with a few random changes: "A Randomized Scheduler with Probabilistic Guarantees of Finding
    /// Bugs", Burckhardt and others, ASPLOS 2010.
    Priorities {
        /// Where chance comes from.
        rng: Xoshiro256StarStar,
        /// Of each act; the highest goes first.
        priority: Box<[u32; 64]>,
        /// At which decisions whoever runs becomes the last.
        changes: Vec<u32>,
        /// The next lowest priority.
        lowest: u32,
    },
}

impl Strategy {
    /// At random, with a seed.
    pub fn random(seed: u64) -> Strategy {
        let mut rng = Xoshiro256StarStar::seed_from_u64(seed);
        let one_in = 4 << (2 * (rng.next_u32() % 5));
        Strategy::Random { rng, one_in }
    }

    /// By priorities, with so many changes in a run of about so many decisions.
    pub fn priorities(seed: u64, changes: u32, decisions: u32) -> Strategy {
        let mut rng = Xoshiro256StarStar::seed_from_u64(seed);
        let mut priority = Box::new([0; 64]);
        priority.iter_mut().for_each(|one| *one = 1000 + rng.next_u32() % 1_000_000);
        let mut changes: Vec<u32> = (0..changes).map(|_| rng.next_u32() % decisions.max(1)).collect();
        changes.sort_unstable();
        Strategy::Priorities { rng, priority, changes, lowest: 999 }
    }
}

/// A decision, as it was.
#[derive(Clone, Copy, Debug)]
pub struct Decision {
    /// What could have happened.
    pub enabled: u64,
    /// What did.
    pub chosen: Act,
}

/// Something that a CPU did to what others may see.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The decision before it.
    pub decision: u32,
    /// Who: a CPU's script, or with 4 more its interrupt handler.
    pub thread: u8,
    /// To what.
    pub place: u64,
    /// Whether it changed it.
    pub write: bool,
}

/// All of a run that matters for its order.
#[derive(Default, Debug)]
pub struct Trace {
    /// Decisions in which there was a choice.
    pub decisions: Vec<Decision>,
    /// Accesses.
    pub accesses: Vec<Access>,
}

/// Makes the decisions of a run.
#[derive(Default)]
pub struct Driver {
    strategy: Strategy,
    next: usize,
    decisions: u32,
    /// What was decided differently.
    pub made: Vec<Deviation>,
    /// Decisions of the list that could not be made.
    missed: u32,
    /// What happened, if somebody asked.
    pub trace: Option<Trace>,
}

impl Driver {
    /// With this strategy.
    pub fn new(strategy: Strategy, trace: Option<Trace>) -> Driver {
        Driver { strategy, trace, ..Driver::default() }
    }

    /// Decisions so far in which there was a choice.
    pub fn decisions(&self) -> u32 {
        self.decisions
    }

    /// Decisions of a list that could not be made, or would have come after the end.
    pub fn missed(&self) -> u32 {
        let list = if let Strategy::Follow(list) = &self.strategy { list.len() } else { 0 };
        self.missed + list.saturating_sub(self.next) as u32
    }

    /// Something was done.
    #[inline]
    pub fn access(&mut self, thread: u8, place: u64, write: bool) {
        if let Some(trace) = &mut self.trace {
            let decision = self.decisions.wrapping_sub(1);
            trace.accesses.push(Access { decision, thread, place, write });
        }
    }

    /// What is to happen. `ordinary` is one of `enabled`.
    #[inline]
    pub fn decide(&mut self, enabled: u64, ordinary: Act) -> Act {
        if enabled == ordinary.bit() {
            return ordinary;
        }
        let at = self.decisions;
        self.decisions += 1;
        let act = match &mut self.strategy {
            Strategy::Ordinary => ordinary,
            Strategy::Follow(list) => match list.get(self.next) {
                Some(next) if next.at == at => {
                    self.next += 1;
                    if enabled & next.act.bit() == 0 {
                        self.missed += 1;
                        ordinary
                    } else {
                        next.act
                    }
                }
                _ => ordinary,
            },
            Strategy::Random { rng, one_in } => {
                let one_in = if enabled & Act::DEVICE_FAILS.bit() == 0 { *one_in } else { 4 };
                if rng.next_u32() % one_in == 0 { pick(rng, enabled) } else { ordinary }
            }
            Strategy::Priorities { rng, priority, changes, lowest } => {
                let of_itself =
                    Act::of_set(enabled).filter(|act| is_hardware(*act)).fold(0, |set, act| set | act.bit());
                if of_itself != 0 && rng.next_u32() % 16 == 0 {
                    pick(rng, of_itself)
                } else {
                    let cpus = enabled & !of_itself;
                    let first = |priority: &[u32; 64]| {
                        Act::of_set(cpus).max_by_key(|act| priority[act.bit().trailing_zeros() as usize])
                    };
                    while changes.first().is_some_and(|&change| change <= at) {
                        changes.remove(0);
                        if let Some(act) = first(priority) {
                            priority[act.bit().trailing_zeros() as usize] = *lowest;
                            *lowest = lowest.saturating_sub(1);
                        }
                    }
                    first(priority).unwrap_or(ordinary)
                }
            }
        };
        if act != ordinary {
            self.made.push(Deviation { at, act });
        }
        if let Some(trace) = &mut self.trace {
            trace.decisions.push(Decision { enabled, chosen: act });
        }
        act
    }
}

fn is_hardware(act: Act) -> bool {
    matches!(act.kind(), Kind::Evict(_) | Kind::Fetch(_) | Kind::FetchToWrite(_) | Kind::DeviceFails)
}

fn pick(rng: &mut Xoshiro256StarStar, set: u64) -> Act {
    let n = rng.next_u32() % set.count_ones();
    Act::of_set(set).nth(n as usize).unwrap_or(Act::END)
}
