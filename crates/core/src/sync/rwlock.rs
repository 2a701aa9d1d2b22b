//! A lock for many readers or one writer, whose holders may wait.
//!
//! Fair by phases: readers that come while a writer has the lock or waits for it stand behind that one writer, and one more at most
//! if they come just as it leaves; then they all have the lock at once. Writers go in the order in which they came. Where no reader
//! waits one hands the lock to the next: the word is left as it is, and its line with it. The next few in
//! line spin for a while, so that the lock does not lie idle while a sleeper is woken, which takes as long as some short holds; all
//! others sleep until they are among these: with a thousand waiting, one is woken each time.

use core::sync::atomic::Ordering;

use super::word::{Word32, Word64, full_fence};
use crate::charge::charge;
use crate::platform::{Platform, WaitKey};
use crate::profile::Scope;

/// The lock. All zeros is unlocked.
///
/// `WHICH` is the number of the [`Scope`] that the time of taking it is charged to, and waiting for it; unsaid, it is
/// [`Scope::OtherRwLock`].
#[repr(C)]
pub struct RwLock<const WHICH: u8 = { Scope::OtherRwLock as u8 }> {
    words: Words,
}

/// What the lock is made of, whatever its name.
#[repr(C)]
struct Words {
    /// Readers that have the lock, readers that wait, whether a writer has it or waits for readers to leave, the
    /// phase, which changes when a writer leaves, and how many readers have come since then.
    state: Word64,
    /// The writers' queue: the next ticket, and the ticket whose turn it is.
    next: Word32,
    turn: Word32,
}

const READER: u64 = 1;
const WAITING: u64 = 1 << 20;
const WRITER: u64 = 1 << 40;
const PHASE: u64 = 1 << 41;

/// Writers that spin.
const NEAR: u32 = 4;

/// How long they spin before they sleep, from when the line last moved on, and how often they look, in nanoseconds: about what it
/// costs to put a task to sleep and to wake it.
const SPIN_NS: u32 = 20_000;
const LOOK_NS: u32 = 500;
/// How often the next in line looks.
const NEXT_LOOKS_NS: u32 = 100;

/// One reader more since the last writer, up to a number that wraps.
const SINCE: u64 = 1 << 42;

/// Readers that have the lock, and those that wait.
const fn readers(state: u64) -> (u64, u64) {
    (state & (WAITING - 1), state >> 20 & (WAITING - 1))
}

impl<const WHICH: u8> RwLock<WHICH> {
    pub(super) const SCOPE: Scope = Scope::ALL[WHICH as usize];

    /// Shares it. May wait.
    pub fn read<'a, P: Platform>(&'a self, p: &'a P) -> ReadGuard<'a, P> {
        let _taking = charge(p, Self::SCOPE);
        self.words.read(p).0
    }

    /// Shares it, and says how many readers before this one have come since the last writer, modulo 2^22; none if it had to
    /// wait for that writer. May wait.
    pub(super) fn read_counting<'a, P: Platform>(&'a self, p: &'a P) -> (ReadGuard<'a, P>, u64) {
        self.words.read(p)
    }

    /// Shares it if no writer has it or waits for it. Never waits.
    pub fn try_read<'a, P: Platform>(&'a self, p: &'a P) -> Option<ReadGuard<'a, P>> {
        let _taking = charge(p, Self::SCOPE);
        self.words.try_read(p)
    }

    /// Has it alone. May wait.
    pub fn write<'a, P: Platform>(&'a self, p: &'a P) -> WriteGuard<'a, P> {
        let _taking = charge(p, Self::SCOPE);
        self.words.write(p)
    }

    /// Has it alone if nobody has it or wants it. Never waits.
    pub fn try_write<'a, P: Platform>(&'a self, p: &'a P) -> Option<WriteGuard<'a, P>> {
        let _taking = charge(p, Self::SCOPE);
        self.words.try_write(p)
    }

    /// Whether a writer has it or waits for it. A moment's truth.
    pub(super) fn is_written<P: Platform>(&self, p: &P) -> bool {
        let Words { state, next, turn } = &self.words;
        state.load(p, Ordering::Relaxed) & WRITER != 0
            || next.load(p, Ordering::Relaxed) != turn.load(p, Ordering::Relaxed)
    }

    /// Whether anybody waits for whoever has it alone, and who asks is that. A moment's truth.
    pub(super) fn is_awaited<P: Platform>(&self, p: &P) -> bool {
        let Words { state, next, turn } = &self.words;
        // Those who stand behind the writer are counted among who has it until they sleep.
        readers(state.load(p, Ordering::Relaxed)) != (0, 0)
            || next.load(p, Ordering::Relaxed).wrapping_sub(turn.load(p, Ordering::Relaxed)) > 1
    }

    /// Whether nobody has it or wants it. A moment's truth.
    pub(crate) fn audit_free<P: Platform>(&self, p: &P) -> bool {
        let Words { state, next, turn } = &self.words;
        state.get(p) & (PHASE - 1) == 0 && next.get(p) == turn.get(p)
    }
}

impl Words {
    fn at(&self) -> usize {
        (&raw const *self).addr()
    }

    fn read<'a, P: Platform>(&'a self, p: &'a P) -> (ReadGuard<'a, P>, u64) {
        // Acquire, here and below: partner of the Releases of earlier holders.
        let found = self.state.fetch_add(p, READER + SINCE, Ordering::Acquire);
        if found & WRITER != 0 {
            self.stand_behind(p, found & PHASE);
            return (ReadGuard { lock: self, p }, 0);
        }
        (ReadGuard { lock: self, p }, found / SINCE)
    }

    fn try_read<'a, P: Platform>(&'a self, p: &'a P) -> Option<ReadGuard<'a, P>> {
        let mut seen = self.state.load(p, Ordering::Relaxed);
        while seen & WRITER == 0 {
            match self.state.replace(p, seen, seen.wrapping_add(READER + SINCE), Ordering::Acquire) {
                Ok(_) => return Some(ReadGuard { lock: self, p }),
                Err(now) => seen = now,
            }
        }
        None
    }

    /// Waits for the writer of this phase to leave. This reader is counted as one that has the lock; if the writer leaves
    /// before it has counted itself among the waiting, it has.
    #[cold]
    fn stand_behind<P: Platform>(&self, p: &P, phase: u64) {
        loop {
            let seen = self.state.load(p, Ordering::Acquire);
            if seen & PHASE != phase {
                return;
            }
            if self.state.replace(p, seen, seen - READER + WAITING, Ordering::AcqRel).is_ok() {
                // The writer may have been waiting for just this one to go.
                if readers(seen).0 == 1 {
                    p.wake(WaitKey::Lock(self.at()));
                }
                // The phase changes once while this waits, not twice: from then on it has the lock.
                return p.wait(WaitKey::Readers(self.at()), &mut || {
                    self.state.load(p, Ordering::Acquire) & PHASE != phase
                });
            }
        }
    }

    fn write<'a, P: Platform>(&'a self, p: &'a P) -> WriteGuard<'a, P> {
        let ticket = self.next.fetch_add(p, 1, Ordering::Relaxed);
        // Partner: the fence in the guard's drop. One of the two sees the other.
        full_fence(p);
        let ahead = || ticket.wrapping_sub(self.turn.load(p, Ordering::Acquire));
        if ahead() > 0 {
            self.queue(p, ticket, &ahead);
        }
        // Only whoever's turn it is writes this bit: where it is set the one before has left it to this one, and no reader is inside.
        if self.state.load(p, Ordering::Relaxed) & WRITER != 0 {
            return WriteGuard { lock: self, p };
        }
        let found = self.state.fetch_or(p, WRITER, Ordering::Acquire);
        if readers(found).0 > 0 {
            let have_left = || readers(self.state.load(p, Ordering::Acquire)).0 == 0;
            if !spin(p, LOOK_NS, &have_left) {
                p.wait(WaitKey::Lock(self.at()), &mut || have_left());
            }
        }
        WriteGuard { lock: self, p }
    }

    fn try_write<'a, P: Platform>(&'a self, p: &'a P) -> Option<WriteGuard<'a, P>> {
        let turn = self.turn.load(p, Ordering::Acquire);
        // The next ticket is the one whose turn it is: no writer has or wants the lock.
        self.next.replace(p, turn, turn.wrapping_add(1), Ordering::Relaxed).ok()?;
        full_fence(p);
        let seen = self.state.load(p, Ordering::Relaxed);
        if readers(seen).0 == 0 && self.state.replace(p, seen, seen | WRITER, Ordering::Acquire).is_ok() {
            return Some(WriteGuard { lock: self, p });
        }
        self.pass_on(p);
        None
    }

    /// Whether a writer stands behind the one whose turn it is. By that one.
    fn has_next<P: Platform>(&self, p: &P) -> bool {
        self.next.load(p, Ordering::Relaxed).wrapping_sub(self.turn.get(p)) > 1
    }

    /// The writer whose turn it is leaves, and wakes those behind it.
    fn pass_on<P: Platform>(&self, p: &P) {
        // Only the holder writes it.
        let next = self.turn.get(p).wrapping_add(1);
        self.turn.store(p, next, Ordering::Release);
        full_fence(p);
        // The next one, if it has stopped spinning; and the one that is near now.
        let waiting = self.next.load(p, Ordering::Relaxed).wrapping_sub(next);
        for ticket in [0, NEAR].into_iter().filter(|&ticket| ticket < waiting) {
            p.wake(WaitKey::Turn(self.at(), next.wrapping_add(ticket)));
        }
    }

    /// Waits until no writer is ahead.
    #[cold]
    fn queue<P: Platform>(&self, p: &P, ticket: u32, ahead: &dyn Fn() -> u32) {
        let key = WaitKey::Turn(self.at(), ticket);
        if ahead() > NEAR {
            p.wait(key, &mut || ahead() <= NEAR);
        }
        loop {
            let before = ahead();
            if before == 0 {
                return;
            }
            let look = if before == 1 { NEXT_LOOKS_NS } else { LOOK_NS };
            if !spin(p, look, &|| ahead() < before) {
                return p.wait(key, &mut || ahead() == 0);
            }
        }
    }
}

/// Looks for a while whether something is so; whether it was. In a model it does not: there it is whether sleepers are woken that counts.
fn spin<P: Platform>(p: &P, look: u32, ready: &dyn Fn() -> bool) -> bool {
    (0..if cfg!(loom) { 0 } else { SPIN_NS / look }).any(|_| {
        p.pause(look);
        ready()
    })
}

/// Shared until dropped.
#[must_use]
pub struct ReadGuard<'a, P: Platform> {
    lock: &'a Words,
    p: &'a P,
}

impl<P: Platform> Drop for ReadGuard<'_, P> {
    fn drop(&mut self) {
        let before = self.lock.state.fetch_sub(self.p, READER, Ordering::Release);
        if before & WRITER != 0 && readers(before).0 == 1 {
            self.p.wake(WaitKey::Lock(self.lock.at()));
        }
    }
}

/// Exclusive until dropped.
#[must_use]
pub struct WriteGuard<'a, P: Platform> {
    lock: &'a Words,
    p: &'a P,
}

impl<P: Platform> Drop for WriteGuard<'_, P> {
    fn drop(&mut self) {
        let (lock, p) = (self.lock, self.p);
        let mut seen = lock.state.load(p, Ordering::Relaxed);
        if readers(seen) == (0, 0) && lock.has_next(p) {
            return lock.pass_on(p);
        }
        let waited = loop {
            let (have, wait) = readers(seen);
            // All who wait have it now, with those who have counted themselves and not looked yet.
            let next = (seen & PHASE ^ PHASE) | (have + wait);
            match lock.state.replace(p, seen, next, Ordering::Release) {
                Ok(_) => break wait > 0,
                Err(now) => seen = now,
            }
        };
        if waited {
            p.wake(WaitKey::Readers(lock.at()));
        }
        lock.pass_on(p);
    }
}
