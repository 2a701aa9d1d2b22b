//! Where a script's CPU is: in which space, lazily, online.

use quietmm::Error;

use super::Task;
use crate::machine::Place;
use quietmm::platform::Cpus;

impl Task<'_> {
    /// Runs a program of the `n`th space from now on, outside of calls.
    pub fn run_in(&self, n: usize) {
        let id = self.space(n);
        self.must("switch_to", |mm| mm.space(id).switch_to());
        self.go_back();
    }

    /// The same, when the space may have ended.
    pub fn try_run_in(&self, n: usize) -> Result<(), Error> {
        let id = self.space(n);
        self.stop_program();
        self.call("switch_to", |mm| mm.space(id).switch_to())?;
        self.go_back();
        Ok(())
    }

    pub(crate) fn go_back(&self) {
        self.machine.cpu().user.set(true);
        self.machine.record(Place::Tlb(self.id), true);
        self.machine.judge_user(self.id);
    }

    pub(super) fn stop_program(&self) {
        self.machine.cpu().user.set(false);
        self.machine.record(Place::Tlb(self.id), true);
    }

    /// No program runs here any more, and the space stays loaded.
    pub fn go_lazy(&self) {
        self.stop_program();
        let _ = self.call("enter_lazy", |mm| {
            mm.enter_lazy();
            Ok(())
        });
    }

    /// Back to the program, if its space is still loaded; says whether it is.
    pub fn leave_lazy(&self) -> bool {
        let loaded = self.call("leave_lazy", |mm| Ok(mm.leave_lazy().is_some()));
        if loaded == Ok(true) {
            self.go_back();
        }
        loaded == Ok(true)
    }

    /// No space is loaded here any more.
    pub fn unload(&self) {
        self.stop_program();
        let _ = self.call("unload", |mm| {
            mm.unload();
            Ok(())
        });
    }

    /// This CPU goes offline: it hears nothing any more.
    pub fn go_offline(&self) {
        self.stop_program();
        self.must("cpu_offline", |mm| mm.cpu_offline());
        let cpu = self.machine.cpu();
        cpu.online.set(false);
        cpu.pending.set(false);
    }

    /// And comes back. Its TLB has kept what it had.
    pub fn come_online(&self) {
        let cpu = self.machine.cpu();
        cpu.leaves_or_comes.set(true);
        cpu.online.set(true);
        self.must("cpu_online", |mm| mm.cpu_online());
        cpu.leaves_or_comes.set(false);
        self.machine.judge_arrival(self.id);
    }

    /// This CPU halts in the idle loop: the kernel uses none of its addresses there.
    pub fn go_idle(&self) {
        self.machine.cpu().leaves_or_comes.set(true);
        self.deaf(|| {
            let _ = self.call("enter_idle", |mm| {
                mm.enter_idle();
                Ok(())
            });
        });
    }

    /// And goes on. Its TLB has kept what it had.
    pub fn leave_idle(&self) {
        let _ = self.call("leave_idle", |mm| {
            mm.leave_idle();
            Ok(())
        });
        self.machine.cpu().leaves_or_comes.set(false);
        self.machine.judge_arrival(self.id);
    }

    /// This CPU's timer fires here.
    pub fn tick(&self) {
        self.deaf(|| {
            let _ = self.call("tick", |mm| {
                mm.tick();
                Ok(())
            });
        });
    }

    /// A sweep begins, unless one is under way.
    pub fn begin_sweep(&self) {
        let _ = self.call("begin_sweep", |mm| {
            mm.begin_sweep();
            Ok(())
        });
    }

    /// The sweep that is under way ends, and another is whole: all CPUs take part. Before the scripts begin.
    pub fn sweep(&self) {
        for _ in 0..2 {
            self.begin_sweep();
            for id in 0..self.machine.setup().cpus {
                if self.machine.cpus[usize::from(id)].online.get() {
                    self.as_cpu(id, Task::tick);
                }
            }
            self.promise(self.mm().sweep_is_over(), "all have taken part");
        }
    }

    /// With interrupts off.
    pub fn deaf<R>(&self, work: impl FnOnce() -> R) -> R {
        let were_on = self.machine.irqs_off();
        let result = work();
        if were_on {
            self.machine.irqs_on();
        }
        result
    }

    /// Lets others go first; whoever waits for one of them does it between looks.
    pub fn wait(&self) {
        self.machine.pause(1);
    }

    /// The hardware forgets all that this CPU has cached, as it may.
    pub fn evict(&self) {
        self.machine.evict(self.id);
    }
}
