//! A running system: the core, run queues, idle and lazy CPUs, `kswapd` for each node, and who purges kernel addresses.
//!
//! The scheduler is as plain as can be: a queue per CPU, tasks taken in turn, each for a time slice. Tasks are
//! never preempted inside the core: they are switched where they return to user addresses, where they
//! wait, and where the core says that it is a good place. Kernel tasks move to the next CPU of their node
//! with each slice, so that no user task has to share its CPU with one for long. `power` takes CPUs away and brings
//! them back: a task whose CPU is offline runs on the next one that is not.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::OnceCell;

use quietmm::addr::Nanos;
use quietmm::platform::{Shortage, WaitKey};
use quietmm::{Config, CpuId, Error, Manager, NodeId, NodePolicy, Region, SpaceId, UserAccess, VirtAddr};

use crate::guarded::Guarded;
use crate::machine::{Kernel, Machine};
use crate::power::Power;
use crate::scheduler::{Queue, Scheduler};
use crate::task::{Body, Cpus, State, Task, TaskId, TaskKind, TaskReport};

/// A CPU that has nothing to do is idle after so many nanoseconds.
const IDLES: u64 = 3_000;

/// Whoever waits for a lock without sleeping looks so often, in nanoseconds.
const SPIN: u32 = 200;

/// The system.
pub struct System<'p, M: Machine> {
    /// The memory manager.
    pub mm: Manager<'p, M>,
    sched: Guarded<Scheduler<'p, M>>,
    /// Picks a victim when memory is out; none does so unless the workload says how.
    victims: OnceCell<PickVictim<'p, M>>,
}

/// Finds somebody to end when no frame can be had, and says whether the task that wants one should try again.
pub type PickVictim<'p, M> = Box<dyn Fn(&System<'p, M>, &Shortage) -> bool + 'p>;

// SAFETY of sharing: `Guarded` gives each CPU its turn; task bodies are run by one CPU at a time.
impl<'p, M: Machine> System<'p, M> {
    /// Makes the manager, an idle task for each CPU, its `kswapd` or several for each node, and, where there is a kernel range, one task
    /// that purges it.
    ///
    /// # Errors
    /// Those of [`Manager::new`].
    ///
    /// # Safety
    /// Those of [`Manager::new`].
    pub unsafe fn new(machine: &'p M, regions: &[Region], config: Config) -> Result<Self, Error> {
        // SAFETY: as the caller promises.
        let mm = unsafe { Manager::new(machine, regions, config)? };
        let cpus = machine.possible_cpus() as usize;
        let sched = Scheduler {
            tasks: Vec::new(),
            queues: (0..cpus as u16)
                .map(|cpu| Queue::new(CpuId(cpu), machine.is_online(CpuId(cpu))))
                .collect(),
            waiters: BTreeMap::new(),
            users: 0,
            roaming: false,
            last_helper: alloc::vec![0; 64],
        };
        let system = System { mm, sched: Guarded::new(sched), victims: OnceCell::new() };
        for cpu in 0..cpus {
            let cpu = CpuId(cpu as u16);
            system.add(format!("idle/{}", cpu.0), TaskKind::Idle, cpu, None, None);
        }
        if config.vmap.is_some() {
            let body: Body<'p, M> = Box::new(|system| {
                loop {
                    system.mm.vmap().purger()?;
                    // Where more is unmapped all the time it never waits: the CPU's own task must not either.
                    system.cond_resched();
                }
            });
            let node = machine.node_of(CpuId(0));
            system.add(String::from("vmap-purge"), TaskKind::Kernel(node), CpuId(0), None, Some(body));
        }
        let mut nodes: Vec<NodeId> = regions.iter().map(|region| region.node).collect();
        nodes.dedup();
        let many = machine.kswapds();
        for (node, nth) in nodes.into_iter().flat_map(|node| (0..many).map(move |nth| (node, nth))) {
            let mut here = (0..cpus).map(|c| CpuId(c as u16)).filter(|&c| machine.node_of(c) == node).cycle();
            let cpu = here.nth(nth as usize);
            let body: Body<'p, M> = Box::new(move |system| {
                loop {
                    system.mm.kswapd(node)?;
                }
            });
            system.add(
                if nth == 0 { format!("kswapd/{}", node.0) } else { format!("kswapd/{}.{nth}", node.0) },
                TaskKind::Kernel(node),
                cpu.unwrap_or(CpuId(0)),
                None,
                Some(body),
            );
        }
        Ok(system)
    }

    pub(crate) fn machine(&self) -> &'p M {
        self.mm.platform()
    }

    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Scheduler<'p, M>) -> R) -> R {
        self.sched.with(&self.mm, work)
    }

    /// Adds a task on a CPU. Before the machine starts.
    pub fn spawn(
        &self,
        name: String,
        kind: TaskKind,
        cpu: CpuId,
        body: impl FnOnce(&System<'p, M>) -> Result<(), Error> + 'p,
    ) -> TaskId {
        self.add(name, kind, cpu, None, Some(Box::new(body)))
    }

    /// Adds a task that goes to another CPU when its own is busy and that one is not. Before the machine starts.
    pub fn spawn_roaming(
        &self,
        name: String,
        kind: TaskKind,
        cpu: CpuId,
        body: impl FnOnce(&System<'p, M>) -> Result<(), Error> + 'p,
    ) -> TaskId {
        let id = self.add(name, kind, cpu, None, Some(Box::new(body)));
        self.with(|s| {
            s.tasks[id.0 as usize].roams = true;
            s.roaming = true;
        });
        id
    }

    /// The calling task runs on this CPU when it is woken next.
    pub fn wake_on(&self, cpu: CpuId) {
        let id = self.current();
        self.with(|s| s.tasks[id.0 as usize].home = cpu);
    }

    /// The calling task, which runs in a space, goes on in this one, and stays in it.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`].
    pub fn live_in(&self, space: SpaceId) -> Result<(), Error> {
        let me = self.current();
        self.with(|s| {
            let kind = &mut s.tasks[me.0 as usize].report.kind;
            *kind = if matches!(kind, TaskKind::User(_)) {
                TaskKind::User(space)
            } else {
                TaskKind::Background(space)
            };
        });
        self.mm.space(space).switch_to()
    }

    /// The calling task runs on these CPUs from now on: it goes from one to another when its own is busy and that one is not.
    pub fn stay_within(&self, cpus: Cpus) {
        let me = self.current();
        let here = self.machine().this_cpu();
        self.with(|s| {
            let mut all = (0..s.queues.len() as u16).map(CpuId).filter(|&cpu| cpus.has(cpu));
            let Some(first) = all.next() else { return };
            let alone = all.next().is_none();
            let task = &mut s.tasks[me.0 as usize];
            (task.within, task.roams) = (cpus, !alone);
            if !cpus.has(task.home) {
                task.home = if cpus.has(here) { here } else { first };
            }
            if !cpus.has(here) {
                // It is placed there once this CPU has left it.
                s.queues[here.index()].resched = true;
            }
        });
        self.schedule();
    }

    /// Lets another task run here, if it is somebody else's turn: for a task that computes for long.
    pub fn give_way(&self) {
        self.cond_resched();
    }

    /// Adds a task that begins when somebody wakes `key`: a process that is yet to be made. Before the machine starts.
    pub fn spawn_asleep(
        &self,
        name: String,
        kind: TaskKind,
        cpu: CpuId,
        key: WaitKey,
        body: impl FnOnce(&System<'p, M>) -> Result<(), Error> + 'p,
    ) -> TaskId {
        self.add(name, kind, cpu, Some(key), Some(Box::new(body)))
    }

    fn add(
        &self,
        name: String,
        kind: TaskKind,
        cpu: CpuId,
        asleep: Option<WaitKey>,
        body: Option<Body<'p, M>>,
    ) -> TaskId {
        let m = self.machine();
        let id = self.with(|s| {
            let home = cpu;
            let cpu = if kind == TaskKind::Idle { cpu } else { s.seat(home, |c| m.node_of(c)) };
            let id = TaskId(s.tasks.len() as u32);
            let report = TaskReport { name, kind, started: u64::MAX, ended: None, result: Ok(()) };
            let state = if asleep.is_some() { State::Waiting } else { State::Runnable };
            let idle = kind == TaskKind::Idle;
            let queued = !idle && asleep.is_none();
            s.tasks.push(Task {
                report,
                state,
                home,
                cpu,
                on_cpu: idle,
                queued,
                roams: false,
                within: Cpus::ALL,
                body,
            });
            s.users += u32::from(matches!(kind, TaskKind::User(_)));
            if queued {
                s.queues[cpu.index()].ready.push_back(id);
            }
            if let Some(key) = asleep {
                s.waiters.entry(key).or_default().push_back(id);
            }
            id
        });
        m.spawn(id);
        id
    }

    /// Who picks the victims when memory is out. Before the machine starts, once.
    pub fn pick_victims(&self, pick: impl Fn(&System<'p, M>, &Shortage) -> bool + 'p) {
        // A second one is ignored: a system runs one workload.
        let _ = self.victims.set(Box::new(pick));
    }

    /// What can be said of every task that is neither idle nor `kswapd`.
    pub fn reports(&self) -> Vec<TaskReport> {
        self.with(|s| s.reports())
    }

    /// What all tasks are called, by number.
    pub fn names(&self) -> Vec<String> {
        self.with(|s| s.names())
    }

    /// [`reports`](Self::reports) without the scheduler's lock: a machine that was stopped, not one that has come to its end,
    /// may have been stopped with the lock held, and whoever took it would wait for ever.
    ///
    /// # Safety
    /// All CPUs have stopped, and none goes on.
    pub unsafe fn reports_of_stopped(&self) -> Vec<TaskReport> {
        // SAFETY: handed on.
        unsafe { self.sched.look(Scheduler::reports) }
    }

    /// What all tasks are called, by number, without the scheduler's lock.
    ///
    /// # Safety
    /// As of [`reports_of_stopped`](Self::reports_of_stopped).
    pub unsafe fn names_of_stopped(&self) -> Vec<String> {
        // SAFETY: handed on.
        unsafe { self.sched.look(Scheduler::names) }
    }

    /// Who waits for what: for whoever looks into a deadlock.
    pub fn waiting(&self) -> Vec<(String, WaitKey)> {
        self.with(|s| {
            let all = s.waiters.iter().flat_map(|(key, tasks)| tasks.iter().map(|task| (*task, *key)));
            all.map(|(task, key)| (s.tasks[task.0 as usize].report.name.clone(), key)).collect()
        })
    }

    /// Whether no CPU has anything to do: none runs a task, and none is ready. Who naps will be.
    pub fn is_at_rest(&self) -> bool {
        let idle =
            |(cpu, queue): (usize, &Queue)| queue.current == TaskId(cpu as u32) && queue.ready.is_empty();
        self.with(|s| s.queues.iter().enumerate().all(idle))
    }

    /// The task that runs on this CPU.
    pub fn current(&self) -> TaskId {
        let cpu = self.machine().this_cpu();
        self.with(|s| s.queues[cpu.index()].current)
    }

    /// A system call: `work` in the kernel, then perhaps another task, then back.
    pub fn syscall<R>(&self, work: impl FnOnce(&Manager<'p, M>) -> R) -> R {
        self.machine().enter_kernel();
        let result = work(&self.mm);
        self.machine().leave_kernel();
        self.cond_resched();
        result
    }

    /// A space of a program's, bound to the nodes that the machine has for programs.
    ///
    /// # Errors
    /// Those of [`Manager::create_space`] and of [`Space::set_default_node_policy`](quietmm::Space::set_default_node_policy).
    pub fn create_space(&self) -> Result<SpaceId, Error> {
        let id = self.mm.create_space()?;
        if let Some(nodes) = self.machine().nodes_of_programs() {
            self.mm.space(id).set_default_node_policy(NodePolicy::Bind(nodes))?;
        }
        Ok(id)
    }

    /// User accesses; see [`Machine::access`].
    ///
    /// # Errors
    /// Those of the page fault.
    pub fn access(&self, at: VirtAddr, count: u32, access: UserAccess) -> Result<(), Error> {
        self.machine().access(at, count, access)?;
        self.cond_resched();
        Ok(())
    }

    /// The task that runs here does `work` in another space, and comes back to its own.
    pub fn run_in<R>(&self, space: SpaceId, work: impl FnOnce() -> R) -> R {
        let own = self.change_space(space);
        let result = work();
        self.change_space(own);
        result
    }

    /// Ends a space in which no task runs any more. A CPU that has it loaded lazily may be on its way to another one at
    /// this moment: it is waited for.
    ///
    /// # Errors
    /// Those of [`Space::destroy`](quietmm::Space::destroy), but for `Busy`.
    pub fn end_space(&self, space: SpaceId) -> Result<(), Error> {
        loop {
            match self.syscall(|mm| mm.space(space).destroy()) {
                Err(Error::Busy) => self.nap(1_000),
                ended => return ended,
            }
        }
    }

    /// The task that runs here goes on in another space. Returns the one that it was in.
    pub(crate) fn change_space(&self, to: SpaceId) -> SpaceId {
        let old = self.belongs(to);
        // Whoever switches to this task from now on loads the new space.
        self.mm.space(to).switch_to().unwrap_or_default();
        old.unwrap_or(to)
    }

    /// The task that runs here has done with its space, and is on its way to another. Until it comes there, or somebody else runs, this CPU
    /// has the old one loaded lazily, as that of a thread which ends has.
    pub(crate) fn leave_space(&self, to: SpaceId) {
        self.belongs(to);
        self.mm.enter_lazy();
    }

    fn belongs(&self, to: SpaceId) -> Option<SpaceId> {
        let me = self.current();
        self.with(|s| {
            let kind = &mut s.tasks[me.0 as usize].report.kind;
            let old = kind.space();
            *kind = TaskKind::User(to);
            old
        })
    }

    /// A store to user memory; see [`Machine::store`].
    ///
    /// # Errors
    /// Those of the page fault.
    pub fn store(&self, at: VirtAddr, value: u64) -> Result<(), Error> {
        self.machine().store(at, value)?;
        self.cond_resched();
        Ok(())
    }

    /// A load from user memory; see [`Machine::load`].
    ///
    /// # Errors
    /// Those of the page fault.
    pub fn load(&self, at: VirtAddr) -> Result<u64, Error> {
        let value = self.machine().load(at)?;
        self.cond_resched();
        Ok(value)
    }

    /// This task sleeps for so many nanoseconds.
    pub fn nap(&self, ns: u64) {
        let m = self.machine();
        let until = Nanos(m.now().0.saturating_add(ns));
        let key = WaitKey::Own(self.current().0.into());
        m.alarm(until, key);
        m.wait(key, &mut || m.now() >= until);
    }

    /// This task sleeps until `at`, when it runs: it is woken so much earlier as a CPU takes to wake that has nothing to do.
    pub fn sleep_until(&self, at: Nanos) {
        let m = self.machine();
        let me = self.current();
        let home = self.with(|s| s.tasks[me.0 as usize].home);
        // Where the CPU had something to do it wakes too early, and sleeps on. An idle one takes its time to wake, however
        // short the sleep.
        for lag in [m.wake_lag(home), 0] {
            let left = at.0.saturating_sub(m.now().0);
            if left > 0 {
                self.nap(left.saturating_sub(lag).max(left.min(IDLES)));
            }
        }
    }

    /// Whoever holds a lock may let go of it before this CPU could have done anything else (as Linux's `rwsem_optimistic_spin`). Returns whether it did.
    fn spins(&self, key: WaitKey, ready: &mut dyn FnMut() -> bool) -> bool {
        let (m, cpu) = (self.machine(), self.machine().this_cpu().index());
        if m.lock_spin() == 0 || !matches!(key, WaitKey::Lock(_) | WaitKey::Readers(_) | WaitKey::Turn(..)) {
            return false;
        }
        let until = m.now().0.saturating_add(m.lock_spin());
        loop {
            if ready() {
                return true;
            }
            if m.now().0 >= until || self.with(|s| !s.queues[cpu].ready.is_empty()) {
                return false;
            }
            m.pause(SPIN);
        }
    }

    /// Picks the next task of this CPU and switches to it. Returns when the caller runs again.
    fn schedule(&self) {
        let m = self.machine();
        let were_on = m.irqs_off();
        let cpu = m.this_cpu();
        let now = m.now().0;
        let slice = m.time_slice();
        let (next, kind, switch) = self.with(|s| s.pick(cpu, now, slice, |cpu| m.node_of(cpu)));
        if switch {
            match kind.space() {
                // The spaces of tasks live until the tasks have ended.
                Some(space) => self.mm.space(space).switch_to().unwrap_or_default(),
                None => self.mm.enter_lazy(),
            }
            m.switch(next);
            self.arrived();
        }
        if were_on {
            m.irqs_on();
        }
    }

    /// After a switch, in the context that was switched to: the one that was left may now run elsewhere.
    fn arrived(&self) {
        let m = self.machine();
        let cpu = m.this_cpu();
        let kick = self.with(|s| {
            let left = s.queues[cpu.index()].left.take()?;
            let task = &mut s.tasks[left.0 as usize];
            task.on_cpu = false;
            // A kernel task moves on; any other was woken while it was on its way out.
            let homeless = task.state == State::Runnable && !task.queued && left.0 != u32::from(cpu.0);
            if homeless { s.place(left, cpu, |cpu| m.node_of(cpu)) } else { None }
        });
        if let Some(cpu) = kick {
            m.kick(cpu);
        }
    }
}

impl<'p, M: Machine> Kernel for System<'p, M> {
    fn interrupted(&self) {
        self.mm.on_interrupt();
    }

    fn rescheduled(&self) {
        let cpu = self.machine().this_cpu();
        self.with(|s| s.queues[cpu.index()].resched = true);
    }

    fn ticked(&self) {
        self.mm.tick();
        let m = self.machine();
        let (cpu, now) = (m.this_cpu(), m.now().0);
        self.with(|s| {
            let queue = &mut s.queues[cpu.index()];
            if now >= queue.slice_ends && !queue.ready.is_empty() {
                queue.resched = true;
            }
        });
    }

    fn fault(&self, at: VirtAddr, access: UserAccess) -> Result<(), Error> {
        let m = self.machine();
        m.other_kernel_work();
        match self.mm.loaded_space() {
            Some(space) => self.mm.space(space).fault(at, access),
            None => Err(Error::NoSuchSpace),
        }
    }

    fn run(&self, id: TaskId) {
        let m = self.machine();
        self.arrived();
        m.irqs_on();
        let now = m.now().0;
        let body = self.with(|s| {
            let task = &mut s.tasks[id.0 as usize];
            task.report.started = now;
            task.body.take()
        });
        let Some(body) = body else {
            loop {
                self.schedule();
                // Interrupts off between the look and the wait: no wake-up is lost in between.
                m.irqs_off();
                let cpu = m.this_cpu();
                let (power, resched) = self.with(|s| {
                    let queue = &s.queues[cpu.index()];
                    (queue.power, queue.resched)
                });
                if power != Power::On {
                    m.irqs_on();
                    self.be_off(cpu);
                } else if resched {
                    m.irqs_on();
                } else {
                    self.mm.enter_idle();
                    m.idle();
                    self.mm.leave_idle();
                }
            }
        };
        let result = body(self);
        let now = m.now().0;
        let last = self.with(|s| {
            let task = &mut s.tasks[id.0 as usize];
            task.state = State::Ended;
            task.report.ended = Some(now);
            task.report.result = result;
            let user = matches!(task.report.kind, TaskKind::User(_));
            s.users -= u32::from(user);
            user && (s.users == 0 || result.is_err())
        });
        if last {
            m.finished();
        }
        self.schedule();
    }

    fn wait(&self, key: WaitKey, ready: &mut dyn FnMut() -> bool) {
        if self.spins(key, ready) {
            return;
        }
        while !ready() {
            let me = self.current();
            self.with(|s| {
                s.tasks[me.0 as usize].state = State::Waiting;
                s.waiters.entry(key).or_default().push_back(me);
            });
            // Again, now that whoever makes it true would find this task.
            if ready() {
                self.with(|s| {
                    s.tasks[me.0 as usize].state = State::Runnable;
                    if let Some(waiters) = s.waiters.get_mut(&key) {
                        waiters.retain(|&w| w != me);
                    }
                });
                return;
            }
            self.schedule();
        }
    }

    fn wake(&self, key: WaitKey) {
        let m = self.machine();
        let here = m.this_cpu();
        let woken = self.with(|s| s.waiters.remove(&key)).unwrap_or_default();
        for task in woken {
            if let Some(cpu) = self.with(|s| s.ready(task, here, |cpu| m.node_of(cpu))) {
                m.kick(cpu);
            }
        }
    }

    fn out_of_memory(&self, short: &Shortage) -> bool {
        self.victims.get().is_some_and(|pick| pick(self, short))
    }

    fn cond_resched(&self) {
        if !self.machine().may_give_way() {
            return;
        }
        let cpu = self.machine().this_cpu();
        if self.with(|s| s.queues[cpu.index()].resched) {
            self.schedule();
        }
    }
}
