//! Words that many tests use: configurations, ranges, and all frames that there are.

use quietmm::{AllocFrom, Audit, Config, Counter, ListLimits, PageNumber, PageRange, Platform, Policy};

use super::Mm;
use quietmm::platform::Cpus;

/// No CPU's timer fires by itself: whoever waits for a sweep asks at once.
pub fn config(policy: &str) -> Config {
    Config { sweep_deadline: 0, ..Config::new(Policy::parse(policy).unwrap()) }
}

/// No watermarks and no frames on per-CPU lists: every frame can be had, and counts are exact.
pub fn bare(policy: &str) -> Config {
    Config { page_lists: Some(NO_PCP), min_free: Some(0), resched_after: 1, ..config(policy) }
}

/// CPUs keep no frames on their lists.
pub const NO_PCP: ListLimits = ListLimits { batch: 1, high: 0 };

/// CPUs take frames in such batches, and keep four on their lists.
pub fn pcp(batch: u32) -> Option<ListLimits> {
    Some(ListLimits { batch, high: 4 * batch })
}

pub fn pages(start: u64, pages: u64) -> PageRange {
    PageRange::new(PageNumber(start), pages)
}

pub fn counted(mm: &Mm<'_>, counter: Counter) -> u64 {
    mm.counter(counter)
}

/// Frames that are left where nobody gets any more who may reclaim: all min watermarks together.
pub fn kept_free(mm: &Mm<'_>) -> u64 {
    let frames: Vec<_> = std::iter::from_fn(|| mm.frames().alloc(0, AllocFrom::HERE).ok()).collect();
    let left = mm.frames().available();
    give_back(mm, frames);
    left
}

/// The audit, after whatever was on its way is where it belongs, on every CPU.
pub fn settled(mm: &Mm<'_>) -> Audit {
    let p = mm.platform();
    for cpu in 0..p.possible_cpus() as u16 {
        p.on(cpu, || {
            mm.drain_lru_batch();
            mm.frames().drain_here();
        });
    }
    mm.validate()
}

/// CPUs 1 to 4 have a batch each for what they write out or reclaim next, and no further one is made ready.
pub fn keep_batches(mm: &Mm<'_>) {
    let file = mm.create_file(1).unwrap();
    (1..=4).for_each(|cpu| assert_eq!(mm.platform().on(cpu, || mm.file(file).write_back()), Ok(0)));
    mm.file(file).destroy().unwrap();
}

/// Takes single frames until there are no more, reclaiming as much as can be.
pub fn exhaust(mm: &Mm<'_>) -> Vec<quietmm::Frames> {
    std::iter::from_fn(|| mm.frames().alloc(0, quietmm::AllocFrom::HERE).ok()).collect()
}

pub fn give_back(mm: &Mm<'_>, frames: Vec<quietmm::Frames>) {
    frames.into_iter().for_each(|block| mm.frames().free(block));
}

/// The timers of these CPUs fire.
pub fn ticks(mm: &Mm<'_>, cpus: &[u16]) {
    for &cpu in cpus {
        mm.platform().on(cpu, || {
            let were_on = mm.platform().irqs_off();
            mm.tick();
            if were_on {
                mm.platform().irqs_on();
            }
        });
    }
}
