//! What each CPU has for itself: its number, segments, the stacks that interrupts use, and counters. Reached by `gs`.

use alloc::boxed::Box;
use alloc::vec;
use core::arch::asm;
use core::cell::{Cell, UnsafeCell};
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::interrupts;

/// CPUs that a local APIC of the first kind can name.
pub const MOST: usize = 255;
const INTERRUPT_STACK: usize = 16 << 10;
/// Stacks of their own for interrupts, page faults, double faults, and all that is unexpected.
pub const STACKS: usize = 4;

/// The task-state segment: all that is left of it is where interrupt stacks end.
#[repr(C, packed(4))]
struct TaskState {
    reserved: u32,
    privileged: [u64; 3],
    reserved2: u64,
    stacks: [u64; 7],
    reserved3: u64,
    reserved4: u16,
    ports: u16,
}

/// One CPU. Its own but for what is atomic.
#[repr(C)]
pub struct Cpu {
    this: *const Cpu,
    /// Where entries of the program that runs here begin to push; `program.s` reads it.
    kernel_stack: Cell<u64>,
    /// Where `program.s` keeps a program's stack pointer for a moment.
    user_stack: Cell<u64>,
    number: u32,
    gdt: [u64; 7],
    state: UnsafeCell<TaskState>,
    /// The task that runs here.
    pub task: AtomicU32,
    /// When the next tick is due, in nanoseconds of the clock; `u64::MAX` while there is none.
    pub tick_at: Cell<u64>,
    /// When this CPU began to spin for something, and when it last did, likewise.
    pub spins_since: Cell<u64>,
    /// See `spins_since`.
    pub spun_at: Cell<u64>,
    /// When the first alarm is due, likewise.
    pub alarm_at: AtomicU64,
    /// Something has happened here that may have made another task's turn come.
    pub look: AtomicBool,
    /// It has nothing to do and waits for an interrupt.
    pub idle: AtomicBool,
    /// It is switched off: interrupts are lost.
    pub off: AtomicBool,
    /// It is to be switched on.
    pub on: AtomicBool,
    /// Interrupts of any kind so far.
    pub interrupts: AtomicU64,
    /// Ticks of the timer so far.
    pub ticks: AtomicU64,
    /// Changes from one task to another so far.
    pub switches: AtomicU64,
    /// Interrupts by which another CPU's scheduler asked for a look.
    pub kicks: AtomicU64,
    /// Alarms that went off.
    pub alarms: AtomicU64,
    /// Page faults of user accesses.
    pub faults: AtomicU64,
}

// SAFETY: cells are used by the CPU itself only, all else is atomic or never changes.
unsafe impl Sync for Cpu {}

static CPUS: [AtomicPtr<Cpu>; MOST] = [const { AtomicPtr::new(ptr::null_mut()) }; MOST];
static COUNT: AtomicU32 = AtomicU32::new(0);

const CODE: u64 = 0x00af_9b00_0000_ffff;
const DATA: u64 = 0x00cf_9300_0000_ffff;
const OF_PROGRAMS: u64 = 3 << 45;
const STATE_SELECTOR: u16 = 40;

/// Makes what `count` CPUs need. On the first CPU, once.
pub fn make(count: u32) {
    for number in 0..count {
        let cpu = Box::leak(Box::new(Cpu::new(number)));
        cpu.this = cpu;
        let at = &raw const cpu.state as u64;
        let limit = size_of::<TaskState>() as u64 - 1;
        cpu.gdt[1] = CODE;
        cpu.gdt[2] = DATA;
        cpu.gdt[3] = DATA | OF_PROGRAMS;
        cpu.gdt[4] = CODE | OF_PROGRAMS;
        cpu.gdt[5] = limit | (at & 0xff_ffff) << 16 | 0x89 << 40 | (at >> 24 & 0xff) << 56;
        cpu.gdt[6] = at >> 32;
        CPUS[number as usize].store(cpu, Ordering::Release);
    }
    COUNT.store(count, Ordering::Release);
}

/// How many there are.
pub fn count() -> u32 {
    COUNT.load(Ordering::Relaxed)
}

/// Any CPU, by its number.
pub fn get(number: u32) -> &'static Cpu {
    let cpu = CPUS[number as usize].load(Ordering::Acquire);
    assert!(!cpu.is_null(), "CPU {number} does not exist");
    // SAFETY: made once, and never freed.
    unsafe { &*cpu }
}

/// All CPUs.
pub fn all() -> impl Iterator<Item = &'static Cpu> {
    (0..count()).map(get)
}

impl Cpu {
    fn new(number: u32) -> Cpu {
        let mut stacks = [0; 7];
        for end in stacks.iter_mut().take(STACKS) {
            let stack = Box::leak(vec![0u128; INTERRUPT_STACK / 16].into_boxed_slice());
            *end = stack.as_ptr_range().end as u64;
        }
        Cpu {
            this: ptr::null(),
            kernel_stack: Cell::new(0),
            user_stack: Cell::new(0),
            number,
            gdt: [0; 7],
            state: UnsafeCell::new(TaskState {
                reserved: 0,
                privileged: [0; 3],
                reserved2: 0,
                stacks,
                reserved3: 0,
                reserved4: 0,
                ports: size_of::<TaskState>() as u16,
            }),
            task: AtomicU32::new(number),
            tick_at: Cell::new(u64::MAX),
            spins_since: Cell::new(0),
            spun_at: Cell::new(0),
            alarm_at: AtomicU64::new(u64::MAX),
            look: AtomicBool::new(true),
            idle: AtomicBool::new(false),
            off: AtomicBool::new(false),
            on: AtomicBool::new(false),
            interrupts: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
            switches: AtomicU64::new(0),
            kicks: AtomicU64::new(0),
            alarms: AtomicU64::new(0),
            faults: AtomicU64::new(0),
        }
    }

    /// Where the task state has the stack pointer for entries from ring 3. It is not aligned.
    pub fn privileged_stack(&self) -> *mut u64 {
        // SAFETY: a field of a structure that is never freed; nothing is read.
        unsafe { &raw mut (*self.state.get()).privileged }.cast()
    }

    /// The task that runs here next has its entries from ring 3 begin there. Interrupts are off.
    pub fn set_kernel_stack(&self, at: u64) {
        self.kernel_stack.set(at);
        // SAFETY: this CPU's own task state, which the hardware reads only when it leaves ring 3.
        unsafe { self.privileged_stack().write_unaligned(at) };
    }

    /// The task that runs here.
    pub fn task(&self) -> u32 {
        self.task.load(Ordering::Relaxed)
    }

    /// Its number, which is that of its APIC.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// This CPU becomes that one: loads its segments, and the interrupt table.
    pub fn load(&'static self) {
        #[repr(C, packed)]
        struct Table {
            limit: u16,
            at: u64,
        }
        let table = Table { limit: size_of_val(&self.gdt) as u16 - 1, at: self.gdt.as_ptr() as u64 };
        // SAFETY: the new table has the same code and data segments as the old one; the base of `gs` is this.
        unsafe {
            asm!("lgdt [{}]", in(reg) &raw const table, options(nostack, readonly));
            asm!("ltr {:x}", in(reg) STATE_SELECTOR, options(nostack));
            let at = self.this as u64;
            asm!("wrmsr", in("ecx") 0xc000_0101_u32, in("eax") at as u32, in("edx") (at >> 32) as u32, options(nostack));
        }
        interrupts::load();
    }
}

// `program.s` knows these places.
const _: () = assert!(offset_of!(Cpu, kernel_stack) == 8 && offset_of!(Cpu, user_stack) == 16);

/// Writes a model-specific register.
///
/// # Safety
/// What it does is what the kernel expects.
pub unsafe fn write_register(register: u32, value: u64) {
    // SAFETY: the caller's.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") value as u32, in("edx") (value >> 32) as u32, options(nostack))
    };
}

/// Counts one more. Only the CPU itself does so.
pub fn count_one(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// The CPU that executes this. What it gives is only good while interrupts are off, or no task is switched.
pub fn here() -> &'static Cpu {
    let cpu: *const Cpu;
    // SAFETY: `load` has set `gs`, and the CPU's structure is never freed. Not `pure`: a task may move between calls.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) cpu, options(nostack, preserves_flags, readonly));
        &*cpu
    }
}

/// The number of the CPU that executes this.
pub fn number() -> u32 {
    let number: u32;
    // SAFETY: as in `here`.
    unsafe {
        asm!("mov {:e}, gs:[{}]", out(reg) number, const offset_of!(Cpu, number), options(nostack, preserves_flags, readonly));
    }
    number
}

/// The same before CPUs have numbers.
pub fn number_or(other: u32) -> u32 {
    if count() == 0 { other } else { number() }
}

/// Turns interrupts off; says whether they were on.
pub fn irqs_off() -> bool {
    let flags: u64;
    // SAFETY: reads the flags by way of the stack, and clears one.
    unsafe { asm!("pushfq", "pop {}", "cli", out(reg) flags) };
    flags & 0x200 != 0
}

/// Whether interrupts are on.
pub fn irqs_are_on() -> bool {
    let flags: u64;
    // SAFETY: reads the flags by way of the stack.
    unsafe { asm!("pushfq", "pop {}", out(reg) flags, options(preserves_flags)) };
    flags & 0x200 != 0
}

/// Turns interrupts on.
pub fn irqs_on() {
    // SAFETY: whoever calls this is ready for them. A compiler barrier, as it may touch memory.
    unsafe { asm!("sti", options(nostack)) };
}

/// Stands still until an interrupt.
pub fn halt() {
    // SAFETY: as above.
    unsafe { asm!("hlt", options(nostack)) };
}

/// Turns interrupts on and waits for one, in one step: none can come between.
pub fn wait_for_interrupt() {
    // SAFETY: as above.
    unsafe { asm!("sti", "hlt", options(nostack)) };
}
