//! Hears what the machine does, and makes records of it.

use std::cell::RefCell;
use std::collections::BTreeMap;

use quietmm::platform::{Access, WaitKey};
use quietmm::profile::{Room, Scope};
use quietmm::{Event, NodeId};

use super::kept::Kept;
use super::{Mark, Record, Timeline, Wanted, What};
use crate::profile::{Now, Own, Place};

/// Picoseconds between two records of how much memory is free, at least.
const STEP: u64 = 1_000_000;

/// All that is recorded of one run, until its records are taken: the machine goes on until it comes to rest. Cells: the simulator is
/// one host thread.
pub(crate) struct Recorder(RefCell<Option<State>>);

struct State {
    kept: Kept,
    cpus: Vec<Cpu>,
    tasks: Vec<Task>,
    /// Whose answers are counted in the word at this address.
    words: BTreeMap<usize, u16>,
    free: Free,
    sweeps: Sweeps,
    kernel_sweeps: Sweeps,
}

#[derive(Clone, Default)]
struct Cpu {
    /// When its task came to it.
    since: u64,
    /// Since when it takes no interrupts.
    deaf: Option<u64>,
    /// Interrupts on their way to it: from whom, sent when.
    coming: Vec<(u16, u64)>,
    call: Call,
}

/// What is known of a CPU's request to others, which is a line of words that the core does not tell of. The last that is written before
/// the first bit of an inbox is set counts who has not answered.
#[derive(Clone, Default)]
enum Call {
    /// None was seen yet.
    #[default]
    Unknown,
    /// It writes: this word last.
    Writing(usize),
    /// It has posted: this word it is, if somebody is waited for. Those who have answered so far.
    Posted(usize, Vec<(u16, u64)>),
    /// Its word is known.
    Known,
}

#[derive(Clone, Default)]
struct Task {
    open: Vec<Open>,
    /// Since when it is in no place.
    bare: u64,
    /// User work that has just ended. If more of it comes at the same moment it is one.
    ended: Option<(Open, u64)>,
    /// The batch that it judges: since when, pages looked at and given back.
    batch: Option<(u64, u32, u32)>,
    /// It is `kswapd` of this node, awake since then.
    kswapd: Option<(u16, Option<u64>)>,
    /// The sweep that it waits for.
    awaits: u32,
    /// Its own time: clocks of CPUs differ a little, and it may move from one to another.
    clock: u64,
}

#[derive(Clone, Copy)]
struct Open {
    place: Place,
    since: u64,
    /// Whether it had to wait there.
    waited: bool,
}

#[derive(Default)]
struct Free {
    /// Pages that were taken since the beginning and have not come back.
    used: i64,
    /// The next record is not before this.
    next: u64,
}

#[derive(Default)]
struct Sweeps {
    number: u32,
    /// When the one that is under way began, and what CPUs did for it.
    under_way: Option<(u64, u32, u32)>,
    /// Who began it, if it has reported nothing since.
    just_begun: Option<u32>,
}

impl Open {
    /// Taking a lock that is free is no matter of its own.
    fn shows(&self) -> bool {
        self.waited || !is_lock(self.place)
    }
}

fn is_lock(place: Place) -> bool {
    matches!(place, Place::Core(scope) if scope.room() == Room::Locks)
}

fn is_batch(place: Place) -> Option<bool> {
    match place {
        Place::Core(Scope::ShrinkActive) => Some(true),
        Place::Core(Scope::ShrinkInactive) => Some(false),
        _ => None,
    }
}

const USER: Place = Place::Own(Own::User);
const KERNEL: Place = Place::Own(Own::Kernel);
const CALL: Place = Place::Core(Scope::IpiCall);
const WAIT: Place = Place::Core(Scope::IpiWait);
const SWEEP_WAIT: Place = Place::Core(Scope::SweepWait);

impl Recorder {
    pub fn new(wanted: Wanted, cpus: usize, tasks: usize) -> Recorder {
        // A CPU begins with interrupts off.
        let cpu = Cpu { deaf: Some(0), ..Cpu::default() };
        Recorder(RefCell::new(Some(State {
            kept: Kept::new(wanted),
            cpus: vec![cpu; cpus],
            tasks: vec![Task::default(); tasks],
            words: BTreeMap::new(),
            free: Free::default(),
            sweeps: Sweeps::default(),
            kernel_sweeps: Sweeps::default(),
        })))
    }

    fn with(&self, hear: impl FnOnce(&mut State)) {
        if let Some(state) = &mut *self.0.borrow_mut() {
            hear(state);
        }
    }

    /// The task goes into a place.
    pub fn enter(&self, now: Now, place: Place) {
        self.with(|state| state.enter(now, place));
    }

    /// And out again.
    pub fn leave(&self, now: Now, place: Place) {
        self.with(|state| state.leave(now, place));
    }

    /// The CPU leaves the task's context for another's.
    pub fn depart(&self, now: Now) {
        self.with(|state| {
            state.leave_cpu(now);
            state.cpus[now.cpu as usize].since = now.ps;
        });
    }

    /// The task has to wait where it is.
    pub fn waits(&self, now: Now) {
        self.with(|state| state.tasks[now.task as usize].waits());
    }

    /// The task is about to sleep until somebody wakes `key`.
    pub fn begin_wait(&self, now: Now, key: WaitKey) {
        self.with(|state| state.begin_wait(now, key));
    }

    /// It goes on.
    pub fn end_wait(&self, now: Now, key: WaitKey) {
        self.with(|state| state.tasks[now.task as usize].end_wait(now, key));
    }

    /// The CPU takes interrupts from now on, or takes none.
    pub fn irqs(&self, cpu: u16, ps: u64, on: bool) {
        self.with(|state| state.irqs(cpu, ps, on));
    }

    /// One CPU interrupts another.
    pub fn sent(&self, from: u16, to: u16, ps: u64) {
        self.with(|state| state.cpus[to as usize].coming.push((from, ps)));
    }

    /// The CPU takes all that are on their way to it, as one.
    pub fn taken(&self, cpu: u16, ps: u64) {
        self.with(|state| state.end_ipis(cpu, Some(ps)));
    }

    /// The CPU is switched off: what is on its way to it is lost.
    pub fn lost(&self, cpu: u16) {
        self.with(|state| state.end_ipis(cpu, None));
    }

    /// An access of the core to memory that CPUs share is about to be made.
    pub fn touched(&self, now: Now, at: *const u8, access: Access) {
        self.with(|state| state.touched(now, at.addr(), access));
    }

    /// Something happened on this CPU.
    pub fn observe(&self, event: &Event, now: Now) {
        self.with(|state| state.observe(event, now));
    }

    /// All of it, up to the latest of the CPUs' clocks; `at` gives each CPU's task. Whoever does something at the end goes on doing so until
    /// then. `free` pages are free now.
    pub fn close(&self, at: impl Iterator<Item = Now>, free: u64, tasks: Vec<String>) -> Option<Timeline> {
        let mut state = self.0.take()?;
        let at: Vec<Now> = at.collect();
        let end = at.iter().map(|now| now.ps).max().unwrap_or(0).max(state.kept.latest());
        for now in at {
            let now = Now { ps: end, ..now };
            state.leave_cpu(now);
            state.end_ipis(now.cpu, None);
            if let Some(from) = state.cpus[now.cpu as usize].deaf.filter(|&from| from < end) {
                state.kept.push(Record { from, to: end, cpu: now.cpu, what: What::IrqsOff });
            }
        }
        let lasts = |from, what| Record { from, to: end, cpu: 0, what };
        for task in &state.tasks {
            let kswapd = task.kswapd.map(|(node, _)| node);
            if let Some((from, scanned, reclaimed)) = task.batch {
                let active = task.open.iter().find_map(|open| is_batch(open.place)) == Some(true);
                state.kept.push(lasts(from, What::Batch { kswapd, active, scanned, reclaimed }));
            }
            if let Some((node, Some(from))) = task.kswapd {
                state.kept.push(lasts(from, What::Kswapd { node }));
            }
        }
        let last = Now { cpu: 0, task: 0, ps: end };
        let sweep = state.sweeps.ends(last);
        state.push_sweep(sweep, user_sweep);
        let sweep = state.kernel_sweeps.ends(last);
        state.push_sweep(sweep, kernel_sweep);
        state.free.next = 0;
        state.use_pages(0, last);
        // Until now pages in use were counted from the beginning, and more were free then.
        let first = state.free.used.saturating_add_unsigned(free);
        let cpus = state.cpus.len() as u32;
        let (from_ps, to_ps, gone, mut records) = state.kept.close();
        for record in &mut records {
            if let What::Free { pages } = &mut record.what {
                *pages = u32::try_from(first - i64::from(*pages)).unwrap_or(0);
            }
        }
        Some(Timeline { cpus, tasks, from_ps, to_ps, ended_ps: end, gone, records })
    }
}

fn user_sweep(number: u32, flushed: u32, forced: u32) -> What {
    What::Sweep { number, flushed, forced }
}

fn kernel_sweep(number: u32, flushed: u32, forced: u32) -> What {
    What::KernelSweep { number, flushed, forced }
}

impl Task {
    fn waits(&mut self) {
        if let Some(open) = self.open.last_mut() {
            open.waited = true;
        }
    }

    fn end_wait(&mut self, now: Now, key: WaitKey) {
        self.clock = self.clock.max(now.ps);
        if let (WaitKey::Kswapd(_), Some((_, awake))) = (key, &mut self.kswapd) {
            *awake = Some(self.clock);
        }
    }
}

impl State {
    fn enter(&mut self, now: Now, place: Place) {
        let task = &mut self.tasks[now.task as usize];
        let again = task.ended.filter(|(open, at)| open.place == place && *at == now.ps);
        if let Some((open, _)) = again {
            task.ended = None;
            task.open.push(open);
            return;
        }
        self.settle(now);
        self.bare(now);
        let task = &mut self.tasks[now.task as usize];
        task.open.push(Open { place, since: now.ps, waited: false });
        task.clock = task.clock.max(now.ps);
        if is_batch(place).is_some() {
            task.batch = Some((task.clock, 0, 0));
        }
        let call = &mut self.cpus[now.cpu as usize].call;
        match (place, &*call) {
            (CALL, Call::Unknown) => *call = Call::Writing(0),
            (WAIT, Call::Posted(..)) => self.learn(now.cpu),
            (SWEEP_WAIT, _) => task.awaits = self.sweeps.number,
            _ => {}
        }
    }

    fn leave(&mut self, now: Now, place: Place) {
        self.settle(now);
        let task = &mut self.tasks[now.task as usize];
        let Some(open) = task.open.pop() else { return };
        debug_assert_eq!(open.place, place, "places nest");
        task.clock = task.clock.max(now.ps);
        if task.open.is_empty() {
            task.bare = now.ps;
        }
        if place == USER {
            task.ended = Some((open, now.ps));
            return;
        }
        if let Some(active) = is_batch(place)
            && let Some((from, scanned, reclaimed)) = task.batch.take()
        {
            let kswapd = task.kswapd.map(|(node, _)| node);
            let what = What::Batch { kswapd, active, scanned, reclaimed };
            let to = task.clock;
            self.kept.push(Record { from, to, cpu: now.cpu, what });
        }
        if place == SWEEP_WAIT && self.tasks[now.task as usize].awaits >= self.sweeps.number {
            let sweep = self.sweeps.ends(now);
            self.push_sweep(sweep, user_sweep);
        }
        let call = &mut self.cpus[now.cpu as usize].call;
        if place == CALL && !matches!(call, Call::Known) {
            // Nobody was asked: it is some other word.
            if let Call::Posted(word, _) = std::mem::take(call)
                && self.words.get(&word) == Some(&now.cpu)
            {
                self.words.remove(&word);
            }
        }
        if open.shows() {
            self.span(now, open.since, What::Place(place));
        }
    }

    fn begin_wait(&mut self, now: Now, key: WaitKey) {
        self.tasks[now.task as usize].waits();
        let task = &mut self.tasks[now.task as usize];
        task.clock = task.clock.max(now.ps);
        if let WaitKey::Kswapd(NodeId(node)) = key {
            let awake = task.kswapd.replace((node, None)).and_then(|(_, since)| since);
            let to = task.clock;
            if let Some(from) = awake {
                self.kept.push(Record { from, to, cpu: now.cpu, what: What::Kswapd { node } });
            }
        }
    }

    fn irqs(&mut self, cpu: u16, ps: u64, on: bool) {
        let deaf = &mut self.cpus[cpu as usize].deaf;
        match (on, *deaf) {
            (false, None) => *deaf = Some(ps),
            (true, Some(from)) => {
                *deaf = None;
                if from < ps {
                    self.kept.push(Record { from, to: ps, cpu, what: What::IrqsOff });
                }
            }
            _ => {}
        }
    }

    fn touched(&mut self, now: Now, at: usize, access: Access) {
        let call = &mut self.cpus[now.cpu as usize].call;
        match (access, &mut *call) {
            (Access::Write, Call::Writing(last)) => *last = at,
            (Access::Rmw, Call::Writing(word)) => {
                let word = *word;
                *call = Call::Posted(word, Vec::new());
                self.words.entry(word).or_insert(now.cpu);
            }
            (Access::Rmw, _) => {
                let Some(&sender) = self.words.get(&at) else { return };
                // Whoever takes back what it has posted answers itself.
                if sender == now.cpu {
                    return;
                }
                match &mut self.cpus[sender as usize].call {
                    Call::Known => self.acknowledged(now.cpu, sender, now.ps),
                    Call::Posted(_, answers) => answers.push((now.cpu, now.ps)),
                    Call::Unknown | Call::Writing(_) => {}
                }
            }
            _ => {}
        }
    }

    fn observe(&mut self, event: &Event, now: Now) {
        for sweeps in [&mut self.sweeps, &mut self.kernel_sweeps] {
            if sweeps.just_begun == Some(now.task) && *event != Event::KernelSweepOver {
                sweeps.just_begun = None;
            }
        }
        let mark = match *event {
            Event::Taken { order, .. } => return self.use_pages(1 << order, now),
            Event::Freed { order, .. } => return self.use_pages(-(1 << order), now),
            Event::MemoryOffline { frames, .. } => return self.use_pages(frames.into(), now),
            Event::MemoryOnline { frames, .. } => return self.use_pages(-i64::from(frames), now),
            Event::Scanned { pages, .. } | Event::Reclaimed { pages, .. } => {
                if let Some((_, scanned, reclaimed)) = &mut self.tasks[now.task as usize].batch {
                    let given_back = matches!(event, Event::Reclaimed { .. });
                    *(if given_back { reclaimed } else { scanned }) += pages;
                }
                return;
            }
            Event::SweepBegun => {
                let sweep = self.sweeps.begins(now);
                self.tasks[now.task as usize].awaits = self.sweeps.number;
                return self.push_sweep(sweep, user_sweep);
            }
            Event::KernelSweepBegun => {
                let sweep = self.kernel_sweeps.begins(now);
                return self.push_sweep(sweep, kernel_sweep);
            }
            Event::KernelSweepOver => {
                // Whoever finds that one is over may have begun the next just before it says so.
                if self.kernel_sweeps.just_begun.take() == Some(now.task) {
                    return;
                }
                let sweep = self.kernel_sweeps.ends(now);
                return self.push_sweep(sweep, kernel_sweep);
            }
            Event::SweepForced { targets } => return self.sweeps.did(0, targets),
            Event::KernelSweepForced { targets } => return self.kernel_sweeps.did(0, targets),
            Event::Swept => {
                self.sweeps.did(1, 0);
                Mark::Swept
            }
            Event::KernelSwept => {
                self.kernel_sweeps.did(1, 0);
                Mark::KernelSwept
            }
            Event::RemoteFlush { reason, targets } => Mark::Flush { reason, targets },
            Event::KswapdWoken => Mark::KswapdWoken,
            Event::BatchFlushed { pages, targets } => Mark::BatchFlushed { pages, targets },
            Event::VmapPurged { pages } => Mark::Purged { pages: u32::try_from(pages).unwrap_or(u32::MAX) },
            Event::OutOfMemory { .. } => Mark::OutOfMemory,
            Event::CpuOffline => Mark::Offline,
            Event::CpuOnline => Mark::Online,
            _ => return,
        };
        self.happens(now, What::Mark(mark));
    }

    /// Something lasted on this CPU until now.
    fn span(&mut self, now: Now, since: u64, what: What) {
        // It may have begun before its task came here.
        let from = since.max(self.cpus[now.cpu as usize].since);
        if from < now.ps {
            self.kept.push(Record { from, to: now.ps, cpu: now.cpu, what });
        }
    }

    fn happens(&mut self, now: Now, what: What) {
        self.kept.push(Record { from: now.ps, to: now.ps, cpu: now.cpu, what });
    }

    /// User work that has ended is over, since something else comes.
    fn settle(&mut self, now: Now) {
        if let Some((open, to)) = self.tasks[now.task as usize].ended.take() {
            self.span(Now { ps: to, ..now }, open.since, What::Place(open.place));
        }
    }

    /// A task that is in no place is in the kernel round the core.
    fn bare(&mut self, now: Now) {
        let task = &self.tasks[now.task as usize];
        if task.open.is_empty() {
            let since = task.bare;
            self.span(now, since, What::Place(KERNEL));
        }
    }

    /// All that the task is in ends on this CPU; it may go on on another.
    fn leave_cpu(&mut self, now: Now) {
        self.settle(now);
        self.bare(now);
        for nth in (0..self.tasks[now.task as usize].open.len()).rev() {
            let open = self.tasks[now.task as usize].open[nth];
            if open.shows() {
                self.span(now, open.since, What::Place(open.place));
            }
            self.tasks[now.task as usize].open[nth].since = 0;
        }
        self.tasks[now.task as usize].bare = 0;
        self.span(now, 0, What::Task(now.task));
    }

    fn end_ipis(&mut self, target: u16, taken: Option<u64>) {
        for (cpu, from) in std::mem::take(&mut self.cpus[target as usize].coming) {
            // Clocks of CPUs differ a little, but an interrupt has its flight.
            let what = What::Ipi { target, taken: taken.is_some() };
            self.kept.push(Record { from, to: taken.unwrap_or(from).max(from), cpu, what });
        }
    }

    /// Somebody is waited for: so the word is what it was taken for.
    fn learn(&mut self, cpu: u16) {
        if let Call::Posted(_, answers) = std::mem::replace(&mut self.cpus[cpu as usize].call, Call::Known) {
            answers.into_iter().for_each(|(by, ps)| self.acknowledged(by, cpu, ps));
        }
    }

    fn acknowledged(&mut self, cpu: u16, sender: u16, ps: u64) {
        self.kept.push(Record { from: ps, to: ps, cpu, what: What::Acknowledged { sender } });
    }

    fn use_pages(&mut self, pages: i64, now: Now) {
        self.free.used += pages;
        self.kept.reach(now.ps);
        let ps = self.kept.latest();
        if ps >= self.free.next {
            self.free.next = ps + STEP;
            // How many are free is not known before the end: so those that are in use.
            let pages = u32::try_from(self.free.used).unwrap_or(0);
            self.kept.push(Record { from: ps, to: ps, cpu: now.cpu, what: What::Free { pages } });
        }
    }

    fn push_sweep(&mut self, sweep: Option<(Record, [u32; 3])>, what: fn(u32, u32, u32) -> What) {
        if let Some((record, [number, flushed, forced])) = sweep {
            self.kept.push(Record { what: what(number, flushed, forced), ..record });
        }
    }
}

impl Sweeps {
    /// One begins; returns the one before, if nobody knew that it was over.
    fn begins(&mut self, now: Now) -> Option<(Record, [u32; 3])> {
        let before = self.ends(now);
        self.number += 1;
        self.under_way = Some((now.ps, 0, 0));
        self.just_begun = Some(now.task);
        before
    }

    /// The one that is under way is over.
    fn ends(&mut self, now: Now) -> Option<(Record, [u32; 3])> {
        let (from, flushed, forced) = self.under_way.take()?;
        let record = Record { from, to: now.ps.max(from), cpu: now.cpu, what: What::IrqsOff };
        Some((record, [self.number, flushed, forced]))
    }

    /// CPUs flushed for it, or had to be interrupted.
    fn did(&mut self, flushed: u32, forced: u32) {
        if let Some((_, all, asked)) = &mut self.under_way {
            (*all, *asked) = (*all + flushed, *asked + forced);
        }
    }
}
