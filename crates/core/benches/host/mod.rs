//! A machine whose CPUs are threads of the host, as lean as a kernel is: the CPU's number and its interrupt flag are
//! thread-locals (a kernel: one load relative to a segment), and the direct map is an addition.
//!
//! An interrupt is a flag that its CPU looks at where interrupts come on again, and while it pauses. So each CPU must
//! go on to do either until no other is at work: [`Host::idle`].

pub mod team;

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::time::Instant;

use quietmm::addr::{Nanos, PAGE_SIZE, PhysAddr};
use quietmm::platform::{Cpus, Guarantees, Hooks, KernelTlb, Memory, Services, UserTlb};
use quietmm::{Config, CpuId, CpuSet, FrameNumber, Manager, NodeId, Platform, Region, VirtAddr};

pub type Mm<'p> = Manager<'p, Host>;

/// 4 GiB, of which the host backs what is touched: the bookkeeping.
pub const FRAMES: u32 = 1 << 20;
/// About what one PAUSE takes, in nanoseconds.
const PAUSE_NS: u32 = 20;
/// After so many looks in vain a thread lets go of its core: the one it waits for may not have any.
const LOOKS: u32 = 1024;

thread_local! {
    static CPU: Cell<u16> = const { Cell::new(0) };
    static IRQS: Cell<bool> = const { Cell::new(true) };
    static LOOKED: Cell<u32> = const { Cell::new(0) };
}

/// The most CPUs.
const CPUS: u16 = 2;

/// Whether an interrupt is on its way to a CPU. On lines of its own: two share one where the hardware fetches pairs.
#[repr(align(128))]
struct Pending(AtomicBool);

/// A static, as there is one machine at a time: looking at it costs next to nothing, as in a kernel, whose hardware looks.
static PENDING: [Pending; CPUS as usize] = [const { Pending(AtomicBool::new(false)) }; CPUS as usize];

#[inline(always)]
fn pending(cpu: CpuId) -> &'static AtomicBool {
    &PENDING[cpu.index() % PENDING.len()].0
}

pub struct Host {
    block: *mut u8,
    /// Physical address 0: the first page boundary in the block.
    memory: *mut u8,
    cpus: u16,
    nodes: u16,
    started: Instant,
    manager: AtomicPtr<Mm<'static>>,
}

// SAFETY: `memory` is shared as the core shares it, by atomics and under its locks.
unsafe impl Sync for Host {}

const SIZE: usize = FRAMES as usize * PAGE_SIZE as usize;

/// Of no alignment, and a page more instead: aligned memory would be zeroed by writing to all of it.
fn layout() -> Layout {
    Layout::from_size_align(SIZE + PAGE_SIZE as usize, 1).unwrap()
}

impl Drop for Host {
    fn drop(&mut self) {
        // SAFETY: allocated in `run` with this layout.
        unsafe { dealloc(self.block, layout()) }
    }
}

impl Host {
    /// A manager of `FRAMES` frames, for as long as `work` runs, which begins on CPU 0. The nodes have equal parts, and
    /// the CPUs take turns on them.
    pub fn run<R>(cpus: u16, nodes: u16, config: Config, work: impl FnOnce(&Shared<'_, '_>) -> R) -> R {
        assert!(cpus <= CPUS);
        // SAFETY: the size is not zero.
        let block = unsafe { alloc_zeroed(layout()) };
        if block.is_null() {
            handle_alloc_error(layout());
        }
        let host = Host {
            block,
            // SAFETY: less than a page into a block that is a page longer than `SIZE`.
            memory: unsafe { block.add(block.align_offset(PAGE_SIZE as usize)) },
            cpus,
            nodes,
            started: Instant::now(),
            manager: AtomicPtr::default(),
        };
        let part = FRAMES / u32::from(nodes);
        let region = |n| Region { start: FrameNumber(u32::from(n) * part), frames: part, node: NodeId(n) };
        let regions: Vec<_> = (0..nodes).map(region).collect();
        // SAFETY: the memory was allocated for this host, and this is its one manager.
        let mm = unsafe { Manager::new(&host, &regions, config) }.expect("a machine that the core takes");
        host.manager.store((&raw const mm).cast_mut().cast(), Ordering::Release);
        let result = work(&Shared(&mm));
        host.manager.store(std::ptr::null_mut(), Ordering::Release);
        result
    }

    /// The calling thread is this CPU from now on.
    pub fn be(cpu: u16) {
        CPU.set(cpu);
    }

    /// One look of a CPU that has nothing to do.
    pub fn idle(&self) {
        self.take_interrupt();
        std::thread::yield_now();
    }

    #[inline(always)]
    fn take_interrupt(&self) {
        // A load first: the swap would cost what the whole allocation costs. Acquire: partner of the Release in
        // `interrupt`.
        if IRQS.get() && pending(self.this_cpu()).load(Ordering::Acquire) {
            self.handle_interrupt();
        }
    }

    #[cold]
    #[inline(never)]
    fn handle_interrupt(&self) {
        pending(self.this_cpu()).swap(false, Ordering::AcqRel);
        IRQS.set(false);
        // SAFETY: set in `run` for as long as there is work, and the work waits for its threads.
        if let Some(mm) = unsafe { self.manager.load(Ordering::Acquire).cast::<Mm<'_>>().as_ref() } {
            mm.on_interrupt();
        }
        IRQS.set(true);
    }
}

/// A manager that threads share.
pub struct Shared<'a, 'p>(&'a Mm<'p>);

// SAFETY: a manager is made to be used by all CPUs at once, and each thread is another CPU (`Host::be`).
unsafe impl Sync for Shared<'_, '_> {}

impl<'p> std::ops::Deref for Shared<'_, 'p> {
    type Target = Mm<'p>;

    fn deref(&self) -> &Mm<'p> {
        self.0
    }
}

// SAFETY: `direct` is inside the block for every frame of it; each thread is one CPU, and only it changes its interrupt
// flag; nothing is translated, so there is nothing to flush, and both guarantees hold of it; copies are of one page.
unsafe impl Platform for Host {}

impl Cpus for Host {
    #[inline]
    fn this_cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }
    fn possible_cpus(&self) -> u32 {
        self.cpus.into()
    }
    fn is_online(&self, _cpu: CpuId) -> bool {
        true
    }
    #[inline]
    fn node_of(&self, cpu: CpuId) -> NodeId {
        NodeId(if self.nodes == 1 { 0 } else { cpu.0 % self.nodes })
    }
    fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        if from == to { 10 } else { 20 }
    }
    #[inline]
    fn irqs_off(&self) -> bool {
        IRQS.replace(false)
    }
    #[inline(always)]
    fn irqs_on(&self) {
        IRQS.set(true);
        self.take_interrupt();
    }
    fn now(&self) -> Nanos {
        Nanos(self.started.elapsed().as_nanos() as u64)
    }
    #[inline]
    fn pause(&self, ns: u32) {
        self.take_interrupt();
        (0..ns.div_ceil(PAUSE_NS).max(1)).for_each(|_| std::hint::spin_loop());
        LOOKED.set(LOOKED.get() + 1);
        if LOOKED.get() == LOOKS {
            LOOKED.set(0);
            std::thread::yield_now();
        }
    }
    fn interrupt(&self, targets: &CpuSet) {
        for target in targets.iter() {
            // Release: partner of the Acquire in `take_interrupt`.
            pending(target).store(true, Ordering::Release);
        }
    }
}

impl Memory for Host {
    #[inline]
    fn direct(&self, at: PhysAddr) -> *mut u8 {
        debug_assert!(at.0 < SIZE as u64);
        // SAFETY: the core asks for what it was handed, and the block is that.
        unsafe { self.memory.add(at.0 as usize) }
    }
    fn clear_frame(&self, frame: FrameNumber) {
        // SAFETY: a frame of the block, which the core owns.
        unsafe { self.direct(frame.phys()).write_bytes(0, PAGE_SIZE as usize) }
    }
    fn copy_frame(&self, from: FrameNumber, to: FrameNumber) {
        // SAFETY: two frames of the block, which the core owns.
        unsafe { self.direct(from.phys()).copy_to(self.direct(to.phys()), PAGE_SIZE as usize) }
    }
}

impl KernelTlb for Host {
    fn flush_kernel_page(&self, _page: VirtAddr) {}
    fn flush_kernel(&self) {}
}

impl UserTlb for Host {
    fn flush_page(&self, _page: VirtAddr) {}
    fn flush_space(&self) {}
    fn load_space(&self, _root: FrameNumber, _tag: u16, _keep: bool) {}
    fn guarantees(&self) -> Guarantees {
        // SAFETY: no translation is cached, so none is stale.
        unsafe {
            Guarantees::none()
                .with_clean_write_walks()
                .with_unflushed_accessed()
                .with_accessed_before_cached()
        }
    }
}

impl Services for Host {}

impl Hooks for Host {}
