//! What each CPU did when, for `timeline=N`: its last N notes, printed at the end. Without that word nothing is noted, and only a
//! machine that can break rules asks at all ([`Metal`](crate::platform::Metal)).

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use quietmm::platform::{Shortage, WaitKey};
use quietmm::profile::Room;
use quietmm::{Error, Scope, UserAccess, VirtAddr};
use quietmm_workloads::{Kernel, TaskId};

use crate::cpu::{self, irqs_off, irqs_on};
use crate::end::Flat;
use crate::{clock, line};

/// A lock that was taken faster was free, in nanoseconds: most are, and would fill the notes.
const FREE: u64 = 1000;
/// Notes in a line.
const IN_A_LINE: u64 = 64;

/// What is noted. Each has a number beside it.
#[derive(Clone, Copy)]
#[repr(u8)]
pub enum What {
    /// This scope of the core is entered.
    Enter = b'e',
    /// And left.
    Leave = b'l',
    /// This task has the CPU from here on.
    Task = b't',
    /// An interrupt is sent to this CPU.
    Send = b's',
    /// An interrupt was taken: which, see [`Kind`].
    Taken = b'i',
    /// And dealt with.
    Done = b'o',
    /// A program uses memory.
    User = b'u',
    /// And has.
    Used = b'v',
    /// There is nothing to do.
    Idle = b'z',
    /// There may be.
    Awake = b'w',
}

/// Kinds of interrupts, by their numbers.
#[derive(Clone, Copy)]
pub enum Kind {
    /// From `Cpus::interrupt`.
    Ipi,
    /// From `Machine::kick`.
    Kick,
    /// The periodic timer.
    Tick,
}

/// A CPU's notes: when, and what with its number in the lower half. The CPU itself writes, whoever reports reads.
struct Ring {
    next: AtomicU64,
    notes: Box<[[AtomicU64; 2]]>,
}

static RINGS: [AtomicPtr<Ring>; cpu::MOST] = [const { AtomicPtr::new(core::ptr::null_mut()) }; cpu::MOST];
/// Whether notes are taken.
static OPEN: AtomicBool = AtomicBool::new(false);

/// Each CPU keeps so many notes. On the first CPU, while the others wait.
pub fn open(most: u64) {
    for ring in &RINGS[..cpu::count() as usize] {
        let notes = (0..most).map(|_| [const { AtomicU64::new(0) }; 2]).collect();
        // Release: partner of the Acquire in `ring`.
        ring.store(Box::leak(Box::new(Ring { next: AtomicU64::new(0), notes })), Ordering::Release);
    }
    OPEN.store(true, Ordering::Release);
}

fn ring(cpu: u32) -> Option<&'static Ring> {
    let ring = RINGS[cpu as usize].load(Ordering::Acquire);
    // SAFETY: leaked by `open`.
    unsafe { ring.as_ref() }
}

/// Notes it, if notes are taken. Any context.
#[inline]
pub fn note(what: What, of: u32) {
    if OPEN.load(Ordering::Relaxed) {
        keep(what, of);
    }
}

fn keep(what: What, of: u32) {
    // An interrupt in between would note into the same place, and a task could go on elsewhere.
    let were_on = irqs_off();
    if let Some(ring) = ring(cpu::number()) {
        let (now, nth) = (clock::now(), ring.next.load(Ordering::Relaxed));
        let place = |nth: u64| &ring.notes[(nth % ring.notes.len() as u64) as usize];
        let word = |what: What| u64::from(what as u8) << 32 | u64::from(of);
        if matches!(what, What::Leave) && nth > 0 {
            let [entered, note] = place(nth - 1);
            let free = now - entered.load(Ordering::Relaxed) < FREE;
            if free && note.load(Ordering::Relaxed) == word(What::Enter) && is_lock(of) {
                ring.next.store(nth - 1, Ordering::Release);
                restore(were_on);
                return;
            }
        }
        let [at, note] = place(nth);
        at.store(now, Ordering::Relaxed);
        note.store(word(what), Ordering::Relaxed);
        // Release: partner of the Acquire in `print`.
        ring.next.store(nth + 1, Ordering::Release);
    }
    restore(were_on);
}

fn is_lock(scope: u32) -> bool {
    Scope::ALL.get(scope as usize).is_some_and(|scope| scope.room() == Room::Locks)
}

fn restore(were_on: bool) {
    if were_on {
        irqs_on();
    }
}

/// Prints all notes, and takes no more. `tasks` are their names, by number.
pub fn print(tasks: &[String]) {
    if !OPEN.swap(false, Ordering::Relaxed) {
        return;
    }
    let names = |names: &mut dyn Iterator<Item = &str>| {
        names.map(|name| alloc::format!("\"{}\"", Flat(name))).collect::<Vec<_>>().join(",")
    };
    let scopes = names(&mut Scope::ALL.iter().map(|scope| scope.name()));
    let tasks = names(&mut tasks.iter().map(String::as_str));
    line!("{{\"timeline\":{{\"ended\":{},\"scopes\":[{scopes}],\"tasks\":[{tasks}]}}}}", clock::now());
    for cpu in 0..cpu::count() {
        let Some(ring) = ring(cpu) else { continue };
        // Acquire: partner of the Release in `keep`.
        let (next, most) = (ring.next.load(Ordering::Acquire), ring.notes.len() as u64);
        let first = next.saturating_sub(most);
        for from in (first..next.max(first + 1)).step_by(IN_A_LINE as usize) {
            let mut text = String::new();
            for nth in from..(from + IN_A_LINE).min(next) {
                let [at, note] =
                    ring.notes[(nth % most) as usize].each_ref().map(|word| word.load(Ordering::Relaxed));
                let (what, of) = (char::from((note >> 32) as u8), note as u32);
                let comma = if text.is_empty() { "" } else { "," };
                // A string takes everything.
                let _ = write!(text, "{comma}[{at},\"{what}\",{of}]");
            }
            line!("{{\"timeline\":{{\"cpu\":{cpu},\"lost\":{first},\"notes\":[{text}]}}}}");
        }
    }
}

/// The kernel that runs, with a note for each interrupt that it gets.
pub struct Noting<K>(pub K);

fn taken(kind: Kind, handle: impl FnOnce()) {
    note(What::Taken, kind as u32);
    handle();
    note(What::Done, kind as u32);
}

impl<K: core::ops::Deref<Target: Kernel>> Kernel for Noting<K> {
    fn interrupted(&self) {
        taken(Kind::Ipi, || self.0.interrupted());
    }
    fn rescheduled(&self) {
        taken(Kind::Kick, || self.0.rescheduled());
    }
    fn ticked(&self) {
        taken(Kind::Tick, || self.0.ticked());
    }
    fn fault(&self, at: VirtAddr, access: UserAccess) -> Result<(), Error> {
        self.0.fault(at, access)
    }
    fn run(&self, task: TaskId) {
        self.0.run(task);
    }
    fn wait(&self, key: WaitKey, ready: &mut dyn FnMut() -> bool) {
        self.0.wait(key, ready);
    }
    fn wake(&self, key: WaitKey) {
        self.0.wake(key);
    }
    fn cond_resched(&self) {
        self.0.cond_resched();
    }
    fn out_of_memory(&self, short: &Shortage) -> bool {
        self.0.out_of_memory(short)
    }
}
