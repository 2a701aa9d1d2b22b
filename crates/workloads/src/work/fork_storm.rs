//! `fork-storm`: processes that fork again and again while their other threads go on writing. Each fork takes the right
//! to write from all that the process has, and flushes it from every CPU that runs one of its threads; each first write
//! after it copies a page, or finds that the child has gone.

use alloc::format;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use quietmm::{Backing, CpuId, Error, PageNumber, PageRange, Prot, SpaceId, UserAccess};
use rand_core::Rng;

use super::{BASE, Params, timed};
use crate::latency::Op;
use crate::machine::Machine;
use crate::system::System;
use crate::task::TaskKind;

/// Threads of a process, each on a CPU of its own: one forks, the others write.
const THREADS: u32 = 4;
/// Forks, all processes together; at least [`LEAST`] each.
const FORKS: u32 = 4096;
const LEAST: u32 = 4;
/// The largest process, in pages. All together, with the copies of their children, take at most a quarter of the memory.
const LARGEST: u64 = 1024;
/// A child writes to one page in so many.
const SPARSE: u64 = 4;
/// User accesses that a writer does to each page.
const ACCESSES: u32 = 64;

/// A process for every four CPUs.
pub fn set_up<M: Machine>(system: &System<'_, M>, params: &Params<'_>) -> Result<u64, Error> {
    let processes = params.cpus.div_ceil(THREADS);
    let forks = (FORKS / processes).clamp(LEAST, 256);
    let pages = (params.frames / 8 / u64::from(processes)).clamp(1, LARGEST);
    for process in 0..processes {
        let space = system.create_space()?;
        let range = PageRange::new(BASE, pages);
        system.mm.space(space).map(range, Backing::Anonymous, Prot::ReadWrite)?;
        let over = Arc::new(AtomicBool::new(false));
        let cpus = process * THREADS..((process + 1) * THREADS).min(params.cpus);
        for cpu in cpus.clone() {
            let (over, mut rng, delay) = (over.clone(), params.rng(cpu), params.delay(cpu));
            let forks = if cpu == cpus.start { forks } else { 0 };
            let name = format!("{}/{cpu}", if forks > 0 { "forker" } else { "writer" });
            system.spawn(name, TaskKind::User(space), CpuId(cpu as u16), move |system| {
                let m = system.mm.platform();
                m.compute(delay);
                for _ in 0..forks {
                    fork_once(system, space, range)?;
                    m.progressed(pages);
                }
                if forks > 0 {
                    over.store(true, Ordering::Relaxed);
                }
                while !over.load(Ordering::Relaxed) {
                    let page = PageNumber(range.start.0 + rng.next_u64() % range.pages);
                    system.access(page.addr(), ACCESSES, UserAccess::Write)?;
                }
                Ok(())
            });
        }
    }
    Ok(u64::from(forks) * u64::from(processes) * pages)
}

/// The process writes to all its pages, forks, and the child writes to some and ends.
fn fork_once<M: Machine>(system: &System<'_, M>, space: SpaceId, range: PageRange) -> Result<(), Error> {
    let all = || (range.start.0..range.end().0).map(PageNumber);
    all().try_for_each(|page| system.access(page.addr(), 1, UserAccess::Write))?;
    let child = timed(system, Op::Fork, range.pages, || system.syscall(|mm| mm.space(space).fork()))?;
    let worked = system.run_in(child, || {
        all().step_by(SPARSE as usize).try_for_each(|page| {
            timed(system, Op::Copy, 1, || system.access(page.addr(), 1, UserAccess::Write))
        })
    });
    timed(system, Op::Exit, range.pages, || system.end_space(child))?;
    worked
}
