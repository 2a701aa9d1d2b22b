//! How long the core makes others wait, in instructions: with interrupts off, with each spin lock held, and from one point to give way
//! to the next. For `test=stretches`, which runs where instructions are the clock, on one CPU, while the others stand still.
//!
//! What is spent in here is not counted: each hook reads the clock as it begins and as it ends. The call of a hook is, some ten instructions.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use quietmm::Scope;

use crate::lock::Lock;
use crate::{clock, cpu, line};

/// The CPU that is watched.
const WATCHED: u32 = 0;
/// Names of what is no lock.
const INTERRUPTS_OFF: &str = "interrupts off";
const NO_POINT: &str = "no point to give way";

struct Held {
    lock: usize,
    name: &'static str,
    since: u64,
}

struct Longest {
    name: &'static str,
    instructions: u64,
    during: &'static str,
}

struct Watch {
    /// What is done at this moment.
    during: &'static str,
    /// Instructions that were spent here, which are nobody's.
    own: u64,
    deaf: Option<u64>,
    point: Option<u64>,
    held: Vec<Held>,
    longest: Vec<Longest>,
}

static OPEN: AtomicBool = AtomicBool::new(false);
static WATCH: Lock<Watch> =
    Lock::new(Watch { during: "", own: 0, deaf: None, point: None, held: Vec::new(), longest: Vec::new() });

impl Watch {
    fn ends(&mut self, name: &'static str, since: u64, now: u64) {
        let (instructions, during) = (now - since, self.during);
        match self.longest.iter_mut().find(|longest| longest.name == name) {
            Some(longest) if longest.instructions >= instructions => {}
            Some(longest) => *longest = Longest { name, instructions, during },
            None => self.longest.push(Longest { name, instructions, during }),
        }
    }
}

/// `work` hears what time it is, without what was spent here.
#[inline]
fn watched(work: impl FnOnce(&mut Watch, u64)) {
    if OPEN.load(Ordering::Relaxed) && cpu::number() == WATCHED {
        let from = clock::now();
        WATCH.with(|watch| {
            work(watch, from - watch.own);
            watch.own += clock::now() - from;
        });
    }
}

/// What `work` does is watched, by this name.
pub fn of<R>(during: &'static str, work: impl FnOnce() -> R) -> R {
    WATCH.with(|watch| {
        watch.during = during;
        // None of these allocates while it is watched.
        watch.held.reserve(16);
        watch.longest.reserve(Scope::ALL.len() + 2);
    });
    OPEN.store(true, Ordering::Relaxed);
    goes_on();
    let result = work();
    gives_way();
    OPEN.store(false, Ordering::Relaxed);
    result
}

/// The core turns interrupts off.
pub fn deaf() {
    watched(|watch, now| watch.deaf = Some(now));
}

/// And on again.
pub fn hears() {
    watched(|watch, now| {
        if let Some(since) = watch.deaf.take() {
            watch.ends(INTERRUPTS_OFF, since, now);
        }
    });
}

/// The core takes a spin lock.
pub fn locked(lock: *const u8, scope: Scope) {
    watched(|watch, since| watch.held.push(Held { lock: lock.addr(), name: scope.name(), since }));
}

/// And lets go of it.
pub fn unlocked(lock: *const u8) {
    watched(|watch, now| {
        if let Some(place) = watch.held.iter().position(|held| held.lock == lock.addr()) {
            let held = watch.held.swap_remove(place);
            watch.ends(held.name, held.since, now);
        }
    });
}

/// Others may run, or a device works, until this is dropped.
pub struct Given(());

/// From here on.
pub fn given() -> Given {
    gives_way();
    Given(())
}

impl Drop for Given {
    fn drop(&mut self) {
        goes_on();
    }
}

fn gives_way() {
    watched(|watch, now| {
        if let Some(since) = watch.point.take() {
            watch.ends(NO_POINT, since, now);
        }
    });
}

fn goes_on() {
    watched(|watch, now| watch.point = Some(now));
}

/// Prints the longest of each.
pub fn print() {
    WATCH.with(|watch| {
        for Longest { name, instructions, during } in &watch.longest {
            line!("{{\"stretch\":\"{name}\",\"instructions\":{instructions},\"during\":\"{during}\"}}");
        }
    });
}
