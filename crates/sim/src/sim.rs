//! The simulated machine: the real core runs on it, one coroutine per task, in simulated time.
//!
//! Every access of the core to shared memory comes through [`Platform::touch`]: there the line is paid for, and
//! there another CPU may take its turn or an interrupt may arrive. CPUs take turns by time; each may run up to
//! `SLACK` ahead of the slowest, so that a switch of the host's stack is not needed at every line.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use corosensei::{Coroutine, CoroutineResult, Yielder};
use quietmm::addr::{FrameNumber, Nanos, NodeId, PhysAddr};
use quietmm::platform::{Access, BlockDevice, DeviceError, Guarantees, WaitKey};
use quietmm::{CpuId, CpuSet, Error, Event, Kind, Platform, Rule, UserAccess, VirtAddr};
use quietmm_workloads::{Kernel, Machine as Runs, TaskId};
use rand_core::{Rng, SeedableRng};

use crate::cpu::{Cpu, Mode};
use crate::lines::Lines;
use crate::machine::Machine;
use crate::order::{NEVER, Order};
use crate::stacks::{Piece, Stacks};
use crate::tlb::Tlb;
use crate::truth::Truth;

/// How far a CPU may run ahead of the slowest, in picoseconds: a few moves of a line. Half of it changes no
/// figure by more than its spread over seeds.
const SLACK: u64 = 400_000;
/// Events without progress after which a run is given up.
const STUCK: u64 = 400_000_000;
/// Events after the end of the last user task within which all others must come to rest.
const RESTLESS: u64 = 20_000_000;

type Context = Coroutine<(), (), (), Piece>;

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
    memory: memmap2::MmapMut,
    base: *mut u8,
    bytes: u64,
    lines: UnsafeCell<Lines>,
    order: UnsafeCell<Order>,
    truth: UnsafeCell<Truth>,
    /// For each frame: it holds user data, which is not stored.
    data: Vec<Cell<bool>>,
    /// All CPUs.
    pub cpus: Vec<Cpu>,
    current: Cell<u16>,
    /// The earliest time of any other CPU.
    horizon: Cell<u64>,
    running: Cell<bool>,
    stop: Cell<Option<Stop>>,
    kernel: Cell<Option<*const dyn Kernel>>,
    contexts: UnsafeCell<Vec<Option<Context>>>,
    yielders: RefCell<Vec<Cell<*const Yielder<(), ()>>>>,
    stacks: RefCell<Stacks>,
    broken: Option<Rule>,
    watch: &'w dyn Watch,
    /// Pages of work done, and all there is.
    pub done: Cell<u64>,
    /// See `done`.
    pub total: Cell<u64>,
    /// Accesses of tasks whose speed is reported.
    pub counted: Cell<u64>,
    /// Events so far, and at the last progress.
    pub events: Cell<u64>,
    last_progress: Cell<u64>,
    flights: Vec<u64>,
    tick_period: u64,
    /// Pages of files that the disk holds: all others are holes.
    written: RefCell<BTreeSet<(u32, u64)>>,
    /// When each of the disk's command slots is free.
    disk: RefCell<Vec<u64>>,
    io: Cell<u64>,
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
        let bytes = machine.memory;
        let mut memory = memmap2::MmapOptions::new().len(bytes as usize).no_reserve_swap().map_anon()?;
        let base = memory.as_mut_ptr();
        let frames = (bytes / 4096) as usize;
        let mut rng = rand_xoshiro::Xoshiro256StarStar::seed_from_u64(seed);
        let tick_period = 1_000_000_000_000 / u64::from(machine.cost.tick_hz);
        let cpus = (0..machine.cpus)
            .map(|id| Cpu::new(id as u16, rng.next_u64() % tick_period, Tlb::new(&machine.tlb)))
            .collect();
        let flights = machine
            .distance
            .iter()
            .flatten()
            .map(|&d| machine.cost.ipi_flight_local + machine.cost.ipi_flight_hop * u64::from(d - 10) / 10)
            .collect();
        Ok(Sim {
            lines: UnsafeCell::new(Lines::new(&machine, bytes)?),
            order: UnsafeCell::new(Order::new(machine.cpus as usize)),
            truth: UnsafeCell::new(Truth::new(frames)),
            data: vec![Cell::new(false); frames],
            cpus,
            current: Cell::new(0),
            horizon: Cell::new(NEVER),
            running: Cell::new(false),
            stop: Cell::new(None),
            kernel: Cell::new(None),
            contexts: UnsafeCell::new(Vec::new()),
            yielders: RefCell::new(Vec::new()),
            stacks: RefCell::new(Stacks::new(tasks)?),
            broken,
            watch,
            done: Cell::new(0),
            total: Cell::new(0),
            counted: Cell::new(0),
            events: Cell::new(0),
            last_progress: Cell::new(0),
            flights,
            tick_period,
            written: RefCell::new(BTreeSet::new()),
            disk: RefCell::new(vec![0; machine.device.parallel as usize]),
            io: Cell::new(0),
            memory,
            base,
            bytes,
            machine,
        })
    }

    /// The memory, as regions of equal size, one per node.
    pub fn regions(&self) -> Vec<quietmm::Region> {
        let (nodes, frames) = (self.machine.nodes, (self.bytes / 4096) as u32);
        let each = frames / nodes;
        (0..nodes)
            .map(|n| quietmm::Region { start: FrameNumber(n * each), frames: each, node: NodeId(n as u16) })
            .collect()
    }

    /// Runs until all user tasks have ended. `kernel` hears interrupts, ticks and faults.
    pub fn run(&self, kernel: &dyn Kernel) -> Stop {
        for cpu in &self.cpus {
            self.order().set(cpu.id, 0);
        }
        self.go(kernel, STUCK)
    }

    /// After a run has finished: goes on until nothing is left to do on any CPU, so that no lock is held and no
    /// page is in anybody's hands. Gives false if that takes too long: a task without an end keeps a CPU busy.
    pub fn rest(&self, kernel: &dyn Kernel) -> bool {
        self.stop.set(None);
        self.last_progress.set(self.events.get());
        self.go(kernel, RESTLESS) == Stop::Deadlock
    }

    fn go(&self, kernel: &dyn Kernel, most: u64) -> Stop {
        // SAFETY: only the lifetime is forgotten; the pointer is used while this function runs, which the
        // borrow outlives.
        let kernel =
            unsafe { std::mem::transmute::<*const dyn Kernel, *const (dyn Kernel + 'static)>(kernel) };
        self.kernel.set(Some(kernel));
        self.running.set(true);
        let stop = loop {
            if let Some(stop) = self.stop.get() {
                break stop;
            }
            let (time, id) = self.order().first();
            if time == NEVER {
                break Stop::Deadlock;
            }
            if self.events.get() - self.last_progress.get() > most {
                break Stop::Stuck;
            }
            if !FAULTS {
                self.turn(id, time);
            } else if catch_unwind(AssertUnwindSafe(|| self.turn(id, time))).is_err() {
                // A frame freed twice, say. Everything here is cells, and only the account is read after this.
                break Stop::Collapsed;
            }
        };
        self.running.set(false);
        stop
    }

    /// One CPU's turn, until it gives way.
    fn turn(&self, id: u16, time: u64) {
        let cpu = &self.cpus[id as usize];
        self.current.set(id);
        self.horizon.set(self.order().first_but(id));
        if cpu.parked.replace(false) {
            cpu.now.set(cpu.now.get().max(time));
        }
        self.set_limit(cpu);
        let task = cpu.task.get().0 as usize;
        // SAFETY: the table only grows while no context runs; this context is suspended, so nobody else
        // uses it. It is taken out while it runs because it may make others.
        let context = unsafe { &mut *self.contexts.get() }[task].take();
        let mut context = context.expect("a CPU's task has a context that no other CPU runs");
        if let CoroutineResult::Yield(()) = context.resume(()) {
            // SAFETY: as above; the context has given way.
            let contexts = unsafe { &mut *self.contexts.get() };
            contexts[task] = Some(context);
        }
    }

    #[allow(clippy::mut_from_ref)]
    fn order(&self) -> &mut Order {
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
    fn tlb<'c>(&self, cpu: &'c Cpu) -> &'c mut Tlb {
        // SAFETY: as for `order`.
        unsafe { &mut *cpu.tlb.get() }
    }

    fn kernel(&self) -> &dyn Kernel {
        let kernel = self.kernel.get().expect("set by `go`");
        // SAFETY: `go` has not returned, and the kernel outlives it.
        unsafe { &*kernel }
    }

    #[inline]
    fn cpu(&self) -> &Cpu {
        &self.cpus[self.current.get() as usize]
    }

    #[inline]
    fn set_limit(&self, cpu: &Cpu) {
        cpu.limit.set(self.horizon.get().saturating_add(SLACK).min(cpu.next_irq()));
    }

    /// Time passes on this CPU.
    #[inline]
    fn advance(&self, ps: u64) {
        let cpu = self.cpu();
        let now = cpu.now.get() + ps;
        cpu.now.set(now);
        if now >= cpu.limit.get() && self.running.get() {
            self.settle();
        }
    }

    /// Takes due interrupts, and lets CPUs that are behind go first.
    #[cold]
    #[inline(never)]
    fn settle(&self) {
        loop {
            let cpu = self.cpu();
            let now = cpu.now.get();
            if cpu.next_irq() <= now {
                self.take_interrupt();
            } else if now > self.horizon.get().saturating_add(SLACK) {
                self.order().set(cpu.id, now);
                self.give_way();
            } else {
                self.set_limit(cpu);
                return;
            }
        }
    }

    /// Suspends this context; the CPU's time is in the order.
    fn give_way(&self) {
        let task = self.cpu().task.get().0 as usize;
        let yielder = self.yielders.borrow()[task].get();
        // SAFETY: set by this very context when it began, and it lives as long as the context.
        unsafe { &*yielder }.suspend(());
    }

    /// Stays at one thing until `until`, interrupts permitting; gives the time at which it stopped.
    fn park(&self, until: u64) -> u64 {
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

    /// One piece of work of `ps`, which interrupts can split. Gives false if one came before the end; then
    /// `ps` holds what is left.
    fn work(&self, ps: &mut u64) -> bool {
        self.events.set(self.events.get() + 1);
        let cpu = self.cpu();
        if cpu.next_irq() <= cpu.now.get() {
            self.settle();
            return false;
        }
        let start = cpu.now.get();
        let stopped = self.park(start + *ps);
        *ps = (*ps).saturating_sub(stopped - start);
        let due = cpu.next_irq() <= stopped;
        if due {
            self.settle();
        } else {
            self.set_limit(self.cpu());
        }
        *ps == 0 || !due
    }

    fn work_through(&self, mut ps: u64) {
        while ps > 0 {
            self.work(&mut ps);
        }
    }

    /// Takes the earliest due interrupt of this CPU.
    fn take_interrupt(&self) {
        let cpu = self.cpu();
        let cost = &self.machine.cost;
        cpu.irqs.set(false);
        cpu.limit.set(self.horizon.get().saturating_add(SLACK));
        let mode = cpu.enter(Mode::System);
        if mode == Mode::Idle {
            self.advance(cost.idle_wake);
        }
        self.advance(cost.irq_enter + cost.irq_work);
        let now = cpu.now.get();
        if cpu.ipi_at.get() <= now {
            cpu.ipi_at.set(NEVER);
            self.kernel().interrupted();
        } else if cpu.kick_at.get() <= now {
            cpu.kick_at.set(NEVER);
            cpu.kicks.set(cpu.kicks.get() + 1);
            self.kernel().rescheduled();
        } else if cpu.alarm_at.get() <= now {
            cpu.alarmed.set(cpu.alarmed.get() + 1);
            let due = cpu.alarms.borrow_mut().pop_first();
            cpu.alarm_at.set(cpu.alarms.borrow().first().map_or(NEVER, |alarm| alarm.0));
            if let Some((_, key)) = due {
                self.kernel().wake(key);
            }
        } else if cpu.tick_at.get() <= now {
            cpu.tick_at.set(cpu.tick_at.get() + self.tick_period);
            cpu.ticks.set(cpu.ticks.get() + 1);
            self.advance(cost.tick_work);
            self.kernel().ticked();
        }
        self.advance(cost.irq_exit);
        cpu.enter(mode);
        cpu.irqs.set(true);
    }

    /// An interrupt arrives at `target` at `at`.
    fn post(&self, target: &Cpu, slot: &Cell<u64>, at: u64) {
        slot.set(slot.get().min(at));
        if target.parked.get() && target.irqs.get() {
            let at = at.max(target.now.get());
            if at < self.order().get(target.id) {
                self.order().set(target.id, at);
                self.horizon.set(self.horizon.get().min(at));
                self.set_limit(self.cpu());
            }
        }
    }

    fn flight(&self, from: &Cpu, to: &Cpu) -> u64 {
        let (a, b) = (self.machine.node_of(from.id.into()), self.machine.node_of(to.id.into()));
        self.flights[(a * self.machine.nodes + b) as usize]
    }

    /// Translates a user address, by the TLB or by a walk. Gives false for a page fault.
    fn translate(&self, at: VirtAddr, write: bool) -> bool {
        let cost = &self.machine.cost;
        let cpu = self.cpu();
        let (tag, page) = (cpu.tag.get(), at.page());
        let by = crate::truth::Use { cpu: cpu.id, now: cpu.now.get(), page, write };
        if let Some((entry, hit)) = self.tlb(cpu).find(tag, page) {
            if !write || entry.dirty {
                self.truth().judge(entry, &by, || self.leads_elsewhere(cpu, page, entry.frame));
                if write {
                    self.truth().wrote(entry.frame, cpu.id);
                }
                if hit == crate::tlb::Hit::Second {
                    self.advance(cost.tlb_l2_hit);
                }
                return true;
            }
            // A write through a cached clean entry walks the table again.
        }
        let near = self.tlb(cpu).walk_hits(tag, page);
        let leaf = self.walk(cpu.root.get(), page);
        let line = leaf.map_or(0, |word| self.line(word.cast(), Access::Read));
        self.advance(cost.walk_step * if near { 1 } else { 4 } + line);
        // Time has passed: the walk that counts is the one now, in one step with the fill.
        let cpu = self.cpu();
        let (tag, root) = (cpu.tag.get(), cpu.root.get());
        let Some(word) = self.walk(root, page) else { return self.missed(cpu, tag, page) };
        // SAFETY: an aligned word of a table frame in the machine's memory; one host thread.
        let entry = quietmm::Entry(unsafe { *word });
        if !entry.is_present() || (write && !entry.has(quietmm::Entry::WRITABLE)) {
            return self.missed(cpu, tag, page);
        }
        let bits = quietmm::Entry::ACCESSED | if write { quietmm::Entry::DIRTY } else { 0 };
        // SAFETY: as above.
        unsafe { *word |= bits };
        let entry = quietmm::Entry(entry.0 | bits);
        let filled = self.truth().filled(entry.frame());
        let dirty = entry.has(quietmm::Entry::DIRTY);
        self.tlb(cpu).fill(tag, page, entry.frame(), filled, dirty);
        if write {
            self.truth().wrote(entry.frame(), cpu.id);
        }
        cpu.refills.set(cpu.refills.get() + 1);
        true
    }

    /// The hardware drops what it had cached of a page for which it faults.
    fn missed(&self, cpu: &Cpu, tag: u16, page: quietmm::PageNumber) -> bool {
        self.tlb(cpu).flush_page(tag, page);
        false
    }

    /// Whether the tables lead to another frame than a cached entry does.
    fn leads_elsewhere(&self, cpu: &Cpu, page: quietmm::PageNumber, cached: FrameNumber) -> bool {
        self.walk(cpu.root.get(), page).is_some_and(|word| {
            // SAFETY: as in `translate`.
            let entry = quietmm::Entry(unsafe { *word });
            entry.is_present() && entry.frame() != cached
        })
    }

    /// The leaf entry's word on the way to a page, as the hardware finds it.
    fn walk(&self, root: FrameNumber, page: quietmm::PageNumber) -> Option<*mut u64> {
        let mut table = root;
        for level in (0..4).rev() {
            let at = table.phys().0 + 8 * page.index(level) as u64;
            if at + 8 > self.bytes {
                return None;
            }
            // SAFETY: inside the machine's memory, aligned.
            let word = unsafe { self.base.add(at as usize) }.cast::<u64>();
            if level == 0 {
                return Some(word);
            }
            // SAFETY: as above; one host thread.
            let entry = quietmm::Entry(unsafe { *word });
            if !entry.is_present() {
                return None;
            }
            table = entry.frame();
        }
        None
    }

    /// What a line's access costs, by address; nothing outside the machine's memory.
    #[inline]
    fn line(&self, at: *const u8, access: Access) -> u64 {
        let offset = (at.addr()).wrapping_sub(self.base.addr()) as u64;
        let cpu = self.cpu();
        // SAFETY: one host thread; `access` does not come back here.
        unsafe { &mut *self.lines.get() }.access(cpu.id, offset, access, cpu.now.get())
    }

    /// `percent` of the kernel work that is not modelled, part of it with interrupts off.
    fn unmodelled(&self, percent: u32) {
        let all = self.machine.cost.other_kernel_work * u64::from(percent) / 100;
        let off = all * u64::from(self.machine.cost.other_kernel_work_irqs_off) / 100;
        let owed = &self.cpu().owed;
        let (stretch, pages) = (owed.get().0 + off, owed.get().1 + 1);
        if pages < self.machine.cost.other_kernel_work_pages {
            owed.set((stretch, pages));
        } else {
            owed.set((0, 0));
            let were_on = self.irqs_off();
            self.work_through(stretch);
            if were_on {
                self.irqs_on();
            }
        }
        self.work_through(all - off);
    }

    /// Waits for one command of the disk.
    fn command(&self, latency: u64) {
        let now = self.cpu().now.get();
        let done = {
            let mut slots = self.disk.borrow_mut();
            let slot = slots.iter_mut().min_by_key(|free_at| **free_at).expect("a disk takes commands");
            *slot = now.max(*slot) + latency + 4096 * 1_000_000_000_000 / self.machine.device.bandwidth;
            *slot
        };
        self.io.set(self.io.get() + 1);
        let (done, key) = (Nanos(done.div_ceil(1000)), WaitKey::Own(1 << 32 | self.io.get()));
        self.alarm(done, key);
        self.wait(key, &mut || self.now() >= done);
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

// SAFETY: `direct` maps all of the machine's memory at `base`; there is one host thread, so `this_cpu` is
// true; flushes act on the CPU's TLB at once.
unsafe impl<const FAULTS: bool> Platform for Sim<'_, FAULTS> {
    #[inline]
    fn this_cpu(&self) -> CpuId {
        CpuId(self.current.get())
    }
    fn possible_cpus(&self) -> u32 {
        self.machine.cpus
    }
    fn is_online(&self, _cpu: CpuId) -> bool {
        true
    }
    fn node_of(&self, cpu: CpuId) -> NodeId {
        NodeId(self.machine.node_of(cpu.0.into()) as u16)
    }
    fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        self.machine.distance[from.0 as usize][to.0 as usize]
    }

    fn flush_page(&self, page: VirtAddr) {
        let cpu = self.cpu();
        self.tlb(cpu).flush_page(cpu.tag.get(), page.page());
        self.advance(self.machine.cost.invlpg);
    }
    fn flush_space(&self) {
        let cpu = self.cpu();
        self.tlb(cpu).flush_tag(cpu.tag.get());
        self.advance(self.machine.cost.flush_all);
    }
    fn load_space(&self, root: FrameNumber, tag: u16, keep: bool) {
        let cpu = self.cpu();
        if !keep {
            self.tlb(cpu).flush_tag(tag);
        }
        cpu.root.set(root);
        cpu.tag.set(tag);
        cpu.roots[tag as usize].set(root);
        self.advance(self.machine.cost.load_space);
    }
    fn tags(&self) -> u16 {
        self.machine.tlb.tags as u16
    }

    fn interrupt(&self, targets: &CpuSet) {
        for target in targets.iter() {
            self.advance(self.machine.cost.ipi_send);
            let (from, to) = (self.cpu(), &self.cpus[target.index()]);
            self.post(to, &to.ipi_at, from.now.get() + self.flight(from, to));
        }
    }
    fn irqs_off(&self) -> bool {
        let cpu = self.cpu();
        let were_on = cpu.irqs.replace(false);
        if were_on {
            self.set_limit(cpu);
        }
        were_on
    }
    fn irqs_on(&self) {
        let cpu = self.cpu();
        cpu.irqs.set(true);
        if self.running.get() {
            if cpu.next_irq() <= cpu.now.get() {
                self.settle();
            } else {
                self.set_limit(cpu);
            }
        }
    }

    #[inline]
    fn direct(&self, at: PhysAddr) -> *mut u8 {
        self.base.wrapping_add(at.0 as usize)
    }
    fn clear_frame(&self, frame: FrameNumber) {
        if !self.data[frame.0 as usize].get() {
            // SAFETY: the frame lies in the machine's memory and belongs to the caller.
            unsafe { self.direct(frame.phys()).write_bytes(0, 4096) };
        }
        self.advance(self.machine.cost.clear_frame);
    }
    fn copy_frame(&self, _from: FrameNumber, _to: FrameNumber) {
        self.advance(self.machine.cost.copy_frame);
    }
    fn now(&self) -> Nanos {
        Nanos(self.cpu().now.get() / 1000)
    }
    fn pause(&self, ns: u32) {
        self.events.set(self.events.get() + 1);
        self.advance((u64::from(ns) * 1000).next_multiple_of(self.machine.cost.pause));
    }
    fn wait(&self, key: WaitKey, ready: &mut dyn FnMut() -> bool) {
        self.kernel().wait(key, ready);
    }
    fn breathe(&self) {
        self.kernel().breathe();
    }
    fn wake(&self, key: WaitKey) {
        if self.running.get() {
            self.kernel().wake(key);
        }
    }
    fn device(&self) -> Option<&dyn BlockDevice> {
        Some(self)
    }
    fn guarantees(&self) -> Guarantees {
        // SAFETY: `translate` walks again for a write through a clean entry, and sets accessed bits only
        // when it fills, with no harm beyond a wrong guess.
        unsafe { Guarantees::none().with_clean_write_walks().with_unflushed_accessed() }
    }

    #[inline]
    fn touch(&self, at: *const u8, access: Access) {
        if self.running.get() {
            self.events.set(self.events.get() + 1);
            let cost = self.line(at, access);
            self.advance(cost);
        }
    }
    #[inline(always)]
    fn broken(&self, rule: Rule) -> bool {
        if !FAULTS || self.broken != Some(rule) {
            return false;
        }
        let cpu = self.cpu();
        self.truth().skipped = Some((rule, cpu.id, cpu.now.get()));
        true
    }
    #[inline]
    fn observe(&self, event: &Event) {
        let cpu = self.cpu();
        match *event {
            Event::Taken { frame, order, kind } => {
                for i in 0..1 << order {
                    self.data[frame.0 as usize + i].set(matches!(kind, Kind::Anon | Kind::File));
                }
                self.truth().observe(event, cpu.id, cpu.now.get());
            }
            Event::Revoked { root, range, .. } => {
                for cpu in &self.cpus {
                    for tag in 0..self.tags() {
                        if cpu.roots[tag as usize].get() == root {
                            self.tlb(cpu).revoke(tag, range);
                        }
                    }
                }
            }
            _ => self.truth().observe(event, cpu.id, cpu.now.get()),
        }
    }
}

/// The disk: `parallel` commands at once, each with its latency and its share of the bandwidth.
impl<const FAULTS: bool> BlockDevice for Sim<'_, FAULTS> {
    fn read(&self, file: u32, block: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        if self.written.borrow().contains(&(file, block)) {
            self.command(self.machine.device.read_latency);
        } else {
            self.clear_frame(frame); // a hole
        }
        Ok(())
    }
    fn forget(&self, _file: u32, _block: u64) {
        self.unmodelled(self.machine.cost.other_kernel_work_goes);
    }
    fn write(&self, file: u32, block: u64, _frame: FrameNumber) -> Result<(), DeviceError> {
        self.written.borrow_mut().insert((file, block));
        self.command(self.machine.device.write_latency);
        Ok(())
    }
}

impl<const FAULTS: bool> Runs for Sim<'_, FAULTS> {
    fn spawn(&self, task: TaskId) {
        let machine: *const () = std::ptr::from_ref(self).cast();
        let stack = self.stacks.borrow_mut().cut();
        let context = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            // SAFETY: contexts are resumed only by `go`, which borrows the machine.
            let sim = unsafe { &*machine.cast::<Sim<'_, FAULTS>>() };
            sim.yielders.borrow()[task.0 as usize].set(yielder);
            sim.kernel().run(task);
        });
        let index = task.0 as usize;
        // SAFETY: one host thread; no other reference to the table exists while a context runs, because
        // `turn` takes the running one out.
        let contexts = unsafe { &mut *self.contexts.get() };
        contexts.resize_with(contexts.len().max(index + 1), || None);
        contexts[index] = Some(context);
        self.yielders.borrow_mut().resize_with(contexts.len(), || Cell::new(std::ptr::null()));
    }

    fn switch(&self, to: TaskId) {
        self.advance(self.machine.cost.task_switch);
        let cpu = self.cpu();
        self.order().set(cpu.id, cpu.now.get());
        let from = cpu.task.replace(to);
        let yielder = self.yielders.borrow()[from.0 as usize].get();
        // SAFETY: as in `give_way`: it is this context's own.
        unsafe { &*yielder }.suspend(());
    }

    fn idle(&self) {
        let cpu = self.cpu();
        cpu.enter(Mode::Idle);
        // An idle CPU has no tick.
        let tick = cpu.tick_at.replace(NEVER);
        cpu.irqs.set(true);
        self.park(NEVER);
        if cpu.next_irq() <= cpu.now.get() {
            self.take_interrupt();
        }
        cpu.enter(Mode::System);
        let behind = cpu.now.get().saturating_sub(tick).div_ceil(self.tick_period);
        cpu.tick_at.set(tick + behind * self.tick_period);
        self.set_limit(cpu);
    }

    fn kick(&self, cpu: CpuId) {
        self.advance(self.machine.cost.ipi_send);
        let (from, to) = (self.cpu(), &self.cpus[cpu.index()]);
        self.post(to, &to.kick_at, from.now.get() + self.flight(from, to));
    }

    fn access(&self, at: VirtAddr, count: u32, access: UserAccess) -> Result<(), Error> {
        let write = access == UserAccess::Write;
        let mut left = u64::from(count) * self.machine.cost.user_access;
        self.cpu().enter(Mode::User);
        while left > 0 {
            if self.translate(at, write) {
                self.work(&mut left);
                // What is used for a while is used until its end.
                let cpu = self.cpu();
                let by = crate::truth::Use { cpu: cpu.id, now: cpu.now.get(), page: at.page(), write };
                if let Some((entry, _)) = self.tlb(cpu).find(cpu.tag.get(), at.page()) {
                    self.truth().judge(entry, &by, || self.leads_elsewhere(cpu, at.page(), entry.frame));
                }
                continue;
            }
            self.cpu().enter(Mode::System);
            self.advance(self.machine.cost.trap_enter);
            let result = self.kernel().fault(at, access);
            self.advance(self.machine.cost.trap_exit);
            if result.is_err() {
                return result;
            }
            self.cpu().enter(Mode::User);
        }
        self.cpu().enter(Mode::System);
        Ok(())
    }

    fn compute(&self, count: u32) {
        self.cpu().enter(Mode::User);
        self.work_through(u64::from(count) * self.machine.cost.user_access);
        self.cpu().enter(Mode::System);
    }

    fn other_kernel_work(&self) {
        self.unmodelled(100 - self.machine.cost.other_kernel_work_goes);
    }

    fn alarm(&self, at: Nanos, key: WaitKey) {
        let cpu = self.cpu();
        cpu.alarms.borrow_mut().insert((at.0 * 1000, key));
        cpu.alarm_at.set(cpu.alarm_at.get().min(at.0 * 1000));
        self.set_limit(cpu);
    }
    fn counted(&self, count: u64) {
        self.counted.set(self.counted.get() + count);
    }
    fn enter_kernel(&self) {
        self.advance(self.machine.cost.syscall / 2);
    }
    fn leave_kernel(&self) {
        self.advance(self.machine.cost.syscall / 2);
    }
    fn time_slice(&self) -> u64 {
        self.machine.kernel.time_slice / 1000
    }

    fn progressed(&self, pages: u64) {
        let (before, done) = (self.done.get(), self.done.get() + pages);
        self.done.set(done);
        self.last_progress.set(self.events.get());
        if before / 1024 != done / 1024 {
            self.watch.progress(done, self.total.get());
            if self.watch.cancelled() {
                self.stop.set(Some(Stop::Cancelled));
                // A lone CPU has nobody to give way to, and would go on to its end.
                let cpu = self.cpu();
                self.order().set(cpu.id, cpu.now.get());
                self.give_way();
            }
        }
    }
    fn finished(&self) {
        self.stop.set(Some(Stop::Finished));
    }
}
