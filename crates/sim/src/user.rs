//! What programs see of the machine: user addresses through the TLB and the tables, page faults, and the kernel
//! work that is not modelled; the contexts of tasks.

use corosensei::{Coroutine, Yielder};
use quietmm::addr::{FrameNumber, Nanos};
use quietmm::platform::{Access, WaitKey};
use quietmm::{CpuId, Error, Platform, UserAccess, VirtAddr};
use quietmm_workloads::{Machine as Runs, Op, Shootdown, TaskId};

use crate::cpu::{Cpu, Mode};
use crate::order::NEVER;
use crate::sim::{Sim, Stop};

impl<const FAULTS: bool> Sim<'_, FAULTS> {
    /// Translates a user address, by the TLB or by a walk. Gives false for a page fault.
    pub(crate) fn translate(&self, at: VirtAddr, write: bool) -> bool {
        let cost = &self.machine.cost;
        let cpu = self.cpu();
        let (tag, page) = (cpu.tag.get(), at.page());
        let by = crate::truth::Use { cpu: cpu.id, now: cpu.now.get(), page, write };
        // A write through a cached clean entry walks the table again.
        if let Some((entry, hit)) = self.tlb(cpu).find(tag, page)
            && (!write || entry.dirty)
        {
            self.truth().judge(entry, &by, || self.leads_elsewhere(cpu, page, entry.frame));
            if write {
                self.truth().wrote(entry.frame, cpu.id);
            }
            if hit == crate::tlb::Hit::Second {
                self.advance(cost.tlb_l2_hit);
            }
            return true;
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
    pub(crate) fn missed(&self, cpu: &Cpu, tag: u16, page: quietmm::PageNumber) -> bool {
        self.tlb(cpu).flush_page(tag, page);
        false
    }

    /// Whether the tables lead to another frame than a cached entry does.
    pub(crate) fn leads_elsewhere(&self, cpu: &Cpu, page: quietmm::PageNumber, cached: FrameNumber) -> bool {
        self.walk(cpu.root.get(), page).is_some_and(|word| {
            // SAFETY: as in `translate`.
            let entry = quietmm::Entry(unsafe { *word });
            entry.is_present() && entry.frame() != cached
        })
    }

    /// The leaf entry's word on the way to a page, as the hardware finds it.
    pub(crate) fn walk(&self, root: FrameNumber, page: quietmm::PageNumber) -> Option<*mut u64> {
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

    /// `percent` of the kernel work that is not modelled, part of it with interrupts off.
    pub(crate) fn unmodelled(&self, percent: u32) {
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
}

impl<const FAULTS: bool> Runs for Sim<'_, FAULTS> {
    fn spawn(&self, task: TaskId) {
        let machine: *const () = std::ptr::from_ref(self).cast();
        let stack = self.stacks.borrow_mut().cut();
        let context = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            // SAFETY: contexts are resumed only by `go`, which borrows the machine.
            let sim = unsafe { &*machine.cast::<Sim<'_, FAULTS>>() };
            sim.yielders[task.0 as usize].set(yielder);
            sim.kernel().run(task);
        });
        // SAFETY: one host thread, and no other reference to the table exists. Its capacity was the number of tasks
        // from the start, which `Stacks::cut` enforces: nothing moves.
        let contexts = unsafe { &mut *self.contexts.get() };
        assert_eq!(contexts.len(), task.0 as usize, "tasks are numbered as they are made");
        contexts.push(Some(context));
    }

    fn switch(&self, to: TaskId) {
        self.advance(self.machine.cost.task_switch);
        let cpu = self.cpu();
        self.order().set(cpu.id, cpu.now.get());
        let from = cpu.task.replace(to);
        let yielder = self.yielders[from.0 as usize].get();
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

    fn hand_alarms(&self, to: CpuId) {
        let (from, to) = (self.cpu(), &self.cpus[to.index()]);
        from.alarm_at.set(NEVER);
        let mut alarms = from.alarms.take();
        if let Some(&(first, _)) = alarms.first() {
            to.alarms.borrow_mut().append(&mut alarms);
            self.post(to, &to.alarm_at, first);
        }
    }

    fn switch_off(&self) {
        // A deep sleep: the TLB keeps what it holds, and interrupts on their way are lost.
        let cpu = self.cpu();
        cpu.off.set(true);
        cpu.ipi_at.set(NEVER);
        cpu.kick_at.set(NEVER);
        let tick = cpu.tick_at.replace(NEVER);
        cpu.enter(Mode::Idle);
        while cpu.on_at.get() > cpu.now.get() {
            self.park(cpu.on_at.get());
        }
        cpu.on_at.set(NEVER);
        cpu.off.set(false);
        cpu.enter(Mode::System);
        let behind = cpu.now.get().saturating_sub(tick).div_ceil(self.tick_period);
        cpu.tick_at.set(tick + behind * self.tick_period);
        self.set_limit(cpu);
        self.advance(self.machine.cost.idle_wake);
    }

    fn switch_on(&self, cpu: CpuId) {
        self.advance(self.machine.cost.ipi_send);
        let (from, to) = (self.cpu(), &self.cpus[cpu.index()]);
        let at = from.now.get() + self.flight(from, to);
        to.on_at.set(at);
        if to.off.get() {
            self.rouse(to, at);
        }
    }

    fn kick(&self, cpu: CpuId) {
        let (from, to) = (self.cpu(), &self.cpus[cpu.index()]);
        self.advance(self.sending(from, to));
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
            result?;
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
    fn latency(&self, op: Op, pages: u64, ns: u64) {
        self.latencies.borrow_mut().add(op, pages, ns);
    }
    fn shootdown(&self, shootdown: &Shootdown) {
        self.latencies.borrow_mut().shot(shootdown);
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
