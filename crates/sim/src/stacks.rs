//! Stacks of tasks, cut from one mapping: a stack mapped by itself would cost two of the host's map areas.

use corosensei::stack::{Stack, StackPointer};

/// Bytes of a task's stack. The core keeps a few hundred bytes per call; the deepest way, from a page fault
/// through direct reclaim to an interrupt, stays well below.
const STACK_BYTES: usize = 64 << 10;

/// From one stack to the next: 17 lines more, so that the same depth of different stacks falls into different sets
/// of the host's caches. With a power of two, thousands of tasks would share a handful of lines.
const STRIDE: usize = STACK_BYTES + 17 * 64;

/// All stacks of a run.
pub struct Stacks {
    memory: memmap2::MmapMut,
    used: usize,
}

impl Stacks {
    /// Room for `count` stacks; pages are taken as they are touched.
    pub fn new(count: usize) -> std::io::Result<Stacks> {
        let memory = memmap2::MmapOptions::new().len(STRIDE * count.max(1)).no_reserve_swap().map_anon()?;
        Ok(Stacks { memory, used: 0 })
    }

    /// Whether a task has used its whole stack: its lowest bytes were never touched unless it did.
    pub fn overflowed(&self) -> bool {
        (0..self.used).any(|i| self.memory[i * STRIDE..][..64].iter().any(|&byte| byte != 0))
    }

    /// The next stack. Must not outlive this arena.
    pub fn cut(&mut self) -> Piece {
        assert!((self.used + 1) * STRIDE <= self.memory.len(), "more tasks than the run was sized for");
        let limit = self.memory.as_ptr().addr() + self.used * STRIDE;
        self.used += 1;
        Piece { limit, base: limit + STACK_BYTES }
    }
}

/// A piece of the arena.
pub struct Piece {
    limit: usize,
    base: usize,
}

// SAFETY: the piece is mapped, aligned to cache lines, used by one coroutine only, and the arena lives until the
// coroutines are gone (the engine drops them first). Below it lies another stack and no guard: a run
// ends with a look at each piece's lowest bytes (`Stacks::overflowed`).
unsafe impl Stack for Piece {
    fn base(&self) -> StackPointer {
        StackPointer::new(self.base).expect("a mapped address")
    }
    fn limit(&self) -> StackPointer {
        StackPointer::new(self.limit).expect("a mapped address")
    }
}

/// Has the host fetch the line at an address soon: a hint, which may be wrong.
#[inline]
pub fn prefetch(at: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint accesses nothing, whatever the address; SSE is part of every x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(at));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
