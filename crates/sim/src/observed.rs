//! What a run keeps for whoever asks: where the CPUs' time goes, who interrupts whom, what each CPU does when.
//!
//! Who does not ask pays a test for each, where something could be kept. No figure changes by it.

use crate::cpu::Cpu;
use crate::profile::{Account, Now, Own, Place, Profile};
use crate::sim::Sim;
use crate::timeline::{Recorder, Timeline, Wanted};
use crate::traffic::{Tally, Traffic};

impl<'w, const FAULTS: bool> Sim<'w, FAULTS> {
    /// From the start on, keeps an account of where the CPUs' time goes. Before the machine does anything.
    pub fn keep_profile(&mut self) {
        self.account = Some(Account::new(self.cpus.len(), self.yielders.len()));
    }

    /// Where the CPUs' time went, if an account was kept: up to the latest of their clocks.
    pub fn profile(&self) -> Option<Profile> {
        let now = |cpu: &Cpu| Now { cpu: cpu.id, task: cpu.task.get().0, ps: cpu.now.get() };
        self.account.as_ref().map(|account| account.close(self.cpus.iter().map(now)))
    }

    /// From the start on, keeps who interrupts whom and what memory does. Before the machine does anything.
    pub fn keep_traffic(&mut self) {
        self.kept = Some(Tally::new(&self.machine));
    }

    /// Who interrupted whom, if that was kept.
    pub fn traffic(&self) -> Option<Traffic> {
        self.kept.as_ref().map(Tally::close)
    }

    /// From the start on, keeps what each CPU does when. Before the machine does anything.
    pub fn keep_timeline(&mut self, wanted: Wanted) {
        self.timeline = Some(Recorder::new(wanted, self.cpus.len(), self.yielders.len()));
    }

    /// What each CPU did, if that was kept; once, since it is taken out. `free` pages are free now, and so the tasks are called.
    pub fn timeline(&self, free: u64, tasks: Vec<String>) -> Option<Timeline> {
        let now = |cpu: &Cpu| Now { cpu: cpu.id, task: cpu.task.get().0, ps: cpu.now.get() };
        self.timeline.as_ref()?.close(self.cpus.iter().map(now), free, tasks)
    }

    /// This CPU, its task and its time, for the account.
    #[inline]
    pub(crate) fn here(&self) -> Now {
        let cpu = self.cpu();
        Now { cpu: cpu.id, task: cpu.task.get().0, ps: cpu.now.get() }
    }

    /// Time is charged to `own` until the guard is dropped.
    #[inline]
    pub(crate) fn within(&self, own: Own) -> Within<'_, 'w, FAULTS> {
        self.enters(Place::Own(own));
        Within { sim: self, own }
    }

    #[inline]
    pub(crate) fn enters(&self, place: Place) {
        if let Some(account) = &self.account {
            account.enter(self.here(), place);
        }
        if let Some(timeline) = &self.timeline {
            timeline.enter(self.here(), place);
        }
    }

    #[inline]
    pub(crate) fn leaves(&self, place: Place) {
        if let Some(account) = &self.account {
            account.leave(self.here(), place);
        }
        if let Some(timeline) = &self.timeline {
            timeline.leave(self.here(), place);
        }
    }

    /// This CPU takes interrupts from now on, or takes none.
    #[inline]
    pub(crate) fn takes_irqs(&self, cpu: &Cpu, on: bool) {
        if let Some(timeline) = &self.timeline {
            timeline.irqs(cpu.id, cpu.now.get(), on);
        }
    }
}

/// See [`Sim::within`].
#[must_use = "a place is left where this is dropped"]
pub(crate) struct Within<'s, 'w, const FAULTS: bool> {
    sim: &'s Sim<'w, FAULTS>,
    own: Own,
}

impl<const FAULTS: bool> Drop for Within<'_, '_, FAULTS> {
    #[inline]
    fn drop(&mut self) {
        self.sim.leaves(Place::Own(self.own));
    }
}
