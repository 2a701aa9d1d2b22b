//! Kernel ranges, frames to map there, and what a machine with one is made with.

use quietmm::{AllocFrom, Config, FrameNumber, KernelProt, PageNumber, PageRange, VmapPlace};

use super::{Host, Mm, Setup, bare};

/// Where the kernel range begins: not on the border of a page table, and a little before page numbers pass 2^16.
pub const START: PageNumber = PageNumber(0xf_fff8_1234_ff00);
pub const RW: KernelProt = KernelProt::ReadWrite;
/// Anywhere, without a guard page.
pub const BARE: VmapPlace = VmapPlace { align: 1, within: None, guard: false, node: None };

/// A kernel range of so many pages, where nothing is purged unless it is asked for or addresses are short.
pub fn kernel(policy: &str, pages: u64) -> Config {
    Config { vmap: Some(PageRange::new(START, pages)), vmap_lazy: Some(u64::MAX), ..bare(policy) }
}

/// So many frames of the caller's own.
pub fn frames(mm: &Mm<'_>, count: u64) -> Vec<FrameNumber> {
    (0..count).map(|_| mm.frames().alloc(0, AllocFrom::NOW).unwrap().into_raw().0).collect()
}

/// Gives them back.
pub fn free(mm: &Mm<'_>, frames: Vec<FrameNumber>) {
    frames.into_iter().for_each(|frame| mm.frames().free_at(frame, 0).unwrap());
}

/// Pages from the start of the range on.
pub fn at(page: u64, pages: u64) -> PageRange {
    PageRange::new(PageNumber(START.0 + page), pages)
}

/// How many pages can be mapped in extents of this many until there is no room; unmaps them again.
pub fn room(mm: &Mm<'_>, frame: FrameNumber, pages: u64) -> u64 {
    let whole = vec![frame; pages as usize];
    let mapped: Vec<_> = std::iter::from_fn(|| mm.vmap().map(&whole, BARE, RW).ok()).collect();
    mapped.iter().for_each(|range| mm.vmap().unmap(range.start).unwrap());
    mapped.len() as u64 * pages
}

/// A machine with so many CPUs.
pub fn host(cpus: u32) -> Host {
    Host::new(Setup { cpus, ..Setup::default() })
}

/// The page so many further on.
pub fn next(page: PageNumber, by: u64) -> PageNumber {
    PageNumber(page.0 + by)
}
