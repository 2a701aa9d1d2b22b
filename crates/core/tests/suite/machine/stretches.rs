//! How long a CPU makes others wait: with a spin lock held, and with interrupts off. In touches of shared memory by this CPU, and a line for each of 64
//! bytes of a frame that it clears or copies; what it waits for is not counted.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use quietmm::profile::Scope;

use super::Host;

/// The name of what is no lock.
pub const INTERRUPTS_OFF: &str = "interrupts off";
/// Lines of a frame.
const LINES: u32 = 64;

struct Held {
    lock: *const u8,
    name: &'static str,
    since: u32,
}

#[derive(Default)]
pub struct Stretches {
    measured: Cell<bool>,
    held: RefCell<Vec<Held>>,
    /// By CPU: since when its interrupts are off.
    deaf: RefCell<BTreeMap<u16, u32>>,
    lines: Cell<u32>,
    longest: RefCell<BTreeMap<&'static str, u32>>,
}

impl Host {
    /// The longest of each kind in what `work` does.
    pub fn longest_held<R>(&self, work: impl FnOnce() -> R) -> (R, BTreeMap<&'static str, u32>) {
        self.stretches.measured.set(true);
        let result = work();
        self.stretches.measured.set(false);
        assert!(self.stretches.held.borrow().is_empty(), "a lock is held for ever");
        (result, self.stretches.longest.take())
    }

    fn work_so_far(&self) -> u32 {
        self.touches_of(self.current.get()) + self.stretches.lines.get()
    }

    fn ends(&self, name: &'static str, since: u32) {
        let longest = &mut *self.stretches.longest.borrow_mut();
        let of_name = longest.entry(name).or_default();
        *of_name = (*of_name).max(self.work_so_far() - since);
    }

    pub(super) fn stretch_locked(&self, lock: *const u8, scope: Scope) {
        if self.stretches.measured.get() {
            let since = self.work_so_far();
            self.stretches.held.borrow_mut().push(Held { lock, name: scope.name(), since });
        }
    }

    pub(super) fn stretch_unlocked(&self, lock: *const u8) {
        let place = self.stretches.held.borrow().iter().position(|held| held.lock == lock);
        if let Some(place) = place {
            let held = self.stretches.held.borrow_mut().remove(place);
            self.ends(held.name, held.since);
        }
    }

    pub(super) fn stretch_of_frame(&self) {
        self.stretches.lines.set(self.stretches.lines.get() + LINES);
    }

    pub(super) fn stretch_deaf(&self) {
        if self.stretches.measured.get() {
            self.stretches.deaf.borrow_mut().insert(self.current.get(), self.work_so_far());
        }
    }

    pub(super) fn stretch_hears(&self) {
        let since = self.stretches.deaf.borrow_mut().remove(&self.current.get());
        if let Some(since) = since.filter(|_| self.stretches.measured.get()) {
            self.ends(INTERRUPTS_OFF, since);
        }
    }
}
