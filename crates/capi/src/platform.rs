//! The machine under the core, as a struct of functions in C.

use core::ffi::{CStr, c_void};

use quietmm::addr::{Nanos, PAGE_SIZE, PhysAddr};
use quietmm::platform::{
    self, BlockDevice, Broadcast, Cpus, Guarantees, Hooks, KernelTlb, Memory, Services, UserTlb,
};
use quietmm::{CpuId, CpuSet, FrameNumber, NodeId, PageNumber, PageRange, VirtAddr};

use crate::config::Region;
use crate::device::Device;
use crate::group::Group;

/// A half-open range of virtual pages: addresses divided by 4096.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Range {
    /// The first page.
    pub first: u64,
    /// How many.
    pub pages: u64,
}

impl From<Range> for PageRange {
    fn from(range: Range) -> Self {
        PageRange::new(PageNumber(range.first), range.pages)
    }
}

impl From<PageRange> for Range {
    fn from(range: PageRange) -> Self {
        Range { first: range.start.0, pages: range.pages }
    }
}

/// What a program or the kernel tries to do with a page.
#[repr(C)]
pub enum Access {
    /// Read.
    Read = 0,
    /// Write.
    Write = 1,
    /// Fetch an instruction.
    Execute = 2,
}

/// How page tables are written.
#[repr(C)]
pub enum Architecture {
    /// x86-64 with four levels.
    X86_64 = 0,
    /// RISC-V's Sv48, where a fault sets accessed and dirty bits.
    Sv48 = 1,
    /// The same, where hardware sets them (Svadu).
    Sv48Adu = 2,
}

/// What the translation hardware guarantees beyond the necessary, as bits. A wrong one costs memory safety.
#[repr(C)]
pub enum Guarantee {
    /// A write through a cached entry whose dirty bit is clear walks the table again, and faults if the entry is gone. x86-64 does.
    CleanWriteWalks = 1,
    /// An accessed bit that is cleared without a flush does no worse than stay clear while the entry is cached. x86-64.
    UnflushedAccessed = 2,
    /// A CPU caches no entry of a page whose accessed bit is clear, and sets it in a step that fails where the entry has changed.
    AccessedBeforeCached = 4,
}

/// What somebody waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct WaitKey {
    /// One of `enum quietmm_wait_kind`.
    pub kind: u32,
    /// The ticket, of a turn.
    pub ticket: u32,
    /// The node, lock, frame, or the platform's own number.
    pub what: u64,
}

/// The kinds of what somebody waits for. Two keys are the same where all three fields are.
#[repr(C)]
pub enum WaitKind {
    /// A node's kswapd has work.
    Kswapd = 0,
    /// The readers of a sleeping lock have left it.
    Lock = 1,
    /// The writer of a sleeping lock has left it.
    Readers = 2,
    /// The turn of one writer of a sleeping lock.
    Turn = 3,
    /// A page that is being reclaimed or written out.
    Page = 4,
    /// Enough of the kernel range waits for a purge.
    VmapPurge = 5,
    /// Fewer pages are being written out.
    PageOut = 6,
    /// Something of the platform's own.
    Own = 7,
    /// Too many pages of files are dirty.
    Flusher = 8,
}

impl From<platform::WaitKey> for WaitKey {
    fn from(key: platform::WaitKey) -> Self {
        use platform::WaitKey as K;
        let (kind, what, ticket) = match key {
            K::Kswapd(node) => (WaitKind::Kswapd, node.0.into(), 0),
            K::Lock(at) => (WaitKind::Lock, at as u64, 0),
            K::Readers(at) => (WaitKind::Readers, at as u64, 0),
            K::Turn(at, ticket) => (WaitKind::Turn, at as u64, ticket),
            K::Page(frame) => (WaitKind::Page, frame.0.into(), 0),
            K::VmapPurge => (WaitKind::VmapPurge, 0, 0),
            K::PageOut => (WaitKind::PageOut, 0, 0),
            K::Flusher => (WaitKind::Flusher, 0, 0),
            K::Own(what) => (WaitKind::Own, what, 0),
        };
        WaitKey { kind: kind as u32, ticket, what }
    }
}

/// What a frame is used for.
#[repr(C)]
pub enum Kind {
    /// The kernel's own, or the core's.
    Kernel = 4,
    /// A page table.
    Table = 5,
    /// Memory of a space's own.
    Anon = 6,
    /// A page of a file.
    File = 7,
}

/// What could not be had.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Shortage {
    /// One of `enum quietmm_kind`.
    pub kind: u32,
    /// log2 of the frames in the block.
    pub order: u32,
    /// The node that was asked first; all others were asked too, but for those on which the page may not come.
    pub node: u32,
    /// Those on which it may come, bit n for node n: a victim that has memory on none of them is of no use.
    pub nodes: u64,
    /// The group that has all that it may have, where that is what is short: a victim is to be found in it. All zeros: memory is short.
    pub group: Group,
}

/// How much of what the kernel keeps for itself is to go: `scanned` of `pages`, rounded up.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Shrink {
    /// The node on which memory is short. Frames of others are welcome too.
    pub node: u32,
    /// So many pages of programs and files were looked at,
    pub scanned: u64,
    /// out of so many. At least one.
    pub pages: u64,
}

/// What is flushed on every CPU.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Everywhere {
    /// One of `enum quietmm_everywhere_kind`.
    pub kind: u32,
    /// The frame of the space's top table, where it is about one space.
    pub root: u32,
    /// The pages, where it is about some.
    pub range: Range,
}

/// The kinds of flushes on every CPU.
#[repr(C)]
pub enum EverywhereKind {
    /// Pages of one space, of whatever size their entries are, and all that CPUs keep of the tables on the way to them.
    Pages = 0,
    /// All of one space, and of its tables.
    Space = 1,
    /// All of every space, and of their tables.
    Spaces = 2,
    /// Pages of the kernel range, whose entries are global.
    KernelPages = 3,
    /// All of the kernel range.
    Kernel = 4,
}

impl From<platform::Everywhere> for Everywhere {
    fn from(what: platform::Everywhere) -> Self {
        use platform::Everywhere as E;
        let none = Range { first: 0, pages: 0 };
        let (kind, root, range) = match what {
            E::Pages { root, range } => (EverywhereKind::Pages, root.0, range.into()),
            E::Space { root } => (EverywhereKind::Space, root.0, none),
            E::Spaces => (EverywhereKind::Spaces, 0, none),
            E::KernelPages(range) => (EverywhereKind::KernelPages, 0, range.into()),
            E::Kernel => (EverywhereKind::Kernel, 0, none),
        };
        Everywhere { kind: kind as u32, root, range }
    }
}

/// The machine: what the kernel brings. Functions get `context`, and are called from every CPU at once.
///
/// "Off" and "on" are interrupts when the core calls. The guide, docs/embedding.md, says of each what must be true when it returns,
/// and what breaks otherwise: the core's memory safety rests on it. A function may be NULL where it says so, else `quietmm_init`
/// refuses. A CPU that is inside the core switches no task but in `wait`, `cond_resched`, `out_of_memory`, `shrink` and the device's functions.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Platform {
    /// The first argument of each function.
    pub context: *mut c_void,
    /// One more than the highest CPU number that can ever come online: 1 to 4096.
    pub possible_cpus: u32,
    /// Tags of address spaces that each CPU can hold at once. 0 or 1: none, every load flushes.
    pub tags: u16,
    /// What the hardware guarantees: bits of `enum quietmm_guarantee`.
    pub guarantees: u32,
    /// How page tables are written: one of `enum quietmm_architecture`.
    pub architecture: u32,

    /// The CPU that executes this, below `possible_cpus`. On and off, all the time.
    pub this_cpu: Option<unsafe extern "C" fn(context: *mut c_void) -> u32>,
    /// Whether a CPU answers interrupts from now on. In `quietmm_init` only: later CPUs call `quietmm_cpu_online`.
    pub is_online: Option<unsafe extern "C" fn(context: *mut c_void, cpu: u32) -> bool>,
    /// The node of a CPU, always the same, 0 to 63. NULL: there is one node.
    pub node_of: Option<unsafe extern "C" fn(context: *mut c_void, cpu: u32) -> u32>,
    /// The distance between nodes: 10 is local. NULL: 10, and 20 to others.
    pub distance: Option<unsafe extern "C" fn(context: *mut c_void, from: u32, to: u32) -> u32>,
    /// Turn interrupts off on this CPU; says whether they were on.
    pub irqs_off: Option<unsafe extern "C" fn(context: *mut c_void) -> bool>,
    /// Turn them on again.
    pub irqs_on: Option<unsafe extern "C" fn(context: *mut c_void)>,
    /// Interrupt these CPUs, never this one; each then calls `quietmm_on_interrupt`, off. At most 64 at a time: more come with
    /// further calls. Off, and spin locks may be held. What this CPU wrote before, the handler must see. May be NULL where there is one CPU.
    pub interrupt: Option<unsafe extern "C" fn(context: *mut c_void, cpus: *const u16, count: usize)>,
    /// A clock in nanoseconds that never runs backwards on one CPU.
    pub now: Option<unsafe extern "C" fn(context: *mut c_void) -> u64>,
    /// Spin for about so many nanoseconds. On and off, spin locks may be held: no other task may run.
    pub pause: Option<unsafe extern "C" fn(context: *mut c_void, ns: u32)>,

    /// Where a physical address is mapped for the core, writable, for ever. Never NULL.
    pub direct: Option<unsafe extern "C" fn(context: *mut c_void, at: u64) -> *mut c_void>,
    /// Fill a frame with zeros.
    pub clear_frame: Option<unsafe extern "C" fn(context: *mut c_void, frame: u32)>,
    /// Copy a frame. A program may write to `from` meanwhile.
    pub copy_frame: Option<unsafe extern "C" fn(context: *mut c_void, from: u32, to: u32)>,
    /// Copy bytes out of a frame, from its byte `at` on. Programs may write there meanwhile. NULL: a plain copy.
    pub read_frame: Option<
        unsafe extern "C" fn(context: *mut c_void, from: u32, at: usize, into: *mut c_void, len: usize),
    >,
    /// The other way. NULL: a plain copy.
    pub write_frame: Option<
        unsafe extern "C" fn(context: *mut c_void, to: u32, at: usize, from: *const c_void, len: usize),
    >,

    /// Memory that is not there yet and may come by `quietmm_memory_add`: fills in the region of this number, from 0; false behind the last one. Sorted, of whole blocks
    /// of 1024 frames, each at a multiple of 1024, and none of them handed over. In `quietmm_init` only, several times. NULL: none.
    pub later_region:
        Option<unsafe extern "C" fn(context: *mut c_void, nth: usize, region: *mut Region) -> bool>,

    /// Flush one page of the kernel range on this CPU, whose entry is global. Off. May be NULL without `vmap`.
    pub flush_kernel_page: Option<unsafe extern "C" fn(context: *mut c_void, page: u64)>,
    /// Flush all of the kernel range on this CPU. Off. May be NULL without `vmap`.
    pub flush_kernel: Option<unsafe extern "C" fn(context: *mut c_void)>,
    /// Put the kernel's half into a new top-level table. NULL: there is none.
    pub prepare_root: Option<unsafe extern "C" fn(context: *mut c_void, root: u32)>,

    /// Flush one page of the loaded space on this CPU (INVLPG), and what it keeps of the tables on the way to it. Off.
    pub flush_page: Option<unsafe extern "C" fn(context: *mut c_void, page: u64)>,
    /// Flush all non-global entries of the loaded space on this CPU, and what it keeps of its tables. Off.
    pub flush_space: Option<unsafe extern "C" fn(context: *mut c_void)>,
    /// Load the space whose top table is the frame `root` under `tag`. Without `keep` no entry of this tag may be left. Off.
    pub load_space: Option<unsafe extern "C" fn(context: *mut c_void, root: u32, tag: u16, keep: bool)>,

    /// Wait until `ready(with)` answers true, and never ask it again then. On, no spin lock held; other tasks may run. Whoever makes it
    /// true calls `wake` with the same key. NULL: spin.
    pub wait: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            key: WaitKey,
            ready: unsafe extern "C" fn(with: *mut c_void) -> bool,
            with: *mut c_void,
        ),
    >,
    /// All who wait with this key look again. Any context; it must not wait. NULL with `wait`.
    pub wake: Option<unsafe extern "C" fn(context: *mut c_void, key: WaitKey)>,
    /// Another task may run first, if its turn has come. On, no spin lock held. May be NULL.
    pub cond_resched: Option<unsafe extern "C" fn(context: *mut c_void)>,
    /// No frame can be had. Pick a victim and answer true: try again; false: this task gets the error. NULL: false.
    pub out_of_memory: Option<unsafe extern "C" fn(context: *mut c_void, short_of: Shortage) -> bool>,
    /// Memory is short: give up this share of what the kernel keeps for itself, with `quietmm_frames_free`, and answer how many frames went
    /// back. On, no spin lock held; the task may hold whatever the kernel held when it asked for memory. NULL: there are no such caches.
    pub shrink: Option<unsafe extern "C" fn(context: *mut c_void, ask: Shrink) -> u32>,

    /// Begin a flush on every CPU by hardware (INVLPGB). NULL: there is no such hardware.
    pub broadcast: Option<unsafe extern "C" fn(context: *mut c_void, what: Everywhere)>,
    /// Wait until all that this CPU has begun are done on every CPU (TLBSYNC). NULL with `broadcast`.
    pub broadcast_sync: Option<unsafe extern "C" fn(context: *mut c_void)>,

    /// What is behind file pages and swap. Without `read` and `write` there is none: files are all holes, and pages that were
    /// written stay in memory.
    pub device: Device,
}

/// A platform whose functions are all there.
pub(crate) struct Machine(pub(crate) Platform);

// SAFETY: `quietmm_init` hands the embedder's promise on: the header's comments and the guide say what each function must do.
unsafe impl platform::Platform for Machine {}

impl Machine {
    /// The name of the first function that is missing, if one is.
    pub fn of(platform: &Platform, config: &quietmm::Config) -> Result<Machine, &'static CStr> {
        let p = platform;
        let (many, kernel) = (p.possible_cpus > 1, config.vmap.is_some());
        let broadcasts = p.broadcast.is_some() != p.broadcast_sync.is_some();
        let waits = p.wait.is_some() && p.wake.is_none();
        let device = p.device.read.is_some() != p.device.write.is_some();
        let missing = [
            (p.this_cpu.is_none(), c"this_cpu"),
            (p.is_online.is_none(), c"is_online"),
            (p.irqs_off.is_none(), c"irqs_off"),
            (p.irqs_on.is_none(), c"irqs_on"),
            (p.interrupt.is_none() && many, c"interrupt"),
            (p.now.is_none(), c"now"),
            (p.pause.is_none(), c"pause"),
            (p.direct.is_none(), c"direct"),
            (p.clear_frame.is_none(), c"clear_frame"),
            (p.copy_frame.is_none(), c"copy_frame"),
            (p.flush_kernel_page.is_none() && kernel, c"flush_kernel_page"),
            (p.flush_kernel.is_none() && kernel, c"flush_kernel"),
            (p.flush_page.is_none(), c"flush_page"),
            (p.flush_space.is_none(), c"flush_space"),
            (p.load_space.is_none(), c"load_space"),
            (waits, c"wake"),
            (broadcasts, c"broadcast or broadcast_sync"),
            (device, c"read or write of the device"),
        ];
        match missing.iter().find(|(missing, _)| *missing) {
            Some((_, name)) => Err(name),
            None => Ok(Machine(*platform)),
        }
    }
}

/// Calls one of the platform's functions.
macro_rules! call {
    ($machine:ident.$($function:ident).+($($argument:expr),*)) => {
        match $machine.0.$($function).+ {
            // SAFETY: the embedder promises in `quietmm_init` that it is such a function, and that it may be called so.
            Some(function) => unsafe { function($machine.0.context $(, $argument)*) },
            None => unreachable!("{} was looked for in quietmm_init", stringify!($($function).+)),
        }
    };
}
pub(crate) use call;

impl Cpus for Machine {
    #[inline]
    fn this_cpu(&self) -> CpuId {
        let cpu = call!(self.this_cpu());
        // One that is not there would be an index beyond all tables.
        assert!(
            cpu < self.0.possible_cpus,
            "this_cpu() says {cpu}, and there are {} CPUs",
            self.0.possible_cpus
        );
        CpuId(cpu as u16)
    }
    #[inline]
    fn possible_cpus(&self) -> u32 {
        self.0.possible_cpus
    }
    fn is_online(&self, cpu: CpuId) -> bool {
        call!(self.is_online(cpu.0.into()))
    }
    #[inline]
    fn node_of(&self, cpu: CpuId) -> NodeId {
        if self.0.node_of.is_none() {
            return NodeId(0);
        }
        let node = call!(self.node_of(cpu.0.into()));
        NodeId(u16::try_from(node).unwrap_or(u16::MAX))
    }
    fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        if self.0.distance.is_none() {
            return if from == to { 10 } else { 20 };
        }
        call!(self.distance(from.0.into(), to.0.into()))
    }
    fn irqs_off(&self) -> bool {
        call!(self.irqs_off())
    }
    fn irqs_on(&self) {
        call!(self.irqs_on());
    }
    fn interrupt(&self, targets: &CpuSet) {
        let (mut some, mut count) = ([0_u16; 64], 0);
        for target in targets.iter() {
            some[count] = target.0;
            count += 1;
            if count == some.len() {
                call!(self.interrupt(some.as_ptr(), count));
                count = 0;
            }
        }
        if count > 0 {
            call!(self.interrupt(some.as_ptr(), count));
        }
    }
    fn now(&self) -> Nanos {
        Nanos(call!(self.now()))
    }
    fn pause(&self, ns: u32) {
        call!(self.pause(ns));
    }
}

impl Memory for Machine {
    fn architecture(&self) -> quietmm::Architecture {
        match self.0.architecture {
            1 => quietmm::Architecture::Sv48,
            2 => quietmm::Architecture::Sv48Adu,
            _ => quietmm::Architecture::X86_64,
        }
    }
    #[inline]
    fn direct(&self, at: PhysAddr) -> *mut u8 {
        let mapped = call!(self.direct(at.0)).cast::<u8>();
        assert!(!mapped.is_null(), "direct({:#x}) is NULL", at.0);
        mapped
    }
    fn later_region(&self, nth: usize) -> Option<quietmm::Region> {
        self.0.later_region?;
        let mut region = Region { start: 0, frames: 0, node: 0 };
        call!(self.later_region(nth, &raw mut region)).then(|| region.into())
    }
    fn clear_frame(&self, frame: FrameNumber) {
        call!(self.clear_frame(frame.0));
    }
    fn copy_frame(&self, from: FrameNumber, to: FrameNumber) {
        call!(self.copy_frame(from.0, to.0));
    }
    fn read_frame(&self, from: FrameNumber, at: usize, into: &mut [u8]) {
        debug_assert!(at + into.len() <= PAGE_SIZE as usize);
        if self.0.read_frame.is_some() {
            return call!(self.read_frame(from.0, at, into.as_mut_ptr().cast(), into.len()));
        }
        let from = self.direct(PhysAddr(from.phys().0 + at as u64));
        // SAFETY: the bytes lie in a frame that the caller holds, which the direct map covers; `into` is no user memory.
        unsafe { from.copy_to(into.as_mut_ptr(), into.len()) }
    }
    fn write_frame(&self, to: FrameNumber, at: usize, from: &[u8]) {
        debug_assert!(at + from.len() <= PAGE_SIZE as usize);
        if self.0.write_frame.is_some() {
            return call!(self.write_frame(to.0, at, from.as_ptr().cast(), from.len()));
        }
        let to = self.direct(PhysAddr(to.phys().0 + at as u64));
        // SAFETY: as above.
        unsafe { to.copy_from(from.as_ptr(), from.len()) }
    }
}

impl KernelTlb for Machine {
    fn flush_kernel_page(&self, page: VirtAddr) {
        call!(self.flush_kernel_page(page.page().0));
    }
    fn flush_kernel(&self) {
        call!(self.flush_kernel());
    }
    fn prepare_root(&self, root: FrameNumber) {
        if self.0.prepare_root.is_some() {
            call!(self.prepare_root(root.0));
        }
    }
    fn broadcast(&self) -> Option<&dyn Broadcast> {
        self.0.broadcast.is_some().then_some(self as _)
    }
}

// SAFETY: the embedder's promise, as above.
unsafe impl Broadcast for Machine {
    fn flush(&self, what: platform::Everywhere) {
        call!(self.broadcast(what.into()));
    }
    fn sync(&self) {
        call!(self.broadcast_sync());
    }
}

impl UserTlb for Machine {
    fn flush_page(&self, page: VirtAddr) {
        call!(self.flush_page(page.page().0));
    }
    fn flush_space(&self) {
        call!(self.flush_space());
    }
    fn load_space(&self, root: FrameNumber, tag: u16, keep: bool) {
        call!(self.load_space(root.0, tag, keep));
    }
    fn tags(&self) -> u16 {
        self.0.tags.max(1)
    }
    fn guarantees(&self) -> Guarantees {
        let given = |which: Guarantee| self.0.guarantees & which as u32 != 0;
        let mut all = Guarantees::none();
        // SAFETY: the embedder's promise, each.
        unsafe {
            if given(Guarantee::CleanWriteWalks) {
                all = all.with_clean_write_walks();
            }
            if given(Guarantee::UnflushedAccessed) {
                all = all.with_unflushed_accessed();
            }
            if given(Guarantee::AccessedBeforeCached) {
                all = all.with_accessed_before_cached();
            }
        }
        all
    }
}

/// What a task waits for, and whether it has come.
struct Waiting<'a> {
    ready: &'a mut dyn FnMut() -> bool,
    came: bool,
}

unsafe extern "C" fn ready(with: *mut c_void) -> bool {
    // SAFETY: it is the `Waiting` of the call of `wait` that has not returned yet.
    let waiting = unsafe { &mut *with.cast::<Waiting<'_>>() };
    // It may have taken a lock: a second time it would wait for itself.
    assert!(!waiting.came, "wait() asks again what has answered true");
    waiting.came = (waiting.ready)();
    waiting.came
}

impl Services for Machine {
    fn wait(&self, key: platform::WaitKey, asks: &mut dyn FnMut() -> bool) {
        if self.0.wait.is_none() {
            while !asks() {
                self.pause(1);
            }
            return;
        }
        let mut waiting = Waiting { ready: asks, came: false };
        call!(self.wait(key.into(), ready, (&raw mut waiting).cast()));
        assert!(waiting.came, "wait() returned before what it waited for: {key:?}");
    }
    fn cond_resched(&self) {
        if self.0.cond_resched.is_some() {
            call!(self.cond_resched());
        }
    }
    fn wake(&self, key: platform::WaitKey) {
        if self.0.wake.is_some() {
            call!(self.wake(key.into()));
        }
    }
    fn out_of_memory(&self, short: &platform::Shortage) -> bool {
        let short = Shortage {
            kind: short.kind as u32,
            order: short.order.into(),
            node: short.node.0.into(),
            nodes: short.nodes.iter().fold(0, |bits, node| bits | 1 << node.0),
            group: short.group.into(),
        };
        self.0.out_of_memory.is_some() && call!(self.out_of_memory(short))
    }
    fn shrinker(&self) -> Option<&dyn platform::Shrinker> {
        self.0.shrink.is_some().then_some(self as _)
    }
    fn device(&self) -> Option<&dyn BlockDevice> {
        self.0.device.read.is_some().then_some(self as _)
    }
}

impl platform::Shrinker for Machine {
    fn shrink(&self, ask: &platform::Shrink) -> u32 {
        let ask = Shrink { node: ask.node.0.into(), scanned: ask.scanned, pages: ask.pages };
        call!(self.shrink(ask))
    }
}

impl Hooks for Machine {}
