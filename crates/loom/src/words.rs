//! The words that CPUs share, as `loom` has them, and orderings that are taken out.
//!
//! A word is `loom`'s from the first access of a CPU on. `loom` wants to see it made before any of them starts, so a first
//! round finds out which there are: a word that is not known yet is noted and played in memory, the round is thrown away, and
//! the next one begins with it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::panic::Location;
use std::rc::Rc;

use crate::machine::is_on_own_stack;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use quietmm::play_step;
use quietmm::step::{Shared, Step};

/// Steps that are kept of an execution.
const LAST: usize = 400;

/// One of `loom`'s words.
enum Word {
    Narrow(AtomicU32),
    Wide(AtomicU64),
}

/// A place in the source where an ordering or a fence stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// The file, from the root of the repository on.
    pub file: &'static str,
    /// Its line, counted from 1.
    pub line: u32,
}

impl Place {
    /// Where `code` stands: in the core's file of this name, once; or once from the only line on that has `from`.
    ///
    /// # Panics
    /// If it does not stand there, or `from` stands there more than once: then the control must be written anew.
    pub fn of(name: &str, from: &str, code: &str) -> Place {
        let file = format!("crates/core/src/{name}");
        let path = format!("{}/../core/src/{name}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let at = |with: &str| {
            let lines = (1..).zip(text.lines()).filter(|(_, line)| line.contains(with));
            lines.map(|(n, _)| n).collect::<Vec<u32>>()
        };
        let [from] = at(from)[..] else {
            panic!("{name} has {} lines with {from:?}, not one", at(from).len())
        };
        let line = at(code).into_iter().find(|&line| line >= from);
        Place { file: file.leak(), line: line.unwrap_or_else(|| panic!("{name} has no {code:?} there")) }
    }

    fn is(&self, at: &Location<'_>) -> bool {
        at.line() == self.line && at.file() == self.file
    }
}

/// All words of a machine.
#[derive(Default)]
pub struct Words {
    /// The known ones, by address, and whether they are wide.
    known: RefCell<BTreeMap<usize, bool>>,
    /// Those of this execution.
    made: RefCell<BTreeMap<usize, Rc<Word>>>,
    /// Some were not known.
    found: Cell<bool>,
    /// CPUs run: words are `loom`'s.
    pub playing: Cell<bool>,
    /// Orderings that are taken out.
    without: RefCell<Vec<Place>>,
    /// Every place that orders anything, for a sweep: with what is there.
    seen: RefCell<BTreeMap<Place, &'static str>>,
    /// Steps so far that may have changed anything.
    pub writes: Cell<u64>,
    /// The last steps are kept.
    pub tells: Cell<bool>,
    told: RefCell<VecDeque<String>>,
}

impl Words {
    /// Takes these orderings and fences out from now on.
    pub fn take_out(&self, places: &[Place]) {
        *self.without.borrow_mut() = places.to_vec();
    }

    /// The places that have ordered something so far.
    pub fn places(&self) -> Vec<(Place, &'static str)> {
        self.seen.borrow().iter().map(|(place, what)| (*place, *what)).collect()
    }

    /// Whether words were met that were not known; they are from now on.
    pub fn found_new(&self) -> bool {
        self.found.replace(false)
    }

    /// The same as a question.
    pub fn meets_new(&self) -> bool {
        self.found.get()
    }

    /// Hands the known words to `loom`, with what memory holds. Before the CPUs of an execution start.
    ///
    /// # Safety
    /// Memory at the known words is mapped, and nobody else uses it.
    pub unsafe fn make(&self) {
        let make = |(&at, &wide): (&usize, &bool)| {
            // SAFETY: the caller's promise; the address was a word's.
            let word = unsafe {
                if wide {
                    Word::Wide(AtomicU64::new(*std::ptr::with_exposed_provenance(at)))
                } else {
                    Word::Narrow(AtomicU32::new(*std::ptr::with_exposed_provenance(at)))
                }
            };
            (at, Rc::new(word))
        };
        *self.made.borrow_mut() = self.known.borrow().iter().map(make).collect();
        self.playing.set(true);
    }

    fn is_out(&self, at: &'static Location<'static>, what: &'static str) -> bool {
        let place = Place { file: at.file(), line: at.line() };
        self.seen.borrow_mut().entry(place).or_insert(what);
        self.without.borrow().iter().any(|place| place.is(at))
    }

    /// Plays a step.
    #[track_caller]
    pub fn step(&self, shared: Shared<'_>, step: Step, order: Ordering) -> Result<u64, u64> {
        if !self.playing.get() || std::thread::panicking() {
            return shared.play(step, order);
        }
        let at = shared.at().expose_provenance();
        // A local value, which is nobody else's. By its address nothing is kept of it: soon that is something else's, or nobody's.
        if is_on_own_stack(at) {
            return shared.play(step, order);
        }
        let word = self.made.borrow().get(&at).cloned();
        let Some(word) = word else {
            self.known.borrow_mut().insert(at, matches!(shared, Shared::Wide(_)));
            self.found.set(true);
            return shared.play(step, order);
        };
        let order = match order {
            Ordering::Relaxed => order,
            _ if self.is_out(Location::caller(), name(order)) => Ordering::Relaxed,
            // Where it must be more than this, a full fence says so.
            Ordering::SeqCst => match step {
                Step::Load => Ordering::Acquire,
                Step::Store(_) => Ordering::Release,
                _ => Ordering::AcqRel,
            },
            order => order,
        };
        if step != Step::Load {
            self.writes.set(self.writes.get() + 1);
        }
        let result = match &*word {
            Word::Narrow(word) => play_step!(word, step, order, u32),
            Word::Wide(word) => play_step!(word, step, order, u64),
        };
        let caller = Location::caller();
        self.note(|| format!("{} {at:#x} {step:x?} {order:?} -> {result:x?}", caller));
        result
    }

    /// Notes what a CPU does, for whoever asked to see it.
    pub fn note(&self, what: impl FnOnce() -> String) {
        if self.tells.get() && self.playing.get() {
            let mut told = self.told.borrow_mut();
            told.push_back(format!("CPU {} {}", crate::machine::this_cpu(), what()));
            if told.len() > LAST {
                told.pop_front();
            }
        }
    }

    /// The last steps of an execution.
    pub fn told(&self) -> Vec<String> {
        self.told.borrow_mut().drain(..).collect()
    }

    /// A full fence.
    #[track_caller]
    pub fn fence(&self) {
        let plays = self.playing.get() && !std::thread::panicking();
        if plays && !self.is_out(Location::caller(), "fence") {
            let caller = Location::caller();
            self.note(|| format!("{caller} fence"));
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
    }

    /// Fills a piece of memory with zeros, the words in it too.
    ///
    /// # Safety
    /// The caller owns `at..at + len`.
    pub unsafe fn clear(&self, at: *mut u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { at.write_bytes(0, len) };
        if self.playing.get() {
            let from = at.expose_provenance();
            let inside: Vec<_> =
                self.made.borrow().range(from..from + len).map(|(_, word)| word.clone()).collect();
            for word in inside {
                match &*word {
                    Word::Narrow(word) => word.store(0, Ordering::Relaxed),
                    Word::Wide(word) => word.store(0, Ordering::Relaxed),
                }
            }
        }
    }
}

fn name(order: Ordering) -> &'static str {
    match order {
        Ordering::Acquire => "Acquire",
        Ordering::Release => "Release",
        Ordering::AcqRel => "AcqRel",
        Ordering::SeqCst => "SeqCst",
        _ => "Relaxed",
    }
}
