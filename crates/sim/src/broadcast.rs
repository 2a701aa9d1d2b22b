//! Flushes on all CPUs by hardware (AMD's INVLPGB and TLBSYNC).
//!
//! The machine carries out one such instruction after the other, whoever has given it. Each CPU's TLB loses what was asked for when
//! it is waited for, and not before: hardware may be that late. What is flushed is a space, under whatever tags: on AMD that
//! takes one address-space number for a space on all CPUs, which Linux since 6.15 gives to those with threads on four CPUs
//! or more. A CPU that answers loses no time by it: nothing is published of that.

use quietmm::addr::{FrameNumber, PageNumber, PageRange};
use quietmm::platform::{Broadcast, Everywhere, UserTlb};

use crate::cpu::Cpu;
use crate::sim::Sim;
use crate::tlb::GLOBAL;

/// What a CPU drops: pages (`None`: all) of these spaces (`None`: all).
struct Dropped {
    root: Option<FrameNumber>,
    range: Option<PageRange>,
}

// SAFETY: what was asked for is gone, from every CPU that is not switched off, when it has been waited for.
unsafe impl<const FAULTS: bool> Broadcast for Sim<'_, FAULTS> {
    fn flush(&self, what: Everywhere) {
        let cost = &self.machine.cost;
        let pages = match what {
            Everywhere::Pages { range, .. } | Everywhere::KernelPages(range) => range.pages,
            _ => 1,
        };
        for _ in 0..pages.div_ceil(self.machine.tlb.broadcast_pages.into()) {
            self.advance(cost.broadcast);
            let cpu = self.cpu();
            let turn = self.broadcast_turn.get().max(cpu.now.get());
            self.broadcast_turn.set(turn + cost.broadcast_gap);
            cpu.broadcast_done.set(turn + cost.broadcast_sync);
        }
        self.cpu().broadcasts.borrow_mut().push(what);
    }

    fn sync(&self) {
        let cpu = self.cpu();
        let wait = cpu.broadcast_done.get().saturating_sub(cpu.now.get());
        self.broadcast_waits.set(self.broadcast_waits.get() + wait);
        self.broadcast_syncs.set(self.broadcast_syncs.get() + 1);
        self.advance(wait);
        let begun = self.cpu().broadcasts.take();
        for what in begun {
            let entries: u64 = self
                .cpus
                .iter()
                .filter(|cpu| !cpu.off.get())
                .map(|cpu| self.drop_everywhere(cpu, what))
                .sum();
            self.broadcast_entries.set(self.broadcast_entries.get() + entries);
        }
    }
}

impl<const FAULTS: bool> Sim<'_, FAULTS> {
    /// A CPU's part in a flush of all; says how many entries it had.
    fn drop_everywhere(&self, cpu: &Cpu, what: Everywhere) -> u64 {
        let dropped = match what {
            Everywhere::Kernel => return self.drop_of_tag(cpu, GLOBAL, None),
            Everywhere::KernelPages(range) => return self.drop_of_tag(cpu, GLOBAL, Some(range)),
            Everywhere::Spaces => Dropped { root: None, range: None },
            Everywhere::Space { root } => Dropped { root: Some(root), range: None },
            Everywhere::Pages { root, range } => Dropped { root: Some(root), range: Some(range) },
        };
        let is_its = |tag: &u16| dropped.root.is_none_or(|root| cpu.roots[usize::from(*tag)].get() == root);
        (0..self.tags()).filter(is_its).map(|tag| self.drop_of_tag(cpu, tag, dropped.range)).sum()
    }

    /// Pages of a tag, and the tables on the way to them (`None`: all).
    fn drop_of_tag(&self, cpu: &Cpu, tag: u16, range: Option<PageRange>) -> u64 {
        let tlb = self.tlb(cpu);
        tlb.walks.forget_ways(tag, range, self.truth());
        match range {
            Some(range) => {
                (range.start.0..range.end().0).map(|page| tlb.flush_page(tag, PageNumber(page))).sum()
            }
            None => tlb.flush_tag(tag),
        }
    }
}
