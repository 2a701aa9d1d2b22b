//! Kernel addresses: mapped by one CPU, used by all, unmapped with interrupts off.

use alloc::format;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use quietmm::{AllocFrom, Error, KernelProt, PageNumber, PageRange, VmapPlace};
use quietmm_workloads::Params;

use super::Sys;
use super::team::{Team, check, wrong};
use crate::user::{self, By};
use quietmm::platform::{Cpus, Memory};

/// Pages of the range: few, so that an address comes again soon.
pub const PAGES: u64 = 1 << 18;
const ROUNDS: u32 = 6;

/// A page is mapped in the kernel, read by all CPUs, and unmapped with interrupts off, which interrupts nobody. After a
/// purge the same addresses lead elsewhere, and all must see that (INV-3).
pub fn vunmap(system: &Sys, _params: &Params<'static>) -> Result<(), Error> {
    let space = system.mm.create_space()?;
    let at = Arc::new(AtomicU64::new(0));
    let told = at.clone();
    let lead = move |system: &Sys, team: &Team| {
        let mm = &system.mm;
        let p = mm.platform();
        let frames = [mm.frames().alloc(0, AllocFrom::HERE)?, mm.frames().alloc(0, AllocFrom::HERE)?];
        let mut last: Option<PageRange> = None;
        for round in 1..=ROUNDS {
            let frame = frames[round as usize % 2].first();
            // SAFETY: this task's own frame, mapped.
            unsafe { p.direct(frame.phys()).cast::<u64>().write_volatile(round.into()) };
            let range = again(system, frame, last)?;
            check(system, last.is_none_or(|last| last == range), || {
                format!("{range:?} is not the address of before: the test shows nothing")
            });
            last = Some(range);
            told.store(range.start.addr().0, Ordering::Relaxed);
            team.step(system);
            p.irqs_off();
            let unmapped = mm.vmap().unmap(range.start);
            p.irqs_on();
            unmapped?;
            mm.vmap().purge()?;
        }
        frames.into_iter().for_each(|frame| mm.frames().free(frame));
        Ok(())
    };
    Team::spawn(system, space, ROUNDS, lead, move |system, step| {
        let place = PageNumber(at.load(Ordering::Relaxed) >> 12).addr();
        // Eight words: the first is the round, all others are as the frame was.
        match user::load_by(By::Kernel, place) {
            Ok(found) if found == u64::from(step.number) => {}
            found => wrong(system, format!("CPU {} read {found:x?} in round {}", step.cpu, step.number)),
        }
        Ok(())
    });
    Ok(())
}

/// Maps a frame where one was mapped before.
fn again(system: &Sys, frame: quietmm::FrameNumber, last: Option<PageRange>) -> Result<PageRange, Error> {
    let mm = &system.mm;
    let mut others = alloc::vec::Vec::new();
    // The allocator may go on behind what it gave last: what is not wanted is given back afterwards.
    let range = loop {
        let range = mm.vmap().map(&[frame], VmapPlace::ANYWHERE, KernelProt::ReadWrite)?;
        if last.is_none_or(|last| last == range) || others.len() == 64 {
            break range;
        }
        others.push(range);
    };
    others.iter().try_for_each(|range| mm.vmap().unmap(range.start))?;
    Ok(range)
}
