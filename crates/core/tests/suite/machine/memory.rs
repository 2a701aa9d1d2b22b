//! The memory of machines that a test makes one after the other.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::ops::Deref;

use quietmm::FrameNumber;
use quietmm::addr::PAGE_SIZE;
use quietmm_hardware::Arena;

thread_local! {
    /// That of the last machine which has gone.
    static LEFT: RefCell<Option<Arena>> = const { RefCell::new(None) };
}

/// A machine's memory. The next one of the same thread that has as much gets it with whatever is in it, as after a warm boot: the core
/// may rely on nothing that it finds there. The host would clear it all for each of thousands.
pub(super) struct Lent(ManuallyDrop<Arena>);

impl Lent {
    /// So many frames from `first` on.
    pub(super) fn new(first: FrameNumber, frames: u32) -> Lent {
        let fits = |arena: &Arena| {
            arena.bytes() == u64::from(frames) * PAGE_SIZE && arena.frame_of(arena.start()) == Some(first)
        };
        let arena = LEFT.take().filter(fits).unwrap_or_else(|| {
            // From the host's system, piece by piece as it is touched: an allocator would clear it all.
            let arena = Arena::new(first, frames).expect("so much memory");
            // Larger ones are empty for the most part.
            if frames <= 1 << 14 {
                arena.expect_writes();
            }
            arena
        });
        Lent(ManuallyDrop::new(arena))
    }
}

impl Deref for Lent {
    type Target = Arena;

    fn deref(&self) -> &Arena {
        &self.0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: once, and nobody has it afterwards.
        let arena = unsafe { ManuallyDrop::take(&mut self.0) };
        // As a thread ends there is no other machine.
        _ = LEFT.try_with(|left| left.replace(Some(arena)));
    }
}
