//! Time: the time-stamp counter, measured against the APIC's timer.

use core::arch::x86_64::_rdtsc;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::apic;

/// When the machine began, and nanoseconds in 2^32 counts.
static BEGAN: AtomicU64 = AtomicU64::new(0);
static FACTOR: AtomicU64 = AtomicU64::new(1 << 32);
static EXACT: AtomicBool = AtomicBool::new(false);

/// How long the measurement takes, in counts of the APIC's timer.
const SAMPLE: u32 = 5_000_000;

fn counts() -> u64 {
    // SAFETY: reads a counter.
    unsafe { _rdtsc() }
}

/// Measures how fast the counter runs. On the first CPU, before time is asked for.
pub fn start() {
    let counted = apic::measure(SAMPLE);
    let ns = u64::from(SAMPLE) * 1_000_000_000 / apic::TIMER_HZ;
    // Where instructions are the clock (icount) both count nanoseconds, and the difference is that of two looks.
    let exact = counted.abs_diff(ns) < ns / 1000;
    let factor = if exact { 1 << 32 } else { ((u128::from(ns) << 32) / u128::from(counted)) as u64 };
    FACTOR.store(factor, Ordering::Relaxed);
    EXACT.store(exact, Ordering::Relaxed);
    BEGAN.store(counts(), Ordering::Relaxed);
}

/// Whether instructions are the clock: CPUs take turns, and a pause ends one.
pub fn counts_instructions() -> bool {
    EXACT.load(Ordering::Relaxed)
}

/// Nanoseconds since the machine began. Does not run backwards on one CPU.
pub fn now() -> u64 {
    let counts = counts().saturating_sub(BEGAN.load(Ordering::Relaxed));
    ((u128::from(counts) * u128::from(FACTOR.load(Ordering::Relaxed))) >> 32) as u64
}

/// Some thousand instructions that look at nothing. Where instructions are the clock, each look at a clock or a device ends the emulator's
/// turn, and takes as long as all these: whoever waits for milliseconds looks in between only.
pub fn look_away() {
    for step in 0..500 {
        core::hint::black_box(step);
    }
}

/// Spins for about so many nanoseconds, at least once.
pub fn spin(ns: u64) {
    let until = now() + ns;
    loop {
        spin_loop();
        if now() >= until {
            return;
        }
    }
}
