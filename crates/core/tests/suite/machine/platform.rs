//! What the core asks of the machine.

use std::panic::resume_unwind;

use quietmm::addr::{Nanos, PAGE_SIZE, PhysAddr};
use quietmm::platform::{
    Access, BlockDevice, Broadcast, Cpus, Guarantees, Hooks, KernelTlb, Memory, Services, Shortage, Shrink,
    Shrinker, UserTlb, WaitKey,
};
use quietmm::profile::Scope;
use quietmm::{
    Architecture, CpuId, CpuSet, Entry, Event, FrameNumber, Kind, NodeId, Platform, Region, Rule, VirtAddr,
};

use super::translation::{Tlb, places};
use super::{Happened, Host, StandsStill};

/// 512 frames.
const LARGE_ORDER: u8 = 9;
/// So often somebody who stands still goes on before a sleeper has waited in vain to be woken.
const MOST_TURNS: u32 = 100;

// SAFETY: `direct` checks that it stays inside the one block of memory, there is one thread, so the current CPU
// is true and stable, the flushes take the entries out of the map, and the copies are of one frame.
unsafe impl Platform for Host {}

impl Cpus for Host {
    fn this_cpu(&self) -> CpuId {
        CpuId(self.current.get())
    }
    fn possible_cpus(&self) -> u32 {
        self.setup.cpus
    }
    fn is_online(&self, cpu: CpuId) -> bool {
        cpu == CpuId(0) || u32::from(cpu.0) < self.setup.cpus && !self.setup.first_alone
    }
    fn node_of(&self, cpu: CpuId) -> NodeId {
        NodeId(cpu.0 % self.setup.nodes)
    }
    fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        if from == to { 10 } else { 20 }
    }
    fn irqs_off(&self) -> bool {
        let were_on = self.irqs[self.current.get() as usize].replace(false);
        if were_on {
            self.stretch_deaf();
        }
        were_on
    }
    fn irqs_on(&self) {
        let cpu = self.current.get();
        self.stretch_hears();
        self.irqs[cpu as usize].set(true);
        if self.pending[cpu as usize].get() && !self.hold_interrupts.get() {
            self.deliver(cpu);
        }
        if !self.on_irqs_on.borrow().is_empty() {
            self.irqs[cpu as usize].set(false);
            self.next(&self.on_irqs_on);
            self.irqs[cpu as usize].set(true);
        }
    }
    fn now(&self) -> Nanos {
        Nanos(self.clock.get())
    }
    fn pause(&self, ns: u32) {
        self.pauses.borrow_mut().push(ns);
        let idle = self.on_idle_pause.borrow_mut().pop_front();
        if let Some(idle) = idle {
            return idle();
        }
        if self.manager.get().is_null() {
            return;
        }
        if !self.next(&self.on_pause) && !self.deliver_all() {
            if self.placing.get() && self.is_aside() {
                // Perhaps it is the other that stands still in the middle of something.
                self.stop();
            } else if self.placing.get() && !self.resume_any() && !self.patient.get() {
                resume_unwind(Box::new(StandsStill));
            }
            self.idle_pauses.set(self.idle_pauses.get() + 1);
            assert!(self.idle_pauses.get() < 1_000_000, "somebody waits for ever");
        }
    }
    fn interrupt(&self, targets: &CpuSet) {
        assert!(!self.irqs[self.current.get() as usize].get(), "interrupts must be off");
        for target in targets.iter() {
            assert_ne!(target.0, self.current.get(), "a CPU does not interrupt itself");
            self.note(Happened::Interrupt(target.0));
            self.pending[target.index()].set(!self.off[target.index()].get());
        }
        if !self.hold_interrupts.get() {
            self.deliver_all();
        }
    }
}

impl Memory for Host {
    fn architecture(&self) -> Architecture {
        self.setup.architecture
    }
    fn direct(&self, at: PhysAddr) -> *mut u8 {
        self.memory.direct(at)
    }
    fn later_region(&self, nth: usize) -> Option<Region> {
        self.setup.later.get(nth).copied()
    }
    fn clear_frame(&self, frame: FrameNumber) {
        self.stretch_of_frame();
        // SAFETY: `direct` checks the frame's first byte, and frames do not straddle the end.
        unsafe { self.direct(frame.phys()).write_bytes(0, PAGE_SIZE as usize) }
    }
    fn copy_frame(&self, from: FrameNumber, to: FrameNumber) {
        self.stretch_of_frame();
        // SAFETY: as above, for both.
        unsafe { self.direct(from.phys()).copy_to(self.direct(to.phys()), PAGE_SIZE as usize) }
    }
}

impl KernelTlb for Host {
    fn flush_kernel_page(&self, page: VirtAddr) {
        let cpu = self.current.get();
        self.note(Happened::FlushKernelPage(cpu, page.page().0));
        self.tlbs[cpu as usize].borrow_mut().kernel.remove(&page.page().0);
    }
    fn flush_kernel(&self) {
        let cpu = self.current.get();
        self.note(Happened::FlushKernel(cpu));
        let mut tlb = self.tlbs[cpu as usize].borrow_mut();
        tlb.kernel.clear();
        tlb.cached.clear();
        tlb.walked.clear();
    }
    fn prepare_root(&self, root: FrameNumber) {
        if self.kernel_root.get().is_none() {
            self.kernel_root.set(Some(root));
        }
    }
    fn broadcast(&self) -> Option<&dyn Broadcast> {
        self.setup.broadcast.then_some(self as &dyn Broadcast)
    }
}

impl UserTlb for Host {
    fn flush_page(&self, page: VirtAddr) {
        let cpu = self.current.get();
        self.note(Happened::FlushPage(cpu, page.page().0));
        let mut tlb = self.tlbs[cpu as usize].borrow_mut();
        let tag = tlb.tag;
        for key in places(tag, page.page().0) {
            tlb.cached.remove(&key);
        }
        if self.setup.architecture.page_flush_reaches_tables() {
            tlb.forget_tables();
        }
    }
    fn flush_space(&self) {
        let cpu = self.current.get();
        self.note(Happened::FlushSpace(cpu));
        self.tlbs[cpu as usize].borrow_mut().flush();
    }
    fn load_space(&self, root: FrameNumber, tag: u16, keep: bool) {
        self.next(&self.on_load);
        assert!(!keep || self.setup.tags > 1, "without tags nothing is kept");
        let mut tlb = self.tlbs[self.current.get() as usize].borrow_mut();
        (tlb.root, tlb.tag) = (Some(root), tag);
        tlb.roots.insert(tag, root);
        if !keep {
            tlb.flush();
        }
    }
    fn tags(&self) -> u16 {
        self.setup.tags
    }
    fn guarantees(&self) -> Guarantees {
        if !self.setup.guarantees {
            return Guarantees::none();
        }
        // SAFETY: `translate` does so.
        unsafe {
            Guarantees::none()
                .with_clean_write_walks()
                .with_unflushed_accessed()
                .with_accessed_before_cached()
        }
    }
}

impl Host {
    /// Others go on; and where sleepers sleep soundly, until this one is woken.
    fn sleep(&self, before: usize, key: WaitKey) {
        if !self.sound_sleep.get() {
            return self.stop();
        }
        while !self.woken.borrow()[before..].contains(&key) {
            self.idle_pauses.set(self.idle_pauses.get() + 1);
            assert!(self.idle_pauses.get() < 1_000_000, "{key:?}: nobody wakes the sleeper");
            self.stop();
        }
    }
}

impl Services for Host {
    fn wait(&self, key: WaitKey, ready: &mut dyn FnMut() -> bool) {
        // Asleep: only `wake` ends it.
        let mut woken = true;
        // Whoever wakes while `ready` looks has found the sleeper.
        let mut before = self.woken.borrow().len();
        while !ready() {
            if matches!(key, WaitKey::Page(_))
                && let Some(rule) = self.instead_of_page_wait.take()
            {
                return self.broken.set(Some(rule));
            }
            assert!(woken || self.placing.get(), "{key:?}: somebody else was woken");
            let other = self.on_wait.borrow_mut().pop_front();
            match other {
                Some(other) => other(),
                None if self.is_aside() => self.sleep(before, key),
                None if self.placing.get() && self.resume_any() => {}
                None => panic!("sleeps, and nobody else is there"),
            }
            self.idle_pauses.set(self.idle_pauses.get() + 1);
            assert!(self.idle_pauses.get() < 1_000_000, "somebody sleeps for ever");
            woken = self.woken.borrow()[before..].contains(&key);
            before = self.woken.borrow().len();
        }
        // Or it was woken as `ready` looked for the last time; or whoever made it so stands still before it wakes.
        woken |= self.woken.borrow()[before..].contains(&key);
        for _ in 0..MOST_TURNS {
            if woken || !self.placing.get() || !self.is_aside() {
                break;
            }
            self.stop();
            woken = self.woken.borrow()[before..].contains(&key);
        }
        let said = format!("{key:?} became ready and nobody woke the sleeper");
        match self.broken.get() {
            None => assert!(woken, "{said}"),
            // Seen; there is no need to say so.
            Some(_) if !woken => resume_unwind(Box::new(said)),
            Some(_) => {}
        }
    }
    fn cond_resched(&self) {
        self.rescheds.set(self.rescheds.get() + 1);
        self.end_stretch();
        // Whoever gives way while it happens gives way to nobody.
        if let Some(happens) = self.on_cond_resched.borrow().clone()
            && !self.happening.replace(true)
        {
            happens(self.manager());
            self.happening.set(false);
        }
    }
    fn out_of_memory(&self, short: &Shortage) -> bool {
        self.enter_victim();
        self.shortages.borrow_mut().push(*short);
        let asked = self.on_out_of_memory.borrow_mut().take();
        let Some(mut asked) = asked else { return false };
        let answer = asked(self.manager());
        self.on_out_of_memory.borrow_mut().get_or_insert(asked);
        answer
    }
    fn wake(&self, key: WaitKey) {
        self.enter_wake(key);
        self.woken.borrow_mut().push(key);
    }
    fn shrinker(&self) -> Option<&dyn Shrinker> {
        self.shrinker.get().then_some(self as &dyn Shrinker)
    }
    fn device(&self) -> Option<&dyn BlockDevice> {
        self.setup.disk.then_some(self as &dyn BlockDevice)
    }
}

impl Shrinker for Host {
    fn shrink(&self, ask: &Shrink) -> u32 {
        assert!(self.irqs[self.current.get() as usize].get(), "the kernel may wait here");
        self.asks.borrow_mut().push(*ask);
        let shrinks = self.on_shrink.borrow().clone();
        let frames = shrinks.map_or(0, |shrinks| shrinks(ask));
        self.enter_shrink(frames);
        frames
    }
}

impl Hooks for Host {
    fn touch(&self, at: *const u8, _access: Access) {
        self.touched(at);
    }
    fn locked(&self, lock: *const u8, scope: Scope) {
        self.stretch_locked(lock, scope);
    }
    fn unlocked(&self, lock: *const u8) {
        self.stretch_unlocked(lock);
    }
    fn broken(&self, rule: Rule) -> bool {
        self.broken.get() == Some(rule)
    }
    fn observe(&self, event: &Event) {
        self.note(Happened::Event(*event));
        match *event {
            Event::Rotated => _ = self.next(&self.on_rotated),
            Event::Looked { .. } => self.looked(),
            Event::Taken { order: LARGE_ORDER, kind: Kind::Anon, .. } => _ = self.next(&self.on_large_taken),
            // INV-9: a CPU could still walk these tables.
            Event::Freed { frame, order: 0 } => {
                let may_walk =
                    |tlb: &Tlb| tlb.root == Some(frame) || tlb.walked.contains_key(&(tlb.tag, frame));
                let walked = self.tlbs.iter().filter(|tlb| may_walk(&tlb.borrow())).count();
                self.stale.set(self.stale.get() + walked as u32);
                self.freed_under.set(self.freed_under.get() + walked as u32);
                self.frees.borrow_mut().enter(self.memory.index_of(frame).expect("it lies in memory"));
            }
            _ => {}
        }
    }
}
