//! Page frames.

use core::mem::MaybeUninit;

use quietmm::addr::PhysAddr;
use quietmm::{AllocFrom, Certainty, FrameNumber, ListLimits, NodeId};

use crate::error::{Error, answer, number};
use crate::kernel::Kernel;

/// How an allocation looks for frames.
#[repr(C)]
pub enum Look {
    /// Nobody waits: any context but a handler.
    Now = 0,
    /// It may wait while pages are reclaimed for it: on, no spin lock.
    MayReclaim = 1,
}

/// No node in particular: that of this CPU first.
pub const ANY_NODE: u16 = 0xffff;

pub(crate) fn node(number: u16) -> Option<NodeId> {
    (number != ANY_NODE).then_some(NodeId(number))
}

/// Where to look, if `look` is one of [`Look`].
fn from(node: u16, look: u32) -> Option<AllocFrom> {
    (look <= Look::MayReclaim as u32).then(|| AllocFrom { node: self::node(node), may_reclaim: look != 0 })
}

/// Allocates 2^`order` frames, not cleared, `node` or QUIETMM_ANY_NODE first; `first` gets the first. `look` is one of `enum quietmm_look`, which says in
/// what context. BAD_ORDER, BAD_VALUE, NO_SUCH_NODE, OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_frames_alloc(
    mm: &Kernel,
    order: u8,
    node: u16,
    look: u32,
    first: &mut MaybeUninit<u32>,
) -> Error {
    let Some(from) = from(node, look) else { return Error::BadValue };
    let block = mm.mm().frames().alloc(order, from);
    answer(block.map(|block| block.into_raw().0.0), Some(first))
}

/// The same below the physical address `below`, as a whole: in regions that end there at the latest. With `look` MAY_RECLAIM pages are moved out of 4 MiB
/// if need be. BAD_ORDER, BAD_VALUE, NO_SUCH_NODE, OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_frames_alloc_below(
    mm: &Kernel,
    order: u8,
    below: u64,
    node: u16,
    look: u32,
    first: &mut MaybeUninit<u32>,
) -> Error {
    let Some(from) = from(node, look) else { return Error::BadValue };
    let block = mm.mm().frames().alloc_below(order, PhysAddr(below), from);
    answer(block.map(|block| block.into_raw().0.0), Some(first))
}

/// Allocates `frames` frames in one piece that begins at a multiple of 4 MiB and lies below the physical address `below` (UINT64_MAX: anywhere), not cleared;
/// `first` gets the first. Each goes back by itself, with order 0. On, no spin lock; pages may have to move, and CPUs be interrupted.
/// BAD_SETTING, OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_frames_alloc_contiguous(
    mm: &Kernel,
    frames: u32,
    below: u64,
    first: &mut MaybeUninit<u32>,
) -> Error {
    let piece = mm.mm().frames().alloc_contiguous(frames, PhysAddr(below));
    answer(piece.map(|piece| piece.into_raw().0.0), Some(first))
}

/// Gives a block back, of the order in which it was allocated. Any context but a handler. NO_SUCH_FRAME, NOT_ALLOCATED, BAD_ORDER.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_frames_free(mm: &Kernel, first: u32, order: u8) -> Error {
    number(mm.mm().frames().free_at(FrameNumber(first), order))
}

/// Allocates 2^`order` frames, not cleared, in the handler of an interrupt of the kernel's own: those that lie on this CPU's lists. `first` gets the first. Any
/// context. OUT_OF_MEMORY where there is none on them, be it that much is free elsewhere: tasks bring them by `quietmm_frames_alloc`.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_frames_alloc_in_handler(
    mm: &Kernel,
    order: u8,
    first: &mut MaybeUninit<u32>,
) -> Error {
    let block = mm.mm().frames().alloc_in_handler(order).ok_or(quietmm::Error::OutOfMemory);
    answer(block.map(|block| block.into_raw().0.0), Some(first))
}

/// Gives a block back in the handler of an interrupt of the kernel's own, to this CPU's lists. Any context. BUSY where they do not keep it: it is not free, and a
/// task gives it to `quietmm_frames_free`. NO_SUCH_FRAME, NOT_ALLOCATED.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_frames_free_in_handler(mm: &Kernel, first: u32, order: u8) -> Error {
    match mm.mm().frames().free_at_in_handler(FrameNumber(first), order) {
        Ok(true) => Error::Ok,
        Ok(false) => Error::Busy,
        Err(error) => error.into(),
    }
}

/// Puts the frames on per-CPU lists back into their zones: with `certain` every one that was there when it was called. Answers how
/// many. On, no spin lock; it may interrupt CPUs, as the policy says.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_frames_drain(mm: &Kernel, certain: bool) -> u32 {
    mm.mm().frames().drain(if certain { Certainty::Certain } else { Certainty::Likely })
}

/// The same for this CPU alone. Any context but a handler.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_frames_drain_here(mm: &Kernel) {
    mm.mm().frames().drain_here();
}

/// Free frames in all zones, without those on per-CPU lists.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_frames_available(mm: &Kernel) -> u64 {
    mm.mm().frames().available()
}

/// Free frames on per-CPU lists.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_frames_on_lists(mm: &Kernel) -> u64 {
    mm.mm().frames().on_lists()
}

/// Frames that the core's books took at start.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_frames_reserved(mm: &Kernel) -> u64 {
    mm.mm().frames().reserved()
}

/// How many free frames of a node each CPU keeps on its lists: `batch` go from the zone or back at a time, 1 to 63; more than `high`, and one goes
/// back. Any context but a handler. BAD_SETTING, NO_SUCH_NODE.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_frames_set_list_limits(mm: &Kernel, node: u16, batch: u32, high: u32) -> Error {
    number(mm.mm().frames().set_list_limits(NodeId(node), ListLimits { batch, high }))
}

/// What these limits are. Any context. NO_SUCH_NODE for a node that has no memory, and gets none later.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_frames_list_limits(
    mm: &Kernel,
    node: u16,
    batch: &mut MaybeUninit<u32>,
    high: &mut MaybeUninit<u32>,
) -> Error {
    let Some(limits) = mm.mm().frames().list_limits(NodeId(node)) else { return Error::NoSuchNode };
    batch.write(limits.batch);
    high.write(limits.high);
    Error::Ok
}
