//! `lru-file-mmap-read` of vm-scalability: every CPU maps its own sparse file of 10 x memory / CPUs and reads
//! it once, in order, 8 bytes at a time. Nothing is used twice, so all that reclaim does is overhead.

use alloc::format;

use quietmm::{CpuId, Error, PageNumber, Prot, SpaceId, UserAccess};

use super::{BASE, Params, READS_PER_PAGE, map_file, spaces};
use crate::machine::Machine;
use crate::system::System;
use crate::task::TaskKind;

/// Files are this many times the memory, together.
const TIMES_MEMORY: u64 = 10;

/// A process per CPU.
pub fn processes<M: Machine>(system: &System<'_, M>, params: &Params<'_>) -> Result<u64, Error> {
    let pages = TIMES_MEMORY * params.frames / u64::from(params.cpus);
    for (cpu, space) in spaces(system, params.cpus)? {
        reader(system, params, cpu, space, BASE, pages)?;
    }
    Ok(pages * u64::from(params.cpus))
}

/// One process, a thread per CPU, each with its own file: every CPU may hold every page.
pub fn threads<M: Machine>(system: &System<'_, M>, params: &Params<'_>) -> Result<u64, Error> {
    let pages = TIMES_MEMORY * params.frames / u64::from(params.cpus);
    let space = system.create_space()?;
    // Page tables of different threads lie apart.
    let stride = (pages + 1).next_multiple_of(512);
    for cpu in 0..params.cpus {
        let at = PageNumber(BASE.0 + stride * u64::from(cpu));
        reader(system, params, CpuId(cpu as u16), space, at, pages)?;
    }
    Ok(pages * u64::from(params.cpus))
}

/// A task that reads a file of its own once.
pub(super) fn reader<M: Machine>(
    system: &System<'_, M>,
    params: &Params<'_>,
    cpu: CpuId,
    space: SpaceId,
    at: PageNumber,
    pages: u64,
) -> Result<(), Error> {
    let file = map_file(system, space, at, pages, Prot::Read)?;
    let delay = params.delay(cpu.0.into());
    system.spawn(format!("reader/{}", cpu.0), TaskKind::User(space), cpu, move |system| {
        system.mm.platform().compute(delay);
        for page in 0..pages {
            let here = PageNumber(at.0 + page).addr();
            system.access(here, READS_PER_PAGE, UserAccess::Read)?;
            system.mm.platform().shows(here, file, page);
            system.mm.platform().progressed(1);
        }
        Ok(())
    });
    Ok(())
}
