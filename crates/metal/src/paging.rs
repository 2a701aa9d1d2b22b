//! Where the kernel's half leads: the direct map, the image, stacks. All of it lies under one entry of the root, the
//! last, which every space shares; and so one aligned range of addresses holds all large pages: the emulator flushes
//! everything when a page between two of those is flushed.

use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use quietmm::Entry;

/// Physical address 0 in the direct map.
pub const DIRECT: u64 = 0xffff_ff80_0000_0000;
/// Where stacks of tasks lie, one after the other, each with a page below it that is not mapped.
const STACKS: u64 = 0xffff_ffc0_0000_0000;
/// Bytes of a task's stack: the deepest way, from a page fault through reclaim, takes a quarter of it.
pub const STACK_BYTES: u64 = 64 << 10;
/// Where programs may execute the page of `user.s`.
const ACCESSES: u64 = 0xffff_ffe0_0000_0000;
const STACK_STRIDE: u64 = STACK_BYTES + 4096;
/// The entry of the root that the kernel has.
pub const KERNEL_ENTRY: usize = 511;
/// Present and writable; and, of tables, a program's: the last entry decides.
const OURS: u64 = 3;
const TABLE: u64 = OURS | Entry::USER;
const IMAGE: u64 = 0xffff_ffff_8000_0000;
/// Physical memory that the direct map has room for: what lies below the stacks.
pub const MOST: u64 = STACKS - DIRECT;

unsafe extern "C" {
    static mut boot_root: [u64; 512];
    static mut boot_upper: [u64; 512];
    static image_end: u8;
    static user_access_begin: u8;
}

/// Where a physical address is mapped.
pub fn direct(physical: u64) -> *mut u8 {
    ptr::with_exposed_provenance_mut((DIRECT + physical) as usize)
}

/// Fills a page with one word. Nobody else uses the frame.
pub fn fill_page(physical: u64, word: u64) {
    // SAFETY: the caller's frame, which is mapped. The direction flag is clear by the ABI.
    unsafe {
        core::arch::asm!(
            "rep stosq", inout("rdi") direct(physical) => _, inout("rcx") 512 => _, in("rax") word,
            options(nostack, preserves_flags)
        );
    }
}

/// The physical address of something in the image.
fn of_image<T>(what: *const T) -> u64 {
    what.addr() as u64 - IMAGE
}

/// The root that the machine booted with.
pub fn first_root() -> u64 {
    of_image(&raw const boot_root)
}

/// The first byte after the image, physically.
pub fn image_end_at() -> u64 {
    of_image(&raw const image_end)
}

/// The word that every root has in its last entry.
pub fn kernel_word() -> u64 {
    of_image(&raw const boot_upper) | TABLE
}

/// Frames for the kernel's own tables, stacks and heap, cut from one run of memory before the core has the rest.
static NEXT: AtomicU64 = AtomicU64::new(0);
static END: AtomicU64 = AtomicU64::new(0);

/// The run to cut from.
pub fn set_early(start: u64, end: u64) {
    NEXT.store(start.next_multiple_of(4096), Ordering::Relaxed);
    END.store(end, Ordering::Relaxed);
}

/// Cuts whole pages off, zeroed. On the first CPU, while it is alone.
pub fn cut(bytes: u64) -> u64 {
    let start = NEXT.fetch_add(bytes.next_multiple_of(4096), Ordering::Relaxed);
    assert!(start + bytes <= END.load(Ordering::Relaxed), "too little memory for the image's own needs");
    // SAFETY: memory that nobody else has.
    unsafe { direct(start).write_bytes(0, bytes as usize) };
    start
}

/// Only so many bytes more will be cut: returns where they end. The core gets what follows.
pub fn keep(bytes: u64) -> u64 {
    let end = NEXT.load(Ordering::Relaxed) + bytes.next_multiple_of(4096);
    END.store(end, Ordering::Relaxed);
    end
}

/// What so many stacks take, with their tables.
pub fn stacks_take(count: u64) -> u64 {
    count * STACK_BYTES + (count * STACK_STRIDE).div_ceil(2 << 20) * 4096 + 4 * 4096
}

/// The table that an entry leads to, made if there is none.
fn below(word: *mut u64) -> *mut u64 {
    // SAFETY: a word of a table; only the first CPU changes them, while it is alone.
    let entry = unsafe { word.read_volatile() };
    let table = if entry & 1 != 0 { Entry(entry).frame().phys().0 } else { cut(4096) };
    // SAFETY: as above.
    unsafe { word.write_volatile(table | TABLE) };
    direct(table).cast()
}

/// Maps memory above 4 GiB into the direct map, and takes caching away from the devices below it.
pub fn map_direct(end: u64) {
    assert!(end <= MOST, "more memory than the direct map has room for");
    let upper = (&raw mut boot_upper).cast::<u64>();
    for at in (4 << 30..end).step_by(2 << 20) {
        let lower = below(upper.wrapping_add((at >> 30) as usize));
        // SAFETY: a word of the table that was just found.
        unsafe { lower.wrapping_add((at >> 21) as usize % 512).write_volatile(at | 0x183) };
    }
    let devices = below(upper.wrapping_add(3));
    for index in 0xfe00_0000_u64 >> 21..2048 {
        let word = devices.wrapping_add(index as usize % 512);
        // SAFETY: as above. No cache, write through.
        unsafe { word.write_volatile(word.read_volatile() | 0x18) };
    }
    reload();
}

/// The word of a table that leads to a small page of the kernel's half, with the tables above it.
fn leaf_word(at: u64) -> *mut u64 {
    let upper = (&raw mut boot_upper).cast::<u64>();
    let middle = below(upper.wrapping_add((at >> 30) as usize % 512));
    let leaf = below(middle.wrapping_add((at >> 21) as usize % 512));
    leaf.wrapping_add((at >> 12) as usize % 512)
}

/// Lets programs execute the page of `user.s`. On the first CPU, while it is alone.
pub fn map_accesses() {
    let word = of_image(&raw const user_access_begin) | Entry::PRESENT | Entry::USER;
    // SAFETY: a word of the kernel's tables, which nobody else changes.
    unsafe { leaf_word(ACCESSES).write_volatile(word) };
}

/// Where ring 3 finds a function of that page.
pub fn in_ring_3(function: *const ()) -> u64 {
    ACCESSES + (function.addr() as u64 - (&raw const user_access_begin).addr() as u64)
}

/// The physical address of something in the direct map, in the image, or on a task's stack.
pub fn physical(at: u64) -> u64 {
    match at {
        IMAGE.. => at - IMAGE,
        // SAFETY: a word of the kernel's tables, which no longer change.
        STACKS.. => Entry(unsafe { leaf_word(at).read_volatile() }).frame().phys().0 + at % 4096,
        _ => at - DIRECT,
    }
}

/// Makes a stack: returns its end. On the first CPU, while it is alone.
pub fn make_stack(number: u64) -> u64 {
    let start = STACKS + number * STACK_STRIDE + 4096;
    let frames = cut(STACK_BYTES);
    for offset in (0..STACK_BYTES).step_by(4096) {
        // SAFETY: a word of the kernel's tables, which nobody else changes.
        unsafe { leaf_word(start + offset).write_volatile((frames + offset) | OURS) };
    }
    start + STACK_BYTES
}

/// How many bytes of a stack were ever used: it began as zeros.
pub fn stack_used(number: u64) -> u64 {
    let start = STACKS + number * STACK_STRIDE + 4096;
    // SAFETY: a stack that was made, mapped for ever. Whoever runs there may write meanwhile.
    let is_used = |at: &u64| unsafe { (*at as *const u64).read_volatile() } != 0;
    let end = start + STACK_BYTES;
    end - (start..end).step_by(8).find(is_used).unwrap_or(end)
}

/// Whether an address lies in the page below a stack.
pub fn is_guard(at: u64) -> bool {
    (STACKS..STACKS + (1 << 36)).contains(&at) && (at - STACKS) % STACK_STRIDE < 4096
}

/// Loads a root: all entries of the TLB but global ones go.
pub fn load_root(physical: u64) {
    // SAFETY: the root maps the kernel as every root does.
    unsafe { core::arch::asm!("mov cr3, {}", in(reg) physical, options(nostack, preserves_flags)) };
}

/// The root that is loaded.
pub fn root() -> u64 {
    let root;
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("mov {}, cr3", out(reg) root, options(nomem, nostack, preserves_flags)) };
    root
}

/// Flushes all entries of the TLB but global ones.
pub fn reload() {
    load_root(root());
}

/// Flushes everything, global entries too: by a change of CR4.PGE.
pub fn flush_global() {
    // SAFETY: PGE alone changes, and comes back.
    unsafe {
        core::arch::asm!(
            "mov {old}, cr4", "mov {new}, {old}", "and {new}, ~0x80", "mov cr4, {new}", "mov cr4, {old}",
            old = out(reg) _, new = out(reg) _, options(nostack)
        );
    }
}

/// Flushes one page.
pub fn flush_page(at: u64) {
    // SAFETY: has no effect but on the TLB.
    unsafe { core::arch::asm!("invlpg [{}]", in(reg) at, options(nostack, preserves_flags)) };
}
