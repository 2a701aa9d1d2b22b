//! The machine of the examples in the core's documentation: one CPU, 16 MiB on one node, and 4 MiB that may come later, a range of kernel addresses, a disk in memory.
//! [`doc`] runs one. All that an example may name comes along.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use quietmm::addr::Nanos;
pub use quietmm::addr::PAGE_SIZE;
pub use quietmm::platform::{
    BlockDevice, Cpus, DeviceError, Hooks, KernelTlb, Memory, Services, Store, UserTlb,
};
use quietmm::policy::VmapPolicy;
pub use quietmm::*;

/// The machine.
pub struct Host {
    memory: *mut u8,
    interrupts_on: Cell<bool>,
    device: Rc<dyn BlockDevice>,
}

/// Keeps pages by their places.
struct Disk {
    memory: *mut u8,
    pages: RefCell<BTreeMap<(Store, u64), Vec<u8>>>,
}

const FRAMES: u32 = 4096;
/// Memory that is there, and that the core is not told of at the start: the first frame.
pub const LATER: FrameNumber = FrameNumber(FRAMES);
const LATER_FRAMES: u32 = 1024;

/// Runs an example.
///
/// # Panics
/// If it returns an error.
pub fn doc(example: impl FnOnce(&Manager<'_, Host>) -> Result<(), Error>) {
    doc_on(|memory| Rc::new(Disk { memory, pages: RefCell::default() }), example);
}

/// The same with a device of one's own, made of the start of memory: there frame 0 lies, and behind it the others.
///
/// # Panics
/// If it returns an error.
pub fn doc_on(
    device: impl FnOnce(*mut u8) -> Rc<dyn BlockDevice>,
    example: impl FnOnce(&Manager<'_, Host>) -> Result<(), Error>,
) {
    let bytes = ((FRAMES + LATER_FRAMES) as usize + 1) * PAGE_SIZE as usize;
    let mut block = vec![0_u8; bytes];
    let memory = block.as_mut_ptr();
    // SAFETY: less than a page into a block that is a page longer than the memory.
    let memory = unsafe { memory.add(memory.align_offset(PAGE_SIZE as usize)) };
    let host = Host { memory, interrupts_on: true.into(), device: device(memory) };
    let regions = [Region { start: FrameNumber(0), frames: FRAMES, node: NodeId(0) }];
    let policy = Policy { vmap: VmapPolicy::Lazy, ..Policy::VANILLA };
    let vmap = Some(PageRange::new(PageNumber::KERNEL_START, 1 << 16));
    let read_ahead = Config::LINUX_READ_AHEAD;
    let config = Config { vmap, swap: true, groups: 4, read_ahead, ..Config::new(policy) };
    // SAFETY: the memory was allocated for this host, and this is its one manager.
    let mm = unsafe { Manager::new(&host, &regions, config) };
    mm.and_then(|mm| example(&mm)).expect("the example holds");
}

// SAFETY: there is one CPU, all memory is in one block, and nothing executes at user addresses: there is nothing to flush.
unsafe impl Platform for Host {}

impl Cpus for Host {
    fn this_cpu(&self) -> CpuId {
        CpuId(0)
    }
    fn possible_cpus(&self) -> u32 {
        1
    }
    fn is_online(&self, _: CpuId) -> bool {
        true
    }
    fn node_of(&self, _: CpuId) -> NodeId {
        NodeId(0)
    }
    fn distance(&self, _: NodeId, _: NodeId) -> u32 {
        10
    }
    fn interrupt(&self, _: &CpuSet) {
        unreachable!("there is no other CPU");
    }
    fn irqs_off(&self) -> bool {
        self.interrupts_on.replace(false)
    }
    fn irqs_on(&self) {
        self.interrupts_on.set(true);
    }
    fn now(&self) -> Nanos {
        Nanos(0)
    }
    fn pause(&self, _: u32) {
        std::hint::spin_loop();
    }
}

impl Memory for Host {
    fn direct(&self, at: PhysAddr) -> *mut u8 {
        assert!(at.0 < u64::from(FRAMES + LATER_FRAMES) * PAGE_SIZE);
        // SAFETY: inside the block, as was just checked.
        unsafe { self.memory.add(at.0 as usize) }
    }
    fn later_region(&self, nth: usize) -> Option<Region> {
        (nth == 0).then_some(Region { start: LATER, frames: LATER_FRAMES, node: NodeId(0) })
    }
    fn clear_frame(&self, frame: FrameNumber) {
        // SAFETY: a frame of the block.
        unsafe { self.direct(frame.phys()).write_bytes(0, PAGE_SIZE as usize) }
    }
    fn copy_frame(&self, from: FrameNumber, to: FrameNumber) {
        // SAFETY: two frames of the block.
        unsafe { self.direct(from.phys()).copy_to(self.direct(to.phys()), PAGE_SIZE as usize) }
    }
}

impl KernelTlb for Host {
    fn flush_kernel_page(&self, _: VirtAddr) {}
    fn flush_kernel(&self) {}
}

impl UserTlb for Host {
    fn flush_page(&self, _: VirtAddr) {}
    fn flush_space(&self) {}
    fn load_space(&self, _: FrameNumber, _: u16, _: bool) {}
}

impl Services for Host {
    fn device(&self) -> Option<&dyn BlockDevice> {
        Some(&*self.device)
    }
}

impl Hooks for Host {}

impl Disk {
    fn frame(&self, frame: FrameNumber) -> *mut u8 {
        self.memory.wrapping_add(frame.phys().0 as usize)
    }
}

impl BlockDevice for Disk {
    fn read(&self, from: Store, block: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        let zeros = || vec![0; PAGE_SIZE as usize];
        let page = self.pages.borrow().get(&(from, block)).cloned().unwrap_or_else(zeros);
        // SAFETY: a frame of the block, and the core's own until this returns.
        unsafe { self.frame(frame).copy_from(page.as_ptr(), page.len()) };
        Ok(())
    }
    fn write(&self, to: Store, block: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        let mut page = vec![0; PAGE_SIZE as usize];
        // SAFETY: as above.
        unsafe { self.frame(frame).copy_to(page.as_mut_ptr(), page.len()) };
        self.pages.borrow_mut().insert((to, block), page);
        Ok(())
    }
    fn discard(&self, file: FileId, blocks: Range<u64>) -> Result<(), DeviceError> {
        let kept = |store, block| store != Store::File(file) || !blocks.contains(&block);
        self.pages.borrow_mut().retain(|&(store, block), _| kept(store, block));
        Ok(())
    }
}
