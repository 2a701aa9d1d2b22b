//! What a process has said of itself, which is kept for whoever asks; little depends on it here.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// How late a timer may ring, in nanoseconds, unless something else is said.
const USUAL_SLACK: u64 = 50_000;

/// See above.
pub(crate) struct Said {
    /// Others may look into it (`PR_SET_DUMPABLE`).
    pub open: AtomicBool,
    /// How late its timers may ring, and what that is where nothing is said: its parent's.
    slack: AtomicU64,
    usual_slack: AtomicU64,
    /// It is the parent of all below it whose parents have ended (`PR_SET_CHILD_SUBREAPER`).
    pub adopts: AtomicBool,
    /// No program that it runs may do more than it (`PR_SET_NO_NEW_PRIVS`).
    pub no_gain: AtomicBool,
    /// It wants no large pages.
    pub small_pages: AtomicBool,
    /// How its requests to devices are to be served: a class, and how much.
    pub io: AtomicU32,
}

impl Default for Said {
    fn default() -> Said {
        Said {
            open: AtomicBool::new(true),
            slack: AtomicU64::new(USUAL_SLACK),
            usual_slack: AtomicU64::new(USUAL_SLACK),
            adopts: AtomicBool::default(),
            no_gain: AtomicBool::default(),
            small_pages: AtomicBool::default(),
            io: AtomicU32::default(),
        }
    }
}

impl Said {
    /// What a child begins with.
    pub fn of_child(&self) -> Said {
        let said = Said::default();
        for (new, old) in
            [(&said.open, &self.open), (&said.no_gain, &self.no_gain), (&said.small_pages, &self.small_pages)]
        {
            new.store(old.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        said.slack.store(self.slack(), Ordering::Relaxed);
        said.usual_slack.store(self.slack(), Ordering::Relaxed);
        said.io.store(self.io.load(Ordering::Relaxed), Ordering::Relaxed);
        said
    }

    pub fn slack(&self) -> u64 {
        self.slack.load(Ordering::Relaxed)
    }

    /// Sets it; 0 is what is usual.
    pub fn set_slack(&self, to: u64) {
        let usual = self.usual_slack.load(Ordering::Relaxed);
        self.slack.store(if to as i64 <= 0 { usual } else { to }, Ordering::Relaxed);
    }
}
