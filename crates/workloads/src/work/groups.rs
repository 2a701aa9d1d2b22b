//! `groups`: what a limit is worth to the neighbours. Threads of one process look at hot pages of a file, of 3/8 of the memory, and
//! write to some; that is the neighbour, in a group of its own. Threads of another process sweep through files that are far larger than
//! the memory, without end, half of them writing.
//!
//! The neighbour does the same work three times: alone; beside the sweeps, whose group may have an eighth of the memory; and beside them when
//! their group may have whatever it likes. The third time shows what the second would be without groups;
//! it is eight times as long as the first, whatever it gets done.

use alloc::format;
use alloc::sync::Arc;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use quietmm::{Counter, CpuId, Error, GroupId, PageNumber, PageRange, Prot, SpaceId, UserAccess};
use rand_core::Rng;

use super::swap_threads::{Checked, part};
use super::turns::Turns;
use super::{BASE, Params, map_file};
use crate::latency::Tally;
use crate::machine::Machine;
use crate::system::System;
use crate::task::TaskKind;

/// Eighths of the memory that are hot, and that the group of the sweeps may have.
const HOT_EIGHTHS: u64 = 3;
const LIMIT_EIGHTHS: u64 = 1;
/// The least that the sweeps may have, for each of them.
const LEAST_LIMIT: u64 = 8;
/// A sweep goes through a file of so many times the memory, again and again.
const TIMES_MEMORY: u64 = 4;
/// Each thread of the neighbour looks so many times at one of its pages, for each that it has. Accesses of a look.
const LOOKS: u64 = 32;
const ACCESSES: u32 = 1024;
/// One look of so many is followed by a write.
const WRITES: u64 = 4;
/// Accesses of a sweep to a page, and how many pages there are to one question what its group is charged with.
const SWEEP_ACCESSES: u32 = 512;
const ASK: u64 = 64;
/// How long somebody sleeps who waits for the sweeps to have an effect.
const NAP_NS: u64 = 10_000;

/// A time that the neighbour works, and what is said of it.
struct Part {
    /// It is so many times as long as the first, whatever it gets done; `None` where it does all its work.
    times: Option<u64>,
    ns: Tally,
    ipis: Tally,
    lost: Tally,
}

const PARTS: [Part; 3] = [
    Part { times: None, ns: Tally::AloneNs, ipis: Tally::AloneIpis, lost: Tally::AloneLost },
    Part { times: None, ns: Tally::LimitedNs, ipis: Tally::LimitedIpis, lost: Tally::LimitedLost },
    Part { times: Some(8), ns: Tally::UnlimitedNs, ipis: Tally::UnlimitedIpis, lost: Tally::UnlimitedLost },
];

/// What tasks tell each other. Words of the host, which cost the machine nothing. Any ordering does: on a machine of many host
/// threads the turns order what one part leaves for the next.
struct Shared {
    turns: Turns,
    /// Threads of the neighbour that are not through with what comes before the next turn.
    working: AtomicU64,
    /// Interrupts that had been received when the part began.
    ipis: AtomicU64,
    /// Sweeps go on.
    sweeping: AtomicBool,
    over: AtomicBool,
    /// Pages swept while there was a limit, and the most that their group was charged with then.
    swept: AtomicU64,
    most: AtomicU64,
}

/// Both groups' spaces, and what is hot.
#[derive(Clone, Copy)]
struct Setting {
    neighbour: SpaceId,
    sweeping: SpaceId,
    group: GroupId,
    hot: PageRange,
    threads: u64,
}

impl Shared {
    fn new(threads: u64) -> Shared {
        Shared {
            turns: Turns::default(),
            working: AtomicU64::new(threads),
            ipis: AtomicU64::new(0),
            sweeping: AtomicBool::new(false),
            over: AtomicBool::new(false),
            swept: AtomicU64::new(0),
            most: AtomicU64::new(0),
        }
    }

    /// A thread of the neighbour is through with what comes before part `next`. The last one ends the part before, and begins this one;
    /// the others sleep until it has.
    fn meet<M: Machine>(&self, system: &System<'_, M>, setting: Setting, next: usize) -> Result<(), Error> {
        if self.working.fetch_sub(1, Relaxed) == 1 {
            self.working.store(setting.threads, Relaxed);
            if next > 0 {
                self.end(system, setting, &PARTS[next - 1])?;
            }
            self.begin(system, setting, next)?;
            self.ipis.store(system.mm.counter(Counter::IpisReceived), Relaxed);
            self.turns.next(system);
        }
        self.turns.wait(system, next as u32 + 1);
        Ok(())
    }

    /// Has the sweeps do what they do during a part, and waits until it shows.
    fn begin<M: Machine>(&self, system: &System<'_, M>, setting: Setting, part: usize) -> Result<(), Error> {
        let mm = &system.mm;
        match part {
            0 => {}
            1 => {
                self.sweeping.store(true, Relaxed);
                while mm.group(setting.group).usage()?.hits == 0 {
                    system.nap(NAP_NS);
                }
            }
            2 => {
                let before = mm.counter(Counter::KswapdWoken);
                mm.group(setting.group).set_limit(u64::MAX)?;
                while mm.counter(Counter::KswapdWoken) == before {
                    system.nap(NAP_NS);
                }
            }
            _ => self.over.store(true, Relaxed),
        }
        Ok(())
    }

    /// Says what there was in a part.
    fn end<M: Machine>(&self, system: &System<'_, M>, setting: Setting, part: &Part) -> Result<(), Error> {
        let (mm, m) = (&system.mm, system.mm.platform());
        m.tally(part.ipis, mm.counter(Counter::IpisReceived) - self.ipis.load(Relaxed));
        let mut stays = [0; 512];
        let mut lost = setting.hot.pages;
        for at in (0..setting.hot.pages).step_by(stays.len()) {
            let pages = (setting.hot.pages - at).min(stays.len() as u64);
            let range = PageRange::new(PageNumber(setting.hot.start.0 + at), pages);
            lost -= mm.space(setting.neighbour).residency(range, &mut stays[..pages as usize])?;
        }
        m.tally(part.lost, lost);
        Ok(())
    }

    /// A sweep has gone through some more pages.
    fn note<M: Machine>(&self, system: &System<'_, M>, group: GroupId, limit: u64) -> Result<(), Error> {
        let usage = system.mm.group(group).usage()?;
        if usage.limit == limit {
            self.swept.fetch_add(ASK, Relaxed);
            self.most.fetch_max(usage.charged, Relaxed);
        }
        Ok(())
    }
}

/// The neighbour on even CPUs, the sweeps on odd ones.
pub fn set_up<M: Machine>(system: &System<'_, M>, params: &Params<'_>) -> Result<u64, Error> {
    let mm = &system.mm;
    let cpus = u64::from(params.cpus);
    let (threads, sweeps) = (cpus.div_ceil(2), (cpus / 2).max(1));
    let pages = (params.frames * HOT_EIGHTHS / 8).max(threads);
    let limit = (params.frames * LIMIT_EIGHTHS / 8).max(LEAST_LIMIT * sweeps);
    let setting = Setting {
        neighbour: system.create_space()?,
        sweeping: system.create_space()?,
        group: mm.create_group(limit)?,
        hot: PageRange::new(BASE, pages),
        threads,
    };
    mm.space(setting.neighbour).set_group(Some(mm.create_group(u64::MAX)?))?;
    mm.space(setting.sweeping).set_group(Some(setting.group))?;
    map_file(system, setting.neighbour, BASE, pages, Prot::ReadWrite)?;
    let shared = Arc::new(Shared::new(threads));
    let checked = Arc::new(Checked::new(BASE, pages));
    for thread in 0..threads {
        let (checked, shared, rng) = (checked.clone(), shared.clone(), params.rng(thread as u32));
        let (own, cpu) = (part(pages, thread, threads), CpuId(2 * thread as u16));
        let name = format!("neighbour/{thread}");
        system.spawn(name, TaskKind::User(setting.neighbour), cpu, move |system| {
            neighbour(system, setting, &shared, &checked, own, rng)
        });
    }
    let file = TIMES_MEMORY * params.frames;
    for sweep in 0..sweeps {
        let shared = shared.clone();
        let prot = if sweep % 2 == 0 { Prot::Read } else { Prot::ReadWrite };
        let range = PageRange::new(PageNumber(BASE.0 + file.next_multiple_of(512) * sweep), file);
        map_file(system, setting.sweeping, range.start, file, prot)?;
        let cpu = CpuId(((2 * sweep + 1) % cpus) as u16);
        system.spawn(format!("sweep/{sweep}"), TaskKind::User(setting.sweeping), cpu, move |system| {
            while !shared.sweeping.load(Relaxed) {
                system.nap(NAP_NS);
            }
            let access = if prot == Prot::Read { UserAccess::Read } else { UserAccess::Write };
            for page in (0..file).cycle() {
                system.access(PageNumber(range.start.0 + page).addr(), SWEEP_ACCESSES, access)?;
                if page.is_multiple_of(ASK) {
                    shared.note(system, setting.group, limit)?;
                }
                if shared.over.load(Relaxed) {
                    break;
                }
            }
            if sweep == 0 {
                let m = system.mm.platform();
                m.tally(Tally::GroupLimit, limit);
                m.tally(Tally::GroupMost, shared.most.load(Relaxed));
                m.tally(Tally::GroupSwept, shared.swept.load(Relaxed));
            }
            Ok(())
        });
    }
    Ok(pages * PARTS.len() as u64)
}

/// A thread of the neighbour.
fn neighbour<M: Machine>(
    system: &System<'_, M>,
    setting: Setting,
    shared: &Shared,
    pages: &Checked,
    own: Range<u64>,
    mut rng: impl Rng,
) -> Result<(), Error> {
    let m = system.mm.platform();
    let all = LOOKS * (own.end - own.start);
    let mut alone = 0;
    for index in own.clone() {
        pages.write(system, index)?;
    }
    for (next, part) in PARTS.iter().enumerate() {
        shared.meet(system, setting, next)?;
        let begun = m.now().0;
        let mut looks = 0;
        let goes_on = |looks| match part.times {
            Some(times) => m.now().0 - begun < times * alone,
            None => looks < all,
        };
        while goes_on(looks) {
            for _ in 0..LOOKS {
                let index = own.start + rng.next_u64() % (own.end - own.start);
                system.access(pages.page(index).addr(), ACCESSES, UserAccess::Read)?;
                pages.look(system, index)?;
                if rng.next_u64().is_multiple_of(WRITES) {
                    pages.write(system, index)?;
                }
            }
            looks += LOOKS;
            m.progressed(1);
        }
        let ns = m.now().0 - begun;
        alone = if next == 0 { ns } else { alone };
        // How long all of it took, or would have taken.
        m.tally(part.ns, (u128::from(ns) * u128::from(all) / u128::from(looks)) as u64);
    }
    shared.meet(system, setting, PARTS.len())
}
