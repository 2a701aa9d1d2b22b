//! Locks for what programs share: one for a few steps, and one for whoever may wait inside.

use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use quietmm::Platform;
use quietmm::platform::WaitKey;

/// A `T` that one CPU at a time may touch, for a few steps: no call of the core inside, and no wait.
///
/// Interrupts stay as they are. No handler takes one, and no task is switched inside the kernel, so the holder goes on.
pub struct Spin<T> {
    held: AtomicBool,
    data: UnsafeCell<T>,
}

// SAFETY: `with` hands out the data to one CPU at a time.
unsafe impl<T: Send> Sync for Spin<T> {}

impl<T> Spin<T> {
    /// Unlocked.
    pub const fn new(data: T) -> Self {
        Spin { held: AtomicBool::new(false), data: UnsafeCell::new(data) }
    }

    /// What it held.
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }

    /// Works on the data. `work` must not come back here.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        // Acquire: partner of the Release below.
        while self.held.swap(true, Ordering::Acquire) {
            while self.held.load(Ordering::Relaxed) {
                spin_loop();
            }
        }
        // SAFETY: the lock is held.
        let result = work(unsafe { &mut *self.data.get() });
        // Release: partner of the Acquire above.
        self.held.store(false, Ordering::Release);
        result
    }
}

impl<T: Default> Default for Spin<T> {
    fn default() -> Self {
        Spin::new(T::default())
    }
}

/// A `T` that one task at a time may touch, also while it waits.
pub struct Mutex<T> {
    held: AtomicBool,
    waiting: AtomicU32,
    data: UnsafeCell<T>,
}

// SAFETY: `with` hands out the data to one task at a time.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// The key of whoever waits for this object.
pub fn key_of<T>(object: &T) -> WaitKey {
    WaitKey::Own(core::ptr::from_ref(object).addr() as u64)
}

impl<T> Mutex<T> {
    /// Unlocked.
    pub const fn new(data: T) -> Self {
        Mutex { held: AtomicBool::new(false), waiting: AtomicU32::new(0), data: UnsafeCell::new(data) }
    }

    /// Works on the data. `work` must not come back here.
    pub fn with<P: Platform, R>(&self, p: &P, work: impl FnOnce(&mut T) -> R) -> R {
        let take = || !self.held.swap(true, Ordering::SeqCst);
        if !take() {
            // SeqCst, all four: whoever lets go sees us waiting, or we find it free.
            self.waiting.fetch_add(1, Ordering::SeqCst);
            p.wait(key_of(self), &mut || take());
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        self.work(p, work)
    }

    /// The same if nobody does now.
    pub fn try_with<P: Platform, R>(&self, p: &P, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        (!self.held.swap(true, Ordering::SeqCst)).then(|| self.work(p, work))
    }

    /// Works on the data, of which the caller has the lock, and lets go of it.
    fn work<P: Platform, R>(&self, p: &P, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the lock is held.
        let result = work(unsafe { &mut *self.data.get() });
        self.held.store(false, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            p.wake(key_of(self));
        }
        result
    }
}
