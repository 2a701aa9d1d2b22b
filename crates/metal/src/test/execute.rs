//! Code and data: the hardware executes what the core says may be executed, and nothing else.

use alloc::format;

use quietmm::{Backing, Error, PageNumber, PageRange, Prot, UserAccess};
use quietmm_workloads::Params;

use super::Sys;
use super::team::{Team, check};
use crate::user;

const PAGE: PageNumber = PageNumber(0x10_0000);

fn rounds(cpus: u32) -> u32 {
    (96 / cpus).clamp(2, 8)
}

/// A program writes code, which no CPU executes as long as it is data: an error of the program's. As code all execute it, and once it is data
/// again nobody does. With the flush left out CPUs go on executing what they have cached.
pub fn rights(system: &Sys, params: &Params<'static>) -> Result<(), Error> {
    let space = system.mm.create_space()?;
    let rounds = rounds(params.cpus);
    let page = PageRange::new(PAGE, 1);
    let lead = move |system: &Sys, team: &Team| {
        system.mm.space(space).map(page, Backing::Anonymous, Prot::ReadWrite)?;
        for round in 0..rounds {
            system.store(PAGE.addr(), user::code(round))?;
            team.step(system);
            system.mm.space(space).protect(page, Prot::ReadExecute)?;
            team.step(system);
            let stored = system.store(PAGE.addr(), 0);
            check(system, stored == Err(Error::NotPermitted(PAGE)), || {
                format!("a write to code: {stored:x?}")
            });
            system.mm.space(space).protect(page, Prot::ReadWrite)?;
        }
        Ok(())
    };
    Team::spawn(system, space, 2 * rounds, lead, |system, step| {
        let (seen, round) = (user::execute(PAGE.addr()), (step.number - 1) / 2);
        let is_code = step.number % 2 == 0;
        let expected = if is_code { Ok(u64::from(round)) } else { Err(Error::NotPermitted(PAGE)) };
        check(system, seen == expected, || {
            format!("CPU {} executed {seen:x?} instead of {expected:x?} in round {round}", step.cpu)
        });
        // It may always be read.
        system.access(PAGE.addr(), 1, UserAccess::Read)
    });
    Ok(())
}
