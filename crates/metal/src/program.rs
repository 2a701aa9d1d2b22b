//! Linux's programs in ring 3: what `quietmm-linux` wants of a machine, the entries from ring 3, and one run from the archive to an
//! exit code.
//!
//! A program's thread runs on one of the tasks that were made for them at the start: each waits until it is given a
//! thread, runs it to its end, and waits again. On its stack lies first the loop of that, and above where `enter_program` has left it
//! each entry from ring 3 begins anew.
//!
//! Ring 3 is not trusted here as it is with `user.s`: nothing of the kernel's is mapped for it, its stack pointer is never used as the
//! kernel's, `gs` is swapped, and what it returns to is made tame (`Frame::tame`). It has FXSAVE's registers and no others:
//! `CR4.OSXSAVE` is off, so CPUID says that there is nothing to use beyond them. `CR4.FSGSBASE` is off too.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::arch::x86_64::{__cpuid_count, CpuidResult};
use core::fmt::Write;
use core::ops::Range;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use quietmm::addr::Nanos;
use quietmm::platform::WaitKey;
use quietmm::{CpuId, Error, FileId, SpaceId, VirtAddr};
use quietmm_linux::{Ending, Errno, Flow, Frame, Linux, Machine, Thread};
use quietmm_workloads::{Cpus, System, TaskKind};

use crate::command::Command;
use crate::cpu::{self, count_one, irqs_off, irqs_on};
use crate::end::Flat;
use crate::interrupts::{self, kernel};
use crate::lock::Lock;
use crate::paging::direct;
use crate::platform::Metal;
use crate::run::Running;
use crate::serial::print_line;
use crate::user::{self, By};
use crate::{alarm, clock, heap, line, tasks};

/// Rules can be broken here too, to see what programs see then.
type Here = Metal<true>;

/// What programs' entries lead to.
struct Programs {
    linux: Linux<'static, Here>,
    system: &'static System<'static, Here>,
    /// Where tasks are that run no program, and the kernel's own.
    nowhere: SpaceId,
    seats: Vec<Seat>,
    /// Seats that are free.
    free: Lock<Vec<usize>>,
}

/// A task that runs threads of programs, and what it is to run next.
struct Seat(Lock<Option<(Arc<Thread>, Box<Frame>)>>);

// SAFETY: made before all other CPUs begin, then only read, but for what locks.
unsafe impl Sync for Programs {}

static PROGRAMS: AtomicPtr<Programs> = AtomicPtr::new(core::ptr::null_mut());
/// The thread that each task runs.
static THREADS: [AtomicPtr<Arc<Thread>>; tasks::MOST] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; tasks::MOST];
/// The archive, by address and length.
static ARCHIVE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// How the first program has ended: 256 and its code, or 512 and the signal.
static ENDED: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    fn program_syscall();
    fn enter_program(frame: *const Frame, entries: *const AtomicU64, state: *mut u64);
    fn user_copy(to: u64, from: u64, bytes: u64, unused: u64, error: *mut ()) -> user::Given;
    fn user_load_word(at: u64, unused: u64, unused2: u64, unused3: u64, error: *mut ()) -> user::Given;
    fn user_swap_word(at: u64, old: u64, new: u64, unused: u64, error: *mut ()) -> user::Given;
}

/// Takes the archive over. On the first CPU, while it is alone.
pub fn open(module: Option<(u64, u64)>) {
    let Some((start, bytes)) = module else { crate::run::refuse("there is no archive") };
    ARCHIVE[0].store(direct(start).expose_provenance(), Ordering::Relaxed);
    ARCHIVE[1].store(bytes as usize, Ordering::Relaxed);
}

fn archive() -> &'static [u8] {
    let [at, bytes] = [0, 1].map(|half: usize| ARCHIVE[half].load(Ordering::Relaxed));
    if bytes == 0 {
        return &[];
    }
    // SAFETY: the loader's module, which is mapped, and in no region that the core has.
    unsafe { core::slice::from_raw_parts(core::ptr::with_exposed_provenance(at), bytes) }
}

/// Lets ring 3 call this kernel, if programs run. On each CPU.
pub fn enable() {
    if PROGRAMS.load(Ordering::Acquire).is_null() {
        return;
    }
    const EFER: u32 = 0xc000_0080;
    const STAR: u32 = 0xc000_0081;
    const LSTAR: u32 = 0xc000_0082;
    const MASK: u32 = 0xc000_0084;
    const KERNEL_GS: u32 = 0xc000_0102;
    // SAFETY: `program_syscall` is made for this; long mode, and no-execute, stay on. Interrupts, direction, single steps, alignment
    // checks and nested tasks are off in the kernel.
    unsafe {
        cpu::write_register(EFER, 0xd01);
        cpu::write_register(STAR, 8 << 32);
        cpu::write_register(LSTAR, program_syscall as *const () as u64);
        cpu::write_register(MASK, 0x4_4700);
        cpu::write_register(KERNEL_GS, 0);
    }
}

fn programs() -> &'static Programs {
    // Acquire: partner of the Release in `prepare`.
    let programs = PROGRAMS.load(Ordering::Acquire);
    assert!(!programs.is_null(), "no programs here");
    // SAFETY: leaked by `prepare`.
    unsafe { &*programs }
}

/// Makes the tasks, and what they share. On the first CPU, while the others wait.
///
/// # Errors
/// Why not.
pub(crate) fn prepare(run: &'static Running<true>, command: &Command) -> Result<(), Error> {
    let system = &run.system;
    let nowhere = system.mm.create_space()?;
    let linux = Linux::new(&system.mm, run.machine, command.epoch)?;
    if command.calls {
        linux.note_calls();
    }
    let seats = (0..command.tasks).map(|_| Seat(Lock::new(None))).collect();
    let free = Lock::new((0..command.tasks as usize).rev().collect());
    let all = Box::leak(Box::new(Programs { linux, system, nowhere, seats, free }));
    PROGRAMS.store(all, Ordering::Release);
    let cpus = cpu::count();
    for seat in 0..command.tasks {
        let cpu = CpuId((seat % cpus) as u16);
        let kind = TaskKind::Background(nowhere);
        system.spawn_roaming(format!("program/{seat}"), kind, cpu, move |_| serve(seat as usize));
    }
    system.spawn(String::from("alarms"), TaskKind::Background(nowhere), CpuId(0), |_| {
        programs().linux.serve_alarms()
    });
    system.spawn(String::from("first"), TaskKind::User(nowhere), CpuId(0), |_| {
        let linux = &programs().linux;
        if let Err(why) = linux.start() {
            line!("{{\"start\":\"{}\"}}", Flat(why));
            return Ok(());
        }
        let ended = match linux.wait_for_the_first() {
            Ending::Code(code) => 256 | u64::from(code),
            Ending::Signal(signal) => 512 | u64::from(signal),
        };
        // What programs wanted to be woken for, hours from now.
        alarm::forget_after(clock::now() + 500_000_000);
        ENDED.store(ended, Ordering::Relaxed);
        Ok(())
    });
    Ok(())
}

/// What there is to say of programs, if any ran.
pub fn report() {
    if PROGRAMS.load(Ordering::Acquire).is_null() {
        return;
    }
    for unknown in programs().linux.unknown() {
        line!(
            "{{\"unknown\":\"{}\",\"by\":\"{}\",\"count\":{}}}",
            unknown.name,
            Flat(&unknown.by),
            unknown.count
        );
    }
    match ENDED.load(Ordering::Relaxed) {
        0 => {}
        code @ 256..512 => line!("{{\"exit\":{}}}", code & 0xff),
        signal => line!("{{\"signal\":{}}}", signal & 0xff),
    }
}

/// The life of a task that runs programs' threads.
fn serve(number: usize) -> Result<(), Error> {
    let all = programs();
    let seat = &all.seats[number];
    let key = quietmm_linux::sync::key_of(seat);
    let task = cpu::here().task();
    loop {
        let mut job = None;
        quietmm::platform::Services::wait(all.system.mm.platform(), key, &mut || {
            job = seat.0.with(Option::take);
            job.is_some()
        });
        let Some((thread, mut frame)) = job else { continue };
        if let Some(space) = thread.space() {
            all.system.live_in(space)?;
        }
        THREADS[task as usize].store((&raw const thread).cast_mut(), Ordering::Relaxed);
        tasks::FS[task as usize].store(thread.fs(), Ordering::Relaxed);
        tasks::run_for(thread.pid());
        // SAFETY: the thread is there until then.
        unsafe { tasks::meter(thread.ran()) };
        all.linux.begins(&thread);
        if all.linux.leave(&thread, &mut frame, None) == Flow::Goes {
            irqs_off();
            tasks::load_fs(task);
            // SAFETY: the frame is tame; interrupts are off; the task state is this CPU's.
            unsafe {
                enter_program(
                    &raw const *frame,
                    &raw const tasks::ENTRIES[task as usize],
                    cpu::here().privileged_stack(),
                )
            };
            irqs_on();
        }
        tasks::stop_meter();
        tasks::run_for(0);
        tasks::ENTRIES[task as usize].store(0, Ordering::Relaxed);
        THREADS[task as usize].store(core::ptr::null_mut(), Ordering::Relaxed);
        drop(thread);
        all.free.with(|free| free.push(number));
    }
}

fn thread() -> &'static Arc<Thread> {
    let thread = THREADS[cpu::here().task() as usize].load(Ordering::Relaxed);
    assert!(!thread.is_null(), "a task without a program has come from ring 3");
    // SAFETY: it lies on the stack of the task that runs here, in `serve`, which waits for this entry to end.
    unsafe { &*thread }
}

const SYSTEM_CALL: u64 = 256;
const PAGE_FAULT: u64 = 14;

fn fault_address() -> u64 {
    let address;
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("mov {}, cr2", out(reg) address, options(nomem, nostack, preserves_flags)) };
    address
}

/// An interrupt that the machine knows.
fn interrupted(vector: u64) -> bool {
    match vector as u8 {
        interrupts::IPI => interrupts::on_ipi(),
        interrupts::KICK => interrupts::on_kick(),
        interrupts::TIMER => interrupts::on_timer(),
        interrupts::SPURIOUS => {}
        _ => return false,
    }
    true
}

/// A program has entered the kernel. Interrupts are off, before and after. 1: its thread has ended.
#[unsafe(no_mangle)]
extern "C" fn on_program(frame: &mut Frame) -> u32 {
    let vector = frame.registers.vector;
    let address = fault_address();
    let linux = &programs().linux;
    let flow = if vector != SYSTEM_CALL && interrupted(vector) {
        irqs_on();
        kernel().into_iter().for_each(|kernel| kernel.cond_resched());
        let thread = thread();
        if thread.has_work() { linux.leave(thread, frame, None) } else { Flow::Goes }
    } else {
        irqs_on();
        let thread = thread();
        let flow = match vector {
            SYSTEM_CALL => linux.syscall(thread, frame),
            PAGE_FAULT => {
                count_one(&cpu::here().faults);
                linux.fault(thread, frame, address, user::tried(frame.registers.error))
            }
            other => linux.trap(thread, frame, other),
        };
        if flow == Flow::Goes {
            kernel().into_iter().for_each(|kernel| kernel.cond_resched());
        }
        flow
    };
    irqs_off();
    u32::from(flow == Flow::Ends)
}

/// The kernel itself was interrupted, while programs run. Interrupts are off.
#[unsafe(no_mangle)]
extern "C" fn on_kernel(frame: &mut quietmm_linux::frame::Registers) {
    let address = fault_address();
    if interrupted(frame.vector) {
        return;
    }
    if frame.vector == PAGE_FAULT && user::is_access(frame.rip) {
        count_one(&cpu::here().faults);
        let access = user::tried(frame.error);
        irqs_on();
        let resolved = if address < VirtAddr::USER_END.0 {
            let kernel = kernel().expect("programs run after the kernel does");
            match kernel.fault(VirtAddr(address), access) {
                Err(Error::NotMapped(_)) => programs()
                    .linux
                    .grow(thread(), address)
                    .and_then(|()| kernel.fault(VirtAddr(address), access)),
                other => other,
            }
        } else {
            Err(Error::NotMapped(VirtAddr(address).page()))
        };
        if let Err(error) = resolved {
            // SAFETY: `r8` is what `user::access` has passed, on this task's stack.
            unsafe { user::fail(frame.r8, error) };
            frame.rip = user::failed_at();
        }
        irqs_off();
        return;
    }
    panic!(
        "exception {} error {:#x} at {:#x}, address {address:#x}: {frame:x?}",
        frame.vector, frame.error, frame.rip
    );
}

/// Whether all of it is where programs have memory.
fn is_user(at: u64, bytes: usize) -> Result<(), Errno> {
    let end = at.checked_add(bytes as u64);
    if end.is_some_and(|end| end <= VirtAddr::USER_END.0) { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Reaches a program's memory. Where none is to be had for it a process is ended, as for a fault in ring 3.
fn reach(function: user::Function, words: [u64; 3]) -> Result<u64, Errno> {
    loop {
        match user::access(By::Kernel, function, words) {
            Err(Error::OutOfMemory) if programs().linux.make_room(thread()) => {}
            other => return other.map_err(|_| Errno::EFAULT),
        }
    }
}

impl Machine for Here {
    fn read_user(&self, at: u64, into: &mut [u8]) -> Result<(), Errno> {
        is_user(at, into.len())?;
        let to = into.as_mut_ptr().expose_provenance() as u64;
        reach(user_copy, [to, at, into.len() as u64]).map(drop)
    }
    fn write_user(&self, at: u64, from: &[u8]) -> Result<(), Errno> {
        is_user(at, from.len())?;
        let from_at = from.as_ptr().expose_provenance() as u64;
        reach(user_copy, [at, from_at, from.len() as u64]).map(drop)
    }
    fn load_user(&self, at: u64) -> Result<u32, Errno> {
        is_user(at, 4)?;
        reach(user_load_word, [at, 0, 0]).map(|word| word as u32)
    }
    fn swap_user(&self, at: u64, old: u32, new: u32) -> Result<u32, Errno> {
        is_user(at, 4)?;
        reach(user_swap_word, [at, old.into(), new.into()]).map(|word| word as u32)
    }
    fn begin(&self, thread: Arc<Thread>, frame: Box<Frame>) -> Result<(), Errno> {
        let all = programs();
        let number = all.free.with(Vec::pop).ok_or(Errno::EAGAIN)?;
        let seat = &all.seats[number];
        seat.0.with(|job| *job = Some((thread, frame)));
        quietmm::platform::Services::wake(self, quietmm_linux::sync::key_of(seat));
        Ok(())
    }
    fn enter_space(&self, space: Option<SpaceId>) {
        let all = programs();
        // A space in which a thread runs does not end.
        let _ = all.system.live_in(space.unwrap_or(all.nowhere));
    }
    fn set_fs(&self, base: u64) {
        let were_on = irqs_off();
        let task = cpu::here().task();
        tasks::FS[task as usize].store(base, Ordering::Relaxed);
        tasks::load_fs(task);
        if were_on {
            irqs_on();
        }
    }
    fn alarm(&self, at: Nanos, key: WaitKey) {
        alarm::set(at.0, key);
    }
    fn console(&self, which: u32, bytes: &[u8]) {
        struct Bytes<'a>(&'a [u8]);
        impl core::fmt::Display for Bytes<'_> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.0.iter().try_for_each(|&byte| match byte {
                    b'"' | b'\\' => write!(f, "\\{}", byte as char),
                    b'\n' => f.write_str("\\n"),
                    b' '..=b'~' => f.write_char(byte as char),
                    _ => write!(f, "\\u00{byte:02x}"),
                })
            }
        }
        print_line(format_args!("{{\"{}\":\"{}\"}}", if which == 1 { "out" } else { "err" }, Bytes(bytes)));
    }
    fn keep(&self, file: FileId, part: Range<usize>) {
        self.store.keep(file, &archive()[part]);
    }
    fn archive(&self) -> &[u8] {
        archive()
    }
    fn memory(&self) -> (u64, u64) {
        let mm = &programs().system.mm;
        let free = mm.frames().available() + mm.frames().on_lists();
        (crate::run::frames() * 4, free * 4)
    }
    fn has_room(&self, bytes: u64) -> bool {
        // What a call needs at once, while it runs.
        const PIECE: u64 = 128 << 10;
        // The last quarter is for that, and for where pages lie that were written out.
        heap::left() as u64 >= ((heap::size() / 4) as u64).saturating_add(bytes)
            && heap::has_piece(PIECE as usize)
    }
    fn has_piece(&self, bytes: u64) -> bool {
        self.has_room(bytes) && heap::has_piece(bytes as usize)
    }
    fn note(&self, text: core::fmt::Arguments<'_>) {
        line!("{{\"note\":\"{}\"}}", Flat(text));
    }
    fn stay_within(&self, cpus: [u64; 4]) {
        programs().system.stay_within(Cpus(cpus));
    }
    fn cpuid(&self, leaf: u32) -> [u32; 4] {
        let CpuidResult { eax, ebx, ecx, edx } = __cpuid_count(leaf, 0);
        [eax, ebx, ecx, edx]
    }

    fn interrupts_and_switches(&self) -> [u64; 2] {
        cpu::all().fold([0; 2], |[interrupts, switches], cpu| {
            let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
            [interrupts + count(&cpu.interrupts), switches + count(&cpu.switches)]
        })
    }
    fn barrier(&self, meant: &dyn Fn(u32) -> bool) {
        tasks::barrier(meant);
    }
}
