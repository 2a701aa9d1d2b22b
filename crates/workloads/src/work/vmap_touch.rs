//! `vmap-touch`: what it costs to have scattered pages in a row for a moment. Each thread, on a CPU of its own, maps 4
//! pages at kernel addresses, touches each, and unmaps them, again and again; the other CPUs of the machine are idle.
//!
//! Parts, one after another: all threads by `vmap` and `vunmap`, all by `map_ram` and `unmap_ram`, and the first alone by
//! `vmap` and `vunmap` with an `unmap_aliases` after each. The time of a cycle is that from the end of the one before, so
//! what purges in between and whatever else takes the CPU counts. Threads go on, uncounted, until the last one is done.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use quietmm::platform::Access;
use quietmm::policy::VmapPolicy;
use quietmm::{AllocFrom, Counter, CpuId, Error, FrameNumber, KernelProt, PageNumber, PageRange, VmapPlace};

use super::turns::Turns;
use super::{Params, timed};
use crate::latency::Op;
use crate::machine::Machine;
use crate::system::System;
use crate::task::TaskKind;

/// Pages that are mapped together.
const PAGES: usize = 4;
/// Frames that a thread has: it maps others each time, so that a translation from before leads somewhere else.
const FRAMES: usize = 4 * PAGES;
/// Counted cycles of a part, all threads together, where each has at least [`FEWEST`]: so many, and with less than 1 GiB of
/// memory one for so many frames.
const CYCLES: u64 = 1 << 15;
const FRAMES_PER_CYCLE: u64 = 8;
/// Cycles times CPUs, at most, but for [`FEWEST`] a thread: a cycle may interrupt each CPU.
const CYCLES_TIMES_CPUS: u64 = 1 << 23;
const FEWEST: u32 = 4;
/// The same where CPUs sweep, so that a sweep is among them: 410 cycles unmap what a CPU begins one for.
const FEWEST_SWEPT: u32 = 512;
/// Of so many counted cycles, one more goes before, and at least one: no line comes from memory in those that count.
const WARM: u32 = 8;
/// Where unmapping is lazy, so many purges, or sweeps, go before, too: addresses come round, and tables are there, in those that
/// count.
const WARM_PURGES: u64 = 12;
/// Cycles of the last part.
const ALIASES: u32 = 64;
/// Kernel pages for each CPU, 128 MiB, and at least: room for the blocks of all, and for what may wait.
const KERNEL_PAGES: u64 = 1 << 15;
const LEAST_KERNEL_PAGES: u64 = 1 << 18;

/// Pages of the kernel range on so many CPUs.
pub const fn kernel_pages(cpus: u32) -> u64 {
    let pages = cpus as u64 * KERNEL_PAGES;
    if pages < LEAST_KERNEL_PAGES { LEAST_KERNEL_PAGES } else { pages }
}

/// What all threads know.
struct World {
    threads: u32,
    cycles: u32,
    turns: Turns,
    /// Threads that have not done their counted cycles of this part.
    left: AtomicU32,
    /// Threads that have ended this turn.
    ended: AtomicU32,
}

/// How pages are mapped.
#[derive(Clone, Copy)]
enum How {
    Map,
    Ram,
}

/// One thread, in one part.
struct Thread<'s, 'p, M: Machine> {
    system: &'s System<'p, M>,
    frames: &'s [FrameNumber],
    /// Cycles so far.
    nth: usize,
}

/// A task for each thread, spread over the machine.
pub fn set_up<M: Machine>(system: &System<'_, M>, params: &Params<'_>) -> Result<u64, Error> {
    let Params { cpus, threads, .. } = *params;
    let all = CYCLES.min(params.frames / FRAMES_PER_CYCLE).min(CYCLES_TIMES_CPUS / u64::from(cpus));
    let sweeps = system.mm.config().policy.vmap == VmapPolicy::Sweep;
    let cycles = (all as u32 / threads).max(if sweeps { FEWEST_SWEPT } else { FEWEST });
    let (left, ended) = (AtomicU32::new(threads), AtomicU32::new(0));
    let world = Arc::new(World { threads, cycles, turns: Turns::default(), left, ended });
    let [map, ram, aliases, end] = [(); 4].map(|()| world.turns.add());
    let space = system.create_space()?;
    for thread in 0..threads {
        let cpu = CpuId((u64::from(thread) * u64::from(cpus) / u64::from(threads)) as u16);
        let (world, delay) = (world.clone(), params.delay(thread) % 1024);
        system.spawn(format!("vmap-touch/{thread}"), TaskKind::User(space), cpu, move |system| {
            let mm = &system.mm;
            let take = || mm.frames().alloc(0, AllocFrom::HERE).map(|frame| frame.into_raw().0);
            let frames = (0..FRAMES).map(|_| take()).collect::<Result<Vec<_>, _>>()?;
            for (turn, how) in [(map, How::Map), (ram, How::Ram)] {
                world.turns.wait(system, turn);
                mm.platform().compute(delay);
                Thread { system, frames: &frames, nth: 0 }.play(&world, how)?;
                // AcqRel: the last one has seen what the others did.
                if world.ended.fetch_add(1, Ordering::AcqRel) + 1 == world.threads {
                    world.ended.store(0, Ordering::Relaxed);
                    world.left.store(world.threads, Ordering::Relaxed);
                    world.turns.next(system);
                }
            }
            if thread == 0 {
                world.turns.wait(system, aliases);
                Thread { system, frames: &frames, nth: 0 }.flush_each()?;
                // The frames of all threads may be others' from here on: nothing leads to them any more.
                mm.vmap().unmap_aliases()?;
                world.turns.next(system);
            }
            world.turns.wait(system, end);
            frames.into_iter().try_for_each(|frame| mm.frames().free_at(frame, 0))
        });
    }
    Ok(2 * u64::from(cycles) * u64::from(threads) + u64::from(ALIASES))
}

impl How {
    const fn op(self) -> Op {
        match self {
            How::Map => Op::MapCycle,
            How::Ram => Op::RamCycle,
        }
    }
}

impl<M: Machine> Thread<'_, '_, M> {
    /// The frames of the next cycle.
    fn next(&mut self) -> [FrameNumber; PAGES] {
        self.nth += 1;
        core::array::from_fn(|i| self.frames[(self.nth * PAGES + i) % self.frames.len()])
    }

    fn touch(&self, range: PageRange) -> Result<(), Error> {
        let m = self.system.mm.platform();
        (range.start.0..range.end().0)
            .try_for_each(|page| m.kernel_access(PageNumber(page).addr(), 1, Access::Write))
    }

    /// Maps, touches and unmaps.
    fn cycle(&mut self, how: How) -> Result<(), Error> {
        let (mm, frames) = (&self.system.mm, self.next());
        match how {
            How::Map => {
                let range = mm.vmap().map(&frames, VmapPlace::ANYWHERE, KernelProt::ReadWrite)?;
                self.touch(range)?;
                mm.vmap().unmap(range.start)?;
            }
            How::Ram => {
                let range = mm.vmap().map_ram(&frames, KernelProt::ReadWrite)?;
                self.touch(range)?;
                mm.vmap().unmap_ram(range)?;
            }
        }
        // Whoever purges may want this CPU.
        mm.platform().cond_resched();
        Ok(())
    }

    fn play(&mut self, world: &World, how: How) -> Result<(), Error> {
        let m = self.system.mm.platform();
        let (counter, warm) = match self.system.mm.config().policy.vmap {
            VmapPolicy::Eager => (Counter::VmapPurges, 0),
            VmapPolicy::Lazy => (Counter::VmapPurges, WARM_PURGES),
            VmapPolicy::Sweep => (Counter::KernelSweeps, WARM_PURGES),
        };
        let purges = || self.system.mm.counter(counter);
        let warm = purges() + warm;
        loop {
            for _ in 0..world.cycles.div_ceil(WARM) {
                self.cycle(how)?;
            }
            // Not counted, but it goes on.
            m.progressed(0);
            if purges() >= warm {
                break;
            }
        }
        let mut before = m.now().0;
        for _ in 0..world.cycles {
            self.cycle(how)?;
            let now = m.now().0;
            m.latency(how.op(), PAGES as u64, now - before);
            before = now;
            m.progressed(1);
        }
        world.left.fetch_sub(1, Ordering::Relaxed);
        while world.left.load(Ordering::Relaxed) > 0 {
            self.cycle(how)?;
        }
        Ok(())
    }

    /// One unmap, and one flush of what it left for later.
    fn flush_each(&mut self) -> Result<(), Error> {
        let system = self.system;
        let mm = &system.mm;
        mm.vmap().unmap_aliases()?;
        for _ in 0..ALIASES {
            let range = mm.vmap().map(&self.next(), VmapPlace::ANYWHERE, KernelProt::ReadWrite)?;
            self.touch(range)?;
            timed(system, Op::Vunmap, PAGES as u64, || mm.vmap().unmap(range.start))?;
            timed(system, Op::UnmapAliases, PAGES as u64, || mm.vmap().unmap_aliases())?;
            mm.platform().progressed(1);
        }
        Ok(())
    }
}
