//! Reclaim takes pages from under CPUs that have them cached; write-back takes the right to write.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use quietmm::{Backing, Counter, CpuId, Error, PageNumber, PageRange, Prot, UserAccess};
use quietmm_workloads::{Kernel, Machine, Params, TaskKind};

use super::Sys;
use super::team::{check, wait_until};
use crate::{alarm, clock};

const HOT: PageNumber = PageNumber(0x10_0000);
const COLD: PageNumber = PageNumber(0x20_0000);
/// CPUs that read cold pages, at most.
const MOST_READERS: u32 = 4;
/// How long those that read hot pages stand still in between, in nanoseconds for each CPU: they share processors with the others.
const BETWEEN_NS: u64 = 50_000;
/// Pages that programs go on reading while reclaim takes them.
const HOT_PAGES: u64 = 16;

/// Half the CPUs go on reading hot pages of a file, the others read cold ones until memory has gone round twice: since
/// cached entries are used without their accessed bit being set again, hot pages are taken too. Nobody may read a
/// page that shows anything but its own content.
pub fn batch(system: &Sys, params: &Params<'static>) -> Result<(), Error> {
    let space = system.mm.create_space()?;
    let pages = 2 * params.frames;
    let file = system.mm.create_file(HOT_PAGES + pages)?;
    let mm = &system.mm;
    mm.space(space).map(PageRange::new(HOT, HOT_PAGES), Backing::File { file, offset: 0 }, Prot::Read)?;
    mm.space(space).map(
        PageRange::new(COLD, pages),
        Backing::File { file, offset: HOT_PAGES },
        Prot::Read,
    )?;
    let readers = (params.cpus / 2).clamp(1, MOST_READERS);
    let (left, begun) = (Arc::new(AtomicU32::new(readers)), Arc::new(AtomicU32::new(0)));
    for cpu in 0..params.cpus {
        let (left, begun) = (left.clone(), begun.clone());
        let share = pages / u64::from(readers);
        let name = format!("reader/{cpu}");
        system.spawn(name, TaskKind::User(space), CpuId(cpu as u16), move |system| {
            let m = system.mm.platform();
            if cpu < readers {
                wait_until(system, || begun.load(Ordering::Acquire) == params_cpus(system) - readers);
                let first = u64::from(cpu) * share;
                for page in first..first + share {
                    let at = PageNumber(COLD.0 + page).addr();
                    system.access(at, 8, UserAccess::Read)?;
                }
                left.fetch_sub(1, Ordering::Release);
                return Ok(());
            }
            for pass in 0.. {
                // The last pass begins when the cold pages are through: what is stale by then is seen.
                let over = left.load(Ordering::Acquire) == 0;
                for page in 0..HOT_PAGES {
                    let at = PageNumber(HOT.0 + page).addr();
                    system.access(at, 512, UserAccess::Read)?;
                    m.shows(at, file, page);
                }
                if pass == 0 {
                    begun.fetch_add(1, Ordering::Release);
                }
                if over {
                    break;
                }
                if clock::counts_instructions() {
                    m.compute(1000);
                } else {
                    alarm::stand_still(BETWEEN_NS * u64::from(params_cpus(system)));
                }
                system.cond_resched();
            }
            if cpu + 1 == params_cpus(system) {
                // With `unmap=quiet` CPUs flush by themselves.
                let flushed =
                    system.mm.counter(Counter::BatchFlushes) + system.mm.counter(Counter::SweepFlushes);
                check(system, flushed > 0, || {
                    "nothing was flushed for reclaim: the test shows nothing".into()
                });
            }
            Ok(())
        });
    }
    Ok(())
}

fn params_cpus(system: &Sys) -> u32 {
    quietmm::platform::Cpus::possible_cpus(system.mm.platform())
}

/// One program on each CPU goes on writing to its own page of a file; the leader writes the file back again and again. The
/// device looks at each page twice while it takes it: it must not change meanwhile (INV-2). In the end what the programs
/// wrote last is what the file holds.
pub fn write_back(system: &Sys, params: &Params<'static>) -> Result<(), Error> {
    let space = system.mm.create_space()?;
    let cpus = u64::from(params.cpus);
    let file = system.mm.create_file(cpus)?;
    let all = PageRange::new(HOT, cpus);
    system.mm.space(space).map(all, Backing::File { file, offset: 0 }, Prot::ReadWrite)?;
    system.mm.platform().store.watch();
    let over = Arc::new(AtomicU32::new(0));
    let last: Arc<[AtomicU64]> = (0..cpus).map(|_| AtomicU64::new(0)).collect();
    let ended = Arc::new(AtomicU32::new(0));
    for cpu in 1..params.cpus {
        let (over, last, ended) = (over.clone(), last.clone(), ended.clone());
        system.spawn(format!("writer/{cpu}"), TaskKind::User(space), CpuId(cpu as u16), move |system| {
            let mine = PageNumber(HOT.0 + u64::from(cpu)).addr();
            let mut value = u64::from(cpu) << 32;
            while over.load(Ordering::Relaxed) == 0 {
                value += 1;
                system.store(mine, value)?;
                last[cpu as usize].store(value, Ordering::Relaxed);
                if value % 64 == 0 {
                    // CPUs that share a processor take turns.
                    alarm::stand_still(BETWEEN_NS * u64::from(params_cpus(system)));
                }
            }
            ended.fetch_add(1, Ordering::Release);
            Ok(())
        });
    }
    let writers = params.cpus - 1;
    system.spawn("leader".into(), TaskKind::User(space), CpuId(0), move |system| {
        let mm = &system.mm;
        let mut written = 0;
        let now = |page: u64| last[page as usize].load(Ordering::Relaxed);
        for _ in 0..(256 / cpus).max(8) {
            let before: Vec<u64> = (0..cpus).map(now).collect();
            written += mm.file(file).write_back()?;
            wait_until(system, || (1..cpus).all(|page| now(page) != before[page as usize]));
        }
        over.store(1, Ordering::Relaxed);
        wait_until(system, || ended.load(Ordering::Acquire) == writers);
        mm.file(file).write_back()?;
        check(system, written > 0, || "nothing was written back: the test shows nothing".into());
        for page in 1..cpus {
            let (on_disk, last) = (mm.platform().store.first_word(file, page), now(page));
            check(system, on_disk == Some(last), || format!("page {page} holds {on_disk:x?}, not {last:x}"));
        }
        Ok(())
    });
    Ok(())
}
