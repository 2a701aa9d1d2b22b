//! One word of an x86-64 page table.

use super::{KernelProt, Prot, UserAccess};
use crate::addr::{FrameNumber, Generation, PAGE_SHIFT};
use crate::platform::Platform;

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
    /// What decides who may do what.
    pub(crate) const RIGHTS: u64 = Self::USER | Self::WRITABLE;
    const FRAME: u64 = 0x000f_ffff_ffff_f000;
    /// In an entry that is not present: reclaim took the page, and the flush was deferred until the
    /// generation in the upper bits.
    const DEFERRED: u64 = 1 << 8;
    /// In an entry that is not present: an operation took it out and has not flushed yet; all other bits are as
    /// they were.
    const TAKEN: u64 = 1 << 9;
    /// In an entry that is not present: the page is in the swap slot in the upper bits.
    const SWAPPED: u64 = 1 << 11;
    /// Where the slot lies.
    const SLOT_SHIFT: u32 = 12;
    /// Where the generation of a deferred flush lies.
    const GENERATION_SHIFT: u32 = 12;

    /// A page that programs may use as `prot` says.
    pub const fn page(frame: FrameNumber, prot: Prot) -> Entry {
        Entry(frame.phys().0 | Self::PRESENT | Self::ACCESSED | prot.bits())
    }

    /// A page of the kernel's own range. Accessed and dirty are set from the start, so that no CPU ever writes to the entry;
    /// global, so that it outlives switches of space: only a flush of kernel addresses reaches it.
    pub(crate) const fn kernel(frame: FrameNumber, prot: KernelProt) -> Entry {
        let own = Self::PRESENT | Self::ACCESSED | Self::DIRTY | Self::GLOBAL;
        Entry(frame.phys().0 | own | prot.bits())
    }

    /// A table of the next level.
    pub const fn table(frame: FrameNumber) -> Entry {
        Entry(frame.phys().0 | Self::PRESENT | Self::USER | Self::WRITABLE | Self::ACCESSED)
    }

    /// What reclaim leaves behind where it deferred the flush (INV-12).
    pub const fn deferred(generation: Generation) -> Entry {
        Entry(generation.0 << Self::GENERATION_SHIFT | Self::DEFERRED)
    }

    /// The generation of a deferred flush, if this is what reclaim left behind.
    pub const fn deferred_until(self) -> Option<Generation> {
        if self.0 & (Self::PRESENT | Self::TAKEN | Self::DEFERRED | Self::SWAPPED) == Self::DEFERRED {
            Some(Generation(self.0 >> Self::GENERATION_SHIFT))
        } else {
            None
        }
    }

    /// What reclaim leaves behind of a page that it gave a swap slot.
    pub(crate) const fn swapped(slot: u32) -> Entry {
        Entry((slot as u64) << Self::SLOT_SHIFT | Self::SWAPPED)
    }

    /// The swap slot of the page, if this is what reclaim left behind.
    pub(crate) const fn swap_slot(self) -> Option<u32> {
        if self.is_swapped() { Some((self.0 >> Self::SLOT_SHIFT) as u32) } else { None }
    }

    /// Whether the page that was here has a swap slot: it is on a device, on its way there, or still in memory.
    pub const fn is_swapped(self) -> bool {
        self.0 & (Self::PRESENT | Self::TAKEN | Self::DEFERRED | Self::SWAPPED) == Self::SWAPPED
    }

    /// A present entry as the operation that takes it out leaves it until it has flushed.
    pub const fn taken(self) -> Entry {
        Entry(self.0 & !Self::PRESENT | Self::TAKEN)
    }

    /// Whether an operation took it out and has not let go of its frame yet.
    pub const fn is_taken(self) -> bool {
        self.0 & (Self::PRESENT | Self::TAKEN) == Self::TAKEN
    }

    /// What a taken entry was.
    pub const fn restored(self) -> Entry {
        Entry(self.0 & !Self::TAKEN | Self::PRESENT)
    }

    /// Whether its page may have been written to through it, up to the flush. Without the guarantee that a write
    /// through a cached clean entry walks again, the dirty bit alone does not say so.
    pub(crate) fn may_be_dirty<P: Platform>(self, p: &P) -> bool {
        self.has(Self::DIRTY) || self.has(Self::WRITABLE) && !p.guarantees().clean_write_walks()
    }

    /// The same, without the right to write.
    pub(crate) const fn read_only(self) -> Entry {
        Entry(self.0 & !Self::WRITABLE)
    }

    /// Whether the hardware may use it.
    pub const fn is_present(self) -> bool {
        self.0 & Self::PRESENT != 0
    }

    /// Whether all of these bits are set.
    pub const fn has(self, bits: u64) -> bool {
        self.0 & bits == bits
    }

    /// The same, leading to another frame.
    pub(crate) const fn leading_to(self, frame: FrameNumber) -> Entry {
        Entry(self.0 & !Self::FRAME | frame.phys().0)
    }

    /// Whether programs may do this through it.
    pub const fn permits(self, access: UserAccess) -> bool {
        match access {
            UserAccess::Read => self.has(Self::PRESENT | Self::USER),
            UserAccess::Write => self.has(Self::PRESENT | Self::USER | Self::WRITABLE),
        }
    }

    /// The frame that a present or taken entry leads to.
    pub const fn frame(self) -> FrameNumber {
        FrameNumber(((self.0 & Self::FRAME) >> PAGE_SHIFT) as u32)
    }
}
