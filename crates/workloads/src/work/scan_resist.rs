//! `scan-resist`: what a one-time sweep does to those who use their memory. Threads on every other CPU use a hot set of 3/8 of
//! the memory, over and over; the others sweep once: through files of twice the memory, or through new anonymous memory of as
//! much. Nothing that a sweep has used is wanted again, so whatever comes back was hot and should not have gone.
//!
//! A small program of another process takes turns with each hot thread, as on a machine that has more to do: without
//! address-space tags each turn flushes what the TLB has of the hot set, with tags it stays.

use alloc::format;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use quietmm::{Backing, Counter, CpuId, Error, PageNumber, PageRange, Prot, UserAccess};
use rand_core::Rng;

use super::swap_threads::{Checked, part};
use super::{BASE, Params, map_file};
use crate::latency::Tally;
use crate::machine::Machine;
use crate::system::System;
use crate::task::TaskKind;

/// Eighths of the memory that are hot.
const HOT_EIGHTHS: u64 = 3;
/// Each kind of sweep goes through so many times the memory.
const TIMES_MEMORY: u64 = 2;
/// Accesses to a hot page, and of a sweep to a page.
const ACCESSES: u32 = 64;
const SWEEP_ACCESSES: u32 = 512;
/// Of so many uses of a hot page one is a write.
const WRITES: u64 = 4;
/// Pages of each of the small programs, and accesses to one.
const SMALL: u64 = 16;
const SMALL_ACCESSES: u32 = 4096;
/// Pages that the hot threads use before they ask whether the sweeps are over.
const ASK: u64 = 64;

/// What the threads tell each other. Words of the host, which cost the machine nothing; any ordering does.
struct Phase {
    /// Hot threads that have not used all of their pages once, and those that have not looked at all of them at the end.
    warming: AtomicU64,
    looking: AtomicU64,
    /// Sweeps that are not over.
    sweeping: AtomicU64,
    /// Refaults before the first sweep, and after the last.
    before: AtomicU64,
    after: AtomicU64,
}

/// Tells whether it was the last.
fn one_less(count: &AtomicU64) -> bool {
    let left = count.load(Relaxed) - 1;
    count.store(left, Relaxed);
    left == 0
}

/// One process: hot threads on even CPUs, sweeps on odd ones, of files and of anonymous memory in turn.
pub fn set_up<M: Machine>(system: &System<'_, M>, params: &Params<'_>) -> Result<u64, Error> {
    let cpus = u64::from(params.cpus);
    let hot = params.frames * HOT_EIGHTHS / 8;
    let threads = cpus.div_ceil(2);
    let sweeps = (cpus / 2).max(2);
    let space = system.create_space()?;
    let range = PageRange::new(BASE, hot);
    system.mm.space(space).map(range, Backing::Anonymous, Prot::ReadWrite)?;
    let pages = Arc::new(Checked::new(BASE, hot));
    let phase = Arc::new(Phase {
        warming: AtomicU64::new(threads),
        looking: AtomicU64::new(threads),
        sweeping: AtomicU64::new(sweeps),
        before: AtomicU64::new(0),
        after: AtomicU64::new(0),
    });
    for thread in 0..threads {
        let (pages, phase, mut rng) = (pages.clone(), phase.clone(), params.rng(thread as u32));
        let own = part(hot, thread, threads);
        system.spawn(
            format!("hot/{thread}"),
            TaskKind::User(space),
            CpuId(2 * thread as u16),
            move |system| {
                let mm = &system.mm;
                let refaults = || mm.counter(Counter::WorkingsetRefault);
                for index in own.clone() {
                    pages.write(system, index)?;
                }
                if one_less(&phase.warming) {
                    phase.before.store(refaults(), Relaxed);
                }
                while phase.sweeping.load(Relaxed) > 0 {
                    for _ in 0..ASK {
                        let index = own.start + rng.next_u64() % (own.end - own.start);
                        system.access(pages.page(index).addr(), ACCESSES, UserAccess::Read)?;
                        pages.look(system, index)?;
                        if rng.next_u64().is_multiple_of(WRITES) {
                            pages.write(system, index)?;
                        }
                    }
                }
                for index in own {
                    pages.look(system, index)?;
                }
                if one_less(&phase.looking) {
                    let m = mm.platform();
                    let (before, after) = (phase.before.load(Relaxed), phase.after.load(Relaxed));
                    m.tally(Tally::HotPages, hot);
                    m.tally(Tally::HotRefaults, after - before);
                    m.tally(Tally::HotLost, refaults() - after);
                }
                Ok(())
            },
        );
    }
    let other = system.create_space()?;
    system.mm.space(other).map(PageRange::new(BASE, SMALL * threads), Backing::Anonymous, Prot::ReadWrite)?;
    for thread in 0..threads {
        let (phase, mut rng) = (phase.clone(), params.rng((threads + thread) as u32));
        let cpu = CpuId(2 * thread as u16);
        system.spawn(format!("small/{thread}"), TaskKind::User(other), cpu, move |system| {
            while phase.sweeping.load(Relaxed) > 0 {
                let page = BASE.0 + SMALL * thread + rng.next_u64() % SMALL;
                system.access(PageNumber(page).addr(), SMALL_ACCESSES, UserAccess::Read)?;
            }
            Ok(())
        });
    }
    let each = [sweeps.div_ceil(2), sweeps / 2].map(|several| TIMES_MEMORY * params.frames / several);
    let stride = (each[0].max(each[1]) + 1).next_multiple_of(512);
    for sweep in 0..sweeps {
        let (is_file, pages) = (sweep % 2 == 0, each[sweep as usize % 2]);
        let at = PageNumber((BASE.0 + hot).next_multiple_of(512) + stride * sweep);
        if is_file {
            map_file(system, space, at, pages, Prot::Read)?;
        } else {
            system.mm.space(space).map(PageRange::new(at, pages), Backing::Anonymous, Prot::ReadWrite)?;
        }
        let access = if is_file { UserAccess::Read } else { UserAccess::Write };
        let phase = phase.clone();
        let cpu = CpuId(((2 * sweep + 1) % cpus) as u16);
        system.spawn(format!("sweep/{sweep}"), TaskKind::User(space), cpu, move |system| {
            while phase.warming.load(Relaxed) > 0 {
                system.nap(10_000);
            }
            for page in 0..pages {
                system.access(PageNumber(at.0 + page).addr(), SWEEP_ACCESSES, access)?;
                system.mm.platform().progressed(1);
            }
            if one_less(&phase.sweeping) {
                phase.after.store(system.mm.counter(Counter::WorkingsetRefault), Relaxed);
            }
            Ok(())
        });
    }
    Ok((0..sweeps).map(|sweep| each[sweep as usize % 2]).sum())
}
