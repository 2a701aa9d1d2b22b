//! The bootable image: see `README.md`.

#![no_std]
#![no_main]

use core::panic::PanicInfo;

use quietmm_metal::heap::Heap;

#[global_allocator]
static HEAP: Heap = Heap::new();

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    quietmm_metal::end::panicked(info)
}

/// Nothing unwinds: the prebuilt `core` only names it.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// Likewise for `alloc`.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    panic!("unwinding")
}

/// `boot.s` calls it by its name, which nobody else does.
#[used]
static KEEP: unsafe extern "C" fn(u32) -> ! = quietmm_metal::start::metal_start;
