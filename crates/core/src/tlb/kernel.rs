//! Flushes of kernel addresses: on every CPU that is online, whatever space it has loaded, lazily or not.
//!
//! There is no generation here: whoever is left alone is offline, and a CPU that comes online flushes all kernel addresses
//! before it uses one (INV-3):
//!
//! ```text
//!   who flushes                    a CPU that comes online
//!   entry cleared                  presence = ACTIVE
//!   ---- fence ----                ---- fence ----
//!   read presence                  flush all kernel addresses
//!     ACTIVE: it is asked
//!     OFFLINE: its flush comes after the clearing
//! ```

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::charge::charge;
use crate::cpu::CpuId;
use crate::error::Error;
use crate::event::{Event, FlushReason};
use crate::ipi;
use crate::percpu::{CpuGuard, Presence, Work};
use crate::platform::Platform;
use crate::profile::Scope;
use crate::rule::Rule;
use crate::sync::full_fence;
use crate::tlb::broadcast;

/// Flushes kernel pages on all CPUs, and returns when that is done. More pages than the flush ceiling flush all kernel
/// addresses. One IPI per CPU that is online but this one; none if the hardware flushes all CPUs.
///
/// Entries were cleared before. Interrupts are on.
pub(crate) fn flush<P: Platform>(mm: &Manager<'_, P>, range: PageRange, reason: FlushReason) {
    let _scope = charge(mm.platform(), Scope::KernelFlush);
    let p = mm.platform();
    let range = (range.pages <= mm.config().flush_ceiling.into()).then_some(range);
    let here = CpuGuard::new(mm);
    if let Some(hardware) = mm.broadcast() {
        return broadcast::kernel(&here, hardware, range, reason);
    }
    let targets = &here.slot().targets;
    full_fence(p);
    for cpu in (0..p.possible_cpus()).map(|cpu| CpuId(cpu as u16)).filter(|&cpu| cpu != here.cpu) {
        // Acquire: partner of the Release in `cpu_offline`: its last use comes before.
        match mm.slot(cpu).presence.word.load(p, Ordering::Acquire) {
            Presence::OFFLINE => {}
            Presence::LAZY if p.broken(Rule::KernelFlushToLazy) => {}
            _ => targets.insert(cpu),
        }
    }
    let count = targets.len();
    if count > 0 {
        mm.emit(Event::RemoteFlush { reason, targets: count });
    }
    ipi::call(here, Work::Kernel(range), |here| local(here, range));
}

/// Flushes all kernel addresses on all CPUs if the hardware does that, and returns when it is done; says whether it does.
pub(crate) fn flush_by_hardware<P: Platform>(mm: &Manager<'_, P>, reason: FlushReason) -> bool {
    let Some(hardware) = mm.broadcast() else { return false };
    // Partner: the fence in `wait` of `vmap/sweep.rs`. Entries that were cleared before a sweep that has begun are found so.
    full_fence(mm.platform());
    broadcast::kernel(&CpuGuard::new(mm), hardware, None, reason);
    true
}

/// Flushes kernel pages (`None`: all that the core gives out) on this CPU.
pub(crate) fn local<P: Platform>(here: &CpuGuard<'_, '_, P>, range: Option<PageRange>) {
    let _scope = charge(here.mm.platform(), Scope::LocalFlush);
    let (mm, p) = (here.mm, here.mm.platform());
    match range {
        Some(range) => {
            for page in range.start.0..range.end().0 {
                p.flush_kernel_page(PageNumber(page).addr());
            }
            mm.emit(Event::FlushedPages { pages: range.pages as u32 });
        }
        None => {
            p.flush_kernel();
            mm.emit(Event::FlushedKernel);
        }
    }
}

/// Whether this CPU may wait for others: interrupts are on.
pub(crate) fn may_wait<P: Platform>(mm: &Manager<'_, P>) -> Result<(), Error> {
    let p = mm.platform();
    if p.irqs_off() {
        p.irqs_on();
        return Ok(());
    }
    Err(Error::NeedsInterrupts)
}
