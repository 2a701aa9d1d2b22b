//! Hardware that flushes all CPUs: as little as it may, and as late. It takes away what was cached before the flush began, on one
//! CPU after the other, when somebody waits for it.

use quietmm::PageNumber;
use quietmm::addr::PageRange;
use quietmm::platform::{Broadcast, Everywhere};

use super::tlb::{LARGE_PAGES, Tlb};
use super::{Machine, Place, What};

// SAFETY: what was cached when a flush began is gone when it has been waited for, on every CPU that is switched on.
unsafe impl Broadcast for Machine {
    fn flush(&self, what: Everywhere) {
        self.point(Place::Tlb(self.current.get()), true);
        self.note(|| What::Broadcast(what));
        let number = self.broadcasts.get() + 1;
        self.broadcasts.set(number);
        self.cpu().broadcasts.borrow_mut().push((number, what));
    }

    fn sync(&self) {
        let begun = self.cpu().broadcasts.take();
        let mut reached = Vec::new();
        for (id, cpu) in self.cpus.iter().enumerate() {
            self.point(Place::Tlb(id as u16), true);
            if cpu.online.get() {
                reached.push(id as u16);
                begun.iter().for_each(|&(number, what)| cpu.tlb.borrow_mut().flush_older(number, what));
            }
        }
        self.note(|| What::Synced(reached));
    }
}

/// Whether a large page at `page`, or a small one, covers a page of a range.
fn meets(range: PageRange, page: u64, large: bool) -> bool {
    let pages = if large { LARGE_PAGES } else { 1 };
    PageRange::new(PageNumber(page), pages).intersect(range).is_some()
}

impl Tlb {
    /// Forgets what was cached before this flush began.
    fn flush_older(&mut self, number: u64, what: Everywhere) {
        let (root, range) = match what {
            Everywhere::Kernel => return self.kernel.retain(|cached| cached.since >= number),
            Everywhere::KernelPages(range) => {
                let inside = |page: u64| range.contains(PageNumber(page));
                return self.kernel.retain(|cached| cached.since >= number || !inside(cached.page));
            }
            Everywhere::Spaces => (None, None),
            Everywhere::Space { root } => (Some(root), None),
            Everywhere::Pages { root, range } => (Some(root), Some(range)),
        };
        let roots = self.roots;
        let is_its = |tag: u16| root.is_none_or(|root| roots[usize::from(tag)] == Some(root));
        let inside = |page: u64, large: bool| range.is_none_or(|range| meets(range, page, large));
        self.user.retain(|cached| {
            cached.since >= number || !is_its(cached.tag) || !inside(cached.page, cached.large)
        });
        let on_the_way = |walked: &super::tlb::Walked| {
            range.is_none_or(|range| (range.start.0..range.end().0).any(|page| walked.leads_to(page)))
        };
        self.walked.retain(|walked| walked.since >= number || !is_its(walked.tag) || !on_the_way(walked));
    }
}
