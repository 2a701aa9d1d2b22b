//! The core for kernels in C: a static library without `std`, and `include/quietmm.h`.
//!
//! Each function of the header is one of the core's public interface by another name: it looks at what C's types cannot promise,
//! calls, and answers with a number. No state is kept here but what lies in the storage that the caller gives.
//!
//! **No panic crosses the border.** The library is built with `panic=abort`, and its panic handler calls `quietmm_panicked`, which the
//! kernel brings and which does not return. The core does not panic on input; a panic is a fault of the core, or a platform that was
//! caught breaking its promise.

#![no_std]

mod config;
mod device;
mod error;
mod file;
mod frames;
mod group;
mod kernel;
mod memory;
mod pins;
mod platform;
mod space;
mod swap;
mod text;
mod vmap;

pub use config::{Config, Region, quietmm_config};
pub use device::{Device, Io, Store, StoreKind, Transfer};
pub use error::{Error, quietmm_error_text};
pub use file::*;
pub use frames::*;
pub use group::*;
pub use kernel::*;
pub use memory::*;
pub use pins::*;
pub use platform::{
    Access, Architecture, Everywhere, EverywhereKind, Guarantee, Kind, Platform, Range, Shortage, Shrink,
    WaitKey, WaitKind,
};
pub use space::*;
pub use swap::*;
pub use vmap::*;

/// In the library alone: a Rust program has one already.
#[cfg(feature = "library")]
mod panic {
    use core::ffi::c_char;
    use core::panic::PanicInfo;

    use crate::text::Line;

    unsafe extern "C" {
        fn quietmm_panicked(what: *const c_char) -> !;
    }

    #[panic_handler]
    fn panicked(info: &PanicInfo<'_>) -> ! {
        let line = Line::<256>::of(format_args!("{info}"));
        // SAFETY: the kernel brings it, and it does not return.
        unsafe { quietmm_panicked(line.as_ptr()) }
    }

    /// Named by `core` where it came compiled for a system that unwinds. Nothing here does, so nobody calls it.
    #[cfg(not(target_os = "none"))]
    #[unsafe(no_mangle)]
    extern "C" fn rust_eh_personality() {}
}
