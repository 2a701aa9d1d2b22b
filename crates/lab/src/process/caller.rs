//! Whoever runs commands inside another program, and wants to stop them and to know how far they are. The command itself has no such
//! caller: it has Ctrl-C and a bar.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One call from another program: its clones are the same call.
#[derive(Clone, Debug, Default)]
pub struct Caller(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    done: AtomicU64,
    all: AtomicU64,
}

thread_local! {
    /// For whom this thread works.
    static CALLER: RefCell<Option<Caller>> = const { RefCell::new(None) };
}

impl Caller {
    /// Asks the call to stop, from any thread: as the first Ctrl-C does, so what has finished is kept.
    pub fn stop(&self) {
        // Relaxed everywhere here: the flag carries no data and is polled, and the figures are to look at.
        self.0.stop.store(true, Ordering::Relaxed);
    }

    /// How far it is, in thousandths of runs, and how many of these there are.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        (self.0.done.load(Ordering::Relaxed), self.0.all.load(Ordering::Relaxed))
    }

    pub(crate) fn begins(&self, all: u64) {
        self.0.done.store(0, Ordering::Relaxed);
        self.0.all.store(all, Ordering::Relaxed);
    }

    pub(crate) fn advances(&self, by: u64) {
        self.0.done.fetch_add(by, Ordering::Relaxed);
    }
}

/// For whom this thread works, if for another program.
pub fn current() -> Option<Caller> {
    CALLER.with_borrow(Clone::clone)
}

/// Whether its caller wants it to stop; `None` without a caller.
pub fn stopped() -> Option<bool> {
    CALLER.with_borrow(|caller| caller.as_ref().map(|caller| caller.0.stop.load(Ordering::Relaxed)))
}

/// Works for this caller. Threads that are begun inside have to be told: see [`jobs`](super::jobs).
pub fn serve<T>(caller: Option<Caller>, work: impl FnOnce() -> T) -> T {
    struct Back(Option<Caller>);
    impl Drop for Back {
        fn drop(&mut self) {
            CALLER.replace(self.0.take());
        }
    }
    let _back = Back(CALLER.replace(caller));
    work()
}
