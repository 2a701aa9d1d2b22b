//! Contexts of tasks: a stack each, and where it was left.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

use quietmm_linux::Meter;
use quietmm_workloads::TaskId;

use crate::interrupts::{self, kernel};
use crate::{alarm, apic, clock, cpu, paging};

/// Tasks that can be.
pub const MOST: usize = 4096;

/// For each task its stack pointer while nobody runs it; 0 where there is none. A CPU reads what another has left only
/// after that one's scheduler has said so, under its lock.
static CONTEXTS: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

/// For each task where its entries from ring 3 begin to push, and its base of `fs`; 0 for those that run no program.
pub static ENTRIES: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];
/// See [`ENTRIES`].
pub static FS: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

/// For each task the process whose thread it runs; 0 for those that run no program.
static PROCESSES: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];

/// For each task how long the thread that it runs has run.
static METERS: [AtomicPtr<Meter>; MOST] = [const { AtomicPtr::new(core::ptr::null_mut()) }; MOST];

fn meter_of(task: u32) -> Option<&'static Meter> {
    // SAFETY: nobody changes it but that task, which runs here or rests, and the meter is there until it does.
    unsafe { METERS[task as usize].load(Ordering::Relaxed).as_ref() }
}

/// What the task that runs here does from now on is metered.
///
/// # Safety
/// The meter is there until [`stop_meter`], by this task.
pub unsafe fn meter(meter: &Meter) {
    METERS[cpu::here().task() as usize].store(core::ptr::from_ref(meter).cast_mut(), Ordering::Relaxed);
    meter.begin(clock::now());
}

/// It is metered no more.
pub fn stop_meter() {
    let meter = METERS[cpu::here().task() as usize].swap(core::ptr::null_mut(), Ordering::Relaxed);
    // SAFETY: as `meter` says.
    unsafe { meter.as_ref() }.into_iter().for_each(|meter| meter.rest(clock::now()));
}

/// The task that runs here runs a thread of this process from now on; 0 for none.
pub fn run_for(process: u32) {
    // SeqCst: as of `switch`.
    PROCESSES[cpu::here().task() as usize].swap(process, Ordering::SeqCst);
}

/// Each other CPU that runs a program of which `meant` holds passes a full barrier before this returns: it is interrupted, unless it comes
/// to another task by itself. Interrupts are on, so that two CPUs that ask each other both answer.
pub fn barrier(meant: &dyn Fn(u32) -> bool) {
    // SeqCst: what the caller did before is seen by whoever begins to run such a program after the look.
    fence(Ordering::SeqCst);
    let runs = |other: &cpu::Cpu| {
        let process = PROCESSES[other.task.load(Ordering::SeqCst) as usize].load(Ordering::SeqCst);
        process != 0 && meant(process)
    };
    let kicks = |other: &cpu::Cpu| other.kicks.load(Ordering::SeqCst);
    let here = cpu::number();
    let others = cpu::all().filter(|other| other.number() != here);
    let asked: Vec<_> = others.map(|other| (other, kicks(other))).filter(|(other, _)| runs(other)).collect();
    cpu::irqs_off();
    asked.iter().for_each(|(other, _)| apic::send(other.number(), interrupts::KICK));
    cpu::irqs_on();
    for (other, before) in asked {
        while kicks(other) == before && runs(other) {
            alarm::pause(1);
        }
    }
    fence(Ordering::SeqCst);
}

/// This CPU's base of `fs` becomes that of a task.
pub fn load_fs(task: u32) {
    const FS_BASE: u32 = 0xc000_0100;
    // SAFETY: the kernel does not use `fs`; the base is canonical: `arch_prctl` looks.
    unsafe { cpu::write_register(FS_BASE, FS[task as usize].load(Ordering::Relaxed)) };
}

unsafe extern "C" {
    fn switch_context(left: *mut u64, to: u64);
    fn enter_context(unused: u64, to: u64) -> !;
    fn begin_context();
}

/// Makes a context for a task. On the first CPU, while it is alone.
pub fn spawn(task: TaskId) {
    let number = task.0 as usize;
    assert!(number < MOST, "more tasks than there are contexts");
    let end = paging::make_stack(task.0.into());
    // r15 r14 r13 r12 rbp rbx, and where to return to.
    let words = [0, 0, 0, task.0.into(), 0, 0, begin_context as *const () as u64];
    let start = end - size_of_val(&words) as u64;
    // SAFETY: the top of a stack that nobody uses yet.
    unsafe { core::ptr::with_exposed_provenance_mut::<[u64; 7]>(start as usize).write(words) };
    CONTEXTS[number].store(start, Ordering::Relaxed);
}

/// The most that any task has used of its stack, in bytes.
pub fn deepest() -> u64 {
    let made = (0..MOST).filter(|&task| CONTEXTS[task].load(Ordering::Relaxed) != 0);
    made.map(|task| paging::stack_used(task as u64)).max().unwrap_or(0)
}

/// Leaves the task that runs here for another. Returns when it is switched to again, perhaps on another CPU. Interrupts
/// are off.
pub fn switch(to: TaskId) {
    let cpu = cpu::here();
    // SeqCst: what the task that leaves did before, and what the other does then, is on either side of it. Partner: the look in `barrier`.
    let from = cpu.task.swap(to.0, Ordering::SeqCst);
    cpu.switches.fetch_add(1, Ordering::Relaxed);
    let (rests, begins) = (meter_of(from), meter_of(to.0));
    if rests.is_some() || begins.is_some() {
        let now = clock::now();
        rests.into_iter().for_each(|meter| meter.rest(now));
        begins.into_iter().for_each(|meter| meter.begin(now));
    }
    let entries = ENTRIES[to.0 as usize].load(Ordering::Relaxed);
    if entries != 0 {
        cpu.set_kernel_stack(entries);
        load_fs(to.0);
    }
    let target = CONTEXTS[to.0 as usize].load(Ordering::Relaxed);
    // SAFETY: `to` was left, or never begun, and its scheduler gives it to this CPU alone.
    unsafe { switch_context(CONTEXTS[from as usize].as_ptr(), target) };
}

/// This CPU begins to run its idle task.
pub fn enter() -> ! {
    let idle = cpu::number();
    cpu::here().task.store(idle, Ordering::SeqCst);
    let target = CONTEXTS[idle as usize].load(Ordering::Relaxed);
    assert!(target != 0, "CPU {idle} has no idle task");
    // SAFETY: the stack that is left is not used again.
    unsafe { enter_context(0, target) }
}

#[unsafe(no_mangle)]
extern "C" fn begin_task(task: u64) -> ! {
    kernel().expect("set before any CPU enters a task").run(TaskId(task as u32));
    unreachable!("an ended task was switched to")
}
