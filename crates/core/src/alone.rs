//! Parts that stand alone: frames, and kernel addresses, for a kernel that keeps its own address spaces, or has none.

use crate::Manager;
use crate::addr::{FrameNumber, Nanos, NodeId, PhysAddr, Region, VirtAddr};
use crate::architecture::Architecture;
use crate::config::Config;
use crate::cpu::{CpuId, CpuSet};
use crate::error::Error;
use crate::event::{Counter, Event};
use crate::platform::{
    Access, BlockDevice, Broadcast, Cpus, Hooks, KernelTlb, Memory, Platform, Services, Shortage, Shrinker,
    UserTlb, WaitKey,
};
use crate::policy::Policy;
use crate::profile::Scope;
use crate::rule::Rule;
use crate::sync::{Holder, VisibleReads};
use crate::validate::Audit;
use crate::view::{FrameAllocator, Vmap};

/// The frame allocator with its per-CPU lists and drains and, with [`Config::vmap`](crate::Config::vmap), the allocator of kernel
/// addresses, without spaces, files, swap and reclaim. Hardly anything of these is linked: what [`validate`](Self::validate) looks at, and
/// what answers interrupts.
///
/// It wants less of a machine than the whole does. For frames alone that is [`Cpus`] and [`Memory`]; the other three have a
/// default for all that they ask for. No CPU is interrupted for frames with `drain=remote`, unless memory goes offline.
///
/// # Examples
/// `examples/frames.rs` is an allocator for the threads of a program, `examples/kernel_addresses.rs` one of addresses.
pub struct Alone<'p, M: Machine> {
    mm: Manager<'p, Part<M>>,
}

/// What such a part wants of a machine. Whoever has the five has this.
pub trait Machine: Cpus + Memory + KernelTlb + Services + Hooks {}
impl<M: Cpus + Memory + KernelTlb + Services + Hooks> Machine for M {}

impl<'p, M: Machine> Alone<'p, M> {
    /// Takes over memory, as [`Manager::new`] does. Of the policy `drain`, `vmap` and `flush` count; what the rest of it, and of the
    /// configuration, asks for spaces is left out.
    ///
    /// # Errors
    /// Those of [`Manager::new`].
    ///
    /// # Safety
    /// That of [`Platform`], as far as it is about what [`Machine`] has: who this is must be true, `direct` maps all memory that is handed
    /// over, which is nobody else's and goes to one manager, once.
    pub unsafe fn new(machine: &'p M, regions: &[Region], config: Config) -> Result<Self, Error> {
        // SAFETY: a transparent wrapper: same layout, same life.
        let part = unsafe { &*core::ptr::from_ref(machine).cast::<Part<M>>() };
        let Policy { drain, vmap, flush, .. } = config.policy;
        let policy = Policy { drain, vmap, flush, ..Policy::VANILLA };
        let config = Config { policy, swap: false, shadows: false, groups: 0, ..config };
        // SAFETY: as the caller promises.
        Ok(Alone { mm: unsafe { Manager::new(part, regions, config)? } })
    }

    /// The page frames.
    pub fn frames(&self) -> FrameAllocator<'_, 'p, Part<M>> {
        self.mm.frames()
    }

    /// The kernel range.
    pub fn vmap(&self) -> Vmap<'_, 'p, Part<M>> {
        self.mm.vmap()
    }

    /// See [`Manager::on_interrupt`].
    pub fn on_interrupt(&self) {
        self.mm.on_interrupt();
    }

    /// See [`Manager::serve`].
    pub fn serve(&self) {
        self.mm.serve();
    }

    /// See [`Manager::enter_idle`].
    pub fn enter_idle(&self) {
        self.mm.enter_idle();
    }

    /// See [`Manager::leave_idle`].
    pub fn leave_idle(&self) {
        self.mm.leave_idle();
    }

    /// See [`Manager::tick`].
    pub fn tick(&self) {
        self.mm.tick();
    }

    /// See [`Manager::cpu_online`].
    ///
    /// # Errors
    /// Those of [`Manager::cpu_online`].
    pub fn cpu_online(&self) -> Result<(), Error> {
        self.mm.cpu_online()
    }

    /// See [`Manager::cpu_offline`].
    ///
    /// # Errors
    /// Those of [`Manager::cpu_offline`].
    pub fn cpu_offline(&self) -> Result<(), Error> {
        self.mm.cpu_offline()
    }

    /// See [`Manager::counter`].
    pub fn counter(&self, counter: Counter) -> u64 {
        self.mm.counter(counter)
    }

    /// See [`Manager::validate`].
    pub fn validate(&self) -> Audit {
        self.mm.validate()
    }
}

/// The locks of [`sync`](crate::sync) take it.
impl<'p, M: Machine> Holder<'p, Part<M>> for Alone<'p, M> {
    fn platform(&self) -> &'p Part<M> {
        self.mm.platform()
    }
    fn serve_if_deaf(&self) {
        self.mm.serve_if_deaf();
    }
    fn visible_reads(&self, cpu: CpuId) -> &'p VisibleReads {
        self.mm.visible_reads(cpu)
    }
    #[cfg(debug_assertions)]
    fn spin_locks_held(&self) -> &'p crate::own::OwnU32 {
        self.mm.spin_locks_held()
    }
}

/// A machine without what only address spaces need.
#[repr(transparent)]
pub struct Part<M>(M);

// SAFETY: whoever made an `Alone` has promised it of the traits that are handed on. The other one is never asked: no space is
// ever made.
unsafe impl<M: Machine> Platform for Part<M> {}

impl<M: Machine> UserTlb for Part<M> {
    const SPACES: bool = false;

    fn flush_page(&self, _: VirtAddr) {
        unreachable!("there is no space");
    }
    fn flush_space(&self) {
        unreachable!("there is no space");
    }
    fn load_space(&self, _: FrameNumber, _: u16, _: bool) {
        unreachable!("there is no space");
    }
}

/// Hands each of these calls on.
macro_rules! hand_on {
    ($($trait:ident { $($(#[$how:meta])* fn $name:ident(&self $(, $argument:ident: $type:ty)*) $(-> $answer:ty)?;)* })*) => {$(
        impl<M: Machine> $trait for Part<M> {$(
            #[inline(always)]
            $(#[$how])*
            fn $name(&self $(, $argument: $type)*) $(-> $answer)? {
                self.0.$name($($argument),*)
            }
        )*}
    )*};
}

hand_on! {
    Cpus {
        fn this_cpu(&self) -> CpuId;
        fn possible_cpus(&self) -> u32;
        fn is_online(&self, cpu: CpuId) -> bool;
        fn node_of(&self, cpu: CpuId) -> NodeId;
        fn distance(&self, from: NodeId, to: NodeId) -> u32;
        fn interrupt(&self, targets: &CpuSet);
        fn irqs_off(&self) -> bool;
        fn irqs_on(&self);
        fn now(&self) -> Nanos;
        fn pause(&self, ns: u32);
    }
    Memory {
        fn architecture(&self) -> Architecture;
        fn direct(&self, at: PhysAddr) -> *mut u8;
        fn later_region(&self, nth: usize) -> Option<Region>;
        fn clear_frame(&self, frame: FrameNumber);
        fn copy_frame(&self, from: FrameNumber, to: FrameNumber);
        fn read_frame(&self, from: FrameNumber, at: usize, into: &mut [u8]);
        fn write_frame(&self, to: FrameNumber, at: usize, from: &[u8]);
    }
    KernelTlb {
        fn flush_kernel_page(&self, page: VirtAddr);
        fn flush_kernel(&self);
        fn prepare_root(&self, root: FrameNumber);
        fn broadcast(&self) -> Option<&dyn Broadcast>;
    }
    Services {
        fn wait(&self, key: WaitKey, ready: &mut dyn FnMut() -> bool);
        fn wake(&self, key: WaitKey);
        fn cond_resched(&self);
        fn out_of_memory(&self, short: &Shortage) -> bool;
        fn shrinker(&self) -> Option<&dyn Shrinker>;
        fn device(&self) -> Option<&dyn BlockDevice>;
    }
    Hooks {
        fn touch(&self, at: *const u8, access: Access);
        fn broken(&self, rule: Rule) -> bool;
        fn enter(&self, scope: Scope);
        fn leave(&self, scope: Scope);
        fn locked(&self, lock: *const u8, scope: Scope);
        fn unlocked(&self, lock: *const u8);
        #[cfg(loom)]
        #[track_caller]
        fn model_step(
            &self,
            word: crate::step::Shared<'_>,
            step: crate::step::Step,
            order: core::sync::atomic::Ordering
        ) -> Result<u64, u64>;
        #[cfg(loom)]
        #[track_caller]
        fn model_fence(&self);
        fn observe(&self, event: &Event);
    }
}
