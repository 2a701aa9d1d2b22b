//! The heap of tasks and reports: sizes are powers of two, each with a list of free blocks, cut from one run of memory.
//! What was cut stays of its size.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr;

use crate::lock::Lock;

const SMALLEST: u32 = 4;
const LARGEST: u32 = 26;

struct Free {
    lists: [*mut u8; (LARGEST + 1) as usize],
    next: usize,
    end: usize,
}

// SAFETY: the blocks belong to whoever has this, which the lock decides.
unsafe impl Send for Free {}

/// The heap; empty until [`give`].
#[derive(Default)]
pub struct Heap;

static FREE: Lock<Free> =
    Lock::new(Free { lists: [ptr::null_mut(); (LARGEST + 1) as usize], next: 0, end: 0 });

/// Hands over a run of memory, once.
pub fn give(start: usize, bytes: usize) {
    FREE.with(|free| (free.next, free.end) = (start, start + bytes));
}

/// Bytes that were never cut.
pub fn left() -> usize {
    FREE.with(|free| free.end - free.next)
}

impl Heap {
    /// Empty.
    pub const fn new() -> Self {
        Heap
    }
}

fn class(layout: Layout) -> u32 {
    layout.size().max(layout.align()).next_power_of_two().trailing_zeros().max(SMALLEST)
}

// SAFETY: a block is on no list while it is in use, is as large as its class, and is aligned to its size.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let class = class(layout);
        if class > LARGEST {
            return ptr::null_mut();
        }
        FREE.with(|free| {
            let head = free.lists[class as usize];
            if !head.is_null() {
                // SAFETY: a free block begins with the address of the next.
                free.lists[class as usize] = unsafe { head.cast::<*mut u8>().read() };
                return head;
            }
            let start = free.next.next_multiple_of(1 << class);
            if start + (1 << class) > free.end {
                return ptr::null_mut();
            }
            free.next = start + (1 << class);
            ptr::with_exposed_provenance_mut(start)
        })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        FREE.with(|free| {
            let head = &mut free.lists[class(layout) as usize];
            // SAFETY: the block is the caller's no more, and at least 16 bytes long.
            unsafe { block.cast::<*mut u8>().write(*head) };
            *head = block;
        });
    }
}
