//! `free=sweep`: an operation does not interrupt other CPUs for what it takes out; its frames and addresses wait until each
//! of them has flushed by itself.
//!
//! **INV-14: until every CPU that may use a space has flushed since a page of it was parked, its frame is nobody else's, and
//! nothing else is mapped at its address.** So a thread that races with `unmap` or with [`Advice::Drop`](crate::Advice::Drop)
//! may read and write the old page a tick or two longer than POSIX has it, and never anybody else's.
//!
//! A page is parked in two places. Its frame, with the reference and the count of the mapping that it was, lies in its
//! CPU's [`Parked`]; who shares it after a fork finds that it is not alone, and copies. Its entry keeps the number of
//! the sweep: whoever maps something there first flushes the address, if that sweep is not over.
//!
//! ```text
//!   who unmaps                      a CPU that uses the space
//!   entry taken out, generation += 1
//!   ---- fence ----                 epoch = 5, in `join`
//!   read the epoch: 4, or 5         ---- fence ----
//!     parked until 5, or 6          flush
//!                                   swept = 5
//! ```
//!
//! Whoever reads 4 has taken the entry out before sweep 5 began, and each CPU's part in it comes later. The generation is raised
//! as for any flush: so a CPU catches up when it loads the space, or finds that it is loaded, and a thread that goes to
//! another CPU sees there what it has unmapped.
//!
//! As many pages as fit; an operation on more, on pages of files or large ones, or by which a table goes, flushes as always.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{FrameNumber, PageNumber, PageRange};
use crate::cpu::CpuId;
use crate::event::{Event, FlushReason};
use crate::handle::SpaceId;
use crate::memmap::FrameVec;
use crate::paging::{Entry, table};
use crate::platform::Platform;
use crate::profile::Scope;
use crate::resched::{Work, cost};
use crate::rule::Rule;
use crate::space::parking::Parking;
use crate::space::range::Gather;
use crate::space::refs::Gone;
use crate::sync::{SpinLock, Word32, Word64, full_fence};
use crate::tlb;
use crate::vma::SpaceState;
use crate::zeroed::Zeroed;

/// Frames that wait for the same sweep on a CPU: a MiB.
const ROOM: usize = 253;
/// With so many a CPU begins the sweep.
const ENOUGH: u32 = ROOM as u32 / 2;

/// Frames let go together.
const TOGETHER: usize = FrameVec::MOST;

const _: () = assert!(TOGETHER <= ROOM && size_of::<Parked>() == 2112);

/// The frames that a CPU has parked. Others free them where memory is short.
#[repr(C, align(64))]
pub(crate) struct Parked {
    lock: SpinLock<{ Scope::ParkedLock as u8 }>,
    /// Those that wait for the sweep that is under way, or is over, and those that wait for the next.
    parts: [Part; 2],
}

// SAFETY: atomics and a lock only.
unsafe impl Zeroed for Parked {}

#[repr(C, align(64))]
struct Part {
    /// The sweep's number. Under the lock, with the rest.
    until: Word64,
    len: Word32,
    frames: [Word32; ROOM],
}

impl Part {
    fn is_empty<P: Platform>(&self, p: &P) -> bool {
        self.len.load(p, Ordering::Relaxed) == 0
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Whether a CPU may have cached what was parked until this sweep.
    pub(super) fn may_be_used(&self, until: u64) -> bool {
        self.sweeps_over() < until && !self.platform().broken(Rule::ParkedAddressFlushed)
    }

    /// Parks what an operation took out of a range, if all of it can be; says whether. By whoever holds the VMAs alone; no table
    /// goes. May wait.
    pub(super) fn park(
        &self,
        (id, space): (SpaceId, &SpaceState),
        range: PageRange,
        parking: &Parking,
        gather: &Gather<'_>,
        work: &mut Work<'_, 'p, P>,
    ) -> bool {
        if !parking.fits || gather.is_none() {
            return false;
        }
        let p = self.platform();
        // INV-4 goes on to hold for what reclaim deferred.
        tlb::complete_deferred(self, id);
        let generation = space.raise(p);
        // Partner: the fence in `tlb::sweep::join`.
        full_fence(p);
        let Some(until) = self.park_frames(&parking.frames) else { return false };
        let mut gone = Gone::new();
        self.visit(space, range, (work, cost::ENTRY), |leaf, page, entry, _| {
            if entry.is_taken() {
                leaf.write(page, Entry::parked(until));
            } else if entry.parked_until().is_none() {
                leaf.write(page, Entry::NONE);
                gone.add_entry(self, entry);
            }
        });
        gone.free(self);
        tlb::flush_here(self, id, gather.range(), generation);
        self.emit(Event::Parked { pages: parking.frames.as_slice().len() as u32 });
        true
    }

    /// Returns the sweep for which they wait now; `None` if there is no room.
    fn park_frames(&self, frames: &FrameVec) -> Option<u64> {
        let p = self.platform();
        // The task may go on elsewhere: each CPU's place has a lock.
        let cpu = p.this_cpu();
        let parked = self.try_park(cpu, frames).or_else(|| {
            self.sweep_is_over();
            self.begin_sweep();
            self.free_swept(cpu);
            self.try_park(cpu, frames)
        });
        let (until, len) = parked?;
        if len >= ENOUGH {
            self.begin_sweep();
        }
        Some(until)
    }

    fn try_park(&self, cpu: CpuId, frames: &FrameVec) -> Option<(u64, u32)> {
        let (p, frames, parked) = (self.platform(), frames.as_slice(), self.parked()[cpu.index()]);
        let _guard = parked.lock.lock(self);
        let until = self.epoch() + 1;
        let fits =
            |part: &&Part| part.until.get(p) == until && part.len.get(p) as usize + frames.len() <= ROOM;
        let mut parts = parked.parts.iter();
        let part = parts.clone().find(fits).or_else(|| parts.find(|part| part.is_empty(p)))?;
        let len = part.len.get(p);
        for (i, frame) in frames.iter().enumerate() {
            part.frames[len as usize + i].set(p, frame.0);
        }
        part.until.set(p, until);
        part.len.set(p, len + frames.len() as u32);
        Some((until, len + frames.len() as u32))
    }

    /// Lets go of what a CPU has parked and whose sweep is over; says whether something is left. No IPI. Any context but an
    /// interrupt handler.
    fn free_swept(&self, cpu: CpuId) -> bool {
        let (p, parked) = (self.platform(), self.parked()[cpu.index()]);
        let mut left = false;
        for part in &parked.parts {
            // A hint: whoever parks something more does not wait for it here.
            while !part.is_empty(p) {
                let mut frames = FrameVec::new();
                {
                    let _guard = parked.lock.lock(self);
                    if part.until.get(p) > self.sweeps_over() && !p.broken(Rule::ParkUntilSwept) {
                        left = true;
                        break;
                    }
                    let len = part.len.get(p) as usize;
                    let rest = len.saturating_sub(TOGETHER);
                    part.frames[rest..len].iter().for_each(|frame| frames.push(FrameNumber(frame.get(p))));
                    part.len.set(p, rest as u32);
                }
                let mut gone = Gone::new();
                frames.as_slice().iter().for_each(|&frame| gone.add(self, frame));
                gone.free(self);
            }
        }
        left
    }

    /// Frees all that is parked, on any CPU: waits for sweeps if it must. For those who would wait for memory otherwise. Needs
    /// interrupts on and no spin lock held.
    pub(crate) fn unpark(&self, work: &mut Work<'_, '_, P>) {
        if !self.parks() {
            return;
        }
        let free = || {
            let cpus = (0..self.parked().len()).map(|cpu| CpuId(cpu as u16));
            cpus.filter(|&cpu| self.free_swept(cpu)).count() > 0
        };
        self.sweep_is_over();
        // What waits for the next sweep while one is under way waits for two.
        for _ in 0..2 {
            if !free() {
                return;
            }
            self.await_sweep(work);
        }
        free();
    }

    /// Nothing that was parked in this range can be used any more when it returns: something else will be mapped there. By who
    /// has the VMAs alone. At most one IPI for each CPU that uses the space; none where the sweep is over.
    pub(super) fn settle(
        &self,
        id: SpaceId,
        space: &SpaceState,
        range: PageRange,
        work: &mut Work<'_, 'p, P>,
    ) {
        if !self.parks() {
            return;
        }
        let mut stale: Option<PageRange> = None;
        self.visit(space, range, (work, cost::ENTRY), |leaf, page, entry, _| {
            if let Some(until) = entry.parked_until() {
                leaf.write(page, Entry::NONE);
                if self.may_be_used(until) {
                    let start = stale.map_or(page, |stale| stale.start);
                    stale = Some(PageRange::between(start, PageNumber(page.0 + 1)));
                }
            }
        });
        if stale.is_some() {
            self.emit(Event::DeferredCompleted);
            tlb::flush(self, id, stale, FlushReason::Deferred, false);
        }
    }

    /// The same for one page at a fault, by whoever shares the VMAs, with the lock of the entry's table let go.
    pub(super) fn settle_one(&self, id: SpaceId, leaf: table::Leaf, page: PageNumber, seen: Entry) {
        if seen.parked_until().is_some_and(|until| self.may_be_used(until)) {
            self.emit(Event::DeferredCompleted);
            tlb::flush(self, id, Some(PageRange::new(page, 1)), FlushReason::Deferred, false);
        }
        let locked = leaf.lock(self);
        if locked.read(page) == seen {
            locked.write(page, Entry::NONE);
        }
    }

    /// Frames that are parked, for a look at a quiet system.
    pub(crate) fn parked_frames(&self) -> u64 {
        let parts = self.parked().iter().flat_map(|parked| &parked.parts);
        parts.map(|part| u64::from(part.len.get(self.platform()))).sum()
    }
}
