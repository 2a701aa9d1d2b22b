//! The interrupt table, and what its entries come to.

use core::arch::asm;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use quietmm_workloads::Kernel;

use crate::cpu::{self, count_one};
use crate::{alarm, apic, paging, user};

/// The vector of `Cpus::interrupt`.
pub const IPI: u8 = 0xf0;
/// The vector of `Machine::kick`.
pub const KICK: u8 = 0xf1;
/// The timer's vector.
pub const TIMER: u8 = 0xf2;
/// By which ring 3 ends an access.
const LEAVE: u8 = 0x80;
/// In a gate: ring 3 may use it.
const OF_PROGRAMS: u64 = 3 << 45;
/// Interrupts that the APIC took back.
pub const SPURIOUS: u8 = 0xff;

const PAGE_FAULT: usize = 14;
const DOUBLE_FAULT: usize = 8;

/// Interrupt stacks by what they are for, as the task state counts them: from 1.
mod stack {
    pub const INTERRUPT: u8 = 1;
    pub const PAGE_FAULT: u8 = 2;
    pub const DOUBLE_FAULT: u8 = 3;
    pub const OTHER: u8 = 4;
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Gate(u64, u64);

#[repr(C, align(16))]
struct Table(core::cell::UnsafeCell<[Gate; 256]>);

// SAFETY: written by the first CPU while it is alone.
unsafe impl Sync for Table {}

static TABLE: Table = Table(core::cell::UnsafeCell::new([Gate(0, 0); 256]));

unsafe extern "C" {
    fn exceptions();
    fn entry_page_fault();
    fn entry_ipi();
    fn entry_kick();
    fn entry_timer();
    fn entry_spurious();
    fn entry_leave();
    fn program_exceptions();
    fn program_ipi();
    fn program_kick();
    fn program_timer();
    fn program_spurious();
}

/// An interrupt gate: interrupts are off inside.
fn gate(to: u64, stack: u8) -> Gate {
    let low = to & 0xffff | 8 << 16 | u64::from(stack) << 32 | 0x8e << 40 | (to >> 16 & 0xffff) << 48;
    Gate(low, to >> 32)
}

/// Fills the table. On the first CPU, once. With `programs` what is in ring 3 are not the accesses of `user.s` but
/// programs, which may do anything.
pub fn make(programs: bool) {
    // SAFETY: the first CPU is alone.
    let table = unsafe { &mut *TABLE.0.get() };
    for (vector, entry) in table.iter_mut().enumerate().take(32) {
        let stack = if vector == DOUBLE_FAULT { stack::DOUBLE_FAULT } else { stack::OTHER };
        *entry = gate(exceptions as *const () as u64 + 16 * vector as u64, stack);
    }
    table[PAGE_FAULT] = gate(entry_page_fault as *const () as u64, stack::PAGE_FAULT);
    let others: [(u8, unsafe extern "C" fn()); 4] =
        [(IPI, entry_ipi), (KICK, entry_kick), (TIMER, entry_timer), (SPURIOUS, entry_spurious)];
    for (vector, entry) in others {
        table[usize::from(vector)] = gate(entry as *const () as u64, stack::INTERRUPT);
    }
    if programs {
        // All on the task's own stack. What may come at any moment, or with no stack left, keeps its own.
        let vectors = (0..32).filter(|vector| ![2, DOUBLE_FAULT, 18].contains(vector));
        for vector in vectors {
            let Gate(low, high) = gate(program_exceptions as *const () as u64 + 16 * vector as u64, 0);
            // A program may ask for a breakpoint and an overflow by instruction.
            table[vector] = Gate(if matches!(vector, 3 | 4) { low | OF_PROGRAMS } else { low }, high);
        }
        let others: [(u8, unsafe extern "C" fn()); 4] =
            [(IPI, program_ipi), (KICK, program_kick), (TIMER, program_timer), (SPURIOUS, program_spurious)];
        for (vector, entry) in others {
            table[usize::from(vector)] = gate(entry as *const () as u64, 0);
        }
        return;
    }
    let Gate(low, high) = gate(entry_leave as *const () as u64, stack::INTERRUPT);
    table[usize::from(LEAVE)] = Gate(low | OF_PROGRAMS, high);
}

/// Loads the table on this CPU.
pub fn load() {
    #[repr(C, packed)]
    struct Pointer(u16, *const Table);
    let pointer = Pointer(4095, &raw const TABLE);
    // SAFETY: the table lives for ever, and each of its entries has a stack.
    unsafe { asm!("lidt [{}]", in(reg) &raw const pointer, options(nostack, readonly)) };
}

/// The two halves of the reference to the kernel; null before it runs.
static KERNEL: [AtomicPtr<()>; 2] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 2];
static READY: AtomicUsize = AtomicUsize::new(0);

/// From now on interrupts and faults go to this kernel.
pub fn set_kernel(kernel: &'static dyn Kernel) {
    // SAFETY: a reference to a trait object is two words.
    let halves: [*mut (); 2] = unsafe { core::mem::transmute(kernel) };
    KERNEL[0].store(halves[0], Ordering::Relaxed);
    KERNEL[1].store(halves[1], Ordering::Relaxed);
    // Release: partner of the Acquire in `kernel`.
    READY.store(1, Ordering::Release);
}

/// The kernel that runs, if one does.
pub fn kernel() -> Option<&'static dyn Kernel> {
    // Acquire: partner of the Release in `set_kernel`.
    (READY.load(Ordering::Acquire) != 0).then(|| {
        let halves = [KERNEL[0].load(Ordering::Relaxed), KERNEL[1].load(Ordering::Relaxed)];
        // SAFETY: `set_kernel` took a reference apart into these.
        unsafe { core::mem::transmute::<[*mut (); 2], &'static dyn Kernel>(halves) }
    })
}

/// What all interrupts have in common: one that reaches a CPU that is off is lost.
fn handle(work: impl FnOnce(&'static cpu::Cpu, &'static dyn Kernel)) {
    let cpu = cpu::here();
    count_one(&cpu.interrupts);
    apic::done();
    if !cpu.off.load(Ordering::Relaxed)
        && let Some(kernel) = kernel()
    {
        work(cpu, kernel);
        // After the work: a look that comes between the two would miss what it did. Interrupts are off.
        cpu.look.store(true, Ordering::Relaxed);
    }
}

/// [`IPI`] has come.
#[unsafe(no_mangle)]
pub extern "C" fn on_ipi() {
    handle(|_, kernel| kernel.interrupted());
}

/// [`KICK`] has come.
#[unsafe(no_mangle)]
pub extern "C" fn on_kick() {
    handle(|cpu, kernel| {
        // A full barrier: whoever has asked for one waits for the count.
        cpu.kicks.fetch_add(1, Ordering::SeqCst);
        kernel.rescheduled();
    });
}

/// [`TIMER`] has come.
#[unsafe(no_mangle)]
pub extern "C" fn on_timer() {
    handle(alarm::due);
}

#[unsafe(no_mangle)]
extern "C" fn on_spurious() {}

/// What the stub leaves for an exception.
#[repr(C)]
struct Exception {
    registers: [u64; 9],
    vector: u64,
    error: u64,
    rip: u64,
    cs: u64,
    flags: u64,
    rsp: u64,
    ss: u64,
}

#[unsafe(no_mangle)]
extern "C" fn on_exception(at: &Exception) -> ! {
    let address: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr2", out(reg) address, options(nomem, nostack, preserves_flags)) };
    let what =
        if at.vector == PAGE_FAULT as u64 && paging::is_guard(address) { " (a stack's end)" } else { "" };
    panic!(
        "exception {} error {:#x} at {:#x}, address {address:#x}{what}, flags {:#x}, rsp {:#x}, registers {:x?}",
        at.vector, at.error, at.rip, at.flags, at.rsp, at.registers
    );
}

#[unsafe(no_mangle)]
extern "C" fn on_user_fault(frame: &mut user::Frame) {
    user::faulted(frame);
}
