//! Memory that goes and comes, in blocks of 1024 frames.

use core::mem::MaybeUninit;

use quietmm::{FrameNumber, Leaving, Offline};

use crate::error::Error;
use crate::kernel::Kernel;

const _: () = assert!(size_of::<Leaving>() == 4 && align_of::<Leaving>() == 4);
const _: () = assert!(size_of::<Offline>() == 4 && align_of::<Offline>() == 4);

/// How far a block of memory is on its way.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum BlockState {
    /// It is in use, or it is not known.
    Online = 0,
    /// Nothing is allocated from it any more.
    Leaving = 1,
    /// The kernel may take it away.
    Offline = 2,
}

/// A block on its way: `quietmm_memory_begin_offline` fills it, or `quietmm_memory_add`. It may be moved, and only one of its copies is used.
#[repr(C)]
pub struct Block {
    /// Its first frame.
    pub first: u32,
    /// One of `enum quietmm_block_state`.
    pub state: u32,
    /// The core's own.
    pub kept: u32,
}

impl Block {
    fn keep<T>(&mut self, value: T, state: BlockState) {
        const { assert!(size_of::<T>() == 4) };
        self.state = state as u32;
        // SAFETY: there is room, as was just looked at; four bytes are aligned for both types.
        unsafe { (&raw mut self.kept).cast::<T>().write(value) };
    }

    /// What was kept in this state, once.
    ///
    /// # Safety
    /// `T` is what is kept in that state, nobody but this file has written to it, and no copy of it was used.
    unsafe fn take<T>(&mut self, state: BlockState) -> Option<T> {
        if self.state != state as u32 {
            return None;
        }
        self.state = BlockState::Online as u32;
        // SAFETY: the caller's promise.
        Some(unsafe { (&raw const self.kept).cast::<T>().read() })
    }
}

/// The first frame of the block of this place, from 0. BAD_VALUE beyond the last. Those with the core's books can never go offline.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_memory_block(mm: &Kernel, place: usize, first: &mut MaybeUninit<u32>) -> Error {
    match mm.mm().frames().blocks().nth(place) {
        Some(frame) => {
            first.write(frame.0);
            Error::Ok
        }
        None => Error::BadValue,
    }
}

/// Begins to take the block of 1024 frames at `first` offline: nothing is allocated from it any more. At most one of a region at a time. On; it
/// may wait. BAD_BLOCK, NO_SUCH_FRAME if it is offline already, NOT_MOVABLE, BUSY.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_memory_begin_offline(
    mm: &Kernel,
    first: u32,
    block: &mut MaybeUninit<Block>,
) -> Error {
    match mm.mm().frames().begin_offline(FrameNumber(first)) {
        Ok(leaving) => {
            let block = block.write(Block { first, state: 0, kept: 0 });
            block.keep(leaving, BlockState::Leaving);
            Error::Ok
        }
        Err(error) => error.into(),
    }
}

/// Empties a block that leaves. OK: it is offline. BUSY: `used`, unless it is NULL, gets a frame that is in use; try again, or cancel. BAD_VALUE if it
/// does not leave. On; it may wait.
///
/// # Safety
/// `quietmm_memory_begin_offline` has filled it, or `quietmm_memory_add`, and no copy of it was used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quietmm_memory_finish_offline(
    mm: &Kernel,
    block: &mut Block,
    used: Option<&mut MaybeUninit<u32>>,
) -> Error {
    // SAFETY: the caller's promise.
    let Some(leaving) = (unsafe { block.take::<Leaving>(BlockState::Leaving) }) else {
        return Error::BadValue;
    };
    match mm.mm().frames().finish_offline(leaving) {
        Ok(offline) => {
            block.keep(offline, BlockState::Offline);
            Error::Ok
        }
        Err(remains) => {
            if let Some(used) = used {
                used.write(remains.frame.0);
            }
            block.keep(remains.leaving, BlockState::Leaving);
            Error::Busy
        }
    }
}

/// A block that leaves stays. BAD_VALUE if it does not leave. On.
///
/// # Safety
/// That of `quietmm_memory_finish_offline`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quietmm_memory_cancel_offline(mm: &Kernel, block: &mut Block) -> Error {
    // SAFETY: the caller's promise.
    let Some(leaving) = (unsafe { block.take::<Leaving>(BlockState::Leaving) }) else {
        return Error::BadValue;
    };
    mm.mm().frames().cancel_offline(leaving);
    Error::Ok
}

/// The block of 1024 frames at `first` has come, of a region of the platform's `later_region`: it is offline, until `quietmm_memory_bring_online`. What is kept
/// about its frames takes 8 frames of memory that is here, and with groups 9, for good. On; it may wait. BAD_BLOCK, ALREADY_HERE also if it is offline since, OUT_OF_MEMORY.
///
/// # Safety
/// The block's memory is there, `direct` maps it, and it is nobody else's, for ever or until it is offline again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quietmm_memory_add(
    mm: &Kernel,
    first: u32,
    block: &mut MaybeUninit<Block>,
) -> Error {
    // SAFETY: the caller's promise.
    match unsafe { mm.mm().frames().add_block(FrameNumber(first)) } {
        Ok(offline) => {
            let block = block.write(Block { first, state: 0, kept: 0 });
            block.keep(offline, BlockState::Offline);
            Error::Ok
        }
        Err(error) => error.into(),
    }
}

/// A block that is offline comes back, free. BAD_VALUE if it is not offline. On.
///
/// # Safety
/// That of `quietmm_memory_finish_offline`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quietmm_memory_bring_online(mm: &Kernel, block: &mut Block) -> Error {
    // SAFETY: the caller's promise.
    let Some(offline) = (unsafe { block.take::<Offline>(BlockState::Offline) }) else {
        return Error::BadValue;
    };
    mm.mm().frames().bring_online(offline);
    Error::Ok
}
