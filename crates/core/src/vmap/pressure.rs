//! How much waits for a purge, and when that is enough to ask for one.

use core::sync::atomic::Ordering;

use super::state::KernelRange;
use super::sweeping::SHARE;
use crate::Manager;
use crate::cpu::CpuId;
use crate::event::Event;
use crate::platform::{Platform, WaitKey};

/// 32 MiB, in pages: what may wait for each doubling of the CPUs that are online.
const LAZY: u64 = 8192;

/// What waits for a purge of kernel addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waits {
    /// Pages of addresses that were unmapped and are not free yet.
    pub pages: u64,
    /// Frames of [`Vmap::alloc`](crate::Vmap::alloc) that go with them.
    pub frames: u64,
}

impl<'p> KernelRange<'p> {
    /// By how many CPUs are online, or as the configuration says.
    pub(super) fn set_threshold<P: Platform>(&self, mm: &Manager<'p, P>) {
        let p = mm.platform();
        if self.sweeping.is_some() {
            let share = mm.config().vmap_lazy.map_or(SHARE, |pages| pages / u64::from(p.possible_cpus()));
            return self.state.numbers.threshold.store(p, share, Ordering::Relaxed);
        }
        let online = || (0..p.possible_cpus()).filter(|&cpu| mm.is_online(CpuId(cpu as u16))).count() as u32;
        let pages = mm.config().vmap_lazy.unwrap_or_else(|| u64::from(32 - online().leading_zeros()) * LAZY);
        self.state.numbers.threshold.store(p, pages, Ordering::Relaxed);
    }
}

pub(super) fn waits<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>) -> Waits {
    let p = mm.platform();
    if let Some(sweeping) = &v.sweeping {
        let (pages, frames) = sweeping.waits(p, v.state.numbers.sweeps.last_over(p));
        return Waits { pages, frames };
    }
    let mut sum = Waits { pages: v.state.reported.load(p, Ordering::Relaxed), frames: 0 };
    for cache in v.cpus {
        let here = cache.waits(p);
        sum.pages = sum.pages.wrapping_add(here.pages);
        sum.frames += here.frames;
    }
    sum
}

/// So many pages wait: asks for a purge if that is enough. Any context.
pub(super) fn ask<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>, pages: u64) {
    let (p, wanted) = (mm.platform(), &v.state.asked.wanted);
    let threshold = v.state.numbers.threshold.load(p, Ordering::Relaxed);
    if pages >= threshold
        && wanted.load(p, Ordering::Relaxed) == 0
        && wanted.swap(p, 1, Ordering::AcqRel) == 0
    {
        mm.emit(Event::VmapPurgeWanted);
        p.wake(WaitKey::VmapPurge);
    }
    if pages >= threshold.saturating_mul(2) {
        v.state.numbers.pressing.store(p, 1, Ordering::Relaxed);
    }
}

/// Waits until a purge is asked for.
pub(super) fn await_wanted<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>) {
    let p = mm.platform();
    p.wait(WaitKey::VmapPurge, &mut || v.state.asked.wanted.load(p, Ordering::Acquire) != 0);
}
