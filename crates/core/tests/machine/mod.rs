//! A machine of a few CPUs on the host, in one thread: the test says which CPU runs, when interrupts arrive,
//! which rule is broken, and what happens while a CPU waits. Each CPU has a TLB that keeps what it may keep.

#![allow(dead_code, reason = "each test file uses its part")]

mod aside;
pub mod faults;
pub mod kernel;
pub mod race;
pub mod showing;
pub mod swapping;

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use quietmm::addr::{Nanos, PAGE_SIZE, PageNumber, PhysAddr};
use quietmm::platform::{Access, BlockDevice, DeviceError, Guarantees, Store, WaitKey};
use quietmm::{
    Audit, Config, Counter, CpuId, CpuSet, Entry, Error, Event, FrameNumber, ListLimits, Manager, NodeId,
    PageRange, Platform, Policy, Region, Rule, SpaceId, UserAccess, VirtAddr,
};

pub type Mm<'p> = Manager<'p, Host>;
type Hook = Box<dyn FnOnce(&Mm<'_>)>;
/// What a device says to a transfer that it refuses.
pub type Refuse = fn(Store, u64) -> Option<DeviceError>;

/// What a case ends with (by unwinding) that cannot be played in one thread: a CPU waits for one that stands still in
/// the middle of something, with interrupts off or with a lock.
pub struct StandsStill;

/// What is to happen when a CPU touches shared memory.
struct Placed {
    cpu: u16,
    /// Touches that come before.
    left: u32,
    hook: Hook,
}

/// What the machine is made of.
#[derive(Clone)]
pub struct Setup {
    pub cpus: u32,
    pub nodes: u16,
    pub tags: u16,
    /// Whether both guarantees are declared. Where they are not, the hardware lacks the first: a write through a cached
    /// clean entry looks at no table.
    pub guarantees: bool,
    pub disk: bool,
    pub base: u32,
    pub frames: u32,
    /// `None`: one region, all of it.
    pub regions: Option<Vec<Region>>,
}

impl Default for Setup {
    fn default() -> Self {
        let (base, frames) = (0x1000, 4096);
        Setup { cpus: 1, nodes: 1, tags: 1, guarantees: true, disk: true, base, frames, regions: None }
    }
}

/// One thing that happened, in the order in which it did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Happened {
    Interrupt(u16),
    FlushPage(u16, u64),
    FlushSpace(u16),
    FlushKernelPage(u16, u64),
    FlushKernel(u16),
    DiskWrite(Store, u64),
    Event(Event),
}

#[derive(Default)]
struct Tlb {
    root: Option<FrameNumber>,
    tag: u16,
    /// By tag, first page and whether it is a large page: the entry as it was cached.
    cached: BTreeMap<(u16, u64, bool), Entry>,
    /// By tag: the tables that the CPU has walked since its last flush, and may walk again without a look above.
    walked: BTreeSet<(u16, FrameNumber)>,
    /// By page: entries of kernel addresses, which are global.
    kernel: BTreeMap<u64, Entry>,
}

/// Where a translation of `page` can lie: the small one, and the large one that covers it.
fn places(tag: u16, page: u64) -> [(u16, u64, bool); 2] {
    [(tag, page, false), (tag, PageNumber(page).large().0, true)]
}

/// The frame that an entry, small or large, gives for `page`.
fn frame_for(entry: Entry, page: u64) -> FrameNumber {
    let part = if entry.has(Entry::LARGE) { PageNumber(page).index(0) as u32 } else { 0 };
    entry.frame().add(part)
}

impl Tlb {
    /// Everything under the loaded tag.
    fn flush(&mut self) {
        let tag = self.tag;
        self.cached.retain(|key, _| key.0 != tag);
        self.forget_tables();
    }

    /// What every flush does, of a single page too (Intel SDM 3A 4.10.4.1).
    fn forget_tables(&mut self) {
        let tag = self.tag;
        self.walked.retain(|key| key.0 != tag);
    }
}

pub struct Host {
    memory: *mut u8,
    layout: Layout,
    setup: Setup,
    current: Cell<u16>,
    irqs: Vec<Cell<bool>>,
    pending: Vec<Cell<bool>>,
    tlbs: Vec<RefCell<Tlb>>,
    manager: Cell<*const Mm<'static>>,
    idle_pauses: Cell<u32>,
    /// All that was ever woken.
    woken: RefCell<Vec<WaitKey>>,
    disk: RefCell<BTreeMap<(Store, u64), u64>>,
    /// Interrupts stay on their way until somebody waits.
    pub hold_interrupts: Cell<bool>,
    pub broken: Cell<Option<Rule>>,
    pub fail_reads: Cell<bool>,
    pub fail_writes: Cell<bool>,
    /// The same for one page, or one device: what the device says.
    pub refuse_reads: Cell<Option<Refuse>>,
    pub refuse_writes: Cell<Option<Refuse>>,
    /// Pages that changed while they were being written out (INV-2).
    pub torn: Cell<u32>,
    /// What the page held that is being written out.
    pub goes_out: Cell<u64>,
    /// The kernel's own top table.
    kernel_root: Cell<Option<FrameNumber>>,
    /// Uses of a kernel address by what a CPU had cached: of one that is unmapped and waits for its flush, and of one
    /// that is mapped to another frame meanwhile (INV-3).
    pub kernel_window: Cell<u32>,
    pub kernel_stale: Cell<u32>,
    /// Uses of a cached translation that the tables no longer allow, and tables freed under a CPU that has them
    /// loaded or has walked them since it flushed.
    pub stale: Cell<u32>,
    pub log: RefCell<Vec<Happened>>,
    /// What happens when a CPU waits for another, once each.
    pub on_pause: RefCell<VecDeque<Hook>>,
    /// What happens just before a CPU loads a space.
    pub on_load: RefCell<VecDeque<Hook>>,
    /// What happens while a page is being written out, or has been read.
    pub on_disk_write: RefCell<VecDeque<Hook>>,
    pub on_disk_read: RefCell<VecDeque<Hook>>,
    /// What happens when a page has left its file's cache, and is perhaps not flushed.
    pub on_forget: RefCell<VecDeque<Hook>>,
    /// What happens when reclaim gives a page a second chance. Must not take a lock of the core.
    pub on_rotated: RefCell<VecDeque<Hook>>,
    /// What happens in the middle of what a CPU does, one after the other.
    at_touch: RefCell<VecDeque<Placed>>,
    placing: Cell<bool>,
    /// Who pauses while hooks are placed, and nobody stands still, may do so: to let others get on.
    pub patient: Cell<bool>,
    touches: Vec<Cell<u32>>,
    /// CPUs that are switched off: interrupts to them are lost.
    pub off: Vec<Cell<bool>>,
    /// What happens at the touch that [`watch`](Self::watch) waits for. May run under a lock of the core.
    pub on_touch: RefCell<VecDeque<Hook>>,
    watched: Cell<(*const u8, u32)>,
    asides: aside::Asides,
    /// What happens when a CPU turns interrupts on.
    pub on_irqs_on: RefCell<VecDeque<Hook>>,
    /// What happens while somebody sleeps.
    pub on_wait: RefCell<VecDeque<Box<dyn FnOnce()>>>,
    /// Who would sleep for a page goes on with this rule broken, once: on one stack nobody can sleep above the one
    /// that he waits for.
    pub instead_of_page_wait: Cell<Option<Rule>>,
}

impl Drop for Host {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and no manager outlives the host that it borrows.
        unsafe { dealloc(self.memory, self.layout) }
    }
}

impl Host {
    pub fn new(setup: Setup) -> Host {
        // One frame more, to align it ourselves: a block of ordinary alignment is mapped lazily by the host.
        let layout = Layout::from_size_align((setup.frames as usize + 1) * 4096, 8).unwrap();
        // SAFETY: the size is not zero.
        let memory = unsafe { alloc_zeroed(layout) };
        assert!(!memory.is_null());
        let cpus = setup.cpus.min(4096) as usize;
        Host {
            memory,
            layout,
            current: Cell::new(0),
            irqs: vec![Cell::new(true); cpus],
            pending: vec![Cell::new(false); cpus],
            tlbs: (0..cpus).map(|_| RefCell::default()).collect(),
            manager: Cell::new(std::ptr::null()),
            idle_pauses: Cell::new(0),
            woken: RefCell::default(),
            disk: RefCell::default(),
            hold_interrupts: Cell::new(false),
            broken: Cell::new(None),
            fail_reads: Cell::new(false),
            fail_writes: Cell::new(false),
            refuse_reads: Cell::new(None),
            refuse_writes: Cell::new(None),
            torn: Cell::new(0),
            goes_out: Cell::new(0),
            kernel_root: Cell::new(None),
            kernel_window: Cell::new(0),
            kernel_stale: Cell::new(0),
            stale: Cell::new(0),
            log: RefCell::default(),
            on_pause: RefCell::default(),
            on_load: RefCell::default(),
            on_disk_write: RefCell::default(),
            on_disk_read: RefCell::default(),
            on_forget: RefCell::default(),
            on_rotated: RefCell::default(),
            on_touch: RefCell::default(),
            watched: Cell::new((std::ptr::null(), 0)),
            asides: aside::Asides::default(),
            on_irqs_on: RefCell::default(),
            on_wait: RefCell::default(),
            at_touch: RefCell::default(),
            placing: Cell::new(false),
            patient: Cell::new(false),
            touches: vec![Cell::new(0); cpus],
            off: vec![Cell::new(false); cpus],
            instead_of_page_wait: Cell::new(None),
            setup,
        }
    }

    pub fn regions(&self) -> Vec<Region> {
        let (start, frames) = (FrameNumber(self.setup.base), self.setup.frames);
        self.setup.regions.clone().unwrap_or_else(|| vec![Region { start, frames, node: NodeId(0) }])
    }

    /// Makes a manager, gives it to `work`, and checks that everything adds up afterwards.
    pub fn run<R>(&self, config: Config, work: impl FnOnce(&Mm<'_>) -> R) -> R {
        let mm = Manager::new(self, &self.regions(), config).unwrap();
        self.manager.set((&raw const mm).cast());
        let result = work(&mm);
        self.manager.set(std::ptr::null());
        self.current.set(0);
        if self.broken.get().is_none() {
            assert_eq!(mm.validate().broken, None);
        }
        result
    }

    fn manager(&self) -> &Mm<'_> {
        // SAFETY: set by `run` for as long as the manager is borrowed there, and only used meanwhile.
        unsafe { self.manager.get().cast::<Mm<'_>>().as_ref() }.expect("inside `run`")
    }

    /// Does something as this CPU.
    pub fn on<R>(&self, cpu: u16, work: impl FnOnce() -> R) -> R {
        let before = self.current.replace(cpu);
        let result = work();
        self.current.set(before);
        result
    }

    fn deliver(&self, cpu: u16) {
        self.pending[cpu as usize].set(false);
        self.irqs[cpu as usize].set(false);
        self.on(cpu, || self.manager().on_interrupt());
        self.irqs[cpu as usize].set(true);
    }

    /// Lets every interrupt that is on its way arrive where interrupts are on; says whether one did.
    pub fn deliver_all(&self) -> bool {
        let ready = |&cpu: &usize| self.pending[cpu].get() && self.irqs[cpu].get();
        let mut some = false;
        while let Some(cpu) = (0..self.pending.len()).find(ready) {
            self.deliver(cpu as u16);
            some = true;
        }
        some
    }

    fn next(&self, hooks: &RefCell<VecDeque<Hook>>) -> bool {
        let hook = hooks.borrow_mut().pop_front();
        let Some(hook) = hook else { return false };
        hook(self.manager());
        true
    }

    /// At the `n`th touch of shared memory by `cpu` from now on, or from the last such hook on, `hook` happens.
    pub fn at_touch(&self, cpu: u16, n: u32, hook: impl FnOnce(&Mm<'_>) + 'static) {
        self.at_touch.borrow_mut().push_back(Placed { cpu, left: n, hook: Box::new(hook) });
    }

    /// From here on hooks are placed: who would wait for ever for one that stands still ends the case instead.
    pub fn place(&self) {
        self.placing.set(true);
    }

    /// How often a CPU has touched shared memory.
    pub fn touches_of(&self, cpu: u16) -> u32 {
        self.touches[cpu as usize].get()
    }

    /// The end of what hooks are placed in; says whether all of them came.
    pub fn all_placed(&self) -> bool {
        self.placing.set(false);
        self.at_touch.borrow().is_empty()
    }

    fn note(&self, what: Happened) {
        self.log.borrow_mut().push(what);
    }

    pub fn forget(&self) {
        self.log.borrow_mut().clear();
    }

    pub fn count(&self, which: impl Fn(&Happened) -> bool) -> usize {
        self.log.borrow().iter().filter(|what| which(what)).count()
    }

    /// Interrupts sent to this CPU since [`forget`](Self::forget).
    pub fn interrupts_to(&self, cpu: u16) -> usize {
        self.count(|what| *what == Happened::Interrupt(cpu))
    }

    pub fn interrupts(&self) -> usize {
        self.count(|what| matches!(what, Happened::Interrupt(_)))
    }

    /// Full flushes and single flushes of a CPU.
    pub fn flushes(&self, cpu: u16) -> (usize, usize) {
        let single = |what: &Happened| matches!(what, Happened::FlushPage(c, _) if *c == cpu);
        (self.count(|what| *what == Happened::FlushSpace(cpu)), self.count(single))
    }

    pub fn on_disk(&self, file: u32, block: u64) -> Option<u64> {
        self.kept(Store::File(file), block)
    }

    /// What a store keeps of a page.
    pub fn kept(&self, store: Store, block: u64) -> Option<u64> {
        self.disk.borrow().get(&(store, block)).copied()
    }

    fn word(&self, frame: FrameNumber, index: usize) -> &AtomicU64 {
        let at = self.direct(PhysAddr(frame.phys().0 + 8 * index as u64));
        // SAFETY: inside the memory (`direct` checks), aligned, and only used as an atomic.
        unsafe { &*at.cast() }
    }

    /// The entry for a page, small or large, as the hardware finds it, and the tables on the way.
    fn walk(&self, root: FrameNumber, page: u64) -> (Option<&AtomicU64>, Vec<FrameNumber>) {
        let mut way = vec![root];
        for level in (1..4).rev() {
            let word = self.word(way[way.len() - 1], PageNumber(page).index(level));
            let entry = Entry(word.load(Ordering::SeqCst));
            if !entry.is_present() {
                return (None, way);
            }
            if level == 1 && entry.has(Entry::LARGE) {
                return (Some(word), way);
            }
            way.push(entry.frame());
        }
        (Some(self.word(way[3], PageNumber(page).index(0))), way)
    }

    /// Translates as the hardware does: `None` is a page fault.
    fn translate(&self, page: u64, write: bool) -> Option<FrameNumber> {
        let mut tlb = self.tlbs[self.current.get() as usize].borrow_mut();
        let (root, tag) = (tlb.root?, tlb.tag);
        let (found, way) = self.walk(root, page);
        let now = found.map_or(Entry::NONE, |word| Entry(word.load(Ordering::SeqCst)));
        let access = if write { UserAccess::Write } else { UserAccess::Read };
        for key in places(tag, page) {
            let Some(entry) = tlb.cached.get(&key).copied().filter(|entry| entry.permits(access)) else {
                continue;
            };
            let clean = write && !entry.has(Entry::DIRTY);
            // A write through a clean entry walks again: that is the guarantee, where it is declared.
            if clean && self.setup.guarantees {
                continue;
            }
            // No longer there, somewhere else, or no longer permitted.
            if !now.permits(access) || frame_for(now, page) != frame_for(entry, page) {
                self.stale.set(self.stale.get() + 1);
                return Some(frame_for(entry, page));
            }
            if !clean {
                return Some(frame_for(entry, page));
            }
        }
        for key in places(tag, page) {
            tlb.cached.remove(&key);
        }
        tlb.walked.extend(way.into_iter().map(|table| (tag, table)));
        if !now.permits(access) {
            return None;
        }
        let bits = Entry::ACCESSED | if write { Entry::DIRTY } else { 0 };
        let entry = Entry(found?.fetch_or(bits, Ordering::SeqCst) | bits);
        tlb.cached.insert(places(tag, page)[usize::from(entry.has(Entry::LARGE))], entry);
        Some(frame_for(entry, page))
    }

    /// Translates a kernel address as the hardware does, whatever space is loaded.
    fn translate_kernel(&self, page: u64, write: bool) -> Option<FrameNumber> {
        let mut tlb = self.tlbs[self.current.get() as usize].borrow_mut();
        let root = tlb.root.or(self.kernel_root.get())?;
        let (found, _) = self.walk(root, page);
        let now = found.map_or(Entry::NONE, |word| Entry(word.load(Ordering::SeqCst)));
        let permits = |entry: Entry| entry.is_present() && (!write || entry.has(Entry::WRITABLE));
        if let Some(cached) = tlb.kernel.get(&page).copied().filter(|&entry| permits(entry)) {
            if !now.is_present() {
                self.kernel_window.set(self.kernel_window.get() + 1);
            } else if now.frame() != cached.frame() {
                self.kernel_stale.set(self.kernel_stale.get() + 1);
            }
            return Some(cached.frame());
        }
        assert!(now == Entry::NONE || now.is_taken() || now.has(Entry::GLOBAL | Entry::ACCESSED), "{now:?}");
        permits(now).then(|| {
            tlb.kernel.insert(page, now);
            now.frame()
        })
    }

    /// What this CPU reads at the start of a kernel page; `None` is a fault.
    pub fn read_kernel(&self, page: PageNumber) -> Option<u64> {
        let frame = self.translate_kernel(page.0, false)?;
        Some(self.word(frame, 0).load(Ordering::SeqCst))
    }

    /// Writes there; says whether it could.
    pub fn write_kernel(&self, page: PageNumber, value: u64) -> bool {
        let Some(frame) = self.translate_kernel(page.0, true) else { return false };
        self.word(frame, 0).store(value, Ordering::SeqCst);
        true
    }

    /// Whether the entry of a kernel page lets code run there.
    pub fn may_execute(&self, page: PageNumber) -> bool {
        let root = self.kernel_root.get().expect("a kernel root");
        let (found, _) = self.walk(root, page.0);
        found.is_some_and(|word| {
            let entry = Entry(word.load(Ordering::SeqCst));
            entry.is_present() && !entry.has(Entry::NO_EXECUTE)
        })
    }

    /// Whether this CPU still has a translation of the kernel page.
    pub fn caches_kernel(&self, cpu: u16, page: PageNumber) -> bool {
        self.tlbs[cpu as usize].borrow().kernel.contains_key(&page.0)
    }

    /// Full and single flushes of kernel addresses on a CPU.
    pub fn kernel_flushes(&self, cpu: u16) -> (usize, usize) {
        let single = |what: &Happened| matches!(what, Happened::FlushKernelPage(c, _) if *c == cpu);
        (self.count(|what| *what == Happened::FlushKernel(cpu)), self.count(single))
    }

    /// What this CPU reads, if it reads on without a page fault.
    pub fn try_read(&self, page: u64) -> Option<u64> {
        let frame = self.translate(page, false)?;
        Some(self.word(frame, 0).load(Ordering::SeqCst))
    }

    /// Writes, if that needs no page fault; says whether it did. The program stands at the access otherwise.
    pub fn try_write(&self, page: u64, value: u64) -> bool {
        let Some(frame) = self.translate(page, true) else { return false };
        self.word(frame, 0).store(value, Ordering::SeqCst);
        true
    }

    /// Runs `hook` just before the core's `nth` access from now on to the entry of a page of this CPU's space.
    pub fn watch(&self, page: u64, nth: u32, hook: Hook) {
        let root = self.tlbs[self.current.get() as usize].borrow().root.expect("it runs in a space");
        let word: *const AtomicU64 = self.walk(root, page).0.expect("the page has a table");
        self.watched.set((word.cast(), nth));
        self.on_touch.borrow_mut().push_back(hook);
    }

    pub fn watch_nothing(&self) {
        self.watched.set((std::ptr::null(), 0));
        self.on_touch.borrow_mut().clear();
    }

    fn access(&self, mm: &Mm<'_>, id: SpaceId, page: u64, write: Option<u64>) -> Result<u64, Error> {
        assert_eq!(mm.loaded_space(), Some(id), "this CPU runs elsewhere");
        for _ in 0..3 {
            if let Some(frame) = self.translate(page, write.is_some()) {
                let word = self.word(frame, 0);
                if let Some(value) = write {
                    word.store(value, Ordering::SeqCst);
                }
                return Ok(word.load(Ordering::SeqCst));
            }
            let access = if write.is_some() { UserAccess::Write } else { UserAccess::Read };
            mm.fault(id, PageNumber(page).addr(), access)?;
        }
        panic!("page {page:#x} faults again and again");
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

    /// Whether the accessed bit is set; clears it in the table as a program that stops using the page would not.
    pub fn accessed(&self, mm: &Mm<'_>, id: SpaceId, page: u64) -> bool {
        mm.lookup(id, PageNumber(page)).unwrap().has(Entry::ACCESSED)
    }
}

// SAFETY: `direct` checks that it stays inside the one block of memory, there is one thread, so the current CPU
// is true and stable, the flushes take the entries out of the map, and the copies are of one frame.
unsafe impl Platform for Host {
    fn this_cpu(&self) -> CpuId {
        CpuId(self.current.get())
    }
    fn possible_cpus(&self) -> u32 {
        self.setup.cpus
    }
    fn is_online(&self, cpu: CpuId) -> bool {
        u32::from(cpu.0) < self.setup.cpus
    }
    fn node_of(&self, cpu: CpuId) -> NodeId {
        NodeId(cpu.0 % self.setup.nodes)
    }
    fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        if from == to { 10 } else { 20 }
    }
    fn flush_page(&self, page: VirtAddr) {
        let cpu = self.current.get();
        self.note(Happened::FlushPage(cpu, page.page().0));
        let mut tlb = self.tlbs[cpu as usize].borrow_mut();
        let tag = tlb.tag;
        for key in places(tag, page.page().0) {
            tlb.cached.remove(&key);
        }
        tlb.forget_tables();
    }
    fn flush_space(&self) {
        let cpu = self.current.get();
        self.note(Happened::FlushSpace(cpu));
        self.tlbs[cpu as usize].borrow_mut().flush();
    }
    fn flush_kernel_page(&self, page: VirtAddr) {
        let cpu = self.current.get();
        self.note(Happened::FlushKernelPage(cpu, page.page().0));
        self.tlbs[cpu as usize].borrow_mut().kernel.remove(&page.page().0);
    }
    fn flush_kernel(&self) {
        let cpu = self.current.get();
        self.note(Happened::FlushKernel(cpu));
        let mut tlb = self.tlbs[cpu as usize].borrow_mut();
        tlb.kernel.clear();
        tlb.cached.clear();
        tlb.walked.clear();
    }
    fn prepare_root(&self, root: FrameNumber) {
        if self.kernel_root.get().is_none() {
            self.kernel_root.set(Some(root));
        }
    }
    fn load_space(&self, root: FrameNumber, tag: u16, keep: bool) {
        self.next(&self.on_load);
        let mut tlb = self.tlbs[self.current.get() as usize].borrow_mut();
        (tlb.root, tlb.tag) = (Some(root), tag);
        if !keep {
            tlb.flush();
        }
    }
    fn tags(&self) -> u16 {
        self.setup.tags
    }
    fn interrupt(&self, targets: &CpuSet) {
        assert!(!self.irqs[self.current.get() as usize].get(), "interrupts must be off");
        for target in targets.iter() {
            assert_ne!(target.0, self.current.get(), "a CPU does not interrupt itself");
            self.note(Happened::Interrupt(target.0));
            self.pending[target.index()].set(!self.off[target.index()].get());
        }
        if !self.hold_interrupts.get() {
            self.deliver_all();
        }
    }
    fn irqs_off(&self) -> bool {
        self.irqs[self.current.get() as usize].replace(false)
    }
    fn irqs_on(&self) {
        let cpu = self.current.get();
        self.irqs[cpu as usize].set(true);
        if self.pending[cpu as usize].get() && !self.hold_interrupts.get() {
            self.deliver(cpu);
        }
        if !self.on_irqs_on.borrow().is_empty() {
            self.irqs[cpu as usize].set(false);
            self.next(&self.on_irqs_on);
            self.irqs[cpu as usize].set(true);
        }
    }
    fn direct(&self, at: PhysAddr) -> *mut u8 {
        let offset = at.0.checked_sub(u64::from(self.setup.base) * PAGE_SIZE).expect("below the memory");
        assert!(offset < u64::from(self.setup.frames) * PAGE_SIZE, "beyond the memory");
        let aligned = self.memory.addr().next_multiple_of(PAGE_SIZE as usize) - self.memory.addr();
        // SAFETY: inside the block, as was just checked; it has room for the alignment.
        unsafe { self.memory.add(aligned + offset as usize) }
    }
    fn clear_frame(&self, frame: FrameNumber) {
        // SAFETY: `direct` checks the frame's first byte, and frames do not straddle the end.
        unsafe { self.direct(frame.phys()).write_bytes(0, PAGE_SIZE as usize) }
    }
    fn copy_frame(&self, from: FrameNumber, to: FrameNumber) {
        // SAFETY: as above, for both.
        unsafe { self.direct(from.phys()).copy_to(self.direct(to.phys()), PAGE_SIZE as usize) }
    }
    fn now(&self) -> Nanos {
        Nanos(0)
    }
    fn pause(&self, _ns: u32) {
        if !self.next(&self.on_pause) && !self.deliver_all() {
            if self.placing.get() && self.is_aside() {
                // Perhaps it is the other that stands still in the middle of something.
                self.stop();
            } else if self.placing.get() && !self.resume_any() && !self.patient.get() {
                resume_unwind(Box::new(StandsStill));
            }
            self.idle_pauses.set(self.idle_pauses.get() + 1);
            assert!(self.idle_pauses.get() < 1_000_000, "somebody waits for ever");
        }
    }
    fn wait(&self, key: WaitKey, ready: &mut dyn FnMut() -> bool) {
        // Asleep: only `wake` ends it.
        let mut woken = true;
        while !ready() {
            if matches!(key, WaitKey::Page(_))
                && let Some(rule) = self.instead_of_page_wait.take()
            {
                return self.broken.set(Some(rule));
            }
            assert!(woken || self.placing.get(), "{key:?}: somebody else was woken");
            let before = self.woken.borrow().len();
            let other = self.on_wait.borrow_mut().pop_front();
            match other {
                Some(other) => other(),
                None if self.is_aside() => self.stop(),
                None if self.placing.get() && self.resume_any() => {}
                None => panic!("sleeps, and nobody else is there"),
            }
            self.idle_pauses.set(self.idle_pauses.get() + 1);
            assert!(self.idle_pauses.get() < 1_000_000, "somebody sleeps for ever");
            woken = self.woken.borrow()[before..].contains(&key);
        }
        let said = format!("{key:?} became ready and nobody woke the sleeper");
        match self.broken.get() {
            None => assert!(woken, "{said}"),
            // Seen; there is no need to say so.
            Some(_) if !woken => resume_unwind(Box::new(said)),
            Some(_) => {}
        }
    }
    fn wake(&self, key: WaitKey) {
        self.woken.borrow_mut().push(key);
    }
    fn device(&self) -> Option<&dyn BlockDevice> {
        self.setup.disk.then_some(self as &dyn BlockDevice)
    }
    fn guarantees(&self) -> Guarantees {
        if !self.setup.guarantees {
            return Guarantees::none();
        }
        // SAFETY: `translate` does so.
        unsafe { Guarantees::none().with_clean_write_walks().with_unflushed_accessed() }
    }
    fn touch(&self, at: *const u8, _access: Access) {
        let touches = &self.touches[self.current.get() as usize];
        touches.set(touches.get() + 1);
        let (watched, left) = self.watched.get();
        if at == watched && left > 0 {
            self.watched.set((watched, left - 1));
            if left == 1 {
                self.next(&self.on_touch);
            }
        }
        let due = |placed: &mut Placed| {
            let mine = self.placing.get() && placed.cpu == self.current.get();
            let due = mine && placed.left == 0;
            placed.left -= u32::from(mine && !due);
            due
        };
        let now = self.at_touch.borrow_mut().front_mut().is_some_and(due);
        if now {
            let placed = self.at_touch.borrow_mut().pop_front();
            (placed.expect("it is due").hook)(self.manager());
        }
    }
    fn broken(&self, rule: Rule) -> bool {
        self.broken.get() == Some(rule)
    }
    fn observe(&self, event: &Event) {
        self.note(Happened::Event(*event));
        match *event {
            Event::Rotated => _ = self.next(&self.on_rotated),
            // INV-9: a CPU could still walk these tables.
            Event::Freed { frame, order: 0 } => {
                let may_walk = |tlb: &Tlb| tlb.root == Some(frame) || tlb.walked.contains(&(tlb.tag, frame));
                let walked = self.tlbs.iter().filter(|tlb| may_walk(&tlb.borrow())).count();
                self.stale.set(self.stale.get() + walked as u32);
            }
            _ => {}
        }
    }
}

impl BlockDevice for Host {
    fn read(&self, from: Store, block: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        if self.fail_reads.get() {
            return Err(DeviceError::Failed);
        }
        if let Some(error) = self.refuse_reads.get().and_then(|refuse| refuse(from, block)) {
            return Err(error);
        }
        self.clear_frame(frame);
        self.word(frame, 0).store(self.kept(from, block).unwrap_or(0), Ordering::SeqCst);
        self.next(&self.on_disk_read);
        Ok(())
    }
    fn forget(&self, _store: Store, _block: u64) {
        self.next(&self.on_forget);
    }
    fn write(&self, to: Store, block: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        self.note(Happened::DiskWrite(to, block));
        let content = self.word(frame, 0).load(Ordering::SeqCst);
        self.goes_out.set(content);
        self.next(&self.on_disk_write);
        let changed = self.word(frame, 0).load(Ordering::SeqCst) != content;
        self.torn.set(self.torn.get() + u32::from(changed));
        if self.fail_writes.get() {
            return Err(DeviceError::Failed);
        }
        if let Some(error) = self.refuse_writes.get().and_then(|refuse| refuse(to, block)) {
            return Err(error);
        }
        self.disk.borrow_mut().insert((to, block), content);
        Ok(())
    }
}

/// Plays `case` again and again on a new machine, with whatever it places at touch `n` for `n` from 0 on, until what it
/// does has no such touch. Gives the results, and how many cases could not be played ([`StandsStill`]).
pub fn everywhere<R>(setup: &Setup, broken: Option<Rule>, case: impl Fn(&Mm<'_>, u32) -> R) -> (Vec<R>, u32) {
    everywhere_as(setup, &bare("vanilla"), broken, case)
}

/// The same with this configuration.
pub fn everywhere_as<R>(
    setup: &Setup,
    config: &Config,
    broken: Option<Rule>,
    case: impl Fn(&Mm<'_>, u32) -> R,
) -> (Vec<R>, u32) {
    let (mut results, mut skipped) = (Vec::new(), 0);
    for n in 0.. {
        let host = Host::new(setup.clone());
        host.broken.set(broken);
        host.placing.set(true);
        let played = catch_unwind(AssertUnwindSafe(|| host.run(*config, |mm| case(mm, n))));
        match played {
            Ok(_) if !host.at_touch.borrow().is_empty() => break,
            Ok(result) => results.push(result),
            Err(payload) if payload.is::<StandsStill>() => skipped += 1,
            Err(payload) => resume_unwind(payload),
        }
    }
    (results, skipped)
}

pub fn config(policy: &str) -> Config {
    Config::new(Policy::parse(policy).unwrap())
}

/// No watermarks and no frames at hand: every frame can be had, and counts are exact.
pub fn bare(policy: &str) -> Config {
    Config { page_lists: Some(NONE_AT_HAND), min_free: Some(0), ..config(policy) }
}

/// CPUs keep no frames at hand.
pub const NONE_AT_HAND: ListLimits = ListLimits { batch: 1, high: 0 };

/// CPUs take frames in such batches, and keep four at hand.
pub fn at_hand(batch: u32) -> Option<ListLimits> {
    Some(ListLimits { batch, high: 4 * batch })
}

pub fn pages(start: u64, pages: u64) -> PageRange {
    PageRange::new(PageNumber(start), pages)
}

pub fn counted(mm: &Mm<'_>, counter: Counter) -> u64 {
    mm.counter(counter)
}

/// The audit, after whatever was on its way is where it belongs, on every CPU.
pub fn settled(mm: &Mm<'_>) -> Audit {
    let p = mm.platform();
    for cpu in 0..p.possible_cpus() as u16 {
        p.on(cpu, || {
            mm.drain_lru_batch();
            mm.drain_page_list();
        });
    }
    mm.validate()
}

/// Takes single frames until there are no more, reclaiming as much as can be.
pub fn exhaust(mm: &Mm<'_>) -> Vec<quietmm::Frames> {
    std::iter::from_fn(|| mm.alloc_frames(0, quietmm::AllocFrom::HERE).ok()).collect()
}

pub fn give_back(mm: &Mm<'_>, frames: Vec<quietmm::Frames>) {
    frames.into_iter().for_each(|block| mm.free_frames(block));
}
