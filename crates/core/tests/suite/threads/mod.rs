//! A machine whose CPUs are threads of the host: what the test orders in one thread happens here as it comes.
//! Interrupts arrive where a CPU has them on and touches shared memory, pauses, or turns them on. Each CPU has a TLB of
//! one page, which is enough to see what is stale.

#![allow(dead_code, reason = "each test file uses its part")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use quietmm::addr::{Nanos, PAGE_SIZE, PhysAddr};
use quietmm::platform::{
    Access, BlockDevice, Cpus, DeviceError, Guarantees, Hooks, KernelTlb, Memory, Services, Store, UserTlb,
};
use quietmm::{
    Config, CpuId, CpuSet, Entry, FileId, FrameNumber, ListLimits, Manager, NodeId, PageNumber, Platform,
    Policy, Region, Rule, UserAccess, VirtAddr,
};

pub type Mm<'p> = Manager<'p, Threads>;

pub const FRAMES: u32 = 4096;
/// How many times all CPUs must have looked before one that waits says that it is for ever. Time says nothing: a thread
/// that the host does not run looks at nothing, and so nobody loses patience with it.
const PATIENCE: u32 = 1000;
/// After so many looks whoever waits sleeps.
const SPINS: u32 = 8;
/// For so long, and for as long as the host takes to wake it.
const NAP: Duration = Duration::from_micros(1);

thread_local! {
    static CPU: Cell<u16> = const { Cell::new(0) };
    static IRQS: Cell<bool> = const { Cell::new(true) };
    /// The tables that this CPU walks.
    static ROOT: Cell<Option<FrameNumber>> = const { Cell::new(None) };
    /// How often this CPU has seen all others look since it got on, and how far each was at the last time.
    static WAITED: Cell<u32> = const { Cell::new(0) };
    /// What this CPU's TLB holds of kernel addresses: the frame of a page.
    static KERNEL: RefCell<BTreeMap<u64, FrameNumber>> = const { RefCell::new(BTreeMap::new()) };
    /// How often this CPU has paused.
    static PAUSED: Cell<u32> = const { Cell::new(0) };
    static SINCE: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// What a CPU ends with (by unwinding) that waits for ever, or when another does.
pub struct Hung;

#[derive(Default)]
struct Line {
    /// An interrupt is on its way.
    pending: AtomicBool,
    /// What the TLB holds: a generation of the test's own, or 0.
    cached: AtomicU64,
    /// How often the CPU has paused or got on.
    steps: AtomicU32,
    /// Its work has ended: nobody waits for it to look.
    ended: AtomicBool,
}

pub struct Threads {
    memory: *mut u8,
    cpus: Vec<Line>,
    broken: Option<Rule>,
    hung: AtomicBool,
    /// What the devices keep: the first word of each page.
    disk: Mutex<BTreeMap<(Store, u64), u64>>,
    /// Every so many transfers one fails; 0 for none.
    pub fail_one_in: AtomicU32,
    /// How often others go on while one waits, before it waits for ever: more where one step is long.
    pub patience: AtomicU32,
    transfers: AtomicU32,
    /// Interrupts that were sent.
    pub sent: AtomicU32,
    manager: Cell<*const Mm<'static>>,
}

// SAFETY: `memory` is shared as the core shares it, by atomics and under its locks; `manager` is written before the
// threads begin and after they have ended.
unsafe impl Sync for Threads {}

fn layout() -> Layout {
    Layout::from_size_align((FRAMES as u64 * PAGE_SIZE) as usize, PAGE_SIZE as usize).unwrap()
}

impl Drop for Threads {
    fn drop(&mut self) {
        // SAFETY: allocated by `run` with this layout.
        unsafe { dealloc(self.memory, layout()) }
    }
}

impl Threads {
    /// Runs each of `cpus` as a thread, its number in hand, after `first` on CPU 0 alone. Says whether all came to an
    /// end.
    pub fn run<S: Sync>(
        cpus: u16,
        broken: Option<Rule>,
        first: impl FnOnce(&Mm<'_>) -> S,
        each: impl Fn(&Mm<'_>, &S, u16) + Sync,
    ) -> bool {
        let config = Config {
            page_lists: Some(ListLimits { batch: 1, high: 0 }),
            min_free: Some(0),
            ..Config::new(Policy::parse("vanilla").unwrap())
        };
        Self::run_as(config, cpus, broken, first, each, |_| {})
    }

    /// The same with this configuration, and `last` on CPU 0 alone when all have come to an end.
    pub fn run_as<S: Sync>(
        config: Config,
        cpus: u16,
        broken: Option<Rule>,
        first: impl FnOnce(&Mm<'_>) -> S,
        each: impl Fn(&Mm<'_>, &S, u16) + Sync,
        last: impl FnOnce(&Mm<'_>),
    ) -> bool {
        // SAFETY: the size is not zero.
        let memory = unsafe { alloc_zeroed(layout()) };
        assert!(!memory.is_null());
        let machine = Threads {
            memory,
            cpus: (0..cpus).map(|_| Line::default()).collect(),
            broken,
            hung: AtomicBool::new(false),
            disk: Mutex::default(),
            fail_one_in: AtomicU32::new(0),
            patience: AtomicU32::new(PATIENCE),
            transfers: AtomicU32::new(0),
            sent: AtomicU32::new(0),
            manager: Cell::new(std::ptr::null()),
        };
        let region = Region { start: FrameNumber(0), frames: FRAMES, node: NodeId(0) };
        // SAFETY: the memory is the machine's own, and this is its one manager.
        let mm = unsafe { Manager::new(&machine, &[region], config) }.unwrap();
        machine.manager.set((&raw const mm).cast());
        machine.got_on();
        let shared = first(&mm);
        let (all, shared, each) = (Shared(&mm), &shared, &each);
        std::thread::scope(|scope| {
            for cpu in 0..cpus {
                let mm = &all;
                scope.spawn(move || {
                    CPU.set(cpu);
                    let machine = mm.0.platform();
                    machine.got_on();
                    let work = std::panic::AssertUnwindSafe(|| each(mm.0, shared, cpu));
                    let ended = std::panic::catch_unwind(work);
                    machine.line().ended.store(true, Ordering::SeqCst);
                    if let Err(payload) = ended
                        && !payload.is::<Hung>()
                    {
                        std::panic::resume_unwind(payload);
                    }
                });
            }
        });
        let fine = !machine.hung.load(Ordering::SeqCst);
        if fine {
            last(all.0);
        }
        machine.manager.set(std::ptr::null());
        fine
    }

    fn word(&self, frame: FrameNumber, index: usize) -> &AtomicU64 {
        // SAFETY: inside the block (`direct` checks), aligned, and only used as an atomic.
        unsafe { &*self.direct(PhysAddr(frame.phys().0 + 8 * index as u64)).cast() }
    }

    /// A program's access to the start of a page, as hardware whose TLB forgets at once would do it: the walk, the marks in
    /// the entry and the access are one step to interrupts, so who has flushed this CPU finds it done. `None` is a fault.
    pub fn access(&self, page: PageNumber, write: Option<u64>) -> Option<u64> {
        let were_on = self.irqs_off();
        let done = self.translate(page, write.is_some()).map(|frame| {
            let word = self.word(frame, 0);
            if let Some(value) = write {
                word.store(value, Ordering::SeqCst);
            }
            word.load(Ordering::SeqCst)
        });
        if were_on {
            self.irqs_on();
        }
        done
    }

    fn translate(&self, page: PageNumber, write: bool) -> Option<FrameNumber> {
        let mut table = ROOT.get()?;
        for level in (1..4).rev() {
            let entry = Entry(self.word(table, page.index(level)).load(Ordering::SeqCst));
            if !entry.is_present() {
                return None;
            }
            if level == 1 && entry.has(Entry::LARGE) {
                let large = self.mark_used((table, page.index(1)), write, Entry::LARGE)?;
                return Some(large.frame().add(page.index(0) as u32));
            }
            table = entry.frame();
        }
        self.mark_used((table, page.index(0)), write, 0).map(Entry::frame)
    }

    /// What an entry says that permits an access, and is of this kind, in the step in which it is marked as used.
    fn mark_used(&self, (table, index): (FrameNumber, usize), write: bool, kind: u64) -> Option<Entry> {
        let (access, marks) = match write {
            true => (UserAccess::Write, Entry::ACCESSED | Entry::DIRTY),
            false => (UserAccess::Read, Entry::ACCESSED),
        };
        let fits = |entry: Entry| entry.permits(access) && entry.has(kind);
        let mark = |entry| fits(Entry(entry)).then_some(entry | marks);
        let entry = self.word(table, index).fetch_update(Ordering::SeqCst, Ordering::SeqCst, mark);
        entry.ok().map(Entry)
    }

    fn transfer(&self) -> Result<(), DeviceError> {
        let every = self.fail_one_in.load(Ordering::SeqCst);
        let number = self.transfers.fetch_add(1, Ordering::SeqCst);
        std::thread::yield_now();
        if every > 0 && number.is_multiple_of(every) { Err(DeviceError::Failed) } else { Ok(()) }
    }

    fn line(&self) -> &Line {
        &self.cpus[CPU.get() as usize]
    }

    /// Takes an interrupt that has arrived, where they are on.
    fn poll(&self) {
        if IRQS.get() && self.line().pending.swap(false, Ordering::SeqCst) {
            IRQS.set(false);
            // SAFETY: set by `run` for as long as any thread runs.
            if let Some(mm) = unsafe { self.manager.get().cast::<Mm<'_>>().as_ref() } {
                mm.on_interrupt();
            }
            IRQS.set(true);
        }
    }

    /// This CPU caches something of its loaded space, as of `version`.
    pub fn cache(&self, version: u64) {
        self.line().cached.store(version, Ordering::SeqCst);
    }

    /// What it has of it.
    pub fn cached(&self) -> u64 {
        self.line().cached.load(Ordering::SeqCst)
    }

    /// The frame that this CPU reaches at a kernel page: by its TLB, else by the tables, and the TLB keeps it.
    pub fn kernel_frame(mm: &Mm<'_>, page: PageNumber) -> Option<FrameNumber> {
        let cached = KERNEL.with_borrow(|tlb| tlb.get(&page.0).copied());
        cached.or_else(|| {
            let frame = mm.vmap().frame_at(page).ok()?;
            KERNEL.with_borrow_mut(|tlb| tlb.insert(page.0, frame));
            Some(frame)
        })
    }

    fn steps(&self) -> impl Iterator<Item = u32> {
        self.cpus.iter().map(|line| line.steps.load(Ordering::SeqCst))
    }

    /// This CPU has got on with its work: it starts waiting anew.
    pub fn got_on(&self) {
        self.line().steps.fetch_add(1, Ordering::SeqCst);
        WAITED.set(0);
        SINCE.with_borrow_mut(|since| {
            since.clear();
            since.extend(self.steps());
        });
    }

    /// Whether every CPU has looked again and again, and this one has still not got on.
    fn is_stuck(&self) -> bool {
        self.line().steps.fetch_add(1, Ordering::SeqCst);
        SINCE.with_borrow_mut(|since| {
            let moved = |(line, &before): (&Line, &u32)| {
                line.ended.load(Ordering::SeqCst) || line.steps.load(Ordering::SeqCst) != before
            };
            if self.cpus.iter().zip(since.iter()).all(moved) {
                WAITED.set(WAITED.get() + 1);
                since.clear();
                since.extend(self.steps());
            }
        });
        WAITED.get() > self.patience.load(Ordering::Relaxed)
    }

    /// Waits for what another CPU does, with or without interrupts.
    pub fn wait_until(&self, mut ready: impl FnMut() -> bool) {
        while !ready() {
            self.pause(1);
        }
    }
}

/// A manager that threads share.
struct Shared<'a, 'p>(&'a Mm<'p>);
// SAFETY: a manager is made to be used by all CPUs at once: what they share is atomic or under its locks, and the rest
// is each CPU's own. It is not `Sync` by itself because it holds what the platform's memory holds.
unsafe impl Sync for Shared<'_, '_> {}

// SAFETY: `direct` is inside the block; each thread is one CPU and only it changes its interrupt flag; a flush empties
// the CPU's one entry; nothing is copied.
unsafe impl Platform for Threads {}

impl Cpus for Threads {
    fn this_cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }
    fn possible_cpus(&self) -> u32 {
        self.cpus.len() as u32
    }
    fn is_online(&self, _cpu: CpuId) -> bool {
        true
    }
    fn node_of(&self, _cpu: CpuId) -> NodeId {
        NodeId(0)
    }
    fn distance(&self, _from: NodeId, _to: NodeId) -> u32 {
        10
    }
    fn irqs_off(&self) -> bool {
        IRQS.replace(false)
    }
    fn irqs_on(&self) {
        IRQS.set(true);
        self.poll();
    }
    fn now(&self) -> Nanos {
        Nanos(0)
    }
    fn pause(&self, _ns: u32) {
        self.poll();
        if self.is_stuck() {
            self.hung.store(true, Ordering::SeqCst);
        }
        if self.hung.load(Ordering::SeqCst) && !std::thread::panicking() {
            std::panic::resume_unwind(Box::new(Hung));
        }
        // Whoever is waited for may not be running: while this one sleeps the host runs it, while it only yields perhaps not.
        match PAUSED.replace(PAUSED.get().wrapping_add(1)) % SPINS {
            0 => std::thread::sleep(NAP),
            _ => std::hint::spin_loop(),
        }
    }
    fn interrupt(&self, targets: &CpuSet) {
        for target in targets.iter() {
            self.sent.fetch_add(1, Ordering::Relaxed);
            self.cpus[target.index()].pending.store(true, Ordering::SeqCst);
        }
    }
}

impl Memory for Threads {
    fn direct(&self, at: PhysAddr) -> *mut u8 {
        assert!(at.0 < u64::from(FRAMES) * PAGE_SIZE);
        // SAFETY: inside the block, as was just checked.
        unsafe { self.memory.add(at.0 as usize) }
    }
    fn clear_frame(&self, frame: FrameNumber) {
        // SAFETY: a frame of the block.
        unsafe { self.direct(frame.phys()).write_bytes(0, PAGE_SIZE as usize) }
    }
    fn copy_frame(&self, from: FrameNumber, to: FrameNumber) {
        // What programs use of a page is its first word.
        self.word(to, 0).store(self.word(from, 0).load(Ordering::SeqCst), Ordering::SeqCst);
    }
    fn read_frame(&self, from: FrameNumber, at: usize, into: &mut [u8]) {
        if let Some(first) = into.first_chunk_mut().filter(|_| at == 0) {
            *first = self.word(from, 0).load(Ordering::SeqCst).to_ne_bytes();
        }
    }
    fn write_frame(&self, to: FrameNumber, at: usize, from: &[u8]) {
        if let Some(first) = from.first_chunk().filter(|_| at == 0) {
            self.word(to, 0).store(u64::from_ne_bytes(*first), Ordering::SeqCst);
        }
    }
}

impl KernelTlb for Threads {
    fn flush_kernel_page(&self, page: VirtAddr) {
        KERNEL.with_borrow_mut(|tlb| _ = tlb.remove(&page.page().0));
    }
    fn flush_kernel(&self) {
        KERNEL.with_borrow_mut(BTreeMap::clear);
    }
}

impl UserTlb for Threads {
    fn flush_page(&self, _page: VirtAddr) {
        self.cache(0);
    }
    fn flush_space(&self) {
        self.cache(0);
    }
    fn load_space(&self, root: FrameNumber, _tag: u16, _keep: bool) {
        ROOT.set(Some(root));
        self.cache(0);
    }
    fn guarantees(&self) -> Guarantees {
        // SAFETY: nothing is cached: `translate` walks each time.
        unsafe {
            Guarantees::none()
                .with_clean_write_walks()
                .with_unflushed_accessed()
                .with_accessed_before_cached()
        }
    }
}

impl Services for Threads {
    fn device(&self) -> Option<&dyn BlockDevice> {
        Some(self)
    }
}

impl Hooks for Threads {
    fn touch(&self, _at: *const u8, _access: Access) {
        self.poll();
    }
    fn broken(&self, rule: Rule) -> bool {
        self.broken == Some(rule)
    }
}

impl BlockDevice for Threads {
    fn read(&self, from: Store, block: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        self.transfer()?;
        let content = self.disk.lock().unwrap().get(&(from, block)).copied();
        self.word(frame, 0).store(content.unwrap_or(0), Ordering::SeqCst);
        Ok(())
    }
    fn write(&self, to: Store, block: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        let content = self.word(frame, 0).load(Ordering::SeqCst);
        self.transfer()?;
        assert_eq!(self.word(frame, 0).load(Ordering::SeqCst), content, "written to while the device has it");
        self.disk.lock().unwrap().insert((to, block), content);
        Ok(())
    }
    fn discard(&self, file: FileId, blocks: Range<u64>) -> Result<(), DeviceError> {
        let here = |store, block| store == Store::File(file) && blocks.contains(&block);
        self.disk.lock().unwrap().retain(|&(store, block), _| !here(store, block));
        Ok(())
    }
}
