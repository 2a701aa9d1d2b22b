//! The workloads' `Machine`: tasks, accesses of programs, idle CPUs, CPUs that are switched off.

use alloc::collections::BTreeMap;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quietmm::addr::Nanos;
use quietmm::platform::{Access, WaitKey};
use quietmm::{CpuId, Error, FileId, UserAccess, VirtAddr};
use quietmm_workloads::{Machine, Op, Pace, Shootdown, Tally, TaskId};

use crate::cpu::{self, irqs_off, irqs_on};
use crate::lock::Lock;
use crate::platform::Metal;
use crate::timeline::{self, What};
use crate::user::{self, By};
use crate::{alarm, apic, clock, interrupts, line, run, store, tasks};

/// Words in a page.
const WORDS: u32 = 512;
/// How long a task runs before another one's turn, in nanoseconds.
const TIME_SLICE: u64 = 4_000_000;
/// Accesses' worth of computation, a nanosecond each, beyond which a CPU stands still instead.
const LONG_COMPUTATION: u32 = 20_000;
/// Stories of wrong content that are printed.
const STORIES: u64 = 8;

/// How often and how long an operation took, in nanoseconds.
#[derive(Clone, Copy, Default)]
pub struct Times {
    /// How often.
    pub count: u64,
    /// All together.
    pub sum: u64,
    /// The shortest.
    pub least: u64,
    /// The longest.
    pub most: u64,
}

/// What a run has to say at its end.
#[derive(Default)]
pub struct Notes {
    /// The last user task has ended.
    pub finished: AtomicBool,
    /// Contents that were not what they should be.
    pub wrong: AtomicU64,
    /// Pages whose content was looked at, word by word.
    pub checked: AtomicU64,
    /// Accesses of tasks whose speed is reported.
    pub counted: AtomicU64,
    /// Pages of work done.
    pub progress: AtomicU64,
}

/// Latencies by operation, of each CPU: none waits for another to note one.
static TIMES: [Lock<BTreeMap<Op, Times>>; cpu::MOST] = [const { Lock::new(BTreeMap::new()) }; cpu::MOST];
/// What the workload counts.
static TALLIES: Lock<BTreeMap<Tally, u64>> = Lock::new(BTreeMap::new());

/// Latencies by operation, all CPUs together.
pub fn times() -> BTreeMap<Op, Times> {
    let mut all = BTreeMap::<Op, Times>::new();
    for times in &TIMES {
        times.with(|times| {
            for (&op, mine) in times.iter() {
                let sum = all.entry(op).or_insert(Times { least: u64::MAX, ..Times::default() });
                sum.count += mine.count;
                sum.sum += mine.sum;
                sum.least = sum.least.min(mine.least);
                sum.most = sum.most.max(mine.most);
            }
        });
    }
    all
}

/// What the workload has counted.
pub fn tallies() -> BTreeMap<Tally, u64> {
    TALLIES.with(|tallies| tallies.clone())
}

/// The first of a page's words that `write` may touch: what programs look at later is the one before.
fn beside_the_first(at: VirtAddr) -> VirtAddr {
    VirtAddr(if at.0.is_multiple_of(4096) { at.0 + 8 } else { at.0 })
}

fn write(by: By, at: VirtAddr, mut count: u32) -> Result<(), Error> {
    let at = beside_the_first(at);
    let room = ((4096 - at.0 % 4096) / 8) as u32;
    while count > 0 {
        user::write(by, at, count.min(room))?;
        count -= count.min(room);
    }
    Ok(())
}

/// What a program does, with notes of when.
#[inline(always)]
fn in_user_mode<const FAULTS: bool, R>(work: impl FnOnce() -> R) -> R {
    if FAULTS {
        timeline::note(What::User, 0);
    }
    let result = work();
    if FAULTS {
        timeline::note(What::Used, 0);
    }
    result
}

impl<const FAULTS: bool> Machine for Metal<FAULTS> {
    fn spawn(&self, task: TaskId) {
        tasks::spawn(task);
    }
    fn switch(&self, to: TaskId) {
        if FAULTS {
            timeline::note(What::Task, to.0);
        }
        tasks::switch(to);
        cpu::here().look.store(true, Ordering::Relaxed);
    }
    fn idle(&self) {
        let cpu = cpu::here();
        if self.notes.finished.load(Ordering::Acquire) && run::settle() {
            return;
        }
        alarm::no_tick();
        if FAULTS {
            timeline::note(What::Idle, 0);
        }
        let before = cpu.interrupts.load(Ordering::Relaxed);
        cpu.idle.store(true, Ordering::Release);
        while cpu.interrupts.load(Ordering::Relaxed) == before {
            cpu::wait_for_interrupt();
            irqs_off();
        }
        cpu.idle.store(false, Ordering::Release);
        if FAULTS {
            timeline::note(What::Awake, 0);
        }
        alarm::tick();
        irqs_on();
    }
    fn kick(&self, cpu: CpuId) {
        let were_on = irqs_off();
        apic::send(cpu.0.into(), interrupts::KICK);
        if were_on {
            irqs_on();
        }
    }

    fn access(&self, at: VirtAddr, count: u32, access: UserAccess) -> Result<(), Error> {
        in_user_mode::<FAULTS, _>(|| match access {
            UserAccess::Read => {
                let sum = user::read(By::Program, at, count)?;
                store::note_read(at, count, sum);
                Ok(())
            }
            UserAccess::Write => write(By::Program, at, count),
            UserAccess::Execute => (0..count).try_for_each(|_| user::execute(at).map(drop)),
        })
    }
    fn kernel_access(&self, at: VirtAddr, count: u32, access: Access) -> Result<(), Error> {
        match access {
            Access::Read => user::read(By::Kernel, at, count).map(drop),
            Access::Write | Access::Rmw => write(By::Kernel, at, count),
        }
    }
    fn store(&self, at: VirtAddr, value: u64) -> Result<(), Error> {
        in_user_mode::<FAULTS, _>(|| user::store(at, value))
    }
    fn load(&self, at: VirtAddr) -> Result<u64, Error> {
        in_user_mode::<FAULTS, _>(|| user::load(at))
    }
    fn shows(&self, at: VirtAddr, file: FileId, block: u64) {
        if !self.store.tags() {
            return;
        }
        let expected = store::tag_sum(file.index(), block);
        let found = match store::noted_read(at, WORDS) {
            Some(sum) => Ok(sum),
            None => user::read(By::Program, at, WORDS),
        };
        self.notes.checked.fetch_add(1, Ordering::Relaxed);
        if found.is_ok_and(|sum| sum != expected) {
            self.wrong_content("a page of a file does not show what the file holds");
        }
    }

    fn compute(&self, count: u32) {
        if count > LONG_COMPUTATION && !clock::counts_instructions() {
            // A virtual CPU that would only keep others from their processor.
            let until = clock::now() + u64::from(count);
            while clock::now() < until {
                alarm::stand_still(until.saturating_sub(clock::now()).max(1));
            }
            return;
        }
        for _ in 0..count {
            // SAFETY: nothing; an instruction that the compiler cannot take away.
            unsafe { core::arch::asm!("nop", options(nomem, nostack, preserves_flags)) };
        }
        // Whoever computes while waiting for others lets them go first, where they share a processor.
        spin_loop();
    }
    fn hand_alarms(&self, to: CpuId) {
        if alarm::hand_over(to.0.into()) {
            // Its timer is armed by itself.
            apic::send(to.0.into(), interrupts::TIMER);
        }
    }
    fn switch_off(&self) {
        let cpu = cpu::here();
        alarm::no_tick();
        cpu.off.store(true, Ordering::SeqCst);
        // Acquire: partner of the Release in `switch_on`.
        while !cpu.on.swap(false, Ordering::AcqRel) {
            cpu::wait_for_interrupt();
            irqs_off();
        }
        cpu.off.store(false, Ordering::SeqCst);
        alarm::tick();
    }
    fn switch_on(&self, cpu: CpuId) {
        cpu::get(cpu.0.into()).on.store(true, Ordering::Release);
        self.kick(cpu);
    }
    fn may_give_way(&self) -> bool {
        // Two steps: what comes in between has come in time, and is seen the next time if it came late.
        let look = &cpu::here().look;
        look.load(Ordering::Relaxed) && look.swap(false, Ordering::Relaxed)
    }
    fn other_kernel_work(&self) {}
    fn alarm(&self, at: Nanos, key: WaitKey) {
        alarm::set(at.0, key);
    }

    fn wrong_content(&self, story: &str) {
        let nth = self.notes.wrong.fetch_add(1, Ordering::Relaxed);
        if nth < STORIES {
            line!("{{\"wrong\":\"{}\",\"cpu\":{}}}", crate::end::Flat(story), cpu::number());
        }
    }
    fn counted(&self, count: u64) {
        self.notes.counted.fetch_add(count, Ordering::Relaxed);
    }
    fn latency(&self, op: Op, _pages: u64, ns: u64) {
        TIMES[cpu::number() as usize].with(|times| {
            let all = times.entry(op).or_insert(Times { least: u64::MAX, ..Times::default() });
            all.count += 1;
            all.sum += ns;
            all.least = all.least.min(ns);
            all.most = all.most.max(ns);
        });
    }
    fn tally(&self, what: Tally, count: u64) {
        TALLIES.with(|tallies| *tallies.entry(what).or_default() += count);
    }
    fn pace(&self, pace: &Pace) {
        let Pace { parts, operations, ns } = *pace;
        line!("{{\"pace\":{{\"parts\":{parts},\"operations\":{operations},\"ns\":{ns}}}}}");
    }
    fn shootdown(&self, shootdown: &Shootdown) {
        let Shootdown { cpus, sockets, ipis, ns } = *shootdown;
        line!("{{\"shootdown\":{{\"cpus\":{cpus},\"sockets\":{sockets},\"ipis\":{ipis},\"ns\":{ns}}}}}");
    }
    fn enter_kernel(&self) {}
    fn leave_kernel(&self) {}
    fn time_slice(&self) -> u64 {
        TIME_SLICE
    }
    fn progressed(&self, pages: u64) {
        self.notes.progress.fetch_add(pages, Ordering::Relaxed);
    }
    fn finished(&self) {
        self.notes.finished.store(true, Ordering::Release);
        run::finished();
    }
}
