//! `revisit`: everything that can go wrong with a flush, in a small space. Threads of a few processes re-read and
//! write windows of files while memory is short, unmap hot pages under each other's feet and map them again; two
//! processes share each CPU, and naps make CPUs lazy in between. Nothing stale may ever be used, and no
//! write may be lost; with a rule broken, it is.

use alloc::format;

use quietmm::{Backing, CpuId, Error, FileId, PageNumber, PageRange, Prot, SpaceId, UserAccess};
use rand_core::Rng;

use super::{BASE, Params};
use crate::machine::Machine;
use crate::system::System;
use crate::task::TaskKind;

/// Threads of a process.
const THREADS: u32 = 8;
/// Windows of a process, and pages in each.
const WINDOWS: u64 = 16;
/// Steps of a thread.
const STEPS: u64 = 100_000;
/// Of 512 steps of a thread so many are an unmap, in a stormy process, and so many a nap, in any but on the first
/// CPU.
const STORM: u64 = 8;
const NAPS: u64 = 64;
/// Windows with hot pages: few, so that a page that is unmapped is soon looked for.
const HOT_WINDOWS: u64 = 2;
/// Hot pages of such a window.
const HOT: u64 = 4;

/// Processes of [`THREADS`] threads, and two threads on each CPU: each CPU goes back and forth between two
/// spaces, and each space is used by several CPUs.
pub fn set_up<M: Machine>(system: &System<'_, M>, params: &Params<'_>) -> Result<u64, Error> {
    let processes = (2 * params.cpus).div_ceil(THREADS);
    // All windows together are half as large again as the memory.
    let window = (params.frames * 3 / 2 / u64::from(processes) / WINDOWS).max(4);
    for process in 0..processes {
        let space = system.create_space()?;
        let file = system.mm.create_file(WINDOWS * window)?;
        for index in 0..WINDOWS {
            show(&system.mm, space, file, index, window)?;
        }
        for thread in 0..THREADS {
            let index = process * THREADS + thread;
            if index < 2 * params.cpus {
                let cpu = CpuId((index % params.cpus) as u16);
                worker(system, params, (process, index), cpu, space, file, window);
            }
        }
    }
    Ok(STEPS * 2 * u64::from(params.cpus))
}

fn range(index: u64, window: u64) -> PageRange {
    PageRange::new(PageNumber(BASE.0 + index * window), window)
}

fn show<M: Machine>(
    mm: &quietmm::Manager<'_, M>,
    space: SpaceId,
    file: FileId,
    index: u64,
    window: u64,
) -> Result<(), Error> {
    let backing = Backing::File { file, offset: index * window };
    mm.space(space).map(range(index, window), backing, Prot::ReadWrite)
}

fn worker<M: Machine>(
    system: &System<'_, M>,
    params: &Params<'_>,
    (process, task): (u32, u32),
    cpu: CpuId,
    space: SpaceId,
    file: FileId,
    window: u64,
) {
    let mut rng = params.rng(task);
    system.spawn(format!("worker/{task}"), TaskKind::User(space), cpu, move |system| {
        let mut pick = |n: u64| rng.next_u64() % n;
        // Whoever naps is flushed when it comes back. On the first CPU nobody does: what it has cached stays so for
        // a whole slice, long enough for reclaim to take the page away.
        let naps = if cpu.0 == 0 { 0 } else { NAPS };
        for _ in 0..STEPS {
            let index = pick(HOT_WINDOWS);
            // Every other process is calm: nothing but memory pressure flushes its pages.
            let unmaps = if process % 2 == 1 { STORM } else { 0 };
            match pick(512) {
                choice if choice < unmaps => {
                    // Another thread may have taken it away, or be about to put it back: both are in order.
                    let hot = PageRange::new(range(index, window).start, HOT);
                    let backing = Backing::File { file, offset: index * window };
                    match system.syscall(|mm| mm.space(space).unmap(hot)) {
                        Ok(()) => system.syscall(|mm| mm.space(space).map(hot, backing, Prot::ReadWrite))?,
                        Err(Error::NotMapped(_)) => {}
                        Err(other) => return Err(other),
                    }
                }
                choice if choice < unmaps + naps => system.nap(1_000 + pick(10_000)),
                choice => {
                    // Any page, to keep memory short, or a hot one, whose entry stays cached meanwhile.
                    let cold = choice % 2 == 0;
                    let page = if cold { pick(WINDOWS * window) } else { index * window + pick(HOT) };
                    let at = PageNumber(BASE.0 + page).addr();
                    let access = if choice % 16 == 1 { UserAccess::Write } else { UserAccess::Read };
                    match system.access(at, 64, access) {
                        Ok(()) | Err(Error::NotMapped(_)) => {}
                        Err(other) => return Err(other),
                    }
                }
            }
            system.mm.platform().progressed(1);
        }
        Ok(())
    });
}
