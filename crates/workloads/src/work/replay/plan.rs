//! From a recording to what each thread does: only what is possible, in an order that keeps what depends on each other.

mod pages;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use quietmm::{Advice, Prot};

use super::advice::advice;
use super::departures::{Departure, departures};
use super::order::{Done, Order};
use super::space::{MAPPABLE, Shown, Shows, Space};
use super::together::Together;
use crate::latency::Tally;
use crate::trace::Recording;
use crate::trace::recording::{Backing, Event, Pages, Rights, Victim, What};

/// Of each thread so many events are looked at for how far it was when another one was woken.
const MOST_PAST: usize = 64;

/// Nothing is further from the event before than so many nanoseconds, and no thread runs for longer between two: an hour in which no
/// thread asks for anything says no more than a minute, and a clock that was set must not be waited for.
const LONGEST: u64 = 60_000_000_000;

/// One step of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It runs in user mode for so many nanoseconds.
    Run(u64),
    /// It runs on this CPU from now on, where the replay keeps to the recorded ones.
    On(u16),
    /// Of the time that it runs next so much was not its own: so many requests to flush were answered there.
    Answered(u32),
    /// It sleeps so many nanoseconds. In the recording it was on no CPU from `since` to `until`; then it ran on this one, after another thread,
    /// which had done so much by then.
    Sleep { ns: u64, since: u64, until: u64, cpu: u16, after: Option<Done> },
    /// It wakes from its next sleep after this.
    Beside(Done),
    /// It waits until another thread has done so many of its steps.
    Await(Done),
    /// A new mapping. Nothing is mapped there.
    Map { pages: Pages, shows: Shows, prot: Prot },
    /// All is mapped.
    Unmap { pages: Pages },
    /// All is mapped.
    Protect { pages: Pages, prot: Prot },
    /// All is mapped.
    Advise { pages: Pages, advice: Advice },
    /// What was just done to pages Linux flushes their entries for, and this core does not; it is counted as this.
    FlushRange { pages: Pages, of: Tally },
    /// All is mapped, and nothing is at `to`.
    Move { pages: Pages, to: u64 },
    /// The call before took so long on its CPU; 0 if it may have waited for another one. In it so many CPUs were asked to flush: those at
    /// work, and those that had nothing to do.
    Rest { ns: u64, asked: [u32; 2] },
    /// The call before found nothing, and ended while another one of its space was under way: Linux flushes all.
    FlushAll,
    /// The next step writes to a page that was only read: on Linux it replaces this.
    Replace { page: u64, shown: Shown },
    /// So many accesses to a page that is mapped with the right to do this.
    Touch { page: u64, write: bool, count: u32 },
    /// The thread makes space `to` of its own.
    Fork { to: u32 },
    /// It leaves its space, which nobody uses any more if `ends`, and makes a new one, in which it goes on.
    Exec { to: u32, ends: bool },
    /// It leaves its space, which nobody uses any more if `ends`. The last step. If `cut`, the recording ended and not the thread.
    End { ends: bool, cut: bool },
}

/// The life of a thread.
#[derive(Debug, Default)]
pub struct Life {
    /// Where it begins.
    pub space: u32,
    /// When: after this.
    pub after: Option<Done>,
    /// Whether nobody makes its first space: it is there from the beginning.
    pub founds: bool,
    pub steps: Vec<Step>,
    /// After how many of them somebody else may go on, in ascending order.
    pub awaited: Vec<u32>,
}

/// Who takes which seat: threads that were never alive at the same time share a task.
pub struct Seats {
    pub count: u32,
    /// The seat of each thread.
    pub of: Vec<u32>,
}

/// What all do.
pub struct Plan {
    pub lives: Vec<Life>,
    pub seats: Seats,
    pub spaces: u32,
    /// Pages of each file.
    pub files: Vec<u64>,
    /// Steps that were left out because they were impossible, or were added because they must have been.
    pub mended: u64,
    /// It is known on which CPUs threads ran: a source that does not know says 0 of all.
    pub knows_cpus: bool,
}

/// Gives each thread a seat that is free when it begins. One that is not said to have ended keeps its seat.
pub fn seats(recording: &Recording<'_>) -> Seats {
    let mut seats = Seats { count: 0, of: Vec::new() };
    let mut free = Vec::new();
    let mut ended = Vec::new();
    for event in recording.events() {
        match event.what {
            What::Start { .. } => {
                let seat = free.pop().unwrap_or_else(|| {
                    seats.count += 1;
                    seats.count - 1
                });
                seats.of.push(seat);
                ended.push(false);
            }
            What::End if !ended[event.thread as usize] => {
                ended[event.thread as usize] = true;
                free.push(seats.of[event.thread as usize]);
            }
            _ => {}
        }
    }
    seats
}

/// Makes a plan, for a machine on which whoever is woken runs so many nanoseconds later. Memory is in proportion to the events.
pub fn plan(recording: &Recording<'_>, lag: u64) -> Plan {
    let mut planner = Planner::new(seats(recording));
    planner.lag = lag;
    planner.knows_times = recording.header().about.times;
    planner.knows_cpus = recording.events().any(|event| event.cpu > 0);
    let mut departures = departures(recording).into_iter().peekable();
    let together = Together::of(recording);
    for (nth, event) in recording.events().enumerate() {
        planner.nested = together.nested.contains(&nth);
        planner.alone = together.alone.contains(&nth);
        while let Some(departure) = departures.next_if(|departure| departure.at < event.at) {
            // Not one of which no time is left until the thread comes back.
            if departure.back >= nth {
                planner.depart(&departure);
            }
        }
        planner.take(&event);
    }
    planner.finish()
}

/// A thread is on no CPU.
#[derive(Clone, Copy)]
struct Left {
    since: u64,
    until: u64,
    ran: u64,
}

/// A plan under way.
struct Planner {
    seats: Seats,
    lives: Vec<Life>,
    /// The space that each thread is in now; none once it has ended.
    now_in: Vec<Option<u32>>,
    /// The CPU of its last event, the one that began it apart.
    on: Vec<Option<u16>>,
    /// When it was made, if it has done nothing since.
    made: Vec<Option<u64>>,
    /// How it left its CPU, if it has: when, until when, and what it ran before, which its next event says too.
    left: Vec<Option<Left>>,
    /// When it was interrupted since its last event, to flush.
    answered: Vec<Vec<u64>>,
    /// Who was on each CPU last.
    last_on: BTreeMap<u16, u32>,
    spaces: Vec<Space>,
    files: Vec<u64>,
    order: Order,
    mended: u64,
    knows_cpus: bool,
    knows_times: bool,
    /// How long after it was woken a thread runs.
    lag: u64,
    /// The event ended while another call of its space was under way.
    nested: bool,
    /// No other call of its space was under way at any time of the event's.
    alone: bool,
    /// When each thread asked others to flush since its last event, and whether they had nothing to do.
    asked: Vec<Vec<(u64, bool)>>,
    /// Who made each, and how far it was then.
    makers: Vec<(u32, u32)>,
    /// How far each was at its last events.
    past: Vec<VecDeque<(u64, u32)>>,
    /// When the last event was, and by how much it is earlier in the replay than it was.
    last: u64,
    skipped: u64,
}

fn prot(rights: Rights) -> Prot {
    match rights {
        Rights { write: true, .. } => Prot::ReadWrite,
        Rights { read: false, execute: false, .. } => Prot::None,
        _ => Prot::Read,
    }
}

/// The part that a program can have here. Where a recording has more, the kernel gave it: the first pages to a program with
/// `vm.mmap_min_addr` at 0, those of `[vsyscall]` to all.
fn user(pages: Pages) -> Option<Pages> {
    let start = pages.start.max(MAPPABLE.start);
    Pages::new(start, pages.end().min(MAPPABLE.end).checked_sub(start)?)
}

impl Planner {
    fn new(seats: Seats) -> Planner {
        Planner {
            seats,
            lives: Vec::new(),
            now_in: Vec::new(),
            on: Vec::new(),
            made: Vec::new(),
            left: Vec::new(),
            answered: Vec::new(),
            last_on: BTreeMap::new(),
            spaces: Vec::new(),
            files: Vec::new(),
            order: Order::default(),
            mended: 0,
            knows_cpus: false,
            knows_times: false,
            lag: 0,
            nested: false,
            alone: false,
            asked: Vec::new(),
            past: Vec::new(),
            makers: Vec::new(),
            last: 0,
            skipped: 0,
        }
    }

    fn take(&mut self, event: &Event<'_>) {
        let Event { at, thread, cpu, ran, ref what } = *event;
        let too_long = (at - self.last).saturating_sub(LONGEST);
        self.last = at;
        self.skipped += too_long;
        self.mended += u64::from(too_long > 0 || ran > LONGEST);
        let (at, ran) = (at - self.skipped, ran.min(LONGEST));
        if let What::Start { by, shares, .. } = *what {
            self.start(thread, at, by, shares);
            self.makers.push((by, self.here(by).steps));
            return;
        }
        if let What::File(_) = what {
            self.files.push(0);
        }
        if let What::Shootdown { victim: Victim::Thread(victim), .. } = *what
            && let Some(answered) = self.answered.get_mut(victim as usize)
        {
            answered.push(at);
        }
        if let What::Shootdown { victim, .. } = *what
            && let Some(asked) = self.asked.get_mut(thread as usize)
        {
            asked.push((at, victim == Victim::Idle));
        }
        let Some(space) = self.now_in[thread as usize] else { return };
        // That of a shootdown is the one that was interrupted, and what is lost is nobody's.
        if matches!(what, What::Shootdown { .. } | What::Lost { .. }) {
            return;
        }
        let moved = self.on[thread as usize].replace(cpu) != Some(cpu);
        if self.knows_cpus && moved && !matches!(what, What::Sleep { .. }) {
            self.step(thread, Step::On(cpu));
        }
        // It did not begin to run when it was made: the first one, before its recorder was ready.
        if let Some(made) = self.made[thread as usize].take()
            && self.knows_times
        {
            let until = at.saturating_sub(ran).saturating_sub(what.took());
            if until > made {
                // Of one that slept next the event is from when it came back: whoever had a CPU just before that has nothing to do with its beginning.
                let after = if matches!(what, What::Sleep { .. }) { None } else { self.before(thread, cpu) };
                self.step(thread, Step::Sleep { ns: until - made, since: made, until, cpu, after });
            }
        }
        let left = self.left[thread as usize].take();
        self.run(thread, ran.saturating_sub(left.map_or(0, |left| left.ran)), at.saturating_sub(what.took()));
        match *what {
            What::Sleep { ns } => {
                let ns = ns.min(LONGEST);
                let away = left.map_or((at.saturating_sub(ns), at), |left| (left.since, left.until));
                let after = self.before(thread, cpu);
                self.beside(thread, cpu, at);
                self.step(thread, Step::Sleep { ns, since: away.0, until: away.1, cpu, after });
            }
            What::Join(other) => self.join(thread, other),
            What::Exec(_) => self.exec(thread, space),
            What::End => self.end(thread, space, false),
            // A stack that a fault made grow, which nobody asked for: the touch is there already, and what it needed.
            What::Map { pages, rights, backing: Backing::Anonymous, call, .. }
                if self.knows_times && call.took == 0 && self.touched(thread, pages) =>
            {
                self.grow(thread, space, pages, prot(rights));
            }
            What::Map { pages, rights, backing, populate, .. } => {
                self.map(thread, space, pages, rights, backing, populate);
            }
            What::Unmap { pages, .. } => self.unmap(thread, space, pages),
            What::Protect { pages, rights, .. } => self.protect(thread, space, pages, prot(rights)),
            What::Advise { pages, advice: number, .. } => {
                if let (Some(advice), Some(pages)) = (advice(number), user(pages)) {
                    self.advise(thread, space, pages, advice);
                }
            }
            What::Move { from, to, .. } => self.remap(thread, space, from, to),
            What::Fault { page, write } => self.touch(thread, space, page, write, 1),
            What::Access { page, reads, writes } => {
                if reads > 0 {
                    self.touch(thread, space, page, false, reads);
                }
                if writes > 0 {
                    self.touch(thread, space, page, true, writes);
                }
            }
            What::Name(_)
            | What::File(_)
            | What::Stack(_)
            | What::Start { .. }
            | What::Shootdown { .. }
            | What::Lost { .. } => {}
        }
        self.rest(thread, at, what);
        self.last_on.insert(cpu, thread);
        self.passed(thread, at);
    }

    /// The call took so long, in which it asked others to flush.
    fn rest(&mut self, thread: u32, at: u64, what: &What<'_>) {
        let asked = core::mem::take(&mut self.asked[thread as usize]);
        let began = at.saturating_sub(what.took());
        if !self.knows_times || began == at || matches!(what, What::Sleep { .. }) {
            return;
        }
        let mut many = [0; 2];
        for (_, idle) in asked.into_iter().filter(|&(when, _)| when >= began) {
            many[usize::from(idle)] += 1;
        }
        // One that may have waited for another waits here by itself.
        let ns = if self.alone { at - began } else { 0 };
        self.step(thread, Step::Rest { ns, asked: many });
    }

    /// A thread is as far as it is now.
    fn passed(&mut self, thread: u32, at: u64) {
        let steps = self.here(thread).steps;
        let past = &mut self.past[thread as usize];
        if past.len() == MOST_PAST {
            past.pop_front();
        }
        past.push_back((at, steps));
    }

    /// A thread leaves its CPU: what it ran until then comes before what others do there.
    fn depart(&mut self, departure: &Departure) {
        let Departure { at, thread, ran, until, .. } = *departure;
        if self.now_in[thread as usize].is_none() || self.made[thread as usize].is_some() {
            return;
        }
        let (since, ran) = (at.saturating_sub(self.skipped), ran.min(LONGEST));
        self.run(thread, ran, since);
        let until = until.saturating_sub(self.skipped).min(since.saturating_add(LONGEST));
        self.left[thread as usize] = Some(Left { since, until, ran });
    }

    /// It runs for so long, until then.
    fn run(&mut self, thread: u32, ran: u64, until: u64) {
        let answered = core::mem::take(&mut self.answered[thread as usize]);
        let answered = answered.into_iter().filter(|&at| at <= until).count() as u32;
        if answered > 0 && ran > 0 {
            self.step(thread, Step::Answered(answered));
        }
        if ran > 0 {
            self.step(thread, Step::Run(ran));
        }
    }

    /// It comes to a CPU that somebody else may have had until then: how far that one was.
    fn before(&mut self, thread: u32, cpu: u16) -> Option<Done> {
        let other = *self.last_on.get(&cpu).filter(|&&other| other != thread)?;
        let done = Some(self.here(other)).filter(|done| done.steps > 0)?;
        self.order.awaited(done);
        Some(done)
    }

    /// It wakes, and others are on their CPUs: one of them may have woken it. How far they were when it was woken, which is some time before it runs.
    fn beside(&mut self, thread: u32, cpu: u16, at: u64) {
        let woken = at.saturating_sub(self.lag);
        let is_there =
            |other: u32| self.left[other as usize].is_none() && self.now_in[other as usize].is_some();
        let others =
            self.last_on.iter().filter(|&(&on, &other)| on != cpu && other != thread && is_there(other));
        let passed = others.filter_map(|(_, &other)| {
            let passed = self.past[other as usize].iter().rev().find(|&&(when, _)| when <= woken);
            passed.map(|&(_, steps)| Done { thread: other, steps }).filter(|done| done.steps > 0)
        });
        for done in passed.collect::<Vec<_>>() {
            self.order.awaited(done);
            self.step(thread, Step::Beside(done));
        }
    }

    fn step(&mut self, thread: u32, step: Step) {
        self.lives[thread as usize].steps.push(step);
    }

    /// Where the thread will be when it has done one more step than it has now.
    fn next(&self, thread: u32) -> Done {
        Done { thread, steps: self.lives[thread as usize].steps.len() as u32 + 1 }
    }

    fn here(&self, thread: u32) -> Done {
        Done { thread, steps: self.lives[thread as usize].steps.len() as u32 }
    }

    fn after(&mut self, thread: u32, before: impl IntoIterator<Item = Done>) {
        self.order.after(thread, before, &mut self.lives[thread as usize].steps);
    }

    fn new_space(&mut self, space: Space) -> u32 {
        self.spaces.push(space);
        self.spaces.len() as u32 - 1
    }

    fn start(&mut self, thread: u32, at: u64, by: u32, shares: bool) {
        self.lives.push(Life::default());
        self.now_in.push(None);
        self.on.push(None);
        self.made.push(Some(at));
        self.left.push(None);
        self.answered.push(Vec::new());
        self.asked.push(Vec::new());
        self.past.push(VecDeque::new());
        self.order.add_thread();
        let maker = if by == thread { None } else { self.now_in[by as usize] };
        let (space, after) = match maker {
            Some(space) if shares => (space, self.begun(by)),
            Some(space) => {
                let before = self.spaces[space as usize].everything();
                self.after(by, before);
                let done = self.next(by);
                let child = self.spaces[space as usize].forked(done);
                let child = self.new_space(child);
                self.spaces[space as usize].note(done);
                self.step(by, Step::Fork { to: child });
                (child, Some(done))
            }
            // Made before the recording, or by somebody of whom it knows no more.
            None => (self.new_space(Space::new(None)), None),
        };
        // It waits before its first step.
        self.order.after(thread, after, &mut Vec::new());
        self.spaces[space as usize].users += 1;
        self.now_in[thread as usize] = Some(space);
        let life = &mut self.lives[thread as usize];
        (life.space, life.after, life.founds) = (space, after, maker.is_none());
    }

    /// Where a thread is, so that its space is there and whoever it makes can begin.
    fn begun(&self, thread: u32) -> Option<Done> {
        let here = self.here(thread);
        if here.steps > 0 { Some(here) } else { self.lives[thread as usize].after }
    }

    fn join(&mut self, thread: u32, other: u32) {
        if other == thread || self.now_in[other as usize].is_some() {
            // Nobody has waited for the end of one that goes on.
            self.mended += 1;
            return;
        }
        // It slept because it waited: here it waits. The step stays, since others may count on its number.
        let steps = &mut self.lives[thread as usize].steps;
        if let Some(slept @ Step::Sleep { .. }) = steps.last_mut() {
            *slept = Step::Run(0);
        }
        let done = self.here(other);
        self.after(thread, [done]);
    }

    fn exec(&mut self, thread: u32, old: u32) {
        let ends = self.leave(thread, old);
        let to = self.new_space(Space::new(None));
        self.spaces[to as usize].users = 1;
        self.now_in[thread as usize] = Some(to);
        self.step(thread, Step::Exec { to, ends });
        // Whoever has done nothing since it made one that runs another program waits for that (`vfork`).
        let (maker, steps) = self.makers[thread as usize];
        if maker != thread && self.now_in[maker as usize].is_some() && self.here(maker).steps == steps {
            let done = self.here(thread);
            self.after(maker, [done]);
        }
    }

    fn end(&mut self, thread: u32, space: u32, cut: bool) {
        let ends = self.leave(thread, space);
        self.now_in[thread as usize] = None;
        self.step(thread, Step::End { ends, cut });
    }

    /// Whether nobody uses the space any more. Then the thread waits for the others to have left.
    fn leave(&mut self, thread: u32, space: u32) -> bool {
        let next = self.next(thread);
        let left = &mut self.spaces[space as usize];
        left.users -= 1;
        let ends = left.users == 0;
        let before = if ends { left.everything() } else { Vec::new() };
        left.note(next);
        self.after(thread, before);
        ends
    }

    /// Threads that go on when the recording ends end here, so that all comes to rest.
    fn finish(mut self) -> Plan {
        for thread in 0..self.lives.len() as u32 {
            if let Some(space) = self.now_in[thread as usize] {
                self.end(thread, space, true);
            }
        }
        let mut lives = self.lives;
        for (life, awaited) in lives.iter_mut().zip(self.order.finish()) {
            life.awaited = awaited;
        }
        Plan {
            lives,
            seats: self.seats,
            spaces: self.spaces.len() as u32,
            files: self.files,
            mended: self.mended,
            knows_cpus: self.knows_cpus,
        }
    }
}
