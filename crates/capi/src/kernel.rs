//! The manager: made once, used from every CPU.

use core::ffi::c_char;
use core::mem::MaybeUninit;

use quietmm::{Counter, Manager, NodeId};

use crate::config::{Config, Region};
use crate::error::{Error, number};
use crate::platform::{Architecture, Machine, Platform};
use crate::text;

/// The memory manager. It lies in the storage that `quietmm_init` was given, for ever.
pub struct Kernel {
    machine: Machine,
    mm: MaybeUninit<Manager<'static, Machine>>,
}

impl Kernel {
    pub(crate) fn mm(&self) -> &Manager<'static, Machine> {
        // SAFETY: C has no other pointer to one than from `quietmm_init`, which has made it.
        unsafe { self.mm.assume_init_ref() }
    }
}

/// How many bytes of storage `quietmm_init` wants. Any context.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_storage_size() -> usize {
    size_of::<Kernel>()
}

/// Of what its address must be a multiple. Any context.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_storage_align() -> usize {
    align_of::<Kernel>()
}

/// Takes over memory. Once, on one CPU, before any other uses the manager; interrupts may be on. The platform's struct is copied.
///
/// `regions` are `count` runs of memory, sorted and disjoint, below 8 TiB. The core takes at most 64 bytes of each frame for its
/// books, and some 3 KiB for each possible CPU. If it is refused, `why`, unless it is NULL, gets the reason in words, with a zero byte, cut off
/// after `room` bytes.
///
/// BAD_STORAGE, NO_CALLBACK, BAD_POLICY, BAD_VALUE, BAD_SETTING, GUARANTEE_MISSING, BAD_REGION, BAD_TOPOLOGY, TOO_LITTLE_MEMORY: nothing is kept, and the
/// storage may be used again.
///
/// # Safety
/// `storage` is `size` bytes that are the core's from now on. The regions' memory is nobody else's, and goes to one manager, once.
/// Each function of the platform keeps its promise, for ever: the core's memory safety rests on it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quietmm_init(
    storage: *mut u8,
    size: usize,
    platform: &Platform,
    regions: *const Region,
    count: usize,
    config: &Config,
    why: *mut c_char,
    room: usize,
    made: &mut MaybeUninit<&'static Kernel>,
) -> Error {
    // SAFETY: the caller's promise, each time.
    let tell = |text: core::fmt::Arguments<'_>| unsafe { text::fill(why, room, text) };
    let at = storage.cast::<MaybeUninit<Kernel>>();
    if at.is_null() || !at.is_aligned() || size < size_of::<Kernel>() {
        let (size, align) = (size_of::<Kernel>(), align_of::<Kernel>());
        tell(format_args!("the storage must be {size} bytes or more, at a multiple of {align}"));
        return Error::BadStorage;
    }
    if platform.architecture > Architecture::Sv48Adu as u32 {
        tell(format_args!("{} is no architecture", platform.architecture));
        return Error::BadValue;
    }
    // SAFETY: the caller's promise.
    let config = match unsafe { config.read() } {
        Ok(config) => config,
        Err(error) => {
            match error {
                Some(error) => tell(format_args!("{error}")),
                None => tell(format_args!("the policy is no text")),
            }
            return Error::BadPolicy;
        }
    };
    let machine = match Machine::of(platform, &config) {
        Ok(machine) => machine,
        Err(missing) => {
            tell(format_args!("the platform lacks {}", missing.to_str().unwrap_or_default()));
            return Error::NoCallback;
        }
    };
    if regions.is_null() && count > 0 {
        tell(format_args!("regions is NULL"));
        return Error::BadRegion;
    }
    // The core takes no more.
    let mut handed = [quietmm::Region { start: quietmm::FrameNumber(0), frames: 0, node: NodeId(0) }; 255];
    let Some(handed) = handed.get_mut(..count) else {
        tell(format_args!("{count} regions: at most 255"));
        return Error::BadRegion;
    };
    for (n, region) in handed.iter_mut().enumerate() {
        // SAFETY: `regions` are `count` of them.
        *region = unsafe { regions.add(n).read() }.into();
    }
    // SAFETY: it is large enough, aligned, and ours.
    let kernel = unsafe { &mut *at };
    let kernel = kernel.write(Kernel { machine, mm: MaybeUninit::uninit() });
    let kernel: *mut Kernel = kernel;
    // SAFETY: the machine stays where it is for ever, unchanged; only the field beside it is written yet.
    // The regions are the kernel's to hand over, once: it promises so.
    let made_now = unsafe { Manager::new(&(*kernel).machine, handed, config) };
    match made_now {
        Ok(mm) => {
            // SAFETY: nobody reads this field yet.
            unsafe { (&raw mut (*kernel).mm).write(MaybeUninit::new(mm)) };
            // SAFETY: it is whole, and is never written again.
            made.write(unsafe { &*kernel });
            Error::Ok
        }
        Err(error) => {
            tell(format_args!("{error}"));
            error.into()
        }
    }
}

/// For the handler of the interrupt that `interrupt` sends. Off; it does not wait. It flushes and acknowledges before it returns: the sender spins.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_on_interrupt(mm: &Kernel) {
    mm.mm().on_interrupt();
}

/// Serves what other CPUs want of this one: for a kernel that spins for a lock of its own with interrupts off. Any context but a
/// non-maskable interrupt.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_serve(mm: &Kernel) {
    mm.mm().serve();
}

/// For the handler of each CPU's periodic timer, off. With the policies unmap=quiet, free=sweep and vmap=sweep; with others it does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_tick(mm: &Kernel) {
    mm.mm().tick();
}

/// In an idle loop before the halt, off: with vmap=sweep other CPUs need not wait for this one. Optional.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_enter_idle(mm: &Kernel) {
    mm.mm().enter_idle();
}

/// After the halt, before anything of the kernel range is used. Any context.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_leave_idle(mm: &Kernel) {
    mm.mm().leave_idle();
}

/// This CPU comes: before any other call on it, on the kernel's own root. On or off. ALREADY_ONLINE.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_cpu_online(mm: &Kernel) -> Error {
    number(mm.mm().cpu_online())
}

/// This CPU goes: in its idle task, on; it may wait. After it, it calls nothing of the core but `quietmm_cpu_online`. NOT_ONLINE.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_cpu_offline(mm: &Kernel) -> Error {
    number(mm.mm().cpu_offline())
}

/// Whether a CPU is online: a moment's truth. Any context.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_is_online(mm: &Kernel, cpu: u32) -> bool {
    cpu < mm.machine.0.possible_cpus && mm.mm().is_online(quietmm::CpuId(cpu as u16))
}

/// How many CPUs are online: a moment's truth. Any context.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_online_cpus(mm: &Kernel) -> u32 {
    mm.mm().online_cpus()
}

/// Reclaims ahead of need on a node: the body of the endless loop of a kernel thread, which has called `quietmm_enter_lazy`. On; it
/// waits until there is work. NO_SUCH_NODE.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_kswapd(mm: &Kernel, node: u16) -> Error {
    number(mm.mm().kswapd(NodeId(node)))
}

/// From now on pages that reclaim would take out of memory on a node move to node `to`, while that has room; to none with -1. On; it may wait. NO_SUCH_NODE; BAD_SETTING for
/// a circle; OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_set_demotion(mm: &Kernel, node: u16, to: i32) -> Error {
    let to = match u16::try_from(to) {
        Ok(to) => Some(NodeId(to)),
        Err(_) if to == -1 => None,
        Err(_) => return Error::NoSuchNode,
    };
    number(mm.mm().frames().set_demotion(NodeId(node), to))
}

/// Where the pages of a node move to; -1: nowhere. Any context.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_demotion(mm: &Kernel, node: u16) -> i32 {
    mm.mm().frames().demotion(NodeId(node)).map_or(-1, |to| to.0.into())
}

/// Writes back files of which a page is dirty for too long, or as long as too many are, as the configuration says: for a kernel thread, every
/// few seconds, and when it is woken with `QUIETMM_WAIT_KIND_FLUSHER`. Returns how many pages were written. On; it may wait.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_flusher(mm: &Kernel) -> u64 {
    mm.mm().flusher()
}

/// Pages of files that are dirty, where the configuration has them counted. Any context.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_dirty_pages(mm: &Kernel) -> u64 {
    mm.mm().dirty_pages()
}

/// Pages on the lists that reclaim looks at.
#[repr(C)]
pub struct LruPages {
    /// Anonymous pages and those of memory files that were not used lately.
    pub inactive_anon: u64,
    /// The others of these.
    pub active_anon: u64,
    /// Cached pages of files that were not used lately.
    pub inactive_file: u64,
    /// The others of these.
    pub active_file: u64,
}

/// How many pages reclaim can look at, of all nodes and groups. A sum of moments. Any context.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_lru_pages(mm: &Kernel, pages: &mut MaybeUninit<LruPages>) {
    let quietmm::LruPages { inactive_anon, active_anon, inactive_file, active_file } =
        mm.mm().frames().lru_pages();
    pages.write(LruPages { inactive_anon, active_anon, inactive_file, active_file });
}

/// Puts the pages that this CPU has gathered onto the LRU lists. Any context but a handler.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_drain_lru_batch(mm: &Kernel) {
    mm.mm().drain_lru_batch();
}

/// The same for every CPU. On; it waits for those that it interrupts.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_drain_lru_batches(mm: &Kernel) {
    mm.mm().drain_lru_batches();
}

/// Begins a sweep, if none is under way and the policy wants any: each CPU flushes once, at its next tick. Any context.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_begin_sweep(mm: &Kernel) {
    mm.mm().begin_sweep();
}

/// Whether the last sweep is over. Any context but a handler.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_sweep_is_over(mm: &Kernel) -> bool {
    mm.mm().sweep_is_over()
}

/// How many counters there are. Any context.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_counters() -> usize {
    Counter::ALL.len()
}

/// The name of a counter, by its place: into `room` bytes, with a zero byte. BAD_VALUE beyond the last. Any context.
///
/// # Safety
/// `into` has `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quietmm_counter_name(place: usize, into: *mut c_char, room: usize) -> Error {
    let Some(counter) = Counter::ALL.get(place) else { return Error::BadValue };
    // SAFETY: the caller's promise.
    unsafe { text::fill(into, room, format_args!("{}", counter.name())) };
    Error::Ok
}

/// A counter by its name ("pgfault", "ipis_sent"), summed over all CPUs. While they run it is a sum of moments. Any context. NO_SUCH_COUNTER.
///
/// # Safety
/// `name` ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quietmm_counter(
    mm: &Kernel,
    name: *const c_char,
    value: &mut MaybeUninit<u64>,
) -> Error {
    // SAFETY: the caller's promise.
    let name = unsafe { text::read(name) };
    match Counter::ALL.iter().find(|counter| Some(counter.name()) == name) {
        Some(&counter) => {
            value.write(mm.mm().counter(counter));
            Error::Ok
        }
        None => Error::NoSuchCounter,
    }
}

/// What a look at every frame found.
#[repr(C)]
pub struct Audit {
    /// Frames handed over.
    pub total: u64,
    /// Taken at start for bookkeeping.
    pub reserved: u64,
    /// Free.
    pub free: u64,
    /// Offline, or isolated on the way there.
    pub offline: u64,
    /// Of those that are free, on per-CPU lists.
    pub pcp: u64,
    /// Page tables.
    pub tables: u64,
    /// In the core's pools and page-cache indexes.
    pub pools: u64,
    /// Allocated by the kernel, all frames of each block.
    pub kernel: u64,
    /// Pages of spaces' own memory.
    pub anon: u64,
    /// Cached file pages.
    pub file: u64,
    /// Pages of a batch that was never flushed: leaks.
    pub leaked: u64,
    /// Unmap batches in use: leaks, where nobody reclaims.
    pub batches: u64,
    /// Of `quietmm_vmap_alloc`, or waiting for the purge of their addresses.
    pub vmalloc: u64,
    /// Of these, frames that wait for a purge.
    pub unpurged: u64,
    /// Pages that programs unmapped or dropped, and that wait for a sweep.
    pub parked: u64,
    /// Pins.
    pub pinned: u64,
    /// Entries in all spaces that lead to pages.
    pub mapped: u64,
    /// Entries in all spaces that name swap slots.
    pub swapped: u64,
    /// The first thing that does not add up, in words; empty if all does.
    pub broken: [c_char; 128],
}

/// Walks all frames, lists, tables and trees, and compares; answers whether all adds up. Nothing else may run meanwhile, on any CPU.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_validate(mm: &Kernel, audit: &mut MaybeUninit<Audit>) -> bool {
    let found = mm.mm().validate();
    let mut broken = [0; 128];
    // SAFETY: the room is that of the array.
    unsafe {
        text::fill(broken.as_mut_ptr(), broken.len(), format_args!("{}", found.broken.unwrap_or_default()))
    };
    audit.write(Audit {
        total: found.total,
        reserved: found.reserved,
        free: found.free,
        offline: found.offline,
        pcp: found.pcp,
        tables: found.tables,
        pools: found.pools,
        kernel: found.kernel,
        anon: found.anon,
        file: found.file,
        leaked: found.leaked,
        batches: found.batches,
        vmalloc: found.vmalloc,
        unpurged: found.unpurged,
        parked: found.parked,
        pinned: found.pinned,
        mapped: found.mapped,
        swapped: found.swapped,
        broken,
    });
    found.broken.is_none()
}
