//! Pins: frames of a program's memory for a device.

use core::mem::MaybeUninit;

use quietmm::Term;

use crate::error::Error;
use crate::kernel::Kernel;
use crate::platform::Range;
use crate::space::{Space, user_access};

const _: () = assert!(size_of::<quietmm::Pins>() <= 8 * 17 && align_of::<quietmm::Pins>() <= 8);

/// How long pins last.
#[repr(C)]
pub enum PinTerm {
    /// For an I/O that ends by itself.
    Short = 0,
    /// For as long as a program likes.
    Long = 1,
}

/// Frames that are pinned. It goes with the request to the device; it may be moved, and only one of its copies is used.
#[repr(C)]
pub struct Pins {
    /// How many. 0: none, or none any more.
    pub count: u32,
    /// The frames, one for each page, in the order of the pages.
    pub frames: [u32; 32],
    /// The core's own.
    pub kept: [u64; 17],
}

impl Pins {
    fn of(pins: quietmm::Pins) -> Pins {
        let mut of = Pins { count: pins.frames().len() as u32, frames: [u32::MAX; 32], kept: [0; 17] };
        of.frames.iter_mut().zip(pins.frames()).for_each(|(to, frame)| *to = frame.0);
        // SAFETY: there is room, as is looked at above.
        unsafe { (&raw mut of.kept).cast::<quietmm::Pins>().write(pins) };
        of
    }

    /// The core's value, once.
    ///
    /// # Safety
    /// It is one that `quietmm_space_pin` or `quietmm_unpin_in_interrupt` has filled, and no copy of it was used.
    unsafe fn take(&mut self) -> Option<quietmm::Pins> {
        if core::mem::take(&mut self.count) == 0 {
            return None;
        }
        // SAFETY: the caller's promise.
        Some(unsafe { (&raw const self.kept).cast::<quietmm::Pins>().read() })
    }
}

/// Pins the frames of a range of at most 32 pages for a device: `access`, one of `enum quietmm_access`, is what the device does; `term` is one
/// of `enum quietmm_pin_term`. Until `quietmm_unpin` they are nobody else's, and the program goes on to see its own memory there. On; it may
/// wait. All or nothing: BAD_RANGE, BAD_VALUE, NOT_PINNABLE, TOO_MANY_PINS, and all that `quietmm_space_fault` says.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_pin(
    mm: &Kernel,
    space: Space,
    range: Range,
    access: u32,
    term: u32,
    pins: &mut MaybeUninit<Pins>,
) -> Error {
    let Some(access) = user_access(access) else { return Error::BadValue };
    let Some(&term) = [Term::Short, Term::Long].get(term as usize) else { return Error::BadValue };
    match space.of(mm).and_then(|space| space.pin(range.into(), access, term)) {
        Ok(pinned) => {
            pins.write(Pins::of(pinned));
            Error::Ok
        }
        Err(error) => error.into(),
    }
}

/// The device is through: what it may have written is dirty from now on. Any context but a handler. BAD_VALUE if there are none any more.
///
/// # Safety
/// `quietmm_space_pin` has filled it, and no copy of it was given back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quietmm_unpin(mm: &Kernel, pins: &mut Pins) -> Error {
    // SAFETY: the caller's promise.
    let Some(pinned) = (unsafe { pins.take() }) else { return Error::BadValue };
    mm.mm().unpin(pinned);
    Error::Ok
}

/// The same from the handler of the device's interrupt, for those that programs still map. Answers whether some are left, for a task to give to
/// `quietmm_unpin`. Any context.
///
/// # Safety
/// That of `quietmm_unpin`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quietmm_unpin_in_interrupt(mm: &Kernel, pins: &mut Pins) -> bool {
    // SAFETY: the caller's promise.
    let left = unsafe { pins.take() }.and_then(|pinned| mm.mm().unpin_in_interrupt(pinned));
    if let Some(left) = left {
        *pins = Pins::of(left);
    }
    pins.count > 0
}
