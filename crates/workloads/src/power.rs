//! CPUs that are taken away from a running system, and brought back.
//!
//! Whoever takes a CPU away moves what waits there to others, and the CPU does the rest itself: it leaves the task that
//! it runs, and its idle task lets the core go, hands its alarms on and switches it off.

use quietmm::platform::WaitKey;
use quietmm::{CpuId, NodeId};

use crate::machine::{Kernel, Machine};
use crate::scheduler::Scheduler;
use crate::system::System;
use crate::task::{State, TaskId};

/// Whether a CPU runs tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Power {
    On,
    /// No task is placed here any more.
    Leaving,
    Off,
    /// Switched on, and not there yet.
    Coming,
}

/// What tasks wait for that take this CPU away or bring it back.
fn changed(cpu: CpuId) -> WaitKey {
    WaitKey::Own(1 << 48 | u64::from(cpu.0))
}

impl<M: Machine> System<'_, M> {
    /// Takes a CPU offline; its tasks go on elsewhere until it comes back. From any task, also of that CPU. Waits
    /// until the CPU is gone. False, at once, if it is not online or the last one that is.
    pub fn take_offline(&self, cpu: CpuId) -> bool {
        let m = self.machine();
        let before = self.with(|s| s.may_leave(cpu).then(|| s.leave(cpu)));
        let Some(before) = before else { return false };
        let here = m.this_cpu();
        while let Some(kick) = self.with(|s| s.move_one(cpu, here, |cpu| m.node_of(cpu))) {
            kick.into_iter().for_each(|cpu| m.kick(cpu));
        }
        if here != cpu {
            m.kick(cpu);
        }
        self.await_change(cpu, before);
        true
    }

    /// Brings a CPU back online, and with it the tasks whose home it is. From any task. Waits until it is there.
    /// False, at once, if it is not offline.
    pub fn bring_online(&self, cpu: CpuId) -> bool {
        let before = self.with(|s| {
            let queue = &mut s.queues[cpu.index()];
            let off = queue.power == Power::Off;
            off.then(|| {
                queue.power = Power::Coming;
                queue.changes
            })
        });
        let Some(before) = before else { return false };
        self.machine().switch_on(cpu);
        self.await_change(cpu, before);
        true
    }

    /// Whether a CPU runs tasks now.
    pub fn is_online(&self, cpu: CpuId) -> bool {
        self.with(|s| s.queues[cpu.index()].power == Power::On)
    }

    fn await_change(&self, cpu: CpuId, before: u32) {
        self.machine().wait(changed(cpu), &mut || self.with(|s| s.queues[cpu.index()].changes != before));
    }

    /// What the idle task of a CPU does that nobody wants any more. Interrupts are on. Returns when it is wanted again.
    pub(crate) fn be_off(&self, cpu: CpuId) {
        let m = self.machine();
        // Not online: it has never been on.
        self.mm.cpu_offline().unwrap_or_default();
        m.irqs_off();
        let was_on = self.with(|s| {
            let was_on = s.queues[cpu.index()].power == Power::Leaving;
            if was_on {
                // Under the lock: the heir cannot go before it has them, and then hands them on.
                m.hand_alarms(s.seat(cpu, |cpu| m.node_of(cpu)));
                s.queues[cpu.index()].power = Power::Off;
                s.queues[cpu.index()].changes += 1;
            }
            was_on
        });
        if was_on {
            self.wake(changed(cpu));
        }
        m.switch_off();
        self.mm.cpu_online().unwrap_or_default();
        self.with(|s| s.come(cpu));
        self.wake(changed(cpu));
        m.irqs_on();
    }
}

impl<M: Machine> Scheduler<'_, M> {
    fn is_on(&self, cpu: CpuId) -> bool {
        self.queues[cpu.index()].power == Power::On
    }

    /// Where a task of this home runs now: there, or on the next CPU of its node that is online, or on any.
    pub fn seat(&self, home: CpuId, node_of: impl Fn(CpuId) -> NodeId) -> CpuId {
        if self.is_on(home) {
            return home;
        }
        let cpus = self.queues.len() as u16;
        let on = || (1..cpus).map(|i| CpuId((home.0 + i) % cpus)).filter(|&cpu| self.is_on(cpu));
        on().find(|&cpu| node_of(cpu) == node_of(home)).or_else(|| on().next()).unwrap_or(home)
    }

    fn may_leave(&self, cpu: CpuId) -> bool {
        let others = (0..self.queues.len() as u16).map(CpuId).any(|other| other != cpu && self.is_on(other));
        self.is_on(cpu) && others
    }

    /// From now on nothing is placed there.
    fn leave(&mut self, cpu: CpuId) -> u32 {
        let queue = &mut self.queues[cpu.index()];
        queue.power = Power::Leaving;
        queue.resched = true;
        queue.changes
    }

    /// Moves one of the tasks that are ready on a CPU that leaves; returns the CPU to interrupt for it, if any. What runs
    /// there moves when the CPU leaves its context, and what waits when it is woken.
    fn move_one(
        &mut self,
        cpu: CpuId,
        here: CpuId,
        node_of: impl Fn(CpuId) -> NodeId,
    ) -> Option<Option<CpuId>> {
        // One whose context that CPU has not left yet is nobody else's: it is picked there, and moves after that.
        let free = |&id: &TaskId| !self.tasks[id.0 as usize].on_cpu;
        let at = self.queues[cpu.index()].ready.iter().position(free)?;
        let task = self.queues[cpu.index()].ready.remove(at)?;
        Some(self.place(task, here, node_of))
    }

    /// The CPU is there: its tasks come home, those that run elsewhere when they are next switched.
    fn come(&mut self, cpu: CpuId) {
        let queue = &mut self.queues[cpu.index()];
        queue.power = Power::On;
        queue.changes += 1;
        queue.resched = true;
        for id in (0..self.tasks.len() as u32).map(TaskId) {
            let task = &mut self.tasks[id.0 as usize];
            if task.home != cpu || task.state != State::Runnable || task.cpu == cpu {
                continue;
            }
            let from = task.cpu;
            if task.queued && !task.on_cpu {
                task.cpu = cpu;
                self.queues[from.index()].ready.retain(|&other| other != id);
                self.queues[cpu.index()].ready.push_back(id);
            } else if task.on_cpu {
                self.queues[from.index()].resched = true;
            }
        }
    }
}
