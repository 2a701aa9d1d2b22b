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
use crate::addr::{Generation, PageNumber, PageRange};
use crate::cpu::{CpuId, MAX_CPUS, bits};
use crate::event::Event;
use crate::paging::SpaceSlot;
use crate::percpu::{Here, Presence};
use crate::platform::Platform;
use crate::profile::{self, Scope};
use crate::rule::Rule;
use crate::sync::{Word32, Word64, full_fence};

/// The CPUs that want something of this one.
#[repr(C, align(64))]
pub(crate) struct Inbox {
    /// One bit per word of `senders` that may hold a bit.
    summary: Word64,
    senders: [Word64; (MAX_CPUS / 64) as usize],
}

impl Inbox {
    pub fn is_empty<P: Platform>(&self, p: &P) -> bool {
        self.senders.iter().all(|word| word.get(p) == 0)
    }
}

/// What a CPU wants of others, packed into three words of one line. Written only while nobody still owes an
/// acknowledgement.
#[repr(C, align(64))]
pub(crate) struct Request {
    /// The space plus one, and `TABLES`; 0 asks for everything that user addresses may have left, `DRAIN` for the frames
    /// at hand, `DRAIN_LRU` for the pages bound for their lists.
    space: Word64,
    /// The first page, and in the low bits how many; 0 pages are the whole space.
    range: Word64,
    generation: Word64,
    awaited: Awaited,
}

/// Page tables go too: lazy CPUs must let go of the space.
const TABLES: u64 = 1 << 32;
/// No flush: the frames at hand.
const DRAIN: u64 = 1 << 33;
/// No flush: the pages bound for their lists.
const DRAIN_LRU: u64 = 1 << 34;
/// No space: what a sweep wants, of user or of kernel addresses.
const SWEEP: u64 = 1 << 35;
const KERNEL_SWEEP: u64 = 1 << 36;
/// Instead of a space: kernel addresses.
const KERNEL: u64 = 1 << 40;
/// The part of a kernel page's number that differs from one to another.
const KERNEL_PAGE: u64 = (1 << 36) - 1;
/// Room for the pages of a range. A longer one is above every ceiling: it stands as the whole space.
const PAGES: u64 = (1 << 20) - 1;

/// Apart from the request: the targets read that and write this.
#[repr(C, align(64))]
struct Awaited(Word32);

/// What can be asked of other CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// Give up the free frames at hand, to whoever asks.
    Drain,
    /// Give up the pages that are bound for their lists, to whoever asks.
    DrainLru,
    /// Flush everything that user addresses may have left.
    FlushAll,
    /// Flush a range of a space (`None`: all of it), which brings a CPU that has seen everything before up to
    /// this generation.
    Flush { space: SpaceSlot, range: Option<PageRange>, generation: Generation, tables: bool },
    /// Take part in the sweep that is under way.
    Sweep,
    /// The same of kernel addresses.
    KernelSweep,
    /// A range of kernel addresses (`None`: all of them), whatever space is loaded.
    Kernel(Option<PageRange>),
}

impl Request {
    /// Whether nobody still owes an acknowledgement. On a quiet system.
    pub fn audit_answered<P: Platform>(&self, p: &P) -> bool {
        self.awaited.0.get(p) == 0
    }

    fn write<P: Platform>(&self, p: &P, work: Work) {
        let (space, range, generation, tables) = match work {
            Work::Drain => return self.space.set(p, DRAIN),
            Work::DrainLru => return self.space.set(p, DRAIN_LRU),
            Work::FlushAll => return self.space.set(p, 0),
            Work::Sweep => return self.space.set(p, SWEEP),
            Work::KernelSweep => return self.space.set(p, KERNEL_SWEEP),
            Work::Kernel(range) => {
                let short = range.filter(|range| range.pages <= PAGES);
                let place =
                    |range: PageRange| (range.start.0 & KERNEL_PAGE) << PAGES.count_ones() | range.pages;
                self.range.set(p, short.map_or(0, place));
                return self.space.set(p, KERNEL);
            }
            Work::Flush { space, range, generation, tables } => (space, range, generation, tables),
        };
        let short = range.filter(|range| range.pages <= PAGES);
        self.space.set(p, (u64::from(space.0) + 1) | if tables { TABLES } else { 0 });
        self.range.set(p, short.map_or(0, |range| range.start.0 << PAGES.count_ones() | range.pages));
        self.generation.set(p, generation.0);
    }

    fn read<P: Platform>(&self, p: &P) -> Work {
        let word = self.space.get(p);
        if word == KERNEL {
            let range = self.range.get(p);
            let start = PageNumber(range >> PAGES.count_ones() | PageNumber::KERNEL_START.0);
            return Work::Kernel((range & PAGES != 0).then(|| PageRange::new(start, range & PAGES)));
        }
        if word & DRAIN != 0 {
            return Work::Drain;
        }
        if word & DRAIN_LRU != 0 {
            return Work::DrainLru;
        }
        if word & SWEEP != 0 {
            return Work::Sweep;
        }
        if word & KERNEL_SWEEP != 0 {
            return Work::KernelSweep;
        }
        let Some(space) = (word as u32).checked_sub(1) else {
            return Work::FlushAll;
        };
        let range = self.range.get(p);
        let (start, pages) = (PageNumber(range >> PAGES.count_ones()), range & PAGES);
        Work::Flush {
            space: SpaceSlot(space),
            range: (pages != 0).then(|| PageRange::new(start, pages)),
            generation: Generation(self.generation.get(p)),
            tables: word & TABLES != 0,
        }
    }
}

/// Carries out `work` on the CPUs in `here.slot().targets` and `meanwhile` on this one; returns when all
/// have acknowledged. The set must not hold this CPU.
///
/// Interrupts are off when it is called. They are as the caller of `Here` had them while it waits; where
/// they are off, it serves the requests that reach this CPU (INV-8).
pub(crate) fn call<P: Platform>(here: Here<'_, '_, P>, work: Work, meanwhile: impl FnOnce(&Here<'_, '_, P>)) {
    let _scope = profile::scope(here.mm.platform(), Scope::IpiCall);
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
    let _wait = profile::scope(p, Scope::IpiWait);
    let mut waited: u32 = 0;
    // Acquire: partner of the Release in `serve`: the flush comes before what the caller does next.
    while !p.broken(Rule::WaitForAcknowledgement) && awaited.load(p, Ordering::Acquire) != 0 {
        serve_if_deaf(mm);
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
    serve(&Here::new(mm));
}

/// What those who wait call: with interrupts off nobody else would serve this CPU's inbox (INV-8).
#[inline]
pub(crate) fn serve_if_deaf<P: Platform>(mm: &Manager<'_, P>) {
    let p = mm.platform();
    let were_on = p.irqs_off();
    if were_on {
        p.irqs_on();
    } else if !p.broken(Rule::ServeWhileWaiting) {
        serve(&Here::new(mm));
    }
}

/// Carries out every request in this CPU's inbox.
pub(crate) fn serve<P: Platform>(here: &Here<'_, '_, P>) {
    let (mm, p) = (here.mm, here.mm.platform());
    let inbox = &here.slot().inbox;
    if inbox.summary.load(p, Ordering::Relaxed) == 0 {
        return;
    }
    let _scope = profile::scope(p, Scope::IpiServe);
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
                Work::Drain => crate::frame::hand_over(here, cpu(s)),
                Work::DrainLru => crate::reclaim::hand_over(here, cpu(s)),
                Work::FlushAll if core::mem::replace(&mut flushed_all, true) => {}
                Work::Kernel(None) if core::mem::replace(&mut flushed_kernel, true) => {}
                work => crate::tlb::serve(here, work),
            }
            acknowledge(p, request);
        }
    }
}

/// INV-5: only after the flush.
fn acknowledge<P: Platform>(p: &P, request: &Request) {
    // Release: partner of the Acquire in `call`.
    request.awaited.0.fetch_sub(p, 1, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::tree::tests::Touches;

    fn request() -> Request {
        let word = || Word64::new(0);
        Request { space: word(), range: word(), generation: word(), awaited: Awaited(Word32::new(0)) }
    }

    /// Both sides of the border of each number of bits, below an end.
    fn numbers(end: u64) -> Vec<u64> {
        let edges = (0..64).map(|bit| 1_u64 << bit).flat_map(|at| [at - 1, at, at.wrapping_add(1)]);
        edges.chain([end - 1]).filter(|&number| number < end).collect()
    }

    /// Whoever is asked does what was written, whatever was written there before: or, for so many pages that there is no room for
    /// their number, all of the space.
    #[test]
    fn what_is_asked_for_is_what_is_read() {
        let (p, request) = (Touches::default(), request());
        let mut works =
            Vec::from([Work::Drain, Work::DrainLru, Work::FlushAll, Work::Sweep, Work::KernelSweep]);
        let starts = numbers(PageNumber::USER_END.0);
        let counts = numbers(PAGES + 3);
        let ranges = |first: u64| {
            let some =
                starts.iter().map(move |&start| PageRange::new(PageNumber(first + start), 1 + start % PAGES));
            let of = counts.iter().filter(|&&pages| pages > 0);
            some.chain(of.map(move |&pages| PageRange::new(PageNumber(first), pages))).map(Some).chain([None])
        };
        let flush = |space, range, generation, tables| Work::Flush {
            space: SpaceSlot(space),
            range,
            generation: Generation(generation),
            tables,
        };
        works.extend(ranges(0).map(|range| flush(7, range, 5, false)));
        works.extend(ranges(PageNumber::KERNEL_START.0).map(Work::Kernel));
        works.extend(numbers(u32::MAX.into()).into_iter().map(|space| flush(space as u32, None, 9, true)));
        works.extend(numbers(u64::MAX).into_iter().map(|generation| flush(3, None, generation, false)));
        let short = |range: Option<PageRange>| range.filter(|range| range.pages <= PAGES);
        for work in works {
            let want = match work {
                Work::Kernel(range) => Work::Kernel(short(range)),
                Work::Flush { space, range, generation, tables } => {
                    Work::Flush { space, range: short(range), generation, tables }
                }
                other => other,
            };
            request.write(&p, work);
            assert_eq!(request.read(&p), want);
        }
    }
}
