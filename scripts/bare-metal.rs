//! The core, the workloads and what runs Linux's programs in an image without std: what `scripts/bare-metal` compiles.

#![no_std]

use core::alloc::{GlobalAlloc, Layout};
use core::panic::PanicInfo;
use core::ptr;

use quietmm as _;
use quietmm_linux as _;
use quietmm_workloads as _;

/// The workloads' tasks live on a heap that the kernel brings; this one is always full.
struct Full;

// SAFETY: no memory is ever handed out.
unsafe impl GlobalAlloc for Full {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        ptr::null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static HEAP: Full = Full;

/// std has one as well: two in one image are an error.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {}
}
