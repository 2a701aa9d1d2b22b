//! `unmap-storm`: unmapping pages that every CPU may have cached, each operation's latency kept.
//!
//! First the calm before it, the curve of `shootdown.rs`: one page, N CPUs that have cached it, one CPU that unmaps it.
//! Then the storm: the threads of one process, one a CPU, each map a range of 1 to 512 pages at a place of their
//! own, touch every page, and unmap it, all at once. An unmap interrupts every CPU that runs a thread of the process;
//! one whose thread sleeps, for the lock that they all share, is left alone.
//!
//! The work is bounded: about 1200 ranges in all, whatever the memory, and fewer on more than 800 CPUs. On more than
//! 256 CPUs, about 256 threads spread over them unmap, and the others compute and are interrupted.

use alloc::format;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use quietmm::{Backing, CpuId, Error, PageNumber, PageRange, Prot, SpaceId, UserAccess};
use rand_core::Rng;

use super::turns::Turns;
use super::{BASE, Params, shootdown, timed};
use crate::latency::Op;
use crate::machine::Machine;
use crate::system::System;
use crate::task::TaskKind;

/// Ranges that are unmapped, by all threads together.
const RANGES: u32 = 1200;
/// Ranges times CPUs, at most, but for one range a thread: each unmap interrupts each CPU.
const RANGES_TIMES_CPUS: u32 = 1 << 20;
/// Most threads that unmap.
const MOST: u32 = 256;
/// Accesses' worth of computation between two looks of the others at whether the storm is over: about 1 ms.
const PIECE: u32 = 400_000;
/// Binary logarithm of the pages of the largest range. A thread's stretch of addresses is as long: it has a page
/// table of its own.
const LARGEST: u32 = 9;

/// Tasks of the curve and of the storm, at most.
pub const fn tasks(cpus: u32) -> u32 {
    shootdown::tasks(cpus) + cpus
}

/// The curve, then the storm.
pub fn set_up<M: Machine>(system: &System<'_, M>, params: &Params<'_>) -> Result<u64, Error> {
    let turns = Arc::new(Turns::default());
    let rounds = shootdown::set_up(system, &turns)?;
    let turn = turns.add();
    let space = system.create_space()?;
    let every = params.cpus.div_ceil(MOST);
    let busy = params.cpus.div_ceil(every);
    let ranges = (RANGES.min(RANGES_TIMES_CPUS / params.cpus) / busy).max(1);
    // All threads at once take at most a quarter of the memory.
    let largest = (params.frames / 4 / u64::from(busy)).max(1).ilog2().min(LARGEST);
    // How many are not done yet.
    let left = Arc::new(AtomicU32::new(busy));
    for cpu in 0..params.cpus {
        let (turns, left) = (turns.clone(), left.clone());
        let at = PageNumber(BASE.0 + (u64::from(cpu) << LARGEST));
        let mut rng = params.rng(cpu);
        let delay = params.delay(cpu);
        let body = move |system: &System<'_, M>| {
            turns.wait(system, turn);
            if cpu % every != 0 {
                while left.load(Ordering::Relaxed) > 0 {
                    system.mm.platform().compute(PIECE);
                }
                return Ok(());
            }
            system.mm.platform().compute(delay);
            // 1, 2, 4 and so on in an order of this thread's own, again and again.
            let mut sizes = [0; LARGEST as usize + 1];
            for nth in 0..ranges as usize {
                let cycle = &mut sizes[..=largest as usize];
                let left = nth % cycle.len();
                if left == 0 {
                    cycle.iter_mut().enumerate().for_each(|(log, pages)| *pages = 1 << log);
                }
                let pick = left + (rng.next_u64() % (cycle.len() - left) as u64) as usize;
                cycle.swap(left, pick);
                gust(system, space, PageRange::new(at, cycle[left]))?;
            }
            left.fetch_sub(1, Ordering::Relaxed);
            Ok(())
        };
        system.spawn(format!("storm/{cpu}"), TaskKind::User(space), CpuId(cpu as u16), body);
    }
    // Of whole cycles; the last may be cut short.
    let pages = u64::from(ranges) * ((2 << largest) - 1) / u64::from(largest + 1);
    Ok(rounds + pages * u64::from(busy))
}

/// Maps, touches and unmaps one range.
fn gust<M: Machine>(system: &System<'_, M>, space: SpaceId, range: PageRange) -> Result<(), Error> {
    let m = system.mm.platform();
    timed(system, Op::Map, range.pages, || {
        system.syscall(|mm| mm.space(space).map(range, Backing::Anonymous, Prot::ReadWrite))
    })?;
    timed(system, Op::Touch, range.pages, || {
        (range.start.0..range.end().0)
            .try_for_each(|page| system.access(PageNumber(page).addr(), 1, UserAccess::Write))
    })?;
    timed(system, Op::Unmap, range.pages, || system.syscall(|mm| mm.space(space).unmap(range)))?;
    m.progressed(range.pages);
    Ok(())
}
