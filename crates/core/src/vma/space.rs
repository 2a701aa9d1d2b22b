//! An address space: its tables, the CPUs that use it, and how far it has been flushed.

use core::sync::atomic::{AtomicU32, Ordering};

use super::together::Together;
use crate::Manager;
use crate::addr::{FrameNumber, Generation, PageRange};
use crate::cpumask::CpuMask;
use crate::error::Error;
use crate::handle::{GroupSlot, SpaceId, SpaceSlot};
use crate::life::Life;
use crate::percpu::{CpuGuard, Presence};
use crate::platform::{Platform, WaitKey};
use crate::pool::{Goes, Pooled, SlotLink};
use crate::profile::Scope;
use crate::sync::{BiasedRwLock, SharedGuard, Word32, Word64, WriteGuard};
use crate::tree::Tree;
use crate::zeroed::Zeroed;

/// What the core keeps about an address space.
///
/// Three generations say all about flushing, and each only grows:
/// - `generation`: raised *after* entries were cleared and *before* the CPU mask is read;
/// - `deferred`: the generation of the newest clear whose flush reclaim left to a batch;
/// - `flushed`: every clear up to here has been flushed everywhere.
///
/// So "is a deferred flush outstanding?" is `deferred > flushed`: nobody ever *clears* a pending flag, and
/// none can be lost between two CPUs (PITFALLS 2). A slot that is used again goes on counting, so a CPU
/// that still has a tag from its last use finds itself behind.
#[repr(C, align(64))]
pub(crate) struct SpaceState {
    generation: Word64,
    deferred: Word64,
    flushed: Word64,
    /// Which use of the slot this is.
    pub(crate) life: Life,
    /// The frame of its top table.
    root: Word32,
    /// How many operations have changed entries of a range and not flushed them yet.
    pub changing: Word32,
    /// The group that is charged with what it wants: 0 is none.
    pub group: Word32,
    /// On which nodes the pages of what is mapped in it come: see `space/nodes.rs`. Under the VMA lock; nobody else looks.
    pub nodes: AtomicU32,
    link: SlotLink,
    pub vmas: Vmas,
    pub cpus: Mask,
    /// The flushes of those who unmap at the same time.
    pub together: Together,
}

/// A space's VMAs. On a line of its own: whoever takes the lock has what it guards. Faults write it, but for those whose readers are
/// visible, and read the rest of the space.
#[repr(C, align(64))]
pub(crate) struct Vmas {
    /// The VMA lock: shared by faults, had alone by whoever changes the VMAs. It guards what follows.
    pub lock: BiasedRwLock<{ Scope::VmasLock as u8 }>,
    /// They, by their first page.
    pub by_address: Tree,
    /// How many there are.
    pub map_count: Word32,
    /// How many unmaps have marked VMAs as leaving that are still there.
    pub leaving: Word32,
    /// How many wait until there are none: none begins to leave meanwhile.
    pub waiting: Word32,
    /// How often a VMA has left.
    pub shape: Word64,
}

impl Vmas {
    /// What those who wait until no VMA is leaving wait for.
    pub fn key(&self) -> WaitKey {
        WaitKey::Lock((&raw const *self).addr())
    }
}

/// On lines of its own: every context switch writes it. (Its last line, of the highest CPUs, is shared.)
#[repr(transparent)]
pub(crate) struct Mask(pub CpuMask);

const _: () = assert!(core::mem::offset_of!(SpaceState, cpus) == 128 && size_of::<SpaceState>() == 768);

// SAFETY: atomics and locks only.
unsafe impl Zeroed for SpaceState {}

impl Pooled for SpaceState {
    // An old handle, or a CPU that has a tag for it, may come at any time; what it finds says that it is old.
    const GOES: Goes = Goes::Never;

    fn link(&self) -> &SlotLink {
        &self.link
    }
}

impl SpaceState {
    pub fn root<P: Platform>(&self, p: &P) -> FrameNumber {
        FrameNumber(self.root.get(p))
    }

    /// The same, for an event.
    pub fn root_for_event(&self) -> FrameNumber {
        FrameNumber(self.root.unseen())
    }

    /// From now on the space can be used.
    pub fn begin<P: Platform>(&self, p: &P, root: FrameNumber) {
        self.root.set(p, root.0);
        self.nodes.store(0, Ordering::Relaxed);
        self.life.begin(p);
    }

    /// Whether it has not ended.
    pub fn goes_on<P: Platform>(&self, p: &P) -> bool {
        self.life.goes_on(p)
    }

    /// The handle of the space that lives here, in this slot.
    pub(crate) fn id<P: Platform>(&self, p: &P, slot: SpaceSlot) -> SpaceId {
        SpaceId { slot, life: self.life.now(p) }
    }

    pub(super) fn is<P: Platform>(&self, p: &P, id: SpaceId) -> bool {
        self.life.is(p, id.life)
    }

    pub fn group_slot<P: Platform>(&self, p: &P) -> GroupSlot {
        GroupSlot(self.group.get(p))
    }

    pub fn generation<P: Platform>(&self, p: &P) -> Generation {
        Generation(self.generation.load(p, Ordering::SeqCst))
    }

    /// Entries were cleared: all that CPUs cached before is old from here on.
    pub fn raise<P: Platform>(&self, p: &P) -> Generation {
        Generation(self.generation.fetch_add(p, 1, Ordering::SeqCst) + 1)
    }

    /// The flush of a clear was left to a batch. Under the lock of the entry's table, so that whoever finds
    /// the entry cleared finds this raised.
    pub fn defer<P: Platform>(&self, p: &P, until: Generation) {
        self.deferred.fetch_max(p, until.0, Ordering::AcqRel);
    }

    /// All clears up to here have been flushed everywhere.
    pub fn flushed<P: Platform>(&self, p: &P, until: Generation) {
        self.flushed.fetch_max(p, until.0, Ordering::AcqRel);
    }

    /// Whether a clear up to `until` still waits for its flush.
    pub fn is_behind<P: Platform>(&self, p: &P, until: Generation) -> bool {
        self.flushed.load(p, Ordering::Acquire) < until.0
    }

    /// Whether an operation has changed entries of a range and not flushed them yet.
    pub fn is_changing<P: Platform>(&self, p: &P) -> bool {
        self.changing.load(p, Ordering::Acquire) != 0
    }

    /// The newest clear whose flush reclaim left to a batch.
    pub fn deferred<P: Platform>(&self, p: &P) -> Generation {
        Generation(self.deferred.load(p, Ordering::Acquire))
    }

    /// Whether reclaim left any flush outstanding.
    pub fn has_deferred<P: Platform>(&self, p: &P) -> bool {
        self.is_behind(p, self.deferred(p))
    }
}

/// The VMAs of a space alone, until dropped: those that touch a range are shut, and open again then, but for those that are leaving.
#[must_use]
pub(crate) struct VmasAlone<'m, 'p, P: Platform> {
    mm: &'m Manager<'p, P>,
    space: &'p SpaceState,
    range: PageRange,
    // Dropped last.
    _vmas: WriteGuard<'p, P>,
}

impl<P: Platform> Drop for VmasAlone<'_, '_, P> {
    fn drop(&mut self) {
        self.mm.open_vmas(self.space, self.range);
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    pub(crate) fn space_at(&self, slot: impl Into<SpaceSlot>) -> &'p SpaceState {
        self.root.spaces.get(self, slot.into().0)
    }

    /// The group that is charged with what the caller wants: that of the space which this CPU uses.
    pub(crate) fn group_here(&self) -> GroupSlot {
        if !self.groups().exist() {
            return GroupSlot::NONE;
        }
        let (p, here) = (self.platform(), CpuGuard::new(self));
        let slot = here.slot();
        let loaded = slot.tlb.loaded().filter(|_| slot.presence.word.get(p) == Presence::ACTIVE);
        loaded.map_or(GroupSlot::NONE, |space| self.space_at(space).group_slot(p))
    }

    /// The group that is charged with what a space wants.
    pub(crate) fn group_of(&self, space: &SpaceState) -> GroupSlot {
        if self.groups().exist() { space.group_slot(self.platform()) } else { GroupSlot::NONE }
    }

    /// A space, by the handle that a caller gave.
    pub(crate) fn find_space(&self, id: SpaceId) -> Result<&'p SpaceState, Error> {
        let found = self.root.spaces.made(self, id.slot.0);
        found.filter(|space| space.is(self.platform(), id)).ok_or(Error::NoSuchSpace)
    }

    /// The handle of the space that lives in a slot.
    pub(crate) fn space_id(&self, slot: SpaceSlot) -> SpaceId {
        self.space_at(slot).id(self.platform(), slot)
    }

    /// The spaces that live. A moment's truth for each.
    pub(crate) fn live_spaces(&self) -> impl Iterator<Item = SpaceId> {
        self.space_slots().filter_map(|slot| self.live_space(slot))
    }

    /// Where spaces are, or were: there may be many of which none lives.
    pub(crate) fn space_slots(&self) -> impl Iterator<Item = SpaceSlot> + use<P> {
        (0..self.root.spaces.bound(self)).map(SpaceSlot)
    }

    /// The space in a slot, if one lives there.
    pub(crate) fn live_space(&self, slot: SpaceSlot) -> Option<SpaceId> {
        Some(self.space_id(slot)).filter(|&id| self.find_space(id).is_ok())
    }

    /// A space with its VMAs alone, none of which is leaving: what touches `range` may be changed, and what is mapped there. May wait; who
    /// waited for somebody that ended the space finds none.
    pub(crate) fn write_lock(
        &self,
        id: SpaceId,
        range: PageRange,
    ) -> Result<(&'p SpaceState, VmasAlone<'_, 'p, P>), Error> {
        let p = self.platform();
        let (space, vmas) = self.lock_vmas(id, range)?;
        let Vmas { leaving, waiting, .. } = &space.vmas;
        if leaving.get(p) == 0 {
            return Ok((space, vmas));
        }
        // From here on none begins to leave.
        waiting.set(p, waiting.get(p) + 1);
        drop(vmas);
        p.wait(space.vmas.key(), &mut || leaving.load(p, Ordering::Relaxed) == 0);
        let vmas = space.vmas.lock.write(self);
        waiting.set(p, waiting.get(p) - 1);
        debug_assert_eq!(leaving.get(p), 0, "a VMA began to leave while somebody waited until none was");
        Ok((space, self.shut(id, (space, vmas), range)?))
    }

    /// The same, but that some may be leaving: nothing may be done with those. May wait, likewise.
    pub(crate) fn lock_vmas(
        &self,
        id: SpaceId,
        range: PageRange,
    ) -> Result<(&'p SpaceState, VmasAlone<'_, 'p, P>), Error> {
        let space = self.find_space(id)?;
        let vmas = space.vmas.lock.write(self);
        Ok((space, self.shut(id, (space, vmas), range)?))
    }

    fn shut(
        &self,
        id: SpaceId,
        (space, vmas): (&'p SpaceState, WriteGuard<'p, P>),
        range: PageRange,
    ) -> Result<VmasAlone<'_, 'p, P>, Error> {
        if !space.is(self.platform(), id) {
            return Err(Error::NoSuchSpace);
        }
        self.shut_vmas(space, range);
        Ok(VmasAlone { mm: self, space, range, _vmas: vmas })
    }

    /// The same if nobody has the VMAs, and no fault is in one that touches `range`. Never waits.
    pub(crate) fn try_lock_vmas(&self, id: SpaceId, range: PageRange) -> Option<VmasAlone<'_, 'p, P>> {
        let space = self.find_space(id).ok()?;
        let vmas = space.vmas.lock.try_write(self)?;
        (space.is(self.platform(), id) && self.try_shut_vmas(space, range)).then(|| VmasAlone {
            mm: self,
            space,
            range,
            _vmas: vmas,
        })
    }

    /// A space with its VMAs shared, likewise.
    pub(crate) fn read_lock(&self, id: SpaceId) -> Result<(&'p SpaceState, SharedGuard<'p, P>), Error> {
        let space = self.find_space(id)?;
        Ok((space, self.share(id, space)?))
    }

    /// The same of one that was found.
    #[inline(always)]
    pub(super) fn share(&self, id: SpaceId, space: &'p SpaceState) -> Result<SharedGuard<'p, P>, Error> {
        let shared = space.vmas.lock.read(self);
        if space.is(self.platform(), id) { Ok(shared) } else { Err(Error::NoSuchSpace) }
    }
}
