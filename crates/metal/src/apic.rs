//! The local APIC, of the first kind (memory-mapped): interrupts to other CPUs, the timer, the start of CPUs.

use core::arch::x86_64::_rdtsc;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::clock;
use crate::paging::direct;

const AT: u64 = 0xfee0_0000;
const ID: u64 = 0x20;
const PRIORITY: u64 = 0x80;
const DONE: u64 = 0xb0;
const SPURIOUS: u64 = 0xf0;
const COMMAND: u64 = 0x300;
const TARGET: u64 = 0x310;
const TIMER: u64 = 0x320;
const COUNT: u64 = 0x380;
const LEFT: u64 = 0x390;
const DIVIDE: u64 = 0x3e0;

/// Counts a second of the timer: the emulator and KVM both count nanoseconds.
pub const TIMER_HZ: u64 = 1_000_000_000;

const INIT_ALL_OTHERS: u32 = 0xc_4500;
const STARTUP_ALL_OTHERS: u32 = 0xc_4600;
const BUSY: u32 = 1 << 12;

fn read(register: u64) -> u32 {
    // SAFETY: a register of this CPU's APIC, which the direct map covers; reading has no effect.
    unsafe { direct(AT + register).cast::<u32>().read_volatile() }
}

fn write(register: u64, value: u32) {
    // SAFETY: as above; what is written raises interrupts, for which there are handlers, and nothing else.
    unsafe { direct(AT + register).cast::<u32>().write_volatile(value) };
}

/// This CPU's APIC number.
pub fn number() -> u32 {
    read(ID) >> 24
}

/// Switches this CPU's APIC on.
pub fn enable() {
    write(PRIORITY, 0);
    write(SPURIOUS, 0x100 | u32::from(crate::interrupts::SPURIOUS));
    write(DIVIDE, 0b1011); // by one
    write(TIMER, u32::from(crate::interrupts::TIMER));
}

/// An interrupt has been handled.
pub fn done() {
    write(DONE, 0);
}

/// Interrupts a CPU. Interrupts are off: two registers make one command.
pub fn send(to: u32, vector: u8) {
    while read(COMMAND) & BUSY != 0 {
        spin_loop();
    }
    write(TARGET, to << 24);
    write(COMMAND, 0x4000 | u32::from(vector));
}

/// One interrupt by the timer, in so many of its counts. 0 is none.
pub fn arm(counts: u32) {
    write(COUNT, counts);
}

/// How many counts of the clock pass in so many of the timer.
pub fn measure(counts: u32) -> u64 {
    write(TIMER, 0x1_0000); // masked
    write(COUNT, u32::MAX);
    // SAFETY: reads a counter.
    let (start, before) = (unsafe { _rdtsc() }, read(LEFT));
    while before - read(LEFT) < counts {
        clock::look_away();
    }
    // SAFETY: as above.
    let (after, end) = (read(LEFT), unsafe { _rdtsc() });
    write(COUNT, 0);
    write(TIMER, u32::from(crate::interrupts::TIMER));
    (end - start) * u64::from(counts) / u64::from(before - after)
}

/// CPUs that have arrived.
pub static ARRIVED: AtomicU32 = AtomicU32::new(0);

/// Starts all other CPUs, at the page with this number, and waits for `others` of them: in no particular order.
pub fn start_others(page: u8, others: u32) {
    if others == 0 {
        return;
    }
    write(COMMAND, INIT_ALL_OTHERS);
    let until = clock::now() + 10_000_000;
    while clock::now() < until {
        clock::look_away();
    }
    for _ in 0..2 {
        write(COMMAND, STARTUP_ALL_OTHERS | u32::from(page));
        clock::spin(200_000);
    }
    // Acquire: partner of the Release with which each says that it is there.
    let limit = clock::now() + 10_000_000_000;
    while ARRIVED.load(Ordering::Acquire) < others {
        spin_loop();
        assert!(
            clock::now() < limit,
            "{} of {others} other CPUs have not come",
            others - ARRIVED.load(Ordering::Relaxed)
        );
    }
}
