//! Operations: each recorded thread is a task, in a space that it shares with those that shared it. It does the same to
//! the same pages, runs and sleeps for as long in between, and waits where it depends on others. The scheduler gives a task
//! another CPU when its own is busy: a recording of 2 CPUs spreads over 64.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use quietmm::addr::Nanos;
use quietmm::platform::WaitKey;
use quietmm::policy::Unmap;
use quietmm::{CpuId, Error, FileId, Manager, PageNumber, PageRange, SpaceId, UserAccess};

use super::order::Done;
use super::plan::{Life, Plan, Step, plan};
use super::space::Shown;
use crate::guarded::Guarded;
use crate::latency::{Op, Tally};
use crate::machine::Machine;
use crate::system::System;
use crate::task::TaskKind;
use crate::trace::Recording;
use crate::trace::recording::Pages;

/// A thread that runs looks so often whether another one's turn has come, in nanoseconds.
const PIECE: u64 = 100_000;
/// Of one run, however long: more than six seconds in which the program asks for nothing are made of longer ones.
const MOST_PIECES: u64 = 1 << 16;
/// A page fault takes no more of what the thread then need not run: what is longer was waiting.
const MOST_FAULT: u64 = 10_000;

/// What all tasks of a replay share.
struct World {
    lives: Vec<Life>,
    /// How many steps each thread has done.
    done: Vec<AtomicU32>,
    /// The spaces that there are now.
    spaces: Guarded<Vec<Option<SpaceId>>>,
    files: Vec<FileId>,
    /// Where a task is before and after its threads.
    nursery: SpaceId,
    /// There are as many CPUs as there were: threads run where they ran. Otherwise the scheduler finds a place.
    keeps_cpus: bool,
    /// What Linux flushes besides is played.
    as_linux: bool,
    /// When the replay began, and how far it has been behind the recording where a thread began to sleep, at most: nanoseconds.
    began: AtomicU64,
    behind: AtomicU64,
}

/// What somebody waits with until a thread has done so much, and nobody who waits for more: apart from naps, devices and turns.
const fn key(Done { thread, steps }: Done) -> WaitKey {
    WaitKey::Own(1 << 62 | (thread as u64) << 32 | steps as u64)
}

/// Makes a task for each seat.
pub fn set_up<M: Machine>(system: &System<'_, M>, recording: &Recording<'_>) -> Result<u64, Error> {
    let Plan { lives, seats, spaces, files, mended, knows_cpus } =
        plan(recording, system.mm.platform().wake_lag(CpuId(0)));
    system.mm.platform().tally(Tally::StepsMended, mended);
    // What Linux flushes besides, and this core has no need to, its own policy does not flush.
    let as_linux = system.mm.config().policy.unmap != Unmap::Quiet;
    if as_linux {
        system.mm.platform().tally(Tally::ZerosReplaced, 0);
        system.mm.platform().tally(Tally::AroundReplaced, 0);
        system.mm.platform().tally(Tally::NestedFlushes, 0);
        system.mm.platform().tally(Tally::AgedFlushes, 0);
        system.mm.platform().tally(Tally::HiddenFlushes, 0);
        system.mm.platform().count_left();
    }
    let mut made = alloc::vec![None; spaces as usize];
    for life in lives.iter().filter(|life| life.founds) {
        made[life.space as usize] = Some(system.create_space()?);
    }
    let all = lives.iter().map(|life| life.steps.len() as u64).sum();
    let cpus = system.mm.platform().possible_cpus();
    let keeps_cpus = knows_cpus && cpus == u32::from(recording.header().about.cpus);
    let world = Arc::new(World {
        done: lives.iter().map(|_| AtomicU32::new(0)).collect(),
        spaces: Guarded::new(made),
        files: files.iter().map(|&pages| system.mm.create_file(pages.max(1))).collect::<Result<_, _>>()?,
        nursery: system.create_space()?,
        keeps_cpus,
        as_linux,
        began: AtomicU64::new(u64::MAX),
        behind: AtomicU64::new(0),
        lives,
    });
    let mut turns: Vec<Vec<u32>> = alloc::vec![Vec::new(); seats.count as usize];
    for (thread, &seat) in seats.of.iter().enumerate() {
        turns[seat as usize].push(thread as u32);
    }
    for (seat, threads) in turns.into_iter().enumerate() {
        let world = world.clone();
        let cpu = CpuId((seat as u32 % cpus) as u16);
        let (name, kind) = (format!("thread/{seat}"), TaskKind::User(world.nursery));
        let body = move |system: &System<'_, M>| {
            threads.iter().try_for_each(|&thread| Thread::new(system, &world, thread).live())
        };
        if keeps_cpus {
            system.spawn(name, kind, cpu, body);
        } else {
            system.spawn_roaming(name, kind, cpu, body);
        }
    }
    Ok(all)
}

/// A thread that is alive.
struct Thread<'a, 'p, M: Machine> {
    system: &'a System<'p, M>,
    world: &'a World,
    me: u32,
    space: SpaceId,
    /// Nanoseconds that page faults have taken here: the recorded time on a CPU has those of the recorded machine.
    owed: u64,
    /// Nanoseconds that calls have taken since the last one was recorded, without what they asked of other CPUs.
    spent: u64,
    /// How far others are when it wakes.
    beside: Vec<Done>,
}

fn range(pages: Pages) -> PageRange {
    PageRange::new(PageNumber(pages.start), pages.count)
}

impl<'a, 'p, M: Machine> Thread<'a, 'p, M> {
    fn new(system: &'a System<'p, M>, world: &'a World, me: u32) -> Self {
        Thread { system, world, me, space: world.nursery, owed: 0, spent: 0, beside: Vec::new() }
    }

    fn machine(&self) -> &'p M {
        self.system.mm.platform()
    }

    fn live(&mut self) -> Result<(), Error> {
        let life = &self.world.lives[self.me as usize];
        self.world.began.fetch_min(self.machine().now().0, Ordering::Relaxed);
        if let Some(after) = life.after {
            self.await_done(after);
        }
        let mut awaited = life.awaited.iter().copied().peekable();
        let mut is_there = false;
        for (done, step) in (1..).zip(&life.steps) {
            // Where it was made, it did not run: no other CPU than its first uses the space for it.
            if !is_there
                && !matches!(step, Step::On(_) | Step::Beside(_) | Step::Sleep { .. } | Step::Await(_))
            {
                self.enter(life.space);
                is_there = true;
            }
            self.act(step)?;
            // Release: partner of the Acquire in `await_done`.
            self.world.done[self.me as usize].store(done, Ordering::Release);
            if awaited.next_if_eq(&done).is_some() {
                self.machine().wake(key(Done { thread: self.me, steps: done }));
            }
            self.machine().progressed(1);
        }
        Ok(())
    }

    fn await_done(&self, at: Done) {
        let done = &self.world.done[at.thread as usize];
        self.machine().wait(key(at), &mut || done.load(Ordering::Acquire) >= at.steps);
    }

    /// Goes on in a space that somebody has made.
    fn enter(&mut self, space: u32) {
        let there = self.world.spaces.with(&self.system.mm, |spaces| spaces[space as usize]);
        // Whoever makes it is waited for.
        self.space = there.unwrap_or(self.world.nursery);
        self.system.change_space(self.space);
    }

    fn made(&self, space: u32, id: SpaceId) {
        self.world.spaces.with(&self.system.mm, |spaces| spaces[space as usize] = Some(id));
    }

    /// Leaves the space for the nursery, and ends it if nobody is left there.
    fn leave(&mut self, ends: bool) -> Result<(), Error> {
        let old = core::mem::replace(&mut self.space, self.world.nursery);
        self.system.change_space(self.space);
        if ends { self.timed(Op::Exit, 0, |system| system.end_space(old)) } else { Ok(()) }
    }

    fn timed(
        &mut self,
        op: Op,
        pages: u64,
        work: impl FnOnce(&System<'p, M>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let began = self.own_time();
        let result = super::super::timed(self.system, op, pages, || work(self.system));
        self.spent += self.own_time().saturating_sub(began);
        result
    }

    fn call(
        &mut self,
        op: Op,
        pages: u64,
        work: impl FnOnce(&Manager<'p, M>, SpaceId) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let space = self.space;
        self.timed(op, pages, |system| system.syscall(|mm| work(mm, space)))
    }

    fn act(&mut self, step: &Step) -> Result<(), Error> {
        match *step {
            Step::Run(ns) => self.run(ns),
            Step::Answered(times) => self.owed += u64::from(times) * self.machine().answer(),
            Step::On(cpu) => self.go_to(CpuId(cpu)),
            Step::Sleep { ns, since, until, cpu, after } => {
                self.wake_on(CpuId(cpu));
                self.sleep(ns, since, until, after);
            }
            Step::Beside(done) => self.beside.push(done),
            Step::Await(done) => self.await_done(done),
            Step::Map { pages, shows, prot } => {
                let backing = shows.backing(&self.world.files);
                self.call(Op::Map, pages.count, |mm, space| {
                    mm.space(space).map(range(pages), backing, prot)
                })?;
            }
            Step::Unmap { pages } => {
                self.call(Op::Unmap, pages.count, |mm, space| mm.space(space).unmap(range(pages)))?;
            }
            Step::Protect { pages, prot } => {
                self.call(Op::Protect, pages.count, |mm, space| mm.space(space).protect(range(pages), prot))?;
            }
            Step::Advise { pages, advice } => {
                self.call(Op::Advise, pages.count, |mm, space| mm.space(space).advise(range(pages), advice))?;
            }
            Step::Move { pages, to } => {
                let to = PageNumber(to);
                self.call(Op::Move, pages.count, |mm, space| mm.space(space).move_range(range(pages), to))?;
            }
            Step::Rest { ns, asked } => self.rest(ns, asked),
            Step::FlushAll => self.flush_all()?,
            Step::FlushRange { pages, of } => self.flush_range(pages, of)?,
            // Whoever flushes waits on its CPU.
            Step::Replace { page, shown } => self.faulted(u64::MAX, |thread| thread.replace(page, shown))?,
            Step::Touch { page, write, count } => {
                let access = if write { UserAccess::Write } else { UserAccess::Read };
                self.faulted(MOST_FAULT, |thread| {
                    thread.system.access(PageNumber(page).addr(), count, access)
                })?;
            }
            Step::Fork { to } => {
                let (space, mut child) = (self.space, None);
                self.timed(Op::Fork, 0, |system| {
                    child = Some(system.syscall(|mm| mm.space(space).fork())?);
                    Ok(())
                })?;
                if let Some(child) = child {
                    self.made(to, child);
                }
            }
            Step::Exec { to, ends } => {
                self.leave(ends)?;
                let new = self.system.syscall(|_| self.system.create_space())?;
                self.made(to, new);
                self.enter(to);
            }
            // A thread that ends leaves its CPU with the space that it had.
            Step::End { ends: false, cut: false } => {
                self.space = self.world.nursery;
                self.system.leave_space(self.space);
            }
            Step::End { ends, .. } => self.leave(ends)?,
        }
        Ok(())
    }

    /// A page fault, of which so much at most is a part of the recorded time on a CPU.
    fn faulted(&mut self, most: u64, fault: impl FnOnce(&Self) -> Result<(), Error>) -> Result<(), Error> {
        let began = self.clock();
        fault(self)?;
        // Another CPU's clock, if it has gone there.
        self.owed += self.clock().saturating_sub(began).min(most);
        Ok(())
    }

    /// A call has taken nothing out of the space while another one was under way. Linux counts such calls (`tlb_flush_pending`): one that ends then cannot
    /// know which entries the other has cleared and not flushed, so it flushes everything, even if it found nothing itself (`mm_tlb_flush_nested`). Of this
    /// core's calls each has the VMAs alone, and waits for the others. Which calls it were is in the recording; those that found something flush anyway.
    fn flush_all(&self) -> Result<(), Error> {
        if !self.world.as_linux {
            return Ok(());
        }
        self.machine().tally(Tally::NestedFlushes, 1);
        self.system.syscall(|mm| mm.space(self.space).flush())
    }

    /// Pages were said to be cold: Linux takes their accessed bits and flushes (`madvise_cold_or_pageout_pte_range`), this core takes them and does not. Or pages
    /// were dropped that nobody had the right to use: Linux's entries of such count as present, and this core's are not and cannot be in a TLB.
    fn flush_range(&self, pages: Pages, of: Tally) -> Result<(), Error> {
        if !self.world.as_linux {
            return Ok(());
        }
        self.machine().tally(of, 1);
        self.system.syscall(|mm| mm.space(self.space).flush_range(range(pages)))
    }

    /// The next write finds what was only read. Linux shows the one page of zeros there until then, or a page of a file that came with another
    /// one, takes it out, flushes the page, and has another in its place (`wp_page_copy`). This core's page was the program's own from the beginning,
    /// or was not there.
    fn replace(&self, page: u64, shown: Shown) -> Result<(), Error> {
        if !self.world.as_linux {
            return Ok(());
        }
        let what = if shown == Shown::Zeros { Tally::ZerosReplaced } else { Tally::AroundReplaced };
        self.machine().tally(what, 1);
        self.system.syscall(|mm| mm.space(self.space).flush_range(PageRange::new(PageNumber(page), 1)))
    }

    /// Where it was woken in the recording, it is here, if there are as many CPUs.
    fn wake_on(&self, cpu: CpuId) {
        if self.world.keeps_cpus {
            self.system.wake_on(cpu);
        }
    }

    /// The thread was taken to another CPU without having slept.
    fn go_to(&mut self, cpu: CpuId) {
        if self.world.keeps_cpus && self.machine().this_cpu() != cpu {
            let (begin, lag) = (self.machine().now().0, self.machine().wake_lag(cpu));
            self.system.wake_on(cpu);
            self.system.nap(1);
            // In the recording the other CPU took it.
            self.owed += (self.machine().now().0 - begin).min(lag);
        }
    }

    /// Sleeps until it is as late as it was in the recording, as far as the replay is behind it. So those who slept at the same
    /// time do here too: for as long as they slept, each by itself, they would drift apart, and who is interrupted depends
    /// on who runs. Where threads run where they ran, each has its CPU when whoever had it before has left it, and is away for as long as it was, even if all
    /// that it waited for was the CPU.
    fn sleep(&mut self, ns: u64, since: u64, until: u64, after: Option<Done>) {
        let beside = core::mem::take(&mut self.beside);
        let (since, after) =
            if self.world.keeps_cpus { (Some(since), after) } else { (until.checked_sub(ns), None) };
        // Of one that began before the recording nothing is known but how long it was.
        let Some(since) = since else { return self.system.nap(ns) };
        if ns == 0 && !self.world.keeps_cpus {
            return;
        }
        let late = self.elapsed().saturating_sub(since);
        let behind = self.world.behind.fetch_max(late, Ordering::Relaxed).max(late);
        if let Some(after) = after {
            self.await_done(after);
        }
        match until.saturating_add(behind).saturating_sub(self.elapsed()) {
            0 => self.system.give_way(),
            ns => self.system.sleep_until(Nanos(self.machine().now().0.saturating_add(ns))),
        }
        // One of them has woken it, and may be later here than it was.
        if self.world.keeps_cpus {
            beside.into_iter().for_each(|done| self.await_done(done));
        }
    }

    /// Runs for so long. Page faults are a part of the recorded time, and so are interrupts, but for those that are played.
    fn run(&mut self, ns: u64) {
        let paid = self.owed.min(ns);
        self.owed -= paid;
        let (mut left, most) = (ns - paid, PIECE.max(ns / MOST_PIECES));
        while left > 0 {
            let began = self.clock();
            self.machine().run_for(left.min(most));
            let took = self.clock() - began;
            self.owed += took.saturating_sub(left);
            left = left.saturating_sub(took);
            self.system.give_way();
        }
    }

    /// A call takes as long as it was recorded to be on its CPU, but for what it asks of others: that it does here too, or does not have to. Linux keeps more accounts
    /// than this core, and was watched by the recorder.
    fn rest(&mut self, ns: u64, [busy, idle]: [u32; 2]) {
        let m = self.machine();
        let asked = u64::from(busy) * m.ask(false) + u64::from(idle) * m.ask(true);
        let left = ns.saturating_sub(asked).saturating_sub(core::mem::take(&mut self.spent));
        if left > 0 {
            m.work_for(left);
        }
    }

    /// Nanoseconds since the replay began.
    fn elapsed(&self) -> u64 {
        // Relaxed, here and where it begins: a number that says nothing of other memory.
        self.machine().now().0.saturating_sub(self.world.began.load(Ordering::Relaxed))
    }

    /// The time, less what this CPU has spent on requests to flush, of its own and of others.
    fn own_time(&self) -> u64 {
        self.clock().saturating_sub(self.machine().asking())
    }

    /// The time, less what this CPU has spent on requests to flush.
    fn clock(&self) -> u64 {
        self.machine().now().0 - self.machine().answering()
    }
}
