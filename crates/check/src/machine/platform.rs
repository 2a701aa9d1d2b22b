//! The core's `Platform`.

use std::ops::Range;

use quietmm::addr::{FrameNumber, Nanos, NodeId, PAGE_SIZE, PhysAddr, VirtAddr};
use quietmm::platform::{
    Access, BlockDevice, Broadcast, Cpus, Guarantees, Hooks, KernelTlb, Memory, Services, Shrink, Shrinker,
    UserTlb, WaitKey,
};
use quietmm::{Architecture, CpuId, CpuSet, Event, Kind, Platform, Region, Rule};

use super::tlb::CachedKernel;
use super::{Machine, Place, What};
use crate::violation::Violation;

impl Machine {
    /// The CPUs whose words of a page lie whole in these bytes of it, and where in them.
    fn lanes(&self, at: usize, len: usize) -> impl Iterator<Item = (u16, Range<usize>)> + use<> {
        let words = (0..self.setup.cpus).map(|lane| (lane, 8 * usize::from(lane)..8 * usize::from(lane) + 8));
        let inside = words.filter(move |(_, word)| at <= word.start && word.end <= at + len);
        inside.map(move |(lane, word)| (lane, word.start - at..word.end - at))
    }
}

// SAFETY: `direct` maps all of the memory and checks its bounds; one host thread runs one CPU at a time, so
// `this_cpu` is true; flushes take entries out at once; copies are of one frame's content.
unsafe impl Platform for Machine {}

impl Cpus for Machine {
    fn this_cpu(&self) -> CpuId {
        CpuId(self.current.get())
    }
    fn possible_cpus(&self) -> u32 {
        u32::from(self.setup.cpus)
    }
    fn is_online(&self, cpu: CpuId) -> bool {
        self.cpus[cpu.index()].online.get()
    }
    fn node_of(&self, cpu: CpuId) -> NodeId {
        NodeId(cpu.0 % self.setup.nodes)
    }
    fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        if from == to { 10 } else { 20 }
    }
    fn irqs_off(&self) -> bool {
        if self.cpu().irqs.get() {
            // What a CPU keeps for itself is reached with interrupts off: an interrupt comes before all of it, or after.
            self.point(Place::Own(self.current.get()), true);
        }
        self.cpu().irqs.replace(false)
    }
    fn irqs_on(&self) {
        self.cpu().irqs.set(true);
        if !self.interleaved.get() && !self.falling.get() {
            self.deliver_all();
        }
    }
    fn now(&self) -> Nanos {
        Nanos(u64::from(self.steps.get()) * 100)
    }
    fn pause(&self, _ns: u32) {
        self.spin();
    }
    fn interrupt(&self, targets: &CpuSet) {
        for target in targets.iter() {
            self.point(Place::Line(target.0), true);
            self.note(|| What::Interrupt(target.0));
            let cpu = &self.cpus[target.index()];
            // One that is switched off hears nothing.
            cpu.pending.set(cpu.pending.get() || cpu.online.get());
        }
        if !self.interleaved.get() && !self.falling.get() {
            self.deliver_all();
        }
    }
}

impl Memory for Machine {
    fn architecture(&self) -> Architecture {
        self.setup.architecture
    }
    fn direct(&self, at: PhysAddr) -> *mut u8 {
        self.memory.direct(at)
    }
    fn later_region(&self, nth: usize) -> Option<Region> {
        self.later().filter(|_| nth == 0)
    }
    fn clear_frame(&self, frame: FrameNumber) {
        let Some(state) = self.memory.state(frame) else { return };
        state.content.set(Default::default());
        if !state.data.get() {
            // SAFETY: `direct` checks the frame's first byte, and a frame does not reach over the end.
            unsafe { self.direct(frame.phys()).write_bytes(0, PAGE_SIZE as usize) };
        }
    }
    fn copy_frame(&self, from: FrameNumber, to: FrameNumber) {
        for lane in 0..self.setup.cpus {
            self.point(Place::Content(from.0, lane), false);
            if let (Some(from), Some(to)) = (self.memory.state(from), self.memory.state(to)) {
                let mut content = to.content.get();
                content[usize::from(lane)] = from.content.get()[usize::from(lane)];
                to.content.set(content);
            }
        }
    }
    // Of a page there are the words of the CPUs, and no others.
    fn read_frame(&self, from: FrameNumber, at: usize, into: &mut [u8]) {
        into.fill(0);
        for (lane, word) in self.lanes(at, into.len()) {
            self.point(Place::Content(from.0, lane), false);
            if let Some(state) = self.memory.state(from) {
                into[word].copy_from_slice(&state.content.get()[usize::from(lane)].to_ne_bytes());
            }
        }
    }
    fn write_frame(&self, to: FrameNumber, at: usize, from: &[u8]) {
        for (lane, word) in self.lanes(at, from.len()) {
            self.point(Place::Content(to.0, lane), true);
            if let Some(state) = self.memory.state(to) {
                let mut content = state.content.get();
                content[usize::from(lane)] =
                    from[word].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
                state.content.set(content);
            }
        }
    }
}

impl KernelTlb for Machine {
    fn flush_kernel_page(&self, page: VirtAddr) {
        self.point(Place::Tlb(self.current.get()), true);
        self.note(|| What::FlushKernelPage(page.page().0));
        let stays =
            |cached: &CachedKernel| cached.above && !self.setup.architecture.page_flush_reaches_tables();
        self.cpu().tlb.borrow_mut().kernel.retain(|cached| cached.page != page.page().0 || stays(cached));
    }
    fn flush_kernel(&self) {
        self.point(Place::Tlb(self.current.get()), true);
        self.note(|| What::FlushKernel);
        // Real hardware may forget more; what the core may rely on is this.
        self.cpu().tlb.borrow_mut().kernel.clear();
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

impl UserTlb for Machine {
    fn flush_page(&self, page: VirtAddr) {
        self.point(Place::Tlb(self.current.get()), true);
        self.note(|| What::FlushPage(page.page().0));
        let reaches_tables = self.setup.architecture.page_flush_reaches_tables();
        self.cpu().tlb.borrow_mut().flush_page(page.page().0, reaches_tables);
    }
    fn flush_space(&self) {
        self.point(Place::Tlb(self.current.get()), true);
        self.note(|| What::FlushSpace);
        let mut tlb = self.cpu().tlb.borrow_mut();
        let tag = tlb.tag;
        tlb.flush_tag(tag);
    }
    fn load_space(&self, root: FrameNumber, tag: u16, keep: bool) {
        self.point(Place::Tlb(self.current.get()), true);
        self.note(|| What::Load(root, keep));
        let mut tlb = self.cpu().tlb.borrow_mut();
        if !keep {
            tlb.flush_tag(tag);
        }
        (tlb.root, tlb.tag) = (Some(root), tag);
        tlb.roots[usize::from(tag)] = Some(root);
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

impl Services for Machine {
    fn wait(&self, key: WaitKey, ready: &mut dyn FnMut() -> bool) {
        self.sleep(key, ready);
    }
    fn wake(&self, key: WaitKey) {
        self.wake_all(key);
    }
    fn cond_resched(&self) {
        if self.running.get() {
            self.arbitrate();
        }
    }
    fn shrinker(&self) -> Option<&dyn Shrinker> {
        self.setup.caches.then_some(self as &dyn Shrinker)
    }
    fn device(&self) -> Option<&dyn BlockDevice> {
        Some(self)
    }
}

impl Shrinker for Machine {
    fn shrink(&self, ask: &Shrink) -> u32 {
        self.point(Place::World, true);
        let goes = {
            let mut cache = self.cache.borrow_mut();
            let len = cache.len() as u64;
            cache.split_off((len - ask.share(len)) as usize)
        };
        goes.into_iter().map(|frames| self.mm().frames().free(frames)).count() as u32
    }
}

impl Hooks for Machine {
    #[inline]
    fn touch(&self, at: *const u8, access: Access) {
        let write = access != Access::Read;
        let offset = self.memory.offset_of(at).unwrap_or(0);
        self.point(Place::Word(offset), write);
        self.judge_own(at);
        if write {
            self.before_change(at);
        }
    }
    #[inline]
    fn broken(&self, rule: Rule) -> bool {
        self.leaves_out(rule)
    }
    fn observe(&self, event: &Event) {
        self.note(|| What::Core(*event));
        if self.falling.get() {
            return;
        }
        self.told.hear(event);
        match *event {
            Event::Taken { frame, order, kind } => {
                for n in 0..1 << order {
                    let Some(state) = self.memory.state(frame.add(n)) else { continue };
                    if !state.free.get() {
                        let said = format!("{:?} is given out twice", frame.add(n));
                        self.fail(Violation::new("INV-1", self.current.get(), said));
                    }
                    state.free.set(false);
                    state.data.set(matches!(kind, Kind::Anon | Kind::File));
                    state.table.set(kind == Kind::Table);
                    if !state.data.get() {
                        self.memory.will_be_written(frame.add(n));
                    }
                }
            }
            // From here on its interrupts are off, and it runs nothing but the rest of this call.
            Event::CpuOffline => self.cpu().leaves_or_comes.set(true),
            Event::Freed { frame, order } => (0..1 << order).for_each(|n| self.judge_freed(frame.add(n))),
            Event::Revoked { root, range, what, .. } => self.judge_revoked(root, range, what),
            Event::FlushSpared { root, page } => self.judge_spared(root, page.0),
            _ => {}
        }
    }
}
