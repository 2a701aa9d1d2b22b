//! Accesses to addresses that may fault, and their page faults.

use quietmm::{Error, UserAccess, VirtAddr};

use crate::cpu::{self, count_one};
use crate::interrupts::kernel;

type Slot = Option<Error>;

unsafe extern "C" {
    fn user_read(at: u64, count: u64, sum: *mut u64, unused: u64, error: *mut ()) -> u32;
    fn user_write(at: u64, count: u64, unused: *mut u64, unused2: u64, error: *mut ()) -> u32;
    fn user_load(at: u64, unused: u64, value: *mut u64, unused2: u64, error: *mut ()) -> u32;
    fn user_store(at: u64, value: u64, unused: *mut u64, unused2: u64, error: *mut ()) -> u32;
    fn user_access_failed();
}

/// What the entry leaves on the task's stack.
#[repr(C)]
pub struct Frame {
    /// `r11` to `r8`.
    upper: [u64; 3],
    r8: *mut Slot,
    registers: [u64; 5],
    address: u64,
    error: u64,
    rip: u64,
    cs: u64,
    flags: u64,
    rsp: u64,
    ss: u64,
}

const WRITE: u64 = 2;
const INTERRUPTS_ON: u64 = 0x200;

/// A page fault at one of the accesses below. On the stack of the task, which may wait here and go on elsewhere.
pub fn faulted(frame: &mut Frame) {
    count_one(&cpu::here().faults);
    let at = VirtAddr(frame.address);
    let result = if at < VirtAddr::USER_END {
        assert!(frame.flags & INTERRUPTS_ON != 0, "a user access with interrupts off, to {:#x}", at.0);
        let access = if frame.error & WRITE != 0 { UserAccess::Write } else { UserAccess::Read };
        cpu::irqs_on();
        let kernel = kernel().expect("programs run after the kernel does");
        kernel.fault(at, access)
    } else {
        Err(Error::NotMapped(at.page()))
    };
    if let Err(error) = result {
        // SAFETY: `r8` is what `attempt` has passed, on this task's stack.
        unsafe { *frame.r8 = Some(error) };
        frame.rip = user_access_failed as *const () as u64;
    }
}

fn attempt(access: impl FnOnce(*mut ()) -> u32) -> Result<(), Error> {
    let mut error: Slot = None;
    match access((&raw mut error).cast()) {
        0 => Ok(()),
        _ => Err(error.expect("the handler says why")),
    }
}

/// Loads `count` words in order from `at`, and from its page's start again; gives their sum.
///
/// # Errors
/// What the fault handler said.
pub fn read(at: VirtAddr, count: u32) -> Result<u64, Error> {
    let mut sum = 0;
    // SAFETY: whatever the address, it is read or faults, and faults here are handled.
    attempt(|error| unsafe { user_read(at.0, count.into(), &mut sum, 0, error) })?;
    Ok(sum)
}

/// Writes to `count` words in order and changes none. Their page becomes dirty.
///
/// # Errors
/// What the fault handler said.
pub fn write(at: VirtAddr, count: u32) -> Result<(), Error> {
    // SAFETY: as above. No Rust object lies at addresses of programs, nor in kernel ranges.
    attempt(|error| unsafe { user_write(at.0, count.into(), core::ptr::null_mut(), 0, error) })
}

/// Loads a word.
///
/// # Errors
/// What the fault handler said.
pub fn load(at: VirtAddr) -> Result<u64, Error> {
    let mut value = 0;
    // SAFETY: as in `read`.
    attempt(|error| unsafe { user_load(at.0, 0, &mut value, 0, error) })?;
    Ok(value)
}

/// Stores a word.
///
/// # Errors
/// What the fault handler said.
pub fn store(at: VirtAddr, value: u64) -> Result<(), Error> {
    // SAFETY: as in `write`.
    attempt(|error| unsafe { user_store(at.0, value, core::ptr::null_mut(), 0, error) })
}
