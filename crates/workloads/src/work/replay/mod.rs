//! `trace`: the replay of what real programs did.

mod accesses;
mod advice;
mod departures;
mod operations;
mod order;
mod plan;
mod space;
mod together;

#[cfg(test)]
mod tests;

use quietmm::Error;

use super::Params;
use crate::machine::Machine;
use crate::system::System;
use crate::trace::AnyTrace;

/// Makes the tasks that replay the trace.
pub fn set_up<'p, M: Machine>(system: &System<'p, M>, params: &Params<'p>) -> Result<u64, Error> {
    match params.trace {
        None => Ok(0),
        Some(AnyTrace::Accesses(trace)) => accesses::set_up(system, params, trace),
        Some(AnyTrace::Operations(recording)) => operations::set_up(system, &recording),
    }
}

/// User tasks that the replay of a trace makes on so many CPUs.
pub fn tasks(trace: &AnyTrace<'_>, cpus: u32) -> u32 {
    match trace {
        AnyTrace::Accesses(_) => cpus,
        AnyTrace::Operations(recording) => plan::seats(recording).count,
    }
}
