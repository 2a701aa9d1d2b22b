//! `hotplug`: CPUs and blocks of memory go and come while all CPUs take frames and free them, their own and each other's,
//! read and write pages of a file, and drain. Every frame has one owner at any time, and none of a block that is offline, or that has not come yet.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use quietmm::{
    AllocFrom, Certainty, CpuId, Error, FrameNumber, Frames, ListLimits, MAX_ORDER, Offline, PageNumber,
    Prot, Region, UserAccess,
};
use rand_core::Rng;
use rand_xoshiro::Xoshiro256StarStar;

use super::{BASE, Params, map_file};
use crate::guarded::Guarded;
use crate::latency::Tally;
use crate::machine::Machine;
use crate::system::System;
use crate::task::TaskKind;

/// Steps of a task.
const STEPS: u32 = 800;
/// The tasks take at most this part of the memory, all together.
const PART: u64 = 4;
/// Pages of the file that are touched together.
const RUN: u64 = 8;
/// The largest batch that a list gets in passing.
const LARGEST_BATCH: u64 = 16;
/// Pages of the file, for each frame of memory.
const FILE: u64 = 1;
/// How often memory that is on its way is looked at again before it stays after all, and how long that lasts.
const LOOKS: u32 = 8;
const LOOK_NS: u64 = 20_000;
/// How long memory stays away at most.
const AWAY_NS: u64 = 400_000;

/// Who has what.
#[derive(Default)]
struct Ledger {
    /// Blocks that somebody has: first frame and order.
    taken: BTreeMap<u32, u8>,
    /// First frames of the blocks of memory that are offline.
    offline: Vec<u32>,
}

impl Ledger {
    /// What is wrong with a block that was just handed out.
    fn take(&mut self, (first, order): (FrameNumber, u8)) -> Option<&'static str> {
        let (first, end) = (first.0, first.0 + (1 << order));
        let before = self.taken.range(..end).next_back();
        let twice = before.is_some_and(|(&other, &order)| other + (1 << order) > first);
        let gone = self.offline.iter().any(|&block| first < block + (1 << MAX_ORDER) && block < end);
        self.taken.insert(first, order);
        match (twice, gone) {
            (true, _) => Some("somebody has it already"),
            (_, true) => Some("its memory is offline"),
            _ => None,
        }
    }
}

/// The blocks of a region.
fn blocks_of(region: &Region) -> impl Iterator<Item = FrameNumber> + use<> {
    let first = region.start;
    (0..region.frames >> MAX_ORDER).map(move |nth| first.add(nth << MAX_ORDER))
}

struct World {
    ledger: Guarded<Ledger>,
    /// Blocks that whoever comes next frees.
    handed: Guarded<Vec<Frames>>,
    /// Tasks that are not done.
    left: AtomicU32,
    /// Frames that a task takes at most.
    most: u64,
    cpus: u32,
    pages: u64,
}

struct Task<'s, 'p, M: Machine> {
    system: &'s System<'p, M>,
    world: Arc<World>,
    rng: Xoshiro256StarStar,
    mine: Vec<Frames>,
    frames: u64,
}

/// A task per CPU, and one that takes memory away.
pub fn set_up<M: Machine>(system: &System<'_, M>, params: &Params<'_>) -> Result<u64, Error> {
    let pages = FILE * params.frames;
    let space = system.create_space()?;
    map_file(system, space, BASE, pages, Prot::ReadWrite)?;
    let world = Arc::new(World {
        ledger: Guarded::new(Ledger::default()),
        handed: Guarded::new(Vec::new()),
        left: AtomicU32::new(params.cpus),
        most: (params.frames / PART / u64::from(params.cpus)).max(1),
        cpus: params.cpus,
        pages,
    });
    for cpu in 0..=params.cpus {
        let (world, rng) = (world.clone(), params.rng(cpu));
        let home = CpuId((cpu % params.cpus) as u16);
        let memory = cpu == params.cpus;
        let name = if memory { "memory".into() } else { format!("worker/{cpu}") };
        system.spawn(name, TaskKind::User(space), home, move |system| {
            let mut task = Task { system, world, rng, mine: Vec::new(), frames: 0 };
            if memory {
                task.memory_goes_and_comes();
            } else {
                task.work();
                task.world.left.fetch_sub(1, Ordering::Relaxed);
            }
            Ok(())
        });
    }
    Ok(u64::from(STEPS) * u64::from(params.cpus))
}

impl<M: Machine> Task<'_, '_, M> {
    fn pick(&mut self, n: u64) -> u64 {
        self.rng.next_u64() % n
    }

    fn work(&mut self) {
        for _ in 0..STEPS {
            match self.pick(64) {
                0..20 => self.take(),
                20..34 => self.free_one_of_mine(),
                34..40 => self.hand_one_over(),
                40..44 => self.free_what_was_handed(),
                44..46 => {
                    self.system.syscall(|mm| mm.frames().drain(Certainty::Likely));
                }
                46 => self.change_limits(),
                47..60 => self.touch_the_file(),
                60..62 => self.a_cpu_goes_or_comes(),
                _ => {
                    let ns = self.pick(50_000);
                    self.system.nap(ns);
                }
            }
            self.system.mm.platform().progressed(1);
        }
        while !self.mine.is_empty() {
            self.free_one_of_mine();
        }
        self.free_what_was_handed();
    }

    fn take(&mut self) {
        let order = [0, 0, 0, 0, 1, 2, 3, 5][self.pick(8) as usize];
        let from = if self.pick(4) == 0 { AllocFrom::HERE } else { AllocFrom::NOW };
        if self.frames + (1 << order) > self.world.most {
            return self.free_one_of_mine();
        }
        let Ok(block) = self.system.syscall(|mm| mm.frames().alloc(order, from)) else { return };
        let wrong = self.world.ledger.with(&self.system.mm, |ledger| ledger.take((block.first(), order)));
        if let Some(wrong) = wrong {
            let story = format!("{:?} (order {order}) was handed out, and {wrong}", block.first());
            self.system.mm.platform().wrong_content(&story);
        }
        self.frames += 1 << order;
        self.mine.push(block);
    }

    fn one_of_mine(&mut self) -> Option<Frames> {
        let at = self.rng.next_u64() % self.mine.len().max(1) as u64;
        let block = (!self.mine.is_empty()).then(|| self.mine.swap_remove(at as usize))?;
        self.frames -= 1 << block.order();
        Some(block)
    }

    fn free(&self, block: Frames) {
        self.world.ledger.with(&self.system.mm, |ledger| ledger.taken.remove(&block.first().0));
        self.system.syscall(|mm| mm.frames().free(block));
    }

    fn free_one_of_mine(&mut self) {
        if let Some(block) = self.one_of_mine() {
            self.free(block);
        }
    }

    fn hand_one_over(&mut self) {
        if let Some(block) = self.one_of_mine() {
            self.world.handed.with(&self.system.mm, |handed| handed.push(block));
        }
    }

    fn free_what_was_handed(&mut self) {
        while let Some(block) = self.world.handed.with(&self.system.mm, Vec::pop) {
            self.free(block);
        }
    }

    fn touch_the_file(&mut self) {
        let first = BASE.0 + self.pick(self.world.pages);
        let access = if self.pick(4) == 0 { UserAccess::Write } else { UserAccess::Read };
        for page in first..(first + RUN).min(BASE.0 + self.world.pages) {
            // Where memory is away there may be none for the page.
            self.system.access(PageNumber(page).addr(), 1, access).unwrap_or_default();
        }
    }

    fn change_limits(&mut self) {
        let batch = 1 + self.pick(LARGEST_BATCH) as u32;
        let limits = ListLimits { batch, high: batch * self.pick(5) as u32 };
        let m = self.system.mm.platform();
        let node = m.node_of(m.this_cpu());
        // A node may have no memory.
        self.system.syscall(|mm| mm.frames().set_list_limits(node, limits)).unwrap_or_default();
    }

    fn a_cpu_goes_or_comes(&mut self) {
        let cpu = CpuId(self.pick(self.world.cpus.into()) as u16);
        if !self.system.take_offline(cpu) {
            self.system.bring_online(cpu);
        }
    }

    fn memory_goes_and_comes(&mut self) {
        let mut blocks: Vec<_> = self.system.mm.frames().blocks().collect();
        let later = self.system.mm.platform().later_region(0);
        let mut later: Vec<_> = later.iter().flat_map(blocks_of).collect();
        // None of it is anybody's before it comes.
        let firsts = later.iter().map(|first| first.0);
        self.world.ledger.with(&self.system.mm, |ledger| ledger.offline.extend(firsts));
        while self.world.left.load(Ordering::Relaxed) > 0 && !(blocks.is_empty() && later.is_empty()) {
            if let Some(&first) = later.last().filter(|_| self.rng.next_u64().is_multiple_of(4)) {
                if self.comes(first) {
                    later.pop();
                    blocks.push(first);
                }
                self.system.nap(LOOK_NS);
            }
            if blocks.is_empty() {
                continue;
            }
            let first = blocks[self.pick(blocks.len() as u64) as usize];
            if let Some(block) = self.take_away(first) {
                let ns = self.pick(AWAY_NS);
                self.system.nap(ns);
                // From here on its frames may be handed out.
                self.world
                    .ledger
                    .with(&self.system.mm, |ledger| ledger.offline.retain(|&gone| gone != first.0));
                self.system.syscall(|mm| mm.frames().bring_online(block));
            }
            self.system.nap(LOOK_NS);
        }
    }

    /// A block of memory comes that was not there, unless there is no memory for what is kept about it.
    fn comes(&mut self, first: FrameNumber) -> bool {
        // SAFETY: the machine has the memory of the region that it names, and no other task brings any.
        let Ok(block) = self.system.syscall(|mm| unsafe { mm.frames().add_block(first) }) else {
            return false;
        };
        self.world.ledger.with(&self.system.mm, |ledger| ledger.offline.retain(|&other| other != first.0));
        self.system.syscall(|mm| mm.frames().bring_online(block));
        self.system.mm.platform().tally(Tally::BlocksCame, 1);
        true
    }

    /// Takes a block of memory offline, unless it is still in use after a number of looks, or can never go.
    fn take_away(&mut self, first: FrameNumber) -> Option<Offline> {
        let mut leaving = self.system.syscall(|mm| mm.frames().begin_offline(first)).ok()?;
        for _ in 0..LOOKS {
            match self.system.syscall(|mm| mm.frames().finish_offline(leaving)) {
                Ok(block) => {
                    self.world.ledger.with(&self.system.mm, |ledger| ledger.offline.push(first.0));
                    return Some(block);
                }
                Err(remains) => leaving = remains.leaving,
            }
            self.system.nap(LOOK_NS);
        }
        self.system.syscall(|mm| mm.frames().cancel_offline(leaving));
        None
    }
}
