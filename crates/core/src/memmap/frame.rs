//! What is kept about one frame: its state, its references, its neighbours, what it belongs to. 32 bytes.

use core::sync::atomic::Ordering;

use crate::addr::{FrameNumber, NodeId};
use crate::kind::Kind;
use crate::platform::Hooks;
use crate::profile::Scope;
use crate::rule::Rule;
use crate::sync::{SpinLock, Word32, Word64};
use crate::zeroed::Zeroed;

/// The largest block is 2^10 frames: 4 MiB.
pub const MAX_ORDER: u8 = 10;

/// The bits of a frame's state word that say its kind.
const KIND: u32 = 7;

/// Bits of a frame's state word, beside the kind (bits 0-2) and the order (bits 4-7).
pub(crate) mod flag {
    /// In its file's cache, and not read yet. Apart from the others: next to the kind.
    pub const UNREAD: u32 = 1 << 3;
    /// Somebody reclaims, reads or writes this page; others leave it alone. A table: somebody drops pages under it.
    pub const LOCKED: u32 = 1 << 8;
    /// Aging saw one use: the next one activates.
    pub const REFERENCED: u32 = 1 << 9;
    /// On, or bound for, the active list.
    pub const ACTIVE: u32 = 1 << 10;
    /// On a list of its node; clear while isolated or in a per-CPU batch. A free block, of kind `Tail`: on a per-CPU
    /// list.
    pub const LISTED: u32 = 1 << 11;
    /// Its content is newer than its file's.
    pub const DIRTY: u32 = 1 << 12;
    /// In an unmap batch, not flushed: a leak if no batch owns it.
    pub const UNFLUSHED: u32 = 1 << 13;
    /// Somebody waits for the page's lock.
    pub const AWAITED: u32 = 1 << 15;
    /// The core's own, of kind `Kernel`: in a pool or an index. Nobody frees it by its number.
    pub const OWN: u32 = 1 << 14;
    /// An anonymous page that was read from swap because it lay beside another, and that nobody has asked for yet.
    pub const AHEAD: u32 = 1 << 14;
    /// A page of a file that leaves its cache, or has left it, though others hold it: it is mapped no more.
    pub const CUT: u32 = 1 << 14;
    /// A page of a file that was read ahead, and that nobody has used yet. Above its node.
    pub const UNUSED: u32 = 1 << 30;
    /// An anonymous page whose content is not wanted any more, unless it is written again.
    pub const LAZY: u32 = 1 << 31;
    /// A page of a memory file: it goes to swap.
    pub const MEMORY: u32 = 1 << 31;
}

/// The references to a frame that one pin is (Linux: `GUP_PIN_COUNTING_BIAS`): so a pin costs no word, and whoever
/// counts references counts it.
pub(crate) const PIN: u32 = 1 << 16;

const NODE_SHIFT: u32 = 24;
const ZONE_SHIFT: u32 = 16;
/// What of a frame's state word never changes: its zone, and its node, which is below 64.
const PLACE: u32 = 0x3fff << ZONE_SHIFT;

/// What the core keeps about one frame.
#[repr(C, align(32))]
pub(crate) struct Frame {
    /// Kind, order, flags, zone (bits 16-23) and node (bits 24-29).
    pub state: Word32,
    /// References: the page cache's, each mapping's, those of whoever works on it. A table's: entries in use.
    pub refs: Word32,
    /// The neighbours on whatever list this frame is on. A table's: its lock.
    pub(super) link: Link,
    /// Entries that lead here.
    pub maps: Word32,
    /// The file (kind `File`) or the `anon_vma` (kind `Anon`) that it belongs to.
    pub owner: Word32,
    /// The page of the file; or the index in the `anon_vma`, below [`MAX_INDEX`], and above it the swap slot plus one.
    pub index: Word64,
}

/// Indices in `anon_vma`s are below this.
pub(crate) const MAX_INDEX: u64 = 1 << INDEX_BITS;
/// Swap slots are below this: 1 TiB of swap.
pub(crate) const MAX_SLOT: u32 = (1 << (64 - INDEX_BITS)) - 1;
const INDEX_BITS: u32 = 36;

// SAFETY: atomics; zeros are an absent frame.
unsafe impl Zeroed for Frame {}

impl Frame {
    pub fn kind<P: Hooks>(&self, p: &P) -> Kind {
        Self::kind_of(self.state.get(p))
    }

    pub const fn kind_of(state: u32) -> Kind {
        Kind::ALL[(state & KIND) as usize]
    }

    pub const fn order_of(state: u32) -> u8 {
        ((state >> 4) & 15) as u8
    }

    pub const fn node_of(state: u32) -> NodeId {
        NodeId(((state & PLACE) >> NODE_SHIFT) as u16)
    }

    pub const fn zone_of(state: u32) -> usize {
        ((state >> ZONE_SHIFT) & 255) as usize
    }

    /// Gives a frame its place, before anybody sees it.
    pub fn set_place<P: Hooks>(&self, p: &P, (zone, node): (usize, NodeId), kind: Kind) {
        self.state.set(p, u32::from(node.0) << NODE_SHIFT | (zone as u32) << ZONE_SHIFT | kind as u32);
    }

    /// Gives a block's first frame a new use; keeps its zone and node, drops all flags.
    pub fn set_kind<P: Hooks>(&self, p: &P, kind: Kind, order: u8) {
        let place = self.state.get(p) & PLACE;
        self.state.set(p, place | (order as u32) << 4 | kind as u32);
    }

    /// Makes the first frame of a large page a page by itself. All else stays.
    pub fn make_small<P: Hooks>(&self, p: &P) {
        self.state.fetch_and(p, !(15 << 4), Ordering::AcqRel);
    }

    /// Takes a frame that is free out of use.
    pub fn retire<P: Hooks>(&self, p: &P) {
        self.set_kind(p, Kind::Absent, 0);
    }

    /// Makes the first frame of a free block one that is on a per-CPU list.
    pub fn set_pcp<P: Hooks>(&self, p: &P, order: u8) {
        let place = self.state.get(p) & PLACE;
        self.state.set(p, place | flag::LISTED | (order as u32) << 4 | Kind::Tail as u32);
    }

    /// Whether a block in this state is one of this order that the embedding kernel has.
    pub const fn is_given_out(state: u32, order: u8) -> bool {
        const LOOK: u32 = KIND | 15 << 4 | flag::OWN;
        order <= MAX_ORDER && state & LOOK == (order as u32) << 4 | Kind::Kernel as u32
    }

    /// Takes a block of the embedding kernel's out of its hands, if it is one of this order that nobody has freed
    /// meanwhile: of two who free it, one does.
    pub fn claim<P: Hooks>(&self, p: &P, order: u8) -> bool {
        let state = self.state.get(p);
        let freed = state & PLACE | Kind::Tail as u32;
        Self::is_given_out(state, order) && self.state.replace(p, state, freed, Ordering::AcqRel).is_ok()
    }

    /// The index of an anonymous page in its `anon_vma`.
    pub fn anon_index<P: Hooks>(&self, p: &P) -> u64 {
        self.index.get(p) & (MAX_INDEX - 1)
    }

    /// By whoever has locked the page.
    pub fn set_anon_index<P: Hooks>(&self, p: &P, index: u64) {
        self.index.store(p, self.index.get(p) & !(MAX_INDEX - 1) | index, Ordering::Release);
    }

    /// The swap slot of an anonymous page: it is in the swap cache. For whoever holds the page; stable while it is locked.
    pub fn slot<P: Hooks>(&self, p: &P) -> Option<u32> {
        (self.index.load(p, Ordering::Acquire) >> INDEX_BITS).checked_sub(1).map(|slot| slot as u32)
    }

    /// By whoever has locked the page, or has it alone, under the lock of the slot.
    pub fn set_slot<P: Hooks>(&self, p: &P, slot: Option<u32>) {
        let above = slot.map_or(0, |slot| u64::from(slot) + 1) << INDEX_BITS;
        self.index.store(p, self.anon_index(p) | above, Ordering::Release);
    }

    pub fn set_flags<P: Hooks>(&self, p: &P, flags: u32) {
        self.state.fetch_or(p, flags, Ordering::AcqRel);
    }

    /// Returns the state before.
    pub fn clear_flags<P: Hooks>(&self, p: &P, flags: u32) -> u32 {
        self.state.fetch_and(p, !flags, Ordering::AcqRel)
    }

    /// Makes a page that the caller has locked, and that no entry leads to, one of another kind, without these flags, with those. It goes on
    /// to lists of the same type.
    pub fn change_kind<P: Hooks>(&self, p: &P, kind: Kind, without: u32, with: u32) {
        let mut state = self.state.get(p);
        loop {
            let new = state & !(KIND | without) | kind as u32 | with;
            debug_assert_eq!(Self::goes_to_swap(state), Self::goes_to_swap(new));
            match self.state.replace(p, state, new, Ordering::AcqRel) {
                Ok(_) => return,
                // Somebody waits for it.
                Err(now) => state = now,
            }
        }
    }

    /// Whether a page in this state is one that goes to swap, where there is any: anonymous, or a memory file's.
    pub const fn goes_to_swap(state: u32) -> bool {
        matches!(Self::kind_of(state), Kind::Anon) || Self::is_memory(state)
    }

    /// Whether it is a memory file's.
    pub const fn is_memory(state: u32) -> bool {
        matches!(Self::kind_of(state), Kind::File) && state & flag::MEMORY != 0
    }

    /// Whether a page in this state is of a file that a device keeps.
    pub const fn is_kept_by_device(state: u32) -> bool {
        matches!(Self::kind_of(state), Kind::File) && state & flag::MEMORY == 0
    }

    /// Whether somebody has pinned the page.
    pub fn is_pinned<P: Hooks>(&self, p: &P) -> bool {
        // Acquire: partner of the Release in `space/pin.rs`, so that who finds no pin finds the page dirty by what came through it.
        let refs = self.refs.load(p, Ordering::Acquire);
        Self::tells_pin(refs, self.maps.get(p))
    }

    /// How often it is, with nobody at work on it.
    pub fn pins<P: Hooks>(&self, p: &P) -> u32 {
        match self.kind(p) {
            Kind::Anon | Kind::File => self.refs.get(p).saturating_sub(self.maps.get(p)) / PIN,
            _ => 0,
        }
    }

    /// Whether one of so many references is a pin, when so many are mappings. Half a pin is enough: what comes and goes
    /// between two looks is not that much.
    pub const fn tells_pin(refs: u32, maps: u32) -> bool {
        refs.saturating_sub(maps) >= PIN / 2
    }

    /// Notes that what the page holds is newer than its file's, or its slot's: unless it has been cut off, since nobody wants it
    /// then, and what its file has in its place must not be written over. Any context.
    ///
    /// Returns the state before, if it was not dirty then and is so now.
    pub fn note_written<P: Hooks>(&self, p: &P) -> Option<u32> {
        let mut state = self.state.get(p);
        let is_cut = |state| {
            state & flag::CUT != 0 && Self::kind_of(state) == Kind::File && !p.broken(Rule::CutStaysClean)
        };
        while state & flag::DIRTY == 0 && !is_cut(state) {
            match self.state.replace(p, state, state | flag::DIRTY, Ordering::AcqRel) {
                Ok(_) => return Some(state),
                Err(now) => state = now,
            }
        }
        None
    }

    /// Takes the page lock if it is free.
    pub fn try_lock<P: Hooks>(&self, p: &P) -> bool {
        // Acquire: partner of the Release in `unlock_page`.
        self.state.fetch_or(p, flag::LOCKED, Ordering::Acquire) & flag::LOCKED == 0
    }

    /// What an anonymous page names as its `anon_vma` that was read from swap, until some range shows it: no `anon_vma`'s handle.
    pub const NO_OWNER: u32 = u32::MAX;

    /// The references to a page that only its cache and the caller hold.
    pub const CACHE_AND_CALLER: u32 = 2;

    /// Nobody gets a reference to the page any more, if only its cache and the caller hold it; says whether that is so. Under the lock under which the
    /// cache hands out references.
    pub fn freeze<P: Hooks>(&self, p: &P) -> bool {
        if p.broken(Rule::FreezeBeforeFree) {
            self.refs.set(p, 0);
            return true;
        }
        self.refs.replace(p, Self::CACHE_AND_CALLER, 0, Ordering::AcqRel).is_ok()
    }

    /// The lock of the page table that this frame holds.
    pub fn table_lock(&self) -> &SpinLock<{ Scope::TableLock as u8 }> {
        const { assert!(size_of::<SpinLock>() == size_of::<Link>()) };
        // SAFETY: both are two `Word32` in `repr(C)`; a table's frame is on no list, so nothing else uses
        // the link, and it was zeroed (unlocked) before the table was published.
        unsafe { &*(&raw const self.link).cast() }
    }

    /// The lock of the cluster of swap slots that this frame holds.
    pub fn cluster_lock(&self) -> &SpinLock<{ Scope::ClusterLock as u8 }> {
        const { assert!(size_of::<SpinLock>() == size_of::<Word64>()) };
        const { assert!(align_of::<SpinLock>() <= align_of::<Word64>()) };
        // SAFETY: both are 8 bytes of atomics; a cluster has no index, so nothing else uses the word, and it was zeroed
        // (unlocked) before the cluster was published.
        unsafe { &*(&raw const self.index).cast() }
    }

    /// Makes the frame the lock of a cluster that nobody uses yet.
    pub fn prepare_cluster<P: Hooks>(&self, p: &P) {
        self.index.set(p, 0);
    }

    /// Makes the frame the lock and the count of a table that nobody sees yet, and that has no spares: of a slab there may be something left.
    pub fn prepare_table<P: Hooks>(&self, p: &P) {
        self.link.clear(p);
        self.refs.set(p, 0);
        self.maps.set(p, 0);
    }
}

/// A frame's neighbours.
#[repr(C)]
pub(super) struct Link {
    pub(super) prev: Word32,
    pub(super) next: Word32,
}

impl Link {
    pub fn clear<P: Hooks>(&self, p: &P) {
        self.prev.set(p, 0);
        self.next.set(p, 0);
    }
}

impl Frame {
    /// The next older frame of the list that this one is on.
    pub fn next<P: Hooks>(&self, p: &P) -> FrameNumber {
        FrameNumber(self.link.next.get(p))
    }

    /// Makes `n` the next of this frame, which nobody else can reach.
    pub fn set_next<P: Hooks>(&self, p: &P, n: FrameNumber) {
        self.link.next.set(p, n.0);
    }
}
