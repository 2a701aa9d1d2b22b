//! `churn`: everything at once. Threads of several processes map, write, read, protect, move, drop, fork, migrate and
//! write back, while memory is short and CPUs leave and return. Each thread owns some addresses and some pages of a file
//! that all share; it knows what it left there, and checks it; others look too, and must see what was there at some time
//! while they looked.
//!
//! `swap-churn` is the same on a machine that swaps: each thread has a heap besides, all heaps together are twice the memory
//! that is left for programs, and what a device has lost is given up, page by page.

mod check;
mod file;
mod fork;
mod heap;
mod large;
mod ledger;
mod life;
mod own;

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use quietmm::{
    AllocFrom, Backing, CpuId, Error, FileId, Frames, NodeId, PageNumber, PageRange, Prot, SpaceId,
};
use rand_xoshiro::Xoshiro256StarStar;

use self::ledger::{Ledger, State};
use super::Params;
use crate::guarded::Guarded;
use crate::machine::Machine;
use crate::system::System;
use crate::task::TaskKind;

/// Steps of a thread, and those of the first one before which a CPU leaves, and returns.
const STEPS: u64 = 160;
const LEAVES: u64 = 60;
const RETURNS: u64 = 90;
/// Addresses that a thread owns.
const SLOTS: u64 = 32;
/// Pages of the shared file that a thread owns.
const OWN: u64 = 4;
/// Where threads have their addresses, side by side; where the shared file is; where large pages are, per thread.
const ARENAS: u64 = 0x10_0000;
const SHARED: u64 = 0x20_0000;
const LARGE: u64 = 0x40_0000;
/// Where threads have their heaps, far apart.
const HEAP: u64 = 0x80_0000;
/// Pages of the file that private mappings show.
const PLAIN: u64 = 64;
/// Cold pages that are read together, and looks of a thread that lingers.
const COLD: u64 = 16;
const LOOKS: u64 = 40;
/// The fewest and most CPUs that take part.
const FEWEST: u64 = 2;
const MOST: u64 = 16;

/// With or without swap.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `churn`.
    Plain,
    /// `swap-churn`.
    Swap,
}

/// What all threads know.
struct World {
    /// The file that all share, and what its owned pages show: the first ones, a thread's side by side.
    file: FileId,
    pages: u64,
    owned: Guarded<Ledger>,
    /// The file that private mappings show: page `i` holds `plain(i)`.
    plain: FileId,
    cpus: u64,
    nodes: u64,
    threads: u64,
    /// Pages of each thread's heap; 0 without swap.
    heap: u64,
    /// Thread 0 has put things in their places.
    ready: Guarded<bool>,
}

/// What the threads of a process know.
struct Process {
    space: SpaceId,
    arenas: Guarded<Ledger>,
    threads: u64,
    /// Nothing but reclaim takes its pages away: what its CPUs have cached stays so for long.
    calm: bool,
}

struct Thread<'s, 'p, M: Machine> {
    system: &'s System<'p, M>,
    world: Arc<World>,
    process: Arc<Process>,
    rng: Xoshiro256StarStar,
    /// Among all, and in its process.
    index: u64,
    place: u64,
    written: u64,
    /// What each page of its heap holds.
    heap: Vec<u64>,
}

/// Frames that are left for programs where memory is short.
const SPARE: u64 = 256;
const SPARE_PER_CPU: u64 = 96;
/// All heaps together are so many times that.
const HEAPS: u64 = 2;

/// Frames for the kernel's own use, for good.
fn take_all_but<M: Machine>(system: &System<'_, M>, nodes: u64, spare: u64) {
    let mm = &system.mm;
    // From all nodes alike. What is on this CPU's lists after that goes back to where all find it.
    for node in (0..nodes).cycle() {
        let from = AllocFrom { node: Some(NodeId(node as u16)), may_reclaim: false };
        if mm.frames().available() + mm.frames().on_lists() <= spare
            || mm.frames().alloc(0, from).map(Frames::into_raw).is_err()
        {
            return mm.frames().drain_here();
        }
    }
}

fn plain(page: u64) -> u64 {
    0xf11e_0000_0000_0000 | page
}

/// Threads on 2 to 16 of the machine's CPUs, as the seed says; the others are offline from the start.
pub fn set_up<M: Machine>(system: &System<'_, M>, params: &Params<'_>, kind: Kind) -> Result<u64, Error> {
    let most = MOST.min(params.cpus.into());
    let cpus = (FEWEST + params.seed % (MOST - FEWEST + 1)).min(most);
    let threads = 2 * cpus;
    let processes = 1 + cpus.div_ceil(4);
    // Larger than the memory, so that pages come and go.
    let pages = params.frames * 3 / 2;
    let node_of = |cpu: u32| u64::from(system.mm.platform().node_of(CpuId(cpu as u16)).0);
    let nodes = (0..params.cpus).map(node_of).max().unwrap_or(0) + 1;
    // Three seeds of four have no memory to spare; the fourth has, for large pages. With swap it is one of sixteen.
    let (spare, every) = (SPARE + SPARE_PER_CPU * cpus, if kind == Kind::Swap { 16 } else { 4 });
    if !params.seed.is_multiple_of(every) {
        // Below the watermark nobody gets a frame.
        let min = system.mm.config().min_free.map_or(0, u64::from);
        take_all_but(system, nodes, min + spare);
    }
    let world = Arc::new(World {
        file: system.mm.create_file(pages)?,
        pages,
        owned: Guarded::new(Ledger::new(
            (threads * OWN) as usize,
            State { prot: Some(Prot::ReadWrite), ..State::GONE },
        )),
        plain: system.mm.create_file(PLAIN)?,
        cpus,
        nodes,
        threads,
        heap: if kind == Kind::Swap { HEAPS * spare / threads } else { 0 },
        ready: Guarded::new(false),
    });
    for process in 0..processes {
        let space = system.create_space()?;
        let backing = Backing::File { file: world.file, offset: 0 };
        system.mm.space(space).map(PageRange::new(PageNumber(SHARED), pages), backing, Prot::ReadWrite)?;
        let threads = (process..threads).step_by(processes as usize).count() as u64;
        let shared = Arc::new(Process {
            space,
            arenas: Guarded::new(Ledger::new((threads * SLOTS) as usize, State::GONE)),
            threads,
            calm: process == processes - 1,
        });
        for place in 0..threads {
            let index = process + place * processes;
            let (world, process) = (world.clone(), shared.clone());
            let rng = params.rng(index as u32);
            let machine_cpus = params.cpus as u64;
            let home = CpuId((index % cpus) as u16);
            system.spawn(format!("churn/{index}"), TaskKind::User(space), home, move |system| {
                let heap = Vec::new();
                let mut thread = Thread { system, world, process, rng, index, place, written: 0, heap };
                if index == 0 {
                    thread.prepare(machine_cpus)?;
                }
                while !thread.world.ready.with(&system.mm, |ready| *ready) {
                    system.nap(10_000);
                }
                thread.live()
            });
        }
    }
    Ok(STEPS * threads)
}
