//! All that a machine must offer: six small traits, to be written in an afternoon, and one promise about them.

use crate::addr::{FrameNumber, Nanos, NodeId, NodeSet, PAGE_SIZE, PhysAddr, Region, VirtAddr};
use crate::architecture::Architecture;
use crate::cpu::{CpuId, CpuSet};
use crate::event::Event;
use crate::handle::GroupId;
use crate::kind::Kind;
use crate::profile::Scope;
use crate::rule::Rule;

pub use crate::broadcast::{Broadcast, Everywhere};
pub use crate::device::{BlockDevice, DeviceError, Store, Transfer, WriteRefused};
pub use crate::shrinker::{Shrink, Shrinker};

/// The machine under the core: all of [`Cpus`], [`Memory`], [`KernelTlb`], [`UserTlb`], [`Services`] and [`Hooks`].
///
/// The core calls these from every CPU at once. The kernel around it must not switch tasks on a CPU that is inside the
/// core, except in [`wait`](Services::wait), [`cond_resched`](Services::cond_resched), [`out_of_memory`](Services::out_of_memory) and the
/// methods of [`BlockDevice`] and [`Shrinker`]: no spin lock is held there, but sleeping locks may be. Interrupts may arrive wherever
/// they are on, and must come back to where they came from. `docs/embedding.md` is the guide.
///
/// # Safety
/// The core's memory safety rests on the answers: [`direct`](Memory::direct) must map all memory that was
/// handed over, [`this_cpu`](Cpus::this_cpu) must be true and unique while interrupts are off, the flushes
/// must have flushed when they return, and the copies must stay within their frames. Memory that was handed over is nobody else's,
/// and goes to one manager, once.
pub unsafe trait Platform: Cpus + Memory + KernelTlb + UserTlb + Services + Hooks {}

/// Which CPU this is, which there are, how they are interrupted, and their clocks.
pub trait Cpus {
    /// The CPU that executes this. Asked with interrupts on too: a task inside the core stays on its CPU but where the
    /// trait says that it may be switched.
    fn this_cpu(&self) -> CpuId;
    /// One more than the highest CPU number that can ever come online; at most 4096.
    fn possible_cpus(&self) -> u32;
    /// Whether the CPU runs now. Asked when the manager is made; after that CPUs tell the core themselves, by
    /// `Manager::cpu_online` and `Manager::cpu_offline`.
    fn is_online(&self, cpu: CpuId) -> bool;
    /// The node of a CPU.
    fn node_of(&self, cpu: CpuId) -> NodeId;
    /// The distance between nodes: 10 is local, 20 costs about twice as much (the ACPI SLIT's scale).
    fn distance(&self, from: NodeId, to: NodeId) -> u32;
    /// Turn interrupts off on this CPU; says whether they were on. Calls nest: only whoever hears "on" turns them on again.
    fn irqs_off(&self) -> bool;
    /// Turn interrupts on again.
    fn irqs_on(&self);
    /// Interrupt these CPUs; each then calls [`Manager::on_interrupt`](crate::Manager::on_interrupt) with
    /// interrupts off. Never called with this CPU in the set, and only with interrupts off. A target may have gone
    /// offline between the core's look and this call: then it has answered already, and the interrupt may be lost.
    ///
    /// What this CPU wrote before, the handler must see: x86's x2APIC wants `MFENCE; LFENCE` before its `WRMSR` (Intel SDM 3A
    /// 11.12.3), Arm's interrupt controller a `DSB` before the register is written. An interrupt that finds another on its
    /// way to the same CPU may go with that one, and then brings its sender's writes along too.
    fn interrupt(&self, targets: &CpuSet);
    /// A clock that never runs backwards on one CPU.
    fn now(&self) -> Nanos;
    /// Spin for about `ns` nanoseconds, with the spin hint (PAUSE), at least once. Interrupts on or off; spin locks may be
    /// held, so no other task may run here.
    fn pause(&self, ns: u32);
}

/// Where memory is, how a frame is filled, and how tables in it are written.
pub trait Memory {
    /// How the hardware wants page tables. Always the same answer.
    #[inline(always)]
    fn architecture(&self) -> Architecture {
        Architecture::X86_64
    }
    /// Where a physical address is mapped for the core: writable, on every CPU, whatever space is loaded, for as long as the
    /// manager lives. Each region that was handed over is mapped in one piece, as contiguous as it is physically, and
    /// pages lie at page borders.
    fn direct(&self, at: PhysAddr) -> *mut u8;
    /// Memory that is not there yet and may come: the region of this number, from 0; `None` behind the last one. They are sorted, begin and end at multiples of
    /// 1024 frames, and overlap nothing that is handed over at the start. Asked when the manager is made, and always with the same answer; by default there is none. Blocks of
    /// it come by [`FrameAllocator::add_block`](crate::FrameAllocator::add_block). Each region costs a zone, 512 bytes and 64 to 128 for each CPU, and each 4 MiB of it 8 bytes.
    ///
    /// A region has its place in [`direct`](Self::direct) from the start, in one piece; nothing need be mapped there before it comes.
    #[doc(alias = "hot-pluggable memory")]
    fn later_region(&self, nth: usize) -> Option<Region> {
        let _ = nth;
        None
    }
    /// Fill a frame with zeros.
    fn clear_frame(&self, frame: FrameNumber);
    /// Copy a frame. A program may write to `from` meanwhile; what is copied of that may be old or new.
    fn copy_frame(&self, from: FrameNumber, to: FrameNumber);
    /// Copies bytes of a frame out, from its byte `at` on: they lie inside it. Programs, and other CPUs by
    /// [`write_frame`](Self::write_frame), may write there meanwhile: then each byte is an old or a new one. The default is a plain
    /// copy, for platforms on which that cannot be; a kernel has an instruction for it.
    fn read_frame(&self, from: FrameNumber, at: usize, into: &mut [u8]) {
        debug_assert!(at + into.len() <= PAGE_SIZE as usize);
        let from = self.direct(PhysAddr(from.phys().0 + at as u64));
        // SAFETY: the bytes lie in a frame that the caller holds, which the direct map covers; `into` is no user memory.
        unsafe { from.copy_to(into.as_mut_ptr(), into.len()) }
    }
    /// The other way.
    fn write_frame(&self, to: FrameNumber, at: usize, from: &[u8]) {
        debug_assert!(at + from.len() <= PAGE_SIZE as usize);
        let to = self.direct(PhysAddr(to.phys().0 + at as u64));
        // SAFETY: as above.
        unsafe { to.copy_from(from.as_ptr(), from.len()) }
    }
}

/// How this CPU, or by hardware all of them, forget kernel addresses, and where their tables hang. Nothing to write where [`Config::vmap`](crate::Config::vmap)
/// is `None` and spaces, if there are any, have no kernel's half.
pub trait KernelTlb {
    /// Flush one page of the kernel range of [`Config`](crate::config::Config) on this CPU, whatever space is loaded: its entry is
    /// global (INVLPG reaches it). Never called without such a range.
    fn flush_kernel_page(&self, page: VirtAddr) {
        unreachable!("{page:?}: a platform with a kernel range says how to flush it")
    }
    /// Flush all entries of that kernel range on this CPU, which are global: by a change of CR4.PGE, or INVPCID of all
    /// contexts. More may go with them, also what is user's. INV-3 rests on it. Never called without such a range.
    fn flush_kernel(&self) {
        unreachable!("a platform with a kernel range says how to flush it")
    }
    /// Put the kernel's half into a new top-level table: first into the kernel's own, when the manager is made. The entries of
    /// the kernel range of [`Config`](crate::config::Config) are the core's: it sets them after this call. A CPU that has loaded no
    /// space yet must run on the kernel's own table before it uses an address of that range.
    fn prepare_root(&self, root: FrameNumber) {
        let _ = root;
    }
    /// The hardware by which one CPU flushes all, if the machine has that: `flush=broadcast` needs it. None by default. Always
    /// the same answer.
    fn broadcast(&self) -> Option<&dyn Broadcast> {
        None
    }
}

/// How this CPU uses address spaces, and forgets what it has seen of them.
pub trait UserTlb {
    /// Whether there are address spaces at all. Without them reclaim has nothing to do, and is not linked
    /// ([`Alone`](crate::Alone)).
    const SPACES: bool = true;
    /// Flush one page of the loaded space on this CPU (INVLPG; SFENCE.VMA with its address), of whatever size its entry is, and all
    /// that this CPU keeps of the tables on the way to it: these may be freed next (INV-9). The tables may stay where
    /// [`page_flush_reaches_tables`](crate::Architecture::page_flush_reaches_tables) says so. Interrupts are off.
    fn flush_page(&self, page: VirtAddr);
    /// Flush all non-global entries of the loaded space on this CPU, and what it keeps of its tables. Interrupts are off.
    #[doc(alias = "flush_tlb_local")]
    fn flush_space(&self);
    /// Load the address space rooted at `root` under `tag` on this CPU. With `keep`, entries that an
    /// earlier load left under this tag may stay; without it they must be gone when this returns. From then on this
    /// CPU walks the old tables no more (INV-9). Interrupts are off. `tag` is below [`tags`](Self::tags), and below 16.
    fn load_space(&self, root: FrameNumber, tag: u16, keep: bool);
    /// Address-space tags that each CPU can hold at once. With 1 (no tags) every load flushes.
    fn tags(&self) -> u16 {
        1
    }
    /// What this machine's translation hardware guarantees. Nothing by default. Always the same answer.
    fn guarantees(&self) -> Guarantees {
        Guarantees::none()
    }
}

/// What the kernel around the core does for its tasks: let them wait, find memory, reach devices. All of it has a default.
pub trait Services: Cpus {
    /// Wait until `ready` answers true; called with interrupts on and no spin lock held. Whoever makes it
    /// true then calls [`wake`](Self::wake) with the same key. A trivial platform spins here.
    ///
    /// Who sleeps must ask once more after whoever wakes could find it, or a wake-up is lost. `ready` may take what is
    /// waited for (the lock of a page): it is asked by the task that waits, and **never again once it has answered true**.
    fn wait(&self, key: WaitKey, ready: &mut dyn FnMut() -> bool) {
        let _ = key;
        while !ready() {
            self.pause(1);
        }
    }
    /// A long piece of work is at a place where another task may run first, if its turn has come. Interrupts on, no spin lock
    /// held; sleeping locks may be.
    fn cond_resched(&self) {}
    /// Wake those who wait with this key. Any context: interrupts may be off, spin locks of the core held, and with
    /// `vmap=lazy` it may come from an interrupt handler. It must not wait.
    fn wake(&self, key: WaitKey) {
        let _ = key;
    }
    /// No frame can be had for a task that may wait: reclaim has found nothing, and no CPU holds frames back. Whoever
    /// embeds the core picks a victim here, and returns true when the task should try again: memory will come, or has
    /// come. False, and the task gets [`Error::OutOfMemory`](crate::Error::OutOfMemory) at once, and nobody is asked again for
    /// this allocation: right for the victim itself.
    ///
    /// True is believed as long as anything is freed anywhere. After the twelfth in a row that nothing came of, with waits that
    /// double from one to the next, more than a second in all, the task gets its error too. For a block of more than eight
    /// frames, or a page that may come on some nodes alone ([`NodePolicy::Bind`](crate::NodePolicy::Bind)), twelve are the most in any case:
    /// what others free may never be one.
    ///
    /// Interrupts are on and no spin lock is held; it may wait, and may free frames, but must not ask for any. The task may
    /// have the VMAs of its space: no space is changed or ended here, and a victim ends by itself, later.
    fn out_of_memory(&self, short: &Shortage) -> bool {
        let _ = short;
        false
    }
    /// The caches of the embedding kernel's own, if they can give memory back where it is short: names, inodes, buffers. None by
    /// default. Always the same answer.
    #[doc(alias = "register_shrinker")]
    fn shrinker(&self) -> Option<&dyn Shrinker> {
        None
    }
    /// The devices behind file pages and swap, where there are any. Without it files are all holes, and pages that
    /// were written stay in memory.
    fn device(&self) -> Option<&dyn BlockDevice> {
        None
    }
}

/// For a laboratory that looks inside: nothing to write on a real machine, where all of it costs nothing.
pub trait Hooks {
    /// Called before every access of the core to memory that another CPU may write.
    #[inline(always)]
    fn touch(&self, at: *const u8, access: Access) {
        let _ = (at, access);
    }
    /// Whether this rule is to be broken, to see what follows. `false` on every real platform.
    #[inline(always)]
    fn broken(&self, rule: Rule) -> bool {
        let _ = rule;
        false
    }
    /// From here on this CPU's time is `scope`'s, until [`leave`](Self::leave) or a scope within: for a profile. Any context.
    /// Scopes nest, each context has its own, and one that waits is still in its scopes when it goes on, on
    /// whatever CPU. It may read the clock and must do nothing that the core could notice.
    #[inline(always)]
    fn enter(&self, scope: Scope) {
        let _ = scope;
    }
    /// The innermost scope ends.
    #[inline(always)]
    fn leave(&self, scope: Scope) {
        let _ = scope;
    }
    /// The spin lock at this address is held from here on, until it is [let go](Self::unlocked). Taking it was the time of `scope`. Any context but a handler;
    /// locks are not always let go in the reverse order.
    #[inline(always)]
    fn locked(&self, lock: *const u8, scope: Scope) {
        let _ = (lock, scope);
    }
    /// The spin lock at this address is let go in a moment.
    #[inline(always)]
    fn unlocked(&self, lock: *const u8) {
        let _ = lock;
    }
    /// Only with `--cfg loom`: one step on a word that CPUs share, at the place in the core that calls. A model plays it on
    /// a word of its own; who says nothing has it done on the word itself.
    ///
    /// # Errors
    /// What the word holds, where [`Step::Replace`](crate::step::Step::Replace) found something else.
    #[cfg(loom)]
    #[track_caller]
    fn model_step(
        &self,
        word: crate::step::Shared<'_>,
        step: crate::step::Step,
        order: core::sync::atomic::Ordering,
    ) -> Result<u64, u64> {
        word.play(step, order)
    }
    /// Only with `--cfg loom`: a full fence, at the place in the core that calls.
    #[cfg(loom)]
    #[track_caller]
    fn model_fence(&self) {
        core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    }
    /// Hear of an event. Called in any context, with locks held: note it and return.
    #[inline(always)]
    fn observe(&self, event: &Event) {
        let _ = event;
    }
}

/// What could not be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shortage {
    /// log2 of the frames in the block.
    pub order: u8,
    /// The node that was asked first; all others were asked too, but for those on which the page may not come
    /// ([`NodePolicy::Bind`](crate::NodePolicy::Bind)).
    pub node: NodeId,
    /// Those on which it may come: a victim that has memory on none of them is of no use. Nodes that there are not may be among them.
    pub nodes: NodeSet,
    /// What the block was for.
    pub kind: Kind,
    /// The group that is charged with all that it may have, where that is what is short: a victim is to be found in it. There may be memory
    /// in plenty otherwise.
    pub group: Option<GroupId>,
}

/// How an access touches memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An atomic read-modify-write.
    Rmw,
}

/// What somebody waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum WaitKey {
    /// The node's `kswapd` has work.
    Kswapd(NodeId),
    /// The readers of a sleeping lock have left it to a writer, by the lock's address.
    Lock(usize),
    /// The writer that readers of a sleeping lock stand behind has left.
    Readers(usize),
    /// The turn of the writer of a sleeping lock that has this ticket.
    Turn(usize, u32),
    /// A page that is being reclaimed or written out, by its frame.
    Page(FrameNumber),
    /// Enough of the kernel range waits for a purge.
    VmapPurge,
    /// Fewer pages are being written out.
    PageOut,
    /// More pages of files are dirty than [`Config::dirty_background`](crate::Config::dirty_background).
    Flusher,
    /// Something of the platform's own: a device, a timer.
    Own(u64),
}

/// What the translation hardware guarantees beyond the necessary. Policies that need one of these are
/// refused without it (PITFALLS 39).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guarantees {
    clean_write_walks: bool,
    unflushed_accessed: bool,
    accessed_before_cached: bool,
}

impl Guarantees {
    /// None of them.
    pub const fn none() -> Self {
        Guarantees { clean_write_walks: false, unflushed_accessed: false, accessed_before_cached: false }
    }

    /// Declares that a write through a cached clean entry walks the table again, and faults if the entry
    /// is gone; or faults at once. `unmap=batch-clean` and `unmap=batch` need it.
    ///
    /// # Safety
    /// The hardware must do so. x86-64 does (Intel SDM 3A 4.10.4.3; AMD64 APM 2 5.5.2). RISC-V with Svade faults; with Svadu it sets
    /// the dirty bit of the entry that is there, in a step that looks whether that permits the write (12.4.1).
    pub const unsafe fn with_clean_write_walks(mut self) -> Self {
        self.clean_write_walks = true;
        self
    }

    /// Declares that the accessed bit may be cleared without a flush: at worst it is not set again while
    /// the entry stays cached. `aging=no-flush` needs it.
    ///
    /// # Safety
    /// A stale accessed bit must do no harm beyond that.
    pub const unsafe fn with_unflushed_accessed(mut self) -> Self {
        self.unflushed_accessed = true;
        self
    }

    /// Declares that a CPU caches no entry of a page whose accessed bit is clear: it sets the bit before, in an atomic step
    /// that fails where the entry is not the one any more that it has read; or that it can use none. `unmap=quiet` needs it.
    ///
    /// # Safety
    /// The hardware must do so, also for what it reads ahead and for what it may have cached under another tag. Intel's does
    /// (SDM 3A 4.10.2.3), and Arm's where it manages the flag (DDI 0487, D8.5: a translation whose access flag is 0 is not
    /// held in a TLB). RISC-V's faults (Svade) or sets the bit before (Svadu). AMD says it less plainly (APM 2 5.4.2): `docs/quiet.md` says what to look at.
    pub const unsafe fn with_accessed_before_cached(mut self) -> Self {
        self.accessed_before_cached = true;
        self
    }

    /// See [`with_accessed_before_cached`](Self::with_accessed_before_cached).
    pub const fn accessed_before_cached(self) -> bool {
        self.accessed_before_cached
    }

    /// See [`with_clean_write_walks`](Self::with_clean_write_walks).
    pub const fn clean_write_walks(self) -> bool {
        self.clean_write_walks
    }

    /// See [`with_unflushed_accessed`](Self::with_unflushed_accessed).
    pub const fn unflushed_accessed(self) -> bool {
        self.unflushed_accessed
    }
}
