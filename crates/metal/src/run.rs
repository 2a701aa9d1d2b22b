//! One workload or one test, from the making of the system to the report.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use quietmm::{Config, FrameNumber, MAX_ORDER, PageNumber, PageRange, Region};
use quietmm_workloads::{Params, System, Workload};

use crate::command::{Command, What};
use crate::cpu::{self, irqs_on};
use crate::end::{End, Flat, end};
use crate::platform::Metal;
use crate::store::Store;
use crate::timeline::{self, Noting};
use crate::{alarm, clock, interrupts, line, program, report, stretches, tasks};

/// Where the kernel range begins: where Linux's begins with four levels of tables.
const KERNEL_RANGE: PageNumber = PageNumber(0xf_fffc_9000_0000);
/// How long the machine may take to come to rest once the work is done: what never does hangs. Alone on the host it takes moments; where CPUs are threads
/// of a busy one, each of them waits for its turn there.
const RESTLESS_NS: u64 = 240_000_000_000;

/// What is asked of a run, whichever machine it is on.
trait Run: Sync {
    /// The work is done, and, if `rests`, all CPUs are at rest.
    fn report(&self) -> !;
    /// Whether they will be.
    fn rests(&self) -> bool;
    /// Whether no task wants to run.
    fn is_at_rest(&self) -> bool;
    /// Frames that the core was given.
    fn frames(&self) -> u64;
}

pub(crate) struct Running<const FAULTS: bool> {
    command: Command,
    pub(crate) machine: &'static Metal<FAULTS>,
    pub(crate) system: System<'static, Metal<FAULTS>>,
    frames: u64,
}

// SAFETY: the system is made to be used by all CPUs; all else never changes.
unsafe impl<const FAULTS: bool> Sync for Running<FAULTS> {}

static RUN: AtomicPtr<&'static dyn Run> = AtomicPtr::new(core::ptr::null_mut());

/// Ends the machine: what was asked for cannot be done.
pub(crate) fn refuse(why: impl core::fmt::Display) -> ! {
    line!("{{\"end\":\"refused\",\"why\":\"{}\"}}", Flat(why));
    end(End::Failed)
}

/// Makes the system and its tasks. On the first CPU, while the others wait. `regions` says what memory is left once so
/// many stacks have theirs.
pub fn prepare(command: &Command, disk: Option<u64>, regions: impl Fn(u64) -> Vec<Region>) {
    let cpus = cpu::count();
    if command.late >= cpus {
        refuse("all CPUs are to come late");
    }
    match (command.what, command.broken) {
        (What::Workload(work), None) if command.timeline == 0 => {
            workload::<false>(command, work, disk, regions);
        }
        (What::Program, _) => programs(command, disk, regions),
        (What::Workload(work), _) => workload::<true>(command, work, disk, regions),
        (What::Test(test), _) => {
            let (swap, groups) = test.swap;
            let config = Config { min_free: Some(64), swap, groups, ..config(command, test.kernel_pages) };
            let run = make::<true>(command, config, cpus + test.tasks(cpus), disk, regions);
            (test.set_up)(&run.system, &params(command, run.frames)).unwrap_or_else(|error| refuse(error));
            start(run);
        }
    }
}

fn workload<const FAULTS: bool>(
    command: &Command,
    work: Workload,
    disk: Option<u64>,
    regions: impl Fn(u64) -> Vec<Region>,
) {
    let cpus = cpu::count();
    // An upper bound of what there is.
    let frames: u64 = regions(0).iter().map(|region| u64::from(region.frames)).sum();
    let tasks = cpus + work.tasks(cpus, command.work.unwrap_or(frames));
    let swap = work.needs_swap();
    let config =
        Config { swap, shadows: swap, groups: work.groups(), ..config(command, work.kernel_pages(cpus)) };
    let run = make::<FAULTS>(command, config, tasks, disk, regions);
    if swap {
        let Some(disk) = disk else { refuse(format!("{} needs a disk to swap to", work.name())) };
        // The rest is for files.
        run.system.mm.swap().on(0, disk / 4 * 3, 0).unwrap_or_else(|error| refuse(error));
    }
    if let Err(error) = work.set_up(&run.system, &params(command, run.frames)) {
        refuse(error);
    }
    start(run);
}

fn programs(command: &Command, disk: Option<u64>, regions: impl Fn(u64) -> Vec<Region>) {
    let cpus = cpu::count();
    let config = Config { swap: disk.is_some(), shadows: true, ..config(command, None) };
    // Each CPU's own, those of programs, and two that serve them.
    let run = make::<true>(command, config, cpus + command.tasks + 2, disk, regions);
    // The rest of the disk is for files.
    let swap = disk.map_or(0, |disk| command.swap.unwrap_or(disk / 4 * 3).min(disk));
    if swap > 0 {
        run.system.mm.swap().on(0, swap, 0).unwrap_or_else(|error| refuse(error));
    }
    let run = start(run);
    program::prepare(run, command).unwrap_or_else(|error| refuse(error));
}

fn params(command: &Command, frames: u64) -> Params<'static> {
    let cpus = cpu::count();
    let threads = command.threads.unwrap_or(cpus);
    if threads == 0 || threads > cpus {
        refuse(format!("{cpus} CPUs, so 1 to {cpus} threads"));
    }
    Params {
        cpus,
        frames: command.work.unwrap_or(frames),
        seed: command.seed,
        trace: None,
        threads,
        parts: None,
    }
}

fn config(command: &Command, kernel_pages: Option<u64>) -> Config {
    let plain = Config::new(command.policy);
    Config {
        vmap: kernel_pages.map(|pages| PageRange::new(KERNEL_RANGE, pages)),
        lru_batch: command.lru_batch.unwrap_or(plain.lru_batch),
        scan_batch: command.scan_batch.unwrap_or(plain.scan_batch),
        vmap_shards: command.vmap_shards,
        ..plain
    }
}

fn make<const FAULTS: bool>(
    command: &Command,
    config: Config,
    tasks: u32,
    disk: Option<u64>,
    regions: impl Fn(u64) -> Vec<Region>,
) -> Box<Running<FAULTS>> {
    // One more each for `kswapd` and for whoever purges kernel addresses.
    let stacks = tasks + 2;
    if stacks as usize > tasks::MOST {
        refuse(format!("{stacks} tasks, and there is room for {}", tasks::MOST));
    }
    let store = Store::new(command.tags(), disk);
    let mut regions = regions(stacks.into());
    let later = (command.later > 0).then(|| cut_off(&mut regions, command.later));
    let early = cpu::count() - command.late;
    let machine: &'static _ = Box::leak(Box::new(Metal::<FAULTS>::new(command.broken, early, later, store)));
    let frames = regions.iter().map(|region| u64::from(region.frames)).sum();
    // SAFETY: what the image does not use of the machine's memory, once.
    let system = unsafe { System::new(machine, &regions, config) }.unwrap_or_else(|error| refuse(error));
    Box::new(Running { command: *command, machine, system, frames })
}

/// The last so many MiB of memory, in whole blocks, which are not handed over.
fn cut_off(regions: &mut [Region], mib: u32) -> Region {
    let frames = mib.saturating_mul(256);
    let block = 1 << MAX_ORDER;
    let last = regions.last_mut().unwrap_or_else(|| refuse("there is no memory"));
    let end = (last.start.0 + last.frames) / block * block;
    let start = end.saturating_sub(frames) / block * block;
    if start <= last.start.0 {
        refuse(format!("{mib} MiB are to come later, and so many there are not"));
    }
    let later = Region { start: FrameNumber(start), frames: end - start, node: last.node };
    last.frames = start - last.start.0;
    later
}

fn start<const FAULTS: bool>(run: Box<Running<FAULTS>>) -> &'static Running<FAULTS> {
    let run: &'static Running<FAULTS> = Box::leak(run);
    report::begin(&run.command, run.frames);
    let object: &'static dyn Run = run;
    // Release: partner of the Acquire in `running`.
    RUN.store(Box::leak(Box::new(object)), Ordering::Release);
    if run.command.timeline > 0 {
        interrupts::set_kernel(Box::leak(Box::new(Noting(&run.system))));
        timeline::open(run.command.timeline);
    } else {
        interrupts::set_kernel(&run.system);
    }
    run
}

fn running() -> &'static dyn Run {
    // Acquire: partner of the Release in `start`.
    let run = RUN.load(Ordering::Acquire);
    assert!(!run.is_null(), "nothing runs yet");
    // SAFETY: leaked by `start`.
    unsafe { *run }
}

/// Frames that the core was given.
pub(crate) fn frames() -> u64 {
    running().frames()
}

/// The last user task has ended.
pub fn finished() {
    FINISHED_AT.store(clock::now(), Ordering::Relaxed);
    if !running().rests() {
        running().report();
    }
}

/// The CPU that looks whether all are at rest, plus one.
static SETTLER: AtomicU32 = AtomicU32::new(0);
static FINISHED_AT: AtomicU64 = AtomicU64::new(0);

/// What an idle CPU does once the work is done: one of them looks whether no task is left that wants to run, and then
/// reports. False if that is another one's; true, with interrupts on, if there may be something to do here. Interrupts are
/// off.
pub fn settle() -> bool {
    let mine = cpu::number() + 1;
    let settler =
        SETTLER.compare_exchange(0, mine, Ordering::AcqRel, Ordering::Acquire).unwrap_or_else(|now| now);
    if settler != 0 && settler != mine {
        return false;
    }
    let set = alarm::ever_set();
    if alarm::none_since(set, || running().is_at_rest()) {
        running().report();
    }
    if clock::now() > FINISHED_AT.load(Ordering::Relaxed) + RESTLESS_NS {
        refuse("the work is done, and the machine does not come to rest");
    }
    irqs_on();
    alarm::pause(10_000);
    true
}

impl<const FAULTS: bool> Run for Running<FAULTS> {
    fn rests(&self) -> bool {
        match self.command.what {
            What::Workload(work) => work.comes_to_rest(),
            What::Test(_) | What::Program => true,
        }
    }

    fn is_at_rest(&self) -> bool {
        self.system.is_at_rest()
    }

    fn frames(&self) -> u64 {
        self.frames
    }

    fn report(&self) -> ! {
        let mm = &self.system.mm;
        let reports = self.system.reports();
        report::counters(mm, &self.machine.notes, &reports);
        report::times();
        stretches::print();
        timeline::print(&self.system.names());
        program::report();
        let why = self.wrong(&reports);
        match &why {
            None => line!("{{\"end\":\"well\"}}"),
            Some(why) => line!("{{\"end\":\"failed\",\"why\":\"{}\"}}", Flat(why)),
        }
        end(if why.is_none() { End::Well } else { End::Failed })
    }
}

impl<const FAULTS: bool> Running<FAULTS> {
    /// What was not as it should be, if anything.
    fn wrong(&self, reports: &[quietmm_workloads::TaskReport]) -> Option<String> {
        let wrong = self.machine.notes.wrong.load(Ordering::Relaxed);
        if wrong > 0 {
            return Some(format!("{wrong} contents were not what they should be"));
        }
        let changed = self.machine.store.changed();
        if changed > 0 {
            return Some(format!("{changed} pages changed while they were written out"));
        }
        if let Some((task, error)) = reports.iter().find_map(|task| Some((task, task.result.err()?))) {
            return Some(format!("{} ended early: {error}", task.name));
        }
        if !self.rests() {
            return None;
        }
        let audit = self.system.mm.validate();
        let keeps = matches!(self.command.what, What::Workload(work) if work.keeps_frames());
        if audit.kernel > 0 && !keeps {
            return Some(format!("{} of the kernel's frames were not given back", audit.kernel));
        }
        audit.broken.map(|what| format!("the frames do not add up: {what} ({audit:?})"))
    }
}
