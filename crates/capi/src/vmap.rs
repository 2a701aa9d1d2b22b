//! Contiguous kernel addresses.

use core::mem::MaybeUninit;

use quietmm::{FrameNumber, KernelProt, PageNumber, VirtAddr, VmapPlace};

use crate::error::{Error, answer, number};
use crate::frames::{ANY_NODE, node};
use crate::kernel::Kernel;
use crate::platform::Range;
use crate::space::user_access;

/// What the kernel may do with its pages.
#[repr(C)]
pub enum KernelProtection {
    /// Read.
    Read = 0,
    /// Read and write.
    ReadWrite = 1,
    /// Read and execute.
    ReadExecute = 2,
}

fn prot(number: u32) -> Option<KernelProt> {
    [KernelProt::Read, KernelProt::ReadWrite, KernelProt::ReadExecute].get(number as usize).copied()
}

/// Where in the kernel range something is to be. NULL: anywhere, with a guard page.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Place {
    /// The address is a multiple of so many pages, a power of two. 0 is 1.
    pub align: u64,
    /// Only here. No pages: anywhere in the kernel range.
    pub within: Range,
    /// The node of frames that come with it, or QUIETMM_ANY_NODE.
    pub node: u16,
    /// Leave one page behind it unmapped.
    pub guard: bool,
}

fn place(place: Option<&Place>) -> VmapPlace {
    place.map_or(VmapPlace::ANYWHERE, |place| VmapPlace {
        align: place.align.max(1),
        within: (place.within.pages != 0).then(|| place.within.into()),
        guard: place.guard,
        node: node(place.node),
    })
}

/// Frames as C hands them over.
///
/// # Safety
/// They are `count`.
unsafe fn frames<'f>(frames: *const u32, count: usize) -> &'f [FrameNumber] {
    if frames.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: a transparent wrapper, and the caller's promise.
    unsafe { core::slice::from_raw_parts(frames.cast::<FrameNumber>(), count) }
}

/// Maps frames of the caller's, one after the other; `mapped` gets where. `protection` is one of `enum quietmm_kernel_protection`. On; it may wait.
/// NO_KERNEL_RANGE, NO_ADDRESS, BAD_ALIGNMENT, BAD_RANGE, BAD_VALUE, NO_SUCH_FRAME, OUT_OF_MEMORY.
///
/// # Safety
/// `which` are `count` frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quietmm_vmap_map(
    mm: &Kernel,
    which: *const u32,
    count: usize,
    where_to: Option<&Place>,
    protection: u32,
    mapped: &mut MaybeUninit<Range>,
) -> Error {
    let Some(prot) = prot(protection) else { return Error::BadValue };
    // SAFETY: the caller's promise.
    let which = unsafe { frames(which, count) };
    answer(mm.mm().vmap().map(which, place(where_to), prot).map(Range::from), Some(mapped))
}

/// Unmaps what `quietmm_vmap_map` has mapped from this page on. The frames are the caller's, but may still be seen at the old address
/// until `quietmm_vmap_unmap_aliases`. Any context, handlers too; with vmap=eager on, and it waits. NOT_MAPPED,
/// WRONG_RELEASE, BAD_RANGE, NO_KERNEL_RANGE, NEEDS_INTERRUPTS.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_vmap_unmap(mm: &Kernel, first: u64) -> Error {
    number(mm.mm().vmap().unmap(PageNumber(first)))
}

/// Maps frames that come with it (vmalloc); `mapped` gets where. On; it may wait. The errors of `quietmm_vmap_map`, NO_SUCH_NODE.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_vmap_alloc(
    mm: &Kernel,
    pages: u64,
    where_to: Option<&Place>,
    protection: u32,
    mapped: &mut MaybeUninit<Range>,
) -> Error {
    let Some(prot) = prot(protection) else { return Error::BadValue };
    answer(mm.mm().vmap().alloc(pages, place(where_to), prot).map(Range::from), Some(mapped))
}

/// Unmaps and frees what `quietmm_vmap_alloc` has made from this page on. Context and errors as of `quietmm_vmap_unmap`.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_vmap_free(mm: &Kernel, first: u64) -> Error {
    number(mm.mm().vmap().free(PageNumber(first)))
}

/// Maps at most 64 frames for a short time; `mapped` gets where. On; it may wait. The errors of `quietmm_vmap_map`.
///
/// # Safety
/// `which` are `count` frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quietmm_vmap_map_ram(
    mm: &Kernel,
    which: *const u32,
    count: usize,
    protection: u32,
    mapped: &mut MaybeUninit<Range>,
) -> Error {
    let Some(prot) = prot(protection) else { return Error::BadValue };
    // SAFETY: the caller's promise.
    let which = unsafe { frames(which, count) };
    answer(mm.mm().vmap().map_ram(which, prot).map(Range::from), Some(mapped))
}

/// Unmaps all that one `quietmm_vmap_map_ram` has mapped. Context and errors as of `quietmm_vmap_unmap`.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_vmap_unmap_ram(mm: &Kernel, range: Range) -> Error {
    number(mm.mm().vmap().unmap_ram(range.into()))
}

/// When it returns no CPU has an old translation of what was unmapped before. On; it waits for those that it interrupts. NO_KERNEL_RANGE, NEEDS_INTERRUPTS.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_vmap_unmap_aliases(mm: &Kernel) -> Error {
    number(mm.mm().vmap().unmap_aliases())
}

/// Flushes what was unmapped, and makes its addresses free; `pages`, unless it is NULL, gets how many. On; it may wait. NO_KERNEL_RANGE, NEEDS_INTERRUPTS.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_vmap_purge(mm: &Kernel, pages: Option<&mut MaybeUninit<u64>>) -> Error {
    answer(mm.mm().vmap().purge(), pages)
}

/// The body of the endless loop of a kernel thread that purges when enough waits. On; it waits. NO_KERNEL_RANGE.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_vmap_purger(mm: &Kernel) -> Error {
    number(mm.mm().vmap().purger())
}

/// Pages of addresses that were unmapped and are not free yet. NO_KERNEL_RANGE.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_vmap_waits(mm: &Kernel, pages: &mut MaybeUninit<u64>) -> Error {
    answer(mm.mm().vmap().waits().map(|waits| waits.pages), Some(pages))
}

/// What is mapped around a page. Any context, but with vmap=eager. NO_KERNEL_RANGE, NOT_MAPPED.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_vmap_find(mm: &Kernel, page: u64, mapped: &mut MaybeUninit<Range>) -> Error {
    answer(mm.mm().vmap().find(PageNumber(page)).map(Range::from), Some(mapped))
}

/// The frame at a page of the kernel range. NO_KERNEL_RANGE, NOT_MAPPED.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_vmap_frame_at(mm: &Kernel, page: u64, frame: &mut MaybeUninit<u32>) -> Error {
    answer(mm.mm().vmap().frame_at(PageNumber(page)).map(|frame| frame.0), Some(frame))
}

/// On RISC-V, for the handler of faults at addresses of the kernel range: OK is to try again. `access` is one of `enum quietmm_access`.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_vmap_fault(mm: &Kernel, at: u64, access: u32) -> Error {
    let Some(access) = user_access(access) else { return Error::BadValue };
    number(mm.mm().vmap().fault(VirtAddr(at), access))
}

const _: () = assert!(ANY_NODE > 63);
