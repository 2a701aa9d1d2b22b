//! The machine that is explored: the real core on real page tables, a few CPUs, and no time. At each point where CPUs can
//! interleave, somebody outside says who goes on.
//!
//! The machine of `quietmm-sim` computes what things cost; this one has no cost at all, so that a run is as short as the
//! core's own code, and it lets hardware do whatever the architecture allows.

mod broadcast;
mod device;
mod laws;
mod log;
mod memory;
mod platform;
mod tlb;
mod told;
mod turns;
mod user;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use corosensei::Yielder;
use quietmm::addr::{FrameNumber, NodeId, PageNumber, PageRange};
use quietmm::platform::{Everywhere, Store, WaitKey};
use quietmm::{Architecture, Entry, FileId, Frames, Manager, Region, Rule};
use quietmm_hardware::Rules;

use crate::act::Act;
use crate::driver::Driver;
use crate::violation::{Skipped, Violation};

pub use log::{Entry as LogEntry, What, key};
use memory::Memory;
pub use memory::{BASE, Content, LANES};
use tlb::Tlb;
pub use told::Told;
pub(crate) use turns::Place;

/// The core on this machine.
pub type Mm<'m> = Manager<'m, Machine>;

/// What a machine is made of.
#[derive(Clone, Debug)]
pub struct Setup {
    /// CPUs, 1 to 4.
    pub cpus: u16,
    /// Of these, the last ones are offline at first.
    pub offline: u16,
    /// Frames of memory.
    pub frames: u32,
    /// Frames that may come later, behind the others: of the first node.
    pub later: u32,
    /// Nodes of equal size; CPU n is on node n modulo this.
    pub nodes: u16,
    /// How tables are written, and what the hardware does of itself with them.
    pub architecture: Architecture,
    /// Address-space tags of each CPU.
    pub tags: u16,
    /// How often the timer of each CPU fires: when the schedule says so, at the latest when nobody else can go on.
    pub ticks: u32,
    /// Whether the hardware gives all guarantees, and says so.
    pub guarantees: bool,
    /// Whether the hardware can flush all CPUs.
    pub broadcast: bool,
    /// Whether the kernel has a cache of its own that gives frames back.
    pub caches: bool,
    /// Whether devices may fail, where the schedule says so.
    pub devices_fail: bool,
    /// The pages of programs that matter: what hardware may fetch before it is asked to.
    pub watched: Vec<PageNumber>,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            cpus: 2,
            offline: 0,
            frames: 512,
            later: 0,
            nodes: 1,
            architecture: Architecture::X86_64,
            tags: 1,
            ticks: 0,
            guarantees: true,
            broadcast: false,
            caches: false,
            devices_fail: false,
            watched: Vec::new(),
        }
    }
}

/// How much the hardware does of itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Hardware {
    /// It caches what is used, for ever.
    Quiet,
    /// Just before an entry changes, every CPU that could walk to it has cached it, and for ever. A write that has found an entry
    /// that allows it sets the dirty bit as late as it can, and looks only whether the entry is still there.
    Grasping,
    /// As `Quiet`; besides, where the schedule says so, a CPU forgets all it has cached, or fetches all it can.
    Fickle,
}

impl Hardware {
    /// All of them.
    pub const ALL: [Hardware; 3] = [Hardware::Quiet, Hardware::Grasping, Hardware::Fickle];

    /// The name in replay files.
    pub const fn name(self) -> &'static str {
        match self {
            Hardware::Quiet => "quiet",
            Hardware::Grasping => "grasping",
            Hardware::Fickle => "fickle",
        }
    }

    /// By its name.
    pub fn parse(name: &str) -> Option<Hardware> {
        Hardware::ALL.into_iter().find(|hardware| hardware.name() == name)
    }
}

/// What a CPU is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    /// Its script goes on.
    Busy,
    /// It spins, and nobody else has done anything since this much was done.
    Spins(u64),
    /// It sleeps until this is woken.
    Sleeps(WaitKey),
    /// Its script has ended. Interrupts are still heard.
    Done,
}

/// A CPU.
pub(crate) struct Cpu {
    pub irqs: Cell<bool>,
    pub pending: Cell<bool>,
    /// How often its timer will fire yet.
    pub ticks: Cell<u32>,
    pub in_handler: Cell<bool>,
    pub status: Cell<Status>,
    /// The sleeper was woken.
    pub woken: Cell<bool>,
    /// Calls into the core that have not returned.
    pub depth: Cell<u32>,
    /// Outside of calls it runs a program of the loaded space.
    pub user: Cell<bool>,
    pub online: Cell<bool>,
    /// On its way offline or online, or idle: it hears interrupts, and the kernel uses nothing of what it has cached.
    pub leaves_or_comes: Cell<bool>,
    /// What this CPU has done to what others may see.
    pub own: Cell<u64>,
    pub tlb: RefCell<Tlb>,
    /// What it has asked the hardware to flush everywhere and not waited for, and the number of each.
    pub broadcasts: RefCell<Vec<(u64, Everywhere)>>,
    /// How many entries it may yet change by walks for what never comes.
    pub stray: Cell<u32>,
    /// The frame to which a write has begun: the walk is done.
    pub begun: Cell<Option<FrameNumber>>,
}

impl Cpu {
    fn new(online: bool, ticks: u32) -> Cpu {
        Cpu {
            irqs: Cell::new(true),
            pending: Cell::new(false),
            ticks: Cell::new(ticks),
            in_handler: Cell::new(false),
            status: Cell::new(Status::Busy),
            woken: Cell::new(false),
            depth: Cell::new(0),
            user: Cell::new(false),
            online: Cell::new(online),
            leaves_or_comes: Cell::new(false),
            own: Cell::new(0),
            tlb: RefCell::default(),
            broadcasts: RefCell::default(),
            stray: Cell::new(STRAY),
            begun: Cell::new(None),
        }
    }

    /// Whether a program runs on it now, and may use whatever the CPU has cached.
    pub fn in_user_mode(&self) -> bool {
        self.user.get() && self.depth.get() == 0 && !self.in_handler.get()
    }

    /// Whether the kernel runs on it, and may use whatever the CPU has cached of kernel addresses.
    pub fn in_kernel(&self) -> bool {
        self.online.get() && !self.leaves_or_comes.get()
    }
}

/// The machine.
pub struct Machine {
    pub(crate) setup: Setup,
    pub(crate) memory: Memory,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) current: Cell<u16>,
    /// Scripts run, and every point is somebody's to decide.
    pub(crate) running: Cell<bool>,
    /// Each CPU is on its own stack.
    pub(crate) interleaved: Cell<bool>,
    /// The core has panicked, and unwinds: nothing is judged any more.
    pub(crate) falling: Cell<bool>,
    /// An entry that the core is changing, and what it said just before.
    pub(crate) changing: Cell<Option<(*const u8, Entry)>>,
    /// Pages of programs that hardware may fetch before it is asked to.
    pub(crate) watched: RefCell<Vec<u64>>,
    pub(crate) kernel_root: Cell<Option<FrameNumber>>,
    pub(crate) kernel_range: Cell<Option<PageRange>>,
    pub(crate) hardware: Cell<Hardware>,
    pub(crate) broken: Cell<Option<Rule>>,
    pub(crate) skipped: Cell<Option<Skipped>>,
    /// Accesses where nothing is interleaved.
    pub(crate) alone: Cell<u32>,
    /// Points passed.
    pub(crate) steps: Cell<u32>,
    /// What all CPUs have done to what others may see.
    pub(crate) progress: Cell<u64>,
    /// Rounds in which nobody could go on but those who spin.
    pub(crate) idle_rounds: Cell<u32>,
    pub(crate) driver: RefCell<Driver>,
    /// How many flushes everywhere have begun.
    pub(crate) broadcasts: Cell<u64>,
    /// Who sleeps, or is about to, and for what.
    pub(crate) sleepers: RefCell<Vec<(u16, WaitKey)>>,
    pub(crate) command: Cell<Act>,
    pub(crate) next: Cell<Act>,
    /// Of each CPU, and of what is not interleaved.
    pub(crate) yielders: Vec<Cell<*const Yielder<(), ()>>>,
    pub(crate) manager: Cell<*const Mm<'static>>,
    pub(crate) violation: RefCell<Option<Violation>>,
    pub(crate) log: RefCell<Option<Vec<LogEntry>>>,
    pub(crate) disk: RefCell<BTreeMap<(Store, u64), Content>>,
    /// Swap devices that are on, and how many pages each has.
    pub(crate) devices: RefCell<BTreeMap<u32, u64>>,
    /// Files whose file system is asked before a program writes, and pages for which it was and that were not written out since.
    pub(crate) asking: RefCell<BTreeSet<FileId>>,
    leave: RefCell<BTreeSet<(Store, u64)>>,
    /// Pages of which a device has lost the content, and said so.
    pub(crate) device_errors: Cell<u32>,
    /// What the kernel's own cache keeps.
    pub(crate) cache: RefCell<Vec<Frames>>,
    /// What the core has said.
    pub told: Told,
}

/// Entries that a CPU changes in a run by walks for what never comes: without end nothing would ever look idle.
const STRAY: u32 = 8;

/// Pages that hardware looks at of itself, at most: each costs a walk at every change of a table.
const WATCHED: usize = 16;

impl Machine {
    /// A machine at rest.
    pub fn new(setup: Setup) -> Machine {
        assert!((1..=LANES as u16).contains(&setup.cpus), "1 to {LANES} CPUs");
        Machine {
            memory: Memory::new(setup.frames + setup.later),
            cpus: Vec::new(),
            current: Cell::new(0),
            running: Cell::new(false),
            interleaved: Cell::new(false),
            falling: Cell::new(false),
            changing: Cell::new(None),
            watched: RefCell::default(),
            kernel_root: Cell::new(None),
            kernel_range: Cell::new(None),
            hardware: Cell::new(Hardware::Quiet),
            broken: Cell::new(None),
            skipped: Cell::new(None),
            alone: Cell::new(0),
            steps: Cell::new(0),
            progress: Cell::new(0),
            idle_rounds: Cell::new(0),
            driver: RefCell::default(),
            broadcasts: Cell::new(0),
            sleepers: RefCell::default(),
            command: Cell::new(Act::END),
            next: Cell::new(Act::END),
            yielders: (0..=setup.cpus).map(|_| Cell::new(std::ptr::null())).collect(),
            manager: Cell::new(std::ptr::null()),
            violation: RefCell::default(),
            log: RefCell::default(),
            disk: RefCell::default(),
            devices: RefCell::default(),
            asking: RefCell::default(),
            leave: RefCell::default(),
            device_errors: Cell::new(0),
            cache: RefCell::default(),
            told: Told::default(),
            setup,
        }
    }

    /// As new, for another run.
    pub fn reset(&mut self, hardware: Hardware, broken: Option<Rule>, keep_log: bool) {
        self.memory.wipe();
        let online = self.setup.cpus - self.setup.offline;
        self.cpus = (0..self.setup.cpus).map(|id| Cpu::new(id < online, self.setup.ticks)).collect();
        self.current.set(0);
        self.running.set(false);
        self.interleaved.set(false);
        self.falling.set(false);
        self.changing.set(None);
        *self.watched.borrow_mut() = self.setup.watched.iter().map(|page| page.0).collect();
        self.kernel_root.set(None);
        self.kernel_range.set(None);
        self.hardware.set(hardware);
        self.broken.set(broken);
        self.skipped.set(None);
        self.alone.set(0);
        self.steps.set(0);
        self.yielders.iter().for_each(|yielder| yielder.set(std::ptr::null()));
        self.progress.set(0);
        self.idle_rounds.set(0);
        self.violation = RefCell::default();
        self.log = RefCell::new(keep_log.then(Vec::new));
        self.disk = RefCell::default();
        self.asking = RefCell::default();
        self.leave = RefCell::default();
        self.driver = RefCell::default();
        self.broadcasts.set(0);
        self.sleepers = RefCell::default();
        self.device_errors.set(0);
        self.cache = RefCell::default();
        self.told = Told::default();
    }

    /// The memory as the core takes it over: a region for each node.
    pub fn regions(&self) -> Vec<Region> {
        let each = self.setup.frames / u32::from(self.setup.nodes);
        (0..self.setup.nodes)
            .map(|node| Region {
                start: FrameNumber(BASE + each * u32::from(node)),
                frames: each,
                node: NodeId(node),
            })
            .collect()
    }

    /// The memory that may come later, if there is any.
    pub(crate) fn later(&self) -> Option<Region> {
        let Setup { frames, later, .. } = self.setup;
        let region = Region { start: FrameNumber(BASE + frames), frames: later, node: NodeId(0) };
        Some(region).filter(|region| region.frames > 0)
    }

    /// What the manager took for itself before anybody asked it for anything.
    pub(crate) fn note_bookkeeping(&self, mm: &Mm<'_>, kernel: Option<PageRange>) {
        self.kernel_range.set(kernel);
        for region in self.regions() {
            let reserved = mm.frames().reserved().min(u64::from(region.frames)) as u32;
            (0..reserved).for_each(|n| self.memory.will_be_written(region.start.add(n)));
        }
    }

    /// Hardware may fetch these pages before it is asked to, if they are few.
    pub(crate) fn watch(&self, page: u64, pages: u64) {
        let mut watched = self.watched.borrow_mut();
        for page in (page..page + pages).take(WATCHED) {
            if !watched.contains(&page) && watched.len() < WATCHED {
                watched.push(page);
            }
        }
    }

    pub(crate) fn memory_is_wiped(&self) -> bool {
        self.memory.is_wiped()
    }

    /// What the machine is made of.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// What its hardware does.
    #[inline]
    pub(crate) fn rules(&self) -> Rules {
        Rules { architecture: self.setup.architecture, clean_write_walks: self.setup.guarantees }
    }

    #[inline]
    pub(crate) fn cpu(&self) -> &Cpu {
        &self.cpus[usize::from(self.current.get())]
    }

    /// The core. Only while a run has one.
    pub(crate) fn mm(&self) -> &Mm<'_> {
        // SAFETY: set by `Runner` for as long as the manager lives, and null otherwise.
        unsafe { self.manager.get().cast::<Mm<'_>>().as_ref() }.expect("inside a run")
    }

    /// Notes what happens, if somebody wants to read it.
    #[inline]
    pub(crate) fn note(&self, what: impl FnOnce() -> What) {
        if let Ok(mut log) = self.log.try_borrow_mut()
            && let Some(log) = log.as_mut()
        {
            log.push(LogEntry { step: self.steps.get(), cpu: self.current.get(), what: what() });
        }
    }

    /// A law was broken: the run ends here. Comes back to nobody.
    pub(crate) fn fail(&self, mut violation: Violation) -> ! {
        violation.step = self.steps.get();
        violation.skipped = self.skipped.get();
        self.note(|| What::Broken(violation.invariant));
        if let Ok(mut first) = self.violation.try_borrow_mut() {
            first.get_or_insert(violation);
        }
        loop {
            self.give_way(Act::END);
        }
    }

    /// What the CPU just did may matter to others.
    #[inline]
    pub(crate) fn did(&self) {
        self.progress.set(self.progress.get() + 1);
        let own = &self.cpu().own;
        own.set(own.get() + 1);
        self.idle_rounds.set(0);
    }
}
