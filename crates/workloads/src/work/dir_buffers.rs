//! `dir-buffers`: a file system that reads large directories. Their blocks are buffers of 1 to 16 scattered pages, which are
//! mapped in a row, searched and unmapped, between other work that touches nothing of interest.
//!
//! How much faster a cheaper mapping makes the whole depends on how much else there is to do. So the same runs with several
//! ratios, one after another, and operations per second are kept for each.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use quietmm::platform::Access;
use quietmm::{AllocFrom, CpuId, Error, FrameNumber, KernelProt, PageNumber};
use rand_core::Rng;
use rand_xoshiro::Xoshiro256StarStar;

use super::Params;
use super::turns::Turns;
use crate::latency::Pace;
use crate::machine::Machine;
use crate::system::System;
use crate::task::TaskKind;

/// Parts of other work to one of mapping, searching and unmapping.
pub(super) const RATIOS: [u32; 5] = [0, 1, 4, 28, 100];
/// One part, in accesses: about what one buffer takes with `vmap=lazy` on one CPU of sn2-64, nobody else in the way.
const PART: u32 = 1000;
/// Pages of the largest buffer, and accesses with which a page is searched: each of its lines.
const MOST_PAGES: usize = 16;
const SEARCH: u32 = 64;
/// Buffers of a CPU for each ratio, at most and at least; between them one for so many frames of memory.
const BUFFERS: (u64, u64) = (4, 128);
const FRAMES_PER_BUFFER: u64 = 32;

/// What all CPUs know.
struct World {
    cpus: u32,
    buffers: u64,
    turns: Turns,
    /// CPUs that are not done with this ratio yet, and that have ended it.
    left: AtomicU32,
    ended: AtomicU32,
}

/// A task for each CPU.
pub fn set_up<M: Machine>(system: &System<'_, M>, params: &Params<'_>) -> Result<u64, Error> {
    let cpus = params.cpus;
    let ratios: Vec<u32> =
        RATIOS.into_iter().filter(|parts| params.parts.is_none_or(|only| only == *parts)).collect();
    // One ratio alone has as many as all together.
    let share = (RATIOS.len() / ratios.len().max(1)) as u64;
    let buffers = share * (params.frames / FRAMES_PER_BUFFER / u64::from(cpus)).clamp(BUFFERS.0, BUFFERS.1);
    let (left, ended) = (AtomicU32::new(cpus), AtomicU32::new(0));
    let world = Arc::new(World { cpus, buffers, turns: Turns::default(), left, ended });
    let turns: Vec<(u32, u32)> = ratios.into_iter().map(|parts| (world.turns.add(), parts)).collect();
    let (last, count) = (turns.last().map(|(turn, _)| *turn), turns.len() as u64);
    let end = world.turns.add();
    let space = system.create_space()?;
    for cpu in 0..cpus {
        let (world, turns, mut rng, delay) =
            (world.clone(), turns.clone(), params.rng(cpu), params.delay(cpu));
        system.spawn(format!("dir-buffers/{cpu}"), TaskKind::User(space), CpuId(cpu as u16), move |system| {
            let mm = &system.mm;
            let take = || mm.frames().alloc(0, AllocFrom::HERE).map(|frame| frame.into_raw().0);
            let frames = (0..2 * MOST_PAGES).map(|_| take()).collect::<Result<Vec<_>, _>>()?;
            for (turn, parts) in turns {
                world.turns.wait(system, turn);
                mm.platform().compute(delay);
                play(system, &world, &frames, parts, &mut rng)?;
                // AcqRel: the last one has seen what the others did.
                if world.ended.fetch_add(1, Ordering::AcqRel) + 1 == world.cpus {
                    world.ended.store(0, Ordering::Relaxed);
                    world.left.store(world.cpus, Ordering::Relaxed);
                    if Some(turn) == last {
                        // The frames may be others' from here on: nothing leads to them any more.
                        mm.vmap().unmap_aliases()?;
                    }
                    world.turns.next(system);
                }
            }
            world.turns.wait(system, end);
            frames.into_iter().try_for_each(|frame| mm.frames().free_at(frame, 0))
        });
    }
    Ok(world.buffers * u64::from(cpus) * count)
}

/// One CPU, with one ratio. It goes on, uncounted, until the last CPU is done.
fn play<M: Machine>(
    system: &System<'_, M>,
    world: &World,
    frames: &[FrameNumber],
    parts: u32,
    rng: &mut Xoshiro256StarStar,
) -> Result<(), Error> {
    let m = system.mm.platform();
    for _ in 0..world.buffers.div_ceil(8) {
        buffer(system, frames, parts, rng)?;
    }
    let start = m.now().0;
    for _ in 0..world.buffers {
        buffer(system, frames, parts, rng)?;
        m.progressed(1);
    }
    m.pace(&Pace { parts, operations: world.buffers, ns: m.now().0 - start });
    world.left.fetch_sub(1, Ordering::Relaxed);
    while world.left.load(Ordering::Relaxed) > 0 {
        buffer(system, frames, parts, rng)?;
    }
    Ok(())
}

/// One buffer, and other work.
fn buffer<M: Machine>(
    system: &System<'_, M>,
    frames: &[FrameNumber],
    parts: u32,
    rng: &mut Xoshiro256StarStar,
) -> Result<(), Error> {
    let (mm, m) = (&system.mm, system.mm.platform());
    let random = rng.next_u64();
    let (pages, from) = (random as usize % MOST_PAGES + 1, (random >> 32) as usize % MOST_PAGES);
    let range = mm.vmap().map_ram(&frames[from..from + pages], KernelProt::Read)?;
    (range.start.0..range.end().0)
        .try_for_each(|page| m.kernel_access(PageNumber(page).addr(), SEARCH, Access::Read))?;
    mm.vmap().unmap_ram(range)?;
    m.compute(parts * PART);
    // Whoever purges may want this CPU.
    m.cond_resched();
    Ok(())
}
