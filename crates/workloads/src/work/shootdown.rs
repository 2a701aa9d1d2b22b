//! The first part of `unmap-storm`: what it costs to unmap one page that N CPUs have cached, for a curve of N. The
//! threads of a process, one on each of the N CPUs, touch a page; then one of them unmaps it while the others
//! compute. This is the microbenchmark of LATR (ASPLOS 2018), and the latency is that of the whole system call.
//! Another page of the table stays mapped, as in any program, so that no table goes; each round has a page of its own,
//! as where a kernel goes round through addresses.
//!
//! Each point of the curve is a process of its own, and the points come one after another: a CPU that is not
//! in a point is idle and has never seen its space.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use quietmm::{Backing, Counter, CpuId, Error, NodeId, PageNumber, PageRange, Prot, SpaceId, UserAccess};

use super::BASE;
use super::turns::Turns;
use crate::latency::Shootdown;
use crate::machine::Machine;
use crate::system::System;
use crate::task::TaskKind;

/// CPUs a socket of LATR's smaller machine (2 sockets): a point of every curve that has room for it.
const SMALL_SOCKET: u32 = 8;
/// Measured rounds of a point, times its CPUs: the curve takes about as long to simulate whatever the machine.
const ROUNDS_TIMES_CPUS: u32 = 16_384;
/// Fewest and most rounds of a point. One more goes before, so that no line comes from memory in those that count.
const ROUNDS: (u32, u32) = (4, 128);
/// Accesses' worth of computation between two looks at what the others do: some 10 us.
const PIECE: u32 = 4096;
/// The page that stays.
const NEIGHBOUR: PageNumber = PageNumber(BASE.0 + 511);
/// The round after the last.
const OVER: u32 = u32::MAX;

/// A point of the curve: so many CPUs on each of so many sockets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Point {
    cpus: u32,
    sockets: u32,
}

/// 1, 2, 4 and so on up to a whole socket; then 8 CPUs on each of two, and whole sockets up to the machine. Of more
/// than 8 sockets, powers of two and all.
fn points(socket: u32, sockets: u32) -> Vec<Point> {
    let one = (0..32).map(|log| 1 << log).take_while(|&cpus| cpus < socket).chain([socket]);
    let mut points: Vec<Point> = one.map(|cpus| Point { cpus, sockets: 1 }).collect();
    if sockets > 1 {
        points.push(Point { cpus: 2 * SMALL_SOCKET.min(socket), sockets: 2 });
    }
    let whole = (2..=sockets).filter(|&n| sockets <= 8 || n.is_power_of_two() || n == sockets);
    points.extend(whole.map(|n| Point { cpus: n * socket, sockets: n }));
    points.sort_unstable();
    points.dedup();
    points
}

/// The CPUs of each socket. Where sockets differ, none counts more than the smallest has.
fn sockets<M: Machine>(machine: &M) -> Vec<Vec<CpuId>> {
    let cpus = || (0..machine.possible_cpus()).map(|cpu| CpuId(cpu as u16));
    let mut nodes: Vec<NodeId> = cpus().map(|cpu| machine.node_of(cpu)).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes.iter().map(|&node| cpus().filter(|&cpu| machine.node_of(cpu) == node).collect()).collect()
}

/// How many tasks the curve has at most: a point has no more than all CPUs, and there are few points.
pub(super) const fn tasks(cpus: u32) -> u32 {
    // On one socket less than 3 times the CPUs, then 16, and whole sockets: with 8, (2 + ... + 8) / 8 of all.
    3 * cpus + 2 * SMALL_SOCKET + 5 * cpus
}

/// What the threads of a point tell each other.
#[derive(Default)]
struct Team {
    /// The round whose page can be touched.
    round: AtomicU32,
    /// How many of the others have touched it.
    touched: AtomicU32,
}

/// Makes the processes of all points, each with a turn of its own. Returns the rounds.
pub fn set_up<M: Machine>(system: &System<'_, M>, turns: &Arc<Turns>) -> Result<u64, Error> {
    let sockets = sockets(system.mm.platform());
    let socket = sockets.iter().map(Vec::len).min().unwrap_or(0) as u32;
    let mut all = 0;
    for point in points(socket, sockets.len() as u32) {
        let each = (point.cpus / point.sockets) as usize;
        let cpus = sockets[..point.sockets as usize].iter().flat_map(|cpus| &cpus[..each]);
        let rounds = (ROUNDS_TIMES_CPUS / point.cpus).clamp(ROUNDS.0, ROUNDS.1);
        let space = system.create_space()?;
        let (team, turn) = (Arc::new(Team::default()), turns.add());
        for (nth, &cpu) in cpus.enumerate() {
            let (team, turns) = (team.clone(), turns.clone());
            let name = format!("shootdown/{}/{nth}", point.cpus);
            system.spawn(name, TaskKind::User(space), cpu, move |system| {
                turns.wait(system, turn);
                if nth > 0 {
                    return follow(system, &team);
                }
                let result = lead(system, &team, space, point, rounds);
                team.round.store(OVER, Ordering::Release);
                turns.next(system);
                result
            });
        }
        all += u64::from(rounds) + 1;
    }
    Ok(all)
}

/// The page of a round.
fn page_of(round: u32) -> PageNumber {
    PageNumber(BASE.0 + u64::from(round))
}

/// Maps a page, lets all others touch it, unmaps it.
fn lead<M: Machine>(
    system: &System<'_, M>,
    team: &Team,
    space: SpaceId,
    Point { cpus, sockets }: Point,
    rounds: u32,
) -> Result<(), Error> {
    let m = system.mm.platform();
    let neighbour = PageRange::new(NEIGHBOUR, 1);
    system.syscall(|mm| mm.space(space).map(neighbour, Backing::Anonymous, Prot::ReadWrite))?;
    for round in 0..=rounds {
        let page = PageRange::new(page_of(round), 1);
        system.syscall(|mm| mm.space(space).map(page, Backing::Anonymous, Prot::ReadWrite))?;
        system.access(page.start.addr(), 1, UserAccess::Write)?;
        team.touched.store(0, Ordering::Relaxed);
        // Release, and the Acquires of the others: they see the page, and the count at 0.
        team.round.store(round + 1, Ordering::Release);
        while team.touched.load(Ordering::Acquire) < cpus - 1 {
            m.compute(PIECE);
        }
        let sent = system.mm.counter(Counter::IpisSent);
        let start = m.now().0;
        system.syscall(|mm| mm.space(space).unmap(page))?;
        let ns = m.now().0 - start;
        if round > 0 {
            let ipis = system.mm.counter(Counter::IpisSent) - sent;
            m.shootdown(&Shootdown { cpus, sockets, ipis, ns });
        }
        m.progressed(1);
    }
    Ok(())
}

/// Touches the page of each round, and computes until the next.
fn follow<M: Machine>(system: &System<'_, M>, team: &Team) -> Result<(), Error> {
    let mut seen = 0;
    loop {
        match team.round.load(Ordering::Acquire) {
            OVER => return Ok(()),
            round if round != seen => {
                seen = round;
                system.access(page_of(round - 1).addr(), 1, UserAccess::Read)?;
                team.touched.fetch_add(1, Ordering::Release);
            }
            _ => system.mm.platform().compute(PIECE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(socket: u32, sockets: u32) -> Vec<(u32, u32)> {
        points(socket, sockets).iter().map(|point| (point.cpus, point.sockets)).collect()
    }

    #[test]
    fn the_curve_has_both_published_points_and_whole_sockets_between() {
        let whole = [(30, 2), (45, 3), (60, 4), (75, 5), (90, 6), (105, 7), (120, 8)];
        let small = [(1, 1), (2, 1), (4, 1), (8, 1), (15, 1), (16, 2)];
        assert_eq!(pairs(15, 8), [&small[..], &whole[..]].concat());
    }

    #[test]
    fn any_machine_has_a_curve_from_one_cpu_to_all() {
        for (socket, sockets) in [(1, 1), (8, 1), (1, 2), (3, 2), (2048, 2), (64, 64)] {
            let all = pairs(socket, sockets);
            assert_eq!((all[0], all[all.len() - 1]), ((1, 1), (socket * sockets, sockets)));
            let sum: u32 = all.iter().map(|point| point.0).sum();
            assert!(sum <= tasks(socket * sockets), "{socket} x {sockets}: {sum} tasks");
        }
    }
}
