//! The one door to other CPUs: nothing else sends an interrupt.
//!
//! Each CPU has an *inbox* (a bit for every CPU that wants something of it) and one *request* (what it wants
//! of others). To call, a CPU writes its request, sets its bit in each target's inbox, and interrupts only
//! those whose inbox was empty: the others are about to look anyway. A target takes all bits at once, folds
//! the requests into as few flushes as will do, flushes, and only then acknowledges (INV-5). So there is no
//! queue to overflow and nothing to allocate, and a request is reused only when its last target has
//! acknowledged (PITFALLS 13).
//!
//! A CPU that goes offline says so, and looks into its inbox for the last time; who posts looks whether it is gone
//! (`take_back`). So nobody waits for a CPU that is off.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::charge::charge;
use crate::cpu::{CpuId, bits};
use crate::event::Event;
#[cfg(debug_assertions)]
use crate::own::OwnU32;
use crate::percpu::{CpuGuard, IpiRequest, Presence, Work};
use crate::platform::Platform;
use crate::profile::Scope;
use crate::rule::Rule;
use crate::sync::{Holder, VisibleReads, full_fence};

/// Carries out `work` on the CPUs in `here.slot().targets` and `meanwhile` on this one; returns when all
/// have acknowledged. The set must not hold this CPU.
///
/// Interrupts are off when it is called. They are as the caller of `CpuGuard` had them while it waits; where
/// they are off, it serves the requests that reach this CPU (INV-8).
pub(crate) fn call<P: Platform>(
    here: CpuGuard<'_, '_, P>,
    work: Work,
    meanwhile: impl FnOnce(&CpuGuard<'_, '_, P>),
) {
    let _scope = charge(here.mm.platform(), Scope::IpiCall);
    let (mm, p, slot) = (here.mm, here.mm.platform(), here.slot());
    let targets = slot.targets.len();
    let awaited = &slot.request.awaited.0;
    if targets > 0 {
        slot.request.write(p, work);
        // Relaxed: published, like the request, by the AcqRel of the bit below.
        awaited.set(p, targets);
        let me = here.cpu;
        for target in slot.targets.iter() {
            let was_empty = post(mm, me, target);
            if is_gone(mm, target) && !p.broken(Rule::TakeBack) {
                if take_back(mm, me, target) {
                    acknowledge(p, &slot.request);
                }
            } else if was_empty {
                slot.sending.insert(target);
            }
        }
        if !slot.sending.is_empty() {
            mm.emit(Event::IpiSent { targets: slot.sending.len() });
            p.interrupt(&slot.sending);
            slot.sending.clear();
        }
        slot.targets.clear();
    }
    meanwhile(&here);
    drop(here);
    if targets == 0 {
        return;
    }
    let _wait = charge(p, Scope::IpiWait);
    let mut waited: u32 = 0;
    // Acquire: partner of the Release in `serve`: the flush comes before what the caller does next.
    while !p.broken(Rule::WaitForAcknowledgement) && awaited.load(p, Ordering::Acquire) != 0 {
        mm.serve_if_deaf();
        // Look again after an eighth of what it took so far: few looks, and little is lost at the end.
        let ns = (waited / 8).clamp(50, 2_000);
        p.pause(ns);
        waited = waited.saturating_add(ns);
    }
}

/// Puts this CPU into the target's inbox; says whether it was empty.
fn post<P: Platform>(mm: &Manager<'_, P>, me: CpuId, target: CpuId) -> bool {
    let (p, inbox) = (mm.platform(), &mm.slot(target).inbox);
    let (word, bit) = (me.index() / 64, 1 << (me.index() % 64));
    // The bit before the summary: whoever takes the summary finds the bit. If the target takes the word in
    // between, by an older summary bit, our summary bit costs it one look at an empty word.
    //
    //   this CPU                         target
    //   senders[w] |= me
    //   summary |= w  -> was not 0       summary.swap(0)      takes our w too, or
    //     no interrupt: the swap         senders[w].swap(0)   had not begun: then was 0, interrupt
    //     is still to come
    inbox.senders[word].fetch_or(p, bit, Ordering::AcqRel);
    inbox.summary.fetch_or(p, 1 << word, Ordering::AcqRel) == 0
}

/// Whether the CPU into whose inbox this one has just posted is offline. Its line was read when the targets were
/// chosen, so this look costs a cache hit.
///
/// Each side writes its own word and, a full fence later, reads the other's, so one of them sees the other:
///
/// ```text
///   sender                        target
///   inbox |= me                   presence = OFFLINE
///   ---- fence ----               ---- fence ----
///   read presence                 take the inbox for the last time
///     ACTIVE: the target's fence comes later, so its last look finds the bit
///     OFFLINE: perhaps nobody will look again: `take_back`
/// ```
///
/// The same with `presence = ACTIVE` when a CPU comes: its first look finds the bit, or the sender sees it there and
/// interrupts it.
fn is_gone<P: Platform>(mm: &Manager<'_, P>, target: CpuId) -> bool {
    full_fence(mm.platform());
    // Acquire: partner of the Release in `cpu_offline`: what the target did comes before what the caller does next.
    mm.slot(target).presence.word.load(mm.platform(), Ordering::Acquire) == Presence::OFFLINE
}

/// Takes this CPU out of the inbox of a target that is offline. If its bit was still there nobody has seen it, nor
/// will: an offline CPU holds nothing, so there was nothing to do (INV-6). If not, the target took it at its last
/// look, or at its first one since, and acknowledges as ever. The summary's bit stays: the first look clears it.
fn take_back<P: Platform>(mm: &Manager<'_, P>, me: CpuId, target: CpuId) -> bool {
    let (word, bit) = (me.index() / 64, 1 << (me.index() % 64));
    mm.slot(target).inbox.senders[word].fetch_and(mm.platform(), !bit, Ordering::AcqRel) & bit != 0
}

/// An interrupt from another CPU. Interrupts are off.
pub(crate) fn on_interrupt<P: Platform>(mm: &Manager<'_, P>) {
    mm.emit(Event::IpiReceived);
    serve(&CpuGuard::new(mm));
}

/// Carries out every request in this CPU's inbox.
pub(crate) fn serve<P: Platform>(here: &CpuGuard<'_, '_, P>) {
    let (mm, p) = (here.mm, here.mm.platform());
    let inbox = &here.slot().inbox;
    if inbox.summary.load(p, Ordering::Relaxed) == 0 {
        return;
    }
    let _scope = charge(p, Scope::IpiServe);
    for word in bits(inbox.summary.swap(p, 0, Ordering::AcqRel)) {
        // Acquire: partner of the Release in `post`; the requests of these senders are whole.
        let senders = inbox.senders[word as usize].swap(p, 0, Ordering::AcqRel);
        let cpu = |bit: u32| CpuId((word * 64 + bit) as u16);
        let sender = |bit: u32| mm.slot(cpu(bit));
        if p.broken(Rule::AcknowledgeAfterFlush) {
            // The work is left to the next request: the senders go on as if it were done.
            bits(senders).for_each(|s| acknowledge(p, &sender(s).request));
            continue;
        }
        // All these requests were whole before this loop began, so one full flush answers all that want one.
        let (mut flushed_all, mut flushed_kernel) = (false, false);
        for s in bits(senders) {
            let request = &sender(s).request;
            let work = request.read(p);
            match work {
                Work::FlushAll if core::mem::replace(&mut flushed_all, true) => {}
                Work::Kernel(None) if core::mem::replace(&mut flushed_kernel, true) => {}
                work => mm.carry_out(here, cpu(s), work),
            }
            acknowledge(p, request);
        }
    }
}

/// INV-5: only after the flush.
fn acknowledge<P: Platform>(p: &P, request: &IpiRequest) {
    // Release: partner of the Acquire in `call`.
    request.awaited.0.fetch_sub(p, 1, Ordering::Release);
}

impl<'p, P: Platform> Holder<'p, P> for Manager<'p, P> {
    #[inline(always)]
    fn platform(&self) -> &'p P {
        Manager::platform(self)
    }

    /// What those who wait call: with interrupts off nobody else would serve this CPU's inbox (INV-8).
    #[inline]
    fn serve_if_deaf(&self) {
        let p = self.platform();
        let were_on = p.irqs_off();
        if were_on {
            p.irqs_on();
        } else if !p.broken(Rule::ServeWhileWaiting) {
            serve(&CpuGuard::new(self));
        }
    }

    fn visible_reads(&self, cpu: CpuId) -> &'p VisibleReads {
        &self.slot(cpu).visible_reads
    }

    #[cfg(debug_assertions)]
    fn spin_locks_held(&self) -> &'p OwnU32 {
        &self.slot(Manager::platform(self).this_cpu()).spin_locks
    }
}
