//! A file that CPUs have cached by one large entry loses a page: what each sees after that.

use alloc::format;

use quietmm::addr::PAGE_SIZE;
use quietmm::{Advice, Backing, Entry, Error, PageNumber, PageRange, Prot, UserAccess};
use quietmm_workloads::Params;

use super::Sys;
use super::team::{Team, check};

/// The first page of a large entry.
const FIRST: PageNumber = PageNumber(0x10_0000);
const PAGES: u64 = 512;
/// The one that becomes a hole, and one that stays.
const HOLE: u64 = 300;
const STAYS: u64 = 7;

/// The entry becomes small, with no flush of its own, since its frames stay: the flush of the one page drops the large translation too. Without that flush CPUs go on
/// reading what the file had there.
pub fn loses_a_page(system: &Sys, params: &Params<'static>) -> Result<(), Error> {
    let space = system.mm.create_space()?;
    let file = system.mm.create_file(PAGES)?;
    let all = PageRange::new(FIRST, PAGES);
    let rounds = (48 / params.cpus).clamp(2, 6);
    let write = move |system: &Sys, page: u64, word: u64| {
        system.mm.file(file).write(page * PAGE_SIZE, &word.to_ne_bytes()).map(drop)
    };
    let lead = move |system: &Sys, team: &Team| {
        system.mm.space(space).map(all, Backing::File { file, offset: 0 }, Prot::Read)?;
        write(system, STAYS, u64::MAX)?;
        for round in 0..u64::from(rounds) {
            write(system, HOLE, 2 * round)?;
            system.mm.space(space).populate(all, UserAccess::Read)?;
            system.mm.space(space).advise(all, Advice::Collapse)?;
            let large = system.mm.space(space).lookup(FIRST)?.has(Entry::LARGE);
            check(system, large, || format!("round {round} shows nothing: the entry is small"));
            team.step(system);
            system.mm.file(file).punch_hole(HOLE * PAGE_SIZE, PAGE_SIZE)?;
            write(system, HOLE, 2 * round + 1)?;
            team.step(system);
        }
        Ok(())
    };
    Team::spawn(system, space, 2 * rounds, lead, |system, step| {
        for (page, holds) in [(HOLE, u64::from(step.number - 1)), (STAYS, u64::MAX)] {
            let seen = system.load(PageNumber(FIRST.0 + page).addr());
            check(system, seen == Ok(holds), || {
                format!("CPU {} found {seen:x?} instead of {holds:x} at page {page}", step.cpu)
            });
        }
        Ok(())
    });
    Ok(())
}
