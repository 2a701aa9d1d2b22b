//! Who looks at slots that may be given up meanwhile, and when nobody does (Linux: SRCU).
//!
//! A reader counts itself in before its first look, and out when it has done; each on the line of the CPU on which it is then.
//! Whoever wants to use the memory for something else first makes sure that nobody finds it any more, and then waits until all
//! readers of before have left:
//!
//! ```text
//!   reader                        who takes the memory
//!   entered += 1                  nobody finds the slab any more
//!   ---- fence ----               ---- fence ----
//!   looks for the slab            sum of left, then sum of entered:
//!     finds it                      they differ: not yet
//!     does not                      they are equal: nobody has it
//! ```
//!
//! A reader that had found it before the fence is in the second sum, and not in the first before it has left. Whoever has left
//! is in both, since `left` is read first. So equal sums leave nobody out.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::cpu::CpuId;
use crate::percpu::Reads;
use crate::platform::Platform;
use crate::sync::{Word64, full_fence};

/// Somebody reads, until this is dropped. May wait meanwhile, and go on on another CPU.
#[must_use]
pub(crate) struct Reading<'m, 'p, P: Platform>(&'m Manager<'p, P>);

impl<'m, 'p, P: Platform> Reading<'m, 'p, P> {
    pub fn begin(mm: &'m Manager<'p, P>) -> Self {
        let p = mm.platform();
        mm.slot(p.this_cpu()).reads.entered.fetch_add(p, 1, Ordering::Relaxed);
        // Partner: the fence in `nobody_reads`.
        full_fence(p);
        Reading(mm)
    }

    pub fn manager(&self) -> &'m Manager<'p, P> {
        self.0
    }
}

impl<P: Platform> Drop for Reading<'_, '_, P> {
    fn drop(&mut self) {
        let p = self.0.platform();
        // Release: partner of the Acquire in `nobody_reads`: the last look comes before.
        self.0.slot(p.this_cpu()).reads.left.fetch_add(p, 1, Ordering::Release);
    }
}

/// Whether nobody reads who began before this was called. Costs a cache line for each possible CPU.
pub(crate) fn nobody_reads<P: Platform>(mm: &Manager<'_, P>) -> bool {
    let p = mm.platform();
    let sum = |word: fn(&Reads) -> &Word64| {
        let cpus = (0..p.possible_cpus()).map(|cpu| CpuId(cpu as u16));
        // Acquire: partner of the Release in `drop`. It keeps the two sums in order, too.
        cpus.map(|cpu| word(&mm.slot(cpu).reads).load(p, Ordering::Acquire)).fold(0, u64::wrapping_add)
    };
    // Partner: the fence in `Reading::begin`.
    full_fence(p);
    let left = sum(|reads| &reads.left);
    left == sum(|reads| &reads.entered)
}
