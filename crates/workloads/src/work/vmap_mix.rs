//! `vmap-mix`: a kernel range that is full of holes. 15,000 mappings are live, of 1 to 100 pages at random alignments up to
//! 4 MiB; a quarter of them stay to the end, and between them the others come and go, and so do short-lived `vmalloc`s.
//!
//! The mappings of a CPU share its frames, so that memory is enough: what is mapped does not matter, where it is does.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use quietmm::platform::Access;
use quietmm::{AllocFrom, CpuId, Error, FrameNumber, KernelProt, PageNumber, PageRange, VmapPlace};
use rand_core::Rng;
use rand_xoshiro::Xoshiro256StarStar;

use super::turns::Turns;
use super::{Params, timed};
use crate::latency::Op;
use crate::machine::Machine;
use crate::system::System;
use crate::task::TaskKind;

/// Live mappings of all CPUs, with enough memory for their tables: one for so many frames.
const LIVE: u64 = 15_000;
const FRAMES_PER_MAPPING: u64 = 16;
/// Pages of the largest mapping, and binary logarithm of the largest alignment in pages.
const MOST_PAGES: u64 = 100;
const ALIGN: u64 = 10;
/// One in so many mappings stays, and beside one in so many replacements there is a `vmalloc`, of so many pages at most.
const STAYS: usize = 4;
const VMALLOC: u64 = 8;
const VMALLOC_PAGES: u64 = 8;
/// Replacements of all CPUs, and the fewest of one.
const REPLACED: u32 = 4096;
const FEWEST: u32 = 4;
/// Pages of the kernel range: 16 GiB.
const KERNEL_PAGES: u64 = 1 << 22;

/// Pages of the kernel range on so many CPUs.
pub const fn kernel_pages(cpus: u32) -> u64 {
    let pages = super::vmap_touch::kernel_pages(cpus);
    if pages < KERNEL_PAGES { KERNEL_PAGES } else { pages }
}

/// One CPU's share.
struct Share<'s, 'p, M: Machine> {
    system: &'s System<'p, M>,
    frames: &'s [FrameNumber],
    rng: Xoshiro256StarStar,
}

/// A task for each CPU.
pub fn set_up<M: Machine>(system: &System<'_, M>, params: &Params<'_>) -> Result<u64, Error> {
    let cpus = params.cpus;
    let live = (LIVE.min(params.frames / FRAMES_PER_MAPPING) / u64::from(cpus)).max(1) as usize;
    let replaced = (REPLACED / cpus).max(FEWEST);
    let turns = Arc::new((Turns::default(), AtomicU32::new(0)));
    let [fill, mix, empty, end] = [(); 4].map(|()| turns.0.add());
    let space = system.create_space()?;
    for cpu in 0..cpus {
        let (turns, rng, delay) = (turns.clone(), params.rng(cpu), params.delay(cpu));
        system.spawn(format!("vmap-mix/{cpu}"), TaskKind::User(space), CpuId(cpu as u16), move |system| {
            let (turns, ended) = &*turns;
            let (mm, m) = (&system.mm, system.mm.platform());
            let take = || mm.frames().alloc(0, AllocFrom::HERE).map(|frame| frame.into_raw().0);
            let frames = (0..MOST_PAGES).map(|_| take()).collect::<Result<Vec<_>, _>>()?;
            // Whether this CPU was the last to end this turn. AcqRel: the last one has seen what the others did.
            let last = || ended.fetch_add(1, Ordering::AcqRel) % cpus + 1 == cpus;
            let mut share = Share { system, frames: &frames, rng };
            turns.wait(system, fill);
            m.compute(delay);
            let mut all = (0..live).map(|_| share.map()).collect::<Result<Vec<_>, _>>()?;
            if last() {
                turns.next(system);
            }
            turns.wait(system, mix);
            for _ in 0..replaced {
                share.replace(&mut all)?;
            }
            if last() {
                turns.next(system);
            }
            turns.wait(system, empty);
            all.into_iter().try_for_each(|range| share.unmap(range))?;
            if last() {
                // The frames may be others' from here on: nothing leads to them any more.
                mm.vmap().unmap_aliases()?;
                turns.next(system);
            }
            turns.wait(system, end);
            frames.into_iter().try_for_each(|frame| mm.frames().free_at(frame, 0))
        });
    }
    Ok((2 * live as u64 + 2 * u64::from(replaced)) * u64::from(cpus))
}

impl<M: Machine> Share<'_, '_, M> {
    fn up_to(&mut self, most: u64) -> u64 {
        self.rng.next_u64() % most + 1
    }

    /// Maps a run of this CPU's frames somewhere, and touches its ends.
    fn map(&mut self) -> Result<PageRange, Error> {
        let pages = self.up_to(MOST_PAGES);
        let from = self.up_to(MOST_PAGES - pages + 1) as usize - 1;
        let place = VmapPlace { align: 1 << (self.up_to(ALIGN + 1) - 1), ..VmapPlace::ANYWHERE };
        let frames = &self.frames[from..from + pages as usize];
        let mm = &self.system.mm;
        let range =
            timed(self.system, Op::MixMap, pages, || mm.vmap().map(frames, place, KernelProt::ReadWrite))?;
        self.done(range)?;
        Ok(range)
    }

    fn unmap(&self, range: PageRange) -> Result<(), Error> {
        let mm = &self.system.mm;
        timed(self.system, Op::MixUnmap, range.pages, || mm.vmap().unmap(range.start))?;
        mm.platform().progressed(1);
        mm.platform().cond_resched();
        Ok(())
    }

    /// One of those that do not stay goes, and another comes.
    fn replace(&mut self, all: &mut [PageRange]) -> Result<(), Error> {
        let nth = (self.rng.next_u64() % all.len() as u64) as usize;
        if !nth.is_multiple_of(STAYS) || all.len() < STAYS {
            self.unmap(all[nth])?;
            all[nth] = self.map()?;
        }
        if self.up_to(VMALLOC) == 1 {
            let pages = self.up_to(VMALLOC_PAGES);
            let mm = &self.system.mm;
            let range = mm.vmap().alloc(pages, VmapPlace::ANYWHERE, KernelProt::ReadWrite)?;
            self.done(range)?;
            mm.vmap().free(range.start)?;
        }
        Ok(())
    }

    fn done(&self, range: PageRange) -> Result<(), Error> {
        let m = self.system.mm.platform();
        for page in [range.start, PageNumber(range.end().0 - 1)] {
            m.kernel_access(page.addr(), 1, Access::Write)?;
        }
        m.progressed(1);
        m.cond_resched();
        Ok(())
    }
}
