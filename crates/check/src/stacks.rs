//! Stacks of the CPUs: cut once, used by run after run.

use corosensei::stack::{Stack, StackPointer};

/// Bytes of a stack. The core keeps a few hundred bytes per call, and a page fault, reclaim and a panic in it lie one
/// on the other at most.
const STACK_BYTES: usize = 256 << 10;

/// A stack. Its lowest page is never touched unless it was too small.
pub struct Piece {
    memory: memmap2::MmapMut,
}

impl Piece {
    /// A new one.
    ///
    /// # Panics
    /// When the host has no memory for it.
    pub fn new() -> Piece {
        let memory = memmap2::MmapOptions::new().len(STACK_BYTES).map_anon().expect("256 KiB for a stack");
        Piece { memory }
    }

    /// Whether it was used to the end.
    pub fn overflowed(&self) -> bool {
        self.memory[..64].iter().any(|&byte| byte != 0)
    }
}

// SAFETY: the mapping lives as long as the piece, which the coroutine owns while it runs; it is page-aligned. It has no guard
// page: each run ends with a look at its lowest bytes.
unsafe impl Stack for Piece {
    fn base(&self) -> StackPointer {
        StackPointer::new(self.memory.as_ptr().addr() + STACK_BYTES).expect("a mapped address")
    }
    fn limit(&self) -> StackPointer {
        StackPointer::new(self.memory.as_ptr().addr()).expect("a mapped address")
    }
}
