//! `all-cpus` and `holding-cpus`: a CPU empties its own lists, in the handler of an interrupt.
//!
//! The handler takes no lock. It hands the frames over as a chain, in a few stores, and whoever asked puts them into
//! their zones: the interrupted CPU goes on at once, however much it held.

use super::drained::Drained;
use crate::Manager;
use crate::cpu::CpuId;
use crate::frame::percpu::PcpAccess;
use crate::ipi;
use crate::percpu::{CpuGuard, Work};
use crate::platform::Platform;
use crate::rule::Rule;

/// Asks every CPU that is online.
pub(super) fn all<P: Platform>(mm: &Manager<'_, P>) -> Drained {
    let here = CpuGuard::new(mm);
    mm.online().add_to(mm.platform(), &here.slot().targets);
    ask(here, None)
}

/// Asks those that seem to hold frames or, by `force`, all.
pub(super) fn holding<P: Platform>(mm: &Manager<'_, P>, force: bool) -> Drained {
    let p = mm.platform();
    let here = CpuGuard::new(mm);
    // PITFALLS 16: the set is this CPU's own, and interrupts are off: no other drain writes into it.
    let shared = p.broken(Rule::OwnDrainSet);
    let set = if shared { &mm.slot(CpuId(0)).targets } else { &here.slot().targets };
    set.clear();
    mm.holders().add_to(p, set);
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
        mm.online().add_to(p, &here.slot().targets);
    }
    ask(here, Some(holders))
}

/// Asks the CPUs in this one's set, empties its own lists meanwhile, and puts what comes back into the zones.
fn ask<P: Platform>(here: CpuGuard<'_, '_, P>, holders: Option<u32>) -> Drained {
    let (mm, me) = (here.mm, here.cpu);
    here.slot().targets.remove(me);
    let sent = here.slot().targets.len();
    ipi::call(here, Work::Drain, |here| hand_over(here, me));
    // Every CPU that was asked has acknowledged: what it held is here, or with another who asked at the same time.
    let frames = mm.put_chain(mm.slot(me).returned.take(mm.platform()));
    Drained { frames, sent, holders }
}

/// Empties this CPU's lists and hands the frames to `to`. Interrupts are off; in the handler of an interrupt too.
pub(crate) fn hand_over<P: Platform>(here: &CpuGuard<'_, '_, P>, to: CpuId) {
    let chain = PcpAccess::of_handler(here, |section| section.detach());
    here.mm.slot(to).returned.push(here.mm, &chain);
}
