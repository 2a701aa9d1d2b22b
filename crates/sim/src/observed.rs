//! What a run keeps for whoever asks: where the CPUs' time goes, who interrupts whom, what each CPU does when.
//!
//! Whoever asks for nothing pays one test, where something could be kept. No figure changes by it.

use quietmm::event::Event;
use quietmm::platform::{Access, WaitKey};

use crate::cpu::Cpu;
use crate::profile::{Account, Now, Own, Place, Profile, Wait};
use crate::sim::Sim;
use crate::timeline::{Recorder, Timeline, Wanted};
use crate::traffic::{Tally, Traffic};

/// What is kept of a run.
#[derive(Default)]
pub(crate) struct Observed {
    account: Option<Account>,
    tally: Option<Tally>,
    recorder: Option<Recorder>,
}

impl Observed {
    fn enter(&self, now: Now, place: Place) {
        self.account.iter().for_each(|account| account.enter(now, place));
        self.recorder.iter().for_each(|recorder| recorder.enter(now, place));
    }

    fn leave(&self, now: Now, place: Place) {
        self.account.iter().for_each(|account| account.leave(now, place));
        self.recorder.iter().for_each(|recorder| recorder.leave(now, place));
    }

    fn irqs(&self, cpu: &Cpu, on: bool) {
        self.recorder.iter().for_each(|recorder| recorder.irqs(cpu.id, cpu.now.get(), on));
    }

    /// A task leaves its CPU.
    pub fn depart(&self, now: Now) {
        self.account.iter().for_each(|account| account.depart(now));
        self.recorder.iter().for_each(|recorder| recorder.depart(now));
    }

    /// A task is on its CPU again.
    pub fn arrive(&self, now: Now) {
        self.account.iter().for_each(|account| account.arrive(now));
    }

    /// A CPU spins for another one.
    pub fn spins(&self, now: Now) {
        self.recorder.iter().for_each(|recorder| recorder.waits(now));
    }

    /// A task begins to wait. Returns what it waited for before, for [`awake`](Self::awake): an interrupt may have come between.
    pub fn waits(&self, now: Now, key: WaitKey) -> Option<Wait> {
        self.recorder.iter().for_each(|recorder| recorder.begin_wait(now, key));
        self.account.as_ref().and_then(|account| account.begin_wait(now.task, key))
    }

    /// A task has waited.
    pub fn awake(&self, now: Now, key: WaitKey, before: Option<Wait>) {
        self.recorder.iter().for_each(|recorder| recorder.end_wait(now, key));
        self.account.iter().for_each(|account| account.end_wait(now.task, before));
    }

    /// An interrupt is sent.
    pub fn sent(&self, from: u16, to: u16, ps: u64) {
        self.recorder.iter().for_each(|recorder| recorder.sent(from, to, ps));
        self.tally.iter().for_each(|tally| tally.sent(from, to));
    }

    /// It is taken.
    pub fn taken(&self, cpu: u16, ps: u64) {
        self.recorder.iter().for_each(|recorder| recorder.taken(cpu, ps));
    }

    /// What was on its way to a CPU is lost: it goes offline.
    pub fn lost(&self, cpu: u16) {
        self.recorder.iter().for_each(|recorder| recorder.lost(cpu));
    }

    /// Memory that CPUs share is read or written.
    pub fn touched(&self, now: Now, at: *const u8, access: Access) {
        self.recorder.iter().for_each(|recorder| recorder.touched(now, at, access));
    }

    /// Something happens in the core.
    pub fn observe(&self, event: &Event, now: Now) {
        self.tally.iter().for_each(|tally| tally.observe(event, now.cpu, now.ps));
        self.recorder.iter().for_each(|recorder| recorder.observe(event, now));
    }
}

impl<'w, const FAULTS: bool> Sim<'w, FAULTS> {
    /// From the start on, keeps an account of where the CPUs' time goes. Before the machine does anything.
    pub fn keep_profile(&mut self) {
        self.observed.get_or_insert_default().account =
            Some(Account::new(self.cpus.len(), self.yielders.len()));
    }

    /// Where the CPUs' time went, if an account was kept: up to the latest of their clocks.
    pub fn profile(&self) -> Option<Profile> {
        Some(self.observed.as_ref()?.account.as_ref()?.close(self.everywhere()))
    }

    /// From the start on, keeps who interrupts whom and what memory does. Before the machine does anything.
    pub fn keep_traffic(&mut self) {
        self.observed.get_or_insert_default().tally = Some(Tally::new(&self.machine));
    }

    /// Who interrupted whom, if that was kept.
    pub fn traffic(&self) -> Option<Traffic> {
        Some(self.observed.as_ref()?.tally.as_ref()?.close())
    }

    /// From the start on, keeps what each CPU does when. Before the machine does anything.
    pub fn keep_timeline(&mut self, wanted: Wanted) {
        let recorder = Recorder::new(wanted, self.cpus.len(), self.yielders.len());
        self.observed.get_or_insert_default().recorder = Some(recorder);
    }

    /// Each event is looked at.
    pub(crate) fn has_timeline(&self) -> bool {
        self.observed.as_ref().is_some_and(|observed| observed.recorder.is_some())
    }

    /// What each CPU did, if that was kept; once, since it is taken out. `free` pages are free now, and so the tasks are called.
    pub fn timeline(&self, free: u64, tasks: Vec<String>) -> Option<Timeline> {
        self.observed.as_ref()?.recorder.as_ref()?.close(self.everywhere(), free, tasks)
    }

    fn everywhere(&self) -> impl Iterator<Item = Now> {
        self.cpus.iter().map(|cpu| Now { cpu: cpu.id, task: cpu.task.get().0, ps: cpu.now.get() })
    }

    /// This CPU, its task and its time.
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
        if let Some(observed) = &self.observed {
            observed.enter(self.here(), place);
        }
    }

    #[inline]
    pub(crate) fn leaves(&self, place: Place) {
        if let Some(observed) = &self.observed {
            observed.leave(self.here(), place);
        }
    }

    /// This CPU takes interrupts from now on, or takes none.
    #[inline]
    pub(crate) fn takes_irqs(&self, cpu: &Cpu, on: bool) {
        if let Some(observed) = &self.observed {
            observed.irqs(cpu, on);
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
