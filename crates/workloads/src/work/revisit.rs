//! `revisit`: everything that can go wrong with a flush, in a small space. Threads of a few processes re-read and
//! write windows of files while memory is short, unmap windows under each other's feet and map them again, and
//! kernel threads make CPUs lazy in between. Nothing stale may ever be used; with a rule broken, it is.

use alloc::format;

use quietmm::{Backing, CpuId, Error, FileId, PageNumber, PageRange, Prot, SpaceId, UserAccess};
use rand_core::Rng;

use super::{BASE, Params};
use crate::machine::Machine;
use crate::system::System;
use crate::task::TaskKind;

/// Threads of a process.
const THREADS: u32 = 4;
/// Windows of a process, and pages in each.
const WINDOWS: u64 = 16;
/// Steps of a thread.
const STEPS: u64 = 20_000;

/// Processes of [`THREADS`] threads on neighbouring CPUs, and on each CPU a kernel thread that keeps it
/// lazy now and then.
pub fn set_up<M: Machine>(system: &System<'_, M>, params: &Params<'_>) -> Result<u64, Error> {
    let processes = params.cpus.div_ceil(THREADS);
    // All windows together are half as large again as the memory.
    let window = (params.frames * 3 / 2 / u64::from(processes) / WINDOWS).max(4);
    for process in 0..processes {
        let space = system.mm.create_space()?;
        let file = system.mm.create_file(WINDOWS * window)?;
        for index in 0..WINDOWS {
            show(&system.mm, space, file, index, window)?;
        }
        for thread in 0..THREADS {
            let cpu = process * THREADS + thread;
            if cpu < params.cpus {
                worker(system, params, CpuId(cpu as u16), space, file, window);
            }
        }
    }
    Ok(STEPS * u64::from(params.cpus))
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
    mm.map(space, range(index, window), backing, Prot::ReadWrite)
}

fn worker<M: Machine>(
    system: &System<'_, M>,
    params: &Params<'_>,
    cpu: CpuId,
    space: SpaceId,
    file: FileId,
    window: u64,
) {
    let mut rng = params.rng(cpu.0.into());
    system.spawn(format!("worker/{}", cpu.0), TaskKind::User(space), cpu, move |system| {
        let mut pick = |n: u64| rng.next_u64() % n;
        for _ in 0..STEPS {
            let index = pick(WINDOWS);
            match pick(64) {
                0 => {
                    // Another thread may have taken it away, or be about to put it back: both are in order.
                    match system.syscall(|mm| mm.unmap(space, range(index, window))) {
                        Ok(()) => system.syscall(|mm| show(mm, space, file, index, window))?,
                        Err(Error::NotMapped(_)) => {}
                        Err(other) => return Err(other),
                    }
                }
                1..=4 => system.nap(20_000 + pick(50_000)),
                choice => {
                    // A hot page of the window, again and again, so that its entry stays cached.
                    let page = if choice % 4 == 0 { pick(window) } else { pick(4) };
                    let at = PageNumber(range(index, window).start.0 + page).addr();
                    let access = if choice % 8 == 1 { UserAccess::Write } else { UserAccess::Read };
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
