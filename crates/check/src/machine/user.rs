//! What programs, the kernel and the hardware itself do with addresses.

use quietmm::addr::{FrameNumber, PAGE_SIZE, PageNumber};
use quietmm::{Entry, UserAccess};

use super::tlb::{Cached, CachedKernel, Tlb, Walked};
use super::{Hardware, Machine, Place, What};
use crate::violation::Violation;

/// Where a walk of the tables ends.
struct Leaf {
    word: *mut u64,
    large: bool,
}

impl Leaf {
    fn read(&self) -> Entry {
        // SAFETY: an aligned word of the machine's memory, which one host thread uses.
        Entry(unsafe { *self.word })
    }
    fn set(&self, bits: u64) {
        // SAFETY: as above.
        unsafe { *self.word |= bits };
    }
}

/// Tables on a way, at most four.
#[derive(Default)]
struct Way {
    tables: [Option<FrameNumber>; 4],
    words: [Option<*mut u64>; 4],
}

impl Machine {
    /// Walks as far as the tables lead.
    fn walk(&self, root: FrameNumber, page: u64) -> (Way, Option<Leaf>) {
        let mut way = Way::default();
        let mut table = root;
        for level in (0..4).rev() {
            let Some(word) = self.memory.word(table, PageNumber(page).index(level)) else {
                return (way, None);
            };
            way.tables[level as usize] = Some(table);
            way.words[level as usize] = Some(word);
            let leaf = Leaf { word, large: level == 1 };
            let entry = leaf.read();
            if level == 0 || level == 1 && entry.has(Entry::PRESENT | Entry::LARGE) {
                return (way, Some(leaf));
            }
            if !entry.is_present() {
                return (way, None);
            }
            table = entry.frame();
        }
        (way, None)
    }

    fn life(&self, frame: FrameNumber) -> u32 {
        self.memory.state(frame).map_or(0, |state| state.life.get())
    }

    /// Caches what an entry says, in place of what was cached for the page.
    fn cache(&self, id: u16, page: u64, large: bool, entry: Entry, way: &Way) {
        let mut tlb = self.cpus[usize::from(id)].tlb.borrow_mut();
        let tag = tlb.tag;
        let first = if large { PageNumber(page).large().0 } else { page };
        tlb.user.retain(|cached| cached.tag != tag || cached.page != first || cached.large != large);
        let life = self.life(entry.frame());
        let (root, since) = (tlb.root, self.broadcasts.get());
        tlb.user.push(Cached { tag, page: first, large, entry, life, since, root, revoked: None });
        // Who judges what this CPU could use reads it.
        self.record(Place::Tlb(id), true);
        self.remember(&mut tlb, page, way);
    }

    /// The CPU remembers the way to a page.
    fn remember(&self, tlb: &mut Tlb, page: u64, way: &Way) {
        for (level, table) in way.tables.iter().enumerate() {
            let Some(table) = *table else { continue };
            let (life, since) = (self.life(table), self.broadcasts.get());
            tlb.remember(Walked { tag: tlb.tag, table, life, since, level: level as u8, page });
        }
    }

    /// Translates as the hardware does, in one step; nothing is a page fault.
    fn translate(&self, page: u64, write: bool) -> Option<FrameNumber> {
        let id = self.current.get();
        let access = if write { UserAccess::Write } else { UserAccess::Read };
        let (root, hit) = {
            let tlb = self.cpu().tlb.borrow();
            (tlb.root?, tlb.find(page).filter(|cached| cached.permits(access)).copied())
        };
        if let Some(cached) = hit {
            let dirty = cached.entry.has(Entry::DIRTY);
            if write && !dirty && !self.setup.guarantees {
                // Without the guarantee the CPU writes at once, and nobody but its own entry hears of it.
                let mut tlb = self.cpu().tlb.borrow_mut();
                let tag = tlb.tag;
                let mine = tlb
                    .user
                    .iter_mut()
                    .find(|c| c.tag == tag && c.page == cached.page && c.large == cached.large);
                mine.into_iter().for_each(|mine| mine.entry = Entry(mine.entry.0 | Entry::DIRTY));
            }
            if !write || dirty || !self.setup.guarantees {
                let frame = cached.frame(page);
                self.note(|| What::Access { page, frame, write, cached: true });
                return Some(frame);
            }
        }
        let (way, leaf) = self.walk(root, page);
        for word in way.words.iter().flatten() {
            self.record_word(word.cast(), false);
        }
        let leaf = leaf.filter(|leaf| leaf.read().permits(access));
        if !write && leaf.as_ref().is_some_and(|leaf| !self.is_as_read(leaf)) {
            return self.translate(page, write);
        }
        let leaf = leaf.filter(|leaf| !write || self.may_go_on(page, leaf));
        let Some(leaf) = leaf else {
            // The hardware drops what it had cached of a page for which it faults.
            self.cpu().tlb.borrow_mut().flush_page(page);
            return None;
        };
        self.use_entry(&leaf, if write { Entry::DIRTY } else { 0 });
        self.cache(id, page, leaf.large, leaf.read(), &way);
        let frame = self.cpu().tlb.borrow().find(page)?.frame(page);
        self.note(|| What::Access { page, frame, write, cached: false });
        Some(frame)
    }

    /// A write has found an entry that allows it, and its dirty bit clear. Whether the entry is still there when the dirty bit
    /// is set: more than that [`Hardware::Grasping`] does not look at by then. An interrupt comes before the write or after it.
    fn may_go_on(&self, page: u64, leaf: &Leaf) -> bool {
        let entry = leaf.read();
        let part = if leaf.large { PageNumber(page).index(0) as u32 } else { 0 };
        if self.hardware.get() != Hardware::Grasping || entry.has(Entry::DIRTY) || !self.running.get() {
            return true;
        }
        let cpu = self.cpu();
        let irqs = cpu.irqs.replace(false);
        cpu.begun.set(Some(entry.frame().add(part)));
        self.point(Place::Word(self.memory.offset_of(leaf.word.cast()).unwrap_or(0)), true);
        cpu.begun.set(None);
        cpu.irqs.set(irqs);
        let now = leaf.read();
        now.is_present() && now.frame() == entry.frame() && now.has(Entry::LARGE) == entry.has(Entry::LARGE)
    }

    /// A walk has read an entry that was not accessed. Whether it is the same when its accessed bit is set: else the hardware
    /// does not set it, caches nothing, and walks again.
    fn is_as_read(&self, leaf: &Leaf) -> bool {
        let entry = leaf.read();
        if self.hardware.get() != Hardware::Grasping || entry.has(Entry::ACCESSED) || !self.running.get() {
            return true;
        }
        let irqs = self.cpu().irqs.replace(false);
        self.point(Place::Word(self.memory.offset_of(leaf.word.cast()).unwrap_or(0)), true);
        self.cpu().irqs.set(irqs);
        leaf.read() == entry
    }

    fn record_word(&self, at: *const u8, write: bool) {
        if let Some(offset) = self.memory.offset_of(at) {
            self.record(Place::Word(offset), write);
        }
    }

    /// A program on this CPU reads its own number in a page, or writes it. Nothing for a page fault.
    pub(crate) fn access(&self, page: u64, write: Option<u64>) -> Option<u64> {
        let id = self.current.get();
        self.point(Place::Tlb(id), false);
        let frame = self.translate(page, write.is_some())?;
        // Whatever the program could use, it has just used some of it.
        self.judge_user(id);
        let state = self.memory.state(frame)?;
        let mut content = state.content.get();
        let lane = &mut content[usize::from(id)];
        if let Some(value) = write {
            *lane = value;
        }
        let now = *lane;
        state.content.set(content);
        self.record(Place::Content(frame.0, id), write.is_some());
        if write.is_some() {
            self.did();
            if state.going_out.get() > 0 {
                let said = format!("CPU {id} writes to page {page:#x} while a device reads {frame:?}");
                self.fail(Violation::new("INV-2", id, said));
            }
        }
        Some(now)
    }

    /// The frame of a page that is present in these tables, whoever may use it.
    pub(crate) fn present_at(&self, root: FrameNumber, page: u64) -> Option<FrameNumber> {
        self.entry_at(root, page).filter(|entry| entry.is_present()).map(|entry| entry.frame())
    }

    /// The entry of a page in these tables, of a large page too.
    pub(crate) fn entry_at(&self, root: FrameNumber, page: u64) -> Option<Entry> {
        let (way, leaf) = self.walk(root, page);
        way.words.iter().flatten().for_each(|word| self.record_word(word.cast(), false));
        leaf.map(|leaf| leaf.read())
    }

    /// The kernel on this CPU reads this CPU's number in a page of the program's. It may use whatever is present. Nothing
    /// for a page fault.
    pub(crate) fn kernel_reads(&self, page: u64) -> Option<u64> {
        let id = self.current.get();
        self.point(Place::Tlb(id), false);
        let root = self.cpu().tlb.borrow().root?;
        let cached = self.cpu().tlb.borrow().find(page).copied();
        let hit = cached.is_some();
        if !hit {
            let (way, leaf) = self.walk(root, page);
            way.words.iter().flatten().for_each(|word| self.record_word(word.cast(), false));
            let leaf = leaf.filter(|leaf| leaf.read().is_present())?;
            self.use_entry(&leaf, 0);
            self.cache(id, page, leaf.large, leaf.read(), &way);
        }
        let frame = self.cpu().tlb.borrow().find(page)?.frame(page);
        self.note(|| What::Access { page, frame, write: false, cached: hit });
        self.judge_user(id);
        self.record(Place::Content(frame.0, id), false);
        Some(self.memory.state(frame)?.content.get()[usize::from(id)])
    }

    /// The entry of a kernel page, if it is mapped.
    pub(crate) fn kernel_entry(&self, page: u64) -> Option<Entry> {
        let (_, leaf) = self.walk(self.kernel_root.get()?, page);
        leaf.map(|leaf| leaf.read()).filter(|entry| entry.is_present())
    }

    fn cache_kernel(&self, id: u16, page: u64, entry: Entry) {
        let life = self.life(entry.frame());
        let mut tlb = self.cpus[usize::from(id)].tlb.borrow_mut();
        if !tlb.kernel.iter().any(|cached| cached.page == page) {
            tlb.kernel.push(CachedKernel { page, entry, life, since: self.broadcasts.get() });
            self.record(Place::Tlb(id), true);
        }
    }

    /// The kernel on this CPU uses one of its pages; gives the frame that it finds there.
    pub(crate) fn kernel_access(&self, page: u64) -> Option<FrameNumber> {
        let id = self.current.get();
        self.point(Place::Tlb(id), false);
        let cached =
            self.cpu().tlb.borrow().kernel.iter().find(|cached| cached.page == page).map(|c| c.entry);
        if cached.is_none()
            && let Some(root) = self.kernel_root.get()
        {
            let (way, _) = self.walk(root, page);
            way.words.iter().flatten().for_each(|word| self.record_word(word.cast(), false));
        }
        let entry = cached.or_else(|| self.kernel_entry(page))?;
        self.cache_kernel(id, page, entry);
        self.note(|| What::Access { page, frame: entry.frame(), write: false, cached: cached.is_some() });
        Some(entry.frame())
    }

    /// A word is about to be changed. If a table's, every CPU that could walk to it has done so just before.
    pub(crate) fn before_change(&self, at: *const u8) {
        let Some(frame) = self.memory.frame_of(at) else { return };
        if !self.memory.state(frame).is_some_and(|state| state.table.get()) {
            return;
        }
        self.judge_entry(at);
        self.will_change(at);
        if self.hardware.get() != Hardware::Grasping {
            return;
        }
        // The word of an entry has 8 bytes; a lock in a table's frame is none.
        for id in 0..self.setup.cpus {
            let cpu = &self.cpus[usize::from(id)];
            if !cpu.online.get() {
                continue;
            }
            let root = cpu.tlb.borrow().root;
            let watched = self.watched.borrow();
            for &page in root.iter().flat_map(|_| watched.iter()) {
                self.fetch_one(id, page, Some(at), false);
            }
            self.fetch_kernel(id, Some(at));
        }
    }

    /// This CPU walks to a page and caches what it finds. With `only` it does so if the way leads through this word, and if
    /// nothing changes: where the accessed bit is clear, it would be set.
    fn fetch_one(&self, id: u16, page: u64, only: Option<*const u8>, to_write: bool) {
        let cpu = &self.cpus[usize::from(id)];
        let Some(root) = cpu.tlb.borrow().root else { return };
        let (way, leaf) = self.walk(root, page);
        if only.is_some_and(|at| !way.words.iter().flatten().any(|word| word.cast_const().cast() == at)) {
            return;
        }
        // Tables are remembered only once an entry in them was used, as far down as it is present.
        self.remember(&mut cpu.tlb.borrow_mut(), page, &way);
        let access = if to_write { UserAccess::Write } else { UserAccess::Read };
        let Some(leaf) = leaf.filter(|leaf| leaf.read().permits(access)) else { return };
        let known =
            cpu.tlb.borrow().find(page).is_some_and(|cached| !to_write || cached.entry.has(Entry::DIRTY));
        let bits = if to_write { Entry::DIRTY } else { 0 };
        if known {
            return;
        }
        // Without the guarantee it is cached first, and the accessed bit set some time, or never.
        let sets = self.setup.guarantees || bits != 0;
        if sets && !leaf.read().has(Entry::ACCESSED | bits) {
            if only.is_some() || cpu.stray.get() == 0 {
                return;
            }
            cpu.stray.set(cpu.stray.get() - 1);
            self.use_entry(&leaf, bits);
        }
        let entry = leaf.read();
        self.cache(id, page, leaf.large, entry, &way);
        self.note(|| What::Fetched { page, frame: entry.frame() });
        if cpu.in_user_mode() {
            self.judge_user(id);
        }
    }

    /// Before an entry is cached its accessed bit is set, and other bits with it: of the entry as it is at this moment.
    fn use_entry(&self, leaf: &Leaf, bits: u64) {
        let bits = Entry::ACCESSED | bits;
        if !leaf.read().has(bits) {
            self.record_word(leaf.word.cast(), true);
            leaf.set(bits);
        }
    }

    fn fetch_kernel(&self, id: u16, only: Option<*const u8>) {
        let (Some(root), Some(range)) = (self.kernel_root.get(), self.kernel_range.get()) else { return };
        // The place of an entry in its table says which pages it can be of.
        let index = only
            .and_then(|at| self.memory.offset_of(at))
            .map(|offset| offset as usize % PAGE_SIZE as usize / 8);
        let may_be = |page: &u64| index.is_none_or(|index| PageNumber(*page).index(0) == index);
        for page in (range.start.0..range.end().0).filter(may_be) {
            let (way, leaf) = self.walk(root, page);
            let is_it = |at: *const u8| way.words[0].is_some_and(|word| word.cast_const().cast() == at);
            if only.is_some_and(|at| !is_it(at)) {
                continue;
            }
            if let Some(entry) = leaf.map(|leaf| leaf.read()).filter(|entry| entry.is_present()) {
                self.cache_kernel(id, page, entry);
            }
        }
    }

    /// A CPU fetches all that it can, perhaps for writes that never come.
    pub(crate) fn fetch(&self, id: u16, to_write: bool) {
        for &page in self.watched.borrow().iter() {
            self.fetch_one(id, page, None, to_write);
        }
        self.fetch_kernel(id, None);
        self.did();
    }

    /// A CPU forgets all that it has cached.
    pub(crate) fn evict(&self, id: u16) {
        let mut tlb = self.cpus[usize::from(id)].tlb.borrow_mut();
        tlb.user.clear();
        tlb.kernel.clear();
        tlb.walked.clear();
        drop(tlb);
        self.note(|| What::Evicted);
    }
}
