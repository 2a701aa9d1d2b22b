//! The order in which the machine comes up.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quietmm::{FrameNumber, NodeId, Region};

use crate::command::{Command, What};
use crate::platform::load_kernel_root;
use crate::pvh::Handed;
use crate::serial::{in8, out16};
use crate::{alarm, apic, clock, cpu, disk, heap, interrupts, paging, program, run, tasks};

/// The page below 1 MiB at which the other CPUs begin.
const TRAMPOLINE_PAGE: u8 = 8;
/// Bytes of the stack on which each CPU but the first starts.
const FIRST_STACK: u64 = 16 << 10;
/// Tasks' stacks, tables and interrupt stacks come out of the memory before the core has it.
const SMALLEST_RUN: u64 = 1 << 20;

/// For each CPU, by its APIC's number, where its first stack ends. `cpu_entry` in `boot.s` reads it.
#[unsafe(no_mangle)]
static FIRST_STACKS: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];
/// The CPUs may go on to their tasks.
static GO: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    static trampoline: u8;
    static trampoline_end: u8;
}

/// The first Rust, on the first CPU, with all others off.
///
/// # Safety
/// Called once, by `boot.s`, with what the loader left in `ebx`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn metal_start(info: u32) -> ! {
    // SAFETY: the caller's.
    let handed = unsafe { Handed::at(info) };
    let command = Command::parse(handed.command_line());
    let (first, end) = main_memory(&handed);
    paging::set_early(first, end);
    let heap = paging::cut(command.heap << 20);
    let last = handed.memory().map(|(start, bytes)| start + bytes).max().unwrap_or(0);
    paging::map_direct(last);
    heap::give(paging::direct(heap) as usize, (command.heap << 20) as usize);
    let programs = matches!(command.what, What::Program);
    if !programs {
        paging::map_accesses();
    }
    let count = count_cpus();
    interrupts::make(programs);
    cpu::make(count);
    cpu::get(0).load();
    assert!(apic::number() == 0, "the first CPU is not number 0");
    apic::enable();
    clock::start();
    if programs {
        program::open(handed.module());
    }
    let disk = disk::open();
    start_others(count);
    alarm::set_period(match command.period {
        0 => command.tick_ns,
        // One instruction is a nanosecond, and all CPUs together take a turn each.
        period => period * u64::from(count),
    });
    run::prepare(&command, disk, |stacks| regions(&handed, (first, end), stacks));
    GO.store(true, Ordering::Release);
    (1..count).for_each(|cpu| apic::send(cpu, interrupts::KICK));
    go()
}

/// The run of memory in which the image lies, from the image's end.
fn main_memory(handed: &Handed) -> (u64, u64) {
    let image = paging::image_end_at();
    let run = handed.memory().find(|&(start, bytes)| start < image && image < start + bytes);
    let (start, bytes) = run.expect("the image lies in memory");
    (image, start + bytes)
}

/// What the core gets: all runs above 1 MiB, without the image and what was cut off for it.
fn regions(handed: &Handed, main: (u64, u64), stacks: u64) -> alloc::vec::Vec<Region> {
    let mut all = alloc::vec::Vec::new();
    let ours = paging::keep(paging::stacks_take(stacks));
    for (start, bytes) in handed.memory() {
        let end = start + bytes;
        let start = if end == main.1 { ours } else { start.next_multiple_of(4096) };
        if start < 1 << 20 || end < start + SMALLEST_RUN {
            continue;
        }
        let frames = ((end - start) / 4096) as u32;
        all.push(Region { start: FrameNumber((start / 4096) as u32), frames, node: NodeId(0) });
    }
    all.sort_by_key(|region| region.start);
    all
}

/// How many CPUs there are, by the emulator's firmware configuration.
fn count_cpus() -> u32 {
    const SELECT: u16 = 0x510;
    const DATA: u16 = 0x511;
    const SIGNATURE: u16 = 0;
    const CPUS: u16 = 5;
    out16(SELECT, SIGNATURE);
    let signature = [(); 4].map(|()| in8(DATA));
    assert!(&signature == b"QEMU", "no firmware configuration: how many CPUs are there?");
    out16(SELECT, CPUS);
    let count = u32::from(in8(DATA)) | u32::from(in8(DATA)) << 8;
    assert!((1..=cpu::MOST as u32).contains(&count), "{count} CPUs: this APIC can name 255");
    count
}

fn start_others(count: u32) {
    for number in 1..count {
        let stack = paging::cut(FIRST_STACK);
        FIRST_STACKS[number as usize].store(paging::direct(stack + FIRST_STACK) as u64, Ordering::Release);
    }
    let (from, to) = (&raw const trampoline, paging::direct(u64::from(TRAMPOLINE_PAGE) << 12));
    let bytes = (&raw const trampoline_end).addr() - from.addr();
    // SAFETY: memory below 1 MiB, which nobody has, and the core does not get.
    unsafe { core::ptr::copy_nonoverlapping(from, to, bytes) };
    apic::start_others(TRAMPOLINE_PAGE, count - 1);
}

/// The first Rust on all other CPUs: they wait until the kernel is there.
#[unsafe(no_mangle)]
extern "C" fn metal_cpu() -> ! {
    cpu::get(apic::number()).load();
    apic::enable();
    // Release: partner of the Acquire in `start_others`.
    apic::ARRIVED.fetch_add(1, Ordering::Release);
    while !GO.load(Ordering::Acquire) {
        cpu::wait_for_interrupt();
        cpu::irqs_off();
    }
    go()
}

/// This CPU begins to work.
fn go() -> ! {
    load_kernel_root();
    program::enable();
    alarm::tick();
    tasks::enter()
}
