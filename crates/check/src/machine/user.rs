//! What programs, the kernel and the hardware itself do with addresses.

use quietmm::addr::{FrameNumber, PAGE_SIZE, PageNumber};
use quietmm::{Architecture, Entry};
use quietmm_hardware::walk::bits_of;
use quietmm_hardware::{Access, Found, Hit, walk};

use super::tlb::{Cached, CachedKernel, Tlb, Walked};
use super::{Hardware, Machine, Place, What};
use crate::violation::Violation;

/// Where a walk of the tables ends.
struct Leaf {
    word: *mut u64,
    level: u32,
    architecture: Architecture,
}

impl Leaf {
    fn read(&self) -> Entry {
        // SAFETY: an aligned word of the machine's memory, which one host thread uses.
        Entry::decode(unsafe { *self.word }, self.architecture, self.level)
    }
    fn set(&self, bits: u64) {
        // SAFETY: as above.
        unsafe { *self.word |= bits_of(self.architecture, bits) };
    }
    fn is_large(&self) -> bool {
        self.level > 0
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
        let (mut way, architecture) = (Way::default(), self.setup.architecture);
        let leaf = walk(architecture, root, PageNumber(page), |level, table, index| {
            let word = self.memory.word(table, index)?;
            way.tables[level as usize] = Some(table);
            way.words[level as usize] = Some(word);
            // SAFETY: an aligned word of the machine's memory, which one host thread uses.
            Some(unsafe { *word })
        });
        let leaf = leaf.and_then(|leaf| {
            Some(Leaf { word: way.words[leaf.level as usize]?, level: leaf.level, architecture })
        });
        (way, leaf)
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
        let above = !entry.is_present() && way.words[0].is_none();
        let (revoked, execution_revoked) = (None, false);
        tlb.user.push(Cached {
            tag,
            page: first,
            large,
            entry,
            above,
            life,
            since,
            root,
            revoked,
            execution_revoked,
        });
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
    fn translate(&self, page: u64, access: Access) -> Option<FrameNumber> {
        let (id, rules) = (self.current.get(), self.rules());
        let (root, cached) = {
            let tlb = self.cpu().tlb.borrow();
            (tlb.root?, tlb.find(page).copied())
        };
        let hit = rules.hit(cached.map(|cached| cached.entry), access);
        if hit == Hit::UseUnseen {
            let mut tlb = self.cpu().tlb.borrow_mut();
            tlb.find_mut(page).into_iter().for_each(|mine| mine.entry = Entry(mine.entry.0 | Entry::DIRTY));
        }
        match (hit, cached) {
            (Hit::Use | Hit::UseUnseen, Some(cached)) => {
                let frame = cached.frame(page);
                self.note(|| What::Access { page, frame, write: access.write, cached: true });
                return Some(frame);
            }
            (Hit::Fault, _) => return None,
            _ => {}
        }
        let (way, leaf) = self.walk(root, page);
        for word in way.words.iter().flatten() {
            self.record_word(word.cast(), false);
        }
        let found = leaf.as_ref().map_or(Found::Fault, |leaf| rules.found(leaf.read(), access));
        let (Some(leaf), Found::Use { sets }) = (&leaf, found) else {
            return self.faults(page, leaf.as_ref(), &way);
        };
        if !access.write && !self.is_as_read(leaf) {
            return self.translate(page, access);
        }
        if access.write && !self.may_go_on(page, leaf) {
            return self.faults(page, None, &way);
        }
        self.use_entry(leaf, sets);
        self.cache(id, page, leaf.is_large(), leaf.read(), &way);
        let frame = self.cpu().tlb.borrow().find(page)?.frame(page);
        self.note(|| What::Access { page, frame, write: access.write, cached: false });
        Some(frame)
    }

    /// A page fault, and what the CPU keeps of it: no translation of the page, or that there was none.
    fn faults(&self, page: u64, found: Option<&Leaf>, way: &Way) -> Option<FrameNumber> {
        let entry = found.map(Leaf::read);
        match self.rules().refusal(entry) {
            None => self.cpu().tlb.borrow_mut().flush_page(page, true),
            Some(entry) => {
                let large = found.is_some_and(Leaf::is_large) && entry.is_present();
                self.cache(self.current.get(), page, large, entry, way);
            }
        }
        None
    }

    /// A write has found an entry that allows it, and its dirty bit clear. Whether the entry is still there when the dirty bit
    /// is set: more than that [`Hardware::Grasping`] does not look at by then. An interrupt comes before the write or after it.
    fn may_go_on(&self, page: u64, leaf: &Leaf) -> bool {
        let entry = leaf.read();
        let part = if leaf.is_large() { PageNumber(page).index(0) as u32 } else { 0 };
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
        let frame = self.translate(page, Access::user(write.is_some()))?;
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

    /// A program on this CPU fetches an instruction from a page. Nothing for a page fault.
    pub(crate) fn fetch_from(&self, page: u64) -> Option<u64> {
        let id = self.current.get();
        self.point(Place::Tlb(id), false);
        let frame = self.translate(page, Access::fetch())?;
        self.judge_user(id);
        self.record(Place::Content(frame.0, id), false);
        Some(self.memory.state(frame)?.content.get()[usize::from(id)])
    }

    /// A device reads this CPU's number in a frame, or writes it.
    pub(crate) fn device_access(&self, frame: FrameNumber, write: Option<u64>) -> u64 {
        let id = self.current.get();
        self.point(Place::Content(frame.0, id), write.is_some());
        let Some(state) = self.memory.state(frame).filter(|state| !state.free.get()) else {
            let said = format!("a device uses {frame:?}, which was freed");
            self.fail(Violation::new("INV-15", id, said));
        };
        let mut content = state.content.get();
        let lane = &mut content[usize::from(id)];
        if let Some(value) = write {
            *lane = value;
            state.device_wrote.set(true);
        }
        let now = *lane;
        state.content.set(content);
        self.record(Place::Content(frame.0, id), write.is_some());
        now
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
        let frame = self.translate(page, Access::kernel(false))?;
        self.judge_user(id);
        self.record(Place::Content(frame.0, id), false);
        Some(self.memory.state(frame)?.content.get()[usize::from(id)])
    }

    /// The entry of a kernel page, if it is there.
    pub(crate) fn kernel_entry(&self, page: u64) -> Option<Entry> {
        let (_, leaf) = self.walk(self.kernel_root.get()?, page);
        leaf.map(|leaf| leaf.read()).filter(|entry| entry.is_present())
    }

    /// Caches what a walk has found of a kernel page, or that it has found nothing, unless there is a translation already.
    fn cache_kernel(&self, id: u16, page: u64, found: Option<&Leaf>) {
        let entry = found.map(Leaf::read).filter(|entry| entry.is_present());
        let Some(entry) = entry.or_else(|| self.rules().refusal(None)) else { return };
        let (above, life, since) = (found.is_none(), self.life(entry.frame()), self.broadcasts.get());
        let mut tlb = self.cpus[usize::from(id)].tlb.borrow_mut();
        if !tlb.kernel.iter().any(|cached| cached.page == page && cached.entry.is_present()) {
            tlb.kernel.retain(|cached| cached.page != page);
            tlb.kernel.push(CachedKernel { page, entry, above, life, since });
            self.record(Place::Tlb(id), true);
        }
    }

    /// The kernel on this CPU uses one of its pages; returns the frame that it finds there. Nothing for a page fault.
    pub(crate) fn kernel_access(&self, page: u64) -> Option<FrameNumber> {
        let (id, rules, access) = (self.current.get(), self.rules(), Access::kernel(false));
        self.point(Place::Tlb(id), false);
        let cached =
            self.cpu().tlb.borrow().kernel.iter().find(|cached| cached.page == page).map(|c| c.entry);
        let entry = match rules.hit(cached, access) {
            Hit::Fault => return None,
            Hit::Use | Hit::UseUnseen => cached?,
            Hit::Walk => {
                let (way, leaf) = self.walk(self.kernel_root.get()?, page);
                way.words.iter().flatten().for_each(|word| self.record_word(word.cast(), false));
                self.cache_kernel(id, page, leaf.as_ref());
                leaf.map(|leaf| leaf.read()).filter(|entry| entry.is_present())?
            }
        };
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
        let (rules, access) = (self.rules(), Access::user(to_write));
        // A refusal may be forgotten at any time.
        let usable =
            |cached: &Cached| cached.entry.is_present() && (!to_write || cached.entry.has(Entry::DIRTY));
        let known = cpu.tlb.borrow().find(page).is_some_and(usable);
        if known {
            return;
        }
        let found = leaf.as_ref().map_or(Found::Fault, |leaf| rules.found(leaf.read(), access));
        let (Some(leaf), Found::Use { sets }) = (&leaf, found) else {
            let refusal = rules.refusal(leaf.as_ref().map(Leaf::read)).filter(|entry| !entry.is_present());
            refusal.into_iter().for_each(|entry| self.cache(id, page, false, entry, &way));
            return;
        };
        // Without the guarantee it is cached first, and the accessed bit set some time, or never.
        if sets != 0 && (self.setup.guarantees || to_write) {
            if only.is_some() || cpu.stray.get() == 0 {
                return;
            }
            cpu.stray.set(cpu.stray.get() - 1);
            self.use_entry(leaf, sets);
        }
        let entry = leaf.read();
        self.cache(id, page, leaf.is_large(), entry, &way);
        self.note(|| What::Fetched { page, frame: entry.frame() });
        if cpu.in_user_mode() {
            self.judge_user(id);
        }
    }

    /// Before an entry is cached these bits are set in it: of the entry as it is at this moment.
    fn use_entry(&self, leaf: &Leaf, sets: u64) {
        if !leaf.read().has(sets) {
            self.record_word(leaf.word.cast(), true);
            leaf.set(sets);
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
            self.cache_kernel(id, page, leaf.as_ref());
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
