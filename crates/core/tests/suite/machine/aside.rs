//! The work of one CPU on a stack of its own, so that it can stop in the middle of an operation while others go on, and
//! they in the middle of this one.
//!
//! A host thread lends the stack. Exactly one of all runs at any time: the others wait for their turn.

use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::Host;

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Turn {
    #[default]
    Main,
    Aside,
    /// The work on the side has ended.
    Over,
    /// The test failed: the work on the side ends where it stands.
    Abandoned,
}

/// Work on the side.
#[derive(Default)]
pub struct Aside {
    turn: Mutex<Turn>,
    changed: Condvar,
}

/// Those that are on their way.
#[derive(Default)]
pub struct Asides {
    /// In the order in which they were lent a stack.
    all: RefCell<Vec<Arc<Aside>>>,
    /// Those that run now: each was resumed by the one before.
    running: RefCell<Vec<Arc<Aside>>>,
}

impl Aside {
    fn turn(&self) -> Turn {
        *self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, turn: Turn) {
        *self.turn.lock().unwrap_or_else(PoisonError::into_inner) = turn;
        self.changed.notify_all();
    }

    fn wait_while(&self, other: Turn) -> Turn {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        *self.changed.wait_while(turn, |now| *now == other).unwrap_or_else(PoisonError::into_inner)
    }
}

struct Lent<T>(T);

// SAFETY: what is lent to the thread is used by one of the two at a time, and the mutex orders the turns.
unsafe impl<T> Send for Lent<T> {}

impl<T> Lent<T> {
    fn get(self) -> T {
        self.0
    }
}

/// Gives the turn away when its owner ends, in whatever way.
struct AtEnd<'a>(&'a Aside, Turn);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

impl Host {
    /// Does `work` as `cpu`, a part at each [`resume`](Self::resume) in `main`, and the rest when `main` has ended.
    /// `main` may put more on the side, each on a stack of its own.
    pub fn aside<R>(&self, cpu: u16, work: impl FnOnce(), main: impl FnOnce(&Arc<Aside>) -> R) -> R {
        let aside = Arc::new(Aside::default());
        let lent = Lent((self, Arc::clone(&aside), work));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (host, aside, work) = lent.get();
                let _over = AtEnd(&aside, Turn::Over);
                if aside.wait_while(Turn::Main) == Turn::Aside {
                    host.on(cpu, work);
                }
            });
            let abandoned = AtEnd(&aside, Turn::Abandoned);
            self.asides.all.borrow_mut().push(Arc::clone(&aside));
            let result = main(&aside);
            while self.resume_one(&aside) {}
            self.asides.all.borrow_mut().pop();
            std::mem::forget(abandoned);
            result
        })
    }

    /// Lets what was last put on the side go on until it stops or ends; says whether there is more of it.
    pub fn resume(&self) -> bool {
        let last = self.asides.all.borrow().last().cloned();
        self.resume_one(&last.expect("something is on the side"))
    }

    /// The same, if there is any on the side: false if there is none, or it has ended.
    pub fn resume_any(&self) -> bool {
        let last = self.asides.all.borrow().last().cloned();
        last.is_some_and(|aside| {
            aside.turn() == Turn::Main && {
                self.resume_one(&aside);
                true
            }
        })
    }

    /// The same, for this one.
    pub fn resume_one(&self, aside: &Arc<Aside>) -> bool {
        match aside.turn() {
            Turn::Main => {}
            Turn::Over => return false,
            turn => panic!("it cannot go on: {turn:?}"),
        }
        let cpu = self.current.get();
        self.asides.running.borrow_mut().push(Arc::clone(aside));
        aside.set(Turn::Aside);
        let now = aside.wait_while(Turn::Aside);
        self.asides.running.borrow_mut().pop();
        self.current.set(cpu);
        now == Turn::Main
    }

    /// In the work on the side: stops here until it is resumed.
    pub fn stop(&self) {
        let aside = self.asides.running.borrow().last().cloned().expect("only work on the side can stop");
        let cpu = self.current.get();
        aside.set(Turn::Main);
        assert_eq!(aside.wait_while(Turn::Main), Turn::Aside, "the test ended meanwhile");
        self.current.set(cpu);
    }

    /// Whether work on the side is what runs now.
    pub fn is_aside(&self) -> bool {
        !self.asides.running.borrow().is_empty()
    }
}
