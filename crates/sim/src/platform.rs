//! The core's `Platform` on the simulated machine.

use quietmm::addr::{FrameNumber, Nanos, NodeId, PhysAddr};
use quietmm::event::Revoked;
use quietmm::platform::{
    Access, BlockDevice, Broadcast, Cpus, Guarantees, Hooks, KernelTlb, Memory, Services, Shortage, UserTlb,
    WaitKey,
};
use quietmm::{Architecture, CpuId, CpuSet, Event, Kind, Platform, Region, Rule, Scope, VirtAddr};
use quietmm_workloads::{Op, Tally};

use crate::cpu::{MOST_TAGS, Mode};
use crate::profile::Place;
use crate::sim::Sim;
use crate::tlb::GLOBAL;

impl<const FAULTS: bool> Sim<'_, FAULTS> {
    /// What it takes to copy so many bytes of a page, in picoseconds.
    fn copying(&self, frame: FrameNumber, bytes: usize) -> u64 {
        self.slow(frame).map_or(self.machine.cost.copy_frame, |slow| slow.copy_frame) * bytes as u64 / 4096
    }
}

// SAFETY: `direct` maps all of the machine's memory at `base`; there is one host thread, so `this_cpu` is
// true; flushes act on the CPU's TLB at once.
unsafe impl<const FAULTS: bool> Platform for Sim<'_, FAULTS> {}

impl<const FAULTS: bool> Cpus for Sim<'_, FAULTS> {
    #[inline]
    fn this_cpu(&self) -> CpuId {
        CpuId(self.cpu().id)
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
        self.machine.distance_of(from.0.into(), to.0.into())
    }
    fn irqs_off(&self) -> bool {
        let cpu = self.cpu();
        let were_on = cpu.irqs.replace(false);
        if were_on {
            self.set_limit(cpu);
            self.takes_irqs(cpu, false);
        }
        were_on
    }
    fn irqs_on(&self) {
        let cpu = self.cpu();
        cpu.irqs.set(true);
        self.takes_irqs(cpu, true);
        if self.running.get() {
            if cpu.next_irq() <= cpu.now.get() {
                self.settle();
            } else {
                self.set_limit(cpu);
            }
        }
    }
    fn now(&self) -> Nanos {
        Nanos(self.cpu().now.get() / 1000)
    }
    fn pause(&self, ns: u32) {
        self.count();
        if let Some(observed) = &self.observed {
            observed.spins(self.here());
        }
        let (cpu, began) = (self.cpu(), self.cpu().now.get());
        self.advance((u64::from(ns) * 1000).next_multiple_of(self.machine.cost.pause));
        cpu.asking.set(cpu.asking.get() + (cpu.now.get() - began));
    }
    fn interrupt(&self, targets: &CpuSet) {
        for target in targets.iter() {
            let (from, to) = (self.cpu(), &self.cpus[target.index()]);
            if let Some(observed) = &self.observed {
                observed.sent(from.id, to.id, from.now.get());
            }
            let sending = self.sending(from, to);
            self.advance(sending);
            from.asking.set(from.asking.get() + sending);
            self.post(to, &to.ipi_at, from.now.get() + self.flight(from, to));
        }
    }
}

impl<const FAULTS: bool> Memory for Sim<'_, FAULTS> {
    #[inline]
    fn architecture(&self) -> Architecture {
        self.machine.architecture
    }
    #[inline]
    fn direct(&self, at: PhysAddr) -> *mut u8 {
        // With a rule broken the core may come to believe anything. That ends its run, not the host's process.
        assert!(!FAULTS || at.0 < self.bytes, "the core reaches beyond the machine's memory, to {at:?}");
        self.base.wrapping_add(at.0 as usize)
    }
    fn later_region(&self, nth: usize) -> Option<Region> {
        self.later().filter(|_| nth == 0)
    }
    fn clear_frame(&self, frame: FrameNumber) {
        if self.data[frame.0 as usize].get() {
            self.set_content(frame, 0);
        } else {
            // SAFETY: the frame lies in the machine's memory and belongs to the caller.
            unsafe { self.direct(frame.phys()).write_bytes(0, 4096) };
        }
        self.advance(self.slow(frame).map_or(self.machine.cost.clear_frame, |slow| slow.clear_frame));
    }
    fn copy_frame(&self, from: FrameNumber, to: FrameNumber) {
        self.set_content(to, self.content(from));
        let there = if self.slow(from).is_some() { from } else { to };
        self.advance(self.copying(there, 4096));
    }
    // A page is one number here, which stands for all of its bytes: that of the first eight.
    fn read_frame(&self, from: FrameNumber, at: usize, into: &mut [u8]) {
        let number = self.content(from).to_le_bytes();
        into.iter_mut().enumerate().for_each(|(i, byte)| *byte = number[(at + i) % 8]);
        self.advance(self.copying(from, into.len()));
    }
    fn write_frame(&self, to: FrameNumber, at: usize, from: &[u8]) {
        if let Some(number) = from.first_chunk().filter(|_| at == 0) {
            self.set_content(to, u64::from_le_bytes(*number));
        }
        self.advance(self.copying(to, from.len()));
    }
}

impl<const FAULTS: bool> KernelTlb for Sim<'_, FAULTS> {
    fn flush_kernel_page(&self, page: VirtAddr) {
        self.drop_page(self.cpu(), GLOBAL, page.page());
        self.advance(self.machine.cost.invlpg);
    }
    fn flush_kernel(&self) {
        // With the global entries go all others.
        let cpu = self.cpu();
        (0..self.tags()).chain([GLOBAL]).for_each(|tag| self.drop_tag(cpu, tag));
        self.advance(self.machine.cost.flush_all);
    }
    fn prepare_root(&self, root: FrameNumber) {
        // The first one is the kernel's own, on which CPUs run before they load a space.
        if self.kernel_root.get() == FrameNumber::NONE {
            self.kernel_root.set(root);
        }
    }
    fn broadcast(&self) -> Option<&dyn Broadcast> {
        (self.machine.tlb.broadcast_pages > 0).then_some(self as &dyn Broadcast)
    }
}

impl<const FAULTS: bool> UserTlb for Sim<'_, FAULTS> {
    fn flush_page(&self, page: VirtAddr) {
        let cpu = self.cpu();
        self.drop_page(cpu, cpu.tag.get(), page.page());
        self.advance(self.machine.cost.invlpg);
    }
    fn flush_space(&self) {
        let cpu = self.cpu();
        self.drop_tag(cpu, cpu.tag.get());
        self.advance(self.machine.cost.flush_all);
    }
    fn load_space(&self, root: FrameNumber, tag: u16, keep: bool) {
        let cpu = self.cpu();
        if !keep {
            self.drop_tag(cpu, tag);
        }
        self.truth().walkable(root);
        self.truth().not_walkable(cpu.root.replace(root));
        cpu.tag.set(tag);
        cpu.roots[tag as usize].set(root);
        if let Some(left) = &mut *self.left.borrow_mut() {
            left.loads(cpu.id, root, cpu.now.get());
        }
        self.advance(self.machine.cost.load_space);
    }
    fn tags(&self) -> u16 {
        self.machine.tlb.tags.min(MOST_TAGS as u32) as u16
    }
    fn guarantees(&self) -> Guarantees {
        let (mut given, has) = (Guarantees::none(), &self.machine.guarantees);
        if has.clean_write_walks {
            // SAFETY: `translate` then walks again for a write through a clean entry.
            given = unsafe { given.with_clean_write_walks() };
        }
        if has.unflushed_accessed {
            // SAFETY: `translate` sets accessed bits only when it fills, with no harm beyond a wrong guess.
            given = unsafe { given.with_unflushed_accessed() };
        }
        // SAFETY: `translate` sets the accessed bit, of the entry that it has read, before it keeps that.
        unsafe { given.with_accessed_before_cached() }
    }
}

impl<const FAULTS: bool> Services for Sim<'_, FAULTS> {
    fn wait(&self, key: WaitKey, ready: &mut dyn FnMut() -> bool) {
        let before = self.observed.as_ref().and_then(|observed| observed.waits(self.here(), key));
        self.kernel().wait(key, ready);
        if let Some(observed) = &self.observed {
            observed.awake(self.here(), key, before);
        }
    }
    fn cond_resched(&self) {
        // While the machine is made there is nobody else.
        if self.running.get() {
            self.kernel().cond_resched();
        }
    }
    fn out_of_memory(&self, short: &Shortage) -> bool {
        self.running.get() && self.kernel().out_of_memory(short)
    }
    fn wake(&self, key: WaitKey) {
        if self.running.get() {
            self.kernel().wake(key);
        }
    }
    fn device(&self) -> Option<&dyn BlockDevice> {
        Some(self)
    }
}

impl<const FAULTS: bool> Hooks for Sim<'_, FAULTS> {
    #[inline]
    fn touch(&self, at: *const u8, access: Access) {
        self.shared_access(at, access);
    }
    #[inline(always)]
    fn broken(&self, rule: Rule) -> bool {
        if !FAULTS || self.broken != Some(rule) {
            return false;
        }
        let cpu = self.cpu();
        self.truth().skip(rule, cpu.id, cpu.now.get());
        true
    }
    #[inline]
    fn enter(&self, scope: Scope) {
        self.enters(Place::Core(scope));
    }
    #[inline]
    fn leave(&self, scope: Scope) {
        self.leaves(Place::Core(scope));
    }
    #[inline]
    fn observe(&self, event: &Event) {
        let cpu = self.cpu();
        if let Some(observed) = &self.observed {
            observed.observe(event, self.here());
        }
        match *event {
            Event::Taken { frame, order, kind } => {
                for i in 0..1 << order {
                    self.data[frame.0 as usize + i].set(matches!(kind, Kind::Anon | Kind::File));
                }
                self.truth().observe(event, cpu.id, cpu.now.get());
            }
            // What is cached may still be read: the account knows of one right only, and no workload fetches.
            Event::Revoked { what: Revoked::Execution, .. } => {}
            Event::Revoked { root, range, what, .. } => {
                for cpu in &self.cpus {
                    for tag in 0..self.tags() {
                        if cpu.roots[tag as usize].get() == root {
                            self.tlb(cpu).revoke(tag, range, what == Revoked::Writes);
                        }
                    }
                }
            }
            // The core cannot say of what size: this is not an operation on a range.
            Event::Drained { ns, .. } => self.latencies.borrow_mut().add(Op::Drain, 0, ns),
            Event::DirectReclaim { ns } => self.latencies.borrow_mut().add(Op::DirectReclaim, 0, ns),
            Event::AllocStallEnds { ns } => self.latencies.borrow_mut().add(Op::AllocStall, 0, ns),
            Event::Freed { frame, order } => {
                for n in frame.0..frame.0 + (1 << order) {
                    self.judge_freed_table(FrameNumber(n));
                }
                if let Some(left) = &mut *self.left.borrow_mut() {
                    left.ends(frame);
                }
                self.truth().observe(event, cpu.id, cpu.now.get());
            }
            Event::FlushBegins { root, tables } => {
                if let Some(left) = &mut *self.left.borrow_mut() {
                    let uses = |cpu: u16| self.cpus[usize::from(cpu)].root.get() == root;
                    let lazy = |cpu: u16| self.cpus[usize::from(cpu)].mode.get() == Mode::Idle;
                    let asked = left.asked(cpu.id, root, tables, cpu.now.get(), (uses, lazy));
                    *self.tallies.borrow_mut().entry(Tally::LeftAsked).or_default() += asked;
                }
            }
            _ => self.truth().observe(event, cpu.id, cpu.now.get()),
        }
    }
}
