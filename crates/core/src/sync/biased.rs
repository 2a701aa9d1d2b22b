//! A sleeping lock whose readers stay on lines of their own where nobody has written for a while.
//!
//! [`RwLock`] counts its readers in one word. With thousands of CPUs that fault in one space, moving that word's line from one to the
//! next is all that they do. Here readers become *visible* once as many have been counted since the last writer as there are CPUs: each
//! writes the lock's address into a slot of its own CPU, and takes it out when it leaves. (Dice and Kogan: BRAVO, Biased Locking for
//! Reader-Writer Locks, USENIX ATC 2019.)
//!
//! ```text
//!   reader                             writer, who has the counted lock alone
//!   slot = this lock                   biased = no
//!   ---- fence ----                    ---- fence ----
//!   biased?                            each slot of each CPU: this lock?
//!     yes: it shares the lock            yes: waits until it is not
//!     no: slot = none, is counted        no: nobody comes there any more
//! ```
//!
//! One of the two sees the other. To look through all slots costs a writer a line for each possible CPU: no more than the readers before
//! it have paid to be counted.

use core::sync::atomic::Ordering;

use super::holder::Holder;
use super::rwlock::{ReadGuard, RwLock, WriteGuard};
use super::word::{Word32, Word64, full_fence};
use crate::charge::charge;
use crate::cpu::CpuId;
use crate::platform::{Platform, WaitKey};
use crate::profile::Scope;
use crate::rule::Rule;

/// The lock. All zeros is unlocked, and readers are counted. `WHICH` is as in [`RwLock`].
#[repr(C)]
pub struct BiasedRwLock<const WHICH: u8 = { Scope::OtherRwLock as u8 }> {
    counted: RwLock<WHICH>,
    /// Not 0 while readers may be in slots. Set by a reader that is counted, and so while no writer has the lock. A writer that has it
    /// clears it, and sets it again if it leaves readers there.
    biased: Word32,
}

/// No lock lies at an odd address.
const AWAITED: u64 = 1;

/// Shared until dropped.
#[must_use]
pub struct SharedGuard<'a, P: Platform> {
    _how: How<'a, P>,
}

enum How<'a, P: Platform> {
    Counted { _guard: ReadGuard<'a, P> },
    Visible { _slot: Visible<'a, P> },
}

/// A slot with the lock's address in it, until it is dropped.
struct Visible<'a, P: Platform> {
    slot: &'a Word64,
    at: usize,
    p: &'a P,
}

impl<const WHICH: u8> BiasedRwLock<WHICH> {
    fn at(&self) -> usize {
        (&raw const *self).addr()
    }

    /// Shares it if nobody has it alone, or wants that. Never waits.
    pub fn try_read<'a, 'p: 'a, P: Platform + 'p>(
        &'a self,
        mm: &impl Holder<'p, P>,
    ) -> Option<SharedGuard<'a, P>> {
        let guard = self.counted.try_read(mm.platform())?;
        Some(SharedGuard { _how: How::Counted { _guard: guard } })
    }

    /// Shares it. May wait.
    pub fn read<'a, 'p: 'a, P: Platform + 'p>(&'a self, mm: &impl Holder<'p, P>) -> SharedGuard<'a, P> {
        let p = mm.platform();
        let _taking = charge(p, RwLock::<WHICH>::SCOPE);
        if self.biased.load(p, Ordering::Relaxed) != 0
            && let Some(slot) = self.enter(mm)
        {
            // Partner: the fence in `look_through`.
            full_fence(p);
            // Acquire: partner of the Release below, which comes after the last writer.
            if self.biased.load(p, Ordering::Acquire) != 0 {
                return SharedGuard { _how: How::Visible { _slot: slot } };
            }
        }
        let (guard, since) = self.counted.read_counting(p);
        if since >= u64::from(p.possible_cpus()) && self.biased.load(p, Ordering::Relaxed) == 0 {
            self.biased.store(p, 1, Ordering::Release);
        }
        SharedGuard { _how: How::Counted { _guard: guard } }
    }

    /// Writes the lock into a slot of this CPU, if one is free. The caller may have gone to another CPU meanwhile: any slot will do.
    fn enter<'a, 'p: 'a, P: Platform + 'p>(&'a self, mm: &impl Holder<'p, P>) -> Option<Visible<'a, P>> {
        let (p, at) = (mm.platform(), self.at());
        let slots = &mm.visible_reads(p.this_cpu()).0;
        let free =
            |slot: &&Word64| slot.get(p) == 0 && slot.replace(p, 0, at as u64, Ordering::Relaxed).is_ok();
        slots.iter().find(free).map(|slot| Visible { slot, at, p })
    }

    /// Has it alone. May wait.
    pub fn write<'a, 'p: 'a, P: Platform + 'p>(&'a self, mm: &impl Holder<'p, P>) -> WriteGuard<'a, P> {
        let p = mm.platform();
        let _taking = charge(p, RwLock::<WHICH>::SCOPE);
        let (mine, awaited) = (self.at() as u64, self.at() as u64 | AWAITED);
        let alone = self.counted.write(p);
        let gone = self.look_through(mm, |slot| {
            // Acquire, twice: partners of the Release of whoever leaves.
            while slot.load(p, Ordering::Acquire) == mine {
                if slot.replace(p, mine, awaited, Ordering::Relaxed).is_ok() {
                    p.wait(WaitKey::Lock(self.at()), &mut || slot.load(p, Ordering::Acquire) != awaited);
                }
            }
            true
        });
        debug_assert!(gone);
        alone
    }

    /// Has it alone if nobody has it or wants it. Never waits.
    pub fn try_write<'a, 'p: 'a, P: Platform + 'p>(
        &'a self,
        mm: &impl Holder<'p, P>,
    ) -> Option<WriteGuard<'a, P>> {
        let p = mm.platform();
        let alone = self.counted.try_write(p)?;
        if !self.look_through(mm, |slot| slot.load(p, Ordering::Acquire) != self.at() as u64) {
            // The next writer has to look again.
            self.biased.store(p, 1, Ordering::Release);
            return None;
        }
        Some(alone)
    }

    /// Lets readers be counted from here on, and looks at all slots that may name the lock until `look` has seen enough; says
    /// whether it has seen all. By whoever has the counted lock alone.
    fn look_through<'p, P: Platform + 'p>(
        &self,
        mm: &impl Holder<'p, P>,
        look: impl FnMut(&Word64) -> bool,
    ) -> bool {
        let p = mm.platform();
        if self.biased.load(p, Ordering::Relaxed) == 0 || p.broken(Rule::LookForVisibleReaders) {
            return true;
        }
        self.biased.store(p, 0, Ordering::Relaxed);
        // Partner: the fence in `read`.
        full_fence(p);
        let cpus = (0..p.possible_cpus()).map(|cpu| CpuId(cpu as u16));
        cpus.flat_map(|cpu| &mm.visible_reads(cpu).0).all(look)
    }

    /// Whether somebody has it alone, or waits for that. A moment's truth.
    pub fn is_written<P: Platform>(&self, p: &P) -> bool {
        self.counted.is_written(p)
    }

    /// Whether anybody waits for whoever has it alone, and asks. A moment's truth.
    pub fn is_awaited<P: Platform>(&self, p: &P) -> bool {
        self.counted.is_awaited(p)
    }

    /// Whether nobody has it or wants it. A moment's truth.
    pub(crate) fn audit_free<P: Platform>(&self, p: &P) -> bool {
        self.counted.audit_free(p)
    }
}

impl<P: Platform> Drop for Visible<'_, P> {
    fn drop(&mut self) {
        // Release: partner of the writer's Acquire.
        if self.slot.swap(self.p, 0, Ordering::Release) & AWAITED != 0 {
            self.p.wake(WaitKey::Lock(self.at));
        }
    }
}
