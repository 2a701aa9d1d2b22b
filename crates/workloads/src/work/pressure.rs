//! `no-pressure`: memory to spare. Nothing is reclaimed, so no policy of reclaim may make a difference.

use alloc::format;

use quietmm::{Error, PageNumber, Prot, UserAccess};

use super::{BASE, Params, READS_PER_PAGE, map_file, spaces};
use crate::machine::Machine;
use crate::system::System;
use crate::task::TaskKind;

const ROUNDS: u64 = 4;

/// A process per CPU, each with a file; all files together take half the memory.
pub fn none<M: Machine>(system: &System<'_, M>, params: &Params<'_>) -> Result<u64, Error> {
    let pages = (params.frames / 2 / u64::from(params.cpus)).max(1);
    for (cpu, space) in spaces(system, params.cpus)? {
        map_file(system, space, BASE, pages, Prot::Read)?;
        let delay = params.delay(cpu.0.into());
        system.spawn(format!("reader/{}", cpu.0), TaskKind::User(space), cpu, move |system| {
            system.mm.platform().compute(delay);
            for page in (0..ROUNDS).flat_map(|_| 0..pages) {
                system.access(PageNumber(BASE.0 + page).addr(), READS_PER_PAGE, UserAccess::Read)?;
                system.mm.platform().progressed(1);
            }
            Ok(())
        });
    }
    Ok(ROUNDS * pages * u64::from(params.cpus))
}
