//! `all-cpus` and `holding-cpus`: a CPU empties its own lists, in the handler of an interrupt.
//!
//! The handler takes no lock. It hands the frames over as a chain, in a few stores, and whoever asked puts them into
//! their zones: the interrupted CPU goes on at once, however much it held.

use core::sync::atomic::Ordering;

use super::Drained;
use crate::Manager;
use crate::addr::FrameNumber;
use crate::cpu::CpuId;
use crate::frame::percpu::{Loose, Section};
use crate::ipi::{self, Work};
use crate::percpu::Here;
use crate::platform::Platform;
use crate::rule::Rule;
use crate::sync::Word32;

/// What other CPUs have handed to this one. A stack of frames that many push and one takes whole, so that a number seen
/// twice (ABA) does no harm. The first frame plus one; 0 is none.
#[repr(C, align(64))]
pub(crate) struct Returned(Word32);

impl Returned {
    fn push<P: Platform>(&self, mm: &Manager<'_, P>, loose: &Loose) {
        let p = mm.platform();
        let mut seen = self.0.get(p);
        loop {
            loose.lead_to(mm, FrameNumber(seen.wrapping_sub(1)));
            // Release: partner of the Acquire in `take`. The links are whole.
            match self.0.replace(p, seen, loose.first().0 + 1, Ordering::Release) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    fn take<P: Platform>(&self, p: &P) -> Loose {
        Loose::from_first(FrameNumber(self.0.swap(p, 0, Ordering::Acquire).wrapping_sub(1)))
    }

    /// Whether nothing waits here. On a quiet system.
    pub fn is_empty<P: Platform>(&self, p: &P) -> bool {
        self.0.get(p) == 0
    }
}

/// Asks every CPU that is online.
pub(super) fn all<P: Platform>(mm: &Manager<'_, P>) -> Drained {
    let here = Here::new(mm);
    here.slot().targets.insert_all(mm.platform(), mm.online());
    ask(here, None)
}

/// Asks those that seem to hold frames or, by `force`, all.
pub(super) fn holding<P: Platform>(mm: &Manager<'_, P>, force: bool) -> Drained {
    let p = mm.platform();
    let here = Here::new(mm);
    // PITFALLS 16: the set is this CPU's own, and interrupts are off: no other drain writes into it.
    let shared = p.broken(Rule::OwnDrainSet);
    let set = if shared { &mm.slot(CpuId(0)).targets } else { &here.slot().targets };
    set.clear();
    set.insert_all(p, mm.holders());
    for cpu in set.iter() {
        if mm.slot(cpu).pages.held(p) == 0 {
            set.remove(cpu);
        }
    }
    let holders = set.len();
    if shared && here.cpu != CpuId(0) {
        set.iter().for_each(|cpu| here.slot().targets.insert(cpu));
        set.clear();
    }
    if force {
        here.slot().targets.insert_all(p, mm.online());
    }
    ask(here, Some(holders))
}

/// Asks the CPUs in this one's set, empties its own lists meanwhile, and puts what comes back into the zones.
fn ask<P: Platform>(here: Here<'_, '_, P>, holders: Option<u32>) -> Drained {
    let (mm, me) = (here.mm, here.cpu);
    here.slot().targets.remove(me);
    let sent = ipi::call(here, Work::Drain, |here| hand_over(here, me));
    // Every CPU that was asked has acknowledged: what it held is here, or with another who asked at the same time.
    let frames = mm.put_loose(mm.slot(me).returned.take(mm.platform()));
    Drained { frames, sent, holders }
}

/// Empties this CPU's lists and hands the frames to `to`. Interrupts are off; in the handler of an interrupt too.
pub(crate) fn hand_over<P: Platform>(here: &Here<'_, '_, P>, to: CpuId) {
    let loose = Section::of_handler(here).detach();
    if loose.first() != FrameNumber::NONE {
        here.mm.slot(to).returned.push(here.mm, &loose);
    }
}
