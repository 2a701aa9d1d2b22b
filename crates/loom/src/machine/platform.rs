//! The machine as the core sees it.

use loom::sync::atomic::Ordering;
use quietmm::addr::{Nanos, PhysAddr};
use quietmm::platform::{
    BlockDevice, Cpus, DeviceError, Guarantees, Hooks, KernelTlb, Memory, Services, Store, UserTlb, WaitKey,
};
use quietmm::step::{Shared, Step};
use quietmm::{CpuId, CpuSet, Event, FrameNumber, NodeId, Platform, Rule, VirtAddr};

use super::{BASE, Machine, PAGE, this_cpu};

// SAFETY: `direct` checks that it stays inside the one block of memory; the current CPU is the thread's, or what the one
// thread says that prepares; the flushes take entries out of the map.
unsafe impl Platform for Machine {}

impl Cpus for Machine {
    fn this_cpu(&self) -> CpuId {
        if self.words.playing.get() && !std::thread::panicking() {
            return CpuId(this_cpu());
        }
        CpuId(self.current.get())
    }
    fn possible_cpus(&self) -> u32 {
        self.setup.cpus
    }
    fn is_online(&self, cpu: CpuId) -> bool {
        u32::from(cpu.0) < self.setup.cpus
    }
    fn node_of(&self, _cpu: CpuId) -> NodeId {
        NodeId(0)
    }
    fn distance(&self, _from: NodeId, _to: NodeId) -> u32 {
        10
    }
    fn irqs_off(&self) -> bool {
        self.here().irqs.replace(false)
    }
    fn irqs_on(&self) {
        self.here().irqs.set(true);
    }
    fn now(&self) -> Nanos {
        Nanos(0)
    }
    fn pause(&self, _ns: u32) {
        if self.played().is_some() {
            self.deliver();
            self.spin();
        }
    }
    fn interrupt(&self, targets: &CpuSet) {
        let Some(played) = self.played() else {
            if !std::thread::panicking() {
                targets.iter().for_each(|target| self.on(target.0, || self.take()));
            }
            return;
        };
        assert!(!self.here().irqs.get(), "interrupts must be off");
        let order = if self.weak_interrupts.get() { Ordering::Relaxed } else { Ordering::Release };
        for target in targets.iter() {
            self.words.note(|| format!("interrupts {target:?}"));
            assert_ne!(target, self.this_cpu(), "a CPU does not interrupt itself");
            // A swap: one that finds another on its way goes with it, and brings its sender's past along.
            played.pending[target.index()].swap(true, order);
            self.words.writes.set(self.words.writes.get() + 1);
            if played.halted[target.index()].get() {
                played.threads.borrow()[target.index()].unpark();
            }
        }
    }
}

impl Memory for Machine {
    fn direct(&self, at: PhysAddr) -> *mut u8 {
        self.memory.direct(at)
    }
    fn clear_frame(&self, frame: FrameNumber) {
        self.use_frame(frame, true);
        self.cleared.borrow_mut().insert((frame.0 - BASE) as usize);
        // SAFETY: `direct` checks the frame's first byte, and frames do not straddle the end; it is the caller's.
        unsafe { self.words.clear(self.direct(frame.phys()), PAGE) }
    }
    fn copy_frame(&self, from: FrameNumber, to: FrameNumber) {
        self.use_frame(from, false);
        self.use_frame(to, true);
    }
}

impl KernelTlb for Machine {
    fn flush_kernel_page(&self, page: VirtAddr) {
        self.here().tlb.borrow_mut().kernel.remove(&page.page().0);
    }
    fn flush_kernel(&self) {
        self.here().tlb.borrow_mut().kernel.clear();
    }
    fn prepare_root(&self, root: FrameNumber) {
        if self.kernel_root.get().is_none() {
            self.kernel_root.set(Some(root));
        }
    }
}

impl UserTlb for Machine {
    fn flush_page(&self, page: VirtAddr) {
        let mut tlb = self.here().tlb.borrow_mut();
        let tag = tlb.tag;
        tlb.cached.remove(&(tag, page.page().0));
    }
    fn flush_space(&self) {
        let mut tlb = self.here().tlb.borrow_mut();
        let tag = tlb.tag;
        tlb.cached.retain(|key, _| key.0 != tag);
    }
    fn load_space(&self, root: FrameNumber, tag: u16, keep: bool) {
        self.walk_loaded();
        {
            let mut tlb = self.here().tlb.borrow_mut();
            (tlb.root, tlb.tag) = (Some(root), tag);
        }
        if !keep {
            self.flush_space();
        }
        self.use_frame(root, false);
    }
    fn tags(&self) -> u16 {
        self.setup.tags
    }
    fn guarantees(&self) -> Guarantees {
        // SAFETY: `walk_and_set` does so, and a write through what was only read walks again.
        unsafe {
            Guarantees::none()
                .with_clean_write_walks()
                .with_unflushed_accessed()
                .with_accessed_before_cached()
        }
    }
}

impl Services for Machine {
    fn wait(&self, key: WaitKey, ready: &mut dyn FnMut() -> bool) {
        let Some(played) = self.played() else {
            assert!(ready(), "{key:?}: nobody else runs");
            return;
        };
        // As a kernel does: known to whoever wakes, then asked once more, and then asleep.
        let me = (key, self.this_cpu().0);
        played.sleepers().push(me);
        while !ready() {
            while played.sleepers().contains(&me) {
                self.pause(0);
            }
            played.sleepers().push(me);
        }
        played.sleepers().retain(|sleeper| *sleeper != me);
    }
    fn wake(&self, key: WaitKey) {
        let Some(played) = self.played() else { return };
        let mut sleepers = played.sleepers();
        let before = sleepers.len();
        sleepers.retain(|sleeper| sleeper.0 != key);
        self.words.writes.set(self.words.writes.get() + u64::from(sleepers.len() < before));
    }
    fn device(&self) -> Option<&dyn BlockDevice> {
        Some(self)
    }
}

impl Hooks for Machine {
    fn broken(&self, rule: Rule) -> bool {
        self.broken.get() == Some(rule)
    }
    fn observe(&self, event: &Event) {
        if let Event::Freed { frame, order: 0 } = *event {
            // INV-1 and INV-9: the allocator's from here on.
            self.use_frame(frame, true);
        }
    }
    #[track_caller]
    fn model_step(&self, word: Shared<'_>, step: Step, order: Ordering) -> Result<u64, u64> {
        self.words.step(word, step, order)
    }
    #[track_caller]
    fn model_fence(&self) {
        self.words.fence();
    }
}

/// A device that takes everything: it reads the frame from the beginning of the transfer to its end (INV-2).
impl BlockDevice for Machine {
    fn read(&self, _from: Store, _block: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        self.use_frame(frame, true);
        Ok(())
    }
    fn write(&self, _to: Store, _block: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        self.use_frame(frame, false);
        Ok(())
    }
}
