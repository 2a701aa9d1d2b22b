//! Accesses: each CPU replays them against its own mapping of its own file, and memory is too small for all of them.

use alloc::format;

use quietmm::{Error, PageNumber, Prot, UserAccess};

use super::super::{BASE, Params, map_file, spaces};
use crate::machine::Machine;
use crate::system::System;
use crate::task::TaskKind;
use crate::trace::Trace;

/// A process per CPU. Writes of the program are writes to its file: dirty pages go to the device.
pub fn set_up<'p, M: Machine>(
    system: &System<'p, M>,
    params: &Params<'p>,
    trace: Trace<'p>,
) -> Result<u64, Error> {
    let header = trace.header();
    for (cpu, space) in spaces(system, params.cpus)? {
        map_file(system, space, BASE, header.span.max(1), Prot::ReadWrite)?;
        let delay = params.delay(cpu.0.into());
        system.spawn(format!("replay/{}", cpu.0), TaskKind::User(space), cpu, move |system| {
            system.mm.platform().compute(delay);
            for record in trace.records() {
                let at = PageNumber(BASE.0 + u64::from(record.page)).addr();
                if record.reads > 0 {
                    system.access(at, record.reads, UserAccess::Read)?;
                }
                if record.writes > 0 {
                    system.access(at, record.writes, UserAccess::Write)?;
                }
                system.mm.platform().progressed(1);
            }
            Ok(())
        });
    }
    Ok(header.totals.records * u64::from(params.cpus))
}
