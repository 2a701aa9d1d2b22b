//! The core's `Platform` on x86-64.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use quietmm::addr::{Nanos, NodeId, PhysAddr};
use quietmm::platform::{
    BlockDevice, Cpus, Guarantees, Hooks, KernelTlb, Memory, Services, Shortage, UserTlb, WaitKey,
};
use quietmm::{CpuId, CpuSet, FrameNumber, Platform, Region, Rule, Scope, VirtAddr};
use quietmm_workloads::Kernel;

use crate::store::Store;
use crate::timeline::{self, What};
use crate::{alarm, apic, clock, cpu, interrupts, paging, stretches};

/// The machine. With `FAULTS` a rule can be broken, to see what follows, and what it does can be noted; without, both questions compile
/// to nothing.
pub struct Metal<const FAULTS: bool> {
    broken: Option<Rule>,
    /// CPUs that run when the core is made; those above come later.
    early: u32,
    /// Memory that comes later.
    later: Option<Region>,
    /// The pages of files.
    pub store: Store,
    /// What the run has to say at its end.
    pub notes: crate::machine::Notes,
}

/// The kernel's own root, as the core has made it; 0 before.
static KERNEL_ROOT: AtomicU64 = AtomicU64::new(0);

/// This CPU goes on upon the kernel's own tables: what it booted with leads to low addresses, which are programs'.
pub fn load_kernel_root() {
    paging::load_root(KERNEL_ROOT.load(Ordering::Acquire));
    paging::flush_global();
}

impl<const FAULTS: bool> Metal<FAULTS> {
    /// The machine, all of whose CPUs are there; only the first `early` count as online, and without the memory that comes `later`.
    pub fn new(broken: Option<Rule>, early: u32, later: Option<Region>, store: Store) -> Self {
        assert!(FAULTS || broken.is_none(), "this one cannot break a rule");
        Metal { broken, early, later, store, notes: crate::machine::Notes::default() }
    }
}

fn kernel() -> Option<&'static dyn Kernel> {
    interrupts::kernel()
}

/// Copies bytes, of which programs may change some meanwhile.
///
/// # Safety
/// Both ends are mapped for so many bytes, and do not overlap.
unsafe fn copy_bytes(to: *mut u8, from: *const u8, count: usize) {
    // SAFETY: the caller's. Words first, and then what is left of one.
    unsafe {
        asm!("rep movsq", "mov rcx, {rest}", "rep movsb", rest = in(reg) count % 8,
            inout("rdi") to => _, inout("rsi") from => _, inout("rcx") count / 8 => _, options(nostack, preserves_flags));
    }
}

// SAFETY: `direct` maps all memory up to the last run's end; a CPU's number is that of its APIC; INVLPG and writes to CR3
// and CR4 have flushed when they are done (SDM 3A 4.10.4.1); copies are of one frame.
unsafe impl<const FAULTS: bool> Platform for Metal<FAULTS> {}

impl<const FAULTS: bool> Cpus for Metal<FAULTS> {
    #[inline]
    fn this_cpu(&self) -> CpuId {
        CpuId(cpu::number() as u16)
    }
    fn possible_cpus(&self) -> u32 {
        cpu::count()
    }
    fn is_online(&self, cpu: CpuId) -> bool {
        u32::from(cpu.0) < self.early
    }
    fn node_of(&self, _cpu: CpuId) -> NodeId {
        NodeId(0)
    }
    fn distance(&self, _from: NodeId, _to: NodeId) -> u32 {
        10
    }
    #[inline]
    fn irqs_off(&self) -> bool {
        let were_on = cpu::irqs_off();
        if FAULTS && were_on {
            stretches::deaf();
        }
        were_on
    }
    #[inline]
    fn irqs_on(&self) {
        if FAULTS {
            stretches::hears();
        }
        cpu::irqs_on();
    }
    fn now(&self) -> Nanos {
        Nanos(clock::now())
    }
    fn pause(&self, ns: u32) {
        alarm::pause(ns.into());
    }
    fn interrupt(&self, targets: &CpuSet) {
        for target in targets.iter() {
            if FAULTS {
                timeline::note(What::Send, target.0.into());
            }
            apic::send(target.0.into(), interrupts::IPI);
        }
    }
}

impl<const FAULTS: bool> Memory for Metal<FAULTS> {
    #[inline]
    fn direct(&self, at: PhysAddr) -> *mut u8 {
        paging::direct(at.0)
    }
    fn later_region(&self, nth: usize) -> Option<Region> {
        self.later.filter(|_| nth == 0)
    }
    fn clear_frame(&self, frame: FrameNumber) {
        paging::fill_page(frame.phys().0, 0);
    }
    fn copy_frame(&self, from: FrameNumber, to: FrameNumber) {
        // SAFETY: both frames are held by the caller, and mapped. Not a Rust copy: a program may write to `from`.
        unsafe {
            asm!("rep movsq", inout("rdi") self.direct(to.phys()) => _, inout("rsi") self.direct(from.phys()) => _, inout("rcx") 512 => _, options(nostack, preserves_flags));
        }
    }
    fn read_frame(&self, from: FrameNumber, at: usize, into: &mut [u8]) {
        let from = self.direct(PhysAddr(from.phys().0 + at as u64));
        // SAFETY: the bytes lie in a frame that the caller holds, and in the caller's buffer. Not a Rust copy, as above.
        unsafe { copy_bytes(into.as_mut_ptr(), from, into.len()) }
    }
    fn write_frame(&self, to: FrameNumber, at: usize, from: &[u8]) {
        let to = self.direct(PhysAddr(to.phys().0 + at as u64));
        // SAFETY: as above.
        unsafe { copy_bytes(to, from.as_ptr(), from.len()) }
    }
}

impl<const FAULTS: bool> KernelTlb for Metal<FAULTS> {
    fn flush_kernel_page(&self, page: VirtAddr) {
        paging::flush_page(page.0);
    }
    fn flush_kernel(&self) {
        paging::flush_global();
    }
    fn prepare_root(&self, root: FrameNumber) {
        let word = self.direct(root.phys()).cast::<u64>().wrapping_add(paging::KERNEL_ENTRY);
        // SAFETY: a word of the new table, which is the caller's.
        unsafe { word.write(paging::kernel_word()) };
        // The first one is the kernel's own. Release: partner of the Acquire in `load_kernel_root`.
        let _ = KERNEL_ROOT.compare_exchange(0, root.phys().0, Ordering::Release, Ordering::Relaxed);
    }
}

impl<const FAULTS: bool> UserTlb for Metal<FAULTS> {
    fn flush_page(&self, page: VirtAddr) {
        paging::flush_page(page.0);
    }
    fn flush_space(&self) {
        paging::reload();
    }
    fn load_space(&self, root: FrameNumber, _tag: u16, _keep: bool) {
        paging::load_root(root.phys().0);
    }
    fn guarantees(&self) -> Guarantees {
        // SAFETY: x86-64 walks again for a write through a clean entry (SDM 3A 4.8: the dirty bit is set by an atomic
        // step that looks at the entry as it is), and so does the emulator. An entry that stays cached while its accessed
        // bit is cleared only leaves that bit clear (SDM 3A 4.10.4.3).
        // The accessed bit is set before an entry is cached (SDM 3A 4.10.2.3); in the emulator by a compare-and-swap of the
        // entry's lower half, which tells frames below 4 GiB apart. The tests `accessed-first` and `accessed-taken` look.
        unsafe {
            Guarantees::none()
                .with_clean_write_walks()
                .with_unflushed_accessed()
                .with_accessed_before_cached()
        }
    }
}

impl<const FAULTS: bool> Services for Metal<FAULTS> {
    fn wait(&self, key: WaitKey, ready: &mut dyn FnMut() -> bool) {
        let _given = FAULTS.then(stretches::given);
        match kernel() {
            Some(kernel) => kernel.wait(key, ready),
            None => {
                while !ready() {
                    self.pause(1);
                }
            }
        }
    }
    fn cond_resched(&self) {
        let _given = FAULTS.then(stretches::given);
        kernel().into_iter().for_each(Kernel::cond_resched);
    }
    fn wake(&self, key: WaitKey) {
        if let Some(kernel) = kernel() {
            kernel.wake(key);
            cpu::here().look.store(true, Ordering::Relaxed);
        }
    }
    fn out_of_memory(&self, short: &Shortage) -> bool {
        kernel().is_some_and(|kernel| kernel.out_of_memory(short))
    }
    fn device(&self) -> Option<&dyn BlockDevice> {
        Some(&self.store)
    }
}

impl<const FAULTS: bool> Hooks for Metal<FAULTS> {
    #[inline(always)]
    fn enter(&self, scope: Scope) {
        if FAULTS {
            timeline::note(What::Enter, scope as u32);
        }
    }
    #[inline(always)]
    fn leave(&self, scope: Scope) {
        if FAULTS {
            timeline::note(What::Leave, scope as u32);
        }
    }
    #[inline(always)]
    fn locked(&self, lock: *const u8, scope: Scope) {
        if FAULTS {
            stretches::locked(lock, scope);
        }
    }
    #[inline(always)]
    fn unlocked(&self, lock: *const u8) {
        if FAULTS {
            stretches::unlocked(lock);
        }
    }
    #[inline(always)]
    fn broken(&self, rule: Rule) -> bool {
        FAULTS && self.broken == Some(rule)
    }
}
