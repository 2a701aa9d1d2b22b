//! One word of an x86-64 page table.

use crate::addr::{FrameNumber, Generation, PAGE_SHIFT};

/// What an entry says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Entry(pub u64);

impl Entry {
    /// Leads nowhere.
    pub const NONE: Entry = Entry(0);
    /// The entry is valid.
    pub const PRESENT: u64 = 1 << 0;
    /// Writes are allowed.
    pub const WRITABLE: u64 = 1 << 1;
    /// User addresses are allowed.
    pub const USER: u64 = 1 << 2;
    /// Set by the hardware when it caches the entry.
    pub const ACCESSED: u64 = 1 << 5;
    /// Set by the hardware at the first write.
    pub const DIRTY: u64 = 1 << 6;
    /// On a higher level: a large page.
    pub const LARGE: u64 = 1 << 7;
    /// Stays in the TLB across loads of other spaces.
    pub const GLOBAL: u64 = 1 << 8;
    /// Instructions may not be fetched.
    pub const NO_EXECUTE: u64 = 1 << 63;
    const FRAME: u64 = 0x000f_ffff_ffff_f000;
    /// In an entry that is not present: reclaim took the page, and the flush was deferred until the
    /// generation in the upper bits.
    const DEFERRED: u64 = 1 << 1;

    /// A user page.
    pub const fn page(frame: FrameNumber, writable: bool) -> Entry {
        let write = if writable { Self::WRITABLE } else { 0 };
        Entry(frame.phys().0 | Self::PRESENT | Self::USER | Self::ACCESSED | write)
    }

    /// A table of the next level.
    pub const fn table(frame: FrameNumber) -> Entry {
        Entry(frame.phys().0 | Self::PRESENT | Self::USER | Self::WRITABLE | Self::ACCESSED)
    }

    /// What reclaim leaves behind where it deferred the flush (INV-12).
    pub const fn deferred(generation: Generation) -> Entry {
        Entry(generation.0 << 8 | Self::DEFERRED)
    }

    /// The generation of a deferred flush, if this is what reclaim left behind.
    pub const fn deferred_until(self) -> Option<Generation> {
        if self.0 & (Self::PRESENT | Self::DEFERRED) == Self::DEFERRED {
            Some(Generation(self.0 >> 8))
        } else {
            None
        }
    }

    /// Whether the hardware may use it.
    pub const fn is_present(self) -> bool {
        self.0 & Self::PRESENT != 0
    }

    /// Whether all of these bits are set.
    pub const fn has(self, bits: u64) -> bool {
        self.0 & bits == bits
    }

    /// The frame that a present entry leads to.
    pub const fn frame(self) -> FrameNumber {
        FrameNumber(((self.0 & Self::FRAME) >> PAGE_SHIFT) as u32)
    }
}
