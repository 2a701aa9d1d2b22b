//! The work of one CPU on a stack of its own, so that it can stop in the middle of an operation while others go on.
//!
//! A host thread lends the stack. Exactly one of the two runs at any time: the other waits for its turn.

use std::cell::Cell;
use std::sync::{Condvar, Mutex, PoisonError};

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

#[derive(Default)]
pub struct Aside {
    turn: Mutex<Turn>,
    changed: Condvar,
    /// Whether the work on the side runs now.
    running: Cell<bool>,
}

impl Aside {
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
    pub fn aside<R>(&self, cpu: u16, work: impl FnOnce(), main: impl FnOnce() -> R) -> R {
        self.aside.set(Turn::Main);
        let lent = Lent((self, work));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (host, work) = lent.get();
                let _over = AtEnd(&host.aside, Turn::Over);
                if host.aside.wait_while(Turn::Main) == Turn::Aside {
                    host.on(cpu, work);
                }
            });
            let abandoned = AtEnd(&self.aside, Turn::Abandoned);
            let result = main();
            while self.resume() {}
            std::mem::forget(abandoned);
            result
        })
    }

    /// Lets the work on the side go on until it stops or ends; says whether there is more of it.
    pub fn resume(&self) -> bool {
        if *self.aside.turn.lock().unwrap_or_else(PoisonError::into_inner) == Turn::Over {
            return false;
        }
        let cpu = self.current.get();
        self.aside.running.set(true);
        self.aside.set(Turn::Aside);
        let now = self.aside.wait_while(Turn::Aside);
        self.aside.running.set(false);
        self.current.set(cpu);
        now == Turn::Main
    }

    /// In the work on the side: stops here until it is resumed.
    pub fn stop(&self) {
        assert!(self.is_aside(), "only the work on the side can stop");
        let cpu = self.current.get();
        self.aside.set(Turn::Main);
        assert_eq!(self.aside.wait_while(Turn::Main), Turn::Aside, "the test ended meanwhile");
        self.current.set(cpu);
    }

    /// Whether the work on the side is what runs now.
    pub fn is_aside(&self) -> bool {
        self.aside.running.get()
    }
}
