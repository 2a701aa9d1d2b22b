//! From what was seen to a recording: which thread it was, in which space, what the call did, how long it ran and slept.
//!
//! Sources lose events, begin in the middle, and use a thread's number again. Nothing of that is an error here: what is
//! missing is counted, and what follows is read as well as can be.

mod calls;
mod task;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use quietmm_workloads::trace::recording::{Call, Event, Victim, What};

use crate::seen::{Saw, Seen};
use crate::syscall::Syscall;
use task::{Off, Pending, Task};

/// A sleep of less is not worth an event: so long takes a switch there and back.
const SHORTEST_SLEEP: u64 = 2_000;
/// Flush requests of threads that are not recorded are forgotten after this time.
const LONGEST_FLIGHT: u64 = 50_000_000;
/// A thread that has ended asks for flushes for so long, while its space goes: since 6.16 Linux says that it ends before that.
const LONGEST_END: u64 = 1_000_000_000;
/// A CPU that was asked to flush has done it after this time.
const LONGEST_FLUSH: u64 = 1_000_000;
/// So much may clocks of two CPUs differ.
const SKEW: u64 = 1_000_000;
/// A clock that is further behind or ahead may have been set: if the next events agree.
const SET_BACK: u64 = 1_000_000_000;
const SET_AHEAD: u64 = 86_400 * SET_BACK;
/// So many must agree, one after another.
const AGREE: u32 = 16;

/// Threads that are there at once, at most: further ones are left out. Memory is bounded.
const MOST_TASKS: usize = 1 << 17;

/// Where the events go.
pub trait Sink {
    /// Takes an event.
    ///
    /// # Errors
    /// It cannot be kept.
    fn take(&mut self, event: &Event<'_>) -> io::Result<()>;
}

impl Sink for crate::write::Writer {
    fn take(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.push(event)
    }
}

impl Sink for Vec<Event<'static>> {
    /// Texts are lost.
    fn take(&mut self, event: &Event<'_>) -> io::Result<()> {
        let what = match event.what {
            What::Name(_) => What::Name(""),
            What::File(_) => What::File(""),
            What::Stack(_) => What::Stack(""),
            What::Exec(_) => What::Exec(""),
            What::Start { by, shares, call } => What::Start { by, shares, call },
            What::End => What::End,
            What::Sleep { ns } => What::Sleep { ns },
            What::Join(thread) => What::Join(thread),
            What::Map { pages, rights, backing, populate, call } => {
                What::Map { pages, rights, backing, populate, call }
            }
            What::Unmap { pages, call } => What::Unmap { pages, call },
            What::Protect { pages, rights, call } => What::Protect { pages, rights, call },
            What::Advise { pages, advice, call } => What::Advise { pages, advice, call },
            What::Move { from, to, call } => What::Move { from, to, call },
            What::Fault { page, write } => What::Fault { page, write },
            What::Access { page, reads, writes } => What::Access { page, reads, writes },
            What::Shootdown { victim, pages } => What::Shootdown { victim, pages },
            What::Lost { count } => What::Lost { count },
        };
        self.push(Event { at: event.at, thread: event.thread, cpu: event.cpu, ran: event.ran, what });
        Ok(())
    }
}

/// What could not be made sense of, for whoever reads the recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Oddities {
    /// Times that went back by more than clocks of CPUs differ, and were taken for the latest before.
    pub back_in_time: u64,
    /// Times that were more than a day ahead, and were taken for the latest before.
    pub far_ahead: u64,
    /// Calls that ended without having begun, or began and did not end.
    pub halves: u64,
    /// Threads that were there without anybody having made them.
    pub strangers: u64,
    /// Threads that began again without having ended.
    pub again: u64,
    /// Calls whose effect is not in their arguments: `process_madvise`, `shmat` without its size.
    pub opaque: u64,
    /// What threads did that were left out, because so many were there already.
    pub crowded: u64,
    /// Calls whose range no address space has: it is too long, or ends beyond all addresses of programs.
    pub nowhere: u64,
    /// Flush requests received of which nobody is known to have sent them.
    pub unsent: u64,
}

impl Oddities {
    /// How often what was left out or guessed, for whoever records: the rest is usual where a recording begins and ends.
    #[must_use]
    pub fn of_a_recording(&self) -> [(u64, &'static str); 4] {
        [(self.opaque, OPAQUE), (self.crowded, CROWDED), (self.nowhere, NOWHERE), (self.unsent, UNSENT)]
    }
}

/// [`Oddities::opaque`]
pub const OPAQUE: &str = "a call whose effect is not in its arguments; left out";
/// [`Oddities::crowded`]
pub const CROWDED: &str = "more threads at once than are kept in memory; left out";
/// [`Oddities::nowhere`]
pub const NOWHERE: &str = "a call whose range is in no address space; left out";
/// [`Oddities::unsent`]
pub const UNSENT: &str = "a flush request that nobody is seen to send; taken for the thread's own";

/// Whether a thread that nobody has made belongs to the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strangers {
    /// It does: the source shows nothing else.
    Belong,
    /// It does not: the source shows the whole machine.
    Leave,
}

/// A recording under way.
pub struct Assembly<S> {
    sink: S,
    cpus: u16,
    strangers: Strangers,
    /// Whether the source says when threads are on a CPU.
    switches: bool,
    first: Option<u64>,
    now: u64,
    /// What the source's clock was set back by, all in all, modulo 2^64.
    set_back: u64,
    /// Of times that do not fit, in the order of time: the latest by the source's clock, and how many in a row.
    unfit: Option<(u64, u32)>,
    /// What comes was held back by whoever reads.
    late: bool,
    tasks: BTreeMap<i32, Task>,
    /// The threads of each process among them.
    families: BTreeMap<i32, BTreeSet<i32>>,
    /// Threads that have ended, and when: for those who wait for them, and for what is asked of others as they go.
    ended: BTreeMap<i32, (u32, u64)>,
    threads: u32,
    spaces: Vec<task::Space>,
    files: BTreeMap<String, u32>,
    /// Bytes of their paths, and of the call stacks.
    texts: [usize; 2],
    next_file: u32,
    stacks: BTreeMap<String, u32>,
    /// Who has sent each CPU a request that has not arrived yet.
    in_flight: BTreeMap<u16, (u64, Option<u32>)>,
    /// The source shows who sends.
    sends: bool,
    /// It shows who asks whom to flush, and that is all that need be known of whoever sends.
    asks: bool,
    /// Requests to which nobody has answered: the CPU, and who waits for it.
    unanswered: BTreeMap<u16, i32>,
    /// For how long each CPU has run recorded threads, and since when it runs one.
    running: BTreeMap<u16, (u64, Option<u64>)>,
    lost: u64,
    shootdowns: u64,
    odd: Oddities,
}

/// What came of it.
pub struct Assembled<S> {
    /// Where the events went.
    pub sink: S,
    /// Events that the source says are missing.
    pub lost: u64,
    /// Flush requests that CPUs received for the program.
    pub shootdowns: u64,
    /// From the first to the last thing that was seen, in nanoseconds.
    pub duration: u64,
    /// What could not be made sense of.
    pub odd: Oddities,
}

impl<S: Sink> Assembly<S> {
    /// Nothing has been seen. CPUs from `cpus` on count as the last.
    pub fn new(sink: S, cpus: u16, strangers: Strangers, switches: bool) -> Self {
        Assembly {
            sink,
            cpus: cpus.max(1),
            strangers,
            switches,
            first: None,
            now: 0,
            set_back: 0,
            unfit: None,
            late: false,
            tasks: BTreeMap::new(),
            families: BTreeMap::new(),
            ended: BTreeMap::new(),
            threads: 0,
            spaces: Vec::new(),
            files: BTreeMap::new(),
            texts: [0; 2],
            next_file: 0,
            stacks: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            sends: false,
            asks: false,
            unanswered: BTreeMap::new(),
            running: BTreeMap::new(),
            lost: 0,
            shootdowns: 0,
            odd: Oddities::default(),
        }
    }

    /// A process is there from the beginning, with these threads; the first is the one that has the process's number.
    ///
    /// # Errors
    /// The sink's.
    pub fn known(&mut self, at: u64, process: i32, threads: &[i32]) -> io::Result<()> {
        for &tid in threads {
            self.time(at);
            self.add(Seen { at, cpu: 0, tid, saw: Saw::On }, process, None)?;
        }
        Ok(())
    }

    /// Whether what comes next was held back by whoever reads: then no clock jumps if its times are before the latest.
    pub fn late(&mut self, late: bool) {
        self.late = late;
    }

    /// A thread that begins a program goes on under the number of its process, whose first thread has ended then.
    pub fn take_over(&mut self, process: i32) {
        if self.knows(process) {
            return;
        }
        let begins = |tid: &&i32| {
            let pending = self.tasks.get(tid).and_then(|task| task.pending.as_ref());
            pending.is_some_and(|pending| matches!(pending.call, Syscall::Execve | Syscall::Execveat))
        };
        let tid = self.families.get(&process).and_then(|family| family.iter().find(begins).copied());
        if let Some(task) = tid.and_then(|tid| self.remove(tid)) {
            self.tasks.insert(process, task);
            self.families.entry(process).or_default().insert(process);
        }
    }

    /// Whether a thread is recorded.
    pub fn knows(&self, tid: i32) -> bool {
        self.tasks.contains_key(&tid)
    }

    /// The process that a recorded thread belongs to.
    pub fn process_of(&self, tid: i32) -> Option<i32> {
        self.tasks.get(&tid).map(|task| task.process)
    }

    /// Threads that have not ended.
    pub fn alive(&self) -> usize {
        self.tasks.len()
    }

    /// Takes in what was seen, in the order of time.
    ///
    /// # Errors
    /// The sink's.
    pub fn take(&mut self, seen: Seen<'_>) -> io::Result<()> {
        // What is lost has no time of its own.
        let at = if let Saw::Lost(_) = seen.saw { self.now } else { self.time(seen.at) };
        let seen = Seen { at, cpu: seen.cpu.min(self.cpus - 1), ..seen };
        match seen.saw {
            Saw::Lost(count) => {
                self.lost = self.lost.saturating_add(count);
                return match self.tasks.values().next() {
                    Some(task) => {
                        let (at, thread) = (self.elapsed(), task.thread);
                        let what = What::Lost { count };
                        self.sink.take(&Event { at, thread, cpu: seen.cpu, ran: 0, what })
                    }
                    None => Ok(()),
                };
            }
            Saw::Flushed { pages, left } => return self.flushed(seen, pages, left),
            Saw::Sends(mask) => {
                self.sends(seen, mask);
                return Ok(());
            }
            Saw::Asks(cpu) => return self.asks(seen, cpu),
            Saw::Gone if !self.knows(seen.tid) => return Ok(()),
            _ => {}
        }
        // Whoever goes on waits for nobody any more.
        while let Some(cpu) = self.unanswered.iter().find(|&(_, &tid)| tid == seen.tid).map(|(&cpu, _)| cpu) {
            self.lazy(cpu)?;
        }
        if let Saw::Exec(_) = seen.saw {
            self.take_over(seen.tid);
        }
        if !self.knows(seen.tid) && !self.admit(seen)? {
            return Ok(());
        }
        match seen.saw {
            Saw::Enter { call, args, path, stack } => self.enter(seen, call, args, path, stack),
            Saw::Caller(stack) => self.caller(seen, stack),
            Saw::Leave { call, result } => self.leave(seen, call, result),
            Saw::Fault { address, write } => {
                let what = What::Fault { page: address >> 12, write };
                self.emit(seen, what)
            }
            Saw::Mapped { address, length, offset, prot, flags, path } => {
                self.mapped(seen, address, length, offset, prot, flags, path)
            }
            Saw::Made { tid, process, shares } => self.made(seen, tid, process, shares),
            Saw::Exec(program) => self.exec(seen, program),
            Saw::Name(name) => self.emit(seen, What::Name(name)),
            Saw::Gone => self.gone(seen),
            Saw::On => self.on(seen),
            Saw::Off { preempted } => {
                self.off(seen, preempted);
                Ok(())
            }
            Saw::Process(_) | Saw::Asks(_) | Saw::Sends(_) | Saw::Flushed { .. } | Saw::Lost(_) => Ok(()),
        }
    }

    /// Threads that are still there go on beyond the recording.
    pub fn finish(mut self) -> Assembled<S> {
        self.odd.halves += self.tasks.values().filter(|task| task.pending.is_some()).count() as u64;
        Assembled {
            duration: self.elapsed(),
            sink: self.sink,
            lost: self.lost,
            shootdowns: self.shootdowns,
            odd: self.odd,
        }
    }

    /// What could not be made sense of so far.
    pub fn odd(&self) -> Oddities {
        self.odd
    }

    /// Time does not go back, nor ahead by more than a day at once. A clock that was set is followed, once enough events agree on it: one
    /// bad time must not make those that follow late.
    fn time(&mut self, at: u64) -> u64 {
        let first = self.first.is_none();
        self.first.get_or_insert(at);
        let time = at.wrapping_add(self.set_back);
        // How far ahead it is, where neither has gone round.
        let (behind, ahead) = (self.now.saturating_sub(time), time.saturating_sub(self.now));
        if self.late && behind > 0 {
            return self.now;
        }
        if first || behind <= SKEW && ahead <= SET_AHEAD {
            self.unfit = None;
            self.now = self.now.max(time);
            return self.now;
        }
        if ahead > 0 {
            self.odd.far_ahead += 1;
        } else {
            self.odd.back_in_time += 1;
        }
        if ahead > 0 || behind > SET_BACK {
            let agree = match self.unfit {
                Some((last, many))
                    if last <= at.saturating_add(SKEW) && at.saturating_sub(last) <= SET_AHEAD =>
                {
                    many + 1
                }
                _ => 1,
            };
            self.unfit = Some((at, agree));
            if agree >= AGREE {
                self.set_back = self.now.wrapping_sub(at);
                self.unfit = None;
            }
        }
        self.now
    }

    fn elapsed(&self) -> u64 {
        self.now - self.first.unwrap_or(self.now)
    }

    fn task(&mut self, tid: i32) -> &mut Task {
        // Whoever asks has looked, or has let it in.
        self.tasks.entry(tid).or_default()
    }

    /// Writes an event of a thread, with how long it ran since its event before.
    fn emit(&mut self, seen: Seen<'_>, what: What<'_>) -> io::Result<()> {
        let at = self.elapsed();
        let task = self.task(seen.tid);
        let ran = task.ran(seen.at);
        let event = Event { at, thread: task.thread, cpu: seen.cpu, ran, what };
        self.sink.take(&event)
    }

    /// A thread of which nobody has said where it comes from. Returns whether it belongs here.
    fn admit(&mut self, seen: Seen<'_>) -> io::Result<bool> {
        let process = match seen.saw {
            Saw::Process(process) => process,
            _ => seen.tid,
        };
        if self.strangers == Strangers::Leave {
            return Ok(false);
        }
        let known = self.threads > 0;
        self.add(seen, process, None)?;
        let admitted = self.knows(seen.tid);
        self.odd.strangers += u64::from(known && admitted);
        Ok(admitted)
    }

    /// Adds a thread to a process, in a space of its own unless one of that process is there, or made by another thread.
    fn add(&mut self, seen: Seen<'_>, process: i32, made: Option<(i32, bool, Call)>) -> io::Result<()> {
        if self.tasks.len() >= MOST_TASKS && !self.knows(seen.tid) {
            self.odd.crowded += 1;
            return Ok(());
        }
        if let Some(old) = self.remove(seen.tid) {
            // Its end was not seen.
            self.odd.again += 1;
            let at = self.elapsed();
            let event = Event { at, thread: old.thread, cpu: seen.cpu, ran: 0, what: What::End };
            self.sink.take(&event)?;
        }
        let thread = self.threads;
        let sibling = self.families.get(&process).and_then(BTreeSet::first);
        let sibling = sibling.and_then(|tid| self.tasks.get(tid));
        let (by, shares, call, space) = match (made, sibling) {
            (Some((maker, shares, call)), _) => {
                let maker = &self.tasks[&maker];
                (maker.thread, shares, call, shares.then_some(maker.space))
            }
            (None, Some(sibling)) => (sibling.thread, true, Call::default(), Some(sibling.space)),
            (None, None) => (thread, false, Call::default(), None),
        };
        let space = space.unwrap_or_else(|| {
            let copied = made.map(|(maker, ..)| self.spaces[self.tasks[&maker].space]);
            self.space(copied.unwrap_or_default())
        });
        self.threads += 1;
        self.tasks.insert(seen.tid, Task::new(thread, process, space, seen.at, self.switches));
        self.families.entry(process).or_default().insert(seen.tid);
        let at = self.elapsed();
        self.sink.take(&Event { at, thread, cpu: seen.cpu, ran: 0, what: What::Start { by, shares, call } })
    }

    /// The number of a new space. Those that nobody is in any more are forgotten now and then: memory is bounded.
    fn space(&mut self, space: task::Space) -> usize {
        if self.spaces.len() >= 2 * self.tasks.len() + 1024 {
            let (old, mut numbers) = (std::mem::take(&mut self.spaces), BTreeMap::new());
            for task in self.tasks.values_mut() {
                let next = self.spaces.len();
                let number = *numbers.entry(task.space).or_insert(next);
                if number == next {
                    self.spaces.push(old[task.space]);
                }
                task.space = number;
            }
        }
        self.spaces.push(space);
        self.spaces.len() - 1
    }

    fn made(
        &mut self,
        seen: Seen<'_>,
        tid: i32,
        process: Option<i32>,
        shares: Option<bool>,
    ) -> io::Result<()> {
        if tid == seen.tid {
            return Ok(());
        }
        let maker = self.task(seen.tid);
        let own = maker.process;
        let process = process.unwrap_or(tid);
        let shares = shares.or(maker.shares()).unwrap_or(process == own);
        let stack = maker.pending.as_ref().map_or(0, |pending| pending.stack);
        let took = maker.pending.as_ref().map_or(0, |pending| seen.at - pending.since);
        let made = (seen.tid, shares, Call { took, stack });
        self.add(Seen { tid, ..seen }, if shares && process == tid { tid } else { process }, Some(made))
    }

    fn exec(&mut self, seen: Seen<'_>, program: &str) -> io::Result<()> {
        self.emit(seen, What::Exec(program))?;
        let space = self.space(task::Space::default());
        self.task(seen.tid).space = space;
        Ok(())
    }

    fn gone(&mut self, seen: Seen<'_>) -> io::Result<()> {
        self.emit(seen, What::End)?;
        if let Some(task) = self.remove(seen.tid) {
            if self.ended.len() >= 8 * MOST_TASKS {
                self.ended.clear();
            }
            self.ended.insert(seen.tid, (task.thread, seen.at));
        }
        Ok(())
    }

    fn remove(&mut self, tid: i32) -> Option<Task> {
        let task = self.tasks.remove(&tid)?;
        if let Some(family) = self.families.get_mut(&task.process) {
            family.remove(&tid);
            if family.is_empty() {
                self.families.remove(&task.process);
            }
        }
        Some(task)
    }

    /// The thread leaves its CPU.
    fn off(&mut self, seen: Seen<'_>, preempted: bool) {
        let busy = self.busy(seen);
        let off = Off { since: seen.at, preempted, cpu: seen.cpu, busy };
        if self.task(seen.tid).leave(seen.at, off) {
            self.running.insert(seen.cpu, (busy, None));
        }
    }

    /// For how long a CPU has run recorded threads.
    fn busy(&self, seen: Seen<'_>) -> u64 {
        let (busy, since) = self.running.get(&seen.cpu).copied().unwrap_or_default();
        busy + since.map_or(0, |since| seen.at.saturating_sub(since))
    }

    /// The thread has a CPU again. What was between was a sleep, also where other programs had its CPU; not where
    /// threads had it that are recorded themselves, nor where it waited in a call, whose duration says so.
    fn on(&mut self, seen: Seen<'_>) -> io::Result<()> {
        let off = self.task(seen.tid).off().filter(|off| off.cpu != u16::MAX);
        let gone = off.map_or(0, |off| seen.at.saturating_sub(off.since));
        let away = off.map_or(0, |off| {
            let busy = self.busy(Seen { cpu: off.cpu, ..seen }).saturating_sub(off.busy);
            if off.preempted { gone.saturating_sub(busy) } else { gone }
        });
        let preempted = off.is_some_and(|off| off.preempted);
        let (gone, slept) = match &mut self.task(seen.tid).pending {
            // That it waits for a child is what `Join` says.
            Some(Pending { call: Syscall::Wait4, .. }) => (away, away),
            None => (gone, away),
            Some(pending) if preempted => {
                pending.away += away;
                (0, 0)
            }
            Some(_) => (0, 0),
        };
        if gone >= SHORTEST_SLEEP {
            // It could have gone on all the time if a sibling had its CPU: when it did go on is known.
            self.emit(seen, What::Sleep { ns: if slept >= SHORTEST_SLEEP { slept } else { 0 } })?;
        }
        self.task(seen.tid).run(seen.at);
        let busy = self.busy(seen);
        self.running.insert(seen.cpu, (busy, Some(seen.at)));
        Ok(())
    }

    /// The recorded thread that is seen, also while it goes.
    fn thread(&self, seen: Seen<'_>) -> Option<u32> {
        let goes = || self.ended.get(&seen.tid).filter(|(_, ended)| seen.at - ended < LONGEST_END);
        self.tasks.get(&seen.tid).map(|task| task.thread).or_else(|| goes().map(|&(thread, _)| thread))
    }

    /// A thread, of the program or not, sends requests to these CPUs.
    fn sends(&mut self, seen: Seen<'_>, mask: &[u64]) {
        if self.asks {
            return;
        }
        self.sends = true;
        let thread = self.thread(seen);
        let asked =
            |cpu: &u16| mask.get(usize::from(cpu / 64)).is_some_and(|word| word >> (cpu % 64) & 1 != 0);
        self.in_flight.extend((0..self.cpus).filter(asked).map(|cpu| (cpu, (seen.at, thread))));
    }

    /// A thread, of the program or not, asks a CPU to flush.
    fn asks(&mut self, seen: Seen<'_>, cpu: u16) -> io::Result<()> {
        (self.sends, self.asks) = (true, true);
        // Whoever asked it long ago has gone on without having been seen since. Of two who ask at once the CPU answers one.
        let was_answered = self.in_flight.get(&cpu).is_some_and(|(at, _)| seen.at - at >= LONGEST_FLUSH);
        if self.unanswered.remove(&cpu).is_some() && was_answered {
            self.lazy(cpu)?;
        }
        let thread = self.thread(seen);
        if cpu < self.cpus {
            self.in_flight.insert(cpu, (seen.at, thread));
            if thread.is_some() {
                self.unanswered.insert(cpu, seen.tid);
            }
        }
        Ok(())
    }

    /// A CPU was asked to flush, and whoever asked goes on without its having said that it did: it had nothing to do, with the space still
    /// loaded, and has unloaded it. Linux has no event for that.
    fn lazy(&mut self, cpu: u16) -> io::Result<()> {
        self.unanswered.remove(&cpu);
        let Some((_, Some(thread))) = self.in_flight.remove(&cpu) else { return Ok(()) };
        self.shootdown(thread, cpu, Victim::Idle, 0)
    }

    fn shootdown(&mut self, thread: u32, cpu: u16, victim: Victim, pages: u64) -> io::Result<()> {
        self.shootdowns += 1;
        let at = self.elapsed();
        self.sink.take(&Event { at, thread, cpu, ran: 0, what: What::Shootdown { victim, pages } })
    }

    /// A CPU was interrupted. It counts if a thread of the program has asked for it.
    fn flushed(&mut self, seen: Seen<'_>, pages: u64, left: bool) -> io::Result<()> {
        self.unanswered.remove(&seen.cpu);
        let sender = self.in_flight.remove(&seen.cpu).filter(|(at, _)| seen.at - at < LONGEST_FLIGHT);
        let victim = match self.thread(seen) {
            _ if left => Victim::Left,
            Some(thread) => Victim::Thread(thread),
            None if seen.tid == 0 => Victim::Idle,
            None => Victim::Other,
        };
        let thread = match (sender, victim) {
            (Some((_, Some(thread))), _) => thread,
            // Where nobody is ever seen to send, it was one of its own if it was interrupted itself.
            (None, Victim::Thread(thread)) if !self.sends => {
                self.odd.unsent += 1;
                thread
            }
            // It was somebody else's.
            _ => return Ok(()),
        };
        self.shootdown(thread, seen.cpu, victim, pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_that_nobody_is_in_are_forgotten_and_others_are_not() {
        let mut assembly = Assembly::new(Vec::new(), 1, Strangers::Leave, false);
        assembly.known(0, 7, &[7]).unwrap();
        let heap =
            Saw::Mapped { address: 0x5000, length: 0x1000, offset: 0, prot: 3, flags: 0, path: "[heap]" };
        assembly.take(Seen { at: 1, cpu: 0, tid: 7, saw: heap }).unwrap();
        assembly.known(2, 8, &[8]).unwrap();
        for at in 3..10_000 {
            assembly.take(Seen { at, cpu: 0, tid: 8, saw: Saw::Exec("again") }).unwrap();
        }
        assert!(assembly.spaces.len() < 2000, "{}", assembly.spaces.len());
        let space = |tid| assembly.spaces[assembly.tasks[&tid].space];
        assert_eq!((space(7).brk, space(8).brk), (Some(0x6000), None));
    }
}
