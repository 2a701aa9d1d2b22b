//! What a script can do: call the core, and run a program.

mod cpu;
mod kernel;
mod memory;
mod pins;
mod ranges;
pub mod swap;
pub mod vmap;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use quietmm::{Error, FileId, Frames, Leaving, Offline, PageNumber, PageRange, Pins, SpaceId};

use crate::machine::{Machine, Mm, What};
use crate::violation::Violation;

/// What the scripts of a scenario share: filled by the part before, used by all.
#[derive(Default)]
pub struct World {
    /// Spaces, in the order in which they were made.
    pub spaces: RefCell<Vec<SpaceId>>,
    /// Files, likewise.
    pub files: RefCell<Vec<FileId>>,
    /// Frames that the scenario holds.
    pub frames: RefCell<Vec<Frames>>,
    /// A block of memory on its way offline.
    pub leaving: Cell<Option<Leaving>>,
    /// Blocks of memory that have come, and are not used yet.
    pub offline: RefCell<Vec<Offline>>,
    /// What devices use.
    pub pins: RefCell<Vec<Pins>>,
    /// Kernel ranges.
    pub ranges: RefCell<Vec<PageRange>>,
    /// Numbers, for whatever a scenario wants to remember.
    pub numbers: [Cell<u64>; 8],
    /// What each CPU wrote last, by space and page.
    ledger: RefCell<BTreeMap<(SpaceId, u64, u16), u64>>,
    written: Cell<u64>,
}

/// A CPU, as its script sees it.
pub struct Task<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) mm: &'a Mm<'a>,
    /// What the scripts share.
    pub world: &'a World,
    pub(crate) id: u16,
}

impl<'a> Task<'a> {
    pub(crate) fn new(machine: &'a Machine, mm: &'a Mm<'a>, world: &'a World, id: u16) -> Self {
        Task { machine, mm, world, id }
    }

    /// The CPU's number.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// The core, for questions. What is to be explored goes through [`call`](Self::call).
    pub fn mm(&self) -> &'a Mm<'a> {
        self.mm
    }

    /// Does the same as another CPU: only before the scripts begin, and after they have ended.
    pub fn as_cpu<R>(&self, id: u16, work: impl FnOnce(&Task<'a>) -> R) -> R {
        assert!(!self.machine.running.get(), "scripts run on their own CPUs");
        let before = self.machine.current.replace(id);
        let result = work(&Task { id, ..*self });
        self.machine.current.set(before);
        result
    }

    /// Calls the core. Meanwhile no program runs on this CPU; afterwards it may use all that the CPU has cached.
    pub fn call<R>(
        &self,
        name: &'static str,
        work: impl FnOnce(&Mm<'a>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let cpu = self.machine.cpu();
        self.machine.note(|| What::Call(name));
        cpu.depth.set(cpu.depth.get() + 1);
        let result = work(self.mm);
        cpu.depth.set(cpu.depth.get() - 1);
        self.machine.note(|| What::Return(name, result.is_ok()));
        if cpu.in_user_mode() {
            self.machine.judge_user(self.id);
        }
        result
    }

    /// The same for what cannot fail here: an error is a violation.
    pub fn must<R>(&self, name: &'static str, work: impl FnOnce(&Mm<'a>) -> Result<R, Error>) -> R {
        match self.call(name, work) {
            Ok(value) => value,
            Err(error) => self.fail("promise", format!("{name} failed: {error}")),
        }
    }

    /// Something does not hold that the scenario promises.
    pub fn fail(&self, invariant: &'static str, what: String) -> ! {
        self.machine.fail(Violation::new(invariant, self.id, what))
    }

    /// It does not hold, unless it does.
    pub fn promise(&self, holds: bool, what: &str) {
        if !holds {
            self.fail("promise", what.to_string());
        }
    }

    /// Says something for the timeline.
    pub fn say(&self, what: &'static str) {
        self.machine.note(|| What::Says(what));
    }

    /// Every CPU puts what it has on its way where it belongs. After the scripts.
    pub fn settle(&self) {
        for id in 0..self.machine.setup().cpus {
            if self.machine.cpus[usize::from(id)].online.get() {
                self.as_cpu(id, |task| {
                    task.mm.drain_lru_batch();
                    task.mm.frames().drain_here();
                });
            }
        }
    }

    /// Reads again all that was ever written and not given up, and has the core look at itself.
    pub(crate) fn audit(&self) {
        let wanted: Vec<_> = self.world.ledger.borrow().iter().map(|(&key, &value)| (key, value)).collect();
        for ((space, page, lane), value) in wanted {
            self.as_cpu(lane, |task| {
                task.must("switch_to", |mm| mm.space(space).switch_to());
                task.go_back();
                let number = task.world.spaces.borrow().iter().position(|&known| known == space);
                let Some(number) = number else { return };
                match task.peek(number, page) {
                    Ok(found) if found == value => {}
                    Ok(found) => task.fail(
                        "content",
                        format!("page {page:#x} holds {found} of CPU {lane}, who wrote {value}"),
                    ),
                    Err(error) => task.fail(
                        "content",
                        format!("page {page:#x}, which CPU {lane} wrote, cannot be read: {error}"),
                    ),
                }
            });
        }
        self.settle();
        if let Some(broken) = self.mm.validate().broken {
            self.fail("audit", broken.to_string());
        }
    }
}

/// Pages from one on.
pub fn range(page: u64, pages: u64) -> PageRange {
    PageRange::new(PageNumber(page), pages)
}
