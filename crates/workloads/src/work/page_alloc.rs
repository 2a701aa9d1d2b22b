//! `page-alloc`: what a block of frames costs when all CPUs want some at once.
//!
//! Parts, one after another, each begun by all CPUs together: *bulk* (many are allocated, then all freed, the first one
//! first), *random* (a pool of slots, each filled or emptied when its turn comes), *pairs* (one is allocated and freed at once),
//! and *handed* (a CPU half the machine away frees what this one has allocated). First with single frames, then with blocks
//! of 512, of which there are as many as a quarter of the memory holds: where that is fewer than CPUs, some CPUs have none.
//!
//! Its machine is the one of today with most CPUs on a zone, 64: there it matters most who has to ask the zone.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use quietmm::{AllocFrom, CpuId, Error, Frames};
use rand_core::Rng;
use rand_xoshiro::Xoshiro256StarStar;

use super::turns::Turns;
use super::{Params, timed};
use crate::guarded::Guarded;
use crate::latency::{Op, Tally};
use crate::machine::Machine;
use crate::system::System;
use crate::task::TaskKind;

/// The orders.
const ORDERS: [u8; 2] = [0, 9];
/// Blocks of all CPUs together, and most and fewest of one, if the memory holds them.
const BLOCKS: u32 = 1 << 15;
const MOST: u32 = 512;
const FEWEST: u32 = 16;
/// All blocks take at most this part of the memory.
const PART: u64 = 4;
/// Operations at random, and pairs, for each block of a CPU's.
const TIMES: u32 = 4;

/// The parts.
#[derive(Clone, Copy)]
enum Part {
    Bulk,
    Random,
    Pairs,
    /// Each CPU allocates for another.
    HandOver,
    /// And that one frees.
    TakeOver,
}

const PARTS: [Part; 5] = [Part::Bulk, Part::Random, Part::Pairs, Part::HandOver, Part::TakeOver];

/// What all CPUs know.
struct World {
    cpus: u32,
    turns: Turns,
    /// CPUs that have ended this turn.
    ended: AtomicU32,
    /// What each CPU has allocated for another.
    handed: Vec<Guarded<Vec<Frames>>>,
}

/// One CPU's share of an order.
struct Share<'s, 'p, M: Machine> {
    system: &'s System<'p, M>,
    world: &'s World,
    cpu: u32,
    order: u8,
    blocks: u32,
}

/// Blocks of an order for a CPU.
fn share(params: &Params<'_>, cpu: u32, order: u8) -> u32 {
    let fit = (params.frames / PART) >> order;
    let (each, rest) = (fit / u64::from(params.cpus), fit % u64::from(params.cpus));
    let mine = each + u64::from(u64::from(cpu) < rest);
    mine.min((BLOCKS / params.cpus).clamp(FEWEST, MOST).into()) as u32
}

/// A task for each CPU.
pub fn set_up<M: Machine>(system: &System<'_, M>, params: &Params<'_>) -> Result<u64, Error> {
    system.mm.platform().tally(Tally::BlocksRefused, 0);
    let space = system.create_space()?;
    let world = Arc::new(World {
        cpus: params.cpus,
        turns: Turns::default(),
        ended: AtomicU32::new(0),
        handed: (0..params.cpus).map(|_| Guarded::new(Vec::new())).collect(),
    });
    let mut operations = 0;
    let steps: Vec<_> = ORDERS.iter().flat_map(|&order| PARTS.map(|part| (order, part))).collect();
    let steps: Arc<[_]> = steps.into_iter().map(|(order, part)| (world.turns.add(), order, part)).collect();
    for cpu in 0..params.cpus {
        let shares = ORDERS.map(|order| (order, share(params, cpu, order)));
        operations += shares.iter().map(|(_, blocks)| u64::from(blocks * (4 + 2 * TIMES))).sum::<u64>();
        let (world, steps) = (world.clone(), steps.clone());
        let (mut rng, delay) = (params.rng(cpu), params.delay(cpu));
        system.spawn(format!("page-alloc/{cpu}"), TaskKind::User(space), CpuId(cpu as u16), move |system| {
            system.mm.platform().compute(delay);
            for &(turn, order, part) in &*steps {
                world.turns.wait(system, turn);
                let blocks = shares.iter().find(|share| share.0 == order).map_or(0, |share| share.1);
                Share { system, world: &world, cpu, order, blocks }.play(part, &mut rng);
                // AcqRel: the last one has seen what the others did.
                if world.ended.fetch_add(1, Ordering::AcqRel) + 1 == world.cpus {
                    world.ended.store(0, Ordering::Relaxed);
                    world.turns.next(system);
                }
            }
            Ok(())
        });
    }
    Ok(operations)
}

impl<M: Machine> Share<'_, '_, M> {
    fn play(&self, part: Part, rng: &mut Xoshiro256StarStar) {
        match part {
            Part::Bulk => {
                let all: Vec<_> = (0..self.blocks).filter_map(|_| self.allocate(Op::BulkAlloc)).collect();
                all.into_iter().for_each(|block| self.free(Op::BulkFree, block));
            }
            Part::Random => self.at_random(rng),
            Part::Pairs => {
                for _ in 0..self.blocks * TIMES {
                    self.pair();
                }
            }
            Part::HandOver => {
                let all: Vec<_> = (0..self.blocks).filter_map(|_| self.allocate(Op::BulkAlloc)).collect();
                self.world.handed[self.cpu as usize].with(&self.system.mm, |handed| *handed = all);
            }
            Part::TakeOver => {
                let from = (self.cpu + self.world.cpus / 2) % self.world.cpus;
                let all = self.world.handed[from as usize].with(&self.system.mm, core::mem::take);
                all.into_iter().for_each(|block| self.free(Op::HandedFree, block));
            }
        }
    }

    /// Fills or empties slots of a pool at random, and empties all in the end.
    fn at_random(&self, rng: &mut Xoshiro256StarStar) {
        let mut pool: Vec<Option<Frames>> = (0..self.blocks).map(|_| None).collect();
        for _ in 0..self.blocks * TIMES {
            let slot = (rng.next_u64() % u64::from(self.blocks)) as usize;
            match pool[slot].take() {
                Some(block) => self.free(Op::RandomFree, block),
                None => pool[slot] = self.allocate(Op::RandomAlloc),
            }
        }
        pool.into_iter().flatten().for_each(|block| self.free(Op::RandomFree, block));
    }

    fn pair(&self) {
        let pair = || {
            let mm = &self.system.mm;
            mm.frames().alloc(self.order, AllocFrom::HERE).map(|block| mm.frames().free(block))
        };
        self.done(timed(self.system, Op::Pair, 1 << self.order, pair));
    }

    fn allocate(&self, op: Op) -> Option<Frames> {
        let allocate = || self.system.mm.frames().alloc(self.order, AllocFrom::HERE);
        self.done(timed(self.system, op, 1 << self.order, allocate))
    }

    fn free(&self, op: Op, block: Frames) {
        let free = || {
            self.system.mm.frames().free(block);
            Ok(())
        };
        self.done(timed(self.system, op, 1 << self.order, free));
    }

    /// One operation is done; a block that could not be had is counted, and done without.
    fn done<R>(&self, result: Result<R, Error>) -> Option<R> {
        let m = self.system.mm.platform();
        m.progressed(1);
        if result.is_err() {
            m.tally(Tally::BlocksRefused, 1);
        }
        m.cond_resched();
        result.ok()
    }
}
