//! The one wrapper round memory that several CPUs share, and the locks made of it.
//!
//! Every access goes through [`Platform::touch`]: the simulated machine charges the cache line there and may
//! switch to another CPU. Nothing may bypass it.
//!
//! Spin locks do not turn interrupts off, because no interrupt handler takes one: handlers touch only `ipi`
//! and `tlb`. Where a caller has them off anyway, a spinning CPU serves the flush requests that reach it
//! (INV-8, PITFALLS 14).

#[cfg(debug_assertions)]
use core::cell::Cell;
#[cfg(not(loom))]
use core::sync::atomic::fence;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::Manager;
use crate::platform::{Access, Platform};
use crate::profile::{self, Scope};

mod biased;
#[cfg(loom)]
pub mod modelled;
mod rwlock;

pub(crate) use biased::VisibleReads;
pub use biased::{BiasedRwLock, SharedGuard};
pub use rwlock::{ReadGuard, RwLock, WriteGuard};

macro_rules! word {
    ($name:ident, $atomic:ident, $int:ident, $about:literal) => {
        #[doc = $about]
        #[derive(Default)]
        #[repr(transparent)]
        pub struct $name($atomic);

        impl $name {
            /// With this value.
            pub const fn new(value: $int) -> Self {
                $name($atomic::new(value))
            }

            #[cfg(not(loom))]
            #[inline(always)]
            fn touch<P: Platform>(&self, p: &P, access: Access) -> &$atomic {
                p.touch((&raw const self.0).cast(), access);
                &self.0
            }
            /// The same word, whose content a model may have.
            #[cfg(loom)]
            fn touch<'a, P: Platform>(
                &'a self,
                p: &'a P,
                access: Access,
            ) -> modelled::Modelled<'a, P, $atomic, $int> {
                p.touch((&raw const self.0).cast(), access);
                modelled::Modelled::new(p, &self.0)
            }
            /// Loads.
            #[cfg_attr(loom, track_caller)]
            #[inline(always)]
            pub fn load<P: Platform>(&self, p: &P, order: Ordering) -> $int {
                self.touch(p, Access::Read).load(order)
            }
            /// Stores.
            #[cfg_attr(loom, track_caller)]
            #[inline(always)]
            pub fn store<P: Platform>(&self, p: &P, value: $int, order: Ordering) {
                self.touch(p, Access::Write).store(value, order)
            }
            /// Loads under a lock or by the only writer.
            #[cfg_attr(loom, track_caller)]
            #[inline(always)]
            pub fn get<P: Platform>(&self, p: &P) -> $int {
                self.load(p, Ordering::Relaxed)
            }
            /// Stores under a lock.
            #[cfg_attr(loom, track_caller)]
            #[inline(always)]
            pub fn set<P: Platform>(&self, p: &P, value: $int) {
                self.store(p, value, Ordering::Relaxed)
            }
            /// Swaps.
            #[cfg_attr(loom, track_caller)]
            #[inline(always)]
            pub fn swap<P: Platform>(&self, p: &P, value: $int, order: Ordering) -> $int {
                self.touch(p, Access::Rmw).swap(value, order)
            }
            /// Adds; gives what was there.
            #[cfg_attr(loom, track_caller)]
            #[inline(always)]
            pub fn fetch_add<P: Platform>(&self, p: &P, value: $int, order: Ordering) -> $int {
                self.touch(p, Access::Rmw).fetch_add(value, order)
            }
            /// Subtracts; gives what was there.
            #[cfg_attr(loom, track_caller)]
            #[inline(always)]
            pub fn fetch_sub<P: Platform>(&self, p: &P, value: $int, order: Ordering) -> $int {
                self.touch(p, Access::Rmw).fetch_sub(value, order)
            }
            /// Sets bits; gives what was there.
            #[cfg_attr(loom, track_caller)]
            #[inline(always)]
            pub fn fetch_or<P: Platform>(&self, p: &P, value: $int, order: Ordering) -> $int {
                self.touch(p, Access::Rmw).fetch_or(value, order)
            }
            /// Keeps only these bits; gives what was there.
            #[cfg_attr(loom, track_caller)]
            #[inline(always)]
            pub fn fetch_and<P: Platform>(&self, p: &P, value: $int, order: Ordering) -> $int {
                self.touch(p, Access::Rmw).fetch_and(value, order)
            }
            /// Raises to at least `value`; gives what was there.
            #[cfg_attr(loom, track_caller)]
            #[inline(always)]
            pub fn fetch_max<P: Platform>(&self, p: &P, value: $int, order: Ordering) -> $int {
                self.touch(p, Access::Rmw).fetch_max(value, order)
            }
            /// Replaces `old` by `new`, or gives what is there instead. Relaxed on failure.
            #[cfg_attr(loom, track_caller)]
            #[inline(always)]
            pub fn replace<P: Platform>(
                &self,
                p: &P,
                old: $int,
                new: $int,
                order: Ordering,
            ) -> Result<$int, $int> {
                self.touch(p, Access::Rmw).compare_exchange(old, new, order, Ordering::Relaxed)
            }
        }
    };
}

word!(Word32, AtomicU32, u32, "32 bits that several CPUs may use.");
word!(Word64, AtomicU64, u64, "64 bits that several CPUs may use.");

/// Orders a store before a load of something else, on all CPUs that do the same.
#[cfg_attr(loom, track_caller)]
#[inline(always)]
pub(crate) fn full_fence<P: Platform>(p: &P) {
    #[cfg(not(loom))]
    {
        let _ = p;
        fence(Ordering::SeqCst);
    }
    #[cfg(loom)]
    p.model_fence();
}

/// About how long a lock of the core is held, in nanoseconds.
const HOLD_NS: u32 = 100;

/// A ticket lock: fair, and two words on one line. All zeros is unlocked.
///
/// `WHICH` is the number of the [`Scope`] that the time of taking it is charged to; unsaid, it is
/// [`Scope::EmbedderLock`].
#[derive(Default)]
#[repr(C)]
pub struct SpinLock<const WHICH: u8 = 0> {
    next: Word32,
    serving: Word32,
}

impl<const WHICH: u8> SpinLock<WHICH> {
    const SCOPE: Scope = Scope::ALL[WHICH as usize];

    /// Unlocked.
    pub const fn new() -> Self {
        SpinLock { next: Word32::new(0), serving: Word32::new(0) }
    }

    /// Takes the lock. Any context but an interrupt handler.
    #[inline(always)]
    pub fn lock<'a, 'p: 'a, P: Platform>(&'a self, mm: &Manager<'p, P>) -> SpinGuard<'a, P> {
        let ticket = self.take(mm);
        SpinGuard {
            serving: &self.serving,
            p: mm.platform(),
            ticket,
            #[cfg(debug_assertions)]
            held: mm.spin_locks_held(),
        }
    }

    /// Takes the lock, without a guard: [`lock`](Self::lock) says the rest.
    #[inline(always)]
    pub(crate) fn take<P: Platform>(&self, mm: &Manager<'_, P>) -> Ticket {
        let p = mm.platform();
        let _taking = profile::scope(p, Self::SCOPE);
        let ticket = self.next.fetch_add(p, 1, Ordering::Relaxed);
        let ahead = ahead(&self.serving, p, ticket);
        if ahead != 0 {
            queue(&self.serving, mm, ticket, ahead);
        }
        #[cfg(debug_assertions)]
        count(mm.spin_locks_held(), 1);
        Ticket(ticket)
    }

    #[inline(always)]
    pub(crate) fn release<P: Platform>(&self, mm: &Manager<'_, P>, ticket: Ticket) {
        #[cfg(debug_assertions)]
        count(mm.spin_locks_held(), -1);
        release(&self.serving, mm.platform(), ticket);
    }
}

/// A handler that interrupts this leaves the count as it found it.
#[cfg(debug_assertions)]
fn count(held: &Cell<u32>, by: i32) {
    held.set(held.get().wrapping_add_signed(by));
}

#[inline(always)]
fn release<P: Platform>(serving: &Word32, p: &P, Ticket(ticket): Ticket) {
    // Only the holder writes `serving`. Release: partner of the Acquire in `ahead`.
    serving.store(p, ticket.wrapping_add(1), Ordering::Release);
}

/// How many hold or get the lock before this ticket does.
#[inline(always)]
fn ahead<P: Platform>(serving: &Word32, p: &P, ticket: u32) -> u32 {
    // Acquire: partner of the Release in `release`.
    ticket.wrapping_sub(serving.load(p, Ordering::Acquire))
}

#[cold]
#[inline(never)]
fn queue<P: Platform>(serving: &Word32, mm: &Manager<'_, P>, ticket: u32, mut before: u32) {
    let p = mm.platform();
    while before != 0 {
        crate::ipi::serve_if_deaf(mm);
        // Each of those ahead holds the lock for about this long: look again when it may be our turn,
        // and leave its line alone meanwhile. In a long queue that is nearly all of those ahead: if a thousand
        // looked every microsecond, the holder would never get the line to let go.
        p.pause(HOLD_NS * (before.min(16) + before.saturating_sub(64)));
        before = ahead(serving, p, ticket);
    }
}

/// Whose turn it is: the lock is held until [`SpinLock::release`] has it back.
#[must_use]
#[derive(Clone, Copy)]
pub(crate) struct Ticket(u32);

impl Ticket {
    /// As a number, for who keeps it beside the lock.
    pub fn number(self) -> u32 {
        self.0
    }

    pub fn of(number: u32) -> Ticket {
        Ticket(number)
    }
}

/// The lock is held until this is dropped.
#[must_use]
pub struct SpinGuard<'a, P: Platform> {
    serving: &'a Word32,
    p: &'a P,
    ticket: Ticket,
    /// How many this CPU holds.
    #[cfg(debug_assertions)]
    held: &'a Cell<u32>,
}

impl<P: Platform> Drop for SpinGuard<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        count(self.held, -1);
        release(self.serving, self.p, self.ticket);
    }
}
