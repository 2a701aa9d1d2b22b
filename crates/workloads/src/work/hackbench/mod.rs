//! `hackbench-oom`: more processes than fit in memory, and a kernel that ends some of them until the rest fits.
//!
//! Groups of 20 senders and 20 receivers, as hackbench makes them: each sender writes 100 rounds of one message of 100
//! bytes to each receiver of its group. A parent makes the processes one after another (`parent`), each touches what it
//! has of its own (`process`), and once all are there they begin to pass messages through bounded queues (`socket`). When
//! nothing is left to reclaim, the core asks for a victim (`victims`).
//!
//! What takes memory: a process its kernel stack, page tables and pages; a message its socket buffer, allocated on the
//! sender's CPU and freed on the receiver's. So frames move between CPUs while all of them are short of frames.
//!
//! **How many.** A group for each 10.2 MiB of memory, so 400 on a machine of 4 GiB: what they want at least is a ninth more
//! than there is. A machine needs half a MiB for each CPU to begin with, for which there are two processes: every CPU takes
//! part, on any machine. Rounds are fewer where there are so many groups that four million messages are passed with less.

mod group;
mod process;
mod socket;
mod victims;

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use quietmm::platform::WaitKey;
use quietmm::{CpuId, Error, PageNumber, PageRange, Prot, SpaceId, UserAccess};

use self::group::Group;
use self::process::{Cradle, Newborn};
use self::victims::Victims;
use super::{BASE, Params, READS_PER_PAGE, map_file};
use crate::guarded::Guarded;
use crate::latency::Tally;
use crate::machine::Machine;
use crate::system::System;
use crate::task::TaskKind;

/// Processes of a group: the receivers come first.
const RECEIVERS: u32 = 20;
const SENDERS: u32 = 20;
const MEMBERS: u32 = RECEIVERS + SENDERS;
/// Frames of memory for which there is a group: 400 groups in 4 GiB.
const FRAMES_PER_GROUP: u64 = 2622;
/// Rounds of messages, as many as hackbench's by default, and the fewest.
const ROUNDS: u32 = 100;
const FEWEST_ROUNDS: u32 = 10;
/// Messages that all groups together pass, about, with more groups than 104.
const MESSAGES: u32 = 1 << 22;
/// Pages of its own that a process touches: its heap, with what a fork leaves to be copied of the program and its
/// library (an assumption: some 240 KiB with the stack), and its stack.
const HEAP_PAGES: u64 = 54;
const STACK_PAGES: u64 = 6;
/// The stack lies at the other end of the space, and has page tables of its own.
const STACK: PageNumber = PageNumber(PageNumber::USER_END.0 - 64);
/// This part of the memory holds cached pages of files when the parent begins: what reclaim finds.
const CACHED: u64 = 4;
/// One process in so many CPUs may be on its way out at once. With 8 CPUs that is one, as on Linux; thousands of CPUs
/// would wait for seconds on end.
const CPUS_PER_VICTIM: u32 = 8;

/// All there is to know.
struct World {
    groups: Vec<Group>,
    cradles: Vec<Guarded<Option<Cradle>>>,
    victims: Victims,
    rounds: u32,
    /// Nodes whose files are not cached yet.
    uncached: AtomicU32,
    /// Processes that have been made and have not touched all their pages yet.
    unready: AtomicU32,
    started: AtomicBool,
}

/// What a process waits for. Apart from naps, turns, devices and CPUs that go and come.
fn key(process: u32) -> WaitKey {
    WaitKey::Own(1 << 62 | u64::from(process))
}

/// What the parent waits for.
fn parents_key() -> WaitKey {
    key(u32::MAX)
}

const fn groups(cpus: u32, frames: u64) -> u32 {
    let (fit, least) = (frames.div_ceil(FRAMES_PER_GROUP) as u32, cpus.div_ceil(MEMBERS));
    if fit < least { least } else { fit }
}

/// All processes, the parent, and who caches files on each node.
pub const fn tasks(cpus: u32, frames: u64) -> u32 {
    groups(cpus, frames) * MEMBERS + 1 + cpus
}

/// Makes the tasks; all but the parent and those who cache files sleep until they are made as processes.
pub fn set_up<'p, M: Machine>(system: &System<'p, M>, params: &Params<'_>) -> Result<u64, Error> {
    let m = system.mm.platform();
    let groups = groups(params.cpus, params.frames);
    let processes = groups * MEMBERS;
    let rounds = (MESSAGES / (groups * SENDERS * RECEIVERS)).clamp(FEWEST_ROUNDS, ROUNDS);
    let mut homes: Vec<CpuId> = (0..params.cpus).map(|cpu| CpuId(cpu as u16)).collect();
    homes.dedup_by_key(|&mut cpu| m.node_of(cpu));
    let world = Arc::new(World {
        groups: (0..groups).map(|_| Group::new()).collect(),
        cradles: (0..processes).map(|_| Guarded::new(None)).collect(),
        victims: Victims::new(processes, params.cpus.div_ceil(CPUS_PER_VICTIM)),
        rounds,
        uncached: AtomicU32::new(homes.len() as u32),
        unready: AtomicU32::new(0),
        started: AtomicBool::new(false),
    });
    for tally in [Tally::GroupsCompleted, Tally::ProcessesKilled, Tally::ForksFailed, Tally::Messages] {
        m.tally(tally, 0);
    }

    let cached = (params.frames / CACHED / homes.len() as u64).max(1);
    for &home in &homes {
        let space = system.create_space()?;
        let file = PageRange::new(BASE, cached);
        map_file(system, space, BASE, cached, Prot::Read)?;
        let world = world.clone();
        system.spawn(format!("cache/{}", home.0), TaskKind::User(space), home, move |system| {
            world.cache(system, space, file)
        });
    }
    // Where processes are between two spaces: before they have one, and after.
    let nowhere = system.create_space()?;
    let (parent, delay) = (world.clone(), params.delay(0));
    system.spawn("hackbench".into(), TaskKind::User(nowhere), CpuId(0), move |system| {
        system.mm.platform().compute(delay);
        parent.make_all(system);
        Ok(())
    });
    let mut first = None;
    for process in 0..processes {
        let own = world.clone();
        let (group, member) = (process / MEMBERS, process % MEMBERS);
        let name = match member.checked_sub(RECEIVERS) {
            None => format!("receiver/{group}/{member}"),
            Some(sender) => format!("sender/{group}/{sender}"),
        };
        let home = CpuId((process % params.cpus) as u16);
        let id = system.spawn_asleep(name, TaskKind::User(nowhere), home, key(process), move |system| {
            own.live(system, process)
        });
        first.get_or_insert(id.0);
    }
    let first = first.unwrap_or(0);
    system.pick_victims(move |system, _| {
        // Neither the parent, nor who caches files, nor a task of the kernel is a process of a group.
        let caller = system.current().0.checked_sub(first).filter(|&process| process < processes);
        world.victims.pick(system, caller)
    });
    let pages = u64::from(processes) * (HEAP_PAGES + STACK_PAGES);
    let messages = u64::from(rounds * groups) * u64::from(SENDERS * RECEIVERS);
    Ok(cached * homes.len() as u64 + pages + messages)
}

impl World {
    /// Reads a file once, so that its pages are cached, and lets it go.
    fn cache<M: Machine>(
        &self,
        system: &System<'_, M>,
        space: SpaceId,
        file: PageRange,
    ) -> Result<(), Error> {
        let read = (file.start.0..file.end().0).try_for_each(|page| {
            system.mm.platform().progressed(1);
            system.access(PageNumber(page).addr(), READS_PER_PAGE, UserAccess::Read)
        });
        let gone = system.syscall(|mm| mm.space(space).unmap(file));
        if self.uncached.fetch_sub(1, Ordering::AcqRel) == 1 {
            system.mm.platform().wake(parents_key());
        }
        match read {
            // As much as there was room for.
            Err(Error::OutOfMemory) => gone,
            read => read.and(gone),
        }
    }

    /// The parent: makes one process after another, waits until all are ready, and lets them begin.
    fn make_all<M: Machine>(&self, system: &System<'_, M>) {
        let m = system.mm.platform();
        m.wait(parents_key(), &mut || self.uncached.load(Ordering::Acquire) == 0);
        let processes = 0..self.cradles.len() as u32;
        for process in processes.clone() {
            match Newborn::make(system) {
                Ok(newborn) => {
                    self.unready.fetch_add(1, Ordering::Relaxed);
                    self.victims.is_born(process);
                    self.lay(system, process, Cradle::Made(newborn));
                }
                Err(_) => {
                    m.tally(Tally::ForksFailed, 1);
                    self.lay(system, process, Cradle::Empty);
                }
            }
        }
        m.wait(parents_key(), &mut || self.unready.load(Ordering::Acquire) == 0);
        // Release: partner of the Acquire in `live`.
        self.started.store(true, Ordering::Release);
        processes.for_each(|process| m.wake(key(process)));
    }

    fn lay<M: Machine>(&self, system: &System<'_, M>, process: u32, found: Cradle) {
        self.cradles[process as usize].with(&system.mm, |cradle| *cradle = Some(found));
        system.mm.platform().wake(key(process));
    }

    fn group(&self, process: u32) -> &Group {
        &self.groups[(process / MEMBERS) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_gibibytes_make_400_groups_and_every_cpu_has_a_process() {
        assert_eq!(groups(8, 1 << 20), 400);
        for cpus in [1, 8, 48, 512, 4096] {
            // What a machine of so many CPUs has at least.
            let frames = 128 * u64::from(cpus);
            assert!(groups(cpus, frames) * MEMBERS >= cpus, "{cpus} CPUs");
        }
    }
}
