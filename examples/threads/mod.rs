//! A machine whose CPUs are threads of this program: what a part of the core that stands alone wants of one.
//!
//! An interrupt is a flag that its CPU looks at where interrupts come on, and while it pauses.

use std::cell::{Cell, UnsafeCell};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use quietmm::addr::{Nanos, PAGE_SIZE, PhysAddr};
use quietmm::platform::{Cpus, Hooks, KernelTlb, Memory, Services};
use quietmm::{Alone, CpuId, CpuSet, Error, FrameNumber, NodeId, Region, VirtAddr};

const CPUS: usize = 4;
const FRAMES: u32 = 4096;
const BYTES: usize = FRAMES as usize * PAGE_SIZE as usize;

/// All memory there is: frames 0 to 4095, on one node.
pub const MEMORY: [Region; 1] = [Region { start: FrameNumber(0), frames: FRAMES, node: NodeId(0) }];

#[repr(align(4096))]
struct Block(UnsafeCell<[u8; BYTES]>);

// SAFETY: shared as the core shares memory: by atomics and under its locks.
unsafe impl Sync for Block {}

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

static BLOCK: Block = Block(UnsafeCell::new([0; BYTES]));

thread_local! {
    static CPU: Cell<u16> = const { Cell::new(0) };
    static INTERRUPTS_ON: Cell<bool> = const { Cell::new(true) };
}

/// The machine.
pub struct Threads {
    pending: [AtomicBool; CPUS],
    sent: AtomicU32,
    handler: fn(),
}

impl Threads {
    /// The handler is what each interrupted CPU calls.
    pub const fn new(handler: fn()) -> Self {
        Threads { pending: [const { AtomicBool::new(false) }; CPUS], sent: AtomicU32::new(0), handler }
    }

    /// Interrupts so far.
    pub fn interrupts(&self) -> u32 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Has each CPU do the work at the same time: it comes online, works, and goes. The first stays, as one must.
    pub fn run(
        &self,
        kernel: &Alone<'_, Threads>,
        work: impl Fn(u16) -> Result<(), Error> + Sync,
    ) -> Result<(), Error> {
        let as_cpu = |cpu: u16| {
            CPU.set(cpu);
            kernel.cpu_online()?;
            let done = work(cpu);
            kernel.cpu_offline()?;
            done
        };
        std::thread::scope(|scope| {
            let as_cpu = &as_cpu;
            let others: Vec<_> = (1..CPUS as u16).map(|cpu| scope.spawn(move || as_cpu(cpu))).collect();
            let mut done = work(0);
            // Others may still want an answer of this one.
            while !others.iter().all(|other| other.is_finished()) {
                self.pause(0);
            }
            for other in others {
                done = done.and(other.join().expect("it does not panic"));
            }
            done
        })
    }

    fn take_interrupt(&self) {
        // Acquire: partner of the Release in `interrupt`.
        if INTERRUPTS_ON.get() && self.pending[self.this_cpu().index()].swap(false, Ordering::Acquire) {
            INTERRUPTS_ON.set(false);
            (self.handler)();
            INTERRUPTS_ON.set(true);
        }
    }
}

impl Cpus for Threads {
    fn this_cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }
    fn possible_cpus(&self) -> u32 {
        CPUS as u32
    }
    fn is_online(&self, cpu: CpuId) -> bool {
        cpu == CpuId(0)
    }
    fn node_of(&self, _cpu: CpuId) -> NodeId {
        NodeId(0)
    }
    fn distance(&self, _from: NodeId, _to: NodeId) -> u32 {
        10
    }
    fn interrupt(&self, targets: &CpuSet) {
        for target in targets.iter() {
            self.sent.fetch_add(1, Ordering::Relaxed);
            self.pending[target.index()].store(true, Ordering::Release);
        }
    }
    fn irqs_off(&self) -> bool {
        INTERRUPTS_ON.replace(false)
    }
    fn irqs_on(&self) {
        INTERRUPTS_ON.set(true);
        self.take_interrupt();
    }
    fn now(&self) -> Nanos {
        Nanos(START.elapsed().as_nanos() as u64)
    }
    fn pause(&self, _ns: u32) {
        self.take_interrupt();
        std::thread::yield_now();
    }
}

impl Memory for Threads {
    fn direct(&self, at: PhysAddr) -> *mut u8 {
        assert!(at.0 < BYTES as u64);
        // SAFETY: inside the block, as was just checked.
        unsafe { BLOCK.0.get().cast::<u8>().add(at.0 as usize) }
    }
    fn clear_frame(&self, frame: FrameNumber) {
        // SAFETY: a frame that the core owns, inside the block.
        unsafe { self.direct(frame.phys()).write_bytes(0, PAGE_SIZE as usize) }
    }
    fn copy_frame(&self, from: FrameNumber, to: FrameNumber) {
        // SAFETY: two frames that the core owns, inside the block.
        unsafe { self.direct(from.phys()).copy_to(self.direct(to.phys()), PAGE_SIZE as usize) }
    }
}

// A kernel flushes its TLB here. No thread translates these addresses, so there is nothing to forget.
impl KernelTlb for Threads {
    fn flush_kernel_page(&self, _page: VirtAddr) {}
    fn flush_kernel(&self) {}
}

impl Services for Threads {}
impl Hooks for Threads {}
