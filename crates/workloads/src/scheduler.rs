//! Run queues: which task a CPU runs next, and where one goes that becomes ready.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use quietmm::platform::WaitKey;
use quietmm::{CpuId, NodeId};

use crate::machine::Machine;
use crate::power::Power;
use crate::task::{State, Task, TaskId, TaskKind, TaskReport};

/// One CPU's share of the scheduler.
pub(crate) struct Queue {
    pub power: Power,
    /// How often the CPU has gone or come.
    pub changes: u32,
    pub current: TaskId,
    pub ready: VecDeque<TaskId>,
    /// When the current task's slice ends, in nanoseconds.
    pub slice_ends: u64,
    /// Somebody else should run here soon.
    pub resched: bool,
    /// The task whose context this CPU has just left.
    pub left: Option<TaskId>,
}

pub(crate) struct Scheduler<'p, M: Machine> {
    pub tasks: Vec<Task<'p, M>>,
    pub queues: Vec<Queue>,
    pub waiters: BTreeMap<WaitKey, VecDeque<TaskId>>,
    pub users: u32,
    /// Some tasks may change CPUs.
    pub roaming: bool,
    /// For each node the CPU that took a kernel task last.
    pub last_helper: Vec<u16>,
}

impl Queue {
    pub fn new(cpu: CpuId, online: bool) -> Self {
        let power = if online { Power::On } else { Power::Off };
        let current = TaskId(cpu.0.into());
        Queue { power, changes: 0, current, ready: VecDeque::new(), slice_ends: 0, resched: true, left: None }
    }
}

impl<M: Machine> Scheduler<'_, M> {
    pub fn reports(&self) -> Vec<TaskReport> {
        let users = self.tasks.iter().filter(|t| t.report.kind.space().is_some());
        users.map(|t| t.report.clone()).collect()
    }

    pub fn names(&self) -> Vec<String> {
        self.tasks.iter().map(|task| task.report.name.clone()).collect()
    }

    /// The task that this CPU runs next, and whether that is a switch.
    pub fn pick(
        &mut self,
        cpu: CpuId,
        now: u64,
        slice: u64,
        node_of: impl Fn(CpuId) -> NodeId,
    ) -> (TaskId, TaskKind, bool) {
        let idle = TaskId(cpu.0.into());
        let old = self.queues[cpu.index()].current;
        let task = &self.tasks[old.0 as usize];
        let runs = task.state == State::Runnable && old != idle;
        // One that belongs elsewhere now is placed there once this CPU has left its context.
        let kernel = matches!(task.report.kind, TaskKind::Kernel(_));
        let here = self.queues[cpu.index()].power == Power::On;
        let stays = runs && here && (kernel || self.seat(task.home, &node_of) == cpu);
        let queue = &mut self.queues[cpu.index()];
        queue.resched = false;
        // A kernel task that gives way is placed again once this CPU has left its context.
        if stays && (queue.ready.is_empty() || !kernel) {
            queue.ready.push_back(old);
            self.tasks[old.0 as usize].queued = true;
        }
        let next = queue.ready.pop_front().or_else(|| self.pull(cpu, here)).unwrap_or(idle);
        let visits = next != idle && self.seat(self.tasks[next.0 as usize].home, &node_of) != cpu;
        let queue = &mut self.queues[cpu.index()];
        queue.resched = visits && (!here || self.tasks[next.0 as usize].report.kind.space().is_some());
        self.tasks[next.0 as usize].queued = false;
        queue.slice_ends = now + slice;
        queue.current = next;
        if next != old {
            queue.left = Some(old);
            self.tasks[next.0 as usize].on_cpu = true;
            self.tasks[next.0 as usize].cpu = cpu;
        }
        (next, self.tasks[next.0 as usize].report.kind, next != old)
    }

    /// A roaming task that is ready on the CPU with most such, for one that has nothing to do.
    fn pull(&mut self, to: CpuId, on: bool) -> Option<TaskId> {
        if !self.roaming || !on {
            return None;
        }
        let tasks = &self.tasks;
        // One that stands in a queue may not have left its CPU's context yet.
        let roams = |id: &&TaskId| {
            let task = &tasks[id.0 as usize];
            task.roams && !task.on_cpu && task.within.has(to)
        };
        let of = |queue: &Queue| queue.ready.iter().filter(roams).count();
        let most =
            self.queues.iter().map(of).enumerate().max_by_key(|&(cpu, count)| (count, usize::MAX - cpu));
        let from = most.filter(|&(_, count)| count > 0)?.0;
        let at = self.queues[from].ready.iter().rposition(|id| roams(&id))?;
        let id = self.queues[from].ready.remove(at)?;
        let task = &mut self.tasks[id.0 as usize];
        (task.home, task.cpu) = (to, to);
        Some(id)
    }

    /// Where a roaming task goes that becomes ready: to its own CPU, unless that is busy and another is not.
    fn roam(&mut self, id: TaskId) {
        let task = &self.tasks[id.0 as usize];
        let idle = |cpu: usize| {
            let queue = &self.queues[cpu];
            task.within.has(CpuId(cpu as u16))
                && queue.power == Power::On
                && queue.current == TaskId(cpu as u32)
                && queue.ready.is_empty()
        };
        if !task.roams || idle(task.home.index()) {
            return;
        }
        let cpus = self.queues.len();
        let home = task.home.index();
        if let Some(cpu) = (1..cpus).map(|step| (home + step) % cpus).find(|&cpu| idle(cpu)) {
            self.tasks[id.0 as usize].home = CpuId(cpu as u16);
        }
    }

    /// Makes a waiting task ready; returns the CPU to interrupt, if it is not this one.
    pub fn ready(&mut self, id: TaskId, here: CpuId, node_of: impl Fn(CpuId) -> NodeId) -> Option<CpuId> {
        let task = &mut self.tasks[id.0 as usize];
        if task.state != State::Waiting {
            return None;
        }
        task.state = State::Runnable;
        // One that has not left its CPU yet finds itself runnable when it tries to, or, if it has begun to,
        // is placed by whoever comes after it (`arrived`).
        if task.on_cpu { None } else { self.place(id, here, node_of) }
    }

    /// Puts a task that is on no CPU into a queue; returns the CPU to interrupt, if it is not this one.
    pub fn place(&mut self, id: TaskId, here: CpuId, node_of: impl Fn(CpuId) -> NodeId) -> Option<CpuId> {
        self.roam(id);
        let cpus = self.queues.len() as u16;
        let home = self.tasks[id.0 as usize].home;
        let seat = self.seat(home, &node_of);
        let task = &mut self.tasks[id.0 as usize];
        task.cpu = seat;
        if let TaskKind::Kernel(node) = task.report.kind {
            // An idle CPU of the node if there is one, else the node's CPUs in turn.
            let idle = |c: &CpuId| self.queues[c.index()].current == TaskId(c.0.into());
            let last = &mut self.last_helper[node.0 as usize];
            let from = *last;
            let on = |c: &CpuId| self.queues[c.index()].power == Power::On;
            let all = (1..=cpus).map(|i| CpuId((from + i) % cpus));
            let mut mine = all.filter(|&c| node_of(c) == node).filter(on).peekable();
            let first = mine.peek().copied();
            if let Some(cpu) = mine.find(idle).or(first) {
                task.cpu = cpu;
                *last = cpu.0;
            }
        }
        let cpu = task.cpu;
        let queue = &mut self.queues[cpu.index()];
        // Who was woken has waited: it goes first.
        queue.ready.push_front(id);
        self.tasks[id.0 as usize].queued = true;
        queue.resched = true;
        (cpu != here).then_some(cpu)
    }
}
