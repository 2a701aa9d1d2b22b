//! A ticket lock.
//!
//! Spin locks do not turn interrupts off, because no interrupt handler takes one: handlers touch only `ipi`
//! and `tlb`. Where a caller has them off anyway, a spinning CPU serves the flush requests that reach it
//! (INV-8, PITFALLS 14).

use core::sync::atomic::Ordering;

use super::holder::Holder;
use super::word::Word32;
use crate::charge::charge;
#[cfg(debug_assertions)]
use crate::own::OwnU32;
use crate::platform::Platform;
use crate::profile::Scope;

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
    pub fn lock<'a, 'p: 'a, P: Platform + 'p>(&'a self, mm: &impl Holder<'p, P>) -> SpinGuard<'a, P> {
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
    pub(crate) fn take<'p, P: Platform + 'p>(&self, mm: &impl Holder<'p, P>) -> Ticket {
        let p = mm.platform();
        let taking = charge(p, Self::SCOPE);
        let ticket = self.next.fetch_add(p, 1, Ordering::Relaxed);
        let ahead = ahead(&self.serving, p, ticket);
        if ahead != 0 {
            queue(&self.serving, mm, ticket, ahead);
        }
        drop(taking);
        p.locked((&raw const self.serving).cast(), Self::SCOPE);
        #[cfg(debug_assertions)]
        count(mm.spin_locks_held(), 1);
        Ticket(ticket)
    }

    #[inline(always)]
    pub(crate) fn release<'p, P: Platform + 'p>(&self, mm: &impl Holder<'p, P>, ticket: Ticket) {
        #[cfg(debug_assertions)]
        count(mm.spin_locks_held(), -1);
        release(&self.serving, mm.platform(), ticket);
    }
}

/// A handler that interrupts this leaves the count as it found it.
#[cfg(debug_assertions)]
fn count(held: &OwnU32, by: i32) {
    held.set(held.get().wrapping_add_signed(by));
}

#[inline(always)]
fn release<P: Platform>(serving: &Word32, p: &P, Ticket(ticket): Ticket) {
    p.unlocked((&raw const *serving).cast());
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
fn queue<'p, P: Platform + 'p>(serving: &Word32, mm: &impl Holder<'p, P>, ticket: u32, mut before: u32) {
    let p = mm.platform();
    while before != 0 {
        mm.serve_if_deaf();
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
    /// As a number, for whoever keeps it beside the lock.
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
    held: &'a OwnU32,
}

impl<P: Platform> Drop for SpinGuard<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        count(self.held, -1);
        release(self.serving, self.p, self.ticket);
    }
}
