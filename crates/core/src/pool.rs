//! Typed slabs on the core's own frames, addressed by `u32` handles: no heap.
//!
//! A slot is *reserved* before any lock is taken ([`Pool::reserve`] may reclaim), so that running out leaves
//! the state unchanged. Slots are zeroed once, when their slab is made, and keep their content from one use
//! to the next: what must survive (a space's generation) does, what must not is reset by its owner.

use core::marker::PhantomData;
use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{FrameNumber, PAGE_SIZE};
use crate::error::Error;
use crate::frame::AllocFrom;
use crate::platform::Platform;
use crate::profile::Scope;
use crate::sync::{SpinLock, Word32};

/// A type for which all zeros is a valid value, shared by all CPUs through its own cells and atomics.
///
/// # Safety
/// All-zero bytes must be a valid value, and `Drop` must not matter.
pub(crate) unsafe trait Zeroed {}

// SAFETY: an atomic integer.
unsafe impl Zeroed for Word32 {}

/// Slabs that a directory names: a frame of their numbers.
const PER_DIRECTORY: u32 = (PAGE_SIZE / 4) as u32;
/// Directories of one pool: 65,536 slabs.
const DIRECTORIES: usize = 64;

/// A pool of `T`. All zeros is an empty one.
#[repr(C)]
pub(crate) struct Pool<T> {
    lock: SpinLock<{ Scope::PoolLock as u8 }>,
    /// First free slot plus one.
    free: Word32,
    /// Slots that exist.
    made: Word32,
    directories: [Word32; DIRECTORIES],
    /// How many of them there are.
    directories_made: Word32,
    holds: PhantomData<T>,
}

// SAFETY: zeros are unlocked, empty and no slab.
unsafe impl<T> Zeroed for Pool<T> {}
// SAFETY: the pool itself is atomics. A slot may be of cells (an unmap batch): those belong to whoever reserved it,
// and the lock hands it from one owner to the next.
unsafe impl<T: Zeroed> Sync for Pool<T> {}

/// A slot: the link of the free list, then the value.
#[repr(C)]
struct Slot<T> {
    /// Next free slot plus one; `LIVE` while in use.
    link: Word32,
    value: T,
}

const LIVE: u32 = u32::MAX;

/// A slot that was reserved and not used yet; [`Pool::release`] takes it back.
#[must_use]
#[derive(Debug)]
pub(crate) struct Reserved(u32);

impl Reserved {
    /// The handle, from now on in use.
    pub fn commit(self) -> u32 {
        self.0
    }
}

impl<T: Zeroed> Pool<T> {
    const PER_SLAB: u32 = {
        let n = PAGE_SIZE as usize / size_of::<Slot<T>>();
        assert!(n > 0, "a slot must fit in a frame");
        n as u32
    };

    /// Where the number of a slab's frame stands. Its directory exists.
    fn slab<'p, P: Platform>(&self, mm: &Manager<'p, P>, slab: u32) -> &'p Word32 {
        let p = mm.platform();
        // Acquire: partner of the Release in `grow`.
        let directory = self.directories[(slab / PER_DIRECTORY) as usize].load(p, Ordering::Acquire);
        let at = p.direct(FrameNumber(directory).phys()).cast::<Word32>();
        // SAFETY: a directory is a frame that the pool owns for ever, zeroed before it was published; the word lies in it.
        unsafe { &*at.add((slab % PER_DIRECTORY) as usize) }
    }

    fn slot<'p, P: Platform>(&self, mm: &Manager<'p, P>, handle: u32) -> &'p Slot<T> {
        // Acquire: partner of the Release in `grow`.
        let slab = self.slab(mm, handle / Self::PER_SLAB).load(mm.platform(), Ordering::Acquire);
        let at = mm.platform().direct(FrameNumber(slab).phys()).cast::<Slot<T>>();
        // SAFETY: `handle` is below `made`, so its slab is a frame that the pool owns for ever, zeroed before
        // it was published, and zeros are a valid T. The slot lies inside the frame.
        unsafe { &*at.add((handle % Self::PER_SLAB) as usize) }
    }

    /// The value behind a handle that the core itself keeps.
    pub fn get<'p, P: Platform>(&self, mm: &Manager<'p, P>, handle: u32) -> &'p T {
        &self.slot(mm, handle).value
    }

    /// The value behind a number that a caller gave, if there is such a slot. What is in it may be another's.
    pub fn made<'p, P: Platform>(&self, mm: &Manager<'p, P>, handle: u32) -> Option<&'p T> {
        // Acquire: partner of the Release in `grow`.
        (handle < self.made.load(mm.platform(), Ordering::Acquire)).then(|| self.get(mm, handle))
    }

    /// The value behind a handle that a caller gave, if it is in use.
    pub fn find<'p, P: Platform>(&self, mm: &Manager<'p, P>, handle: u32) -> Option<&'p T> {
        let p = mm.platform();
        if handle >= self.made.load(p, Ordering::Acquire) {
            return None;
        }
        let slot = self.slot(mm, handle);
        (slot.link.load(p, Ordering::Acquire) == LIVE).then_some(&slot.value)
    }

    /// Reserves a slot. May wait while memory is reclaimed, as `from` says; no lock may be held.
    pub fn reserve<P: Platform>(&self, mm: &Manager<'_, P>, from: AllocFrom) -> Result<Reserved, Error> {
        self.reserve_with(mm, || mm.alloc_own(from))
    }

    /// The same for reclaim itself: never waits, and takes the last frame if it must.
    pub fn reserve_for_reclaim<P: Platform>(&self, mm: &Manager<'_, P>) -> Result<Reserved, Error> {
        self.reserve_with(mm, || mm.alloc_for_reclaim())
    }

    fn reserve_with<P: Platform>(
        &self,
        mm: &Manager<'_, P>,
        frame: impl Fn() -> Result<FrameNumber, Error>,
    ) -> Result<Reserved, Error> {
        loop {
            if let Some(slot) = self.pop(mm) {
                return Ok(slot);
            }
            self.grow(mm, frame()?, None)?;
        }
    }

    /// Reserves some slots under one hold of the lock: at most `most` of those that are free, or, if none is, all of a new
    /// slab; `each` gets them, in use. For who uses many: the pool's lock is the whole machine's. As
    /// [`reserve`](Self::reserve) otherwise.
    pub fn reserve_some<P: Platform>(
        &self,
        mm: &Manager<'_, P>,
        from: AllocFrom,
        most: u32,
        mut each: impl FnMut(u32),
    ) -> Result<(), Error> {
        let p = mm.platform();
        loop {
            // Nothing is free, and a slab has to be made: no need to stand in line to see that.
            let most = if self.free.load(p, Ordering::Relaxed) == 0 { 0 } else { most };
            let guard = (most > 0).then(|| self.lock.lock(mm));
            let mut found = false;
            for _ in 0..most {
                let Some(handle) = self.free.get(p).checked_sub(1) else { break };
                let slot = self.slot(mm, handle);
                self.free.set(p, slot.link.get(p));
                slot.link.store(p, LIVE, Ordering::Release);
                each(handle);
                found = true;
            }
            drop(guard);
            if found {
                return Ok(());
            }
            if self.grow(mm, mm.alloc_own(from)?, Some(&mut each))? {
                return Ok(());
            }
        }
    }

    fn pop<P: Platform>(&self, mm: &Manager<'_, P>) -> Option<Reserved> {
        let p = mm.platform();
        let _guard = self.lock.lock(mm);
        let handle = self.free.get(p).checked_sub(1)?;
        let slot = self.slot(mm, handle);
        self.free.set(p, slot.link.get(p));
        slot.link.store(p, LIVE, Ordering::Release);
        Some(Reserved(handle))
    }

    /// Makes a slab of this frame, or the directory that it needs first. The slots are free, or go to `each`, in use:
    /// whether they did.
    fn grow<P: Platform>(
        &self,
        mm: &Manager<'_, P>,
        new: FrameNumber,
        each: Option<&mut dyn FnMut(u32)>,
    ) -> Result<bool, Error> {
        let p = mm.platform();
        let guard = self.lock.lock(mm);
        let made = self.made.get(p);
        let (slab, directories) = (made / Self::PER_SLAB, self.directories_made.get(p));
        let full = slab == DIRECTORIES as u32 * PER_DIRECTORY;
        // Another CPU may have grown it meanwhile: then this frame is one too many.
        if full || self.free.get(p) != 0 {
            drop(guard);
            mm.free_one(new);
            return if full { Err(Error::TooMany) } else { Ok(false) };
        }
        if slab == directories * PER_DIRECTORY {
            self.directories[directories as usize].store(p, new.0, Ordering::Release);
            self.directories_made.set(p, directories + 1);
            return Ok(false);
        }
        self.slab(mm, slab).store(p, new.0, Ordering::Release);
        self.made.store(p, made + Self::PER_SLAB, Ordering::Release);
        let slots = made..made + Self::PER_SLAB;
        if let Some(each) = each {
            // Nobody else knows of them, and their lines come from memory: not under the lock.
            drop(guard);
            for handle in slots {
                self.slot(mm, handle).link.store(p, LIVE, Ordering::Release);
                each(handle);
            }
            return Ok(true);
        }
        for handle in slots.rev() {
            self.slot(mm, handle).link.set(p, self.free.get(p));
            self.free.set(p, handle + 1);
        }
        Ok(false)
    }

    /// Gives a slot back. Nobody may use its handle any more.
    pub fn release<P: Platform>(&self, mm: &Manager<'_, P>, handle: u32) {
        let p = mm.platform();
        let _guard = self.lock.lock(mm);
        self.slot(mm, handle).link.store(p, self.free.get(p), Ordering::Release);
        self.free.set(p, handle + 1);
    }

    /// Handles below this exist; not all are in use.
    pub fn bound<P: Platform>(&self, mm: &Manager<'_, P>) -> u32 {
        self.made.load(mm.platform(), Ordering::Acquire)
    }

    /// Frames that the pool owns.
    pub fn frames<P: Platform>(&self, mm: &Manager<'_, P>) -> u64 {
        u64::from(self.bound(mm) / Self::PER_SLAB + self.directories_made.get(mm.platform()))
    }
}
