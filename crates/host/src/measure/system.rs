//! The kernel: calls, page faults, switches, wake-ups, ticks; and single instructions and frames.

use std::arch::x86_64::_rdtsc;
use std::fs;
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use super::chase::Area;
use super::stats::{Spread, timed};
use super::{Base, Results, topology};

const PAGE: usize = 4096;

/// Calls, spin hints, frames. Returns what a call takes.
pub fn calls(results: &mut Results) -> f64 {
    let syscall = timed(31, 2000, |times| {
        for _ in 0..times {
            // SAFETY: asks for a number.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
    });
    results.spread("syscall", syscall, "getppid");
    let pause = timed(31, 2000, |times| (0..times).for_each(|_| std::hint::spin_loop()));
    results.spread("pause", pause, "PAUSE");
    syscall.median
}

/// Page faults, and the clearing and copying of a frame. Returns a fault that reads and one that writes, whole.
pub fn faults(results: &mut Results, base: &Base) -> io::Result<[Spread; 2]> {
    const PAGES: usize = 2048;
    let frames = Area::new(16 << 20, false)?;
    frames.touch();
    let half = 8 << 20;
    let clear = timed(15, half / PAGE, |pages| {
        // SAFETY: the first half of the area, which nobody else has.
        (0..pages).for_each(|page| unsafe { std::ptr::write_bytes(frames.byte(page * PAGE), 0, PAGE) });
    });
    results.spread("clear_frame", clear, "8 MiB set to zero, a page at a time");
    let copy = timed(15, half / PAGE, |pages| {
        for page in 0..pages {
            // SAFETY: from the first half of the area to the second, which do not overlap.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    frames.byte(page * PAGE),
                    frames.byte(half + page * PAGE),
                    PAGE,
                );
            }
        }
    });
    results.spread("copy_frame", copy, "8 MiB copied, a page at a time");

    let fault = |write: bool| -> io::Result<Spread> {
        let mut samples = Vec::new();
        for _ in 0..15 {
            let area = Area::new(PAGES * PAGE, false)?;
            // The first fault makes tables.
            // SAFETY: inside the area.
            unsafe { area.start().read_volatile() };
            let begin = Instant::now();
            for page in 1..PAGES {
                let at = area.byte(page * PAGE);
                // SAFETY: inside the area.
                unsafe {
                    if write {
                        at.write_volatile(1);
                    } else {
                        at.read_volatile();
                    }
                }
            }
            samples.push(begin.elapsed().as_nanos() as f64 / (PAGES - 1) as f64);
        }
        Ok(Spread::of(&mut samples))
    };
    let (read, write) = (fault(false)?, fault(true)?);
    let comes = (100.0 - base.goes) / 100.0;
    let rest = (write.median - clear.median - base.trap).max(0.0);
    if comes > 0.0 {
        results.time(
            "other_kernel_work",
            rest / comes,
            format!(
                "measured: a page fault that writes, {write}, less clear_frame and the trap ({:.0} ns, {}); what a page costs when it comes is {:.0} percent of it",
                base.trap,
                base.name,
                comes * 100.0
            ),
        );
    }
    results.not("trap_enter, trap_exit", "a fault is measured whole");
    Ok([read, write])
}

/// Two threads on a CPU that give way to each other. Returns what a switch takes, its call included.
pub fn switches(results: &mut Results, cpu: u16, syscall: f64) -> io::Result<f64> {
    let over = std::sync::atomic::AtomicBool::new(false);
    let each = std::thread::scope(|scope| -> io::Result<Spread> {
        let (ours, theirs) = (Pipes::new()?, Pipes::new()?);
        let (mut to, mut from) = (ours.1, theirs.0);
        let (mut back, mut there) = (theirs.1, ours.0);
        scope.spawn(move || {
            let _ = topology::pin(cpu);
            let mut byte = [0];
            while there.read_exact(&mut byte).is_ok() && back.write_all(&byte).is_ok() {}
        });
        let each = timed(31, 100, |times| {
            let mut byte = [0];
            for _ in 0..times {
                let _ = to.write_all(&byte);
                let _ = from.read_exact(&mut byte);
            }
        });
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        Ok(Spread { median: each.median / 2.0, low: each.low / 2.0, high: each.high / 2.0 })
    })?;
    results.time(
        "task_switch",
        each.median - 2.0 * syscall,
        format!("measured: half of a round of two threads on a CPU through pipes, {each}, less two calls"),
    );
    Ok(each.median)
}

/// A pipe's ends.
struct Pipes(fs::File, fs::File);

impl Pipes {
    fn new() -> io::Result<Pipes> {
        let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        Ok(Pipes(read.into(), write.into()))
    }
}

/// The same with a thread on another CPU, which is idle meanwhile. Returns how long that takes to wake, in nanoseconds.
pub fn wakes(results: &mut Results, base: &Base, online: &[u16], switch: f64) -> io::Result<Option<f64>> {
    let Some(&other) = online.get(1) else {
        results.not("idle_wake, idle_task", "there is one CPU");
        return Ok(None);
    };
    let each = std::thread::scope(|scope| -> io::Result<Spread> {
        let (ours, theirs) = (Pipes::new()?, Pipes::new()?);
        let (mut to, mut from) = (ours.1, theirs.0);
        let (mut back, mut there) = (theirs.1, ours.0);
        scope.spawn(move || {
            let _ = topology::pin(other);
            let mut byte = [0];
            while there.read_exact(&mut byte).is_ok() && back.write_all(&byte).is_ok() {}
        });
        Ok(timed(31, 50, |times| {
            let mut byte = [0];
            for _ in 0..times {
                let _ = to.write_all(&byte);
                let _ = from.read_exact(&mut byte);
            }
        }))
    })?;
    let one = |ns: f64| ns / 2.0;
    let each = Spread { median: one(each.median), low: one(each.low), high: one(each.high) };
    let wake = (each.median - switch - base.ipi_send - base.irq_enter).max(0.0);
    results.time(
        "idle_wake",
        wake,
        format!(
            "measured: half of a round of two threads on two CPUs through pipes, {each}, less one on the same CPU and the interrupt ({})",
            base.name
        ),
    );
    Ok(Some(wake))
}

/// The timer: how often this CPU is away for a moment, and for how long.
pub fn ticks(results: &mut Results, base: &Base, cpu: u16) {
    const FOR: Duration = Duration::from_millis(400);
    let before = timer_interrupts(cpu);
    let (begin, first) = (Instant::now(), cycles());
    let (mut gaps, mut last) = (Vec::new(), first);
    while begin.elapsed() < FOR {
        for _ in 0..1000 {
            let now = cycles();
            gaps.push(now - last);
            last = now;
        }
        gaps.retain(|&gap| gap > 1000);
    }
    let ns_a_cycle = begin.elapsed().as_nanos() as f64 / (last - first) as f64;
    let elapsed = begin.elapsed().as_secs_f64();
    let ticks = before.zip(timer_interrupts(cpu)).map(|(before, after)| after - before);
    match ticks {
        Some(ticks) if ticks > 0 => {
            let hz = [100u64, 250, 300, 1000]
                .into_iter()
                .min_by_key(|&hz| ((hz as f64 - ticks as f64 / elapsed).abs() * 1000.0) as u64);
            let how = format!(
                "measured: {ticks} timer interrupts in {elapsed:.2} s on a busy CPU, and the nearest of Linux's choices"
            );
            results.count("cost", "tick_hz", hz.unwrap_or(250), "Hz", &how);
            // As many of the longest gaps as there were ticks; what is longer still was another program.
            gaps.sort_unstable();
            let mut gaps: Vec<f64> =
                gaps.iter().rev().take(ticks as usize).map(|&gap| gap as f64 * ns_a_cycle).collect();
            let gap = Spread::of(&mut gaps);
            results.time(
                "tick_work",
                gap.low - base.irq_enter - base.irq_exit,
                format!(
                    "measured: how long a busy CPU is away at a tick, {gap}, the lower quartile, less entry and exit of an interrupt ({})",
                    base.name
                ),
            );
        }
        _ => results.not("tick_hz, tick_work", "/proc/interrupts does not count timer interrupts"),
    }
}

/// The time stamp counter.
pub fn cycles() -> u64 {
    // SAFETY: an instruction without operands that every x86-64 has.
    unsafe { _rdtsc() }
}

fn timer_interrupts(cpu: u16) -> Option<u64> {
    let text = fs::read_to_string("/proc/interrupts").ok()?;
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("LOC:"))?;
    line.split_whitespace().nth(cpu.into())?.parse().ok()
}
