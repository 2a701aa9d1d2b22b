//! What programs and the kernel see of the machine: addresses through the TLB and the tables, page faults, and the kernel
//! work that is not modelled; the contexts of tasks.

use corosensei::{Coroutine, Yielder};
use quietmm::addr::{FrameNumber, Nanos};
use quietmm::platform::{Access as Touch, Cpus, WaitKey};
use quietmm::{Architecture, CpuId, Entry, Error, NodeId, NodeSet, PageNumber, UserAccess, VirtAddr};
use quietmm_hardware::walk::{bits_of, frame_for};
use quietmm_hardware::{Access, Found, Rules, walk};
use quietmm_workloads::{Machine as Runs, Op, Pace, Shootdown, Tally, TaskId};

use crate::cpu::{Cpu, Mode};
use crate::left::Left;
use crate::order::NEVER;
use crate::profile::Own;
use crate::sim::{Sim, Stop};
use crate::tlb::{GLOBAL, Hit, Translation};
use crate::truth::Use;

fn used_by(cpu: &Cpu, page: PageNumber, write: bool) -> Use {
    Use { cpu: cpu.id, now: cpu.now.get(), page, write }
}

/// Whose address is translated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// A program's: by the space that is loaded.
    User,
    /// The kernel's: the same in all spaces, and its entries are global.
    Kernel,
}

impl Whose {
    /// The tag of its entries in the TLB.
    fn tag(self, cpu: &Cpu) -> u16 {
        if self == Whose::User { cpu.tag.get() } else { GLOBAL }
    }

    fn access(self, access: UserAccess) -> Access {
        let (write, fetch) = (access == UserAccess::Write, access == UserAccess::Execute);
        Access { user: self == Whose::User, write, fetch }
    }
}

/// Where a walk of the tables ends.
#[derive(Clone, Copy)]
struct Leaf {
    /// The entry's word.
    word: *mut u64,
    /// The table that it is in.
    table: FrameNumber,
    /// That table's level: 1 for a large page.
    level: u32,
    architecture: Architecture,
}

impl Leaf {
    /// What the entry says now.
    fn read(self) -> Entry {
        // SAFETY: an aligned word of a table frame in the machine's memory; one host thread.
        Entry::decode(unsafe { *self.word }, self.architecture, self.level)
    }

    /// Sets bits, as the hardware does.
    fn set(self, bits: u64) {
        // SAFETY: as in `read`.
        unsafe { *self.word |= bits_of(self.architecture, bits) };
    }

    /// It stands for a large page, one level up.
    fn is_large(self) -> bool {
        self.level > 0
    }

    /// The frame that an entry leads to; of a large page the first.
    fn head(self, entry: Entry) -> FrameNumber {
        frame_for(entry, self.is_large(), PageNumber(0))
    }

    /// The frame that an entry leads to for one small page.
    fn frame(self, entry: Entry, page: PageNumber) -> FrameNumber {
        frame_for(entry, self.is_large(), page)
    }
}

impl<const FAULTS: bool> Sim<'_, FAULTS> {
    /// Translates a user address, by the TLB or by a walk, and does `each` to the frame in the same step. Gives
    /// nothing for a page fault.
    ///
    /// An entry's rights count, not those of the tables above: the core gives all rights there.
    pub(crate) fn translate<R>(
        &self,
        at: VirtAddr,
        access: UserAccess,
        each: impl Fn(FrameNumber) -> R,
    ) -> Option<R> {
        self.look_up(Whose::User, at.page(), access, each)
    }

    /// The same for any address.
    #[inline]
    fn look_up<R>(
        &self,
        whose: Whose,
        page: PageNumber,
        access: UserAccess,
        each: impl Fn(FrameNumber) -> R,
    ) -> Option<R> {
        let (cost, write) = (&self.machine.cost, access == UserAccess::Write);
        let cpu = self.cpu();
        let tag = whose.tag(cpu);
        if let Some((to, hit)) = self.tlb(cpu).find(tag, page)
            && (!write || self.may_write(cpu, page, &to))
            && (access != UserAccess::Execute || to.executable)
        {
            self.uses(cpu, whose, page, &to, write);
            let result = each(to.frame);
            if hit == Hit::Second {
                self.advance(cost.tlb_l2_hit);
            }
            return Some(result);
        }
        let remembered = self.tlb(cpu).walks.find(tag, page).is_some();
        let leaf = self.leaf(cpu, whose, page);
        let mut steps = 4;
        if remembered {
            steps = 1;
        } else if let Some(leaf) = leaf {
            if leaf.is_large() {
                steps = 3;
            } else {
                self.tlb(cpu).walks.remember(tag, page, leaf.table, self.truth());
            }
        }
        let line = leaf.map_or(0, |leaf| self.line(cpu, leaf.word.cast(), Touch::Read));
        self.advance(cost.walk_step * steps + line);
        // Time has passed: the walk that counts is the one now, in one step with the fill.
        let cpu = self.cpu();
        let tag = whose.tag(cpu);
        if let Some((table, since)) = self.tlb(cpu).walks.find(tag, page) {
            self.truth().judge_walk(table, since, &used_by(cpu, page, write));
        }
        let Some(leaf) = self.leaf(cpu, whose, page) else { return self.missed(cpu, tag, page) };
        let entry = leaf.read();
        let rules = Rules { architecture: self.machine.architecture, clean_write_walks: true };
        let Found::Use { sets } = rules.found(entry, whose.access(access)) else {
            return self.missed(cpu, tag, page);
        };
        leaf.set(sets);
        let to = Translation {
            frame: leaf.head(entry),
            filled: self.truth().now(),
            writable: entry.has(Entry::WRITABLE),
            executable: !entry.has(Entry::NO_EXECUTE),
            dirty: write || entry.has(Entry::DIRTY),
            revoked: false,
        };
        if leaf.is_large() {
            self.tlb(cpu).fill_large(tag, page, to);
        } else {
            self.tlb(cpu).fill(tag, page, to);
        }
        let to = Translation { frame: leaf.frame(entry, page), ..to };
        self.uses(cpu, whose, page, &to, write);
        cpu.refills.set(cpu.refills.get() + 1);
        Some(each(to.frame))
    }

    /// Whether a write may go through a cached entry; if not, the table is walked again. It is if the entry is
    /// clean: the table hears of the write, or the CPU of what became of the table (`clean_write_walks`).
    fn may_write(&self, cpu: &Cpu, page: PageNumber, to: &Translation) -> bool {
        if !to.writable || to.dirty || self.machine.guarantees.clean_write_walks {
            return to.writable && to.dirty;
        }
        // Without the guarantee the CPU writes at once, and nobody but its own entry hears of it.
        self.tlb(cpu).set_dirty(cpu.tag.get(), page);
        true
    }

    /// A page is used through an entry: the account judges it.
    fn uses(&self, cpu: &Cpu, whose: Whose, page: PageNumber, to: &Translation, write: bool) {
        let by = used_by(cpu, page, write);
        if whose == Whose::Kernel {
            self.truth().judge_kernel(to, &by, || self.leads_to(cpu, page));
            return;
        }
        self.truth().judge(to, &by, || self.leads_to(cpu, page).is_some_and(|now| now != to.frame));
        if write {
            self.truth().wrote(to.frame, cpu.id);
        }
    }

    /// The hardware drops what it had cached of a page for which it faults.
    fn missed<R>(&self, cpu: &Cpu, tag: u16, page: PageNumber) -> Option<R> {
        self.drop_page(cpu, tag, page);
        None
    }

    /// INVLPG: an entry of the TLB, and all that the walker remembers.
    pub(crate) fn drop_page(&self, cpu: &Cpu, tag: u16, page: PageNumber) {
        self.tlb(cpu).flush_page(tag, page);
        self.tlb(cpu).walks.forget(self.truth());
    }

    /// All entries of a tag, and all that the walker remembers.
    pub(crate) fn drop_tag(&self, cpu: &Cpu, tag: u16) {
        self.tlb(cpu).flush_tag(tag);
        self.tlb(cpu).walks.forget(self.truth());
    }

    /// The frame that the tables lead to now, if they do.
    fn leads_to(&self, cpu: &Cpu, page: PageNumber) -> Option<FrameNumber> {
        let leaf = self.walk(self.root(cpu), page)?;
        let entry = leaf.read();
        entry.is_present().then(|| leaf.frame(entry, page))
    }

    /// The top table that a CPU's hardware works with.
    fn root(&self, cpu: &Cpu) -> FrameNumber {
        let loaded = cpu.root.get();
        if loaded == FrameNumber::NONE { self.kernel_root.get() } else { loaded }
    }

    /// The leaf entry on the way to a page, as this CPU finds it: in the table that it remembers, or from the root.
    fn leaf(&self, cpu: &Cpu, whose: Whose, page: PageNumber) -> Option<Leaf> {
        let architecture = self.machine.architecture;
        match self.tlb(cpu).walks.find(whose.tag(cpu), page) {
            Some((table, _)) => {
                let word = self.entry_word(table, page.index(0))?;
                Some(Leaf { word, table, level: 0, architecture })
            }
            None => self.walk(self.root(cpu), page),
        }
    }

    /// The leaf entry on the way to a page, from the root.
    fn walk(&self, root: FrameNumber, page: PageNumber) -> Option<Leaf> {
        let architecture = self.machine.architecture;
        let leaf = walk(architecture, root, page, |_, table, index| {
            // SAFETY: as in `Leaf::read`.
            self.entry_word(table, index).map(|word| unsafe { *word })
        })?;
        let word = self.entry_word(leaf.table, leaf.index)?;
        Some(Leaf { word, table: leaf.table, level: leaf.level, architecture })
    }

    /// Where an entry of a table is; nowhere outside the machine's memory.
    #[inline]
    fn entry_word(&self, table: FrameNumber, index: usize) -> Option<*mut u64> {
        let at = table.phys().0 + 8 * index as u64;
        // SAFETY: inside the machine's memory.
        (at + 8 <= self.bytes).then(|| unsafe { self.base.add(at as usize) }.cast())
    }

    /// A frame is about to be freed: if it is a page table, no CPU may be able to walk it (INV-9), lazy or not.
    /// What is remembered under a tag that is not in use cannot be walked: its next load decides.
    pub(crate) fn judge_freed_table(&self, n: FrameNumber) {
        if !self.truth().is_walkable(n) {
            return;
        }
        let by = self.cpu();
        for cpu in &self.cpus {
            let how = if cpu.root.get() == n {
                "has loaded"
            } else if self.tlb(cpu).walks.leads_to(cpu.tag.get(), n) {
                "remembers"
            } else {
                continue;
            };
            return self.truth().freed_under(n, by.id, by.now.get(), cpu.id, how);
        }
    }

    /// The kernel resolves a page fault of the task that runs here.
    fn page_fault(&self, at: VirtAddr, access: UserAccess) -> Result<(), Error> {
        let _trap = self.within(Own::Trap);
        self.cpu().enter(Mode::System);
        self.advance(self.machine.cost.trap_enter);
        let result = self.kernel().fault(at, access);
        self.advance(self.machine.cost.trap_exit);
        result?;
        self.cpu().enter(Mode::User);
        Ok(())
    }

    /// One access to a word.
    fn word<R>(&self, at: VirtAddr, access: UserAccess, each: impl Fn(FrameNumber) -> R) -> Result<R, Error> {
        let _user = self.within(Own::User);
        self.cpu().enter(Mode::User);
        loop {
            if let Some((cost, result)) = self.translate(at, access, |n| (self.access_cost(n), each(n))) {
                self.work_through(cost);
                self.cpu().enter(Mode::System);
                return Ok(result);
            }
            self.page_fault(at, access)?;
        }
    }

    /// What one access to a frame costs.
    #[inline]
    fn access_cost(&self, n: FrameNumber) -> u64 {
        self.slow(n).map_or(self.machine.cost.user_access, |slow| slow.user_access)
    }

    /// Does some of what is `left` of accesses, which is counted as if all were to fast memory, where one costs so much.
    fn work_there(&self, left: &mut u64, cost: u64) {
        let fast = self.machine.cost.user_access;
        if cost == fast {
            self.work(left);
            return;
        }
        let times =
            |time: u64, a: u64, b: u64| (u128::from(time) * u128::from(a) / u128::from(b.max(1))) as u64;
        let mut there = times(*left, cost, fast);
        self.work(&mut there);
        *left = times(there, fast, cost);
    }

    /// `percent` of the kernel work that is not modelled, part of it with interrupts off.
    pub(crate) fn unmodelled(&self, percent: u32) {
        let _work = self.within(Own::OtherWork);
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
        let switch = self.within(Own::Switch);
        self.advance(self.machine.cost.task_switch);
        drop(switch);
        let cpu = self.cpu();
        self.order().set(cpu.id, cpu.now.get());
        if let Some(observed) = &self.observed {
            observed.depart(self.here());
        }
        let from = cpu.task.replace(to);
        let yielder = self.yielders[from.0 as usize].get();
        // SAFETY: as in `give_way`: it is this context's own.
        unsafe { &*yielder }.suspend(());
        if let Some(observed) = &self.observed {
            observed.arrive(self.here());
        }
    }

    fn idle(&self) {
        let cpu = self.cpu();
        cpu.enter(Mode::Idle);
        let nothing = self.within(Own::Idle);
        // An idle CPU has no tick.
        let tick = cpu.tick_at.replace(NEVER);
        cpu.irqs.set(true);
        self.takes_irqs(cpu, true);
        self.park(NEVER);
        if cpu.next_irq() <= cpu.now.get() {
            self.take_interrupt();
        }
        drop(nothing);
        cpu.enter(Mode::System);
        let behind = cpu.now.get().saturating_sub(tick).div_ceil(self.tick_period);
        cpu.tick_at.set(tick + behind * self.tick_period);
        cpu.stalls.skip(cpu.now.get());
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
        if let Some(observed) = &self.observed {
            observed.lost(cpu.id);
        }
        let tick = cpu.tick_at.replace(NEVER);
        cpu.enter(Mode::Idle);
        let off = self.within(Own::Off);
        while cpu.on_at.get() > cpu.now.get() {
            self.park(cpu.on_at.get());
        }
        cpu.on_at.set(NEVER);
        cpu.off.set(false);
        drop(off);
        cpu.enter(Mode::System);
        let behind = cpu.now.get().saturating_sub(tick).div_ceil(self.tick_period);
        cpu.tick_at.set(tick + behind * self.tick_period);
        self.set_limit(cpu);
        let _wake = self.within(Own::Wake);
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
        let mut left = u64::from(count).saturating_mul(self.machine.cost.user_access);
        let _user = self.within(Own::User);
        self.cpu().enter(Mode::User);
        while left > 0 {
            let Some(cost) = self.translate(at, access, |n| self.access_cost(n)) else {
                self.page_fault(at, access)?;
                continue;
            };
            self.work_there(&mut left, cost);
            // What is used for a while is used until its end.
            let cpu = self.cpu();
            if let Some((to, _)) = self.tlb(cpu).find(cpu.tag.get(), at.page()) {
                let by = used_by(cpu, at.page(), write);
                let elsewhere = || self.leads_to(cpu, at.page()).is_some_and(|now| now != to.frame);
                self.truth().judge(&to, &by, elsewhere);
            }
        }
        self.cpu().enter(Mode::System);
        Ok(())
    }

    fn kernel_access(&self, at: VirtAddr, count: u32, access: Touch) -> Result<(), Error> {
        let (page, write) = (at.page(), access != Touch::Read);
        let access = if write { UserAccess::Write } else { UserAccess::Read };
        let mut left = u64::from(count).saturating_mul(self.machine.cost.user_access);
        let _access = self.within(Own::KernelAccess);
        while left > 0 {
            let cost = self.look_up(Whose::Kernel, page, access, |n| self.access_cost(n));
            self.work_there(&mut left, cost.ok_or(Error::NotMapped(page))?);
            // What is used for a while is used until its end.
            let cpu = self.cpu();
            if let Some((to, _)) = self.tlb(cpu).find(GLOBAL, page) {
                self.truth().judge_kernel(&to, &used_by(cpu, page, write), || self.leads_to(cpu, page));
            }
        }
        Ok(())
    }

    fn store(&self, at: VirtAddr, value: u64) -> Result<(), Error> {
        self.word(at, UserAccess::Write, |frame| self.set_content(frame, value))
    }

    fn load(&self, at: VirtAddr) -> Result<u64, Error> {
        self.word(at, UserAccess::Read, |frame| self.content(frame))
    }

    fn compute(&self, count: u32) {
        let _user = self.within(Own::User);
        self.cpu().enter(Mode::User);
        self.work_through(u64::from(count).saturating_mul(self.machine.cost.user_access));
        self.cpu().enter(Mode::System);
    }

    fn run_for(&self, ns: u64) {
        let _user = self.within(Own::User);
        self.cpu().enter(Mode::User);
        self.work_through(ns * 1000);
        self.cpu().enter(Mode::System);
    }

    fn work_for(&self, ns: u64) {
        let _work = self.within(Own::OtherWork);
        self.work_through(ns * 1000);
    }

    fn answering(&self) -> u64 {
        self.cpu().answering.get() / 1000
    }

    fn answer(&self) -> u64 {
        let cost = &self.machine.cost;
        (cost.irq_enter + cost.irq_work + cost.invlpg + cost.irq_exit) / 1000
    }

    fn lock_spin(&self) -> u64 {
        self.machine.cost.lock_spin / 1000
    }

    fn asking(&self) -> u64 {
        self.cpu().asking.get() / 1000
    }

    fn ask(&self, idle: bool) -> u64 {
        let cost = &self.machine.cost;
        let answer = cost.irq_enter + cost.irq_work + cost.invlpg + 2 * cost.line_local;
        (cost.ipi_send + cost.ipi_flight_local + answer + if idle { cost.idle_answer() } else { 0 }) / 1000
    }

    fn other_kernel_work(&self) {
        self.unmodelled(100 - self.machine.cost.other_kernel_work_goes);
    }

    fn alarm(&self, at: Nanos, key: WaitKey) {
        let cpu = self.cpu();
        let at = at.0.saturating_mul(1000);
        cpu.alarms.borrow_mut().insert((at, key));
        cpu.alarm_at.set(cpu.alarm_at.get().min(at));
        self.set_limit(cpu);
    }
    fn wrong_content(&self, story: &str) {
        self.truth().found_wrong(&format!("{story} at {} us", self.now().0 / 1000));
    }
    fn counted(&self, count: u64) {
        self.counted.set(self.counted.get() + count);
    }
    fn latency(&self, op: Op, pages: u64, ns: u64) {
        self.latencies.borrow_mut().add(op, pages, ns);
    }
    fn tally(&self, what: Tally, count: u64) {
        *self.tallies.borrow_mut().entry(what).or_default() += count;
    }
    fn count_left(&self) {
        self.tally(Tally::LeftAsked, 0);
        *self.left.borrow_mut() = Some(Left::default());
    }
    fn shootdown(&self, shootdown: &Shootdown) {
        self.latencies.borrow_mut().shot(shootdown);
    }
    fn pace(&self, pace: &Pace) {
        self.latencies.borrow_mut().paced(pace);
    }
    fn enter_kernel(&self) {
        let _syscall = self.within(Own::Syscall);
        self.advance(self.machine.cost.syscall / 2);
    }
    fn leave_kernel(&self) {
        let _syscall = self.within(Own::Syscall);
        self.advance(self.machine.cost.syscall / 2);
    }
    fn time_slice(&self) -> u64 {
        self.machine.kernel.time_slice / 1000
    }

    fn wake_lag(&self, cpu: CpuId) -> u64 {
        let cost = &self.machine.cost;
        let (here, there) = (self.cpu(), &self.cpus[cpu.index()]);
        let interrupt = cost.idle_wake + cost.irq_enter + cost.irq_work + cost.irq_exit;
        let kicked = self.sending(here, there) + self.flight(here, there) + interrupt;
        let kick = if here.id == there.id { 0 } else { kicked };
        (interrupt + kick + cost.task_switch) / 1000
    }

    fn kswapds(&self) -> u32 {
        self.machine.kernel.kswapd
    }

    fn nodes_of_programs(&self) -> Option<NodeSet> {
        let bound = self.machine.slow.is_some() && !self.machine.kernel.slow_fallback;
        let fast: Vec<_> = (0..self.machine.nodes as u16).map(NodeId).collect();
        bound.then(|| NodeSet::of(&fast)).flatten()
    }

    fn progressed(&self, pages: u64) {
        let (before, done) = (self.done.get(), self.done.get() + pages);
        self.done.set(done);
        self.last_progress.set(self.events.get());
        // A thousand times in a run, and of a long one every thousand pages.
        let step = (self.total.get() / 1024).clamp(1, 1024);
        if before / step != done / step {
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
