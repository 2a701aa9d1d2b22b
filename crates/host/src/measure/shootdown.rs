//! Shootdowns: what it costs to take the right to write from pages that other CPUs have in their TLBs, who pays what.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::chase::Area;
use super::stats::Spread;
use super::system::cycles;
use super::{Base, Results, topology};

const PAGE: usize = 4096;
const ROUNDS: usize = 400;
/// `tlb_single_page_flush_ceiling` of Linux: more pages are one full flush.
const CEILING: usize = 33;
/// A thread that only counts is away if two of its looks are so many cycles apart.
const AWAY: u64 = 400;

/// What an `mprotect` costs by how many others have the page, and the constants that follow.
pub fn all(
    results: &mut Results,
    base: &Base,
    online: &[u16],
    line: f64,
) -> io::Result<Vec<(usize, Spread)>> {
    let invlpg = by_page(base)?;
    results.time(
        "invlpg",
        invlpg.max(0.0),
        format!(
            "measured: an mprotect of {CEILING} pages, which Linux flushes one by one, against one of {} pages, all at once, without what a page more costs; flush_all of {}",
            CEILING + 1,
            base.name
        ),
    );
    let mut counts: Vec<usize> =
        (0..12).map(|log| 1 << log).take_while(|&count| count < online.len() - 1).collect();
    counts.push(online.len() - 1);
    let mut curve = vec![(0, others(online, 0)?.0)];
    let mut victim = None;
    for count in counts.into_iter().filter(|&count| count > 0) {
        let (spread, away) = others(online, count)?;
        victim = victim.or(away);
        curve.push((count, spread));
    }
    let cost = |(_, spread): &(usize, Spread)| spread.median - curve[0].1.median;
    let Some(one) = curve.get(1).map(cost) else {
        results.not("ipi_send, ipi_flight, irq_work", "there is one CPU");
        return Ok(curve);
    };
    let irq = victim.unwrap_or(base.irq_enter + base.irq_exit);
    let work = (irq - base.irq_enter - base.irq_exit - invlpg.max(0.0)).max(0.0);
    results.time(
        "irq_work",
        work,
        format!(
            "measured: a CPU that is interrupted to flush a page is away for {irq:.0} ns; less invlpg, and entry and exit of {}",
            base.name
        ),
    );
    // What each further target adds is the sender's; one alone does not say which part is.
    let last = curve.last().filter(|last| last.0 > 1);
    let send =
        last.map_or(base.ipi_send.min(one / 2.0), |last| (cost(last) - one).max(0.0) / (last.0 - 1) as f64);
    let text: Vec<String> =
        curve.iter().map(|(count, spread)| format!("{count}: {:.0}", spread.median)).collect();
    let text = text.join(", ");
    let how = match last {
        Some(_) => format!(
            "measured: an mprotect of one page by other CPUs that have it, ns ({text}): what each further one adds"
        ),
        None => format!("assumption: as {}; with two CPUs it cannot be told from the flight", base.name),
    };
    results.time("ipi_send", send, how);
    results.time(
        "ipi_flight_local",
        one - send - base.irq_enter - work - invlpg.max(0.0) - 3.0 * line,
        format!(
            "measured: an mprotect of one page by other CPUs that have it, ns ({text}): what the first adds, less ipi_send, irq_enter ({}), irq_work, invlpg and three moves of a line",
            base.name
        ),
    );
    Ok(curve)
}

/// What flushing one page takes.
fn by_page(base: &Base) -> io::Result<f64> {
    let time = |pages: usize| -> io::Result<f64> {
        let area = Area::new(pages * PAGE, false)?;
        Ok(protect(&area, pages, || ())?.median)
    };
    let (few, at, over) = (time(CEILING - 16)?, time(CEILING)?, time(CEILING + 1)?);
    let a_page = (at - few) / 16.0;
    // At the ceiling there are so many of them; one page more is all at once.
    Ok((at - over + a_page + base.flush_all) / CEILING as f64)
}

/// Times an `mprotect` that takes the right to write from pages that were just written.
fn protect(area: &Area, pages: usize, mut before: impl FnMut()) -> io::Result<Spread> {
    let call = |rights: i32| {
        // SAFETY: the whole of an area of ours; nobody reads or writes what it may not.
        let done = unsafe { libc::mprotect(area.start().cast(), pages * PAGE, rights) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    let mut samples = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        call(libc::PROT_READ | libc::PROT_WRITE)?;
        // SAFETY: inside the area, and writable now.
        (0..pages).for_each(|page| unsafe { area.byte(page * PAGE).write_volatile(1) });
        before();
        let begin = Instant::now();
        call(libc::PROT_READ)?;
        samples.push(begin.elapsed().as_nanos() as f64);
    }
    Ok(Spread::of(&mut samples))
}

/// An `mprotect` of a page that so many other CPUs have just read; and for how long such a CPU is away, in nanoseconds.
fn others(online: &[u16], count: usize) -> io::Result<(Spread, Option<f64>)> {
    /// The round that is the last.
    const OVER: u32 = u32::MAX;
    let area = Area::new(PAGE, false)?;
    area.touch();
    let (round, ready) = (AtomicU32::new(0), AtomicU32::new(0));
    let (away, times) = (AtomicU64::new(0), AtomicU64::new(0));
    let page = area.start() as usize;
    let begin = (Instant::now(), cycles());
    let spread = std::thread::scope(|scope| -> io::Result<Spread> {
        for &cpu in &online[1..=count] {
            let (round, ready, away, times) = (&round, &ready, &away, &times);
            scope.spawn(move || {
                let _ = topology::pin(cpu);
                let (mut seen, mut last) = (0, cycles());
                let mut gaps = Vec::new();
                loop {
                    let now = round.load(Ordering::Acquire);
                    if now == OVER {
                        break;
                    }
                    if now != seen {
                        // SAFETY: the area lives until all threads have ended, and may always be read.
                        unsafe { (page as *const u8).read_volatile() };
                        seen = now;
                        ready.fetch_add(1, Ordering::Release);
                        last = cycles();
                        continue;
                    }
                    let here = cycles();
                    if here - last > AWAY {
                        gaps.push(here - last);
                    }
                    last = here;
                }
                gaps.sort_unstable();
                if let Some(&middle) = gaps.get(gaps.len() / 2) {
                    away.fetch_add(middle, Ordering::Relaxed);
                    times.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        topology::pin(online[0])?;
        let spread = protect(&area, 1, || {
            ready.store(0, Ordering::Relaxed);
            round.fetch_add(1, Ordering::Release);
            while (ready.load(Ordering::Acquire) as usize) < count {}
        });
        round.store(OVER, Ordering::Release);
        spread
    })?;
    let ns_a_cycle = begin.0.elapsed().as_nanos() as f64 / (cycles() - begin.1).max(1) as f64;
    let times = times.into_inner();
    let away = (times > 0).then(|| away.into_inner() as f64 / times as f64 * ns_a_cycle);
    Ok((spread, away))
}

/// How much less of its time to wake an idle CPU takes before it answers a request to flush.
pub fn idle(results: &mut Results, online: &[u16], wake: f64) -> io::Result<()> {
    let (works, sleeps) = (unmaps(online, false)?, unmaps(online, true)?);
    let answers = (sleeps.median - works.median).clamp(0.0, wake);
    results.time(
        "idle_task",
        wake - answers,
        format!("measured: idle_wake, less what a munmap that frees a page table takes longer ({sleeps}) if the other CPU sleeps than if it works ({works})"),
    );
    Ok(())
}

/// A `munmap` that frees a page table while another CPU, which has used the space since the one before, sleeps or works.
fn unmaps(online: &[u16], sleeps: bool) -> io::Result<Spread> {
    const TABLE: usize = 2 << 20;
    const SLEEP: Duration = Duration::from_micros(200);
    let (round, seen, over) = (AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false));
    let used = Area::new(PAGE, false)?;
    let page = used.start() as usize;
    topology::pin(online[0])?;
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let pinned = topology::pin(online[1]);
            while !over.load(Ordering::Relaxed) {
                // SAFETY: the area lives until this thread has ended.
                unsafe { (page as *const u8).read_volatile() };
                seen.store(round.load(Ordering::Acquire), Ordering::Release);
                if sleeps {
                    std::thread::sleep(SLEEP);
                }
            }
            pinned
        });
        let mut samples = Vec::with_capacity(ROUNDS);
        let mut once = || {
            let area = Area::new(3 * TABLE, false)?;
            let first = (area.start() as usize).next_multiple_of(TABLE) - area.start() as usize;
            // SAFETY: inside the area.
            unsafe { area.byte(first).write_volatile(1) };
            let now = round.fetch_add(1, Ordering::Release) + 1;
            while seen.load(Ordering::Acquire) != now {}
            let there = Instant::now();
            while there.elapsed() < SLEEP / 2 {}
            let begin = Instant::now();
            // SAFETY: a part of an area of ours that nobody uses any more; the rest goes with it.
            let done = unsafe { libc::munmap(area.byte(first).cast(), TABLE) };
            samples.push(begin.elapsed().as_nanos() as f64);
            if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        };
        let done = (0..ROUNDS).try_for_each(|_| once());
        over.store(true, Ordering::Relaxed);
        // On one CPU with this one it measures something else.
        other.join().map_err(|_| io::Error::other("the other thread ended"))??;
        done.map(|()| Spread::of(&mut samples))
    })
}
