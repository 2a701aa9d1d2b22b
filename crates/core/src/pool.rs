//! Typed slabs on the core's own frames, addressed by `u32` handles: no heap.
//!
//! A slot is *reserved* before any lock is taken ([`Pool::reserve`] may reclaim), so that running out leaves
//! the state unchanged. Slots are zeroed once, when their slab is made, and keep their content from one use
//! to the next: what must survive (a space's generation) does, what must not is reset by its owner.
//!
//! Whoever uses many slots makes slabs of its own, without the pool's lock, where slots never go: [`Pool::reserve_some`].
//!
//! A slab in which no slot is in use goes back to the allocator, if whoever may still look at such a slot allows it:
//! [`Goes`]. One stays, so that a slot that is taken and given back again and again costs no frame each time.

mod audit;
mod numbers;
mod reading;

use core::marker::PhantomData;
use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{FrameNumber, PAGE_SIZE};
use crate::error::Error;
use crate::frame::AllocFrom;
use crate::memmap::{FrameVec, List};
use crate::platform::Platform;
use crate::profile::Scope;
use crate::sync::{SpinLock, Word32};
use crate::zeroed::Zeroed;

pub(crate) use numbers::{Claim, SlabNumbers};
pub(crate) use reading::{Reading, nobody_reads};

/// When the memory of slots that nobody uses goes back to the allocator. Until then an old handle finds a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Goes {
    /// Never: whoever comes with an old handle, or without a lock, may look at any time. There are as many slots as were ever in
    /// use at once.
    Never,
    /// Once nobody is [`Reading`]: whoever may come with an old handle is.
    Unread,
    /// At once: whoever looks at a slot keeps it in use.
    AtOnce,
}

/// What lies in slots.
pub(crate) trait Pooled: Zeroed {
    /// When its memory may be used for something else.
    const GOES: Goes;

    /// The word that is the pool's. It lies in the value, where that has room for it: so a slot is no larger than its value.
    fn link(&self) -> &SlotLink;
}

/// Next free slot of the slab plus one; `LIVE` while in use.
#[derive(Default)]
#[repr(transparent)]
pub(crate) struct SlotLink(Word32);

// SAFETY: an atomic.
unsafe impl Zeroed for SlotLink {}

/// Slabs that a directory names: a frame of their numbers.
const PER_DIRECTORY: u32 = (PAGE_SIZE / 4) as u32;
/// Directories of one pool.
const DIRECTORIES: u32 = SlabNumbers::MOST / PER_DIRECTORY;

/// A pool of `T`. Needs [`Pool::init`].
///
/// A slab is a frame, and has a number: its place in the directories. What is kept about it is kept about its frame:
/// `refs` counts the slots in use, `maps` is the first free slot plus one, `owner` the number. A directory's `refs` counts
/// its slabs.
#[repr(C, align(64))]
pub(crate) struct Pool<T> {
    /// Their frames plus one. On lines of their own: whoever looks a slot up reads them, and those who take and give slots write the rest.
    directories: [Word32; DIRECTORIES as usize],
    lock: SpinLock<{ Scope::PoolLock as u8 }>,
    /// Slabs with a slot in use and a free one.
    open: List,
    /// Slabs with no slot in use.
    idle: List,
    numbers: SlabNumbers,
    /// Slabs that there are, where they may go.
    slabs: Word32,
    /// Numbers for slabs that are made under the lock, where slabs never go.
    own: Claim,
    holds: PhantomData<T>,
}

// SAFETY: atomics, and a list that is made before use.
unsafe impl<T> Zeroed for Pool<T> {}
// SAFETY: the pool itself is atomics. A slot may be of cells (an unmap batch): those belong to whoever reserved it,
// and the lock hands it from one owner to the next.
unsafe impl<T: Zeroed> Sync for Pool<T> {}

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

fn word_in<P: Platform>(p: &P, directory: FrameNumber, slab: u32) -> &Word32 {
    let at = p.direct(directory.phys()).cast::<Word32>();
    // SAFETY: a directory is a frame that the pool owns as long as somebody may look into it, zeroed before it was
    // published; the word lies in it.
    unsafe { &*at.add((slab % PER_DIRECTORY) as usize) }
}

/// Names nothing, and is not free: its slab may come back.
const HIDDEN: u32 = u32::MAX;

fn named(word: u32) -> Option<FrameNumber> {
    let frame = word.wrapping_sub(1);
    (frame < HIDDEN - 1).then_some(FrameNumber(frame))
}

impl<T: Pooled> Pool<T> {
    const PER_SLAB: u32 = {
        let n = PAGE_SIZE as usize / size_of::<T>();
        assert!(n > 0, "a slot must fit in a frame");
        n as u32
    };

    /// Makes it empty. Before anybody uses it.
    pub fn init<P: Platform>(&self, p: &P) {
        self.open.init(p);
        self.idle.init(p);
    }

    /// The frame of a slab, if there is one.
    fn slab<P: Platform>(&self, p: &P, slab: u32) -> Option<FrameNumber> {
        // Acquire, twice: partners of the Releases in `publish`.
        let directory =
            named(self.directories.get((slab / PER_DIRECTORY) as usize)?.load(p, Ordering::Acquire))?;
        named(word_in(p, directory, slab).load(p, Ordering::Acquire))
    }

    fn slot_in<P: Platform>(p: &P, slab: FrameNumber, place: u32) -> &T {
        let at = p.direct(slab.phys()).cast::<T>();
        // SAFETY: a slab is a frame that the pool owns as long as somebody may look into it (`Goes`), zeroed before it was
        // published, and zeros are a valid T. The slot lies inside.
        unsafe { &*at.add(place as usize) }
    }

    fn slot<'p, P: Platform>(&self, mm: &Manager<'p, P>, handle: u32) -> Option<&'p T> {
        let slab = self.slab(mm.platform(), handle / Self::PER_SLAB)?;
        Some(Self::slot_in(mm.platform(), slab, handle % Self::PER_SLAB))
    }

    /// The value behind a handle that the core itself keeps.
    pub fn get<'p, P: Platform>(&self, mm: &Manager<'p, P>, handle: u32) -> &'p T {
        match self.slot(mm, handle) {
            Some(slot) => slot,
            None => no_slot(handle),
        }
    }

    /// The value behind a number that a caller gave, if there is such a slot. What is in it may be another's.
    pub fn made<'p, P: Platform>(&self, mm: &Manager<'p, P>, handle: u32) -> Option<&'p T> {
        const { assert!(matches!(T::GOES, Goes::Never), "its memory may be something else's") }
        self.slot(mm, handle)
    }

    /// The same for whoever reads: for so long the memory stays what it is.
    pub fn read<'r, P: Platform>(&self, reading: &'r Reading<'_, '_, P>, handle: u32) -> Option<&'r T> {
        self.slot(reading.manager(), handle)
    }

    /// The same for a caller that makes sure that it stays in use before it stops reading. Not by its handle: that may be another slot's by then.
    pub fn read_to_keep<'p, P: Platform>(&self, reading: &Reading<'_, 'p, P>, handle: u32) -> Option<&'p T> {
        self.slot(reading.manager(), handle)
    }

    /// Whether a slot is in use. A moment's truth.
    pub fn is_used<P: Platform>(&self, mm: &Manager<'_, P>, handle: u32) -> bool {
        // Acquire: partner of the Release in `take`.
        self.slot(mm, handle).is_some_and(|slot| slot.link().0.load(mm.platform(), Ordering::Acquire) == LIVE)
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
        let mut found = None;
        // Where many find nothing at once they had better not stand in line for it.
        if self.has_room(mm) {
            self.take(mm, 1, &mut |handle| found = Some(handle));
        }
        loop {
            match found {
                Some(handle) => return Ok(Reserved(handle)),
                None => found = self.grow(mm, frame()?)?,
            }
        }
    }

    /// Reserves some slots: at most `most` of those that are free, under one hold of the lock, or all of at most so many `slabs`
    /// that it makes, without the lock; `each` gets them, in use. For whoever uses many: the pool's lock is the whole machine's.
    /// `number` returns one for a slab, which nobody else has. As [`reserve`](Self::reserve) otherwise.
    ///
    /// A directory that is missing is made by whoever comes first:
    ///
    /// ```text
    ///   one CPU, with slab 5               another, with slab 6
    ///   no directory for 5                 no directory for 6
    ///   directory = a, if there is none
    ///                                      directory = b, if there is none: there is a
    ///   word 5 of a names its slab         word 6 of a names its slab
    /// ```
    pub fn reserve_some<P: Platform>(
        &self,
        mm: &Manager<'_, P>,
        from: AllocFrom,
        (most, slabs): (u32, u32),
        number: impl Fn() -> Result<u32, Error>,
        mut each: impl FnMut(u32),
    ) -> Result<(), Error> {
        const { assert!(matches!(T::GOES, Goes::Never), "a number that was given up could be found free") }
        // Nothing is free, and a slab has to be made: no need to stand in line to see that.
        if self.has_room(mm) && self.take(mm, most, &mut each) {
            return Ok(());
        }
        let (mut made, mut kept) = (0, None);
        // A number that was given is used: nobody gives it again.
        while made == 0 || kept.is_some() {
            let mut new = FrameVec::new();
            match mm.alloc_own(from) {
                Ok(n) => new.push(n),
                Err(error) => return if made == 0 { Err(error) } else { Ok(()) },
            }
            while made == 0
                && new.as_slice().len() < slabs as usize
                && let Ok(n) = mm.alloc_own(AllocFrom::NOW)
            {
                new.push(n);
            }
            let mut end = new.as_slice().len();
            while made < end {
                let number = match kept.take().map_or_else(&number, Ok) {
                    Ok(number) => number,
                    Err(error) => {
                        mm.free_all(&new.as_slice()[made..end]);
                        return if made == 0 { Err(error) } else { Ok(()) };
                    }
                };
                if !self.has_directory(mm, number) && self.add_directory(mm, new.as_slice()[end - 1], number)
                {
                    end -= 1;
                    // If that was the last frame it is the number of the first slab of the next.
                    if made == end {
                        kept = Some(number);
                        break;
                    }
                }
                self.make_mine(mm, new.as_slice()[made], number);
                (number * Self::PER_SLAB..(number + 1) * Self::PER_SLAB).for_each(&mut each);
                made += 1;
            }
        }
        Ok(())
    }

    /// Which numbers its slabs have: for whoever [claims](Claim) some.
    pub fn numbers(&self) -> &SlabNumbers {
        &self.numbers
    }

    /// Whether a slot is free. Without the lock a guess.
    pub fn has_room<P: Platform>(&self, mm: &Manager<'_, P>) -> bool {
        self.open.len(mm.platform()) > 0 || self.idle.len(mm.platform()) > 0
    }

    /// Takes up to `most` free slots; says whether there was one.
    fn take<P: Platform>(&self, mm: &Manager<'_, P>, most: u32, each: &mut dyn FnMut(u32)) -> bool {
        let _guard = self.lock.lock(mm);
        let mut taken = 0;
        while taken < most {
            match self.take_of_one(mm, most - taken, each) {
                0 => break,
                some => taken += some,
            }
        }
        taken > 0
    }

    /// Takes up to `most` free slots of one slab; returns how many. Under the lock.
    fn take_of_one<P: Platform>(&self, mm: &Manager<'_, P>, most: u32, each: &mut dyn FnMut(u32)) -> u32 {
        let (p, frames) = (mm.platform(), mm.memmap());
        let (list, n): (&List, _) = match self.open.first(p) {
            FrameNumber::NONE => (&self.idle, self.idle.first(p)),
            n => (&self.open, n),
        };
        if n == FrameNumber::NONE {
            return 0;
        }
        let slab = frames.get(n);
        let first = slab.owner.get(p) * Self::PER_SLAB;
        let (mut free, mut taken) = (slab.maps.get(p), 0);
        while taken < most
            && let Some(place) = free.checked_sub(1)
        {
            let slot = Self::slot_in(p, n, place);
            free = slot.link().0.get(p);
            // Release: partner of the Acquire in `is_used`.
            slot.link().0.store(p, LIVE, Ordering::Release);
            each(first + place);
            taken += 1;
        }
        slab.maps.set(p, free);
        slab.refs.set(p, slab.refs.get(p) + taken);
        if free == 0 || core::ptr::eq(list, &self.idle) {
            list.remove(p, &frames, n);
            if free != 0 {
                self.open.push_front(p, &frames, n);
            }
        }
        taken
    }

    /// Takes a slot of a slab that others have made by now, or makes one of this frame, and takes a slot of that. Under one hold of the
    /// lock: whoever only made it, and came again, would find it taken by those who stand in line before it. Returns none where the
    /// frame became a directory. If it is not needed it goes back.
    fn grow<P: Platform>(&self, mm: &Manager<'_, P>, new: FrameNumber) -> Result<Option<u32>, Error> {
        let p = mm.platform();
        let link = || {
            for place in 0..Self::PER_SLAB {
                let next = if place + 1 < Self::PER_SLAB { place + 2 } else { 0 };
                Self::slot_in(p, new, place).link().0.set(p, next);
            }
        };
        // Nobody else knows of the slots yet, and their lines come from memory: not under the lock.
        link();
        mm.memmap().get(new).maps.set(p, 1);
        let mut found = None;
        let used = {
            let _guard = self.lock.lock(mm);
            let mut each = |handle| found = Some(handle);
            if self.take_of_one(mm, 1, &mut each) > 0 {
                Ok(false)
            } else {
                self.free_number(mm).map(|number| {
                    let is_slab = self.has_directory(mm, number) || {
                        // Now: of many who stand in line each would find it missing, and come again.
                        p.clear_frame(new);
                        let made = self.add_directory(mm, new, number);
                        if !made {
                            // Whoever makes slabs without the lock was first.
                            link();
                        }
                        !made
                    };
                    if is_slab {
                        self.publish(mm, new, number);
                        self.take_of_one(mm, 1, &mut each);
                    }
                    true
                })
            }
        };
        if used != Ok(true) {
            mm.free_one(new);
        }
        used.map(|_| found)
    }

    fn has_directory<P: Platform>(&self, mm: &Manager<'_, P>, number: u32) -> bool {
        // Acquire: partner of the Release in `add_directory`.
        self.directories[(number / PER_DIRECTORY) as usize].load(mm.platform(), Ordering::Acquire) != 0
    }

    /// Makes a cleared frame the directory of a slab's number, unless somebody else has made one; says whether.
    fn add_directory<P: Platform>(&self, mm: &Manager<'_, P>, new: FrameNumber, number: u32) -> bool {
        let p = mm.platform();
        mm.memmap().get(new).refs.set(p, 0);
        // Release: partner of the Acquires in `slab` and `has_directory`: it was cleared before.
        self.directories[(number / PER_DIRECTORY) as usize]
            .replace(p, 0, new.0 + 1, Ordering::Release)
            .is_ok()
    }

    /// A number that no slab has: the lowest where some went back. Its directory may be missing. Under the lock.
    fn free_number<P: Platform>(&self, mm: &Manager<'_, P>) -> Result<u32, Error> {
        let (p, numbers) = (mm.platform(), self.numbers.end(mm.platform()));
        if T::GOES == Goes::Never {
            return self.own.next(p, &self.numbers, 1);
        }
        if self.slabs.get(p) == numbers {
            return if numbers < SlabNumbers::MOST { Ok(numbers) } else { Err(Error::TooMany) };
        }
        for (first, directory) in (0..numbers).step_by(PER_DIRECTORY as usize).zip(&self.directories) {
            let Some(directory) = named(directory.get(p)) else { return Ok(first) };
            let end = numbers.min(first + PER_DIRECTORY);
            if mm.memmap().get(directory).refs.get(p) < end - first {
                let free = |&number: &u32| word_in(p, directory, number).get(p) == 0;
                return Ok((first..end).find(free).unwrap_or(numbers));
            }
        }
        Ok(numbers)
    }

    /// A slab with free slots alone begins, under a number of which the directory is there. Under the lock.
    fn publish<P: Platform>(&self, mm: &Manager<'_, P>, n: FrameNumber, number: u32) {
        let p = mm.platform();
        self.name(mm, n, number, 0);
        if T::GOES == Goes::Never {
            self.own.used(p);
        } else {
            self.slabs.set(p, self.slabs.get(p) + 1);
            self.numbers.given(p, number);
        }
        self.idle.push_front(p, &mm.memmap(), n);
    }

    /// A slab of which all slots are the caller's begins, under a number of which the directory is there, and which nobody else has.
    /// No lock.
    fn make_mine<P: Platform>(&self, mm: &Manager<'_, P>, n: FrameNumber, number: u32) {
        let p = mm.platform();
        for place in 0..Self::PER_SLAB {
            Self::slot_in(p, n, place).link().0.set(p, LIVE);
        }
        mm.memmap().get(n).maps.set(p, 0);
        self.name(mm, n, number, Self::PER_SLAB);
    }

    /// A slab is found by its number from here on.
    fn name<P: Platform>(&self, mm: &Manager<'_, P>, n: FrameNumber, number: u32, used: u32) {
        let (p, frames) = (mm.platform(), mm.memmap());
        let slab = frames.get(n);
        slab.owner.set(p, number);
        slab.refs.set(p, used);
        // Acquire: partner of the Release in `add_directory`.
        let word = self.directories[(number / PER_DIRECTORY) as usize].load(p, Ordering::Acquire);
        let Some(directory) = named(word) else { no_slot(number * Self::PER_SLAB) };
        // Release: partner of the Acquire in `slab`: it was cleared before.
        word_in(p, directory, number).store(p, n.0 + 1, Ordering::Release);
        // Relaxed: whoever reads it has the lock, or a quiet system.
        frames.get(directory).refs.fetch_add(p, 1, Ordering::Relaxed);
    }

    /// The word of the directory of a slab, and the slab's own in that directory. Under the lock.
    fn words_of<'a, P: Platform>(&'a self, mm: &Manager<'a, P>, n: FrameNumber) -> [&'a Word32; 2] {
        let (p, number) = (mm.platform(), mm.memmap().get(n).owner.get(mm.platform()));
        let word = &self.directories[(number / PER_DIRECTORY) as usize];
        [word, word_in(p, FrameNumber(word.get(p) - 1), number)]
    }

    /// Nobody finds a slab in which nothing is in use from here on. Its number stays its own until it is withdrawn, or
    /// [comes back](Self::show). Under the lock.
    fn hide<P: Platform>(&self, mm: &Manager<'_, P>, n: FrameNumber) {
        self.idle.remove(mm.platform(), &mm.memmap(), n);
        let [_, own] = self.words_of(mm, n);
        own.set(mm.platform(), HIDDEN);
    }

    fn show<P: Platform>(&self, mm: &Manager<'_, P>, n: FrameNumber) {
        let [_, own] = self.words_of(mm, n);
        // Release: as in `name`.
        own.store(mm.platform(), n.0 + 1, Ordering::Release);
        self.idle.push_front(mm.platform(), &mm.memmap(), n);
    }

    /// A slab that is hidden goes. Returns its directory too, if that has no other slab, and may go. Under the lock.
    fn withdraw<P: Platform>(&self, mm: &Manager<'_, P>, n: FrameNumber) -> Option<FrameNumber> {
        let (p, frames) = (mm.platform(), mm.memmap());
        let [word, own] = self.words_of(mm, n);
        let directory = FrameNumber(word.get(p) - 1);
        own.set(p, 0);
        self.slabs.set(p, self.slabs.get(p) - 1);
        let count = &frames.get(directory).refs;
        count.set(p, count.get(p) - 1);
        let goes = count.get(p) == 0 && T::GOES == Goes::AtOnce;
        goes.then(|| {
            word.set(p, 0);
            directory
        })
    }

    /// Gives a slot back. Nobody may use its handle any more. No spin lock is held: frames may go back to the allocator.
    pub fn release<P: Platform>(&self, mm: &Manager<'_, P>, handle: u32) {
        let (p, frames) = (mm.platform(), mm.memmap());
        let (number, place) = (handle / Self::PER_SLAB, handle % Self::PER_SLAB);
        let Some(n) = self.slab(p, number) else { no_slot(handle) };
        let mut surplus = FrameVec::new();
        {
            let _guard = self.lock.lock(mm);
            let slab = frames.get(n);
            let (free, used) = (slab.maps.get(p), slab.refs.get(p) - 1);
            Self::slot_in(p, n, place).link().0.store(p, free, Ordering::Release);
            slab.maps.set(p, place + 1);
            slab.refs.set(p, used);
            if free != 0 && used == 0 {
                self.open.remove(p, &frames, n);
            }
            if used == 0 {
                self.idle.push_front(p, &frames, n);
                self.take_surplus(mm, &mut surplus);
            } else if free == 0 {
                self.open.push_front(p, &frames, n);
            }
        }
        self.give_back(mm, &surplus);
    }

    /// Takes out slabs in which nothing is in use, but for some. Under the lock.
    fn take_surplus<P: Platform>(&self, mm: &Manager<'_, P>, surplus: &mut FrameVec) {
        let p = mm.platform();
        let keep = match T::GOES {
            Goes::Never => return,
            Goes::AtOnce => 1,
            // To ask all CPUs whether they read costs a line of each.
            Goes::Unread => 1 + u64::from(p.possible_cpus()) / 16,
        };
        if self.idle.len(p) <= keep {
            return;
        }
        while self.idle.len(p) > 1 && surplus.as_slice().len() + 2 <= FrameVec::MOST {
            let n = self.idle.first(p);
            surplus.push(n);
            self.hide(mm, n);
            if T::GOES == Goes::AtOnce {
                self.withdraw(mm, n).into_iter().for_each(|directory| surplus.push(directory));
            }
        }
    }

    /// Frees what was taken out, or puts it back if somebody may still look into it: the next one that goes takes it along.
    fn give_back<P: Platform>(&self, mm: &Manager<'_, P>, surplus: &FrameVec) {
        if surplus.as_slice().is_empty() {
            return;
        }
        let mut goes = true;
        if T::GOES != Goes::AtOnce {
            goes = nobody_reads(mm);
            let _guard = self.lock.lock(mm);
            for &n in surplus.as_slice() {
                // Directories stay.
                if goes { _ = self.withdraw(mm, n) } else { self.show(mm, n) }
            }
        }
        if goes {
            mm.free_all(surplus.as_slice());
        }
    }

    /// Handles below this exist, or existed, or will; not all are in use.
    pub fn bound<P: Platform>(&self, mm: &Manager<'_, P>) -> u32 {
        self.numbers.end(mm.platform()) * Self::PER_SLAB
    }

    /// The slots that are in use: a moment's truth.
    pub fn used<'a, P: Platform>(&'a self, mm: &'a Manager<'_, P>) -> impl Iterator<Item = u32> + 'a {
        let slabs =
            (0..self.bound(mm) / Self::PER_SLAB).filter(|&slab| self.slab(mm.platform(), slab).is_some());
        let slots = slabs.flat_map(|slab| slab * Self::PER_SLAB..(slab + 1) * Self::PER_SLAB);
        slots.filter(|&handle| self.is_used(mm, handle))
    }

    /// How many. On a quiet system.
    pub fn audit_used<P: Platform>(&self, mm: &Manager<'_, P>) -> u64 {
        self.used(mm).count() as u64
    }

    /// Frames that the pool owns. On a quiet system.
    pub fn frames<P: Platform>(&self, mm: &Manager<'_, P>) -> u64 {
        let (p, frames) = (mm.platform(), mm.memmap());
        let directories = self.directories.iter().filter_map(|word| named(word.get(p)));
        directories.map(|directory| 1 + u64::from(frames.get(directory).refs.get(p))).sum()
    }
}

#[cold]
#[inline(never)]
fn no_slot(handle: u32) -> ! {
    panic!("the core's own tables lead to slot {handle} of a pool, which is not there: memory is corrupt")
}
