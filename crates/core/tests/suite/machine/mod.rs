//! A machine of a few CPUs on the host, in one thread: the test says which CPU runs, when interrupts arrive,
//! which rule is broken, and what happens while a CPU waits. Each CPU has a TLB that keeps what it may keep.

#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

mod aside;
mod broadcast;
mod device;
pub mod faults;
pub mod flushing;
mod hooks;
pub mod kernel;
mod laws;
mod log;
mod memory;
mod platform;
pub mod race;
pub mod showing;
pub mod stretches;
pub mod swapping;
mod translation;
mod words;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use quietmm::platform::{BlockDevice, Shortage, Shrink, Store, WaitKey};
use quietmm::{Architecture, Config, Error, FileId, FrameNumber, Manager, NodeId, Region, Rule, SpaceId};

pub use aside::Aside;
pub use device::Refuse;
use hooks::{Always, Hook, Placed};
pub use hooks::{StandsStill, everywhere, everywhere_as};
pub use log::Happened;
use log::Log;
use memory::Lent;
use translation::{Begun, Frees, Tlb};
pub use words::{
    NO_PCP, bare, config, counted, exhaust, give_back, keep_batches, kept_free, pages, pcp, settled, ticks,
};

pub type Mm<'p> = Manager<'p, Host>;
/// Whether memory comes.
pub type Victim = Box<dyn FnMut(&Mm<'_>) -> bool>;
/// How many frames come back.
pub type Shrinks = Rc<dyn Fn(&Shrink) -> u32>;

/// What the machine is made of.
#[derive(Clone)]
pub struct Setup {
    pub cpus: u32,
    pub nodes: u16,
    pub architecture: Architecture,
    pub tags: u16,
    /// Whether both guarantees are declared. Where they are not, the hardware lacks the first: a write through a cached
    /// clean entry looks at no table.
    pub guarantees: bool,
    /// Whether the hardware can flush all CPUs.
    pub broadcast: bool,
    pub disk: bool,
    /// Whether only CPU 0 is online when the manager is made.
    pub first_alone: bool,
    /// Whether memory is full of something when it is handed over.
    pub soiled: bool,
    pub base: u32,
    pub frames: u32,
    /// `None`: one region, all of it.
    pub regions: Option<Vec<Region>>,
    /// Those of this memory that come later, if they come.
    pub later: Vec<Region>,
}

/// The environment's variable that has all machines be of another architecture.
pub const ARCHITECTURE: &str = "QUIETMM_TEST_ARCHITECTURE";

/// x86-64, unless the environment says otherwise (`make soak`).
fn architecture() -> Architecture {
    let Ok(name) = std::env::var(ARCHITECTURE) else { return Architecture::X86_64 };
    Architecture::parse(&name).unwrap_or_else(|| panic!("{ARCHITECTURE}: no architecture is called {name:?}"))
}

impl Default for Setup {
    fn default() -> Self {
        // Frame numbers pass 2^16, so that one that is cut is seen.
        let (base, frames) = (0xfc00, 4096);
        let (guarantees, broadcast, disk, first_alone, soiled) = (true, false, true, false, false);
        let (cpus, nodes, architecture, tags, regions, later) = (1, 1, architecture(), 1, None, Vec::new());
        Setup {
            cpus,
            nodes,
            architecture,
            tags,
            guarantees,
            broadcast,
            disk,
            first_alone,
            soiled,
            base,
            frames,
            regions,
            later,
        }
    }
}

pub struct Host {
    memory: Lent,
    setup: Setup,
    current: Cell<u16>,
    irqs: Vec<Cell<bool>>,
    pending: Vec<Cell<bool>>,
    tlbs: Vec<RefCell<Tlb>>,
    frees: RefCell<Frees>,
    /// What each CPU's broadcasts will take away.
    broadcasts: broadcast::Pending,
    /// Writes that CPUs have begun and not ended.
    begun: Vec<Cell<Option<Begun>>>,
    manager: Cell<*const Mm<'static>>,
    idle_pauses: Cell<u32>,
    /// All that was ever woken.
    woken: RefCell<Vec<WaitKey>>,
    /// Of these, so many were looked at.
    looked_at: Cell<usize>,
    disk: RefCell<BTreeMap<(Store, u64), device::Kept>>,
    /// Another device that keeps the pages in its place.
    device: OnceCell<Rc<dyn BlockDevice>>,
    /// Interrupts stay on their way until somebody waits.
    pub hold_interrupts: Cell<bool>,
    pub broken: Cell<Option<Rule>>,
    pub fail_reads: Cell<bool>,
    pub fail_writes: Cell<bool>,
    pub fail_discards: Cell<bool>,
    /// Commands to read that the device got: of a page, or of several at once.
    pub read_commands: Cell<u32>,
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
    /// What the clock shows, in nanoseconds: it stands unless it is set.
    pub clock: Cell<u64>,
    /// Uses of a cached translation that the tables no longer allow, and tables freed under a CPU that has them
    /// loaded or has walked them since it flushed.
    pub stale: Cell<u32>,
    /// Of these, tables that were freed so.
    pub freed_under: Cell<u32>,
    /// Whether the test itself has a CPU use a page while its flush is under way, which it may: counted as above.
    pub uses_windows: Cell<bool>,
    /// Uses of a page that waits for its sweep, and of which the frame is nobody else's (INV-14).
    pub parked_uses: Cell<u32>,
    /// How long each pause was that a CPU has made, in nanoseconds.
    pub pauses: RefCell<Vec<u32>>,
    pub log: Log,
    /// All that happened from the start, added up.
    books: RefCell<laws::Books>,
    /// By frame: whether it is free, or a page of a program or of a file, so that no word of the core's lies in it.
    foreign: Vec<Cell<bool>>,
    /// What happens when a CPU waits for another, once each.
    pub on_pause: RefCell<VecDeque<Hook>>,
    /// The same, for a machine without a manager.
    pub on_idle_pause: RefCell<VecDeque<Box<dyn FnOnce()>>>,
    /// What happens just before a CPU loads a space.
    pub on_load: RefCell<VecDeque<Hook>>,
    /// What happens while a page is being written out, or has been read.
    pub on_disk_write: RefCell<VecDeque<Hook>>,
    pub on_disk_read: RefCell<VecDeque<Hook>>,
    /// What a file system was asked, in order, and what it gave leave for that has not been written out since.
    pub mkwrites: RefCell<Vec<(FileId, u64)>>,
    granted: RefCell<BTreeSet<(FileId, u64)>>,
    pub refuse_mkwrite: Cell<bool>,
    /// A file whose pages only programs write to, through mappings: so many were written out, changed, without leave.
    pub watched_file: Cell<Option<FileId>>,
    pub unasked: Cell<u32>,
    /// What happens while the file system is asked.
    pub on_mkwrite: RefCell<VecDeque<Hook>>,
    /// What happens before the device forgets blocks.
    pub on_discard: RefCell<VecDeque<Hook>>,
    /// What happens when a page has left its cache.
    pub on_forget: RefCell<VecDeque<Hook>>,
    /// What happens when a file or a swap device has ended.
    pub on_end: RefCell<VecDeque<Hook>>,
    /// What happens when reclaim has taken the entry of a page out, and has not flushed it: see
    /// [`when_unmapped`](Self::when_unmapped).
    on_unmapped: RefCell<VecDeque<(SpaceId, u64, Hook)>>,
    /// Who is asked for a victim; by default nobody.
    pub on_out_of_memory: RefCell<Option<Victim>>,
    /// The kernel's own caches, where there are any, and what they were asked for.
    pub shrinker: Cell<bool>,
    pub on_shrink: RefCell<Option<Shrinks>>,
    pub asks: RefCell<Vec<Shrink>>,
    /// What was short each time that somebody was asked.
    pub shortages: RefCell<Vec<Shortage>>,
    /// What happens when the frames of a large page have been taken, and nobody has filled them yet.
    pub on_large_taken: RefCell<VecDeque<Hook>>,
    /// What happens when reclaim gives a page a second chance. Must not take a lock of the core.
    pub on_rotated: RefCell<VecDeque<Hook>>,
    /// What happens in the middle of what a CPU does, one after the other.
    at_touch: RefCell<VecDeque<Placed>>,
    placing: Cell<bool>,
    /// Who pauses while hooks are placed, and nobody stands still, may do so: to let others get on.
    pub patient: Cell<bool>,
    /// Who sleeps on the side goes on when he is woken, and not before.
    pub sound_sleep: Cell<bool>,
    touches: Vec<Cell<u32>>,
    /// CPUs that are switched off: interrupts to them are lost.
    pub off: Vec<Cell<bool>>,
    /// What happens at the touch that [`watch`](Self::watch) waits for. May run under a lock of the core.
    pub on_touch: RefCell<VecDeque<Hook>>,
    watched: Cell<(*const u8, u32)>,
    asides: aside::Asides,
    /// What happens when a CPU turns interrupts on.
    pub on_irqs_on: RefCell<VecDeque<Hook>>,
    /// What happens wherever the core lets other tasks run.
    pub on_cond_resched: RefCell<Option<Always>>,
    happening: Cell<bool>,
    /// How often it has, and by touches: when it last did, and the most in between.
    pub rescheds: Cell<u32>,
    stretch: Cell<(u32, u32)>,
    stretches: stretches::Stretches,
    /// What happens while somebody sleeps.
    pub on_wait: RefCell<VecDeque<Box<dyn FnOnce()>>>,
    /// Who would sleep for a page goes on with this rule broken, once: on one stack nobody can sleep above the one
    /// that he waits for.
    pub instead_of_page_wait: Cell<Option<Rule>>,
}

/// Whether `make soak` runs this: all places and all seeds, where `make test` takes some.
pub fn soaks() -> bool {
    std::env::var_os("QUIETMM_SOAK").is_some()
}

impl Host {
    pub fn new(setup: Setup) -> Host {
        let memory = Lent::new(FrameNumber(setup.base), setup.frames);
        if setup.soiled {
            // SAFETY: all of it.
            unsafe { memory.start().write_bytes(0x5a, memory.bytes() as usize) };
        }
        let cpus = setup.cpus.min(4096) as usize;
        Host {
            memory,
            current: Cell::new(0),
            irqs: vec![Cell::new(true); cpus],
            pending: vec![Cell::new(false); cpus],
            tlbs: (0..cpus).map(|_| RefCell::default()).collect(),
            frees: RefCell::default(),
            broadcasts: RefCell::new(vec![Vec::new(); cpus]),
            begun: vec![Cell::new(None); cpus],
            manager: Cell::new(std::ptr::null()),
            idle_pauses: Cell::new(0),
            woken: RefCell::default(),
            looked_at: Cell::new(0),
            disk: RefCell::default(),
            device: OnceCell::new(),
            hold_interrupts: Cell::new(false),
            broken: Cell::new(None),
            fail_reads: Cell::new(false),
            fail_writes: Cell::new(false),
            fail_discards: Cell::new(false),
            read_commands: Cell::new(0),
            refuse_reads: Cell::new(None),
            refuse_writes: Cell::new(None),
            torn: Cell::new(0),
            goes_out: Cell::new(0),
            kernel_root: Cell::new(None),
            kernel_window: Cell::new(0),
            clock: Cell::new(0),
            kernel_stale: Cell::new(0),
            stale: Cell::new(0),
            freed_under: Cell::new(0),
            uses_windows: Cell::new(false),
            parked_uses: Cell::new(0),
            pauses: RefCell::default(),
            log: RefCell::default(),
            books: RefCell::default(),
            foreign: vec![Cell::new(false); setup.frames as usize],
            on_pause: RefCell::default(),
            on_idle_pause: RefCell::default(),
            on_load: RefCell::default(),
            on_disk_write: RefCell::default(),
            on_disk_read: RefCell::default(),
            mkwrites: RefCell::default(),
            granted: RefCell::default(),
            refuse_mkwrite: Cell::new(false),
            watched_file: Cell::new(None),
            unasked: Cell::new(0),
            on_mkwrite: RefCell::default(),
            on_discard: RefCell::default(),
            on_forget: RefCell::default(),
            on_end: RefCell::default(),
            on_unmapped: RefCell::default(),
            on_out_of_memory: RefCell::default(),
            shrinker: Cell::new(false),
            on_shrink: RefCell::default(),
            asks: RefCell::default(),
            shortages: RefCell::default(),
            on_large_taken: RefCell::default(),
            on_rotated: RefCell::default(),
            on_touch: RefCell::default(),
            watched: Cell::new((std::ptr::null(), 0)),
            asides: aside::Asides::default(),
            on_irqs_on: RefCell::default(),
            on_cond_resched: RefCell::default(),
            happening: Cell::new(false),
            rescheds: Cell::new(0),
            stretch: Cell::new((0, 0)),
            stretches: stretches::Stretches::default(),
            on_wait: RefCell::default(),
            at_touch: RefCell::default(),
            placing: Cell::new(false),
            patient: Cell::new(false),
            sound_sleep: Cell::new(false),
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

    /// Makes a manager of all regions.
    pub fn make(&self, config: Config) -> Result<Mm<'_>, Error> {
        // SAFETY: the memory is this machine's own, which has no other manager at work.
        unsafe { Manager::new(self, &self.regions(), config) }
    }

    /// Makes a manager, gives it to `work`, and checks that everything adds up afterwards.
    pub fn run<R>(&self, config: Config, work: impl FnOnce(&Mm<'_>) -> R) -> R {
        let (mut work, mut result) = (Some(work), None);
        self.run_once(&config, &mut |mm| result = work.take().map(|work| work(mm)));
        result.expect("it was run")
    }

    /// By itself, as whatever is called with a thousand closures: else it is compiled for each of them.
    fn run_once(&self, config: &Config, work: &mut dyn FnMut(&Mm<'_>)) {
        let mm = self.make(*config).unwrap();
        self.manager.set((&raw const mm).cast());
        work(&mm);
        self.current.set(0);
        if self.broken.get().is_none() {
            self.check_cpus(&mm);
        }
        self.manager.set(std::ptr::null());
        if self.broken.get().is_none() {
            let audit = mm.validate();
            assert_eq!(audit.broken, None);
            self.check_books(&audit);
        }
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
        // An interrupt comes between two instructions.
        self.end_write(cpu);
        self.pending[cpu as usize].set(false);
        self.irqs[cpu as usize].set(false);
        self.enter_arrival();
        self.on(cpu, || {
            self.stretch_deaf();
            self.manager().on_interrupt();
            self.stretch_hears();
        });
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
}
