//! A page cache's index: a radix tree of frames, 1024 frame numbers each.

use core::ops::Range;
use core::sync::atomic::Ordering;

use super::state::{FileState, MAX_PAGES};
use crate::Manager;
use crate::addr::{FrameNumber, PhysAddr};
use crate::error::Error;
use crate::frame::AllocFrom;
use crate::handle::{FileId, FileSlot};
use crate::memmap::{FrameVec, MAX_SLOT};
use crate::platform::Platform;
use crate::resched::{Work, cost};
use crate::sync::Word32;

/// What a tree says of a page.
pub(super) enum Cached {
    /// It is in the cache: held for the caller.
    Page(FrameNumber),
    /// It is a memory file's, and in this slot of swap.
    Out(u32),
    /// Nothing.
    No,
}

/// What a look at some of a tree's words has found.
enum Next<T> {
    /// A page of which the word says something that is wanted, and that.
    Found(u64, T),
    /// Nothing before this page: the lock was held for long enough.
    From(u64),
    /// Nothing.
    End,
}

/// Words that are looked at under one hold of a tree's lock.
const LOOKS: u32 = 512;

/// What came of an attempt to put a page into the cache.
pub(super) enum Insert {
    /// It is there.
    Done,
    /// Another one is there, held for the caller.
    There(FrameNumber),
    /// It is in swap.
    Out,
    /// None may be there now.
    Closed,
}

const SHIFT: u32 = 10;
const MASK: u64 = (1 << SHIFT) - 1;
const MAX_LEVELS: usize = 4;

/// Levels that a file of so many pages needs.
pub(super) fn levels(pages: u64) -> u32 {
    (1..MAX_LEVELS as u32).find(|l| pages <= 1 << (SHIFT * l)).unwrap_or(MAX_LEVELS as u32)
}

/// Slots hold a frame number plus one, so that a cleared frame is an empty node. The node's frame counts its
/// used slots in `refs`.
fn slot<'p, P: Platform>(mm: &Manager<'p, P>, node: FrameNumber, index: u64, level: u32) -> &'p Word32 {
    let at = PhysAddr(node.phys().0 + 4 * ((index >> (SHIFT * level)) & MASK));
    // SAFETY: `node` is a frame of this tree, which the direct map covers and which is freed only under the
    // tree's lock, as is every use of it; the slot lies inside, aligned.
    unsafe { &*mm.platform().direct(at).cast() }
}

fn unpack(word: u32) -> Option<FrameNumber> {
    word.checked_sub(1).map(FrameNumber)
}

/// The word of a page in swap is its slot plus one plus this: above that of every frame.
const OUT: u32 = FrameNumber::END.0;
const _: () = assert!(MAX_SLOT < u32::MAX - OUT);

/// The page that the word of one leads to.
fn page_in(word: u32) -> Option<FrameNumber> {
    if word > OUT { None } else { unpack(word) }
}

/// The slot of swap that it names.
fn slot_in(word: u32) -> Option<u32> {
    word.checked_sub(OUT + 1)
}

impl<'p, P: Platform> Manager<'p, P> {
    /// The node that holds the slot of `index`, if it exists.
    fn tree_leaf(&self, file: &FileState, index: u64) -> Option<FrameNumber> {
        let p = self.platform();
        let (mut node, levels) = (FrameNumber(file.root.get(p)), file.levels.get(p));
        if node == FrameNumber::NONE || index >> (SHIFT * levels) != 0 {
            return None;
        }
        for level in (1..levels).rev() {
            node = unpack(slot(self, node, index, level).get(p))?;
        }
        Some(node)
    }

    /// The word of a page, if there is a node for it. Under the tree's lock.
    fn word_of(&self, file: &FileState, index: u64) -> Option<&'p Word32> {
        Some(slot(self, self.tree_leaf(file, index)?, index, 0))
    }

    /// The cached page, with a reference for the caller, or where it is instead.
    pub(super) fn find_cached(&self, file: &FileState, index: u64) -> Cached {
        let p = self.platform();
        let _guard = file.lock.lock(self);
        let word = self.word_of(file, index).map_or(0, |word| word.get(p));
        if let Some(found) = page_in(word) {
            self.memmap().get(found).refs.fetch_add(p, 1, Ordering::Relaxed);
            return Cached::Page(found);
        }
        slot_in(word).map_or(Cached::No, Cached::Out)
    }

    /// The cached page. Under the tree's lock.
    pub(super) fn cached_at(&self, file: &FileState, index: u64) -> Option<FrameNumber> {
        page_in(self.word_of(file, index)?.get(self.platform()))
    }

    /// The slot of swap that a page of a memory file is in. Under the tree's lock.
    pub(super) fn out_at(&self, file: &FileState, index: u64) -> Option<u32> {
        slot_in(self.word_of(file, index)?.get(self.platform()))
    }

    /// A page that is in the cache has this frame from now on. Under the tree's lock.
    pub(super) fn tree_page_moves(&self, file: &FileState, index: u64, to: FrameNumber) {
        let word = self.word_of(file, index).expect("the page is in the tree");
        word.set(self.platform(), to.0 + 1);
    }

    /// A page that is in the cache is in this slot of swap from now on. Under the tree's lock.
    pub(super) fn tree_page_goes(&self, file: &FileState, index: u64, to: u32) {
        let p = self.platform();
        let word = self.word_of(file, index).expect("the page is in the tree");
        word.set(p, OUT + 1 + to);
        file.cached.set(p, file.cached.get(p) - 1);
        file.out.set(p, file.out.get(p) + 1);
    }

    /// A page that is in swap is in the cache from now on. Under the tree's lock.
    pub(super) fn tree_page_comes(&self, file: &FileState, index: u64, n: FrameNumber) {
        let p = self.platform();
        let word = self.word_of(file, index).expect("the slot is in the tree");
        word.set(p, n.0 + 1);
        file.cached.set(p, file.cached.get(p) + 1);
        file.out.set(p, file.out.get(p) - 1);
    }

    /// The first page of a range that is in one of these slots of swap, and its slot. Gives way.
    pub(super) fn next_out(
        &self,
        file: &FileState,
        range: Range<u64>,
        own: impl Fn(u32) -> bool,
    ) -> Option<(u64, u32)> {
        let wanted = |word| slot_in(word).filter(|&slot| own(slot));
        self.next_in(file, range, wanted, |index, slot| (index, slot))
    }

    /// The same of any slot; nothing is there from now on, and the slot is the caller's to let go of. Gives way.
    pub(super) fn take_next_out(&self, file: &FileState, range: Range<u64>) -> Option<(u64, u32)> {
        let p = self.platform();
        self.next_in(file, range, slot_in, |index, slot| {
            self.tree_remove(file, index);
            file.out.set(p, file.out.get(p) - 1);
            (index, slot)
        })
    }

    /// Pages of a memory file that are in swap, as its tree says; `None` for another: for audits of a quiet system.
    pub(crate) fn audit_out(&self, id: FileSlot) -> Option<u64> {
        if !self.is_memory_file(id) {
            return None;
        }
        let (file, mut at, mut count) = (self.file_at(id), 0, 0);
        loop {
            let _guard = file.lock.lock(self);
            match self.next_word(file, at..MAX_PAGES, slot_in, &mut 0) {
                Next::Found(index, _) => (at, count) = (index + 1, count + 1),
                Next::From(index) => at = index,
                Next::End => return Some(count),
            }
        }
    }

    /// Whether a page is in the cache, its file's or that of swap. A moment's truth.
    pub(crate) fn is_cached(&self, id: FileSlot, index: u64) -> bool {
        let file = self.file_at(id);
        let _guard = file.lock.lock(self);
        let word = self.word_of(file, index).map_or(0, |word| word.get(self.platform()));
        page_in(word).is_some() || slot_in(word).is_some_and(|slot| !self.swap_is_out(slot))
    }

    /// How many pages right before this one are in the cache, of `most`. A moment's truth.
    pub(super) fn cached_before(&self, id: FileSlot, index: u64, most: u64) -> u64 {
        let file = self.file_at(id);
        let _guard = file.lock.lock(self);
        let before = (index.saturating_sub(most)..index).rev();
        before.take_while(|&at| self.cached_at(file, at).is_some()).count() as u64
    }

    /// Whether a page of a file is in its cache. On a quiet system.
    pub(crate) fn audit_cached(&self, n: FrameNumber) -> bool {
        let (p, frame) = (self.platform(), self.memmap().get(n));
        let file = self.file_at(crate::handle::FileSlot(frame.owner.get(p)));
        let _guard = file.lock.lock(self);
        self.cached_at(file, frame.index.get(p)) == Some(n)
    }

    /// Whether a page that the caller holds is in the cache of a file that lives.
    pub(super) fn is_page_of(&self, id: FileId, index: u64, n: FrameNumber) -> bool {
        let file = self.file_at(id.slot());
        let _guard = file.lock.lock(self);
        file.is(self.platform(), id) && self.cached_at(file, index) == Some(n)
    }

    /// Takes a page out without a look at who holds it; the cache's reference is the caller's now. Returns whether it
    /// was there.
    pub(super) fn detach_cached(&self, id: FileSlot, index: u64, n: FrameNumber) -> bool {
        let p = self.platform();
        let file = self.file_at(id);
        let _guard = file.lock.lock(self);
        if self.cached_at(file, index) != Some(n) {
            return false;
        }
        self.tree_remove(file, index);
        file.cached.set(p, file.cached.get(p) - 1);
        true
    }

    /// Puts a page in, or returns the one that is there, with a reference for the caller. May wait for nodes if `from`
    /// says so. With a length that is the file's from then on, in the same step, and so nobody finds the one without the other; by whoever has `io` alone.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::BeyondFile`].
    pub(super) fn insert_cached(
        &self,
        file: &FileState,
        index: u64,
        n: FrameNumber,
        len: Option<u64>,
        from: AllocFrom,
    ) -> Result<Insert, Error> {
        let p = self.platform();
        let mut spare = [FrameNumber::NONE; MAX_LEVELS];
        let mut spares = 0;
        let done = loop {
            {
                let _guard = file.lock.lock(self);
                // Whoever cuts pages off has changed these words under this lock before, or finds the page.
                let refused = match () {
                    () if len.is_none() && index >= file.pages(p) => Some(Err(Error::BeyondFile)),
                    () if file.is_closed(p, index) => Some(Ok(Insert::Closed)),
                    () => None,
                };
                if let Some(refused) = refused {
                    self.tree_prune(file, index);
                    break refused;
                }
                if let Some(done) = self.insert_with(file, index, n, &spare, &mut spares) {
                    len.into_iter().for_each(|len| file.len.store(p, len, Ordering::Release));
                    break Ok(done);
                }
            }
            // Reserved outside the lock, then tried again.
            match self.alloc_own(from) {
                Ok(node) => {
                    self.memmap().get(node).refs.set(p, 0);
                    spare[spares] = node;
                    spares += 1;
                }
                Err(error) => {
                    let _guard = file.lock.lock(self);
                    self.tree_prune(file, index);
                    break Err(error);
                }
            }
        };
        spare[..spares].iter().for_each(|&node| self.free_one(node));
        done
    }

    /// Inserts with the spare nodes; `None` if there are too few, with nothing changed but nodes used.
    fn insert_with(
        &self,
        file: &FileState,
        index: u64,
        n: FrameNumber,
        spare: &[FrameNumber],
        spares: &mut usize,
    ) -> Option<Insert> {
        let p = self.platform();
        let mut take = || {
            *spares = spares.checked_sub(1)?;
            Some(spare[*spares])
        };
        let mut node = FrameNumber(file.root.get(p));
        if node == FrameNumber::NONE {
            node = take()?;
            file.root.set(p, node.0);
        }
        for level in (1..file.levels.get(p)).rev() {
            let slot = slot(self, node, index, level);
            node = match unpack(slot.get(p)) {
                Some(below) => below,
                None => {
                    let below = take()?;
                    slot.set(p, below.0 + 1);
                    self.count_slot(node, 1);
                    below
                }
            };
        }
        let slot = slot(self, node, index, 0);
        match slot.get(p) {
            0 => {}
            word => {
                let Some(there) = page_in(word) else { return Some(Insert::Out) };
                self.memmap().get(there).refs.fetch_add(p, 1, Ordering::Relaxed);
                return Some(Insert::There(there));
            }
        }
        slot.set(p, n.0 + 1);
        self.count_slot(node, 1);
        file.cached.set(p, file.cached.get(p) + 1);
        Some(Insert::Done)
    }

    /// Makes the tree high enough for so many pages. By whoever has the file's `io` alone. May wait for nodes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]: it is as high as it was, or higher.
    pub(super) fn tree_grow(&self, file: &FileState, pages: u64) -> Result<(), Error> {
        let p = self.platform();
        let high_enough = |above: Option<FrameNumber>| {
            let _guard = file.lock.lock(self);
            let (root, now) = (FrameNumber(file.root.get(p)), file.levels.get(p));
            if now >= levels(pages) || root == FrameNumber::NONE {
                file.levels.set(p, now.max(levels(pages)));
                return (true, above);
            }
            let Some(above) = above else { return (false, None) };
            slot(self, above, 0, now).set(p, root.0 + 1);
            self.count_slot(above, 1);
            file.root.set(p, above.0);
            file.levels.set(p, now + 1);
            (false, None)
        };
        let mut spare = None;
        loop {
            let (done, left) = high_enough(spare.take());
            if done {
                left.into_iter().for_each(|node| self.free_one(node));
                return Ok(());
            }
            let node = self.alloc_own(AllocFrom::HERE)?;
            self.memmap().get(node).refs.set(p, 0);
            spare = Some(node);
        }
    }

    /// Frees the nodes on the way to `index` that hold nothing: an insert that ran out of memory half-way put them
    /// there. Under the tree's lock.
    fn tree_prune(&self, file: &FileState, index: u64) {
        let p = self.platform();
        let levels = file.levels.get(p);
        let mut path = [FrameNumber::NONE; MAX_LEVELS];
        let mut next = Some(FrameNumber(file.root.get(p))).filter(|&root| root != FrameNumber::NONE);
        for level in (0..levels).rev() {
            let Some(node) = next else { break };
            path[level as usize] = node;
            next = unpack(slot(self, node, index, level).get(p)).filter(|_| level > 0);
        }
        for (level, &node) in path[..levels as usize].iter().enumerate() {
            if node == FrameNumber::NONE {
                continue;
            }
            if self.memmap().get(node).refs.get(p) > 0 {
                return;
            }
            self.free_one(node);
            match path[..levels as usize].get(level + 1) {
                Some(&above) => {
                    slot(self, above, index, level as u32 + 1).set(p, 0);
                    self.count_slot(above, -1);
                }
                None => file.root.set(p, FrameNumber::NONE.0),
            }
        }
    }

    fn count_slot(&self, node: FrameNumber, by: i32) -> u32 {
        let refs = &self.memmap().get(node).refs;
        let count = refs.get(self.platform()).wrapping_add_signed(by);
        refs.set(self.platform(), count);
        count
    }

    /// Empties a slot, and frees the nodes that this leaves empty. Under the tree's lock.
    pub(super) fn tree_remove(&self, file: &FileState, index: u64) {
        let p = self.platform();
        let levels = file.levels.get(p);
        let mut path = [FrameNumber::NONE; MAX_LEVELS];
        let mut node = FrameNumber(file.root.get(p));
        for level in (0..levels).rev() {
            path[level as usize] = node;
            node = match unpack(slot(self, node, index, level).get(p)) {
                Some(below) => below,
                None => return,
            };
        }
        for (level, &node) in path[..levels as usize].iter().enumerate() {
            slot(self, node, index, level as u32).set(p, 0);
            if self.count_slot(node, -1) > 0 {
                return;
            }
            self.free_one(node);
        }
        file.root.set(p, FrameNumber::NONE.0);
    }

    /// The first cached page of a range, and its index, with a reference for the caller. Gives way.
    pub(super) fn ref_next_cached(&self, id: FileSlot, range: Range<u64>) -> Option<(u64, FrameNumber)> {
        self.next_in(self.file_at(id), range, page_in, |index, n| {
            self.memmap().get(n).refs.fetch_add(self.platform(), 1, Ordering::Relaxed);
            (index, n)
        })
    }

    /// What `take` makes, under the tree's lock, of the first page of a range whose word says something that is wanted. Gives way.
    fn next_in<T, R>(
        &self,
        file: &FileState,
        range: Range<u64>,
        wanted: impl Fn(u32) -> Option<T>,
        take: impl FnOnce(u64, T) -> R,
    ) -> Option<R> {
        let (mut at, mut work) = (range.start, Work::begin(self));
        loop {
            let guard = file.lock.lock(self);
            match self.next_word(file, at..range.end, &wanted, &mut 0) {
                Next::Found(index, found) => return Some(take(index, found)),
                Next::End => return None,
                Next::From(index) => at = index,
            }
            drop(guard);
            work.did(LOOKS * cost::ENTRY);
        }
    }

    /// The first `most` cached pages of a range, each with a reference for the caller; returns where the next ones
    /// begin. Takes the lock once for all of them, for it is the whole file's, unless much else lies between. Gives way.
    pub(crate) fn ref_next_few_cached(
        &self,
        id: FileSlot,
        range: Range<u64>,
        most: usize,
        held: &mut FrameVec,
    ) -> u64 {
        let (file, mut at, mut work) = (self.file_at(id), range.start, Work::begin(self));
        loop {
            let (guard, mut looks) = (file.lock.lock(self), 0);
            while held.as_slice().len() < most {
                match self.next_word(file, at..range.end, page_in, &mut looks) {
                    Next::Found(index, n) => {
                        self.memmap().get(n).refs.fetch_add(self.platform(), 1, Ordering::Relaxed);
                        held.push(n);
                        at = index + 1;
                    }
                    Next::From(index) => {
                        at = index;
                        break;
                    }
                    Next::End => return at,
                }
            }
            if held.as_slice().len() == most {
                return at;
            }
            drop(guard);
            work.did(LOOKS * cost::ENTRY);
        }
    }

    /// The first page of a range whose word says something that is wanted, if it is not far: `looks` are those under this hold of the tree's lock.
    fn next_word<T>(
        &self,
        file: &FileState,
        range: Range<u64>,
        wanted: impl Fn(u32) -> Option<T>,
        looks: &mut u32,
    ) -> Next<T> {
        let p = self.platform();
        let end = range.end.min(1 << (SHIFT * file.levels.get(p)));
        let mut index = range.start;
        while index < end {
            if *looks == LOOKS {
                return Next::From(index);
            }
            *looks += 1;
            let mut node = FrameNumber(file.root.get(p));
            if node == FrameNumber::NONE {
                return Next::End;
            }
            let mut level = file.levels.get(p);
            loop {
                level -= 1;
                let word = slot(self, node, index, level).get(p);
                if level == 0 {
                    if let Some(found) = wanted(word) {
                        return Next::Found(index, found);
                    }
                } else if let Some(below) = unpack(word) {
                    node = below;
                    continue;
                }
                let span = 1 << (SHIFT * level);
                index = (index / span + 1) * span;
                break;
            }
        }
        Next::End
    }

    /// Frames of a file's tree, and whether each has the words in use that it counts, and leads to pages of that file inside it, as many as
    /// the file says: for audits of a quiet system.
    pub(crate) fn audit_tree(&self, id: FileSlot) -> (u64, bool) {
        let (p, file) = (self.platform(), self.file_at(id));
        let (mut nodes, mut pages, mut out, mut good) = (0, 0, 0, true);
        let mut look = |index: u64, word: u32| {
            good &= index < file.pages(p);
            match page_in(word) {
                Some(n) => {
                    let frame = self.memmap().get(n);
                    good &= (frame.owner.get(p), frame.index.get(p)) == (id.0, index);
                    pages += 1;
                }
                None => out += 1,
            }
        };
        let mut counts_good = true;
        if let Some(root) = Some(FrameNumber(file.root.get(p))).filter(|&root| root != FrameNumber::NONE) {
            (nodes, counts_good) = self.audit_node((root, file.levels.get(p) - 1, 0), &mut look);
        }
        (nodes, good && counts_good && (pages, out) == (file.cached.get(p), file.out.get(p)))
    }

    fn audit_node(
        &self,
        (node, level, base): (FrameNumber, u32, u64),
        look: &mut dyn FnMut(u64, u32),
    ) -> (u64, bool) {
        let (mut nodes, mut own, mut good) = (1, 0, true);
        for i in 0..=MASK {
            let word = slot(self, node, i << (SHIFT * level), level).unseen();
            let at = base + (i << (SHIFT * level));
            own += u32::from(word != 0);
            match unpack(word) {
                None => {}
                Some(_) if level == 0 => look(at, word),
                Some(below) => {
                    let (found, below_good) = self.audit_node((below, level - 1, at), look);
                    nodes += found;
                    good &= below_good;
                }
            }
        }
        // One that leads to nothing goes.
        (nodes, good && own > 0 && own == self.memmap().get(node).refs.get(self.platform()))
    }
}
