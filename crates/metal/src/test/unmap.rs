//! A page that all CPUs have cached is unmapped: what each sees after that, and how many were interrupted.

use alloc::format;

use quietmm::{Backing, Counter, Error, PageNumber, PageRange, Prot};
use quietmm_workloads::Params;

use super::Sys;
use super::team::{Team, check};

const PAGE: PageNumber = PageNumber(0x10_0000);

fn rounds(cpus: u32) -> u32 {
    (96 / cpus).clamp(2, 8)
}

/// After an unmap nobody reads the page any more. Without the flush CPUs go on reading the old frame: this emulator, like
/// the hardware, does show stale entries. Each unmap interrupts each other CPU once.
pub fn stale(system: &Sys, params: &Params<'static>) -> Result<(), Error> {
    let space = system.mm.create_space()?;
    let rounds = rounds(params.cpus);
    let lead = move |system: &Sys, team: &Team| {
        for round in 0..rounds {
            let page = PageRange::new(PAGE, 1);
            system.mm.space(space).map(page, Backing::Anonymous, Prot::ReadWrite)?;
            system.store(PAGE.addr(), round.into())?;
            team.step(system);
            let before = system.mm.counter(Counter::IpisSent);
            system.mm.space(space).unmap(page)?;
            let sent = system.mm.counter(Counter::IpisSent) - before;
            check(system, sent == u64::from(team.followers), || {
                format!("an unmap interrupted {sent} CPUs, and {} had the page", team.followers)
            });
            team.step(system);
        }
        Ok(())
    };
    Team::spawn(system, space, 2 * rounds, lead, |system, step| {
        let seen = system.load(PAGE.addr());
        let round = u64::from((step.number - 1) / 2);
        let expected = if step.number % 2 == 1 { Ok(round) } else { Err(Error::NotMapped(PAGE)) };
        check(system, seen == expected, || {
            format!("CPU {} found {seen:x?} instead of {expected:x?} in round {round}", step.cpu)
        });
        Ok(())
    });
    Ok(())
}

/// What the hardware guarantees, seen with the flush left out (`break=flush-before-unmap-returns`): a page of a file is
/// cached clean, and unmapped. It can still be read, but a write walks again and faults.
pub fn clean_write(system: &Sys, params: &Params<'static>) -> Result<(), Error> {
    writes_after_unmap(system, params, false)
}

/// The same with pages that each CPU has written to before: its write goes through, silently. The control of the one
/// above, which must fail.
pub fn dirty_write(system: &Sys, params: &Params<'static>) -> Result<(), Error> {
    writes_after_unmap(system, params, true)
}

fn writes_after_unmap(system: &Sys, params: &Params<'static>, dirty: bool) -> Result<(), Error> {
    let space = system.mm.create_space()?;
    let cpus = u64::from(params.cpus);
    let file = system.mm.create_file(cpus)?;
    let all = PageRange::new(PAGE, cpus);
    let lead = move |system: &Sys, team: &Team| {
        for _ in 0..4 {
            system.mm.space(space).map(all, Backing::File { file, offset: 0 }, Prot::ReadWrite)?;
            team.step(system);
            system.mm.space(space).unmap(all)?;
            team.step(system);
        }
        Ok(())
    };
    Team::spawn(system, space, 8, lead, move |system, step| {
        let mine = PageNumber(PAGE.0 + u64::from(step.cpu)).addr();
        if step.number % 2 == 1 {
            if dirty {
                system.store(mine, 1)?;
            }
            return system.load(mine).map(drop);
        }
        let (read, written) = (system.load(mine), system.store(mine, 2));
        check(system, read.is_ok(), || {
            format!("CPU {} has no stale entry: the test shows nothing", step.cpu)
        });
        check(system, written.is_err(), || {
            format!("CPU {} wrote through a page that is not there", step.cpu)
        });
        Ok(())
    });
    Ok(())
}
