//! The simulated machine: the real core runs on it, one coroutine per task, in simulated time.
//!
//! Every access of the core to shared memory comes through [`Hooks::touch`](quietmm::platform::Hooks::touch): there the line is paid for, and
//! there another CPU may take its turn or an interrupt may arrive. CPUs take turns by time; each may run up to
//! `SLACK` ahead of the slowest, so that a switch of the host's stack is not needed at every line.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use corosensei::{Coroutine, CoroutineResult, Yielder};
use quietmm::Rule;
use quietmm::addr::{FrameNumber, NodeId};
use quietmm::platform::{Access, Store};
use quietmm_workloads::{Kernel, System, Tally};
use rand_core::{Rng, SeedableRng};

use crate::cpu::Cpu;
use crate::disk::Flying;
use crate::latency::Latencies;
use crate::left::Left;
use crate::lines::Lines;
use crate::machine::{Machine, Slow};
use crate::observed::Observed;
use crate::order::{NEVER, Order};
use crate::profile::Own;
use crate::ssd::Ssd;
use crate::stacks::{Piece, Stacks, prefetch};
use crate::stalls::Stalls;
use crate::tlb::Tlb;
use crate::truth::Truth;
use crate::zeroed::Zeroed;

/// How far a CPU may run ahead of the slowest, in picoseconds: a few moves of a line. A third of it changes
/// times by some percent and gains by less than a point, and takes half as long again.
const SLACK: u64 = 600_000;
/// A run that lasts longer is given up, after 18 minutes of simulated time: it waits in vain, or its machine is far too
/// slow for its work. A clock that went on would reach [`NEVER`].
pub(crate) const END: u64 = NEVER / 4;
/// Events without progress after which a run is given up, and as many again for each CPU: with thousands of them the first page
/// takes long. Five times what any workload that comes along needs on its machine.
const STUCK: u64 = 50_000_000;
const STUCK_EACH: u64 = 100_000;
/// Besides these, events without progress for each page of the memory and each CPU: where aging flushes, reclaim may look at
/// every page once before it finds the first that nobody has used, and each look may interrupt every CPU.
const STUCK_PASS: u64 = 64;
/// Events for each page of work, beyond the above, after which a run is given up, and as many again for each CPU. Three times
/// what `churn` may need, of all workloads most: where memory is to spare, a file that is written back is all there.
const SLOW: u64 = 65_536;
const SLOW_EACH: u64 = 64;
/// Events after which a turn is interrupted, to look whether to go on.
const LOOK: u64 = 1 << 20;
/// Events after the end of the last user task within which all others must come to rest.
const RESTLESS: u64 = 20_000_000;

/// Events without progress after which a run on a machine of so many CPUs and pages is given up.
pub(crate) const fn patience(cpus: u64, pages: u64) -> u64 {
    STUCK + cpus * (STUCK_EACH + STUCK_PASS * pages)
}

pub(crate) type Context = Coroutine<(), (), (), Piece>;

/// Why the engine stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The last user task has ended.
    Finished,
    /// Whoever watches asked for it.
    Cancelled,
    /// No CPU has anything to do, and tasks wait.
    Deadlock,
    /// CPUs go round and nothing gets done.
    Stuck,
    /// Little gets done: far too many events for the work.
    TooSlow,
    /// The simulated time is over: see `END`.
    TooLate,
    /// With a rule broken, the core found its own state impossible.
    Collapsed,
}

/// Who watches a run.
pub trait Watch: Sync {
    /// Some of the work is done.
    fn progress(&self, done: u64, total: u64);
    /// Whether to stop.
    fn cancelled(&self) -> bool;
}

/// The machine. With `FAULTS` it can break a rule; without, the question compiles to nothing.
pub struct Sim<'w, const FAULTS: bool> {
    /// What it is made of.
    pub machine: Machine,
    pub(crate) memory: memmap2::MmapMut,
    pub(crate) base: *mut u8,
    pub(crate) bytes: u64,
    pub(crate) lines: UnsafeCell<Lines>,
    pub(crate) order: UnsafeCell<Order>,
    pub(crate) truth: UnsafeCell<Truth>,
    /// For each frame: it holds user data, which is stored as one number.
    pub(crate) data: Zeroed<Cell<bool>>,
    /// That number.
    pub(crate) contents: Zeroed<Cell<u64>>,
    /// All CPUs.
    pub cpus: Box<[Cpu]>,
    /// The one whose turn it is, among them.
    current: Cell<*const Cpu>,
    /// For each CPU about where its stack pointer stood when it gave way.
    pub(crate) left_at: Vec<Cell<usize>>,
    /// The earliest time of any other CPU.
    pub(crate) horizon: Cell<u64>,
    /// The kernel's own top table.
    pub(crate) kernel_root: Cell<FrameNumber>,
    pub(crate) running: Cell<bool>,
    pub(crate) stop: Cell<Option<Stop>>,
    pub(crate) kernel: Cell<Option<*const dyn Kernel>>,
    pub(crate) contexts: UnsafeCell<Vec<Option<Context>>>,
    pub(crate) yielders: Vec<Cell<*const Yielder<(), ()>>>,
    pub(crate) stacks: RefCell<Stacks>,
    pub(crate) broken: Option<Rule>,
    pub(crate) watch: &'w dyn Watch,
    /// Pages of work done, and all there is.
    pub done: Cell<u64>,
    /// See `done`.
    pub total: Cell<u64>,
    /// Accesses of tasks whose speed is reported.
    pub counted: Cell<u64>,
    /// Latencies that the workload measured.
    pub latencies: RefCell<Latencies>,
    /// What the workload counted.
    pub(crate) tallies: RefCell<BTreeMap<Tally, u64>>,
    /// Which CPUs Linux would still ask for a flush, if that is counted.
    pub(crate) left: RefCell<Option<Left>>,
    /// Events so far, and at the last progress.
    pub events: Cell<u64>,
    pub(crate) last_progress: Cell<u64>,
    /// The number of events at which something must be looked at: each, where there is a timeline or the machine stands still.
    look_at: Cell<u64>,
    /// The number of events at which `go` looks whether to go on.
    look_whether: Cell<u64>,
    /// A turn was interrupted for that look, and goes on after it.
    looks: Cell<bool>,
    /// When the next flush on all CPUs can have its turn; entries that such flushes have taken out of TLBs; and for how long
    /// CPUs have waited for them, in picoseconds, how often.
    pub(crate) broadcast_turn: Cell<u64>,
    pub(crate) broadcast_entries: Cell<u64>,
    pub(crate) broadcast_waits: Cell<u64>,
    pub(crate) broadcast_syncs: Cell<u64>,
    pub(crate) flights: Vec<u64>,
    /// What a sender pays for a target, by nodes as `flights`.
    pub(crate) sends: Vec<u64>,
    pub(crate) tick_period: u64,
    /// Pages of files that the disk holds, with their content: all others are holes.
    pub(crate) written: RefCell<BTreeMap<(Store, u64), u64>>,
    /// When each of the disk's command slots is free.
    pub(crate) disk: RefCell<Vec<u64>>,
    /// The swap devices.
    pub(crate) ssds: RefCell<Vec<Ssd>>,
    /// Commands to block devices that are on their way.
    pub(crate) flying: RefCell<Flying>,
    /// What is kept of the run, if somebody wants to know.
    pub(crate) observed: Option<Box<Observed>>,
}

impl<'w, const FAULTS: bool> Sim<'w, FAULTS> {
    /// A machine at rest. `seed` varies when each CPU's timer ticks.
    ///
    /// # Errors
    /// The host has no address space for the machine's memory.
    pub fn new(
        machine: Machine,
        tasks: usize,
        seed: u64,
        broken: Option<Rule>,
        watch: &'w dyn Watch,
    ) -> std::io::Result<Self> {
        let bytes = machine.all_memory();
        let mut memory = memmap2::MmapOptions::new().len(bytes as usize).no_reserve_swap().map_anon()?;
        let base = memory.as_mut_ptr();
        let frames = (bytes / 4096) as usize;
        let mut rng = rand_xoshiro::Xoshiro256StarStar::seed_from_u64(seed);
        let tick_period = 1_000_000_000_000 / u64::from(machine.cost.tick_hz);
        let cpus = (0..machine.cpus)
            .map(|id| {
                let stalls = Stalls::new(&machine.cost, seed, id);
                Cpu::new(id as u16, rng.next_u64() % tick_period, Tlb::new(&machine.tlb), stalls)
            })
            .collect::<Box<[Cpu]>>();
        let by_distance = |local: u64, hop: u64| {
            machine.distance.iter().flatten().map(|&d| local + hop * u64::from(d - 10) / 10).collect()
        };
        let flights = by_distance(machine.cost.ipi_flight_local, machine.cost.ipi_flight_hop);
        let sends = by_distance(machine.cost.ipi_send, machine.cost.ipi_send_hop);
        let devices =
            machine.swap.iter().flat_map(|swap| (0..swap.devices).map(move |n| Ssd::new(swap, n, seed)));
        let ssds = devices.collect::<Result<_, _>>()?;
        Ok(Sim {
            lines: UnsafeCell::new(Lines::new(&machine, bytes)?),
            order: UnsafeCell::new(Order::new(machine.cpus as usize)),
            truth: UnsafeCell::new(Truth::new(frames)?),
            data: Zeroed::new(frames)?,
            contents: Zeroed::new(frames)?,
            current: Cell::new(&raw const cpus[0]),
            cpus,
            left_at: vec![Cell::new(0); machine.cpus as usize],
            horizon: Cell::new(NEVER),
            kernel_root: Cell::new(FrameNumber::NONE),
            running: Cell::new(false),
            stop: Cell::new(None),
            kernel: Cell::new(None),
            contexts: UnsafeCell::new(Vec::with_capacity(tasks)),
            yielders: (0..tasks).map(|_| Cell::new(std::ptr::null())).collect(),
            stacks: RefCell::new(Stacks::new(tasks)?),
            broken,
            watch,
            done: Cell::new(0),
            total: Cell::new(0),
            counted: Cell::new(0),
            latencies: RefCell::default(),
            tallies: RefCell::default(),
            left: RefCell::default(),
            events: Cell::new(0),
            last_progress: Cell::new(0),
            look_at: Cell::new(0),
            look_whether: Cell::new(0),
            looks: Cell::new(false),
            broadcast_turn: Cell::new(0),
            broadcast_entries: Cell::new(0),
            broadcast_waits: Cell::new(0),
            broadcast_syncs: Cell::new(0),
            flights,
            sends,
            tick_period,
            written: RefCell::new(BTreeMap::new()),
            disk: RefCell::new(vec![0; machine.device.parallel as usize]),
            ssds: RefCell::new(ssds),
            flying: RefCell::default(),
            observed: None,
            memory,
            base,
            bytes,
            machine,
        })
    }

    /// The memory, as regions of equal size, one per node; then that of the slow node.
    pub fn regions(&self) -> Vec<quietmm::Region> {
        let (nodes, frames) = (self.machine.nodes, (self.machine.memory / 4096) as u32);
        let each = frames / nodes;
        let region = |start, frames, node: u32| quietmm::Region {
            start: FrameNumber(start),
            frames,
            node: NodeId(node as u16),
        };
        let end = self.later().map_or(frames, |later| later.start.0);
        let slow = self.machine.slow.iter().map(|slow| region(frames, (slow.size / 4096) as u32, nodes));
        (0..nodes).map(|n| region(n * each, each.min(end - n * each), n)).chain(slow).collect()
    }

    /// The memory that comes later: of the last node, at its end, as far as there are whole blocks.
    pub(crate) fn later(&self) -> Option<quietmm::Region> {
        const BLOCK: u32 = 1 << quietmm::MAX_ORDER;
        let (end, nodes) = ((self.machine.memory / 4096) as u32 / BLOCK * BLOCK, self.machine.nodes);
        let frames = (self.machine.later / 4096) as u32 / BLOCK * BLOCK;
        (frames > 0).then(|| quietmm::Region {
            start: FrameNumber(end - frames),
            frames,
            node: NodeId((nodes - 1) as u16),
        })
    }

    /// What the slow node costs, if a frame is there.
    #[inline]
    pub(crate) fn slow(&self, frame: FrameNumber) -> Option<&Slow> {
        self.machine.slow.as_ref().filter(|_| frame.phys().0 >= self.machine.memory)
    }

    /// The system that runs on it: one, since it takes over the memory.
    ///
    /// # Errors
    /// Those of [`Manager::new`](quietmm::Manager::new).
    pub fn system(&self, config: quietmm::Config) -> Result<System<'_, Self>, quietmm::Error> {
        // SAFETY: the memory is this machine's, and no machine is run twice.
        unsafe { System::new(self, &self.regions(), config) }
    }

    /// Runs until all user tasks have ended. `kernel` hears interrupts, ticks and faults.
    pub fn run(&self, kernel: &dyn Kernel) -> Stop {
        for cpu in &*self.cpus {
            self.order().set(cpu.id, 0);
        }
        let cpus = self.cpus.len() as u64;
        let stuck = patience(cpus, self.bytes / 4096);
        // Whoever does not say how much work there is has all the time.
        let slow = match self.total.get() {
            0 => u64::MAX,
            total => (SLOW + SLOW_EACH * cpus).saturating_mul(total).saturating_add(stuck),
        };
        self.go(kernel, stuck, slow)
    }

    /// After a run has finished: goes on until nothing is left to do on any CPU, so that no lock is held and no
    /// page is in anybody's hands: then it gives `Deadlock`, and `Stuck` if that takes too long, because a task without an
    /// end keeps a CPU busy.
    pub fn rest(&self, kernel: &dyn Kernel) -> Stop {
        self.stop.set(None);
        self.last_progress.set(self.events.get());
        self.go(kernel, RESTLESS, u64::MAX)
    }

    /// Goes on until there is a reason to stop: `stuck` events without progress are one, and `most` in all.
    fn go(&self, kernel: &dyn Kernel, stuck: u64, most: u64) -> Stop {
        // SAFETY: only the lifetime is forgotten; the pointer is used while this function runs, which the
        // borrow outlives.
        let kernel =
            unsafe { std::mem::transmute::<*const dyn Kernel, *const (dyn Kernel + 'static)>(kernel) };
        self.kernel.set(Some(kernel));
        self.running.set(true);
        self.set_look(self.events.get() + LOOK);
        let stop = loop {
            if let Some(stop) = self.stop.get() {
                break stop;
            }
            let looks = self.looks.take();
            let (time, id) = if looks { self.here_and_now() } else { self.order().first() };
            if time == NEVER {
                break Stop::Deadlock;
            }
            if time > END {
                break Stop::TooLate;
            }
            let events = self.events.get();
            if events - self.last_progress.get() > stuck {
                break Stop::Stuck;
            }
            if events >= self.look_whether.get() {
                self.set_look(events + LOOK);
                if self.watch.cancelled() {
                    break Stop::Cancelled;
                }
                if events > most {
                    break Stop::TooSlow;
                }
            }
            if !FAULTS || self.broken.is_none() {
                self.turn(id, time);
            } else if catch_unwind(AssertUnwindSafe(|| self.turn(id, time))).is_err() {
                // A frame freed twice, say. Everything here is cells, and only what was observed is read after this.
                break Stop::Collapsed;
            }
        };
        self.running.set(false);
        self.look_at.set(0);
        stop
    }

    fn set_look(&self, at: u64) {
        self.look_whether.set(at);
        self.look_at.set(if self.has_timeline() { 0 } else { at });
    }

    /// One more event. A turn need not have an end, for a lone CPU or where nothing takes time: so it is interrupted now and
    /// then.
    #[inline]
    pub(crate) fn count(&self) {
        if self.is_look_due() {
            self.let_look();
        }
    }

    /// An access to memory that CPUs share, of a machine that runs.
    #[inline]
    pub(crate) fn shared_access(&self, at: *const u8, access: Access) {
        let events = self.events.get() + 1;
        if events >= self.look_at.get() {
            if !self.running.get() {
                return;
            }
            self.events.set(events);
            self.look_at_access(at, access);
        } else {
            self.events.set(events);
        }
        let cpu = self.cpu();
        let now = cpu.now.get() + self.line(cpu, at, access);
        cpu.now.set(now);
        if now >= cpu.limit.get() && self.running.get() {
            self.settle();
        }
    }

    #[inline]
    fn is_look_due(&self) -> bool {
        let events = self.events.get() + 1;
        self.events.set(events);
        events >= self.look_at.get() && self.running.get()
    }

    #[cold]
    #[inline(never)]
    fn let_look(&self) {
        if self.events.get() >= self.look_whether.get() {
            self.looks.set(true);
            self.give_way();
        }
    }

    /// A run without a timeline does not even ask whether there is one.
    #[cold]
    #[inline(never)]
    fn look_at_access(&self, at: *const u8, access: Access) {
        if let Some(observed) = &self.observed {
            observed.touched(self.here(), at, access);
        }
        self.let_look();
    }

    fn here_and_now(&self) -> (u64, u16) {
        let cpu = self.cpu();
        (cpu.now.get(), cpu.id)
    }

    /// It is this CPU's turn.
    pub(crate) fn make_current(&self, id: u16) -> &Cpu {
        let cpu = &self.cpus[id as usize];
        self.current.set(cpu);
        cpu
    }

    /// One CPU's turn, until it gives way.
    pub(crate) fn turn(&self, id: u16, time: u64) {
        let cpu = self.make_current(id);
        let (horizon, next) = self.order().first_but(id);
        self.horizon.set(horizon);
        self.fetch_ahead(next);
        if cpu.parked.replace(false) {
            cpu.now.set(cpu.now.get().max(time));
        }
        self.set_limit(cpu);
        let task = cpu.task.get().0 as usize;
        // SAFETY: the table has room for all tasks from the start, so its elements never move. This context is
        // suspended and nobody else uses it: only this CPU has the task, and `spawn` writes to free places.
        let context = unsafe { (*self.contexts.get()).as_mut_ptr().add(task) };
        // SAFETY: as above; a task has its context before a CPU can have the task.
        if let Some(context) = unsafe { (*context).as_mut() } {
            let _: CoroutineResult<(), ()> = context.resume(());
        }
    }

    /// Has the host fetch what the turn after this one begins with. With thousands of CPUs none of it is in
    /// the host's caches, and waiting for it would take longer than the turn.
    #[inline]
    fn fetch_ahead(&self, next: u16) {
        let Some(cpu) = self.cpus.get(next as usize) else { return };
        prefetch(std::ptr::from_ref(cpu).addr());
        let stack = self.left_at[next as usize].get();
        (0..8).for_each(|line| prefetch(stack + 64 * line));
    }

    #[allow(clippy::mut_from_ref)]
    pub(crate) fn order(&self) -> &mut Order {
        // SAFETY: one host thread, and no method of `Order` comes back here, so the reference ends before
        // the next one is made.
        unsafe { &mut *self.order.get() }
    }

    /// The account of stale accesses.
    #[allow(clippy::mut_from_ref)]
    pub fn truth(&self) -> &mut Truth {
        // SAFETY: as for `order`: no method of `Truth` comes back to the machine.
        unsafe { &mut *self.truth.get() }
    }

    #[allow(clippy::mut_from_ref)]
    pub(crate) fn tlb<'c>(&self, cpu: &'c Cpu) -> &'c mut Tlb {
        // SAFETY: as for `order`.
        unsafe { &mut *cpu.tlb.get() }
    }

    pub(crate) fn kernel(&self) -> &dyn Kernel {
        let kernel = self.kernel.get().expect("set by `go`");
        // SAFETY: `go` has not returned, and the kernel outlives it.
        unsafe { &*kernel }
    }

    #[inline]
    pub(crate) fn cpu(&self) -> &Cpu {
        // SAFETY: it is one of `cpus`, which has its place for as long as the machine is there, and of which only cells change.
        unsafe { &*self.current.get() }
    }

    #[inline]
    pub(crate) fn set_limit(&self, cpu: &Cpu) {
        let soonest = cpu.next_irq().min(cpu.stalls.next());
        cpu.limit.set(self.horizon.get().saturating_add(SLACK).min(soonest));
    }

    /// Time passes on this CPU.
    #[inline]
    pub(crate) fn advance(&self, ps: u64) {
        let cpu = self.cpu();
        let now = cpu.now.get() + ps;
        cpu.now.set(now);
        if now >= cpu.limit.get() && self.running.get() {
            self.settle();
        }
    }

    /// Takes due interrupts, stands still when it is time for that, and lets CPUs that are behind go first.
    #[cold]
    #[inline(never)]
    pub(crate) fn settle(&self) {
        loop {
            let cpu = self.cpu();
            let now = cpu.now.get();
            if cpu.stalls.next() <= now {
                let _stall = self.within(Own::Stall);
                cpu.now.set(cpu.stalls.take(now));
            } else if cpu.next_irq() <= now {
                self.take_interrupt();
            } else if now > self.horizon.get().saturating_add(SLACK).min(END) {
                self.order().set(cpu.id, now);
                self.give_way();
            } else {
                self.set_limit(cpu);
                return;
            }
        }
    }

    /// Suspends this context; the CPU's time is in the order.
    pub(crate) fn give_way(&self) {
        let here = 0u8;
        self.left_at[self.cpu().id as usize].set(std::ptr::from_ref(&here).addr());
        let task = self.cpu().task.get().0 as usize;
        let yielder = self.yielders[task].get();
        // SAFETY: set by this very context when it began, and it lives as long as the context.
        unsafe { &*yielder }.suspend(());
    }

    /// Stays at one thing until `until`, interrupts permitting; returns the time at which it stopped.
    pub(crate) fn park(&self, until: u64) -> u64 {
        let cpu = self.cpu();
        let until = until.min(cpu.next_irq()).max(cpu.now.get());
        if until <= self.horizon.get().saturating_add(SLACK) && until != NEVER {
            cpu.now.set(until);
        } else {
            cpu.parked.set(true);
            self.order().set(cpu.id, until);
            self.give_way();
        }
        self.cpu().now.get()
    }

    /// One piece of work of `ps`, which interrupts can split. Returns false if one came before the end; then
    /// `ps` holds what is left.
    pub(crate) fn work(&self, ps: &mut u64) -> bool {
        self.count();
        let cpu = self.cpu();
        if cpu.next_irq() <= cpu.now.get() {
            self.settle();
            return false;
        }
        let start = cpu.now.get();
        let stopped = self.park(start.saturating_add(*ps).min(NEVER - 1));
        *ps = (*ps).saturating_sub(stopped - start);
        let due = cpu.next_irq() <= stopped;
        if due {
            self.settle();
        } else {
            self.set_limit(self.cpu());
        }
        *ps == 0 || !due
    }

    pub(crate) fn work_through(&self, mut ps: u64) {
        while ps > 0 {
            self.work(&mut ps);
        }
    }

    /// What a line's access costs, by address; nothing outside the machine's memory.
    #[inline]
    pub(crate) fn line(&self, cpu: &Cpu, at: *const u8, access: Access) -> u64 {
        let offset = (at.addr()).wrapping_sub(self.base.addr()) as u64;
        // SAFETY: one host thread; `access` does not come back here.
        unsafe { &mut *self.lines.get() }.access(cpu.id, offset, access, cpu.now.get())
    }

    /// Whether a task ran over the end of its stack.
    pub fn overflowed(&self) -> bool {
        self.stacks.borrow().overflowed()
    }
}

impl<const FAULTS: bool> Drop for Sim<'_, FAULTS> {
    fn drop(&mut self) {
        for context in self.contexts.get_mut().drain(..).flatten() {
            // Tasks that never end are left in the middle; unwinding them would run the core on a machine
            // that has stopped. What they own is the run's, and goes with it.
            std::mem::forget(context);
        }
        let _ = &self.memory;
    }
}
