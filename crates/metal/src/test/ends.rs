//! How the machine ends when something is wrong.

use alloc::string::String;

use quietmm::{CpuId, Error};
use quietmm_workloads::{Params, TaskKind};

use super::Sys;
use quietmm::platform::Cpus;

fn on_the_last(
    system: &Sys,
    params: &Params<'static>,
    body: impl FnOnce(&Sys) -> Result<(), Error> + 'static,
) -> Result<(), Error> {
    let space = system.mm.create_space()?;
    let last = CpuId(params.cpus as u16 - 1);
    system.spawn(String::from("victim"), TaskKind::User(space), last, body);
    Ok(())
}

/// A panic says where, on which CPU, and ends the machine.
pub fn panics(system: &Sys, params: &Params<'static>) -> Result<(), Error> {
    on_the_last(system, params, |system| panic!("as asked for, on {:?}", system.mm.platform().this_cpu()))
}

/// A task that runs over the end of its stack is stopped by the page below it.
pub fn overflow(system: &Sys, params: &Params<'static>) -> Result<(), Error> {
    fn deeper(depth: u64) -> u64 {
        let here = [core::hint::black_box(depth); 64];
        if depth == u64::MAX { 0 } else { deeper(depth + 1) + here[depth as usize % 64] }
    }
    on_the_last(system, params, |_| {
        core::hint::black_box(deeper(0));
        Ok(())
    })
}
