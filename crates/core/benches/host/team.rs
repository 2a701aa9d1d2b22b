//! Threads that are measured together.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The least part of its time that a thread must have had a core.
pub const ON_CORE: f64 = 0.97;

/// Threads that begin together and stay at work until the last has done its part.
pub struct Team {
    threads: u32,
    begun: AtomicU32,
    done: AtomicU32,
    pub left: AtomicU32,
}

impl Team {
    pub fn new(threads: u16) -> Team {
        let zero = || AtomicU32::new(0);
        Team { threads: threads.into(), begun: zero(), done: zero(), left: zero() }
    }

    /// Waits for the others at `place`, and does something meanwhile. They may meet there again and again.
    pub fn meet(&self, place: &AtomicU32, mut meanwhile: impl FnMut()) {
        let all = (place.fetch_add(1, Ordering::AcqRel) / self.threads + 1) * self.threads;
        while place.load(Ordering::Acquire) < all {
            meanwhile();
        }
    }

    /// How long so many steps take while the others are at theirs.
    pub fn time(&self, steps: u64, idle: impl Fn(), mut step: impl FnMut()) -> Took {
        self.meet(&self.begun, idle);
        let (start, on_core) = (Instant::now(), time_on_core());
        for _ in 0..steps {
            step();
        }
        let passed = start.elapsed();
        let on_core = time_on_core().zip(on_core).map_or(passed, |(after, before)| after - before);
        self.meet(&self.done, step);
        Took { on_core, passed }
    }
}

/// How long a thread took.
pub struct Took {
    pub on_core: Duration,
    pub passed: Duration,
}

/// How long this thread has had a core, if the host says so (Linux): the time that others have it is not ours.
fn time_on_core() -> Option<Duration> {
    // The account is brought up to date where the thread could lose its core.
    std::thread::yield_now();
    let account = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    account.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// A stream of numbers that will do to pick by (xorshift).
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * n as u128) >> 64) as usize
    }
}
