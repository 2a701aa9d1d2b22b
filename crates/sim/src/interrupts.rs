//! Interrupts: what they cost, when they arrive, and what a CPU does that takes one.

use std::cell::Cell;

use crate::cpu::{Cpu, Mode};
use crate::order::NEVER;
use crate::profile::Own;
use crate::sim::Sim;

impl<const FAULTS: bool> Sim<'_, FAULTS> {
    /// Takes the earliest due interrupt of this CPU.
    pub(crate) fn take_interrupt(&self) {
        let cpu = self.cpu();
        let cost = &self.machine.cost;
        // A CPU that does nothing but take interrupts gets nowhere, and must be seen to.
        self.count();
        cpu.irqs.set(false);
        self.takes_irqs(cpu, false);
        self.set_limit(cpu);
        let (mode, began) = (cpu.enter(Mode::System), cpu.now.get());
        let _interrupt = self.within(Own::Interrupt);
        if mode == Mode::Idle {
            let _wake = self.within(Own::Wake);
            let asked = cpu.ipi_at.get() <= cpu.now.get() && cpu.kick_at.get() > cpu.now.get();
            self.advance(if asked { cost.idle_answer() } else { cost.idle_wake });
        }
        self.advance(cost.irq_enter + cost.irq_work);
        let now = cpu.now.get();
        let answers = cpu.ipi_at.get() <= now;
        if answers {
            cpu.ipi_at.set(NEVER);
            if let Some(observed) = &self.observed {
                observed.taken(cpu.id, now);
            }
            self.kernel().interrupted();
        } else if cpu.kick_at.get() <= now {
            cpu.kick_at.set(NEVER);
            cpu.kicks.set(cpu.kicks.get() + 1);
            let _kick = self.within(Own::Kick);
            self.kernel().rescheduled();
        } else if cpu.alarm_at.get() <= now {
            let due = cpu.alarms.borrow_mut().pop_first();
            cpu.alarm_at.set(cpu.alarms.borrow().first().map_or(NEVER, |alarm| alarm.0));
            if let Some((_, key)) = due {
                let _alarm = self.within(Own::Alarm);
                if !self.command_ended(key) {
                    cpu.alarmed.set(cpu.alarmed.get() + 1);
                    self.kernel().wake(key);
                }
            }
        } else if cpu.tick_at.get() <= now {
            cpu.tick_at.set(cpu.tick_at.get() + self.tick_period);
            cpu.ticks.set(cpu.ticks.get() + 1);
            let _tick = self.within(Own::Tick);
            self.advance(cost.tick_work);
            self.kernel().ticked();
        }
        self.advance(cost.irq_exit);
        if answers {
            cpu.answering.set(cpu.answering.get() + (cpu.now.get() - began));
        }
        cpu.enter(mode);
        cpu.irqs.set(true);
        self.takes_irqs(cpu, true);
    }

    /// An interrupt arrives at `target` at `at`.
    pub(crate) fn post(&self, target: &Cpu, slot: &Cell<u64>, at: u64) {
        // Whoever waits for an answer to it waits for ever: a run in which somebody does so fails.
        if target.off.get() {
            target.lost.set(target.lost.get() + 1);
            return;
        }
        slot.set(slot.get().min(at));
        if target.irqs.get() {
            self.rouse(target, at);
        }
    }

    /// `target`, if it is parked, goes on at `at` at the latest.
    pub(crate) fn rouse(&self, target: &Cpu, at: u64) {
        if target.parked.get() {
            let at = at.max(target.now.get());
            if at < self.order().get(target.id) {
                self.order().set(target.id, at);
                self.horizon.set(self.horizon.get().min(at));
                self.set_limit(self.cpu());
            }
        }
    }

    pub(crate) fn flight(&self, from: &Cpu, to: &Cpu) -> u64 {
        self.flights[self.nodes_of(from, to)]
    }

    /// The sender's cost of an interrupt.
    pub(crate) fn sending(&self, from: &Cpu, to: &Cpu) -> u64 {
        self.sends[self.nodes_of(from, to)]
    }

    /// The place of a pair of nodes in a table of distances.
    fn nodes_of(&self, from: &Cpu, to: &Cpu) -> usize {
        let (a, b) = (self.machine.node_of(from.id.into()), self.machine.node_of(to.id.into()));
        (a * self.machine.nodes + b) as usize
    }
}
