//! The timer: ticks, and alarms that wake who sleeps. One shot at a time, armed anew when it has fired: however short the
//! period, a CPU gets that much done in between.

use alloc::collections::BTreeSet;
use core::sync::atomic::{AtomicU64, Ordering};

use quietmm::platform::WaitKey;
use quietmm_workloads::Kernel;

use crate::cpu::{self, Cpu, count_one, irqs_off, irqs_on};
use crate::lock::Lock;
use crate::{apic, clock};

/// Nanoseconds between two ticks, and of how many ticks one goes to the kernel: with periods of a few hundred
/// instructions, made to interrupt wherever it hurts, most only interrupt.
static PERIOD: AtomicU64 = AtomicU64::new(10_000_000);
static EACH: AtomicU64 = AtomicU64::new(1);
/// Shortest time between ticks of which each goes to the kernel.
const WORTH_A_TICK: u64 = 500_000;

type Alarms = Lock<BTreeSet<(u64, WaitKey)>>;
static ALARMS: [Alarms; cpu::MOST] = [const { Lock::new(BTreeSet::new()) }; cpu::MOST];

/// Sets the time between ticks.
pub fn set_period(ns: u64) {
    PERIOD.store(ns.max(1), Ordering::Relaxed);
    EACH.store(WORTH_A_TICK.div_ceil(ns.max(1)), Ordering::Relaxed);
}

/// Arms the timer for what comes first. Interrupts are off.
fn arm(cpu: &Cpu, now: u64) {
    let first = cpu.tick_at.get().min(cpu.alarm_at.load(Ordering::Relaxed));
    let counts = match first {
        u64::MAX => 0,
        first => first.saturating_sub(now).clamp(1, u32::MAX.into()) as u32,
    };
    apic::arm(counts);
}

/// The timer has fired. Interrupts are off.
pub fn due(cpu: &'static Cpu, kernel: &'static dyn Kernel) {
    let mut now = clock::now();
    if cpu.alarm_at.load(Ordering::Relaxed) <= now {
        wake(cpu, kernel, now);
        now = clock::now();
    }
    if cpu.tick_at.get() <= now {
        count_one(&cpu.ticks);
        if cpu.ticks.load(Ordering::Relaxed).is_multiple_of(EACH.load(Ordering::Relaxed)) {
            kernel.ticked();
            now = clock::now();
        }
        cpu.tick_at.set(now + PERIOD.load(Ordering::Relaxed));
    }
    arm(cpu, now);
}

fn wake(cpu: &'static Cpu, kernel: &'static dyn Kernel, now: u64) {
    loop {
        let next = ALARMS[cpu.number() as usize].with(|alarms| {
            let next = alarms.first().copied().filter(|&(at, _)| at <= now);
            if next.is_some() {
                alarms.pop_first();
            }
            cpu.alarm_at.store(alarms.first().map_or(u64::MAX, |&(at, _)| at), Ordering::Relaxed);
            next
        });
        let Some((_, key)) = next else { return };
        count_one(&cpu.alarms);
        kernel.wake(key);
        // Only now: whoever finds none of them finds the task ready. SeqCst, as in `none_since`.
        AHEAD.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whoever waits with `key` is woken by this CPU at `at`.
pub fn set(at: u64, key: WaitKey) {
    let were_on = irqs_off();
    // SeqCst: partner of `none_since`.
    SET.fetch_add(1, Ordering::SeqCst);
    AHEAD.fetch_add(1, Ordering::SeqCst);
    // One that is there already goes off once.
    let again = 1 - add(cpu::here(), [(at, key)]);
    AHEAD.fetch_sub(again, Ordering::SeqCst);
    arm(cpu::here(), clock::now());
    if were_on {
        irqs_on();
    }
}

/// Returns how many were not there yet.
fn add(cpu: &Cpu, new: impl IntoIterator<Item = (u64, WaitKey)>) -> u64 {
    ALARMS[cpu.number() as usize].with(|alarms| {
        let before = alarms.len();
        alarms.extend(new);
        cpu.alarm_at.store(alarms.first().map_or(u64::MAX, |&(at, _)| at), Ordering::Relaxed);
        (alarms.len() - before) as u64
    })
}

/// Alarms that would go off later than this never do: whoever set them no longer waits.
pub fn forget_after(time: u64) {
    for alarms in &ALARMS {
        let gone = alarms.with(|alarms| {
            let before = alarms.len();
            alarms.retain(|&(at, _)| at <= time);
            before - alarms.len()
        });
        AHEAD.fetch_sub(gone as u64, Ordering::SeqCst);
    }
}

/// This CPU's alarms go off on another one, which is to be interrupted. Says whether there were any. Interrupts are off.
pub fn hand_over(to: u32) -> bool {
    let cpu = cpu::here();
    let mine = ALARMS[cpu.number() as usize].with(|alarms| {
        cpu.alarm_at.store(u64::MAX, Ordering::Relaxed);
        core::mem::take(alarms)
    });
    let any = !mine.is_empty();
    let count = mine.len() as u64;
    let again = count - add(cpu::get(to), mine);
    AHEAD.fetch_sub(again, Ordering::SeqCst);
    any
}

/// Alarms that were ever set.
static SET: AtomicU64 = AtomicU64::new(0);
/// Alarms whose task has not been woken yet.
static AHEAD: AtomicU64 = AtomicU64::new(0);

/// How many alarms were ever set: for [`none_since`].
pub fn ever_set() -> u64 {
    SET.load(Ordering::SeqCst)
}

/// Whether `look` holds, and while it looked nobody slept until an alarm. Two looks one after the other would not do: between
/// them an alarm goes off, and its task is ready only after the one and has no alarm any more at the other.
pub fn none_since(set: u64, look: impl FnOnce() -> bool) -> bool {
    // All whose alarm went off are ready by now, and nobody has set one since `set` was read.
    AHEAD.load(Ordering::SeqCst) == 0 && look() && SET.load(Ordering::SeqCst) == set
}

/// Ticks begin, or go on. Interrupts are off.
pub fn tick() {
    let (cpu, now) = (cpu::here(), clock::now());
    cpu.tick_at.set(now + PERIOD.load(Ordering::Relaxed));
    arm(cpu, now);
}

/// No ticks until [`tick`]. Interrupts are off.
pub fn no_tick() {
    let cpu = cpu::here();
    cpu.tick_at.set(u64::MAX);
    arm(cpu, clock::now());
}

/// Spinning longer than this is no short wait: the one waited for may not have a processor.
const LONG: u64 = 20_000;
/// Pauses as close as this belong to one wait.
const CLOSE: u64 = 5_000;

/// Waits for about so many nanoseconds, by the spin hint. A virtual CPU that has done so for long stands still meanwhile
/// where interrupts are on: whoever it waits for may need its processor.
pub fn pause(ns: u64) {
    let (cpu, now) = (cpu::here(), clock::now());
    if now > cpu.spun_at.get() + CLOSE {
        cpu.spins_since.set(now);
    }
    if now > cpu.spins_since.get() + LONG && !clock::counts_instructions() && cpu::irqs_are_on() {
        stand_still(LONG.max(ns));
    } else {
        clock::spin(ns);
    }
    cpu.spun_at.set(clock::now());
}

/// This CPU waits for an interrupt, at most for so many nanoseconds. To the core it is as busy as before. Interrupts are on.
pub fn stand_still(ns: u64) {
    irqs_off();
    let (cpu, now) = (cpu::here(), clock::now());
    let first = cpu.tick_at.get().min(cpu.alarm_at.load(Ordering::Relaxed));
    // Who is interrupted arms the timer anew for what else is due.
    apic::arm(first.saturating_sub(now).clamp(1, ns.min(u32::MAX.into())) as u32);
    cpu::wait_for_interrupt();
}
