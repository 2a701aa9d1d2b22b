//! How a CPU translates: a TLB that keeps what it may keep, walks of the real tables, and what a program or the kernel
//! reads and writes through them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use quietmm::addr::PhysAddr;
use quietmm::{Architecture, Entry, Error, FrameNumber, PageNumber, Platform, SpaceId, UserAccess};
use quietmm_hardware::{Access, Hit, Rules, rules, walk};

use super::{Host, Mm};
use quietmm::platform::Memory;

#[derive(Default)]
pub(super) struct Tlb {
    pub(super) root: Option<FrameNumber>,
    pub(super) tag: u16,
    /// By tag: what was last loaded under it.
    pub(super) roots: BTreeMap<u16, FrameNumber>,
    /// By tag, first page and whether it is a large page: the entry as it was cached.
    pub(super) cached: BTreeMap<(u16, u64, bool), Entry>,
    /// How many frames had been freed when it was cached.
    since: BTreeMap<(u16, u64, bool), u64>,
    /// By tag: the tables that the CPU has walked since its last flush, and may walk again without a look above; and on the way to which
    /// pages each lies: the first page, and how many.
    pub(super) walked: BTreeMap<(u16, FrameNumber), (u64, u64)>,
    /// By page: entries of kernel addresses, which are global.
    pub(super) kernel: BTreeMap<u64, Entry>,
}

/// Which frame was freed when: so many had been before.
#[derive(Default)]
pub(super) struct Frees {
    count: u64,
    /// Of each frame of memory, how many there were with its last.
    last: Vec<u64>,
}

impl Frees {
    /// A frame of memory, by its index there.
    pub(super) fn enter(&mut self, index: usize) {
        self.count += 1;
        if self.last.len() <= index {
            self.last.resize(index + 1, 0);
        }
        self.last[index] = self.count;
    }

    /// Whether it has been freed since so many had been.
    fn since(&self, index: usize, count: u64) -> bool {
        self.last.get(index).is_some_and(|&last| last > count)
    }
}

/// A write of which the walk is done.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    page: u64,
    frame: FrameNumber,
    value: u64,
}

/// Where a translation of `page` can lie: the small one, and the large one that covers it.
pub(super) fn places(tag: u16, page: u64) -> [(u16, u64, bool); 2] {
    [(tag, page, false), (tag, PageNumber(page).large().0, true)]
}

/// Whether an operation left this behind with `free=sweep`: the marks of a deferred flush and of a swap slot, both.
fn is_parked(entry: Entry) -> bool {
    entry.0 & 0xf01 == 1 << 8 | 1 << 11
}

/// The frame that an entry, small or large, gives for `page`.
fn frame_for(entry: Entry, page: u64) -> FrameNumber {
    walk::frame_for(entry, entry.has(Entry::LARGE), PageNumber(page))
}

/// An entry's word.
#[derive(Clone, Copy)]
pub(super) struct Found<'m> {
    pub(super) word: &'m AtomicU64,
    architecture: Architecture,
    level: u32,
}

impl Found<'_> {
    /// What it says now.
    pub(super) fn entry(self) -> Entry {
        Entry::decode(self.word.load(Ordering::SeqCst), self.architecture, self.level)
    }

    /// The hardware sets bits; returns what it says then.
    fn set(self, bits: u64) -> Entry {
        self.word.fetch_or(walk::bits_of(self.architecture, bits), Ordering::SeqCst);
        self.entry()
    }
}

/// What an entry says, of which nothing may be there.
fn said(found: Option<Found<'_>>) -> Entry {
    found.map_or(Entry::NONE, Found::entry)
}

impl Tlb {
    /// Everything under the loaded tag.
    pub(super) fn flush(&mut self) {
        let tag = self.tag;
        self.cached.retain(|key, _| key.0 != tag);
        self.forget_tables();
    }

    /// What every flush does, of a single page too (Intel SDM 3A 4.10.4.1).
    pub(super) fn forget_tables(&mut self) {
        let tag = self.tag;
        self.walked.retain(|key, _| key.0 != tag);
    }
}

impl Host {
    /// A word of a frame.
    pub fn word(&self, frame: FrameNumber, index: usize) -> &AtomicU64 {
        let at = self.direct(PhysAddr(frame.phys().0 + 8 * index as u64));
        // SAFETY: inside the memory (`direct` checks), aligned, and only used as an atomic.
        unsafe { &*at.cast() }
    }

    /// The entry for a page, small or large, as the hardware finds it, and the tables on the way.
    pub(super) fn walk(&self, root: FrameNumber, page: u64) -> (Option<Found<'_>>, Vec<FrameNumber>) {
        let (mut way, architecture) = (Vec::new(), self.setup.architecture);
        let leaf = walk(architecture, root, PageNumber(page), |_, table, index| {
            way.push(table);
            Some(self.word(table, index).load(Ordering::SeqCst))
        });
        let found = leaf.map(|leaf| {
            let word = self.word(leaf.table, leaf.index);
            Found { word, architecture, level: leaf.level }
        });
        (found, way)
    }

    fn rules(&self) -> Rules {
        Rules { architecture: self.setup.architecture, clean_write_walks: self.setup.guarantees }
    }

    /// Whether the frame of a translation was freed since it was cached.
    fn was_freed(&self, tlb: &Tlb, key: &(u16, u64, bool)) -> bool {
        let index = tlb.cached.get(key).and_then(|entry| self.memory.index_of(entry.frame()));
        index.is_some_and(|index| self.frees.borrow().since(index, tlb.since[key]))
    }

    /// Translates as the hardware does: `None` is a page fault.
    fn translate(&self, page: u64, access: Access) -> Option<FrameNumber> {
        let mut tlb = self.tlbs[self.current.get() as usize].borrow_mut();
        let (root, tag) = (tlb.root?, tlb.tag);
        let (found, way) = self.walk(root, page);
        let (now, rules) = (said(found), self.rules());
        for key in places(tag, page) {
            let cached = tlb.cached.get(&key).copied();
            let hit = rules.hit(cached, access);
            let Some(entry) = cached.filter(|_| hit != Hit::Walk) else { continue };
            if hit == Hit::Fault {
                return None;
            }
            // No longer there, somewhere else, or no longer permitted.
            if !access.is_permitted(now) || frame_for(now, page) != frame_for(entry, page) {
                let waits = is_parked(now) && !self.was_freed(&tlb, &key);
                let uses = if waits { &self.parked_uses } else { &self.stale };
                uses.set(uses.get() + 1);
                return Some(frame_for(entry, page));
            }
            if hit == Hit::Use {
                return Some(frame_for(entry, page));
            }
        }
        for key in places(tag, page) {
            tlb.cached.remove(&key);
        }
        // The root leads to all pages, each table below to a 512th of that.
        let spans = [36, 27, 18, 9].map(|bits| (page >> bits << bits, 1 << bits));
        tlb.walked.extend(way.into_iter().zip(spans).map(|(table, span)| ((tag, table), span)));
        let keep = |tlb: &mut Tlb, entry: Entry| {
            let key = places(tag, page)[usize::from(entry.has(Entry::LARGE))];
            tlb.since.insert(key, self.frees.borrow().count);
            tlb.cached.insert(key, entry);
        };
        let (Some(found), rules::Found::Use { sets }) = (found, rules.found(now, access)) else {
            rules.refusal(found.map(Found::entry)).into_iter().for_each(|refusal| keep(&mut tlb, refusal));
            return None;
        };
        let entry = found.set(sets);
        keep(&mut tlb, entry);
        Some(frame_for(entry, page))
    }

    /// Something that this CPU has cached of its space, or of kernel addresses, and that the tables do not allow any more.
    /// What waits for a flush of kernel addresses, with nothing else in its place, may be there.
    pub(super) fn stale_translation(&self) -> Option<(u64, Entry, Entry)> {
        let tlb = self.tlbs[self.current.get() as usize].borrow();
        let now = |root, page| said(self.walk(root, page).0);
        let user = tlb.root.and_then(|root| {
            let usable = |(key, entry): &(&(u16, _, _), &Entry)| key.0 == tlb.tag && entry.is_present();
            let own = tlb.cached.iter().filter(usable);
            let seen = own.map(|(key, &entry)| (*key, (key.1, entry, now(root, key.1))));
            let waits = |key: &_, now| is_parked(now) && !self.was_freed(&tlb, key);
            let mut seen = seen.filter(|(key, (.., now))| !waits(key, *now)).map(|(_, seen)| seen);
            seen.find(|&(page, entry, now)| {
                let access = match entry.permits(UserAccess::Write)
                    && (entry.has(Entry::DIRTY) || !self.setup.guarantees)
                {
                    true => UserAccess::Write,
                    false => UserAccess::Read,
                };
                let executes = entry.permits(UserAccess::Execute) && !now.permits(UserAccess::Execute);
                executes || !now.permits(access) || frame_for(now, page) != frame_for(entry, page)
            })
        });
        let root = tlb.root.or(self.kernel_root.get());
        let kernel = || {
            let root = root?;
            let usable = tlb.kernel.iter().filter(|(_, entry)| entry.is_present());
            let mut seen = usable.map(|(&page, &entry)| (page, entry, now(root, page)));
            seen.find(|(_, entry, now)| now.is_present() && now.frame() != entry.frame())
        };
        user.or_else(kernel)
    }

    /// Translates a kernel address as the hardware does, whatever space is loaded.
    fn translate_kernel(&self, page: u64, write: bool) -> Option<FrameNumber> {
        let mut tlb = self.tlbs[self.current.get() as usize].borrow_mut();
        let root = tlb.root.or(self.kernel_root.get())?;
        let (now, rules, access) = (said(self.walk(root, page).0), self.rules(), Access::kernel(write));
        let cached = tlb.kernel.get(&page).copied();
        match (rules.hit(cached, access), cached) {
            (Hit::Fault, _) => return None,
            (Hit::Use, Some(cached)) => {
                if !now.is_present() {
                    self.kernel_window.set(self.kernel_window.get() + 1);
                } else if now.frame() != cached.frame() {
                    self.kernel_stale.set(self.kernel_stale.get() + 1);
                }
                return Some(cached.frame());
            }
            _ => {}
        }
        assert!(now == Entry::NONE || now.is_taken() || now.has(Entry::GLOBAL | Entry::ACCESSED), "{now:?}");
        let permitted = access.is_permitted(now);
        let kept = if permitted { Some(now) } else { rules.refusal(Some(now)) };
        kept.into_iter().for_each(|entry| _ = tlb.kernel.insert(page, entry));
        permitted.then(|| now.frame())
    }

    /// The kernel's handler of a fault at an address of its own, where CPUs keep refusals.
    fn kernel_fault(&self, page: PageNumber, write: bool) -> bool {
        // SAFETY: set for as long as the manager lives.
        let mm = unsafe { self.manager.get().cast::<Mm<'_>>().as_ref() };
        let access = if write { UserAccess::Write } else { UserAccess::Read };
        self.setup.architecture.keeps_refusals()
            && mm.is_some_and(|mm| mm.vmap().fault(page.addr(), access).is_ok())
    }

    /// Translates, again where the fault was none.
    fn reach_kernel(&self, page: PageNumber, write: bool) -> Option<FrameNumber> {
        let first = self.translate_kernel(page.0, write);
        first.or_else(|| self.kernel_fault(page, write).then(|| self.translate_kernel(page.0, write))?)
    }

    /// What this CPU reads at the start of a kernel page; `None` is a fault.
    pub fn read_kernel(&self, page: PageNumber) -> Option<u64> {
        let frame = self.reach_kernel(page, false)?;
        Some(self.word(frame, 0).load(Ordering::SeqCst))
    }

    /// Writes there; says whether it could.
    pub fn write_kernel(&self, page: PageNumber, value: u64) -> bool {
        let Some(frame) = self.reach_kernel(page, true) else { return false };
        self.word(frame, 0).store(value, Ordering::SeqCst);
        true
    }

    /// Whether the entry of a kernel page lets code run there.
    pub fn may_execute(&self, page: PageNumber) -> bool {
        let root = self.kernel_root.get().expect("a kernel root");
        let (found, _) = self.walk(root, page.0);
        let entry = said(found);
        entry.is_present() && !entry.has(Entry::NO_EXECUTE)
    }

    /// Whether this CPU still has a translation of the kernel page.
    pub fn caches_kernel(&self, cpu: u16, page: PageNumber) -> bool {
        self.tlbs[cpu as usize].borrow().kernel.contains_key(&page.0)
    }

    /// What this CPU reads, if it reads on without a page fault.
    pub fn try_read(&self, page: u64) -> Option<u64> {
        let frame = self.translate(page, Access::user(false))?;
        Some(self.word(frame, 0).load(Ordering::SeqCst))
    }

    /// Writes, if that needs no page fault; says whether it did. The program stands at the access otherwise.
    pub fn try_write(&self, page: u64, value: u64) -> bool {
        let Some(frame) = self.translate(page, Access::user(true)) else { return false };
        self.word(frame, 0).store(value, Ordering::SeqCst);
        true
    }

    /// The program on this CPU begins a write: the walk finds an entry that allows it and is clean. Until it ends
    /// ([`end_write`](Self::end_write)) others can change the entry; says whether it has begun.
    pub fn begin_write(&self, page: u64, value: u64) -> bool {
        let cpu = self.current.get() as usize;
        let root = self.tlbs[cpu].borrow().root.expect("it runs in a space");
        let entry = said(self.walk(root, page).0);
        let begins = entry.permits(UserAccess::Write) && !entry.has(Entry::DIRTY);
        self.begun[cpu].set(begins.then(|| Begun { page, frame: frame_for(entry, page), value }));
        begins
    }

    /// What this CPU has begun to write is written, and the dirty bit set, if the entry is still there: many CPUs look at
    /// nothing else by then. At the latest before an interrupt. Says whether there was such a write.
    pub fn end_write(&self, cpu: u16) -> bool {
        let Some(Begun { page, frame, value }) = self.begun[cpu as usize].take() else { return false };
        let root = self.tlbs[cpu as usize].borrow().root.expect("it runs in a space");
        let Some(found) = self.walk(root, page).0 else { return false };
        let now = found.entry();
        if !now.is_present() || frame_for(now, page) != frame {
            return false;
        }
        found.set(Entry::ACCESSED | Entry::DIRTY);
        self.word(frame, 0).store(value, Ordering::SeqCst);
        true
    }

    /// What the kernel on this CPU reads at a user address, if that needs no page fault: it may use whatever is present.
    pub fn try_read_as_kernel(&self, page: u64) -> Option<u64> {
        let tlb = self.tlbs[self.current.get() as usize].borrow();
        let cached = places(tlb.tag, page).iter().find_map(|key| tlb.cached.get(key).copied());
        let walked = || self.walk(tlb.root?, page).0.map(Found::entry);
        let entry = cached.or_else(walked).filter(|entry| entry.is_present())?;
        Some(self.word(frame_for(entry, page), 0).load(Ordering::SeqCst))
    }

    /// The word of a page's entry, as it lies in memory.
    pub fn raw_entry(&self, page: u64) -> u64 {
        let root = self.tlbs[self.current.get() as usize].borrow().root.expect("it runs in a space");
        self.walk(root, page).0.map_or(0, |found| found.word.load(Ordering::SeqCst))
    }

    /// The page looks as if nobody had used it for long: its accessed bit is clear, and no CPU has it cached.
    pub fn make_cold(&self, page: u64) {
        let root = self.tlbs[self.current.get() as usize].borrow().root.expect("it runs in a space");
        let found = self.walk(root, page).0.expect("it is mapped");
        found.word.fetch_and(!walk::bits_of(self.setup.architecture, Entry::ACCESSED), Ordering::SeqCst);
        self.tlbs.iter().for_each(|tlb| tlb.borrow_mut().flush());
    }

    /// What the core keeps about a space says that its translations were taken away so often already, and flushed. Found by what
    /// a few flushes of it raise: the number of the last, and, two words on, of the last that all have done.
    pub fn grow_old(&self, mm: &Mm<'_>, id: SpaceId, generation: u64) {
        let frames = self.regions()[0];
        let lines = (0..u64::from(frames.frames) * 64)
            .map(|line| self.word(frames.start.add((line / 64) as u32), (line % 64) as usize * 8));
        let lines: Vec<_> = lines.map(|word| (word, word.load(Ordering::SeqCst))).collect();
        (0..5).for_each(|_| mm.space(id).flush().unwrap());
        let pair = |word: &AtomicU64| {
            // SAFETY: a line has eight words.
            [word, unsafe { &*(&raw const *word).add(2) }].map(|word| word.load(Ordering::SeqCst))
        };
        let raised = |&&(word, before): &&(&AtomicU64, u64)| pair(word) == [before.wrapping_add(5); 2];
        let space: Vec<_> = lines.iter().filter(raised).collect();
        assert_eq!(space.len(), 1, "a space, and nothing else");
        let word = space[0].0;
        word.store(generation, Ordering::SeqCst);
        // SAFETY: as above.
        unsafe { &*(&raw const *word).add(2) }.store(generation, Ordering::SeqCst);
    }

    fn access(&self, mm: &Mm<'_>, id: SpaceId, page: u64, write: Option<u64>) -> Result<u64, Error> {
        self.access_as(mm, id, page, Access::user(write.is_some()), write)
    }

    fn access_as(
        &self,
        mm: &Mm<'_>,
        id: SpaceId,
        page: u64,
        access: Access,
        write: Option<u64>,
    ) -> Result<u64, Error> {
        assert_eq!(mm.loaded_space(), Some(id), "this CPU runs elsewhere");
        // One fault brings a page, another lets write to it; and each time somebody else may have taken it away meanwhile.
        for _ in 0..8 {
            if let Some(frame) = self.translate(page, access) {
                let word = self.word(frame, 0);
                if let Some(value) = write {
                    word.store(value, Ordering::SeqCst);
                }
                return Ok(word.load(Ordering::SeqCst));
            }
            let tried = match access {
                Access { write: true, .. } => UserAccess::Write,
                Access { fetch: true, .. } => UserAccess::Execute,
                _ => UserAccess::Read,
            };
            let before = self.faulted();
            mm.space(id).fault(PageNumber(page).addr(), tried)?;
            assert!(self.faulted() > before, "a fault that nobody counts");
        }
        panic!("page {page:#x} faults again and again");
    }

    /// This CPU executes what lies at the start of a page of its space; returns what it has fetched.
    pub fn execute(&self, mm: &Mm<'_>, id: SpaceId, page: u64) -> Result<u64, Error> {
        self.access_as(mm, id, page, Access::fetch(), None)
    }

    /// What this CPU fetches there, if that needs no page fault.
    pub fn try_execute(&self, page: u64) -> Option<u64> {
        let frame = self.translate(page, Access::fetch())?;
        Some(self.word(frame, 0).load(Ordering::SeqCst))
    }

    /// What this CPU reads at the start of a page of its space.
    pub fn read(&self, mm: &Mm<'_>, id: SpaceId, page: u64) -> Result<u64, Error> {
        self.access(mm, id, page, None)
    }

    pub fn write(&self, mm: &Mm<'_>, id: SpaceId, page: u64, value: u64) -> Result<(), Error> {
        self.access(mm, id, page, Some(value)).map(|_| ())
    }

    /// Whether this CPU still has a translation of the page.
    pub fn caches(&self, cpu: u16, page: u64) -> bool {
        let tlb = self.tlbs[cpu as usize].borrow();
        places(tlb.tag, page).iter().any(|key| tlb.cached.contains_key(key))
    }

    /// The entry of a page of this CPU's space looks unused since it was last looked at; what is cached of it stays.
    pub fn make_idle(&self, page: u64) {
        let root = self.tlbs[self.current.get() as usize].borrow().root.expect("it runs in a space");
        let found = self.walk(root, page).0.expect("the page has a table");
        found.word.fetch_and(!walk::bits_of(self.setup.architecture, Entry::ACCESSED), Ordering::SeqCst);
    }

    /// Whether the accessed bit is set.
    pub fn accessed(&self, mm: &Mm<'_>, id: SpaceId, page: u64) -> bool {
        mm.space(id).lookup(PageNumber(page)).unwrap().has(Entry::ACCESSED)
    }
}
