//! Hardware that flushes all CPUs: as little, and as late, as it may. What is asked for is found at once, and taken away when it
//! is waited for. A CPU that is switched off is not reached.

use std::cell::RefCell;

use quietmm::platform::{Broadcast, Cpus, Everywhere};
use quietmm::{FrameNumber, Platform};

use super::translation::{Tlb, places};
use super::{Happened, Host};

/// An entry or a table that a CPU keeps.
#[derive(Clone, Copy)]
pub(super) enum Kept {
    Entry((u16, u64, bool)),
    Table((u16, FrameNumber)),
    Kernel(u64),
}

/// By the CPU that has asked: what goes, and of which CPU.
pub(super) type Pending = RefCell<Vec<Vec<(usize, Kept)>>>;

/// All that a CPU keeps of what is to be flushed.
fn found(tlb: &Tlb, what: Everywhere) -> Vec<Kept> {
    let (root, range) = match what {
        Everywhere::Kernel => return tlb.kernel.keys().map(|&page| Kept::Kernel(page)).collect(),
        Everywhere::KernelPages(range) => {
            let pages = range.start.0..range.end().0;
            return pages.filter(|page| tlb.kernel.contains_key(page)).map(Kept::Kernel).collect();
        }
        Everywhere::Spaces => (None, None),
        Everywhere::Space { root } => (Some(root), None),
        Everywhere::Pages { root, range } => (Some(root), Some(range)),
    };
    let is_its = |tag: u16| root.is_none_or(|root| tlb.roots.get(&tag) == Some(&root));
    let covers = |&(tag, page, large): &(u16, u64, bool)| {
        let inside = |range: quietmm::PageRange| {
            (range.start.0..range.end().0).any(|wanted| places(tag, wanted)[usize::from(large)].1 == page)
        };
        is_its(tag) && range.is_none_or(inside)
    };
    let entries = tlb.cached.keys().filter(|key| covers(key)).map(|&key| Kept::Entry(key));
    // No more than the contract says: tables on the way to these pages.
    let on_the_way = |(first, pages): (u64, u64)| {
        range.is_none_or(|range| range.start.0 < first + pages && first < range.end().0)
    };
    let tables = tlb.walked.iter().filter(|&(key, &span)| is_its(key.0) && on_the_way(span));
    let tables = tables.map(|(&key, _)| Kept::Table(key));
    entries.chain(tables).collect()
}

// SAFETY: all that was found when a flush began is gone when it has been waited for, on every CPU that is not switched off.
unsafe impl Broadcast for Host {
    fn flush(&self, what: Everywhere) {
        let me = self.this_cpu();
        assert!(!self.irqs[me.index()].get(), "interrupts must be off");
        self.note(Happened::Broadcast(me.0, what));
        for (cpu, tlb) in self.tlbs.iter().enumerate().filter(|(cpu, _)| !self.off[*cpu].get()) {
            let all = found(&tlb.borrow(), what);
            self.broadcasts.borrow_mut()[me.index()].extend(all.into_iter().map(|kept| (cpu, kept)));
        }
    }

    fn sync(&self) {
        let me = self.this_cpu();
        assert!(!self.irqs[me.index()].get(), "interrupts must be off");
        for (cpu, kept) in self.broadcasts.borrow_mut()[me.index()].drain(..) {
            // A write that has begun ends first.
            self.end_write(cpu as u16);
            let mut tlb = self.tlbs[cpu].borrow_mut();
            match kept {
                Kept::Entry(key) => _ = tlb.cached.remove(&key),
                Kept::Table(key) => _ = tlb.walked.remove(&key),
                Kept::Kernel(page) => _ = tlb.kernel.remove(&page),
            }
        }
    }
}

impl Host {
    /// Whether every broadcast has been waited for.
    pub(super) fn all_synced(&self) -> bool {
        self.broadcasts.borrow().iter().all(Vec::is_empty)
    }
}
