//! Accesses to addresses that may fault, and their page faults.

use quietmm::{Error, UserAccess, VirtAddr};

use crate::cpu::{self, count_one};
use crate::interrupts::kernel;
use crate::paging;

type Slot = Option<Error>;

/// What an access gives: 0 or 1, and a result.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Given(u64, u64);

/// One of `user.s`: three words, one that it does not use, and where an error goes.
pub type Function = unsafe extern "C" fn(at: u64, n: u64, unused: u64, unused2: u64, error: *mut ()) -> Given;

unsafe extern "C" {
    fn user_read(at: u64, count: u64, unused: u64, unused2: u64, error: *mut ()) -> Given;
    fn user_write(at: u64, count: u64, unused: u64, unused2: u64, error: *mut ()) -> Given;
    fn user_load(at: u64, unused: u64, unused2: u64, unused3: u64, error: *mut ()) -> Given;
    fn user_execute(at: u64, unused: u64, unused2: u64, unused3: u64, error: *mut ()) -> Given;
    fn user_store(at: u64, value: u64, unused: u64, unused2: u64, error: *mut ()) -> Given;
    fn enter_user(at: u64, n: u64, function: u64, unused: u64, error: *mut ()) -> Given;
    fn user_access_failed();
    fn user_access_begin();
    fn user_access_end();
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

/// What a page fault's error code says was tried.
pub fn tried(error: u64) -> UserAccess {
    const WRITE: u64 = 1 << 1;
    const FETCH: u64 = 1 << 4;
    match error {
        _ if error & WRITE != 0 => UserAccess::Write,
        _ if error & FETCH != 0 => UserAccess::Execute,
        _ => UserAccess::Read,
    }
}

/// A page fault at one of the accesses below. On the stack of the task, which may wait here and go on elsewhere.
pub fn faulted(frame: &mut Frame) {
    count_one(&cpu::here().faults);
    let at = VirtAddr(frame.address);
    let result = if at < VirtAddr::USER_END {
        let access = tried(frame.error);
        cpu::irqs_on();
        let kernel = kernel().expect("programs run after the kernel does");
        kernel.fault(at, access)
    } else {
        Err(Error::NotMapped(at.page()))
    };
    if let Err(error) = result {
        // SAFETY: `r8` is what `access` has passed, on this task's stack.
        unsafe { *frame.r8 = Some(error) };
        let failed = user_access_failed as *const ();
        frame.rip = if frame.cs & 3 == 0 { failed as u64 } else { paging::in_ring_3(failed) };
    }
}

/// Who makes an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// A program: in ring 3.
    Program,
    /// The kernel, to one of its ranges.
    Kernel,
}

/// Whether an instruction is one of the accesses in here.
pub fn is_access(rip: u64) -> bool {
    let (begin, end) = (user_access_begin as *const () as u64, user_access_end as *const () as u64);
    (begin..end).contains(&rip)
}

/// Where an access goes on that has failed.
pub fn failed_at() -> u64 {
    user_access_failed as *const () as u64
}

/// Says why one has.
///
/// # Safety
/// `slot` is what an access has in `r8`.
pub unsafe fn fail(slot: u64, error: Error) {
    // SAFETY: the caller's: it leads to the slot in `access`.
    unsafe { core::ptr::with_exposed_provenance_mut::<Slot>(slot as usize).write(Some(error)) };
}

/// Makes an access, with these words.
///
/// # Errors
/// What the fault handler said.
pub fn access(by: By, function: Function, [at, n, m]: [u64; 3]) -> Result<u64, Error> {
    let mut error: Slot = None;
    let slot = (&raw mut error).cast();
    (&raw mut error).expose_provenance();
    // SAFETY: the function accesses what is at the address or faults, and its faults are handled. No Rust object lies at
    // addresses of programs, nor in kernel ranges.
    let Given(failed, result) = match by {
        By::Program => {
            assert!(cpu::irqs_are_on(), "a user access with interrupts off, to {at:#x}");
            // SAFETY: as above; `enter_user` comes back with all that a function must keep.
            unsafe { enter_user(at, n, paging::in_ring_3(function as *const ()), 0, slot) }
        }
        // SAFETY: as above.
        By::Kernel => unsafe { function(at, n, m, 0, slot) },
    };
    if failed == 0 { Ok(result) } else { Err(error.expect("the handler says why")) }
}

/// Loads `count` words in order from `at`, and from its page's start again; returns their sum.
///
/// # Errors
/// What the fault handler said.
pub fn read(by: By, at: VirtAddr, count: u32) -> Result<u64, Error> {
    access(by, user_read, [at.0, count.into(), 0])
}

/// Writes to `count` words in order and changes none. Their page becomes dirty.
///
/// # Errors
/// What the fault handler said.
pub fn write(by: By, at: VirtAddr, count: u32) -> Result<(), Error> {
    access(by, user_write, [at.0, count.into(), 0]).map(drop)
}

/// A program loads a word.
///
/// # Errors
/// What the fault handler said.
pub fn load(at: VirtAddr) -> Result<u64, Error> {
    load_by(By::Program, at)
}

/// Loads a word.
///
/// # Errors
/// What the fault handler said.
pub fn load_by(by: By, at: VirtAddr) -> Result<u64, Error> {
    access(by, user_load, [at.0, 0, 0])
}

/// A program stores a word.
///
/// # Errors
/// What the fault handler said.
pub fn store(at: VirtAddr, value: u64) -> Result<(), Error> {
    access(By::Program, user_store, [at.0, value, 0]).map(drop)
}

/// A program executes a word or two there: what [`code`] gives. Returns the number in it.
///
/// # Errors
/// What the fault handler said.
pub fn execute(at: VirtAddr) -> Result<u64, Error> {
    access(By::Program, user_execute, [at.0, 0, 0])
}

/// What [`execute`] executes: `mov $number, %edx; jmp *%rsi`.
pub fn code(number: u32) -> u64 {
    0xba | u64::from(number) << 8 | 0xe6ff << 40
}
