//! The pages of files: what was written is kept, on the disk where there is one, else in memory, and what never was is zeros, or, where asked for, made up from the file's
//! number and the page's, so that whoever reads one page can tell it from all others.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quietmm::platform::{BlockDevice, DeviceError, Store as Keeper};
use quietmm::{FileId, FrameNumber, VirtAddr};

use crate::disk::{self, Way};
use crate::lock::Lock;
use crate::paging::{self, direct};
use crate::{clock, cpu, heap, stretches, tasks};

const WORDS: usize = 512;
/// The part of the heap that it keeps for itself when pages want to be written: one in so many.
const HEAP_RESERVE: usize = 8;

/// How long a write takes while pages are looked at twice.
const WATCHED_NS: u64 = 100_000;

type Page = Box<[u64; WORDS]>;

/// Files.
pub struct Store {
    tags: bool,
    kept: Lock<BTreeMap<FileId, Kept>>,
    written: Lock<BTreeMap<(Keeper, u64), Page>>,
    slots: Option<Lock<Slots>>,
    watch: AtomicBool,
    changed: AtomicU64,
}

/// A file whose bytes lie in the archive, until they are written anew.
struct Kept {
    bytes: &'static [u8],
    /// Pages that are zeros by now.
    gone: BTreeSet<u64>,
}

/// Which page of the disk holds which page of which file.
struct Slots {
    of: BTreeMap<(Keeper, u64), u64>,
    free: Vec<u64>,
    next: u64,
    end: u64,
}

impl Slots {
    /// Not inlined: what it has on the stack is not there below it, where a driver goes on.
    #[inline(never)]
    fn take(&mut self, keeper: Keeper, block: u64) -> Option<u64> {
        let known = self.of.get(&(keeper, block)).copied();
        let slot = known.or_else(|| self.free.pop()).or_else(|| {
            self.next += 1;
            (self.next <= self.end).then(|| self.next - 1)
        })?;
        self.of.insert((keeper, block), slot);
        Some(slot)
    }

    fn end(&mut self, keeper: Keeper) {
        let Slots { of, free, .. } = self;
        of.retain(|&(owner, _), &mut slot| {
            if owner == keeper {
                free.push(slot);
            }
            owner != keeper
        });
    }
}

/// What each word of a made-up page holds.
pub const fn tag(file: u32, block: u64) -> u64 {
    (block << 24 | file as u64 | 1 << 63).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The sum of the words of such a page.
pub const fn tag_sum(file: u32, block: u64) -> u64 {
    tag(file, block).wrapping_mul(WORDS as u64)
}

impl Store {
    /// Empty; with `tags` pages that were never written are made up; with a disk of so many pages those that were lie
    /// there.
    pub fn new(tags: bool, disk: Option<u64>) -> Self {
        let slots = |end| Lock::new(Slots { of: BTreeMap::new(), free: Vec::new(), next: 0, end });
        Store {
            tags,
            kept: Lock::new(BTreeMap::new()),
            written: Lock::new(BTreeMap::new()),
            slots: disk.map(slots),
            watch: AtomicBool::new(false),
            changed: AtomicU64::new(0),
        }
    }

    /// A file has these bytes until it is written to.
    pub fn keep(&self, file: FileId, bytes: &'static [u8]) {
        self.kept.with(|kept| kept.insert(file, Kept { bytes, gone: BTreeSet::new() }));
    }

    /// Fills a page from what is kept of its file; says whether anything was.
    fn fill_kept(&self, file: FileId, block: u64, frame: FrameNumber) -> bool {
        let part = self.kept.with(|kept| {
            let kept = kept.get(&file).filter(|kept| !kept.gone.contains(&block))?;
            let start =
                usize::try_from(block).ok()?.checked_mul(4096).filter(|&start| start < kept.bytes.len())?;
            Some(&kept.bytes[start..kept.bytes.len().min(start + 4096)])
        });
        let Some(part) = part else { return false };
        paging::fill_page(frame.phys().0, 0);
        // SAFETY: the frame is the caller's until this returns, and mapped.
        unsafe { core::ptr::copy_nonoverlapping(part.as_ptr(), direct(frame.phys().0), part.len()) };
        true
    }

    /// Whether pages that were never written are made up.
    pub fn tags(&self) -> bool {
        self.tags
    }
}

impl Store {
    /// From now on each page that is written is looked at twice.
    pub fn watch(&self) {
        self.watch.store(true, Ordering::Relaxed);
    }

    /// Pages that had changed between the two looks: each is a bug (INV-2).
    pub fn changed(&self) -> u64 {
        self.changed.load(Ordering::Relaxed)
    }

    /// The first word of a page as it was last written.
    pub fn first_word(&self, file: FileId, block: u64) -> Option<u64> {
        self.written.with(|written| written.get(&(Keeper::File(file), block)).map(|page| page[0]))
    }
}

fn words(frame: FrameNumber) -> *mut [u64; WORDS] {
    direct(frame.phys().0).cast()
}

impl BlockDevice for Store {
    fn read(&self, from: Keeper, block: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        let _works = stretches::given();
        let slot =
            self.slots.as_ref().and_then(|slots| slots.with(|slots| slots.of.get(&(from, block)).copied()));
        if let Some(slot) = slot {
            return disk::transfer(Way::In, slot, frame);
        }
        let to = words(frame);
        let known = self.written.with(|written| {
            // SAFETY: the frame is the caller's until this returns, and mapped.
            written.get(&(from, block)).map(|page| unsafe { to.write(**page) }).is_some()
        });
        let kept = !known && matches!(from, Keeper::File(file) if self.fill_kept(file, block, frame));
        if !known && !kept {
            let made_up = match from {
                Keeper::File(file) if self.tags => tag(file.index(), block),
                _ => 0,
            };
            paging::fill_page(frame.phys().0, made_up);
        }
        Ok(())
    }
    fn discard(&self, file: FileId, blocks: Range<u64>) -> Result<(), DeviceError> {
        let _works = stretches::given();
        let all = (Keeper::File(file), blocks.start)..(Keeper::File(file), blocks.end);
        if let Some(slots) = &self.slots {
            slots.with(|Slots { of, free, .. }| {
                while let Some((&key, &slot)) = of.range(all.clone()).next() {
                    of.remove(&key);
                    free.push(slot);
                }
            });
        }
        self.written.with(|written| {
            while let Some((&key, _)) = written.range(all.clone()).next() {
                written.remove(&key);
            }
        });
        self.kept.with(|kept| {
            let Some(kept) = kept.get_mut(&file) else { return };
            let end = (kept.bytes.len() as u64).div_ceil(4096);
            if blocks.end >= end {
                kept.bytes = &kept.bytes[..kept.bytes.len().min(blocks.start as usize * 4096)];
            } else {
                kept.gone.extend(blocks);
            }
        });
        Ok(())
    }
    fn end(&self, keeper: Keeper) {
        let _works = stretches::given();
        if let Keeper::File(file) = keeper {
            self.kept.with(|kept| kept.remove(&file));
        }
        self.slots.iter().for_each(|slots| slots.with(|slots| slots.end(keeper)));
        self.written.with(|written| written.retain(|&(of, _), _| of != keeper));
    }
    fn write(&self, to: Keeper, block: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        let _works = stretches::given();
        // Where a page lies is kept on the heap, if not the page itself.
        if heap::left() < heap::size() / HEAP_RESERVE {
            return Err(DeviceError::Failed);
        }
        if let Some(slots) = &self.slots {
            let slot = slots.with(|slots| slots.take(to, block)).ok_or(DeviceError::Failed)?;
            return disk::transfer(Way::Out, slot, frame);
        }
        self.write_on_heap((to, block), frame);
        Ok(())
    }
}

impl Store {
    /// Not inlined: a disk's driver is deeper.
    #[inline(never)]
    fn write_on_heap(&self, place: (Keeper, u64), frame: FrameNumber) {
        let mut page = Box::new([0; WORDS]);
        let from = words(frame);
        for (i, word) in page.iter_mut().enumerate() {
            // SAFETY: the frame is held by the caller, and mapped. Volatile: a program that may still write there, which
            // it must not, shall be seen and not be undefined.
            *word = unsafe { (&raw const (*from)[i]).read_volatile() };
        }
        if self.watch.load(Ordering::Relaxed) {
            // A device is slow: it may take any word at any time until it is done.
            clock::spin(WATCHED_NS);
            let now = words(frame);
            // SAFETY: as above.
            let same = |(i, word): (usize, &u64)| unsafe { (&raw const (*now)[i]).read_volatile() } == *word;
            if !page.iter().enumerate().all(same) {
                self.changed.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.written.with(|written| written.insert(place, page));
    }
}

/// For each task its last read of user addresses: where, how many words, their sum.
static LAST: [[AtomicU64; 3]; tasks::MOST] = [const { [const { AtomicU64::new(0) }; 3] }; tasks::MOST];

fn last() -> &'static [AtomicU64; 3] {
    &LAST[cpu::here().task() as usize]
}

/// The task that runs here has read so many words, with this sum.
pub fn note_read(at: VirtAddr, count: u32, sum: u64) {
    let [place, words, result] = last();
    place.store(at.0, Ordering::Relaxed);
    words.store(count.into(), Ordering::Relaxed);
    result.store(sum, Ordering::Relaxed);
}

/// The sum, if that was its last read.
pub fn noted_read(at: VirtAddr, count: u32) -> Option<u64> {
    let [place, words, result] = last();
    let same = place.load(Ordering::Relaxed) == at.0 && words.load(Ordering::Relaxed) == u64::from(count);
    same.then(|| result.load(Ordering::Relaxed))
}
