//! The machine of a model: memory on the host, CPUs that are threads of `loom`.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread::Thread;
use quietmm::addr::PAGE_SIZE;
use quietmm::platform::{Cpus, WaitKey};
use quietmm::{FrameNumber, Manager, NodeId, Region, Rule};
use quietmm_hardware::Arena;

use crate::words::Words;

mod hardware;
mod platform;

/// The manager of a model.
pub type Mm = Manager<'static, Machine>;

const BASE: u32 = 1024;
const FRAMES: u32 = 1024;
/// Looks at what has not changed that are worth playing: a load may still give older values a few times.
const LOOKS: u32 = 2;
const PAGE: usize = PAGE_SIZE as usize;

/// What the machine is made of.
#[derive(Clone, Copy)]
pub struct Setup {
    /// CPUs: those of the model, and others that only prepare.
    pub cpus: u32,
    /// Address-space tags of each CPU.
    pub tags: u16,
}

#[derive(Clone, Default)]
struct Tlb {
    root: Option<FrameNumber>,
    tag: u16,
    /// By tag and page: the frame, and whether it may be written, and is dirty in the table.
    cached: BTreeMap<(u16, u64), (FrameNumber, bool)>,
    /// Kernel pages.
    kernel: BTreeMap<u64, FrameNumber>,
}

#[derive(Default)]
struct Processor {
    irqs: Cell<bool>,
    /// Interrupts to it are lost.
    off: Cell<bool>,
    /// What had changed when it last looked, and how often it has looked since.
    spins: Cell<(u64, u32)>,
    tlb: RefCell<Tlb>,
    /// What the TLB held when all was prepared.
    saved: RefCell<Tlb>,
}

/// What `loom` has of a machine besides its words: made anew for every execution.
struct Played {
    /// An interrupt is on its way, by CPU.
    pending: Vec<AtomicBool>,
    /// CPUs that have come to their end, of so many; a CPU that has and sleeps until an interrupt; all threads.
    done: Cell<usize>,
    cpus: usize,
    halted: Vec<Cell<bool>>,
    threads: RefCell<Vec<Thread>>,
    /// What orders the end after all that they did, where somebody looks at it then.
    end: AtomicUsize,
    /// Tasks that sleep: what for, and where. (`loom`'s own locks print a line each time.)
    sleepers: RefCell<Vec<(WaitKey, u16)>>,
    /// Stands for the lock of that: a step on it comes before each use.
    queue: AtomicUsize,
    /// Frames that are watched, by number.
    frames: BTreeMap<u32, UnsafeCell<()>>,
}

/// The platform.
pub struct Machine {
    setup: Setup,
    memory: Arena,
    /// Pages of memory as they were when all was prepared: those that hold anything.
    saved: RefCell<BTreeMap<usize, Box<[u8; PAGE]>>>,
    cleared: RefCell<BTreeSet<usize>>,
    cpus: Vec<Processor>,
    /// Who runs while all is prepared.
    current: Cell<u16>,
    /// The words.
    pub words: Words,
    watched: RefCell<BTreeSet<u32>>,
    found: Cell<bool>,
    played: RefCell<Option<Rc<Played>>>,
    kernel_root: Cell<Option<FrameNumber>>,
    /// The rule that is broken.
    pub broken: Cell<Option<Rule>>,
    /// An interrupt does not order what was before it.
    pub weak_interrupts: Cell<bool>,
    /// What all have done comes before the look at the end.
    pub ends_together: Cell<bool>,
    manager: Cell<Option<&'static Mm>>,
}

loom::thread_local! {
    static CPU: Cell<u16> = Cell::new(0);
    /// Where the stack begins; it grows down.
    static STACK: Cell<usize> = Cell::new(0);
}

/// The CPU of the thread that plays.
pub(crate) fn this_cpu() -> u16 {
    CPU.with(Cell::get)
}

/// The stack of the thread that calls begins here: whatever it calls is below.
pub(crate) fn begin_stack(here: &u8) {
    STACK.with(|stack| stack.set(std::ptr::from_ref(here).addr()));
}

/// Whether this address is on the stack of the thread that plays.
pub(crate) fn is_on_own_stack(at: usize) -> bool {
    let here = 0u8;
    (std::ptr::from_ref(&here).addr()..STACK.with(Cell::get)).contains(&at)
}

// SAFETY: all threads of a model are coroutines on one thread of the host, and change only inside calls of `loom`; no
// borrow of a cell is held across one.
unsafe impl Sync for Machine {}
// SAFETY: as above; a machine is made and used on one thread of the host.
unsafe impl Send for Machine {}

impl Played {
    fn is_over(&self) -> bool {
        self.done.get() == self.cpus
    }

    /// The list of sleepers, as if under its lock: nothing may be played while it is used.
    fn sleepers(&self) -> RefMut<'_, Vec<(WaitKey, u16)>> {
        self.queue.fetch_add(1, Ordering::AcqRel);
        self.sleepers.borrow_mut()
    }
}

impl Machine {
    /// A machine for the rest of the process: models are few, and managers borrow it.
    pub fn new(setup: Setup) -> &'static Machine {
        let memory = Arena::new(FrameNumber(BASE), FRAMES).expect("4 MiB");
        Box::leak(Box::new(Machine {
            setup,
            memory,
            saved: RefCell::default(),
            cleared: RefCell::default(),
            cpus: (0..setup.cpus).map(|_| Processor::default()).collect(),
            current: Cell::new(0),
            words: Words::default(),
            watched: RefCell::default(),
            found: Cell::new(false),
            played: RefCell::default(),
            kernel_root: Cell::new(None),
            broken: Cell::new(None),
            weak_interrupts: Cell::new(false),
            ends_together: Cell::new(false),
            manager: Cell::new(None),
        }))
    }

    /// The memory that the manager gets.
    pub fn regions() -> [Region; 1] {
        [Region { start: FrameNumber(BASE), frames: FRAMES, node: NodeId(0) }]
    }

    /// Does something as this CPU, while all is prepared.
    pub fn on<R>(&self, cpu: u16, work: impl FnOnce() -> R) -> R {
        assert!(!self.words.playing.get(), "the CPUs of a model are its threads");
        let before = self.current.replace(cpu);
        let result = work();
        self.current.set(before);
        result
    }

    /// Interrupts go to this manager.
    pub fn serve(&self, mm: &'static Mm) {
        self.manager.set(Some(mm));
    }

    /// All is prepared: every execution begins from here.
    pub fn save(&self) {
        for page in 0..FRAMES as usize {
            let mut bytes = Box::new([0; PAGE]);
            // SAFETY: inside the memory; nobody else runs.
            unsafe { bytes.as_mut_ptr().copy_from(self.memory.start().add(page * PAGE), PAGE) };
            if bytes.iter().any(|&byte| byte != 0) {
                self.saved.borrow_mut().insert(page, bytes);
            }
        }
        for cpu in &self.cpus {
            *cpu.saved.borrow_mut() = cpu.tlb.borrow().clone();
        }
    }

    /// Begins an execution. With `all`, memory that was not modelled may have changed anywhere.
    pub fn begin(&self, cpus: usize, all: bool) {
        self.words.playing.set(false);
        let saved = self.saved.borrow();
        let cleared = std::mem::take(&mut *self.cleared.borrow_mut());
        for page in 0..FRAMES as usize {
            // SAFETY: inside the memory; nobody else runs.
            unsafe {
                match saved.get(&page) {
                    Some(bytes) => self.memory.start().add(page * PAGE).copy_from(bytes.as_ptr(), PAGE),
                    None if all || cleared.contains(&page) => {
                        self.memory.start().add(page * PAGE).write_bytes(0, PAGE);
                    }
                    None => {}
                }
            }
        }
        for cpu in &self.cpus {
            *cpu.tlb.borrow_mut() = cpu.saved.borrow().clone();
            cpu.irqs.set(true);
            cpu.spins.set((0, 0));
            cpu.off.set(false);
        }
        self.words.writes.set(1);
        *self.played.borrow_mut() = Some(Rc::new(Played {
            pending: self.cpus.iter().map(|_| AtomicBool::new(false)).collect(),
            done: Cell::new(0),
            cpus,
            halted: self.cpus.iter().map(|_| Cell::new(false)).collect(),
            // This thread's is the last one.
            threads: RefCell::new(vec![loom::thread::current(); cpus + 1]),
            end: AtomicUsize::new(0),
            sleepers: RefCell::default(),
            queue: AtomicUsize::new(0),
            frames: self.watched.borrow().iter().map(|&n| (n, UnsafeCell::new(()))).collect(),
        }));
        // SAFETY: the words lie in the machine's memory or in what the model keeps for all executions; nobody else runs.
        unsafe { self.words.make() };
    }

    /// The end of a round that may have been cut short.
    pub fn stop(&self) {
        self.words.playing.set(false);
    }

    /// Whether something was met that was not modelled in this round, and will be in the next one.
    pub fn found_new(&self) -> bool {
        self.words.found_new() | self.found.replace(false)
    }

    /// The same as a question.
    pub fn meets_new(&self) -> bool {
        self.words.meets_new() || self.found.get()
    }

    fn played(&self) -> Option<Rc<Played>> {
        let plays = self.words.playing.get() && !std::thread::panicking();
        plays.then(|| self.played.borrow().clone()).flatten()
    }

    /// Lets others run. Orders in which a CPU looks again and again, and nothing has changed, are not looked at further:
    /// with two that wait for a third there is no end of them.
    fn spin(&self) {
        let (here, writes) = (self.here(), self.words.writes.get());
        let (before, looks) = here.spins.get();
        let looks = if before == writes { looks + 1 } else { 0 };
        here.spins.set((writes, looks));
        if looks > LOOKS {
            loom::skip_branch();
        }
        loom::thread::yield_now();
    }

    /// From now on the thread that calls is this CPU.
    pub fn become_cpu(&self, cpu: u16) {
        CPU.with(|this| this.set(cpu));
        if let Some(played) = self.played() {
            played.threads.borrow_mut()[usize::from(cpu)] = loom::thread::current();
        }
    }

    /// This CPU is off: it takes no interrupt.
    pub fn switch_off(&self) {
        self.here().off.set(true);
    }

    fn take(&self) {
        let (here, Some(mm)) = (self.here(), self.manager.get()) else { return };
        if here.off.get() {
            return;
        }
        self.words.note(|| "takes an interrupt".to_string());
        here.irqs.set(false);
        mm.on_interrupt();
        here.irqs.set(true);
    }

    fn here(&self) -> &Processor {
        &self.cpus[self.this_cpu().index()]
    }

    /// Uses a frame: its owner writes it (`alone`), or a CPU reads it through a translation.
    #[track_caller]
    pub fn use_frame(&self, frame: FrameNumber, alone: bool) {
        let Some(played) = self.played() else { return };
        match played.frames.get(&frame.0) {
            Some(cell) if alone => cell.with_mut(|_| ()),
            Some(cell) => cell.with(|_| ()),
            None => {
                self.watched.borrow_mut().insert(frame.0);
                self.found.set(true);
            }
        }
    }

    /// Takes an interrupt that has come, where they are on.
    pub fn deliver(&self) {
        let (cpu, Some(played)) = (self.this_cpu(), self.played()) else { return };
        let pending = &played.pending[cpu.index()];
        let (seen, took) = match self.weak_interrupts.get() {
            true => (Ordering::Relaxed, Ordering::Relaxed),
            false => (Ordering::Acquire, Ordering::AcqRel),
        };
        if self.here().irqs.get() && pending.load(seen) && pending.swap(false, took) {
            self.take();
        }
    }

    /// This CPU has done its part; until all have it takes interrupts.
    pub fn idle(&self) {
        let (cpu, Some(played)) = (self.this_cpu().index(), self.played()) else { return };
        if self.ends_together.get() {
            played.end.fetch_add(1, Ordering::AcqRel);
        }
        played.done.set(played.done.get() + 1);
        if played.is_over() {
            return played.threads.borrow().iter().for_each(Thread::unpark);
        }
        // Halted: an interrupt brings its sender's past along. Nobody else runs between the look and the halt.
        while !played.is_over() {
            if played.pending[cpu].swap(false, Ordering::AcqRel) {
                self.take();
                continue;
            }
            played.halted[cpu].set(true);
            loom::thread::park();
            played.halted[cpu].set(false);
        }
    }

    /// Waits until all CPUs have done their part: for the thread that is none.
    pub fn wait_for_end(&self) {
        let Some(played) = self.played() else { return };
        while !played.is_over() {
            loom::thread::park();
        }
        if self.ends_together.get() {
            played.end.fetch_add(1, Ordering::AcqRel);
        }
    }
}
