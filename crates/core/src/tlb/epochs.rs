//! Numbered sweeps, whatever is swept: who begins one, and who finds out that it is over. What a CPU does to take part is its
//! user's: `tlb/sweep.rs` has sweeps of user addresses, `vmap/sweep.rs` those of kernel addresses.
//!
//! Sweeps follow each other: the next begins when the last is over. One may be begun over another that is under way, in whose
//! place it is then: whoever has taken part in the later one has done all that the earlier one asked for.

use core::sync::atomic::Ordering;

use crate::cpu::CpuId;
use crate::platform::Platform;
use crate::sync::{Word32, Word64, full_fence};

/// What all CPUs read. Written when a sweep begins, and when one is over.
#[repr(C)]
pub(crate) struct Epochs {
    /// The last that has begun.
    pub begun: Word64,
    /// The last that is over.
    pub over: Word64,
}

/// On a line of its own: those who wait for a sweep write it.
#[repr(C, align(64))]
pub(crate) struct Look {
    /// Not 0 while somebody looks.
    busy: Word32,
    /// The first CPU that was not found past the sweep. Those before it stay past.
    next: Word32,
}

impl Look {
    /// Whether somebody looks: a hint, for those of whom many may come at once.
    pub fn is_busy<P: Platform>(&self, p: &P) -> bool {
        self.busy.load(p, Ordering::Relaxed) != 0
    }
}

impl Epochs {
    /// The last sweep that has begun.
    #[inline(always)]
    pub fn last<P: Platform>(&self, p: &P) -> u64 {
        // Acquire: partner of the Releases that begin one.
        self.begun.load(p, Ordering::Acquire)
    }

    /// The last sweep that is over.
    #[inline(always)]
    pub fn last_over<P: Platform>(&self, p: &P) -> u64 {
        // Acquire: partner of the Release in `look`: what CPUs did before they took part comes before what the caller does.
        self.over.load(p, Ordering::Acquire)
    }

    /// Whether nobody looks, and the next look begins with the first CPU: for audits of a quiet system.
    pub fn audit<P: Platform>(&self, p: &P, look: &Look) -> bool {
        look.busy.get(p) == 0 && (!self.at_rest(p) || look.next.get(p) == 0)
    }

    /// Whether none is under way.
    pub fn at_rest<P: Platform>(&self, p: &P) -> bool {
        self.last_over(p) == self.last(p)
    }

    /// Begins one, unless one is under way; says whether.
    pub fn begin<P: Platform>(&self, p: &P) -> bool {
        let last = self.last(p);
        self.last_over(p) == last && self.begun.replace(p, last, last + 1, Ordering::AcqRel).is_ok()
    }

    /// Begins one even if another is under way, which is over with this one then; returns its number. `None`: somebody looks at
    /// this moment.
    pub fn begin_anew<P: Platform>(&self, p: &P, look: &Look) -> Option<u64> {
        // As in `look`.
        look.busy.replace(p, 0, 1, Ordering::Acquire).ok()?;
        look.next.set(p, 0);
        let last = self.begun.fetch_add(p, 1, Ordering::AcqRel);
        look.busy.store(p, 0, Ordering::Release);
        Some(last + 1)
    }

    /// This sweep is over, unless a later one has begun: since it began every CPU has done what it asks for, in another way. Says
    /// whether; not if somebody looks at this moment.
    pub fn end<P: Platform>(&self, p: &P, look: &Look, sweep: u64) -> bool {
        if look.busy.replace(p, 0, 1, Ordering::Acquire).is_err() {
            return false;
        }
        let ends = self.last(p) == sweep && self.last_over(p) < sweep;
        if ends {
            look.next.set(p, 0);
            // Release: as in `look`.
            self.over.store(p, sweep, Ordering::Release);
        }
        look.busy.store(p, 0, Ordering::Release);
        ends
    }

    /// Looks whether the last sweep is over, at no more than `most` CPUs. `is_past` says whether a CPU has taken part in this
    /// sweep, or will before it does what the sweep is about. Each CPU is looked at once in a sweep, and the first that has
    /// not taken part once in each look. Returns whether this look has found it over; `None`: somebody else looks. If `goes_on` says
    /// so, the next has begun before anybody sees that this one is over.
    ///
    /// ```text
    ///   CPU that comes back                who looks whether a sweep is over
    ///   says so                            read which is the last: 5
    ///   ---- fence ----                    ---- fence ----
    ///   read which is the last: 5          `is_past`: it is away, so its look comes later
    /// ```
    pub fn look<P: Platform>(
        &self,
        p: &P,
        look: &Look,
        most: u32,
        is_past: impl Fn(CpuId, u64) -> bool,
        goes_on: impl FnOnce() -> bool,
    ) -> Option<bool> {
        look.busy.replace(p, 0, 1, Ordering::Acquire).ok()?;
        let mut is_over = false;
        if !self.at_rest(p) {
            let last = self.last(p);
            // Partner: the fence of whoever comes back.
            full_fence(p);
            let (cpus, first) = (p.possible_cpus(), look.next.get(p));
            let mut cpu = first;
            while cpu < cpus && cpu - first < most && is_past(CpuId(cpu as u16), last) {
                cpu += 1;
            }
            is_over = cpu >= cpus;
            look.next.set(p, if is_over { 0 } else { cpu });
            if is_over {
                if goes_on() {
                    self.begun.store(p, last + 1, Ordering::Release);
                }
                // Release: partner of the Acquire in `over`.
                self.over.store(p, last, Ordering::Release);
            }
        }
        // Release: partner of the Acquire above: whoever looks next goes on where this one has stopped.
        look.busy.store(p, 0, Ordering::Release);
        Some(is_over)
    }
}
