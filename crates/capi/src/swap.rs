//! Swap devices.

use core::mem::MaybeUninit;

use crate::error::{Error, number};
use crate::kernel::Kernel;

/// How full swap is.
#[repr(C)]
pub struct SwapUsage {
    /// Slots of all devices in use.
    pub slots: u64,
    /// Slots that are not free.
    pub used: u64,
    /// Of these, slots whose page is in memory too.
    pub cached: u64,
    /// Slots of devices that take no pages at the moment.
    pub failing: u64,
}

/// Takes a device of so many pages into use; a higher priority is filled first. On; it may wait. NO_SWAP, BAD_RANGE, NO_SUCH_SWAP_DEVICE, TOO_MANY,
/// OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_swap_on(mm: &Kernel, device: u32, pages: u64, priority: i16) -> Error {
    number(mm.mm().swap().on(device, pages, priority))
}

/// Brings all of a device's pages back into memory, and lets go of it. On; it may wait. NO_SUCH_SWAP_DEVICE; SWAP_DEVICE, OUT_OF_MEMORY: it
/// gets no new pages, and can be asked again.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_swap_off(mm: &Kernel, device: u32) -> Error {
    number(mm.mm().swap().off(device))
}

/// How full swap is. A moment's truth.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_swap_usage(mm: &Kernel, usage: &mut MaybeUninit<SwapUsage>) {
    let now = mm.mm().swap().usage();
    usage.write(SwapUsage { slots: now.slots, used: now.used, cached: now.cached, failing: now.failing });
}
