//! CPUs that are left alone: idle ones, which are lazy, and those that go offline and come back.

use alloc::format;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use quietmm::platform::{Cpus, Services, WaitKey};
use quietmm::{Backing, Counter, CpuId, Error, PageNumber, PageRange, Prot, SpaceId};
use quietmm_workloads::{Kernel, Params, TaskKind};

use super::Sys;
use super::team::{check, wait_until};

const PAGE: PageNumber = PageNumber(0x10_0000);
const KEY: WaitKey = WaitKey::Own(7 << 40);

/// What the sleepers know.
struct Bed {
    round: AtomicU32,
    /// Sleepers that have looked in this round.
    looked: AtomicU32,
}

/// A program on each CPU but the first looks at a page, then sleeps; meanwhile another page is put in its place. `away`
/// and `back` are called while all sleep, before and after.
fn sleepers(
    system: &Sys,
    params: &Params<'static>,
    rounds: u32,
    between: impl Fn(&Sys, &dyn Fn() -> Result<(), Error>) -> Result<(), Error> + 'static,
) -> Result<(), Error> {
    let space = system.mm.create_space()?;
    let bed = Arc::new(Bed { round: AtomicU32::new(0), looked: AtomicU32::new(0) });
    for cpu in 1..params.cpus {
        let bed = bed.clone();
        system.spawn(format!("sleeper/{cpu}"), TaskKind::User(space), CpuId(cpu as u16), move |system| {
            for round in 1..=rounds {
                // Acquire: partner of the Release of the leader.
                system.mm.platform().wait(KEY, &mut || bed.round.load(Ordering::Acquire) >= round);
                let seen = system.load(PAGE.addr());
                check(system, seen == Ok(round.into()), || {
                    format!("sleeper {cpu} found {seen:x?} in round {round}")
                });
                bed.looked.fetch_add(1, Ordering::Release);
            }
            Ok(())
        });
    }
    let sleepers = params.cpus - 1;
    system.spawn("leader".into(), TaskKind::User(space), CpuId(0), move |system| {
        for round in 1..=rounds {
            let change = || change(system, space, round);
            if round == 1 {
                change()?
            } else {
                between(system, &change)?
            }
            bed.looked.store(0, Ordering::Relaxed);
            bed.round.store(round, Ordering::Release);
            system.wake(KEY);
            wait_until(system, || bed.looked.load(Ordering::Acquire) == sleepers);
            // Until all are idle again, and lazy.
            system.nap(2_000_000);
        }
        Ok(())
    });
    Ok(())
}

fn change(system: &Sys, space: SpaceId, round: u32) -> Result<(), Error> {
    // Beside it another page stays, so that the table stays too, and lazy CPUs may be left alone.
    let page = PageRange::new(PAGE, 1);
    if round == 1 {
        let both = PageRange::new(PAGE, 2);
        system.mm.space(space).map(both, Backing::Anonymous, Prot::ReadWrite)?;
        system.store(PageNumber(PAGE.0 + 1).addr(), 1)?;
    } else {
        system.mm.space(space).unmap(page)?;
        // Another page takes the frame, or the new one would lie where the old one was, and nobody could tell.
        let other = PageNumber(PAGE.0 + 1 + u64::from(round));
        system.mm.space(space).map(PageRange::new(other, 1), Backing::Anonymous, Prot::ReadWrite)?;
        system.store(other.addr(), u64::MAX)?;
        system.mm.space(space).map(page, Backing::Anonymous, Prot::ReadWrite)?;
    }
    system.store(PAGE.addr(), round.into())
}

/// Lazy CPUs are not interrupted, and see nothing stale when they come back.
pub fn lazy(system: &Sys, params: &Params<'static>) -> Result<(), Error> {
    sleepers(system, params, 6, |system, change| {
        let (sent, skipped) = (system.mm.counter(Counter::IpisSent), system.mm.counter(Counter::LazySkipped));
        change()?;
        let sent = system.mm.counter(Counter::IpisSent) - sent;
        let skipped = system.mm.counter(Counter::LazySkipped) - skipped;
        let sleepers = u64::from(system.mm.platform().possible_cpus() - 1);
        // One that is late to bed, or up for the kernel's sake, is interrupted rightly; most are not.
        check(system, skipped >= sleepers / 2 && sent <= sleepers / 2, || {
            format!("{sent} of {sleepers} sleepers were interrupted, {skipped} left alone")
        });
        Ok(())
    })
}

/// CPUs that go offline while their programs sleep, and come back: nobody waits for them, and they see nothing stale.
pub fn hotplug(system: &Sys, params: &Params<'static>) -> Result<(), Error> {
    let last = params.cpus - 1;
    let first = last.saturating_sub(7).max(1);
    sleepers(system, params, 4, move |system, change| {
        for cpu in first..=last {
            check(system, system.take_offline(CpuId(cpu as u16)), || {
                format!("CPU {cpu} does not go offline")
            });
        }
        change()?;
        for cpu in first..=last {
            check(system, system.bring_online(CpuId(cpu as u16)), || format!("CPU {cpu} does not come back"));
        }
        Ok(())
    })
}

/// CPUs that were not there when the core was made (`late=N`) come one after the other, and do as the others do.
pub fn late(system: &Sys, params: &Params<'static>) -> Result<(), Error> {
    let cpus = params.cpus;
    let online = system.mm.online_cpus();
    check(system, online < cpus, || "all CPUs are early: use late=".into());
    sleepers(system, params, 3, move |system, change| {
        for cpu in online..cpus {
            system.bring_online(CpuId(cpu as u16));
        }
        change()?;
        let now = system.mm.online_cpus();
        check(system, now == cpus, || format!("{now} of {cpus} CPUs are online"));
        Ok(())
    })
}
