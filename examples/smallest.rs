//! The smallest platform that works: one CPU, a block of host memory, no interrupts, no disk.
//!
//! Start here to embed the core; `docs/embedding.md` is the guide. `main` is what a kernel does with it.
//!
//!     cargo run --example smallest

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::cell::Cell;
use std::time::Instant;

use quietmm::addr::{Nanos, PAGE_SIZE, PhysAddr};
use quietmm::platform::{Cpus, Hooks, KernelTlb, Memory, Services, UserTlb};
use quietmm::{
    AllocFrom, Backing, Config, Counter, CpuId, CpuSet, FrameNumber, Manager, NodeId, PageNumber, PageRange,
    Platform, Policy, Prot, Region, UserAccess, VirtAddr,
};

const FRAMES: u32 = 2048;

/// The machine. A kernel has no such struct: its answers come from registers.
struct Host {
    /// Physical address 0 of this machine.
    memory: *mut u8,
    interrupts_on: Cell<bool>,
    page_flushes: Cell<u32>,
    full_flushes: Cell<u32>,
    started: Instant,
}

// SAFETY: `direct` is inside `memory` for every frame handed over, there is one CPU and it is number 0, and
// nothing executes at user addresses, so a flush that is only counted has flushed all there is.
unsafe impl Platform for Host {}

impl Cpus for Host {
    // Which CPU is this? A kernel reads it from its per-CPU segment.
    fn this_cpu(&self) -> CpuId {
        CpuId(0)
    }
    // The core keeps some 3 KiB for each possible CPU, from the start.
    fn possible_cpus(&self) -> u32 {
        1
    }
    fn is_online(&self, cpu: CpuId) -> bool {
        cpu == CpuId(0)
    }
    // One node: from the ACPI SRAT and SLIT where there are more.
    fn node_of(&self, _cpu: CpuId) -> NodeId {
        NodeId(0)
    }
    fn distance(&self, _from: NodeId, _to: NodeId) -> u32 {
        10
    }
    // CLI and STI. The core nests them by what `irqs_off` answers.
    fn irqs_off(&self) -> bool {
        self.interrupts_on.replace(false)
    }
    fn irqs_on(&self) {
        self.interrupts_on.set(true);
    }
    fn now(&self) -> Nanos {
        Nanos(self.started.elapsed().as_nanos() as u64)
    }
    // PAUSE, in a loop for about so long.
    fn pause(&self, _ns: u32) {
        std::hint::spin_loop();
    }
    // The local APIC's ICR. The vector's handler calls `Manager::on_interrupt`.
    fn interrupt(&self, _targets: &CpuSet) {
        unreachable!("there is no other CPU");
    }
}

impl Memory for Host {
    // Where the kernel maps physical memory: the core reads and writes its bookkeeping and page tables here.
    fn direct(&self, at: PhysAddr) -> *mut u8 {
        assert!(at.0 < u64::from(FRAMES) * PAGE_SIZE);
        // SAFETY: inside the block, as was just checked.
        unsafe { self.memory.add(at.0 as usize) }
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

// For kernel addresses of `Config::vmap`: this kernel asks for none.
impl KernelTlb for Host {}

impl UserTlb for Host {
    // INVLPG. When it returns, this CPU uses the old translation no more: INV-1 rests on it.
    fn flush_page(&self, _page: VirtAddr) {
        self.page_flushes.set(self.page_flushes.get() + 1);
    }
    // A write of CR3, without keeping anything.
    fn flush_space(&self) {
        self.full_flushes.set(self.full_flushes.get() + 1);
    }
    // CR3 = root | tag; with `keep` bit 63 is set too. Nothing walks the tables here.
    fn load_space(&self, _root: FrameNumber, _tag: u16, _keep: bool) {}
}

// No device, and whoever waits spins: `wait`, `wake`, `device` and the like have a default.
impl Services for Host {}

// For a laboratory.
impl Hooks for Host {}

fn main() -> Result<(), quietmm::Error> {
    // Memory as a boot loader would report it: frames 0 to 2047, one run, one node.
    let layout = Layout::from_size_align(FRAMES as usize * PAGE_SIZE as usize, PAGE_SIZE as usize).unwrap();
    // SAFETY: the size is not zero. Never freed: the manager lives as long as the program.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        handle_alloc_error(layout);
    }
    let host = Host {
        memory,
        interrupts_on: Cell::new(true),
        page_flushes: Cell::new(0),
        full_flushes: Cell::new(0),
        started: Instant::now(),
    };
    let regions = [Region { start: FrameNumber(0), frames: FRAMES, node: NodeId(0) }];
    // `vanilla` needs no guarantee of the hardware. Declare what yours does, then ask for `quiet`.
    // SAFETY: the memory was allocated for this, and no other manager has it.
    let mm = unsafe { Manager::new(&host, &regions, Config::new(Policy::VANILLA))? };
    println!("{FRAMES} frames, {} for bookkeeping, {} free", mm.frames().reserved(), mm.frames().available());

    // A process: 16 pages of its own at 4 MiB, and a file larger than memory at 1 GiB.
    let space = mm.space(mm.create_space()?);
    let file = mm.file(mm.create_file(4096)?);
    let heap = PageRange::new(PageNumber(0x400), 16);
    let text = PageRange::new(PageNumber(0x40000), 4096);
    space.map(heap, Backing::Anonymous, Prot::ReadWrite)?;
    space.map(text, Backing::File { file: file.id(), offset: 0 }, Prot::Read)?;
    space.switch_to()?;

    // What the page-fault handler calls. More pages than there is memory: reclaim makes room as we go.
    for page in heap.start.0..heap.end().0 {
        space.fault(PageNumber(page).addr(), UserAccess::Write)?;
    }
    for page in text.start.0..text.end().0 {
        space.fault(PageNumber(page).addr(), UserAccess::Read)?;
    }
    println!("{} of {} file pages are still in memory", file.cached_pages()?, text.pages);

    // The kernel's own frames come from the same place.
    let block = mm.frames().alloc(3, AllocFrom::HERE)?;
    println!("a block of 8 frames at {:?}", block.first());
    mm.frames().free(block);

    space.unmap(heap)?;
    space.destroy()?;
    file.destroy()?;
    // What is on this CPU's lists goes back, as `cpu_offline` would see to, so that the audit finds it free.
    mm.drain_lru_batch();
    mm.frames().drain_here();

    for counter in [Counter::PgFault, Counter::PgStealDirect, Counter::PgRotated, Counter::IpisSent] {
        println!("{:<15} {:>6}  {}", counter.name(), mm.counter(counter), counter.about());
    }
    println!("flushes: {} pages, {} full", host.page_flushes.get(), host.full_flushes.get());
    println!("{:?}", mm.validate());
    Ok(())
}
