//! Memory on the host, at physical addresses: what a platform's direct map shows.

use memmap2::{MmapOptions, MmapRaw};
use quietmm::addr::PAGE_SIZE;
use quietmm::{FrameNumber, PhysAddr};

/// Frames from one on, all zeros at first.
pub struct Arena {
    memory: MmapRaw,
    first: FrameNumber,
    frames: u32,
}

impl Arena {
    /// So many frames from `first` on.
    ///
    /// # Errors
    /// The host has no room for them.
    pub fn new(first: FrameNumber, frames: u32) -> std::io::Result<Arena> {
        let memory =
            MmapOptions::new().len(frames as usize * PAGE_SIZE as usize).no_reserve_swap().map_anon()?;
        Ok(Arena { memory: memory.into(), first, frames })
    }

    /// Most of it will be written to: the host may back it with large pages, which it clears at once.
    pub fn expect_writes(&self) {
        // Without them it is all the same, only slower.
        #[cfg(target_os = "linux")]
        let _ = self.memory.advise(memmap2::Advice::HugePage);
    }

    /// Where a physical address lies on the host.
    ///
    /// # Panics
    /// Outside the memory: the core must never ask.
    #[inline]
    #[track_caller]
    pub fn direct(&self, at: PhysAddr) -> *mut u8 {
        let offset = at.0.wrapping_sub(self.first.phys().0);
        assert!(offset < self.bytes(), "the core reaches outside the memory, to {at:?}");
        self.start().wrapping_add(offset as usize)
    }

    /// The frame in which an address of the host lies.
    #[inline]
    pub fn frame_of(&self, at: *const u8) -> Option<FrameNumber> {
        self.offset_of(at).map(|offset| self.first.add((offset / PAGE_SIZE) as u32))
    }

    /// How far into the memory an address of the host lies.
    #[inline]
    pub fn offset_of(&self, at: *const u8) -> Option<u64> {
        let offset = at.addr().wrapping_sub(self.start().addr()) as u64;
        (offset < self.bytes()).then_some(offset)
    }

    /// Which of its frames this is, from 0.
    #[inline]
    pub fn index_of(&self, frame: FrameNumber) -> Option<usize> {
        frame.0.checked_sub(self.first.0).filter(|&index| index < self.frames).map(|index| index as usize)
    }

    /// A word of a frame; none outside the memory.
    #[inline]
    pub fn word(&self, frame: FrameNumber, index: usize) -> Option<*mut u64> {
        let at = self.index_of(frame)? * PAGE_SIZE as usize + 8 * index;
        (at + 8 <= self.bytes() as usize).then(|| self.start().wrapping_add(at).cast())
    }

    /// Where it begins on the host.
    #[inline]
    pub fn start(&self) -> *mut u8 {
        self.memory.as_mut_ptr()
    }

    /// How large it is.
    #[inline]
    pub fn bytes(&self) -> u64 {
        u64::from(self.frames) * PAGE_SIZE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_to_the_host_and_back() {
        let arena = Arena::new(FrameNumber(0x1000), 3).unwrap();
        let at = arena.direct(PhysAddr(0x1001 << 12 | 8));
        assert_eq!(arena.frame_of(at), Some(FrameNumber(0x1001)));
        assert_eq!(arena.offset_of(at), Some(0x1008));
        assert_eq!(arena.word(FrameNumber(0x1001), 1), Some(at.cast()));
        // SAFETY: inside the memory, aligned.
        assert_eq!(unsafe { *at.cast::<u64>() }, 0);
        let outside = [0xfff, 0x1003].map(FrameNumber);
        assert!(
            outside.iter().all(|&frame| arena.word(frame, 0).is_none() && arena.index_of(frame).is_none())
        );
        assert!(
            arena.word(FrameNumber(0x1002), 511).is_some() && arena.word(FrameNumber(0x1002), 512).is_none()
        );
        assert_eq!(arena.frame_of(std::ptr::null()), None);
    }

    #[test]
    #[should_panic(expected = "outside the memory")]
    fn nobody_reaches_outside() {
        Arena::new(FrameNumber(0x1000), 3).unwrap().direct(PhysAddr(0x1003 << 12));
    }
}
