//! Contexts of tasks: a stack each, and where it was left.

use core::sync::atomic::{AtomicU64, Ordering};

use quietmm_workloads::TaskId;

use crate::interrupts::kernel;
use crate::{cpu, paging};

/// Tasks that can be.
pub const MOST: usize = 1024;

/// For each task its stack pointer while nobody runs it; 0 where there is none. A CPU reads what another has left only
/// after that one's scheduler has said so, under its lock.
static CONTEXTS: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

/// For each task where its entries from ring 3 begin to push, and its base of `fs`; 0 for those that run no program.
pub static ENTRIES: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];
/// See [`ENTRIES`].
pub static FS: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

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
    let from = cpu.task.replace(to.0);
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
    cpu::here().task.set(idle);
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
