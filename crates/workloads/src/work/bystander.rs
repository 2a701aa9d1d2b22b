//! `tlb-bystander`: what batching costs those who are not concerned. Half the threads of one process use a small
//! hot set over and over, which fits the TLB; the other half read cold files, which are reclaimed. A flush of
//! one page leaves the hot set alone, a full flush makes the bystanders walk for all of it again.

use alloc::format;

use quietmm::{CpuId, Error, PageNumber, Prot, UserAccess};

use super::{BASE, Params, map_file, reader::reader};
use crate::machine::Machine;
use crate::system::System;
use crate::task::TaskKind;

/// Pages of a bystander's hot set.
const HOT: u64 = 64;
/// Accesses to one page before the next.
const ACCESSES: u32 = 16;
/// The cold files are this many times the memory, together.
const TIMES_MEMORY: u64 = 4;

/// One process; odd CPUs read cold files, even ones are bystanders until the readers are done.
pub fn set_up<M: Machine>(system: &System<'_, M>, params: &Params<'_>) -> Result<u64, Error> {
    let space = system.create_space()?;
    let readers = (params.cpus / 2).max(1);
    let pages = TIMES_MEMORY * params.frames / u64::from(readers);
    let stride = (pages + 1).next_multiple_of(512);
    for cpu in 0..params.cpus {
        let at = PageNumber(BASE.0 + stride * u64::from(cpu));
        let here = CpuId(cpu as u16);
        if cpu % 2 == 1 || params.cpus == 1 {
            reader(system, params, here, space, at, pages)?;
            continue;
        }
        map_file(system, space, at, HOT, Prot::Read)?;
        system.spawn(format!("bystander/{cpu}"), TaskKind::Background(space), here, move |system| {
            loop {
                for page in 0..HOT {
                    system.access(PageNumber(at.0 + page).addr(), ACCESSES, UserAccess::Read)?;
                }
                system.mm.platform().counted(HOT * u64::from(ACCESSES));
            }
        });
    }
    Ok(pages * u64::from(readers))
}
