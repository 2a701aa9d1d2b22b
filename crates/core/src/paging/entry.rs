//! What an entry of a page table says, in x86-64's bits. How other architectures write it down is in `encoding.rs`.
//!
//! **What is not present leads nowhere.** A CPU with the L1 terminal fault (CVE-2018-3620) uses the address bits of an entry
//! that is not present on paths that it only speculates on: whoever chooses what lies there reads, with patience, whatever the
//! first-level cache holds at that address. So what the core keeps in such entries (frames, swap slots, generations) lies
//! inverted in the address bits. With a number below 2^31 all of them from bit 43 up are 1, whichever of 44, 46 or 52 the
//! cache compares: an address in the upper half, where the core is handed no memory
//! ([`FrameNumber::END`](crate::FrameNumber::END)). An entry that is empty names frame 0: if that is managed, the core's
//! bookkeeping lies there.

use crate::addr::{FrameNumber, Generation, PAGE_SHIFT};
use crate::paging::stamp::Stamp;
use crate::paging::{KernelProt, Prot, UserAccess};
use crate::platform::Platform;

/// What an entry says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Entry(pub u64);

impl Prot {
    /// Its bits in an entry.
    pub(crate) const fn bits(self) -> u64 {
        match self {
            Prot::None => 0,
            Prot::Read => Entry::USER | Entry::NO_EXECUTE,
            Prot::ReadWrite => Entry::USER | Entry::WRITABLE | Entry::NO_EXECUTE,
            Prot::ReadExecute => Entry::USER,
            Prot::ReadWriteExecute => Entry::USER | Entry::WRITABLE,
        }
    }
}

impl KernelProt {
    /// Its bits in an entry.
    pub(crate) const fn bits(self) -> u64 {
        match self {
            KernelProt::Read => Entry::NO_EXECUTE,
            KernelProt::ReadWrite => Entry::NO_EXECUTE | Entry::WRITABLE,
            KernelProt::ReadExecute => 0,
        }
    }
}

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
    /// Which sweep must end before no CPU can have cached what the entry was before its accessed bit was last cleared: its
    /// [`Stamp`]. The hardware ignores these bits of an entry that leads to a page.
    const STAMP: u64 = 0x7f << STAMP_SHIFT;
    /// What decides who may do what.
    pub(crate) const RIGHTS: u64 = Self::USER | Self::WRITABLE | Self::NO_EXECUTE;
    /// What the hardware takes for a physical address.
    const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
    /// In an entry that is not present: reclaim took the page, and the flush was deferred until the
    /// generation that is kept here.
    const DEFERRED: u64 = 1 << 8;
    /// In an entry that is not present: an operation took it out and has not flushed yet; all other bits are as
    /// they were.
    const TAKEN: u64 = 1 << 9;
    /// In an entry that is not present: the page is there, and nobody may use it. Where it was taken out: it was so before.
    const PROT_NONE: u64 = 1 << 10;
    /// In an entry that is not present: the page is in the swap slot that is kept here.
    const SWAPPED: u64 = 1 << 11;
    /// In an entry that is not present: an operation took the page out, and other CPUs may have it cached until the sweep whose
    /// number is kept here is over.
    const PARKED: u64 = Self::DEFERRED | Self::SWAPPED;
    /// What an entry is.
    const SORT: u64 = Self::PRESENT | Self::TAKEN | Self::PROT_NONE | Self::DEFERRED | Self::SWAPPED;

    /// A page that programs may use as `prot` says.
    pub const fn page(frame: FrameNumber, prot: Prot) -> Entry {
        Entry(frame.phys().0 | Self::PRESENT | Self::ACCESSED).with_prot(prot)
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
        Entry(Self::keeping(generation.0) | Self::DEFERRED)
    }

    /// The generation of a deferred flush, if this is what reclaim left behind. `newest` is the space's own by now: it stands
    /// for a generation that was too large to be kept, since that is no later.
    pub fn deferred_until(self, newest: impl FnOnce() -> Generation) -> Option<Generation> {
        if self.0 & Self::SORT != Self::DEFERRED {
            return None;
        }
        let kept = self.kept();
        Some(if kept == KEPT { newest() } else { Generation(kept) })
    }

    /// What an operation leaves behind with `free=sweep` (INV-14). Of sweeps there are never as many as can be kept.
    pub(crate) const fn parked(sweep: u64) -> Entry {
        Entry(Self::keeping(sweep) | Self::PARKED)
    }

    /// The sweep that must be over before no CPU has cached what was here, if an operation has parked it.
    pub(crate) const fn parked_until(self) -> Option<u64> {
        if self.0 & Self::SORT == Self::PARKED { Some(self.kept()) } else { None }
    }

    /// The bits of an entry that is not present and keeps a number of 50 bits.
    const fn keeping(number: u64) -> u64 {
        let kept = if number < KEPT { number } else { KEPT };
        let (low, middle, high) = (kept & LOW, kept >> LOW_BITS & MIDDLE, kept >> (LOW_BITS + MIDDLE_BITS));
        Self::nowhere(low) | middle << MIDDLE_SHIFT | high << HIGH_SHIFT
    }

    const fn kept(self) -> u64 {
        let (middle, high) = (self.0 >> MIDDLE_SHIFT & MIDDLE, self.0 >> HIGH_SHIFT & HIGH);
        self.number() & LOW | middle << LOW_BITS | high << (LOW_BITS + MIDDLE_BITS)
    }

    /// What reclaim leaves behind of a page that it gave a swap slot.
    pub(crate) const fn swapped(slot: u32) -> Entry {
        const { assert!(crate::memmap::MAX_SLOT < FrameNumber::END.0) };
        Entry(Self::nowhere(slot as u64) | Self::SWAPPED)
    }

    /// The swap slot of the page, if this is what reclaim left behind.
    pub(crate) const fn swap_slot(self) -> Option<u32> {
        if self.is_swapped() { Some(self.number() as u32) } else { None }
    }

    /// Whether the page that was here has a swap slot: it is on a device, on its way there, or still in memory.
    pub const fn is_swapped(self) -> bool {
        self.0 & Self::SORT == Self::SWAPPED
    }

    /// An entry that leads to a page as the operation that takes it out leaves it until it has flushed.
    pub const fn taken(self) -> Entry {
        Entry(self.hidden().0 | Self::TAKEN)
    }

    /// Whether an operation took it out and has not let go of its frame yet.
    pub const fn is_taken(self) -> bool {
        self.0 & (Self::PRESENT | Self::TAKEN) == Self::TAKEN
    }

    /// What a taken entry was.
    pub const fn restored(self) -> Entry {
        let was = Entry(self.0 & !Self::TAKEN);
        if was.is_prot_none() { was } else { was.shown() }
    }

    /// Whether its page is there and nobody may use it, the kernel neither ([`Prot::None`]): not present for the
    /// hardware, with its frame and its dirty bit.
    #[doc(alias = "pte_protnone")]
    pub const fn is_prot_none(self) -> bool {
        self.0 & (Self::PRESENT | Self::TAKEN | Self::PROT_NONE) == Self::PROT_NONE
    }

    /// Whether it leads to a page that is in memory, whoever may use it: present, or [`Prot::None`].
    #[doc(alias = "pte_present")]
    pub const fn is_mapped(self) -> bool {
        self.is_present() || self.is_prot_none()
    }

    /// An entry that leads to a page, with these rights. One that becomes present is accessed: no CPU has it cached, and only
    /// aging makes it look idle.
    pub(crate) const fn with_prot(self, prot: Prot) -> Entry {
        match prot {
            Prot::None => Entry(self.hidden().0 & !Self::RIGHTS | Self::PROT_NONE),
            _ if self.is_present() => Entry(self.0 & !Self::RIGHTS | prot.bits()),
            _ => Entry(self.shown().0 & !Self::PROT_NONE | Self::ACCESSED | prot.bits()),
        }
    }

    /// Not present, with the same frame.
    const fn hidden(self) -> Entry {
        if self.is_present() { Entry((self.0 ^ Self::ADDRESS) & !Self::PRESENT) } else { self }
    }

    /// The other way.
    const fn shown(self) -> Entry {
        Entry(self.0 ^ Self::ADDRESS | Self::PRESENT)
    }

    /// The address bits of an entry that is not present and keeps this number.
    const fn nowhere(number: u64) -> u64 {
        !(number << PAGE_SHIFT) & Self::ADDRESS
    }

    /// The number in the address bits.
    const fn number(self) -> u64 {
        let address = if self.is_present() { self.0 } else { !self.0 };
        (address & Self::ADDRESS) >> PAGE_SHIFT
    }

    /// The same, not accessed, and stamped (INV-13).
    pub(crate) const fn aged(self, stamp: Stamp) -> Entry {
        Entry(self.0 & !Self::ACCESSED).with_stamp(stamp.0)
    }

    /// The same with another stamp.
    pub(super) const fn with_stamp(self, stamp: u8) -> Entry {
        Entry(self.0 & !Self::STAMP | (stamp as u64) << STAMP_SHIFT)
    }

    /// When its accessed bit was last cleared.
    pub(crate) const fn stamp(self) -> Stamp {
        Stamp(((self.0 & Self::STAMP) >> STAMP_SHIFT) as u8)
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
        let address = if self.is_present() { frame.phys().0 } else { Self::nowhere(frame.0 as u64) };
        Entry(self.0 & !Self::ADDRESS | address)
    }

    /// Whether programs may do this through it.
    pub const fn permits(self, access: UserAccess) -> bool {
        match access {
            UserAccess::Read => self.has(Self::PRESENT | Self::USER),
            UserAccess::Write => self.has(Self::PRESENT | Self::USER | Self::WRITABLE),
            UserAccess::Execute => self.has(Self::PRESENT | Self::USER) && !self.has(Self::NO_EXECUTE),
        }
    }

    /// Whether programs may do something through it that these rights do not permit.
    pub(crate) fn exceeds(self, prot: Prot) -> bool {
        UserAccess::ALL.into_iter().any(|access| self.permits(access) && !prot.permits(access))
    }

    /// The frame that an entry leads to, if it is mapped or taken.
    pub const fn frame(self) -> FrameNumber {
        FrameNumber(self.number() as u32)
    }
}

/// Where a stamp lies.
const STAMP_SHIFT: u32 = 52;

/// Where the bits of a generation lie in an entry that keeps one: the lower ones in the address, the next above it, and the
/// last in what would be rights.
const LOW_BITS: u32 = FrameNumber::END.0.ilog2();
const LOW: u64 = (1 << LOW_BITS) - 1;
const MIDDLE_BITS: u32 = 12;
const MIDDLE: u64 = (1 << MIDDLE_BITS) - 1;
const MIDDLE_SHIFT: u32 = 52;
const HIGH: u64 = (1 << 7) - 1;
const HIGH_SHIFT: u32 = 1;
/// The greatest number that is kept, and stands for all that are greater: 2^50 - 1. A space whose translations are taken away
/// a million times a second comes to it after 35 years; from then on a fault on such an entry flushes once more than it must.
const KEPT: u64 = HIGH << (LOW_BITS + MIDDLE_BITS) | MIDDLE << LOW_BITS | LOW;

#[cfg(test)]
mod tests {
    use crate::memmap::MAX_SLOT;
    use crate::paging::entry::*;

    /// The frame at which an entry points, whoever looks at it: what the address bits are, and nothing else.
    fn points_at(entry: Entry) -> u64 {
        (entry.0 >> 12) & 0xff_ffff_ffff
    }

    /// Not present, and its address is beyond all memory, however many bits of it the cache compares.
    fn leads_nowhere(entry: Entry) {
        assert_eq!(entry.0 & 1, 0, "{entry:?} is present");
        for bits in [44, 46, 52] {
            let seen = points_at(entry) & ((1 << (bits - 12)) - 1);
            assert!(seen >= u64::from(FrameNumber::END.0), "{entry:?} names frame {seen:#x}");
        }
    }

    /// 0, powers of two and their neighbours, and some between, below `end`.
    fn numbers(end: u64) -> impl Iterator<Item = u64> {
        let edges = (0..64).map(|bit| 1u64 << bit).flat_map(|at| [at - 1, at, at.wrapping_add(1)]);
        let between = (1..500u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (i % 64));
        edges.chain(between).chain([end - 1]).filter(move |&n| n < end)
    }

    fn frames() -> impl Iterator<Item = FrameNumber> {
        numbers(FrameNumber::END.0.into()).map(|n| FrameNumber(n as u32))
    }

    #[test]
    fn a_generation_is_kept_and_leads_nowhere() {
        let newest = Generation(u64::MAX);
        for n in numbers(u64::MAX) {
            let entry = Entry::deferred(Generation(n));
            leads_nowhere(entry);
            // What is too large to be kept is no later than the newest.
            let want = if n < (1 << 50) - 1 { Generation(n) } else { newest };
            assert_eq!(entry.deferred_until(|| newest), Some(want), "{n:#x}");
            assert!(
                !entry.is_mapped() && !entry.is_taken() && !entry.is_swapped() && entry.swap_slot().is_none()
            );
        }
    }

    #[test]
    fn the_sweep_of_a_parked_page_is_kept_and_leads_nowhere() {
        for n in numbers(KEPT) {
            let entry = Entry::parked(n);
            leads_nowhere(entry);
            assert_eq!(entry.parked_until(), Some(n), "{n:#x}");
            assert!(
                !entry.is_mapped() && !entry.is_taken() && !entry.is_swapped() && entry.swap_slot().is_none()
            );
            assert_eq!(entry.deferred_until(|| Generation(0)), None);
            assert_eq!(Entry::deferred(Generation(n)).parked_until(), None);
        }
        assert_eq!(Entry::swapped(5).parked_until(), None);
        assert_eq!(Entry::NONE.parked_until(), None);
    }

    #[test]
    fn a_swap_slot_is_kept_and_leads_nowhere() {
        for slot in numbers(u64::from(MAX_SLOT) + 1).map(|n| n as u32) {
            let entry = Entry::swapped(slot);
            leads_nowhere(entry);
            assert_eq!(entry.swap_slot(), Some(slot));
            assert!(entry.is_swapped() && !entry.is_mapped() && !entry.is_taken());
            assert_eq!(entry.deferred_until(|| Generation(0)), None);
        }
    }

    /// Bits that an entry of a page may have beside its frame and its rights: hardware's, and those that it ignores.
    const OTHERS: [u64; 4] =
        [0, Entry::ACCESSED, Entry::DIRTY | Entry::LARGE, 0x7f << 52 | Entry::ACCESSED | Entry::DIRTY];

    #[test]
    fn a_page_that_is_hidden_keeps_its_frame_and_its_bits_and_leads_nowhere() {
        for (frame, others) in frames().flat_map(|frame| OTHERS.map(|others| (frame, others))) {
            for prot in Prot::ALL {
                let page = Entry(Entry::page(frame, prot).0 & !Entry::ACCESSED | others);
                assert_eq!((page.frame(), page.is_mapped()), (frame, true));
                assert_eq!(
                    (page.is_present(), page.is_prot_none()),
                    (prot != Prot::None, prot == Prot::None)
                );
                assert_eq!(page.is_present(), points_at(page) == u64::from(frame.0));
                let taken = page.taken();
                leads_nowhere(taken);
                assert!(
                    taken.is_taken() && !taken.is_mapped() && !taken.is_swapped() && !taken.is_prot_none()
                );
                assert_eq!((taken.frame(), taken.restored()), (frame, page));
                assert!(taken.deferred_until(|| Generation(0)).is_none());
                // All ways to change rights, and back.
                let none = page.with_prot(Prot::None);
                leads_nowhere(none);
                assert_eq!((none.frame(), none.0 & others), (frame, others));
                assert_eq!(none, none.with_prot(Prot::None));
                for next in Prot::ALL.into_iter().filter(|&next| next != Prot::None) {
                    let again = none.with_prot(next);
                    assert_eq!(again, Entry(Entry::page(frame, next).0 | others), "accessed, and as it was");
                    assert_eq!(page.with_prot(next).0 | Entry::ACCESSED, again.0);
                }
                for to in [FrameNumber(1), FrameNumber(FrameNumber::END.0 - 1)] {
                    let moved = page.leading_to(to);
                    assert_eq!((moved.frame(), moved.leading_to(frame)), (to, page));
                    assert_eq!(taken.leading_to(to).restored(), moved);
                    leads_nowhere(taken.leading_to(to));
                }
            }
        }
    }

    #[test]
    fn a_page_of_the_kernel_is_taken_and_comes_back() {
        for (frame, prot) in
            frames().zip([KernelProt::Read, KernelProt::ReadWrite, KernelProt::ReadExecute].iter().cycle())
        {
            let page = Entry::kernel(frame, *prot);
            leads_nowhere(page.taken());
            assert_eq!((page.taken().restored(), page.taken().frame()), (page, frame));
        }
    }

    #[test]
    fn an_empty_entry_is_none_of_these() {
        let none = Entry::NONE;
        assert!(!none.is_mapped() && !none.is_taken() && !none.is_swapped() && !none.is_present());
        assert!(none.deferred_until(|| Generation(0)).is_none());
        // Whoever looks at it all the same finds frame 0, which the core gives to nobody.
        assert_eq!(points_at(none), 0);
    }
}
